//! Sequence numbers of one direction of a tunnel: what a sender puts into its headers, and which
//! frames a receiver lets through.
//!
//! A receiver that drops lets a frame through if it is the expected one or ahead of it, and drops it
//! if it is late: behind one that was let through, or that one again. One that reorders lets a frame
//! that is ahead wait until those before it have come or are given up ([`crate::reorder`]). A
//! pseudowire's receiver knows a frame by 65,535 numbers, so one that is later than 32,767 frames
//! counts as ahead. A receiver that begins takes the first number that comes for the expected one,
//! and one whose sender began anew follows it after [`RESYNC_FRAMES`] late frames in a row of which
//! each is the next of the one before, and which came over [`RESYNC_TIME`], or fewer over longer; the
//! last of these is dropped as well.
//! No errors. Spec: RFC 4385 clauses 4.1 and 4.2, RFC 3931 clause 4.6.1, RFC 2890 clause 2.2;
//! beginning with any number and following are ours.

use block::{Instant, planted};
use contract::counters;
use wire::sequence::{Arrival, Numbers};

use crate::limits::{
    RESYNC_FRAMES, RESYNC_FRAMES_DOUBTED, RESYNC_FRAMES_FEW, RESYNC_TIME, RESYNC_TIME_FEW,
};
use crate::reorder::Waiting;

/// What is done with sequence numbers, at both ends of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sequencing {
    /// Frames are sent without a number, and numbers that come are ignored.
    Off,
    /// Frames are numbered, and those that come late are dropped.
    #[default]
    Drop,
    /// The same, and those that come early wait for those before them.
    Reorder,
}

counters! {
    /// What a receiver saw of sequence numbers.
    pub struct SequenceCounters {
        /// Frames that had not come when one behind them was let through: lost, or late then.
        missing: Frames,
        /// Frames without a number, which were let through.
        unsequenced: Frames,
        /// Times that the sender had begun anew.
        resynced: Events,
        /// Frames that came early and waited for others.
        reordered: Frames,
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    numbers: Numbers,
    next: u32,
}

impl Sender {
    pub(crate) const fn new(numbers: Numbers) -> Self {
        Self { numbers, next: numbers.first() }
    }

    /// The number of the next frame.
    #[inline]
    pub(crate) fn number(&self, sequencing: Sequencing) -> Option<u32> {
        (sequencing != Sequencing::Off).then_some(self.next)
    }

    /// The frame with that number has left.
    #[inline]
    pub(crate) fn sent(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.next = self.numbers.next(number);
        }
    }
}

/// What becomes of a frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is let through.
    Passes,
    /// It was copied, and is let through later.
    Waits,
    IsLate,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    numbers: Numbers,
    /// `None`: whatever comes first.
    expected: Option<u32>,
    /// Late frames in a row of which each is the next of the one before, since when they come, ...
    late: u32,
    late_since: Instant,
    /// ... the number of the one that would be the next, and how many they have to be.
    late_next: u32,
    late_needed: u32,
    /// Frames that came early, where they are put in order.
    waiting: Waiting,
    pub(crate) counters: SequenceCounters,
}

impl Receiver {
    pub(crate) fn new(numbers: Numbers) -> Self {
        let counters = SequenceCounters::default();
        Self {
            numbers,
            expected: None,
            late: 0,
            late_since: Instant::ZERO,
            late_next: numbers.first(),
            late_needed: RESYNC_FRAMES,
            waiting: Waiting::default(),
            counters,
        }
    }

    /// Whatever comes next is the expected one, of these numbers.
    pub(crate) fn begin_anew(&mut self, numbers: Numbers) {
        self.waiting.end();
        (self.numbers, self.expected, self.late) = (numbers, None, 0);
    }

    /// The sender may be another one than before: if what comes next is late, fewer of them show it.
    pub(crate) fn doubt(&mut self) {
        self.late_needed = RESYNC_FRAMES_DOUBTED;
    }

    /// As [`begin_anew`](Self::begin_anew), and frames that wait are nobody's: they were for another
    /// circuit. Returns how many.
    pub(crate) fn begin_for_another(&mut self, numbers: Numbers) -> u64 {
        self.begin_anew(numbers);
        self.waiting.forget()
    }

    /// How a frame with this number comes.
    #[inline]
    fn arrival(&self, number: Option<u32>) -> Arrival {
        self.numbers.arrival(number, self.expected.or(number).unwrap_or_default())
    }

