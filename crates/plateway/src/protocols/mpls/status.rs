//! How routers are, as the control socket and `plateway route show` say it: ports, the
//! incoming label map, paths, pseudowires, tunnels and neighbours, each under the name that the
//! configuration gives it.
//!
//! Keys stay: later versions add some and rename none. Counters begin when a thing is added; of
//! drops those reasons are told that there were. Units: as keys end; bytes of packets from the label
//! stack on, of frames as their port says.

use std::collections::BTreeMap;
use std::time::Duration;

use bfd::SessionCounters;
use block::ByteCount;
use comfy_table::Table;
use mpls::ilm::IlmCounters;
use mpls::nhlfe::NhlfeCounters;
use mpls::port::PortCounters;
use mpls::pseudowire::PseudowireCounters;
use mpls::sequencing::SequenceCounters;
use mpls::tunnel::TunnelCounters;
use mpls::{ProbeCounters, ProtectionCounters, QueueCounters};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::bfd::State;

use super::words::time;
use crate::control::{Keyed, SchemaVersion, table_of};

type PortKeys = Keyed<PortCounters>;
type QueueKeys = Keyed<QueueCounters>;
type LabelKeys = Keyed<IlmCounters>;
type PathKeys = Keyed<NhlfeCounters>;
type PseudowireKeys = Keyed<PseudowireCounters>;
type SequenceKeys = Keyed<SequenceCounters>;
type ProtectionKeys = Keyed<ProtectionCounters>;
type ProbeKeys = Keyed<ProbeCounters>;
type TunnelKeys = Keyed<TunnelCounters>;
type SessionKeys = Keyed<SessionCounters>;

/// A router.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Router)]
pub(crate) struct RouterStatus {
    pub(crate) name: String,
    /// The shard on which it is.
    pub(crate) shard: u16,
    pub(crate) quarantine_ms: u64,
    pub(crate) ports: Vec<PortStatus>,
    /// The incoming label map: labels of all ports, then those of single ones.
    pub(crate) labels: Vec<LabelStatus>,
    /// Next hop label forwarding entries: those with a name, then those of labels.
    pub(crate) paths: Vec<PathStatus>,
    pub(crate) pseudowires: Vec<PseudowireStatus>,
    #[serde(default)]
    pub(crate) tunnels: Vec<TunnelStatus>,
    /// Next routers that BFD watches.
    #[serde(default)]
    pub(crate) neighbours: Vec<NeighbourStatus>,
    /// Next hops by an address of IP.
    #[serde(default)]
    pub(crate) next_hops: Vec<NextHopStatus>,
    /// Frames by ports that are not there, by why they were dropped.
    pub(crate) strays: BTreeMap<String, u64>,
}

/// A next hop that is known by an address of IP.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterNextHop)]
pub(crate) struct NextHopStatus {
    pub(crate) link: String,
    pub(crate) address: String,
    /// Where it is, as the kernel's table of neighbours has it; none: it is not resolved.
    pub(crate) mac: Option<String>,
    /// Why it is not resolved, in a line.
    pub(crate) problem: Option<String>,
}

/// A router in a line, as `status` has it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct RouterSummary {
    pub(crate) name: String,
    /// The shard on which it is.
    pub(crate) shard: u16,
    /// Core ports.
    pub(crate) ports: u64,
    pub(crate) ports_up: u64,
    pub(crate) circuits: u64,
    pub(crate) circuits_up: u64,
    /// `[[ilm]]`.
    pub(crate) labels: u64,
    /// `[[lsp]]`.
    pub(crate) lsps: u64,
    pub(crate) pseudowires: u64,
    #[serde(default)]
    pub(crate) tunnels: u64,
    #[serde(default)]
    pub(crate) neighbours: u64,
    /// What is wrong, a line for each.
    #[serde(default)]
    pub(crate) problems: Vec<String>,
}

/// A table of them.
pub(crate) fn summaries(routers: &[RouterSummary]) -> Table {
    table_of(
        routers,
        &[
            ("router", |one| one.name.clone()),
            ("shard", |one| one.shard.to_string()),
            ("ports up", |one| format!("{} of {}", one.ports_up, one.ports)),
            ("circuits up", |one| format!("{} of {}", one.circuits_up, one.circuits)),
            ("labels", |one| one.labels.to_string()),
            ("lsps", |one| one.lsps.to_string()),
            ("pseudowires", |one| one.pseudowires.to_string()),
            ("tunnels", |one| one.tunnels.to_string()),
            ("neighbours", |one| one.neighbours.to_string()),
        ],
    )
}

