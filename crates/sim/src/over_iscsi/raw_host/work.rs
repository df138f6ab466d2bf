//! What a raw host asks, and what it makes of the answers.

use scsi::limits::COMPARE_AND_WRITE_MAX;
use testkit::iscsi::Said;
use testkit::iscsi::host::Order;
use testkit::oracle::Content;
use wire::iscsi::{TaskFunction, TaskResponse};
use wire::scsi::provisioning::{LbaStatus, LbaStatusList, ProvisioningStatus};
use wire::scsi::{AdditionalSense, Cdb, Lun, ScsiStatus, SenseKey};

use super::super::LUN;
use super::{RawHost, bytes_of};
use crate::client::SimWorld;
use crate::writer::{Ids, Log, Write};

/// A request that is not answered. `first` is a logical block.
#[derive(Clone)]
pub(in super::super) enum Asked {
    Login,
    Logout,
    Nop,
    Read {
        start: u64,
        first: u64,
    },
    /// Which blocks are mapped.
    Search {
        start: u64,
    },
    /// `is_skewed`: its data are sent out of their order, and must not be written.
    Write {
        write: Write,
        durable: bool,
        is_skewed: bool,
    },
    /// A compare-and-write.
    Swap {
        start: u64,
        write: Write,
        expected: Vec<u8>,
    },
    /// `list` has its segments, of so many blocks of the oracle each.
    Copy {
        write: Write,
        list: Vec<u8>,
        counts: Vec<u64>,
    },
    Flush {
        start: u64,
    },
    /// Of the task of this tag, or of all.
    Abort(Option<u32>),
    /// A fencer's: with this list.
    Reservation(Vec<u8>),
}

impl core::fmt::Debug for Asked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Asked::Login => f.write_str("login"),
            Asked::Logout => f.write_str("logout"),
            Asked::Nop => f.write_str("NOP"),
            Asked::Read { start, first } => write!(f, "read at {first} since {start}"),
            Asked::Search { start } => write!(f, "search since {start}"),
            Asked::Write { write, is_skewed: false, .. } => write!(f, "{write:?}"),
            Asked::Write { write, .. } => write!(f, "skewed {write:?}"),
            Asked::Swap { write, .. } => write!(f, "compare and {write:?}"),
            Asked::Copy { write, counts, .. } => write!(f, "copy of {counts:?} as {write:?}"),
            Asked::Flush { start } => write!(f, "flush since {start}"),
            Asked::Abort(Some(tag)) => write!(f, "abort of {tag}"),
            Asked::Abort(None) => f.write_str("abort"),
            Asked::Reservation(list) => write!(f, "reservation {list:02x?}"),
        }
    }
}

impl Asked {
    /// What it changes, if anything.
    pub(super) fn write(&self) -> Option<Write> {
        match self {
            Asked::Write { write, .. } | Asked::Swap { write, .. } | Asked::Copy { write, .. } => {
                Some(*write)
            }
            _ => None,
        }
    }

    /// The data that go with it.
    pub(super) fn data(&self) -> Vec<u8> {
        match self {
            Asked::Write { write, .. } => write.pattern(),
            Asked::Swap { write, expected, .. } => [&expected[..], &write.pattern()].concat(),
            Asked::Copy { list, .. } => list.clone(),
            Asked::Reservation(list) => list.clone(),
            _ => Vec::new(),
        }
    }

    /// All its data go with the command: there is no order to be out of.
    pub(super) fn note_whole(&mut self) {
        if let Asked::Write { is_skewed, .. } = self {
            *is_skewed = false;
        }
    }

    pub(super) fn is_skewed(&self) -> bool {
        matches!(self, Asked::Write { is_skewed: true, .. })
    }
}

impl RawHost {
    /// Asks one thing.
    pub(super) fn work(&mut self, world: &mut SimWorld) {
        let span = self.behaviour.span;
        let most = if self.random.chance(1, 2) { 1 } else { 4.min(span) };
        let count = 1 + self.random.below(most);
        let first = self.random.below(span - count + 1);
        if self.behaviour.copies && self.random.chance(1, 8) {
            return self.copy(world);
        }
        match self.random.below(100) {
            0..20 => self.read(world, first, count),
            20..45 => self.write(world, first, count),
            45..75 => self.compare_and_write(world, first, count),
            75..83 => {
                let order = Order::new(LUN, Cdb::synchronize_cache_10());
                self.ask(world, order, Asked::Flush { start: self.now });
            }
            83..86 => {
                let allocation = 8 + 16 * self.random.below(20) as u32;
                let order = Order::read(LUN, Cdb::get_lba_status(first, allocation), allocation);
                self.ask(world, order, Asked::Search { start: self.now });
            }
            86..91 => {
                let line = self.line.as_mut().expect("it is live");
                let length = line.random.below(600) as usize;
                let (_, bytes) = line.host.nop(&vec![0x5a; length], Asked::Nop);
                line.say(world, &bytes);
            }
            _ => self.abort(world),
        }
    }

