//! The volatile write cache of a modelled disk: which pages are not on its medium yet, and what is
//! there instead.
//!
//! ```text
//!   write   -> dirty ----- sent, by a channel ----> under way ---- its time has come ---> on the medium
//!                ^                                     |
//!                +------------- written again ---------+
//! ```
//!
//! The disk inside holds all that was written, so that reads find it there; the cache knows what the
//! medium of a real disk would have of it. Of each page that is not clean it keeps what the medium
//! has (`medium`), and what is on its way there (`under_way`), which is what the disk inside holds
//! until somebody writes there again: then it is copied ([`Cache::keep`]). [`Cache::lose`] puts
//! back what the medium had. Who never has the power cut gives `()` for the [`Contents`], and nothing
//! is copied.
//!
//! What lies one behind the other is sent together, and what is sent next is the first page behind the
//! channel's place, as the arm of a disk goes once over it and begins anew. Units: pages of 4096
//! bytes, the unit in which a medium is written. No errors. Not here: how long anything takes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use block::{Extent, Instant, PAGE_SIZE};

/// Pages that a channel writes in one go, at most: 512 KiB.
const RUN_MAX: u64 = 128;

/// The bytes of a page of a disk; of its last one as many as it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::disk) enum Image {
    #[default]
    Zeros,
    Bytes(Box<[u8]>),
}

/// What a disk holds, page by page.
pub(in crate::disk) trait Contents {
    fn image(&mut self, page: u64) -> Image;
    fn put_back(&mut self, page: u64, image: Image);
}

/// Where nothing is ever put back.
impl Contents for () {
    fn image(&mut self, _: u64) -> Image {
        Image::Zeros
    }

    fn put_back(&mut self, _: u64, _: Image) {
        unreachable!("nothing is lost where nothing was kept")
    }
}

/// A page that the medium does not have as the disk has it.
#[derive(Debug, Default)]
struct Cached {
    medium: Image,
    /// Whether what the disk has now is not under way.
    is_dirty: bool,
    /// In the order in which they get there.
    under_way: VecDeque<Version>,
}

#[derive(Debug)]
struct Version {
    there_at: Instant,
    /// What it is; what the disk has now, as long as nobody wrote there again.
    image: Option<Image>,
}

/// Pages that are written in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    first: u64,
    count: u64,
}

impl Run {
    pub(super) fn extent(self) -> Extent {
        Extent::new(self.first * PAGE, self.count * PAGE)
    }
}

const PAGE: u64 = PAGE_SIZE as u64;

#[derive(Debug)]
pub(super) struct Cache {
    /// Pages that it may hold; none where there is no cache.
    capacity: u64,
    pages: BTreeMap<u64, Cached>,
    dirty: BTreeSet<u64>,
    /// When which page gets to the medium; a page once for each of its versions.
    under_way: BTreeSet<(Instant, u64)>,
    /// Since when the oldest of those that are dirty now may be sent.
    dirty_since: Instant,
}

/// The pages that an extent touches.
fn pages(extent: Extent) -> Range<u64> {
    extent.offset.0 / PAGE..extent.offset.0.saturating_add(extent.length.0).div_ceil(PAGE)
}

impl Cache {
    pub(super) fn new(bytes: u64) -> Cache {
        Cache {
            capacity: bytes / PAGE,
            pages: BTreeMap::new(),
            dirty: BTreeSet::new(),
            under_way: BTreeSet::new(),
            dirty_since: Instant::ZERO,
        }
    }

    /// Whether a write of this extent may be held at all.
    pub(super) fn fits(&self, extent: Extent) -> bool {
        let Range { start, end } = pages(extent);
        end - start <= self.capacity
    }

    /// Whether all of an extent is in it.
    pub(super) fn holds(&self, extent: Extent) -> bool {
        let Range { start, end } = pages(extent);
        self.pages.range(start..end).count() as u64 == end - start
    }

    /// So many pages have to leave it before this extent has room.
    pub(super) fn lacks(&self, extent: Extent) -> u64 {
        let Range { start, end } = pages(extent);
        let held = self.pages.range(start..end).count() as u64;
        (self.pages.len() as u64 + (end - start) - held).saturating_sub(self.capacity)
    }

