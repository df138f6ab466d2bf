//! iSCSI as a process serves, imports and shows it: sessions on several shards, what one does to
//! another, and our own initiator at our own target.

use std::process::Stdio;

use serde_json::Value;
use testkit::iscsi::Said;
use testkit::iscsi::host::Order;
use wire::iscsi::{LogoutReason, TaskFunction, TaskResponse};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus};

use crate::common::{Server, flat, plateway, text};
use crate::session::{BLOCK, HOST, Session, TARGET};

/// A server of two shards, with its address for iSCSI.
fn serve(directory: &std::path::Path) -> (Server, String) {
    let disk = ["ram:8MiB", "--iscsi", "127.0.0.1:0", "--hosts", HOST, "--shards", "0,1"];
    let server = Server::start(directory, "a", &disk);
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    (server, address)
}

fn listed(server: &Server) -> Vec<Value> {
    serde_json::from_str(&server.ask(&["session", "list", "--json"])).expect("a list")
}

#[test]
fn a_port_that_logs_in_again_ends_its_old_session_on_whichever_shard_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = serve(directory.path());
    let mut first = Session::log_in(&address, 1);
    assert_eq!(first.write(3, &[7; BLOCK as usize]), ScsiStatus::GOOD);
    for _ in 0..4 {
        let mut again = Session::log_in(&address, 1);
        assert_eq!(again.read(3), [7; BLOCK as usize]);
        assert!(first.is_closed());
        first = again;
    }
    let other = Session::log_in(&address, 2);
    assert_eq!(listed(&server).len(), 2);
    let done = server.ask(&["session", "close", HOST]);
    assert_eq!(done, format!("closed 2 sessions of {HOST}, which may connect again\n"));
    assert!(first.is_closed());
    drop(other);
    server.stop();
}

#[test]
fn what_one_session_resets_or_sets_the_others_hear_of() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = serve(directory.path());
    let mut sessions: Vec<Session> = (1..5).map(|port| Session::log_in(&address, port)).collect();
    let shards: Vec<u64> = server.status()["iscsi_sessions"]
        .as_array()
        .expect("sessions")
        .iter()
        .map(|one| one["shard"].as_u64().expect("a number"))
        .collect();
    assert!(shards.contains(&0) && shards.contains(&1), "{shards:?}");
    assert_eq!(sessions[0].manage(TaskFunction::LOGICAL_UNIT_RESET), TaskResponse::COMPLETE);
    assert_eq!(sessions[0].is_ready().status(), ScsiStatus::GOOD);
    for other in &mut sessions[1..] {
        assert_eq!(other.is_ready().sense().code, AdditionalSense::BUS_DEVICE_RESET);
        assert_eq!(other.is_ready().status(), ScsiStatus::GOOD);
    }
    // The control mode page as it is, with D_SENSE.
    let sense = Order::read(0, Cdb::mode_sense_6(0x0a, true, 255), 255);
    let Said::Data(_, mut list) = sessions[0].ask(sense, &[]) else { panic!("a mode page") };
    list[..4].fill(0);
    list[4] &= 0x7f;
    list[6] |= 0x04;
    let select = Order::write(0, Cdb::mode_select_6(list.len() as u8), list.len() as u32);
    assert_eq!(sessions[0].ask(select, &list).status(), ScsiStatus::GOOD);
    for other in &mut sessions[1..] {
        while other.is_ready().status() == ScsiStatus::GOOD {}
    }
    assert_eq!(sessions[3].manage(TaskFunction::TARGET_COLD_RESET), TaskResponse::COMPLETE);
    assert!(sessions.iter_mut().all(Session::is_closed));
    let mut last = Session::log_in(&address, 9);
    let (_, bytes) = last.host.logout(LogoutReason::CLOSE_SESSION, ());
    last.send(&bytes);
    assert!(matches!(last.hear(), Said::Logout(_)) && last.is_closed());
    server.stop();
}

