//! The same pair for ATA over Ethernet: a bare responder and a bare client on raw sockets.
//!
//! `wire.rs` has the offsets, `outgoing.rs` the batch of sends, `responder.rs` and `client.rs`
//! are the two programs; the packet socket is `packet.rs` of the crate. Units: sectors of 512 bytes, frames
//! without their check sequence. Neither checks more than it needs to find its way; both pad to 60
//! bytes. Spec: AoEr11.

pub(crate) mod client;
mod outgoing;
pub(crate) mod responder;
pub(crate) mod wire;
