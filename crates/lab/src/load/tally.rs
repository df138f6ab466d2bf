//! What a load counted: requests, bytes, latencies, errors; all together, and second by second. Where
//! whoever watches counts by windows, the latencies of the last of them are kept apart.
//!
//! Units: nanoseconds, bytes. Latencies are kept in HDR histograms, three digits exact up to ten
//! minutes; longer ones count as ten minutes.

use std::time::Duration;

use block::{Instant, Outcome};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::windows::WindowLatencies;
use crate::workload::Kind;

/// The longest latency that is told apart.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Counts latencies, with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("bounds that a histogram takes")
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Side {
    /// Their payloads.
    pub bytes: u64,
    /// Their latencies, in nanoseconds; its length is their number.
    pub latency: Histogram<u64>,
}

impl Side {
    fn new() -> Side {
        Side { bytes: 0, latency: histogram() }
    }

    /// How many there were.
    pub fn requests(&self) -> u64 {
        self.latency.len()
    }

    pub(crate) fn add(&mut self, other: &Side) {
        self.bytes += other.bytes;
        self.latency.add(&other.latency).expect("histograms of the same bounds");
    }
}

/// The first request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// What was asked.
    pub operation: &'static str,
    /// Where, in bytes.
    pub offset: u64,
    /// What it came to.
    pub outcome: Outcome,
}

/// What came back in one second of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Without flushes.
    pub requests: u64,
    pub bytes: u64,
    pub errors: u64,
    /// Of all latencies together.
    pub latency_sum_ns: u64,
    pub latency_max_ns: u64,
}

/// The place of a kind among those of which windows are counted apart; flushes have none.
#[inline]
fn place_of(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Read => Some(0),
        Kind::Write => Some(1),
        Kind::Trim => Some(2),
        Kind::Flush => None,
    }
}

/// Reads that were looked at, whatever else came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Looked {
    pub reads: u64,
    /// That found nothing but zeros: what nobody wrote is read without the disk.
    pub zeros: u64,
}

/// What a load counted in its window.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Reads.
    pub reads: Side,
    /// Writes.
    pub writes: Side,
    pub trims: Side,
    /// Those that follow writes.
    pub flushes: Side,
    /// From the beginning of the window on.
    pub series: Vec<Second>,
    /// Requests that failed, at any time.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<FirstError>,
    /// Turns that ended with a job that lacked memory or a free block.
    pub stalls: u64,
    /// Of a few reads, what they found.
    pub looked: Looked,
    /// Of reads, writes and trims; absent where nobody counts by windows.
    windows: Option<[WindowLatencies; 3]>,
    pub(super) began: Instant,
    opened: Option<Instant>,
    closed: Option<Instant>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            reads: Side::new(),
            writes: Side::new(),
            trims: Side::new(),
            flushes: Side::new(),
            series: Vec::new(),
            errors: 0,
            first_error: None,
            stalls: 0,
            looked: Looked::default(),
            windows: None,
            began: Instant::ZERO,
            opened: None,
            closed: None,
        }
    }
}

impl Tally {
    /// The window begins, and is to be as long as `time`.
    pub(super) fn open(&mut self, now: Instant, time: Duration) {
        self.opened = Some(now);
        // And what comes late.
        self.series.reserve(time.as_secs() as usize + 2);
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.closed = Some(now);
    }

