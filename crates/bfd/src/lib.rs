//! BFD: how two systems find out, quickly and at a price that both agree on, whether they still hear
//! each other.
//!
//! A pure machine: control packets and the present in, control packets and news out; no socket,
//! thread or clock. What lives here: all sessions of a machine and which of them a packet is for
//! ([`sessions`]), one session with its states and timers (`session`), what its intervals are and
//! when a change of them is in force (`intervals`), and the order of all deadlines (`deadlines`).
//!
//! What does not: the bytes of packets (`wire::bfd`), what carries them. A carrier is a number here;
//! whoever has the link or the pseudowire puts the headers of RFC 5881, 5883 or 5885 around a packet,
//! and checks the TTL of what comes, before it is shown here. What a session that is down means for
//! whom is not known here either. Asynchronous mode alone: we never ask for Demand mode, and offer no
//! Echo function and no authentication (docs/coverage/bfd.md). Read [`sessions`] first, then `session`.

mod counters;
mod deadlines;
mod event;
mod intervals;
pub mod limits;
mod refused;
mod session;
pub mod sessions;
mod settings;
mod state;
#[cfg(test)]
mod tests;

pub use counters::{DropReason, Drops, SessionCounters};
pub use event::Event;
pub use refused::Refused;
pub use session::Status;
pub use sessions::{Carrier, Sessions};
pub use settings::{Role, Settings};
pub use state::SessionState;
