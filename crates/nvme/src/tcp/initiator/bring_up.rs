//! Bringing an association up, step by step, and what the admin queue does later: re-identify, shut down.
//!
//! ```text
//!   greeted -> Connect -> CAP -> CC.EN=1 -> CSTS.RDY? -> Identify 01 -> [06] -> 00 -> [03] -> queues (07) -> events (0B) -> I/O queues -> live
//!                                    ^ every 20 ms  |
//!   live: an event "namespace changed" -> all is answered -> log 04 -> Identify 00 -> [03] -> new facts, and commands again
//!   closing: CC.SHN=1 -> connections closed
//!   an I/O queue is silent: CC.EN=0 -> CSTS.RDY? -> connections closed
//! ```
//! Steps in brackets may fail: targets before NVMe 2.0 lack them. A reconnect that finds another namespace under the old number is refused: its data are not ours.
//! Errors: a [`Fault`] that says which step was answered how. Spec: NVMe base, "Fabrics controller initialization".

use core::time::Duration;

use block::limits::HANDSHAKE;
use block::{Failure, Instant};
use contract::StreamEffect;
use wire::nvme::Command;
use wire::nvme::async_event::AsyncEvent;
use wire::nvme::fabrics::{
    Capabilities, Configuration, Connect, ConnectAttributes, ConnectData, ConnectResult,
    ControllerStatus, Register, Version,
};
use wire::nvme::feature::{AsyncEventMask, FeatureId, NumberOfQueues};
use wire::nvme::identify::{
    Cns, DescriptorList, IdentifyController, IdentifyNamespace, IdentifyNvmController,
};
use wire::nvme::log::LogId;

use super::admin::{Admin, Purpose, Reply};
use super::facts::{Identity, Limits, disk_facts};
use super::link::{Fault, Socket, fault};
use super::queue::{Queue, QueueNews};
use super::{Initiator, InitiatorNews, Phase, Settings, Standing};
use crate::subsystem::MODEL;

/// How often CSTS.RDY is asked for.
pub(super) const READY_INTERVAL: Duration = Duration::from_millis(20);
/// Entries of the admin queue, less one.
const ADMIN_SQ_SIZE: u16 = 31;
/// CTRATT bit 6: any command counts as a Keep Alive.
const TRAFFIC_COUNTS: u32 = 1 << 6;

/// The admin command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Connect,
    Capabilities,
    Enable,
    Ready,
    Controller,
    NvmLimits,
    Namespace,
    Names,
    Queues,
    Events,
    ChangedList,
    Shutdown,
    Disable,
    Disabled,
}

impl Step {
    /// What it asks, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Connect => "Connect",
            Step::Capabilities => "Property Get CAP",
            Step::Enable => "Property Set CC",
            Step::Ready => "Property Get CSTS (waiting for RDY)",
            Step::Controller => "Identify Controller",
            Step::NvmLimits => "Identify NVM Controller",
            Step::Namespace => "Identify Namespace",
            Step::Names => "Identify Namespace Descriptors",
            Step::Queues => "Set Features Number of Queues",
            Step::Events => "Set Features Asynchronous Events",
            Step::ChangedList => "Get Log Changed Namespaces",
            Step::Shutdown => "Property Set CC (shutdown)",
            Step::Disable => "Property Set CC (reset)",
            Step::Disabled => "Property Get CSTS (waiting for a reset)",
        }
    }

    /// Whether an error status is an answer like another.
    fn may_fail(self) -> bool {
        matches!(
            self,
            Step::NvmLimits | Step::Names | Step::Events | Step::ChangedList | Step::Shutdown
        )
    }
}

/// What the controller of the present association said about itself.
#[derive(Debug, Default)]
pub(super) struct Controller {
    id: u16,
    capabilities: Capabilities,
    identity: Option<Box<IdentifyController>>,
    nvm: Option<Box<IdentifyNvmController>>,
    namespace: Option<Box<IdentifyNamespace>>,
    pub(super) ready_by: Instant,
}

