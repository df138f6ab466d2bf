//! What is measured and is no plan of the lab: `cases.toml` holds every case with its sides and what is
//! wanted of it.
//!
//! A [`Side`] is a server and a load on it. A [`Figure`] is a number in the JSON that the load
//! printed. Ratios are subject by reference, except for costs, where they are wanted small. A case
//! that stands for many is taken apart by [`super::matrix`].

use anyhow::{Context as _, Result};
use lab::statistics::Bound as Limit;
use serde::Deserialize;
use toml::{Table, Value};

use super::figure::Figure;
use super::matrix;
use super::mpls::cuts;
use super::plan::Plan;

/// One case: a line of the table for each of its figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) about: String,
    /// By what it is judged.
    pub(super) figures: Vec<Bound>,
    /// By whose figures those of `subject` are divided; without any they are taken themselves.
    #[serde(default)]
    pub(super) references: Vec<Side>,
    /// What several references come to.
    #[serde(default)]
    pub(super) by: By,
    pub(super) subject: Side,
    /// Another in the same rounds, against which both are shown.
    pub(super) beside: Option<Side>,
    /// Its windows are at least so long.
    seconds_min: Option<f64>,
    /// It has no more rounds.
    rounds_max: Option<usize>,
}

/// What the references of a case come to.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum By {
    /// That one counts which did the most operations a second.
    #[default]
    Best,
    /// All together.
    Sum,
}

/// A figure and what is wanted of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Bound {
    pub(super) of: Figure,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
    /// The subject's own, whatever the references are.
    #[serde(default)]
    pub(super) own: bool,
}

/// A server and a load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Side {
    /// What the table calls it among several references, or beside, or as a subject that is not
    /// Plateway.
    pub(super) name: Option<String>,
    pub(super) server: Option<Plan>,
    pub(super) load: Load,
    /// With a hog on the target's CPU.
    #[serde(default)]
    pub(super) hog: bool,
}

/// What puts the load, with its arguments.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// The bare client.
    Client(String),
    /// `plateway bench`; in process without a server.
    Initiator(String),
    /// fio on the files of the stripe.
    Fio(String),
    /// fio on the file that servers export.
    FioFile(String),
    /// `plateway bench` across a network of which cables are cut.
    Cuts(String),
    /// The same for minutes, and none is cut.
    Steady(String),
    /// None: the server is looked at.
    Nothing(String),
}

impl Load {
    pub(super) fn args(&self) -> &str {
        match self {
            Self::Client(args)
            | Self::Initiator(args)
            | Self::Fio(args)
            | Self::FioFile(args)
            | Self::Cuts(args)
            | Self::Steady(args)
            | Self::Nothing(args) => args,
        }
    }

    /// How long it takes whatever length of a window was asked for, in seconds.
    fn own_seconds(&self, quick: bool) -> Option<f64> {
        match self {
            Self::Cuts(_) => Some(cuts::CUT_SECONDS * cuts::count(quick) as f64),
            Self::Steady(_) => Some(cuts::steady_seconds(quick)),
            _ => None,
        }
    }
}

/// Every case, in the order of the table.
pub(super) fn all() -> Result<Vec<Case>> {
    read(include_str!("cases.toml")).context("bench/cases.toml")
}

fn read(text: &str) -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Tables {
        case: Vec<Table>,
    }
    let tables: Tables = toml::from_str(text)?;
    let mut cases = Vec::new();
    for table in tables.case {
        for mut table in matrix::expand(table)? {
            give_load(&mut table);
            let name = table.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
            cases.push(table.try_into().with_context(|| format!("the case {name}"))?);
        }
    }
    Ok(cases)
}

/// Takes the load of a case to its sides that have none.
fn give_load(case: &mut Table) {
    let Some(load) = case.remove("load") else {
        return;
    };
    let references = case.get_mut("references").and_then(Value::as_array_mut);
    for side in references.into_iter().flatten() {
        give(side, &load);
    }
    for side in ["subject", "beside"] {
        if let Some(side) = case.get_mut(side) {
            give(side, &load);
        }
    }
}

fn give(side: &mut Value, load: &Value) {
    if let Some(side) = side.as_table_mut() {
        side.entry("load").or_insert_with(|| load.clone());
    }
}

/// How long a case without references looks at least: what is idle shows slowly.
const ALONE_SECONDS_MIN: f64 = 3.0;
/// A case without references has no more rounds.
const ALONE_ROUNDS_MAX: usize = 3;
/// What a window takes beside its seconds (the load's start, its warm-up, the drain), and a side
/// before its first one (the server's start and the filling), in seconds.
const WINDOW_BESIDE: f64 = 0.7;
const SIDE_BEFORE: f64 = 1.2;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    /// Only to see that everything works.
    pub(super) quick: bool,
}

