//! A target of AoE at one end, a load at the other, and what lies between: a cable, or routers.
//!
//! ```text
//!   direct:     serv ------------------------------ lx
//!
//!   routers:    serv --- ler1 --- lsr1 --- lsr2 --- ler2 --- lx
//!
//!   redundant:  the same, and       ler1 --- lsr2 --- ler3 --- lsr1 --- ler2
//! ```
//!
//! The last is the network of Landowski and Curran: primary and backup have no cable in common, and
//! BFD watches both from end to end. Every router is a process of its own in a namespace of its own,
//! as are target and load. They are on two CPUs, as the way halves: the target's has what is next to
//! the target. Ready is who answers the bare client at the other end and, with a backup, has both
//! paths up. Errors: what was awaited, with what the router that kept it up said.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use testbed::{Cable, End, Network};

use super::config::Config;
use super::needs_route;
use crate::bench::aoe::ADDRESS;
use crate::bench::lan::PREFIX;
use crate::bench::plan::{server_table, volume};
use crate::bench::process::{Bench, Place, START, Server, output};
use crate::tree;

/// The interface of both stations.
pub(super) const INTERFACE: &str = "eth0";
/// The stations, and their addresses.
pub(super) const TARGET: &str = "serv";
pub(super) const LOAD: &str = "lx";
pub(super) const STATIONS: [(&str, &str); 2] =
    [(TARGET, "02:00:00:00:aa:01"), (LOAD, "02:00:00:00:aa:02")];
/// Each edge with the station at it, whose name its circuit and its pseudowire have.
pub(super) const EDGES: [(&str, &str); 2] = [("ler1", TARGET), ("ler2", LOAD)];
/// Two labels, the pseudowire's control word and the header inside need 26 bytes.
const CORE_MORE: u32 = 30;
const DISK: &str = "ram:256MiB";
/// How long everything may take to be as it is to be.
const SETTLED: Duration = Duration::from_secs(30);

/// What lies between target and load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::bench) struct Plan {
    way: Way,
    /// Of the stations; the core has room for labels beside.
    mtu: u32,
    /// Of every cable both ways, as `tc` writes it; as fast as it goes without one.
    rate: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Way {
    Direct,
    Routers,
    Redundant,
}

impl Way {
    /// All nodes, in the order of the way.
    fn nodes(self) -> &'static [&'static str] {
        match self {
            Self::Direct => &[TARGET, LOAD],
            Self::Routers => &[TARGET, "ler1", "lsr1", "lsr2", "ler2", LOAD],
            Self::Redundant => &[TARGET, "ler1", "lsr1", "ler3", "lsr2", "ler2", LOAD],
        }
    }

    /// The cables of the core.
    fn core(self) -> &'static [[&'static str; 2]] {
        const BOTH: [[&str; 2]; 7] = {
            let [a, b, c] = PRIMARY;
            [a, b, c, ["ler1", "lsr2"], ["lsr2", "ler3"], ["ler3", "lsr1"], ["lsr1", "ler2"]]
        };
        match self {
            Self::Direct => &[],
            Self::Routers => &PRIMARY,
            Self::Redundant => &BOTH,
        }
    }

    /// What each router is told.
    fn configs(self) -> Vec<Config> {
        let router = |name| Config::new(self.nodes(), name);
        if self == Self::Direct {
            return Vec::new();
        }
        let ler1 = router("ler1").lsp("out", "lsr1", 101).pop(114, "lsr1");
        let lsr1 = router("lsr1").swap(101, "lsr2", 102).swap(113, "ler1", 114);
        let lsr2 = router("lsr2").swap(102, "ler2", 103).swap(112, "lsr1", 113);
        let ler2 = router("ler2").lsp("out", "lsr2", 112).pop(103, "lsr2");
        // By which port packets come to either edge, and in which tunnel.
        let first = [("lsr1", 114), ("lsr2", 103)];
        if self == Self::Routers {
            let [one, other] = first.map(|way| format!("from = {{ {} }}", from(way)));
            return vec![wire(ler1, 0, &one), lsr1, lsr2, wire(ler2, 1, &other)];
        }
        let around = [("lsr2", 134), ("lsr1", 124)];
        let watched = |edge: usize| {
            let (first, around) = (from(first[edge]), from(around[edge]));
            format!(
                "backup = \"around\"\nbfd = {BFD}\nfrom = [{{ {first} }}, {{ {around}, backup = true }}]"
            )
        };
        let ler1 = ler1.lsp("around", "lsr2", 121).pop(134, "lsr2");
        let ler2 = ler2.lsp("around", "lsr1", 131).pop(124, "lsr1");
        vec![
            wire(ler1, 0, &watched(0)),
            lsr1.swap(123, "ler2", 124).swap(131, "ler3", 132),
            lsr2.swap(121, "ler3", 122).swap(133, "ler1", 134),
            // On the way around only.
            router("ler3").swap(122, "lsr1", 123).swap(132, "lsr2", 133),
            wire(ler2, 1, &watched(1)),
        ]
    }
}

