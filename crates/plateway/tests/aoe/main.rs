//! AoE through the program, across an Ethernet of two network namespaces: served beside NVMe/TCP,
//! found, copied to, changed by `apply`, killed and restarted.
//!
//! Where namespaces may not be made the tests say so and pass; what needs no Ethernet is tested
//! with the configuration.

mod behind;
mod captured;
#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod forged;
mod hosts;
mod lan;
mod mtu;
mod neighbours;
mod next_hops;
mod ports;
mod rate;
mod reservations;
mod routed;
#[path = "../common/session.rs"]
mod session;
mod station;
mod tunnels;
mod udp;
mod wires;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use contract::MacAddress;
use wire::aoe::{
    Address, Command, ConfigArgument, ConfigCommand, Directive, DirectiveCommand, ErrorCode,
    MaskArgument, MaskCommand, MaskError, ReserveArgument, ReserveCommand,
};

use wire::nvme::reservation::{AcquireAction, ChangePersist, RegisterAction, ReservationType};
use wire::nvme::{Command as NvmeCommand, Status};

use crate::client::{BLOCK, Controller};
use crate::common::{flat, text, write};
use crate::lan::{INITIATOR, INTERFACE, Lan, inside};
use crate::station::Station;

const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:v0";
const MIB: usize = 1 << 20;

/// Bytes that follow no pattern, the same for the same seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

fn file(directory: &Path, name: &str) -> String {
    format!("file:{}", directory.join(name).display())
}

/// A server of one file, over both protocols.
const BOTH: [&str; 9] = [
    "file:disk.img?create=16MiB",
    "--nvme",
    "127.0.0.1:0",
    "--aoe",
    "veth0/7.0",
    "--hosts",
    "any",
    "--memory",
    "64MiB",
];

#[test]
fn what_one_protocol_writes_the_other_reads() {
    for mtu in ["1500", "9000"] {
        let Some(lan) = Lan::make(mtu) else { return };
        let home = tempfile::tempdir().unwrap();
        let server = lan.serve(home.path(), &BOTH);
        let nvme = format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.address);
        let aoe = format!("aoe://{INTERFACE}/7.0");
        let (target, initiator) = (lan.target.as_str(), lan.initiator.as_str());
        for (seed, (writer, to), (reader, from)) in
            [(1, (target, &nvme), (initiator, &aoe)), (2, (initiator, &aoe), (target, &nvme))]
        {
            let written = bytes(seed, 16 * MIB);
            fs::write(home.path().join("written"), &written).unwrap();
            lan.run(writer, &["copy", &file(home.path(), "written"), to, "--overwrite"]);
            let read = file(home.path(), &format!("read-{seed}?create=16MiB"));
            lan.run(reader, &["copy", from, &read, "--overwrite"]);
            let read = fs::read(home.path().join(format!("read-{seed}"))).unwrap();
            assert!(read == written, "written to {to}, read from {from}, at MTU {mtu}");
        }
        let line = ["--rw", "randrw=50", "--time", "1", "--verify", "--overwrite"];
        lan.run(initiator, &[&["bench", &aoe][..], &line].concat());
        let status = server.status();
        let link = &status["links"][0];
        assert_eq!((link["interface"].as_str(), link["up"].as_bool()), (Some("veth0"), Some(true)));
        assert_eq!(link["mtu"].to_string(), mtu);
        assert!(link["received"].as_u64() > Some(0) && link["ring_frames"].as_u64() > Some(0));
        assert_eq!((link["uses"].as_u64(), link["promised"].as_u64()), (Some(1), Some(64)));
        let export = &status["aoe_exports"][0];
        assert!(export["writes"].as_u64() > Some(0) && export["read_bytes"].as_u64() > Some(0));
        let shown = server.ask(&["status"]);
        assert!(shown.contains("aoe exports") && shown.contains("7.0"), "{shown}");
    }
}

