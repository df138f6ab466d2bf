//! The processes of a benchmark: servers that run, loads with their time limits. How a server is
//! configured stands in [`super::plan`], [`super::iscsi`], [`super::aoe`] and [`super::mpls`], what the loads are in [`super::load`].
//!
//! Servers end with the bench: by SIGKILL to their own process when dropped, and by the
//! parent-death signal (`setpriv`) should the bench itself be killed. Every load has a time limit.
//! CPU time of a load comes from `/proc/PID/task/*/schedstat`, looked at twice in mid-run. Errors
//! name the program, and carry what it wrote to standard error.

use std::cell::{OnceCell, RefCell};
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::lan::Lan;
use super::mpls::roads::{self, Road};
use super::plan::{self, Plan};
use super::{aoe, iscsi, mpls};
use crate::tree::{Tree, words};

/// How long a server may take to listen.
pub(super) const START: Duration = Duration::from_secs(30);
/// How often metrics are read where they are.
const SCRAPE: Duration = Duration::from_secs(1);
/// How much longer than its window a load may take.
const SLACK: Duration = Duration::from_secs(150);

/// A server that runs.
pub(super) struct Server {
    pub(super) child: Child,
    pub(super) place: Place,
    pub(super) scraper: Option<Scraper>,
    pub(super) cpus: String,
    /// CPUs of its load, where these are not the usual one.
    pub(super) load_cpus: Option<String>,
    log: PathBuf,
    /// Whether all that its CPUs do counts, and not its threads alone.
    pub(super) counts_core: bool,
    /// From its start to its first answer.
    pub(super) start_seconds: f64,
}

/// Where a server is found.
pub(super) enum Place {
    Nvme {
        address: SocketAddr,
        subsystem: &'static str,
    },
    Iscsi {
        address: SocketAddr,
        target: &'static str,
        luns: String,
    },
    Lan(Lan),
    /// Between two links, whose other ends are the load's; frames are sent to this station.
    Router {
        lan: Lan,
        to: &'static str,
        /// How the generator makes them.
        frames: &'static [&'static str],
    },
    /// At one end of a network, whose other end is the load's.
    Road(Road),
    /// A router in somebody's network.
    OnRoad,
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
    pub(super) dir: PathBuf,
    elsewhere: RefCell<Vec<PathBuf>>,
    /// The file that is exported last.
    pub(super) file: RefCell<Option<PathBuf>>,
    /// Whether `plateway` knows the key `poll`; empty until it was asked.
    pub(super) knows_poll: OnceCell<bool>,
    /// Whether it has the command `route`; empty until it was asked.
    pub(super) knows_route: OnceCell<bool>,
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
            file: RefCell::new(None),
            knows_poll: OnceCell::new(),
            knows_route: OnceCell::new(),
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
    pub(super) fn command(&self, cpus: &str, program: &Path) -> Command {
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
            Plan::Nvme(plan) => plan::serve(self, plan),
            Plan::Iscsi(plan) => iscsi::serve(self, plan),
            Plan::Aoe(plan) => aoe::serve(self, plan),
            Plan::Mpls(plan) => mpls::serve(self, plan),
            Plan::Road(plan) => roads::serve(self, plan),
        }
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
            load_cpus: None,
            log,
            counts_core: false,
            start_seconds: f64::NAN,
        })
    }

    /// Waits until it listens.
    pub(super) fn listens(&mut self, address: SocketAddr, text: &str) -> Result<()> {
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            self.is_up(text)?;
            ensure!(Instant::now() < deadline, "{text} does not listen: {}", self.words());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// An error if it has ended.
    pub(super) fn is_up(&mut self, text: &str) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{text} ended with {status}: {}", self.words()),
            None => Ok(()),
        }
    }

    /// Whether who is to read its metrics still does.
    pub(super) fn is_scraped(&self) -> bool {
        self.scraper.as_ref().is_none_or(|scraper| !scraper.thread.is_finished())
    }

    /// Its LAN, if it is on one.
    pub(super) fn lan(&self) -> Option<&Lan> {
        match &self.place {
            Place::Lan(lan) => Some(lan),
            Place::Nvme { .. }
            | Place::Iscsi { .. }
            | Place::Router { .. }
            | Place::Road(_)
            | Place::OnRoad => None,
        }
    }

    /// The network at whose end it is.
    pub(super) fn road(&self) -> Result<&Road> {
        match &self.place {
            Place::Road(road) => Ok(road),
            _ => bail!("the server is at no end of a network"),
        }
    }

    /// An error of a load with what the server said.
    pub(super) fn blame(&self, error: anyhow::Error) -> anyhow::Error {
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
pub(super) struct Scraper {
    _stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Scraper {
    pub(super) fn start(address: SocketAddr) -> Self {
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

/// What a load printed, the share of a CPU that it used in mid-run, and each CPU's idle share then.
pub(super) struct Done {
    pub(super) value: Value,
    pub(super) cpu_share: f64,
    pub(super) idle: Vec<f64>,
}

/// Runs a load to its end, or to its time limit.
pub(super) fn output(command: Command, seconds: f64) -> Result<Done> {
    finish(command, seconds, false)
}

/// The same of a load that may fail, if it prints its JSON all the same: what failed stands there.
pub(super) fn output_of_failed(command: Command, seconds: f64) -> Result<Done> {
    finish(command, seconds, true)
}

fn finish(mut command: Command, seconds: f64, may_fail: bool) -> Result<Done> {
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
    let mut looks: Vec<(Instant, u64, Vec<u64>)> = Vec::new();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let spent = start.elapsed();
        let due = [first, second].get(looks.len()).copied();
        if due.is_some_and(|due| spent.as_secs_f64() >= due) {
            looks.push((Instant::now(), run_time(child.id()), idle_ticks()));
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
    let begin = printed.find('{');
    ensure!(
        status.success() || may_fail && begin.is_some(),
        "{} ({status} of: {text})",
        errors.trim().trim_start_matches("Error: ").replace('\n', " ")
    );
    let (cpu_share, idle) = match &looks[..] {
        [(from, a, idle_a), (to, b, idle_b)] => {
            let time = (*to - *from).as_nanos() as f64;
            let share = |(a, b): (&u64, &u64)| b.saturating_sub(*a) as f64 * TICK_NS / time;
            (b.saturating_sub(*a) as f64 / time, idle_a.iter().zip(idle_b).map(share).collect())
        }
        _ => (f64::NAN, Vec::new()),
    };
    let begin = begin.with_context(|| format!("{text} prints no JSON"))?;
    let value = serde_json::from_str(printed[begin..].trim())
        .with_context(|| format!("the JSON of {text}"))?;
    Ok(Done { value, cpu_share, idle })
}

/// In nanoseconds, what `/proc/stat` counts (USER_HZ is 100 everywhere).
const TICK_NS: f64 = 1e7;

/// How long each CPU was idle so far, in ticks.
fn idle_ticks() -> Vec<u64> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    // Idle, and idle while a disk works: the fourth and the fifth behind the name.
    let idle = |line: &str| {
        let columns = line.split_whitespace().skip(4).take(2);
        columns.filter_map(|column| column.parse::<u64>().ok()).sum()
    };
    cpus.map(idle).collect()
}

pub(super) fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read up to an error is all that can be shown of it.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Run time of all threads of a process, in nanoseconds.
pub(super) fn run_time(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