/// Where a router hears frames and sends them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterPort)]
pub(crate) struct PortStatus {
    /// That of its link or circuit, or `pw:` and the name of its pseudowire.
    pub(crate) name: String,
    /// `core`, `circuit`, `tunnels`, or `here` of a pseudowire that ends in this process.
    pub(crate) kind: String,
    pub(crate) up: bool,
    /// Its own address; none where it is not known.
    pub(crate) mac: Option<String>,
    /// The host at its other end, of a port in UDP.
    #[serde(default)]
    pub(crate) peer: Option<String>,
    /// Bytes behind the Ethernet header, or in a datagram; none while it is down.
    pub(crate) mtu: Option<u32>,
    /// What it may send, such as `100mbit`; none: whatever its interface takes.
    #[serde(default)]
    pub(crate) rate: Option<String>,
    #[serde(flatten)]
    pub(crate) counters: PortKeys,
    #[serde(flatten)]
    pub(crate) queue: QueueKeys,
    /// Frames that came here and were dropped, by why.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// What is done with packets that come with a label.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterLabel)]
pub(crate) struct LabelStatus {
    pub(crate) label: u32,
    /// The link whose label it is; none: it is that of all ports.
    pub(crate) from: Option<String>,
    /// `pop`, `pop to LINK`, `swap for [201] to LINK`, `pseudowire NAME`, or `withdrawn`.
    pub(crate) action: String,
    /// What it is for, or was, where that has a name.
    pub(crate) owner: String,
    #[serde(flatten)]
    pub(crate) counters: LabelKeys,
}

/// Where packets go, and with which labels.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterPath)]
pub(crate) struct PathStatus {
    /// `lsp NAME`, or `ilm LABEL` of those that a label goes on by; `backup of` one of these.
    pub(crate) name: String,
    pub(crate) link: String,
    /// Its address as the configuration has it, a MAC or an IP address, or the IP address of the peer of
    /// a link in UDP.
    pub(crate) next_hop: String,
    /// The MAC address to which packets go; none while it is not resolved or its link was never up, and
    /// of a link in UDP.
    #[serde(default)]
    pub(crate) next_hop_mac: Option<String>,
    /// From the top.
    pub(crate) labels: Vec<u32>,
    /// Bytes that a packet may have behind the Ethernet header; none while its link was never up.
    pub(crate) mtu: Option<u32>,
    pub(crate) up: bool,
    /// Which its packets take, itself (`primary`) or its `backup`; none if it has no backup.
    #[serde(default)]
    pub(crate) takes: Option<String>,
    #[serde(flatten)]
    pub(crate) counters: PathKeys,
}

/// All of them, as `GET /v1/routers` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Routers {
    #[serde(default)]
    pub(crate) schema_version: SchemaVersion,
    /// In the order of the configuration.
    pub(crate) routers: Vec<RouterStatus>,
}

/// One of the two paths of a pseudowire.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterPseudowirePath)]
pub(crate) struct WirePathStatus {
    /// `primary` or `backup`.
    pub(crate) way: String,
    pub(crate) lsp: String,
    /// Of its BFD session, `Up`, `Init`, `Down` or `AdminDown`; `unwatched` where there is none,
    /// `without a port` while its link is down, `not resolved` while its next hop is not.
    pub(crate) state: String,
    /// Bytes of the largest frame that goes through whole, as far as probes showed or its port's MTU
    /// says; none where that is not known.
    #[serde(default)]
    pub(crate) frame_bytes: Option<u32>,
    /// Bytes of the largest frame that its circuit has; none where nothing was asked.
    #[serde(default)]
    pub(crate) promised_frame_bytes: Option<u32>,
}

/// The state of a path whose link is down.
pub(crate) const NO_PORT: &str = "without a port";
/// The state of a path whose next hop is not resolved.
pub(crate) const NOT_RESOLVED: &str = "not resolved";
/// What packets do whose next hop is up again, and not for long enough.
pub(crate) const WAITING: &str = "waiting";
/// The state of a path that BFD does not watch.
pub(crate) const UNWATCHED: &str = "unwatched";

impl WirePathStatus {
    /// Whether frames that go by it may arrive, as far as is known.
    pub(crate) fn carries(&self) -> bool {
        self.state == State::UP.to_string() || self.state == UNWATCHED
    }

    /// What is too large for it: what fits, and what should.
    pub(crate) fn narrow(&self) -> Option<(u32, u32)> {
        self.frame_bytes.zip(self.promised_frame_bytes).filter(|(fits, promised)| fits < promised)
    }

