//! `plateway check`: what a start would find, told beforehand, with nothing changed.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::common::{Server, configuration, flat, own_configuration, plateway, text, write};
use serde_json::Value;

type Named<'a> = &'a [(&'a str, &'a str)];

const STRIPE: &str = "layout = \"stripe\"\ndisks = [\"a\", \"b\"]";

/// Runs `check` in `directory`, of the configuration there: its exit code, and standard output and
/// error as a person reads them.
fn check(directory: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = plateway();
    let output = command.current_dir(directory).arg("check").args(args).output().unwrap();
    (output.status.code().expect("it ends by itself"), text(&output.stdout), flat(&output.stderr))
}

/// As [`check`], of these disks and volumes.
fn check_of(directory: &Path, disks: Named<'_>, volumes: Named<'_>) -> (i32, String, String) {
    write(directory, &own_configuration(directory, disks, volumes));
    check(directory, &[])
}

fn json(directory: &Path) -> (i32, Value) {
    let (code, out, err) = check(directory, &["--json"]);
    (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
}

fn names_in(directory: &Path) -> Vec<String> {
    let all = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        all.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn without_a_server_everything_is_new_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let disks =
        [("a", "file:a.img?create=8MiB"), ("b", "delay:5,model:ssd,ram:8MiB"), ("c", "null:1GiB")];
    let volumes = [("v0", "disks = [\"a\"]"), ("v1", "disks = [\"b\"]"), ("v2", "disks = [\"c\"]")];
    let (code, out, err) = check_of(here, &disks, &volumes);
    assert_eq!(code, 0, "{err}");
    for part in [
        "no server answers",
        "+ disk a: file:a.img?create=8MiB",
        "would be created with 8 MiB",
        "memory, zeros at first",
        "under a new identity",
        "free; the system would choose a port",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!(names_in(here), ["plateway.toml"]);
    let (_, found) = json(here);
    assert_eq!(found["disks"][0]["bytes"], 8 << 20);
    assert_eq!(found["volumes"][0]["bytes"], 8 << 20);
    assert_eq!(found["server"], Value::Null);
    assert_eq!(found["mistakes"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_disk_that_cannot_be_opened_is_shown_at_its_line_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::create_dir(here.join("folder")).unwrap();
    fs::write(here.join("large.img"), vec![0; 1 << 20]).unwrap();
    fs::write(here.join("wrong.toml"), "channels = 0\n").unwrap();
    let disks = [
        ("d0", "file:no.img"),
        ("d1", "file:none/a.img?create=8MiB"),
        ("d2", "file:folder"),
        ("d3", "/dev/no-such-disk"),
        ("d4", "file:large.img?create=512KiB"),
        ("d5", "delay:1,nvme+tcp://127.0.0.1/nqn.2026-11.net.plateway:v0/1"),
        ("d6", "model:./wrong.toml,ram:8MiB"),
        ("d7", "model:ssd?cut_ms=5,null:8MiB"),
    ];
    let (code, out, err) = check_of(here, &disks, &[("v0", "disks = [\"d0\"]")]);
    assert_eq!(code, 1);
    assert!(out.contains("waits for disk d0, which is refused"), "{out}");
    for part in [
        "8 mistakes",
        ":8:7]",
        "no.img: cannot open it",
        "a file is made with file:PATH?create=SIZE",
        "none/a.img: cannot make it",
        "expected a regular file, found a directory",
        "`lsblk -p` lists the block devices",
        "512 KiB were asked for by create, but the file is there and has 1 MiB",
        "expected ram:, null:, file: or a block device inside delay:, burn:, faulty: and model:",
        "./wrong.toml:1: channels: expected 1 to 256, seen 0",
        "disk d7: cut_ms of a model: expected one model with it around ram:",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let (code, found) = json(here);
    assert_eq!((code, found["disks"][0]["refused"].as_bool()), (1, Some(true)));
    let first = found["mistakes"][0].as_str().unwrap();
    assert!(first.contains("plateway.toml:8: error: disk d0"), "{first}");
}

#[test]
fn a_file_of_a_model_is_found_from_where_the_server_is_and_read_when_its_disk_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let file = here.join("m.toml");
    let uri = |seed| format!("delay:1,model:./m.toml?seed={seed},file:a.img?create=8MiB");
    let of = |seed| configuration(&[("d0", &uri(seed))], &[("v0", "disks = [\"d0\"]")]);
    fs::write(&file, "service_us = 10\n").unwrap();
    let server = Server::configured(here, &of(1));
    // Whoever asks is elsewhere.
    assert!(server.check(&of(1)).contains("served now"));
    assert!(server.ask(&["disks", "list"]).contains(&uri(1)), "as it was written");
    fs::write(&file, "service_us = -1\n").unwrap();
    let told = "m.toml:1: service_us: expected 0 to 60000000, seen -1";
    let said = server.refuse_apply(&of(2));
    assert!(said.contains(told), "{said}");
    assert!(server.ask(&["disks", "list"]).contains(&uri(1)), "it is served as before");
    fs::write(&file, "service_us = 20\n").unwrap();
    server.apply_anyway(&of(2));
    assert!(server.ask(&["disks", "list"]).contains(&uri(2)));
    server.stop();
}

#[test]
fn one_file_by_two_names_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a.img"), vec![0; 1 << 20]).unwrap();
    fs::hard_link(here.join("a.img"), here.join("b.img")).unwrap();
    let disks = [("a", "file:a.img"), ("b", "file:b.img")];
    let (code, _, err) = check_of(here, &disks, &[]);
    assert_eq!(code, 1);
    assert!(err.contains("disks a and b are the same blocks by two names"), "{err}");
    assert!(err.contains("first here"), "{err}");
    // A file that is not there yet, by two paths.
    let disks = [("a", "file:new.img?create=1MiB"), ("b", "file:./new.img?create=1MiB")];
    let (code, _, err) = check_of(here, &disks, &[]);
    assert!(code == 1 && err.contains("the same blocks by two names"), "{err}");
}

#[test]
fn a_remote_disk_is_not_contacted() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // Whoever connected would be seen here.
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap();
    let uri = format!("nvme+tcp://{address}/nqn.2026-11.net.plateway:v0/1");
    let disks = [("a", "file:a.img?create=8MiB"), ("r", uri.as_str())];
    let stripe = ("s", "layout = \"concat\"\ndisks = [\"a\", \"r\"]");
    let (code, out, err) = check_of(here, &disks, &[stripe]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("not contacted"), "{out}");
    assert!(out.contains("its labels are not all known"), "{out}");
    target.set_nonblocking(true).unwrap();
    assert!(target.accept().is_err(), "it was contacted");
}

#[test]
fn labels_are_read_and_judged_as_a_start_judges_them() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let disks = [("a", "file:a.img?create=8MiB"), ("b", "file:b.img?create=8MiB")];
    write(here, &own_configuration(here, &disks, &[("s", STRIPE)]));
    let (code, found) = json(here);
    assert_eq!((code, &found["volumes"][0]["bytes"]), (0, &Value::from(14 << 20)));
    assert_eq!(found["volumes"][0]["members"][1]["state"], "blank");
    let (_, out, _) = check(here, &[]);
    assert!(out.contains("its disks are blank and would be labelled"), "{out}");

    let server = Server::start(here, "a", &["--config", "plateway.toml"]);
    let uuid = server.uuid();
    // Beside the server that has them, which is asked by its socket.
    let shown = server.check(&own_configuration(here, &disks, &[("s", STRIPE)]));
    assert!(shown.contains("served now") && shown.contains("nothing changes"), "{shown}");
    // And beside one that is not asked: then they are in use by somebody.
    let (code, _, err) = check(here, &[]);
    assert!(code == 1 && err.contains("in use by"), "{err}");
    server.stop();

    let (code, found) = json(here);
    assert_eq!((code, &found["volumes"][0]["uuid"]), (0, &Value::from(uuid.as_str())));
    assert_eq!(found["volumes"][0]["members"][0]["state"], "matches");
    let swapped = "layout = \"stripe\"\ndisks = [\"b\", \"a\"]";
    let (code, out, err) = check_of(here, &disks, &[("s", swapped)]);
    assert_eq!(code, 1);
    assert!(out.contains("another set"), "{out}");
    assert!(err.contains("index 0") && err.contains("index 1") && err.contains(&uuid), "{err}");
    assert!(err.contains("plateway check FILE --overwrite s"), "{err}");
    assert!(err.contains(":15:"), "the line of the members: {err}");

    fs::write(here.join("b.img"), vec![1; 8 << 20]).unwrap();
    let (code, out, err) = check_of(here, &disks, &[("s", STRIPE)]);
    assert!(code == 1 && out.contains("other data") && err.contains("seen other data"), "{err}");
    let (code, out, err) = check(here, &["--overwrite", "s"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("would be labelled anew: all that they hold is given up"), "{out}");
    let (code, _, err) = check(here, &["--overwrite", "x"]);
    assert!(code == 1 && err.contains("expected one of the volumes s"), "{err}");
    assert!(fs::read(here.join("b.img")).unwrap() == vec![1; 8 << 20], "the disk was touched");
}

#[test]
fn check_and_serve_agree_on_block_sizes() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a.img"), vec![0; 1 << 20]).unwrap();
    for block in [512, 4096] {
        let volume = format!("disks = [\"a\"]\nblock_size = {block}");
        let (code, _, err) = check_of(here, &[("a", "file:a.img")], &[("v", &volume)]);
        let served = Server::try_start(here, "a", &["--config", "plateway.toml"]);
        assert_eq!(code == 0, served.is_ok(), "{block}: {err}");
        assert!(code == 0 || err.contains(&format!("block_size {block} on disk a")), "{err}");
    }
}

#[test]
fn a_start_refuses_what_check_refuses_in_the_same_words() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a.img"), vec![0; 1 << 20]).unwrap();
    fs::hard_link(here.join("a.img"), here.join("b.img")).unwrap();
    let short = STRIPE.replace(", \"b\"", "");
    let missing = format!("file:{}/new.img?create=1MiB", here.display());
    // Who had the volume is not understood any more.
    let uuid = "5d3cf1c2-30a2-4b5e-8d62-8f1b0b8d6a11";
    let held = format!("disks = [\"a\"]\nuuid = \"{uuid}\"");
    fs::create_dir_all(here.join("state/reservations")).unwrap();
    fs::write(here.join("state/reservations").join(uuid), "of another kind\n").unwrap();
    let of = |disks: &[_], volumes: &[_]| own_configuration(here, disks, volumes);
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let listening = |host: &str| of(&[], &[]).replace("127.0.0.1:0", &format!("{host}:{port}"));
    let tries = [
        of(&[("a", "file:a.img"), ("b", "file:b.img")], &[]),
        of(&[("a", "file:new.img?create=1MiB"), ("b", &missing)], &[]),
        of(&[("a", "file:none/a.img?create=1MiB")], &[]),
        of(&[("a", "file:a.img?create=4MiB")], &[]),
        of(&[("a", "aoe://nope0/7.0")], &[]),
        of(&[("a", "ram:8MiB")], &[("v", "disks = [\"a\"]\nsize = \"9MiB\"")]),
        of(&[("a", "file:small.img?create=1MiB")], &[("v", &short)]),
        of(&[("a", "ram:8MiB")], &[("v", &held)]),
        listening("127.0.0.1"),
        // Addresses of IPv4 as well, where all are meant.
        listening("[::]"),
        listening("192.0.2.1"),
    ];
    for text in tries {
        // Else a disk that is away is no reason to refuse a start.
        let required = |text: String, uri: &str| {
            text.replace(&format!("{uri}\""), &format!("{uri}\"\nrequired = true"))
        };
        let text = required(required(text, "none/a.img?create=1MiB"), "nope0/7.0");
        let text = required(text, "file:a.img?create=4MiB");
        write(here, &text);
        let (_, found) = json(here);
        let mistake = found["mistakes"][0].as_str().unwrap_or_else(|| panic!("{text}"));
        let words = mistake.split_once("error: ").unwrap().1;
        let words = words.split(" (").next().unwrap();
        let said = Server::try_start(here, "a", &["--config", "plateway.toml"]);
        let said = said.err().expect("it starts");
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!here.join("small.img").exists(), "a member was made that is too small");
}

