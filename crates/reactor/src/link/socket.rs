//! A link socket: a shard's socket on a link, of whatever kind.
//!
//! In: frames in the kernel's slots, messages to send. Out: the frames as they came; counts. It is
//! made and dropped by the supervisor, and used by one shard in between. Errors: numbers of the
//! system; what cannot be received is counted and not told.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use contract::{LinkId, VlanTag};
use libc::mmsghdr;

use super::counters::{Counters, Source};
use super::ring::Ring;
use super::xdp::Xdp;
use crate::sockets;
use crate::stats::add;

/// How frames come.
pub(super) enum Way {
    Ring(Ring),
    Xdp(Box<Xdp>),
}

impl Way {
    fn frames(&self) -> u32 {
        match self {
            Way::Ring(ring) => ring.frames(),
            Way::Xdp(xdp) => xdp.frames(),
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
    send_calls: u64,
}

impl LinkSocket {
    pub(super) fn new(
        link: LinkId,
        socket: Arc<OwnedFd>,
        way: Way,
        source: Source,
        counters: Arc<Counters>,
    ) -> Box<LinkSocket> {
        counters.begin(source, way.frames());
        Box::new(LinkSocket { link, counters, way, socket, send_calls: 0 })
    }

    /// The descriptor to watch, for frames and for room to send.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether frames wait. No system call. `false` is certain at the moment of the last
    /// [`receive`](Self::receive): what came since then makes the descriptor ready.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        match &self.way {
            Way::Ring(ring) => ring.has_frame(),
            Way::Xdp(xdp) => xdp.has_frame(),
        }
    }

    /// Shows frames, at most so many come out of the kernel. Returns how many came out.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        most: u32,
        mut show: impl FnMut(Option<VlanTag>, &[u8]),
    ) -> u32 {
        let (mut frames, mut bytes_in) = (0, 0);
        let mut count_and_show = |tag, bytes: &[u8]| {
            frames += 1;
            bytes_in += bytes.len() as u64;
            show(tag, bytes);
        };
        let count = match &mut self.way {
            Way::Ring(ring) => {
                let count = ring.receive(most, |slot| {
                    if slot.length as usize == slot.bytes.len() {
                        count_and_show(slot.tag, slot.bytes);
                    }
                });
                if std::mem::take(&mut ring.is_losing) {
                    // Asked at once: the kernel's counter has 32 bits, and its mark stays until it
                    // is asked.
                    self.counters.take_drops();
                    self.send_calls += 1;
                }
                count
            }
            Way::Xdp(xdp) => xdp.receive(most, |frame| count_and_show(frame.tag, frame.bytes)),
        };
        if count > 0 {
            add(&self.counters.cells.received, frames);
            add(&self.counters.cells.received_bytes, bytes_in);
            add(&self.counters.cells.unreadable, u64::from(count) - frames);
        }
        count
    }

    /// Sends messages, as many as the kernel takes now, in order: at least one, or the error of the
    /// first.
    ///
    /// # Safety
    /// The messages and their vectors must be valid.
    #[inline]
    pub(crate) unsafe fn send(&mut self, messages: &mut [mmsghdr]) -> Result<usize, i32> {
        if let Way::Xdp(xdp) = &mut self.way {
            // SAFETY: the caller vouches for the messages.
            return unsafe { xdp.send(messages) };
        }
        self.send_calls += 1;
        // SAFETY: the caller vouches for the messages. The kernel copies the bytes before it
        // returns.
        let result = unsafe {
            let count = messages.len() as libc::c_uint;
            libc::sendmmsg(self.descriptor(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
        };
        usize::try_from(result)
            .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Takes the error that waits on the socket, such as that its interface went down: it would
    /// make the descriptor ready for ever.
    pub(crate) fn take_error(&self) -> i32 {
        match &self.way {
            Way::Xdp(xdp) => xdp.take_errors(),
            _ => sockets::error_of(self.descriptor()),
        }
    }

    /// Whether the descriptor becomes ready when there is room to send. Else time has to tell: an
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
            Way::Ring(_) => 0,
            Way::Xdp(xdp) => xdp.system_calls,
        };
        self.send_calls + received
    }
}

impl Drop for LinkSocket {
    fn drop(&mut self) {
        self.counters.end();
    }
}
