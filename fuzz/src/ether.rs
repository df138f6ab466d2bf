//! An AoE target with volumes that answer when they are told to, agreements of one shard, and
//! batches of frames as bytes.

use std::collections::VecDeque;

use aoe::control::Control;
use aoe::export::{Export, ExportId};
use aoe::server::{Ask, Context, Target};
use block::{ByteCount, Instant, MachineId, ShardId, VolumeId};
use contract::{EtherType, FrameBatch, InFrame, LinkFacts, LinkId, Links};
use reservation::Reservation;
use testkit::{Agreement, ShardStub};
use wire::aoe::Address;

use crate::content::{SIZE, Wish, carry_out};

/// Links of the play.
pub const LINKS: u32 = 2;
/// Exports of the play: the second is volatile, the third has one host and gives space back.
pub const EXPORTS: u32 = 3;

/// The address of a station on a link.
pub fn station(number: u8, link: LinkId) -> [u8; 6] {
    [2, number, 0, 0, 0, link.0 as u8]
}

/// What a link is, seen by a station.
pub fn facts(number: u8, link: LinkId) -> LinkFacts {
    let mtu = if link.0 == 0 { 9000 } else { 1500 };
    LinkFacts { mac: station(number, link), mtu, vlan: None, ring_frames: 64, is_shared: true }
}

/// A target with all that it asks.
#[derive(Debug)]
pub struct Serving {
    /// The machine.
    pub target: Target,
    links: Links,
    /// What it works with: below are the requests that the volumes have.
    pub shard: ShardStub<()>,
    /// Batches that are out.
    pub out: VecDeque<FrameBatch>,
    /// Frames that left and nobody has taken yet.
    pub sent: VecDeque<(LinkId, Vec<u8>)>,
    /// Whether what is written must be the pattern of its place.
    pub strict: bool,
    controls: Agreement<Control>,
    reservations: Agreement<Reservation>,
}

impl Serving {
    /// A target with its exports on both links, a budget of `pages`, and a seed for nothing.
    pub fn new(pages: u32) -> Serving {
        let mut serving = Serving {
            target: Target::new(MachineId(4), ShardId(0)),
            links: Links::default(),
            shard: ShardStub::new(Instant(1_000_000_000), pages, ()),
            out: VecDeque::new(),
            sent: VecDeque::new(),
            strict: false,
            controls: Agreement::default(),
            reservations: Agreement::default(),
        };
        for link in 0..LINKS {
            serving.links.set(LinkId(link), Some(facts(9, LinkId(link))));
            serving.target.link_up(LinkId(link), facts(9, LinkId(link)));
        }
        for export in 0..EXPORTS {
            serving.add(ExportId(export));
        }
        serving
    }

    /// What is exported under a number.
    pub fn export(id: ExportId) -> Export {
        let links = [LinkId(0), LinkId(1)];
        let address = Address::new(7, id.0 as u8);
        let mut export = Export::new(address, &links, VolumeId(id.0), ByteCount(SIZE));
        export.uuid = [id.0 as u8 + 1; 16];
        export.buffers = 16;
        export.cache_volatile = id.0 == 1;
        if id.0 == 2 {
            export.discards = true;
            let hosts = [0, 1].map(|link| wire::ethernet::MacAddress(station(1, LinkId(link))));
            export.hosts = aoe::Hosts::List(hosts.to_vec());
        }
        export
    }

    /// Adds an export, if all of its former life is gone.
    pub fn add(&mut self, id: ExportId) {
        if self.target.is_gone(id) {
            self.controls.add(id.0, Control::default());
            self.reservations.add(id.0, Reservation::default());
            self.shard.reservations.set(VolumeId(id.0), Reservation::default());
            let added = self.target.add_export(id, Self::export(id), Control::default());
            assert_eq!(added, Ok(()));
            self.target.announce_exports();
        }
    }

    /// Calls the target.
    pub fn with<R>(&mut self, act: impl FnOnce(&mut Target, &mut Context<'_>) -> R) -> R {
        act(&mut self.target, &mut self.shard.context())
    }

    /// A frame comes.
    pub fn come(&mut self, link: LinkId, bytes: &[u8]) {
        let frame = self.links.open(&InFrame::new(link, None, bytes));
        if let Some(frame) = frame.filter(|frame| frame.ether_type == EtherType::AOE) {
            self.with(|target, ctx| target.handle_frame(&frame, ctx));
        }
    }

    /// The end of a turn. Batches stay out until [`give_back`](Self::give_back).
    pub fn settle(&mut self) {
        if self.target.poll_timeout().is_some_and(|at| at <= self.shard.now) {
            self.target.handle_timeout(self.shard.now);
        }
        self.with(|target, ctx| target.settle(ctx));
        while let Some(batch) = self.target.poll_batch() {
            self.sent.extend(batch.to_frames(&self.shard.memory));
            self.out.push_back(batch);
        }
        while self.target.poll_notice().is_some() {}
    }

    /// A batch comes back. Returns whether there was one.
    pub fn give_back(&mut self, which: usize) -> bool {
        let Some(batch) = self.out.remove(which) else { return false };
        self.with(|target, ctx| target.handle_sent(batch, ctx));
        true
    }

    /// A volume answers. Returns whether one had something.
    pub fn answer(&mut self, which: usize, wish: Wish, lease: bool) -> bool {
        let Some((volume, request)) = self.shard.below.held.remove(which) else { return false };
        let (strict, memory) = (self.strict, &mut self.shard.memory);
        let completion = carry_out(volume.0, SIZE, request, wish, lease, strict, memory);
        self.with(|target, ctx| target.handle_completion(completion, ctx));
        true
    }

    /// Has what stations ask for agreed on, stored or not, and in force.
    pub fn agree(&mut self, stores: bool) -> bool {
        let Serving { target, shard, controls, reservations, .. } = self;
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
        let controls = controls.settle(stores, |key, value| {
            target.install_control(ExportId(key), value.clone());
            true
        });
        let reservations = reservations.settle(stores, |key, value| {
            target.take_loans(&mut shard.context());
            // Every ticket that is below has somebody behind it, or is the target's own.
            for (_, request) in &shard.below.held {
                let _ = target.registrant(request.ticket);
            }
            shard.reservations.set(VolumeId(key), value.clone());
            true
        });
        let moved = controls.is_some() || reservations.is_some();
        for (number, answer) in controls.into_iter().flatten() {
            target.handle_control_answer(number, answer);
        }
        for (number, answer) in reservations.into_iter().flatten() {
            target.handle_reservation_answer(number, answer);
        }
        moved
    }

    /// One round of everything that goes on by itself. Returns whether anything did.
    pub fn go_on(&mut self) -> bool {
        self.settle();
        self.agree(true) | self.answer(0, Wish::Honest, false) | self.give_back(0)
    }

    /// All comes back, and nothing is lost.
    pub fn end(mut self) {
        while self.go_on() {}
        assert_eq!(self.target.in_flight(), 0, "commands are stuck");
        assert_eq!((self.shard.pool.used(), self.shard.memory.held()), (0, 0), "pages are lost");
    }
}
