//! `plateway sim`: seeds pass twice alike, planted bugs are found, and exit codes tell which.

#[allow(unreachable_pub)]
mod common;

use common::{flat, plateway, text};
use serde_json::Value;

#[test]
fn seeds_pass_twice_with_the_same_hash_whatever_the_threads() {
    let run = || {
        let output = plateway()
            .args(["sim", "--seed", "1", "--seeds", "4", "--scenario", "calm", "--twice", "--json"])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(summary["passed"], 4);
        summary["hash"].as_str().expect("a hash").to_owned()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_planted_bug_is_found() {
    let output = plateway()
        .args(["sim", "--seeds", "200", "--plant", "completes-twice"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("completes-twice was found by seed"));
}

#[test]
fn unknown_names_are_told_with_the_known_ones() {
    for (flag, known) in [("--plant", "drops-flush"), ("--scenario", "calm")] {
        let output = plateway().args(["sim", flag, "nonsense"]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(flat(&output.stderr).contains(known), "{}", flat(&output.stderr));
    }
}

#[test]
fn a_trace_has_a_line_for_each_step_of_one_seed_and_none_of_many_that_pass() {
    let lines = |args: &[&str]| {
        let output = plateway().args(["sim", "--scenario", "calm"]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let traced = lines(&["--seed", "3", "--trace"]);
    let (last, steps) = traced.split_last().expect("lines");
    assert!(last.contains(&format!("{} steps", steps.len())), "{} lines, {last}", steps.len());
    assert_eq!(lines(&["--seed", "3"]), std::slice::from_ref(last), "a trace changes nothing");
    assert_eq!(lines(&["--seed", "3", "--seeds", "2", "--trace"]).len(), 1);
}
