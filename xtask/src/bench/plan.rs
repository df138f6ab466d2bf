//! Servers of NVMe/TCP: what a case says of one, and the configuration or the arguments that come of
//! it.
//!
//! Plateway gets a configuration file and the bare responder arguments; both listen on a port of the
//! loopback interface. What a case does not say is not written, so that it is the default that is
//! measured. AoE's are in [`super::aoe`], iSCSI's in [`super::iscsi`], routers in
//! [`super::mpls`].

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::process::{Bench, Place, START, Scraper, Server};
use super::{aoe, iscsi, mpls};
use crate::tree::words;

/// Name of the subsystem under which Plateway exports the volume.
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:bench";
/// Bytes of every volume in memory that is measured.
pub(super) const VOLUME: &str = "512MiB";
pub(super) const VOLUME_MIB: u32 = 512;
const MEMBER: &str = "128MiB";
/// Bytes of an exported file.
const FILE_MIB: u32 = 256;

/// A server to start.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Plan {
    /// Of NVMe/TCP, on a port of the loopback interface.
    Nvme(NvmePlan),
    /// Of iSCSI, on a port of the loopback interface, too.
    Iscsi(iscsi::Plan),
    /// Of AoE, on a LAN of its own.
    Aoe(aoe::Plan),
    /// A router of labels, between two links of its own.
    Mpls(mpls::Plan),
    /// Of AoE, at one end of a network of routers.
    Road(mpls::roads::Plan),
}

impl Plan {
    /// How a client writes every block before anything is measured, where that is to be.
    pub(super) fn fill(&self) -> Option<&'static [&'static str]> {
        const IN_ORDER: &[&str] = &["--rw=write", "--bs=128k", "--fill"];
        match self {
            Self::Nvme(plan) => match (plan.disks, plan.content) {
                (Disks::Ceiling | Disks::Null, _) => None,
                (_, Content::InOrder | Content::Aged) => Some(IN_ORDER),
                (_, Content::Random) => Some(&["--rw=randwrite", "--bs=4k", "--fill"]),
            },
            Self::Iscsi(plan) => plan.fill().then_some(IN_ORDER),
            Self::Aoe(plan) => plan.fill().then_some(&["--rw=write", "--bs=full", "--fill"]),
            Self::Mpls(_) | Self::Road(_) => None,
        }
    }

    /// What its bare counterpart is called.
    pub(super) fn bare(&self) -> &'static str {
        match self {
            Self::Mpls(_) => "the bare forwarder",
            Self::Nvme(_) | Self::Iscsi(_) | Self::Aoe(_) | Self::Road(_) => "the bare responder",
        }
    }

    /// Whether it is written to at random before every window.
    pub(super) fn is_aged(&self) -> bool {
        matches!(self, Self::Nvme(plan) if plan.content == Content::Aged)
    }
}

/// A server of NVMe/TCP.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NvmePlan {
    disks: Disks,
    /// How long Plateway looks for work before it sleeps, as its configuration says it.
    poll: Option<String>,
    /// How long the bare responder does, in microseconds.
    #[serde(default)]
    spin_us: u32,
    #[serde(default)]
    cores: Cores,
    #[serde(default)]
    content: Content,
    /// Asked for its metrics once a second.
    #[serde(default)]
    scraped: bool,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Disks {
    /// None: it is the barest responder, not Plateway.
    Ceiling,
    Ram,
    /// Over four RAM disks.
    Stripe,
    /// Without any memory for data.
    Null,
    /// A file in the bench's directory, past the page cache.
    File,
}

/// Where a server runs, and its load.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Cores {
    /// On the target's CPU, and the load on its own.
    #[default]
    One,
    /// A shard on each CPU, the load on its own, which is one of them.
    Two,
    /// A shard on each CPU, the load on both; the bare responder on both, too.
    Shared,
}

/// How a volume was written before it is measured.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Content {
    /// From its beginning to its end.
    #[default]
    InOrder,
    /// Block by block in random order.
    Random,
    /// In order, and then at random before every window.
    Aged,
}

