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

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use block::limits::DISCARD_RANGES_MAX;
use block::{
    Buffer, Extent, Instant, MachineId, Memory, Operation, Outcome, Request, ShardId, Ticket,
};

use wire::ethernet::EtherType;

use crate::pseudowire::outer;

pub use links::{CABLE_SCENES, Cable, CableScene, End, run_cable};

use contract::{
    Ask, ConnectionId, Direct, DiskId, Effect, Event, FrameBatch, InFrame, LinkFacts, LinkId, Loss,
    Machine, Next, OutFrame, Poll, Receive, SendBatch, Station, VlanTag,
};

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

/// A machine that does as it is told and reports what it is told.
#[derive(Debug, Default)]
pub struct Scripted {
    scripts: BTreeMap<ConnectionId, VecDeque<Step>>,
    asks: Vec<Ask>,
    effects: VecDeque<Effect<Note>>,
    timer: Option<Instant>,
    lent: usize,
    blocks: Blocks,
    piles: BTreeMap<DiskId, Pile>,
    /// How frames are sent on, and those of this turn.
    on: Option<(u32, SendOn)>,
    going_on: FrameBatch,
    /// What comes next on a link and then, as far as was told.
    soon: [Option<(LinkId, Vec<u8>)>; 2],
}

/// Who asks for the blocks of [`Command::Blocks`], and for what [`Command::Pile`] piles up.
const BLOCKS: MachineId = MachineId(7);
const PILES: MachineId = MachineId(8);
/// Who asks for the discard of [`Command::Discard`].
const DISCARDS: MachineId = MachineId(9);

/// What was piled on a disk and is not answered, and what was done.
#[derive(Debug)]
struct Pile {
    out: u32,
    done: u32,
}

#[derive(Debug, Default)]
struct Blocks {
    disk: DiskId,
    wanted: u32,
    answered: u32,
    right: u32,
}

impl Scripted {
    /// A machine without scripts.
    pub fn new() -> Scripted {
        Scripted::default()
    }

    fn report(&mut self, report: Report) {
        let mail = Note::Report(report);
        self.effects.push_back(Effect::Mail { to: ShardId::CONTROL, mail });
    }

    fn obey(&mut self, now: Instant, command: Command, memory: &mut dyn Memory) {
        match command {
            Command::Script(connection, steps) => {
                self.scripts.entry(connection).or_default().extend(steps);
            }
            Command::Send(connection, parts) => self.send(connection, parts, memory),
            Command::Close { connection, after_send } => {
                self.effects.push_back(Effect::Close { connection, after_send });
            }
            Command::Resume(connections) => {
                for connection in connections {
                    self.effects.push_back(Effect::Resume { connection });
                }
            }
            Command::Connect(address, token) => {
                self.effects.push_back(Effect::Connect { token, address, poll: Poll::default() });
            }
            Command::Timer(after) => self.timer = Some(now + after),
            Command::Blocks(disk, count) => {
                self.blocks = Blocks { disk, wanted: count, ..Blocks::default() };
                for block in 0..count {
                    self.write_block(block, memory);
                }
            }
            Command::Pile(disk, count) => self.pile(disk, count, memory),
            Command::Discard(disk, bytes) => {
                let extents = vec![Extent::new(0, bytes); DISCARD_RANGES_MAX];
                self.ask_disk(disk, DISCARDS, Operation::Discard { extents });
            }
            Command::Numbers(to, count) => {
                for number in 0..count {
                    self.effects.push_back(Effect::Mail { to, mail: Note::Number(number) });
                }
            }
            Command::Ping(number) => self.report(Report::Pong(number)),
            Command::CountLent => self.report(Report::Lent(self.lent)),
            Command::SendFrames(token, frames) => self.send_frames(token, frames, memory),
            Command::SendOn(token, on) => self.on = Some((token, on)),
            Command::Call(this) => this(),
        }
    }

