//! The forwarder over AF_XDP: frames are changed and sent where they were received.
//!
//! Two sockets share a piece of memory, so nothing is copied here; the kernel copies into a chunk
//! and out of one, in its copying mode, which every driver has. A chunk goes round: filled at one
//! interface, received, sent at the other, done, and back to be filled.
//!
//! ```text
//!            +-- receive --> (changed) -- send --+
//!   in socket                                     out socket
//!            +-- fill <----------------- done <--+
//! ```
//!
//! The program at the interface's door gives every frame of the queue to the socket: the link has
//! no other user. Queue 0 alone is used, which is all that a veth has unless told otherwise.
//! Errors: those of the system calls, with what was tried; no frame longer than a chunk.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use libc::xdp_desc;
use rustix::net::xdp::{
    self, SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with, sockopt};

use super::forward::Way;
use super::frame::{Swap, is_labelled};
use crate::memory::Area;
use crate::packet::{self, BATCH, Mac};

const CHUNK: u32 = 4096;
/// Chunks, and entries of each ring, so that no ring is ever full: twice what the queue of a veth
/// holds, in memory that a second-level cache nearly holds, since of a chunk a third is used.
const CHUNKS: u32 = 512;
/// What the kernel leaves free in front of a received frame (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// Descriptors that one call may send (XDP_MAX_TX_SKB_BUDGET, of recent kernels); else it is 32.
const SEND_BUDGET_OPTION: c_int = 9;

/// Both sockets.
pub(super) struct Sockets {
    fill: Ring<u64>,
    receive: Ring<xdp_desc>,
    send: Ring<xdp_desc>,
    done: Ring<u64>,
    /// Of the other halves, which are not used: the kernel wants these rings of every socket.
    _unused: (Ring<u64>, Ring<u64>),
    incoming: OwnedFd,
    outgoing: OwnedFd,
    memory: Area,
    /// Labelled frames that were taken.
    labelled: u64,
    /// Address of the interface that sends.
    pub(super) from: Mac,
    /// The door's program; it goes with this.
    _door: (OwnedFd, OwnedFd),
}

impl Sockets {
    pub(super) fn open(incoming: &str, outgoing: &str) -> Result<Self> {
        let [receives, sends] = [packet::interface(incoming)?, packet::interface(outgoing)?];
        ensure!(
            receives.mtu + 18 + HEADROOM <= CHUNK as usize,
            "{incoming} has an MTU of {}: its frames do not fit a chunk",
            receives.mtu
        );
        let mut memory = Area::new((CHUNKS * CHUNK) as usize, true).context("no memory")?;
        let base = memory.bytes_mut(0, 0).as_mut_ptr();
        let (incoming, outgoing) = (socket()?, socket()?);
        let region = XdpUmemReg {
            addr: base as u64,
            len: memory.len() as u64,
            chunk_size: CHUNK,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&incoming, region).context("AF_XDP may not lock its memory")?;
        for socket in [&incoming, &outgoing] {
            sockopt::set_xdp_umem_fill_ring_size(socket, CHUNKS)?;
            sockopt::set_xdp_umem_completion_ring_size(socket, CHUNKS)?;
        }
        sockopt::set_xdp_rx_ring_size(&incoming, CHUNKS)?;
        sockopt::set_xdp_tx_ring_size(&outgoing, CHUNKS)?;
        let at = sockopt::xdp_mmap_offsets(&incoming)?;
        let mut fill = Ring::new(&incoming, xdp::XDP_UMEM_PGOFF_FILL_RING, &at.fr)?;
        let receive = Ring::new(&incoming, xdp::XDP_PGOFF_RX_RING, &at.rx)?;
        let done = Ring::new(&outgoing, xdp::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr)?;
        let send = Ring::new(&outgoing, xdp::XDP_PGOFF_TX_RING, &at.tx)?;
        let unused = (
            Ring::new(&incoming, xdp::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr)?,
            Ring::new(&outgoing, xdp::XDP_UMEM_PGOFF_FILL_RING, &at.fr)?,
        );
        // Makes calls fewer; kernels that do not know it send as much in more of them.
        let _ = packet::option(&outgoing, libc::SOL_XDP, SEND_BUDGET_OPTION, &CHUNKS);
        packet::enlarge_send_buffer(&outgoing);
        (0..CHUNKS).for_each(|chunk| fill.write(u64::from(chunk * CHUNK)));
        fill.publish();
        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        rustix::net::bind(&incoming, &SocketAddrXdp::new(flags, receives.index as u32, 0))
            .context("cannot bind to the interface that receives")?;
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        let address = SocketAddrXdp::new(flags, sends.index as u32, 0);
        let shared_umem_fd = incoming.as_fd();
        rustix::net::bind(
            &outgoing,
            &SocketAddrXdpWithSharedUmem { addr: address, shared_umem_fd },
        )
        .context("cannot bind to the interface that sends")?;
        let door = attach(receives.index, &incoming)?;
        Ok(Self {
            fill,
            receive,
            send,
            done,
            _unused: unused,
            incoming,
            outgoing,
            memory,
            labelled: 0,
            from: sends.mac,
            _door: door,
        })
    }

