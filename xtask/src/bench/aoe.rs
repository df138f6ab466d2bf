//! AoE: its cases, and how its three kinds of servers are started.
//!
//! Every case has a LAN of its own ([`super::lan`]), the target pinned to one end's CPU and the
//! load to the other's. Beside Plateway and the bare responder stands Debian's `vblade` on a file
//! in memory, where it is installed: its figures are shown and judge only the bare responder. How
//! the client receives is part of a case: by a ring it does least itself, but then the copy of an
//! answer is made in the softirq that runs on the target's CPU, and of full frames that is a third
//! of the target's work; those it takes by `recvmmsg`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::cases::{Case, Figure, Kind, Load, Names, Side, Want, limit, ratio, words};
use super::lan::{LOAD, Lan, PREFIX, SHARED_MEMORY, Softirq, TARGET};
use super::process::{Bench, Server, VOLUME, output, server_table, volume};
use crate::tree;

/// Shelf and slot of what is measured.
pub(super) const ADDRESS: &str = "7.0";
/// Exports of the case with many: 32 shelves of 128 slots.
const MANY: (u16, u16) = (32, 128);
/// Commands that every server is told to buffer: more than any window here.
const BUFFERS: u32 = 256;
/// Bytes of the file that `vblade` serves; as large as every volume.
const VOLUME_BYTES: usize = 512 << 20;

/// An AoE server to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    program: Program,
    mtu: u32,
    softirq: Softirq,
    xdp: bool,
    many: bool,
    memory: bool,
    /// Write every block before anything is measured.
    pub(super) fill: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Plateway,
    Ceiling,
    Vblade,
}

impl Plan {
    fn new(program: Program, mtu: u32) -> Self {
        let fill = program == Program::Plateway;
        Self { program, mtu, softirq: Softirq::Sender, xdp: false, many: false, memory: true, fill }
    }

    /// With each end's softirqs on its own CPU, where they count as the target's.
    fn own(mut self) -> Self {
        self.softirq = Softirq::Own;
        self
    }

    /// With AF_XDP.
    fn xdp(mut self) -> Self {
        self.xdp = true;
        self
    }

    /// With 4,095 more exports of volumes without memory.
    fn many(mut self) -> Self {
        self.many = true;
        self
    }

    /// Without memory for data.
    fn null(mut self) -> Self {
        (self.memory, self.fill) = (false, false);
        self
    }

    /// Whether the target's softirqs count as its work.
    pub(super) fn counts_core(&self) -> bool {
        self.softirq == Softirq::Own
    }

    /// The export that comes up last.
    fn last(&self) -> String {
        if self.many { format!("{}.{}", MANY.0, MANY.1 - 1) } else { ADDRESS.to_owned() }
    }
}

fn side(plan: Plan, args: &'static str) -> Side {
    Side { server: Some(super::process::Plan::Aoe(plan)), load: Load::Client(words(args)) }
}

/// Every case of AoE.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = transfers();
    cases.extend(xdp());
    cases.extend(latency_and_load());
    cases.extend(many_and_quiet());
    cases.extend(initiators());
    cases
}

