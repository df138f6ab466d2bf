//! What a copy may have left in a block: whatever its source may have held at some time between its
//! beginning and its end.
//!
//! That is asked when somebody reads the block, of the history that the source has by then, so the
//! history of sources is kept whole. A source may have been copied to itself: then it is asked of
//! its source in turn, of the time until then. No event comes twice in such a chain.

use super::{Content, Entry, Held, Oracle, WriteId};

/// So many copies of copies are followed; what lies behind is taken for possible.
const DEPTH_MAX: usize = 12;

/// Whether something may have been copied there.
pub(super) fn is_target(block: &[Entry]) -> bool {
    block.iter().any(|entry| matches!(entry.content, Content::Copied { .. }))
}

impl Oracle {
    /// Whether what an entry of a block left by `end` may be this.
    pub(super) fn may_leave(&self, entry: &Entry, number: u64, held: Held, end: u64) -> bool {
        self.follow(entry, number, held, end, &mut Vec::new())
    }

    fn follow(
        &self,
        entry: &Entry,
        number: u64,
        held: Held,
        end: u64,
        path: &mut Vec<(u64, WriteId)>,
    ) -> bool {
        let (from, range) = match entry.content {
            Content::Zeros => return held.is_none(),
            Content::Pattern => return held == Some((entry.id, number)),
            Content::Copied { from, range } => (from, range),
        };
        if path.len() == DEPTH_MAX {
            return true;
        }
        // As a read of its source would see it.
        let over = entry.fenced.into_iter().chain(entry.end);
        let (start, end) = (entry.start, over.min().map_or(end, |over| over.min(end)));
        path.push((number, entry.id));
        let source = &self.blocks[from as usize];
        let may_be = source.iter().any(|other| {
            let is_later = other.id == entry.id
                && matches!(other.content, Content::Copied { range: its, .. } if its >= range);
            other.start <= end
                && !other.is_barred()
                && !is_later
                && !path.contains(&(from, other.id))
                && !source.iter().any(|by| other.is_replaced_by(by, start))
                && self.follow(other, from, held, end, path)
        });
        path.pop();
        may_be
    }
}
