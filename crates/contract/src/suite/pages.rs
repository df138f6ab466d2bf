//! Memory for tests of machines: pages in a vector, each of which has one owner. Using a page that was given back, giving one back twice and losing one are
//! caught.

use block::checksum::Crc32c;
use block::{Buffer, DiskId, Extent, Memory, PAGE_SIZE, PageId};

/// Pages in a vector. New ones hold rubbish, not zeros.
#[derive(Debug, Default)]
pub struct Pages {
    pages: Vec<Option<Box<[u8]>>>,
    free: Vec<u32>,
    /// What disks hold that lend, by number.
    pub lends: Vec<Vec<u8>>,
}

impl Pages {
    /// Pages that somebody holds.
    pub fn held(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.len() as usize];
        self.read(buffer, 0, &mut bytes);
        bytes
    }

    fn page(&self, page: PageId) -> &[u8] {
        self.pages[page.number() as usize].as_ref().expect("the page was given back")
    }

    fn page_mut(&mut self, page: PageId) -> &mut [u8] {
        self.pages[page.number() as usize].as_mut().expect("the page was given back")
    }
}

impl Memory for Pages {
    fn can_lend(&self, disk: DiskId, _: Extent) -> bool {
        (disk.0 as usize) < self.lends.len()
    }

    fn lend(&mut self, disk: DiskId, extent: Extent, buffer: &mut Buffer) {
        let range = extent.offset.0 as usize..extent.end().0 as usize;
        let bytes = self.lends[disk.0 as usize][range].to_vec();
        self.write(buffer, 0, &bytes);
    }

    fn land(&mut self, disk: DiskId, extent: Extent, bytes: &[u8]) {
        let range = extent.offset.0 as usize..extent.end().0 as usize;
        self.lends[disk.0 as usize][range].copy_from_slice(bytes);
    }

    fn materialize(&mut self, buffer: &mut Buffer) {
        while (buffer.pages().len() as u32) < buffer.page_count() {
            let page = vec![0xee; PAGE_SIZE as usize].into_boxed_slice();
            let number = self.free.pop().unwrap_or_else(|| {
                self.pages.push(None);
                (self.pages.len() - 1) as u32
            });
            self.pages[number as usize] = Some(page);
            buffer.push_page(PageId(number));
        }
    }

    fn release(&mut self, mut buffer: Buffer) {
        for page in buffer.take_pages() {
            let number = page.number();
            let found = self.pages[number as usize].take();
            assert!(found.is_some(), "page {number} was given back twice");
            self.free.push(number);
        }
    }

    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]) {
        self.materialize(buffer);
        let mut rest = bytes;
        for segment in buffer.segments(at, bytes.len() as u32) {
            let (now, later) = rest.split_at(segment.length as usize);
            let from = segment.offset as usize;
            self.page_mut(segment.page)[from..from + now.len()].copy_from_slice(now);
            rest = later;
        }
    }

    fn read(&self, buffer: &Buffer, at: u32, into: &mut [u8]) {
        let mut rest = into;
        for segment in buffer.segments(at, rest.len() as u32) {
            let (now, later) = rest.split_at_mut(segment.length as usize);
            let from = segment.offset as usize;
            now.copy_from_slice(&self.page(segment.page)[from..from + segment.length as usize]);
            rest = later;
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
        let (a, b) = (self.bytes(a), self.bytes(b));
        a.iter().zip(&b).position(|(a, b)| a != b).map(|at| at as u32)
    }
}
