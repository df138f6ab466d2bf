//! What a plan came to: for each group what the rounds say, for each picture what its cells
//! measured, and what failed.
//!
//! Displays as docs/statistics.md says it, a line for each comparison; serializes whole, with the
//! values of every round, and is read again, so that verdicts can be drawn again and held against
//! other runs. What a file may leave out has a default, and what is not known is passed over; whoever
//! reads one calls [`Results::check`] before following its places.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measure::{Measure, Measures};
use super::model::{Column, Group};
use crate::statistics::{Analysis, Moved, Sizing, Taken, moved};

/// All of a plan.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Results {
    pub plan: String,
    pub seed: u64,
    #[serde(default)]
    pub groups: Vec<GroupResults>,
    #[serde(default)]
    pub pictures: Vec<PictureResult>,
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// What trials took together, with all that is around them.
    #[serde(rename = "spent_seconds", default, with = "seconds")]
    pub spent: Duration,
}

/// A time as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::de::{Error as _, Unexpected};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        time.as_secs_f64().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            D::Error::invalid_value(Unexpected::Float(seconds), &"a time in seconds, 0 or more")
        })
    }
}

/// Comparisons that shared their rounds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GroupResults {
    pub name: String,
    /// In the order of the columns' systems.
    pub systems: Vec<String>,
    /// Which of them was the reference of every round.
    pub null: usize,
    pub columns: Vec<Column>,
    /// A value each column, of the rounds that count, in the order in which they were run.
    pub rounds: Vec<Vec<f64>>,
    /// Of those that never became steady.
    #[serde(default)]
    pub unsteady_rounds: Vec<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizing: Option<Sizing>,
    pub analysis: Analysis,
    /// Who moved while it ran, by `null`.
    #[serde(default)]
    pub moved: Vec<SystemMoved>,
}

impl Group {
    /// The group with those of its cells that results of it have: a quick run leaves out what nobody compares.
    /// None where they are of other cells.
    pub fn as_run(&self, results: &GroupResults) -> Option<Group> {
        let mut group = self.clone();
        if group.columns != results.columns {
            let findings = &results.analysis.findings;
            let ran = |name: &str| findings.iter().any(|finding| finding.name == name);
            group.plan.comparisons.retain(|one| ran(&one.name));
            group.keep_what_is_compared();
        }
        (group.columns == results.columns).then_some(group)
    }
}

/// Whether machine or system moved, in one measure of a system.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SystemMoved {
    pub column: Column,
    pub moved: Moved,
}

/// One cell of a picture.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PictureResult {
    pub picture: String,
    pub cell: String,
    pub measures: Measures,
    /// Whether its trial became steady.
    pub is_steady: bool,
}

/// A trial that measured nothing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Failure {
    pub cell: String,
    pub why: String,
}

impl Results {
    /// Whether every place that is named is there; an error says what was expected and seen. What
    /// was taken always passes, what was read may not.
    pub fn check(&self) -> Result<(), String> {
        self.groups.iter().try_for_each(GroupResults::check)
    }
}

impl GroupResults {
    fn check(&self) -> Result<(), String> {
        let (name, systems, columns) = (&self.name, self.systems.len(), self.columns.len());
        let of_columns = self.columns.iter().map(|column| column.system);
        let of_moved = self.moved.iter().map(|moved| moved.column.system);
        let mut places = of_columns.chain(of_moved).chain([self.null]);
        if let Some(seen) = places.find(|place| *place >= systems) {
            return Err(format!(
                "group {name:?}: expected the place of one of {systems} systems, seen {seen}"
            ));
        }
        let mut lengths = self.rounds.iter().chain(&self.unsteady_rounds).map(Vec::len);
        if let Some(seen) = lengths.find(|length| *length != columns) {
            return Err(format!(
                "group {name:?}: expected {columns} values of each round, seen {seen}"
            ));
        }
        Ok(())
    }

    pub(super) fn of(group: &Group, taken: Taken, analysis: Analysis) -> GroupResults {
        GroupResults {
            name: group.name.clone(),
            systems: group.names.clone(),
            null: group.null,
            columns: group.columns.clone(),
            moved: who_moved(group, &taken.rounds),
            rounds: taken.rounds,
            unsteady_rounds: taken.unsteady_rounds,
            sizing: taken.sizing,
            analysis,
        }
    }
}

