//! `plateway lab watch`: runs a plan again and again, keeps each run's result, and tests whether it
//! changed.
//!
//! The plan is read and checked once; who edits it meanwhile starts the watch again. Runs begin at
//! multiples of the interval from the first one on, by a clock that nobody sets; one that takes
//! longer is waited for, and the next begins at the next multiple. What one run comes to ends no
//! watch: what could not be run or kept is told, and the next one is tried. Results are kept in a
//! folder of one watch at a time ([`Folder`]), what is said after each run is
//! [`lab::watch`]'s, and monitoring reads it in a file ([`textfile`]). Exit codes: 1 a mistake,
//! trials that failed or results that could not be kept, 3 a change that was found, 130 an
//! interruption, after which what the run measured is kept as `lab run` keeps it.

mod folder;
mod textfile;

use std::path::Path;
use std::time::{Duration, Instant};

use lab::watch::{Report, Series, series};

use super::{Carried, Ready, carry_out};
use crate::cli::LabWatchArgs;
use crate::commands::session::Interrupt;
use crate::commands::{Ended, INTERRUPTED, show};
use crate::log::Event;

use folder::Folder;

/// The exit code where a change was found, as that of a copy that differs.
const CHANGED: u8 = 3;
/// How often a watch that waits looks for signals.
const TICK: Duration = Duration::from_millis(100);

pub(super) fn run(args: &LabWatchArgs) -> miette::Result<()> {
    let interrupt = Interrupt::watch()?;
    let ready = Ready::read(&args.plan, &interrupt)?;
    let watched = series(&ready.experiment);
    if watched.is_empty() {
        return Err(miette::miette!(
            help = "name systems in a [[compare]]: whether those change is tested",
            "{}: expected a plan that compares something, seen pictures alone",
            args.plan.display()
        ));
    }
    if let Some(file) = &args.textfile {
        textfile::may_be_made(file)?;
    }
    let path = args.results.clone().unwrap_or_else(|| args.plan.with_extension("watch"));
    let folder = Folder::open(&path, &ready.text)?;
    let watch = Watch { args, ready, watched, interrupt: &interrupt };
    let seen = watch.run(folder)?;
    seen.end(&path, interrupt.is_raised())
}

/// What all runs of this process came to.
#[derive(Debug, Default)]
struct Seen {
    runs: u64,
    /// Changes that were found.
    changed: usize,
    /// What went wrong last, and in how many runs something did.
    failed: Option<String>,
    failures: u64,
}

impl Seen {
    fn end(self, folder: &Path, was_stopped: bool) -> miette::Result<()> {
        let folder = folder.display();
        let changes = match self.changed {
            0 => "no change was found".to_owned(),
            1 => "1 change was found".to_owned(),
            more => format!("{more} changes were found"),
        };
        if was_stopped {
            let words =
                format!("interrupted after {} runs: {changes}; results are in {folder}", self.runs);
            return Err(Ended::new(INTERRUPTED, words).into());
        }
        let last = self.failed.map(|words| {
            format!("{} of {} runs went wrong; last: {words}", self.failures, self.runs)
        });
        match (self.changed, last) {
            (0, None) => Ok(()),
            (0, Some(last)) => Err(miette::miette!("{last}")),
            (_, None) => {
                Err(Ended::new(CHANGED, format!("{changes}; results are in {folder}")).into())
            }
            (_, Some(last)) => {
                let words = format!("{changes}; results are in {folder}; {last}");
                Err(Ended::new(CHANGED, words).into())
            }
        }
    }
}

struct Watch<'a> {
    args: &'a LabWatchArgs,
    ready: Ready,
    watched: Vec<Series>,
    interrupt: &'a Interrupt,
}

