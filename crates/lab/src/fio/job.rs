//! From what sections say to jobs: defaults, what follows from several keys, and which stage a job is
//! in. Nothing here knows the disk.
//!
//! `[global]` holds for the jobs below it, and several add up. Errors: keys that contradict each other,
//! no job, too many. What fio would do otherwise is noted, at its line.

use std::collections::BTreeMap;
use std::time::Duration;

use block::Random;

use super::JOBS_MAX;
use super::keys::Given;
use super::text::Section;
use super::values::{Amount, TIME_MAX, Value};
use crate::load::Arrivals;
use crate::mistake::{Mistake, Span};
use crate::words::Pattern;
use crate::workload::{Kind, Order};

/// What is said of a file, where that stands in its bytes.
pub(super) type Notes = Vec<(usize, String)>;

/// A section of a job file, understood.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: String,
    /// Which stage it is in, from 0 on.
    pub stage: usize,
    pub pattern: Pattern,
    pub(super) order: Order,
    /// Sizes with percentages, of reads, writes and trims.
    pub(super) sizes: [Vec<(u32, u8)>; 3],
    pub iodepth: u32,
    /// How many do the same.
    pub numjobs: u32,
    pub(super) offset: Option<(Amount, Span)>,
    pub(super) offset_increment: Option<(Amount, Span)>,
    pub(super) size: Option<(Amount, Span)>,
    pub(super) io_size: Option<u64>,
    pub(super) loops: u64,
    /// How long it runs at most.
    pub runtime: Option<Duration>,
    /// Whether it runs until that is over.
    pub time_based: bool,
    pub ramp_time: Duration,
    /// Requests a second of each clone.
    pub(super) rate: Option<u64>,
    pub(super) arrivals: Arrivals,
    pub sync: bool,
    pub(super) fsync: Option<u32>,
    pub verify: bool,
    /// What is drawn, where that is to be the same each time.
    pub(super) draws: Option<u64>,
    /// Where mistakes of it are told: its name, its pattern, its sizes.
    pub(super) span: Span,
    pub(super) rw_span: Span,
    pub(super) sizes_span: Span,
}

/// What holds for a job: its own keys before those of `[global]`.
struct Settings<'s> {
    section: &'s Section,
    /// Keys whose values were refused somewhere: nobody misses them.
    refused: &'s [&'static str],
    given: BTreeMap<&'static str, Given>,
}

/// Every job of the sections.
pub(super) fn jobs(
    sections: &[Section],
    mistakes: &mut Vec<Mistake>,
    notes: &mut Notes,
) -> Vec<Job> {
    let mut global: BTreeMap<&'static str, Given> = BTreeMap::new();
    let refused: Vec<&str> = sections.iter().flat_map(|one| one.refused.clone()).collect();
    let (mut jobs, mut stage): (Vec<Job>, usize) = (Vec::new(), 0);
    for section in sections {
        let mut given = global.clone();
        for (key, own) in &section.given {
            match *key {
                "rwmixread" => given.remove("rwmixwrite"),
                "rwmixwrite" => given.remove("rwmixread"),
                _ => None,
            };
            given.insert(key, own.clone());
        }
        if section.is_global {
            global = given;
            continue;
        }
        let settings = Settings { section, refused: &refused, given };
        if settings.flag("stonewall") && !jobs.is_empty() {
            stage += 1;
        }
        if jobs.len() == JOBS_MAX {
            let message = format!("expected at most {JOBS_MAX} jobs, seen one more");
            mistakes.push(Mistake::at(&section.span, message).help("numjobs makes clones of one"));
            break;
        }
        jobs.push(settings.job(stage, jobs.len(), mistakes, notes));
    }
    if jobs.is_empty() && mistakes.is_empty() {
        let help = "write its name in brackets, as in [job], and its keys below";
        mistakes.push(Mistake::at(&(0..0), "the file has no job").help(help));
    }
    crowds(&jobs, mistakes);
    filenames(sections, mistakes, notes);
    jobs
}

/// Refuses stages of more clones than one can have.
fn crowds(jobs: &[Job], mistakes: &mut Vec<Mistake>) {
    let (mut stage, mut clones) = (0, 0);
    for job in jobs {
        clones = if job.stage == stage { clones } else { 0 };
        stage = job.stage;
        let before = clones;
        clones += job.numjobs as usize;
        if clones > JOBS_MAX && before <= JOBS_MAX {
            let message = format!(
                "expected at most {JOBS_MAX} jobs at the same time, clones included, seen {clones} with this one"
            );
            mistakes.push(Mistake::at(&job.span, message).help("let it wait, with stonewall"));
        }
    }
}

