//! Protocols: the one file of the shard that names all that are served. To serve another, it gets
//! an arm in each `match` here, and nothing else on the shard changes.
//!
//! A [`Session`] is one accepted connection, whatever it speaks; the shard gives it bytes,
//! completions and time, and takes what it wants. [`Protocols`] holds what is not one connection's:
//! NVMe's controllers, and targets that have no connections. The shard carries between them:
//! messages to their like on other shards, events for sessions, values that are to be stored. What
//! all of it means stands in the protocols' crates. Disks that are reached by a protocol are
//! `remote`'s.

mod agreed;
mod aoe;

use std::sync::Arc;

use ::aoe::{Control, ExportId};
use block::{Class, Completion, Instant, MachineId, Pool, ShardId, Slot, Ticket, VolumeId};
use contract::{
    Direct, Endpoint, Event, FrameBatch, HostNews, LinkFacts, LinkId, ListenerId, Next,
    OpenedFrame, Receive, SessionCounters, SessionEffect, SessionEnd, SessionIdentity,
    TargetContext,
};
use iscsi::auth::Required;
use iscsi::server as iscsi_tcp;
use iscsi::target::Portal;
use iscsi::target::Target;
use iscsi::targets::{self, SessionReport, Targets};
use nvme::controllers::health::TrafficReport;
use nvme::controllers::{self, ControllerReport, Controllers};
use nvme::subsystem::Subsystem;
use nvme::tcp::server as nvme_tcp;
use reservation::{PathGroup, Registrant, replica};
use wire::ethernet::EtherType;
use wire::iscsi::IscsiName;
use wire::nvme::Nqn;

pub(crate) use self::agreed::Proposal;
pub use self::agreed::{StoreKey, StoredValue};
use self::aoe::{AoeReport, AoeTarget};
use crate::dispatch::dispatch;
use crate::machine;
use crate::mail::Mail;
use crate::shard::Settings;

/// What the connections of a listener speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    NvmeTcp,
    Iscsi,
}

/// What a listener is to its protocol.
#[derive(Clone, Debug)]
pub enum Listening {
    NvmeTcp(PathGroup),
    Iscsi(Box<Portal>),
}

impl Listening {
    /// What its connections speak.
    pub fn protocol(&self) -> Protocol {
        match self {
            Listening::NvmeTcp(_) => Protocol::NvmeTcp,
            Listening::Iscsi(_) => Protocol::Iscsi,
        }
    }

    /// The group of listeners that it is of.
    pub fn group(&self) -> PathGroup {
        match self {
            Listening::NvmeTcp(group) => *group,
            Listening::Iscsi(portal) => portal.group,
        }
    }
}

impl From<Protocol> for Listening {
    /// One of which nothing else was said.
    fn from(protocol: Protocol) -> Listening {
        match protocol {
            Protocol::NvmeTcp => Listening::NvmeTcp(PathGroup::DEFAULT),
            Protocol::Iscsi => Listening::Iscsi(Box::default()),
        }
    }
}

/// What hosts are shown by one protocol.
#[derive(Clone, Debug)]
pub enum Export {
    Nvme(Box<Subsystem>),
    Aoe(Box<AoeExport>),
    Iscsi(Box<Target>),
}

/// A volume at a shelf.slot.
#[derive(Clone, Debug)]
pub struct AoeExport {
    pub id: ExportId,
    pub export: ::aoe::Export,
    /// Its stored config string and mask. What is in force since it was exported before stays.
    pub control: Control,
}

/// The name of an [`Export`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportKey {
    Nvme(Nqn),
    Aoe(ExportId),
    Iscsi(IscsiName),
}

/// What the machines of one protocol write to their like on other shards.
#[derive(Debug)]
pub enum ProtocolMessage {
    Nvme(controllers::Message),
    /// Config strings and masks.
    Aoe(replica::Message<Control>),
    Iscsi(targets::Message),
}

/// What a session hears of the rest of its protocol.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    Nvme(controllers::ConnectionEvent),
    Iscsi(targets::SessionEvent),
}

/// What sessions work with during a call.
pub(crate) type Context<'a> = TargetContext<'a, Protocols>;

/// A connection that was accepted, by what it speaks.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "each is as large as its own, and found without a step"
)]
pub(crate) enum Session {
    NvmeTcp(nvme_tcp::Connection),
    Iscsi(Box<iscsi_tcp::Connection>),
}

