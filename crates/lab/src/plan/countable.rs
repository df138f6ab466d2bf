//! Whether a trial can have what a comparison is judged by: reads or writes at all, and as many
//! operations as a percentile needs.
//!
//! How many there are at most is known of an open loop, of a path's rate, and of how long an answer is on
//! its way. Units: operations a second. Errors: the mistakes of a plan, each at its place.

use std::time::Duration;

use super::check::Checker;
use super::many::Files;
use super::measure::{Measure, Side};
use super::model::{Load, Pace};
use super::words;
use crate::mistake::{Mistake, Span};
use crate::words::Pattern;

/// Beyond any disk: operations a second.
const IOPS_FAR: f64 = 1e7;

impl Checker<'_> {
    /// Refuses what is of reads where nothing reads, and what is of writes where nothing writes.
    pub(super) fn has_side(&mut self, measure: Measure, span: &Span, loads: &[Load]) -> bool {
        if !self.is_told(measure, span, loads) {
            return false;
        }
        let (what, has): (_, fn(Pattern) -> bool) = match measure.side() {
            Some(Side::Reads) => ("reads", Pattern::reads),
            Some(Side::Writes) => ("writes", Pattern::writes),
            None => return true,
        };
        // What a program tells it tells in any case.
        let loads: Vec<&Load> = loads.iter().filter(|load| load.files.is_none()).collect();
        let Some(load) = loads.into_iter().find(|load| !has(load.pattern)) else { return true };
        let (word, pattern) = (measure.word(), load.pattern);
        let message = format!("of: {word}: expected a pattern that has {what}, seen {pattern}");
        self.push(Mistake::new(span.clone(), message).help("pattern = \"randrw=75\""));
        false
    }

    /// Refuses what a load of many files does not tell, and what bonnie++ alone tells where it is not.
    fn is_told(&mut self, measure: Measure, span: &Span, loads: &[Load]) -> bool {
        let word = measure.word();
        let is_told = |load: &&Load| match load.files {
            Some(files) => files.tells(measure),
            None => !measure.is_of_bonnie(),
        };
        let Some(load) = loads.iter().find(|load| !is_told(load)) else { return true };
        let (message, help) = match load.files {
            None => (
                format!("of: {word}: expected files = \"bonnie++\", which tells it, seen requests"),
                "files = \"bonnie++\", or another measure".to_owned(),
            ),
            Some(files) if files.is_program() => {
                let told = Measure::ALL.into_iter().filter(|one| files.tells(*one));
                let told = told.map(Measure::word).collect::<Vec<_>>().join(", ");
                let files = files.word();
                (format!("of: {word}: expected what {files} tells, seen another measure"), told)
            }
            Some(files) => {
                let files = files.word();
                let what = format!(
                    "of: {word}: expected requests that read or write, seen files = {files:?}, whose operations are not told apart"
                );
                (what, "iops, or files left out".to_owned())
            }
        };
        self.push(Mistake::new(span.clone(), message).help(help));
        false
    }

    /// Refuses a percentile that no trial can have enough operations for.
    pub(super) fn countable(
        &mut self,
        measure: Measure,
        span: &Span,
        loads: &[Load],
        paths: &[Option<usize>],
    ) {
        // Such a program does so much, however long that takes.
        let runs_once = |load: &&Load| load.files.is_some_and(Files::runs_once);
        let loads: Vec<&Load> = loads.iter().filter(|load| !runs_once(load)).collect();
        if loads.is_empty() {
            return;
        }
        let wanted = measure.operations_min();
        let known = || paths.iter().filter_map(|path| self.paths[(*path)?].thing.as_ref());
        let bits = known().filter_map(|path| path.rate).min().unwrap_or(u64::MAX);
        // There and back.
        let trip = known().filter_map(|path| path.delay).max().unwrap_or_default() * 2;
        let share = |load: &Load| match measure.side() {
            None => 1.0,
            Some(Side::Reads) => f64::from(load.pattern.read_percent) / 100.0,
            Some(Side::Writes) => {
                let others = load.pattern.read_percent + load.pattern.trim_percent;
                f64::from(100 - others) / 100.0
            }
        };
        let most = |load: &Load| match load.pace {
            Pace::Open { rate, .. } => rate as f64,
            Pace::Closed { depth } => {
                let carried = bits as f64 / 8.0 / f64::from(load.block_bytes);
                let awaited = f64::from(depth * load.jobs) / trip.as_secs_f64();
                carried.min(awaited).min(IOPS_FAR)
            }
        };
        let each = loads.into_iter().map(|load| most(load) * share(load));
        let rate = each.fold(f64::INFINITY, f64::min);
        let seconds = self.counted.as_secs_f64();
        if rate * seconds < wanted as f64 {
            let (word, rate, counted) =
                (measure.word(), rate as u64, words::Span(Duration::from_secs_f64(seconds)));
            let seen = (rate as f64 * seconds) as u64;
            let message = format!(
                "of: {word} needs {wanted} operations in each trial, seen {seen} at most: {rate} a second for {counted}"
            );
            let help = "a lower percentile, a longer window, or more operations a second";
            self.push(Mistake::new(span.clone(), message).help(help));
        }
    }
}
