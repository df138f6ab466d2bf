//! The arguments of the two commands that say who may come: MAC mask, and reserve or release.

use core::fmt;

use crate::ParseError;
use crate::ethernet::MacAddress;

codes! {
    /// MCmd.
    pub struct MaskCommand(u8) {
        READ = 0 "read",
        EDIT = 1 "edit",
    }
}

codes! {
    /// MError: where an edit stopped.
    pub struct MaskError(u8) {
        NONE = 0 "no error",
        UNSPECIFIED = 1 "unspecified",
        BAD_COMMAND = 2 "bad directive",
        FULL = 3 "list full",
    }
}

codes! {
    /// DCmd: what is to be done with an address.
    pub struct DirectiveCommand(u8) {
        NONE = 0 "-",
        ADD = 1 "add",
        DELETE = 2 "delete",
    }
}

/// The argument of MAC mask. Directives follow it.
///
/// ```text
///   0  0   1  command   2  error   3  directive count
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskArgument {
    /// Read or edit.
    pub command: MaskCommand,
    /// Of a response: why the edit stopped.
    pub error: MaskError,
    /// Directives that follow; of a failed edit: those that were carried out.
    pub count: u8,
}

impl MaskArgument {
    /// Size in bytes.
    pub const SIZE: usize = 4;

    /// Reads the argument; the only error is an input that ends before it does.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        Ok(Self { command: MaskCommand(bytes[1]), error: MaskError(bytes[2]), count: bytes[3] })
    }

    /// The argument as bytes.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        [0, self.command.0, self.error.0, self.count]
    }
}

impl fmt::Display for MaskArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.command, self.count)?;
        if self.error != MaskError::NONE {
            write!(f, " stopped: {}", self.error)?;
        }
        Ok(())
    }
}

/// One change of the mask, or one address of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    /// What is to be done.
    pub command: DirectiveCommand,
    /// The address.
    pub mac: MacAddress,
}

impl Directive {
    /// Size in bytes.
    pub const SIZE: usize = 8;

    /// Reads the directive; the only error is an input that ends before it does.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some([_, command, mac @ ..]) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        Ok(Self { command: DirectiveCommand(*command), mac: MacAddress(*mac) })
    }

    /// The directive as bytes.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        let [a, b, c, d, e, f] = self.mac.0;
        [0, self.command.0, a, b, c, d, e, f]
    }
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command {
            DirectiveCommand::NONE => write!(f, "{}", self.mac),
            command => write!(f, "{command} {}", self.mac),
        }
    }
}

codes! {
    /// RCmd.
    pub struct ReserveCommand(u8) {
        READ = 0 "read",
        SET = 1 "set",
        FORCE = 2 "force",
    }
}

/// The argument of reserve and release. MAC addresses of 6 bytes follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveArgument {
    /// What is asked.
    pub command: ReserveCommand,
    /// Addresses that follow.
    pub count: u8,
}

impl ReserveArgument {
    /// Size in bytes.
    pub const SIZE: usize = 2;

    /// Reads the argument; the only error is an input that ends before it does.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(&[command, count]) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        Ok(Self { command: ReserveCommand(command), count })
    }

    /// The argument as bytes.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        [self.command.0, self.count]
    }
}

impl fmt::Display for ReserveArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.command, self.count)
    }
}
