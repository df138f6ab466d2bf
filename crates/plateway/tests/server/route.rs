//! Routers through the program's command line: started, checked, shown, counted and changed. What
//! frames do between routers is tested over AoE (aoe/routed.rs); here no interface is needed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Server, flat, plateway, text, write};

/// A router of tables alone: a label that ends here.
const TABLES: &str =
    "[[router]]\nname = \"ler1\"\n[[ilm]]\nlabel = 300\nfec = \"b-a\"\npop = true\n";

#[test]
fn a_router_is_shown_counted_and_changed() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::configured(home.path(), TABLES);
    let shown = server.ask(&["route", "show"]);
    assert!(shown.starts_with("router ler1 on shard 0, quarantine of labels 60 s\n"), "{shown}");
    let row = shown.lines().find(|line| line.trim_start().starts_with("300 "));
    let words: Vec<&str> = row.expect("the label").split_whitespace().collect();
    assert_eq!(words[..5], ["300", "any", "port", "pop", "b-a"], "{shown}");
    let shown: Value = serde_json::from_str(&server.ask(&["route", "show", "--json"])).unwrap();
    assert_eq!(shown["routers"][0]["labels"][0]["label"], 300);
    let status = server.status();
    assert_eq!(
        (&status["routers"][0]["name"], &status["routers"][0]["labels"]),
        (&"ler1".into(), &1.into())
    );
    let shown = server.ask(&["status"]);
    assert!(shown.contains("\nrouters\n") && shown.contains("0 of 0"), "{shown}");
    // It does not complain that nothing is exported, and says what it is.
    let log = server.log();
    assert!(!log.contains("nothing is exported"), "{log}");
    let said = server.apply(&TABLES.replace("label = 300", "label = 301"));
    assert_eq!(said, "+ ilm 301 of ler1: pop, fec b-a\n- ilm 300 of ler1: pop, fec b-a\napplied\n");
    let refused = server.refuse_apply(&TABLES.replace("b-a", "c-a"));
    let wait = "label 300 was that of ilm 300 of ler1 a moment ago";
    assert!(refused.contains(wait) && refused.contains("apply it again in "), "{refused}");
    server.stop();
}

#[test]
fn the_command_for_routers_runs_a_file_that_has_one_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("c.sock").display().to_string();
    let state = home.path().join("state").display().to_string();
    let server = format!("[server]\nmemory = \"64MiB\"\ncontrol = {socket:?}\nstate = {state:?}\n");
    let path = write(home.path(), &(server.clone() + TABLES));
    let run = |args: &[&str]| {
        let output = plateway().args(["route"]).args(args).output().unwrap();
        (output.status.success(), text(&output.stdout), flat(&output.stderr))
    };
    for args in [&["check", &path][..], &["check", "--config", &path, "--json"]] {
        let (is_good, said, _) = run(args);
        assert!(is_good && said.contains("+ router ler1: quarantine 60s"), "{args:?}: {said}");
    }
    let (is_good, _, said) = run(&["check", &path, "--overwrite", "v9", "--control", &socket]);
    assert!(!is_good && said.contains("--overwrite v9"), "{said}");
    let command = &mut plateway();
    let mut child =
        command.args(["route", "--config", &path]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.find_map(|line| line.ok()?.strip_prefix("ready: ").map(str::to_owned));
    assert_eq!(ready.as_deref(), Some("router ler1"));
    for server in [["--control", &socket], ["--config", &path]] {
        let (is_good, said, why) = run(&[&["show"][..], &server].concat());
        assert!(is_good && said.starts_with("router ler1 on shard 0"), "{said}{why}");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    fs::write(&path, server + "[[disk]]\nname = \"d0\"\nuri = \"ram:1MiB\"\n").unwrap();
    let (is_good, _, said) = run(&["--config", &path]);
    assert!(!is_good && said.contains("expected a router, seen none"), "{said}");
    assert!(said.contains("plateway serve --config"), "{said}");
}