/// Starts a server and waits until it listens.
pub(super) fn serve(bench: &Bench, plan: &NvmePlan) -> Result<Server> {
    let port = free_port()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let metrics = plan.scraped.then(free_port).transpose()?;
    let metrics = metrics.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let cpus = match plan.cores {
        Cores::One => bench.target_cpu.to_string(),
        Cores::Two | Cores::Shared => format!("{},{}", bench.target_cpu, bench.load_cpu),
    };
    let own = bench.fresh("serve")?;
    let (command, subsystem) = if plan.disks == Disks::Ceiling {
        let mut command = bench.command(&cpus, &bench.yardstick);
        command.args(["ceiling", "--listen", &address.to_string(), "--size", VOLUME]);
        command.args(["--spin-us", &plan.spin_us.to_string()]);
        (command, "nqn.2026-11.net.plateway:ceiling")
    } else {
        let mut text = server_table(&cpus, &own);
        if let Some(metrics) = metrics {
            text += &format!("metrics = \"{metrics}\"\n");
        }
        let file = match plan.disks {
            Disks::File => Some(bench.work_file()?),
            _ => None,
        };
        let poll = match &plan.poll {
            Some(poll) => poll_line(poll, knows_poll(bench))?,
            None => String::new(),
        };
        let told = own.join("plateway.toml");
        fs::write(&told, text + &volume(&disks(plan, file)) + &exported(address, &poll))?;
        let mut command = bench.command(&cpus, &bench.plateway);
        command.arg("serve").arg("--config").arg(told);
        (command, SUBSYSTEM)
    };
    let text = words(&command);
    let place = Place::Nvme { address, subsystem };
    let mut server = Server::start(command, place, cpus.clone(), &own.join("server.log"))?;
    if plan.cores == Cores::Shared {
        server.load_cpus = Some(cpus);
    }
    server.process.listens(address, &text, START)?;
    server.scraper = metrics.map(Scraper::start);
    Ok(server)
}

pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// What says in `[[listener]]` how long to look for work: the key `poll`, or for a binary that does
/// not know it `poll_us`.
fn poll_line(poll: &str, knows_poll: bool) -> Result<String> {
    if knows_poll {
        return Ok(format!("poll = \"{poll}\"\n"));
    }
    let micros = if poll == "never" { Some("0") } else { poll.strip_suffix("us") };
    let micros = micros.with_context(|| format!("this plateway does not know poll = {poll:?}"))?;
    Ok(format!("poll_us = {micros}\n"))
}

/// Whether the measured binary knows the key `poll`: asked once, by a configuration that has it.
fn knows_poll(bench: &Bench) -> bool {
    *bench.knows_poll.get_or_init(|| {
        let asked = || -> Result<bool> {
            let own = bench.fresh("poll")?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
            let text = server_table(&bench.target_cpu.to_string(), &own)
                + &volume(&["null:1MiB".to_owned()])
                + &exported(address, "poll = \"never\"\n");
            let file = own.join("plateway.toml");
            fs::write(&file, text)?;
            let mut command = Command::new(&bench.plateway);
            Ok(command.arg("check").arg("--config").arg(file).output()?.status.success())
        };
        // What cannot be asked cannot be served either, and serving says why.
        asked().unwrap_or(false)
    })
}

pub(super) fn server_table(cpus: &str, own: &Path) -> String {
    let own = own.display();
    format!(
        "[server]\nshards = [{cpus}]\ncontrol = \"{own}/control.sock\"\nstate = \"{own}/state\"\n"
    )
}

/// The disks of a plan; `file` is the one that is exported, if one is.
fn disks(plan: &NvmePlan, file: Option<&Path>) -> Vec<String> {
    match plan.disks {
        Disks::Stripe => (0..4).map(|_| format!("ram:{MEMBER}")).collect(),
        Disks::Null => vec![format!("null:{VOLUME}")],
        Disks::File => file.iter().map(|file| format!("file:{}", file.display())).collect(),
        Disks::Ram | Disks::Ceiling => vec![format!("ram:{VOLUME}")],
    }
}

/// `[[disk]]` for each URI and a volume `v0` over them.
pub(super) fn volume(disks: &[String]) -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for (number, uri) in disks.iter().enumerate() {
        text += &format!("[[disk]]\nname = \"d{number}\"\nuri = \"{uri}\"\n");
        names.push(format!("\"d{number}\""));
    }
    let (layout, chunk) =
        if disks.len() > 1 { ("stripe", "chunk = \"64KiB\"\n") } else { ("single", "") };
    let names = names.join(", ");
    text + &format!(
        "[[volume]]\nname = \"v0\"\nlayout = \"{layout}\"\ndisks = [{names}]\n{chunk}block_size = 512\n"
    )
}

