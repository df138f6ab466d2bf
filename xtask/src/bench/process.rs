//! The processes of a benchmark: servers with their configuration, loads with their time limits.
//!
//! Servers end with the bench: by SIGKILL to their own process when dropped, and by the
//! parent-death signal (`setpriv`) should the bench itself be killed. Every load has a time limit.
//! CPU time of a load comes from `/proc/PID/task/*/schedstat`, looked at twice in mid-run. Errors
//! name the program, and carry what it wrote to standard error.

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::aoe;
use super::lan::Lan;
use crate::tree::{Tree, words};

/// Name of the subsystem under which Plateway exports the volume.
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:bench";
/// Bytes of every volume that is measured.
pub(super) const VOLUME: &str = "512MiB";
const MEMBER: &str = "128MiB";
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(30);
/// How often metrics are read where they are.
const SCRAPE: Duration = Duration::from_secs(1);
/// How much longer than its window a load may take.
const SLACK: Duration = Duration::from_secs(150);

/// A server to start.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Plan {
    /// Of NVMe/TCP, on a port of the loopback interface.
    Nvme(NvmePlan),
    /// Of AoE, on a LAN of its own.
    Aoe(aoe::Plan),
}

impl Plan {
    /// Whether every block is to be written before anything is measured.
    pub(super) fn fill(&self) -> bool {
        match self {
            Self::Nvme(plan) => matches!(plan.disks, Disks::Ram | Disks::Stripe),
            Self::Aoe(plan) => plan.fill(),
        }
    }
}

/// A server of NVMe/TCP.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NvmePlan {
    disks: Disks,
    /// Microseconds for which it looks for work before it sleeps.
    #[serde(default)]
    poll_us: u32,
    /// On both CPUs.
    #[serde(default)]
    two_shards: bool,
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
}

/// A server that runs.
pub(super) struct Server {
    pub(super) child: Child,
    place: Place,
    scraper: Option<Scraper>,
    pub(super) cpus: String,
    log: PathBuf,
    /// Whether all that its CPUs do counts, and not its threads alone.
    pub(super) counts_core: bool,
    /// From its start to its first answer.
    pub(super) start_seconds: f64,
}

