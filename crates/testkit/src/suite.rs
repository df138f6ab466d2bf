//! The driver contract, as scenes that run against every driver.
//!
//! A scene plays a [`Scripted`] machine and a peer against each other through a [`Harness`] and
//! asserts what each effect means. A scene asserts order, content and number, never speed, so a
//! slow machine cannot fail it. Run each of [`SCENES`] (module `scenes`) on a fresh harness.
//!
//! The machine does what [`Command`]s say and reports everything that it is told as [`Report`]s, by
//! mail to and from the control thread. A harness that can choose (the simulator) cuts, delays and
//! shortens what it carries as it likes.
//!
//! Links have scenes of their own, over a [`Cable`].

mod links;
mod scenes;
mod scripted;

use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use block::ShardId;
use contract::{ConnectionId, DiskId, LinkFacts, LinkId, Loss, Station, VlanTag};
use wire::ethernet::EtherType;

pub use links::{CABLE_SCENES, Cable, CableScene, End, run_cable};
pub use scripted::Scripted;

/// A peer's end of a connection, numbered by the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub usize);

/// How a peer saw a connection end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// In order, behind all bytes.
    EndOfStream,
    /// By a reset.
    Reset,
}

/// A driver with two shards of [`Scripted`] machines, a listener, a memory disk, and peers.
///
/// Calls that wait, wait as long as it takes; a harness may give up, with a panic, after a minute
/// or more without any news.
pub trait Harness {
    /// Connects to the listener. The shard that got the connection reports `Accepted`.
    fn connect(&mut self) -> Peer;
    /// An address where nobody listens.
    fn refusing_address(&mut self) -> SocketAddr;
    /// An address where the harness listens.
    fn listening_address(&mut self) -> SocketAddr;
    /// The peer's end of the next connection that was made to the harness.
    fn accept(&mut self) -> Peer;
    /// The peer sends; the driver reads enough that it does not block.
    fn send(&mut self, peer: Peer, bytes: &[u8]);
    /// The peer receives exactly so many bytes.
    fn receive(&mut self, peer: Peer, count: usize) -> Vec<u8>;
    /// The peer waits for the end; panics if bytes come before it.
    fn receive_end(&mut self, peer: Peer) -> PeerEnd;
    /// The peer receives and drops whatever comes, up to the end.
    fn drain(&mut self, peer: Peer) -> PeerEnd;
    /// The peer closes its direction.
    fn finish(&mut self, peer: Peer);
    /// The peer resets the connection.
    fn reset(&mut self, peer: Peer);
    /// A disk in memory, of at least a mebibyte, that all shards know.
    fn disk(&mut self) -> DiskId;
    /// Gives a machine a command.
    fn command(&mut self, to: ShardId, command: Command);
    /// The next report of any machine.
    fn report(&mut self) -> (ShardId, Report);
}

/// What scripted machines and the control thread send each other.
#[derive(Debug)]
pub enum Note {
    /// From the control thread.
    Command(Command),
    /// To the control thread.
    Report(Report),
    /// Between machines.
    Number(u32),
}

/// What a scripted machine should do.
#[derive(Debug)]
pub enum Command {
    /// Answer what is shown of a connection with these steps, then with "consumed all, any stream".
    Script(ConnectionId, Vec<Step>),
    /// Send one batch.
    Send(ConnectionId, Vec<Part>),
    /// Close a connection.
    Close {
        /// Which.
        connection: ConnectionId,
        /// After the batch that is out.
        after_send: bool,
    },
    /// Resume connections, in this order.
    Resume(Vec<ConnectionId>),
    /// Open a connection.
    Connect(SocketAddr, u64),
    /// Be called after so long.
    Timer(Duration),
    /// Write so many blocks of 512 bytes to a disk, one request each, and read each back once it is
    /// written.
    Blocks(DiskId, u32),
    /// Ask a disk for so many of each: a read of a page of its own, a compare of it with zeros and
    /// a flush. `Piled` when all are answered.
    Pile(DiskId, u32),
    /// Discard the first bytes of a disk, as often as one request may name them.
    Discard(DiskId, u64),
    /// Send numbers from 0 to a shard.
    Numbers(ShardId, u32),
    /// Report `Pong`.
    Ping(u32),
    /// Report how many buffers are lent.
    CountLent,
    /// Send one batch of frames, with this mark.
    SendFrames(u32, Vec<FramePart>),
    /// Send what is shown from now on further, at the end of each turn, in batches with this mark.
    SendOn(u32, SendOn),
    /// Call this, which may hold the shard up.
    Call(fn()),
}

/// How frames are sent on.
#[derive(Clone, Debug, Default)]
pub struct SendOn {
    /// Those of this link.
    pub from: LinkId,
    /// Where to.
    pub to: LinkId,
    /// Bytes that stand in front of the others.
    pub front: Vec<u8>,
    /// Where in the frame that came the others begin.
    pub rest_at: usize,
    /// Called between what is shown and what leaves, which may hold the shard up.
    pub between: Option<fn()>,
    /// Counts the frames of which was told before that they come.
    pub foretold: Option<&'static AtomicU32>,
}

