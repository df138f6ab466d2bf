//! Silent cuts of the primary path under load, and minutes without any.
//!
//! A cut is a rule at the sender's end of a cable that drops whatever leaves there: both interfaces
//! stay up, and only BFD finds out. One cable after the other, one direction, the other, or both;
//! each cut has a load of its own, of which every block that is read is compared with what was
//! written. Beside it both stations send each other a frame every other millisecond, whatever comes
//! back: a load waits for what was lost, and an edge whose customer is silent has nothing to move.
//! What is seen: the first customer's frame that arrives over the first cable of the backup
//! path (of the later direction, if both were cut), and the longest silence between two answers of
//! the target at the load's interface that ends after the cut. Both are the kernel's stamps of frames
//! in packet sockets (`yardstick watch`), on the clock of the day, as is the time of the cut, which is
//! taken before the rule is sent to the kernel: so what adding it takes counts. Frames that moved
//! before the cut moved for another reason, as where a router could not run for so long; that is
//! counted (`early`), and the cut is made again. Units: milliseconds where a name says so.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::roads::{BACKUP_ARRIVES, INTERFACE, LOAD, PRIMARY, Road, STATIONS, TARGET};
use crate::bench::judge::median;
use crate::bench::load::find;
use crate::bench::process::{Bench, Server, output, output_of_failed};

/// About how long a cut takes with all that belongs to it: the load, and the way back.
pub(in crate::bench) const CUT_SECONDS: f64 = 5.5;
/// The load of each cut, with its warm-up; when the cut is made; how long is looked at all.
const LOAD_SECONDS: f64 = 2.2;
const WARM_UP_SECONDS: f64 = 0.3;
const BEFORE: Duration = Duration::from_millis(1200);
const WATCH_SECONDS: f64 = 3.2;
/// Frames that each station sends whatever becomes of them.
const STEADY_A_SECOND: &str = "500";
/// The same cut is made again so often.
const AGAIN_MAX: u64 = 5;

/// How many cuts there are.
pub(in crate::bench) fn count(quick: bool) -> usize {
    if quick { 3 } else { 20 }
}

/// How long is looked whether nothing moves.
pub(in crate::bench) fn steady_seconds(quick: bool) -> f64 {
    if quick { 60.0 } else { 600.0 }
}

/// From which end of the primary path frames are lost; by the edges' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    FromTarget,
    FromLoad,
    Both,
}

/// The cut with a number: cables turn, and directions so that each cable has each of them.
fn cut(number: usize) -> ([&'static str; 2], Lost) {
    let cables = PRIMARY.len();
    let lost = [Lost::FromTarget, Lost::FromLoad, Lost::Both];
    (PRIMARY[number % cables], lost[(number + number / cables) % lost.len()])
}

impl Lost {
    /// Which edges have to move their frames, by their place.
    fn edges(self) -> &'static [usize] {
        match self {
            Self::FromTarget => &[0],
            Self::FromLoad => &[1],
            Self::Both => &[0, 1],
        }
    }
}

/// Cuts cables of a network, under a load with these arguments each time.
pub(in crate::bench) fn run(
    bench: &Bench,
    server: &Server,
    args: &[&str],
    quick: bool,
) -> Result<Value> {
    let road = server.road()?;
    for [near, far] in PRIMARY {
        prepare(road, near, far)?;
        prepare(road, far, near)?;
    }
    let (mut seen, mut early) = (Vec::new(), 0);
    while seen.len() < count(quick) {
        road.settle(bench)?;
        let (cable, lost) = cut(seen.len());
        let one = one(bench, road, args, cable, lost).and_then(|seen| seen.figures(lost));
        let what = || format!("a cut of {cable:?}, {lost:?}");
        match one.with_context(what).map_err(|error| server.blame(error))? {
            Some(mut figures) => {
                figures["cable"] = json!(cable);
                figures["lost"] = format!("{lost:?}").into();
                seen.push(figures);
            }
            None => {
                early += 1;
                ensure!(early <= AGAIN_MAX, "frames moved {early} times before a cut");
            }
        }
    }
    let of = |key: &str| -> Vec<f64> { seen.iter().filter_map(|one| one[key].as_f64()).collect() };
    let spread = |key: &str| {
        let values = of(key);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        json!({"median": median(&values), "max": most})
    };
    Ok(json!({
        "to_backup_ms": spread("to_backup_ms"), "stall_ms": spread("stall_ms"),
        "stall_more_ms": spread("stall_more_ms"), "cut_took_ms": spread("cut_took_ms"),
        "errors": of("errors").iter().sum::<f64>(), "early": early, "cuts": seen,
    }))
}

/// What was seen of a cut.
struct Seen {
    /// The target's answers at the load.
    answers: Value,
    /// Customers' frames behind the first cable of each edge's backup path.
    backups: [Value; 2],
    /// What the load printed.
    load: Value,
    /// Between which times the cut was made.
    cut: (u64, u64),
}

