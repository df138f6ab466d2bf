//! Dialogues of the target connection with a scripted host, in one process: real controllers, a
//! volume in a vector, memory that watches its pages, and a driver that keeps the contract and cuts
//! the stream where a test says.
//!
//! Tests are named by the rule they check; the numbers in their comments are those of the checklist
//! of the protocol.

mod closing;
mod commands;
mod copying;
mod fused;
mod handshake;
mod hostile;
mod identity;
mod judged_anew;
mod landing;
mod memory;
mod paths;
mod reservations;
mod reserving;
mod transfer;
mod unread;
mod world;
