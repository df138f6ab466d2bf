//! A modelled disk at work: when it is done with what it is asked, and what becomes of it.
//!
//! A machine without a clock: in come the present, what is asked and the size of the disk, out comes
//! the moment at which the model is done with it, and whether the power goes before
//! ([`Mechanism::accept`]). Requests go first come, first served to the channel that is free first; what the
//! cache holds is sent to the channels that nobody else wants. Both are caught up with when the next request
//! comes: between two of them nothing happens that does not follow from the first.
//!
//! ```text
//!   On -- first change --> ToGo -- cut_ms later --> Off -- off_ms later --> Back
//!                                   cache lost      all fails               the first flush fails, if pages were lost
//! ```
//!
//! Units: nanoseconds on the caller's clock, bytes. Errors: what the power is not there for ends as
//! [`Fate`] says.

use std::time::Duration;

use block::random::Random;
use block::{ByteCount, Extent, Failure, Instant, Operation, Outcome};

use super::cache::{Cache, Contents};
use super::{Luck, MODEL_CHANNELS_MAX, Model, time_for};
use crate::disk::faulty::Fate;

/// What a request asks of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::disk) enum Asked<'a> {
    Read(Extent),
    /// A write that a cache may hold.
    Write(Extent),
    /// One that is answered when it is on the medium.
    Durable(Extent),
    Trim(&'a [Extent]),
    Flush,
    /// Nothing: the medium need not be asked.
    Nothing,
}

impl Asked<'_> {
    pub(in crate::disk) fn by(operation: &Operation) -> Asked<'_> {
        match operation {
            Operation::Read { extent, .. }
            | Operation::Compare { extent, .. }
            | Operation::Verify { extent } => Asked::Read(*extent),
            Operation::Write { extent, durable: false, .. } => Asked::Write(*extent),
            Operation::Write { extent, durable: true, .. }
            | Operation::WriteZeroes { extent, deallocate: false, .. } => Asked::Durable(*extent),
            Operation::WriteZeroes { extent, deallocate: true, .. } => {
                Asked::Trim(std::slice::from_ref(extent))
            }
            Operation::Discard { extents } => Asked::Trim(extents),
            Operation::Flush => Asked::Flush,
            // Volumes answer the former; disks are never asked.
            Operation::CompareAndWrite { .. } | Operation::Seek { .. } => Asked::Nothing,
        }
    }

    fn changes(self) -> bool {
        matches!(self, Asked::Write(_) | Asked::Durable(_) | Asked::Trim(_))
    }
}

/// What becomes of a request, and when it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::disk) struct Answer {
    pub(in crate::disk) until: Instant,
    pub(in crate::disk) fate: Fate,
}

/// The model of one disk at work.
#[derive(Debug)]
pub(in crate::disk) struct Mechanism {
    model: Model,
    /// What requests draw, and what the cache draws for what it sends.
    random: Random,
    sent: Random,
    channels: Vec<Channel>,
    cache: Cache,
    power: Power,
    /// Pages that were lost with the power.
    lost: u64,
    /// Somebody was answered that it is gone, or will be.
    is_told: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// When it is done with all that it has taken.
    free_at: Instant,
    /// Where the last of that ends; the beginning of the disk at first.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
enum Power {
    On,
    ToGo(Instant),
    OffUntil(Instant),
    /// Whether somebody is still to be told of what was lost.
    Back {
        owes: bool,
    },
}

impl Mechanism {
    pub(in crate::disk) fn new(model: Model) -> Mechanism {
        let channels = model.channels.clamp(1, MODEL_CHANNELS_MAX) as usize;
        Mechanism {
            model,
            random: Random::new(model.seed),
            sent: Random::new(!model.seed),
            channels: vec![Channel::default(); channels],
            cache: Cache::new(model.cache_mib << 20),
            power: Power::On,
            lost: 0,
            is_told: false,
        }
    }

    /// Whether a completed write may be lost.
    pub(in crate::disk) fn is_cached(&self) -> bool {
        self.model.cache_mib > 0
    }

    /// Whether the contents of its disk are the model's to put back: then a request is carried out before the
    /// next one is accepted.
    pub(in crate::disk) fn is_cut(&self) -> bool {
        self.model.cut_ms > 0
    }

    /// What is to be said of its errors, if any came from its power.
    pub(in crate::disk) fn trouble(&self) -> Option<String> {
        let lost = match self.lost {
            0 if !self.is_told => return None,
            0 => String::new(),
            1 => ", and 1 page of its cache is lost".to_owned(),
            pages => format!(", and {pages} pages of its cache are lost"),
        };
        Some(format!("its model's power was cut as planned{lost}"))
    }

