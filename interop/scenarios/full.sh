#!/bin/bash
# Everything that an administrator does with a disk, and everything that nvme-cli asks, with digests on and 4 queues.
. /job/common.sh
load

say "discovery and access"
nvme discover -t tcp -a "$TRADDR" -s "$TRSVCID" --hostnqn="$hostnqn" | tee /tmp/discovered || die "discover"
grep -q "^subnqn:\s*$NQN\$" /tmp/discovered || die "discovery does not name $NQN"
stranger=nqn.2014-08.org.nvmexpress:uuid:99999999-8888-7777-6666-555555555555
nvme discover -t tcp -a "$TRADDR" -s "$TRSVCID" --hostnqn=$stranger >/tmp/stranger 2>&1
! grep -q "$NQN" /tmp/stranger || die "discovery names $NQN to a host that may not use it"
if nvme connect -t tcp -a "$TRADDR" -s "$TRSVCID" -n "$NQN" --hostnqn=$stranger \
    --hostid=99999999-8888-7777-6666-555555555555 2>/tmp/refused; then die "a host that is not on the list was let in"; fi
dmesg | grep -qE "not allowed|[Ii]nvalid host|0x4?184" || die "the refusal is not 'host not allowed': $(cat /tmp/refused)"
pass "discovery, and a host that is not on the list is refused"

connect $(digests both) $(queues 4) || die "connect"
wait_for "namespace 1" has_node 1
disk=$(node 1) ctrl=$(controller)
[ "$(cat "/sys/class/nvme/$ctrl/queue_count")" = 5 ] || die "expected 4 I/O queues: $(cat "/sys/class/nvme/$ctrl/queue_count")"
pass "connected as $ctrl with 4 queues, header and data digests"

say "what nvme-cli asks"
answers() { "$@" >/tmp/answer 2>&1 || { cat /tmp/answer; die "no answer: $*"; }; }
says() { grep -qE "$1" /tmp/answer || { cat /tmp/answer; die "expected $1 in the answer to $2"; }; }
answers nvme id-ctrl "/dev/$ctrl" -H && says "^subnqn\s*: $NQN" id-ctrl && says "^mdts\s*: 8" id-ctrl
answers nvme id-ns "$disk" -H && says "^nsze\s*: 0x7e000\b" id-ns
answers nvme ns-descs "$disk" && says "^uuid\s*: " ns-descs && ! grep -q "uuid\s*: 00000000-0000" /tmp/answer || die "ns-descs without a UUID"
answers nvme list-ns "/dev/$ctrl" && says "0x1$" list-ns
answers nvme list && says "$disk" list
answers nvme list-subsys && says "NQN=$NQN" list-subsys
answers nvme smart-log "/dev/$ctrl" && says "^critical_warning\s*: 0" smart-log
answers nvme error-log "/dev/$ctrl" -e 4
answers nvme fw-log "/dev/$ctrl"
answers nvme effects-log "/dev/$ctrl"
answers nvme changed-ns-list-log "/dev/$ctrl"
for feature in 0x04 0x05 0x06 0x07 0x0b 0x0f; do answers nvme get-feature "/dev/$ctrl" -f $feature -H; done
answers nvme flush "$disk"
! nvme get-feature "/dev/$ctrl" -f 0x7e >/dev/null 2>&1 || die "an unknown feature was answered"
! nvme get-log "/dev/$ctrl" -i 0xbf -l 512 >/dev/null 2>&1 || die "an unknown log page was answered"
pass "id-ctrl, id-ns, ns-descs, list, list-subsys, smart-log, error-log, effects-log, get-feature and others answer"

say "a reservation"
answers nvme resv-register "$disk" --nrkey=7 --rrega=0
answers nvme resv-acquire "$disk" --crkey=7 --rtype=1 --racqa=0
answers nvme resv-report "$disk" --eds && says "^rtype\s*: 1" resv-report && says "^regctl\s*: 1" resv-report
! nvme resv-release "$disk" --crkey=8 --rtype=1 --rrela=0 >/dev/null 2>&1 || die "released under another's key"
answers nvme resv-release "$disk" --crkey=7 --rtype=1 --rrela=0
answers nvme resv-register "$disk" --crkey=7 --rrega=1
answers nvme resv-report "$disk" --eds && says "^rtype\s*: 0" resv-report && says "^regctl\s*: 0" resv-report
pass "resv-register, resv-acquire, resv-report and resv-release do what they say"

say "a file system"
mkfs.ext4 -q -F "$disk" || die "mkfs.ext4"
mount "$disk" /mnt || die "mount"
for n in 1 2 3 4; do head -c $((n * 1000003)) /dev/urandom >/mnt/file$n; done
(cd /mnt && sha256sum file* >/run/sums) && umount /mnt && mount "$disk" /mnt || die "remount"
(cd /mnt && sha256sum --quiet -c /run/sums) || die "files changed over a remount"
umount /mnt
e2fsck -fn "$disk" >/tmp/answer 2>&1 || { cat /tmp/answer; die "e2fsck"; }
pass "ext4: files are the same after a remount"

