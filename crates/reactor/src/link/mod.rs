//! Links: raw Ethernet, from an interface to a shard and back.
//!
//! What a *link* is, and what frames look like to a machine, stands in `contract::link`. Here is
//! how the frames come and go:
//!
//! ```text
//!   supervisor     watches interfaces (netlink), opens and closes sockets        one a reactor
//!     |            on threads that may wait
//!     | LinkCommand::Take, Give, Tell (by mail)
//!   driver/links   shows frames, sends batches, sleeps                           one a shard
//!     |
//!   socket         a receive ring, AF_XDP, or datagrams                          one a link and shard
//! ```
//!
//! A link through IP has no interface of its own, and no Ethernet: its frames are the payloads of
//! datagrams to and from one other host ([`PeerOptions`]).
//!
//! Opening and closing a packet socket waits for a grace period of the kernel, milliseconds in
//! which a shard would serve nobody. So the supervisor does both: an interface that goes down,
//! comes back, or gets another MTU or address has its sockets taken from the shards, closed, opened
//! anew and handed out again.
//!
//! The room knows no protocol: the EtherType and the programs that choose and spread frames come
//! from outside ([`Intake`]). Units: bytes of frames count from the destination address, without
//! check sequence. Errors: what an interface lacks is told when the link is added, with what to do
//! about it; later, a link that cannot be had is down.

mod claim;
pub(crate) mod counters;
mod datagram;
mod filter;
mod interface;
mod neighbours;
mod netlink;
mod packet;
mod peers;
mod queueing;
mod quiet;
mod relay;
pub(crate) mod ring;
pub(crate) mod socket;
pub(crate) mod supervisor;
mod xdp;

use std::io;

use contract::{Intake, LinkFacts, Poll};

pub use counters::{LinkCounters, LinkStats};
pub use datagram::{Datagrams, PeerOptions, is_of_a_host, is_of_a_link};
pub use interface::Interface;
pub use neighbours::{Found, Stations, look_at_stations};
pub use queueing::delays_what_is_first;
pub use quiet::SwitchedOff;
pub use relay::{RelayCounts, RelayOptions, relay};

/// Which frames of which interface a link takes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// The interface, by its name.
    pub interface: String,
    /// Frames of this VLAN, 1 to 4094; `None`: those without a tag, or with one that only tells a
    /// priority, which is not told then.
    ///
    /// To find tags, the kernel has to run the link's filter for all frames that the interface
    /// receives. Where that is too much, an interface of the system for the VLAN (`eth1.5`), named
    /// without a VLAN here, has its frames alone.
    pub vlan: Option<u16>,
    /// How frames come and go.
    pub access: LinkAccess,
    /// How long a shard looks for more frames before it sleeps.
    pub poll: Poll,
    /// Which frames it takes, and on which shards.
    pub intake: Intake,
    /// Frames that come here are sent on elsewhere, as they are.
    ///
    /// So they must be as they were on the wire. What makes long frames of several (GRO, LRO) is
    /// off on the interface while the link is there, and on a circuit
    /// ([`Takes::Whole`](contract::Takes::Whole)) the host's IPv6, too: what was on is on again once
    /// the link is removed or the reactor stops, and a process that is killed leaves it off. A frame
    /// over the MTU, or with a checksum that its sender left to hardware, is counted and not shown.
    ///
    /// Nobody else may forward them: what takes the same frames of the same interface for that, here
    /// or in another process of the network namespace, is refused (`AddrInUse`).
    ///
    /// An interface that stands on another one (a VLAN's, a bond's) gets what was merged below: there
    /// it is for somebody else to switch off.
    ///
    /// A tag may come beyond the MTU, but the kernel lets one leave so that is of 802.1Q alone: where
    /// full frames with one of 802.1ad, or with two, are sent, the interface needs an MTU that is 4
    /// bytes larger.
    pub forwards: bool,
}

impl LinkOptions {
    /// Bytes of a frame that can be sent on, at most, without the outermost tag, which an interface
    /// carries beyond its MTU; `None` if none is sent on.
    fn forwarded_max(&self, interface: &Interface) -> Option<u32> {
        self.forwards.then_some(interface.mtu + HEADER_SIZE)
    }
}

/// Bytes of an Ethernet header.
const HEADER_SIZE: u32 = 14;

/// A link that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedLink {
    pub facts: LinkFacts,
    /// What was on at its interface and is off now, which whoever runs the system should be told.
    pub switched_off: Vec<SwitchedOff>,
}

/// How frames come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkAccess {
    /// A packet socket with a receive ring. Needs CAP_NET_RAW.
    #[default]
    Packet,
    /// AF_XDP sockets, one for each receive queue of the interface, for one shard. Needs
    /// CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. An interface has one such link; what it does not
    /// take goes on to the stack, and to links over packet sockets. The interface is told to leave
    /// VLAN tags in frames; one that cannot is refused.
    Xdp,
}

/// Looks at an interface, which takes no right. An error if there is none of this name, with those
/// that there are, or if it carries no Ethernet.
pub fn look_at_interface(name: &str) -> io::Result<Interface> {
    interface::find(name)?.ok_or_else(interface::missing)
}

/// Looks for the path to a peer, which takes no right: how many bytes of a payload it takes; `None`:
/// there is no route now. An error says what no host could make right.
pub fn look_at_peer(options: &PeerOptions) -> io::Result<Option<u32>> {
    options.check(usize::MAX)?;
    Ok(datagram::find(options)?.map(|path| path.mtu))
}

/// Whether this process may open packet sockets; the error says how that is granted. Nothing is
/// bound, so no frame is taken.
pub fn may_open_links() -> io::Result<()> {
    packet::probe()
}
