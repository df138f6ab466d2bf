#!/bin/bash
# Two paths to a namespace and two to a LUN: the kernel's multipath goes by the path that the target says, hears of a change while
# it writes, and loses nothing. The target's listeners of group 1 are TRSVCID and PORTAL, those of group 2 SECOND and SECOND_PORTAL.
# Over NVMe/TCP that is the driver's own multipath. Over iSCSI it is device mapper under multipathd, which udev tells of disks, with
# MULTIPATH_CONF, the configuration that the host is to use.
. /job/common.sh
load
modprobe -a scsi_dh_alua dm-multipath dm-service-time || die "no dm-multipath with ALUA"

ask_group() { ask group "$1" "$2"; }

# --- NVMe -------------------------------------------------------------------------------------------------------------
by_port() { grep -ls "trsvcid=$1\b" /sys/class/nvme/nvme*/address | cut -d/ -f5; } # the controller of this path
ana() { cat /sys/class/nvme/"$(by_port "$1")"/nvme*c*n*/"$2"; }
is_ana() { [ "$(ana "$1" ana_state)" = "$2" ]; }
become() { # GROUP STATE PORT SEEN: the state is set, and the kernel hears of it
    ask_group "$1" "$2"
    wait_for "$4 by port $3" is_ana "$3" "$4"
}

connect
TRSVCID=$SECOND connect
wait_for "the namespace" has_node 1
wait_for "the first path" is_ana "$TRSVCID" optimized
wait_for "the second path" is_ana "$SECOND" optimized
[ "$(ana "$TRSVCID" ana_grpid)" = 1 ] && [ "$(ana "$SECOND" ana_grpid)" = 2 ] || die "ANA groups are not those of the listeners"
disk=$(node 1)
nvme ana-log /dev/"$(by_port "$SECOND")" >/tmp/answer 2>&1 && grep -qE 'grpid[[:space:]]*:[[:space:]]*2$' /tmp/answer || { cat /tmp/answer; die "no ANA log"; }
pass "one namespace by two paths, in ANA groups 1 and 2"

verify "$disk" 0 16M &
fio=$!
become 1 standby "$TRSVCID" inaccessible
become 1 non-optimized "$TRSVCID" non-optimized
become 2 unavailable "$SECOND" inaccessible
become 2 optimized "$SECOND" optimized
become 1 transitioning "$TRSVCID" change
become 1 optimized "$TRSVCID" optimized
wait $fio || { cat /tmp/fio.log; die "fio over NVMe/TCP while paths changed"; }
become 1 standby "$TRSVCID" inaccessible
verify "$disk" 16M 4M || die "fio by the second path alone"
become 2 standby "$SECOND" inaccessible
dd if=/dev/urandom of="$disk" bs=4096 count=1 oflag=direct status=none &
waits=$!
sleep 1
kill -0 $waits || die "a write ended although no path serves"
become 1 optimized "$TRSVCID" optimized
wait $waits || die "the write that waited for a path"
become 2 optimized "$SECOND" optimized
pass "NVMe multipath goes by the path that serves, waits while none does, and loses nothing"

