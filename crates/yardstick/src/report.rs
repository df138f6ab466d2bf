//! What a client saw in its window, and the JSON that says so; the same for all protocols.
//!
//! Units: as each field's name says; latencies in microseconds. `target` stands there when a
//! process was named whose CPU is to be read. `window_ns` are both ends of the window on the
//! system's monotonic clock, so that what another process counted can be cut to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Measure;
use crate::system::{self, Counted, Target, Usage};
use crate::zero_copy::Counts;

/// Longer ones count as that, in nanoseconds: some 18 minutes.
const LATENCY_MAX: u64 = 1 << 40;

/// What has been counted.
pub(crate) struct Tally {
    /// Completions inside the window.
    pub(crate) ops: u64,
    /// Their latencies, of reads and of writes, and the sum of them in nanoseconds.
    latency: [Histogram<u32>; 2],
    latency_ns: u64,
    /// A window is open.
    open: bool,
}

impl Tally {
    /// Nothing yet, and the window is closed.
    pub(crate) fn new() -> Self {
        let latency = [(); 2]
            .map(|()| Histogram::new_with_bounds(1, LATENCY_MAX, 2).expect("bounds that fit"));
        Self { ops: 0, latency, latency_ns: 0, open: false }
    }

    /// How many reads, and how many writes, took about so many nanoseconds, by those.
    pub(crate) fn counts(&self) -> [Value; 2] {
        self.latency.each_ref().map(|side| {
            let bins = side.iter_recorded().map(|bin| {
                let middle = side.median_equivalent(bin.value_iterated_to());
                (middle.to_string(), Value::from(bin.count_at_value()))
            });
            Value::Object(bins.collect())
        })
    }

    /// Counts a completion if the window is open.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64, writes: bool) {
        if self.open {
            self.ops += 1;
            self.latency[usize::from(writes)].saturating_record(ns);
            self.latency_ns = self.latency_ns.saturating_add(ns);
        }
    }
}

/// What the window saw.
pub(crate) struct Window {
    /// Completions.
    pub(crate) tally: Tally,
    /// Its length.
    pub(crate) time: Duration,
    /// Both ends on the monotonic clock.
    ends_ns: [u64; 2],
    /// Keep alives that were answered in it.
    keep_alives: u64,
    /// Operations of an open loop that were due at its end and had not left: one or two are due
    /// just then, more say that the target does not keep up.
    pub(crate) behind: u64,
    /// What became of sends without a copy, since the load began.
    pub(crate) without_copies: Option<Counts>,
    /// CPU time of the client.
    pub(crate) own: Duration,
    /// The target at its beginning.
    pub(crate) from: Usage,
    /// The target at its end.
    pub(crate) to: Usage,
}

/// A window that is open.
pub(crate) struct Opened<'a> {
    target: Option<&'a Target>,
    from: Usage,
    at: Instant,
    at_ns: u64,
    /// CPU time of the client until then.
    own: Duration,
}

impl<'a> Opened<'a> {
    /// Opens a window: what ends from here on counts.
    pub(crate) fn now(tally: &mut Tally, target: Option<&'a Target>) -> Self {
        let from = target.map(Target::usage).unwrap_or_default();
        tally.open = true;
        let at_ns = system::monotonic_ns();
        Self { target, from, at: Instant::now(), at_ns, own: system::thread_cpu() }
    }

    /// Closes it; `tally` counts no more.
    pub(crate) fn close(self, tally: &mut Tally) -> Window {
        let tally = std::mem::replace(tally, Tally::new());
        let to = self.target.map(Target::usage).unwrap_or_default();
        let own = system::thread_cpu() - self.own;
        let (time, ends_ns) = (self.at.elapsed(), [self.at_ns, system::monotonic_ns()]);
        Window {
            tally,
            time,
            ends_ns,
            keep_alives: 0,
            behind: 0,
            without_copies: None,
            own,
            from: self.from,
            to,
        }
    }
}

/// A window without load, in which `keep_alives` may go up.
pub(crate) fn quiet(
    measure: &Measure,
    target: Option<&Target>,
    keep_alives: Option<&AtomicU64>,
) -> Window {
    let answered = || keep_alives.map_or(0, |count| count.load(Ordering::Acquire));
    std::thread::sleep(measure.warm_up);
    let mut tally = Tally::new();
    let before = answered();
    let opened = Opened::now(&mut tally, target);
    std::thread::sleep(measure.seconds);
    let after = answered();
    let window = opened.close(&mut tally);
    Window { keep_alives: after - before, ..window }
}

impl Window {
    /// The JSON; `size` is an operation's data, `before` the target before anybody came.
    pub(crate) fn report(&self, size: usize, target: Option<&Target>, before: Usage) -> Value {
        let seconds = self.time.as_secs_f64();
        let ops = self.tally.ops;
        let [reads, writes] = &self.tally.latency;
        let mut latency = reads.clone();
        latency.add(writes).expect("histograms of the same bounds");
        let micros = |of: f64| latency.value_at_quantile(of) as f64 / 1000.0;
        let own = self.own.as_secs_f64();
        let mut value = json!({
            "ops": ops,
            "bytes": ops * size as u64,
            "seconds": seconds,
            "iops": ops as f64 / seconds,
            "mb_per_second": (ops * size as u64) as f64 / seconds / 1e6,
            "latency_us": {
                "mean": if ops > 0 { self.tally.latency_ns as f64 / ops as f64 / 1e3 } else { 0.0 },
                "p50": micros(0.5), "p90": micros(0.9), "p99": micros(0.99), "p99_9": micros(0.999),
                "p99_99": micros(0.9999), "max": micros(1.0),
            },
            "client_cpu_seconds": own,
            "client_cpu_us_per_op": if ops > 0 { own * 1e6 / ops as f64 } else { 0.0 },
            "client_busy": own / seconds,
            "window_ns": self.ends_ns,
            "keep_alives": self.keep_alives,
            "behind": self.behind,
        });
        if let Some(Counts { sends, copied }) = self.without_copies {
            value["sends_without_copy"] = json!({ "all": sends, "copied": copied });
        }
        if let Some(target) = target {
            value["target"] = self.target(target, before);
        }
        value
    }

    fn target(&self, target: &Target, before: Usage) -> Value {
        let (from, to) = (self.from, self.to);
        let spent = target.spent(from, to, self.time).as_secs_f64();
        let since = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        json!({
            "cpu_seconds": spent,
            "busy": spent / self.time.as_secs_f64(),
            "ops_per_cpu_second": if spent > 0.0 { self.tally.ops as f64 / spent } else { 0.0 },
            "counted": match target.counted { Counted::Threads => "threads", Counted::Core => "core" },
            "threads_seconds": target.threads(from, to).as_secs_f64(),
            "core_busy_seconds": target.core(from, to, self.time).as_secs_f64(),
            "softirq_column_seconds": since(from.softirq_ns, to.softirq_ns),
            "softirq_added": target.accounts_irq,
            "ksoftirqd_seconds": since(from.ksoftirqd_ns, to.ksoftirqd_ns),
            "voluntary_switches": to.switches.saturating_sub(from.switches),
            "resident_before": before.resident,
            "resident": to.resident,
        })
    }
}
