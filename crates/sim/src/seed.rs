//! A seed: what it is run with, the errors that can be planted in it, and what is told of how it ended.

use core::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

use contract::{SessionCounters, counters};

use crate::ethernet::Fates;
use crate::over_nvme::raw_host::Actions;
use crate::run::Run;
use crate::scenario::{SCENARIOS, Scenario};
use crate::trace::Trace;
use crate::world::Injected;
use crate::{fences, over_aoe, over_iscsi, over_mpls};

/// Errors that can be planted, to see that they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A disk says that it flushed and did not.
    DropsFlush,
    /// A request is completed twice.
    CompletesTwice,
    /// A write that was under way when the target died is applied long after.
    AppliesLate,
    /// A disk answers some reads from before the last write.
    ServesStale,
    /// A shard says that it holds changes back for a compare-and-write of another shard, and does
    /// not.
    ForgetsHold,
    /// An AoE target does not see that a write is a copy of one that it carried out.
    ForgetsRepeats,
    /// An AoE target answers writes that lie in a volatile cache.
    AnswersEarly,
    /// The control thread says that it stored what AoE initiators changed, and did not.
    DropsStore,
    /// A shard says that a reservation is in force, and goes on as before.
    ForgetsFence,
    /// Where a network carries two customers, an end of one is told the other's label.
    MixesLabels,
}

impl Plant {
    /// All of them, with their names on the command line and the scenario in which they show.
    pub const ALL: [(&'static str, Plant, &'static str); 10] = [
        ("drops-flush", Plant::DropsFlush, "power"),
        ("completes-twice", Plant::CompletesTwice, "calm"),
        ("applies-late", Plant::AppliesLate, "kills"),
        ("serves-stale", Plant::ServesStale, "calm"),
        ("forgets-hold", Plant::ForgetsHold, "fused"),
        ("forgets-repeats", Plant::ForgetsRepeats, "aoe"),
        ("answers-early", Plant::AnswersEarly, "aoe-crash"),
        ("drops-store", Plant::DropsStore, "aoe-control"),
        ("forgets-fence", Plant::ForgetsFence, "aoe-fence"),
        ("mixes-labels", Plant::MixesLabels, "aoe-routed"),
    ];
}

/// A seed that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The hash of the trace.
    pub hash: u64,
    /// Things that happened.
    pub steps: u64,
    /// Blocks that were read and found right.
    pub checked: u64,
    /// Requests that clients and raw hosts made.
    pub requests: u64,
    /// What happened, in numbers.
    pub did: Activity,
}

/// What happened in a run: whether a scenario does what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    pub counts: Counts,
    /// What the target's connections did.
    pub nvme: SessionCounters,
    /// What its sessions of iSCSI did.
    pub iscsi: SessionCounters,
    pub shards: u16,
    pub client_shards: u16,
    pub injected: Injected,
    /// What raw hosts did.
    pub raw: Actions,
    /// What raw hosts of iSCSI did.
    pub initiators: over_iscsi::raw_host::Actions,
    /// What became of reservations that were changed.
    pub fencer: fences::fencer::Actions,
    pub aoe: over_aoe::Activity,
    /// What became of frames.
    pub fates: Fates,
    /// What the network between clients and target did.
    pub network: over_mpls::Activity,
}

counters! {
    /// What happened in a run.
    pub struct Counts {
        /// Requests of clients that ended as asked.
        done: Operations,
        /// Those that ended otherwise.
        failed: Operations,
        /// Of these, those that were refused since somebody else may use the volume, or nobody may
        /// write.
        refused: Operations,
        /// Times that a client gave its target up.
        lost: Events,
        /// Times that one of several ways to it was missing.
        ways_lost: Events,
        /// Times that somebody was surely shut out from then on.
        fences: Events,
        /// Payloads that a target received straight into their buffers: H2CData after an R2T.
        direct_in: Events,
        /// The same for clients: C2HData of a read.
        direct_out: Events,
        /// Connections that the target closed because their peers misbehaved.
        misbehaved: Connections,
        /// Peers that talked garbage.
        garbage: Connections,
        /// Discovery logs that were read.
        logs: Events,
        /// Events that watchers were told.
        events: Events,
        /// Times that hosts were denied.
        denials: Events,
        /// Times that the target drained and ended.
        stops: Events,
        /// Subsystems that went.
        removals: Events,
        /// Times that an export over AoE went.
        unexports: Events,
        /// Times that a client let go of its remote disk.
        unimports: Events,
        /// Times that another volume took the volume's place.
        swaps: Events,
        /// Changes that an AoE host was answered.
        changes: Operations,
        /// Changes that could not be stored.
        unavailable: Operations,
        /// Frames that nobody should send.
        hostile: Frames,
    }
}

