//! How routers are: what their shards counted, under the names of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use contract::LinkId;
use mpls::ilm::State;
use mpls::{
    Action, HopState, LabelReport, Over, PortKind, Proof, PseudowireId, PseudowireReport,
    RouterReport, Space, TunnelReport, Via, WatchReport,
};
use wire::ethernet::MacAddress;

use super::labels::place_in;
use super::{Routers, RunError, path_named, path_of};
use crate::config::link::pseudowire_link;
use crate::config::thing::Configured;
use crate::control::{Keyed, counted};
use crate::protocols::mpls::pseudowire::{Way, sequence_word};
use crate::protocols::mpls::status::{
    LabelStatus, NO_PORT, NOT_RESOLVED, NeighbourStatus, PathStatus, PortStatus, PseudowireStatus,
    RouterStatus, RouterSummary, TunnelStatus, UNWATCHED, UP_STATE, WAITING, WirePathStatus,
};
use crate::protocols::mpls::words::Hop;
use crate::protocols::mpls::{
    IlmConfig, NeighbourConfig, PseudowireConfig, RouterConfig, TunnelConfig,
};
use crate::run::Running;

impl Running {
    /// All routers, in the order of the configuration.
    pub(crate) fn router_statuses(&self) -> Result<Vec<RouterStatus>, RunError> {
        let shards = u32::from(self.shards.handle().shards());
        let all = self.routers.routers.values();
        all.map(|(id, config)| {
            let report = self.router_report(&config.name)?;
            let shard = (id.0 % shards) as u16;
            Ok(View::new(&self.routers, config, &report).status(shard))
        })
        .collect()
    }
}

impl Running {
    /// All routers in a line each, by what is known here.
    pub(crate) fn router_summaries(&self) -> Vec<RouterSummary> {
        let stats = self.shards.handle().link_stats();
        let up: BTreeSet<LinkId> = stats.iter().filter(|one| one.up).map(|one| one.link).collect();
        let shards = u32::from(self.shards.handle().shards());
        let (routers, event_log) = (&self.routers, self.shards.event_log());
        let summary = |(id, config): &(mpls::RouterId, RouterConfig)| {
            let mine = |router: &String| *router == config.name;
            let ports = routers.ports.values().filter(|(_, one)| mine(&one.router));
            let ports: Vec<bool> = ports.map(|(link, _)| up.contains(link)).collect();
            let circuits = routers.circuits.values().filter(|(_, one)| mine(&one.router));
            let circuits: Vec<bool> = circuits.map(|(link, _)| up.contains(link)).collect();
            let count = |all: &[bool]| all.iter().filter(|up| **up).count() as u64;
            RouterSummary {
                name: config.name.clone(),
                shard: (id.0 % shards) as u16,
                ports: ports.len() as u64,
                ports_up: count(&ports),
                circuits: circuits.len() as u64,
                circuits_up: count(&circuits),
                labels: routers.ilms.values().filter(|(_, one)| mine(&one.router)).count() as u64,
                lsps: routers.lsps.values().filter(|one| mine(&one.router)).count() as u64,
                pseudowires: routers.pseudowires.values().filter(|one| mine(&one.router)).count()
                    as u64,
                tunnels: routers.tunnels.values().filter(|one| mine(&one.router)).count() as u64,
                neighbours: routers.neighbours.values().filter(|one| mine(&one.router)).count()
                    as u64,
                problems: routers
                    .next_hops
                    .statuses(&config.name)
                    .filter_map(|one| one.problem)
                    .chain(event_log.narrow_paths(*id).map(str::to_owned))
                    .collect(),
            }
        };
        routers.routers.values().map(summary).collect()
    }
}

/// A router's report and the book.
struct View<'a> {
    routers: &'a Routers,
    config: &'a RouterConfig,
    report: &'a RouterReport,
    /// What links are called.
    names: BTreeMap<u32, String>,
    up: BTreeMap<u32, bool>,
    /// Where a path is in the report.
    paths: BTreeMap<u32, usize>,
    /// Where a pseudowire is in the report, and what it is called.
    wire_reports: BTreeMap<u32, usize>,
    wires: BTreeMap<u32, &'a str>,
    /// By link, where it is that of one, and label.
    ilms: BTreeMap<(Option<&'a str>, u32), &'a IlmConfig>,
}

