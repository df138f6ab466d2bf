//! Receiving without a ring: `recvmmsg` into memory of our own, where the kernel refuses the ring.
//!
//! One call takes up to [`AT_ONCE`] frames; the tag that the kernel took off comes beside each (PACKET_AUXDATA). Memory: so many frames of
//! the link's MTU, and what the socket's receive buffer may hold in the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{cmsghdr, iovec, mmsghdr, tpacket_auxdata};

use super::packet::set_option;

/// Frames of one call: enough that the call costs little, few enough that they stay in the cache.
pub(super) const AT_ONCE: usize = 32;
/// Room for a header with two tags.
const HEADER: usize = 14 + 8;
/// What the kernel may keep for us; it doubles the number to cover its bookkeeping.
const RECEIVE_BUFFER: libc::c_int = 2 << 20;

/// Room for one control message with auxiliary data.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: cmsghdr,
    data: tpacket_auxdata,
    _padding: [u8; 4],
}

/// A frame as it was received.
pub(super) struct Message<'a> {
    pub(super) tag: Option<u16>,
    /// The tag is of a kind that is not 802.1Q.
    pub(super) odd_tag: bool,
    pub(super) bytes: &'a [u8],
    /// It was longer than the memory for it.
    pub(super) cut: bool,
}

/// Memory to receive into.
pub(super) struct Messages {
    bytes: Box<[u8]>,
    room: usize,
    controls: Box<[Control]>,
    vectors: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
    /// The last call found fewer frames than it had room for.
    is_drained: bool,
    ring_frames: u32,
    pub(super) system_calls: u64,
}

// SAFETY: the pointers in vectors and headers name the other members, which are boxes of its own, and are made anew for each call.
unsafe impl Send for Messages {}

impl Messages {
    /// Prepares a socket that is not bound yet.
    pub(super) fn new(socket: &OwnedFd, mtu: u32) -> io::Result<Messages> {
        let fd = socket.as_raw_fd();
        set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
        // Beyond the system's bound only with CAP_NET_ADMIN; else up to it.
        if set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        let granted = super::packet::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        // The kernel counts a frame as the memory it lies in: a power of two, and what describes it.
        let charged = (mtu + HEADER as u32).next_power_of_two() + 768;
        let room = (mtu as usize + HEADER).next_multiple_of(64);
        // SAFETY: of zeros, these name nothing, which is valid.
        let (control, header) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let vector = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Messages {
            bytes: vec![0; room * AT_ONCE].into(),
            room,
            controls: vec![control; AT_ONCE].into(),
            vectors: vec![vector; AT_ONCE].into(),
            headers: vec![header; AT_ONCE].into(),
            is_drained: false,
            ring_frames: (granted as u32 / charged).max(1),
            system_calls: 0,
        })
    }

    /// Frames that the socket's buffer holds, about.
    pub(super) fn frames(&self) -> u32 {
        self.ring_frames
    }

    /// Whether frames may wait: the last call took as many as it could.
    #[inline]
    pub(super) fn may_have_frame(&self) -> bool {
        !self.is_drained
    }

    /// Receives once, and shows what came. Returns how many.
    pub(super) fn receive(&mut self, socket: &OwnedFd, mut show: impl FnMut(Message<'_>)) -> u32 {
        self.prepare();
        self.system_calls += 1;
        // SAFETY: headers, vectors and controls name memory of our own, of the lengths that they say.
        let count = unsafe {
            let (headers, most) = (self.headers.as_mut_ptr(), AT_ONCE as libc::c_uint);
            let flags = libc::MSG_DONTWAIT as _;
            libc::recvmmsg(socket.as_raw_fd(), headers, most, flags, std::ptr::null_mut())
        };
        // An error is that there are none, or that the interface went down, which the keeper sees by itself. It was told once and is gone.
        let count = usize::try_from(count).unwrap_or(0);
        self.is_drained = count < AT_ONCE;
        for (index, header) in self.headers[..count].iter().enumerate() {
            let length = (header.msg_len as usize).min(self.room);
            let bytes = &self.bytes[index * self.room..][..length];
            let (tag, odd_tag) = tag_of(&self.controls[index], header.msg_hdr.msg_controllen as _);
            let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            show(Message { tag, odd_tag, bytes, cut });
        }
        count as u32
    }

    fn prepare(&mut self) {
        let bytes = self.bytes.as_mut_ptr();
        let vectors = self.vectors.as_mut_ptr();
        let controls = self.controls.as_mut_ptr();
        for (index, header) in self.headers.iter_mut().enumerate() {
            let message = &mut header.msg_hdr;
            message.msg_iovlen = 1;
            message.msg_controllen = size_of::<Control>() as _;
            // SAFETY: all three have `AT_ONCE` members, of `room` bytes in the first case.
            unsafe {
                let iov_base = bytes.add(index * self.room).cast();
                *vectors.add(index) = iovec { iov_base, iov_len: self.room };
                message.msg_iov = vectors.add(index);
                message.msg_control = controls.add(index).cast();
            }
        }
    }
}

/// The tag in a control message, and whether it is of another kind than 802.1Q.
fn tag_of(control: &Control, length: usize) -> (Option<u16>, bool) {
    let is_auxiliary = length >= size_of::<cmsghdr>() + size_of::<tpacket_auxdata>()
        && control.header.cmsg_level == libc::SOL_PACKET
        && control.header.cmsg_type == libc::PACKET_AUXDATA;
    if !is_auxiliary || control.data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return (None, false);
    }
    let is_odd = control.data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0
        && control.data.tp_vlan_tpid != libc::ETH_P_8021Q as u16;
    (Some(control.data.tp_vlan_tci), is_odd)
}
