//! Job files of fio: from their text to loads that the engine carries, job by job.
//!
//! ```text
//! text --text--> sections --keys, values--> Settings --job--> Job --fit (a disk)--> load::Plan
//! ```
//!
//! A [`JobFile`] is what a file asks for, whatever the disk: [`Job`]s with the workload of each, and
//! [`JobFile::on`] says what that is on a disk of some size. Jobs run at the same time, unless one waits
//! for those before it: they are in *stages*. The common subset of fio's keys is understood, with fio's
//! meaning; of the others each is accepted for a reason (`keys`), or a mistake. In comes text, and what
//! looks up the environment; no file is opened here. Of a fio that runs, [`following`](crate::following) takes what it says. Units: bytes, requests, durations. Errors: all
//! [`Mistakes`] of a file at once, each at its line and column. For users: docs/fio.md. From fio's
//! HOWTO and, where that is silent, from what fio 3.33 does.

mod fit;
mod job;
mod keys;
mod text;
mod values;

pub use fit::{Disk, Ready};
pub use job::Job;
pub use keys::{Standing, table};

pub use crate::mistake::Mistakes;
use crate::mistake::place as place_of;

/// What a file asks for.
#[derive(Clone, Debug)]
pub struct JobFile {
    name: String,
    text: String,
    jobs: Vec<Job>,
    notes: Vec<String>,
}

/// Notes on a file that somebody reads.
const NOTES_MAX: usize = 100;
/// Jobs of a file at most, and clones of all jobs of a stage together.
pub const JOBS_MAX: usize = 128;

impl JobFile {
    /// Reads and checks a job file; `name` is what messages call it, and `environment` says what a
    /// variable holds.
    pub fn parse(
        name: &str,
        text: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<JobFile, Mistakes> {
        let mut mistakes = Vec::new();
        let sections = text::read(text, &environment, &mut mistakes);
        let mut notes: job::Notes = sections.iter().flat_map(|one| one.notes.clone()).collect();
        let jobs = job::jobs(&sections, &mut mistakes, &mut notes);
        if !mistakes.is_empty() {
            return Err(Mistakes::new(name, text, mistakes));
        }
        notes.sort();
        notes.dedup();
        notes.truncate(NOTES_MAX);
        let place =
            |(at, note): (usize, String)| format!("{name}:{}: {note}", place_of(text, at).0);
        let mut notes: Vec<String> = notes.into_iter().map(place).collect();
        notes.extend(keys::idle_seen(&sections));
        Ok(JobFile { name: name.to_owned(), text: text.to_owned(), jobs, notes })
    }

    /// The jobs, in the order of the file; never none.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// What to know of how the file was understood.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Stages, of which each begins when the one before is over.
    pub fn stages(&self) -> usize {
        self.jobs.last().map_or(0, |job| job.stage + 1)
    }

    /// What the jobs are on a disk, in their order; every mistake that only the disk shows.
    pub fn on(&self, disk: &Disk) -> Result<Vec<Ready>, Mistakes> {
        let mut mistakes = Vec::new();
        let ready = fit::fit(&self.jobs, disk, &mut mistakes);
        match mistakes.is_empty() {
            true => Ok(ready),
            false => Err(Mistakes::new(&self.name, &self.text, mistakes)),
        }
    }
}

#[cfg(test)]
mod tests;
