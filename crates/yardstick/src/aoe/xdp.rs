//! The bare responder over AF_XDP in copy mode: frames arrive in and leave from memory shared with the kernel.
//!
//! One thread, one queue. A turn: every received frame, up to a batch, is answered into chunks of our own,
//! all of them go to the transmit ring, and calls of `sendto` make the kernel take them; then, with nothing
//! received, one `poll`. Frames larger than a chunk lie in several (XDP_USE_SG). The program that steers
//! AoE here is in `xdp/program.rs`, the four rings in `xdp/rings.rs`. Needs CAP_NET_ADMIN, CAP_BPF and
//! CAP_NET_RAW. Errors: those of the system calls. Units: bytes.

mod program;
mod rings;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::packet::{BATCH, Interface, interface, option, wait_readable};
use super::responder::{Disk, Options, Reply};
use super::wire::{ATA_HEAD, FRAME_MIN, Head};
use crate::memory::Area;
use program::Program;
use rings::{Consumer, Rings};

/// What the kernel leaves free at the front of a chunk that it fills (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// Chunks that a frame takes at most: one of 9,000 bytes and a little takes three.
const PIECES: usize = 4;
/// Entries of each ring. Every chunk fits into each of them.
const ENTRIES: u32 = 2048;
/// How long a queue that another socket has just left may stay busy.
const RELEASE: Duration = Duration::from_secs(5);
/// Frames that the kernel may take from the transmit ring in one call (XDP_MAX_TX_SKB_BUDGET, Linux 6.17).
const BUDGET_OPTION: i32 = 9;

/// Answers over AF_XDP until the time is over or a signal ends it.
pub(super) fn run(options: &Options) -> Result<()> {
    let mut link = Link::open(&options.interface, options.frames)?;
    let buffers = options.frames.min(usize::from(u16::MAX)) as u16 - 1;
    let mut disk = Disk::new(options, link.interface, buffers)?;
    disk.announce(options, link.receives);
    let end = options.time.map(|time| Instant::now() + time);
    loop {
        if link.turn(&mut disk)? > 0 {
            continue;
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            println!("{}", json!({"served": disk.served}));
            return Ok(());
        }
        link.wait(left.map_or(-1, |left| left.as_millis().min(1000) as i32 + 1))?;
    }
}

/// A bound AF_XDP socket with its memory and its program.
struct Link {
    /// Steers frames here; goes first.
    _program: Program,
    rings: Rings,
    socket: OwnedFd,
    memory: Area,
    chunk: usize,
    /// Chunks for frames on their way out.
    free: Vec<u64>,
    interface: Interface,
    receives: &'static str,
}

impl Link {
    fn open(name: &str, frames: usize) -> Result<Self> {
        // SAFETY: a plain system call; the descriptor is checked and then owned.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        ensure!(fd >= 0, "no AF_XDP socket: {}", io::Error::last_os_error());
        // SAFETY: just made, owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let interface = interface(name)?;
        let frame = interface.mtu + 18;
        let chunk = if frame + HEADROOM <= 2048 { 2048 } else { 4096 };
        let pieces = frame.div_ceil(chunk - HEADROOM);
        ensure!(pieces <= PIECES, "an MTU of {} takes more than {PIECES} chunks", interface.mtu);
        let incoming = frames * pieces;
        let outgoing = 4 * BATCH * pieces;
        ensure!(incoming.max(outgoing) <= ENTRIES as usize, "{frames} frames are too many");
        let memory = Area::new((incoming + outgoing) * chunk, true).context("cannot map memory")?;
        register(&socket, &memory, chunk)?;
        let mut rings = Rings::new(&socket, ENTRIES)?;
        let place = |number: usize| (number * chunk) as u64;
        for number in 0..incoming {
            rings.fill.push(place(number));
        }
        rings.fill.publish();
        bind(&socket, interface.index, pieces > 1)?;
        // Without the option, of newer kernels, a call takes 32 frames and is repeated.
        let _ = option(&socket, libc::SOL_XDP, BUDGET_OPTION, &(BATCH as u32 * PIECES as u32));
        let (program, receives) = Program::attach(interface.index, &socket, pieces > 1)?;
        Ok(Self {
            _program: program,
            rings,
            socket,
            memory,
            chunk,
            free: (incoming..incoming + outgoing).map(place).collect(),
            interface,
            receives,
        })
    }

