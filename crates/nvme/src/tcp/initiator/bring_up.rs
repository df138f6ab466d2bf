//! Bringing an association up, step by step, and what the admin queue does later: identify again,
//! shut down.
//!
//! ```text
//!   greeted -> Connect -> CAP -> CC.EN=1 -> CSTS.RDY=1 -> Identify 01 -> [06] -> 00 -> [03] -> queues (07) -> events (0B)
//!             |------- Enabling, as for discovery -------|-- Identifying ---------------------------------------------|
//!   -> I/O queues: greeted -> Connect -> live
//!   live: an event "namespace changed" -> all is answered -> log 04 -> Identify 00 -> [03] -> new facts, and commands again
//!   closing: CC.SHN=1 -> connections closed
//! ```
//! Steps in brackets may fail: targets before NVMe 2.0 lack them. A reconnect that finds another
//! namespace under the old number is refused: its data are not ours. Errors: a [`Fault`] that says
//! which step was answered how. Spec: NVMe base, "Fabrics controller initialization".

use core::time::Duration;

use block::Instant;
use contract::{DiskFacts, StreamEffect};
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

use super::admin::{Admin, AdminNews, Reply};
use super::facts::{Identity, Limits, disk_facts};
use super::framing::{Fault, Socket, fault};
use super::queue::{Queue, QueueNews};
use super::{Initiator, Live, Namespace, Settings, State};
use crate::limits::{HANDSHAKE, INITIATOR_ADMIN_DEPTH};
use crate::subsystem::MODEL;

/// CTRATT bit 6: any command counts as a Keep Alive.
const TRAFFIC_COUNTS: u32 = 1 << 6;

/// How far a controller is from the greeting of its admin queue to CSTS.RDY: the question under
/// way, and what is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Enabling {
    Connect,
    Capabilities { id: u16 },
    Enable(Enabled),
    Ready(Enabled),
}

/// A controller that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enabled {
    id: u16,
    capabilities: Capabilities,
}

impl Enabling {
    /// The admin queue is greeted: Connect follows.
    pub(super) fn begin(now: Instant, admin: &mut Admin, settings: &Settings) -> Enabling {
        let connect = Command::connect(&Connect {
            record_format: 0,
            queue_id: 0,
            sq_size: INITIATOR_ADMIN_DEPTH - 1,
            attributes: ConnectAttributes::default(),
            keep_alive_ms: u32::try_from(settings.keep_alive.as_millis()).unwrap_or(u32::MAX),
        });
        let data = connect_data(settings, ConnectData::CONTROLLER_ANY);
        admin.ask(now, "Connect", connect, &data);
        Enabling::Connect
    }

    /// What follows an answer; the controller, once it is ready.
    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        reply: &Reply,
        admin: &mut Admin,
        settings: &Settings,
    ) -> Result<Option<Enabled>, Fault> {
        reply.check()?;
        *self = match *self {
            Enabling::Connect => {
                let result = ConnectResult(reply.result as u32);
                if result.authentication_required() || result.secure_channel_required() {
                    return fault("the target wants authentication, which is not supported yet");
                }
                admin.keep_alive(now, settings.keep_alive);
                let command = Command::property_get(Register::CAP.0, true);
                admin.ask(now, "Property Get CAP", command, &[]);
                Enabling::Capabilities { id: result.controller_id() as u16 }
            }
            Enabling::Capabilities { id } => {
                let capabilities = Capabilities(reply.result);
                admin.ask(now, "Property Set CC", enable(capabilities), &[]);
                Enabling::Enable(Enabled { id, capabilities })
            }
            Enabling::Enable(enabled) => {
                let wait = Duration::from_millis(500 * enabled.capabilities.timeout());
                let what = "Property Get CSTS (waiting for RDY)";
                admin.await_ready(what, true, now + wait.max(HANDSHAKE));
                Enabling::Ready(enabled)
            }
            Enabling::Ready(_) if ControllerStatus(reply.result as u32).fatal() => {
                return fault("the controller says that it failed (CSTS.CFS)");
            }
            Enabling::Ready(enabled) => return Ok(Some(enabled)),
        };
        Ok(None)
    }
}

/// What the controller is asked about itself and its namespace, and what the answers before said.
#[derive(Debug)]
pub(super) enum Identifying {
    Controller(Enabled),
    NvmLimits(Controller),
    Namespace(Controller),
    Names(Controller, Box<IdentifyNamespace>),
    Queues(Live, DiskFacts),
    Events(Live, DiskFacts),
}

/// What a live association asks about its namespace.
#[derive(Debug)]
pub(super) enum Look {
    /// The log of what changed: reading it lets the next event be told.
    List,
    Namespace,
    Names(Box<IdentifyNamespace>),
}

