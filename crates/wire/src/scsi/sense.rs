//! Sense data: why a command ended with CHECK CONDITION, or what REQUEST SENSE finds.
//!
//! ```text
//!  fixed        70 | 2 key | 3 INFORMATION (32) | 7 length | 8 COMMAND-SPECIFIC (32)
//!               12 code | 15 sense key specific
//!  descriptor   72 | 1 key | 2 code | 7 length | 8 descriptors: 00 information (64),
//!               01 command-specific (64), 02 sense key specific
//! ```
//! [`Sense`] is what either format says and emits both; which one a unit uses is its D_SENSE.
//! Deferred errors (71h, 73h) are read like current ones: their key and code say what happened.
//! INFORMATION is a byte offset or an LBA, as the code demands; the fixed format leaves it out when
//! it has more than 32 bits. Errors: an input that ends too early, or a response code that is none
//! of the four. Spec: SPC-4, "Sense data".

use core::fmt;

use super::{be16, be32, be64, put};
use crate::{Expected, ParseError};

mod additional;

pub use additional::AdditionalSense;

codes! {
    /// The kind of a failure: who may help.
    pub struct SenseKey(u8) {
        NO_SENSE = 0x0 "no sense",
        RECOVERED_ERROR = 0x1 "recovered error",
        NOT_READY = 0x2 "not ready",
        MEDIUM_ERROR = 0x3 "medium error",
        HARDWARE_ERROR = 0x4 "hardware error",
        ILLEGAL_REQUEST = 0x5 "illegal request",
        UNIT_ATTENTION = 0x6 "unit attention",
        DATA_PROTECT = 0x7 "data protect",
        BLANK_CHECK = 0x8 "blank check",
        VENDOR_SPECIFIC = 0x9 "vendor specific",
        COPY_ABORTED = 0xa "copy aborted",
        ABORTED_COMMAND = 0xb "aborted command",
        VOLUME_OVERFLOW = 0xd "volume overflow",
        MISCOMPARE = 0xe "miscompare",
        COMPLETED = 0xf "completed",
    }
}

/// Which field of a command, or of its parameter list, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// C/D: whether the field is in the command, else in its parameter list.
    pub in_command: bool,
    /// Its first byte.
    pub byte: u16,
    /// Its most significant bit, 0 to 7, where it is not the whole byte.
    pub bit: Option<u8>,
}

/// What sense data say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The kind of the failure.
    pub key: SenseKey,
    /// What failed.
    pub code: AdditionalSense,
    /// INFORMATION, if it is valid.
    pub information: Option<u64>,
    /// The field that is refused, of an illegal request.
    pub pointer: Option<FieldPointer>,
    /// COMMAND-SPECIFIC INFORMATION of a copy that was aborted: at which of its segments, from 0.
    pub segment: Option<u16>,
}

const FIXED: u8 = 0x70;
const DESCRIPTOR: u8 = 0x72;
/// SKSV: the sense key specific bytes are valid.
const SKSV: u8 = 0x80;

impl Sense {
    /// Nothing to say.
    pub const NONE: Self = Self::new(SenseKey::NO_SENSE, AdditionalSense::NONE);
    /// Bytes of the fixed format.
    pub const FIXED_SIZE: usize = 18;
    /// Most bytes of the descriptor format: the header, and each of its descriptors.
    pub const SIZE_MAX: usize = 8 + 12 + 12 + 8;

    /// Sense data of a key and a code.
    #[inline]
    pub const fn new(key: SenseKey, code: AdditionalSense) -> Self {
        Self { key, code, information: None, pointer: None, segment: None }
    }

    /// ILLEGAL REQUEST with this code.
    pub const fn illegal(code: AdditionalSense) -> Self {
        Self::new(SenseKey::ILLEGAL_REQUEST, code)
    }

    /// UNIT ATTENTION with this code.
    pub const fn attention(code: AdditionalSense) -> Self {
        Self::new(SenseKey::UNIT_ATTENTION, code)
    }

