//! What leaves: queries, IDENTIFY, commands and their copies.

use core::time::Duration;

use block::{ByteCount, Extent, Failure, Instant, Outcome, planted};
use contract::{LinkFacts, LinkId, Station};
use remote::{JobKind, PayloadPlace, backoff};
use wire::aoe::{
    Address, AtaArgument, Command as AoeCommand, ConfigArgument, ConfigCommand, Header, SECTOR,
    sectors_for_mtu,
};
use wire::ata::Opcode;
use wire::ethernet::EtherType;

use super::commands::{Command, Progress};
use super::paths::PathState;
use super::{Initiator, Path, Port};
use crate::head::Head;
use crate::limits::{QUERY_REST_FIRST, QUERY_REST_MAX, TIMEOUTS_SUSPECT};

/// What stands where other commands have their sector: of it a target shows whether it repeats
/// that.
pub(super) const IDENTIFY_LBA: [u8; 6] = [0, 0, 0, 0xa0, 0, 0];

/// A query for the config string of an address.
pub(super) fn query(address: Address, tag: u32) -> Vec<u8> {
    let header = Header::request(address, AoeCommand::CONFIG, tag);
    [&header.emit()[..], &ConfigArgument::request(ConfigCommand::READ, 0).emit()].concat()
}

impl Initiator {
    fn facts_of(&self, link: LinkId) -> Option<LinkFacts> {
        let port = self.ports.iter().find(|port| port.id == link)?;
        Some(port.up.as_ref()?.facts)
    }

    /// Whether a link is up and has no path that is used.
    fn is_wanting(&self, port: &Port) -> bool {
        let live = |path: &Path| path.link == port.id && path.state == PathState::Live;
        port.up.is_some() && !self.paths.iter().any(live)
    }

