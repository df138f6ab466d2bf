//! NVMe over TCP: both ends of a connection, and the cutting of its stream into PDUs.
//!
//! Here: [`target`], the serving end, and what both ends need, [`pdu_stream`]. Not here: what a PDU looks like
//! (`wire::nvme_tcp`), sockets (the drivers of the contract), what admin commands mean (`controllers`).
//! Spec: NVMe/TCP transport specification.

pub mod pdu_stream;
pub mod target;
