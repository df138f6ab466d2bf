#!/bin/bash
# The guest's kernel as a label switching router between ours, by Ethernet and in UDP, as the sender and the receiver of what
# ours switches, as the other end of our tunnels, and as the AoE driver at the end of the path (see mpls.py for who has which label).
. /job/common.sh
. /job/aoe.sh
modprobe -a mpls_router mpls_iptunnel || die "no mpls_router"
sysctl -qw net.mpls.platform_labels=1000 net.mpls.conf.eth2.input=1 net.mpls.conf.eth3.input=1 || die "sysctl"

# route LABEL OUT HOP DEVICE: packets with it go on so; OUT is `as` with another label, or nothing for a pop.
route() { ip -f mpls route replace "$1" $2 via inet "$3" dev "$4" || die "ip -f mpls route: $*"; }
ler2="10.77.3.1 eth3" lsr="10.77.2.1 eth2"

say "a wrong label"
route 111 "" $lsr
route 101 "as 199" $ler2
route 110 "as 111" $lsr
load_aoe
ask dropped ler2 br3 unknown_label
! found 3 || die "a disk is found behind a label that leads nowhere"
pass "a label that is not in its map is dropped by the edge"

say "swap"
route 101 "as 102" $ler2
for slot in 3 4; do wait_for "e7.$slot" found $slot; done
has_sectors 3 "$SECTORS" || die "e7.3 has $(facts 3 size) sectors, expected $SECTORS"
[ "$(facts 3 payload)" = 1024 ] || die "$(facts 3 payload) bytes a frame, expected 1024"
settle "$(disk 3)"
verify "$(disk 3)" 24M 4M || { cat /tmp/fio.log; die "fio read back wrong data"; }
ask initiate 4
pass "Linux swaps between a switch and an edge of ours"

say "penultimate hop popping"
route 101 "" $ler2
aoe-discover || die "aoe-discover"
ask dropped ler2 br3 wrong_tunnel
ask pop_before_edges
wait_for "e7.3" dd if="$(disk 3)" of=/dev/null bs=4096 count=1 iflag=direct status=none
verify "$(disk 3)" 24M 4M || { cat /tmp/fio.log; die "fio read back wrong data"; }
ask initiate 4
pass "Linux pops before one edge, our switch before the other"

say "labels in UDP"
modprobe -a fou ipip || die "no fou"
ip fou add port 6635 ipproto 137 || die "fou"
ip link add udp1 type ipip mode mplsip local 10.77.2.2 remote 10.77.2.1 encap fou encap-sport auto encap-dport 6635 || die "mplsip"
ip link set udp1 mtu 8000 up && sysctl -qw net.mpls.conf.udp1.input=1 || die "udp1"
route 100 "as 102" $ler2
ip -f mpls route replace 110 as 112 dev udp1 || die "ip -f mpls route: 110"
ask in_udp
wait_for "e7.3" dd if="$(disk 3)" of=/dev/null bs=4096 count=1 iflag=direct status=none
verify "$(disk 3)" 24M 4M || { cat /tmp/fio.log; die "fio read back wrong data"; }
ask came_in_udp
pass "Linux swaps between labels in UDP and on Ethernet, each to an edge of ours"
ip link del udp1
route 110 "as 111" $lsr

say "Linux sends labels through our switch to Linux"
ip netns add far && ip link set eth4 netns far || die "no namespace"
far() { ip netns exec far "$@"; }
far sysctl -qw net.mpls.platform_labels=1000 net.mpls.conf.eth4.input=1 || die "sysctl"
far ip link set lo up && far ip addr add 10.88.0.2/32 dev lo && far ip addr add 10.77.4.2/24 dev eth4 && far ip link set eth4 mtu 9000 up || die "far"
ip addr add 10.88.0.1/32 dev lo || die "near"
ip route add 10.88.0.2/32 encap mpls 400 via inet 10.77.2.1 dev eth2 src 10.88.0.1 || die "encap"
far ip route add 10.88.0.1/32 encap mpls 410/411 via inet 10.77.4.1 dev eth4 src 10.88.0.2 || die "encap"
far ip -f mpls route add 401 dev lo && ip -f mpls route add 411 dev lo || die "the ends of the tunnels"
far tcpdump -i eth4 -n -v -l mpls 401 >/tmp/swapped 2>/dev/null &
captures=$!
tcpdump -i eth2 -n -v -l mpls 411 >/tmp/popped 2>/dev/null &
captures+=" $!"
pinged() { ping -c 3 -i 0.2 "$@" 10.88.0.2 >/tmp/ping; }
captured() { pinged && grep -q "$2" "/tmp/$1"; }
# A label begins with the hops that its packet has. A swap takes one from them, and the end of the tunnel one more; a popped
# label takes its own with it.
wait_for "401 with one hop less" captured swapped "label 401.*\[S\], ttl 63"
wait_for "411 as it was sent" captured popped "label 411.*\[S\], ttl 64"
grep -q "3 received" /tmp/ping && grep -q "ttl=63" /tmp/ping || { cat /tmp/ping; die "ping"; }
pinged -t 3 || die "three hops are enough: ours, the end of the tunnel, and the station"
! pinged -t 1 -W 1 || die "a packet of one hop came through our switch"
ask dropped lsr br2 ttl_expired
kill $captures
pass "our switch swaps and pops between two Linux edges"

