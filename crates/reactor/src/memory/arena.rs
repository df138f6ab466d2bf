//! The arena: every page of the data path, in one reservation of address space that all shards
//! share.
//!
//! **Address space and memory.** The address space (up to 2 TiB) is reserved at start and costs
//! nothing. Its lower half is for pages that anybody may take, its upper half for the
//! [homes](super::homes) of RAM disks' slots. [`Arena::grow`] opens as much of it as pools and RAM disks may use together; the kernel
//! commits a page when it is first touched, and [`Arena::give_back`] returns free pages to it. A
//! page is named by its number; it never moves. Transparent huge pages are asked for: the kernel's
//! copies to and from pages all over a RAM volume otherwise miss the translation cache each time.
//! What is given back page by page splits them again, which only an idle process does.
//!
//! **Who owns a page.** At any moment a page is exactly one of:
//!
//! ```text
//!             take                   install (swap, compare-exchange)
//!    free  ---------->  private  ------------------------------------>  installed
//!      ^      (one Buffer or one   <------------------------------------  (one slot of one RAM disk's table;
//!      |       function owns it)     swapped out, nobody leases it          anybody may lease it)
//!      |                                                                      |
//!      +------------------------  detached  <---------------------------------+
//!         its last lease ends    (leases alone)      swapped out, leased
//! ```
//!
//! Bytes of a private page are touched by its owner alone; bytes of a detached page are never
//! changed, of an installed one only by who borrows it. This is what every `unsafe` block of this
//! room and of `disk::ram` rests on: [`block::Buffer`] is not `Clone`, so a private page has one
//! owner, and a page reaches a table only by giving up that ownership.
//!
//! **Neighbours.** Who wants one certain page, since it lies beside another, gets it where it is
//! free ([`Arena::take_this`]). What is free therefore shows in the page's state, not in the lists
//! alone: an entry of a list whose page is not marked is out of date, and skipped.
//!
//! How pages are leased, changed in place and taken out of their slots while others look at them:
//! [`leases`](super::leases).
//!
//! **Conservation.** The limit of the arena is the sum of all pools, all RAM disks' sizes, and what
//! each shard's cache and hands may hold ([`SHARD_SLACK`]). Charge each private page in a buffer
//! and each lease in a buffer to that buffer, which its pool counted; each installed page to its
//! slot, which the disk's size counted; each detached or abandoned page to one of its leases, which
//! by the same count stands for no page of its own; an abandoned page without leases is free, and
//! found when pages are wanted. So pages in use never exceed the limit, and
//! [`ShardMemory`](super::ShardMemory) never finds the arena empty. What escapes these charges (a
//! page between two hands, one that only a passing count keeps) is at most a few pages a shard at a
//! time, and part of the slack. Running out is therefore a bug, and panics.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Mutex, MutexGuard};

use block::{ByteCount, PAGE_SIZE};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::homes::{Homes, first_region};
use super::leases::State;
use super::lines;
use super::mapping::Mapping;
use crate::process::lock;

/// The number of the page that holds zeros for ever. It is leased without being counted.
pub(crate) const ZERO_PAGE: u32 = 0;
/// What a RAM disk's slot holds when it has no page: the block was never written or was given up.
pub(crate) const NO_PAGE: u32 = u32::MAX;
/// The mark of a free page that is not in the processor's cache. Only lists of free pages know it.
pub(crate) const COLD: u32 = 1 << 31;
/// Free pages that a shard keeps at hand at most.
pub(crate) const SHARD_CACHE: usize = 128;
/// Pages that move at once between a shard's cache and the arena: one lock for 64 requests of 4
/// KiB.
pub(crate) const SHARD_BATCH: usize = 64;
/// Pages of a shard beside its pool: its cache, and what may be between two hands (a page that is
/// being copied to, one that a passing count keeps).
pub(crate) const SHARD_SLACK: u32 = SHARD_CACHE as u32 + 8;
/// Pages that one call of [`Arena::give_back`] returns at most: 16 MiB, a millisecond or two.
pub(crate) const GIVE_BACK_MAX: usize = 4096;

pub(super) const PAGE: usize = PAGE_SIZE as usize;
/// Address space to ask for, in pages and beside that for homes, at most (1 TiB) and at least (1
/// GiB, for a process whose address space is limited).
const RESERVE_MAX: u32 = 1 << 28;
const RESERVE_MIN: u32 = 1 << 18;
/// Address space is opened in steps of this many pages (64 MiB).
const OPEN_STEP: u32 = 1 << 14;

