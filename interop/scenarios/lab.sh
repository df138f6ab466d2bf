# What `plateway lab` does by what many a machine's kernel lacks, on one that has it: tc netem delays and loses frames in place of
# the lab's relay and rules, alone and behind a token bucket; and control groups of version 2 bound a client's memory, on ext4 of
# /dev/vdb; and the kernel's own initiator of NVMe/TCP reaches what a plan serves, raw and with a file system on it, and its client of NFS mounts what one exports. /job/plateway is the program. Figures of an emulated machine are no figures; what is looked at is that frames are late and
# lost, and blocks come from storage, as the plan says, and who did it.
. ./common.sh
export PATH=$PATH:/job XDG_STATE_HOME=/tmp
cd /tmp || exit 1

plan() {
    cat <<TOML
name = "netem"
shared = true
window = "200ms"
warm-up = "0"
[[system]]
name = "nvme"
serve = { protocol = "nvme", disk = "ram:4MiB" }
[[system]]
name = "aoe"
serve = { protocol = "aoe", disk = "ram:4MiB" }
[[path]]
name = "lan"
[[path]]
name = "late"
delay = "20ms"
[[path]]
name = "lossy"
loss = "5%"
[[path]]
name = "all"
kind = "gre"
delay = "5ms"
loss = "5%"
rate = "20Mbit"
[load]
block-size = "4k"
pattern = "randread"
[[picture]]
name = "late"
systems = ["nvme"]
path = ["lan", "late"]
depth = 1
[[picture]]
name = "lost"
systems = ["aoe"]
path = ["lossy", "all"]
depth = 8
TOML
}
# of CELL JQ: a figure of the trial whose cell begins so.
of() { jq -e ".trials[] | select(.cell | startswith(\"$1\")) | $2" a.result.json || die "no $2 of $1: $(jq -c '[.trials[].cell]' a.result.json)"; }
# holds WORDS FIGURE TEST: an expression of awk's in which x is the figure.
holds() { awk -v x="$2" "BEGIN { exit !($3) }" || die "$1: expected $3, seen x = $2"; }

plan >a.toml
plateway lab check a.toml >said 2>&1 || { cat said; die "the plan is refused"; }
grep -q "path late" said && { cat said; die "something of the lab's own is on a path that netem delays"; }
plateway lab run a.toml >said 2>&1 || { tail -n 40 said; die "a trial failed"; }
ip netns list | grep -q plateway && die "left: $(ip netns list)"
holds "nvme over late" "$(of "nvme over late" .bench.latency_ns.min)" "x >= 39.8e6"
holds "nvme over lan" "$(of "nvme over lan" .bench.latency_ns.min)" "x < 39.8e6"
[ "$(of "nvme over late" '.lost_share == null')" = true ] || die "late frames are counted lost"
pass "netem delays, and nothing else is late"
for path in lossy all; do
    holds "aoe over $path" "$(of "aoe over $path" .lost_share)" "x > 0.02 && x < 0.09"
    holds "aoe over $path" "$(of "aoe over $path" .measures.iops)" "x > 0"
done
holds "aoe over all" "$(of "aoe over all" .bench.latency_ns.min)" "x >= 9.9e6"
# 20 Mbit/s, and what the bucket lets pass at once.
holds "aoe over all" "$(of "aoe over all" .measures.throughput)" "x * 8 < 20.5e6"
pass "netem loses as many as it is told to, also behind a late, narrow core"

mount -t cgroup2 none /sys/fs/cgroup && echo +memory >/sys/fs/cgroup/cgroup.subtree_control || die "no memory controller of version 2"
mkfs.ext4 -q /dev/vdb && mkdir -p /mnt/ext4 && mount /dev/vdb /mnt/ext4 || die "ext4"
folder() { printf '[[system]]\nname = "%s"\nfolder = "/mnt/ext4"\nclient = "%s"\nbacking = "device"\ndurable = true\n' "$1" "$1"; }
{
    printf 'name = "folder"\nshared = true\nwindow = "200ms"\nwarm-up = "0"\n'
    folder bench
    folder fio
    cat <<TOML
[load]
block-size = "4k"
pattern = "randread"
depth = 4
size = "128MiB"
[[picture]]
name = "past"
systems = ["bench", "fio"]
[[picture]]
name = "small"
systems = ["bench"]
pattern = "read"
block-size = "128k"
cache = true
client-memory = "32MiB"
[[picture]]
name = "large"
systems = ["bench"]
pattern = "read"
block-size = "128k"
cache = true
TOML
} >a.toml
plateway lab run a.toml --overwrite >said 2>&1 || { tail -n 40 said; die "a trial in a folder failed"; }
[ "$(ls /mnt/ext4)" = lost+found ] || die "left: $(ls /mnt/ext4)"
[ -z "$(find /sys/fs/cgroup -name 'plateway*')" ] || die "left: $(find /sys/fs/cgroup -name 'plateway*')"
# Of what is read past the page cache all comes from storage. Read through it from end to end and again, the file stays there, and of
# one four times as large as the client's memory no more does than that.
for client in bench fio; do
    holds "$client past the page cache" "$(of "$client, 4KiB" .storage_read_per_op)" "x > 3900 && x < 4400"
