//! The ways between a shard's machines: requests to volumes, what volumes and protocols want,
//! completions to their askers, and the settling of those that were touched.
//!
//! Everything here carries; what is carried means something only to the machines at both ends.
//! Whoever asked a volume is found by the ticket of the completion, which must name a machine that
//! is there: a session stays until nothing of it is below.

use block::{
    ByteCount, Class, Completion, DiskId, Extent, Failure, Instant, Memory, Operation, Outcome,
    Request, ShardId, Slot, Submit, Ticket, VolumeId,
};
use contract::{ConnectionId, Effect, Next, Receive, TargetContext};
use reservation::{Access, InForce, PathGroup, Paths, Registrant};
use volume::gate::Health;
use volume::{Layout, Notice, Volumes};

use super::proposers::Proposer;
use super::{Place, Shard};
use crate::machine;
use crate::mail::{Answer, DiskMessage, Mail, News};
use crate::protocols::{Context, Protocols, Session};

/// The volumes, as targets see them.
pub(super) struct Below<'a> {
    pub(super) now: Instant,
    pub(super) volumes: &'a mut Volumes,
    /// The session that asks, in debug builds: it must have judged what it asks by what is in force.
    asker: Option<Asker<'a>>,
}

/// A session, and what is in force here.
#[derive(Clone, Copy)]
struct Asker<'a> {
    group: PathGroup,
    who: Option<Registrant>,
    paths: &'a Paths,
    reservations: &'a InForce,
}

impl<'a> Asker<'a> {
    #[inline]
    fn of(place: &Place, paths: &'a Paths, reservations: &'a InForce) -> Option<Asker<'a>> {
        let Place { group, session, .. } = place;
        let made = || Asker { group: *group, who: session.registrant(), paths, reservations };
        cfg!(debug_assertions).then(made)
    }

    fn may_ask(self, volume: VolumeId, request: &Request) -> bool {
        let access = match request.operation {
            Operation::Flush => Access::Other,
            ref data => Access::to_data(data.changes_data()),
        };
        let is_allowed = self.who.is_none() || self.reservations.allows(volume, self.who, access);
        self.paths.state(self.group).serves() && is_allowed
    }
}

impl Submit for Below<'_> {
    #[inline]
    fn submit(&mut self, volume: VolumeId, request: Request) {
        let may_ask = self.asker.is_none_or(|asker| asker.may_ask(volume, &request));
        debug_assert!(may_ask, "{request:?} is not judged by what is in force");
        self.volumes.handle_request(self.now, volume, request);
    }

    #[inline]
    fn find_loan(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        self.volumes.find_loan(volume, extent, memory)
    }

    #[inline]
    fn find_landing(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        self.volumes.find_landing(volume, extent, memory)
    }

    #[inline]
    fn landed(&mut self, volume: VolumeId, disk: DiskId, length: ByteCount) {
        self.volumes.landed(volume, disk, length);
    }
}

