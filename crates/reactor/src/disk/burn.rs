//! `burn:`: work that is known, to see whether whoever measures charges it to whom it belongs.
//!
//! In: requests, from any shard. Each takes its time of its thread's CPU, whoever else has that CPU meanwhile. What
//! one took too much, since the thread was interrupted or the machine below stood still just at its end, those
//! behind it take less: of many each costs what it is to cost. Units: nanoseconds of CPU. Errors: none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What a request burns.
#[derive(Debug)]
pub(super) struct Burn {
    time: u64,
    /// What was burnt too much so far.
    over: AtomicU64,
}

impl Burn {
    pub(super) fn new(time: Duration) -> Burn {
        Burn { time: time.as_nanos() as u64, over: AtomicU64::new(0) }
    }

    /// A request.
    pub(super) fn burn(&self) {
        self.burn_by(thread_time);
    }

    /// The same by a clock that only work makes go on.
    fn burn_by(&self, mut clock: impl FnMut() -> u64) {
        let over = self.over.swap(0, Relaxed);
        let Some(left) = self.time.checked_sub(over) else {
            self.over.fetch_add(over - self.time, Relaxed);
            return;
        };
        let end = clock() + left;
        let mut now = end - left;
        while now < end {
            std::hint::spin_loop();
            now = clock();
        }
        self.over.fetch_add(now - end, Relaxed);
    }
}

/// CPU time of this thread so far.
pub(super) fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_requests_each_costs_what_it_is_to_cost() {
        let burn = Burn::new(Duration::from_micros(20));
        let (mut now, mut reads) = (0u64, 0u64);
        for _ in 0..10_000 {
            burn.burn_by(|| {
                reads += 1;
                // Now and then it stands still, once for longer than many requests take.
                now += match reads {
                    7_000 => 900_000,
                    _ if reads % 97 == 0 => 42_000,
                    _ => 300,
                };
                now
            });
        }
        // The clock is read at a request's begin, too, which costs 300 ns each time and is no part of it.
        let over = burn.over.load(Relaxed);
        let least = 10_000 * 20_000 + over;
        assert!(now >= least && now <= least + 10_000 * 1_000, "{now} {over}");
        assert!(over < 100_000, "{over}: what was too much is made up for");
    }
}
