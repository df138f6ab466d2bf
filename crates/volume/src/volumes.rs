//! A shard's part of all volumes: requests to volumes come in, requests to disks go out, and their
//! completions become one each.
//!
//! In: requests with their volume, completions of disks, messages of other shards. Out: an
//! [`Outbox`]. Units: bytes. Order of calls: any; whoever calls empties the outbox afterwards.
//! Errors: a request that cannot be submitted is completed with the reason, at once. A volume
//! promises about overlapping requests in flight only that each block ends as one of them.
//!
//! The way of a plain request: [`Volumes::handle_request`] finds the volume, checks size, gate and
//! holds, finds that all of it lies on one disk, notes a flight and submits it under a ticket of
//! its own; [`Volumes::handle_completion`] finds the flight and gives the asker's ticket back.

mod coming_back;
mod flushes;
mod holding;
mod lending;
mod pieces;

use std::collections::BTreeMap;

use block::limits::{DISK_SLOW, DISK_STUCK};
use block::{
    ByteCount, Completion, Extent, Failure, IdMap, Instant, MachineId, Operation, Outcome, Request,
    ShardId, Slot, Table, Ticket, VolumeId, planted,
};
use contract::{Ask, DiskFacts, DiskId};

use crate::flight::{Flight, What};
use crate::gate::{DiskError, ErrorCounters, Gate, Health, RequestCounters, Waiter};
use crate::hold::{Held, Server};
use crate::latency::{Class, Latencies};
use crate::layout::Layout;
use crate::message::{HoldId, Message};

/// What volumes want done. Whoever calls them empties it.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Requests for disks.
    pub submit: Vec<Ask>,
    /// Answers to requests that volumes were asked.
    pub complete: Vec<Completion>,
    /// Messages for other shards.
    pub messages: Vec<(ShardId, Message)>,
    /// News of disks.
    pub notices: Vec<Notice>,
}

/// News of a disk on this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// How it is doing changed.
    Health(DiskId, Health),
    /// Something went wrong at it.
    Error(DiskError),
    /// It takes no more writes.
    Protected(DiskId, Failure),
}

impl Outbox {
    /// Whether there is nothing but requests for disks, which may wait to be taken in bulk.
    #[inline]
    pub fn has_only_requests(&self) -> bool {
        self.complete.is_empty() && self.messages.is_empty() && self.notices.is_empty()
    }

    /// Answers a request that is not submitted.
    fn refuse(&mut self, request: Request, why: Failure) {
        self.complete.push(request.complete(Outcome::NotDone(why)));
    }
}

/// A volume as a shard knows it.
#[derive(Debug)]
struct Volume {
    layout: Layout,
    held: Held,
    in_flight: u32,
    removed: bool,
    counters: RequestCounters,
    errors: ErrorCounters,
    latencies: Box<Latencies>,
}

impl Volume {
    /// A request as it was asked has ended, after so long.
    #[inline]
    fn ended(&mut self, class: Class, time: u64, outcome: Outcome) {
        self.latencies.of_mut(class).record(time);
        if !outcome.is_done() {
            self.failed(outcome);
        }
    }

    #[cold]
    fn failed(&mut self, outcome: Outcome) {
        // What differs was compared all the same.
        self.counters.errors += u64::from(outcome.failure().is_some());
        self.errors.count(outcome);
    }
}

/// What went through a volume on a shard, by requests as they were asked.
#[derive(Debug)]
pub struct VolumeCounts<'a> {
    pub counters: RequestCounters,
    pub errors: ErrorCounters,
    pub latencies: &'a Latencies,
}

/// The volumes and gates of one shard.
#[derive(Debug)]
pub struct Volumes {
    shard: ShardId,
    shards: u16,
    /// Tickets of flights carry this machine, and those of gates' flushes the other.
    flights_machine: MachineId,
    gates_machine: MachineId,
    volumes: IdMap<Volume>,
    gates: IdMap<Gate>,
    flights: Table<Flight>,
    /// The holds that this shard grants, by volume.
    servers: BTreeMap<u32, Server>,
    /// The compare-and-writes of this shard that wait for their hold or work under it.
    holding: Vec<(HoldId, Slot)>,
    next_number: u64,
    next_hold: u64,
    next_check: Option<Instant>,
    pub outbox: Outbox,
}

