//! Home pages: each slot of a RAM disk has a page that is meant for it, so that a disk lies in
//! order in whatever order it is written.
//!
//! The homes are the upper half of the arena's numbers. A disk is given a range of them
//! ([`Arena::make_homes`]), which costs address space alone; the page of a slot is committed when
//! the slot is first written ([`Arena::take_home`]). Once it was taken a home is a page like all
//! others: it may move to another slot or to a buffer by an exchange, and its slot takes it again
//! where it is free. Units: pages. Errors: none; a disk for which there is no range, because
//! address space is limited or the system counts it as memory, does without.
//!
//! **Small and huge.** What lies side by side is written in any order, so a huge page for the first
//! write would commit 512 times what was written. A region (2 MiB) therefore begins with small
//! pages, and becomes huge once nearly all of it was taken: the kernel is asked to collapse it by a
//! shard that has nothing to do ([`Arena::collapse`]; a millisecond each). Where pages are taken in
//! order, which the full region before tells, it is huge from the beginning. Each stretch of
//! regions that are asked to be huge is a mapping of its own to the kernel, which has a limit on
//! mappings (65,530), so there are so many at most.

use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;

use rustix::mm::Advice;

use super::arena::{Arena, ArenaError, PAGE, Supply, allow};

/// Pages of a region: what a huge page holds.
const REGION: u32 = 512;
/// Pages of a region that were taken when it is worth a huge page: an eighth more is committed
/// than was written, at most.
const FULL: u16 = 448;
/// Who takes pages in order begins a region here.
const BEGINNING: u32 = 64;
/// Stretches of huge regions with small ones between them, at most.
const STRETCHES_MAX: u32 = 4096;
/// Regions that one call of [`Arena::collapse`] has made huge, at most.
pub(super) const COLLAPSE_MAX: usize = 2;
/// `MADV_COLLAPSE` of Linux 6.1, which the libraries do not know yet.
const MADV_COLLAPSE: i32 = 25;

/// Whose homes are where, and which regions of them are huge.
#[derive(Debug, Default)]
pub(super) struct Homes {
    /// The numbers that may be homes; those from `reached` on never were.
    numbers: Range<u32>,
    reached: u32,
    /// Below `reached`, and no disk's now: apart from one another, in order.
    vacant: Vec<Range<u32>>,
    /// Homes that were ever taken.
    pub(super) taken: u32,
    /// Of each region below `reached`.
    regions: Vec<Region>,
    /// Regions that are to be huge.
    due: Vec<usize>,
    stretches: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    /// Pages that were ever taken.
    taken: u16,
    is_huge: bool,
}

impl Region {
    fn is_full(self) -> bool {
        self.taken >= FULL
    }
}

impl Homes {
    /// Homes may have these numbers; the first begins a huge page.
    pub(super) fn new(numbers: Range<u32>) -> Homes {
        Homes { reached: numbers.start, numbers, ..Homes::default() }
    }

    /// Takes a range of whole regions, one that was a disk's before if it is large enough. `open`
    /// makes a new one usable.
    fn find(&mut self, pages: u32, open: impl FnOnce(Range<u32>) -> bool) -> Option<u32> {
        let pages = pages.checked_next_multiple_of(REGION)?;
        let vacant = self.vacant.iter_mut().find(|range| range.len() as u32 >= pages);
        if let Some(range) = vacant {
            let first = range.start;
            range.start += pages;
            self.vacant.retain(|range| !range.is_empty());
            return Some(first);
        }
        let first = self.reached;
        let end = first.checked_add(pages).filter(|end| *end <= self.numbers.end)?;
        if !open(first..end) {
            return None;
        }
        self.reached = end;
        self.regions.resize(self.region_of(end), Region::default());
        Some(first)
    }

    /// Takes a range back.
    fn vacate(&mut self, first: u32, pages: u32) {
        let end = first + pages.next_multiple_of(REGION);
        let at = self.vacant.partition_point(|range| range.start < first);
        self.vacant.insert(at, first..end);
        self.vacant.dedup_by(|next, range| {
            let adjoins = range.end == next.start;
            if adjoins {
                range.end = next.end;
            }
            adjoins
        });
    }

    fn region_of(&self, page: u32) -> usize {
        ((page - self.numbers.start) / REGION) as usize
    }

    fn first_of(&self, region: usize) -> u32 {
        self.numbers.start + region as u32 * REGION
    }

    /// A page was taken that never was before. Returns the region that is to be huge at once.
    fn note(&mut self, page: u32) -> Option<usize> {
        self.taken += 1;
        let index = self.region_of(page);
        let region = &mut self.regions[index];
        region.taken += 1;
        let (region, is_new) = (*region, region.taken == 1);
        let in_order = || index > 0 && self.regions[index - 1].is_full();
        if is_new && page - self.first_of(index) < BEGINNING && in_order() {
            return self.make_huge(index).then_some(index);
        }
        if region.taken == FULL && !region.is_huge {
            self.due.push(index);
        }
        None
    }

