//! iSCSI names: who an initiator or a target is.
//!
//! ```text
//! iqn.2026-11.net.plateway:disk0          a date at which the domain (reversed) was the author's
//! eui.02004567a425678d                    an EUI-64: 16 hexadecimal digits
//! naa.52004567ba64678d                    an NAA identifier: 16 or 32 hexadecimal digits
//! ```
//! 1 to 223 bytes of UTF-8: letters, digits, `-`, `.` and `:`. Names are compared without regard to
//! case, so that a name is kept in lower case, whatever was written. Of stringprep (RFC 3722) this
//! is all: beyond ASCII, a letter written in two ways (composed or not, wide or not) makes two
//! names; nobody has been seen to use them. Errors say what a name may be, offsets count bytes of
//! it. Spec: RFC 7143 clauses 4.2.7.1 to 4.2.7.6.

use core::fmt;

use crate::{Expected, ParseError};

/// A name of an initiator or a target, valid by construction, in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(Box<str>);

impl IscsiName {
    /// Most bytes of a name.
    pub const LENGTH_MAX: usize = 223;

    /// A name from text. Errors are a name of another form than the three, a character that none
    /// may have, and one that is too long.
    pub fn new(name: &str) -> Result<Self, ParseError> {
        if let Some((at, char)) = name.char_indices().find(|(_, char)| !is_allowed(*char)) {
            let expected = Expected::Words("only letters, digits, '-', '.' and ':'");
            return Err(wrong(expected, at, char.into()));
        }
        let lower: String = name.chars().flat_map(char::to_lowercase).collect();
        if lower.len() > Self::LENGTH_MAX {
            let expected = Expected::Words("at most 223 bytes");
            return Err(wrong(expected, 0, lower.len() as u64));
        }
        match lower.get(..4) {
            Some("iqn.") => check_qualified(&lower)?,
            Some("eui.") => check_digits(&lower, &[16], "16 hexadecimal digits behind eui.")?,
            Some("naa.") => {
                check_digits(&lower, &[16, 32], "16 or 32 hexadecimal digits behind naa.")?;
            }
            _ => {
                let expected = Expected::Words("a name that begins with iqn., eui. or naa.");
                return Err(wrong(expected, 0, lower.len() as u64));
            }
        }
        Ok(Self(lower.into()))
    }

    /// The name as text, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn wrong(expected: Expected, at: usize, seen: u64) -> ParseError {
    ParseError::new("iSCSI name", at, expected, seen)
}

/// Beyond ASCII, what is neither letter nor digit is mostly what stringprep forbids: spaces,
/// controls, marks of direction, private characters, the ideographic full stop.
fn is_allowed(char: char) -> bool {
    match char {
        '-' | '.' | ':' => true,
        _ => char.is_alphanumeric(),
    }
}

