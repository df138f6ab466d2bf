//! pgbench: a PostgreSQL server of the trial's own, whose tables are in the folder, and the real pgbench, which asks it
//! for transactions until they have settled.
//!
//! ```text
//!   initdb -> postgres ... -> pgbench --initialize, CHECKPOINT -> pgbench --log, followed -> tables asked what they hold
//! ```
//! What is before the last pgbench and behind it is not measured. The server is nobody's but the trial's: it listens on a
//! socket in the trial's own folder, which only its user may open. PostgreSQL does not run as root; so where root runs
//! the lab the server is somebody else in a user namespace, in which root's files are that user's, and it has
//! nobody's rights over the machine. It is in a process namespace as well, and goes with this process, all of it.
//! In: programs of Debian's package `postgresql`, or those on PATH. Out: what `lab::programs::pgbench` makes of the log. Units:
//! bytes, durations. Errors: what a program complained of; that nothing settled in time; and that the tables are not
//! as the transactions left them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::plan::Files;
use lab::programs::pgbench::{self, Running};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::process::Server;

use super::tell;
use crate::cli::LabProgramArgs;
use crate::commands::settling::Settling;

/// Where Debian has each version's programs.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Those that are needed.
const PROGRAMS: [&str; 4] = ["initdb", "postgres", "pgbench", "psql"];
/// Who the server is where root runs it.
const NOBODY: &str = "65534";
/// The number in the name of the server's socket.
const PORT: &str = "5432";
/// Where a client finds the socket: in the folder where it is started, whose own name may be longer than an address is.
const HERE: &str = "/proc/self/cwd";
/// How long the server may take until it answers.
const START_MAX: Duration = Duration::from_secs(120);
/// How long it may take to end.
const END_MAX: Duration = Duration::from_secs(10);
/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How much longer than its windows a load may take: what it wrote of its last transactions is seen late.
const SLACK: Duration = Duration::from_secs(60);

/// Where a program of PostgreSQL's is: among those of the newest version that Debian has here, or on PATH.
fn program(name: &str) -> PathBuf {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let all = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|one| one.path());
    let whole = all.filter(|path| PROGRAMS.iter().all(|one| path.join("bin").join(one).exists()));
    let newest = whole.max_by_key(|path| version(path));
    newest.map_or_else(|| name.into(), |path| path.join("bin").join(name))
}

/// What is needed, as it would be started.
pub(super) fn needed() -> Vec<String> {
    let all = PROGRAMS.into_iter().map(|name| program(name).display().to_string());
    all.chain(is_root().then(|| "unshare".to_owned())).collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes tables, has transactions done to them until that has settled, and says what came of it.
pub(super) fn run(args: &LabProgramArgs) -> miette::Result<Value> {
    let LabProgramArgs { folder, size, seed, jobs, steady, warmup, .. } = args;
    let home = args.home.as_deref().ok_or_else(|| miette::miette!("pgbench: expected --home"))?;
    let home = &std::path::absolute(home).map_err(|error| miette::miette!("--home: {error}"))?;
    let place = Place { folder, home };
    place.make_database()?;
    let mut server = place.start(*size, *jobs)?;
    place.finish(place.client("pgbench", &pgbench::make_arguments(*size)))?;
    place.ask(&mut server, "checkpoint")?;
    let time_max = *warmup + Settling::time_max(*steady) + SLACK;
    let log = home.join("transactions").display().to_string();
    let load = pgbench::run_arguments(*jobs, *seed, time_max, &log);
    let mut running = Running::new(*steady, *warmup);
    place.follow(place.client("pgbench", &load), &log, &mut running, time_max)?;
    let answer = place.ask(&mut server, pgbench::QUESTION)?;
    pgbench::check(&answer, *size, running.transactions())
        .map_err(|why| miette::miette!("{why}"))?;
    drop(server);
    let steady = running.report();
    let unsteady = "it did not become steady: another run may give other figures";
    let notes = if steady.is_steady { Vec::new() } else { vec![unsteady] };
    Ok(json!({
        "client": place.version()?,
        "files": Files::Pgbench.word(),
        "scale": pgbench::scale(*size),
        "jobs": jobs,
        "seed": seed,
        "transactions": running.transactions(),
        "steady": steady,
        "notes": notes,
    }))
}

/// Where the tables are, and where what is beside them.
struct Place<'p> {
    folder: &'p Path,
    home: &'p Path,
}

/// The server, all of whose processes go with it.
struct Postgres {
    child: Child,
    log: PathBuf,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once: what it had not written to its tables yet nobody asks for.
        let _ = self.server().map(|pid| kill_process(pid, Signal::QUIT));
        let until = Instant::now() + END_MAX;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        // It may have ended on its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Whoever is left of it has the other end of this pipe, and so the folder, until then.
        let mut rest = Vec::new();
        let _ = self.child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut rest));
    }
}

impl Postgres {
    /// The server itself: the first process of its namespace, where it has one.
    fn server(&self) -> Option<Pid> {
        let started = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{started}/task/{started}/children"));
        let first = children.ok().filter(|_| is_root());
        let first = first.and_then(|all| all.split_whitespace().next()?.parse::<i32>().ok());
        Pid::from_raw(first.unwrap_or(started as i32))
    }

