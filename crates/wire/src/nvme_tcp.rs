//! NVMe/TCP: the PDUs between an initiator and a target.
//!
//! ```text
//!  0      1      2      3      4             8           HLEN
//! +------+------+------+------+-------------+-----------+--------+-----+----------+--------+
//! | type | flags| HLEN | PDO  | PLEN (u32)  | specific  | HDGST? | pad | data     | DDGST? |
//! +------+------+------+------+-------------+-----------+--------+-----+----------+--------+
//!  `---- CommonHeader, 8 bytes ------------'             `4 bytes       ^ PDO     ` 4 bytes
//! ```
//! PLEN counts all of it. Here are headers only: what lies behind HLEN (digests, padding, data)
//! belongs to whoever owns the receive buffer; [`CommonHeader::payload`] says where it lies.
//! Units: bytes, little-endian. Errors: [`ParseError`] whose offset is fit for a TermReq's FEI.
//! Spec: NVMe/TCP transport specification, "PDU definitions"; field rules as Linux checks them.

use core::fmt;

use crate::{Expected, ParseError};

/// The TCP port of I/O controllers.
pub const PORT: u16 = 4420;

codes! {
    /// PDU type, byte 0 of every PDU.
    pub struct PduType(u8) {
        IC_REQ = 0x00 "ICReq",
        IC_RESP = 0x01 "ICResp",
        H2C_TERM_REQ = 0x02 "H2CTermReq",
        C2H_TERM_REQ = 0x03 "C2HTermReq",
        CAPSULE_COMMAND = 0x04 "CapsuleCmd",
        CAPSULE_RESPONSE = 0x05 "CapsuleResp",
        H2C_DATA = 0x06 "H2CData",
        C2H_DATA = 0x07 "C2HData",
        R2T = 0x09 "R2T",
    }
}

/// HLEN that a PDU of this type must announce; `None` for a type nobody knows.
#[inline]
pub const fn expected_header_length(kind: PduType) -> Option<u8> {
    match kind {
        PduType::IC_REQ | PduType::IC_RESP => Some(128),
        PduType::CAPSULE_COMMAND => Some(72),
        PduType::H2C_TERM_REQ
        | PduType::C2H_TERM_REQ
        | PduType::CAPSULE_RESPONSE
        | PduType::H2C_DATA
        | PduType::C2H_DATA
        | PduType::R2T => Some(24),
        _ => None,
    }
}

impl PduType {
    /// True for the types a host sends.
    #[inline]
    pub const fn is_from_host(self) -> bool {
        matches!(self, Self::IC_REQ | Self::H2C_TERM_REQ | Self::CAPSULE_COMMAND | Self::H2C_DATA)
    }

    /// True for the types whose header can be followed by data.
    #[inline]
    pub const fn carries_data(self) -> bool {
        matches!(
            self,
            Self::H2C_TERM_REQ
                | Self::C2H_TERM_REQ
                | Self::CAPSULE_COMMAND
                | Self::H2C_DATA
                | Self::C2H_DATA
        )
    }

    /// True for the types that carry digests once they are negotiated: all but connection set-up
    /// and termination.
    #[inline]
    pub const fn carries_digests(self) -> bool {
        !matches!(self, Self::IC_REQ | Self::IC_RESP | Self::H2C_TERM_REQ | Self::C2H_TERM_REQ)
    }
}

/// FLAGS, byte 1 of every PDU; a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PduFlags(pub u8);

stands_as!(PduFlags(u8));

impl PduFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// A header digest follows the header.
    pub const HDGST: Self = Self(0x01);
    /// A data digest follows the data.
    pub const DDGST: Self = Self(0x02);
    /// The last data PDU of a command (C2HData) or of an R2T (H2CData).
    pub const LAST: Self = Self(0x04);
    /// C2HData only, with LAST: the command succeeded and no CapsuleResp follows.
    pub const SUCCESS: Self = Self(0x08);

    /// True if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and, if `condition`, those of `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, condition: bool) -> Self {
        Self(if condition { self.0 | other.0 } else { self.0 })
    }
}

impl core::ops::BitOr for PduFlags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for PduFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PduFlags({self})")
    }
}

impl fmt::Display for PduFlags {
    /// One letter a flag, as tcpdump prints TCP's: `h`, `d`, `L`, `S`; `.` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str(".");
        }
        for (bit, letter) in ["h", "d", "L", "S"].iter().enumerate() {
            if self.0 >> bit & 1 == 1 {
                f.write_str(letter)?;
            }
        }
        match self.0 & 0xf0 {
            0 => Ok(()),
            rest => write!(f, "+{rest:#x}"),
        }
    }
}

/// Which digests a connection uses, as agreed by ICReq and ICResp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Digests {
    /// CRC32C of every header.
    pub header: bool,
    /// CRC32C of every data block.
    pub data: bool,
}

impl Digests {
    /// Neither digest.
    pub const NONE: Self = Self { header: false, data: false };
    /// Size of one digest in bytes.
    pub const SIZE: usize = 4;

    /// From the DGST byte of ICReq or ICResp.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    /// As the DGST byte of ICReq or ICResp, and as FLAGS: the bits are the same.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }

    /// Bytes of a header digest: 4 or 0.
    #[inline]
    pub const fn header_bytes(self) -> u32 {
        if self.header { 4 } else { 0 }
    }

    /// Bytes of a data digest behind `data_length` bytes of data: 4 or 0, 0 without data.
    #[inline]
    pub const fn data_bytes(self, data_length: u32) -> u32 {
        if self.data && data_length != 0 { 4 } else { 0 }
    }
}

