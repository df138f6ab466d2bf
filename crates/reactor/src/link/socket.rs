//! A link socket: a shard's socket on a link, of whatever kind.
//!
//! In: frames in the kernel's slots, messages to send. Out: the frames as they came; counts. It is
//! made and dropped by the supervisor, and used by one shard in between. Errors: numbers of the
//! system; what cannot be received is counted and not told.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use contract::{Instruction, LinkId};
use libc::mmsghdr;

use super::counters::{Counters, LinkCells, Source};
use super::datagram::Datagram;
use super::filter;
use super::packet::set_urgent;
use super::ring::{Ring, Slot};
use super::xdp::{self, Xdp};
use crate::sockets;
use crate::stats::add;

/// So many frames for others, and whoever sends them goes on: to be copied costs each more than a filter costs
/// frames that are ours.
const OTHERS_MAX: u64 = 256;

/// How frames come.
pub(super) enum Way {
    /// And by which socket they go: whoever watches one for frames is looked for at each frame that was sent by
    /// it.
    Ring(Ring, OwnedFd),
    Xdp(Box<Xdp>),
    Datagram(Box<Datagram>),
}

impl Way {
    fn frames(&self) -> u32 {
        match self {
            Way::Ring(ring, _) => ring.frames(),
            Way::Xdp(xdp) => xdp.frames(),
            Way::Datagram(datagram) => datagram.frames(),
        }
    }
}

/// A shard's socket on a link.
pub(crate) struct LinkSocket {
    pub(crate) link: LinkId,
    pub(crate) counters: Arc<Counters>,
    /// Behind `way`, so that the ring's memory goes first.
    way: Way,
    socket: Arc<OwnedFd>,
    /// Bytes of a frame that can be sent on, at most; `None` if none is.
    forwarded_max: Option<u32>,
    /// A filter that keeps frames for others out, and how many of those the counter is to say first.
    keeps_out: Option<(Vec<Instruction>, u64)>,
    /// Whether what it sends goes before all else that waits with its interface; `None`: that was said
    /// once and for all.
    is_urgent: Option<bool>,
    send_calls: u64,
}

impl LinkSocket {
    pub(super) fn new(
        link: LinkId,
        socket: Arc<OwnedFd>,
        way: Way,
        source: Source,
        forwarded_max: Option<u32>,
        counters: Arc<Counters>,
    ) -> Box<LinkSocket> {
        counters.begin(source, way.frames());
        let is_urgent = Some(false);
        Box::new(LinkSocket {
            link,
            counters,
            way,
            socket,
            forwarded_max,
            keeps_out: None,
            is_urgent,
            send_calls: 0,
        })
    }

    /// Has the kernel keep frames for others out by this filter, once [`OTHERS_MAX`] have come.
    pub(super) fn keep_out_later(&mut self, filter: Vec<Instruction>) {
        let seen = self.counters.cells.for_others.load(Relaxed);
        self.keeps_out = Some((filter, seen + OTHERS_MAX));
    }

    /// Does so, if they have. Where it is refused, they are passed over one by one, as before.
    fn keep_others_out(&mut self) {
        let seen = self.counters.cells.for_others.load(Relaxed);
        if let Some((filter, _)) = self.keeps_out.take_if(|(_, at)| seen >= *at) {
            let _ = filter::attach(self.descriptor(), &filter);
            self.send_calls += 1;
        }
    }

    /// All that it ever sends is as urgent as it was made to be.
    pub(super) fn keep_urgency(&mut self) {
        self.is_urgent = None;
    }

    /// What is sent from now on is urgent, or not. A system call when that is another thing; AF_XDP
    /// has no queue of the kernel's.
    #[inline]
    pub(crate) fn set_urgent(&mut self, is_urgent: bool) {
        if self.is_urgent.is_some_and(|was| was != is_urgent) {
            self.is_urgent = Some(is_urgent);
            if !matches!(self.way, Way::Xdp(_)) {
                set_urgent(self.sender(), is_urgent);
                self.send_calls += 1;
            }
        }
    }

