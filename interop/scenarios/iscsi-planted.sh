#!/bin/bash
# Failures that we plant, which the checkers of iscsi-full.sh must notice. LUN 0 is in RAM under a fixed identity, so the
# target's death loses acknowledged and flushed data; LUN 1 is a file that the host overwrites.
. /job/common.sh
. /job/iscsi.sh
load_iscsi
host stranger "$STRANGER"
record default
login default
appears 0
appears 1

ram=$(disk 0) file=$(disk 1)
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
logout default
record stranger
if node stranger --login >/dev/null; then
    echo "FAIL: a host that is not on the list was let in"
    failed=1
fi
exit $failed
