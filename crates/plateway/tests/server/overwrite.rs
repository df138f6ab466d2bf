//! `--overwrite VOLUME`: disks that hold something are labelled only if somebody says so, and what
//! was given up is told.

use std::fs;
use std::path::Path;

use crate::common::{Server, configuration, text, write};

const DISKS: [(&str, &str); 2] = [("a", "file:a.img?create=8MiB"), ("b", "file:b.img?create=8MiB")];

fn stripe(name: &str, members: &str) -> (String, String) {
    (name.to_owned(), format!("layout = \"stripe\"\ndisks = {members}"))
}

fn config(directory: &Path, volumes: &[(String, String)]) -> String {
    let volumes: Vec<(&str, &str)> =
        volumes.iter().map(|(name, rest)| (name.as_str(), rest.as_str())).collect();
    write(directory, &configuration(&DISKS, &volumes))
}

#[test]
fn serve_takes_disks_of_another_set_only_when_told_and_says_what_was_on_them() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let path = config(here, &[stripe("old", r#"["a", "b"]"#)]);
    let server = Server::start(here, "a", &["--config", &path]);
    let old = server.uuid();
    server.stop();

    let path = config(here, &[stripe("new", r#"["b", "a"]"#)]);
    let refused = Server::try_start(here, "a", &["--config", &path]).err().unwrap();
    assert!(refused.contains("--overwrite new"), "{refused}");
    let wrong = Server::try_start(here, "a", &["--config", &path, "--overwrite", "old"]);
    let wrong = wrong.err().unwrap();
    assert!(wrong.contains("--overwrite old: expected one of"), "{wrong}");

    let server = Server::start(here, "a", &["--config", &path, "--overwrite", "new"]);
    let new = server.uuid();
    assert_ne!(new, old);
    let log = server.log();
    for disk in ["b", "a"] {
        let line = log.lines().find(|line| line.contains(&format!("disk {disk}: --overwrite")));
        let line = line.unwrap_or_else(|| panic!("nothing of disk {disk}: {log}"));
        assert!(line.contains(&old) && line.contains("\"old\""), "{line}");
    }
    server.stop();
    // From then on it is a set like any other.
    let server = Server::start(here, "a", &["--config", &path, "--overwrite", "new"]);
    assert_eq!(server.uuid(), new);
    assert!(!server.log().contains("gives up"), "{}", server.log());
}

#[test]
fn apply_takes_foreign_data_only_when_told_and_a_signal_never_does() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let path = config(here, &[]);
    fs::write(here.join("a.img"), vec![7; 8 << 20]).unwrap();
    let server = Server::start(here, "a", &["--config", &path]);
    config(here, &[stripe("s", r#"["a", "b"]"#)]);
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
    assert!(told.contains("disk a: --overwrite gives up what it held: other data"), "{told}");
    assert!(!told.contains("disk b"), "a blank disk gives up nothing: {told}");
    assert!(server.log().contains("disk a: --overwrite gives up"), "{}", server.log());
    assert_eq!(server.status()["volumes"][0]["bytes"], 14 << 20);
}
