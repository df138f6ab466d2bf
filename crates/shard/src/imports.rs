//! Imports: remote disks, each reached by an initiator of this shard's own.
//!
//! In: requests of volumes, events of the connections that the initiators asked for. Out: completions, effects for the driver, answers to
//! the orders that added imports, news. Times: the shard clock. Errors: an import that cannot be reached within its `connect_deadline` answers its
//! order with the address and what was seen there, and is gone; one that is lost later is sought again for as long as it exists.
//!
//! Every shard has an association of its own with each remote disk, so no request changes shards; what that means for durability and for requests
//! in flight at a break is written down in docs/decisions/0006-imports-per-shard.md.
//! An import that was removed lives on among the *retired* until the driver has closed its connections, so that no event comes too late for it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use block::{Completion, Instant, Memory, Request};
use contract::{
    ConnectionId, Direct, DiskFacts, DiskId, Effect, FrameBatch, InFrame, LinkFacts, LinkId, Loss,
    Next, Receive, SendBatch,
};
use nvme::tcp::initiator::Initiator;
use wire::aoe::Address;

use crate::mail::Mail;
pub use crate::remote::ImportSettings;
use crate::remote::{Remote, RemoteEffect};
use crate::report::ImportReport;
use crate::shard::Settings;

/// A serial number that no import has.
pub const NO_SERIAL: u32 = 0;

/// A remote disk and the initiator that stands in for it.
#[derive(Debug)]
pub struct Import {
    disk: DiskId,
    /// Which import of this shard it is: the upper half of its tokens.
    serial: u32,
    initiator: Remote,
    /// The order that added it, until it is answered, and when it is answered at the latest.
    order: Option<(u64, Instant)>,
    /// Facts that differ from those last told.
    renewed: bool,
}

impl Import {
    /// An import that begins to connect at once; order `number` is answered once it is connected or has given up.
    pub fn new(
        now: Instant,
        disk: DiskId,
        number: u64,
        settings: ImportSettings,
        shard: Settings,
    ) -> Import {
        let connect_by = now + settings.connect_deadline();
        // The seed differs by shard and disk, so that back-offs do not march in step.
        let seed = shard.seed ^ u64::from(disk.0) << 32 ^ u64::from(shard.shard.0);
        Import {
            disk,
            serial: 0,
            initiator: Remote::new(now, settings, shard, seed),
            order: Some((number, connect_by)),
            renewed: false,
        }
    }

    /// A request of a volume; answered by [`Imports::poll_completion`].
    #[inline]
    pub fn handle_request(&mut self, now: Instant, request: Request, _memory: &mut dyn Memory) {
        self.initiator.handle_request(now, request);
    }

    /// When it wants to be woken.
    fn poll_timeout(&self) -> Option<Instant> {
        let order = self.order.map(|(_, connect_by)| connect_by);
        self.initiator.poll_timeout().into_iter().chain(order).min()
    }

    /// The answer to the order that added it, once there is one.
    fn poll_ready(&mut self, now: Instant) -> Option<(u64, DiskId, Result<DiskFacts, String>)> {
        let (number, connect_by) = self.order?;
        let result = match self.initiator.facts() {
            Some(facts) => Ok(facts),
            None if now < connect_by => return None,
            None => Err(self.initiator.explain()),
        };
        self.order = None;
        self.renewed = false;
        if result.is_err() {
            self.initiator.close();
        }
        Some((number, self.disk, result))
    }
}

/// The imports of a shard.
#[derive(Debug)]
pub struct Imports {
    live: BTreeMap<DiskId, Import>,
    /// Those that are removed, but not yet closed by the driver.
    retired: Vec<Import>,
    next_serial: u32,
    effects: VecDeque<Effect<Mail>>,
    connected: Vec<(ConnectionId, DiskId)>,
    ready: Vec<(u64, DiskId, Result<DiskFacts, String>)>,
    news: Vec<(DiskId, String)>,
    unsettled: bool,
}

