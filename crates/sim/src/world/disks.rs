//! Requests below: from their submission over the moment of their effect to their answer. Meanwhile
//! their buffers are lent.

use block::{Buffer, Failure, Instant, Operation, Outcome, Request};
use contract::{DiskId, Machine};

use super::{What, World};
use crate::disk::{SECTOR, SimDisk};

/// A request that a disk has.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) host: usize,
    pub(super) life: u32,
    pub(super) shard: usize,
    pub(super) disk: DiskId,
    pub(super) request: Request,
    pub(super) outcome: Option<Outcome>,
    /// Sectors of a write that have landed before the rest.
    pub(super) landed: u64,
    /// It is never answered, and takes no effect, not even when its host dies: how long a disk may
    /// hang and still write is a promise about the disk that nobody on the wire can check
    /// (docs/decisions/0006).
    pub(super) stuck: bool,
}

impl<M: Machine> World<M> {
    pub(super) fn submit(
        &mut self,
        host: usize,
        shard: usize,
        disk: DiskId,
        mut request: Request,
    ) -> bool {
        let life = self.hosts[host].life;
        let Some(behaviour) = self.hosts[host].disks.get(&disk).map(SimDisk::behaviour) else {
            let gone = request.complete(Outcome::NotDone(Failure::Removed));
            self.hosts[host].nodes[shard].completed(gone);
            return true;
        };
        // While it is lent, a buffer for reading is full of rubbish.
        if let Operation::Read { buffer, .. } = &mut request.operation {
            let memory = &mut self.hosts[host].nodes[shard].memory;
            memory.fill_with_rubbish(buffer, &mut self.random);
        }
        self.next_number += 1;
        let id = self.next_number;
        let stuck = self.random.chance(behaviour.sticks, 1000);
        let (outcome, landed) = (None, 0);
        let pending = Pending { host, life, shard, disk, request, outcome, landed, stuck };
        self.pending.insert(id, pending);
        if stuck {
            self.trace.note(Instant(self.now), "stuck", &[host as u64, u64::from(disk.0)]);
            return false;
        }
        if behaviour.latency_us == 0 || (behaviour.leases && self.random.chance(3, 4)) {
            self.apply(id);
            self.answer(id);
            return true;
        }
        let apply = self.draw_us(behaviour.latency_us);
        if behaviour.parts > 0 && apply > 0 && self.random.chance(behaviour.parts, 1000) {
            let part = self.random.below(apply);
            self.schedule(part, What::Part { id });
        }
        self.schedule(apply, What::Apply { id });
        let more = self.draw_us(behaviour.latency_us / 2);
        self.schedule(apply + more, What::Answer { id });
        false
    }

    /// The first part of a write takes effect.
    pub(super) fn land_part(&mut self, id: u64) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let Operation::Write { extent, buffer, durable: false } = &pending.request.operation else {
            return;
        };
        let host = &mut self.hosts[pending.host];
        let bytes = host.nodes[pending.shard].memory.bytes(buffer);
        let disk = host.disks.get_mut(&pending.disk).expect("disks stay");
        let most = self.random.below(bytes.len() as u64 / SECTOR as u64 + 1);
        pending.landed = disk.land_part(*extent, &bytes, most);
        self.injected.parts += u64::from(pending.landed > 0);
        self.trace.note(Instant(self.now), "part", &[extent.offset.0, pending.landed]);
    }

    /// A disk's request takes effect.
    pub(super) fn apply(&mut self, id: u64) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let host = &mut self.hosts[pending.host];
        let memory = &mut host.nodes[pending.shard].memory;
        let disk = host.disks.get_mut(&pending.disk).expect("disks stay");
        let Pending { request, landed, .. } = pending;
        let outcome = disk.perform(&mut request.operation, *landed, memory, &mut self.random);
        pending.outcome = Some(outcome);
        // What comes back from a write may hold anything, or be gone.
        if let Operation::Write { buffer, .. } = &mut pending.request.operation {
            if disk.behaviour().leases {
                memory.keep_pages(buffer);
            } else {
                memory.fill_with_rubbish(buffer, &mut self.random);
            }
        }
        let extent = pending.request.operation.extent().unwrap_or_default();
        self.trace.note(
            Instant(self.now),
            "disk",
            &[pending.host as u64, u64::from(pending.disk.0), extent.offset.0, extent.length.0],
        );
    }

    /// A disk answers.
    pub(super) fn answer(&mut self, id: u64) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let Pending { host, shard, request, outcome, .. } = pending;
        let outcome = outcome.expect("an answer follows its effect");
        let node = &mut self.hosts[host].nodes[shard];
        if self.planted.completes_twice && self.random.chance(1, 50) {
            let ticket = request.ticket;
            node.completed(block::Completion::new(ticket, outcome, Buffer::empty()));
        }
        node.completed(request.complete(outcome));
        self.wake(host, shard);
    }

    /// Requests that disks of this host have.
    pub fn requests_below(&self, host: usize) -> usize {
        let life = self.hosts[host].life;
        self.pending.values().filter(|pending| pending.host == host && pending.life == life).count()
    }
}