/// Checks `iqn.yyyy-mm.authority[:anything]`.
fn check_qualified(name: &str) -> Result<(), ParseError> {
    let error = |words, at| Err(wrong(Expected::Words(words), at, name.len() as u64));
    let date = "a year and a month behind iqn., like iqn.2026-11.net.example:disk0";
    let Some((date_text, rest)) = name[4..].split_once('.') else {
        return error(date, 4);
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = match date_text.split_once('-') {
        Some((year, month)) => {
            (year.len() == 4 && is_digits(year))
                && (month.len() == 2 && is_digits(month))
                && ("01"..="12").contains(&month)
        }
        None => false,
    };
    if !is_date {
        return error(date, 4);
    }
    let authority = rest.split(':').next().unwrap_or_default();
    if authority.split('.').any(str::is_empty) {
        return error("a reversed domain behind the date, like net.example", "iqn.2026-11.".len());
    }
    Ok(())
}

/// Checks that so many hexadecimal digits stand behind the first 4 bytes.
fn check_digits(name: &str, lengths: &[usize], words: &'static str) -> Result<(), ParseError> {
    let digits = &name[4..];
    if let Some((at, char)) = digits.char_indices().find(|(_, char)| !char.is_ascii_hexdigit()) {
        return Err(wrong(Expected::Words(words), 4 + at, char.into()));
    }
    if !lengths.contains(&digits.len()) {
        return Err(wrong(Expected::Words(words), 4, digits.len() as u64));
    }
    Ok(())
}

impl core::str::FromStr for IscsiName {
    type Err = ParseError;
    fn from_str(name: &str) -> Result<Self, ParseError> {
        Self::new(name)
    }
}

impl AsRef<str> for IscsiName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for IscsiName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IscsiName({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        IscsiName::new(name).unwrap_err().to_string()
    }

    #[test]
    fn names_of_the_three_forms() {
        for name in [
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "iqn.2001-04.com.example",
            "iqn.1998-01.com.vmware:esx-0a1b",
            "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
            "iqn.2001-04.com.example:stra\u{df}e",
        ] {
            let parsed: IscsiName = name.parse().unwrap();
            assert_eq!(parsed.as_str(), name);
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
    }

    #[test]
    fn case_does_not_make_another_name() {
        let name = IscsiName::new("IQN.2001-04.com.Example:Disk").unwrap();
        assert_eq!(name, IscsiName::new("iqn.2001-04.com.example:disk").unwrap());
        assert_eq!(name.to_string(), "iqn.2001-04.com.example:disk");
        let name = IscsiName::new("eui.02004567A425678D").unwrap();
        assert_eq!(name.as_str(), "eui.02004567a425678d");
        assert_eq!(
            IscsiName::new("iqn.2001-04.x:\u{c4}").unwrap().as_str(),
            "iqn.2001-04.x:\u{e4}"
        );
    }

    #[test]
    fn forbidden_characters_are_refused_where_they_stand() {
        let words = "expected only letters, digits, '-', '.' and ':', seen";
        let at = "iqn.2001-04.com.example:".len();
        for char in
            [' ', '\t', '\0', '_', '/', ',', '=', '@', '~', '\u{3002}', '\u{a0}', '\u{200e}']
        {
            let code = u32::from(char);
            assert_eq!(
                refusal(&format!("iqn.2001-04.com.example:{char}x")),
                format!("iSCSI name at byte {at}: {words} {code} ({code:#x})")
            );
        }
    }

    #[test]
    fn names_of_no_form_are_refused() {
        let form =
            "iSCSI name at byte 0: expected a name that begins with iqn., eui. or naa., seen";
        assert_eq!(refusal(""), format!("{form} 0 (0x0)"));
        assert_eq!(refusal("iqn"), format!("{form} 3 (0x3)"));
        assert_eq!(refusal("disk0"), format!("{form} 5 (0x5)"));
        assert_eq!(refusal("nqn.2026-11.net.plateway:v0"), format!("{form} 27 (0x1b)"));
        // The fourth byte lies within a letter.
        assert_eq!(refusal("iqn\u{e9}"), format!("{form} 5 (0x5)"));
    }

    #[test]
    fn an_iqn_without_date_or_domain_is_refused() {
        let offset = |name: &str| {
            let error = IscsiName::new(name).unwrap_err();
            assert!(error.to_string().contains("behind"), "{error}");
            error.offset
        };
        for name in [
            "iqn.",
            "iqn.2001-04",
            "iqn.com.example:disk",
            "iqn.2001-00.com.example",
            "iqn.2001-13.com.example",
            "iqn.2001-4.com.example",
            "iqn.01-04.com.example",
            "iqn.200104.com.example",
            "iqn.2001-a4.com.example",
        ] {
            assert_eq!(offset(name), 4, "{name}");
        }
        for name in [
            "iqn.2001-04.",
            "iqn.2001-04.:disk",
            "iqn.2001-04.com..x:disk",
            "iqn.2001-04.com.:disk",
        ] {
            assert_eq!(offset(name), 12, "{name}");
        }
    }

    #[test]
    fn hexadecimal_names_have_their_length() {
        for name in ["eui.", "eui.02004567a425678", "eui.02004567a425678d0", "naa.0", "naa.52"] {
            assert_eq!(IscsiName::new(name).unwrap_err().offset, 4, "{name}");
        }
        assert_eq!(
            refusal("naa.52004567ba64678g"),
            "iSCSI name at byte 19: expected 16 or 32 hexadecimal digits behind naa., \
             seen 103 (0x67)"
        );
    }

    #[test]
    fn names_have_at_most_223_bytes() {
        let name = |length: usize| format!("iqn.2001-04.x:{}", "a".repeat(length - 14));
        assert!(IscsiName::new(&name(223)).is_ok());
        assert_eq!(
            refusal(&name(224)),
            "iSCSI name at byte 0: expected at most 223 bytes, seen 224 (0xe0)"
        );
    }
}
