//! From a job to its next command. Pure arithmetic: nothing is sent here.
//!
//! Units: bytes of the disk in, blocks out. Spec: SBC-3, "Commands for direct access block devices".

use block::{Failure, Outcome};
use remote::{Cursor, JobKind};
use wire::scsi::provisioning::{UnmapList, UnmapRange};
use wire::scsi::{ByteCheck, Cdb};

use super::exchange::{Job, Sync};
use super::facts::{Discards, Limits};

/// A command, and what it moves: bytes of the job's payload that it sends, or that it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) cdb: Cdb,
    pub(super) sends: u32,
    pub(super) returns: u32,
}

/// What to do next about a job.
#[derive(Debug)]
pub(super) enum Plan {
    Command(Command),
    /// It is too large for one command.
    Split,
    /// It is over without a command.
    Finish(Outcome),
}

impl Plan {
    fn sends(cdb: Cdb, sends: u32) -> Plan {
        Plan::Command(Command { cdb, sends, returns: 0 })
    }
}

/// What makes completed writes durable. The older command means the same for a whole unit, and more
/// units have it.
pub(super) fn flush() -> Command {
    Command { cdb: Cdb::synchronize_cache_10(), sends: 0, returns: 0 }
}

/// Plans a job's next command.
#[inline]
pub(super) fn plan(job: &mut Job, limits: &Limits) -> Plan {
    let shift = limits.block_shift;
    let (offset, length) = (job.extent.offset.0, job.extent.length.0);
    if (offset | length) & ((1 << shift) - 1) != 0 {
        return Plan::Finish(Outcome::NotDone(Failure::Internal));
    }
    job.wire.sync = Sync::None;
    job.wire.ranges.clear();
    match job.kind {
        JobKind::Read | JobKind::Write | JobKind::Compare => plan_with_data(job, limits),
        JobKind::Flush => Plan::Command(flush()),
        JobKind::Zeroes { deallocate } => plan_zeroes(job, limits, deallocate),
        JobKind::Verify => {
            let Some((lba, blocks)) = next_blocks(job, limits, limits.verify_blocks) else {
                return Plan::Finish(Outcome::Done);
            };
            Plan::sends(Cdb::verify_16(lba, blocks, ByteCheck::MEDIUM), 0)
        }
        JobKind::Discard => match limits.discards {
            Discards::None => Plan::Finish(Outcome::NotDone(Failure::Unsupported)),
            Discards::Unmap { ranges, blocks } => plan_unmap(job, limits, ranges as usize, blocks),
            Discards::WriteSame { blocks } => plan_write_same(job, limits, blocks),
        },
    }
}

#[inline]
fn plan_with_data(job: &mut Job, limits: &Limits) -> Plan {
    let length = job.extent.length.0;
    if length == 0 {
        return Plan::Finish(Outcome::Done);
    }
    if length > u64::from(limits.transfer) {
        return Plan::Split;
    }
    let bytes = length as u32;
    let (lba, blocks) = (job.extent.offset.0 >> limits.block_shift, bytes >> limits.block_shift);
    let short = match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => Some((lba, blocks)),
        _ => None,
    };
    match job.kind {
        JobKind::Read => {
            let cdb = match short {
                Some((lba, blocks)) => Cdb::read_10(lba, blocks),
                None => Cdb::read_16(lba, blocks),
            };
            Plan::Command(Command { cdb, sends: 0, returns: bytes })
        }
        JobKind::Write => {
            let fua = job.durable && limits.fua;
            job.wire.sync = owed(job, limits, fua);
            let cdb = match short {
                Some((lba, blocks)) => Cdb::write_10(lba, blocks, fua),
                None => Cdb::write_16(lba, blocks, fua),
            };
            Plan::sends(cdb, bytes)
        }
        _ => Plan::sends(Cdb::verify_16(lba, blocks, ByteCheck::COMPARE), bytes),
    }
}

