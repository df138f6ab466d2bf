//! NVMe over TCP: both ends of a connection, and the cutting of its stream into PDUs.
//!
//! Here: [`server`], the serving end, [`initiator`], the asking one, and what both need,
//! [`pdu_stream`]. Not here: what a PDU looks like (`wire::nvme_tcp`), sockets (the drivers of the
//! contract), what admin commands mean (`controllers`). Spec: NVMe/TCP transport specification.

pub mod initiator;
mod pdu_stream;
pub mod server;
