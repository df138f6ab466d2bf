//! NVMe Qualified Names: the names of subsystems and hosts.
//!
//! A name is `nqn.YYYY-MM.` and a reversed domain, a colon, and a string that the owner of the
//! domain chose; at most 223 bytes of UTF-8 (NVMe Base 2.0, 4.5 "NVMe Qualified Names"). The one
//! name without a colon is that of the discovery subsystem. [`wire::nvme::Nqn`] is more lenient,
//! since hosts in the field are: it takes what it can carry. What a user writes to us is held to
//! the syntax, because a slip in it would only show as a refused host. Errors: what was expected
//! and at which byte, so that a URI or a configuration can point at it.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

const BYTES_MAX: usize = wire::nvme::Nqn::LENGTH_MAX;
/// What names made of a UUID begin with (NVMe Base 2.0, 4.5).
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
const DISCOVERY: &str = wire::nvme::Nqn::DISCOVERY;

/// A name that obeys the syntax.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nqn(wire::nvme::Nqn);

/// A text that is no NQN: what was expected at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NqnError {
    /// What is wrong, in full.
    pub(crate) message: String,
    /// The offending byte's offset in the name.
    pub(crate) offset: usize,
}

impl Nqn {
    /// The name as it goes into the Connect command's data.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name as the protocol's machines take it.
    pub(crate) fn to_wire(&self) -> wire::nvme::Nqn {
        self.0.clone()
    }

    /// Whether this is the discovery subsystem's name.
    pub(crate) fn is_discovery(&self) -> bool {
        self.0.is_discovery()
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Self, NqnError> {
        check(text)?;
        let refused = |error| NqnError { message: format!("NQN {text:?}: {error}"), offset: 0 };
        wire::nvme::Nqn::new(text).map(Self).map_err(refused)
    }
}

fn check(text: &str) -> Result<(), NqnError> {
    let fail = |offset: usize, expected: &str| {
        let message = format!("NQN {text:?}: expected {expected}");
        Err(NqnError { message, offset })
    };
    if text.len() > BYTES_MAX {
        let message = format!("an NQN has at most {BYTES_MAX} bytes, seen {}", text.len());
        return Err(NqnError { message, offset: text.floor_char_boundary(BYTES_MAX) });
    }
    if text == DISCOVERY {
        return Ok(());
    }
    if !text.starts_with("nqn.") {
        return fail(0, "\"nqn.\", as in nqn.2026-11.net.plateway:v0");
    }
    let date = text.as_bytes().get(4..12).unwrap_or_default();
    let digits = |range: std::ops::Range<usize>| date[range].iter().all(u8::is_ascii_digit);
    let dated =
        date.len() == 8 && digits(0..4) && date[4] == b'-' && digits(5..7) && date[7] == b'.';
    let month = dated && matches!(date[5..7], [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2']);
    if !month {
        return fail(4, "a year and a month after \"nqn.\", as in nqn.2026-11.net.plateway:v0");
    }
    let Some(colon) = text.find(':') else {
        return fail(
            text.len(),
            "a colon and a name after the domain, as in nqn.2026-11.net.plateway:v0",
        );
    };
    let mut label_at = 12;
    for label in text[12..colon].split('.') {
        let odd = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if label.is_empty() || label.contains(odd) {
            return fail(
                label_at,
                "a reversed domain of letters, digits and hyphens, as in net.plateway",
            );
        }
        label_at += label.len() + 1;
    }
    let name = &text[colon + 1..];
    if name.is_empty() {
        return fail(text.len(), "a name after the colon");
    }
    if let Some(at) = name.find(|c: char| c.is_whitespace() || c.is_control()) {
        return fail(colon + 1 + at, "no blanks or control characters");
    }
    if let Some(uuid) = text.strip_prefix(UUID_PREFIX)
        && (uuid.len() != 36 || Uuid::try_parse(uuid).is_err())
    {
        return fail(
            UUID_PREFIX.len(),
            "a UUID behind \"uuid:\", as in /etc/nvme/hostnqn of the host",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_field_are_taken() {
        for name in [
            "nqn.2026-11.net.plateway:v0",
            "nqn.2014-08.org.nvmexpress.discovery",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2016-06.io.spdk:cnode1",
            "nqn.1988-11.com.dell:powerstore:00:a1b2",
            "nqn.2026-01.net.plateway:größe",
        ] {
            assert_eq!(name.parse::<Nqn>().map(|nqn| nqn.to_string()), Ok(name.to_owned()));
        }
        assert!(DISCOVERY.parse::<Nqn>().unwrap().is_discovery());
    }

    #[test]
    fn each_rule_points_at_its_byte() {
        let long = format!("nqn.2026-11.net.plateway:{}", "x".repeat(199));
        for (name, offset, word) in [
            ("", 0, "\"nqn.\""),
            ("iqn.2026-11.net.plateway:v0", 0, "\"nqn.\""),
            ("nqn.26-11.net.plateway:v0", 4, "a year and a month"),
            ("nqn.2026-13.net.plateway:v0", 4, "a year and a month"),
            ("nqn.2026-00.net.plateway:v0", 4, "a year and a month"),
            ("nqn.2026", 4, "a year and a month"),
            ("nqn.2026-11.net.plateway", 24, "a colon"),
            ("nqn.2026-11.net..plateway:v0", 16, "a reversed domain"),
            ("nqn.2026-11.:v0", 12, "a reversed domain"),
            ("nqn.2026-11.net.plateway:", 25, "a name after the colon"),
            ("nqn.2026-11.net.plateway:a b", 26, "no blanks"),
            ("nqn.2014-08.org.nvmexpress:uuid:...", 32, "a UUID"),
            ("nqn.2014-08.org.nvmexpress:uuid:f81d4fae7dec11d0a76500a0c91e6bf6", 32, "a UUID"),
            (&long, 223, "at most 223 bytes, seen 224"),
        ] {
            let error = name.parse::<Nqn>().unwrap_err();
            assert_eq!(error.offset, offset, "{name}: {error}");
            assert!(error.message.contains(word), "{name}: {error}");
        }
    }
}