/// Plateway against the bare responder, with vblade beside; then the other layout.
fn transfers() -> Vec<Case> {
    let small: fn(Program) -> Plan = |program| Plan::new(program, 1500);
    let large: fn(Program) -> Plan = |program| Plan::new(program, 9000);
    let own_small: fn(Program) -> Plan = |program| Plan::new(program, 1500).own();
    let own_large: fn(Program) -> Plan = |program| Plan::new(program, 9000).own();
    let (read, write) = ("--ring", "--ring --rw=randwrite");
    let own = "1 KiB reads, each end's softirqs on its own CPU";
    let table = [
        ("aoe-1k-read-8", "1 KiB reads, MTU 1500, window 8", small, "--bs=1k --window=8", read),
        ("aoe-1k-read-32", "the same, window 32", small, "--bs=1k --window=32", read),
        ("aoe-1k-write-8", "1 KiB writes, window 8", small, "--bs=1k --window=8", write),
        ("aoe-1k-write-32", "the same, window 32", small, "--bs=1k --window=32", write),
        ("aoe-4k-read-8", "4 KiB reads, MTU 9000, window 8", large, "--bs=4k --window=8", read),
        ("aoe-4k-read-32", "the same, window 32", large, "--bs=4k --window=32", read),
        ("aoe-4k-write-8", "4 KiB writes, window 8", large, "--bs=4k --window=8", write),
        ("aoe-4k-write-32", "the same, window 32", large, "--bs=4k --window=32", write),
        ("aoe-full-read-8", "8.5 KiB reads, MTU 9000, window 8", large, "--bs=full --window=8", ""),
        ("aoe-full-read-32", "the same, window 32", large, "--bs=full --window=32", ""),
        ("aoe-full-write-8", "8.5 KiB writes, window 8", large, "--bs=full --window=8", write),
        ("aoe-full-write-32", "the same, window 32", large, "--bs=full --window=32", write),
        ("aoe-own-1k-32", own, own_small, "--bs=1k --window=32", read),
        ("aoe-own-full-32", "8.5 KiB reads, the same", own_large, "--bs=full --window=32", read),
    ];
    let case = |(name, about, plan, args, more): (_, _, fn(Program) -> Plan, _, &'static str)| {
        let side = |program| Side {
            server: Some(super::process::Plan::Aoe(plan(program))),
            load: Load::Client(words(args).into_iter().chain(more.split_whitespace()).collect()),
        };
        let kind = Kind::Ratio {
            reference: side(Program::Ceiling),
            subject: side(Program::Plateway),
            beside: Some(side(Program::Vblade)),
        };
        Case { name, about, kind, figure: Figure::OpsPerCpu, want: Want::AtLeast(0.9) }
    };
    table.map(case).into()
}

/// The other way to receive.
fn xdp() -> Vec<Case> {
    let first = "AF_XDP against the packet ring, 1 KiB reads, window 8";
    let table: [(Names, u32, &str); 3] = [
        (("aoe-xdp-1k-8", first), 1500, "--ring --bs=1k --window=8"),
        (("aoe-xdp-1k-32", "the same, window 32"), 1500, "--ring --bs=1k --window=32"),
        (("aoe-xdp-full-32", "8.5 KiB reads, window 32"), 9000, "--bs=full --window=32"),
    ];
    let case = |(names, mtu, args)| {
        let ring = Plan::new(Program::Plateway, mtu);
        ratio(names, Figure::OpsPerCpu, Want::Stated, side(ring, args), side(ring.xdp(), args))
    };
    table.map(case).into()
}

fn latency_and_load() -> Vec<Case> {
    let one = "--ring --bs=1k --window=1";
    let flood = "--ring --bs=1k --window=32 --overload";
    let flood_writes = "--ring --bs=1k --window=32 --rw=randwrite --overload";
    let plan = Plan::new(Program::Plateway, 1500);
    let flooded = |names, figure, want, args| {
        limit(names, figure, Want::AtLeast(want), side(plan.own(), args))
    };
    let share = "share of its peak that is left in a flood, softirqs on the target's CPU";
    let after = "share of its peak a second after a flood";
    vec![
        ratio(
            ("aoe-latency", "1 KiB reads one at a time, against vblade"),
            Figure::Iops,
            Want::AtLeast(1.0),
            side(Plan::new(Program::Vblade, 1500), one),
            side(plan, one),
        ),
        flooded(("aoe-overload", share), Figure::OverloadShare, 0.5, flood),
        flooded(
            ("aoe-overload-write", "the same with writes"),
            Figure::OverloadShare,
            0.5,
            flood_writes,
        ),
        flooded(("aoe-recovery", after), Figure::AfterShare, 0.9, flood),
    ]
}