/// All pages of the process. Shared by the shards as an `Arc`.
pub struct Arena {
    pages: Mapping,
    /// A [`State`] for each.
    states: Mapping,
    /// Shards that use it at most, and those that do.
    shards: usize,
    entered: AtomicUsize,
    /// Leases that have not ended, where one shard is alone: its own count, which it changes
    /// without a locked instruction.
    pub(super) leased: AtomicUsize,
    /// Pages that the reserved address space has room for, beside homes.
    capacity: u32,
    /// Numbers of pages, homes among them.
    numbers: u32,
    /// Pages that are free and were taken before.
    listed: AtomicU32,
    /// As `fresh` of the supply: the states below it may be looked at, and those of homes below the
    /// second.
    reach: AtomicU32,
    pub(super) homes_reach: AtomicU32,
    supply: Mutex<Supply>,
    giving_back: AtomicBool,
}

/// Which pages are free.
#[derive(Default)]
pub(super) struct Supply {
    /// Free, and maybe committed: used before the others. Some have the mark [`COLD`]. Entries may
    /// be out of date, here and in the next.
    warm: Vec<u32>,
    /// Free, and given back to the kernel.
    cold: Vec<u32>,
    /// Pages that left their slots for good, until nobody leases them.
    abandoned: Vec<u32>,
    /// The first page that was never taken, homes aside.
    pub(super) fresh: u32,
    /// Pages that may be in use together.
    limit: u32,
    /// Pages below this may be touched.
    open: u32,
    pub(super) homes: Homes,
}

impl Supply {
    /// As far as `fresh` may go now: pages that were ever taken, homes among them, are no more than
    /// may be in use, and those on their way to the kernel.
    pub(super) fn end_of_fresh(&self) -> u32 {
        (self.limit + GIVE_BACK_MAX as u32).saturating_sub(self.homes.taken)
    }
}

/// How the arena stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaReport {
    /// Pages in use or in the shards' caches.
    pub(crate) used: u32,
    /// Pages that the address space has room for.
    pub(crate) capacity: u32,
}

/// Why the arena could not be made, or not grow. All are bytes.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    #[error("the system refused {} of address space: {source}", ByteCount(*bytes))]
    Refused { bytes: u64, source: io::Error },
    /// More was to be added than the reserved address space holds beside what pools and RAM disks
    /// use already.
    #[error(
        "{} do not fit: pools and disks in memory use {} of at most {}",
        ByteCount(*bytes), ByteCount(*used), ByteCount(*capacity)
    )]
    Full { bytes: u64, used: u64, capacity: u64 },
}

impl Arena {
    /// Reserves the address space for at most `shards` shards: 1 TiB, or less where the process may
    /// not have so much (a limit on its address space).
    pub fn new(shards: usize) -> Result<Arena, ArenaError> {
        let mut capacity = RESERVE_MAX;
        // Where the system counts address space as if it were used, homes would be paid for twice.
        let can_have_homes = !counts_address_space();
        loop {
            let with_homes = match can_have_homes {
                true => Arena::reserve(shards, capacity, capacity),
                false => Arena::reserve(shards, capacity, 0),
            };
            match with_homes.or_else(|_| Arena::reserve(shards, capacity, 0)) {
                Ok(arena) => {
                    // The page of zeros.
                    arena.grow(1)?;
                    arena.supply().fresh = 1;
                    arena.reach.store(1, SeqCst);
                    return Ok(arena);
                }
                Err(error) if capacity <= RESERVE_MIN => return Err(error),
                Err(_) => capacity /= 2,
            }
        }
    }

    fn reserve(shards: usize, capacity: u32, homes: u32) -> Result<Arena, ArenaError> {
        let numbers = capacity + homes;
        let pages = reserve(numbers as usize * PAGE)?;
        let homes = Homes::new(first_region(pages.base(), capacity).min(numbers)..numbers);
        Ok(Arena {
            pages,
            states: reserve(numbers as usize * size_of::<State>())?,
            shards,
            entered: AtomicUsize::new(0),
            leased: AtomicUsize::new(0),
            capacity,
            numbers,
            listed: AtomicU32::new(0),
            reach: AtomicU32::new(0),
            homes_reach: AtomicU32::new(0),
            supply: Mutex::new(Supply { homes, ..Supply::default() }),
            giving_back: AtomicBool::new(false),
        })
    }

