//! A target with links, volumes in memory and agreements of one shard, and what it sends.

use block::{
    ByteCount, Extent, Failure, Instant, MachineId, Operation, Outcome, Request, ShardId, VolumeId,
};
use contract::{InFrame, LinkFacts, LinkId, Links};
use core::time::Duration;
use reservation::{Reservation, Value};
use std::collections::VecDeque;
use testkit::{Agreement, ShardStub, perform};
use wire::aoe::Address;
use wire::ethernet::{EtherType, MacAddress, VlanTag};

use crate::control::Control;
use crate::export::{Export, ExportId};
use crate::limits::{ANNOUNCED_AGAIN, SWEEP_PACE};
use crate::server::{Ask, Context, Notice, Target};

pub(super) const LINK: LinkId = LinkId(0);
pub(super) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(super) const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const B: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(super) const ALL: [u8; 6] = [0xff; 6];
pub(super) const EXPORT: ExportId = ExportId(0);
pub(super) const ADDRESS: Address = Address { shelf: 7, slot: 3 };
pub(super) const SECTORS: u64 = 1000;

/// How a volume answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// At once.
    Honest,
    /// When `answer` is called.
    Slow,
    /// With this failure.
    Fails(Failure),
}

/// A volume of sectors in memory.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) now: Vec<u8>,
    /// What a power cut would leave.
    pub(super) durable: Vec<u8>,
    pub(super) flushes: usize,
}

pub(super) struct World {
    pub(super) target: Target,
    pub(super) links: Links,
    /// Below it is what the target asked for in this turn.
    pub(super) shard: ShardStub<()>,
    pub(super) disks: Vec<Disk>,
    pub(super) mood: Mood,
    pub(super) below: VecDeque<(VolumeId, Request)>,
    pub(super) sent: Vec<(LinkId, Vec<u8>)>,
    pub(super) controls: Agreement<Control>,
    reservations: Agreement<Reservation>,
    pub(super) stores: bool,
}

pub(super) fn facts(mtu: u32) -> LinkFacts {
    LinkFacts { mac: OWN, mtu, vlan: None, ring_frames: 512, is_shared: true }
}

/// Frames of the initiator at `source`.
pub(super) fn frame(to: [u8; 6], source: [u8; 6], command: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let message = testkit::aoe::request(ADDRESS, command, tag, body);
    testkit::aoe::frame(MacAddress(to), MacAddress(source), None, &message)
}

/// An EXT command with 48 bits of address.
pub(super) fn ata(source: [u8; 6], tag: u32, op: u8, lba: u64, count: u8, data: &[u8]) -> Vec<u8> {
    frame(OWN, source, 0, tag, &testkit::aoe::ata(op, lba, count, data))
}

pub(super) fn read(source: [u8; 6], tag: u32, lba: u64, count: u8) -> Vec<u8> {
    ata(source, tag, 0x24, lba, count, &[])
}

pub(super) fn write(source: [u8; 6], tag: u32, lba: u64, fill: u8, count: u8) -> Vec<u8> {
    ata(source, tag, 0x34, lba, count, &vec![fill; usize::from(count) * 512])
}

pub(super) fn config(to: [u8; 6], source: [u8; 6], tag: u32, command: u8, text: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 0, 0x10 | command];
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text);
    frame(to, source, 1, tag, &body)
}

/// The same to any address.
pub(super) fn wild(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[16..19].fill(0xff);
    bytes
}

/// The tag of an answer.
pub(super) fn tag_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[20], frame[21], frame[22], frame[23]])
}

/// Status, error and count of an ATA answer.
pub(super) fn registers(frame: &[u8]) -> (u8, u8, u8) {
    assert_eq!(frame[14], 0x18, "it has no E flag");
    (frame[27], frame[25], frame[26])
}

impl World {
    /// Export 7.3 of 1000 sectors to everybody, on one link of MTU 9000. The announcements have
    /// left.
    pub(super) fn new() -> World {
        World::with(9000, |_| {})
    }

    pub(super) fn with(mtu: u32, change: impl FnOnce(&mut Export)) -> World {
        let mut world = World::empty();
        world.up(LINK, facts(mtu));
        world.add(EXPORT, change);
        world.hear_announcements();
        world
    }

    /// All announcements leave, for the last time too.
    pub(super) fn hear_announcements(&mut self) {
        self.run();
        for rest in ANNOUNCED_AGAIN {
            self.pass(rest);
            self.run();
        }
        self.sent.clear();
    }