impl Controller {
    /// TBKAS.
    pub(super) fn counts_traffic(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.ctratt & TRAFFIC_COUNTS != 0)
    }

    /// Whether the answer to a reset proves that nothing of the old queues is carried out any more.
    ///
    /// NVMe base, "Controller Level Reset", says that it always does; Linux's target clears CSTS.RDY while its disks still write. So the answer of a
    /// target that is not known to drain first proves nothing, and the quiesce time stands.
    pub(super) fn drains_at_reset(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| drains(&identity.mn))
    }
}

/// Whether a target with this model number drains its I/O queues before it answers a reset.
fn drains(model: &[u8]) -> bool {
    model.trim_ascii_end() == MODEL.as_bytes()
}

/// The data of a Connect.
pub(super) fn connect_data(settings: &Settings, controller_id: u16) -> [u8; ConnectData::SIZE] {
    ConnectData {
        host_id: settings.host_id,
        controller_id,
        subsystem: settings.subsystem.clone(),
        host: settings.host.clone(),
    }
    .emit()
}

/// Connect of an admin queue.
pub(super) fn connect_admin(keep_alive: Duration) -> Command {
    Command::connect(&Connect {
        record_format: 0,
        queue_id: 0,
        sq_size: ADMIN_SQ_SIZE,
        attributes: ConnectAttributes::default(),
        keep_alive_ms: u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX),
    })
}

/// CC that enables a controller, as its capabilities allow.
pub(super) fn enable(capabilities: Capabilities) -> Command {
    let css = if capabilities.css_nvm() || !capabilities.css_io_sets() { 0 } else { 6 };
    let value =
        Configuration::default().with_enable(true).with_css(css).with_iosqes(6).with_iocqes(4);
    Command::property_set(Register::CC.0, value.0)
}

impl Initiator {
    /// Asks for the admin queue's connection.
    pub(super) fn open(&mut self, now: Instant) {
        self.admin = Admin::new(self.settings.digests);
        self.queues.clear();
        self.controller = Controller::default();
        self.known_dead = false;
        self.standing = Standing::Known;
        self.phase = Phase::Opening;
        let address = self.address();
        let token = self.token();
        self.admin.link.socket = Socket::Asked { token, unwanted: false };
        self.effects.push_back(StreamEffect::Connect { token, address });
        // The driver has a time limit of its own for opening; the greeting gets ours once it stands.
        self.step_by = None;
        self.admin.heard = now;
    }

    fn token(&mut self) -> u32 {
        self.next_token = self.next_token.wrapping_add(1);
        self.next_token
    }

    /// Acts on what came in.
    pub(super) fn bring_up(&mut self, now: Instant) -> Result<(), Fault> {
        if self.phase == Phase::Opening && self.admin.link.greeted {
            self.phase = Phase::Steps;
            let data = connect_data(&self.settings, ConnectData::CONTROLLER_ANY);
            let command = connect_admin(self.settings.keep_alive);
            self.ask_with(now, Step::Connect, command, &data);
        }
        for reply in core::mem::take(&mut self.admin.replies) {
            self.handle_reply(now, reply)?;
        }
        if self.phase == Phase::Queues {
            self.bring_up_queues()?;
        }
        Ok(())
    }

    pub(super) fn ask(&mut self, now: Instant, step: Step, command: Command) {
        self.ask_with(now, step, command, &[]);
    }

    fn ask_with(&mut self, now: Instant, step: Step, command: Command, data: &[u8]) {
        self.step = Some(step);
        if step != Step::Ready {
            self.step_by = Some(now + HANDSHAKE);
        }
        self.admin.send(Purpose::Step, command, data);
    }

    /// Asks whether the controller is ready; its own time limit runs.
    pub(super) fn ask_ready(&mut self) {
        self.step = Some(Step::Ready);
        self.step_by = Some(self.controller.ready_by);
        let command = Command::property_get(Register::CSTS.0, false);
        self.admin.send(Purpose::Step, command, &[]);
    }

