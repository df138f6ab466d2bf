//! Routers of labels: how those that are compared are started, and who sends them frames.
//!
//! ```text
//!   namespace of the load                   namespace of the router
//!   generator -> mpls-gen  ======veth======  mpls-in  -> router (or what stands in its place)
//!        reads  mpls-sink  ======veth======  mpls-out <-
//! ```
//!
//! Whatever is compared is a command line, and ready when a labelled frame that enters at one link
//! comes out of the other: no words of its own are waited for, so that the bare forwarder, the
//! Linux bridge (which has no process: something sleeps in its place) and `plateway route` are
//! started alike. The router is pinned to the target's CPU, and what its first link receives is
//! dealt with there, too ([`super::lan::Lan::for_router`]); all that this CPU does counts. What an
//! edge is told stands in [`edge`]. Networks of several routers: [`config`] is what each router is
//! told, [`roads`] lays cables and starts them with a target at one end and a load at the other; [`cuts`] cuts cables under that load, [`idle`] looks at who does nothing.
//! Errors: a binary without the command `route`, which is said as "skipped".

mod config;
pub(super) mod cuts;
mod edge;
pub(super) mod idle;
pub(super) mod roads;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::lan::{self, GENERATOR, Lan, ROUTER_IN, ROUTER_OUT, SINK};
use super::process::{Bench, Place, Server, output};
use crate::tree;

/// The first label that a router may give a meaning of its own; the generator draws from here on.
const FIRST_LABEL: u32 = 16;
/// What a swap adds to a label.
const STEP: u32 = 100;

/// A router to start, or what stands in its place.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    program: Program,
    #[serde(default)]
    access: Access,
    /// Entries of its ILM, where it has one.
    #[serde(default = "ten")]
    labels: u32,
    #[serde(default)]
    role: Role,
}

fn ten() -> u32 {
    10
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Program {
    Plateway,
    /// The bare forwarder.
    Forward,
    /// The Linux bridge, which changes nothing of a frame.
    Bridge,
}

/// What a router of Plateway's does with frames.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Role {
    /// Swaps labels.
    #[default]
    Swap,
    /// Pushes labels onto a customer's.
    Push,
    /// Takes labels off for a customer.
    Pop,
    /// Sends a customer's by GRE.
    Gre,
    /// Sends a customer's by L2TPv3 over UDP.
    L2tp,
}

/// How a router's frames come and go.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Access {
    #[default]
    Packet,
    Xdp,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        }
    }
}

impl Plan {
    /// To which station the generator sends. A router takes what is sent to itself; a bridge would
    /// keep that, and takes what is sent to the station behind it.
    fn to(&self) -> &'static str {
        match self.program {
            Program::Bridge => lan::SINK_MAC,
            Program::Plateway | Program::Forward => lan::ROUTER_MAC,
        }
    }
}

/// Starts a router and waits until a frame with the last of its labels comes out.
pub(super) fn serve(bench: &Bench, plan: &Plan) -> Result<Server> {
    if plan.program == Program::Plateway {
        needs_route(bench)?;
    }
    if plan.role != Role::Swap {
        ensure!(plan.program == Program::Plateway, "only Plateway's router is an edge");
    }
    let lan = Lan::for_router(bench.target_cpu)?;
    if matches!(plan.role, Role::Gre | Role::L2tp) {
        lan.route_to_sink(edge::OWN, edge::PEER)?;
    }
    let own = bench.fresh("mpls")?;
    let cpus = bench.target_cpu.to_string();
    let command = command(bench, plan, &lan, &own)?;
    let text = tree::words(&command);
    let started = Instant::now();
    let frames = edge::frames(plan);
    let place = Place::Router { lan, to: plan.to(), frames };
    let mut server = Server::start(command, place, cpus, &own.join("router.log"))?;
    server.counts_core = true;
    let labels = format!("--labels={}", plan.labels);
    let mut args = vec!["--in-flight=1", "--warm-up=0"];
    if plan.role == Role::Swap {
        args.push(&labels);
    }
    let found = client(bench, &server, &args, 0.0);
    server.process.is_up(&text)?;
    found.with_context(|| format!("{text}: {}", server.process.words()))?;
    server.start_seconds = started.elapsed().as_secs_f64();
    if plan.access == Access::Xdp
        && plan.program != Program::Bridge
        && let Place::Router { lan, .. } = &server.place
    {
        lan.thread_at_router(bench.target_cpu)?;
    }
    Ok(server)
}

