//! The negotiation of text keys: what each end offers, and what comes of it.
//!
//! In: one key and its value at a time, as they lie in the texts of a login. Out: the `key=value`
//! that is to be sent back, and in the end [`Parameters`]. The target's end is [`Responder`], the
//! initiator's [`Offer`]. Each key has one result function, which one end computes and the other
//! checks:
//!
//! ```text
//!   list     HeaderDigest, DataDigest, TaskReporting            the first value of the offer that both have
//!   or       InitialR2T, DataPDUInOrder, DataSequenceInOrder    Yes if one wants it
//!   and      ImmediateData, OFMarker, IFMarker                  Yes if both want it
//!   minimum  MaxConnections, MaxBurstLength, FirstBurstLength, MaxOutstandingR2T, ErrorRecoveryLevel,
//!            DefaultTime2Retain, iSCSIProtocolLevel
//!   maximum  DefaultTime2Wait
//!   told     MaxRecvDataSegmentLength, names and aliases, SessionType, TargetPortalGroupTag
//! ```
//!
//! Units: bytes, seconds. Errors: at the target the status that ends the login, at the initiator a
//! text. Not here: how texts are cut into requests (the sessions), authentication (`auth`),
//! SendTargets. Spec: RFC 7143, 6.2 and 13.

mod offer;
mod responder;
#[cfg(test)]
mod tests;

pub use offer::Offer;
pub use responder::Responder;

use core::ops::RangeInclusive;

use wire::iscsi::keys::{Key, values};

/// What a session and its connection have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// CRC32C of headers, and of data.
    pub header_digest: bool,
    pub data_digest: bool,
    /// Whether data beyond those in the command are sent only when they are asked for.
    pub initial_r2t: bool,
    /// Whether a command may have data with it.
    pub immediate_data: bool,
    /// Data of one sequence of Data-In, or in answer to one R2T.
    pub max_burst: u32,
    /// Data that come unasked: never more than `max_burst`, whatever was agreed on.
    pub first_burst: u32,
    /// R2Ts of one command that may be unanswered.
    pub max_outstanding_r2t: u16,
    /// Seconds to wait before coming back after a break, and how long tasks outlive one.
    pub time_to_wait: u16,
    pub time_to_retain: u16,
    /// MaxRecvDataSegmentLength of the other end: how much data a PDU to it may have.
    pub peer_segment: u32,
    pub max_connections: u16,
    pub error_recovery_level: u8,
}

impl Default for Parameters {
    /// What holds of what nobody mentions.
    fn default() -> Parameters {
        Parameters {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            max_burst: 262_144,
            first_burst: 65_536,
            max_outstanding_r2t: 1,
            time_to_wait: 2,
            time_to_retain: 20,
            peer_segment: 8192,
            max_connections: 1,
            error_recovery_level: 0,
        }
    }
}

impl Parameters {
    /// What a command may have with it, and what may follow it unasked: both in all.
    pub fn unasked(&self) -> u32 {
        if self.initial_r2t && !self.immediate_data { 0 } else { self.first_burst }
    }
}

/// The one digest there is, as a value.
const CRC32C: &str = "CRC32C";

/// What a numeric key may say; `None` of other keys.
fn range(key: Key) -> Option<RangeInclusive<u32>> {
    Some(match key {
        Key::MaxConnections | Key::MaxOutstandingR2T => 1..=65_535,
        Key::MaxRecvDataSegmentLength | Key::MaxBurstLength | Key::FirstBurstLength => {
            512..=(1 << 24) - 1
        }
        Key::DefaultTime2Wait | Key::DefaultTime2Retain => 0..=3600,
        Key::ErrorRecoveryLevel => 0..=2,
        Key::IscsiProtocolLevel => 0..=31,
        _ => return None,
    })
}

/// The number that a value says, if it is one that the key may have.
fn number(key: Key, value: &str) -> Option<u32> {
    let number = u32::try_from(values::number(value).ok()?).ok()?;
    range(key)?.contains(&number).then_some(number)
}

/// Whether a key means nothing in a discovery session.
fn is_irrelevant_in_discovery(key: Key) -> bool {
    matches!(
        key,
        Key::MaxConnections
            | Key::InitialR2T
            | Key::ImmediateData
            | Key::MaxBurstLength
            | Key::FirstBurstLength
            | Key::MaxOutstandingR2T
            | Key::DataPduInOrder
            | Key::DataSequenceInOrder
            | Key::TaskReporting
            | Key::IscsiProtocolLevel
    )
}

/// The keys that came, or that were offered.
#[derive(Clone, Copy, Debug, Default)]
struct Keys(u64);

impl Keys {
    /// Notes a key; whether it is new.
    fn insert(&mut self, key: Key) -> bool {
        let before = self.0;
        self.0 |= 1 << key as u64;
        before != self.0
    }

    /// Forgets a key; whether it was there.
    fn remove(&mut self, key: Key) -> bool {
        let before = self.0;
        self.0 &= !(1 << key as u64);
        before != self.0
    }
}
