//! What a host reads and writes, as it is counted by whoever serves it, for each host.
//!
//! Requests are counted when they go below or are answered from memory that was lent; units: requests
//! and bytes.

use block::Operation;

use crate::counters;

counters! {
    /// What hosts did with what a session serves, since the start.
    pub struct Traffic {
        /// Reads and compares.
        reads: Operations,
        /// Writes.
        writes: Operations,
        /// Bytes that were read, compared or verified.
        read_bytes: Bytes,
        /// Bytes that were written.
        write_bytes: Bytes,
        /// Commands that failed because the medium did.
        media_errors: Operations,
    }
}

impl Traffic {
    /// Whether nothing happened.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Traffic::default()
    }

    /// A request goes below.
    #[inline]
    pub fn count(&mut self, operation: &Operation) {
        match operation {
            Operation::Read { extent, .. } | Operation::Compare { extent, .. } => {
                self.read(extent.length.0);
            }
            Operation::Write { extent, .. } => self.wrote(extent.length.0),
            Operation::CompareAndWrite { extent, .. } => {
                self.read(extent.length.0);
                self.wrote(extent.length.0);
            }
            Operation::Verify { extent } => self.read_bytes += extent.length.0,
            Operation::WriteZeroes { .. } | Operation::Discard { .. } | Operation::Flush => {}
        }
    }

    /// So many bytes were read.
    #[inline]
    pub fn read(&mut self, bytes: u64) {
        self.reads += 1;
        self.read_bytes += bytes;
    }

    /// So many bytes were written.
    #[inline]
    pub fn wrote(&mut self, bytes: u64) {
        self.writes += 1;
        self.write_bytes += bytes;
    }
}
