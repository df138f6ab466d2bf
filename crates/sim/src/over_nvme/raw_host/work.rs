//! What a raw host asks on its I/O queues, and what it makes of the answers.

use nvme::limits::COMPARE_AND_WRITE_MAX;
use testkit::oracle::Content;
use wire::nvme::command::Fuse;
use wire::nvme::{Command, Completion, Status};

use super::{QUEUE_ENTRIES, RawHost, Step, bytes_of};
use crate::client::SimWorld;
use crate::writer::{Ids, Log, Write};

use super::line::Line;

/// The namespace.
pub(in super::super) const NSID: u32 = 1;
/// Data of a command that may lie in its capsule.
const IN_CAPSULE_MAX: usize = 8192;

/// A command that is not answered. `first` and `count` are logical blocks.
pub(in super::super) enum Asked {
    Step(Step),
    /// Who the namespace is.
    Identify {
        bytes: Vec<u8>,
    },
    Read {
        start: u64,
        first: u64,
        bytes: Vec<u8>,
    },
    /// `over`: the target said that it aborted it.
    Write {
        write: Write,
        data: Vec<u8>,
        durable: bool,
        over: bool,
    },
    /// `list` has its source ranges, of so many blocks of the oracle each.
    Copy {
        write: Write,
        list: Vec<u8>,
        counts: Vec<u64>,
        durable: bool,
        over: bool,
    },
    /// Half of a fused pair.
    Pair {
        number: u64,
        second: bool,
    },
    /// The first of a pair that has no second.
    Single,
    Flush {
        start: u64,
    },
    /// On the admin queue: of that command of that line.
    Abort {
        line: usize,
        id: u16,
    },
    /// A fencer's: a change, with these data.
    Change {
        data: Vec<u8>,
    },
    /// A watcher's: a page of the discovery log. A fencer's: what it looks at.
    Page {
        start: u64,
        bytes: Vec<u8>,
    },
    /// A watcher's: an event.
    Event,
    /// Keep Alive.
    Alive,
    /// A watcher's: Keep Alive with the CID of an event request, whose answer may be on its way.
    AliveOver,
}

impl core::fmt::Debug for Asked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Asked::Step(step) => write!(f, "{step:?}"),
            Asked::Identify { .. } => f.write_str("Identify"),
            Asked::Read { start, first, .. } => write!(f, "read at {first} since {start}"),
            Asked::Write { write, .. } => write!(f, "{write:?}"),
            Asked::Copy { write, counts, .. } => write!(f, "copy of {counts:?} as {write:?}"),
            Asked::Pair { number, second: false } => write!(f, "compare of pair {number}"),
            Asked::Pair { number, second: true } => write!(f, "write of pair {number}"),
            Asked::Single => f.write_str("half a pair"),
            Asked::Flush { start } => write!(f, "flush since {start}"),
            Asked::Abort { line, id } => write!(f, "abort of {id} on queue {line}"),
            Asked::Page { start, .. } => write!(f, "a page since {start}"),
            Asked::Change { .. } => f.write_str("a change"),
            Asked::Event => f.write_str("an event"),
            Asked::Alive => f.write_str("Keep Alive"),
            Asked::AliveOver => f.write_str("Keep Alive in place of an event"),
        }
    }
}

/// A compare-and-write.
#[derive(Debug)]
pub(in super::super) struct Pair {
    start: u64,
    write: Write,
    pub(super) expected: Vec<u8>,
    pub(super) data: Vec<u8>,
    statuses: [Option<Status>; 2],
    /// The data of one alone are in its capsule: without memory at hand it is interrupted.
    mixed: bool,
    over: bool,
}

impl Pair {
    /// What it changes, if it was not said to be aborted.
    pub(super) fn write(&self) -> Option<Write> {
        (!self.over).then_some(self.write)
    }
}

