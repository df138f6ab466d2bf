//! The instrument `model:NAME,URI`, a modelled disk: when a disk of a known kind would have answered.
//!
//! ```text
//!                 a read that is not in the cache     +-> channel: service [+ seek + rotation] + transfer -+
//!   requests, as  a write that has to last            |                                                    |
//!   they come ----------------------------------------+-> channel                                          +-> done
//!      |   |                                          |                                                    |
//!      |   +--- another write -> cache, done - later -+-> channel                                          |
//!      |                           |                                                                       |
//!      +-- flush ------------ once all is on the medium that came before; takes no channel ----------------+
//! ```
//!
//! First come, first served: a request is taken by the channel that is free first, so that the whole is a
//! queue with as many servers as there are channels (M/G/c, where requests come at random), and a
//! queue depth beyond the channels only waits. A channel knows where its last request ended: one that
//! begins there neither seeks nor waits for the platter to turn, as where a disk reads ahead or
//! gathers writes.
//!
//! | what | how long it takes a channel |
//! | --- | --- |
//! | read, compare, verify | service, then where it does not continue a seek and up to a turn, then its bytes; where all of it is in the cache none, and `cache_us` |
//! | write that the cache has room for | none, and `cache_us`; without room it waits for some |
//! | durable write, one without a cache, zeroes that keep their space | as a read, with the times of writes |
//! | discard, zeroes that give up their space | `trim_us`, wherever and however much |
//! | flush | nothing: it is done once all is on the medium that came before it |
//! | where data are (SEEK_DATA) | nothing, and it does not wait: the server knows, not the medium |
//!
//! What is asked is carried out by the disk inside at once. Without a cache a model changes when an answer
//! is told, never what is promised; with one a completed write is volatile, and `cut_ms` takes back what was
//! not on the medium. One request is one channel's, so a large one is as slow as a channel is. What a
//! disk draws is a function of the seed and of how many requests came before; its logarithm is the
//! platform's. Here: what a model is, and how long a channel takes; its channels and its power are [`mechanism`]'s,
//! what is on the medium [`cache`]'s. Units: nanoseconds on the caller's clock, bytes. No errors: who makes a
//! [`Model`] keeps to its bounds. Not here: names and files of models, which are the configuration's.

pub(super) mod cache;
pub(super) mod mechanism;

use std::time::Duration;

use block::random::Random;
use block::{ByteCount, Extent};

/// Of which the one that is free first is looked for while others wait: some hundred nanoseconds.
pub const MODEL_CHANNELS_MAX: u64 = 256;
/// The longest time that a model may name, in microseconds: a minute, so that sums of times are far
/// from the end of the clock.
pub const MODEL_US_MAX: u64 = 60_000_000;
/// Ten times what any disk turned at.
pub const MODEL_RPM_MAX: u64 = 200_000;
/// 1 TB/s, of a channel.
pub const MODEL_MB_S_MAX: u64 = 1_000_000;

/// The largest cache in MiB, as those of hard disks have: its pages are put back one by one as the power goes,
/// and nobody else has its turn meanwhile.
pub const MODEL_CACHE_MIB_MAX: u64 = 256;
/// The longest time to or without power in milliseconds: a day.
pub const MODEL_POWER_MS_MAX: u64 = 86_400_000;

/// How the times of a service lie around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All alike.
    #[default]
    Constant,
    /// Any from nothing to twice the mean.
    Uniform,
    /// Many short, few long ones: without memory, as in queueing theory.
    Exponential,
}

/// What a kind of disk takes its time for. Times are microseconds, as data sheets have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Decides what is drawn.
    pub seed: u64,
    /// Requests that it works on at once: 1 to [`MODEL_CHANNELS_MAX`].
    pub channels: u64,
    pub service: Spread,
    /// What any request takes, whatever its place and size: the mean.
    pub service_us: u64,
    /// The same of writes, where it is not that of reads.
    pub service_write_us: Option<u64>,
    /// The mean seek between two places at random, at least `seek_track_us`.
    pub seek_us: u64,
    /// The shortest seek, from a track to the next.
    pub seek_track_us: u64,
    /// By how much a seek for a write is longer: the head has to settle.
    pub seek_write_us: u64,
    /// Turns in a minute; 0 where nothing turns.
    pub rpm: u64,
    /// MB/s of each channel; 0 where bytes cost nothing.
    pub rate_mb_s: u64,
    /// What a discard takes.
    pub trim_us: u64,
    /// What the volatile write cache holds; 0 where there is none.
    pub cache_mib: u64,
    /// What a write takes that is held there, and a read of what is there.
    pub cache_us: u64,
    /// So long after the first change to its disk its power goes, once, and with it what is not on the medium;
    /// 0 where it stays. For a disk whose contents can be put back ([`OpenSpec::Ram`](super::OpenSpec::Ram)).
    pub cut_ms: u64,
    /// How long it is gone.
    pub off_ms: u64,
}

