//! A trial on a file that the lab makes in a folder, of the administrator's or where the lab mounted
//! something itself ([`super::mounted`]): what of the folder cannot be had, and how a client works in it.
//!
//! ```text
//!   file made -> every block written -> synced, and out of the page cache -> client -> file removed
//! ```
//! The file is of the load's size, and its blocks are written by a client of its own, so that the one that
//! is measured begins with a page cache that holds nothing of it, and with memory of its own where the
//! plan bounds that. What is mounted there stays the same, or a trial fails, and so it does where the page
//! cache was used in a cell that is to pass it by. What the folder and the machine cannot do is told at the
//! plan's line before the first trial. Units: bytes. Errors: mistakes of the plan, and why a trial measured
//! nothing.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use block::ByteCount;
use lab::plan::{Backing, Cell, Client, Experiment, Folder, Mistake, System, TrialOutcome};
use rustix::fs::Access;
use serde::Serialize;
use testbed::{Group, Mount, Mounts, Namespace, Scratch, needs, process, scratch};

use super::far::PREFIX;
use super::list;
use super::program;
use super::seen::Seen;
use super::trial::{Lab, MOMENT, tell};
use super::way::Way;
use crate::config::uri::DiskUri;

/// File systems in memory: their pages are the page cache, whatever a client asks for.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// How long it may take to write every block of a file, or of a disk.
pub(super) const FILL_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How many names of what is in the way are told.
const NAMES_MAX: usize = 3;

/// What is mounted at a folder, as `findmnt` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FileSystem {
    /// Such as `ext4`.
    #[serde(rename = "type")]
    kind: String,
    source: String,
    options: String,
}

impl FileSystem {
    fn of(Mount { kind, source, options, .. }: &Mount) -> FileSystem {
        FileSystem { kind: kind.clone(), source: source.clone(), options: options.clone() }
    }

    pub(super) fn at(folder: &Path) -> miette::Result<FileSystem> {
        let mounts = Mounts::now().map_err(tell)?;
        Ok(FileSystem::of(mounts.of(folder).map_err(tell)?))
    }

    pub(super) fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&&*self.kind)
    }
}

/// `ext4 of /dev/sdb1 (rw,relatime)`.
impl std::fmt::Display for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} ({})", self.kind, self.source, self.options)
    }
}

/// What of a plan's folders cannot be had on this machine, at the plan's lines.
pub(super) fn mistakes(experiment: &Experiment) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (at, system) in experiment.systems.iter().enumerate() {
        let Some(folder) = system.means.folder() else { continue };
        let loads: Vec<_> =
            experiment.cells().into_iter().filter(|cell| cell.system == at).collect();
        let programs = program::needed(experiment, at);
        if let Err(mistake) = usable(system, folder, &loads, &programs) {
            mistakes.push(mistake);
        }
    }
    mistakes
}

/// What is wrong with a folder, at the plan's line.
fn wrong(folder: &Folder, expected: impl Into<String>, help: &str) -> Mistake {
    let message = format!("folder: expected {}", expected.into());
    Mistake::new(folder.span.clone(), message).help(help)
}

/// Whether a folder can be worked in by all of its cells; what is wrong first.
fn usable(
    system: &System,
    folder: &Folder,
    cells: &[Cell],
    programs: &[String],
) -> Result<(), Mistake> {
    let seen = may_be_written(folder)?;
    is_empty(folder)?;
    if seen.is_in_memory() {
        is_said_to_be_memory(system, folder, cells, &seen)?;
    }
    has_room(folder, cells)?;
    let fio = (folder.client == Client::Fio).then_some("fio");
    for program in ["fincore"].into_iter().chain(fio).chain(programs.iter().map(String::as_str)) {
        needs(program).map_err(|why| {
            let what = format!("what looks at its files and works on them: {why}");
            wrong(folder, what, "install it")
        })?;
    }
    Ok(())
}

