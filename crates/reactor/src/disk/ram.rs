//! RAM disks: a table of pages that is read by leasing them and written by exchanging them. No
//! lock, no copy of whole pages.
//!
//! Shared by all shards. A slot of the table holds the number of a page of the
//! [arena](crate::memory::arena), or [`NO_PAGE`], which reads as zeros. Units: bytes; extents are
//! multiples of 512. Outcomes: a RAM disk fails only what lies beyond its end.
//!
//! **No torn block.** What a slot holds changes only by one swap or compare-exchange of a whole
//! page, and a page that is leased never changes. So a reader sees each page, and so each block of
//! up to 4096 bytes, as one of those that were ever installed:
//!
//! ```text
//!   read    slot --> page 17, lease + 1 --> in the reader's buffer until it is sent
//!   write   the buffer's page 4 --swap--> slot;  page 17 --> free, or detached until its leases end
//!   part    page 17's other bytes are copied around the new ones in page 4, then compare-exchange 17 -> 4, or again
//! ```
//!
//! Where nobody leases the page, a write of a part changes it in place ([`Arena::borrow`]), since
//! to copy the rest of the page around it costs more than the write; so does every write that
//! [lands](RamDisk::land) without a buffer of its own.
//!
//! A write of part of a page that somebody leases exchanges it. It leases the old page while it
//! copies, so that neither its bytes nor its number can change meaning under the compare-exchange
//! (no ABA). Two writers of different blocks of one page both end up in it; of one block, one of
//! them.
//!
//! Which page a slot gets, so that they lie in order: [`order`].
//!
//! **Conservation.** The disk lets the arena grow by one page a slot. A written page leaves its
//! buffer, which is then reserved: still counted by its pool, without pages. So a page in a slot is
//! covered by the slot's part of the arena, and a buffer's part is free for the pages that it may
//! get again. A detached page is covered by the leases that keep it, each of which stands in a
//! counted buffer in place of a page of its own. The rest (a fresh page in hand while an old one is
//! copied) is the shard's slack.
//!
//! **No request holds the shard.** A transfer is bounded; what clears more pages than the largest
//! transfer has becomes a [`Clearing`], of which the driver has so many cleared in a turn.

pub(super) mod contents;
mod order;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use block::{
    Buffer, ByteCount, Completion, Extent, Failure, Operation, Outcome, PAGE_SIZE, PageId, Request,
    Sought, limits::PAGES_PER_TRANSFER,
};

use super::{Hold, Submitted, is_within};
use crate::memory::arena::{Arena, ArenaError, COLD, NO_PAGE, ZERO_PAGE};
use crate::memory::lines::{LINE, prefetch, prefetch_all};
use crate::memory::shard_memory::{ShardMemory, difference};

const PAGE: usize = PAGE_SIZE as usize;
/// Pages of an extent that are fetched ahead: as many as a large frame touches.
const PAGES_AHEAD: usize = 3;
/// Lines of a page that are fetched to be sent: the processor's own prefetcher takes over from
/// there.
const LINES_TO_READ: usize = 4;
/// Lines of a page that are fetched to be overwritten: as many misses as a core has under way.
const LINES_TO_WRITE: usize = 16;
/// From this size on, pages that come out of the disk are taken to be cold: many times the
/// second-level cache of a core.
const COLD_MIN: u64 = 64 << 20;

/// A disk in memory.
#[derive(Debug)]
pub(crate) struct RamDisk {
    arena: Arc<Arena>,
    size: u64,
    /// [`COLD`] if the disk is so large that a page that comes out of it is seldom in the
    /// processor's cache, else 0.
    mark: u32,
    /// The home of the first slot; the others' lie behind it. None where there was no room.
    homes: Option<u32>,
    slots: Box<[AtomicU32]>,
}

/// A request that makes ranges read as zeros, and has more pages to clear than a turn may.
#[derive(Debug)]
pub(crate) struct Clearing {
    request: Request,
    /// Disjoint, the next one last.
    left: Vec<Extent>,
    pub(super) verdict: Option<Outcome>,
    pub(super) hold: Hold,
}

impl Clearing {
    /// The answer, and how to hold it back.
    pub(crate) fn finish(self) -> (Completion, Hold) {
        (self.request.complete(self.verdict.unwrap_or(Outcome::Done)), self.hold)
    }
}

/// The part of one page that a request touches.
#[derive(Clone, Copy)]
struct Part {
    slot: usize,
    from: usize,
    to: usize,
}

impl Part {
    fn is_whole(self) -> bool {
        self.from == 0 && self.to == PAGE
    }
}

