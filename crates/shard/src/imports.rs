//! Imports: remote disks, each reached by an initiator of this shard's own.
//!
//! In: requests of volumes, events of the connections that the initiators asked for. Out:
//! completions, effects for the driver, answers to the orders that added imports, news. Times: the
//! shard clock. Errors: an import that is refused for good, or that cannot be reached within its
//! `connect_deadline`, answers its order with the address and what was seen there, and is gone; one
//! that is lost later is sought again for as long as it exists.
//!
//! Every shard has an association of its own with each remote disk, so no request changes shards;
//! what that means for durability and for requests in flight at a break is written down in
//! docs/decisions/0006-imports-per-shard.md. A disk behind a link of one shard is reached by that one
//! alone (`elsewhere` has what the others do). An import that was removed lives on among the
//! *retired* until the driver has closed its connections, so that no event comes too late for it.

use core::iter::from_fn;
use std::collections::VecDeque;

use block::{Completion, IdMap, Instant, Memory, Request};
use contract::{
    ConnectionId, DiskFacts, DiskId, Effect, FrameBatch, LinkFacts, LinkId, OpenedFrame,
};

use crate::mail::{ImportEvent, Mail};
use crate::remote::{Answered, FrameInitiator, ImportSettings, Remote, StreamInitiator};
use crate::report::ImportReport;
use crate::shard::Settings;

/// A remote disk and the initiator that stands in for it.
#[derive(Debug)]
pub(crate) struct Import {
    disk: DiskId,
    /// Which import of this shard it is, from 1 on: the upper half of its tokens.
    serial: u32,
    remote: Remote,
    /// The order that added it, until it is answered, and when it is answered at the latest.
    order: Option<(u64, Instant)>,
    /// Facts that differ from those last told.
    renewed: bool,
}

impl Import {
    /// A request of a volume, taken out of where it lies; answered by
    /// [`Imports::take_completions`].
    #[inline]
    pub(crate) fn handle_request(&mut self, now: Instant, request: &mut Request) {
        self.remote.handle_request(now, request);
    }

    fn stream(&mut self) -> Option<&mut StreamInitiator> {
        match &mut self.remote {
            Remote::Stream(initiator) => Some(initiator),
            Remote::Frame(_) => None,
        }
    }

    fn frame(&mut self) -> Option<&mut FrameInitiator> {
        match &mut self.remote {
            Remote::Stream(_) => None,
            Remote::Frame(initiator) => Some(initiator),
        }
    }

    /// When it wants to be woken.
    fn poll_timeout(&self) -> Option<Instant> {
        let order = self.order.map(|(_, connect_by)| connect_by);
        self.remote.poll_timeout().into_iter().chain(order).min()
    }

    /// The answer to the order that added it, once there is one.
    fn poll_ready(&mut self, now: Instant) -> Option<(u64, DiskId, Result<DiskFacts, String>)> {
        let (number, connect_by) = self.order?;
        let result = match self.remote.facts() {
            Some(facts) => Ok(facts),
            None if now < connect_by && !self.remote.is_refused() => return None,
            None => Err(self.remote.explain()),
        };
        self.order = None;
        self.renewed = false;
        if result.is_err() {
            self.remote.close();
        }
        Some((number, self.disk, result))
    }
}

/// The imports of a shard.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// By number of the disk.
    live: IdMap<Import>,
    /// Those that are removed, but not yet closed by the driver.
    retired: Vec<Import>,
    last_serial: u32,
    /// What the driver should do.
    pub(crate) effects: VecDeque<Effect<Mail>>,
    /// Answers to the orders that added imports: the order's number, the disk, its facts or why
    /// there are none.
    pub(crate) ready: Vec<(u64, DiskId, Result<DiskFacts, String>)>,
    /// What people should know.
    pub(crate) news: Vec<(DiskId, ImportEvent, String)>,
    unsettled: bool,
}