impl<'a> View<'a> {
    fn new(routers: &'a Routers, config: &'a RouterConfig, report: &'a RouterReport) -> Self {
        let ports = routers.ports.values().map(|(link, one)| (link.0, one.link.clone()));
        let circuits = routers.circuits.values().map(|(link, one)| (link.0, one.name.clone()));
        let wires = routers.pseudowires.values().filter(|one| one.circuit.is_none());
        let wires =
            wires.filter_map(|one| Some((routers.circuit_of(one)?.0, pseudowire_link(&one.name))));
        let tunnels = routers.tunnels.values();
        let tunnels =
            tunnels.filter_map(|one| Some((routers.tunnel_port(one)?.0, one.way.title())));
        let (known, numbers) = (routers.pseudowires.values(), &routers.pseudowire_numbers);
        let ilms = routers.ilms.values().map(|(_, one)| one);
        let ilms = ilms.filter(|one| one.router == config.name);
        Self {
            routers,
            config,
            report,
            names: ports.chain(circuits).chain(wires).chain(tunnels).collect(),
            up: report.ports.iter().map(|one| (one.link.0, one.facts.is_some())).collect(),
            paths: report.nhlfes.iter().zip(0..).map(|(one, at)| (one.id.0, at)).collect(),
            wire_reports: report
                .pseudowires
                .iter()
                .zip(0..)
                .map(|(one, at)| (one.id.0, at))
                .collect(),
            wires: known
                .filter_map(|one| Some((numbers.of(&one.name)?, one.name.as_str())))
                .collect(),
            ilms: ilms.map(|one| ((one.from.as_deref(), one.label.get()), one)).collect(),
        }
    }

    fn name(&self, link: LinkId) -> String {
        self.names.get(&link.0).cloned().unwrap_or_else(|| link.to_string())
    }

    fn is_up(&self, link: LinkId) -> bool {
        self.up.get(&link.0).copied().unwrap_or(false)
    }

    fn status(&self, shard: u16) -> RouterStatus {
        let mine = |router: &String| *router == self.config.name;
        let lsps = self.routers.lsps.values().filter(|one| mine(&one.router));
        let lsps = lsps.flat_map(|one| {
            let hops = (&one.hop, one.backup.as_ref());
            self.paths(one.title(), &path_named(&one.name), hops)
        });
        let ilms = self.routers.ilms.values().filter(|(_, one)| mine(&one.router));
        let ilms = ilms.filter_map(|(_, one)| Some((one, one.action.hop()?)));
        let ilms = ilms.flat_map(|(one, hop)| {
            self.paths(one.title(), &path_of(one), (hop, one.backup.as_ref()))
        });
        let wires = self.routers.pseudowires.values().filter(|one| mine(&one.router));
        let tunnels = self.routers.tunnels.values().filter(|one| mine(&one.router));
        let neighbours = self.routers.neighbours.values().filter(|one| mine(&one.router));
        RouterStatus {
            name: self.config.name.clone(),
            shard,
            quarantine_ms: self.config.quarantine.as_millis() as u64,
            ports: self.ports(),
            labels: self.report.labels.iter().map(|one| self.label(one)).collect(),
            paths: lsps.chain(ilms).collect(),
            pseudowires: wires.map(|one| self.pseudowire(one)).collect(),
            tunnels: tunnels.map(|one| self.tunnel(one)).collect(),
            neighbours: neighbours.map(|one| self.neighbour(one)).collect(),
            next_hops: self.routers.next_hops.statuses(&self.config.name).collect(),
            strays: counted(contract::Counters::each(&self.report.strays)),
        }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let peers = self.routers.ports.values();
        let peers = peers.filter_map(|(link, one)| Some((*link, one.udp?.peer)));
        let peers: BTreeMap<LinkId, IpAddr> = peers.collect();
        let one = |port: &mpls::PortReport| {
            let (kind, mac) = match port.kind {
                PortKind::Core(_) => ("core", None),
                PortKind::Circuit { .. } => ("circuit", None),
                PortKind::Virtual { mac } => ("here", Some(mac)),
                PortKind::Tunnels(_) => ("tunnels", None),
                // Unrecorded: the router sees none of its frames, and no such port.
                PortKind::Bfd => ("bfd", None),
            };
            // What goes through IP has none.
            let has_mac = match port.kind {
                PortKind::Core(core) => core.over == Over::Ethernet,
                PortKind::Tunnels(_) => false,
                _ => true,
            };
            let rate = if let PortKind::Core(core) = port.kind { core.rate } else { None };
            let known = port.facts.filter(|_| has_mac);
            let mac = mac.or(known.map(|facts| MacAddress(facts.mac)));
            PortStatus {
                name: self.name(port.link),
                kind: kind.to_owned(),
                up: port.facts.is_some(),
                mac: mac.map(|mac| mac.to_string()),
                peer: peers.get(&port.link).map(ToString::to_string),
                mtu: port.facts.map(|facts| facts.mtu),
                rate: rate.map(|rate| rate.to_string()),
                counters: Keyed(port.counters),
                queue: Keyed(port.queue),
                drops: counted(contract::Counters::each(&port.drops)),
            }
        };
        self.report.ports.iter().map(one).collect()
    }

