//! Bytes to values and back, for every wire Plateway speaks.
//!
//! Here: [`nvme_tcp`] (the PDUs of the TCP transport), [`nvme`] (commands, completions and the data
//! structures they carry), [`aoe`] (what follows the Ethernet header of an AoE frame) with [`ata`]
//! (the registers and IDENTIFY DEVICE) and [`ethernet`], [`iscsi`] (PDUs, text keys and names)
//! and [`scsi`] (commands, sense data and what they carry). Read `nvme_tcp.rs` first: it is the
//! outermost layer and the pattern of all others.
//!
//! What carries frames from router to router: [`mpls`] (label stacks), [`pseudowire`] (the control
//! word), [`bfd`] (whether the peer is there) and [`probe`] (how large a frame gets there); [`gre`] and
//! [`l2tp`], over [`ip`] and [`udp`], with [`checksum`]; [`sequence`] compares the numbers of all of
//! them, [`classify`] sorts the frames that they carry, and [`clamp`] lowers what one of these asks
//! for. These headers come as they nest:
//! `pop` takes one off the front of bytes, and a [`Front`] has them pushed in front of each other.
//!
//! What other storage puts on the same wire, as far as it is compared with ours: [`tcp`],
//! [`fibre_channel`] (FCIP and iFCP), [`rpc`] and [`nfs`]. [`overhead`] makes a frame of each stack of
//! headers and counts them.
//!
//! Deliberately not here: state (a parser never remembers the previous PDU), I/O, digests (whoever
//! owns the bytes computes CRC32C), policy (which field value is acceptable *now*), captures (the
//! program reads them with libraries), `unsafe`, dependencies.
//!
//! Three rules hold everywhere. A code nobody knows survives as a number: codes are newtypes with
//! named constants, so they can be logged and refused properly. A [`ParseError`] names the field,
//! its offset, what was expected and what was seen. A header is one table of offsets
//! (`field::layout!`), checked at compile time to be ascending, disjoint and inside its size.
//! NVMe and ATA are little-endian; Ethernet, AoE, iSCSI, SCSI and what carries frames are big-endian.

#[macro_use]
mod codes;
mod error;
#[macro_use]
mod field;
mod front;
mod text;

pub mod aoe;
pub mod ata;
pub mod bfd;
pub mod checksum;
pub mod clamp;
pub mod classify;
pub mod ethernet;
pub mod fibre_channel;
pub mod gre;
pub mod ip;
pub mod iscsi;
pub mod l2tp;
pub mod mpls;
pub mod nfs;
pub mod nvme;
pub mod nvme_tcp;
pub mod overhead;
pub mod probe;
pub mod pseudowire;
pub mod rpc;
pub mod scsi;
pub mod sequence;
pub mod tcp;
pub mod udp;

pub use error::{Expected, ParseError};
pub use front::Front;
pub use text::{ascii_field, ascii_text};
