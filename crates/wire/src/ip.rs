//! IPv4 and IPv6: the headers of what carries frames from router to router.
//!
//! As far as tunnels need them: options of IPv4 are passed over, extension headers of IPv6 are a
//! protocol like others, fragments are recognised and not put together. In: bytes from behind the
//! Ethernet header; `pop` checks a header and takes it off together with what an Ethernet padded. Out:
//! headers, their checksums right. Units: bytes; fragment offsets in 8 bytes. Errors: another version,
//! lengths beyond the bytes, a wrong checksum. Big-endian. Spec: RFC 791, RFC 8200.

mod v4;
mod v6;

use core::net::{Ipv4Addr, Ipv6Addr};

pub use v4::{FragmentField, Ipv4Header, VersionLength};
pub use v6::{Ipv6Header, VersionClassFlow};

use crate::checksum::Checksum;
use crate::field::BigEndianField;

codes! {
    /// What an IP packet carries.
    pub struct Protocol(u8) {
        ICMP = 1 "ICMP",
        TCP = 6 "TCP",
        UDP = 17 "UDP",
        GRE = 47 "GRE",
        ICMPV6 = 58 "ICMPv6",
        L2TP = 115 "L2TP",
        MPLS = 137 "MPLS-in-IP",
    }
}

macro_rules! address_fields {
    ($($address:ty = $size:literal;)*) => {$(
        impl BigEndianField for $address {
            const SIZE: usize = $size;
            #[inline(always)]
            fn get(bytes: &[u8], at: usize) -> Self {
                Self::from(<[u8; $size] as BigEndianField>::get(bytes, at))
            }
            #[inline(always)]
            fn put(&self, bytes: &mut [u8], at: usize) {
                bytes[at..at + $size].copy_from_slice(&self.octets());
            }
        }
    )*};
}
address_fields! {
    Ipv4Addr = 4;
    Ipv6Addr = 16;
}

/// What the checksum of a protocol above IP covers of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PseudoHeader {
    /// Source and destination.
    V4(Ipv4Addr, Ipv4Addr),
    /// Source and destination.
    V6(Ipv6Addr, Ipv6Addr),
}

impl PseudoHeader {
    /// The sum that a checksum of `length` bytes of `protocol` begins with.
    #[inline]
    pub fn checksum(&self, protocol: Protocol, length: u32) -> Checksum {
        let addresses = match self {
            Self::V4(source, destination) => {
                Checksum::default().with(&source.octets()).with(&destination.octets())
            }
            Self::V6(source, destination) => {
                Checksum::default().with(&source.octets()).with(&destination.octets())
            }
        };
        addresses.with(&length.to_be_bytes()).with(&[0, protocol.0])
    }
}
