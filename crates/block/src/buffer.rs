//! Buffers: the payload of a request as a list of 4 KiB pages with one owner.
//!
//! A buffer is an owned value that moves from machine to request to effect and back; it is not
//! `Clone`. Pure code sees numbers of pages, never pointers: what must be done to the bytes goes
//! through [`Memory`](crate::Memory). A buffer begins `phase` bytes into its first page, where
//! `phase` is the offset of the request on its volume modulo 4096, so that the buffer's pages lie
//! as the disk's pages lie and a RAM disk can exchange whole pages instead of copying them:
//!
//! ```text
//!   volume   |....phase#####|##############|#######.......|     # = the bytes of the request
//!   pages    [   page 17    ][   page 4    ][   page 230  ]
//! ```
//!
//! A page may be *leased*: it belongs to a RAM disk, is never changed while the lease lasts, and is
//! given back by ending the lease instead of freeing it. A buffer without pages is *reserved*: it
//! is counted in its pool, and gets pages when bytes are first put into it.

/// Bytes in a page.
pub const PAGE_SIZE: u32 = 4096;

/// The number of a page in its [`Memory`](crate::Memory), and whether it is leased (bit 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

impl PageId {
    const LEASED: u32 = 1 << 31;

    /// The page as one that is leased from a disk.
    #[inline]
    pub fn leased(self) -> PageId {
        PageId(self.0 | Self::LEASED)
    }

    /// Whether giving it back means ending a lease.
    #[inline]
    pub fn is_leased(self) -> bool {
        self.0 & Self::LEASED != 0
    }

    /// The page's number without the mark of the lease.
    #[inline]
    pub fn number(self) -> u32 {
        self.0 & !Self::LEASED
    }
}

/// Pages in a row: few of them in place, so that a 4 KiB request allocates nothing. How many those
/// are is the buffer's to know: beside them it would leave a hole in this type, and a move of what
/// has just been written with holes waits until the writes are done, on every request's way.
#[derive(Debug)]
enum PageList {
    Few([PageId; FEW]),
    Many(Vec<PageId>),
}

const FEW: usize = 4;

impl Default for PageList {
    #[inline]
    fn default() -> Self {
        PageList::Few([PageId(0); FEW])
    }
}

/// A run of bytes within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub page: PageId,
    /// Where in the page the run begins.
    pub offset: u32,
    /// Bytes in the run; it ends at or before the page's end.
    pub length: u32,
}

/// The payload of a request: `length` bytes from `phase` in its first page on.
///
/// Dropping a buffer that holds pages loses them until the process ends: give it back with
/// [`Pool::give`](crate::Pool::give) or [`Memory::release`](crate::Memory::release).
#[derive(Debug, Default)]
pub struct Buffer {
    pages: PageList,
    length: u32,
    phase: u16,
    /// Pages that are in place.
    few: u16,
}

impl Buffer {
    /// A buffer of no bytes, for requests without payload.
    #[inline]
    pub fn empty() -> Buffer {
        Buffer::default()
    }

    /// A buffer of `length` bytes that begins `phase` bytes (below 4096) into its first page and
    /// has no pages yet. It is for pools and memories to call; everybody else takes buffers from a
    /// pool.
    #[inline]
    pub fn reserved(length: u32, phase: u32) -> Buffer {
        assert!(phase < PAGE_SIZE, "phase {phase} lies beyond the first page");
        Buffer { pages: PageList::default(), length, phase: phase as u16, few: 0 }
    }

    /// Bytes that it carries.
    #[inline]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether it carries no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where in its first page it begins.
    #[inline]
    pub fn phase(&self) -> u32 {
        u32::from(self.phase)
    }

    /// Pages that it occupies or, while reserved, will occupy.
    #[inline]
    pub fn page_count(&self) -> u32 {
        pages_for(self.length, self.phase())
    }

