//! Asymmetric logical unit access: what REPORT TARGET PORT GROUPS returns and SET TARGET PORT GROUPS
//! takes.
//!
//! ```text
//!  REPORT  0 length (32) | groups: 0 PREF, state | 1 supported | 2 group (16) | 5 why | 7 ports | ...
//!  SET     4 descriptors of 4 bytes: 0 state | 2 group (16)
//! ```
//! The length may be followed by four bytes of which the second is the longest transition, in seconds:
//! hosts ask for them in their command.
//! Errors: an input that ends too early. Spec: SPC-4, "REPORT TARGET PORT GROUPS command", "SET
//! TARGET PORT GROUPS command".

use super::{be16, be32, put};
use crate::ParseError;

codes! {
    /// ASYMMETRIC ACCESS STATE.
    pub struct AccessState(u8) {
        ACTIVE_OPTIMIZED = 0x0 "active/optimized",
        ACTIVE_NON_OPTIMIZED = 0x1 "active/non-optimized",
        STANDBY = 0x2 "standby",
        UNAVAILABLE = 0x3 "unavailable",
        LBA_DEPENDENT = 0x4 "logical block dependent",
        OFFLINE = 0xe "offline",
        TRANSITIONING = 0xf "transitioning",
    }
}

codes! {
    /// STATUS CODE: what brought a group into its state.
    pub struct AccessReason(u8) {
        NONE = 0 "no word",
        SET = 1 "by SET TARGET PORT GROUPS",
        IMPLICIT = 2 "by itself",
    }
}

/// RETURN DATA FORMAT 1, where it stands.
const EXTENDED: u8 = 0x10;

/// T_SUP, U_SUP, S_SUP, AN_SUP and AO_SUP of [`PortGroup::supported`]: all states but those of some
/// blocks and of being offline.
pub const STATES_SUPPORTED: u8 = 0x8f;

/// A target port group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub id: u16,
    /// PREF: it is preferred.
    pub preferred: bool,
    /// Its state.
    pub state: AccessState,
    /// T_SUP, O_SUP, LBD_SUP, U_SUP, S_SUP, AN_SUP, AO_SUP, from bit 7 down.
    pub supported: u8,
    /// What brought it there.
    pub reason: AccessReason,
    /// RELATIVE TARGET PORT IDENTIFIERS; at most 255 are said.
    pub ports: Vec<u16>,
}

/// The data of REPORT TARGET PORT GROUPS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortGroups(pub Vec<PortGroup>);

impl PortGroups {
    const HEADER: usize = 4;
    const GROUP: usize = 8;
    const PORT: usize = 4;

    /// The data as bytes, with the header that has but a length.
    pub fn emit(&self) -> Vec<u8> {
        self.emit_behind(&[])
    }

    /// The data as bytes, with the header that says how long a transition takes at most, in seconds;
    /// 0 says nothing.
    pub fn emit_extended(&self, transition_s: u8) -> Vec<u8> {
        self.emit_behind(&[EXTENDED, transition_s, 0, 0])
    }

    fn emit_behind(&self, more: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; Self::HEADER];
        bytes.extend(more);
        for group in &self.0 {
            let count = group.ports.len().min(255);
            let mut head = [0; Self::GROUP];
            head[0] = u8::from(group.preferred) << 7 | group.state.0 & 0xf;
            head[1] = group.supported;
            put(&mut head, 2, group.id.to_be_bytes());
            (head[5], head[7]) = (group.reason.0, count as u8);
            bytes.extend(head);
            for port in &group.ports[..count] {
                bytes.extend([0, 0]);
                bytes.extend(port.to_be_bytes());
            }
        }
        let length = (bytes.len() - Self::HEADER) as u32;
        put(&mut bytes, 0, length.to_be_bytes());
        bytes
    }

    /// Reads what is there of the data: whole groups.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let list = &bytes[Self::HEADER..];
        let mut list = &list[..list.len().min(be32(bytes, 0) as usize)];
        // RETURN DATA FORMAT 1: four bytes with a transition time. A group's second byte cannot
        // tell, so its first does: these bits are reserved there.
        if list.first().is_some_and(|first| first & 0x70 == EXTENDED) {
            list = list.get(4..).unwrap_or_default();
        }
        let mut groups = Vec::new();
        while let Some((head, rest)) = list.split_at_checked(Self::GROUP) {
            let length = usize::from(head[7]) * Self::PORT;
            let Some((ports, rest)) = rest.split_at_checked(length) else { break };
            groups.push(PortGroup {
                id: be16(head, 2),
                preferred: head[0] & 0x80 != 0,
                state: AccessState(head[0] & 0xf),
                supported: head[1],
                reason: AccessReason(head[5]),
                ports: ports.as_chunks::<{ Self::PORT }>().0.iter().map(|p| be16(p, 2)).collect(),
            });
            list = rest;
        }
        Ok(Self(groups))
    }
}

/// The parameter list of SET TARGET PORT GROUPS: which groups are to be in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetPortGroups(pub Vec<(u16, AccessState)>);

impl SetPortGroups {
    const HEADER: usize = 4;

    /// The list as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::HEADER];
        for (group, state) in &self.0 {
            bytes.extend([state.0 & 0xf, 0]);
            bytes.extend(group.to_be_bytes());
        }
        bytes
    }

    /// Reads a list, which is all of the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER || !bytes.len().is_multiple_of(4) {
            let whole = bytes.len().next_multiple_of(4).max(Self::HEADER);
            return Err(ParseError::short(whole, bytes.len()));
        }
        let list = bytes[Self::HEADER..].as_chunks::<4>().0;
        Ok(Self(list.iter().map(|one| (be16(one, 2), AccessState(one[0] & 0xf))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups() -> PortGroups {
        let group = PortGroup {
            id: 1,
            preferred: true,
            state: AccessState::ACTIVE_OPTIMIZED,
            supported: 0x0f,
            reason: AccessReason::IMPLICIT,
            ports: vec![1, 0x0203],
        };
        let other =
            PortGroup { id: 2, state: AccessState::STANDBY, ports: vec![], ..group.clone() };
        PortGroups(vec![group, other])
    }

    #[test]
    fn groups_both_ways_and_cut() {
        let bytes = groups().emit();
        assert_eq!(bytes[..12], [0, 0, 0, 24, 0x80, 0x0f, 0, 1, 0, 2, 0, 2]);
        assert_eq!(bytes[12..21], [0, 0, 0, 1, 0, 0, 2, 3, 0x82]);
        assert_eq!(PortGroups::parse(&bytes), Ok(groups()));
        let first = PortGroups(groups().0[..1].to_vec());
        assert_eq!(PortGroups::parse(&bytes[..27]), Ok(first));
        assert!(PortGroups::parse(&bytes[..3]).is_err());
    }

    #[test]
    fn a_transition_time_is_passed_over() {
        let mut bytes = groups().emit();
        bytes.splice(4..4, [0x10, 30, 0, 0]);
        bytes[3] += 4;
        assert_eq!(groups().emit_extended(30), bytes);
        assert_eq!(PortGroups::parse(&bytes), Ok(groups()));
    }

    #[test]
    fn a_set_list_both_ways() {
        let set = SetPortGroups(vec![(1, AccessState::STANDBY), (0x0102, AccessState(0))]);
        let bytes = set.emit();
        assert_eq!(bytes, [0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 1, 2]);
        assert_eq!(SetPortGroups::parse(&bytes), Ok(set));
        assert!(SetPortGroups::parse(&bytes[..10]).is_err() && SetPortGroups::parse(&[]).is_err());
    }
}
