//! `--fio`: the jobs of a job file, on the disk of the command line.
//!
//! The file is read and understood first (`lab::fio`), then the disk is opened for all its jobs. Stages
//! run one after the other; in one, each shard carries its clones of every job ([`Several`]). A disk that
//! holds data is refused as ever, if any job writes. Each job is told, and all together. Errors: mistakes
//! of the file at their lines; those of any bench. A file has at most 1 MiB, and only a regular one is
//! read: another may never end, or keep who opens it.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::ByteCount;
use lab::fio::{Disk, Job, JobFile, Ready};
use lab::load::{Arrivals, Load, Several, Tally, Verified};
use lab::report::{Counted, CpuPerIo, JobReport, JobsReport, Verify};
use lab::workload::Order;
use lab::{Place, Progress};

use super::super::environment::environment;
use super::super::session::{Interrupt, Opening, Session};
use super::{
    Run, Work, blank, busy, carry, filling, gone, leave, limit, may_be_written, of_load,
    process_ns, target, tell, used, what_failed,
};
use crate::cli::BenchArgs;
use crate::commands::{Ended, INTERRUPTED};
use crate::config::uri::DiskUri;
use crate::control;

const FILE_BYTES_MAX: u64 = 1 << 20;

/// Measures what a job file asks for.
pub(super) fn run(args: &BenchArgs, path: &Path) -> miette::Result<()> {
    let text = read(path)?;
    let variable = |name: &str| std::env::var(name).ok();
    let file = JobFile::parse(&path.display().to_string(), &text, variable)
        .map_err(|mistakes| miette::miette!("{mistakes}"))?;
    let mut session = open(args, &file)?;
    let measured = match measure(&mut session, args, path, &file) {
        Ok(measured) => measured,
        Err(error) => {
            // It says why nothing was measured; what closing says comes of the same.
            let _ = session.close();
            return Err(error);
        }
    };
    let Measured { report, tally, stopped } = measured;
    tell(args, &report, &format!("{}: {}", report.disk, report.job_file), &tally)?;
    leave(session, report.gave_up)?;
    match report.is_good() {
        true if stopped => {
            let seconds = report.counted.seconds;
            let words = format!("interrupted: {seconds:.1} s were measured");
            Err(Ended::new(INTERRUPTED, words).into())
        }
        true => Ok(()),
        false => {
            let JobsReport { disk, counted, verify, gave_up, .. } = &report;
            Err(miette::miette!("{}", what_failed(disk, counted, verify.as_ref(), *gave_up)))
        }
    }
}

/// The text of a job file.
fn read(path: &Path) -> miette::Result<String> {
    let cannot = |error| miette::miette!("cannot read the job file {}: {error}", path.display());
    // A pipe is opened at once, whether or not anybody writes.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(nonblocking).open(path).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(miette::miette!(
            "{}: expected a job file, seen what is no regular file",
            path.display()
        ));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(miette::miette!(
            "{}: expected a job file of at most {}, seen more",
            path.display(),
            ByteCount(FILE_BYTES_MAX)
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        miette::miette!("{}:{line}: expected UTF-8, seen something else", path.display())
    })
}

/// The jobs of each stage, by their places in the file.
fn stages(file: &JobFile) -> Vec<Vec<usize>> {
    let mut stages = vec![Vec::new(); file.stages()];
    for (index, job) in file.jobs().iter().enumerate() {
        stages[job.stage].push(index);
    }
    stages
}

