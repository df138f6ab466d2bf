//! Logical unit numbers: 8 bytes, of which a target with one level uses two; and the list of them.
//!
//! ```text
//!  peripheral device   00 | 0 bus 0, 1 LUN 0..255, the rest zero
//!  flat space          01 | 14 bits of LUN, the rest zero
//! ```
//! [`Lun`] keeps the bytes; [`Lun::number`] is the number of those that a target of ours can have.
//! Well-known logical units and deeper levels have none. Spec: SAM-5, "Logical unit number (LUN)";
//! SPC-4, "REPORT LUNS command".

use core::fmt;

use super::{be16, be32, hex, put};
use crate::{Expected, ParseError};

/// A logical unit number as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// The largest number that one level can say.
    pub const NUMBER_MAX: u16 = 0x3fff;
    const FLAT: u16 = 0x4000;

    /// The LUN of a number: a peripheral device below 256, else flat space. Panics above
    /// [`Self::NUMBER_MAX`].
    #[inline]
    pub fn of(number: u16) -> Self {
        assert!(number <= Self::NUMBER_MAX, "LUN {number} does not fit 14 bits");
        let word = if number < 256 { number } else { Self::FLAT | number };
        let mut bytes = [0; 8];
        put(&mut bytes, 0, word.to_be_bytes());
        Self(bytes)
    }

    /// Its number, if it has a single level that is a peripheral device of bus 0 or flat space.
    /// Initiators may use either way for what both can say.
    #[inline]
    pub fn number(&self) -> Option<u16> {
        let word = be16(&self.0, 0);
        let deeper = be16(&self.0, 2) != 0 || be32(&self.0, 4) != 0;
        match word {
            _ if deeper => None,
            0..256 => Some(word),
            0x4000..0x8000 => Some(word & Self::NUMBER_MAX),
            _ => None,
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "lun {number}"),
            None => {
                f.write_str("lun 0x")?;
                hex(f, &self.0)
            }
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({self})")
    }
}

/// The parameter data of REPORT LUNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunList(pub Vec<Lun>);

impl LunList {
    /// Bytes in front of the list.
    const HEADER: usize = 8;

    /// The list as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let length = (self.0.len() * size_of::<Lun>()) as u32;
        let mut bytes = vec![0; Self::HEADER];
        put(&mut bytes, 0, length.to_be_bytes());
        bytes.extend(self.0.iter().flat_map(|lun| lun.0));
        bytes
    }

    /// Reads a list, which may have been cut behind any of its entries: `Ok` has what is there.
    /// Errors: an input without a header, a length that is no multiple of 8.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let length = Self::length(bytes)?;
        let list = &bytes[Self::HEADER..];
        let list = &list[..list.len().min(length as usize)];
        Ok(Self(list.as_chunks().0.iter().map(|lun| Lun(*lun)).collect()))
    }

    /// LUN LIST LENGTH: the bytes of the whole list, however much of it is there.
    pub fn length(bytes: &[u8]) -> Result<u32, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let length = be32(bytes, 0);
        match length % 8 {
            0 => Ok(length),
            _ => {
                let expected = Expected::Words("a multiple of 8");
                Err(ParseError::new("LUN LIST LENGTH", 0, expected, length.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_below_256_is_a_peripheral_device_and_others_lie_in_flat_space() {
        assert_eq!(Lun::of(0).0, [0; 8]);
        assert_eq!(Lun::of(255).0, [0, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::of(256).0, [0x41, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::of(16383).0, [0x7f, 0xff, 0, 0, 0, 0, 0, 0]);
        for number in 0..=Lun::NUMBER_MAX {
            assert_eq!(Lun::of(number).number(), Some(number));
        }
    }

    #[test]
    fn flat_space_may_say_a_small_number_too() {
        assert_eq!(Lun([0x40, 7, 0, 0, 0, 0, 0, 0]).number(), Some(7));
    }

    #[test]
    fn other_buses_deeper_levels_and_well_known_units_have_no_number() {
        for bytes in [
            [1, 7, 0, 0, 0, 0, 0, 0],
            [0x80, 0, 0, 0, 0, 0, 0, 0],
            [0xc1, 1, 0, 0, 0, 0, 0, 0],
            [0, 1, 0, 2, 0, 0, 0, 0],
            [0, 1, 0, 0, 0, 0, 0, 1],
        ] {
            assert_eq!(Lun(bytes).number(), None, "{bytes:?}");
        }
        assert_eq!(Lun([0xc1, 1, 0, 0, 0, 0, 0, 0]).to_string(), "lun 0xc101000000000000");
        assert_eq!(Lun::of(300).to_string(), "lun 300");
    }

    #[test]
    fn a_list_of_luns_both_ways_and_cut() {
        let list = LunList(vec![Lun::of(0), Lun::of(300)]);
        let bytes = list.emit();
        assert_eq!(bytes[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
        assert_eq!(bytes[16..18], [0x41, 0x2c]);
        assert_eq!(LunList::parse(&bytes), Ok(list));
        assert_eq!(LunList::parse(&bytes[..17]), Ok(LunList(vec![Lun::of(0)])));
        assert_eq!(LunList::length(&bytes[..8]), Ok(16));
        assert!(LunList::parse(&bytes[..7]).is_err());
        assert!(LunList::parse(&[0, 0, 0, 9, 0, 0, 0, 0]).is_err());
    }
}
