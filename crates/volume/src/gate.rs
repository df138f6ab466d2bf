//! The gate before a disk, one on each shard: flushes are grouped, nothing passes after a failed
//! flush, and a disk that does not answer is noticed.
//!
//! The disk's owner ([`DiskId::owner`]) runs at most one flush at a time; asks that come meanwhile
//! form the next group. A flush so covers every write that was completed before it was issued,
//! whoever asked (docs/faults.md). The gates of other shards ask the owner and group their own
//! waiters in the same way.
//!
//! A disk tells once that it lost what was completed, and its later flushes say done. So a failure
//! fails every waiter of the gate at once, whatever the flush that runs comes back with, and nobody
//! joins a failed gate.

use core::time::Duration;

use block::{Extent, Failure, Instant, Outcome, ShardId, Ticket, planted};
use contract::{Cache, DiskFacts, DiskId, counters};

use crate::latency::Latencies;

/// Who waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A request of this shard.
    Here(Ticket),
    /// The gate of another shard.
    Shard(ShardId),
}

/// What a gate wants done about flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: one is running and will be followed by another.
    Nothing,
    /// Flush the disk (as its owner), or ask the owner to.
    Flush,
}

/// How a disk is doing, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It answers.
    Well,
    /// Its oldest request is older than [`block::limits::DISK_SLOW`].
    Slow,
    /// Its oldest request is older than [`block::limits::DISK_STUCK`]: its paths have been failed.
    Stuck,
}

/// What went wrong at a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskError {
    pub disk: DiskId,
    /// Where on the disk; empty for what has no place, such as a flush.
    pub extent: Extent,
    pub failure: Failure,
    /// Errors before it of which nothing was told.
    pub untold: u64,
}

/// A disk as a shard sees it.
#[derive(Debug)]
pub struct Gate {
    pub disk: DiskId,
    pub facts: DiskFacts,
    /// How a flush or a durable write failed, since the disk was opened.
    failed: Option<Failure>,
    running: Vec<Waiter>,
    next: Vec<Waiter>,
    is_running: bool,
    pub health: Health,
    /// When an error was told of, and how many were not since.
    told: Option<Instant>,
    untold: u64,
    pub counters: RequestCounters,
    pub errors: ErrorCounters,
    pub latencies: Box<Latencies>,
    /// When the flush that runs began, on the shard that owns the disk.
    pub(crate) flush_begun: Instant,
}

counters! {
    /// What went through a gate or a volume since it was added, on this shard.
    pub struct RequestCounters {
        /// Read requests.
        reads: Operations,
        /// Requests that change data.
        writes: Operations,
        /// Flushes that the disk was asked for.
        flushes: Operations,
        /// Bytes read.
        read_bytes: Bytes,
        /// Bytes written.
        write_bytes: Bytes,
        /// Requests that were not carried out, or nobody knows. A comparison that differs is
        /// carried out.
        errors: Operations,
    }
}

counters! {
    /// Requests that did not end well, by what became of them.
    pub struct ErrorCounters {
        /// They reached beyond the end.
        out_of_range: Operations,
        /// The disk takes no writes: it is read-only, or a flush failed before.
        write_protected: Operations,
        /// The media could not be read there.
        medium_read: Operations,
        /// The media could not be written there.
        medium_write: Operations,
        /// There was no room left below.
        no_space: Operations,
        /// The disk cannot do that.
        unsupported: Operations,
        /// The volume or disk was gone or going.
        removed: Operations,
        /// The disk was not there at that time.
        not_ready: Operations,
        /// They were cancelled before they began.
        aborted: Operations,
        /// No answer came in time.
        timed_out: Operations,
        /// The error was ours, or of the system below.
        internal: Operations,
        /// A compare found a difference.
        miscompare: Operations,
    }
}