/// Opens the disk, for the most that a stage asks of it.
fn open(args: &BenchArgs, file: &JobFile) -> miette::Result<Session> {
    let jobs = file.jobs();
    let most = |of: &dyn Fn(&Job) -> u64| {
        let sum = |stage: Vec<usize>| stage.into_iter().map(|job| of(&jobs[job])).sum::<u64>();
        stages(file).into_iter().map(sum).max().unwrap_or(0)
    };
    let clones = most(&|job| u64::from(job.numjobs)) as usize;
    let shards = reactor::allowed_cpus().len().min(clones).max(1);
    let disk = match &args.disk {
        DiskUri::Remote(uri) => {
            let depth = jobs.iter().map(|job| job.iodepth).max().unwrap_or(1);
            DiskUri::Remote(uri.widened(clones.div_ceil(shards) as u16, depth as u16))
        }
        local => local.clone(),
    };
    let measured = shards as u64 * shard_bytes_max(file, shards);
    let filled = if args.fill { u64::from(filling::DEPTH) * filling::BLOCK } else { 0 };
    let writes = args.fill || jobs.iter().any(|job| job.pattern.writes());
    Session::open(&Opening {
        disks: &[(disk, !writes)],
        state: None,
        config: args.config.as_deref(),
        cached: super::is_cached(args)?,
        shards,
        in_flight: measured.max(filled),
    })
}

/// The most that the clones of a stage have in flight on one shard; a shard has its part of the memory
/// whether or not others need theirs.
fn shard_bytes_max(file: &JobFile, shards: usize) -> u64 {
    let mut most = 0;
    for stage in stages(file) {
        let mut needs = vec![0; shards];
        let jobs = stage.into_iter().map(|job| &file.jobs()[job]);
        let clones = jobs.flat_map(|job| (0..job.numjobs).map(move |_| job));
        for (place, job) in clones.enumerate() {
            let request_bytes = u64::from(job.request_bytes_max().max(4096));
            needs[place % shards] += u64::from(job.iodepth) * request_bytes;
        }
        most = needs.into_iter().fold(most, u64::max);
    }
    most
}

/// What was measured.
struct Measured {
    report: JobsReport,
    tally: Tally,
    /// Whether a signal ended it.
    stopped: bool,
}

/// What all stages came to.
#[derive(Default)]
struct Sum {
    by_job: Vec<JobReport>,
    tally: Tally,
    verified: Verified,
    /// Processor time of this process, and of the target where it is told of all stages.
    process_ns: u64,
    target_ns: Option<u64>,
    /// Of each shard, what its thread used and how long it counted.
    used: Vec<(u64, u64)>,
    notes: Vec<String>,
    stopped: bool,
    /// Nothing came back for a long time, and whether anything did in the end.
    silent: bool,
    gave_up: bool,
}

/// Runs the stages on an open disk.
fn measure(
    session: &mut Session,
    args: &BenchArgs,
    path: &Path,
    file: &JobFile,
) -> miette::Result<Measured> {
    let volume = session.volumes()[0].clone();
    let seed = super::seed();
    let disk = Disk {
        bytes: volume.bytes,
        block_bytes: volume.block_size,
        discards: volume.discards,
        seed,
    };
    let ready = file.on(&disk).map_err(|mistakes| miette::miette!("{mistakes}"))?;
    if args.fill && file.jobs().iter().any(|job| job.verify) {
        return Err(miette::miette!("--fill: what a job verifies is written by jobs"));
    }
    if args.fill || file.jobs().iter().any(|job| job.pattern.writes()) {
        may_be_written(session, args)?;
    }
    let interrupt = Interrupt::watch()?;
    if args.fill {
        for (from, to) in ranges(&ready) {
            filling::fill_range(session, from, to - from, seed, &interrupt)?;
        }
    }
    let target = target(args);
    let mut sum = Sum { notes: file.notes().to_vec(), target_ns: Some(0), ..Sum::default() };
    for stage in stages(file) {
        let names = Names { jobs: file.jobs(), ready: &ready };
        run_stage(session, (args, target.as_ref()), &names, &stage, &interrupt, &mut sum)?;
        if sum.stopped || sum.silent || sum.gave_up {
            break;
        }
    }
    let missing = file.jobs().len() - sum.by_job.len();
    if missing > 0 {
        sum.notes.push(format!("{missing} of {} jobs did not run any more", file.jobs().len()));
    }
    Ok(report(session, args, path, file, seed, sum))
}

/// Bytes that jobs touch, each once.
fn ranges(ready: &[Ready]) -> Vec<(u64, u64)> {
    let mut extents: Vec<(u64, u64)> = ready.iter().flat_map(|one| one.ranges.clone()).collect();
    extents.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (from, to) in extents {
        match ranges.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => ranges.push((from, to)),
        }
    }
    ranges
}