/// A request that has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// As it was asked.
    pub ticket: Ticket,
    /// Whether it may change data.
    pub changes_data: bool,
    /// Which of all that ever were in flight; `None` while it waits for a hold. Tickets are used
    /// again.
    pub number: Option<u64>,
}

impl Volumes {
    /// No volumes yet. Completions whose ticket names one of the two machines are for
    /// [`handle_completion`](Self::handle_completion).
    pub fn new(
        shard: ShardId,
        shards: u16,
        flights_machine: MachineId,
        gates_machine: MachineId,
    ) -> Volumes {
        Volumes {
            shard,
            shards,
            flights_machine,
            gates_machine,
            volumes: IdMap::default(),
            gates: IdMap::default(),
            flights: Table::new(),
            servers: BTreeMap::new(),
            holding: Vec::new(),
            next_number: 0,
            next_hold: 0,
            next_check: None,
            outbox: Outbox::default(),
        }
    }

    /// A disk is there.
    pub fn add_disk(&mut self, disk: DiskId, facts: DiskFacts) {
        let before = self.gates.insert(disk.0, Gate::new(disk, facts));
        assert!(before.is_none(), "disk {} was added twice", disk.0);
    }

    /// A disk was reopened; it takes writes again.
    pub fn renew_disk(&mut self, disk: DiskId, facts: DiskFacts) {
        if let Some(gate) = self.gates.get_mut(disk.0) {
            gate.renew(facts);
        }
    }

    /// A disk failed in an earlier life of the server, and takes no writes until it is renewed.
    /// Every shard is told.
    pub fn protect_disk(&mut self, now: Instant, disk: DiskId, failure: Failure) {
        self.protect(now, disk, failure, false);
    }

    /// A disk told that it is different now. If a failure protects it, it stays protected.
    pub fn follow_disk(&mut self, disk: DiskId, facts: DiskFacts) {
        if let Some(gate) = self.gates.get_mut(disk.0) {
            gate.facts = facts;
        }
    }

    /// A disk is gone; no volume uses it any more.
    pub fn remove_disk(&mut self, disk: DiskId) {
        self.gates.remove(disk.0);
    }

    /// A volume is there; its members' disks have been added.
    pub fn add_volume(&mut self, volume: VolumeId, layout: Layout) {
        let before = self.volumes.insert(
            volume.0,
            Volume {
                layout,
                held: Held::default(),
                in_flight: 0,
                removed: false,
                counters: RequestCounters::default(),
                errors: ErrorCounters::default(),
                latencies: Box::default(),
            },
        );
        assert!(before.is_none(), "volume {} was added twice", volume.0);
    }

    /// The volume has another layout of the same members, longer or shorter than before. Requests
    /// in flight end as they may.
    pub fn resize_volume(&mut self, volume: VolumeId, layout: Layout) {
        if let Some(found) = self.volumes.get_mut(volume.0) {
            found.layout = layout;
        }
    }

    /// No new request is submitted; what waits is answered. [`is_drained`](Self::is_drained) tells
    /// when nothing is in flight.
    pub fn remove_volume(&mut self, volume: VolumeId) {
        let Some(found) = self.volumes.get_mut(volume.0) else { return };
        found.removed = true;
        found
            .held
            .drain()
            .into_iter()
            .for_each(|request| self.outbox.refuse(request, Failure::Removed));
    }

    /// A removed volume that was not forgotten is there again, with what is still in flight of it.
    /// Returns whether it was there.
    pub fn resume_volume(&mut self, volume: VolumeId) -> bool {
        self.volumes.get_mut(volume.0).map(|found| found.removed = false).is_some()
    }

    /// Whether nothing of the volume is in flight.
    pub fn is_drained(&self, volume: VolumeId) -> bool {
        self.volumes.get(volume.0).is_none_or(|found| found.in_flight == 0)
    }

    /// Forgets a removed volume, which must be drained.
    pub fn forget_volume(&mut self, volume: VolumeId) {
        assert!(self.is_drained(volume), "volume {} has requests in flight", volume.0);
        self.volumes.remove(volume.0);
    }