impl RawHost {
    /// Asks one thing.
    pub(super) fn work(&mut self, world: &mut SimWorld) {
        let mut at = 1 + self.random.below(self.lines.len() as u64 - 1) as usize;
        if self.behaviour.greedy {
            // The fullest that takes two commands; else the last entry of one.
            let room = |line: &Line| QUEUE_ENTRIES - line.host.asked.len();
            let lines = || (1..self.lines.len()).map(|at| (room(&self.lines[at]), at));
            let Some((room, found)) = lines().filter(|(room, _)| *room > 0).min() else { return };
            at = found;
            if room < 2 {
                self.actions.fulls += 1;
                return self.write(world, at, 0, 1);
            }
        }
        let span = self.behaviour.span;
        let most = if self.random.chance(1, 2) { 1 } else { 4.min(span) };
        let count = 1 + self.random.below(most);
        let first = self.random.below(span - count + 1);
        if self.behaviour.copies && self.random.chance(1, 8) {
            return self.copy(world, at);
        }
        match self.random.below(100) {
            0..15 => self.read(world, at, first, count),
            15..40 => self.write(world, at, first, count),
            40..85 => {
                // What the target's NACWU allows.
                let most =
                    u64::from(COMPARE_AND_WRITE_MAX) / bytes_of(self.behaviour.unit, 1) as u64;
                let count = count.min(most);
                // What is not known is looked at first: a compare with a guess would only fail.
                let unit = self.behaviour.unit;
                if self.writer.knows(first * unit, count * unit) {
                    self.compare_and_write(world, at, first, count);
                } else {
                    self.read(world, at, first, count);
                }
            }
            85..92 => {
                let asked = Asked::Flush { start: self.now };
                self.lines[at].ask(world, Command::flush(NSID), &[], asked);
            }
            92..94 => {
                // A first without second: the next command on the queue tells.
                let bytes = bytes_of(self.behaviour.unit, 1);
                let compare = Command::compare(NSID, first, 1, bytes as u32).with_fuse(Fuse::FIRST);
                let data = vec![0x11; bytes];
                self.lines[at].ask(world, compare, &data, Asked::Single);
                let asked = Asked::Flush { start: self.now };
                self.lines[at].ask(world, Command::flush(NSID), &[], asked);
            }
            _ => self.abort(world),
        }
    }

    pub(super) fn read(&mut self, world: &mut SimWorld, at: usize, first: u64, count: u64) {
        let bytes = vec![0; bytes_of(self.behaviour.unit, count)];
        let command = Command::read(NSID, first, count as u32, bytes.len() as u32);
        let asked = Asked::Read { start: self.now, first, bytes };
        self.lines[at].ask(world, command, &[], asked);
    }

    fn begin_write(&mut self, first: u64, count: u64) -> (Write, Vec<u8>) {
        let unit = self.behaviour.unit;
        let write = self.writer.begin(self.now, Content::Pattern, first * unit, count * unit);
        (write, write.pattern())
    }

    /// What of a command's data lies in its capsule: all, or none, which is to be asked for.
    pub(super) fn inside(&mut self, data: &[u8]) -> Vec<u8> {
        let in_capsule = data.len() <= IN_CAPSULE_MAX && self.random.chance(1, 2);
        if in_capsule { data.to_vec() } else { Vec::new() }
    }

    fn write(&mut self, world: &mut SimWorld, at: usize, first: u64, count: u64) {
        let (write, data) = self.begin_write(first, count);
        let durable = self.random.chance(1, 4);
        let command = Command::write(NSID, first, count as u32, data.len() as u32);
        let command = command.with_force_unit_access(durable);
        let with = self.inside(&data);
        let asked = Asked::Write { write, data, durable, over: false };
        self.lines[at].ask(world, command, &with, asked);
    }

    fn compare_and_write(&mut self, world: &mut SimWorld, at: usize, first: u64, count: u64) {
        let (write, data) = self.begin_write(first, count);
        let expected = self.writer.expectation(write.first, write.count);
        let (blocks, bytes) = (count as u32, data.len() as u32);
        let compare = Command::compare(NSID, first, blocks, bytes).with_fuse(Fuse::FIRST);
        let second = Command::write(NSID, first, blocks, bytes).with_fuse(Fuse::SECOND);
        let (first_data, second_data) = (self.inside(&expected), self.inside(&data));
        let number = self.next_pair;
        self.next_pair += 1;
        let statuses = [None; 2];
        let mixed = first_data.is_empty() != second_data.is_empty();
        let pair = Pair { start: self.now, write, expected, data, statuses, mixed, over: false };
        self.pairs.insert(number, pair);
        let line = &mut self.lines[at];
        line.ask(world, compare, &first_data, Asked::Pair { number, second: false });
        line.ask(world, second, &second_data, Asked::Pair { number, second: true });
    }