    fn send(&mut self, connection: ConnectionId, parts: Vec<Part>, memory: &mut dyn Memory) {
        let mut batch = SendBatch::default();
        for part in parts {
            match part {
                Part::Head(bytes) => batch.push_head(&bytes),
                Part::Zeros(length) => batch.push_zeros(length),
                Part::Data(bytes, times) => {
                    let buffer = self.lend(&bytes, memory);
                    let index = batch.push_buffer(buffer);
                    for _ in 0..times {
                        batch.push_data(index, 0, bytes.len() as u32);
                    }
                }
                Part::Crumbs(bytes) => {
                    let buffer = self.lend(&bytes, memory);
                    let index = batch.push_buffer(buffer);
                    for at in 0..bytes.len() as u32 {
                        batch.push_head(&[0xff]);
                        batch.push_data(index, at, 1);
                    }
                }
            }
        }
        self.effects.push_back(Effect::Send { connection, batch });
    }

    fn send_frames(&mut self, token: u32, frames: Vec<FramePart>, memory: &mut dyn Memory) {
        let mut batch = FrameBatch::default();
        for (index, FramePart { link, head, data, inside }) in frames.into_iter().enumerate() {
            batch.push_whole(link, [&head, &[]]);
            if !data.is_empty() {
                let buffer = self.lend(&data, memory);
                let mark = batch.buffers.len() as u32;
                let buffer = batch.push_buffer(buffer, mark);
                let data_length = data.len() as u32;
                batch.frames[index] = OutFrame { buffer, data_length, ..batch.frames[index] };
            }
            if let Some(Wrapping { facts, to, ether_type, bytes }) = inside {
                let around = outer(&facts, &to, ether_type, &bytes);
                batch.put_in_front(index, to.link, &around);
            }
        }
        self.effects.push_back(Effect::SendFrames { token, batch });
    }

    fn lend(&mut self, bytes: &[u8], memory: &mut dyn Memory) -> Buffer {
        let mut buffer = Buffer::reserved(bytes.len() as u32, 512);
        memory.write(&mut buffer, 0, bytes);
        self.lent += 1;
        buffer
    }

    fn take_back(&mut self, buffer: Buffer, memory: &mut dyn Memory) {
        self.lent -= 1;
        memory.release(buffer);
    }

    fn take_batch_back(&mut self, mut batch: SendBatch, memory: &mut dyn Memory) {
        for buffer in batch.buffers.drain(..) {
            self.take_back(buffer, memory);
        }
        batch.clear();
    }

    fn ask(&mut self, slot: u32, generation: u32, operation: Operation) {
        let ticket = Ticket { machine: BLOCKS, generation, slot, shard: ShardId(0) };
        self.asks.push((self.blocks.disk, Request { ticket, operation }));
    }

    fn pile(&mut self, disk: DiskId, count: u32, memory: &mut dyn Memory) {
        self.piles.insert(disk, Pile { out: 3 * count, done: 0 });
        for page in 0..count {
            let extent = Extent::new(u64::from(page) * 4096, 4096);
            let buffer = Buffer::reserved(4096, 0);
            let mut expected = Buffer::reserved(4096, 0);
            memory.write(&mut expected, 0, &[0; 4096]);
            self.lent += 2;
            for operation in [
                Operation::Read { extent, buffer },
                Operation::Compare { extent, buffer: expected },
                Operation::Flush,
            ] {
                self.ask_disk(disk, PILES, operation);
            }
        }
    }

    fn ask_disk(&mut self, disk: DiskId, machine: MachineId, operation: Operation) {
        let ticket = Ticket { machine, generation: 0, slot: disk.0, shard: ShardId(0) };
        self.asks.push((disk, Request { ticket, operation }));
    }

    fn pile_answered(&mut self, completion: block::Completion, memory: &mut dyn Memory) {
        let disk = DiskId(completion.ticket.slot);
        let pile = self.piles.get_mut(&disk).expect("only a pile asks under this name");
        pile.out -= 1;
        pile.done += u32::from(completion.outcome == Outcome::Done);
        let (is_over, done) = (pile.out == 0, pile.done);
        if !completion.buffer.is_empty() {
            self.take_back(completion.buffer, memory);
        }
        if is_over {
            self.report(Report::Piled(disk, done));
        }
    }

