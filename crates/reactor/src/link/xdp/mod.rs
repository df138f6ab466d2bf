//! AF_XDP: frames that a program at the interface's door puts into memory of ours, before the stack
//! makes anything of them.
//!
//! One socket that receives and one piece of memory for each receive queue, and one more socket, on the
//! first queue, that sends (decision 0030); all belong to one shard, so such a
//! link is for one shard only (the queue of a frame is the interface's choice, and a program cannot
//! send it to the socket of another queue). The door's program also does what a socket filter does
//! elsewhere ([`program`]). Frames of one chunk are shown where they lie, and lent for a turn where they are
//! sent on; longer ones lie in several chunks and are put together first, one copy. Frames to send are copied into chunks,
//! which the kernel copies from: its copying mode, which every driver has. One that lies where it came by a link whose
//! memory is the same ([`umem`]) is sent from there.
//!
//! ```text
//!   memory of a queue, in chunks:   | 512 to receive into: all but 256 bytes of each are a frame's | 512 to send from (first queue) |
//!   of links that send frames on:   the same of each, in one memory of 4,096 chunks
//! ```
//! A chunk has 2 KiB where a frame of the interface's MTU fits into it, else 4 KiB: frames all begin at
//! the same place of their chunk, so that the smaller it is, the more of them a cache holds.
//!
//! An interface that takes VLAN tags off hides them from programs: frames of every VLAN would pass
//! for frames of none. So that is switched off before a link is opened ([`interface::leave_tags`]),
//! and whoever switches it on again has the link opened anew. A veth takes nothing off: there the
//! other end decides (`tx-vlan-hw-insert`), which cannot be seen from here. Errors: missing rights,
//! an interface that has a program already, memory that may not be locked, each with what to do.

mod opening;
mod program;
mod rings;
mod umem;

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use block::ShardId;
use contract::{EtherType, LinkId, TagControl, VlanTag};
use libc::{iovec, xdp_desc};
use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::LinkOptions;
use super::counters::{Counters, Source};
use super::filter::Station;
use super::interface::{self, Interface};
use super::packet;
use super::ring::{AHEAD, Lies, SOON, fetch_frame};
use super::socket::{LinkSocket, Way};
use opening::Wanted;
use program::{Attached, Failed, TAG, TYPE_AT, tried};
use rings::Ring;
pub(crate) use umem::Umems;
use umem::{Pool, Seat, Umem};

/// Bytes of a chunk, as the kernel takes them: the least, and the most that a page has.
const CHUNKS: [u32; 2] = [2048, 4096];
/// What the kernel leaves free in front of a received frame (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Chunks to receive into: as much memory as a packet ring has.
const RECEIVE_CHUNKS: u32 = 512;
/// Chunks to send from.
const SEND_CHUNKS: u32 = 512;
/// Room for a header with a tag.
const HEADER: u32 = 14 + TAG;
/// The longest frame that is put together.
const FRAME_MAX: usize = 65_536;

/// The sockets of an interface.
pub(crate) struct Xdp {
    queues: Vec<Queue>,
    /// Which queue is looked at first.
    first: usize,
    /// Whether frames stay where they are until [`Xdp::give_back`].
    lends: bool,
    ring_frames: u32,
    /// Bytes that a frame may have.
    length_max: usize,
    /// Frames of several chunks are put together here.
    whole: Vec<u8>,
    pub(super) system_calls: u64,
    /// Behind the sockets: as long as it is there, the interface looks for them.
    _attached: Attached,
}

/// A socket and its memory.
struct Queue {
    fill: Ring<u64>,
    receive: Ring<xdp_desc>,
    sending: Option<Sending>,
    socket: Arc<OwnedFd>,
    /// Behind the socket, which uses it.
    umem: Arc<Umem>,
    /// The socket's part in it.
    seat: Seat,
    /// Chunks of what was shown that were not given back.
    shown: Vec<u64>,
}

/// The sending half of a queue.
struct Sending {
    send: Ring<xdp_desc>,
    done: Ring<u64>,
    /// It sends on the queue of the socket that receives, and is not watched.
    socket: OwnedFd,
}

