//! When the operations of an open loop are due: at fixed times, whatever the target does.
//!
//! Pure: time comes in as nanoseconds since the run's start. Operation `n` is due `n / rate` seconds
//! after the first, computed from `n`, so that no error of rounding adds up. What could not be sent
//! when it was due (no command slot was free) stays due at its time, and its latency counts from
//! then: a target that stops for a while is not spared the operations that it missed.

const SECOND: u128 = 1_000_000_000;

/// The times of an open loop.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    rate: u32,
    first: u64,
    sent: u64,
}

impl Pace {
    /// `rate` operations a second, at least one, the first of them at `first`.
    pub(crate) fn new(rate: u32, first: u64) -> Self {
        Self { rate: rate.max(1), first, sent: 0 }
    }

    /// When the next operation is due.
    pub(crate) fn next(&self) -> u64 {
        let after = u128::from(self.sent) * SECOND / u128::from(self.rate);
        self.first + after as u64
    }

    /// The time of the next operation, if it has come.
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        let next = self.next();
        (next <= now).then_some(next)
    }

    /// It has been sent.
    pub(crate) fn advance(&mut self) {
        self.sent += 1;
    }

    /// So many have been sent.
    pub(crate) fn advance_by(&mut self, count: u64) {
        self.sent += count;
    }

    /// How many have been sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// How many operations are due and not sent.
    pub(crate) fn behind(&self, now: u64) -> u64 {
        let Some(since) = now.checked_sub(self.first) else { return 0 };
        let due = u128::from(since) * u128::from(self.rate) / SECOND + 1;
        (due as u64).saturating_sub(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_due(pace: &mut Pace, now: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(time) = pace.due(now) {
            times.push(time);
            pace.advance();
        }
        times
    }

    #[test]
    fn an_operation_is_due_at_its_time_and_not_before() {
        let mut pace = Pace::new(1000, 5_000);
        assert_eq!(pace.due(4_999), None);
        assert_eq!(all_due(&mut pace, 5_000), [5_000]);
        assert_eq!(pace.due(1_004_999), None);
        assert_eq!(pace.next(), 1_005_000);
    }

    #[test]
    fn what_was_missed_keeps_its_own_times() {
        let mut pace = Pace::new(1000, 0);
        assert_eq!(pace.behind(3_500_000), 4);
        assert_eq!(all_due(&mut pace, 3_500_000), [0, 1_000_000, 2_000_000, 3_000_000]);
        assert_eq!((pace.behind(3_500_000), pace.next()), (0, 4_000_000));
    }

    #[test]
    fn a_rate_that_divides_no_second_does_not_drift() {
        let mut pace = Pace::new(3, 0);
        assert_eq!(all_due(&mut pace, 1_000_000_000), [0, 333_333_333, 666_666_666, 1_000_000_000]);
        pace.sent = 3 * 86_400;
        assert_eq!(pace.next(), 86_400_000_000_000);
    }
}