/// The command line of a router.
fn command(bench: &Bench, plan: &Plan, lan: &Lan, own: &Path) -> Result<Command> {
    let cpus = bench.target_cpu.to_string();
    let command_of = |program: &Path| bench.command_at(lan.at_target(), &cpus, program);
    Ok(match plan.program {
        Program::Plateway => {
            let file = own.join("router.toml");
            // Two of them run side by side.
            let (control, state) = (own.join("control.sock"), own.join("state"));
            let server = format!("[server]\ncontrol = {control:?}\nstate = {state:?}\n");
            fs::write(&file, server + &configuration(plan))?;
            let mut command = command_of(&bench.plateway);
            command.args(["route", "--config"]).arg(file);
            command
        }
        Program::Forward => {
            let mut command = command_of(&bench.yardstick);
            command.args(["forward", "--in", ROUTER_IN, "--out", ROUTER_OUT]);
            command.args(["--to", lan::SINK_MAC, "--access", plan.access.name()]);
            command
        }
        Program::Bridge => {
            lan.bridge()?;
            let mut command = command_of(Path::new("sleep"));
            command.arg("infinity");
            command
        }
    })
}

/// The generator at the other end of the router's links, for one window.
pub(super) fn client(bench: &Bench, server: &Server, args: &[&str], seconds: f64) -> Result<Value> {
    let Place::Router { lan, to, frames } = &server.place else { bail!("no router is there") };
    let cpu = bench.load_cpu.to_string();
    let mut command = bench.command_at(lan.at_load(), &cpu, &bench.yardstick);
    command
        .args(["generate", "--json", "--out", GENERATOR, "--sink", SINK, "--to", to])
        .args(["--seconds", &seconds.to_string()])
        .args(["--target-pid", &server.process.pid().to_string()])
        .args(["--target-cpus", &server.cpus, "--target-core"])
        .args(*frames)
        .args(args);
    let mut value = output(command, seconds)?.value;
    value["load_cpu_us_per_op"] = value["client_cpu_us_per_op"].clone();
    value["start_seconds"] = server.start_seconds.into();
    Ok(value)
}

/// What a router of Plateway's is told: of an edge that, else a swap for each label.
fn configuration(plan: &Plan) -> String {
    if let Some(text) = edge::configuration(plan.role) {
        return text;
    }
    let access = match plan.access {
        // The default.
        Access::Packet => String::new(),
        Access::Xdp => "access = \"xdp\"\n".to_owned(),
    };
    let link = |name: &str| format!("[[link]]\nethernet = \"{name}\"\n{access}mpls = true\n");
    let mut text = link(ROUTER_IN) + &link(ROUTER_OUT);
    for label in FIRST_LABEL..FIRST_LABEL + plan.labels {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "[[ilm]]\nlabel = {label}\nlink = \"{ROUTER_OUT}\"\nnext_hop = \"{}\"\nlabels = [{}]\n",
            lan::SINK_MAC,
            label + STEP
        );
    }
    text
}

/// An error, which is to be shown, where the measured binary is no router.
fn needs_route(bench: &Bench) -> Result<()> {
    let is_known = *bench.knows_route.get_or_init(|| knows_route(&bench.plateway));
    ensure!(is_known, "skipped: this plateway has no command `route`");
    Ok(())
}

/// Whether a binary has the command `route`.
fn knows_route(plateway: &Path) -> bool {
    let output = Command::new(plateway).args(["route", "--help"]).output();
    // What cannot be asked cannot be run either.
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> Plan {
        toml::from_str(words).unwrap()
    }

    #[test]
    fn a_router_is_told_a_swap_for_each_label_and_how_its_links_are_opened() {
        let text = configuration(&plan("program = \"plateway\"\nlabels = 2"));
        let wanted = "[[link]]\nethernet = \"mpls-in\"\nmpls = true\n\
                      [[link]]\nethernet = \"mpls-out\"\nmpls = true\n\
                      [[ilm]]\nlabel = 16\nlink = \"mpls-out\"\nnext_hop = \"02:00:00:00:00:02\"\nlabels = [116]\n\
                      [[ilm]]\nlabel = 17\nlink = \"mpls-out\"\nnext_hop = \"02:00:00:00:00:02\"\nlabels = [117]\n";
        assert_eq!(text, wanted);
        let xdp = configuration(&plan("program = \"plateway\"\naccess = \"xdp\""));
        assert_eq!(xdp.matches("access = \"xdp\"\nmpls = true\n").count(), 2);
        assert_eq!(xdp.matches("[[ilm]]").count(), 10);
        let table: toml::Table = xdp.parse().unwrap();
        assert_eq!(table["ilm"].as_array().map(Vec::len), Some(10));
    }

    #[test]
    fn frames_are_sent_to_the_router_or_past_a_bridge() {
        assert_eq!(plan("program = \"forward\"").to(), lan::ROUTER_MAC);
        assert_eq!(plan("program = \"plateway\"").to(), lan::ROUTER_MAC);
        assert_eq!(plan("program = \"bridge\"").to(), lan::SINK_MAC);
    }

    #[test]
    fn a_program_that_refuses_the_command_does_not_know_it() {
        assert!(!knows_route(Path::new("false")) && knows_route(Path::new("true")));
        assert!(!knows_route(Path::new("/no/such/program")));
    }
}
