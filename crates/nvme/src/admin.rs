//! The commands of the admin queue.
//!
//! What is refused gets its status with DNR, and an entry in the controller's error log. Before
//! CSTS.RDY only Fabrics commands are taken (0x00C). Discovery controllers take Identify, Get Log
//! Page, Features, events and Keep Alive. Abort answers "not aborted" at once, which is always
//! allowed: what is in flight cannot be called back. Spec: NVMe base, "Admin Command Set".

use block::Instant;
use wire::nvme::command::{AdminOpcode, Fuse};
use wire::nvme::feature::FeatureId;
use wire::nvme::identify::{Cns, IDENTIFY_SIZE};
use wire::nvme::log::{GetLog, LogId};
use wire::nvme::{Command, Nqn, Status};

use crate::controllers::controller::{Controller, Kind};
use crate::controllers::{
    Answer, ControllerRef, Controllers, Export, MachineKey, Reply, ReplyData,
};
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
    ) -> Answer {
        let id = command.command_id();
        let Some(name) = self.admin_queue_heard(now, key) else {
            let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
            return Answer::Now(Reply::new(id, status).closing());
        };
        let answer = self.dispatch(now, name, command, data);
        if let Answer::Now(reply) = &answer
            && !reply.status.is_success()
            && let Some(controller) = self.controller_of(name)
        {
            controller.note_error(command, reply.status);
        }
        answer
    }

    fn dispatch(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
        data: &[u8],
    ) -> Answer {
        let id = command.command_id();
        if io::check_format(command).is_err() || command.fuse() != Fuse::NONE {
            return Answer::Now(Reply::new(id, Status::INVALID_FIELD.with_dnr()));
        }
        if command.is_fabrics() {
            return self.fabrics_command(now, name, command);
        }
        let controller = self.controller_of(name).expect("its admin queue is open");
        if !controller.is_ready() {
            return Answer::Now(Reply::new(id, Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
        }
        if command.admin_opcode() == AdminOpcode::ASYNC_EVENT_REQUEST {
            return self.async_event_request(name, id);
        }
        if self.reads_shared_log(name, command) {
            let answer = self.read_shared_log(now, name, command);
            return answer.unwrap_or_else(|why| Answer::Now(Reply::new(id, why.with_dnr())));
        }
        let outcome = self.answer(now, name, command, data);
        let identifies =
            command.admin_opcode() == AdminOpcode::IDENTIFY && Cns::of(command) == Cns::NAMESPACE;
        match outcome {
            Ok((result, data)) => {
                let reply = Reply { data, ..Reply::new(id, Status::SUCCESS).with_result(result) };
                match identifies {
                    true => self.answer_identified(name, command.nsid(), reply),
                    false => Answer::Now(reply),
                }
            }
            Err(status) => Answer::Now(Reply::new(id, status.with_dnr())),
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        name: ControllerRef,
        command: &Command,
        data: &[u8],
    ) -> Outcome {
        let discovery = self.controller_of(name).expect("its admin queue is open").is_discovery();
        match command.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identify(name, command),
            AdminOpcode::GET_LOG_PAGE => self.get_log(name, command),
            AdminOpcode::GET_FEATURES => self.get_features(now, name, command),
            AdminOpcode::SET_FEATURES => self.set_features(now, name, command, data),
            AdminOpcode::KEEP_ALIVE => Ok((0, ReplyData::default())),
            AdminOpcode::ABORT if !discovery => Ok((NOT_ABORTED, ReplyData::default())),
            _ => Err(Status::INVALID_OPCODE),
        }
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

    fn reads_shared_log(&mut self, name: ControllerRef, command: &Command) -> bool {
        command.admin_opcode() == AdminOpcode::GET_LOG_PAGE
            && Controllers::is_of_all_shards(GetLog::from_command(command).id)
            && !self.controller_of(name).expect("its admin queue is open").is_discovery()
    }

    fn get_log(&mut self, name: ControllerRef, command: &Command) -> Outcome {
        let wanted = log::parse(command)?;
        let (controller, export) = self.controller_and_export(name);
        let cache_volatile = export.is_some_and(|export| export.is_cache_volatile());
        if !log::is_known(wanted.id, controller.is_discovery()) {
            return Err(Status::INVALID_LOG_PAGE);
        }
        let data = match controller.kind {
            Kind::Io(_) => {
                let page = log::page(wanted.id, controller, cache_volatile)?;
                log::cut(&page, &wanted)?
            }
            Kind::Discovery if wanted.id == LogId::DISCOVERY => {
                let names: Vec<&Nqn> = self.subsystems_for(&controller.who.host.nqn).collect();
                let generation = self.discovery_generation();
                discovery::page(generation, &names, &controller.endpoint, &wanted)?
            }
            Kind::Discovery => {
                log::cut(&log::identifiers(|id| log::is_known(LogId(id), true)), &wanted)?
            }
        };
        let announces = match controller.kind {
            Kind::Io(_) => LogId::CHANGED_NAMESPACES,
            Kind::Discovery => LogId::DISCOVERY,
        };
        if wanted.id == announces && !wanted.retain_event {
            let controller = self.controller_of(name).expect("just seen");
            controller.changed_namespaces.clear();
            controller.event_log_read();
        }
        Ok((0, data))
    }

    fn get_features(&mut self, now: Instant, name: ControllerRef, command: &Command) -> Outcome {
        let (controller, export) = self.controller_and_export(name);
        let context = feature_context(now, controller, export, command);
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
        self.controller_of(name).expect("just seen").features = features;
        match FeatureId::of(command) {
            FeatureId::KEEP_ALIVE_TIMER => self.arm_keep_alive(name),
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.tell_event(name),
            _ => {}
        }
        Ok((value.result, value.data.into()))
    }
}

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
    }
}