#[test]
fn our_initiator_finds_copies_and_serves_what_our_target_has() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = serve(directory.path());
    let portal = format!("iscsi://{address}");
    let discover = |who: &str| {
        let output = plateway().args(["discover", &portal, "--initiator", who]).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", flat(&output.stderr));
        text(&output.stdout)
    };
    let found = discover(HOST);
    assert!(found.contains(TARGET) && found.contains(&address), "{found}");
    let nothing = discover("iqn.2026-11.a:stranger");
    assert!(nothing.contains("no target for us") && nothing.contains("stranger"), "{nothing}");
    let image = directory.path().join("image");
    std::fs::write(&image, vec![5; 8 << 20]).unwrap();
    let source = format!("file:{}", image.display());
    let disk = format!("{portal}/{TARGET}/0?initiator={HOST}");
    let copied = plateway().args(["copy", &source, &disk]).output().expect("it runs");
    assert!(copied.status.success(), "{}", flat(&copied.stderr));
    let left = format!("{HOST} left {TARGET}: it logged out");
    let logged_out = server.wait_for_log(&left).matches(&left).count();
    assert_eq!(Session::log_in(&address, 3).read(16_383), [5; BLOCK as usize]);
    let front = directory.path().join("front");
    std::fs::create_dir(&front).unwrap();
    let served = Server::start(&front, "b", &[&disk, "--iscsi", "127.0.0.1:0", "--hosts", "any"]);
    let mut through = Session::log_in(served.address.trim_start_matches("iscsi "), 4);
    assert_eq!(through.read(0), [5; BLOCK as usize]);
    assert_eq!(through.write(0, &[6; BLOCK as usize]), ScsiStatus::GOOD);
    assert_eq!(Session::log_in(&address, 5).read(0), [6; BLOCK as usize]);
    served.stop();
    // One session of each of its shards.
    assert!(server.log().matches(&left).count() > logged_out, "{}", server.log());
    server.stop();
}

/// Two volumes, of which the first is LUN 0 for these hosts; `more` is what else is exported.
fn two_volumes(size: &str, hosts: &str, more: &str) -> String {
    format!(
        "[[listener]]\niscsi = \"127.0.0.1:0\"\n\
         [[disk]]\nname = \"d0\"\nuri = \"ram:8MiB\"\n[[disk]]\nname = \"d1\"\nuri = \"ram:8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\nsize = \"{size}\"\n\
         [[volume]]\nname = \"v1\"\ndisks = [\"d1\"]\n\
         [[export]]\nvolume = \"v0\"\niscsi = {{ target = \"{TARGET}\", lun = 0, hosts = {hosts} }}\n{more}"
    )
}

/// The second volume as a LUN.
fn second(lun: u16, hosts: &str) -> String {
    format!(
        "[[export]]\nvolume = \"v1\"\niscsi = {{ target = \"{TARGET}\", lun = {lun}, hosts = {hosts} }}\n"
    )
}