/// A file may name the disk that fio would take, if it is one.
fn filenames(sections: &[Section], mistakes: &mut Vec<Mistake>, notes: &mut Notes) {
    let mut first: Option<(&str, &Span)> = None;
    for given in sections.iter().filter_map(|section| section.given.get("filename")) {
        let Value::Text(name) = &given.value else { continue };
        match first {
            None => first = Some((name, &given.span)),
            Some((other, _)) if other == name => {}
            Some((_, span)) => {
                let message =
                    format!("filename: expected one disk for all jobs, seen {name:?} as well");
                let help = "a file for each disk, and a bench for each";
                mistakes.push(Mistake::at(&given.span, message).help(help).first(span));
            }
        }
    }
    if let Some((name, span)) = first {
        let words =
            format!("filename={name} is not opened: the disk is the one of the command line");
        notes.push((span.start, words));
    }
}

impl Settings<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        self.given.get(key).map(|given| &given.value)
    }

    /// Where a key has its value; without it, where the job has its name.
    fn span(&self, key: &str) -> &Span {
        self.given.get(key).map_or(&self.section.span, |given| &given.span)
    }

    fn number(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn flag(&self, key: &str) -> bool {
        self.value(key) == Some(&Value::Flag(true))
    }

    fn time(&self, key: &str) -> Duration {
        match self.value(key) {
            Some(Value::Time(time)) => *time,
            _ => Duration::ZERO,
        }
    }

    fn amount(&self, key: &str) -> Option<(Amount, Span)> {
        match self.value(key)? {
            Value::Amount(Amount::Bytes(0) | Amount::Percent(0)) => None,
            Value::Amount(amount) => Some((*amount, self.span(key).clone())),
            _ => None,
        }
    }

    fn job(
        &self,
        stage: usize,
        index: usize,
        mistakes: &mut Vec<Mistake>,
        notes: &mut Notes,
    ) -> Job {
        let sizes = self.sizes();
        let (pattern, rate) = self.pattern(mistakes, notes);
        let numjobs = self.number("numjobs").unwrap_or(1) as u32;
        let name = match self.value("name") {
            Some(Value::Text(name)) => name,
            _ => &self.section.name,
        };
        let split = if self.given.contains_key("bssplit") { "bssplit" } else { "bs" };
        let job = Job {
            name: name.clone(),
            stage,
            pattern,
            order: self.order(pattern, &sizes, mistakes, notes),
            iodepth: self.depth(notes),
            numjobs,
            offset: self.amount("offset"),
            offset_increment: self.amount("offset_increment").filter(|_| numjobs > 1),
            size: self.amount("size"),
            io_size: self.io_size(mistakes),
            loops: self.number("loops").unwrap_or(1).max(1),
            runtime: Some(self.time("runtime")).filter(|time| !time.is_zero()),
            time_based: self.flag("time_based"),
            ramp_time: self.time("ramp_time"),
            rate,
            arrivals: if self.flag("rate_process") { Arrivals::Poisson } else { Arrivals::Fixed },
            sync: self.flag("sync"),
            fsync: self.fsync(mistakes),
            verify: self.flag("verify"),
            draws: self.draws(index),
            span: self.section.span.clone(),
            rw_span: self.span("rw").clone(),
            sizes_span: self.span(split).clone(),
            sizes,
        };
        self.check(&job, mistakes, notes);
        job
    }

    /// What must hold of several keys together.
    fn check(&self, job: &Job, mistakes: &mut Vec<Mistake>, notes: &mut Notes) {
        let lacks = |key: &str| !self.refused.contains(&key);
        if job.time_based && job.runtime.is_none() && lacks("runtime") {
            let span = self.span("time_based");
            mistakes.push(
                Mistake::at(span, "time_based: expected a runtime as well, seen none")
                    .help("add runtime=..."),
            );
        }
        if job.offset_increment.is_some() && job.size.is_none() && lacks("size") {
            let message = "offset_increment: expected a size beside it, seen none";
            mistakes.push(Mistake::at(self.span("offset_increment"), message).help("add size=..."));
        }
        if self.flag("rate_process") && job.rate.is_none() && lacks("rate_iops") {
            let message = "rate_process: expected a rate_iops beside it, seen none";
            mistakes.push(Mistake::at(self.span("rate_process"), message));
        }
        if !job.verify {
            return;
        }
        let span = self.span("verify");
        if job.pattern.trim_percent > 0 {
            mistakes.push(Mistake::at(span, "verify: what a trim leaves may be anything"));
        }
        if job.block().is_none() {
            let message = "verify: expected requests of one size, seen several: a record is kept of each block";
            mistakes.push(
                Mistake::at(span, message).help("a job for each size, on a range of its own"),
            );
        }
        if job.numjobs > 1 && job.offset_increment.is_none() {
            let words = "with verify each clone has a part of the range of its own, where fio's share all of it";
            notes.push((span.start, words.to_owned()));
        }
    }

    fn sizes(&self) -> [Vec<(u32, u8)>; 3] {
        if let Some(Value::Splits(splits)) = self.value("bssplit") {
            return splits.clone();
        }
        let each = match self.value("bs") {
            Some(Value::Each(each)) => *each,
            _ => [None; 3],
        };
        each.map(|bytes| vec![(bytes.unwrap_or(4096) as u32, 100)])
    }

    /// What it does, and the rate of a clone.
    fn pattern(&self, mistakes: &mut Vec<Mistake>, notes: &mut Notes) -> (Pattern, Option<u64>) {
        let pattern = match self.value("rw") {
            Some(Value::Rw(pattern)) => *pattern,
            _ => Pattern { random: false, read_percent: 100, trim_percent: 0 },
        };
        let rates = match self.value("rate_iops") {
            Some(Value::Each(rates)) => rates.map(|rate| rate.filter(|rate| *rate > 0)),
            _ => [None; 3],
        };
        let [reads, writes, trims] = rates;
        match (pattern.read_percent, pattern.trim_percent) {
            (100, _) => return (pattern, reads),
            (_, 100) => return (pattern, trims),
            (0, 0) => return (pattern, writes),
            _ => {}
        }
        let span = self.span("rate_iops");
        if !pattern.random {
            let words =
                "reads and writes go on from one place together, where fio has a place for each";
            notes.push((self.span("rw").start, words.to_owned()));
        }
        let asked = self.number("rwmixread").or(self.number("rwmixwrite").map(|share| 100 - share));
        let mix = |read_percent: u64| Pattern { read_percent: read_percent as u8, ..pattern };
        match (reads, writes) {
            (None, None) => (mix(asked.unwrap_or(50)), None),
            (Some(reads), Some(writes)) => {
                let (share, sum) = (reads * 100, reads + writes);
                if !share.is_multiple_of(sum) {
                    let message = format!(
                        "rate_iops: expected reads to be a whole percentage of a mix, seen {reads} of {sum} a second"
                    );
                    mistakes.push(Mistake::at(span, message));
                }
                let share = share / sum;
                if asked.is_some_and(|asked| asked != share) {
                    let words = format!(
                        "each kind has its rate, whatever its share of the mix, as in fio: {share}% of requests read"
                    );
                    notes.push((span.start, words));
                }
                (mix(share), Some(sum))
            }
            _ => {
                let message =
                    "rate_iops: expected a rate of reads and of writes, or none, as a mix has both";
                mistakes.push(Mistake::at(span, message));
                (mix(asked.unwrap_or(50)), None)
            }
        }
    }

    fn order(
        &self,
        pattern: Pattern,
        sizes: &[Vec<(u32, u8)>; 3],
        mistakes: &mut Vec<Mistake>,
        notes: &mut Notes,
    ) -> Order {
        if !pattern.random {
            return Order::Sequential;
        }
        let used = used(pattern).map(|kind| &sizes[kind as usize]);
        if let Some(Value::Distribution(Some(theta))) = self.value("random_distribution") {
            let mut least = used.map(|split| split.iter().map(|(bytes, _)| *bytes).min());
            let first = least.next();
            if least.any(|other| Some(other) != first) {
                let message = "zipf: expected the smallest reads, writes and trims to be of one size, seen several";
                mistakes.push(Mistake::at(self.span("random_distribution"), message));
            }
            return Order::Zipf(*theta);
        }
        let mut sizes = used.flatten().map(|(bytes, _)| *bytes);
        let first = sizes.next();
        match (self.flag("norandommap"), sizes.any(|other| Some(other) != first)) {
            (true, _) => Order::Random,
            (false, false) => Order::Shuffled,
            (false, true) => {
                let words = "requests of several sizes are drawn as with norandommap: fio cuts those that would meet a block twice in a round";
                notes.push((self.section.span.start, words.to_owned()));
                Order::Random
            }
        }
    }

    fn depth(&self, notes: &mut Notes) -> u32 {
        let depth = self.number("iodepth").unwrap_or(1) as u32;
        let waits = match self.value("ioengine") {
            Some(Value::Engine { waits }) => *waits,
            _ => true,
        };
        if waits && depth > 1 {
            let words = format!(
                "{depth} requests are in flight, as iodepth says: of fio's own psync, sync, pvsync and mmap it is one at a time"
            );
            notes.push((self.span("iodepth").start, words));
        }
        depth
    }

    fn io_size(&self, mistakes: &mut Vec<Mistake>) -> Option<u64> {
        let (amount, span) = self.amount("io_size")?;
        match amount {
            Amount::Bytes(bytes) => Some(bytes),
            Amount::Percent(_) => {
                mistakes.push(Mistake::at(&span, "io_size: expected bytes, seen a percentage"));
                None
            }
        }
    }

    fn fsync(&self, mistakes: &mut Vec<Mistake>) -> Option<u32> {
        let every = |key| self.number(key).filter(|every| *every > 0);
        if let (Some(_), Some(_)) = (every("fsync"), every("fdatasync")) {
            let message =
                "fdatasync: expected it or fsync, which are the same flush of a disk, seen both";
            mistakes.push(Mistake::at(self.span("fdatasync"), message));
        }
        every("fsync").or(every("fdatasync")).map(|every| every as u32)
    }

    /// The same each time, unless that is not wanted; other jobs draw otherwise.
    fn draws(&self, index: usize) -> Option<u64> {
        let seed = self.number("randseed");
        let is_new = self.value("randrepeat") == Some(&Value::Flag(false));
        let seed = seed.or((!is_new).then_some(0))?;
        Some(Random::new(seed ^ (index as u64) << 32).next_u64())
    }
}

