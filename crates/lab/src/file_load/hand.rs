//! A thread of a load of files: a list of operations that it goes through without end, as filebench's personality has
//! them.
//!
//! ```text
//!   webserver    (open, read all, close) ten times, append to the log
//!   fileserver   create, write all, close; open, append, close; open, read all, close; delete; stat
//!   varmail      delete; create, append, fsync, close; open, read all, append, fsync, close; open, read all, close
//!   oltp         each reader: read 2 KiB.  Each of ten writers: for 100 reads 10 times 2 KiB, each durable.
//!                The log: for 3200 reads 256 KiB, durable
//! ```
//! [`Hand::next`] says what is to be done, or that it is somebody else's turn first; then it is done, and
//! [`Hand::end`] is told. Appends have 1 byte to 16 KiB, each as likely. What filebench does between operations to keep
//! a CPU busy (`hog`) is left out: it would be measured as if it were the cost of storage. Its database's writers
//! write 100 times for 1000 reads, ours 10 for 100: the same share, in shorter bursts. Units: bytes. Errors: none.

use block::Random;

use super::Personality;
use super::contents;
use super::register::{Part, Register};
use super::set::OLTP_LOG_WRITE;

/// Which list a hand goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Web,
    Files,
    Mail,
    Reader,
    Writer,
    Log,
}

/// An operation of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    ReadAll,
    Close,
    AppendLog,
    Create,
    WriteAll,
    Append,
    Delete,
    Stat,
    Sync,
    ReadBlock,
    WriteBlock,
    WriteLog,
}

/// What is to be done with a file. Each is an operation that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is there.
    Open,
    /// It is not there.
    Create,
    /// From its start, so much, which is there.
    Read(Part),
    Write(Part),
    /// At its end; of a log that begins `anew`, it is cut to nothing before.
    Append {
        part: Part,
        log: bool,
        anew: bool,
    },
    Sync,
    Close,
    /// Nobody has it open.
    Delete,
    /// It is at least so long.
    Stat {
        bytes: u64,
    },
    /// Past the page cache.
    ReadAt(Part),
    /// Past the page cache, and durable when it is done.
    WriteAt(Part),
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    pub deed: Deed,
    pub file: u32,
    /// What the file's contents follow from.
    pub key: u64,
}

/// A thread of a load.
#[derive(Debug)]
pub struct Hand {
    role: Role,
    /// The next one of its list.
    at: usize,
    /// What it has open.
    file: Option<u32>,
    random: Random,
    /// Of a database: its number among those that wait for reads, and how many writes are left.
    writer: usize,
    left: u32,
    /// A read of which writers have not taken note yet.
    is_unnoted: bool,
}

/// Writers of a database.
pub(super) const WRITERS: usize = 10;
/// One writes so often for so many reads, of which readers are ahead by so many at most while it does.
const WRITES: u32 = 10;
const READS: u32 = 100;
const READS_AHEAD: u32 = 200;
/// The same of the log, of one write.
const LOG_READS: u32 = 3_200;
const LOG_READS_AHEAD: u32 = 1_000;
/// Bytes of a request of a database.
const BLOCK: u64 = 2 << 10;
/// The longest append.
const APPEND_MAX: u64 = 16 << 10;

impl Role {
    fn list(self) -> &'static [Step] {
        use Step::*;
        match self {
            Role::Web => &[
                Open, ReadAll, Close, Open, ReadAll, Close, Open, ReadAll, Close, Open, ReadAll,
                Close, Open, ReadAll, Close, Open, ReadAll, Close, Open, ReadAll, Close, Open,
                ReadAll, Close, Open, ReadAll, Close, Open, ReadAll, Close, AppendLog,
            ],
            Role::Files => {
                &[Create, WriteAll, Close, Open, Append, Close, Open, ReadAll, Close, Delete, Stat]
            }
            Role::Mail => &[
                Delete, Create, Append, Sync, Close, Open, ReadAll, Append, Sync, Close, Open,
                ReadAll, Close,
            ],
            Role::Reader => &[ReadBlock],
            Role::Writer => &[WriteBlock],
            Role::Log => &[WriteLog],
        }
    }
}

impl Hand {
    /// A thread that draws from a seed of its own.
    pub fn new(role: Role, seed: u64, register: &mut Register) -> Hand {
        let writer = match role {
            Role::Writer => register.add_waiting(READS, READS_AHEAD),
            Role::Log => register.add_waiting(LOG_READS, LOG_READS_AHEAD),
            _ => 0,
        };
        let random = Random::new(seed);
        Hand { role, at: 0, file: None, random, writer, left: 0, is_unnoted: false }
    }