/// What the controller of an association says about itself.
#[derive(Debug)]
pub(super) struct Controller {
    enabled: Enabled,
    identity: Box<IdentifyController>,
    nvm: Option<Box<IdentifyNvmController>>,
}

impl Controller {
    fn new(enabled: Enabled, reply: &Reply) -> Result<Controller, Fault> {
        let identity = Box::new(reply.parse(IdentifyController::parse)?);
        if identity.ioccsz < 4 || identity.icdoff != 0 {
            let (ioccsz, icdoff) = (identity.ioccsz, identity.icdoff);
            return fault(format!(
                "its capsules cannot be used: IOCCSZ {ioccsz}, expected 4 or more; ICDOFF {icdoff}, expected 0"
            ));
        }
        Ok(Controller { enabled, identity, nvm: None })
    }

    /// Commands on each I/O queue of which at most `most` are wanted.
    fn depth(&self, most: u16) -> u16 {
        let maxcmd = match self.identity.maxcmd {
            0 => u16::MAX,
            maxcmd => maxcmd,
        };
        let mqes = self.enabled.capabilities.mqes().max(1) as u16;
        // One command more than jobs may be under way: the one that asks for a sign of life.
        most.min(mqes).min(maxcmd - 1).max(1)
    }

    /// TBKAS.
    pub(super) fn counts_traffic(&self) -> bool {
        self.identity.ctratt & TRAFFIC_COUNTS != 0
    }

    /// Whether the answer to a reset proves that nothing of the old queues is carried out any more.
    ///
    /// NVMe base, "Controller Level Reset", says that it always does; Linux's target clears
    /// CSTS.RDY while its disks still write. So the answer of a target that is not known to drain
    /// first proves nothing, and the quiesce time stands.
    pub(super) fn drains_at_reset(&self) -> bool {
        drains(&self.identity.mn)
    }
}

/// Whether a target with this model number drains its I/O queues before it answers a reset.
fn drains(model: &[u8]) -> bool {
    model.trim_ascii_end() == MODEL.as_bytes()
}

/// The data of a Connect.
fn connect_data(settings: &Settings, controller_id: u16) -> [u8; ConnectData::SIZE] {
    ConnectData {
        host_id: settings.host_id,
        controller_id,
        subsystem: settings.subsystem.clone(),
        host: Some(settings.host.clone()),
    }
    .emit()
}

/// CC that enables a controller, as its capabilities allow.
fn enable(capabilities: Capabilities) -> Command {
    let css = if capabilities.css_nvm() || !capabilities.css_io_sets() { 0 } else { 6 };
    let value =
        Configuration::default().with_enable(true).with_css(css).with_iosqes(6).with_iocqes(4);
    Command::property_set(Register::CC.0, value.0)
}

impl Initiator {
    /// Asks for the admin queue's connection. The driver has a time limit of its own for that; the
    /// greeting gets ours once it stands.
    pub(super) fn open(&mut self) {
        self.admin = Admin::new(self.settings.digests);
        self.queues.clear();
        self.state = State::Opening { by: None };
        self.admin.framing.socket = self.ask_for_connection();
    }

    fn ask_for_connection(&mut self) -> Socket {
        let (token, address, poll) = (self.next_token, self.address(), self.settings.poll);
        self.next_token = token.wrapping_add(1);
        self.effects.push_back(StreamEffect::Connect { token, address, poll });
        Socket::Asked { token, unwanted: false }
    }

    /// What follows news of the admin queue. A fault leaves [`State::Failed`], which is broken off.
    pub(super) fn handle_admin_news(&mut self, now: Instant, news: AdminNews) -> Result<(), Fault> {
        let state = core::mem::replace(&mut self.state, State::Failed);
        self.state = match (state, news) {
            (State::Opening { .. }, AdminNews::Greeted) => {
                State::Enabling(Enabling::begin(now, &mut self.admin, &self.settings))
            }
            (State::Enabling(mut enabling), AdminNews::Answered(reply)) => {
                match enabling.handle_reply(now, &reply, &mut self.admin, &self.settings)? {
                    None => State::Enabling(enabling),
                    Some(enabled) => {
                        let command = Command::identify(Cns::CONTROLLER, 0);
                        self.admin.ask(now, "Identify Controller", command, &[]);
                        State::Identifying(Identifying::Controller(enabled))
                    }
                }
            }
            (State::Identifying(asked), AdminNews::Answered(reply)) => {
                self.identify(now, asked, &reply)?
            }
            (State::Live(live), AdminNews::Answered(reply)) => self.look(now, live, &reply)?,
            (State::Live(live), AdminNews::Event(result)) => self.handle_event(live, result),
            (State::Resetting { step, drains }, AdminNews::Answered(reply)) => {
                self.reset_on(now, step, drains, &reply)?
            }
            (State::Leaving, AdminNews::Answered(_)) => return fault("closed"),
            (state, _) => state,
        };
        Ok(())
    }

