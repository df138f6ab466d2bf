//! iSCSI: how its three kinds of servers are started.
//!
//! Plateway gets a configuration file, the bare target arguments; both listen on a port of the
//! loopback interface. Beside them stands Debian's `tgt` on a file in memory, where it is installed:
//! its figures are shown and judge nobody. It is told what to serve by `tgtadm` once it listens for
//! orders, its LUN 0 is a controller, and a signal does not end it while it has targets; it is
//! killed like all servers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::aoe::memory_file;
use super::plan::{VOLUME, VOLUME_MIB, free_port, server_table, single};
use super::process::{Bench, Place, START, Server};
use crate::tree::words;

/// Name of the target under which Plateway exports its volumes, and tgt its file.
const TARGET: &str = "iqn.2026-11.net.plateway:bench";
/// That of the bare target, which lets in whoever names any.
const CEILING: &str = "iqn.2026-11.net.plateway:ceiling";

/// An iSCSI server to start.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Plan {
    program: Program,
    /// How long the bare target looks for work before it sleeps, in microseconds.
    #[serde(default)]
    spin_us: u32,
    /// Volumes of Plateway, which share the memory of one; each is a LUN of the target, and the load
    /// goes to all.
    #[serde(default = "one")]
    luns: u8,
}

fn one() -> u8 {
    1
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Program {
    Plateway,
    Ceiling,
    Tgt,
}

impl Plan {
    /// Whether every block is to be written before anything is measured.
    pub(super) fn fill(&self) -> bool {
        self.program == Program::Plateway
    }

    /// The LUNs that the load goes to, as the client is told them.
    fn luns(&self) -> String {
        match self.program {
            Program::Tgt => "1".to_owned(),
            Program::Plateway | Program::Ceiling => {
                (0..self.luns).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// Starts a server and waits until it listens.
pub(super) fn serve(bench: &Bench, plan: &Plan) -> Result<Server> {
    if plan.program == Program::Tgt && Command::new("tgtd").arg("--version").output().is_err() {
        bail!("tgt is not installed (Debian package tgt)");
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let cpus = bench.target_cpu.to_string();
    let own = bench.fresh("iscsi")?;
    let (command, target) = match plan.program {
        Program::Ceiling => {
            let mut command = bench.command(&cpus, &bench.yardstick);
            command.args(["ceiling-iscsi", "--listen", &address.to_string(), "--size", VOLUME]);
            command.args(["--spin-us", &plan.spin_us.to_string()]);
            (command, CEILING)
        }
        Program::Plateway => {
            let file = own.join("plateway.toml");
            fs::write(&file, configuration(plan, address, &cpus, &own))?;
            let mut command = bench.command(&cpus, &bench.plateway);
            command.arg("serve").arg("--config").arg(file);
            (command, TARGET)
        }
        Program::Tgt => (tgtd(bench, address, &cpus, &own), TARGET),
    };
    let text = words(&command);
    let place = Place::Iscsi { address, target, luns: plan.luns() };
    let mut server = Server::start(command, place, cpus, &own.join("server.log"))?;
    server.process.listens(address, &text, START)?;
    if plan.program == Program::Tgt {
        order(bench, &mut server, &own).with_context(|| format!("orders to {text}"))?;
    }
    Ok(server)
}

/// What Plateway is told.
fn configuration(plan: &Plan, address: SocketAddr, cpus: &str, own: &Path) -> String {
    let mut text = server_table(cpus, own);
    let each = VOLUME_MIB / u32::from(plan.luns);
    for lun in 0..plan.luns {
        let name = format!("v{lun}");
        text += &single(&name, &format!("ram:{each}MiB"));
        text += &format!(
            "[[export]]\nvolume = \"{name}\"\niscsi = {{ target = \"{TARGET}\", lun = {lun}, hosts = \"any\" }}\n"
        );
    }
    text + &format!("[[listener]]\niscsi = \"{address}\"\n")
}

/// Where a tgt takes its orders: a socket of its own, to whose name it appends a number.
fn orders(command: &mut Command, own: &Path) {
    command.env("TGT_IPC_SOCKET", own.join("orders")).args(["-C", "1"]);
}

fn tgtd(bench: &Bench, address: SocketAddr, cpus: &str, own: &Path) -> Command {
    let mut command = bench.command(cpus, Path::new("tgtd"));
    orders(&mut command, own);
    command.args(["-f", "--iscsi", &format!("portal={address}")]);
    command
}

/// Lets a tgt serve the file in memory to whoever asks.
fn order(bench: &Bench, server: &mut Server, own: &Path) -> Result<()> {
    let file = memory_file(bench)?;
    let target = format!("--targetname={TARGET}");
    let store = format!("--backing-store={}", file.display());
    let deadline = Instant::now() + START;
    for words in [
        &["--mode=target", "--op=new", "--tid=1", &target][..],
        &["--mode=logicalunit", "--op=new", "--tid=1", "--lun=1", &store],
        &["--mode=target", "--op=bind", "--tid=1", "--initiator-address=ALL"],
    ] {
        // It may listen to initiators before it listens to orders.
        while let Err(error) = tgtadm(own, words) {
            server.process.is_up("tgtd")?;
            ensure!(Instant::now() < deadline, "{error:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

fn tgtadm(own: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new("tgtadm");
    orders(&mut command, own);
    let output = command.arg("--lld=iscsi").args(words).output().context("cannot start tgtadm")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    ensure!(output.status.success(), "tgtadm {}: {said}", words.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> Plan {
        toml::from_str(words).unwrap()
    }

    fn text(words: &str) -> String {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 3260));
        configuration(&plan(words), address, "0", Path::new("/own"))
    }

    #[test]
    fn one_volume_is_lun_0_of_the_target() {
        let text = text("program = \"plateway\"");
        assert!(text.contains("[[listener]]\niscsi = \"127.0.0.1:3260\"\n"), "{text}");
        let export = "[[export]]\nvolume = \"v0\"\niscsi = { target = \"iqn.2026-11.net.plateway:bench\", lun = 0, hosts = \"any\" }\n";
        assert!(text.contains(export), "{text}");
        assert_eq!(text.matches("ram:512MiB").count(), 1, "{text}");
    }

    #[test]
    fn ten_volumes_have_a_lun_each_and_no_more_memory_than_one() {
        let text = text("program = \"plateway\"\nluns = 10");
        assert_eq!(text.matches("[[export]]").count(), 10);
        assert_eq!(text.matches("ram:51MiB").count(), 10);
        assert!(text.contains("volume = \"v9\"") && text.contains("lun = 9, "), "{text}");
        assert_eq!(plan("program = \"plateway\"\nluns = 3").luns(), "0,1,2");
    }

    #[test]
    fn the_disk_of_tgt_is_behind_its_controller_and_not_filled() {
        assert_eq!(plan("program = \"tgt\"").luns(), "1");
        let fills = |words| plan(words).fill();
        assert!(fills("program = \"plateway\""));
        assert!(!fills("program = \"tgt\"") && !fills("program = \"ceiling\"\nspin-us = 50"));
    }
}
