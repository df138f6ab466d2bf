//! What a copy leaves behind for the case that it ends early: which disks its two ends are, and up
//! to where the destination durably holds what the source does.
//!
//! What a journal says is true at every moment, whatever happens in the next: it is on its shelf
//! before the first byte is written ([`Logbook::open`]), follows what is durable and never runs
//! ahead of it, and is taken away once the copy is whole or was found to differ. A resume goes on
//! only where both ends are what it says ([`Journal::resume`]). When an end was last changed is
//! known once nobody writes it any more: of the destination only after an orderly end, so after any
//! other a resume first looks whether it is there what the copy left ([`Start::Crashed`]).
//!
//! Units: bytes. Errors: the text of a journal that is torn, damaged or of another version is
//! refused; an end that is another one is an [`Other`]. Not here: files ([`Shelf`]), and how a disk
//! says what it is.

use std::fmt;
use std::ops::Range;

use block::checksum::crc32c;
use serde::{Deserialize, Serialize};

/// Bytes at either end of what was copied that are looked at after a disorderly end: as many as
/// are looked at before a disk is overwritten.
const CHECK: u64 = 1 << 20;
/// What this version writes, and all that it reads.
const VERSION: u32 = 1;

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Where it is, as it was named.
    pub name: String,
    /// Which disk it is, wherever it is found.
    pub identity: String,
    pub bytes: u64,
    /// When it was last changed; `None` where nobody tells, or where it may change yet.
    pub changed: Option<String>,
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    pub source: End,
    pub destination: End,
    /// What lies before is copied, written and flushed.
    pub durable: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    version: u32,
    journal: Journal,
    /// Of the journal as JSON without blanks.
    crc32c: u32,
}

/// What is to be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    All,
    /// What this life copies.
    Rest,
    Nothing,
}

impl Verify {
    /// What to compare of a copy of `size` bytes that begins at `from`. Where nothing is left to
    /// copy there is no rest, and all is compared: a life that ended while it compared has compared
    /// nothing.
    pub fn range(self, from: u64, size: u64) -> Range<u64> {
        match self {
            Verify::Nothing => 0..0,
            Verify::Rest if from < size => from..size,
            Verify::All | Verify::Rest => 0..size,
        }
    }
}

/// From where a copy goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// From here; the destination is as the copy left it.
    Known(u64),
    /// From here, if it is: that the copy was the last to change the destination is not known. What
    /// it made durable is looked at before anything is written ([`Start::checks`]); of one that
    /// made nothing durable nothing can be seen.
    Crashed(u64),
}

impl Start {
    /// Where copying begins.
    pub fn from(self) -> u64 {
        match self {
            Start::Known(from) | Start::Crashed(from) => from,
        }
    }

    /// What must be the same before anything is written.
    pub fn checks(self) -> Vec<Range<u64>> {
        match self {
            Start::Crashed(from) if from > 0 => {
                // In whole pages, which all blocks divide.
                vec![0..from.min(CHECK), from.saturating_sub(CHECK) / 4096 * 4096..from]
            }
            Start::Known(_) | Start::Crashed(_) => Vec::new(),
        }
    }
}

/// An end is not what the journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    name: String,
    what: &'static str,
    expected: String,
    seen: String,
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Other { name, what, expected, seen } = self;
        write!(f, "{name} is not what it was: expected {what}{expected}, seen {what}{seen}")
    }
}

impl Journal {
    /// As it is kept.
    pub fn text(&self) -> String {
        let crc32c = self.checksum();
        let sealed = Sealed { version: VERSION, journal: self.clone(), crc32c };
        serde_json::to_string_pretty(&sealed).expect("words and numbers") + "\n"
    }

    /// Of what was kept; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Journal, String> {
        let sealed: Sealed = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Sealed { version, journal, crc32c } = sealed;
        if version != VERSION {
            return Err(format!("expected version {VERSION}, seen {version}"));
        }
        let expected = journal.checksum();
        if crc32c != expected {
            return Err(format!("expected checksum {expected}, seen {crc32c}"));
        }
        Ok(journal)
    }

    /// The same copy, after its ends were opened, which may have changed their times.
    pub fn reopened(&self, source: Option<String>, destination: Option<String>) -> Journal {
        let again = |end: &End, changed: Option<String>| {
            let changed = changed.filter(|_| end.changed.is_some());
            End { changed, ..end.clone() }
        };
        Journal {
            source: again(&self.source, source),
            destination: again(&self.destination, destination),
            durable: self.durable,
        }
    }

    fn checksum(&self) -> u32 {
        crc32c(&serde_json::to_vec(self).expect("words and numbers"))
    }

    /// How to go on with these ends, if they are those of the journal.
    pub fn resume(&self, source: &End, destination: &End) -> Result<Start, Other> {
        same(&self.source, source)?;
        same(&self.destination, destination)?;
        let from = self.durable.min(source.bytes);
        Ok(match &self.destination.changed {
            Some(_) => Start::Known(from),
            None => Start::Crashed(from),
        })
    }
}

