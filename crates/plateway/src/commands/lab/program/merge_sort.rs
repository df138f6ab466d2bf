//! The external merge sort: makes what is sorted, sorts it in an eighth of the memory, and looks whether it is.
//!
//! ```text
//!   input made and out of the page cache | read, sorted, runs written, merged, output durable | output read and judged
//!                                        +---------------- measured ------------------------+
//! ```
//! What is sorted, and how, is `lab::programs::merge_sort`'s; here are files and the clock. They are read and written
//! through the page cache, as such a program does. Windows divide what was read and written evenly; an operation is a
//! MiB that was sorted. Units: bytes. Errors: what cannot be read or written, with its file, and output that is wrong.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use lab::plan::{Files, Measure};
use lab::programs::merge_sort::{
    self, BYTES_MIN, Judge, Merge, PASSES, PIECE_BYTES, Step, UNIT_BYTES,
};
use lab::statistics::steady::WINDOWS;
use rustix::fs::Advice;
use serde_json::{Value, json};

use crate::cli::LabProgramArgs;

pub(super) fn run(args: &LabProgramArgs) -> miette::Result<Value> {
    let LabProgramArgs { folder, size, seed, .. } = args;
    if *size < BYTES_MIN || !size.is_multiple_of(UNIT_BYTES) {
        return Err(miette::miette!(
            "merge-sort: --size: expected whole MiB, {} at least, seen {size} bytes",
            BYTES_MIN / UNIT_BYTES
        ));
    }
    let (input, runs, output) = (
        Named::make(folder, "input")?,
        Named::make(folder, "runs")?,
        Named::make(folder, "output")?,
    );
    make(&input, *size, *seed)?;
    let began = SystemTime::now();
    let mut moved = Moved::new(*size);
    let memory = merge_sort::memory_bytes(*size);
    sort_runs(&input, &runs, (*size, memory), &mut moved)?;
    merge(&runs, &output, (*size, memory), &mut moved)?;
    output.file.sync_data().map_err(|error| output.failed("write", &error))?;
    let edges = moved.end();
    output.cool()?;
    judge(&output, *size, *seed)?;
    let units = size / UNIT_BYTES;
    let rate = *size as f64 / edges[WINDOWS].max(1e-9);
    Ok(json!({
        "client": format!("external merge sort of plateway {}", env!("CARGO_PKG_VERSION")),
        "files": Files::MergeSort.word(),
        "seed": seed,
        "memory_bytes": memory,
        "total_seconds": edges[WINDOWS],
        "told": { Measure::Throughput.word(): rate },
        "steady": super::evenly(began, &edges, units),
    }))
}

/// A file with its name.
struct Named {
    file: File,
    path: PathBuf,
}

impl Named {
    fn make(folder: &Path, name: &str) -> miette::Result<Named> {
        let path = folder.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file =
            file.map_err(|error| miette::miette!("cannot make {}: {error}", path.display()))?;
        Ok(Named { file, path })
    }

    fn failed(&self, doing: &str, error: &std::io::Error) -> miette::Report {
        miette::miette!("cannot {doing} {}: {error}", self.path.display())
    }

    /// All of it is on its disk, and nothing in memory.
    fn cool(&self) -> miette::Result<()> {
        self.file.sync_data().map_err(|error| self.failed("write", &error))?;
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|error| self.failed("drop the pages of", &error.into()))
    }
}

/// When each fifth of what is read and written was over, in seconds since the start.
struct Moved {
    start: Instant,
    bytes: u64,
    all: u64,
    edges: Vec<f64>,
}

impl Moved {
    fn new(size: u64) -> Moved {
        Moved { start: Instant::now(), bytes: 0, all: PASSES * size, edges: vec![0.0] }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        // The last is over when all of it is durable.
        while self.edges.len() < WINDOWS
            && self.bytes >= self.all * self.edges.len() as u64 / WINDOWS as u64
        {
            self.edges.push(self.start.elapsed().as_secs_f64());
        }
    }

    fn end(mut self) -> Vec<f64> {
        let end = self.start.elapsed().as_secs_f64();
        self.edges.resize(WINDOWS + 1, end);
        self.edges
    }
}

