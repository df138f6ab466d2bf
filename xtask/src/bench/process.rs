//! The processes of a benchmark: servers with their places, loads with the JSON that they print. How
//! a server is configured stands in [`super::plan`], [`super::iscsi`], [`super::aoe`] and
//! [`super::mpls`], what the loads are in [`super::load`].
//!
//! How they are run, pinned and ended is the testbed's ([`testbed::process`], [`testbed::load`]).
//! Errors name the program, and carry what it wrote to standard error.

use std::cell::OnceCell;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use testbed::{Namespace, load, process};

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
    /// It ends before its place does.
    pub(super) process: testbed::Server,
    pub(super) place: Place,
    pub(super) scraper: Option<Scraper>,
    pub(super) cpus: String,
    /// CPUs of its load, where these are not the usual one.
    pub(super) load_cpus: Option<String>,
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

/// Where the programs are, and a directory for what they leave.
pub(super) struct Bench {
    root: PathBuf,
    pub(super) yardstick: PathBuf,
    pub(super) plateway: PathBuf,
    pub(super) dir: PathBuf,
    /// The file on which servers and fio work; empty until one does.
    pub(super) file: OnceCell<PathBuf>,
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
            file: OnceCell::new(),
            knows_poll: OnceCell::new(),
            knows_route: OnceCell::new(),
            target_cpu,
            load_cpu,
        })
    }

    /// The repository.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A new directory, which goes with the bench. No other bench of the process is given it.
    pub(super) fn fresh(&self, name: &str) -> Result<PathBuf> {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("{name}-{number}"));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// A program on the given CPUs that does not outlive the bench.
    pub(super) fn command(&self, cpus: &str, program: &Path) -> Command {
        self.command_in(None, cpus, program)
    }

    /// The same in a namespace.
    pub(super) fn command_at(&self, at: &Namespace, cpus: &str, program: &Path) -> Command {
        self.command_in(Some(at), cpus, program)
    }

    fn command_in(&self, at: Option<&Namespace>, cpus: &str, program: &Path) -> Command {
        let mut command = process::command(at, cpus, program);
        command.current_dir(&self.root);
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
    pub(super) fn start(command: Command, place: Place, cpus: String, log: &Path) -> Result<Self> {
        let text = words(&command);
        let process =
            testbed::Server::start(command, log).with_context(|| format!("cannot start {text}"))?;
        Ok(Self {
            process,
            place,
            scraper: None,
            cpus,
            load_cpus: None,
            counts_core: false,
            start_seconds: f64::NAN,
        })
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
        match self.process.words() {
            words if words.is_empty() => error,
            words => error.context(format!("the server says: {words}")),
        }
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

fn finish(command: Command, seconds: f64, may_fail: bool) -> Result<Done> {
    let text = words(&command);
    let done = load::run(command, seconds, SLACK)?;
    let begin = done.printed.find('{');
    ensure!(
        done.status.success() || may_fail && begin.is_some(),
        "{} ({} of: {text})",
        done.errors.trim().trim_start_matches("Error: ").replace('\n', " "),
        done.status
    );
    let begin = begin.with_context(|| format!("{text} prints no JSON"))?;
    let value = serde_json::from_str(done.printed[begin..].trim())
        .with_context(|| format!("the JSON of {text}"))?;
    Ok(Done { value, cpu_share: done.cpu_share, idle: done.idle })
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
