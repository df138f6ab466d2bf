//! Ports: where a router hears frames and sends them, and what came and left by each.
//!
//! A port is a link of the driver's, by its number, and of the core, the end of a circuit, or what
//! tunnels through IP go by. Only frames of a core port have labels that mean something; those of a
//! circuit are a customer's bytes, whatever they look like. Units: frames, and their bytes from the
//! label stack on on core ports, from the destination address on at circuits, from GRE's or L2TP's
//! header on for tunnels. No errors.

use contract::counters;
use wire::classify::Classifier;

use crate::rate::Rate;
use crate::verdict::Drops;

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Core(Core),
    Circuit(Circuit),
    /// Towards a host where tunnels of one kind end; `mtu` is what a packet may have, from their
    /// header on.
    Tunnels {
        kind: TunnelPort,
        mtu: u32,
    },
}

/// What tunnels of a port are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelPort {
    /// GRE over IP.
    Gre,
    /// L2TPv3 over UDP.
    L2tp,
}

/// A port towards other routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Whether tunnels end here whose last label is explicit null (RFC 3032 clause 2.1): what is
    /// below it is looked up.
    pub takes_explicit_null: bool,
    pub over: Over,
    /// What it may send; `None`: whatever its interface takes.
    pub rate: Option<Rate>,
}

/// What is around packets of a core port, in front of their label stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Ethernet: any number of next routers, each with an address.
    #[default]
    Ethernet,
    /// UDP, which is the kernel's (RFC 7510): one router, the host at the other end.
    Udp,
}

/// An attachment circuit: the port to a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circuit {
    /// Bytes behind the Ethernet header that a frame may have; the tag of a VLAN does not count.
    pub mtu: u32,
    /// The traffic class of frames by their 802.1p priority; those without a tag have priority 0.
    pub traffic_classes: [u8; 8],
    /// By what its frames are told apart, each of which goes by what its class goes by; `None`: all go
    /// the same way.
    pub classifier: Option<Classifier>,
}

impl Circuit {
    /// A circuit that is not split, on which priorities are the traffic classes of the same number.
    pub const fn new(mtu: u32) -> Self {
        Self { mtu, traffic_classes: [0, 1, 2, 3, 4, 5, 6, 7], classifier: None }
    }
}

counters! {
    /// What came and left by a port.
    pub struct PortCounters {
        /// Frames that came.
        received: Frames,
        /// Their bytes.
        received_bytes: Bytes,
        /// Frames that left.
        sent: Frames,
        /// Their bytes.
        sent_bytes: Bytes,
    }
}

/// A port as the router has it.
#[derive(Debug)]
pub(crate) struct PortState {
    pub(crate) role: Role,
    pub(crate) counters: PortCounters,
    /// Of frames that came here.
    pub(crate) drops: Drops,
}

impl PortState {
    pub(crate) fn new(role: Role) -> Self {
        Self { role, counters: PortCounters::default(), drops: Drops::default() }
    }

    #[inline]
    pub(crate) fn count_received(&mut self, bytes: usize) {
        self.counters.received += 1;
        self.counters.received_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes as u64;
    }
}
