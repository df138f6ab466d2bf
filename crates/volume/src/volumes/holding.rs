//! Compare-and-write as one step across shards: the hold, the compare and the write under it, and
//! what waits meanwhile.
//!
//! The protocol between the shards is drawn in [`hold`](crate::hold).

use block::{Completion, Extent, Failure, Instant, Operation, Request, ShardId, Slot, VolumeId};

use super::{Outbox, Volume, Volumes};
use crate::flight::{CompareAndWrite, Flight, Step, What};
use crate::message::{HoldId, Message};

impl Volumes {
    pub(super) fn compare_and_write(
        &mut self,
        now: Instant,
        index: u32,
        request: Request,
        out: &mut Outbox,
    ) {
        let Request { ticket, operation } = request;
        let Operation::CompareAndWrite { extent, expected, replacement, durable } = operation
        else {
            unreachable!("only compare-and-writes come here");
        };
        let volume = self.volumes[index as usize].as_mut().expect("the caller found it");
        volume.in_flight += 1;
        let disk = volume.layout.first_piece(extent).disk;
        let hold = HoldId { shard: self.shard, number: self.next_hold };
        self.next_hold += 1;
        let step = Step::Holding;
        let what =
            What::CompareAndWrite(Box::new(CompareAndWrite { hold, expected, replacement, step }));
        let slot = self.flights.insert(Flight {
            ticket,
            volume: index,
            disk,
            extent,
            number: self.next_number,
            begun: now,
            changes_data: false,
            durable,
            what,
        });
        self.next_number += 1;
        self.holding.push((hold, slot));
        let ask = Message::HoldAsk { volume: VolumeId(index), hold, extent };
        self.send(now, ShardId::owner_of(index, self.shards), ask, out);
    }

    /// The hold of a compare-and-write stands: it compares.
    pub(super) fn begin_compare(&mut self, now: Instant, hold: HoldId, out: &mut Outbox) {
        let Some((_, slot)) = self.holding.iter().find(|(holding, _)| *holding == hold) else {
            return;
        };
        let (slot, ticket) = (*slot, self.flight_ticket(*slot));
        let flight = self.flights.get_mut(slot).expect("what holds is in flight");
        let What::CompareAndWrite(work) = &mut flight.what else {
            unreachable!("only compare-and-writes hold");
        };
        work.step = Step::Comparing;
        let (index, extent) = (flight.volume, flight.extent);
        let buffer = core::mem::take(&mut *work.expected);
        let operation = Operation::Compare { extent, buffer };
        self.dispatch_later(now, index, extent, Request { ticket, operation }, out);
    }

    /// A step of a compare-and-write came back.
    pub(super) fn next_step(
        &mut self,
        now: Instant,
        slot: Slot,
        completion: Completion,
        out: &mut Outbox,
    ) {
        let ticket = self.flight_ticket(slot);
        let flight = self.flights.get_mut(slot).expect("its step came back");
        let (index, extent, durable) = (flight.volume, flight.extent, flight.durable);
        let What::CompareAndWrite(work) = &mut flight.what else {
            unreachable!("only compare-and-writes have steps");
        };
        match work.step {
            Step::Holding => unreachable!("a step came back before the hold stood"),
            Step::Comparing => {
                *work.expected = completion.buffer;
                if completion.outcome.is_done() {
                    work.step = Step::Writing;
                    let buffer = core::mem::take(&mut work.replacement);
                    let operation = Operation::Write { extent, buffer, durable };
                    self.dispatch_later(now, index, extent, Request { ticket, operation }, out);
                    return;
                }
            }
            Step::Writing => work.replacement = completion.buffer,
        }
        let flight = self.flights.remove(slot).expect("it was there");
        let What::CompareAndWrite(work) = flight.what else {
            unreachable!("only compare-and-writes have steps");
        };
        self.holding.retain(|(hold, _)| *hold != work.hold);
        if let Some(volume) = self.volume_mut(index) {
            volume.in_flight -= 1;
        }
        let whole = Completion {
            ticket: flight.ticket,
            outcome: completion.outcome,
            buffer: work.replacement,
            expected: Some(work.expected),
        };
        out.complete.push(whole);
        let release = Message::Release { volume: VolumeId(index), hold: work.hold };
        self.send(now, ShardId::owner_of(index, self.shards), release, out);
    }

