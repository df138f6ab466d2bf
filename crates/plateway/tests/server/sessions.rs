//! `plateway session`: who is connected, and the end of a host's sessions.

use std::net::TcpStream;

use serde_json::Value;

use crate::client::{BLOCK, Controller};
use crate::common::Server;

const HOST: &str = "nqn.2026-11.net.plateway:host-7";

fn listed(server: &Server) -> Vec<Value> {
    let text = server.ask(&["session", "list", "--json"]);
    serde_json::from_str(&text).expect("a list")
}

#[test]
fn the_sessions_of_one_host_are_closed_and_it_may_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "ram:8MiB");
    assert_eq!(server.ask(&["session", "list"]), "no host is connected\n");
    let nobody = server.refuse(&["session", "close", HOST]);
    assert!(nobody.contains("seen none") && nobody.contains("are: none"), "{nobody}");

    let address = server.address.parse().unwrap();
    let first = Controller::connect(address, 7, 1);
    let second = Controller::connect(address, 7, 2);
    let mut queues = vec![first.queue(1, false), second.queue(1, false), second.queue(2, false)];
    let other = Controller::connect(address, 8, 1);
    let mut stays = other.queue(1, false);
    let hosts: Vec<String> =
        listed(&server).iter().map(|one| one["host"].as_str().unwrap().to_owned()).collect();
    assert_eq!(hosts.iter().filter(|host| *host == HOST).count(), 2, "{hosts:?}");
    let table = server.ask(&["session", "list"]);
    assert!(table.contains(HOST) && table.contains("nqn.2026-11.net.plateway:v0"), "{table}");
    let wrong = server.refuse(&["session", "close", "nqn.2026-11.a:nobody"]);
    assert!(wrong.contains(HOST) && wrong.contains("host-8"), "{wrong}");
    let no_name = server.refuse(&["session", "close", "me"]);
    assert!(no_name.contains("host me: expected one that has a session"), "{no_name}");

    let done = server.ask(&["session", "close", HOST]);
    assert_eq!(done, format!("closed 2 sessions of {HOST}, which may connect again\n"));
    for queue in &mut queues {
        assert!(queue.is_closed(), "it was told to go");
    }
    assert!(stays.try_write(0, &[1; BLOCK]).is_success(), "another host's");
    server.wait_for_log("an administrator closed its session");
    let left = listed(&server);
    assert_eq!(left.len(), 1, "{left:?}");
    let again = Controller::connect(address, 7, 1);
    assert!(again.queue(1, false).try_read(0).is_success());
    let done = server.ask(&["session", "close", HOST, "--json"]);
    assert_eq!(done, format!("\"closed the session of {HOST}, which may connect again\"\n"));
    drop(TcpStream::connect(address).expect("it listens as before"));
    server.stop();
}