/// A frame as it was received.
pub(super) struct Frame<'a> {
    pub(super) tag: Option<VlanTag>,
    pub(super) bytes: &'a [u8],
    /// Where it stays until the chunks are given back, if it does.
    pub(super) lies: Option<Lies>,
    /// The begin of the frame that is shown second after it, if frames are lent.
    pub(super) soon: Option<&'a [u8]>,
}

/// Opens a link's sockets, for the one shard that it has.
pub(super) fn open(
    link: LinkId,
    options: &LinkOptions,
    interface: &Interface,
    counters: &[(ShardId, Arc<Counters>)],
    umems: &Umems,
) -> io::Result<Vec<(ShardId, Box<LinkSocket>)>> {
    let station = Station::new(interface, options);
    let (shard, counters) = &counters[0];
    let count = interface::receive_queues(&options.interface)?;
    let sharing = options.forwards.then_some((umems, *shard));
    let chunk = chunk_for(interface.mtu);
    let needs_pieces = interface.mtu + HEADER > chunk - HEADROOM;
    let open = |pieces| {
        let wanted = Wanted { interface: interface.index, chunk, pieces, sharing };
        Xdp::open(options, interface, &station, count, &wanted)
    };
    // Frames of several pieces need Linux 6.6; where one chunk is enough, it goes without.
    let xdp = match open(true) {
        Err(Failed { error, .. })
            if !needs_pieces && error.raw_os_error() == Some(libc::EINVAL) =>
        {
            open(false)?
        }
        other => other?,
    };
    let sockets: Vec<_> = xdp.queues.iter().map(|queue| queue.socket.clone()).collect();
    let watched = match &sockets[..] {
        [one] => one.clone(),
        many => Arc::new(watch_all(many)?),
    };
    let source = Source::Xdp { sockets: sockets.iter().map(Arc::downgrade).collect(), seen: 0 };
    drop(sockets);
    let (way, forwarded_max) = (Way::Xdp(Box::new(xdp)), options.forwarded_max(interface));
    let socket = LinkSocket::new(link, watched, way, source, forwarded_max, counters.clone());
    Ok(vec![(*shard, socket)])
}

impl Xdp {
    fn open(
        options: &LinkOptions,
        interface: &Interface,
        station: &Station,
        count: u32,
        wanted: &Wanted<'_>,
    ) -> Result<Xdp, Failed> {
        // First, so that an interface that has a program is known by that. Until a socket is there,
        // its frames go to the stack.
        let program = packet::program(&options.intake.spread, 0);
        let attached = Attached::new(interface.index, count, station, program, wanted.pieces)?;
        let queues: Vec<Queue> = (0..count)
            .map(|number| Queue::open(number, wanted))
            .collect::<io::Result<_>>()
            .map_err(tried("opening an AF_XDP socket"))?;
        for (number, queue) in (0..).zip(&queues) {
            let served = attached.serve(number, &queue.socket);
            served.map_err(tried("giving a queue its socket"))?;
        }
        let chunks = (interface.mtu + HEADER).div_ceil(wanted.chunk - HEADROOM);
        Ok(Xdp {
            queues,
            first: 0,
            lends: options.forwards,
            ring_frames: RECEIVE_CHUNKS / chunks,
            length_max: (interface.mtu + HEADER) as usize,
            whole: Vec::new(),
            system_calls: 0,
            _attached: attached,
        })
    }

