//! Leases, borrows and exchanges: what shards may do to a page that a slot of a RAM disk holds, all
//! at once and without a lock.
//!
//! **Leases.** A page has a count of leases with the mark *detached*. To lease, a reader counts
//! itself in, *then* looks whether the slot still holds the page ([`Arena::lease`]); to take a page
//! out, a writer swaps the slot, *then* looks whether anybody is counted ([`Arena::retire`]). All
//! four steps are sequentially consistent, so at least one of the two sees the other. A reader that
//! came too late counts itself out again; its passing count may hit a page that is long private or
//! free, which harms nobody because it never touches the bytes, and because who finds *detached*
//! with a count of zero frees the page by a compare-exchange that only one can win.
//!
//! **Borrows.** A part of an installed page that nobody leases may be changed in place. The writer
//! sets the mark *borrowed*, *then* looks whether the page is leased and the slot still holds it
//! ([`Arena::borrow`]); who counts itself in, or takes the page out, looks at the mark *then*, and
//! waits until it is gone, which is the time of one copy. So a page never changes while it is
//! leased, and nobody sees half a change. The mark is a word of its own, so that a plain store ends
//! the borrow: taking it off a count would need another locked instruction, which waits for the
//! copy's stores.
//!
//! **Alone.** Where one shard alone uses the arena ([`Arena::is_alone`]), nobody can come in
//! between: counts are changed by a load and a store, a borrow needs no mark, and as long as
//! nothing at all is leased not even a look at the page's state. A locked instruction waits for all
//! stores before it, and those of a write go to memory: it was a third of our own part of a 1 KiB
//! write. The one that may come in between all the same is whoever drops a RAM disk, on any thread:
//! it takes no page out by a mark, but leaves those that may be leased with the arena
//! ([`Arena::abandon`]), which frees each when it sees that nobody leases it any more; new leases
//! are impossible, since the slot is gone.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::arena::{Arena, NO_PAGE, ZERO_PAGE};

/// The mark of a page that left its slot while it was leased. Below it: the count of leases.
const DETACHED: u32 = 1 << 31;
/// One who waits for a borrower looks so often before it lets other threads run.
const SPINS: u32 = 128;

/// What is known of a page. All zeros: nobody leases or borrows it.
#[repr(C, align(8))]
pub(super) struct State {
    /// How many lease it, and the mark [`DETACHED`].
    leases: AtomicU32,
    /// One writer changes it in place.
    borrowed: AtomicBool,
    /// It is in a list of free pages of the arena. Who clears it owns the page.
    listed: AtomicBool,
    /// Of a home: it was taken once.
    begun: AtomicBool,
}

impl State {
    /// Whether somebody leases it. What they did with its bytes is over when this says no.
    pub(super) fn is_leased(&self) -> bool {
        self.leases.load(Acquire) & !DETACHED != 0
    }

    /// The page is free from now on.
    pub(super) fn list(&self) {
        self.listed.store(true, SeqCst);
    }

    /// Whether the page was free; it is the caller's now.
    pub(super) fn claim(&self) -> bool {
        self.listed.load(Relaxed) && self.listed.swap(false, SeqCst)
    }

    /// Whether the home was never taken; it is the caller's now.
    pub(super) fn begin(&self) -> bool {
        !self.begun.swap(true, SeqCst)
    }

