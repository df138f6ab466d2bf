//! Sending: one batch a connection at a time, in as few system calls as its segments allow.
//!
//! The vectors of a call are made from the batch's segments when the call is made, so data are read
//! where they lie and when they leave. A short send goes on where it ended.

use block::PAGE_SIZE;
use block::table::Slot;
use contract::{Event, Loss, Machine, SendBatch, SendSegment};
use libc::iovec;

use super::connection::{Outgoing, Phase};
use super::{Driver, id_of};
use crate::engine::{Engine, Kind, Op, VECTORS_MAX};
use crate::memory::ShardMemory;
use crate::stats::add;

/// What runs of zeros are sent from, again and again.
static ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Takes a batch to send.
    pub(super) fn send(&mut self, slot: Slot, batch: SendBatch) {
        let id = id_of(slot);
        let Some(connection) = self.connections.get_mut(slot) else {
            panic!("{} bytes were to be sent on {id}, which is gone", batch.length);
        };
        assert!(connection.outgoing.is_none(), "a second batch for {id} while one is out");
        let nothing = batch.length == 0;
        let outgoing = Outgoing { batch, segment: 0, at: 0, sent: 0, message: None };
        connection.outgoing = Some(outgoing);
        if connection.lost || connection.is_closing() {
            // It comes back with `Closed`.
            return;
        }
        if nothing {
            self.sent(slot);
        } else {
            self.push_send(slot);
        }
    }

    /// Starts a send of what has not left yet.
    fn push_send(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it has a batch to send");
        let socket = connection.socket(slot);
        let outgoing = connection.outgoing.as_mut().expect("a batch is out");
        let messages = &mut self.messages;
        let message = outgoing.message.get_or_insert_with(|| messages.take());
        gather(&outgoing.batch, outgoing.segment, outgoing.at, &self.memory, &mut message.vectors);
        let message = message.header();
        connection.output = true;
        // SAFETY: message and batch belong to the connection, and the batch's buffers own or lease
        // their pages.
        if let Some(count) = unsafe { self.engine.send_now(socket, message) } {
            self.output_ended(slot, count);
            return;
        }
        let op = Op::Send { socket, message };
        // SAFETY: as above, and they are left alone while `output` is set.
        unsafe { self.engine.start(Self::key(Kind::Output, slot), op) };
    }

    /// A send, or a connect, has ended.
    pub(super) fn output_ended(&mut self, slot: Slot, result: i32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.output = false;
        if matches!(connection.phase, Phase::Connecting { .. }) {
            self.connect_ended(slot, result);
            return;
        }
        if result <= 0 {
            // Something was to be sent: a socket that takes none of it and tells no error never
            // will.
            self.send_failed(slot, if result == 0 { libc::EIO } else { -result });
            return;
        }
        let outgoing = connection.outgoing.as_mut().expect("a batch is out");
        advance(outgoing, result as u32);
        let finished = outgoing.sent == outgoing.batch.length;
        let gone = matches!(connection.phase, Phase::Gone);
        let closing = connection.is_closing();
        if !closing {
            self.polls.stir(connection.source);
        }
        add(&self.counters().sent_bytes, result as u64);
        add(&self.counters().sends, 1);
        if finished {
            self.sent(slot);
        } else if gone {
            self.finish_if_quiet(slot);
        } else {
            if !closing {
                self.tell(Event::SendProgress { connection: id_of(slot) });
            }
            self.push_send(slot);
        }
    }

    /// The batch has left.
    fn sent(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("its batch has left");
        if connection.lost && !connection.is_closing() {
            // Loss was told first: now the batch comes back with `Closed`.
            return;
        }
        let outgoing = connection.outgoing.take().expect("a batch has left");
        self.messages.give(outgoing.message);
        self.tell(Event::Sent { connection: id_of(slot), batch: outgoing.batch });
        self.output_finished(slot);
    }

    fn send_failed(&mut self, slot: Slot, error: i32) {
        let connection = self.connections.get_mut(slot).expect("its send has failed");
        if connection.is_closing() {
            self.make_gone(slot);
        } else if error == libc::EAGAIN || error == libc::EINTR {
            self.push_send(slot);
        } else {
            self.lose(slot, Loss::Error(error));
        }
    }
}

/// Moves past `count` bytes that have left.
fn advance(outgoing: &mut Outgoing, count: u32) {
    outgoing.sent += u64::from(count);
    if outgoing.sent == outgoing.batch.length {
        return;
    }
    let mut left = count;
    while left > 0 {
        let length = match outgoing.batch.segments[outgoing.segment] {
            SendSegment::Head { length, .. }
            | SendSegment::Data { length, .. }
            | SendSegment::Zeros { length } => length,
        };
        let step = left.min(length - outgoing.at);
        left -= step;
        outgoing.at += step;
        if outgoing.at == length {
            outgoing.segment += 1;
            outgoing.at = 0;
        }
    }
}

/// The vectors of a batch from byte `skip` of segment `first` on, as many as one call takes.
fn gather(
    batch: &SendBatch,
    first: usize,
    skip: u32,
    memory: &ShardMemory,
    vectors: &mut Vec<iovec>,
) {
    vectors.clear();
    let mut skip = skip;
    for segment in &batch.segments[first..] {
        match *segment {
            SendSegment::Head { start, length } => {
                let bytes = &batch.head[start as usize..(start + length) as usize][skip as usize..];
                if !bytes.is_empty() {
                    let base = bytes.as_ptr().cast_mut().cast();
                    vectors.push(iovec { iov_base: base, iov_len: bytes.len() });
                }
            }
            SendSegment::Data { buffer, at, length } => {
                let buffer = &batch.buffers[buffer as usize];
                memory.iovecs(buffer, at + skip, length - skip, vectors);
            }
            SendSegment::Zeros { length } => {
                let mut left = (length - skip) as usize;
                while left > 0 && vectors.len() < VECTORS_MAX {
                    let step = left.min(ZEROS.len());
                    vectors
                        .push(iovec { iov_base: ZEROS.as_ptr().cast_mut().cast(), iov_len: step });
                    left -= step;
                }
            }
        }
        skip = 0;
        if vectors.len() >= VECTORS_MAX {
            vectors.truncate(VECTORS_MAX);
            return;
        }
    }
}
