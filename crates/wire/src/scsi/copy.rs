//! Third-party copies: the parameter list of EXTENDED COPY(LID1), and what RECEIVE COPY RESULTS
//! returns.
//!
//! ```text
//!  0 list ID | 1 STR, usage, priority | 2 CSCD length (16) | 8 segment length (32) | 12 inline (32)
//!  16 CSCD descriptors of 32 bytes | segment descriptors | inline data
//! ```
//! Descriptors that we know are values, others keep their type code: whether they are refused, and
//! how many there may be, is the target's to say. Units: segments are blocks of the source or the
//! destination, as DC says. Errors: an input that ends before what its lengths say. Spec: SPC-4,
//! "EXTENDED COPY(LID1) command", "RECEIVE COPY OPERATING PARAMETERS command", "RECEIVE COPY
//! STATUS(LID1) command", "RECEIVE COPY FAILURE DETAILS(LID1) command".

use super::vpd::{Association, CodeSet, DesignatorKind};
use super::{be16, be24, be32, be64, put};
use crate::{Expected, ParseError};

mod results;

pub use results::{CopyFailureDetails, CopyOperatingParameters, CopyStatus, CopyStatusCode};

/// The parameter list of EXTENDED COPY(LID1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER.
    pub id: u8,
    /// LIST ID USAGE: 0 hold data, 2 discard them, 3 the identifier means nothing.
    pub id_usage: u8,
    /// PRIORITY, 0 to 7.
    pub priority: u8,
    /// What is copied from and to: a segment names them by their numbers here.
    pub places: Vec<CopyPlace>,
    /// What is copied.
    pub segments: Vec<CopySegment>,
    /// INLINE DATA.
    pub inline: Vec<u8>,
}

/// A copy source or destination (CSCD descriptor).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// Identification descriptor, E4h: the unit of this designator.
    Identification {
        /// PERIPHERAL DEVICE TYPE.
        device_type: u8,
        /// NUL of SPC-3: there is no such unit, whatever the rest says.
        null: bool,
        /// RELATIVE INITIATOR PORT IDENTIFIER.
        relative_initiator_port: u16,
        /// What the designator is written in.
        code_set: CodeSet,
        /// What has it.
        association: Association,
        /// Its kind.
        kind: DesignatorKind,
        /// The designator, at most 20 bytes.
        designator: Vec<u8>,
        /// DISK BLOCK LENGTH, bytes.
        block_length: u32,
        /// PAD.
        pad: bool,
    },
    /// Another one, by its type code and what follows.
    Other(u8, [u8; 31]),
}

/// A segment descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopySegment {
    /// Block device to block device, 02h.
    Blocks {
        /// DC: the count is in blocks of the destination, else of the source.
        destination_counts: bool,
        /// CAT.
        concatenate: bool,
        /// Which place is the source.
        source: u16,
        /// Which one is the destination.
        destination: u16,
        /// BLOCK DEVICE NUMBER OF BLOCKS.
        blocks: u16,
        /// First block there.
        source_lba: u64,
        /// First block here.
        destination_lba: u64,
    },
    /// Another one, by its type code and all behind its header of 4 bytes.
    Other(u8, Vec<u8>),
}

impl CopyList {
    /// Bytes in front of the descriptors.
    pub const HEADER: usize = 16;

    /// The list as bytes. Panics if there are more places than its length can say (2047).
    pub fn emit(&self) -> Vec<u8> {
        let places: Vec<u8> = self.places.iter().flat_map(CopyPlace::emit).collect();
        let segments: Vec<u8> = self.segments.iter().flat_map(CopySegment::emit).collect();
        let places_length = u16::try_from(places.len()).expect("at most 2047 places");
        let mut bytes = vec![0; Self::HEADER];
        bytes[0] = self.id;
        bytes[1] = (self.id_usage & 3) << 3 | self.priority & 7;
        put(&mut bytes, 2, places_length.to_be_bytes());
        put(&mut bytes, 8, (segments.len() as u32).to_be_bytes());
        put(&mut bytes, 12, (self.inline.len() as u32).to_be_bytes());
        bytes.extend(places);
        bytes.extend(segments);
        bytes.extend(&self.inline);
        bytes
    }