    fn ask_namespace(&mut self, now: Instant) {
        let command = Command::identify(Cns::NAMESPACE, self.settings.nsid);
        self.admin.ask(now, "Identify Namespace", command, &[]);
    }

    fn ask_names(&mut self, now: Instant) {
        let command = Command::identify(Cns::NAMESPACE_DESCRIPTORS, self.settings.nsid);
        self.admin.ask(now, "Identify Namespace Descriptors", command, &[]);
    }

    fn identify(
        &mut self,
        now: Instant,
        asked: Identifying,
        reply: &Reply,
    ) -> Result<State, Fault> {
        Ok(State::Identifying(match asked {
            Identifying::Controller(enabled) => {
                reply.check()?;
                let controller = Controller::new(enabled, reply)?;
                if controller.identity.ver.0 >= Version::V2_0.0 {
                    let command = Command::identify(Cns::IO_SET_CONTROLLER, 0);
                    self.admin.ask(now, "Identify NVM Controller", command, &[]);
                    Identifying::NvmLimits(controller)
                } else {
                    self.ask_namespace(now);
                    Identifying::Namespace(controller)
                }
            }
            Identifying::NvmLimits(mut controller) => {
                if reply.status.is_success() {
                    controller.nvm = Some(Box::new(reply.parse(IdentifyNvmController::parse)?));
                }
                self.ask_namespace(now);
                Identifying::Namespace(controller)
            }
            Identifying::Namespace(controller) => {
                reply.check()?;
                let namespace = Box::new(reply.parse(IdentifyNamespace::parse)?);
                self.ask_names(now);
                Identifying::Names(controller, namespace)
            }
            Identifying::Names(controller, namespace) => {
                let (limits, facts) = self.named(&controller, &namespace, reply)?;
                let count = u32::from(self.settings.queues) - 1;
                let value = NumberOfQueues::default().with_submission(count).with_completion(count);
                let command = Command::set_features(FeatureId::NUMBER_OF_QUEUES.0, 0, value.0, 0);
                self.admin.ask(now, "Set Features Number of Queues", command, &[]);
                let live = Live { controller, limits, namespace: Namespace::Known };
                Identifying::Queues(live, facts)
            }
            Identifying::Queues(live, facts) => {
                reply.check()?;
                let granted = NumberOfQueues(reply.result as u32);
                let least = granted.submission().min(granted.completion()).saturating_add(1);
                let count = u32::from(self.settings.queues).min(least);
                self.queues = (0..count).map(|_| Queue::new(self.settings.digests)).collect();
                let mask = AsyncEventMask::default().with_namespace_changed(true);
                let feature = FeatureId::ASYNC_EVENT_CONFIGURATION.0;
                let command = Command::set_features(feature, 0, mask.0, 0);
                self.admin.ask(now, "Set Features Asynchronous Events", command, &[]);
                Identifying::Events(live, facts)
            }
            Identifying::Events(live, facts) => {
                let depth = live.controller.depth(self.settings.depth);
                for index in 0..self.queues.len() {
                    let socket = self.ask_for_connection();
                    self.queues[index].set_depth(depth);
                    self.queues[index].framing.socket = socket;
                }
                return Ok(State::Joining { live, facts, depth, by: now + HANDSHAKE * 2 });
            }
        }))
    }

    /// All is known about the namespace, which must be the one that it was.
    fn named(
        &mut self,
        controller: &Controller,
        namespace: &IdentifyNamespace,
        reply: &Reply,
    ) -> Result<(Limits, DiskFacts), Fault> {
        let names = match reply.status.is_success() {
            true => DescriptorList::parse(&reply.data).unwrap_or_default(),
            false => Vec::new(),
        };
        let nsid = self.settings.nsid;
        let (limits, facts) =
            Limits::new(&controller.identity, controller.nvm.as_deref(), namespace)
                .and_then(|limits| {
                    Ok((limits, disk_facts(&controller.identity, namespace, &limits)?))
                })
                .map_err(|why| Fault::Final(format!("namespace {nsid}: {why}")))?;
        let identity = Identity {
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            names,
            block_shift: limits.block_shift,
        };
        match &self.identity {
            Some(known) if *known != identity => {
                return fault(format!(
                    "namespace {nsid} is another one now: expected {known}, seen {identity}"
                ));
            }
            _ => self.identity = Some(identity),
        }
        Ok((limits, facts))
    }

