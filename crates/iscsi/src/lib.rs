//! iSCSI: the target and the initiator as pure machines, at ErrorRecoveryLevel 0.
//!
//! What lives here: what is exported (`target`), what all sessions of a shard share (`targets`)
//! and what shards tell each other about sessions (`message`); the negotiation of text keys
//! (`negotiation`), which both ends use; the sessions themselves, the serving end in `server` and
//! the asking one in `initiator`. What deliberately does not: the layout of PDUs (room `wire`),
//! what SCSI commands mean (room `scsi`), sockets, clocks, threads, disks. Read `server` first.
//! Spec: RFC 7143.

pub mod auth;
#[cfg(test)]
mod fixtures;
pub mod initiator;
pub mod limits;
mod message;
pub mod negotiation;
mod pdu_stream;
pub mod server;
pub mod target;
pub mod targets;