/// The jobs of a file, as they are written and as they are on the disk.
struct Names<'a> {
    jobs: &'a [Job],
    ready: &'a [Ready],
}

/// The loads of a stage: of each shard those that have a clone there, with the places of their jobs in
/// the stage, and what all of them tell.
struct Spread {
    guests: Vec<Vec<Load>>,
    places: Vec<Vec<usize>>,
    shares: Vec<(usize, Arc<Progress>)>,
}

impl Spread {
    /// Clones of all jobs go round the shards together.
    fn of(names: &Names<'_>, stage: &[usize], shards: usize) -> Spread {
        let (mut guests, mut places) = (Vec::new(), Vec::new());
        guests.resize_with(shards, Vec::new);
        places.resize_with(shards, Vec::new);
        let mut spread = Spread { guests, places, shares: Vec::new() };
        let mut before = 0;
        for (place, &job) in stage.iter().enumerate() {
            let plan = &names.ready[job].plan;
            let clones = plan.jobs_carried() as usize;
            for shard in 0..shards {
                let first = (shard + shards - before % shards) % shards;
                if first >= clones {
                    continue;
                }
                let progress: Arc<Progress> = Arc::default();
                spread.shares.push((place, progress.clone()));
                spread.places[shard].push(place);
                let load = Load::new(plan.clone(), Place(0), first as u32, shards, progress);
                spread.guests[shard].push(load);
            }
            before += clones;
        }
        spread
    }
}

/// Runs the jobs of a stage at the same time, and adds what they came to.
fn run_stage(
    session: &mut Session,
    (args, target): (&BenchArgs, Option<&control::Client>),
    names: &Names<'_>,
    stage: &[usize],
    interrupt: &Interrupt,
    sum: &mut Sum,
) -> miette::Result<()> {
    let Spread { guests, places, shares } = Spread::of(names, stage, usize::from(session.shards()));
    let whole = stage.iter().map(|job| names.jobs[*job].time_max()).max().unwrap_or_default();
    let guests = guests.into_iter().map(Several::new).collect();
    let told: Vec<Arc<Progress>> = shares.iter().map(|(_, progress)| progress.clone()).collect();
    let work = Work { guests, shares: &told, whole };
    let run = carry(session, work, None, interrupt, target)?;
    let mut together = Tally::default();
    let mut windows = Vec::new();
    for (place, &job) in stage.iter().enumerate() {
        let (tally, verified) = of_job(&run, &shares, &places, place);
        together.add(&tally);
        windows.push(tally.window());
        sum.verified.add(&verified);
        sum.by_job.push(job_report(&names.jobs[job], &names.ready[job], &tally, &verified));
        sum.notes.extend(notes(&names.jobs[job], &names.ready[job], &tally, run.stopped));
    }
    sum.tally.follow(&together);
    add_run(session, &windows, &run, sum);
    if run.silent || run.outcome.gave_up {
        sum.notes.push(gone(&args.disk));
    }
    Ok(())
}

/// What a job of a stage counted, by its place there.
fn of_job(
    run: &Run<Several>,
    shares: &[(usize, Arc<Progress>)],
    places: &[Vec<usize>],
    place: usize,
) -> (Tally, Verified) {
    let (mut tally, mut verified) = (Tally::default(), Verified::default());
    let mut add = |one: &Tally, checked: &Verified| {
        tally.add(one);
        verified.add(checked);
    };
    match run.outcome.gave_up {
        true => {
            let own = shares.iter().filter(|(of, _)| *of == place);
            let measured = own.filter_map(|(_, progress)| progress.measured());
            measured.for_each(|(one, checked)| add(one, checked));
        }
        false => {
            for (guest, places) in run.outcome.guests.iter().zip(places) {
                let loads = guest.loads().iter().zip(places).filter(|(_, of)| **of == place);
                loads.for_each(|(load, _)| add(load.tally(), load.verified()));
            }
        }
    }
    (tally, verified)
}