    /// Pages that were lost with the power.
    #[cfg(test)]
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes what is asked now of a disk of this size, which holds this yet. Of shards that look at the
    /// clock and then come in another order, the order of coming counts.
    pub(in crate::disk) fn accept(
        &mut self,
        now: Instant,
        asked: Asked<'_>,
        size: ByteCount,
        contents: &mut dyn Contents,
    ) -> Answer {
        let luck = Luck::draw(&mut self.random);
        self.follow_power(now, asked, size, contents);
        let refused =
            |failure| Answer { until: now, fate: Fate::Refused(Outcome::NotDone(failure)) };
        match self.power {
            Power::OffUntil(_) => {
                self.is_told = true;
                return refused(Failure::NotReady);
            }
            Power::Back { owes: true } if asked == Asked::Flush => {
                self.power = Power::Back { owes: false };
                return refused(Failure::MediumWrite);
            }
            _ => {}
        }
        self.catch_up(now, size);
        let until = match self.power {
            // Nothing is put back any more.
            Power::Back { .. } => self.take(now, asked, size, luck, &mut ()),
            _ => self.take(now, asked, size, luck, contents),
        };
        match self.power {
            Power::ToGo(cut) if until > cut => {
                self.is_told = true;
                let outcome = Outcome::NotDone(Failure::NotReady);
                // Of what is written as the power goes, some is on the medium.
                let is_written = asked.changes() && luck.rotation < 0.5;
                let fate = if is_written { Fate::Denied(outcome) } else { Fate::Refused(outcome) };
                Answer { until: cut, fate }
            }
            _ => Answer { until, fate: Fate::Asked },
        }
    }

    /// What has become of the power by now, if this is asked.
    fn follow_power(
        &mut self,
        now: Instant,
        asked: Asked<'_>,
        size: ByteCount,
        contents: &mut dyn Contents,
    ) {
        let after = Duration::from_millis;
        if matches!(self.power, Power::On) && self.is_cut() && asked.changes() {
            self.power = Power::ToGo(now + after(self.model.cut_ms));
        }
        if let Power::ToGo(cut) = self.power
            && cut <= now
        {
            self.catch_up(cut, size);
            self.lost = self.cache.lose(contents);
            let back = cut + after(self.model.off_ms);
            self.channels.fill(Channel { free_at: back, at: 0 });
            self.power = Power::OffUntil(back);
        }
        if let Power::OffUntil(back) = self.power
            && back <= now
        {
            self.power = Power::Back { owes: self.lost > 0 };
        }
    }

    /// When what is asked is done.
    fn take(
        &mut self,
        now: Instant,
        asked: Asked<'_>,
        size: ByteCount,
        luck: Luck,
        contents: &mut dyn Contents,
    ) -> Instant {
        let cached = Duration::from_micros(self.model.cache_us);
        match asked {
            Asked::Read(extent) if self.cache.holds(extent) => now + cached,
            Asked::Read(extent) => self.serve(now, extent, false, size, luck),
            Asked::Write(extent) if self.cache.fits(extent) => {
                let there = self.room_at(now, extent, size) + cached;
                self.cache.write(extent, there, contents);
                there
            }
            Asked::Write(extent) | Asked::Durable(extent) => {
                let there = self.serve(now, extent, true, size, luck);
                self.cache.pass(extent, there, contents)
            }
            Asked::Trim(extents) => {
                let channel = first_free(&mut self.channels, now, None);
                channel.free_at =
                    channel.free_at.max(now) + Duration::from_micros(self.model.trim_us);
                let cache = &mut self.cache;
                let there = channel.free_at;
                extents.iter().fold(there, |there, extent| cache.pass(*extent, there, contents))
            }
            Asked::Flush => {
                while self.send(now, size) {}
                let there = self.cache.all_there_at().unwrap_or(now).max(now);
                self.channels.iter().fold(there, |last, one| last.max(one.free_at))
            }
            Asked::Nothing => now,
        }
    }

    /// When a channel is done with an extent.
    fn serve(
        &mut self,
        now: Instant,
        extent: Extent,
        writes: bool,
        size: ByteCount,
        luck: Luck,
    ) -> Instant {
        let channel = first_free(&mut self.channels, now, Some(extent.offset.0));
        let time = time_for(&self.model, channel.at, extent, writes, size, luck);
        channel.free_at = channel.free_at.max(now) + time;
        channel.at = extent.offset.0.saturating_add(extent.length.0);
        channel.free_at
    }

    /// When the cache has room for an extent: what has to leave it is sent ahead of all else.
    fn room_at(&mut self, now: Instant, extent: Extent, size: ByteCount) -> Instant {
        let lacks = self.cache.lacks(extent);
        if lacks == 0 {
            return now;
        }
        loop {
            match self.cache.leave_at(lacks) {
                Some(at) => return at.max(now),
                None => assert!(self.send(now, size), "all that is in the cache leaves it"),
            }
        }
    }

    /// By now, channels that nobody wanted have begun to write what was dirty, and what they are done with
    /// is on the medium.
    fn catch_up(&mut self, now: Instant, size: ByteCount) {
        while let Some(since) = self.cache.dirty_since()
            && self.channels.iter().any(|channel| channel.free_at.max(since) < now)
        {
            self.send(since, size);
        }
        self.cache.settle(now);
    }

    /// Has the channel that is free first write what is dirty, at this moment at the earliest. Returns
    /// whether there was anything.
    fn send(&mut self, earliest: Instant, size: ByteCount) -> bool {
        let channel = first_free(&mut self.channels, earliest, None);
        let Some(run) = self.cache.next_run(channel.at) else { return false };
        let extent = run.extent();
        let luck = Luck::draw(&mut self.sent);
        let time = time_for(&self.model, channel.at, extent, true, size, luck);
        channel.free_at = channel.free_at.max(earliest) + time;
        channel.at = extent.end().0;
        self.cache.start(run, channel.free_at);
        true
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
