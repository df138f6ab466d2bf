//! The folder of a watch: `000012-20261127T185022Z.result.json` for each run, its page beside it, and
//! `changes.json` with what was found.
//!
//! The number orders runs, since a clock may go back; the time is for people. One watch at a time
//! has the folder, by a lock that goes with its process. Nothing in it is ever removed; what is not
//! named like a run is nobody's business here, and a run that cannot be read is named and passed
//! over. Only the last hundred files are read, as many runs as a test looks at, so that ten thousand
//! take no longer. Errors name the folder or file, what was expected and seen.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lab::statistics::change::RUNS_MAX;
use lab::watch::{Memory, Report, Run, Series};
use rustix::fs::FlockOperation;

use crate::log::Event;
use crate::run::{replace_file, try_file};

/// How the names of results end.
const ENDING: &str = ".result.json";
const CHANGES: &str = "changes.json";
/// The run after it has a name as well.
const NUMBER_MAX: u64 = 999_999_999_999_999_998;
/// No result of a plan is larger: 15 systems, 10,000 rounds, some KiB a trial.
const BYTES_MAX: u64 = 1 << 30;

pub(super) struct Folder {
    path: PathBuf,
    /// The plan's file, word for word.
    plan: String,
    memory: Memory,
    /// Files that were named already.
    named: BTreeSet<PathBuf>,
    /// The folder, locked.
    _lock: File,
}

impl Folder {
    /// The folder of this path, made if it is not there, if no other watch has it.
    pub(super) fn open(path: &Path, plan: &str) -> miette::Result<Folder> {
        let shown = path.display();
        match fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(miette::miette!("cannot make the folder of results {shown}: {error}"));
            }
        }
        if !path.is_dir() {
            return Err(miette::miette!(
                "{shown}: expected a folder for results, seen something else"
            ));
        }
        let tell = |error: &dyn std::fmt::Display| {
            miette::miette!("cannot use the folder of results {shown}: {error}")
        };
        let lock = File::open(path).map_err(|error| tell(&error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(miette::miette!(
                    help = "let that one end, or name another folder with --results",
                    "{shown}: expected to be the only watch of this folder, seen another one at work"
                ));
            }
            Err(errno) => return Err(tell(&errno)),
        }
        try_file(&path.join(CHANGES)).map_err(|error| tell(&error))?;
        let memory = memory(path, plan);
        let plan = plan.to_owned();
        Ok(Folder { path: path.to_owned(), plan, memory, named: BTreeSet::new(), _lock: lock })
    }

    /// The number of the next run, and the file that keeps it.
    pub(super) fn next(&self) -> miette::Result<(u64, PathBuf)> {
        // Of the last one nothing but what it showed may be left.
        let last = self.numbered()?.last().map_or(0, |(number, _)| *number);
        let last = last.max(self.memory.last_run());
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let number = last + 1;
        Ok((number, self.path.join(format!("{number:06}-{now}{ENDING}"))))
    }

    /// Results by their numbers, in their order.
    fn numbered(&self) -> miette::Result<Vec<(u64, PathBuf)>> {
        let tell = |error: std::io::Error| {
            miette::miette!("cannot read the folder of results {}: {error}", self.path.display())
        };
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(tell)? {
            let entry = entry.map_err(tell)?;
            if let Some(number) = entry.file_name().to_str().and_then(number_of) {
                all.push((number, entry.path()));
            }
        }
        all.sort();
        Ok(all)
    }

    /// The last runs of this plan, in their order.
    pub(super) fn runs(&mut self) -> Vec<Run> {
        let files = match self.numbered() {
            Ok(files) => files,
            Err(error) => {
                Event::error(error.to_string()).tell();
                return Vec::new();
            }
        };
        let mut runs: Vec<Run> = Vec::new();
        let mut others = Vec::new();
        for (number, file) in files.into_iter().rev().take(RUNS_MAX).rev() {
            match read(number, &file) {
                Ok(run) if run.plan == self.plan => runs.push(run),
                Ok(_) => others.push(file),
                Err(why) if self.named.insert(file.clone()) => {
                    Event::warn(format!("{}: passed over: {why}", file.display())).tell();
                }
                Err(_) => {}
            }
        }
        if let Some(last) = others.last()
            && self.named.insert(last.clone())
        {
            Event::warn(format!(
                "{} results in {} are of another plan text, the last {}: passed over, a plan that was edited begins a new series",
                others.len(),
                self.path.display(),
                last.display()
            ))
            .tell();
        }
        if let [.., before, last] = runs.as_slice()
            && last.environment.date < before.environment.date
        {
            Event::warn(format!(
                "the clock went back: run {} began at {} and run {} before it at {}; runs are ordered by their numbers",
                last.number, last.environment.date, before.number, before.environment.date
            ))
            .tell();
        }
        runs
    }

    /// What the last run shows, and whether what it found could be kept, which is done before it is told.
    pub(super) fn look(
        &mut self,
        series: &[Series],
        runs: &[Run],
    ) -> (Option<Report>, miette::Result<()>) {
        let report = self.memory.look(series, runs);
        if report.as_ref().is_none_or(|report| report.changed() == 0) {
            return (report, Ok(()));
        }
        let file = self.path.join(CHANGES);
        let text = serde_json::to_string_pretty(&self.memory).expect("numbers and words");
        let is_kept = replace_file(&file, &(text + "\n")).map_err(|error| {
            let shown = file.display();
            miette::miette!(
                "cannot write what was found to {shown}: {error}; the next watch finds it again"
            )
        });
        (report, is_kept)
    }
}

