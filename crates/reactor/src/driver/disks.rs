//! Disks: requests that are answered at once, by the kernel, or later.
//!
//! A machine's requests come in bulk. Those to RAM and null disks are answered where they are
//! asked: no queue lies between the disk and the machine, and the cache misses of the whole bulk
//! overlap. Those to files start on the ring, or go to the disk threads.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use block::table::{Slot, Table};
use block::{Completion, Failure, Instant, Outcome};
use contract::{Ask, DiskId, Event, Machine, Poll};

use super::poll::DISK;
use super::{Alarm, Driver, since};
use crate::disk::{Call, Clearing, Disk, Hold, Submitted, Work};
use crate::engine::{Engine, Kind};
use crate::stats::add;

/// So many calls to files are gathered before they are handed to the kernel within a turn.
const FILES_AT_ONCE: u32 = 8;
/// Pieces of work of a disk that are with the kernel or a disk thread at once; more of them wait
/// here. A disk that hangs keeps one of the kernel's workers for each, of which the ring is told to
/// have enough for all disks.
const WORKS_AT_ONCE: u32 = 128;
/// Requests whose cache misses overlap: their slots, states and first lines fit the first-level
/// cache.
const OVERLAP: usize = 32;
/// So long before an answer that an instrument holds back is due its shard looks at the clock and does not
/// sleep: on a virtual machine a sleeper is woken some 40 us after his time, and once in a hundred times some
/// 180 us, and an instrument that is so much too late is none.
const EXACT: Duration = Duration::from_micros(250);
/// The largest number that a disk may have.
const DISKS_MAX: usize = 1 << 16;

/// A disk of this shard.
struct Known {
    disk: Arc<Disk>,
    /// By which what comes back from the kernel is looked for.
    source: Option<Slot>,
    /// Work and clearing that is not done, and the work of it that waits for other work to come
    /// back.
    out: u32,
    /// Answers of it that an instrument holds back.
    held_back: u32,
    waiting: VecDeque<Slot>,
    /// Who waits for all of it to be answered before the disk is forgotten.
    leaving: Option<Sender<()>>,
}

/// Work that is with the kernel or a disk thread.
struct Underway {
    disk: DiskId,
    /// `None` while a disk thread has it.
    work: Option<Box<Work>>,
}

/// An answer that an instrument holds back.
struct HeldBack {
    disk: DiskId,
    completion: Completion,
    due: Instant,
}

/// The disks of a shard and what they are asked.
#[derive(Default)]
pub(super) struct Disks {
    known: Vec<Option<Known>>,
    /// What the machine wants asked; empty between calls.
    asks: Vec<Ask>,
    underway: Table<Underway>,
    held_back: Table<HeldBack>,
    /// Requests to memory that clear many pages, the next to have its turn first.
    clearing: VecDeque<(DiskId, Box<Clearing>)>,
    unsubmitted: u32,
}

impl Disks {
    fn add(&mut self, id: DiskId, disk: Arc<Disk>, source: Option<Slot>) {
        let index = id.0 as usize;
        assert!(index < DISKS_MAX, "disk {index}: numbers go up to {DISKS_MAX}");
        if self.known.len() <= index {
            self.known.resize_with(index + 1, || None);
        }
        assert!(self.known[index].is_none(), "disk {index} is there already");
        let (out, held_back, waiting, leaving) = (0, 0, VecDeque::new(), None);
        self.known[index] = Some(Known { disk, source, out, held_back, waiting, leaving });
    }

    /// A disk that may be asked.
    #[inline]
    fn open(&self, id: DiskId) -> Option<&Disk> {
        match self.known.get(id.0 as usize) {
            Some(Some(known)) if known.leaving.is_none() => Some(&known.disk),
            _ => None,
        }
    }

    /// Fetches what the requests will touch: the tables' lines for all, then what they point at for
    /// all.
    fn prefetch(&self, asks: &[Ask]) {
        for part in asks.chunks(OVERLAP) {
            for (id, request) in part {
                if let Some(disk) = self.open(*id) {
                    disk.prefetch_slot(&request.operation);
                }
            }
            for (id, request) in part {
                if let Some(disk) = self.open(*id) {
                    disk.prefetch_pages(&request.operation);
                }
            }
        }
    }

    /// Whether there are pages to clear.
    #[inline]
    pub(super) fn is_clearing(&self) -> bool {
        !self.clearing.is_empty()
    }

    /// Whether nothing is with the kernel or a disk thread.
    pub(super) fn is_quiet(&self) -> bool {
        self.underway.is_empty()
    }

    /// A disk of which something is out.
    fn known_mut(&mut self, id: DiskId) -> &mut Known {
        self.known[id.0 as usize].as_mut().expect("a disk with work out is known")
    }

    /// Files and block devices.
    fn count_files(&self) -> u32 {
        let files = self.known.iter().flatten().filter(|known| known.disk.access().is_some());
        files.count() as u32
    }
}