    fn abort(&mut self, world: &mut SimWorld) {
        let under_way: Vec<(usize, u16)> = self
            .lines
            .iter()
            .enumerate()
            .skip(1)
            .flat_map(|(at, line)| line.host.asked.keys().map(move |id| (at, *id)))
            .collect();
        if under_way.is_empty() {
            return;
        }
        let (line, id) = under_way[self.random.below(under_way.len() as u64) as usize];
        let command = Command::abort(line as u16, id);
        let asked = Asked::Abort { line, id };
        self.lines[0].ask(world, command, &[], asked);
    }

    /// A command was answered.
    pub(super) fn answered(&mut self, asked: Asked, entry: &Completion) -> Result<(), String> {
        let status = entry.status;
        let done = status.is_success();
        match asked {
            Asked::Step(_) | Asked::Identify { .. } => {
                unreachable!("steps are answered elsewhere")
            }
            Asked::Page { .. } | Asked::Event | Asked::Alive | Asked::AliveOver => {
                unreachable!("a watcher's")
            }
            Asked::Change { .. } => unreachable!("a fencer's"),
            Asked::Read { .. } | Asked::Flush { .. } if is_preempted(status) => self.preempted(),
            Asked::Read { start, .. } if is_conflict(status) => self.refused(start, false),
            Asked::Read { start, first, bytes } => {
                self.expect(status, "a read")?;
                if !done {
                    return Ok(());
                }
                let first = first * self.behaviour.unit;
                self.writer.remember(first, &bytes);
                self.writer.log.push(Log::Read { start, end: self.now, first, bytes });
            }
            Asked::Write { write, data, durable, over } => {
                if over {
                    return aborted(status, "a write");
                }
                if is_conflict(status) {
                    self.writer.refused(self.now, write);
                    return Ok(());
                }
                if is_preempted(status) {
                    self.preempted();
                    self.writer.never(write);
                    return Ok(());
                }
                self.expect(status, "a write")?;
                if done {
                    self.writer.remember(write.first, &data);
                }
                self.writer.end(self.now, write, done, durable);
            }
            Asked::Copy { write, counts, durable, over, .. } => {
                if over {
                    return aborted(status, "a copy");
                }
                match status {
                    _ if is_conflict(status) => self.writer.hindered(self.now, write),
                    _ if is_preempted(status) => self.preempted(),
                    _ => self.expect(status, "a copy")?,
                }
                self.copied(write, &counts, durable, entry)?;
            }
            Asked::Flush { start } if is_conflict(status) => self.refused(start, true),
            Asked::Flush { start } => {
                self.expect(status, "a flush")?;
                if done {
                    self.writer.log.push(Log::Flushed { start, by: Ids::NONE });
                }
            }
            Asked::Single => {
                if done {
                    return Err("half of a fused pair succeeded".to_owned());
                }
            }
            Asked::Pair { number, second } => {
                let pair = self.pairs.get_mut(&number).expect("a pair stays until it is judged");
                pair.statuses[usize::from(second)] = Some(status);
                if let [Some(compare), Some(write)] = pair.statuses {
                    let pair = self.pairs.remove(&number).expect("just seen");
                    return self.judge(pair, compare, write);
                }
            }
            Asked::Abort { line, id } => {
                self.expect(status, "an abort")?;
                if done && entry.result32() & 1 == 0 {
                    self.actions.aborts += 1;
                    self.note_aborted(line, id);
                }
            }
        }
        Ok(())
    }