    #[inline]
    pub(super) fn count(&mut self, now: Instant, kind: Kind, bytes: u64, latency_ns: u64) {
        let side = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
            Kind::Trim => &mut self.trims,
            Kind::Flush => &mut self.flushes,
        };
        side.bytes += bytes;
        side.latency.saturating_record(latency_ns);
        if let Some(windows) = &mut self.windows
            && let Some(place) = place_of(kind)
        {
            windows[place].count(latency_ns);
        }
        if kind != Kind::Flush
            && let Some(second) = self.second(now)
        {
            second.requests += 1;
            second.bytes += bytes;
            second.latency_sum_ns += latency_ns;
            second.latency_max_ns = second.latency_max_ns.max(latency_ns);
        }
    }

    /// So many windows began: the one that began last is counted apart from now on, and takes the
    /// place of the one that is too old to count.
    #[cold]
    pub(super) fn begin_window(&mut self, begun: u64) {
        let windows = self.windows.get_or_insert_default();
        windows.iter_mut().for_each(|windows| windows.begin(begun));
    }

    /// How many windows began, as far as this was told.
    #[inline]
    pub(super) fn windows_begun(&self) -> u64 {
        self.windows.as_ref().map_or(0, |windows| windows[0].begun())
    }

    /// The latencies of the last five windows that are over, flushes apart; of none where nobody
    /// counts by windows.
    pub fn last_windows(&self) -> Histogram<u64> {
        self.last_of(|_| true)
    }

    /// The same of one kind alone.
    pub fn last_windows_of(&self, kind: Kind) -> Histogram<u64> {
        self.last_of(|place| Some(place) == place_of(kind))
    }

    fn last_of(&self, counts: impl Fn(usize) -> bool) -> Histogram<u64> {
        let mut all = histogram();
        for (place, windows) in self.windows.iter().flatten().enumerate() {
            if counts(place) {
                all.add(windows.last()).expect("histograms of the same bounds");
            }
        }
        all
    }

    #[inline]
    fn second(&mut self, now: Instant) -> Option<&mut Second> {
        let index = now.since(self.opened?).as_secs() as usize;
        if index >= self.series.len() {
            self.series.resize(index + 1, Second::default());
        }
        self.series.get_mut(index)
    }

    #[cold]
    pub(super) fn fail(&mut self, now: Instant, kind: Kind, offset: u64, outcome: Outcome) {
        self.errors += 1;
        let operation = kind.name();
        self.first_error.get_or_insert(FirstError { operation, offset, outcome });
        if self.closed.is_none()
            && let Some(second) = self.second(now)
        {
            second.errors += 1;
        }
    }

    /// How long the window was open.
    pub fn window(&self) -> Duration {
        match (self.opened, self.closed) {
            (Some(opened), Some(closed)) => closed.since(opened),
            _ => Duration::ZERO,
        }
    }

    /// Requests in the window, without flushes.
    pub fn requests(&self) -> u64 {
        self.reads.requests() + self.writes.requests() + self.trims.requests()
    }

    /// Adds what was counted in a window that came later: as if it had followed at once, with its
    /// first second behind this one's last.
    pub fn follow(&mut self, later: &Tally) {
        let window = self.window();
        let whole = window.as_secs() + u64::from(window.subsec_nanos() > 0);
        let mut series = std::mem::take(&mut self.series);
        series.resize(whole as usize, Second::default());
        series.extend_from_slice(&later.series);
        self.add(&Tally { series: Vec::new(), ..later.clone() });
        self.series = series;
        (self.opened, self.closed) =
            (Some(Instant::ZERO), Some(Instant::ZERO + window + later.window()));
    }

    /// Adds what another shard counted in the same window.
    pub fn add(&mut self, other: &Tally) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.trims.add(&other.trims);
        self.flushes.add(&other.flushes);
        let length = self.series.len().max(other.series.len());
        self.series.resize(length, Second::default());
        for (second, other) in self.series.iter_mut().zip(&other.series) {
            second.requests += other.requests;
            second.bytes += other.bytes;
            second.errors += other.errors;
            second.latency_sum_ns += other.latency_sum_ns;
            second.latency_max_ns = second.latency_max_ns.max(other.latency_max_ns);
        }
        self.errors += other.errors;
        self.stalls += other.stalls;
        self.looked.reads += other.looked.reads;
        self.looked.zeros += other.looked.zeros;
        self.add_windows(other);
        self.first_error = self.first_error.or(other.first_error);
        if self.window() < other.window() {
            (self.opened, self.closed) = (other.opened, other.closed);
        }
    }
}

