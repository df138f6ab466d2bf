//! The log as others read it: JSON, a journal, a terminal; and that nobody who does not read it
//! holds the server.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::{Controller, Queue};
use crate::common::{HANG, Server, plateway, text};

const HOST: &str = "nqn.2026-11.net.plateway:somebody";

/// A server whose standard error is the caller's; with this value it is told to end, and must do
/// so with code 0.
struct Logging {
    child: Child,
    address: String,
    control: String,
}

impl Logging {
    fn start(mut command: Command, directory: &Path, stderr: Stdio, args: &[&str]) -> Logging {
        let control = directory.join("c.sock").to_str().expect("text").to_owned();
        let state = directory.join("state");
        command
            .args(["serve", "ram:1MiB", "--nvme", "127.0.0.1:0", "--memory", "64MiB"])
            .args(args);
        command.args(["--control", &control]).arg("--state").arg(state);
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let ready =
            |line: io::Result<String>| line.ok()?.strip_prefix("ready: nvme ").map(str::to_owned);
        let address = { lines }.find_map(ready).expect("it listens");
        Logging { child, address, control }
    }

    fn ask(&self, args: &[&str]) {
        let output = plateway().args(args).args(["--control", &self.control]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    }

    /// Serves, is asked, reloads: more lines than a pipe of one page or a queue of datagrams takes.
    fn works(&self) {
        let controller = Controller::connect(self.address.parse().unwrap(), 1, 1);
        let mut queue: Queue = controller.queue(1, false);
        for _ in 0..40 {
            kill_process(Pid::from_child(&self.child), Signal::HUP).expect("it runs");
            self.ask(&["status"]);
            assert!(queue.try_read(0).is_success());
        }
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

/// A pipe whose buffer is full, both ends.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
    while writer.write(&[b'x'; 512]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe");
    (reader, writer)
}

#[test]
fn a_pipe_that_nobody_reads_holds_neither_hosts_nor_people_nor_the_watchdog_nor_the_end() {
    let home = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(home.path().join("notify")).expect("a socket");
    manager.set_read_timeout(Some(HANG)).expect("a limit");
    let (mut reader, writer) = full_pipe();
    let mut command = plateway();
    command.env("NOTIFY_SOCKET", home.path().join("notify")).env("WATCHDOG_USEC", "200000");
    let stderr = Stdio::from(OwnedFd::from(writer));
    let server = Logging::start(command, home.path(), stderr, &["--hosts", "any"]);
    let (alive, fed) = mpsc::channel();
    let manager = std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok(length) = manager.recv(&mut bytes) {
            match &bytes[..length] {
                b"WATCHDOG=1\n" => drop(alive.send(())),
                other if other.starts_with(b"STOPPING=1") => return,
                _ => {}
            }
        }
        panic!("nothing is told in time");
    });
    server.works();
    // What was told before does not count.
    fed.try_iter().for_each(drop);
    for _ in 0..3 {
        fed.recv_timeout(HANG).expect("the watchdog is fed");
    }
    server.stop();
    manager.join().expect("it was told of the end");
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    assert!(said.iter().all(|byte| *byte == b'x'), "nothing was to be written");
}

#[test]
fn what_waited_while_nobody_read_comes_with_the_times_at_which_it_happened() {
    let home = tempfile::tempdir().unwrap();
    let (reader, writer) = full_pipe();
    let stderr = Stdio::from(OwnedFd::from(writer));
    let args = ["--hosts", "any", "--log", "json"];
    let server = Logging::start(plateway(), home.path(), stderr, &args);
    server.works();
    let before = jiff_now();
    let mut lines = BufReader::new(reader).lines();
    let mut next = || {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str::<Value>(line.trim_start_matches('x')).expect("JSON")
    };
    let first = next();
    assert!(first["message"].as_str().unwrap().starts_with("driver: "), "{first}");
    assert!(first["timestamp"].as_str().unwrap() < &*before, "{first} is not before {before}");
    let connected = loop {
        let line = next();
        if line["message"].as_str().unwrap().contains("connected to") {
            break line;
        }
    };
    assert_eq!(connected["host"], "nqn.2026-11.net.plateway:host-1");
    server.stop();
}

/// The time as the log writes it, by a line that another program of ours writes.
fn jiff_now() -> String {
    let home = tempfile::tempdir().unwrap();
    let args = ["serve", "ram:1", "--nvme", "127.0.0.1:0", "--log", "json"];
    let output = plateway().current_dir(home.path()).args(args).output().unwrap();
    let line = text(&output.stderr);
    let line: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    line["timestamp"].as_str().expect("a time").to_owned()
}

#[test]
fn a_reader_that_has_gone_is_no_reason_to_end() {
    let home = tempfile::tempdir().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let stderr = Stdio::from(OwnedFd::from(writer));
    let server = Logging::start(plateway(), home.path(), stderr, &["--hosts", "any"]);
    server.works();
    server.stop();
    // One that would have to wait, and does not.
    let (_reader, writer) = full_pipe();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let stderr = Stdio::from(OwnedFd::from(writer));
    let server = Logging::start(plateway(), home.path(), stderr, &["--hosts", "any"]);
    server.works();
    server.stop();
}

#[test]
fn json_has_a_field_for_each_thing_and_nothing_but_objects() {
    let home = tempfile::tempdir().unwrap();
    let args = ["ram:1MiB", "--nvme", "127.0.0.1:0", "--hosts", HOST, "--log", "json"];
    let server = Server::start(home.path(), "a", &args);
    let disk = format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v0/1", server.address);
    assert!(!plateway().args(["bench", &disk]).output().unwrap().status.success());
    let log = server.wait_for_log("is not among the hosts");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let known = ["timestamp", "level", "message", "host", "peer", "export"];
    let refused = lines.last().unwrap().as_object().unwrap();
    assert_eq!(
        refused.keys().filter(|key| !known.contains(&key.as_str())).count(),
        0,
        "{refused:?}"
    );
    assert_eq!((&refused["level"], refused.len()), (&"WARN".into(), known.len()));
    assert_eq!(refused["export"], "nqn.2026-11.net.plateway:v0");
    assert!(refused["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    let host = refused["host"].as_str().unwrap();
    assert!(refused["message"].as_str().unwrap().ends_with(&format!("add \"{host}\" to them")));
    // The end is a line of it, too.
    let wrong = ["serve", "file:no.img", "--nvme", "127.0.0.1:0", "--log", "json"];
    let output = plateway().current_dir(home.path()).args(wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).expect("an object");
    assert_eq!(last["level"], "ERROR");
    assert!(last["message"].as_str().unwrap().contains("no.img"), "{last}");
}

#[test]
fn what_only_warns_of_a_configuration_that_is_refused_is_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("plateway.toml");
    // An export without hosts is warned of; one of no volume is refused.
    let exports = ["v0", "v1"].map(|name| {
        let subsystem = format!("nqn.2026-11.net.plateway:{name}");
        format!(
            "[[export]]\nvolume = \"{name}\"\nnvme = {{ subsystem = \"{subsystem}\", nsid = 1 }}\n"
        )
    });
    let things = "[[disk]]\nname = \"d0\"\nuri = \"ram:1MiB\"\n\
                  [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
                  [[listener]]\nnvme = \"127.0.0.1:0\"\n";
    fs::write(&file, things.to_owned() + &exports.concat()).unwrap();
    let output =
        plateway().args(["serve", "--log", "json", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let (warnings, errors): (Vec<Value>, Vec<Value>) =
        lines.partition(|line| line["message"].as_str().unwrap().contains(" warning: "));
    assert!(!warnings.is_empty() && warnings.iter().all(|line| line["level"] == "WARN"), "{said}");
    assert!(errors.len() >= 2 && errors.iter().all(|line| line["level"] == "ERROR"), "{said}");
}

#[test]
fn the_least_grave_that_is_logged_can_be_chosen_in_the_file_and_beside_it() {
    let home = tempfile::tempdir().unwrap();
    let config = "[server]\nlog_level = \"warn\"\nlog = \"text\"\n";
    let server = Server::configured(home.path(), config);
    let log = server.wait_for_log("nothing is exported");
    assert!(log.contains(" WARN nothing is exported") && !log.contains("INFO"), "{log}");
    assert!(server.ask(&["config"]).contains("log_level = \"warn\""));
    server.stop();
    let server = Server::try_configured(home.path(), config, &["--log-level", "debug"]).unwrap();
    server.wait_for_log(" INFO driver: ");
    // What changes nothing is of no interest to most.
    server.apply(config);
    let log = server.wait_for_log("was applied");
    assert!(log.contains("DEBUG the configuration was applied: 0 steps"), "{log}");
}

#[test]
fn every_word_for_the_form_and_the_gravity_is_taken_in_the_file_and_on_the_line() {
    let home = tempfile::tempdir().unwrap();
    let log = |config: &str, flags: &[&str]| {
        Server::try_configured(home.path(), config, flags).unwrap().stop();
        fs::read_to_string(home.path().join("a.log")).unwrap()
    };
    for (level, informs, warns) in [
        ("error", false, false),
        ("warn", false, true),
        ("info", true, true),
        ("debug", true, true),
    ] {
        let file = log(&format!("[server]\nlog_level = \"{level}\"\n"), &[]);
        let line = log("[server]\nlog_level = \"error\"\n", &["--log-level", level]);
        for said in [file, line] {
            assert_eq!(said.contains(" INFO driver: "), informs, "{level}: {said}");
            assert_eq!(said.contains(" WARN nothing is exported"), warns, "{level}: {said}");
        }
    }
    // Standard error is a file here, which auto takes for one who reads text.
    for (form, is_json) in [("auto", false), ("text", false), ("json", true)] {
        let file = log(&format!("[server]\nlog = \"{form}\"\n"), &[]);
        let line = log("[server]\nlog = \"json\"\n", &["--log", form]);
        for said in [file, line] {
            let first = said.lines().next().expect("a line");
            assert_eq!(first.starts_with('{'), is_json, "{form}: {said}");
        }
    }
}

/// The fields of a message to a journal, in its native protocol.
fn fields(message: &[u8]) -> Vec<(String, String)> {
    let mut rest = message;
    let mut fields = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (text(&rest[..end]), &rest[end + 1..]);
        let (name, value, left) = match line.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned(), after),
            None => {
                let (length, after) = after.split_first_chunk::<8>().expect("a length");
                let (value, left) = after.split_at(u64::from_le_bytes(*length) as usize);
                (line, text(value), &left[1..])
            }
        };
        fields.push((name, value));
        rest = left;
    }
    fields
}

#[test]
fn a_journal_gets_priorities_and_fields_and_may_hang() {
    let home = tempfile::tempdir().unwrap();
    // In a mount namespace of its own, which ends with it.
    let within = |program: &str| {
        let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && \
                      : > /run/systemd/journal/socket && mount --bind \"$0\" /run/systemd/journal/socket && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(home.path().join("journal")).arg(program).stdin(Stdio::null());
        command
    };
    let journal = UnixDatagram::bind(home.path().join("journal")).expect("a socket");
    journal.set_read_timeout(Some(HANG)).expect("a limit");
    if !within("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        testkit::skipped("no mount namespace is to be had");
        return;
    }
    let stream = File::create(home.path().join("stderr")).unwrap();
    let meta = stream.metadata().unwrap();
    let program = plateway().get_program().to_str().expect("a path of text").to_owned();
    let mut command = within(&program);
    command.env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino()));
    let server = Logging::start(command, home.path(), stream.into(), &["--hosts", HOST]);
    let disk = format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v0/1", server.address);
    assert!(!plateway().args(["bench", &disk]).output().unwrap().status.success());
    let next = || {
        let mut bytes = vec![0; 65536];
        let length = journal.recv(&mut bytes).expect("a message in time");
        fields(&bytes[..length])
    };
    let find = |wanted: &str| loop {
        let fields = next();
        let get = |name: &str| {
            fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
        };
        if get("MESSAGE").is_some_and(|message| message.contains(wanted)) {
            break ["PRIORITY", "SYSLOG_IDENTIFIER", "PLATEWAY_EXPORT", "PLATEWAY_HOST"].map(get);
        }
    };
    let some = |words: &str| Some(words.to_owned());
    assert_eq!(find("driver: "), [some("6"), some("plateway"), None, None]);
    let [priority, _, export, host] = find("is not among the hosts");
    assert_eq!((priority, export), (some("4"), some("nqn.2026-11.net.plateway:v0")));
    assert!(host.is_some_and(|host| host.starts_with("nqn.")));
    // From here on nobody reads it.
    for _ in 0..40 {
        kill_process(Pid::from_child(&server.child), Signal::HUP).expect("it runs");
        server.ask(&["status"]);
    }
    server.stop();
    assert_eq!(fs::read_to_string(home.path().join("stderr")).unwrap(), "");
}