#[test]
fn exports_come_go_and_change_their_stations_by_apply() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let base = "[[disk]]\nname = \"d0\"\nuri = \"ram:4MiB\"\n\
                [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
                [[export]]\nvolume = \"v0\"\n";
    let aoe = |keys: &str| format!("{base}aoe = {{ interface = \"veth0\", shelf = 7, {keys} }}\n");
    let path = write(home.path(), &aoe("slot = 0, hosts = \"any\""));
    let server = lan.serve(home.path(), &["--config", &path]);
    let all = format!("aoe://{INTERFACE}");
    assert_eq!(lan.discover(&all), ["7.0 "]);
    let apply = |text: &str| {
        let said = server.apply(text);
        said.strip_suffix("applied\n").expect("it says so").to_owned()
    };
    // Another station alone: silence for this one.
    let steps = apply(&aoe("slot = 0, hosts = [\"02:00:00:00:00:99\"]"));
    assert_eq!(steps, "~ export v0: aoe 7.0: hosts any -> 02:00:00:00:00:99\n");
    assert_eq!(lan.discover(&all), [""; 0]);
    let began = std::time::Instant::now();
    lan.run(&lan.initiator, &["discover", &all, "--time", "2"]);
    assert!(began.elapsed().as_secs() >= 2, "it waits as long as it was told to");
    apply(&aoe(&format!("slot = 0, hosts = [\"{INITIATOR}\"]")));
    assert_eq!(lan.discover(&all), ["7.0 "]);
    // Another address, and one in a VLAN.
    let steps = apply(&aoe("slot = 3, hosts = \"any\""));
    assert_eq!(steps, "+ export v0: aoe 7.3 on veth0, hosts any\n- export v0: aoe 7.0 on veth0\n");
    assert_eq!(lan.discover(&all), ["7.3 "]);
    apply(&aoe("slot = 4, vlan = 5, hosts = \"any\""));
    assert_eq!(lan.discover(&all), [""; 0]);
    assert_eq!(lan.discover(&format!("{all}?vlan=5")), ["7.4 "]);
    // An interface that is not there is refused, by check and by apply, and nothing changes.
    write(home.path(), &aoe("slot = 4, hosts = \"any\"").replace("veth0", "nope0"));
    let refused = server.refuse(&["apply", &path]);
    assert!(refused.contains("link nope0: ") && refused.contains("veth0"), "{refused}");
    let refused = lan.refuse(&lan.target, &["check", &path]);
    assert!(
        refused.contains("expected an Ethernet interface") && refused.contains("nope0"),
        "{refused}"
    );
    assert_eq!(lan.discover(&format!("{all}?vlan=5")), ["7.4 "]);
    // Without exports the interface is closed.
    let steps = server.apply_anyway(&base.replace("[[export]]\nvolume = \"v0\"\n", ""));
    assert_eq!(
        steps,
        "- export v0: aoe 7.4 on veth0 vlan 5\n- link veth0 vlan 5: packet\napplied\n"
    );
    assert_eq!(server.status()["links"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_remote_disk_is_served_on_and_follows_its_size() {
    let Some(lan) = Lan::make("9000") else { return };
    let home = tempfile::tempdir().unwrap();
    let config = |size: &str| {
        format!(
            "[[disk]]\nname = \"d0\"\nuri = \"null:8MiB\"\n\
             [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\nsize = \"{size}\"\n\
             [[export]]\nvolume = \"v0\"\naoe = {{ interface = \"veth0\", shelf = 1, slot = 2, hosts = \"any\" }}\n"
        )
    };
    let path = write(home.path(), &config("4MiB"));
    let far = lan.serve(home.path(), &["--config", &path]);
    let near = {
        let home = home.path().join("near");
        fs::create_dir(&home).unwrap();
        let args = ["aoe://veth0/1.2?window=16", "--nvme", "127.0.0.1:0", "--hosts", "any"];
        crate::common::Server::try_start_by(lan.plateway(&lan.initiator), &home, "near", &args)
            .unwrap_or_else(|log| panic!("{log}"))
    };
    let size =
        |bytes: u64| move |status: &serde_json::Value| status["volumes"][0]["bytes"] == bytes;
    near.wait_for("the size", size(4 << 20));
    far.apply(&config("8MiB"));
    near.wait_for("the larger size", size(8 << 20));
    let status = near.status();
    let state = status["disks"][0]["remote"].as_str().expect("a remote disk");
    assert!(state.contains("connected to 1.2") && state.contains("on veth0"), "{state}");
    assert_eq!(status["links"][0]["used_for"], "imports");
}

/// What is stored of 7.0 says.
fn seen(station: &mut Station) -> (Vec<u8>, u8, u8) {
    let at = Address::new(7, 0);
    let config =
        station.done(at, Command::CONFIG, &ConfigArgument::request(ConfigCommand::READ, 0).emit());
    let length = usize::from(ConfigArgument::parse(&config).unwrap().length);
    let string = config[ConfigArgument::SIZE..][..length].to_vec();
    let read = MaskArgument { command: MaskCommand::READ, error: MaskError::NONE, count: 0 };
    let mask = station.done(at, Command::MAC_MASK, &read.emit());
    let read = ReserveArgument { command: ReserveCommand::READ, count: 0 };
    let reserved = station.done(at, Command::RESERVE, &read.emit());
    let counts = (
        MaskArgument::parse(&mask).unwrap().count,
        ReserveArgument::parse(&reserved).unwrap().count,
    );
    (string, counts.0, counts.1)
}

#[test]
fn what_initiators_set_survives_kill_9_and_a_damaged_file_is_left_alone() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = lan.serve(home.path(), &BOTH);
    let mut station = Station::new(&lan.initiator);
    let at = Address::new(7, 0);
    let set = ConfigArgument::request(ConfigCommand::SET, 5).emit();
    station.done(at, Command::CONFIG, &[&set[..], b"hello"].concat());
    let edit = MaskArgument { command: MaskCommand::EDIT, error: MaskError::NONE, count: 1 };
    let add = Directive { command: DirectiveCommand::ADD, mac: station.mac() };
    station.done(at, Command::MAC_MASK, &[&edit.emit()[..], &add.emit()[..]].concat());
    let reserve = ReserveArgument { command: ReserveCommand::SET, count: 1 };
    station.done(at, Command::RESERVE, &[&reserve.emit()[..], &station.mac().0[..]].concat());
    let all = (b"hello".to_vec(), 1, 1);
    assert_eq!(seen(&mut station), all);
    // What was answered is durable.
    server.kill();
    let server = lan.serve_again(home.path(), &BOTH);
    assert_eq!(seen(&mut station), all);
    assert_eq!(lan.discover(&format!("aoe://{INTERFACE}")), ["7.0 hello"]);
    server.stop();
    let stored = |kind: &str| {
        let mut files = fs::read_dir(home.path().join("state").join(kind)).expect("it was made");
        files.next().expect("a file").expect("a file").path()
    };
    let path = stored("aoe");
    let good = fs::read_to_string(&path).unwrap();
    assert!(stored("reservations").exists());
    fs::write(&path, "config of another kind\n").unwrap();
    let command = lan.plateway(&lan.target);
    let refused = common::Server::try_start_by(command, home.path(), "aoe", &BOTH);
    let refused = refused.err().expect("it cannot be understood");
    let disk = file(home.path(), "disk.img?create=16MiB");
    let state = home.path().join("state").display().to_string();
    let config = format!(
        "[server]\ncontrol = \"{state}/none\"\nstate = \"{state}\"\n\
         [[disk]]\nname = \"d\"\nuri = \"{disk}\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d\"]\n\
         [[export]]\nvolume = \"v0\"\naoe = {{ interface = \"{INTERFACE}\", shelf = 7, slot = 0, hosts = \"any\" }}\n"
    );
    let checked = lan.refuse(&lan.target, &["check", &write(home.path(), &config)]);
    let why = "cannot understand the config string and MAC mask of volume v0 at 7.0";
    assert!(refused.contains(why) && checked.contains(why), "{refused}\n{checked}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "config of another kind\n");
    fs::write(&path, good).unwrap();
    let _server = lan.serve_again(home.path(), &BOTH);
    assert_eq!(seen(&mut station), all);
}

#[test]
fn a_station_and_an_nvme_host_fence_each_other() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = lan.serve(home.path(), &BOTH);
    let address = server.address.parse().unwrap();
    let (_host, mut queue) = inside(&lan.target, move || {
        let host = Controller::connect(address, 1, 1);
        let queue = host.queue(1, false);
        (host, queue)
    });
    let mut write = || queue.try_write(0, &[7; BLOCK]).without_hints();
    let mut station = Station::new(&lan.initiator);
    let at = Address::new(7, 0);
    let list = |command| {
        let argument = ReserveArgument { command, count: 1 };
        [&argument.emit()[..], &INITIATOR.parse::<MacAddress>().unwrap().0[..]].concat()
    };
    station.done(at, Command::RESERVE, &list(ReserveCommand::SET));
    assert_eq!(write(), Status::RESERVATION_CONFLICT);
    // The host means to share it, and then not to.
    let register =
        NvmeCommand::reservation_register(1, RegisterAction::REGISTER, ChangePersist::KEEP);
    assert_eq!(queue.try_reserve(register, 0, 7), Status::SUCCESS);
    let own_key = 0x0200_0000_0002;
    assert_eq!(queue.report().registrants.len(), 2);
    let kind = ReservationType::EXCLUSIVE_ACCESS_ALL;
    let fence = NvmeCommand::reservation_acquire(1, AcquireAction::PREEMPT_AND_ABORT, kind);
    assert_eq!(queue.try_reserve(fence, 7, own_key), Status::SUCCESS);
    let (header, _) = station.ask(at, Command::ATA, &testkit::aoe::ata(0x34, 0, 1, &[1; BLOCK]));
    assert!(header.flags.is_error() && header.error == ErrorCode::RESERVED, "{header:?}");
    assert_eq!(queue.try_write(0, &[7; BLOCK]), Status::SUCCESS);
    // The station takes it back.
    station.done(at, Command::RESERVE, &list(ReserveCommand::FORCE));
    assert_eq!(queue.try_write(0, &[7; BLOCK]).without_hints(), Status::RESERVATION_CONFLICT);
    let report = queue.report();
    assert_eq!((report.header.kind, report.registrants.len()), (kind, 1));
    assert_eq!((report.registrants[0].key, report.registrants[0].holds()), (own_key, true));
    station.done(at, Command::ATA, &testkit::aoe::ata(0x34, 0, 1, &[1; BLOCK]));
}

#[test]
fn what_cannot_be_stored_is_refused_and_not_changed() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = lan.serve(home.path(), &BOTH);
    let mut station = Station::new(&lan.initiator);
    let at = Address::new(7, 0);
    let set = |string: &[u8]| {
        let set = ConfigArgument::request(ConfigCommand::FORCE, string.len() as u16).emit();
        [&set[..], string].concat()
    };
    station.done(at, Command::CONFIG, &set(b"first"));
    // Where the directory was, there is a file now.
    let (state, aside) = (home.path().join("state"), home.path().join("aside"));
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "not a directory").unwrap();
    let (header, _) = station.ask(at, Command::CONFIG, &set(b"second"));
    assert!(header.flags.is_error() && header.error == ErrorCode::DEVICE_UNAVAILABLE, "{header:?}");
    assert_eq!(seen(&mut station).0, b"first");
    server.wait_for_log("cannot store the config string");
    // It is there again, and what is asked for is done.
    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    station.done(at, Command::CONFIG, &set(b"third"));
    assert_eq!(seen(&mut station).0, b"third");
}