impl AddAssign for Activity {
    fn add_assign(&mut self, other: Activity) {
        self.counts += other.counts;
        self.shards = self.shards.max(other.shards);
        self.client_shards = self.client_shards.max(other.client_shards);
        self.injected += other.injected;
        self.raw += other.raw;
        self.initiators += other.initiators;
        self.fencer += other.fencer;
        self.nvme += other.nvme;
        self.iscsi += other.iscsi;
        self.aoe += other.aoe;
        self.fates += other.fates;
        self.network += other.network;
    }
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub seed: u64,
    pub scenario: &'static str,
    /// What was found.
    pub what: String,
}

/// Runs one seed. Without a name the seed picks the scenario.
pub fn run_seed(seed: u64, scenario: Option<&str>, plant: Option<Plant>) -> Result<Passed, Failed> {
    play(seed, scenario, plant, false).0
}

/// Runs one seed with a planted error. It is found by a failure, if the same seed passes without
/// it.
pub fn find_planted(seed: u64, scenario: &str, plant: Plant) -> Option<Failed> {
    found_by(run_seed(seed, Some(scenario), Some(plant)), || run_seed(seed, Some(scenario), None))
}

fn found_by(
    planted: Result<Passed, Failed>,
    without: impl FnOnce() -> Result<Passed, Failed>,
) -> Option<Failed> {
    planted.err().filter(|_| without().is_ok())
}

/// Runs one seed as [`run_seed`] does, and returns the lines of its trace, however it ends.
pub fn trace_seed(
    seed: u64,
    scenario: Option<&str>,
    plant: Option<Plant>,
) -> (Result<Passed, Failed>, Vec<String>) {
    play(seed, scenario, plant, true)
}

fn play(
    seed: u64,
    scenario: Option<&str>,
    plant: Option<Plant>,
    keep_lines: bool,
) -> (Result<Passed, Failed>, Vec<String>) {
    let scenario = match scenario {
        Some(name) => Scenario::find(name).expect("the caller checked the name"),
        None => &SCENARIOS[(seed % SCENARIOS.len() as u64) as usize],
    };
    let mut run = Run::new(seed, scenario, plant, keep_lines);
    let result = catch_unwind(AssertUnwindSafe(|| run.run()));
    let lines = core::mem::replace(&mut run.world.trace, Trace::new(false)).into_lines();
    let failed = |what| Failed { seed, scenario: scenario.name, what };
    let result = match result {
        Ok(Ok(passed)) => Ok(passed),
        Ok(Err(what)) => Err(failed(what)),
        Err(panic) => Err(failed(panic_text(&*panic))),
    };
    (result, lines)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("an assertion failed: {}", text.unwrap_or("without words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_error_is_found_by_a_seed_that_passes_without_it() {
        let failed = |what: &str| Failed { seed: 7, scenario: "calm", what: what.to_owned() };
        let passes = || run_seed(1, Some("calm"), None);
        let found = found_by(Err(failed("a lost write")), passes).map(|found| found.what);
        assert_eq!(found.as_deref(), Some("a lost write"));
        assert!(found_by(passes(), passes).is_none(), "nothing failed");
        let fails_anyway = || Err(failed("an error of our own"));
        assert!(found_by(Err(failed("a lost write")), fails_anyway).is_none());
    }
}
