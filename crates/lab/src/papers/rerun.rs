//! How each finding of a paper is recreated here: by which plan and comparisons, or why by none.
//!
//! In comes the text of papers/NAME.rerun.toml, whose fields stand in papers/README.md; out comes one
//! [`How`] for each finding of the paper, in the paper's order. Errors: what was expected, and for which
//! finding. Whether plans and comparisons are there is held by a test, since a plan may be of words that
//! this version does not have.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::facts::Paper;
use super::reach::{Reach, Ways};
use crate::plan::Measure;

/// A plan of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    pub plan: String,
    /// What is smaller or larger here than in the paper, and how that was chosen.
    pub scaled: String,
    /// Whether `--full` alone runs it: with it the paper takes longer than an hour.
    #[serde(default)]
    pub full: bool,
    /// The comparisons that a quick run has.
    pub quick: Vec<String>,
    /// The pictures that it has.
    #[serde(default)]
    pub quick_pictures: Vec<String>,
    pub quick_seconds: u64,
    pub quick_window_ms: u64,
}

/// What becomes of a finding.
#[derive(Clone, Debug)]
pub enum How {
    Recreated(Box<Recreated>),
    /// By arithmetic, whatever a machine does.
    Exact(Exact),
    /// By what is reached at all.
    Reach(Reach),
    Not {
        word: Word,
        because: String,
        /// What it needs of a machine besides: without that it cannot be tested there, whatever is built.
        needs: Option<Need>,
    },
}

/// What of a machine the lab has no use for yet.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Virtual machines whose network is the kernel's, so that it is they that are measured, and no emulation.
    Guests,
    /// CPUs that share a core.
    Siblings,
    /// A kernel with this file system.
    Zfs,
}

impl Need {
    pub const ALL: [Need; 3] = [Need::Guests, Need::Siblings, Need::Zfs];

    fn words(self) -> &'static str {
        match self {
            Need::Guests => "virtual machines that run and reach a network by the kernel",
            Need::Siblings => "CPUs that share a core",
            Need::Zfs => "zfs",
        }
    }
}

impl How {
    /// The same on a machine that lacks things, which are told in words: what it lacks comes before what we have not
    /// built.
    pub(super) fn here(self, lacks: impl Fn(Need) -> Option<String>) -> How {
        match self {
            How::Not { needs: Some(need), because, word } => match lacks(need) {
                Some(lack) => How::Not {
                    word: Word::CannotBeTested,
                    because: format!("it needs {}, and {lack}", need.words()),
                    needs: None,
                },
                None => How::Not { word, because, needs: Some(need) },
            },
            other => other,
        }
    }
}

/// A finding that is exact.
#[derive(Clone, Debug)]
pub struct Exact {
    pub stacks: Stacks,
    /// What is held against what.
    pub recreated: String,
}

/// Stacks of protocols, as `plateway wire` calls them: the finding's a, each against each of its b.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stacks {
    pub a: Vec<String>,
    pub b: Vec<String>,
}

/// A finding that is judged by comparisons of a plan.
#[derive(Clone, Debug)]
pub struct Recreated {
    pub plan: String,
    /// One a cell of the finding.
    pub comparisons: Vec<String>,
    /// Whether it is of how much each varies from round to round, and not of how much it is.
    pub variation: bool,
    /// Of a finding on what is gained: the comparison by whose ratio that of the only one is divided.
    pub over: Option<String>,
    /// Of cells whose two sides something of ours costs differently: for each the comparison that says how much.
    pub controls: Vec<String>,
    pub judge: Quantifier,
    /// Of what only stands for the finding's own: what that is. Nothing is said of the finding then.
    pub stands_for: Option<String>,
    /// Whether the comparison's system is the finding's b.
    pub inverted: bool,
    /// Shown with it, and of no weight.
    pub beside: Vec<String>,
    /// How the precondition is.
    pub recreated: String,
    /// What of it is looked at in the run, ...
    pub sees: Sees,
    /// ... and what nothing looks at.
    pub unseen: Option<String>,
    /// What may explain a refuted one.
    pub explains: Option<String>,
}

