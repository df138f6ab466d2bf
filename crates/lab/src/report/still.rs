//! Whether the machine below let a measurement run.
//!
//! Units: shares of the time in which threads looked for answers; microseconds. Errors: none.

use serde::Serialize;

/// Where CPUs stood still for a larger share of the time than is behind the 99th percentile, that may be the
/// machine's.
pub const STILL_MAX: f64 = 0.01;

/// CPUs that stood still under threads that looked for answers: none came, and no other thread had the CPU.
/// A machine below does that to a virtual one, and need not count it as taken.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StoodStill {
    /// How much of the time in which they looked.
    pub share: f64,
    /// How long at once, on average: such of less than 20 us are not counted.
    pub mean_us: f64,
}

impl StoodStill {
    /// What to know of latencies where it was more than what is behind the 99th percentile.
    pub fn note(self) -> Option<String> {
        let StoodStill { share, mean_us } = self;
        (share > STILL_MAX).then(|| {
            format!(
                "the machine's CPUs stood still for {:.1}% of the time, {mean_us:.0} us at once: the slowest answers may be its own",
                share * 100.0
            )
        })
    }
}
