//! What disks answer: a flight ends, its pieces are joined, failures are noted, and whoever asked the
//! volume is told.

use block::{Completion, DiskId, Extent, Failure, Instant, Outcome, Slot};

use super::{Notice, Volumes};
use crate::flight::{Flight, What};
use crate::gate::Gate;
use crate::latency::Class;
use crate::message::Message;

impl Volumes {
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

    pub(super) fn tell_error(
        &mut self,
        now: Instant,
        disk: DiskId,
        extent: Extent,
        failure: Failure,
    ) {
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
    pub(super) fn end_request(
        &mut self,
        now: Instant,
        flight: &Flight,
        completion: &mut Completion,
    ) -> bool {
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
    pub(super) fn deliver(&mut self, now: Instant, completion: Completion) {
        if completion.ticket.machine != self.flights_machine {
            return self.outbox.complete.push(completion);
        }
        let slot = Slot { index: completion.ticket.slot, generation: completion.ticket.generation };
        self.next_step(now, slot, completion);
    }
}