#[test]
fn a_change_of_luns_is_told_to_a_session_that_goes_on_and_takes_from_those_who_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (any, mine, others) = ("\"any\"", format!("[\"{HOST}\"]"), "[\"iqn.2026-11.a:b\"]");
    let server = Server::configured(directory.path(), &two_volumes("4MiB", any, ""));
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    let mut session = Session::log_in(&address, 1);
    assert_eq!(session.write(0, &[7; BLOCK as usize]), ScsiStatus::GOOD);
    let attention = |session: &mut Session| session.is_ready().sense().code;

    // A LUN of other hosts is nothing to this one; its own is.
    server.apply(&two_volumes("4MiB", any, &second(1, others)));
    assert_eq!(session.is_ready().status(), ScsiStatus::GOOD);
    server.apply(&two_volumes("4MiB", any, &second(1, &mine)));
    assert_eq!(attention(&mut session), AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
    assert_eq!(server.status()["iscsi_sessions"][0]["luns"], 2);
    let shown = server.ask(&["volume", "resize", "v0", "8MiB"]);
    assert!(shown.contains("~ resize volume v0"), "{shown}");
    assert_eq!(attention(&mut session), AdditionalSense::CAPACITY_DATA_CHANGED);
    assert_eq!(session.read(0), [7; BLOCK as usize]);

    // Another number is taken away from who may use it, and given anew.
    let moved = two_volumes("8MiB", any, &second(2, &mine));
    let refused = server.refuse_apply(&moved);
    assert!(refused.contains(&format!("LUN 1: host {HOST} at 127.0.0.1:")), "{refused}");
    let done = server.apply_anyway(&moved);
    assert!(done.contains("- export v1") && done.contains("LUN 2, hosts iqn."), "{done}");
    assert_eq!(attention(&mut session), AdditionalSense::REPORTED_LUNS_DATA_CHANGED);

    // While one LUN names the host its session goes on.
    server.apply_anyway(&two_volumes("8MiB", others, &second(2, &mine)));
    assert_eq!(server.status()["iscsi_sessions"][0]["luns"], 1);
    let refused = server.refuse(&["host", "remove", "v1", HOST]);
    assert!(refused.contains(HOST) && refused.contains("--yes"), "{refused}");
    server.ask(&["host", "remove", "v1", HOST, "--yes"]);
    assert!(session.is_closed());
    server.ask(&["host", "add", "v1", &HOST.to_uppercase()]);
    let config = server.ask(&["config"]);
    assert!(config.contains(&format!("lun = 2, hosts = [\"{HOST}\"]")), "{config}");
    server.stop();
}

#[test]
fn a_disk_that_is_served_is_measured_beside_and_nobody_loses_a_session() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = serve(directory.path());
    let disk = format!("iscsi://{address}/{TARGET}/0?initiator={HOST}");
    let front = directory.path().join("front");
    std::fs::create_dir(&front).unwrap();
    let served = Server::start(&front, "b", &[&disk, "--iscsi", "127.0.0.1:0", "--hosts", "any"]);
    let before = listed(&server);
    let measure = || {
        let mut bench = plateway();
        bench.args(["bench", &disk, "--rw", "randread", "--bs", "4k", "--time", "300ms"]);
        bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    for bench in [measure(), measure()] {
        let output = bench.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", flat(&output.stderr));
    }
    let peers = |all: &[Value]| all.iter().map(|one| one["peer"].clone()).collect::<Vec<_>>();
    let (before, now) = (peers(&before), peers(&listed(&server)));
    assert!(
        !before.is_empty() && before.iter().all(|peer| now.contains(peer)),
        "{before:?} {now:?}"
    );
    served.stop();
    server.stop();
}

/// The target's sessions: ISID and address of each.
fn ports(server: &Server) -> Vec<(String, String)> {
    let status = server.status();
    let all = status["iscsi_sessions"].as_array().expect("sessions").iter();
    let word = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
    let mut ports: Vec<_> = all.map(|one| (word(one, "isid"), word(one, "peer"))).collect();
    ports.sort();
    ports
}

/// How each shard reaches the first disk.
fn remote(status: &Value) -> &str {
    status["disks"][0]["remote"].as_str().unwrap_or_default()
}

