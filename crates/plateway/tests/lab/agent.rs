//! `plateway lab agent`: two machines, each in a namespace, with an agent at one of them and the lab at
//! the other.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testbed::network::{Cable, End};
use testbed::{Network, Server, process};

use crate::common::{HANG, flat, text};
use crate::{alone, kept};

/// How what these tests make is called.
const PREFIX: &str = "plateway-agent-";

/// Two machines with a cable between `left` (10.80.0.2) and `right` (10.80.0.1), without offloads;
/// none where this machine does not let us, which is told.
fn machines() -> Option<Network> {
    if let Err(why) = testbed::allowed(PREFIX).and(testbed::needs("ethtool")) {
        testkit::skipped(why);
        return None;
    }
    let network = Network::make(PREFIX, &["near", "far"]).unwrap();
    let ends = [("near", "left"), ("far", "right")];
    let ends = ends.map(|(node, interface)| End { node, interface, mac: None });
    network.cable(ends, Cable { mtu: 1500, rate: None, offloads: false }).unwrap();
    for (node, interface, address) in
        [("near", "left", "10.80.0.2/24"), ("far", "right", "10.80.0.1/24")]
    {
        network.at(node).interface("lo").up().unwrap();
        network.at(node).interface(interface).add_address(address).unwrap();
    }
    Some(network)
}

/// Both machines, and a folder; none where this machine does not let us.
fn place() -> Option<(Network, tempfile::TempDir)> {
    Some((machines()?, tempfile::tempdir().unwrap()))
}

/// `plateway lab` at one of them, on a CPU.
fn lab(network: &Network, node: &str, cpu: usize, directory: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_plateway"));
    let mut command = process::command(Some(network.at(node)), &cpu.to_string(), program);
    command.arg("lab").current_dir(directory).env("XDG_STATE_HOME", directory);
    command
}

/// An agent that waits at `agent.sock`.
fn agent(network: &Network, directory: &Path) -> Server {
    let cpus = reactor::allowed_cpus();
    let mut command = lab(network, "far", cpus[0], directory);
    command.args(["agent", "--socket", "agent.sock"]);
    let agent = Server::start(command, &directory.join("agent.log")).unwrap();
    let until = Instant::now() + HANG;
    while !directory.join("agent.sock").exists() {
        assert!(Instant::now() < until, "{}", agent.words());
        std::thread::sleep(Duration::from_millis(20));
    }
    agent
}

fn plan(path: &str, load: &str) -> String {
    format!(
        "name = \"machines\"\nwindow = \"100ms\"\nwarm-up = \"0\"\nshared = true\n\
         [[system]]\nname = \"nvme\"\nserve = {{ protocol = \"nvme\", disk = \"ram:4MiB\", poll = \"never\" }}\n\
         [[system]]\nname = \"aoe\"\nserve = {{ protocol = \"aoe\", disk = \"ram:4MiB\" }}\n\
         [[path]]\nname = \"line\"\nkind = \"machines\"\nagent = \"unix:agent.sock\"\n\
         near-interface = \"left\"\nfar-interface = \"right\"\nfar-address = \"10.80.0.1\"\n{path}\
         [load]\nblock-size = \"1k\"\npattern = \"randread\"\ndepth = 4\n{load}\
         [[picture]]\nname = \"all\"\nsystems = [\"nvme\", \"aoe\"]\n"
    )
}

/// What runs in a namespace, by the names of programs.
fn running(network: &Network, node: &str) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "pids", network.at(node).name()]).output();
    let listed = text(&listed.unwrap().stdout);
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline")).ok();
    let words = listed.split_whitespace().filter_map(name);
    words.map(|words| words.replace('\0', " ")).collect()
}

#[test]
fn what_another_machine_is_not_is_said_before_anything_runs() {
    let Some((network, directory)) = place() else { return };
    let at = |name: &str| directory.path().join(name);
    let near = reactor::allowed_cpus().pop().unwrap();
    let check = |plan: String| {
        fs::write(at("a.toml"), plan).unwrap();
        let mut command = lab(&network, "near", near, directory.path());
        flat(&command.args(["check", "a.toml"]).output().unwrap().stderr)
    };
    let why = check(plan("", ""));
    assert!(why.contains("the agent at unix:agent.sock: No such file"), "{why}");
    let _agent = agent(&network, directory.path());
    let why = check(plan("mtu = 9000\n", ""));
    for end in ["left at the near end", "right at the far end"] {
        assert!(why.contains(&format!("{end}: expected an MTU of 9000, seen 1500")), "{why}");
    }
    let why = check(plan("offloads = true\n", ""));
    assert!(why.contains("expected offloads, seen none"), "{why}");
    let why = check(plan("", "").replace("\"right\"", "\"../right\""));
    assert!(why.contains("expected the name of an interface, of 1 to 15 bytes"), "{why}");
    let why = check(plan("", "").replace("\"right\"", "\"nowhere\""));
    assert!(why.contains("nowhere at the far end"), "{why}");
    let why =
        check(plan("", "").replace("ram:4MiB\", poll", "file:/nowhere/x\", shards = 64, poll"));
    assert!(why.contains("shards: expected at most 1"), "{why}");
    assert!(why.contains("system nvme: file:/nowhere/x: No such file"), "{why}");
}

