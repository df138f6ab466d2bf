//! What jobs are on a disk: where each works, on how much, and the plan of the load.
//!
//! Percentages are of the disk. A job without a size has all behind its offset. One that is not
//! `time_based` asks for its size once for each loop, or for `io_size`. Units: bytes. Errors: what does
//! not lie on the disk, sizes that are no multiples of its blocks, jobs of which one spoils what the
//! other verifies.

use std::sync::Arc;

use super::job::{Job, used};
use super::values::{Amount, TIME_MAX};
use crate::load::{LEDGER_BLOCKS_MAX, Plan};
use crate::mistake::{Mistake, Span};
use crate::workload::{Kind, Order, Sharing, Sizes, Split, Workload};

/// A disk on which jobs are to run.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    pub bytes: u64,
    /// Bytes of its blocks.
    pub block_bytes: u32,
    /// Whether it takes trims.
    pub discards: bool,
    /// Marks what is written in this run.
    pub seed: u64,
}

/// A job that can run.
#[derive(Clone, Debug)]
pub struct Ready {
    /// What its clones do, all together.
    pub plan: Plan,
    /// Bytes of the disk that they touch at most, in whole requests: where each clone's begin and end,
    /// in this order; of clones that share theirs, once.
    pub ranges: Vec<(u64, u64)>,
}

impl Ready {
    /// Whether both may touch the same byte.
    fn meets(&self, other: &Ready) -> bool {
        let (mut own, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(one), Some(two)) = (own.peek(), theirs.peek()) {
            if one.0 < two.1 && two.0 < one.1 {
                return true;
            }
            // The one that ends first meets none of those behind.
            if one.1 < two.1 {
                own.next()
            } else {
                theirs.next()
            };
        }
        false
    }
}

pub(super) fn fit(jobs: &[Job], disk: &Disk, mistakes: &mut Vec<Mistake>) -> Vec<Ready> {
    let each = |job| Fitting { job, disk, mistakes: &mut *mistakes }.ready();
    let ready: Vec<Option<Ready>> = jobs.iter().map(each).collect();
    let all: Vec<Ready> = ready.iter().flatten().cloned().collect();
    if all.len() == jobs.len() {
        spoilers(jobs, &all, mistakes);
        records(jobs, &all, mistakes);
    }
    all
}

/// Refuses jobs that write where another verifies, unless they keep its record: what they leave would
/// be told to be wrong.
fn spoilers(jobs: &[Job], all: &[Ready], mistakes: &mut Vec<Mistake>) {
    for (job, own) in jobs.iter().zip(all).filter(|(job, _)| job.verify) {
        for (other, theirs) in jobs.iter().zip(all) {
            if job.span == other.span || !other.pattern.writes() || !own.meets(theirs) {
                continue;
            }
            let alike = other.verify && other.block() == job.block();
            if job.stage == other.stage || !alike {
                let expected = match job.stage == other.stage {
                    true => "a range of its own",
                    false => "a range of its own, or verify and the same bs",
                };
                let message = format!(
                    "job {:?} writes where {:?} verifies: expected {expected}",
                    other.name, job.name
                );
                mistakes.push(Mistake::at(&other.span, message));
                break;
            }
        }
    }
}

/// Refuses stages that would keep a record of more blocks than one load may; that of a job alone is cut.
fn records(jobs: &[Job], all: &[Ready], mistakes: &mut Vec<Mistake>) {
    let (mut stage, mut sum) = (0, 0_u64);
    for (job, Ready { plan, .. }) in jobs.iter().zip(all) {
        sum = if job.stage == stage { sum } else { 0 };
        stage = job.stage;
        if !job.verify {
            continue;
        }
        let apart = matches!(plan.workload.sharing, Sharing::Steps(_));
        let ranges = if apart { u64::from(plan.jobs) } else { 1 };
        sum += plan.range_bytes() / u64::from(plan.workload.block_bytes) * ranges;
        if sum > LEDGER_BLOCKS_MAX {
            let message = format!(
                "verify: expected at most {LEDGER_BLOCKS_MAX} blocks at the same time, as a record is kept of each, seen {sum} with job {:?}",
                job.name
            );
            mistakes.push(
                Mistake::at(&job.span, message).help("a smaller size, a larger bs, or stonewall"),
            );
            break;
        }
    }
}

struct Fitting<'a> {
    job: &'a Job,
    disk: &'a Disk,
    mistakes: &'a mut Vec<Mistake>,
}