/// What is mounted at a folder that is there, and in which files may be made.
fn may_be_written(folder: &Folder) -> Result<FileSystem, Mistake> {
    let path = Path::new(&folder.path);
    let seen = path.metadata().map_err(|why| {
        let help = "mount what is to be measured, or make it with mkdir";
        wrong(folder, format!("one that is there, seen none: {why}"), help)
    })?;
    if !seen.is_dir() {
        return Err(wrong(
            folder,
            format!("a folder, seen a file {}", folder.path),
            "take another",
        ));
    }
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|why| {
        let what = format!("one in which files may be made, seen {}: {why}", folder.path);
        wrong(folder, what, "take another, or run it as who may")
    })?;
    FileSystem::at(path).map_err(|why| {
        let what = format!("one of which is known what is mounted there: {why}");
        wrong(folder, what, "take another")
    })
}

/// An error unless a folder holds nothing but what a lab that was killed left there.
fn is_empty(folder: &Folder) -> Result<(), Mistake> {
    let names = scratch::contents(Path::new(&folder.path), PREFIX).map_err(|why| {
        let help = "take another, or run it as who may";
        wrong(folder, format!("one that can be read: {why}"), help)
    })?;
    if names.is_empty() {
        return Ok(());
    }
    let first = names[..names.len().min(NAMES_MAX)].join(", ");
    let more = if names.len() > NAMES_MAX { " and others" } else { "" };
    let help = match names.iter().any(|name| name.starts_with(PREFIX)) {
        true => "another lab works there: wait until it is over, or take an empty folder",
        false => "take an empty folder, such as one that you make in it",
    };
    Err(wrong(folder, format!("an empty one, seen {first}{more} in {}", folder.path), help))
}

/// An error unless the largest file of its cells fits into a folder.
fn has_room(folder: &Folder, cells: &[Cell]) -> Result<(), Mistake> {
    let largest = cells.iter().max_by_key(|cell| cell.load.room());
    let (what, largest) = largest.map_or(("a file", 0), |cell| match cell.load.files {
        Some(_) => ("files", cell.load.room().unwrap_or(0)),
        None => ("a file", cell.load.room().unwrap_or(0)),
    });
    let free = scratch::free_bytes(Path::new(&folder.path))
        .map_err(|why| wrong(folder, format!("one with room: {why}"), "take another"))?;
    if free >= largest {
        return Ok(());
    }
    let (free, largest) = (ByteCount(free), ByteCount(largest));
    let what = format!("room for {what} of {largest}, seen {free} free in {}", folder.path);
    Err(wrong(folder, what, "a smaller size, or more room"))
}

/// Whether what a plan says holds of a file system in memory.
fn is_said_to_be_memory(
    system: &System,
    folder: &Folder,
    cells: &[Cell],
    seen: &FileSystem,
) -> Result<(), Mistake> {
    let wrong = |expected: &str, said: &str| {
        let what = format!("{expected} with one in memory ({}), seen {said}", seen.kind);
        Err(wrong(folder, what, "say so, or take a folder of another file system"))
    };
    if let Some(other) = system.backing.filter(|backing| *backing != Backing::Ram) {
        return wrong("backing = \"ram\"", &format!("{:?}", other.word()));
    }
    if system.durable == Some(true) {
        return wrong("durable = false", "true");
    }
    match cells.iter().any(|cell| !cell.load.cache) {
        true => {
            wrong("cache = true", "a cell that is to pass by the page cache, where its blocks are")
        }
        false => Ok(()),
    }
}

/// Where a client works on a file, and how.
#[derive(Clone, Copy)]
pub(super) struct Work<'w> {
    pub(super) cell: &'w Cell,
    pub(super) place: &'w Path,
    pub(super) client: Client,
    /// Over which the blocks are reached, if over any.
    pub(super) way: Option<&'w Way<'w>>,
    /// For what a client writes beside the file.
    pub(super) home: &'w Path,
    /// Whether the file is removed, and not the file system.
    pub(super) removes: bool,
}

impl Work<'_> {
    /// Where the client is, so that the interface there is seen by it.
    pub(super) fn near(&self) -> Option<&Namespace> {
        self.way.and_then(Way::near)
    }
}

