//! `plateway demo`: a striped volume on four files, served over NVMe/TCP on loopback by a server of
//! its own, written, verified and measured through our own initiator, in half a minute, as an
//! ordinary user and without a configuration.
//!
//! Where the right is there, a second volume is served over NVMe/TCP and AoE at once and each is
//! held against the other (`demo/lan.rs`).
//!
//! The server is this program again, as `plateway serve`, so that its processor time is counted
//! apart and everything is what a user would run. Everything lies in one temporary directory, which
//! is removed at the end whatever happens short of SIGKILL. With `--keep` the server is left
//! running until Ctrl-C.

mod lan;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use lab::report::{Grouped, Nanoseconds, Report};
use serde::Serialize;

use super::bench;
use super::session::Session;
use crate::cli::{BenchArgs, DemoArgs, Pattern};
use crate::config::defaults::Defaults;
use crate::config::text::quoted;
use crate::config::uri::DiskUri;
use crate::control::table;

const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:demo";
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 64 << 20;
/// How long a server may take to end; it drains for 5 s at most.
const END: Duration = Duration::from_secs(30);

/// A row of the table: a name, what `bench` is told, and for how many seconds.
struct Case {
    name: &'static str,
    pattern: Pattern,
    block_bytes: u64,
    depth: u32,
    seconds: u64,
    verify: bool,
}

const fn case(
    name: &'static str,
    (random, read_percent): (bool, u8),
    (block_bytes, depth): (u64, u32),
    seconds: u64,
    verify: bool,
) -> Case {
    let pattern = Pattern { random, read_percent };
    Case { name, pattern, block_bytes, depth, seconds, verify }
}

/// First what proves the data, then what measures.
const CASES: [Case; 6] = [
    case("write all, verify", (false, 0), (128 << 10, 16), 3, true),
    case("mixed 4k, verify", (true, 50), (4 << 10, 32), 2, true),
    case("4k random read", (true, 100), (4 << 10, 32), 3, false),
    case("4k random write", (true, 0), (4 << 10, 32), 3, false),
    case("128k read", (false, 100), (128 << 10, 32), 3, false),
    case("128k write", (false, 0), (128 << 10, 32), 3, false),
];

/// What `--json` prints.
#[derive(Serialize)]
struct Demo {
    subsystem: &'static str,
    address: String,
    blocks_verified: u64,
    results: Vec<Report>,
    aoe: lan::Shown,
}

