//! What the machine does not give: descriptors, writable files, the right to give files away.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{Server, configuration, flat, mounted, own_configuration, plateway, write};

const QUICK: [&str; 5] = ["ram:1MiB", "--nvme", "127.0.0.1:0", "--hosts", "any"];

fn program() -> String {
    plateway().get_program().to_str().expect("a path of text").to_owned()
}

/// A command of a shell, which has the program and its arguments as its own.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", &program()]).stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

/// As [`shell`], as root of a user namespace of its own, with mounts of its own; none where the
/// machine does not let us.
fn unshared(script: &str) -> Option<Command> {
    let command = |script: &str, program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh", program]);
        command.stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    };
    let tried = command("exec \"$@\"", "true").stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) {
        return Some(command(script, &program()));
    }
    testkit::skipped("no mount namespace is to be had");
    None
}

#[test]
fn a_start_that_gets_too_few_descriptors_says_so_at_whatever_step() {
    let home = tempfile::tempdir().unwrap();
    let (mut refused, mut started) = (0, 0);
    for most in 4..64 {
        let limited = shell(&format!("ulimit -n {most}; exec \"$@\""));
        match Server::try_start_by(limited, home.path(), "a", &QUICK) {
            Ok(server) => {
                started += 1;
                server.kill();
            }
            Err(said) => {
                refused += 1;
                let of_limit = said.contains("Too many open files") || said.contains("os error 24");
                assert!(of_limit && !said.contains("panicked"), "{most}: {said}");
            }
        }
    }
    assert!(refused > 4 && started > 4, "{refused} refused, {started} started");
}

#[test]
fn a_file_that_may_not_be_written_is_neither_grown_nor_labelled_nor_wiped() {
    let script = "mount --bind ro ro && mount -o remount,ro,bind ro && exec \"$@\"";
    let Some(unshared) = unshared(script) else { return };
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    fs::create_dir(here.join("ro")).unwrap();
    for name in ["a.img", "b.img"] {
        fs::write(here.join("ro").join(name), vec![0; 8 << 20]).unwrap();
    }
    let of = |uri: &str| {
        let disks = [("a", uri), ("b", "file:ro/b.img")];
        configuration(&disks, &[("v0", "disks = [\"a\"]")])
    };
    let path = write(here, &of("file:ro/a.img?create=8MiB"));
    let server = Server::try_start_by(unshared, here, "a", &["--config", &path]);
    let server = server.unwrap_or_else(|log| panic!("{log}"));
    let said = server.refuse_apply(&of("file:ro/a.img?create=16MiB"));
    let may_not = "may grow from 8 MiB to 16 MiB, seen one that may not be written";
    assert!(said.contains(may_not), "{said}");
    // Where check looks at it as the server does.
    let mut check = Command::new("nsenter");
    check.args(["--user", "--mount", "--preserve-credentials", "--target"]);
    check.arg(server.pid().as_raw_nonzero().to_string()).arg(format!("--wd={}", here.display()));
    check.args([&program(), "check", &path, "--control"]).arg(here.join("a.sock"));
    let checked = check.env("NO_COLOR", "1").output().unwrap();
    let checked = flat(&[checked.stdout, checked.stderr].concat());
    assert!(checked.contains(may_not), "{checked}");
    let set = of("file:ro/a.img?create=8MiB")
        .replace("disks = [\"a\"]", "layout = \"stripe\"\ndisks = [\"a\", \"b\"]")
        .replace("\"v0\"", "\"s\"");
    let path = write(here, &set);
    let said = flat(&server.command(&["apply", &path, "--yes", "--overwrite", "s"]).stderr);
    assert!(said.contains("expected one that can be labelled, seen one that may not be"), "{said}");
    server.stop();
}

#[test]
fn a_group_to_which_the_socket_cannot_be_given_is_told_with_what_to_do() {
    // In a namespace of its own user alone every other group is nobody's.
    let Some(unshared) = unshared("exec \"$@\"") else { return };
    let home = tempfile::tempdir().unwrap();
    let own = rustix::process::getegid().as_raw().to_string();
    let groups = fs::read_to_string("/etc/group").unwrap();
    let group = groups.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.len() > 2 && fields[2] != own && fields[2] != "0").then(|| fields[0].to_owned())
    });
    let group = group.expect("another group");
    let path = write(home.path(), &format!("[server]\ncontrol_group = \"{group}\"\n"));
    let refused = Server::try_start_by(unshared, home.path(), "a", &["--config", &path]);
    let said = refused.err().expect("it starts");
    assert!(said.contains(&format!("cannot give it to group {group}")), "{said}");
    assert!(said.contains("must be a member of the group"), "{said}");
}

#[test]
fn a_state_directory_that_takes_nothing_is_told_of_beforehand_and_at_a_start() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    let state = here.join("state");
    fs::create_dir(&state).unwrap();
    let words = "/state: nothing can be stored there: ";
    let mounts = "mount -t tmpfs -o ro tmpfs \"$0\"";
    let Some(mut check) = mounted(mounts, &state) else { return };
    let config = write(here, &own_configuration(here, &[("d0", "ram:1MiB")], &[]));
    let output = check.args(["check", &config]).output().unwrap();
    let said = flat(&output.stderr);
    assert!(said.contains(words) && said.contains("Read-only file system"), "{said}");
    assert!(output.status.success(), "{said}");
    let serve = mounted(mounts, &state).unwrap();
    let server = Server::try_start_by(serve, here, "a", &QUICK).unwrap();
    server.wait_for_log(words);
    server.stop();
    let server = Server::start(here, "b", &QUICK);
    assert!(!server.log().contains(words), "{}", server.log());
}
