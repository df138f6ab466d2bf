//! What monitoring reads of iSCSI.

use contract::SessionCounters;
use shard::Report;

use crate::metrics::Families;

pub(crate) fn metrics(reports: &[Report], families: &mut Families) {
    let sessions: SessionCounters =
        reports.iter().map(|report| report.protocols.iscsi.sessions).sum();
    families.counters("iscsi", &Vec::new(), &sessions);
    let open = "Sessions of hosts";
    let open = families.gauge("iscsi_sessions", None, open);
    let all = reports.iter().map(|report| report.protocols.iscsi.logins.len() as u64);
    open.count(Vec::new(), all.sum());
}
