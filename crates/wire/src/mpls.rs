//! MPLS: the label stack, behind EtherType 8847h or 8848h, IP protocol 137, or UDP port 6635.
//!
//! ```text
//!   31              12 11 9  8  7      0
//!  +------------------+----+---+--------+
//!  |      label       | TC | S |  TTL   |   an entry, 4 bytes; S ends the stack
//!  +------------------+----+---+--------+
//! ```
//! [`LabelStackEntry::pop`] is the look of a label switching router, which reads the top entry and
//! nothing below it; [`LabelStack`] is all of it, for those who end it or show it. To push, emit an
//! entry to a [`Front`](crate::Front). Units: offsets in bytes from the top of the stack; TTL in hops.
//! Errors: a stack that ends early or is deeper than the caller allows. Whether a special label stands
//! where it may is not asked in parsing, but by [`LabelStackEntry::check`]. Big-endian.
//! Spec: RFC 3032, RFC 5462 (TC), RFC 7274 (special-purpose labels), RFC 7510 (UDP).

use core::fmt;

use crate::{Expected, ParseError};

/// UDP port to which MPLS packets are sent.
pub const UDP_PORT: u16 = 6635;

/// The UDP source port of an MPLS packet of a flow, by 14 bits of its hash: 49152 to 65535.
/// The same for all packets of a flow, since routers spread by it.
#[inline]
pub const fn udp_source_port(flow_hash: u16) -> u16 {
    0xc000 | flow_hash
}

/// A label, 20 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(u32);

names! {
    Label by |label| label.0;
    IPV4_EXPLICIT_NULL = 0 "IPv4 explicit null",
    ROUTER_ALERT = 1 "router alert",
    IPV6_EXPLICIT_NULL = 2 "IPv6 explicit null",
    IMPLICIT_NULL = 3 "implicit null",
    ENTROPY_LABEL_INDICATOR = 7 "entropy label indicator",
    GENERIC_ASSOCIATED_CHANNEL = 13 "generic associated channel",
    OAM_ALERT = 14 "OAM alert",
    EXTENSION = 15 "extension",
}

impl Label {
    /// The largest.
    pub const MAX: Self = Self(0xf_ffff);
    /// The smallest that is not special: those below it mean the same everywhere.
    pub const FIRST_ORDINARY: Self = Self(16);

    /// A label; `None` if the number has more than 20 bits.
    #[inline]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether it is one of 0 to 15, which nobody may assign.
    #[inline]
    pub const fn is_special(self) -> bool {
        self.0 < Self::FIRST_ORDINARY.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

/// One entry of a label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelStackEntry {
    /// What the packet is forwarded by.
    pub label: Label,
    /// TC: the class of service; three bits.
    pub traffic_class: u8,
    /// S: no entry follows.
    pub is_bottom: bool,
    /// TTL: hops that are left.
    pub ttl: u8,
}

impl LabelStackEntry {
    /// Size in bytes.
    pub const SIZE: usize = 4;

    /// Takes the top entry off: it, and the bytes behind it. The only error is an input that ends
    /// before it does.
    #[inline]
    pub fn pop(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        match bytes.split_first_chunk() {
            Some((entry, rest)) => Ok((Self::read(*entry), rest)),
            None => Err(ParseError::short(Self::SIZE, bytes.len())),
        }
    }

    /// Reads the top entry and leaves it where it is.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Self::pop(bytes).map(|(entry, _)| entry)
    }

    #[inline]
    fn read(entry: [u8; Self::SIZE]) -> Self {
        let word = u32::from_be_bytes(entry);
        Self {
            label: Label(word >> 12),
            traffic_class: (word >> 9 & 7) as u8,
            is_bottom: word >> 8 & 1 == 1,
            ttl: word as u8,
        }
    }

    /// The entry as bytes; the traffic class is cut to its width.
    #[inline]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        let class = (self.traffic_class as u32 & 7) << 9;
        let word = self.label.0 << 12 | class | (self.is_bottom as u32) << 8 | self.ttl as u32;
        word.to_be_bytes()
    }

    /// The TTL with which the packet leaves, one less than that with which it came; `None` if it
    /// may go no further (RFC 3032 clause 2.4).
    #[inline]
    pub const fn outgoing_ttl(&self) -> Option<u8> {
        match self.ttl {
            0 | 1 => None,
            ttl => Some(ttl - 1),
        }
    }

    /// Checks that a special label stands where it may: one that is assigned and not only signalled,
    /// and above another entry where it needs one. Ordinary labels stand anywhere.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let expected = match self.label {
            label if !label.is_special() => return Ok(()),
            Label::IMPLICIT_NULL => "a label: implicit null is only signalled",
            Label::ROUTER_ALERT | Label::ENTROPY_LABEL_INDICATOR | Label::EXTENSION
                if self.is_bottom =>
            {
                "an entry below this label"
            }
            label if label.name().is_none() => "a label that is assigned",
            _ => return Ok(()),
        };
        let seen = self.label.0.into();
        Err(ParseError::new("label", 0, Expected::Words(expected), seen))
    }
}

impl fmt::Display for LabelStackEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tc {} ttl {}", self.label, self.traffic_class, self.ttl)?;
        if self.is_bottom { f.write_str(" S") } else { Ok(()) }
    }
}

/// A whole label stack, from the top to its bottom, and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelStack<'a> {
    /// At least one; the last has S, and no other.
    entries: &'a [[u8; LabelStackEntry::SIZE]],
    payload: &'a [u8],
}

impl<'a> LabelStack<'a> {
    /// Reads a stack of at most `depth_max` entries. Errors: bytes that end before its bottom, and
    /// a stack whose bottom is not among so many entries.
    #[inline]
    pub fn parse(bytes: &'a [u8], depth_max: usize) -> Result<Self, ParseError> {
        let (words, _) = bytes.as_chunks();
        let is_bottom = |word: &[u8; LabelStackEntry::SIZE]| word[2] & 1 == 1;
        match words.iter().take(depth_max).position(is_bottom) {
            Some(above) => {
                let entries = &words[..=above];
                Ok(Self { entries, payload: &bytes[size_of_val(entries)..] })
            }
            None => Err(without_bottom(bytes.len(), words.len(), depth_max)),
        }
    }

    /// How many entries it has.
    #[inline]
    pub const fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Its entries, from the top.
    #[inline]
    pub fn entries(
        &self,
    ) -> impl DoubleEndedIterator<Item = LabelStackEntry> + ExactSizeIterator + use<'a> {
        self.entries.iter().map(|entry| LabelStackEntry::read(*entry))
    }

    /// What stands behind the bottom.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// What is wrong with a stack of which `depth` whole entries in `length` bytes have no bottom.
#[cold]
fn without_bottom(length: usize, depth: usize, depth_max: usize) -> ParseError {
    if depth < depth_max {
        return ParseError::short((depth + 1) * LabelStackEntry::SIZE, length);
    }
    let at = depth_max * LabelStackEntry::SIZE;
    ParseError::new("stack depth", at, Expected::AtMost(depth_max as u64), depth_max as u64 + 1)
}

impl fmt::Display for LabelStack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries().enumerate() {
            if index > 0 {
                f.write_str(" / ")?;
            }
            write!(f, "{entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
