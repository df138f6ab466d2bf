//! A shard with a visitor: the control thread reads and writes labels and flushes volumes through the same machines as hosts do.
//!
//! So a label travels alike to a file, a RAM disk and a remote disk, through gates and instruments, and no second path to the media
//! exists. A visit is put into a channel first and any order is sent after it, which wakes the shard: so a shard that nobody visits pays
//! one comparison a turn. Units: bytes of the volume. Errors: the request's [`Outcome`].
//! Bytes are copied here, since labels and checks for blankness are small; the data path never comes this way.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};

use block::pool::Class;
use block::{
    Account, Completion, Extent, Instant, Memory, Operation, Outcome, Request, ShardId, Ticket,
    VolumeId,
};
use contract::{Ask, ConnectionId, Direct, Effect, Event, InFrame, Machine, Next, Receive};
use shard::{Mail, Shard, machine};

/// What the control thread asks of a volume.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// Its bytes.
    Read(Extent),
    /// To hold these bytes from an offset on, durably.
    Write(u64, Vec<u8>),
    /// To make durable what was written.
    Flush,
}

/// A wish and who waits for it.
#[derive(Debug)]
pub(super) struct Visit {
    /// The volume, which the shard knows.
    pub(super) volume: VolumeId,
    /// What is asked.
    pub(super) wish: Wish,
    /// Where the outcome goes, with the bytes of a read.
    pub(super) answer: Sender<(Outcome, Vec<u8>)>,
}

/// A shard, and the visitor's door to it.
#[derive(Debug)]
pub(crate) struct Visited {
    shard: Shard,
    /// Completions for other visitors.
    others: VecDeque<Completion>,
    /// Of the one shard that is visited.
    door: Option<Receiver<Visit>>,
    account: Account,
    number: u32,
    /// Visits that wait for memory; nothing of them is below.
    waiting: VecDeque<Visit>,
    /// Visits that are below, by the slots of their tickets.
    below: Vec<(u32, Visit)>,
}

impl Visited {
    /// A shard that is visited through `door`.
    pub(super) fn new(shard: Shard, door: Option<Receiver<Visit>>) -> Visited {
        Visited {
            shard,
            others: VecDeque::new(),
            door,
            account: Account::default(),
            number: 0,
            waiting: VecDeque::new(),
            below: Vec::new(),
        }
    }

    /// The shard, for another visitor, whose machine is not `visitor(0)`.
    pub(crate) fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// A completion for another visitor.
    #[inline]
    pub(crate) fn poll_other(&mut self) -> Option<Completion> {
        self.others.pop_front().or_else(|| match self.below.is_empty() {
            true => self.shard.poll_visit(),
            false => None,
        })
    }

    /// Sends below what there is memory for. What is refused waits: a pool that is used up is given back to, by a later turn.
    fn start(&mut self, now: Instant, memory: &mut dyn Memory) {
        while let Some(visit) = self.waiting.pop_front() {
            let (length, phase) = match &visit.wish {
                Wish::Read(extent) => (extent.length.0 as u32, extent.offset.0),
                Wish::Write(offset, bytes) => (bytes.len() as u32, *offset),
                Wish::Flush => (0, 0),
            };
            let phase = (phase % u64::from(block::PAGE_SIZE)) as u32;
            let operation = match &visit.wish {
                Wish::Flush => Operation::Flush,
                wish => {
                    let pool = self.shard.pool();
                    let Some(mut buffer) =
                        pool.take(&mut self.account, Class::Transfer, length, phase)
                    else {
                        self.waiting.push_front(visit);
                        return;
                    };
                    match wish {
                        Wish::Write(offset, bytes) => {
                            memory.write(&mut buffer, 0, bytes);
                            let extent = Extent::new(*offset, bytes.len() as u64);
                            Operation::Write { extent, buffer, durable: true }
                        }
                        Wish::Read(extent) => Operation::Read { extent: *extent, buffer },
                        Wish::Flush => unreachable!("it has no payload"),
                    }
                }
            };
            self.number = self.number.wrapping_add(1);
            let machine = machine::visitor(0);
            let ticket =
                Ticket { machine, generation: 0, slot: self.number, shard: ShardId::default() };
            let volume = visit.volume;
            self.below.push((self.number, visit));
            self.shard.visit(now, volume, Request { ticket, operation });
        }
    }

    fn finish(&mut self, completion: Completion, memory: &mut dyn Memory) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        let at = self.below.iter().position(|(number, _)| *number == ticket.slot);
        let (_, visit) = self.below.swap_remove(at.expect("a visit stays until it is answered"));
        let mut bytes = Vec::new();
        if let Wish::Read(extent) = &visit.wish
            && outcome.is_done()
        {
            bytes.resize(extent.length.0 as usize, 0);
            memory.read(&buffer, 0, &mut bytes);
        }
        if !matches!(visit.wish, Wish::Flush) {
            self.shard.pool().give(&mut self.account, memory, buffer);
        }
        // Whoever asked may have lost patience.
        let _ = visit.answer.send((outcome, bytes));
    }
}

impl Machine for Visited {
    type Mail = Mail;

    #[inline]
    fn handle_event(&mut self, now: Instant, event: Event<Mail>, memory: &mut dyn Memory) {
        let is_order = matches!(&event, Event::Mail { from: ShardId::CONTROL, .. });
        self.shard.handle_event(now, event, memory);
        if is_order && let Some(door) = &self.door {
            self.waiting.extend(door.try_iter());
        }
    }

    #[inline]
    fn handle_received(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        self.shard.handle_received(now, connection, bytes, memory)
    }

    #[inline]
    fn handle_direct(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        self.shard.handle_direct(now, connection, direct, memory)
    }

    #[inline]
    fn handle_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        self.shard.handle_frame(now, frame, memory);
    }

    fn handle_timeout(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.shard.handle_timeout(now, memory);
    }

    #[inline]
    fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            if !self.waiting.is_empty() {
                self.start(now, memory);
            }
            self.shard.settle(now, memory);
            let mut freed = false;
            if !self.below.is_empty() {
                while let Some(completion) = self.shard.poll_visit() {
                    if completion.ticket.machine == machine::visitor(0) {
                        self.finish(completion, memory);
                        freed = true;
                    } else {
                        self.others.push_back(completion);
                    }
                }
            }
            if !freed {
                break;
            }
        }
    }

    #[inline]
    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        self.shard.take_requests(asks);
    }

    #[inline]
    fn poll_effect(&mut self) -> Option<Effect<Mail>> {
        self.shard.poll_effect()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.shard.poll_timeout()
    }
}