    /// A message about holds.
    pub(super) fn handle_hold(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match message {
            Message::HoldAsk { volume, hold, extent } => {
                let server = self.servers.entry(volume.0).or_default();
                if server.ask(hold, extent, self.shards) {
                    self.send_all(now, Message::Hold { volume, hold, extent }, out);
                }
            }
            Message::Hold { volume, hold, extent } => {
                let (since, index) = (self.next_number, volume.0);
                let overlapping = |flight: &Flight| {
                    flight.volume == index && flight.changes_data && flight.extent.overlaps(extent)
                };
                let in_flight =
                    self.flights.iter().filter(|(_, flight)| overlapping(flight)).count() as u32;
                // A shard that does not know the volume (yet, or any more) has nothing in flight.
                let ready = match self.volume_mut(index) {
                    Some(volume) => volume.held.begin(hold, extent, since, in_flight),
                    None => true,
                };
                if ready {
                    let message = Message::HoldReady { volume, hold };
                    self.send(now, ShardId::owner_of(index, self.shards), message, out);
                }
            }
            Message::HoldReady { volume, hold } => {
                let server = self.servers.entry(volume.0).or_default();
                if server.ready(hold) {
                    self.send(now, hold.shard, Message::HoldGranted { volume, hold }, out);
                }
            }
            Message::HoldGranted { hold, .. } => self.begin_compare(now, hold, out),
            Message::Release { volume, hold } => {
                // From the asker to the owner, and from the owner to everybody: an owner that hears
                // it from itself or as the first tells the others.
                let is_owner = ShardId::owner_of(volume.0, self.shards) == self.shard;
                if is_owner {
                    for shard in (0..self.shards).map(ShardId).filter(|s| *s != self.shard) {
                        out.messages.push((shard, message));
                    }
                }
                self.end_hold(now, volume, hold, out);
                if is_owner {
                    let server = self.servers.entry(volume.0).or_default();
                    for (hold, extent) in server.release(hold, self.shards) {
                        self.send_all(now, Message::Hold { volume, hold, extent }, out);
                    }
                }
            }
            Message::FlushAsk { .. } | Message::FlushAnswer { .. } | Message::Protect { .. } => {
                unreachable!("no message about holds")
            }
        }
    }

    /// Submits what was judged a while ago: the volume may have shrunk since, or be
    /// about to go.
    fn dispatch_later(
        &mut self,
        now: Instant,
        index: u32,
        extent: Extent,
        request: Request,
        out: &mut Outbox,
    ) {
        let volume = self.volume_mut(index).expect("it has something in flight or waiting");
        if volume.removed {
            self.refuse(request, Failure::Removed, now, out);
        } else if extent.fits(volume.layout.size()) {
            self.dispatch(now, index, extent, request, out);
        } else {
            self.refuse(request, Failure::OutOfRange, now, out);
        }
    }

    fn end_hold(&mut self, now: Instant, volume: VolumeId, hold: HoldId, out: &mut Outbox) {
        let Some(found) = self.volume_mut(volume.0) else { return };
        for request in found.held.end(hold) {
            // What waited was counted when it came.
            let extent = request.operation.extent();
            match extent {
                Some(extent) if found_blocks(self.volume_mut(volume.0), extent) => {
                    let volume = self.volume_mut(volume.0).expect("it blocks");
                    volume.held.wait(request);
                }
                Some(extent) => self.dispatch_later(now, volume.0, extent, request, out),
                None => self.handle_request(now, volume, request, out),
            }
        }
    }
}

fn found_blocks(volume: Option<&mut Volume>, extent: Extent) -> bool {
    volume.is_some_and(|volume| volume.held.blocks(extent))
}
