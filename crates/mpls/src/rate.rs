//! The rate of a port: a token bucket, and the frames that wait for it.
//!
//! ```text
//!   bucket empty, or frames wait:  a frame waits       -> leaves once the bucket has what it takes
//!   else                        :  it leaves at once
//! ```
//! A bucket holds what the rate is in [`DEPTH`], and one frame may overdraw it, so that frames of any
//! length pass. The bucket is kept as the moment from which on it has something: sending moves that
//! moment on by the time that the frame takes. Who waits is let go in bursts of half a bucket, so that
//! a busy port wakes its shard some 2,000 times a second at any rate, and one that wakes late by as
//! much loses nothing. Messages about paths do not wait, and take what they need before data does.
//! What waits is a copy, and is copied once more when it leaves.
//! Units: bits a second; a frame costs its bytes, with an Ethernet header, without check sequence,
//! preamble and gap, as those of `tc tbf` do. No errors. Spec: none.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::VecDeque;

use block::Instant;

/// What a bucket holds at most, as time at its rate.
const DEPTH: Duration = Duration::from_millis(1);

/// Bits a second that a port may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// The lowest and the highest rate: at the lowest a frame of 1500 bytes takes 0.2 s, at the
    /// highest the shortest one some nanoseconds.
    pub const LEAST: u64 = 64_000;
    pub const MOST: u64 = 100_000_000_000;

    /// So many bits a second; `None`: less than [`Rate::LEAST`] or more than [`Rate::MOST`].
    pub const fn new(bits: u64) -> Option<Self> {
        if bits < Self::LEAST || bits > Self::MOST {
            return None;
        }
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Bits a second.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// How long it takes to send so many bytes.
    #[inline]
    fn time(self, bytes: usize) -> Duration {
        // A frame has less than 2^16 bytes.
        Duration::from_nanos((bytes as u64 * 8_000_000_000).div_ceil(self.0.get()))
    }
}

/// As `tc` writes it.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        for (unit, name) in [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")] {
            if bits.is_multiple_of(unit) {
                return write!(f, "{}{name}", bits / unit);
            }
        }
        write!(f, "{bits}bit")
    }
}

/// A port's bucket, and the frames that wait for it.
#[derive(Debug)]
pub(crate) struct Shaper {
    rate: Rate,
    /// From when on the bucket has something.
    free_at: Instant,
    /// The bytes of the frames that wait, one after the other, and how many each has.
    bytes: VecDeque<u8>,
    lengths: VecDeque<u32>,
}

impl Shaper {
    pub(crate) fn new(rate: Rate) -> Self {
        let (bytes, lengths) = (VecDeque::new(), VecDeque::new());
        Self { rate, free_at: Instant::ZERO, bytes, lengths }
    }

    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Whether a frame may leave now, ahead of which no other one waits.
    #[inline]
    pub(crate) fn may_pass(&self, now: Instant) -> bool {
        self.lengths.is_empty() && self.free_at <= now
    }

    /// A frame of so many bytes leaves now.
    #[inline]
    pub(crate) fn charge(&mut self, now: Instant, bytes: usize) {
        let full = Instant(now.0.saturating_sub(DEPTH.as_nanos() as u64));
        self.free_at = self.free_at.max(full);
        self.charge_later(bytes);
    }

    /// The same of one that does not wait, at whatever moment.
    #[inline]
    pub(crate) fn charge_later(&mut self, bytes: usize) {
        self.free_at = self.free_at + self.rate.time(bytes);
    }

    /// A frame waits.
    pub(crate) fn put(&mut self, [front, rest]: [&[u8]; 2]) {
        self.bytes.extend(front);
        self.bytes.extend(rest);
        self.lengths.push_back((front.len() + rest.len()) as u32);
    }

    /// The next frame that waits leaves, if it may: `to` gets its bytes, in two parts.
    pub(crate) fn take(&mut self, now: Instant, to: impl FnOnce([&[u8]; 2])) -> bool {
        if self.free_at > now {
            return false;
        }
        let Some(length) = self.take_whatever_the_rate(to) else { return false };
        self.charge(now, length);
        true
    }

