# The package on a machine that systemd has booted: installed as docs/operators.md has it, serving a file, a block device and an AoE
# link as its user; reloaded, restarted, killed, hung, with more rights by drop-ins; booted again; removed, purged. The machine is its
# own host: the kernel's NVMe/TCP over the loopback, its AoE driver over a veth pair. /dev/vdb is a disk with the serial disk0.
#
# It is run twice: its first run ends by a boot of everything but the kernel (systemctl soft-reboot), after which it is run again.
. ./common.sh
export SYSTEMD_PAGER= SYSTEMD_COLORS=0 TRADDR=127.0.0.1 TRSVCID=4420 NQN=nqn.2026-11.net.plateway:v0
config=/etc/plateway/plateway.toml
state=/var/lib/job

journal() { journalctl -u plateway -o cat --no-pager; }
die() {
    echo "FAIL: $*"
    systemctl status plateway --no-pager -n 0
    journal | tail -n 40
    dmesg | tail -n 15
    exit 1
}
logged() { journal | grep -qF -- "$*"; }
main_pid() { systemctl show -P MainPID plateway; }
serves() { plateway status 2>/dev/null | grep -qF -- "$1"; }
is_new() { [ "$(main_pid)" != 0 ] && [ "$(main_pid)" != "$1" ] && plateway status >/dev/null 2>&1; }
drop_in() { # NAME LINE...: as `systemctl edit` writes it
    local name=$1
    shift
    mkdir -p /etc/systemd/system/plateway.service.d
    { echo "[Service]"; printf '%s\n' "$@"; } >"/etc/systemd/system/plateway.service.d/$name.conf"
    systemctl daemon-reload
}

# udev may have looked at the disk before its table was whole: then whoever waits triggers it, as an administrator would.
nudged() { "$@" || { nudges=$((${nudges:-0} + 1)); [ $((nudges % 100)) != 0 ] || udevadm trigger --action=change --subsystem-match=block; false; }; }
is_of_group() { [ "$(stat -Lc %G "$1")" = plateway ]; }
put() { dd if="$1" of="$2" bs=64k oflag=direct conv=notrunc status=none && sync "$2" || die "cannot write $2"; }
same() { dd if="$2" bs=64k count=16 iflag=direct status=none | cmp -s - "$1"; }
aoe_disk=/dev/etherd/e7.0
has_aoe() { [ -b $aoe_disk ] || { aoe-discover; sleep 0.1; false; }; }
all_hold() { # what was written is there, on each road
    wait_for "namespace 1" has_node 1
    wait_for "namespace 2" has_node 2
    same $state/p1 "$(node 1)" || die "$1: the file does not hold what was written"
    same $state/p2 "$(node 2)" || die "$1: the block device does not hold what was written"
    wait_for "e7.0" has_aoe
    same $state/p3 $aoe_disk || die "$1: e7.0 does not hold what was written"
    pass "$1"
}

# write_config [ACCESS [MORE]]: what is served, with the link's access, and more text.
write_config() {
    cat >$config <<TOML
[[disk]]
name = "d0"
uri = "file:/srv/plateway/d0.img?create=64MiB"
[[disk]]
name = "d1"
uri = "/dev/disk/by-partlabel/plateway-a"
[[disk]]
name = "d2"
uri = "file:/srv/plateway/d2.img?create=16MiB"
[[volume]]
name = "v0"
disks = ["d0"]
[[volume]]
name = "v1"
disks = ["d1"]
[[volume]]
name = "v2"
disks = ["d2"]
[[listener]]
nvme = "127.0.0.1:4420"
[[link]]
ethernet = "aoe0"
access = "${1:-packet}"
[[export]]
volume = "v0"
nvme = { subsystem = "$NQN", nsid = 1, hosts = ["$hostnqn"] }
[[export]]
volume = "v1"
nvme = { subsystem = "$NQN", nsid = 2, hosts = ["$hostnqn"] }
[[export]]
volume = "v2"
aoe = { interface = "aoe0", shelf = 7, slot = 0, hosts = "any" }
${2:-}
TOML
}

