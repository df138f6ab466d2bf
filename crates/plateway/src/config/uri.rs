//! Disk URIs: one spelling for anything that holds blocks, local or remote.
//!
//! ```text
//! ram:SIZE[?touch=1]    null:SIZE    file:PATH[?create=SIZE|?tail=ignore]    /dev/...    volume:NAME
//! delay:US,URI    burn:US,URI    faulty:SEED,URI    model:NAME[?OPTIONS],URI
//! nvme+tcp://...    aoe://...    (each in the room of its protocol)
//! ```
//!
//! Odd characters: in a path, an NQN or the name of an interface, `%XX` is the byte XX. `%` and `?`
//! must be written so (in an NQN also `/` and `&`, in an interface also `,`); everything else may
//! stand as it is, blanks and commas included, since instruments end at their first
//! comma and their inner URI takes the rest (so the path of a model's file has `%2C`). `Display` is the canonical spelling, which parses back
//! to the same value; options at their default are left out. Units: bytes, microseconds, or what
//! the option's name ends in. Errors: what was expected, what was seen, and the column. Parsing is
//! in `uri/parse.rs`. Not here: opening a disk.

mod modelled;
mod parse;

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use reactor::disk::Tail;

use super::size::Size;
use crate::protocols::RemoteUri;

pub(crate) use modelled::{ModelUri, model_of};
pub(crate) use parse::Parser;

/// VLANs that frames may be in: 0 and 4095 are none (802.1Q).
pub(crate) const VLANS: RangeInclusive<u64> = 1..=4094;

/// Declares the options of a URI that are numbers: what each is where the URI says nothing, and
/// what it may be.
macro_rules! options {
    ($name:ident { $($(#[$meta:meta])* $key:ident: $type:ty = $usual:expr, $range:expr;)* }) => {
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name {
            $($(#[$meta])* pub(crate) $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $usual,)* }
            }
        }

        impl $name {
            pub(crate) const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            /// Takes the value of a key. The ranges fit their types, so the casts cannot cut.
            pub(crate) fn take(
                &mut self,
                parser: &$crate::config::uri::Parser<'_>,
                key: &str,
                at: ::std::ops::Range<usize>,
            ) -> Result<(), $crate::config::uri::UriError> {
                match key {
                    $(stringify!($key) => self.$key = parser.number(at, key, $range)? as $type,)*
                    _ => unreachable!("{key} is among KEYS"),
                }
                Ok(())
            }
        }

        /// Those that are not as usual: `?key=value&key=value`.
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let (mut mark, usual) = ('?', Self::default());
                let all = [$((stringify!($key), u64::from(self.$key), u64::from(usual.$key))),*];
                for (key, value, usual) in all {
                    if value != usual {
                        write!(f, "{mark}{key}={value}")?;
                        mark = '&';
                    }
                }
                Ok(())
            }
        }
    };
}
pub(crate) use options;

/// A disk, as a command or a configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskUri {
    /// Memory of this process.
    Ram {
        /// Its size, a multiple of 512.
        bytes: u64,
        /// Whether all of it is taken at once, and not as it is written.
        touch: bool,
    },
    /// Discards writes and reads as zeros: the instrument that measures everything above it.
    Null {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// A regular file.
    File {
        /// Relative to the working directory of the process unless absolute.
        path: PathBuf,
        /// Size of the sparse file to create where there is none.
        create_bytes: Option<u64>,
        /// What becomes of an end that is no whole block.
        tail: Tail,
    },
    /// A block device, by its absolute path.
    BlockDevice {
        /// Such as `/dev/nvme0n1` or a link below `/dev/disk/by-id`.
        path: PathBuf,
    },
    /// A disk whose completions come later, whose requests cost CPU, or that fails by a seed.
    Instrumented {
        instrument: Around,
        /// The disk that does the work.
        inner: Box<DiskUri>,
    },
    /// A disk of another target.
    Remote(RemoteUri),
    /// A volume of the configuration given with `--config`, opened without a network.
    Volume {
        /// The `name` of a `[[volume]]`.
        name: String,
    },
}

/// An instrument around a disk, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    Delay {
        us: u64,
    },
    Burn {
        us: u64,
    },
    Faulty {
        seed: u64,
    },
    /// Boxed: it is large, and few disks have one.
    Model(Box<ModelUri>),
}

