//! pgbench: a PostgreSQL server of the trial's own, whose tables are in the folder, and the real pgbench, which asks it
//! for transactions until they have settled.
//!
//! ```text
//!   initdb -> postgres ... -> pgbench --initialize, CHECKPOINT -> pgbench --log, followed -> tables asked what they hold
//! ```
//! What is before the last pgbench and behind it is not measured. The server is nobody's but the trial's: it listens on a
//! socket in the trial's own folder, which only its user may open, and nothing that the environment says of PostgreSQL
//! reaches it or its clients: it would be another load. PostgreSQL does not run as root; so where root runs the lab the
//! server is called somebody else in a user namespace. There root's files are its own, as outside, and of what else root
//! may do it may nothing. It is in a process namespace as well, and goes with this process, all of it.
//! In: programs of Debian's package `postgresql`, or those on PATH. Out: what `lab::programs::pgbench` makes of the log. Units:
//! bytes, durations. Errors: what a program complained of; that nothing settled in time; and that the tables are not
//! as the transactions left them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::plan::Files;
use lab::programs::pgbench::{self, Running};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::process::Server;

use super::tell;
use crate::cli::LabProgramArgs;
use crate::commands::lab::growing::Growing;
use crate::commands::settling::{Settling, UNSTEADY};

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
/// What the server is called in an error.
const CALLED: &str = "the trial's PostgreSQL server";
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
    let server = place.start(*size, *jobs)?;
    place.finish(place.client("pgbench", &pgbench::make_arguments(*size)))?;
    place.ask("checkpoint")?;
    let time_max = *warmup + Settling::time_max(*steady) + SLACK;
    let log = home.join("transactions").display().to_string();
    let load = pgbench::run_arguments(*jobs, *seed, time_max, &log);
    let mut running = Running::new(*steady, *warmup);
    place.follow(place.client("pgbench", &load), &log, &mut running, time_max)?;
    let answer = place.ask(pgbench::QUESTION)?;
    pgbench::check(&answer, *size, running.transactions())
        .map_err(|why| miette::miette!("{why}"))?;
    drop(server);
    let steady = running.report();
    let notes = if steady.is_steady { Vec::new() } else { vec![UNSTEADY] };
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
struct Postgres(Server);

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once: what it had not written to its tables yet nobody asks for.
        let _ = self.first().map(|pid| kill_process(pid, Signal::QUIT));
        // Who waits for a disk that hangs is killed.
        let _ = self.0.ends(CALLED, END_MAX);
    }
}

impl Postgres {
    /// The first process of its namespace, where it has one, which all others of it wait for.
    fn first(&self) -> Option<Pid> {
        let started = self.0.pid();
        let children = std::fs::read_to_string(format!("/proc/{started}/task/{started}/children"));
        let first = children.ok().filter(|_| is_root());
        let first = first.and_then(|all| all.split_whitespace().next()?.parse::<i32>().ok());
        Pid::from_raw(first.unwrap_or(started as i32))
    }
}

/// A program without what the environment says of PostgreSQL.
fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        if key.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(key);
        }
    }
    command
}

impl Place<'_> {
    /// A program of the server's, as its user.
    fn served(&self, name: &str) -> Command {
        let mut command = bare("setpriv");
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
        let mut command = bare("setpriv");
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
        let failed = |doing: &str, error: std::io::Error| {
            miette::miette!("cannot {doing} {CALLED}: {error}")
        };
        // Its own folder is that of the tables, and the file system may have no sockets: so it is handed the other one.
        let home = File::open(self.home).map_err(|error| failed("open the folder of", error))?;
        rustix::io::fcntl_setfd(&home, rustix::io::FdFlags::empty())
            .map_err(|error| failed("hand a folder to", error.into()))?;
        let socket = format!("/proc/self/fd/{}", home.as_raw_fd());
        let mut command = self.served("postgres");
        command.args(["-D", "data"]).args(pgbench::server_settings(size, clients, &socket));
        command.args(["-c", "unix_socket_permissions=0700"]);
        command.stdin(Stdio::null());
        let log = self.home.join("postgres.log");
        let server = Postgres(Server::start(command, &log).map_err(tell)?);
        let until = Instant::now() + START_MAX;
        while let Err(why) = self.ask("select 1") {
            server.0.is_up(CALLED).map_err(tell)?;
            if Instant::now() >= until {
                return Err(why);
            }
            std::thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// Asks the server; its answer, values with `|` between them.
    fn ask(&self, question: &str) -> miette::Result<String> {
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
        let load = Server::start(command, &words).map_err(tell)?;
        let mut log = Growing::new(format!("{log}.{}", load.pid()).into());
        let until = Instant::now() + time_max;
        while !running.is_over() {
            load.is_up("pgbench").map_err(tell)?;
            if Instant::now() >= until {
                let seen = running.transactions();
                return Err(miette::miette!(
                    "pgbench: expected transactions enough to judge within {time_max:?}, seen {seen}"
                ));
            }
            std::thread::sleep(LOOK);
            let bytes = log.read().map_err(|why| miette::miette!("{why}"))?;
            running.handle_log(&bytes).map_err(|why| miette::miette!("{why}"))?;
        }
        Ok(())
    }
}
