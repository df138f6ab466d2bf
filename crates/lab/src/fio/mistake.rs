//! Mistakes in a job file: collected, not thrown, and told each at its line and column, as those of
//! plans are ([`crate::plan`], whose [`Mistake`] this is).
//!
//! Units: spans are byte offsets; lines and columns count from 1, columns in characters.

use std::collections::BTreeSet;
use std::fmt;

use crate::plan::{Mistake, Span};

/// Everything found wrong with one job file, in the order of its text; never empty.
#[derive(Clone, Debug)]
pub struct Mistakes {
    name: String,
    text: String,
    list: Vec<Mistake>,
}

/// Something wrong, without help.
pub(super) fn wrong(span: &Span, message: impl Into<String>) -> Mistake {
    Mistake { span: span.clone(), message: message.into(), first: None, help: None }
}

/// Something wrong, and what to do.
pub(super) fn helped(span: &Span, message: impl Into<String>, help: impl Into<String>) -> Mistake {
    Mistake { help: Some(help.into()), ..wrong(span, message) }
}

/// The line and the column of a byte.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

impl Mistakes {
    pub(super) fn new(name: &str, text: &str, mut list: Vec<Mistake>) -> Mistakes {
        list.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        // What [global] has is looked at again for each job.
        let mut seen = BTreeSet::new();
        list.retain(|one| seen.insert((one.span.start, one.span.end, one.message.clone())));
        Mistakes { name: name.to_owned(), text: text.to_owned(), list }
    }

    /// Each with its place.
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    /// One line for each: `a.fio:12:8: error: message (help)`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.list.iter().take(LINES_MAX).map(|mistake| {
            let (line, column) = place(&self.text, mistake.span.start);
            let help = mistake.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("{}:{line}:{column}: error: {}{help}", self.name, mistake.message)
        })
    }
}

/// Lines that somebody reads; a file that is none has a mistake in each.
const LINES_MAX: usize = 100;

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines().collect();
        f.write_str(&lines.join("\n"))?;
        match self.list.len().saturating_sub(LINES_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Mistakes {}
