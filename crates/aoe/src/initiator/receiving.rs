//! What comes: answers to queries, to IDENTIFY and to commands, once, twice, late, or never asked
//! for.

use block::{Extent, Failure, Instant, Memory, Outcome, planted};
use contract::OpenedFrame;
use remote::JobKind;
use wire::aoe::{AtaArgument, Command as AoeCommand, ConfigArgument, ErrorCode, SECTOR, VERSION};
use wire::ata::{ErrorBits, IdentifyDevice, Status};

use super::commands::Command;
use super::paths::{Echo, Path, PathState};
use super::sending::IDENTIFY_LBA;
use super::{Initiator, InitiatorNews, facts};
use crate::limits::{PATHS_MAX, REFUSALS_REST};
use crate::received::Received;

impl Initiator {
    /// A frame of our EtherType came. Its bytes are needed no more when this returns. Frames that
    /// are no responses of our target are counted and dropped.
    #[inline]
    pub fn handle_frame(&mut self, now: Instant, frame: &OpenedFrame<'_>, memory: &mut dyn Memory) {
        let Some(received) = Received::parse(frame) else {
            self.counters.strange += 1;
            return;
        };
        let Received { from, header, .. } = received;
        let is_ours = header.flags.is_response()
            && self.wants(header.address, header.tag)
            && header.version == VERSION;
        if !is_ours {
            self.counters.strange += 1;
            return;
        }
        let is_its = |path: &Path| (path.link, path.mac) == (from.link, from.mac);
        let path = self.paths.iter().position(is_its);
        match (header.command, path) {
            (AoeCommand::ATA, Some(path)) => match self.paths[path].state {
                PathState::Asking { tag, asked, told, .. } if asked > 0 && tag == header.tag => {
                    self.identified(now, path, told, &received);
                }
                PathState::Refused => {}
                _ => self.answered(now, path, &received, memory),
            },
            (AoeCommand::CONFIG, path) if !header.flags.is_error() => {
                self.told(now, path, &received);
            }
            _ => self.counters.strange += 1,
        }
    }

    /// A station has our address, and says what it takes.
    #[cold]
    fn told(&mut self, now: Instant, path: Option<usize>, received: &Received<'_>) {
        let Ok(argument) = ConfigArgument::parse(received.body) else {
            self.counters.strange += 1;
            return;
        };
        let sectors = self.sectors_of(received.from.link, argument.sector_count);
        let is_announced = received.header.tag == 0;
        let path = match path {
            Some(path) => {
                if is_announced {
                    self.doubt_cache();
                }
                path
            }
            None => {
                let limit = self.settings.window.into();
                let new = Path::new(now, received.from.link, received.from.mac, limit);
                if self.paths.len() < PATHS_MAX {
                    self.paths.push(new);
                    self.paths.len() - 1
                } else {
                    // Somebody invents stations; one that is not used makes room.
                    let unused = |path: &Path| path.state != PathState::Live;
                    let Some(unused) = self.paths.iter().position(unused) else { return };
                    self.recall(unused as u32);
                    self.paths[unused] = new;
                    unused
                }
            }
        };
        let known = &mut self.paths[path];
        // It may have been started anew, with another disk or another size.
        if is_announced || known.state == PathState::Refused {
            known.ask(now);
        }
        known.told(argument.buffer_count, sectors);
        self.note_life();
        self.ask(now);
    }

