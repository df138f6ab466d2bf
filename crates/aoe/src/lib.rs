//! ATA over Ethernet: a target that serves volumes at shelf.slot, and an initiator that makes such a target a disk.
//!
//! Both are pure machines: frames in (lent for one call), block requests and frames out; no socket, clock or thread. What lives here: what the commands
//! mean, who may send them, which frames wait for which, and what is done about frames that are lost or repeated. What does not:
//! the bytes of the frames (`wire::aoe`), reservations (`volume::reservation`: other protocols share them), links and rings (the reactor), volumes.
//! Read [`target`] first; [`initiator`] is its mirror; [`export`] and [`control`] are what both sides' configuration says and what initiators may change.

pub mod control;
mod envelope;
pub mod export;
pub mod filter;
mod head;
pub mod initiator;
mod outbox;
pub mod target;

#[cfg(test)]
mod simulation;

pub use control::Control;
pub use envelope::answer_of;
pub use export::{Export, ExportId, Hosts};
pub use initiator::Initiator;
pub use target::Target;
