//! From what was written to what it means: defaults, names, and every check that needs no machine.
//!
//! Checks do not stop at the first mistake: a thing that is wrong keeps its name, so that what
//! refers to it is not reported as well, and an [`Experiment`] comes out only if nothing was wrong.
//! Here: the plan as a whole and what all checks need; systems are in
//! `systems` and `files`, paths in `paths`, loads in
//! `axes`, comparisons and pictures in `compare`.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::arrange::Wanted;
use super::low::LowPlan;
use super::model::{Backing, Experiment, Means, Path, System, WINDOW_MEMORY};
use super::reader::{Low, Many, Scalar};
use super::words::{self, Bytes, Expected};
use crate::mistake::{Mistake, Span};
use crate::statistics::plan::ROUNDS_MIN;
use crate::statistics::steady;

/// Rounds of a comparison where the plan does not say.
pub(super) const ROUNDS_MAX_DEFAULT: u64 = 200;
/// What a comparison may ask for, and by how much systems may differ and be equal.
pub(super) const FRACTIONS: RangeInclusive<f64> = 0.001..=10.0;
const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
const WARM_UPS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);
const TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
/// What `null` is as large as at least.
const NULL_BYTES_MIN: u64 = 1 << 30;

/// A thing that others refer to by its name; `None` where it is wrong.
pub(super) struct Named<T> {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) thing: Option<T>,
}

/// A table, as messages speak of it.
pub(super) struct Table<'l> {
    pub(super) title: &'static str,
    pub(super) span: Span,
    pub(super) refused: &'l [&'static str],
}

/// A plan that is being checked.
pub(super) struct Checker<'m> {
    pub(super) mistakes: &'m mut Vec<Mistake>,
    pub(super) systems: Vec<Named<System>>,
    pub(super) paths: Vec<Named<Path>>,
    /// Whether some system or path has no name, so that others may seem to be missing.
    pub(super) has_nameless: bool,
    /// Systems of which was told that they do not say what holds their blocks.
    pub(super) silent: Vec<usize>,
    /// How long the windows are that a trial of memory or `null` counts.
    pub(super) counted: Duration,
    /// Where the memory of a client is bounded first, of those cells that have one.
    pub(super) client_memory: Option<Span>,
    /// And its processor time.
    pub(super) client_cpu: Option<Span>,
}

/// Checks a plan; nothing if any mistake was found, now or before.
pub(super) fn check(low: &LowPlan, mistakes: &mut Vec<Mistake>) -> Option<Experiment> {
    let mut checker = Checker {
        mistakes,
        systems: Vec::new(),
        paths: Vec::new(),
        has_nameless: false,
        silent: Vec::new(),
        counted: Duration::ZERO,
        client_memory: None,
        client_cpu: None,
    };
    let table = Table { title: "the plan", span: at_start(low), refused: &low.refused };
    let name = checker.needed(&low.name, &table, "name = \"...\"").cloned();
    checker.title(&low.name, "plan", &mut Vec::new());
    let seed = checker.number(&low.seed, "seed", 0..=u64::MAX).unwrap_or(1);
    let rounds = ROUNDS_MIN as u64..=10_000;
    let rounds_max = checker.number(&low.rounds_max, "rounds-max", rounds.clone());
    let named = checker.number(&low.rounds, "rounds", rounds);
    checker.one_number_of_rounds(low);
    let time = checker.scalar(&low.time, "time", |text| words::time(text, TIMES));
    let window = checker.scalar(&low.window, "window", |text| words::time(text, WINDOWS));
    let warm_up = checker.scalar(&low.warm_up, "warm-up", |text| words::time(text, WARM_UPS));
    let mut experiment = Experiment {
        name: name.unwrap_or_default(),
        about: low.about.as_ref().map(|about| about.get_ref().clone()),
        seed,
        time,
        rounds: named.map(|rounds| rounds as usize),
        warm_up: warm_up.unwrap_or(Duration::from_secs(1)),
        window,
        shared: low.shared.as_ref().is_some_and(|shared| *shared.get_ref()),
        systems: Vec::new(),
        null: 0,
        paths: Vec::new(),
        groups: Vec::new(),
        pictures: Vec::new(),
        client_memory: None,
        client_cpu: None,
    };
    // `null` is in every round, and its windows are the shortest.
    checker.counted = window.unwrap_or(WINDOW_MEMORY) * steady::WINDOWS as u32;
    let wanted = checker.wanted(low);
    if low.systems.is_none() && !low.refused.contains(&"system") {
        let message = "the plan has no [[system]]: expected one at least, to measure";
        checker.push(
            Mistake::new(at_start(low), message).help("add [[system]] with a name and a disk"),
        );
    }
    let is_refused = ["compare", "picture"].iter().any(|key| low.refused.contains(key));
    if low.compares.is_none() && low.pictures.is_none() && !is_refused {
        let message = "the plan asks for nothing: expected a [[compare]] or a [[picture]]";
        checker.push(
            Mistake::new(at_start(low), message)
                .help("add [[compare]] with systems and a reference"),
        );
    }
    if !checker.mistakes.is_empty() {
        return None;
    }
    let Checker { systems, paths, client_memory, client_cpu, .. } = checker;
    experiment.client_memory = client_memory;
    experiment.client_cpu = client_cpu;
    experiment.systems = systems.into_iter().filter_map(|named| named.thing).collect();
    experiment.paths = paths.into_iter().filter_map(|named| named.thing).collect();
    experiment.null = find_or_add_null(&mut experiment.systems, &wanted);
    wanted.arrange(&mut experiment, rounds_max.unwrap_or(ROUNDS_MAX_DEFAULT) as usize, mistakes);
    check_time(&experiment, low, mistakes);
    mistakes.is_empty().then_some(experiment)
}

