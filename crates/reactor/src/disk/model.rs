//! The instrument `model:NAME,URI`, a modelled disk: when a disk of a known kind would have answered.
//!
//! ```text
//!                                 +-> channel: service [+ seek + rotation] + transfer -+
//!   requests, as they come -------+-> channel                                          +-> done
//!                                 +-> channel                                          |
//!                                                                                      |
//!   flush ------------ once all is done that came before; takes no channel ------------+
//! ```
//!
//! A machine without a clock: in come the present, what is asked and the size of the disk, out comes
//! the moment at which the model is done with it ([`Mechanism::accept`]). First come, first served: a
//! request is taken by the channel that is free first, so that the whole is a queue with as many
//! servers as there are channels (M/G/c, where requests come at random), and a queue depth beyond
//! the channels only waits. A channel knows where its last request ended: one that begins there
//! neither seeks nor waits for the platter to turn, as where a disk reads ahead or gathers writes.
//!
//! | what | how long it takes a channel |
//! | --- | --- |
//! | read, compare, verify | service, then where it does not continue a seek and up to a turn, then its bytes |
//! | write, zeroes that keep their space, durable or not | the same, with the times of writes |
//! | discard, zeroes that give up their space | `trim_us`, wherever and however much |
//! | flush | nothing: it is done once all is done that came before it |
//! | where data are (SEEK_DATA) | nothing, and it does not wait: the server knows, not the medium |
//!
//! There is no cache: a model changes when an answer is told, never what it promises. One request is
//! one channel's, so a large one is as slow as a channel is. What a disk draws is a function of the
//! seed and of how many requests came before; its logarithm is the platform's. Units: nanoseconds on
//! the caller's clock, bytes. No errors: who makes a [`Model`] keeps to its bounds. Not here: names
//! and files of models, which are the configuration's.

use std::time::Duration;

use block::random::Random;
use block::{ByteCount, Extent, Instant, Operation};

/// Of which the one that is free first is looked for while others wait: some hundred nanoseconds.
pub const MODEL_CHANNELS_MAX: u64 = 256;
/// The longest time that a model may name, in microseconds: a minute, so that sums of times are far
/// from the end of the clock.
pub const MODEL_US_MAX: u64 = 60_000_000;
/// Ten times what any disk turned at.
pub const MODEL_RPM_MAX: u64 = 200_000;
/// 1 TB/s, of a channel.
pub const MODEL_MB_S_MAX: u64 = 1_000_000;

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
    };

    /// The models that have a name. The figures are ours: of the class that data sheets describe, of
    /// no product.
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
                ..Model::PLAIN
            },
        ),
    ];

    /// The model of a name.
    pub fn named(name: &str) -> Option<Model> {
        Model::NAMED.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }
}

/// What a request asks of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Read(Extent),
    Write(Extent),
    Trim,
    Flush,
    /// Nothing: the medium need not be asked.
    Nothing,
}

impl Asked {
    pub(super) fn by(operation: &Operation) -> Asked {
        match operation {
            Operation::Read { extent, .. }
            | Operation::Compare { extent, .. }
            | Operation::Verify { extent } => Asked::Read(*extent),
            Operation::Write { extent, .. } => Asked::Write(*extent),
            Operation::WriteZeroes { extent, deallocate: false, .. } => Asked::Write(*extent),
            Operation::WriteZeroes { deallocate: true, .. } | Operation::Discard { .. } => {
                Asked::Trim
            }
            Operation::Flush => Asked::Flush,
            // Volumes answer the former; disks are never asked.
            Operation::CompareAndWrite { .. } | Operation::Seek { .. } => Asked::Nothing,
        }
    }
}

/// The model of one disk at work.
#[derive(Debug)]
pub(super) struct Mechanism {
    model: Model,
    random: Random,
    channels: Vec<Channel>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// When it is done with all that it has taken.
    free_at: Instant,
    /// Where the last of that ends; the beginning of the disk at first.
    at: u64,
}

impl Mechanism {
    pub(super) fn new(model: Model) -> Mechanism {
        let channels = model.channels.clamp(1, MODEL_CHANNELS_MAX) as usize;
        let random = Random::new(model.seed);
        Mechanism { model, random, channels: vec![Channel::default(); channels] }
    }

    /// Takes what is asked now of a disk of this size. Returns when it is done, now at the earliest.
    /// Of shards that look at the clock and then come in another order, the order of coming counts.
    pub(super) fn accept(&mut self, now: Instant, asked: Asked, size: ByteCount) -> Instant {
        let luck = Luck::draw(&mut self.random);
        let (extent, writes) = match asked {
            Asked::Read(extent) => (extent, false),
            Asked::Write(extent) => (extent, true),
            Asked::Trim => {
                let channel = first_free(&mut self.channels, now, None);
                channel.free_at = channel.free_at.max(now) + micros(self.model.trim_us as f64);
                return channel.free_at;
            }
            Asked::Flush => {
                return self.channels.iter().fold(now, |last, one| last.max(one.free_at));
            }
            Asked::Nothing => return now,
        };
        let channel = first_free(&mut self.channels, now, Some(extent.offset.0));
        let time = time_for(&self.model, channel.at, extent, writes, size, luck);
        channel.free_at = channel.free_at.max(now) + time;
        channel.at = extent.offset.0.saturating_add(extent.length.0);
        channel.free_at
    }
}

/// The channel that takes a request: of those that are free the one whose last ended where this one
/// begins, else the one that is free first.
fn first_free(channels: &mut [Channel], now: Instant, begins: Option<u64>) -> &mut Channel {
    let continues = |one: &Channel| one.free_at <= now && begins == Some(one.at);
    let index = channels.iter().position(continues).unwrap_or_else(|| {
        let all = channels.iter().enumerate();
        all.min_by_key(|(_, one)| one.free_at).map_or(0, |(index, _)| index)
    });
    &mut channels[index]
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
