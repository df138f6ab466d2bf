//! The end of a run: what is under way ends, every block is looked at, everybody drains, and
//! nothing may be left over.

use block::limits::LEAVE;
use shard::{Mail, Order};

use crate::clients::client_of;
use crate::disk::SECTOR;
use crate::over_aoe::{ControlHost, PlainHost};
use crate::over_iscsi::raw_host::RawHost as Initiator;
use crate::over_mpls::Network;
use crate::over_nvme::raw_host::{RawHost, Watcher};
use crate::run::{PATIENCE, Run, STEPS_MAX, TARGET};

impl Run {
    /// Lets everything that is under way end.
    pub(crate) fn finish(&mut self, until: u64) -> Result<(), String> {
        loop {
            let quiet = (0..self.clients.len()).all(|index| {
                let host = self.clients[index].host;
                let shards = 0..self.clients[index].next_ids.len();
                let world = &self.world;
                self.clients[index].is_settled()
                    && shards.into_iter().all(|shard| client_of(world, host, shard).is_quiet())
            });
            let watched = self.nvme.watchers.iter().all(|watcher| self.has_seen_all(watcher));
            let raws = self.nvme.raw_hosts.iter().all(RawHost::is_quiet)
                && self.iscsi.raw_hosts.iter().all(Initiator::is_quiet)
                && self.fences.as_ref().is_none_or(|fences| fences.fencer.is_quiet());
            let ruled = self.lan.controller.as_ref().is_none_or(ControlHost::is_quiet)
                && self.lan.plain_host.as_ref().is_none_or(PlainHost::is_quiet)
                && self.network.as_ref().is_none_or(Network::is_quiet);
            let up = self.starts.is_empty();
            if quiet && raws && watched && ruled && up && self.unanswered == 0 {
                return Ok(());
            }
            if self.world.now > until {
                return Err(self.explain_patience());
            }
            self.step()?;
        }
    }

    /// Lets some time pass.
    pub(crate) fn pass(&mut self, time: u64) -> Result<(), String> {
        let until = self.world.now + time;
        self.world.alarm_at(until);
        while self.world.now < until {
            self.step()?;
        }
        Ok(())
    }

    /// Whether a watcher has seen what is exported now.
    fn has_seen_all(&self, watcher: &Watcher) -> bool {
        let last = watcher.last_seen.as_ref();
        let is_now = |names| self.nvme.exports.is_present(&watcher.nqn, names);
        watcher.is_settled() && last.is_some_and(is_now)
    }

    /// What the clients still wait for.
    fn explain_patience(&mut self) -> String {
        let mut text = "requests are not answered although all is well:".to_owned();
        for index in 0..self.clients.len() {
            let (host, working) = (self.clients[index].host, self.clients[index].working);
            for shard in 0..self.world.hosts[host].nodes.len() {
                let imports = self.world.hosts[host].nodes[shard].machine.shard().report().imports;
                let under_way = client_of(&self.world, host, shard).under_way();
                text += &format!(
                    " client {index}.{shard} (working: {working}) waits for {under_way}; {imports:?};"
                );
            }
        }
        for watcher in &self.nvme.watchers {
            text += &format!(" watcher: {}, it saw {:?};", watcher.state(), watcher.last_seen);
        }
        for raw in &self.nvme.raw_hosts {
            text += &format!(" raw host: {};", raw.state());
        }
        for raw in &self.iscsi.raw_hosts {
            text += &format!(" raw host of iSCSI: {};", raw.state());
        }
        if let Some(fences) = &self.fences {
            text += &format!(" fencer: {};", fences.fencer.state());
        }
        if let Some(controller) = &self.lan.controller {
            text += &format!(" AoE host: {};", controller.state());
        }
        if let Some(host) = &self.lan.plain_host {
            text += &format!(" plain AoE host: {};", host.state());
        }
        if let Some(network) = &self.network {
            text += &format!(" the other customer: {};", network.state());
        }
        for (shard, node) in self.world.hosts[TARGET].nodes.iter().enumerate() {
            text += &format!(" target shard {shard}: {:?};", node.machine.shard().report());
        }
        text
    }

