//! How long requests took: counts in buckets, a few to each power of two, in memory of fixed size.
//!
//! A time is the difference of two turns, since the shard reads its clock once a turn: what was
//! answered in the turn that asked took none. So recording one is a few instructions and no look at
//! a clock. Units: nanoseconds. Shards count by themselves; whoever asks adds them up.

/// Buckets to each power of two, as a power of two.
const STEPS_LOG2: u32 = 2;
/// The first bucket ends at 2^13 ns, about 8 us: turns are not much shorter.
const FIRST_LOG2: u32 = 13;
/// The last bucket but one ends at 2^36 ns, about 69 s: a disk is stuck after 60.
const LAST_LOG2: u32 = 36;
/// Buckets, the last without an end.
pub const BUCKETS: usize = 2 + ((LAST_LOG2 - FIRST_LOG2) << STEPS_LOG2) as usize;

/// What is told apart by how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Changes nothing: reads, compares, verifies.
    Read,
    /// Changes data.
    Write,
    Flush,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Read, Class::Write, Class::Flush];

    pub fn name(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Write => "write",
            Class::Flush => "flush",
        }
    }

    #[inline]
    pub(crate) fn changing(changes_data: bool) -> Class {
        if changes_data { Class::Write } else { Class::Read }
    }
}

/// How long requests of one class took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    /// Of all times.
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// Something took so long.
    #[inline]
    pub fn record(&mut self, time: u64) {
        self.counts[bucket(time)] += 1;
        self.sum += time;
    }

    /// Something was answered in the turn that asked.
    #[inline]
    pub fn record_at_once(&mut self) {
        self.counts[0] += 1;
    }

    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }

    /// All times added up.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Each bucket's last time, which the last bucket has none of, and how many took so long.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let last = BUCKETS - 1;
        let end = move |index| (index < last).then(|| end(index));
        self.counts.iter().enumerate().map(move |(index, count)| (end(index), *count))
    }
}

/// The bucket of a time. Its end belongs to a bucket, as the buckets of OpenMetrics have it.
#[inline]
fn bucket(time: u64) -> usize {
    let below = time.saturating_sub(1);
    if below >> FIRST_LOG2 == 0 {
        return 0;
    }
    let log2 = below.ilog2();
    let step = (below >> (log2 - STEPS_LOG2)) as usize & ((1 << STEPS_LOG2) - 1);
    let index = 1 + (((log2 - FIRST_LOG2) << STEPS_LOG2) as usize | step);
    index.min(BUCKETS - 1)
}

/// The last time of a bucket that has an end.
fn end(index: usize) -> u64 {
    let Some(place) = index.checked_sub(1) else { return 1 << FIRST_LOG2 };
    let log2 = FIRST_LOG2 + (place as u32 >> STEPS_LOG2);
    let step = place as u64 & ((1 << STEPS_LOG2) - 1);
    (1 << log2) + ((step + 1) << (log2 - STEPS_LOG2))
}

/// How long what a disk or a volume was asked took, by its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies([Histogram; Class::ALL.len()]);

impl Latencies {
    #[inline]
    pub fn of(&self, class: Class) -> &Histogram {
        &self.0[class as usize]
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, class: Class) -> &mut Histogram {
        &mut self.0[class as usize]
    }

    pub fn add(&mut self, other: &Latencies) {
        self.0.iter_mut().zip(&other.0).for_each(|(histogram, more)| histogram.add(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_bucket_that_ends_at_it_or_later() {
        let ends: Vec<Option<u64>> = Histogram::default().buckets().map(|(end, _)| end).collect();
        assert_eq!((ends[0], ends[1], ends[2]), (Some(8192), Some(10240), Some(12288)));
        assert_eq!((ends[BUCKETS - 2], ends[BUCKETS - 1]), (Some(1 << LAST_LOG2), None));
        assert!(ends[..BUCKETS - 1].is_sorted_by(|a, b| a < b));
        for time in ends.iter().flatten().flat_map(|end| [end - 1, *end, end + 1]) {
            let fits = |end: &Option<u64>| end.is_none_or(|end| time <= end);
            assert_eq!(Some(bucket(time)), ends.iter().position(fits), "{time}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn what_shards_recorded_adds_up() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.of_mut(Class::Write).record(10_000);
        other.of_mut(Class::Write).record(10_000);
        other.of_mut(Class::Write).record_at_once();
        other.of_mut(Class::Flush).record(u64::MAX / 2);
        one.add(&other);
        let write = one.of(Class::Write);
        assert_eq!((write.counts[0], write.counts[1], write.sum()), (1, 2, 20_000));
        assert_eq!(one.of(Class::Flush).counts[BUCKETS - 1], 1);
        assert_eq!(*one.of(Class::Read), Histogram::default());
    }
}
