//! A log-linear histogram of latencies: 32 steps to each power of two, so within 3.2%.
//!
//! Units: nanoseconds. Recording is a shift and an addition; values above 2^40 ns count as that.

/// Steps to a power of two, as a power of two.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
const TOP: u64 = (1 << 40) - 1;

/// Counts of latencies.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Nothing recorded.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; index(TOP) + 1], total: 0 }
    }

    /// Counts one latency.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[index(ns.min(TOP))] += 1;
        self.total += 1;
    }

    /// The latency below or at which the fraction `of` of all lie; the upper edge of its step.
    pub(crate) fn quantile(&self, of: f64) -> u64 {
        let wanted = ((self.total as f64 * of).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(at);
            }
        }
        0
    }
}

/// The step a value lies in: values below `STEPS` have one each.
#[inline]
fn index(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - STEP_BITS;
    (shift as usize + 1) * STEPS + ((ns >> shift) as usize - STEPS)
}

/// The highest value of a step.
fn upper(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let shift = index / STEPS - 1;
    (((index % STEPS + STEPS + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_below_its_upper_edge_and_within_a_step() {
        for ns in (0..100_000).chain([1 << 20, (1 << 30) + 12345, TOP]) {
            let edge = upper(index(ns));
            assert!(edge >= ns, "{ns} above its edge {edge}");
            assert!((edge - ns) as f64 <= ns as f64 / 31.0, "{ns} far from {edge}");
        }
    }

    #[test]
    fn quantiles_follow_the_counts() {
        let mut histogram = Histogram::new();
        for ns in 1..=1000 {
            histogram.record(ns);
        }
        assert!((500..=516).contains(&histogram.quantile(0.5)));
        assert!((990..=1023).contains(&histogram.quantile(0.99)));
        assert_eq!(Histogram::new().quantile(0.5), 0);
    }
}