    /// Marks a region as huge, unless that would be a stretch too many. Full ones beside it, for
    /// which it may have been, are due then.
    fn make_huge(&mut self, index: usize) -> bool {
        let beside = [index.wrapping_sub(1), index + 1];
        let region = |at: usize| self.regions.get(at).copied().unwrap_or_default();
        let adjoining = beside.iter().filter(|at| region(**at).is_huge).count() as u32;
        if region(index).is_huge || adjoining == 0 && self.stretches >= STRETCHES_MAX {
            return false;
        }
        let due = beside.into_iter().filter(|at| region(*at).is_full() && !region(*at).is_huge);
        let due: Vec<usize> = due.collect();
        self.due.extend(due);
        self.stretches = self.stretches + 1 - adjoining;
        self.regions[index].is_huge = true;
        true
    }
}

impl Arena {
    /// Homes for a disk of so many pages, one behind the other: the number of the first.
    pub(crate) fn make_homes(&self, pages: u32) -> Option<u32> {
        self.supply().homes.find(pages, |range| self.open_homes(range).is_ok())
    }

    /// They are nobody's homes any more. Those that were taken are pages like all others.
    pub(crate) fn end_homes(&self, first: u32, pages: u32) {
        self.supply().homes.vacate(first, pages);
    }

    /// Makes states and pages of a range usable, the pages as small ones.
    fn open_homes(&self, range: Range<u32>) -> Result<(), ArenaError> {
        self.open_states(range.clone())?;
        let bytes = range.len() * PAGE;
        let pages = allow(self.mapping(), range.start as usize * PAGE, bytes)?;
        // SAFETY: the range lies in the reservation; the advice changes no contents. A kernel that
        // knows no huge pages refuses it, and has small ones.
        let _ = unsafe { rustix::mm::madvise(pages, bytes, Advice::LinuxNoHugepage) };
        self.homes_reach.store(range.end, SeqCst);
        Ok(())
    }

    /// Takes the page of a slot's home, if it is free and no more memory than pools and disks may
    /// use would be committed. `Some(true)`: nobody had it before, and it is zeros.
    #[cold]
    pub(crate) fn take_home(&self, page: u32) -> Option<bool> {
        if self.take_this(page) {
            return Some(false);
        }
        let mut supply = self.supply();
        if supply.fresh >= supply.end_of_fresh() || !self.state(page).begin() {
            return None;
        }
        if let Some(region) = supply.homes.note(page) {
            self.advise_huge(supply.homes.first_of(region));
        }
        Some(true)
    }

    /// Has full regions made huge, at most [`COLLAPSE_MAX`]; says how many. Call it again while it
    /// returns that many and there is nothing better to do.
    pub(crate) fn collapse(&self) -> usize {
        let mut regions = Vec::new();
        {
            let Supply { homes, .. } = &mut *self.supply();
            while regions.len() < COLLAPSE_MAX
                && let Some(region) = homes.due.pop()
            {
                if homes.make_huge(region) {
                    regions.push(homes.first_of(region));
                }
            }
        }
        for first in &regions {
            self.advise_huge(*first);
            let bytes = REGION as usize * PAGE;
            // SAFETY: the region lies in the mapping and was opened. Its contents stay what they
            // are, whoever reads or writes them meanwhile; only the kernel's way to them changes.
            // Where that cannot be (an older kernel, or no huge page to be had) nothing is changed,
            // and the advice has the kernel do it in time.
            let _ = unsafe { libc::madvise(self.page(*first).cast(), bytes, MADV_COLLAPSE) };
        }
        regions.len()
    }

    /// What is committed of a region from now on may be one huge page.
    fn advise_huge(&self, first: u32) {
        let bytes = REGION as usize * PAGE;
        // SAFETY: the region lies in the mapping and was opened; the advice changes no contents.
        let _ =
            unsafe { rustix::mm::madvise(self.page(first).cast(), bytes, Advice::LinuxHugepage) };
    }

    /// Homes that were ever taken.
    #[cfg(test)]
    pub(crate) fn homes_taken(&self) -> u32 {
        self.supply().homes.taken
    }

    /// Whether the region of a home is huge.
    #[cfg(test)]
    pub(crate) fn is_huge(&self, page: u32) -> bool {
        let supply = self.supply();
        supply.homes.regions[supply.homes.region_of(page)].is_huge
    }

    /// Bytes that the kernel has committed, of homes from `first` on.
    #[cfg(test)]
    pub(crate) fn committed(&self, first: u32, pages: u32) -> usize {
        let mut seen = vec![0_u8; pages as usize];
        let bytes = pages as usize * PAGE;
        // SAFETY: the vector has a byte for each page of the range, which lies in the mapping.
        let done = unsafe { libc::mincore(self.page(first).cast(), bytes, seen.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        seen.iter().filter(|page| **page & 1 == 1).count() * PAGE
    }
}

/// Where the first huge page of numbers from `from` on begins, `base` being where page 0 lies.
pub(super) fn first_region(base: *mut u8, from: u32) -> u32 {
    let huge = REGION as usize * PAGE;
    let at = base as usize + from as usize * PAGE;
    from + ((at.next_multiple_of(huge) - at) / PAGE) as u32
}

#[cfg(test)]
#[path = "homes_tests.rs"]
mod tests;