impl Imports {
    /// Whether there is nothing to route.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.retired.is_empty()
    }

    /// Whether no request is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.all().all(|import| import.remote.in_flight() == 0)
    }

    /// Whether something happened since the last [`settle`](Self::settle).
    #[inline]
    pub(crate) fn needs_settle(&self) -> bool {
        self.unsettled && !self.is_empty()
    }

    /// Adds an import, which begins to connect at once; order `number` is answered once it is
    /// connected or has given up. One that stood in for the disk is retired. `sharers` shards have
    /// one.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        disk: DiskId,
        number: u64,
        settings: ImportSettings,
        (shard, sharers): (Settings, u16),
    ) {
        self.last_serial += 1;
        self.unsettled = true;
        let order = Some((number, now + settings.connect_deadline()));
        // The seed differs by shard and disk, so that back-offs do not march in step.
        let seed = shard.seed ^ u64::from(disk.0) << 32 ^ u64::from(shard.shard.0);
        let remote = Remote::new(settings, shard, sharers, seed);
        let import = Import { disk, serial: self.last_serial, remote, order, renewed: false };
        if let Some(old) = self.live.insert(disk.0, import) {
            self.retired.push(old);
        }
    }

    /// The import that stands in for `disk`, if one does.
    #[inline]
    pub(crate) fn get_mut(&mut self, disk: DiskId) -> Option<&mut Import> {
        let import = self.live.get_mut(disk.0)?;
        self.unsettled = true;
        Some(import)
    }

    /// Finishes what is under way on `disk`, shuts its controller down and forgets it.
    pub(crate) fn close(&mut self, disk: DiskId) {
        if let Some(mut import) = self.live.remove(disk.0) {
            import.remote.close();
            if let Some((number, _)) = import.order.take() {
                let why = "removed before it was connected".to_owned();
                self.ready.push((number, disk, Err(why)));
            }
            self.retired.push(import);
            self.unsettled = true;
        }
    }

    /// The shard drains: what is under way is finished, but nobody waits for a remote disk that is
    /// not there.
    pub(crate) fn drain(&mut self) {
        self.live.values_mut().for_each(|import| import.remote.drain());
        self.unsettled = true;
    }

    /// Nothing is asked any more: targets are told that we leave.
    pub(crate) fn close_all(&mut self) {
        let disks: Vec<u32> = self.live.iter().map(|(disk, _)| disk).collect();
        disks.into_iter().for_each(|disk| self.close(DiskId(disk)));
    }

    fn all(&self) -> impl Iterator<Item = &Import> {
        self.live.iter().map(|(_, import)| import).chain(&self.retired)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Import> {
        self.live.values_mut().chain(&mut self.retired)
    }

    fn of_serial(&mut self, serial: u32) -> Option<&mut Import> {
        self.unsettled = true;
        self.all_mut().find(|import| import.serial == serial)
    }

    /// The initiator whose connection this is: nearly always that of the live import.
    #[inline]
    pub(crate) fn stream(
        &mut self,
        disk: DiskId,
        connection: ConnectionId,
    ) -> &mut StreamInitiator {
        self.unsettled = true;
        let all = self.live.get_mut(disk.0).into_iter().chain(&mut self.retired);
        let mut streams = all.filter_map(Import::stream);
        let owner = streams.find(|initiator| initiator.owns(connection));
        owner.expect("an import stays until its connections are closed")
    }

    /// A connection that was asked for is there. Returns whose it is; `None` if nobody wants it any
    /// more.
    pub(crate) fn connected(
        &mut self,
        now: Instant,
        token: u64,
        connection: ConnectionId,
    ) -> Option<DiskId> {
        let import = self.of_serial((token >> 32) as u32)?;
        let disk = import.disk;
        import.stream()?.handle_connected(now, token as u32, connection);
        Some(disk)
    }

    /// A connection that was asked for could not be had.
    pub(crate) fn connect_failed(&mut self, now: Instant, token: u64, error: i32) {
        let import = self.of_serial((token >> 32) as u32);
        if let Some(initiator) = import.and_then(Import::stream) {
            initiator.handle_connect_failed(now, token as u32, error);
        }
    }

    /// A link is up or not what it was; `None`: it is down.
    pub(crate) fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        for initiator in self.live.values_mut().filter_map(Import::frame) {
            initiator.handle_link(now, link, facts);
        }
        self.unsettled = true;
    }

    /// A frame came that may be wanted here; whether it was.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        now: Instant,
        answered: Answered,
        frame: &OpenedFrame<'_>,
        memory: &mut dyn Memory,
    ) -> bool {
        let mut wanted = false;
        for initiator in self.all_mut().filter_map(Import::frame) {
            if initiator.wants(answered) {
                initiator.handle_frame(now, frame, memory);
                wanted = true;
            }
        }
        self.unsettled |= wanted;
        wanted
    }

    /// Frames of the import with this serial number have left. A batch of one that is gone has no
    /// buffers any more.
    pub(crate) fn frames_sent(&mut self, now: Instant, serial: u32, batch: FrameBatch) {
        if let Some(initiator) = self.of_serial(serial).and_then(Import::frame) {
            initiator.handle_sent(now, batch);
        }
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) may have come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for import in self.live.values_mut().chain(&mut self.retired) {
            if import.poll_timeout().is_some_and(|deadline| deadline <= now) {
                import.remote.handle_timeout(now);
                self.unsettled = true;
            }
        }
    }

    /// The end of a turn: commands leave in batches, and what came of it is gathered.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !core::mem::take(&mut self.unsettled) {
            return;
        }
        for import in self.live.values_mut().chain(&mut self.retired) {
            import.remote.settle(now, memory);
            self.effects.extend(from_fn(|| import.remote.poll_effect(import.serial)));
            while let Some((event, words)) = import.remote.poll_news() {
                import.renewed |= event == ImportEvent::Changed;
                self.news.push((import.disk, event, words));
            }
            if let Some(ready) = import.poll_ready(now) {
                // What it gave up may have left effects for the next settle.
                self.unsettled |= ready.2.is_err();
                self.ready.push(ready);
            }
        }
        self.retire();
    }

    /// Moves what gave up to the retired, and forgets the retired that are gone.
    fn retire(&mut self) {
        let closing = |(disk, import): (u32, &Import)| import.remote.is_closing().then_some(disk);
        let closing: Vec<u32> = self.live.iter().filter_map(closing).collect();
        for mut import in closing.into_iter().filter_map(|disk| self.live.remove(disk)) {
            import.remote.close();
            self.retired.push(import);
        }
        self.retired.retain(|import| !import.remote.is_gone());
    }

    /// Facts of imports whose remote disk changed since they were last told.
    pub(crate) fn take_renewed(&mut self) -> Vec<(DiskId, DiskFacts)> {
        let renewed = |import: &mut Import| {
            if import.order.is_some() || !core::mem::take(&mut import.renewed) {
                return None;
            }
            Some((import.disk, import.remote.facts()?))
        };
        self.live.values_mut().filter_map(renewed).collect()
    }

    /// The answers to requests, straight from the initiators that have them.
    #[inline]
    pub(crate) fn take_completions(&mut self, into: &mut Vec<Completion>) {
        self.all_mut().for_each(|import| import.remote.take_completions(into));
        if !self.retired.is_empty() {
            self.retired.retain(|import| !import.remote.is_gone());
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called. At once while something
    /// waits for a settle, so that a request that came after the settle of its turn is not
    /// forgotten.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        if self.unsettled {
            return Some(Instant::ZERO);
        }
        self.all().filter_map(Import::poll_timeout).min()
    }

    /// How the imports are, by number of their disks.
    pub(crate) fn report(&self) -> Vec<ImportReport> {
        let report = |import: &Import| ImportReport {
            disk: import.disk,
            state: import.remote.state(),
            identity: import.remote.identity(),
            in_flight: import.remote.in_flight(),
            counters: import.remote.counters(),
        };
        self.live.iter().map(|(_, import)| report(import)).collect()
    }
}

#[cfg(test)]
mod tests;
