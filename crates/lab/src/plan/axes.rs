//! The loads of a table: every combination of the values of its keys, with those of `[load]` where
//! it has none.
//!
//! Each key is an axis. A closed loop has a depth and an open one a rate: a table that gives one of
//! them replaces the other of `[load]`. Combinations are in the order of the keys, the last one
//! turning first. Bounds are those of `plateway bench`.

use toml::Spanned;

use super::check::Checker;
use super::low::LowLoad;
use super::many::Files;
use super::model::{Arrivals, Load, Pace};
use super::reader::{Low, Many, Scalar};
use super::words::{self, Bytes, Expected};
use crate::mistake::{Mistake, Span};
use crate::words::Pattern;

/// The combinations of one table, and the cells of all pictures.
pub(super) const COMBINATIONS_MAX: usize = 1_000;
const JOBS_MAX: u64 = 128;
const DEPTH_MAX: u64 = 1_024;
const RATE_MAX: u64 = 100_000_000;
pub(super) const SIZE_MAX: u64 = 1 << 50;

/// Of what there is among the systems of a table that only some loads are for.
#[derive(Clone, Copy)]
pub(super) struct Has {
    /// A file, on which a client works.
    pub(super) file: bool,
    /// A system that may be several disks.
    pub(super) several: bool,
}

/// Where a key stands, and how many values it has.
pub(super) struct Written {
    pub(super) key: &'static str,
    pub(super) span: Span,
    pub(super) values: usize,
}

const PATTERNS: &str =
    "read, write, trim, randread, randwrite, randtrim, or a mix such as rw=75 or randrw=70,10";

impl LowLoad {
    pub(super) fn written(&self) -> Vec<Written> {
        fn of<T>(key: &'static str, low: &Low<Many<T>>) -> Option<Written> {
            let low = low.as_ref()?;
            Some(Written { key, span: low.span(), values: low.get_ref().0.len() })
        }
        let all = [
            of("block-size", &self.block_size),
            of("pattern", &self.pattern),
            of("read-share", &self.read_share),
            of("depth", &self.depth),
            of("jobs", &self.jobs),
            of("rate", &self.rate),
            of("arrivals", &self.arrivals),
            of("size", &self.size),
            of("sync", &self.sync),
            of("fsync", &self.fsync),
            of("client-memory", &self.client_memory),
            of("client-cpu", &self.client_cpu),
            of("cache", &self.cache),
            of("disks", &self.disks),
            of("files", &self.files),
        ];
        all.into_iter().flatten().collect()
    }
}

/// A table's own value, or that of `[load]`.
pub(super) fn pick<'l, T>(own: &'l Low<T>, usual: &'l Low<T>) -> Option<&'l Spanned<T>> {
    own.as_ref().or(usual.as_ref())
}

