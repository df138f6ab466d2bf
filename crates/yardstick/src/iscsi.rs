//! The pair for iSCSI: a bare target and a bare client.
//!
//! `pdu.rs` has the offsets, `terms.rs` the keys of a login and what comes of them. Of the target,
//! `ceiling.rs` is what it makes of a connection's bytes, `login.rs` how it lets somebody in, and
//! `scsi.rs` what it says of its disk. Of the client, `client.rs` is what it is told, `session.rs`
//! its set-up, `queue.rs` its hot path and `landing.rs` what becomes of data that it reads. Both run on what NVMe/TCP's pair runs on, too:
//! `responder.rs` and `load.rs`. Absent: authentication, discovery, more than one connection in a
//! session, recovery of any level. Spec: RFC 7143, SPC-4, SBC-3.

pub(crate) mod ceiling;
pub(crate) mod client;
mod landing;
mod login;
mod pdu;
mod queue;
mod scsi;
mod session;
mod terms;

#[cfg(test)]
mod tests;