    /// Reads every block once more.
    pub(crate) fn look_at_everything(&mut self) -> Result<(), String> {
        let host = self.clients[0].host;
        let blocks = self.clients[0].size().map_or(0, |size| size / SECTOR as u64);
        let unit = self.setup.work.unit;
        let per_request = (8 * unit).max((blocks / 64).next_multiple_of(unit)).min(2048);
        let mut first = 0;
        let failed_before = client_of(&self.world, host, 0).failed;
        while first < blocks {
            let count = per_request.min(blocks - first);
            let mut client = client_of(&self.world, host, 0);
            let (done, failed) = (client.done, client.failed);
            // A connection that went silent before is noticed only now, by a request that is not
            // answered until its deadline.
            let again = failed < failed_before + 3;
            client.read(first, count);
            drop(client);
            self.world.nudge(host);
            self.finish(self.world.now + PATIENCE)?;
            let client = client_of(&self.world, host, 0);
            if client.done == done && again {
                continue;
            }
            if client.done == done {
                let failures = client.failed - failed;
                let why = client.last_failure;
                return Err(format!(
                    "block {first} cannot be read at the end ({failures} failed: {why:?})"
                ));
            }
            first += count;
        }
        Ok(())
    }

    /// Drains everybody, and has them leave who they use: nothing may be left over.
    pub(crate) fn shut_down(&mut self) -> Result<(), String> {
        let hosts = self.clients.iter().map(|client| client.host).chain([TARGET]);
        for host in hosts.collect::<Vec<_>>() {
            self.all_answer(host, "drain", || Order::Drain)?;
            let (begun, is_heard) = (self.world.now, !self.world.is_muted(host));
            self.all_answer(host, "leave", || Order::Leave)?;
            let took = self.world.now - begun;
            if is_heard && took >= LEAVE.as_nanos() as u64 {
                return Err(format!("host {host} has left without an answer, after {took} ns"));
            }
            for (shard, node) in self.world.hosts[host].nodes.iter().enumerate() {
                let machine = node.machine.shard();
                let (pages, held) = (machine.pages_used(), node.memory.held());
                if pages != 0 || held != 0 || machine.in_flight() != 0 {
                    return Err(format!(
                        "host {host} shard {shard} is drained and holds {pages} pages of its pool, {held} of its memory, {} requests",
                        machine.in_flight()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Gives an order to all shards of a host, until all have answered.
    fn all_answer(
        &mut self,
        host: usize,
        what: &str,
        order: impl Fn() -> Order,
    ) -> Result<(), String> {
        let expected = self.world.hosts[host].nodes.len();
        for shard in 0..expected {
            self.orders += 1;
            let order = Box::new(order());
            self.world.order(host, shard, Mail::Order { number: self.orders, order });
        }
        let until = self.world.now + PATIENCE;
        let mut answered = 0;
        // What was sent last may be with the driver still.
        while answered < expected || self.world.has_batches(host) {
            if self.world.now > until || self.world.trace.steps() > STEPS_MAX {
                let node = &self.world.hosts[host].nodes[0];
                return Err(format!(
                    "host {host} does not {what}: {:?} at {}, wants to be woken at {:?}",
                    node.machine.shard().report(),
                    self.world.now,
                    contract::Machine::poll_timeout(&node.machine)
                ));
            }
            let Some(turn) = self.world.step() else {
                return Err(format!("host {host} does not {what}, and nothing happens"));
            };
            if let Some((host, shard)) = turn {
                self.tell_oracle(host, shard)?;
            }
            while let Some((_, mail)) = self.world.hosts[host].control.pop_front() {
                answered += usize::from(
                    matches!(mail, Mail::Answer { number, .. } if number + expected as u64 > self.orders),
                );
            }
        }
        Ok(())
    }
}