    /// The same, of a port that has no rate any more. Returns the bytes of the frame.
    pub(crate) fn take_whatever_the_rate(&mut self, to: impl FnOnce([&[u8]; 2])) -> Option<usize> {
        let length = self.lengths.pop_front()? as usize;
        let (front, rest) = self.bytes.as_slices();
        let cut = length.min(front.len());
        to([&front[..cut], &rest[..length - cut]]);
        self.bytes.drain(..length);
        Some(length)
    }

    /// When frames that wait are to be let go; `None`: none waits.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (!self.lengths.is_empty()).then(|| self.free_at + DEPTH / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 1250;

    fn shaper(bits: u64) -> Shaper {
        Shaper::new(Rate::new(bits).unwrap())
    }

    /// What leaves of frames that all wait at once, in how long, woken as it asks.
    fn time_of(shaper: &mut Shaper, frames: usize, late: Duration) -> Duration {
        let began = Instant(1_000_000_000);
        (0..frames).for_each(|_| shaper.put([&[7; 14], &[8; FRAME - 14]]));
        let (mut now, mut left) = (began, 0);
        while left < frames {
            now = shaper.poll_timeout().unwrap().max(now) + late;
            let mut burst = 0;
            while shaper.take(now, |[front, rest]| assert_eq!(front.len() + rest.len(), FRAME)) {
                burst += 1;
            }
            assert!(burst > 0, "it asked for nothing");
            left += burst;
        }
        now.since(began)
    }

    #[test]
    fn frames_leave_at_the_rate_and_a_shard_that_wakes_late_makes_up_for_it() {
        // 1,000 frames of 10,000 bits.
        for late in [0, 400] {
            let took = time_of(&mut shaper(1_000_000_000), 1000, Duration::from_micros(late));
            let seen = took.as_micros();
            assert!((8_500..11_000).contains(&seen), "{late}: {seen} us for 10 ms");
        }
        // One that is later than a bucket lasts loses what would not fit.
        let took = time_of(&mut shaper(1_000_000_000), 1000, Duration::from_millis(2));
        assert!(took > Duration::from_millis(15), "{took:?}");
    }

    #[test]
    fn what_leaves_in_a_moment_is_no_more_than_a_bucket_and_a_frame() {
        let mut it = shaper(100_000_000);
        let now = Instant(5_000_000_000);
        let mut left = 0;
        while it.may_pass(now) {
            it.charge(now, FRAME);
            left += 1;
        }
        // 100 us each, and a bucket of a millisecond.
        assert_eq!(left, 11);
        assert_eq!(it.poll_timeout(), None, "nobody waits");
        it.put([&[1; 60], &[]]);
        assert!(!it.may_pass(now + Duration::from_secs(1)), "not before who came first");
        assert!(!it.take(now, |_| panic!("it waits")));
        assert_eq!(it.poll_timeout(), Some(now + Duration::from_micros(100 + 500)));
        let mut bytes = Vec::new();
        assert!(it.take(now + Duration::from_micros(100), |parts| bytes = parts.concat()));
        assert_eq!(bytes, [1; 60]);
    }

    #[test]
    fn messages_take_what_they_need_before_data() {
        let mut it = shaper(1_000_000);
        let now = Instant(5_000_000_000);
        it.charge(now, 125);
        it.charge_later(125);
        // A bucket of 1 ms, and 2 ms of what was sent.
        assert!(!it.may_pass(now + Duration::from_micros(999)));
        assert!(it.may_pass(now + Duration::from_micros(1000)));
    }

    #[test]
    fn a_frame_around_the_end_of_the_memory_is_whole() {
        let mut it = shaper(Rate::MOST);
        let frames: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; 60 + 7 * usize::from(n)]).collect();
        let mut out = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            it.put([&frame[..14], &frame[14..]]);
            if number >= 3 {
                it.take_whatever_the_rate(|parts| out.push(parts.concat()));
            }
        }
        while it.take_whatever_the_rate(|parts| out.push(parts.concat())).is_some() {}
        assert_eq!(out, frames);
    }

    #[test]
    fn rates_are_shown_as_they_are_written() {
        for (bits, text) in [
            (100_000_000, "100mbit"),
            (1_500_000, "1500kbit"),
            (64_001, "64001bit"),
            (25_000_000_000, "25gbit"),
        ] {
            assert_eq!(Rate::new(bits).unwrap().to_string(), text);
        }
        assert!(Rate::new(Rate::LEAST - 1).is_none() && Rate::new(Rate::MOST + 1).is_none());
    }
}