    /// The same, whose volumes answer when they are told to, with another export.
    pub(super) fn slow(change: impl FnOnce(&mut Export)) -> World {
        let mut world = World::with(9000, change);
        world.mood = Mood::Slow;
        world
    }

    pub(super) fn empty() -> World {
        let mut shard = ShardStub::new(Instant(1_000_000_000), 4096, ());
        shard.below.lands = true;
        World {
            target: Target::new(MachineId(5), ShardId(0)),
            links: Links::default(),
            shard,
            disks: Vec::new(),
            mood: Mood::Honest,
            below: VecDeque::new(),
            sent: Vec::new(),
            controls: Agreement::default(),
            reservations: Agreement::default(),
            stores: true,
        }
    }

    pub(super) fn up(&mut self, link: LinkId, facts: LinkFacts) {
        self.links.set(link, Some(facts));
        self.target.link_up(link, facts);
    }

    /// Adds export `id` at 7.3 plus its number, on a volume of its own.
    pub(super) fn add(&mut self, id: ExportId, change: impl FnOnce(&mut Export)) {
        let address = Address { slot: ADDRESS.slot.wrapping_add(id.0 as u8) % 255, ..ADDRESS };
        let size = ByteCount(SECTORS * 512);
        let mut export = Export::new(address, &[LINK], VolumeId(id.0), size);
        change(&mut export);
        self.disks.resize_with(self.disks.len().max(id.0 as usize + 1), || Disk {
            now: vec![0; (SECTORS * 512) as usize],
            durable: vec![0; (SECTORS * 512) as usize],
            flushes: 0,
        });
        self.controls.add(id.0, Control::default());
        self.reservations.add(export.volume.0, Reservation::default());
        let added = self.target.add_export(id, export, Control::default());
        assert_eq!(added, Ok(()));
        self.target.announce_exports();
    }

    /// The export has other settings.
    pub(super) fn renew(&mut self, change: impl FnOnce(&mut Export)) {
        let mut export = self.target.export(EXPORT).expect("it is there").clone();
        change(&mut export);
        self.target.renew_export(EXPORT, export);
        self.target.announce_exports();
    }

    pub(super) fn with_target<R>(
        &mut self,
        act: impl FnOnce(&mut Target, &mut Context<'_>) -> R,
    ) -> R {
        act(&mut self.target, &mut self.shard.context())
    }

    /// A frame comes on the first link; nothing else happens.
    pub(super) fn come(&mut self, bytes: &[u8]) {
        self.come_on(LINK, None, bytes);
    }

    pub(super) fn come_on(&mut self, link: LinkId, tag: Option<VlanTag>, bytes: &[u8]) {
        let opened = self.links.open(&InFrame::new(link, tag, bytes));
        if let Some(frame) = opened.filter(|frame| frame.ether_type == EtherType::AOE) {
            self.with_target(|target, ctx| target.handle_frame(&frame, ctx));
        }
    }

    /// Frames come in one turn, and all that follows happens.
    pub(super) fn come_all(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        frames.into_iter().for_each(|bytes| self.come(&bytes));
        self.run();
    }

    /// A frame comes, and all that follows happens; what was sent.
    pub(super) fn ask(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.come(bytes);
        self.run();
        self.take()
    }

    /// The same, with one answer.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut sent = self.ask(bytes);
        assert_eq!(sent.len(), 1, "one answer: {sent:02x?}, drops {:?}", self.target.drops());
        sent.remove(0)
    }

    /// The same, with none.
    pub(super) fn silence(&mut self, bytes: &[u8]) {
        let sent = self.ask(bytes);
        assert!(sent.is_empty(), "no answer: {sent:02x?}");
    }

