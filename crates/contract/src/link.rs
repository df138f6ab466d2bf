//! Links: how raw Ethernet frames come in and go out.
//!
//! A *link* is an interface, or one VLAN of it, as one user of it sees it: frames of one EtherType,
//! or all that come, of those the ones that the user's programs choose, each on the shard that they
//! name ([`Intake`]). Two users of an interface (a target and an initiator, or two protocols) have two
//! links: the kernel runs the program of each for every frame, so their programs need not know
//! each other, and a frame is copied only to where it is meant for.
//!
//! **Receiving.** The driver lends each frame for the length of one call, straight from its ring:
//! whoever needs the bytes longer copies them, so that the ring slot is given back at once. It
//! shows the frame as it came ([`InFrame`]); [`open`] takes it apart, once, and says whether it is
//! for this link at all. Many frames are shown in a turn, and the turn ends with one `settle`. On a
//! link whose frames are sent on, they are lent until then ([`Lent`]): a batch that is handed out at
//! this `settle` may name them, and they are sent from where they came.
//!
//! **Sending.** A machine hands out a [`FrameBatch`] at `settle`: headers in the batch's own bytes,
//! data where they lie, so one `sendmmsg` with iovecs sends it without a copy. A frame that the
//! interface does not take, or whose link is down, may be dropped (Ethernet promises nothing) and
//! is counted by the driver; the batch comes back, whole, once none of its bytes is looked at any
//! more. More than one may be out.
//!
//! **Links through IP.** A *datagram link* has no interface of its own and no Ethernet: its frames are
//! the payloads of datagrams to and from one other host, which the kernel routes. All else holds of
//! it as of the others. Who takes its frames ([`VirtualLinks::takes`]) knows what they are; they are
//! never opened as Ethernet.
//!
//! **Virtual links.** A link need not be the driver's: a machine beside those that live on it may
//! carry its frames inside frames of another one ([`VirtualLinks`]).

mod batch;
mod lent;
mod opened;

use core::fmt;

use block::{Instant, Memory, ShardId};
use wire::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};

pub use wire::ethernet::{EtherType, MacAddress, TagControl, VlanTag};

pub use batch::{FrameBatch, OutFrame};
pub use lent::{Lent, LentFrames, Part};
pub use opened::{Links, Misfit, Misfits, OpenedFrame, open};

/// A link of the process, named by whoever configured it. Small numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// What is known about a link that is up; told again when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// The interface's own address; zeros on a datagram link, which has none.
    pub mac: [u8; 6],
    /// Bytes behind the Ethernet header that a frame may have; on a datagram link, where there is no
    /// such header, of the whole payload that the path takes in one packet.
    pub mtu: u32,
    /// The VLAN whose frames the link takes and sends; `None` takes frames without a tag.
    pub vlan: Option<u16>,
    /// Frames of this MTU that the receive ring holds.
    pub ring_frames: u32,
    /// Whether other shards have the link as well.
    pub is_shared: bool,
}

impl LinkFacts {
    /// Bytes behind the EtherType that a frame may have. The tag of a VLAN does not count: an
    /// interface carries it beyond its MTU.
    #[inline]
    pub fn payload_max(&self) -> usize {
        self.mtu as usize
    }

    /// Bytes in front of the payload of a frame that is sent.
    #[inline]
    pub fn header_length(&self) -> usize {
        HEADER_SIZE + if self.vlan.is_some() { VLAN_TAG_SIZE } else { 0 }
    }
}

/// A station behind a link: where a frame came from, or where one goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The link.
    pub link: LinkId,
    /// Its address; of frames that go, maybe that of all stations.
    pub mac: MacAddress,
    /// The priority of its frames, 0 to 7 (PCP). It travels in the tag of a VLAN alone.
    pub priority: u8,
}

impl Station {
    /// One to which frames go without a priority.
    pub const fn new(link: LinkId, mac: MacAddress) -> Station {
        Station { link, mac, priority: 0 }
    }

    /// All stations behind a link.
    pub const fn all(link: LinkId) -> Station {
        Station::new(link, MacAddress::BROADCAST)
    }
}

/// An instruction of a classic BPF program, as the kernel has it (`struct sock_filter`): which
/// frames a link takes, or which shard takes a frame.
///
/// Programs look at frames from their destination address on, without a tag, which the kernel has
/// taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// Which frames of an interface a user of it takes: a value that its protocol gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intake {
    /// Frames of which kind.
    pub takes: Takes,
    /// Which shards take them. A program without instructions takes all.
    pub spread: Spread,
}

/// What a link takes of all that its interface sees, before any program is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Takes {
    /// Frames of this type and no others, to this station, to all or to a group.
    Type(EtherType),
    /// Every frame that comes, whoever it is for and of whatever VLAN: the link is a circuit, whose
    /// two ends do not know that we stand between them. Its interface is promiscuous as long as the
    /// link is open, and what the host itself sends there is not shown. For one shard
    /// ([`Spread::One`]), and a link that has no VLAN of its own.
    Whole,
}

