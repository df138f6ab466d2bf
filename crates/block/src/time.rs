//! The shard clock: nanoseconds since an origin that the driver chose. Pure code never reads a
//! clock; the present comes as an argument.

use core::ops::Add;
use core::time::Duration;

/// A moment on the shard clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Instant = Instant(0);

    /// The time since `earlier`, or zero when that lies ahead.
    #[inline]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The first moment from this one on that is a multiple of `step`, which is not zero: what is due
    /// at such moments is due together.
    pub fn round_up(self, step: Duration) -> Instant {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.checked_next_multiple_of(step).unwrap_or(u64::MAX))
    }

    /// The earlier one of two moments that may not come.
    #[inline]
    pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rounded_up_falls_together_and_never_before() {
        let step = Duration::from_secs(5);
        let up = |nanos| Instant(nanos).round_up(step).0;
        assert_eq!([up(0), up(1), up(5_000_000_000)], [0, 5_000_000_000, 5_000_000_000]);
        assert_eq!(up(5_000_000_001), 10_000_000_000);
        assert_eq!(up(u64::MAX), u64::MAX);
    }
}
