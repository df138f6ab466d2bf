//! One connection of the bare responder: what has arrived is parsed, what answers it is queued.
//!
//! In: received bytes. Out: an [`Outbox`] with all replies of the turn. Data of a write are copied
//! once when they came with other things, and not at all when only their header had arrived: then
//! the next receive has the RAM area as its first vector and a small piece of the buffer as its
//! second. What bytes mean is for the [`Speaker`]; the two are a [`Connection`]. Errors: what cannot
//! be parsed closes the connection.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue, types};
use socket2::Socket;

use crate::inbox::Inbox;
use crate::memory::Area;
use crate::outbox::Outbox;

/// Bytes taken along behind a payload that is received in place, or while payloads are due: enough
/// for the headers that follow, little enough that almost nothing of a payload has to be copied. Of
/// iSCSI, where commands bring 8 KiB of theirs, 12 and 16 KiB were tried: writes of 128 KiB got no
/// faster, of 16 KiB by a third.
const BESIDE: usize = 4096;

/// What makes sense of a connection's bytes.
pub(crate) trait Speaker: Sized {
    /// The receive buffer is no smaller.
    const BUFFER_MIN: usize;
    /// What is to be done when a payload has come whole that was received in place.
    type Ends;

    /// That of the connection which came as number `number`, from 1.
    fn new(number: u64) -> Self;

    /// Handles the PDU at `at` of the inbox, of which there is at least a byte; how many bytes it
    /// took, 0 if it is not all there.
    fn pdu(
        &mut self,
        stream: &mut Stream<Self::Ends>,
        at: usize,
        ram: &mut Area,
    ) -> Result<usize, Malformed>;

    /// A payload has come whole.
    fn ended(
        &mut self,
        stream: &mut Stream<Self::Ends>,
        ends: Self::Ends,
        ram: &mut Area,
    ) -> Result<(), Malformed>;
}

/// The peer speaks something else.
#[derive(Debug)]
pub(crate) struct Malformed;

/// The rest of a payload, on its way into the RAM area.
struct Payload<E> {
    at: usize,
    left: usize,
    ends: E,
}

/// The bytes of one connection, both ways; `E` is what its payloads end with.
pub(crate) struct Stream<E> {
    socket: Socket,
    pub(crate) inbox: Inbox,
    payload: Option<Payload<E>>,
    pub(crate) outbox: Outbox,
    vectors: [libc::iovec; 2],
    message: libc::msghdr,
    /// Payloads that were asked for and whose headers have not come.
    pub(crate) due: usize,
    /// A poll for room in the socket is posted.
    pub(super) waits_for_room: bool,
    /// Closed as soon as that poll is over.
    pub(super) dead: bool,
}

impl<E> Stream<E> {
    fn new(socket: Socket, buffer: usize) -> std::io::Result<Self> {
        // SAFETY: iovec and msghdr are plain data for which zeroes are valid.
        let (vectors, message) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Ok(Self {
            socket,
            inbox: Inbox::new(buffer)?,
            payload: None,
            outbox: Outbox::new()?,
            vectors,
            message,
            due: 0,
            waits_for_room: false,
            dead: false,
        })
    }

    /// The next receive: in place behind a header whose data are due, else into the inbox.
    pub(super) fn receive(&mut self, slot: u32, ram: &Area) -> squeue::Entry {
        let Some(payload) = &self.payload else {
            let wanted = if self.due > 0 { BESIDE } else { self.inbox.size() };
            let (into, room) = self.inbox.room(wanted);
            return opcode::Recv::new(types::Fixed(slot), into, room as u32).build();
        };
        let (into, room) = self.inbox.room(BESIDE);
        let place = ram.at(payload.at, payload.left);
        self.vectors = [
            libc::iovec {
                iov_base: place.expect("checked with the header").cast(),
                iov_len: payload.left,
            },
            libc::iovec { iov_base: into.cast(), iov_len: room },
        ];
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = 2;
        opcode::RecvMsg::new(types::Fixed(slot), &raw mut self.message).build()
    }

    /// Lets the next receive take `left` bytes to `at` of the RAM area, where the caller has seen
    /// that they fit.
    pub(crate) fn receive_in_place(&mut self, at: usize, left: usize, ends: E) {
        self.payload = Some(Payload { at, left, ends });
    }

    /// Sends what is queued; false if the socket is full.
    pub(super) fn flush(&mut self) -> std::io::Result<bool> {
        self.outbox.flush(self.socket.as_fd())
    }

    pub(super) fn shutdown(&self) {
        // The poll completes by it; a socket that is already gone has completed it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// A connection and what it speaks.
pub(super) struct Connection<S: Speaker> {
    pub(super) stream: Stream<S::Ends>,
    speaker: S,
}

impl<S: Speaker> Connection<S> {
    pub(super) fn new(socket: Socket, buffer: usize, number: u64) -> std::io::Result<Self> {
        let stream = Stream::new(socket, buffer.max(S::BUFFER_MIN))?;
        Ok(Self { stream, speaker: S::new(number) })
    }

    /// Takes `got` received bytes; false if the connection has to be closed.
    pub(super) fn consume(&mut self, got: usize, ram: &mut Area) -> bool {
        self.take(got, ram).is_ok()
    }

    fn take(&mut self, mut got: usize, ram: &mut Area) -> Result<(), Malformed> {
        let Self { stream, speaker } = self;
        if let Some(payload) = &mut stream.payload {
            let part = got.min(payload.left);
            payload.at += part;
            payload.left -= part;
            got -= part;
            if payload.left > 0 {
                return Ok(());
            }
            if let Some(payload) = stream.payload.take() {
                speaker.ended(stream, payload.ends, ram)?;
            }
        }
        stream.inbox.fill(got);
        let mut at = 0;
        while at < stream.inbox.filled() {
            match speaker.pdu(stream, at, ram)? {
                0 => break,
                used => at += used,
            }
        }
        stream.inbox.drop_front(at);
        Ok(())
    }
}
