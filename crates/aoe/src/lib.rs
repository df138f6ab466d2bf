//! ATA over Ethernet: a target that serves volumes at shelf.slot, and an initiator that makes such
//! a target a disk.
//!
//! Both are pure machines: frames in (lent for one call), block requests and frames out; no socket,
//! clock or thread. What lives here: what the commands mean, who may send them, which frames wait
//! for which, and what is done about frames that are lost or repeated. What does not: Ethernet
//! (`contract::link`), the bytes of messages (`wire::aoe`), reservations (`reservation`: other
//! protocols share them), links and rings (the reactor), volumes. Read [`target`] first;
//! [`initiator`] is its mirror; [`export`] and [`control`] are what both sides' configuration says
//! and what initiators may change.

pub mod control;
pub mod export;
pub mod filter;
mod head;
pub mod initiator;
pub mod limits;
mod outbox;
mod received;
pub mod server;

pub use control::Control;
pub use export::{Export, ExportId, Hosts};
pub use initiator::Initiator;
pub use received::answer_of;
pub use server::Target;
