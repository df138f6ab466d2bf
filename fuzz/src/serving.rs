//! Serving connections under a driver, with what those of one shard share and volumes that answer
//! when they are told to: one text for all protocols over streams. What is the protocol's is where
//! this is mounted: `Connection`, `Context`, `Shared`, `Settings`, `accepted`, `control` and `left`.

use core::time::Duration;

use block::{Class, Instant, MachineId, ShardId};
use contract::{Loss, Receive, SessionIdentity};
use testkit::ShardStub;
use testkit::pipe::{Pipe, Shown};

use super::{Connection, Context, Settings, Shared, accepted, control, left};
use crate::content::{SIZE, Wish, carry_out};
use crate::peer::Serves;

/// When a play begins.
pub(super) const BEGIN: Instant = Instant(1_000_000);
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

/// Connections of one shard.
#[derive(Debug)]
pub struct Serving {
    /// What they work with, and share.
    pub shard: ShardStub<Shared>,
    /// The connections.
    pub links: Vec<Link>,
    /// Whether what hosts write must be the pattern of its place.
    pub strict: bool,
    settings: Settings,
}

impl Serves for Serving {
    fn accept(&mut self) -> usize {
        self.accept()
    }

    fn take_said(&mut self, link: usize) -> Vec<u8> {
        core::mem::take(&mut self.links[link].said)
    }

    fn lose(&mut self, link: usize, loss: Loss) {
        self.lose(link, loss);
    }
}

impl Serving {
    /// No connections yet; a budget of `pages`.
    pub(super) fn with_shared(pages: u32, shared: Shared, settings: Settings) -> Serving {
        let shard = ShardStub::new(BEGIN, pages, shared);
        Serving { shard, links: Vec::new(), strict: true, settings }
    }

    /// Accepts a connection; its number.
    pub fn accept(&mut self) -> usize {
        let machine = MachineId(self.links.len() as u32);
        let identity = SessionIdentity { machine, generation: GENERATION, shard: ShardId(0) };
        let connection = accepted(self.shard.now, identity, self.settings);
        self.links.push(Link { connection, pipe: Pipe::default(), said: Vec::new() });
        self.links.len() - 1
    }

    pub(super) fn with<R>(
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

    /// The end of a turn: what the machines and what they share want.
    pub fn settle(&mut self) {
        loop {
            let mut moved = control(self);
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
            assert_eq!(link.connection.outstanding(), 0, "link {index} has commands");
        }
        assert_eq!(self.shard.pool.used(), 0, "pages are lost to the pool");
        assert_eq!(self.shard.memory.held(), 0, "pages are lost to the memory");
        assert_eq!(left(&self.shard.shared), 0, "what they share knows one still");
    }
}
