//! Ethernet: addresses, what a frame carries, and how long its head is.
//!
//! ```text
//!   0  destination   6  source   12  EtherType   14  payload
//!   0  destination   6  source   12  8100h   14  PCP, DEI, VID   16  EtherType   18  payload
//! ```
//! Frames are opened and built in one step each where links live (crate `contract`). Big-endian.
//! Spec: IEEE 802.3, 802.1Q.

use core::fmt;

use crate::{Expected, ParseError};

/// Bytes in front of the payload of a frame without a VLAN tag.
pub const HEADER_SIZE: usize = 14;
/// Bytes by which a VLAN tag makes it longer.
pub const VLAN_TAG_SIZE: usize = 4;

codes! {
    /// What an Ethernet frame carries.
    pub struct EtherType(u16) {
        VLAN = 0x8100 "802.1Q",
        MPLS = 0x8847 "MPLS",
        AOE = 0x88a2 "AoE",
    }
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

stands_as!(MacAddress([u8; 6]));

impl MacAddress {
    /// To everybody.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names a group of stations: no frame may come from such an address.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The address as a number, for comparisons in one step.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address of a number; what exceeds 48 bits is cut.
    #[inline]
    pub const fn from_u64(number: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl core::str::FromStr for MacAddress {
    type Err = ParseError;

    /// Reads six numbers of two hexadecimal digits with colons or dashes between them. The offset
    /// of an error counts characters.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut mac = [0; 6];
        let bytes = text.as_bytes();
        if bytes.len() != 17 {
            let expected = Expected::Words("17 characters, like 02:00:00:00:00:01");
            return Err(ParseError::new("MAC address", 0, expected, bytes.len() as u64));
        }
        for (index, byte) in mac.iter_mut().enumerate() {
            let at = index * 3;
            let digit = |at: usize| match char::from(bytes[at]).to_digit(16) {
                Some(digit) => Ok(digit as u8),
                None => {
                    let expected = Expected::Words("a hexadecimal digit");
                    Err(ParseError::new("MAC address", at, expected, bytes[at].into()))
                }
            };
            *byte = digit(at)? << 4 | digit(at + 1)?;
            if index < 5 && !matches!(bytes[at + 2], b':' | b'-') {
                let expected = Expected::Words("a colon");
                let seen = bytes[at + 2].into();
                return Err(ParseError::new("MAC address", at + 2, expected, seen));
            }
        }
        Ok(Self(mac))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_both_ways() {
        let mac = MacAddress([0x02, 0, 0, 0xab, 0, 1]);
        assert_eq!("02:00:00:ab:00:01".parse(), Ok(mac));
        assert_eq!("02-00-00-AB-00-01".parse(), Ok(mac));
        assert_eq!(MacAddress::from_u64(mac.to_u64()), mac);
        assert_eq!(mac.to_u64(), 0x0200_00ab_0001);
        assert!(MacAddress::BROADCAST.is_group() && !mac.is_group());
        let offset = |text: &str| text.parse::<MacAddress>().unwrap_err().offset;
        assert_eq!(offset("02:00:00:ab:00:0g"), 16);
        assert_eq!(offset("02:00.00:ab:00:01"), 5);
        assert_eq!(offset("02:00:00:ab:00:1"), 0);
    }
}