    /// Has the kernel send what is in the ring.
    fn kick(&mut self) {
        loop {
            let before = self.send.untaken();
            if before == 0 {
                return;
            }
            // What it says is what became of the last frame; what counts is what was taken.
            let _ = send(&self.outgoing, &[], SendFlags::DONTWAIT);
            if self.send.untaken() == before {
                return;
            }
        }
    }
}

impl Way for Sockets {
    fn turn(&mut self, swap: Option<&Swap>) -> Result<bool> {
        let back = self.done.waiting();
        (0..back).for_each(|at| self.fill.write(chunk_of(self.done.peek(at))));
        self.done.take(back);
        let taken = self.receive.waiting().min(BATCH as u32);
        for at in 0..taken {
            let piece = self.receive.peek(at);
            let from = piece.addr as usize;
            let frame = self.memory.bytes_mut(from, from + piece.len as usize);
            if is_labelled(frame) {
                if let Some(swap) = swap {
                    swap.apply(frame);
                }
                self.send.write(xdp_desc { options: 0, ..piece });
                self.labelled += 1;
            } else {
                self.fill.write(chunk_of(piece.addr));
            }
        }
        self.receive.take(taken);
        self.fill.publish();
        self.send.publish();
        self.kick();
        // What could not be sent is tried again before anybody sleeps.
        Ok(taken > 0 || self.send.untaken() > 0)
    }

    fn watched(&self) -> BorrowedFd<'_> {
        self.incoming.as_fd()
    }

    fn forwarded(&self) -> u64 {
        self.labelled - u64::from(self.send.untaken())
    }

    /// What the interface does not take is not told.
    fn refused(&self) -> u64 {
        0
    }

    fn dropped(&self) -> u64 {
        sockopt::xdp_statistics(&self.incoming).map_or(0, |seen| {
            seen.rx_dropped
                + seen.rx_ring_full.unwrap_or(0)
                + seen.rx_fill_ring_empty_descs.unwrap_or(0)
        })
    }
}

/// Where the chunk begins in which a frame lies.
fn chunk_of(address: u64) -> u64 {
    address - address % u64::from(CHUNK)
}

fn socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .context("no AF_XDP socket (it takes CAP_NET_RAW, and CONFIG_XDP_SOCKETS)")
}

/// A ring shared with the kernel, of which we are the writer or the reader: a power of two of
/// entries, and two counters that only grow, modulo 2^32.
struct Ring<T> {
    memory: Area,
    producer: usize,
    consumer: usize,
    entries: usize,
    /// Our own counter.
    own: u32,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(socket: &OwnedFd, page: u64, at: &XdpRingOffset) -> io::Result<Self> {
        let len = at.desc as usize + CHUNKS as usize * size_of::<T>();
        Ok(Self {
            memory: Area::shared(socket, len, page)?,
            producer: at.producer as usize,
            consumer: at.consumer as usize,
            entries: at.desc as usize,
            own: 0,
            kind: PhantomData,
        })
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        let word = self.memory.at(at, 4).expect("the kernel said that it is there");
        // SAFETY: an aligned word of the mapping that kernel and process access as a whole.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut T {
        let at = self.entries + (number & (CHUNKS - 1)) as usize * size_of::<T>();
        self.memory.at(at, size_of::<T>()).expect("there are so many entries").cast()
    }

