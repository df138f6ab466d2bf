//! Commands that ask a volume more than once: WRITE AND VERIFY, ORWRITE, WRITE SAME of anything but
//! zeros, and GET LBA STATUS.
//!
//! Between two steps nothing of the command is below, so each step is judged as a command that waited
//! is: a reservation, a write protection, another volume under its LUN or an abort that came
//! meanwhile ends the command there. What an ORWRITE writes replaces what it read, or nothing: others
//! see all of it or none. Spec: SBC-3, "WRITE AND VERIFY (10) command", "ORWRITE (16) command", "WRITE
//! SAME (10) command", "GET LBA STATUS command".

use block::copying::copy_bytes;
use block::{Buffer, Class, Completion, Extent, Operation, Outcome, PAGE_SIZE, VolumeId};
use scsi::{LbaSearch, Work};
use wire::scsi::ScsiStatus;

use super::slots::{Incoming, Judged, Kind, Task, TaskState};
use super::{Connection, Context, Ending};

/// How often an ORWRITE begins again because somebody else wrote in between.
const ATTEMPTS: u8 = 16;

/// What is left of a command.
#[derive(Debug)]
pub(super) struct Steps {
    judged: Judged,
    extent: Extent,
    next: Next,
}

#[derive(Debug)]
enum Next {
    /// What was written is verified, against this if there is some.
    Verify(Option<Buffer>),
    /// What was read is joined with the operand and replaced.
    Join { operand: Buffer, replacement: Buffer, durable: bool, left: u8 },
    /// It was replaced, or somebody was faster.
    Replaced { operand: Buffer, durable: bool, left: u8 },
    /// The block is written further, to the extent.
    Same { block: Vec<u8> },
    /// It is known a little further on which blocks are mapped.
    Search(Box<LbaSearch>),
}

impl Connection {
    /// Begins a command of several steps, whose data are there.
    pub(super) fn begin_steps(
        &mut self,
        slot: u16,
        (volume, work): (VolumeId, Work),
        judged: &Judged,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) {
        let judged = *judged;
        *self.slots.state(slot) = TaskState::InFlight(Kind::Steps(class));
        match work {
            Work::WriteAndVerify(extent) => {
                let Incoming { buffer, mut more, .. } = data;
                let copy = more.pop().map(|mut copy| {
                    copy_bytes(&buffer, &mut copy, ctx.memory);
                    copy
                });
                self.steps.insert(slot, Steps { judged, extent, next: Next::Verify(copy) });
                let operation = Operation::Write { extent, buffer, durable: true };
                self.submit(slot, volume, operation, ctx);
            }
            Work::OrWrite(extent, durable) => {
                let Incoming { buffer: operand, mut more, .. } = data;
                let replacement = more.pop().expect("it has three buffers");
                let buffer = more.pop().expect("it has three buffers");
                let next = Next::Join { operand, replacement, durable, left: ATTEMPTS };
                self.steps.insert(slot, Steps { judged, extent, next });
                self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
            }
            Work::WriteSame { extent, block, .. } => {
                let mut bytes = vec![0; block as usize];
                ctx.memory.read(&data.buffer, 0, &mut bytes);
                match work.of_same(&bytes) {
                    Work::WriteZeroes { extent, deallocate } => {
                        *self.slots.state(slot) = TaskState::InFlight(Kind::Plain(class));
                        self.give_data(data, class, ctx);
                        let durable = false;
                        let operation = Operation::WriteZeroes { extent, deallocate, durable };
                        self.submit(slot, volume, operation, ctx);
                    }
                    _ => {
                        let steps = Steps { judged, extent, next: Next::Same { block: bytes } };
                        self.write_same(slot, volume, steps, (data.buffer, class), ctx);
                    }
                }
            }
            other => panic!("{other:?} is one request"),
        }
    }

