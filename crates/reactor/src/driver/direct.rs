//! Direct receives: payloads that go straight to the pages of their buffer.
//!
//! A payload is received in one of two ways. *Together*: all of it and what follows it (the header of
//! the next, or as much as there is) in one receive that takes what is there, the follow-up into a
//! receive buffer beside it. That is one system call a payload or less instead of two, and pays where
//! payloads have come whole by the time they are asked for. *Alone*: with a receive that the kernel
//! ends only when all of the payload is there, however many segments it comes in: one wake-up, and
//! one more receive for what follows. [`Together`] chooses, by what became of the last ones. What
//! follows is shown as soon as the machine has its buffer back.

use block::limits::RECEIVE_BUFFER_SMALL;
use block::table::Slot;
use contract::{Direct, Machine, Next};
use libc::iovec;

use super::connection::{Input, Message, Want};
use super::{Driver, id_of};
use crate::engine::{Engine, Kind, Op, VECTORS_MAX};
use crate::receive::ReceiveBuffer;

/// A direct receive and how far it is.
pub(super) struct DirectReceive {
    direct: Direct,
    filled: u32,
    message: Option<Box<Message>>,
    /// Where what follows goes; the kernel may be writing to it while the receive is out.
    beside: Option<ReceiveBuffer>,
}

impl DirectReceive {
    pub(super) fn new(direct: Direct) -> DirectReceive {
        assert!(direct.length > 0, "a direct receive of nothing");
        DirectReceive { direct, filled: 0, message: None, beside: None }
    }

    /// Bytes of the payload that have not come.
    fn missing(&self) -> u32 {
        self.direct.length - self.filled
    }

    /// Counts what came; returns how much of it is the payload's.
    pub(super) fn came(&mut self, count: u32) -> u32 {
        let placed = count.min(self.missing());
        self.filled += placed;
        if let Some(beside) = &mut self.beside {
            beside.received((count - placed) as usize);
        }
        placed
    }

    pub(super) fn holds_buffer(&self) -> bool {
        self.beside.is_some()
    }
}

/// Whether a connection's payloads are received together with what follows them: as long as they are
/// there whole, and once in a while when they were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Together {
    /// How often in a row the payload was not whole, up to [`MISSES_MAX`](Self::MISSES_MAX).
    misses: u8,
    /// So many payloads are received alone before the next trial.
    alone: u8,
}

impl Together {
    /// One trial in 64 costs next to nothing.
    const MISSES_MAX: u8 = 6;

    /// Whether to receive the next payload so.
    fn next(&mut self) -> bool {
        let now = self.alone == 0;
        self.alone = self.alone.saturating_sub(1);
        now
    }

    /// What became of one that was received so.
    fn ended(&mut self, whole: bool) {
        self.misses = if whole { 0 } else { (self.misses + 1).min(Self::MISSES_MAX) };
        self.alone = (1 << self.misses) - 1;
    }
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Starts, or goes on with, a direct receive.
    pub(super) fn receive_direct(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("a receiving connection is there");
        let receive = connection.direct.as_mut().expect("a direct receive was asked for");
        let is_first = receive.filled == 0 && receive.message.is_none();
        let wanted = receive.direct.beside > 0 && !self.receive_pool.is_scarce();
        let together = is_first && wanted && connection.together.next();
        let mut beside = None;
        if together {
            let least = receive.direct.beside.min(RECEIVE_BUFFER_SMALL);
            let fits =
                |buffer: &mut ReceiveBuffer| buffer.capacity() >= least && !buffer.is_stowed();
            let own = connection.receive_buffer.take_if(fits);
            beside = own.or_else(|| self.receive_pool.take(least));
        }
        // One that was silent, or not whole at once, does without.
        if let Some(buffer) = std::mem::replace(&mut receive.beside, beside) {
            self.receive_pool.give(buffer);
        }
        self.give_receive_buffer(slot);
        self.start_direct(slot);
    }

    fn start_direct(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("a receiving connection is there");
        let socket = connection.socket(slot);
        let receive = connection.direct.as_mut().expect("a direct receive was asked for");
        let (filled, missing) = (receive.filled, receive.missing());
        let messages = &mut self.messages;
        let message = receive.message.get_or_insert_with(|| messages.take());
        let Direct { buffer, at, beside, .. } = &mut receive.direct;
        message.vectors.clear();
        self.memory.iovecs_mut(buffer, *at + filled, missing, &mut message.vectors);
        connection.asked = missing;
        if let Some(into) = &mut receive.beside {
            let (base, room) = into.room();
            let length = room.min(*beside);
            message.vectors.push(iovec { iov_base: base.cast(), iov_len: length as usize });
            connection.asked += length;
        }
        message.vectors.truncate(VECTORS_MAX);
        let whole = receive.beside.is_none();
        let op = Op::ReceiveMessage { socket, message: message.header(), whole };
        connection.input = Input::Direct;
        // SAFETY: message, buffer and the receive buffer beside it belong to the connection and are
        // left alone while `input` says Direct; the pages are private to the buffer, which
        // `iovecs_mut` has checked.
        unsafe { self.engine.start(Self::key(Kind::Input, slot), op) };
        if !whole {
            self.want_sweep();
        }
    }

    /// Something of a direct receive has come.
    pub(super) fn direct_received(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it has just received");
        let receive = connection.direct.as_ref().expect("it is under way");
        let is_whole = receive.missing() == 0;
        if receive.beside.is_some() {
            connection.together.ended(is_whole);
        }
        if !is_whole {
            return self.receive_direct(slot);
        }
        let mut receive = connection.direct.take().expect("it is under way");
        connection.receive_buffer = receive.beside.take();
        let follows = connection.waiting();
        let direct = self.end_direct(receive);
        self.flush_events();
        let id = id_of(slot);
        let next = match self.machine.handle_direct(self.now, id, direct, &mut self.memory) {
            // It has not seen what follows.
            Next::Idle if follows > 0 => Next::Stream { at_least: 1, at_most: u32::MAX },
            next => next,
        };
        self.take_over(slot, next);
        let connection = self.connections.get(slot).expect("only the driver removes one");
        match connection.want {
            Want::Stream { at_least, .. } if follows > 0 && follows >= at_least => self.show(slot),
            _ => {
                self.pursue(slot);
                self.perform_effects();
            }
        }
    }

    /// What is left of a direct receive that is over.
    pub(super) fn end_direct(&mut self, receive: DirectReceive) -> Direct {
        self.messages.give(receive.message);
        if let Some(buffer) = receive.beside {
            self.receive_pool.give(buffer);
        }
        receive.direct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_that_are_whole_at_once_are_received_together_with_what_follows() {
        let mut together = Together::default();
        for _ in 0..100 {
            assert!(together.next());
            together.ended(true);
        }
    }

    #[test]
    fn payloads_that_are_not_are_tried_so_ever_more_seldom_and_at_once_again_when_they_are() {
        let mut together = Together::default();
        let mut gaps = Vec::new();
        for _ in 0..8 {
            let alone = (0..1000).take_while(|_| !together.next()).count();
            gaps.push(alone);
            together.ended(false);
        }
        assert_eq!(gaps, [0, 1, 3, 7, 15, 31, 63, 63]);
        (0..63).for_each(|_| assert!(!together.next()));
        assert!(together.next());
        together.ended(true);
        assert!(together.next());
    }
}
