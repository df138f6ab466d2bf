//! Serving iSCSI sessions under a driver, with the targets of one shard and volumes that answer when
//! they are told to.

use core::time::Duration;

use block::{BlockCount, BlockSize, Class, Instant, MachineId, ShardId, VolumeId};
use contract::{Endpoint, ListenerId, Loss, Receive, SessionIdentity};
use iscsi::server::{Connection, Context};
use iscsi::target::{Hosts, Target, Unit};
use iscsi::targets::Targets;
use scsi::{LogicalUnit, ModeState};
use testkit::ShardStub;
use testkit::iscsi::seal;
use testkit::pipe::{Pipe, Shown};
use wire::iscsi::Digests;
use wire::iscsi::{
    DataIn, LogoutResponse, LogoutResponseCode, NopIn, R2t, RESERVED_TAG, Residual, ScsiResponse,
    TargetNumbers, TaskManagementResponse, TaskResponse,
};
use wire::scsi::Lun;

use crate::choices::Choices;
use crate::content::{Wish, carry_out};
use crate::iscsi_host::{SIZE, TARGET, name};

const GENERATION: u32 = 3;

/// A connection with its driver's side.
#[derive(Debug)]
pub struct Link {
    /// The machine.
    pub connection: Connection,
    /// The driver's side.
    pub pipe: Pipe,
    /// What left and nobody has taken yet.
    pub said: Vec<u8>,
}

/// Sessions of one shard.
#[derive(Debug)]
pub struct Serving {
    /// What they work with: targets are what sessions share.
    pub shard: ShardStub<Targets>,
    /// The connections.
    pub links: Vec<Link>,
    /// Whether what hosts write must be the pattern of its place.
    pub strict: bool,
}

/// LUN `lun` of the play's target, on the volume of its number.
pub fn unit(lun: u16, size: u64) -> Unit {
    let unit = LogicalUnit {
        volume: VolumeId(lun.into()),
        uuid: [lun as u8; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount(size / 512),
        read_only: false,
        cache_volatile: lun == 1,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
        mode: ModeState::default(),
    };
    Unit { lun, hosts: Hosts::Any, unit }
}

/// The play's target: LUNs 1 and 2.
pub fn target() -> Target {
    Target::new(name(TARGET)).with_unit(unit(1, SIZE)).with_unit(unit(2, SIZE))
}

/// A PDU that a target might say, with fields that an input chooses.
pub fn invent(choices: &mut Choices<'_>) -> Vec<u8> {
    let what = choices.byte();
    let digests = Digests { header: what & 0x40 != 0, data: what & 0x80 != 0 };
    // Tags are slots with a generation, or those of what is no task.
    let tags = [0, 1, 2, 0x1000, 0x2001, 0xffd, 0xffe, 0xffc, RESERVED_TAG, u32::MAX - 1];
    let tag = choices.of(&tags);
    let way = choices.byte();
    // Numbers near those that a session begins with.
    let number = |shift: u8| u32::from(way >> shift & 3).wrapping_sub(1);
    let stat_sn = u32::from(choices.byte()).wrapping_add(number(0));
    let exp_cmd_sn = u32::from(choices.byte());
    let max_cmd_sn = exp_cmd_sn.wrapping_add(number(2).wrapping_mul(16));
    let numbers = TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn };
    let place = u32::from(choices.word()) * 4;
    match what % 8 {
        0 => {
            let statuses = [0, 2, 8, 0x18, 0x28, 0x30, 0x40];
            let data: &[u8] = if way & 0x40 == 0 { &[] } else { &SENSE };
            let (status, length) = (choices.of(&statuses), data.len() as u32);
            let residual = Residual::Underflow(place);
            let header = ScsiResponse::new(tag, status, residual, 0, length, numbers);
            seal(&header.emit(), data, digests)
        }
        1 => {
            let length = u32::from(choices.word()) * 4;
            let transfer = u32::from(choices.byte());
            let sn = u32::from(way >> 4);
            seal(
                &R2t::new(Lun::of(1).0, tag, transfer, sn, place, length, numbers).emit(),
                &[],
                digests,
            )
        }
        2 => {
            let data = vec![choices.byte(); usize::from(choices.word() % 5000)];
            let sn = u32::from(way >> 6);
            let length = data.len() as u32;
            let header = DataIn::new(tag, sn, place, length, way & 0x10 != 0, numbers);
            let header = match way & 0x20 {
                0 => header,
                _ => header.with_status(0, Residual::None, stat_sn),
            };
            seal(&header.emit(), &data, digests)
        }
        3 => seal(&NopIn::ping(Lun::of(1).0, tag, numbers).emit(), &[], digests),
        4 => {
            let response = TaskResponse(way >> 4);
            seal(&TaskManagementResponse::new(tag, response, numbers).emit(), &[], digests)
        }
        5 => {
            let response = LogoutResponseCode(way >> 6);
            seal(&LogoutResponse::new(tag, response, numbers).emit(), &[], digests)
        }
        // Any header of a target at all.
        _ => {
            let opcodes = [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];
            let mut header = [0; 48];
            header.iter_mut().for_each(|byte| *byte = choices.byte());
            header[0] = choices.of(&opcodes);
            header[4..7].fill(0);
            seal(&header, &[], digests)
        }
    }
}

