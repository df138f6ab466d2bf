//! What the control thread orders and is told: changes of disks, volumes, exports and listeners,
//! draining, reports.
//!
//! An order is answered exactly once, most at once; those that wait for something to drain are
//! [`Pending`].

use block::limits::LEAVE;
use block::{Instant, Memory, PAGE_SIZE, ShardId, Slot, VolumeId, planted};
use contract::{Effect, SessionEnd};
use reservation::Reservation;
use volume::Layout;
use volume::volumes::VolumeCounts;

use super::{Place, Shard};
use crate::mail::{Answer, Mail, News, Order};
use crate::protocols::{ExportKey, NamedHosts};
use crate::report::{ConnectionReport, DiskReport, PoolCounters, Report, VolumeReport};

/// An order that is answered later.
#[derive(Debug)]
pub(super) enum Pending {
    Quiesce { number: u64, volume: VolumeId },
    Export { number: u64, key: ExportKey },
    Drain { number: u64 },
    Leave { number: u64, by: Instant },
}

impl Pending {
    /// When it is answered at the latest, if there is such a moment.
    pub(super) fn answered_by(&self) -> Option<Instant> {
        match self {
            Pending::Leave { by, .. } => Some(*by),
            _ => None,
        }
    }

    fn is_quiesce_of(&self, of: VolumeId) -> bool {
        matches!(self, Pending::Quiesce { volume, .. } if *volume == of)
    }
}

impl Shard {
    fn add_volume(&mut self, volume: VolumeId, layout: Layout, reservation: Reservation) {
        self.reservations.add(volume, reservation);
        self.members.insert(volume.0, layout.clone());
        self.volumes.add_volume(volume, layout);
    }

