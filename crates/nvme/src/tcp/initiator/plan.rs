//! From a job to its next command. Pure arithmetic: nothing is sent here.
//!
//! Units: bytes of the disk in, blocks out. Spec: NVM command set, "NVM Commands".

use block::{Failure, Outcome};
use remote::{Cursor, JobKind};
use wire::nvme::Command;
use wire::nvme::command::DsmRange;

use super::exchange::Job;
use super::facts::Limits;

/// What to do next about a job.
#[derive(Debug)]
pub(super) enum Plan {
    /// Send this command, which is followed by so many bytes of the job's payload, in its capsule or when asked for.
    Command { command: Command, sends: u32 },
    /// It is too large for one command.
    Split,
    /// It is over without a command.
    Finish(Outcome),
}

/// Plans a job's next command.
#[inline]
pub(super) fn plan(job: &mut Job, limits: &Limits, nsid: u32) -> Plan {
    let shift = limits.block_shift;
    let refuse = |failure| Plan::Finish(Outcome::NotDone(failure));
    let (offset, length) = (job.extent.offset.0, job.extent.length.0);
    if (offset | length) & ((1 << shift) - 1) != 0 {
        return refuse(Failure::Internal);
    }
    let lba = offset >> shift;
    match job.kind {
        JobKind::Read | JobKind::Write | JobKind::Compare => {
            if length == 0 {
                return Plan::Finish(Outcome::Done);
            }
            if length > u64::from(limits.transfer) {
                return Plan::Split;
            }
            let bytes = length as u32;
            let blocks = bytes >> shift;
            match job.kind {
                JobKind::Read => {
                    Plan::Command { command: Command::read(nsid, lba, blocks, bytes), sends: 0 }
                }
                JobKind::Write => {
                    let command = Command::write(nsid, lba, blocks, bytes);
                    let command = command.with_force_unit_access(job.durable);
                    Plan::Command { command, sends: bytes }
                }
                _ if !limits.compares => refuse(Failure::Unsupported),
                _ => {
                    let command = Command::compare(nsid, lba, blocks, bytes);
                    Plan::Command { command, sends: bytes }
                }
            }
        }
        JobKind::Flush => Plan::Command { command: Command::flush(nsid), sends: 0 },
        JobKind::Zeroes { .. } | JobKind::Verify => plan_without_data(job, limits, nsid),
        JobKind::Discard => plan_discard(job, limits, nsid),
    }
}

fn plan_without_data(job: &mut Job, limits: &Limits, nsid: u32) -> Plan {
    let most = if job.kind == JobKind::Verify { limits.verify } else { limits.zeroes };
    if most == 0 {
        return Plan::Finish(Outcome::NotDone(Failure::Unsupported));
    }
    let (all, done) = (job.extent, job.cursor.done);
    if all.length.0 == 0 {
        return Plan::Finish(Outcome::Done);
    }
    let blocks_max = 65_536u64 << limits.block_shift;
    let bytes = (all.length.0 - done).min(most).min(blocks_max);
    job.then = Cursor::after(done + bytes, all);
    let lba = (all.offset.0 + done) >> limits.block_shift;
    let blocks = (bytes >> limits.block_shift) as u32;
    let command = match job.kind {
        JobKind::Zeroes { deallocate } => {
            Command::write_zeroes(nsid, lba, blocks, deallocate).with_force_unit_access(job.durable)
        }
        _ => Command::verify(nsid, lba, blocks),
    };
    Plan::Command { command, sends: 0 }
}

/// As many ranges as one command takes. A range that is not whole blocks is rounded inwards: what is left out merely stays.
fn plan_discard(job: &mut Job, limits: &Limits, nsid: u32) -> Plan {
    if limits.ranges == 0 {
        return Plan::Finish(Outcome::NotDone(Failure::Unsupported));
    }
    let shift = limits.block_shift;
    let mask = (1u64 << shift) - 1;
    let Cursor { extent: mut at, mut done } = job.cursor;
    let mut bytes = Vec::new();
    let mut blocks_left = limits.discard_blocks;
    while bytes.len() < limits.ranges as usize * DsmRange::SIZE && blocks_left > 0 {
        let Some(extent) = job.extents().get(at) else { break };
        let first = (extent.offset.0 + done + mask) >> shift;
        let end = extent.end().0 >> shift;
        if end <= first {
            (at, done) = (at + 1, 0);
            continue;
        }
        let blocks = (end - first).min(limits.range_blocks.into()).min(blocks_left);
        let range = DsmRange { attributes: 0, blocks: blocks as u32, lba: first };
        bytes.extend_from_slice(&range.emit());
        blocks_left -= blocks;
        done = ((first + blocks) << shift) - extent.offset.0;
        if first + blocks >= end {
            (at, done) = (at + 1, 0);
        }
    }
    job.then = Cursor { extent: at, done };
    if bytes.is_empty() {
        return Plan::Finish(Outcome::Done);
    }
    let count = (bytes.len() / DsmRange::SIZE) as u32;
    let sends = bytes.len() as u32;
    job.wire.ranges = bytes;
    Plan::Command { command: Command::dataset_management(nsid, count, true), sends }
}