/// Sense data with their length: a unit attention, whose unit is another one.
const SENSE: [u8; 20] = [0, 18, 0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x3f, 3, 0, 0, 0, 0];

impl Serving {
    /// No connections yet; a budget of `pages`.
    pub fn new(pages: u32) -> Serving {
        let mut targets = Targets::new(ShardId(0), 1, [7; 32]);
        targets.set_target(target());
        targets.configuration_complete();
        let shard = ShardStub::new(Instant(1_000_000), pages, targets);
        Serving { shard, links: Vec::new(), strict: true }
    }

    /// Accepts a connection; its number.
    pub fn accept(&mut self) -> usize {
        let machine = MachineId(self.links.len() as u32);
        let identity = SessionIdentity { machine, generation: GENERATION, shard: ShardId(0) };
        let address = "127.0.0.1:3260".parse().expect("an address");
        let endpoint = Endpoint { listener: ListenerId(0), peer: address, local: address };
        let connection = Connection::new(self.shard.now, identity, endpoint);
        self.links.push(Link { connection, pipe: Pipe::default(), said: Vec::new() });
        self.links.len() - 1
    }

    fn with<R>(
        &mut self,
        link: usize,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> R {
        act(&mut self.links[link].connection, &mut self.shard.context())
    }

    /// `count` bytes that were sent to the connection arrive and are shown. Returns whether
    /// anything was.
    pub fn arrive(&mut self, link: usize, count: usize) -> bool {
        let Link { connection, pipe, .. } = &mut self.links[link];
        let moved = count.min(pipe.coming.len()) > 0;
        pipe.arrive(count);
        let shown = self.shard.show(pipe, |shown, ctx| match shown {
            Shown::Bytes(bytes) => connection.handle_received(bytes, ctx),
            Shown::Direct(direct) => {
                Receive { consumed: 0, next: connection.handle_direct(direct, ctx) }
            }
        });
        self.settle();
        moved || shown
    }

    /// The end of a turn: what the targets and the machines want.
    pub fn settle(&mut self) {
        loop {
            let mut moved = self.control();
            for link in 0..self.links.len() {
                if self.links[link].pipe.closed {
                    continue;
                }
                self.with(link, |connection, ctx| connection.settle(ctx));
                while let Some(effect) = self.links[link].connection.poll_effect() {
                    moved = true;
                    self.links[link].pipe.handle(effect);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn control(&mut self) -> bool {
        let mut moved = false;
        while let Some((place, event)) = self.shard.shared.poll_event() {
            moved = true;
            let link = place.index as usize;
            if !self.links[link].connection.is_gone() {
                self.with(link, |connection, ctx| connection.handle_event(event, ctx));
            }
        }
        assert!(self.shard.shared.poll_message().is_none(), "one shard writes to nobody");
        moved
    }

    /// A volume answers one of the requests that it has.
    pub fn answer(&mut self, which: usize, wish: Wish, lease: bool) {
        let Some((volume, request)) = self.shard.below.held.remove(which) else { return };
        let strict = self.strict;
        let memory = &mut self.shard.memory;
        let completion = carry_out(volume.0, SIZE, request, wish, lease, strict, memory);
        let link = completion.ticket.machine.0 as usize;
        assert_eq!(completion.ticket.generation, GENERATION, "the ticket comes back");
        self.with(link, |connection, ctx| connection.handle_completion(completion, ctx));
        self.settle();
    }

    /// The batch that is out leaves. Returns whether there was one.
    pub fn leave(&mut self, link: usize) -> bool {
        let Link { pipe, said, .. } = &mut self.links[link];
        let Some((bytes, batch)) = pipe.leave(&self.shard.memory) else { return false };
        said.extend(bytes);
        self.with(link, |connection, ctx| connection.handle_sent(batch, ctx));
        self.settle();
        true
    }

    /// Some of the batch that is out has left.
    pub fn progress(&mut self, link: usize) {
        if self.links[link].pipe.is_sending() && self.links[link].pipe.is_open() {
            let now = self.shard.now;
            self.with(link, |connection, _| connection.handle_progress(now));
        }
    }

    /// The connection carries nothing more.
    pub fn lose(&mut self, link: usize, loss: Loss) {
        if self.links[link].pipe.lose() {
            self.with(link, |connection, ctx| connection.handle_lost(loss, ctx));
            self.settle();
        }
    }

    /// The driver closes what it was asked to. Returns whether it did.
    pub fn shut(&mut self, link: usize) -> bool {
        let Some((direct, batch)) = self.links[link].pipe.try_shut() else { return false };
        self.with(link, |connection, ctx| connection.handle_closed(direct, batch, ctx));
        self.settle();
        true
    }

    /// There may be memory again.
    pub fn wake(&mut self) {
        self.shard.pool.begin_line();
        for class in Class::ALL {
            for link in 0..self.links.len() {
                if self.links[link].connection.waits_for_memory(class) {
                    self.with(link, |connection, ctx| connection.handle_memory(class, ctx));
                }
            }
        }
        self.settle();
    }

    /// Time passes, and whoever wanted to be woken is.
    pub fn pass(&mut self, time: Duration) {
        self.shard.now = self.shard.now + time;
        let now = self.shard.now;
        for link in 0..self.links.len() {
            let due = self.links[link].connection.poll_timeout().is_some_and(|at| at <= now);
            if due && !self.links[link].pipe.closed {
                self.with(link, |connection, ctx| connection.handle_timeout(ctx));
            }
        }
        if self.shard.shared.poll_timeout().is_some_and(|at| at <= now) {
            self.shard.shared.handle_timeout(now);
            let next = self.shard.shared.poll_timeout();
            assert!(next.is_none_or(|at| at > now), "it wants to be woken in the past");
        }
        self.settle();
    }

    /// One round of everything that goes on by itself. Returns whether anything did.
    pub fn go_on(&mut self) -> bool {
        let mut moved = false;
        for link in 0..self.links.len() {
            moved |= self.arrive(link, usize::MAX);
            moved |= self.leave(link);
            // A session that another one waits for is closed in the end.
            moved |= !self.links[link].pipe.is_sending() && self.shut(link);
        }
        while !self.shard.below.held.is_empty() {
            moved = true;
            self.answer(0, Wish::Honest, false);
        }
        self.wake();
        // Who was given memory goes on in the next round.
        moved
            || !self.shard.below.held.is_empty()
            || self.links.iter().any(|link| link.pipe.is_sending())
    }

    /// Nothing is stuck: whoever still wants bytes can be shown them.
    pub fn check_quiet(&self) {
        for (index, link) in self.links.iter().enumerate() {
            assert!(
                !link.pipe.is_open() || link.pipe.lost || !link.pipe.is_paused(),
                "link {index} is paused, and nothing is below: {:?}",
                link.connection
            );
        }
    }

    /// Everything is lost and closed, and nothing is left.
    pub fn end(mut self) {
        for link in 0..self.links.len() {
            self.lose(link, Loss::EndOfStream);
        }
        while !self.shard.below.held.is_empty() {
            self.answer(0, Wish::Honest, false);
        }
        for link in 0..self.links.len() {
            self.leave(link);
            self.leave(link);
            if !self.links[link].pipe.closed {
                assert!(self.shut(link), "link {link} does not close");
            }
        }
        while !self.shard.below.held.is_empty() {
            self.answer(0, Wish::Honest, false);
        }
        for (index, link) in self.links.iter().enumerate() {
            assert!(link.connection.is_gone(), "link {index} is not gone");
            assert_eq!(link.connection.pages(), 0, "link {index} holds pages");
            assert_eq!(link.connection.outstanding(), 0, "link {index} has tasks");
        }
        assert_eq!(self.shard.pool.used(), 0, "pages are lost to the pool");
        assert_eq!(self.shard.memory.held(), 0, "pages are lost to the memory");
        assert_eq!(self.shard.shared.session_count(), 0, "sessions are left");
    }
}
