//! What is counted, for monitoring: the metrics of a server as OpenMetrics, and the address at
//! which they are read without a password.
//!
//! In: the reports of all shards, and the status that was made of them. Out: a text. Every name
//! stands in docs/metrics.md, which a test compares with what is written here; units are seconds
//! and bytes. What belongs to one protocol is in `protocols`.

mod families;
mod listener;

use contract::Counters;
use prometheus_client::registry::Unit;
use reactor::{LinkCounters, ShardStats};
use shard::Report;
use shard::report::{HostCounters, ShardCounters};
use volume::gate::{ErrorCounters, RequestCounters};
use volume::latency::{Class, Latencies};

pub(crate) use families::{Families, Family, Labels};
pub(crate) use listener::Listener;

use crate::control::Status;
use crate::protocols::{self, HostTraffic, RouterStatus};
use crate::run::Running;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// So many hosts have series of their own; the rest of an export's are its `other`.
const HOSTS_MAX: usize = 1000;
/// The host that stands for all that have no series of their own.
const OTHER: &str = "other";

/// What was seen of a server at one time.
pub(crate) struct Seen<'a> {
    pub(crate) running: &'a Running,
    pub(crate) status: &'a Status,
    pub(crate) reports: &'a [Report],
    pub(crate) shards: &'a [ShardStats],
    pub(crate) routers: Vec<RouterStatus>,
}

/// All metrics.
pub(crate) fn text(seen: &Seen<'_>) -> String {
    let mut families = Families::default();
    server(seen, &mut families);
    volumes(seen, &mut families);
    disks(seen, &mut families);
    let came: HostCounters = seen.reports.iter().map(|report| report.hosts).sum();
    families.counters("hosts", &Vec::new(), &came);
    hosts(protocols::host_traffic(seen.running, seen.reports), &mut families);
    links(seen, &mut families);
    for (shard, stats) in seen.shards.iter().enumerate() {
        families.counters("shard", &vec![("shard", shard.to_string())], stats);
    }
    protocols::metrics(seen.reports, &seen.running.disk_names(), &mut families);
    protocols::router_metrics(&seen.routers, &mut families);
    families.text()
}

fn server(Seen { status, .. }: &Seen<'_>, families: &mut Families) {
    let build = families.information("server", "Which program runs, and how I/O is done");
    build.info(vec![("version", status.version.clone()), ("driver", status.driver.clone())]);
    let up = families.gauge("uptime", Some(Unit::Seconds), "Time since the start");
    up.seconds(Vec::new(), status.uptime_ns);
    let cpu = families.counter("cpu", Some(Unit::Seconds), "Processor time of all threads");
    cpu.seconds(Vec::new(), status.cpu_ns);
    let memory = "The budget of the data path";
    let memory = families.gauge("memory_budget", Some(Unit::Bytes), memory);
    memory.count(Vec::new(), status.memory.budget_bytes);
    let pool = &*status.memory.pool;
    families.counters("memory", &Vec::new(), pool);
    families.counters::<ShardCounters>("connections", &Vec::new(), &status.counters);
    let refused = families.counter("connections_refused", None, "Connections that a bound refused");
    refused.count(Vec::new(), status.refused);
    let open = families.gauge("connections_open", None, "Connections now, by listener");
    for listener in &status.listeners {
        open.count(vec![("listener", listener.addresses.join(" "))], listener.connections);
    }
    let path = "The state of the group of a listener: 1 for the one that it is in";
    let path = families.gauge("listener_path", None, path);
    for listener in &status.listeners {
        let (name, group) = (listener.addresses.join(" "), listener.group.to_string());
        let labels = vec![("listener", name), ("group", group), ("state", listener.path.clone())];
        path.count(labels, 1);
    }
}

fn volumes(Seen { status, reports, running, .. }: &Seen<'_>, families: &mut Families) {
    for volume in &status.volumes {
        let name = vec![("volume", volume.name.clone())];
        let size = families.gauge("volume_size", Some(Unit::Bytes), "What hosts see");
        size.count(name.clone(), volume.bytes);
        state(families, "volume", &name, &volume.state);
    }
    let mine = reports.iter().flat_map(|report| &report.volumes);
    let counts = mine.map(|one| (one.volume.0, &one.counters, &one.errors, &*one.latencies));
    requests(families, "volume", &running.volume_names(), counts);
}

fn disks(Seen { status, reports, running, .. }: &Seen<'_>, families: &mut Families) {
    for disk in &status.disks {
        let name = vec![("disk", disk.name.clone())];
        let size = families.gauge("disk_size", Some(Unit::Bytes), "What it holds");
        size.count(name.clone(), disk.bytes);
        state(families, "disk", &name, &disk.state);
        let protected = "Whether it takes no writes (1), since a flush failed or it is read-only";
        let protected = families.gauge("disk_write_protected", None, protected);
        protected.count(name, u64::from(disk.protected.is_some()));
    }
    let mine = reports.iter().flat_map(|report| &report.disks);
    let counts = mine.map(|one| (one.disk.0, &one.counters, &one.errors, &*one.latencies));
    requests(families, "disk", &running.disk_names(), counts);
}

/// The state that it is in, as a label: 1.
fn state(families: &mut Families, what: &'static str, name: &Labels, state: &str) {
    let help = "How it is: 1 for the state that it is in";
    let family = families.gauge(&format!("{what}_state"), None, help);
    family.count([&name[..], &[("state", state.to_owned())]].concat(), 1);
}