    fn label(&self, report: &LabelReport) -> LabelStatus {
        let from = match report.space {
            Space::Platform => None,
            Space::Port(link) => Some(self.name(link)),
        };
        let place = place_in(&self.config.name, from.clone(), report.label);
        let ilm = self.ilms.get(&(from.as_deref(), report.label.get())).copied();
        let action = match (report.state, ilm) {
            (State::Withdrawn { .. }, _) => "withdrawn".to_owned(),
            (State::Pseudowire(id), _) => {
                format!("pseudowire {}", self.wires.get(&id.0).copied().unwrap_or_default())
            }
            (State::Lsp(Action::Pop), _) | (_, None) => "pop".to_owned(),
            (State::Lsp(Action::Forward(_)), Some(ilm)) => ilm.action_words(),
        };
        let owner = match report.state {
            State::Withdrawn { .. } => self.routers.withdrawn.title(&place).unwrap_or_default(),
            _ => ilm.and_then(|ilm| ilm.fec.clone()).unwrap_or_default(),
        };
        let counters = Keyed(report.counters);
        LabelStatus { label: report.label.get(), from, action, owner, counters }
    }

    /// A path, and its backup behind it.
    fn paths(
        &self,
        name: String,
        key: &str,
        (hop, backup): (&Hop, Option<&Hop>),
    ) -> Vec<PathStatus> {
        let around =
            backup.map(|hop| self.path(super::backup_of(&name), &super::backup_of(key), hop));
        let mut primary = self.path(name, key, hop);
        primary.takes = backup.map(|_| self.way_of(key).to_string());
        [primary].into_iter().chain(around).collect()
    }

    /// Which of itself and its backup a path's packets take; one whose port was never up takes the
    /// backup, if that is there.
    fn way_of(&self, key: &str) -> mpls::Way {
        self.report_of(key).map_or(mpls::Way::Backup, |report| report.way)
    }

    fn path(&self, name: String, key: &str, hop: &Hop) -> PathStatus {
        let report = self.report_of(key);
        let port = self.routers.port(&self.config.name, &hop.link).ok();
        PathStatus {
            name,
            link: hop.link.clone(),
            next_hop: self.next_hop(hop),
            next_hop_mac: report
                .and_then(|one| one.nhlfe.next_hop.mac())
                .map(|mac| mac.to_string()),
            labels: hop.labels.as_slice().iter().map(|label| label.get()).collect(),
            mtu: report.map(|report| report.nhlfe.mtu),
            up: report.is_some_and(|one| !one.nhlfe.next_hop.is_unresolved())
                && port.is_some_and(|port| self.is_up(port)),
            takes: None,
            counters: Keyed(report.map(|report| report.counters).unwrap_or_default()),
        }
    }

