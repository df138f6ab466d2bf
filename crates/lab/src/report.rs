//! What a run came to: the same fields on a terminal and in JSON.
//!
//! Units are in the names: nanoseconds, bytes, microseconds of processor time. A figure that was
//! not measured is absent, never zero. Latency is from the intended start of a request to its
//! completion at the job; an open loop's intended start is its place in the schedule.

mod jobs;
mod still;

use std::fmt;

use block::ByteCount;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize, Serializer};

use crate::load::{Looked, Side, Tally, Verified};
use crate::workload::Kind;

pub use jobs::{JobReport, JobsReport};
pub use still::{STILL_MAX, StoodStill};

/// The percentiles that are told, with their names.
const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
];

/// The result of one `bench`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was measured, as a URI.
    pub disk: String,
    /// The pattern in fio's words.
    pub pattern: String,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Requests that each job had in flight at most.
    pub queue_depth: u32,
    /// Jobs.
    pub jobs: u32,
    /// Threads that carried them.
    pub shards: u16,
    /// "closed", or "open" with `rate`.
    pub closed_or_open_loop: &'static str,
    /// Requests a second that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Whether these came independently of each other, and not at even distances.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub poisson: bool,
    /// Whether each write was to be durable when it was completed.
    pub sync: bool,
    /// After how many writes a job flushed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<u32>,
    /// Where on the disk it worked, and on how many bytes.
    pub offset_bytes: u64,
    pub range_bytes: u64,
    /// What the offsets and the data were drawn from.
    pub seed: u64,
    #[serde(flatten)]
    pub counted: Counted,
    /// Of a few reads, what they found; none of a load that checks all of them.
    pub looked: Looked,
    /// Of one that was to last until it is steady.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    /// Processor time for each request.
    pub cpu_us_per_io: CpuPerIo,
    /// Of one CPU, how much each thread of the bench itself used: 1 is all of it.
    pub bench_thread_busy: Vec<f64>,
    /// What its CPUs did while its threads looked for answers, where they did long enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stood_still: Option<StoodStill>,
    /// Of answers that an instrument held back (`delay:`, `model:`), how much later than due they were
    /// told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<Latency>,
    /// What checking came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// Whether the end of requests was not waited for, as nothing came back any more.
    pub gave_up: bool,
    /// What to know before believing the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where and with what it was measured.
    pub environment: Environment,
}

/// What a load counted.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// Length of the window.
    pub seconds: f64,
    /// Requests in the window.
    pub requests: u64,
    #[serde(flatten)]
    pub all: Part,
    /// Reads alone, of a mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Part>,
    /// Writes alone, of a mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Part>,
    /// Trims alone, of a mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim: Option<Part>,
    /// Flushes, which are no part of `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<Part>,
    /// Requests that failed, at any time.
    pub errors: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

/// Latencies, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub min: u64,
    pub mean: f64,
    pub stddev: f64,
    /// By name, shortest first: half (`p50`) were at most as long, and so on.
    #[serde(flatten, serialize_with = "as_map")]
    percentiles: [(&'static str, u64); PERCENTILES.len()],
    pub max: u64,
}

/// All requests, or the reads or the writes of a mix.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Requests a second.
    pub iops: f64,
    /// Bytes of payload a second.
    pub bytes_per_second: f64,
    /// Their latencies.
    pub latency_ns: Latency,
}

/// What a measurement came to that was to last until it is steady.
#[derive(Clone, Debug, Serialize)]
pub struct Steady {
    /// Whether it was, in the end.
    pub is_steady: bool,
    /// Length of each window.
    pub window_seconds: f64,
    /// Requests a second in the last five windows, or in what there was of them.
    pub iops: f64,
    /// Requests a second of each window.
    pub windows: Vec<f64>,
    /// When the first of them began and when each ended, in seconds since 1970.
    pub edges_unix: Vec<f64>,
    #[serde(flatten)]
    pub last: LastWindows,
}

/// The last five windows, or what there was of them; flushes are not among their requests.
#[derive(Clone, Debug, Serialize)]
pub struct LastWindows {
    pub requests: u64,
    pub latency_ns: Latency,
    /// Reads alone, and writes, where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<LastSide>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<LastSide>,
}

/// The same of reads or of writes.
#[derive(Clone, Debug, Serialize)]
pub struct LastSide {
    pub requests: u64,
    pub latency_ns: Latency,
}