#[test]
fn a_disk_by_three_sessions_of_each_of_two_shards_is_one_disk_and_survives_their_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = serve(directory.path());
    let disk = format!("iscsi://{address}/{TARGET}/0?initiator={HOST}&sessions=3");
    let front = directory.path().join("front");
    std::fs::create_dir(&front).unwrap();
    let shards = [&disk, "--iscsi", "127.0.0.1:0", "--hosts", "any", "--shards", "0,1"];
    let served = Server::start(&front, "b", &shards);
    let is_whole = |status: &Value| remote(status).matches("with 3 sessions").count() == 2;
    let seen = served.wait_for("all sessions", is_whole);
    assert!(remote(&seen).contains(&format!("connected to {address} with 3 sessions")));
    let before = ports(&server);
    let isids: Vec<&str> = before.iter().map(|(isid, _)| isid.as_str()).collect();
    let numbers = |from: usize| -> Vec<u8> {
        let byte = |isid: &&str| u8::from_str_radix(&isid[from..from + 2], 16).expect("a byte");
        isids.iter().map(byte).collect()
    };
    let sessions: Vec<u8> = numbers(8).iter().map(|byte| byte & 31).collect();
    assert_eq!((sessions, numbers(10)), (vec![0, 0, 1, 1, 2, 2], vec![0, 1, 0, 1, 0, 1]));
    let hosts = served.address.trim_start_matches("iscsi ").to_owned();
    let mut through: Vec<Session> = (1..5).map(|port| Session::log_in(&hosts, port)).collect();
    for (number, session) in (0u32..).zip(through.iter_mut()) {
        assert_eq!(session.write(number, &[number as u8 + 1; BLOCK as usize]), ScsiStatus::GOOD);
    }
    // What one wrote all others read.
    for session in &mut through {
        (0..4).for_each(|number| {
            assert_eq!(session.read(number), [number as u8 + 1; BLOCK as usize]);
        });
    }
    let done = server.ask(&["session", "close", HOST]);
    assert!(done.starts_with("closed 6 sessions of"), "{done}");
    for (number, session) in (0u32..).zip(through.iter_mut()) {
        assert_eq!(session.write(number, &[number as u8 + 9; BLOCK as usize]), ScsiStatus::GOOD);
        assert_eq!(session.read(number), [number as u8 + 9; BLOCK as usize]);
    }
    served.wait_for("all sessions", is_whole);
    let after = ports(&server);
    assert!(before.iter().all(|port| !after.contains(port)), "{before:?} {after:?}");
    assert_eq!(after.iter().map(|(isid, _)| isid).collect::<Vec<_>>(), isids, "the same ports");
    drop(through);
    served.stop();
    // After a restart, too.
    let served = Server::start(&front, "b", &shards);
    served.wait_for("all sessions", is_whole);
    assert_eq!(ports(&server).iter().map(|(isid, _)| isid).collect::<Vec<_>>(), isids);
    served.stop();
    server.stop();
}

#[test]
fn a_session_that_a_target_does_not_admit_is_missing_and_the_disk_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let config = |most: &str| {
        let plain = two_volumes("8MiB", "\"any\"", "");
        plain.replace("127.0.0.1:0\"\n", &format!("127.0.0.1:0\"\n{most}\n"))
    };
    let server = Server::configured(directory.path(), &config("max_connections = 2"));
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    let front = directory.path().join("front");
    std::fs::create_dir(&front).unwrap();
    let disk = format!("iscsi://{address}/{TARGET}/0?sessions=3");
    let arguments = [&disk, "--iscsi", "127.0.0.1:0", "--hosts", "any", "--shards", "0"];
    let served = Server::start(&front, "b", &arguments);
    let state = format!("shard 0: connected to {address} with 2 of 3 sessions; session 3: ");
    served.wait_for("two sessions", |status| remote(status).starts_with(&state));
    let told = format!("session 3 of 3 with {address} is missing: ");
    served.wait_for_log(&told);
    let mut through = Session::log_in(served.address.trim_start_matches("iscsi "), 1);
    assert_eq!(through.write(3, &[7; BLOCK as usize]), ScsiStatus::GOOD);
    server.apply(&config("max_connections = 9"));
    served.wait_for("all sessions", |status| remote(status).ends_with("with 3 sessions"));
    assert_eq!(served.log().matches(&told).count(), 1, "it is told once");
    assert!(served.wait_for_log("with 3 sessions").contains(&format!("connected to {address}")));
    assert_eq!(through.read(3), [7; BLOCK as usize]);
    served.stop();
    server.stop();
}
