//! How a queue of an interface gets its socket: rings, memory of its own or one that another link of the shard
//! has, and the binding.
//!
//! In: what is wanted. Out: a queue that receives once the door's program knows its socket. Errors: of the
//! system, in words; a memory that cannot be joined is no error.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::ShardId;
use rustix::io::Errno;
use rustix::net::xdp::{self, SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::rings::Ring;
use super::umem::{Umem, Umems, Want};
use super::{Queue, RECEIVE_CHUNKS, SEND_CHUNKS, Sending, packet, program};

/// Chunks of a memory that links share: four interfaces' with one queue each.
const SHARED_CHUNKS: u32 = 4 * (RECEIVE_CHUNKS + SEND_CHUNKS);
/// Descriptors that one call may send (XDP_MAX_TX_SKB_BUDGET, of recent kernels); else it is 32.
const SEND_BUDGET_OPTION: i32 = 9;
/// How long a queue may be held by a socket that was closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket that has no memory yet.
struct Begun {
    socket: Arc<OwnedFd>,
    sends: bool,
}

impl Begun {
    /// One for this queue of an interface; the first one sends.
    fn new(number: u32) -> io::Result<Begun> {
        Ok(Begun { socket: Arc::new(new_socket()?), sends: number == 0 })
    }

    /// Chunks that it may have on their way.
    fn sends_from(&self) -> u32 {
        if self.sends { SEND_CHUNKS } else { 0 }
    }

    /// Gives it rings and binds it, with the memory that it has registered, or that of another one. `None`:
    /// that has too few chunks left.
    fn bind(
        self,
        number: u32,
        wanted: &Wanted<'_>,
        umem: Arc<Umem>,
        with: Option<&OwnedFd>,
    ) -> io::Result<Option<Queue>> {
        let needed = RECEIVE_CHUNKS + self.sends_from();
        let Begun { socket, sends } = self;
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, RECEIVE_CHUNKS)?;
        // The kernel wants this ring of every socket.
        sockopt::set_xdp_umem_completion_ring_size(&socket, SEND_CHUNKS)?;
        sockopt::set_xdp_rx_ring_size(&socket, RECEIVE_CHUNKS)?;
        let mut fill = Ring::new(&socket, xdp::XDP_UMEM_PGOFF_FILL_RING, &at.fr, RECEIVE_CHUNKS)?;
        let done = Ring::new(&socket, xdp::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, SEND_CHUNKS)?;
        let receive = Ring::new(&socket, xdp::XDP_PGOFF_RX_RING, &at.rx, RECEIVE_CHUNKS)?;
        bind_when_free(&socket, number, wanted, with)?;
        let sending =
            if sends { Some(Sending::open(&socket, number, wanted, done)?) } else { None };
        let mut pool = umem.pool();
        let at = (wanted.interface, number);
        let Some(seat) = pool.sit_down(&socket, at, needed as usize) else { return Ok(None) };
        for _ in 0..RECEIVE_CHUNKS {
            fill.write(pool.take_to_receive(seat).expect("they were counted"));
        }
        drop(pool);
        fill.publish();
        Ok(Some(Queue { fill, receive, sending, socket, umem, seat, shown: Vec::new() }))
    }
}

impl Sending {
    /// The half of a queue that sends, beside the one that receives and is bound: a socket by itself, which
    /// nobody watches (decision 0030).
    fn open(
        receives: &OwnedFd,
        number: u32,
        wanted: &Wanted<'_>,
        done: Ring<u64>,
    ) -> io::Result<Sending> {
        let socket = new_socket()?;
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        sockopt::set_xdp_tx_ring_size(&socket, SEND_CHUNKS)?;
        let send = Ring::new(&socket, xdp::XDP_PGOFF_TX_RING, &at.tx, SEND_CHUNKS)?;
        // Both make calls fewer; the chunks bound what is sent anyway.
        let fd = socket.as_raw_fd();
        let _ = packet::set_option(fd, libc::SOL_XDP, SEND_BUDGET_OPTION, &SEND_CHUNKS);
        packet::set_send_buffer(fd)?;
        bind(&socket, number, wanted, Some(receives))?;
        Ok(Sending { send, done, socket })
    }
}