    /// What the I/O queues say while they are joined. With the last of them the association stands.
    pub(super) fn join(&mut self) -> Result<(), Fault> {
        let State::Joining { live, depth, .. } = &self.state else { return Ok(()) };
        for (index, queue) in self.queues.iter_mut().enumerate() {
            match queue.news.take() {
                None => {}
                Some(QueueNews::Greeted) => {
                    let connect = Connect {
                        record_format: 0,
                        queue_id: index as u16 + 1,
                        // One entry more than commands, because a full queue of NVMe has one free.
                        sq_size: *depth,
                        attributes: ConnectAttributes::default().with_disable_sq_flow_control(true),
                        keep_alive_ms: 0,
                    };
                    let data = connect_data(&self.settings, live.controller.enabled.id);
                    queue.connect(Command::connect(&connect), &data);
                }
                Some(QueueNews::Connected(completion)) => {
                    if !completion.status.is_success() {
                        let (number, status) = (index + 1, completion.status);
                        return fault(format!(
                            "Connect of queue {number} was answered with {status}"
                        ));
                    }
                    queue.live = true;
                }
            }
        }
        if self.queues.iter().all(|queue| queue.live) {
            let state = core::mem::replace(&mut self.state, State::Failed);
            let State::Joining { live, facts, .. } = state else { unreachable!("just seen") };
            self.state = State::Live(live);
            self.attempts = 0;
            self.admin.ask_for_event();
            self.disk.presence.set_facts(facts);
            self.disk.came();
        }
        Ok(())
    }

    /// An event came. Only that of changed namespaces is asked for; others wait for somebody to
    /// read their log.
    fn handle_event(&mut self, mut live: Live, result: u32) -> State {
        self.admin.ask_for_event();
        if AsyncEvent::from_result(result) == AsyncEvent::NAMESPACE_CHANGED {
            // What waits does so until it is known what there is.
            self.disk.came();
            live.namespace = match live.namespace {
                Namespace::Asked { look, .. } => Namespace::Asked { look, again: true },
                _ => Namespace::Changed,
            };
        }
        State::Live(live)
    }

    /// Asks what became of a namespace that changed, once all is answered that was sent to it.
    pub(super) fn look_again(&mut self, now: Instant) {
        let State::Live(live) = &mut self.state else { return };
        let is_idle = self.queues.iter().all(|queue| queue.outstanding() == 0);
        if matches!(live.namespace, Namespace::Changed) && is_idle {
            live.namespace = Namespace::Asked { look: Look::List, again: false };
            let command = Command::get_log(LogId::CHANGED_NAMESPACES, u32::MAX, 0, 4096, false);
            self.admin.ask(now, "Get Log Changed Namespaces", command, &[]);
        }
    }

    /// An answer about a namespace that changed.
    fn look(&mut self, now: Instant, mut live: Live, reply: &Reply) -> Result<State, Fault> {
        let Namespace::Asked { look, again } = live.namespace else {
            unreachable!("a live association asks about its namespace alone")
        };
        let missing = match look {
            Look::List => {
                self.ask_namespace(now);
                live.namespace = Namespace::Asked { look: Look::Namespace, again };
                return Ok(State::Live(live));
            }
            Look::Namespace if !reply.status.is_success() => Some(reply.refusal()),
            Look::Namespace => {
                let namespace = Box::new(reply.parse(IdentifyNamespace::parse)?);
                if namespace.nsze > 0 {
                    self.ask_names(now);
                    live.namespace = Namespace::Asked { look: Look::Names(namespace), again };
                    return Ok(State::Live(live));
                }
                Some("there is no such namespace".to_owned())
            }
            Look::Names(namespace) => {
                let (limits, facts) = self.named(&live.controller, &namespace, reply)?;
                live.limits = limits;
                self.disk.presence.set_facts(facts);
                None
            }
        };
        live.namespace = match missing {
            // It changed once more meanwhile.
            _ if again => Namespace::Changed,
            None => Namespace::Known,
            Some(why) => {
                self.disk.gone(why);
                Namespace::Gone
            }
        };
        Ok(State::Live(live))
    }

    /// Tells the controller that we leave; its answer ends the association.
    pub(super) fn shut_down(&mut self, now: Instant) {
        let value =
            Configuration::default().with_enable(true).with_shn(1).with_iosqes(6).with_iocqes(4);
        let command = Command::property_set(Register::CC.0, value.0);
        self.admin.ask(now, "Property Set CC (shutdown)", command, &[]);
        self.state = State::Leaving;
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
