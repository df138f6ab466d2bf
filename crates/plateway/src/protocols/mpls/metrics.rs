//! What monitoring reads of routers: a series for each port, label, path, pseudowire, tunnel and
//! neighbour, under the name that the configuration gives it.
//!
//! Units: as names end (docs/metrics.md). No errors.

use std::collections::BTreeMap;

use bfd::SessionCounters;
use mpls::ilm::IlmCounters;
use mpls::nhlfe::NhlfeCounters;
use mpls::port::PortCounters;
use mpls::pseudowire::PseudowireCounters;
use mpls::sequencing::SequenceCounters;
use mpls::tunnel::TunnelCounters;
use mpls::{ProbeCounters, ProtectionCounters, QueueCounters};
use prometheus_client::registry::Unit;
use wire::bfd::State;

use super::status::{
    NeighbourStatus, NextHopStatus, PortStatus, PseudowireStatus, RouterStatus, TunnelStatus,
    UP_STATE, WirePathStatus,
};
use crate::metrics::{Families, Family, Labels};

/// So many labels, paths, pseudowires and tunnels of a router have series of their own in monitoring; where
/// there are more of a kind, none of that kind has.
const SERIES_MAX: usize = 1000;

const UP: &str = "Whether frames come and go (1)";
const PATH_UP: &str =
    "Whether frames that go by this path may arrive (1), as BFD sees it where it watches";
const FRAME: &str =
    "Bytes of the largest frame that this path carries, as far as probes showed or its port says";
const PROMISED: &str = "Bytes of the largest frame that its circuit has";
const DROPPED: &str = "Frames that were dropped, by the port by which they came and why";
const WIRE_DROPPED: &str = "Frames of a pseudowire that were dropped, in both directions, by why";
const TUNNEL_UP: &str = "Whether there is a route to its other end, and its circuit is up (1)";
const TUNNEL_DROPPED: &str = "Frames of a tunnel that were dropped, in both directions, by why";
const RESOLVED: &str = "Whether the kernel knows where a next hop is that the configuration knows by an IP address (1)";
const NEIGHBOUR_UP: &str = "Whether BFD and it hear each other (1)";
const NEIGHBOUR_DROPPED: &str = "Packets of BFD by a neighbour's port that were dropped, by why";

/// What monitoring reads of routers.
pub(crate) fn metrics(routers: &[RouterStatus], families: &mut Families) {
    declare(families);
    for router in routers {
        let mut series = Series { router: &router.name, families };
        router.ports.iter().for_each(|one| series.port(one));
        let labels = series.labels(&[]);
        let count = router.labels.len() as u64;
        series.families.gauge("router_labels", None, "").count(labels, count);
        for one in few(&router.labels) {
            let (label, from) = (one.label.to_string(), one.from.as_deref().unwrap_or_default());
            series.packets(&[("label", &label), ("from", from)], &of_label(&one.counters));
        }
        for one in few(&router.paths) {
            series.packets(&[("path", &one.name)], &of_path(&one.counters));
        }
        few(&router.pseudowires).iter().for_each(|one| series.pseudowire(one));
        few(&router.tunnels).iter().for_each(|one| series.tunnel(one));
        few(&router.next_hops).iter().for_each(|one| series.next_hop(one));
        router.neighbours.iter().for_each(|one| series.neighbour(one));
    }
}