/// Demonstrates.
pub(crate) fn run(args: &DemoArgs) -> miette::Result<()> {
    let interrupted = super::session::interrupt()?;
    let say = |text: &str| {
        if !args.json {
            super::print(&format!("{text}\n"));
        }
    };
    let home = Home::make()?;
    let cpus = Defaults::of_this_machine().cpus;
    home.configure(&cpus, if args.keep { 4420 } else { 0 })?;
    let mut server = match home.serve() {
        // Somebody else has the usual port: any other does as well.
        Err(_) if args.keep => {
            home.configure(&cpus, 0)?;
            home.serve()?
        }
        started => started?,
    };
    let address = server.address.clone();
    say(&format!(
        "A stripe over {MEMBERS} files in {} is served over NVMe/TCP at {address}.\n",
        home.path.display()
    ));
    let mut demo = Demo {
        subsystem: SUBSYSTEM,
        address: address.clone(),
        blocks_verified: 0,
        results: Vec::new(),
        aoe: lan::Shown::default(),
    };
    let mut open: Option<(Session, bool)> = None;
    for case in &CASES {
        let bench = bench_args(case, &address, home.control())?;
        let failed = |error: miette::Report| {
            error.wrap_err(format!("{}; {}", case.name, server.last_words()))
        };
        // One session with digests for what is verified, one without for what is measured.
        let session = match open.take() {
            Some((session, verified)) if verified == case.verify => session,
            _ => bench::open(&bench).map_err(failed)?,
        };
        let report = bench::measure_in(&session, &bench).map_err(failed);
        let report = report?;
        open = Some((session, case.verify));
        if !report.is_good() {
            return Err(miette::miette!("{}: {}", case.name, bench::what_failed(&report)));
        }
        if let Some(verify) = &report.verify {
            demo.blocks_verified += verify.checked;
            say(&format!(
                "{}: {} requests, {} blocks read and right",
                case.name,
                Grouped(report.counted.requests),
                Grouped(verify.checked)
            ));
        }
        demo.results.push(report);
        if interrupted.load(Relaxed) {
            return Err(miette::miette!("interrupted"));
        }
    }
    if let Some((session, _)) = open {
        session.close()?;
    }
    demo.aoe = lan::show(&home, &interrupted)?;
    match args.json {
        true => super::print_json(&demo)?,
        false => super::print(&(summary(&demo) + &demo.aoe.text())),
    }
    if args.keep {
        super::print(&hints(&address, &home));
        while !interrupted.load(Relaxed) && server.runs() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    server.end();
    Ok(())
}

fn bench_args(case: &Case, address: &str, control: PathBuf) -> miette::Result<BenchArgs> {
    // Digests as Linux has them unless told otherwise; `bench` itself asks for them by default.
    let digests = u8::from(case.verify);
    let uri = format!("nvme+tcp://{address}/{SUBSYSTEM}/1?hdgst={digests}&ddgst={digests}");
    Ok(BenchArgs {
        disk: uri.parse().map_err(|error| miette::miette!("{error}"))?,
        config: None,
        rw: case.pattern,
        bs: case.block_bytes,
        iodepth: case.depth,
        numjobs: 1,
        time: case.seconds,
        warmup: u64::from(!case.verify),
        rate: None,
        verify: case.verify,
        // Members are made anew, and later cases write over earlier ones.
        overwrite: true,
        control: Some(control),
        json: false,
    })
}

fn summary(demo: &Demo) -> String {
    let head = ["", "IOPS", "MB/s", "p50", "p99", "p99.9", "CPU here", "CPU target"];
    let mut rows = table(&head);
    for (case, report) in CASES.iter().zip(&demo.results).filter(|(case, _)| !case.verify) {
        let (counted, latency) = (&report.counted, &report.counted.all.latency_ns);
        let time = |ns: u64| Nanoseconds(ns as f64).to_string();
        let cpu = |us: f64| format!("{us:.1} us");
        rows.add_row([
            case.name.to_owned(),
            Grouped(counted.all.iops.round() as u64).to_string(),
            format!("{:.0}", counted.all.bytes_per_second / 1e6),
            time(latency.percentile("p50")),
            time(latency.percentile("p99")),
            time(latency.percentile("p99.9")),
            cpu(report.cpu_us_per_io.initiator),
            report.cpu_us_per_io.target.map_or_else(String::new, cpu),
        ]);
    }
    let environment = demo.results.last().map(|report| &report.environment);
    let machine = environment.map_or_else(String::new, |environment| {
        format!("{}, {}, {}", environment.kernel, environment.cpu, environment.driver)
    });
    format!(
        "\n{rows}\n\nEach with 32 requests in flight on one connection without digests; CPU is for each request.\n{machine}\n\n\
         {} blocks were verified: nothing was lost, misplaced, stale or torn.\n",
        Grouped(demo.blocks_verified)
    )
}

/// What to type next.
fn hints(address: &str, home: &Home) -> String {
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
         or without root:\n  \
         plateway discover nvme+tcp://{address}\n  \
         plateway bench nvme+tcp://{address}/{SUBSYSTEM}/1 --control {control}\n  \
         plateway status --control {control}\n\
         Ctrl-C ends it and removes its files.\n"
    )
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
    fn configure(&self, cpus: &[u32], port: u16) -> miette::Result<()> {
        let shards = &cpus[..(cpus.len() / 2).clamp(1, 4)];
        let path = |path: &Path| quoted(&path.display().to_string());
        let mut text = format!(
            "[server]\nshards = {shards:?}\ncontrol = {}\nstate = {}\n",
            path(&self.control()),
            path(&self.path.join("state"))
        );
        let mut names = Vec::new();
        for number in 0..MEMBERS {
            let create_bytes = Some(MEMBER_BYTES);
            let member = self.path.join(format!("member-{number}"));
            let uri = quoted(&DiskUri::File { path: member, create_bytes }.to_string());
            text.push_str(&format!("\n[[disk]]\nname = \"d{number}\"\nuri = {uri}\n"));
            names.push(format!("d{number}"));
        }
        text.push_str(&format!(
            "\n[[volume]]\nname = \"demo\"\nlayout = \"stripe\"\ndisks = {names:?}\nchunk = \"64KiB\"\n\
             \n[[listener]]\nnvme = \"127.0.0.1:{port}\"\n\
             \n[[export]]\nvolume = \"demo\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n"
        ));
        let file = self.file();
        fs::write(&file, text)
            .map_err(|error| miette::miette!("cannot write {}: {error}", file.display()))
    }

    /// Starts a server and waits until it listens.
    fn serve(&self) -> miette::Result<Served> {
        let program = std::env::current_exe()
            .map_err(|error| miette::miette!("cannot find this program: {error}"))?;
        let mut command = Command::new(program);
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
        let mut served = Served { child, log, address: String::new(), _output: None };
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
            if let Some(address) = line.trim().strip_prefix("ready: nvme ") {
                served.address = address.to_owned();
                served._output = Some(output);
                return Ok(served);
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            crate::run::log(&format!("cannot remove {}: {error}", self.path.display()));
        }
    }
}

/// A server that runs; ends with this value.
struct Served {
    child: Child,
    log: PathBuf,
    address: String,
    /// Kept open: a server must not find its output closed.
    _output: Option<BufReader<ChildStdout>>,
}

impl Served {
    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
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
