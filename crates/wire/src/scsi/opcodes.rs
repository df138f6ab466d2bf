//! REPORT SUPPORTED OPERATION CODES: which commands a unit takes.
//!
//! ```text
//!  all   0 length (32) | descriptors of 8 bytes, each with 12 of timeouts behind it if CTDP
//!  one   1 CTDP, SUPPORT | 2 CDB size (16) | 4 usage of each bit of the CDB | timeouts if CTDP
//! ```
//! Times are seconds, 0 for no word. Errors: an input that ends too early. Spec: SPC-4, "REPORT
//! SUPPORTED OPERATION CODES command".

use super::{OpCode, be16, be32, put};
use crate::ParseError;

bits! {
    /// Byte 5 of a command descriptor.
    pub struct CommandFlags(u8) {
        fields {}
        flags {
            /// SERVACTV: the service action counts.
            has_service_action / with_service_action: 0;
            /// CTDP: timeouts follow.
            has_timeouts / with_timeouts: 1;
        }
    }
}

layout! { big_endian:
    /// A command descriptor.
    pub struct CommandDescriptor[8] {
        /// OPERATION CODE.
        0 => opcode: OpCode,
        /// SERVICE ACTION, 0 without SERVACTV.
        2 => action: u16,
        /// What counts and what follows.
        5 => flags: CommandFlags,
        /// CDB LENGTH.
        6 => cdb_length: u16,
    }
}

layout! { big_endian:
    /// A command timeouts descriptor.
    pub struct CommandTimeouts[12] {
        /// DESCRIPTOR LENGTH: 0Ah.
        0 => length: u16,
        /// COMMAND SPECIFIC.
        3 => specific: u8,
        /// NOMINAL COMMAND PROCESSING TIMEOUT.
        4 => nominal_s: u32,
        /// RECOMMENDED COMMAND TIMEOUT.
        8 => recommended_s: u32,
    }
}

impl CommandTimeouts {
    /// With these times.
    pub fn new(nominal_s: u32, recommended_s: u32) -> Self {
        Self { length: Self::SIZE as u16 - 2, specific: 0, nominal_s, recommended_s }
    }
}

/// All commands of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllCommands(pub Vec<(CommandDescriptor, Option<CommandTimeouts>)>);

impl AllCommands {
    /// Bytes in front of the descriptors.
    const HEADER: usize = 4;

    /// The data as bytes; CTDP follows from whether there are timeouts.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::HEADER];
        for (descriptor, timeouts) in &self.0 {
            let flags = descriptor.flags.with_timeouts(timeouts.is_some());
            bytes.extend(CommandDescriptor { flags, ..*descriptor }.emit());
            if let Some(timeouts) = timeouts {
                bytes.extend(timeouts.emit());
            }
        }
        let length = (bytes.len() - Self::HEADER) as u32;
        put(&mut bytes, 0, length.to_be_bytes());
        bytes
    }

    /// Reads what is there of the data, which may have been cut anywhere behind the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let list = &bytes[Self::HEADER..];
        let mut list = &list[..list.len().min(be32(bytes, 0) as usize)];
        let mut all = Vec::new();
        while let Some((descriptor, rest)) = list.split_at_checked(CommandDescriptor::SIZE) {
            let descriptor = CommandDescriptor::parse(descriptor)?;
            list = rest;
            let mut timeouts = None;
            if descriptor.flags.has_timeouts() {
                let Some((here, rest)) = list.split_at_checked(CommandTimeouts::SIZE) else {
                    break;
                };
                timeouts = Some(CommandTimeouts::parse(here)?);
                list = rest;
            }
            all.push((descriptor, timeouts));
        }
        Ok(Self(all))
    }
}

codes! {
    /// SUPPORT: whether a unit takes a command.
    pub struct Support(u8) {
        UNKNOWN = 0 "not known now",
        NOT_SUPPORTED = 1 "not supported",
        SUPPORTED = 3 "supported as the standard has it",
        VENDOR_SPECIFIC = 5 "supported in its own way",
    }
}

/// One command of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OneCommand {
    /// Whether it is there.
    pub support: Support,
    /// CDB USAGE DATA: the opcode, the service action, and 1 for each bit that is looked at; as
    /// long as the command's block. Empty if it is not supported.
    pub usage: Vec<u8>,
    /// Its timeouts, if they were asked for.
    pub timeouts: Option<CommandTimeouts>,
}

impl OneCommand {
    /// Bytes in front of the usage data.
    const HEADER: usize = 4;

    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::HEADER];
        bytes[1] = u8::from(self.timeouts.is_some()) << 7 | self.support.0 & 7;
        put(&mut bytes, 2, (self.usage.len() as u16).to_be_bytes());
        bytes.extend(&self.usage);
        if let Some(timeouts) = self.timeouts {
            bytes.extend(timeouts.emit());
        }
        bytes
    }

    /// Reads the data, all of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let length = usize::from(be16(bytes, 2));
        let Some((usage, rest)) = bytes[Self::HEADER..].split_at_checked(length) else {
            return Err(ParseError::short(Self::HEADER + length, bytes.len()));
        };
        let timeouts = match bytes[1] & 0x80 != 0 {
            true => Some(CommandTimeouts::parse(rest)?),
            false => None,
        };
        Ok(Self { support: Support(bytes[1] & 7), usage: usage.to_vec(), timeouts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_both_ways() {
        let read =
            CommandDescriptor { opcode: OpCode::READ_10, cdb_length: 10, ..Default::default() };
        let flags = CommandFlags(0).with_service_action(true).with_timeouts(true);
        let capacity = CommandDescriptor {
            opcode: OpCode::SERVICE_ACTION_IN_16,
            action: 0x10,
            flags,
            cdb_length: 16,
        };
        let all = AllCommands(vec![(read, None), (capacity, Some(CommandTimeouts::new(0, 60)))]);
        let bytes = all.emit();
        assert_eq!(bytes[..12], [0, 0, 0, 28, 0x28, 0, 0, 0, 0, 0, 0, 10]);
        assert_eq!(bytes[12..20], [0x9e, 0, 0, 0x10, 0, 3, 0, 16]);
        assert_eq!(bytes[20..32], [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60]);
        assert_eq!(AllCommands::parse(&bytes), Ok(all.clone()));
        let first = AllCommands(all.0[..1].to_vec());
        assert_eq!(AllCommands::parse(&bytes[..31]), Ok(first), "cut");
        assert!(AllCommands::parse(&bytes[..3]).is_err());
    }

    #[test]
    fn one_command_both_ways() {
        let usage = vec![0x28, 0xf8, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0];
        let timeouts = Some(CommandTimeouts::new(1, 2));
        let one = OneCommand { support: Support::SUPPORTED, usage, timeouts };
        let bytes = one.emit();
        assert_eq!(bytes[..6], [0, 0x83, 0, 10, 0x28, 0xf8]);
        assert_eq!(OneCommand::parse(&bytes), Ok(one));
        assert!(OneCommand::parse(&bytes[..bytes.len() - 1]).is_err());
        let none = OneCommand { support: Support::NOT_SUPPORTED, ..OneCommand::default() };
        assert_eq!(none.emit(), [0, 1, 0, 0]);
        assert_eq!(OneCommand::parse(&none.emit()), Ok(none));
    }
}