/// A text that is no disk URI; `Display` says where and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriError {
    /// The whole text.
    pub(crate) uri: String,
    /// The bytes of `uri` that are wrong; empty where something is missing.
    pub(crate) at: Range<usize>,
    /// What is wrong, in full, without the position.
    pub(crate) message: String,
    /// What to write instead, where that can be guessed.
    pub(crate) help: Option<String>,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.uri[..self.at.start].chars().count() + 1;
        write!(f, "{:?}, column {column}: {}", self.uri, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UriError {}

impl DiskUri {
    /// The disk inside all instruments: itself, unless it is an instrument.
    pub(crate) fn innermost(&self) -> &DiskUri {
        match self {
            DiskUri::Instrumented { inner, .. } => inner.innermost(),
            other => other,
        }
    }

    /// Microseconds of CPU that its instruments burn for each request.
    fn burn_us(&self) -> u64 {
        match self {
            DiskUri::Instrumented { instrument, inner } => {
                let own = if let Around::Burn { us } = instrument { *us } else { 0 };
                own.saturating_add(inner.burn_us())
            }
            _ => 0,
        }
    }

    /// Whether two URIs lead to the same bytes, so that only one disk may own them.
    pub(crate) fn same_backing(&self, other: &DiskUri) -> bool {
        match (self.innermost(), other.innermost()) {
            (
                DiskUri::File { path: a, .. } | DiskUri::BlockDevice { path: a },
                DiskUri::File { path: b, .. } | DiskUri::BlockDevice { path: b },
            ) => a == b,
            (DiskUri::Remote(a), DiskUri::Remote(b)) => a.same_backing(b),
            (DiskUri::Volume { name: a }, DiskUri::Volume { name: b }) => a == b,
            _ => false,
        }
    }

    /// The same disk, of which nothing is made.
    pub(crate) fn as_it_is(&self) -> DiskUri {
        match self {
            DiskUri::File { path, tail, .. } => {
                DiskUri::File { path: path.clone(), create_bytes: None, tail: *tail }
            }
            DiskUri::Instrumented { instrument, inner } => {
                let (instrument, inner) = (instrument.clone(), Box::new(inner.as_it_is()));
                DiskUri::Instrumented { instrument, inner }
            }
            other => other.clone(),
        }
    }

    /// Whether two URIs have the same instruments around their disks.
    pub(crate) fn same_instruments(&self, other: &DiskUri) -> bool {
        match (self, other) {
            (
                DiskUri::Instrumented { instrument: x, inner: a },
                DiskUri::Instrumented { instrument: y, inner: b },
            ) => x == y && a.same_instruments(b),
            (DiskUri::Instrumented { .. }, _) | (_, DiskUri::Instrumented { .. }) => false,
            _ => true,
        }
    }
}

/// Checks the name of a disk or volume; the error is what was expected.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if starts_well && name.len() <= 64 && name.bytes().all(legal) {
        Ok(())
    } else {
        Err("a name of 1 to 64 letters, digits, -, _ or . that begins with a letter or digit")
    }
}

/// Checks the name of an interface as the kernel does (`dev_valid_name`, up to `IFNAMSIZ`); the
/// error is what was expected.
pub(crate) fn check_interface(name: &str) -> Result<(), &'static str> {
    let illegal = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    match (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.contains(illegal) {
        true => Ok(()),
        false => Err("the name of an interface, of 1 to 15 bytes without blanks, / and :"),
    }
}

/// Bytes with every one of `special`, control characters and what is not UTF-8 written as `%XX`.
pub(crate) struct Encoded<'a>(pub(crate) &'a [u8], pub(crate) &'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '%' || c.is_ascii_control() || self.1.contains(c) {
                    write!(f, "%{:02X}", u32::from(c))?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(f, "{}", Encoded(path.as_os_str().as_bytes(), "?"))
}

impl fmt::Display for DiskUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskUri::Ram { bytes, touch } => {
                let touch = if *touch { "?touch=1" } else { "" };
                write!(f, "ram:{}{touch}", Size(*bytes))
            }
            DiskUri::Null { bytes } => write!(f, "null:{}", Size(*bytes)),
            DiskUri::File { path, create_bytes, tail } => {
                f.write_str("file:")?;
                // A path that begins with two slashes would read as the form with a host.
                if path.as_os_str().as_bytes().starts_with(b"//") {
                    f.write_str("//")?;
                }
                write_path(f, path)?;
                match (create_bytes, tail) {
                    (Some(bytes), _) => write!(f, "?create={}", Size(*bytes)),
                    (None, Tail::Ignore) => f.write_str("?tail=ignore"),
                    (None, Tail::Refuse) => Ok(()),
                }
            }
            DiskUri::BlockDevice { path } => write_path(f, path),
            DiskUri::Instrumented { instrument, inner } => match instrument {
                Around::Delay { us } => write!(f, "delay:{us},{inner}"),
                Around::Burn { us } => write!(f, "burn:{us},{inner}"),
                Around::Faulty { seed } => write!(f, "faulty:{seed},{inner}"),
                Around::Model(model) => write!(f, "model:{model},{inner}"),
            },
            DiskUri::Remote(uri) => uri.fmt(f),
            DiskUri::Volume { name } => write!(f, "volume:{name}"),
        }
    }
}

#[cfg(test)]
mod tests;
