//! The commands of the admin queue.
//!
//! What is refused gets its status with DNR, and an entry in the controller's error log. Before
//! CSTS.RDY only Fabrics commands are taken (0x00C). Discovery controllers take Identify, Get Log
//! Page, Features, events and Keep Alive. Abort answers "not aborted" at once, which is always
//! allowed: what is in flight cannot be called back. Spec: NVMe base, "Admin Command Set".

use block::Instant;
use reservation::{InForce, Paths, Reservation};
use wire::nvme::command::{AdminOpcode, Fuse};
use wire::nvme::feature::FeatureId;
use wire::nvme::identify::{Cns, IDENTIFY_SIZE};
use wire::nvme::log::{GetLog, LogId};
use wire::nvme::{Command, Nqn, Status};

use super::controller::{Controller, Notice};
use super::{Answer, ControllerRef, Controllers, Export, MachineKey, Reply, ReplyData};
use crate::{discovery, feature, identify, io, log};

/// DW0 of Abort: the command was not aborted.
const NOT_ABORTED: u32 = 1;

/// What a command that is answered at once returns: DW0 and data.
type Outcome = Result<(u32, ReplyData), Status>;

impl Controllers {
    /// A command of an admin queue, Fabrics ones included; `data` are what came with it. A
    /// connection that is no admin queue gets 0x00C.
    pub fn admin_command(
        &mut self,
        now: Instant,
        key: MachineKey,
        command: &Command,
        data: &[u8],
        (reservations, paths): (&InForce, &Paths),
    ) -> Answer {
        let id = command.command_id();
        let Some(name) = self.admin_queue_heard(now, key) else {
            let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
            return Answer::Now(Reply::new(id, status).closing());
        };
        let answer = self
            .dispatch(now, name, command, data, (reservations, paths))
            .unwrap_or_else(|status| Answer::Now(Reply::new(id, status.with_dnr())));
        if let Answer::Now(reply) = &answer
            && !reply.status.is_success()
            && let Some(controller) = self.controller_mut(name)
        {
            controller.note_error(command, reply.status);
        }
        answer
    }

    /// The controller of an open admin queue, which has just been heard.
    fn admin_queue_heard(&mut self, now: Instant, key: MachineKey) -> Option<ControllerRef> {
        let slot = self.queue_of(key)?;
        let queue = self.queues.get(slot).filter(|queue| queue.id == 0 && queue.open)?;
        let name = queue.controller;
        let controller = self.controller_mut(name).expect("its admin queue is open");
        controller.heard = controller.heard.max(now);
        Some(name)
    }

    fn dispatch(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
        data: &[u8],
        (reservations, paths): (&InForce, &Paths),
    ) -> Result<Answer, Status> {
        let id = command.command_id();
        if io::check_format(command).is_err() || command.fuse() != Fuse::NONE {
            return Err(Status::INVALID_FIELD);
        }
        if command.is_fabrics() {
            return self.fabrics_command(now, name, command);
        }
        let (controller, _) = self.controller_and_export(name);
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let discovery = controller.is_discovery();
        let (result, data) = match command.admin_opcode() {
            AdminOpcode::ASYNC_EVENT_REQUEST => return self.async_event_request(name, id),
            AdminOpcode::GET_LOG_PAGE
                if !discovery && log::is_shared(GetLog::from_command(command).id) =>
            {
                return self.read_shared_log(now, name, command);
            }
            AdminOpcode::GET_LOG_PAGE => self.get_log(name, command, paths)?,
            AdminOpcode::IDENTIFY => self.identify(name, command)?,
            AdminOpcode::GET_FEATURES => self.get_features(now, name, command, reservations)?,
            AdminOpcode::SET_FEATURES
                if !discovery && FeatureId::of(command) == FeatureId::RESERVATION_PERSISTENCE =>
            {
                return self.set_persistence(name, command);
            }
            AdminOpcode::SET_FEATURES => self.set_features(now, name, command, data)?,
            AdminOpcode::KEEP_ALIVE => {
                self.keep_alive(now, name);
                (0, ReplyData::default())
            }
            AdminOpcode::ABORT if !discovery => (NOT_ABORTED, ReplyData::default()),
            _ => return Err(Status::INVALID_OPCODE),
        };
        let reply = Reply { data, ..Reply::new(id, Status::SUCCESS).with_result(result) };
        let identifies =
            command.admin_opcode() == AdminOpcode::IDENTIFY && Cns::of(command) == Cns::NAMESPACE;
        Ok(match identifies {
            true => self.answer_identified(name, command.nsid(), reply),
            false => Answer::Now(reply),
        })
    }