impl ErrorCounters {
    /// Counts what became of a request, if that is an error.
    #[cold]
    pub fn count(&mut self, outcome: Outcome) {
        let failure = match outcome {
            Outcome::Done | Outcome::Found(_) => return,
            Outcome::Miscompare(_) => return self.miscompare += 1,
            Outcome::NotDone(failure) | Outcome::Unknown(failure) => failure,
        };
        *match failure {
            Failure::OutOfRange => &mut self.out_of_range,
            Failure::WriteProtected => &mut self.write_protected,
            Failure::MediumRead => &mut self.medium_read,
            Failure::MediumWrite => &mut self.medium_write,
            Failure::NoSpace => &mut self.no_space,
            Failure::Unsupported => &mut self.unsupported,
            Failure::Removed => &mut self.removed,
            Failure::NotReady => &mut self.not_ready,
            Failure::Aborted => &mut self.aborted,
            Failure::TimedOut => &mut self.timed_out,
            Failure::Internal => &mut self.internal,
        } += 1;
    }
}

impl Gate {
    /// The gate of a disk with these facts.
    pub fn new(disk: DiskId, facts: DiskFacts) -> Gate {
        Gate {
            disk,
            facts,
            failed: None,
            running: Vec::new(),
            next: Vec::new(),
            is_running: false,
            health: Health::Well,
            told: None,
            untold: 0,
            counters: RequestCounters::default(),
            errors: ErrorCounters::default(),
            latencies: Box::default(),
            flush_begun: Instant::ZERO,
        }
    }

    /// Takes new facts over after a person reopened the disk, which takes writes again. What a disk
    /// tells of itself, such as another size, changes its facts alone.
    pub fn renew(&mut self, facts: DiskFacts) {
        self.failed = None;
        self.told = None;
        self.facts = facts;
    }

    /// Why the disk takes no writes, if it takes none.
    #[inline]
    pub fn protected(&self) -> Option<Failure> {
        self.failed.or(self.facts.read_only.then_some(Failure::WriteProtected))
    }

    /// Why nothing that was written may be called durable.
    pub fn failed(&self) -> Option<Failure> {
        self.failed
    }

    /// Why a durable write that says done may not last: a disk with a cache tells that it lost what
    /// lay there to one of those who ask for durability at the same time, and the others are told
    /// that all is well.
    pub fn lost(&self) -> Option<Failure> {
        self.failed.filter(|_| !self.is_write_through())
    }

    /// A flush or a durable write failed: lets no further write pass, and nobody who waits for a
    /// flush, running or next, be told that it is done. Returns whether that is news, and who is to
    /// be told of the failure.
    pub fn fail(&mut self, failure: Failure) -> (bool, Vec<Waiter>) {
        let is_news = self.failed.replace(failure).is_none();
        if planted("flush-behind-a-failed-one") {
            return (is_news, Vec::new());
        }
        let mut waiters = core::mem::take(&mut self.running);
        waiters.append(&mut self.next);
        (is_news, waiters)
    }