    /// Whether it has no pages although it carries bytes.
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.length > 0 && self.pages().is_empty()
    }

    /// Its pages, in order.
    #[inline]
    pub fn pages(&self) -> &[PageId] {
        match &self.pages {
            PageList::Few(pages) => &pages[..usize::from(self.few)],
            PageList::Many(pages) => pages,
        }
    }

    /// Its pages, for a disk that exchanges them.
    #[inline]
    pub fn pages_mut(&mut self) -> &mut [PageId] {
        match &mut self.pages {
            PageList::Few(pages) => &mut pages[..usize::from(self.few)],
            PageList::Many(pages) => pages,
        }
    }

    /// Appends a page to a buffer that is being given its pages; panics when it has all of them.
    #[inline]
    pub fn push_page(&mut self, page: PageId) {
        let expected = self.page_count() as usize;
        assert!(self.pages().len() < expected, "a buffer of {expected} pages was given one more");
        self.push(page, expected);
    }

    /// Appends a page of `expected`.
    #[inline]
    fn push(&mut self, page: PageId, expected: usize) {
        let few = usize::from(self.few);
        match &mut self.pages {
            PageList::Few(pages) if few < FEW && expected <= FEW => {
                pages[few] = page;
                self.few += 1;
            }
            PageList::Few(pages) => {
                let mut many = Vec::with_capacity(expected.max(FEW + 1));
                many.extend_from_slice(&pages[..few]);
                many.push(page);
                (self.pages, self.few) = (PageList::Many(many), 0);
            }
            PageList::Many(pages) => pages.push(page),
        }
    }

    /// Gives a reserved buffer all its pages, in order; panics unless `pages` are as many as it
    /// occupies.
    #[inline]
    pub fn fill(&mut self, pages: impl Iterator<Item = PageId>) {
        let expected = self.page_count() as usize;
        assert!(self.pages().is_empty(), "a buffer with pages was given others");
        if expected > FEW {
            let mut many = Vec::with_capacity(expected);
            many.extend(pages);
            self.pages = PageList::Many(many);
        } else {
            pages.for_each(|page| self.push(page, expected));
        }
        let given = self.pages().len();
        assert!(given == expected, "a buffer of {expected} pages was given {given}");
    }

    /// Takes its pages away and leaves it reserved.
    pub fn take_pages(&mut self) -> impl Iterator<Item = PageId> + use<> {
        let taken = core::mem::replace(self, Buffer::reserved(self.length, self.phase()));
        (0..taken.pages().len()).map(move |index| taken.pages()[index])
    }

    /// The runs of bytes, page by page, of `length` bytes from `at` on; panics when they lie
    /// outside or the buffer is reserved.
    #[inline]
    pub fn segments(&self, at: u32, length: u32) -> Segments<'_> {
        let end = at.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length) && !(length > 0 && self.is_reserved()),
            "bytes {at}+{length} of a buffer of {} with {} pages",
            self.length,
            self.pages().len()
        );
        let start = self.phase() + at;
        Segments {
            pages: self.pages(),
            index: (start / PAGE_SIZE) as usize,
            offset: start % PAGE_SIZE,
            left: length,
        }
    }

    /// Cuts it in two before byte `at`, which must lie on the edge of a page; returns the second
    /// part.
    #[must_use]
    pub fn split_off(&mut self, at: u32) -> Buffer {
        assert!(at <= self.length, "cut at {at} of {} bytes", self.length);
        if at == self.length {
            return Buffer::empty();
        }
        let edge = self.phase() + at;
        assert!(edge.is_multiple_of(PAGE_SIZE), "cut at {edge}, not at the edge of a page");
        let mut rest = Buffer::reserved(self.length - at, 0);
        let keep = (edge / PAGE_SIZE) as usize;
        let whole = core::mem::replace(self, Buffer::reserved(at, self.phase()));
        if !whole.is_reserved() {
            let (head, tail) = whole.pages().split_at(keep);
            head.iter().for_each(|page| self.push(*page, keep));
            tail.iter().for_each(|page| rest.push(*page, tail.len()));
        }
        rest
    }

    /// Joins what [`split_off`](Self::split_off) cut: appends `rest`, which must begin at the edge
    /// of a page where this one ends. A part may have come back from a write without its pages:
    /// then the whole has fewer pages than it occupies, and is only good for being given back.
    pub fn append(&mut self, rest: Buffer) {
        if rest.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = rest;
            return;
        }
        let edge = self.phase() + self.length;
        assert!(
            edge.is_multiple_of(PAGE_SIZE) && rest.phase == 0,
            "joined at {edge} and {}, not at the edge of a page",
            rest.phase
        );
        self.length += rest.length;
        let expected = self.page_count() as usize;
        rest.pages().iter().for_each(|page| self.push(*page, expected));
    }
}

