//! What the sequence number of a frame in a tunnel says of its arrival: in order, ahead, or late.
//!
//! In: the number that came and the one that is expected, which is the one behind the last that was
//! accepted. Out: an [`Arrival`]; what to do about it, and what to expect next, is up to whoever
//! keeps the expectation. Half of all numbers lie ahead and half behind, so that a frame that is
//! later than half of them counts as ahead. [`L2SpecificSublayer`](crate::l2tp::L2SpecificSublayer)
//! and [`gre::Header`](crate::gre::Header) compare theirs by the same rule. No errors: any number
//! arrives somehow.
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

/// The sequence number of a pseudowire's control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PseudowireSequence(pub u16);

stands_as!(PseudowireSequence(u16));

impl PseudowireSequence {
    /// In a frame that is not sequenced.
    pub const UNSEQUENCED: Self = Self(0);
    /// The first that is sent, and that is expected.
    pub const FIRST: Self = Self(1);

    /// The number behind this one: 1 follows 65535.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(next) => Self(next),
            None => Self::FIRST,
        }
    }

    /// How a frame with this number came where `expected`, which is never 0, is expected.
    #[inline]
    pub const fn arrival(self, expected: Self) -> Arrival {
        let (received, expected) = (self.0, expected.0);
        if received == 0 {
            Arrival::Unsequenced
        } else if received == expected {
            Arrival::InOrder
        } else if received > expected && received - expected < 0x8000 {
            Arrival::Ahead((received - expected) as u32)
        } else if received < expected && expected - received >= 0x8000 {
            // 65535 numbers, since 0 is none.
            Arrival::Ahead((u16::MAX - (expected - received)) as u32)
        } else {
            Arrival::Late
        }
    }
}

impl fmt::Display for PseudowireSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a frame with the number `received` came where `expected` is expected, of a counter of `bits`
/// bits in which 0 follows the largest; bits beyond those do not count.
#[inline]
pub(crate) const fn arrival(bits: u32, received: u32, expected: u32) -> Arrival {
    let distance = received.wrapping_sub(expected) & (u32::MAX >> (u32::BITS - bits));
    match distance {
        0 => Arrival::InOrder,
        _ if distance >> (bits - 1) == 0 => Arrival::Ahead(distance),
        _ => Arrival::Late,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pseudowire(received: u16, expected: u16) -> Arrival {
        PseudowireSequence(received).arrival(PseudowireSequence(expected))
    }

    #[test]
    fn a_pseudowire_counts_from_1_and_never_has_0() {
        assert_eq!(PseudowireSequence::FIRST.0, 1);
        assert_eq!(PseudowireSequence(1).next(), PseudowireSequence(2));
        assert_eq!(PseudowireSequence(65_534).next(), PseudowireSequence(65_535));
        assert_eq!(PseudowireSequence(65_535).next(), PseudowireSequence(1));
    }

    #[test]
    fn a_frame_without_a_number_is_accepted() {
        for expected in [1, 2, 0x8000, 65_535] {
            assert_eq!(pseudowire(0, expected), Arrival::Unsequenced);
        }
    }

    #[test]
    fn the_window_of_a_pseudowire_ends_at_32767() {
        for (received, expected, arrival) in [
            (7, 7, Arrival::InOrder),
            (8, 7, Arrival::Ahead(1)),
            (1, 65_535, Arrival::Ahead(1)),
            (65_535, 65_534, Arrival::Ahead(1)),
            (7 + 32_767, 7, Arrival::Ahead(32_767)),
            (7 + 32_768, 7, Arrival::Late),
            (6, 7, Arrival::Late),
            (65_535, 1, Arrival::Late),
            // Around the end: 32768 below the expected one is ahead, 32767 is not.
            (1, 1 + 32_768, Arrival::Ahead(32_767)),
            (1, 1 + 32_767, Arrival::Late),
        ] {
            assert_eq!(pseudowire(received, expected), arrival, "{received} for {expected}");
        }
    }

    #[test]
    fn what_is_ahead_is_reached_by_counting() {
        for expected in [1_u16, 2, 32_767, 32_768, 65_534, 65_535] {
            let mut received = PseudowireSequence(expected);
            for missing in 1..=32_767 {
                received = received.next();
                let arrival = received.arrival(PseudowireSequence(expected));
                assert_eq!(arrival, Arrival::Ahead(missing), "{received} for {expected}");
            }
            assert_eq!(received.next().arrival(PseudowireSequence(expected)), Arrival::Late);
        }
    }

    #[test]
    fn counters_that_have_0_wrap_to_it() {
        for (bits, received, expected, seen) in [
            (24, 0, 0, Arrival::InOrder),
            (24, 0, 0xff_ffff, Arrival::Ahead(1)),
            (24, 0xff_ffff, 0, Arrival::Late),
            (24, 0x7f_ffff, 0, Arrival::Ahead(0x7f_ffff)),
            (24, 0x80_0000, 0, Arrival::Late),
            (24, 0x1200_0005, 5, Arrival::InOrder),
            (32, 0, u32::MAX, Arrival::Ahead(1)),
            (32, 0x7fff_ffff, 0, Arrival::Ahead(0x7fff_ffff)),
            (32, 0x8000_0000, 0, Arrival::Late),
            (32, 4, 5, Arrival::Late),
        ] {
            assert_eq!(arrival(bits, received, expected), seen, "{received} for {expected}");
        }
    }
}
