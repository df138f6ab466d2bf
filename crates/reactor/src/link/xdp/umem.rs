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
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use block::ShardId;
use libc::iovec;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::sockopt;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::memory::mapping::Mapping;
use crate::process::lock;

/// Sockets that may ever have had a place in a memory.
const SEATS_MAX: usize = 100;

/// The memory.
pub(super) struct Umem {
    memory: Mapping,
    /// Bytes of a chunk, as a power of two.
    chunk_bits: u32,
    pool: Mutex<Pool>,
}

/// Whose each chunk is.
pub(super) struct Pool {
    /// Bytes of a chunk, as a power of two.
    chunk_bits: u32,
    chunks: Vec<Chunk>,
    free: Vec<u64>,
    seats: Vec<Taken>,
}

#[derive(Clone, Copy)]
struct Chunk {
    owner: Owner,
    /// What its socket gets to receive into in place of it, since it was sent on in this turn; else
    /// [`Chunk::NONE`], which is where none begins.
    instead: u32,
}

impl Chunk {
    const NONE: u32 = u32::MAX;

    const fn of(owner: Owner) -> Self {
        Chunk { owner, instead: Self::NONE }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owner {
    #[default]
    Nobody,
    /// To receive into, or shown.
    Receives(Seat),
    Sends(Seat),
    /// A socket that is gone; the interface may still read it.
    Lost,
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
        let pool = Pool::new(chunk, chunks);
        Ok(Arc::new(Umem { memory, chunk_bits: pool.chunk_bits, pool: Mutex::new(pool) }))
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

    /// Bytes of a chunk.
    #[inline]
    pub(super) fn chunk(&self) -> u32 {
        1 << self.chunk_bits
    }

    /// Chunks that so many bytes take.
    #[inline]
    pub(super) fn chunks_for(&self, bytes: usize) -> usize {
        (bytes + self.chunk() as usize - 1) >> self.chunk_bits
    }

    /// The chunk in which a byte lies.
    #[inline]
    pub(super) fn chunk_of(&self, at: u64) -> u64 {
        at >> self.chunk_bits << self.chunk_bits
    }

    /// Where in this memory bytes begin, if they lie there.
    #[inline]
    pub(super) fn place_of(&self, bytes: &iovec) -> Option<u64> {
        let at = bytes.iov_base.addr().wrapping_sub(self.memory.base().addr());
        (at < self.memory.len()).then_some(at as u64)
    }
}

impl Pool {
    fn new(chunk: u32, chunks: u32) -> Pool {
        // The first is taken first: few chunks in use are few lines in a cache.
        let free = (0..chunks).rev().map(|number| u64::from(number * chunk)).collect();
        let all = vec![Chunk::of(Owner::Nobody); chunks as usize];
        Pool { chunk_bits: chunk.ilog2(), chunks: all, free, seats: Vec::new() }
    }

    #[inline]
    fn of(&mut self, chunk: u64) -> &mut Chunk {
        &mut self.chunks[(chunk >> self.chunk_bits) as usize]
    }

    /// The seat of whoever is or was bound to a queue.
    fn seat_at(&self, at: (i32, u32)) -> Option<Seat> {
        self.seats.iter().position(|seat| seat.at == at).map(|before| Seat(before as u8))
    }

    /// Whether a socket that will be bound to this queue finds so many chunks.
    fn has_room(&self, at: (i32, u32), needed: usize) -> bool {
        let seat = self.seat_at(at);
        let owner = seat.map(Owner::Receives);
        let again = self.chunks.iter().filter(|chunk| Some(chunk.owner) == owner).count();
        let is_seat = seat.is_some() || self.seats.len() < SEATS_MAX;
        is_seat && self.free.len() + again >= needed
    }

    /// A socket that is bound to a queue takes part; whoever had its seat is gone. `None`: too many have,
    /// or there are fewer than so many chunks free.
    pub(super) fn sit_down(
        &mut self,
        socket: &Arc<OwnedFd>,
        at: (i32, u32),
        needed: usize,
    ) -> Option<Seat> {
        if !self.has_room(at, needed) {
            return None;
        }
        let taken = Taken { at, socket: Arc::downgrade(socket) };
        let Some(seat) = self.seat_at(at) else {
            self.seats.push(taken);
            return Some(Seat(self.seats.len() as u8 - 1));
        };
        self.seats[usize::from(seat.0)] = taken;
        for (number, chunk) in (0..).zip(&mut self.chunks) {
            if chunk.owner == Owner::Receives(seat) {
                *chunk = Chunk::of(Owner::Nobody);
                self.free.push(number << self.chunk_bits);
            } else if chunk.owner == Owner::Sends(seat) {
                chunk.owner = Owner::Lost;
            }
        }
        Some(seat)
    }

    /// A chunk to receive into.
    pub(super) fn take_to_receive(&mut self, seat: Seat) -> Option<u64> {
        let chunk = self.free.pop()?;
        self.of(chunk).owner = Owner::Receives(seat);
        Some(chunk)
    }

    /// Chunks to send from that could be had.
    #[inline]
    pub(super) fn count_free(&self) -> usize {
        self.free.len()
    }

    /// A chunk to send from, of which there must be one.
    #[inline]
    pub(super) fn take_to_send(&mut self, seat: Seat) -> u64 {
        let chunk = self.free.pop().expect("they were counted");
        self.of(chunk).owner = Owner::Sends(seat);
        chunk
    }

    /// A chunk that was received into, and is shown, is sent by this one; whoever it is of gets
    /// another. `false`: there is no other.
    #[inline]
    pub(super) fn send_on(&mut self, seat: Seat, chunk: u64) -> bool {
        let Some(other) = self.free.pop() else { return false };
        let shown = self.of(chunk);
        assert!(shown.instead == Chunk::NONE, "a frame that is lent is sent on once");
        let Owner::Receives(whose) = shown.owner else {
            panic!("chunk {chunk} is shown, and is of {:?}", shown.owner)
        };
        // It may be sent, free and somebody else's before its turn is over.
        *shown = Chunk { owner: Owner::Sends(seat), instead: other as u32 };
        self.of(other).owner = Owner::Receives(whose);
        true
    }

    /// What is to be received into after a chunk was shown: that one again, or the one instead of it.
    #[inline]
    pub(super) fn take_again(&mut self, chunk: u64) -> u64 {
        match std::mem::replace(&mut self.of(chunk).instead, Chunk::NONE) {
            Chunk::NONE => chunk,
            other => u64::from(other),
        }
    }

    /// What was in a chunk was sent.
    #[inline]
    pub(super) fn sent(&mut self, chunk: u64) {
        self.of(chunk).owner = Owner::Nobody;
        self.free.push(chunk);
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

/// What a socket wants of a memory.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) shard: ShardId,
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Frames may lie in several chunks.
    pub(super) pieces: bool,
    /// The interface and its queue.
    pub(super) at: (i32, u32),
    /// Chunks.
    pub(super) needed: usize,
}

impl Umems {
    /// One that has what is wanted, with a socket that is bound.
    pub(super) fn find(&self, want: Want) -> Option<(Arc<Umem>, Arc<OwnedFd>)> {
        let mut all = lock(&self.0);
        all.retain(|shared| shared.umem.strong_count() > 0);
        let fits = |shared: &&Shared| (shared.shard, shared.pieces) == (want.shard, want.pieces);
        let mut umems = all.iter().filter(fits).filter_map(|shared| shared.umem.upgrade());
        umems.find_map(|umem| {
            let pool = umem.pool();
            let has_room = umem.chunk() == want.chunk && pool.has_room(want.at, want.needed);
            let mut bound = pool.seats.iter().filter_map(|seat| seat.socket.upgrade());
            let socket = bound.next().filter(|_| has_room)?;
            drop(bound);
            drop(pool);
            Some((umem, socket))
        })
    }

    /// Others may join.
    pub(super) fn add(&self, shard: ShardId, pieces: bool, umem: &Arc<Umem>) {
        lock(&self.0).push(Shared { shard, pieces, umem: Arc::downgrade(umem) });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use block::Random;

    use super::*;

    const CHUNK: u32 = 4096;

    fn pool(chunks: u32) -> Pool {
        Pool::new(CHUNK, chunks)
    }

    fn socket() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/dev/null").unwrap().into())
    }

    #[test]
    fn who_lends_a_chunk_gets_another() {
        let mut it = pool(8);
        let sockets = [socket(), socket()];
        let [one, other] = [0, 1].map(|at| it.sit_down(&sockets[at], (at as i32, 0), 4).unwrap());
        assert_ne!(one, other);
        let chunks: Vec<u64> = (0..3).map(|_| it.take_to_receive(one).unwrap()).collect();
        assert!(it.send_on(other, chunks[1]));
        let again: Vec<u64> = chunks.iter().map(|chunk| it.take_again(*chunk)).collect();
        assert_eq!([again[0], again[2]], [chunks[0], chunks[2]]);
        assert!(!chunks.contains(&again[1]) && it.count_free() == 4);
        it.sent(chunks[1]);
        assert_eq!(it.count_free(), 5);
        // Of what is sent by copying, too.
        let copied = it.take_to_send(other);
        assert!(!again.contains(&copied) && it.count_free() == 4);
        it.sent(copied);
        while it.take_to_receive(other).is_some() {}
        assert!(!it.send_on(other, again[0]), "there is none instead");
        assert_eq!(it.take_again(again[0]), again[0]);
    }

    /// Turns of three sockets that send what the others received, and copies, while the kernel has done
    /// with some of it within the turn and with some long after.
    #[test]
    fn no_chunk_is_ever_in_two_hands() {
        for seed in 1..=200 {
            let mut random = Random::new(seed);
            let mut it = pool(64);
            let sockets = [(); 3].map(|()| socket());
            let seats = [0, 1, 2].map(|at| it.sit_down(&sockets[at], (at as i32, 0), 20).unwrap());
            let mut fill = seats.map(|seat| -> Vec<u64> {
                (0..10).map(|_| it.take_to_receive(seat).unwrap()).collect()
            });
            let mut sending: Vec<u64> = Vec::new();
            for turn in 0..100 {
                let came = random.below(7) as usize;
                let shown = fill.each_mut().map(|fill| fill.drain(..came).collect::<Vec<u64>>());
                for by in seats {
                    for chunk in shown.iter().flatten() {
                        let is_sent = it.of(*chunk).instead != Chunk::NONE;
                        if !is_sent && random.chance(1, 3) && it.send_on(by, *chunk) {
                            sending.push(*chunk);
                        }
                    }
                    if it.count_free() > 0 && random.chance(1, 4) {
                        sending.push(it.take_to_send(by));
                    }
                    while !sending.is_empty() && random.chance(2, 3) {
                        let at = random.below(sending.len() as u64) as usize;
                        it.sent(sending.swap_remove(at));
                    }
                }
                for (fill, shown) in fill.iter_mut().zip(shown) {
                    fill.extend(shown.into_iter().map(|chunk| it.take_again(chunk)));
                    assert_eq!(fill.len(), 10, "seed {seed}, turn {turn}");
                }
                let hands = fill.iter().flatten().chain(&sending).chain(&it.free);
                let hands: Vec<u64> = hands.copied().collect();
                let different: BTreeSet<u64> = hands.iter().copied().collect();
                assert_eq!((hands.len(), different.len()), (64, 64), "seed {seed}, turn {turn}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "sent on once")]
    fn a_frame_is_not_sent_on_twice_also_if_it_has_left_meanwhile() {
        let mut it = pool(8);
        let socket = socket();
        let seat = it.sit_down(&socket, (1, 0), 4).unwrap();
        let chunk = it.take_to_receive(seat).unwrap();
        assert!(it.send_on(seat, chunk));
        it.sent(chunk);
        assert_eq!(it.take_to_receive(seat), Some(chunk));
        it.send_on(seat, chunk);
    }

    #[test]
    fn what_one_had_is_free_once_another_is_bound_to_its_queue_but_for_what_may_be_read() {
        let mut it = pool(8);
        let (first, beside) = (socket(), socket());
        let seat = it.sit_down(&first, (1, 0), 8).unwrap();
        let other = it.sit_down(&beside, (2, 0), 8).unwrap();
        let chunks: Vec<u64> = (0..4).map(|_| it.take_to_receive(seat).unwrap()).collect();
        let theirs = it.take_to_receive(other).unwrap();
        it.take_to_send(seat);
        assert!(it.send_on(other, chunks[0]));
        it.take_again(chunks[0]);
        assert_eq!(it.count_free(), 1);
        drop(first);
        assert_eq!(it.count_free(), 1, "who knows who has its descriptor");
        assert!(it.sit_down(&socket(), (3, 0), 2).is_none(), "too few are free");
        assert!(it.sit_down(&socket(), (1, 0), 6).is_none(), "and too few will be");
        assert_eq!(it.sit_down(&socket(), (1, 0), 5), Some(seat));
        // All but the one that is sent by it, and those of the other.
        let left: BTreeSet<u64> = std::iter::from_fn(|| it.take_to_receive(seat)).collect();
        assert!(left.len() == 5 && !left.contains(&theirs) && !left.contains(&chunks[0]));
    }

    #[test]
    fn only_links_of_a_shard_with_frames_of_a_kind_share_while_there_is_room() {
        let umems = Umems::default();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let memory = Mapping::anonymous(8 * CHUNK as usize, both, MapFlags::empty()).unwrap();
        let (chunk_bits, pool) = (CHUNK.ilog2(), Mutex::new(pool(8)));
        let it = Arc::new(Umem { memory, chunk_bits, pool });
        umems.add(ShardId(1), true, &it);
        let (shard, chunk) = (ShardId(1), CHUNK);
        let want = Want { shard, chunk, pieces: true, at: (2, 0), needed: 8 };
        let is_found = |want| umems.find(want).is_some();
        assert!(!is_found(want), "no socket is bound");
        let socket = socket();
        let seat = it.pool().sit_down(&socket, (1, 0), 4).unwrap();
        assert!(is_found(want));
        for other in [
            Want { shard: ShardId(0), ..want },
            Want { chunk: 2048, ..want },
            Want { pieces: false, ..want },
            Want { needed: 9, ..want },
        ] {
            assert!(!is_found(other));
        }
        it.pool().take_to_receive(seat).unwrap();
        assert!(!is_found(want));
        drop(socket);
        assert!(!is_found(Want { needed: 7, ..want }), "none is bound any more");
    }
}
