//! What would be rerun of a paper, finding by finding, before anything runs.
//!
//! Times are those of the whole plan by which a finding is judged, since its comparisons share rounds
//! with others. A plan that this version does not read is said to be so.

use std::fmt;

use serde::Serialize;

use super::Study;
use super::facts::Finding;
use super::rerun::{How, Recreated};
use crate::plan::Experiment;

/// One finding of a paper.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    pub paper: &'static str,
    pub id: String,
    /// In words of its fields.
    pub claim: String,
    /// In the paper's words.
    pub expect: String,
    /// What is held against what.
    pub a: String,
    pub b: String,
    pub precondition: String,
    /// Why the published value is in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// How it is recreated, or why not.
    pub recreated: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Our cells: the comparisons by which it is judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<String>,
    /// By whose ratio that of the comparison is divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// What says how much something of ours costs that both sides do not have alike, for each of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<String>,
    /// How long its plan takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

impl Study {
    /// Each finding, in the paper's order.
    pub fn list(&self) -> Vec<Listed> {
        let findings = self.paper.findings.iter().zip(&self.how);
        findings.map(|(finding, how)| self.listed(finding, how)).collect()
    }

    /// Whether some of it is on what can be reached at all.
    pub fn reaches(&self) -> bool {
        self.how.iter().any(|how| matches!(how, How::Reach(_)))
    }

    fn listed(&self, finding: &Finding, how: &How) -> Listed {
        let Finding { id, a, b, precondition, expect, suspect, .. } = finding.clone();
        let (recreated, one, time) = match how {
            How::Not { word, because, .. } => (format!("{word}: {because}"), None, None),
            How::Exact(exact) => {
                (format!("exactly, without a run: {}", exact.recreated), None, None)
            }
            How::Reach(reach) => {
                let words = format!(
                    "by what is reached, tried once in each run, which takes a quarter of a minute: {}",
                    reach.recreated
                );
                (words, None, None)
            }
            How::Recreated(one) => {
                let (words, time) = self.words(one);
                (words, Some(one), time)
            }
        };
        Listed {
            paper: self.name,
            id,
            claim: finding.claim(),
            expect,
            a,
            b,
            precondition,
            suspect,
            recreated,
            plan: one.map(|one| one.plan.clone()),
            comparisons: one.map(|one| one.comparisons.clone()).unwrap_or_default(),
            over: one.and_then(|one| one.over.clone()),
            controls: one.map(|one| one.controls.clone()).unwrap_or_default(),
            time,
        }
    }

    /// How it is recreated, and how long that takes.
    fn words(&self, one: &Recreated) -> (String, Option<String>) {
        let Recreated { plan, judge, recreated, .. } = one;
        let run = self.run(plan).expect("a plan of the file's runs");
        let experiment = match run.experiment() {
            Ok(experiment) => experiment,
            Err(_) => {
                let words = format!(
                    "not rerun yet: its plan {plan} asks for what this version does not have; with it, {judge}: {recreated}"
                );
                return (words, None);
            }
        };
        let unseen = one.unseen.as_ref().map(|unseen| format!("; not looked at: {unseen}"));
        let stands_for = one.stands_for.as_ref().map(|what| format!("analogue only, {what}; "));
        let words = format!(
            "{}{judge}: {recreated}{}",
            stands_for.unwrap_or_default(),
            unseen.unwrap_or_default()
        );
        let alone = if run.full { ", with --full alone" } else { "" };
        (words, Some(format!("{}{alone}", time(&experiment))))
    }
}

/// "at least 264 trials in 17min 36s, at most 40min"
fn time(experiment: &Experiment) -> String {
    let estimate = experiment.estimate();
    experiment.time.map_or_else(|| estimate.to_string(), |time| estimate.within(time))
}

/// A paragraph a finding.
impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.paper, self.id)?;
        writeln!(f, "  claim:        {} ({})", self.claim, self.expect)?;
        writeln!(f, "  cells:        {} against {}", self.a, self.b)?;
        writeln!(f, "  precondition: {}", self.precondition)?;
        if let Some(suspect) = &self.suspect {
            writeln!(f, "  in doubt:     {suspect}")?;
        }
        writeln!(f, "  here:         {}", self.recreated)?;
        if let Some(plan) = &self.plan {
            writeln!(f, "  plan:         {plan}")?;
        }
        for comparison in &self.comparisons {
            writeln!(f, "                {comparison}")?;
        }
        if let Some(over) = &self.over {
            writeln!(f, "    divided by: {over}")?;
        }
        for control in &self.controls {
            writeln!(f, "    control:    {control}")?;
        }
        if let Some(time) = &self.time {
            writeln!(f, "  time:         {time}")?;
        }
        Ok(())
    }
}