    pub(super) fn tell(&mut self, news: News) {
        let mail = Mail::News(Box::new(news));
        self.effects.push_back(Effect::Mail { to: ShardId::CONTROL, mail });
    }

    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        let mail = Mail::Answer { number, answer: Box::new(answer) };
        self.effects.push_back(Effect::Mail { to: ShardId::CONTROL, mail });
    }

    pub(super) fn handle_order(
        &mut self,
        now: Instant,
        number: u64,
        order: Order,
        memory: &mut dyn Memory,
    ) {
        match order {
            Order::AddDisk { disk, facts } => self.volumes.add_disk(disk, facts),
            Order::AddImport { disk, by: Some(by), .. } if by != self.settings.shard => {
                self.elsewhere.add(disk, by);
            }
            Order::AddImport { disk, settings, by } => {
                let sharers = if by.is_some() { 1 } else { self.settings.shards };
                self.imports.add(now, disk, number, *settings, (self.settings, sharers));
                for (link, facts) in self.frames.links.iter() {
                    self.imports.handle_link(now, link, Some(*facts));
                }
                return;
            }
            Order::AddReached { disk, facts } => {
                if self.elsewhere.has(disk) {
                    self.volumes.add_disk(disk, facts);
                }
            }
            Order::FollowDisk { disk, facts } => self.volumes.follow_disk(disk, facts),
            Order::RenewDisk { disk, facts } => self.volumes.renew_disk(disk, facts),
            Order::ProtectDisk { disk, failure } => {
                self.volumes.protect_disk(now, disk, failure);
            }
            Order::RemoveDisk(disk) => {
                self.volumes.remove_disk(disk);
                self.imports.close(disk);
                self.elsewhere.remove(disk);
            }
            Order::AddVolume { volume, layout, reservation } => {
                self.add_volume(volume, layout, reservation);
            }
            Order::ResizeVolume { volume, layout } => {
                self.members.insert(volume.0, layout.clone());
                self.volumes.resize_volume(volume, layout);
            }
            Order::QuiesceVolume(volume) => {
                self.volumes.remove_volume(volume);
                self.pending.push(Pending::Quiesce { number, volume });
                return;
            }
            Order::ResumeVolume { volume, layout, reservation } => {
                // Whoever ordered it quiesced waits no more.
                self.pending.retain(|pending| !pending.is_quiesce_of(volume));
                if !self.volumes.resume_volume(volume) {
                    self.add_volume(volume, layout, reservation);
                }
            }
            Order::ForgetVolume(volume) => {
                self.members.remove(&volume.0);
                self.volumes.forget_volume(volume);
                self.reservations.remove(volume);
            }
            Order::ClearReservation(volume) => {
                if self.reservations.clear(volume, number) {
                    return;
                }
            }
            Order::RestorePaths(stored) => self.paths.restore(stored),
            Order::SetPaths(states) => {
                if self.paths.order(states, number) {
                    return;
                }
            }
            Order::SetNamedHosts(hosts) => self.set_named_hosts(now, *hosts, memory),
            Order::SetExport(export) => {
                if let Err(why) = self.protocols.set_export(now, export) {
                    return self.answer(number, Answer::Refused(why));
                }
            }
            Order::RemoveExport(key) => {
                self.with_protocols(now, memory, |protocols, context| {
                    protocols.remove_export(&key, context);
                });
                self.pending.push(Pending::Export { number, key });
                return;
            }
            Order::AnnounceExports => self.protocols.announce_exports(),
            Order::ConfigurationComplete => self.protocols.configuration_complete(),
            Order::AddListener { listener, listening } => {
                self.listeners.insert(listener, (listening.protocol(), listening.group()));
                self.protocols.add_listener(listener, listening);
            }
            Order::SetVirtualLinks(carrier) => self.set_virtual_links(now, carrier),
            Order::Route(router, change) => {
                if let Err(why) = self.route(now, router, *change) {
                    return self.answer(number, Answer::Refused(why));
                }
            }
            Order::ReportRouter(router) => {
                let report = self.frames.carrier.as_ref().and_then(|one| one.report(now, router));
                return self.answer(number, Answer::Router(report.map(Box::new)));
            }
            Order::RemoveListener(listener) => {
                self.listeners.remove(&listener);
                self.protocols.remove_listener(listener);
                let end = SessionEnd::ListenerRemoved;
                self.close_where(now, end, memory, |place| place.endpoint.listener == listener);
            }
            Order::CloseSessions { host } => {
                let closed = self.protocols.close_sessions(now, &host);
                return self.answer(number, Answer::Closed(closed));
            }
            Order::Drain => {
                self.draining = true;
                self.pending.push(Pending::Drain { number });
                self.close_where(now, SessionEnd::ServerStopping, memory, |_| true);
                self.imports.drain();
                return;
            }
            Order::Leave => {
                self.imports.close_all();
                self.pending.push(Pending::Leave { number, by: now + LEAVE });
                return;
            }
            Order::AddClient(client) => self.clients.push(client),
            Order::Report => {
                let report = Box::new(self.report());
                self.answer(number, Answer::Report(report));
                return;
            }
        }
        self.answer(number, Answer::Done);
    }

    /// Whoever is here may be another to reservations from now on. What is below was let through
    /// before, and is awaited by whatever is installed later.
    fn set_named_hosts(&mut self, now: Instant, hosts: NamedHosts, memory: &mut dyn Memory) {
        self.protocols.set_named_hosts(hosts);
        let sessions: Vec<Slot> = self.places.iter().map(|(slot, _)| slot).collect();
        for slot in sessions {
            self.with_session(now, slot, memory, |session, context| {
                session.handle_named_hosts(context);
            });
        }
    }

    /// Asks the sessions that `which` names to finish what is below and close.
    fn close_where(
        &mut self,
        now: Instant,
        end: SessionEnd,
        memory: &mut dyn Memory,
        which: impl Fn(&Place) -> bool,
    ) {
        let named = self.places.iter().filter(|(_, place)| which(place));
        let named: Vec<Slot> = named.map(|(slot, _)| slot).collect();
        for slot in named {
            self.with_session(now, slot, memory, |session, context| session.close(end, context));
        }
    }

    /// Answers orders that waited for something to drain.
    pub(super) fn answer_pending(&mut self, now: Instant) {
        if self.pending.is_empty() {
            return;
        }
        for pending in core::mem::take(&mut self.pending) {
            match pending {
                Pending::Quiesce { number, volume }
                    if self.volumes.is_drained(volume) || planted("volume-is-let-go-early") =>
                {
                    self.answer(number, Answer::Done);
                }
                Pending::Export { number, ref key }
                    if self.protocols.is_gone(key) || planted("export-is-gone-early") =>
                {
                    self.answer(number, Answer::Done);
                }
                Pending::Drain { number } if self.is_drained() => {
                    self.answer(number, Answer::Done);
                }
                Pending::Leave { number, by } if self.imports.is_empty() || by <= now => {
                    self.answer(number, Answer::Done);
                }
                waits => self.pending.push(waits),
            }
        }
    }

    /// Whether a shard that drains has finished.
    fn is_drained(&self) -> bool {
        let is_quiet = self.protocols.is_quiet() || planted("stop-forgets-frames");
        let are_quiet = self.imports.is_quiet() && self.elsewhere.is_quiet();
        self.places.is_empty() && are_quiet && is_quiet
    }

    /// How connections are, in the order of their places.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        let report = |(_, place): (Slot, &Place)| {
            Some(ConnectionReport {
                connection: place.socket?,
                listener: place.endpoint.listener,
                peer: place.endpoint.peer,
                pages: place.session.pages(),
                queue_depth: place.session.entries(),
                unsent_bytes: place.session.bytes_gathered() as u64,
            })
        };
        self.places.iter().filter_map(report)
    }

    /// How things are.
    pub fn report(&self) -> Report {
        let page = u64::from(PAGE_SIZE);
        Report {
            connections: self.connections().collect(),
            disks: self.disks(),
            volumes: self
                .members
                .keys()
                .filter_map(|volume| self.volume(VolumeId(*volume)))
                .collect(),
            pool: PoolCounters {
                pool_bytes: u64::from(self.pool.total()) * page,
                pool_used_bytes: u64::from(self.pool.used()) * page,
                pool_used_max_bytes: u64::from(self.pool.used_max()) * page,
                waits: self.pool.refusals(),
                waiting: self.lines.len() as u64,
            },
            counters: self.counters,
            hosts: self.hosts,
            imports: self.imports.report(),
            misfits: self.frames.misfits(),
            reservations: self.reservations.report(),
            paths: self.paths.in_force.clone(),
            protocols: self.protocols.report(self.places.iter().map(|(_, place)| &place.session)),
        }
    }

    fn volume(&self, volume: VolumeId) -> Option<VolumeReport> {
        let VolumeCounts { counters, errors, latencies } = self.volumes.counts(volume)?;
        Some(VolumeReport { volume, counters, errors, latencies: Box::new(*latencies) })
    }

    fn disks(&self) -> Vec<DiskReport> {
        let report = |gate: &volume::gate::Gate| DiskReport {
            disk: gate.disk,
            health: gate.health,
            protected: gate.protected(),
            counters: gate.counters,
            errors: gate.errors,
            latencies: gate.latencies.clone(),
        };
        self.volumes.gates().map(report).collect()
    }
}