    fn handle_reply(&mut self, now: Instant, reply: Reply) -> Result<(), Fault> {
        match reply.purpose {
            Purpose::KeepAlive => {
                self.keep_alive_by = None;
                if self.phase == Phase::Resetting {
                    return Ok(());
                }
                if !reply.status.is_success() {
                    return fault(format!("Keep Alive was answered with {}", reply.status));
                }
                Ok(())
            }
            Purpose::Event => {
                self.handle_event(&reply);
                Ok(())
            }
            Purpose::Step => {
                let Some(step) = self.step.take() else { return Ok(()) };
                self.step_by = None;
                if self.phase == Phase::Resetting {
                    return self.reset_step(now, step, &reply);
                }
                if !reply.status.is_success()
                    && step == Step::Namespace
                    && self.phase == Phase::Live
                {
                    let why = format!("{} was answered with {}", step.name(), reply.status);
                    self.end_identification(Err(why));
                    return Ok(());
                }
                if !reply.status.is_success() && !step.may_fail() {
                    return fault(format!("{} was answered with {}", step.name(), reply.status));
                }
                self.next_step(now, step, &reply)
            }
        }
    }

    fn next_step(&mut self, now: Instant, step: Step, reply: &Reply) -> Result<(), Fault> {
        let nsid = self.settings.nsid;
        match step {
            Step::Connect => self.connected(now, reply)?,
            Step::Capabilities => {
                self.controller.capabilities = Capabilities(reply.result);
                let wait = Duration::from_millis(500 * self.controller.capabilities.timeout());
                self.controller.ready_by = now + wait.max(HANDSHAKE);
                self.ask(now, Step::Enable, enable(self.controller.capabilities));
            }
            Step::Enable => self.ask_ready(),
            Step::Ready => {
                let status = ControllerStatus(reply.result as u32);
                if status.fatal() {
                    return fault("the controller says that it failed (CSTS.CFS)");
                }
                if !status.ready() {
                    self.step = Some(Step::Ready);
                    self.step_by = Some(self.controller.ready_by);
                    self.ask_again_at = Some(now + READY_INTERVAL);
                    return Ok(());
                }
                self.ask(now, Step::Controller, Command::identify(Cns::CONTROLLER, 0));
            }
            Step::Controller => self.identified(now, reply)?,
            Step::NvmLimits => {
                if reply.status.is_success() {
                    self.controller.nvm =
                        Some(Box::new(parse(step, &reply.data, IdentifyNvmController::parse)?));
                }
                self.ask(now, Step::Namespace, Command::identify(Cns::NAMESPACE, nsid));
            }
            Step::Namespace => {
                let namespace = parse(step, &reply.data, IdentifyNamespace::parse)?;
                if namespace.nsze == 0 && self.phase == Phase::Live {
                    self.end_identification(Err("there is no such namespace".to_owned()));
                    return Ok(());
                }
                self.controller.namespace = Some(Box::new(namespace));
                self.ask(now, Step::Names, Command::identify(Cns::NAMESPACE_DESCRIPTORS, nsid));
            }
            Step::Names => self.named(now, reply)?,
            Step::Queues => {
                let granted = NumberOfQueues(reply.result as u32);
                let least = granted.submission().min(granted.completion()).saturating_add(1);
                let count = u32::from(self.settings.queues).min(least);
                let queue = || Queue::new(self.settings.digests);
                self.queues = (0..count).map(|_| queue()).collect();
                let mask = AsyncEventMask::default().with_namespace_changed(true);
                let feature = FeatureId::ASYNC_EVENT_CONFIGURATION.0;
                self.ask(now, Step::Events, Command::set_features(feature, 0, mask.0, 0));
            }
            Step::Events => self.open_queues(now),
            Step::ChangedList => {
                self.ask(now, Step::Namespace, Command::identify(Cns::NAMESPACE, nsid));
            }
            Step::Shutdown => return fault("closed"),
            Step::Disable | Step::Disabled => unreachable!("a reset has steps of its own"),
        }
        Ok(())
    }

