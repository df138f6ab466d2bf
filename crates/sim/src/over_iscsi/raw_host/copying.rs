//! Copies of a raw host (EXTENDED COPY): from anywhere of what it works on to blocks behind those whose
//! compares and writes it knows, so that what it replaces there was written there. What was copied
//! before may be copied again, also by the same command.

use testkit::iscsi::Said;
use testkit::iscsi::host::Order;
use wire::scsi::copy::{CopyList, CopyPlace, CopySegment};
use wire::scsi::{Cdb, SenseKey};

use super::super::LUN;
use super::RawHost;
use super::work::{Asked, is_hindered, key};
use crate::client::SimWorld;
use crate::writer::Write;

/// Segments of a copy at most.
const SEGMENTS_MAX: u64 = 4;

impl RawHost {
    /// Copies something.
    pub(super) fn copy(&mut self, world: &mut SimWorld) {
        let (unit, span) = (self.behaviour.unit, self.behaviour.span);
        let (room, all) = (2 * span, 3 * span);
        let mut ranges = Vec::new();
        for _ in 0..=self.random.below(SEGMENTS_MAX) {
            let count = 1 + self.random.below(room / SEGMENTS_MAX);
            ranges.push((self.random.below(all - count + 1), count));
        }
        let count: u64 = ranges.iter().map(|(_, count)| count).sum();
        let first = span + self.random.below(room - count + 1);
        let mut to = first;
        let segments = ranges.iter().map(|&(source_lba, count)| {
            let destination_lba = to;
            to += count;
            CopySegment::Blocks {
                destination_counts: false,
                concatenate: false,
                source: CopyPlace::THIS_UNIT,
                destination: CopyPlace::THIS_UNIT,
                blocks: count as u16,
                source_lba,
                destination_lba,
            }
        });
        let segments = segments.collect();
        let list = CopyList { id_usage: 3, segments, ..CopyList::default() }.emit();
        let in_blocks = ranges.iter().map(|(lba, count)| (lba * unit, count * unit));
        let write = self.writer.begin_copy(self.now, first * unit, in_blocks.collect());
        let counts = ranges.iter().map(|(_, count)| count * unit).collect();
        let length = list.len() as u32;
        let order = Order::write(LUN, Cdb::extended_copy(length), length);
        self.ask(world, order, Asked::Copy { write, list, counts });
    }

    /// A copy was answered, as done or not: what its sense data say is copied is.
    pub(super) fn copied(
        &mut self,
        write: Write,
        counts: &[u64],
        is_done: bool,
        said: &Said,
    ) -> Result<(), String> {
        if is_done {
            self.actions.copies += 1;
            self.writer.end(self.now, write, true, false);
            return Ok(());
        }
        if key(said) != Some(SenseKey::COPY_ABORTED) {
            self.not_done(write, said);
            return Ok(());
        }
        let segment = said.sense().segment.map(usize::from);
        let Some(segment) = segment.filter(|segment| *segment < counts.len()) else {
            return Err(format!("a copy of {} segments was answered {said:?}", counts.len()));
        };
        self.actions.part_copies += u64::from(segment > 0);
        if self.behaviour.strict && is_hindered(said) {
            self.writer.hindered(self.now, write);
        }
        let whole: u64 = counts[..segment].iter().sum();
        self.writer.end_in_part(self.now, write, whole, false);
        Ok(())
    }
}
