//! What is seen of a trial: what `bench` printed, and what CPUs and interfaces did meanwhile.
//!
//! While a load measures, CPUs and interfaces are looked at twice a window; what they did between the
//! first and the last look of the last five windows is what operations cost. Of those windows are
//! rates and latencies, too. A trial is unsteady if its load was, if the machine's host took of its
//! CPUs, or if other programs worked on them; it measured nothing if its reads found nothing but
//! zeros. Units: those of [`lab::plan::Measure`]; shares of a CPU.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lab::kept::CLIENT_LIMIT;
use lab::plan::{Backing, Cell, Measure, Measures, Side, TrialOutcome};
use lab::report::STILL_MAX;
use lab::statistics::Better;
use lab::statistics::steady::{STEAL_MAX, WINDOWS};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::{Counters, CpuLook};

use super::Ends;
use super::agent::{Agent, Request};
use super::folder::FileSystem;
use super::looks::{Look, Sighted};
use super::road;
use super::served::Served;
use super::trial::{Lab, tell};
use super::way::Way;

/// Above this share of a CPU, others work on an end's CPUs: before anything runs, or in a trial.
const OTHERS_MAX: f64 = 0.1;
/// From here on the client may be what limits.
const CLIENT_BUSY: f64 = 0.9;
/// Of the reads that were looked at, so many may find nothing but zeros.
const ZEROS_MAX: f64 = 0.01;

/// What became of a trial, beside what it is judged by.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Seen {
    /// Shares of a CPU that each end used beyond what it does when idle, by task for the most of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) near: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) far: Option<End>,
    /// Frames and bytes on the wire, both ways, an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frames_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wire_bytes_per_op: Option<f64>,
    /// Of NFS: how often the server was asked, an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calls_per_op: Option<f64>,
    /// Bytes between the first router and the core, both ways, an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) core_bytes_per_op: Option<f64>,
    /// Where the plan asks for it, of what the first router sent to the core: the variance of the bytes of a millisecond
    /// by their mean, and how many frames waited there at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) core_burstiness: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) core_queue: Option<u32>,
    /// Frames that the near end's interface dropped, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frames_dropped: Option<u64>,
    /// Of the frames that came to both ends, how many the path lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost_share: Option<f64>,
    /// What the client had read from storage and written to it, an operation; of a client that works
    /// on what is of its own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_read_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_written_per_op: Option<f64>,
    /// Of a folder: what is mounted there ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_system: Option<FileSystem>,
    /// ... and how many bytes of its file the page cache held when the load was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) page_cache_bytes: Option<u64>,
    /// Of a client whose memory is bounded: how much of what it wrote may wait there to be written to its device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dirty_bytes_max: Option<u64>,
    /// Of many files: of what was read, which share the page cache had without storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_hit_share: Option<f64>,
    /// How many disks there were, where the load says so: the client of a stripe does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disks: Option<u32>,
    /// What `plateway serve` said of itself, where the lab started one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) served: Option<Served>,
    /// Operations a second of each window.
    pub(super) windows: Vec<f64>,
    /// What to know before believing it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// What `bench` printed.
    pub(super) bench: Value,
}

/// What an end's CPUs did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct End {
    /// Processor time an operation, in microseconds; absent where others used these CPUs, before anything ran or in a
    /// trial of a plan that calls its machine shared, and where something else of the trial's works on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_op: Option<f64>,
    /// Of all its CPUs together.
    pub(super) busy: f64,
    /// Of that one of them which was the busiest.
    pub(super) busiest: f64,
    /// What the machine's host took of the CPU of which it took most.
    pub(super) steal: f64,
    /// What programs used that are neither ours nor the kernel's, or ended meanwhile, of the CPU of
    /// which they used most.
    pub(super) others: f64,
    /// Names of tasks with their shares, most first.
    pub(super) by_task: Vec<(String, f64)>,
}

/// The share of its CPUs that an end uses by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// Of all its CPUs together.
    pub(super) near: f64,
    pub(super) far: f64,
    /// Of that CPU of either end which is the busiest.
    most: f64,
}