    /// Frames of the link's MTU that a queue holds.
    pub(super) fn frames(&self) -> u32 {
        self.ring_frames
    }

    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        self.queues.iter().any(|queue| queue.receive.waiting() > 0)
    }

    /// Shows at most so many frames, from all queues in turn, and gives the chunks of each queue back
    /// when all of its were shown, unless it lends them. Returns how many.
    pub(super) fn receive(&mut self, most: u32, mut show: impl FnMut(Frame<'_>)) -> u32 {
        let Xdp { queues, first, lends, whole, system_calls, .. } = self;
        let share = (most / queues.len() as u32).max(1);
        let mut count = 0;
        for number in 0..queues.len() {
            let queue = (*first + number) % queues.len();
            let queue = &mut queues[queue];
            count += queue.receive(share, *lends, whole, &mut show);
            if !*lends {
                *system_calls += queue.give_back();
            }
        }
        *first = (*first + 1) % queues.len();
        count
    }

    /// Gives the chunks back whose frames were lent.
    #[inline]
    pub(super) fn give_back(&mut self) {
        self.system_calls += self.queues.iter_mut().map(Queue::give_back).sum::<u64>();
    }

    /// Sends so many frames; `name` pushes where the bytes of each lie, onto `vectors`, whose memory is
    /// used over and over. They are copied into chunks, but for one that lies whole in the chunk of a frame that was
    /// shown and is lent: that stays. Returns how many; EAGAIN if there is no chunk for the first.
    ///
    /// # Safety
    /// What `name` pushes must be memory that can be read until the next frame is asked for.
    #[inline]
    pub(crate) unsafe fn send(
        &mut self,
        frames: usize,
        vectors: &mut Vec<iovec>,
        name: impl Fn(usize, &mut Vec<iovec>),
    ) -> Result<usize, i32> {
        let Queue { umem, seat, sending, .. } = &mut self.queues[0];
        let sending = sending.as_mut().expect("the first queue sends");
        let pool = &mut *umem.pool();
        let mut count = 0;
        while count < frames {
            vectors.clear();
            name(count, vectors);
            let length: usize = vectors.iter().map(|vector| vector.iov_len).sum();
            if length > self.length_max {
                // The kernel would take it, and the interface drop it in silence.
                if count == 0 {
                    return Err(libc::EMSGSIZE);
                }
                break;
            }
            // SAFETY: the caller vouches for what they name.
            if !unsafe { sending.push((umem, pool, *seat), vectors, length) } {
                self.system_calls += sending.kick((umem, pool));
                // SAFETY: as above.
                if !unsafe { sending.push((umem, pool, *seat), vectors, length) } {
                    break;
                }
            }
            count += 1;
        }
        self.system_calls += sending.kick((umem, pool));
        if count == 0 { Err(libc::EAGAIN) } else { Ok(count) }
    }

    /// Whether frames wait in the ring that a call has not sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.queues[0].sending.as_ref().is_some_and(|sending| sending.send.untaken() > 0)
    }

    /// Tries to send what waits in the ring.
    pub(super) fn kick(&mut self) {
        let Queue { umem, sending, .. } = &mut self.queues[0];
        let sending = sending.as_mut().expect("the first queue sends");
        self.system_calls += sending.kick((umem, &mut umem.pool()));
    }

    /// Takes the errors that wait on the sockets.
    pub(super) fn take_errors(&self) -> i32 {
        let errors =
            self.queues.iter().map(|queue| crate::sockets::error_of(queue.socket.as_raw_fd()));
        errors.max().unwrap_or(0)
    }
}