    /// In a cell.
    fn text(&self) -> String {
        let size = match (self.narrow(), self.promised_frame_bytes) {
            (Some((fits, promised)), _) => format!(" {fits} of {promised} bytes"),
            (None, Some(promised)) if self.frame_bytes.is_some() => format!(" {promised} bytes"),
            (None, Some(_)) => " size unproven".to_owned(),
            (None, None) => String::new(),
        };
        format!("{} {}{size}", self.lsp, self.state)
    }
}

/// A pseudowire.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterPseudowire)]
pub(crate) struct PseudowireStatus {
    pub(crate) name: String,
    /// None: it ends in this process.
    pub(crate) circuit: Option<String>,
    /// Its frames among those of its circuit; none: all.
    pub(crate) class: Option<String>,
    pub(crate) label_in: u32,
    pub(crate) label_out: u32,
    pub(crate) lsp: String,
    /// The lsp that its frames take while the other one fails.
    pub(crate) backup: Option<String>,
    /// The primary one, then the backup.
    pub(crate) paths: Vec<WirePathStatus>,
    /// The path that its frames take: `primary` or `backup`.
    pub(crate) active: String,
    /// By which links and in which tunnels its packets come.
    pub(crate) from: Vec<String>,
    pub(crate) control_word: bool,
    /// `drop`, `reorder` or `off`; none without a control word.
    pub(crate) sequence: Option<String>,
    /// `up`, or what is down.
    pub(crate) state: String,
    #[serde(flatten)]
    pub(crate) counters: PseudowireKeys,
    #[serde(flatten)]
    pub(crate) sequences: SequenceKeys,
    #[serde(flatten)]
    pub(crate) protection: ProtectionKeys,
    #[serde(flatten)]
    pub(crate) probes: ProbeKeys,
    /// Whether targets of AoE behind it offer no more sectors than its frames carry.
    #[serde(default)]
    pub(crate) clamp: bool,
    /// Frames of both directions that were dropped, by why.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// A tunnel through IP.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterTunnel)]
pub(crate) struct TunnelStatus {
    pub(crate) name: String,
    pub(crate) circuit: String,
    /// Its frames among those of its circuit; none: all.
    pub(crate) class: Option<String>,
    /// Where it leads, which is the name of its port.
    pub(crate) way: String,
    /// The key or session ID with which packets come, and with which they are sent.
    pub(crate) comes: String,
    pub(crate) goes: String,
    /// `drop`, `reorder` or `off`.
    pub(crate) sequence: String,
    /// `up`, or what is down. Whether the other end is there is not known.
    pub(crate) state: String,
    #[serde(flatten)]
    pub(crate) counters: TunnelKeys,
    #[serde(flatten)]
    pub(crate) sequences: SequenceKeys,
    /// Frames of both directions that were dropped, by why.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// A next router that BFD watches.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterNeighbour)]
pub(crate) struct NeighbourStatus {
    /// By which the configuration knows it: `ADDRESS on LINK`.
    pub(crate) name: String,
    pub(crate) link: String,
    /// Its address by which paths go to it, a MAC or an IP address.
    pub(crate) next_hop: String,
    /// Its MAC address; none while it is not resolved.
    #[serde(default)]
    pub(crate) next_hop_mac: Option<String>,
    pub(crate) address: String,
    /// Of its BFD session, `Up`, `Init`, `Down` or `AdminDown`; `without a port` while its link is
    /// down or this host has no way to its address.
    pub(crate) state: String,
    /// What it says of itself, and why the session was last left; none without a session.
    pub(crate) remote_state: Option<String>,
    pub(crate) diagnostic: Option<String>,
    /// How often packets go there, and after which silence it is down, in microseconds.
    pub(crate) transmit_interval_us: Option<u64>,
    pub(crate) detection_time_us: Option<u64>,
    /// Whether packets that have a backup take it: `primary`, `waiting` (it is up again, for less
    /// than its `revert`) or `backup`.
    pub(crate) takes: String,
    #[serde(flatten)]
    pub(crate) counters: SessionKeys,
    #[serde(flatten)]
    pub(crate) protection: ProtectionKeys,
    /// Packets of BFD that were dropped, by why.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// Reasons and how often, in a cell.
fn drops(counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(why, count)| format!("{why} {count}")).collect();
    if each.is_empty() { "-".to_owned() } else { each.join(", ") }
}

fn traffic(frames: u64, bytes: u64) -> String {
    format!("{frames} ({})", ByteCount(bytes))
}

/// A time in microseconds.
fn shown(us: Option<u64>) -> String {
    us.map_or("-".to_owned(), |us| time(Duration::from_micros(us)))
}

/// An address, and where that is if it is another one.
fn next_hop(address: &str, mac: Option<&String>) -> String {
    match mac.filter(|mac| *mac != address) {
        Some(mac) => format!("{address} ({mac})"),
        None => address.to_owned(),
    }
}

fn state(is_up: bool) -> String {
    if is_up { "up" } else { "down" }.to_owned()
}

impl RouterStatus {
    /// For people, each under its title.
    pub(crate) fn tables(&self) -> [(&'static str, Table); 7] {
        let ports = table_of(
            &self.ports,
            &[
                ("port", |one| one.name.clone()),
                ("kind", |one| one.kind.clone()),
                ("state", |one| state(one.up)),
                ("mac", |one| one.mac.clone().unwrap_or("-".to_owned())),
                ("peer", |one| one.peer.clone().unwrap_or("-".to_owned())),
                ("mtu", |one| one.mtu.map_or("-".to_owned(), |mtu| mtu.to_string())),
                ("received", |one| traffic(one.counters.received, one.counters.received_bytes)),
                ("sent", |one| traffic(one.counters.sent, one.counters.sent_bytes)),
                ("rate", |one| one.rate.clone().unwrap_or("-".to_owned())),
                ("delayed", |one| one.queue.delayed.to_string()),
                ("queue full", |one| one.queue.queue_full.to_string()),
                ("dropped", |one| drops(&one.drops)),
            ],
        );
        let fecs = table_of(
            &self.pseudowires,
            &[
                ("frames of", |one| match &one.circuit {
                    Some(circuit) => {
                        let class = one.class.as_ref().map(|class| format!(" class {class}"));
                        format!("circuit {circuit}{}", class.unwrap_or_default())
                    }
                    None => "this process".to_owned(),
                }),
                ("pseudowire", |one| one.name.clone()),
                ("label", |one| one.label_out.to_string()),
                ("lsp", |one| one.lsp.clone()),
            ],
        );
        let labels = table_of(
            &self.labels,
            &[
                ("label", |one| one.label.to_string()),
                ("from", |one| one.from.clone().unwrap_or("any port".to_owned())),
                ("action", |one| one.action.clone()),
                ("for", |one| one.owner.clone()),
                ("packets", |one| traffic(one.counters.packets, one.counters.packet_bytes)),
                ("dropped", |one| one.counters.dropped.to_string()),
            ],
        );
        let paths = table_of(
            &self.paths,
            &[
                ("path", |one| one.name.clone()),
                ("link", |one| one.link.clone()),
                ("next hop", |one| next_hop(&one.next_hop, one.next_hop_mac.as_ref())),
                ("labels", |one| format!("{:?}", one.labels)),
                ("mtu", |one| one.mtu.map_or("-".to_owned(), |mtu| mtu.to_string())),
                ("state", |one| state(one.up)),
                ("takes", |one| one.takes.clone().unwrap_or("-".to_owned())),
                ("packets", |one| traffic(one.counters.packets, one.counters.packet_bytes)),
                ("over mtu", |one| one.counters.over_mtu.to_string()),
            ],
        );
        let pseudowires = table_of(
            &self.pseudowires,
            &[
                ("pseudowire", |one| one.name.clone()),
                ("state", |one| one.state.clone()),
                ("in", |one| one.label_in.to_string()),
                ("out", |one| one.label_out.to_string()),
                ("paths", |one| {
                    let path = |path: &WirePathStatus| {
                        let active = if path.way == one.active { "*" } else { "" };
                        format!("{active}{}", path.text())
                    };
                    one.paths.iter().map(path).collect::<Vec<_>>().join(", ")
                }),
                ("comes by", |one| one.from.join(", ")),
                ("sequence", |one| match (&one.sequence, one.control_word) {
                    (Some(sequence), true) => sequence.clone(),
                    _ => "no control word".to_owned(),
                }),
                ("sent", |one| traffic(one.counters.sent, one.counters.sent_bytes)),
                ("delivered", |one| traffic(one.counters.delivered, one.counters.delivered_bytes)),
                ("missing", |one| one.sequences.missing.to_string()),
                ("clamped", |one| match one.clamp {
                    true => one.counters.clamped.to_string(),
                    false => "-".to_owned(),
                }),
                ("dropped", |one| drops(&one.drops)),
            ],
        );
        let tunnels = table_of(
            &self.tunnels,
            &[
                ("tunnel", |one| one.name.clone()),
                ("frames of", |one| {
                    let class = one.class.as_ref().map(|class| format!(" class {class}"));
                    format!("circuit {}{}", one.circuit, class.unwrap_or_default())
                }),
                ("state", |one| one.state.clone()),
                ("way", |one| one.way.clone()),
                ("in", |one| one.comes.clone()),
                ("out", |one| one.goes.clone()),
                ("sequence", |one| one.sequence.clone()),
                ("sent", |one| traffic(one.counters.sent, one.counters.sent_bytes)),
                ("delivered", |one| traffic(one.counters.delivered, one.counters.delivered_bytes)),
                ("missing", |one| one.sequences.missing.to_string()),
                ("dropped", |one| drops(&one.drops)),
            ],
        );
        let neighbours = table_of(
            &self.neighbours,
            &[
                ("neighbour", |one| one.name.clone()),
                ("next hop", |one| next_hop(&one.next_hop, one.next_hop_mac.as_ref())),
                ("BFD", |one| one.state.clone()),
                ("there", |one| one.remote_state.clone().unwrap_or("-".to_owned())),
                ("last left for", |one| one.diagnostic.clone().unwrap_or("-".to_owned())),
                ("every", |one| shown(one.transmit_interval_us)),
                ("down after", |one| shown(one.detection_time_us)),
                ("takes", |one| one.takes.clone()),
                ("to backup", |one| one.protection.to_backup.to_string()),
                ("dropped", |one| drops(&one.drops)),
            ],
        );
        [
            ("ports", ports),
            ("which frames go by which pseudowire (FEC)", fecs),
            ("labels of packets that come (ILM)", labels),
            ("paths (NHLFE)", paths),
            ("pseudowires", pseudowires),
            ("tunnels", tunnels),
            ("neighbours", neighbours),
        ]
    }

    /// As people read it.
    pub(crate) fn text(&self) -> String {
        let seconds = self.quarantine_ms as f64 / 1e3;
        let mut text = format!(
            "router {} on shard {}, quarantine of labels {seconds} s\n",
            self.name, self.shard
        );
        for (title, table) in self.tables() {
            if table.row_count() > 0 {
                text += &format!("\n{title}\n{table}\n");
            }
        }
        let problems: Vec<String> =
            self.next_hops.iter().filter_map(|one| one.problem.clone()).collect();
        if !problems.is_empty() {
            text += &format!("\nproblems\n{}\n", problems.join("\n"));
        }
        if !self.strays.is_empty() {
            text += &format!("\nby ports that are gone: {}\n", drops(&self.strays));
        }
        text
    }
}

/// The state of a pseudowire that carries frames.
pub(crate) const UP_STATE: &str = "up";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay() {
        let router = RouterStatus {
            ports: vec![PortStatus::default()],
            labels: vec![LabelStatus::default()],
            paths: vec![PathStatus::default()],
            pseudowires: vec![PseudowireStatus::default()],
            tunnels: vec![TunnelStatus::default()],
            neighbours: vec![NeighbourStatus::default()],
            next_hops: vec![NextHopStatus::default()],
            ..RouterStatus::default()
        };
        let router = serde_json::to_value(&router).expect("JSON");
        for (at, keys) in [
            ("", &["name", "shard", "quarantine_ms", "strays"][..]),
            (
                "/ports/0",
                &[
                    "name",
                    "kind",
                    "up",
                    "mac",
                    "peer",
                    "mtu",
                    "rate",
                    "received",
                    "sent",
                    "delayed",
                    "queue_full",
                ],
            ),
            ("/labels/0", &["label", "from", "action", "owner", "packets", "dropped"]),
            ("/paths/0", &["name", "link", "next_hop", "labels", "mtu", "up", "takes", "packets"]),
            ("/pseudowires/0", &["name", "circuit", "label_in", "label_out", "lsp", "state"]),
            ("/pseudowires/0", &["sent", "delivered", "missing", "drops", "sequence"]),
            ("/tunnels/0", &["name", "circuit", "way", "comes", "goes", "state", "sequence"]),
            ("/tunnels/0", &["sent", "delivered", "missing", "drops"]),
            ("/neighbours/0", &["name", "link", "next_hop", "address", "state", "takes"]),
            ("/neighbours/0", &["remote_state", "diagnostic", "detection_time_us", "ups"]),
            ("/neighbours/0", &["to_backup", "to_primary", "drops", "next_hop_mac"]),
            ("/paths/0", &["next_hop_mac"]),
            ("/next_hops/0", &["link", "address", "mac", "problem"]),
        ] {
            let object = router.pointer(at).expect(at);
            for key in keys {
                assert!(object.get(key).is_some(), "{at}/{key} is gone: {object}");
            }
        }
    }
}