impl Watch<'_> {
    /// All runs.
    fn run(&self, mut folder: Folder) -> miette::Result<Seen> {
        let mut seen = Seen::default();
        let times = match self.args.every {
            Some(_) => self.args.times.unwrap_or(u64::MAX),
            None => 1,
        };
        let began = Instant::now();
        loop {
            let run_began = Instant::now();
            self.one(&mut folder, &mut seen);
            if self.interrupt.is_raised() || seen.runs >= times {
                return Ok(seen);
            }
            let every = self.args.every.expect("more than one run has an interval");
            let (took, next) = (run_began.elapsed(), until_next(began.elapsed(), every));
            if took > every {
                Event::warn(format!(
                    "the run took {} s, longer than the {} s from one start to the next: the next one begins in {} s",
                    took.as_secs(),
                    every.as_secs(),
                    next.as_secs()
                ))
                .tell();
            }
            let end = Instant::now() + next;
            while Instant::now() < end {
                if self.interrupt.is_raised() {
                    return Ok(seen);
                }
                std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
            }
        }
    }

    /// One run. What goes wrong is told, and ends nothing.
    fn one(&self, folder: &mut Folder, seen: &mut Seen) {
        seen.runs += 1;
        let mut wrong: Vec<String> = Vec::new();
        if let Err(error) = self.try_one(folder, seen, &mut wrong) {
            wrong.push(error.to_string());
        }
        wrong.iter().for_each(|words| Event::error(words).tell());
        if !wrong.is_empty() {
            seen.failures += 1;
            seen.failed = Some(wrong.join("; "));
        }
    }

    /// What goes wrong in more ways than one is in `wrong`: a change is looked for all the same.
    fn try_one(
        &self,
        folder: &mut Folder,
        seen: &mut Seen,
        wrong: &mut Vec<String>,
    ) -> miette::Result<()> {
        let (number, file) = folder.next()?;
        super::picture::may_be_made(&file, &self.args.plan, false)?;
        let mut verdicts = String::new();
        let carried = carry_out(&self.ready, self.interrupt, &file, |_, results, _| {
            verdicts = results.to_string();
            Ok(())
        })?;
        let Carried { is_kept, failed } = carried;
        wrong.extend(failed.map(|words| format!("run {number}: {words}")));
        if is_kept.is_err() && !file.exists() {
            // What took so long to measure is told where it cannot be kept: beside what programs read.
            Event::warn(format!("run {number} could not be kept; its verdicts:")).tell();
            verdicts.lines().for_each(|line| Event::warn(line).tell());
            return is_kept;
        }
        wrong.extend(is_kept.err().map(|error| error.to_string()));
        if self.interrupt.is_raised() {
            return Ok(());
        }
        let runs = folder.runs();
        let (report, is_kept) = folder.look(&self.watched, &runs);
        let Some(report) = report.filter(|report| report.run == number) else {
            return Err(miette::miette!(
                "{}: it was kept, and is not there any more",
                file.display()
            ));
        };
        seen.changed += report.changed();
        let told = self.tell(&report, &file);
        let written = self.args.textfile.as_ref().map_or(Ok(()), |to| textfile::write(to, &report));
        let errors = [is_kept, told, written].into_iter().filter_map(Result::err);
        wrong.extend(errors.map(|error| error.to_string()));
        Ok(())
    }

    fn tell(&self, report: &Report, file: &Path) -> miette::Result<()> {
        show(self.args.json, report, || format!("{report}\n  kept: {}\n", file.display()))
    }
}

/// How long it is until the next multiple of an interval.
fn until_next(elapsed: Duration, every: Duration) -> Duration {
    let done = elapsed.as_nanos() / every.as_nanos();
    let next = every.as_nanos() * (done + 1);
    let left = u64::try_from(next - elapsed.as_nanos()).expect("an interval is at most a day");
    Duration::from_nanos(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_at_multiples_of_the_interval_also_behind_one_that_took_longer() {
        let (second, every) = (Duration::from_secs(1), Duration::from_secs(10));
        assert_eq!(until_next(second * 3, every), second * 7);
        assert_eq!(until_next(second * 10, every), second * 10);
        assert_eq!(until_next(second * 34, every), second * 6);
    }
}