impl Case {
    /// What is wanted of all figures, in words.
    pub(super) fn wanted(&self) -> String {
        let alone = self.references.is_empty();
        let each: Vec<String> = self.figures.iter().map(|bound| bound.wanted(alone)).collect();
        each.join(", ")
    }

    /// Its own rounds and windows.
    pub(super) fn extent(&self, asked: Extent) -> Extent {
        let alone = self.references.is_empty();
        let most = if alone { ALONE_ROUNDS_MAX } else { usize::MAX };
        let least = self.seconds_min.unwrap_or(if alone { ALONE_SECONDS_MIN } else { 0.0 });
        Extent {
            rounds: asked.rounds.min(self.rounds_max.unwrap_or(most)),
            seconds: if asked.quick { asked.seconds } else { asked.seconds.max(least) },
            quick: asked.quick,
        }
    }

    /// All sides, in the order of [`super::measure::Rounds`].
    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.references.iter().chain([&self.subject]).chain(&self.beside)
    }

    /// Whether its servers stay from one round to the next: to write them so takes a minute. Their
    /// rounds depend on how these servers began, which the table says.
    pub(super) fn stays(&self) -> bool {
        self.sides().any(|side| side.server.as_ref().is_some_and(Plan::is_aged))
    }

    /// About how many seconds it takes.
    pub(super) fn estimate(&self, asked: Extent) -> f64 {
        let extent = self.extent(asked);
        let rounds = extent.rounds as f64;
        let idles = self.figures.iter().any(|bound| bound.of == Figure::Wakeups);
        let cleared_up = if idles { super::measure::CLEARED_UP.as_secs_f64() } else { 0.0 };
        let side = |side: &Side| {
            let aged = side.server.as_ref().is_some_and(Plan::is_aged);
            let written: f64 = match aged {
                true => (0..extent.rounds).map(|round| aging_seconds(round, extent.quick)).sum(),
                false => 0.0,
            };
            let seconds = side.load.own_seconds(extent.quick).unwrap_or(extent.seconds);
            let starts = if self.stays() { 1.0 } else { rounds };
            starts * SIDE_BEFORE + rounds * (seconds + WINDOW_BESIDE + cleared_up) + written
        };
        self.sides().map(side).sum()
    }
}

/// For how long an aged volume is written to before the window of a round: long before the first,
/// and as far as windows of writes undo it before the others.
pub(super) fn aging_seconds(round: usize, quick: bool) -> f64 {
    match (quick, round) {
        (true, _) => 1.0,
        (false, 0) => 60.0,
        (false, _) => 4.0,
    }
}

impl Bound {
    /// What is wanted, in words; `alone` if there is nothing to compare with.
    pub(super) fn wanted(&self, alone: bool) -> String {
        let show = |value: f64| match alone || self.own {
            true => self.of.show(value),
            false => format!("{value:.2}"),
        };
        let name = self.of.name();
        match self.limit() {
            Some(Limit::AtLeast(value)) => format!("{name} >= {}", show(value)),
            Some(Limit::AtMost(value)) => format!("{name} <= {}", show(value)),
            Some(Limit::Within(_)) | None => format!("{name} stated"),
        }
    }