#[test]
fn a_stranger_is_told_what_was_expected_and_runs_nothing() {
    let Some((network, directory)) = place() else { return };
    let agent = agent(&network, directory.path());
    let mode = fs::metadata(directory.path().join("agent.sock")).unwrap();
    let mode = mode.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (line, words) in [
        ("hello\n", "expected a question of the lab"),
        ("{\"ask\":\"clock\"}\n", "expected to be asked first who this is"),
        (
            "{\"ask\":\"hello\",\"version\":\"0.0.0\",\"commit\":null}\n",
            "expected a lab of its own version",
        ),
    ] {
        let mut stream = UnixStream::connect(directory.path().join("agent.sock")).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\"") && answer.contains(words), "{answer}");
    }
    // A line without an end, and one that goes on for ever, end with who sent them.
    for bytes in [&b"{"[..], &[b' '; 1 << 20]] {
        let mut stream = UnixStream::connect(directory.path().join("agent.sock")).unwrap();
        stream.write_all(bytes).unwrap();
    }
    // One who comes while another is there is told so, and comes again.
    let connect = || {
        let stream = UnixStream::connect(directory.path().join("agent.sock")).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
    };
    let read = |stream: UnixStream| {
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    let first = connect();
    assert!(read(connect()).contains("expected one lab at a time"));
    drop(first);
    let mut third = connect();
    third.write_all(b"hello\n").unwrap();
    assert!(read(third).contains("expected a question of the lab"));
    drop(agent);
}

