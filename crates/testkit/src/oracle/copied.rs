//! What a copy may have left in a block: whatever its source may have held at some time between its
//! beginning and its end.
//!
//! That is asked when somebody reads the block, of the history that the source has by then, so the
//! history of sources is kept whole. A source may have been copied to itself: then it is asked of
//! its source in turn, of the time until then. Such chains branch and meet again, but who asks an
//! event of less time than before learns nothing new, so each is asked a few times at most.

use std::collections::BTreeMap;

use super::{Content, Entry, Held, Oracle};

/// Until when the events of blocks have been asked, in vain so far, by their place in the history of
/// their block; 0: never.
pub(super) type Asked = BTreeMap<u64, Vec<u64>>;

/// Whether something may have been copied there.
pub(super) fn is_target(block: &[Entry]) -> bool {
    block.iter().any(|entry| matches!(entry.content, Content::Copied { .. }))
}

impl Oracle {
    /// Whether what the entry at this place of a block left by `end` may be this. Of all entries
    /// that are asked of one read of a block, `asked` is the same.
    pub(super) fn may_leave(
        &self,
        (number, at): (u64, usize),
        held: Held,
        end: u64,
        asked: &mut Asked,
    ) -> bool {
        let entry = &self.blocks[number as usize][at];
        let until = asked.get(&number).map_or(0, |asked| asked[at]);
        let may_be = entry.is_worth_asking(number, held, end, until)
            && self.ask((number, at), held, end, asked);
        if may_be {
            // What led there was not asked in vain.
            asked.clear();
        }
        may_be
    }

    /// The same of an entry that is worth asking.
    fn ask(&self, (number, at): (u64, usize), held: Held, end: u64, asked: &mut Asked) -> bool {
        let block = &self.blocks[number as usize];
        let entry = &block[at];
        let Content::Copied { from, range } = entry.content else { return true };
        let (start, end) = (entry.start, entry.until(end));
        asked.entry(number).or_insert_with(|| vec![0; block.len()])[at] = end;
        // As a read of its source would see it. Events stand in the order of their beginnings: who
        // replaces one is among those that began before, and the newest replace nearly all others.
        let source = &self.blocks[from as usize];
        let before = &source[..source.partition_point(|other| other.start < start)];
        (0..source.len()).rev().any(|at| {
            let other = &source[at];
            let is_later = other.id == entry.id
                && matches!(other.content, Content::Copied { range: its, .. } if its >= range);
            if is_later || !other.may_be_there(start, end) {
                return false;
            }
            let until = asked.get(&from).map_or(0, |asked| asked[at]);
            other.is_worth_asking(from, held, end, until)
                && !before.iter().rev().any(|by| other.is_replaced_by(by, start))
                && self.ask((from, at), held, end, asked)
        })
    }
}

impl Entry {
    /// Whether it left this by itself, or may have copied it for all that is known. It was asked
    /// `until` then.
    fn is_worth_asking(&self, number: u64, held: Held, end: u64, until: u64) -> bool {
        match self.content {
            Content::Zeros => held.is_none(),
            Content::Pattern => held == Some((self.id, number)),
            Content::Copied { .. } => until < self.until(end),
        }
    }

    /// Until when something of it may have happened, of the time until `end`.
    fn until(&self, end: u64) -> u64 {
        self.fenced.into_iter().chain(self.end).fold(end, u64::min)
    }
}