impl Shard {
    /// Runs `work` on a session and marks it as touched.
    #[inline]
    pub(super) fn with_session<R>(
        &mut self,
        now: Instant,
        slot: Slot,
        memory: &mut dyn Memory,
        work: impl FnOnce(&mut Session, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let place = self.places.get_mut(slot)?;
        if !place.touched {
            place.touched = true;
            self.touched.push(slot);
        }
        let asker = Asker::of(place, &self.paths.in_force, &self.reservations.in_force);
        let mut below = Below { now, volumes: &mut self.volumes, asker };
        let mut context = Context {
            now,
            memory,
            pool: &mut self.pool,
            volumes: &mut below,
            reservations: &self.reservations.in_force,
            paths: &self.paths.in_force,
            shared: &mut self.protocols,
        };
        Some(work(&mut place.session, &mut context))
    }

    /// Runs `work` on what is no session's of the protocols.
    #[inline]
    pub(super) fn with_protocols<R>(
        &mut self,
        now: Instant,
        memory: &mut dyn Memory,
        work: impl FnOnce(&mut Protocols, &mut TargetContext<'_, ()>) -> R,
    ) -> R {
        let mut below = Below { now, volumes: &mut self.volumes, asker: None };
        let pool = &mut self.pool;
        let (reservations, paths) = (&self.reservations.in_force, &self.paths.in_force);
        let (volumes, shared) = (&mut below, &mut ());
        let mut context = TargetContext { now, memory, pool, volumes, reservations, paths, shared };
        work(&mut self.protocols, &mut context)
    }

    /// Hands what volumes want to whom it concerns, until nothing is left to route.
    #[inline]
    pub(super) fn route_outbox(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !self.volumes.outbox.messages.is_empty() {
            let mail = |(to, message)| Effect::Mail { to, mail: Mail::Volume(message) };
            self.effects.extend(self.volumes.outbox.messages.drain(..).map(mail));
        }
        if !self.volumes.outbox.notices.is_empty() {
            self.handle_notices(now);
        }
        if !self.volumes.outbox.complete.is_empty() {
            let mut complete = core::mem::take(&mut self.volumes.outbox.complete);
            for completion in complete.drain(..) {
                self.route_completion(now, completion, memory);
            }
            if self.volumes.outbox.complete.is_empty() {
                self.volumes.outbox.complete = complete;
            }
        }
        // At the end: who was just told may have asked for more.
        if !self.imports.is_empty() {
            self.ask_imports(now);
        }
        if !self.elsewhere.is_empty() {
            self.ask_elsewhere();
        }
    }

    /// Takes what is for imports out of what disks are to be asked; a driver never sees it.
    #[inline]
    pub(super) fn ask_imports(&mut self, now: Instant) {
        let imports = &mut self.imports;
        self.volumes.outbox.submit.retain_mut(|(disk, request)| match imports.get_mut(*disk) {
            Some(import) => {
                import.handle_request(now, request);
                false
            }
            None => true,
        });
    }

    /// Sends what is for disks that other shards reach.
    #[cold]
    fn ask_elsewhere(&mut self) {
        let (elsewhere, effects) = (&mut self.elsewhere, &mut self.effects);
        elsewhere.take(&mut self.volumes.outbox.submit, |to, message| {
            effects.push_back(Effect::Mail { to, mail: Mail::Disk(Box::new(message)) });
        });
    }

    /// Another shard asks a disk that this one reaches, or answered what this one asked.
    pub(super) fn handle_disk_mail(
        &mut self,
        now: Instant,
        message: DiskMessage,
        memory: &mut dyn Memory,
    ) {
        match message {
            DiskMessage::Ask(disk, mut request) => match self.imports.get_mut(disk) {
                Some(import) => import.handle_request(now, &mut request),
                None => {
                    let asker = request.ticket.shard;
                    let completion = request.complete(Outcome::NotDone(Failure::Removed));
                    self.send_disk_mail(asker, DiskMessage::Done(completion));
                }
            },
            DiskMessage::Done(completion) => {
                self.elsewhere.answered();
                self.handle_completion(now, completion, memory);
                self.route_outbox(now, memory);
            }
        }
    }

    fn send_disk_mail(&mut self, to: ShardId, message: DiskMessage) {
        self.effects.push_back(Effect::Mail { to, mail: Mail::Disk(Box::new(message)) });
    }

    /// A disk answered. For nearly all requests what follows is that their asker is told.
    #[inline]
    pub(super) fn handle_completion(
        &mut self,
        now: Instant,
        mut completion: Completion,
        memory: &mut dyn Memory,
    ) {
        if self.volumes.handle_completion(now, &mut completion) {
            self.route_completion(now, completion, memory);
        }
        if !self.volumes.outbox.has_only_requests() {
            self.route_outbox(now, memory);
        }
    }

    /// Gives a volume's completion to whoever asked the volume.
    #[inline]
    pub(super) fn route_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        memory: &mut dyn Memory,
    ) {
        let Ticket { machine, generation, .. } = completion.ticket;
        match machine::kind(machine) {
            machine::SESSION => {
                let slot = Slot { index: machine.0, generation };
                self.with_session(now, slot, memory, |session, context| {
                    session.handle_completion(completion, context);
                })
                .expect("a session stays until nothing of it is below");
            }
            machine::TARGET => self.with_protocols(now, memory, |protocols, context| {
                protocols.handle_completion(completion, context);
            }),
            machine::CLIENT => self.with_clients(now, memory, |clients, context| {
                clients.handle_completion(completion, context);
            }),
            other => unreachable!("a volume completed a request of machine kind {other}"),
        }
    }

    pub(super) fn handle_notices(&mut self, now: Instant) {
        for notice in core::mem::take(&mut self.volumes.outbox.notices) {
            let news = match notice {
                Notice::Health(disk, health) => {
                    if health == Health::Stuck {
                        for volume in self.volumes_on(disk) {
                            self.protocols.volume_stuck(now, volume);
                        }
                    }
                    News::DiskHealth(disk, health)
                }
                Notice::Error(error) => News::DiskError(error),
                Notice::Protected(disk, failure) => News::DiskProtected(disk, failure),
            };
            self.tell(news);
        }
    }

    pub(super) fn volumes_on(&self, disk: DiskId) -> Vec<VolumeId> {
        let uses = |layout: &Layout| layout.members().iter().any(|member| member.disk == disk);
        let volumes = self.members.iter().filter(|(_, layout)| uses(layout));
        volumes.map(|(volume, _)| VolumeId(*volume)).collect()
    }

    /// Carries what the protocols want: messages, what sessions are to hear, changes of
    /// reservations and paths, what is to be stored and told.
    pub(super) fn route_protocols(&mut self, now: Instant, memory: &mut dyn Memory) {
        while let Some((to, message)) = self.protocols.poll_message() {
            self.effects.push_back(Effect::Mail { to, mail: Mail::Protocol(message) });
        }
        while let Some((slot, event)) = self.protocols.poll_event() {
            self.with_session(now, slot, memory, |session, context| {
                session.handle_event(event, context);
            });
        }
        while let Some((volume, proposal, change)) = self.protocols.poll_reservation_change() {
            self.reservations.propose(volume, Proposer::Protocol(proposal), change);
        }
        while let Some((proposal, change)) = self.protocols.poll_path_change() {
            self.paths.propose(Proposer::Protocol(proposal), change);
        }
        while let Some((key, version, value)) = self.protocols.poll_store() {
            self.tell(News::Store { key, version, value });
        }
        while let Some(notice) = self.protocols.poll_notice() {
            self.tell(News::Warning(notice));
        }
        while let Some(news) = self.protocols.poll_host_news() {
            self.hosts.count(news.event);
            self.tell(News::Host(news));
        }
    }

    /// Settles the machines that were touched and takes their effects.
    pub(super) fn settle_touched(&mut self, now: Instant, memory: &mut dyn Memory) {
        let mut touched = core::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let Some(place) = self.places.get_mut(slot) else { continue };
            place.touched = false;
            let asker = Asker::of(place, &self.paths.in_force, &self.reservations.in_force);
            let mut below = Below { now, volumes: &mut self.volumes, asker };
            let mut context = Context {
                now,
                memory: &mut *memory,
                pool: &mut self.pool,
                volumes: &mut below,
                reservations: &self.reservations.in_force,
                paths: &self.paths.in_force,
                shared: &mut self.protocols,
            };
            place.session.settle(&mut context);
            while let Some(effect) = place.session.poll_effect() {
                let Some(connection) = place.socket else { continue };
                self.effects.push_back(effect.on(connection));
            }
            let waits = Class::ALL.map(|class| place.session.waits_for_memory(class));
            if waits != place.in_line {
                self.lines.change(slot, &mut place.in_line, waits);
            }
            self.timers.arm(slot, &mut place.armed, place.session.poll_timeout());
            if place.session.is_gone() && place.socket.is_none() {
                self.protocols.count_ended(&place.session);
                self.places.remove(slot);
            }
        }
        self.touched = touched;
    }

