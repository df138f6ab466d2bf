//! The lists of Identify: active namespaces (02h, 07h, 10h), descriptors (03h), command sets (1Ch).

use core::fmt;

use super::{CommandSet, IDENTIFY_SIZE};
use crate::field::Field;
use crate::{Expected, ParseError};

/// An ascending list of up to 1024 NSIDs, ended by 0 when shorter.
#[derive(Clone, Copy, Debug)]
pub struct ActiveNamespaces;

impl ActiveNamespaces {
    /// NSIDs in one list.
    pub const COUNT_MAX: usize = 1024;

    /// The list of the first 1024 of `nsids`, which the caller gives in ascending order and already
    /// above the command's NSID.
    pub fn emit(nsids: impl IntoIterator<Item = u32>) -> [u8; IDENTIFY_SIZE] {
        let mut bytes = [0; IDENTIFY_SIZE];
        for (slot, nsid) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(nsids) {
            *slot = nsid.to_le_bytes();
        }
        bytes
    }

    /// The NSIDs of a list, up to the first 0.
    pub fn parse(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
        let words = bytes.as_chunks::<4>().0.iter();
        words
            .map(|word| u32::from_le_bytes(*word))
            .take(Self::COUNT_MAX)
            .take_while(|&nsid| nsid != 0)
    }
}

codes! {
    /// NIDT: what kind of name a descriptor holds.
    pub struct NamespaceIdType(u8) {
        EUI64 = 1 "EUI-64",
        NGUID = 2 "NGUID",
        UUID = 3 "UUID",
        CSI = 4 "CSI",
    }
}

/// One name of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceDescriptor {
    /// EUI-64.
    Eui64([u8; 8]),
    /// NGUID.
    Nguid([u8; 16]),
    /// UUID, RFC 9562 byte order.
    Uuid([u8; 16]),
    /// I/O command set.
    CommandSet(CommandSet),
}

impl fmt::Display for NamespaceDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes): (_, &[u8]) = match self {
            Self::Eui64(bytes) => ("eui64", bytes),
            Self::Nguid(bytes) => ("nguid", bytes),
            Self::Uuid(bytes) => ("uuid", bytes),
            Self::CommandSet(set) => return write!(f, "csi {set}"),
        };
        write!(f, "{name} ")?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The Namespace Identification Descriptor list, 4096 bytes, ended by a descriptor of length 0.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorList;

impl DescriptorList {
    /// The list of `descriptors`; panics when they are more than 4096 bytes hold (200 of the
    /// largest), since a namespace has at most one of each kind.
    pub fn emit(descriptors: &[NamespaceDescriptor]) -> [u8; IDENTIFY_SIZE] {
        let mut bytes = [0; IDENTIFY_SIZE];
        let mut at = 0;
        for descriptor in descriptors {
            let csi;
            let (kind, value): (_, &[u8]) = match descriptor {
                NamespaceDescriptor::Eui64(value) => (NamespaceIdType::EUI64, value),
                NamespaceDescriptor::Nguid(value) => (NamespaceIdType::NGUID, value),
                NamespaceDescriptor::Uuid(value) => (NamespaceIdType::UUID, value),
                NamespaceDescriptor::CommandSet(set) => {
                    csi = [set.0];
                    (NamespaceIdType::CSI, &csi)
                }
            };
            bytes[at] = kind.0;
            bytes[at + 1] = value.len() as u8;
            bytes[at + 4..at + 4 + value.len()].copy_from_slice(value);
            at += 4 + value.len();
        }
        bytes
    }

    /// The names of known kind, in order; unknown kinds are skipped by their length. Errors: a
    /// known kind with another length than its own, a descriptor that passes the end.
    pub fn parse(bytes: &[u8]) -> Result<Vec<NamespaceDescriptor>, ParseError> {
        let mut names = Vec::new();
        let mut at = 0;
        while let Some(&[kind, length, _, _]) = bytes.get(at..at + 4) {
            if length == 0 {
                break;
            }
            let start = at + 4;
            let Some(value) = bytes.get(start..start + usize::from(length)) else {
                let expected = Expected::AtMost(bytes.len().saturating_sub(start) as u64);
                return Err(ParseError::new("NIDL", at + 1, expected, length.into()));
            };
            let wrong = |wanted| {
                let expected = Expected::Exactly(wanted);
                Err(ParseError::new("NIDL", at + 1, expected, length.into()))
            };
            match (NamespaceIdType(kind), length) {
                (NamespaceIdType::EUI64, 8) => {
                    names.push(NamespaceDescriptor::Eui64(Field::get(value, 0)));
                }
                (NamespaceIdType::NGUID, 16) => {
                    names.push(NamespaceDescriptor::Nguid(Field::get(value, 0)));
                }
                (NamespaceIdType::UUID, 16) => {
                    names.push(NamespaceDescriptor::Uuid(Field::get(value, 0)));
                }
                (NamespaceIdType::CSI, 1) => {
                    names.push(NamespaceDescriptor::CommandSet(CommandSet(value[0])));
                }
                (NamespaceIdType::EUI64, _) => return wrong(8),
                (NamespaceIdType::NGUID | NamespaceIdType::UUID, _) => return wrong(16),
                (NamespaceIdType::CSI, _) => return wrong(1),
                _ => {}
            }
            at = start + usize::from(length);
        }
        Ok(names)
    }
}