    /// What was sent: tags, and flags with the version.
    pub(super) fn flags(&mut self) -> Vec<(u32, u8)> {
        self.take().iter().map(|frame| (tag_of(frame), frame[14])).collect()
    }

    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        self.sent.drain(..).map(|(_, bytes)| bytes).collect()
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.shard.now = self.shard.now + time;
        self.target.handle_timeout(self.shard.now);
    }

    /// Turns until nothing is left to do; a burst's time passes where only that is waited for.
    pub(super) fn run(&mut self) {
        loop {
            self.turn();
            if self.shard.below.held.is_empty() {
                let sweeps = self.target.sweeps.poll_timeout();
                match sweeps {
                    Some(at) if at <= self.shard.now + SWEEP_PACE => {
                        self.shard.now = self.shard.now.max(at)
                    }
                    _ => return,
                }
            }
        }
    }

    pub(super) fn turn(&mut self) {
        for (volume, request) in core::mem::take(&mut self.shard.below.held) {
            match self.mood {
                Mood::Slow => self.below.push_back((volume, request)),
                Mood::Honest => self.complete(volume, request, Outcome::Done),
                Mood::Fails(failure) => self.complete(volume, request, Outcome::NotDone(failure)),
            }
        }
        self.with_target(|target, ctx| target.settle(ctx));
        while let Some(batch) = self.target.poll_batch() {
            self.sent.extend(batch.to_frames(&self.shard.memory));
            self.with_target(|target, ctx| target.handle_sent(batch, ctx));
        }
        self.agree();
    }

    /// Answers what is below, as honest volumes do.
    pub(super) fn answer_below(&mut self, at: usize, outcome: Outcome) {
        let (volume, request) = self.below.remove(at).expect("something is below");
        self.complete(volume, request, outcome);
        self.run();
    }

    /// The same for all that is below and comes below meanwhile.
    pub(super) fn answer_all(&mut self) {
        while !self.below.is_empty() {
            self.answer_below(0, Outcome::Done);
        }
    }

    fn complete(&mut self, volume: VolumeId, request: Request, outcome: Outcome) {
        let disk = &mut self.disks[volume.0 as usize];
        let range = |extent: Extent| extent.offset.0 as usize..extent.end().0 as usize;
        match &request.operation {
            Operation::Write { extent, buffer, durable: true } if outcome.is_done() => {
                disk.durable[range(*extent)].copy_from_slice(&self.shard.memory.bytes(buffer));
            }
            Operation::Flush if outcome.is_done() => {
                disk.flushes += 1;
                disk.durable.clone_from(&disk.now);
            }
            _ => {}
        }
        let completion = perform(&mut disk.now, request, outcome, &mut self.shard.memory);
        self.with_target(|target, ctx| target.handle_completion(completion, ctx));
    }

    /// Has changes agreed on, stored and installed.
    fn agree(&mut self) {
        let World { target, shard, below, controls, reservations, stores, .. } = self;
        while let Some(ask) = target.poll_ask() {
            match ask {
                Ask::Control { export, number, change } => {
                    controls.propose(export.0, number, change);
                }
                Ask::Reservation { volume, number, change } => {
                    reservations.propose(volume.0, number, change);
                }
            }
        }
        let controls = controls.settle(*stores, |key, value| {
            target.install_control(ExportId(key), value.clone());
            true
        });
        let reservations = reservations.settle(*stores, |key, value| {
            target.take_loans(&mut shard.context());
            shard.reservations.set(VolumeId(key), value.clone());
            below.iter().all(|(volume, Request { ticket, operation })| {
                let access = match operation.changes_data() {
                    true => reservation::Access::Write,
                    false => reservation::Access::Read,
                };
                let who = target.registrant(*ticket);
                volume.0 != key || who.is_none() || value.allows(who, access)
            })
        });
        let any = controls.is_some() || reservations.is_some();
        for (number, answer) in controls.into_iter().flatten() {
            target.handle_control_answer(number, answer);
        }
        for (number, answer) in reservations.into_iter().flatten() {
            target.handle_reservation_answer(number, answer);
        }
        if any {
            self.turn();
        }
    }

    /// Notices that wait.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        core::iter::from_fn(|| self.target.poll_notice()).collect()
    }

    /// Nothing is in flight, and no memory is lost.
    pub(super) fn is_clean(&self) {
        assert_eq!(self.target.in_flight(), 0);
        assert_eq!((self.shard.pool.used(), self.shard.memory.held()), (0, 0));
    }

    pub(super) fn sectors(&self, lba: u64, count: u64) -> &[u8] {
        &self.disks[0].now[lba as usize * 512..(lba + count) as usize * 512]
    }
}

/// A list of stations, as a reservation.
pub(super) fn by_mac(stations: &[[u8; 6]]) -> Reservation {
    let list = stations.iter().map(|mac| (*mac).into()).collect();
    let change = reservation::Change::ForceList { list };
    Reservation::default().apply(&change).0.unwrap_or_default()
}