fn many_and_quiet() -> Vec<Case> {
    let load = "--ring --bs=1k --window=32";
    let plan = Plan::new(Program::Plateway, 1500);
    let quiet =
        |names, figure, want| limit(names, figure, want, side(plan.many().null(), "--window=0"));
    let start = "from the start of the process to the answer of the last of 4,096 exports";
    let memory = "resident memory with 4,096 exports of volumes without memory";
    let idle = "CPU share of 4,096 exports that nobody uses";
    vec![
        ratio(
            ("aoe-4096", "one of 4,096 exports against the same export alone, 1 KiB reads"),
            Figure::OpsPerCpu,
            Want::AtLeast(0.95),
            side(plan, load),
            side(plan.many(), load),
        ),
        quiet(("aoe-4096-start", start), Figure::StartSeconds, Want::AtMost(1.0)),
        quiet(("aoe-4096-memory", memory), Figure::Resident, Want::Stated),
        quiet(("aoe-idle", idle), Figure::TargetShare, Want::AtMost(0.5)),
    ]
}

fn initiators() -> Vec<Case> {
    let responder = Plan::new(Program::Ceiling, 9000);
    let initiator = |args| Side {
        server: Some(super::process::Plan::Aoe(responder)),
        load: Load::Initiator(words(args)),
    };
    let costs = "CPU an operation of `plateway bench` against the bare client's, 4 KiB reads";
    let carried = "128 KiB reads of `plateway bench` against what the pair carries in full frames";
    vec![
        ratio(
            ("aoe-initiator", costs),
            Figure::LoadCpu,
            Want::AtMost(1.0),
            side(responder, "--ring --bs=4k --window=32"),
            initiator("--rw=randread --bs=4k --iodepth=32"),
        ),
        ratio(
            ("aoe-128k", carried),
            Figure::Megabytes,
            Want::AtLeast(0.8),
            side(responder, "--ring --rw=read --bs=full --window=128"),
            initiator("--rw=read --bs=128k --iodepth=8"),
        ),
    ]
}

/// Starts a server and waits until its last export answers.
pub(super) fn serve(bench: &Bench, plan: &Plan) -> Result<Server> {
    if plan.program == Program::Vblade && Command::new("vblade").output().is_err() {
        bail!("vblade is not installed (Debian package vblade)");
    }
    let lan = Lan::new(plan.mtu, plan.softirq, (bench.target_cpu, bench.load_cpu))?;
    let own = bench.fresh("aoe")?;
    let cpus = bench.target_cpu.to_string();
    let mut command = match plan.program {
        Program::Ceiling => {
            let mut command = bench.command_in(&lan.at_target(), &cpus, &bench.yardstick);
            command.args([
                "ceiling-aoe",
                "--interface",
                TARGET,
                "--address",
                ADDRESS,
                "--size",
                VOLUME,
            ]);
            command
        }
        Program::Plateway => {
            let file = own.join("plateway.toml");
            fs::write(&file, configuration(plan, &cpus, &own))?;
            let mut command = bench.command_in(&lan.at_target(), &cpus, &bench.plateway);
            command.arg("serve").arg("--config").arg(file);
            command
        }
        Program::Vblade => {
            let (shelf, slot) = ADDRESS.split_once('.').context("the address has two parts")?;
            let mut command = bench.command_in(&lan.at_target(), &cpus, Path::new("vblade"));
            command
                .args(["-b", &BUFFERS.to_string(), shelf, slot, TARGET])
                .arg(memory_file(bench)?);
            command
        }
    };
    let log = own.join("server.log");
    command.stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    let text = tree::words(&command);
    let started = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {text}"))?;
    let mut server = Server::in_lan(child, lan, cpus, log, plan.counts_core());
    let found = client(bench, &server, &plan.last(), &["--window=0", "--warm-up=0"], 0.0);
    if let Some(status) = server.child.try_wait()? {
        bail!("{text} ended with {status}: {}", server.words());
    }
    found.with_context(|| format!("{text}: {}", server.words()))?;
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
    let mut command = bench.command_in(&lan.at_load(), &cpu, &bench.yardstick);
    command
        .args(["client-aoe", "--json", "--interface", LOAD, "--address", address])
        .args(["--seconds", &seconds.to_string()])
        .args(["--target-pid", &server.child.id().to_string()])
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
    let mut command = bench.command_in(&lan.at_load(), &cpu, &bench.plateway);
    command.arg("bench").arg(format!("aoe://{LOAD}/{ADDRESS}?window=128"));
    Ok(command)
}