/// How to wait where an answer that is held back is the next that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// At most so long.
    Sleep(Option<Duration>),
    /// Until then, unless something comes.
    Look(Instant),
}

impl Waiting {
    /// For one that is due then, where nothing else is to be done within `limit`.
    pub(super) fn until(due: Instant, now: Instant, limit: Option<Duration>) -> Waiting {
        let left = due.since(now);
        match left.checked_sub(EXACT).filter(|early| !early.is_zero()) {
            Some(early) => Waiting::Sleep(Some(limit.map_or(early, |limit| limit.min(early)))),
            None => Waiting::Look(due),
        }
    }
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// When the next answer is due that is held back, if nothing else is due before.
    #[inline]
    pub(super) fn held_back_until(&self) -> Option<Instant> {
        match self.alarms.peek() {
            Some(Reverse((due, Alarm::Completion(_)))) => Some(*due),
            _ => None,
        }
    }

    /// Asks the disks what the machine wants asked. Returns whether one answered at once: then the
    /// machine has been told.
    pub(super) fn ask_disks(&mut self) -> bool {
        let mut asks = std::mem::take(&mut self.disks.asks);
        self.machine.take_requests(&mut asks);
        if asks.is_empty() {
            self.disks.asks = asks;
            return false;
        }
        add(&self.counters().disk_requests, asks.len() as u64);
        if asks.len() > 1 {
            self.disks.prefetch(&asks);
        }
        let mut answered = false;
        let origin = self.shared.origin;
        let clock = || since(origin);
        for (id, request) in asks.drain(..) {
            // Not a clone of the disk: its count is shared by all shards, and this is the path of
            // every request.
            let submitted = match self.disks.open(id) {
                Some(disk) => disk.submit(&mut self.memory, clock, request),
                None => Submitted::Done(request.complete(Outcome::NotDone(Failure::Removed))),
            };
            match submitted {
                Submitted::Done(completion) => {
                    answered = true;
                    let event = Event::Completed(completion);
                    self.machine.handle_event(self.now, event, &mut self.memory);
                }
                Submitted::Later { completion, hold } => self.hold_back(id, completion, hold),
                Submitted::Clearing(clearing) => {
                    self.disks.known_mut(id).out += 1;
                    self.disks.clearing.push_back((id, clearing));
                }
                Submitted::Work(work) => {
                    add(&self.counters().disk_works, 1);
                    let slot = self.disks.underway.insert(Underway { disk: id, work: Some(work) });
                    let known = self.disks.known_mut(id);
                    known.out += 1;
                    if let Some(source) = known.source {
                        self.polls.stir(source);
                    }
                    if known.out > WORKS_AT_ONCE {
                        known.waiting.push_back(slot);
                    } else {
                        self.go_on(slot);
                    }
                }
            }
        }
        self.disks.asks = asks;
        answered
    }

    /// Keeps an answer for a while, as an instrument wants: from now, and not from when the turn began.
    fn hold_back(&mut self, disk: DiskId, completion: Completion, hold: Hold) {
        self.disks.known_mut(disk).held_back += 1;
        let due = hold.due(self.clock());
        let slot = self.disks.held_back.insert(HeldBack { disk, completion, due });
        self.alarms.push(Reverse((due, Alarm::Completion(slot))));
    }

    /// Makes a disk known.
    pub(super) fn add_disk(&mut self, id: DiskId, disk: Arc<Disk>, poll: Poll) {
        if disk.as_ram().is_some() {
            self.memory.add_lender(id, disk.clone());
        }
        let is_file = disk.access().is_some();
        let source = is_file.then(|| self.polls.add(poll, DISK));
        self.disks.add(id, disk, source);
        if is_file {
            self.engine.set_file_workers(self.disks.count_files() * WORKS_AT_ONCE);
        }
    }

    /// Forgets a disk, once nothing of it is out and all of it is answered.
    pub(super) fn remove_disk(&mut self, id: DiskId, told: Sender<()>) {
        match self.disks.known.get_mut(id.0 as usize) {
            Some(Some(known)) if known.out + known.held_back > 0 => {
                known.leaving = Some(told);
            }
            Some(entry) => {
                if let Some(source) = entry.take().and_then(|known| known.source) {
                    self.polls.leave(source);
                }
                // Whoever asked may have given up waiting.
                let _ = told.send(());
            }
            None => {
                let _ = told.send(());
            }
        }
    }

    /// Work of a disk is done, whose answer is to be held back so. Returns what waited for that.
    fn came_back(&mut self, id: DiskId, answer: Completion, hold: Hold) -> Option<Slot> {
        let at_once = if hold.due(self.now) <= self.now {
            Some(answer)
        } else {
            // Before the disk may go.
            self.hold_back(id, answer, hold);
            None
        };
        let known = self.disks.known_mut(id);
        known.out -= 1;
        let is_leaving = known.leaving.is_some();
        let next = known.waiting.pop_front();
        if let Some(source) = known.source {
            self.polls.came(source, self.now);
            match known.out {
                0 => self.polls.calm(source),
                _ => self.polls.stir(source),
            }
        }
        if is_leaving {
            self.leave(id);
        }
        if let Some(answer) = at_once {
            self.tell(Event::Completed(answer));
        }
        next
    }