    /// Shows an import what came on its connection: a few answers at a time, each time with all
    /// that follows from them, so that pages and places which serve one share serve the next while
    /// they are in the processor's cache.
    #[inline]
    pub(super) fn import_received(
        &mut self,
        now: Instant,
        disk: DiskId,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        let mut consumed = 0;
        loop {
            let initiator = self.imports.stream(disk, connection);
            let share = initiator.handle_received(now, connection, &bytes[consumed..], memory);
            consumed += share.consumed;
            self.route_import_answers(now, memory);
            if !matches!(share.next, Next::Yield) {
                return Receive { consumed, next: share.next };
            }
        }
    }

    /// Hands the completions of imports up, and down what was asked because of them.
    #[inline]
    pub(super) fn route_import_answers(&mut self, now: Instant, memory: &mut dyn Memory) {
        let mut answers = core::mem::take(&mut self.answers);
        self.imports.take_completions(&mut answers);
        for completion in answers.drain(..) {
            let asker = completion.ticket.shard;
            if asker == self.settings.shard {
                self.handle_completion(now, completion, memory);
            } else {
                self.send_disk_mail(asker, DiskMessage::Done(completion));
            }
        }
        self.answers = answers;
        self.ask_imports(now);
    }

    /// Takes what imports want, and hands their completions up.
    pub(super) fn route_imports(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !self.imports.needs_settle() {
            return;
        }
        self.imports.settle(now, memory);
        self.frames.encapsulate_all(now, &mut self.imports.effects, memory);
        self.effects.append(&mut self.imports.effects);
        self.route_import_answers(now, memory);
        for (number, disk, result) in core::mem::take(&mut self.imports.ready) {
            if let Ok(facts) = &result {
                self.volumes.add_disk(disk, facts.clone());
            }
            self.answer(number, Answer::Import(result));
        }
        for (disk, facts) in self.imports.take_renewed() {
            self.volumes.follow_disk(disk, facts.clone());
            self.tell(News::DiskChanged(disk, facts));
        }
        for (disk, event, words) in core::mem::take(&mut self.imports.news) {
            self.tell(News::Import(disk, event, words));
        }
    }
}