    /// The descriptor that sends, to be watched for room.
    pub(crate) fn sender(&self) -> RawFd {
        let descriptor = match &self.way {
            Way::Ring(_, sender) => Some(sender.as_raw_fd()),
            Way::Datagram(datagram) => datagram.sender(),
            Way::Xdp(_) => None,
        };
        descriptor.unwrap_or(self.descriptor())
    }

    /// The descriptor to watch for frames.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether frames wait. No system call. `false` is certain at the moment of the last
    /// [`receive`](Self::receive): what came since then makes the descriptor ready.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        match &self.way {
            Way::Ring(ring, _) => ring.has_frame(),
            Way::Xdp(xdp) => xdp.has_frame(),
            Way::Datagram(datagram) => datagram.has_frame(),
        }
    }

    /// The same, before the descriptor is watched: what has become ready since then may have been
    /// told while nobody listened. A system call where the kernel shares no memory with us.
    #[inline]
    pub(crate) fn ask_for_frames(&mut self) -> bool {
        let descriptor = self.descriptor();
        match &mut self.way {
            Way::Ring(ring, _) => ring.has_frame(),
            Way::Xdp(xdp) => xdp.has_frame(),
            Way::Datagram(datagram) => datagram.ask_for_frames(descriptor),
        }
    }

    /// Shows frames, at most so many come out of the kernel; those of a link that forwards mostly stay where
    /// they lie until [`give_back`](Self::give_back). Returns how many came out.
    #[inline]
    pub(crate) fn receive(&mut self, most: u32, mut show: impl FnMut(&Slot<'_>)) -> u32 {
        let (mut frames, mut bytes_in) = (0, 0);
        let (cells, most_bytes) = (&self.counters.cells, self.forwarded_max);
        let descriptor = self.descriptor();
        let mut take = |slot: Slot<'_>| match flaw(&slot, most_bytes, cells) {
            None => {
                frames += 1;
                bytes_in += slot.bytes.len() as u64;
                show(&slot);
            }
            Some(counter) => add(counter, 1),
        };
        let count = match &mut self.way {
            Way::Ring(ring, _) => {
                let count = ring.receive(most, &mut take);
                if std::mem::take(&mut ring.is_losing) {
                    // Asked at once: the kernel's counter has 32 bits, and its mark stays until it
                    // is asked.
                    self.counters.take_drops();
                    self.send_calls += 1;
                }
                count
            }
            Way::Xdp(xdp) => xdp.receive(most, |xdp::Frame { tag, bytes, lies, soon }| {
                // A program at the door does not learn of checksums.
                take(Slot { tag, soon, lies, ..Slot::plain(bytes, bytes.len() as u32) });
            }),
            Way::Datagram(datagram) => datagram.receive(descriptor, most, &mut take),
        };
        if count > 0 {
            add(&self.counters.cells.received, frames);
            add(&self.counters.cells.received_bytes, bytes_in);
        }
        if u64::from(count) > frames && self.keeps_out.is_some() {
            self.keep_others_out();
        }
        count
    }

    /// What was lent is to be received into again.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        match &mut self.way {
            Way::Ring(ring, _) => ring.give_back(),
            Way::Xdp(xdp) => xdp.give_back(),
            Way::Datagram(_) => {}
        }
    }

    /// The sockets that send from memory of their own, where this is one of those: they take frames as
    /// they lie, and no messages.
    #[inline]
    pub(crate) fn as_xdp(&mut self) -> Option<&mut Xdp> {
        if let Way::Xdp(xdp) = &mut self.way { Some(xdp) } else { None }
    }

    /// Sends messages, as many as the kernel takes now, in order: at least one, or the error of the
    /// first. Not for one that is [`as_xdp`](Self::as_xdp).
    ///
    /// # Safety
    /// The messages and their vectors must be valid.
    #[inline]
    pub(crate) unsafe fn send(&mut self, messages: &mut [mmsghdr]) -> Result<usize, i32> {
        debug_assert!(!matches!(self.way, Way::Xdp(_)), "it takes frames as they lie");
        let descriptor = self.sender();
        self.send_calls += 1;
        // SAFETY: the caller vouches for the messages. The kernel copies the bytes before it
        // returns.
        let result = unsafe {
            let count = messages.len() as libc::c_uint;
            libc::sendmmsg(descriptor, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
        };
        let sent = usize::try_from(result)
            .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        if let (Err(libc::EMSGSIZE), Way::Datagram(datagram)) = (sent, &self.way) {
            datagram.look_again();
        }
        sent
    }

    /// Takes the error that waits on the socket, such as that its interface went down: it would
    /// make the descriptor ready for ever.
    pub(crate) fn take_error(&self) -> i32 {
        match &self.way {
            Way::Xdp(xdp) => xdp.take_errors(),
            Way::Ring(..) => sockets::error_of(self.descriptor()),
            Way::Datagram(datagram) => {
                let error = sockets::error_of(self.descriptor());
                if error == libc::EMSGSIZE {
                    datagram.look_again();
                }
                error
            }
        }
    }

    /// Whether [`sender`](Self::sender) becomes ready when there is room to send. Else time has to tell: an
    /// AF_XDP socket counts as writable while chunks to send from are missing.
    pub(crate) fn tells_room(&self) -> bool {
        !matches!(self.way, Way::Xdp(_))
    }

    /// Tries again to send what was taken and could not leave. Returns whether there is still
    /// something.
    pub(crate) fn push_on(&mut self) -> bool {
        let Way::Xdp(xdp) = &mut self.way else { return false };
        if xdp.has_unsent() {
            xdp.kick();
        }
        xdp.has_unsent()
    }

    /// Whether something was taken and could not leave.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(&self.way, Way::Xdp(xdp) if xdp.has_unsent())
    }

    /// System calls that it has made.
    pub(crate) fn system_calls(&self) -> u64 {
        let received = match &self.way {
            Way::Ring(..) => 0,
            Way::Xdp(xdp) => xdp.system_calls,
            Way::Datagram(datagram) => datagram.system_calls,
        };
        self.send_calls + received
    }
}

