//! Changes of what is exported, while hosts are connected.
//!
//! Every shard is told of every change, in the same order. A change tells the controllers whose host can see it, by events; a host that is not
//! allowed any more, or a subsystem that is gone, ends its controllers; all others notice nothing. A *hold* (new commands refused, those below
//! awaited) is made by the shard: remove the namespace on every shard, await what is below, then go on.

use block::{Instant, Slot};
use wire::nvme::Nqn;

use super::controller::Controller;
use super::{CloseReason, ControllerRef, Controllers, Export, MachineKey};
use crate::limits::NAMESPACES_MAX;
use crate::subsystem::{Hosts, Namespace, Subsystem};

impl Export {
    /// Whether a completed write to any namespace may still be lost.
    pub(crate) fn is_cache_volatile(&self) -> bool {
        self.namespaces().any(|namespace| namespace.cache_volatile)
    }

    fn set(&mut self, namespace: Namespace) -> bool {
        let nsid = namespace.nsid;
        assert!((1..=NAMESPACES_MAX).contains(&nsid), "NSID {nsid} is not 1 to {NAMESPACES_MAX}");
        let index = nsid as usize - 1;
        if self.by_nsid.len() <= index {
            self.by_nsid.resize(index + 1, None);
        }
        let changed = self.by_nsid[index].as_ref() != Some(&namespace);
        self.by_nsid[index] = Some(namespace);
        changed
    }

    fn remove(&mut self, nsid: u32) -> bool {
        let slot = self.by_nsid.get_mut((nsid as usize).wrapping_sub(1));
        slot.is_some_and(|slot| slot.take().is_some())
    }
}

impl Controllers {
    /// All of the first configuration has been given: from now on an unknown subsystem is refused for good.
    pub fn configuration_complete(&mut self) {
        self.configured = true;
    }

    /// Exports a subsystem, or changes the one of this name to be as given: namespaces and hosts that are not in it go.
    ///
    /// Panics for the name of the discovery subsystem and for NSIDs out of range, which the configuration refuses.
    pub fn set_subsystem(&mut self, now: Instant, subsystem: Subsystem) {
        assert!(!subsystem.nqn.is_discovery(), "the discovery subsystem is always there");
        let nqn = subsystem.nqn.clone();
        let Some(&slot) = self.export_of.get(&nqn) else {
            let hosts = subsystem.hosts.clone();
            let mut export = Export { by_nsid: Vec::new(), subsystem, traffic: Default::default() };
            for namespace in core::mem::take(&mut export.subsystem.namespaces) {
                export.set(namespace);
            }
            let slot = self.exports.insert(export);
            self.export_of.insert(nqn, slot);
            return self.discovery_changed(|host| hosts.allow(host));
        };
        let export = self.exports.get(slot).expect("names lead to exports");
        let kept = |nsid: u32| subsystem.namespaces.iter().any(|namespace| namespace.nsid == nsid);
        let gone: Vec<u32> =
            export.namespaces().map(|old| old.nsid).filter(|&nsid| !kept(nsid)).collect();
        for nsid in gone {
            self.remove_namespace(now, &nqn, nsid);
        }
        for namespace in subsystem.namespaces {
            self.set_namespace(now, &nqn, namespace);
        }
        self.set_hosts(now, &nqn, subsystem.hosts);
        self.exports.get_mut(slot).expect("just seen").subsystem.serial = subsystem.serial;
    }

    /// Exports a subsystem no more: its controllers and their connections end. An unknown name is no change.
    pub fn remove_subsystem(&mut self, now: Instant, nqn: &Nqn) {
        let Some(slot) = self.export_of.remove(nqn) else { return };
        for name in self.controllers_where(|controller| controller.export() == Some(slot)) {
            self.fail(now, name, CloseReason::SubsystemRemoved);
        }
        let export = self.exports.remove(slot).expect("names lead to exports");
        self.discovery_changed(|host| export.subsystem.hosts.allow(host));
    }

    /// Adds a namespace to a subsystem, or changes the one of its NSID: size, identity, cache, write protection. An unknown subsystem is no change.
    pub fn set_namespace(&mut self, _now: Instant, nqn: &Nqn, namespace: Namespace) {
        let Some(&slot) = self.export_of.get(nqn) else { return };
        let (nsid, identity) = (namespace.nsid, namespace.identity());
        let before = self.identity_of(Some(slot), nsid);
        if self.exports.get_mut(slot).expect("names lead to exports").set(namespace) {
            if let Some(before) = before.filter(|before| *before != identity) {
                self.namespace_left(slot, nsid, before);
            }
            self.namespace_came(slot, nsid, identity);
            self.namespace_changed(slot, nsid);
        }
    }

