//! The lines of a job file: sections in brackets, keys with and without a value, comments.
//!
//! A comment begins at `#` or `;`, wherever that stands, as fio has it: no value can hold one. Blanks
//! and control characters around a key or a value do not count, nor does a carriage return. In a value
//! `${NAME}` is what the environment holds. `include` is refused: a job file is one file. Values are
//! understood by [`super::keys`]. Errors: lines that are none of these, variables that are not there.

use std::collections::BTreeMap;

use super::job::Notes;
use super::keys::{self, Given};
use crate::mistake::{Mistake, Span};

/// A text with so many is none of ours, and what else is wrong with it nobody reads.
const MISTAKES_MAX: usize = 1_000;
/// Longer lines and values fio does not read whole either.
const LINE_MAX: usize = 4096;

/// What stands behind a name in brackets.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: String,
    /// Of the name.
    pub(super) span: Span,
    pub(super) is_global: bool,
    /// What is understood, by key; the last of several.
    pub(super) given: BTreeMap<&'static str, Given>,
    /// Keys that mean nothing here.
    pub(super) idle: Vec<&'static str>,
    pub(super) notes: Notes,
    /// Keys whose values were refused.
    pub(super) refused: Vec<&'static str>,
}

/// Reads the lines of a text.
pub(super) fn read(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut at = 0;
    for line in text.split('\n') {
        if mistakes.len() >= MISTAKES_MAX {
            break;
        }
        let span = bare(line, at);
        at += line.len() + 1;
        let bare = &text[span.clone()];
        if bare.is_empty() {
            continue;
        }
        if let Some(nul) = bare.find('\0') {
            let at = span.start + nul;
            mistakes.push(Mistake::at(&(at..at + 1), "expected text, seen a byte that is 0"));
        } else if bare.len() > LINE_MAX {
            let message = format!("expected at most {LINE_MAX} bytes, seen {}", bare.len());
            mistakes.push(Mistake::at(&span, message));
        } else if bare.starts_with('[') {
            sections.extend(header(bare, &span, mistakes));
        } else {
            entry(bare, &span, &mut sections, environment, mistakes);
        }
    }
    sections
}

/// Where a line is without its comment and what surrounds it; `at` is where the line begins.
fn bare(line: &str, at: usize) -> Span {
    let line_end = match line.trim_start_matches(blank).starts_with('[') {
        // A name may hold what begins a comment elsewhere.
        true => line.find(']').map_or(line.len(), |end| {
            end + line[end..].find(['#', ';']).unwrap_or(line.len() - end)
        }),
        false => line.find(['#', ';']).unwrap_or(line.len()),
    };
    trim(&line[..line_end], at)
}

/// The bytes of a text, which begins at `at`, without blanks around it.
fn trim(text: &str, at: usize) -> Span {
    let start = at + text.len() - text.trim_start_matches(blank).len();
    let end = start + text.trim_matches(blank).len();
    start..end
}

/// What does not count around keys and values.
fn blank(symbol: char) -> bool {
    symbol.is_whitespace() || (symbol.is_control() && symbol != '\0') || symbol == '\u{feff}'
}

fn header(line: &str, span: &Span, mistakes: &mut Vec<Mistake>) -> Option<Section> {
    let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        let message = format!("expected a name in brackets, as in [job], seen {line:?}");
        mistakes.push(Mistake::at(span, message));
        // What follows is not the section's before.
        return Some(section("", span, false));
    };
    let is_global = name == "global";
    if name.is_empty() || name.len() > 255 || name.chars().any(|one| one.is_control() || one == ']')
    {
        let message = format!("expected a name of 1 to 255 printable characters, seen {name:?}");
        mistakes.push(Mistake::at(span, message));
    } else if name.starts_with("global") && !is_global {
        let message = format!("the section {name:?} is [global] to fio, as its name begins so");
        mistakes
            .push(Mistake::at(span, message).help("call it [global], or begin its name otherwise"));
    }
    Some(section(name, span, is_global))
}

fn section(name: &str, span: &Span, is_global: bool) -> Section {
    let (given, idle, notes) = (BTreeMap::new(), Vec::new(), Vec::new());
    let (name, span, refused) = (name.to_owned(), span.clone(), Vec::new());
    Section { name, span, is_global, given, idle, notes, refused }
}

/// A key with its value, for the last section.
fn entry(
    line: &str,
    span: &Span,
    sections: &mut [Section],
    environment: &dyn Fn(&str) -> Option<String>,
    mistakes: &mut Vec<Mistake>,
) {
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (key, Some(trim(value, span.start + key.len() + 1))),
        None => (line, None),
    };
    let key_span = trim(key, span.start);
    let key = key.trim_matches(blank);
    if key.split(blank).next() == Some("include") {
        let help = "put the lines of that file in its place";
        mistakes.push(Mistake::at(span, "include is not taken: a job file is one file").help(help));
        return;
    }
    let Some(section) = sections.last_mut() else {
        let message = format!("{key:?} stands before any section");
        mistakes.push(
            Mistake::at(&key_span, message).help("write [global] or the name of a job above it"),
        );
        return;
    };
    let value_span = value.clone().unwrap_or_else(|| key_span.clone());
    let value = match value {
        None => None,
        Some(value) => {
            let text = &line[value.start - span.start..value.end - span.start];
            match expand(text, environment) {
                Ok(text) => Some(text),
                Err(why) => {
                    mistakes.push(Mistake::at(&value, format!("{key}: {why}")));
                    return;
                }
            }
        }
    };
    keys::take(section, key, &key_span, value.as_deref(), &value_span, mistakes);
}

/// A value with what the environment holds in place of its variables.
fn expand(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((name, behind)) = behind.split_once('}') else { break };
        let value = environment(name)
            .ok_or_else(|| format!("expected the environment to have {name:?}, seen nothing"))?;
        expanded += before;
        expanded += &value;
        rest = behind;
        if expanded.len() > LINE_MAX {
            return Err(format!("expected at most {LINE_MAX} bytes with ${{{name}}} in it"));
        }
    }
    expanded += rest;
    for word in ["$pagesize", "$mb_memory", "$ncpus"] {
        if expanded.contains(word) {
            return Err(format!("{word} is not taken: write the number"));
        }
    }
    Ok(expanded)
}
