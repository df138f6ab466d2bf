//! The schedule of an open loop: when a job's next request is due, whatever became of those before.
//!
//! Units: nanoseconds of the shard clock. Errors: none.

use block::{Instant, Random};

use super::{Arrivals, Plan};

/// When a job's next request of an open loop is due.
#[derive(Debug)]
pub(super) struct Due {
    /// Its place in the schedule, which all jobs share, where arrivals are fixed.
    index: u64,
    /// Nanoseconds since the load began, where they are not: a job has a schedule of its own, and all
    /// of them together are one of the whole rate.
    drawn_ns: f64,
    random: Random,
}

impl Due {
    pub(super) fn new(plan: &Plan, number: u32, seed: u64) -> Due {
        // Of neighbouring seeds, and unlike the stream's.
        let random = Random::new(!seed);
        let mut due = Due { index: number.into(), drawn_ns: 0.0, random };
        due.draw(plan);
        due
    }

    /// The moment, for a load that began then and has a rate.
    #[inline]
    pub(super) fn at(&self, plan: &Plan, began: Instant, rate: u64) -> Instant {
        let ns = match plan.arrivals {
            Arrivals::Fixed => self.index as f64 * (1e9 / rate as f64),
            Arrivals::Poisson => self.drawn_ns,
        };
        Instant(began.0 + ns as u64)
    }

    /// Goes on to the request after that.
    #[inline]
    pub(super) fn advance(&mut self, plan: &Plan) {
        // Jobs take the places of the common schedule in turn.
        self.index += u64::from(plan.jobs);
        self.draw(plan);
    }

    #[inline]
    fn draw(&mut self, plan: &Plan) {
        if let (Some(rate), Arrivals::Poisson) = (plan.rate, plan.arrivals) {
            // 53 bits, and never 0.
            let uniform = ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            self.drawn_ns -= uniform.ln() * f64::from(plan.jobs) * 1e9 / rate as f64;
        }
    }
}
