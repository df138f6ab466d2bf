//! TransportIDs: who an initiator port is, as its transport names it.
//!
//! ```text
//!  0 FORMAT CODE, PROTOCOL IDENTIFIER | 2 length (16) | 4 iSCSI name, NUL-terminated, padded to 4
//! ```
//! Of iSCSI the length is there; of other transports an identifier has 24 bytes, which are kept as
//! they are. Errors: an input that ends too early, an iSCSI name whose length is no multiple of 4
//! or that has no NUL. Spec: SPC-4, "TransportID identifiers".

use core::fmt;

use crate::scsi::{ProtocolId, be16, hex, put};
use crate::{Expected, ParseError, ascii_text};

/// An initiator port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportId {
    /// Its transport.
    pub protocol: ProtocolId,
    /// FORMAT CODE; of iSCSI 0 for the name of the device, 1 with `,i,0x` and the ISID behind it.
    pub format: u8,
    /// The name: of iSCSI without its NULs, else what follows the first byte.
    pub name: Vec<u8>,
}

impl TransportId {
    /// Bytes in front of an iSCSI name.
    const HEADER: usize = 4;
    /// Bytes of an identifier of another transport.
    const OTHER: usize = 24;

    /// The port of an iSCSI initiator: its name and its ISID.
    pub fn iscsi(name: &str, isid: [u8; 6]) -> Self {
        let isid = isid.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let name = format!("{name},i,0x{isid}").into_bytes();
        Self { protocol: ProtocolId::ISCSI, format: 1, name }
    }

    /// The identifier as bytes; a multiple of 4, and 24 or more. Panics if a name is longer than its
    /// length can say.
    pub fn emit(&self) -> Vec<u8> {
        let first = (self.format & 3) << 6 | self.protocol.0 & 0xf;
        if self.protocol != ProtocolId::ISCSI {
            let mut bytes = vec![first];
            bytes.extend(&self.name);
            bytes.resize(Self::OTHER, 0);
            return bytes;
        }
        let length = (self.name.len() + 1).next_multiple_of(4).max(Self::OTHER - Self::HEADER);
        let mut bytes = vec![first, 0, 0, 0];
        let said = u16::try_from(length).expect("a name is shorter than 64 KiB");
        put(&mut bytes, 2, said.to_be_bytes());
        bytes.extend(&self.name);
        bytes.resize(Self::HEADER + length, 0);
        bytes
    }

    /// Reads the identifier that is all of these bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Self::parse_first(bytes).map(|(id, _)| id)
    }

    /// Reads the first identifier, and returns what lies behind it.
    pub fn parse_first(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let (protocol, format) = (ProtocolId(bytes[0] & 0xf), bytes[0] >> 6);
        let said = be16(bytes, 2);
        let (start, length) = match protocol {
            ProtocolId::ISCSI if !said.is_multiple_of(4) => {
                let expected = Expected::Words("a multiple of 4");
                return Err(ParseError::new("ADDITIONAL LENGTH", 2, expected, said.into()));
            }
            ProtocolId::ISCSI => (Self::HEADER, Self::HEADER + usize::from(said)),
            _ => (1, Self::OTHER),
        };
        let Some((all, behind)) = bytes.split_at_checked(length) else {
            return Err(ParseError::short(length, bytes.len()));
        };
        let mut name = &all[start..];
        if protocol == ProtocolId::ISCSI {
            let Some(end) = name.iter().position(|&byte| byte == 0) else {
                let expected = Expected::Words("a name that ends with NUL");
                let seen = name.len() as u64;
                return Err(ParseError::new("ISCSI NAME", Self::HEADER, expected, seen));
            };
            name = &name[..end];
        }
        Ok((Self { protocol, format, name: name.to_vec() }, behind))
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            ProtocolId::ISCSI => f.write_str(&ascii_text(&self.name)),
            protocol => {
                write!(f, "{protocol} ")?;
                hex(f, &self.name)
            }
        }
    }
}
