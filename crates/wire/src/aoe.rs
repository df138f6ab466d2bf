//! ATA over Ethernet: what follows the Ethernet header (and VLAN tag) of a frame of EtherType
//! 0x88A2.
//!
//! ```text
//!   0  version << 4 | flags   1  error   2  shelf u16   4  slot u8   5  command   6  tag u32   10  argument
//! ```
//!
//! [`Header`] is those ten bytes; the arguments of the four commands are [`AtaArgument`],
//! [`ConfigArgument`] (a string behind it), [`MaskArgument`] ([`Directive`]s behind it) and
//! [`ReserveArgument`] (MAC addresses behind it). [`Message`] is the whole of it, for those who
//! want to look; a machine takes header and argument apart itself. Units: offsets count from the
//! AoE header; sectors are 512 bytes. Errors: what ends too early. Whatever else a field holds
//! survives, since what is acceptable is policy. Everything is big-endian, but for the LBA. Bytes
//! behind what a structure needs are padding of the Ethernet. Spec: AoEr11.

mod access;
mod argument;
#[cfg(test)]
mod tests;

use core::fmt;

pub use access::{
    Directive, DirectiveCommand, MaskArgument, MaskCommand, MaskError, ReserveArgument,
    ReserveCommand,
};
pub use argument::{AtaArgument, AtaFlags, ConfigArgument, ConfigCommand};

use crate::ata::{Direction, Opcode};
use crate::field::{be16, be32};
use crate::{Expected, ParseError};

/// Bytes of a sector, always.
pub const SECTOR: usize = 512;
/// The version that everybody speaks.
pub const VERSION: u8 = 1;
/// Bytes of the longest config string.
pub const CONFIG_MAX: usize = 1024;
/// What stands before the sectors of an ATA frame, counted as initiators and targets do who compare
/// it with the interface's MTU: the exact limit would leave the Ethernet header out, but nobody
/// uses it.
pub const ATA_OVERHEAD: usize = 36;

/// The sectors that a frame on an interface of this MTU carries: 2 of 1500, 17 of 9000. At most
/// 255, since a byte counts them.
pub const fn sectors_for_mtu(mtu: u32) -> u8 {
    let sectors = (mtu as usize).saturating_sub(ATA_OVERHEAD) / SECTOR;
    if sectors > 255 { 255 } else { sectors as u8 }
}

codes! {
    /// What is asked.
    pub struct Command(u8) {
        ATA = 0 "ATA",
        CONFIG = 1 "Config",
        MAC_MASK = 2 "MAC mask",
        RESERVE = 3 "Reserve",
    }
}

codes! {
    /// Why a command was refused, where the frame has the E flag.
    pub struct ErrorCode(u8) {
        NONE = 0 "no error",
        UNKNOWN_COMMAND = 1 "unrecognized command",
        BAD_ARGUMENT = 2 "bad argument",
        DEVICE_UNAVAILABLE = 3 "device unavailable",
        CONFIG_PRESENT = 4 "config string present",
        UNSUPPORTED_VERSION = 5 "unsupported version",
        RESERVED = 6 "target is reserved",
    }
}

bits! {
    /// The low half of the first byte.
    pub struct Flags(u8) {
        fields {
            /// Must be 0.
            reserved / with_reserved: 0, 2;
        }
        flags {
            /// A response.
            is_response / with_response: 3;
            /// [`Header::error`] says why it was refused.
            is_error / with_error: 2;
        }
    }
}

/// Where a target is: shelf.slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address {
    /// The shelf, "major".
    pub shelf: u16,
    /// The slot, "minor".
    pub slot: u8,
}

impl Address {
    /// All shelves.
    pub const ANY_SHELF: u16 = 0xffff;
    /// All slots.
    pub const ANY_SLOT: u8 = 0xff;
    /// All targets.
    pub const ANY: Self = Self { shelf: Self::ANY_SHELF, slot: Self::ANY_SLOT };

    /// A target's address, or a wildcard.
    pub const fn new(shelf: u16, slot: u8) -> Self {
        Self { shelf, slot }
    }

