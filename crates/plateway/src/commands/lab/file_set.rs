//! A trial on many files that the lab makes in a folder, of the administrator's or where it mounted something itself.
//!
//! ```text
//!   files made, and on their disk -> out of the page cache -> plateway lab files, with a thread a job -> files removed
//! ```
//! Files are made by a process that is not measured: once in a run where an image of them can be copied to the disk of
//! each trial ([`super::image`]), else anew for each trial, as in a folder of the administrator's. Where the lab made
//! them on a disk that it mounted, that is mounted once more before it is measured, so that the client finds nothing of
//! it in memory, folders and names neither; elsewhere pages are dropped file by file. What is made is the same in each trial, what is done with it is drawn anew. Units: bytes. Errors: why a trial measured
//! nothing.

use std::process::Command;
use std::time::Duration;

use block::ByteCount;
use lab::plan::{Cell, Files, TrialOutcome};
use testbed::{Group, ScratchFolder, process, resident_max, scratch};

use super::far::PREFIX;
use super::folder::{FileSystem, Work};
use super::list;
use super::seen::Seen;
use super::trial::{Lab, tell};

/// How long it may take to make all files.
const MAKE_MAX: Duration = Duration::from_secs(3_600);

impl Lab<'_> {
    /// Makes the files of a cell where its client is to work.
    pub(super) fn make_files(&self, work: &Work<'_>) -> miette::Result<ScratchFolder> {
        let Work { cell, place, .. } = *work;
        scratch::remove_leftovers(place, PREFIX).map_err(tell)?;
        let mut files = ScratchFolder::make(place, PREFIX).map_err(tell)?;
        if !work.removes {
            files.leave();
        }
        self.make_files_of(cell, &files)?;
        Ok(files)
    }

    /// Makes the files of a cell in an empty folder, by a process that nobody measures.
    pub(super) fn make_files_of(&self, cell: &Cell, files: &ScratchFolder) -> miette::Result<()> {
        let mut command = process::command(None, &list(&self.ends.near), &super::program()?);
        command.args(["lab", "files"]).arg(files.path()).arg("--make");
        self.of_files(&mut command, cell);
        self.must_succeed(command, MAKE_MAX)
    }

    /// Which files a client is to work on.
    fn of_files(&self, command: &mut Command, cell: &Cell) {
        let files = cell.load.files.and_then(Files::personality);
        let personality = files.expect("the cell is one of many files of ours");
        command.args(["--load", personality.word()]);
        command.args(["--size", &cell.load.size.unwrap_or(0).to_string()]);
        command.args(["--seed", &self.experiment.seed.to_string()]);
    }

    /// Makes files where something is mounted by others, has a client work on them, and removes them.
    pub(super) fn work_on_own_files(
        &self,
        work: &Work<'_>,
        mounted: FileSystem,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let files = self.make_files(work)?;
        let left = files.cool().map_err(tell)?;
        if !mounted.is_in_memory() && left > resident_max(work.cell.load.size.unwrap_or(0)) {
            return Err(miette::miette!(
                "expected files of which the page cache holds nothing before they are measured, and it keeps {} of them, whatever it is told",
                ByteCount(left)
            ));
        }
        self.work_on_files(work, &files, mounted)
    }

    /// Has a client work on files that are there, and of which the page cache holds nothing.
    pub(super) fn work_on_files(
        &self,
        work: &Work<'_>,
        files: &ScratchFolder,
        mounted: FileSystem,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let cell = work.cell;
        let (outcome, mut seen) = self
            .bounded(cell, |group| self.load(cell, self.files_on(work, files, group)?, work.way))?;
        let left = files.resident().map_err(tell)?;
        if !cell.load.cache && left > resident_max(cell.load.size.unwrap_or(0)) {
            return Err(miette::miette!(
                "expected a client past the page cache, and when it was over that held {} of its files: their file system has no O_DIRECT, or somebody else reads them",
                ByteCount(left)
            ));
        }
        (seen.page_cache_bytes, seen.file_system) = (Some(left), Some(mounted));
        Ok((outcome, seen))
    }

    /// `plateway lab files`, which is told its load elsewhere.
    fn files_on(
        &self,
        work: &Work<'_>,
        files: &ScratchFolder,
        group: Option<&Group>,
    ) -> miette::Result<Command> {
        let (cpus, program) = (list(self.client_cpus(work.way)), super::program()?);
        let mut command = process::command_in(group, work.near(), &cpus, &program);
        command.args(["lab", "files"]).arg(files.path());
        self.of_files(&mut command, work.cell);
        Ok(command)
    }
}
