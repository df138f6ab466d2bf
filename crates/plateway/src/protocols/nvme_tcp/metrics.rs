//! What monitoring reads of NVMe/TCP.

use contract::SessionCounters;
use shard::Report;

use crate::metrics::Families;
use crate::protocols::HostTraffic;

/// What hosts did with subsystems, on each shard.
pub(crate) fn host_traffic(reports: &[Report]) -> impl Iterator<Item = HostTraffic> + '_ {
    let all = reports.iter().flat_map(|report| &report.protocols.nvme.traffic);
    all.map(|one| {
        let host = one.host.as_ref().map(|host| host.as_str().to_owned());
        HostTraffic::of("nvme", one.subsystem.as_str(), host, &one.traffic)
    })
}

pub(crate) fn metrics(reports: &[Report], families: &mut Families) {
    let sessions: SessionCounters =
        reports.iter().map(|report| report.protocols.nvme.sessions).sum();
    families.counters("nvme", &Vec::new(), &sessions);
    let open = "Sessions of hosts";
    let open = families.gauge("nvme_sessions", None, open);
    let all = reports.iter().map(|report| report.protocols.nvme.controllers.len() as u64);
    open.count(Vec::new(), all.sum());
}
