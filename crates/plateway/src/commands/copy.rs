//! `plateway copy`: one disk to another, whatever they are, then read back and compared.
//!
//! The copier of the lab does the work on one shard. A destination that holds data is refused
//! without `--overwrite`. How far a copy is durable stands in a journal (`lab::journal`), on a
//! shelf in the state directory, with which disks it is between: `--resume` goes on from there,
//! onto these disks and no others. A resume makes nothing and overwrites nothing that the journal
//! does not know. Units: bytes. Exit codes: 1 an error, 3 a difference, 130 an interruption.

mod ends;
mod shelf;

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use block::{ByteCount, Extent};
use indicatif::ProgressBar;
use lab::copier::{Copier, Failed, Plan};
use lab::journal::{End, Ending, Journal, Logbook, Shelf, Start, Verify};
use lab::{Phase, Place, Progress};
use serde::Serialize;

use self::ends::{Look, OpenEnd};
use self::shelf::FileShelf;
use super::session::{Interrupt, Opening, Session};
use super::{Ended, INTERRUPTED};
use crate::cli::CopyArgs;
use crate::config::defaults::Defaults;
use crate::config::uri::DiskUri;
use crate::log::Event;

const SOURCE: Place = Place(0);
const DESTINATION: Place = Place(1);

/// The exit code for a destination that is not what was written there.
const DIFFERS: u8 = 3;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Copied {
    source: String,
    destination: String,
    /// Of the whole copy.
    bytes: u64,
    /// Where this process began to copy: what lies before was copied by others before it.
    copied_from: u64,
    /// Bytes of `bytes` that the destination cleared, as the source has a hole there.
    holes_bytes: u64,
    /// Bytes of the source's file behind its last whole block, which are not copied.
    left_out_bytes: u64,
    /// Where comparing began; it went on to the end. None where nothing was compared.
    compared_from: Option<u64>,
    compared_bytes: u64,
    /// Whether all was compared, and is the same.
    verified: bool,
    seconds: f64,
    bytes_per_second: f64,
}

/// Copies.
pub(crate) fn run(args: &CopyArgs) -> miette::Result<()> {
    let CopyArgs { source, destination, config, .. } = args;
    if source.same_backing(destination) {
        return Err(miette::miette!("{source} and {destination} are the same disk"));
    }
    let name = |uri: &DiskUri| ends::name_of(uri, config.as_deref());
    let names = [name(source), name(destination)];
    let records = Records::new(&names);
    let journal = match args.resume {
        true => Some(records.journal(args)?),
        false => None,
    };
    let looks = match &journal {
        Some(journal) => look(args, journal)?,
        None => Default::default(),
    };
    // A resume goes on with a file that is there, and makes none.
    let wanted = if args.resume { destination.as_it_is() } else { destination.clone() };
    let disks = [(source.clone(), true), (wanted, false)];
    let in_flight = 2 * u64::from(args.iodepth) * args.bs.max(4096);
    let opening = Opening {
        disks: &disks,
        config: config.as_deref(),
        cached: false,
        state: None,
        shards: 1,
        in_flight,
    };
    let mut session = Session::open(&opening)?;
    let begun = begin(&mut session, args, names, looks, journal, &records);
    let Begun { source, destination, from, keeper, interrupted } = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // It says why nothing was begun; what closing says comes of the same.
            let _ = session.close();
            return Err(error);
        }
    };
    let ends = [&source, &destination];
    let copied = copy(session, args, ends, from, keeper, &interrupted)?;
    super::show(args.json, &copied, || copied.text())
}

/// The journal of this copy: where it is kept, if it can be.
struct Records {
    state: PathBuf,
    /// `None` where an end is memory, which no later process has.
    folder: Option<PathBuf>,
}

impl Records {
    fn new(names: &[Option<String>; 2]) -> Records {
        let folder = match names {
            [Some(source), Some(destination)] => Some(ends::folder_of(source, destination)),
            _ => None,
        };
        Records { state: Defaults::of_this_machine().state, folder }
    }

