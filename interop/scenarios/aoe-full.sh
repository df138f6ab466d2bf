#!/bin/bash
# Everything that Linux's AoE driver, aoetools and stations that are no friends ask of a target; then file system, fio and
# journal while frames are lost and the target is killed. e7.3 is for the guest's own MAC alone, e7.4 for any; e7.5 comes later.
. /job/common.sh
. /job/aoe.sh
load_aoe

say "discovery"
for slot in 3 4; do wait_for "e7.$slot" found $slot; done
[ ! -e "$(disk 5)" ] || die "e7.5 is there before it is served"
announced 5 serve 5 v2 any
wait_for "e7.5" found 5
aoe-stat | tee /tmp/stat
for slot in 3 4 5; do grep -qE "e7\.$slot +[0-9.]+GB +$interface +$PAYLOAD +up" /tmp/stat || die "aoe-stat on e7.$slot"; done
has_sectors 3 "$SECTORS" || die "e7.3 has $(facts 3 size) sectors, expected $SECTORS"
has_bytes "$(disk 3)" $((SECTORS * 512)) || die "size of $(disk 3)"
pass "three exports, one of them served and announced later, $SECTORS sectors in e7.3, $PAYLOAD bytes a frame"

say "aoetools"
# They ask once and wait for ever; `timeout`, by a clock that may be fast, is why they are asked again.
answers() {
    local n
    for n in 1 2 3 4 5; do timeout 120 "$@" >/tmp/answer 2>&1 && return; done
    cat /tmp/answer
    die "no answer: $*"
}
says() { grep -qE "$1" /tmp/answer || { cat /tmp/answer; die "expected $1 in the answer to $2"; }; }
answers aoeping -v 7 3 "$interface"
answers aoeping -I 7 3 "$interface" && says "[Pp]lateway" "aoeping -I"
answers aoeping -i 7 3 "$interface"
answers aoeping -S return_status 7 3 "$interface" && says "LBA Mid: 0x4f" "aoeping -S return_status"
answers aoecfg -c read 7 3 "$interface"
answers aoecfg -c set -s "owner one" 7 3 "$interface"
answers aoecfg -c read 7 3 "$interface" && says "owner one" "aoecfg -c read"
answers aoecfg -c test -s "owner one" 7 3 "$interface" && says "owner one" "aoecfg -c test"
answers aoecfg -c prefix -s "owner" 7 3 "$interface" && says "owner one" "aoecfg -c prefix"
answers aoecfg -c set -s "owner two" 7 3 "$interface" && says "badcfg" "aoecfg -c set where there is another string"
answers aoecfg -c read 7 3 "$interface" && says "owner one" "aoecfg after a set that must be refused"
answers aoecfg -c fset -s "owner three" 7 3 "$interface"
answers aoecfg -c read 7 3 "$interface" && says "owner three" "aoecfg -c fset"
checked() { aoe-sancheck >/tmp/answer 2>&1 && grep -qE "^e7\.3\s+1\s+$PAYLOAD\s+$interface" /tmp/answer; }
wait_for "aoe-sancheck to show e7.3" checked
pass "aoe-stat, aoeping, aoecfg and aoe-sancheck"

say "strangers, masks and reservations"
stranger
python3 /job/stations.py access eth0 mac0 || die "access"
ask serve 4 v1 "$(cat /sys/class/net/eth0/address)"
python3 /job/stations.py silent eth0 mac0 7.4 || die "who is no host any more is heard"
ask serve 4 v1 any
python3 /job/stations.py hostile eth0 || die "hostile frames"
python3 /job/stations.py hold eth0 mac0 || die "mask and reservation could not be set"
ask restart
python3 /job/stations.py held eth0 mac0 || die "a restart forgot masks or reservations"
answers aoecfg -c read 7 3 "$interface" && says "owner three" "aoecfg after a restart"
pass "config string, mask and reservation survive a restart"

say "a file system, frames lost and the target killed"
mkfs.ext4 -q -F "$(disk 5)" || die "mkfs.ext4"
mount "$(disk 5)" /mnt || die "mount"
settle "$(disk 3)"
lossy 1
(
    for ((n = 0; n < 200; n++)); do
        head -c $((n % 7 * 50009 + 100)) /dev/urandom >/mnt/file$n && sync /mnt/file$n || exit 1
        ! grep -qsx "f 600" /run/journal || break
    done
    cd /mnt && sha256sum file* >/run/sums
) &
files=$!
in_writes 2 "$(disk 3)"
wait $files || die "writing files"
umount /mnt && mount "$(disk 5)" /mnt || die "remount"
(cd /mnt && sha256sum --quiet -c /run/sums) || die "files changed over kills and a remount"
umount /mnt
e2fsck -fn "$(disk 5)" >/tmp/answer 2>&1 || { cat /tmp/answer; die "e2fsck"; }
verify "$(disk 3)" 24M 8M || { cat /tmp/fio.log; die "fio read back wrong data"; }
lossless
pass "ext4, fio and journal: 1% of the frames lost each way, two kills in mid-write, nothing acknowledged lost"

say "a disk grows"
before=$(facts 4 size)
sum=$(dd if="$(disk 4)" bs=1M count=4 iflag=direct status=none | sha256sum)
announced 4 grow e0 48
wait_for "the new size" has_sectors 4 $((before + 32768))
[ "$(dd if="$(disk 4)" bs=1M count=4 iflag=direct status=none | sha256sum)" = "$sum" ] || die "growing changed the data"
verify "$(disk 4)" $((before * 512)) 4M || { cat /tmp/fio.log; die "fio read back wrong data from the grown part"; }
aoe-revalidate e7.4 || die "aoe-revalidate"
aoe-flush -a && aoe-discover || die "aoe-flush or aoe-discover"
for slot in 3 4 5; do wait_for "e7.$slot after aoe-flush" found $slot; done
ask withdraw 5
aoe_is_content
pass "a new size is announced and used; the kernel has nothing to complain of"
