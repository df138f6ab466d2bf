//! The text of a reservation, as it is stored: one line. What is not stored (the hold of
//! RESERVE(6), what a change did to others) has none. Errors: what was expected, and what was seen.
//!
//! ```text
//! generation 3 persistent held exclusive-access-all by all: mac:020000000001=20000000001 nvme:...=feed
//! generation 4 free: scsi:...=1@iqn.2026-11.net.example:a,i,0x800000000001 host:...=2@web1+020000000001
//! ```

use core::fmt;
use core::str::FromStr;

use super::{Consequences, Kind, Registrant, Registration, Reservation};
use crate::change::key_of_station;

impl fmt::Display for Registrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, bytes) = match self {
            Registrant::Mac(mac) => (MAC, &mac[..]),
            Registrant::NvmeHost(id) => (NVME_HOST, &id[..]),
            Registrant::ScsiPort(port) => (SCSI_PORT, &port[..]),
            Registrant::Host(host) => (HOST, &host[..]),
        };
        write!(f, "{scheme}:")?;
        digits(f, bytes)
    }
}

fn digits(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

const MAC: &str = "mac";
const NVME_HOST: &str = "nvme";
const SCSI_PORT: &str = "scsi";
const HOST: &str = "host";

/// Why a text is not a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// What was expected.
    pub expected: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, seen {:?}", self.expected, self.seen)
    }
}

impl std::error::Error for TextError {}

impl FromStr for Registrant {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Registrant, TextError> {
        let wrong =
            || TextError { expected: "an initiator like mac:020000000001", seen: text.to_owned() };
        let (scheme, digits) = text.split_once(':').ok_or_else(wrong)?;
        let known = match scheme {
            MAC => bytes(digits).map(Registrant::Mac),
            NVME_HOST => bytes(digits).map(Registrant::NvmeHost),
            SCSI_PORT => bytes(digits).map(Registrant::ScsiPort),
            HOST => bytes(digits).map(Registrant::Host),
            _ => None,
        };
        known.ok_or_else(wrong)
    }
}

/// So many bytes, in hexadecimal.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:x}", self.id, self.key)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, "@{name}"))?;
        self.stations.iter().try_for_each(|mac| {
            f.write_str(STATION)?;
            digits(f, mac)
        })
    }
}

/// What stands before a station: no name of a host has it.
const STATION: &str = "+";

impl FromStr for Registration {
    type Err = TextError;

    fn from_str(word: &str) -> Result<Registration, TextError> {
        let wrong = |expected| TextError { expected, seen: word.to_owned() };
        let (id, key) = word.split_once('=').ok_or_else(|| wrong("an initiator=key"))?;
        let id = id.parse()?;
        // Names of initiator ports may hold anything.
        let (key, stations) = match (id, key.split_once(STATION)) {
            (Registrant::Host(_), Some((key, list))) => {
                let list: Option<Vec<_>> = list.split(STATION).map(bytes).collect();
                (key, list.ok_or_else(|| wrong("stations like +020000000001"))?)
            }
            _ => (key, Vec::new()),
        };
        let (key, name) = match key.split_once('@') {
            Some((key, name)) => (key, Some(name.into())),
            None => (key, None),
        };
        let key = u64::from_str_radix(key, 16).map_err(|_| wrong("a hexadecimal key"))?;
        let key = match (id, key) {
            // Lists of AoE were once stored without keys.
            (Registrant::Mac(mac), 0) => key_of_station(mac),
            (_, 0) => return Err(wrong("a key that is not 0")),
            (_, key) => key,
        };
        Ok(Registration { id, name, key, stations })
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.generation)?;
        if self.persists {
            write!(f, " {PERSISTENT}")?;
        }
        match &self.held {
            None => f.write_str(" free:")?,
            Some((kind, None)) => write!(f, " held {} by all:", kind.name())?,
            Some((kind, Some(holder))) => write!(f, " held {} by {holder}:", kind.name())?,
        }
        self.registrants.iter().try_for_each(|one| write!(f, " {one}"))
    }
}

const PERSISTENT: &str = "persistent";

impl FromStr for Reservation {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Reservation, TextError> {
        let wrong =
            |expected: &'static str| TextError { expected, seen: text.chars().take(80).collect() };
        let (state, list) = match text.split_once(": ") {
            Some((state, list)) => (state, list),
            None => (text.strip_suffix(':').ok_or_else(|| wrong("a list behind a colon"))?, ""),
        };
        let mut words = state.split_ascii_whitespace().peekable();
        let generation = match (words.next(), words.next().map(str::parse)) {
            (Some("generation"), Some(Ok(generation))) => generation,
            _ => return Err(wrong("generation and a number")),
        };
        let persists = words.next_if_eq(&PERSISTENT).is_some();
        let held = match words.next() {
            Some("free") => None,
            Some("held") => {
                let name = words.next().unwrap_or_default();
                let kind = Kind::ALL.iter().find(|(_, known)| *known == name);
                let kind = kind.ok_or_else(|| wrong("a kind of reservation"))?.0;
                if words.next() != Some("by") {
                    return Err(wrong("by and the holder"));
                }
                match words.next() {
                    Some("all") if kind.is_all() => Some((kind, None)),
                    Some(holder) if !kind.is_all() => Some((kind, Some(holder.parse()?))),
                    _ => return Err(wrong("the holder that its kind has")),
                }
            }
            _ => return Err(wrong("free or held")),
        };
        let registrants: Vec<Registration> =
            list.split_ascii_whitespace().map(str::parse).collect::<Result<_, TextError>>()?;
        let is_there = |id| registrants.iter().any(|one| one.id == id);
        let (hold, consequences) = (None, Consequences::default());
        match held {
            Some((_, Some(holder))) if !is_there(holder) => Err(wrong("a holder that is listed")),
            Some((_, None)) if registrants.is_empty() => Err(wrong("somebody who holds it")),
            _ => Ok(Reservation { generation, registrants, held, persists, hold, consequences }),
        }
    }
}