/// What an interface's queues are to have.
pub(super) struct Wanted<'u> {
    pub(super) interface: i32,
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Whether frames may lie in several chunks.
    pub(super) pieces: bool,
    /// The memories that may be shared, with those of which shard.
    pub(super) sharing: Option<(&'u Umems, ShardId)>,
}

impl Queue {
    pub(super) fn open(number: u32, wanted: &Wanted<'_>) -> io::Result<Queue> {
        let &Wanted { interface, chunk, pieces, sharing } = wanted;
        let begun = Begun::new(number)?;
        let own = RECEIVE_CHUNKS + begun.sends_from();
        let (at, needed) = ((interface, number), own as usize);
        let shared = sharing
            .and_then(|(umems, shard)| umems.find(Want { shard, chunk, pieces, at, needed }));
        let begun = match shared {
            None => begun,
            Some((umem, with)) => match begun.bind(number, wanted, umem, Some(&with)) {
                Ok(Some(queue)) => return Ok(queue),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(error),
                // Another one was quicker, or its socket is gone, or the kernel is older than 5.10: memory of its own
                // serves as well, but for a copy.
                Ok(None) | Err(_) => Begun::new(number)?,
            },
        };
        // Where so much may not be had, it is for one alone.
        let large = sharing.and_then(|(umems, shard)| {
            let umem = Umem::register(&begun.socket, chunk, SHARED_CHUNKS.max(own)).ok()?;
            Some((umem, umems, shard))
        });
        let umem = match &large {
            Some((umem, ..)) => umem.clone(),
            None => Umem::register(&begun.socket, chunk, own)
                .map_err(|errno| too_much(errno, own * chunk))?,
        };
        let queue = begun.bind(number, wanted, umem, None)?.expect("it has chunks for one");
        if let Some((umem, umems, shard)) = large {
            umems.add(shard, pieces, &umem);
        }
        Ok(queue)
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|errno| program::explain(errno.into()))
}

/// Binds a socket to a queue. The kernel lets go of a queue some time after the close of the socket
/// that had it (`xp_release_deferred`), so a link that is opened again may have to wait for its own
/// past.
fn bind_when_free(
    socket: &OwnedFd,
    queue: u32,
    wanted: &Wanted<'_>,
    with: Option<&OwnedFd>,
) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match bind(socket, queue, wanted, with) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < PATIENCE =>
            {
                std::thread::sleep(PATIENCE / 2000);
            }
            other => return other,
        }
    }
}

/// `with`: a socket that is bound, whose memory it shares.
fn bind(
    socket: &OwnedFd,
    queue: u32,
    wanted: &Wanted<'_>,
    with: Option<&OwnedFd>,
) -> io::Result<()> {
    let to = |flags| SocketAddrXdp::new(flags, wanted.interface as u32, queue);
    let bound = match with {
        None => {
            let mut flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            flags.set(SocketAddrXdpFlags::XDP_USE_SG, wanted.pieces);
            rustix::net::bind(socket, &to(flags))
        }
        // All else is as it was bound.
        Some(with) => {
            let (addr, shared_umem_fd) = (to(SocketAddrXdpFlags::XDP_SHARED_UMEM), with.as_fd());
            rustix::net::bind(socket, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })
        }
    };
    bound.map_err(|errno| match errno {
        Errno::BUSY => {
            let text = format!("queue {queue} of the interface has an AF_XDP socket already");
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        }
        errno => program::explain(errno.into()),
    })
}

/// Says what to do when memory may not be locked.
fn too_much(errno: Errno, bytes: u32) -> io::Error {
    if errno != Errno::NOBUFS {
        return program::explain(errno.into());
    }
    let mebibytes = bytes >> 20;
    let text = format!(
        "AF_XDP locks {mebibytes} MiB of memory for each receive queue, more than this process may: raise the limit (`ulimit -l`, or LimitMEMLOCK in a systemd unit), or use packet sockets"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}
