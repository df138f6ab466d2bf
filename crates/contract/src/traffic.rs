//! What a host reads and writes, as it is counted by whoever serves it, for each host.
//!
//! Requests are counted when they go below or are answered from memory that was lent; units: requests
//! and bytes.

use std::collections::BTreeMap;

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
            Operation::WriteZeroes { .. }
            | Operation::Discard { .. }
            | Operation::Seek { .. }
            | Operation::Flush => {}
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

/// Traffic by the hosts that a list names, and of all others together: strangers cost nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHost<N>(BTreeMap<Option<N>, Traffic>);

impl<N> Default for ByHost<N> {
    fn default() -> ByHost<N> {
        ByHost(BTreeMap::new())
    }
}

impl<N: Ord> ByHost<N> {
    /// A host, if the list names it, did so much more.
    pub fn add(&mut self, host: Option<N>, traffic: &Traffic) {
        if !traffic.is_empty() {
            *self.0.entry(host).or_default() += *traffic;
        }
    }

    /// The list is another: what those did whom it does not name any more is that of others.
    pub fn list_again(&mut self, listed: impl Fn(&N) -> Option<N>) {
        for (host, traffic) in core::mem::take(&mut self.0) {
            self.add(host.and_then(|host| listed(&host)), &traffic);
        }
    }
}

impl<N> IntoIterator for ByHost<N> {
    type Item = (Option<N>, Traffic);
    type IntoIter = std::collections::btree_map::IntoIter<Option<N>, Traffic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