impl Checker<'_> {
    /// Checks `[load]`, which has one value of each key: lists there would multiply all else.
    pub(super) fn defaults(&mut self, low: &LowLoad) {
        for Written { key, span, values } in low.written() {
            if values > 1 {
                let message = format!("{key} of [load]: expected one value, seen {values}");
                let help = "lists stand in [[compare]] and [[picture]]";
                self.push(Mistake::new(span, message).help(help));
            }
        }
        let all: Vec<usize> = (0..self.systems.len()).collect();
        let has = self.has(&all);
        self.loads(low, &LowLoad::default(), true, has);
    }

    /// What these systems have.
    pub(super) fn has(&self, systems: &[usize]) -> Has {
        Has { file: self.has_file(systems), several: self.has_several(systems) }
    }

    /// Every load of a table; nothing if any is wrong. `[load]` itself may have what only some
    /// tables use, and a table without files, or without disks that may be several, uses nothing of what only those
    /// have.
    pub(super) fn loads(
        &mut self,
        own: &LowLoad,
        usual: &LowLoad,
        is_default: bool,
        has: Has,
    ) -> Option<Vec<Load>> {
        let of_files = self.of_files(own, usual, has.file);
        let stripes = self.of_stripes(own, usual, has.several);
        if !own.refused.is_empty() {
            return None;
        }
        // A load of many files has no requests of its own.
        let none = LowLoad::default();
        let has_many = pick(&own.files, &usual.files).is_some() && has.file;
        let usual_of_requests = if has_many { &none } else { usual };
        let blocks = self.axis(
            pick(&own.block_size, &usual_of_requests.block_size),
            "block-size",
            block_size,
        );
        let patterns = self.patterns(own, usual_of_requests, is_default);
        let paces = self.paces(own, usual_of_requests, is_default);
        let jobs = self
            .axis(pick(&own.jobs, &usual.jobs), "jobs", |text| words::number(text, 1..=JOBS_MAX));
        let sizes = self.axis(pick(&own.size, &usual.size), "size", |text| {
            words::size(text, 512..=SIZE_MAX).map(Some)
        });
        let syncs =
            self.distinct(pick(&own.sync, &usual_of_requests.sync), "sync", |sync| Some(*sync));
        let flushes = self.axis(pick(&own.fsync, &usual_of_requests.fsync), "fsync", |text| {
            words::number(text, 1..=u64::from(u32::MAX)).map(|writes| Some(writes as u32))
        });
        let shares = self.axis(pick(&own.client_cpu, &usual.client_cpu), "client-cpu", |text| {
            cpu_share(text).map(Some)
        });
        if let Some(written) = pick(&own.client_cpu, &usual.client_cpu) {
            self.client_cpu.get_or_insert(written.span());
        }
        let files = self.files(own, usual, has.file);
        let (caches, memories) = of_files;
        let axes = Axes {
            blocks: blocks?.unwrap_or(vec![4096]),
            patterns: patterns?,
            paces: paces?,
            jobs: jobs?.unwrap_or(vec![1]),
            sizes: sizes?.unwrap_or(vec![None]),
            syncs: syncs?.unwrap_or(vec![false]),
            flushes: flushes?.unwrap_or(vec![None]),
            caches: caches?.unwrap_or(vec![false]),
            memories: memories?.unwrap_or(vec![None]),
            shares: shares?.unwrap_or(vec![None]),
            stripes: stripes?.unwrap_or(vec![None]),
            files: files?,
        };
        let count = axes.count();
        if count > COMBINATIONS_MAX {
            let message =
                format!("expected {COMBINATIONS_MAX} combinations of a load at most, seen {count}");
            self.push(
                Mistake::new(own.span.clone(), message).help("make some of its lists shorter"),
            );
            return None;
        }
        let mut loads = axes.combine();
        loads.iter_mut().for_each(settle_files);
        let narrow = loads.iter().find_map(|load| {
            load.size.filter(|size| *size < u64::from(load.block_bytes)).zip(Some(load.block_bytes))
        });
        if let (Some((size, block)), Some(low)) = (narrow, pick(&own.size, &usual.size)) {
            let (size, block) = (Bytes(size), Bytes(block.into()));
            let message =
                format!("size: expected room for one block of {block} at least, seen {size}");
            self.push(Mistake::new(low.span(), message));
            return None;
        }
        Some(loads)
    }

    /// The values of a key, none of them twice: `None` if any is wrong, `Some(None)` if there are
    /// none.
    pub(super) fn axis<T: PartialEq>(
        &mut self,
        low: Option<&Spanned<Many<Scalar>>>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, Expected>,
    ) -> Option<Option<Vec<T>>> {
        let Some(low) = low else { return Some(None) };
        let mut values: Vec<(T, Span)> = Vec::new();
        for written in &low.get_ref().0 {
            let Some(value) = self.one(written, key, &parse) else { continue };
            if let Some((_, first)) = values.iter().find(|(other, _)| *other == value) {
                let message = format!("{key}: {} stands twice in the list", written.get_ref());
                let mistake = Mistake::new(written.span(), message).first(&first.clone());
                self.push(mistake.help("leave out one of them"));
            } else {
                values.push((value, written.span()));
            }
        }
        let is_whole = values.len() == low.get_ref().0.len();
        is_whole.then(|| Some(values.into_iter().map(|(value, _)| value).collect()))
    }

    /// The same of values that are no scalars.
    pub(super) fn distinct<W: PartialEq, T>(
        &mut self,
        low: Option<&Spanned<Many<W>>>,
        key: &str,
        mut read: impl FnMut(&W) -> Option<T>,
    ) -> Option<Option<Vec<T>>> {
        let Some(low) = low else { return Some(None) };
        let list = &low.get_ref().0;
        for (at, written) in list.iter().enumerate() {
            if let Some(first) = list[..at].iter().find(|one| one.get_ref() == written.get_ref()) {
                let message = format!("{key}: the same stands twice in the list");
                let mistake = Mistake::new(written.span(), message).first(&first.span());
                self.push(mistake.help("leave out one of them"));
                return None;
            }
        }
        let values: Option<Vec<T>> = list.iter().map(|written| read(written.get_ref())).collect();
        values.map(Some)
    }

    /// Patterns, each with each share of reads.
    fn patterns(
        &mut self,
        own: &LowLoad,
        usual: &LowLoad,
        is_default: bool,
    ) -> Option<Vec<Pattern>> {
        let share = pick(&own.read_share, &usual.read_share);
        let percents = self.axis(share, "read-share", percent)?;
        let written = pick(&own.pattern, &usual.pattern);
        let mut patterns = Vec::new();
        for word in written.iter().flat_map(|low| &low.get_ref().0) {
            match word.get_ref().parse::<Pattern>() {
                Ok(pattern) => patterns.push((word.get_ref().as_str(), pattern)),
                // In a plan all of the word is told, whatever part of it is wrong.
                Err(_) => {
                    let seen = word.get_ref();
                    let message = format!("pattern: expected {PATTERNS}, seen {seen:?}");
                    self.push(Mistake::new(word.span(), message));
                }
            }
        }
        if written.is_some_and(|low| low.get_ref().0.len() != patterns.len()) {
            return None;
        }
        self.distinct(written, "pattern", |_| Some(()))?;
        if patterns.is_empty() {
            let usual = Pattern { random: true, read_percent: 100, trim_percent: 0 };
            patterns.push(("randread", usual));
        }
        let is_mix = |word: &str| word.ends_with("rw") || word == "readwrite";
        let other = patterns.iter().find(|(word, _)| !is_mix(word));
        // What [load] has is for those tables that mix.
        let is_own = own.read_share.is_some() && !(is_default && written.is_none());
        if let Some(((word, _), share)) = other.zip(share.filter(|_| is_own)) {
            let message =
                format!("read-share: expected the pattern rw or randrw beside it, seen {word:?}");
            self.push(Mistake::new(share.span(), message).help("leave out one of them"));
            return None;
        }
        let mixed = |(word, pattern): (&str, Pattern)| match &percents {
            Some(percents) if is_mix(word) => percents
                .iter()
                .map(|percent| Pattern { read_percent: *percent, ..pattern })
                .collect(),
            _ => vec![pattern],
        };
        Some(patterns.into_iter().flat_map(mixed).collect())
    }

    /// When requests leave: depths, or rates each with each kind of arrivals.
    fn paces(&mut self, own: &LowLoad, usual: &LowLoad, is_default: bool) -> Option<Vec<Pace>> {
        if let (Some(rate), Some(depth)) = (&own.rate, &own.depth) {
            let message = "rate and depth: expected one of them, a rate of an open loop or a depth of a closed one";
            let mistake = Mistake::new(rate.span(), message).first(&depth.span());
            self.push(mistake.help("leave out one of them"));
            return None;
        }
        let rate = match own.depth {
            Some(_) => None,
            None => pick(&own.rate, &usual.rate),
        };
        let rates = self.axis(rate, "rate", |text| words::count(text, RATE_MAX))?;
        let arrivals = pick(&own.arrivals, &usual.arrivals);
        let mut read = Vec::new();
        for word in arrivals.iter().flat_map(|low| &low.get_ref().0) {
            read.push(self.word(word, "arrivals", Arrivals::WORDS)?);
        }
        self.distinct(arrivals, "arrivals", |_| Some(()))?;
        let Some(rates) = rates else {
            if let Some(arrivals) = own.arrivals.as_ref().filter(|_| !is_default) {
                let message = "arrivals: expected a rate beside them, seen a closed loop";
                self.push(
                    Mistake::new(arrivals.span(), message).help("add rate = 1000, or leave it out"),
                );
                return None;
            }
            let depth = if own.rate.is_some() { None } else { pick(&own.depth, &usual.depth) };
            let depths = self.axis(depth, "depth", |text| words::number(text, 1..=DEPTH_MAX))?;
            let depths = depths.unwrap_or(vec![32]);
            let closed = |depth: u64| Pace::Closed { depth: depth as u32 };
            return Some(depths.into_iter().map(closed).collect());
        };
        if read.is_empty() {
            read.push(Arrivals::Fixed);
        }
        let open =
            |rate: u64| read.iter().map(move |arrivals| Pace::Open { rate, arrivals: *arrivals });
        Some(rates.into_iter().flat_map(open).collect())
    }
}