/// Makes one cut with its load, and takes it back.
fn one(
    bench: &Bench,
    road: &Road,
    args: &[&str],
    [near, far]: [&str; 2],
    lost: Lost,
) -> Result<Seen> {
    let sends = [(TARGET, STATIONS[1].1), (LOAD, STATIONS[0].1)].map(|(node, to)| {
        let mut command = tool(bench, road, node, "generate");
        command.args(["--plain", "--size=60", "--out", INTERFACE, "--to", to]);
        command.args(["--rate", STEADY_A_SECOND, "--warm-up=0"]);
        command.args(["--seconds", &(LOAD_SECONDS + WARM_UP_SECONDS).to_string()]);
        command
    });
    let watch = |node: &str, interface: &str, of: &str| {
        let mut command = tool(bench, road, node, "watch");
        command.args(["--interface", interface, "--of", of]);
        command.args(["--seconds", &WATCH_SECONDS.to_string()]);
        command
    };
    let answers = watch(LOAD, INTERFACE, "aoe-answers");
    let backups = BACKUP_ARRIVES.map(|(node, interface)| watch(node, interface, "pseudowire"));
    let mut load = road.initiator(bench);
    load.args(args).args(["--numjobs=1", "--json", "--time", &format!("{LOAD_SECONDS}s")]);
    load.args(["--warmup", &format!("{WARM_UP_SECONDS}s")]);
    let mut cutters = Vec::new();
    for (edge, (node, towards)) in [(near, far), (far, near)].into_iter().enumerate() {
        if lost.edges().contains(&edge) {
            cutters.push(Cutter::start(road, node, towards)?);
        }
    }
    let seen = std::thread::scope(|scope| {
        let run = |command| scope.spawn(move || output(command, WATCH_SECONDS));
        let (sends, answers, backups) = (sends.map(run), run(answers), backups.map(run));
        let cut = scope.spawn(|| {
            std::thread::sleep(BEFORE);
            cut_all(cutters)
        });
        let load = output_of_failed(load, LOAD_SECONDS + WARM_UP_SECONDS);
        let [first, second] = backups.map(joined);
        sends.map(joined).into_iter().try_for_each(|sent| sent.map(|_| ()))?;
        Ok(Seen {
            answers: joined(answers)?.value,
            backups: [first?.value, second?.value],
            load: load?.value,
            cut: joined(cut)?,
        })
    });
    for (node, towards) in [(near, far), (far, near)] {
        nft(road, node, &["flush", "chain", "netdev", "cut", towards])?;
    }
    seen
}

/// A tool of the measure at a node, on the load's CPU.
fn tool(bench: &Bench, road: &Road, node: &str, name: &str) -> Command {
    let cpu = bench.load_cpu.to_string();
    let mut command = bench.command_at(road.network.at(node), &cpu, &bench.yardstick);
    command.args([name, "--json"]);
    command
}

impl Seen {
    /// The figures of a cut; nothing if frames had moved before it.
    fn figures(&self, lost: Lost) -> Result<Option<Value>> {
        let (from, to) = self.cut;
        let arrived = self.backups.each_ref().map(|seen| seen["first_ns"].as_u64());
        if arrived.iter().flatten().any(|at| *at < from) {
            return Ok(None);
        }
        let moved: Option<Vec<u64>> = lost.edges().iter().map(|edge| arrived[*edge]).collect();
        let moved = moved.and_then(|moved| moved.into_iter().max());
        let to_backup = millis(moved.context("no frame came on the backup path")? - from);
        let stall = longest_silence(&self.answers, from)?;
        let count = |path: &str| {
            let count = self.load.pointer(path).and_then(Value::as_u64);
            count.with_context(|| format!("no {path} in {}", self.load))
        };
        let errors = count("/errors")? + count("/verify/wrong")?;
        Ok(Some(json!({
            "to_backup_ms": to_backup, "stall_ms": stall, "stall_more_ms": stall - to_backup,
            "cut_took_ms": millis(to - from), "errors": errors, "iops": find(&self.load, "iops"),
        })))
    }
}

/// The longest silence that ended after this time, in milliseconds. One in which frames stopped for
/// good is an error: the load ended long before who looked.
fn longest_silence(answers: &Value, from: u64) -> Result<f64> {
    // A frame that the watcher missed would make a silence of its own.
    ensure!(answers["dropped"].as_u64().unwrap_or(0) == 0, "the watcher fell behind: {answers}");
    let silences: Vec<[u64; 2]> = serde_json::from_value(answers["silences_ns"].clone())?;
    ensure!(
        answers["last_ns"].as_u64() > Some(from),
        "no answer came any more after the cut: {answers}"
    );
    let after = silences.into_iter().filter(|[_, to]| *to > from);
    Ok(millis(after.map(|[begin, end]| end - begin).max().unwrap_or(0)))
}

fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Now, on the clock of the day.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a thread of the bench panicked"))
}

