//! What monitoring reads of iSCSI.

use contract::SessionCounters;
use shard::Report;

use crate::metrics::Families;
use crate::protocols::HostTraffic;

/// What hosts did with targets, on each shard.
pub(crate) fn host_traffic(reports: &[Report]) -> impl Iterator<Item = HostTraffic> + '_ {
    let all = reports.iter().flat_map(|report| &report.protocols.iscsi.traffic);
    all.map(|one| {
        let host = one.host.as_ref().map(|host| host.as_str().to_owned());
        HostTraffic::of("iscsi", one.target.as_str(), host, &one.traffic)
    })
}

pub(crate) fn metrics(reports: &[Report], families: &mut Families) {
    let sessions: SessionCounters =
        reports.iter().map(|report| report.protocols.iscsi.sessions).sum();
    families.counters("iscsi", &Vec::new(), &sessions);
    let open = "Sessions of hosts";
    let open = families.gauge("iscsi_sessions", None, open);
    let all = reports.iter().map(|report| report.protocols.iscsi.logins.len() as u64);
    open.count(Vec::new(), all.sum());
}