impl LastSide {
    /// None where there was none.
    pub fn of(latency: &Histogram<u64>) -> Option<LastSide> {
        let requests = latency.len();
        (requests > 0).then(|| LastSide { requests, latency_ns: Latency::of(latency) })
    }
}

impl LastWindows {
    /// Of requests that all read, or all write.
    pub fn of_one_kind(latency: &Histogram<u64>, is_read: bool) -> LastWindows {
        let side = |is_its: bool| LastSide::of(latency).filter(|_| is_its);
        LastWindows {
            requests: latency.len(),
            latency_ns: Latency::of(latency),
            read: side(is_read),
            write: side(!is_read),
        }
    }

    /// Of a load whose windows were told; of any other there are no requests.
    pub fn of(tally: &Tally) -> LastWindows {
        let latency = tally.last_windows();
        let side = |kind| LastSide::of(&tally.last_windows_of(kind));
        LastWindows {
            requests: latency.len(),
            latency_ns: Latency::of(&latency),
            read: side(Kind::Read),
            write: side(Kind::Write),
        }
    }
}

/// Processor time in microseconds for each request, user and system of all threads.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuPerIo {
    /// Of this process. Where the disk is in this process, that is everything.
    pub initiator: f64,
    /// Of the target's process, where its control socket answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
}

/// What checking came to.
#[derive(Clone, Debug, Serialize)]
pub struct Verify {
    /// Blocks that were right.
    pub checked: u64,
    /// Blocks that nobody had stamped.
    pub unchecked: u64,
    /// Blocks that were wrong.
    pub wrong: u64,
    /// The first of them, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// Where and with what it was measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Environment {
    /// Version of this program.
    pub version: String,
    /// The commit it was built from, where that was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When the run began, as RFC 3339 in UTC.
    pub date: String,
    /// The system's name, release and architecture.
    pub kernel: String,
    /// The processor's model.
    pub cpu: String,
    /// CPUs that the bench might use.
    pub cpus: Vec<usize>,
    /// io_uring or epoll, and why.
    pub driver: String,
}

impl Latency {
    /// The figures of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let percentiles =
            PERCENTILES.map(|(name, percent)| (name, histogram.value_at_percentile(percent)));
        let (mean, stddev) = (histogram.mean(), histogram.stdev());
        Latency { min: histogram.min(), mean, stddev, percentiles, max: histogram.max() }
    }

    /// Those of values in nanoseconds with how often each was seen; `None` if none was.
    pub fn of_counts(counts: impl Iterator<Item = (u64, u64)>) -> Option<Latency> {
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        // What was never seen would be the least and the most of them all the same.
        for (ns, count) in counts.filter(|(_, count)| *count > 0) {
            histogram.record_n(ns, count).expect("it grows as it must");
        }
        (!histogram.is_empty()).then(|| Latency::of(&histogram))
    }

    /// The percentile of this name, which must be one that is told.
    pub fn percentile(&self, name: &str) -> u64 {
        let told = self.percentiles.iter().find(|(other, _)| *other == name);
        told.expect("a percentile that is told").1
    }
}

