//! What may be done to the bytes of buffers without seeing them: the reactor does it on its arena,
//! the simulator on pages of its own, and a machine only says what it wants.

use crate::buffer::Buffer;
use crate::checksum::Crc32c;
use crate::ticket::{DiskId, VolumeId};
use crate::units::Extent;

/// The memory behind buffers. All offsets and lengths are bytes of the buffer; a range outside it
/// is a bug and panics. Writing to a leased page is a bug and panics.
pub trait Memory {
    /// Gives a reserved buffer its pages, with whatever they held; does nothing to one that has
    /// them. Pages cannot run out: the pools together never reserve more than there are.
    fn materialize(&mut self, buffer: &mut Buffer);

    /// Takes a buffer back: frees its pages and ends its leases. Use
    /// [`Pool::give`](crate::Pool::give) for buffers of a pool.
    fn release(&mut self, buffer: Buffer);

    /// As [`release`](Self::release), for all of them; the list is left empty and keeps its memory.
    fn release_all(&mut self, buffers: &mut Vec<Buffer>) {
        for buffer in buffers.drain(..) {
            self.release(buffer);
        }
    }

    /// Whether the disk is itself memory (RAM) and has `extent`, so that [`lend`](Self::lend) may
    /// be called instead of asking it to read. A hint as well: what finding the first page needs is
    /// fetched into the processor's cache.
    fn can_lend(&self, disk: DiskId, extent: Extent) -> bool {
        let _ = (disk, extent);
        false
    }

    /// A hint, for what can be lent: fetches what lending needs. Who lends many extents calls
    /// [`can_lend`](Self::can_lend) for all, this for all, and then [`lend`](Self::lend) for all:
    /// so the cache misses overlap.
    fn prefetch_loan(&self, disk: DiskId, extent: Extent) {
        let _ = (disk, extent);
    }

    /// Gives the reserved `buffer` leases of the disk's pages of `extent`, as a read would. Only
    /// for what can be lent.
    fn lend(&mut self, disk: DiskId, extent: Extent, buffer: &mut Buffer) {
        panic!("disk {} was to lend {extent} to {} bytes", disk.0, buffer.len());
    }

    /// A hint, for what can be lent: fetches what [`land`](Self::land) needs, to be overwritten.
    /// The earlier it is given, the less is waited for.
    fn prefetch_landing(&self, disk: DiskId, extent: Extent) {
        let _ = (disk, extent);
    }

    /// Puts `bytes` where the disk keeps `extent`, at once, as a write would that was done before
    /// this returns. Only for what can be lent.
    fn land(&mut self, disk: DiskId, extent: Extent, bytes: &[u8]) {
        panic!("{} bytes were to land on disk {} at {extent}", bytes.len(), disk.0);
    }

    /// As [`land`](Self::land), for all of `landings`, whose bytes lie in `bytes`: so the cache
    /// misses of finding their places overlap. Nobody sees them in any order.
    fn land_all(&mut self, landings: &[Landing], bytes: &[u8]) {
        for landing in landings {
            self.prefetch_landing(landing.disk, landing.extent);
        }
        for landing in landings {
            self.land(landing.disk, landing.extent, landing.bytes(bytes));
        }
    }

    /// Puts `bytes` into the buffer from `at` on; gives it pages first if it has none.
    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]);

    /// Fetches `into.len()` bytes from `at` on.
    fn read(&self, buffer: &Buffer, at: u32, into: &mut [u8]);

    /// Puts zeros into `length` bytes from `at` on; gives the buffer pages first if it has none.
    fn zero(&mut self, buffer: &mut Buffer, at: u32, length: u32);

    /// Takes `length` bytes from `at` on into a running CRC32C.
    fn crc32c(&self, buffer: &Buffer, at: u32, length: u32, running: Crc32c) -> Crc32c;

    /// The offset of the first byte in which two buffers of one length differ.
    fn first_difference(&self, a: &Buffer, b: &Buffer) -> Option<u32>;
}

/// A read whose data are memory that can be lent: it is never submitted. `who` is what its answer
/// needs.
#[derive(Debug)]
pub struct Loan<T> {
    pub disk: DiskId,
    pub extent: Extent,
    /// Reserved, of the extent's length.
    pub buffer: Buffer,
    pub who: T,
}

impl<T> Loan<T> {
    /// Has what lending needs fetched, for all of them.
    pub fn prefetch(loans: &[Loan<T>], memory: &dyn Memory) {
        loans.iter().for_each(|loan| memory.prefetch_loan(loan.disk, loan.extent));
    }

    /// Who asked, and the buffer with its leases.
    #[inline]
    pub fn lend(mut self, memory: &mut dyn Memory) -> (T, Buffer) {
        memory.lend(self.disk, self.extent, &mut self.buffer);
        (self.who, self.buffer)
    }
}

/// A write whose bytes lie in received memory, and that found memory which takes them at once: it
/// is never submitted.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    pub volume: VolumeId,
    pub disk: DiskId,
    /// Where on the disk.
    pub extent: Extent,
    /// Where in what was received its bytes begin.
    pub from: usize,
    /// By which whoever has it land knows it.
    pub who: u16,
}

impl Landing {
    /// Its part of what was received.
    #[inline]
    pub fn bytes<'a>(&self, received: &'a [u8]) -> &'a [u8] {
        &received[self.from..][..self.extent.length.0 as usize]
    }
}
