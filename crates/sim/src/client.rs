//! A client: what works, inside a shard whose one disk is imported over the virtual network, on the
//! volume over it and writes down what it saw.
//!
//! The shard and the initiator in it are the real ones, and the client is an internal client of it.
//! It draws its work from a seed of its own and keeps up to `depth` requests under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{
    Account, Buffer, Completion, Extent, Failure, Instant, Memory, Operation, Outcome, Random,
    ShardId, Sought, VolumeId,
};
use contract::{
    Ask, ConnectionId, Direct, Effect, Event, FrameBatch, InFrame, Machine, Next, Receive,
};
use reservation::replica;
use shard::{ClientContext, InternalClient, Mail, Shard};
use testkit::oracle::Content;
use wire::ata::IdentifyDevice;

use crate::disk::SECTOR;
use crate::fairness::Fairness;
use crate::world::World;
use crate::writer::{Ids, Log, Write, Writer};

/// The volume on a client.
pub const VOLUME: VolumeId = VolumeId(0);

/// A world of simulated shards.
pub(crate) type SimWorld = World<Simulated>;

/// A simulated shard: a target's, or a client's.
#[derive(Debug)]
pub struct Simulated {
    shard: Shard,
    client: Option<SharedClient>,
    /// Payloads that were received straight into their buffers.
    pub direct: u64,
    /// A planted error: the shard says that it holds, and does not.
    pub forgets_holds: bool,
    /// A planted error: the shard says that a reservation is in force, and it is not.
    pub(crate) forgets_fences: bool,
    /// What makes that copies of writes are not seen to be copies: a planted error, or another kind
    /// of target.
    pub(crate) disguise: Option<Disguise>,
    planted: Vec<(ShardId, Mail)>,
    /// Who waits for memory, and what others got meanwhile.
    fairness: Fairness,
}

/// Gives ATA frames that come tags of their own, so that a target does not know them again, and
/// their answers the tags that they had.
#[derive(Debug)]
pub(crate) enum Disguise {
    /// Copies of writes: these came before.
    Copies(BTreeSet<Vec<u8>>, Originals),
    /// All, and under sources of their own: as a target that knows neither order nor copies, and
    /// carries out each frame as it comes.
    All(Originals),
    /// None; but its answers to IDENTIFY say that a write cache is on.
    Cached,
}

/// Sources and tags of frames that were given others, by these.
type Originals = BTreeMap<u32, ([u8; 6], [u8; 4])>;

impl Disguise {
    /// Of tags that are given: no initiator of ours has it.
    const GIVEN: u32 = 1 << 31;
    /// Where a frame without a VLAN tag has its AoE tag.
    const TAG_AT: usize = 20;

    pub(crate) fn copies() -> Disguise {
        Disguise::Copies(BTreeSet::new(), Originals::new())
    }

    pub(crate) fn all() -> Disguise {
        Disguise::All(Originals::new())
    }

    /// A frame that came.
    fn put_on(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let is_ata = bytes.len() >= 36 && bytes[19] == 0;
        let is_write = is_ata && bytes.len() > 36 + SECTOR && bytes[24] & 1 != 0;
        let (originals, source) = match self {
            Disguise::Copies(seen, originals) if is_write => {
                if seen.insert(bytes[6..36].to_vec()) {
                    return bytes;
                }
                (originals, None)
            }
            Disguise::All(originals) if is_ata => {
                let [_, a, b, c] = (originals.len() as u32).to_be_bytes();
                (originals, Some([2, 0xee, 0, a, b, c]))
            }
            _ => return bytes,
        };
        let tag = Self::GIVEN | originals.len() as u32;
        let own = (&bytes[6..12], &bytes[Self::TAG_AT..Self::TAG_AT + 4]);
        let own = (own.0.try_into().expect("6 bytes"), own.1.try_into().expect("4 bytes"));
        originals.insert(tag, own);
        bytes[6..12].copy_from_slice(&source.unwrap_or(own.0));
        bytes[Self::TAG_AT..Self::TAG_AT + 4].copy_from_slice(&tag.to_be_bytes());
        bytes
    }

