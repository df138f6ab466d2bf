//! A plan of the lab: from the text of a file to cells and comparisons, and from trials to verdicts.
//!
//! ```text
//! TOML --reader--> LowPlan --check--> Experiment --Runner--> trials --statistics--> Results
//! ```
//!
//! An [`Experiment`] is systems, paths and loads. A [`Cell`] is one of each: what a trial measures.
//! Comparisons of cells with the same path and load are a [`Group`]: in each of its rounds every
//! system runs once, and the reference `null` with them, by which a machine that moved is told from
//! a system that did. Pictures are cells that run once, in an order drawn by the seed, and get no
//! verdict. A [`Runner`] says which trial is next and takes what it came to.
//!
//! In comes the text of a file and its name; no file is opened here, nothing runs, and no clock is
//! read: what the machine can do is asked by whoever has one. URIs are opaque but for their scheme,
//! which says what holds the blocks. Errors: all [`Mistakes`] of a file at once, each with its place
//! and the way out. For users: docs/plans.md. Read `low` for the keys, then `model`, `check` for
//! what is refused, `arrange` for what shares rounds, `runner` for what runs when.

mod against;
mod apart;
mod arrange;
mod axes;
mod check;
mod compare;
mod countable;
mod estimate;
mod files;
mod initiators;
mod low;
mod many;
mod measure;
mod model;
mod names;
mod paths;
mod reader;
mod results;
mod runner;
mod streams;
mod stripes;
mod systems;
mod words;

pub use crate::mistake::{Mistake, Mistakes, Span};
pub use apart::{Pair, SCHEMA_VERSION, check_version, compare_results};
pub use estimate::Estimate;
pub use many::Files;
pub use measure::{Measure, Measures, Side};
pub use model::{
    Access, AgentAt, Arrivals, Backing, CORE_MORE, Cell, Client, Column, Digests, Driver,
    Experiment, FileSystem, Folder, Group, Line, Load, Means, Mounted, Nfs, Pace, Path, PathKind,
    Picture, Program, Protocol, Rival, Serve, Softirqs, System, Target, Transport,
};
pub use results::{Failure, GroupResults, PictureResult, Results, SystemMoved};
pub(crate) use results::{column_of, series_name};
pub use runner::{Progress, Purpose, Runner, Sized, Trial, TrialOutcome};
pub use stripes::{STRIPE_CHUNK_BYTES, STRIPE_LABEL_BYTES};

impl Experiment {
    /// Reads and checks the text of a plan file; `name` is what messages call it.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, Mistakes> {
        let mut mistakes = Vec::new();
        let low = reader::read(text, &mut mistakes);
        let experiment = low.and_then(|low| check::check(&low, &mut mistakes));
        experiment.ok_or_else(|| Mistakes::new(name, text, mistakes))
    }
}

#[cfg(test)]
mod tests;
