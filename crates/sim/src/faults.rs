//! What goes wrong in a run, when, and how it is mended.

use contract::DiskId;
use shard::Order;

use crate::clients::client_of;
use crate::disk::Behaviour;
use crate::over_iscsi::raw_host::RawHost as Initiator;
use crate::over_nvme::raw_host::{RawHost, Watcher};
use crate::over_nvme::subsystem_name;
use crate::run::{MILLISECOND, PATIENCE, Run, Start, TARGET, layout_of};
use crate::setup::Fault;
use crate::writer::Write;

/// When each fault happens next.
pub(crate) type Plan = [u64; Fault::ALL.len()];

impl Fault {
    /// Whether the target must be up for it.
    fn needs_target(self) -> bool {
        use Fault::{Corrupt, Cut, Hostile, Hush, KillClient, Link, Silence, Unimport};
        !matches!(self, Cut | Silence | Corrupt | KillClient | Hush | Link | Hostile | Unimport)
    }
}

impl Run {
    pub(crate) fn plan_faults(&mut self) {
        self.next_fault = Fault::ALL.map(|fault| self.draw_fault(fault));
    }

    fn draw_fault(&mut self, fault: Fault) -> u64 {
        match self.setup.faults[fault] {
            0 => u64::MAX,
            most_ms => self.world.now + self.random.below(most_ms * MILLISECOND) + 1,
        }
    }

    /// Lets go wrong what is due.
    pub(crate) fn fault(&mut self) {
        for fault in Fault::ALL {
            let due = self.next_fault[fault as usize];
            // A target dies when it hurts: with something below, if that comes soon.
            let patience = due.saturating_add(2_000 * MILLISECOND);
            let waits = matches!(fault, Fault::Kill | Fault::Power)
                && self.world.requests_below(TARGET) == 0
                && self.world.now < patience;
            if self.world.now < due || waits {
                continue;
            }
            self.next_fault[fault as usize] = self.draw_fault(fault);
            // A target that is down has no troubles.
            if !fault.needs_target() || !self.world.hosts[TARGET].nodes.is_empty() {
                self.inject(fault);
            }
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Cut => {
                // What comes later than KATO finds nobody; and what it asks for has to end before
                // the quiesce time.
                let hold = self.setup.keep_alive_ms * MILLISECOND / 2;
                self.world.cut_a_link(false, hold);
            }
            Fault::Silence => self.world.cut_a_link(true, 0),
            Fault::Corrupt => self.world.corrupt_a_segment(),
            Fault::Kill => self.kill_target(false),
            Fault::Power => self.kill_target(true),
            Fault::Stop => self.stop_target(),
            Fault::Unexport => self.unexport(),
            Fault::Unimport => {
                let index = self.random.below(self.clients.len() as u64) as usize;
                self.unimport(index);
            }
            Fault::KillClient => {
                let index = self.random.below(self.clients.len() as u64) as usize;
                self.kill_client(index);
            }
            Fault::Grow => self.grow(),
            Fault::Replug => self.unplug(),
            Fault::Reopen => self.reopen(),
            Fault::Hush => {
                self.world.hush_a_queue();
                // One at a time: a request may be hit again on its second connection, not on every
                // one.
                self.next_fault[fault as usize] += self.setup.faults[fault] * MILLISECOND / 2;
            }
            Fault::Hosts => self.change_hosts(),
            Fault::Subsystems => self.change_subsystems(),
            Fault::Link => {
                let lan = self.setup.lan.as_ref().expect("links are of a LAN");
                self.world.disturb_link(lan.link_down_ms, lan.mtus);
            }
            Fault::Hostile => crate::over_aoe::disturb(self),
            Fault::Swap => self.swap(),
            Fault::Path => self.change_path(),
            Fault::Garbage => {
                self.did.counts.garbage += 1;
                let (world, random) = (&mut self.world, &mut self.random);
                self.nvme.garbage.send(world, TARGET, &subsystem_name(), random);
            }
        }
    }

    fn kill_target(&mut self, power: bool) {
        if self.world.hosts[TARGET].nodes.is_empty() {
            return;
        }
        self.collect(TARGET);
        self.settle_stores(true);
        self.world.kill(TARGET, power);
        if power {
            self.oracle.power_cut(self.world.now);
        }
        match self.setup.lan.as_ref().map_or(0, |lan| lan.down_ms) {
            0 => self.start_target(),
            down_ms => self.start_after(down_ms * MILLISECOND, Start::Target),
        }
    }

    fn stop_target(&mut self) {
        if self.stop.is_none() {
            self.stop = Some(self.next_orders());
            self.order_all(|| Order::Drain);
        }
    }

