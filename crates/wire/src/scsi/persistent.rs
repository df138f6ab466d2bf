//! Persistent reservations: what PERSISTENT RESERVE IN returns and OUT takes.
//!
//! ```text
//!  IN    0 PRGENERATION (32) | 4 length (32) | keys, one reservation, or full status descriptors
//!  OUT   0 RESERVATION KEY (64) | 8 SERVICE ACTION RESERVATION KEY (64) | 20 flags | TransportIDs
//! ```
//! Keys are numbers that initiators choose, 0 for none. Errors: an input that ends before what its
//! lengths say. Spec: SPC-4, "PERSISTENT RESERVE IN command", "PERSISTENT RESERVE OUT command",
//! "TransportID identifiers".

use super::{be16, be32, be64, put};
use crate::{Expected, ParseError};

mod transport_id;

pub use transport_id::TransportId;

codes! {
    /// TYPE of a persistent reservation.
    pub struct ReservationType(u8) {
        WRITE_EXCLUSIVE = 1 "write exclusive",
        EXCLUSIVE_ACCESS = 3 "exclusive access",
        WRITE_EXCLUSIVE_REGISTRANTS = 5 "write exclusive, registrants only",
        EXCLUSIVE_ACCESS_REGISTRANTS = 6 "exclusive access, registrants only",
        WRITE_EXCLUSIVE_ALL = 7 "write exclusive, all registrants",
        EXCLUSIVE_ACCESS_ALL = 8 "exclusive access, all registrants",
    }
}

/// Bytes in front of what PERSISTENT RESERVE IN lists.
const HEADER: usize = 8;

/// The header, whose second half is the length of what follows.
fn header(generation: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    put(&mut bytes, 0, generation.to_be_bytes());
    put(&mut bytes, 4, (length as u32).to_be_bytes());
    bytes
}

/// PRGENERATION, and as much of the list as is there.
fn list(bytes: &[u8]) -> Result<(u32, &[u8]), ParseError> {
    if bytes.len() < HEADER {
        return Err(ParseError::short(HEADER, bytes.len()));
    }
    let list = &bytes[HEADER..];
    Ok((be32(bytes, 0), &list[..list.len().min(be32(bytes, 4) as usize)]))
}

/// The data of READ KEYS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationKeys {
    /// PRGENERATION.
    pub generation: u32,
    /// The key of each registrant.
    pub keys: Vec<u64>,
}

impl ReservationKeys {
    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = header(self.generation, 8 * self.keys.len());
        bytes.extend(self.keys.iter().flat_map(|key| key.to_be_bytes()));
        bytes
    }

    /// Reads what is there of the data.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (generation, list) = list(bytes)?;
        let keys = list.as_chunks().0.iter().map(|key| u64::from_be_bytes(*key)).collect();
        Ok(Self { generation, keys })
    }
}

/// The data of READ RESERVATION.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldReservation {
    /// PRGENERATION.
    pub generation: u32,
    /// The holder's key, 0 where all registrants hold, and the type; if anybody holds.
    pub held: Option<(u64, ReservationType)>,
}

impl HeldReservation {
    /// Bytes of the descriptor.
    const DESCRIPTOR: usize = 16;

    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let Some((key, kind)) = self.held else { return header(self.generation, 0) };
        let mut bytes = header(self.generation, Self::DESCRIPTOR);
        let mut descriptor = [0; Self::DESCRIPTOR];
        put(&mut descriptor, 0, key.to_be_bytes());
        descriptor[13] = kind.0 & 0xf;
        bytes.extend(descriptor);
        bytes
    }

    /// Reads the data, all of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (generation, list) = list(bytes)?;
        let held = match list.len() {
            0 if be32(bytes, 4) == 0 => None,
            Self::DESCRIPTOR.. => Some((be64(list, 0), ReservationType(list[13] & 0xf))),
            seen => return Err(ParseError::short(HEADER + Self::DESCRIPTOR, HEADER + seen)),
        };
        Ok(Self { generation, held })
    }
}