impl Idle {
    /// Looks for so long, at the far end by its agent if it has one.
    pub(super) fn measure(
        ends: &Ends,
        agent: Option<&RefCell<Agent>>,
        time: Duration,
    ) -> miette::Result<Idle> {
        let ask = |agent: &RefCell<Agent>| agent.borrow_mut().look();
        let far_before = agent.map(ask).transpose()?;
        let before = CpuLook::now().map_err(tell)?;
        std::thread::sleep(time);
        let after = CpuLook::now().map_err(tell)?;
        let near = used(&before, &after, &ends.near, &Ours::default())?;
        let far: End = match (agent, far_before) {
            (Some(agent), Some(from)) => {
                let mut agent = agent.borrow_mut();
                let to = agent.look()?;
                agent.ask(&Request::Used { from: from.look, to: to.look })?
            }
            _ => used(&before, &after, &ends.far, &Ours::default())?,
        };
        Ok(Idle { near: near.busy, far: far.busy, most: near.busiest.max(far.busiest) })
    }

    /// Whether so little runs there that what is beyond it is ours.
    pub(super) fn is_quiet(self) -> bool {
        self.most <= OTHERS_MAX
    }
}

/// `near 3%, far 100%`.
impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "near {:.0}%, far {:.0}%", self.near * 100.0, self.far * 100.0)
    }
}

