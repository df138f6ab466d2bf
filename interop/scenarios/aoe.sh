# What the AoE scripts in the guest use; sourced after common.sh. From the host: VLAN (empty for none), MTU.
# The driver is told to use one interface, since a second one on the same bridge would be a second path to each target.

interface=eth0
[ -z "$VLAN" ] || interface=eth0.$VLAN

# load_aoe: the driver, which asks for targets as soon as it is there. It gives a target up after an hour of silence
# (unless told: 3 minutes), since the machine is emulated and its host may be loaded.
load_aoe() {
    if [ -n "$VLAN" ]; then
        modprobe 8021q || die "no 8021q module"
        ip link add link eth0 name "$interface" type vlan id "$VLAN" && ip link set "$interface" mtu "$MTU" up || die "no VLAN $VLAN"
    fi
    modprobe aoe aoe_iflist="$interface" aoe_deadsecs=3600 || die "no aoe module"
}

disk() { echo "/dev/etherd/e7.$1"; }
facts() { cat "/sys/block/etherd!e7.$1/$2" 2>/dev/null; }

# found SLOT: whether the driver knows its size. Asks again now and then: the first question may have been lost.
asked=0
found() {
    [ "$(facts "$1" state)" = up ] && [ "$(facts "$1" size)" != 0 ] && [ -b "$(disk "$1")" ] && return
    asked=$((asked + 1))
    [ $((asked % 20)) != 0 ] || aoe-discover
    return 1
}

# announced SLOT WORD...: has the host do that, and waits until the export has announced itself.
announced() {
    local slot=$1 listener
    shift
    rm -f /tmp/announced
    python3 /job/stations.py announced "$interface" "7.$slot" >/tmp/announced &
    listener=$!
    wait_for "the listener" grep -qs listening /tmp/announced
    ask "$@"
    wait $listener || { cat /tmp/announced; die "$*: e7.$slot was not announced"; }
}

# The kernel looks at the size again only while nobody has the disk open, so this must not open it either.
has_sectors() { [ "$(facts "$1" size)" = "$2" ]; }

# settle DISK: reads until the driver's idea of the round trip, which begins at seconds and follows by 1/256 with each
# answer, is that of this network. Before that, each lost frame would cost many seconds.
settle() { dd if="$1" of=/dev/null bs=64k count=$((MTU / 9000 * 200 + 64)) iflag=direct status=none || die "reading $1"; }

# lossy PERCENT: that much of what comes and of what goes is lost. Not before discovery: the driver waits 16 s for IDENTIFY.
lossy() {
    modprobe -a sch_netem sch_ingress act_mirred cls_matchall && modprobe ifb numifbs=1 || die "no netem"
    ip link set ifb0 up &&
        tc qdisc add dev eth0 root netem loss "$1%" limit 10000 &&
        tc qdisc add dev ifb0 root netem loss "$1%" limit 10000 &&
        tc qdisc add dev eth0 handle ffff: ingress &&
        tc filter add dev eth0 parent ffff: protocol all matchall action mirred egress redirect dev ifb0 || die "tc"
}
dropped() { tc -s qdisc show dev "$1" root | grep -o 'dropped [0-9]*' | grep -m 1 -o '[0-9]*'; }

# lossless: the end of it; frames must have been lost both ways, or nothing was proven.
lossless() {
    local out in
    out=$(dropped eth0) in=$(dropped ifb0)
    [ "$out" -gt 0 ] && [ "$in" -gt 0 ] || die "netem lost $out frames on the way out and $in on the way in"
    tc qdisc del dev eth0 root && tc qdisc del dev eth0 ingress && ip link set ifb0 down || die "tc"
    pass "netem lost $out frames on the way out and $in on the way in"
}

# stranger: mac0, a station that is none of ours: the guest's second address on the same wire
stranger() {
    modprobe macvlan && ip link add link eth0 name mac0 type macvlan mode bridge && ip link set mac0 mtu "$MTU" up || die "no macvlan"
}

# in_writes KILLS: so often the target dies in mid-write and comes back; what was acknowledged must be there.
in_writes() {
    local kills=$1 device=$2 writer fio kill
    rm -f /run/journal
    python3 /job/journal.py write "$device" /run/journal $((300 * kills + 200)) &
    writer=$!
    verify "$device" 16M 8M --rate_iops=200 &
    fio=$!
    for ((kill = 0; kill < kills; kill++)); do
        wait_for "$((300 * kill + 100)) acknowledged writes" grep -qsx "f $((300 * kill + 100))" /run/journal
        ask restart
    done
    wait $writer || die "the writer saw an error"
    wait $fio || { cat /tmp/fio.log; die "fio read back wrong data"; }
    python3 /job/journal.py check "$device" /run/journal || die "acknowledged data were lost"
}

aoe_is_content() {
    local complaints
    complaints=$(dmesg | grep -E 'aoe: .*(error|runt|bad|down|fail|unexpected|not up)')
    [ -z "$complaints" ] || die "the driver complained: $complaints"
    kernel_is_content
}