bits! {
    /// Bytes 2 and 3 of the capabilities.
    pub struct ReservationFlags(u16) {
        fields {
            /// ALLOW COMMANDS.
            allow_commands / with_allow_commands: 4, 3;
        }
        flags {
            /// CRH: RESERVE(6) by who holds is handled as SPC-4 says.
            compatible_handling / with_compatible_handling: 12;
            /// SIP_C: SPEC_I_PT may be set.
            specifies_initiators / with_specifies_initiators: 11;
            /// ATP_C: ALL_TG_PT may be set.
            all_target_ports / with_all_target_ports: 10;
            /// PTPL_C: reservations can survive a loss of power.
            persistence_capable / with_persistence_capable: 8;
            /// TMV: the type mask is valid.
            types_valid / with_types_valid: 7;
            /// PTPL_A: they survive it.
            persistence_active / with_persistence_active: 0;
        }
    }
}

layout! { big_endian:
    /// The data of REPORT CAPABILITIES.
    pub struct ReservationCapabilities[8] {
        /// LENGTH: 8.
        0 => length: u16,
        /// What is supported.
        2 => flags: ReservationFlags,
        /// PERSISTENT RESERVATION TYPE MASK.
        4 => types: u16,
    }
}

impl ReservationCapabilities {
    /// The mask of all types but the obsolete ones.
    pub const ALL_TYPES: u16 = 0xea01;
}

/// A registrant in the data of READ FULL STATUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullStatus {
    /// Its key.
    pub key: u64,
    /// ALL_TG_PT: it is registered at every port.
    pub all_ports: bool,
    /// The type, if it holds the reservation (R_HOLDER).
    pub held: Option<ReservationType>,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub relative_port: u16,
    /// Who it is.
    pub transport: TransportId,
}

/// The data of READ FULL STATUS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullStatusList {
    /// PRGENERATION.
    pub generation: u32,
    /// All registrants.
    pub registrants: Vec<FullStatus>,
}

impl FullStatusList {
    /// Bytes of a descriptor in front of its TransportID.
    const DESCRIPTOR: usize = 24;

    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for one in &self.registrants {
            let transport = one.transport.emit();
            let mut bytes = [0; Self::DESCRIPTOR];
            put(&mut bytes, 0, one.key.to_be_bytes());
            bytes[12] = u8::from(one.all_ports) << 1 | u8::from(one.held.is_some());
            bytes[13] = one.held.map_or(0, |kind| kind.0 & 0xf);
            put(&mut bytes, 18, one.relative_port.to_be_bytes());
            put(&mut bytes, 20, (transport.len() as u32).to_be_bytes());
            list.extend(bytes);
            list.extend(transport);
        }
        let mut bytes = header(self.generation, list.len());
        bytes.extend(list);
        bytes
    }

    /// Reads what is there of the data: whole descriptors.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (generation, mut list) = list(bytes)?;
        let mut registrants = Vec::new();
        while let Some((fixed, rest)) = list.split_at_checked(Self::DESCRIPTOR) {
            let length = be32(fixed, 20) as usize;
            let Some((transport, rest)) = rest.split_at_checked(length) else { break };
            registrants.push(FullStatus {
                key: be64(fixed, 0),
                all_ports: fixed[12] & 2 != 0,
                held: (fixed[12] & 1 != 0).then_some(ReservationType(fixed[13] & 0xf)),
                relative_port: be16(fixed, 18),
                transport: TransportId::parse(transport)?,
            });
            list = rest;
        }
        Ok(Self { generation, registrants })
    }
}

/// The parameter list of PERSISTENT RESERVE OUT, of all service actions but REGISTER AND MOVE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReserveOut {
    /// RESERVATION KEY: the asker's.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the new one, or the victim's.
    pub action_key: u64,
    /// APTPL: survive a loss of power.
    pub persist: bool,
    /// ALL_TG_PT: at every port.
    pub all_ports: bool,
    /// SPEC_I_PT: also these initiators.
    pub also: Option<Vec<TransportId>>,
}