/// Writes what is to be sorted.
fn make(input: &Named, size: u64, seed: u64) -> miette::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    for offset in (0..size).step_by(PIECE_BYTES) {
        merge_sort::fill(seed, offset, &mut piece);
        (&input.file).write_all(&piece).map_err(|error| input.failed("write", &error))?;
    }
    input.cool()
}

/// Sorts as much as there is memory for, again and again.
fn sort_runs(
    input: &Named,
    runs: &Named,
    (size, memory): (u64, u64),
    moved: &mut Moved,
) -> miette::Result<()> {
    let mut bytes = vec![0; memory as usize];
    for offset in (0..size).step_by(memory as usize) {
        let run = &mut bytes[..memory.min(size - offset) as usize];
        for (piece, at) in run.chunks_mut(PIECE_BYTES).zip((offset..).step_by(PIECE_BYTES)) {
            let read = input.file.read_exact_at(piece, at);
            read.map_err(|error| input.failed("read", &error))?;
            moved.count(piece.len());
        }
        merge_sort::sort(run);
        for piece in run.chunks(PIECE_BYTES) {
            (&runs.file).write_all(piece).map_err(|error| runs.failed("write", &error))?;
            moved.count(piece.len());
        }
    }
    Ok(())
}

/// Merges the runs.
fn merge(
    runs: &Named,
    output: &Named,
    (size, memory): (u64, u64),
    moved: &mut Moved,
) -> miette::Result<()> {
    let mut next: Vec<u64> = (0..size).step_by(memory as usize).collect();
    let mut merge = Merge::new(next.iter().map(|begin| memory.min(size - begin)));
    let mut out = Vec::with_capacity(PIECE_BYTES);
    loop {
        let step = merge.step(&mut out, PIECE_BYTES);
        if let Step::Needs { run, bytes } = step {
            let mut piece = merge.memory(run);
            piece.resize(bytes, 0);
            let read = runs.file.read_exact_at(&mut piece, next[run]);
            read.map_err(|error| runs.failed("read", &error))?;
            next[run] += bytes as u64;
            merge.give(run, piece);
            moved.count(bytes);
            continue;
        }
        (&output.file).write_all(&out).map_err(|error| output.failed("write", &error))?;
        moved.count(out.len());
        out.clear();
        if step == Step::Over {
            return Ok(());
        }
    }
}

/// Reads the output again, and says what is wrong with it.
fn judge(output: &Named, size: u64, seed: u64) -> miette::Result<()> {
    let mut file = File::open(&output.path).map_err(|error| output.failed("open", &error))?;
    let mut judge = Judge::default();
    let mut piece = vec![0; PIECE_BYTES];
    let wrong = |why: String| miette::miette!("{}: {why}", output.path.display());
    for _ in (0..size).step_by(PIECE_BYTES) {
        file.read_exact(&mut piece).map_err(|error| output.failed("read", &error))?;
        judge.take(&piece).map_err(wrong)?;
    }
    judge.end(seed, size).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_sorted_is_judged_and_what_it_took_is_told_in_fifths() {
        let folder = tempfile::tempdir().unwrap();
        let size = BYTES_MIN + 3 * UNIT_BYTES;
        let args = LabProgramArgs {
            program: Files::MergeSort,
            folder: folder.path().to_owned(),
            size,
            seed: 5,
            jobs: 1,
            home: None,
            steady: Duration::ZERO,
            warmup: Duration::ZERO,
        };
        let said = run(&args).unwrap();
        let numbers = |key: &str| -> Vec<f64> {
            said["steady"][key].as_array().unwrap().iter().filter_map(Value::as_f64).collect()
        };
        assert_eq!(said["steady"]["requests"], 11);
        assert!(numbers("windows").iter().all(|rate| *rate > 0.0), "{said}");
        let edges = numbers("edges_unix");
        assert!(edges.len() == WINDOWS + 1 && edges.is_sorted(), "{said}");
        // It makes its files itself, and no others.
        let why = run(&args).unwrap_err().to_string();
        assert!(why.starts_with("cannot make ") && why.contains("input: File exists"), "{why}");
        let output = Named {
            file: File::options().write(true).open(folder.path().join("output")).unwrap(),
            path: folder.path().join("output"),
        };
        output.file.write_all_at(b"x", 70).unwrap();
        let why = judge(&output, size, 5).unwrap_err().to_string();
        assert!(why.ends_with("expected an item as it was made, seen another at byte 64"), "{why}");
    }
}
