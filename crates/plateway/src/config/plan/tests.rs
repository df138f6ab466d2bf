//! Plans: what is printed, in which order, and that steps undo each other.

use super::super::check;
use super::super::defaults::Defaults;
use super::*;

const SERVER: &str = "[server]\nmemory = \"64MiB\"\n[[listener]]\nnvme = \"127.0.0.1:4420\"\n";

fn disk(name: &str, uri: &str) -> String {
    format!("[[disk]]\nname = \"{name}\"\nuri = \"{uri}\"\n")
}

fn volume(name: &str, disks: &str, more: &str) -> String {
    let layout = if disks.contains(',') { "stripe" } else { "single" };
    format!("[[volume]]\nname = \"{name}\"\nlayout = \"{layout}\"\ndisks = [{disks}]\n{more}\n")
}

fn export(volume: &str, nsid: u32, hosts: &str) -> String {
    let nvme =
        format!("{{ subsystem = \"nqn.2026-11.a:{volume}\", nsid = {nsid}, hosts = {hosts} }}");
    format!("[[export]]\nvolume = \"{volume}\"\nnvme = {nvme}\n")
}

fn aoe(volume: &str, interface: &str, slot: u32, hosts: &str) -> String {
    format!(
        "[[export]]\nvolume = \"{volume}\"\naoe = {{ interface = {interface}, shelf = 7, slot = {slot}, hosts = {hosts} }}\n"
    )
}

/// A RAM disk with its volume and its export.
fn simple(i: u32) -> String {
    let (d, v) = (format!("d{i}"), format!("v{i}"));
    disk(&d, "ram:1GiB") + &volume(&v, &format!("\"{d}\""), "") + &export(&v, 1, "\"any\"")
}

fn args(parts: &[&str]) -> HiArgs {
    let defaults = Defaults { cpus: vec![0, 1], control: "/c".into(), state: "/s".into() };
    match check("p.toml", &parts.concat(), &defaults) {
        Ok(checked) => checked.args,
        Err(wrong) => panic!("{:#?}", wrong.lines().collect::<Vec<_>>()),
    }
}

fn steps(from: &HiArgs, to: &HiArgs) -> Vec<String> {
    plan(from, to).unwrap().to_string().lines().map(str::to_owned).collect()
}

fn refusals(from: &HiArgs, to: &HiArgs) -> Vec<String> {
    plan(from, to).unwrap_err().iter().map(Refused::to_string).collect()
}

/// Carries a plan out on values: the things that result, by title.
fn perform(args: &HiArgs, steps: &[Step]) -> Vec<Thing> {
    crate::checks::perform(args.things().collect(), steps)
}

fn sorted(args: &HiArgs) -> Vec<Thing> {
    perform(args, &[])
}

#[test]
fn nothing_changes() {
    let same = args(&[SERVER, &simple(0)]);
    assert_eq!(plan(&same, &same).unwrap().to_string(), "nothing changes");
}

#[test]
fn a_start_adds_everything_from_the_bottom_up() {
    let stripe = disk("d0", "ram:1GiB")
        + &disk("d1", "ram:1GiB")
        + &volume("v0", "\"d0\", \"d1\"", "size = \"1GiB\"");
    let plan = Plan::initial(&args(&[SERVER, &stripe, &export("v0", 3, "[\"nqn.2026-11.a:h\"]")]));
    let lines = [
        "+ disk d0: ram:1GiB",
        "+ disk d1: ram:1GiB",
        "+ volume v0: stripe over d0 d1, chunk 64KiB, blocks of 512, size 1GiB",
        "+ listener nvme 127.0.0.1:4420",
        "+ export v0: nqn.2026-11.a:v0 namespace 3, hosts nqn.2026-11.a:h",
    ];
    assert_eq!(plan.to_string(), lines.join("\n"));
}

#[test]
fn additions_come_before_removals_where_nothing_is_claimed() {
    let (from, to) =
        (args(&[SERVER, &simple(0), &simple(1)]), args(&[SERVER, &simple(1), &simple(2)]));
    assert_eq!(
        steps(&from, &to),
        [
            "+ disk d2: ram:1GiB",
            "+ volume v2: single on d2, blocks of 512",
            "+ export v2: nqn.2026-11.a:v2 namespace 1, hosts any",
            "- export v0: nqn.2026-11.a:v0 namespace 1",
            "- volume v0: single on d0, blocks of 512",
            "- disk d0: ram:1GiB",
        ]
    );
}