#[test]
fn a_size_that_the_disks_do_not_hold_is_refused_at_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let volume = "disks = [\"a\"]\nsize = \"2MiB\"";
    let (code, _, err) = check_of(here, &[("a", "ram:1MiB")], &[("v", volume)]);
    assert_eq!(code, 1);
    assert!(err.contains("size 2 MiB: expected at most the 1 MiB that its disks hold"), "{err}");
    assert!(err.contains(":12:8]"), "{err}");
}

#[test]
fn disks_without_room_for_a_block_or_a_chunk_and_identities_of_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let says = |disks: &[(&str, &str)], volumes: &[(&str, &str)], words: &str| {
        let (code, _, err) = check_of(here, disks, volumes);
        let err = flat(err.as_bytes());
        assert!(code == 1 && err.contains(words), "no {words:?} in {err}");
    };
    let small = [("a", "ram:512"), ("b", "ram:1056KiB"), ("c", "ram:1056KiB")];
    let block = "disks = [\"a\"]\nblock_size = 4096";
    says(&small, &[("v", block)], "at least one block of 4096, seen 512 bytes");
    let chunk = "layout = \"stripe\"\ndisks = [\"b\", \"c\"]\nchunk = \"1MiB\"";
    says(&small, &[("v", chunk)], "expected at least 1 MiB");

    // An identity that is stored for one volume and written for another.
    let disks = [("a", "file:a.img?create=1MiB"), ("b", "file:b.img?create=1MiB")];
    let known = ("v", "disks = [\"a\"]");
    let server = Server::configured(here, &own_configuration(here, &disks, &[known]));
    let twin = format!("disks = [\"b\"]\nuuid = \"{}\"", server.uuid());
    server.stop();
    says(&disks, &[known, ("w", &twin)], "an identity of its own, seen that of volume v");
}