/// The pages that `extent` touches, in order.
#[inline]
fn parts(extent: Extent) -> impl Iterator<Item = Part> {
    let (start, end) = (extent.offset.0, extent.end().0);
    let page = PAGE as u64;
    let first = start / page;
    let last = if start == end { first } else { end.div_ceil(page) };
    (first..last).map(move |slot| Part {
        slot: slot as usize,
        from: start.saturating_sub(slot * page) as usize,
        to: (end - slot * page).min(page) as usize,
    })
}

impl RamDisk {
    /// A disk of `size` bytes that reads as zeros. It takes no memory before it is written to, but
    /// four bytes a page.
    pub(super) fn new(arena: &Arc<Arena>, size: ByteCount) -> Result<RamDisk, ArenaError> {
        let pages = size.0.div_ceil(PAGE as u64);
        let full = |pages: u64| ArenaError::Full {
            bytes: pages.saturating_mul(PAGE as u64),
            used: 0,
            capacity: u64::from(arena.report().capacity) * PAGE as u64,
        };
        let pages = u32::try_from(pages).map_err(|_| full(pages))?;
        arena.grow(pages)?;
        let slots = (0..pages).map(|_| AtomicU32::new(NO_PAGE)).collect();
        let mark = if size.0 >= COLD_MIN { COLD } else { 0 };
        let homes = arena.make_homes(pages);
        Ok(RamDisk { arena: arena.clone(), size: size.0, mark, homes, slots })
    }

    /// Bytes that can be addressed.
    pub(super) fn size(&self) -> ByteCount {
        ByteCount(self.size)
    }

    /// Answers a request at once, unless it clears many pages.
    #[inline]
    pub(super) fn perform(&self, memory: &mut ShardMemory, mut request: Request) -> Submitted {
        let outcome = match &mut request.operation {
            Operation::Read { extent, buffer } if self.holds(*extent) => {
                memory.strip(buffer);
                self.lend(*extent, buffer);
                Outcome::Done
            }
            Operation::Write { extent, buffer, .. } if self.holds(*extent) => {
                check(*extent, buffer);
                self.write(memory, *extent, buffer);
                Outcome::Done
            }
            _ => return self.perform_other(memory, request),
        };
        Submitted::Done(request.complete(outcome))
    }

    #[cold]
    fn perform_other(&self, memory: &mut ShardMemory, mut request: Request) -> Submitted {
        let outcome = match &mut request.operation {
            operation if !is_within(operation, self.size()) => {
                Outcome::NotDone(Failure::OutOfRange)
            }
            Operation::Read { .. } | Operation::Write { .. } => {
                unreachable!("what the disk holds of these is carried out by perform")
            }
            Operation::Flush | Operation::Verify { .. } => Outcome::Done,
            Operation::Discard { extents } => {
                let mut extents = std::mem::take(extents);
                Extent::merge(&mut extents);
                extents.reverse();
                return self.begin_clearing(memory, request, extents);
            }
            Operation::WriteZeroes { extent, .. } => {
                let extents = vec![*extent];
                return self.begin_clearing(memory, request, extents);
            }
            Operation::Compare { extent, buffer } => {
                check(*extent, buffer);
                self.compare(memory, *extent, buffer)
            }
            Operation::Seek { extent, sought } => self.seek(*extent, *sought),
            Operation::CompareAndWrite { .. } => Outcome::NotDone(Failure::Unsupported),
        };
        Submitted::Done(request.complete(outcome))
    }

    /// A page that nobody wrote, or that was cleared, is a hole.
    fn seek(&self, extent: Extent, sought: Sought) -> Outcome {
        let is_hole = |slot: usize| matches!(self.slots[slot].load(Relaxed), NO_PAGE | ZERO_PAGE);
        let mut parts = parts(extent).scan(0, |at, part| {
            let from = *at;
            *at += (part.to - part.from) as u32;
            Some((from, part.slot))
        });
        let found = parts.find(|&(_, slot)| is_hole(slot) == (sought == Sought::Hole));
        found.map_or(Outcome::Done, |(at, _)| Outcome::Found(at))
    }

    fn begin_clearing(
        &self,
        memory: &mut ShardMemory,
        request: Request,
        left: Vec<Extent>,
    ) -> Submitted {
        let mut clearing = Clearing { request, left, verdict: None, hold: Hold::default() };
        match self.clear_some(memory, &mut clearing) {
            true => Submitted::Done(clearing.finish().0),
            false => Submitted::Clearing(Box::new(clearing)),
        }
    }

