//! Text keys: the data of Login and Text PDUs, `key=value` and a NUL, one after the other.
//!
//! [`Pairs`] reads them in place, [`push`] writes one; what a value means is in [`values`], the
//! keys that the standard knows are [`Key`]. A text may begin in one PDU and go on in the next,
//! even in the middle of a key: whoever collects the PDUs (up to one without C) reads it as a
//! whole, and says how long it may be. What to answer, and which value results, is the
//! negotiation's.
//!
//! A key is 1 to 63 characters of the standard's. A value is UTF-8; each of its items (there is
//! one, or there are commas between them) has at most 255 bytes, but for a binary one in its
//! encoding, which has at most [`BINARY_TEXT_MAX`]: how long a binary value may be is its key's to
//! say, and those known here allow 1024 bytes. Every pair ends with a NUL, also the last: a text
//! without is cut off, and an error. A NUL more than needed, which drafts of the standard allowed,
//! means nothing. Errors: [`ParseError`] for `key` or `value`, offsets count from the start of the
//! text. Spec: RFC 7143 clause 6.1.

use core::fmt::{self, Display};
use std::io::Write as _;

use crate::{Expected, ParseError};

mod known;
#[cfg(test)]
mod tests;
pub mod values;

pub use known::Key;

/// Most bytes of a key.
pub const KEY_MAX: usize = 63;
/// Most bytes of a value that is not binary, or of each item of a list.
pub const ITEM_MAX: usize = 255;
/// Most bytes of a binary value, decoded.
pub const BINARY_MAX: usize = 1024;
/// Most bytes of a binary value as text, in the longer of its two encodings: `0x` and two digits a
/// byte.
pub const BINARY_TEXT_MAX: usize = 2 + 2 * BINARY_MAX;

/// The answer to a key that means nothing here or now.
pub const IRRELEVANT: &str = "Irrelevant";
/// The answer to a key that is not known.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// The answer to a value that is not acceptable.
pub const REJECT: &str = "Reject";
/// The value that says: none of these.
pub const NONE: &str = "None";

/// One key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// What is spoken of.
    pub key: &'a str,
    /// What is said of it; perhaps nothing.
    pub value: &'a str,
}

impl Display for Pair<'_> {
    /// On one line, whatever the value holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value.escape_debug())
    }
}

/// The pairs of a whole text, in their order; ends after an error.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Pairs<'a> {
    /// Those of `text`, which no PDU continues.
    pub const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Cuts off the pair at `at`, which is not empty.
    fn pair(&mut self) -> Result<Pair<'a>, ParseError> {
        let (at, rest) = (self.at, &self.text[self.at..]);
        // Whatever is wrong, nothing behind it is read.
        self.at = self.text.len();
        let Some(end) = rest.iter().position(|&byte| byte == 0) else {
            let expected = Expected::Words("a NUL behind every pair");
            return Err(ParseError::new("value", self.text.len(), expected, rest.len() as u64));
        };
        let Some(equals) = rest[..end].iter().position(|&byte| byte == b'=') else {
            let expected = Expected::Words("a '=' behind the key");
            return Err(ParseError::new("key", at, expected, end as u64));
        };
        let key = check_key(&rest[..equals], at)?;
        let value = check_value(&rest[equals + 1..end], at + equals + 1)?;
        self.at = at + end + 1;
        Ok(Pair { key, value })
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let needless = self.text[self.at..].iter().position(|&byte| byte != 0)?;
        self.at += needless;
        Some(self.pair())
    }
}

fn check_key(key: &[u8], at: usize) -> Result<&str, ParseError> {
    if key.is_empty() {
        return Err(ParseError::new("key", at, Expected::Words("a key before the '='"), 0));
    }
    if key.len() > KEY_MAX {
        let expected = Expected::AtMost(KEY_MAX as u64);
        return Err(ParseError::new("key", at, expected, key.len() as u64));
    }
    // `#` is of the form X#name, which vendors used. That a key begins with a capital letter was
    // given up by the standard itself, with iSCSIProtocolLevel.
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
    if let Some(wrong) = key.iter().position(|&byte| !is_allowed(byte)) {
        let expected = Expected::Words("letters, digits, and . - + @ _");
        return Err(ParseError::new("key", at + wrong, expected, key[wrong].into()));
    }
    utf8("key", key, at)
}

fn check_value(value: &[u8], at: usize) -> Result<&str, ParseError> {
    let value = utf8("value", value, at)?;
    let mut item_at = at;
    for item in values::list(value) {
        let most = if values::is_binary(item) { BINARY_TEXT_MAX } else { ITEM_MAX };
        if item.len() > most {
            let expected = Expected::AtMost(most as u64);
            return Err(ParseError::new("value", item_at, expected, item.len() as u64));
        }
        item_at += item.len() + 1;
    }
    Ok(value)
}

fn utf8<'a>(field: &'static str, bytes: &'a [u8], at: usize) -> Result<&'a str, ParseError> {
    core::str::from_utf8(bytes).map_err(|error| {
        let wrong = error.valid_up_to();
        ParseError::new(field, at + wrong, Expected::Words("UTF-8"), bytes[wrong].into())
    })
}

/// Writes one pair behind `text`, with its NUL. Panics if the value holds a NUL: no value does that
/// was read, and none that is ours to say.
pub fn push(text: &mut Vec<u8>, key: &str, value: impl Display) {
    let start = text.len();
    write!(text, "{key}={value}").expect("a Vec takes all that is written");
    assert!(!text[start..].contains(&0), "a NUL within {key}={value}");
    text.push(0);
}
