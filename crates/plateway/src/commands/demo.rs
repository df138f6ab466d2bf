//! `plateway demo`: a striped volume on four files, served on loopback by a server of
//! its own, written, verified and measured through our own initiator, within a minute, as an
//! ordinary user and without a configuration.
//!
//! A second volume is served over NVMe/TCP and iSCSI at once, and over AoE where the right is there;
//! each is held against the others (`demo/across.rs`).
//!
//! Server and bench are this program again, as `plateway serve` and `plateway bench`, so that the
//! server's processor time is counted apart and everything is what a user would run. Everything
//! lies in one temporary directory, which is removed at the end whatever happens short of SIGKILL.
//! With `--keep` the server is left running until Ctrl-C.

mod across;
mod lan;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use comfy_table::Table;
use lab::report::{Grouped, Nanoseconds};
use reactor::disk::Tail;
use serde::Serialize;
use serde_json::Value;

use super::session::Interrupt;
use super::{Ended, INTERRUPTED};
use crate::cli::DemoArgs;
use crate::config::defaults::Defaults;
use crate::config::text::quoted;
use crate::config::uri::DiskUri;
use crate::control::table;

const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:demo";
const TARGET: &str = "iqn.2026-11.net.plateway:demo";
/// The usual ports of its listeners, for `--keep`; otherwise any.
const PORTS: [u16; 2] = [4420, 3260];
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 64 << 20;
/// How long a server may take to end; it drains for 5 s at most.
const END: Duration = Duration::from_secs(30);

/// A row of a table: its name, and what `bench` is told.
type Case = (&'static str, &'static str);

/// First what proves the data, then what measures.
const CASES: [Case; 6] = [
    ("write all, verify", "--rw write --bs 128k --iodepth 16 --time 3 --warmup 0 --verify"),
    ("mixed 4k, verify", "--rw randrw --bs 4k --iodepth 32 --time 2 --warmup 0 --verify"),
    ("4k random read", "--rw randread --bs 4k --iodepth 32 --time 3"),
    ("4k random write", "--rw randwrite --bs 4k --iodepth 32 --time 3"),
    ("128k read", "--rw read --bs 128k --iodepth 32 --time 3"),
    ("128k write", "--rw write --bs 128k --iodepth 32 --time 3"),
];

/// What `--json` prints.
#[derive(Serialize)]
struct Demo {
    subsystem: &'static str,
    address: String,
    blocks_verified: u64,
    /// What `bench --json` printed.
    results: Vec<Value>,
    across: across::Shown,
}