    /// The address of the next router: as it was configured, or that of the host to which a port in
    /// UDP leads.
    fn next_hop(&self, hop: &Hop) -> String {
        let peer = || Some(self.routers.ports.get(&hop.link)?.1.udp?.peer.to_string());
        hop.next_hop.map(|via| via.to_string()).or_else(peer).unwrap_or_default()
    }

    /// A path of a pseudowire: as BFD sees it, where that watches, or else whether its port is up.
    fn wire_path(&self, way: mpls::Way, lsp: &str, watch: Option<&WatchReport>) -> WirePathStatus {
        let hop = self.routers.lsps.get(lsp).map(|lsp| &lsp.hop.link);
        let port = hop.and_then(|link| self.routers.port(&self.config.name, link).ok());
        let is_resolved = self.is_resolved(&path_named(lsp));
        let session = watch.and_then(|watch| watch.sessions[way as usize].as_ref());
        let state = match (port.is_some_and(|port| self.is_up(port)), watch, session) {
            (false, ..) => NO_PORT.to_owned(),
            (true, _, None) if !is_resolved => NOT_RESOLVED.to_owned(),
            (true, _, Some(session)) => session.status.state.to_string(),
            (true, Some(_), None) => NO_PORT.to_owned(),
            (true, None, None) => UNWATCHED.to_owned(),
        };
        let proof = watch.and_then(|watch| watch.proofs[way as usize]);
        WirePathStatus {
            way: way.to_string(),
            lsp: lsp.to_owned(),
            state,
            frame_bytes: proof.and_then(|known| match known.proof {
                Proof::Nothing => None,
                Proof::Whole => Some(known.promised),
                Proof::Only(fits) => Some(fits),
            }),
            promised_frame_bytes: proof.map(|known| known.promised),
        }
    }

    /// Whether what a path's packets take, itself or its backup, has a next hop that is resolved.
    fn is_resolved(&self, key: &str) -> bool {
        let taken = match self.way_of(key) {
            mpls::Way::Primary => self.report_of(key),
            mpls::Way::Backup => self.report_of(&super::backup_of(key)),
        };
        taken.is_none_or(|one| !one.nhlfe.next_hop.is_unresolved())
    }

    /// How a path is; `None`: its port was never up.
    fn report_of(&self, key: &str) -> Option<&mpls::NhlfeReport> {
        let at = self.paths.get(&self.routers.paths.of(key)?)?;
        Some(&self.report.nhlfes[*at])
    }

    fn neighbour(&self, config: &NeighbourConfig) -> NeighbourStatus {
        let id = self.routers.neighbour_number(config);
        let all = &self.report.neighbours;
        let at = id.and_then(|id| all.binary_search_by_key(&id, |one| one.id).ok());
        let report = at.map(|at| &all[at]);
        let session = report.and_then(|report| report.session);
        let status = session.map(|session| session.status);
        let takes = match report.map(|report| report.state) {
            None | Some(HopState::Up) => mpls::Way::Primary.to_string(),
            Some(HopState::Waiting) => WAITING.to_owned(),
            Some(HopState::Failed) => mpls::Way::Backup.to_string(),
        };
        let drops = session.map(|session| session.drops).unwrap_or_default();
        let protection = report.map(|report| report.protection).unwrap_or_default();
        NeighbourStatus {
            name: format!("{} on {}", config.address, config.link),
            link: config.link.clone(),
            next_hop: config.next_hop.to_string(),
            next_hop_mac: match config.next_hop {
                Via::Mac(mac) => Some(mac.to_string()),
                Via::Ip(address) => {
                    self.routers.next_hops.mac(&self.config.name, &config.link, address)
                }
            },
            address: config.address.to_string(),
            state: status.map_or(NO_PORT.to_owned(), |status| status.state.to_string()),
            remote_state: status.map(|status| status.remote_state.to_string()),
            diagnostic: status.map(|status| status.diagnostic.to_string()),
            transmit_interval_us: status.map(|status| status.transmit_interval.as_micros() as u64),
            detection_time_us: status.map(|status| status.detection_time.as_micros() as u64),
            takes,
            counters: Keyed(session.map(|session| session.counters).unwrap_or_default()),
            protection: Keyed(protection),
            drops: counted(contract::Counters::each(&drops)),
        }
    }