/// What earlier processes found, if that was of this plan and can be read.
fn memory(path: &Path, plan: &str) -> Memory {
    let file = path.join(CHANGES);
    let shown = file.display();
    let read = match fs::read_to_string(&file) {
        Ok(text) => Memory::read(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Memory::new(plan),
        Err(error) => Err(error.to_string()),
    };
    match read {
        Ok(memory) if memory.is_of(plan) => return memory,
        Ok(_) => {
            Event::warn(format!("{shown} is of another plan text: a new series begins")).tell()
        }
        Err(why) => {
            Event::warn(format!(
                "{shown}: passed over: {why}; what was found before is found again"
            ))
            .tell();
        }
    }
    Memory::new(plan)
}

/// The number of a run, of the name of its result.
fn number_of(name: &str) -> Option<u64> {
    let (number, _) = name.strip_suffix(ENDING)?.split_once('-')?;
    let is_one = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|number| is_one && *number <= NUMBER_MAX)
}

/// A result file; never a pipe, which would be waited for.
fn read(number: u64, file: &Path) -> Result<Run, String> {
    let seen = fs::metadata(file).map_err(|error| error.to_string())?;
    if !seen.is_file() || seen.len() > BYTES_MAX {
        return Err(format!(
            "expected a file of at most {BYTES_MAX} bytes, seen another thing or more"
        ));
    }
    Run::read(number, &fs::read(file).map_err(|error| error.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_runs_have_numbers() {
        assert_eq!(number_of("000012-20261127T185022Z.result.json"), Some(12));
        assert_eq!(number_of("1000012-x.result.json"), Some(1_000_012));
        // The most that has one after it.
        assert_eq!(number_of(&format!("{NUMBER_MAX}-x.result.json")), Some(NUMBER_MAX));
        assert_eq!(number_of(&format!("{}-x.result.json", NUMBER_MAX + 1)), None);
        for other in [
            "changes.json",
            "12-a.result.json",
            "-1-a.result.json",
            "000012.result.json",
            "+00012-a.result.json",
            "999999999999999999999-a.result.json",
            "000012-a.result.html",
        ] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_next_number_is_after_all_results_and_after_all_that_was_found() {
        let home = tempfile::tempdir().unwrap();
        let next = || Folder::open(home.path(), "a").unwrap().next().unwrap().0;
        assert_eq!(next(), 1);
        let interval = serde_json::json!({ "low": 0.9, "high": 1.1, "level": 0.95 });
        let level = serde_json::json!({ "ratio": 1.0, "interval": interval });
        // Whose results somebody removed: a series goes on with run 55, which is before run 60.
        let change = serde_json::json!({ "series": "s", "run": 55, "date": "", "found": 60, "p_value": 0.1,
            "runs_before": 9, "runs_after": 9, "before": level, "after": level, "ratio": 1.0,
            "interval": interval, "null_ratio": 1.0, "beside": [] });
        let found = serde_json::json!({ "schema_version": 1, "plan": "a", "changes": [change] });
        fs::write(home.path().join(CHANGES), found.to_string()).unwrap();
        assert_eq!(next(), 61);
        fs::write(home.path().join("000070-x.result.json"), "").unwrap();
        assert_eq!(next(), 71);
    }
}
