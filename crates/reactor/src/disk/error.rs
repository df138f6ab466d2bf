//! Why a disk cannot be opened: each message names the object, what was expected, what was seen,
//! and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::memory::ArenaError;

/// Why a disk cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A system call failed.
    System {
        /// The file or device.
        path: PathBuf,
        /// What was tried, as in "cannot ...".
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path names something else.
    Kind {
        /// The path.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        seen: &'static str,
    },
    /// Somebody else has it.
    InUse {
        /// The file or device.
        path: PathBuf,
        /// By whom, as far as the system says.
        by: &'static str,
    },
    /// The file is there with another size than that of `create`, which makes files and changes
    /// none.
    OtherSize {
        /// The file.
        path: PathBuf,
        /// Bytes that `create` names.
        expected: u64,
        /// Bytes that it has.
        seen: u64,
    },
    /// The file ends within a block.
    Ragged {
        /// The file.
        path: PathBuf,
        /// Bytes that it has.
        seen: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// It holds no whole block, or is not made of blocks.
    BadSize {
        /// The file, device or kind of disk.
        what: String,
        /// Its bytes.
        bytes: u64,
    },
    /// There is no address space for it.
    Memory(ArenaError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::System { path, doing, source } => {
                write!(f, "{}: cannot {doing}: {source}", path.display())
            }
            OpenError::Kind { path, expected, seen } => {
                write!(f, "{}: expected {expected}, found {seen}", path.display())
            }
            OpenError::InUse { path, by } => {
                write!(f, "{}: in use by {by}; two writers would destroy it", path.display())
            }
            OpenError::OtherSize { path, expected, seen } => {
                let path = path.display();
                let asked = format!("create={expected} was asked for, but the file is there");
                write!(f, "{path}: {asked} and has {seen} bytes; ")?;
                match seen > expected {
                    true => {
                        f.write_str("leave create out to use it as it is, or name another file")
                    }
                    false => write!(
                        f,
                        "if it was cut, what lay beyond is lost and would be read as zeros: \
                         put the whole file back; to grow it on purpose: truncate -s {expected} {path}"
                    ),
                }
            }
            OpenError::Ragged { path, seen, block } => {
                let path = path.display();
                let whole = seen.next_multiple_of(u64::from(*block));
                write!(
                    f,
                    "{path}: expected a multiple of {block} bytes, seen {seen}: its end would be \
                     out of reach; to fill its last block with zeros: truncate -s {whole} {path}"
                )
            }
            OpenError::BadSize { what, bytes } => {
                write!(f, "{what}: {bytes} bytes; expected one or more blocks of 512 bytes")
            }
            OpenError::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::System { source, .. } => Some(source),
            OpenError::Memory(error) => Some(error),
            _ => None,
        }
    }
}