    /// Reads a list.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some((head, rest)) = bytes.split_at_checked(Self::HEADER) else {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        };
        let lengths = [
            ("CSCD DESCRIPTOR LIST LENGTH", 2, usize::from(be16(head, 2))),
            ("SEGMENT DESCRIPTOR LIST LENGTH", 8, be32(head, 8) as usize),
            ("INLINE DATA LENGTH", 12, be32(head, 12) as usize),
        ];
        let mut left = rest;
        let mut parts = [&rest[..0]; 3];
        for (part, (field, offset, length)) in parts.iter_mut().zip(lengths) {
            let Some((here, behind)) = left.split_at_checked(length) else {
                let expected = Expected::AtMost(left.len() as u64);
                return Err(ParseError::new(field, offset, expected, length as u64));
            };
            (*part, left) = (here, behind);
        }
        let [places, segments, inline] = parts;
        Ok(Self {
            id: head[0],
            id_usage: head[1] >> 3 & 3,
            priority: head[1] & 7,
            places: Self::parse_places(places)?,
            segments: Self::parse_segments(segments)?,
            inline: inline.to_vec(),
        })
    }

    fn parse_places(bytes: &[u8]) -> Result<Vec<CopyPlace>, ParseError> {
        let (places, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            let expected = Expected::Words("a multiple of 32");
            let field = "CSCD DESCRIPTOR LIST LENGTH";
            return Err(ParseError::new(field, 2, expected, bytes.len() as u64));
        }
        Ok(places.iter().map(CopyPlace::parse).collect())
    }

    fn parse_segments(mut bytes: &[u8]) -> Result<Vec<CopySegment>, ParseError> {
        let mut segments = Vec::new();
        while !bytes.is_empty() {
            let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
                return Err(ParseError::short(4, bytes.len()));
            };
            let length = usize::from(be16(head, 2));
            let Some((body, behind)) = rest.split_at_checked(length) else {
                let expected = Expected::AtMost(rest.len() as u64);
                return Err(ParseError::new("DESCRIPTOR LENGTH", 2, expected, length as u64));
            };
            segments.push(CopySegment::parse(head, body));
            bytes = behind;
        }
        Ok(segments)
    }
}

impl CopyPlace {
    /// Bytes of a descriptor.
    pub const SIZE: usize = 32;
    /// The number that stands for the unit which has the command, of whatever place.
    pub const THIS_UNIT: u16 = 0xffff;
    /// Type code of the identification descriptor.
    pub const IDENTIFICATION: u8 = 0xe4;

    fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        match self {
            Self::Identification {
                device_type,
                null,
                relative_initiator_port,
                code_set,
                association,
                kind,
                designator,
                block_length,
                pad,
            } => {
                let length = designator.len().min(20);
                put(&mut bytes, 28, block_length.to_be_bytes());
                bytes[0] = Self::IDENTIFICATION;
                bytes[1] = u8::from(*null) << 5 | device_type & 0x1f;
                put(&mut bytes, 2, relative_initiator_port.to_be_bytes());
                bytes[4] = code_set.0 & 0xf;
                bytes[5] = (association.0 & 3) << 4 | kind.0 & 0xf;
                bytes[7] = length as u8;
                bytes[8..8 + length].copy_from_slice(&designator[..length]);
                bytes[28] = u8::from(*pad) << 2;
            }
            Self::Other(code, rest) => {
                bytes[0] = *code;
                bytes[1..].copy_from_slice(rest);
            }
        }
        bytes
    }

    fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        // Designators that do not fit are of no kind that we know. LU ID TYPE is obsolete.
        let length = usize::from(bytes[7]);
        if bytes[0] != Self::IDENTIFICATION || length > 20 {
            let mut rest = [0; 31];
            rest.copy_from_slice(&bytes[1..]);
            return Self::Other(bytes[0], rest);
        }
        Self::Identification {
            device_type: bytes[1] & 0x1f,
            null: bytes[1] & 0x20 != 0,
            relative_initiator_port: be16(bytes, 2),
            code_set: CodeSet(bytes[4] & 0xf),
            association: Association(bytes[5] >> 4 & 3),
            kind: DesignatorKind(bytes[5] & 0xf),
            designator: bytes[8..8 + length].to_vec(),
            block_length: be24(bytes, 29),
            pad: bytes[28] & 4 != 0,
        }
    }
}

impl CopySegment {
    /// Type code of a copy from blocks to blocks.
    pub const BLOCKS: u8 = 0x02;
    /// Its length behind the header.
    const BLOCKS_LENGTH: usize = 0x18;

    fn emit(&self) -> Vec<u8> {
        match self {
            Self::Blocks {
                destination_counts,
                concatenate,
                source,
                destination,
                blocks,
                source_lba,
                destination_lba,
            } => {
                let mut bytes = vec![0; 4 + Self::BLOCKS_LENGTH];
                bytes[0] = Self::BLOCKS;
                bytes[1] = u8::from(*destination_counts) << 1 | u8::from(*concatenate);
                bytes[3] = Self::BLOCKS_LENGTH as u8;
                put(&mut bytes, 4, source.to_be_bytes());
                put(&mut bytes, 6, destination.to_be_bytes());
                put(&mut bytes, 10, blocks.to_be_bytes());
                put(&mut bytes, 12, source_lba.to_be_bytes());
                put(&mut bytes, 20, destination_lba.to_be_bytes());
                bytes
            }
            Self::Other(code, rest) => {
                let mut bytes = vec![*code, 0, 0, 0];
                put(&mut bytes, 2, (rest.len() as u16).to_be_bytes());
                bytes.extend(rest);
                bytes
            }
        }
    }

    fn parse(head: &[u8; 4], body: &[u8]) -> Self {
        if head[0] != Self::BLOCKS || body.len() != Self::BLOCKS_LENGTH {
            return Self::Other(head[0], body.to_vec());
        }
        Self::Blocks {
            destination_counts: head[1] & 2 != 0,
            concatenate: head[1] & 1 != 0,
            source: be16(body, 0),
            destination: be16(body, 2),
            blocks: be16(body, 6),
            source_lba: be64(body, 8),
            destination_lba: be64(body, 16),
        }
    }
}

#[cfg(test)]
mod tests;