# --- iSCSI ------------------------------------------------------------------------------------------------------------
. /job/iscsi.sh # it has a `node` of its own
/usr/lib/systemd/systemd-udevd --daemon 2>/dev/null || die "no udevd"
mkdir -p /etc/multipath/conf.d
echo "$MULTIPATH_CONF" >/etc/multipath.conf
# Paths are looked at every 5 to 20 s unless told otherwise.
printf '%s\n' 'defaults {' 'polling_interval 1' 'max_polling_interval 1' '}' >/etc/multipath/conf.d/often.conf
multipathd -d -s >/tmp/multipathd 2>&1 &
daemon=$!
trap '[ $? = 0 ] || { multipath -ll; cat /tmp/multipathd; }' EXIT
load_iscsi
by_portal() { # PORTAL: the disk of this path
    local connection session block
    for connection in /sys/class/iscsi_connection/connection*; do
        [ "$(cat "$connection/persistent_address"):$(cat "$connection/persistent_port")" = "$1" ] || continue
        session=${connection##*/connection}
        for block in /sys/class/iscsi_session/session"${session%%:*}"/device/target*/*:0/block/sd*; do
            [ ! -b "/dev/${block##*/}" ] || { echo "${block##*/}"; return 0; }
        done
    done
    return 1
}
has_path() { by_portal "$1" >/dev/null; }
alua() { cat "/sys/block/$(by_portal "$1")/device/$2"; }
is_alua() { [ "$(alua "$1" access_state)" = "$2" ]; }
says_standby() { grep -q '(standby)' /tmp/answer; }
tool() { "$@" >/tmp/answer 2>&1 || { cat /tmp/answer; die "no answer: $*"; }; }
says() { grep -qE -- "$1" /tmp/answer || { cat /tmp/answer; die "expected $1 in the answer to $2"; }; }

for portal in "$PORTAL" "$SECOND_PORTAL"; do
    PORTAL=$portal record default
    PORTAL=$portal login default
    wait_for "the disk by $portal" has_path "$portal"
    echo 240 >"/sys/block/$(by_portal "$portal")/device/timeout"
    [ "$(alua "$portal" dh_state)" = alua ] || die "no ALUA handler for the path by $portal"
    wait_for "the state of $portal" is_alua "$portal" active/optimized
done
first=/dev/$(by_portal "$PORTAL") second=/dev/$(by_portal "$SECOND_PORTAL")
tool sg_inq "$first" && says "TPGS=1" sg_inq
tool sg_vpd -p di "$second" && says "Target port group: 0x2" "sg_vpd -p di" && says "Relative target port: 0x2" "sg_vpd -p di"
tool sg_rtpg -d "$first" && says "group id : 0x1 " sg_rtpg && says "group id : 0x2 " sg_rtpg
pass "one LUN by two ports, in target port groups 1 and 2"

# What multipathd makes of the disks, as `multipath -ll` tells it, a line for each: the number of its group of paths, the best one first,
# the group's priority, the disk, what device mapper thinks of it and what the path checker does.
told() { awk '/ prio=/ { group++; sub(/.* prio=/, ""); prio = $1 } / [0-9]+:0:0:0 / { print group, prio, $(NF-4), $(NF-2), $(NF-1) }' | sort; }
tells() { [ "$(told)" = "$(printf '%s\n' "$@" | sort)" ]; }
shows() { multipathd show topology | tells "$@"; }
sees() { wait_for "multipathd to see$(printf ' [%s]' "$@")" shows "$@"; }
# A path that fails keeps the group and the priority that it had when it was last good.
has_failed() { [ "$(multipathd show paths raw format "%d %t %T" | grep "^$1 " | xargs)" = "$1 failed faulty" ]; }
done_by() { awk '{ print $1 + $5 }' "/sys/block/$1/stat"; } # reads and writes that this disk has done
goes_by() { # DISK OTHER: all that is read and written goes by the one
    local by other
    kill -0 $writer 2>/dev/null || { cat /tmp/fio.log; die "fio over iSCSI ended early"; }
    by=$(done_by "$1") other=$(done_by "$2")
    sleep 0.5
    [ "$(done_by "$1")" -gt "$by" ] && [ "$(done_by "$2")" = "$other" ]
}
a=${first#/dev/} b=${second#/dev/}

sees "1 50 $a active ready" "1 50 $b active ready"
map=$(cat /sys/block/dm-*/dm/name)
disk=/dev/mapper/$map
wait_for "$disk" test -b "$disk"
# Its name is a digit for the kind of designator and the designator, of which page 83h has several.
tool sg_vpd -p di "$second" && says "0x${map#?}$" "sg_vpd -p di"
[ "$(blockdev --getsz "$disk")" = "$(blockdev --getsz "$first")" ] || die "the map has another size than its paths"
pass "multipathd makes one map of both paths by page 83h"

writes() { until [ -e /tmp/enough ]; do verify "$disk" 0 4M || return 1; done; }
writes &
writer=$!
ask_group 2 non-optimized
sees "1 50 $a active ready" "2 10 $b active ready"
wait_for "I/O by the better path alone" goes_by "$a" "$b"
tool multipath -ll
tells "1 50 $a active ready" "2 10 $b active ready" </tmp/answer || { cat /tmp/answer; die "expected two groups, of 50 and 10, from multipath -ll"; }
ask_group 1 standby
sees "1 10 $b active ready" "2 1 $a active ghost"
wait_for "I/O by the path that is left" goes_by "$b" "$a"
ask_group 1 unavailable
wait_for "the first path to fail" has_failed "$a"
ask_group 1 optimized
sees "1 50 $a active ready" "2 10 $b active ready"
wait_for "I/O by the path that came back" goes_by "$a" "$b"
ask_group 2 optimized
sees "1 50 $a active ready" "1 50 $b active ready"
ask_group 2 unavailable # in the middle of what goes by it
wait_for "the second path to fail" has_failed "$b"
wait_for "I/O by the first path" goes_by "$a" "$b"
touch /tmp/enough
wait $writer || { cat /tmp/fio.log; die "fio over iSCSI while paths changed"; }
pass "multipathd has I/O go by the path that serves, takes back one that serves again, and loses nothing"

ask_group 1 unavailable
wait_for "both paths to fail" has_failed "$a"
reads() { dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct status=none; }
reads &
waits=$!
sleep 1
kill -0 $waits || die "a read ended although no path serves"
ask_group 1 optimized
wait $waits || die "the read that waited for a path"
ask_group 2 optimized
sees "1 50 $a active ready" "1 50 $b active ready"
# It and the kernel's handler would open by themselves what a host closes here.
kill $daemon
wait $daemon || die "multipathd ended with $?"
pass "what finds no path waits for one"

sg_stpg --tp=2 --state=s "$first" >/dev/null 2>&1 # which asks first whether it may, and says nothing if not
tool sg_rtpg -d "$second" && ! says_standby || die "a host set a state that may not"
# From now on the kernel's handler would open by itself what it fails over to.
ask let_hosts_set
tool sg_stpg --tp=2 --state=s "$first"
tool sg_rtpg -d "$second" && says_standby || die "the state that a host set is not told"
! dd if="$second" of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || die "a path in standby was read by"
reads || die "a read by the path that is left"
tool sg_stpg --tp=2 --state=ao "$second"
# The kernel hears of it by the next answer.
has_heard() { reads && is_alua "$SECOND_PORTAL" active/optimized; }
wait_for "the state that was set" has_heard
pass "a host sets the state of a group"

wait_for "the map to go" multipath -f "$map"
for portal in "$PORTAL" "$SECOND_PORTAL"; do PORTAL=$portal node default --logout >/tmp/login 2>&1 || { cat /tmp/login; die "logout"; }; done
nvme disconnect -n "$NQN" >/dev/null
# What a closed path refused is no complaint: that is what was asked for. udev looks at a disk again whenever a tool that may write has
# closed it, and so meets a closed path through the page cache; of the map and of a namespace no such error is allowed.
complaints=$(dmesg | grep -E 'BUG|Oops|WARNING|Buffer I/O|identifiers changed|digest error' | grep -vE "Buffer I/O error on dev ($a|$b),")
[ -z "$complaints" ] || die "the kernel complained: $complaints"