/// Kinds that are asked for.
pub(super) fn used(pattern: Pattern) -> impl Iterator<Item = Kind> {
    let Pattern { read_percent, trim_percent, .. } = pattern;
    let all = [
        (Kind::Read, read_percent > 0),
        (Kind::Write, read_percent + trim_percent < 100),
        (Kind::Trim, trim_percent > 0),
    ];
    all.into_iter().filter(|(_, is_used)| *is_used).map(|(kind, _)| kind)
}

impl Job {
    /// The size of its requests, where it is one.
    pub fn block(&self) -> Option<u32> {
        let mut sizes = used(self.pattern).flat_map(|kind| &self.sizes[kind as usize]);
        let first = sizes.next()?.0;
        sizes.all(|(bytes, _)| *bytes == first).then_some(first)
    }

    /// Bytes of its largest request.
    pub fn request_bytes_max(&self) -> u32 {
        let sizes = used(self.pattern).flat_map(|kind| &self.sizes[kind as usize]);
        sizes.map(|(bytes, _)| *bytes).max().unwrap_or(4096)
    }

    /// How long it may take, with what goes before.
    pub fn time_max(&self) -> Duration {
        self.ramp_time + self.runtime.unwrap_or(TIME_MAX)
    }

    /// Its sizes in fio's words: `4k`, or `4k/60:8k/40`, or one for each kind.
    pub fn sizes_text(&self) -> String {
        let size = |bytes: u32| match bytes.is_multiple_of(1024) {
            true => format!("{}k", bytes / 1024),
            false => bytes.to_string(),
        };
        let split = |split: &Vec<(u32, u8)>| match &split[..] {
            [(bytes, _)] => size(*bytes),
            several => {
                let part = |(bytes, percent): &(u32, u8)| format!("{}/{percent}", size(*bytes));
                several.iter().map(part).collect::<Vec<_>>().join(":")
            }
        };
        let mut texts: Vec<String> =
            used(self.pattern).map(|kind| split(&self.sizes[kind as usize])).collect();
        texts.dedup();
        texts.join(",")
    }
}
