//! Memory of AF_XDP sockets (a UMEM), in chunks: what is received lies there, and what is sent. The links of
//! a shard that send frames on share one, so that a frame leaves from where it came.
//!
//! ```text
//!             +---------------- instead ----------------+
//!             v                                         |
//!   free --> to be received into --> shown --> sent on (another socket's) --> done --> free
//!     |                                +-> to be received into
//!     +-----> sent (what began here, or came elsewhere) ---------------------> done --> free
//! ```
//! A socket that a frame was taken from has another chunk `instead`, so that each always has as many to
//! receive into. What a socket that is gone had to receive into is free again once another one is bound to the
//! same queue: only then the kernel has surely let go of it, also where a process that was started meanwhile
//! had the descriptor. What it had not finished sending is lost to this memory, since the interface may still read
//! it. Where there are too few chunks left for another link, that gets memory of its own.
//!
//! Units: chunks are named by where they begin. Errors: of the system.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use block::ShardId;
use libc::iovec;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::sockopt;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::memory::mapping::Mapping;
use crate::process::lock;

/// Whose a chunk is: nobody's; a socket's, to receive into or shown, by its [`Seat`]; the same with this
/// bit, to send from; or of a socket that is gone.
const FREE: u8 = 0;
const SENT: u8 = 0x80;
const LOST: u8 = u8::MAX;
/// Sockets that may ever have had a place in a memory.
const SEATS_MAX: usize = 100;

/// The memory.
pub(super) struct Umem {
    memory: Mapping,
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    owners: Box<[AtomicU8]>,
    pool: Mutex<Pool>,
}

/// Chunks that are nobody's, and who has the others.
pub(super) struct Pool {
    free: Vec<u64>,
    /// In place of those that were sent from where they were received.
    instead: Vec<u64>,
    seats: Vec<Taken>,
}

/// A socket's part in a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat(u8);

/// A seat that was taken.
struct Taken {
    /// The interface and its queue.
    at: (i32, u32),
    socket: Weak<OwnedFd>,
}

impl Umem {
    /// Memory of so many chunks, all free, which `socket` registers.
    pub(super) fn register(socket: &OwnedFd, chunk: u32, chunks: u32) -> Result<Arc<Umem>, Errno> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let memory = Mapping::anonymous((chunks * chunk) as usize, both, MapFlags::empty())?;
        memory.prefer_large_pages();
        let region = XdpUmemReg {
            addr: memory.base() as u64,
            len: memory.len() as u64,
            chunk_size: chunk,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(socket, region)?;
        Ok(Arc::new(Umem::over(memory, chunk)))
    }

    fn over(memory: Mapping, chunk: u32) -> Umem {
        let chunks = memory.len() as u64 / u64::from(chunk);
        // The first is taken first: few chunks in use are few lines in a cache.
        let free = (0..chunks).rev().map(|number| number * u64::from(chunk)).collect();
        let pool = Pool { free, instead: Vec::new(), seats: Vec::new() };
        let owners = (0..chunks).map(|_| AtomicU8::new(FREE)).collect();
        Umem { memory, chunk, owners, pool: Mutex::new(pool) }
    }