# reload INTERFACE: the driver knows of no disk, and looks for them there alone.
reload() {
    rmmod aoe || die "rmmod aoe"
    local interface=$1
    load_aoe
}
# used DEVICE: the driver uses a disk behind it.
used() {
    ip link set "$1" mtu 1500 up || die "no interface $1"
    reload "$1"
    wait_for "e7.3" found 3
    settle "$(disk 3)"
    verify "$(disk 3)" 24M 4M || { cat /tmp/fio.log; die "fio read back wrong data"; }
}
# tunnelled KIND DEVICE: the driver uses a disk through a tunnel of the kernel's.
tunnelled() {
    say "$1"
    ask tunnel "$1"
    used "$2"
    ask tunnelled
    pass "Linux ends our tunnel of $1, with $2"
}
modprobe -a ip_gre l2tp_eth || die "no tunnels"
ip link add gre1 type gretap local 10.77.2.2 remote 10.77.2.1 key 7 iseq oseq || die "gretap"
tunnelled gre gre1
ip l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap udp local 10.77.2.2 remote 10.77.2.1 udp_sport 1701 udp_dport 1701 || die "l2tp tunnel"
ip l2tp add session name l2tp1 tunnel_id 1 session_id 8 peer_session_id 7 cookie 5eed1234 peer_cookie 0123456789abcdef seq both || die "l2tp session"
tunnelled l2tp l2tp1

say "a pseudowire by tc"
modprobe -a sch_ingress cls_flower cls_matchall act_mpls act_vlan act_mirred || die "no tc"
ip link add pw1 type veth peer name pw1end && ip link set pw1end mtu 1500 up || die "veth"
tc qdisc add dev pw1end clsact && tc qdisc add dev eth2 clsact || die "clsact"
# Ethernet of the link | 111 | 1001 S | the driver's frame, and off again.
tc filter add dev pw1end ingress matchall action mpls mac_push label 1001 ttl 64 \
    action vlan push_eth dst_mac "$(ip neigh get 10.77.2.1 dev eth2 | grep -o '..:..:..:..:..:..')" src_mac "$(cat /sys/class/net/eth2/address)" \
    action mpls push label 111 ttl 64 action mirred egress redirect dev eth2 || die "mac_push"
tc filter add dev eth2 ingress protocol mpls_uc flower mpls_label 1002 \
    action vlan pop_eth action mpls pop protocol teb action mirred egress redirect dev pw1end || die "mpls pop"
ask by_tc
used pw1
ask came_by_tc
pass "Linux ends our pseudowire without a control word, with tc"
rmmod aoe
ip link del gre1
tc qdisc del dev eth2 clsact

say "a silent cut in mid-write"
route 101 "as 102" $ler2
ask protect
ask takes primary
load_aoe
wait_for "e7.3" found 3
rm -f /run/journal
python3 /job/journal.py write "$(disk 3)" /run/journal 1200 &
writer=$!
verify "$(disk 3)" 16M 8M --rate_iops=200 &
fio=$!
at() { wait_for "$1 acknowledged writes" grep -qsx "f $1" /run/journal; }
# silence INTERFACE...: what this machine switches there is lost, in silence, while both ends see a link that is up.
silence() {
    nft add table netdev cut || die "nft"
    local interface
    for interface; do nft add chain netdev cut "$interface" "{ type filter hook egress device $interface priority 0; policy drop; }" || die "nft"; done
}
at 200
silence eth3
ask takes backup
at 500
nft delete table netdev cut
ask takes primary
at 800
silence eth2 eth3
ask takes backup
at 1100
nft delete table netdev cut
wait $writer || die "the writer saw an error"
wait $fio || { cat /tmp/fio.log; die "fio read back wrong data"; }
ask takes primary
python3 /job/journal.py check "$(disk 3)" /run/journal || die "acknowledged data were lost"
aoe_is_content
pass "edge, switch, switch, edge: cut in one direction, then in both, and nothing acknowledged lost"