#[test]
fn a_disk_that_moves_to_another_volume_is_freed_first() {
    let from = args(&[
        SERVER,
        &disk("d0", "ram:1GiB"),
        &volume("v0", "\"d0\"", ""),
        &export("v0", 1, "\"any\""),
    ]);
    let to = args(&[
        SERVER,
        &disk("d0", "ram:1GiB"),
        &volume("v1", "\"d0\"", ""),
        &export("v1", 1, "\"any\""),
    ]);
    let lines = steps(&from, &to);
    let signs: Vec<&str> = lines.iter().map(|line| &line[..8]).collect();
    assert_eq!(signs, ["- export", "- volume", "+ volume", "+ export"]);
}

#[test]
fn another_disk_under_a_name_replaces_what_stands_on_it() {
    let from = args(&[SERVER, &simple(0), &simple(1)]);
    let to = args(&[SERVER, &simple(0).replace("ram:1GiB", "file:/srv/a.img"), &simple(1)]);
    assert_eq!(
        steps(&from, &to),
        [
            "- export v0: nqn.2026-11.a:v0 namespace 1",
            "- volume v0: single on d0, blocks of 512",
            "- disk d0: ram:1GiB",
            "+ disk d0: file:/srv/a.img",
            "+ volume v0: single on d0, blocks of 512",
            "+ export v0: nqn.2026-11.a:v0 namespace 1, hosts any",
        ]
    );
}

#[test]
fn a_listener_that_moves_to_a_wildcard_is_closed_first() {
    let to = SERVER.replace("127.0.0.1", "0.0.0.0");
    let lines = steps(&args(&[SERVER]), &args(&[&to]));
    assert_eq!(lines, ["- listener nvme 127.0.0.1:4420", "+ listener nvme 0.0.0.0:4420"]);
}

#[test]
fn sizes_hosts_and_polls_change_in_place() {
    let base = |create: &str, size: &str, hosts: &str, poll: u32| {
        let disks = disk("d0", &format!("file:/a?create={create}")) + &disk("d1", "null:1GiB");
        let volumes =
            volume("v0", "\"d0\"", "") + &volume("v1", "\"d1\"", &format!("size = \"{size}\""));
        let server = format!("{SERVER}poll_us = {poll}\n");
        args(&[&server, &disks, &volumes, &export("v0", 1, hosts), &export("v1", 1, "\"any\"")])
    };
    let from = base("1GiB", "512MiB", "\"any\"", 0);
    let to = base("2GiB", "768MiB", "[\"nqn.2026-11.a:h\"]", 50);
    assert_eq!(
        steps(&from, &to),
        [
            "~ disk d0: file:/a?create=1GiB -> file:/a?create=2GiB",
            "~ volume v0: size follows its disks",
            "~ volume v1: size 512MiB -> 768MiB",
            "~ listener nvme 127.0.0.1:4420: poll_us 0 -> 50",
            "~ export v0: nqn.2026-11.a:v0 namespace 1: hosts any -> nqn.2026-11.a:h",
        ]
    );
    assert_eq!(
        refusals(&to, &from),
        ["disk d0 cannot shrink from 2GiB to 1GiB: what lies beyond would be lost"]
    );
}

#[test]
fn aoe_exports_change_in_place_or_with_their_links() {
    let with = |more: &[&str]| {
        let mut parts = vec![SERVER.to_owned(), simple(0)];
        parts.extend(more.iter().map(|part| (*part).to_owned()));
        args(&[&parts.concat()])
    };
    let none = with(&[]);
    let one = with(&[&aoe("v0", "\"eth1\"", 0, "\"any\"")]);
    assert_eq!(
        steps(&none, &one),
        ["+ link eth1: packet", "+ export v0: aoe 7.0 on eth1, hosts any"]
    );
    assert_eq!(steps(&one, &none), ["- export v0: aoe 7.0 on eth1", "- link eth1: packet"]);
    let named = with(&[&aoe("v0", "\"eth1\"", 0, "[\"02:00:00:00:00:01\"], buffers = 8")]);
    assert_eq!(
        steps(&one, &named),
        ["~ export v0: aoe 7.0: hosts any -> 02:00:00:00:00:01 buffers 64 -> 8"]
    );
    let two = with(&[&aoe("v0", "[\"eth1\", \"eth2\"]", 0, "\"any\"")]);
    assert_eq!(
        steps(&one, &two),
        [
            "- export v0: aoe 7.0 on eth1",
            "+ link eth2: packet",
            "+ export v0: aoe 7.0 on eth1 eth2, hosts any"
        ]
    );
    let xdp = "[[listener]]\naoe = \"eth1\"\nlink = \"xdp\"\nvlan = 5\n";
    let tagged = with(&[xdp, &aoe("v0", "\"eth1\"", 0, "\"any\"")]);
    assert_eq!(
        steps(&one, &tagged),
        [
            "- export v0: aoe 7.0 on eth1",
            "- link eth1: packet",
            "+ link eth1 vlan 5: xdp",
            "+ export v0: aoe 7.0 on eth1 vlan 5, hosts any"
        ]
    );
}

