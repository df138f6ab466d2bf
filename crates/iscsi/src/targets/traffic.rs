//! What each host did with a target through this shard, for monitoring.
//!
//! A connection gathers it during a turn and gives it to its session; of sessions that are gone the
//! target keeps it, by the hosts that the lists of its LUNs name.

use std::collections::BTreeMap;

use contract::Traffic;
use wire::iscsi::IscsiName;

use super::{Entry, Session, SessionHandle, Targets};
use crate::target::{Hosts, Target};

/// What a host did with a target through one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficReport {
    pub target: IscsiName,
    /// None of all hosts that no LUN's list names.
    pub host: Option<IscsiName>,
    pub traffic: Traffic,
}

impl Target {
    /// The host, if a list names it.
    pub(super) fn listed(&self, host: &IscsiName) -> Option<IscsiName> {
        let names = |hosts: &Hosts| matches!(hosts, Hosts::List(hosts) if hosts.contains(host));
        self.units.iter().any(|unit| names(&unit.hosts)).then(|| host.clone())
    }
}

impl Targets {
    /// A host read and wrote so much in this session.
    #[inline]
    pub fn count_traffic(&mut self, session: SessionHandle, traffic: &Traffic) {
        if let Some(session) = self.sessions.get_mut(session.0) {
            session.traffic += *traffic;
        }
    }

    /// A session is gone: what went through it is kept.
    pub(super) fn keep_traffic(&mut self, session: &Session) {
        if let Some(Entry { target, ended, .. }) = self.entries.get_mut(session.target) {
            ended.add(target.listed(&session.nexus.initiator), &session.traffic);
        }
    }

    /// What went through this shard, by target and host.
    pub fn traffic_report(&self) -> Vec<TrafficReport> {
        let kept = self.entries.iter().map(|(slot, entry)| (slot.index, entry.ended.clone()));
        let mut all: BTreeMap<u32, _> = kept.collect();
        for (_, Session { nexus, traffic, target: slot, .. }) in self.sessions.iter() {
            // That of a session whose target was removed is gone with it.
            let Some(Entry { target, .. }) = self.entries.get(*slot) else { continue };
            if let Some(by_host) = all.get_mut(&slot.index) {
                by_host.add(target.listed(&nexus.initiator), traffic);
            }
        }
        let mut told = Vec::new();
        for (slot, Entry { target, .. }) in self.entries.iter() {
            let by_host = all.remove(&slot.index).into_iter().flatten();
            told.extend(by_host.map(|(host, traffic)| TrafficReport {
                target: target.name.clone(),
                host,
                traffic,
            }));
        }
        told
    }
}
