//! Discovery over a connection to a target that is honest until its bytes are tampered with, or
//! PDUs are put between them.
//!
//! Checked: it ends with one result within its time limit, closes, and is gone; an untouched one
//! finds what is there.
#![no_main]

use core::time::Duration;

use block::limits::POOL_PAGES_MIN;
use contract::{Loss, StreamEffect};
use libfuzzer_sys::fuzz_target;
use nvme::subsystem::{Hosts, Subsystem};
use nvme::tcp::initiator::Discovery;
use plateway_fuzz::Choices;
use plateway_fuzz::host::{HOST, nqn, tamper};
use plateway_fuzz::peer::{self, Peer};
use plateway_fuzz::target::Target;
use testkit::Pages;
use testkit::pipe::Shown;
use wire::nvme_tcp::Digests;

const PAUSES: [u64; 5] = [1, 20, 200, 1_000, 6_000];

struct Play {
    target: Target,
    discovery: Discovery,
    memory: Pages,
    peers: Vec<Peer>,
    asked: bool,
    results: Vec<Result<usize, String>>,
    touched: bool,
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let target = Target::new(POOL_PAGES_MIN, 1 << 20);
    let address = "127.0.0.1:4420".parse().expect("an address");
    let digests = Digests::from_bits(way & 3);
    let limit = Duration::from_secs(5);
    let discovery = Discovery::new(target.shard.now, address, nqn(HOST), [7; 16], digests, limit);
    let mut play = Play {
        target,
        discovery,
        memory: Pages::default(),
        peers: Vec::new(),
        asked: false,
        results: Vec::new(),
        touched: false,
    };
    for number in 0..way >> 4 {
        play.export(number);
    }
    play.settle();
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

impl Play {
    /// One more subsystem: the log changes.
    fn export(&mut self, number: u8) {
        let name = format!("nqn.2026-11.net.plateway:more-{number}");
        let subsystem = Subsystem::new(nqn(&name), Hosts::Any);
        self.target.shard.shared.set_subsystem(self.target.shard.now, subsystem);
        self.target.shard.shared.announce_exports();
        self.target.settle();
    }

    fn act(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        if self.peers.is_empty() {
            return self.connect(what != 0xff);
        }
        let pipe = &mut self.peers[0].pipe;
        match what & 0x1f {
            0..=5 => drop(self.go_on()),
            6 | 7 => drop(self.arrive(usize::from(choices.word()))),
            8 => drop(self.leave()),
            9 => drop(self.target.arrive(0, usize::from(choices.word()))),
            10 => drop(self.target.leave(0)),
            11 => drop(peer::carry(&mut self.peers[0], &mut self.target, 0)),
            12..=15 => self.touched |= tamper(&mut pipe.coming, choices),
            16 | 17 => {
                self.touched = true;
                pipe.coming.extend(peer::invent(choices));
            }
            18 => {
                self.touched = true;
                self.lose();
            }
            19 => drop(self.shut()),
            20 => {
                self.touched = true;
                self.pass(Duration::from_millis(choices.of(&PAUSES)));
            }
            21 => self.export(what >> 5),
            _ => drop(self.go_on()),
        }
        self.settle();
    }

    fn connect(&mut self, well: bool) {
        if !core::mem::take(&mut self.asked) {
            return;
        }
        if well {
            let link = peer::connect(&mut self.peers, &mut self.target);
            self.discovery.handle_connected(peer::id(link));
        } else {
            self.touched = true;
            self.discovery.handle_connect_failed(111);
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.discovery.settle(self.target.shard.now);
        while let Some(effect) = self.discovery.poll_effect() {
            match effect {
                StreamEffect::Connect { .. } => self.asked = true,
                StreamEffect::Send { batch, .. } => self.peers[0].pipe.send(batch),
                StreamEffect::Close { after_send, .. } => self.peers[0].pipe.end(after_send),
            }
        }
        if let Some(result) = self.discovery.poll_result() {
            self.results.push(result.map(|entries| entries.len()));
        }
    }

    fn arrive(&mut self, count: usize) -> bool {
        let pipe = &mut self.peers[0].pipe;
        let (discovery, now) = (&mut self.discovery, self.target.shard.now);
        let moved = pipe.come(count, &mut self.memory, |shown, _| match shown {
            Shown::Bytes(bytes) => discovery.handle_received(now, bytes),
            Shown::Direct(direct) => panic!("{direct:?}"),
        });
        self.settle();
        moved
    }

    fn leave(&mut self) -> bool {
        let Some((bytes, batch)) = self.peers[0].pipe.leave(&self.memory) else { return false };
        self.target.links[0].pipe.coming.extend(bytes);
        self.discovery.handle_sent(batch);
        self.settle();
        true
    }

    fn lose(&mut self) {
        if self.peers[0].pipe.lose() {
            self.discovery.handle_lost(Loss::EndOfStream);
            self.settle();
        }
    }

    fn shut(&mut self) -> bool {
        let Some((direct, batch)) = self.peers[0].pipe.try_shut() else { return false };
        assert!(direct.is_none(), "it receives nothing directly");
        self.discovery.handle_closed(batch);
        self.settle();
        true
    }

    fn pass(&mut self, time: Duration) {
        self.target.pass(time);
        let now = self.target.shard.now;
        if self.discovery.poll_timeout().is_some_and(|at| at <= now) {
            self.discovery.handle_timeout(now);
        }
        self.settle();
    }

    /// One round of everything that goes on by itself. Returns whether anything did.
    fn go_on(&mut self) -> bool {
        if self.peers.is_empty() {
            let asked = self.asked;
            self.connect(true);
            return asked;
        }
        let mut moved = self.leave();
        moved |= peer::carry(&mut self.peers[0], &mut self.target, 0);
        moved |= self.arrive(usize::MAX);
        moved |= self.shut();
        let serving = &self.target.links[0].pipe;
        if serving.close.is_some() && !serving.is_sending() {
            moved |= self.target.shut(0);
        }
        if self.target.links[0].pipe.closed && self.peers[0].pipe.is_open() {
            moved |= !self.peers[0].pipe.lost;
            self.lose();
        }
        moved | self.target.go_on()
    }

    fn end(mut self) {
        for _ in 0..400 {
            while self.go_on() {}
            if self.discovery.is_gone() {
                break;
            }
            self.pass(Duration::from_millis(20));
        }
        assert!(self.discovery.is_gone(), "{:?}", self.discovery);
        assert_eq!(self.results.len(), 1, "{:?}", self.results);
        if !self.touched {
            assert!(matches!(self.results[0], Ok(1..)), "{:?}", self.results);
        }
        assert_eq!(self.memory.held(), 0);
        self.target.end();
    }
}
