//! Loads of many files: what a web server, a file server, a mail server and a database do with theirs, after the
//! personalities of filebench, as machines without I/O.
//!
//! ```text
//!   personality, bytes, seed --> FileSet     which files there are, how long, and in which folders
//!                                  |
//!   Hand (a thread's list) --> Register      which file is meant, who has it open, how long it is
//!          |                       |
//!          +----- Act ----> whoever has a file system does it, and says that it is done
//! ```
//! A [`Hand`] goes through a list of operations without end; at each it asks the [`Register`], which all hands
//! share, for a file, and gives out an [`Act`]. What a file holds follows from its number, how often it was made,
//! and the place in it ([`contents`]), so that a read can be judged. What is counted is in [`Count`].
//!
//! What deliberately does not live here: files, threads, clocks. Units: bytes, nanoseconds. Errors: a file set that
//! is too small for its threads is refused by plans; that a file is not as the register has it is the judgement of
//! whoever read it, with [`contents::differs`]. For users: docs/plans.md, "File workloads". Read `set` first, then
//! `register`, `hand`.

pub mod contents;
mod count;
mod hand;
mod register;
mod set;

use std::str::FromStr;

pub use count::{Count, Counted};
pub use hand::{Act, Deed, Hand, Role};
pub use register::{Part, Register};
pub use set::FileSet;

/// What a load of files is after: the name of filebench's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Personality {
    /// Ten files are opened, read and closed, then a line goes to a log.
    Webserver,
    /// A file is made, one is longer, one is read, one goes, one is looked at.
    Fileserver,
    /// A letter goes, one comes and is durable, one is read and answered, one is read.
    Varmail,
    /// Readers, writers and a log of a database, past the page cache.
    Oltp,
}

impl Personality {
    /// Every one by its word, in the order of the documentation.
    pub const WORDS: &'static [(&'static str, Personality)] = &[
        ("webserver", Personality::Webserver),
        ("fileserver", Personality::Fileserver),
        ("varmail", Personality::Varmail),
        ("oltp", Personality::Oltp),
    ];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        let known = Personality::WORDS.iter().find(|(_, one)| *one == self);
        known.expect("each has a word").0
    }

    /// Whether its clients work through the page cache.
    pub fn is_cached(self) -> bool {
        self != Personality::Oltp
    }

    /// Bytes of the smallest set that so many threads can work on without waiting for each other's files.
    pub fn bytes_min(self, threads: u32) -> u64 {
        match self {
            // Ten data files and a log, each with room for one write of the log.
            Personality::Oltp => set::OLTP_FILES * set::OLTP_LOG_WRITE,
            _ => FILES_EACH * u64::from(threads) * set::bytes_mean(self),
        }
    }

    /// Who there is of so many threads: of a database these are the readers, and its writers are beside them.
    pub fn roles(self, threads: u32) -> Vec<Role> {
        let all = |role: Role| std::iter::repeat_n(role, threads as usize);
        match self {
            Personality::Webserver => all(Role::Web).collect(),
            Personality::Fileserver => all(Role::Files).collect(),
            Personality::Varmail => all(Role::Mail).collect(),
            Personality::Oltp => {
                let writers = std::iter::repeat_n(Role::Writer, hand::WRITERS);
                all(Role::Reader).chain(writers).chain([Role::Log]).collect()
            }
        }
    }
}

impl FromStr for Personality {
    type Err = String;

    fn from_str(word: &str) -> Result<Personality, String> {
        let known = Personality::WORDS.iter().find(|(known, _)| *known == word);
        known.map(|(_, one)| *one).ok_or_else(|| {
            let words: Vec<&str> = Personality::WORDS.iter().map(|(word, _)| *word).collect();
            format!("expected {}, seen {word:?}", words.join(", "))
        })
    }
}

/// Files for each thread: at any time a thread has one open, one may be in the making and one going, and a fifth of
/// them is not there.
const FILES_EACH: u64 = 16;

#[cfg(test)]
mod tests;