    /// When so many pages will have left it, by what is under way.
    pub(super) fn leave_at(&self, count: u64) -> Option<Instant> {
        let is_last = |&&(at, page): &&(Instant, u64)| {
            let cached = &self.pages[&page];
            !cached.is_dirty && cached.under_way.back().is_some_and(|last| last.there_at == at)
        };
        let nth = self.under_way.iter().filter(is_last).nth(count.saturating_sub(1) as usize);
        nth.map(|(at, _)| *at)
    }

    /// An extent is about to be written: what of it is under way is kept as it is now.
    fn keep(&mut self, extent: Extent, contents: &mut dyn Contents) {
        for (page, cached) in self.pages.range_mut(pages(extent)) {
            if let Some(Version { image: image @ None, .. }) = cached.under_way.back_mut() {
                *image = Some(contents.image(*page));
            }
        }
    }

    /// An extent is about to be written, and what is written is in the cache from this moment on.
    pub(super) fn write(&mut self, extent: Extent, from: Instant, contents: &mut dyn Contents) {
        self.keep(extent, contents);
        if self.dirty.is_empty() {
            self.dirty_since = from;
        }
        for page in pages(extent) {
            let cached = self
                .pages
                .entry(page)
                .or_insert_with(|| Cached { medium: contents.image(page), ..Cached::default() });
            cached.is_dirty = true;
            self.dirty.insert(page);
        }
    }

    /// An extent is about to be written past the cache, and is on the medium then: with it are the pages of
    /// it that the cache has. Returns when that is: not before what of them is under way.
    pub(super) fn pass(
        &mut self,
        extent: Extent,
        there_at: Instant,
        contents: &mut dyn Contents,
    ) -> Instant {
        self.keep(extent, contents);
        let held: Vec<u64> = self.pages.range(pages(extent)).map(|(page, _)| *page).collect();
        held.into_iter().fold(there_at, |last, page| last.max(self.send(page, there_at)))
    }

    /// When all is on the medium that is under way.
    pub(super) fn all_there_at(&self) -> Option<Instant> {
        self.under_way.last().map(|(at, _)| *at)
    }

    /// Since when something may be sent.
    pub(super) fn dirty_since(&self) -> Option<Instant> {
        (!self.dirty.is_empty()).then_some(self.dirty_since)
    }

    /// What is sent next by a channel that stands at this byte.
    pub(super) fn next_run(&self, at: u64) -> Option<Run> {
        let ahead = self.dirty.range(at / PAGE..).next();
        let first = *ahead.or_else(|| self.dirty.first())?;
        let behind = self.dirty.range(first..).zip(first..first + RUN_MAX);
        let count = behind.take_while(|(page, next)| *page == next).count() as u64;
        Some(Run { first, count })
    }

    /// A run is on the medium at this moment.
    pub(super) fn start(&mut self, run: Run, there_at: Instant) {
        for page in run.first..run.first + run.count {
            self.send(page, there_at);
        }
    }

    /// What the disk has of a page is under way. Returns when it is there.
    fn send(&mut self, page: u64, there_at: Instant) -> Instant {
        let cached = self.pages.get_mut(&page).expect("what is sent is in the cache");
        // One version of a page after the other.
        let before = cached.under_way.back().map_or(there_at, |last| last.there_at);
        let there_at = there_at.max(before);
        cached.is_dirty = false;
        cached.under_way.push_back(Version { there_at, image: None });
        self.dirty.remove(&page);
        self.under_way.insert((there_at, page));
        there_at
    }

    /// What has come to the medium by now is there.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(&(at, page)) = self.under_way.first()
            && at <= now
        {
            self.under_way.pop_first();
            // Clean already, where two of its versions got there by now.
            let Some(cached) = self.pages.get_mut(&page) else { continue };
            while let Some(version) = cached.under_way.pop_front_if(|one| one.there_at <= now) {
                // Without one it is what the disk has, and so clean below.
                cached.medium = version.image.unwrap_or_default();
            }
            if !cached.is_dirty && cached.under_way.is_empty() {
                self.pages.remove(&page);
            }
        }
    }

    /// The power is gone: what was not on the medium is lost. Returns how many pages.
    pub(super) fn lose(&mut self, contents: &mut dyn Contents) -> u64 {
        let lost = std::mem::take(&mut self.pages);
        self.dirty.clear();
        self.under_way.clear();
        let count = lost.len() as u64;
        lost.into_iter().for_each(|(page, cached)| contents.put_back(page, cached.medium));
        count
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
