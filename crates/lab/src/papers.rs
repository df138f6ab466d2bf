//! The papers that Plateway started from: what they found, how each finding is recreated by plans of
//! the lab, and what our own numbers say of it.
//!
//! ```text
//! papers/NAME.toml -------facts--> Paper --\
//! papers/NAME.rerun.toml --rerun--> How ----> Study --list--> what would be run, and why not
//!                          results of plans --/   \--judge--> a verdict on each finding
//! ```
//!
//! A *finding* is a claim of a paper on a metric of two cells, a and b; everything here is on the ratio
//! metric(a) / metric(b) of values as they are measured, whatever way is good. All files are those of the top-level
//! folder `papers`, built in, so that nothing is read here and nothing runs. What is broken in them is
//! ours, and an assertion that tests hold. Read `facts` and `rerun` for the files, then `verdict` for the
//! words, `judge` for what becomes of a finding, `kept` for the result file of a paper.

mod control;
mod exact;
mod facts;
mod judge;
mod kept;
mod list;
mod quick;
mod reach;
mod rerun;
mod verdict;

use std::collections::BTreeMap;

use super::plan::{Experiment, Mistakes};

pub use facts::{Claim, Datum, Finding, Paper, Ratio, Table};
pub use judge::{CellSaid, Measured, Ours, Said, Sight, Sights};
pub use kept::{Cause, NotRun, PaperKept, RunKept, SCHEMA_VERSION, is_of_a_paper};
pub use list::Listed;
pub use quick::{quick, without_cpu};
pub use reach::{Probe, REACHABILITY, Reached};
pub use rerun::{Drawn, How, Need, Quantifier, Recreated, Run};
pub use verdict::{Answer, Size};

/// A paper with its findings, and how each is recreated.
#[derive(Clone, Debug)]
pub struct Study {
    /// As the command calls it.
    pub name: &'static str,
    pub paper: Paper,
    /// Its plans.
    pub runs: Vec<Run>,
    /// Of each finding of the paper, in its order.
    pub how: Vec<How>,
    /// Figures of the paper that are drawn from our cells.
    pub figures: Vec<Drawn>,
}

/// The files of the papers: what each found, and how that is recreated.
const FILES: [(&str, &str, &str); 5] = [
    (
        "rocha",
        include_str!("../../../papers/rocha.toml"),
        include_str!("../../../papers/rocha.rerun.toml"),
    ),
    (
        "technomages",
        include_str!("../../../papers/technomages.toml"),
        include_str!("../../../papers/technomages.rerun.toml"),
    ),
    (
        "landowski",
        include_str!("../../../papers/landowski.toml"),
        include_str!("../../../papers/landowski.rerun.toml"),
    ),
    (
        "goncalves",
        include_str!("../../../papers/goncalves.toml"),
        include_str!("../../../papers/goncalves.rerun.toml"),
    ),
    (
        "sarkar",
        include_str!("../../../papers/sarkar.toml"),
        include_str!("../../../papers/sarkar.rerun.toml"),
    ),
];

/// The plans that findings are judged by.
const PLANS: &[(&str, &str)] = &[
    ("rocha-micro", include_str!("../../../papers/rocha-micro.toml")),
    ("rocha-micro-cache", include_str!("../../../papers/rocha-micro-cache.toml")),
    ("rocha-micro-disk", include_str!("../../../papers/rocha-micro-disk.toml")),
    ("rocha-micro-cache-disk", include_str!("../../../papers/rocha-micro-cache-disk.toml")),
    ("rocha-macro", include_str!("../../../papers/rocha-macro.toml")),
    ("rocha-macro-mtu", include_str!("../../../papers/rocha-macro-mtu.toml")),
    ("landowski-device", include_str!("../../../papers/landowski-device.toml")),
    ("landowski-device-vblade", include_str!("../../../papers/landowski-device-vblade.toml")),
    ("landowski-copy", include_str!("../../../papers/landowski-copy.toml")),
    ("landowski-vblade", include_str!("../../../papers/landowski-vblade.toml")),
    ("landowski-tunnels", include_str!("../../../papers/landowski-tunnels.toml")),
    ("landowski-cached", include_str!("../../../papers/landowski-cached.toml")),
    ("goncalves-network", include_str!("../../../papers/goncalves-network.toml")),
    ("goncalves-nat", include_str!("../../../papers/goncalves-nat.toml")),
    ("goncalves-array", include_str!("../../../papers/goncalves-array.toml")),
    ("goncalves-files", include_str!("../../../papers/goncalves-files.toml")),
    ("goncalves-nfs", include_str!("../../../papers/goncalves-nfs.toml")),
    ("goncalves-nvme", include_str!("../../../papers/goncalves-nvme.toml")),
    ("technomages-bonnie", include_str!("../../../papers/technomages-bonnie.toml")),
    ("technomages-postmark", include_str!("../../../papers/technomages-postmark.toml")),
    ("technomages-iogen", include_str!("../../../papers/technomages-iogen.toml")),
    ("goncalves-sata", include_str!("../../../papers/goncalves-sata.toml")),
    ("sarkar-reads", include_str!("../../../papers/sarkar-reads.toml")),
    ("sarkar-programs", include_str!("../../../papers/sarkar-programs.toml")),
    ("sarkar-writes", include_str!("../../../papers/sarkar-writes.toml")),
    ("sarkar-softirqs", include_str!("../../../papers/sarkar-softirqs.toml")),
];

/// What the papers are called.
pub const NAMES: [&str; 5] = [FILES[0].0, FILES[1].0, FILES[2].0, FILES[3].0, FILES[4].0];

/// The text of a plan that belongs to a paper.
pub fn plan_text(plan: &str) -> Option<&'static str> {
    PLANS.iter().find(|(name, _)| *name == plan).map(|(_, text)| *text)
}

/// What messages call a plan's file.
pub fn plan_file(plan: &str) -> String {
    format!("papers/{plan}.toml")
}

impl Study {
    /// The paper of this name.
    pub fn of(name: &str) -> Option<Study> {
        let (name, facts, rerun) = FILES.iter().find(|(known, ..)| *known == name)?;
        let paper = facts::read(facts).unwrap_or_else(|why| panic!("papers/{name}.toml: {why}"));
        let file = rerun::read(rerun, &paper)
            .unwrap_or_else(|why| panic!("papers/{name}.rerun.toml: {why}"));
        let rerun::Checked { runs, how, figures } = file;
        Some(Study { name, paper, runs, how, figures })
    }

    /// The same on a machine that lacks some of what findings need.
    pub fn here(mut self, lacks: &BTreeMap<Need, String>) -> Study {
        let here = |how: How| how.here(|need| lacks.get(&need).cloned());
        self.how = self.how.into_iter().map(here).collect();
        self
    }

    /// All of them.
    pub fn all() -> Vec<Study> {
        NAMES.into_iter().filter_map(Study::of).collect()
    }
}

impl Run {
    /// The plan, as far as this version reads it.
    pub fn experiment(&self) -> Result<Experiment, Mistakes> {
        let text = plan_text(&self.plan).unwrap_or_default();
        Experiment::parse(&plan_file(&self.plan), text)
    }
}

#[cfg(test)]
mod tests;
