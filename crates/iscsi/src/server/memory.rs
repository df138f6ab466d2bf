//! Who waits for memory, and goes on once there may be some: tasks in a line, the oldest first, and
//! the command at the front of a stopped stream.
//!
//! Two accounts keep a session from waiting for itself. Data that come whole with their command are
//! freed by volumes alone, so a stopped stream goes on whatever the peer does; buffers of transfers
//! may hang on Data-Out further back in the same stream, and nobody in the stream waits for those: a
//! command of whose data only a part came with it, and which finds no memory for all of them, is
//! answered TASK SET FULL.

use block::buffer::pages_for;
use block::limits::COPY_PAGES;
use block::{Account, Buffer, Class, Extent, Operation, PAGE_SIZE, Pool, planted};
use scsi::Work;
use wire::scsi::{ByteCheck, Cdb};

use super::receive::Stream;
use super::slots::{Grant, Incoming, Judged, Kind, Task, TaskState, Waiting};
use super::{Connection, Context};

/// A place in line whose task has left: no slot has this number.
const LEFT: u16 = u16::MAX;
/// The most that one part of a WRITE SAME writes.
const WRITE_SAME_PART: u64 = 64 << 10;

/// Memory that somebody waits for: `count` buffers of one length and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) length: u32,
    pub(super) phase: u32,
    pub(super) count: u8,
}

impl Need {
    /// What a command takes whose data come from the host: a buffer for them, and what else it
    /// works with.
    pub(super) fn of(work: &Work, cdb: &Cdb, data_length: u32) -> Need {
        let blocks = |extent: &Extent, count| Need {
            length: extent.length.0 as u32,
            phase: work.phase(),
            count,
        };
        match work {
            // What is expected, and what replaces it.
            Work::CompareAndWrite(extent, _) => blocks(extent, 2),
            // What came, what was there, and both joined.
            Work::OrWrite(extent, _) => blocks(extent, 3),
            // A disk may exchange the pages of what it writes: the comparison has its own.
            Work::WriteAndVerify(extent) => {
                blocks(extent, if cdb.byte_check() == ByteCheck::COMPARE { 2 } else { 1 })
            }
            Work::WriteSame { extent, .. } => {
                let length = extent.length.0.min(WRITE_SAME_PART) as u32;
                Need { length, phase: phase(extent), count: 1 }
            }
            // What the list comes into is what the copy works with.
            Work::Copy(_) => Need { length: COPY_PAGES * PAGE_SIZE, phase: 0, count: 1 },
            _ => Need { length: data_length, phase: work.phase(), count: 1 },
        }
    }

    pub(super) fn pages(self) -> u32 {
        u32::from(self.count) * pages_for(self.length, self.phase)
    }

    /// All of it, or nothing.
    fn take(self, pool: &mut Pool, account: &mut Account) -> Option<Vec<Buffer>> {
        let Need { length, phase, count } = self;
        pool.take_several(account, length, phase, count.into())
    }
}

impl Connection {
    /// Whether it waits for memory of the pool: tasks for that of transfers, the stream for that of
    /// immediate data.
    #[inline]
    pub fn waits_for_memory(&self, class: Class) -> bool {
        match class {
            Class::Transfer => !self.intake.waiting.is_empty(),
            Class::Immediate => matches!(self.intake.stream, Stream::OutOfMemory(_)),
        }
    }

    /// Pages that it holds of the pool for a class.
    pub fn pages_of(&self, class: Class) -> u32 {
        match class {
            Class::Transfer => self.transfers.pages(),
            Class::Immediate => self.immediate.pages(),
        }
    }

    /// Whether [`handle_memory`](Self::handle_memory) would find what it needs in `pool` now. If
    /// not, it is kept for it there, if it has to be. For checks: nobody who waits is forgotten.
    pub fn would_go_on(&mut self, class: Class, pool: &mut Pool) -> bool {
        let (account, need) = match (class, self.intake.stream) {
            (Class::Immediate, Stream::OutOfMemory(need)) => (&self.immediate, need),
            (Class::Immediate, _) => return false,
            (Class::Transfer, _) => {
                let Some(&slot) = self.intake.waiting.front() else { return false };
                if slot == LEFT {
                    return true;
                }
                let need = match self.slots.state(slot) {
                    TaskState::Waiting(waiting) => waiting.need,
                    state => panic!("slot {slot} is in line for memory and is {state:?}"),
                };
                (&self.transfers, need)
            }
        };
        let found = pool.would_grant(account, need.pages());
        pool.keep(account, need.pages());
        found
    }

    /// There may be memory again: who waits goes on as far as there is.
    pub fn handle_memory(&mut self, class: Class, ctx: &mut Context<'_>) {
        if planted("who-waits-for-memory-starves") {
            return;
        }
        match class {
            Class::Transfer => {
                while let Some(slot) = self.intake.waiting.pop_front() {
                    if slot != LEFT && !self.go_on(slot, ctx) {
                        self.intake.waiting.push_front(slot);
                        break;
                    }
                }
            }
            Class::Immediate => {
                let Stream::OutOfMemory(need) = self.intake.stream else { return };
                self.give_reserved(ctx);
                match need.take(ctx.pool, &mut self.immediate) {
                    Some(buffers) => {
                        self.intake.reserved = buffers;
                        self.resume(ctx.now);
                    }
                    None => ctx.pool.keep(&self.immediate, need.pages()),
                }
            }
        }
    }

