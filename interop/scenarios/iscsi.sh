# What the iSCSI scripts in the guest use; sourced after common.sh. From the host: PORTAL (the target as the guest reaches it),
# IQN (its name), ANNOUNCED (its address as it says it: what it advertises, else the host's own loopback), CHAP (`name secret`,
# and behind them `name secret` of the target; empty for none).
# There is no udev here (but in paths.sh): disks are found by their LUN in /sys, and their time limits are set by hand.

# load_iscsi: the driver and the daemon that logs in for it.
load_iscsi() {
    modprobe -a sd_mod sg iscsi_tcp || die "no iscsi_tcp module"
    mkdir -p /run/lock/iscsi
    iscsid || die "no iscsid"
}

# record IFACE: this target among those that iscsiadm knows, as seen from the guest. Long limits: the machine is emulated,
# its clock may run too fast, and a dead target is tried again for an hour.
record() {
    node "$1" -o new >/dev/null || die "no record of $IQN for $1"
    local name
    for name in session.timeo.replacement_timeout=3600 conn[0].timeo.login_timeout=240 conn[0].timeo.logout_timeout=240 \
        conn[0].timeo.noop_out_interval=60 conn[0].timeo.noop_out_timeout=240 session.err_timeo.abort_timeout=240 \
        session.err_timeo.lu_reset_timeout=240 session.err_timeo.tgt_reset_timeout=240 session.initial_login_retry_max=1; do
        set_node "$1" "node.${name%=*}" "${name#*=}"
    done
    [ -z "$CHAP" ] || chap "$1" $CHAP
}
node() {
    local iface=$1
    shift
    iscsiadm -m node -T "$IQN" -p "$PORTAL" -I "$iface" "$@"
}
set_node() { node "$1" -o update -n "$2" -v "$3" || die "$2 cannot be $3"; }
agree() { # IFACE KEY=VALUE...: what is to be offered in the login
    local iface=$1 key
    shift
    for key in "$@"; do
        case $key in
        *R2T=* | Immediate*) set_node "$iface" "node.session.iscsi.${key%=*}" "${key#*=}" ;;
        *) set_node "$iface" "node.conn[0].iscsi.${key%=*}" "${key#*=}" ;;
        esac
    done
}
chap() { # IFACE NAME SECRET [NAME SECRET]: who we are, and who the target has to be
    set_node "$1" node.session.auth.authmethod CHAP
    set_node "$1" node.session.auth.username "$2"
    set_node "$1" node.session.auth.password "$3"
    [ $# = 3 ] || set_node "$1" node.session.auth.username_in "$4"
    [ $# = 3 ] || set_node "$1" node.session.auth.password_in "$5"
}

# host NAME: an interface of iscsiadm that logs in as the initiator of this name.
host() {
    iscsiadm -m iface -I "$1" -o new >/dev/null && iscsiadm -m iface -I "$1" -o update -n iface.initiatorname -v "$2" >/dev/null ||
        die "no interface $1"
}

login() { node "$1" --login >/tmp/login 2>&1 || { cat /tmp/login; die "login as $1"; }; }
logout() {
    node "$1" --logout >/tmp/login 2>&1 || { cat /tmp/login; die "logout as $1"; }
    wait_for "the session to go" has_logged_out
}
# There is one session at a time.
session() { ls /sys/class/iscsi_session | sed -n 's/^session//p'; }
agreed() { # FACT=VALUE...: of the connection, as the kernel has it
    local fact seen
    for fact in "$@"; do
        seen=$(cat "/sys/class/iscsi_connection/connection$(session):0/${fact%=*}")
        [ "$seen" = "${fact#*=}" ] || die "agreed on ${fact%=*} $seen, expected ${fact#*=}"
    done
}
is_logged_in() { [ "$(cat "/sys/class/iscsi_session/session$(session)/state" 2>/dev/null)" = LOGGED_IN ]; }
has_logged_out() { [ -z "$(session)" ]; }
rescan() { iscsiadm -m session --rescan >/tmp/rescan 2>&1 || { cat /tmp/rescan; die "rescan"; }; }

# disk LUN: the block device's path, once there is one.
disk() {
    local block
    for block in /sys/class/iscsi_session/session"$(session)"/device/target*/*:"$1"/block/sd*; do
        [ ! -b "/dev/${block##*/}" ] || { echo "/dev/${block##*/}"; return 0; }
    done
    return 1
}
facts() { cat "/sys/block/$(basename "$(disk "$1")")/$2"; }
has_disk() { disk "$1" >/dev/null; }
has_no_disk() { ! has_disk "$1"; }
appears() { # LUN
    wait_for "LUN $1" has_disk "$1"
    echo 240 >"/sys/block/$(basename "$(disk "$1")")/device/timeout" || die "the time limit of LUN $1"
}
forget() { echo 1 >"/sys/block/$(basename "$(disk "$1")")/device/delete"; } # as an administrator takes a disk out that is gone

# crash: the target dies without a word and is started again; returns when the kernel has noticed and is logged in again.
losses() { dmesg | grep -c 'detected conn error'; }
has_recovered() { [ "$(losses)" -gt "$1" ] && is_logged_in; }
crash() {
    local before
    before=$(losses)
    ask restart
    wait_for "the kernel to log in again" has_recovered "$before"
}

iscsi_is_content() {
    local complaints
    complaints=$(dmesg | grep -E 'session recovery timed out|Sense Key : (Medium|Hardware|Aborted|Data)|rejecting I/O|iscsi.*(invalid|protocol|bad|unexpected|reject)')
    [ -z "$complaints" ] || die "the driver complained: $complaints"
    kernel_is_content
}