#[test]
fn a_ram_disk_keeps_its_size() {
    let (from, to) = (args(&[&simple(0)]), args(&[&simple(0).replace("1GiB", "2GiB")]));
    assert_eq!(
        refusals(&from, &to),
        ["disk d0 is in memory and cannot change from 1GiB to 2GiB without losing its data; \
          remove it in one apply and add it in the next, or give the new one another name"]
    );
}

#[test]
fn the_server_takes_a_restart() {
    let to = "[server]\nmemory = \"128MiB\"\nshards = [1]\ndriver = \"epoll\"\ncontrol = \"/x\"\n";
    assert_eq!(
        refusals(&args(&["[server]\nmemory = \"64MiB\"\n"]), &args(&[to])),
        [
            "[server] shards cannot change while the server runs: [0, 1] -> [1]; restart plateway to use it",
            "[server] memory cannot change while the server runs: 64MiB -> 128MiB; restart plateway to use it",
            "[server] control cannot change while the server runs: /c -> /x; restart plateway to use it",
            "[server] driver cannot change while the server runs: auto -> epoll; restart plateway to use it",
        ]
    );
}

/// A configuration drawn by number: which of four disks exist, what is on them, who may connect.
fn drawn(mut number: u32) -> HiArgs {
    let mut draw = |n: u32| {
        let value = number % n;
        number /= n;
        value
    };
    let mut text = format!("{SERVER}poll_us = {}\n", draw(2));
    text += ["", "[[listener]]\naoe = \"eth1\"\nlink = \"xdp\"\n"][draw(2) as usize];
    for i in 0..2 {
        let uri = ["", "null:1GiB", "null:2GiB", "delay:5,null:1GiB"][draw(4) as usize];
        if uri.is_empty() {
            continue;
        }
        text += &disk(&format!("d{i}"), uri);
        let which = draw(3);
        if which > 0 {
            let name = format!("v{}", (i + which) % 3);
            if !text.contains(&format!("name = \"{name}\"")) {
                let size = ["", "size = \"1MiB\""][draw(2) as usize];
                let hosts = ["\"any\"", "[\"nqn.2026-11.a:h\"]"][draw(2) as usize];
                text += &(volume(&name, &format!("\"d{i}\""), size) + &export(&name, 1, hosts));
                let interfaces =
                    ["", "\"eth1\"", "\"eth2\"", "[\"eth1\", \"eth2\"]"][draw(4) as usize];
                if !interfaces.is_empty() {
                    let (slot, hosts) = (i + draw(2), ["\"any\"", "[]"][draw(2) as usize]);
                    let place = aoe(&name, interfaces, slot, hosts);
                    if !text.contains(&format!("slot = {slot},")) {
                        text += &place;
                    }
                }
            }
        }
    }
    args(&[&text])
}

#[test]
fn every_plan_leads_to_its_goal_and_its_inverse_leads_back() {
    let all: Vec<HiArgs> = (0..120).map(|i: u32| drawn(i.wrapping_mul(2_654_435_761))).collect();
    for from in &all {
        for to in &all {
            let plan = plan(from, to).unwrap();
            assert_eq!(perform(from, &plan.steps), sorted(to), "{plan}");
            let back: Vec<Step> = plan.steps.iter().rev().map(Step::inverse).collect();
            assert_eq!(perform(to, &back), sorted(from), "{plan}");
            assert_eq!(from == to, plan.steps.is_empty(), "{plan}");
        }
    }
}
