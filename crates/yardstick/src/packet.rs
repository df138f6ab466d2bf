//! A packet socket: frames in by a TPACKET_V2 ring or by `recvmmsg`, frames out by `sendmmsg`.
//!
//! Who copies differs: into a ring the kernel copies in its softirq, that is on the sender's CPU
//! where a virtual link has no other; what `recvmmsg` takes is copied by the receiver.
//!
//! In: the name of an interface and an EtherType. Out: received frames, lent until the ring moves
//! on. What a batch of sent ones is made of is for who sends. Errors: those of the system calls; a
//! frame that the interface refuses is counted and dropped, as on any wire. Units: bytes.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::memory::Area;

/// Frames that leave in one call at most.
pub(crate) const BATCH: usize = 64;
/// What the socket may hold of frames on their way out: a batch of the largest, several times over.
const SEND_BUFFER: usize = 4 << 20;
/// What the socket may hold of frames that `recvmmsg` has yet to take: far more than any window.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Frames of a block of the ring; a block is then whole pages for every frame size of whole KiB.
const FRAMES_A_BLOCK: usize = 4;

/// A station's address.
pub(crate) type Mac = [u8; 6];

/// What is known of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    /// Its number.
    pub(crate) index: c_int,
    /// Its station address.
    pub(crate) mac: Mac,
    /// Its MTU.
    pub(crate) mtu: usize,
}

/// A packet socket on one interface.
pub(crate) struct Packet {
    pub(crate) socket: OwnedFd,
    pub(crate) interface: Interface,
    inbox: Inbox,
}

/// Where received frames are.
enum Inbox {
    Ring(ReceiveRing),
    Messages(Box<Messages>),
}

/// How frames are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    /// By a ring of that many frames (rounded up to whole blocks).
    Ring(usize),
    /// By `recvmmsg`.
    Messages,
}

impl Packet {
    /// Opens a socket on `name` that receives frames of this type.
    pub(crate) fn open(name: &str, ether_type: u16, receive: Receive) -> Result<Self> {
        let (socket, interface) = open_unbound(name)?;
        let inbox = match receive {
            Receive::Ring(frames) => Inbox::Ring(
                ReceiveRing::new(&socket, interface.mtu, frames)
                    .context("the receive ring is refused")?,
            ),
            Receive::Messages => {
                let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
                    .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER));
                Inbox::Messages(Box::new(Messages::new(interface.mtu)?))
            }
        };
        bind(&socket, interface.index, ether_type)?;
        Ok(Self { socket, interface, inbox })
    }

    /// Frames that fit before any is dropped, as far as that is known.
    pub(crate) fn slots(&self) -> usize {
        match &self.inbox {
            Inbox::Ring(ring) => ring.slots,
            Inbox::Messages(_) => BATCH,
        }
    }

    /// Looks for frames; afterwards [`Self::front`] shows them.
    #[inline]
    pub(crate) fn receive(&mut self) -> io::Result<()> {
        match &mut self.inbox {
            Inbox::Ring(_) => Ok(()),
            Inbox::Messages(messages) => messages.receive(&self.socket),
        }
    }

    /// The next frame, if one is there. It stays until [`Self::release`].
    #[inline]
    pub(crate) fn front(&self) -> Option<&[u8]> {
        match &self.inbox {
            Inbox::Ring(ring) => ring.front(),
            Inbox::Messages(messages) => messages.front(),
        }
    }

    /// When the kernel took the front frame of a ring, on the clock of the day.
    pub(crate) fn front_time_ns(&self) -> Option<u64> {
        match &self.inbox {
            Inbox::Ring(ring) => ring.front_time_ns(),
            Inbox::Messages(_) => None,
        }
    }

    /// The front frame has been dealt with.
    #[inline]
    pub(crate) fn release(&mut self) {
        match &mut self.inbox {
            Inbox::Ring(ring) => ring.release(),
            Inbox::Messages(messages) => messages.next += 1,
        }
    }

    /// The frame so many behind the next one, if it is there, to be changed where it lies.
    #[inline]
    pub(crate) fn ahead(&mut self, count: usize) -> Option<&mut [u8]> {
        match &mut self.inbox {
            Inbox::Ring(ring) => ring.ahead(count),
            Inbox::Messages(messages) => messages.ahead(count),
        }
    }

    /// So many frames have been dealt with.
    #[inline]
    pub(crate) fn release_all(&mut self, count: usize) {
        (0..count).for_each(|_| self.release());
    }

    /// Sleeps until a frame is there or the time (none: for ever) is over.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Result<()> {
        let time = time.map(Timespec::try_from).transpose()?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Frames that the kernel dropped because the ring was full, since the last look.
    pub(crate) fn dropped(&self) -> u64 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes of counters into `stats`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut len,
            )
        };
        if result == 0 { u64::from(stats.tp_drops) } else { 0 }
    }
}

