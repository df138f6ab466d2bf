//! fio as the client of a folder: the same load on the same file, watched as `plateway bench` watches its
//! own.
//!
//! fio is one process, whose jobs are its threads, on the near end's CPUs, in the control group where there
//! is one. It writes a status each window, and is ended when it has settled ([`super::followed`]), since it has a
//! time to run and no such rule. Jobs that read or write anywhere do so in the whole file, and others have a part of it each,
//! as bench's. Latencies are those of fio's `lat`: from when a request was made to when it was seen to be
//! done. Errors: what fio complained of, and that it ended before it settled.

use std::path::Path;

use lab::following::Teller;
use lab::plan::{Load, Pace, TrialOutcome};
use testbed::{Group, Scratch, process};

use super::folder::Work;
use super::list;
use super::seen::Seen;
use super::trial::Lab;

impl Lab<'_> {
    /// Has fio load a file, and judges what it did.
    pub(super) fn load_by_fio(
        &self,
        work: &Work<'_>,
        file: &Scratch,
        group: Option<&Group>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let Work { cell, way, home, .. } = *work;
        let output = home.join("fio");
        let cpus = list(self.client_cpus(way));
        let mut command = process::command_in(group, work.near(), &cpus, Path::new("fio"));
        command.args(asked(&cell.load, file.path()));
        command.arg(format!("--output={}", output.display()));
        let window = self.experiment.window_of(cell).as_millis();
        command.arg(format!("--status-interval={window}ms"));
        // It is ended before.
        command.arg(format!("--runtime={}", self.load_max(cell).as_secs()));
        let followed = self.follow(cell, command, (&output, Teller::Fio), way, true)?;
        let disk = format!("file:{}", file.path().display());
        self.judge(cell, followed.said(&cell.load, (&disk, cell.load.size)), &followed.sighted, way)
    }
}

/// The load, as fio is asked for it.
fn asked(load: &Load, file: &Path) -> Vec<String> {
    let Load { block_bytes, pattern, pace, jobs, size, sync, fsync, cache, .. } = *load;
    let bytes = size.unwrap_or(0);
    let depth = match pace {
        Pace::Closed { depth } => depth,
        Pace::Open { .. } => unreachable!("a plan in which fio has a rate is refused"),
    };
    let words = match (pattern.random, pattern.reads(), pattern.writes()) {
        (true, true, true) => "randrw",
        (true, true, false) => "randread",
        (true, false, _) => "randwrite",
        (false, true, true) => "rw",
        (false, true, false) => "read",
        (false, false, _) => "write",
    };
    // A colon would begin the name of another file.
    let file = file.display().to_string().replace(':', "\\:");
    let mut args: Vec<String> = [
        "--name=lab",
        "--thread",
        "--group_reporting",
        "--time_based",
        "--ioengine=io_uring",
        "--randrepeat=0",
        "--norandommap",
        "--random_generator=tausworthe64",
        "--invalidate=0",
        "--fallocate=none",
        "--fadvise_hint=0",
        "--clat_percentiles=0",
        "--lat_percentiles=1",
        "--output-format=json+",
        "--eta=never",
    ]
    .map(str::to_owned)
    .to_vec();
    args.push(format!("--filename={file}"));
    args.push(format!("--rw={words}"));
    args.push(format!("--rwmixread={}", pattern.read_percent));
    args.push(format!("--direct={}", u8::from(!cache)));
    args.push(format!("--bs={block_bytes}"));
    args.push(format!("--iodepth={depth}"));
    args.push(format!("--numjobs={jobs}"));
    let (block, jobs) = (u64::from(block_bytes), u64::from(jobs));
    if pattern.random || bytes / block < jobs {
        args.push(format!("--size={bytes}"));
    } else {
        let part = bytes / block / jobs * block;
        args.extend([format!("--size={part}"), format!("--offset_increment={part}")]);
    }
    if sync {
        args.push("--sync=dsync".to_owned());
    }
    args.extend(fsync.map(|writes| format!("--fdatasync={writes}")));
    args
}

#[cfg(test)]
mod tests {
    use lab::words::Pattern;

    use super::*;

    fn load(pattern: &str) -> Load {
        Load {
            block_bytes: 4096,
            pattern: pattern.parse::<Pattern>().unwrap(),
            pace: Pace::Closed { depth: 8 },
            jobs: 3,
            size: Some(10 * 4096),
            sync: false,
            fsync: None,
            cache: false,
            client_memory: None,
            client_cpu: None,
            disks: None,
            files: None,
        }
    }

    #[test]
    fn fio_is_asked_for_the_load_of_the_plan() {
        let has = |load: &Load, words: &[&str]| {
            let args = asked(load, Path::new("/mnt/a:b"));
            for word in words {
                assert!(args.iter().any(|one| one == word), "{word}: {args:?}");
            }
            args
        };
        let args = has(
            &load("randread"),
            &[
                "--rw=randread",
                "--direct=1",
                "--iodepth=8",
                "--numjobs=3",
                "--bs=4096",
                "--size=40960",
            ],
        );
        assert!(args.contains(&"--filename=/mnt/a\\:b".to_owned()), "{args:?}");
        assert!(!args.iter().any(|one| one.starts_with("--offset") || one.starts_with("--sync")));
        // Each job its part, of whole blocks.
        has(&load("write"), &["--rw=write", "--size=12288", "--offset_increment=12288"]);
        has(&load("randrw=75"), &["--rw=randrw", "--rwmixread=75"]);
        let durable = Load { cache: true, sync: true, fsync: Some(4), ..load("rw") };
        has(&durable, &["--rw=rw", "--direct=0", "--sync=dsync", "--fdatasync=4"]);
    }
}
