//! Memory for tests of machines: pages in a vector, watched. Using a page that was given back,
//! giving one back twice, writing to a leased page and losing pages are caught here.

use core::fmt::Debug;

use block::checksum::Crc32c;
use block::{Buffer, DiskId, Extent, Memory, PAGE_SIZE, PageId, Random};

/// Disks that are memory themselves.
pub trait Lender: Debug + Default {
    fn lends(&self, disk: DiskId, extent: Extent) -> bool;
    /// What lies in a range that it lends.
    fn read(&self, disk: DiskId, extent: Extent) -> Vec<u8>;
    /// Takes bytes at once for a range that it lends.
    fn land(&mut self, disk: DiskId, extent: Extent, bytes: &[u8]);
}

/// The bytes of disks that all lend, by number.
impl Lender for Vec<Vec<u8>> {
    fn lends(&self, disk: DiskId, _: Extent) -> bool {
        (disk.0 as usize) < self.len()
    }

    fn read(&self, disk: DiskId, extent: Extent) -> Vec<u8> {
        self[disk.0 as usize][range(extent)].to_vec()
    }

    fn land(&mut self, disk: DiskId, extent: Extent, bytes: &[u8]) {
        self[disk.0 as usize][range(extent)].copy_from_slice(bytes);
    }
}

fn range(extent: Extent) -> core::ops::Range<usize> {
    extent.offset.0 as usize..extent.end().0 as usize
}

/// Pages of one shard, and what its disks lend. New pages hold rubbish, not zeros.
#[derive(Debug, Default)]
pub struct Pages<L = Vec<Vec<u8>>> {
    pages: Vec<Page>,
    free: Vec<u32>,
    pub lends: L,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8]>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Owned,
    Leased,
}

impl Pages {
    /// No pages yet, and no disk that lends.
    pub fn new() -> Pages {
        Pages::default()
    }
}

impl<L: Lender> Pages<L> {
    fn allocate(&mut self, state: State) -> PageId {
        let number = self.free.pop().unwrap_or_else(|| {
            let bytes = vec![0xee; PAGE_SIZE as usize].into_boxed_slice();
            self.pages.push(Page { bytes, state: State::Free });
            (self.pages.len() - 1) as u32
        });
        self.pages[number as usize].state = state;
        PageId(number)
    }

    fn free(&mut self, page: PageId) {
        let number = page.number();
        let expected = if page.is_leased() { State::Leased } else { State::Owned };
        let found = &mut self.pages[number as usize];
        assert_eq!(found.state, expected, "page {number} was given back");
        found.state = State::Free;
        // Whoever still looks at it sees rubbish.
        found.bytes.fill(0xdd);
        self.free.push(number);
    }

    fn page(&self, page: PageId) -> &[u8] {
        let found = &self.pages[page.number() as usize];
        assert_ne!(
            found.state,
            State::Free,
            "page {} is read after it was given back",
            page.number()
        );
        &found.bytes
    }

    fn page_mut(&mut self, page: PageId) -> &mut [u8] {
        let found = &mut self.pages[page.number() as usize];
        assert_eq!(found.state, State::Owned, "page {} is written", page.number());
        &mut found.bytes
    }

    /// Pages that somebody holds.
    pub fn held(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// Fills a buffer that is lent to a disk with rubbish, or the pages that come back from one.
    pub fn fill_with_rubbish(&mut self, buffer: &mut Buffer, random: &mut Random) {
        self.materialize(buffer);
        let rubbish = (random.next_u64() as u8) | 1;
        for at in 0..buffer.pages().len() {
            let page = buffer.pages()[at];
            if !page.is_leased() {
                self.page_mut(page).fill(rubbish);
            }
        }
    }

    /// Answers a read as a RAM disk does: with leased pages that hold `bytes`.
    pub fn lease(&mut self, buffer: &mut Buffer, bytes: &[u8]) {
        for page in buffer.take_pages().collect::<Vec<_>>() {
            self.free(page);
        }
        while (buffer.pages().len() as u32) < buffer.page_count() {
            let page = self.allocate(State::Owned);
            buffer.push_page(page);
        }
        self.write(buffer, 0, bytes);
        for at in 0..buffer.pages().len() {
            let page = buffer.pages()[at];
            self.pages[page.number() as usize].state = State::Leased;
            buffer.pages_mut()[at] = page.leased();
        }
    }

    /// Takes a buffer's pages away, as a RAM disk does that keeps them.
    pub fn keep_pages(&mut self, buffer: &mut Buffer) {
        for page in buffer.take_pages().collect::<Vec<_>>() {
            self.free(page);
        }
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.len() as usize];
        self.read(buffer, 0, &mut bytes);
        bytes
    }
}

impl<L: Lender> Memory for Pages<L> {
    fn can_lend(&self, disk: DiskId, extent: Extent) -> bool {
        self.lends.lends(disk, extent)
    }

    fn lend(&mut self, disk: DiskId, extent: Extent, buffer: &mut Buffer) {
        let bytes = self.lends.read(disk, extent);
        self.lease(buffer, &bytes);
    }

    fn land(&mut self, disk: DiskId, extent: Extent, bytes: &[u8]) {
        self.lends.land(disk, extent, bytes);
    }

    fn materialize(&mut self, buffer: &mut Buffer) {
        while (buffer.pages().len() as u32) < buffer.page_count() {
            let page = self.allocate(State::Owned);
            buffer.push_page(page);
        }
    }

    fn release(&mut self, mut buffer: Buffer) {
        for page in buffer.take_pages().collect::<Vec<_>>() {
            self.free(page);
        }
    }

    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]) {
        self.materialize(buffer);
        let mut done = 0;
        for run in buffer.segments(at, bytes.len() as u32) {
            let (from, to) = (run.offset as usize, (run.offset + run.length) as usize);
            let end = done + run.length as usize;
            self.page_mut(run.page)[from..to].copy_from_slice(&bytes[done..end]);
            done = end;
        }
    }

    fn read(&self, buffer: &Buffer, at: u32, into: &mut [u8]) {
        let mut done = 0;
        for run in buffer.segments(at, into.len() as u32) {
            let (from, to) = (run.offset as usize, (run.offset + run.length) as usize);
            let end = done + run.length as usize;
            into[done..end].copy_from_slice(&self.page(run.page)[from..to]);
            done = end;
        }
    }

    fn zero(&mut self, buffer: &mut Buffer, at: u32, length: u32) {
        self.write(buffer, at, &vec![0; length as usize]);
    }

    fn crc32c(&self, buffer: &Buffer, at: u32, length: u32, running: Crc32c) -> Crc32c {
        let mut bytes = vec![0; length as usize];
        self.read(buffer, at, &mut bytes);
        running.update(&bytes)
    }

    fn first_difference(&self, a: &Buffer, b: &Buffer) -> Option<u32> {
        assert_eq!(a.len(), b.len(), "buffers of two lengths are compared");
        let (a, b) = (self.bytes(a), self.bytes(b));
        a.iter().zip(&b).position(|(a, b)| a != b).map(|at| at as u32)
    }
}
