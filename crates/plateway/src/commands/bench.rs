//! `plateway bench`: puts a load on a disk of any kind and says what it did and what it cost.
//!
//! The jobs run on shards of this process, at most one a CPU; a remote disk gets a connection for
//! each job. Warm-up and window are the load's own (`lab::load`); processor time is read at the
//! edges of the window, here by the shards and at the target over its control socket. Where a
//! thread of the bench was busy for more than 90% of the window, the report says that it may have
//! measured itself. Where nothing comes back any more, or a signal comes, it ends with what came.
//! Exit codes: 1 an error, a request that failed or did not come back, or data that were wrong; 130
//! an interruption.

mod filling;
mod job_file;
mod picture;
mod watched;

use std::fmt::{Debug, Display};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::ByteCount;
use indicatif::ProgressBar;
use lab::load::{Arrivals, Load, Looked, Plan, Tally, Verified};
use lab::report::{Counted, CpuPerIo, Grouped, LastWindows, Report, StoodStill, Verify};
use lab::workload::{Order, Sharing, Workload};
use lab::{Guest, Phase, Place, Progress};
use serde::Serialize;

use super::environment::environment;
use super::session::{Interrupt, Opening, Outcome, Session};
use super::settling::{self, Settling};
use super::workload_host::Reading;
use super::{Ended, INTERRUPTED};
use crate::cli::BenchArgs;
use crate::config::defaults::Defaults;
use crate::config::text::Count;
use crate::config::uri::DiskUri;
use crate::control;

use watched::Watched;

/// From here on a thread of the bench may be what limits: the rest goes to waiting between turns.
const BUSY: f64 = 0.9;

/// For how long it is believed that a disk will answer while it is measured ...
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// ... and once nothing new is asked.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Measures.
pub(crate) fn run(args: &BenchArgs) -> miette::Result<()> {
    if let Some(file) = &args.fio {
        return job_file::run(args, file);
    }
    let mut session = open(args)?;
    let Measured { report, tally, stopped } = match measure(&mut session, args) {
        Ok(measured) => measured,
        Err(error) => {
            // It says why nothing was measured; what closing says comes of the same.
            let _ = session.close();
            return Err(error);
        }
    };
    let title = format!("{}: {}, {}", report.disk, report.pattern, ByteCount(args.bs));
    tell(args, &report, &title, &tally)?;
    leave(session, report.gave_up)?;
    match report.is_good() {
        true if stopped => Err(Ended::new(INTERRUPTED, what_was_left(&report, args)).into()),
        true => Ok(()),
        false => Err(miette::miette!(
            "{}",
            what_failed(&report.disk, &report.counted, report.verify.as_ref(), report.gave_up)
        )),
    }
}

/// Prints a report, and writes what goes to files.
fn tell(
    args: &BenchArgs,
    report: &(impl Serialize + Display),
    title: &str,
    tally: &Tally,
) -> miette::Result<()> {
    super::show(args.json, report, || format!("{report}\n"))?;
    if let Some(path) = &args.log {
        write(path, &picture::log(tally))?;
    }
    if let Some(path) = &args.svg {
        let text = picture::draw(title, tally);
        let text = text.map_err(|why| miette::miette!("cannot draw {}: {why}", path.display()))?;
        write(path, &text)?;
    }
    Ok(())
}

/// Closes a session, unless nothing comes back from it.
fn leave(session: Session, gave_up: bool) -> miette::Result<()> {
    match gave_up {
        true => session.abandon(),
        false => session.close()?,
    }
    Ok(())
}