/// The same call to whichever session it is; with a context, that of its protocol.
macro_rules! each {
    ($session:expr, $machine:ident => $call:expr) => {
        match $session {
            Session::NvmeTcp($machine) => $call,
            Session::Iscsi($machine) => $call,
        }
    };
    ($session:expr, $context:ident, $machine:ident => $call:expr) => {
        match $session {
            Session::NvmeTcp($machine) => {
                let $context = &mut $context.of(|protocols| &mut protocols.nvme);
                $call
            }
            Session::Iscsi($machine) => {
                let $context = &mut $context.of(|protocols| &mut protocols.iscsi);
                $call
            }
        }
    };
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        protocol: Protocol,
        identity: SessionIdentity,
        endpoint: Endpoint,
    ) -> Session {
        match protocol {
            Protocol::NvmeTcp => Session::NvmeTcp(nvme_tcp::Connection::new(
                now,
                identity,
                endpoint,
                nvme_tcp::Settings::default(),
            )),
            Protocol::Iscsi => {
                Session::Iscsi(Box::new(iscsi_tcp::Connection::new(now, identity, endpoint)))
            }
        }
    }

    dispatch! { each:
        fn handle_received(&mut self, bytes: &[u8]; context) -> Receive;
        fn handle_direct(&mut self, direct: Direct; context) -> Next;
        fn handle_completion(&mut self, done: Completion; context);
        fn handle_timeout(&mut self; context);
        /// There may be memory again.
        fn handle_memory(&mut self, class: Class; context);
        /// What is below is finished, then it closes.
        fn close(&mut self, end: SessionEnd; context);
        fn settle(&mut self; context);
        fn poll_effect(&mut self) -> Option<SessionEffect>;
        fn poll_timeout(&self) -> Option<Instant>;
        fn waits_for_memory(&self, class: Class) -> bool;
        /// Pages of the pool that it holds for a class.
        fn pages_of(&self, class: Class) -> u32;
        /// Whether `handle_memory` would find what it needs in `pool`; if not, it is kept for it
        /// there.
        fn would_go_on(&mut self, class: Class, pool: &mut Pool) -> bool;
        /// Whether nothing of it is below and its connection is closed.
        fn is_gone(&self) -> bool;
        /// Who is whom has changed: its host may be another to reservations.
        fn handle_named_hosts(&mut self; context);
        /// Its host, as reservations know it.
        fn registrant(&self) -> Option<Registrant>;
        /// Pages of the pool that it holds.
        fn pages(&self) -> u32;
        /// Commands that its peer may have outstanding.
        fn entries(&self) -> u16;
        /// Bytes that it holds outside the pool for answers that were not given to the driver.
        fn bytes_gathered(&self) -> usize;
    }

    /// What happened to its connection, but for what it received.
    #[inline]
    pub(crate) fn handle_connection(
        &mut self,
        now: Instant,
        event: Event<Mail>,
        context: &mut Context<'_>,
    ) {
        each!(self, context, machine => match event {
            Event::Sent { batch, .. } => machine.handle_sent(batch, context),
            Event::SendProgress { .. } => machine.handle_progress(now),
            Event::Lost { loss, .. } => machine.handle_lost(loss, context),
            Event::Closed { direct, batch, .. } => machine.handle_closed(direct, batch, context),
            other => unreachable!("no session is told of {other:?}"),
        });
    }

    pub(crate) fn handle_event(&mut self, event: SessionEvent, context: &mut Context<'_>) {
        match (self, event) {
            (Session::NvmeTcp(machine), SessionEvent::Nvme(event)) => {
                machine.handle_event(event, &mut context.of(|protocols| &mut protocols.nvme));
            }
            (Session::Iscsi(machine), SessionEvent::Iscsi(event)) => {
                machine.handle_event(event, &mut context.of(|protocols| &mut protocols.iscsi));
            }
            (session, event) => unreachable!("{session:?} is told {event:?}"),
        }
    }

    /// What its peer did wrong.
    pub(crate) fn misconduct(&self) -> Option<String> {
        each!(self, machine => machine.misconduct().map(ToString::to_string))
    }
}

/// A protocol that is spoken in frames. It has one target a shard, whose machine bears its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameProtocol {
    Aoe,
}

impl FrameProtocol {
    const ALL: [FrameProtocol; 1] = [FrameProtocol::Aoe];

    /// The one that takes frames of this type.
    #[inline]
    pub(crate) fn of(ether_type: EtherType) -> Option<FrameProtocol> {
        match ether_type {
            EtherType::AOE => Some(FrameProtocol::Aoe),
            _ => None,
        }
    }

    /// The one whose target a machine is.
    #[inline]
    fn of_machine(machine: MachineId) -> FrameProtocol {
        FrameProtocol::ALL[machine::number(machine) as usize]
    }