    /// The bytes that it needs at once, at most so many where a file is longer.
    pub fn buffer_bytes(personality: Personality) -> usize {
        match personality {
            Personality::Oltp => OLTP_LOG_WRITE as usize,
            // As filebench's `iosize`.
            _ => 1 << 20,
        }
    }

    /// What is to be done; nothing where somebody else's turn is first, who says so by [`Register::takes_wakes`].
    pub fn next(&mut self, register: &mut Register) -> Option<Act> {
        if self.is_unnoted {
            self.is_unnoted = !register.note_read();
            if self.is_unnoted {
                return None;
            }
        }
        let (deed, file) = match self.role.list()[self.at] {
            Step::Open => (Deed::Open, register.open(&mut self.random)?),
            Step::Create => (Deed::Create, register.begin_making(&mut self.random)?),
            Step::Delete => (Deed::Delete, register.begin_deleting(&mut self.random)?),
            Step::Stat => {
                let file = register.open(&mut self.random)?;
                (Deed::Stat { bytes: register.written(file) }, file)
            }
            Step::AppendLog => {
                let (part, anew) = register.append_to_log(self.append_bytes());
                (Deed::Append { part, log: true, anew }, 0)
            }
            Step::ReadBlock => self.at_any(register, BLOCK, Deed::ReadAt),
            Step::WriteBlock => {
                if self.left == 0 {
                    self.left = if register.is_due(self.writer) { WRITES } else { return None };
                }
                self.left -= 1;
                self.at_any(register, BLOCK, Deed::WriteAt)
            }
            Step::WriteLog => {
                if !register.is_due(self.writer) {
                    return None;
                }
                let log = register.set().count() - 1;
                let places = register.set().length(log) / OLTP_LOG_WRITE;
                let offset = self.random.below(places) * OLTP_LOG_WRITE;
                (Deed::WriteAt(Part { offset, bytes: OLTP_LOG_WRITE }), log)
            }
            of_open => self.with_open(of_open, register),
        };
        self.file = match deed {
            Deed::Open | Deed::Create => Some(file),
            _ => self.file,
        };
        let (seed, generation) = (register.set().seed(), register.generation(file));
        Some(Act { deed, file, key: contents::key(seed, file, generation) })
    }

    /// A step on the file that is open.
    fn with_open(&mut self, step: Step, register: &mut Register) -> (Deed, u32) {
        let file = self.file.expect("what is read, written and closed is open");
        let deed = match step {
            Step::ReadAll => Deed::Read(Part { offset: 0, bytes: register.written(file) }),
            Step::WriteAll => {
                let bytes = register.set().length(file);
                Deed::Write(register.begin_appending(file, bytes))
            }
            Step::Append => {
                let part = register.begin_appending(file, self.append_bytes());
                Deed::Append { part, log: false, anew: false }
            }
            Step::Sync => Deed::Sync,
            Step::Close => Deed::Close,
            other => unreachable!("{other:?} is of no open file"),
        };
        (deed, file)
    }

    /// A block of any data file, at any place of it.
    fn at_any(
        &mut self,
        register: &Register,
        bytes: u64,
        deed: impl Fn(Part) -> Deed,
    ) -> (Deed, u32) {
        // The last one is the log.
        let file = self.random.below(u64::from(register.set().count() - 1)) as u32;
        let places = register.set().length(file) / bytes;
        (deed(Part { offset: self.random.below(places) * bytes, bytes }), file)
    }

    fn append_bytes(&mut self) -> u64 {
        self.random.below(APPEND_MAX) + 1
    }

    /// It is done.
    pub fn end(&mut self, register: &mut Register, act: &Act) {
        match act.deed {
            Deed::Close => {
                self.file = None;
                match register.is_made(act.file) {
                    true => register.end_making(act.file),
                    false => register.end_open(act.file),
                }
            }
            Deed::Delete => register.end_deleting(act.file),
            Deed::Stat { .. } => register.end_open(act.file),
            Deed::Write(_) | Deed::Append { log: false, .. } => register.end_appending(act.file),
            Deed::ReadAt(_) => self.is_unnoted = !register.note_read(),
            _ => {}
        }
        self.at = (self.at + 1) % self.role.list().len();
    }
}
