//! A client of others' making, watched as `plateway bench` watches its own load.
//!
//! It writes how far it is to a file of the trial's, once a window, which is read as it comes. When the trial has settled
//! by the lab's rule ([`lab::following::Following`]), the client is ended. Units: shares of a CPU. Errors: what it
//! complained of, words that are none of a status, silence, and that it ended before it settled.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::following::{Following, Teller};
use lab::plan::{Cell, Load, Pace};
use serde_json::{Value, json};
use testbed::{cpu, load};

use super::growing::Growing;
use super::looks::Sighted;
use super::trial::{Lab, complaint, tell};
use super::way::Way;

/// How long one may write nothing at least, and how many windows.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const SILENT_WINDOWS: u32 = 10;

/// One that has settled, and what was seen meanwhile.
pub(super) struct Followed {
    following: Following,
    /// Shares of a CPU that each of its threads used, if they shared it evenly.
    busy: f64,
    pub(super) sighted: Sighted,
}

impl Lab<'_> {
    /// Runs a client that tells what it does in a file, until it has settled.
    pub(super) fn follow(
        &self,
        cell: &Cell,
        command: Command,
        (output, teller): (&Path, Teller),
        way: Option<&Way<'_>>,
        has_storage: bool,
    ) -> miette::Result<Followed> {
        let window = self.experiment.window_of(cell);
        let following = Following::new(teller, window, self.experiment.warm_up);
        let mut watched = Watched {
            output: Growing::new(output.to_owned()),
            following,
            heard: Duration::ZERO,
            silence_max: SILENCE_MAX.max(window * SILENT_WINDOWS),
            trouble: None,
            ran: None,
            threads: 1,
            busy: 0.0,
        };
        let warm_up = self.experiment.warm_up;
        let mut looks = self.looks(window / 2, way, has_storage);
        let ended = load::watch(command, self.load_max(cell), |pid, spent| {
            let flow = looks.look(pid, spent);
            watched.look(pid, spent, warm_up);
            let is_over = flow.is_break() || watched.is_over();
            if is_over { ControlFlow::Break(()) } else { self.interrupt.flow() }
        })
        .map_err(tell)?;
        looks.trouble()?;
        watched.trouble.map_or(Ok(()), |why| Err(miette::miette!("{why}")))?;
        if self.interrupt.is_raised() || !watched.following.is_over() {
            let who = teller.word();
            return Err(miette::miette!(
                "{who} ended before it was measured: {}",
                complaint(&ended)
            ));
        }
        let cpus = self.client_cpus(way).len();
        let share = (cell.load.jobs as usize).min(watched.threads).min(cpus).max(1);
        let (following, busy) = (watched.following, watched.busy / share as f64);
        Ok(Followed { following, busy, sighted: looks.end()? })
    }
}

impl Followed {
    /// What it did, as bench tells its own, on so many bytes of a disk.
    pub(super) fn said(&self, load: &Load, (disk, bytes): (&str, Option<u64>)) -> Value {
        let Load { block_bytes, pattern, pace, jobs, sync, fsync, .. } = load;
        let depth = match pace {
            Pace::Closed { depth } => *depth,
            Pace::Open { .. } => 0,
        };
        json!({
            "client": self.following.version(),
            "disk": disk,
            "pattern": pattern.to_string(),
            "block_bytes": block_bytes,
            "queue_depth": depth,
            "jobs": jobs,
            "closed_or_open_loop": "closed",
            "sync": sync,
            "fsync": fsync,
            "range_bytes": bytes,
            "steady": self.following.report(),
            "bench_thread_busy": [self.busy],
            "notes": self.following.notes(),
        })
    }
}

/// What a client has written so far.
struct Watched {
    output: Growing,
    following: Following,
    /// When it wrote something last, and how long it may write nothing.
    heard: Duration,
    silence_max: Duration,
    trouble: Option<String>,
    /// When its windows began, and what it had run by then.
    ran: Option<(Duration, u64)>,
    threads: usize,
    /// CPUs that it used since.
    busy: f64,
}

impl Watched {
    fn is_over(&self) -> bool {
        self.trouble.is_some() || self.following.is_over()
    }

    fn look(&mut self, pid: u32, spent: Duration, warm_up: Duration) {
        if spent >= warm_up {
            let ran = cpu::run_time(pid);
            let (began, before) = *self.ran.get_or_insert((spent, ran));
            let seconds = (spent - began).as_secs_f64();
            if seconds > 0.0 && ran > 0 {
                self.busy = ran.saturating_sub(before) as f64 / 1e9 / seconds;
                let threads = fs::read_dir(format!("/proc/{pid}/task")).map(Iterator::count);
                self.threads = threads.unwrap_or(self.threads);
            }
        }
        match self.read() {
            Err(why) => self.trouble = Some(why),
            Ok(0) if spent - self.heard > self.silence_max => {
                let seconds = self.silence_max.as_secs();
                self.trouble = Some(format!(
                    "expected that the client tells each window how far it is, seen nothing for {seconds} s"
                ));
            }
            Ok(0) => {}
            Ok(_) => self.heard = spent,
        }
    }

    /// Takes what it has written since; how much that is.
    fn read(&mut self) -> Result<usize, String> {
        let bytes = self.output.read()?;
        self.following.handle_output(&bytes).map(|_| bytes.len())
    }
}