    /// Whether more than one target may be meant.
    #[inline]
    pub const fn is_wildcard(self) -> bool {
        self.shelf == Self::ANY_SHELF || self.slot == Self::ANY_SLOT
    }

    /// Whether a frame to this address concerns the target at `own`.
    #[inline]
    pub const fn matches(self, own: Self) -> bool {
        (self.shelf == own.shelf || self.shelf == Self::ANY_SHELF)
            && (self.slot == own.slot || self.slot == Self::ANY_SLOT)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shelf {
            Self::ANY_SHELF => f.write_str("*.")?,
            shelf => write!(f, "{shelf}.")?,
        }
        match self.slot {
            Self::ANY_SLOT => f.write_str("*"),
            slot => write!(f, "{slot}"),
        }
    }
}

impl core::str::FromStr for Address {
    type Err = ParseError;

    /// Reads `SHELF.SLOT`; a wildcard is no address of a target. The offset of an error counts
    /// characters.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = |at: usize, words| {
            ParseError::new("shelf.slot", at, Expected::Words(words), text.len() as u64)
        };
        let Some((shelf, slot)) = text.split_once('.') else {
            return Err(wrong(0, "two numbers with a dot between them, like 7.0"));
        };
        let number = |digits: &str| match digits.bytes().all(|digit| digit.is_ascii_digit()) {
            true => digits.parse::<u16>().ok(),
            false => None,
        };
        match (number(shelf), number(slot)) {
            (None | Some(Self::ANY_SHELF), _) => Err(wrong(0, "a shelf from 0 to 65534")),
            (Some(shelf), Some(slot @ 0..=254)) => Ok(Self { shelf, slot: slot as u8 }),
            _ => Err(wrong(shelf.len() + 1, "a slot from 0 to 254")),
        }
    }
}

/// The header that all commands share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// 1; four bits.
    pub version: u8,
    /// Request or response, good or refused; four bits.
    pub flags: Flags,
    /// Why, in a response with the E flag.
    pub error: ErrorCode,
    /// Who is asked, or answers.
    pub address: Address,
    /// What is asked.
    pub command: Command,
    /// The initiator's mark, given back as it was.
    pub tag: u32,
}

impl Header {
    /// Size in bytes.
    pub const SIZE: usize = 10;

    /// A request.
    pub const fn request(address: Address, command: Command, tag: u32) -> Self {
        let flags = Flags(0);
        Self { version: VERSION, flags, error: ErrorCode::NONE, address, command, tag }
    }

    /// The header of the answer of the target at `own` to this request.
    #[inline]
    #[must_use]
    pub const fn response(self, own: Address) -> Self {
        Self {
            version: VERSION,
            flags: Flags(0).with_response(true),
            error: ErrorCode::NONE,
            address: own,
            command: self.command,
            tag: self.tag,
        }
    }

    /// A response as a refusal.
    #[must_use]
    pub const fn refused(mut self, error: ErrorCode) -> Self {
        self.flags = self.flags.with_error(true);
        self.error = error;
        self
    }

    /// Reads the header; the only error is an input that ends before it does.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        Ok(Self {
            version: bytes[0] >> 4,
            flags: Flags(bytes[0] & 0xf),
            error: ErrorCode(bytes[1]),
            address: Address { shelf: be16(bytes, 2), slot: bytes[4] },
            command: Command(bytes[5]),
            tag: be32(bytes, 6),
        })
    }

    /// The header as bytes; version and flags are cut to their width.
    #[inline]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let [shelf_high, shelf_low] = self.address.shelf.to_be_bytes();
        let [a, b, c, d] = self.tag.to_be_bytes();
        [
            self.version << 4 | self.flags.0 & 0xf,
            self.error.0,
            shelf_high,
            shelf_low,
            self.address.slot,
            self.command.0,
            a,
            b,
            c,
            d,
        ]
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} tag {:#010x}", self.address, self.command, self.tag)?;
        if self.version != VERSION {
            write!(f, " version {}", self.version)?;
        }
        if self.flags.reserved() != 0 {
            write!(f, " reserved flags {}", self.flags.reserved())?;
        }
        if self.flags.is_response() {
            f.write_str(" response")?;
        }
        if self.flags.is_error() {
            write!(f, " refused: {}", self.error)?;
        }
        Ok(())
    }
}