    /// An abort succeeded: the command is dead, though its answer may be on its way.
    fn note_aborted(&mut self, line: usize, command: u16) {
        let asked = self.lines.get_mut(line).and_then(|line| line.host.asked.get_mut(&command));
        let write = match asked.map(|asked| &mut asked.what) {
            Some(Asked::Write { write, over, .. } | Asked::Copy { write, over, .. }) => {
                *over = true;
                *write
            }
            Some(Asked::Pair { number, .. }) => {
                let pair = self.pairs.get_mut(number).expect("a pair stays until it is judged");
                if core::mem::replace(&mut pair.over, true) {
                    return;
                }
                pair.write
            }
            _ => return,
        };
        self.writer.end(self.now, write, false, false);
    }

    /// Both halves of a pair were answered.
    fn judge(&mut self, pair: Pair, first: Status, second: Status) -> Result<(), String> {
        let Pair { start, write, expected, data, mixed, over, .. } = pair;
        if over {
            aborted(first, "a compare")?;
            return aborted(second, "a fused write");
        }
        if first.is_success() && second.is_success() {
            self.actions.swaps += 1;
            self.writer.remember(write.first, &data);
            self.writer.log.push(Log::Swapped { start, end: self.now, write, expected });
            self.writer.end(self.now, write, true, false);
            return Ok(());
        }
        if second.is_success() {
            return Err(format!("a fused write was done although its compare ended {first}"));
        }
        if first.code() == Status::COMPARE_FAILURE.code() {
            self.actions.miscompares += 1;
            self.writer.forget(&write);
            self.writer.never(write);
            return Ok(());
        }
        if is_conflict(first) || is_conflict(second) {
            self.writer.refused(self.now, write);
            return Ok(());
        }
        if is_preempted(first) || is_preempted(second) {
            self.preempted();
            self.writer.never(write);
            return Ok(());
        }
        self.expect(first, "a compare")?;
        if !(mixed && second == Status::COMMAND_INTERRUPTED) {
            self.expect(second, "a fused write")?;
        }
        self.writer.end(self.now, write, false, false);
        Ok(())
    }

    /// Others hold the volume.
    fn refused(&mut self, start: u64, changes: bool) {
        let end = self.now;
        self.writer.log.push(Log::Refused { start, end, changes, is_after: false });
    }

    /// Somebody preempted its commands: the run says whether that is so.
    fn preempted(&mut self) {
        self.actions.preempted += 1;
        self.writer.log.push(Log::Vanished { at: self.now });
    }

    /// A status must be provoked when nothing else goes wrong: success, or the end of what was
    /// aborted or reset.
    fn expect(&self, status: Status, what: &str) -> Result<(), String> {
        let provoked = [
            Status::SUCCESS,
            Status::ABORT_REQUESTED,
            Status::SQ_DELETED,
            Status::FUSED_FAILED,
            Status::COMMAND_SEQUENCE_ERROR,
        ];
        let is_provoked = provoked.iter().any(|known| known.code() == status.code());
        if self.behaviour.strict && !is_provoked {
            return Err(format!("{what} was answered with {status} and nothing was wrong"));
        }
        Ok(())
    }

    /// Nobody waits any more for what is asked on a line: nothing of it happens after `end`.
    pub(super) fn abandon(&mut self, line: &mut Line, end: u64) {
        for asked in line.give_up() {
            let write = match asked {
                Asked::Write { write, over: false, .. }
                | Asked::Copy { write, over: false, .. } => write,
                Asked::Pair { number, .. } => match self.pairs.remove(&number) {
                    Some(Pair { write, over: false, .. }) => write,
                    _ => continue,
                },
                _ => continue,
            };
            self.writer.end(end, write, false, false);
        }
    }
}

fn is_conflict(status: Status) -> bool {
    status.code() == Status::RESERVATION_CONFLICT.code()
}

fn is_preempted(status: Status) -> bool {
    status.code() == Status::PREEMPTED.code()
}

/// What was said to be aborted must say so itself.
fn aborted(status: Status, what: &str) -> Result<(), String> {
    if status.is_success() {
        return Err(format!("{what} was said to be aborted, and succeeded"));
    }
    Ok(())
}