impl ReserveOut {
    /// Bytes without TransportIDs.
    pub const SIZE: usize = 24;

    /// The list as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        put(&mut bytes, 0, self.key.to_be_bytes());
        put(&mut bytes, 8, self.action_key.to_be_bytes());
        bytes[20] = u8::from(self.also.is_some()) << 3
            | u8::from(self.all_ports) << 2
            | u8::from(self.persist);
        if let Some(also) = &self.also {
            let ids: Vec<u8> = also.iter().flat_map(TransportId::emit).collect();
            bytes.extend((ids.len() as u32).to_be_bytes());
            bytes.extend(ids);
        }
        bytes
    }

    /// Reads a list. TransportIDs are there where SPEC_I_PT says so.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some((fixed, rest)) = bytes.split_at_checked(Self::SIZE) else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        let also = match fixed[20] & 0x08 != 0 {
            true => Some(Self::parse_also(rest)?),
            false => None,
        };
        Ok(Self {
            key: be64(fixed, 0),
            action_key: be64(fixed, 8),
            persist: fixed[20] & 1 != 0,
            all_ports: fixed[20] & 4 != 0,
            also,
        })
    }

    fn parse_also(rest: &[u8]) -> Result<Vec<TransportId>, ParseError> {
        if rest.len() < 4 {
            return Err(ParseError::short(Self::SIZE + 4, Self::SIZE + rest.len()));
        }
        let (length, rest) = (be32(rest, 0) as usize, &rest[4..]);
        let Some(mut ids) = rest.get(..length) else {
            let field = "TRANSPORTID PARAMETER DATA LENGTH";
            let expected = Expected::AtMost(rest.len() as u64);
            return Err(ParseError::new(field, Self::SIZE, expected, length as u64));
        };
        let mut also = Vec::new();
        while !ids.is_empty() {
            let (id, behind) = TransportId::parse_first(ids)?;
            also.push(id);
            ids = behind;
        }
        Ok(also)
    }
}

/// The parameter list of PERSISTENT RESERVE OUT, REGISTER AND MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterAndMove {
    /// RESERVATION KEY: the asker's.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the key to register.
    pub action_key: u64,
    /// UNREG: the asker is registered no more.
    pub unregister: bool,
    /// APTPL: survive a loss of power.
    pub persist: bool,
    /// RELATIVE TARGET PORT IDENTIFIER: where.
    pub relative_port: u16,
    /// Whom.
    pub to: TransportId,
}

impl RegisterAndMove {
    const FIXED: usize = 24;

    /// The list as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let to = self.to.emit();
        let mut bytes = vec![0; Self::FIXED];
        put(&mut bytes, 0, self.key.to_be_bytes());
        put(&mut bytes, 8, self.action_key.to_be_bytes());
        bytes[17] = u8::from(self.unregister) << 1 | u8::from(self.persist);
        put(&mut bytes, 18, self.relative_port.to_be_bytes());
        put(&mut bytes, 20, (to.len() as u32).to_be_bytes());
        bytes.extend(to);
        bytes
    }

    /// Reads a list.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some((fixed, rest)) = bytes.split_at_checked(Self::FIXED) else {
            return Err(ParseError::short(Self::FIXED, bytes.len()));
        };
        let length = be32(fixed, 20) as usize;
        let Some(to) = rest.get(..length) else {
            return Err(ParseError::short(Self::FIXED + length, bytes.len()));
        };
        Ok(Self {
            key: be64(fixed, 0),
            action_key: be64(fixed, 8),
            unregister: fixed[17] & 2 != 0,
            persist: fixed[17] & 1 != 0,
            relative_port: be16(fixed, 18),
            to: TransportId::parse(to)?,
        })
    }
}

#[cfg(test)]
mod tests;