/// Has a node look at what it sends to another; nothing is dropped yet.
fn prepare(road: &Road, node: &str, towards: &str) -> Result<()> {
    nft(road, node, &["add", "table", "netdev", "cut"])?;
    let chain = format!(
        "add chain netdev cut {towards} {{ type filter hook egress device {towards} priority 0 ; policy accept ; }}"
    );
    nft(road, node, &[&chain])
}

fn nft(road: &Road, node: &str, args: &[&str]) -> Result<()> {
    let output = road.network.at(node).tool("nft").args(args).output()?;
    ensure!(
        output.status.success(),
        "nft {}: {} (Debian package nftables)",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Who is about to cut a cable's direction: it runs already, and waits for the line.
struct Cutter {
    child: Child,
    line: String,
}

impl Cutter {
    fn start(road: &Road, node: &str, towards: &str) -> Result<Self> {
        let mut command: Command = road.network.at(node).tool("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start nft")?;
        Ok(Self { child, line: format!("add rule netdev cut {towards} drop\n") })
    }
}

/// Cuts, and says between which times.
fn cut_all(mut cutters: Vec<Cutter>) -> Result<(u64, u64)> {
    let from = now_ns();
    for cutter in &mut cutters {
        let mut stdin = cutter.child.stdin.take().context("nft has a standard input")?;
        stdin.write_all(cutter.line.as_bytes())?;
    }
    for cutter in &mut cutters {
        let status = cutter.child.wait()?;
        ensure!(status.success(), "nft {} of {}", status, cutter.line);
    }
    Ok((from, now_ns()))
}

/// Load for minutes, in which nothing is cut and nothing is to move.
pub(in crate::bench) fn steady(
    bench: &Bench,
    server: &Server,
    args: &[&str],
    quick: bool,
) -> Result<Value> {
    let road = server.road()?;
    road.settle(bench)?;
    let before = road.moves(bench)?;
    let seconds = steady_seconds(quick);
    let mut load = road.initiator(bench);
    load.args(args).args(["--numjobs=1", "--json", "--time", &format!("{seconds}s")]);
    let done = output_of_failed(load, seconds).map_err(|error| server.blame(error))?;
    let moves = road.moves(bench)? - before;
    let errors = ["/errors", "/verify/wrong"].map(|path| done.value.pointer(path).cloned());
    let errors: u64 = errors.iter().flatten().filter_map(Value::as_u64).sum();
    Ok(json!({
        "moves": moves, "errors": errors, "iops": find(&done.value, "iops"),
        "latency_us": {"mean": find(&done.value, "mean").map(|ns| ns / 1e3)},
        "idle": done.idle, "printed": done.value,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cable_is_cut_in_every_direction_before_any_is_again() {
        let mut cuts: Vec<_> = (0..9).map(|number| format!("{:?}", cut(number))).collect();
        assert_eq!(cut(0), (["ler1", "lsr1"], Lost::FromTarget));
        assert_eq!(cut(1), (["lsr1", "lsr2"], Lost::FromLoad));
        assert_eq!(cut(2), (["lsr2", "ler2"], Lost::Both));
        cuts.sort_unstable();
        cuts.dedup();
        assert_eq!(cuts.len(), 9);
        assert_eq!(cut(9), cut(0));
    }

    #[test]
    fn a_cut_is_judged_by_the_direction_that_was_cut_the_later_one_of_two() {
        const MS: u64 = 1_000_000;
        let backup = |first: u64| json!({"first_ns": first * MS});
        let seen = |backups| Seen {
            answers: json!({"last_ns": 2000 * MS, "silences_ns": [[1000 * MS, 1300 * MS]]}),
            backups,
            load: json!({"errors": 1, "verify": {"wrong": 2}}),
            cut: (1000 * MS, 1002 * MS),
        };
        let figures = |backups, lost| seen(backups).figures(lost);
        let both = || [backup(1120), backup(1140)];
        for (lost, wanted) in
            [(Lost::FromTarget, 120.0), (Lost::FromLoad, 140.0), (Lost::Both, 140.0)]
        {
            let one = figures(both(), lost).unwrap().unwrap();
            assert_eq!(one["to_backup_ms"], wanted);
            assert_eq!(one["stall_more_ms"], 300.0 - wanted);
            assert_eq!(one["errors"], 3);
        }
        assert_eq!(figures([backup(1120), backup(999)], Lost::FromTarget).unwrap(), None);
        assert!(figures([backup(1120), json!({"first_ns": null})], Lost::Both).is_err());
    }

    #[test]
    fn a_silence_counts_that_ends_after_the_cut() {
        let seen = |last: u64| json!({"last_ns": last, "silences_ns": [[0, 900_000_000_u64], [1_000_000_000_u64, 1_250_000_000_u64], [1_300_000_000_u64, 1_310_000_000_u64]]});
        assert_eq!(longest_silence(&seen(1_310_000_000), 1_001_000_000).unwrap(), 250.0);
        assert_eq!(longest_silence(&seen(1_310_000_000), 1_305_000_000).unwrap(), 10.0);
        assert!(longest_silence(&seen(1_000_000_000), 1_001_000_000).is_err());
    }
}