impl Imports {
    /// No imports.
    pub fn new(_shard: Settings) -> Imports {
        Imports {
            live: BTreeMap::new(),
            retired: Vec::new(),
            next_serial: NO_SERIAL + 1,
            effects: VecDeque::new(),
            connected: Vec::new(),
            ready: Vec::new(),
            news: Vec::new(),
            unsettled: false,
        }
    }

    /// Whether there is nothing to route.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.retired.is_empty()
    }

    /// Whether no request is under way.
    pub fn is_quiet(&self) -> bool {
        self.all().all(|import| import.initiator.in_flight() == 0)
    }

    /// Whether something happened since the last [`settle`](Self::settle).
    #[inline]
    pub fn needs_settle(&self) -> bool {
        self.unsettled && !self.is_empty()
    }

    /// Adds an import. One that had its number is retired.
    pub fn insert(&mut self, disk: DiskId, mut import: Import) {
        import.serial = self.next_serial;
        self.next_serial += 1;
        self.unsettled = true;
        if let Some(old) = self.live.insert(disk, import) {
            self.retired.push(old);
        }
    }

    /// The import that stands in for `disk`, if one does.
    #[inline]
    pub fn get_mut(&mut self, disk: DiskId) -> Option<&mut Import> {
        let import = self.live.get_mut(&disk)?;
        self.unsettled = true;
        Some(import)
    }

    /// Finishes what is under way on `disk`, shuts its controller down and forgets it.
    pub fn close(&mut self, disk: DiskId) {
        if let Some(mut import) = self.live.remove(&disk) {
            import.initiator.close();
            if let Some((number, _)) = import.order.take() {
                let why = "removed before it was connected".to_owned();
                self.ready.push((number, disk, Err(why)));
            }
            self.retired.push(import);
            self.unsettled = true;
        }
    }

    /// The shard drains: what is under way is finished, but nobody waits for a remote disk that is not there.
    pub fn close_all(&mut self) {
        self.live.values_mut().for_each(|import| import.initiator.drain());
        self.unsettled = true;
    }

    /// Whose connection a token asked for.
    pub fn disk_of(&self, token: u64) -> Option<DiskId> {
        let serial = (token >> 32) as u32;
        self.all().find(|import| import.serial == serial).map(|import| import.disk)
    }

    fn all(&self) -> impl Iterator<Item = &Import> {
        self.live.values().chain(&self.retired)
    }

    fn of_token(&mut self, token: u64) -> Option<&mut Import> {
        self.unsettled = true;
        let serial = (token >> 32) as u32;
        let all = self.live.values_mut().chain(&mut self.retired);
        all.into_iter().find(|import| import.serial == serial)
    }

    /// The import whose connection this is: nearly always the live one.
    #[inline]
    fn of_connection(&mut self, disk: DiskId, connection: ConnectionId) -> &mut Initiator {
        self.unsettled = true;
        let live = self.live.get_mut(&disk).filter(|import| import.initiator.owns(connection));
        let import: &mut Import = match live {
            Some(import) => import,
            None => self
                .retired
                .iter_mut()
                .find(|import| import.initiator.owns(connection))
                .expect("an import stays until its connections are closed"),
        };
        import.initiator.nvme_tcp().expect("only it has connections")
    }

    /// A connection that was asked for is there.
    pub fn connected(
        &mut self,
        now: Instant,
        token: u64,
        connection: ConnectionId,
        _local: SocketAddr,
        _memory: &mut dyn Memory,
    ) {
        if let Some(import) = self.of_token(token) {
            let disk = import.disk;
            let initiator = import.initiator.nvme_tcp().expect("only it has connections");
            initiator.handle_connected(now, token as u32, connection);
            self.connected.push((connection, disk));
        }
    }

    /// A connection that was asked for could not be had.
    pub fn connect_failed(
        &mut self,
        now: Instant,
        token: u64,
        error: i32,
        _memory: &mut dyn Memory,
    ) {
        if let Some(import) = self.of_token(token) {
            let initiator = import.initiator.nvme_tcp().expect("only it has connections");
            initiator.handle_connect_failed(now, token as u32, error);
        }
    }

    /// Bytes came.
    #[inline]
    pub fn received(
        &mut self,
        now: Instant,
        disk: DiskId,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        self.of_connection(disk, connection).handle_received(now, connection, bytes, memory)
    }

    /// A direct receive is complete.
    #[inline]
    pub fn direct(
        &mut self,
        now: Instant,
        disk: DiskId,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        self.of_connection(disk, connection).handle_direct(now, connection, direct, memory)
    }

    /// A batch has left.
    #[inline]
    pub fn sent(
        &mut self,
        now: Instant,
        disk: DiskId,
        connection: ConnectionId,
        batch: SendBatch,
        memory: &mut dyn Memory,
    ) {
        self.of_connection(disk, connection).handle_sent(now, connection, batch, memory);
    }

    /// Part of a batch has left.
    pub fn progress(&mut self, now: Instant, disk: DiskId, connection: ConnectionId) {
        self.of_connection(disk, connection).handle_progress(now, connection);
    }

    /// A connection carries nothing more.
    pub fn lost(
        &mut self,
        now: Instant,
        disk: DiskId,
        connection: ConnectionId,
        loss: Loss,
        _memory: &mut dyn Memory,
    ) {
        self.of_connection(disk, connection).handle_lost(now, connection, loss);
    }

    /// A connection is gone.
    pub fn closed(
        &mut self,
        now: Instant,
        disk: DiskId,
        connection: ConnectionId,
        direct: Option<Direct>,
        batch: Option<SendBatch>,
        _memory: &mut dyn Memory,
    ) {
        self.of_connection(disk, connection).handle_closed(now, connection, direct, batch);
    }

    /// A link is up, or is not what it was.
    pub fn link_up(&mut self, now: Instant, link: LinkId, facts: LinkFacts) {
        for initiator in self.live.values_mut().filter_map(|import| import.initiator.aoe()) {
            initiator.link_up(now, link, facts);
        }
        self.unsettled = true;
    }

    /// A link is down.
    pub fn link_down(&mut self, now: Instant, link: LinkId) {
        for initiator in self.live.values_mut().filter_map(|import| import.initiator.aoe()) {
            initiator.link_down(now, link);
        }
        self.unsettled = true;
    }

    /// A frame with an answer of this address to this tag, or an announcement, came; whether anybody here wanted it.
    #[inline]
    pub fn frame(
        &mut self,
        now: Instant,
        (address, tag): (Address, u32),
        frame: InFrame<'_>,
        memory: &mut dyn Memory,
    ) -> bool {
        let mut wanted = false;
        for import in self.live.values_mut().chain(&mut self.retired) {
            let Some(initiator) = import.initiator.aoe() else { continue };
            if initiator.wants(address, tag) {
                initiator.handle_frame(now, frame, memory);
                wanted = true;
            }
        }
        self.unsettled |= wanted;
        wanted
    }

    /// Frames of the import with this serial number have left. A batch of one that is gone has no buffers any more.
    pub fn frames_sent(&mut self, now: Instant, serial: u32, batch: FrameBatch) {
        if let Some(import) = self.of_token(u64::from(serial) << 32) {
            let initiator = import.initiator.aoe().expect("only it sends frames");
            initiator.handle_sent(now, batch);
        }
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) may have come.
    pub fn handle_timeout(&mut self, now: Instant, _memory: &mut dyn Memory) {
        for import in self.live.values_mut().chain(&mut self.retired) {
            if import.poll_timeout().is_some_and(|deadline| deadline <= now) {
                import.initiator.handle_timeout(now);
                self.unsettled = true;
            }
        }
    }

    /// The end of a turn: commands leave in batches, and what came of it is gathered.
    #[inline]
    pub fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !core::mem::take(&mut self.unsettled) {
            return;
        }
        for import in self.live.values_mut().chain(&mut self.retired) {
            import.initiator.settle(now, memory);
            let upper = u64::from(import.serial) << 32;
            while let Some(effect) = import.initiator.poll_effect() {
                self.effects.push_back(match effect {
                    RemoteEffect::Connect { token, address } => {
                        Effect::Connect { token: upper | u64::from(token), address }
                    }
                    RemoteEffect::Send { connection, batch } => Effect::Send { connection, batch },
                    RemoteEffect::Close { connection, after_send } => {
                        Effect::Close { connection, after_send }
                    }
                    RemoteEffect::SendFrames(batch) => {
                        Effect::SendFrames { token: import.serial, batch }
                    }
                });
            }
            while let Some((news, changed)) = import.initiator.poll_news() {
                import.renewed |= changed;
                self.news.push((import.disk, news));
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
        let gave_up = |import: &Import| import.initiator.is_closing();
        if self.live.values().any(gave_up) {
            for (disk, import) in core::mem::take(&mut self.live) {
                if gave_up(&import) {
                    self.retired.push(import);
                } else {
                    self.live.insert(disk, import);
                }
            }
            self.retired.iter_mut().for_each(|import| import.initiator.close());
        }
        self.retired.retain(|import| !import.initiator.is_gone());
    }

    /// What the driver should do.
    #[inline]
    pub fn take_effects(&mut self) -> impl Iterator<Item = Effect<Mail>> {
        self.effects.drain(..)
    }

    /// Connections that are new since the last call, and whose they are.
    pub fn take_connected(&mut self) -> Vec<(ConnectionId, DiskId)> {
        core::mem::take(&mut self.connected)
    }

    /// Answers to the orders that added imports: the order's number, the disk, its facts or why there are none.
    pub fn take_ready(&mut self) -> Vec<(u64, DiskId, Result<DiskFacts, String>)> {
        core::mem::take(&mut self.ready)
    }

    /// What people should know.
    pub fn take_news(&mut self) -> Vec<(DiskId, String)> {
        core::mem::take(&mut self.news)
    }

    /// Facts of imports whose remote disk changed since they were last told.
    pub fn take_renewed(&mut self) -> Vec<(DiskId, DiskFacts)> {
        let renewed = |import: &mut Import| {
            if import.order.is_some() || !core::mem::take(&mut import.renewed) {
                return None;
            }
            Some((import.disk, import.initiator.facts()?))
        };
        self.live.values_mut().filter_map(renewed).collect()
    }

    /// An answer to a request, straight from the initiator that has it.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        let mut all = self.live.values_mut().chain(&mut self.retired);
        let completion = all.find_map(|import| import.initiator.poll_completion());
        if completion.is_none() {
            self.retired.retain(|import| !import.initiator.is_gone());
        }
        completion
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called. At once while something waits for a settle, so that a
    /// request that came after the settle of its turn is not forgotten.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.needs_settle() {
            return Some(Instant::ZERO);
        }
        self.all().filter_map(Import::poll_timeout).min()
    }

    /// How the imports are, by number of their disks.
    pub fn report(&self) -> Vec<ImportReport> {
        let report = |import: &Import| ImportReport {
            disk: import.disk,
            state: import.initiator.state(),
            in_flight: import.initiator.in_flight(),
        };
        self.live.values().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use block::ShardId;
    use nvme::tcp::initiator::Settings;
    use testkit::Pages;
    use wire::nvme::Nqn;

    use super::*;

    const SHARD: crate::Settings =
        crate::Settings { shard: ShardId(0), shards: 1, pages: 4096, seed: 1 };
    const DISK: DiskId = DiskId(3);
    const START: Instant = Instant(1_000);

    fn import(number: u64) -> Import {
        let nqn = |name: &str| Nqn::new(name).expect("a valid name");
        let address = "127.0.0.1:4420".parse().expect("an address");
        let host = nqn("nqn.2014-08.org.nvmexpress:uuid:1");
        let subsystem = nqn("nqn.2026-11.net.plateway:a");
        let settings = Settings::new(address, subsystem, 1, host, [1; 16]);
        Import::new(START, DISK, number, ImportSettings::NvmeTcp(settings), SHARD)
    }

    fn asked(imports: &mut Imports) -> Vec<u64> {
        let token = |effect| match effect {
            Effect::Connect { token, .. } => token,
            other => panic!("{other:?}"),
        };
        imports.take_effects().map(token).collect()
    }

    #[test]
    fn an_import_that_cannot_connect_answers_with_address_and_reason_and_is_gone() {
        let mut imports = Imports::new(SHARD);
        imports.insert(DISK, import(17));
        imports.settle(START, &mut Pages::new());
        let mut now = START;
        loop {
            for token in asked(&mut imports) {
                assert_eq!(imports.disk_of(token), Some(DISK));
                imports.connect_failed(now, token, 111, &mut Pages::new());
            }
            imports.settle(now, &mut Pages::new());
            if let [(number, disk, Err(why))] = &imports.take_ready()[..] {
                assert_eq!((*number, *disk), (17, DISK));
                assert!(why.contains("127.0.0.1:4420") && why.contains("refused"), "{why}");
                break;
            }
            now = imports.poll_timeout().expect("it tries again").max(now);
            imports.handle_timeout(now, &mut Pages::new());
            imports.settle(now, &mut Pages::new());
        }
        assert_eq!(now.since(START), Duration::from_secs(10));
        while imports.needs_settle() {
            imports.settle(now, &mut Pages::new());
        }
        assert!(imports.is_empty());
    }

    #[test]
    fn a_connection_that_comes_for_a_removed_import_is_closed_and_not_given_to_its_successor() {
        let mut imports = Imports::new(SHARD);
        imports.insert(DISK, import(1));
        imports.settle(START, &mut Pages::new());
        let old = asked(&mut imports)[0];
        imports.close(DISK);
        assert!(imports.take_ready()[0].2.is_err(), "its order is answered");
        imports.insert(DISK, import(2));
        imports.settle(START, &mut Pages::new());
        let new = asked(&mut imports)[0];
        assert_ne!(old, new);
        let connection = ConnectionId { slot: 5, generation: 0 };
        let local = "127.0.0.1:9".parse().expect("an address");
        imports.connected(START, old, connection, local, &mut Pages::new());
        assert_eq!(imports.disk_of(old), Some(DISK));
        imports.settle(START, &mut Pages::new());
        let close = imports.take_effects().next();
        assert!(matches!(close, Some(Effect::Close { connection: c, .. }) if c == connection));
        imports.closed(START, DISK, connection, None, None, &mut Pages::new());
        imports.settle(START, &mut Pages::new());
        assert_eq!(imports.disk_of(old), None, "the old one is gone");
        assert_eq!(imports.disk_of(new), Some(DISK));
    }

    #[test]
    fn a_shard_without_imports_never_asks_to_be_woken_for_them() {
        let mut imports = Imports::new(SHARD);
        imports.close_all();
        assert_eq!(imports.poll_timeout(), None, "a drain with nothing imported");
        imports.connect_failed(START, 1 << 32, 111, &mut Pages::new());
        assert_eq!(imports.poll_timeout(), None, "an answer for an import that is gone");
    }

    #[test]
    fn requests_that_came_after_a_settle_are_not_forgotten() {
        let mut imports = Imports::new(SHARD);
        imports.insert(DISK, import(1));
        imports.settle(START, &mut Pages::new());
        assert!(!imports.needs_settle());
        let ticket = block::Ticket::default();
        let request = Request { ticket, operation: block::Operation::Flush };
        let import = imports.get_mut(DISK).expect("it is there");
        import.handle_request(START, request, &mut Pages::new());
        assert!(imports.needs_settle() && imports.poll_timeout() == Some(Instant::ZERO));
        assert!(!imports.is_quiet());
    }
}