    /// Lets `pages` more pages be in use: a pool or a RAM disk comes. Undo it with
    /// [`shrink`](Self::shrink).
    pub(crate) fn grow(&self, pages: u32) -> Result<(), ArenaError> {
        let mut supply = self.supply();
        // Pages on their way to the kernel are neither free nor in use.
        let needed = u64::from(supply.limit) + u64::from(pages) + GIVE_BACK_MAX as u64;
        if needed > u64::from(self.capacity) {
            return Err(ArenaError::Full {
                bytes: u64::from(pages) * u64::from(PAGE_SIZE),
                used: u64::from(supply.limit) * u64::from(PAGE_SIZE),
                capacity: u64::from(self.capacity) * u64::from(PAGE_SIZE),
            });
        }
        let open = (needed as u32).next_multiple_of(OPEN_STEP).min(self.capacity);
        if open > supply.open {
            let from = supply.open as usize;
            let count = open as usize - from;
            self.open_states(supply.open..open)?;
            let pages = allow(&self.pages, from * PAGE, count * PAGE)?;
            // SAFETY: the range lies in the reservation; the advice changes no contents. A kernel
            // without huge pages goes on with small ones.
            let _ = unsafe { rustix::mm::madvise(pages, count * PAGE, Advice::LinuxHugepage) };
            supply.open = open;
        }
        supply.limit += pages;
        Ok(())
    }

    /// Makes the states of pages usable, and maybe some beside them.
    pub(super) fn open_states(&self, pages: Range<u32>) -> Result<(), ArenaError> {
        let state = size_of::<State>();
        let first = pages.start as usize * state / PAGE * PAGE;
        let end = (pages.end as usize * state).next_multiple_of(PAGE).min(self.states.len());
        allow(&self.states, first, end - first).map(drop)
    }

    /// Where the pages lie.
    pub(super) fn mapping(&self) -> &Mapping {
        &self.pages
    }

    /// Takes back what [`grow`](Self::grow) allowed; whoever asked for it holds no pages any more.
    pub(crate) fn shrink(&self, pages: u32) {
        let mut supply = self.supply();
        assert!(supply.limit > pages, "the arena of {} pages shrinks by {pages}", supply.limit);
        supply.limit -= pages;
    }