/// What a change that is to be durable owes: another command, if nothing else makes it so.
fn owed(job: &Job, limits: &Limits, fua: bool) -> Sync {
    if job.durable && limits.is_volatile && !fua { Sync::Owed } else { Sync::None }
}

/// The next blocks of a job of one extent, `most` of them at most; `None` if there are none.
fn next_blocks(job: &mut Job, limits: &Limits, most: u64) -> Option<(u64, u32)> {
    let (all, done) = (job.extent, job.cursor.done);
    let left = (all.length.0 - done) >> limits.block_shift;
    if left == 0 {
        return None;
    }
    let blocks = left.min(most).min(u32::MAX.into());
    job.then = Cursor::after(done + (blocks << limits.block_shift), all);
    Some(((all.offset.0 + done) >> limits.block_shift, blocks as u32))
}

fn plan_zeroes(job: &mut Job, limits: &Limits, deallocate: bool) -> Plan {
    if limits.zeroes_blocks == 0 {
        return Plan::Finish(Outcome::NotDone(Failure::Unsupported));
    }
    let Some((lba, blocks)) = next_blocks(job, limits, limits.zeroes_blocks) else {
        return Plan::Finish(Outcome::Done);
    };
    job.wire.sync = owed(job, limits, false);
    // A unit that does not read zeros from what it gave back writes them instead.
    let unmap = deallocate && limits.zeroes_unmap;
    write_same(limits, lba, blocks, unmap)
}

/// WRITE SAME of zeros.
fn write_same(limits: &Limits, lba: u64, blocks: u32, unmap: bool) -> Plan {
    let sends = if limits.ndob { 0 } else { 1 << limits.block_shift };
    Plan::sends(Cdb::write_same_16(lba, blocks, unmap, limits.ndob), sends)
}

/// The next run of whole blocks of a discard, and where the run after it begins. An extent that is
/// not whole blocks is rounded inwards: what is left out merely stays.
fn next_run(job: &Job, at: Cursor, shift: u8, most: u64) -> Option<(u64, u64, Cursor)> {
    let mask = (1u64 << shift) - 1;
    let Cursor { mut extent, mut done } = at;
    loop {
        let all = job.extents().get(extent)?;
        let (first, end) = ((all.offset.0 + done + mask) >> shift, all.end().0 >> shift);
        if end > first {
            let blocks = (end - first).min(most).min(u32::MAX.into());
            let then = match first + blocks >= end {
                true => Cursor { extent: extent + 1, done: 0 },
                false => Cursor { extent, done: ((first + blocks) << shift) - all.offset.0 },
            };
            return Some((first, blocks, then));
        }
        (extent, done) = (extent + 1, 0);
    }
}

/// As many ranges as one UNMAP takes.
fn plan_unmap(job: &mut Job, limits: &Limits, most: usize, blocks_max: u64) -> Plan {
    let (mut at, mut left, mut list) = (job.cursor, blocks_max, UnmapList::default());
    while list.0.len() < most && left > 0 {
        let Some((lba, blocks, then)) = next_run(job, at, limits.block_shift, left) else {
            at = Cursor { extent: job.extents().len(), done: 0 };
            break;
        };
        list.0.push(UnmapRange { lba, blocks: blocks as u32 });
        (at, left) = (then, left - blocks);
    }
    job.then = at;
    if list.0.is_empty() {
        return Plan::Finish(Outcome::Done);
    }
    job.wire.ranges = list.emit();
    let length = job.wire.ranges.len();
    Plan::sends(Cdb::unmap_list(length as u16), length as u32)
}

fn plan_write_same(job: &mut Job, limits: &Limits, most: u64) -> Plan {
    let Some((lba, blocks, then)) = next_run(job, job.cursor, limits.block_shift, most) else {
        return Plan::Finish(Outcome::Done);
    };
    job.then = then;
    write_same(limits, lba, blocks as u32, true)
}
