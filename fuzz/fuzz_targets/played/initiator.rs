//! An initiator that asks, over connections to a target that is honest until its bytes are tampered
//! with, or PDUs are put between them; one text for all protocols over streams. What is the protocol's
//! is where this is mounted: `Initiator`, `Target`, `invent` and `resize`.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use block::{Buffer, Completion, Extent, MachineId, Memory, Operation, Request, ShardId, Ticket};
use contract::{Loss, Receive, StreamEffect};
use plateway_fuzz::Choices;
use plateway_fuzz::content::{Pattern, SIZE, WISHES, expect, fill};
use plateway_fuzz::host::{LENGTHS, tamper};
use plateway_fuzz::peer::{self, CONNECTIONS_MAX, Peer};
use testkit::Pages;
use testkit::pipe::Shown;

use super::{DISK, Initiator, Target, invent, resize};

const PAUSES: [u64; 7] = [1, 50, 200, 1_000, 2_600, 11_000, 61_000];

pub(crate) struct Play {
    target: Target,
    initiator: Initiator,
    memory: Pages,
    peers: Vec<Peer>,
    asked: VecDeque<u32>,
    /// The reads under way, by slot: where they read.
    visits: BTreeMap<u32, Option<u64>>,
    next: u32,
    tampered: bool,
}

impl Play {
    /// An initiator that connects; unless an input plays with the making of it, what it makes stands.
    pub(crate) fn new(target: Target, initiator: Initiator, stands: bool) -> Play {
        let mut play = Play {
            target,
            initiator,
            memory: Pages::default(),
            peers: Vec::new(),
            asked: VecDeque::new(),
            visits: BTreeMap::new(),
            next: 0,
            tampered: false,
        };
        play.settle();
        if stands {
            play.run();
            play.pass(Duration::from_millis(50));
            play.run();
        }
        play
    }

    pub(crate) fn act(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        let link = usize::from(choices.byte() & 0x0f);
        // The youngest connections are those that matter.
        let link = self.peers.len().saturating_sub(1 + link % self.peers.len().max(1));
        match what & 0x1f {
            0..=7 => self.ask(what & 7, choices),
            8 => self.connect(what & 0x20 == 0),
            _ if self.peers.is_empty() => self.connect(true),
            9 | 10 => drop(self.arrive(link, usize::from(choices.word()))),
            11 => drop(self.leave(link)),
            12 => drop(self.target.arrive(link, usize::from(choices.word()))),
            13 => drop(self.target.leave(link)),
            14 | 15 => {
                let which = choices.below(self.target.shard.below.held.len().max(1));
                self.target.answer(which, choices.of(&WISHES), what & 0x20 != 0);
            }
            16 => drop(peer::carry(&mut self.peers[link], &mut self.target, link)),
            17 => self.lose(link, choices.flag()),
            18 => drop(self.shut(link)),
            19 => self.target.lose(link, Loss::Error(104)),
            20 => drop(self.target.shut(link)),
            21 | 22 => self.pass(Duration::from_millis(choices.of(&PAUSES))),
            23 | 24 => self.tampered |= tamper(&mut self.peers[link].pipe.coming, choices),
            25 | 26 => {
                self.tampered = true;
                self.peers[link].pipe.coming.extend(invent(choices));
            }
            27 => {
                resize(&mut self.target, if what & 0x20 == 0 { SIZE } else { SIZE / 2 });
                self.target.settle();
            }
            28 if what & 0xe0 == 0xe0 => self.initiator.drain(),
            _ => drop(self.go_on()),
        }
        self.settle();
    }

    fn ask(&mut self, what: u8, choices: &mut Choices<'_>) {
        let blocks = u64::from(choices.of(&LENGTHS));
        let first = u64::from(choices.word()) % (SIZE / 512 - blocks + 1);
        let extent = Extent::new(first * 512, blocks * 512);
        let buffer = |pattern: Option<Pattern>, memory: &mut Pages| {
            let length = extent.length.0 as u32;
            let mut buffer = Buffer::reserved(length, (extent.offset.0 % 4096) as u32);
            if let Some(pattern) = pattern {
                let mut bytes = vec![0; length as usize];
                fill(pattern, DISK, extent.offset.0, &mut bytes);
                memory.write(&mut buffer, 0, &bytes);
            }
            buffer
        };
        let memory = &mut self.memory;
        let durable = what & 1 == 1;
        let operation = match what {
            0 | 1 => Operation::Read { extent, buffer: buffer(None, memory) },
            2 | 3 => {
                Operation::Write { extent, buffer: buffer(Some(Pattern::Written), memory), durable }
            }
            4 => Operation::Flush,
            5 => Operation::Compare { extent, buffer: buffer(Some(Pattern::Held), memory) },
            6 => Operation::WriteZeroes { extent, deallocate: first & 1 == 1, durable: false },
            _ if first & 1 == 0 => Operation::Verify { extent },
            _ => Operation::Discard { extents: vec![extent; 1 + (first % 3) as usize] },
        };
        let reads = matches!(operation, Operation::Read { .. }).then_some(extent.offset.0);
        let ticket =
            Ticket { machine: MachineId(9), generation: 1, slot: self.next, shard: ShardId(0) };
        self.visits.insert(self.next, reads);
        self.next += 1;
        self.initiator.handle_request(self.target.shard.now, &mut Request { ticket, operation });
    }

