//! A shard's view of the arena: what is done to the bytes of buffers, and the pointers that system calls get.
//!
//! It keeps a few free pages at hand, so that a request of 4 KiB takes no lock. Lengths and offsets are bytes of the buffer; what lies
//! outside it, or would change a leased page, is a bug and panics.
//!
//! Copies are plain `memcpy`: payloads that come in a capsule are in the cache already, and non-temporal stores would evict what the
//! kernel or a RAM disk reads next.

use std::sync::Arc;

use block::checksum::Crc32c;
use block::{Buffer, Memory, PAGE_SIZE, PageId};
use libc::iovec;

use super::arena::{Arena, ArenaError, SHARD_BATCH, SHARD_CACHE, SHARD_SLACK};

/// The memory of one shard. It may move between threads but is used by one at a time.
#[derive(Debug)]
pub struct ShardMemory {
    arena: Arc<Arena>,
    /// Free pages, the last used at the end.
    cache: Vec<u32>,
}

impl ShardMemory {
    /// The memory of a shard whose pool has `pool_pages` pages; the arena grows by them and by the shard's slack.
    pub fn new(arena: &Arc<Arena>, pool_pages: u32) -> Result<ShardMemory, ArenaError> {
        arena.grow(pool_pages + SHARD_SLACK)?;
        Ok(ShardMemory { arena: arena.clone(), cache: Vec::with_capacity(SHARD_CACHE) })
    }

    /// The arena.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// A free page, with whatever it held.
    #[inline]
    pub(crate) fn take_page(&mut self) -> u32 {
        if self.cache.is_empty() {
            self.arena.take(&mut self.cache, SHARD_BATCH);
        }
        self.cache.pop().expect("the arena gives at least one page")
    }

    /// Takes a private page back.
    #[inline]
    pub(crate) fn put_page(&mut self, page: u32) {
        if self.cache.len() == SHARD_CACHE {
            // The oldest go: the newest are warm.
            self.arena.put(&self.cache[..SHARD_BATCH]);
            self.cache.drain(..SHARD_BATCH);
        }
        self.cache.push(page);
    }

    /// Frees a page of a buffer, or ends its lease.
    #[inline]
    pub(crate) fn put(&mut self, page: PageId) {
        if !page.is_leased() || self.arena.end_lease(page.number()) {
            self.put_page(page.number());
        }
    }

    /// Leaves a buffer reserved: frees its pages and ends its leases, but keeps its place in the pool.
    #[inline]
    pub fn strip(&mut self, buffer: &mut Buffer) {
        if !buffer.pages().is_empty() {
            for page in buffer.take_pages() {
                self.put(page);
            }
        }
    }

    /// Gives up the pages at hand and returns free pages to the kernel, a bounded number at a time. Call it when the shard is going
    /// to sleep for long; `true`: there may be more to return.
    pub fn idle(&mut self) -> bool {
        if !self.cache.is_empty() {
            self.arena.put(&self.cache);
            self.cache.clear();
        }
        self.arena.give_back() == super::arena::GIVE_BACK_MAX
    }

    /// Appends pointers to `length` bytes of `buffer` from `at` on, for a system call that reads them. Pages that lie behind one
    /// another make one run. They are valid until the buffer is released or given to a disk.
    pub fn iovecs(&self, buffer: &Buffer, at: u32, length: u32, into: &mut Vec<iovec>) {
        let start = into.len();
        for segment in buffer.segments(at, length) {
            // SAFETY: a segment lies within its page.
            let base = unsafe { self.at(segment.page, segment.offset) };
            let length = segment.length as usize;
            match into[start..].last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == base.cast() => {
                    last.iov_len += length;
                }
                _ => into.push(iovec { iov_base: base.cast(), iov_len: length }),
            }
        }
    }

    /// As [`iovecs`](Self::iovecs), for a system call that fills the bytes: gives a reserved buffer its pages, and panics when one of the pages
    /// is leased.
    pub fn iovecs_mut(&mut self, buffer: &mut Buffer, at: u32, length: u32, into: &mut Vec<iovec>) {
        self.materialize(buffer);
        for segment in buffer.segments(at, length) {
            assert!(
                !segment.page.is_leased(),
                "page {} is leased and cannot be filled",
                segment.page.number()
            );
        }
        self.iovecs(buffer, at, length, into);
    }

    /// Where byte `at` of the buffer lies, and how many bytes follow it in its page and in the buffer. For a receive into one run.
    /// `None` beyond the end.
    pub fn run_at(&self, buffer: &Buffer, at: u32) -> Option<(*mut u8, u32)> {
        let left = buffer.len().checked_sub(at).filter(|left| *left > 0)?;
        let segment = buffer.segments(at, left).next()?;
        // SAFETY: a segment lies within its page.
        Some((unsafe { self.at(segment.page, segment.offset) }, segment.length))
    }

    /// The first byte of the buffer that is not zero.
    pub(crate) fn first_nonzero(&self, buffer: &Buffer) -> Option<u32> {
        let mut at = 0;
        for segment in buffer.segments(0, buffer.len()) {
            if let Some(found) = self.bytes(segment).iter().position(|byte| *byte != 0) {
                return Some(at + found as u32);
            }
            at += segment.length;
        }
        None
    }

    /// # Safety
    /// `offset` must be below 4096. The pointer may be used as the rules in `arena` allow.
    #[inline]
    unsafe fn at(&self, page: PageId, offset: u32) -> *mut u8 {
        // SAFETY: the offset lies within the page, by the caller's word.
        unsafe { self.arena.page(page.number()).add(offset as usize) }
    }

    /// The bytes of a segment.
    #[inline]
    fn bytes(&self, segment: block::Segment) -> &[u8] {
        // SAFETY: the segment lies within its page. The page is in a buffer that the caller borrows for as long: if it is private nobody
        // else has it, if it is leased nobody changes it (rules in `arena`).
        unsafe {
            std::slice::from_raw_parts(
                self.at(segment.page, segment.offset),
                segment.length as usize,
            )
        }
    }
}

