//! `plateway lab copy`: a large file is written once, as `cp` writes a copy, for a plan whose client is
//! `copy`.
//!
//! Blocks go into the page cache in order, as fast as it takes them, and with `--sync` the file is synced in the end,
//! whose time counts. So a trial is one copy: what it came to is its bytes by all of its time, and there is
//! nothing to settle. It prints what `plateway bench --steady` prints; its five windows divide the copy's time
//! and its blocks evenly, since the page cache takes them at once and the disk all the time. What is written is the same at each time and no zeros; where it comes from costs nothing. Units:
//! bytes, nanoseconds. Errors: what the file system said, and of which block.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::ByteCount;
use lab::file_load::contents;
use lab::load::WindowLatencies;
use lab::plan::{Load, TrialOutcome};
use lab::report::{LastWindows, Steady};
use lab::statistics::steady::WINDOWS;
use serde_json::json;
use testbed::{Group, Scratch, process};

use super::folder::{FILL_MAX, Work};
use super::list;
use super::seen::Seen;
use super::trial::Lab;
use crate::cli::LabCopyArgs;
use crate::commands::print_json;

impl Lab<'_> {
    /// Has a copy made, and judges how long that took.
    pub(super) fn load_by_copy(
        &self,
        work: &Work<'_>,
        file: &Scratch,
        group: Option<&Group>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let Work { cell, way, .. } = *work;
        let (cpus, program) = (list(self.client_cpus(way)), super::program()?);
        let mut command = process::command_in(group, work.near(), &cpus, &program);
        let Load { block_bytes, size, sync, .. } = cell.load;
        command.args(["lab", "copy"]).arg(file.path());
        command.args(["--bs", &block_bytes.to_string()]);
        command.args(["--size", &size.unwrap_or(0).to_string()]);
        if sync {
            command.arg("--sync");
        }
        // A copy may be over at any time, and is to be looked at twice at least; of storage
        // nothing is told, whose share of the time is not that of the blocks.
        let looks = self.looks(Duration::from_millis(50), way, false);
        let (said, sighted) = self.finish_seen(command, FILL_MAX, looks)?;
        self.judge(cell, said, &sighted, way)
    }
}

/// Makes a copy, and prints how long it took.
pub(super) fn run(args: &LabCopyArgs) -> miette::Result<()> {
    let copied = copy(&args.file, args.bs, args.size, args.sync)?;
    print_json(&json!({
        "client": "plateway lab copy",
        "disk": format!("file:{}", args.file.display()),
        "pattern": "write",
        "block_bytes": args.bs,
        "queue_depth": 1,
        "jobs": 1,
        "closed_or_open_loop": "closed",
        "sync": args.sync,
        "range_bytes": args.size,
        "steady": copied.report(),
    }))
}

/// What its blocks hold follows from it.
const CONTENTS: u64 = u64::MAX;

/// A copy that was made.
struct Copied {
    began: SystemTime,
    took: Duration,
    blocks: u64,
    latencies: WindowLatencies,
}

/// Writes so many bytes to a file, of which nothing stays that was there.
fn copy(file: &Path, block_bytes: u32, bytes: u64, syncs: bool) -> miette::Result<Copied> {
    let tell = |doing: &str, error: &std::io::Error| {
        miette::miette!("cannot {doing} {}: {error}", file.display())
    };
    let block_bytes = block_bytes as usize;
    let mut block = vec![0; block_bytes];
    contents::fill(&mut block, CONTENTS, 0);
    let mut latencies = WindowLatencies::default();
    latencies.begin(1);
    let (began, start) = (SystemTime::now(), Instant::now());
    let mut to = File::options()
        .write(true)
        .truncate(true)
        .create(true)
        .open(file)
        .map_err(|error| tell("make", &error))?;
    let (mut blocks, mut left) = (0, bytes);
    while left > 0 {
        let length = block_bytes.min(usize::try_from(left).unwrap_or(block_bytes));
        let before = Instant::now();
        to.write_all(&block[..length]).map_err(|error| {
            let at = ByteCount(bytes - left);
            tell(&format!("write {length} bytes at {at} of {} to", ByteCount(bytes)), &error)
        })?;
        latencies.count(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        blocks += 1;
        left -= length as u64;
    }
    if syncs {
        to.sync_all().map_err(|error| tell("sync", &error))?;
    }
    let took = start.elapsed();
    // What was counted is of a window that is over.
    latencies.begin(2);
    Ok(Copied { began, took, blocks, latencies })
}

impl Copied {
    /// As what is measured by windows tells it.
    fn report(&self) -> Steady {
        let took = self.took.max(Duration::from_nanos(1)).as_secs_f64();
        let (window, rate) = (took / WINDOWS as f64, self.blocks as f64 / took);
        let began = self.began.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Steady {
            is_steady: true,
            window_seconds: window,
            iops: rate,
            windows: vec![rate; WINDOWS],
            edges_unix: (0..=WINDOWS).map(|edge| began + edge as f64 * window).collect(),
            last: LastWindows::of_one_kind(&self.latencies.last(), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_as_large_as_was_asked_and_holds_no_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, vec![1; 100_000]).unwrap();
        for (bytes, syncs, blocks) in [(10_000, true, 3), (8192, false, 2), (100, false, 1)] {
            let copied = copy(&file, 4096, bytes, syncs).unwrap();
            let written = std::fs::read(&file).unwrap();
            assert_eq!((written.len() as u64, copied.blocks), (bytes, blocks));
            assert!(written.chunks(64).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
            let report = copied.report();
            assert!(report.is_steady && report.windows.len() == WINDOWS);
            assert_eq!(report.last.requests, blocks);
            let took = report.edges_unix[WINDOWS] - report.edges_unix[0];
            assert!((report.iops * took - blocks as f64).abs() < 0.05, "{report:?}");
            let counted: f64 = report.windows.iter().map(|rate| rate * report.window_seconds).sum();
            assert!((counted - blocks as f64).abs() < 1e-6, "whoever counts by windows counts all");
        }
    }

    #[test]
    fn a_disk_that_is_full_is_told_with_how_far_it_went() {
        let file = Path::new("/dev/full");
        let why = copy(file, 4096, 8192, false).err().unwrap().to_string();
        assert!(why.contains("cannot write 4096 bytes at") && why.contains("/dev/full"), "{why}");
        let nowhere = copy(Path::new("/nowhere/at/all"), 4096, 1, true).err().unwrap();
        assert!(nowhere.to_string().contains("cannot make /nowhere/at/all"));
    }
}