    /// Answers go where they belong, with the tags that are known there.
    fn take_off(&self, batch: &mut FrameBatch) {
        for frame in &batch.frames {
            let bytes = &mut batch.head[frame.head as usize..][..frame.head_length as usize];
            let vlan = if bytes[12..14] == [0x81, 0x00] { 4 } else { 0 };
            let (Disguise::Copies(_, originals) | Disguise::All(originals)) = self else {
                cache(&mut bytes[vlan..]);
                continue;
            };
            let place = &mut bytes[Self::TAG_AT + vlan..][..4];
            let tag = u32::from_be_bytes((&*place).try_into().expect("4 bytes"));
            if let Some((source, own)) = originals.get(&tag) {
                place.copy_from_slice(own);
                bytes[..6].copy_from_slice(source);
            }
        }
    }
}

/// Turns the write cache on in an answer to IDENTIFY, without a VLAN tag: only that and SMART have
/// a sector in the frame's head.
fn cache(frame: &mut [u8]) {
    let Some(sector) = frame.get_mut(36..36 + SECTOR) else { return };
    if let Ok(identity) = IdentifyDevice::parse(sector) {
        let identity = IdentifyDevice { write_cache: true, ..identity };
        sector.copy_from_slice(&identity.emit());
    }
}

/// How a client works.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Blocks of the volume that it works on.
    pub blocks: u64,
    /// Blocks of a logical block of the volume: extents begin and end at multiples of it.
    pub unit: u64,
    /// Blocks at the front of the volume that half of the requests go to.
    pub hot: u64,
    /// Requests under way at most.
    pub depth: usize,
    /// The largest request, in blocks.
    pub request_max: u64,
    /// Mean time between two requests, in microseconds; they come in bursts of about `depth`.
    pub interval_us: u64,
}

/// A request under way.
#[derive(Debug)]
struct Visit {
    start: u64,
    /// Its blocks; the number is 0 if it changes nothing.
    write: Write,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write { durable: bool },
    Zeroes { durable: bool },
    Discard,
    Flush,
    Compare,
    CompareAndWrite,
    Verify,
    Seek,
}

/// Who works on the volume of a shard.
#[derive(Debug)]
pub struct Client {
    random: Random,
    /// The writes of its host.
    ids: Ids,
    work: Option<Work>,
    visits: BTreeMap<u32, Visit>,
    account: Account,
    next_slot: u32,
    pub(crate) writer: Writer,
    next_at: Instant,
    stopping: bool,
    /// What is to be read, whatever else is under way.
    wanted: Option<(u64, u64)>,
    /// Whether what is answered is durable, and a flush says nothing.
    pub(crate) is_durable: bool,
    /// Requests that ended as asked.
    pub done: u64,
    /// Requests that ended otherwise.
    pub failed: u64,
    /// Of these, those that were refused as protected or reserved.
    pub refused: u64,
    /// How the last of them ended, apart from compares that found something else.
    pub last_failure: Option<Outcome>,
}

impl Client {
    pub(crate) fn new(random: Random, writer: Writer, ids: Ids) -> Client {
        Client {
            random,
            ids,
            work: None,
            visits: BTreeMap::new(),
            account: Account::default(),
            next_slot: 0,
            writer,
            next_at: Instant::ZERO,
            stopping: false,
            wanted: None,
            is_durable: false,
            done: 0,
            failed: 0,
            refused: 0,
            last_failure: None,
        }
    }

    /// Begins to work; the volume is there.
    pub fn begin(&mut self, work: Work) {
        self.work = Some(work);
    }