/// A socket that sends on `name` and receives nothing.
pub(crate) fn sender(name: &str) -> Result<(OwnedFd, Interface)> {
    let (socket, interface) = open_unbound(name)?;
    // Protocol 0 is nothing that could be received; a frame's own type stands in it.
    bind(&socket, interface.index, 0)?;
    Ok((socket, interface))
}

/// A socket that is not bound yet, and the interface that it is for.
fn open_unbound(name: &str) -> Result<(OwnedFd, Interface)> {
    // Protocol 0 until it is bound: nothing arrives from other interfaces in between.
    let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .context("no packet socket (it takes CAP_NET_RAW)")?;
    let interface = interface(name)?;
    enlarge_send_buffer(&socket);
    Ok((socket, interface))
}

/// Has a socket hold as much as it may of what is on its way out.
pub(crate) fn enlarge_send_buffer(socket: &OwnedFd) {
    // More than the system's limit takes CAP_NET_ADMIN; without it the limit is what there is.
    let _ = sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER));
}

/// A batch of vectors that name nothing yet, and of messages that have one vector each, yet to be
/// named.
pub(crate) fn messages() -> (Box<[libc::iovec; BATCH]>, Box<[libc::mmsghdr; BATCH]>) {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    // SAFETY: mmsghdr is plain data for which all zeroes means: no name, no vectors, no control.
    let mut messages: Box<[libc::mmsghdr; BATCH]> = Box::new(unsafe { std::mem::zeroed() });
    messages.iter_mut().for_each(|message| message.msg_hdr.msg_iovlen = 1);
    (Box::new([nothing; BATCH]), messages)
}

/// Looks an interface up by name, among those of this process's own network: a folder of them may be another's.
pub(crate) fn interface(name: &str) -> Result<Interface> {
    let called = || format!("interface {name}");
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).with_context(called)?;
    let ask = |what: libc::Ioctl| {
        // SAFETY: ifreq is plain data for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let place = &mut request.ifr_name[..libc::IFNAMSIZ - 1];
        ensure!((1..=place.len()).contains(&name.len()), "{name:?} is no interface's name");
        place.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
        // SAFETY: these questions read the name in the request, and write their answer to it.
        if unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) } < 0 {
            return Err(std::io::Error::last_os_error()).with_context(called);
        }
        Ok(request.ifr_ifru)
    };
    let (index, mtu) = (ask(libc::SIOCGIFINDEX)?, ask(libc::SIOCGIFMTU)?);
    let address = ask(libc::SIOCGIFHWADDR)?;
    // SAFETY: each is the answer to its question.
    let (index, mtu, address) = unsafe { (index.ifru_ifindex, mtu.ifru_mtu, address.ifru_hwaddr) };
    let is_ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&address.sa_family);
    ensure!(is_ethernet, "{name} is no Ethernet");
    let mac = std::array::from_fn(|at| address.sa_data[at] as u8);
    Ok(Interface { index, mac, mtu: mtu as usize })
}

