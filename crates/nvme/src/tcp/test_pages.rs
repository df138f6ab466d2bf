//! Memory for the tests of both ends: pages in a vector, each of which has one owner.

use block::checksum::Crc32c;
use block::{Buffer, Memory, PAGE_SIZE, PageId};

/// Pages in a vector; using one that was given back, or losing one, is caught.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Box<[u8]>>>,
    free: Vec<u32>,
}

impl Pages {
    pub(super) fn held(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    fn page(&self, page: PageId) -> &[u8] {
        self.pages[page.number() as usize].as_ref().expect("the page was given back")
    }

    fn page_mut(&mut self, page: PageId) -> &mut [u8] {
        self.pages[page.number() as usize].as_mut().expect("the page was given back")
    }
}

impl Memory for Pages {
    fn materialize(&mut self, buffer: &mut Buffer) {
        if !buffer.is_reserved() {
            return;
        }
        for _ in 0..buffer.page_count() {
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
            assert!(self.pages[page.number() as usize].take().is_some(), "given back twice");
            self.free.push(page.number());
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
        let mut done = 0;
        for segment in buffer.segments(at, into.len() as u32) {
            let (from, length) = (segment.offset as usize, segment.length as usize);
            into[done..done + length]
                .copy_from_slice(&self.page(segment.page)[from..from + length]);
            done += length;
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
        let (mut left, mut right) = (vec![0; a.len() as usize], vec![0; b.len() as usize]);
        self.read(a, 0, &mut left);
        self.read(b, 0, &mut right);
        left.iter().zip(&right).position(|(a, b)| a != b).map(|at| at as u32)
    }
}
