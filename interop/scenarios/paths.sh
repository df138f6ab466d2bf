#!/bin/bash
# Two paths to a namespace and two to a LUN: the kernel's multipath goes by the path that the target says, hears of a change while
# it writes, and loses nothing. The target's listeners of group 1 are TRSVCID and PORTAL, those of group 2 SECOND and SECOND_PORTAL.
# There is no multipathd here: device mapper is given its paths by hand, and told by hand when one that it gave up serves again.
. /job/common.sh
load
modprobe -a scsi_dh_alua dm-multipath dm-service-time || die "no dm-multipath with ALUA"

ask_group() { ask group "$1" "$2"; }

# --- NVMe -------------------------------------------------------------------------------------------------------------
by_port() { grep -ls "trsvcid=$1\b" /sys/class/nvme/nvme*/address | cut -d/ -f5; } # the controller of this path
ana() { cat /sys/class/nvme/"$(by_port "$1")"/nvme*c*n*/"$2"; }
is_ana() { [ "$(ana "$1" ana_state)" = "$2" ]; }
become() { # GROUP STATE PORT SEEN: the state is set, and the kernel hears of it
    ask_group "$1" "$2"
    wait_for "$4 by port $3" is_ana "$3" "$4"
}

connect
TRSVCID=$SECOND connect
wait_for "the namespace" has_node 1
wait_for "the first path" is_ana "$TRSVCID" optimized
wait_for "the second path" is_ana "$SECOND" optimized
[ "$(ana "$TRSVCID" ana_grpid)" = 1 ] && [ "$(ana "$SECOND" ana_grpid)" = 2 ] || die "ANA groups are not those of the listeners"
disk=$(node 1)
nvme ana-log /dev/"$(by_port "$SECOND")" >/tmp/answer 2>&1 && grep -qE 'grpid[[:space:]]*:[[:space:]]*2$' /tmp/answer || { cat /tmp/answer; die "no ANA log"; }
pass "one namespace by two paths, in ANA groups 1 and 2"

verify "$disk" 0 16M &
fio=$!
become 1 standby "$TRSVCID" inaccessible
become 1 non-optimized "$TRSVCID" non-optimized
become 2 unavailable "$SECOND" inaccessible
become 2 optimized "$SECOND" optimized
become 1 transitioning "$TRSVCID" change
become 1 optimized "$TRSVCID" optimized
wait $fio || { cat /tmp/fio.log; die "fio over NVMe/TCP while paths changed"; }
become 1 standby "$TRSVCID" inaccessible
verify "$disk" 16M 4M || die "fio by the second path alone"
become 2 standby "$SECOND" inaccessible
dd if=/dev/urandom of="$disk" bs=4096 count=1 oflag=direct status=none &
waits=$!
sleep 1
kill -0 $waits || die "a write ended although no path serves"
become 1 optimized "$TRSVCID" optimized
wait $waits || die "the write that waited for a path"
become 2 optimized "$SECOND" optimized
pass "NVMe multipath goes by the path that serves, waits while none does, and loses nothing"

