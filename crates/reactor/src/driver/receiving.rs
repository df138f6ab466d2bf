//! Receiving: one operation a connection, into a borrowed buffer or (`direct`) straight into a block
//! buffer.
//!
//! A quiet connection has no buffer: its receive is lent memory when something comes, and what came
//! is shown from there (a Keep Alive is one wake-up and one system call to receive it). Where the
//! engine lends nothing, or has nothing left, it watches, and receives when there is something. A
//! lively one, of which something came twice within a second, has a receive posted even while it is
//! idle, with room for all that may come. On epoll all watch, since trying costs a call. Bytes are
//! shown as they lie in the buffer; what the machine does not consume stays in front.

use block::table::Slot;
use contract::{Loss, Machine, Next};

use super::connection::{Input, Want};
use super::direct::DirectReceive;
use super::{Driver, QUIET, id_of};
use crate::engine::{Engine, Kind, LENT_MAX, Lent, Op};
use crate::stats::add;

/// What a stream may always show.
const ANY: Want = Want::Stream { at_least: 1, at_most: u32::MAX };

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Starts what the machine wants, if nothing is under way.
    pub(super) fn pursue(&mut self, slot: Slot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if !connection.is_open() || connection.input != Input::None || connection.in_line {
            return;
        }
        match connection.want {
            Want::Direct => self.receive_direct(slot),
            Want::Yield => self.show_later(slot),
            Want::Pause => self.watch_hangup(slot),
            Want::Stream { at_least, .. }
                if connection.waiting() > 0 && connection.waiting() >= at_least =>
            {
                self.show_later(slot);
            }
            Want::Idle | Want::Stream { .. } => self.await_more(slot),
        }
    }

    /// Starts what brings more: a receive, or what needs no buffer as long as nothing comes.
    fn await_more(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("more is awaited of it");
        let does_without = E::POLLS_FIRST || self.receive_pool.is_scarce();
        let (quiet, waiting) = (connection.quiet, connection.waiting());
        // What did not fit into a lent buffer is there already.
        let follows = waiting > 0 && !connection.drained;
        if !does_without && (!quiet || follows) {
            return self.receive(slot);
        }
        self.do_without(slot);
        if quiet && waiting == 0 && self.engine.lends() {
            self.receive_lent(slot);
        } else {
            self.watch(slot);
        }
    }

    /// Starts a receive that gets its memory when something comes.
    fn receive_lent(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("a receiving connection is there");
        let (_, at_most) = connection.wanted();
        let (socket, drained) = (connection.socket(slot), connection.drained);
        connection.asked = at_most.min(LENT_MAX);
        connection.input = Input::Lent;
        let op = Op::ReceiveLent { socket, length: connection.asked, drained };
        // SAFETY: its memory is the engine's own.
        unsafe { self.engine.start(Self::key(Kind::Input, slot), op) };
    }

    /// Gives the connection's buffer back if nothing waits in it, or if others wait for one and it
    /// holds little.
    fn do_without(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it can do without");
        if connection.waiting() == 0 {
            self.give_receive_buffer(slot);
        } else if self.receive_pool.is_scarce()
            && let Some(buffer) = &mut connection.receive_buffer
        {
            let moved = self.receive_pool.stow(buffer);
            add(&self.counters().moved_bytes, u64::from(moved));
            self.serve_line();
        }
    }

    /// Starts a watch for something to receive.
    pub(super) fn watch(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("a watched connection is there");
        connection.input = Input::Readable;
        let op = Op::Readable(connection.socket(slot));
        // SAFETY: a watch points at no memory.
        unsafe { self.engine.start(Self::key(Kind::Input, slot), op) };
    }

    /// A paused connection is watched for its end alone.
    fn watch_hangup(&mut self, slot: Slot) {
        self.do_without(slot);
        let connection = self.connections.get_mut(slot).expect("a paused connection is there");
        if !connection.hangup {
            connection.hangup = true;
            let op = Op::Hangup(connection.socket(slot));
            // SAFETY: a watch points at no memory.
            unsafe { self.engine.start(Self::key(Kind::Hangup, slot), op) };
        }
    }

    /// Starts a receive into the connection's buffer, or waits in line for one.
    fn receive(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("a receiving connection is there");
        let (at_least, at_most) = connection.wanted();
        let least = at_least.max(connection.waiting() + 1).min(block::limits::RECEIVE_BUFFER);
        let has = match &mut connection.receive_buffer {
            Some(buffer) if buffer.capacity() >= least && !buffer.is_stowed() => true,
            Some(buffer) => self.receive_pool.exchange(buffer, least),
            None => {
                connection.receive_buffer = self.receive_pool.take(least);
                connection.receive_buffer.is_some()
            }
        };
        if !has {
            connection.in_line = true;
            if self.receive_pool.waiting() == 0 {
                // The first in line: see at once who can do without.
                self.sweep_at = Some(self.now);
            }
            self.receive_pool.wait(slot);
            return;
        }
        let buffer = connection.receive_buffer.as_mut().expect("a buffer was just found");
        let moved = buffer.make_room();
        let (into, room) = buffer.room();
        let (socket, drained) = (connection.socket(slot), connection.drained && !self.prompt);
        let length = room.min(at_most);
        let op = Op::Receive { socket, into, length, drained };
        connection.asked = length;
        connection.input = Input::Receive;
        add(&self.counters().moved_bytes, moved as u64);
        // SAFETY: the room is in the connection's buffer, which is neither given away nor changed
        // while `input` says Receive.
        unsafe { self.engine.start(Self::key(Kind::Input, slot), op) };
        if !E::POLLS_FIRST {
            self.want_sweep();
        }
    }

    /// Gives the connection's receive buffer back; what is in it is dropped.
    pub(super) fn give_receive_buffer(&mut self, slot: Slot) {
        let buffer =
            self.connections.get_mut(slot).and_then(|connection| connection.receive_buffer.take());
        if let Some(buffer) = buffer {
            self.receive_pool.give(buffer);
            self.serve_line();
        }
    }

    /// Lets those in line go on as far as there are buffers.
    fn serve_line(&mut self) {
        for _ in 0..self.receive_pool.waiting() {
            let Some(slot) = self.receive_pool.next_in_line() else { return };
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.in_line = false;
                if connection.is_open() && connection.input == Input::None {
                    self.receive(slot);
                }
            }
        }
    }

    /// The receiving operation has ended.
    pub(super) fn input_ended(&mut self, slot: Slot, result: i32, lent: Option<Lent>) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let input = std::mem::replace(&mut connection.input, Input::None);
        let open = connection.is_open();
        if result > 0 {
            connection.quiet &= self.now.since(connection.touched) >= QUIET;
            connection.touched = self.now;
        }
        connection.drained = matches!(input, Input::Receive | Input::Lent | Input::Direct)
            && (result as u32) < connection.asked;
        match input {
            Input::Receive if result > 0 => {
                connection.receive_buffer.as_mut().expect("it was taken").received(result as usize);
                self.count_received(result);
            }
            Input::Lent if result > 0 => self.count_received(result),
            Input::Direct if result > 0 => {
                let direct = connection.direct.as_mut().expect("it is under way");
                let placed = direct.came(result as u32);
                self.count_received(result);
                add(&self.counters().direct_bytes, u64::from(placed));
            }
            _ => {}
        }
        if !open {
            self.closing_input_ended(slot, input, result);
            return;
        }
        match (input, result) {
            (Input::Readable, 0..) => self.receive(slot),
            (Input::Lent, 1..) => {
                let lent = lent.expect("what was received is in a lent buffer");
                self.lent_received(slot, lent, result as u32);
            }
            // Too many quiet ones have something at once. What came still waits.
            (Input::Lent, result) if result == -libc::ENOBUFS => self.receive(slot),
            (Input::Receive, 1..) => self.received(slot),
            (Input::Direct, 1..) => self.direct_received(slot),
            (Input::Receive | Input::Lent | Input::Direct, 0) => self.lose(slot, Loss::EndOfStream),
            // It was silent, and somebody may need its buffer.
            (Input::Direct, result) if result == -libc::ECANCELED => self.receive_direct(slot),
            (Input::Receive | Input::Lent | Input::Readable, result)
                if result == -libc::ECANCELED =>
            {
                self.pursue(slot);
            }
            (_, result) if result == -libc::EAGAIN || result == -libc::EINTR => self.pursue(slot),
            (Input::None | Input::Discard, _) => {
                unreachable!("{} ended what was not begun", id_of(slot))
            }
            (_, error) => self.lose(slot, Loss::Error(-error)),
        }
    }

    fn count_received(&self, bytes: i32) {
        let counters = self.counters();
        add(&counters.received_bytes, bytes as u64);
        add(&counters.receives, 1);
    }

    fn received(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it has just received");
        let (at_least, _) = connection.wanted();
        if connection.waiting() >= at_least {
            self.show(slot);
        } else {
            self.pursue(slot);
        }
    }

    /// Shows the machine what lies in a lent buffer; what it does not consume is kept.
    fn lent_received(&mut self, slot: Slot, lent: Lent, length: u32) {
        let connection = self.connections.get_mut(slot).expect("it has just received");
        if length < connection.wanted().0 {
            self.keep(slot, lent, 0, length);
            self.pursue(slot);
            return;
        }
        self.flush_events();
        let bytes = self.engine.lent(lent, length);
        let shown = self.machine.handle_received(self.now, id_of(slot), bytes, &mut self.memory);
        self.keep(slot, lent, shown.consumed, length);
        self.next(slot, shown.next);
        self.perform_effects();
    }

    /// Moves what lies in a lent buffer from `start` on to one of the connection's.
    fn keep(&mut self, slot: Slot, lent: Lent, start: usize, length: u32) {
        assert!(start <= length as usize, "{start} of {length} shown bytes were consumed");
        let rest = &self.engine.lent(lent, length)[start..];
        if rest.is_empty() {
            return;
        }
        let connection = self.connections.get_mut(slot).expect("it has just received");
        connection.receive_buffer = Some(self.receive_pool.keep(rest));
        let moved = rest.len() as u64;
        add(&self.counters().moved_bytes, moved);
    }

    /// Shows the machine what has been received.
    pub(super) fn show(&mut self, slot: Slot) {
        self.flush_events();
        let connection = self.connections.get_mut(slot).expect("its bytes are shown");
        let mut buffer = connection.receive_buffer.take().expect("bytes are in a buffer");
        let bytes = buffer.unconsumed();
        let shown = self.machine.handle_received(self.now, id_of(slot), bytes, &mut self.memory);
        buffer.consume(shown.consumed);
        // The machine cannot remove a connection, only the driver does.
        let connection = self.connections.get_mut(slot).expect("it was there before");
        connection.receive_buffer = Some(buffer);
        self.next(slot, shown.next);
        // Requests to files start while the rest of the turn is still being looked at.
        self.perform_effects();
    }

    /// Takes over what the machine wants, and starts it.
    fn next(&mut self, slot: Slot, next: Next) {
        self.take_over(slot, next);
        self.pursue(slot);
    }

    /// Takes over what the machine wants.
    pub(super) fn take_over(&mut self, slot: Slot, next: Next) {
        let connection = self.connections.get_mut(slot).expect("the machine was just asked");
        let waiting = connection.waiting();
        connection.want = match next {
            Next::Stream { at_least, at_most } => {
                Want::Stream { at_least: at_least.max(1), at_most }
            }
            Next::Direct(direct) => {
                assert!(waiting == 0, "{waiting} bytes lie before a direct receive");
                connection.direct = Some(DirectReceive::new(direct));
                Want::Direct
            }
            Next::Yield if waiting > 0 => Want::Yield,
            Next::Yield => ANY,
            Next::Pause => Want::Pause,
            Next::Idle => {
                assert!(waiting == 0, "idle with {waiting} bytes that were not consumed");
                Want::Idle
            }
        };
        self.polls.came(connection.source, self.now);
        if connection.want != Want::Idle {
            self.polls.stir(connection.source);
        }
    }

    fn show_later(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("its bytes are shown later");
        if !connection.is_ready {
            connection.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Shows the first `count` of those whose bytes are to be shown again.
    pub(super) fn show_yielded(&mut self, count: usize) {
        for _ in 0..count {
            let Some(slot) = self.ready.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            connection.is_ready = false;
            let shown_again = matches!(connection.want, Want::Yield | Want::Stream { .. });
            if connection.is_open() && shown_again && connection.waiting() > 0 {
                self.show(slot);
            }
        }
    }

    /// The machine wants a paused connection shown again.
    pub(super) fn resume(&mut self, slot: Slot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.want == Want::Pause && !connection.is_closing() {
            connection.want = if connection.waiting() > 0 { Want::Yield } else { ANY };
            self.pursue(slot);
        }
    }

    /// The watch for the other side's end has ended.
    pub(super) fn hangup_ended(&mut self, slot: Slot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.hangup = false;
        if !connection.is_open() {
            self.finish_if_quiet(slot);
        } else if connection.want == Want::Pause {
            let error = crate::sockets::error_of(connection.socket(slot).fd);
            let loss = if error == 0 { Loss::EndOfStream } else { Loss::Error(error) };
            self.lose(slot, loss);
        }
        // Else a receive will find the end, behind the bytes that lie before it.
    }

    /// The connection can carry nothing more.
    pub(super) fn lose(&mut self, slot: Slot, loss: Loss) {
        let connection = self.connections.get_mut(slot).expect("it is being lost");
        if connection.lost || connection.is_closing() {
            return;
        }
        connection.lost = true;
        if connection.input != Input::Receive {
            self.give_receive_buffer(slot);
        }
        self.tell(contract::Event::Lost { connection: id_of(slot), loss });
    }

    pub(super) fn want_sweep(&mut self) {
        if self.sweep_at.is_none() {
            self.sweep_at = Some(self.now + QUIET);
        }
    }

    /// Takes back what silent connections hold; whoever may become silent yet keeps the sweep
    /// going.
    pub(super) fn sweep(&mut self) {
        self.sweep_at = None;
        let short = self.receive_pool.waiting() > 0;
        let mut again = short;
        let (mut silent, mut holders) = (Vec::new(), Vec::new());
        for (slot, connection) in self.connections.iter_mut() {
            if !connection.is_open() || !connection.holds_buffer() {
                continue;
            }
            if !matches!(connection.input, Input::Receive | Input::Direct) {
                holders.push(slot);
            } else if self.now.since(connection.touched) < QUIET {
                again = true;
            } else if connection.waiting() == 0 || short {
                connection.quiet = true;
                silent.push(slot);
            } else {
                // Stalled within a PDU: it keeps its buffer as long as nobody waits.
                again = true;
            }
        }
        if short {
            holders.into_iter().for_each(|slot| self.do_without(slot));
        }
        for slot in silent {
            self.engine.cancel(Self::key(Kind::Input, slot));
        }
        if again {
            self.sweep_at = Some(self.now + QUIET);
        }
    }
}