    /// All shards say that they have drained: then nothing is below, and the process ends.
    pub(crate) fn stopped(&mut self) -> Result<(), String> {
        self.stop = None;
        self.did.counts.stops += 1;
        match self.world.requests_below(TARGET) {
            0 => self.kill_target(false),
            below => return Err(format!("the target has drained, and {below} requests are below")),
        }
        Ok(())
    }

    fn kill_client(&mut self, index: usize) {
        let host = self.clients[index].host;
        if self.world.hosts[host].nodes.is_empty() {
            return;
        }
        let now = self.world.now;
        let mut under_way = Vec::new();
        for shard in 0..self.clients[index].next_ids.len() {
            let client = client_of(&self.world, host, shard);
            self.clients[index].next_ids[shard] = client.writer.next_id;
            // What was under way may still happen: on its way, in the target, or below it.
            under_way.extend(client.writes_under_way());
        }
        self.collect(host);
        self.world.kill(host, false);
        // What is on its way from a host that is not there any more is judged when it comes.
        self.oracle.lift_fences();
        // Nor does anybody know what it was told.
        let ids = self.ids_of(index);
        self.oracle.doubted(|id| ids.contain(id));
        for Write { id, first, count } in under_way {
            self.oracle.end(now + PATIENCE, id, first, count, false, false);
        }
        self.clients[index].working = false;
        let is_its =
            |start: &Start| matches!(start, Start::Import { client, .. } if *client == index);
        self.starts.retain(|(_, start)| !is_its(start));
        match self.setup.lan.as_ref().is_some_and(|lan| lan.same_tags) {
            // Nothing of its last life is on the wire any more then.
            true => self.start_after(1_000 * MILLISECOND, Start::Client(index)),
            false => self.start_client(index),
        }
    }

    fn grow(&mut self) {
        if self.replug.is_some() || self.size > 6 * self.setup.disk_size {
            return;
        }
        let more = u64::from(self.setup.disks) * self.setup.chunk.max(64 << 10);
        // Only the last disk of a concatenation can grow without moving what lies behind it.
        let first = if self.setup.concat { self.setup.disks - 1 } else { 0 };
        for disk in first..self.setup.disks {
            let disk = DiskId(disk);
            let found = self.world.hosts[TARGET].disks.get_mut(&disk).expect("disks stay");
            let size = found.facts().size.0 + more;
            found.grow(size);
            found.mend();
            let facts = found.facts();
            self.order_all(|| Order::RenewDisk { disk, facts: facts.clone() });
        }
        let layout = layout_of(&self.setup, &self.world);
        self.size = layout.size().0;
        self.order_all(|| Order::ResizeVolume {
            volume: crate::client::VOLUME,
            layout: layout.clone(),
        });
        self.export();
        self.set_aoe_export();
    }

    fn unplug(&mut self) {
        if self.replug.is_some() {
            return;
        }
        self.replug = Some(self.next_orders());
        self.order_all(|| Order::QuiesceVolume(crate::client::VOLUME));
    }

    fn reopen(&mut self) {
        for disk in 0..self.setup.disks {
            let disk = DiskId(disk);
            let found = self.world.hosts[TARGET].disks.get_mut(&disk).expect("disks stay");
            found.mend();
            let facts = found.facts();
            self.order_all(|| Order::RenewDisk { disk, facts: facts.clone() });
        }
    }

    /// Nothing goes wrong any more; what is broken is mended.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.world.calm_ethernet();
        if let Some(network) = &mut self.network {
            network.heal(&mut self.world);
        }
        if let Some(controller) = &mut self.lan.controller {
            controller.stop();
        }
        if let Some(host) = &mut self.lan.plain_host {
            host.stop();
        }
        if let Some(fences) = &mut self.fences {
            fences.fencer.stop();
        }
        for disk in self.world.hosts[TARGET].disks.values_mut() {
            let Behaviour { volatile, lies, leases, .. } = disk.behaviour();
            let calm =
                Behaviour { volatile, lies, leases, latency_us: 100, ..Behaviour::default() };
            disk.set_behaviour(calm);
        }
        if self.setup.behaviour.sticks > 0 {
            // Only a new process gets rid of requests that are never answered.
            self.kill_target(false);
        }
        self.reopen();
        self.open_path();
        for index in 0..self.clients.len() {
            let host = self.clients[index].host;
            for shard in 0..self.world.hosts[host].nodes.len() {
                client_of(&self.world, host, shard).stop();
            }
        }
        self.nvme.watchers.iter_mut().for_each(Watcher::stop);
        self.allow_everything();
        self.end_swaps();
        self.nvme.raw_hosts.iter_mut().for_each(RawHost::stop);
        self.iscsi.raw_hosts.iter_mut().for_each(Initiator::stop);
        self.world.raw_news = true;
    }
}