    fn write_block(&mut self, block: u32, memory: &mut dyn Memory) {
        let extent = Extent::new(u64::from(block) * 512, 512);
        let mut buffer = Buffer::reserved(512, (block * 512) % 4096);
        memory.write(&mut buffer, 0, &[block as u8; 512]);
        self.lent += 1;
        self.ask(block, 0, Operation::Write { extent, buffer, durable: false });
    }

    fn block_answered(&mut self, completion: block::Completion, memory: &mut dyn Memory) {
        let Ticket { slot, generation, .. } = completion.ticket;
        let done = completion.outcome == Outcome::Done;
        let mut bytes = [0; 512];
        if done && generation == 1 {
            memory.read(&completion.buffer, 0, &mut bytes);
        }
        self.take_back(completion.buffer, memory);
        if done && generation == 0 {
            let extent = Extent::new(u64::from(slot) * 512, 512);
            let buffer = Buffer::reserved(512, (slot * 512) % 4096);
            self.lent += 1;
            self.ask(slot, 1, Operation::Read { extent, buffer });
            return;
        }
        self.blocks.answered += 1;
        self.blocks.right += u32::from(done && bytes == [slot as u8; 512]);
        if self.blocks.answered >= self.blocks.wanted {
            self.report(Report::Blocks(self.blocks.right));
        }
    }

    /// Takes what has come of a payload and asks for the rest.
    fn begin_payload(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        (length, phase): (u32, u32),
        memory: &mut dyn Memory,
    ) -> (usize, Next) {
        let mut buffer = Buffer::reserved(length, phase);
        memory.materialize(&mut buffer);
        self.lent += 1;
        let there = bytes.len().min(length as usize);
        memory.write(&mut buffer, 0, &bytes[..there]);
        if there == length as usize {
            self.payload_whole(connection, buffer, memory);
            return (there, ANY);
        }
        let at = there as u32;
        let token = u64::from(length);
        let direct = Direct { buffer, at, length: length - at, beside: 4096, token };
        (there, Next::Direct(direct))
    }

    fn payload_whole(&mut self, connection: ConnectionId, buffer: Buffer, memory: &mut dyn Memory) {
        let mut bytes = vec![0; buffer.len() as usize];
        memory.read(&buffer, 0, &mut bytes);
        self.take_back(buffer, memory);
        self.report(Report::Payload(connection, bytes));
    }
}

const ANY: Next = Next::Stream { at_least: 1, at_most: u32::MAX };

impl Machine for Scripted {
    type Mail = Note;

    fn handle_event(&mut self, now: Instant, event: Event<Note>, memory: &mut dyn Memory) {
        match event {
            Event::Accepted { connection, .. } => self.report(Report::Accepted(connection)),
            Event::Connected { token, connection, .. } => {
                self.report(Report::Connected(token, connection));
            }
            Event::ConnectFailed { token, .. } => self.report(Report::ConnectFailed(token)),
            Event::SendProgress { .. } => {}
            Event::Sent { connection, batch } => {
                let length = batch.length;
                self.take_batch_back(batch, memory);
                self.report(Report::Sent(connection, length));
            }
            Event::Lost { connection, loss } => self.report(Report::Lost(connection, loss)),
            Event::Closed { connection, direct, batch } => {
                let closed = Report::Closed(connection, direct.is_some(), batch.is_some());
                if let Some(direct) = direct {
                    self.take_back(direct.buffer, memory);
                }
                if let Some(batch) = batch {
                    self.take_batch_back(batch, memory);
                }
                self.scripts.remove(&connection);
                self.report(closed);
            }
            Event::LinkUp { link, facts } => self.report(Report::LinkUp(link, facts)),
            Event::LinkDown { link } => self.report(Report::LinkDown(link)),
            Event::FramesSent { token, batch } => {
                let frames = batch.frames.len();
                for (index, (buffer, mark)) in batch.buffers.into_iter().enumerate() {
                    assert_eq!(mark, index as u32, "a mark comes back unchanged");
                    self.take_back(buffer, memory);
                }
                self.report(Report::FramesSent(token, frames));
            }
            Event::Completed(completion) if completion.ticket.machine == PILES => {
                self.pile_answered(completion, memory);
            }
            Event::Completed(completion) if completion.ticket.machine == DISCARDS => {
                let disk = DiskId(completion.ticket.slot);
                self.report(Report::Discarded(disk, completion.outcome == Outcome::Done));
            }
            Event::Completed(completion) => self.block_answered(completion, memory),
            Event::Mail { mail: Note::Command(command), .. } => self.obey(now, command, memory),
            Event::Mail { from, mail: Note::Number(number) } => {
                self.report(Report::Number(from, number));
            }
            Event::Mail { mail: Note::Report(report), from } => {
                panic!("shard {} reported {report:?} to a machine", from.0)
            }
        }
    }