    /// Begins nothing new.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.visits.is_empty() && self.wanted.is_none()
    }

    /// Writes that are under way, for when the client dies.
    pub(crate) fn writes_under_way(&self) -> Vec<Write> {
        self.visits.values().map(|visit| visit.write).filter(|write| write.id > 0).collect()
    }

    /// What is under way, in words.
    pub fn under_way(&self) -> String {
        let visit = |visit: &Visit| {
            let Visit { start, write: Write { first, count, .. }, kind } = visit;
            format!("{kind:?} of {count} at {first} since {start}")
        };
        self.visits.values().map(visit).collect::<Vec<_>>().join(", ")
    }

    /// Has blocks read at its next turn, whatever else is under way.
    pub fn read(&mut self, first: u64, count: u64) {
        self.wanted = Some((first, count));
    }

    fn draw(&mut self, context: &mut ClientContext<'_>) {
        let now = context.now;
        let Some(work) = self.work else { return };
        while !self.stopping && self.visits.len() < work.depth && self.next_at <= now {
            let (first, count) = self.draw_extent(work);
            let durable = self.random.chance(1, 4);
            let kind = match self.random.below(100) {
                0..36 => Kind::Read,
                36..74 => Kind::Write { durable },
                74..79 => Kind::Zeroes { durable },
                79..82 => Kind::Discard,
                82..89 => Kind::Flush,
                89..92 => Kind::Compare,
                92..98 => Kind::CompareAndWrite,
                98 => Kind::Verify,
                _ => Kind::Seek,
            };
            let few = 4 * work.unit;
            let count = if kind == Kind::CompareAndWrite { count.min(few) } else { count };
            if !self.ask(kind, first, count, context) {
                break;
            }
            // They come in bursts of about `depth`.
            if self.random.chance(1, work.depth as u64) {
                let most = 2 * work.interval_us * work.depth as u64 * 1_000;
                let pause = self.random.below(most + 1);
                self.next_at = now + core::time::Duration::from_nanos(pause);
            }
        }
    }

    /// First block and count of a request's extent.
    fn draw_extent(&mut self, work: Work) -> (u64, u64) {
        let units = work.blocks / work.unit;
        let most = (work.request_max / work.unit).clamp(1, units);
        let count = if self.random.chance(1, 3) { 1 } else { 1 + self.random.below(most) };
        let hot = (work.hot / work.unit).max(1);
        let places = units - count + 1;
        let places = if self.random.chance(1, 2) { places.min(hot) } else { places };
        let first = self.random.below(places);
        (first * work.unit, count * work.unit)
    }

    fn take_buffer(
        &mut self,
        first: u64,
        count: u64,
        context: &mut ClientContext<'_>,
    ) -> Option<Buffer> {
        let phase = (first * SECTOR as u64 % 4096) as u32;
        context.take(&mut self.account, (count * SECTOR as u64) as u32, phase)
    }

    /// Sends one request. Returns false when there is no memory for it.
    fn ask(&mut self, kind: Kind, first: u64, count: u64, context: &mut ClientContext<'_>) -> bool {
        let now = context.now;
        let extent = Extent::new(first * SECTOR as u64, count * SECTOR as u64);
        let mut write = Write { id: 0, first, count };
        let operation = match kind {
            Kind::Read => {
                let Some(buffer) = self.take_buffer(first, count, context) else { return false };
                Operation::Read { extent, buffer }
            }
            Kind::Flush => Operation::Flush,
            Kind::Verify => Operation::Verify { extent },
            Kind::Seek => Operation::Seek { extent, sought: Sought::Data },
            Kind::Discard => {
                write = self.writer.begin(now.0, Content::Zeros, first, count);
                Operation::Discard { extents: vec![extent] }
            }
            Kind::Zeroes { durable } => {
                write = self.writer.begin(now.0, Content::Zeros, first, count);
                let deallocate = self.random.chance(1, 2);
                Operation::WriteZeroes { extent, deallocate, durable }
            }
            Kind::Write { durable } => {
                let Some(mut buffer) = self.take_buffer(first, count, context) else {
                    return false;
                };
                write = self.writer.begin(now.0, Content::Pattern, first, count);
                context.memory.write(&mut buffer, 0, &write.pattern());
                Operation::Write { extent, buffer, durable }
            }
            Kind::Compare => {
                let Some(mut buffer) = self.take_buffer(first, count, context) else {
                    return false;
                };
                let expected = self.writer.expectation(first, count);
                context.memory.write(&mut buffer, 0, &expected);
                Operation::Compare { extent, buffer }
            }
            Kind::CompareAndWrite => {
                let Some(mut expected) = self.take_buffer(first, count, context) else {
                    return false;
                };
                let Some(mut replacement) = self.take_buffer(first, count, context) else {
                    context.give(&mut self.account, expected);
                    return false;
                };
                let bytes = self.writer.expectation(first, count);
                context.memory.write(&mut expected, 0, &bytes);
                write = self.writer.begin(now.0, Content::Pattern, first, count);
                context.memory.write(&mut replacement, 0, &write.pattern());
                let durable = false;
                let expected = Box::new(expected);
                Operation::CompareAndWrite { extent, expected, replacement, durable }
            }
        };
        let slot = self.next_slot;
        self.next_slot += 1;
        self.visits.insert(slot, Visit { start: now.0, write, kind });
        context.submit(VOLUME, slot, operation);
        true
    }
}

