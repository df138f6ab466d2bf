//! The log of asymmetric namespace access, 0Ch: in which state a controller's groups of namespaces are.
//!
//! ```text
//!  0 change count (64) | 8 groups (16)
//! 16 group (32) | number of NSIDs (32) | change count (64) | state | 32 NSIDs | ...
//! ```
//! Errors: an input that ends too early. Spec: NVMe base, "Asymmetric Namespace Access (Log Identifier
//! 0Ch)".

use crate::ParseError;

codes! {
    /// Asymmetric namespace access state.
    pub struct AnaState(u8) {
        OPTIMIZED = 0x1 "optimized",
        NON_OPTIMIZED = 0x2 "non-optimized",
        INACCESSIBLE = 0x3 "inaccessible",
        PERSISTENT_LOSS = 0x4 "persistent loss",
        CHANGE = 0xf "change",
    }
}

/// A group of namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnaGroup {
    /// ANAGRPID, never 0.
    pub id: u32,
    /// How often its state changed; 0 if that is not said.
    pub change_count: u64,
    pub state: AnaState,
    /// Ascending; none if the host asked for groups only.
    pub nsids: Vec<u32>,
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaLog {
    /// How often any of it changed.
    pub change_count: u64,
    pub groups: Vec<AnaGroup>,
}

layout! {
    /// What begins the log.
    pub struct AnaHeader[16] {
        /// How often any of it changed.
        0 => change_count: u64,
        /// Groups behind it.
        8 => groups: u16,
    }
}

layout! {
    /// What begins a group.
    pub struct AnaDescriptor[32] {
        /// ANAGRPID.
        0 => id: u32,
        /// NSIDs behind it.
        4 => nsids: u32,
        /// How often its state changed.
        8 => change_count: u64,
        /// The state, in the lower four bits.
        16 => state: u8,
    }
}

impl AnaLog {
    /// LSP bit 0 of Get Log Page, RGO: no NSIDs are wanted.
    pub const GROUPS_ONLY: u8 = 1;

    /// The log as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let (change_count, groups) = (self.change_count, self.groups.len() as u16);
        let mut bytes = AnaHeader { change_count, groups }.emit().to_vec();
        for AnaGroup { id, change_count, state, nsids } in &self.groups {
            let (id, change_count, state) = (*id, *change_count, state.0 & 0xf);
            let descriptor = AnaDescriptor { id, nsids: nsids.len() as u32, change_count, state };
            bytes.extend(descriptor.emit());
            bytes.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        bytes
    }

    /// Reads a whole log; what is behind its groups is passed over.
    pub fn parse(bytes: &[u8]) -> Result<AnaLog, ParseError> {
        let AnaHeader { change_count, groups } = AnaHeader::parse(bytes)?;
        let mut log = AnaLog { change_count, groups: Vec::new() };
        let mut at = AnaHeader::SIZE;
        for _ in 0..groups {
            let AnaDescriptor { id, nsids, change_count, state } =
                AnaDescriptor::parse(&bytes[at.min(bytes.len())..])?;
            at += AnaDescriptor::SIZE;
            let end = (nsids as usize).saturating_mul(4).saturating_add(at);
            let list = bytes.get(at..end).ok_or(ParseError::short(end, bytes.len()))?;
            let nsids = list.as_chunks::<4>().0.iter().map(|nsid| u32::from_le_bytes(*nsid));
            let (state, nsids) = (AnaState(state & 0xf), nsids.collect());
            log.groups.push(AnaGroup { id, change_count, state, nsids });
            at = end;
        }
        Ok(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> AnaLog {
        let group = AnaGroup {
            id: 2,
            change_count: 5,
            state: AnaState::INACCESSIBLE,
            nsids: vec![1, 0x0203],
        };
        let empty = AnaGroup { id: 9, state: AnaState::CHANGE, nsids: vec![], ..group.clone() };
        AnaLog { change_count: 7, groups: vec![group, empty] }
    }

    #[test]
    fn a_log_both_ways() {
        let bytes = log().emit();
        assert_eq!(bytes.len(), 16 + 32 + 8 + 32);
        assert_eq!(bytes[..16], [7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..33], [2, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(bytes[48..57], [1, 0, 0, 0, 3, 2, 0, 0, 9]);
        assert_eq!(AnaLog::parse(&bytes), Ok(log()));
        assert_eq!(AnaLog::parse(&[bytes, vec![1; 9]].concat()), Ok(log()));
    }

    #[test]
    fn a_log_that_ends_early_or_says_too_much_is_none() {
        let mut bytes = log().emit();
        for end in 0..bytes.len() {
            assert!(AnaLog::parse(&bytes[..end]).is_err(), "{end}");
        }
        bytes[20..24].fill(0xff);
        assert!(AnaLog::parse(&bytes).is_err());
    }
}