    /// Bytes that the volume has.
    pub fn size(&self, volume: VolumeId) -> Option<ByteCount> {
        Some(self.volumes.get(volume.0)?.layout.size())
    }

    /// All gates, in the order of their disks' numbers, for reports.
    pub fn gates(&self) -> impl Iterator<Item = &Gate> {
        self.gates.iter().map(|(_, gate)| gate)
    }

    /// What went through a volume on this shard.
    pub fn counts(&self, volume: VolumeId) -> Option<VolumeCounts<'_>> {
        let Volume { counters, errors, latencies, .. } = self.volumes.get(volume.0)?;
        Some(VolumeCounts { counters: *counters, errors: *errors, latencies })
    }

    /// Requests and pieces that are in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Who has something of the volume here that has not come back, in flight or waiting for a
    /// hold.
    pub fn outstanding(&self, volume: VolumeId) -> impl Iterator<Item = Outstanding> {
        let waiting = self.volumes.get(volume.0).into_iter();
        let waiting = waiting.flat_map(|found| found.held.waiting());
        let waiting = waiting.map(|request| {
            let (ticket, changes_data) = (request.ticket, request.operation.changes_data());
            Outstanding { ticket, changes_data, number: None }
        });
        let asked = self.flights.iter().filter(move |(_, flight)| {
            let is_part = matches!(flight.what, What::Piece { .. })
                || flight.ticket.machine == self.flights_machine;
            flight.volume == volume && !is_part
        });
        let asked = asked.map(|(_, flight)| {
            let changes = flight.changes_data || matches!(flight.what, What::CompareAndWrite(_));
            let (ticket, number) = (flight.ticket, Some(flight.number));
            Outstanding { ticket, changes_data: changes, number }
        });
        waiting.chain(asked)
    }

    /// A request to a volume.
    pub fn handle_request(&mut self, now: Instant, volume: VolumeId, request: Request) {
        let found = self.volumes.get_mut(volume.0).filter(|found| !found.removed);
        let Some(found) = found else { return self.outbox.refuse(request, Failure::Removed) };
        let size = found.layout.size();
        if let Some(extent) = request.operation.extent() {
            if extent.length.0 == 0 || !extent.fits(size) {
                found.failed(Outcome::NotDone(Failure::OutOfRange));
                return self.outbox.refuse(request, Failure::OutOfRange);
            }
            let changes = request.operation.changes_data();
            found.counters.count(changes, request.operation.bytes());
            if let Operation::CompareAndWrite { .. } = request.operation {
                self.compare_and_write(now, volume, request);
            } else if changes && found.held.blocks(extent) && !planted("write-passes-hold") {
                found.held.wait(request);
            } else {
                self.dispatch(now, volume, extent, request);
            }
        } else if let Operation::Discard { extents } = &request.operation {
            if extents.iter().any(|extent| !extent.fits(size)) {
                found.failed(Outcome::NotDone(Failure::OutOfRange));
                self.outbox.refuse(request, Failure::OutOfRange);
            } else if found.held.blocks(Extent::new(0, size.0)) {
                found.held.wait(request);
            } else {
                self.discard(now, volume, request);
            }
        } else {
            found.counters.flushes += 1;
            self.flush(now, volume, request);
        }
    }

    /// Submits a request with an extent, whole or in pieces.
    #[inline]
    fn dispatch(&mut self, now: Instant, volume: VolumeId, extent: Extent, request: Request) {
        let found = &mut self.volumes[volume.0];
        let piece = found.layout.first_piece(extent);
        if piece.extent.length != extent.length {
            return self.dispatch_pieces(now, volume, extent, request);
        }
        let changes_data = request.operation.changes_data();
        let gate = &mut self.gates[piece.disk.0];
        if changes_data && gate.protected().is_some() {
            return self.refuse(now, volume, request, Failure::WriteProtected);
        }
        gate.counters.count(changes_data, request.operation.bytes());
        found.in_flight += 1;
        let asker = request.ticket;
        let durable = request.operation.is_durable();
        // Moved first and changed then: a move of what has just been written waits for the writes.
        self.outbox.submit.push((piece.disk, request));
        let ticket = self.take_off(Flight {
            ticket: asker,
            volume,
            disk: piece.disk,
            extent,
            number: 0,
            begun: now,
            changes_data,
            durable,
            class: Class::changing(changes_data),
            what: What::Whole,
        });
        let (_, request) = self.outbox.submit.last_mut().expect("it was just put there");
        request.ticket = ticket;
        request.operation.move_to(piece.extent);
    }

    /// Answers a request, maybe a step of our own, that is not submitted.
    #[cold]
    fn refuse(&mut self, now: Instant, volume: VolumeId, request: Request, failure: Failure) {
        let outcome = Outcome::NotDone(failure);
        if request.ticket.machine != self.flights_machine
            && let Some(found) = self.volumes.get_mut(volume.0)
        {
            found.failed(outcome);
        }
        self.deliver(now, request.complete(outcome));
    }

    /// Notes a flight, and gives it its number.
    #[inline]
    fn note(&mut self, mut flight: Flight) -> Slot {
        flight.number = self.next_number;
        self.next_number += 1;
        self.flights.insert(flight)
    }

    /// Notes a flight that a disk is to answer; returns the ticket under which it is submitted.
    #[inline]
    fn take_off(&mut self, flight: Flight) -> Ticket {
        if self.next_check.is_none() {
            self.next_check = Some(flight.begun + DISK_SLOW);
        }
        let slot = self.note(flight);
        self.flight_ticket(slot)
    }

    #[inline]
    fn flight_ticket(&self, slot: Slot) -> Ticket {
        Ticket {
            machine: self.flights_machine,
            generation: slot.generation,
            slot: slot.index,
            shard: self.shard,
        }
    }

    /// Sends a message; to this shard itself, by handling it.
    fn send(&mut self, now: Instant, to: ShardId, message: Message) {
        if to == self.shard {
            self.handle_message(now, to, message);
        } else {
            self.outbox.messages.push((to, message));
        }
    }

    /// Sends a message to the shard that grants the holds of a volume.
    fn tell_owner(&mut self, now: Instant, volume: VolumeId, message: Message) {
        self.send(now, ShardId::owner_of(volume.0, self.shards), message);
    }

    fn send_others(&mut self, message: Message) {
        let own = self.shard;
        let others = (0..self.shards).map(ShardId).filter(|other| *other != own);
        self.outbox.messages.extend(others.map(|other| (other, message)));
    }

    fn send_all(&mut self, now: Instant, message: Message) {
        for shard in 0..self.shards {
            self.send(now, ShardId(shard), message);
        }
    }

    /// A message from another shard (or from this one).
    pub fn handle_message(&mut self, now: Instant, from: ShardId, message: Message) {
        match message {
            Message::FlushAsk { disk } => {
                match self.gates.get(disk.0).map_or(Some(Failure::Removed), Gate::failed) {
                    None => self.join_flush(now, disk, Waiter::Shard(from)),
                    failure => {
                        self.outbox.messages.push((from, Message::FlushAnswer { disk, failure }))
                    }
                }
            }
            Message::FlushAnswer { disk, failure } => self.flushed(now, disk, failure),
            Message::Protect { disk, failure } => self.protect(now, disk, failure, false),
            message => self.handle_hold(now, message),
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called. `None` while nothing is
    /// in flight.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_check
    }

    /// Looks for disks that do not answer.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_check.is_none_or(|at| now < at) {
            return;
        }
        let mut oldest: BTreeMap<DiskId, Instant> = BTreeMap::new();
        for (_, flight) in self.flights.iter() {
            if matches!(flight.what, What::Whole | What::Piece { .. }) {
                let begun = oldest.entry(flight.disk).or_insert(flight.begun);
                *begun = flight.begun.min(*begun);
            }
        }
        for gate in self.gates.values_mut() {
            let age = oldest.get(&gate.disk).map(|begun| now.since(*begun)).unwrap_or_default();
            let health = match age {
                age if age >= DISK_STUCK => Health::Stuck,
                age if age >= DISK_SLOW => Health::Slow,
                _ => Health::Well,
            };
            if core::mem::replace(&mut gate.health, health) != health {
                self.outbox.notices.push(Notice::Health(gate.disk, health));
            }
        }
        let again = core::time::Duration::from_secs(1);
        self.next_check = (!oldest.is_empty()).then_some(now + again);
    }
}

#[cfg(test)]
mod tests;
