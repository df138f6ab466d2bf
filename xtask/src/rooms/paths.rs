//! Finds the standard-library paths that a Rust file names, without compiling it.
//!
//! In: a file's text. Out: full paths such as `std::time::Instant` with the line on which the path begins.
//! Lists in braces are spread out; comments, strings and `#[cfg(test)]` modules are left out. This reads
//! tokens and not names: a path hidden in a macro of another crate is not seen, which a wall between honest
//! neighbours can bear.

use std::iter::Peekable;
use std::vec::IntoIter;

/// A word or a sign, with its line (from 1).
type Token = (usize, String);

/// Every path in `text` that begins with `std`, spread out, with its line.
pub(super) fn standard_library(text: &str) -> Vec<(usize, String)> {
    let mut tokens = without_tests(tokens(text)).into_iter().peekable();
    let mut found = Vec::new();
    let mut before = String::new();
    while let Some((line, word)) = tokens.next() {
        // `use std as s;` would hide every path behind another name: it counts as the whole of `std`.
        let is_path = word == "std" && tokens.peek().is_some_and(|(_, next)| next == "::");
        let is_whole = word == "std" && before == "use" && !is_path;
        if is_path {
            spread("std", line, &mut tokens, &mut found);
        } else if is_whole {
            found.push((line, word.clone()));
        }
        before = word;
    }
    found
}

/// Follows a use tree after `prefix`; pushes each full path that it names.
fn spread(
    prefix: &str,
    line: usize,
    tokens: &mut Peekable<IntoIter<Token>>,
    found: &mut Vec<(usize, String)>,
) {
    if tokens.next_if(|(_, sign)| sign == "::").is_none() {
        found.push((line, prefix.to_owned()));
        return;
    }
    match tokens.next() {
        Some((_, sign)) if sign == "{" => {
            while let Some((at, word)) = tokens.next() {
                match word.as_str() {
                    "}" => break,
                    "," => {}
                    "self" => found.push((at, prefix.to_owned())),
                    // In an `as` clause: what follows is a new name and no path.
                    "as" => drop(tokens.next()),
                    _ => spread(&format!("{prefix}::{word}"), at, tokens, found),
                }
            }
        }
        // A turbofish or a qualified path ends the part that matters.
        Some((_, word)) if word != "<" => {
            spread(&format!("{prefix}::{word}"), line, tokens, found);
        }
        _ => found.push((line, prefix.to_owned())),
    }
}

/// Drops each module (or other item) that follows `#[cfg(test)]`, to its closing brace or semicolon.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while index < tokens.len() {
        let is_test = TEST
            .iter()
            .enumerate()
            .all(|(ahead, word)| tokens.get(index + ahead).is_some_and(|(_, found)| found == word));
        if !is_test {
            kept.push(tokens[index].clone());
            index += 1;
            continue;
        }
        index += TEST.len();
        let mut depth = 0_usize;
        while let Some((_, word)) = tokens.get(index) {
            index += 1;
            match word.as_str() {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (word == "}" || word == ";") {
                break;
            }
        }
    }
    kept
}

/// Words, `::` and single signs; comments, strings and character literals are skipped.
fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = match rest[0] {
            b'/' if rest.starts_with(b"//") => until(rest, b"\n"),
            b'/' if rest.starts_with(b"/*") => block_comment(rest),
            b'"' => string(rest),
            b'r' if raw_string(rest).is_some() => raw_string(rest).unwrap_or(1),
            b'\'' => quote(rest),
            first if is_word(first) => {
                let length = rest.iter().take_while(|byte| is_word(**byte)).count();
                found.push((line, text[at..at + length].to_owned()));
                length
            }
            b':' if rest.starts_with(b"::") => {
                found.push((line, "::".to_owned()));
                2
            }
            first => {
                if first.is_ascii_punctuation() {
                    found.push((line, char::from(first).to_string()));
                }
                1
            }
        };
        let end = (at + length).min(bytes.len());
        line += bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        at = end;
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Bytes before `end`, or all that is left.
fn until(rest: &[u8], end: &[u8]) -> usize {
    rest.windows(end.len()).position(|window| window == end).unwrap_or(rest.len())
}

/// The length of a block comment; they nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a string literal with escapes.
fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of `r"..."` or `r#"..."#`, if it is one.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.extend(std::iter::repeat_n(b'#', hashes));
    let body = 2 + hashes;
    Some(body + until(&rest[body..], &end) + end.len())
}

/// The length of a character literal, or 1 for the quote of a lifetime.
fn quote(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, ..] => 3 + until(&rest[3..], b"'") + 1,
        [_, _, b'\'', ..] => 3,
        _ => 1,
    }
}
