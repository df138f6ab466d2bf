//! The intervals of a session: what it tells the peer of them, which are in force, and the Poll
//! Sequence by which it learns that the peer knows.
//!
//! ```text
//!             a change                 an answer with F
//!   Idle ------------------> Running --------------------> Idle
//! ```
//! A change is told at once and in force at once, with two exceptions while the session is Up: who
//! will send more rarely goes on as before, and who wants to be sent to more often waits as long as
//! before, until the peer has answered. A peer that does not know yet would take the first for
//! silence, and its own pace would be taken for silence in the second.
//!
//! An F does not say what it answers, and an interval may be shorter than the way there and back. So a
//! change while Up waits until answers to the one before no longer come: until that sequence has
//! ended, and a round trip has passed since its last question. Clause 6.8.3 allows that, and also to
//! begin as soon as a packet without F has come; but such a packet may have left between two answers
//! that are on their way, as the simulation showed. A change of state does not wait, since what it
//! brings needs no answer to be in force.
//! Units: microseconds; jitter in millionths. No errors. Spec: RFC 5880 clauses 6.5, 6.8.2, 6.8.3
//! and 6.8.7.

use core::time::Duration;

use block::{Instant, Random, planted};

use crate::limits::{JITTER_OF_ONE_PPM, JITTER_PPM, ROUND_TRIP_MAX};

/// Where a Poll Sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    Idle,
    Running {
        /// Whether a packet with P has left, so that one with F can be an answer.
        is_sent: bool,
    },
}

/// How often, at least, it would send, and how often the peer may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) desired_min_tx_us: u32,
    pub(crate) required_min_rx_us: u32,
}

#[derive(Debug)]
pub(crate) struct Intervals {
    told: Pair,
    in_force: Pair,
    poll: Poll,
    /// When the last packet with P left.
    asked_at: Option<Instant>,
}

impl Intervals {
    /// Those of a session that begins: the peer knows none, so there is no change to ask about.
    pub(crate) fn new(first: Pair) -> Self {
        Self { told: first, in_force: first, poll: Poll::Idle, asked_at: None }
    }

    /// What packets say.
    #[inline]
    pub(crate) fn told(&self) -> Pair {
        self.told
    }

    /// What it sends and waits by.
    #[inline]
    pub(crate) fn in_force(&self) -> Pair {
        self.in_force
    }

    /// Whether packets that are due have P.
    #[inline]
    pub(crate) fn is_polling(&self) -> bool {
        matches!(self.poll, Poll::Running { .. })
    }

    /// These are wanted now; `has_changed_state`: by another state than before.
    pub(crate) fn want(
        &mut self,
        now: Instant,
        wanted: Pair,
        is_up: bool,
        has_changed_state: bool,
    ) {
        if !is_up {
            self.in_force = wanted;
        }
        let is_settled = self.poll == Poll::Idle && self.settles_at().is_none_or(|at| at <= now);
        let waits = is_up && !has_changed_state && !is_settled;
        if wanted == self.told || (waits && !planted("changes-share-a-poll")) {
            return;
        }
        self.told = wanted;
        self.ask();
        let Pair { desired_min_tx_us, required_min_rx_us } = &mut self.in_force;
        if wanted.desired_min_tx_us < *desired_min_tx_us || planted("slows-before-the-answer") {
            *desired_min_tx_us = wanted.desired_min_tx_us;
        }
        let is_patient = wanted.required_min_rx_us > *required_min_rx_us;
        if is_patient || planted("hastens-before-the-answer") {
            *required_min_rx_us = wanted.required_min_rx_us;
        }
    }

    /// When other intervals than those that were told need no longer wait, if nothing comes.
    pub(crate) fn change_is_due(&self, wanted: Pair) -> Option<Instant> {
        let waits = wanted != self.told && self.poll == Poll::Idle;
        self.settles_at().filter(|_| waits)
    }

    /// When whatever was asked is answered or lost.
    fn settles_at(&self) -> Option<Instant> {
        self.asked_at.map(|at| at + ROUND_TRIP_MAX)
    }

    /// A Poll Sequence begins.
    pub(crate) fn ask(&mut self) {
        self.poll = Poll::Running { is_sent: false };
    }

    /// A packet that was due leaves; whether it has P.
    pub(crate) fn send(&mut self, now: Instant) -> bool {
        let Poll::Running { is_sent } = &mut self.poll else { return false };
        *is_sent = true;
        self.asked_at = Some(now);
        true
    }

    /// A packet came with F.
    pub(crate) fn handle_final(&mut self) {
        if self.poll == (Poll::Running { is_sent: true }) {
            self.in_force = self.told;
            self.poll = Poll::Idle;
        }
    }
}

/// By how much the interval before a packet is shortened, if `detect_mult` packets have to be missed.
pub(crate) fn draw_jitter_ppm(random: &mut Random, detect_mult: u8) -> u32 {
    let (least, most) = match detect_mult {
        1 if !planted("one-packet-is-not-hurried") => JITTER_OF_ONE_PPM,
        _ => JITTER_PPM,
    };
    least + random.below(u64::from(most - least) + 1) as u32
}

