# What `plateway lab` does by what many a machine's kernel lacks, on one that has it: tc netem delays and loses frames in place of
# the lab's relay and rules, alone and behind a token bucket; /job/plateway is the program. Figures of an emulated machine are
# no figures; what is looked at is that frames are late and lost as the plan says, and who did it.
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
kernel_is_content