    /// A controller and the export it belongs to, if it is no discovery controller.
    pub(super) fn controller_and_export(
        &self,
        name: ControllerRef,
    ) -> (&Controller, Option<&Export>) {
        let controller = self.controllers.get(&name.id).expect("its admin queue is open");
        (controller, controller.export.and_then(|slot| self.exports.get(slot)))
    }

    /// CNTLIDs of all controllers of this one's subsystem, on every shard, ascending.
    fn controllers_of_subsystem(&self, name: ControllerRef) -> Vec<u16> {
        let (controller, _) = self.controller_and_export(name);
        let subsystem = &controller.who.subsystem;
        let own = self.controllers.iter().filter(|(_, other)| other.who.subsystem == *subsystem);
        let others = self.others.iter().filter(|(_, other)| *other == subsystem);
        let mut ids: Vec<u16> = own.map(|(id, _)| *id).chain(others.map(|(id, _)| *id)).collect();
        ids.sort_unstable();
        ids
    }

    fn identify(&mut self, name: ControllerRef, command: &Command) -> Outcome {
        if (command.sgl().length as usize) < IDENTIFY_SIZE {
            return Err(Status::INVALID_SGL_LENGTH);
        }
        let controllers = self.controllers_of_subsystem(name);
        let (controller, export) = self.controller_and_export(name);
        let context = identify::Context { controller, export, controllers: &controllers };
        identify::identify(command, context).map(|data| (0, data.into()))
    }

    fn get_log(&mut self, name: ControllerRef, command: &Command, paths: &Paths) -> Outcome {
        let wanted = log::parse(command)?;
        let (controller, export) = self.controller_and_export(name);
        if !log::is_known(wanted.id, controller.is_discovery()) {
            return Err(Status::INVALID_LOG_PAGE);
        }
        let data = if wanted.id == LogId::DISCOVERY {
            let names: Vec<&Nqn> = self.subsystems_for(&controller.who.host.nqn).collect();
            discovery::page(self.discovery_generation, &names, &controller.endpoint, &wanted)?
        } else {
            log::cut(&log::page(&wanted, log::Context { controller, export, paths })?, &wanted)?
        };
        let discovery = controller.is_discovery();
        let announces = if discovery { LogId::DISCOVERY } else { LogId::CHANGED_NAMESPACES };
        if wanted.id == announces && !wanted.retain_event {
            let controller = self.controller_mut(name).expect("just seen");
            controller.changed_namespaces.clear();
            // The host has seen all that there was to tell.
            controller.notice = Notice::Idle;
        }
        if wanted.id == LogId::ANA && !wanted.retain_event {
            self.controller_mut(name).expect("just seen").access_notice = Notice::Idle;
        }
        if wanted.id == LogId::RESERVATION_NOTIFICATION && !wanted.retain_event {
            self.controller_mut(name).expect("just seen").notifications.read();
            self.tell_event(name);
        }
        Ok((0, data))
    }

    fn get_features(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
        reservations: &InForce,
    ) -> Outcome {
        let (controller, export) = self.controller_and_export(name);
        let volume = export.and_then(|export| Some(export.namespace(command.nsid())?.volume));
        let held = volume.and_then(|volume| reservations.get(volume));
        let context = feature::Context {
            persists: held.is_some_and(Reservation::persists),
            ..feature_context(now, controller, export, command)
        };
        let value = controller.features.get(command, context)?;
        if (command.sgl().length as usize) < value.data.len() {
            return Err(Status::INVALID_SGL_LENGTH);
        }
        Ok((value.result, value.data.into()))
    }

    fn set_features(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
        data: &[u8],
    ) -> Outcome {
        let (controller, export) = self.controller_and_export(name);
        let mut features = controller.features.clone();
        let value =
            features.set(command, data, feature_context(now, controller, export, command))?;
        self.controller_mut(name).expect("just seen").features = features;
        match FeatureId::of(command) {
            FeatureId::KEEP_ALIVE_TIMER => self.arm_keep_alive(name),
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.tell_event(name),
            _ => {}
        }
        Ok((value.result, value.data.into()))
    }
}

/// All but what is in force of reservations.
fn feature_context<'a>(
    now: Instant,
    controller: &'a Controller,
    export: Option<&Export>,
    command: &Command,
) -> feature::Context<'a> {
    feature::Context {
        now,
        discovery: controller.is_discovery(),
        cache_volatile: export.is_some_and(Export::is_cache_volatile),
        host_id: &controller.who.host.id,
        has_queues: !controller.is_without_io(),
        has_namespace: export.is_some_and(|export| export.namespace(command.nsid()).is_some()),
        persists: false,
    }
}