    /// Waits until nobody borrows the page any more. As long as it is leased, or out of its slot,
    /// nobody borrows it again.
    #[cold]
    fn await_borrower(&self) {
        let mut spins = 0;
        while self.borrowed.load(SeqCst) {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Arena {
    /// Leases the page that `slot` holds; [`ZERO_PAGE`] when it holds none. End it with
    /// [`end_lease`](Self::end_lease).
    #[inline]
    pub(crate) fn lease(&self, slot: &AtomicU32) -> u32 {
        if self.is_alone() {
            return self.lease_alone(slot);
        }
        loop {
            let page = slot.load(SeqCst);
            if page == NO_PAGE {
                return ZERO_PAGE;
            }
            let state = self.state(page);
            state.leases.fetch_add(1, SeqCst);
            if state.borrowed.load(SeqCst) {
                state.await_borrower();
            }
            if slot.load(SeqCst) == page {
                return page;
            }
            // Somebody took it out meanwhile. If ours was the last count of a detached page, it is
            // ours to free.
            if self.end_lease(page) {
                self.put(&[page]);
            }
        }
    }

    #[inline]
    fn lease_alone(&self, slot: &AtomicU32) -> u32 {
        let page = slot.load(Relaxed);
        if page == NO_PAGE {
            return ZERO_PAGE;
        }
        let leases = &self.state(page).leases;
        leases.store(leases.load(Relaxed) + 1, Relaxed);
        self.leased.store(self.leased.load(Relaxed) + 1, Relaxed);
        page
    }

    /// Ends a lease. `true`: it was the last of a page that left its slot; the caller now owns the
    /// page, and frees it.
    #[inline]
    #[must_use]
    pub(crate) fn end_lease(&self, page: u32) -> bool {
        if page == ZERO_PAGE {
            return false;
        }
        let leases = &self.state(page).leases;
        if self.is_alone() {
            let left = leases.load(Relaxed) - 1;
            let is_last = left == DETACHED;
            leases.store(if is_last { 0 } else { left }, Release);
            self.leased.store(self.leased.load(Relaxed) - 1, Relaxed);
            return is_last;
        }
        let before = leases.fetch_sub(1, SeqCst);
        debug_assert!(before & !DETACHED > 0, "page {page} had no lease to end");
        before == DETACHED + 1 && leases.compare_exchange(DETACHED, 0, SeqCst, SeqCst).is_ok()
    }

    /// The page that `slot` holds, for its bytes to be changed in place; `None` if it holds none,
    /// or somebody leases or borrows it. End it with [`end_borrow`](Self::end_borrow), soon and
    /// without a lease or an exchange in between: others wait for it.
    #[inline]
    pub(crate) fn borrow(&self, slot: &AtomicU32) -> Option<u32> {
        let page = slot.load(SeqCst);
        if page == NO_PAGE {
            return None;
        }
        let state = self.state(page);
        if self.is_alone() {
            let is_free = self.leased.load(Relaxed) == 0 || state.leases.load(Relaxed) == 0;
            return is_free.then_some(page);
        }
        if state.borrowed.swap(true, SeqCst) {
            return None;
        }
        if state.leases.load(SeqCst) == 0 && slot.load(SeqCst) == page {
            return Some(page);
        }
        // Somebody leases it, or took it out meanwhile.
        state.borrowed.store(false, Release);
        None
    }

    /// Ends a borrow.
    #[inline]
    pub(crate) fn end_borrow(&self, page: u32) {
        if !self.is_alone() {
            self.state(page).borrowed.store(false, Release);
        }
    }

    /// For whoever has just taken `page` out of its slot. `true`: nobody leases it, it is the
    /// caller's now. `false`: it is detached, and belongs to whoever ends its last lease.
    #[inline]
    #[must_use]
    pub(crate) fn retire(&self, page: u32) -> bool {
        let state = self.state(page);
        if self.is_alone() {
            let leases = state.leases.load(Relaxed);
            if leases != 0 {
                state.leases.store(leases | DETACHED, Relaxed);
            }
            return leases == 0;
        }
        if state.borrowed.load(SeqCst) {
            state.await_borrower();
        }
        let mut seen = state.leases.load(SeqCst);
        loop {
            if seen == 0 {
                return true;
            }
            debug_assert!(seen & DETACHED == 0, "page {page} was detached twice");
            match state.leases.compare_exchange(seen, seen | DETACHED, SeqCst, SeqCst) {
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test, for an arena of one shard and for one of several.
    fn on_both(test: impl Fn(Arena, u32)) {
        for shards in [1, 4] {
            let arena = Arena::new(shards).unwrap();
            arena.grow(4).unwrap();
            let mut pages = Vec::new();
            arena.take(&mut pages, 1);
            test(arena, pages[0]);
        }
    }

    #[test]
    fn a_page_that_is_leased_is_freed_by_its_last_lease() {
        on_both(|arena, page| {
            let slot = AtomicU32::new(page);
            let (a, b) = (arena.lease(&slot), arena.lease(&slot));
            assert_eq!((a, b), (page, page));
            slot.store(NO_PAGE, SeqCst);
            assert!(!arena.retire(a));
            assert!(!arena.end_lease(a));
            assert!(arena.end_lease(b));
            assert_eq!(arena.lease(&slot), ZERO_PAGE);
            assert!(!arena.end_lease(ZERO_PAGE));
            // Private now, it may be installed again.
            slot.store(page, SeqCst);
            assert_eq!(arena.borrow(&slot), Some(page));
            arena.end_borrow(page);
        });
    }

    #[test]
    fn a_page_that_nobody_leases_is_the_retirers() {
        on_both(|arena, page| {
            let slot = AtomicU32::new(page);
            let lease = arena.lease(&slot);
            assert!(!arena.end_lease(lease));
            slot.store(NO_PAGE, SeqCst);
            assert!(arena.retire(page));
        });
    }

    #[test]
    fn a_page_that_is_leased_is_not_borrowed() {
        on_both(|arena, page| {
            let slot = AtomicU32::new(page);
            let lease = arena.lease(&slot);
            assert_eq!(arena.borrow(&slot), None);
            assert!(!arena.end_lease(lease));
            assert_eq!(arena.borrow(&slot), Some(page));
            arena.end_borrow(page);
            assert_eq!(arena.lease(&slot), page);
            slot.store(NO_PAGE, SeqCst);
            assert_eq!(arena.borrow(&slot), None);
            assert!(!arena.retire(page));
            assert!(arena.end_lease(page));
        });
    }

    #[test]
    fn of_several_shards_one_borrows() {
        let arena = Arena::new(2).unwrap();
        arena.grow(4).unwrap();
        let mut pages = Vec::new();
        arena.take(&mut pages, 1);
        let slot = AtomicU32::new(pages[0]);
        assert_eq!(arena.borrow(&slot), Some(pages[0]));
        assert_eq!(arena.borrow(&slot), None);
        arena.end_borrow(pages[0]);
        assert_eq!(arena.borrow(&slot), Some(pages[0]));
    }

    #[test]
    fn what_is_abandoned_is_free_when_its_leases_have_ended() {
        on_both(|arena, page| {
            let slot = AtomicU32::new(page);
            let before = arena.report().used;
            let lease = arena.lease(&slot);
            arena.abandon(&[page]);
            assert_eq!(arena.report().used, before);
            assert!(!arena.end_lease(lease));
            assert_eq!(arena.report().used, before - 1);
        });
    }
}
