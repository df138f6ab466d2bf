//! Why a disk cannot be opened: each message names the object, what was expected, what was seen,
//! and what to do.

use std::io;
use std::path::{Path, PathBuf};

use block::ByteCount;

use crate::memory::ArenaError;

/// Why a disk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A system call failed; `doing` as in "cannot ...".
    #[error("{}: cannot {doing}: {source}", path.display())]
    System { path: PathBuf, doing: &'static str, source: io::Error },
    /// The path names something else.
    #[error("{}: expected {expected}, found {seen}", path.display())]
    Kind { path: PathBuf, expected: &'static str, seen: &'static str },
    /// Somebody else has it; by whom, as far as the system says.
    #[error("{}: in use by {by}; two writers would destroy it", path.display())]
    InUse { path: PathBuf, by: &'static str },
    /// The file is there with another size, in bytes, than that of `create`, which makes files and
    /// changes none.
    #[error(
        "{}: {:#} were asked for by create, but the file is there and has {:#}; {}",
        path.display(),
        ByteCount(*expected),
        ByteCount(*seen),
        what_to_do(path, *expected, *seen)
    )]
    OtherSize { path: PathBuf, expected: u64, seen: u64 },
    /// The file, of so many bytes, ends within a block.
    #[error(
        "{path}: expected a multiple of {block} bytes, seen {seen}: its end would be out of reach; \
         to fill its last block with zeros: truncate -s {whole} {path}; \
         to serve it without: file:{path}?tail=ignore",
        path = path.display(),
        whole = seen.next_multiple_of(u64::from(*block))
    )]
    Ragged { path: PathBuf, seen: u64, block: u32 },
    /// The file, device or kind of disk holds no whole block, or is not made of blocks.
    #[error("{what}: {}; expected one or more blocks of 512 bytes", ByteCount(*bytes))]
    BadSize { what: String, bytes: u64 },
    /// A model whose power is cut has something else inside than memory.
    #[error(
        "cut_ms of a model: expected one model with it around ram:, whose contents can be put \
         back, seen {seen}"
    )]
    Cut { seen: &'static str },
    /// There is no address space for it.
    #[error("{0}")]
    Memory(#[source] ArenaError),
}

fn what_to_do(path: &Path, expected: u64, seen: u64) -> String {
    if seen > expected {
        return "leave create out to use it as it is, or name another file".to_owned();
    }
    format!(
        "if it was cut, what lay beyond is lost and would be read as zeros: put the whole file \
         back; to grow it on purpose: truncate -s {expected} {}",
        path.display()
    )
}
