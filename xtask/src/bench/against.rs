//! `cargo xtask bench --against COMMIT`: is this tree slower than that commit was?
//!
//! A plan of the lab, which is written here: the commit, this tree and the commit once more, each by
//! `plateway serve` of its own binary and built the same way, under the loads of `plans/bench`'s kind. This tree
//! is held against the commit; the commit against itself is the control, exploratory, for a machine
//! that was too restless. Rounds, their number and verdicts are the lab's. Slower is a verdict that
//! says so.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use lab::statistics::{Finding, Verdict};

use super::families::Family;
use crate::tree::{self, Tree};

/// What the plan, its result and its page are called.
const NAME: &str = "against";
/// The most rounds of a comparison.
pub(super) const ROUNDS_MAX: usize = 60;

/// What is said in the end. A cell of which the commit differs from itself says nothing of this tree.
pub(super) fn verdict(commit: &str, findings: &[&Finding]) -> String {
    let control = |judged: &Finding| {
        let name = judged.name.replacen("-now against ", "-again against ", 1);
        findings.iter().find(|other| other.name == name && !other.primary)
    };
    let is_restless =
        |judged: &Finding| control(judged).is_none_or(|own| own.verdict.is_difference());
    let judged: Vec<&&Finding> = findings.iter().filter(|one| one.primary).collect();
    let is_slower = |one: &&&&Finding| matches!(one.verdict, Verdict::Slower { .. });
    let slower = judged.iter().filter(is_slower).filter(|one| !is_restless(one)).count();
    let restless = judged.iter().filter(|one| is_restless(one)).count();
    let all = judged.len();
    let what =
        if slower > 0 { "slower, or costs more, than" } else { "not shown to be slower than" };
    format!(
        "this tree is {what} {commit}: {slower} of {all} comparisons say so, {restless} say nothing, since the commit differs from itself there"
    )
}

/// Builds `plateway` as it was at a commit; its full name and the binary.
pub(super) fn build(tree: &Tree, commit: &str) -> Result<(String, PathBuf)> {
    let name = git(tree, &["rev-parse", "--verify", &format!("{commit}^{{commit}}")])?;
    let folder = tree.target.join("against");
    let binary = folder.join(format!("plateway-{name}"));
    if binary.is_file() {
        return Ok((name, binary));
    }
    let root = folder.join("checkout");
    let checkout = root.to_str().context("the target directory's name is no UTF-8")?;
    // One that an interrupted build left is in the way; usually there is none.
    let _ = git(tree, &["worktree", "remove", "--force", checkout]);
    git(tree, &["worktree", "add", "--force", "--detach", checkout, &name])?;
    let there = Tree { root: root.clone(), target: folder.join("target"), host: tree.host.clone() };
    let built = crate::release::build(&there)
        .and_then(|built| std::fs::copy(built, &binary).context("cannot keep the binary"));
    git(tree, &["worktree", "remove", "--force", checkout])?;
    built?;
    Ok((name, binary))
}

/// What `git ARGS` prints.
fn git(tree: &Tree, args: &[&str]) -> Result<String> {
    let mut command = tree.command("git");
    let output = command.args(args).output().context("git")?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{}: {}", tree::words(&command), said(&output.stderr));
    Ok(said(&output.stdout))
}