impl Queue {
    /// Shows the frames that wait now, at most so many; their chunks are to be
    /// [given back](Self::give_back) together: the kernel's counters are looked at and changed once.
    fn receive(
        &mut self,
        most: u32,
        is_lent: bool,
        whole: &mut Vec<u8>,
        show: &mut impl FnMut(Frame<'_>),
    ) -> u32 {
        let waiting = self.receive.waiting();
        let (mut count, mut taken) = (0, 0);
        while count < most && taken < waiting {
            if taken + AHEAD < waiting {
                let piece = self.receive.peek(taken + AHEAD);
                fetch_frame(self.umem.at(piece.addr, piece.len), piece.len, is_lent);
            }
            let first = self.receive.peek(taken);
            let pieces = if is_last(&first) {
                let has_soon = is_lent
                    && count + SOON < most
                    && taken + SOON < waiting
                    && (1..SOON).all(|behind| is_last(&self.receive.peek(taken + behind)));
                let soon = has_soon.then(|| self.receive.peek(taken + SOON));
                // SAFETY: both were received, each into a chunk of its own, and are given back after the turn.
                let (frame, soon) = unsafe {
                    let soon = soon.map(|piece| &*bytes(&self.umem, &piece));
                    (&mut *bytes(&self.umem, &first), soon)
                };
                let (tag, bytes) = untagged(frame);
                let lies = is_lent.then(|| {
                    let length = bytes.len();
                    let addr = first.addr + u64::from(first.len) - length as u64;
                    let room = (addr - self.umem.chunk_of(addr)) as usize;
                    Lies { at: self.umem.at(addr, length as u32), length, room }
                });
                show(Frame { tag, bytes, lies, soon });
                1
            } else {
                let Some(pieces) = self.put_together(taken..waiting, whole) else { break };
                let (tag, bytes) = untagged(whole);
                show(Frame { tag, bytes, lies: None, soon: None });
                pieces
            };
            for at in taken..taken + pieces {
                self.shown.push(self.umem.chunk_of(self.receive.peek(at).addr));
            }
            (count, taken) = (count + 1, taken + pieces);
        }
        if taken > 0 {
            self.receive.take(taken);
        }
        count
    }

    /// Gives the chunks of what was shown back. Returns how many calls that took.
    #[inline]
    fn give_back(&mut self) -> u64 {
        if self.shown.is_empty() {
            return 0;
        }
        let pool = &mut *self.umem.pool();
        for chunk in self.shown.drain(..) {
            self.fill.write(pool.take_again(chunk));
        }
        self.fill.publish();
        if !self.fill.needs_wakeup() {
            return 0;
        }
        // Only a driver that does not copy asks for it.
        let _ = recv(&self.socket, &mut [0; 0], RecvFlags::DONTWAIT);
        1
    }

    /// Copies the frame that begins these descriptors and lies in several chunks. Returns in how many;
    /// `None`: its last one has not come.
    #[cold]
    fn put_together(&mut self, waiting: Range<u32>, whole: &mut Vec<u8>) -> Option<u32> {
        let last = waiting.clone().find(|at| is_last(&self.receive.peek(*at)))?;
        whole.clear();
        for at in waiting.start..=last {
            let piece = self.receive.peek(at);
            // SAFETY: it was received, and is looked at here alone.
            let bytes = unsafe { &*bytes(&self.umem, &piece) };
            if whole.len() + bytes.len() <= FRAME_MAX {
                whole.extend_from_slice(bytes);
            }
        }
        Some(last + 1 - waiting.start)
    }
}

/// What was received into a chunk, where it lies: within the memory, and ours until the chunk is filled again.
#[inline]
fn bytes(umem: &Umem, piece: &xdp_desc) -> *mut [u8] {
    std::ptr::slice_from_raw_parts_mut(umem.at(piece.addr, piece.len), piece.len as usize)
}

impl Sending {
    /// Puts a frame's bytes into chunks, for the kernel to send at the next [`kick`](Self::kick);
    /// `false`: there are too few.
    ///
    /// # Safety
    /// The vectors name memory that can be read, `length` bytes in all.
    #[inline]
    unsafe fn push(
        &mut self,
        (umem, pool, seat): (&Umem, &mut Pool, Seat),
        vectors: &[iovec],
        length: usize,
    ) -> bool {
        let size = umem.chunk();
        let chunks = umem.chunks_for(length).max(1);
        if pool.count_free() < chunks {
            self.collect(umem, pool);
        }
        if pool.count_free() < chunks || (self.send.room() as usize) < chunks {
            return false;
        }
        if let [whole] = vectors
            && let Some(addr) = umem.place_of(whole)
            && pool.send_on(seat, umem.chunk_of(addr))
        {
            self.send.write(xdp_desc { addr, len: length as u32, options: 0 });
            return true;
        }
        let mut left = length;
        let (mut chunk, mut filled) = (pool.take_to_send(seat), 0);
        for vector in vectors {
            let mut at = 0;
            while at < vector.iov_len {
                if filled == size {
                    left -= filled as usize;
                    let options = libc::XDP_PKT_CONTD;
                    self.send.write(xdp_desc { addr: chunk, len: filled, options });
                    (chunk, filled) = (pool.take_to_send(seat), 0);
                }
                let step = (vector.iov_len - at).min((size - filled) as usize);
                // SAFETY: the caller vouches for the vector; the chunk is free, so nobody else
                // looks at it, and lies within the memory.
                unsafe {
                    let to = umem.at(chunk + u64::from(filled), step as u32);
                    std::ptr::copy_nonoverlapping(vector.iov_base.cast::<u8>().add(at), to, step);
                }
                at += step;
                filled += step as u32;
            }
        }
        debug_assert_eq!(left, filled as usize, "the last chunk holds the rest");
        self.send.write(xdp_desc { addr: chunk, len: filled, options: 0 });
        true
    }

