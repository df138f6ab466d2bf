//! How often lines of one kind are written: some at once, then one now and then, and what was left
//! out is counted in the next that is written.

use std::time::{Duration, Instant};

/// What may be written of one kind of news.
#[derive(Debug)]
pub(super) struct Allowance {
    burst: u32,
    every: Duration,
    left: u32,
    refilled: Instant,
    left_out: u64,
}

impl Allowance {
    /// `burst` lines at once, and one more for each `every` that passes.
    pub(super) fn new(burst: u32, every: Duration, now: Instant) -> Allowance {
        Allowance { burst, every, left: burst, refilled: now, left_out: 0 }
    }

    /// So many like the next that is written are left out before it.
    pub(super) fn leave_out(&mut self, count: u64) {
        self.left_out += count;
    }

    /// The line with what was left out before it, unless it is left out itself.
    pub(super) fn take(&mut self, now: Instant, line: String) -> Option<String> {
        while self.left < self.burst && now >= self.refilled + self.every {
            self.left += 1;
            self.refilled += self.every;
        }
        if self.left == self.burst {
            self.refilled = now;
        }
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        Some(match std::mem::take(&mut self.left_out) {
            0 => line,
            count => format!("{line} ({count} more like it were not shown)"),
        })
    }
}