/// An interval that is shortened by so many millionths.
pub(crate) fn shortened(interval_us: u32, jitter_ppm: u32) -> Duration {
    // A millionth of a microsecond per part; what is left of a nanosecond is given away, so that
    // the interval is never longer than allowed and shorter by less than a nanosecond.
    Duration::from_nanos(u64::from(interval_us) * u64::from(1_000_000 - jitter_ppm) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(desired_min_tx_us: u32, required_min_rx_us: u32) -> Pair {
        Pair { desired_min_tx_us, required_min_rx_us }
    }

    const NOW: Instant = Instant(5_000_000_000);

    /// Wants another pair while it is Up.
    fn changed(from: Pair, to: Pair) -> Intervals {
        let mut intervals = Intervals::new(from);
        intervals.want(NOW, to, true, false);
        assert_eq!(intervals.told(), to);
        intervals
    }

    #[test]
    fn a_change_of_either_interval_begins_a_poll_sequence() {
        for to in [pair(2, 1), pair(1, 2), pair(2, 2)] {
            let mut intervals = changed(pair(1, 1), to);
            assert!(intervals.is_polling());
            assert!(intervals.send(NOW));
            intervals.handle_final();
            assert!(!intervals.is_polling() && !intervals.send(NOW));
        }
        assert!(!changed(pair(1, 1), pair(1, 1)).is_polling());
    }

    #[test]
    fn who_slows_down_while_up_waits_for_the_answer() {
        let mut intervals = changed(pair(50, 50), pair(90, 50));
        intervals.send(NOW);
        assert_eq!(intervals.in_force(), pair(50, 50));
        intervals.handle_final();
        assert_eq!(intervals.in_force(), pair(90, 50));
    }

    #[test]
    fn who_wants_more_often_while_up_waits_for_the_answer() {
        let mut intervals = changed(pair(50, 50), pair(50, 20));
        intervals.send(NOW);
        assert_eq!(intervals.in_force(), pair(50, 50));
        intervals.handle_final();
        assert_eq!(intervals.in_force(), pair(50, 20));
    }

    #[test]
    fn all_other_changes_are_in_force_at_once() {
        assert_eq!(changed(pair(50, 50), pair(20, 90)).in_force(), pair(20, 90));
        let mut intervals = Intervals::new(pair(50, 50));
        intervals.want(NOW, pair(90, 20), false, false);
        assert_eq!(intervals.in_force(), pair(90, 20));
    }

    #[test]
    fn what_waits_for_an_answer_no_longer_does_when_it_is_not_up() {
        let mut intervals = changed(pair(50, 50), pair(90, 20));
        intervals.want(NOW, pair(90, 20), false, true);
        assert_eq!(intervals.in_force(), pair(90, 20));
    }

    #[test]
    fn an_answer_before_the_question_is_none() {
        let mut intervals = changed(pair(50, 50), pair(90, 50));
        intervals.handle_final();
        assert!(intervals.is_polling());
        assert_eq!(intervals.in_force(), pair(50, 50));
    }

    #[test]
    fn a_change_waits_until_answers_to_the_one_before_no_longer_come() {
        let mut intervals = changed(pair(50, 50), pair(60, 50));
        let (wanted, settled) = (pair(90, 50), NOW + ROUND_TRIP_MAX);
        intervals.send(NOW);
        intervals.want(settled, wanted, true, false);
        assert_eq!((intervals.told(), intervals.change_is_due(wanted)), (pair(60, 50), None));
        intervals.handle_final();
        assert_eq!(intervals.change_is_due(wanted), Some(settled));
        assert_eq!(intervals.change_is_due(pair(60, 50)), None);
        intervals.want(Instant(settled.0 - 1), wanted, true, false);
        assert_eq!(intervals.told(), pair(60, 50));
        intervals.want(settled, wanted, true, false);
        assert_eq!((intervals.told(), intervals.in_force()), (wanted, pair(60, 50)));
    }

    #[test]
    fn a_change_of_state_does_not_wait() {
        for is_up in [false, true] {
            let mut intervals = changed(pair(50, 50), pair(60, 50));
            intervals.want(NOW, pair(10, 50), is_up, true);
            assert_eq!((intervals.told(), intervals.in_force()), (pair(10, 50), pair(10, 50)));
        }
    }

    #[test]
    fn jitter_shortens_by_up_to_a_quarter_and_for_a_multiplier_of_one_by_a_tenth_at_least() {
        let mut random = Random::new(1);
        for (mult, range) in [(1, 75_000..=90_000), (2, 75_000..=100_000), (255, 75_000..=100_000)]
        {
            let mut draw = || shortened(100, draw_jitter_ppm(&mut random, mult)).as_nanos();
            let drawn: Vec<_> = (0..10_000).map(|_| draw()).collect();
            let (least, most) = (*drawn.iter().min().unwrap(), *drawn.iter().max().unwrap());
            assert!(range.contains(&least) && range.contains(&most), "{mult}: {least} to {most}");
            assert!(
                least - range.start() < 50 && range.end() - most < 50,
                "{mult}: {least} to {most}"
            );
        }
    }
}