impl Memory for ShardMemory {
    #[inline]
    fn materialize(&mut self, buffer: &mut Buffer) {
        if buffer.is_reserved() {
            for _ in 0..buffer.page_count() {
                buffer.push_page(PageId(self.take_page()));
            }
        }
    }

    #[inline]
    fn release(&mut self, buffer: Buffer) {
        for page in buffer.pages() {
            self.put(*page);
        }
    }

    #[inline]
    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]) {
        self.materialize(buffer);
        let length = u32::try_from(bytes.len()).expect("more bytes than a buffer holds");
        let mut rest = bytes;
        for segment in buffer.segments(at, length) {
            assert!(
                !segment.page.is_leased(),
                "page {} is leased and cannot change",
                segment.page.number()
            );
            let (part, tail) = rest.split_at(segment.length as usize);
            // SAFETY: the page is private to the buffer, which we borrow mutably; the segment lies within it, is as long as `part`, and `part` is
            // somebody else's memory because nobody else can see the page.
            unsafe {
                self.at(segment.page, segment.offset)
                    .copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            rest = tail;
        }
    }

    #[inline]
    fn read(&self, buffer: &Buffer, at: u32, into: &mut [u8]) {
        let length = u32::try_from(into.len()).expect("more bytes than a buffer holds");
        let mut done = 0;
        for segment in buffer.segments(at, length) {
            let part = self.bytes(segment);
            into[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        }
    }

    fn zero(&mut self, buffer: &mut Buffer, at: u32, length: u32) {
        self.materialize(buffer);
        for segment in buffer.segments(at, length) {
            assert!(
                !segment.page.is_leased(),
                "page {} is leased and cannot change",
                segment.page.number()
            );
            // SAFETY: the page is private to the buffer, which we borrow mutably, and the segment lies within it.
            unsafe {
                self.at(segment.page, segment.offset).write_bytes(0, segment.length as usize);
            }
        }
    }

    fn crc32c(&self, buffer: &Buffer, at: u32, length: u32, running: Crc32c) -> Crc32c {
        buffer
            .segments(at, length)
            .fold(running, |running, segment| running.update(self.bytes(segment)))
    }

    fn first_difference(&self, a: &Buffer, b: &Buffer) -> Option<u32> {
        assert!(a.len() == b.len(), "buffers of {} and {} bytes were compared", a.len(), b.len());
        let mut at = 0;
        // The phases may differ, so the runs of the two need not.
        while at < a.len() {
            let left = a.segments(at, a.len() - at).next()?;
            let right = b.segments(at, b.len() - at).next()?;
            let run = left.length.min(right.length);
            let left = self.bytes(block::Segment { length: run, ..left });
            let right = self.bytes(block::Segment { length: run, ..right });
            if let Some(difference) = difference(left, right) {
                return Some(at + difference as u32);
            }
            at += run;
        }
        None
    }
}

impl Drop for ShardMemory {
    fn drop(&mut self) {
        // The pool's part of the limit stays: buffers of this shard may still be on their way elsewhere.
        self.arena.put(&self.cache);
    }
}

/// Where two slices of one length first differ. Equal ones, the rule, cost one `memcmp`.
pub(crate) fn difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(a, b)| a != b)
}

const _: () = assert!(SHARD_BATCH <= SHARD_CACHE && PAGE_SIZE == 4096);
