//! The pair for NVMe/TCP: a bare responder and a bare client.
//!
//! `pdu.rs` has the offsets. `ceiling.rs` is what the responder makes of a connection's bytes, with
//! admin answers in `admin.rs`; `client.rs` is what the client is told, `session.rs` its set-up and
//! `queue.rs` its hot path. Both run on what iSCSI's pair runs on, too: `responder.rs` and
//! `load.rs`. One namespace of 512-byte blocks. Spec: NVMe/TCP transport.

pub(crate) mod admin;
pub(crate) mod ceiling;
pub(crate) mod client;
mod pdu;
mod queue;
mod session;

#[cfg(test)]
mod tests;