    /// INVALID FIELD IN CDB: this byte of the command, and its most significant bit.
    pub const fn invalid_field(byte: u16, bit: u8) -> Self {
        let pointer = FieldPointer { in_command: true, byte, bit: Some(bit) };
        Self { pointer: Some(pointer), ..Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB) }
    }

    /// INVALID FIELD IN PARAMETER LIST: the field that begins with this byte of the list.
    pub const fn invalid_parameter(byte: u16) -> Self {
        let pointer = FieldPointer { in_command: false, byte, bit: None };
        Self {
            pointer: Some(pointer),
            ..Self::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    /// With INFORMATION.
    #[must_use]
    pub const fn with_information(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }

    /// COPY ABORTED at this segment, from 0.
    pub const fn copy_aborted(code: AdditionalSense, segment: u16) -> Self {
        Self { segment: Some(segment), ..Self::new(SenseKey::COPY_ABORTED, code) }
    }

    /// The data in the format that a unit's D_SENSE asks for.
    pub fn emit(&self, descriptors: bool) -> Vec<u8> {
        match descriptors {
            true => self.emit_descriptor(),
            false => self.emit_fixed().to_vec(),
        }
    }

    /// The data in the fixed format.
    pub fn emit_fixed(&self) -> [u8; Self::FIXED_SIZE] {
        let mut bytes = [0; Self::FIXED_SIZE];
        bytes[0] = FIXED;
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            bytes[0] |= 0x80;
            put(&mut bytes, 3, information.to_be_bytes());
        }
        bytes[2] = self.key.0 & 0xf;
        bytes[7] = Self::FIXED_SIZE as u8 - 8;
        if let Some(segment) = self.segment {
            put(&mut bytes, 10, segment.to_be_bytes());
        }
        put(&mut bytes, 12, self.code.0.to_be_bytes());
        if let Some(pointer) = self.pointer {
            put(&mut bytes, 15, pointer.emit());
        }
        bytes
    }

    /// The data in the descriptor format.
    pub fn emit_descriptor(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes[0] = DESCRIPTOR;
        bytes[1] = self.key.0 & 0xf;
        put(&mut bytes, 2, self.code.0.to_be_bytes());
        if let Some(information) = self.information {
            bytes.extend([0x00, 10, 0x80, 0]);
            bytes.extend(information.to_be_bytes());
        }
        if let Some(segment) = self.segment {
            bytes.extend([0x01, 10, 0, 0]);
            bytes.extend(u64::from(segment).to_be_bytes());
        }
        if let Some(pointer) = self.pointer {
            let [a, b, c] = pointer.emit();
            bytes.extend([0x02, 6, 0, 0, a, b, c, 0]);
        }
        bytes[7] = bytes.len() as u8 - 8;
        bytes
    }

    /// Reads either format, as much of it as is there.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(response) = bytes.first() else { return Err(ParseError::short(8, 0)) };
        match response & 0x7f {
            0x70 | 0x71 => Self::parse_fixed(bytes),
            0x72 | 0x73 => Self::parse_descriptor(bytes),
            code => {
                let expected = Expected::Words("0x70 to 0x73");
                Err(ParseError::new("RESPONSE CODE", 0, expected, code.into()))
            }
        }
    }

    /// The fixed format; what lies behind the end of the data is zero.
    fn parse_fixed(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < 8 {
            return Err(ParseError::short(8, bytes.len()));
        }
        let there = bytes.len().min(8 + usize::from(bytes[7])).min(Self::FIXED_SIZE);
        let mut all = [0; Self::FIXED_SIZE];
        all[..there].copy_from_slice(&bytes[..there]);
        let key = SenseKey(all[2] & 0xf);
        Ok(Self {
            key,
            code: AdditionalSense(be16(&all, 12)),
            information: (all[0] & 0x80 != 0).then(|| be32(&all, 3).into()),
            pointer: FieldPointer::parse(key, [all[15], all[16], all[17]]),
            segment: (key == SenseKey::COPY_ABORTED).then(|| be16(&all, 10)),
        })
    }

    /// The descriptor format; descriptors that are cut or unknown are passed over.
    fn parse_descriptor(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < 8 {
            return Err(ParseError::short(8, bytes.len()));
        }
        let mut sense = Self::new(SenseKey(bytes[1] & 0xf), AdditionalSense(be16(bytes, 2)));
        let end = bytes.len().min(8 + usize::from(bytes[7]));
        let mut left = &bytes[8..end];
        while let [kind, length, rest @ ..] = left {
            let Some((body, behind)) = rest.split_at_checked(usize::from(*length)) else { break };
            match kind {
                0x00 if body.len() >= 10 && body[0] & 0x80 != 0 => {
                    sense.information = Some(be64(body, 2));
                }
                0x01 if body.len() >= 10 && sense.key == SenseKey::COPY_ABORTED => {
                    sense.segment = Some(be16(body, 8));
                }
                0x02 if body.len() >= 5 => {
                    let specific = [body[2], body[3], body[4]];
                    sense.pointer = FieldPointer::parse(sense.key, specific);
                }
                _ => {}
            }
            left = behind;
        }
        Ok(sense)
    }
}

impl FieldPointer {
    /// The three sense key specific bytes.
    fn emit(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let bit = self.bit.map_or(0, |bit| 0x08 | bit & 7);
        [SKSV | u8::from(self.in_command) << 6 | bit, high, low]
    }

    /// Those bytes read, if they are valid and a field pointer: what they mean is the key's to say.
    fn parse(key: SenseKey, bytes: [u8; 3]) -> Option<Self> {
        let is_pointer = key == SenseKey::ILLEGAL_REQUEST && bytes[0] & SKSV != 0;
        is_pointer.then(|| Self {
            in_command: bytes[0] & 0x40 != 0,
            byte: be16(&bytes, 1),
            bit: (bytes[0] & 0x08 != 0).then_some(bytes[0] & 7),
        })
    }
}

impl fmt::Display for FieldPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.in_command { "command" } else { "parameter" };
        write!(f, "{place} byte {}", self.byte)?;
        match self.bit {
            Some(bit) => write!(f, " bit {bit}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.code)?;
        if let Some(pointer) = self.pointer {
            write!(f, ", {pointer}")?;
        }
        if let Some(segment) = self.segment {
            write!(f, ", segment {segment}")?;
        }
        match self.information {
            Some(information) => write!(f, ", information {information:#x}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
