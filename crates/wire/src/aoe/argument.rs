//! The arguments of the two commands that every initiator sends: ATA, and query or config.

use core::fmt;

use super::VERSION;
use crate::ParseError;
use crate::ata::{Opcode, Status};
use crate::field::be16;

bits! {
    /// AFlags.
    pub struct AtaFlags(u8) {
        fields {}
        flags {
            /// E: an EXT command, whose LBA has 48 bits.
            is_extended / with_extended: 6;
            /// D: the device bit of Device/Head, with E alone.
            device / with_device: 4;
            /// A: a write may be acknowledged before it is on the media.
            is_async / with_async: 1;
            /// W: data go to the device.
            is_write / with_write: 0;
        }
    }
}

layout! {
    /// The argument of an ATA command, as request or as response. Data follow it.
    pub struct AtaArgument[12] {
        /// Which way data go, and how the LBA is to be read.
        0 => flags: AtaFlags,
        /// Features of a request, the error register of a response.
        1 => error_feature: u8,
        /// Sectors of a request; of a response, those that were not transferred.
        2 => count: u8,
        /// The command of a request, the status register of a response.
        3 => command_status: u8,
        /// The address, lowest byte first.
        4 => lba: [u8; 6],
    }
}

impl AtaArgument {
    /// What stands above the 28 bits of a short address: LBA mode, device 0.
    pub const LBA_MODE: u8 = 0xe0;

    /// A request for `count` sectors from `lba` on: short where the command is.
    pub const fn request(opcode: Opcode, lba: u64, count: u8, is_write: bool) -> Self {
        let [a, b, c, d, e, f, _, _] = lba.to_le_bytes();
        let extended = opcode.is_extended();
        let lba =
            if extended { [a, b, c, d, e, f] } else { [a, b, c, d & 0x0f | Self::LBA_MODE, 0, 0] };
        let flags = AtaFlags(0).with_extended(extended).with_write(is_write);
        Self { flags, error_feature: 0, count, command_status: opcode.0, lba }
    }

    /// All 48 bits of the address.
    #[inline]
    pub const fn lba48(&self) -> u64 {
        let [a, b, c, d, e, f] = self.lba;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// The lowest 28 bits: above them stands the Device/Head register.
    #[inline]
    pub const fn lba28(&self) -> u64 {
        self.lba48() & 0x0fff_ffff
    }

    /// The argument of a response, to be shown.
    pub const fn as_result(self) -> AtaResult {
        AtaResult(self)
    }
}

impl fmt::Display for AtaArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcode = Opcode(self.command_status);
        let lba = if opcode.is_extended() { self.lba48() } else { self.lba28() };
        write!(f, "{opcode} lba {lba} count {}", self.count)?;
        if self.error_feature != 0 {
            write!(f, " feature {:#04x}", self.error_feature)?;
        }
        for (set, name) in [
            (self.flags.is_extended(), " E"),
            (self.flags.device(), " D"),
            (self.flags.is_async(), " A"),
            (self.flags.is_write(), " W"),
        ] {
            if set {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// An [`AtaArgument`] that is shown as the registers after a command.
#[derive(Clone, Copy, Debug)]
pub struct AtaResult(AtaArgument);

impl fmt::Display for AtaResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = Status(self.0.command_status);
        write!(f, "{status}")?;
        if self.0.error_feature != 0 {
            write!(f, " {}", crate::ata::ErrorBits(self.0.error_feature))?;
        }
        write!(f, " left {}", self.0.count)
    }
}

codes! {
    /// CCmd: what is asked of a config string.
    pub struct ConfigCommand(u8) {
        READ = 0 "read",
        TEST = 1 "test",
        PREFIX = 2 "prefix",
        SET = 3 "set",
        FORCE = 4 "force",
    }
}

impl ConfigCommand {
    /// Whether it asks for a change, so that a wildcard does not mean it.
    #[inline]
    pub const fn changes(self) -> bool {
        matches!(self, Self::SET | Self::FORCE)
    }
}

/// The argument of query and config. The string follows it.
///
/// ```text
///   0  buffer count u16   2  firmware u16   4  sector count   5  version << 4 | command   6  length u16
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigArgument {
    /// Commands that the target holds at once; what exceeds them is dropped.
    pub buffer_count: u16,
    /// The target's firmware version.
    pub firmware: u16,
    /// Sectors that a frame may carry; 0 stands for 2.
    pub sector_count: u8,
    /// AoE version that the target speaks; four bits.
    pub version: u8,
    /// What is asked; four bits.
    pub command: ConfigCommand,
    /// Bytes of the string.
    pub length: u16,
}

impl ConfigArgument {
    /// Size in bytes.
    pub const SIZE: usize = 8;

    /// A request with a string of `length` bytes.
    pub const fn request(command: ConfigCommand, length: u16) -> Self {
        Self { buffer_count: 0, firmware: 0, sector_count: 0, version: VERSION, command, length }
    }

    /// Reads the argument; the only error is an input that ends before it does.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        Ok(Self {
            buffer_count: be16(bytes, 0),
            firmware: be16(bytes, 2),
            sector_count: bytes[4],
            version: bytes[5] >> 4,
            command: ConfigCommand(bytes[5] & 0xf),
            length: be16(bytes, 6),
        })
    }

    /// The argument as bytes; version and command are cut to their width.
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        let [buffers_high, buffers_low] = self.buffer_count.to_be_bytes();
        let [firmware_high, firmware_low] = self.firmware.to_be_bytes();
        let [length_high, length_low] = self.length.to_be_bytes();
        [
            buffers_high,
            buffers_low,
            firmware_high,
            firmware_low,
            self.sector_count,
            self.version << 4 | self.command.0 & 0xf,
            length_high,
            length_low,
        ]
    }
}

impl fmt::Display for ConfigArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} buffers {} firmware {:#06x} sectors {} string {}",
            self.command, self.buffer_count, self.firmware, self.sector_count, self.length
        )
    }
}
