//! What the world does to its hosts: cuts, silence, flipped bits, kills, power cuts.

use block::{Instant, Operation};
use contract::Machine;

use super::{MICROSECOND, What, World};
use crate::network::{Link, Segment};

impl<M: Machine> World<M> {
    /// Whether what a host says may not arrive: a connection of its went silent, or is held back.
    pub fn is_muted(&self, host: usize) -> bool {
        let is_its = |link: &Link| link.ends.iter().flatten().any(|end| end.host == host);
        let is_held = |link: &Link| link.flows.iter().any(|flow| flow.held_until > self.now);
        self.links.iter().any(|link| (link.silent || is_held(link)) && is_its(link))
    }

    /// Breaks a connection that is up, if there is one: with a reset to both ends, or silently.
    /// The network may hold back what is on its way to who accepted it, and that it is broken, for
    /// up to `hold`: who asked for the connection may be back by then.
    pub fn cut_a_link(&mut self, silent: bool, hold: u64) {
        let up: Vec<usize> = (0..self.links.len())
            .filter(|link| self.links[*link].ends.iter().all(Option::is_some))
            .collect();
        if up.is_empty() {
            return;
        }
        let link = up[self.random.below(up.len() as u64) as usize];
        self.injected.cuts += 1;
        self.trace.note(Instant(self.now), "cut", &[link as u64, u64::from(silent)]);
        if silent {
            self.links[link].silent = true;
            return;
        }
        let is_late = hold > 0 && self.random.chance(1, 2);
        if is_late {
            self.injected.late_cuts += 1;
            let until = self.now + self.random.below(hold);
            let from = |link: &Link| link.ends[0].map(|end| (end.host, end.life, end.shard));
            let cut = from(&self.links[link]);
            // All that the same association has on its way: else the end of another connection is
            // heard before, and ends this one.
            for link in self.links.iter_mut().filter(|link| from(link) == cut) {
                link.flows[1].held_until = until;
                link.flows[1].last_arrival = link.flows[1].last_arrival.max(until);
            }
            self.push_segment(link, 1, Segment::Reset);
        }
        for end in 0..2 - usize::from(is_late) {
            // Of what is on its way, a first part still arrives.
            let there = self.links[link].flows[end].segments.len() as u64;
            let keep = self.random.below(there + 1) as usize;
            self.links[link].flows[end].segments.truncate(keep);
            self.push_segment(link, end, Segment::Reset);
        }
    }

    /// Silences one I/O connection that is up, while the others of its association live. The first
    /// connection of a shard is that of its admin queue.
    pub fn hush_a_queue(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        let mut queues = Vec::new();
        for (at, link) in self.links.iter().enumerate() {
            let [Some(host), Some(_)] = link.ends else { continue };
            let first = seen.insert((host.host, host.life, host.shard));
            if !first && !link.silent {
                queues.push(at);
            }
        }
        if queues.is_empty() {
            return;
        }
        let link = queues[self.random.below(queues.len() as u64) as usize];
        self.injected.hushes += 1;
        self.trace.note(Instant(self.now), "hush", &[link as u64]);
        self.links[link].silent = true;
    }

    /// Flips a bit of something that is on its way, which a digest must notice.
    pub fn corrupt_a_segment(&mut self) {
        let mut candidates = Vec::new();
        for (link, found) in self.links.iter().enumerate().filter(|(_, link)| !link.bare) {
            for end in 0..2 {
                for (at, segment) in found.flows[end].segments.iter().enumerate() {
                    if matches!(segment, Segment::Bytes(bytes) if !bytes.is_empty()) {
                        candidates.push((link, end, at));
                    }
                }
            }
        }
        if candidates.is_empty() {
            // Nothing is on its way: the next that leaves is hit.
            self.corrupt_next = true;
            return;
        }
        let (link, end, at) = candidates[self.random.below(candidates.len() as u64) as usize];
        let bit = self.random.next_u64();
        if let Segment::Bytes(bytes) = &mut self.links[link].flows[end].segments[at] {
            let byte = (bit >> 8) as usize % bytes.len();
            bytes[byte] ^= 1 << (bit % 8);
        }
        self.injected.corruptions += 1;
        self.trace.note(Instant(self.now), "corrupt", &[link as u64, end as u64, at as u64]);
    }

    /// Flips a bit of what leaves now.
    pub(super) fn corrupt(&mut self, link: usize, to: usize, bytes: &mut [u8]) {
        self.corrupt_next = false;
        self.injected.corruptions += 1;
        let bit = self.random.next_u64();
        bytes[(bit >> 8) as usize % bytes.len()] ^= 1 << (bit % 8);
        self.trace.note(Instant(self.now), "corrupt", &[link as u64, to as u64]);
    }

    /// Kills a host: its process only, or its power too.
    pub fn kill(&mut self, host: usize, power: bool) {
        if power {
            self.injected.power_cuts += 1;
        } else {
            self.injected.kills += 1;
        }
        self.trace.note(Instant(self.now), "kill", &[host as u64, u64::from(power)]);
        let life = self.hosts[host].life;
        let under_way: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.host == host && pending.life == life)
            .map(|(id, _)| *id)
            .collect();
        for id in under_way {
            let (applied, stuck) = (self.pending[&id].outcome.is_some(), self.pending[&id].stuck);
            if !applied && self.planted.applies_late && self.random.chance(1, 2) {
                self.plan_late_write(id);
            } else if !applied && !power && !stuck && self.random.chance(1, 2) {
                // The kernel had it.
                self.apply(id);
            }
            self.pending.remove(&id);
        }
        for disk in self.hosts[host].disks.values_mut() {
            // The next process takes writes again, so whoever starts it has looked at the disks.
            match power {
                true => disk.cut_power(&mut self.random),
                false => disk.mend(),
            }
        }
        let nodes = core::mem::take(&mut self.hosts[host].nodes);
        for node in nodes {
            for open in node.sockets.into_iter().filter_map(|socket| socket.open) {
                self.links[open.link].ends[open.end] = None;
                // A process that dies is told of by its kernel; a machine without power says
                // nothing.
                if !power || self.random.chance(1, 2) {
                    self.push_segment(open.link, 1 - open.end, Segment::Reset);
                } else {
                    self.links[open.link].silent = true;
                }
            }
        }
    }

    fn plan_late_write(&mut self, id: u64) {
        let pending = &self.pending[&id];
        let Operation::Write { extent, buffer, .. } = &pending.request.operation else { return };
        let (host, disk) = (pending.host, pending.disk);
        let bytes = self.hosts[host].nodes[pending.shard].memory.bytes(buffer);
        let offset = extent.offset.0;
        let delay = 3_000_000 * MICROSECOND + self.random.below(30_000_000 * MICROSECOND);
        self.schedule(delay, What::LateWrite { host, disk, offset, bytes });
    }
}
