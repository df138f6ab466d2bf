//! The machine that the scenes play: it does what commands say, asks disks, sends frames on, and reports all that it
//! is told.
//!
//! In: the contract's events, and [`Command`]s by mail. Out: effects, and [`Report`]s by mail to the control thread.
//! Errors: what the contract promises and does not hold panics here, where it is seen.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

use block::limits::DISCARD_RANGES_MAX;
use block::{
    Buffer, Extent, Instant, MachineId, Memory, Operation, Outcome, Request, ShardId, Ticket,
};
use contract::{
    Ask, ConnectionId, Direct, DiskId, Effect, Event, FrameBatch, InFrame, LinkId, Machine, Next,
    OutFrame, Poll, Receive, SendBatch,
};

use super::{Command, FramePart, Note, Part, Report, SendOn, Step, Then, Wrapping};
use crate::pseudowire::outer;

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