#[test]
fn an_address_that_somebody_has_is_refused_unless_it_is_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = own_configuration(here, &[], &[]).replace("127.0.0.1:0", &address);
    write(here, &config);
    let (code, _, err) = check(here, &[]);
    assert!(code == 1 && err.contains("cannot listen at") && err.contains("ss -ltnp"), "{err}");
    // A server has an address that the system chose, and is asked about it by name.
    let server = Server::configured(here, &configuration(&[], &[]));
    assert!(server.check(&configuration(&[], &[])).contains("the server has it now"));
}

/// The disks by name, each touched whole: the first has two thirds of the memory that there is.
fn touched() -> [(&'static str, String); 2] {
    let told = fs::read_to_string("/proc/meminfo").unwrap();
    let free = told.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let kibibytes: u64 = free.trim().trim_end_matches(" kB").parse().unwrap();
    let uri = format!("ram:{}KiB?touch=1", kibibytes / 3 * 2);
    [("d0", uri.clone()), ("d1", uri)]
}

#[test]
fn memory_that_is_to_be_touched_and_is_not_there_is_refused_with_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let v0 = ("v0", "disks = [\"d0\"]");
    let both = touched();
    let both = both.each_ref().map(|(name, uri)| (*name, &**uri));
    let (code, out, err) = check_of(here, &both, &[v0, ("v1", "disks = [\"d1\"]")]);
    // Of a machine with a limit the first may be too large as well.
    assert!(code == 1 && err.contains("disk d1: expected "), "{out}{err}");
    assert!(err.contains("of memory to touch, seen ") && err.contains("plateway.toml:"), "{err}");
    let huge = configuration(&[("d0", "ram:900TiB?touch=1")], &[v0]);
    let refused = Server::try_configured(here, &huge, &[]).err().expect("it ends");
    let words = "disk d0: expected 900 TiB of memory to touch, seen ";
    assert!(refused.contains(words) && refused.contains("leave touch=1 out"), "{refused}");
    let mut command = plateway();
    let output = command.args(["bench", "ram:900TiB?touch=1", "--time", "1"]).output().unwrap();
    assert!(!output.status.success() && flat(&output.stderr).contains("to touch, seen "));
    // A server that runs refuses it, and goes on.
    let small = configuration(&[("d0", "ram:32MiB?touch=1")], &[v0]);
    let server = Server::configured(here, &small);
    assert_eq!(server.status()["disks"][0]["uri"], "ram:32MiB?touch=1");
    let disks = [("d0", "ram:32MiB?touch=1"), ("d1", "ram:900TiB?touch=1")];
    let refused = server.refuse_apply(&configuration(&disks, &[v0, ("v1", "disks = [\"d1\"]")]));
    assert!(refused.contains("disk d1: expected 900 TiB of memory to touch"), "{refused}");
    // What is there is as it is, touched or not.
    let without = configuration(&[("d0", "ram:32MiB")], &[v0]);
    assert!(server.apply(&without).contains("nothing changes"));
}

