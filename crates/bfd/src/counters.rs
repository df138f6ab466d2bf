//! What sessions did, and packets that were discarded. Each reason is stated once, as a name, a
//! sentence and a counter. Spec: RFC 5880 clause 6.8.6, in whose order the reasons stand.

use contract::{counters, drops};
use wire::ParseError;

counters! {
    /// What a session did.
    pub struct SessionCounters {
        /// Packets that were for it and not discarded.
        received: Frames,
        /// Packets that it sent.
        sent: Frames,
        /// Of these, packets with P: it asked for an answer.
        polls_sent: Frames,
        /// Of these, packets with F: it gave one.
        finals_sent: Frames,
        /// Times that it became Up.
        ups: Events,
        /// Times that it was Up and ended, for whatever reason.
        downs: Events,
        /// Times that nothing came for a detection time.
        expirations: Events,
        /// Times that it waited one interval longer, since this machine itself had not run.
        stalls_forgiven: Events,
    }
}

drops! {
    /// Why a packet is discarded.
    pub enum DropReason;
    /// Packets that were discarded, by reason.
    pub struct Drops;
    /// In another version.
    Version version,
    /// Shorter than its mandatory section, or than it says, or of a length that none has.
    Length length,
    /// With a multiplier of 0.
    DetectMult detect_mult,
    /// Of a session with more than two ends.
    Multipoint multipoint,
    /// From nobody: My Discriminator is 0.
    MyDiscriminator my_discriminator,
    /// For a discriminator that no session has.
    UnknownDiscriminator unknown_discriminator,
    /// To nobody, and from a session that is beyond Down: who is there knows our discriminator.
    NotDown not_down,
    /// To nobody, by a carrier that has no session.
    NoSession no_session,
    /// By another carrier than that of its session, which takes packets by its own alone.
    OtherCarrier other_carrier,
    /// With an authentication section: no session has a key.
    Authenticated authenticated,
    /// For a session that is administratively down: of what it says, what to send by is kept.
    AdminDown admin_down,
}

impl DropReason {
    /// Which rule of those that need no session was broken.
    pub(crate) fn of(error: &ParseError) -> Self {
        match error.field {
            "version" => Self::Version,
            "detect mult" => Self::DetectMult,
            "flags" => Self::Multipoint,
            "my discriminator" => Self::MyDiscriminator,
            "state" => Self::NotDown,
            "auth len" => Self::Authenticated,
            _ => Self::Length,
        }
    }
}