impl Lab<'_> {
    /// An error where what was read was never written: a disk may answer that without reading.
    fn refuse_zeros(&self, cell: &Cell, said: &Value) -> miette::Result<()> {
        let number = |name: &str| said["looked"][name].as_u64().unwrap_or(0);
        let (reads, zeros) = (number("reads"), number("zeros"));
        let is_null = self.experiment.systems[cell.system].backing == Some(Backing::Null);
        // What the load itself trims reads as zeros.
        if is_null || cell.load.pattern.trims() || zeros as f64 <= reads as f64 * ZEROS_MAX {
            return Ok(());
        }
        Err(miette::miette!(
            "expected reads of what somebody wrote, and {zeros} of {reads} that were looked at found nothing but zeros, which a disk may answer without reading (name a size that is written, or a disk that the lab may write)"
        ))
    }

    /// Makes measures of what a bench printed and of what was seen meanwhile.
    pub(super) fn judge(
        &self,
        cell: &Cell,
        said: Value,
        sighted: &Sighted,
        way: Option<&Way<'_>>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        self.refuse_zeros(cell, &said)?;
        let steady = &said["steady"];
        let (notes, disks) = (notes(&said, cell.load.client_cpu), cell.load.disks);
        let mut seen = Seen { notes, disks, ..Seen::default() };
        let windows = Windows::of(steady);
        seen.count_core(&windows, sighted);
        if let Some((from, to, ops)) = windows.between_looks(&sighted.looks) {
            self.see_cpus(&mut seen, (from, to, ops), way)?;
            seen.count_frames(from, to, ops);
            seen.count_storage(from, to, ops);
            let calls =
                from.calls.zip(to.calls).map(|(before, after)| after.saturating_sub(before));
            seen.calls_per_op = calls.map(|calls| calls as f64 / ops);
            seen.count_hits(said["read_bytes_per_op"].as_f64().filter(|_| cell.load.cache));
            if let (Some(mtu), Some(grown)) = (way.and_then(Way::mean_at_most), grown(from, to)) {
                refuse_long_frames(mtu, &grown)?;
            }
        }
        let is_ours = self.is_ours_alone(&mut seen);
        let is_steady = is_ours && steady["is_steady"].as_bool().unwrap_or(false);
        let costs = seen.ends().map(|end| end.cpu_us_per_op);
        let cpu: Option<f64> = costs.sum::<Option<f64>>().filter(|_| seen.near.is_some());
        let path = cell.path.map(|at| &self.experiment.paths[at]).zip(self.abilities);
        if path.is_some_and(|(path, abilities)| road::is_shared(path, abilities, self.ends)) {
            // Something else works on an end's CPUs: what all of it costs together is known.
            for end in [&mut seen.near, &mut seen.far].into_iter().flatten() {
                end.cpu_us_per_op = None;
            }
        }
        let of_end = |end: &Option<End>| end.as_ref()?.cpu_us_per_op;
        let measures = measures(&said, |measure| match measure {
            Measure::CpuPerOp => cpu,
            Measure::CpuNearPerOp => of_end(&seen.near),
            Measure::CpuFarPerOp => of_end(&seen.far),
            Measure::WireBytesPerOp => seen.wire_bytes_per_op,
            Measure::CoreBurstiness => seen.core_burstiness,
            Measure::CoreQueue => seen.core_queue.map(f64::from),
            _ => None,
        });
        let measures = told_besides(measures, &said, cell);
        seen.windows = windows.iops;
        seen.bench = said;
        Ok((TrialOutcome::Measured { measures, is_steady }, seen))
    }

    /// What both ends' CPUs did between two looks, and what that was for each operation.
    fn see_cpus(
        &self,
        seen: &mut Seen,
        (from, to, ops): (&Look, &Look, f64),
        way: Option<&Way<'_>>,
    ) -> miette::Result<()> {
        let ours = way.map(Way::ours).unwrap_or_default();
        let cost = |mut end: End, idle: f64, seconds: f64| {
            let own = (end.busy - idle).max(0.0) * seconds * 1e6 / ops;
            // A trial in which others worked counts for nothing, and so does what it says here; unless the plan
            // calls the machine shared.
            let is_told = end.others <= OTHERS_MAX || !self.experiment.shared;
            end.cpu_us_per_op = (self.idle.is_quiet() && is_told).then_some(own);
            end
        };
        let seconds = to.at - from.at;
        let here = |cpus: &[usize]| used(&from.cpu, &to.cpu, cpus, &ours);
        seen.near = Some(cost(here(&self.ends.near)?, self.idle.near, seconds));
        let Some(way) = way else { return Ok(()) };
        let (far, seconds) = match (&from.far, &to.far) {
            // Between the same two looks, and by its own clock.
            (Some(before), Some(after)) => {
                if after.dropped > before.dropped {
                    seen.notes.push("the far end's interface dropped frames".to_owned());
                }
                (way.used(before, after)?, after.at - before.at)
            }
            _ => (here(&self.ends.far)?, seconds),
        };
        seen.far = Some(cost(far, self.idle.far, seconds));
        Ok(())
    }

    /// Whether nobody else took too much of the ends' CPUs, which is noted; on a machine that the plan
    /// calls shared that is all that comes of it.
    fn is_ours_alone(&self, seen: &mut Seen) -> bool {
        let most = |of: fn(&End) -> f64| seen.ends().map(of).fold(0.0, f64::max);
        let others = [
            (most(|end| end.steal), STEAL_MAX, "the machine's host"),
            (most(|end| end.others), OTHERS_MAX, "other programs"),
        ];
        let unsteady = if self.experiment.shared { "" } else { "unsteady: " };
        let taken =
            others.into_iter().filter(|(share, max, _)| share > max).map(|(_, max, who)| {
                format!("{unsteady}{who} took more than {}% of a CPU", max * 100.0)
            });
        let taken: Vec<String> = taken.collect();
        let is_alone = taken.is_empty();
        seen.notes.extend(taken);
        is_alone || self.experiment.shared
    }
}

impl Seen {
    fn ends(&self) -> impl Iterator<Item = &End> {
        [&self.near, &self.far].into_iter().flatten()
    }

    /// What the first router sent to the core in the windows that count.
    fn count_core(&mut self, windows: &Windows, sighted: &Sighted) {
        let told = sighted.core.as_ref().zip(windows.counted());
        let told = told.and_then(|(core, (from, to))| core.between(from, to));
        (self.core_burstiness, self.core_queue) = told.unzip();
    }

    /// What the load had of storage between two looks.
    fn count_storage(&mut self, from: &Look, to: &Look, ops: f64) {
        let storage = from.storage.zip(to.storage).map(|(before, after)| after.since(&before));
        self.storage_read_per_op = storage.map(|storage| storage.read as f64 / ops);
        self.storage_written_per_op = storage.map(|storage| storage.written as f64 / ops);
    }

    /// Of what a client read, an operation, how much needed no storage: what the kernel read ahead for nobody counts
    /// against it.
    fn count_hits(&mut self, read: Option<f64>) {
        let shares = read.filter(|read| *read > 0.0).zip(self.storage_read_per_op);
        self.cache_hit_share = shares.map(|(read, stored)| (1.0 - stored / read).max(0.0));
    }

