//! Changes of a router, one by one, as whoever configures it orders them.
//!
//! A change says what was configured; what is known of links (the port's own address, its VLAN and
//! MTU) the [`Forwarder`](crate::Forwarder) adds, and adds again when it changes. Where a router is that
//! was configured by an address of IP, whoever follows that tells by a change. Order: a port
//! before what refers to it as a label space; all else may come in any order, since what refers to
//! something that is not there drops and counts. Units: bytes behind the Ethernet header. Errors:
//! [`Refused`](crate::Refused), after which nothing is changed. Spec: none; the tables name theirs.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use contract::{LinkId, MacAddress};
use wire::classify::Classifier;
use wire::mpls::Label;

use crate::forwarder::{Neighbour, NeighbourId, Watch};
use crate::ilm::{Action, FecId};
use crate::nhlfe::{Labels, NhlfeId};
use crate::port::{Core, TunnelPort};
use crate::pseudowire::{Pseudowire, PseudowireId};
use crate::router::Space;
use crate::tunnel::{Tunnel, TunnelId};

/// The number of a router among those of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouterId(pub u32);

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "router {}", self.0)
    }
}

/// What a link is to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Towards other routers: a link of the driver's that takes MPLS's EtherType, or one of datagrams
    /// whose payloads begin with a label stack.
    Core(Core),
    /// Towards a customer: a link of the driver's that takes whatever comes. `traffic_classes` has
    /// the traffic class of frames by their 802.1p priority, and `classifier` by what they are told
    /// apart where they go several ways.
    Circuit { traffic_classes: [u8; 8], classifier: Option<Classifier> },
    /// A circuit that ends in this process: a virtual link with this address, for those who live on
    /// frames here.
    Virtual { mac: MacAddress },
    /// Towards a host where tunnels of this kind end: a link of datagrams of the driver's.
    Tunnels(TunnelPort),
    /// Towards one neighbour: a link of datagrams of the driver's whose payloads are control packets
    /// of BFD, and which takes none that came over a router (RFC 5881 clauses 4 and 5).
    Bfd,
}

/// Which router on a port with Ethernet, as somebody wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The one at this address there.
    Mac(MacAddress),
    /// The one that has this address, wherever it is there.
    Ip(IpAddr),
}

impl Via {
    /// Its address of IP, if it is known by one.
    pub fn ip(self) -> Option<IpAddr> {
        if let Self::Ip(address) = self { Some(address) } else { None }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Ip(address) => write!(f, "{address}"),
        }
    }
}

/// A path that begins here: the next router, and the labels that it wants on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The core port towards it.
    pub port: LinkId,
    /// Which one there; `None` where the port leads to one router, without Ethernet.
    pub via: Option<Via>,
    pub labels: Labels,
    /// Bytes from the label stack on that all of the path takes; `None`: what the port takes.
    pub mtu: Option<u32>,
    /// The path that its packets take while its next hop fails, by another link.
    pub backup: Option<NhlfeId>,
}

/// A change of one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Labels that are withdrawn from now on are nobody's for so long.
    SetQuarantine(Duration),
    /// There is a port, or it is for something else now.
    SetPort(LinkId, PortKind),
    /// There is no such port any more.
    RemovePort(LinkId),
    /// Bytes that leave by a port in each millisecond are recorded for so many of them; 0: not any more,
    /// and what was recorded is forgotten. Nothing where there is no such port.
    Record(LinkId, u16),
    /// There is a path, or it is another one now.
    SetPath(NhlfeId, Path),
    RemovePath(NhlfeId),
    /// The router with this address on a port is there now; `None`: that is not known, and what would
    /// go to it is dropped.
    Resolve(LinkId, IpAddr, Option<MacAddress>),
    /// What is done with packets of a FEC, which come with this label.
    SetLabel {
        space: Space,
        label: Label,
        fec: FecId,
        action: Action,
    },
    /// A label is taken from its FEC, and nobody's for the quarantine.
    WithdrawLabel {
        space: Space,
        label: Label,
        fec: FecId,
    },
    /// There is a pseudowire, or it is another way now.
    SetPseudowire(PseudowireId, Pseudowire),
    /// A pseudowire is watched by BFD in its associated channel, on each of its paths, or no longer.
    SetWatch(PseudowireId, Option<Watch>),
    /// There is a neighbour, or it is another way now.
    SetNeighbour(NeighbourId, Neighbour),
    /// There is no such neighbour any more.
    RemoveNeighbour(NeighbourId),
    /// There is no such pseudowire any more.
    RemovePseudowire(PseudowireId),
    /// There is a tunnel, or it is another way now.
    SetTunnel(TunnelId, Tunnel),
    /// There is no such tunnel any more.
    RemoveTunnel(TunnelId),
    /// The router is gone, with all that it has.
    RemoveRouter,
}
