//! What a paper did and found, as its file says it: strictly read, and never changed by what is measured.
//!
//! In comes the text of papers/NAME.toml, whose fields stand in papers/README.md. Ratios are
//! metric(a) / metric(b), margins shares of b. Errors: what was expected, and the finding or table in
//! which it was not so.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::statistics::ratio::{Percent, Times};

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    pub title: String,
    pub authors: Vec<String>,
    pub year: Option<u32>,
    pub venue: Option<String>,
    /// What our copy of the source lacks.
    pub source_note: Option<String>,
    /// Its hardware, in words of its own.
    #[serde(default)]
    pub testbed: toml::Table,
    #[serde(default)]
    pub systems: toml::Table,
    #[serde(default)]
    pub method: toml::Table,
    /// What a reader of its numbers must know.
    #[serde(default)]
    pub notes: toml::Table,
    /// What its author wished for.
    #[serde(default)]
    pub wish: toml::Table,
    #[serde(rename = "experiment", default)]
    pub experiments: Vec<PaperExperiment>,
    #[serde(rename = "workload", default)]
    pub workloads: Vec<Workload>,
    #[serde(rename = "table", default)]
    pub tables: Vec<Table>,
    #[serde(rename = "finding")]
    pub findings: Vec<Finding>,
}

/// What was varied and measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperExperiment {
    pub id: String,
    pub tool: Option<String>,
    #[serde(default)]
    pub vary: toml::Table,
    #[serde(default)]
    pub measure: Vec<String>,
    /// The figures and tables that hold it.
    pub shown_as: Option<String>,
    pub shape: Option<String>,
    pub note: Option<String>,
    pub link: Option<String>,
    pub file_system: Option<String>,
    pub file_size: Option<String>,
    pub ext4_tuning: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub id: String,
    pub shape: String,
}

/// Published numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub id: String,
    pub caption: String,
    pub note: Option<String>,
    pub columns: Vec<String>,
    /// A row may end before the last column, where the paper prints no more.
    pub rows: Vec<Vec<Datum>>,
    #[serde(default)]
    pub suspect: Vec<Suspect>,
}

/// What is in a place of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Datum {
    Text(String),
    Number(f64),
}

/// Why a published number is in doubt; without a row, all of its table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    pub row: Option<String>,
    pub column: Option<String>,
    pub value: Option<f64>,
    pub why: String,
}

/// A claim that a rerun can confirm or refute.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    pub id: String,
    pub metric: String,
    pub a: String,
    pub b: String,
    pub direction: Claim,
    /// metric(a) / metric(b), as the paper saw it.
    pub ratio: Option<Ratio>,
    /// Whether the ratio is a lower bound.
    pub ratio_bound: Option<RatioBound>,
    /// Within which share of b the two are equal.
    pub margin: Option<f64>,
    pub when: String,
    pub precondition: String,
    /// The claim in the paper's words.
    pub expect: String,
    /// Why the published value itself is in doubt.
    pub suspect: Option<String>,
}

/// How metric(a) stands to metric(b).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Claim {
    #[serde(rename = "a>b")]
    Above,
    #[serde(rename = "a<b")]
    Below,
    #[serde(rename = "equal")]
    Equal,
}

/// A ratio, or the span of several.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Ratio {
    One(f64),
    Span([f64; 2]),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum RatioBound {
    #[serde(rename = "at least")]
    AtLeast,
}

impl Ratio {
    /// Its lower and its upper end.
    pub fn ends(self) -> (f64, f64) {
        match self {
            Ratio::One(ratio) => (ratio, ratio),
            Ratio::Span([low, high]) => (low, high),
        }
    }
}

/// "1.20 times", "3.00 to 4.00 times"
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The logarithm of nothing has no digits.
            Ratio::One(ratio) if *ratio <= 0.0 => write!(f, "{ratio} times"),
            Ratio::One(ratio) => write!(f, "{} times", Times(*ratio)),
            Ratio::Span([low, high]) => write!(f, "{} to {} times", Times(*low), Times(*high)),
        }
    }
}

/// As the paper prints it, but for zeros behind the point.
impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Text(text) => f.write_str(text),
            Datum::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Finding {
    /// The claim in words of its fields.
    pub fn claim(&self) -> String {
        let Finding { metric, a, b, when, .. } = self;
        let how = match self.direction {
            Claim::Above => format!("{a} has more than {b}"),
            Claim::Below => format!("{a} has less than {b}"),
            Claim::Equal => {
                let margin = Percent(self.margin.unwrap_or_default());
                format!("{a} and {b} are equal within {margin}")
            }
        };
        format!("{metric}: {how}{}; {when}", self.published())
    }

    /// " (1.20 times)", of one whose paper gives a number.
    fn published(&self) -> String {
        let Some(ratio) = self.ratio else { return String::new() };
        let least = if self.ratio_bound.is_some() { "at least " } else { "" };
        format!(" ({least}{ratio})")
    }
}

/// Reads a file and holds it against itself.
pub(super) fn read(text: &str) -> Result<Paper, String> {
    let paper: Paper = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut ids = BTreeSet::new();
    for finding in &paper.findings {
        if !ids.insert(&finding.id) {
            return Err(format!("{}: expected an id that no other finding has", finding.id));
        }
        check(finding).map_err(|why| format!("{}: {why}", finding.id))?;
    }
    let longer = |table: &&Table| table.rows.iter().any(|row| row.len() > table.columns.len());
    match paper.tables.iter().find(longer) {
        Some(Table { id, .. }) => {
            Err(format!("table {id}: expected no row with more than its columns"))
        }
        None => Ok(paper),
    }
}

fn check(finding: &Finding) -> Result<(), &'static str> {
    if (finding.direction == Claim::Equal) != finding.margin.is_some() {
        return Err("expected a margin of what is equal, and of nothing else");
    }
    if finding.margin.is_some_and(|margin| !(0.0..1.0).contains(&margin)) {
        return Err("expected a margin from 0 to 1");
    }
    if finding.ratio_bound.is_some() && finding.ratio.is_none() {
        return Err("expected a ratio, of which ratio_bound speaks");
    }
    match finding.ratio.map(Ratio::ends) {
        Some((low, high)) if !(0.0 <= low && low <= high) => {
            Err("expected a ratio of 0 or more, or two of them in their order")
        }
        _ => Ok(()),
    }
}
