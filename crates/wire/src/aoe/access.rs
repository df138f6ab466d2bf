//! The arguments of the two commands that say who may come: MAC mask, and reserve or release.

use core::fmt;

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

layout! {
    /// The argument of MAC mask. Directives follow it.
    pub struct MaskArgument[4] {
        /// Read or edit.
        1 => command: MaskCommand,
        /// Of a response: why the edit stopped.
        2 => error: MaskError,
        /// Directives that follow; of a failed edit: those that were carried out.
        3 => count: u8,
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

layout! {
    /// One change of the mask, or one address of it.
    pub struct Directive[8] {
        /// What is to be done.
        1 => command: DirectiveCommand,
        /// The address.
        2 => mac: MacAddress,
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

layout! {
    /// The argument of reserve and release. MAC addresses of 6 bytes follow it.
    pub struct ReserveArgument[2] {
        /// What is asked.
        0 => command: ReserveCommand,
        /// Addresses that follow.
        1 => count: u8,
    }
}

impl fmt::Display for ReserveArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.command, self.count)
    }
}
