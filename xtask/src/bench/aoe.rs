//! AoE: how its two kinds of servers are started.
//!
//! Every case has a LAN of its own ([`super::lan`]), the target pinned to one end's CPU and the
//! load to the other's.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::lan::{LOAD, Lan, Softirq, TARGET};
use super::plan::{VOLUME, server_table, single, volume};
use super::process::{Bench, Place, Server, output};
use crate::tree;

/// Shelf and slot of what is measured.
pub(super) const ADDRESS: &str = "7.0";
/// Exports of the case with many: 32 shelves of 128 slots.
const MANY: (u16, u16) = (32, 128);

/// An AoE server to start.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    program: Program,
    mtu: u32,
    /// Where it is the receiver's own CPU, softirqs count as the target's.
    #[serde(default)]
    softirq: Softirq,
    /// With 4,095 more exports of volumes without memory.
    #[serde(default)]
    many: bool,
    /// Without memory for data.
    #[serde(default)]
    null: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Program {
    Plateway,
    Ceiling,
}

impl Plan {
    /// Whether every block is to be written before anything is measured.
    pub(super) fn fill(&self) -> bool {
        self.program == Program::Plateway && !self.null
    }

    /// The export that comes up last.
    fn last(&self) -> String {
        if self.many { format!("{}.{}", MANY.0, MANY.1 - 1) } else { ADDRESS.to_owned() }
    }
}

/// Starts a server and waits until its last export answers.
pub(super) fn serve(bench: &Bench, plan: &Plan) -> Result<Server> {
    let lan = Lan::new(plan.mtu, plan.softirq, (bench.target_cpu, bench.load_cpu))?;
    let own = bench.fresh("aoe")?;
    let cpus = bench.target_cpu.to_string();
    let command = match plan.program {
        Program::Ceiling => {
            let mut command = bench.command_at(lan.at_target(), &cpus, &bench.yardstick);
            command.args(["ceiling-aoe", "--interface", TARGET]);
            command.args(["--address", ADDRESS, "--size", VOLUME]);
            command
        }
        Program::Plateway => {
            let file = own.join("plateway.toml");
            fs::write(&file, configuration(plan, &cpus, &own))?;
            let mut command = bench.command_at(lan.at_target(), &cpus, &bench.plateway);
            command.arg("serve").arg("--config").arg(file);
            command
        }
    };
    let log = own.join("server.log");
    let text = tree::words(&command);
    let started = Instant::now();
    let mut server = Server::start(command, Place::Lan(lan), cpus, &log)?;
    server.counts_core = plan.softirq == Softirq::Own;
    let found = client(bench, &server, &plan.last(), &["--window=0", "--warm-up=0"], 0.0);
    server.process.is_up(&text)?;
    found.with_context(|| format!("{text}: {}", server.process.words()))?;
    server.start_seconds = started.elapsed().as_secs_f64();
    Ok(server)
}

/// The bare client at the other end of the server's LAN, for one window.
pub(super) fn client(
    bench: &Bench,
    server: &Server,
    address: &str,
    args: &[&str],
    seconds: f64,
) -> Result<Value> {
    let lan = server.lan().context("the server has no LAN")?;
    let cpu = bench.load_cpu.to_string();
    let mut command = bench.command_at(lan.at_load(), &cpu, &bench.yardstick);
    command
        .args(["client-aoe", "--json", "--interface", LOAD, "--address", address])
        .args(["--seconds", &seconds.to_string()])
        .args(["--target-pid", &server.process.pid().to_string()])
        .args(["--target-cpus", &server.cpus])
        .args(args);
    if server.counts_core {
        command.arg("--target-core");
    }
    let mut value = output(command, seconds)?.value;
    value["load_cpu_us_per_op"] = value["client_cpu_us_per_op"].clone();
    value["start_seconds"] = server.start_seconds.into();
    Ok(value)
}

/// `plateway bench` at the other end of the server's LAN.
pub(super) fn initiator(bench: &Bench, server: &Server) -> Result<Command> {
    let lan = server.lan().context("the server has no LAN")?;
    let cpu = bench.load_cpu.to_string();
    let mut command = bench.command_at(lan.at_load(), &cpu, &bench.plateway);
    command.arg("bench").arg(format!("aoe://{LOAD}/{ADDRESS}?window=128"));
    Ok(command)
}

fn configuration(plan: &Plan, cpus: &str, own: &Path) -> String {
    let disk = format!("{}:{VOLUME}", if plan.null { "null" } else { "ram" });
    let mut text = server_table(cpus, own) + &volume(&[disk]);
    text += &format!("[[listener]]\naoe = \"{TARGET}\"\nlink = \"packet\"\n");
    text += &export("v0", ADDRESS);
    if plan.many {
        let (shelves, slots) = MANY;
        for number in 0..shelves * slots {
            let address = format!("{}.{}", number / slots + 1, number % slots);
            if address == ADDRESS {
                continue;
            }
            let name = format!("n{number}");
            text += &single(&name, "null:64MiB");
            text += &export(&name, &address);
        }
    }
    text
}

fn export(volume: &str, address: &str) -> String {
    let (shelf, slot) = address.split_once('.').unwrap_or((address, "0"));
    format!(
        "[[export]]\nvolume = \"{volume}\"\naoe = {{ interface = \"{TARGET}\", shelf = {shelf}, slot = {slot}, hosts = \"any\" }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> Plan {
        toml::from_str(&format!("program = \"plateway\"\nmtu = 1500\n{words}")).unwrap()
    }

    #[test]
    fn many_exports_have_one_address_each_and_the_measured_one_has_the_memory() {
        let many = plan("many = true");
        let text = configuration(&many, "0", Path::new("/own"));
        assert_eq!(text.matches("[[export]]").count(), 4096);
        assert_eq!(text.matches("shelf = 7, slot = 0, ").count(), 1);
        assert_eq!(text.matches("ram:").count(), 1);
        assert!(text.contains("shelf = 32, slot = 127, ") && many.last() == "32.127");
        assert!(
            !configuration(&Plan { null: true, ..many }, "0", Path::new("/own")).contains("ram:")
        );
    }
}