    /// As the reader: entries that wait.
    #[inline]
    fn waiting(&self) -> u32 {
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(self.own)
    }

    /// As the reader: the entry so many behind the next one, which must wait.
    #[inline]
    fn peek(&self, behind: u32) -> T {
        // SAFETY: the entry lies in the ring and waits: the kernel has written it and leaves it
        // alone until it is taken.
        unsafe { self.entry(self.own.wrapping_add(behind)).read() }
    }

    /// As the reader: gives entries back to the kernel.
    #[inline]
    fn take(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        self.word(self.consumer).store(self.own, Ordering::Release);
    }

    /// As the writer: entries that the kernel has not taken yet.
    #[inline]
    fn untaken(&self) -> u32 {
        self.own.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire))
    }

    /// As the writer: writes an entry, for which there is room, since a ring has one for each
    /// chunk; the kernel sees it by [`Self::publish`].
    #[inline]
    fn write(&mut self, entry: T) {
        // SAFETY: the entry lies in the ring, and the kernel has taken what was there.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// As the writer: lets the kernel see what was written.
    #[inline]
    fn publish(&self) {
        self.word(self.producer).store(self.own, Ordering::Release);
    }
}

const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROGRAM_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The verifier gives up when something interrupts it; so often it is asked again.
const ATTEMPTS: u32 = 5;

/// The program, as the kernel has instructions (`struct bpf_insn`, little-endian registers): the
/// frame goes to the socket of its queue, or, without one, to the stack.
fn program(sockets: c_int) -> [u64; 6] {
    let op = |code: u8, to: u8, from: u8, offset: i16, operand: i32| {
        let registers =
            if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
        let [a, b] = offset.to_ne_bytes();
        let [c, d, e, f] = operand.to_ne_bytes();
        u64::from_ne_bytes([code, registers, a, b, c, d, e, f])
    };
    [
        op(0x61, 2, 1, 16, 0),      // r2 = context.rx_queue_index
        op(0x18, 1, 1, 0, sockets), // r1 = the map, by its descriptor,
        op(0, 0, 0, 0, 0),          //      in two halves
        op(0xb7, 3, 0, 0, 2),       // r3 = XDP_PASS
        op(0x85, 0, 0, 0, 51),      // r0 = bpf_redirect_map(r1, r2, r3)
        op(0x95, 0, 0, 0, 0),       // return r0
    ]
}

/// Loads and attaches the program, and gives it the socket of queue 0. What comes back keeps both.
fn attach(interface: c_int, socket: &OwnedFd) -> Result<(OwnedFd, OwnedFd)> {
    #[repr(C)]
    struct Update {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        ops: u64,
        license: u64,
    }
    // Its kind, bytes of a key and of a value, entries.
    let map = bpf_descriptor(MAP_CREATE, &[MAP_OF_XDP_SOCKETS, 4, 4, 1])
        .context("cannot make the map of sockets (it takes CAP_BPF)")?;
    let (key, value) = (0_u32, socket.as_raw_fd());
    let update = Update {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE, &update).context("cannot give the queue its socket")?;
    let ops = program(map.as_raw_fd());
    let load = Load {
        kind: PROGRAM_XDP,
        count: ops.len() as u32,
        ops: ops.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
    };
    let mut program = bpf_descriptor(PROGRAM_LOAD, &load);
    for _ in 1..ATTEMPTS {
        let Err(error) = &program else { break };
        if error.raw_os_error() != Some(libc::EAGAIN) {
            break;
        }
        program = bpf_descriptor(PROGRAM_LOAD, &load);
    }
    let program = program.context("the kernel refuses the program")?;
    let link = [program.as_raw_fd() as u32, interface as u32, ATTACH_XDP, 0];
    let link = bpf_descriptor(LINK_CREATE, &link).context("cannot attach the program")?;
    Ok((map, link))
}

fn bpf_descriptor<T>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    let size = size_of::<T>() as libc::c_uint;
    // SAFETY: the kernel reads `size` bytes of the attributes, and what they name, which the
    // callers keep for the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}