/// Pages that `length` bytes occupy from `phase` in the first page on.
#[inline]
pub fn pages_for(length: u32, phase: u32) -> u32 {
    if length == 0 {
        return 0;
    }
    ((u64::from(phase) + u64::from(length)).div_ceil(u64::from(PAGE_SIZE))) as u32
}

/// The runs of a part of a buffer; see [`Buffer::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    pages: &'a [PageId],
    index: usize,
    offset: u32,
    left: u32,
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        if self.left == 0 {
            return None;
        }
        let length = self.left.min(PAGE_SIZE - self.offset);
        let segment = Segment { page: self.pages[self.index], offset: self.offset, length };
        self.left -= length;
        self.index += 1;
        self.offset = 0;
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(length: u32, phase: u32, first: u32) -> Buffer {
        let mut buffer = Buffer::reserved(length, phase);
        for page in 0..buffer.page_count() {
            buffer.push_page(PageId(first + page));
        }
        buffer
    }

    #[test]
    fn segments_follow_the_phase() {
        let buffer = filled(8192, 512, 10);
        assert_eq!(buffer.page_count(), 3);
        let runs: Vec<_> =
            buffer.segments(0, 8192).map(|s| (s.page.0, s.offset, s.length)).collect();
        assert_eq!(runs, [(10, 512, 3584), (11, 0, 4096), (12, 0, 512)]);
        let part: Vec<_> =
            buffer.segments(3584, 100).map(|s| (s.page.0, s.offset, s.length)).collect();
        assert_eq!(part, [(11, 0, 100)]);
    }

    #[test]
    fn what_was_cut_joins_again() {
        let mut buffer = filled(40_000, 1024, 0);
        let rest = buffer.split_off(7168);
        assert_eq!((buffer.len(), buffer.pages().len()), (7168, 2));
        assert_eq!((rest.len(), rest.pages()[0]), (32_832, PageId(2)));
        buffer.append(rest);
        assert_eq!(buffer.pages(), filled(40_000, 1024, 0).pages());
        assert_eq!((buffer.len(), buffer.phase()), (40_000, 1024));
    }

    #[test]
    #[should_panic(expected = "not at the edge of a page")]
    fn a_cut_within_a_page_is_a_bug() {
        let _ = filled(8192, 0, 0).split_off(512);
    }

    #[test]
    fn reserved_buffers_split_without_pages() {
        let mut buffer = Buffer::reserved(8192, 0);
        let rest = buffer.split_off(4096);
        assert!(buffer.is_reserved() && rest.is_reserved());
        buffer.append(rest);
        assert_eq!(buffer.page_count(), 2);
    }

    #[test]
    fn a_buffer_is_filled_with_all_its_pages_at_once() {
        for length in [512, 4096, 20_000] {
            let mut buffer = Buffer::reserved(length, 512);
            let count = buffer.page_count();
            buffer.fill((0..count).map(PageId));
            assert_eq!(buffer.pages(), filled(length, 512, 0).pages());
        }
    }

    #[test]
    #[should_panic(expected = "a buffer of 3 pages was given 2")]
    fn too_few_pages_are_a_bug() {
        Buffer::reserved(8192, 512).fill((0..2).map(PageId));
    }

    #[test]
    fn a_lease_is_a_mark_on_the_page() {
        let page = PageId(7).leased();
        assert!(page.is_leased() && page.number() == 7 && !PageId(7).is_leased());
    }
}
