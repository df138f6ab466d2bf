//! From a job to its next command. Pure arithmetic: nothing is sent here.
//!
//! Units: bytes of the disk in, blocks out. Spec: NVM command set, "NVM Commands".

use block::{Failure, Outcome};
use wire::nvme::Command;
use wire::nvme::command::DsmRange;

use super::facts::Limits;
use super::jobs::{Job, Kind, Ranges};
use super::link::Payload;

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
    if (job.offset | job.length) & ((1 << shift) - 1) != 0 {
        return refuse(Failure::Internal);
    }
    let lba = job.offset >> shift;
    match job.kind {
        Kind::Read | Kind::Write | Kind::Compare => {
            if job.length == 0 {
                return Plan::Finish(Outcome::Done);
            }
            if job.length > u64::from(limits.transfer) {
                return Plan::Split;
            }
            let bytes = job.length as u32;
            let blocks = bytes >> shift;
            match job.kind {
                Kind::Read => {
                    Plan::Command { command: Command::read(nsid, lba, blocks, bytes), sends: 0 }
                }
                Kind::Write => {
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
        Kind::Flush => Plan::Command { command: Command::flush(nsid), sends: 0 },
        Kind::Zeroes { .. } | Kind::Verify => plan_without_data(job, limits, nsid),
        Kind::Discard => plan_discard(job, limits, nsid),
    }
}

fn plan_without_data(job: &mut Job, limits: &Limits, nsid: u32) -> Plan {
    let most = if job.kind == Kind::Verify { limits.verify } else { limits.zeroes };
    if most == 0 {
        return Plan::Finish(Outcome::NotDone(Failure::Unsupported));
    }
    if job.length == 0 {
        return Plan::Finish(Outcome::Done);
    }
    let blocks_max = 65_536u64 << limits.block_shift;
    job.chunk = (job.length - job.done).min(most).min(blocks_max);
    let lba = (job.offset + job.done) >> limits.block_shift;
    let blocks = (job.chunk >> limits.block_shift) as u32;
    let command = match job.kind {
        Kind::Zeroes { deallocate } => {
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
    let ranges: &mut Ranges = job.ranges.as_mut().expect("a discard has ranges");
    let shift = limits.block_shift;
    let mask = (1u64 << shift) - 1;
    let (mut at, mut done) = ranges.next;
    let mut bytes = Vec::new();
    let mut blocks_left = limits.discard_blocks;
    while bytes.len() < limits.ranges as usize * DsmRange::SIZE && blocks_left > 0 {
        let Some(extent) = ranges.extents.get(at) else { break };
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
    ranges.then = (at, done);
    if bytes.is_empty() {
        return Plan::Finish(Outcome::Done);
    }
    let count = (bytes.len() / DsmRange::SIZE) as u32;
    let sends = bytes.len() as u32;
    job.payload = Payload::Bytes(bytes);
    Plan::Command { command: Command::dataset_management(nsid, count, true), sends }
}
