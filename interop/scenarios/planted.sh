#!/bin/bash
# Two failures that we plant, which the checkers of the other scripts must notice. Namespace 1 is in RAM under a fixed
# identity, so the target's death loses acknowledged and flushed data; namespace 2 is a file that the host overwrites.
. /job/common.sh
load
connect $(queues 1) || die "connect"
wait_for "namespace 1" has_node 1
wait_for "namespace 2" has_node 2

ram=$(node 1) file=$(node 2)
python3 /job/journal.py write "$ram" /run/journal 200 || die "the writer saw an error"
python3 /job/journal.py check "$ram" /run/journal || die "the journal finds losses before there are any"
verify "$file" 0 8M --do_verify=1 || die "fio finds errors before there are any"

ask corrupt d0 2097152 65536
crash
failed=0
python3 /job/journal.py check "$ram" /run/journal || failed=1
if ! verify "$file" 0 8M --verify_only; then
    grep -m 3 -i verify /tmp/fio.log
    echo "FAIL: fio read back wrong data"
    failed=1
fi
nvme disconnect -n "$NQN"
exit $failed