    /// What the interfaces counted between two looks.
    fn count_frames(&mut self, from: &Look, to: &Look, ops: f64) {
        let Some(grown) = grown(from, to) else { return };
        let frames = grown.rx_packets + grown.tx_packets;
        self.frames_per_op = Some(frames as f64 / ops);
        self.wire_bytes_per_op = Some((grown.rx_bytes + grown.tx_bytes) as f64 / ops);
        // Not at the same moment as the near end's: so what a frame has there, which is the same at any
        // time, and a frame of one is a frame of the other.
        let core = from.core.zip(to.core).map(|(before, after)| after.since(&before));
        self.core_bytes_per_op = core.map(|core| {
            let of_core = (core.rx_packets + core.tx_packets).max(1) as f64;
            (core.rx_bytes + core.tx_bytes) as f64 / of_core * frames as f64 / ops
        });
        let dropped = grown.rx_dropped + grown.tx_dropped;
        if dropped > 0 {
            self.notes.push("the link dropped frames".to_owned());
            self.frames_dropped = Some(dropped);
        }
    }
}

/// What the near end's interface counted between two looks.
fn grown(from: &Look, to: &Look) -> Option<Counters> {
    from.counters.zip(to.counters).map(|(before, after)| after.since(&before))
}

/// An error where frames were longer on average than this MTU lets any be: they were not on a wire so.
fn refuse_long_frames(mtu: u32, grown: &Counters) -> miette::Result<()> {
    /// An Ethernet header, a tag, and the checksum that some interfaces count.
    const AROUND: u32 = 22;
    let sides = [
        ("received", grown.rx_bytes, grown.rx_packets),
        ("sent", grown.tx_bytes, grown.tx_packets),
    ];
    for (way, bytes, frames) in sides {
        let mean = bytes.checked_div(frames).unwrap_or(0);
        if mean > u64::from(mtu + AROUND) {
            return Err(miette::miette!(
                "expected frames within the MTU of {mtu} bytes, seen such of {mean} bytes on average {way}: something puts frames together, or apart, behind the interface"
            ));
        }
    }
    Ok(())
}

/// What a trial is judged by, all of it of the last five windows: of what bench told, and what an operation
/// `cost` as it was seen from outside.
fn measures(said: &Value, cost: impl Fn(Measure) -> Option<f64>) -> Measures {
    let steady = &said["steady"];
    let part = |side: Option<Side>| match side {
        None => steady,
        Some(Side::Reads) => &steady["read"],
        Some(Side::Writes) => &steady["write"],
    };
    let requests = |side: Option<Side>| part(side)["requests"].as_u64().unwrap_or(0);
    let rate = steady["iops"].as_f64().unwrap_or(0.0);
    Measure::of(requests, |measure| {
        let latency = &part(measure.side())["latency_ns"];
        let share = requests(measure.side()) as f64 / requests(None).max(1) as f64;
        match measure.whole() {
            Measure::Iops => Some(rate * share),
            Measure::Throughput => {
                // Operations on many files are of any length, most of none.
                let each = said["block_bytes"].as_f64().or(said["bytes_per_op"].as_f64())?;
                Some(rate * each)
            }
            Measure::LatencyMean => latency["mean"].as_f64(),
            spent if spent.better() == Better::Cheaper => cost(spent),
            percentile => latency[percentile.word()].as_f64(),
        }
    })
}

/// And what a program told by itself, of which an operation is something else than a request: what its trial cannot tell is
/// not there.
fn told_besides(mut measures: Measures, said: &Value, cell: &Cell) -> Measures {
    let Some(files) = cell.load.files.filter(|files| files.is_program()) else { return measures };
    let told = Measure::ALL.into_iter();
    let told = told.filter_map(|measure| Some((measure, said["told"][measure.word()].as_f64()?)));
    measures.extend(told);
    measures.retain(|measure, _| files.tells(*measure));
    measures
}