    /// Gives memory back that a command turned out not to need.
    pub(super) fn give_reserved(&mut self, ctx: &mut Context<'_>) {
        ctx.pool.give_all(&mut self.immediate, ctx.memory, &mut self.intake.reserved);
    }

    /// A buffer for data that came whole with their command, or `None`: then the stream stops.
    #[inline]
    pub(super) fn immediate_buffer(
        &mut self,
        length: u32,
        phase: u32,
        ctx: &mut Context<'_>,
    ) -> Option<Buffer> {
        if self.intake.reserved.is_empty()
            && let Some(buffer) = ctx.pool.take(&mut self.immediate, length, phase)
        {
            return Some(buffer);
        }
        let need = Need { length, phase, count: 1 };
        self.immediate_buffers(need, ctx)?.pop()
    }

    /// The same of a command that takes several, or one that the stream stopped for.
    #[cold]
    pub(super) fn immediate_buffers(
        &mut self,
        need: Need,
        ctx: &mut Context<'_>,
    ) -> Option<Vec<Buffer>> {
        let reserved = core::mem::take(&mut self.intake.reserved);
        if !reserved.is_empty() {
            let fits =
                |buffer: &Buffer| (buffer.len(), buffer.phase()) == (need.length, need.phase);
            assert!(
                reserved.len() == usize::from(need.count) && reserved.iter().all(fits),
                "what was reserved is not for the command in front"
            );
            return Some(reserved);
        }
        let taken = need.take(ctx.pool, &mut self.immediate);
        if taken.is_none() {
            self.counters.waits += 1;
            self.intake.stream = Stream::OutOfMemory(need);
        }
        taken
    }

    /// Buffers of a transfer, unless somebody waits for one already or there are none.
    #[inline]
    pub(super) fn transfer_buffers(
        &mut self,
        need: Need,
        ctx: &mut Context<'_>,
    ) -> Option<Vec<Buffer>> {
        if !self.intake.waiting.is_empty() {
            return None;
        }
        need.take(ctx.pool, &mut self.transfers)
    }

    /// A buffer for what a read returns, under the same terms.
    #[inline]
    pub(super) fn read_buffer(
        &mut self,
        length: u32,
        phase: u32,
        ctx: &mut Context<'_>,
    ) -> Option<Buffer> {
        if !self.intake.waiting.is_empty() {
            return None;
        }
        ctx.pool.take(&mut self.transfers, length, phase)
    }

    /// Puts a task in line for memory.
    pub(super) fn wait(&mut self, task: Task, judged: Judged, need: Need) {
        let waiting = Box::new(Waiting { judged, need });
        let slot = self.slots.insert(task, TaskState::Waiting(waiting));
        self.counters.waits += 1;
        self.intake.waiting.push_back(slot);
    }

    /// Puts the task in `slot`, which is to have memory, in line for it: at its head it goes on at
    /// once if there is some.
    pub(super) fn join_line(&mut self, slot: u16, ctx: &mut Context<'_>) {
        if !self.intake.waiting.is_empty() || !self.go_on(slot, ctx) {
            self.counters.waits += 1;
            self.intake.waiting.push_back(slot);
        }
    }

    /// The task in `slot` ends without the memory that it is in line for. Its place stays until the
    /// line is tried: what comes meanwhile is behind those who stand there.
    pub(super) fn leave_line(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let place = self.intake.waiting.iter_mut().find(|waiting| **waiting == slot);
        *place.expect("it is in line") = LEFT;
        ctx.pool.try_lines();
    }

    /// The task in `slot` was the first in line: judges it anew and takes its memory. False when
    /// there is none.
    fn go_on(&mut self, slot: u16, ctx: &mut Context<'_>) -> bool {
        let Waiting { judged, need } = match self.slots.state(slot) {
            TaskState::Waiting(waiting) => **waiting,
            state => panic!("slot {slot} is in line for memory and is {state:?}"),
        };
        let lun = self.slots.task(slot).lun;
        let (volume, work) = match self.judge_again(lun, &judged, ctx) {
            Ok(found) => found,
            Err(refusal) => {
                self.end(slot, refusal, ctx);
                return true;
            }
        };
        // The unit is the same, and so are its blocks: what is needed has not changed.
        let Some(mut buffers) = need.take(ctx.pool, &mut self.transfers) else {
            ctx.pool.keep(&self.transfers, need.pages());
            return false;
        };
        if let Work::Read(extent) = work {
            let buffer = buffers.pop().expect("a read takes one");
            *self.slots.state(slot) = TaskState::InFlight(Kind::Read);
            self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
        } else {
            let length = self.slots.task(slot).length;
            let data = Incoming::new(buffers, length, ctx.now);
            *self.slots.state(slot) = TaskState::Granted(Box::new(Grant { judged, data }));
            self.ask_for_data(slot, ctx);
        }
        true
    }
}

/// Where in its first page an extent begins.
#[inline]
pub(super) fn phase(extent: &Extent) -> u32 {
    (extent.offset.0 % u64::from(PAGE_SIZE)) as u32
}
