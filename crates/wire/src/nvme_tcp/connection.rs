//! The PDUs that begin and end a connection: ICReq, ICResp, H2CTermReq, C2HTermReq.
//!
//! None of them ever carries a digest. Spec: "Connection establishment", "TermReq".

use core::fmt;

use super::{CommonHeader, Digests, PduFlags, PduType};
use crate::field::Field;
use crate::{Expected, ParseError};

layout! {
    /// Initialize Connection Request: the first PDU of a connection, from the host.
    pub struct ICReq[128] {
        /// Type ICReq, HLEN and PLEN 128.
        0 => common: CommonHeader,
        /// PFV: PDU format version, 0.
        8 => format_version: u16,
        /// HPDA: data of C2HData are aligned to 4 * (HPDA + 1) bytes.
        10 => host_data_alignment: u8,
        /// DGST: digests the host asks for; bit 0 header, bit 1 data.
        11 => digest_bits: u8,
        /// MAXR2T: R2Ts outstanding per command, less one.
        12 => max_r2t: u32,
    }
}

layout! {
    /// Initialize Connection Response: the target's first PDU.
    pub struct ICResp[128] {
        /// Type ICResp, HLEN and PLEN 128.
        0 => common: CommonHeader,
        /// PFV: PDU format version, 0.
        8 => format_version: u16,
        /// CPDA: data of capsules and H2CData are aligned to 4 * (CPDA + 1) bytes.
        10 => controller_data_alignment: u8,
        /// DGST: digests in use from the next PDU on; bit 0 header, bit 1 data.
        11 => digest_bits: u8,
        /// MAXH2CDATA: most data bytes of one H2CData PDU; at least 4096, a multiple of 4.
        12 => max_h2c_data: u32,
    }
}

/// Largest HPDA or CPDA: 4 * 32 = 128 bytes.
const DATA_ALIGNMENT_MAX: u8 = 31;

impl ICReq {
    /// A request for `digests`, unaligned data and `max_r2t` + 1 outstanding R2Ts per command.
    pub fn new(digests: Digests, max_r2t: u32) -> Self {
        Self {
            common: CommonHeader::for_pdu(PduType::IC_REQ, PduFlags::NONE, Digests::NONE, 0),
            format_version: 0,
            host_data_alignment: 0,
            digest_bits: digests.bits(),
            max_r2t,
        }
    }

    /// The digests the host asks for.
    pub const fn digests(&self) -> Digests {
        Digests::from_bits(self.digest_bits)
    }

    /// Checks every field against the specification; which HPDA a target supports is its own to
    /// say. An unknown PFV is an error at offset 8 (FES "unsupported parameter" for a target).
    pub fn check(&self) -> Result<(), ParseError> {
        check_initialize(
            &self.common,
            PduType::IC_REQ,
            self.format_version,
            ("HPDA", self.host_data_alignment),
            self.digest_bits,
        )
    }
}

impl ICResp {
    /// Smallest MAXH2CDATA the specification allows.
    pub const MAX_H2C_DATA_MIN: u32 = 4096;

    /// A response that agrees to `digests`, wants unaligned data and takes H2CData PDUs of up to
    /// `max_h2c_data` bytes.
    pub fn new(digests: Digests, max_h2c_data: u32) -> Self {
        Self {
            common: CommonHeader::for_pdu(PduType::IC_RESP, PduFlags::NONE, Digests::NONE, 0),
            format_version: 0,
            controller_data_alignment: 0,
            digest_bits: digests.bits(),
            max_h2c_data,
        }
    }

    /// The digests in use from the next PDU on.
    pub const fn digests(&self) -> Digests {
        Digests::from_bits(self.digest_bits)
    }

    /// Checks every field against the specification, as strictly as the Linux host does.
    pub fn check(&self) -> Result<(), ParseError> {
        check_initialize(
            &self.common,
            PduType::IC_RESP,
            self.format_version,
            ("CPDA", self.controller_data_alignment),
            self.digest_bits,
        )?;
        if self.max_h2c_data < Self::MAX_H2C_DATA_MIN || !self.max_h2c_data.is_multiple_of(4) {
            return Err(ParseError::new(
                "MAXH2CDATA",
                12,
                Expected::Words("a multiple of 4, at least 4096"),
                self.max_h2c_data.into(),
            ));
        }
        Ok(())
    }
}