    fn handle_frame(&mut self, _: Instant, frame: InFrame<'_>, _: &mut dyn Memory) {
        self.report(Report::Frame(frame.link, frame.tag, frame.bytes.to_vec()));
        let soon = frame.soon.map(|soon| (frame.link, soon.bytes.to_vec()));
        let [next, then] = std::mem::take(&mut self.soon);
        self.soon = [then, soon];
        let is_it =
            |(link, told): &(_, Vec<u8>)| *link == frame.link && frame.bytes.starts_with(told);
        // One with a flaw is told of and not shown.
        let foretold = next.filter(is_it);
        if let Some((_, SendOn { from, to, front, rest_at, foretold: count, .. })) = &self.on
            && *from == frame.link
        {
            if let Some(count) = count.filter(|_| foretold.is_some()) {
                count.fetch_add(1, Relaxed);
            }
            self.going_on.push_on(*to, front, frame.part(&frame.bytes[*rest_at..]));
        }
    }

    fn settle(&mut self, _: Instant, _: &mut dyn Memory) {
        if let Some((token, SendOn { between, .. })) = self.on
            && !self.going_on.is_empty()
        {
            between.into_iter().for_each(|call| call());
            let batch = std::mem::take(&mut self.going_on);
            self.effects.push_back(Effect::SendFrames { token, batch });
        }
    }

    fn handle_received(
        &mut self,
        _now: Instant,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        assert!(!bytes.is_empty(), "no bytes were shown");
        self.report(Report::Shown(connection, bytes.to_vec()));
        let step = self.scripts.get_mut(&connection).and_then(VecDeque::pop_front);
        let Some(Step { consume, then }) = step else {
            return Receive { consumed: bytes.len(), next: ANY };
        };
        let consumed = consume.unwrap_or(bytes.len());
        let (more, next) = match then {
            Then::Stream(at_least, at_most) => (0, Next::Stream { at_least, at_most }),
            Then::Yield => (0, Next::Yield),
            Then::Pause => (0, Next::Pause),
            Then::Idle => (0, Next::Idle),
            Then::Payload { length, phase } => {
                self.begin_payload(connection, &bytes[consumed..], (length, phase), memory)
            }
        };
        Receive { consumed: consumed + more, next }
    }

    fn handle_direct(
        &mut self,
        _now: Instant,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        assert_eq!(direct.token, u64::from(direct.buffer.len()), "the mark comes back unchanged");
        self.payload_whole(connection, direct.buffer, memory);
        // It has not seen what came with the payload, which is shown all the same.
        Next::Idle
    }

    fn handle_timeout(&mut self, now: Instant, _memory: &mut dyn Memory) {
        if let Some(asked) = self.timer.take() {
            self.report(Report::TimedOut(now < asked));
        }
    }

    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        asks.append(&mut self.asks);
    }

    fn poll_effect(&mut self) -> Option<Effect<Note>> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }
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