    /// What becomes of a frame with this number.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        sequencing: Sequencing,
        number: Option<u32>,
        frame: &[u8],
    ) -> Taken {
        if sequencing == Sequencing::Reorder
            && let (Arrival::Ahead(_), Some(number)) = (self.arrival(number), number)
        {
            return self.wait(now, number, frame);
        }
        match sequencing == Sequencing::Off || self.take(now, number) {
            true => Taken::Passes,
            false => Taken::IsLate,
        }
    }

    /// A frame is ahead of the expected one, and waits for those before it.
    #[cold]
    fn wait(&mut self, now: Instant, number: u32, frame: &[u8]) -> Taken {
        let expected = self.expected.expect("it is ahead of something");
        match self.waiting.put(now, (self.numbers, expected), number, frame) {
            true => {
                self.counters.reordered += 1;
                // Frames that come early are no row of late ones.
                self.late = 0;
                Taken::Waits
            }
            false => Taken::IsLate,
        }
    }

    /// The next frame that has waited long enough.
    pub(crate) fn take_early(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (number, frame) = self.waiting.take(now, self.expected)?;
        if let Some(number) = number {
            self.take(now, Some(number));
        }
        Some(frame)
    }

    /// Frames that wait.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Whether a frame with this number is let through.
    #[inline]
    fn take(&mut self, now: Instant, number: Option<u32>) -> bool {
        match self.arrival(number) {
            Arrival::Unsequenced => self.counters.unsequenced += 1,
            Arrival::Late if planted("late-frames-are-delivered") => return true,
            Arrival::Late => {
                number.inspect(|number| self.follow(now, *number));
                return false;
            }
            Arrival::InOrder => self.pass(number, 0),
            Arrival::Ahead(missing) => self.pass(number, missing),
        }
        true
    }

    /// A frame with a number is let through, before which so many others have not come.
    #[inline]
    fn pass(&mut self, number: Option<u32>, missing: u32) {
        self.counters.missing += u64::from(missing);
        self.expected = number.map(|number| self.numbers.next(number));
        (self.late, self.late_needed) = (0, RESYNC_FRAMES);
    }

    /// A late frame: its sender may have begun anew.
    #[cold]
    fn follow(&mut self, now: Instant, number: u32) {
        let is_next = number == self.late_next || planted("late-frames-need-no-order");
        if self.late == 0 || !is_next {
            (self.late, self.late_since) = (0, now);
        }
        self.late = self.late.saturating_add(1);
        self.late_next = self.numbers.next(number);
        let lasted = now.since(self.late_since);
        let is_over = lasted >= RESYNC_TIME || planted("late-bursts-are-followed");
        let are_few = self.late >= RESYNC_FRAMES_FEW && lasted >= RESYNC_TIME_FEW;
        if self.late >= self.late_needed && is_over || are_few {
            self.expected = Some(self.late_next);
            (self.late, self.late_needed) = (0, RESYNC_FRAMES);
            self.counters.resynced += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// So often frames come: 64 in more than a second.
    const GAP: Duration = Duration::from_millis(20);

    /// Those that are let through; 0 is none.
    fn take(receiver: &mut Receiver, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
        take_each(receiver, GAP, numbers)
    }

    fn take_each(
        receiver: &mut Receiver,
        gap: Duration,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Vec<u32> {
        let mut now = Instant(1);
        let passes = |number: &u32| {
            now = now + gap;
            receiver.take(now, (*number != 0).then_some(*number))
        };
        numbers.into_iter().filter(passes).collect()
    }

    fn new() -> Receiver {
        Receiver::new(Numbers::PSEUDOWIRE)
    }

    #[test]
    fn a_frame_that_does_not_leave_takes_no_number() {
        let mut sender = Sender::new(Numbers::PSEUDOWIRE);
        for number in (1..=65_535).chain([1, 2]) {
            assert_eq!(sender.number(Sequencing::Off), None);
            for sequencing in [Sequencing::Drop, Sequencing::Reorder] {
                assert_eq!(sender.number(sequencing), Some(number));
            }
            sender.sent(sender.number(Sequencing::Drop));
            sender.sent(None);
        }
        assert_eq!(Sender::new(Numbers::GRE).number(Sequencing::Drop), Some(0));
    }

    #[test]
    fn what_is_late_or_comes_again_is_dropped() {
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [1, 2, 2, 4, 3, 1, 4, 5]), [1, 2, 4, 5]);
        assert_eq!(receiver.counters, SequenceCounters { missing: 1, ..Default::default() });
    }

    #[test]
    fn the_window_ends_32767_ahead() {
        for (number, passes) in [(7 + 32_767, true), (7 + 32_768, false), (6, false)] {
            let mut receiver = new();
            assert_eq!(take(&mut receiver, [6]), [6]);
            assert_eq!(receiver.take(Instant(1), Some(number)), passes, "{number}");
        }
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [65_535, 1, 65_534, 65_535, 2]), [65_535, 1, 2]);
    }

    #[test]
    fn what_has_no_number_passes_and_changes_nothing() {
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [0, 9, 0, 8, 0, 10]), [0, 9, 0, 0, 10]);
        assert_eq!(receiver.counters, SequenceCounters { unsequenced: 3, ..Default::default() });
    }

    #[test]
    fn a_receiver_that_begins_takes_any_number() {
        for first in [1, 2, 40_000, 65_535] {
            assert_eq!(take(&mut new(), [first, first]), [first]);
        }
    }

    #[test]
    fn a_sender_that_began_anew_is_followed_after_64_frames() {
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [1000]), [1000]);
        assert_eq!(take(&mut receiver, 1..=66), [65, 66]);
        assert_eq!(receiver.counters, SequenceCounters { resynced: 1, ..Default::default() });
        assert_eq!(take(&mut receiver, [64, 1, 67]), [67]);
    }

    #[test]
    fn late_frames_that_come_at_once_are_not_followed_however_many_they_are() {
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [2000]), [2000]);
        assert_eq!(take_each(&mut receiver, Duration::from_micros(600), 1..=1500), [0; 0]);
        assert_eq!(receiver.counters.resynced, 0);
    }

    #[test]
    fn a_sender_of_little_that_began_anew_is_followed_after_eight_of_three_seconds() {
        let half = Duration::from_millis(500);
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [1000]), [1000]);
        assert_eq!(take_each(&mut receiver, half, 1..=10), [9, 10]);
        assert_eq!(receiver.counters, SequenceCounters { resynced: 1, ..Default::default() });
        // Fewer, faster, or with something else in between show nothing.
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [1000]), [1000]);
        assert_eq!(take_each(&mut receiver, half, 1..=7), [0; 0]);
        assert_eq!(take_each(&mut receiver, Duration::from_millis(400), 21..=28), [0; 0]);
        let between = [1, 2, 3, 4, 1001, 5, 6, 7, 8, 9, 11, 12, 13, 1002];
        assert_eq!(take_each(&mut receiver, half, between), [1001, 1002]);
        assert_eq!(receiver.counters.resynced, 0);
    }

    #[test]
    fn one_that_is_in_doubt_is_followed_sooner_unless_it_fits() {
        let second = Duration::from_secs(1);
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [2000]), [2000]);
        receiver.doubt();
        assert_eq!(take_each(&mut receiver, Duration::from_millis(1), 1..=20), [0; 0]);
        assert_eq!(take_each(&mut receiver, second, 31..=36), [35, 36]);
        assert_eq!(receiver.counters.resynced, 1);
        // Then it is as any other, and so is one whose frames go on from what was there.
        assert_eq!(take_each(&mut receiver, second, 1..=7), [0; 0]);
        receiver.doubt();
        assert_eq!(take_each(&mut receiver, second, [37].into_iter().chain(1..=7)), [37]);
    }

    #[test]
    fn late_frames_that_do_not_ascend_by_one_are_not_followed() {
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [1000]), [1000]);
        for _ in 0..10 {
            assert_eq!(take(&mut receiver, (1..=63).chain([63])), [0; 0]);
        }
        assert_eq!(take(&mut receiver, (1..=256).step_by(2)), [0; 0]);
        assert_eq!(take(&mut receiver, (1..=63).chain([1001]).chain(64..=126)), [1001]);
        assert_eq!(receiver.counters.resynced, 0);
    }

    /// What comes out, by number, of frames that come at these microseconds.
    fn in_order(receiver: &mut Receiver, came: &[(u64, u32)]) -> Vec<u32> {
        let mut out = Vec::new();
        for &(at, number) in came {
            let now = Instant(at * 1_000);
            let drain = |receiver: &mut Receiver, out: &mut Vec<u32>| {
                let early = core::iter::from_fn(|| receiver.take_early(now));
                out.extend(early.map(|frame| u32::from_be_bytes(frame.try_into().unwrap())));
            };
            drain(receiver, &mut out);
            let number_in = (number != 0).then_some(number);
            let frame = number.to_be_bytes();
            match receiver.receive(now, Sequencing::Reorder, number_in, &frame) {
                Taken::Passes => out.push(number),
                Taken::Waits | Taken::IsLate => {}
            }
            drain(receiver, &mut out);
        }
        out
    }

    #[test]
    fn early_frames_wait_for_those_before_them() {
        let mut receiver = new();
        let came = [1, 4, 3, 3, 4, 2, 5, 2, 7, 0, 6, 8].map(|number| (10, number));
        assert_eq!(in_order(&mut receiver, &came), [1, 2, 3, 4, 5, 0, 6, 7, 8]);
        let seen = SequenceCounters { reordered: 3, unsequenced: 1, ..Default::default() };
        assert_eq!(receiver.counters, seen);
        assert_eq!(receiver.waiting().poll_timeout(), None);
        // Around the end of all numbers.
        let came = [65_534, 2, 1, 65_535, 3].map(|number| (10, number));
        assert_eq!(in_order(&mut new(), &came), [65_534, 65_535, 1, 2, 3]);
    }

    #[test]
    fn what_has_waited_for_a_millisecond_waits_no_longer() {
        let mut receiver = new();
        assert_eq!(in_order(&mut receiver, &[(0, 1), (10, 3), (500, 6), (1009, 9)]), [1]);
        assert_eq!(receiver.waiting().poll_timeout(), Some(Instant(1_010_000)));
        // 2 is given up, and 4 and 5 with it once 6 has waited.
        assert_eq!(in_order(&mut receiver, &[(1010, 3)]), [3]);
        assert_eq!(in_order(&mut receiver, &[(1499, 5), (1500, 2), (1501, 4)]), [5, 6]);
        let seen = SequenceCounters { reordered: 4, missing: 2, ..Default::default() };
        assert_eq!(receiver.counters, seen);
        // One that waited longer than those before it lets them go as well.
        let mut receiver = new();
        assert_eq!(in_order(&mut receiver, &[(0, 1), (10, 9), (900, 5), (1010, 7)]), [1, 5, 9]);
    }

    #[test]
    fn early_frames_are_no_row_of_late_ones() {
        let mut receiver = new();
        let late =
            |from: u32, to: u32| (from..=to).map(|number| (20_000 * u64::from(number), number));
        let came: Vec<_> = [(5, 1000)].into_iter().chain(late(1, 63)).collect();
        assert_eq!(in_order(&mut receiver, &came), [1000]);
        assert_eq!(in_order(&mut receiver, &[(1_279_500, 1002), (1_280_000, 64)]), [0; 0]);
        assert_eq!(receiver.counters.resynced, 0);
        let came: Vec<_> = late(65, 128).collect();
        assert_eq!(in_order(&mut receiver, &came), [1002]);
        assert_eq!(receiver.counters.resynced, 1);
    }

    #[test]
    fn no_more_than_64_frames_wait() {
        let mut receiver = new();
        assert_eq!(in_order(&mut receiver, &[(0, 1)]), [1]);
        let came: Vec<_> = (3..67).map(|number| (5, number)).collect();
        assert_eq!(in_order(&mut receiver, &came), [0; 0]);
        let all: Vec<u32> = (3..=67).collect();
        assert_eq!(in_order(&mut receiver, &[(5, 67)]), all);
        assert_eq!(in_order(&mut receiver, &[(5, 2), (5, 68)]), [68]);
        assert_eq!(receiver.counters.missing, 1);
    }

    #[test]
    fn what_waits_when_its_sender_begins_anew_is_delivered_before() {
        let mut receiver = new();
        assert_eq!(in_order(&mut receiver, &[(0, 700), (1, 702), (1, 705)]), [700]);
        receiver.begin_anew(Numbers::PSEUDOWIRE);
        assert_eq!(in_order(&mut receiver, &[(2, 1), (2, 3), (2, 2)]), [702, 705, 1, 2, 3]);
        // And so it is when that is seen by its numbers.
        assert_eq!(in_order(&mut receiver, &[(2, 30_000)]), [0; 0]);
        assert_eq!(in_order(&mut receiver, &[(1002, 30_002)]), [30_000]);
        let anew: Vec<_> = (1..=66).map(|number| (20_000 * u64::from(number), number)).collect();
        assert_eq!(in_order(&mut receiver, &anew), [30_002, 65, 66]);
        assert_eq!(receiver.counters.resynced, 1);
    }

    #[test]
    fn followed_numbers_may_wrap() {
        let mut receiver = new();
        assert_eq!(take(&mut receiver, [100]), [100]);
        assert_eq!(take(&mut receiver, (65_500..=65_535).chain(1..=29)), [29]);
    }
}
