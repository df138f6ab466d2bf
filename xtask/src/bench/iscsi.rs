//! iSCSI: how its two kinds of servers are started.
//!
//! Plateway gets a configuration file, the bare target arguments; both listen on a port of the
//! loopback interface.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::plan::{VOLUME, VOLUME_MIB, free_port, server_table, single};
use super::process::{Bench, Place, START, Server};
use crate::tree::words;

/// Name of the target under which Plateway exports its volumes.
const TARGET: &str = "iqn.2026-11.net.plateway:bench";
/// That of the bare target, which lets in whoever names any.
const CEILING: &str = "iqn.2026-11.net.plateway:ceiling";

/// An iSCSI server to start.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Plan {
    program: Program,
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
}

impl Plan {
    /// Whether every block is to be written before anything is measured.
    pub(super) fn fill(&self) -> bool {
        self.program == Program::Plateway
    }

    /// The LUNs that the load goes to, as the client is told them.
    fn luns(&self) -> String {
        (0..self.luns).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Starts a server and waits until it listens.
pub(super) fn serve(bench: &Bench, plan: &Plan) -> Result<Server> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let cpus = bench.target_cpu.to_string();
    let own = bench.fresh("iscsi")?;
    let (command, target) = match plan.program {
        Program::Ceiling => {
            let mut command = bench.command(&cpus, &bench.yardstick);
            command.args(["ceiling-iscsi", "--listen", &address.to_string(), "--size", VOLUME]);
            (command, CEILING)
        }
        Program::Plateway => {
            let file = own.join("plateway.toml");
            fs::write(&file, configuration(plan, address, &cpus, &own))?;
            let mut command = bench.command(&cpus, &bench.plateway);
            command.arg("serve").arg("--config").arg(file);
            (command, TARGET)
        }
    };
    let text = words(&command);
    let place = Place::Iscsi { address, target, luns: plan.luns() };
    let server = Server::start(command, place, cpus, &own.join("server.log"))?;
    server.process.listens(address, &text, START)?;
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
    fn what_is_never_written_is_not_filled() {
        let fills = |words| plan(words).fill();
        assert!(fills("program = \"plateway\"") && !fills("program = \"ceiling\""));
    }
}