    /// An error if it has ended.
    fn is_up(&mut self) -> miette::Result<()> {
        let ended = self.child.try_wait().map_err(|error| {
            miette::miette!("cannot look after the PostgreSQL server of the trial: {error}")
        })?;
        let Some(status) = ended else { return Ok(()) };
        let words = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = words.lines().rev().take(4).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        Err(miette::miette!("the PostgreSQL server of the trial ended ({status}): {last}"))
    }
}

impl Place<'_> {
    /// A program of the server's, as its user.
    fn served(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if is_root() {
            let [user, group] = ["user", "group"].map(|of| format!("--map-{of}={NOBODY}"));
            command.args(["unshare", "--user", &user, &group]);
            command.args(["--ipc", "--pid", "--fork", "--kill-child"]);
        }
        command.arg(program(name)).current_dir(self.folder);
        command
    }

    /// A program that asks the server.
    fn client(&self, name: &str, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program(name));
        command.args(["--host", HERE, "--port", PORT, "--username", "lab"]);
        command.args(args).current_dir(self.home);
        if name == "pgbench" {
            // The name of its database, of which every server has this one.
            command.arg("postgres");
        }
        command
    }

    fn make_database(&self) -> miette::Result<()> {
        let mut command = self.served("initdb");
        command.args(["--pgdata", "data", "--auth", "trust", "--username", "lab"]);
        command.args(["--no-locale", "--encoding", "UTF8", "--no-instructions"]);
        self.finish(command)
    }

    /// Runs a program to its end.
    fn finish(&self, command: Command) -> miette::Result<()> {
        super::follow(command, &[], |_, _| Ok(()))
    }

    /// Starts the server, and waits until it answers.
    fn start(&self, size: u64, clients: u32) -> miette::Result<Postgres> {
        let log = self.home.join("postgres.log");
        let failed = |doing: &str, error: std::io::Error| {
            miette::miette!("cannot {doing} the PostgreSQL server of the trial: {error}")
        };
        let file = File::create(&log).map_err(|error| failed("log for", error))?;
        // Its own folder is that of the tables, and the file system may have no sockets: so it is handed the other one.
        let home = File::open(self.home).map_err(|error| failed("open the folder of", error))?;
        rustix::io::fcntl_setfd(&home, rustix::io::FdFlags::empty())
            .map_err(|error| failed("hand a folder to", error.into()))?;
        let socket = format!("/proc/self/fd/{}", home.as_raw_fd());
        let mut command = self.served("postgres");
        command.args(["-D", "data"]).args(pgbench::server_settings(size, clients, &socket));
        command.args(["-c", "unix_socket_permissions=0700"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let child = command.spawn().map_err(|error| failed("start", error))?;
        let mut server = Postgres { child, log };
        let until = Instant::now() + START_MAX;
        while let Err(why) = self.ask(&mut server, "select 1") {
            if Instant::now() >= until {
                return Err(why);
            }
            std::thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// Asks the server; its answer, values with `|` between them.
    fn ask(&self, server: &mut Postgres, question: &str) -> miette::Result<String> {
        server.is_up()?;
        let args =
            ["--no-psqlrc", "--no-align", "--tuples-only", "--command", question, "postgres"];
        let mut answer = Vec::new();
        super::follow(self.client("psql", &args), &[], |bytes, _| {
            answer.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// How pgbench calls itself.
    fn version(&self) -> miette::Result<String> {
        let mut said = Vec::new();
        let mut command = Command::new(program("pgbench"));
        command.arg("--version");
        super::follow(command, &[], |bytes, _| {
            said.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    /// Reads what a load writes to its log, and ends it when it has settled.
    fn follow(
        &self,
        command: Command,
        log: &str,
        running: &mut Running,
        time_max: Duration,
    ) -> miette::Result<()> {
        let words = self.home.join("pgbench.log");
        let mut load = Server::start(command, &words).map_err(tell)?;
        let path = format!("{log}.{}", load.pid());
        let until = Instant::now() + time_max;
        let (mut file, mut bytes) = (None, Vec::new());
        while !running.is_over() {
            load.is_up("pgbench").map_err(tell)?;
            if Instant::now() >= until {
                let seen = running.transactions();
                return Err(miette::miette!(
                    "pgbench: expected transactions enough to judge within {time_max:?}, seen {seen}"
                ));
            }
            std::thread::sleep(LOOK);
            read_on(&path, &mut file, &mut bytes)
                .map_err(|error| miette::miette!("cannot read {path}: {error}"))?;
            running.handle_log(&bytes).map_err(|why| miette::miette!("{why}"))?;
            bytes.clear();
        }
        Ok(())
    }
}

/// Reads what was written to a file since, which is there once something was.
fn read_on(path: &str, file: &mut Option<File>, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    if file.is_none() {
        match File::open(path) {
            Ok(opened) => *file = Some(opened),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    file.as_mut().map_or(Ok(()), |file| file.read_to_end(bytes).map(|_| ()))
}