impl Lab<'_> {
    /// Runs a trial on a file of its own; what its client writes beside that goes to `home`.
    pub(super) fn run_in_folder(
        &self,
        cell: &Cell,
        folder: &Folder,
        home: &Path,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let seen = self.mounted(folder)?;
        let place = Path::new(&folder.path);
        let client = folder.client;
        let work = Work { cell, place, client, way: None, home, removes: true };
        let done = match cell.load.files {
            Some(files) if files.is_program() => self.work_by_program(&work, files, seen)?,
            Some(_) => self.work_on_own_files(&work, seen)?,
            None => self.work_on_file(&work, seen)?,
        };
        self.mounted(folder)?;
        Ok(done)
    }

    /// Makes a file where something is mounted, has a client work on it, and removes it.
    pub(super) fn work_on_file(
        &self,
        work: &Work<'_>,
        mounted: FileSystem,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let Work { cell, place, client, .. } = *work;
        scratch::remove_leftovers(place, PREFIX).map_err(tell)?;
        let bytes = cell.load.size.unwrap_or(0);
        let mut file = Scratch::make(place, PREFIX, bytes).map_err(tell)?;
        if !work.removes {
            file.leave();
        }
        if client != Client::Copy {
            self.fill(&file)?;
        }
        let left = file.cool().map_err(tell)?;
        if !mounted.is_in_memory() && left > file.resident_max() {
            return Err(miette::miette!(
                "expected a file of which the page cache holds nothing before it is measured, and it keeps {} of it, whatever it is told",
                ByteCount(left)
            ));
        }
        let (outcome, mut seen) = self.bounded(cell, |group| match client {
            Client::Bench => self.load(cell, self.bench_on(work, &file, group)?, work.way),
            Client::Fio => self.load_by_fio(work, &file, group),
            Client::Copy => self.load_by_copy(work, &file, group),
        })?;
        let left = file.resident().map_err(tell)?;
        if !cell.load.cache && left > file.resident_max() {
            return Err(miette::miette!(
                "expected a client past the page cache, and when it was over that held {} of the file's {}: its file system has no O_DIRECT, or somebody else reads the file",
                ByteCount(left),
                ByteCount(bytes)
            ));
        }
        (seen.page_cache_bytes, seen.file_system) = (Some(left), Some(mounted));
        Ok((outcome, seen))
    }

    /// What is mounted at a folder: as it was when a trial was first run there, or it is an error.
    fn mounted(&self, folder: &Folder) -> miette::Result<FileSystem> {
        let seen = FileSystem::at(Path::new(&folder.path))?;
        let mut known = self.mounted.borrow_mut();
        let first = known.entry(folder.path.clone()).or_insert_with(|| seen.clone());
        if *first == seen {
            return Ok(seen);
        }
        Err(miette::miette!(
            "{}: expected what was mounted there when the first trial began, {first}, seen {seen}",
            folder.path
        ))
    }

    /// Has a client of its own write every block of a file.
    fn fill(&self, file: &Scratch) -> miette::Result<()> {
        let mut command = process::command(None, &list(&self.ends.near), &super::program()?);
        command.args(["bench", &uri(file), "--json", "--overwrite", "--fill"]);
        command.args(["--rw", "read"]).args(MOMENT);
        self.finish(command, FILL_MAX, |_, _| ControlFlow::Continue(())).map(|_| ())
    }

    /// `plateway bench` on a file, which is told its load elsewhere.
    fn bench_on(
        &self,
        work: &Work<'_>,
        file: &Scratch,
        group: Option<&Group>,
    ) -> miette::Result<Command> {
        let (cpus, program) = (list(self.client_cpus(work.way)), super::program()?);
        let mut command = process::command_in(group, work.near(), &cpus, &program);
        command.args(["bench", &uri(file), "--json", "--overwrite"]);
        if work.cell.load.cache {
            command.arg("--cached");
        }
        Ok(command)
    }
}

/// A file, as `plateway bench` is told of it.
fn uri(file: &Scratch) -> String {
    let (path, create_bytes) = (file.path().to_owned(), None);
    DiskUri::File { path, create_bytes, tail: reactor::disk::Tail::Refuse }.to_string()
}