layout! {
    /// The 8 bytes every PDU begins with.
    pub struct CommonHeader[8] {
        /// PDU type.
        0 => kind: PduType,
        /// FLAGS.
        1 => flags: PduFlags,
        /// HLEN: bytes of the header, without digest.
        2 => header_length: u8,
        /// PDO: offset of the data from the start of the PDU, 0 without data.
        3 => data_offset: u8,
        /// PLEN: bytes of the whole PDU, with digests, padding and data.
        4 => length: u32,
    }
}

/// Where the data of a PDU lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Bytes from the start of the PDU to the data; everything between the header (and its digest)
    /// and here is padding.
    pub offset: u32,
    /// Bytes of data, without digest.
    pub length: u32,
}

impl CommonHeader {
    /// The header of a PDU of `kind` with `data_length` bytes of data placed right behind header
    /// and digest. Digest flags are set as the kind carries them; DDGST only with data.
    #[inline]
    pub const fn for_pdu(
        kind: PduType,
        flags: PduFlags,
        digests: Digests,
        data_length: u32,
    ) -> Self {
        let header_length = match expected_header_length(kind) {
            Some(length) => length,
            None => Self::SIZE as u8,
        };
        let digests = if kind.carries_digests() { digests } else { Digests::NONE };
        let before = header_length as u32 + digests.header_bytes();
        Self {
            kind,
            flags: flags
                .with(PduFlags::HDGST, digests.header)
                .with(PduFlags::DDGST, digests.data_bytes(data_length) != 0),
            header_length,
            data_offset: if data_length == 0 { 0 } else { before as u8 },
            length: before + data_length + digests.data_bytes(data_length),
        }
    }

    /// Checks what can be known from these 8 bytes: a known type, its HLEN, the digest flags as
    /// negotiated, and a PLEN and PDO that fit. A host's first PDU is checked with
    /// [`Digests::NONE`]. Whether this type may come now is the caller's to say.
    #[inline]
    pub fn check(&self, digests: Digests) -> Result<Payload, ParseError> {
        match expected_header_length(self.kind) {
            Some(length) if length == self.header_length => {}
            Some(length) => return Err(self.wrong_header_length(length)),
            None => return Err(self.unknown_kind()),
        }
        let agreed = self.kind.carries_digests() && digests.header;
        if self.flags.contains(PduFlags::HDGST) != agreed {
            return Err(self.wrong_flags("HDGST flag as negotiated"));
        }
        let payload = self.payload()?;
        let agreed = self.kind.carries_digests() && digests.data;
        if payload.length != 0 && self.flags.contains(PduFlags::DDGST) != agreed {
            return Err(self.wrong_flags("DDGST flag as negotiated"));
        }
        Ok(payload)
    }

    /// Where the data lies according to PLEN, PDO and the digest flags; length 0 without data.
    /// TermReq ignores PDO: its data begin at HLEN.
    #[inline]
    pub fn payload(&self) -> Result<Payload, ParseError> {
        let digest = if self.flags.contains(PduFlags::HDGST) { 4 } else { 0 };
        let before = u32::from(self.header_length) + digest;
        if self.length == before {
            return Ok(Payload { offset: before, length: 0 });
        }
        if self.length < before || !self.kind.carries_data() {
            let expected = if self.kind.carries_data() {
                Expected::AtLeast(before.into())
            } else {
                Expected::Exactly(before.into())
            };
            return Err(ParseError::new("PLEN", 4, expected, self.length.into()));
        }
        let offset = if self.kind.carries_digests() { u32::from(self.data_offset) } else { before };
        if offset < before || offset % 4 != 0 {
            return Err(ParseError::new(
                "PDO",
                3,
                Expected::Words("a multiple of 4 behind header and digest"),
                self.data_offset.into(),
            ));
        }
        let trailer = if self.flags.contains(PduFlags::DDGST) { 4 } else { 0 };
        // An empty data block with a digest of its own is not a thing the specification knows.
        if self.length <= offset + trailer {
            return Err(ParseError::new(
                "PLEN",
                4,
                Expected::AtLeast(u64::from(offset + trailer) + 1),
                self.length.into(),
            ));
        }
        Ok(Payload { offset, length: self.length - offset - trailer })
    }

    #[cold]
    fn wrong_header_length(&self, expected: u8) -> ParseError {
        let seen = self.header_length.into();
        ParseError::new("HLEN", 2, Expected::Exactly(expected.into()), seen)
    }

    #[cold]
    fn unknown_kind(&self) -> ParseError {
        let expected = Expected::Words("a known PDU type");
        ParseError::new("PDU-Type", 0, expected, self.kind.0.into())
    }

    #[cold]
    fn wrong_flags(&self, expected: &'static str) -> ParseError {
        ParseError::new("FLAGS", 1, Expected::Words(expected), self.flags.0.into())
    }

    #[inline]
    fn require(&self, kind: PduType) -> Result<(), ParseError> {
        if self.kind == kind {
            return Ok(());
        }
        let expected = Expected::Exactly(kind.0.into());
        Err(ParseError::new("PDU-Type", 0, expected, self.kind.0.into()))
    }
}

impl fmt::Display for CommonHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{}] hlen {} pdo {} plen {}",
            self.kind, self.flags, self.header_length, self.data_offset, self.length
        )
    }
}

mod connection;
mod transfer;

pub use connection::{FatalErrorStatus, ICReq, ICResp, TermReq};
pub use transfer::{CapsuleCommand, CapsuleResponse, DataHeader, R2T};

#[cfg(test)]
mod tests;