    /// Takes a namespace out of a subsystem: commands to it get 0x00B from now on. An unknown one is no change.
    pub fn remove_namespace(&mut self, _now: Instant, nqn: &Nqn, nsid: u32) {
        let Some(&slot) = self.export_of.get(nqn) else { return };
        let before = self.identity_of(Some(slot), nsid);
        if self.exports.get_mut(slot).expect("names lead to exports").remove(nsid) {
            self.namespace_left(slot, nsid, before.expect("what was removed was there"));
            self.namespace_changed(slot, nsid);
        }
    }

    /// Changes who may use a subsystem. Controllers of hosts that may not any more end. An unknown subsystem is no change.
    pub fn set_hosts(&mut self, now: Instant, nqn: &Nqn, hosts: Hosts) {
        let Some(&slot) = self.export_of.get(nqn) else { return };
        let export = self.exports.get_mut(slot).expect("names lead to exports");
        if export.subsystem.hosts == hosts {
            return;
        }
        let old = core::mem::replace(&mut export.subsystem.hosts, hosts.clone());
        let denied = |controller: &Controller| {
            controller.export() == Some(slot) && !hosts.allow(&controller.who.host.nqn)
        };
        for name in self.controllers_where(denied) {
            self.fail(now, name, CloseReason::HostRemoved);
        }
        self.discovery_changed(|host| old.allow(host) != hosts.allow(host));
    }

    /// The subsystems, in the order of their names.
    pub fn subsystems(&self) -> impl Iterator<Item = &Nqn> {
        self.export_of.keys()
    }

    /// The subsystems that a host may use, in the order of their names.
    pub(crate) fn subsystems_for(&self, host: &Nqn) -> impl Iterator<Item = &Nqn> {
        self.export_of.iter().filter_map(move |(nqn, slot)| {
            let export = self.exports.get(*slot).expect("names lead to exports");
            export.subsystem.hosts.allow(host).then_some(nqn)
        })
    }

    fn controllers_where(&self, wanted: impl Fn(&Controller) -> bool) -> Vec<ControllerRef> {
        let found = self.controllers.values().filter(|controller| wanted(controller));
        found.map(|controller| controller.name).collect()
    }

    fn namespace_changed(&mut self, export: Slot, nsid: u32) {
        for name in self.controllers_where(|controller| controller.export() == Some(export)) {
            let controller = self.controller_mut(name).expect("just seen");
            // The list is bounded by NAMESPACES_MAX, which is what the log holds.
            controller.changed_namespaces.insert(nsid);
            self.raise_event(name);
        }
    }

    /// The discovery log changed for those hosts; GENCTR is one for all.
    fn discovery_changed(&mut self, concerns: impl Fn(&Nqn) -> bool) {
        self.discovery_generation += 1;
        let told = |controller: &Controller| {
            controller.is_discovery() && concerns(&controller.who.host.nqn)
        };
        for name in self.controllers_where(told) {
            self.raise_event(name);
        }
    }

    // What the admin commands (admin.rs) look at.

    /// The controller of an open admin queue, which has just been heard.
    pub(crate) fn admin_queue_heard(
        &mut self,
        now: Instant,
        key: MachineKey,
    ) -> Option<ControllerRef> {
        let slot = self.queue_of(key)?;
        let queue = self.queues.get(slot).filter(|queue| queue.id == 0 && queue.open)?;
        let name = queue.controller;
        let controller = self.controller_mut(name).expect("its admin queue is open");
        controller.heard = controller.heard.max(now);
        Some(name)
    }

    pub(crate) fn controller_of(&mut self, name: ControllerRef) -> Option<&mut Controller> {
        self.controller_mut(name)
    }

    /// A controller and the export it belongs to, if it is no discovery controller.
    pub(crate) fn controller_and_export(
        &self,
        name: ControllerRef,
    ) -> (&Controller, Option<&Export>) {
        let controller = self.controllers.get(&name.id).expect("its admin queue is open");
        (controller, controller.export().and_then(|slot| self.exports.get(slot)))
    }

    /// CNTLIDs of all controllers of this one's subsystem, on every shard, ascending.
    pub(crate) fn controllers_of_subsystem(&self, name: ControllerRef) -> Vec<u16> {
        let (controller, _) = self.controller_and_export(name);
        let subsystem = &controller.who.subsystem;
        let own = self.controllers.iter().filter(|(_, other)| other.who.subsystem == *subsystem);
        let others = self.others.iter().filter(|(_, other)| *other == subsystem);
        let mut ids: Vec<u16> = own.map(|(id, _)| *id).chain(others.map(|(id, _)| *id)).collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn discovery_generation(&self) -> u64 {
        self.discovery_generation
    }
}