    /// Returns free pages to the kernel, at most [`GIVE_BACK_MAX`]; says how many. Call it again
    /// while it returns that many and there is nothing better to do. A shard's own cache goes first
    /// with [`ShardMemory::idle`](super::ShardMemory::idle).
    pub(crate) fn give_back(&self) -> usize {
        if self.giving_back.swap(true, SeqCst) {
            return 0;
        }
        let mut pages = {
            let mut supply = self.supply();
            self.collect(&mut supply);
            let mut taken = Vec::new();
            self.claim_last(&mut supply.warm, GIVE_BACK_MAX, &mut taken);
            if supply.warm.is_empty() {
                supply.warm.shrink_to(SHARD_BATCH);
            }
            taken
        };
        pages.iter_mut().for_each(|page| *page &= !COLD);
        pages.sort_unstable();
        let mut rest = &pages[..];
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(page, next)| *page == next).count();
            // SAFETY: the pages of the run were free and are in no list now, so nobody touches
            // their bytes; the range lies in the mapping because page numbers are below `open`.
            let advised = unsafe {
                rustix::mm::madvise(self.page(first).cast(), run * PAGE, Advice::LinuxDontNeed)
            };
            // Where the kernel refuses (locked memory), the pages merely stay committed.
            let _ = advised;
            rest = &rest[run..];
        }
        self.list(&mut self.supply().cold, &pages);
        self.giving_back.store(false, SeqCst);
        pages.len()
    }

    /// How the arena stands.
    pub(crate) fn report(&self) -> ArenaReport {
        let mut supply = self.supply();
        self.collect(&mut supply);
        let free = self.listed.load(SeqCst);
        ArenaReport { used: supply.fresh + supply.homes.taken - free, capacity: self.capacity }
    }

    /// Moves up to `count` free pages, at least one, with their marks to `into`. Panics when there
    /// is none: the conservation at the top of this file was violated.
    #[cold]
    pub(crate) fn take(&self, into: &mut Vec<u32>, count: usize) {
        let mut supply = self.supply();
        if !supply.abandoned.is_empty() {
            self.collect(&mut supply);
        }
        let want = into.len() + count;
        for list in 0..2 {
            let list = if list == 0 { &mut supply.warm } else { &mut supply.cold };
            self.claim_last(list, want - into.len(), into);
        }
        let end = supply.end_of_fresh();
        while into.len() < want && supply.fresh < end {
            into.push(supply.fresh);
            supply.fresh += 1;
        }
        self.reach.store(supply.fresh, SeqCst);
        assert!(into.len() + count > want, "the arena of {} pages ran out", supply.limit);
    }

    /// Takes free pages back, with their marks.
    #[cold]
    pub(crate) fn put(&self, pages: &[u32]) {
        self.list(&mut self.supply().warm, pages);
    }

    /// Takes this page, if it was taken before and is in no hand now.
    pub(crate) fn take_this(&self, page: u32) -> bool {
        let is_known = page < self.reach.load(Relaxed) || self.has_homes(page);
        let taken = is_known && self.state(page).claim();
        if taken {
            self.listed.fetch_sub(1, SeqCst);
        }
        taken
    }

    /// Whether the state of this number, which lies beyond the others, may be looked at.
    fn has_homes(&self, page: u32) -> bool {
        page >= self.capacity && page < self.homes_reach.load(Relaxed)
    }

    /// Takes what is free of the last entries of a list, up to `count` pages, and keeps their
    /// order.
    fn claim_last(&self, list: &mut Vec<u32>, count: usize, into: &mut Vec<u32>) {
        let (before, mut at) = (into.len(), list.len());
        let mut found = 0;
        while found < count && at > 0 {
            at -= 1;
            match self.state(list[at] & !COLD).claim() {
                true => found += 1,
                false => list[at] = NO_PAGE,
            }
        }
        into.extend(list.drain(at..).filter(|page| *page != NO_PAGE));
        self.listed.fetch_sub((into.len() - before) as u32, SeqCst);
    }

    /// Marks pages free, and puts them into a list. Entries that are out of date go when they are
    /// more than the others.
    fn list(&self, list: &mut Vec<u32>, pages: &[u32]) {
        let listed = self.listed.fetch_add(pages.len() as u32, SeqCst) as usize;
        if list.len() > 2 * listed + GIVE_BACK_MAX {
            // Claimed, each page is there once.
            list.retain(|page| self.state(*page & !COLD).claim());
            list.iter().for_each(|page| self.state(*page & !COLD).list());
        }
        list.extend_from_slice(pages);
        pages.iter().for_each(|page| self.state(*page & !COLD).list());
    }

    /// Where a page lies. The pointer may be used as the rules at the top of this file allow.
    #[inline]
    pub(crate) fn page(&self, number: u32) -> *mut u8 {
        debug_assert!(number < self.numbers);
        // SAFETY: page numbers come from `take` and `take_home` alone and lie below `numbers`, the
        // size of the mapping.
        unsafe { self.pages.base().add(number as usize * PAGE) }
    }

    #[inline]
    pub(super) fn state(&self, number: u32) -> &State {
        debug_assert!(number < self.numbers);
        // SAFETY: as for `page`, and `grow` or `make_homes` opened the state before the number was
        // known to anybody; the
        // mapping lives as long as `self`, is aligned to a page, and was zeros, which is a valid
        // state.
        unsafe { &*self.states.base().cast::<State>().add(number as usize) }
    }

    /// A shard begins to use the arena. Panics if it was not made for so many.
    pub(crate) fn enter(&self) {
        let before = self.entered.fetch_add(1, SeqCst);
        assert!(before < self.shards, "an arena for {} shards is used by more", self.shards);
    }

    /// Whether one shard alone leases, borrows and exchanges pages, so that nobody sees what it
    /// does in between.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.shards == 1
    }

    /// Takes pages that left their slots for good while they may be leased: those that nobody
    /// leases are free, the others when their leases have ended.
    pub(crate) fn abandon(&self, pages: &[u32]) {
        let mut supply = self.supply();
        supply.abandoned.extend_from_slice(pages);
        self.collect(&mut supply);
    }

    /// Frees what was abandoned and is leased no more.
    fn collect(&self, supply: &mut Supply) {
        let Supply { abandoned, warm, .. } = supply;
        abandoned.retain(|page| {
            let is_leased = self.state(*page).is_leased();
            if !is_leased {
                self.list(warm, &[*page]);
            }
            is_leased
        });
    }

    /// Fetches the line of a page's state ahead of its use.
    #[inline]
    pub(crate) fn prefetch_state(&self, number: u32) {
        lines::prefetch(self.states.base().cast::<State>().wrapping_add(number as usize).cast());
    }

    /// A lock is poisoned only by a panic within the few lines that hold it, none of which leaves
    /// the lists half changed.
    pub(super) fn supply(&self) -> MutexGuard<'_, Supply> {
        lock(&self.supply)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

