//! Plans: what is printed, in which order, and that steps undo each other.

use super::super::tests::{good, judge, text_of};
use super::*;

#[test]
fn every_step_is_said_in_its_order_and_every_refusal() {
    judge(include_str!("../tests/steps.txt"), |case| {
        let (from, to) = case.split_once("\nto").expect("two configurations");
        let read = |part: &str| good(&text_of(part.trim_start()));
        let (from, to) = (read(from.trim_start_matches("from")), read(to));
        match plan(&from, &to) {
            Ok(plan) => plan.to_string().lines().map(str::to_owned).collect(),
            Err(refused) => refused.iter().map(Refused::to_string).collect(),
        }
    });
}

const SERVER: &str = "[server]\nmemory = \"64MiB\"\n[[listener]]\nnvme = \"127.0.0.1:4420\"\n";

fn disk(name: &str, uri: &str) -> String {
    format!("[[disk]]\nname = \"{name}\"\nuri = \"{uri}\"\n")
}

fn volume(name: &str, disk: &str, more: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\ndisks = [\"{disk}\"]\n{more}\n")
}

fn export(volume: &str, hosts: &str) -> String {
    let nvme = format!("{{ subsystem = \"nqn.2026-11.a:{volume}\", nsid = 1, hosts = {hosts} }}");
    format!("[[export]]\nvolume = \"{volume}\"\nnvme = {nvme}\n")
}

fn aoe(volume: &str, interface: &str, slot: u32, hosts: &str) -> String {
    format!(
        "[[export]]\nvolume = \"{volume}\"\naoe = {{ interface = {interface}, shelf = 7, slot = {slot}, hosts = {hosts} }}\n"
    )
}

/// Carries a plan out on values: the things that result, by title.
fn perform(args: &HiArgs, steps: &[Step]) -> Vec<Thing> {
    crate::checks::perform(args.things().collect(), steps)
}

fn sorted(args: &HiArgs) -> Vec<Thing> {
    perform(args, &[])
}

#[test]
fn a_start_adds_everything_from_the_bottom_up() {
    let nvme = "{ subsystem = \"nqn.2026-11.a:v0\", nsid = 3, hosts = [\"nqn.2026-11.a:h\"] }";
    let case = format!("@13 size = \"512MiB\"\n@18 nvme = {nvme}");
    let plan = Plan::initial(&good(&text_of(&case)));
    let lines = [
        "+ disk d0: ram:512MiB",
        "+ disk d1: ram:512MiB",
        "+ volume v0: stripe over d0 d1, chunk 64 KiB, blocks of 512, size 512 MiB",
        "+ listener nvme 127.0.0.1:4420",
        "+ export v0: nqn.2026-11.a:v0 namespace 3, hosts nqn.2026-11.a:h",
    ];
    assert_eq!(plan.to_string(), lines.join("\n"));
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
                text += &(volume(&name, &format!("d{i}"), size) + &export(&name, hosts));
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
    good(&text)
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