/// A client, of which the world knows as well.
#[derive(Clone, Debug)]
pub(crate) struct SharedClient(Arc<Mutex<Client>>);

impl SharedClient {
    fn lock(&self) -> MutexGuard<'_, Client> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InternalClient for SharedClient {
    fn handle_completion(&mut self, completion: Completion, context: &mut ClientContext<'_>) {
        self.lock().handle_completion(completion, context);
    }

    fn handle_turn(&mut self, context: &mut ClientContext<'_>) {
        let mut client = self.lock();
        if let Some((first, count)) = client.wanted
            && client.ask(Kind::Read, first, count, context)
        {
            client.wanted = None;
        }
        client.draw(context);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let client = self.lock();
        let work = client.work.filter(|_| !client.stopping)?;
        (client.visits.len() < work.depth).then_some(client.next_at)
    }

    fn is_over(&self) -> bool {
        false
    }
}

impl Client {
    /// A request ended otherwise than it was asked.
    fn note_failure(&mut self, visit: &Visit, outcome: Outcome, end: u64) {
        let Visit { start, kind, .. } = *visit;
        // Over AoE what is reserved is not ready.
        let refusal = if self.is_durable { Failure::NotReady } else { Failure::WriteProtected };
        let why = outcome.failure();
        self.refused += u64::from(outcome == Outcome::NotDone(refusal));
        let is_refusal = why == Some(refusal) || why == Some(Failure::WriteProtected);
        if is_refusal || why == Some(Failure::MediumWrite) {
            let changes = !matches!(kind, Kind::Read | Kind::Compare | Kind::Verify | Kind::Seek);
            // A disk whose flush failed, or was refused, takes no writes for a while; and over AoE
            // more than what is reserved is not ready.
            let is_after = changes || self.is_durable;
            self.writer.log.push(Log::Refused { start, end, changes, is_after });
        }
        let is_told = is_refusal && matches!(outcome, Outcome::NotDone(_));
        if !(is_told || matches!(outcome, Outcome::Miscompare(_))) {
            self.last_failure = Some(outcome);
        }
    }

    fn handle_completion(&mut self, completion: Completion, context: &mut ClientContext<'_>) {
        let visit =
            self.visits.remove(&completion.ticket.slot).expect("a request is answered once");
        let Visit { start, write, kind } = visit;
        let done = completion.outcome.is_done();
        if done || matches!(completion.outcome, Outcome::Found(_)) {
            self.done += 1;
        } else {
            self.failed += 1;
            self.note_failure(&visit, completion.outcome, context.now.0);
        }
        let at = context.now.0;
        let first = write.first;
        match kind {
            // What it was compared with is what it holds: as good as a read.
            Kind::Read | Kind::Compare if done => {
                let mut bytes = vec![0; completion.buffer.len() as usize];
                context.memory.read(&completion.buffer, 0, &mut bytes);
                if kind == Kind::Read {
                    self.writer.remember(first, &bytes);
                }
                self.writer.log.push(Log::Read { start, end: at, first, bytes });
            }
            // What lies before the first data reads as zeros.
            Kind::Seek if completion.outcome.failure().is_none() => {
                let length = match completion.outcome {
                    Outcome::Found(length) => length as usize / SECTOR * SECTOR,
                    _ => write.count as usize * SECTOR,
                };
                // An initiator takes all for data and asks nobody: that is no read.
                if length > 0 {
                    let bytes = vec![0; length];
                    self.writer.log.push(Log::Read { start, end: at, first, bytes });
                }
            }
            Kind::Read | Kind::Compare | Kind::Verify | Kind::Seek => {}
            // It may have zeroed any part.
            Kind::Discard => self.writer.end(at, write, false, false),
            Kind::CompareAndWrite if matches!(completion.outcome, Outcome::Miscompare(_)) => {
                self.writer.never(write);
            }
            Kind::Write { .. } | Kind::Zeroes { .. } | Kind::CompareAndWrite => {
                let (is_zeros, durable) = match kind {
                    Kind::Write { durable } => (false, durable),
                    Kind::Zeroes { durable } => (true, durable),
                    _ => (false, false),
                };
                if done {
                    // What it wrote itself is what it expects to find.
                    let zeros = || vec![0; write.count as usize * SECTOR];
                    let bytes = if is_zeros { zeros() } else { write.pattern() };
                    self.writer.remember(first, &bytes);
                }
                self.writer.end(at, write, done, durable || self.is_durable);
            }
            Kind::Flush if self.is_durable => {}
            Kind::Flush => {
                let by = self.ids;
                let log = if done { Log::Flushed { start, by } } else { Log::Doubted { by } };
                self.writer.log.push(log);
            }
        }
        context.give(&mut self.account, completion.buffer);
        if let Some(expected) = completion.expected {
            context.give(&mut self.account, *expected);
        }
    }
}