/// A file in memory, of the size of every volume and every block of it written.
fn memory_file(bench: &Bench) -> Result<PathBuf> {
    let shared = Path::new(SHARED_MEMORY);
    let dir = if shared.is_dir() { shared.to_owned() } else { bench.fresh("vblade")? };
    let path = dir.join(format!("{PREFIX}{}", std::process::id()));
    let len = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if len != VOLUME_BYTES as u64 {
        let mut file = fs::File::create(&path)?;
        let chunk = vec![0xa5; 1 << 20];
        for _ in 0..VOLUME_BYTES / chunk.len() {
            file.write_all(&chunk).with_context(|| format!("cannot fill {}", path.display()))?;
        }
        bench.remove_later(&path);
    }
    Ok(path)
}

fn configuration(plan: &Plan, cpus: &str, own: &Path) -> String {
    let disk = if plan.memory { format!("ram:{VOLUME}") } else { format!("null:{VOLUME}") };
    let mut text = server_table(cpus, own) + &volume(&[disk]);
    let link = if plan.xdp { "xdp" } else { "packet" };
    text += &format!("[[listener]]\naoe = \"{TARGET}\"\nlink = \"{link}\"\n");
    text += &export("v0", ADDRESS);
    if plan.many {
        let (shelves, slots) = MANY;
        for number in 0..shelves * slots {
            let address = format!("{}.{}", number / slots + 1, number % slots);
            if address == ADDRESS {
                continue;
            }
            let name = format!("n{number}");
            text += &format!("[[disk]]\nname = \"{name}\"\nuri = \"null:64MiB\"\n");
            text += &format!(
                "[[volume]]\nname = \"{name}\"\nlayout = \"single\"\ndisks = [\"{name}\"]\nblock_size = 512\n"
            );
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

/// Says which AoE cases are left out, if namespaces cannot be made; then none is left in.
pub(super) fn leave_out(chosen: &mut Vec<Case>) -> Result<Option<String>> {
    let ours = |case: &Case| case.name.starts_with("aoe-");
    let count = chosen.iter().filter(|case| ours(case)).count();
    if count == 0 {
        return Ok(None);
    }
    let Err(error) = super::lan::allowed() else {
        return Ok(None);
    };
    chosen.retain(|case| !ours(case));
    let line = format!("AoE is left out ({count} cases): {error:#}");
    ensure!(!chosen.is_empty(), "{line}");
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_exports_have_one_address_each_and_the_measured_one_has_the_memory() {
        let plan = Plan::new(Program::Plateway, 1500).many();
        let text = configuration(&plan, "0", Path::new("/own"));
        assert_eq!(text.matches("[[export]]").count(), 4096);
        assert_eq!(text.matches("shelf = 7, slot = 0, ").count(), 1);
        assert_eq!(text.matches("ram:").count(), 1);
        assert!(text.contains("shelf = 32, slot = 127, ") && plan.last() == "32.127");
        assert!(!configuration(&plan.null(), "0", Path::new("/own")).contains("ram:"));
    }

    #[test]
    fn the_listener_says_how_it_is_linked() {
        let plan = Plan::new(Program::Plateway, 1500);
        let text = |plan| configuration(plan, "0", Path::new("/own"));
        assert!(text(&plan).contains("link = \"packet\""));
        assert!(text(&plan.xdp()).contains("link = \"xdp\""));
    }
}
