//! What waits for a port: messages about paths before all else, then frames, and those that wait for
//! the port's rate ([`crate::rate`]).
//!
//! Each port has batches of its own, which leave at the end of the turn: frames that came are named in
//! them, where their driver lends them until then. Frames that wait for the rate are copied and not in one
//! yet; they go there when something is sent by the port, or time has come. Frames that begin in this process leave with
//! their sender's batch, uncopied, unless they have to wait: then they are copied here and are like any
//! others.
//! Units: frames. Errors: what is too much is dropped and counted.

use block::{IdMap, Instant, Memory};
use contract::{FrameBatch, LinkId, Part, counters};

use super::{Forwarder, Port};
use crate::limits::{QUEUE_MAX, SPARE_BATCHES_MAX};
use crate::rate::{Rate, Shaper};
use crate::report::Bins;

counters! {
    /// What became of frames that were to leave by a port.
    pub struct QueueCounters {
        /// Frames that were dropped, since too many waited for the port.
        queue_full: Frames,
        /// Frames that waited for the port's rate.
        delayed: Frames,
        /// Frames that wait, or are with the driver.
        queued: Frames now,
        /// The most that waited at once.
        queued_max: Frames now,
    }
}

/// What left by a port in each millisecond of a stretch of time, and what waited for it.
#[derive(Debug)]
struct Recording {
    began: Instant,
    bins: Bins,
}

impl Recording {
    /// So many bytes leave now.
    #[cold]
    fn count(&mut self, now: Instant, bytes: usize) {
        let at = self.at(now);
        if let Some(bin) = self.bins.bytes.get_mut(at) {
            *bin = bin.saturating_add(bytes as u32);
        }
    }

    /// So many frames wait now that one has come.
    #[cold]
    fn wait(&mut self, now: Instant, frames: u64) {
        let at = self.at(now);
        if let Some(bin) = self.bins.queued.get_mut(at) {
            // No more than fit wait for a port.
            *bin = (*bin).max(frames as u32);
        }
    }

    /// The millisecond that this is.
    fn at(&self, now: Instant) -> usize {
        now.since(self.began).as_millis() as usize
    }
}

/// What waits for a port.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// What leaves by it at the end of the turn, messages about paths before all else.
    first: FrameBatch,
    waiting: FrameBatch,
    /// What it may send; `None`: whatever its interface takes.
    shaper: Option<Box<Shaper>>,
    /// Where somebody asked for it.
    recording: Option<Box<Recording>>,
    pub(super) counters: QueueCounters,
}

impl Queue {
    /// Whether a frame that begins in this process may leave by the port now, as it then does.
    #[inline]
    pub(super) fn lets_pass(&mut self, now: Instant, bytes: usize) -> bool {
        if let Some(shaper) = &mut self.shaper {
            if !shaper.may_pass(now) {
                return false;
            }
            shaper.charge(now, bytes);
        }
        recorded(&mut self.recording, now, bytes);
        true
    }

    /// Frames that wait for the rate leave as far as they may. Returns whether any did.
    #[cold]
    fn release(&mut self, now: Instant, link: LinkId) -> bool {
        let Self { waiting, shaper: Some(shaper), recording, .. } = self else { return false };
        let mut has_left = false;
        let mut leave = |parts: [&[u8]; 2]| {
            waiting.push_whole(link, parts);
            recorded(recording, now, parts[0].len() + parts[1].len());
        };
        while shaper.take(now, &mut leave) {
            has_left = true;
        }
        has_left
    }

    /// What each millisecond had of the stretch that was asked for last, of which some may be to come.
    pub(super) fn bins(&self) -> Option<Bins> {
        self.recording.as_ref().map(|recording| recording.bins.clone())
    }

    /// A frame waits for the port's rate; `false`: it may leave.
    #[inline]
    fn has_to_wait(&mut self, now: Instant, parts: [&[u8]; 2]) -> bool {
        let Some(shaper) = &mut self.shaper else { return false };
        if shaper.may_pass(now) {
            shaper.charge(now, parts[0].len() + parts[1].len());
            return false;
        }
        shaper.put(parts);
        self.counters.delayed += 1;
        true
    }
}

/// A frame or message leaves now.
#[inline]
fn recorded(recording: &mut Option<Box<Recording>>, now: Instant, bytes: usize) {
    if let Some(recording) = recording {
        recording.count(now, bytes);
    }
}

/// Ports for which something waits.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Messages about paths, and all else.
    first: Vec<LinkId>,
    waiting: Vec<LinkId>,
    /// Frames that wait for a rate.
    shaped: Vec<LinkId>,
    spare: Vec<FrameBatch>,
}

impl Due {
    /// A frame of two parts waits for a port, unless too many do. It leaves with this turn, or is
    /// copied.
    #[inline]
    pub(super) fn put(
        &mut self,
        ports: &mut IdMap<Port>,
        now: Instant,
        link: LinkId,
        front: &[u8],
        rest: Part<'_>,
    ) {
        let Some(Port { queue, .. }) = ports.get_mut(link.0) else {
            unreachable!("a verdict names a port of its router, and {link} is none")
        };
        if queue.counters.queued >= QUEUE_MAX.into() {
            queue.counters.queue_full += 1;
            return;
        }
        queue.counters.queued += 1;
        queue.counters.queued_max = queue.counters.queued_max.max(queue.counters.queued);
        if let Some(recording) = &mut queue.recording {
            recording.wait(now, queue.counters.queued);
        }
        if queue.has_to_wait(now, [front, rest.bytes]) {
            put(&mut self.shaped, link);
            return;
        }
        if queue.waiting.is_empty() {
            self.waiting.push(link);
        }
        queue.waiting.push_on(link, front, rest);
        recorded(&mut queue.recording, now, front.len() + rest.bytes.len());
    }

