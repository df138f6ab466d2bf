//! How connections begin and end: accepted, connected, closed.
//!
//! A descriptor is closed only after its last operation has ended, and `Closed` is told then,
//! exactly once, with all that was lent. After last words (`after_send`) our direction is shut and
//! what still comes is dropped for a moment: closing a socket with unread bytes would send a reset
//! that can overtake the words.

use std::net::SocketAddr;
use std::time::Duration;

use block::limits;
use block::table::Slot;
use contract::{Event, ListenerId, Machine, Poll};
use socket2::SockAddr;

use super::connection::{Connection, Input, Phase};
use super::poll::NETWORK;
use super::{Alarm, Driver, id_of};
use crate::accept::Arrival;
use crate::engine::{Engine, Kind, Op};
use crate::sockets;
use crate::stats::add;

/// A connect may take so long.
const CONNECT: Duration = Duration::from_secs(10);
/// After our last words, so long and so many bytes are read and dropped.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u32 = 1 << 20;

impl<M: Machine, E: Engine> Driver<M, E> {
    /// A connection comes to live here.
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let Arrival { fd, endpoint, poll, admitted } = arrival;
        let source = self.polls.join(endpoint.listener, poll);
        let connection = Connection::new(fd, Some(admitted), source, Phase::Open, self.now);
        let slot = self.connections.insert(connection);
        if !self.attach(slot) || self.stopping {
            self.forget(slot);
            return;
        }
        add(&self.counters().accepted, 1);
        self.tell(Event::Accepted { connection: id_of(slot), endpoint });
        self.pursue(slot);
    }

    /// Makes the engine know a connection; a failure closes it.
    fn attach(&mut self, slot: Slot) -> bool {
        let socket = self.connections.get(slot).expect("it was just made").socket(slot);
        match self.engine.attach(socket) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("shard {}: a connection cannot be taken: {error}", self.shard.0);
                false
            }
        }
    }

    /// The machine wants a connection.
    pub(super) fn connect(&mut self, token: u64, address: SocketAddr, poll: Poll) {
        if let Err(error) = self.try_connect(token, address, poll) {
            self.tell(Event::ConnectFailed { token, error });
        }
    }

    fn try_connect(&mut self, token: u64, address: SocketAddr, poll: Poll) -> Result<(), i32> {
        let number = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        // Its place counts as one of no listener and no host but the one it goes to.
        let nobody = ListenerId(u32::MAX);
        let admitted = self.shared.admission.admit(address.ip(), nobody, u32::MAX);
        let admitted = admitted.ok_or(libc::EMFILE)?;
        let fd = sockets::for_connect(address).map_err(number)?;
        let address = Box::new(SockAddr::from(address));
        let (pointer, length) = (address.as_ptr(), address.len());
        let phase = Phase::Connecting { token, _address: address };
        let source = self.polls.add(poll, NETWORK);
        let connection = Connection::new(fd, Some(admitted), source, phase, self.now);
        let slot = self.connections.insert(connection);
        if !self.attach(slot) {
            self.forget(slot);
            return Err(libc::EMFILE);
        }
        let connection = self.connections.get_mut(slot).expect("it was just made");
        connection.output = true;
        let socket = connection.socket(slot);
        let op = Op::Connect { socket, address: pointer.cast(), length };
        // SAFETY: the address is in a box of its own, kept until the connect has ended.
        unsafe { self.engine.start(Self::key(Kind::Output, slot), op) };
        self.set_alarm(CONNECT, Alarm::Connect(slot));
        Ok(())
    }

    pub(super) fn connect_timed_out(&mut self, slot: Slot) {
        let connecting = self
            .connections
            .get(slot)
            .is_some_and(|connection| matches!(connection.phase, Phase::Connecting { .. }));
        if connecting {
            self.engine.cancel(Self::key(Kind::Output, slot));
        }
    }

    pub(super) fn connect_ended(&mut self, slot: Slot, result: i32) {
        let connection = self.connections.get_mut(slot).expect("its connect has ended");
        let Phase::Connecting { token, .. } = connection.phase else {
            unreachable!("{} was not connecting", id_of(slot))
        };
        let outcome = if result < 0 {
            Err(if result == -libc::ECANCELED { libc::ETIMEDOUT } else { -result })
        } else {
            sockets::prepare(&connection.fd).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
        };
        connection.phase = Phase::Open;
        match outcome {
            Ok(local) => {
                self.tell(Event::Connected { token, connection: id_of(slot), local });
                self.pursue(slot);
            }
            Err(error) => {
                let connection = self.forget(slot);
                self.engine.detach(connection.socket(slot));
                self.tell(Event::ConnectFailed { token, error });
            }
        }
    }

    /// The machine wants a connection closed.
    pub(super) fn close(&mut self, slot: Slot, after_send: bool) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        match connection.phase {
            Phase::Gone => return,
            Phase::Flushing { .. } | Phase::Lingering { .. } if after_send => return,
            Phase::Connecting { .. } => {
                // Only at a stop: a machine has no name for it yet.
                self.engine.cancel(Self::key(Kind::Output, slot));
                return;
            }
            _ => {}
        }
        if !after_send {
            self.make_gone(slot);
            return;
        }
        let flushing = connection.output;
        connection.phase = match &connection.outgoing {
            Some(outgoing) if flushing => Phase::Flushing { sent: outgoing.sent },
            _ => Phase::Lingering { left: LINGER_BYTES, until: self.now + LINGER },
        };
        self.cancel_input(slot);
        if flushing {
            self.set_alarm(limits::SEND_PROGRESS, Alarm::Closing(slot));
        } else {
            self.linger(slot);
        }
    }

    fn cancel_input(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it is being closed");
        if connection.input != Input::None {
            self.engine.cancel(Self::key(Kind::Input, slot));
        } else {
            self.give_receive_buffer(slot);
        }
    }

    /// The batch that was out has left.
    pub(super) fn output_finished(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("its batch has left");
        match connection.phase {
            Phase::Flushing { .. } => {
                let until = self.now + LINGER;
                connection.phase = Phase::Lingering { left: LINGER_BYTES, until };
                self.linger(slot);
            }
            Phase::Gone => self.finish_if_quiet(slot),
            _ => {}
        }
    }

    /// Says goodbye and begins to drop what comes.
    fn linger(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it lingers");
        sockets::finish_sending(&connection.fd);
        if connection.lost {
            self.make_gone(slot);
            return;
        }
        let free = connection.input == Input::None;
        self.set_alarm(LINGER, Alarm::Closing(slot));
        if free {
            self.discard(slot);
        }
    }

    fn discard(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it lingers");
        let Phase::Lingering { left, .. } = connection.phase else { return };
        connection.input = Input::Discard;
        let op = Op::Discard { socket: connection.socket(slot), length: left };
        // SAFETY: a discard points at no memory.
        unsafe { self.engine.start(Self::key(Kind::Input, slot), op) };
    }

    /// A receiving operation of a connection that is lost or closing has ended.
    pub(super) fn closing_input_ended(&mut self, slot: Slot, input: Input, result: i32) {
        self.give_receive_buffer(slot);
        let connection = self.connections.get_mut(slot).expect("its operation has ended");
        match &mut connection.phase {
            Phase::Lingering { left, .. } => {
                if input == Input::Discard {
                    *left = left.saturating_sub(u32::try_from(result).unwrap_or(0));
                }
                let again = [-libc::ECANCELED, -libc::EAGAIN, -libc::ENOBUFS].contains(&result);
                let over = *left == 0 || (result <= 0 && !again);
                if over { self.make_gone(slot) } else { self.discard(slot) }
            }
            Phase::Gone => self.finish_if_quiet(slot),
            Phase::Open | Phase::Flushing { .. } | Phase::Connecting { .. } => {}
        }
    }

    pub(super) fn closing_timed_out(&mut self, slot: Slot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let (Phase::Flushing { sent }, Some(out)) = (&mut connection.phase, &connection.outgoing)
            && *sent < out.sent
        {
            // Slow, but it moves.
            *sent = out.sent;
            self.set_alarm(limits::SEND_PROGRESS, Alarm::Closing(slot));
            return;
        }
        match connection.phase {
            // The alarm of the flush that came before.
            Phase::Lingering { until, .. } if self.now < until => {}
            _ if connection.is_closing() => self.make_gone(slot),
            _ => {}
        }
    }

    /// Ends what is out; the connection goes with the last of it.
    pub(super) fn make_gone(&mut self, slot: Slot) {
        let connection = self.connections.get_mut(slot).expect("it is being closed");
        if !matches!(connection.phase, Phase::Gone) {
            connection.phase = Phase::Gone;
            let (output, hangup) = (connection.output, connection.hangup);
            self.cancel_input(slot);
            if output {
                self.engine.cancel(Self::key(Kind::Output, slot));
            }
            if hangup {
                self.engine.cancel(Self::key(Kind::Hangup, slot));
            }
        }
        self.finish_if_quiet(slot);
    }

    /// Takes a connection out of the table.
    fn forget(&mut self, slot: Slot) -> Connection {
        let connection = self.connections.remove(slot).expect("a connection goes once");
        self.polls.leave(connection.source);
        connection
    }

    /// Lets a connection go that is closed and has nothing out.
    pub(super) fn finish_if_quiet(&mut self, slot: Slot) {
        let Some(connection) = self.connections.get(slot) else { return };
        if !matches!(connection.phase, Phase::Gone) || !connection.is_quiet() {
            return;
        }
        self.give_receive_buffer(slot);
        let mut connection = self.forget(slot);
        self.engine.detach(connection.socket(slot));
        if connection.outgoing.is_some() {
            // Cut off within a batch: the kernel is not to keep the rest for a peer that may never
            // read it.
            sockets::reset_when_closed(&connection.fd);
        }
        let direct = connection.direct.take().map(|receive| self.end_direct(receive));
        let batch = connection.outgoing.take().map(|outgoing| {
            self.messages.give(outgoing.message);
            outgoing.batch
        });
        self.tell(Event::Closed { connection: id_of(slot), direct, batch });
    }
}