    /// Begins GET LBA STATUS, in a slot that is in flight.
    #[cold]
    pub(super) fn begin_search(
        &mut self,
        slot: u16,
        volume: VolumeId,
        judged: Judged,
        ctx: &mut Context<'_>,
    ) {
        *self.slots.state(slot) = TaskState::InFlight(Kind::Steps(Class::Transfer));
        let lun = self.slots.task(slot).lun;
        let unit = self.same_unit(lun, judged.unit, ctx).expect("it was just judged");
        let search = Box::new(LbaSearch::new(&judged.cdb, unit));
        match search.next() {
            Some(_) => self.search(slot, volume, judged, search, ctx),
            None => {
                let next = Next::Search(search);
                self.last_step_done(slot, Class::Transfer, next, Vec::new(), false, ctx);
            }
        }
    }

    /// Asks for what is not known yet.
    fn search(
        &mut self,
        slot: u16,
        volume: VolumeId,
        judged: Judged,
        search: Box<LbaSearch>,
        ctx: &mut Context<'_>,
    ) {
        let (extent, sought) = search.next().expect("there is a next step");
        self.steps.insert(slot, Steps { judged, extent, next: Next::Search(search) });
        self.submit(slot, volume, Operation::Seek { extent, sought }, ctx);
    }

    /// Writes the block to as much of the extent as the buffer, of memory of this class, has room for.
    fn write_same(
        &mut self,
        slot: u16,
        volume: VolumeId,
        Steps { judged, extent, next }: Steps,
        (mut buffer, class): (Buffer, Class),
        ctx: &mut Context<'_>,
    ) {
        let Next::Same { block } = &next else { panic!("{next:?} is no WRITE SAME") };
        let length = extent.length.0.min(u64::from(buffer.len()));
        if length < u64::from(buffer.len()) {
            buffer = self.shorten(buffer, length as u32, class, ctx);
        }
        for at in (0..length as u32).step_by(block.len()) {
            ctx.memory.write(&mut buffer, at, block);
        }
        let part = Extent::new(extent.offset.0, length);
        let rest = Extent::new(extent.offset.0 + length, extent.length.0 - length);
        self.steps.insert(slot, Steps { judged, extent: rest, next });
        self.submit(slot, volume, Operation::Write { extent: part, buffer, durable: false }, ctx);
    }

    /// A buffer of so many bytes in the place of a longer one, of which the rest is given back.
    fn shorten(
        &mut self,
        buffer: Buffer,
        length: u32,
        class: Class,
        ctx: &mut Context<'_>,
    ) -> Buffer {
        let shorter = Buffer::reserved(length, buffer.phase());
        let pages = buffer.page_count() - shorter.page_count();
        ctx.memory.release(buffer);
        self.give_all(vec![Buffer::reserved(pages * PAGE_SIZE, 0)], class, ctx);
        shorter
    }