fn check_initialize(
    common: &CommonHeader,
    kind: PduType,
    format_version: u16,
    (alignment_name, alignment): (&'static str, u8),
    digest_bits: u8,
) -> Result<(), ParseError> {
    common.require(kind)?;
    common.check(Digests::NONE)?;
    if format_version != 0 {
        let seen = format_version.into();
        return Err(ParseError::new("PFV", 8, Expected::Exactly(0), seen));
    }
    if alignment > DATA_ALIGNMENT_MAX {
        let expected = Expected::AtMost(DATA_ALIGNMENT_MAX.into());
        return Err(ParseError::new(alignment_name, 10, expected, alignment.into()));
    }
    if digest_bits & !3 != 0 {
        let seen = digest_bits.into();
        return Err(ParseError::new("DGST", 11, Expected::AtMost(3), seen));
    }
    Ok(())
}

impl fmt::Display for ICReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ICReq pfv {} hpda {} dgst {} maxr2t {}",
            self.format_version, self.host_data_alignment, self.digest_bits, self.max_r2t
        )
    }
}

impl fmt::Display for ICResp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ICResp pfv {} cpda {} dgst {} maxh2cdata {}",
            self.format_version,
            self.controller_data_alignment,
            self.digest_bits,
            self.max_h2c_data
        )
    }
}

codes! {
    /// FES: why a connection is terminated.
    pub struct FatalErrorStatus(u16) {
        INVALID_HEADER_FIELD = 1 "invalid PDU header field",
        SEQUENCE_ERROR = 2 "PDU sequence error",
        HEADER_DIGEST_ERROR = 3 "header digest error",
        DATA_OUT_OF_RANGE = 4 "data transfer out of range",
        LIMIT_EXCEEDED = 5 "R2T or data transfer limit exceeded",
        UNSUPPORTED_PARAMETER = 6 "unsupported parameter",
    }
}

/// H2CTermReq and C2HTermReq: the sender closes the connection and says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq {
    /// [`PduType::H2C_TERM_REQ`] or [`PduType::C2H_TERM_REQ`].
    pub kind: PduType,
    /// FES.
    pub fes: FatalErrorStatus,
    /// FEI: offset of the bad field for FES 1 and 6, the received digest for FES 3.
    pub fei: u32,
    header: [u8; TermReq::OFFENDING_HEADER_MAX],
    header_length: u8,
}

impl TermReq {
    /// Most bytes of the offending header that are sent back.
    pub const OFFENDING_HEADER_MAX: usize = 128;
    /// Most bytes of the whole PDU.
    pub const SIZE_MAX: usize = 24 + Self::OFFENDING_HEADER_MAX;

    /// A request of `kind` about `offending_header`, cut to 128 bytes.
    pub fn new(kind: PduType, fes: FatalErrorStatus, fei: u32, offending_header: &[u8]) -> Self {
        let length = offending_header.len().min(Self::OFFENDING_HEADER_MAX);
        let mut header = [0; Self::OFFENDING_HEADER_MAX];
        header[..length].copy_from_slice(&offending_header[..length]);
        Self { kind, fes, fei, header, header_length: length as u8 }
    }

    /// The header that was sent back, up to 128 bytes.
    pub fn offending_header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }

    /// Reads the whole PDU: 24 bytes and the offending header behind them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let common = CommonHeader::parse(bytes)?;
        if common.kind != PduType::C2H_TERM_REQ {
            common.require(PduType::H2C_TERM_REQ)?;
        }
        let payload = common.check(Digests::NONE)?;
        if common.length as usize > Self::SIZE_MAX {
            let expected = Expected::AtMost(Self::SIZE_MAX as u64);
            return Err(ParseError::new("PLEN", 4, expected, common.length.into()));
        }
        let Some(header) = bytes.get(24..24 + payload.length as usize) else {
            return Err(ParseError::short(common.length as usize, bytes.len()));
        };
        let fes = FatalErrorStatus::get(bytes, 8);
        Ok(Self::new(common.kind, fes, u32::get(bytes, 10), header))
    }

    /// Writes the PDU and returns its length; the bytes behind it stay as they were.
    pub fn emit(&self, bytes: &mut [u8; Self::SIZE_MAX]) -> usize {
        let header = self.offending_header();
        let length = 24 + header.len();
        let none = (PduFlags::NONE, Digests::NONE);
        let common = CommonHeader::for_pdu(self.kind, none.0, none.1, 0);
        let common = CommonHeader { length: length as u32, ..common };
        bytes[..24].fill(0);
        common.put(bytes, 0);
        self.fes.put(bytes, 8);
        self.fei.put(bytes, 10);
        bytes[24..length].copy_from_slice(header);
        length
    }
}

impl fmt::Display for TermReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, fei {}", self.kind, self.fes, self.fei)?;
        match CommonHeader::parse(self.offending_header()) {
            Ok(header) => write!(f, " in ({header})"),
            Err(_) => Ok(()),
        }
    }
}