    /// The admin queue's Connect was accepted.
    fn connected(&mut self, now: Instant, reply: &Reply) -> Result<(), Fault> {
        let result = ConnectResult(reply.result as u32);
        if result.authentication_required() || result.secure_channel_required() {
            return fault("the target wants authentication, which is not supported yet");
        }
        self.controller.id = result.controller_id() as u16;
        if !self.settings.keep_alive.is_zero() {
            self.keep_alive_at = Some(now + self.settings.keep_alive / 2);
        }
        self.ask(now, Step::Capabilities, Command::property_get(Register::CAP.0, true));
        Ok(())
    }

    fn identified(&mut self, now: Instant, reply: &Reply) -> Result<(), Fault> {
        let identity = parse(Step::Controller, &reply.data, IdentifyController::parse)?;
        if identity.ioccsz < 4 || identity.icdoff != 0 {
            let (ioccsz, icdoff) = (identity.ioccsz, identity.icdoff);
            return fault(format!(
                "its capsules cannot be used: IOCCSZ {ioccsz}, expected 4 or more; ICDOFF {icdoff}, expected 0"
            ));
        }
        let nsid = self.settings.nsid;
        let next = if identity.ver.0 >= Version::V2_0.0 {
            (Step::NvmLimits, Command::identify(Cns::IO_SET_CONTROLLER, 0))
        } else {
            (Step::Namespace, Command::identify(Cns::NAMESPACE, nsid))
        };
        self.controller.identity = Some(Box::new(identity));
        self.ask(now, next.0, next.1);
        Ok(())
    }

    /// All is known about the namespace.
    fn named(&mut self, now: Instant, reply: &Reply) -> Result<(), Fault> {
        let names = match reply.status.is_success() {
            true => DescriptorList::parse(&reply.data).unwrap_or_default(),
            false => Vec::new(),
        };
        let (Some(controller), Some(namespace)) =
            (&self.controller.identity, &self.controller.namespace)
        else {
            return fault("the namespace was named before it was identified");
        };
        let nvm = self.controller.nvm.as_deref();
        let usable = Limits::new(controller, nvm, namespace)
            .and_then(|limits| Ok((limits, disk_facts(controller, namespace, &limits)?)));
        let (limits, facts) = match usable {
            Ok(usable) => usable,
            Err(why) => return fault(format!("namespace {}: {why}", self.settings.nsid)),
        };
        let identity = Identity {
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            names,
            block_shift: limits.block_shift,
        };
        match &self.identity {
            Some(known) if *known != identity => {
                return fault(format!(
                    "namespace {} is another one now: expected {known}, seen {identity}",
                    self.settings.nsid
                ));
            }
            _ => self.identity = Some(identity),
        }
        self.limits = Some(limits);
        if self.stood && self.facts.as_ref() != Some(&facts) {
            self.news.push_back(InitiatorNews::FactsChanged);
        }
        self.facts = Some(facts);
        if self.phase == Phase::Live {
            self.end_identification(Ok(()));
        } else {
            let count = u32::from(self.settings.queues) - 1;
            let value = NumberOfQueues::default().with_submission(count).with_completion(count);
            let command = Command::set_features(FeatureId::NUMBER_OF_QUEUES.0, 0, value.0, 0);
            self.ask(now, Step::Queues, command);
        }
        Ok(())
    }

    /// Asks for the connections of the I/O queues.
    fn open_queues(&mut self, now: Instant) {
        let address = self.address();
        let identity = self.controller.identity.as_ref().expect("identified before");
        let most = match identity.maxcmd {
            0 => u16::MAX,
            most => most,
        };
        let mqes = self.controller.capabilities.mqes().max(1) as u16;
        // One command more than jobs may be under way: the one that asks for a sign of life.
        let depth = self.settings.depth.min(mqes).min(most - 1).max(1);
        for index in 0..self.queues.len() {
            let token = self.token();
            let queue = &mut self.queues[index];
            queue.set_depth(depth);
            queue.link.socket = Socket::Asked { token, unwanted: false };
            self.effects.push_back(StreamEffect::Connect { token, address });
        }
        self.depth = depth;
        self.phase = Phase::Queues;
        self.step_by = Some(now + HANDSHAKE * 2);
    }

