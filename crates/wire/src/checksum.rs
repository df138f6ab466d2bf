//! The Internet checksum, which IPv4, UDP and GRE have in their headers: the ones' complement of the
//! ones' complement sum of 16-bit words, big-endian.
//!
//! In: bytes, in as many parts as they come in. Out: the 16 bits of the field. No errors: any bytes
//! have a checksum. Spec: RFC 1071.

/// The sum of the bytes so far; begins at none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Checksum {
    sum: u16,
    /// An odd number of bytes was added: the next one is the low half of a word.
    is_odd: bool,
}

impl Checksum {
    /// With the bytes that follow.
    #[inline]
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        // Words of 32 bits add up to the same, folded: 2^16 is 1 modulo 2^16 - 1. A sum of 2^32 of
        // them fits.
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_be_bytes(last));
        let part = fold(sum);
        let part = if self.is_odd { part.swap_bytes() } else { part };
        let sum = fold(u64::from(self.sum) + u64::from(part));
        Self { sum, is_odd: self.is_odd ^ (bytes.len() % 2 == 1) }
    }

    /// With the sum of bytes that follow, which were added up elsewhere.
    #[inline]
    #[must_use]
    pub const fn with_sum(self, other: Self) -> Self {
        let part = if self.is_odd { other.sum.swap_bytes() } else { other.sum };
        let sum = fold(self.sum as u64 + part as u64);
        Self { sum, is_odd: self.is_odd ^ other.is_odd }
    }

    /// What the field holds when the bytes were added with zeros in its place; 0 when they were
    /// added with the right value in it.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.sum
    }
}

/// The ones' complement sum of the four words of `sum`.
#[inline]
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Checksum::default().with(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_a_word() {
        assert_eq!(Checksum::default().with(&[0x12]).finish(), !0x1200);
        assert_eq!(Checksum::default().with(&[]).finish(), 0xffff);
    }

    #[test]
    fn parts_of_any_length_add_up_to_the_whole() {
        let bytes: [u8; 29] = core::array::from_fn(|at| (at * 37 + 11) as u8);
        // Word by word, as the RFC has it.
        let mut sum = 0_u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let whole = parts.iter().fold(Checksum::default(), |sum, part| sum.with(part));
                assert_eq!(whole.finish(), !(sum as u16), "cut at {first} and {second}");
                let behind = Checksum::default().with(parts[1]).with(parts[2]);
                let joined = Checksum::default().with(parts[0]).with_sum(behind);
                assert_eq!(joined, whole, "joined at {first}");
            }
        }
    }

    #[test]
    fn carries_are_added_again() {
        assert_eq!(Checksum::default().with(&[0xff; 64]).finish(), 0);
        assert_eq!(Checksum::default().with(&[0xff, 0xff, 0, 1]).finish(), !1);
    }
}
