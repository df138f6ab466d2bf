# What every script in the guest uses; sourced. From the host: TRADDR TRSVCID (the target), BELL (the port on which
# the host does what only it can), NQN (the subsystem).
#
# Nothing here waits by the clock: wait_for polls for a result, and its limit of ten minutes is a hang guard.

set -u
# The guest's clock may run many times too fast, if the host was busy while the kernel measured it: whether a task has waited
# for two minutes says nothing then. What hangs for ever is ended by the host.
echo 0 >/proc/sys/kernel/hung_task_timeout_secs
# Linux 6.1 sends on a connection that has just died without MSG_NOSIGNAL, and so hits whoever submitted the I/O.
trap '' PIPE
hostnqn=$(cat /etc/nvme/hostnqn)

say() { echo "[$(cut -d. -f1 /proc/uptime)] $*"; }
pass() { say "PASS $*"; }

# Ends the script: the one line that says what went wrong, then what the kernel has to say.
die() {
    echo "FAIL: $*"
    dmesg | tail -n 40
    exit 1
}

# ask WORD [ARGUMENT...]: has the host do something (see target.py, do_*); returns once it is done.
ask() {
    local answer
    exec 3<>"/dev/tcp/$TRADDR/$BELL" || die "cannot reach the host's bell"
    echo "$*" >&3
    read -r answer <&3
    exec 3>&-
    [ "$answer" = ok ] || die "the host could not $*: $answer"
}

# Whoever hangs is seen by it: every few minutes of the guest's clock, what does not run and in which call of the kernel's it waits.
tell_of_waiting() {
    local task words
    while sleep 300; do
        for task in /proc/[0-9]*; do
            # A file of /proc has no size; the kernel's own threads have no words.
            words=$(tr '\0' ' ' <"$task/cmdline" | cut -c 1-60)
            [ -z "$words" ] || say "waiting: $words: $(head -n 3 "$task/stack" | cut -d' ' -f2 | tr '\n' ' ')"
        done
        [ ! -d /sys/block/etherd!e7.3 ] || { mount -t debugfs none /sys/kernel/debug 2>/dev/null; say "driver: $(tail -n 30 /sys/kernel/debug/aoe/* | tr '\n\t' '; ')"; }
    done
}
tell_of_waiting 2>/dev/null &

# wait_for WHAT COMMAND...: until the command succeeds.
wait_for() {
    local what=$1 n=0
    shift
    until "$@"; do
        n=$((n + 1))
        [ $n -lt 6000 ] || die "waited in vain for $what"
        sleep 0.1
    done
}

# Long limits for the kernel's own timers: the machine is emulated, and its host may be loaded.
load() { modprobe nvme-core io_timeout=240 admin_timeout=240 && modprobe nvme-tcp || die "no nvme-tcp module"; }

# connect OPTION...: to the subsystem. A dead target is tried again every second, for an hour.
# Word splitting of $(digests X) and $(queues N) in its callers is meant.
connect() {
    nvme connect -t tcp -a "$TRADDR" -s "$TRSVCID" -n "$NQN" --hostnqn="$hostnqn" \
        --reconnect-delay=1 --ctrl-loss-tmo=3600 --keep-alive-tmo=60 "$@"
}

# queues N: the options for N I/O queues. Linux allows one of each kind per processor.
queues() { echo "--nr-io-queues=$1"; }
digests() {
    case $1 in
    off) ;;
    hdr) echo --hdr-digest ;;
    data) echo --data-digest ;;
    both) echo --hdr-digest --data-digest ;;
    *) die "no such digests: $1" ;;
    esac
}

# The controller's name (nvme0): of the subsystem under test, not of a discovery controller.
controller() { grep -lsx "$NQN" /sys/class/nvme/nvme*/subsysnqn | cut -d/ -f5 | head -n1; }

# node NSID: the block device's path, once the namespace is there. Numbers in names follow the order of discovery, and
# with multipath (the hidden nvme0c0n1 beside nvme0n1) only one of two has a node in /dev.
node() {
    local id name
    for id in $(grep -lsx "$1" /sys/block/nvme*/nsid); do
        name=$(cut -d/ -f4 <<<"$id")
        [ ! -b "/dev/$name" ] || { echo "/dev/$name"; return 0; }
    done
    return 1
}
has_node() { node "$1" >/dev/null; }
has_no_node() { ! has_node "$1"; }
has_bytes() { [ "$(blockdev --getsize64 "$1")" = "$2" ]; }
is_live() { [ "$(cat "/sys/class/nvme/$(controller)/state" 2>/dev/null)" = live ]; }

# How often the kernel has reconnected since it booted.
reconnects() { dmesg | grep -c 'Successfully reconnected'; }
has_reconnected() { [ "$(reconnects)" -gt "$1" ] && is_live; }

# crash: the target dies without a word and is started again; returns when the kernel has its controller back.
crash() {
    local before
    before=$(reconnects)
    ask restart
    wait_for "the kernel to reconnect" has_reconnected "$before"
}

# verify DEVICE OFFSET SIZE [OPTION...]: random writes of 4 KiB to 128 KiB, read back and compared by checksum.
verify() {
    local device=$1 offset=$2 size=$3
    shift 3
    fio --name=verify --filename="$device" --offset="$offset" --size="$size" --rw=randwrite --bsrange=4k-128k --ioengine=libaio \
        --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --verify_dump=0 --norandommap=0 --output=/tmp/fio.log "$@"
}

# is_zero DEVICE OFFSET LENGTH: read past every cache.
is_zero() {
    [ "$(dd if="$1" bs=4096 skip=$(($2 / 4096)) count=$(($3 / 4096)) iflag=direct status=none | tr -d '\0' | wc -c)" = 0 ]
}

# The kernel must not have complained of anything but the connection losses that we caused.
kernel_is_content() {
    local complaints
    complaints=$(dmesg | grep -E 'BUG|Oops|WARNING|I/O error|Buffer I/O|identifiers changed|digest error')
    [ -z "$complaints" ] || die "the kernel complained: $complaints"
}
