//! What the health and error logs tell: what hosts read and wrote, and which commands failed.
//!
//! A connection gathers both during a turn and gives them to its shard
//! ([`Controllers::count_traffic`], [`Controllers::commands_failed`]). A queue keeps its traffic,
//! and a subsystem, on each shard and by host, that of its queues that are gone; failures go to the
//! shard that owns the controller. Whoever reads one of the two logs asks all shards for their
//! part: mail is first in, first out, so their failures are there before their answers, and a host
//! finds every command in the log that it saw fail. Units: bytes and commands. Spec: NVMe base,
//! "Error Information", "SMART / Health Information".

use block::{Instant, ShardId, Slot};
use contract::Traffic;
use contract::traffic::ByHost;
use wire::nvme::command::IoOpcode;
use wire::nvme::log::{ErrorEntry, GetLog, LogId, TransportType};
use wire::nvme::{Command, Nqn, Status};

use super::controller::Controller;
use super::{Answer, ControllerRef, Controllers, MachineKey, Message, Queue, QueueHandle, Reply};
use crate::limits::ERROR_ENTRIES_MAX;
use crate::log;

/// What a host did with a subsystem through one shard.
#[derive(Clone, Debug)]
pub struct TrafficReport {
    pub subsystem: Nqn,
    /// None of all hosts that its list does not name.
    pub host: Option<Nqn>,
    pub traffic: Traffic,
}

/// Which command it was, for the error log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The first block that it concerns; 0 for a command without blocks.
    pub lba: u64,
    /// NSID.
    pub nsid: u32,
    /// CID.
    pub command_id: u16,
}

impl Origin {
    /// Of a command of an I/O queue.
    #[inline]
    pub fn of(command: &Command) -> Origin {
        let has_blocks = matches!(
            command.io_opcode(),
            IoOpcode::READ
                | IoOpcode::WRITE
                | IoOpcode::COMPARE
                | IoOpcode::WRITE_ZEROES
                | IoOpcode::VERIFY
        );
        Origin {
            lba: if has_blocks { command.lba() } else { 0 },
            nsid: command.nsid(),
            command_id: command.command_id(),
        }
    }

    fn entry(&self, queue_id: u16, status: Status) -> ErrorEntry {
        ErrorEntry {
            queue_id,
            command_id: self.command_id,
            status_word: status.to_word(),
            parameter_location: 0xffff,
            lba: self.lba,
            nsid: self.nsid,
            transport_type: TransportType::TCP.0,
            ..ErrorEntry::default()
        }
    }
}

/// Commands of one queue that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    count: u64,
    /// The latest of them, the oldest first, as many as the log holds; they have no error count
    /// yet.
    entries: Vec<ErrorEntry>,
}

impl Failures {
    /// Notes one more.
    pub fn note(&mut self, queue_id: u16, origin: &Origin, status: Status) {
        self.count += 1;
        if self.entries.len() == ERROR_ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(origin.entry(queue_id, status));
    }
}

/// A log that is read once all shards have answered.
#[derive(Debug)]
pub(super) struct LogReader {
    key: MachineKey,
    controller: ControllerRef,
    command_id: u16,
    wanted: GetLog,
    /// Shards that have not answered.
    left: u16,
    traffic: Traffic,
}

impl Controller {
    /// Notes a command of the admin queue that failed.
    pub(crate) fn note_error(&mut self, command: &Command, status: Status) {
        let (nsid, command_id) = (command.nsid(), command.command_id());
        let mut failures = Failures::default();
        failures.note(0, &Origin { lba: 0, nsid, command_id }, status);
        self.note_failures(&failures);
    }

    fn note_failures(&mut self, failures: &Failures) {
        self.error_count += failures.count;
        let first = self.error_count - failures.entries.len() as u64 + 1;
        for (error_count, entry) in (first..).zip(&failures.entries) {
            self.errors.truncate(ERROR_ENTRIES_MAX - 1);
            self.errors.push_front(ErrorEntry { error_count, ..*entry });
        }
    }
}

impl Controllers {
    /// A host read and wrote so much on this queue.
    #[inline]
    pub fn count_traffic(&mut self, queue: QueueHandle, traffic: &Traffic) {
        if let Some(queue) = self.queues.get_mut(queue.0) {
            queue.traffic += *traffic;
        }
    }

    /// A queue is gone: what went through it is kept.
    pub(super) fn keep_traffic(&mut self, queue: &Queue) {
        let export = queue.export.and_then(|slot| self.exports.get_mut(slot));
        if let Some(export) = export {
            let host = export.subsystem.hosts.listed(&queue.who.host.nqn);
            export.ended.add(host, &queue.traffic);
        }
    }