impl Tally {
    /// Windows are told to all shards at once: those of the same number lie together.
    fn add_windows(&mut self, other: &Tally) {
        match (&mut self.windows, &other.windows) {
            (Some(windows), Some(other)) => {
                windows.iter_mut().zip(other).for_each(|(windows, other)| windows.add(other));
            }
            (None, Some(other)) => self.windows = Some(other.clone()),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Counted, LastWindows};

    #[test]
    fn the_latencies_of_the_last_five_windows_that_are_over_are_kept_apart() {
        let mut tally = Tally::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        tally.open(at(0), Duration::from_secs(60));
        assert!(tally.last_windows().is_empty());
        for window in 1..=9 {
            tally.begin_window(window);
            (0..window).for_each(|_| tally.count(at(window), Kind::Read, 512, 1000 * window));
            tally.count(at(window), Kind::Flush, 0, 9_000_000);
        }
        // The ninth is not over.
        let last = tally.last_windows();
        assert_eq!(last.len(), 4 + 5 + 6 + 7 + 8);
        assert!(last.equivalent(last.min(), 4000) && last.equivalent(last.max(), 8000));
        assert_eq!(tally.requests(), (1..=9).sum::<u64>(), "all are counted all the same");
        let mut both = Tally::default();
        both.add(&tally);
        both.add(&tally);
        assert_eq!(both.last_windows().len(), 60);
    }

    #[test]
    fn in_the_last_windows_reads_are_told_from_writes() {
        let mut tally = Tally::default();
        tally.open(Instant::ZERO, Duration::from_secs(60));
        for window in 1..=7 {
            tally.begin_window(window);
            for (kind, count, ns) in
                [(Kind::Read, 3, 500), (Kind::Write, 2, 700), (Kind::Trim, 1, 900)]
            {
                (0..count).for_each(|_| tally.count(Instant::ZERO, kind, 512, ns));
            }
            tally.count(Instant::ZERO, Kind::Flush, 0, 9_000);
        }
        let mut both = tally.clone();
        both.add(&tally);
        let last = LastWindows::of(&both);
        let [read, write] = [last.read.expect("reads"), last.write.expect("writes")];
        assert_eq!([last.requests, read.requests, write.requests], [60, 30, 20]);
        assert_eq!([read, write].map(|side| side.latency_ns.percentile("p50")), [500, 700]);
        let mut reads = Tally::default();
        reads.open(Instant::ZERO, Duration::from_secs(60));
        for window in 1..=3 {
            reads.begin_window(window);
            reads.count(Instant::ZERO, Kind::Read, 512, 500);
        }
        let last = LastWindows::of(&reads);
        assert_eq!(last.read.expect("all of them").requests, last.requests);
        assert!(last.write.is_none(), "there were none");
    }

    #[test]
    fn a_window_in_which_a_shard_had_no_turn_counts_nothing() {
        let mut tally = Tally::default();
        tally.open(Instant::ZERO, Duration::from_secs(60));
        tally.begin_window(1);
        for window in [2, 3, 4, 9] {
            tally.count(Instant::ZERO, Kind::Read, 512, 700);
            tally.begin_window(window);
        }
        // Of the windows 4 to 8 nothing was counted but in the fourth.
        assert_eq!(tally.last_windows().len(), 1);
    }

    #[test]
    fn of_fewer_windows_those_that_are_over_are_told() {
        let mut tally = Tally::default();
        tally.open(Instant::ZERO, Duration::from_secs(60));
        for window in 1..=2 {
            tally.begin_window(window);
            tally.count(Instant::ZERO, Kind::Write, 512, 700);
        }
        assert_eq!(tally.last_windows().len(), 1);
    }

    /// What a shard counted: one read, `writes` writes and an error in the second second.
    fn counted(writes: u64) -> Tally {
        let mut tally = Tally::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        tally.open(at(1000), Duration::from_secs(2));
        tally.count(at(1500), Kind::Read, 4096, 300);
        (0..writes).for_each(|_| tally.count(at(2500), Kind::Write, 512, 700));
        let refused = Outcome::NotDone(block::Failure::NoSpace);
        tally.fail(at(2600), Kind::Write, 8192 * writes, refused);
        tally.close(at(3000));
        tally
    }

    #[test]
    fn what_shards_counted_is_added_second_by_second() {
        let mut all = counted(2);
        all.add(&counted(3));
        assert_eq!((all.requests(), all.reads.requests(), all.writes.bytes), (7, 2, 5 * 512));
        let second = |requests, bytes, errors, latency_sum_ns, latency_max_ns| Second {
            requests,
            bytes,
            errors,
            latency_sum_ns,
            latency_max_ns,
        };
        assert_eq!(all.series, [second(2, 8192, 0, 600, 300), second(5, 5 * 512, 2, 3500, 700)]);
        assert_eq!((all.errors, all.window()), (2, Duration::from_secs(2)));
        assert_eq!(all.first_error.map(|error| error.offset), Some(16_384), "of the first shard");
    }

    #[test]
    fn what_was_counted_later_follows_what_was_before() {
        let mut all = Tally::default();
        all.follow(&counted(2));
        all.follow(&counted(3));
        assert_eq!((all.requests(), all.writes.requests(), all.errors), (7, 5, 2));
        assert_eq!(all.window(), Duration::from_secs(4));
        let requests: Vec<u64> = all.series.iter().map(|second| second.requests).collect();
        assert_eq!(requests, [1, 2, 1, 3]);
    }

    #[test]
    fn sides_are_told_apart_where_there_are_several() {
        let mix = Counted::of(&counted(2));
        assert!(mix.read.is_some() && mix.write.is_some() && mix.trim.is_none());
        assert_eq!((mix.requests, mix.seconds, mix.errors), (3, 2.0, 1));
        let reads = Counted::of(&counted(0));
        assert!(reads.read.is_none() && reads.write.is_none(), "all of it is said once");
    }
}
