//! What a copy may have left in a block: whatever its source may have held at some time between its
//! beginning and its end.
//!
//! That is asked when somebody reads the block, of the history that the source has by then, so the
//! history of sources is kept whole. A source may have been copied to itself: then it is asked of
//! its source in turn, of the time until then. Such chains branch and meet again, but who asks an
//! event of less time than before learns nothing new, so each is asked a few times at most.

use std::collections::BTreeMap;

use super::{Content, Entry, Held, Oracle, WriteId};

/// Until when the events of blocks have been asked, in vain so far, by block and write.
pub(super) type Asked = BTreeMap<(u64, WriteId), u64>;

/// Whether something may have been copied there.
pub(super) fn is_target(block: &[Entry]) -> bool {
    block.iter().any(|entry| matches!(entry.content, Content::Copied { .. }))
}

impl Oracle {
    /// Whether what an entry of a block left by `end` may be this. Of all entries that are asked of
    /// one read of a block, `asked` is the same.
    pub(super) fn may_leave(
        &self,
        entry: &Entry,
        number: u64,
        held: Held,
        end: u64,
        asked: &mut Asked,
    ) -> bool {
        let may_be = entry.is_worth_asking(number, held, end, asked)
            && self.ask(entry, number, held, end, asked);
        if may_be {
            // What led there was not asked in vain.
            asked.clear();
        }
        may_be
    }

    /// The same of an entry that is worth asking.
    fn ask(&self, entry: &Entry, number: u64, held: Held, end: u64, asked: &mut Asked) -> bool {
        let Content::Copied { from, range } = entry.content else { return true };
        let (start, end) = (entry.start, entry.until(end));
        asked.insert((number, entry.id), end);
        // As a read of its source would see it. Events stand in the order of their beginnings, and
        // the newest ones that were there before replace nearly all others.
        let source = &self.blocks[from as usize];
        let begun = &source[..source.partition_point(|other| other.start <= end)];
        let before = &source[..source.partition_point(|other| other.start < start)];
        begun.iter().rev().any(|other| {
            let is_later = other.id == entry.id
                && matches!(other.content, Content::Copied { range: its, .. } if its >= range);
            other.may_be_there(start, end)
                && !is_later
                && other.is_worth_asking(from, held, end, asked)
                && !before.iter().rev().any(|by| other.is_replaced_by(by, start))
                && self.ask(other, from, held, end, asked)
        })
    }
}

impl Entry {
    /// Whether it left this by itself, or may have copied it for all that is known.
    fn is_worth_asking(&self, number: u64, held: Held, end: u64, asked: &Asked) -> bool {
        match self.content {
            Content::Zeros => held.is_none(),
            Content::Pattern => held == Some((self.id, number)),
            Content::Copied { .. } => {
                asked.get(&(number, self.id)).is_none_or(|until| *until < self.until(end))
            }
        }
    }

    /// Until when something of it may have happened, of the time until `end`.
    fn until(&self, end: u64) -> u64 {
        self.fenced.into_iter().chain(self.end).fold(end, u64::min)
    }
}