    /// Forgets a disk that was waited for, if that was the last of it.
    fn leave(&mut self, id: DiskId) {
        if let Some(told) = self.disks.known_mut(id).leaving.take() {
            self.remove_disk(id, told);
        }
    }

    /// What comes back from a disk is looked for in another way.
    pub(super) fn poll_disk(&mut self, id: DiskId, poll: Poll) {
        let known = self.disks.known.get(id.0 as usize).and_then(Option::as_ref);
        if let Some(source) = known.and_then(|known| known.source) {
            self.polls.change(source, poll);
        }
    }

    /// Starts the next call that a piece of work wants. If it wants none, what waited for that is
    /// started.
    fn go_on(&mut self, slot: Slot) {
        let mut next = Some(slot);
        while let Some(slot) = next.take() {
            let underway = self.disks.underway.get_mut(slot).expect("its work goes on");
            let work = underway.work.as_ref().expect("the work is here");
            match work.next() {
                Call::Finished => next = self.finish_work(slot),
                call if E::FILES && !work.sleeps() && !matches!(call, Call::Blocking) => {
                    // SAFETY: the iovecs and what they point at belong to the work, which stays in
                    // the table and is left alone until the call has ended; it also keeps the file
                    // open.
                    unsafe { self.engine.start_file(Self::key(Kind::File, slot), work.fd(), call) };
                    self.disks.unsubmitted += 1;
                    if self.disks.unsubmitted >= FILES_AT_ONCE {
                        self.disks.unsubmitted = 0;
                        self.engine.submit();
                    }
                }
                _ => {
                    let work = underway.work.take().expect("the work is here");
                    let number = u64::from(slot.index) << 32 | u64::from(slot.generation);
                    let disk = underway.disk;
                    self.shared.workers.give(number, disk, work, self.inbox().clone());
                }
            }
        }
    }

    /// A call to a file has ended.
    pub(super) fn file_ended(&mut self, slot: Slot, result: i32) {
        let underway = self.disks.underway.get_mut(slot).expect("work stays until its calls end");
        underway.work.as_mut().expect("the work is here").done(i64::from(result));
        self.go_on(slot);
    }

    /// A disk thread has done its work.
    pub(super) fn worked(&mut self, number: u64, work: Box<Work>) {
        let slot = Slot { index: (number >> 32) as u32, generation: number as u32 };
        let underway = self.disks.underway.get_mut(slot).expect("work is awaited");
        underway.work = Some(work);
        if let Some(next) = self.finish_work(slot) {
            self.go_on(next);
        }
    }

    /// Tells what work came to. Returns what waited for that.
    fn finish_work(&mut self, slot: Slot) -> Option<Slot> {
        let underway = self.disks.underway.remove(slot).expect("it has just finished");
        let finished = underway.work.expect("the work is here").finish();
        self.memory.give_vectors(finished.vectors);
        self.came_back(underway.disk, finished.completion, finished.hold)
    }

    /// Clears a turn's pages.
    #[inline]
    pub(super) fn clear_some(&mut self) {
        if self.disks.is_clearing() {
            self.clear_next();
        }
    }

    #[cold]
    fn clear_next(&mut self) {
        let (id, mut clearing) = self.disks.clearing.pop_front().expect("there is something");
        let disk = &self.disks.known[id.0 as usize].as_ref().expect("something of it is out").disk;
        if !disk.clear_some(&mut self.memory, &mut clearing) {
            self.disks.clearing.push_back((id, clearing));
            return;
        }
        let (completion, hold) = clearing.finish();
        self.came_back(id, completion, hold);
    }

    /// A held back completion is due.
    pub(super) fn release_completion(&mut self, slot: Slot) {
        if let Some(HeldBack { disk, completion, due }) = self.disks.held_back.remove(slot) {
            let late = self.clock().since(due);
            let known = self.disks.known_mut(disk);
            known.disk.told(late);
            known.held_back -= 1;
            self.leave(disk);
            self.tell(Event::Completed(completion));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_an_answer_is_due_the_shard_wakes_early_and_looks() {
        let at = |us: u64| Instant(us * 1_000);
        let us = Duration::from_micros;
        // What else is due may come before the shard has to look.
        assert_eq!(Waiting::until(at(2_000), at(0), None), Waiting::Sleep(Some(us(1_750))));
        let sooner = Waiting::until(at(2_000), at(0), Some(us(300)));
        assert_eq!(sooner, Waiting::Sleep(Some(us(300))));
        let later = Waiting::until(at(2_000), at(1_000), Some(us(900)));
        assert_eq!(later, Waiting::Sleep(Some(us(750))));
        for now in [1_750, 1_999, 2_000, 3_000] {
            assert_eq!(Waiting::until(at(2_000), at(now), None), Waiting::Look(at(2_000)));
        }
    }
}