/// By which port packets come, and in which tunnel.
fn from((link, tunnel): (&str, u32)) -> String {
    format!("link = \"{link}\", tunnel = {tunnel}")
}

/// Gives an edge its station's circuit, with the pseudowire to the other edge.
fn wire(config: Config, edge: usize, more: &str) -> Config {
    let labels = if edge == 0 { [1001, 1002] } else { [1002, 1001] };
    config.wire(EDGES[edge].1, labels, "out", more)
}

/// How paths are watched, and how soon frames move back: late enough that what a cut did is over.
const BFD: &str = "{ interval = \"50ms\", multiplier = 3, revert = \"2s\" }";
/// The primary path's cables, from the target's edge to the load's.
pub(super) const PRIMARY: [[&str; 2]; 3] = [["ler1", "lsr1"], ["lsr1", "lsr2"], ["lsr2", "ler2"]];
/// Where what an edge sends on its backup arrives first, of each edge: the node and the interface.
pub(super) const BACKUP_ARRIVES: [(&str, &str); 2] = [("lsr2", "ler1"), ("lsr1", "ler2")];

/// What lies between, as it runs. It ends before its namespaces do.
pub(in crate::bench) struct Road {
    routers: Vec<Router>,
    pub(super) network: Network,
    /// CPUs of everything.
    cpus: [usize; 2],
}

pub(super) struct Router {
    name: &'static str,
    pub(super) ports: Vec<&'static str>,
    pub(super) server: Server,
    control: PathBuf,
}

/// Starts it all and waits until the target answers at the other end.
pub(in crate::bench) fn serve(bench: &Bench, plan: &Plan) -> Result<Server> {
    testbed::needs("ethtool").map_err(|error| anyhow!("skipped: {error}"))?;
    if plan.way != Way::Direct {
        needs_route(bench)?;
    }
    let network = lay(plan)?;
    let nodes = plan.way.nodes();
    let cpu = |node: &str| {
        let at = nodes.iter().position(|other| *other == node).unwrap_or_default();
        if at < nodes.len() / 2 { bench.target_cpu } else { bench.load_cpu }
    };
    let mut routers = Vec::new();
    for config in plan.way.configs() {
        routers.push(Router::start(bench, &network, &config, cpu(config.name))?);
    }
    let cpus = [bench.target_cpu, bench.load_cpu];
    let server = start_target(bench, Road { routers, network, cpus })?;
    let found = server.road()?.find(bench);
    server.process.is_up("the target")?;
    found.map_err(|error| server.blame(error))?;
    if plan.way == Way::Redundant {
        server.road()?.settle(bench)?;
    }
    Ok(server)
}

/// Makes nodes and cables.
fn lay(plan: &Plan) -> Result<Network> {
    let network = Network::make(PREFIX, plan.way.nodes())?;
    let rate = plan.rate.as_deref();
    let core = Cable { mtu: plan.mtu + CORE_MORE, rate, offloads: false };
    let cable = Cable { mtu: plan.mtu, ..core };
    for ends in plan.way.core() {
        network.core_cable(*ends, core)?;
    }
    let ends = STATIONS.map(|(node, mac)| End { node, interface: INTERFACE, mac: Some(mac) });
    if plan.way == Way::Direct {
        network.cable(ends, cable)?;
        return Ok(network);
    }
    for (end, (edge, station)) in ends.into_iter().zip(EDGES) {
        let mac = network.address(edge, station);
        let other = End { node: edge, interface: station, mac: Some(&mac) };
        network.cable([end, other], cable)?;
    }
    Ok(network)
}

