//! The instrument `delay:US,URI`: every answer comes a fixed time later than the disk gave it. What
//! is asked is carried out at once; the driver holds the answer back with its own timer. It stands
//! for a slower medium, and shows what queue depth hides.

use std::time::Duration;

/// A delay.
#[derive(Debug)]
pub(super) struct Delay {
    time: Duration,
}

impl Delay {
    pub(super) fn new(time: Duration) -> Delay {
        Delay { time }
    }

    /// By how much an answer is held back.
    pub(super) fn time(&self) -> Duration {
        self.time
    }
}