/// A disk and a volume over it, both called `name`.
pub(super) fn single(name: &str, uri: &str) -> String {
    format!(
        "[[disk]]\nname = \"{name}\"\nuri = \"{uri}\"\n\
         [[volume]]\nname = \"{name}\"\nlayout = \"single\"\ndisks = [\"{name}\"]\nblock_size = 512\n"
    )
}

/// A listener with its line about polling, if any, and the export of the volume.
fn exported(address: SocketAddr, poll: &str) -> String {
    format!(
        "[[listener]]\nnvme = \"{address}\"\n{poll}\
         [[export]]\nvolume = \"v0\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n"
    )
}

impl Bench {
    /// The file on which servers and fio work, one after the other, every block of it written; an error if its file system has no O_DIRECT, with which all are to work.
    pub(super) fn work_file(&self) -> Result<&Path> {
        if let Some(path) = self.file.get() {
            return Ok(path);
        }
        let path = self.fresh("file")?.join("exported");
        self.takes_direct(&path)?;
        let mut file = fs::File::create(&path)?;
        // Every block is like no other, as far as anybody below could tell.
        let mut random = block::Random::new(1);
        let mut mebibyte = vec![0; 1 << 20];
        for _ in 0..FILE_MIB {
            for word in mebibyte.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next_u64().to_le_bytes());
            }
            file.write_all(&mebibyte)?;
        }
        file.sync_all()?;
        Ok(self.file.get_or_init(|| path))
    }

    fn takes_direct(&self, path: &Path) -> Result<()> {
        let probe = path.with_extension("probe");
        let mut command = self.command(&self.target_cpu.to_string(), Path::new("dd"));
        command.args(["if=/dev/zero", "bs=4096", "count=1", "oflag=direct", "status=none"]);
        let output = command.arg(format!("of={}", probe.display())).output().context("dd")?;
        // What is left of it goes with the directory.
        let _ = fs::remove_file(&probe);
        ensure!(
            output.status.success(),
            "skipped: the file system refuses O_DIRECT: {}",
            String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> NvmePlan {
        toml::from_str(words).unwrap()
    }

    #[test]
    fn a_stripe_names_all_its_disks_and_a_single_disk_has_no_chunk() {
        let text = |words| volume(&disks(&plan(words), Some(Path::new("/own"))));
        let stripe = text("disks = \"stripe\"");
        assert!(stripe.contains("disks = [\"d0\", \"d1\", \"d2\", \"d3\"]\nchunk = \"64KiB\""));
        assert!(!text("disks = \"ram\"").contains("chunk"));
        assert!(text("disks = \"file\"").contains("uri = \"file:/own\""));
        assert!(server_table("0,1", Path::new("/own")).contains("shards = [0,1]"));
    }

    #[test]
    fn how_long_to_poll_is_said_as_the_binary_knows_it_or_not_at_all() {
        assert_eq!(poll_line("auto", true).unwrap(), "poll = \"auto\"\n");
        assert_eq!(poll_line("never", false).unwrap(), "poll_us = 0\n");
        assert_eq!(poll_line("50us", false).unwrap(), "poll_us = 50\n");
        let error = poll_line("auto", false).unwrap_err();
        assert_eq!(error.to_string(), "this plateway does not know poll = \"auto\"");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 4420));
        assert!(!exported(address, "").contains("poll"));
    }

    #[test]
    fn a_volume_is_filled_in_order_or_at_random_and_what_has_no_memory_is_not() {
        let fill = |words| Plan::Nvme(plan(words)).fill().map(|args| args[0]);
        assert_eq!(fill("disks = \"ram\""), Some("--rw=write"));
        assert_eq!(fill("disks = \"ram\"\ncontent = \"random\""), Some("--rw=randwrite"));
        assert_eq!(fill("disks = \"file\"\ncontent = \"aged\""), Some("--rw=write"));
        assert_eq!([fill("disks = \"null\""), fill("disks = \"ceiling\"")], [None, None]);
    }
}