    /// What an earlier life of this copy left.
    fn journal(&self, args: &CopyArgs) -> miette::Result<Journal> {
        let refused = |why: &str| refused(args, why);
        let Some(folder) = &self.folder else {
            return Err(refused("a disk in memory is another one in each process"));
        };
        let path = self.state.join(folder);
        let text = FileShelf::read(&self.state, folder)
            .map_err(|error| refused(&format!("cannot read {}: {error}", path.display())))?;
        let Some(text) = text else {
            return Err(refused(&format!(
                "nothing is known of an unfinished copy from {} to {}",
                args.source, args.destination
            )));
        };
        Journal::parse(&text)
            .map_err(|why| refused(&format!("the journal in {}: {why}", path.display())))
    }

    /// Both ends are open, and were what it says.
    fn reopened(
        &self,
        journal: &Journal,
        [source, destination]: [Option<String>; 2],
    ) -> miette::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let text = journal.reopened(source, destination).text();
        let put = FileShelf::open(&self.state, folder.clone());
        put.and_then(|mut shelf| shelf.put(&text)).map_err(|error| {
            let path = self.state.join(folder);
            miette::miette!("{}: cannot replace the journal: {error}", path.display())
        })
    }

    /// Takes it away: it is not true any more.
    fn forget(&self) {
        if let Some(folder) = &self.folder
            && let Err(error) =
                FileShelf::open(&self.state, folder.clone()).and_then(|mut shelf| shelf.remove())
        {
            Event::warn(format!("cannot remove the journal of the copy: {error}")).tell();
        }
    }

    /// Begins the journal, before anything is written. Without one the copy goes on all the same,
    /// but not beside an older one that would say what is no more.
    fn begin(&self, ends: [&Option<End>; 2], from: u64) -> miette::Result<Option<Keeper>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let opened = FileShelf::open(&self.state, folder.clone()).and_then(|mut shelf| {
            let logbook = match ends {
                [Some(source), Some(destination)] => {
                    let (source, destination) = (source.clone(), destination.clone());
                    Some(Logbook::open(&mut shelf, source, destination, from)?)
                }
                _ => {
                    shelf.remove()?;
                    None
                }
            };
            Ok(logbook.map(|logbook| Keeper { shelf, logbook, told: false }))
        });
        opened.or_else(|error| {
            let path = self.state.join(folder);
            let path = path.display();
            if error.kind() == io::ErrorKind::WouldBlock {
                return Err(miette::miette!("{path}: another process copies between these disks"));
            }
            match FileShelf::read(&self.state, folder) {
                Ok(None) => {
                    Event::warn(format!("{path}: {error}: this copy cannot be resumed")).tell();
                    Ok(None)
                }
                _ => Err(miette::miette!(
                    help =
                        "let this user write there, or name another directory by $STATE_DIRECTORY",
                    "{path}: cannot replace the journal of an older copy: {error}"
                )),
            }
        })
    }
}

/// The journal of a copy under way, on its shelf.
struct Keeper {
    shelf: FileShelf,
    logbook: Logbook,
    /// Whether it was told that it cannot be written.
    told: bool,
}

impl Keeper {
    fn advance(&mut self, durable: u64) {
        if let Err(error) = self.logbook.advance(&mut self.shelf, durable)
            && !std::mem::replace(&mut self.told, true)
        {
            Event::warn(format!("cannot write the journal of the copy: {error}")).tell();
        }
    }

    fn close(mut self, ending: Ending, changed: Option<String>) {
        if let Err(error) = self.logbook.close(&mut self.shelf, ending, changed) {
            Event::warn(format!("cannot write the journal of the copy: {error}")).tell();
        }
    }
}

/// A copy that may be carried out.
struct Begun {
    source: OpenEnd,
    destination: OpenEnd,
    from: u64,
    keeper: Option<Keeper>,
    interrupted: Interrupt,
}

/// Judges whether and from where it may be copied, and begins the journal.
fn begin(
    session: &mut Session,
    args: &CopyArgs,
    names: [Option<String>; 2],
    looks: [Look; 2],
    journal: Option<Journal>,
    records: &Records,
) -> miette::Result<Begun> {
    check_sizes(session, args)?;
    let [source, destination] = names;
    let source = open_end(session, SOURCE, source)?;
    let destination = open_end(session, DESTINATION, destination)?;
    let start = match &journal {
        Some(journal) => {
            let start = start_of(journal, [(&source, &looks[0]), (&destination, &looks[1])]);
            let start = start.map_err(|why| refused(args, &why))?;
            // If nothing comes of it, the next resume finds them as opening left them.
            let ends = [&source, &destination].map(OpenEnd::changed);
            records.reopened(journal, ends)?;
            start
        }
        // Nothing is known of the destination.
        None => Start::Crashed(0),
    };
    if start == Start::Crashed(0) && !args.overwrite {
        session.refuse_data(DESTINATION.0, &args.destination)?;
    }
    // Until here a signal ends the process, however long a disk takes to answer.
    let interrupted = Interrupt::watch()?;
    check(session, args, start, records, &interrupted)?;
    let from = start.from();
    let keeper = records.begin([&source.end, &destination.end], from)?;
    Ok(Begun { source, destination, from, keeper, interrupted })
}

