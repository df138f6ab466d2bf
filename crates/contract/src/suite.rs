//! The driver contract, as scenes that run against every driver.
//!
//! A scene plays a [`Scripted`] machine and a peer against each other through a [`Harness`] and asserts what
//! each effect means. A scene asserts order, content and number, never speed, so a slow machine cannot fail it. Run each of
//! [`SCENES`] on a fresh harness.
//!
//! The machine does what [`Command`]s say and reports everything that it is told as [`Report`]s, by mail to and from the control thread. A
//! harness that can choose (the simulator) cuts, delays and shortens what it carries as it likes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use block::{
    Buffer, Extent, Instant, MachineId, Memory, Operation, Outcome, Request, ShardId, Ticket,
};

use crate::{ConnectionId, Direct, DiskId, Effect, Event, Loss, Machine, Next, Receive, SendBatch};

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
/// Calls that wait, wait as long as it takes; a harness may give up, with a panic, after a minute or more without any news.
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
    /// Write so many blocks of 512 bytes to a disk, one request each, and read each back once it is written.
    Blocks(DiskId, u32),
    /// Send numbers from 0 to a shard.
    Numbers(ShardId, u32),
    /// Report `Pong`.
    Ping(u32),
    /// Report how many buffers are lent.
    CountLent,
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
    /// A payload of `length` bytes begins: take what is there, receive the rest directly into a buffer of phase `phase`. Reports
    /// `Payload` when it is whole.
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
    /// These bytes, from a buffer, each byte as a segment of its own after a byte of the head, which is 0xff.
    Crumbs(Vec<u8>),
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
    /// A number came from a shard.
    Number(ShardId, u32),
    /// An answer to a ping.
    Pong(u32),
    /// Buffers that are lent.
    Lent(usize),
}