    fn connect(&mut self, well: bool) {
        let Some(token) = self.asked.pop_front() else { return };
        let now = self.target.shard.now;
        if well && self.peers.len() < CONNECTIONS_MAX {
            let link = peer::connect(&mut self.peers, &mut self.target);
            self.initiator.handle_connected(now, token, peer::id(link));
        } else {
            self.initiator.handle_connect_failed(now, token, 111);
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.initiator.settle(self.target.shard.now, &mut self.memory);
        while let Some(effect) = self.initiator.poll_effect() {
            match effect {
                StreamEffect::Connect { token, .. } => self.asked.push_back(token),
                StreamEffect::Send { connection, batch } => {
                    self.peers[connection.slot as usize].pipe.send(batch);
                }
                StreamEffect::Close { connection, after_send } => {
                    self.peers[connection.slot as usize].pipe.end(after_send);
                }
            }
        }
        while let Some(completion) = self.initiator.poll_completion() {
            self.completed(completion);
        }
        while let Some(news) = self.initiator.poll_news() {
            drop(self.initiator.tell(&news));
        }
    }

    fn completed(&mut self, completion: Completion) {
        let Completion { ticket, outcome, buffer, expected } = completion;
        assert_eq!((ticket.machine, ticket.generation), (MachineId(9), 1));
        let reads = self.visits.remove(&ticket.slot).expect("it is answered once");
        if let (Some(offset), true, false) = (reads, outcome.is_done(), self.tampered) {
            expect(Pattern::Held, DISK, offset, &self.memory.bytes(&buffer));
        }
        self.memory.release(buffer);
        assert!(expected.is_none());
    }

    fn arrive(&mut self, link: usize, count: usize) -> bool {
        let pipe = &mut self.peers[link].pipe;
        let (initiator, now, id) = (&mut self.initiator, self.target.shard.now, peer::id(link));
        let moved = pipe.come(count, &mut self.memory, |shown, memory| match shown {
            Shown::Bytes(bytes) => initiator.handle_received(now, id, bytes, memory),
            Shown::Direct(direct) => {
                Receive { consumed: 0, next: initiator.handle_direct(now, id, direct, memory) }
            }
        });
        self.settle();
        moved
    }

    fn leave(&mut self, link: usize) -> bool {
        let Some((bytes, batch)) = self.peers[link].pipe.leave(&self.memory) else { return false };
        self.target.links[link].pipe.coming.extend(bytes);
        let (now, id) = (self.target.shard.now, peer::id(link));
        self.initiator.handle_progress(now, id);
        self.initiator.handle_sent(now, id, batch, &mut self.memory);
        self.settle();
        true
    }

    fn lose(&mut self, link: usize, reset: bool) {
        if self.peers[link].pipe.lose() {
            let loss = if reset { Loss::Error(104) } else { Loss::EndOfStream };
            self.initiator.handle_lost(self.target.shard.now, peer::id(link), loss);
            self.settle();
        }
    }

    fn shut(&mut self, link: usize) -> bool {
        let Some((direct, batch)) = self.peers[link].pipe.try_shut() else { return false };
        self.initiator.handle_closed(self.target.shard.now, peer::id(link), direct, batch);
        self.settle();
        true
    }

    fn pass(&mut self, time: Duration) {
        self.target.pass(time);
        let now = self.target.shard.now;
        if self.initiator.poll_timeout().is_some_and(|at| at <= now) {
            self.initiator.handle_timeout(now);
            self.settle();
        }
    }

    /// One round of everything that goes on by itself. Returns whether anything did.
    fn go_on(&mut self) -> bool {
        let mut moved = !self.asked.is_empty();
        self.connect(true);
        for link in 0..self.peers.len() {
            moved |= self.leave(link);
            moved |= peer::carry(&mut self.peers[link], &mut self.target, link);
            moved |= self.arrive(link, usize::MAX);
            moved |= self.shut(link);
            let serving = &self.target.links[link].pipe;
            if serving.closed && self.peers[link].pipe.is_open() && !self.peers[link].pipe.lost {
                moved = true;
                self.lose(link, false);
            }
            if serving_is_done(&self.target, link) {
                moved |= self.target.shut(link);
            }
        }
        moved |= self.target.go_on();
        moved
    }

    fn run(&mut self) {
        while self.go_on() {}
    }

    /// Goes on, with time passing whenever nothing else happens, until `over` or for so many rests.
    fn wait(&mut self, rests: usize, over: impl Fn(&Play) -> bool) {
        for _ in 0..rests {
            self.run();
            if over(self) {
                return;
            }
            let next = self.initiator.poll_timeout().into_iter();
            let next = next.chain(self.target.shard.shared.poll_timeout()).min();
            let Some(at) = next else { return };
            self.pass(at.since(self.target.shard.now).max(Duration::from_millis(1)));
        }
    }

    pub(crate) fn end(mut self) {
        self.wait(512, |play| play.visits.is_empty());
        let left = self.visits.len();
        assert_eq!(left, 0, "requests are not answered; it is {}", self.initiator.state());
        self.initiator.close();
        self.settle();
        self.wait(512, |play| play.initiator.is_gone());
        assert!(self.initiator.is_gone(), "it is {}", self.initiator.state());
        assert_eq!(self.memory.held(), 0, "pages are lost");
        for (link, peer) in self.peers.iter().enumerate() {
            assert!(peer.pipe.closed, "connection {link} is left");
        }
        self.target.end();
    }
}

/// Whether the serving end closed, and all that it said has left.
fn serving_is_done(target: &Target, link: usize) -> bool {
    let pipe = &target.links[link].pipe;
    pipe.close.is_some() && !pipe.is_sending()
}