    /// Clears as many pages as the largest transfer has; returns whether these were the last.
    pub(super) fn clear_some(&self, memory: &mut ShardMemory, clearing: &mut Clearing) -> bool {
        let mut pages = u64::from(PAGES_PER_TRANSFER);
        while pages > 0
            && let Some(extent) = clearing.left.pop()
        {
            let first = extent.offset.0 / PAGE as u64;
            let end = extent.end().0.min((first + pages) * PAGE as u64);
            self.clear(memory, Extent::new(extent.offset.0, end - extent.offset.0));
            pages -= end.div_ceil(PAGE as u64) - first;
            if end < extent.end().0 {
                clearing.left.push(Extent::new(end, extent.end().0 - end));
            }
        }
        clearing.left.is_empty()
    }

    /// Fetches the table's line for the first page of `extent`. When several requests are at hand,
    /// call it for all, then [`prefetch_pages`](Self::prefetch_pages) for all, then carry them out:
    /// their cache misses then overlap.
    #[inline]
    pub(crate) fn prefetch_slot(&self, extent: Extent) {
        let slot = (extent.offset.0 / PAGE as u64) as usize;
        prefetch(self.slots.as_ptr().wrapping_add(slot).cast());
    }

    /// Fetches the states of the first pages, and the beginnings of their data if they will be
    /// sent.
    #[inline]
    pub(crate) fn prefetch_pages(&self, extent: Extent, data: bool) {
        self.prefetch_parts(extent, PAGES_AHEAD, if data { LINES_TO_READ } else { 0 });
    }

    /// Fetches what changing `extent` in place needs, alone or `together` with others. Nothing where
    /// it goes past the cache and no other shard is there: then the state is seldom looked at.
    #[inline]
    pub(crate) fn prefetch_landing(&self, extent: Extent, together: bool) {
        if self.streams() {
            return;
        }
        let streams = together && self.mark != 0;
        self.prefetch_parts(extent, PAGES_AHEAD, if streams { 0 } else { LINES_TO_WRITE });
    }

    /// Fetches the states of at most so many pages of `extent`, and at most so many lines of the
    /// part of each that it touches. What lies beyond the end is left out.
    #[inline]
    fn prefetch_parts(&self, extent: Extent, pages_max: usize, lines_max: usize) {
        for part in parts(extent).take(pages_max) {
            let Some(slot) = self.slots.get(part.slot) else { return };
            let page = slot.load(Relaxed);
            if page == NO_PAGE {
                continue;
            }
            self.arena.prefetch_state(page);
            let from = self.arena.page(page).wrapping_add(part.from);
            prefetch_all(from, (part.to - part.from).min(lines_max * LINE));
        }
    }

    /// Whether a part that is changed in place, and given up at once, goes past the cache. Not where
    /// others wait for it: it would have to arrive in memory first.
    #[inline]
    fn streams(&self) -> bool {
        self.mark != 0 && self.arena.is_alone()
    }

    /// What holds a page; each use is an operation on a page.
    #[inline]
    fn slot(&self, index: usize) -> &AtomicU32 {
        #[cfg(test)]
        tests::PAGE_OPERATIONS.set(tests::PAGE_OPERATIONS.get() + 1);
        &self.slots[index]
    }

    #[inline]
    fn holds(&self, extent: Extent) -> bool {
        extent.fits(ByteCount(self.size))
    }

    /// Whether it has all of `extent`; fetches the table's line for its first page.
    #[inline]
    pub(crate) fn can_lend(&self, extent: Extent) -> bool {
        self.prefetch_slot(extent);
        self.holds(extent)
    }

    /// Leases the pages of `extent`, all of which it has, to a reserved buffer.
    #[inline]
    pub(crate) fn lend(&self, extent: Extent, buffer: &mut Buffer) {
        check(extent, buffer);
        if buffer.page_count() == 1 {
            let slot = self.slot((extent.offset.0 / PAGE as u64) as usize);
            buffer.push_page(PageId(self.arena.lease(slot)).leased());
            return;
        }
        self.prefetch_parts(extent, usize::MAX, 0);
        let lease = |part: Part| PageId(self.arena.lease(self.slot(part.slot))).leased();
        buffer.fill(parts(extent).map(lease));
    }

