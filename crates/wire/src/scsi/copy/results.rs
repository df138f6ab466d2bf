//! What RECEIVE COPY RESULTS returns: the limits of a copy manager, and how far a copy is.
//!
//! Units: lengths are bytes, the granularity a power of two of bytes. Errors: an input that ends too
//! early. Spec: SPC-4, "RECEIVE COPY OPERATING PARAMETERS command", "RECEIVE COPY STATUS(LID1)
//! command", "RECEIVE COPY FAILURE DETAILS(LID1) command".

use crate::ParseError;
use crate::scsi::{ScsiStatus, be16, be32, put};

/// The data of RECEIVE COPY OPERATING PARAMETERS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyOperatingParameters {
    /// SNLID: a list needs no identifier.
    pub needs_no_id: bool,
    /// MAXIMUM CSCD DESCRIPTOR COUNT.
    pub places_max: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub segments_max: u16,
    /// MAXIMUM DESCRIPTOR LIST LENGTH.
    pub list_max: u32,
    /// MAXIMUM SEGMENT LENGTH.
    pub segment_max: u32,
    /// MAXIMUM INLINE DATA LENGTH.
    pub inline_max: u32,
    /// HELD DATA LIMIT.
    pub held_max: u32,
    /// TOTAL CONCURRENT COPIES.
    pub total_copies_max: u16,
    /// MAXIMUM CONCURRENT COPIES.
    pub copies_max: u8,
    /// DATA SEGMENT GRANULARITY.
    pub granularity: u8,
    /// The descriptor type codes that are there, ascending; at most 255 are said.
    pub types: Vec<u8>,
}

impl CopyOperatingParameters {
    /// Bytes without the type codes.
    const FIXED: usize = 44;

    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let types = &self.types[..self.types.len().min(255)];
        let mut bytes = vec![0; Self::FIXED];
        put(&mut bytes, 0, ((Self::FIXED - 4 + types.len()) as u32).to_be_bytes());
        bytes[4] = u8::from(self.needs_no_id);
        put(&mut bytes, 8, self.places_max.to_be_bytes());
        put(&mut bytes, 10, self.segments_max.to_be_bytes());
        put(&mut bytes, 12, self.list_max.to_be_bytes());
        put(&mut bytes, 16, self.segment_max.to_be_bytes());
        put(&mut bytes, 20, self.inline_max.to_be_bytes());
        put(&mut bytes, 24, self.held_max.to_be_bytes());
        put(&mut bytes, 34, self.total_copies_max.to_be_bytes());
        (bytes[36], bytes[37], bytes[43]) = (self.copies_max, self.granularity, types.len() as u8);
        bytes.extend(types);
        bytes
    }

    /// Reads the data, all of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some((fixed, rest)) = bytes.split_at_checked(Self::FIXED) else {
            return Err(ParseError::short(Self::FIXED, bytes.len()));
        };
        let length = usize::from(fixed[43]);
        let Some(types) = rest.get(..length) else {
            return Err(ParseError::short(Self::FIXED + length, bytes.len()));
        };
        Ok(Self {
            needs_no_id: fixed[4] & 1 != 0,
            places_max: be16(fixed, 8),
            segments_max: be16(fixed, 10),
            list_max: be32(fixed, 12),
            segment_max: be32(fixed, 16),
            inline_max: be32(fixed, 20),
            held_max: be32(fixed, 24),
            total_copies_max: be16(fixed, 34),
            copies_max: fixed[36],
            granularity: fixed[37],
            types: types.to_vec(),
        })
    }
}

codes! {
    /// COPY MANAGER STATUS, without HDD.
    pub struct CopyStatusCode(u8) {
        IN_PROGRESS = 0x00 "in progress",
        COMPLETED = 0x01 "completed without errors",
        FAILED = 0x02 "completed with errors",
    }
}

layout! { big_endian:
    /// The data of RECEIVE COPY STATUS(LID1).
    pub struct CopyStatus[12] {
        /// AVAILABLE DATA: 8.
        0 => available: u32,
        /// HDD in bit 7, COPY MANAGER STATUS.
        4 => status: CopyStatusCode,
        /// SEGMENTS PROCESSED.
        5 => segments: u16,
        /// TRANSFER COUNT UNITS: 0 for bytes, 1 for KiB.
        7 => units: u8,
        /// TRANSFER COUNT.
        8 => transferred: u32,
    }
}

/// The data of RECEIVE COPY FAILURE DETAILS(LID1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFailureDetails {
    /// EXTENDED COPY COMMAND STATUS: with which status the copy was answered.
    pub status: ScsiStatus,
    /// The sense data that it was answered with.
    pub sense: Vec<u8>,
}

impl CopyFailureDetails {
    /// Bytes in front of the sense data.
    const FIXED: usize = 60;

    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::FIXED];
        put(&mut bytes, 0, ((Self::FIXED - 4 + self.sense.len()) as u32).to_be_bytes());
        bytes[56] = self.status.0;
        put(&mut bytes, 58, (self.sense.len() as u16).to_be_bytes());
        bytes.extend(&self.sense);
        bytes
    }

    /// Reads the data, all of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some((fixed, rest)) = bytes.split_at_checked(Self::FIXED) else {
            return Err(ParseError::short(Self::FIXED, bytes.len()));
        };
        let length = usize::from(be16(fixed, 58));
        let Some(sense) = rest.get(..length) else {
            return Err(ParseError::short(Self::FIXED + length, bytes.len()));
        };
        Ok(Self { status: ScsiStatus(fixed[56]), sense: sense.to_vec() })
    }
}
