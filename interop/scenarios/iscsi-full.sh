#!/bin/bash
# Everything that an administrator does with a disk over iSCSI, with open-iscsi and sg3-utils, both digests on. LUNs 0 (the one
# that is written by hand) and 1 (with a file system) are for this guest's own name, LUN 7 for another's; LUN 2 comes later.
# From the host: TYPED (what `plateway connect` prints for Linux, with the secret).
. /job/common.sh
. /job/iscsi.sh
load_iscsi

says() { grep -qE -- "$1" /tmp/answer || { cat /tmp/answer; die "expected $1 in the answer to $2"; }; }
answers() { "$@" >/tmp/answer 2>&1 || { cat /tmp/answer; die "no answer: $*"; }; }

is_refused() { # IFACE WHO
    if node "$1" --login >/tmp/answer 2>&1; then die "$2 was let in"; fi
    says "authorization failure" "the login of $2"
}
must_prove_who_it_is() {
    set_node default node.session.auth.password not-the-secret
    is_refused default "a host with a wrong secret"
    set_node default node.session.auth.authmethod None
    is_refused default "a host without a secret"
    chap default $CHAP
    set_node default node.session.auth.password_in not-the-secret-either
    ! node default --login >/tmp/answer 2>&1 || die "the host took a target for its own that does not know the secret"
    chap default $CHAP
}

say "what \`plateway connect\` prints"
# With limits that are short here: nothing is done with it. There are no interfaces of iscsiadm yet but its default.
answers bash -ec "$TYPED"
appears 0
logout default
iscsiadm -m node -o delete >/dev/null
pass "typed as it stands"

say "discovery and access"
discover() { iscsiadm -m discovery -t sendtargets -p "$PORTAL" -I "$1" >/tmp/answer 2>&1; }
discover default && says "^$ANNOUNCED,1 $IQN\$" discovery
iscsiadm -m node -o delete >/dev/null # its limits are too short here
host stranger "$STRANGER"
! discover stranger || ! grep -q "$IQN" /tmp/answer || die "discovery names $IQN to a host that may not use it"
record stranger
is_refused stranger "a host that is not on the list"
node stranger -o delete
pass "discovery, and a host that is not on the list is refused"

record default
[ -z "$CHAP" ] || { must_prove_who_it_is; pass "CHAP both ways: a wrong secret, none, and a target that has another are refused"; }
agree default HeaderDigest=CRC32C DataDigest=CRC32C
login default
appears 0
appears 1
agreed header_digest=1 data_digest=1
has_no_disk 7 || die "a LUN that is for another host is there"
disk=$(disk 0)
has_bytes "$disk" $((SECTORS * 512)) || die "size of $disk: $(blockdev --getsize64 "$disk")"
pass "logged in with header and data digests, two LUNs"

say "what sg3-utils ask"
answers sg_inq "$disk" && says "Vendor identification: PLATEWAY" sg_inq
answers sg_vpd -p di "$disk" && says "designator type: NAA" "sg_vpd -p di" && says "SCSI name string" "sg_vpd -p di"
answers sg_vpd -p bl "$disk" && says "Maximum unmap block descriptor count: (0x)?[1-9]" "sg_vpd -p bl"
answers sg_vpd -p lbpv "$disk" && says "LBPU(\\): |=)1" "sg_vpd -p lbpv"
answers sg_readcap -l "$disk" && says "Number of logical blocks=$SECTORS" sg_readcap && says "lbpme=1" sg_readcap
answers sg_luns "$disk" && says "Lun list length = 16" sg_luns
for tool in "sg_turs" "sg_sync" "sg_modes -a" "sg_opcodes" "sg_requests" "sg_verify -c 8" "sg_get_lba_status"; do
    answers $tool "$disk"
done
verify "$disk" 0 16M &
fio=$!
for reset in -d -t -d -t; do answers sg_reset $reset "$disk"; done # of the unit, of the target
wait $fio || { cat /tmp/fio.log; die "fio over resets"; }
pass "sg_inq, sg_vpd, sg_readcap, sg_luns, sg_modes, sg_opcodes and others answer; resets with commands in flight"

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
zeroed "sg_write_same" sg_write_same -S -l $((64 << 11)) -n 2048 -x 512 -i /dev/zero "$disk"
# A discard leaves zeros only where the unit says so (LBPRZ).
if sg_readcap -l "$disk" | grep -q lbprz=1; then zeroed blkdiscard blkdiscard -f -o 64M -l 1M "$disk"; else blkdiscard -f -o 64M -l 1M "$disk" || die "blkdiscard"; fi
pass "zeroes read back as zeros, and only where asked"

