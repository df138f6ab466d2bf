//! Which page a slot gets: pages that lie as their slots do are read and sent as one run, so a page
//! that is taken for a slot is, where it is free, the one beside a neighbour's, or the slot's
//! [home](crate::memory::homes), so that a disk lies in order in whatever order it is written.
//!
//! What a write exchanged because somebody leased the page left a hole in such a run: the next whole
//! page that lands there takes the page that fits, once it is free, instead of changing the other in
//! place. A disk that is touched has all its pages in a row from the beginning. What neighbours
//! hold is looked at without care for what other shards do meanwhile: it decides which page is
//! asked for, and never whose it is.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::{PAGE, Part, RamDisk};
use crate::memory::arena::{COLD, NO_PAGE};
use crate::memory::shard_memory::ShardMemory;

/// Pages that are touched together: 16 MiB.
const TOUCHED_TOGETHER: usize = 4096;

impl RamDisk {
    /// The page that is missing where a whole page is written: the one between the neighbours', if
    /// the slot holds another.
    #[inline]
    pub(super) fn missing(&self, part: Part) -> Option<u32> {
        let around = self.slots.get(part.slot.wrapping_sub(1)..part.slot + 2)?;
        let [before, held, after] = [0, 1, 2].map(|at| around[at].load(Relaxed));
        let fits = before.wrapping_add(1);
        let is_hole = fits != held && after.wrapping_sub(1) == fits && held != NO_PAGE;
        (is_hole && part.is_whole()).then_some(fits)
    }

    /// A private page for a slot: beside a neighbour's, or its home, if one of them is free.
    #[cold]
    pub(super) fn take_beside(&self, memory: &mut ShardMemory, slot: usize) -> u32 {
        let held = |slot: usize| {
            let page = self.slots.get(slot)?.load(Relaxed);
            (page != NO_PAGE).then_some(page)
        };
        let home = self.home(slot);
        let beside =
            [held(slot.wrapping_sub(1)).map(|page| page + 1), held(slot + 1).map(|page| page - 1)];
        // Most lie at home, so that both are the same.
        let mut beside = beside.into_iter().flatten().filter(|page| Some(*page) != home);
        beside
            .find(|page| memory.take_this(*page))
            .or_else(|| home.filter(|home| memory.take_home(*home)))
            .unwrap_or_else(|| memory.take_oldest_page())
    }

    /// The page that is meant for a slot.
    fn home(&self, slot: usize) -> Option<u32> {
        self.homes.map(|first| first + slot as u32)
    }

    /// Gives the slots from `first` on pages of zeros, committed and one behind the other where
    /// they have homes; so many that it takes a few milliseconds. Returns the first slot that it
    /// did not come to. For a new disk, which nobody has written to.
    pub(in crate::disk) fn touch(&self, first: usize) -> usize {
        let end = self.slots.len().min(first + TOUCHED_TOGETHER);
        let mut others = Vec::new();
        for slot in first..end {
            let home = self.home(slot).and_then(|home| Some((home, self.arena.take_home(home)?)));
            let (page, is_zeros) = home.unwrap_or_else(|| {
                if others.is_empty() {
                    self.arena.take(&mut others, end - slot);
                    others.iter_mut().for_each(|page| *page &= !COLD);
                    others.sort_unstable_by(|a, b| b.cmp(a));
                }
                (others.pop().expect("at least one was taken"), false)
            });
            // What nobody had is zeros, and needs no more than to be touched.
            let bytes = if is_zeros { 1 } else { PAGE };
            // SAFETY: the page was taken, so it is ours alone.
            unsafe { self.arena.page(page).write_bytes(0, bytes) };
            self.slots[slot].store(page, SeqCst);
        }
        if !others.is_empty() {
            self.arena.put(&others);
        }
        end
    }
}
