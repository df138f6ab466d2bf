#!/bin/bash
# Discovery, then fio and journal: with LOSS percent of the frames lost each way, and KILLS deaths of the target in mid-write.
. /job/common.sh
. /job/aoe.sh
load_aoe
wait_for "e7.3" found 3
[ "$(facts 3 netif)" = "$interface" ] || die "found on $(facts 3 netif), expected $interface"
[ "$(facts 3 payload)" = "$PAYLOAD" ] || die "$(facts 3 payload) bytes a frame, expected $PAYLOAD"
has_sectors 3 "$SECTORS" || die "e7.3 has $(facts 3 size) sectors, expected $SECTORS"
device=$(disk 3)
settle "$device"
[ "$LOSS" = 0 ] || lossy "$LOSS"
in_writes "$KILLS" "$device"
verify "$device" 24M 8M || { cat /tmp/fio.log; die "fio read back wrong data"; }
[ "$LOSS" = 0 ] || lossless
aoe_is_content
pass "$KILLS kills, $LOSS% loss, MTU $MTU${VLAN:+, VLAN $VLAN}"
