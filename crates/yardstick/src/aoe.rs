//! The same pair for ATA over Ethernet: a bare responder and a bare client on raw sockets.
//!
//! `wire.rs` has the offsets, `packet.rs` the packet socket with its receive ring and its batch of
//! sends, `responder.rs` and `client.rs` are the two programs. Units: sectors of 512 bytes, frames
//! without their check sequence. Neither checks more than it needs to find its way; both pad to 60
//! bytes. Spec: AoEr11.

pub(crate) mod client;
mod packet;
pub(crate) mod responder;
pub(crate) mod wire;