/// Demonstrates.
pub(crate) fn run(args: &DemoArgs) -> miette::Result<()> {
    let interrupted = Interrupt::watch()?;
    let say = |text: &str| match args.json {
        true => Ok(()),
        false => super::print(&format!("{text}\n")),
    };
    let home = Home::make()?;
    let cpus = Defaults::of_this_machine().cpus;
    home.configure(&cpus, if args.keep { PORTS } else { [0; 2] })?;
    let mut server = match home.serve() {
        // Somebody else has a usual port: any other does as well.
        Err(_) if args.keep => {
            home.configure(&cpus, [0; 2])?;
            home.serve()?
        }
        started => started?,
    };
    let address = server.address("nvme").to_owned();
    say(&format!(
        "A stripe over {MEMBERS} files in {} is served over NVMe/TCP at {address}, and over iSCSI.\n",
        home.path.display()
    ))?;
    let mut demo = Demo {
        subsystem: SUBSYSTEM,
        address: address.clone(),
        blocks_verified: 0,
        results: Vec::new(),
        across: across::Shown::default(),
    };
    for case in CASES {
        // Digests where data are proved; elsewhere none, as Linux has it unless told otherwise.
        let digests = u8::from(case.1.contains("--verify"));
        let uri = format!("nvme+tcp://{address}/{SUBSYSTEM}/1?hdgst={digests}&ddgst={digests}");
        let result = measure(Command::new(program()?), &uri, case, &home.control());
        // The signal came to what measures as well.
        stop_if(&interrupted)?;
        let result = result.map_err(|error| error.wrap_err(server.last_words()))?;
        if let Some(checked) = result["verify"]["checked"].as_u64() {
            demo.blocks_verified += checked;
            let (name, requests) = (case.0, Grouped(result["requests"].as_u64().unwrap_or(0)));
            let blocks = Grouped(checked);
            say(&format!("{name}: {requests} requests, {blocks} blocks read and right"))?;
        }
        demo.results.push(result);
    }
    demo.across = across::show(&home, &interrupted)?;
    super::show(args.json, &demo, || summary(&demo) + &demo.across.text())?;
    if args.keep {
        super::print(&hints(&address, server.address("iscsi"), &home))?;
        while !interrupted.is_raised() && server.runs() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    server.end();
    Ok(())
}

fn stop_if(interrupted: &Interrupt) -> miette::Result<()> {
    match interrupted.is_raised() {
        true => Err(Ended::new(INTERRUPTED, "interrupted".to_owned()).into()),
        false => Ok(()),
    }
}

/// Has `bench` measure a case; members are made anew, and later cases write over earlier ones.
fn measure(command: Command, uri: &str, case: Case, control: &Path) -> miette::Result<Value> {
    let control = control.display().to_string();
    let line = ["bench", uri, "--overwrite", "--json", "--control", &control];
    let line: Vec<&str> = line.into_iter().chain(case.1.split_whitespace()).collect();
    serde_json::from_slice(&carry_out(command, &line)?)
        .map_err(|error| miette::miette!("bench --json: {error}"))
}

/// Has this program carry out a line; returns what it printed. What it complains of, and how far it
/// is, is seen as it says it.
fn carry_out(mut command: Command, line: &[&str]) -> miette::Result<Vec<u8>> {
    let output = command.args(line).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| miette::miette!("cannot start this program: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(miette::miette!("failed: plateway {}", line.join(" "))),
    }
}

/// What was measured.
fn rows(title: &str, cases: &[Case], results: &[Value]) -> Table {
    let head = [title, "IOPS", "MB/s", "p50", "p99", "p99.9", "CPU here", "CPU target"];
    let mut rows = table(&head);
    let measured = |(_, result): &(&Case, &Value)| result["verify"].is_null();
    for ((name, _), result) in cases.iter().zip(results).filter(measured) {
        let number = |at: &str| result.pointer(at).and_then(Value::as_f64);
        let shown = |at: &str, text: fn(f64) -> String| number(at).map_or_else(String::new, text);
        let time = |at| shown(at, |ns| Nanoseconds(ns).to_string());
        let cpu = |at| shown(at, |us| format!("{us:.1} us"));
        rows.add_row([
            (*name).to_owned(),
            shown("/iops", |iops| Grouped(iops.round() as u64).to_string()),
            shown("/bytes_per_second", |bytes| format!("{:.0}", bytes / 1e6)),
            time("/latency_ns/p50"),
            time("/latency_ns/p99"),
            time("/latency_ns/p99.9"),
            cpu("/cpu_us_per_io/initiator"),
            cpu("/cpu_us_per_io/target"),
        ]);
    }
    rows
}

fn summary(demo: &Demo) -> String {
    let rows = rows("", &CASES, &demo.results);
    let environment = demo.results.last().map_or(&Value::Null, |result| &result["environment"]);
    let words = ["kernel", "cpu", "driver"].map(|key| environment[key].as_str().unwrap_or("?"));
    let machine = words.join(", ");
    format!(
        "\n{rows}\n\nEach with 32 requests in flight on one connection without digests; CPU is for each request.\n{machine}\n\n\
         {} blocks were verified: nothing was lost, misplaced, stale or torn.\n",
        Grouped(demo.blocks_verified)
    )
}

/// What to type next.
fn hints(address: &str, iscsi: &str, home: &Home) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "4420"));
    let control = home.control();
    let control = control.display();
    format!(
        "\nIt is still served. On this machine, as root:\n  \
         modprobe nvme-tcp\n  \
         nvme discover -t tcp -a {host} -s {port}\n  \
         nvme connect -t tcp -a {host} -s {port} -n {SUBSYSTEM}\n  \
         nvme list\n  \
         nvme disconnect -n {SUBSYSTEM}\n\
         or over iSCSI (package open-iscsi):\n  \
         iscsiadm -m discovery -t sendtargets -p {iscsi}\n  \
         iscsiadm -m node -T {TARGET} -p {iscsi} --login\n  \
         iscsiadm -m node -T {TARGET} -p {iscsi} --logout\n\
         or without root:\n  \
         plateway discover nvme+tcp://{address}\n  \
         plateway bench nvme+tcp://{address}/{SUBSYSTEM}/1 --control {control}\n  \
         plateway bench iscsi://{iscsi}/{TARGET}/0 --control {control}\n  \
         plateway status --control {control}\n\
         Ctrl-C ends it and removes its files.\n"
    )
}

fn program() -> miette::Result<PathBuf> {
    std::env::current_exe().map_err(|error| miette::miette!("cannot find this program: {error}"))
}