/// A machine that does as it is told and reports what it is told.
#[derive(Debug, Default)]
pub struct Scripted {
    scripts: BTreeMap<ConnectionId, VecDeque<Step>>,
    effects: VecDeque<Effect<Note>>,
    timer: Option<Instant>,
    lent: usize,
    blocks: Blocks,
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
                self.effects.push_back(Effect::Connect { token, address });
            }
            Command::Timer(after) => self.timer = Some(now + after),
            Command::Blocks(disk, count) => {
                self.blocks = Blocks { disk, wanted: count, ..Blocks::default() };
                for block in 0..count {
                    self.write_block(block, memory);
                }
            }
            Command::Numbers(to, count) => {
                for number in 0..count {
                    self.effects.push_back(Effect::Mail { to, mail: Note::Number(number) });
                }
            }
            Command::Ping(number) => self.report(Report::Pong(number)),
            Command::CountLent => self.report(Report::Lent(self.lent)),
        }
    }

    fn send(&mut self, connection: ConnectionId, parts: Vec<Part>, memory: &mut dyn Memory) {
        let mut batch = SendBatch::default();
        for part in parts {
            match part {
                Part::Head(bytes) => batch.push_head(&bytes),
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
        let ticket = Ticket { machine: MachineId(7), generation, slot, shard: ShardId(0) };
        let request = Request { ticket, operation };
        self.effects.push_back(Effect::Submit { disk: self.blocks.disk, request });
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
        let direct = Direct { buffer, at, length: length - at, token: u64::from(length) };
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
        ANY
    }

    fn handle_timeout(&mut self, now: Instant, _memory: &mut dyn Memory) {
        if let Some(asked) = self.timer.take() {
            self.report(Report::TimedOut(now < asked));
        }
    }

    fn settle(&mut self, _now: Instant, _memory: &mut dyn Memory) {}

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

mod scenes {
    use super::*;

    /// A connection as both sides know it.
    #[derive(Clone, Copy)]
    struct Link {
        peer: Peer,
        shard: ShardId,
        id: ConnectionId,
    }

    fn connect_to(harness: &mut dyn Harness) -> Link {
        let peer = harness.connect();
        match harness.report() {
            (shard, Report::Accepted(id)) => Link { peer, shard, id },
            other => panic!("expected Accepted, saw {other:?}"),
        }
    }

    fn two_on_one_shard(harness: &mut dyn Harness) -> (Link, Link) {
        let first = connect_to(harness);
        // Whatever way connections are dealt out, a second one of the same shard comes at some time.
        for _ in 0..64 {
            let second = connect_to(harness);
            if second.shard == first.shard {
                return (first, second);
            }
        }
        panic!("65 connections and no two on one shard");
    }

    fn step(consume: Option<usize>, then: Then) -> Step {
        Step { consume, then }
    }

    /// Sends a command and waits until the machine has it.
    fn command(harness: &mut dyn Harness, to: ShardId, command: Command) {
        harness.command(to, command);
        harness.command(to, Command::Ping(1));
        expect(harness, to, &Report::Pong(1));
    }

    fn expect(harness: &mut dyn Harness, shard: ShardId, expected: &Report) {
        let seen = harness.report();
        assert_eq!(seen, (shard, expected.clone()));
    }

    fn shown(harness: &mut dyn Harness, link: Link) -> Vec<u8> {
        match harness.report() {
            (shard, Report::Shown(id, bytes)) if (shard, id) == (link.shard, link.id) => bytes,
            other => panic!("expected bytes of {}, saw {other:?}", link.id),
        }
    }

    /// All bytes shown until there are `count`, where each showing consumes all.
    fn shown_in_all(harness: &mut dyn Harness, link: Link, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(shown(harness, link));
        }
        all
    }

    fn pattern(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Closes a connection and checks that all buffers are back.
    fn close(harness: &mut dyn Harness, link: Link, direct: bool, batch: bool) {
        let connection = link.id;
        harness.command(link.shard, Command::Close { connection, after_send: false });
        expect(harness, link.shard, &Report::Closed(connection, direct, batch));
        nothing_lent(harness, link.shard);
    }

    fn nothing_lent(harness: &mut dyn Harness, shard: ShardId) {
        harness.command(shard, Command::CountLent);
        expect(harness, shard, &Report::Lent(0));
    }

    pub(super) fn any_cut(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let bytes = pattern(100_000);
        let mut rest = &bytes[..];
        for size in [1, 2, 3, 24, 72, 8191, 40_000, usize::MAX] {
            let (piece, tail) = rest.split_at(size.min(rest.len()));
            harness.send(link.peer, piece);
            rest = tail;
        }
        assert!(shown_in_all(harness, link, bytes.len()) == bytes);
        close(harness, link, false, false);
    }

    pub(super) fn shown_again(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let steps = vec![step(Some(0), Then::Stream(10, u32::MAX)); 1];
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"abc");
        let first = shown(harness, link);
        assert!(b"abcdefghij".starts_with(&first) && first.len() <= 3);
        harness.send(link.peer, b"defghij");
        assert_eq!(shown(harness, link), b"abcdefghij");
        // What is left counts towards what is waited for.
        let half = vec![
            step(Some(0), Then::Stream(8, u32::MAX)),
            step(Some(4), Then::Stream(9, u32::MAX)),
        ];
        command(harness, link.shard, Command::Script(link.id, half));
        harness.send(link.peer, b"0");
        assert_eq!(shown(harness, link), b"0");
        harness.send(link.peer, b"1234567");
        assert_eq!(shown(harness, link), b"01234567");
        harness.send(link.peer, b"89abc");
        assert_eq!(shown(harness, link), b"456789abc");
        close(harness, link, false, false);
    }

    pub(super) fn at_least(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let steps = vec![step(None, Then::Stream(50_000, u32::MAX))];
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"x");
        assert_eq!(shown(harness, link), b"x");
        let bytes = pattern(60_000);
        for piece in bytes.chunks(7_000) {
            harness.send(link.peer, piece);
        }
        let first = shown(harness, link);
        assert!(first.len() >= 50_000 && bytes.starts_with(&first), "{}", first.len());
        let rest = shown_in_all(harness, link, bytes.len() - first.len());
        assert!(bytes[first.len()..] == rest);
        close(harness, link, false, false);
    }

    pub(super) fn at_most(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let steps = vec![step(None, Then::Stream(1, 10)); 11];
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"x");
        assert_eq!(shown(harness, link), b"x");
        let bytes = pattern(100);
        harness.send(link.peer, &bytes);
        let mut seen = Vec::new();
        for _ in 0..10 {
            let piece = shown(harness, link);
            assert!(piece.len() <= 10, "{} bytes at once", piece.len());
            seen.extend(piece);
        }
        let rest = bytes.len() - seen.len();
        seen.extend(shown_in_all(harness, link, rest));
        assert_eq!(seen, bytes);
        close(harness, link, false, false);
    }

    pub(super) fn idle(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let steps = vec![step(None, Then::Idle); 3];
        command(harness, link.shard, Command::Script(link.id, steps));
        for message in [b"1", b"2", b"3", b"4"] {
            harness.send(link.peer, message);
            assert_eq!(shown(harness, link), message);
        }
        close(harness, link, false, false);
    }

    pub(super) fn direct(harness: &mut dyn Harness) {
        let lengths = [(1, 0), (4096, 512), (100_000, 3584), (1 << 20, 512)];
        for (length, phase) in lengths {
            let link = connect_to(harness);
            let steps = vec![step(Some(1), Then::Payload { length, phase })];
            command(harness, link.shard, Command::Script(link.id, steps));
            let payload = pattern(length as usize);
            let mut bytes = vec![b'h'];
            bytes.extend_from_slice(&payload);
            bytes.extend_from_slice(b"the next header");
            harness.send(link.peer, &bytes);
            let first = shown(harness, link);
            assert_eq!(first[0], b'h');
            // The payload is told before what comes behind it.
            match harness.report() {
                (_, Report::Payload(id, seen)) => assert!(id == link.id && seen == payload),
                other => panic!("expected the payload, saw {other:?}"),
            }
            // What was shown with the header beyond the payload is shown again, as not consumed.
            assert_eq!(shown_in_all(harness, link, 15), b"the next header");
            close(harness, link, false, false);
        }
    }

    pub(super) fn yielding(harness: &mut dyn Harness) {
        let (a, b) = two_on_one_shard(harness);
        for link in [a, b] {
            let mut steps = vec![step(Some(0), Then::Stream(20, u32::MAX))];
            steps.push(step(Some(0), Then::Pause));
            steps.extend(vec![step(Some(1), Then::Yield); 20]);
            command(harness, link.shard, Command::Script(link.id, steps));
            harness.send(link.peer, b"a");
            assert_eq!(shown(harness, link), b"a");
            harness.send(link.peer, &[b'a'; 19]);
            assert_eq!(shown(harness, link).len(), 20);
        }
        harness.command(a.shard, Command::Resume(vec![a.id, b.id]));
        let mut order = Vec::new();
        for _ in 0..40 {
            match harness.report() {
                (_, Report::Shown(id, _)) => order.push(id),
                other => panic!("expected bytes, saw {other:?}"),
            }
        }
        for pair in order.chunks(2) {
            assert!(pair.contains(&a.id) && pair.contains(&b.id), "{order:?}");
        }
        close(harness, a, false, false);
        close(harness, b, false, false);
    }

    pub(super) fn pause(harness: &mut dyn Harness) {
        let (a, b) = two_on_one_shard(harness);
        let steps = vec![step(Some(1), Then::Pause)];
        command(harness, a.shard, Command::Script(a.id, steps));
        harness.send(a.peer, b"12");
        assert!(b"12".starts_with(&shown(harness, a)));
        harness.send(a.peer, b"345");
        for _ in 0..50 {
            // Each is a turn or more of the same shard, in which a driver that is wrong would show `a`.
            harness.send(b.peer, b"b");
            assert_eq!(shown(harness, b), b"b");
            harness.command(a.shard, Command::Ping(2));
            expect(harness, a.shard, &Report::Pong(2));
        }
        harness.command(a.shard, Command::Resume(vec![a.id]));
        assert_eq!(shown_in_all(harness, a, 4), b"2345");
        close(harness, a, false, false);
        close(harness, b, false, false);
    }

    pub(super) fn loss_while_paused(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let steps = vec![step(None, Then::Pause)];
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"x");
        assert_eq!(shown(harness, link), b"x");
        harness.finish(link.peer);
        expect(harness, link.shard, &Report::Lost(link.id, Loss::EndOfStream));
        close(harness, link, false, false);
    }

    pub(super) fn batches(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        for round in 0..5 {
            let data = pattern(20_000 + round);
            let parts = vec![
                Part::Head(b"head".to_vec()),
                Part::Data(data.clone(), 3),
                Part::Head(vec![round as u8]),
            ];
            harness.command(link.shard, Command::Send(link.id, parts));
            let mut expected = b"head".to_vec();
            for _ in 0..3 {
                expected.extend_from_slice(&data);
            }
            expected.push(round as u8);
            assert!(harness.receive(link.peer, expected.len()) == expected);
            expect(harness, link.shard, &Report::Sent(link.id, expected.len() as u64));
            nothing_lent(harness, link.shard);
        }
        close(harness, link, false, false);
    }

    pub(super) fn many_segments(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        let data = pattern(5_000);
        let parts = vec![Part::Crumbs(data.clone())];
        harness.command(link.shard, Command::Send(link.id, parts));
        let expected: Vec<u8> = data.iter().flat_map(|byte| [0xff, *byte]).collect();
        assert!(harness.receive(link.peer, expected.len()) == expected);
        expect(harness, link.shard, &Report::Sent(link.id, expected.len() as u64));
        close(harness, link, false, false);
    }

    /// More than any transport holds: 64 MiB.
    fn endless() -> Vec<Part> {
        vec![Part::Data(pattern(1 << 20), 64)]
    }

    /// Puts a batch out that cannot leave, since the peer does not read.
    fn stuff(harness: &mut dyn Harness, link: Link) {
        command(harness, link.shard, Command::Send(link.id, endless()));
        // Some of it has left, so it is out.
        assert_eq!(harness.receive(link.peer, 5), pattern(5));
    }

    pub(super) fn close_with_batch(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        stuff(harness, link);
        close(harness, link, false, true);
    }

    fn begin_direct(harness: &mut dyn Harness, link: Link) {
        let steps = vec![step(Some(1), Then::Payload { length: 8192, phase: 0 })];
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"h12345");
        assert_eq!(shown(harness, link)[0], b'h');
    }

    pub(super) fn close_with_direct(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        begin_direct(harness, link);
        close(harness, link, true, false);
    }

    pub(super) fn close_with_both(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        begin_direct(harness, link);
        stuff(harness, link);
        close(harness, link, true, true);
    }

    pub(super) fn last_words(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        // Bytes that nobody reads any more: closing over them would send a reset.
        let steps = vec![step(None, Then::Pause)];
        command(harness, link.shard, Command::Script(link.id, steps));
        harness.send(link.peer, b"x");
        assert_eq!(shown(harness, link), b"x");
        harness.send(link.peer, &pattern(5_000));
        let words = pattern(200_000);
        harness.command(link.shard, Command::Send(link.id, vec![Part::Data(words.clone(), 1)]));
        let connection = link.id;
        harness.command(link.shard, Command::Close { connection, after_send: true });
        assert!(harness.receive(link.peer, words.len()) == words);
        assert_eq!(harness.receive_end(link.peer), PeerEnd::EndOfStream);
        expect(harness, link.shard, &Report::Sent(link.id, words.len() as u64));
        harness.finish(link.peer);
        expect(harness, link.shard, &Report::Closed(link.id, false, false));
        nothing_lent(harness, link.shard);
    }

    pub(super) fn end_of_stream(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        harness.send(link.peer, b"bye");
        assert_eq!(shown_in_all(harness, link, 3), b"bye");
        harness.finish(link.peer);
        expect(harness, link.shard, &Report::Lost(link.id, Loss::EndOfStream));
        // Told once: what follows is the answer to a ping, then the close.
        harness.command(link.shard, Command::Ping(3));
        expect(harness, link.shard, &Report::Pong(3));
        close(harness, link, false, false);
    }

    pub(super) fn reset(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        harness.send(link.peer, b"x");
        assert_eq!(shown(harness, link), b"x");
        harness.reset(link.peer);
        match harness.report() {
            (_, Report::Lost(id, Loss::Error(error))) => assert!(id == link.id && error > 0),
            other => panic!("expected a loss with an error, saw {other:?}"),
        }
        close(harness, link, false, false);
    }

    pub(super) fn loss_with_batch(harness: &mut dyn Harness) {
        let link = connect_to(harness);
        stuff(harness, link);
        harness.reset(link.peer);
        match harness.report() {
            (_, Report::Lost(id, _)) => assert_eq!(id, link.id),
            other => panic!("expected a loss, saw {other:?}"),
        }
        close(harness, link, false, true);
    }

    pub(super) fn connect(harness: &mut dyn Harness) {
        let address = harness.listening_address();
        let shard = ShardId(0);
        harness.command(shard, Command::Connect(address, 77));
        let peer = harness.accept();
        let id = match harness.report() {
            (_, Report::Connected(77, id)) => id,
            other => panic!("expected Connected, saw {other:?}"),
        };
        let link = Link { peer, shard, id };
        harness.send(peer, b"hello");
        assert_eq!(shown_in_all(harness, link, 5), b"hello");
        harness.command(shard, Command::Send(id, vec![Part::Head(b"hi".to_vec())]));
        assert_eq!(harness.receive(peer, 2), b"hi");
        expect(harness, shard, &Report::Sent(id, 2));
        close(harness, link, false, false);
    }

    pub(super) fn connect_refused(harness: &mut dyn Harness) {
        let address = harness.refusing_address();
        harness.command(ShardId(0), Command::Connect(address, 5));
        expect(harness, ShardId(0), &Report::ConnectFailed(5));
    }

    pub(super) fn timeout(harness: &mut dyn Harness) {
        for micros in [0, 1, 150, 3_000, 20_000] {
            harness.command(ShardId(1), Command::Timer(Duration::from_micros(micros)));
            expect(harness, ShardId(1), &Report::TimedOut(false));
        }
    }

    pub(super) fn blocks(harness: &mut dyn Harness) {
        let disk = harness.disk();
        harness.command(ShardId(0), Command::Blocks(disk, 1000));
        expect(harness, ShardId(0), &Report::Blocks(1000));
        nothing_lent(harness, ShardId(0));
    }

    pub(super) fn no_disk(harness: &mut dyn Harness) {
        harness.command(ShardId(0), Command::Blocks(DiskId(999), 3));
        expect(harness, ShardId(0), &Report::Blocks(0));
        nothing_lent(harness, ShardId(0));
    }

    pub(super) fn mail(harness: &mut dyn Harness) {
        harness.command(ShardId(0), Command::Numbers(ShardId(1), 1000));
        harness.command(ShardId(1), Command::Numbers(ShardId(0), 1000));
        harness.command(ShardId(1), Command::Numbers(ShardId(1), 10));
        let mut next = BTreeMap::new();
        for _ in 0..2010 {
            match harness.report() {
                (to, Report::Number(from, number)) => {
                    let expected = next.entry((from, to)).or_insert(0);
                    assert_eq!(number, *expected, "from {} to {}", from.0, to.0);
                    *expected += 1;
                }
                other => panic!("expected a number, saw {other:?}"),
            }
        }
        assert_eq!(next.len(), 3);
    }
}