    #[inline]
    fn machine(self) -> MachineId {
        machine::target(self as u32)
    }
}

/// The same call to the target of a protocol on frames, whichever it is.
macro_rules! target {
    ($protocol:expr, &mut $protocols:ident, $target:ident => $call:expr) => {
        match $protocol {
            FrameProtocol::Aoe => {
                let $target = &mut $protocols.aoe.target;
                $call
            }
        }
    };
    ($protocol:expr, &$protocols:ident, $target:ident => $call:expr) => {
        match $protocol {
            FrameProtocol::Aoe => {
                let $target = &$protocols.aoe.target;
                $call
            }
        }
    };
}

/// What a shard has of its protocols beside their sessions.
#[derive(Debug)]
pub(crate) struct Protocols {
    nvme: Controllers,
    /// What sessions did that are gone.
    nvme_ended: SessionCounters,
    aoe: AoeTarget,
    iscsi: Targets,
    /// What sessions did that are gone.
    iscsi_ended: SessionCounters,
    /// Whether something happened to the targets of frames since they were settled.
    unsettled: bool,
}

/// Hosts that the configuration names once for all protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedHosts {
    /// Who is whom.
    pub named: reservation::NamedHosts,
    /// By what some of them prove it, where their protocol asks for proof.
    pub proofs: Vec<(IscsiName, Required)>,
}

/// How the protocols are on a shard.
#[derive(Clone, Debug, Default)]
pub struct ProtocolReport {
    pub nvme: NvmeReport,
    pub aoe: AoeReport,
    pub iscsi: IscsiReport,
}

/// How NVMe is on a shard.
#[derive(Clone, Debug, Default)]
pub struct NvmeReport {
    /// Controllers that this shard owns.
    pub controllers: Vec<ControllerReport>,
    /// What all connections did since the start, also those that are gone.
    pub sessions: SessionCounters,
    /// What hosts did, by subsystem.
    pub traffic: Vec<TrafficReport>,
}

/// How iSCSI is on a shard.
#[derive(Clone, Debug, Default)]
pub struct IscsiReport {
    /// Who is logged in.
    pub logins: Vec<SessionReport>,
    /// What all connections did since the start, also those that are gone.
    pub sessions: SessionCounters,
    /// What hosts did, by target.
    pub traffic: Vec<targets::traffic::TrafficReport>,
}

impl Protocols {
    pub(crate) fn new(now: Instant, settings: Settings) -> Protocols {
        let Settings { shard, shards, secret, .. } = settings;
        Protocols {
            nvme: Controllers::new(now, shard, shards),
            nvme_ended: SessionCounters::default(),
            aoe: AoeTarget::new(FrameProtocol::Aoe.machine(), shard, shards),
            iscsi: Targets::new(shard, shards, secret),
            iscsi_ended: SessionCounters::default(),
            unsettled: false,
        }
    }

    fn aoe(&mut self) -> &mut AoeTarget {
        self.unsettled = true;
        &mut self.aoe
    }

    /// These are the hosts that have a name from now on. Who a session's host is is asked again
    /// ([`Session::handle_named_hosts`]).
    pub(crate) fn set_named_hosts(&mut self, NamedHosts { named, proofs }: NamedHosts) {
        let named = Arc::new(named);
        self.nvme.set_named_hosts(named.clone());
        self.aoe().target.set_named_hosts(named.clone());
        self.iscsi.set_named_hosts(named, proofs.into_iter().collect());
    }

    /// A listener is about to listen.
    pub(crate) fn add_listener(&mut self, listener: ListenerId, listening: Listening) {
        match listening {
            Listening::NvmeTcp(group) => self.nvme.set_listener(listener, group),
            Listening::Iscsi(portal) => self.iscsi.set_portal(listener, *portal),
        }
    }

    /// A listener is gone.
    pub(crate) fn remove_listener(&mut self, listener: ListenerId) {
        self.nvme.remove_listener(listener);
        self.iscsi.remove_portal(listener);
    }

    /// Shows hosts something, or shows it differently. Fails, in words, where its name is taken;
    /// then nothing is changed.
    pub(crate) fn set_export(&mut self, now: Instant, export: Export) -> Result<(), String> {
        match export {
            Export::Nvme(subsystem) => self.nvme.set_subsystem(now, *subsystem),
            Export::Aoe(export) => self.aoe().set_export(*export)?,
            Export::Iscsi(target) => self.iscsi.set_target(*target),
        }
        Ok(())
    }

