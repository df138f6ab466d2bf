//! Disks that another shard of this process reaches for all: those behind a link that is on one shard
//! alone, as a router's pseudowire is.
//!
//! ```text
//!   this shard                           the shard that reaches it
//!   volume --request--> DiskMessage::Ask ----> import --frames--> target
//!   volume <-completion- DiskMessage::Done <--- import <--frames--
//! ```
//!
//! A request goes there as it is, with its buffer: pages are the process's, and the pool that counts
//! them is its asker's until the completion is back. Its ticket says which shard asked, so nothing is
//! kept of it on either side but how many there are. In: requests of volumes, mail. Out: mail.
//! Errors: none; what becomes of a request says the import. Why requests go by mail here and nowhere
//! else: docs/decisions/0021-a-disk-behind-a-pseudowire-is-reached-by-one-shard.md.

use block::{DiskId, IdMap, Request, ShardId};

use crate::mail::DiskMessage;

/// The disks that others reach for this shard.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// Who reaches it, by the number of the disk.
    by: IdMap<ShardId>,
    /// Requests that are there.
    out: usize,
}

impl Elsewhere {
    /// Whether there is no such disk, so that no request needs a look.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Whether no request is there.
    pub(crate) fn is_quiet(&self) -> bool {
        self.out == 0
    }

    pub(crate) fn has(&self, disk: DiskId) -> bool {
        self.by.get(disk.0).is_some()
    }

    /// `by` reaches a disk.
    pub(crate) fn add(&mut self, disk: DiskId, by: ShardId) {
        self.by.insert(disk.0, by);
    }

    /// A disk is not used any more. Of what was asked before the answers still come.
    pub(crate) fn remove(&mut self, disk: DiskId) {
        self.by.remove(disk.0);
    }

    /// Takes the requests that are for others out of what disks are to be asked.
    pub(crate) fn take(
        &mut self,
        asks: &mut Vec<(DiskId, Request)>,
        mut send: impl FnMut(ShardId, DiskMessage),
    ) {
        // In their order, which is that of their writes.
        for (disk, request) in asks.extract_if(.., |(disk, _)| self.by.get(disk.0).is_some()) {
            let by = *self.by.get(disk.0).expect("it was just found");
            self.out += 1;
            send(by, DiskMessage::Ask(disk, request));
        }
    }

    /// What was asked is answered.
    pub(crate) fn answered(&mut self) {
        self.out = self.out.checked_sub(1).expect("an answer to what was asked");
    }
}
