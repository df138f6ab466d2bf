//! An initiator with its driver's side, and answers as bytes.

use core::time::Duration;

use block::{
    Buffer, Completion, Extent, Instant, MachineId, Memory, Operation, Outcome, Request, ShardId,
    Ticket,
};
use contract::{InFrame, LinkFacts, LinkId, Links};
use testkit::Pages;
use wire::aoe::Address;
use wire::ata::IdentifyDevice;

use crate::initiator::{Initiator, InitiatorNews, Settings};

pub(super) const OWN: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 1, 1]];
pub(super) const T: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(super) const U: [u8; 6] = [2, 0, 0, 0, 1, 9];
pub(super) const SECTORS: u64 = 1000;

pub(super) struct World {
    pub(super) initiator: Initiator,
    links: Links,
    pub(super) now: Instant,
    pub(super) memory: Pages,
    pub(super) sent: Vec<(LinkId, Vec<u8>)>,
    pub(super) done: Vec<(u32, Outcome, Vec<u8>)>,
    pub(super) sectors: u64,
    pub(super) device: IdentifyDevice,
}

pub(super) fn facts(link: usize, mtu: u32) -> LinkFacts {
    LinkFacts { mac: OWN[link], mtu, vlan: None, ring_frames: 64, is_shared: true }
}

pub(super) fn tag_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[20], frame[21], frame[22], frame[23]])
}

pub(super) fn lba_of(frame: &[u8]) -> u64 {
    (0..6).map(|at| u64::from(frame[28 + at]) << (8 * at)).sum()
}

/// What a sector holds in these tests.
pub(super) fn pattern(lba: u64) -> [u8; 512] {
    core::array::from_fn(|at| (lba * 31 + at as u64 * 7) as u8)
}

/// What so many sectors hold.
pub(super) fn patterns(lba: u64, count: u64) -> Vec<u8> {
    (lba..lba + count).flat_map(pattern).collect()
}

/// The first sector and the count of a command.
pub(super) fn place_of(frame: &[u8]) -> (u64, u64) {
    (lba_of(frame), frame[26].into())
}

