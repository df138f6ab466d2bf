//! What a trial's client may have of the machine: memory, its page cache with it, and a share of a CPU.
//!
//! Both are limits of a control group, which goes with the trial. Units: bytes, percent of one CPU. Errors: a machine
//! that cannot bound them, at the plan's line, and a client that needed more memory.

use block::ByteCount;
use lab::plan::{Cell, Experiment, Mistake};
use testbed::Group;
use testbed::group::{self, Limits};

use super::far::PREFIX;
use super::trial::{Lab, tell};

/// What of a plan's limits cannot be had on this machine.
pub(super) fn mistakes(experiment: &Experiment) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let memory = Limits { memory: Some(64 << 20), ..Limits::default() };
    let cpu = Limits { cpu: Some(50), ..Limits::default() };
    for (key, what, span, limits) in [
        ("client-memory", "memory", &experiment.client_memory, memory),
        ("client-cpu", "processor time", &experiment.client_cpu, cpu),
    ] {
        if let Some(span) = span
            && let Err(why) = group::allowed(PREFIX, limits)
        {
            let message = format!(
                "{key}: expected a machine where the {what} of programs can be bounded, seen one where it cannot: {why}"
            );
            let help =
                "run it as root, where that controller of control groups is there, or leave it out";
            mistakes.push(Mistake::new(span.clone(), message).help(help));
        }
    }
    mistakes
}

impl Lab<'_> {
    /// Has a client run with no more memory and processor time than its load lets it have.
    pub(super) fn bounded<T>(
        &self,
        cell: &Cell,
        run: impl FnOnce(Option<&Group>) -> miette::Result<T>,
    ) -> miette::Result<T> {
        let limits = Limits { memory: cell.load.client_memory, cpu: cell.load.client_cpu };
        if limits == Limits::default() {
            return run(None);
        }
        let group = Group::make(PREFIX, limits).map_err(tell)?;
        let done = run(Some(&group));
        if let Some(bytes) = limits.memory.filter(|_| group.killed() > 0) {
            return Err(miette::miette!(
                "the kernel killed the client, which needed more memory than client-memory = {} lets it have (more of it, fewer jobs, or a smaller depth or block-size)",
                ByteCount(bytes)
            ));
        }
        done
    }
}