    /// A message about a path waits for a port, whatever else does, unless too many of these do.
    pub(super) fn put_first(
        &mut self,
        ports: &mut IdMap<Port>,
        now: Instant,
        link: LinkId,
        parts: [&[u8]; 2],
    ) {
        let Some(Port { queue, .. }) = ports.get_mut(link.0) else { return };
        if queue.counters.queued >= 2 * u64::from(QUEUE_MAX) {
            queue.counters.queue_full += 1;
            return;
        }
        if queue.first.is_empty() {
            self.first.push(link);
            queue.first.is_urgent = true;
        }
        queue.first.push_whole(link, parts);
        queue.counters.queued += 1;
        if let Some(shaper) = &mut queue.shaper {
            shaper.charge_later(parts[0].len() + parts[1].len());
        }
        recorded(&mut queue.recording, now, parts[0].len() + parts[1].len());
    }

    /// A port is gone.
    pub(super) fn forget(&mut self, link: LinkId) {
        for list in [&mut self.first, &mut self.waiting, &mut self.shaped] {
            list.retain(|due| *due != link);
        }
    }
}

fn put(list: &mut Vec<LinkId>, link: LinkId) {
    if !list.contains(&link) {
        list.push(link);
    }
}

impl Forwarder {
    /// A port may send so much; `None`: whatever its interface takes.
    pub(super) fn set_rate(&mut self, link: LinkId, rate: Option<Rate>) {
        let Some(Port { queue, .. }) = self.ports.get_mut(link.0) else { return };
        match (rate, &mut queue.shaper) {
            (Some(rate), Some(shaper)) => shaper.set_rate(rate),
            (Some(rate), None) => queue.shaper = Some(Box::new(Shaper::new(rate))),
            (None, None) => {}
            (None, Some(_)) => {
                let mut shaper = queue.shaper.take().expect("it was looked at");
                let waiting = &mut queue.waiting;
                while shaper
                    .take_whatever_the_rate(|parts| waiting.push_whole(link, parts))
                    .is_some()
                {}
                if !queue.waiting.is_empty() {
                    put(&mut self.due.waiting, link);
                }
                self.due.shaped.retain(|due| *due != link);
            }
        }
    }

    /// What leaves by a port from now on is recorded, for so many milliseconds; 0: not any more.
    pub(super) fn record(&mut self, now: Instant, link: LinkId, milliseconds: u16) {
        let Some(Port { queue, .. }) = self.ports.get_mut(link.0) else { return };
        let none = || vec![0; milliseconds.into()];
        let bins = || Bins { bytes: none(), queued: none() };
        queue.recording =
            (milliseconds > 0).then(|| Box::new(Recording { began: now, bins: bins() }));
    }

    /// Frames of a batch that begin in this process wait for their port's rate: they are copied, and
    /// the batch has them no more.
    #[cold]
    pub(super) fn wait(
        &mut self,
        now: Instant,
        batch: &mut FrameBatch,
        numbers: &[usize],
        memory: &dyn Memory,
    ) {
        for number in numbers {
            let frame = batch.frames[*number];
            let bytes = batch.to_bytes(&frame, memory);
            self.due.put(&mut self.ports, now, frame.link, &[], bytes[..].into());
        }
        let mut number = 0..;
        batch
            .frames
            .retain(|_| number.next().is_some_and(|one| numbers.binary_search(&one).is_err()));
    }

    /// Frames that wait for a rate leave as far as they may.
    #[inline]
    pub(super) fn release_when_due(&mut self, now: Instant) {
        if self.next_release().is_some_and(|at| at <= now) {
            self.release(now);
        }
    }

    #[cold]
    fn release(&mut self, now: Instant) {
        let Self { ports, due, .. } = self;
        due.shaped.retain(|link| {
            let Some(Port { queue, .. }) = ports.get_mut(link.0) else { return false };
            let was_empty = queue.waiting.is_empty();
            if queue.release(now, *link) && was_empty {
                due.waiting.push(*link);
            }
            queue.shaper.as_ref().is_some_and(|shaper| shaper.poll_timeout().is_some())
        });
    }

    /// When the next frames that wait for a rate may leave.
    #[inline]
    pub(super) fn next_release(&self) -> Option<Instant> {
        let at = |link: &LinkId| self.ports.get(link.0)?.queue.shaper.as_ref()?.poll_timeout();
        self.due.shaped.iter().filter_map(at).min()
    }

    /// What leaves next, if anything does.
    #[inline]
    pub(super) fn next_batch(&mut self) -> Option<FrameBatch> {
        let empty = self.due.spare.pop().unwrap_or_default();
        let full = if let Some(link) = self.due.first.pop() {
            &mut self.ports[link.0].queue.first
        } else if let Some(link) = self.due.waiting.pop() {
            &mut self.ports[link.0].queue.waiting
        } else {
            self.due.spare.push(empty);
            return None;
        };
        Some(core::mem::replace(full, empty))
    }

    /// A batch is back.
    #[inline]
    pub(super) fn batch_is_back(&mut self, mut batch: FrameBatch) {
        let link = batch.frames.first().map(|frame| frame.link);
        if let Some(port) = link.and_then(|link| self.ports.get_mut(link.0)) {
            // Some may be those of a port of this number that was there before.
            let queued = &mut port.queue.counters.queued;
            *queued = queued.saturating_sub(batch.frames.len() as u64);
        }
        batch.clear();
        if self.due.spare.len() < SPARE_BATCHES_MAX {
            self.due.spare.push(batch);
        }
    }
}
