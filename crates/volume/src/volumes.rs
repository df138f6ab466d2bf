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

mod flushes;
mod holding;
mod pieces;

use std::collections::BTreeMap;

use block::limits::{DISK_SLOW, DISK_STUCK};
use block::{
    ByteCount, Completion, Extent, Failure, IdMap, Instant, MachineId, Memory, Operation, Outcome,
    Request, ShardId, Slot, Table, Ticket, VolumeId, planted,
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

    /// Where a read finds what can be lent; see [`Submit::find_loan`](block::Submit::find_loan). No
    /// hold stands in the way of a read, and what is lent is never in flight.
    #[inline]
    pub fn find_loan(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let (disk, place) = self.find_memory(volume, extent, memory)?;
        self.count_lent(volume, disk, false, extent.length);
        Some((disk, place))
    }

    /// Where a write finds memory that takes it at once; see
    /// [`Submit::find_landing`](block::Submit::find_landing). A hold stands in its way, and a disk
    /// that takes no writes. What lands is never in flight.
    #[inline]
    pub fn find_landing(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let (disk, place) = self.find_memory(volume, extent, memory)?;
        let is_free = !self.volumes[volume.0].held.blocks(extent);
        let takes_writes = self.gates[disk.0].protected().is_none();
        (is_free && takes_writes).then_some((disk, place))
    }

    /// A write has landed.
    #[inline]
    pub fn landed(&mut self, volume: VolumeId, disk: DiskId, length: ByteCount) {
        self.count_lent(volume, disk, true, length);
    }

    /// The memory that holds all of `extent`, if one disk does that is memory.
    #[inline]
    fn find_memory(
        &self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let found = self.volumes.get(volume.0)?;
        if found.removed || extent.length.0 == 0 || !extent.fits(found.layout.size()) {
            return None;
        }
        let piece = found.layout.first_piece(extent);
        let is_whole = piece.extent.length == extent.length;
        let is_memory = is_whole && memory.can_lend(piece.disk, piece.extent);
        is_memory.then_some((piece.disk, piece.extent))
    }

    #[inline]
    fn count_lent(&mut self, volume: VolumeId, disk: DiskId, changes: bool, length: ByteCount) {
        let class = Class::changing(changes);
        let (found, gate) = (&mut self.volumes[volume.0], &mut self.gates[disk.0]);
        found.counters.count(changes, length.0);
        found.latencies.of_mut(class).record_at_once();
        gate.counters.count(changes, length.0);
        gate.latencies.of_mut(class).record_at_once();
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

    /// A disk answered a request that came from here. Returns whether the asker of a volume is to
    /// be told, by what `completion` has become: it is changed where it lies, since moving it costs
    /// more. What else follows is in the outbox.
    #[inline]
    pub fn handle_completion(&mut self, now: Instant, completion: &mut Completion) -> bool {
        let (ticket, outcome) = (completion.ticket, completion.outcome);
        if ticket.machine == self.gates_machine {
            self.flush_answered(now, DiskId(ticket.slot), outcome);
            return false;
        }
        let slot = Slot { index: ticket.slot, generation: ticket.generation };
        let flight = self.flights.remove(slot).expect("a disk answers each request once");
        if flight.class != Class::Flush
            && let Some(gate) = self.gates.get_mut(flight.disk.0)
        {
            gate.latencies.of_mut(flight.class).record(now.0.saturating_sub(flight.begun.0));
        }
        if !outcome.is_done() {
            self.note_failure(now, &flight, outcome);
        } else if flight.durable
            && let Some(failure) = self.gates.get(flight.disk.0).and_then(Gate::lost)
        {
            completion.outcome = Outcome::Unknown(failure);
        }
        self.end_flight(now, flight, completion)
    }

    fn flush_answered(&mut self, now: Instant, disk: DiskId, outcome: Outcome) {
        let failure = match outcome {
            Outcome::Done => None,
            other => Some(other.failure().unwrap_or(Failure::Internal)),
        };
        if let Some(gate) = self.gates.get_mut(disk.0) {
            let time = now.0.saturating_sub(gate.flush_begun.0);
            gate.latencies.of_mut(Class::Flush).record(time);
        }
        if let Some(failure) = failure {
            self.tell_error(now, disk, Extent::default(), failure);
            self.protect(now, disk, failure, true);
        }
        self.flushed(now, disk, failure);
    }

    fn tell_error(&mut self, now: Instant, disk: DiskId, extent: Extent, failure: Failure) {
        let gate = self.gates.get_mut(disk.0);
        let told = gate.and_then(|gate| gate.error(now, extent, failure));
        self.outbox.notices.extend(told.map(Notice::Error));
    }

    #[cold]
    fn note_failure(&mut self, now: Instant, flight: &Flight, outcome: Outcome) {
        let Some(failure) = outcome.failure() else { return };
        if let Some(gate) = self.gates.get_mut(flight.disk.0) {
            gate.counters.errors += 1;
            gate.errors.count(outcome);
        }
        if let Some(extent) = self.place_of(flight) {
            self.tell_error(now, flight.disk, extent, failure);
        }
        let lost = match outcome {
            Outcome::NotDone(failure @ (Failure::MediumWrite | Failure::Internal))
            | Outcome::Unknown(failure) => Some(failure),
            _ => None,
        };
        if let (true, Some(failure)) = (flight.durable, lost) {
            self.protect(now, flight.disk, failure, true);
        }
    }

    /// Where on its disk a flight was; `None` of one that waited for a flush, of which who ran it
    /// tells.
    fn place_of(&self, flight: &Flight) -> Option<Extent> {
        match flight.what {
            What::Piece { .. } => Some(flight.extent).filter(|extent| extent.length.0 > 0),
            // The volume may have shrunk since.
            _ => {
                let layout = &self.volumes.get(flight.volume.0)?.layout;
                let is_within = flight.extent.fits(layout.size());
                is_within.then(|| layout.first_piece(flight.extent).extent)
            }
        }
    }

    /// A flight has come back: makes of its completion what whoever waits for it is to be told, and
    /// says whether somebody is.
    #[inline]
    fn end_flight(&mut self, now: Instant, flight: Flight, completion: &mut Completion) -> bool {
        match flight.what {
            What::Whole => self.end_request(now, &flight, completion),
            What::Piece { parent, start } => {
                let joined = self.flights.get_mut(parent).expect("a request outlives its pieces");
                let What::Joined(join) = &mut joined.what else {
                    unreachable!("pieces belong to requests in pieces");
                };
                let part = core::mem::take(&mut completion.buffer);
                let Some(whole) = join.came_back(start, completion.outcome, part) else {
                    return false;
                };
                (completion.outcome, completion.buffer) = whole;
                let flight = self.flights.remove(parent).expect("it was there");
                self.end_request(now, &flight, completion)
            }
            What::Joined(_) | What::CompareAndWrite(_) => {
                unreachable!("no disk was asked under this ticket")
            }
        }
    }

    /// A request is done: counts it out of its volume, and tells the holds that waited for it if it
    /// may have changed data.
    #[inline]
    fn end_request(&mut self, now: Instant, flight: &Flight, completion: &mut Completion) -> bool {
        let Flight { ticket, volume, extent, number, changes_data, class, begun, .. } = *flight;
        let found = &mut self.volumes[volume.0];
        found.in_flight -= 1;
        // A step of a compare-and-write is none of the volume's requests.
        let is_step = ticket.machine == self.flights_machine;
        if !is_step {
            found.ended(class, now.0.saturating_sub(begun.0), completion.outcome);
        }
        if changes_data {
            for hold in found.held.came_back(extent, number) {
                self.tell_owner(now, volume, Message::HoldReady { volume, hold });
            }
        }
        (completion.ticket, completion.expected) = (ticket, None);
        if is_step {
            let buffer = core::mem::take(&mut completion.buffer);
            self.deliver(now, Completion::new(ticket, completion.outcome, buffer));
        }
        !is_step
    }

    /// A completion for a compare-and-write of ours is its next step; any other is for whoever
    /// asked the volume.
    fn deliver(&mut self, now: Instant, completion: Completion) {
        if completion.ticket.machine != self.flights_machine {
            return self.outbox.complete.push(completion);
        }
        let slot = Slot { index: completion.ticket.slot, generation: completion.ticket.generation };
        self.next_step(now, slot, completion);
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