/// Starts who exports the volume.
fn start_target(bench: &Bench, road: Road) -> Result<Server> {
    let own = bench.fresh("road")?;
    let cpus = bench.target_cpu.to_string();
    let (shelf, slot) = ADDRESS.split_once('.').context("the address has two parts")?;
    let export = format!(
        "[[export]]\nvolume = \"v0\"\naoe = {{ interface = \"{INTERFACE}\", shelf = {shelf}, slot = {slot}, hosts = \"any\" }}\n"
    );
    let file = own.join("plateway.toml");
    fs::write(&file, server_table(&cpus, &own) + &volume(&[DISK.to_owned()]) + &export)?;
    let mut command = bench.command_at(road.network.at(TARGET), &cpus, &bench.plateway);
    command.arg("serve").arg("--config").arg(file);
    Server::start(command, Place::Road(road), cpus, &own.join("server.log"))
}

impl Router {
    fn start(bench: &Bench, network: &Network, config: &Config, cpu: usize) -> Result<Self> {
        let own = bench.fresh(config.name)?;
        let (file, control) = (own.join("router.toml"), own.join("control.sock"));
        let cpus = cpu.to_string();
        fs::write(&file, server_table(&cpus, &own) + &config.text)?;
        let mut command = bench.command_at(network.at(config.name), &cpus, &bench.plateway);
        command.args(["route", "--config"]).arg(file);
        let text = tree::words(&command);
        let server = Server::start(command, Place::OnRoad, cpus, &own.join("router.log"))?;
        let end = Instant::now() + START;
        while !control.exists() {
            server.process.is_up(&text)?;
            ensure!(Instant::now() < end, "{text} does not run: {}", server.process.words());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { name: config.name, ports: config.ports().to_vec(), server, control })
    }

    /// How its only pseudowire is.
    fn wire(&self, bench: &Bench) -> Result<Value> {
        let mut command = bench.command(&self.server.cpus, &bench.plateway);
        command.args(["route", "show", "--json", "--control"]).arg(&self.control);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let value: Value = serde_json::from_str(&said).with_context(|| {
            format!("{}: {}", self.name, String::from_utf8_lossy(&output.stderr))
        })?;
        let wire = value.pointer("/routers/0/pseudowires/0").cloned();
        wire.with_context(|| format!("{} has no pseudowire", self.name))
    }
}

impl Road {
    pub(super) fn router(&self, name: &str) -> Result<&Router> {
        let found = self.routers.iter().find(|router| router.name == name);
        found.with_context(|| format!("no router is called {name}"))
    }

    /// Both edges' pseudowires.
    pub(super) fn wires(&self, bench: &Bench) -> Result<[Value; 2]> {
        let [one, other] = EDGES.map(|(edge, _)| self.router(edge)?.wire(bench));
        Ok([one?, other?])
    }

    /// How often frames have moved from a path to another, at both edges.
    pub(super) fn moves(&self, bench: &Bench) -> Result<u64> {
        let wires = self.wires(bench)?;
        let count = |wire: &Value, key: &str| {
            wire[key].as_u64().with_context(|| format!("no {key} in {wire}"))
        };
        let mut moves = 0;
        for wire in &wires {
            moves += count(wire, "to_backup")? + count(wire, "to_primary")?;
        }
        Ok(moves)
    }