first() {
    mkdir -p $state
    # An event between unpacking and configuring has udev read the rule before its group is there, if its last look at
    # its files is three seconds old. That may come with any installation, so here it always does.
    { dpkg --unpack /job/plateway.deb && sleep 4 && udevadm trigger --settle --action=change --subsystem-match=block &&
        dpkg --configure plateway; } >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; die "the package cannot be installed"; }
    [ -z "$PLANT" ] || sed -i "$PLANT" /usr/lib/systemd/system/plateway.service
    [ "$(systemctl is-enabled plateway)" = disabled ] || die "it is enabled, and nobody asked for it"
    pass "installed"

    # As it comes, it serves nothing.
    systemctl start plateway || die "it does not start as it comes"
    pid=$(main_pid)
    [ "$(ps -o user= -p "$pid")" = plateway ] || die "it runs as $(ps -o user= -p "$pid")"
    grep -q '^CapEff:.0000000000002000$' "/proc/$pid/status" || die "more or less than CAP_NET_RAW: $(grep Cap "/proc/$pid/status")"
    grep -q '^NoNewPrivs:.1$' "/proc/$pid/status" || die "it may get new privileges"
    pass "runs as its user, with the right to raw Ethernet and no other"
    systemctl stop plateway || die "it does not stop"

    # By the guide.
    install -d -o plateway -g plateway -m 0750 /srv/plateway
    echo 'label: gpt
size=32MiB, name=plateway-a' | sfdisk -q /dev/disk/by-id/virtio-disk0 || die "sfdisk"
    udevadm settle
    wait_for "the partition" nudged test -b /dev/disk/by-partlabel/plateway-a
    wait_for "the udev rule to give plateway-a to the group" nudged is_of_group /dev/disk/by-partlabel/plateway-a
    ip link add aoe0 mtu 9000 type veth peer name aoe1 mtu 9000 && ip link set aoe0 up && ip link set aoe1 up || die "veth"
    write_config
    plateway check $config >/tmp/check 2>&1 || { cat /tmp/check; die "check refuses the configuration"; }
    systemctl enable --now plateway || die "enable --now"
    serves e7.0 || plateway status | grep -q '7.0' || { plateway status; die "e7.0 is not served"; }
    pass "enabled"

    for n in 1 2 3; do head -c 1M /dev/urandom >$state/p$n; done
    load
    nvme connect -t tcp -a $TRADDR -s $TRSVCID -n $NQN --hostnqn=nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555 2>/tmp/no &&
        die "a stranger was let in"
    logged 99999999-2222-3333-4444-555555555555 || die "the journal does not name the stranger"
    connect || die "nvme connect"
    modprobe aoe aoe_iflist=aoe1 aoe_deadsecs=3600 || die "no aoe module"
    wait_for "namespace 1" has_node 1
    wait_for "namespace 2" has_node 2
    wait_for "e7.0" has_aoe
    put $state/p1 "$(node 1)"
    put $state/p2 "$(node 2)"
    put $state/p3 $aoe_disk
    all_hold "served a file, a block device and an AoE link"
    [ "$(stat -c %U:%a /srv/plateway/d0.img)" = plateway:600 ] || die "$(ls -l /srv/plateway)"

    # A reload brings what is new, and takes away nothing that is in use.
    write_config packet '[[disk]]
name = "m0"
uri = "ram:8MiB"
[[volume]]
name = "v3"
disks = ["m0"]
[[export]]
volume = "v3"
nvme = { subsystem = "'$NQN'", nsid = 3, hosts = ["'"$hostnqn"'"] }'
    systemctl reload plateway || die "reload"
    wait_for "namespace 3" has_node 3
    sed -n '/m0/,$!p' $config | sed '/^\[\[export\]\]$/,/nsid = 1,/d' >/tmp/less && cp /tmp/less $config
    systemctl reload plateway || die "reload"
    wait_for "a refusal in the journal" logged "plateway apply $config"
    has_node 1 || die "a reload took away what is in use"
    all_hold "reloaded; what is in use was not taken away"

    write_config
    systemctl restart plateway || die "restart"
    all_hold "restarted"

    pid=$(main_pid)
    kill -KILL "$pid"
    wait_for "systemd to start it again" is_new "$pid"
    all_hold "killed, and started again"

    drop_in watchdog WatchdogSec=10
    systemctl restart plateway || die "restart"
    pid=$(main_pid)
    kill -STOP "$pid"
    wait_for "the watchdog to end it" is_new "$pid"
    rm /etc/systemd/system/plateway.service.d/watchdog.conf
    systemctl daemon-reload
    all_hold "hung, ended by the watchdog, and started again"

    # Another folder, by the drop-in that the guide has.
    install -d -o plateway -g plateway /data
    far='[[disk]]
