//! fio as the client of a folder: the same load on the same file, watched as `plateway bench` watches its
//! own.
//!
//! fio is one process, whose jobs are its threads, on the near end's CPUs, in the control group where there
//! is one. It writes a status each window to a file of the trial's, which is read as it comes: when the
//! trial has settled by the lab's rule ([`lab::fio::Running`]), fio is ended, since it has a time to run and
//! no such rule. Jobs that read or write anywhere do so in the whole file, and others have a part of it each,
//! as bench's. Latencies are those of fio's `lat`: from when a request was made to when it was seen to be
//! done. Errors: what fio complained of, and that it ended before it settled.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use lab::fio::Running;
use lab::plan::{Load, Pace, TrialOutcome};
use serde_json::{Value, json};
use testbed::{Group, Scratch, cpu, load, process};

use super::folder::Work;
use super::list;
use super::seen::Seen;
use super::trial::{Lab, complaint, tell};

impl Lab<'_> {
    /// Has fio load a file, and judges what it did.
    pub(super) fn load_by_fio(
        &self,
        work: &Work<'_>,
        file: &Scratch,
        group: Option<&Group>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let Work { cell, way, home, .. } = *work;
        let window = self.experiment.window_of(cell);
        let limit = self.load_max(cell);
        let output = home.join("fio");
        let cpus = list(&self.ends.near);
        let mut command = process::command_in(group, work.near(), &cpus, Path::new("fio"));
        command.args(asked(&cell.load, file.path()));
        command.arg(format!("--output={}", output.display()));
        command.arg(format!("--status-interval={}ms", window.as_millis()));
        // It is ended before.
        command.arg(format!("--runtime={}", limit.as_secs()));
        let mut watched = Watched::new(&output, window, self.experiment.warm_up);
        let mut looks = self.looks(window / 2, way, true);
        let ended = load::watch(command, limit, |pid, spent| {
            looks.look(pid, spent);
            watched.look(pid, spent);
            if watched.is_over() { ControlFlow::Break(()) } else { self.interrupt.flow() }
        })
        .map_err(tell)?;
        watched.trouble.map_or(Ok(()), |why| Err(miette::miette!("{why}")))?;
        if self.interrupt.is_raised() || !watched.running.is_over() {
            return Err(miette::miette!("fio ended before it was measured: {}", complaint(&ended)));
        }
        let jobs = (cell.load.jobs as usize).min(self.ends.near.len()).max(1);
        let said = said(&cell.load, file.path(), &watched.running, watched.busy / jobs as f64);
        self.judge(cell, said, &looks.end()?, way)
    }
}

/// What fio has written so far.
struct Watched<'a> {
    output: &'a Path,
    file: Option<File>,
    running: Running,
    trouble: Option<String>,
    /// When its windows began, and what it had run by then.
    began: Option<(Duration, u64)>,
    warm_up: Duration,
    /// CPUs that it used since.
    busy: f64,
}

impl Watched<'_> {
    fn new(output: &Path, window: Duration, warm_up: Duration) -> Watched<'_> {
        let running = Running::new(window, warm_up);
        Watched { output, file: None, running, trouble: None, began: None, warm_up, busy: 0.0 }
    }

    fn is_over(&self) -> bool {
        self.trouble.is_some() || self.running.is_over()
    }

    fn look(&mut self, pid: u32, spent: Duration) {
        if spent >= self.warm_up {
            let ran = cpu::run_time(pid);
            let (began, before) = *self.began.get_or_insert((spent, ran));
            let seconds = (spent - began).as_secs_f64();
            if seconds > 0.0 && ran > 0 {
                self.busy = ran.saturating_sub(before) as f64 / 1e9 / seconds;
            }
        }
        if let Err(why) = self.read() {
            self.trouble = Some(why);
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let tell = |error: std::io::Error| format!("cannot read what fio wrote: {error}");
        let file = match &mut self.file {
            Some(file) => file,
            none => match File::open(self.output) {
                Ok(file) => none.insert(file),
                // It has not begun.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(tell(error)),
            },
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(tell)?;
        self.running.handle_output(&bytes).map(|_| ())
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

/// What it did, as bench tells its own.
fn said(load: &Load, file: &Path, running: &Running, busy: f64) -> Value {
    let Load { block_bytes, pattern, pace, jobs, size, sync, fsync, .. } = load;
    let depth = match pace {
        Pace::Closed { depth } => *depth,
        Pace::Open { .. } => 0,
    };
    json!({
        "client": running.version(),
        "disk": format!("file:{}", file.display()),
        "pattern": pattern.to_string(),
        "block_bytes": block_bytes,
        "queue_depth": depth,
        "jobs": jobs,
        "closed_or_open_loop": "closed",
        "sync": sync,
        "fsync": fsync,
        "range_bytes": size,
        "steady": running.report(),
        "bench_thread_busy": [busy],
    })
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