    pub(super) fn ask(&mut self, world: &mut SimWorld, order: Order, asked: Asked) {
        self.line.as_mut().expect("it is live").ask(world, order, asked);
    }

    pub(super) fn read(&mut self, world: &mut SimWorld, first: u64, count: u64) {
        let bytes = bytes_of(self.behaviour.unit, count) as u32;
        let order = Order::read(LUN, Cdb::read_16(first, count as u32), bytes);
        self.ask(world, order, Asked::Read { start: self.now, first });
    }

    fn begin_write(&mut self, first: u64, count: u64) -> Write {
        let unit = self.behaviour.unit;
        self.writer.begin(self.now, Content::Pattern, first * unit, count * unit)
    }

    fn write(&mut self, world: &mut SimWorld, first: u64, count: u64) {
        let write = self.begin_write(first, count);
        let durable = self.random.chance(1, 4);
        let is_skewed = self.random.chance(1, 10);
        let bytes = bytes_of(self.behaviour.unit, count) as u32;
        let order = Order::write(LUN, Cdb::write_16(first, count as u32, durable), bytes);
        self.ask(world, order, Asked::Write { write, durable, is_skewed });
    }

    fn compare_and_write(&mut self, world: &mut SimWorld, first: u64, count: u64) {
        let unit = self.behaviour.unit;
        let count = count.min(u64::from(COMPARE_AND_WRITE_MAX) / bytes_of(unit, 1) as u64);
        // What is not known is looked at first: a compare with a guess would only fail.
        if !self.writer.knows(first * unit, count * unit) {
            return self.read(world, first, count);
        }
        let write = self.begin_write(first, count);
        let expected = self.writer.expectation(write.first, write.count);
        let bytes = 2 * bytes_of(unit, count) as u32;
        let order = Order::write(LUN, Cdb::compare_and_write(first, count as u8, false), bytes);
        self.ask(world, order, Asked::Swap { start: self.now, write, expected });
    }

    /// Aborts a task, or all of them.
    fn abort(&mut self, world: &mut SimWorld) {
        let line = self.line.as_mut().expect("it is live");
        let commands = line.host.asked.iter().filter(|(_, asked)| asked.order().is_some());
        let under_way: Vec<u32> = commands.map(|(tag, _)| *tag).collect();
        if under_way.is_empty() {
            return;
        }
        let task = under_way[self.random.below(under_way.len() as u64) as usize];
        let (function, task) = match self.random.chance(1, 8) {
            true => (TaskFunction::ABORT_TASK_SET, None),
            false => (TaskFunction::ABORT_TASK, Some(task)),
        };
        let (_, bytes) = line.host.manage(function, Lun::of(LUN).0, task, Asked::Abort(task));
        line.say(world, &bytes);
    }

    /// Nothing was heard for a while of what is under way: another host may have ended it.
    pub(super) fn abort_all(&mut self, world: &mut SimWorld) {
        let line = self.line.as_mut().expect("it is live");
        let asked = |tag: &u32| {
            line.host
                .asked
                .values()
                .any(|other| matches!(other.what, Asked::Abort(Some(task)) if task == *tag))
        };
        let commands = line.host.asked.iter().filter(|(_, asked)| asked.order().is_some());
        let tasks: Vec<u32> = commands.map(|(tag, _)| *tag).filter(|tag| !asked(tag)).collect();
        for task in tasks {
            let (function, lun) = (TaskFunction::ABORT_TASK, Lun::of(LUN).0);
            let (_, bytes) = line.host.manage(function, lun, Some(task), Asked::Abort(Some(task)));
            line.say(world, &bytes);
        }
    }

    /// The target does not know a task that it never answered.
    fn vanished(&mut self, tag: u32) {
        let line = self.line.as_mut().expect("it is heard on a line");
        let ends_many = line.host.asked.values().any(|one| matches!(one.what, Asked::Abort(None)));
        if ends_many {
            return;
        }
        if let Some(asked) = line.host.asked.remove(&tag) {
            self.actions.vanished += 1;
            self.writer.log.push(Log::Vanished { at: self.now });
            self.over(&asked.what);
        }
    }