    /// A station said who it is; `told`: it has also said what it takes.
    #[cold]
    fn identified(&mut self, now: Instant, index: usize, told: bool, received: &Received<'_>) {
        let argument = AtaArgument::parse(received.body);
        let data = received.body.get(AtaArgument::SIZE..).unwrap_or_default();
        let device = IdentifyDevice::parse(data);
        let path = &mut self.paths[index];
        let (Ok(argument), Ok(device)) = (argument, device) else {
            self.disk.presence.fault = format!("{} does not say what it is", path.mac);
            self.counters.strange += 1;
            return;
        };
        if received.header.flags.is_error() || !Status(argument.command_status).is_good() {
            self.disk.presence.fault = format!("{} refuses to say what it is", path.mac);
            self.counters.refused += 1;
            return;
        }
        // What tells one disk from another.
        let name = |device: &IdentifyDevice| (device.serial, device.model);
        if let Some(known) = self.device.as_ref().filter(|known| name(known) != name(&device)) {
            path.state = PathState::Refused;
            let why = format!(
                "{} on {} has the address {} and is another disk: expected {known}, seen {device}",
                path.mac, path.link, self.settings.address
            );
            self.disk.presence.fault = why.clone();
            // Somebody may invent stations as fast as frames come.
            if self.refusal_told.is_none_or(|told| now.since(told) >= REFUSALS_REST) {
                self.refusal_told = Some(now);
                self.disk.presence.news.push_back(InitiatorNews::Refused(why));
            }
            return self.note_life();
        }
        if path.sectors == 0 || !told {
            // Not told yet, it is asked again for both.
            self.disk.presence.fault = format!("{} takes no frame of a sector", path.mac);
            return;
        }
        path.identified(now);
        path.echo = Echo::of(argument.lba == IDENTIFY_LBA);
        self.disk.presence.set_facts(facts(&device));
        self.device = Some(device);
        // What found no path goes on.
        let parked = self.commands.iter().filter(|c| !c.counted && c.due.is_none());
        let mut tags: Vec<u32> = parked.map(|command| command.tag).collect();
        tags.sort_unstable();
        self.resend = tags.into();
        self.note_life();
    }

    /// A command was answered.
    #[inline]
    fn answered(
        &mut self,
        now: Instant,
        path: usize,
        received: &Received<'_>,
        memory: &mut dyn Memory,
    ) {
        let tag = received.header.tag;
        let Some(command) = self.commands.get_mut(tag).copied() else {
            return self.late(tag);
        };
        let argument = AtaArgument::parse(received.body).ok();
        let is_error = received.header.flags.is_error();
        let registers = argument.as_ref().filter(|_| !is_error);
        if !registers.is_none_or(|seen| self.is_its_answer(path, &command, seen)) {
            // Somebody else behind our address uses the target, under an equal tag.
            self.counters.strange += 1;
            return;
        }
        if !command.doubted && command.count > SECTORS_LEAST && registers.is_some_and(is_aborted) {
            return self.doubt(now, tag);
        }
        let limit = u32::from(self.settings.window);
        let Some(outcome) = self.judge(&command, received, argument.as_ref(), memory) else {
            self.counters.strange += 1;
            return;
        };
        self.counters.answered += 1;
        self.commands.remove(tag);
        if command.counted {
            self.paths[command.path as usize].in_flight -= 1;
        }
        let job = &mut self.disk[command.job];
        let is_write = job.kind.changes();
        let sample = (command.copies == 1).then(|| now.since(command.sent));
        self.paths[path].answered(is_write, sample, limit);
        let progress = &mut job.wire;
        progress.unanswered -= 1;
        progress.note(outcome);
        let has_strays = command.copies > 1 && !planted("strays-are-forgotten");
        if is_write && has_strays && command.count > 0 {
            let until = command.sent + self.settings.stray;
            progress.doubt_until = progress.doubt_until.max(Some(until));
            let length = u64::from(command.count) * SECTOR as u64;
            let extent = Extent::new(job.extent.offset.0 + command.at, length);
            self.disk.claim_for_strays(extent, tag, command.copies - 1, until);
        }
        self.try_finish(command.job, now);
    }

    /// Whether an answer speaks of this command's sectors, and of the same direction, as far as the
    /// target repeats them: what failed may tell where.
    #[inline]
    fn is_its_answer(&mut self, path: usize, command: &Command, seen: &AtaArgument) -> bool {
        if !Status(seen.command_status).is_good() {
            return true;
        }
        let asked = self.registers(command);
        let is_same = (seen.lba, seen.flags.is_write()) == (asked.lba, asked.flags.is_write());
        self.paths[path].echo.allows(is_same)
    }

