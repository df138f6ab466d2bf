//! Each command that asks a server, from any folder and in JSON; and those that need none.

use std::fs;

use serde_json::Value;

use crate::common::{Server, configuration, flat, plateway};

const HOST: &str = "nqn.2026-11.net.plateway:somebody";

#[test]
fn each_command_finds_the_server_by_its_configuration_and_answers_in_json() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    let socket = format!("[server]\ncontrol = \"{}\"\n", here.join("a.sock").display());
    let config = socket + &configuration(&[("d0", "ram:8MiB")], &[("v0", "disks = [\"d0\"]")]);
    let config = config.replace("\"any\"", &format!("[\"{HOST}\"]"));
    let server = Server::configured(here, &config);
    let file = here.join("plateway.toml").display().to_string();
    let commands: [(&[&str], &str); 15] = [
        (&["status"], "\"volumes\":"),
        (&["config"], "ram:8MiB"),
        (&["disks", "list"], "ram:8MiB"),
        (&["disks", "reopen", "d0"], "d0 took writes all the time"),
        (&["volume", "resize", "v0", "4MiB"], "size all of its disks -> 4 MiB"),
        (&["volume", "resize", "v0", "all"], "size 4 MiB -> all of its disks"),
        (&["host", "add", "v0", "nqn.2026-11.a:b"], "nqn.2026-11.a:b"),
        (&["host", "remove", "v0", "nqn.2026-11.a:b"], "nqn.2026-11.a:b"),
        (&["session", "list"], ""),
        (&["connect", "v0"], "nvme connect -t tcp -a 127.0.0.1"),
        (&["reservation", "clear", "v0"], "v0 has no reservation"),
        (&["group", "set", "1", "optimized"], "group 1 is optimized already"),
        (&["check"], "the server has it now"),
        (&["apply"], "\"steps\":[]"),
        (&["apply", "--yes", "--allow-empty"], "\"steps\":[]"),
    ];
    for (command, words) in commands {
        let mut asking = plateway();
        asking.current_dir("/").args(command).args(["--config", &file, "--json"]);
        let answer = asking.output().unwrap();
        let said = flat(&[&answer.stdout[..], &answer.stderr].concat());
        assert!(answer.status.success(), "{command:?}: {said}");
        let json: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
        assert!(json.to_string().contains(words), "{command:?}: no {words:?} in: {json}");
    }
    let ram = ["disks", "accept", "d0", "--config", &file];
    let accepted = plateway().args(ram).output().unwrap();
    let said = flat(&accepted.stderr);
    assert!(said.contains("disk d0: expected a file or a block device, seen ram:8MiB"), "{said}");
    let config: Value = serde_json::from_str(&server.ask(&["config", "--json"])).expect("JSON");
    assert_eq!(config["disk"][0]["uri"], "ram:8MiB");
    server.stop();
}

#[test]
fn a_first_configuration_is_written_once_and_checked_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let ask = |args: &[&str]| plateway().current_dir(home.path()).args(args).output().unwrap();
    let made = ask(&["init", "first.toml"]);
    assert!(made.status.success(), "{}", flat(&made.stderr));
    fs::create_dir(home.path().join("state")).unwrap();
    let checked = ask(&["check", "first.toml"]);
    let said = flat(&[checked.stdout, checked.stderr].concat());
    assert!(checked.status.success(), "{said}");
    fs::write(home.path().join("first.toml"), "mine").unwrap();
    let again = ask(&["init", "first.toml"]);
    assert!(flat(&again.stderr).contains("cannot write first.toml"), "{}", flat(&again.stderr));
    assert_eq!(fs::read(home.path().join("first.toml")).unwrap(), b"mine");
}

#[test]
fn the_schema_takes_a_configuration_and_no_key_that_nobody_knows() {
    let output = plateway().arg("schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let judge = jsonschema::validator_for(&schema).expect("a schema");
    let takes = |disk: &Value| judge.is_valid(&serde_json::json!({ "disk": [disk] }));
    assert!(takes(&serde_json::json!({ "name": "d0", "uri": "ram:1MiB" })));
    assert!(!takes(&serde_json::json!({ "name": "d0", "urii": "ram:1MiB" })));
}

#[test]
fn a_demonstration_that_finds_no_room_for_its_files_says_where() {
    let home = tempfile::tempdir().unwrap();
    let none = home.path().join("none");
    let output = plateway().env("TMPDIR", &none).args(["demo", "--keep", "--json"]).output();
    let output = output.unwrap();
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot make {}", none.display())), "{said}");
}