    /// What is wanted, if anything is.
    pub(super) fn limit(&self) -> Option<Limit> {
        let at_most = self.at_most.map(Limit::AtMost);
        self.at_least.map(Limit::AtLeast).or(at_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique_and_every_side_can_be_run() {
        let cases = all().unwrap();
        for (at, case) in cases.iter().enumerate() {
            assert!(cases[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(!case.wanted().is_empty() && case.name.len() <= 22, "{}", case.name);
            let unfilled = |text: &str| text.contains(['{', '}']);
            assert!(!unfilled(&case.name) && !unfilled(&case.about), "{}", case.about);
            assert!(case.sides().all(|side| !unfilled(side.load.args())), "{}", case.name);
            let named = case.references.iter().filter(|side| side.name.is_some()).count();
            assert!(case.references.len() < 2 || named == case.references.len(), "{}", case.name);
            for bound in &case.figures {
                let wrong = if bound.of.is_cost() { bound.at_least } else { bound.at_most };
                assert!(wrong.is_none(), "{}: {:?} has the wrong bound", case.name, bound.of);
            }
        }
    }

    /// The bound on a figure of a case.
    fn bound(cases: &[Case], name: &str, figure: Figure) -> Option<f64> {
        let case = cases.iter().find(|case| case.name == name)?;
        let bound = case.figures.iter().find(|bound| bound.of == figure)?;
        bound.at_least.or(bound.at_most)
    }

    #[test]
    fn what_is_wanted_of_every_cell_is_there() {
        let cases = all().unwrap();
        let check = |name: &str, figure: Figure, wanted: f64| {
            assert_eq!(bound(&cases, name, figure), Some(wanted), "{name}: {figure:?}");
        };
        check("iscsi-ten-luns", Figure::OpsPerCpu, 0.95);
        check("iscsi-idle-100", Figure::TargetShare, 1.15);
        check("iscsi-idle-100", Figure::WakeupsEach, 1.02);
        for state in ["aged", "rfill"] {
            for rest in ["read-8", "read-32", "write-8", "write-32"] {
                for shards in ["", "-x2"] {
                    check(&format!("128k-{state}-{rest}{shards}"), Figure::Iops, 0.95);
                    check(&format!("128k-{state}-{rest}{shards}"), Figure::OpsPerCpu, 0.95);
                }
            }
        }
        for load in ["1x1", "1x32", "4x1", "4x32"] {
            check(&format!("shared-{load}"), Figure::Iops, 0.95);
        }
        for load in ["1000", "1", "32"] {
            check(&format!("hog-{load}"), Figure::HogPerOp, 0.95);
        }
        check("idle-100", Figure::TargetShare, 1.15);
        check("idle-100", Figure::WakeupsEach, 1.02);
        check("idle-none", Figure::Wakeups, 0.0);
        check("file-4k-read-1", Figure::Latency, 1.15);
        check("file-4k-write-1", Figure::Latency, 1.15);
        check("file-128k-write-8", Figure::Iops, 0.9);
        check("initiator", Figure::LoadCpu, 1.15);
        check("aoe-initiator", Figure::LoadCpu, 1.15);
        for access in ["ring", "xdp"] {
            check(&format!("mpls-swap-{access}"), Figure::OpsPerCpu, 0.9);
            check(&format!("mpls-labels-100k-{access}"), Figure::CpuPerOp, 1.15);
            check(&format!("mpls-overload-{access}"), Figure::ForwardedShare, 0.9);
        }
        for rest in ["100m-read", "100m-write", "1g-read", "1g-write"] {
            check(&format!("mpls-aoe-{rest}"), Figure::Megabytes, 0.95);
        }
        check("mpls-edge-push", Figure::OpsPerCpu, 0.8);
        check("mpls-edge-pop", Figure::OpsPerCpu, 0.8);
        check("mpls-cuts", Figure::ToBackup, 200.0);
        check("mpls-cuts", Figure::StallMore, 150.0);
        check("mpls-cuts", Figure::Errors, 0.0);
        check("mpls-steady", Figure::Moves, 0.0);
        check("mpls-idle", Figure::TargetShare, 0.5);
    }

    #[test]
    fn a_side_without_a_load_has_that_of_the_case() {
        let text = "[[case]]\nname = 'a'\nabout = ''\nfigures = [{ of = 'iops' }]\n\
                    load = { client = '--x' }\nreferences = [{}, { load = { fio = '--y' } }]\nsubject = {}";
        let cases = read(text).unwrap();
        let loads: Vec<&str> = cases[0].sides().map(|side| side.load.args()).collect();
        assert_eq!(loads, ["--x", "--y", "--x"]);
    }

    #[test]
    fn a_case_alone_looks_longer_and_less_often_unless_it_is_only_a_look() {
        let cases = all().unwrap();
        let case = cases.iter().find(|case| case.name == "idle-none").unwrap();
        let asked = Extent { rounds: 5, seconds: 1.0, quick: false };
        let own = case.extent(asked);
        assert_eq!((own.rounds, own.seconds), (3, 3.0));
        let quick = case.extent(Extent { rounds: 1, quick: true, ..asked });
        assert_eq!((quick.rounds, quick.seconds), (1, 1.0));
    }

    #[test]
    fn a_minute_of_writes_shows_in_what_a_case_takes() {
        let cases = all().unwrap();
        let takes = |name: &str| {
            let case = cases.iter().find(|case| case.name == name).unwrap();
            case.estimate(Extent { rounds: 5, seconds: 2.0, quick: false })
        };
        let more = takes("128k-aged-read-8") - takes("128k-rfill-read-8");
        // Its three servers are started once, and not in each of five rounds.
        let starts = 3.0 * 4.0 * SIDE_BEFORE;
        assert!((more - (76.0 - starts)).abs() < 1e-9, "{more}");
    }
}
