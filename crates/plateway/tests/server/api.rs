//! What the control socket says of itself, against what it does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{BLOCK, Batch, Controller, Kind};
use crate::common::{Server, configuration, plateway, text};

const V0: (&str, &str) = ("v0", "disks = [\"d0\"]");

/// Asks; returns the code and the body.
fn ask(directory: &Path, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut socket = UnixStream::connect(directory.join("a.sock")).expect("a server");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    write!(socket, "{head}Content-Length: {length}\r\n\r\n{body}").expect("it listens");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).expect("a code").parse().expect("a number");
    (code, body.to_owned())
}

fn json_of(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn every_documented_request_is_answered_as_documented() {
    let home = tempfile::tempdir().unwrap();
    let config = configuration(&[("d0", "ram:8MiB")], &[V0]);
    let _server = Server::configured(home.path(), &config);
    let document = json_of(&text(&plateway().arg("api").output().unwrap().stdout));
    assert_eq!(document, json_of(&ask(home.path(), "GET", "/openapi.json", "").1));
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")));
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 14, "{paths:?}");
    for (path, methods) in paths {
        for (method, told) in methods.as_object().expect("methods") {
            let body =
                if path.ends_with("check") || path.ends_with("apply") { &*config } else { "" };
            let known = if path.contains("disks") { "d0" } else { "v0" };
            let of_host = path.ends_with("hosts") || path.ends_with("sessions");
            let more = match path.contains("groups") {
                true => "?state=non-optimized",
                false if path.ends_with("bins") => "?port=eth1&milliseconds=1",
                false if of_host => "?host=nqn.2026-11.a:b",
                false => "",
            };
            let asked = path.replace("{name}", known).replace("{group}", "1") + more;
            let (code, body) = ask(home.path(), &method.to_uppercase(), &asked, body);
            assert!(told["summary"].is_string(), "{path}: {told}");
            let answer = &told["responses"][code.to_string()];
            assert!(answer.is_object(), "{path}: {code} is not documented: {body}");
            let Some(schema) = answer.pointer("/content/application~1json/schema") else {
                continue;
            };
            let answer = json_of(&body);
            if path != "/openapi.json" {
                assert_eq!(answer["schema_version"], 1, "{path}: {answer}");
            }
            let mut whole = json!({ "components": document["components"] });
            whole.as_object_mut().unwrap().extend(schema.as_object().expect("a schema").clone());
            let judge = jsonschema::validator_for(&whole).expect("a schema");
            let wrong: Vec<String> =
                judge.iter_errors(&answer).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{path}: {wrong:?}: {answer:#}");
        }
    }
}

#[test]
fn what_is_no_request_is_told_so() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::configured(home.path(), &configuration(&[("d0", "ram:8MiB")], &[V0]));
    for (method, path, code) in [
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("PUT", "/v1/status", 405),
        ("DELETE", "/v1/sessions", 400),
        ("POST", "/v1/volumes/v0/hosts", 400),
        ("POST", "/v1/groups/1", 400),
        ("POST", "/v1/groups/1?state=asleep", 400),
        ("POST", "/v1/routers/bins?port=eth1", 400),
        ("POST", "/v1/routers/bins?port=eth1&milliseconds=0", 400),
        ("POST", "/v1/routers/bins?port=eth1&milliseconds=10001", 400),
    ] {
        let (seen, body) = ask(home.path(), method, path, "");
        assert_eq!(seen, code, "{method} {path}: {body}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_words() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::configured(home.path(), &configuration(&[("d0", "ram:8MiB")], &[V0]));
    let host = "hosts?host=nqn.2026-11.a:b";
    for (method, path, body, words) in [
        ("POST", "check", "[[disk]]", "name"),
        ("POST", "apply", "[[disk]]", "name"),
        ("POST", "disks/d7/reopen", "", "d7"),
        ("POST", "volumes/v7/resize?bytes=4194304", "", "v7"),
        ("POST", "volumes/v0/resize?bytes=16777216", "", "8 MiB"),
        ("POST", &format!("volumes/v7/{host}"), "", "v7"),
        ("DELETE", &format!("volumes/v7/{host}"), "", "v7"),
        ("POST", "volumes/v7/reservation/clear", "", "v7"),
        ("POST", "groups/9?state=standby", "", "there are 1"),
        ("DELETE", "sessions?host=nqn.2026-11.a:b", "", "nqn.2026-11.a:b"),
        ("POST", "routers/bins?port=eth1&milliseconds=1", "", "there is no port \"eth1\""),
    ] {
        let (seen, answer) = ask(home.path(), method, &format!("/v1/{path}"), body);
        assert_eq!(seen, 409, "{method} {path}: {answer}");
        assert!(answer.contains(words), "{method} {path}: no {words:?} in: {answer}");
    }
}

#[test]
fn a_server_that_is_ending_says_so_while_it_waits_for_what_is_under_way() {
    let home = tempfile::tempdir().unwrap();
    // Well within the 5 s for which a server waits.
    let config = configuration(&[("d0", "delay:3000000,ram:8MiB")], &[V0]);
    let server = Server::configured(home.path(), &config);
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    queue.submit(Batch { kind: Kind::Read, size: BLOCK, depth: 1 }, 0, &[0; BLOCK]);
    server.wait_for("the read", |status| status["disks"][0]["counters"]["reads"] == 1);
    server.signal(Signal::TERM);
    let (code, body) = loop {
        let answer = ask(home.path(), "GET", "/v1/status", "");
        if answer.0 != 200 {
            break answer;
        }
    };
    assert_eq!((code, body.as_str()), (503, "the server is ending"));
    server.wait_for_end();
}

#[test]
fn steps_are_objects() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::configured(home.path(), &configuration(&[("d0", "ram:8MiB")], &[V0]));
    let poll = "poll = \"50us\"\n[[disk]]\nname = \"d1\"\nuri = \"ram:1MiB\"\n";
    let config = configuration(&[("d0", "ram:8MiB")], &[V0]);
    let config = config.replacen("127.0.0.1:0\"\n", &format!("127.0.0.1:0\"\n{poll}"), 1);
    let (_, body) = ask(home.path(), "POST", "/v1/check", &config);
    let steps = json_of(&body)["steps"].clone();
    let expected = json!([
        { "action": "add", "thing": "disk d1", "text": "+ disk d1: ram:1MiB" },
        {
            "action": "change",
            "thing": "listener nvme 127.0.0.1:0",
            "text": "~ listener nvme 127.0.0.1:0: poll auto -> 50us"
        },
    ]);
    assert_eq!(steps, expected);
}
