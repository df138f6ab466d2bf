//! Copies of a raw host: from anywhere of what it works on to blocks behind those whose compares and
//! writes it knows, so that what it replaces there was written there. What was copied before may be
//! copied again, also by the same command.

use testkit::oracle::BLOCK;
use wire::nvme::command::CopyRange;
use wire::nvme::{Command, Completion};

use super::RawHost;
use super::work::{Asked, NSID};
use crate::client::SimWorld;
use crate::writer::Write;

/// Source ranges of a copy at most.
const RANGES_MAX: u64 = 4;

impl RawHost {
    /// Copies something.
    pub(super) fn copy(&mut self, world: &mut SimWorld, at: usize) {
        let (unit, span) = (self.behaviour.unit, self.behaviour.span);
        let (room, all) = (2 * span, 3 * span);
        let mut ranges = Vec::new();
        for _ in 0..=self.random.below(RANGES_MAX) {
            let count = 1 + self.random.below(room / RANGES_MAX);
            ranges.push((self.random.below(all - count + 1), count));
        }
        let count: u64 = ranges.iter().map(|(_, count)| count).sum();
        let first = span + self.random.below(room - count + 1);
        let durable = self.random.chance(1, 4);
        let list = |(lba, count): &(u64, u64)| CopyRange::new(*lba, *count as u32).emit();
        let list: Vec<u8> = ranges.iter().flat_map(list).collect();
        let command = Command::copy(NSID, first, ranges.len() as u32);
        let command = command.with_force_unit_access(durable);
        let in_blocks = ranges.iter().map(|(lba, count)| (lba * unit, count * unit));
        let write = self.writer.begin_copy(self.now, first * unit, in_blocks.collect());
        let counts = ranges.iter().map(|(_, count)| count * unit).collect();
        let with = self.inside(&list);
        let asked = Asked::Copy { write, list, counts, durable, over: false };
        self.lines[at].ask(world, command, &with, asked);
    }

    /// A copy was answered: what its result says is copied is.
    pub(super) fn copied(
        &mut self,
        write: Write,
        counts: &[u64],
        durable: bool,
        entry: &Completion,
    ) -> Result<(), String> {
        let (is_done, result) = (entry.status.is_success(), entry.result32() as usize);
        let is_sound = if is_done { result == 0 } else { result < counts.len() };
        if !is_sound {
            let count = counts.len();
            return Err(format!("a copy of {count} ranges was answered: {entry}"));
        }
        let whole: u64 = if is_done { write.count } else { counts[..result].iter().sum() };
        self.actions.copies += u64::from(is_done);
        self.actions.part_copies += u64::from(!is_done && result > 0);
        self.writer.end_in_part(self.now, write, whole, durable);
        Ok(())
    }
}

const _: () = assert!(BLOCK == 512, "ranges are counted in blocks of the oracle");
