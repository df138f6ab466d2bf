//! A server as a process of its own, in a directory of its own, on a port that the system chooses.
//!
//! Nothing here waits by the clock: a server is ready when it says so, and what is awaited is asked
//! for until it is there. The limit only ends a test that hangs.
// Each test program uses a part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// After this a test is taken to hang.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// The program.
pub(crate) fn plateway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plateway"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    command
}

/// A process that another one started, by the words it was started with.
pub(crate) fn child_of(parent: &Child, is_it: impl Fn(&[&str]) -> bool) -> Option<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", parent.id())).ok()?;
    let told = threads.map_while(Result::ok);
    let told = told.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children = told.collect::<String>();
    children.split_whitespace().find_map(|pid| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        is_it(&words.split('\0').collect::<Vec<_>>()).then(|| Pid::from_raw(pid.parse().ok()?))?
    })
}

/// How many bytes of a file the page cache holds.
pub(crate) fn resident(file: &Path) -> u64 {
    let mut fincore = Command::new("fincore");
    fincore.args(["--bytes", "--noheadings", "--raw", "--output", "RES"]).arg(file);
    let said = fincore.output().expect("fincore runs (Debian package util-linux-extra)");
    text(&said.stdout).trim().parse().expect("bytes")
}

/// Whether disks can be attached here as block devices; told where not.
pub(crate) fn can_attach() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let control = fs::metadata("/dev/loop-control");
    let has_loop = control.is_ok_and(|control| control.file_type().is_char_device());
    let can = is_root && Path::new("/dev/fuse").exists() && has_loop;
    if !can || !has("mkfs.ext4") || !has("losetup") {
        testkit::skipped("no block device can be made: root, FUSE, loop devices and e2fsprogs");
        return false;
    }
    true
}

/// The program in a mount namespace of its own, where `mounts` was done before, a line of shell in
/// which `$0` is `folder`. Says so where there is none.
pub(crate) fn mounted(mounts: &str, folder: &Path) -> Option<Command> {
    let command = |program: &OsStr| {
        let mut command = Command::new("unshare");
        let script = format!("{mounts} && exec \"$@\"");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
        command.arg(folder).arg(program).stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    };
    if !command("true".as_ref()).stderr(Stdio::null()).status().is_ok_and(|s| s.success()) {
        testkit::skipped("no mount namespace is to be had");
        return None;
    }
    Some(command(plateway().get_program()))
}

/// A server that runs; with this value it is told to end, and must do so with code 0.
pub(crate) struct Server {
    child: Child,
    directory: PathBuf,
    /// The line `ready: nvme ADDRESS`, without its beginning.
    pub(crate) address: String,
    control: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `plateway serve` with these arguments beside a control socket, a state directory and,
    /// if they name none, a small budget below `directory`. An error is what it said before it
    /// ended.
    pub(crate) fn try_start(directory: &Path, name: &str, args: &[&str]) -> Result<Server, String> {
        Self::try_start_by(plateway(), directory, name, args)
    }

    /// As [`try_start`](Self::try_start), with the program started by `command`, which may put it
    /// elsewhere.
    pub(crate) fn try_start_by(
        mut command: Command,
        directory: &Path,
        name: &str,
        args: &[&str],
    ) -> Result<Server, String> {
        let control = directory.join(format!("{name}.sock"));
        let log = directory.join(format!("{name}.log"));
        let budget: &[&str] = if args.contains(&"--memory") { &[] } else { &["--memory", "64MiB"] };
        let mut child = command
            .current_dir(directory)
            .arg("serve")
            .args(args)
            .args(budget)
            .arg("--state")
            .arg(directory.join("state"))
            .arg("--control")
            .arg(&control)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let ready = lines.find_map(|line| {
            line.ok()?
                .strip_prefix("ready: ")
                .map(|what| what.trim_start_matches("nvme ").to_owned())
        });
        let Some(address) = ready else {
            child.wait().expect("it ended");
            return Err(flat(&fs::read(&log).expect("a log")));
        };
        Ok(Server { child, directory: directory.to_owned(), address, control, log })
    }

    /// As [`try_start`](Self::try_start), of a server that must start.
    pub(crate) fn start(directory: &Path, name: &str, args: &[&str]) -> Server {
        Self::try_start(directory, name, args).unwrap_or_else(|log| panic!("{name}: {log}"))
    }

    /// A server of a configuration, which is written into its directory.
    pub(crate) fn configured(directory: &Path, config: &str) -> Server {
        Self::try_configured(directory, config, &[]).unwrap_or_else(|log| panic!("{log}"))
    }

    /// As [`configured`](Self::configured), with more arguments.
    pub(crate) fn try_configured(
        directory: &Path,
        config: &str,
        args: &[&str],
    ) -> Result<Server, String> {
        let path = write(directory, config);
        Self::try_start(directory, "a", &[&["--config", path.as_str()], args].concat())
    }

    /// A server of one disk in the quick way.
    pub(crate) fn of(directory: &Path, name: &str, disk: &str) -> Server {
        Self::start(directory, name, &[disk, "--nvme", "127.0.0.1:0", "--hosts", "any"])
    }

