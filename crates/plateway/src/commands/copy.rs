//! `plateway copy`: one disk to another, whatever they are, then read back and compared.
//!
//! The copier of the lab does the work on one shard. A destination that holds data is refused without `--overwrite`. How far a copy is durable is
//! written to the state directory while it goes on, so that `--resume` can continue it; sizes and names must be the same then. Units: bytes.
//! Exit code 1: an error, an interruption, or a difference.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use block::checksum::crc32c;
use indicatif::{ProgressBar, ProgressStyle};
use lab::copier::{Copier, Failed, Plan};
use lab::report::Grouped;
use lab::{Phase, Place, Progress, Task};
use serde::Serialize;

use super::session::{Session, Wish};
use crate::cli::CopyArgs;
use crate::config::defaults::Defaults;
use crate::run::log;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Copied {
    source: String,
    destination: String,
    bytes: u64,
    resumed_from: u64,
    verified: bool,
    seconds: f64,
    bytes_per_second: f64,
}

/// Copies.
pub(crate) fn run(args: &CopyArgs) -> miette::Result<()> {
    if args.source.same_backing(&args.destination) {
        return Err(miette::miette!("{} and {} are the same disk", args.source, args.destination));
    }
    let disks = [args.source.clone(), args.destination.clone()];
    let in_flight = 2 * u64::from(args.iodepth) * args.bs.max(4096);
    let wish = Wish { disks: &disks, config: args.config.as_deref(), shards: 1, in_flight };
    let session = Session::open(&wish)?;
    let copied = copy(&session, args);
    let closed = session.close();
    let copied = copied?;
    closed?;
    if args.json {
        return super::print_json(&copied);
    }
    let verified = if copied.verified { ", read back and the same" } else { "" };
    super::print(&format!(
        "{} bytes copied{verified}: {:.1} s, {:.0} MB/s\n",
        Grouped(copied.bytes),
        copied.seconds,
        copied.bytes_per_second / 1e6
    ));
    Ok(())
}

fn copy(session: &Session, args: &CopyArgs) -> miette::Result<Copied> {
    let [source, destination] = session.sites() else {
        return Err(miette::miette!("two disks were asked for"));
    };
    let size = source.bytes;
    if destination.bytes < size {
        return Err(miette::miette!(
            help = "give it at least that size; a file is made as large with file:PATH?create=SIZE",
            "{} is too small: expected at least the {size} bytes of {}, seen {}",
            args.destination,
            args.source,
            destination.bytes
        ));
    }
    if destination.read_only {
        return Err(miette::miette!("{} takes no writes", args.destination));
    }
    let block = u64::from(destination.block_size.max(source.block_size));
    if !size.is_multiple_of(block) || !args.bs.is_multiple_of(block) {
        return Err(miette::miette!(
            "expected sizes in whole blocks of {block}, seen {size} bytes to copy in pieces of {}",
            args.bs
        ));
    }
    let mut journal = Journal::of(args, size);
    let from = match args.resume {
        true => journal.read()?,
        false => 0,
    };
    if from == 0 && !args.overwrite {
        session.refuse_data(1, &args.destination)?;
    }
    let plan = Plan {
        source: Place(0),
        destination: Place(1),
        size,
        from: from - from % args.bs,
        piece: args.bs as u32,
        depth: args.iodepth,
        verify: args.verify(),
    };
    carry(session, args, plan, journal)
}

/// Lets the copier work, shows how far it is and keeps the journal.
fn carry(
    session: &Session,
    args: &CopyArgs,
    plan: Plan,
    mut journal: Journal,
) -> miette::Result<Copied> {
    let began = Instant::now();
    let progress = Arc::new(Progress::default());
    let copier = Task::Copy(Box::new(Copier::new(plan, progress.clone())));
    let interrupted = super::session::interrupt()?;
    let passes = if plan.verify { 2 } else { 1 };
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new((plan.size - plan.from) * passes),
        false => ProgressBar::hidden(),
    };
    let style = "{bar:32} {bytes}/{total_bytes} {bytes_per_sec} {msg} {eta} left";
    bar.set_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let outcome = session.run(vec![copier], |reading| {
        if interrupted.load(Relaxed) {
            progress.stop();
        }
        match reading.map(|reading| reading.phase) {
            Some(Phase::Measuring) => bar.set_message("copying"),
            Some(Phase::Draining) => bar.set_message("flushing"),
            Some(Phase::Verifying) => bar.set_message("comparing"),
            _ => {}
        }
        bar.set_position(progress.bytes());
        journal.write(progress.durable());
    })?;
    bar.finish_and_clear();
    let Some(Task::Copy(copier)) = outcome.tasks.into_iter().next() else {
        return Err(miette::miette!("the copy got lost"));
    };
    if let Some(failed) = copier.failed() {
        journal.write(copier.durable());
        return Err(miette::miette!("{}", explain(args, failed)));
    }
    if !copier.is_complete() {
        journal.write(copier.durable());
        return Err(miette::miette!(
            help = "continue with the same command and --resume",
            "interrupted: {} of {} bytes are durable at the destination",
            copier.durable(),
            plan.size
        ));
    }
    journal.remove();
    let (seconds, bytes) = (began.elapsed().as_secs_f64(), plan.size - plan.from);
    Ok(Copied {
        source: args.source.to_string(),
        destination: args.destination.to_string(),
        bytes,
        resumed_from: plan.from,
        verified: plan.verify,
        seconds,
        bytes_per_second: bytes as f64 / seconds.max(1e-9),
    })
}

fn explain(args: &CopyArgs, failed: Failed) -> String {
    let CopyArgs { source, destination, .. } = args;
    match failed {
        Failed::Read(at, outcome) => format!("cannot read {source} at offset {at}: {outcome}"),
        Failed::Write(at, outcome) => {
            format!("cannot write {destination} at offset {at}: {outcome}")
        }
        Failed::Flush(outcome) => format!("cannot flush {destination}: {outcome}"),
        Failed::ReadBack(at, outcome) => {
            format!("cannot read {destination} back at offset {at}: {outcome}")
        }
        Failed::Differs(at) => format!(
            "{destination} differs from {source} first seen at offset {at}: it lost what it was given, or the source changed meanwhile"
        ),
    }
}

/// How far a copy is durable, in a file of the state directory that is named after what is copied.
struct Journal {
    path: PathBuf,
    what: String,
    written: u64,
    broken: bool,
}

impl Journal {
    fn of(args: &CopyArgs, size: u64) -> Journal {
        let what = format!("{size} {} {}", args.source, args.destination);
        let name = format!("copy-{:08x}", crc32c(what.as_bytes()));
        let path = Defaults::of_this_machine().state.join(name);
        Journal { path, what, written: 0, broken: false }
    }

    /// Where to go on.
    fn read(&mut self) -> miette::Result<u64> {
        self.parse().ok_or_else(|| {
            miette::miette!(
                help = "copy without --resume",
                "there is nothing to resume: expected a record of this copy in {}",
                self.path.display()
            )
        })
    }

    fn parse(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let (offset, what) = text.trim_end().split_once(' ')?;
        (what == self.what).then(|| offset.parse().ok())?
    }

    /// Notes an offset, if it is further than the last; a directory that cannot be written only costs the resuming.
    fn write(&mut self, durable: u64) {
        if durable <= self.written || self.broken {
            return;
        }
        self.written = durable;
        let text = format!("{durable} {}\n", self.what);
        if let Err(error) = replace(&self.path, &text) {
            self.broken = true;
            log(&format!("this copy could not be resumed: {}: {error}", self.path.display()));
        }
    }

    fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Replaces a file as a whole.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}