    fn tunnel(&self, config: &TunnelConfig) -> TunnelStatus {
        let id = self.routers.tunnel_numbers.of(&config.name);
        let all = &self.report.tunnels;
        let at = id.and_then(|id| all.binary_search_by_key(&id, |one| one.id.0).ok());
        let report = at.map(|at| &all[at]);
        let of = |one: &TunnelReport| (one.counters, one.sequence, one.drops);
        let (counters, sequences, drops) = report.map(of).unwrap_or_default();
        let circuit = self.routers.circuits.get(&config.circuit).map(|(link, _)| *link);
        let up = |link: Option<LinkId>| link.is_some_and(|link| self.is_up(link));
        let state = match (up(self.routers.tunnel_port(config)), up(circuit)) {
            (false, _) => format!("no route to {}", config.way.peer),
            (true, false) => format!("circuit {} is down", config.circuit),
            (true, true) => UP_STATE.to_owned(),
        };
        let [comes, goes] = config.session_words();
        TunnelStatus {
            name: config.name.clone(),
            circuit: config.circuit.clone(),
            class: config.class.map(|class| class.to_string()),
            way: config.way.title(),
            comes,
            goes,
            sequence: sequence_word(config.sequence).to_owned(),
            state,
            counters: Keyed(counters),
            sequences: Keyed(sequences),
            drops: counted(contract::Counters::each(&drops)),
        }
    }

    fn pseudowire(&self, config: &PseudowireConfig) -> PseudowireStatus {
        let id = self.routers.pseudowire_numbers.of(&config.name).map(PseudowireId);
        let at = id.and_then(|id| self.wire_reports.get(&id.0));
        let report = at.map(|at| &self.report.pseudowires[*at]);
        let of = |one: &PseudowireReport| (one.counters, one.sequence, one.drops);
        let (counters, sequences, drops) = report.map(of).unwrap_or_default();
        let watch = report.and_then(|report| report.watch.as_ref());
        let lsps = [Some(&config.lsp), config.backup.as_ref()];
        let paths = mpls::Way::BOTH
            .iter()
            .zip(lsps)
            .filter_map(|(way, lsp)| Some(self.wire_path(*way, lsp?, watch)));
        let paths: Vec<WirePathStatus> = paths.collect();
        let active = watch.map(|watch| watch.active).unwrap_or_default();
        let circuit = self.routers.circuit_of(config);
        let circuit_is_up =
            config.circuit.is_none() || circuit.is_some_and(|link| self.is_up(link));
        let state = match (paths.get(active as usize), circuit_is_up) {
            (Some(path), _) if !path.carries() => format!("its {active} path is {}", path.state),
            (_, false) => {
                format!("circuit {} is down", config.circuit.as_deref().unwrap_or_default())
            }
            _ => UP_STATE.to_owned(),
        };
        let protection = watch.map(|watch| watch.protection).unwrap_or_default();
        let probes = watch.map(|watch| watch.probes).unwrap_or_default();
        let way = |way: &Way| match way.tunnel {
            Some(tunnel) => format!("{} in {}", way.link, tunnel.get()),
            None => way.link.clone(),
        };
        PseudowireStatus {
            name: config.name.clone(),
            circuit: config.circuit.clone(),
            class: config.class.map(|class| class.to_string()),
            label_in: config.label_in.get(),
            label_out: config.label_out.get(),
            lsp: config.lsp.clone(),
            from: config.from.iter().map(way).collect(),
            backup: config.backup.clone(),
            paths,
            active: active.to_string(),
            control_word: config.control_word.is_some(),
            sequence: config.control_word.map(|_| config.sequence().to_owned()),
            state,
            counters: Keyed(counters),
            sequences: Keyed(sequences),
            protection: Keyed(protection),
            probes: Keyed(probes),
            clamp: config.clamp,
            drops: counted(contract::Counters::each(&drops)),
        }
    }
}
