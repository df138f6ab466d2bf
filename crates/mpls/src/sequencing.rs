//! Sequence numbers of one direction of a pseudowire: what a sender puts into control words, and
//! which frames a receiver lets through.
//!
//! A receiver that drops lets a frame through if it is the expected one or ahead of it, and drops it
//! if it is late: behind one that was let through, or that one again. It knows a frame by 65,535
//! numbers, so one that is later than 32,767 frames counts as ahead. A receiver that begins takes
//! the first number that comes for the expected one, and one whose sender began anew follows it
//! after [`RESYNC_FRAMES`] late frames in a row of which each is the next of the one before; the
//! last of these is dropped as well.
//! No errors. Spec: RFC 4385 clauses 4.1 and 4.2; beginning with any number and following are ours.

use block::planted;
use contract::counters;
use wire::sequence::{Arrival, PseudowireSequence};

use crate::limits::RESYNC_FRAMES;

/// What is done with sequence numbers, at both ends of a pseudowire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sequencing {
    /// Frames are sent without a number, and numbers that come are ignored.
    Off,
    /// Frames are numbered, and those that come late are dropped.
    #[default]
    Drop,
}

counters! {
    /// What a receiver saw of sequence numbers.
    pub struct SequenceCounters {
        /// Frames that had not come when one behind them did: lost, or late then.
        missing: Frames,
        /// Frames without a number, which were let through.
        unsequenced: Frames,
        /// Times that the sender had begun anew.
        resynced: Events,
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    next: PseudowireSequence,
}

impl Sender {
    pub(crate) const fn new() -> Self {
        Self { next: PseudowireSequence::FIRST }
    }

    /// The number of the next frame.
    #[inline]
    pub(crate) fn number(&self, sequencing: Sequencing) -> PseudowireSequence {
        match sequencing {
            Sequencing::Off => PseudowireSequence::UNSEQUENCED,
            Sequencing::Drop => self.next,
        }
    }

    /// The frame with that number has left.
    #[inline]
    pub(crate) fn sent(&mut self, number: PseudowireSequence) {
        if number != PseudowireSequence::UNSEQUENCED {
            self.next = number.next();
        }
    }
}

/// The receiving end.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// `None`: whatever comes first.
    expected: Option<PseudowireSequence>,
    /// Late frames in a row of which each is the next of the one before, ...
    late: u32,
    /// ... and the number of the one that would be the next.
    late_next: PseudowireSequence,
    pub(crate) counters: SequenceCounters,
}

impl Receiver {
    /// Whatever comes next is the expected one.
    pub(crate) fn begin_anew(&mut self) {
        (self.expected, self.late) = (None, 0);
    }

    /// Whether a frame with this number is let through.
    #[inline]
    pub(crate) fn take(&mut self, number: PseudowireSequence) -> bool {
        match number.arrival(self.expected.unwrap_or(number)) {
            Arrival::Unsequenced => {
                self.counters.unsequenced += 1;
                return true;
            }
            Arrival::InOrder => {}
            Arrival::Ahead(missing) => self.counters.missing += u64::from(missing),
            Arrival::Late if planted("late-frames-are-delivered") => return true,
            Arrival::Late => {
                self.follow(number);
                return false;
            }
        }
        self.expected = Some(number.next());
        self.late = 0;
        true
    }

    /// A late frame: its sender may have begun anew.
    #[cold]
    fn follow(&mut self, number: PseudowireSequence) {
        let is_next = number == self.late_next || planted("late-frames-need-no-order");
        self.late = if is_next { self.late + 1 } else { 1 };
        self.late_next = number.next();
        if self.late == RESYNC_FRAMES {
            self.expected = Some(self.late_next);
            self.late = 0;
            self.counters.resynced += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(receiver: &mut Receiver, numbers: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let passes = |number: &u16| receiver.take(PseudowireSequence(*number));
        numbers.into_iter().filter(passes).collect()
    }

    #[test]
    fn numbers_begin_at_1_and_1_follows_65535() {
        let mut sender = Sender::new();
        for number in (1..=65_535).chain([1, 2]) {
            assert_eq!(sender.number(Sequencing::Off).0, 0);
            // A frame that does not leave takes no number.
            assert_eq!(sender.number(Sequencing::Drop).0, number);
            sender.sent(sender.number(Sequencing::Drop));
            sender.sent(PseudowireSequence::UNSEQUENCED);
        }
    }

    #[test]
    fn what_is_late_or_comes_again_is_dropped() {
        let mut receiver = Receiver::default();
        assert_eq!(take(&mut receiver, [1, 2, 2, 4, 3, 1, 4, 5]), [1, 2, 4, 5]);
        assert_eq!(receiver.counters, SequenceCounters { missing: 1, ..Default::default() });
    }

    #[test]
    fn the_window_ends_32767_ahead() {
        for (number, passes) in [(7 + 32_767, true), (7 + 32_768, false), (6, false)] {
            let mut receiver = Receiver::default();
            assert_eq!(take(&mut receiver, [6]), [6]);
            assert_eq!(receiver.take(PseudowireSequence(number)), passes, "{number}");
        }
        let mut receiver = Receiver::default();
        assert_eq!(take(&mut receiver, [65_535, 1, 65_534, 65_535, 2]), [65_535, 1, 2]);
    }

    #[test]
    fn what_has_no_number_passes_and_changes_nothing() {
        let mut receiver = Receiver::default();
        assert_eq!(take(&mut receiver, [0, 9, 0, 8, 0, 10]), [0, 9, 0, 0, 10]);
        assert_eq!(receiver.counters, SequenceCounters { unsequenced: 3, ..Default::default() });
    }

    #[test]
    fn a_receiver_that_begins_takes_any_number() {
        for first in [1, 2, 40_000, 65_535] {
            assert_eq!(take(&mut Receiver::default(), [first, first]), [first]);
        }
    }

    #[test]
    fn a_sender_that_began_anew_is_followed_after_64_frames() {
        let mut receiver = Receiver::default();
        assert_eq!(take(&mut receiver, [1000]), [1000]);
        assert_eq!(take(&mut receiver, 1..=66), [65, 66]);
        assert_eq!(receiver.counters, SequenceCounters { resynced: 1, ..Default::default() });
        assert_eq!(take(&mut receiver, [64, 1, 67]), [67]);
    }

    #[test]
    fn late_frames_that_do_not_ascend_by_one_are_not_followed() {
        let mut receiver = Receiver::default();
        assert_eq!(take(&mut receiver, [1000]), [1000]);
        for _ in 0..10 {
            assert_eq!(take(&mut receiver, (1..=63).chain([63])), [0; 0]);
        }
        assert_eq!(take(&mut receiver, (1..=256).step_by(2)), [0; 0]);
        assert_eq!(take(&mut receiver, (1..=63).chain([1001]).chain(64..=126)), [1001]);
        assert_eq!(receiver.counters.resynced, 0);
    }

    #[test]
    fn followed_numbers_may_wrap() {
        let mut receiver = Receiver::default();
        assert_eq!(take(&mut receiver, [100]), [100]);
        assert_eq!(take(&mut receiver, (65_500..=65_535).chain(1..=29)), [29]);
    }
}
