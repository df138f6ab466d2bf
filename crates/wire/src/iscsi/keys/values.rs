//! What the values of text keys mean: numbers, ranges, booleans, lists, binary values.
//!
//! Numbers are below 2^64, decimal or behind `0x` hexadecimal; binary values are at most
//! [`BINARY_MAX`] bytes, behind `0x` hexadecimal or behind `0b` base64. Errors: [`ParseError`] for
//! `value`, offsets count from its start. Spec: RFC 7143 clause 6.1.

use core::fmt;
use core::ops::RangeInclusive;

use super::BINARY_MAX;
use crate::{Expected, ParseError};

fn wrong(words: &'static str, at: usize, seen: u64) -> ParseError {
    ParseError::new("value", at, Expected::Words(words), seen)
}

/// The digits behind the prefix that stands for this radix, in either case.
fn behind_prefix(value: &str, letter: char) -> Option<&str> {
    value.strip_prefix('0')?.strip_prefix([letter, letter.to_ascii_uppercase()])
}

/// Whether a value looks like a binary one, or like a hexadecimal number.
pub fn is_binary(value: &str) -> bool {
    behind_prefix(value, 'x').is_some() || behind_prefix(value, 'b').is_some()
}

/// A number: decimal without needless zeros, or hexadecimal.
pub fn number(value: &str) -> Result<u64, ParseError> {
    let (digits, radix, at) = match behind_prefix(value, 'x') {
        Some(digits) => (digits, 16, 2),
        None => (value, 10, 0),
    };
    if let Some((wrong_at, char)) = digits.char_indices().find(|(_, char)| !char.is_digit(radix)) {
        return Err(wrong(
            "a decimal number, or a hexadecimal one behind 0x",
            at + wrong_at,
            char.into(),
        ));
    }
    if digits.is_empty() {
        return Err(wrong("a digit", at, 0));
    }
    // Some read such a number as octal, so that the two ends would not agree.
    if radix == 10 && digits.len() > 1 && digits.starts_with('0') {
        return Err(wrong("a decimal number that does not begin with 0", 0, digits.len() as u64));
    }
    u64::from_str_radix(digits, radix)
        .map_err(|_| wrong("a number below 2^64", at, digits.len() as u64))
}

/// A range, `a~b`: two numbers, of which the second is not the smaller.
pub fn range(value: &str) -> Result<RangeInclusive<u64>, ParseError> {
    let Some((first, last)) = value.split_once('~') else {
        return Err(wrong("two numbers with a ~ between them", 0, value.len() as u64));
    };
    let last_at = first.len() + 1;
    let (first, last) = match (number(first)?, number(last)) {
        (first, Ok(last)) => (first, last),
        (_, Err(error)) => return Err(ParseError { offset: last_at + error.offset, ..error }),
    };
    if last < first {
        return Err(ParseError::new("value", last_at, Expected::AtLeast(first), last));
    }
    Ok(first..=last)
}

/// `Yes` or `No`.
pub fn boolean(value: &str) -> Result<bool, ParseError> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(wrong("Yes or No", 0, value.len() as u64)),
    }
}

/// `Yes` or `No`.
pub const fn yes_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// The items of a list, between commas; of a value that is none, the value.
pub fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',')
}

/// A binary value of at most [`BINARY_MAX`] bytes, in either encoding.
pub fn binary(value: &str) -> Result<Vec<u8>, ParseError> {
    let bytes = if let Some(digits) = behind_prefix(value, 'x') {
        decode_hex(digits.as_bytes())
    } else if let Some(digits) = behind_prefix(value, 'b') {
        decode_base64(digits.as_bytes())
    } else {
        return Err(wrong("0x and hexadecimal digits, or 0b and base64", 0, value.len() as u64));
    };
    bytes.map_err(|error| ParseError { offset: 2 + error.offset, ..error })
}

fn check_length(bytes: usize, digits: usize) -> Result<(), ParseError> {
    if digits == 0 {
        return Err(wrong("a digit", 0, 0));
    }
    if bytes > BINARY_MAX {
        let expected = Expected::AtMost(BINARY_MAX as u64);
        return Err(ParseError::new("value", 0, expected, bytes as u64));
    }
    Ok(())
}

/// Two digits a byte; of an odd number of digits the first is a byte of its own.
fn decode_hex(digits: &[u8]) -> Result<Vec<u8>, ParseError> {
    let length = digits.len().div_ceil(2);
    check_length(length, digits.len())?;
    let mut bytes = vec![0; length];
    let odd = digits.len() % 2;
    for (at, &digit) in digits.iter().enumerate() {
        let Some(nibble) = char::from(digit).to_digit(16) else {
            return Err(wrong("a hexadecimal digit", at, digit.into()));
        };
        let byte = &mut bytes[(at + odd) / 2];
        *byte = *byte << 4 | nibble as u8;
    }
    Ok(bytes)
}

/// Six bits a digit. The `=` at the end may be left out; where they stand, they make the digits a
/// multiple of four. Bits that make no byte must be 0, so that no two texts mean the same.
fn decode_base64(text: &[u8]) -> Result<Vec<u8>, ParseError> {
    let equals = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &text[..text.len() - equals];
    let length = digits.len() * 3 / 4;
    check_length(length, digits.len())?;
    if digits.len() % 4 == 1 || equals != 0 && (equals > 2 || !text.len().is_multiple_of(4)) {
        return Err(wrong("as many base64 digits as whole bytes make", 0, text.len() as u64));
    }
    let mut bytes = Vec::with_capacity(length);
    let (mut bits, mut count) = (0_u32, 0);
    for (at, &digit) in digits.iter().enumerate() {
        let Some(value) = base64_value(digit) else {
            return Err(wrong("a base64 digit", at, digit.into()));
        };
        bits = bits << 6 | value;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    if bits != 0 {
        let last = digits.len() - 1;
        return Err(wrong("no bits behind the last byte", last, digits[last].into()));
    }
    Ok(bytes)
}

fn base64_value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// Bytes as a binary value in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        super::super::show::hex(f, self.0)
    }
}

/// Bytes as a binary value in base64, with `=` at the end.
#[derive(Clone, Copy, Debug)]
pub struct Base64<'a>(pub &'a [u8]);

impl fmt::Display for Base64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        f.write_str("0b")?;
        for chunk in self.0.chunks(3) {
            let mut three = [0; 3];
            three[..chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for digit in 0..4 {
                let value = bits >> (18 - 6 * digit) & 0x3f;
                let char = if digit <= chunk.len() { DIGITS[value as usize] } else { b'=' };
                write!(f, "{}", char::from(char))?;
            }
        }
        Ok(())
    }
}