    /// Something went wrong at the disk. Returns what is to be told of it, unless something was
    /// told a moment ago.
    #[cold]
    pub fn error(&mut self, now: Instant, extent: Extent, failure: Failure) -> Option<DiskError> {
        if !is_fault(failure) {
            return None;
        }
        if self.told.is_some_and(|told| now.since(told) < TOLD_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        let untold = core::mem::take(&mut self.untold);
        Some(DiskError { disk: self.disk, extent, failure, untold })
    }

    /// Whether a flush is nothing, since a completed write is durable.
    pub fn is_write_through(&self) -> bool {
        self.facts.cache == Cache::None
    }

    /// Somebody waits for a flush.
    pub fn flush(&mut self, waiter: Waiter) -> Start {
        assert!(self.failed.is_none(), "a flush of disk {} after one that failed", self.disk.0);
        self.next.push(waiter);
        self.start()
    }

    fn start(&mut self) -> Start {
        if self.is_running || self.next.is_empty() {
            return Start::Nothing;
        }
        core::mem::swap(&mut self.running, &mut self.next);
        self.is_running = true;
        self.counters.flushes += 1;
        Start::Flush
    }

    /// The running flush is over. Returns those who waited for it, and whether the next is to be
    /// started; the list is to be given back by [`reuse`](Self::reuse).
    pub fn flushed(&mut self) -> (Vec<Waiter>, Start) {
        assert!(self.is_running, "disk {} answered a flush that was not asked", self.disk.0);
        self.is_running = false;
        let waiters = core::mem::take(&mut self.running);
        (waiters, self.start())
    }

    /// Keeps the memory of a list of waiters.
    pub fn reuse(&mut self, mut waiters: Vec<Waiter>) {
        waiters.clear();
        if self.running.capacity() == 0 {
            self.running = waiters;
        }
    }
}

/// Of a disk's errors a shard tells one in so long: whoever hears of them must not drown.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Whether something went wrong below, rather than that the request asked too much or was taken
/// back.
fn is_fault(failure: Failure) -> bool {
    !matches!(failure, Failure::OutOfRange | Failure::Unsupported | Failure::Aborted)
}

impl RequestCounters {
    /// Counts a request.
    #[inline]
    pub fn count(&mut self, changes_data: bool, bytes: u64) {
        if changes_data {
            self.writes += 1;
            self.write_bytes += bytes;
        } else {
            self.reads += 1;
            self.read_bytes += bytes;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use block::ByteCount;

    pub(crate) fn facts(cache: Cache) -> DiskFacts {
        DiskFacts { cache, ..DiskFacts::of_memory(ByteCount(1 << 30)) }
    }

    #[test]
    fn one_flush_runs_and_one_group_waits() {
        let mut gate = Gate::new(DiskId(3), facts(Cache::Volatile));
        let here = |slot| Waiter::Here(Ticket { slot, ..Ticket::default() });
        assert_eq!(gate.flush(here(1)), Start::Flush);
        assert_eq!(gate.flush(here(2)), Start::Nothing);
        assert_eq!(gate.flush(Waiter::Shard(ShardId(1))), Start::Nothing);
        let (waiters, start) = gate.flushed();
        assert_eq!((waiters, start), (vec![here(1)], Start::Flush));
        let (waiters, start) = gate.flushed();
        assert_eq!(waiters, [here(2), Waiter::Shard(ShardId(1))]);
        assert_eq!(start, Start::Nothing);
        assert_eq!(gate.counters.flushes, 2);
    }

    #[test]
    fn a_failure_takes_all_who_wait_and_the_running_flush_comes_back_to_nobody() {
        let mut gate = Gate::new(DiskId(3), facts(Cache::Volatile));
        let here = |slot| Waiter::Here(Ticket { slot, ..Ticket::default() });
        gate.flush(here(1));
        gate.flush(here(2));
        assert_eq!(gate.fail(Failure::MediumWrite), (true, vec![here(1), here(2)]));
        gate.renew(facts(Cache::Volatile));
        assert_eq!(gate.flush(here(3)), Start::Nothing, "the old one still runs, and covers less");
        assert_eq!(gate.flushed(), (Vec::new(), Start::Flush));
        assert_eq!(gate.flushed(), (vec![here(3)], Start::Nothing));
    }

    #[test]
    fn an_error_is_told_at_once_and_a_storm_once_a_second_with_its_count() {
        let mut gate = Gate::new(DiskId(3), facts(Cache::Volatile));
        let extent = Extent::new(4096, 512);
        let at = |ms| Instant(0) + Duration::from_millis(ms);
        let untold = |told: Option<DiskError>| told.map(|error| error.untold);
        let first = gate.error(at(0), extent, Failure::MediumRead);
        let expected =
            DiskError { disk: DiskId(3), extent, failure: Failure::MediumRead, untold: 0 };
        assert_eq!(first, Some(expected));
        for ms in 1..1000 {
            assert_eq!(gate.error(at(ms), extent, Failure::MediumRead), None);
        }
        assert_eq!(gate.error(at(1000), extent, Failure::OutOfRange), None, "nobody's fault below");
        assert_eq!(untold(gate.error(at(1000), extent, Failure::NoSpace)), Some(999));
        assert_eq!(gate.error(at(1001), extent, Failure::NoSpace), None);
        gate.renew(facts(Cache::Volatile));
        assert_eq!(untold(gate.error(at(1002), extent, Failure::NoSpace)), Some(1), "it is new");
    }

    #[test]
    fn a_protected_disk_takes_writes_again_only_when_renewed() {
        let mut gate = Gate::new(DiskId(0), facts(Cache::Volatile));
        assert_eq!(gate.fail(Failure::MediumWrite), (true, Vec::new()));
        assert_eq!(gate.fail(Failure::MediumWrite), (false, Vec::new()));
        assert_eq!(gate.protected(), Some(Failure::MediumWrite));
        gate.renew(facts(Cache::Volatile));
        assert_eq!(gate.protected(), None);
    }
}