/// Families are there, and explained, before anything is in them.
fn declare(families: &mut Families) {
    families.gauge("router_port_up", None, UP);
    families.declare::<PortCounters>("router_port");
    families.declare::<QueueCounters>("router_port");
    families.counter("router_port_dropped_frames", None, DROPPED);
    families.gauge("router_labels", None, "Labels in the incoming label map");
    let (label, path) = (IlmCounters::default(), NhlfeCounters::default());
    for one in of_label(&label).iter().chain(&of_path(&path)) {
        one.family(families);
    }
    families.gauge("router_pseudowire_up", None, UP);
    families.declare::<PseudowireCounters>("router_pseudowire");
    families.declare::<SequenceCounters>("router_pseudowire");
    families.declare::<ProtectionCounters>("router_pseudowire");
    families.declare::<ProbeCounters>("router_pseudowire");
    families.gauge("router_pseudowire_path_up", None, PATH_UP);
    families.gauge("router_pseudowire_path_frame", Some(Unit::Bytes), FRAME);
    families.gauge("router_pseudowire_path_promised_frame", Some(Unit::Bytes), PROMISED);
    families.counter("router_pseudowire_dropped_frames", None, WIRE_DROPPED);
    families.gauge("router_tunnel_up", None, TUNNEL_UP);
    families.declare::<TunnelCounters>("router_tunnel");
    families.declare::<SequenceCounters>("router_tunnel");
    families.counter("router_tunnel_dropped_frames", None, TUNNEL_DROPPED);
    families.gauge("router_next_hop_resolved", None, RESOLVED);
    families.gauge("router_neighbour_up", None, NEIGHBOUR_UP);
    families.declare::<SessionCounters>("router_neighbour");
    families.declare::<ProtectionCounters>("router_neighbour");
    families.counter("router_neighbour_dropped_packets", None, NEIGHBOUR_DROPPED);
}

/// The series of a router.
struct Series<'a> {
    router: &'a str,
    families: &'a mut Families,
}

