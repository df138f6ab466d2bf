#!/bin/bash
# Connects once for each of COMBINATIONS (digests:queues, with spaces between) and verifies; KILLS times in each, the target
# dies in mid-write. LOSS is the percentage of the target's packets, each way, that the guest's network drops.
. /job/common.sh
load

if [ "${LOSS:-0}" != 0 ]; then
    modprobe -a nf_tables nft_chain_nat nft_numgen 2>/dev/null
    nft -f - <<END || die "nft"
table inet loss {
    chain in { type filter hook input priority 0; tcp sport $TRSVCID numgen random mod 100 < $LOSS counter drop; }
    chain out { type filter hook output priority 0; tcp dport $TRSVCID numgen random mod 100 < $LOSS counter drop; }
}
END
fi

for combination in $COMBINATIONS; do
    digests=${combination%:*} queues=${combination#*:}
    connect $(digests "$digests") $(queues "$queues") >/dev/null || die "connect with digests $digests, $queues queues"
    wait_for "namespace 1" has_node 1
    disk=$(node 1)
    seen=$(cat "/sys/class/nvme/$(controller)/queue_count")
    [ "$seen" = $((queues + 1)) ] || die "expected $queues I/O queues and the admin queue, seen $seen in all"
    journal=/run/journal.$digests.$queues
    for ((kill = 0; kill < ${KILLS:-1}; kill++)); do
        rm -f $journal
        python3 /job/journal.py write "$disk" $journal 300 &
        writer=$!
        wait_for "50 flushed writes" grep -qsx "f 50" $journal
        crash
        wait $writer || die "the writer saw an error"
        python3 /job/journal.py check "$disk" $journal || die "journal, digests $digests, $queues queues"
    done
    verify "$disk" 32M 16M || { cat /tmp/fio.log; die "fio read back wrong data"; }
    nvme disconnect -n "$NQN" >/dev/null || die "disconnect"
    wait_for "the namespace to go" has_no_node 1
    pass "digests $digests, $queues queues, ${KILLS:-1} kills"
done
[ "${LOSS:-0}" = 0 ] || nft list ruleset | grep counter
kernel_is_content
