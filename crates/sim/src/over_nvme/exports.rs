//! What the target exports and to whom, as it changes while hosts are connected, and what follows
//! for those who look: which hosts must be refused, and what a discovery log may show.
//!
//! Shards learn of a change one after the other. So between the order and its last answer, what was
//! and what is are both right; before and after only one is. Units: virtual nanoseconds.

use std::collections::{BTreeMap, BTreeSet};

use nvme::subsystem::{Hosts, Subsystem};
use shard::{Export, ExportKey, Order};
use wire::nvme::Nqn;

use super::raw_host::Seen;
use super::subsystem_name;
use crate::run::{MILLISECOND, Orders, Run};
use crate::writer::Log;

/// So long after a refusal is known to all shards, what they took before may still be answered:
/// connections close by mail.
const SLACK: u64 = 2_000 * MILLISECOND;
/// Subsystems beside the volume's, which come and go.
const OTHERS: [&str; 3] = ["a", "b", "c"];

/// One state of the exports.
#[derive(Debug)]
struct State {
    ordered_at: u64,
    answered_at: Option<u64>,
    orders: Option<Orders>,
    exported: BTreeMap<Nqn, Hosts>,
}

/// The exports, and how they came to be so.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    /// Hosts that are not allowed at the moment.
    denied: BTreeSet<Nqn>,
    /// The volume's subsystem is not exported at the moment.
    pub(crate) removed: bool,
    states: Vec<State>,
    announcements: Vec<Announcement>,
}

/// All shards were told to tell hosts what had changed.
#[derive(Debug)]
struct Announcement {
    orders: Orders,
    answered_at: Option<u64>,
    /// The states that it tells of: those since the one before.
    states: core::ops::Range<usize>,
}

impl Exports {
    /// Who may use the volume's subsystem. `all` are those there are.
    pub(crate) fn hosts(&self, all: &[Nqn]) -> Hosts {
        if self.denied.is_empty() {
            return Hosts::Any;
        }
        Hosts::List(all.iter().filter(|host| !self.denied.contains(*host)).cloned().collect())
    }

    fn exported(&self) -> BTreeMap<Nqn, Hosts> {
        self.states.last().map(|state| state.exported.clone()).unwrap_or_default()
    }

    /// A target starts: it exports nothing yet.
    pub(crate) fn restart(&mut self, now: u64) {
        let (exported, answered_at) = (BTreeMap::new(), Some(now));
        self.states.push(State { ordered_at: now, answered_at, orders: None, exported });
    }

    /// It was ordered that `nqn` is exported to these hosts, or not at all.
    fn ordered(&mut self, now: u64, nqn: Nqn, hosts: Option<Hosts>, orders: Orders) {
        let mut exported = self.exported();
        match hosts {
            Some(hosts) => exported.insert(nqn, hosts),
            None => exported.remove(&nqn),
        };
        let orders = Some(orders);
        self.states.push(State { ordered_at: now, answered_at: None, orders, exported });
    }

    /// An order was answered.
    pub(crate) fn answered(&mut self, now: u64, number: u64) {
        for Announcement { answered_at, orders, .. } in &mut self.announcements {
            if answered_at.is_none() && orders.answered(number) {
                *answered_at = Some(now);
            }
        }
        for State { answered_at, orders, .. } in &mut self.states {
            if orders.as_mut().is_some_and(|orders| orders.answered(number)) {
                (*answered_at, *orders) = (Some(now), None);
            }
        }
    }

    /// Hosts are told of what was ordered until now.
    pub(crate) fn announced(&mut self, orders: Orders) {
        let first = self.announcements.last().map_or(0, |last| last.states.end);
        let states = first..self.states.len();
        self.announcements.push(Announcement { orders, answered_at: None, states });
    }

    /// A host was told `events` times that its discovery log changed, on a connection that it made
    /// at `since`: at most once for each announcement of something that it can see.
    pub(crate) fn check_events(&self, host: &Nqn, since: u64, events: u64) -> Result<(), String> {
        let changed = |at: usize| {
            let before = at.checked_sub(1).map(|before| visible(&self.states[before], host));
            before.unwrap_or_default() != visible(&self.states[at], host)
        };
        let due = |announcement: &&Announcement| {
            let is_over = announcement.answered_at.is_some_and(|at| at < since);
            !is_over && announcement.states.clone().any(changed)
        };
        let most = self.announcements.iter().filter(due).count() as u64;
        match events <= most {
            true => Ok(()),
            false => Err(format!(
                "{host} was told {events} times since {since} of {most} changes that it can see"
            )),
        }
    }

    /// The states that may have been in force at some moment from `start` to `end`.
    fn between(&self, start: u64, end: u64) -> &[State] {
        let known = |state: &State| state.answered_at.is_some_and(|at| at <= start);
        let first = self.states.iter().rposition(known).unwrap_or(0);
        let last = self.states.iter().rposition(|state| state.ordered_at <= end);
        &self.states[first..last.map_or(first, |last| last + 1)]
    }