/// The temporary directory.
struct Home {
    path: PathBuf,
}

impl Home {
    fn make() -> miette::Result<Home> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("plateway-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Nobody else may look at it, and one that exists is not ours.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| miette::miette!("cannot make {}: {error}", path.display()))?;
        Ok(Home { path })
    }

    fn control(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    fn file(&self) -> PathBuf {
        self.path.join("plateway.toml")
    }

    /// Writes the configuration: the server on the first half of the CPUs, so that the bench has
    /// the rest.
    fn configure(&self, cpus: &[u32], [nvme, iscsi]: [u16; 2]) -> miette::Result<()> {
        let shards = &cpus[..(cpus.len() / 2).clamp(1, 4)];
        let mut tables = String::new();
        let mut names = Vec::new();
        for number in 0..MEMBERS {
            let create_bytes = Some(MEMBER_BYTES);
            let member = self.path.join(format!("member-{number}"));
            let uri = quoted(
                &DiskUri::File { path: member, create_bytes, tail: Tail::Refuse }.to_string(),
            );
            tables.push_str(&format!("\n[[disk]]\nname = \"d{number}\"\nuri = {uri}\n"));
            names.push(format!("d{number}"));
        }
        tables.push_str(&format!(
            "\n[[volume]]\nname = \"demo\"\nlayout = \"stripe\"\ndisks = {names:?}\nchunk = \"64KiB\"\n\
             \n[[listener]]\nnvme = \"127.0.0.1:{nvme}\"\n\
             \n[[listener]]\niscsi = \"127.0.0.1:{iscsi}\"\n\
             \n[[export]]\nvolume = \"demo\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n\
             iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\" }}\n"
        ));
        self.write(&self.file(), shards, &self.control(), "state", &tables)
    }

    /// Writes the configuration of a server on these CPUs.
    fn write(
        &self,
        file: &Path,
        shards: &[u32],
        control: &Path,
        state: &str,
        tables: &str,
    ) -> miette::Result<()> {
        let path = |path: &Path| quoted(&path.display().to_string());
        let (control, state) = (path(control), path(&self.path.join(state)));
        let text = format!(
            "[server]\nshards = {shards:?}\ncontrol = {control}\nstate = {state}\n{tables}"
        );
        fs::write(file, text)
            .map_err(|error| miette::miette!("cannot write {}: {error}", file.display()))
    }

    /// Starts a server and waits until it listens.
    fn serve(&self) -> miette::Result<Served> {
        let mut command = Command::new(program()?);
        command.arg("serve").arg("--config").arg(self.file());
        self.start(command, "serve.log")
    }

    /// Starts a server by a command, with a log of this name, and waits until it listens.
    fn start(&self, mut command: Command, log: &str) -> miette::Result<Served> {
        let log = self.path.join(log);
        let failed = |error: std::io::Error| miette::miette!("cannot start the server: {error}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take().map(BufReader::new);
        let mut served = Served { child, log, addresses: Vec::new(), _output: None };
        let Some(mut output) = output else { return Ok(served) };
        let mut line = String::new();
        loop {
            line.clear();
            match output.read_line(&mut line) {
                Ok(0) | Err(_) => {
                    return Err(miette::miette!(
                        "the server did not start; {}",
                        served.last_words()
                    ));
                }
                Ok(_) => {}
            }
            let ready = line.trim().strip_prefix("ready: ").and_then(|what| what.split_once(' '));
            if let Some((key, address)) = ready {
                served.addresses.push((key.to_owned(), address.to_owned()));
            }
            if ["nvme", "iscsi"].iter().all(|key| !served.address(key).is_empty()) {
                served._output = Some(output);
                return Ok(served);
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let words = format!("cannot remove {}: {error}", self.path.display());
            crate::log::Event::warn(words).tell();
        }
    }
}

/// A server that runs; ends with this value.
struct Served {
    child: Child,
    log: PathBuf,
    /// Where it listens, by the key of the listener.
    addresses: Vec<(String, String)>,
    /// Kept open: a server must not find its output closed.
    _output: Option<BufReader<ChildStdout>>,
}

impl Served {
    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Where it listens by the listener of this key; nothing while it has not said so.
    fn address(&self, key: &str) -> &str {
        let known = self.addresses.iter().find(|(known, _)| known == key);
        known.map_or("", |(_, address)| address)
    }

    /// The end of what it said.
    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(5)..];
        format!("the server's last words: {}", last.join(" | "))
    }

    /// Lets it drain and flush; one that does not end is killed.
    fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        if self.runs() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + END;
        while self.runs() {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}