/// The answer to an ATA frame.
pub(super) fn answer_to(frame: &[u8], status: u8, error: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = [&frame[6..12], &frame[..6], &frame[12..36]].concat();
    bytes[14] = 0x18;
    (bytes[25], bytes[27]) = (error, status);
    if status == 0x40 {
        bytes[26] = 0;
    }
    bytes.extend(data);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// The answer of a station to a query on a link.
pub(super) fn told(
    link: usize,
    mac: [u8; 6],
    tag: u32,
    buffers: u16,
    sectors: u8,
    text: &[u8],
) -> Vec<u8> {
    let to = if tag == 0 { [0xff; 6] } else { OWN[link] };
    let mut bytes = [&to[..], &mac, &[0x88, 0xa2, 0x18, 0, 0, 7, 3, 1]].concat();
    bytes.extend(tag.to_be_bytes());
    bytes.extend(buffers.to_be_bytes());
    bytes.extend([0, 1, sectors, 0x10]);
    bytes.extend((text.len() as u16).to_be_bytes());
    bytes.extend(text);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

impl World {
    /// An initiator for 7.3 on links of these MTUs, which has asked for it.
    pub(super) fn new(mtus: &[u32]) -> World {
        World::with(mtus, |_| {})
    }

    pub(super) fn with(mtus: &[u32], change: impl FnOnce(&mut Settings)) -> World {
        let now = Instant(1_000_000_000);
        let links: Vec<LinkId> = (0..mtus.len() as u32).map(LinkId).collect();
        let mut settings = Settings::new(&links, Address::new(7, 3));
        change(&mut settings);
        let mut initiator = Initiator::new(settings, 0xfeed_f00d);
        let mut known = Links::default();
        for (link, mtu) in mtus.iter().enumerate() {
            known.set(LinkId(link as u32), Some(facts(link, *mtu)));
            initiator.link_up(now, LinkId(link as u32), facts(link, *mtu));
        }
        let device = IdentifyDevice {
            serial: [b'x'; 20],
            firmware: [b' '; 8],
            model: [b' '; 40],
            sectors: SECTORS,
            lba48: true,
            flush: true,
            flush_ext: true,
            write_cache: false,
            smart: false,
            trim: false,
            physical_exponent: 0,
        };
        let mut world = World {
            initiator,
            links: known,
            now,
            memory: Pages::default(),
            sent: Vec::new(),
            done: Vec::new(),
            sectors: SECTORS,
            device,
        };
        world.settle();
        world
    }

    /// The same, connected by each link, to a target of two sectors a frame on the first.
    pub(super) fn live(mtus: &[u32]) -> World {
        World::live_with(mtus, 2, 64, |_| {})
    }

    pub(super) fn live_with(
        mtus: &[u32],
        sectors: u8,
        buffers: u16,
        change: impl FnOnce(&mut IdentifyDevice),
    ) -> World {
        let mut world = World::new(mtus);
        change(&mut world.device);
        world.take();
        world.tell(LinkId(0), T, 1, buffers, sectors);
        let asked = world.one();
        world.identify(LinkId(0), T, tag_of(&asked), 7);
        world.news();
        world
    }

    /// The same, connected by two links to two stations.
    pub(super) fn two_paths() -> World {
        let mut world = World::new(&[9000, 9000]);
        world.take();
        world.meet(LinkId(0), T, 7);
        world.meet(LinkId(1), U, 7);
        world
    }

    /// A station answers a query, and says who it is: the disk of this serial number.
    pub(super) fn meet(&mut self, link: LinkId, mac: [u8; 6], serial: u8) {
        self.tell(link, mac, 1, 64, 17);
        if self.sent.is_empty() {
            // It was known: its announcement makes that it is asked.
            self.tell(link, mac, 0, 64, 17);
        }
        let sent = self.take();
        let asked = sent.iter().find(|(_, f)| f[..6] == mac && f[27] == 0xec).expect("it is asked");
        self.identify(link, mac, tag_of(&asked.1), serial);
    }

    pub(super) fn tell(&mut self, link: LinkId, mac: [u8; 6], tag: u32, buffers: u16, sectors: u8) {
        let bytes = told(link.0 as usize, mac, tag, buffers, sectors, b"");
        self.come(link, &bytes);
    }

    pub(super) fn identify(&mut self, link: LinkId, mac: [u8; 6], tag: u32, serial: u8) {
        let own = OWN[link.0 as usize];
        let mut bytes = [&own[..], &mac, &[0x88, 0xa2, 0x18, 0, 0, 7, 3, 0]].concat();
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0, 0, 0, 0x40, 0, 0, 0, 0xa0, 0, 0, 0, 0]);
        let device = IdentifyDevice { serial: [serial; 20], sectors: self.sectors, ..self.device };
        bytes.extend(device.emit());
        self.come(link, &bytes);
    }

    pub(super) fn come(&mut self, link: LinkId, bytes: &[u8]) {
        if let Some(frame) = self.links.open(&InFrame::new(link, None, bytes)) {
            self.initiator.handle_frame(self.now, &frame, &mut self.memory);
        }
        self.settle();
    }

    /// Answers a frame that was sent; to the link on which it was.
    pub(super) fn answer(&mut self, frame: &[u8], status: u8, error: u8, data: &[u8]) {
        self.come(Self::link_of(frame), &answer_to(frame, status, error, data));
    }

    /// Carries a command out and answers it; what is read is the pattern.
    pub(super) fn serve(&mut self, frame: &[u8]) {
        let (lba, count) = place_of(frame);
        let data = if frame[27] == 0x24 { patterns(lba, count) } else { Vec::new() };
        self.answer(frame, 0x40, 0, &data);
    }

    /// The same with the one that was sent.
    pub(super) fn serve_one(&mut self) -> Vec<u8> {
        let frame = self.one();
        self.serve(&frame);
        frame
    }

    /// The same with all that is sent, the last of a window first, until a request is completed.
    pub(super) fn serve_all(&mut self) -> Vec<(LinkId, Vec<u8>)> {
        let mut served = Vec::new();
        while self.done.is_empty() {
            for (link, frame) in self.take().into_iter().rev() {
                self.serve(&frame);
                served.push((link, frame));
            }
        }
        served
    }

    pub(super) fn refuse(&mut self, frame: &[u8], code: u8) {
        let mut bytes = answer_to(frame, 0, 0, &[]);
        (bytes[14], bytes[15]) = (0x1c, code);
        self.come(Self::link_of(frame), &bytes);
    }

    fn link_of(frame: &[u8]) -> LinkId {
        LinkId(OWN.iter().position(|own| *own == frame[6..12]).expect("it is ours") as u32)
    }

    pub(super) fn act(&mut self, act: impl FnOnce(&mut Initiator, Instant)) {
        act(&mut self.initiator, self.now);
    }

    pub(super) fn settle(&mut self) {
        loop {
            self.initiator.settle(self.now);
            while let Some(completion) = self.initiator.poll_completion() {
                let Completion { ticket, outcome, buffer, .. } = completion;
                let is_there = !buffer.is_empty() && !buffer.is_reserved();
                let bytes = if is_there { self.memory.bytes(&buffer) } else { Vec::new() };
                self.memory.release(buffer);
                self.done.push((ticket.slot, outcome, bytes));
            }
            let Some(batch) = self.initiator.poll_batch() else { return };
            self.sent.extend(batch.to_frames(&self.memory));
            self.initiator.handle_sent(self.now, batch);
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        if self.initiator.poll_timeout().is_some_and(|at| at <= self.now) {
            self.initiator.handle_timeout(self.now);
        }
        self.settle();
    }

    /// Lets time pass in the steps in which the initiator wants it.
    pub(super) fn until(&mut self, end: Instant) {
        while let Some(at) = self.initiator.poll_timeout().filter(|at| *at <= end) {
            self.pass(at.since(self.now));
        }
        self.pass(end.since(self.now));
    }

    /// Lets time pass until something is sent.
    pub(super) fn until_lost(&mut self) {
        assert!(self.sent.is_empty());
        while self.sent.is_empty() {
            let at = self.initiator.poll_timeout().expect("it waits for something");
            self.pass(at.since(self.now));
        }
    }

    pub(super) fn take(&mut self) -> Vec<(LinkId, Vec<u8>)> {
        core::mem::take(&mut self.sent)
    }

    /// The one frame that was sent.
    pub(super) fn one(&mut self) -> Vec<u8> {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1, "one frame: {sent:02x?}");
        sent.remove(0).1
    }

    pub(super) fn news(&mut self) -> Vec<InitiatorNews> {
        let news: Vec<_> = core::iter::from_fn(|| self.initiator.poll_news()).collect();
        for one in &news {
            assert!(!self.initiator.tell(one).is_empty());
        }
        news
    }

    /// A payload of what the sectors hold.
    pub(super) fn buffer(&mut self, lba: u64, count: u64) -> Buffer {
        let mut buffer = Buffer::reserved((count * 512) as u32, (lba * 512 % 4096) as u32);
        self.memory.write(&mut buffer, 0, &patterns(lba, count));
        buffer
    }

    pub(super) fn ask(&mut self, slot: u32, operation: Operation) {
        let ticket = Ticket { machine: MachineId(1), generation: 0, slot, shard: ShardId(0) };
        self.initiator.handle_request(self.now, &mut Request { ticket, operation });
        self.settle();
    }

    pub(super) fn read(&mut self, slot: u32, lba: u64, count: u64) {
        let buffer = Buffer::reserved((count * 512) as u32, (lba * 512 % 4096) as u32);
        self.ask(slot, Operation::Read { extent: Extent::new(lba * 512, count * 512), buffer });
    }

    /// Reads of a sector each, which have nothing to do with each other.
    pub(super) fn read_many(&mut self, slots: core::ops::Range<u32>) {
        slots.for_each(|slot| self.read(slot, u64::from(slot) * 4, 1));
    }

    pub(super) fn write(&mut self, slot: u32, lba: u64, count: u64, durable: bool) {
        let buffer = self.buffer(lba, count);
        let extent = Extent::new(lba * 512, count * 512);
        self.ask(slot, Operation::Write { extent, buffer, durable });
    }

    /// The one request that was completed.
    pub(super) fn completed(&mut self, slot: u32) -> (Outcome, Vec<u8>) {
        assert!(
            !self.done.is_empty(),
            "request {slot} is not completed: {}",
            self.initiator.state()
        );
        let (seen, outcome, bytes) = self.done.remove(0);
        assert_eq!(seen, slot);
        (outcome, bytes)
    }

    pub(super) fn is_clean(&self) {
        assert_eq!((self.initiator.in_flight(), self.memory.held()), (0, 0));
    }
}