/// Where the plan as a whole is: at its first line.
fn at_start(low: &LowPlan) -> Span {
    low.span.start..low.span.start
}

/// The reference: a system of the plan whose disk is `null:` and nothing else, or one of our own.
fn find_or_add_null(systems: &mut Vec<System>, wanted: &Wanted) -> usize {
    let is_null = |system: &System| match &system.means {
        Means::Disk { uri } => uri.starts_with("null:"),
        _ => false,
    };
    if let Some(at) = systems.iter().position(is_null) {
        return at;
    }
    let bytes = wanted.size_max().unwrap_or(0).max(NULL_BYTES_MIN);
    systems.push(System {
        name: NULL.to_owned(),
        means: Means::Disk { uri: format!("null:{}", Bytes(bytes)) },
        backing: Some(Backing::Null),
        durable: Some(false),
        cached: false,
        bytes: Some(bytes),
        disks: 1,
        mounted: None,
        kernel: false,
        initiator: None,
    });
    systems.len() - 1
}

/// What the reference of our own is called.
pub(super) const NULL: &str = "null";

/// Refuses a time in which not even the fewest rounds fit.
fn check_time(experiment: &Experiment, low: &LowPlan, mistakes: &mut Vec<Mistake>) {
    let Some((time, span)) = experiment.time.zip(low.time.as_ref().map(Spanned::span)) else {
        return;
    };
    let estimate = experiment.estimate();
    if estimate.least > time {
        let (least, seen) = (words::Span(estimate.least), words::Span(time));
        let trials = estimate.trials_min;
        let message = format!("time: expected {least} at least, for {trials} trials, seen {seen}");
        let help = "fewer systems or loads, a shorter window, or more time";
        mistakes.push(Mistake::new(span, message).help(help));
    }
}