say "discard and write zeroes"
zeroed() {
    local what=$1
    shift
    dd if=/dev/urandom of="$disk" bs=1M seek=64 count=2 oflag=direct status=none || die "dd"
    "$@" || die "$what"
    is_zero "$disk" $((64 << 20)) $((1 << 20)) || die "$what: what was zeroed does not read back as zeros"
    ! is_zero "$disk" $((65 << 20)) $((1 << 20)) || die "$what: zeroed more than was asked"
}
zeroed "fallocate -z" fallocate -z -o 64M -l 1M "$disk"
zeroed "blkdiscard -z" blkdiscard -z -o 64M -l 1M "$disk"
# A discard leaves zeros only where the namespace says so (DLFEAT bits 2:0 are 1).
dlfeat=$(nvme id-ns "$disk" -o json | jq .dlfeat)
if [ $((dlfeat & 7)) = 1 ]; then zeroed blkdiscard blkdiscard -f -o 64M -l 1M "$disk"; else blkdiscard -f -o 64M -l 1M "$disk" || die "blkdiscard"; fi
pass "zeroes read back as zeros, and only where asked"

say "a copy within the namespace"
bs=$(blockdev --getss "$disk")
block() { echo $(($1 * 1024 / bs)); }
dd if=/dev/urandom of="$disk" bs=1M seek=64 count=2 oflag=direct status=none || die "dd"
# 700 KiB and 4 KiB from two places, one behind the other, to 66 MiB and 4 KiB.
nvme copy "$disk" --sdlba=$(block $((66 * 1024 + 4))) --slbs=$(block $((64 * 1024))),$(block $((65 * 1024))) \
    --blocks=$(($(block 700) - 1)),$(($(block 4) - 1)) >/tmp/answer 2>&1 || { cat /tmp/answer; die "nvme copy"; }
part() { dd if="$disk" bs=4k skip=$(($1 / 4)) count=$(($2 / 4)) iflag=direct status=none; }
cmp <(part $((66 * 1024 + 4)) 704) <(part $((64 * 1024)) 700; part $((65 * 1024)) 4) || die "a copy is not what it was made of"
! nvme copy "$disk" --sdlba=0 --slbs=$(($(blockdev --getsize64 "$disk") / bs)) --blocks=0 >/dev/null 2>&1 || die "copied from beyond the end"
pass "nvme copy: what was copied is the same, and nothing beyond the end is"

say "two kills in mid-write"
python3 /job/journal.py write "$disk" /run/journal 800 &
writer=$!
verify "$disk" 32M 16M --rate_iops=200 &
fio=$!
wait_for "100 flushed writes" grep -qsx "f 100" /run/journal
crash
wait_for "300 flushed writes" grep -qsx "f 300" /run/journal
crash
wait $writer || die "the writer saw an error"
wait $fio || { cat /tmp/fio.log; die "fio read back wrong data"; }
python3 /job/journal.py check "$disk" /run/journal || die "acknowledged and flushed data were lost"
pass "two kills: nothing acknowledged and flushed was lost"

say "namespaces come, grow and go"
ask add 2 v1
wait_for "namespace 2" has_node 2
second=$(node 2)
before=$(blockdev --getsize64 "$second")
verify "$second" 0 4M || { cat /tmp/fio.log; die "fio read back wrong data from the new namespace"; }
sum=$(dd if="$second" bs=1M count=4 iflag=direct status=none | sha256sum)
ask grow e0 48
wait_for "the new size" has_bytes "$second" $((before + (16 << 20)))
[ "$(dd if="$second" bs=1M count=4 iflag=direct status=none | sha256sum)" = "$sum" ] || die "growing changed the data"
verify "$second" $before 4M || { cat /tmp/fio.log; die "fio read back wrong data from the grown part"; }
ask remove 2
wait_for "namespace 2 to go" has_no_node 2
is_live || die "removing one namespace disturbed the controller"
dd if="$disk" of=/dev/null bs=1M count=4 iflag=direct status=none || die "removing one namespace disturbed another"
pass "a namespace was added, resized and removed while connected"

nvme reset "/dev/$ctrl" || die "reset"
wait_for "the controller after a reset" is_live
dd if="$disk" of=/dev/null bs=1M count=4 iflag=direct status=none || die "read after reset"
nvme disconnect -n "$NQN" || die "disconnect"
wait_for "the namespace to go" has_no_node 1
kernel_is_content
pass "reset and disconnect; the kernel has nothing to complain of"