/// An error where a disk may not be written.
fn may_be_written(session: &mut Session, args: &BenchArgs) -> miette::Result<()> {
    if session.volumes()[0].read_only {
        return Err(miette::miette!("{} is read-only", args.disk));
    }
    if !args.overwrite {
        session.refuse_data(0, &args.disk)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> miette::Result<()> {
    std::fs::write(path, text)
        .map_err(|error| miette::miette!("cannot write {}: {error}", path.display()))
}

/// Whether the disk is to be reached through the page cache of this machine; an error of one that has
/// none here.
fn is_cached(args: &BenchArgs) -> miette::Result<bool> {
    match args.disk.innermost() {
        DiskUri::File { .. } | DiskUri::BlockDevice { .. } => Ok(args.cached),
        _ if args.cached => Err(miette::miette!(
            help = "leave --cached out",
            "--cached: expected a file or a device of this machine, seen {}",
            args.disk
        )),
        _ => Ok(false),
    }
}

/// Opens the disk, with shards and queues for the jobs.
fn open(args: &BenchArgs) -> miette::Result<Session> {
    let shards = reactor::allowed_cpus().len().min(args.numjobs as usize).max(1);
    let disk = match &args.disk {
        DiskUri::Remote(uri) => {
            // A connection for each job, and for each connection the job's depth.
            let connections = args.numjobs.div_ceil(shards as u32) as u16;
            DiskUri::Remote(uri.widened(connections, args.iodepth as u16))
        }
        local => local.clone(),
    };
    let measured = u64::from(args.iodepth) * u64::from(args.numjobs) * args.bs.max(4096);
    let filled = if args.fill { u64::from(filling::DEPTH) * filling::BLOCK } else { 0 };
    let in_flight = measured.max(filled);
    Session::open(&Opening {
        disks: &[(disk, !args.rw.writes() && !args.fill)],
        state: None,
        config: args.config.as_deref(),
        cached: is_cached(args)?,
        shards,
        in_flight,
    })
}

/// Measures an open disk.
fn measure(session: &mut Session, args: &BenchArgs) -> miette::Result<Measured> {
    let volume = session.volumes()[0].clone();
    check_size(args, volume.bytes, volume.block_size)?;
    let rest = volume.bytes - args.offset;
    let workload = Workload {
        order: Order::of(args.rw.random),
        read_percent: args.rw.read_percent,
        trim_percent: args.rw.trim_percent,
        block_bytes: args.bs as u32,
        sizes: None,
        sharing: Sharing::Parts,
        offset_bytes: args.offset,
        range_bytes: args.size.map_or(rest, |size| size.min(rest)),
    };
    if args.verify && args.rw.trim_percent > 0 {
        return Err(miette::miette!("--verify: what a trim leaves may be anything"));
    }
    if args.rw.trim_percent > 0 && !volume.discards {
        return Err(miette::miette!("{} takes no trims", args.disk));
    }
    if workload.writes() || args.fill {
        may_be_written(session, args)?;
    }
    let plan = Plan {
        workload,
        jobs: args.numjobs,
        depth: args.iodepth,
        rate: args.rate,
        arrivals: if args.poisson { Arrivals::Poisson } else { Arrivals::Fixed },
        warm_up: args.warmup,
        time: args.steady.map_or(args.time, Settling::time_max),
        bytes_max: None,
        sync: args.sync,
        fsync: args.fsync,
        verify: args.verify,
        whole: false,
        seed: seed(),
        draws: None,
    };
    let interrupt = Interrupt::watch()?;
    if args.fill {
        filling::fill(session, &plan, &interrupt)?;
    }
    let settling = args.steady.map(Settling::new);
    let (shards, whole) = (session.shards(), plan.warm_up + plan.time);
    let shares: Vec<Arc<Progress>> = (0..shards).map(|_| Arc::default()).collect();
    let each = |(index, progress): (usize, &Arc<Progress>)| {
        Load::new(plan.clone(), Place(0), index as u32, shards.into(), progress.clone())
    };
    let loads: Vec<Load> = shares.iter().enumerate().map(each).collect();
    let work = Work { guests: loads, shares: &shares, whole };
    let run = carry(session, work, settling, &interrupt, target(args).as_ref())?;
    let measured = match run.outcome.gave_up {
        true => shares.iter().filter_map(|progress| progress.measured().cloned()).collect(),
        false => {
            let loads = run.outcome.guests.iter();
            loads.map(|load| (load.tally().clone(), *load.verified())).collect()
        }
    };
    Ok(report(session, args, &plan, run, measured))
}

/// What was measured.
struct Measured {
    report: Report,
    tally: Tally,
    /// Whether a signal ended it.
    stopped: bool,
}

/// What is to be carried by the shards.
struct Work<'a, G> {
    /// One for each shard.
    guests: Vec<G>,
    /// What they tell.
    shares: &'a [Arc<Progress>],
    /// How long it takes, for the line.
    whole: Duration,
}

/// What a load came to, with the figures of the target.
struct Run<G> {
    outcome: Outcome<G>,
    target_ns: Option<u64>,
    settling: Option<Settling>,
    watched: Watched,
    stopped: bool,
    /// Nothing came back for a long time while it was measured.
    silent: bool,
}

/// Sends the jobs to the shards and watches them.
fn carry<G: Guest + Debug + Send + 'static>(
    session: &mut Session,
    work: Work<'_, G>,
    mut settling: Option<Settling>,
    interrupted: &Interrupt,
    target: Option<&control::Client>,
) -> miette::Result<Run<G>> {
    let Work { guests, shares, whole } = work;
    let mut line = Line::new(whole);
    let cpu_ns = || Some(target?.status().ok()?.cpu_ns);
    let (mut opened, mut closed) = (None, None);
    let (mut heard, mut silent) = (Heard::default(), false);
    let mut watched = Watched::new(session.watch(Place(0))?);
    let (mut is_open, mut is_closed) = (false, false);
    let outcome = session.run(guests, |reading| {
        if interrupted.is_raised() {
            shares.iter().for_each(|progress| progress.stop());
        }
        let requests = shares.iter().map(|one| one.requests()).sum();
        let phase = reading.map(|reading| reading.phase);
        if let Some(settling) = &mut settling {
            let windows = settling.windows();
            if phase == Some(Phase::Measuring) {
                settling.begin(Instant::now(), requests);
            }
            let is_over = settling.is_over(Instant::now(), requests);
            if settling.windows() > windows {
                shares.iter().for_each(|progress| progress.begin_window());
                watched.edge();
            }
            if is_over {
                shares.iter().for_each(|progress| progress.stop());
            }
        }
        if phase == Some(Phase::Measuring) && !std::mem::replace(&mut is_open, true) {
            opened = cpu_ns();
            if settling.is_none() {
                watched.edge();
            }
        }
        // The last window is over, or that of the only one.
        let is_measured = shares.iter().all(|progress| progress.measured().is_some());
        if is_measured && !std::mem::replace(&mut is_closed, true) {
            closed = cpu_ns();
            if settling.is_none() {
                watched.edge();
            }
        }
        line.tell(shares, reading);
        let silence = heard.silence(requests, reading);
        match is_measured {
            true if silence > DRAIN_MAX => return ControlFlow::Break(()),
            false if silence > SILENCE_MAX && !silent => {
                silent = true;
                shares.iter().for_each(|progress| progress.stop());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    line.end();
    let target_ns = opened.zip(closed).map(|(opened, closed)| closed.saturating_sub(opened));
    let stopped = interrupted.is_raised();
    Ok(Run { outcome, target_ns, settling, watched, stopped, silent })
}

/// When something came back last, or a phase began.
struct Heard {
    requests: u64,
    at: Instant,
}

impl Default for Heard {
    fn default() -> Heard {
        Heard { requests: 0, at: Instant::now() }
    }
}

impl Heard {
    /// For how long nothing came back.
    fn silence(&mut self, requests: u64, reading: Option<&Reading>) -> Duration {
        if requests != self.requests || reading.is_some() {
            *self = Heard { requests, at: Instant::now() };
        }
        self.at.elapsed()
    }
}

/// The report of a load.
fn report(
    session: &Session,
    args: &BenchArgs,
    plan: &Plan,
    run: Run<Load>,
    measured: Vec<(Tally, Verified)>,
) -> Measured {
    let Run { outcome, target_ns, settling, watched, stopped, silent } = run;
    let mut tally = Tally::default();
    let mut verified = Verified::default();
    for (one, checked) in &measured {
        tally.add(one);
        verified.add(checked);
    }
    let range_bytes = plan.range_bytes();
    let counted = Counted::of(&tally);
    let each = |ns: u64| match counted.requests {
        0 => 0.0,
        requests => ns as f64 / 1e3 / requests as f64,
    };
    let cpu_us_per_io = CpuPerIo {
        initiator: each(process_ns(&outcome.readings, session.shards()).unwrap_or(0)),
        target: target_ns.map(each),
    };
    let mut report = Report {
        disk: args.disk.to_string(),
        pattern: args.rw.to_string(),
        block_bytes: plan.workload.block_bytes,
        queue_depth: plan.depth,
        jobs: plan.jobs_carried(),
        shards: session.shards(),
        closed_or_open_loop: if plan.rate.is_some() { "open" } else { "closed" },
        rate: plan.rate,
        poisson: plan.rate.is_some() && plan.arrivals == Arrivals::Poisson,
        sync: plan.sync,
        fsync: plan.fsync,
        offset_bytes: plan.workload.offset_bytes,
        range_bytes,
        seed: plan.seed,
        counted,
        looked: tally.looked,
        steady: settling.map(|settling| settling.report(LastWindows::of(&tally))),
        cpu_us_per_io,
        bench_thread_busy: busy(&used(&outcome.readings, session.shards())),
        stood_still: watched.stood_still(),
        late_ns: watched.late(),
        verify: plan.verify.then(|| Verify::of(&verified)),
        gave_up: outcome.gave_up,
        notes: Vec::new(),
        environment: environment(session.driver()),
    };
    report.notes = notes(&report, &tally, plan, stopped);
    report.notes.extend(blank(&args.disk, args.rw.trims(), tally.looked));
    if silent || outcome.gave_up {
        report.notes.push(gone(&args.disk));
    }
    Measured { report, tally, stopped }
}

/// What to know before believing the figures.
fn notes(report: &Report, tally: &Tally, plan: &Plan, stopped: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if stopped {
        notes.push("it was interrupted: the window is shorter than asked".to_owned());
    } else {
        let why = report.steady.as_ref().and_then(settling::complaint);
        notes.extend(why.map(str::to_owned));
    }
    notes.extend(limit(&report.bench_thread_busy));
    notes.extend(report.stood_still.and_then(StoodStill::note));
    notes.extend(of_load(plan, tally));
    if let Some(verify) = &report.verify
        && (verify.checked, verify.wrong) == (0, 0)
    {
        notes.push("nothing could be checked: write with --verify first".to_owned());
    }
    notes
}

/// What to know of a load that did not do all that its plan says.
fn of_load(plan: &Plan, tally: &Tally) -> Vec<String> {
    let mut notes = Vec::new();
    let seconds = tally.window().as_secs_f64();
    let due = plan.rate.unwrap_or(0) as f64 * seconds;
    // What comes by chance may be so many fewer by chance.
    let chance = if plan.arrivals == Arrivals::Poisson { 3.0 * due.sqrt() } else { 0.0 };
    if let Some(rate) = plan.rate
        && (tally.requests() as f64) < due * 0.99 - chance
    {
        notes.push(format!("the disk did not keep up with {} a second", Grouped(rate)));
    }
    if tally.stalls > 0 && !plan.verify {
        notes
            .push("memory was short at times: fewer requests were in flight than asked".to_owned());
    }
    if plan.range_bytes() < plan.workload.range_bytes {
        notes.push(format!(
            "only the first {} were used, as verifying keeps a record of each block",
            ByteCount(plan.range_bytes())
        ));
    }
    notes
}

/// What to know of reads that found nothing, on a disk that keeps something. What the load itself
/// trims reads as nothing.
fn blank(disk: &DiskUri, trims: bool, looked: Looked) -> Option<String> {
    let Looked { reads, zeros } = looked;
    let keeps = !trims && !matches!(disk.innermost(), DiskUri::Null { .. });
    (zeros > 0 && keeps).then(|| {
        format!(
            "{zeros} of {reads} reads that were looked at found nothing but zeros: what nobody wrote may be read without the disk (--fill writes it first)"
        )
    })
}

/// What to know of a disk that went silent.
fn gone(disk: &DiskUri) -> String {
    format!("{disk} did not answer any more: what came back until then is told")
}

/// Whether a thread of the bench may have been what limits.
fn limit(busy: &[f64]) -> Option<String> {
    let percent = busy.iter().copied().fold(0.0, f64::max) * 100.0;
    (percent > BUSY * 100.0).then(|| {
        format!(
            "a thread of the bench was busy for {percent:.0}% of the window: the bench itself was the limit"
        )
    })
}

/// Why the exit code is 130.
fn what_was_left(report: &Report, args: &BenchArgs) -> String {
    let (seconds, wanted) = (report.counted.seconds, args.time.as_secs_f64());
    match args.steady {
        Some(_) => format!("interrupted before it was steady: {seconds:.1} s were measured"),
        None => format!("interrupted: {seconds:.1} s of {wanted:.1} s were measured"),
    }
}

/// Why the exit code is 1.
fn what_failed(disk: &str, counted: &Counted, verify: Option<&Verify>, gave_up: bool) -> String {
    let wrong = verify.filter(|verify| verify.wrong > 0);
    if gave_up && wrong.is_none() {
        return format!("{disk} did not answer any more");
    }
    let requests = Count(counted.errors, "request");
    match (wrong, &counted.first_error) {
        (Some(verify), _) => {
            let first = verify.first.as_deref().unwrap_or("unknown");
            let were = if verify.wrong == 1 { "was" } else { "were" };
            format!("{} {were} wrong; first at {first}", Count(verify.wrong, "block"))
        }
        (None, Some(first)) => format!("{requests} failed; first: {first}"),
        (None, None) => format!("{requests} failed"),
    }
}

/// Processor time of this process, from when the first shard began to count to when the last one's
/// window was over.
fn process_ns(readings: &[Reading], shards: u16) -> Option<u64> {
    let windows: Vec<_> = (0..shards).filter_map(|shard| window(readings, shard)).collect();
    let from = windows.iter().map(|(from, _)| from).min_by_key(|from| from.now)?;
    let to = windows.iter().map(|(_, to)| to).max_by_key(|to| to.now)?;
    Some(to.process_ns.saturating_sub(from.process_ns))
}

/// What each shard's thread used in its window, and how long that was, in nanoseconds; nothing of one
/// that never counted.
fn used(readings: &[Reading], shards: u16) -> Vec<(u64, u64)> {
    let each = |shard| {
        let (from, to) = window(readings, shard)?;
        let time = to.now.since(from.now).as_nanos() as u64;
        Some((to.thread_ns.saturating_sub(from.thread_ns), time))
    };
    (0..shards).map(|shard| each(shard).unwrap_or_default()).collect()
}

/// The same of one CPU, of those that counted.
fn busy(used: &[(u64, u64)]) -> Vec<f64> {
    let counted = used.iter().filter(|(_, time)| *time > 0);
    counted.map(|(used, time)| (*used as f64 / *time as f64 * 1e3).round() / 1e3).collect()
}

/// What a shard read at the edges of its window.
fn window(readings: &[Reading], shard: u16) -> Option<(Reading, Reading)> {
    let mut own = readings.iter().filter(|reading| reading.shard.0 == shard);
    let from = own.by_ref().find(|reading| reading.phase == Phase::Measuring)?;
    let to = own.next()?;
    Some((*from, *to))
}

/// Who tells the processor time of the target: the server behind `--control`, or on this machine's
/// usual socket if it listens where the disk is.
fn target(args: &BenchArgs) -> Option<control::Client> {
    if let Some(named) = &args.control {
        let client = control::Client::new(named);
        let told = client.status();
        let told = told.inspect_err(|error| {
            let words = format!("{error}: its processor time is not counted");
            crate::log::Event::warn(words).tell();
        });
        return told.is_ok().then_some(client);
    }
    let DiskUri::Remote(uri) = args.disk.innermost() else { return None };
    let wanted = uri.listener()?.to_string();
    let client = control::Client::new(&Defaults::of_this_machine().control);
    let status = client.status().ok()?;
    let listens = status.listeners.iter().any(|one| one.addresses.contains(&wanted));
    listens.then_some(client)
}

fn check_size(args: &BenchArgs, bytes: u64, block_size: u32) -> miette::Result<()> {
    if !args.bs.is_multiple_of(u64::from(block_size)) {
        return Err(miette::miette!(
            "--bs {}: expected a multiple of {block_size}, the block size of {}",
            args.bs,
            args.disk
        ));
    }
    if !args.offset.is_multiple_of(args.bs) {
        return Err(miette::miette!(
            "--offset {}: expected a multiple of --bs, which is {}",
            args.offset,
            args.bs
        ));
    }
    let rest = bytes.saturating_sub(args.offset).min(args.size.unwrap_or(u64::MAX));
    if rest < args.bs {
        return Err(miette::miette!(
            "{} has {}: expected at least one request of {}, seen {} from offset {} on",
            args.disk,
            ByteCount(bytes),
            ByteCount(args.bs),
            ByteCount(rest),
            args.offset
        ));
    }
    Ok(())
}

/// Different at each run: data of two runs must not be alike.
pub(super) fn seed() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = time.map_or(0, |time| time.as_nanos() as u64);
    block::Random::new(nanos ^ u64::from(std::process::id()) << 48).next_u64()
}

/// The progress line on a terminal; nothing elsewhere.
struct Line {
    bar: ProgressBar,
    last: (Instant, u64, u64),
    rate: (f64, f64),
    word: &'static str,
}

impl Line {
    fn new(whole: Duration) -> Line {
        let whole = whole.as_millis() as u64;
        let bar = super::progress_bar(whole, "{bar:24} {msg}");
        Line { bar, last: (Instant::now(), 0, 0), rate: (0.0, 0.0), word: "begins" }
    }

    fn tell(&mut self, shares: &[Arc<Progress>], reading: Option<&Reading>) {
        if let Some(reading) = reading {
            self.word = match reading.phase {
                Phase::New | Phase::Warming => "warming up",
                Phase::Measuring => "measuring",
                Phase::Draining => "draining",
                Phase::Verifying => "reading back",
                Phase::Done => "done",
            };
        }
        if self.bar.is_hidden() {
            return;
        }
        let (then, requests, bytes) = self.last;
        let seconds = then.elapsed().as_secs_f64();
        if seconds >= 1.0 {
            let sum = |of: fn(&Progress) -> u64| shares.iter().map(|one| of(one)).sum::<u64>();
            let now = (sum(Progress::requests), sum(Progress::bytes));
            self.rate = ((now.0 - requests) as f64 / seconds, (now.1 - bytes) as f64 / seconds);
            self.last = (Instant::now(), now.0, now.1);
        }
        let iops = Grouped(self.rate.0 as u64);
        let now = self.bar.elapsed().as_millis() as u64;
        self.bar.set_position(now.min(self.bar.length().unwrap_or(now)));
        self.bar.set_message(format!("{}  {iops} IOPS  {:.1} MB/s", self.word, self.rate.1 / 1e6));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
