//! Mistakes in a file that people write, a plan or a job file: collected, not thrown, and told each at
//! its line and column.
//!
//! A [`Mistake`] holds a span of the file's text, so that whoever has a terminal can draw the place;
//! [`Mistakes`] is all of them in the order of the text, and displays a line for each, as compilers
//! do. Units: spans are byte offsets; lines and columns count from 1, columns in characters.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// Bytes of the file's text.
pub type Span = Range<usize>;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub span: Span,
    /// What is wrong: the thing, what was expected, what was seen.
    pub message: String,
    /// A second place that explains the first: the other of two duplicates.
    pub first: Option<Span>,
    /// What was meant, or what to do.
    pub help: Option<String>,
}

impl Mistake {
    /// One at this place.
    pub fn new(span: Span, message: impl Into<String>) -> Mistake {
        Mistake { span, message: message.into(), first: None, help: None }
    }

    /// One at a place that others are at, too.
    pub(crate) fn at(span: &Span, message: impl Into<String>) -> Mistake {
        Mistake::new(span.clone(), message)
    }

    /// Adds the place where the same was written first.
    pub(crate) fn first(self, span: &Span) -> Mistake {
        Mistake { first: Some(span.clone()), ..self }
    }

    /// Adds what was meant or what to do.
    pub fn help(self, help: impl Into<String>) -> Mistake {
        Mistake { help: Some(help.into()), ..self }
    }

    /// Adds the known word that was probably meant, or all that there are.
    pub(crate) fn meant<'a>(
        self,
        word: &str,
        known: impl Iterator<Item = &'a str> + Clone,
        what: &str,
    ) -> Mistake {
        match nearest(word, known.clone()) {
            Some(meant) => self.help(format!("did you mean {meant}?")),
            None => {
                let all: Vec<&str> = known.collect();
                let all = if all.is_empty() { "none" } else { &all.join(", ") };
                self.help(format!("{what}: {all}"))
            }
        }
    }
}

/// Everything found wrong with one file, in the order of its text; never empty.
#[derive(Clone, Debug)]
pub struct Mistakes {
    name: String,
    text: String,
    list: Vec<Mistake>,
}

impl Mistakes {
    /// Those of a file, by its name and its text.
    pub fn new(name: &str, text: &str, mut list: Vec<Mistake>) -> Mistakes {
        list.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        // What [load] or [global] has is looked at again for each table or job.
        let mut seen = BTreeSet::new();
        list.retain(|one| seen.insert((one.span.start, one.span.end, one.message.clone())));
        Mistakes { name: name.to_owned(), text: text.to_owned(), list }
    }

    /// Each with its place, for whoever draws them.
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }

    /// One line for each: `plan.toml:12:8: error: message (help)`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.list.iter().take(LINES_MAX).map(|mistake| {
            let (line, column) = place(&self.text, mistake.span.start);
            let first = mistake.first.as_ref().map(|span| place(&self.text, span.start).0);
            let first = first.map(|line| format!("first in line {line}"));
            let notes: Vec<&str> =
                mistake.help.as_deref().into_iter().chain(first.as_deref()).collect();
            let notes =
                if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
            format!("{}:{line}:{column}: error: {}{notes}", self.name, mistake.message)
        })
    }
}

/// Lines that somebody reads; a file that is none of ours has a mistake in each.
const LINES_MAX: usize = 100;

/// The line and the column of a byte.
pub(crate) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

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

/// Letters of the longest word that anybody knows, and then some.
const WORD_MAX: usize = 64;

/// The candidate that was probably meant: the fewest edits away, and no more than a third of the
/// word (at least one). The rule of the configuration.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    // What is as long as no word is near to none.
    if length > WORD_MAX {
        return None;
    }
    let limit = if length < 2 { 0 } else { (length / 3).max(1) };
    candidates
        .map(|candidate| (strsim::osa_distance(&word.to_lowercase(), candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_at_its_line_and_column() {
        let text = "# täglich\nname = 7\n";
        let list = vec![
            Mistake::new(18..19, "name: expected a text, seen 7").help("put it in quotes"),
            Mistake::new(2..5, "odd").first(&(11..15)),
        ];
        let found = Mistakes::new("p.toml", text, list);
        let lines: Vec<String> = found.lines().collect();
        assert_eq!(lines[0], "p.toml:1:3: error: odd (first in line 2)");
        let second = "p.toml:2:8: error: name: expected a text, seen 7 (put it in quotes)";
        assert_eq!(lines[1], second);
        assert_eq!(found.to_string(), lines.join("\n"));
    }

    #[test]
    fn of_very_many_the_first_are_told_and_how_many_more_there_are() {
        let text = "x\n".repeat(150);
        let list = (0..150).map(|line| Mistake::new(line * 2..line * 2 + 1, "odd")).collect();
        let found = Mistakes::new("p.toml", &text, list);
        assert_eq!((found.list().len(), found.lines().count()), (150, 100));
        assert!(found.to_string().ends_with("p.toml:100:1: error: odd\nand 50 more"));
    }

    #[test]
    fn only_near_names_are_offered() {
        let offered =
            |word| Mistake::new(0..0, "").meant(word, ["depth", "jobs"].into_iter(), "known");
        assert_eq!(offered("dept").help.as_deref(), Some("did you mean depth?"));
        assert_eq!(offered("zebra").help.as_deref(), Some("known: depth, jobs"));
    }
}
