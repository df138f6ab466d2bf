//! What each host did with a target through this shard, for monitoring.
//!
//! A connection gathers it during a turn and gives it to its session; of sessions that are gone the
//! target keeps it, by the hosts that the lists of its LUNs name and one for all others, so that
//! strangers cost nothing.

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

/// That of sessions that are gone, by host.
pub(super) type Ended = BTreeMap<Option<IscsiName>, Traffic>;

impl Target {
    /// The host, if a list names it.
    fn listed(&self, host: &IscsiName) -> Option<IscsiName> {
        let names = |hosts: &Hosts| matches!(hosts, Hosts::List(hosts) if hosts.contains(host));
        self.units.iter().any(|unit| names(&unit.hosts)).then(|| host.clone())
    }
}

/// Traffic under the names that the target's lists have now.
pub(super) fn listed_again(ended: Ended, target: &Target) -> Ended {
    let mut all = Ended::new();
    for (host, traffic) in ended {
        *all.entry(host.and_then(|host| target.listed(&host))).or_default() += traffic;
    }
    all
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
        let entry = self.entries.get_mut(session.target);
        if let Some(Entry { target, ended, .. }) = entry.filter(|_| !session.traffic.is_empty()) {
            *ended.entry(target.listed(&session.nexus.initiator)).or_default() += session.traffic;
        }
    }

    /// What went through this shard, by target and host.
    pub fn traffic_report(&self) -> Vec<TrafficReport> {
        let mut all = Vec::new();
        for (slot, Entry { target, ended, .. }) in self.entries.iter() {
            let mut ended = ended.clone();
            let sessions = self.sessions.iter().map(|(_, session)| session);
            for Session { nexus, traffic, .. } in sessions.filter(|one| one.target == slot) {
                *ended.entry(target.listed(&nexus.initiator)).or_default() += *traffic;
            }
            let of_host =
                |(host, traffic)| TrafficReport { target: target.name.clone(), host, traffic };
            all.extend(ended.into_iter().map(of_host));
        }
        all
    }
}