/// Where a server is found.
pub(super) enum Place {
    Port { address: SocketAddr, subsystem: &'static str },
    Lan(Lan),
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended on its own; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the programs are, and a directory for what they leave.
pub(super) struct Bench {
    root: PathBuf,
    pub(super) yardstick: PathBuf,
    pub(super) plateway: PathBuf,
    dir: PathBuf,
    elsewhere: RefCell<Vec<PathBuf>>,
    pub(super) target_cpu: usize,
    pub(super) load_cpu: usize,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Files of the stripe and logs; what cannot be removed is in the target directory anyway.
        let _ = fs::remove_dir_all(&self.dir);
        for path in self.elsewhere.borrow().iter() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Bench {
    pub(super) fn new(
        tree: &Tree,
        plateway: PathBuf,
        target_cpu: usize,
        load_cpu: usize,
    ) -> Result<Self> {
        let dir = tree.target.join(format!("bench/run-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let yardstick = tree.target.join("release/yardstick");
        Ok(Self {
            root: tree.root.clone(),
            yardstick,
            plateway,
            dir,
            elsewhere: RefCell::new(Vec::new()),
            target_cpu,
            load_cpu,
        })
    }

    /// A new directory, which goes with the bench. No other bench of the process is given it.
    pub(super) fn fresh(&self, name: &str) -> Result<PathBuf> {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("{name}-{number}"));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// Removes a file when the bench ends.
    pub(super) fn remove_later(&self, path: &Path) {
        self.elsewhere.borrow_mut().push(path.to_owned());
    }

    /// A program on the given CPUs that does not outlive the bench.
    fn command(&self, cpus: &str, program: &Path) -> Command {
        self.command_in(&[], cpus, program)
    }

    /// The same, entered by way of another program that becomes it.
    pub(super) fn command_in(&self, way: &[&str], cpus: &str, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(way).args(["taskset", "--cpu-list", cpus]);
        command.arg(program).current_dir(&self.root).stdin(Stdio::null());
        // An error is one line in the table; a backtrace would bury it.
        command.env_remove("RUST_BACKTRACE");
        command
    }

    /// Starts a server and waits until it answers.
    pub(super) fn serve(&self, plan: &Plan) -> Result<Server> {
        match plan {
            Plan::Nvme(plan) => self.serve_nvme(plan),
            Plan::Aoe(plan) => aoe::serve(self, plan),
        }
    }

    fn serve_nvme(&self, plan: &NvmePlan) -> Result<Server> {
        let port = free_port()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let metrics = plan.scraped.then(free_port).transpose()?;
        let metrics = metrics.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let cpus = if plan.two_shards {
            format!("{},{}", self.target_cpu, self.load_cpu)
        } else {
            self.target_cpu.to_string()
        };
        let (command, subsystem) = if plan.disks == Disks::Ceiling {
            let mut command = self.command(&cpus, &self.yardstick);
            command.args(["ceiling", "--listen", &address.to_string(), "--size", VOLUME]);
            command.args(["--spin-us", &plan.poll_us.to_string()]);
            (command, "nqn.2026-11.net.plateway:ceiling")
        } else {
            let own = self.dir.join(format!("serve-{port}"));
            fs::create_dir_all(&own)?;
            let file = own.join("plateway.toml");
            let mut text = server_table(&cpus, &own);
            if let Some(metrics) = metrics {
                text += &format!("metrics = \"{metrics}\"\n");
            }
            fs::write(&file, text + &exported(plan, address))?;
            let mut command = self.command(&cpus, &self.plateway);
            command.arg("serve").arg("--config").arg(file);
            (command, SUBSYSTEM)
        };
        let log = self.dir.join(format!("server-{port}.log"));
        let text = words(&command);
        let mut server = Server::start(command, Place::Port { address, subsystem }, cpus, log)?;
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            server.is_up(&text)?;
            ensure!(Instant::now() < deadline, "{text} does not listen: {}", server.words());
            std::thread::sleep(Duration::from_millis(20));
        }
        server.scraper = metrics.map(Scraper::start);
        Ok(server)
    }

    /// Waits until what came before has been cleared away by the server: it uses no CPU any more.
    pub(super) fn settle(&self, server: &Server) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let before = run_time(server.child.id());
            std::thread::sleep(Duration::from_millis(60));
            let spent = run_time(server.child.id()).saturating_sub(before);
            if spent < 600_000 || Instant::now() > deadline {
                return Ok(());
            }
        }
    }

    /// The bare client against a server, for one window.
    pub(super) fn client(&self, server: &Server, args: &[&str], seconds: f64) -> Result<Value> {
        let Place::Port { address, subsystem } = &server.place else {
            return aoe::client(self, server, aoe::ADDRESS, args, seconds)
                .map_err(|error| server.blame(error));
        };
        let mut command = self.command(&self.load_cpu.to_string(), &self.yardstick);
        command
            .args(["client", "--json", "--connect", &address.to_string()])
            .args(["--nqn", subsystem])
            .args(["--seconds", &seconds.to_string()])
            .args(["--target-pid", &server.child.id().to_string()])
            .args(["--target-cpus", &server.cpus])
            .args(args);
        let mut value = output(command, seconds).map_err(|error| server.blame(error))?.value;
        ensure!(server.is_scraped(), "nothing reads the server's metrics any more");
        value["load_cpu_us_per_op"] = value["client_cpu_us_per_op"].clone();
        Ok(value)
    }

    /// `plateway bench` against a server, or in process on the stripe over four files.
    pub(super) fn initiator(
        &self,
        server: Option<&Server>,
        args: &[&str],
        seconds: f64,
    ) -> Result<Value> {
        let cpu = if server.is_some() { self.load_cpu } else { self.target_cpu };
        let mut command = match server.map(|server| (server, &server.place)) {
            Some((server, Place::Lan(_))) => aoe::initiator(self, server)?,
            Some((_, Place::Port { address, subsystem })) => {
                let mut command = self.command(&cpu.to_string(), &self.plateway);
                command.arg("bench").arg(format!(
                    "nvme+tcp://{address}/{subsystem}/1?hdgst=0&ddgst=0&queues=1&depth=32"
                ));
                command
            }
            None => {
                let mut command = self.command(&cpu.to_string(), &self.plateway);
                command.args(["bench", "volume:v0", "--config"]).arg(self.stripe_of_files()?);
                command
            }
        };
        // Long enough to look at its CPU time twice in mid-run, whatever it does at start and end.
        let whole = seconds.ceil().max(2.0);
        command.args(args).args(["--numjobs=1", "--time", &whole.to_string(), "--json"]);
        let done = output(command, whole)?;
        let mut value = done.value;
        let iops = find(&value, "iops").context("no field iops")?;
        let size = args.iter().find_map(|arg| arg.strip_prefix("--bs=")).and_then(bytes);
        value = json!({
            "iops": iops, "load_cpu_us_per_op": done.cpu_share * 1e6 / iops,
            "mb_per_second": size.map(|size| iops * size / 1e6), "printed": value,
        });
        Ok(value)
    }

    /// fio with the io_uring engine on the four files.
    pub(super) fn fio(&self, args: &[&str], seconds: f64) -> Result<Value> {
        let found = Command::new("fio").arg("--version").output();
        ensure!(found.is_ok(), "skipped: fio is not on PATH");
        self.stripe_of_files()?;
        let names: Vec<String> =
            (0..4).map(|n| self.member(n).to_string_lossy().replace(':', "\\:")).collect();
        let mut command = self.command(&self.target_cpu.to_string(), Path::new("fio"));
        command
            .args(["--name=files", "--ioengine=io_uring", "--direct=1", "--time_based"])
            .args(["--output-format=json", "--readonly"])
            .arg(format!("--filename={}", names.join(":")))
            .arg(format!("--runtime={}", seconds.ceil().max(2.0)))
            .args(args);
        let value = output(command, seconds)?.value;
        let iops = value.pointer("/jobs/0/read/iops").and_then(Value::as_f64);
        Ok(json!({"iops": iops.context("fio prints jobs/0/read/iops")?}))
    }

    fn member(&self, number: usize) -> PathBuf {
        self.dir.join(format!("member-{number}"))
    }

    /// The configuration of a stripe over four files, whose every block has been written.
    fn stripe_of_files(&self) -> Result<PathBuf> {
        let file = self.dir.join("files.toml");
        if file.exists() {
            return Ok(file);
        }
        let unfinished = self.dir.join("files-unfinished.toml");
        let disks: Vec<String> =
            (0..4).map(|n| format!("file:{}?create=256MiB", self.member(n).display())).collect();
        let own = self.dir.join("files");
        fs::create_dir_all(&own)?;
        let text = server_table(&self.target_cpu.to_string(), &own) + &volume(&disks);
        fs::write(&unfinished, text)?;
        let mut command = self.command(&self.target_cpu.to_string(), &self.plateway);
        command
            .args(["bench", "volume:v0", "--rw", "write", "--bs", "1m", "--iodepth", "8"])
            .args(["--time", "8", "--overwrite", "--json", "--config"])
            .arg(&unfinished);
        output(command, 8.0).context("filling the files")?;
        fs::rename(&unfinished, &file)?;
        Ok(file)
    }
}

impl Server {
    pub(super) fn start(
        mut command: Command,
        place: Place,
        cpus: String,
        log: PathBuf,
    ) -> Result<Self> {
        command.stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        let text = words(&command);
        let child = command.spawn().with_context(|| format!("cannot start {text}"))?;
        Ok(Self {
            child,
            place,
            scraper: None,
            cpus,
            log,
            counts_core: false,
            start_seconds: f64::NAN,
        })
    }

    /// An error if it has ended.
    pub(super) fn is_up(&mut self, text: &str) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{text} ended with {status}: {}", self.words()),
            None => Ok(()),
        }
    }