/// What went through volumes or disks, on all shards, by their numbers.
fn requests<'a>(
    families: &mut Families,
    what: &'static str,
    names: &[(u32, String)],
    counts: impl Iterator<Item = (u32, &'a RequestCounters, &'a ErrorCounters, &'a Latencies)> + Clone,
) {
    let named = |name: &str| format!("{what}_{name}");
    let operations = named("operations");
    let took =
        "Time from when a request goes below until it is answered, in whole turns of a shard";
    families.counter(&operations, None, "Requests, by what they do");
    families.counter(&named("transferred"), Some(Unit::Bytes), "Bytes read and written");
    families.counter(&named("errors"), None, "Requests that did not end well, by why");
    families.latency(&named("latency"), took);
    for (number, name) in names {
        let mine = || counts.clone().filter(|(id, ..)| id == number);
        let with = |key, value: &str| vec![(what, name.clone()), (key, value.to_owned())];
        let all: RequestCounters = mine().map(|(_, counters, ..)| *counters).sum();
        let family = families.counter(&operations, None, "");
        for (class, count) in [("read", all.reads), ("write", all.writes), ("flush", all.flushes)] {
            family.count(with("operation", class), count);
        }
        let family = families.counter(&named("transferred"), Some(Unit::Bytes), "");
        family.count(with("operation", "read"), all.read_bytes);
        family.count(with("operation", "write"), all.write_bytes);
        let family = families.counter(&named("errors"), None, "");
        for (kind, count) in mine().map(|(_, _, errors, _)| *errors).sum::<ErrorCounters>().each() {
            family.count(with("kind", kind.name), count);
        }
        let mut latencies = Latencies::default();
        mine().for_each(|(.., shard)| latencies.add(shard));
        let family = families.latency(&named("latency"), "");
        for class in Class::ALL {
            family.histogram(with("operation", class.name()), *latencies.of(class));
        }
    }
}

/// What hosts did with exports: each that a list names, up to a bound, and the rest.
fn hosts(all: Vec<HostTraffic>, families: &mut Families) {
    let (operations, transferred) = ("host_operations", "host_transferred");
    families.counter(operations, None, "Commands of a host, by what they do");
    families.counter(transferred, Some(Unit::Bytes), "Bytes that a host read and wrote");
    let mut series = joined(all);
    let named = series.iter_mut().filter(|one| one.host.is_some());
    named.skip(HOSTS_MAX).for_each(|one| one.host = None);
    for one in joined(series) {
        let host = one.host.unwrap_or_else(|| OTHER.to_owned());
        let protocol = one.protocol.to_owned();
        let labels = [("protocol", protocol), ("export", one.export), ("host", host)];
        for (class, count, bytes) in
            [("read", one.reads, one.read_bytes), ("write", one.writes, one.write_bytes)]
        {
            let labels = [&labels[..], &[("operation", class.to_owned())]].concat();
            families.counter(operations, None, "").count(labels.clone(), count);
            families.counter(transferred, Some(Unit::Bytes), "").count(labels, bytes);
        }
    }
}

/// The same host of the same export once, in order; those without a name come first.
fn joined(mut all: Vec<HostTraffic>) -> Vec<HostTraffic> {
    all.sort_by(|a, b| a.key().cmp(&b.key()));
    all.dedup_by(|one, kept| {
        let is_same = one.key() == kept.key();
        if is_same {
            kept.add(one);
        }
        is_same
    });
    all
}

fn links(Seen { status, reports, .. }: &Seen<'_>, families: &mut Families) {
    families.gauge("link_up", None, "Whether frames come and go (1)");
    families.declare::<LinkCounters>("link");
    for link in &status.links {
        let vlan = link.vlan.map_or(String::new(), |vlan| vlan.to_string());
        let labels = vec![
            ("interface", link.interface.clone()),
            ("vlan", vlan),
            ("used_for", link.used_for.clone()),
        ];
        families.gauge("link_up", None, "").count(labels.clone(), u64::from(link.up));
        families.counters::<LinkCounters>("link", &labels, &link.counters);
    }
    let misfits = "Frames that came on links and were for nobody here, by why";
    let misfits = families.counter("link_misfit_frames", None, misfits);
    let mut sum = contract::Misfits::default();
    reports.iter().for_each(|report| sum += report.misfits);
    for (why, count) in sum.each() {
        misfits.count(vec![("reason", why.name.to_owned())], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(host: Option<usize>) -> HostTraffic {
        HostTraffic {
            protocol: "nvme",
            export: "a\"b\\c\nd".to_owned(),
            host: host.map(|number| format!("host{number}")),
            reads: 1,
            writes: 2,
            read_bytes: 3,
            write_bytes: 4,
        }
    }

    #[test]
    fn a_thousand_hosts_have_series_and_the_rest_are_added_up_and_names_are_escaped() {
        let mut families = Families::default();
        let many = (0..HOSTS_MAX + 5).map(Some).chain([None]);
        hosts(many.map(traffic).collect(), &mut families);
        let text = families.text();
        let reads: Vec<&str> = text
            .lines()
            .filter(|line| {
                line.starts_with("plateway_host_operations_total") && line.contains("read")
            })
            .collect();
        assert_eq!(reads.len(), HOSTS_MAX + 1);
        let other = r#"plateway_host_operations_total{protocol="nvme",export="a\"b\\c\nd",host="other",operation="read"} 6"#;
        assert_eq!(reads.first(), Some(&other));
    }
}