    /// A command was aborted, perhaps since its frame, or the answer's, is larger than the target's
    /// link carries now: the path is asked what it takes, and the command sent again; once.
    #[cold]
    fn doubt(&mut self, now: Instant, tag: u32) {
        let Some(command) = self.commands.get_mut(tag) else { return };
        let path = &mut self.paths[command.path as usize];
        // If it is to be sent again anyway, this is the answer to an earlier copy.
        if command.counted && path.state == PathState::Live {
            command.doubted = true;
            if command.copies == 1 {
                // The only copy is answered: what is sent next is the first again.
                (command.copies, command.sent) = (0, Instant::ZERO);
            }
            let index = command.path;
            path.ask(now);
            self.recall(index);
            self.note_life();
            self.ask(now);
        }
    }

    /// What an answer says of its command; `None` if it is not a whole answer.
    #[inline]
    fn judge(
        &mut self,
        command: &Command,
        received: &Received<'_>,
        argument: Option<&AtaArgument>,
        memory: &mut dyn Memory,
    ) -> Option<Outcome> {
        let job = &mut self.disk[command.job];
        let changes = job.kind.changes();
        if received.header.flags.is_error() {
            self.counters.refused += 1;
            // A copy that was carried out before may be the reason why this one was refused.
            let why = refusal(received.header.error);
            let is_sure = !changes || command.copies == 1;
            return Some(if is_sure { Outcome::NotDone(why) } else { Outcome::Unknown(why) });
        }
        let argument = argument?;
        let status = Status(argument.command_status);
        if !status.is_good() {
            return Some(Outcome::NotDone(failure(status, argument.error_feature, changes)));
        }
        if changes || command.count == 0 {
            return Some(Outcome::Done);
        }
        let length = usize::from(command.count) * SECTOR;
        let data = received.body[AtaArgument::SIZE..].get(..length)?;
        if job.wire.held || job.verdict.is_some() {
            return Some(Outcome::Done);
        }
        let at = command.at as u32;
        match job.kind {
            JobKind::Read => memory.write(&mut job.buffer, at, data),
            JobKind::Compare => {
                let mut ours = [0; SECTOR];
                for (number, theirs) in data.chunks_exact(SECTOR).enumerate() {
                    let from = at + (number * SECTOR) as u32;
                    memory.read(&job.buffer, from, &mut ours);
                    if let Some(byte) = ours.iter().zip(theirs).position(|(a, b)| a != b) {
                        return Some(Outcome::Miscompare(from + byte as u32));
                    }
                }
            }
            _ => {}
        }
        Some(Outcome::Done)
    }

    /// An answer to what was answered before, or given up: a copy less that may live.
    #[cold]
    fn late(&mut self, tag: u32) {
        self.counters.late += 1;
        self.disk.stray_answered(tag);
    }

    /// Gives the commands of a job up, which is over: what answers them is late.
    pub(super) fn forget_commands(&mut self, job: u32) {
        let of_job = self.commands.iter().filter(|command| command.job == job);
        for tag in of_job.map(|command| command.tag).collect::<Vec<u32>>() {
            let command = self.commands.remove(tag).expect("it was there");
            if command.counted {
                self.paths[command.path as usize].in_flight -= 1;
            }
        }
    }
}

/// Sectors that a frame carries on every Ethernet.
const SECTORS_LEAST: u8 = 2;

/// Whether an answer's registers say that the device does not carry the command out.
#[inline]
fn is_aborted(argument: &AtaArgument) -> bool {
    let (status, error) = (argument.command_status, argument.error_feature);
    !Status(status).is_good() && ErrorBits(error).abort()
}

/// Why AoE refused a command.
fn refusal(code: ErrorCode) -> Failure {
    match code {
        ErrorCode::RESERVED | ErrorCode::DEVICE_UNAVAILABLE => Failure::NotReady,
        ErrorCode::UNKNOWN_COMMAND | ErrorCode::UNSUPPORTED_VERSION => Failure::Unsupported,
        _ => Failure::Internal,
    }
}

/// Why a device failed a command.
fn failure(status: Status, error: u8, changes: bool) -> Failure {
    let error = ErrorBits(error);
    if error.id_not_found() {
        Failure::OutOfRange
    } else if !changes {
        Failure::MediumRead
    } else if status.device_fault() || error.uncorrectable() {
        Failure::MediumWrite
    } else {
        // A device that is read-only says nothing else.
        Failure::WriteProtected
    }
}
