//! What a router of labels is measured with: the barest forwarder, and who sends it labelled frames.
//!
//! `frame.rs` has the bytes, `forward.rs` the forwarder with its packet ring, `xdp.rs` the same over
//! AF_XDP, `generate.rs` the load, whose sink (`sink.rs`) is an interface that counts what arrives. Units:
//! frames without their check sequence. Absent on purpose: a table of labels; the forwarder does to
//! every frame what a swap does to it at the least. Spec: RFC 3032.

pub(crate) mod forward;
mod frame;
pub(crate) mod generate;
mod sink;
mod xdp;
