//! Sizes as people write them, in two dialects, and the one spelling in which we print them.
//!
//! Configuration and URIs: a whole number with an optional unit. `KiB MiB GiB TiB PiB` count in
//! powers of 1024, `kB MB GB TB PB` in powers of 1000, `B` or nothing is bytes. `256M` is refused:
//! it means either, and a disk of the wrong size is found out too late. Arguments of `bench` and
//! `copy` speak fio's dialect besides, where `4k`, `1m` and `1g` are powers of 1024. Units: every
//! result is in bytes. Errors say what was expected and what was seen.

use std::fmt;

/// Units of the configuration, with their size in bytes; the binary ones first, largest last.
const UNITS: [(&str, u64); 12] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

/// Suffixes of fio, compared without case, all powers of 1024.
const FIO_UNITS: [(&str, u64); 5] =
    [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40), ("p", 1 << 50)];

/// A text that is no size; `Display` says what was expected and seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SizeError(String);

/// Parses a size of the configuration (`256MiB`, `1GB`, `4096`) into bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (number, unit) = split(text)?;
    match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => multiply(text, number, *factor),
        None if unit.is_empty() => Ok(number),
        None => Err(SizeError(unknown_unit(text, number, unit))),
    }
}

/// Parses a size in fio's dialect (`4k`, `128K`, `1m`), or in that of the configuration, into
/// bytes.
pub(crate) fn parse_fio_size(text: &str) -> Result<u64, SizeError> {
    let (number, unit) = split(text)?;
    match FIO_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, factor)) => multiply(text, number, *factor),
        None => parse_size(text),
    }
}

/// Bytes as the largest binary unit that divides them: `64KiB`, `1536MiB`, `1000`.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |factor: u64| factor > 1 && self.0 != 0 && self.0.is_multiple_of(factor);
        match UNITS[..6].iter().rev().find(|(_, factor)| fits(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Splits `256 MiB` into its number and its unit.
fn split(text: &str) -> Result<(u64, &str), SizeError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(SizeError(format!("expected a size such as 256MiB or 4096, seen {text:?}")));
    }
    let (number, unit) = text.split_at(digits);
    if unit.starts_with(['.', ',', '_']) {
        let smaller = "use a smaller unit, as in 1536MiB";
        return Err(SizeError(format!("expected a whole number, seen {text:?}: {smaller}")));
    }
    let number = number.parse().map_err(|_| {
        SizeError(format!("{text:?} is larger than {} bytes, the largest size", u64::MAX))
    })?;
    Ok((number, unit.trim_start_matches(' ')))
}

fn multiply(text: &str, number: u64, factor: u64) -> Result<u64, SizeError> {
    number.checked_mul(factor).ok_or_else(|| {
        SizeError(format!("{text:?} is larger than {} bytes, the largest size", u64::MAX))
    })
}

/// The message for a unit that we do not take: what the letter may have meant.
fn unknown_unit(text: &str, number: u64, unit: &str) -> String {
    let first = unit.chars().next().map_or(' ', |c| c.to_ascii_uppercase());
    if "KMGTP".contains(first) {
        let decimal = if first == 'K' { 'k' } else { first };
        format!(
            "unit {unit:?} of {text:?} is not known: write {number}{first}iB (powers of 1024) or {number}{decimal}B \
             (powers of 1000)"
        )
    } else {
        format!(
            "unit {unit:?} of {text:?} is not known: expected KiB, MiB, GiB, TiB, kB, MB, GB, TB or none"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_configuration() {
        let cases: [(&str, u64); 10] = [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("64KiB", 65_536),
            ("256MiB", 268_435_456),
            ("1 GiB", 1 << 30),
            ("2TiB", 2 << 40),
            ("10kB", 10_000),
            ("5MB", 5_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn fio_suffixes_are_binary_in_either_case() {
        let cases: [(&str, u64); 7] = [
            ("512", 512),
            ("4k", 4096),
            ("128K", 131_072),
            ("1m", 1 << 20),
            ("1g", 1 << 30),
            ("64KiB", 65_536),
            ("4kB", 4000),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_fio_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_say_what_was_meant() {
        let message = |text| parse_size(text).unwrap_err().to_string();
        assert_eq!(
            message("256M"),
            "unit \"M\" of \"256M\" is not known: write 256MiB (powers of 1024) or 256MB (powers of 1000)"
        );
        assert_eq!(
            message("4k"),
            "unit \"k\" of \"4k\" is not known: write 4KiB (powers of 1024) or 4kB (powers of 1000)"
        );
        assert_eq!(
            message("1.5GiB"),
            "expected a whole number, seen \"1.5GiB\": use a smaller unit, as in 1536MiB"
        );
        assert_eq!(message("lots"), "expected a size such as 256MiB or 4096, seen \"lots\"");
        assert_eq!(message("-1"), "expected a size such as 256MiB or 4096, seen \"-1\"");
        assert!(message("99999999999PiB").contains("the largest size"));
        assert!(message("99999999999999999999").contains("the largest size"));
        assert!(message("4 apples").contains("expected KiB, MiB"));
    }

    #[test]
    fn printed_sizes_parse_back() {
        let mut value = 1u64;
        for step in 0..5000u64 {
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let bytes = (value >> (step % 60)) << (step % 7 * 4);
            assert_eq!(parse_size(&Size(bytes).to_string()), Ok(bytes));
        }
        assert_eq!(Size(1536 << 20).to_string(), "1536MiB");
        assert_eq!(Size(1000).to_string(), "1000");
        assert_eq!(Size(0).to_string(), "0");
    }
}
