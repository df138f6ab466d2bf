//! MPLS: what a label edge router (LER) and a label switching router (LSR) do with a frame.
//!
//! A pure machine: the tables of a router and a frame in, a [`Verdict`] about it out; no socket,
//! thread or clock. What lives here: the incoming label map ([`ilm`]), where packets go and with
//! which labels ([`nhlfe`]), what a customer's frames go by ([`ftn`]): a pseudowire or a tunnel
//! through IP ([`pseudowire`], [`tunnel`]), with sequence numbers ([`sequencing`]), and the ways
//! through a router: a packet with labels is switched or ends here (`lsr`), a frame of a customer's
//! enters or leaves (`ler`). Around them stands the machine that a shard runs ([`forwarder`]): frames
//! in, batches out.
//!
//! What does not: the bytes of headers (`wire`), rings and interfaces (the driver's), what the frames
//! of customers mean, how anybody comes to know a label. Read [`router`] first, then `lsr`, then `ler`.

pub mod change;
pub mod forwarder;
pub mod ftn;
pub mod ilm;
mod ler;
pub mod limits;
mod lsr;
pub mod nhlfe;
pub mod port;
pub mod probe;
pub mod protection;
pub mod pseudowire;
mod rate;
mod refused;
mod reorder;
mod repair;
pub mod report;
pub mod router;
pub mod sequencing;
#[cfg(test)]
mod tests;
pub mod tunnel;
pub mod verdict;

pub use change::{Change, Path, PortKind, RouterId, Via};
pub use forwarder::{
    Event, Forwarder, Narrow, Neighbour, NeighbourId, NeighbourReport, PathProof, QueueCounters,
    SessionReport, Subject, Watch, WatchReport,
};
pub use ftn::{Fec, Wire};
pub use ilm::{Action, FecId, Ilm, IlmEntry, Owner};
pub use nhlfe::{Adjacency, Labels, NextHop, Nhlfe, NhlfeId, Reach};
pub use port::{Circuit, Core, Over, Role, TunnelPort};
pub use probe::{ProbeCounters, Proof};
pub use protection::{ProtectionCounters, Way};
pub use pseudowire::{Origin, Pseudowire, PseudowireId};
pub use rate::Rate;
pub use refused::Refused;
pub use repair::{HopState, Hops};
pub use report::{
    Bins, LabelReport, NhlfeReport, PortReport, PseudowireReport, RouterReport, TunnelReport,
};
pub use router::{Router, Space};
pub use sequencing::Sequencing;
pub use tunnel::{Session, SessionKey, Tunnel, TunnelId};
pub use verdict::{DropReason, Drops, Verdict};