    /// Whether a request of `host` that was made at `start` and was carried out by `end` had no
    /// right to be.
    fn must_refuse(&self, host: &Nqn, start: u64, end: u64) -> bool {
        if start < SLACK {
            return false;
        }
        let name = subsystem_name();
        let mut states = self.between(start - SLACK, end).iter();
        states.all(|state| state.exported.get(&name).is_none_or(|hosts| !hosts.allow(host)))
    }

    /// A host that is denied reads nothing.
    pub(crate) fn refuse(&self, host: &Nqn, log: &Log) -> Result<(), String> {
        match *log {
            Log::Read { start, end, .. } | Log::Swapped { start, end, .. }
                if self.must_refuse(host, start, end) =>
            {
                Err(format!("{host} read from {start} to {end} what it was denied"))
            }
            _ => Ok(()),
        }
    }

    /// Judges what a host saw in the discovery log.
    pub(crate) fn check(&self, host: &Nqn, seen: &Seen) -> Result<(), String> {
        let mut states = self.between(seen.start, seen.end).iter();
        if states.any(|state| visible(state, host) == seen.names) {
            return Ok(());
        }
        Err(format!("a discovery log that was never right for {host}: {seen:?}"))
    }

    /// Whether this is what there is now.
    pub(crate) fn is_present(&self, host: &Nqn, names: &BTreeSet<Nqn>) -> bool {
        self.states.last().is_some_and(|state| visible(state, host) == *names)
    }
}

fn visible(state: &State, host: &Nqn) -> BTreeSet<Nqn> {
    let allowed = state.exported.iter().filter(|(_, hosts)| hosts.allow(host));
    allowed.map(|(nqn, _)| nqn.clone()).collect()
}

impl Run {
    /// Every host that there is, by name.
    fn all_hosts(&self) -> Vec<Nqn> {
        let clients = (0..self.clients.len()).map(super::client_name);
        let raws = self.nvme.raw_hosts.iter().map(|raw| raw.name().clone());
        clients
            .chain(raws)
            .chain(self.nvme.watchers.iter().map(|watcher| watcher.nqn.clone()))
            .collect()
    }

    /// Exports the volume as it is, to whom it is exported.
    pub(crate) fn order_export(&mut self, subsystem: Subsystem) {
        let hosts = self.nvme.exports.hosts(&self.all_hosts());
        let subsystem = Subsystem { hosts: hosts.clone(), ..subsystem };
        let orders = self.next_orders();
        self.order_all(|| Order::SetExport(Export::Nvme(Box::new(subsystem.clone()))));
        self.is_to_announce = true;
        self.nvme.exports.ordered(self.world.now, subsystem.nqn, Some(hosts), orders);
    }

    fn order_removal(&mut self, nqn: &Nqn) {
        self.did.counts.removals += 1;
        let orders = self.next_orders();
        self.order_all(|| Order::RemoveExport(ExportKey::Nvme(nqn.clone())));
        self.is_to_announce = true;
        self.nvme.exports.ordered(self.world.now, nqn.clone(), None, orders);
    }

    /// A host is not allowed any more, or all are allowed again.
    pub(crate) fn change_hosts(&mut self) {
        if self.nvme.exports.denied.is_empty() {
            let all = self.all_hosts();
            self.did.counts.denials += 1;
            let some = 1 + self.random.below(all.len() as u64);
            for _ in 0..some {
                let host = self.random.below(all.len() as u64) as usize;
                self.nvme.exports.denied.insert(all[host].clone());
            }
        } else {
            self.nvme.exports.denied.clear();
        }
        self.export();
    }

    /// A subsystem comes or goes: the volume's, or one that nobody uses.
    pub(crate) fn change_subsystems(&mut self) {
        if !self.is_to_export() && self.random.chance(1, 3) {
            self.nvme.exports.removed = !self.nvme.exports.removed;
            if self.nvme.exports.removed {
                self.order_removal(&subsystem_name());
            } else {
                self.export();
            }
            return;
        }
        let which = OTHERS[self.random.below(OTHERS.len() as u64) as usize];
        let nqn = Nqn::new(&format!("nqn.2026-11.net.plateway:sim-{which}")).expect("a valid name");
        if self.nvme.exports.exported().contains_key(&nqn) {
            self.order_removal(&nqn);
        } else {
            self.order_export(Subsystem::new(nqn, Hosts::Any));
        }
    }

    /// Everybody may use everything again.
    pub(crate) fn allow_everything(&mut self) {
        if self.nvme.exports.removed || !self.nvme.exports.denied.is_empty() {
            self.nvme.exports.removed = false;
            self.nvme.exports.denied.clear();
            self.export();
        }
    }
}