done
cells=$(jq -c '[.trials[] | {cell, page_cache_bytes, storage_read_per_op}]' a.result.json)
held() { jq -e ".trials[] | select((.cell | contains(\"128KiB\")) and ((.cell | contains(\"client memory\")) == $1)) | .page_cache_bytes" a.result.json || die "no such trial: $cells"; }
holds "a client with a quarter of its file, $cells" "$(held true)" "x < 33554432"
# How far it comes depends on the machine below: further than the other one could hold.
holds "a client with all memory, $cells" "$(held false)" "x > 33554432"
say "$cells"
jq -e '[.trials[] | select(.cell | startswith("fio"))][0].bench.client | startswith("fio-")' a.result.json >/dev/null || die "it was not fio"
pass "a folder is read past the page cache by bench and fio, and by a client whose memory is bounded, whose group goes with it"

# by_kernel PICTURES: a plan in which the kernel reaches what is served, in a network that the lab makes.
by_kernel() {
    printf 'name = "kernel"\nshared = true\nwindow = "200ms"\nwarm-up = "0"\n'
    for name in ours kernel mounted; do
        printf '[[system]]\nname = "%s"\nserve = { protocol = "nvme", disk = "ram:64MiB", digests = "data" }\n' $name
        [ $name = ours ] || echo 'kernel = true'
        [ $name != mounted ] || echo 'file-system = "ext4"'
    done
    printf '[[system]]\nname = "nfs"\nnfs = { disk = "ram:64MiB" }\nfile-system = "ext4"\nkernel = true\ncall-size = "32KiB"\n'
    printf '[[path]]\nname = "lan"\n[load]\nsize = "16MiB"\n'
    cat
}
controllers() { ls /sys/class/nvme 2>/dev/null; }
modprobe -a loop fuse || die "no loop devices, or no FUSE"
by_kernel >a.toml <<TOML
[[picture]]
name = "raw"
systems = ["ours", "kernel"]
depth = 4
[[picture]]
name = "mounted"
systems = ["mounted", "nfs"]
pattern = "randrw=50"
depth = 4
TOML
plateway lab run a.toml --overwrite >said 2>&1 || { tail -n 40 said; die "a trial by the kernel's initiator failed"; }
[ -z "$(controllers)" ] || die "left: $(controllers)"
grep -q /mounted /proc/self/mountinfo && die "left: $(cat /proc/self/mountinfo)"
for system in ours kernel mounted nfs; do
    holds "$system" "$(of "$system" .measures.iops)" "x > 0"
    holds "$system" "$(of "$system" .wire_bytes_per_op)" "x > 3900 && x < 12000"
done
[ "$(of mounted '.file_system.source | startswith("/dev/nvme")')" = true ] || die "mounted is not on the kernel's device"
[ "$(of kernel '.bench.disk | startswith("/dev/nvme")')" = true ] || die "the client was not on the kernel's device: $(of kernel .bench)"
[ "$(of nfs .file_system.type)" = '"nfs"' ] || die "it is not the kernel that mounts: $(of nfs .file_system)"
pass "the kernel's client mounts what a plan exports, and its initiator reaches what a plan serves, raw and below a file system, and is gone with the trial"

# What is in flight then fails, which the kernel says.
kernel_is_content

# One that is killed leaves a controller without a target, which the next one removes.
by_kernel >b.toml <<TOML
[[picture]]
name = "raw"
systems = ["kernel"]
TOML
sed 's/window = "200ms"/window = "60s"/' b.toml >c.toml
plateway lab run c.toml >said 2>&1 &
killed=$!
wait_for "a controller" sh -c '[ -n "$(ls /sys/class/nvme)" ]'
kill -9 $killed
wait $killed
[ -n "$(controllers)" ] || die "nothing was left, so that nothing is tried"
plateway lab run b.toml >said 2>&1 || { tail -n 40 said; die "what a killed lab left is in the way"; }
[ -z "$(controllers)" ] || die "left: $(controllers)"
ip netns list | grep -q plateway && die "left: $(ip netns list)"
pass "what a killed lab left of the kernel's is removed by the next one"
dmesg | grep -E 'BUG|Oops|WARNING' && die "the kernel complained"
exit 0