#[test]
fn kill_9_in_the_middle_of_writes_loses_nothing_that_was_answered() {
    let Some(lan) = Lan::make("9000") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = lan.serve(home.path(), &BOTH);
    let line = "bench aoe://veth0/7.0 --rw randrw=30 --iodepth 16 --time 6 --warmup 0 --verify --overwrite";
    let mut command = lan.plateway(&lan.initiator);
    command.args(line.split_whitespace());
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let wrote =
        |status: &serde_json::Value| status["aoe_exports"][0]["writes"].as_u64() > Some(100);
    server.wait_for("writes", wrote);
    server.kill();
    let _server = lan.serve_again(home.path(), &BOTH);
    // The initiator sends again what was not answered, and reads everything back.
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), flat(&output.stderr));
    assert!(text(&output.stdout).contains(" 0 wrong"), "{}", text(&output.stdout));
}

#[test]
fn a_wrong_word_of_aoe_is_shown_at_its_line() {
    let home = tempfile::tempdir().unwrap();
    let text = "[[disk]]\nname = \"d0\"\nuri = \"aoe://eth1/7\"\n\
                [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
                [[export]]\nvolume = \"v0\"\naoe = { interface = \"eth1\", shelf = 70000, slot = 0, hosts = \"any\" }\n";
    let path = write(home.path(), text);
    let output = common::plateway().args(["check", &path]).output().unwrap();
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "a shelf of 0 to 65534, a dot and a slot",
        "shelf: expected 0 to 65534, seen 70000",
        "plateway.toml:3:",
        "plateway.toml:9:",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
