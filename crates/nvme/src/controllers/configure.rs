//! Changes of what is exported, while hosts are connected.
//!
//! Every shard is told of every change, in the same order. A change tells the controllers whose
//! host can see it, by events; a host that is not allowed any more, or a subsystem that is gone,
//! ends its controllers; all others notice nothing. A *hold* (new commands refused, those in flight
//! awaited) is made by the shard: remove the namespace on every shard, await what is in flight,
//! then go on.

use block::{Instant, Slot, planted};
use contract::traffic::ByHost;
use wire::nvme::Nqn;

use super::controller::{Controller, Phase};
use super::{CloseReason, ControllerRef, Controllers, Export};
use crate::limits::NAMESPACES_MAX;
use crate::subsystem::{Hosts, Namespace, Subsystem};

impl Export {
    /// Whether a completed write to any namespace may still be lost.
    pub(crate) fn is_cache_volatile(&self) -> bool {
        self.namespaces().any(|namespace| namespace.cache_volatile)
    }

    /// What lies under this number.
    fn place(&mut self, nsid: u32) -> &mut Option<Namespace> {
        assert!((1..=NAMESPACES_MAX).contains(&nsid), "NSID {nsid} is not 1 to {NAMESPACES_MAX}");
        let index = nsid as usize - 1;
        if self.by_nsid.len() <= index {
            self.by_nsid.resize(index + 1, None);
        }
        &mut self.by_nsid[index]
    }
}

impl Controllers {
    /// All of the first configuration has been given: from now on an unknown subsystem is refused
    /// for good.
    pub fn configuration_complete(&mut self) {
        self.configured = true;
    }

    /// Exports a subsystem, or changes the one of this name to be as given: namespaces and hosts
    /// that are not in it go.
    ///
    /// Panics for the name of the discovery subsystem and for NSIDs out of range, which the
    /// configuration refuses.
    pub fn set_subsystem(&mut self, now: Instant, mut subsystem: Subsystem) {
        assert!(!subsystem.nqn.is_discovery(), "the discovery subsystem is always there");
        let namespaces = core::mem::take(&mut subsystem.namespaces);
        let hosts = subsystem.hosts.clone();
        // A new one is one that nobody could see before.
        let slot = *self.export_of.entry(subsystem.nqn.clone()).or_insert_with(|| {
            let subsystem = Subsystem { hosts: Hosts::List(Vec::new()), ..subsystem.clone() };
            self.exports.insert(Export { subsystem, by_nsid: Vec::new(), ended: ByHost::default() })
        });
        let export = self.exports.get_mut(slot).expect("names lead to exports");
        let old = core::mem::replace(&mut export.subsystem, subsystem).hosts;
        export.ended.list_again(|host| hosts.listed(host));
        let kept = |nsid: u32| namespaces.iter().any(|namespace| namespace.nsid == nsid);
        let gone = export.namespaces().map(|old| old.nsid).filter(|&nsid| !kept(nsid));
        for nsid in gone.collect::<Vec<_>>() {
            self.put_namespace(slot, nsid, None);
        }
        for namespace in namespaces {
            self.put_namespace(slot, namespace.nsid, Some(namespace));
        }
        if old == hosts {
            return;
        }
        let denied = |controller: &Controller| {
            controller.export == Some(slot) && !hosts.allow(&controller.who.host.nqn)
        };
        for name in self.controllers_where(denied) {
            self.fail(now, name, CloseReason::HostRemoved);
        }
        self.discovery_changed(|host| old.allow(host) != hosts.allow(host));
    }

    /// Exports a subsystem no more: its controllers and their connections end. An unknown name is
    /// no change.
    pub fn remove_subsystem(&mut self, now: Instant, nqn: &Nqn) {
        let Some(slot) = self.export_of.remove(nqn) else { return };
        for name in self.controllers_where(|controller| controller.export == Some(slot)) {
            self.fail(now, name, CloseReason::SubsystemRemoved);
        }
        let export = self.exports.remove(slot).expect("names lead to exports");
        self.discovery_changed(|host| export.subsystem.hosts.allow(host));
    }

    /// Fails the controllers of a host that are owned here, which may connect again. Returns how
    /// many there were.
    pub fn close_sessions(&mut self, now: Instant, host: &Nqn) -> u32 {
        let wanted = |controller: &Controller| {
            controller.who.host.nqn == *host && controller.phase != Phase::Failed
        };
        let named = self.controllers_where(wanted);
        for name in &named {
            self.fail(now, *name, CloseReason::Administrator);
        }
        named.len() as u32
    }

    /// From now on this lies under a number of a subsystem, or nothing: commands to it get 0x00B
    /// then.
    fn put_namespace(&mut self, slot: Slot, nsid: u32, namespace: Option<Namespace>) {
        let identity = |namespace: &Option<Namespace>| namespace.as_ref().map(Namespace::identity);
        let there = identity(&namespace);
        let place = self.exports.get_mut(slot).expect("names lead to exports").place(nsid);
        if *place == namespace {
            return;
        }
        let before = identity(&core::mem::replace(place, namespace));
        if before != there {
            before.into_iter().for_each(|before| self.namespace_left(slot, nsid, before));
            there.into_iter().for_each(|there| self.namespace_came(slot, nsid, there));
        }
        let mut concerned = self.controllers_where(|controller| controller.export == Some(slot));
        if planted("one-controller-is-told") {
            concerned.truncate(1);
        }
        for name in concerned {
            self.untold.entry(name).or_default().insert(nsid);
        }
    }

    /// The subsystems that a host may use, in the order of their names.
    pub(super) fn subsystems_for(&self, host: &Nqn) -> impl Iterator<Item = &Nqn> {
        self.export_of.iter().filter_map(move |(nqn, slot)| {
            let export = self.exports.get(*slot).expect("names lead to exports");
            export.subsystem.hosts.allow(host).then_some(nqn)
        })
    }

    pub(super) fn controllers_where(
        &self,
        wanted: impl Fn(&Controller) -> bool,
    ) -> Vec<ControllerRef> {
        let found = self.controllers.values().filter(|controller| wanted(controller));
        found.map(|controller| controller.name).collect()
    }

    /// The discovery log changed for those hosts; GENCTR is one for all.
    fn discovery_changed(&mut self, concerns: impl Fn(&Nqn) -> bool) {
        self.discovery_generation += 1;
        let told = |controller: &Controller| {
            controller.is_discovery() && concerns(&controller.who.host.nqn)
        };
        for name in self.controllers_where(told) {
            self.untold.entry(name).or_default();
        }
    }

    /// All shards have the subsystems as they are now: hosts get their events. Not before, since
    /// they look at once at what they are told of, through queues of any shard.
    pub fn announce_exports(&mut self) {
        let untold = match planted("changes-are-told-again") {
            true => self.untold.clone(),
            false => core::mem::take(&mut self.untold),
        };
        for (name, namespaces) in untold {
            let Some(controller) = self.controller_mut(name) else { continue };
            // The list is bounded by NAMESPACES_MAX, which is what the log holds.
            controller.changed_namespaces.extend(namespaces);
            self.raise_event(name);
        }
    }
}