fn as_map<S: Serializer>(
    percentiles: &[(&'static str, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(percentiles.iter().copied())
}

impl Part {
    fn of(side: &Side, seconds: f64) -> Part {
        Part {
            iops: per_second(side.requests(), seconds),
            bytes_per_second: per_second(side.bytes, seconds),
            latency_ns: Latency::of(&side.latency),
        }
    }
}

impl Verify {
    /// What checking came to, in words where something was wrong.
    pub fn of(verified: &Verified) -> Verify {
        let first = verified.first.map(|mismatch| {
            let expected = match mismatch.expected {
                0 => "a run's data".to_owned(),
                generation => format!("write {generation} of this run"),
            };
            format!("offset {}: expected {expected}, seen {}", mismatch.offset, mismatch.finding)
        });
        let Verified { checked, unchecked, wrong, .. } = *verified;
        Verify { checked, unchecked, wrong, first }
    }
}

impl Counted {
    pub fn of(tally: &Tally) -> Counted {
        let (seconds, Tally { reads, writes, trims, flushes, errors, first_error, .. }) =
            (tally.window().as_secs_f64(), tally);
        let sides = [reads, writes, trims];
        let is_mix = sides.iter().filter(|side| side.requests() > 0).count() > 1;
        let part = |side: &Side| (side.requests() > 0).then(|| Part::of(side, seconds));
        let [read, write, trim] = sides.map(|side| part(side).filter(|_| is_mix));
        let mut all = reads.clone();
        all.add(writes);
        all.add(trims);
        Counted {
            seconds,
            requests: all.requests(),
            all: Part::of(&all, seconds),
            read,
            write,
            trim,
            flush: part(flushes),
            errors: *errors,
            first_error: first_error
                .map(|error| format!("{} at {}: {}", error.operation, error.offset, error.outcome)),
        }
    }
}

/// Whether the data were right and every request was answered as asked.
fn is_good(counted: &Counted, gave_up: bool, verify: Option<&Verify>) -> bool {
    counted.errors == 0 && !gave_up && verify.is_none_or(|verify| verify.wrong == 0)
}

impl Report {
    /// Whether the data were right and every request was answered as asked.
    pub fn is_good(&self) -> bool {
        is_good(&self.counted, self.gave_up, self.verify.as_ref())
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Nanoseconds as people read them: `873 ns`, `12.4 us`, `1.20 ms`, `3.50 s`.
#[derive(Clone, Copy, Debug)]
pub struct Nanoseconds(pub f64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            ns if ns < 1e3 => return f.pad(&format!("{ns:.0} ns")),
            ns if ns < 1e6 => (ns / 1e3, "us"),
            ns if ns < 1e9 => (ns / 1e6, "ms"),
            ns => (ns / 1e9, "s"),
        };
        let digits = match value {
            v if v < 10.0 => 2,
            v if v < 100.0 => 1,
            _ => 0,
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// A number with its thousands apart: `1,234,567`.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { disk, pattern, block_bytes, queue_depth, jobs, .. } = self;
        write!(f, "{disk}\n{pattern}, {}, ", ByteCount(u64::from(*block_bytes)))?;
        let Report { rate, poisson, sync, fsync, .. } = *self;
        let asked = Asked { rate, poisson, sync, fsync, jobs: *jobs, depth: *queue_depth };
        asked.tell(f, self.counted.seconds)?;
        self.counted.rates(f)?;
        if let Some(Steady { is_steady, window_seconds, iops, windows, .. }) = &self.steady {
            let (word, count) = (if *is_steady { "after" } else { "not in" }, windows.len());
            let last = Grouped(iops.round() as u64);
            let text =
                format!("{word} {count} windows of {window_seconds} s; the last five: {last} IOPS");
            row(f, "steady", &text)?;
        }
        self.counted.latencies(f)?;
        if let Some(late) = &self.late_ns {
            let [p50, p99] = ["p50", "p99"].map(|name| late.percentile(name) as f64 / 1e3);
            row(
                f,
                "told late",
                &format!(
                    "p50 {p50:.1} us, p99 {p99:.1} us: how exactly the instrument held answers back"
                ),
            )?;
        }
        self.cpu_us_per_io.tell(f)?;
        checked(f, self.verify.as_ref())?;
        self.counted.failed(f)?;
        foot(f, &self.notes, &self.environment)
    }
}

/// What was asked for.
struct Asked {
    rate: Option<u64>,
    poisson: bool,
    sync: bool,
    fsync: Option<u32>,
    jobs: u32,
    depth: u32,
}

impl Asked {
    /// The rest of the line that says what was measured, for so long.
    fn tell(&self, f: &mut fmt::Formatter<'_>, seconds: f64) -> fmt::Result {
        match self.rate {
            Some(rate) => {
                let how = if self.poisson { " on average" } else { "" };
                write!(f, "open loop at {} a second{how}", Grouped(rate))?;
            }
            None => write!(f, "closed loop")?,
        }
        match (self.sync, self.fsync) {
            (true, _) => write!(f, ", each write durable")?,
            (false, Some(1)) => write!(f, ", a flush after each write")?,
            (false, Some(every)) => write!(f, ", a flush after {every} writes")?,
            (false, None) => {}
        }
        let Asked { jobs, depth, .. } = self;
        let plural = if *jobs == 1 { "" } else { "s" };
        writeln!(f, ", {jobs} job{plural} x depth {depth}, {seconds:.1} s\n")
    }
}

impl CpuPerIo {
    fn tell(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpu = format!("{:.2} us per I/O here", self.initiator);
        if let Some(target) = self.target {
            cpu.push_str(&format!(", {target:.2} us at the target"));
        }
        row(f, "CPU", &cpu)
    }
}

/// What to know before believing it, and with what it was measured.
fn foot(f: &mut fmt::Formatter<'_>, notes: &[String], environment: &Environment) -> fmt::Result {
    for note in notes {
        row(f, "note", note)?;
    }
    let Environment { version, kernel, cpu, driver, .. } = environment;
    write!(f, "\n  plateway {version}, {kernel}, {cpu}, {driver}")
}

/// A line of a table: what it is, and what there is of it.
fn row(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {name:<12}{text}")
}

impl Counted {
    /// All requests, and the kinds of a mix.
    fn parts(&self) -> impl Iterator<Item = (&'static str, &Part)> {
        let parts = [
            ("IOPS", Some(&self.all)),
            ("  reads", self.read.as_ref()),
            ("  writes", self.write.as_ref()),
            ("  trims", self.trim.as_ref()),
            ("flushes", self.flush.as_ref()),
        ];
        parts.into_iter().filter_map(|(name, part)| Some((name, part?)))
    }

    fn rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, part) in self.parts() {
            let (iops, megabytes) =
                (Grouped(part.iops.round() as u64), part.bytes_per_second / 1e6);
            row(f, name, &format!("{iops:>11}    {megabytes:>9.1} MB/s"))?;
        }
        Ok(())
    }

    fn latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "latency", &columns(&self.all.latency_ns).0)?;
        for (name, part) in self.parts() {
            row(f, if name == "IOPS" { "" } else { name }, &columns(&part.latency_ns).1)?;
        }
        Ok(())
    }

    fn failed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first_error.as_deref().unwrap_or("unknown");
        match self.errors {
            0 => Ok(()),
            errors => row(f, "errors", &format!("{errors}; first: {first}")),
        }
    }
}