/// Whether the system commits all address space that may be written to (`vm.overcommit_memory` is
/// 2).
fn counts_address_space() -> bool {
    let word = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    word.is_ok_and(|word| word.trim() == "2")
}

/// Reserves `bytes` of address space that may not be touched yet.
fn reserve(bytes: usize) -> Result<Mapping, ArenaError> {
    Mapping::anonymous(bytes, ProtFlags::empty(), MapFlags::NORESERVE).map_err(refused(bytes))
}

/// Makes part of a reservation usable; returns where it begins.
pub(super) fn allow(
    part_of: &Mapping,
    offset: usize,
    bytes: usize,
) -> Result<*mut c_void, ArenaError> {
    assert!(offset + bytes <= part_of.len(), "{offset}+{bytes} of {} bytes", part_of.len());
    let both = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: the range lies within the reservation, as was just checked, and pages of it that are
    // in use keep their access.
    unsafe {
        let begin = part_of.base().add(offset).cast();
        rustix::mm::mprotect(begin, bytes, both).map_err(refused(bytes))?;
        Ok(begin)
    }
}

fn refused(bytes: usize) -> impl FnOnce(Errno) -> ArenaError {
    move |errno| ArenaError::Refused { bytes: bytes as u64, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_and_put_is_counted() {
        let arena = Arena::new(1).unwrap();
        arena.grow(1000).unwrap();
        let before = arena.report();
        let mut pages = Vec::new();
        arena.take(&mut pages, 300);
        assert_eq!(pages.len(), 300);
        assert_eq!(arena.report().used, before.used + 300);
        arena.put(&pages);
        assert_eq!(arena.report().used, before.used);
        arena.shrink(1000);
    }

    #[test]
    fn pages_given_back_come_again_as_zeros() {
        let arena = Arena::new(1).unwrap();
        arena.grow(600).unwrap();
        let mut pages = Vec::new();
        arena.take(&mut pages, 512);
        for page in &pages {
            // SAFETY: taken above, so ours alone.
            unsafe { arena.page(*page).write_bytes(7, PAGE) };
        }
        arena.put(&pages);
        assert_eq!(arena.give_back(), 512);
        assert_eq!(arena.give_back(), 0);
        let mut again = Vec::new();
        arena.take(&mut again, 512);
        for page in &again {
            // SAFETY: taken above, so ours alone; an anonymous page that was given back reads as
            // zeros.
            assert_eq!(unsafe { arena.page(*page).add(PAGE - 1).read() }, 0);
        }
        arena.put(&again);
    }

    #[test]
    fn a_certain_page_is_taken_where_it_is_free_and_once() {
        let arena = Arena::new(1).unwrap();
        arena.grow(600).unwrap();
        let mut pages = Vec::new();
        arena.take(&mut pages, 4);
        let [a, b, c, d] = pages[..] else { panic!("{pages:?}") };
        let used = arena.report().used;
        assert!(!arena.take_this(a), "it is in use");
        let last = arena.report().capacity - 1;
        assert!(!arena.take_this(d + 1) && !arena.take_this(last), "nobody has taken it before");
        arena.put(&[a, b | COLD, c]);
        assert!(arena.take_this(b) && !arena.take_this(b));
        assert_eq!(arena.report().used, used - 2);
        let mut again = Vec::new();
        arena.take(&mut again, 3);
        assert_eq!(again, [a, c, d + 1], "what is free, and no page twice");
        // Given back to the kernel it is free as well.
        arena.put(&[c]);
        assert_eq!(arena.give_back(), 1);
        assert!(arena.take_this(c));
        assert_eq!(arena.give_back(), 0);
        assert_eq!(arena.report().used, used + 1);
    }

    #[test]
    fn entries_that_are_out_of_date_do_not_pile_up() {
        let arena = Arena::new(1).unwrap();
        arena.grow(600).unwrap();
        let mut pages = Vec::new();
        arena.take(&mut pages, 4);
        arena.put(&pages);
        for _ in 0..10 * GIVE_BACK_MAX {
            assert!(arena.take_this(pages[1]));
            arena.put(&pages[1..2]);
        }
        assert!(arena.supply().warm.len() <= 2 * GIVE_BACK_MAX);
        let mut again = Vec::new();
        arena.take(&mut again, 4);
        again.sort_unstable();
        assert_eq!(again, pages);
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        let arena = Arena::new(1).unwrap();
        let capacity = arena.report().capacity;
        assert!(matches!(arena.grow(capacity), Err(ArenaError::Full { .. })));
    }
}
