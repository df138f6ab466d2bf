//! Compare-and-write as one step across shards: the hold, the compare and the write under it, and
//! what waits meanwhile.
//!
//! The protocol between the shards is drawn in [`hold`](crate::hold).

use block::{Completion, Extent, Failure, Instant, Operation, Request, ShardId, Slot, VolumeId};

use super::Volumes;
use crate::flight::{CompareAndWrite, Flight, Step, What};
use crate::latency::Class;
use crate::message::{HoldId, Message};

impl Volumes {
    pub(super) fn compare_and_write(&mut self, now: Instant, volume: VolumeId, request: Request) {
        let Request { ticket, operation } = request;
        let Operation::CompareAndWrite { extent, expected, replacement, durable } = operation
        else {
            unreachable!("only compare-and-writes come here");
        };
        let found = &mut self.volumes[volume.0];
        found.in_flight += 1;
        let disk = found.layout.first_piece(extent).disk;
        let hold = HoldId { shard: self.shard, number: self.next_hold };
        self.next_hold += 1;
        let step = Step::Holding;
        let what =
            What::CompareAndWrite(Box::new(CompareAndWrite { hold, expected, replacement, step }));
        let slot = self.note(Flight {
            ticket,
            volume,
            disk,
            extent,
            number: 0,
            begun: now,
            changes_data: false,
            durable,
            class: Class::Write,
            what,
        });
        self.holding.push((hold, slot));
        self.tell_owner(now, volume, Message::HoldAsk { volume, hold, extent });
    }

    /// The hold of a compare-and-write stands: it compares.
    pub(super) fn begin_compare(&mut self, now: Instant, hold: HoldId) {
        let Some((_, slot)) = self.holding.iter().find(|(holding, _)| *holding == hold) else {
            return;
        };
        let (slot, ticket) = (*slot, self.flight_ticket(*slot));
        let flight = self.flights.get_mut(slot).expect("what holds is in flight");
        let (volume, extent) = (flight.volume, flight.extent);
        let work = flight.compare_and_write();
        work.step = Step::Comparing;
        let buffer = core::mem::take(&mut *work.expected);
        let operation = Operation::Compare { extent, buffer };
        self.dispatch_later(now, volume, extent, Request { ticket, operation });
    }

    /// A step of a compare-and-write came back.
    pub(super) fn next_step(&mut self, now: Instant, slot: Slot, completion: Completion) {
        let ticket = self.flight_ticket(slot);
        let flight = self.flights.get_mut(slot).expect("its step came back");
        let (volume, extent, durable) = (flight.volume, flight.extent, flight.durable);
        let work = flight.compare_and_write();
        match work.step {
            Step::Holding => unreachable!("a step came back before the hold stood"),
            Step::Comparing => {
                *work.expected = completion.buffer;
                if completion.outcome.is_done() {
                    work.step = Step::Writing;
                    let buffer = core::mem::take(&mut work.replacement);
                    let operation = Operation::Write { extent, buffer, durable };
                    let request = Request { ticket, operation };
                    return self.dispatch_later(now, volume, extent, request);
                }
            }
            Step::Writing => work.replacement = completion.buffer,
        }
        let flight = self.flights.remove(slot).expect("it was there");
        let What::CompareAndWrite(work) = flight.what else {
            unreachable!("only compare-and-writes have steps");
        };
        self.holding.retain(|(hold, _)| *hold != work.hold);
        let found = &mut self.volumes[volume.0];
        found.in_flight -= 1;
        found.ended(Class::Write, now.0.saturating_sub(flight.begun.0), completion.outcome);
        self.outbox.complete.push(Completion {
            ticket: flight.ticket,
            outcome: completion.outcome,
            buffer: work.replacement,
            expected: Some(work.expected),
        });
        self.tell_owner(now, volume, Message::Release { volume, hold: work.hold });
    }

    /// A message about holds.
    pub(super) fn handle_hold(&mut self, now: Instant, message: Message) {
        match message {
            Message::HoldAsk { volume, hold, extent } => {
                let server = self.servers.entry(volume.0).or_default();
                if server.ask(hold, extent, self.shards) {
                    self.send_all(now, Message::Hold { volume, hold, extent });
                }
            }
            Message::Hold { volume, hold, extent } => {
                let overlapping = |(_, flight): &(Slot, &Flight)| {
                    flight.volume == volume && flight.changes_data && flight.extent.overlaps(extent)
                };
                let in_flight = self.flights.iter().filter(overlapping).count() as u32;
                // A shard that does not know the volume (yet, or any more) has nothing in flight.
                let is_ready = self.volumes.get_mut(volume.0).is_none_or(|found| {
                    found.held.begin(hold, extent, self.next_number, in_flight)
                });
                if is_ready {
                    self.tell_owner(now, volume, Message::HoldReady { volume, hold });
                }
            }
            Message::HoldReady { volume, hold } => {
                let server = self.servers.entry(volume.0).or_default();
                if server.ready(hold) {
                    self.send(now, hold.shard, Message::HoldGranted { volume, hold });
                }
            }
            Message::HoldGranted { hold, .. } => self.begin_compare(now, hold),
            Message::Release { volume, hold } => {
                // From the asker to the owner, and from the owner to everybody: an owner that hears
                // it from itself or as the first tells the others.
                let is_owner = ShardId::owner_of(volume.0, self.shards) == self.shard;
                if is_owner {
                    self.send_others(message);
                }
                self.end_hold(now, volume, hold);
                if is_owner {
                    let server = self.servers.entry(volume.0).or_default();
                    for (hold, extent) in server.release(hold, self.shards) {
                        self.send_all(now, Message::Hold { volume, hold, extent });
                    }
                }
            }
            Message::FlushAsk { .. } | Message::FlushAnswer { .. } | Message::Protect { .. } => {
                unreachable!("no message about holds")
            }
        }
    }

    /// Submits what was judged a while ago: the volume may have shrunk since, or be about to go.
    fn dispatch_later(&mut self, now: Instant, volume: VolumeId, extent: Extent, request: Request) {
        let found = &self.volumes[volume.0];
        if found.removed {
            self.refuse(now, volume, request, Failure::Removed);
        } else if extent.fits(found.layout.size()) {
            self.dispatch(now, volume, extent, request);
        } else {
            self.refuse(now, volume, request, Failure::OutOfRange);
        }
    }

    fn end_hold(&mut self, now: Instant, volume: VolumeId, hold: HoldId) {
        let Some(found) = self.volumes.get_mut(volume.0) else { return };
        for request in found.held.end(hold) {
            // What waited was counted when it came.
            let held = &mut self.volumes[volume.0].held;
            match request.operation.extent() {
                Some(extent) if held.blocks(extent) => held.wait(request),
                Some(extent) => self.dispatch_later(now, volume, extent, request),
                None => self.handle_request(now, volume, request),
            }
        }
    }
}