/// What bench itself says of its figures, and whether it was the limit, with so many percent of a CPU if not all of it.
fn notes(said: &Value, client_cpu: Option<u8>) -> Vec<String> {
    let words = said["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // How much exactly is among what is kept; so the same note is the same in each trial.
    let counted = ["the bench itself was the limit", "found nothing but zeros", "stood still"];
    let others = words.filter(|words| !counted.iter().any(|one| words.contains(one)));
    let mut notes: Vec<String> = others.map(str::to_owned).collect();
    let busy = said["bench_thread_busy"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    let share = f64::from(client_cpu.unwrap_or(100)) / 100.0;
    if busy.fold(0.0, f64::max) > CLIENT_BUSY * share {
        notes.push(CLIENT_LIMIT.to_owned());
    }
    if said["stood_still"]["share"].as_f64().is_some_and(|share| share > STILL_MAX) {
        notes.push(format!(
            "the machine's CPUs stood still for more than {}% of the time: the slowest answers may be its own",
            STILL_MAX * 100.0
        ));
    }
    notes
}

/// The windows of a trial: operations a second in each, and when they began and ended, in seconds
/// since 1970: an edge more than windows.
struct Windows {
    iops: Vec<f64>,
    edges: Vec<f64>,
}

impl Windows {
    /// Those that bench told.
    fn of(steady: &Value) -> Windows {
        let numbers = |value: &Value| -> Vec<f64> {
            value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        Windows { iops: numbers(&steady["windows"]), edges: numbers(&steady["edges_unix"]) }
    }

    /// When the last five began and ended.
    fn counted(&self) -> Option<(f64, f64)> {
        let begin = *self.edges.get(self.edges.len().checked_sub(WINDOWS + 1)?)?;
        Some((begin, *self.edges.last()?))
    }

    /// The first and the last look within the last five, and how many operations there were between
    /// them; `None` if there were no two looks, or none.
    fn between_looks<'l>(&self, looks: &'l [Look]) -> Option<(&'l Look, &'l Look, f64)> {
        let (begin, end) = self.counted()?;
        let from = looks.iter().find(|look| look.at >= begin)?;
        let to = looks.iter().rev().find(|look| look.at <= end)?;
        let ops = self.operations(from.at, to.at);
        (from.at < to.at && ops > 0.0).then_some((from, to, ops))
    }

    /// Operations between two moments.
    fn operations(&self, from: f64, to: f64) -> f64 {
        let each = self.edges.windows(2).zip(&self.iops);
        each.map(|(edges, iops)| (to.min(edges[1]) - from.max(edges[0])).max(0.0) * iops).sum()
    }
}

/// Who works for a trial beside this process and what descends from it.
#[derive(Debug, Default)]
pub(super) struct Ours {
    /// Networks of its own, by their numbers.
    pub(super) networks: Vec<u64>,
    /// What runs between the ends, by the number of its process.
    pub(super) between: BTreeMap<u32, &'static str>,
}

/// What some CPUs did between two looks. Tasks of what runs between the ends have its name.
pub(super) fn used(
    before: &CpuLook,
    after: &CpuLook,
    cpus: &[usize],
    ours: &Ours,
) -> miette::Result<End> {
    const TASKS: usize = 8;
    let own = std::process::id();
    let mut end = End::default();
    let mut tasks: BTreeMap<String, f64> = BTreeMap::new();
    for cpu in cpus {
        let seen = before.until(after, *cpu).map_err(tell)?;
        let mut others = seen.ended();
        // Who looks is not what is looked at.
        let busy = (seen.busy - seen.of_process(own)).max(0.0);
        end.busy += busy;
        end.busiest = end.busiest.max(busy);
        end.steal = end.steal.max(seen.steal);
        for task in seen.by_task.iter().filter(|task| task.pid != own) {
            if !after.is_ours(task.pid, &ours.networks) {
                others += task.share;
            }
            let name = ours.between.get(&task.pid).map_or(&*task.name, |name| *name);
            *tasks.entry(name.to_owned()).or_default() += task.share;
        }
        end.others = end.others.max(others);
        *tasks.entry("interrupts".to_owned()).or_default() += seen.without_tasks() - seen.ended();
        *tasks.entry("what ended".to_owned()).or_default() += seen.ended();
    }
    end.by_task = tasks.into_iter().collect();
    end.by_task.sort_by(|a, b| b.1.total_cmp(&a.1));
    end.by_task.truncate(TASKS);
    Ok(end)
}

#[cfg(test)]
mod tests {
    use lab::report::StoodStill;

    use super::*;

    #[test]
    fn frames_that_no_wire_carries_so_are_refused() {
        let grown = |rx_bytes, tx_bytes| Counters {
            rx_packets: 10,
            rx_bytes,
            tx_packets: 10,
            tx_bytes,
            ..Counters::default()
        };
        assert!(refuse_long_frames(1500, &grown(15_220, 15_220)).is_ok());
        assert!(refuse_long_frames(1500, &Counters::default()).is_ok(), "nothing was sent");
        for (counted, way) in [(grown(15_230, 0), "received"), (grown(0, 640_000), "sent")] {
            let why = refuse_long_frames(1500, &counted).unwrap_err().to_string();
            assert!(why.contains(way) && why.contains("MTU of 1500"), "{why}");
        }
    }

    #[test]
    fn reads_and_writes_of_a_mix_are_measured_apart() {
        let side = |requests: u64, mean: f64| serde_json::json!({ "requests": requests, "latency_ns": { "mean": mean, "p50": mean, "p99": 2.0 * mean } });
        let mut said = serde_json::json!({ "block_bytes": 4096, "steady": side(4000, 100.0) });
        let steady = said["steady"].as_object_mut().unwrap();
        steady.insert("iops".to_owned(), 1e4.into());
        steady.insert("read".to_owned(), side(3000, 110.0));
        let reads = measures(&said, |_| None);
        assert_eq!((reads[&Measure::Iops], reads[&Measure::ReadIops]), (1e4, 7.5e3));
        assert_eq!(reads[&Measure::ReadP99], 220.0);
        assert!(!reads.contains_key(&Measure::WriteIops), "there were none");
        said["steady"]["write"] = side(900, 70.0);
        let mix = measures(&said, |_| None);
        assert_eq!((mix[&Measure::WriteIops], mix[&Measure::WriteLatencyMean]), (2250.0, 70.0));
        assert_eq!(mix[&Measure::LatencyMean], 100.0);
        assert!(!mix.contains_key(&Measure::WriteP99), "900 are too few of them");
    }

    #[test]
    fn measures_are_what_was_told_and_what_it_cost() {
        let latency = serde_json::json!({ "mean": 250.0, "p99": 900.0 });
        let steady = serde_json::json!({ "iops": 4000.0, "requests": 2000, "latency_ns": latency });
        let said = serde_json::json!({ "block_bytes": 4096, "steady": steady });
        let cost = |measure: Measure| match measure {
            Measure::CpuPerOp => Some(12.5),
            Measure::WireBytesPerOp => Some(4512.0),
            _ => None,
        };
        let expected = [
            (Measure::Iops, 4000.0),
            (Measure::Throughput, 4000.0 * 4096.0),
            (Measure::LatencyMean, 250.0),
            (Measure::P99, 900.0),
            (Measure::CpuPerOp, 12.5),
            (Measure::WireBytesPerOp, 4512.0),
        ];
        assert_eq!(measures(&said, cost), Measures::from(expected));
    }

    #[test]
    fn cpus_that_stand_still_are_noted_in_the_same_words_each_time() {
        let said = |share: f64| {
            let own = StoodStill { share, mean_us: 40.0 };
            let words: Vec<String> = own.note().into_iter().collect();
            notes(&serde_json::json!({ "stood_still": own, "notes": words }), None)
        };
        assert!(said(0.009).is_empty());
        let [one, other] = [0.011, 0.3].map(said);
        assert_eq!(one, other);
        assert!(matches!(&one[..], [note] if note.contains("stood still for more than 1%")));
    }

    #[test]
    fn operations_between_two_moments_are_those_of_the_windows_there() {
        let windows = Windows { iops: vec![100.0, 300.0, 200.0], edges: vec![1.0, 2.0, 3.0, 5.0] };
        assert_eq!(windows.operations(1.0, 5.0), 800.0);
        assert_eq!(windows.operations(1.5, 2.5), 50.0 + 150.0);
        assert_eq!(windows.operations(4.0, 9.0), 200.0, "nothing is known of what was later");
        assert!(windows.between_looks(&[]).is_none(), "there are no five windows");
    }
}