    /// A step is done: the next one follows, or the answer.
    pub(super) fn step_done(
        &mut self,
        slot: u16,
        class: Class,
        completion: Completion,
        ctx: &mut Context<'_>,
    ) {
        let Completion { outcome, buffer, expected, .. } = completion;
        let mut buffers = vec![buffer];
        buffers.extend(expected.map(|expected| *expected));
        let Some(Steps { judged, extent, mut next }) = self.steps.remove(&slot) else {
            return self.steps_end(slot, class, buffers, super::ending_of(outcome), ctx);
        };
        let is_replaced = matches!(next, Next::Replaced { .. });
        let lost_race = is_replaced && matches!(outcome, Outcome::Miscompare(_));
        let Task { lun, is_aborted, .. } = *self.slots.task(slot);
        let is_well = outcome.is_done() || lost_race || matches!(outcome, Outcome::Found(_));
        if !is_well || is_aborted || !self.is_open() {
            buffers.extend(next.buffers());
            return self.steps_end(slot, class, buffers, super::ending_of(outcome), ctx);
        }
        if let Next::Search(search) = &mut next {
            search.found(outcome);
        }
        if next.is_last(extent, lost_race) {
            return self.last_step_done(slot, class, next, buffers, lost_race, ctx);
        }
        let volume = match self.judge_again(lun, &judged, ctx) {
            Ok((volume, _)) => volume,
            Err(end) => {
                buffers.extend(next.buffers());
                return self.steps_end(slot, class, buffers, end, ctx);
            }
        };
        match next {
            Next::Verify(None) => {
                self.give_all(buffers, class, ctx);
                self.submit(slot, volume, Operation::Verify { extent }, ctx);
            }
            Next::Verify(Some(buffer)) => {
                self.give_all(buffers, class, ctx);
                self.submit(slot, volume, Operation::Compare { extent, buffer }, ctx);
            }
            Next::Join { operand, mut replacement, durable, left } => {
                let expected = Box::new(buffers.remove(0));
                join(&operand, &expected, &mut replacement, ctx);
                let next = Next::Replaced { operand, durable, left };
                self.steps.insert(slot, Steps { judged, extent, next });
                let operation =
                    Operation::CompareAndWrite { extent, expected, replacement, durable };
                self.submit(slot, volume, operation, ctx);
            }
            Next::Replaced { operand, durable, left } => {
                let [replacement, read] = [buffers.remove(0), buffers.remove(0)];
                let buffer = Buffer::reserved(read.len(), read.phase());
                ctx.memory.release(read);
                let next = Next::Join { operand, replacement, durable, left: left - 1 };
                self.steps.insert(slot, Steps { judged, extent, next });
                self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
            }
            Next::Same { .. } => {
                let buffer = (buffers.remove(0), class);
                self.write_same(slot, volume, Steps { judged, extent, next }, buffer, ctx);
            }
            Next::Search(search) => self.search(slot, volume, judged, search, ctx),
        }
    }

    /// Nothing is left to be asked: the command is answered.
    fn last_step_done(
        &mut self,
        slot: u16,
        class: Class,
        next: Next,
        mut buffers: Vec<Buffer>,
        lost_race: bool,
        ctx: &mut Context<'_>,
    ) {
        let Next::Search(search) = next else {
            buffers.extend(next.buffers());
            let status = if lost_race { ScsiStatus::BUSY } else { ScsiStatus::GOOD };
            return self.steps_end(slot, class, buffers, Ending::bare(status), ctx);
        };
        let task = self.slots.remove(slot);
        self.order.task_is_gone(slot);
        self.send_reply(&task, &search.data());
    }

    fn steps_end(
        &mut self,
        slot: u16,
        class: Class,
        buffers: Vec<Buffer>,
        end: Ending,
        ctx: &mut Context<'_>,
    ) {
        self.give_all(buffers, class, ctx);
        self.end(slot, end, ctx);
    }
}

impl Next {
    /// Whether nothing more is asked of the volume, where this much of the command is left and what was
    /// asked last went well; `lost_race`: but that somebody else was faster.
    fn is_last(&self, rest: Extent, lost_race: bool) -> bool {
        match self {
            Next::Verify(_) | Next::Join { .. } => false,
            Next::Replaced { left, .. } => !lost_race || *left == 0,
            Next::Same { .. } => rest.length.0 == 0,
            Next::Search(search) => search.next().is_none(),
        }
    }

    fn buffers(self) -> Vec<Buffer> {
        match self {
            Next::Verify(copy) => copy.into_iter().collect(),
            Next::Join { operand, replacement, .. } => vec![operand, replacement],
            Next::Replaced { operand, .. } => vec![operand],
            Next::Same { .. } | Next::Search(_) => Vec::new(),
        }
    }
}

/// Puts the bitwise OR of two buffers into a third of their length.
fn join(operand: &Buffer, read: &Buffer, joined: &mut Buffer, ctx: &mut Context<'_>) {
    let [mut a, mut b] = [[0; PAGE_SIZE as usize]; 2];
    let mut at = 0;
    while at < operand.len() {
        let length = (operand.len() - at).min(PAGE_SIZE) as usize;
        ctx.memory.read(operand, at, &mut a[..length]);
        ctx.memory.read(read, at, &mut b[..length]);
        a.iter_mut().zip(&b).for_each(|(a, b)| *a |= b);
        ctx.memory.write(joined, at, &a[..length]);
        at += length as u32;
    }
}
