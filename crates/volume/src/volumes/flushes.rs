//! Flushes, grouped by the gates, and what follows when one fails: the disk takes no more writes,
//! on any shard.

use block::{
    Buffer, Completion, DiskId, Extent, Failure, Instant, Operation, Outcome, Request, Ticket,
    VolumeId,
};

use super::{Notice, Volumes};
use crate::gate::{Gate, Start, Waiter};
use crate::latency::Class;
use crate::message::Message;

impl Volumes {
    pub(super) fn flush(&mut self, now: Instant, volume: VolumeId, request: Request) {
        let members = self.volumes[volume.0].layout.members().iter();
        let gates: Vec<&Gate> = members.map(|member| &self.gates[member.disk.0]).collect();
        // After a failed flush nothing may claim that what was written before is durable.
        if gates.iter().any(|gate| gate.failed().is_some()) {
            return self.refuse(now, volume, request, Failure::MediumWrite);
        }
        let volatile = gates.iter().filter(|gate| !gate.is_write_through());
        let disks: Vec<DiskId> = volatile.map(|gate| gate.disk).collect();
        let Some(first) = disks.first() else {
            self.volumes[volume.0].latencies.of_mut(Class::Flush).record_at_once();
            return self.deliver(now, request.complete(Outcome::Done));
        };
        let first = (volume, *first);
        let parent =
            self.begin_joined(now, first, request.ticket, (Class::Flush, None), disks.len());
        for disk in disks {
            let at = (volume, disk, Extent::default());
            let ticket = self.begin_piece(now, at, (parent, 0), (Class::Flush, false));
            self.join_flush(now, disk, Waiter::Here(ticket));
        }
    }

    /// Lets somebody wait for the disk's next flush, and starts it if none runs.
    pub(super) fn join_flush(&mut self, now: Instant, disk: DiskId, waiter: Waiter) {
        if self.gates[disk.0].flush(waiter) == Start::Flush {
            self.start_flush(now, disk);
        }
    }

    pub(super) fn start_flush(&mut self, now: Instant, disk: DiskId) {
        let owner = disk.owner(self.shards);
        if owner != self.shard {
            self.outbox.messages.push((owner, Message::FlushAsk { disk }));
            return;
        }
        self.gates[disk.0].flush_begun = now;
        let ticket =
            Ticket { machine: self.gates_machine, generation: 0, slot: disk.0, shard: self.shard };
        self.outbox.submit.push((disk, Request { ticket, operation: Operation::Flush }));
    }

    /// The flush that a gate waited for is over.
    pub(super) fn flushed(&mut self, now: Instant, disk: DiskId, failure: Option<Failure>) {
        let Some(gate) = self.gates.get_mut(disk.0) else { return };
        let (waiters, start) = gate.flushed();
        if start == Start::Flush {
            self.start_flush(now, disk);
        }
        self.tell_flushed(now, disk, waiters, failure);
    }

    fn tell_flushed(
        &mut self,
        now: Instant,
        disk: DiskId,
        mut waiters: Vec<Waiter>,
        failure: Option<Failure>,
    ) {
        let outcome = failure.map_or(Outcome::Done, Outcome::NotDone);
        for waiter in waiters.drain(..) {
            match waiter {
                Waiter::Here(ticket) => {
                    let mut completion = Completion::new(ticket, outcome, Buffer::empty());
                    if self.handle_completion(now, &mut completion) {
                        self.outbox.complete.push(completion);
                    }
                }
                Waiter::Shard(shard) => {
                    self.outbox.messages.push((shard, Message::FlushAnswer { disk, failure }));
                }
            }
        }
        if let Some(gate) = self.gates.get_mut(disk.0) {
            gate.reuse(waiters);
        }
    }

    /// A disk failed to make writes durable: no more writes, on any shard, and no flush that waits
    /// is told that it is done.
    pub(super) fn protect(&mut self, now: Instant, disk: DiskId, failure: Failure, tell: bool) {
        let Some(gate) = self.gates.get_mut(disk.0) else { return };
        let (is_news, waiters) = gate.fail(failure);
        if is_news {
            self.outbox.notices.push(Notice::Protected(disk, failure));
            if tell {
                self.send_others(Message::Protect { disk, failure });
            }
        }
        self.tell_flushed(now, disk, waiters, Some(failure));
    }
}