impl Fitting<'_> {
    fn wrong<T>(&mut self, span: &Span, message: String, help: &str) -> Option<T> {
        self.mistakes.push(Mistake::at(span, message).help(help));
        None
    }

    fn ready(&mut self) -> Option<Ready> {
        let (job, disk) = (self.job, self.disk);
        let Workload { block_bytes, sizes, .. } = self.sizes()?;
        let block = disk.block_bytes;
        let offset = self.bytes(&job.offset, "offset", block, 0)?;
        let step = self.bytes(&job.offset_increment, "offset_increment", block_bytes, 0)?;
        if let (0, Some((Amount::Percent(percent @ 1..), span))) = (step, &job.offset_increment) {
            let message = format!(
                "offset_increment: expected at least a request of {block_bytes} bytes, seen {percent}% of {} bytes",
                disk.bytes
            );
            return self.wrong(span, message, "a larger share, or bytes");
        }
        let behind = step.saturating_mul(u64::from(job.numjobs - 1));
        let rest = disk.bytes.saturating_sub(offset).saturating_sub(behind);
        let range_bytes = match &job.size {
            // To fio, all of a disk is what lies behind the offset.
            None | Some((Amount::Percent(100), _)) => rest,
            share @ Some((Amount::Percent(_), _)) => {
                self.bytes(share, "size", block_bytes, rest)?
            }
            some => self.bytes(some, "size", 1, rest)?,
        };
        let span = job.size.as_ref().or(job.offset.as_ref()).map_or(&job.span, |(_, span)| span);
        if range_bytes > rest {
            let message = format!(
                "job {:?}: expected at most {rest} bytes behind offset {}, seen {range_bytes}",
                job.name,
                offset.saturating_add(behind)
            );
            return self.wrong(span, message, "a smaller size or offset, or a larger disk");
        }
        let least = job.request_bytes_max();
        if range_bytes < u64::from(least) {
            let message = format!(
                "job {:?}: expected at least one request of {least} bytes, seen {range_bytes} bytes from offset {offset} on",
                job.name
            );
            return self.wrong(span, message, "a larger size, or a smaller offset or bs");
        }
        if job.verify && step > 0 && step < range_bytes {
            let message = format!(
                "offset_increment: expected ranges that do not meet, as they are verified, seen {step} for a size of {range_bytes}"
            );
            let span = &job.offset_increment.as_ref().expect("there is a step").1.clone();
            return self.wrong(span, message, "offset_increment of at least the size");
        }
        if job.pattern.trim_percent > 0 && !disk.discards {
            return self.wrong(
                &job.rw_span,
                "rw: the disk takes no trims".to_owned(),
                "another disk or rw",
            );
        }
        let workload = Workload {
            order: job.order,
            read_percent: job.pattern.read_percent,
            trim_percent: job.pattern.trim_percent,
            block_bytes,
            sizes,
            sharing: if step > 0 { Sharing::Steps(step) } else { Sharing::Together },
            offset_bytes: offset,
            range_bytes,
        };
        // What is left behind the last whole request is never asked for.
        let whole = range_bytes / u64::from(block_bytes) * u64::from(block_bytes);
        let clones = if step > 0 { u64::from(job.numjobs) } else { 1 };
        let ranges =
            (0..clones).map(|clone| offset + clone * step).map(|from| (from, from + whole));
        Some(Ready { ranges: ranges.collect(), plan: self.plan(workload) })
    }

    fn plan(&self, workload: Workload) -> Plan {
        let job = self.job;
        let mut plan = Plan {
            jobs: job.numjobs,
            depth: job.iodepth,
            rate: job.rate.map(|rate| rate.saturating_mul(u64::from(job.numjobs))),
            arrivals: job.arrivals,
            warm_up: job.ramp_time,
            time: job.runtime.unwrap_or(TIME_MAX),
            bytes_max: None,
            sync: job.sync,
            fsync: job.fsync,
            verify: job.verify,
            // What another job verifies it never writes.
            whole: false,
            seed: self.disk.seed,
            draws: job.draws,
            workload,
        };
        if !job.time_based {
            // What is left behind the last whole block is never asked for.
            let unit = u64::from(plan.workload.block_bytes);
            let once = plan.range_bytes() / unit * unit;
            plan.bytes_max = Some(job.io_size.unwrap_or(once).saturating_mul(job.loops));
        }
        plan
    }

    /// What all sizes are multiples of, and where there are several, which.
    fn sizes(&mut self) -> Option<Workload> {
        let job = self.job;
        let kinds: Vec<Kind> = used(job.pattern).collect();
        let asked: Vec<u32> = kinds
            .iter()
            .flat_map(|kind| &job.sizes[*kind as usize])
            .map(|(bytes, _)| *bytes)
            .collect();
        let block = self.disk.block_bytes;
        if let Some(odd) = asked.iter().find(|bytes| !bytes.is_multiple_of(block)) {
            let message =
                format!("bs: expected multiples of {block}, the disk's block size, seen {odd}");
            return self.wrong(&job.sizes_span, message, "other sizes, or another disk");
        }
        let unit = asked.iter().copied().fold(0, gcd);
        let sizes = job.block().is_none().then(|| {
            // Kinds that are never asked for have the sizes of one that is.
            let of = |kind: Kind| match kinds.contains(&kind) {
                true => Split::new(&job.sizes[kind as usize]),
                false => Split::new(&job.sizes[kinds[0] as usize]),
            };
            Arc::new(Sizes::new([of(Kind::Read), of(Kind::Write), of(Kind::Trim)]))
        });
        Some(Workload {
            order: Order::Sequential,
            read_percent: 100,
            trim_percent: 0,
            block_bytes: unit,
            sizes,
            sharing: Sharing::Together,
            offset_bytes: 0,
            range_bytes: 0,
        })
    }

    /// So many bytes: a multiple of `unit`, to which a percentage is rounded down.
    fn bytes(
        &mut self,
        amount: &Option<(Amount, Span)>,
        key: &str,
        unit: u32,
        default: u64,
    ) -> Option<u64> {
        let unit = u64::from(unit);
        let Some((amount, span)) = amount else { return Some(default) };
        match *amount {
            Amount::Percent(percent) => {
                let bytes = u128::from(self.disk.bytes) * u128::from(percent) / 100;
                Some(bytes as u64 / unit * unit)
            }
            Amount::Bytes(bytes) if bytes.is_multiple_of(unit) => Some(bytes),
            Amount::Bytes(bytes) => {
                let message = format!("{key}: expected a multiple of {unit} bytes, seen {bytes}");
                self.wrong(span, message, "the disk's blocks, and requests, begin at such")
            }
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