    /// Answers a batch of frames; returns how many there were.
    fn turn(&mut self, disk: &mut Disk) -> Result<usize> {
        while let Some(chunk) = self.rings.completion.pop() {
            self.free.push(chunk);
        }
        self.rings.completion.publish();
        let mut handled = 0;
        let mut head: Head = [0; FRAME_MIN];
        // A turn leaves room for the largest answers.
        while handled < BATCH && self.free.len() >= PIECES {
            let mut pieces: [&[u8]; PIECES] = [&[]; PIECES];
            let mut chunks = [0; PIECES];
            let count = take(&mut self.rings.receive, &self.memory, &mut pieces, &mut chunks);
            if count == 0 {
                break;
            }
            let reply = disk.answer(pieces[0], &pieces[1..count], &mut head);
            for chunk in &chunks[..count] {
                self.rings.fill.push(chunk & !(self.chunk as u64 - 1));
            }
            match reply {
                Reply::None => {}
                Reply::Head => self.emit(&head, &[]),
                Reply::Data { data, len } => {
                    // SAFETY: the disk vouches for `len` bytes at `data`, which nobody writes meanwhile.
                    let data = unsafe { std::slice::from_raw_parts(data, len) };
                    self.emit(&head[..ATA_HEAD], data);
                }
            }
            handled += 1;
        }
        if handled == 0 && self.free.len() < PIECES {
            // Everything is on its way out: let the kernel go on.
            handled = 1;
        }
        self.rings.receive.publish();
        self.rings.fill.publish();
        self.rings.transmit.publish();
        self.kick()?;
        Ok(handled)
    }

    /// Copies a frame into chunks and puts them into the transmit ring.
    fn emit(&mut self, head: &[u8], data: &[u8]) {
        let mut at = self.free.pop().expect("a turn begins with chunks for the largest frame");
        self.memory.store(at as usize, head);
        let mut used = head.len();
        let mut rest = data;
        loop {
            let part = rest.len().min(self.chunk - used);
            self.memory.store(at as usize + used, &rest[..part]);
            rest = &rest[part..];
            let options = if rest.is_empty() { 0 } else { libc::XDP_PKT_CONTD };
            let len = (used + part) as u32;
            self.rings.transmit.push(libc::xdp_desc { addr: at, len, options });
            if rest.is_empty() {
                return;
            }
            at = self.free.pop().expect("a turn begins with chunks for the largest frame");
            used = 0;
        }
    }

    /// Makes the kernel send what is in the transmit ring.
    fn kick(&mut self) -> Result<()> {
        while self.rings.transmit.pending() {
            // SAFETY: no data and no address are passed.
            let sent = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // More than one call takes, or the interface is full: go on.
                    Some(libc::EAGAIN | libc::EBUSY | libc::EINTR) => {}
                    // No memory, or the interface is down: the next turn tries again.
                    Some(libc::ENOBUFS | libc::ENETDOWN) => return Ok(()),
                    _ => return Err(error).context("sendto"),
                }
            }
        }
        Ok(())
    }

    fn wait(&self, timeout_ms: i32) -> io::Result<()> {
        wait_readable(&self.socket, timeout_ms)
    }
}

/// Takes the chunks of one frame; returns how many there are, or none when no whole frame is there.
/// What has more chunks than fit keeps the first.
fn take<'a>(
    ring: &mut Consumer<libc::xdp_desc>,
    memory: &'a Area,
    pieces: &mut [&'a [u8]; PIECES],
    chunks: &mut [u64; PIECES],
) -> usize {
    let mut count = 0;
    while let Some(desc) = ring.pop() {
        if count < PIECES {
            let from = desc.addr as usize;
            pieces[count] = memory.bytes(from, from + desc.len as usize);
            chunks[count] = desc.addr;
            count += 1;
        }
        if desc.options & libc::XDP_PKT_CONTD == 0 {
            break;
        }
    }
    count
}

/// Lends the memory to the kernel in chunks.
fn register(socket: &OwnedFd, memory: &Area, chunk: usize) -> Result<()> {
    let base = memory.at(0, memory.len()).context("the area has a base")?;
    // SAFETY: xdp_umem_reg is plain data for which all zeroes is a value.
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    registration.addr = base as u64;
    registration.len = memory.len() as u64;
    registration.chunk_size = chunk as u32;
    // The area stays mapped longer than the socket: fields drop in their order.
    option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
        .context("the kernel refuses the memory")
}

fn bind(socket: &OwnedFd, index: i32, several: bool) -> Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | if several { libc::XDP_USE_SG } else { 0 },
        sxdp_ifindex: index as u32,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    // The kernel lets go of a queue some time after its last socket was closed.
    let end = Instant::now() + RELEASE;
    loop {
        // SAFETY: the address lives through the call and its length is its own.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        ensure!(
            error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end,
            "cannot bind to the interface's queue: {error}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