/// Whether an end is what it was.
fn same(was: &End, is: &End) -> Result<(), Other> {
    let other = |what, expected: &dyn fmt::Display, seen: &dyn fmt::Display| {
        let (name, expected, seen) = (is.name.clone(), expected.to_string(), seen.to_string());
        Err(Other { name, what, expected, seen })
    };
    if was.identity != is.identity {
        return other("", &was.identity, &is.identity);
    }
    if was.bytes != is.bytes {
        return other("bytes: ", &was.bytes, &is.bytes);
    }
    match &was.changed {
        Some(then) if is.changed.as_ref() != Some(then) => {
            other("last changed at ", then, &is.changed.as_deref().unwrap_or("an unknown time"))
        }
        _ => Ok(()),
    }
}

/// Where a journal is kept.
pub trait Shelf {
    type Error;

    /// Replaces what is there, durably once this returns; what breaks it off leaves one or the
    /// other, whole.
    fn put(&mut self, text: &str) -> Result<(), Self::Error>;

    /// Takes away what is there, durably.
    fn remove(&mut self) -> Result<(), Self::Error>;
}

/// How a life of a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All was copied, and what was compared is the same.
    Whole,
    /// The destination is not what was written there.
    Differs,
    /// Before all was copied and compared.
    Early,
}

/// The journal of a copy under way.
#[derive(Debug)]
pub struct Logbook {
    journal: Journal,
}

impl Logbook {
    /// Begins one: what was on the shelf is said to be true no more before anything is written. The
    /// destination is about to be changed.
    pub fn open<S: Shelf>(
        shelf: &mut S,
        source: End,
        destination: End,
        durable: u64,
    ) -> Result<Logbook, S::Error> {
        let destination = End { changed: None, ..destination };
        let journal = Journal { source, destination, durable };
        shelf.put(&journal.text())?;
        Ok(Logbook { journal })
    }

    /// So much is durable now. After an error the shelf says less, which is true as well.
    pub fn advance<S: Shelf>(&mut self, shelf: &mut S, durable: u64) -> Result<(), S::Error> {
        if durable <= self.journal.durable {
            return Ok(());
        }
        self.journal.durable = durable;
        shelf.put(&self.journal.text())
    }

    /// The copy has ended, and the destination is at rest: it was last changed at `changed`. What
    /// the source was is what was copied, so that stays.
    pub fn close<S: Shelf>(
        mut self,
        shelf: &mut S,
        ending: Ending,
        changed: Option<String>,
    ) -> Result<(), S::Error> {
        match ending {
            Ending::Whole | Ending::Differs => shelf.remove(),
            Ending::Early => {
                self.journal.destination.changed = changed;
                shelf.put(&self.journal.text())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str) -> End {
        let identity = format!("serial {name}");
        End { name: name.into(), identity, bytes: 8 << 20, changed: Some("12.5".into()) }
    }

    fn journal() -> Journal {
        Journal { source: end("a \"odd\" one"), destination: end("b"), durable: 3 << 20 }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written_or_not_at_all() {
        let text = journal().text();
        assert_eq!(Journal::parse(&text), Ok(journal()));
        for length in 0..text.trim_end().len() {
            assert!(Journal::parse(&text[..length]).is_err(), "the first {length} bytes");
        }
        for (at, was) in text.char_indices().filter(|(_, was)| was.is_ascii_digit()) {
            let other = if was == '7' { "8" } else { "7" };
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, other);
            assert!(Journal::parse(&damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn only_the_same_ends_are_gone_on_with() {
        let (journal, a, b) = (journal(), end("a \"odd\" one"), end("b"));
        assert_eq!(journal.resume(&a, &b), Ok(Start::Known(3 << 20)));
        let other = journal.resume(&b, &a).unwrap_err().to_string();
        assert!(other.contains("expected serial a") && other.contains("seen serial b"), "{other}");
        for (changed, said) in [
            (End { bytes: 9 << 20, ..b.clone() }, "bytes: 8388608, seen bytes: 9437184"),
            (
                End { changed: Some("12.6".into()), ..b.clone() },
                "at 12.5, seen last changed at 12.6",
            ),
            (End { changed: None, ..b.clone() }, "seen last changed at an unknown time"),
        ] {
            let other = journal.resume(&a, &changed).unwrap_err().to_string();
            assert!(other.contains(said), "{other}");
        }
        // By another name it is the same disk.
        let renamed = End { name: "c".into(), ..b };
        assert!(journal.resume(&a, &renamed).is_ok());
    }

    #[test]
    fn after_a_crash_both_ends_of_what_was_copied_are_looked_at() {
        let mut journal = journal();
        journal.destination.changed = None;
        let start = journal.resume(&journal.source, &end("b")).unwrap();
        assert_eq!(start, Start::Crashed(3 << 20));
        assert_eq!(start.checks(), [0..1 << 20, 2 << 20..3 << 20]);
        assert_eq!(Start::Crashed(1536).checks(), [0..1536, 0..1536]);
        assert!(Start::Crashed(0).checks().is_empty() && Start::Known(7).checks().is_empty());
    }

    #[test]
    fn the_rest_is_all_where_nothing_is_left_to_copy() {
        assert_eq!(Verify::Rest.range(3, 8), 3..8);
        assert_eq!(Verify::Rest.range(8, 8), 0..8);
        assert_eq!(Verify::All.range(3, 8), 0..8);
        assert!(Verify::Nothing.range(3, 8).is_empty());
    }
}