    /// When something is to be asked, if at all.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        if self.is_closing() && self.in_flight() == 0 {
            return None;
        }
        let wanting = self.ports.iter().filter(|port| self.is_wanting(port));
        let ports = wanting.filter_map(|port| Some(port.up.as_ref()?.ask_at));
        let paths = self.paths.iter().filter_map(|path| match path.state {
            PathState::Asking { again_at, .. } => self.facts_of(path.link).and(Some(again_at)),
            _ => None,
        });
        ports.chain(paths).min()
    }

    /// Asks for the target where it is wanting, and who they are those who answered.
    #[cold]
    pub(super) fn ask(&mut self, now: Instant) {
        if self.ask_at().is_none_or(|at| at > now) {
            return;
        }
        for index in 0..self.ports.len() {
            if !self.is_wanting(&self.ports[index]) {
                continue;
            }
            let Port { id, up: Some(up) } = &mut self.ports[index] else { continue };
            if up.ask_at <= now {
                let tag = self.commands.next_tag();
                let (to, query) = (Station::all(*id), query(self.settings.address, tag));
                self.outbox.gathering().push(&up.facts, &to, EtherType::AOE, &query);
                up.ask_at = now + backoff(QUERY_REST_FIRST, up.asked, QUERY_REST_MAX);
                up.asked += 1;
            }
        }
        for index in 0..self.paths.len() {
            let Path { link, mac, state, .. } = self.paths[index];
            let PathState::Asking { again_at, told, .. } = state else { continue };
            let Some(facts) = self.facts_of(link).filter(|_| again_at <= now) else { continue };
            let to = Station::new(link, mac);
            if !told {
                let tag = self.commands.next_tag();
                let query = query(self.settings.address, tag);
                self.outbox.gathering().push(&facts, &to, EtherType::AOE, &query);
            }
            let tag = self.commands.next_tag();
            let header = Header::request(self.settings.address, AoeCommand::ATA, tag);
            let mut argument = AtaArgument::request(Opcode::IDENTIFY_DEVICE, 0, 1, false);
            argument.lba = IDENTIFY_LBA;
            let head = Head::new(&header).with_ata(&argument);
            self.outbox.gathering().push(&facts, &to, EtherType::AOE, head.bytes());
            self.paths[index].state.asked_now(now, tag);
        }
    }

    /// Commands that may be under way.
    fn limit(&self) -> usize {
        let told = self.paths.iter().filter(|path| path.state == PathState::Live);
        let told = told.map(|path| path.buffers).min().unwrap_or(1);
        let share = (told / self.settings.sharers.max(1)).max(1);
        usize::from(self.settings.window.min(share))
    }

    /// Sends copies of what was lost, then new commands, as far as paths have room.
    #[inline]
    pub(super) fn send(&mut self, now: Instant) {
        if !self.resend.is_empty() {
            self.send_again(now);
        }
        let limit = self.limit();
        // Jobs whose payloads are out with a batch: they go on when it is back.
        let mut stuck: Vec<u32> = Vec::new();
        while self.commands.len() < limit && !self.outbox.is_full() {
            let Some(path) = self.best_path() else { break };
            let Some(index) = self.active.front().copied().or_else(|| self.activate()) else {
                break;
            };
            let job = &mut self.disk[index];
            if job.wire.has_failed() {
                // It has failed: what is under way is awaited, and nothing more is asked.
                self.active.pop_front();
                continue;
            }
            if !job.place.is_within_reach(self.batch) {
                self.active.pop_front();
                stuck.push(index);
                continue;
            }
            let (length, progress) = (job.extent.length.0, &mut job.wire);
            let at = progress.cut;
            let sectors_left = (length - at) / SECTOR as u64;
            let count = sectors_left.min(self.paths[path].sectors.into()) as u8;
            progress.cut += u64::from(count) * SECTOR as u64;
            progress.unanswered += 1;
            // Behind the last part of a durable change, or alone: a flush.
            progress.flushed |= count == 0;
            if progress.cut >= length {
                self.active.pop_front();
            }
            let command = Command { job: index, at, count, ..Command::default() };
            let tag = self.commands.insert(command);
            self.transmit(tag, path as u32, now);
        }
        for index in stuck.into_iter().rev() {
            self.active.push_front(index);
        }
    }

    /// The path with the most room, if any has some.
    #[inline]
    fn best_path(&self) -> Option<usize> {
        let with_room = self.paths.iter().enumerate().filter(|(_, path)| path.room() > 0);
        with_room.max_by_key(|(_, path)| path.room()).map(|(index, _)| index)
    }

    /// Begins the next job that may be; `None` if there is none.
    #[inline]
    fn activate(&mut self) -> Option<u32> {
        let device = self.device.as_ref()?;
        let (size, volatile) = (device.sectors.saturating_mul(SECTOR as u64), device.write_cache);
        while let Some(index) = self.disk.front() {
            let job = self.disk.start();
            let Extent { offset, length } = job.extent;
            let in_range = job.extent.fits(ByteCount(size))
                && offset.0.is_multiple_of(SECTOR as u64)
                && length.0.is_multiple_of(SECTOR as u64)
                && length.0 > 0;
            match job.kind {
                JobKind::Flush if !volatile || planted("remote-cache-is-not-flushed") => {
                    self.disk.finish(index, Outcome::Done)
                }
                JobKind::Flush => return Some(self.begin(index)),
                _ if in_range => return Some(self.begin(index)),
                _ => self.disk.finish(index, Outcome::NotDone(Failure::OutOfRange)),
            }
        }
        None
    }

    /// Commands of this job are made next.
    #[inline]
    fn begin(&mut self, index: u32) -> u32 {
        let job = &mut self.disk[index];
        job.wire = Progress { restarts: self.restarts, ..Progress::default() };
        if job.kind.changes() {
            self.disk.claim(index);
        }
        self.active.push_back(index);
        index
    }

    /// Sends copies of commands that count as lost.
    #[cold]
    fn send_again(&mut self, now: Instant) {
        let mut left = self.resend.len();
        while left > 0 {
            left -= 1;
            let Some(tag) = self.resend.pop_front() else { return };
            let stray = self.settings.stray;
            let Some(command) = self.commands.get_mut(tag).filter(|command| !command.counted)
            else {
                continue;
            };
            let (old, sent, count) = (command.path as usize, command.sent, command.count);
            let job = &self.disk[command.job];
            if job.wire.held {
                continue;
            }
            // By another path, or cut, the target cannot know it as a copy: the first must be dead.
            let may_live =
                job.kind.changes() && now < sent + stray && !planted("other-path-at-once");
            let is_lent = !job.place.is_within_reach(self.batch);
            let path = match self.paths[old].state {
                PathState::Live => old,
                _ => {
                    let live = self.paths.iter().position(|path| path.state == PathState::Live);
                    let Some(live) = live else { continue };
                    if may_live {
                        self.watch(tag, sent + stray);
                        continue;
                    }
                    live
                }
            };
            if is_lent || self.paths[path].room() == 0 || self.outbox.is_full() {
                self.resend.push_back(tag);
                continue;
            }
            if self.paths[path].sectors < count {
                if may_live {
                    self.watch(tag, sent + stray);
                } else {
                    left += self.split(tag, path, now);
                }
                continue;
            }
            self.transmit(tag, path as u32, now);
        }
    }

    /// A command is too large for the path that is left: it becomes several, under tags of their
    /// own, at the end of those that are to be sent. Of a change, all copies are dead. Returns how
    /// many they are.
    #[cold]
    fn split(&mut self, tag: u32, path: usize, now: Instant) -> usize {
        let sectors = self.paths[path].sectors.max(1);
        let Some(whole) = self.commands.get_mut(tag).copied() else { return 0 };
        if !self.commands.has_room(usize::from(whole.count.div_ceil(sectors))) {
            self.watch(tag, now + Duration::from_millis(10));
            return 0;
        }
        self.commands.remove(tag);
        self.disk[whole.job].wire.unanswered -= 1;
        let mut done = 0;
        while done < whole.count {
            let count = sectors.min(whole.count - done);
            let at = whole.at + u64::from(done) * SECTOR as u64;
            let piece = Command { at, count, path: path as u32, copies: 0, sent: now, ..whole };
            let tag = self.commands.insert(piece);
            self.disk[whole.job].wire.unanswered += 1;
            self.resend.push_back(tag);
            done += count;
        }
        usize::from(whole.count.div_ceil(sectors))
    }

    /// Looks at a command again then.
    fn watch(&mut self, tag: u32, due: Instant) {
        if let Some(command) = self.commands.get_mut(tag) {
            command.due = Some(due);
            self.due_at = Instant::earliest(self.due_at, Some(due));
        }
    }

    /// Puts a command into the batch that is gathered.
    #[inline]
    fn transmit(&mut self, tag: u32, path: u32, now: Instant) {
        // Field by field: a copy of all of it would wait for the command to be written.
        let command = self.commands.get(tag).expect("a command that is sent is filed");
        let Command { job: index, at, count, copies, .. } = *command;
        let argument = self.registers(command);
        let is_write = argument.flags.is_write();
        let length = usize::from(count) * SECTOR;
        let used = &mut self.paths[path as usize];
        let due = now + used.timeout(is_write, copies);
        used.in_flight += 1;
        let to = Station::new(used.link, used.mac);
        let header = Header::request(self.settings.address, AoeCommand::ATA, tag);
        let facts = self.facts_of(to.link).expect("the link of a path that is used is up");
        let head = Head::new(&header).with_ata(&argument);
        let (head, batch) = (head.bytes(), self.outbox.gathering());
        let job = &mut self.disk[index];
        if is_write && job.kind == JobKind::Write {
            let place = match job.place {
                PayloadPlace::Batch { place, .. } => place,
                _ => {
                    let buffer = core::mem::take(&mut job.buffer);
                    let place = batch.push_buffer(buffer, index);
                    job.place = PayloadPlace::Batch { number: self.batch, place };
                    place
                }
            };
            let data = (place, at as u32, length as u32);
            batch.push_with_data(&facts, &to, EtherType::AOE, head, data);
        } else {
            let zeros = if is_write { length } else { 0 };
            batch.push_zeros(&facts, &to, EtherType::AOE, head, zeros);
        }
        self.counters.sent += 1;
        self.counters.retransmitted += u64::from(copies > 0);
        let command = self.commands.get_mut(tag).expect("it was there");
        (command.path, command.counted, command.sent) = (path, true, now);
        (command.copies, command.due) = (copies + 1, Some(due));
        self.due_at = Instant::earliest(self.due_at, Some(due));
    }

    /// What asks for a command's sectors.
    #[inline]
    pub(super) fn registers(&self, command: &Command) -> AtaArgument {
        let device = self.device.as_ref().expect("commands are made for a known device");
        if command.count == 0 {
            let opcode = match device.flush_ext {
                true => Opcode::FLUSH_CACHE_EXT,
                false => Opcode::FLUSH_CACHE,
            };
            return AtaArgument::request(opcode, 0, 0, false);
        }
        let job = &self.disk[command.job];
        let lba = (job.extent.offset.0 + command.at) / SECTOR as u64;
        let is_write = job.kind.changes();
        let opcode = match (is_write, device.lba48) {
            (true, true) => Opcode::WRITE_SECTORS_EXT,
            (true, false) => Opcode::WRITE_SECTORS,
            (false, true) => Opcode::READ_SECTORS_EXT,
            (false, false) => Opcode::READ_SECTORS,
        };
        AtaArgument::request(opcode, lba, command.count, is_write)
    }

    /// Commands that were not answered in time are to be sent again, and paths that do not answer
    /// are asked who they are.
    #[cold]
    pub(super) fn note_lost(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        for command in self.commands.iter_mut() {
            let Some(due) = command.due else { continue };
            if due > now {
                next = Instant::earliest(next, Some(due));
                continue;
            }
            command.due = None;
            if core::mem::take(&mut command.counted) {
                let path = &mut self.paths[command.path as usize];
                path.in_flight -= 1;
                path.timed_out(now, command.sent);
            }
            self.resend.push_back(command.tag);
        }
        self.due_at = next;
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            if path.state == PathState::Live && path.timeouts >= TIMEOUTS_SUSPECT {
                let why = format!("{} on {} does not answer", path.mac, path.link);
                self.disk.presence.fault = why;
                path.ask(now);
                self.recall(index as u32);
                self.doubt_cache();
            }
        }
        self.note_life();
    }

    /// Nothing counts as under way on a path any more: it is sent again when there is a path to do
    /// so.
    pub(super) fn recall(&mut self, index: u32) {
        for command in self.commands.iter_mut().filter(|command| command.path == index) {
            command.due = None;
            command.counted = false;
            self.resend.push_back(command.tag);
        }
        self.paths[index as usize].in_flight = 0;
    }

    /// The sectors of a frame to a target on a link: what it told, and what our side carries.
    pub(super) fn sectors_of(&self, link: LinkId, told: u8) -> u8 {
        let told = if told == 0 { 2 } else { told };
        self.facts_of(link).map_or(0, |facts| told.min(sectors_for_mtu(facts.mtu)))
    }
}