/// Reads `02:00:00:00:00:01`.
pub(crate) fn parse_mac(text: &str) -> Result<Mac> {
    let byte = |part: &str| match part.as_bytes() {
        // By its digits, since a number may have a sign.
        [high, low] => {
            let [high, low] = [high, low].map(|digit| char::from(*digit).to_digit(16));
            Some((high? << 4 | low?) as u8)
        }
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    let mac = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
    mac.with_context(|| format!("{text:?} does not look like 02:00:00:00:00:01"))
}

fn bind(socket: &OwnedFd, index: c_int, ether_type: u16) -> Result<()> {
    // SAFETY: sockaddr_ll is plain data for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ether_type.to_be();
    address.sll_ifindex = index;
    // SAFETY: the address lives through the call and its length is its own.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    ensure!(result == 0, "cannot bind to the interface: {}", io::Error::last_os_error());
    Ok(())
}

/// Sets a socket option that is a plain value.
pub(crate) fn option<T: Copy>(
    socket: &OwnedFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of `value`, whose length is its own.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Size of a ring's frame for an MTU, in whole KiB: TPACKET_V2's header and the sockaddr take 66
/// bytes, and a VLAN tag may come on top.
fn slot_size(mtu: usize) -> usize {
    (libc::TPACKET2_HDRLEN + 16 + 14 + 4 + mtu).next_multiple_of(1024)
}

/// The receive ring: the kernel copies frames into it, we read them where they lie.
struct ReceiveRing {
    memory: Area,
    slot: usize,
    slots: usize,
    next: usize,
}

impl ReceiveRing {
    fn new(socket: &OwnedFd, mtu: usize, frames: usize) -> Result<Self> {
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let slot = slot_size(mtu);
        let blocks = frames.div_ceil(FRAMES_A_BLOCK).max(1);
        let slots = blocks * FRAMES_A_BLOCK;
        let request = libc::tpacket_req {
            tp_block_size: (slot * FRAMES_A_BLOCK) as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots as u32,
        };
        option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        Ok(Self { memory: Area::shared(socket, slot * slots, 0)?, slot, slots, next: 0 })
    }

    fn header(&self, slot: usize) -> *mut libc::tpacket2_hdr {
        let slot = self.memory.at(slot * self.slot, self.slot);
        slot.expect("there are so many slots").cast()
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: the status is an aligned u32 in the mapping, which lives as long as `self`; the
        // kernel and we change it atomically. Slots are aligned to 1024 bytes.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header(slot)).tp_status) }
    }

    /// Where the frame in a slot lies, if one is there.
    #[inline]
    fn place(&self, slot: usize) -> Option<(*mut u8, usize)> {
        if self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header = self.header(slot);
        // SAFETY: the slot is ours until it is released, and the acquire above orders these reads.
        let (from, len) = unsafe { (usize::from((*header).tp_mac), (*header).tp_snaplen as usize) };
        assert!(from + len <= self.slot, "{len} bytes at {from} in a slot of {}", self.slot);
        // SAFETY: inside the slot, as just asserted.
        Some((unsafe { header.cast::<u8>().add(from) }, len))
    }

    /// The next frame, if one is there. It stays until [`Self::release`].
    #[inline]
    fn front(&self) -> Option<&[u8]> {
        let (from, len) = self.place(self.next)?;
        // SAFETY: the bytes lie in a slot that the kernel does not write to until it is released,
        // for which `self` has to be borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts(from, len) })
    }

    /// When the kernel took the next frame, if one is there.
    fn front_time_ns(&self) -> Option<u64> {
        self.place(self.next)?;
        let header = self.header(self.next);
        // SAFETY: the slot is ours until it is released; `place` has seen that, and ordered these
        // reads behind it.
        let (seconds, rest) = unsafe { ((*header).tp_sec, (*header).tp_nsec) };
        Some(u64::from(seconds) * 1_000_000_000 + u64::from(rest))
    }

    /// The frame so many behind the next one, if it is there.
    #[inline]
    fn ahead(&mut self, count: usize) -> Option<&mut [u8]> {
        debug_assert!(count < self.slots, "the ring goes round once");
        let slot = self.next + count;
        let (from, len) = self.place(if slot < self.slots { slot } else { slot - self.slots })?;
        // SAFETY: as above; `self` is borrowed mutably, so nobody else looks at the slot.
        Some(unsafe { std::slice::from_raw_parts_mut(from, len) })
    }

    /// Gives the front slot back to the kernel.
    #[inline]
    fn release(&mut self) {
        self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next += 1;
        if self.next == self.slots {
            self.next = 0;
        }
    }
}

/// What `recvmmsg` fills: a buffer for each frame of a batch.
struct Messages {
    memory: Area,
    size: usize,
    messages: Vec<libc::mmsghdr>,
    /// The messages point here; it is never touched again.
    _vectors: Vec<libc::iovec>,
    next: usize,
    count: usize,
}

impl Messages {
    fn new(mtu: usize) -> Result<Self> {
        let size = slot_size(mtu);
        let memory = Area::new(size * BATCH, true).context("cannot map receive buffers")?;
        let mut vectors: Vec<libc::iovec> = (0..BATCH)
            .map(|at| {
                let base = memory.at(at * size, size).expect("a buffer of the area");
                libc::iovec { iov_base: base.cast(), iov_len: size }
            })
            .collect();
        let messages = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: mmsghdr is plain data for which all zeroes means: no name, no vectors.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = vector;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        Ok(Self { memory, size, messages, _vectors: vectors, next: 0, count: 0 })
    }

    fn receive(&mut self, socket: &OwnedFd) -> io::Result<()> {
        if self.next < self.count {
            return Ok(());
        }
        (self.next, self.count) = (0, 0);
        // SAFETY: the messages name vectors and buffers that live as long as `self`, and no frame
        // in them is borrowed: `self` is borrowed mutably.
        let taken = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if taken < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(()),
                _ => Err(error),
            };
        }
        self.count = taken as usize;
        Ok(())
    }

    fn front(&self) -> Option<&[u8]> {
        (self.next < self.count).then(|| {
            let from = self.next * self.size;
            self.memory.bytes(from, from + self.messages[self.next].msg_len as usize)
        })
    }

    fn ahead(&mut self, count: usize) -> Option<&mut [u8]> {
        let at = self.next + count;
        (at < self.count).then(|| {
            let from = at * self.size;
            self.memory.bytes_mut(from, from + self.messages[at].msg_len as usize)
        })
    }
}

