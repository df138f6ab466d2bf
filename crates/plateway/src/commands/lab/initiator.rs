//! An initiator of another kind as the client of a trial: a command of the plan's in place of `plateway bench`.
//!
//! It is run at the near end, on its CPUs, in the control group where there is one, with what it is to do behind its own
//! arguments; it tells how far it is, and is ended when it has settled ([`super::followed`]). What is read was written
//! before, by a client of ours, which also looks whether the disk is ours to write: whether the other one does, nobody
//! knows. Errors: those of that client, and what the initiator complained of.

use std::ops::ControlFlow;
use std::path::Path;

use lab::following::Teller;
use lab::plan::{Cell, Load, Pace, TrialOutcome};
use lab::words::Pattern;
use serde_json::Value;
use testbed::{Group, process};

use super::folder::FILL_MAX;
use super::list;
use super::seen::Seen;
use super::stripe::Reached;
use super::trial::{Lab, MOMENT};
use super::way::Way;

impl Lab<'_> {
    /// Has every block of a disk written that is blank, or ours.
    pub(super) fn fill_disk(
        &self,
        cell: &Cell,
        at: &Reached,
        way: Option<&Way<'_>>,
    ) -> miette::Result<()> {
        let mut command = self.bench(cell, at, way, None)?;
        command.args(["--fill", "--rw", "read"]).args(MOMENT);
        self.finish(command, FILL_MAX, |_, _| ControlFlow::Continue(())).map(|_| ())
    }

    /// Has an initiator of the plan's load a disk, and judges what it did.
    pub(super) fn load_by_initiator(
        &self,
        cell: &Cell,
        initiator: &[String],
        (at, home): (&Reached, &Path),
        way: Option<&Way<'_>>,
        group: Option<&Group>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let output = home.join("initiator");
        let (cpus, program) = (list(self.client_cpus(way)), Path::new(&initiator[0]));
        let mut command = process::command_in(group, way.and_then(Way::near), &cpus, program);
        command.args(&initiator[1..]).args(asked(&cell.load, &at.uri));
        command.arg("--status").arg(&output);
        let window = self.experiment.window_of(cell).as_millis();
        command.args(["--status-ms", &window.to_string()]);
        let followed = self.follow(cell, command, (&output, Teller::Initiator), way, false)?;
        let bytes = self.experiment.systems[cell.system].bytes_under(&cell.load);
        let said = followed.said(&cell.load, (&at.uri, bytes));
        keeps_mix(cell.load.pattern, &said["steady"])?;
        self.judge(cell, said, &followed.sighted, way)
    }
}

/// An error unless as many of the last windows' requests read as were to: what an initiator was not asked for is no
/// measure of what it was.
fn keeps_mix(asked: Pattern, last: &Value) -> miette::Result<()> {
    /// What chance makes of a thousand requests, and more.
    const OFF_MAX: f64 = 5.0;
    let count = |side: &Value| side["requests"].as_f64().unwrap_or(0.0);
    let percent = 100.0 * count(&last["read"]) / count(last).max(1.0);
    // Of one that did nothing, that is said.
    if count(last) > 0.0 && (percent - f64::from(asked.read_percent)).abs() > OFF_MAX {
        return Err(miette::miette!(
            "the initiator: expected {asked}, seen requests of which {percent:.0}% read"
        ));
    }
    Ok(())
}

/// The load, as an initiator is asked for it.
fn asked(load: &Load, uri: &str) -> [String; 10] {
    let depth = match load.pace {
        Pace::Closed { depth } => depth,
        Pace::Open { .. } => unreachable!("a plan in which an initiator has a rate is refused"),
    };
    let words = [
        ("--disk", uri.to_owned()),
        ("--rw", load.pattern.to_string()),
        ("--bs", load.block_bytes.to_string()),
        ("--iodepth", depth.to_string()),
        ("--numjobs", load.jobs.to_string()),
    ];
    let mut args = words.into_iter().flat_map(|(key, value)| [key.to_owned(), value]);
    std::array::from_fn(|_| args.next().expect("two of each"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_not_asked_for_is_no_measure() {
        let kept = |asked: &str, reads: u64, writes: u64| {
            let side = |count: u64| (count > 0).then(|| json!({ "requests": count }));
            let last =
                json!({ "requests": reads + writes, "read": side(reads), "write": side(writes) });
            keeps_mix(asked.parse().unwrap(), &last).map_err(|why| why.to_string())
        };
        for (asked, reads, writes) in [
            ("randread", 9, 0),
            ("randread", 0, 0),
            ("write", 0, 9),
            ("randrw=70", 680, 320),
            ("rw=70", 749, 251),
        ] {
            assert_eq!(kept(asked, reads, writes), Ok(()), "{asked}");
        }
        let told = "the initiator: expected randrw=70, seen requests of which 100% read";
        assert_eq!(kept("randrw=70", 1000, 0), Err(told.to_owned()));
        for (asked, reads, writes) in [("randread", 90, 10), ("write", 9, 0), ("rw=70", 64, 36)] {
            assert!(kept(asked, reads, writes).is_err(), "{asked}");
        }
    }
}