    /// Waits until both edges have both paths up and send by the primary one.
    pub(super) fn settle(&self, bench: &Bench) -> Result<()> {
        let end = Instant::now() + SETTLED;
        loop {
            let wires = self.wires(bench)?;
            if wires.iter().all(is_settled) {
                return Ok(());
            }
            if Instant::now() > end {
                let words: Vec<String> = self
                    .routers
                    .iter()
                    .map(|router| format!("{}: {}", router.name, router.server.process.words()))
                    .collect();
                bail!("the paths are not up: {wires:?}; {}", words.join("; "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the target answers the bare client.
    fn find(&self, bench: &Bench) -> Result<()> {
        let cpu = bench.load_cpu.to_string();
        let mut command = bench.command_at(self.network.at(LOAD), &cpu, &bench.yardstick);
        command.args(["client-aoe", "--json", "--interface", INTERFACE, "--address", ADDRESS]);
        command.args(["--seconds=0", "--warm-up=0", "--window=0"]);
        output(command, 0.0).map(|_| ())
    }

    /// `plateway bench` of the target, at the other end.
    pub(in crate::bench) fn initiator(&self, bench: &Bench) -> Command {
        let cpu = bench.load_cpu.to_string();
        let mut command = bench.command_at(self.network.at(LOAD), &cpu, &bench.plateway);
        command.arg("bench").arg(format!("aoe://{INTERFACE}/{ADDRESS}?window=128"));
        command
    }

    /// Run time of each router's threads so far, in nanoseconds.
    pub(in crate::bench) fn run_times(&self) -> Vec<(&'static str, u64)> {
        let of = |router: &Router| (router.name, router.server.process.run_time());
        self.routers.iter().map(of).collect()
    }

    /// Whether one of the CPUs on which all this runs was hardly idle; by each CPU's idle share.
    pub(in crate::bench) fn is_bound(&self, idle: &[f64]) -> bool {
        const IDLE_LEAST: f64 = 0.2;
        self.cpus.iter().any(|cpu| idle.get(*cpu).is_some_and(|share| *share < IDLE_LEAST))
    }
}

/// Whether a pseudowire has both paths up and takes the primary one.
fn is_settled(wire: &Value) -> bool {
    let paths = wire["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
    paths.len() == 2
        && paths.iter().all(|path| path["state"] == "Up")
        && wire["active"] == "primary"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Where a label leads: the routers by which a packet goes from one that sends it, until a pop.
    fn way(configs: &[Config], lsp: (&str, &str)) -> Vec<String> {
        let tables: BTreeMap<&str, toml::Table> =
            configs.iter().map(|config| (config.name, config.text.parse().unwrap())).collect();
        let entry = |node: &str, kind: &str, key: &str, wanted: &toml::Value| {
            let all = tables[node][kind].as_array().unwrap().clone();
            all.into_iter()
                .find(|one| &one[key] == wanted)
                .unwrap_or_else(|| panic!("{node} {wanted:?}"))
        };
        let (mut node, name) = (lsp.0.to_owned(), toml::Value::from(lsp.1));
        let mut step = entry(&node, "lsp", "name", &name);
        let mut nodes = vec![node.clone()];
        while let Some(link) = step.get("link") {
            node = link.as_str().unwrap().to_owned();
            nodes.push(node.clone());
            step = entry(&node, "ilm", "label", &step["labels"][0]);
        }
        nodes
    }

    #[test]
    fn labels_lead_from_edge_to_edge_and_both_paths_have_no_cable_in_common() {
        for kind in [Way::Routers, Way::Redundant] {
            let configs = kind.configs();
            assert_eq!(way(&configs, ("ler1", "out")), ["ler1", "lsr1", "lsr2", "ler2"]);
            assert_eq!(way(&configs, ("ler2", "out")), ["ler2", "lsr2", "lsr1", "ler1"]);
        }
        let configs = Way::Redundant.configs();
        assert_eq!(way(&configs, ("ler1", "around")), ["ler1", "lsr2", "ler3", "lsr1", "ler2"]);
        assert_eq!(way(&configs, ("ler2", "around")), ["ler2", "lsr1", "ler3", "lsr2", "ler1"]);
    }

    #[test]
    fn a_way_is_settled_with_both_paths_up_and_the_first_one_taken() {
        let wire = |state: &str, active: &str| json!({"active": active, "paths": [{"state": "Up"}, {"state": state}]});
        assert!(is_settled(&wire("Up", "primary")));
        assert!(!is_settled(&wire("Down", "primary")) && !is_settled(&wire("Up", "backup")));
    }
}