/// The place of a measure of a system.
pub(crate) fn column_of(columns: &[Column], system: usize, measure: Measure) -> Option<usize> {
    columns.iter().position(|one| *one == Column { system, measure })
}

/// What a column's values are called from run to run: "IOPS of nvme over lan, 4KiB randread, depth 32".
pub(crate) fn series_name(measure: Measure, system: &str, group: &str) -> String {
    format!("{measure} of {system} {group}")
}

/// Of each column but the reference's own.
fn who_moved(group: &Group, rounds: &[Vec<f64>]) -> Vec<SystemMoved> {
    let series = |column: usize| rounds.iter().map(|values| values[column]).collect::<Vec<f64>>();
    let of_null = |column: &Column| column_of(&group.columns, group.null, column.measure);
    let columns = group.columns.iter().enumerate();
    let others = columns.filter(|(_, column)| column.system != group.null);
    others
        .filter_map(|(at, column)| {
            let reference = series(of_null(column)?);
            Some(SystemMoved { column: *column, moved: moved(&series(at), &reference) })
        })
        .collect()
}

/// A line for each comparison, for its rounds, and for who moved.
impl fmt::Display for GroupResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.analysis)?;
        for SystemMoved { column, moved } in &self.moved {
            if *moved != Moved::Neither {
                let system = &self.systems[column.system];
                write!(f, "\n{} of {system}: {moved}", column.measure)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.iter().map(ToString::to_string);
        let failures = self.failures.iter().map(ToString::to_string);
        f.write_str(&groups.chain(failures).collect::<Vec<String>>().join("\n"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed: {}: {}", self.cell, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::serial::Serial;
    use crate::statistics::{Bound, Estimate, Finding, Interval, LogRatio, Verdict, Withheld};

    /// Near enough to 1 that its logarithm and back is itself.
    fn log(ratio: f64) -> LogRatio {
        LogRatio(ratio.ln())
    }

    fn interval() -> Interval {
        Interval { low: log(0.875), high: log(1.125), level: 0.975 }
    }

    fn every_verdict() -> Vec<Verdict> {
        let reasons = [
            Withheld::Interrupted,
            Withheld::OutOfTime,
            Withheld::Failed,
            Withheld::Unsteady,
            Withheld::FewRounds,
        ];
        let mut all = vec![
            Verdict::Faster { ratio: log(1.2), interval: interval() },
            Verdict::Slower { ratio: log(0.81), interval: interval() },
            Verdict::Equal { margin: 0.05 },
            Verdict::NoDifferenceShown { detectable: 0.034 },
            Verdict::Undecided { more_rounds: 1 },
            Verdict::Undecided { more_rounds: 12 },
            Verdict::Held { times: interval() },
            Verdict::NotHeld { times: interval() },
            Verdict::Open { times: interval(), more_rounds: Some(12) },
            Verdict::Open { times: interval(), more_rounds: None },
        ];
        all.extend(reasons.map(|reason| Verdict::Withheld { reason }));
        all
    }

    /// With something in every place.
    fn results() -> Results {
        let estimate = Estimate {
            ratio: log(0.9),
            interval: interval(),
            corrected: interval(),
            bootstrap: interval(),
            bootstrap_disagrees: true,
            serial: Serial { ratio: 0.8, correlation: 0.6, p_value: 0.01 },
            rounds_effective: 4.25,
            detectable: 0.3,
        };
        let finding = |(place, verdict): (usize, Verdict)| Finding {
            name: format!("IOPS of {place}"),
            primary: place % 2 == 0,
            bound: (place % 4 == 0).then_some(Bound::AtLeast(0.9)),
            is_cost: place % 5 == 0,
            estimate: (place % 3 > 0).then_some(estimate),
            verdict,
        };
        let column = |system| Column { system, measure: Measure::P99_9 };
        let moved = [Moved::Neither, Moved::Machine, Moved::System, Moved::Both];
        let group = GroupResults {
            name: "over lan, depth 1".to_owned(),
            systems: vec!["nvme".to_owned(), "null".to_owned()],
            null: 1,
            columns: vec![column(0), column(1)],
            rounds: vec![vec![1.5, 2.5], vec![3.5, 4.5]],
            unsteady_rounds: vec![vec![5.5, 6.5]],
            sizing: Some(Sizing {
                deviation: 0.125,
                deviation_upper: 0.25,
                rounds_needed: 10,
                rounds: 12,
            }),
            analysis: Analysis {
                findings: every_verdict().into_iter().enumerate().map(finding).collect(),
                rounds_planned: Some(12),
                rounds_run: 13,
                rounds_used: 11,
                rounds_unsteady: 1,
                unsteady_trials: vec![1, 0],
            },
            moved: moved.map(|moved| SystemMoved { column: column(0), moved }).to_vec(),
        };
        let mut bare = group.clone();
        (bare.sizing, bare.analysis.rounds_planned) = (None, None);
        let (cell, picture) = ("nvme, depth 1".to_owned(), "depth".to_owned());
        let measures = Measures::from([(Measure::Iops, 1e6), (Measure::CpuPerOp, 6.25)]);
        Results {
            plan: "a plan".to_owned(),
            seed: u64::MAX,
            groups: vec![group, bare],
            pictures: vec![PictureResult {
                picture,
                cell: cell.clone(),
                measures,
                is_steady: true,
            }],
            failures: vec![Failure { cell, why: "refused".to_owned() }],
            spent: Duration::from_millis(145_120),
        }
    }

    #[test]
    fn what_is_written_is_read_again_as_it_was() {
        let results = results();
        let text = serde_json::to_string(&results).expect("numbers and words");
        let read: Results = serde_json::from_str(&text).expect("what was written");
        assert_eq!(read, results);
        assert_eq!(read.to_string(), results.to_string());
        assert_eq!(read.check(), Ok(()));
    }

    #[test]
    fn what_is_not_known_is_passed_over_and_what_may_be_absent_has_a_default() {
        let json = serde_json::json!({ "plan": "a", "seed": 1, "of a later version": [1] });
        let read: Results = serde_json::from_value(json).expect("all that there must be");
        assert!(read.groups.is_empty() && read.spent.is_zero());
    }

    #[test]
    fn what_is_no_number_or_no_word_is_refused() {
        let refused = |place: &str, value: serde_json::Value| {
            let mut json = serde_json::to_value(results()).expect("numbers and words");
            *json.pointer_mut(place).expect(place) = value;
            serde_json::from_value::<Results>(json).expect_err(place).to_string()
        };
        let finding = "/groups/0/analysis/findings/0";
        for (place, value, expected) in [
            ("/groups/0/rounds/0/1".to_owned(), serde_json::Value::Null, "null, expected f64"),
            ("/groups/0/null".to_owned(), (-1).into(), "`-1`, expected usize"),
            ("/groups/0/columns/0/measure".to_owned(), "p42".into(), "seen \"p42\""),
            ("/groups/0/moved/0/moved".to_owned(), "all".into(), "`all`, expected one of"),
            (format!("{finding}/verdict/kind"), "best".into(), "`best`, expected one of"),
            (format!("{finding}/verdict/ratio"), 0.into(), "`0.0`, expected a ratio above 0"),
            (format!("{finding}/verdict/interval/low"), (-1).into(), "expected a ratio above 0"),
            ("/spent_seconds".to_owned(), (-1.5).into(), "`-1.5`, expected a time in seconds"),
        ] {
            let error = refused(&place, value);
            assert!(error.contains(expected), "{place}: {error}");
        }
    }

    #[test]
    fn a_place_that_is_not_there_is_refused() {
        let refused = |change: &dyn Fn(&mut GroupResults)| {
            let mut results = results();
            change(&mut results.groups[1]);
            results.check().expect_err("it points nowhere")
        };
        let place = "group \"over lan, depth 1\": expected the place of one of 2 systems, seen 2";
        assert_eq!(refused(&|group| group.null = 2), place);
        assert_eq!(refused(&|group| group.columns[1].system = 2), place);
        assert_eq!(refused(&|group| group.moved[3].column.system = 2), place);
        let round = "group \"over lan, depth 1\": expected 2 values of each round, seen 1";
        assert_eq!(refused(&|group| group.rounds[0].truncate(1)), round);
        assert_eq!(refused(&|group| group.unsteady_rounds[0].truncate(1)), round);
    }
}