/// Adds what a stage cost, and how it ended; its jobs counted for so long.
fn add_run(session: &Session, windows: &[Duration], run: &Run<Several>, sum: &mut Sum) {
    let readings = &run.outcome.readings;
    sum.process_ns += process_ns(readings, session.shards()).unwrap_or(0);
    sum.target_ns = sum.target_ns.zip(run.target_ns).map(|(all, own)| all + own);
    sum.used.resize(session.shards().into(), (0, 0));
    for (all, own) in sum.used.iter_mut().zip(used(readings, session.shards())) {
        *all = (all.0 + own.0, all.1 + own.1);
    }
    sum.stopped |= run.stopped;
    sum.silent |= run.silent;
    sum.gave_up |= run.outcome.gave_up;
    let (least, most) = (windows.iter().min(), windows.iter().max());
    if let (Some(least), Some(most)) = (least, most)
        && least.as_secs_f64() < most.as_secs_f64() * 0.9
    {
        let words = "jobs that ran at the same time counted for different times: processor time is that of all of it, by the requests that counted";
        sum.notes.push(words.to_owned());
    }
}

fn job_report(job: &Job, ready: &Ready, tally: &Tally, verified: &Verified) -> JobReport {
    let plan = &ready.plan;
    let zipf = match plan.workload.order {
        Order::Zipf(theta) => Some(theta),
        Order::Sequential | Order::Random | Order::Shuffled => None,
    };
    JobReport {
        name: job.name.clone(),
        stage: job.stage as u32,
        pattern: job.pattern.to_string(),
        sizes: job.sizes_text(),
        block_bytes: job.block(),
        zipf,
        queue_depth: plan.depth,
        jobs: plan.jobs_carried(),
        closed_or_open_loop: if plan.rate.is_some() { "open" } else { "closed" },
        rate: plan.rate,
        poisson: plan.rate.is_some() && plan.arrivals == Arrivals::Poisson,
        sync: plan.sync,
        fsync: plan.fsync,
        offset_bytes: plan.workload.offset_bytes,
        range_bytes: plan.range_bytes(),
        counted: Counted::of(tally),
        verify: plan.verify.then(|| Verify::of(verified)),
    }
}

/// What to know before believing the figures of a job.
fn notes(job: &Job, ready: &Ready, tally: &Tally, stopped: bool) -> Vec<String> {
    let mut notes = of_load(&ready.plan, tally);
    if tally.window() == Duration::ZERO && !stopped {
        notes.push("all of it was asked for before ramp_time was over".to_owned());
    }
    notes.into_iter().map(|note| format!("{}: {note}", job.name)).collect()
}

/// The report of all jobs.
fn report(
    session: &Session,
    args: &BenchArgs,
    path: &Path,
    file: &JobFile,
    seed: u64,
    sum: Sum,
) -> Measured {
    let Sum { by_job, tally, verified, used, mut notes, stopped, gave_up, .. } = sum;
    let busy = busy(&used);
    let counted = Counted::of(&tally);
    let each = |ns: u64| match counted.requests {
        0 => 0.0,
        requests => ns as f64 / 1e3 / requests as f64,
    };
    if stopped {
        notes.push("it was interrupted: windows are shorter than asked".to_owned());
    }
    notes.extend(limit(&busy));
    let trims = file.jobs().iter().any(|job| job.pattern.trims());
    notes.extend(blank(&args.disk, trims, tally.looked));
    let cpu_us_per_io =
        CpuPerIo { initiator: each(sum.process_ns), target: sum.target_ns.map(each) };
    let report = JobsReport {
        disk: args.disk.to_string(),
        job_file: path.display().to_string(),
        jobs: by_job.iter().map(|job| job.jobs).sum(),
        stages: file.stages() as u32,
        shards: session.shards(),
        seed,
        verify: by_job.iter().any(|job| job.verify.is_some()).then(|| Verify::of(&verified)),
        by_job,
        cpu_us_per_io,
        bench_thread_busy: busy,
        gave_up,
        notes,
        environment: environment(session.driver()),
        looked: tally.looked,
        counted,
    };
    Measured { report, tally, stopped }
}
