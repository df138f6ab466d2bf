//! A shard of a simulated host and its driver's state: sockets, what has come in, when it wants to
//! be woken.

use std::collections::VecDeque;

use block::{Completion, Instant, Random};
use contract::{ConnectionId, Direct, Endpoint, Event, Loss, Machine, Next, SendBatch};

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
    /// What arrived and was not consumed.
    pub(crate) received: Received,
    /// How much of it was shown.
    pub(crate) shown: usize,
    pub(crate) want: Want,
    /// The loss that comes after what was received.
    pub(crate) loss: Option<Loss>,
    pub(crate) loss_told: bool,
    pub(crate) sending: Option<Sending>,
    /// Set once the machine closed: whether what is out should leave first.
    pub(crate) closing: Option<bool>,
}

/// Bytes that came and were not consumed.
#[derive(Debug, Default)]
pub(crate) struct Received {
    all: Vec<u8>,
    /// How many at the front are consumed: they are moved out now and then, not at every step.
    consumed: usize,
}

impl Received {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.all[self.consumed..]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.consumed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.all.extend_from_slice(bytes);
    }

    fn consume(&mut self, count: usize) {
        self.consumed += count;
        if self.consumed > self.all.len() / 2 {
            self.all.drain(..self.consumed);
            self.consumed = 0;
        }
    }
}

/// What the machine wants of the stream.
#[derive(Debug)]
pub(crate) enum Want {
    Stream { at_least: usize, at_most: usize },
    Direct { direct: Direct, filled: u32 },
    Pause,
}

/// A batch that is out.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) batch: SendBatch,
    pub(crate) sent: u64,
}

impl<M: Machine> Node<M> {
    pub(crate) fn new(machine: M) -> Node<M> {
        Node {
            machine,
            memory: SimMemory::default(),
            sockets: Vec::new(),
            inbox: VecDeque::new(),
            ring: VecDeque::new(),
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
        socket.open = Some(Open {
            link,
            end,
            received: Received::default(),
            shown: 0,
            want: Want::Stream { at_least: 1, at_most: usize::MAX },
            loss: None,
            loss_told: false,
            sending: None,
            closing: None,
        });
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
        let mut consumed = 0;
        loop {
            let socket = &mut self.sockets[slot];
            let connection = ConnectionId { slot: slot as u32, generation: socket.generation };
            let Some(open) = &mut socket.open else { return (consumed, false) };
            if open.closing.is_some() {
                return (consumed, false);
            }
            match &mut open.want {
                Want::Pause => break,
                Want::Direct { direct, filled } => {
                    let missing = (direct.length - *filled) as usize;
                    let there = open.received.len().min(missing);
                    if there == 0 {
                        break;
                    }
                    let at = direct.at + *filled;
                    let bytes = &open.received.bytes()[..there];
                    block::Memory::write(&mut self.memory, &mut direct.buffer, at, bytes);
                    open.received.consume(there);
                    consumed += there;
                    *filled += there as u32;
                    if there < missing {
                        break;
                    }
                    let want = Want::Stream { at_least: 1, at_most: usize::MAX };
                    let Want::Direct { direct, .. } = core::mem::replace(&mut open.want, want)
                    else {
                        unreachable!("it was a direct receive")
                    };
                    let memory = &mut self.memory;
                    let next = self.machine.handle_direct(now, connection, direct, memory);
                    if self.take_next(slot, next) {
                        return (consumed, true);
                    }
                }
                &mut Want::Stream { at_least, at_most } => {
                    // Less than the least is never shown, however little may come at once.
                    let most = open.shown.saturating_add(at_most).max(at_least);
                    let limit = open.received.len().min(most);
                    let from = at_least.max(open.shown).max(1);
                    if limit < from {
                        break;
                    }
                    // Any part of what is there may come first.
                    let visible = if !cuts || random.chance(1, 2) {
                        limit
                    } else {
                        from + random.below((limit - from + 1) as u64) as usize
                    };
                    let bytes = core::mem::take(&mut open.received);
                    let receive = self.machine.handle_received(
                        now,
                        connection,
                        &bytes.bytes()[..visible],
                        &mut self.memory,
                    );
                    assert!(
                        receive.consumed <= visible,
                        "{} of {visible} bytes were consumed",
                        receive.consumed
                    );
                    let open = self.sockets[slot].open.as_mut().expect("it stays while shown");
                    open.received = bytes;
                    open.received.consume(receive.consumed);
                    open.shown = visible - receive.consumed;
                    if let Next::Stream { at_least, .. } = receive.next {
                        // Else it would be shown the same for ever.
                        assert!(
                            receive.consumed > 0 || at_least as usize > visible,
                            "nothing of {visible} bytes was consumed, and {at_least} are enough"
                        );
                    }
                    consumed += receive.consumed;
                    if self.take_next(slot, receive.next) {
                        return (consumed, true);
                    }
                }
            }
        }
        (consumed, false)
    }

    /// Notes what a machine wants next. Returns whether it yields.
    fn take_next(&mut self, slot: usize, next: Next) -> bool {
        let Some(open) = &mut self.sockets[slot].open else { return false };
        let (want, yields) = match next {
            Next::Stream { at_least, at_most } => {
                let at_most = if at_most == u32::MAX { usize::MAX } else { at_most as usize };
                (Want::Stream { at_least: (at_least as usize).max(1), at_most }, false)
            }
            Next::Idle => {
                assert_eq!(open.shown, 0, "a machine is idle with {} bytes left", open.shown);
                (Want::Stream { at_least: 1, at_most: usize::MAX }, false)
            }
            Next::Direct(direct) => {
                assert_eq!(open.shown, 0, "a direct receive follows unconsumed bytes");
                assert!(direct.length > 0, "a direct receive of nothing");
                (Want::Direct { direct, filled: 0 }, false)
            }
            Next::Yield => (Want::Stream { at_least: 1, at_most: usize::MAX }, true),
            Next::Pause => (Want::Pause, false),
        };
        open.want = want;
        yields
    }

    /// Whether showing a connection could make a difference.
    pub(crate) fn is_readable(&self, slot: usize) -> bool {
        let Some(open) = &self.sockets[slot].open else { return false };
        if open.closing.is_some() {
            return false;
        }
        match &open.want {
            Want::Pause => false,
            Want::Direct { .. } => !open.received.is_empty(),
            Want::Stream { at_least, .. } => open.received.len() >= (*at_least).max(1),
        }
    }
}
