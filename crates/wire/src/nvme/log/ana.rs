//! The Asymmetric Namespace Access log, 0Ch: which groups of namespaces this controller reaches how.
//!
//! ```text
//! header 16: CHGCNT 8 | NANAGRPD 2 | 6 reserved
//! group  32: AGID 4 | NNSIDS 4 | CHGCNT 8 | state 1 | 15 reserved | NSID 4 each
//! ```

use core::fmt;

use crate::field::Field;
use crate::{Expected, ParseError};

codes! {
    /// ANA state of a group.
    pub struct AnaState(u8) {
        OPTIMIZED = 0x1 "optimized",
        NON_OPTIMIZED = 0x2 "non-optimized",
        INACCESSIBLE = 0x3 "inaccessible",
        PERSISTENT_LOSS = 0x4 "persistent loss",
        CHANGE = 0xf "change",
    }
}

/// One ANA group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnaGroup {
    /// AGID: 1 to ANAGRPMAX.
    pub id: u32,
    /// Changes of this group.
    pub change_count: u64,
    /// How this controller reaches it.
    pub state: AnaState,
    /// Its namespaces, ascending; empty in a log of groups only.
    pub nsids: Vec<u32>,
}

/// The whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaLog {
    /// Changes of anything in the log.
    pub change_count: u64,
    /// The groups, ascending.
    pub groups: Vec<AnaGroup>,
}

impl AnaLog {
    /// Bytes of the header.
    pub const HEADER: usize = 16;
    /// Bytes of a group without its namespaces.
    pub const GROUP: usize = 32;
    /// LSP bit 0, RGO: groups only, no namespaces.
    pub const GROUPS_ONLY: u8 = 1;

    /// The log as bytes, without namespaces if `groups_only`.
    #[must_use]
    pub fn emit(&self, groups_only: bool) -> Vec<u8> {
        let mut bytes = vec![0; Self::HEADER];
        self.change_count.put(&mut bytes, 0);
        (self.groups.len() as u16).put(&mut bytes, 8);
        for group in &self.groups {
            let at = bytes.len();
            let nsids: &[u32] = if groups_only { &[] } else { &group.nsids };
            bytes.resize(at + Self::GROUP + nsids.len() * 4, 0);
            group.id.put(&mut bytes, at);
            (nsids.len() as u32).put(&mut bytes, at + 4);
            group.change_count.put(&mut bytes, at + 8);
            group.state.put(&mut bytes, at + 16);
            for (index, nsid) in nsids.iter().enumerate() {
                nsid.put(&mut bytes, at + Self::GROUP + index * 4);
            }
        }
        bytes
    }

    /// Reads a whole log; errors are a log that ends within a group, or within its namespaces.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let mut log = Self { change_count: Field::get(bytes, 0), groups: Vec::new() };
        let mut at = Self::HEADER;
        for _ in 0..u16::get(bytes, 8) {
            if bytes.len() - at < Self::GROUP {
                return Err(ParseError::short(at + Self::GROUP, bytes.len()));
            }
            let count = u32::get(bytes, at + 4);
            let (words, _) = bytes[at + Self::GROUP..].as_chunks::<4>();
            let Some(words) = words.get(..count as usize) else {
                let expected = Expected::AtMost(words.len() as u64);
                return Err(ParseError::new("NNSIDS", at + 4, expected, count.into()));
            };
            log.groups.push(AnaGroup {
                id: Field::get(bytes, at),
                change_count: Field::get(bytes, at + 8),
                state: AnaState(bytes[at + 16] & 0xf),
                nsids: words.iter().map(|word| u32::from_le_bytes(*word)).collect(),
            });
            at += Self::GROUP + words.len() * 4;
        }
        Ok(log)
    }
}

impl fmt::Display for AnaGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, state, count) = (self.id, self.state, self.nsids.len());
        write!(f, "ana group {id} {state} {count} namespaces")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> AnaLog {
        AnaLog {
            change_count: 5,
            groups: vec![
                AnaGroup { id: 1, change_count: 2, state: AnaState::OPTIMIZED, nsids: vec![1, 3] },
                AnaGroup { id: 2, change_count: 3, state: AnaState::INACCESSIBLE, nsids: vec![] },
            ],
        }
    }

    #[test]
    fn log_both_ways() {
        let bytes = log().emit(false);
        assert_eq!(bytes.len(), 16 + 32 + 8 + 32);
        assert_eq!(bytes[..10], [5, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(bytes[16..25], [1, 0, 0, 0, 2, 0, 0, 0, 2]);
        assert_eq!((bytes[32], bytes[48], bytes[52]), (1, 1, 3));
        assert_eq!(AnaLog::parse(&bytes), Ok(log()));
        let groups = AnaLog::parse(&log().emit(true)).unwrap();
        assert!(groups.groups.iter().all(|group| group.nsids.is_empty()));
        assert_eq!(log().groups[0].to_string(), "ana group 1 optimized 2 namespaces");
    }

    #[test]
    fn a_cut_or_lying_log_is_refused() {
        let mut bytes = log().emit(false);
        assert!(AnaLog::parse(&bytes[..15]).is_err());
        assert!(AnaLog::parse(&bytes[..bytes.len() - 1]).is_err());
        bytes[20] = 0xff;
        let error = AnaLog::parse(&bytes).unwrap_err();
        assert_eq!((error.field, error.offset), ("NNSIDS", 20));
    }
}