    /// `plateway` with these arguments and this server's control socket.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        plateway().args(args).arg("--control").arg(&self.control).output().expect("it runs")
    }

    /// The standard output of a command that must succeed.
    pub(crate) fn ask(&self, args: &[&str]) -> String {
        let output = self.command(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stderr), self.log());
        text(&output.stdout)
    }

    /// The standard error of a command that must fail.
    pub(crate) fn refuse(&self, args: &[&str]) -> String {
        let output = self.command(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stdout));
        flat(&output.stderr)
    }

    /// `apply` of a configuration, which must succeed.
    pub(crate) fn apply(&self, config: &str) -> String {
        self.ask(&["apply", &write(&self.directory, config)])
    }

    /// As [`apply`](Self::apply), whatever it takes away from whom.
    pub(crate) fn apply_anyway(&self, config: &str) -> String {
        self.ask(&["apply", &write(&self.directory, config), "--yes", "--allow-empty"])
    }

    /// `apply` of a configuration, which must fail.
    pub(crate) fn refuse_apply(&self, config: &str) -> String {
        self.refuse(&["apply", &write(&self.directory, config)])
    }

    /// `check` of a configuration, which must succeed.
    pub(crate) fn check(&self, config: &str) -> String {
        self.ask(&["check", &write(&self.directory, config)])
    }

    /// `status --json`.
    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).expect("JSON")
    }

    /// Asks for the status until `wanted` is there.
    /// Where its first listener of this key listens.
    pub(crate) fn listens(&self, key: &str) -> String {
        let status = self.status();
        let listeners = status["listeners"].as_array().expect("a list");
        let one = listeners.iter().find(|one| one.get(key).is_some()).expect("it is there");
        one["addresses"][0].as_str().expect("an address").to_owned()
    }

    pub(crate) fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + HANG;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < until, "{what} does not come: {status:#}");
        }
    }

    /// Reads the log until it says this.
    pub(crate) fn wait_for_log(&self, wanted: &str) -> String {
        let until = Instant::now() + HANG;
        loop {
            let log = self.log();
            if log.contains(wanted) {
                return log;
            }
            assert!(Instant::now() < until, "{wanted:?} is not logged: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The identity of the first volume.
    pub(crate) fn uuid(&self) -> String {
        self.status()["volumes"][0]["uuid"].as_str().expect("a volume").to_owned()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// SIGTERM, which must end it with code 0.
    pub(crate) fn stop(self) {
        drop(self);
    }

    /// A signal, which must end it with code 0.
    pub(crate) fn stop_by(mut self, signal: Signal) {
        self.end(signal);
    }

    /// Waits for the end of one that was told to end, which must be with code 0.
    pub(crate) fn wait_for_end(mut self) {
        self.has_ended();
    }

    /// Waits for the end of one that was told to end and cannot do so well; returns its log.
    pub(crate) fn wait_for_failure(mut self) -> String {
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(1), "{}", self.log());
        self.log()
    }

    /// Ends it in whatever it does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.has_ended();
    }

    fn has_ended(&mut self) {
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{}", self.log());
        assert!(!self.control.exists(), "the control socket is left behind");
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It may have ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        } else if self.child.try_wait().expect("it was started").is_none() {
            self.end(Signal::TERM);
        }
    }
}

/// A host that is connected and reads until it is dropped: `plateway bench` as a process of its
/// own.
pub(crate) struct Host(Child);

impl Host {
    /// Reads the first namespace of volume `v0`'s subsystem.
    pub(crate) fn reads(server: &Server, subsystem: &str) -> Host {
        let uri = format!("nvme+tcp://{}/{subsystem}/1", server.address);
        let mut command = plateway();
        command.args(["bench", &uri, "--rw", "randread", "--iodepth", "2", "--time", "3600"]);
        command.args(["--warmup", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        Host(command.spawn().expect("bench starts"))
    }

    /// Whether it still runs; what it said if not.
    pub(crate) fn check(&mut self) {
        if let Some(status) = self.0.try_wait().expect("it was started") {
            let mut said = String::new();
            let _ = self.0.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
            panic!("the host ended with {status}: {said}");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a person reads: words one after the other, whatever the report's frame and line breaks.
pub(crate) fn flat(bytes: &[u8]) -> String {
    text(bytes).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A configuration: disks as (name, URI), volumes as (name, rest of the table), all exported under
/// their names.
pub(crate) fn configuration(disks: &[(&str, &str)], volumes: &[(&str, &str)]) -> String {
    let mut config = String::from("[[listener]]\nnvme = \"127.0.0.1:0\"\n");
    for (name, uri) in disks {
        config += &format!("[[disk]]\nname = \"{name}\"\nuri = \"{uri}\"\n");
    }
    for (name, rest) in volumes {
        config += &format!("[[volume]]\nname = \"{name}\"\n{rest}\n");
        config += &format!(
            "[[export]]\nvolume = \"{name}\"\nnvme = {{ subsystem = \"nqn.2026-11.net.plateway:{name}\", nsid = 1, hosts = \"any\" }}\n"
        );
    }
    config
}

/// As [`configuration`], of a server of its own: control socket and state lie in `directory`.
pub(crate) fn own_configuration(
    directory: &Path,
    disks: &[(&str, &str)],
    volumes: &[(&str, &str)],
) -> String {
    let (control, state) = (directory.join("own.sock"), directory.join("state"));
    let own =
        format!("[server]\ncontrol = \"{}\"\nstate = \"{}\"\n", control.display(), state.display());
    own + &configuration(disks, volumes)
}

/// Writes a configuration; returns its path.
pub(crate) fn write(directory: &Path, text: &str) -> String {
    let path = directory.join("plateway.toml");
    fs::write(&path, text).expect("a configuration");
    path.display().to_string()
}
