//! What a RAM disk holds, page by page, for a model whose power is cut: copies of pages, which are put
//! back. Each is one change of a slot, so that nobody sees a torn page. No errors: the pages are the disk's.

use block::{Extent, PageId};

use super::{PAGE, RamDisk, parts};
use crate::disk::model::cache::{Contents, Image};
use crate::memory::arena::ZERO_PAGE;
use crate::memory::shard_memory::ShardMemory;

/// A disk's pages, and what is needed to change them.
pub(in crate::disk) struct Pages<'a> {
    pub(in crate::disk) disk: &'a RamDisk,
    pub(in crate::disk) memory: &'a mut ShardMemory,
}

impl Pages<'_> {
    /// A page, of the last one what the disk has of it.
    fn extent(&self, page: u64) -> Extent {
        let from = page * PAGE as u64;
        Extent::new(from, (self.disk.size - from).min(PAGE as u64))
    }
}

impl Contents for Pages<'_> {
    fn image(&mut self, page: u64) -> Image {
        let disk = self.disk;
        let part = parts(self.extent(page)).next().expect("a page has one part");
        let leased = disk.arena.lease(disk.slot(part.slot));
        if leased == ZERO_PAGE {
            return Image::Zeros;
        }
        // SAFETY: the page is leased by us until below, so that nobody changes it.
        let bytes = unsafe { disk.bytes(leased, part) }.into();
        self.memory.put(PageId(leased).leased());
        Image::Bytes(bytes)
    }

    fn put_back(&mut self, page: u64, image: Image) {
        let extent = self.extent(page);
        match image {
            Image::Zeros => self.disk.clear(self.memory, extent),
            Image::Bytes(bytes) => self.disk.land(self.memory, extent, &bytes),
        }
    }
}
