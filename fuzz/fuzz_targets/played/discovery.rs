//! Discovery over a connection to a target that is honest until its bytes are tampered with, or PDUs
//! are put between them; one text for all protocols over streams. What is the protocol's is where
//! this is mounted: `Discovery`, `Target`, `export`, `hear` and `invent`.

use core::time::Duration;

use contract::{Loss, StreamEffect};
use plateway_fuzz::Choices;
use plateway_fuzz::host::tamper;
use plateway_fuzz::peer::{self, Peer};
use testkit::Pages;
use testkit::pipe::Shown;

use super::{Discovery, Target, export, hear, invent};

const PAUSES: [u64; 5] = [1, 20, 200, 1_000, 6_000];

pub(crate) struct Play {
    target: Target,
    discovery: Discovery,
    memory: Pages,
    peers: Vec<Peer>,
    asked: bool,
    results: Vec<Result<usize, String>>,
    touched: bool,
}

impl Play {
    /// Asks a target that exports `exports` more than its own.
    pub(crate) fn new(target: Target, discovery: Discovery, exports: u8) -> Play {
        let mut play = Play {
            target,
            discovery,
            memory: Pages::default(),
            peers: Vec::new(),
            asked: false,
            results: Vec::new(),
            touched: false,
        };
        for number in 0..exports {
            play.export(number);
        }
        play.settle();
        play
    }

    /// Something more is exported.
    fn export(&mut self, number: u8) {
        export(&mut self.target, number);
        self.target.settle();
    }

    pub(crate) fn act(&mut self, choices: &mut Choices<'_>) {
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
                pipe.coming.extend(invent(choices));
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
            Shown::Bytes(bytes) => hear(discovery, now, bytes),
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

    pub(crate) fn end(mut self) {
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
