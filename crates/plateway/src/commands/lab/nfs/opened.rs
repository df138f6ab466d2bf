//! A file of a local folder that is open, and how its bytes are reached.
//!
//! A server reads and writes through the page cache, unless a plan wants it not to. Where FUSE alone is between a client and a file system, the page
//! cache below would be a second one of the client's, that nothing bounds, so there it is passed by (O_DIRECT) in whole
//! blocks: all reads that FUSE's own page cache asks for are such, and all writes but the one of a file's end, which the
//! kernel writes back before somebody reads it. Units: bytes. Errors: the system's; a file system without O_DIRECT.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::super::aligned::{ALIGNED, Buffer};

thread_local! {
    /// What goes past the page cache lies here: a thread carries out one call at a time.
    static BUFFER: RefCell<Buffer> = RefCell::new(Buffer::new(0));
}

/// How the bytes of files are reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Cached,
    Past,
}

/// An open file.
pub(super) struct Opened {
    pub(super) file: File,
    /// The same, opened past the page cache.
    past: Option<File>,
}

impl Opened {
    pub(super) fn open(path: &Path, reach: Reach) -> io::Result<Opened> {
        let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = open(0)?;
        let past = (reach == Reach::Past).then(|| open(libc::O_DIRECT)).transpose()?;
        Ok(Opened { file, past })
    }

    /// What goes past the page cache, if these bytes do.
    fn past(&self, offset: u64, length: usize) -> Option<&File> {
        let is_aligned = |at: u64| at.is_multiple_of(ALIGNED as u64);
        self.past.as_ref().filter(|_| is_aligned(offset) && is_aligned(length as u64))
    }

    /// Reads so many bytes, or as many as there are.
    pub(super) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let Some(past) = self.past(offset, length) else {
            let mut bytes = vec![0; length];
            let filled = fill(&self.file, &mut bytes, offset)?;
            bytes.truncate(filled);
            return Ok(bytes);
        };
        with_buffer(length, |buffer| {
            let filled = fill(past, buffer, offset)?;
            Ok(buffer[..filled].to_vec())
        })
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(past) = self.past(offset, bytes.len()) else {
            return self.file.write_all_at(bytes, offset);
        };
        with_buffer(bytes.len(), |buffer| {
            buffer.copy_from_slice(bytes);
            past.write_all_at(buffer, offset)
        })
    }
}

/// The thread's buffer, of this length.
fn with_buffer<T>(length: usize, call: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.get().len() < length {
            *buffer = Buffer::new(length);
        }
        call(&mut buffer.get()[..length])
    })
}

/// Reads until the buffer is full, or the file ends. Returns how many bytes.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
