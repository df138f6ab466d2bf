//! Which road to take for a load, by what a plan came to: the figures, how sure that is, and what
//! would change the answer.
//!
//! In: the JSON of a result file (docs/plans.md), and the measure that counts, which is each group's
//! first primary one if nobody says (of a difference: bounds are no comparison to choose by). Out: for each group, a path and a load, a [`Choice`]. Who is
//! better is read off verdicts alone ([`order`]): one who is shown to be behind is out, and of those
//! who are left the next criterion decides ([`choice`]), labelled as such. Figures are medians of
//! the trials that count, as `lab run` prints them ([`figures`]); they say what an answer costs and
//! where it turns ([`turns`]), and never who is better. Units are in the names. Errors: a file of
//! another kind or version, damaged, or of a plan that this version does not read; a measure that
//! nothing was compared by.

mod agreement;
mod choice;
mod figures;
mod order;
#[cfg(test)]
mod tests;
mod turns;

use serde::Serialize;
use serde_json::Value;

use crate::kept::Kept;
use crate::plan::Measure;
use crate::statistics::Withheld;

pub use figures::Figures;
pub use turns::{Known, Turn, shown};

/// The version of what `--json` prints.
const SCHEMA_VERSION: u64 = 1;

/// What is advised, of all of a result file.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    schema_version: u64,
    pub plan: String,
    /// Where it was measured: on another machine the answer may be another one.
    pub environment: String,
    pub choices: Vec<Choice>,
    /// Paths and loads of which the plan asks for bounds alone: nothing to choose by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bounds_alone: Vec<String>,
}

/// Of one path and load.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The path and the load: "over lan, 4KiB randread, depth 32".
    pub load: String,
    /// The measure that counts.
    pub by: Measure,
    /// The road, if one can be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub take: Option<String>,
    pub sureness: Sureness,
    /// What decided among those of whom none is shown to be better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// Who is out of the question, and who is not, in the order of the plan.
    pub candidates: Vec<Candidate>,
    /// What is said of each comparison by this measure, word for word.
    pub said: Vec<String>,
    /// What would change it.
    pub turns: Vec<Turn>,
}

/// How sure it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Sureness {
    /// It is shown to be better than all others.
    Shown { exploratory: bool },
    /// All that are left are shown to be equal to it, within the margin.
    Equal { margin: f64, exploratory: bool, with: Vec<String> },
    /// Of some that are left no difference to it, and no equality, is shown; others are shown to be equal.
    Open { with: Vec<String>, equal: Vec<String> },
    /// It was compared with `null` alone, which is no road.
    Alone,
    /// There is no verdict to go by.
    Withheld { reason: Withheld },
    /// Each of them is shown to be behind another one.
    Contradiction,
}

/// By what the road was chosen among those that are left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Decided {
    /// It needs less processor time an operation; by a verdict, or by figures alone.
    Cpu { us_per_op: f64, next_us_per_op: f64, by_verdict: bool },
    /// It has fewer bytes on the wire an operation.
    Wire { bytes_per_op: f64, next_bytes_per_op: f64 },
    /// It is what the plan holds the others against, so that nothing has to change.
    Reference,
    /// It stands first in the plan.
    First,
}

/// A system that was compared.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    pub system: String,
    #[serde(flatten)]
    pub figures: Figures,
    /// By whom it is shown to be beaten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
}

/// What a result file advises.
pub fn recommend(file: &Value, by: Option<Measure>) -> Result<Advice, String> {
    let kept = Kept::read(file)?;
    let experiment = agreement::experiment(&kept)?;
    let choices = choice::all(&kept, &experiment, by)?;
    let one = &kept.environment;
    let environment =
        format!("plateway {}, {}, {}, {}", one.version, one.kernel, one.cpu, one.date);
    let plan = kept.results.plan.clone();
    let bounds_alone = choice::bounds_alone(&experiment);
    Ok(Advice { schema_version: SCHEMA_VERSION, plan, environment, choices, bounds_alone })
}

impl Advice {
    /// What is said of each path and load that nothing is recommended for, since nothing was compared.
    pub fn left_out(&self) -> impl Iterator<Item = String> + '_ {
        let say =
            |load: &String| format!("{load}\n  nothing is recommended: {}", choice::BOUNDS_ALONE);
        self.bounds_alone.iter().map(say)
    }
}

/// What is said first: "take nvme: it is shown to be better than all others by IOPS".
impl Choice {
    pub fn headline(&self) -> String {
        let by = self.by;
        let label = |exploratory: bool| match exploratory {
            true => " (exploratory: one such verdict in twenty is chance)",
            false => "",
        };
        let take = self.take.as_deref().unwrap_or("none");
        match &self.sureness {
            Sureness::Shown { exploratory } => {
                format!(
                    "take {take}: by {by} it is shown to be better than the others{}",
                    label(*exploratory)
                )
            }
            Sureness::Equal { margin, exploratory, with } => format!(
                "take {take}: by {by} {} equal to it within {}{}{}",
                are(with),
                crate::statistics::ratio::Percent(*margin),
                label(*exploratory),
                self.decided_by()
            ),
            Sureness::Open { with, equal } => {
                let equal = match equal.as_slice() {
                    [] => String::new(),
                    _ => format!(" ({} shown to be equal to it)", are(equal)),
                };
                format!(
                    "perhaps {take}: by {by} nothing is shown between it and {}{equal}{}",
                    and(with),
                    self.decided_by()
                )
            }
            Sureness::Alone => {
                format!(
                    "{take} is the only one: by {by} it was compared with null alone, which is no road"
                )
            }
            Sureness::Withheld { reason } => {
                format!("nothing is recommended: no verdict by {by}: {reason}")
            }
            Sureness::Contradiction => {
                format!("nothing is recommended: by {by} each is shown to be behind another one")
            }
        }
    }

    fn decided_by(&self) -> String {
        self.decided.map_or_else(String::new, |decided| format!("; so {decided}"))
    }
}

impl std::fmt::Display for Decided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Decided::Cpu { us_per_op, next_us_per_op, by_verdict } => {
                let how = if *by_verdict { "by a verdict" } else { "by figures alone, without a verdict" };
                write!(f, "CPU per operation decides, {us_per_op:.1} us instead of {next_us_per_op:.1} us ({how})")
            }
            Decided::Wire { bytes_per_op, next_bytes_per_op } => write!(
                f,
                "bytes on the wire decide, {bytes_per_op:.0} an operation instead of {next_bytes_per_op:.0} (by figures alone, without a verdict)"
            ),
            Decided::Reference => f.write_str(
                "the plan's reference stays, since CPU and bytes do not tell them apart: nothing has to change",
            ),
            Decided::First => f.write_str(
                "the first of the plan is named, since CPU and bytes do not tell them apart",
            ),
        }
    }
}

/// "a, b and c".
fn and(names: &[String]) -> String {
    match names {
        [] => "nobody".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

fn are(names: &[String]) -> String {
    format!("{} {}", and(names), if names.len() == 1 { "is" } else { "are" })
}