impl Simulated {
    pub(crate) fn new(shard: Shard) -> Simulated {
        Simulated {
            shard,
            client: None,
            direct: 0,
            forgets_holds: false,
            forgets_fences: false,
            disguise: None,
            planted: Vec::new(),
            fairness: Fairness::default(),
        }
    }

    /// The world looks after this client of the shard. Returns what the shard is to be given.
    pub(crate) fn look_after(&mut self, client: Client) -> Box<SharedClient> {
        let client = SharedClient(Arc::new(Mutex::new(client)));
        self.client = Some(client.clone());
        Box::new(client)
    }

    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The client, if it has one.
    pub fn client(&self) -> Option<MutexGuard<'_, Client>> {
        self.client.as_ref().map(SharedClient::lock)
    }
}

impl Machine for Simulated {
    type Mail = Mail;

    fn handle_event(&mut self, now: Instant, event: Event<Mail>, memory: &mut dyn Memory) {
        if self.forgets_holds
            && let Event::Mail {
                from,
                mail: Mail::Volume(volume::Message::Hold { volume, hold, .. }),
            } = &event
        {
            let ready = volume::Message::HoldReady { volume: *volume, hold: *hold };
            self.planted.push((*from, Mail::Volume(ready)));
            return;
        }
        if self.forgets_fences
            && let Event::Mail {
                from,
                mail: Mail::Reservation(replica::Message::Install { key, version, .. }),
            } = &event
        {
            let installed = replica::Message::Installed { key: *key, version: *version };
            self.planted.push((*from, Mail::Reservation(installed)));
            return;
        }
        self.shard.handle_event(now, event, memory);
    }

    fn handle_received(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        self.shard.handle_received(now, connection, bytes, memory)
    }

    fn handle_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        match &mut self.disguise {
            Some(disguise) => {
                let bytes = disguise.put_on(frame.bytes);
                self.shard.handle_frame(now, InFrame::new(frame.link, frame.tag, &bytes), memory);
            }
            None => self.shard.handle_frame(now, frame, memory),
        }
    }

    fn handle_direct(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        self.direct += 1;
        self.shard.handle_direct(now, connection, direct, memory)
    }

    fn handle_timeout(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.shard.handle_timeout(now, memory);
    }

    fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.shard.settle(now, memory);
        self.fairness.check(&mut self.shard);
    }

    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        self.shard.take_requests(asks);
    }

    fn poll_effect(&mut self) -> Option<Effect<Mail>> {
        if let Some((to, mail)) = self.planted.pop() {
            return Some(Effect::Mail { to, mail });
        }
        let mut effect = self.shard.poll_effect();
        if let (Some(disguise), Some(Effect::SendFrames { batch, .. })) =
            (&self.disguise, &mut effect)
        {
            disguise.take_off(batch);
        }
        effect
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.shard.poll_timeout()
    }
}