    #[inline]
    fn write(&self, memory: &mut ShardMemory, extent: Extent, buffer: &mut Buffer) {
        assert!(!buffer.is_reserved(), "a write of {extent} came without bytes");
        if buffer.page_count() > 1 {
            self.prefetch_parts(extent, usize::MAX, 0);
        }
        for (index, part) in parts(extent).enumerate() {
            let given = buffer.pages()[index];
            if !part.is_whole() && self.change_from(memory, part, given) {
                continue;
            }
            let new = match given.is_leased() {
                false => given.number(),
                true => self.copy_of(memory, part, given.number()),
            };
            let old = self.install(part, new);
            self.free(memory, old);
        }
        // The private pages are the disk's now; what was leased still has to be given back.
        for page in buffer.take_pages().filter(|page| page.is_leased()) {
            memory.put(page);
        }
    }

    /// As [`change`](Self::change), with the bytes of a buffer's page, which is free then if it was
    /// the buffer's own.
    #[inline]
    fn change_from(&self, memory: &mut ShardMemory, part: Part, given: PageId) -> bool {
        // SAFETY: the page is in the caller's buffer: private or leased, so that nobody changes it.
        let changed = self.change(memory, part, unsafe { self.bytes(given.number(), part) });
        if changed && !given.is_leased() {
            memory.put_page(given.number());
        }
        changed
    }

