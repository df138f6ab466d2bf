//! A port: a shard's socket on a link, whatever kind it is.
//!
//! In: frames in the kernel's slots, messages to send. Out: the frames that are for this station; counts. A port is made and dropped by the keeper, and used by one shard in
//! between. Errors: numbers of the system; what cannot be received is counted and not told.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use contract::LinkId;
use libc::mmsghdr;

use super::counters::{Counters, Source};
use super::filter::Station;
use super::messages::{AT_ONCE, Messages};
use super::ring::Ring;
use super::xdp::Xdp;
use crate::sockets;
use crate::stats::add;

/// How frames come.
pub(super) enum Way {
    Ring(Ring),
    Messages(Messages),
    Xdp(Box<Xdp>),
}

impl Way {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Way::Ring(_) => "packet ring",
            Way::Messages(_) => "recvmmsg",
            Way::Xdp(_) => "xdp",
        }
    }

    fn frames(&self) -> u32 {
        match self {
            Way::Ring(ring) => ring.frames(),
            Way::Messages(messages) => messages.frames(),
            Way::Xdp(xdp) => xdp.frames(),
        }
    }
}

/// A shard's socket on a link.
pub(crate) struct Port {
    pub(crate) link: LinkId,
    pub(crate) counters: Arc<Counters>,
    station: Station,
    /// Behind `way`, so that the ring's memory goes first.
    way: Way,
    socket: Arc<OwnedFd>,
    send_calls: u64,
}

impl Port {
    pub(super) fn new(
        link: LinkId,
        station: Station,
        socket: Arc<OwnedFd>,
        way: Way,
        source: Source,
        counters: Arc<Counters>,
    ) -> Box<Port> {
        counters.begin(source, way.frames());
        Box::new(Port { link, counters, station, way, socket, send_calls: 0 })
    }

    /// The descriptor to watch, for frames and for room to send.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Frames that its ring holds.
    pub(crate) fn ring_frames(&self) -> u32 {
        self.way.frames()
    }

    /// Whether looking for a frame takes no system call.
    #[inline]
    pub(crate) fn is_looked_at_for_free(&self) -> bool {
        !matches!(self.way, Way::Messages(_))
    }

    /// Whether frames wait, as far as can be seen without a system call. `false` is certain at the moment of the last
    /// [`receive`](Self::receive): what came since then makes the descriptor ready.
    #[inline]
    pub(crate) fn may_have_frame(&self) -> bool {
        match &self.way {
            Way::Ring(ring) => ring.has_frame(),
            Way::Messages(messages) => messages.may_have_frame(),
            Way::Xdp(xdp) => xdp.has_frame(),
        }
    }

    /// Shows frames, at most so many come out of the kernel. Returns how many came out.
    #[inline]
    pub(crate) fn receive(&mut self, most: u32, mut show: impl FnMut(Option<u16>, &[u8])) -> u32 {
        let (mut frames, mut bytes_in) = (0, 0);
        let station = self.station;
        let mut judge = |tag, is_whole: bool, bytes: &[u8]| {
            if is_whole && station.takes(tag, bytes) {
                frames += 1;
                bytes_in += bytes.len() as u64;
                show(tag, bytes);
            }
        };
        let count = match &mut self.way {
            Way::Ring(ring) => {
                let count = ring.receive(most, |slot| {
                    let is_whole = !slot.odd_tag && slot.length as usize == slot.bytes.len();
                    judge(slot.tag, is_whole, slot.bytes);
                });
                if std::mem::take(&mut ring.is_losing) {
                    // Asked at once: the kernel's counter has 32 bits, and its mark stays until it is asked.
                    self.counters.take_drops();
                    self.send_calls += 1;
                }
                count
            }
            Way::Messages(messages) => {
                let mut count = 0;
                loop {
                    count += messages.receive(&self.socket, |message| {
                        let is_whole = !message.odd_tag && !message.cut;
                        judge(message.tag, is_whole, message.bytes);
                    });
                    if !messages.may_have_frame() || count + AT_ONCE as u32 > most {
                        break count;
                    }
                }
            }
            Way::Xdp(xdp) => xdp.receive(most, |frame| judge(frame.tag, true, frame.bytes)),
        };
        if count > 0 {
            add(&self.counters.received, frames);
            add(&self.counters.received_bytes, bytes_in);
            add(&self.counters.foreign, u64::from(count) - frames);
        }
        count
    }

    /// Sends messages, as many as the kernel takes now, in order: at least one, or the error of the first.
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
        // SAFETY: the caller vouches for the messages. The kernel copies the bytes before it returns.
        let result = unsafe {
            let count = messages.len() as libc::c_uint;
            libc::sendmmsg(self.descriptor(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
        };
        usize::try_from(result)
            .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Takes the error that waits on the socket, such as that its interface went down: it would make the descriptor ready for ever.
    pub(crate) fn take_error(&self) -> i32 {
        match &self.way {
            Way::Xdp(xdp) => xdp.take_errors(),
            _ => sockets::error_of(self.descriptor()),
        }
    }

    /// Whether the descriptor becomes ready when there is room to send. Else time has to tell: an AF_XDP socket counts as writable
    /// while chunks to send from are missing.
    pub(crate) fn tells_room(&self) -> bool {
        !matches!(self.way, Way::Xdp(_))
    }

    /// Tries again to send what was taken and could not leave. Returns whether there is still something.
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
            Way::Messages(messages) => messages.system_calls,
            Way::Xdp(xdp) => xdp.system_calls,
        };
        self.send_calls + received
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.counters.end();
    }
}
