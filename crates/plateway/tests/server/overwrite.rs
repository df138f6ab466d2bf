//! `--overwrite VOLUME`: disks that hold something are labelled only if somebody says so, and what
//! was given up is told.

use std::fs;

use crate::common::{Server, configuration, flat, plateway, text, write};

const DISKS: [(&str, &str); 2] = [("a", "file:a.img?create=8MiB"), ("b", "file:b.img?create=8MiB")];

/// A configuration with a stripe of this name over these members.
fn stripe(name: &str, members: &str) -> String {
    configuration(&DISKS, &[(name, &format!("layout = \"stripe\"\ndisks = {members}"))])
}

#[test]
fn serve_takes_disks_of_another_set_only_when_told_and_says_what_was_on_them() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::configured(here, &stripe("old", r#"["a", "b"]"#));
    let old = server.uuid();
    server.stop();

    let serve = |args: &[&str]| Server::try_configured(here, &stripe("new", r#"["b", "a"]"#), args);
    let refused = serve(&[]).err().unwrap();
    assert!(refused.contains("--overwrite new"), "{refused}");
    let wrong = serve(&["--overwrite", "old"]).err().unwrap();
    assert!(wrong.contains("--overwrite old: expected one of"), "{wrong}");

    let server = serve(&["--overwrite", "new"]).unwrap_or_else(|log| panic!("{log}"));
    let new = server.uuid();
    assert_ne!(new, old);
    for disk in ["b", "a"] {
        let log = server.wait_for_log(&format!("disk {disk}: --overwrite"));
        let line = log.lines().find(|line| line.contains(&format!("disk {disk}: --overwrite")));
        let line = line.unwrap_or_else(|| panic!("nothing of disk {disk}: {log}"));
        assert!(line.contains(&old) && line.contains("\"old\""), "{line}");
    }
    server.stop();
    // From then on it is a set like any other.
    let server = serve(&["--overwrite", "new"]).unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(server.uuid(), new);
    assert!(!server.log().contains("is lost"), "{}", server.log());
}

#[test]
fn apply_takes_foreign_data_only_when_told_and_a_signal_never_does() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a.img"), vec![7; 8 << 20]).unwrap();
    let server = Server::configured(here, &configuration(&DISKS, &[]));
    let path = write(here, &stripe("s", r#"["a", "b"]"#));
    let refused = server.refuse(&["apply", &path]);
    assert!(refused.contains("other data") && refused.contains("--overwrite s"), "{refused}");
    server.signal(rustix::process::Signal::HUP);
    server.ask(&["status"]);
    assert!(server.status()["volumes"].as_array().unwrap().is_empty());
    let refused = server.refuse(&["apply", &path, "--overwrite", "t"]);
    assert!(refused.contains("--overwrite t: expected one of"), "{refused}");
    let output = server.command(&["apply", &path, "--overwrite", "s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(told.contains("disk a: --overwrite: what it held is lost: other data"), "{told}");
    assert!(!told.contains("disk b"), "a blank disk gives up nothing: {told}");
    server.wait_for_log("disk a: --overwrite: what it held is lost");
    assert_eq!(server.status()["volumes"][0]["bytes"], 14 << 20);
}

#[test]
fn a_member_of_a_set_is_served_alone_only_when_told_and_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // Once a volume of its own: what is known of it ends with the set.
    fs::write(here.join("a.img"), vec![7; 8 << 20]).unwrap();
    let quick = |disk: &str, more: &[&str]| {
        let listening = [disk, "--nvme", "127.0.0.1:0", "--hosts", "any"];
        Server::try_start(here, "q", &[&listening, more].concat())
    };
    quick("file:a.img", &[]).unwrap_or_else(|log| panic!("{log}")).stop();
    let set = stripe("s", r#"["a", "b"]"#);
    let server = Server::try_configured(here, &set, &["--overwrite", "s"]);
    let server = server.unwrap_or_else(|log| panic!("{log}"));
    let uuid = server.uuid();
    server.stop();

    let single = configuration(&[("d", "file:b.img")], &[("v", "disks = [\"d\"]")]);
    let single_of_set = configuration(
        &[("d", "file:b.img")],
        &[("v", &format!("disks = [\"d\"]\nuuid = \"{uuid}\""))],
    );
    let refusals = [
        quick("file:a.img", &[]).err().expect("a member is served"),
        Server::try_configured(here, &single, &[]).err().expect("a member is served"),
        Server::try_configured(here, &single_of_set, &[]).err().expect("a member is served"),
    ];
    for (refused, index) in refusals.iter().zip([0, 1, 1]) {
        assert!(refused.contains(&format!("volume {uuid} (\"s\"), stripe of 2")), "{refused}");
        assert!(refused.contains(&format!("index {index}")), "{refused}");
        assert!(refused.contains("--overwrite v"), "{refused}");
    }
    // Nothing was written, and what has an identity of its own may hold anybody's label.
    let server = Server::configured(here, &set);
    assert_eq!(server.uuid(), uuid);
    server.stop();
    let named = single_of_set.replace(&uuid, "5d3cf1c2-30a2-4b5e-8d62-8f1b0b8d6a11");
    Server::configured(here, &named).stop();

    let server = quick("file:a.img", &["--overwrite", "v0"]).unwrap_or_else(|log| panic!("{log}"));
    let log = server.wait_for_log("--overwrite gives up what it held");
    assert!(log.contains(&uuid), "{log}");
    let alone = server.uuid();
    server.stop();
    let server = quick("file:a.img", &[]).unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(server.uuid(), alone, "a restart asks for it again");
}

#[test]
fn a_copy_of_a_set_is_not_served_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let set = |disks: &str| format!("layout = \"stripe\"\ndisks = {disks}");
    let first = set(r#"["a", "b"]"#);
    Server::configured(here, &configuration(&DISKS, &[("s", &first)])).stop();
    for (from, to) in [("a.img", "c.img"), ("b.img", "d.img")] {
        fs::copy(here.join(from), here.join(to)).unwrap();
    }
    let disks = [&DISKS[..], &[("c", "file:c.img"), ("d", "file:d.img")]].concat();
    let both = configuration(&disks, &[("s", &first), ("t", &set(r#"["c", "d"]"#))]);
    let refused = Server::try_configured(here, &both, &[]).err().expect("it is served twice");
    let words = "volume t: expected an identity of its own, seen that of volume s";
    assert!(refused.contains(words), "{refused}");
    assert!(refused.contains("a copy of a disk needs a uuid of its own"), "{refused}");
    assert!(refused.contains("with --overwrite t, too"), "{refused}");
    // What the advice says: the copy is a set of its own, and the data are where they were.
    for name in ["c.img", "d.img"] {
        let mut data = fs::read(here.join(name)).unwrap();
        data[2 << 20..][..4096].fill(0xa5);
        fs::write(here.join(name), data).unwrap();
    }
    let behind =
        || ["c.img", "d.img"].map(|name| fs::read(here.join(name)).unwrap().split_off(1 << 20));
    let before = behind();
    let uuid = "5d3cf1c2-30a2-4b5e-8d62-8f1b0b8d6a11";
    let own = set(r#"["c", "d"]"#) + &format!("\nuuid = \"{uuid}\"");
    let both = configuration(&disks, &[("s", &first), ("t", &own)]);
    let server = Server::try_configured(here, &both, &["--overwrite", "t"])
        .unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(server.status()["volumes"][1]["uuid"], uuid);
    server.stop();
    assert!(behind() == before, "data behind the labels were changed");
    Server::configured(here, &both).stop();
}

#[test]
fn a_label_is_wiped_only_when_told_and_never_under_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let config = write(here, &stripe("s", r#"["a", "b"]"#));
    let wipe = |words: &[&str]| {
        plateway().current_dir(here).args(["disks", "wipe"]).args(words).output().unwrap()
    };
    // Nothing is made to be wiped.
    let gone = wipe(&["a", "--config", &config, "--yes"]);
    assert!(!gone.status.success() && !here.join("a.img").exists(), "{}", flat(&gone.stderr));

    let server = Server::configured(here, &stripe("s", r#"["a", "b"]"#));
    let busy = wipe(&["a", "--config", &config, "--yes"]);
    assert!(!busy.status.success(), "a server has it");
    server.stop();
    let before = fs::read(here.join("a.img")).unwrap();

    let asked = wipe(&["a", "--config", &config]);
    let told = flat(&asked.stderr);
    assert!(!asked.status.success() && told.contains("--yes") && told.contains("\"s\""), "{told}");
    assert_eq!(fs::read(here.join("a.img")).unwrap(), before);
    let wrong = wipe(&["c", "--config", &config, "--yes"]);
    assert!(flat(&wrong.stderr).contains("expected one of a, b"), "{}", flat(&wrong.stderr));

    let done = wipe(&["file:a.img", "--yes"]);
    assert!(done.status.success(), "{}", flat(&done.stderr));
    assert!(text(&done.stdout).contains("it was a member of"), "{}", text(&done.stdout));
    let after = fs::read(here.join("a.img")).unwrap();
    let differs = |at: &usize| before[*at] != after[*at];
    let changed: Vec<usize> = (0..after.len()).filter(differs).collect();
    assert!(!changed.is_empty() && changed.iter().all(|at| after[*at] == 0));
    assert!(changed.iter().all(|at| *at < 4096 || (65_536..69_632).contains(at)), "only labels");
    let twice = wipe(&["file:a.img", "--yes"]);
    assert!(flat(&twice.stderr).contains("seen none"), "{}", flat(&twice.stderr));

    // The set is one no more.
    let server = Server::configured(here, &stripe("s", r#"["a", "b"]"#));
    let log = server.wait_for_log("disk a: expected");
    assert!(log.contains("seen a blank disk"), "{log}");
    assert_eq!(server.status()["volumes"][0]["state"], "failed");
    server.stop();
    let alone = ["file:a.img", "--nvme", "127.0.0.1:0", "--hosts", "any"];
    Server::try_start(here, "q", &alone).unwrap_or_else(|log| panic!("{log}")).stop();
}