#[test]
fn memory_is_taken_before_it_is_written_where_that_is_said_and_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let resident = |uri: &str| {
        let volumes = [("v0", "disks = [\"d0\"]")];
        let server = Server::configured(here, &configuration(&[("d0", uri)], &volumes));
        let status =
            fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let (without, with) = (resident("ram:256MiB"), resident("ram:256MiB?touch=1"));
    assert!(without < 200, "{without} MiB are resident");
    assert!(with >= without + 240, "{with} MiB are resident with it, {without} without");
}

#[test]
fn what_holds_less_than_it_promises_or_is_an_image_is_told_by_check_and_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    std::fs::write(here.join("vm.qcow2"), [&b"QFI\xfb"[..], &[0; 8188]].concat()).unwrap();
    let disks = [("d0", "file:vm.qcow2"), ("d1", "ram:900TiB")];
    let volumes = [("v0", "disks = [\"d0\"]"), ("v1", "disks = [\"d1\"]")];
    let path = write(here, &configuration(&disks, &volumes));
    let output = plateway().current_dir(here).args(["check", &path]).output().unwrap();
    let said = flat(&[output.stdout, output.stderr].concat());
    for part in ["disk d0: vm.qcow2 looks like a qcow2 image", "disk d1: 900 TiB of memory where "]
    {
        assert!(said.contains(part), "{said}");
    }
    let server = Server::configured(here, &configuration(&disks[..1], &volumes[..1]));
    server.wait_for_log("vm.qcow2 looks like a qcow2 image");
}