    /// Shows hosts something no more.
    pub(crate) fn remove_export(&mut self, key: &ExportKey, context: &mut TargetContext<'_, ()>) {
        match key {
            ExportKey::Nvme(name) => self.nvme.remove_subsystem(context.now, name),
            ExportKey::Aoe(id) => self.aoe().remove_export(*id, context),
            ExportKey::Iscsi(name) => self.iscsi.remove_target(name),
        }
    }

    /// Closes the sessions of a host that belong to this shard; returns how many there were.
    pub(crate) fn close_sessions(&mut self, now: Instant, host: &str) -> u32 {
        // A name that cannot be one of a protocol's is of no host of it. AoE has no sessions.
        let over_nvme = Nqn::new(host).map_or(0, |host| self.nvme.close_sessions(now, &host));
        over_nvme + IscsiName::new(host).map_or(0, |host| self.iscsi.close_sessions(&host))
    }

    /// All shards have the exports as they are now: who uses them, or looks for some, is told.
    pub(crate) fn announce_exports(&mut self) {
        self.nvme.announce_exports();
        self.aoe().target.announce_exports();
        self.iscsi.announce();
    }

    /// Whether nothing of a removed export is below any more that its removal waits for.
    pub(crate) fn is_gone(&self, key: &ExportKey) -> bool {
        match key {
            // Its sessions finish on their own, and nothing new comes through them.
            ExportKey::Nvme(_) | ExportKey::Iscsi(_) => true,
            ExportKey::Aoe(id) => self.aoe.target.is_gone(*id),
        }
    }

    /// All of the first configuration is there: what hosts do not find is refused for good.
    pub(crate) fn configuration_complete(&mut self) {
        self.nvme.configuration_complete();
        self.iscsi.configuration_complete();
    }

    /// A disk of the volume does not answer: paths to it are failed, so that hosts take others.
    pub(crate) fn volume_stuck(&mut self, now: Instant, volume: VolumeId) {
        self.nvme.volume_stuck(now, volume);
        self.iscsi.volume_stuck(volume);
    }

    pub(crate) fn handle_message(&mut self, now: Instant, from: ShardId, message: ProtocolMessage) {
        match message {
            ProtocolMessage::Nvme(message) => self.nvme.handle_message(now, from, message),
            ProtocolMessage::Aoe(message) => self.aoe().handle_message(from, message),
            ProtocolMessage::Iscsi(message) => self.iscsi.handle_message(now, from, message),
        }
    }

    /// What is to be told to the protocols of another shard.
    #[inline]
    pub(crate) fn poll_message(&mut self) -> Option<(ShardId, ProtocolMessage)> {
        if let Some((to, message)) = self.nvme.poll_message() {
            return Some((to, ProtocolMessage::Nvme(message)));
        }
        if let Some((to, message)) = self.iscsi.poll_message() {
            return Some((to, ProtocolMessage::Iscsi(message)));
        }
        let messages = &mut self.aoe.controls.outbox.messages;
        let (to, message) = (!messages.is_empty()).then(|| messages.remove(0))?;
        Some((to, ProtocolMessage::Aoe(message)))
    }

    /// What a session is to hear. It may be gone.
    pub(crate) fn poll_event(&mut self) -> Option<(Slot, SessionEvent)> {
        if let Some((slot, event)) = self.iscsi.poll_event() {
            return Some((slot, SessionEvent::Iscsi(event)));
        }
        let (key, event) = self.nvme.poll_event()?;
        let slot = Slot { index: key.machine.0, generation: key.generation };
        Some((slot, SessionEvent::Nvme(event)))
    }

    /// What people should know, in words.
    pub(crate) fn poll_notice(&mut self) -> Option<String> {
        self.aoe.target.poll_notice().map(|notice| notice.to_string())
    }

    /// Who came, left or was refused.
    pub(crate) fn poll_host_news(&mut self) -> Option<HostNews> {
        let without_frames = self.nvme.poll_host_news().or_else(|| self.iscsi.poll_host_news());
        without_frames.or_else(|| self.aoe.target.poll_host_news())
    }

    /// A reservation is about to be in force: what was read before, and not yet told, is told.
    /// Whoever waits asks for himself when he starts.
    pub(crate) fn handle_reservation(&mut self, context: &mut TargetContext<'_, ()>) {
        self.unsettled = true;
        for protocol in FrameProtocol::ALL {
            target!(protocol, &mut self, target => target.take_loans(context));
        }
    }

    /// In whose name a volume was asked, of a request of a target without connections; nobody's is
    /// its own.
    pub(crate) fn registrant(&self, ticket: Ticket) -> Option<Registrant> {
        let protocol = FrameProtocol::of_machine(ticket.machine);
        target!(protocol, &self, target => target.registrant(ticket))
    }

