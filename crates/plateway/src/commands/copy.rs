//! `plateway copy`: one disk to another, whatever they are, then read back and compared.
//!
//! The copier of the lab does the work on one shard. A destination that holds data is refused
//! without `--overwrite`. A copy that ended early begins anew, and every message about one names
//! the command: which bytes of it are right is known to nobody, so `--resume` is refused. Units:
//! bytes.
//! Exit code 1: an error, an interruption, or a difference.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use lab::copier::{Copier, Failed, Plan};
use lab::report::Grouped;
use lab::{Phase, Place, Progress};
use serde::Serialize;

use super::session::{Opening, Session};
use crate::cli::CopyArgs;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Copied {
    source: String,
    destination: String,
    bytes: u64,
    verified: bool,
    seconds: f64,
    bytes_per_second: f64,
}

/// Copies.
pub(crate) fn run(args: &CopyArgs) -> miette::Result<()> {
    if args.resume {
        return Err(miette::miette!(
            help = anew(args),
            "--resume is refused: nobody knows what of an interrupted copy is right"
        ));
    }
    if args.source.same_backing(&args.destination) {
        return Err(miette::miette!("{} and {} are the same disk", args.source, args.destination));
    }
    let disks = [args.source.clone(), args.destination.clone()];
    let in_flight = 2 * u64::from(args.iodepth) * args.bs.max(4096);
    let opening = Opening { disks: &disks, config: args.config.as_deref(), shards: 1, in_flight };
    let session = Session::open(&opening)?;
    let copied = copy(&session, args);
    let closed = session.close();
    let copied = copied?;
    closed?;
    super::show(args.json, &copied, || {
        let verified = if copied.verified { ", read back and the same" } else { "" };
        let (bytes, rate) = (Grouped(copied.bytes), copied.bytes_per_second / 1e6);
        format!("{bytes} bytes copied{verified}: {:.1} s, {rate:.0} MB/s\n", copied.seconds)
    })
}

fn copy(session: &Session, args: &CopyArgs) -> miette::Result<Copied> {
    let [source, destination] = session.volumes() else {
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
    if !args.overwrite {
        session.refuse_data(1, &args.destination)?;
    }
    let plan = Plan {
        source: Place(0),
        destination: Place(1),
        size,
        from: 0,
        holes: Vec::new(),
        piece: args.bs as u32,
        depth: args.iodepth,
        compare: if args.verify() { 0..size } else { 0..0 },
    };
    carry(session, args, plan)
}

/// Lets the copier work and shows how far it is.
fn carry(session: &Session, args: &CopyArgs, plan: Plan) -> miette::Result<Copied> {
    let began = Instant::now();
    let progress = Arc::new(Progress::default());
    let copier = Copier::new(plan.clone(), progress.clone());
    let interrupted = super::session::interrupt()?;
    let passes = if args.verify() { 2 } else { 1 };
    let template = "{bar:32} {bytes}/{total_bytes} {bytes_per_sec} {msg} {eta} left";
    let bar = super::progress_bar(plan.size * passes, template);
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
    })?;
    bar.finish_and_clear();
    let [copier] = &outcome.guests[..] else {
        return Err(miette::miette!("the copy got lost"));
    };
    if let Some(failed) = copier.failed() {
        return Err(miette::miette!(help = anew(args), "{}", explain(args, failed)));
    }
    if !copier.is_complete() {
        return Err(miette::miette!(
            help = anew(args),
            "interrupted: {} is not known to be a copy of {}",
            args.destination,
            args.source
        ));
    }
    let (seconds, bytes) = (began.elapsed().as_secs_f64(), plan.size);
    Ok(Copied {
        source: args.source.to_string(),
        destination: args.destination.to_string(),
        bytes,
        verified: args.verify(),
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

/// How to begin anew. It gives up what the destination holds, whichever disk its name leads to by
/// then.
fn anew(args: &CopyArgs) -> String {
    let CopyArgs { source, destination, config, .. } = args;
    let config = config.as_ref().map(|path| format!("--config {} ", shell(&path.display())));
    format!(
        "begin anew, if {destination} still is the disk that is meant: plateway copy {} {} {}--overwrite",
        shell(source),
        shell(destination),
        config.unwrap_or_default()
    )
}

/// An argument as a shell takes it.
fn shell(argument: &impl std::fmt::Display) -> String {
    let text = argument.to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "-_.,:/+@%=".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::shell;

    #[test]
    fn an_argument_reaches_the_command_through_a_shell() {
        assert_eq!(shell(&"nvme+tcp://[::1]:4420/a:b/1"), "'nvme+tcp://[::1]:4420/a:b/1'");
        assert_eq!(shell(&"file:/srv/a.img"), "file:/srv/a.img");
        assert_eq!(shell(&"file:it's?create=1MiB"), "'file:it'\\''s?create=1MiB'");
    }
}
