//! Property Get and Property Set: the controller's registers, and what setting CC does.
//!
//! Enabling is immediate. Clearing CC.EN closes the I/O queues and is answered once they have
//! drained, because until then a command of theirs may still reach the media. A shutdown asks for a
//! flush of every volume with a volatile cache; CSTS.SHST says "complete" when they are done.
//! Errors: an unknown property, a wrong size or a read-only one is 0x002 with DNR. Spec: NVMe base,
//! "Controller Properties".

use std::collections::BTreeSet;

use block::{Instant, Outcome, VolumeId, planted};
use wire::nvme::fabrics::{Configuration, FabricsType, Property, Register};
use wire::nvme::{Command, Status};

use super::controller::{Notice, Phase};
use super::reservations::Notifications;
use super::{
    Answer, CloseReason, ConnectionEvent, ControllerRef, Controllers, Export, MachineKey, Message,
    Reply,
};
use crate::fabrics;

/// CSTS.SHST: a shutdown is under way.
const SHUTDOWN_OCCURRING: u32 = 1;
/// CSTS.SHST: it is complete.
const SHUTDOWN_COMPLETE: u32 = 2;

impl Controllers {
    /// A Fabrics command on an admin queue.
    pub(super) fn fabrics_command(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
    ) -> Result<Answer, Status> {
        let id = command.command_id();
        match FabricsType::of(command) {
            FabricsType::PROPERTY_GET => {
                let result = self.property_get(name, command)?;
                Ok(Answer::Now(Reply { result, ..Reply::new(id, Status::SUCCESS) }))
            }
            FabricsType::PROPERTY_SET => {
                let property = Property::from_command(command);
                if property.register != Register::CC || property.size_code != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                Ok(self.set_configuration(now, name, Configuration(property.value as u32), id))
            }
            FabricsType::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR),
            FabricsType::DISCONNECT => Err(Status::INVALID_QUEUE_TYPE),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// A Fabrics command on an I/O queue: none is of use there. Disconnect is not offered (OFCS is
    /// 0): a host closes the connection instead.
    pub fn fabrics_command_on_io_queue(
        &mut self,
        now: Instant,
        key: MachineKey,
        command: &Command,
    ) -> Answer {
        if let Some(queue) = self.queue_of(key).and_then(|slot| self.queues.get_mut(slot)) {
            queue.heard = now;
        }
        let status = match FabricsType::of(command) {
            FabricsType::CONNECT => Status::COMMAND_SEQUENCE_ERROR,
            FabricsType::PROPERTY_GET | FabricsType::PROPERTY_SET => Status::INVALID_QUEUE_TYPE,
            _ => Status::INVALID_OPCODE,
        };
        Answer::Now(Reply::new(command.command_id(), status.with_dnr()))
    }

    fn property_get(&mut self, name: ControllerRef, command: &Command) -> Result<u64, Status> {
        let property = Property::from_command(command);
        let controller = self.controller_mut(name).expect("an open admin queue has a controller");
        let (wide, value) = match property.register {
            Register::CAP => (true, fabrics::capabilities().0),
            Register::VS => (false, fabrics::VERSION.0.into()),
            Register::CC => (false, controller.configuration.0.into()),
            Register::CSTS => (false, controller.status.0.into()),
            Register::CRTO => (false, fabrics::READY_TIMEOUT.into()),
            _ => return Err(Status::INVALID_FIELD),
        };
        if property.size_code != u8::from(wide) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(value)
    }

    fn set_configuration(
        &mut self,
        now: Instant,
        name: ControllerRef,
        new: Configuration,
        command_id: u16,
    ) -> Answer {
        let controller = self.controller_mut(name).expect("an open admin queue has a controller");
        if matches!(controller.phase, Phase::Resetting { .. }) {
            let status = Status::COMMAND_SEQUENCE_ERROR;
            return Answer::Now(Reply::new(command_id, status));
        }
        let old = core::mem::replace(&mut controller.configuration, new);
        let discovery = controller.is_discovery();
        if new.enable() && !old.enable() {
            let valid = fabrics::configuration_is_valid(new, discovery);
            // A configuration that cannot be had is fatal until the host resets: that is how hosts
            // look for it.
            controller.status = controller.status.with_ready(valid).with_fatal(!valid).with_shst(0);
        }
        if new.shn() != 0 && old.shn() == 0 {
            self.begin_shutdown(name);
        } else if new.shn() == 0 && old.shn() != 0 {
            controller.status = controller.status.with_shst(0);
        }
        if !new.enable() && old.enable() {
            return self.begin_reset(now, name, command_id);
        }
        Answer::Now(Reply::new(command_id, Status::SUCCESS))
    }

    /// CC.EN went to 0. The answer comes when nothing of the I/O queues is in flight any more.
    fn begin_reset(&mut self, now: Instant, name: ControllerRef, command_id: u16) -> Answer {
        let controller = self.controller_mut(name).expect("it is being reset");
        controller.phase = Phase::Resetting { command_id };
        let key = controller.admin_key;
        for command_id in core::mem::take(&mut controller.event_requests) {
            let reply = Reply::new(command_id, Status::ABORT_REQUESTED);
            self.reply(key, Reply { discarded: true, ..reply });
        }
        self.close_io_queues(name, CloseReason::Reset);
        self.end_reset(now, name).map_or(Answer::Later, Answer::Now)
    }

    /// Ends a reset if the last I/O queue has drained.
    pub(super) fn end_reset(&mut self, now: Instant, name: ControllerRef) -> Option<Reply> {
        let controller = self.controller_mut(name)?;
        let Phase::Resetting { command_id } = controller.phase else { return None };
        if !controller.is_without_io() && !planted("reset-is-answered-early") {
            return None;
        }
        controller.phase = Phase::Live;
        controller.status = controller.status.with_ready(false).with_fatal(false);
        controller.io_queues = Vec::new();
        (controller.notice, controller.access_notice) = (Notice::Idle, Notice::Idle);
        controller.changed_namespaces.clear();
        controller.notifications = Notifications::default();
        // The keep-alive timer and what Connect set outlive a reset, other features do not.
        controller.features.reset();
        controller.heard = controller.heard.max(now);
        Some(Reply::new(command_id, Status::SUCCESS))
    }

    /// CC.SHN was set: every write that was acknowledged has to be durable before SHST says so.
    fn begin_shutdown(&mut self, name: ControllerRef) {
        let controller = self.controllers.get(&name.id).expect("it is being shut down");
        let key = controller.admin_key;
        let export = controller.export.and_then(|export| self.exports.get(export));
        let volumes: BTreeSet<VolumeId> = export
            .into_iter()
            .flat_map(Export::namespaces)
            .filter(|namespace| namespace.cache_volatile && !namespace.read_only)
            .map(|namespace| namespace.volume)
            .collect();
        let controller = self.controllers.get_mut(&name.id).expect("just seen");
        if controller.flushes > 0 {
            // One after the other, so that a host that asks over and over has no more than one each
            // in flight.
            controller.flush_again = true;
            controller.status = controller.status.with_shst(SHUTDOWN_OCCURRING);
            return;
        }
        controller.flush_again = false;
        controller.flushes = volumes.len() as u32;
        let done = controller.flushes == 0;
        let shst = if done { SHUTDOWN_COMPLETE } else { SHUTDOWN_OCCURRING };
        controller.status = controller.status.with_shst(shst);
        let flushes = volumes.into_iter().map(|volume| (key, ConnectionEvent::Flush(volume)));
        self.events.extend(flushes);
    }

    /// A flush of [`super::ConnectionEvent::Flush`] ended. If it failed, the shutdown never
    /// completes: CSTS says fatal, and the host sees that its data may not be durable.
    pub fn flush_done(&mut self, key: MachineKey, outcome: Outcome) {
        let Some(queue) = self.queue_of(key).and_then(|slot| self.queues.get(slot)) else { return };
        let name = queue.controller;
        let Some(controller) = self.controller_mut(name) else { return };
        assert!(controller.flushes > 0, "a flush ended that nobody waits for, of {name:?}");
        controller.flushes -= 1;
        if !outcome.is_done() {
            controller.status = controller.status.with_fatal(true);
        }
        let occurring = controller.status.shst() == SHUTDOWN_OCCURRING;
        if controller.flushes > 0 || !occurring || controller.status.fatal() {
            return;
        }
        if core::mem::take(&mut controller.flush_again) {
            self.begin_shutdown(name);
        } else {
            controller.status = controller.status.with_shst(SHUTDOWN_COMPLETE);
        }
    }

    /// Closes all I/O queues of a controller, here and on other shards.
    pub(super) fn close_io_queues(&mut self, name: ControllerRef, reason: CloseReason) {
        let controller = self.controllers.get(&name.id).expect("its queues are being closed");
        let remote = controller.remote_shards();
        for slot in controller.local_queues() {
            self.close_queue(slot, reason);
        }
        for shard in remote {
            self.send(shard, Message::CloseQueues { controller: name, reason });
        }
    }
}
