//! Designators, the names that VPD page 83h lists: of the unit, of the port, of the device.
//!
//! ```text
//!  0 protocol, code set | 1 PIV, association, type | 3 length | 4 the name
//! ```
//! Errors: a list whose entries do not fit it. Spec: SPC-4, "Device Identification VPD page" and
//! "Designation descriptor".

use core::fmt;

use super::super::{ProtocolId, hex};
use crate::{Expected, ParseError, ascii_text};

codes! {
    /// CODE SET: what a name is written in.
    pub struct CodeSet(u8) {
        BINARY = 1 "binary",
        ASCII = 2 "ASCII",
        UTF8 = 3 "UTF-8",
    }
}

codes! {
    /// ASSOCIATION: what has the name.
    pub struct Association(u8) {
        LOGICAL_UNIT = 0 "unit",
        TARGET_PORT = 1 "port",
        TARGET_DEVICE = 2 "device",
    }
}

codes! {
    /// DESIGNATOR TYPE.
    pub struct DesignatorKind(u8) {
        VENDOR_SPECIFIC = 0x0 "vendor specific",
        T10_VENDOR_ID = 0x1 "T10 vendor ID",
        EUI64 = 0x2 "EUI-64",
        NAA = 0x3 "NAA",
        RELATIVE_TARGET_PORT = 0x4 "relative target port",
        TARGET_PORT_GROUP = 0x5 "target port group",
        LOGICAL_UNIT_GROUP = 0x6 "logical unit group",
        MD5_LOGICAL_UNIT = 0x7 "MD5 logical unit",
        SCSI_NAME_STRING = 0x8 "SCSI name string",
        UUID = 0xa "UUID",
    }
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designator {
    /// The protocol that the name belongs to, of ports and devices (PIV).
    pub protocol: Option<ProtocolId>,
    /// What it is written in.
    pub code_set: CodeSet,
    /// What has it.
    pub association: Association,
    /// What kind of name it is.
    pub kind: DesignatorKind,
    /// The name, at most 255 bytes.
    pub value: Vec<u8>,
}

impl Designator {
    const HEADER: usize = 4;

    /// A name of the logical unit.
    pub fn of_unit(kind: DesignatorKind, code_set: CodeSet, value: &[u8]) -> Self {
        let association = Association::LOGICAL_UNIT;
        Self { protocol: None, code_set, association, kind, value: value.to_vec() }
    }

    /// A name of the port or the device, which its protocol gave it.
    pub fn of_target(
        association: Association,
        protocol: ProtocolId,
        kind: DesignatorKind,
        code_set: CodeSet,
        value: &[u8],
    ) -> Self {
        Self { protocol: Some(protocol), code_set, association, kind, value: value.to_vec() }
    }

    /// A SCSI name string's bytes: NUL-terminated and padded with NULs to a multiple of 4. Cut to
    /// what a designator can hold.
    pub fn name_string(name: &str) -> Vec<u8> {
        let mut end = name.len().min(251);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut value = name.as_bytes()[..end].to_vec();
        value.resize((value.len() + 1).next_multiple_of(4), 0);
        value
    }

    fn emit_to(&self, bytes: &mut Vec<u8>) {
        let length = u8::try_from(self.value.len()).expect("a designator has at most 255 bytes");
        let protocol = self.protocol.map_or(0, |protocol| protocol.0 << 4);
        let piv = u8::from(self.protocol.is_some()) << 7;
        bytes.extend([
            protocol | self.code_set.0 & 0xf,
            piv | (self.association.0 & 3) << 4 | self.kind.0 & 0xf,
            0,
            length,
        ]);
        bytes.extend(&self.value);
    }
}

impl fmt::Display for Designator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.association, self.kind)?;
        match self.code_set {
            CodeSet::ASCII | CodeSet::UTF8 => f.write_str(&ascii_text(&self.value)),
            _ => hex(f, &self.value),
        }
    }
}

/// The body of page 83h.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesignatorList(pub Vec<Designator>);

impl DesignatorList {
    /// The list as bytes. Panics if a name has more than 255 bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.iter().for_each(|designator| designator.emit_to(&mut bytes));
        bytes
    }

    /// Reads the body of a page.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut list = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let Some((head, rest)) = bytes[at..].split_first_chunk::<{ Designator::HEADER }>()
            else {
                return Err(ParseError::short(at + Designator::HEADER, bytes.len()));
            };
            let length = usize::from(head[3]);
            let Some(value) = rest.get(..length) else {
                let expected = Expected::AtMost(rest.len() as u64);
                return Err(ParseError::new("DESIGNATOR LENGTH", at + 3, expected, length as u64));
            };
            list.push(Designator {
                protocol: (head[1] & 0x80 != 0).then_some(ProtocolId(head[0] >> 4)),
                code_set: CodeSet(head[0] & 0xf),
                association: Association(head[1] >> 4 & 3),
                kind: DesignatorKind(head[1] & 0xf),
                value: value.to_vec(),
            });
            at += Designator::HEADER + length;
        }
        Ok(Self(list))
    }

    /// The best name of the unit: NAA, else EUI-64, else a UUID, else what the vendor made up.
    pub fn unit_name(&self) -> Option<&Designator> {
        let order = [
            DesignatorKind::NAA,
            DesignatorKind::EUI64,
            DesignatorKind::UUID,
            DesignatorKind::SCSI_NAME_STRING,
            DesignatorKind::T10_VENDOR_ID,
        ];
        let of_unit = |kind| {
            let is_it = move |name: &&Designator| {
                name.kind == kind && name.association == Association::LOGICAL_UNIT
            };
            self.0.iter().find(is_it)
        };
        order.into_iter().find_map(of_unit)
    }
}