/// The plan: both binaries, and for how long it may run.
pub(super) fn family(before: &Path, now: &Path, minutes: u64) -> Result<Family> {
    let mut text = format!(
        "name = \"{NAME}\"\nabout = \"Is this tree slower than the commit?\"\ndifference = \"3%\"\n\
         rounds-max = {ROUNDS_MAX}\ntime = \"{minutes}m\"\nwindow = \"200ms\"\nwarm-up = \"300ms\"\n"
    );
    for (protocol, how, uri) in [
        (
            "nvme",
            ["--nvme", "10.77.0.1:4420"],
            "nvme+tcp://10.77.0.1:4420/nqn.2026-11.net.plateway:v0/1?hdgst=0&ddgst=0",
        ),
        (
            "iscsi",
            ["--iscsi", "10.77.0.1:3260"],
            "iscsi://10.77.0.1:3260/iqn.2026-11.net.plateway:v0/0?hdgst=0&ddgst=0",
        ),
        ("aoe", ["--aoe", "lab-far/7.0"], "aoe://lab-near/7.0"),
    ] {
        for (side, binary) in [("commit", before), ("now", now), ("again", before)] {
            let binary = binary.to_str().context("the target directory's name is no UTF-8")?;
            let mut start = vec![binary, "serve", "ram:512MiB"];
            start.extend(how);
            start.extend(["--hosts", "any"]);
            text += &format!(
                "[[system]]\nname = \"{protocol}-{side}\"\ntarget = {{ start = {start:?}, uri = {uri:?} }}\n\
                 backing = \"ram\"\ndurable = false\n"
            );
        }
    }
    text += "[[path]]\nname = \"lan\"\noffloads = true\n[[path]]\nname = \"jumbo\"\nmtu = 9000\n";
    for (protocol, path, load) in [
        (
            "nvme",
            "lan",
            "block-size = \"4k\"\npattern = [\"randread\", \"randwrite\"]\ndepth = [1, 32]",
        ),
        (
            "nvme",
            "lan",
            "block-size = \"128k\"\npattern = [\"randread\", \"randwrite\"]\ndepth = 8",
        ),
        (
            "iscsi",
            "lan",
            "block-size = \"4k\"\npattern = [\"randread\", \"randwrite\"]\ndepth = 32",
        ),
        (
            "aoe",
            "jumbo",
            "block-size = \"4k\"\npattern = [\"randread\", \"randwrite\"]\ndepth = 32",
        ),
    ] {
        for (subject, more) in [("now", ""), ("again", "exploratory = true\n")] {
            text += &format!(
                "[[compare]]\nsystems = [\"{protocol}-{subject}\"]\nreference = \"{protocol}-commit\"\n\
                 path = \"{path}\"\nof = [\"iops\", \"cpu-far-per-op\"]\n{load}\n{more}"
            );
        }
    }
    Family::new(NAME.to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_differs_from_itself_says_nothing_of_this_tree() {
        use lab::statistics::{Interval, LogRatio};
        let interval = Interval { low: LogRatio(-0.3), high: LogRatio(-0.1), level: 0.95 };
        let slower = Verdict::Slower { ratio: LogRatio(-0.2), interval };
        let equal = Verdict::Equal { margin: 0.03 };
        let finding = |side: &str, verdict| Finding {
            name: format!(
                "IOPS of nvme-{side} against nvme-commit over lan, 4KiB randread, depth 1"
            ),
            primary: side == "now",
            bound: None,
            is_cost: false,
            estimate: None,
            verdict,
        };
        let said = |now, again| {
            let (now, again) = (finding("now", now), finding("again", again));
            verdict("abc", &[&now, &again])
        };
        assert!(
            said(slower, equal).starts_with("this tree is slower, or costs more, than abc: 1 of 1")
        );
        let restless = said(slower, slower);
        assert!(
            restless.contains(
                "not shown to be slower than abc: 0 of 1 comparisons say so, 1 say nothing"
            ),
            "{restless}"
        );
        assert!(said(equal, equal).contains("not shown"));
    }

    #[test]
    fn this_tree_is_judged_and_the_commit_against_itself_is_beside() {
        let family = family(Path::new("/old"), Path::new("/new"), 60).unwrap();
        let plan = &family.experiment;
        // iSCSI and NVMe/TCP share two of ten loads.
        assert_eq!((plan.groups.len(), plan.primaries()), (8, 20));
        let all: Vec<_> = plan.groups.iter().flat_map(|group| &group.plan.comparisons).collect();
        assert!(all.iter().all(|one| one.bound.is_none()));
        let (judged, beside): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.primary);
        assert!(judged.iter().all(|one| one.name.contains("-now against ")));
        assert_eq!(beside.len(), 20);
        assert!(beside.iter().all(|one| one.name.contains("-again against ")));
        let starts = |side: &str| {
            let system =
                plan.systems.iter().find(|one| one.name == format!("nvme-{side}")).unwrap();
            let lab::plan::Means::Target(target) = &system.means else { panic!("{side}") };
            target.start[0].clone()
        };
        assert_eq!(["commit", "now", "again"].map(starts), ["/old", "/new", "/old"]);
    }
}