fn copy(
    mut session: Session,
    args: &CopyArgs,
    [source, destination]: [&OpenEnd; 2],
    from: u64,
    mut keeper: Option<Keeper>,
    interrupted: &Interrupt,
) -> miette::Result<Copied> {
    let volumes = session.volumes();
    let size = volumes[0].bytes;
    let verify = match (args.verify(), args.verify_rest) {
        (false, _) => Verify::Nothing,
        (true, true) => Verify::Rest,
        (true, false) => Verify::All,
    };
    let compare = verify.range(from, size);
    let plan = plan(args, size, from, compare.clone(), source.holes(size));
    let began = Instant::now();
    let copier = carry(&mut session, plan, keeper.as_mut(), interrupted)?;
    let closed = session.close();
    let ending = match copier.failed() {
        None if copier.is_complete() && closed.is_ok() => Ending::Whole,
        Some(Failed::Differs(_)) => Ending::Differs,
        _ => Ending::Early,
    };
    // What it was before the copy began is what was copied, unless somebody wrote to it meanwhile.
    let moved = source.end.as_ref().is_some_and(|end| end.changed != source.changed());
    let resumable = keeper.is_some() && ending == Ending::Early && !moved;
    if let Some(keeper) = keeper {
        let ending = if moved { Ending::Differs } else { ending };
        keeper.close(ending, destination.changed_durably());
    }
    let help = if resumable { go_on(args) } else { anew(args) };
    if let Some(failed) = copier.failed() {
        let code = if ending == Ending::Differs { DIFFERS } else { 1 };
        return Err(Ended::new(code, explain(args, failed)).help(help).into());
    }
    closed?;
    if !copier.is_complete() {
        let message = format!(
            "interrupted: the first {} of {} are at {} and durable",
            ByteCount(copier.durable()),
            ByteCount(size),
            args.destination
        );
        return Err(Ended::new(INTERRUPTED, message).help(help).into());
    }
    if moved {
        return Err(miette::miette!(
            help = help,
            "{} was changed while it was copied: what {} holds it may never have held",
            args.source,
            args.destination
        ));
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(Copied {
        source: args.source.to_string(),
        destination: args.destination.to_string(),
        bytes: size,
        copied_from: from,
        holes_bytes: copier.cleared(),
        left_out_bytes: source.left_out(size),
        compared_from: (!compare.is_empty()).then_some(compare.start),
        compared_bytes: compare.end - compare.start,
        verified: compare == (0..size),
        seconds,
        bytes_per_second: (size - from) as f64 / seconds.max(1e-9),
    })
}

impl Copied {
    fn text(&self) -> String {
        let Copied { bytes, copied_from, holes_bytes, compared_bytes, seconds, .. } = *self;
        let mut text = format!("{} copied", ByteCount(bytes - copied_from));
        if copied_from > 0 {
            text += &format!(" behind the first {}", ByteCount(copied_from));
        }
        if holes_bytes > 0 {
            text += &format!(", {} of them holes", ByteCount(holes_bytes));
        }
        text += &match self.compared_from {
            Some(0) => format!("; compared all {}: the same", ByteCount(compared_bytes)),
            Some(from) => format!(
                "; compared the last {}: the same; the first {} were not read back",
                ByteCount(compared_bytes),
                ByteCount(from)
            ),
            None => "; nothing was compared".to_owned(),
        };
        let rate = self.bytes_per_second / 1e6;
        text += &format!(" ({seconds:.1} s, {rate:.0} MB/s)\n");
        if self.left_out_bytes > 0 {
            let (left, source) = (ByteCount(self.left_out_bytes), &self.source);
            text += &format!("left out: the last {left} of {source}, which fill no block\n");
        }
        text
    }
}

fn open_end(session: &Session, place: Place, name: Option<String>) -> miette::Result<OpenEnd> {
    let volume = &session.volumes()[usize::from(place.0)];
    Ok(OpenEnd::new(name, session.backing(place)?, volume.uuid, volume.bytes))
}

fn plan(args: &CopyArgs, size: u64, from: u64, compare: Range<u64>, holes: Vec<Extent>) -> Plan {
    Plan {
        source: SOURCE,
        destination: DESTINATION,
        size,
        from,
        holes,
        piece: args.bs as u32,
        depth: args.iodepth,
        compare,
    }
}

fn check_sizes(session: &Session, args: &CopyArgs) -> miette::Result<()> {
    let [source, destination] = session.volumes() else {
        return Err(miette::miette!("two disks were asked for"));
    };
    let size = source.bytes;
    if destination.bytes < size {
        return Err(miette::miette!(
            help = "give it at least that size; a file is made as large with file:PATH?create=SIZE",
            "{} is too small: expected at least the {:#} of {}, seen {:#}",
            args.destination,
            ByteCount(size),
            args.source,
            ByteCount(destination.bytes)
        ));
    }
    if destination.read_only {
        return Err(miette::miette!("{} is read-only", args.destination));
    }
    let block = u64::from(destination.block_size.max(source.block_size));
    if !size.is_multiple_of(block) || !args.bs.is_multiple_of(block) {
        return Err(miette::miette!(
            "expected sizes in whole blocks of {block}, seen {:#} to copy in pieces of {:#}",
            ByteCount(size),
            ByteCount(args.bs)
        ));
    }
    Ok(())
}

fn refused(args: &CopyArgs, why: &str) -> miette::Report {
    miette::miette!(help = anew(args), "--resume is refused: {why}")
}

/// Looks at both ends, before opening them changes anything, and refuses others than the journal's.
fn look(args: &CopyArgs, journal: &Journal) -> miette::Result<[Look; 2]> {
    let at = |uri: &DiskUri| {
        Look::at(uri).map_err(|error| refused(args, &format!("cannot look at {uri}: {error}")))
    };
    let (source, destination) = (at(&args.source)?, at(&args.destination)?);
    journal
        .resume(&source.over(&journal.source), &destination.over(&journal.destination))
        .map_err(|other| refused(args, &other.to_string()))?;
    Ok([source, destination])
}

/// From where to go on, if both ends are what the journal says: which disks they are now that they
/// are open, and unchanged when they were not.
fn start_of(journal: &Journal, seen: [(&OpenEnd, &Look); 2]) -> Result<Start, String> {
    let unchanged = |open: &OpenEnd, look: &Look| {
        let end = open.end.as_ref()?;
        let changed = look.over(end).changed;
        Some(End { changed, ..end.clone() })
    };
    let [source, destination] = seen.map(|(open, look)| {
        unchanged(open, look).ok_or_else(|| "nothing tells which disk an end is".to_owned())
    });
    journal.resume(&source?, &destination?).map_err(|other| other.to_string())
}

/// Looks whether the destination still holds what a copy left there that did not end in order.
fn check(
    session: &mut Session,
    args: &CopyArgs,
    start: Start,
    records: &Records,
    interrupted: &Interrupt,
) -> miette::Result<()> {
    for range in start.checks() {
        let check = plan(args, range.end, range.end, range, Vec::new());
        let copier = carry(session, check, None, interrupted)?;
        let (code, why) = match copier.failed() {
            None if copier.is_complete() => continue,
            None => (INTERRUPTED, "interrupted".to_owned()),
            Some(Failed::Differs(at)) => {
                records.forget();
                let why = format!(
                    "{} does not hold what the copy left there, first seen at offset {at}: it was lost, or somebody else wrote to one of the disks",
                    args.destination
                );
                return Err(refused(args, &why));
            }
            Some(failed) => (1, explain(args, failed)),
        };
        return Err(Ended::new(code, why).help(go_on(args)).into());
    }
    Ok(())
}

/// Lets a copier work, shows how far it is and keeps its journal.
fn carry(
    session: &mut Session,
    plan: Plan,
    mut keeper: Option<&mut Keeper>,
    interrupted: &Interrupt,
) -> miette::Result<Copier> {
    let progress = Arc::new(Progress::default());
    let mut bar = Bar::new(&plan);
    let copier = Copier::new(plan, progress.clone());
    let mut outcome = session.run(vec![copier], |reading| {
        if interrupted.is_raised() {
            progress.stop();
        }
        if let Some(reading) = reading {
            bar.enter(reading.phase);
        }
        bar.line.set_position(progress.bytes());
        if let Some(keeper) = &mut keeper {
            keeper.advance(progress.durable());
        }
        ControlFlow::Continue(())
    })?;
    bar.line.finish_and_clear();
    let copier = outcome.guests.pop().ok_or_else(|| miette::miette!("the copy got lost"))?;
    if let Some(keeper) = keeper {
        keeper.advance(copier.durable());
    }
    Ok(copier)
}

/// How far it is on a terminal, one pass at a time.
struct Bar {
    line: ProgressBar,
    copies: u64,
    compares: u64,
}

impl Bar {
    fn new(plan: &Plan) -> Bar {
        let template = "{msg} {bar:32} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta} left";
        let (copies, compare) = (plan.size - plan.from, &plan.compare);
        let line = super::progress_bar(copies, template);
        Bar { line, copies, compares: compare.end - compare.start }
    }

    fn enter(&mut self, phase: Phase) {
        let (pass, word, length) = match phase {
            Phase::Measuring => (1, "copying", self.copies),
            Phase::Draining => (1, "flushing", self.copies),
            Phase::Verifying => (2, "comparing", self.compares),
            Phase::New | Phase::Warming | Phase::Done => return,
        };
        let message = match (self.copies, self.compares) {
            (0, _) | (_, 0) => word.to_owned(),
            _ => format!("({pass} of 2) {word}"),
        };
        if phase == Phase::Verifying {
            self.line.reset();
        }
        self.line.set_length(length);
        self.line.set_message(message);
    }
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
    let destination = &args.destination;
    format!(
        "begin anew, if {destination} still is the disk that is meant: {} --overwrite",
        command(args)
    )
}

/// How to go on.
fn go_on(args: &CopyArgs) -> String {
    format!("go on with: {} --resume", command(args))
}

/// The command, for a shell.
fn command(args: &CopyArgs) -> String {
    let CopyArgs { source, destination, config, .. } = args;
    let config =
        config.as_deref().map(|path: &Path| format!(" --config {}", shell(&path.display())));
    let config = config.unwrap_or_default();
    format!("plateway copy {} {}{config}", shell(source), shell(destination))
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
    use super::*;

    #[test]
    fn an_argument_reaches_the_command_through_a_shell() {
        assert_eq!(shell(&"nvme+tcp://[::1]:4420/a:b/1"), "'nvme+tcp://[::1]:4420/a:b/1'");
        assert_eq!(shell(&"file:/srv/a.img"), "file:/srv/a.img");
        assert_eq!(shell(&"file:it's?create=1MiB"), "'file:it'\\''s?create=1MiB'");
    }

    #[test]
    fn what_was_compared_is_said_and_what_was_not() {
        let mut copied = Copied {
            source: "file:a".to_owned(),
            destination: "file:b".to_owned(),
            bytes: 40 << 20,
            copied_from: 0,
            holes_bytes: 0,
            left_out_bytes: 0,
            compared_from: Some(0),
            compared_bytes: 40 << 20,
            verified: true,
            seconds: 1.0,
            bytes_per_second: 1e6,
        };
        let all = "40 MiB copied; compared all 40 MiB: the same (1.0 s, 1 MB/s)\n";
        assert_eq!(copied.text(), all);
        (copied.copied_from, copied.compared_from) = (17 << 20, Some(17 << 20));
        (copied.compared_bytes, copied.holes_bytes) = (23 << 20, 1 << 19);
        assert_eq!(
            copied.text(),
            "23 MiB copied behind the first 17 MiB, 512 KiB of them holes; compared the \
             last 23 MiB: the same; the first 17 MiB were not read back (1.0 s, 1 MB/s)\n"
        );
        (copied.compared_from, copied.left_out_bytes) = (None, 65);
        let text = copied.text();
        assert!(
            text.contains("; nothing was compared (") && text.contains("last 65 bytes of file:a")
        );
    }
}