    #[inline]
    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }

    /// Where byte `at` lies, of `length` that must be there.
    #[inline]
    pub(super) fn at(&self, at: u64, length: u32) -> *mut u8 {
        self.memory.at(at, length)
    }

    /// The chunk in which a byte lies.
    #[inline]
    pub(super) fn chunk_of(&self, at: u64) -> u64 {
        at & !u64::from(self.chunk - 1)
    }

    #[inline]
    fn owner(&self, chunk: u64) -> &AtomicU8 {
        &self.owners[(chunk / u64::from(self.chunk)) as usize]
    }

    /// Where in this memory bytes begin, if they lie there.
    #[inline]
    pub(super) fn place_of(&self, bytes: &iovec) -> Option<u64> {
        let at = bytes.iov_base.addr().wrapping_sub(self.memory.base().addr());
        (at < self.memory.len()).then_some(at as u64)
    }

    /// A socket that is bound to a queue takes part. `None`: too many have, or there are fewer than so many
    /// chunks free.
    pub(super) fn sit_down(
        &self,
        socket: &Arc<OwnedFd>,
        at: (i32, u32),
        chunks: usize,
    ) -> Option<Seat> {
        let mut pool = self.pool();
        let taken = Taken { at, socket: Arc::downgrade(socket) };
        let seat = match pool.seats.iter().position(|seat| seat.at == at) {
            Some(before) => {
                pool.seats[before] = taken;
                let seat = Seat(before as u8 + 1);
                self.reclaim(&mut pool, seat);
                seat
            }
            None if pool.seats.len() == SEATS_MAX => return None,
            None => {
                pool.seats.push(taken);
                Seat(pool.seats.len() as u8)
            }
        };
        (pool.free.len() >= chunks).then_some(seat)
    }

    /// The one that had a seat is gone, and another one is bound in its place.
    fn reclaim(&self, pool: &mut Pool, Seat(seat): Seat) {
        for (number, owner) in (0..).zip(&self.owners) {
            match owner.load(Relaxed) {
                this if this == seat => {
                    owner.store(FREE, Relaxed);
                    pool.free.push(number * u64::from(self.chunk));
                }
                this if this == seat | SENT => owner.store(LOST, Relaxed),
                _ => {}
            }
        }
    }

    /// A chunk to receive into.
    pub(super) fn take_to_receive(&self, pool: &mut Pool, Seat(seat): Seat) -> Option<u64> {
        let chunk = pool.free.pop()?;
        self.owner(chunk).store(seat, Relaxed);
        Some(chunk)
    }

    /// Chunks to send from that could be had.
    #[inline]
    pub(super) fn count_free(pool: &Pool) -> usize {
        pool.free.len()
    }

    /// A chunk to send from, of which there must be one.
    #[inline]
    pub(super) fn take_to_send(&self, pool: &mut Pool, Seat(seat): Seat) -> u64 {
        let chunk = pool.free.pop().expect("they were counted");
        self.owner(chunk).store(seat | SENT, Relaxed);
        chunk
    }

    /// A chunk that was received into, and is shown, is sent by this one; whoever it is of gets
    /// another. `false`: there is no other.
    #[inline]
    pub(super) fn send_on(&self, pool: &mut Pool, Seat(seat): Seat, chunk: u64) -> bool {
        let Some(other) = pool.free.pop() else { return false };
        // Of what is lent nobody else says whose it is: a store is enough, and cheaper than an exchange.
        let owner = self.owner(chunk);
        let before = owner.load(Relaxed);
        assert!(before != FREE && before & SENT == 0, "a frame that is lent is sent on once");
        owner.store(seat | SENT, Relaxed);
        pool.instead.push(other);
        true
    }

    /// A chunk that was shown is to be received into again, or the one instead of it.
    #[inline]
    pub(super) fn take_again(&self, pool: &mut Pool, Seat(seat): Seat, chunk: u64) -> u64 {
        if self.owner(chunk).load(Relaxed) == seat {
            return chunk;
        }
        let other = pool.instead.pop().expect("one for each that was sent on");
        self.owner(other).store(seat, Relaxed);
        other
    }

    /// What was in a chunk was sent.
    #[inline]
    pub(super) fn sent(&self, pool: &mut Pool, chunk: u64) {
        self.owner(chunk).store(FREE, Relaxed);
        pool.free.push(chunk);
    }
}

/// Memories that links of a shard may join.
#[derive(Default)]
pub(crate) struct Umems(Mutex<Vec<Shared>>);

struct Shared {
    shard: ShardId,
    /// Frames may lie in several chunks.
    pieces: bool,
    umem: Weak<Umem>,
}

impl Umems {
    /// Those with chunks of this size for such frames, each with a socket that is bound.
    pub(super) fn of(
        &self,
        shard: ShardId,
        chunk: u32,
        pieces: bool,
    ) -> Vec<(Arc<Umem>, Arc<OwnedFd>)> {
        let mut all = lock(&self.0);
        all.retain(|shared| shared.umem.strong_count() > 0);
        let fits = all.iter().filter(|shared| (shared.shard, shared.pieces) == (shard, pieces));
        let umems = fits.filter_map(|shared| shared.umem.upgrade());
        let bound = umems.filter(|umem| umem.chunk == chunk).filter_map(|umem| {
            let socket = umem.pool().seats.iter().find_map(|seat| seat.socket.upgrade())?;
            Some((umem, socket))
        });
        bound.collect()
    }