say "a copy that the target makes"
generic() { echo "/dev/$(ls "/sys/class/block/${1##*/}/device/scsi_generic")"; }
dd if=/dev/urandom of="$disk" bs=1M seek=64 count=2 oflag=direct status=none || die "dd"
answers sg_copy_results -p "$disk" && says "Maximum segment descriptor count: 64" "sg_copy_results"
# From an unaligned block on, to another LUN; twice, the second time to blocks that lie otherwise in their pages.
for seek in 9 11; do
    answers sg_xcopy if="$(generic "$disk")" of="$(generic "$(disk 1)")" bs=512 skip=$(((64 << 11) + 1)) seek=$seek count=4000
    cmp <(dd if="$disk" bs=512 skip=$(((64 << 11) + 1)) count=4000 iflag=direct status=none) \
        <(dd if="$(disk 1)" bs=512 skip=$seek count=4000 iflag=direct status=none) || die "sg_xcopy: the copy differs"
done
pass "sg_xcopy from one LUN to another"

say "a file system, and two kills in mid-write"
mkfs.ext4 -q -F "$(disk 1)" || die "mkfs.ext4"
mount -o discard "$(disk 1)" /mnt || die "mount"
(
    for ((n = 0; n < 200; n++)); do
        head -c $((n % 7 * 50009 + 100)) /dev/urandom >/mnt/file$n && sync /mnt/file$n || exit 1
        ! grep -qsx "f 600" /run/journal || break
    done
    cd /mnt && sha256sum file* >/run/sums
) &
files=$!
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
wait $files || die "writing files"
umount /mnt && mount -o discard "$(disk 1)" /mnt || die "remount"
(cd /mnt && sha256sum --quiet -c /run/sums) || die "files changed over kills and a remount"
rm /mnt/file1* && fstrim /mnt || die "fstrim"
umount /mnt
e2fsck -fn "$(disk 1)" >/tmp/answer 2>&1 || { cat /tmp/answer; die "e2fsck"; }
pass "ext4, fio and journal: two kills, nothing acknowledged and flushed was lost"

say "LUNs come, grow and go"
# The kernel is told with the next command of each disk, and says so; that it looks again, an administrator has to say.
ask map 2 v1 "$(cut -d= -f2 /etc/iscsi/initiatorname.iscsi)"
dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct status=none || die "adding a LUN disturbed another"
dmesg | grep -q "LUN assignments on this target have changed" || die "the kernel was not told of a LUN"
rescan
appears 2
before=$(blockdev --getsize64 "$(disk 2)")
verify "$(disk 2)" 0 4M || { cat /tmp/fio.log; die "fio read back wrong data from the new LUN"; }
sum=$(dd if="$(disk 2)" bs=1M count=4 iflag=direct status=none | sha256sum)
ask grow e0 48
dd if="$(disk 2)" of=/dev/null bs=4k count=1 iflag=direct status=none || die "growing disturbed a reader"
dmesg | grep -q "Capacity data has changed" || die "the kernel was not told of a new size"
rescan
has_bytes "$(disk 2)" $((before + (16 << 20))) || die "LUN 2 has $(blockdev --getsize64 "$(disk 2)") bytes after it grew, and a rescan"
[ "$(dd if="$(disk 2)" bs=1M count=4 iflag=direct status=none | sha256sum)" = "$sum" ] || die "growing changed the data"
verify "$(disk 2)" "$before" 4M || { cat /tmp/fio.log; die "fio read back wrong data from the grown part"; }
ask unmap 2
! sg_readcap "$(disk 2)" >/tmp/answer 2>&1 || die "a LUN that was removed has a size"
answers sg_inq "$(disk 2)" && says "unknown or no device type" "sg_inq of a LUN that was removed"
forget 2
rescan
has_no_disk 2 || die "a LUN that was removed was found again"
is_logged_in || die "removing one LUN disturbed the session"
dd if="$disk" of=/dev/null bs=1M count=4 iflag=direct status=none || die "removing one LUN disturbed another"
pass "a LUN was added, resized and removed while logged in"

say "logout, and a login that agrees on the opposite"
logout default
agree default HeaderDigest=None DataDigest=None ImmediateData=No InitialR2T=Yes
login default
appears 0
agreed header_digest=0 data_digest=0
python3 /job/journal.py check "$(disk 0)" /run/journal || die "data were lost over a logout"
verify "$(disk 0)" 32M 8M || { cat /tmp/fio.log; die "fio read back wrong data"; }
logout default
iscsi_is_content
pass "logout; the kernel has nothing to complain of"