    /// A request was answered; `bytes` are the data of a read.
    pub(super) fn answered(
        &mut self,
        asked: Asked,
        said: &Said,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        match asked {
            Asked::Abort(Some(tag)) if said.management() == TaskResponse::NO_SUCH_TASK => {
                self.vanished(tag);
            }
            Asked::Login | Asked::Logout | Asked::Nop | Asked::Abort(_) => {}
            Asked::Reservation(_) => unreachable!("a fencer's"),
            Asked::Read { start, first } => {
                if self.is_done(said, "a read", Some(start))? {
                    let first = first * self.behaviour.unit;
                    self.writer.remember(first, &bytes);
                    self.writer.log.push(Log::Read { start, end: self.now, first, bytes });
                }
            }
            Asked::Search { start } => {
                if self.is_done(said, "a search", Some(start))? {
                    let list = LbaStatusList::parse(&bytes).map_err(|why| why.to_string())?;
                    list.0.iter().for_each(|run| self.searched(start, run));
                }
            }
            Asked::Write { write, durable, is_skewed } => {
                let is_done = self.is_done(said, "a write", None)?;
                if is_skewed && is_done {
                    return Err(format!("data out of their order were written: {write:?}"));
                }
                self.actions.skewed += u64::from(is_skewed && !is_done);
                if is_done {
                    self.writer.remember(write.first, &write.pattern());
                    self.writer.end(self.now, write, true, durable);
                } else {
                    self.not_done(write, said);
                }
            }
            Asked::Swap { start, write, expected } => {
                if self.is_done(said, "a compare-and-write", None)? {
                    self.actions.swaps += 1;
                    self.writer.remember(write.first, &write.pattern());
                    self.writer.log.push(Log::Swapped { start, end: self.now, write, expected });
                    self.writer.end(self.now, write, true, false);
                } else {
                    self.actions.miscompares += u64::from(key(said) == Some(SenseKey::MISCOMPARE));
                    self.not_done(write, said);
                }
            }
            Asked::Copy { write, counts, .. } => {
                let is_done = self.is_done(said, "a copy", None)?;
                self.copied(write, &counts, is_done, said)?;
            }
            Asked::Flush { start } => {
                if self.is_done(said, "a flush", Some(start))? {
                    self.writer.log.push(Log::Flushed { start, by: Ids::NONE });
                }
            }
        }
        Ok(())
    }

    /// A part of a run that has no space below is as good as a read of zeros.
    fn searched(&mut self, start: u64, run: &LbaStatus) {
        if run.status != ProvisioningStatus::DEALLOCATED {
            return;
        }
        self.actions.holes += 1;
        let (unit, span) = (self.behaviour.unit, self.behaviour.span);
        let blocks = u64::from(run.blocks).min(span.saturating_sub(run.lba));
        if blocks > 0 {
            let bytes = vec![0; bytes_of(unit, blocks)];
            let first = run.lba * unit;
            self.writer.log.push(Log::Read { start, end: self.now, first, bytes });
        }
    }

    /// A write that was answered otherwise than GOOD: where the answer says that it was not even
    /// begun, it never happens.
    pub(super) fn not_done(&mut self, write: Write, said: &Said) {
        if said.status() == ScsiStatus::RESERVATION_CONFLICT {
            self.writer.forget(&write);
            return self.writer.refused(self.now, write);
        }
        let code = sense_code(said);
        let was_not_begun = said.status() == ScsiStatus::TASK_SET_FULL
            || key(said) == Some(SenseKey::UNIT_ATTENTION)
            || key(said) == Some(SenseKey::MISCOMPARE)
            || code == Some(AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
        if was_not_begun {
            self.writer.forget(&write);
            self.writer.never(write);
        } else {
            self.writer.end(self.now, write, false, false);
        }
    }

    /// Whether something is done. An answer must have been provoked when nothing else goes wrong; of
    /// a conflict the run says whether it was. `start` is that of what is no write.
    fn is_done(&mut self, said: &Said, what: &str, start: Option<u64>) -> Result<bool, String> {
        if said.status() == ScsiStatus::GOOD {
            return Ok(true);
        }
        if said.status() == ScsiStatus::RESERVATION_CONFLICT {
            let changes = what == "a flush";
            let end = self.now;
            let refused = |start| Log::Refused { start, end, changes, is_after: false };
            let refused = start.map(refused);
            self.writer.log.extend(refused);
            return Ok(false);
        }
        if let Some(code) = sense_code(said).filter(|code| is_of_reservations(*code)) {
            self.writer.log.push(Log::Told { at: self.now, code });
            return Ok(false);
        }
        // A compare that fails, no memory for a part of the data, and data out of their order.
        let is_provoked = said.status() == ScsiStatus::TASK_SET_FULL
            || key(said) == Some(SenseKey::MISCOMPARE)
            || is_hindered(said)
            || sense_code(said) == Some(AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
        if self.behaviour.strict && !is_provoked {
            return Err(format!("{what} was answered with {said:?} and nothing was wrong"));
        }
        Ok(false)
    }
}

/// Whether it tells of what became of a registration or reservation.
pub(in super::super) fn is_of_reservations(code: AdditionalSense) -> bool {
    [
        AdditionalSense::RESERVATIONS_PREEMPTED,
        AdditionalSense::RESERVATIONS_RELEASED,
        AdditionalSense::REGISTRATIONS_PREEMPTED,
    ]
    .contains(&code)
}

/// Whether a copy ended since its host may not read or write there any more: the run says whether that
/// is so.
pub(super) fn is_hindered(said: &Said) -> bool {
    key(said) == Some(SenseKey::COPY_ABORTED)
        && sense_code(said) == Some(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
}

pub(super) fn key(said: &Said) -> Option<SenseKey> {
    (said.status() == ScsiStatus::CHECK_CONDITION).then(|| said.sense().key)
}

fn sense_code(said: &Said) -> Option<AdditionalSense> {
    (said.status() == ScsiStatus::CHECK_CONDITION).then(|| said.sense().code)
}