/// How many cells of a finding are to hold it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Quantifier {
    #[serde(rename = "every")]
    Every,
    #[serde(rename = "most")]
    Most,
    #[serde(rename = "a few")]
    AFew,
    #[serde(rename = "mean")]
    Mean,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Word {
    #[serde(rename = "analogue only")]
    AnalogueOnly,
    #[serde(rename = "not built")]
    NotBuilt,
    #[serde(rename = "cannot be tested here")]
    CannotBeTested,
    #[serde(rename = "not rerun yet")]
    NotRerunYet,
}

/// What is to be seen in a run, so that the precondition held.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sees {
    /// The bits of both directions together, as a share of the path's rate.
    pub link_busy_at_most: Option<f64>,
    /// The same, of a link that is full.
    pub link_busy_at_least: Option<f64>,
    /// Of its time, what the busiest CPU of both ends works.
    pub cpu_busy_at_least: Option<f64>,
    /// How many CPUs each end has.
    pub cpus_at_least: Option<f64>,
    /// Of an operation's time, what it takes longer than over the disk of `without_disk`.
    pub disk_share_at_least: Option<f64>,
    /// Operations a second, as a share of those of the disk that does nothing, under the same load.
    pub null_share_at_most: Option<f64>,
    /// For a system that has a disk, the one whose disk costs nothing.
    #[serde(default)]
    pub without_disk: BTreeMap<String, String>,
}

/// A figure of the paper, of cells of ours: bars of groups, or a picture of the plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Drawn {
    pub title: String,
    /// The paper's words of it.
    pub shown_as: String,
    pub plan: String,
    pub measure: Measure,
    /// Groups of the plan's results, each a row.
    #[serde(default)]
    pub groups: Vec<String>,
    /// A picture of the plan, in place of them.
    pub picture: Option<String>,
}

/// As the file stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Low {
    #[serde(rename = "run", default)]
    runs: Vec<Run>,
    #[serde(rename = "finding")]
    findings: Vec<LowEntry>,
    #[serde(rename = "figure", default)]
    figures: Vec<Drawn>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LowEntry {
    #[serde(rename = "stands-for")]
    stands_for: Option<String>,
    of: Vec<String>,
    plan: Option<String>,
    #[serde(default)]
    comparisons: Vec<String>,
    over: Option<String>,
    #[serde(default)]
    controls: Vec<String>,
    judge: Option<Quantifier>,
    #[serde(default)]
    inverted: bool,
    #[serde(default)]
    beside: Vec<String>,
    recreated: Option<String>,
    #[serde(default)]
    sees: Sees,
    unseen: Option<String>,
    explains: Option<String>,
    word: Option<Word>,
    because: Option<String>,
    needs: Option<Need>,
    stacks: Option<Stacks>,
    reach: Option<Ways>,
    #[serde(default)]
    variation: bool,
}

/// A file that fits its paper.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) runs: Vec<Run>,
    pub(super) how: Vec<How>,
    pub(super) figures: Vec<Drawn>,
}

/// Reads a file and holds it against its paper.
pub(super) fn read(text: &str, paper: &Paper) -> Result<Checked, String> {
    let low: Low = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut entries: BTreeMap<&str, &LowEntry> = BTreeMap::new();
    for entry in &low.findings {
        for id in &entry.of {
            if paper.findings.iter().all(|finding| finding.id != *id) {
                return Err(format!("{id}: expected a finding of the paper"));
            }
            if entries.insert(id, entry).is_some() {
                return Err(format!("{id}: expected one entry, seen two"));
            }
        }
    }
    let of_finding = |id: &str| {
        let entry = entries.get(id).ok_or(format!("{id}: expected an entry, seen none"))?;
        let how = How::of(entry).map_err(|why| format!("{id}: {why}"))?;
        match &how {
            How::Recreated(one) if low.runs.iter().all(|run| run.plan != one.plan) => {
                Err(format!("{id}: expected a plan of a [[run]], seen {:?}", one.plan))
            }
            _ => Ok(how),
        }
    };
    let is_neither = |drawn: &&Drawn| drawn.groups.is_empty() == drawn.picture.is_none();
    if let Some(drawn) = low.figures.iter().find(is_neither) {
        return Err(format!("figure {}: expected either groups or a picture", drawn.title));
    }
    let how: Result<Vec<How>, String> =
        paper.findings.iter().map(|finding| of_finding(&finding.id)).collect();
    Ok(Checked { how: how?, runs: low.runs, figures: low.figures })
}

