//! What the sequence number of a frame in a tunnel says of its arrival: in order, ahead, or late.
//!
//! In: the number that came and the one that is expected, which is the one behind the last that was
//! accepted. Out: an [`Arrival`]; what to do about it, and what to expect next, is up to whoever
//! keeps the expectation. Half of all numbers lie ahead and half behind, so that a frame that is
//! later than half of them counts as ahead. Each kind of tunnel has [`Numbers`] of its own. No
//! errors: any number arrives somehow.
//! Spec: RFC 4385 clauses 4.1 and 4.2 (16 bits without 0), RFC 3931 clause 4.6 (24 bits), RFC 2890
//! clause 2.2 (32 bits).

use core::fmt;

/// How a frame came, by its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It has no number: accepted, and nothing else is expected than before.
    Unsequenced,
    /// It is the expected one.
    InOrder,
    /// It is in order, but this many before it have not come: lost, or late.
    Ahead(u32),
    /// It is out of order: behind one that was accepted, or that one again.
    Late,
}

/// The numbers by which a kind of tunnel counts: from the first on, and the first again behind the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    first: u32,
    last: u32,
}

impl Numbers {
    /// Of a pseudowire's control word: 0 is none.
    pub const PSEUDOWIRE: Self = Self { first: 1, last: u16::MAX as u32 };
    /// Of L2TPv3's default sublayer.
    pub const L2TP: Self = Self { first: 0, last: 0xff_ffff };
    /// Of GRE.
    pub const GRE: Self = Self { first: 0, last: u32::MAX };

    /// The first that is sent.
    #[inline]
    pub const fn first(self) -> u32 {
        self.first
    }

    /// The one behind a number.
    #[inline]
    pub const fn next(self, number: u32) -> u32 {
        if number == self.last { self.first } else { number + 1 }
    }

    /// How a frame with this number, if it has one, came where `expected` is expected; both are
    /// among these numbers.
    #[inline]
    pub const fn arrival(self, received: Option<u32>, expected: u32) -> Arrival {
        let Some(received) = received else { return Arrival::Unsequenced };
        let distance = if received >= expected {
            received - expected
        } else {
            (self.last - expected) + (received - self.first) + 1
        };
        match distance {
            0 => Arrival::InOrder,
            _ if distance <= self.last / 2 => Arrival::Ahead(distance),
            _ => Arrival::Late,
        }
    }
}

/// The sequence number of a pseudowire's control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PseudowireSequence(pub u16);

stands_as!(PseudowireSequence(u16));

impl PseudowireSequence {
    /// In a frame that is not sequenced.
    pub const UNSEQUENCED: Self = Self(0);
    /// The first that is sent, and that is expected.
    pub const FIRST: Self = Self(1);

    /// The field with one of [`Numbers::PSEUDOWIRE`], or none.
    #[inline]
    pub const fn new(number: Option<u32>) -> Self {
        match number {
            Some(number) => Self(number as u16),
            None => Self::UNSEQUENCED,
        }
    }

    /// The number in it.
    #[inline]
    pub const fn number(self) -> Option<u32> {
        match self.0 {
            0 => None,
            number => Some(number as u32),
        }
    }
}

impl fmt::Display for PseudowireSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Numbers; 3] = [Numbers::PSEUDOWIRE, Numbers::L2TP, Numbers::GRE];

    #[test]
    fn a_pseudowire_counts_from_1_and_never_has_0_and_the_others_from_0() {
        assert_eq!(ALL.map(Numbers::first), [1, 0, 0]);
        assert_eq!(ALL.map(|numbers| numbers.next(1)), [2; 3]);
        assert_eq!(Numbers::PSEUDOWIRE.next(65_535), 1);
        assert_eq!(Numbers::L2TP.next(0xff_ffff), 0);
        assert_eq!(Numbers::GRE.next(u32::MAX), 0);
    }

    #[test]
    fn the_field_of_a_control_word_without_a_number_is_0() {
        assert_eq!(PseudowireSequence::new(None), PseudowireSequence::UNSEQUENCED);
        assert_eq!(PseudowireSequence::UNSEQUENCED.number(), None);
        for number in [1, 65_535] {
            assert_eq!(PseudowireSequence::new(Some(number)).number(), Some(number));
        }
        assert_eq!(PseudowireSequence::FIRST.number(), Some(Numbers::PSEUDOWIRE.first()));
    }

    #[test]
    fn a_frame_without_a_number_is_accepted() {
        for numbers in ALL {
            for expected in [1, 2, 0x8000, 65_535] {
                assert_eq!(numbers.arrival(None, expected), Arrival::Unsequenced);
            }
        }
    }

    #[test]
    fn half_of_the_numbers_lie_ahead() {
        for (numbers, received, expected, arrival) in [
            (Numbers::PSEUDOWIRE, 7, 7, Arrival::InOrder),
            (Numbers::PSEUDOWIRE, 8, 7, Arrival::Ahead(1)),
            (Numbers::PSEUDOWIRE, 1, 65_535, Arrival::Ahead(1)),
            (Numbers::PSEUDOWIRE, 65_535, 65_534, Arrival::Ahead(1)),
            (Numbers::PSEUDOWIRE, 7 + 32_767, 7, Arrival::Ahead(32_767)),
            (Numbers::PSEUDOWIRE, 7 + 32_768, 7, Arrival::Late),
            (Numbers::PSEUDOWIRE, 6, 7, Arrival::Late),
            (Numbers::PSEUDOWIRE, 65_535, 1, Arrival::Late),
            // Around the end: 32768 below the expected one is ahead, 32767 is not.
            (Numbers::PSEUDOWIRE, 1, 1 + 32_768, Arrival::Ahead(32_767)),
            (Numbers::PSEUDOWIRE, 1, 1 + 32_767, Arrival::Late),
            (Numbers::L2TP, 0, 0, Arrival::InOrder),
            (Numbers::L2TP, 0, 0xff_ffff, Arrival::Ahead(1)),
            (Numbers::L2TP, 0xff_ffff, 0, Arrival::Late),
            (Numbers::L2TP, 0x7f_ffff, 0, Arrival::Ahead(0x7f_ffff)),
            (Numbers::L2TP, 0x80_0000, 0, Arrival::Late),
            (Numbers::GRE, 0, u32::MAX, Arrival::Ahead(1)),
            (Numbers::GRE, 0x7fff_ffff, 0, Arrival::Ahead(0x7fff_ffff)),
            (Numbers::GRE, 0x8000_0000, 0, Arrival::Late),
            (Numbers::GRE, 4, 5, Arrival::Late),
            (Numbers::GRE, u32::MAX, 0, Arrival::Late),
        ] {
            let seen = numbers.arrival(Some(received), expected);
            assert_eq!(seen, arrival, "{received} for {expected} of {numbers:?}");
        }
    }

    #[test]
    fn what_is_ahead_is_reached_by_counting() {
        let numbers = Numbers::PSEUDOWIRE;
        for expected in [1, 2, 32_767, 32_768, 65_534, 65_535] {
            let mut received = expected;
            for missing in 1..=32_767 {
                received = numbers.next(received);
                let arrival = numbers.arrival(Some(received), expected);
                assert_eq!(arrival, Arrival::Ahead(missing), "{received} for {expected}");
            }
            assert_eq!(numbers.arrival(Some(numbers.next(received)), expected), Arrival::Late);
        }
    }
}
