//! Whether looking takes the processor from another.
//!
//! A shard that looks lets whoever else waits for its processor run, at every look. What it sees of
//! that is a gap between two looks in which the kernel counted a switch of its thread, or one that
//! is too long for anything but a processor that another machine was given. One that lost it so
//! stops looking, and looks no more for a while: a millisecond, and ten times longer each time that
//! it is lost again soon after, up to a second. A gap now and then (a thread of the kernel, a
//! hypervisor) is no reason: as long as it is a small part of the time for which was looked.
//!
//! Units: nanoseconds on the shard's clock. Pure: switches and moments come as arguments.

use std::time::Duration;

use block::Instant;

/// A gap that may be a switch: shorter ones are the looks themselves, and interrupts.
pub(super) const GAP: Duration = Duration::from_micros(3);
/// A gap that is no interrupt, whatever the kernel says.
const STOLEN: Duration = Duration::from_micros(200);
/// The first time without looking, and the longest.
const BAN_MIN: Duration = Duration::from_millis(1);
const BAN_MAX: Duration = Duration::from_secs(1);
/// Each is so many times the one before, if the processor is lost again within so many times it.
const WORSE: u32 = 10;
/// Of the time for which was looked, one part in so many may be lost.
const SHARE: u64 = 8;
/// What may be lost besides: less than a slice that another thread gets, more than a hypervisor takes
/// now and then.
const GRACE: u64 = 500_000;
/// Of that time so much is remembered at most.
const REMEMBERED: u64 = 8_000_000;

/// Whether a shard may look.
#[derive(Debug, Default)]
pub(super) struct Guard {
    until: Instant,
    ban: Duration,
    looked: u64,
    lost: u64,
    switches: u64,
}

impl Guard {
    /// Whether looking is allowed now.
    #[inline]
    pub(super) fn allows(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// So long was looked without a gap.
    #[inline]
    pub(super) fn looked(&mut self, time: Duration) {
        self.looked += time.as_nanos() as u64;
        if self.looked > REMEMBERED {
            self.looked /= 2;
            self.lost /= 2;
        }
    }

    /// Whether the thread lost its processor since this was asked last, of so many times so far.
    pub(super) fn switched(&mut self, switches: u64) -> bool {
        std::mem::replace(&mut self.switches, switches) != switches
    }

    /// There was a gap between two looks, the second of them now, in which the thread lost its
    /// processor or not. Returns whether that ends the looking.
    #[cold]
    pub(super) fn gap(&mut self, now: Instant, gap: Duration, switched: bool) -> bool {
        if !switched && gap < STOLEN {
            self.looked(gap);
            return false;
        }
        self.lost += gap.as_nanos() as u64;
        if self.lost <= GRACE + self.looked / SHARE {
            return false;
        }
        let again = now.since(self.until) < self.ban * WORSE;
        self.ban = if again { (self.ban * WORSE).min(BAN_MAX) } else { BAN_MIN };
        self.until = now + self.ban;
        (self.looked, self.lost) = (0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(3);

    fn at(micros: u64) -> Instant {
        Instant(micros * 1_000)
    }

    #[test]
    fn who_loses_its_processor_again_and_again_looks_once_a_second() {
        let mut guard = Guard::default();
        let mut now = at(5);
        let mut bans = Vec::new();
        for _ in 0..6 {
            assert!(guard.allows(now));
            assert!(guard.gap(now, SLICE, true));
            assert!(!guard.allows(now));
            bans.push(guard.until.since(now).as_millis());
            now = guard.until + Duration::from_micros(7);
        }
        assert_eq!(bans, [1, 10, 100, 1_000, 1_000, 1_000]);
        now = now + BAN_MAX * WORSE * 2;
        assert!(guard.gap(now, SLICE, true));
        assert_eq!(guard.until.since(now), BAN_MIN, "long ago is forgotten");
    }

    #[test]
    fn interrupts_and_threads_of_the_kernel_are_no_reason() {
        let mut guard = Guard::default();
        for number in 0..1_000 {
            guard.looked(Duration::from_micros(100));
            // A switch to a thread of the kernel; an interrupt.
            assert!(!guard.gap(at(number), Duration::from_micros(8), true));
            assert!(!guard.gap(at(number), Duration::from_micros(50), false));
        }
    }

    #[test]
    fn a_client_on_the_same_processor_is() {
        let mut guard = Guard::default();
        let lost = (1..100u64).find(|number| {
            guard.looked(Duration::from_micros(2));
            guard.gap(at(20 * number), Duration::from_micros(12), true)
        });
        assert!(lost.is_some_and(|rounds| rounds < 60), "{lost:?}");
    }

    #[test]
    fn a_processor_that_another_machine_had_is_lost() {
        let mut guard = Guard::default();
        assert!(!guard.gap(at(1), Duration::from_micros(150), false));
        assert!(!guard.gap(at(400), Duration::from_micros(300), false), "now and then");
        assert!(guard.gap(at(800), Duration::from_micros(300), false));
    }
}
