//! A shard of a simulated host and its driver's state: sockets, what has come in, when it wants to
//! be woken.

use std::collections::VecDeque;

use block::{Completion, Instant, Random};
use contract::{ConnectionId, Endpoint, Event, LentFrames, Loss, Machine, SendBatch};
use testkit::Pipe;

use crate::memory::SimMemory;
use crate::network::End;
use crate::world::Ringed;

/// One shard under a virtual driver.
#[derive(Debug)]
pub struct Node<M: Machine> {
    /// The logic.
    pub machine: M,
    /// Its pages.
    pub memory: SimMemory,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) inbox: VecDeque<Event<M::Mail>>,
    /// Frames that came and were not shown.
    pub(crate) ring: VecDeque<Ringed>,
    /// Those that were shown in this turn.
    pub(crate) lent: LentFrames<Vec<u8>>,
    pub(crate) turn_at: Option<u64>,
}

/// A slot for a connection.
#[derive(Debug, Default)]
pub(crate) struct Socket {
    pub(crate) generation: u32,
    pub(crate) open: Option<Open>,
}

/// A connection's state with the driver.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) link: usize,
    pub(crate) end: End,
    pub(crate) pipe: Pipe,
    /// The loss that comes after what was received.
    pub(crate) loss: Option<Loss>,
    /// A batch that has left and was not given back.
    pub(crate) kept: Option<SendBatch>,
}

impl<M: Machine> Node<M> {
    pub(crate) fn new(machine: M) -> Node<M> {
        Node {
            machine,
            memory: SimMemory::default(),
            sockets: Vec::new(),
            inbox: VecDeque::new(),
            ring: VecDeque::new(),
            lent: LentFrames::default(),
            turn_at: None,
        }
    }

    /// A name for a connection that begins.
    pub(crate) fn open(&mut self, link: usize, end: End, random: &mut Random) -> ConnectionId {
        let free = self.sockets.iter().position(|socket| socket.open.is_none());
        let slot = match free {
            // A name that was just given up is used again often: that is what confuses.
            Some(slot) if random.chance(3, 4) => slot,
            _ => {
                self.sockets.push(Socket::default());
                self.sockets.len() - 1
            }
        };
        let socket = &mut self.sockets[slot];
        socket.generation += 1;
        let mut pipe = Pipe::default();
        pipe.may_leave = true;
        socket.open = Some(Open { link, end, pipe, loss: None, kept: None });
        ConnectionId { slot: slot as u32, generation: socket.generation }
    }

    pub(crate) fn find(&mut self, connection: ConnectionId) -> Option<&mut Open> {
        let socket = self.sockets.get_mut(connection.slot as usize)?;
        if socket.generation == connection.generation { socket.open.as_mut() } else { None }
    }

    pub(crate) fn accepted(&mut self, connection: ConnectionId, endpoint: Endpoint) {
        self.inbox.push_back(Event::Accepted { connection, endpoint });
    }

    pub(crate) fn completed(&mut self, completion: Completion) {
        self.inbox.push_back(Event::Completed(completion));
    }

    /// Shows a connection's machine what has come, as often as it wants. Returns how many bytes
    /// were consumed, and whether it wants another turn.
    pub(crate) fn show(
        &mut self,
        now: Instant,
        slot: usize,
        cuts: bool,
        random: &mut Random,
    ) -> (usize, bool) {
        let Node { machine, memory, sockets, .. } = self;
        let Socket { generation, open } = &mut sockets[slot];
        let Some(Open { pipe, .. }) = open else { return (0, false) };
        let (unread, yields) = (pipe.unread(), pipe.yields);
        // Any part of what is there may come first.
        let cut = |least: usize, most: usize| match !cuts || random.chance(1, 2) {
            true => most,
            false => least + random.below((most - least + 1) as u64) as usize,
        };
        let connection = ConnectionId { slot: slot as u32, generation: *generation };
        pipe.show_to((now, connection), cut, machine, memory);
        (unread - pipe.unread(), pipe.yields > yields)
    }

    /// Whether showing a connection could make a difference.
    pub(crate) fn is_readable(&self, slot: usize) -> bool {
        self.sockets[slot].open.as_ref().is_some_and(|open| open.pipe.is_readable())
    }
}