/// What of a load there is.
struct Axes {
    blocks: Vec<u32>,
    patterns: Vec<Pattern>,
    paces: Vec<Pace>,
    jobs: Vec<u64>,
    sizes: Vec<Option<u64>>,
    syncs: Vec<bool>,
    flushes: Vec<Option<u32>>,
    caches: Vec<bool>,
    memories: Vec<Option<u64>>,
    shares: Vec<Option<u8>>,
    stripes: Vec<Option<u32>>,
    files: Vec<Option<Files>>,
}

impl Axes {
    fn count(&self) -> usize {
        let lengths = [
            self.blocks.len(),
            self.patterns.len(),
            self.paces.len(),
            self.jobs.len(),
            self.sizes.len(),
            self.syncs.len(),
            self.flushes.len(),
            self.caches.len(),
            self.memories.len(),
            self.shares.len(),
            self.stripes.len(),
            self.files.len(),
        ];
        lengths.into_iter().fold(1, usize::saturating_mul)
    }

    fn combine(&self) -> Vec<Load> {
        // Every axis replaces its field; what stands here is none of them.
        let first = Load {
            block_bytes: 0,
            pattern: self.patterns[0],
            pace: self.paces[0],
            jobs: 0,
            size: None,
            sync: false,
            fsync: None,
            cache: false,
            client_memory: None,
            client_cpu: None,
            disks: None,
            files: None,
        };
        let loads = vec![first];
        let loads = across(&loads, &self.blocks, |load, block| load.block_bytes = block);
        let loads = across(&loads, &self.patterns, |load, pattern| load.pattern = pattern);
        let loads = across(&loads, &self.paces, |load, pace| load.pace = pace);
        let loads = across(&loads, &self.jobs, |load, jobs| load.jobs = jobs as u32);
        let loads = across(&loads, &self.sizes, |load, size| load.size = size);
        let loads = across(&loads, &self.syncs, |load, sync| load.sync = sync);
        let loads = across(&loads, &self.flushes, |load, fsync| load.fsync = fsync);
        let loads = across(&loads, &self.caches, |load, cache| load.cache = cache);
        let loads = across(&loads, &self.memories, |load, memory| load.client_memory = memory);
        let loads = across(&loads, &self.shares, |load, share| load.client_cpu = share);
        let loads = across(&loads, &self.stripes, |load, disks| load.disks = disks);
        across(&loads, &self.files, |load, files| load.files = files)
    }
}

