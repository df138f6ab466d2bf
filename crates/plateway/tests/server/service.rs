//! What a service manager is told, and what shells and `man` are.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::process::Signal;

use crate::common::{HANG, Server, plateway, text};

/// A service manager's socket.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn new(directory: &Path) -> Manager {
        let socket = UnixDatagram::bind(directory.join("notify")).expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a limit");
        Manager { socket }
    }

    fn serve(&self, directory: &Path, watchdog_us: Option<u64>) -> Server {
        let mut command = plateway();
        command.env("NOTIFY_SOCKET", directory.join("notify"));
        if let Some(limit) = watchdog_us {
            command.env("WATCHDOG_USEC", limit.to_string());
        }
        let args = ["ram:1MiB", "--nvme", "127.0.0.1:0", "--hosts", "any"];
        Server::try_start_by(command, directory, "a", &args).unwrap_or_else(|log| panic!("{log}"))
    }

    /// What it is told next.
    fn told(&self) -> String {
        let mut bytes = [0; 512];
        let length = self.socket.recv(&mut bytes).expect("a message in time");
        text(&bytes[..length])
    }
}

#[test]
fn a_service_manager_is_told_of_readiness_reloads_and_the_end() {
    let home = tempfile::tempdir().unwrap();
    let manager = Manager::new(home.path());
    let server = manager.serve(home.path(), None);
    assert_eq!(manager.told(), "READY=1\nSTATUS=serving 1 export\n");
    server.signal(Signal::HUP);
    let reloading = manager.told();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.told(), "READY=1\nSTATUS=serving 1 export\n");
    server.stop();
    assert_eq!(manager.told(), "STOPPING=1\nSTATUS=stopping\n");
}

#[test]
fn a_service_manager_that_reads_nothing_holds_up_nothing() {
    let home = tempfile::tempdir().unwrap();
    let manager = Manager::new(home.path());
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"FDSTORE=1", home.path().join("notify")).is_ok() {}
    let server = manager.serve(home.path(), Some(40_000));
    server.signal(Signal::HUP);
    server.ask(&["status"]);
    assert!(server.ask(&["disks", "list"]).contains("ram:1MiB"));
    server.stop();
}

#[test]
fn a_watchdog_is_fed_while_the_shards_turn() {
    let home = tempfile::tempdir().unwrap();
    let manager = Manager::new(home.path());
    let server = manager.serve(home.path(), Some(40_000));
    assert!(manager.told().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(manager.told(), "WATCHDOG=1\n");
    }
    server.stop();
    while manager.told() == "WATCHDOG=1\n" {}
}

#[test]
fn completions_and_pages_name_every_command() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = plateway().args(["completions", shell]).output().expect("it runs");
        assert!(output.status.success() && text(&output.stdout).contains("reservation"), "{shell}");
    }
    let folder = home.path().join("none");
    let output = plateway().arg("man").arg(&folder).output().expect("it runs");
    let why = text(&output.stderr);
    assert!(!output.status.success() && why.contains("cannot write the pages into"), "{why}");
    assert!(why.contains("mkdir -p"), "{why}");
    std::fs::create_dir(&folder).unwrap();
    assert!(plateway().arg("man").arg(&folder).status().expect("it runs").success());
    let page = std::fs::read_to_string(folder.join("plateway-serve.1")).expect("a page");
    assert!(page.contains("SIGTERM drains"), "{page}");
}