/// Sends all messages, in as few calls as there can be; how many were refused. What is refused for
/// want of room, at the socket or behind it, is dropped, as on any wire.
///
/// # Safety
/// The messages and what they name are valid.
pub(crate) unsafe fn send_all(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> io::Result<u64> {
    let (mut from, mut refused) = (0, 0);
    while from < messages.len() {
        let rest = &mut messages[from..];
        // SAFETY: the caller vouches for the messages.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                rest.as_mut_ptr(),
                rest.len() as u32,
                libc::MSG_DONTWAIT as _,
            )
        };
        if sent >= 0 {
            from += sent as usize;
            continue;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // The first of the rest is the one that failed.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENETDOWN) => {
                refused += 1;
                from += 1;
            }
            _ => return Err(error),
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_address_is_six_bytes_of_two_digits() {
        assert_eq!(parse_mac("02:00:00:00:00:fE").ok(), Some([2, 0, 0, 0, 0, 0xfe]));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:1", "02:00:00:00:00:01:02", "x2:0"] {
            assert!(parse_mac(wrong).is_err(), "{wrong}");
        }
        assert!(parse_mac("02:00:00:00:00:+5").is_err(), "a sign is no digit");
    }

    #[test]
    fn an_interface_is_one_of_this_network() {
        let lo = interface("lo").expect("every network has it");
        assert_eq!((lo.index, lo.mac), (1, [0; 6]));
        assert!(lo.mtu >= 1500, "{}", lo.mtu);
        for wrong in ["", "none-such", "sixteen-letters1"] {
            let Err(why) = interface(wrong) else { panic!("{wrong:?} is one") };
            assert!(why.to_string().contains(wrong), "{why}");
        }
    }

    #[test]
    fn slots_hold_a_frame_of_the_mtu_and_blocks_are_whole_pages() {
        for mtu in [68, 1500, 4096, 9000, 65535] {
            let slot = slot_size(mtu);
            assert!(slot >= 66 + 18 + mtu, "{mtu}");
            assert_eq!(slot * FRAMES_A_BLOCK % 4096, 0, "{mtu}");
        }
    }
}
