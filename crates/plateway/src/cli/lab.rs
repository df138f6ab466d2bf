//! `lab`: plans that compare systems.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `lab run PLAN`, `lab check PLAN`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

/// What is done with a plan.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Run a plan: systems in rounds, each trial from a fresh start, and a verdict on each comparison
    #[command(after_help = "Examples:\n  \
        plateway lab run three-roads.toml\n  \
        plateway lab run three-roads.toml --result monday.json\n\n\
        What a plan may say stands in docs/plans.md, what verdicts mean in docs/statistics.md. Namespaces and\n\
        links are made for it, and removed at the end however it ends. On Ctrl-C what was measured is told and\n\
        kept, with intervals and without verdicts.\n\n\
        Exit code 0: run. 1: a mistake in the plan, a machine that cannot run it, or trials that failed. 130:\n\
        interrupted.")]
    Run(LabRunArgs),
    /// Compare what two plans came to that were run at different times, through `null`, which both hold
    #[command(
        after_help = "What is said is labelled as not interleaved, and never faster or slower: nothing shows that what\n\
        changed between the runs changed both alike. To know, put both into one plan."
    )]
    Compare(LabCompareArgs),
    /// Check a plan, also against this machine, and say what it would run and for how long
    Check(LabCheckArgs),
}

/// `lab run PLAN`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRunArgs {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Where to keep what comes of it; the page is beside it, .html [default: PLAN with .result.json in place of its ending]
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// Replace result file and page if they are there
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print what is kept, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab check PLAN`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabCheckArgs {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
}

/// `lab compare FIRST SECOND`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabCompareArgs {
    /// The result file of which it is said
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,
    /// The result file that it is held against
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