impl Model {
    /// Of one channel, which takes no time for anything: what a file of a model begins with.
    pub const PLAIN: Model = Model {
        seed: 1,
        channels: 1,
        service: Spread::Constant,
        service_us: 0,
        service_write_us: None,
        seek_us: 0,
        seek_track_us: 0,
        seek_write_us: 0,
        rpm: 0,
        rate_mb_s: 0,
        trim_us: 0,
        cache_mib: 0,
        cache_us: 0,
        cut_ms: 0,
        off_ms: 1_000,
    };

    /// The models that have a name. The figures are ours: of the class that data sheets describe, of
    /// no product. Their caches are off, as who keeps data on such disks had them.
    pub const NAMED: [(&str, Model); 3] = [
        // SAS and SCSI disks of 10,000 rpm, about 2005 to 2012: half a turn is 3.0 ms ("average
        // latency 2.99 ms"), average seeks are 3.8 to 4.7 ms for reads and half a millisecond more
        // for writes, track to track 0.2 to 0.5 ms, media rates 60 to 150 MB/s from the inner to the
        // outer tracks. A random read of 4 KiB takes 4.5 + 3.0 + 0.04 ms: 133 a second.
        (
            "hdd-10k",
            Model {
                seek_us: 4_500,
                seek_track_us: 400,
                seek_write_us: 500,
                rpm: 10_000,
                rate_mb_s: 100,
                cache_us: 100,
                ..Model::PLAIN
            },
        ),
        // Disks of notebooks and archives: half a turn is 5.6 ms, average seeks are 11 to 13 ms, a
        // millisecond more for writes, track to track 1 to 2 ms. A random read of 4 KiB takes 12 + 5.6
        // + 0.04 ms: 57 a second.
        (
            "hdd-5400",
            Model {
                seek_us: 12_000,
                seek_track_us: 1_500,
                seek_write_us: 1_000,
                rpm: 5_400,
                rate_mb_s: 100,
                cache_us: 100,
                ..Model::PLAIN
            },
        ),
        // SATA SSDs for servers, about 2013: 75,000 reads and 36,000 writes of 4 KiB a second that
        // last, 500 MB/s. A channel moves 4 KiB in 63 us, so a read takes 103 us and eight channels
        // do 77,700 of them; a write 223 us, 35,900; and of 128 KiB they read 510 MB/s and write 482.
        (
            "ssd",
            Model {
                channels: 8,
                service_us: 40,
                service_write_us: Some(160),
                rate_mb_s: 65,
                trim_us: 200,
                cache_us: 20,
                ..Model::PLAIN
            },
        ),
    ];

    /// The model of a name.
    pub fn named(name: &str) -> Option<Model> {
        Model::NAMED.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }
}

/// What one request draws: always as much, whatever it turns out to need, so that what is drawn by
/// others does not hang on it. Each from 0 to below 1.
#[derive(Clone, Copy, Debug)]
struct Luck {
    service: f64,
    rotation: f64,
}

impl Luck {
    fn draw(random: &mut Random) -> Luck {
        // As many bits as a double holds.
        let mut part = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        Luck { service: part(), rotation: part() }
    }
}

/// How long a channel takes for an extent where its last request ended at `from`.
fn time_for(
    model: &Model,
    from: u64,
    extent: Extent,
    writes: bool,
    size: ByteCount,
    luck: Luck,
) -> Duration {
    let service_us = match (writes, model.service_write_us) {
        (true, Some(us)) => us,
        _ => model.service_us,
    };
    let mut us = drawn(model.service, service_us, luck.service);
    if from != extent.offset.0 {
        us += seek_us(model, from.abs_diff(extent.offset.0) as f64 / size.0.max(1) as f64);
        us += if writes { model.seek_write_us as f64 } else { 0.0 };
        us += turn_us(model) * luck.rotation;
    }
    if model.rate_mb_s > 0 {
        // 1 MB/s is a byte in a microsecond.
        us += extent.length.0 as f64 / model.rate_mb_s as f64;
    }
    micros(us)
}

fn drawn(spread: Spread, mean_us: u64, luck: f64) -> f64 {
    let mean = mean_us as f64;
    match spread {
        Spread::Constant => mean,
        Spread::Uniform => 2.0 * mean * luck,
        // What is taken from 1 never reaches it, so the logarithm is finite: at most 37 means.
        Spread::Exponential => -mean * (1.0 - luck).ln(),
    }
}

/// A seek over this part of the disk: the arm speeds up and slows down, so its time grows with the
/// square root of the distance. Between two places at random the mean of the root is the integral of
/// 2 (1 - x) sqrt(x) from 0 to 1, which is 8/15; by it the full stroke follows from the mean seek.
fn seek_us(model: &Model, part: f64) -> f64 {
    let track = model.seek_track_us as f64;
    let stroke = (model.seek_us as f64 - track).max(0.0) * 15.0 / 8.0;
    track + stroke * part.min(1.0).sqrt()
}

/// One turn of the platter.
fn turn_us(model: &Model) -> f64 {
    match model.rpm {
        0 => 0.0,
        rpm => 60e6 / rpm as f64,
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3) as u64)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