# --- iSCSI ------------------------------------------------------------------------------------------------------------
. /job/iscsi.sh # it has a `node` of its own
load_iscsi
by_portal() { # PORTAL: the disk of this path
    local connection session block
    for connection in /sys/class/iscsi_connection/connection*; do
        [ "$(cat "$connection/persistent_address"):$(cat "$connection/persistent_port")" = "$1" ] || continue
        session=${connection##*/connection}
        for block in /sys/class/iscsi_session/session"${session%%:*}"/device/target*/*:0/block/sd*; do
            [ ! -b "/dev/${block##*/}" ] || { echo "${block##*/}"; return 0; }
        done
    done
    return 1
}
has_path() { by_portal "$1" >/dev/null; }
alua() { cat "/sys/block/$(by_portal "$1")/device/$2"; }
is_alua() { [ "$(alua "$1" access_state)" = "$2" ]; }
number() { cat "/sys/block/$(by_portal "$1")/dev"; }
says_standby() { grep -q '(standby)' /tmp/answer; }
tool() { "$@" >/tmp/answer 2>&1 || { cat /tmp/answer; die "no answer: $*"; }; }
says() { grep -qE -- "$1" /tmp/answer || { cat /tmp/answer; die "expected $1 in the answer to $2"; }; }

for portal in "$PORTAL" "$SECOND_PORTAL"; do
    PORTAL=$portal record default
    PORTAL=$portal login default
    wait_for "the disk by $portal" has_path "$portal"
    echo 240 >"/sys/block/$(by_portal "$portal")/device/timeout"
    [ "$(alua "$portal" dh_state)" = alua ] || die "no ALUA handler for the path by $portal"
    wait_for "the state of $portal" is_alua "$portal" active/optimized
done
first=/dev/$(by_portal "$PORTAL") second=/dev/$(by_portal "$SECOND_PORTAL")
tool sg_inq "$first" && says "TPGS=1" sg_inq
tool sg_vpd -p di "$second" && says "Target port group: 0x2" "sg_vpd -p di" && says "Relative target port: 0x2" "sg_vpd -p di"
tool sg_rtpg -d "$first" && says "group id : 0x1 " sg_rtpg && says "group id : 0x2 " sg_rtpg
pass "one LUN by two ports, in target port groups 1 and 2"

path() { echo "service-time 0 1 1 $(number "$1") 1"; }
dmsetup create mp --table "0 $(blockdev --getsz "$first") multipath 1 queue_if_no_path 1 alua 2 1 $(path "$PORTAL") $(path "$SECOND_PORTAL")" ||
    die "no multipath device"
disk=/dev/$(basename "$(readlink -f /sys/block/dm-*/dm/name | head -n1 | xargs dirname | xargs dirname)")
reopened() { ask_group "$1" optimized; dmsetup message mp 0 reinstate_path "$(number "$2")"; }
is_failed() { dmsetup status mp | grep -qE " $(number "$1") F "; }
reads() { dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct status=none; }

verify "$disk" 0 16M &
fio=$!
ask_group 1 standby
wait_for "the first path to be given up" is_failed "$PORTAL"
reopened 1 "$PORTAL"
ask_group 2 unavailable
wait_for "the second path to be given up" is_failed "$SECOND_PORTAL"
reopened 2 "$SECOND_PORTAL"
wait $fio || { cat /tmp/fio.log; dmsetup status mp; die "fio over iSCSI while paths changed"; }
ask_group 1 standby
verify "$disk" 16M 4M || die "fio by the second path alone"
reopened 1 "$PORTAL"
pass "device mapper goes by the path that serves, and loses nothing"

sg_stpg --tp=2 --state=s "$first" >/dev/null 2>&1 # which asks first whether it may, and says nothing if not
tool sg_rtpg -d "$second" && ! says_standby || die "a host set a state that may not"
# From now on the kernel's handler would open by itself what it fails over to.
ask let_hosts_set
tool sg_stpg --tp=2 --state=s "$first"
tool sg_rtpg -d "$second" && says_standby || die "the state that a host set is not told"
! dd if="$second" of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || die "a path in standby was read by"
reads || die "a read by the path that is left"
tool sg_stpg --tp=2 --state=ao "$second"
# The kernel hears of it by the next answer.
has_heard() { reads && is_alua "$SECOND_PORTAL" active/optimized; }
wait_for "the state that was set" has_heard
pass "a host sets the state of a group"

dmsetup remove mp || die "the multipath device stays"
for portal in "$PORTAL" "$SECOND_PORTAL"; do PORTAL=$portal node default --logout >/tmp/login 2>&1 || { cat /tmp/login; die "logout"; }; done
nvme disconnect -n "$NQN" >/dev/null
# What a closed path refused is no complaint: that is what was asked for.
complaints=$(dmesg | grep -E 'BUG|Oops|WARNING|Buffer I/O|identifiers changed|digest error')
[ -z "$complaints" ] || die "the kernel complained: $complaints"