    /// Puts `bytes` into `extent`, all of which it has: in place where nobody leases the page, else
    /// by exchange.
    #[inline]
    pub(crate) fn land(&self, memory: &mut ShardMemory, extent: Extent, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, extent.length.0, "what lands on {extent} is as long");
        let mut rest = bytes;
        for part in parts(extent) {
            let (now, later) = rest.split_at(part.to - part.from);
            rest = later;
            let fresh = match self.missing(part) {
                Some(page) if memory.take_this(page) => page,
                _ if self.change(memory, part, now) => continue,
                _ => self.take_beside(memory, part.slot),
            };
            // SAFETY: `fresh` is ours alone, and the part is as long as `now`.
            unsafe { self.fill(fresh, part, now) };
            let old = self.install(part, fresh);
            self.free(memory, old);
        }
    }

    /// As [`land`](Self::land), in place, where there are several shards: leaves its pages in
    /// `borrowed`, to be given up behind one fence for all that lands together. False, and nothing
    /// is changed, where that cannot be. It never waits for anybody.
    #[inline]
    pub(crate) fn land_borrowed(
        &self,
        memory: &mut ShardMemory,
        extent: Extent,
        bytes: &[u8],
        borrowed: &mut Vec<u32>,
    ) -> bool {
        let before = borrowed.len();
        for part in parts(extent) {
            let page = match self.missing(part) {
                None => self.arena.borrow(self.slot(part.slot)),
                Some(_) => None,
            };
            let Some(page) = page else { return false };
            borrowed.push(page);
        }
        let mut rest = bytes;
        for (part, page) in parts(extent).zip(&borrowed[before..]) {
            let (now, later) = rest.split_at(part.to - part.from);
            rest = later;
            // SAFETY: as in `change`: the page is borrowed, and stays so until what went past the
            // cache is ordered before the end of the borrow.
            unsafe {
                let into = self.arena.page(*page).add(part.from);
                memory.copy(now, into, self.mark != 0);
            }
        }
        true
    }

    /// Changes a part of a page in place; `false` if somebody leases the page, or there is none.
    #[inline]
    fn change(&self, memory: &mut ShardMemory, part: Part, bytes: &[u8]) -> bool {
        let Some(page) = self.arena.borrow(self.slot(part.slot)) else { return false };
        // SAFETY: the page is borrowed: nobody else reads or writes its bytes until the borrow
        // ends. The part lies within it and is as long as `bytes`, which are elsewhere: a page
        // whose bytes can be read is leased or private, and this one is neither.
        unsafe {
            let into = self.arena.page(page).add(part.from);
            memory.copy(bytes, into, self.streams());
        }
        self.arena.end_borrow(page);
        true
    }

    /// A private page with the bytes of `part` of a leased one, which belongs to another slot and
    /// cannot be installed twice.
    #[cold]
    fn copy_of(&self, memory: &mut ShardMemory, part: Part, from: u32) -> u32 {
        let fresh = memory.take_page();
        // SAFETY: `fresh` is ours alone, the caller's buffer leases `from`, and a part is as long
        // as itself.
        unsafe { self.fill(fresh, part, self.bytes(from, part)) };
        fresh
    }

    /// The bytes of a part of a page.
    ///
    /// # Safety
    /// Nobody changes them as long as they are looked at.
    #[inline]
    unsafe fn bytes(&self, page: u32, part: Part) -> &[u8] {
        // SAFETY: a part lies within its page; the rest by the caller's word.
        unsafe {
            let first = self.arena.page(page).add(part.from);
            std::slice::from_raw_parts(first, part.to - part.from)
        }
    }

    /// Puts bytes into a part of a page.
    ///
    /// # Safety
    /// The page is the caller's alone, and the part as long as `bytes`.
    #[inline]
    unsafe fn fill(&self, page: u32, part: Part, bytes: &[u8]) {
        // SAFETY: a part lies within its page, and `bytes` elsewhere, since nobody else can see the
        // page; the rest by the caller's word.
        unsafe {
            let into = self.arena.page(page).add(part.from);
            into.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Puts private page `new`, whose bytes of `part` are the new ones, into the slot, completed by
    /// what the slot held around them. Returns what it held, for the caller to retire.
    #[inline]
    fn install(&self, part: Part, new: u32) -> u32 {
        let slot = self.slot(part.slot);
        if part.is_whole() {
            return slot.swap(new, SeqCst);
        }
        loop {
            let leased = self.arena.lease(slot);
            // SAFETY: `new` is private and in our hands; `leased` is leased by us, or the page of
            // zeros, and a different page because private pages are in no slot; both ranges lie
            // within a page.
            unsafe {
                let (from, to) = (self.arena.page(leased), self.arena.page(new));
                to.copy_from_nonoverlapping(from, part.from);
                to.add(part.to).copy_from_nonoverlapping(from.add(part.to), PAGE - part.to);
            }
            let held = if leased == ZERO_PAGE { NO_PAGE } else { leased };
            let installed = slot.compare_exchange(held, new, SeqCst, SeqCst).is_ok();
            let last = self.arena.end_lease(leased);
            if installed {
                // Nobody but who took a page out detaches it, and that is our caller, later.
                debug_assert!(!last, "page {leased} was detached by another");
                return held;
            }
            if last {
                self.arena.put(&[leased]);
            }
        }
    }

    /// Frees a page that was just taken out of its slot, now or when its last lease ends.
    #[inline]
    fn free(&self, memory: &mut ShardMemory, old: u32) {
        if old != NO_PAGE && self.arena.retire(old) {
            memory.put_page(old | self.mark);
        }
    }

    /// Makes `extent` read as zeros: whole pages are given up, parts are cleared by exchange.
    fn clear(&self, memory: &mut ShardMemory, extent: Extent) {
        for part in parts(extent) {
            let slot = self.slot(part.slot);
            if slot.load(SeqCst) == NO_PAGE {
                continue;
            }
            if part.is_whole() {
                let old = slot.swap(NO_PAGE, SeqCst);
                self.free(memory, old);
            } else {
                let fresh = memory.take_page();
                // SAFETY: `fresh` is ours alone and the part lies within a page.
                unsafe {
                    self.arena.page(fresh).add(part.from).write_bytes(0, part.to - part.from);
                }
                let old = self.install(part, fresh);
                self.free(memory, old);
            }
        }
    }

    fn compare(&self, memory: &mut ShardMemory, extent: Extent, buffer: &Buffer) -> Outcome {
        let mut at = 0;
        for (index, part) in parts(extent).enumerate() {
            let expected = buffer.pages()[index];
            let page = self.arena.lease(self.slot(part.slot));
            // SAFETY: the first page is leased by us until below, the other is in the buffer that
            // we borrow, so neither changes meanwhile.
            let found =
                unsafe { difference(self.bytes(page, part), self.bytes(expected.number(), part)) };
            memory.put(PageId(page).leased());
            if let Some(difference) = found {
                return Outcome::Miscompare((at + difference) as u32);
            }
            at += part.to - part.from;
        }
        Outcome::Done
    }
}

/// The contract of `block::Operation`: payload and extent have one length, and lie alike in their
/// pages.
#[inline]
fn check(extent: Extent, buffer: &Buffer) {
    assert!(
        u64::from(buffer.len()) == extent.length.0
            && u64::from(buffer.phase()) == extent.offset.0 % PAGE as u64,
        "{extent} with a payload of {} bytes at phase {}",
        buffer.len(),
        buffer.phase()
    );
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        // Readers may still hold leases: what they hold is free when these end.
        let pages = self.slots.iter_mut().map(|slot| *slot.get_mut());
        let pages: Vec<u32> = pages.filter(|page| *page != NO_PAGE).collect();
        self.arena.abandon(&pages);
        let pages = self.slots.len() as u32;
        self.arena.shrink(pages);
        if let Some(first) = self.homes {
            self.arena.end_homes(first, pages);
        }
    }
}

#[cfg(test)]
#[path = "ram_tests.rs"]
mod tests;