#[test]
fn a_journal_without_its_socket_gets_lines_with_priorities() {
    let home = tempfile::tempdir().unwrap();
    let command = |stream: &File| {
        let meta = stream.metadata().unwrap();
        let mut command = plateway();
        command.env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino()));
        command
    };
    if Path::new("/run/systemd/journal/socket").exists() {
        testkit::skipped("this machine has a journal");
        return;
    }
    let path = home.path().join("stderr");
    let stream = File::create(&path).unwrap();
    let command = command(&stream);
    Logging::start(command, home.path(), stream.into(), &["--hosts", "any"]).stop();
    let said = fs::read_to_string(path).unwrap();
    assert!(
        said.starts_with("<6>driver: ") && said.lines().all(|line| line.starts_with('<')),
        "{said}"
    );
}

#[test]
fn colour_is_for_terminals_that_were_not_asked_for_none() {
    let home = tempfile::tempdir().unwrap();
    let coloured = |no_color: Option<&str>| {
        use rustix::pty::{OpenptFlags, grantpt, ptsname, unlockpt};
        let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let path = ptsname(&terminal, Vec::new()).unwrap();
        let other = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let mut command = plateway();
        command
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .envs(no_color.map(|no| ("NO_COLOR", no)));
        let server = Logging::start(command, home.path(), other.into(), &["--hosts", "any"]);
        server.stop();
        let mut bytes = [0; 4096];
        let length = File::from(terminal).read(&mut bytes).expect("what was written");
        let said = text(&bytes[..length]);
        assert!(said.contains("driver: "), "{said}");
        said.contains('\u{1b}')
    };
    assert!(coloured(None) && coloured(Some("")));
    assert!(!coloured(Some("1")));
}
