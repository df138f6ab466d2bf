//! Processes on some CPUs: servers that run, and whatever else must not outlive us.
//!
//! A program is started by `setpriv`, which has it killed when the thread that started it ends,
//! also by a kill of our own process; by a shell, where it is to be in a control group; by
//! `ip netns exec`, where it is to be in a namespace; and by `taskset`. Each becomes the next, so that the child is the program itself. A server is killed
//! when it is dropped, and writes its standard error to a file, whose last lines stand in errors.

use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::cpu;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::namespaces::Namespace;
use crate::tool::not_started;

/// How often a server is asked whether it listens, and a load whether it has ended.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// Lines of a log that stand in an error.
const LAST_LINES: usize = 5;

/// A program on the given CPUs (as in `0,2-3`), in a namespace if one is named, that does not
/// outlive the thread which starts it.
pub fn command(at: Option<&Namespace>, cpus: &str, program: &Path) -> Command {
    starting(None, at.map(Namespace::way).unwrap_or_default(), cpus, program)
}

/// The same, in a control group if one is named, and in a namespace with the mounts of this process: `ip
/// netns exec` makes copies of them, by which a file system stays busy that is mounted here.
pub fn command_in(
    group: Option<&Group>,
    at: Option<&Namespace>,
    cpus: &str,
    program: &Path,
) -> Command {
    starting(group, at.map(Namespace::way_with_mounts).unwrap_or_default(), cpus, program)
}

/// A program behind what becomes it: in a group, by a way, on CPUs.
fn starting(group: Option<&Group>, way: Vec<String>, cpus: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(group) = group {
        command.args(group.entry());
    }
    command.args(way);
    command.args(["taskset", "--cpu-list", cpus]).arg(program).stdin(Stdio::null());
    // An error is one line; a backtrace would bury it.
    command.env_remove("RUST_BACKTRACE");
    command
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended on its own; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts it; what it writes to standard error goes to a file, which is made. What is typed at the
    /// terminal ends us and not it: who still needs it ends first.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
        let file = fs::File::create(log)
            .map_err(|source| Error::System { doing: format!("make {}", log.display()), source })?;
        let child = spawn(command.stdout(Stdio::null()).stderr(file))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends on its own; an error if it does not end well, or not in time.
    pub fn ends(&self, called: &str, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            match self.is_up(called) {
                Err(Error::Ended { status, .. }) if status.success() => return Ok(()),
                Err(error) => return Err(error),
                Ok(()) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Ok(()) => {
                    return Err(Error::Late { command: called.to_owned(), limit: within });
                }
            }
        }
    }

    /// Run time of all its threads, in nanoseconds; 0 once it has ended.
    pub fn run_time(&self) -> u64 {
        match how_it_ended(&self.child) {
            Ok(None) => cpu::run_time(self.pid()),
            _ => 0,
        }
    }

    /// Waits until it listens at an address of TCP; `called` is its name in an error.
    pub fn listens(&self, address: SocketAddr, called: &str, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while TcpStream::connect(address).is_err() {
            self.is_up(called)?;
            if Instant::now() >= deadline {
                return Err(Error::Silent { called: called.to_owned(), words: self.words() });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// An error if it has ended.
    pub fn is_up(&self, called: &str) -> Result<()> {
        let ended = how_it_ended(&self.child)
            .map_err(|source| Error::System { doing: format!("look after {called}"), source })?;
        let Some(status) = ended else { return Ok(()) };
        Err(Error::Ended { called: called.to_owned(), status, words: self.words() })
    }

    /// The end of what it wrote to standard error, on one line.
    pub fn words(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&bytes))
    }
}

/// How a child has ended, if it has; its number stays its own until somebody waits for it.
pub(crate) fn how_it_ended(child: &Child) -> io::Result<Option<ExitStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(Pid::from_child(child)), options)?;
    // As `wait` has it: the code in the second byte, or the signal in the first.
    let status = |ended: WaitIdStatus| match ended.terminating_signal() {
        Some(signal) => ExitStatus::from_raw(signal),
        None => ExitStatus::from_raw(ended.exit_status().unwrap_or_default() << 8),
    };
    Ok(ended.map(status))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
}

/// Starts a command, or says which program is missing.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| not_started(&command.get_program().to_string_lossy(), error))
}

/// Reads all of a pipe on a thread of its own.
pub fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read up to an error is all that can be shown of it.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Only guards against hanging.
    const HANG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = command(None, "0", Path::new("sh"));
        command.args(["-c", script]);
        command
    }

    fn ended(server: &Server) -> Error {
        let end = Instant::now() + HANG;
        loop {
            if let Err(error) = server.is_up("it") {
                return error;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_server_that_ends_is_told_with_its_last_lines() {
        let home = tempfile::tempdir().unwrap();
        let script = "for line in 1 2 3 4 5 6 7; do echo $line >&2; done; exit 3";
        let server = Server::start(shell(script), &home.path().join("log")).unwrap();
        let error = ended(&server).to_string();
        assert_eq!(error, "it ended with exit status: 3: 3 | 4 | 5 | 6 | 7");
        assert_eq!(server.run_time(), 0);
    }

    #[test]
    fn a_server_ends_with_its_value_and_was_the_program_itself() {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("log");
        let server = Server::start(shell("exec sleep 600"), &log).unwrap();
        let pid = server.pid();
        let name = || fs::read_to_string(format!("/proc/{pid}/comm"));
        let end = Instant::now() + HANG;
        while name().unwrap() != "sleep\n" {
            assert!(Instant::now() < end, "it is {:?}", name());
            std::thread::sleep(LOOK);
        }
        server.is_up("it").unwrap();
        drop(server);
        assert!(name().is_err());
    }

    #[test]
    fn who_listens_is_found_and_who_does_not_is_told() {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("log");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::start(shell("echo words >&2; exec sleep 600"), &log).unwrap();
        server.listens(address, "it", HANG).unwrap();
        while server.words().is_empty() {
            std::thread::sleep(LOOK);
        }
        drop(listener);
        // A program that another test starts may have it for a moment.
        while TcpStream::connect(address).is_ok() {
            std::thread::sleep(LOOK);
        }
        let error = server.listens(address, "it", Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "it does not listen: words");
    }

    #[test]
    fn a_program_in_a_namespace_is_there_and_on_its_cpu() {
        let Some(network) = crate::tests::pair() else { return };
        let mut command = command(Some(network.at("l")), "0", Path::new("sh"));
        command.args(["-c", "ip -brief link show left; taskset --cpu-list --pid $$"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("left@") && said.trim_end().ends_with(": 0"), "{output:?}");
    }
}