#[test]
fn a_socket_is_replaced_if_nobody_listens_there_and_nothing_else_is() {
    let Some((network, directory)) = place() else { return };
    let at = |name: &str| directory.path().join(name);
    let refused = || {
        let mut command = lab(&network, "far", reactor::allowed_cpus()[0], directory.path());
        let output = command.args(["agent", "--socket", "agent.sock"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        flat(&output.stderr)
    };
    fs::write(at("agent.sock"), "a file").unwrap();
    let why = refused();
    assert!(why.contains("expected a socket or nothing, and it is something else"), "{why}");
    assert_eq!(fs::read(at("agent.sock")).unwrap(), b"a file");
    fs::remove_file(at("agent.sock")).unwrap();
    let killed = agent(&network, directory.path());
    let why = refused();
    assert!(why.contains("expected a place where nobody listens, and somebody does"), "{why}");
    drop(killed);
    assert!(at("agent.sock").exists(), "who is killed removes nothing");
    let again = agent(&network, directory.path());
    let until = Instant::now() + HANG;
    while UnixStream::connect(at("agent.sock")).is_err() {
        assert!(Instant::now() < until, "{}", again.words());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_lab_that_is_interrupted_and_an_agent_that_is_killed_leave_nothing_running() {
    let Some((network, directory)) = place() else { return };
    let near = reactor::allowed_cpus().pop().unwrap();
    fs::write(directory.path().join("a.toml"), plan("", "")).unwrap();
    let serves = || running(&network, "far").iter().any(|words| words.contains("plateway serve"));
    let begin = || {
        let mut command = lab(&network, "near", near, directory.path());
        command.args(["run", "a.toml", "--overwrite"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + HANG;
        while !serves() {
            assert!(Instant::now() < until, "nothing is served");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    };
    let agent = agent(&network, directory.path());
    let child = begin();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
    assert!(!serves(), "a lab that has ended has let the agent end all of it");
    let child = begin();
    drop(agent);
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert!(
        output.status.code() == Some(1) && why.contains("the agent at unix:agent.sock"),
        "{why}"
    );
    // The kernel ends it as soon as its agent has ended, which the lab may see first.
    let until = Instant::now() + HANG;
    while serves() {
        assert!(Instant::now() < until, "it goes with its agent");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_ends_at_another_machine_ends_its_trial() {
    let Some((network, directory)) = place() else { return };
    let _agent = agent(&network, directory.path());
    let near = reactor::allowed_cpus().pop().unwrap();
    let plan = plan("", "").replace("\"100ms\"", "\"5s\"");
    let plan = plan.replace("systems = [\"nvme\", \"aoe\"]", "systems = [\"nvme\"]");
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    let mut command = lab(&network, "near", near, directory.path());
    command.args(["run", "a.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let until = Instant::now() + HANG;
    let server = || {
        let listed = Command::new("ip").args(["netns", "pids", network.at("far").name()]).output();
        let listed = text(&listed.unwrap().stdout);
        let serves = |pid: &&str| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.replace('\0', " ").contains("plateway serve")
        };
        let pid = listed.split_whitespace().find(serves)?;
        Pid::from_raw(pid.parse().unwrap())
    };
    let server = loop {
        if let Some(server) = server() {
            break server;
        }
        assert!(Instant::now() < until, "nothing is served");
        std::thread::sleep(Duration::from_millis(10));
    };
    // The load is on its way by then, or not: both are told.
    std::thread::sleep(Duration::from_millis(1_500));
    kill_process(server, Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("plateway serve ended with signal: 9"), "{why}");
}

/// A program called `ssh` that takes what the lab gives it, and runs it at the other machine; and the
/// folder where that and `plateway` are found.
fn ssh(network: &Network, directory: &Path) -> PathBuf {
    let folder = directory.join("bin");
    fs::create_dir(&folder).unwrap();
    symlink(env!("CARGO_BIN_EXE_plateway"), folder.join("plateway")).unwrap();
    let (far, cpu) = (network.at("far").name(), reactor::allowed_cpus()[0]);
    let script = format!(
        "#!/bin/sh\nprintf '%s ' \"$@\" > ssh.words\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\n\
         exec ip netns exec {far} taskset -c {cpu} sh -c \"$*\"\n"
    );
    fs::write(folder.join("ssh"), script).unwrap();
    fs::set_permissions(folder.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn what_runs_at_the_other_machine_ends_with_the_connection() {
    let Some((network, directory)) = place() else { return };
    let at = |name: &str| directory.path().join(name);
    let agent = agent(&network, directory.path());
    let near = reactor::allowed_cpus().pop().unwrap();
    let path = format!("{}:{}", ssh(&network, directory.path()).display(), env!("PATH"));
    let by_ssh = plan("", "").replace("unix:agent.sock", "ssh:root@store1");
    let runs = |words: &'static str| {
        move |network| running(network, "far").iter().any(|one| one.contains(words))
    };
    let until = Instant::now() + HANG;
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let serves = runs("plateway serve");
    for plan in [plan("", ""), by_ssh] {
        fs::write(at("a.toml"), plan).unwrap();
        let mut command = lab(&network, "near", near, directory.path());
        let mut child = command.env("PATH", &path).args(["run", "a.toml"]).spawn().unwrap();
        wait("nothing is served", &|| serves(&network));
        child.kill().unwrap();
        child.wait().unwrap();
        wait("it is served still", &|| !serves(&network));
    }
    let words = fs::read_to_string(at("ssh.words")).unwrap();
    assert!(words.ends_with("-- root@store1 plateway lab agent "), "{words}");
    assert!(words.contains("-o BatchMode=yes"), "{words}");
    // One that was started by hand waits for the next; the other is over.
    let left =
        || running(&network, "far").iter().filter(|words| words.contains("lab agent")).count();
    wait("an agent is left", &|| left() == 1);
    Command::new("kill").arg(agent.pid().to_string()).status().unwrap();
    wait("an agent does not end", &|| left() == 0);
    assert!(!at("agent.sock").exists(), "its socket went with it");
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn systems_of_another_machine_are_started_measured_and_ended_by_its_agent() {
        let _alone = alone();
        let Some((network, directory)) = place() else { return };
        let at = |name: &str| directory.path().join(name);
        let _agent = agent(&network, directory.path());
        let near = reactor::allowed_cpus().pop().unwrap();
        fs::write(at("a.toml"), plan("mtu = 1500\n", "")).unwrap();
        let output = lab(&network, "near", near, directory.path()).args(["run", "a.toml"]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), flat(&output.stderr));
        let kept = kept(&at("a.result.json"));
        assert_eq!(kept["far_machine"]["agent"], "unix:agent.sock");
        assert_eq!(kept["far_cpus"], serde_json::json!([reactor::allowed_cpus()[0]]));
        assert!(kept["far_machine"]["clock_within_seconds"].as_f64().unwrap() < 1.0, "{kept}");
        for trial in kept["trials"].as_array().unwrap() {
            let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{trial}"));
            assert!(number(&trial["measures"]["iops"]) > 0.0, "{trial}");
            assert!(number(&trial["far"]["busy"]) > 0.0, "{trial}");
            assert!(trial["far"]["by_task"].to_string().contains("shard-0"), "{trial}");
            assert!(number(&trial["wire_bytes_per_op"]) > 1024.0, "{trial}");
            assert_eq!(trial["served"]["disk_access"], "memory", "{trial}");
        }
        // The agent alone is left.
        let left = running(&network, "far");
        assert!(left.iter().all(|words| words.contains("lab agent")), "{left:?}");
    }

    #[test]
    fn a_stream_and_a_stripe_are_at_another_machine_as_here() {
        let _alone = alone();
        let Some((network, directory)) = place() else { return };
        let at = |name: &str| directory.path().join(name);
        let _agent = agent(&network, directory.path());
        let near = reactor::allowed_cpus().pop().unwrap();
        let systems = "[[system]]\nname = \"tcp\"\nstream = \"tcp\"\n[[path]]";
        let plan = plan("", "").replacen("[[path]]", systems, 1)
            + "disks = 2\n[[picture]]\nname = \"network\"\nsystems = [\"tcp\"]\npattern = \"write\"\ndepth = 1\n";
        fs::write(at("a.toml"), plan).unwrap();
        let output = lab(&network, "near", near, directory.path()).args(["run", "a.toml"]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), flat(&output.stderr));
        let kept = kept(&at("a.result.json"));
        let trials = kept["trials"].as_array().unwrap();
        let of = |name: &str| {
            let is_its = |trial: &&Value| trial["cell"].as_str().unwrap().starts_with(name);
            trials.iter().find(is_its).unwrap_or_else(|| panic!("no {name}: {kept}"))
        };
        for (name, client) in [("tcp over line", "plateway lab stream"), ("nvme over line", "")] {
            let trial = of(name);
            assert!(trial["measures"]["iops"].as_f64().unwrap() > 0.0, "{trial}");
            assert!(trial["wire_bytes_per_op"].as_f64().unwrap() > 500.0, "{trial}");
            assert_eq!(trial["bench"]["client"].as_str().unwrap_or_default(), client, "{trial}");
        }
        assert_eq!((&of("nvme")["disks"], of("tcp").get("disks")), (&serde_json::json!(2), None));
        let left = running(&network, "far");
        assert!(left.iter().all(|words| words.contains("lab agent")), "{left:?}");
    }

    /// A target that goes into the background, as many do, and one that does not come up.
    #[test]
    fn a_target_of_another_machine_is_run_by_its_own_commands() {
        let _alone = alone();
        let Some((network, directory)) = place() else { return };
        let at = |name: &str| directory.path().join(name);
        let _agent = agent(&network, directory.path());
        let near = reactor::allowed_cpus().pop().unwrap();
        let program = env!("CARGO_BIN_EXE_plateway");
        let target = at("target.toml").display().to_string();
        fs::write(
        &target,
        "[server]\ncontrol = \"control.sock\"\nstate = \"state\"\n\
         [[disk]]\nname = \"d\"\nuri = \"ram:4MiB\"\n[[link]]\nethernet = \"right\"\n\
         [[volume]]\nname = \"v\"\nlayout = \"single\"\ndisks = [\"d\"]\n\
         [[export]]\nvolume = \"v\"\naoe = { interface = \"right\", shelf = 3, slot = 1, hosts = \"any\" }\n",
    )
    .unwrap();
        let background = format!(
            "[[system]]\nname = \"aoe\"\nbacking = \"ram\"\ndurable = false\ntarget = {{ uri = \"aoe://left/3.1\", start = [\"sh\", \"-c\", \"setsid {program} serve \
         --config {target} > /dev/null 2>&1 &\"] }}\n"
        );
        let run = |system: &str| {
            let plan = plan("", "").replace(
                "[[system]]\nname = \"aoe\"\nserve = { protocol = \"aoe\", disk = \"ram:4MiB\" }\n",
                system,
            );
            assert!(plan.contains(system), "{plan}");
            fs::write(at("a.toml"), plan).unwrap();
            let mut command = lab(&network, "near", near, directory.path());
            command.args(["run", "a.toml", "--overwrite"]).output().unwrap()
        };
        let output = run(&background);
        assert!(output.status.success(), "{}{}", text(&output.stdout), flat(&output.stderr));
        let left = running(&network, "far");
        assert!(left.iter().all(|words| words.contains("lab agent")), "{left:?}");
        let output = run("[[system]]\nname = \"aoe\"\nbacking = \"ram\"\ndurable = false\n\
         target = { uri = \"aoe://left/3.1\", start = [\"sh\", \"-c\", \"echo no disk >&2; exit 3\"] }\n");
        let why = flat(&output.stderr);
        assert!(output.status.code() == Some(1) && why.contains("no disk"), "{why}");
    }
}