impl Takes {
    /// The one type of frames that it takes.
    #[inline]
    pub const fn ether_type(self) -> Option<EtherType> {
        match self {
            Takes::Type(ether_type) => Some(ether_type),
            Takes::Whole => None,
        }
    }
}

/// Which shards take the frames of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One of them, those frames that the program takes (it returns how many bytes; 0 is none).
    One(ShardId, Vec<Instruction>),
    /// Each frame that the first program takes goes to one shard: the one whose number the second
    /// returns, modulo the shards.
    Steered(Vec<Instruction>, Vec<Instruction>),
    /// Each shard takes what its own program takes.
    Each(Vec<Vec<Instruction>>),
}

/// A received frame as the driver shows it. It may be for others.
#[derive(Clone, Copy, Debug)]
pub struct InFrame<'a> {
    /// Where it came from.
    pub link: LinkId,
    /// The outermost VLAN tag, if the kernel took it off: it stood behind the two addresses, so that
    /// twelve of the bytes, the tag and the others are the frame that the wire had.
    pub tag: Option<VlanTag>,
    /// The frame from its destination address on, without that tag and without check sequence. On a
    /// datagram link the payload, which may be longer than its MTU, since the way back may take more,
    /// or empty.
    pub bytes: &'a [u8],
    /// Its name, if it is lent until the turn ends; else it is for one call.
    pub lent: Option<Lent>,
    /// The frame that came second after it, where one is in this turn and frames are mostly sent on.
    pub soon: Option<Soon<'a>>,
}

/// A frame that is shown soon, unless something is wrong with it: so that whoever sends frames on has what this one
/// needs fetched meanwhile. It means nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Soon<'a> {
    /// Its begin.
    pub bytes: &'a [u8],
    pub fetch: Fetch,
}

/// How a driver has the processor fetch what will be looked at, while nobody waits for it.
#[derive(Clone, Copy, Debug)]
pub struct Fetch(fn(*const u8));

impl Fetch {
    /// Nothing is fetched.
    pub const NOTHING: Self = Self(|_| ());

    /// By what has the cache line at an address fetched, whatever is there.
    pub const fn by(prefetch: fn(*const u8)) -> Self {
        Self(prefetch)
    }

    /// Has the first line of a value fetched; nothing of it is looked at.
    #[inline]
    pub fn of<T>(self, value: &T) {
        (self.0)(core::ptr::from_ref(value).cast());
    }
}

impl<'a> InFrame<'a> {
    /// A frame that is lent for one call.
    #[inline]
    pub const fn new(link: LinkId, tag: Option<VlanTag>, bytes: &'a [u8]) -> InFrame<'a> {
        InFrame { link, tag, bytes, lent: None, soon: None }
    }

    /// What is sent on of it: bytes of it, which are not copied if they need not be.
    #[inline]
    pub fn part(&self, bytes: &'a [u8]) -> Part<'a> {
        Part::of(self.bytes, self.lent, bytes)
    }
}

/// A machine that carries the frames of *virtual* links inside frames of real ones, as a
/// pseudowire does: what the driver is to real links, it is to these.
///
/// Whoever lives on a virtual link does not know: it is told the link's facts, is shown frames that
/// came on it, and sends batches with frames for it. A virtual link rides on a real one, never on
/// another virtual one.
pub trait VirtualLinks: fmt::Debug + Send {
    /// A real link is up or not what it was; `None`: it is down.
    fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>);

    /// The next virtual link that is up, or not what it was, or (`None`) down.
    fn poll_link(&mut self) -> Option<(LinkId, Option<LinkFacts>)>;

    /// Whether what comes on a link of the driver's is this machine's, all of it.
    fn takes(&self, link: LinkId) -> bool;

    /// A frame came on a link that it takes. Returns the frame inside and the virtual link on which
    /// that came, lent as long as the one around it. `None`: there is none for those who live there;
    /// it was forwarded, or the machine has counted why not.
    fn receive<'a>(&mut self, now: Instant, frame: &InFrame<'a>) -> Option<InFrame<'a>>;

    /// A frame that came on a virtual link before others of it, and was held back for them: after each
    /// frame, at the end of a turn and after [`handle_timeout`](Self::handle_timeout), until there is
    /// none.
    fn poll_received(&mut self) -> Option<(LinkId, Vec<u8>)> {
        None
    }

    /// Of the frames of a batch those for virtual links have what goes around them put in front
    /// ([`FrameBatch::put_in_front`]), and leave by real links. One that cannot is left as it is:
    /// the driver, who does not know its link, drops it. One that may not leave yet is taken out of the
    /// batch, a copy of what it says in `memory` with it, and is one of the machine's own then.
    fn encapsulate(&mut self, now: Instant, batch: &mut FrameBatch, memory: &dyn Memory);

    /// The next frames of its own, for real links, at the end of a turn.
    fn poll_batch(&mut self) -> Option<FrameBatch> {
        None
    }

    /// Frames of its own have left.
    fn handle_sent(&mut self, _batch: FrameBatch) {}

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, if at all.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    fn handle_timeout(&mut self, _now: Instant) {}
}