    /// Others may join.
    pub(super) fn add(&self, shard: ShardId, pieces: bool, umem: &Arc<Umem>) {
        lock(&self.0).push(Shared { shard, pieces, umem: Arc::downgrade(umem) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u32 = 4096;

    fn umem(chunks: u32) -> Umem {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = (chunks * CHUNK) as usize;
        Umem::over(Mapping::anonymous(bytes, both, MapFlags::empty()).unwrap(), CHUNK)
    }

    fn socket() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/dev/null").unwrap().into())
    }

    fn free(umem: &Umem) -> usize {
        Umem::count_free(&umem.pool())
    }

    #[test]
    fn who_lends_a_chunk_gets_another_and_none_is_in_two_hands() {
        let it = umem(8);
        let sockets = [socket(), socket()];
        let [one, other] = [0, 1].map(|at| it.sit_down(&sockets[at], (at as i32, 0), 4).unwrap());
        assert_ne!(one, other);
        let chunks: Vec<u64> =
            (0..3).map(|_| it.take_to_receive(&mut it.pool(), one).unwrap()).collect();
        assert!(it.send_on(&mut it.pool(), other, chunks[1]));
        let again: Vec<u64> =
            chunks.iter().map(|chunk| it.take_again(&mut it.pool(), one, *chunk)).collect();
        assert_eq!([again[0], again[2]], [chunks[0], chunks[2]]);
        assert!(!chunks.contains(&again[1]) && free(&it) == 4);
        it.sent(&mut it.pool(), chunks[1]);
        assert_eq!(free(&it), 5);
        // Of what is sent by copying, too.
        let copied = it.take_to_send(&mut it.pool(), other);
        assert!(!again.contains(&copied) && free(&it) == 4);
        it.sent(&mut it.pool(), copied);
        while it.take_to_receive(&mut it.pool(), other).is_some() {}
        assert!(!it.send_on(&mut it.pool(), other, again[0]), "there is none instead");
        assert_eq!(it.take_again(&mut it.pool(), one, again[0]), again[0]);
    }

    #[test]
    #[should_panic(expected = "sent on once")]
    fn a_frame_is_not_sent_on_twice() {
        let it = umem(8);
        let socket = socket();
        let seat = it.sit_down(&socket, (1, 0), 4).unwrap();
        let chunk = it.take_to_receive(&mut it.pool(), seat).unwrap();
        assert!(it.send_on(&mut it.pool(), seat, chunk));
        it.send_on(&mut it.pool(), seat, chunk);
    }

    #[test]
    fn what_one_had_is_free_once_another_is_bound_to_its_queue_but_for_what_may_be_read() {
        let it = umem(8);
        let (first, beside) = (socket(), socket());
        let seat = it.sit_down(&first, (1, 0), 8).unwrap();
        let other = it.sit_down(&beside, (2, 0), 8).unwrap();
        let chunks: Vec<u64> =
            (0..4).map(|_| it.take_to_receive(&mut it.pool(), seat).unwrap()).collect();
        let theirs = it.take_to_receive(&mut it.pool(), other).unwrap();
        it.take_to_send(&mut it.pool(), seat);
        assert!(it.send_on(&mut it.pool(), other, chunks[0]));
        it.take_again(&mut it.pool(), seat, chunks[0]);
        assert_eq!(free(&it), 1);
        drop(first);
        assert_eq!(free(&it), 1, "who knows who has its descriptor");
        assert!(it.sit_down(&socket(), (3, 0), 2).is_none(), "too few are free");
        let again = socket();
        assert_eq!(it.sit_down(&again, (1, 0), 5), Some(seat));
        // All but the one that is sent by it, and those of the other.
        let mut left: Vec<u64> =
            std::iter::from_fn(|| it.take_to_receive(&mut it.pool(), seat)).collect();
        assert!(!left.contains(&theirs) && !left.contains(&chunks[0]));
        left.sort_unstable();
        left.dedup();
        assert_eq!(left.len(), 5);
    }

    #[test]
    fn only_links_of_a_shard_with_frames_of_a_kind_share() {
        let umems = Umems::default();
        let it = Arc::new(umem(8));
        umems.add(ShardId(1), true, &it);
        assert!(umems.of(ShardId(1), CHUNK, true).is_empty(), "no socket is bound");
        let socket = socket();
        it.sit_down(&socket, (1, 0), 4).unwrap();
        let found = |shard, chunk, pieces| umems.of(ShardId(shard), chunk, pieces).len();
        assert_eq!(found(1, CHUNK, true), 1);
        assert_eq!([found(0, CHUNK, true), found(1, 2048, true), found(1, CHUNK, false)], [0; 3]);
        drop(socket);
        assert_eq!(found(1, CHUNK, true), 0);
    }
}