    /// Whether who is to read its metrics still does.
    fn is_scraped(&self) -> bool {
        self.scraper.as_ref().is_none_or(|scraper| !scraper.thread.is_finished())
    }

    /// Its LAN, if it is on one.
    pub(super) fn lan(&self) -> Option<&Lan> {
        match &self.place {
            Place::Lan(lan) => Some(lan),
            Place::Port { .. } => None,
        }
    }

    /// An error of a load with what the server said.
    fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        match self.words() {
            words if words.is_empty() => error,
            words => error.context(format!("the server says: {words}")),
        }
    }

    /// The end of what it wrote to standard error.
    pub(super) fn words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

/// Who reads a server's metrics once a second, as long as it is kept and they are answered.
struct Scraper {
    _stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Scraper {
    fn start(address: SocketAddr) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(SCRAPE) == Err(RecvTimeoutError::Timeout) {
                if scrape(address).is_none_or(|text| !text.ends_with("# EOF\n")) {
                    return;
                }
            }
        });
        Self { _stop: stop, thread }
    }
}

/// What a server answers who asks for its metrics.
fn scrape(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(START)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

pub(super) fn server_table(cpus: &str, own: &Path) -> String {
    let own = own.display();
    format!(
        "[server]\nshards = [{cpus}]\ncontrol = \"{own}/control.sock\"\nstate = \"{own}/state\"\n"
    )
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

/// The volume of a plan, its listener and its export.
fn exported(plan: &NvmePlan, address: SocketAddr) -> String {
    let disks: Vec<String> = match plan.disks {
        Disks::Stripe => (0..4).map(|_| format!("ram:{MEMBER}")).collect(),
        Disks::Null => vec![format!("null:{VOLUME}")],
        Disks::Ram | Disks::Ceiling => vec![format!("ram:{VOLUME}")],
    };
    let mut text = volume(&disks);
    text += &format!("[[listener]]\nnvme = \"{address}\"\npoll_us = {}\n", plan.poll_us);
    text += &format!(
        "[[export]]\nvolume = \"v0\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n"
    );
    text
}

/// What a load printed, and the share of a CPU that it used in mid-run.
pub(super) struct Done {
    pub(super) value: Value,
    cpu_share: f64,
}

/// Runs a load to its end, or to its time limit.
pub(super) fn output(mut command: Command, seconds: f64) -> Result<Done> {
    let text = words(&command);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {text}"))?;
    let readers = [child.stdout.take().map(read_all), child.stderr.take().map(read_all)];
    let start = Instant::now();
    let limit = Duration::from_secs_f64(seconds) + SLACK;
    let (first, second) = (seconds * 0.4, seconds * 0.8);
    let mut looks: Vec<(Instant, u64)> = Vec::new();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let spent = start.elapsed();
        let due = [first, second].get(looks.len()).copied();
        if due.is_some_and(|due| spent.as_secs_f64() >= due) {
            looks.push((Instant::now(), run_time(child.id())));
        }
        if spent > limit {
            child.kill()?;
            child.wait()?;
            bail!("{text} did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let [printed, errors] =
        readers.map(|reader| reader.and_then(|reader| reader.join().ok()).unwrap_or_default());
    ensure!(
        status.success(),
        "{} ({status} of: {text})",
        errors.trim().trim_start_matches("Error: ").replace('\n', " ")
    );
    let cpu_share = match looks[..] {
        [(from, a), (to, b)] => b.saturating_sub(a) as f64 / (to - from).as_nanos() as f64,
        _ => f64::NAN,
    };
    let begin = printed.find('{').with_context(|| format!("{text} prints no JSON"))?;
    let value = serde_json::from_str(printed[begin..].trim())
        .with_context(|| format!("the JSON of {text}"))?;
    Ok(Done { value, cpu_share })
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read up to an error is all that can be shown of it.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Run time of all threads of a process, in nanoseconds.
fn run_time(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

/// A size such as `4k`, in bytes.
fn bytes(size: &str) -> Option<f64> {
    let (digits, unit) = size.strip_suffix('k').map_or((size, 1.0), |digits| (digits, 1024.0));
    Some(digits.parse::<f64>().ok()? * unit)
}

/// The first number called `name`, at any depth.
fn find(value: &Value, name: &str) -> Option<f64> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .and_then(Value::as_f64)
            .or_else(|| fields.values().find_map(|inner| find(inner, name))),
        Value::Array(items) => items.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_names_all_its_disks_and_a_single_disk_has_no_chunk() {
        let plan = |disks, poll_us| NvmePlan { disks, poll_us, two_shards: false, scraped: false };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 4420));
        let stripe = exported(&plan(Disks::Stripe, 0), address);
        assert!(stripe.contains("disks = [\"d0\", \"d1\", \"d2\", \"d3\"]\nchunk = \"64KiB\""));
        let single = exported(&plan(Disks::Ram, 50), address);
        assert!(single.contains("poll_us = 50") && !single.contains("chunk"));
        assert!(server_table("0,1", Path::new("/own")).contains("shards = [0,1]"));
    }

    #[test]
    fn two_benches_of_a_process_are_given_no_directory_in_common() {
        // As `--against` has them: the same case of both, one after the other.
        let target = std::env::temp_dir().join(format!("plateway-bench-{}", std::process::id()));
        let tree = Tree { root: target.clone(), target: target.clone(), host: String::new() };
        let bench = || Bench::new(&tree, PathBuf::new(), 0, 0).unwrap();
        let (one, other) = (bench(), bench());
        assert_ne!(one.fresh("aoe").unwrap(), other.fresh("aoe").unwrap());
        drop((one, other));
        fs::remove_dir_all(target).unwrap();
    }

    #[test]
    fn a_number_is_found_at_any_depth() {
        let value = json!({"read": [{"iops": 7.5}]});
        assert_eq!(find(&value, "iops"), Some(7.5));
        assert_eq!(find(&value, "bytes"), None);
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!(["4k", "512", "x"].map(bytes), [Some(4096.0), Some(512.0), None]);
    }
}