impl Checker<'_> {
    /// Refuses to bound what is named.
    fn one_number_of_rounds(&mut self, low: &LowPlan) {
        if let (Some(named), Some(_)) = (&low.rounds, &low.rounds_max) {
            let message = "rounds: expected either so many rounds, or rounds-max, the most that pilots may ask for, seen both";
            self.push(Mistake::new(named.span(), message).help("leave out one of them"));
        }
    }

    pub(super) fn push(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// A value without which its table is a mistake; one of a wrong type was told already.
    pub(super) fn needed<'l, T>(
        &mut self,
        low: &'l Low<T>,
        table: &Table<'_>,
        example: &str,
    ) -> Option<&'l T> {
        let key = example.split(' ').next().unwrap_or_default();
        if low.is_none() && !table.refused.contains(&key) {
            let message = format!("{} has no {key}", table.title);
            self.push(Mistake::new(table.span.clone(), message).help(format!("add {example}")));
        }
        low.as_ref().map(Spanned::get_ref)
    }

    /// A value understood by `parse`, whose error is what was expected.
    pub(super) fn one<T>(
        &mut self,
        written: &Spanned<Scalar>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Expected>,
    ) -> Option<T> {
        match parse(&written.get_ref().text) {
            Ok(value) => Some(value),
            Err(expected) => {
                let message = format!("{key}: expected {expected}, seen {}", written.get_ref());
                self.push(Mistake::new(written.span(), message));
                None
            }
        }
    }

    pub(super) fn scalar<T>(
        &mut self,
        low: &Low<Scalar>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Expected>,
    ) -> Option<T> {
        self.one(low.as_ref()?, key, parse)
    }

    pub(super) fn number(
        &mut self,
        low: &Low<Scalar>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.scalar(low, key, |text| words::number(text, range.clone()))
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        written: &Spanned<String>,
        key: &str,
        known: &[(&'static str, T)],
    ) -> Option<T> {
        let seen = written.get_ref();
        let found = known.iter().find(|(word, _)| word == seen);
        if found.is_none() {
            let names: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            let message = format!("{key}: expected {}, seen {seen:?}", names.join(", "));
            let mistake = Mistake::new(written.span(), message);
            let meant = mistake.clone().meant(seen, names.into_iter(), "");
            let is_near = meant.help.as_ref().is_some_and(|help| help.starts_with("did"));
            self.push(if is_near { meant } else { mistake });
        }
        found.map(|(_, value)| *value)
    }

    /// The place of each name among what is known; nothing if any is unknown or stands twice.
    pub(super) fn places(
        &mut self,
        written: &Many<String>,
        what: &str,
        known: &[String],
    ) -> Option<Vec<(usize, Span)>> {
        let mut places: Vec<(usize, Span)> = Vec::new();
        for name in &written.0 {
            let Some(place) = self.place(name, what, known) else { continue };
            match places.iter().find(|(other, _)| *other == place) {
                Some((_, first)) => {
                    let message = format!("{what} {:?} stands twice in the list", name.get_ref());
                    let mistake = Mistake::new(name.span(), message).first(&first.clone());
                    self.push(mistake.help("leave out one of them"));
                }
                None => places.push((place, name.span())),
            }
        }
        (places.len() == written.0.len()).then_some(places)
    }

    /// The place of a name among what is known.
    pub(super) fn place(
        &mut self,
        name: &Spanned<String>,
        what: &str,
        known: &[String],
    ) -> Option<usize> {
        let place = known.iter().position(|other| other == name.get_ref());
        if place.is_none() && !self.has_nameless {
            let message = format!("there is no {what} {:?}", name.get_ref());
            let mistake = Mistake::new(name.span(), message);
            let names = known.iter().map(String::as_str);
            self.push(mistake.meant(name.get_ref(), names, &format!("{what}s of the plan")));
        }
        place
    }

    /// A name that is well formed; it is told where it stands twice among those of its kind.
    pub(super) fn name(
        &mut self,
        written: &Spanned<String>,
        what: &str,
        taken: &[(String, Span)],
    ) -> bool {
        let name = written.get_ref();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
        let is_good = (1..=64).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.as_bytes()[0].is_ascii_alphanumeric();
        if !is_good {
            let expected =
                "1 to 64 letters, digits, -, _, + or . that begin with a letter or digit";
            let message = format!("name: expected {expected}, seen {name:?}");
            self.push(Mistake::new(written.span(), message));
        } else if let Some((_, first)) = taken.iter().find(|(other, _)| other == name) {
            let message = format!("there is a {what} {name:?} already");
            let mistake = Mistake::new(written.span(), message).first(&first.clone());
            self.push(mistake.help("give each a name of its own"));
            return false;
        }
        is_good
    }
}