    /// A link is up or not what it was; `None`: it is down.
    pub(crate) fn handle_link(&mut self, link: LinkId, facts: Option<LinkFacts>) {
        self.unsettled = true;
        for protocol in FrameProtocol::ALL {
            target!(protocol, &mut self, target => match facts {
                Some(facts) => target.link_up(link, facts),
                None => target.link_down(link),
            });
        }
    }

    /// A frame came that no import wanted.
    #[inline]
    pub(crate) fn handle_frame(
        &mut self,
        protocol: FrameProtocol,
        frame: &OpenedFrame<'_>,
        context: &mut TargetContext<'_, ()>,
    ) {
        self.unsettled = true;
        target!(protocol, &mut self, target => target.handle_frame(frame, context));
    }

    /// Frames that this machine sent have left.
    #[inline]
    pub(crate) fn handle_frames_sent(
        &mut self,
        machine: MachineId,
        batch: FrameBatch,
        context: &mut TargetContext<'_, ()>,
    ) {
        self.unsettled = true;
        let protocol = FrameProtocol::of_machine(machine);
        target!(protocol, &mut self, target => target.handle_sent(batch, context));
    }

    /// A request of a target without connections is done.
    #[inline]
    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        context: &mut TargetContext<'_, ()>,
    ) {
        self.unsettled = true;
        let protocol = FrameProtocol::of_machine(completion.ticket.machine);
        target!(protocol, &mut self, target => target.handle_completion(completion, context));
    }

    /// Whether something happened to the targets without connections since they were settled.
    #[inline]
    pub(crate) fn needs_settle(&self) -> bool {
        self.unsettled
    }

    /// The end of a turn for the targets without connections.
    #[inline]
    pub(crate) fn settle(&mut self, context: &mut TargetContext<'_, ()>) {
        for protocol in FrameProtocol::ALL {
            target!(protocol, &mut self, target => target.settle(context));
        }
        self.unsettled = false;
    }

    /// Frames that are to be sent, and whose they are.
    #[inline]
    pub(crate) fn poll_frames(&mut self) -> Option<(MachineId, FrameBatch)> {
        FrameProtocol::ALL.into_iter().find_map(|protocol| {
            let batch = target!(protocol, &mut self, target => target.poll_batch())?;
            Some((protocol.machine(), batch))
        })
    }

    /// Whether nothing of any frame is below.
    pub(crate) fn is_quiet(&self) -> bool {
        let in_flight = |protocol| target!(protocol, &self, target => target.in_flight());
        FrameProtocol::ALL.into_iter().all(|protocol| in_flight(protocol) == 0)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timeout = |protocol| target!(protocol, &self, target => target.poll_timeout());
        let of_sessions = Instant::earliest(self.nvme.poll_timeout(), self.iscsi.poll_timeout());
        FrameProtocol::ALL.into_iter().map(timeout).fold(of_sessions, Instant::earliest)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if is_due(self.nvme.poll_timeout()) {
            self.nvme.handle_timeout(now);
        }
        if is_due(self.iscsi.poll_timeout()) {
            self.iscsi.handle_timeout(now);
        }
        for protocol in FrameProtocol::ALL {
            target!(protocol, &mut self, target => if is_due(target.poll_timeout()) {
                self.unsettled = true;
                target.handle_timeout(now);
            });
        }
    }

    /// A session is gone: what it did is not.
    pub(crate) fn count_ended(&mut self, session: &Session) {
        match session {
            Session::NvmeTcp(connection) => self.nvme_ended += *connection.counters(),
            Session::Iscsi(connection) => self.iscsi_ended += *connection.counters(),
        }
    }

    /// How the protocols are; `sessions` are those that are here.
    pub(crate) fn report<'a>(&self, sessions: impl Iterator<Item = &'a Session>) -> ProtocolReport {
        let (controllers, traffic) = (self.nvme.report(), self.nvme.traffic_report());
        let mut nvme = NvmeReport { controllers, sessions: self.nvme_ended, traffic };
        let (logins, traffic) = (self.iscsi.report(), self.iscsi.traffic_report());
        let mut iscsi = IscsiReport { logins, sessions: self.iscsi_ended, traffic };
        for session in sessions {
            match session {
                Session::NvmeTcp(connection) => nvme.sessions += *connection.counters(),
                Session::Iscsi(connection) => iscsi.sessions += *connection.counters(),
            }
        }
        ProtocolReport { nvme, aoe: self.aoe.report(), iscsi }
    }
}
