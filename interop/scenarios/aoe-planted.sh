#!/bin/bash
# Failures that we plant, which the checkers of aoe-full.sh must notice. e7.3 is in RAM under a fixed identity, so the
# target's death loses acknowledged data; e7.4 is a file that the host overwrites, and it hears everybody.
. /job/common.sh
. /job/aoe.sh
load_aoe
wait_for "e7.3" found 3
wait_for "e7.4" found 4
stranger

python3 /job/journal.py write "$(disk 3)" /run/journal 200 || die "the writer saw an error"
python3 /job/journal.py check "$(disk 3)" /run/journal || die "the journal finds losses before there are any"
verify "$(disk 4)" 0 8M --do_verify=1 || die "fio finds errors before there are any"
python3 /job/stations.py silent eth0 mac0 7.3 || die "a stranger is heard before it may be"

ask corrupt d0 2097152 65536
ask restart
failed=0
python3 /job/journal.py check "$(disk 3)" /run/journal || failed=1
if ! verify "$(disk 4)" 0 8M --verify_only; then
    grep -m 3 -i verify /tmp/fio.log
    echo "FAIL: fio read back wrong data"
    failed=1
fi
python3 /job/stations.py silent eth0 mac0 7.4 || failed=1
exit $failed
