//! Flushes, grouped by the gates, and what follows when one fails: the disk takes no more writes,
//! on any shard.

use block::{
    Buffer, Completion, Extent, Failure, Instant, Operation, Outcome, Request, ShardId, Ticket,
};
use contract::DiskId;

use super::{Notice, Outbox, Volumes};
use crate::flight::{Flight, Join, What};
use crate::gate::{Start, Waiter};
use crate::message::Message;

impl Volumes {
    pub(super) fn flush(&mut self, now: Instant, index: u32, ticket: Ticket, out: &mut Outbox) {
        let volume = self.volumes[index as usize].as_mut().expect("the caller found it");
        let gates = &self.gates;
        let gate =
            |disk: DiskId| gates[disk.0 as usize].as_ref().expect("a member's disk is there");
        let disks: Vec<DiskId> = volume.layout.members().iter().map(|member| member.disk).collect();
        // After a failed flush nothing may claim that what was written before is durable.
        if disks.iter().any(|disk| gate(*disk).failed().is_some()) {
            let failed = Outcome::NotDone(Failure::MediumWrite);
            self.deliver(now, Completion::new(ticket, failed, Buffer::empty()), out);
            return;
        }
        let volatile: Vec<DiskId> =
            disks.into_iter().filter(|disk| !gate(*disk).is_write_through()).collect();
        let Some(first) = volatile.first().copied() else {
            self.deliver(now, Completion::new(ticket, Outcome::Done, Buffer::empty()), out);
            return;
        };
        volume.in_flight += 1;
        let mut join = Box::new(Join::new());
        for _ in &volatile {
            join.push(0);
        }
        let parent = self.flights.insert(Flight {
            ticket,
            volume: index,
            disk: first,
            extent: Extent::default(),
            number: self.next_number,
            begun: now,
            changes_data: false,
            durable: false,
            what: What::Joined(join),
        });
        self.next_number += 1;
        for (piece_index, disk) in volatile.into_iter().enumerate() {
            let ticket = self.take_off(Flight {
                ticket: Ticket::default(),
                volume: index,
                disk,
                extent: Extent::default(),
                number: 0,
                begun: now,
                changes_data: false,
                durable: false,
                what: What::Piece { parent, index: piece_index as u32 },
            });
            self.join_flush(disk, Waiter::Here(ticket), out);
        }
    }

    /// Lets somebody wait for the disk's next flush, and starts it if none runs.
    pub(super) fn join_flush(&mut self, disk: DiskId, waiter: Waiter, out: &mut Outbox) {
        let gate = self.gate_mut(disk).expect("the caller found the disk");
        if gate.flush(waiter) == Start::Flush {
            self.start_flush(disk, out);
        }
    }

    pub(super) fn start_flush(&mut self, disk: DiskId, out: &mut Outbox) {
        let owner = disk.owner(self.shards);
        if owner != self.shard {
            out.messages.push((owner, Message::FlushAsk { disk }));
            return;
        }
        let ticket =
            Ticket { machine: self.gates_machine, generation: 0, slot: disk.0, shard: self.shard };
        out.submit.push((disk, Request { ticket, operation: Operation::Flush }));
    }

    /// The flush that a gate waited for is over.
    pub(super) fn flushed(
        &mut self,
        now: Instant,
        disk: DiskId,
        failure: Option<Failure>,
        out: &mut Outbox,
    ) {
        let Some(gate) = self.gate_mut(disk) else { return };
        let (waiters, start) = gate.flushed();
        if start == Start::Flush {
            self.start_flush(disk, out);
        }
        self.tell_flushed(now, disk, waiters, failure, out);
    }

    fn tell_flushed(
        &mut self,
        now: Instant,
        disk: DiskId,
        mut waiters: Vec<Waiter>,
        failure: Option<Failure>,
        out: &mut Outbox,
    ) {
        let outcome = failure.map_or(Outcome::Done, Outcome::NotDone);
        for waiter in waiters.drain(..) {
            match waiter {
                Waiter::Here(ticket) => {
                    let completion = Completion::new(ticket, outcome, Buffer::empty());
                    let told = self.handle_completion(now, completion, out);
                    out.complete.extend(told);
                }
                Waiter::Shard(shard) => {
                    out.messages.push((shard, Message::FlushAnswer { disk, failure }));
                }
            }
        }
        if let Some(gate) = self.gate_mut(disk) {
            gate.reuse(waiters);
        }
    }

    /// A disk failed to make writes durable: no more writes, on any shard, and no flush that waits
    /// is told that it is done.
    pub(super) fn protect(
        &mut self,
        now: Instant,
        disk: DiskId,
        failure: Failure,
        tell: bool,
        out: &mut Outbox,
    ) {
        let Some(gate) = self.gate_mut(disk) else { return };
        let (is_news, waiters) = gate.fail(failure);
        if is_news {
            out.notices.push(Notice::Protected(disk, failure));
            if tell {
                let shard = self.shard;
                let others = (0..self.shards).map(ShardId).filter(|other| *other != shard);
                let message = Message::Protect { disk, failure };
                out.messages.extend(others.map(|other| (other, message)));
            }
        }
        self.tell_flushed(now, disk, waiters, Some(failure), out);
    }
}