impl How {
    fn of(low: &LowEntry) -> Result<How, &'static str> {
        let LowEntry { plan, word, because, needs, judge, recreated, stacks, reach, .. } =
            low.clone();
        if needs.is_some() && word != Some(Word::NotRerunYet) {
            return Err("expected needs beside the word \"not rerun yet\" alone");
        }
        if let Some(ways) = reach {
            if plan.is_some() || word.is_some() || stacks.is_some() {
                return Err("expected ways (reach) alone, and neither a plan, stacks nor a word");
            }
            let recreated = recreated.ok_or("expected what is tried (recreated)")?;
            return Ok(How::Reach(Reach { ways, recreated }));
        }
        if let Some(stacks) = stacks {
            if plan.is_some() || word.is_some() || stacks.a.is_empty() || stacks.b.is_empty() {
                return Err("expected stacks of both sides, and neither a plan nor a word");
            }
            let recreated = recreated.ok_or("expected what is held against what (recreated)")?;
            return Ok(How::Exact(Exact { stacks, recreated }));
        }
        match (plan, word) {
            (Some(plan), None) if because.is_none() => {
                let judge = judge.ok_or("expected how its cells are judged (judge)")?;
                let recreated =
                    recreated.ok_or("expected how its precondition is recreated (recreated)")?;
                if low.comparisons.is_empty() {
                    return Err("expected a comparison at least");
                }
                if low.over.is_some() && low.comparisons.len() > 1 {
                    return Err(
                        "expected one comparison beside over, by whose ratio it is divided",
                    );
                }
                if !low.controls.is_empty()
                    && (low.controls.len() != low.comparisons.len() || judge == Quantifier::Mean)
                {
                    return Err(
                        "expected a control for each comparison, and cells that are judged one by one",
                    );
                }
                let LowEntry {
                    comparisons,
                    stands_for,
                    over,
                    controls,
                    inverted,
                    beside,
                    sees,
                    unseen,
                    explains,
                    variation,
                    ..
                } = low.clone();
                Ok(How::Recreated(Box::new(Recreated {
                    plan,
                    comparisons,
                    over,
                    controls,
                    variation,
                    judge,
                    stands_for,
                    inverted,
                    beside,
                    recreated,
                    sees,
                    unseen,
                    explains,
                })))
            }
            (None, Some(word))
                if judge.is_none()
                    && low.comparisons.is_empty()
                    && low.over.is_none()
                    && low.stands_for.is_none() =>
            {
                let because = because.ok_or("expected because, of one that is not rerun")?;
                Ok(How::Not { word, because, needs })
            }
            _ => Err(
                "expected a plan with comparisons, stacks, ways (reach), or a word with because",
            ),
        }
    }
}

/// As the file has it.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::AnalogueOnly => "analogue only",
            Word::NotBuilt => "not built",
            Word::CannotBeTested => "cannot be tested here",
            Word::NotRerunYet => "not rerun yet",
        })
    }
}

/// What cells are asked: "in every cell".
impl fmt::Display for Quantifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantifier::Every => "in every cell",
            Quantifier::Most => "in most cells",
            Quantifier::AFew => "in a few cells",
            Quantifier::Mean => "on average (geometric mean)",
        })
    }
}