/// Of a load of many files what follows from it.
fn settle_files(load: &mut Load) {
    if let Some(files) = load.files {
        load.cache = files.is_cached();
        load.pace = Pace::Closed { depth: 1 };
    }
}

/// Each load with each value.
fn across<T: Copy>(loads: &[Load], values: &[T], set: impl Fn(&mut Load, T)) -> Vec<Load> {
    let with = |load: &Load, value: T| {
        let mut load = *load;
        set(&mut load, value);
        load
    };
    loads
        .iter()
        .flat_map(|load| values.iter().map(move |value| (load, *value)))
        .map(|(load, value)| with(load, value))
        .collect()
}

fn block_size(text: &str) -> Result<u32, Expected> {
    words::size(text, 512..=u64::from(block::limits::TRANSFER_MAX)).map(|bytes| bytes as u32)
}

/// Percent of one CPU, of which the kernel gives no less than a millisecond in five.
fn cpu_share(text: &str) -> Result<u8, Expected> {
    let expected = "a part of one CPU from 20% to 100%, such as \"50%\"";
    let percent = percent(text).map_err(|_| expected.to_owned())?;
    if percent < 20 { Err(expected.to_owned()) } else { Ok(percent) }
}

/// Whole percent.
fn percent(text: &str) -> Result<u8, Expected> {
    let expected = || "whole percent from 0% to 100%, such as \"70%\" or 0.7".to_owned();
    let percent = words::part(text, 0.0..=1.0).map_err(|_| expected())? * 100.0;
    let whole = percent.round();
    if (percent - whole).abs() < 1e-9 { Ok(whole as u8) } else { Err(expected()) }
}