/// What is wrong with a frame that came, as the counter of it. One that is over the MTU mostly came
/// cut short as well, since no ring has room for it, and merged ones are not summed either.
#[inline]
fn flaw<'a>(
    slot: &Slot<'_>,
    forwarded_max: Option<u32>,
    cells: &'a LinkCells,
) -> Option<&'a AtomicU64> {
    if slot.is_for_others {
        Some(&cells.for_others)
    } else if forwarded_max.is_some_and(|most| slot.length > most) {
        Some(&cells.over_mtu)
    } else if slot.length as usize != slot.bytes.len() {
        Some(&cells.unreadable)
    } else if forwarded_max.is_some() && slot.is_unsummed {
        Some(&cells.unsummed)
    } else {
        None
    }
}

impl Drop for LinkSocket {
    fn drop(&mut self) {
        self.counters.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_sent_on_is_told_by_its_first_flaw() {
        let cells = LinkCells::default();
        let bytes = [0; 2000];
        let flaw_of = |forwarded_max, length: u32, there: usize, is_unsummed| {
            let bytes = &bytes[..there];
            let slot = Slot { is_unsummed, ..Slot::plain(bytes, length) };
            flaw(&slot, forwarded_max, &cells).map(std::ptr::from_ref)
        };
        let [over_mtu, unreadable, unsummed] =
            [&cells.over_mtu, &cells.unreadable, &cells.unsummed]
                .map(|one| Some(std::ptr::from_ref(one)));
        let forwards = Some(1514);
        assert_eq!(flaw_of(forwards, 1514, 1514, false), None);
        assert_eq!(flaw_of(forwards, 1515, 1515, true), over_mtu);
        assert_eq!(flaw_of(forwards, 9000, 1600, true), over_mtu);
        assert_eq!(flaw_of(forwards, 1514, 1513, true), unreadable);
        assert_eq!(flaw_of(forwards, 60, 60, true), unsummed);
        let slot = Slot { is_for_others: true, ..Slot::plain(&bytes, 9000) };
        assert!(std::ptr::eq(flaw(&slot, forwards, &cells).unwrap(), &cells.for_others));
        // Whoever reads a frame and sends none on takes it as it is.
        assert_eq!(
            (flaw_of(None, 1600, 1600, true), flaw_of(None, 9000, 1600, false)),
            (None, unreadable)
        );
    }
}