/// What checking came to, where anything was checked.
fn checked(f: &mut fmt::Formatter<'_>, verify: Option<&Verify>) -> fmt::Result {
    let Some(Verify { checked, unchecked, wrong, first }) = verify else { return Ok(()) };
    let mut text = format!("{} blocks right, {wrong} wrong", Grouped(*checked));
    if *unchecked > 0 {
        text.push_str(&format!(", {} never written", Grouped(*unchecked)));
    }
    row(f, "verified", &text)?;
    match first {
        Some(first) => row(f, "", &format!("first wrong: {first}")),
        None => Ok(()),
    }
}

/// Two lines of columns: names, and latencies below them.
fn columns(latency: &Latency) -> (String, String) {
    let mean = ("mean", latency.mean);
    let rest = latency.percentiles.map(|(name, ns)| (name, ns as f64));
    let all = [mean].into_iter().chain(rest).chain([("max", latency.max as f64)]);
    let mut lines = (String::new(), String::new());
    for (name, ns) in all {
        lines.0.push_str(&format!("{name:>9}"));
        lines.1.push_str(&format!("{:>9}", Nanoseconds(ns)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        let text = |ns| Nanoseconds(ns).to_string();
        assert_eq!(text(0.0), "0 ns");
        assert_eq!(text(873.0), "873 ns");
        assert_eq!(text(12_430.0), "12.4 us");
        assert_eq!(text(1_200_000.0), "1.20 ms");
        assert_eq!(text(3.5e9), "3.50 s");
        assert_eq!(Grouped(0).to_string(), "0");
        assert_eq!(Grouped(1_234_567).to_string(), "1,234,567");
        assert_eq!(Grouped(100).to_string(), "100");
    }

    #[test]
    fn rates_are_those_of_the_window() {
        assert_eq!(per_second(500, 2.0), 250.0);
        assert_eq!(per_second(500, 0.0), 0.0, "nothing was measured");
    }

    #[test]
    fn percentiles_rise() {
        let mut histogram = Histogram::new(3).unwrap();
        for ns in 1..=100_000u64 {
            histogram.record(ns).unwrap();
        }
        let latency = Latency::of(&histogram);
        let values = latency.percentiles.map(|(_, ns)| ns);
        assert!(values.is_sorted(), "{values:?}");
        assert!((49_900..=50_100).contains(&latency.percentile("p50")) && latency.max >= 100_000);
        assert_eq!(latency.min, 1);
    }
}
