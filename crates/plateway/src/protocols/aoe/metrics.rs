//! What monitoring reads of AoE.

use ::aoe::ExportId;
use ::aoe::initiator::InitiatorCounters;
use ::aoe::server::{Drops, TargetCounters, Traffic};
use contract::Counters;
use shard::Report;

use crate::metrics::Families;
use crate::protocols::HostTraffic;
use crate::run::Running;

/// What stations did with exports, on each shard.
pub(crate) fn host_traffic(running: &Running, reports: &[Report]) -> Vec<HostTraffic> {
    let mut all = Vec::new();
    for open in running.exports() {
        let Some(config) = open.config.as_aoe() else { continue };
        let number = ExportId(open.number);
        let of = |host, traffic: &Traffic| HostTraffic {
            protocol: "aoe",
            export: format!("{}/{}", config.links.join(","), config.address),
            host,
            reads: traffic.reads,
            writes: traffic.writes,
            read_bytes: traffic.read_bytes,
            write_bytes: traffic.write_bytes,
        };
        for report in reports.iter().map(|report| &report.protocols.aoe) {
            let exports = report.exports.iter().filter(|(id, _)| *id == number);
            let mut others: Traffic = exports.map(|(_, traffic)| *traffic).sum();
            for (_, mac, traffic) in report.hosts.iter().filter(|(id, ..)| *id == number) {
                others = others.since(traffic);
                all.push(of(Some(mac.to_string()), traffic));
            }
            all.push(of(None, &others));
        }
    }
    all
}

pub(crate) fn metrics(reports: &[Report], disks: &[(u32, String)], families: &mut Families) {
    let all = || reports.iter().map(|report| &report.protocols.aoe);
    let target: TargetCounters = all().map(|one| one.counters).sum();
    families.counters("aoe", &Vec::new(), &target);
    let dropped = "Frames of initiators that were dropped in silence, by why";
    let dropped = families.counter("aoe_dropped_frames", None, dropped);
    for (why, count) in all().map(|one| one.drops).sum::<Drops>().each() {
        dropped.count(vec![("reason", why.name.to_owned())], count);
    }
    families.declare::<InitiatorCounters>("remote_aoe");
    for (number, name) in disks {
        let mut sum = InitiatorCounters::default();
        let imports = reports.iter().flat_map(|report| &report.imports);
        let mine = imports.filter(|import| import.disk.0 == *number);
        let mut is_there = false;
        for (counter, value) in mine.flat_map(|import| &import.counters) {
            let listed = InitiatorCounters::LIST.iter().zip(sum.values_mut());
            listed.filter(|(known, _)| known.name == counter.name).for_each(|(_, sum)| {
                *sum += value;
                is_there = true;
            });
        }
        if is_there {
            families.counters("remote_aoe", &vec![("disk", name.clone())], &sum);
        }
    }
}