name = "far"
uri = "file:/data/far.img?create=8MiB"
[[volume]]
name = "v3"
disks = ["far"]
[[export]]
volume = "v3"
nvme = { subsystem = "'$NQN'", nsid = 3, hosts = ["'"$hostnqn"'"] }'
    write_config packet "$far"
    systemctl reload plateway || die "reload"
    wait_for "what is wrong with /data in the journal" logged /data/far.img
    [ ! -e /data/far.img ] || die "the sandbox lets it write to /data"
    drop_in folder ReadWritePaths=/data
    systemctl restart plateway || die "restart with /data"
    wait_for "/data/far.img" test -s /data/far.img
    pass "a file in /data, once its drop-in is there"

    # AF_XDP, by the drop-in that the guide has; and a group on the control socket.
    capabilities="CAP_NET_RAW CAP_NET_ADMIN CAP_BPF CAP_PERFMON"
    drop_in xdp "AmbientCapabilities=$capabilities" "CapabilityBoundingSet=$capabilities" SystemCallFilter=bpf RestrictAddressFamilies=AF_XDP
    write_config xdp
    sed -i '1i [server]\ncontrol_group = "plateway"' $config
    systemctl restart plateway || die "restart with AF_XDP"
    plateway status | grep -q 'aoe0.* xdp' || { plateway status; die "the link is not AF_XDP's"; }
    all_hold "AF_XDP, once its drop-in is there"
    [ "$(stat -c %G:%a /run/plateway/control.sock)" = plateway:660 ] || die "$(ls -l /run/plateway)"
    setpriv --reuid nobody --regid plateway --clear-groups plateway status >/dev/null || die "the group may not use the control socket"
    setpriv --reuid nobody --regid nogroup --clear-groups plateway status >/dev/null 2>&1 && die "everybody may use the control socket"
    pass "the control socket is the group's"
    rm /etc/systemd/system/plateway.service.d/*.conf
    systemctl daemon-reload
    write_config
    systemctl restart plateway || die "restart"
    all_hold "as before"

    touch $state/booted
    say "boots"
    systemctl soft-reboot
    sleep 600
}

second() {
    wait_for "the service, which is enabled" systemctl is-active -q plateway
    all_hold "served again after a boot"
    [ -z "$(systemctl --failed --no-legend | grep -v ldconfig)" ] || die "failed: $(systemctl --failed --no-legend)"

    nvme disconnect -n $NQN >/dev/null
    dpkg -r plateway >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; die "the package cannot be removed"; }
    [ ! -e /usr/bin/plateway ] && [ -z "$(pgrep -x plateway)" ] || { cat /tmp/dpkg; die "removed, and it runs on"; }
    [ -e $config ] && [ -e /var/lib/plateway/identities.toml ] || die "a removal took the configuration or the state"
    dpkg -P plateway >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; die "the package cannot be purged"; }
    [ ! -e /etc/plateway ] && [ ! -e /var/lib/plateway ] || die "left: $(ls -d /etc/plateway /var/lib/plateway)"
    cmp -s -n 1048576 $state/p1 /srv/plateway/d0.img || die "a purge took what was served"
    same $state/p2 /dev/disk/by-partlabel/plateway-a || die "a purge took what was served"
    pass "removed and purged; what was served stays"
}

if [ -e $state/booted ]; then second; else first; fi