    /// Has the kernel send what was put into chunks. Returns how many calls that took.
    fn kick(&mut self, (umem, pool): (&Umem, &mut Pool)) -> u64 {
        let mut calls = 0;
        loop {
            self.send.publish();
            let untaken = self.send.untaken();
            if untaken == 0 {
                self.collect(umem, pool);
                return calls;
            }
            calls += 1;
            // Sends nothing itself.
            let _ = send(&self.socket, &[], SendFlags::DONTWAIT);
            // A call sends no more than so many; one that sent nothing found the interface busy.
            if self.send.untaken() == untaken {
                self.collect(umem, pool);
                return calls;
            }
        }
    }

    /// Takes the chunks back that the kernel has copied from.
    fn collect(&mut self, umem: &Umem, pool: &mut Pool) {
        let waiting = self.done.waiting();
        for behind in 0..waiting {
            pool.sent(umem.chunk_of(self.done.peek(behind)));
        }
        self.done.take(waiting);
    }
}

/// Whether a frame ends with this piece.
#[inline]
fn is_last(piece: &xdp_desc) -> bool {
    piece.options & libc::XDP_PKT_CONTD == 0
}

/// Bytes of a chunk for frames of this MTU.
fn chunk_for(mtu: u32) -> u32 {
    let [least, most] = CHUNKS;
    if mtu + HEADER <= least - HEADROOM { least } else { most }
}

/// Takes a tag off a frame that has one, of 802.1Q, which the door lets in alone: the addresses move
/// up to the type.
fn untagged(bytes: &mut [u8]) -> (Option<VlanTag>, &[u8]) {
    let (type_at, tag_end) = (TYPE_AT as usize, (TYPE_AT + TAG) as usize);
    let ether_type = EtherType::VLAN;
    let kind = ether_type.0.to_be_bytes();
    if bytes.len() < tag_end || bytes[type_at..type_at + 2] != kind {
        return (None, bytes);
    }
    let control = u16::from_be_bytes([bytes[type_at + 2], bytes[type_at + 3]]);
    let tag = VlanTag { ether_type, control: TagControl(control) };
    bytes.copy_within(..type_at, TAG as usize);
    (Some(tag), &bytes[TAG as usize..])
}

/// A descriptor that is ready when one of the sockets has frames.
fn watch_all(sockets: &[Arc<OwnedFd>]) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in sockets {
        epoll::add(&all, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

/// What the kernel has dropped on a socket so far.
pub(super) fn drops(socket: &OwnedFd) -> u64 {
    let statistics = sockopt::xdp_statistics(socket);
    statistics.map_or(0, |seen| seen.rx_dropped + seen.rx_ring_full.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_taken_off_and_told() {
        let plain: Vec<u8> = (0..40).collect();
        assert_eq!(untagged(&mut plain.clone()), (None, &plain[..]));
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0, 0x20, 5]);
        let tag = VlanTag { ether_type: EtherType::VLAN, control: TagControl(0x2005) };
        assert_eq!(untagged(&mut tagged), (Some(tag), &plain[..]));
        assert_eq!(untagged(&mut [0x81; 13]).0, None);
    }
}
