//! Pages in a vector, for tests: each is owned once, and losing or returning one twice is caught.

use block::checksum::Crc32c;
use block::{Buffer, DiskId, Extent, Memory, PAGE_SIZE, PageId};

/// Pages of a test.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// What disks hold that lend, by number.
    pub(crate) lends: Vec<Vec<u8>>,
}

impl Pages {
    /// Pages that somebody holds.
    pub(crate) fn held(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// The bytes of a buffer.
    pub(crate) fn bytes(&self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.len() as usize];
        self.read(buffer, 0, &mut bytes);
        bytes
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

    fn materialize(&mut self, buffer: &mut Buffer) {
        while (buffer.pages().len() as u32) < buffer.page_count() {
            let number = self.free.pop().unwrap_or_else(|| {
                self.pages.push(vec![0xee; PAGE_SIZE as usize]);
                (self.pages.len() - 1) as u32
            });
            buffer.push_page(PageId(number));
        }
    }

    fn release(&mut self, mut buffer: Buffer) {
        for page in buffer.take_pages() {
            assert!(!self.free.contains(&page.number()), "page {} came back twice", page.number());
            self.pages[page.number() as usize].fill(0xdd);
            self.free.push(page.number());
        }
    }

    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]) {
        self.materialize(buffer);
        let mut rest = bytes;
        for run in buffer.segments(at, bytes.len() as u32) {
            let (head, tail) = rest.split_at(run.length as usize);
            let from = run.offset as usize;
            self.pages[run.page.number() as usize][from..from + head.len()].copy_from_slice(head);
            rest = tail;
        }
    }

    fn read(&self, buffer: &Buffer, at: u32, into: &mut [u8]) {
        let mut rest = into;
        for run in buffer.segments(at, rest.len() as u32) {
            let (head, tail) = rest.split_at_mut(run.length as usize);
            let from = run.offset as usize;
            head.copy_from_slice(
                &self.pages[run.page.number() as usize][from..from + run.length as usize],
            );
            rest = tail;
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