    fn bring_up_queues(&mut self) -> Result<(), Fault> {
        for index in 0..self.queues.len() {
            match self.queues[index].news.take() {
                None => {}
                Some(QueueNews::Greeted) => {
                    let connect = Connect {
                        record_format: 0,
                        queue_id: index as u16 + 1,
                        // One entry more than commands, because a full queue of NVMe has one free.
                        sq_size: self.depth,
                        attributes: ConnectAttributes::default().with_disable_sq_flow_control(true),
                        keep_alive_ms: 0,
                    };
                    let data = connect_data(&self.settings, self.controller.id);
                    self.queues[index].connect(Command::connect(&connect), &data);
                }
                Some(QueueNews::Connected(completion)) => {
                    if !completion.status.is_success() {
                        let status = completion.status;
                        return fault(format!(
                            "Connect of queue {} was answered with {status}",
                            index + 1
                        ));
                    }
                    self.queues[index].live = true;
                }
            }
        }
        if self.queues.iter().all(|queue| queue.live) {
            self.phase = Phase::Live;
            self.step_by = None;
            self.attempts = 0;
            self.stood = true;
            self.admin.send(Purpose::Event, Command::async_event_request(), &[]);
            self.news.push_back(InitiatorNews::Connected);
        }
        Ok(())
    }

    /// An event came. Only that of changed namespaces is asked for; others wait for somebody to read their log.
    fn handle_event(&mut self, reply: &Reply) {
        if !reply.status.is_success() || self.phase == Phase::Resetting {
            return;
        }
        self.admin.send(Purpose::Event, Command::async_event_request(), &[]);
        let event = AsyncEvent::from_result(reply.result as u32);
        if event == AsyncEvent::NAMESPACE_CHANGED {
            self.standing = Standing::Changed;
        }
    }

    /// Goes on with what an event began, as far as can be.
    pub(super) fn look_again(&mut self, now: Instant) {
        match self.standing {
            Standing::Changed if self.step.is_none() && self.is_idle() => {
                self.standing = Standing::Asked;
                self.ask_what_changed(now);
            }
            Standing::Gone => {
                self.jobs.expire(now, true, Failure::Removed);
            }
            _ => {}
        }
    }

    fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.outstanding() == 0)
    }

    /// A live association knows again what its namespace is, or why there is none; unless it changed
    /// once more meanwhile.
    fn end_identification(&mut self, found: Result<(), String>) {
        if self.standing == Standing::Changed {
            return;
        }
        self.standing = match found {
            Ok(()) => Standing::Known,
            Err(why) => {
                self.news.push_back(InitiatorNews::Unusable(why));
                Standing::Gone
            }
        };
    }

    /// Reads the log, for the next event to be told; what changed is seen by identifying again.
    fn ask_what_changed(&mut self, now: Instant) {
        let command = Command::get_log(LogId::CHANGED_NAMESPACES, u32::MAX, 0, 4096, false);
        self.ask(now, Step::ChangedList, command);
    }

    /// Tells the controller that we leave; its answer ends the association.
    pub(super) fn shut_down(&mut self, now: Instant) {
        if self.step.is_none() {
            let value = Configuration::default()
                .with_enable(true)
                .with_shn(1)
                .with_iosqes(6)
                .with_iocqes(4);
            self.ask(now, Step::Shutdown, Command::property_set(Register::CC.0, value.0));
        }
    }
}

fn parse<T>(
    step: Step,
    data: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, wire::ParseError>,
) -> Result<T, Fault> {
    parse(data).or_else(|error| fault(format!("{}: {error}", step.name())))
}

impl core::fmt::Display for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.names.is_empty() {
            let hex =
                |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            return write!(f, "nguid {} eui64 {}", hex(&self.nguid), hex(&self.eui64));
        }
        let mut names = self.names.iter().map(ToString::to_string);
        f.write_str(&names.by_ref().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::drains;

    #[test]
    fn only_a_target_that_is_known_to_drain_is_believed_after_a_reset() {
        assert!(drains(b"Plateway                                "));
        assert!(!drains(b"Linux                                   "));
        assert!(!drains(b"Plateway clone                          "));
    }
}