    /// What went through this shard to a subsystem, by host.
    fn traffic(&self, slot: Slot) -> ByHost<Nqn> {
        let Some(export) = self.exports.get(slot) else { return ByHost::default() };
        let mut all = export.ended.clone();
        let queues = self.queues.iter().map(|(_, queue)| queue);
        for queue in queues.filter(|queue| queue.export == Some(slot)) {
            all.add(export.subsystem.hosts.listed(&queue.who.host.nqn), &queue.traffic);
        }
        all
    }

    /// What went through this shard, by subsystem and by the hosts that its list names; that of all
    /// others is under none.
    pub fn traffic_report(&self) -> Vec<TrafficReport> {
        let all = self.exports.iter().flat_map(|(slot, export)| {
            let of_host = |(host, traffic)| {
                let subsystem = export.subsystem.nqn.clone();
                TrafficReport { subsystem, host, traffic }
            };
            self.traffic(slot).into_iter().map(of_host)
        });
        all.collect()
    }

    fn traffic_of(&self, slot: Option<Slot>) -> Traffic {
        let all = slot.into_iter().flat_map(|slot| self.traffic(slot));
        all.map(|(_, traffic)| traffic).sum()
    }

    /// Those commands of this queue failed.
    pub fn commands_failed(&mut self, queue: QueueHandle, failures: Box<Failures>) {
        let Some(queue) = self.queues.get(queue.0) else { return };
        let (controller, owner) = (queue.controller, queue.owner);
        if owner == self.shard {
            self.owned_commands_failed(controller, &failures);
        } else {
            self.send(owner, Message::CommandsFailed { controller, failures });
        }
    }

    pub(super) fn owned_commands_failed(&mut self, name: ControllerRef, failures: &Failures) {
        if let Some(controller) = self.controller_mut(name) {
            controller.note_failures(failures);
        }
    }

    /// Reads one of the logs of all shards, for an I/O controller.
    pub(super) fn read_shared_log(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
    ) -> Result<Answer, Status> {
        let wanted = log::parse(command)?;
        log::check_offset(&wanted, log::shared_size(wanted.id))?;
        let (controller, _) = self.controller_and_export(name);
        let key = controller.admin_key;
        let subsystem = controller.who.subsystem.clone();
        let reader = LogReader {
            key,
            controller: name,
            command_id: command.command_id(),
            wanted,
            left: self.shards - 1,
            traffic: self.traffic_of(controller.export),
        };
        if reader.left == 0 {
            return Ok(Answer::Now(self.shared_log(now, &reader).expect("the controller asks")));
        }
        let ask = self.log_readers.insert(reader);
        self.send_all(&Message::TrafficAsk { ask, subsystem });
        Ok(Answer::Later)
    }

    /// What went to a subsystem through this shard, for the owner of a controller that reads a log.
    pub(super) fn answer_traffic(&mut self, from: ShardId, ask: Slot, subsystem: &Nqn) {
        let traffic = self.traffic_of(self.export_of.get(subsystem).copied());
        self.send(from, Message::TrafficAnswer { ask, traffic });
    }

    /// A shard said what went through it. The last answer completes the log.
    pub(super) fn traffic_answered(&mut self, now: Instant, ask: Slot, traffic: &Traffic) {
        let reader = self.log_readers.get_mut(ask).expect("one answer to each question");
        reader.traffic += *traffic;
        reader.left -= 1;
        if reader.left > 0 {
            return;
        }
        let reader = self.log_readers.remove(ask).expect("just seen");
        if let Some(reply) = self.shared_log(now, &reader) {
            self.reply(reader.key, reply);
        }
    }

    /// The log, unless the controller is gone.
    fn shared_log(&self, now: Instant, reader: &LogReader) -> Option<Reply> {
        let controller = self.controllers.get(&reader.controller.id);
        let controller = controller.filter(|controller| controller.name == reader.controller)?;
        let page = match reader.wanted.id {
            LogId::ERROR => log::errors(&controller.errors),
            _ => {
                let power_on = now.since(self.started);
                log::smart(&reader.traffic, controller.error_count, power_on).emit().to_vec()
            }
        };
        let data = log::cut(&page, &reader.wanted).expect("the offset was checked");
        Some(Reply { data, ..Reply::new(reader.command_id, Status::SUCCESS) })
    }
}