/// A frame of a batch.
#[derive(Clone, Debug, Default)]
pub struct FramePart {
    /// Where to.
    pub link: LinkId,
    /// Bytes of the head.
    pub head: Vec<u8>,
    /// Bytes that follow, from a buffer.
    pub data: Vec<u8>,
    /// What it is put into before it leaves.
    pub inside: Option<Wrapping>,
}

/// A frame that goes around another one: its link and header, and the bytes between the two.
#[derive(Clone, Debug)]
pub struct Wrapping {
    pub facts: LinkFacts,
    pub to: Station,
    pub ether_type: EtherType,
    pub bytes: Vec<u8>,
}

/// An answer to bytes that are shown.
#[derive(Clone, Debug)]
pub struct Step {
    /// Bytes consumed; `None`: all.
    pub consume: Option<usize>,
    /// What then.
    pub then: Then,
}

/// What a scripted machine wants next.
#[derive(Clone, Debug)]
pub enum Then {
    /// [`Next::Stream`].
    Stream(u32, u32),
    /// [`Next::Yield`].
    Yield,
    /// [`Next::Pause`].
    Pause,
    /// [`Next::Idle`].
    Idle,
    /// A payload of `length` bytes begins: take what is there, receive the rest directly into a
    /// buffer of phase `phase`. Reports `Payload` when it is whole.
    Payload {
        /// Its bytes.
        length: u32,
        /// Where in its first page its buffer begins.
        phase: u32,
    },
}

/// A part of a batch.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes of the head.
    Head(Vec<u8>),
    /// These bytes, from a buffer, so many times.
    Data(Vec<u8>, u32),
    /// These bytes, from a buffer, each byte as a segment of its own after a byte of the head,
    /// which is 0xff.
    Crumbs(Vec<u8>),
    /// So many zeros.
    Zeros(u32),
}

/// What a scripted machine was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// [`Event::Accepted`].
    Accepted(ConnectionId),
    /// [`Event::Connected`].
    Connected(u64, ConnectionId),
    /// [`Event::ConnectFailed`].
    ConnectFailed(u64),
    /// Bytes were shown.
    Shown(ConnectionId, Vec<u8>),
    /// A payload is whole.
    Payload(ConnectionId, Vec<u8>),
    /// [`Event::Sent`], with the batch's bytes.
    Sent(ConnectionId, u64),
    /// [`Event::Lost`].
    Lost(ConnectionId, Loss),
    /// [`Event::Closed`], and whether a direct receive and a batch came back.
    Closed(ConnectionId, bool, bool),
    /// The timer; whether it came too early.
    TimedOut(bool),
    /// The blocks are written and read; how many were right.
    Blocks(u32),
    /// What was piled on a disk is answered; how much of it was done.
    Piled(DiskId, u32),
    /// The discard is answered; whether it was done.
    Discarded(DiskId, bool),
    /// A number came from a shard.
    Number(ShardId, u32),
    /// An answer to a ping.
    Pong(u32),
    /// Buffers that are lent.
    Lent(usize),
    /// [`Event::LinkUp`].
    LinkUp(LinkId, LinkFacts),
    /// [`Event::LinkDown`].
    LinkDown(LinkId),
    /// A frame was shown: its link, its tag, its bytes.
    Frame(LinkId, Option<VlanTag>, Vec<u8>),
    /// [`Event::FramesSent`], with the mark and the number of frames.
    FramesSent(u32, usize),
}

/// A scene.
pub type Scene = fn(&mut dyn Harness);

/// All scenes, by name.
pub const SCENES: &[(&str, Scene)] = &[
    ("bytes come in order however they are cut", scenes::any_cut),
    ("what is not consumed is shown again in front", scenes::shown_again),
    ("at least so many are waited for", scenes::at_least),
    ("at most so many are received at once", scenes::at_most),
    ("an idle connection is shown what comes", scenes::idle),
    ("a direct receive fills its buffer exactly", scenes::direct),
    ("payloads in a row are whole, and so is what lies between them", scenes::payloads),
    ("who yields goes behind the others", scenes::yielding),
    ("a paused connection is shown nothing until it is resumed", scenes::pause),
    ("loss is told while paused", scenes::loss_while_paused),
    ("a batch arrives in order and comes back once", scenes::batches),
    ("a batch may have more segments than a call takes", scenes::many_segments),
    ("close returns a batch that is out, once", scenes::close_with_batch),
    ("close returns a direct receive that is out, once", scenes::close_with_direct),
    ("close returns both when both are out", scenes::close_with_both),
    ("last words arrive", scenes::last_words),
    ("the end of the stream is told once, then the connection is closed", scenes::end_of_stream),
    ("a reset is told as an error", scenes::reset),
    ("a loss returns what was lent with the close", scenes::loss_with_batch),
    ("a connection can be made", scenes::connect),
    ("a connection that cannot be had is told", scenes::connect_refused),
    ("a timeout does not come early", scenes::timeout),
    ("each request is answered exactly once", scenes::blocks),
    ("a disk that is not there answers too", scenes::no_disk),
    ("mail keeps its order between two", scenes::mail),
];

/// Runs every scene, each on a harness of its own; says which, so that a failure is found.
pub fn run<H: Harness>(mut make: impl FnMut() -> H) {
    for (name, scene) in SCENES {
        eprintln!("scene: {name}");
        scene(&mut make());
    }
}