impl Series<'_> {
    /// The router's label, and these.
    fn labels(&self, more: &[(&'static str, &str)]) -> Labels {
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        [("router", self.router.to_owned())].into_iter().chain(more).collect()
    }

    /// What was dropped, by why.
    fn dropped(&mut self, name: &str, of: (&'static str, &str), counts: &BTreeMap<String, u64>) {
        for (why, count) in counts {
            let labels = self.labels(&[of, ("reason", why)]);
            self.families.counter(name, None, "").count(labels, *count);
        }
    }

    fn packets(&mut self, of: &[(&'static str, &str)], packets: &[Packets]) {
        let labels = self.labels(of);
        packets.iter().for_each(|one| one.count(&labels, self.families));
    }

    fn port(&mut self, port: &PortStatus) {
        let labels = self.labels(&[("port", &port.name)]);
        let families = &mut *self.families;
        families.gauge("router_port_up", None, UP).count(labels.clone(), port.up.into());
        families.counters("router_port", &labels, &*port.counters);
        families.counters("router_port", &labels, &*port.queue);
        self.dropped("router_port_dropped_frames", ("port", &port.name), &port.drops);
    }

    fn pseudowire(&mut self, one: &PseudowireStatus) {
        let labels = self.labels(&[("pseudowire", &one.name)]);
        let up = u64::from(one.state == UP_STATE);
        let families = &mut *self.families;
        families.gauge("router_pseudowire_up", None, UP).count(labels.clone(), up);
        families.counters("router_pseudowire", &labels, &*one.counters);
        families.counters("router_pseudowire", &labels, &*one.sequences);
        families.counters("router_pseudowire", &labels, &*one.protection);
        families.counters("router_pseudowire", &labels, &*one.probes);
        one.paths.iter().for_each(|path| self.wire_path(&one.name, path));
        let name = ("pseudowire", one.name.as_str());
        self.dropped("router_pseudowire_dropped_frames", name, &one.drops);
    }

    fn wire_path(&mut self, pseudowire: &str, path: &WirePathStatus) {
        let labels = self.labels(&[("pseudowire", pseudowire), ("path", &path.way)]);
        let up = self.families.gauge("router_pseudowire_path_up", None, PATH_UP);
        up.count(labels.clone(), path.carries().into());
        for (name, bytes) in [
            ("router_pseudowire_path_frame", path.frame_bytes),
            ("router_pseudowire_path_promised_frame", path.promised_frame_bytes),
        ] {
            if let Some(bytes) = bytes {
                let family = self.families.gauge(name, Some(Unit::Bytes), "");
                family.count(labels.clone(), bytes.into());
            }
        }
    }

    fn tunnel(&mut self, one: &TunnelStatus) {
        let labels = self.labels(&[("tunnel", &one.name)]);
        let up = u64::from(one.state == UP_STATE);
        let families = &mut *self.families;
        families.gauge("router_tunnel_up", None, TUNNEL_UP).count(labels.clone(), up);
        families.counters("router_tunnel", &labels, &*one.counters);
        families.counters("router_tunnel", &labels, &*one.sequences);
        self.dropped("router_tunnel_dropped_frames", ("tunnel", &one.name), &one.drops);
    }

    fn next_hop(&mut self, one: &NextHopStatus) {
        let labels = self.labels(&[("link", &one.link), ("address", &one.address)]);
        let family = self.families.gauge("router_next_hop_resolved", None, RESOLVED);
        family.count(labels, one.mac.is_some().into());
    }

    fn neighbour(&mut self, one: &NeighbourStatus) {
        let labels = self.labels(&[("neighbour", &one.name)]);
        let up = u64::from(one.state == State::UP.to_string());
        let families = &mut *self.families;
        families.gauge("router_neighbour_up", None, NEIGHBOUR_UP).count(labels.clone(), up);
        families.counters("router_neighbour", &labels, &*one.counters);
        families.counters("router_neighbour", &labels, &*one.protection);
        self.dropped("router_neighbour_dropped_packets", ("neighbour", &one.name), &one.drops);
    }
}

/// Packets, or their bytes, that were counted.
struct Packets {
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    value: u64,
}

impl Packets {
    fn family<'f>(&self, families: &'f mut Families) -> &'f mut Family {
        families.counter(self.name, self.unit.clone(), self.help)
    }

    fn count(&self, labels: &Labels, families: &mut Families) {
        self.family(families).count(labels.clone(), self.value);
    }
}

fn of_label(counters: &IlmCounters) -> [Packets; 3] {
    let (packets, bytes, dropped) = (counters.packets, counters.packet_bytes, counters.dropped);
    [
        Packets {
            name: "router_label_packets",
            unit: None,
            help: "Packets in whose stack this label was looked up",
            value: packets,
        },
        Packets {
            name: "router_label_packet",
            unit: Some(Unit::Bytes),
            help: "Their bytes, from the label on",
            value: bytes,
        },
        Packets {
            name: "router_label_dropped_packets",
            unit: None,
            help: "Those of them that were dropped; their port knows why",
            value: dropped,
        },
    ]
}

fn of_path(counters: &NhlfeCounters) -> [Packets; 3] {
    let (packets, bytes, over_mtu) = (counters.packets, counters.packet_bytes, counters.over_mtu);
    [
        Packets {
            name: "router_path_packets",
            unit: None,
            help: "Packets that left by this path",
            value: packets,
        },
        Packets {
            name: "router_path_packet",
            unit: Some(Unit::Bytes),
            help: "Their bytes, from the label stack on",
            value: bytes,
        },
        Packets {
            name: "router_path_over_mtu_packets",
            unit: None,
            help: "Packets that were dropped: larger than the path takes",
            value: over_mtu,
        },
    ]
}

/// All of them where there are few, or else none.
fn few<T>(all: &[T]) -> &[T] {
    if all.len() > SERIES_MAX { &[] } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::mpls::status::LabelStatus;

    #[test]
    fn a_thousand_labels_have_series_and_more_have_none() {
        for (labels, series) in [(SERIES_MAX, SERIES_MAX), (SERIES_MAX + 1, 0)] {
            let one = |label| LabelStatus { label, ..LabelStatus::default() };
            let labels: Vec<LabelStatus> = (0..labels as u32).map(one).collect();
            let count = labels.len();
            let router = RouterStatus { name: "r".to_owned(), labels, ..RouterStatus::default() };
            let mut families = Families::default();
            metrics(&[router], &mut families);
            let text = families.text();
            let said = text
                .lines()
                .filter(|line| line.starts_with("plateway_router_label_packets_total{"));
            assert_eq!(said.count(), series, "{count}");
            assert!(
                text.contains(&format!("plateway_router_labels{{router=\"r\"}} {count}")),
                "{count}"
            );
        }
    }
}