/// Whoever reads it by a program learns of what is wrong in the file, too.
#[test]
fn mistakes_of_the_file_are_told_as_json() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "[server]\nspeed = 1\n[[disk]]\nname = \"d0\"\n");
    let (code, found) = json(directory.path());
    assert_eq!(code, 1);
    let mistakes = found["mistakes"].as_array().expect("a list");
    let has = |part: &str| mistakes.iter().any(|one| one.as_str().unwrap().contains(part));
    assert!(has("speed") && has("uri"), "{found}");
}

#[test]
fn what_a_start_reads_in_the_state_directory_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let state = here.join("state");
    fs::create_dir(&state).unwrap();
    // Whatever this machine is called, its port follows from what is stored.
    let disks = [("far", "iscsi://127.0.0.1:1/iqn.2026-11.net.plateway:v0/0")];
    assert_eq!(check_of(here, &disks, &[]).0, 0);
    assert!(names_in(&state).is_empty(), "nothing is stored by a look");
    fs::write(state.join("paths"), "1=open by me, 1 change\n").unwrap();
    fs::write(state.join("host"), "nobody\n").unwrap();
    let (code, out, err) = check_of(here, &disks, &[]);
    assert_eq!(code, 1, "{out}");
    for part in [
        "cannot understand the states of groups of listeners: ",
        // Where the directory is named.
        "plateway.toml:3:9]",
        "disk far: cannot understand ",
        "expected a UUID",
        "\"nobody\"",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    fs::remove_file(state.join("host")).unwrap();
    // As a start has it.
    let args = ["serve", "--config", "plateway.toml"];
    let output = plateway().current_dir(here).args(args).output().unwrap();
    let said = flat(&output.stderr);
    assert!(said.contains("cannot understand the states of groups of listeners: "), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_secrets_of_remote_disks_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let uri = |user: &str, rest: &str| {
        format!("iscsi://{user}@127.0.0.1:1/iqn.2026-11.net.plateway:v0/{rest}")
    };
    let (right, gone) = (uri("a", "0?secret_file=right"), uri("b", "1?secret_file=gone"));
    let (short, none) = (uri("c", "2?secret_file=short"), uri("d", "3"));
    crate::chap::put(here, "right", "what the host knows");
    crate::chap::put(here, "short", "short");
    let disks = [("right", &*right), ("gone", &*gone), ("short", &*short), ("none", &*none)];
    let (code, out, err) = check_of(here, &disks, &[]);
    assert_eq!(code, 1, "{out}");
    for part in [
        "3 mistakes",
        "disk gone: cannot read the secret gone: No such file",
        "disk short: cannot use the secret of short: expected a secret of at least 12 bytes, seen 5",
        "disk none: no secret is configured for user d",
        "or set PLATEWAY_CHAP_SECRET",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    // A server reads files where it works, and has an environment of its own.
    let server = Server::configured(here, &configuration(&[], &[]));
    let other = tempfile::tempdir().unwrap();
    let config = write(other.path(), &configuration(&disks, &[]));
    let said = server.refuse(&["check", &config]);
    assert!(said.contains("disk gone: ") && said.contains("disk short: "), "{said}");
    assert!(!said.contains("disk right: ") && !said.contains("disk none: "), "{said}");
}
