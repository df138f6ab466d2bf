//! NVMe Qualified Names: who a host or a subsystem is.
//!
//! 1 to 223 bytes of UTF-8 without control characters, in a field of 256 bytes padded with NUL.
//! Spec: NVMe base, "NVMe Qualified Names".

use core::fmt;

use crate::{Expected, ParseError};

/// A name of a host or subsystem, valid by construction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Box<str>);

impl Nqn {
    /// Most bytes of a name.
    pub const LENGTH_MAX: usize = 223;
    /// Bytes of the field that holds a name on the wire.
    pub const FIELD: usize = 256;
    /// The well-known name of every discovery subsystem.
    pub const DISCOVERY: &'static str = "nqn.2014-08.org.nvmexpress.discovery";

    /// A name from text; errors are an empty, too long or unprintable one.
    pub fn new(name: &str) -> Result<Self, ParseError> {
        Self::checked("NQN", 0, name)
    }

    /// [`Self::DISCOVERY`] as a name.
    pub fn discovery() -> Self {
        Self(Self::DISCOVERY.into())
    }

    /// True for the well-known discovery name.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == Self::DISCOVERY
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a NUL-padded field of 256 bytes called `field`, which lies at `offset` in the
    /// structure the error is to speak of. What follows the first NUL is not looked at.
    pub fn parse(field: &'static str, offset: usize, bytes: &[u8]) -> Result<Self, ParseError> {
        let length = bytes.iter().take(Self::FIELD).position(|&byte| byte == 0);
        let Some(length) = length else {
            let expected = Expected::Words("a NUL within 256 bytes");
            return Err(ParseError::new(field, offset, expected, bytes.len() as u64));
        };
        match core::str::from_utf8(&bytes[..length]) {
            Ok(name) => Self::checked(field, offset, name),
            Err(error) => {
                let at = error.valid_up_to();
                let expected = Expected::Words("UTF-8");
                Err(ParseError::new(field, offset + at, expected, bytes[at].into()))
            }
        }
    }

    /// The field of 256 bytes, padded with NUL.
    pub fn emit(&self) -> [u8; Self::FIELD] {
        let mut bytes = [0; Self::FIELD];
        bytes[..self.0.len()].copy_from_slice(self.0.as_bytes());
        bytes
    }

    fn checked(field: &'static str, offset: usize, name: &str) -> Result<Self, ParseError> {
        let error = |expected, at: usize, seen: u64| {
            Err(ParseError::new(field, offset + at, expected, seen))
        };
        if name.is_empty() {
            return error(Expected::Words("a name"), 0, 0);
        }
        if name.len() > Self::LENGTH_MAX {
            let expected = Expected::Words("at most 223 bytes");
            return error(expected, 0, name.len() as u64);
        }
        if let Some((at, char)) = name.char_indices().find(|(_, char)| char.is_control()) {
            return error(Expected::Words("printable text"), at, char.into());
        }
        Ok(Self(name.into()))
    }
}

impl core::str::FromStr for Nqn {
    type Err = ParseError;
    fn from_str(name: &str) -> Result<Self, ParseError> {
        Self::new(name)
    }
}

impl AsRef<str> for Nqn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for Nqn {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nqn({})", self.0)
    }
}