/// A whole AoE message, as whoever reads a capture wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// What the command says.
    pub body: Body<'a>,
}

/// The argument of a message and what stands behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// ATA registers, and data (or padding).
    Ata(AtaArgument, &'a [u8]),
    /// Query or config, and its string, as far as it is there.
    Config(ConfigArgument, &'a [u8]),
    /// MAC mask, and its directives, 8 bytes each, as far as they are there.
    Mask(MaskArgument, &'a [u8]),
    /// Reserve or release, and its addresses, 6 bytes each, as far as they are there.
    Reserve(ReserveArgument, &'a [u8]),
    /// A refusal: what stands behind its header means nothing.
    Refusal,
    /// A command that this crate does not know.
    Unknown(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Reads a message; the only error is one that ends before its header or argument does.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = Header::parse(bytes)?;
        let rest = &bytes[Header::SIZE..];
        let behind = |size: usize, length: usize| &rest[size..rest.len().min(size + length)];
        let at = |error: ParseError| ParseError {
            offset: error.offset + Header::SIZE,
            expected: Expected::AtLeast((Header::SIZE + AtaArgument::SIZE) as u64),
            ..error
        };
        let body = match header.command {
            _ if header.flags.is_error() => Body::Refusal,
            Command::ATA => {
                let argument = AtaArgument::parse(rest).map_err(at)?;
                Body::Ata(argument, &rest[AtaArgument::SIZE..])
            }
            Command::CONFIG => {
                let argument = ConfigArgument::parse(rest)?;
                let length = argument.length.into();
                Body::Config(argument, behind(ConfigArgument::SIZE, length))
            }
            Command::MAC_MASK => {
                let argument = MaskArgument::parse(rest)?;
                let length = usize::from(argument.count) * Directive::SIZE;
                Body::Mask(argument, behind(MaskArgument::SIZE, length))
            }
            Command::RESERVE => {
                let argument = ReserveArgument::parse(rest)?;
                let length = usize::from(argument.count) * 6;
                Body::Reserve(argument, behind(ReserveArgument::SIZE, length))
            }
            _ => Body::Unknown(rest),
        };
        Ok(Self { header, body })
    }

    /// The bytes of sectors that the message carries, padding left out.
    pub fn data_length(&self) -> usize {
        let Body::Ata(argument, data) = self.body else { return 0 };
        let carries = match Opcode(argument.command_status).direction() {
            _ if self.header.flags.is_response() => !argument.flags.is_write(),
            Direction::Out => true,
            _ => argument.flags.is_write(),
        };
        if !carries {
            return 0;
        }
        if self.header.flags.is_response() {
            // How much was asked stands in the request alone; what is no whole sector is padding.
            return data.len() / SECTOR * SECTOR;
        }
        data.len().min(usize::from(argument.count) * SECTOR)
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.header)?;
        match self.body {
            Body::Ata(argument, _) if self.header.flags.is_response() => {
                write!(f, ": {}", argument.as_result())?;
            }
            Body::Ata(argument, _) => write!(f, ": {argument}")?,
            Body::Config(argument, string) => {
                write!(f, ": {argument}")?;
                if argument.length > 0 {
                    write!(f, " \"{}\"", string.escape_ascii())?;
                }
            }
            Body::Mask(argument, directives) => {
                write!(f, ": {argument}")?;
                for directive in directives.chunks_exact(Directive::SIZE) {
                    if let Ok(directive) = Directive::parse(directive) {
                        write!(f, " {directive}")?;
                    }
                }
            }
            Body::Reserve(argument, addresses) => {
                write!(f, ": {argument}")?;
                for mac in addresses.chunks_exact(6) {
                    let mac = crate::ethernet::MacAddress(core::array::from_fn(|at| mac[at]));
                    write!(f, " {mac}")?;
                }
            }
            Body::Refusal | Body::Unknown(_) => {}
        }
        match self.data_length() {
            0 => Ok(()),
            length => write!(f, " data {length}"),
        }
    }
}
