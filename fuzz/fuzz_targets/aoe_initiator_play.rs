//! The AoE initiator and a target, over an Ethernet that loses, repeats, reorders and changes
//! frames.
//!
//! Checked: each request is answered once, whatever happens; what is read and written is the right
//! data, unless frames were changed; no two overlapping writes are on the wire at once; nothing is
//! stuck or lost in the end.
#![no_main]

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use aoe::initiator::{Initiator, Settings};
use block::{
    Buffer, Completion, Extent, Instant, MachineId, Memory, Operation, Request, ShardId, Ticket,
};
use contract::link::open;
use contract::{EtherType, FrameBatch, InFrame, LinkId};
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use plateway_fuzz::content::{Pattern, SIZE, WISHES, Wish, expect, fill};
use plateway_fuzz::ether::{LINKS, Serving, facts};
use testkit::Pages;
use wire::aoe::Address;

const SECTORS: u64 = SIZE / 512;
/// The export whose cache is volatile: the target flushes.
const EXPORT: u32 = 1;

struct Play {
    serving: Serving,
    initiator: Initiator,
    memory: Pages,
    out: VecDeque<FrameBatch>,
    /// Frames on the wire, both ways.
    up: VecDeque<(LinkId, Vec<u8>)>,
    down: VecDeque<(LinkId, Vec<u8>)>,
    /// Requests that are not answered; of a read, where it begins.
    visits: BTreeMap<u32, Option<u64>>,
    next: u32,
    tampered: bool,
}

impl Play {
    fn new(choices: &mut Choices<'_>) -> Play {
        let serving = Serving::new(4096);
        let links = [LinkId(0), LinkId(1)];
        let mut settings = Settings::new(&links, Address::new(7, EXPORT as u8));
        settings.window = 1 + u16::from(choices.byte() & 0x1f);
        let mut initiator = Initiator::new(settings, u64::from(choices.byte()));
        for link in links {
            initiator.link_up(serving.shard.now, link, facts(1, link));
        }
        Play {
            serving,
            initiator,
            memory: Pages::default(),
            out: VecDeque::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            visits: BTreeMap::new(),
            next: 0,
            tampered: false,
        }
    }

    fn now(&self) -> Instant {
        self.serving.shard.now
    }

    fn ask(&mut self, choices: &mut Choices<'_>) {
        let what = choices.below(8);
        let place = u64::from(choices.byte());
        let first = if place < 200 { place % 64 } else { SECTORS - 8 + place % 16 };
        let count = [1, 1, 2, 3, 17, 18, 40, 128][choices.below(8)];
        let extent = Extent::new(first * 512, count * 512);
        let mut buffer = Buffer::reserved((count * 512) as u32, (first * 512 % 4096) as u32);
        let fits = extent.end().0 <= SIZE;
        let mut put = |pattern, buffer: &mut Buffer| {
            let mut bytes = vec![0; (count * 512) as usize];
            if fits {
                fill(pattern, EXPORT, extent.offset.0, &mut bytes);
            }
            self.memory.write(buffer, 0, &bytes);
        };
        let durable = what & 1 == 1;
        let operation = match what {
            0 | 1 => Operation::Read { extent, buffer },
            2 | 3 => {
                put(Pattern::Written, &mut buffer);
                Operation::Write { extent, buffer, durable }
            }
            4 => Operation::Flush,
            5 => {
                put(Pattern::Held, &mut buffer);
                Operation::Compare { extent, buffer }
            }
            6 => Operation::Verify { extent },
            _ => Operation::Discard { extents: vec![extent] },
        };
        let reads = matches!(operation, Operation::Read { .. }).then_some(extent.offset.0);
        let (slot, machine) = (self.next, MachineId(9));
        self.next += 1;
        self.visits.insert(slot, reads);
        let ticket = Ticket { machine, generation: 1, slot, shard: ShardId(0) };
        self.initiator.handle_request(self.now(), &mut Request { ticket, operation });
    }

    fn settle(&mut self) {
        let now = self.now();
        if self.initiator.poll_timeout().is_some_and(|at| at <= now) {
            self.initiator.handle_timeout(now);
        }
        self.initiator.settle(now);
        while let Some(batch) = self.initiator.poll_batch() {
            self.up.extend(batch.to_frames(&self.memory));
            self.out.push_back(batch);
        }
        while let Some(completion) = self.initiator.poll_completion() {
            self.completed(completion);
        }
        while let Some(news) = self.initiator.poll_news() {
            drop(self.initiator.tell(&news));
        }
        self.serving.settle();
        self.down.extend(self.serving.sent.drain(..));
    }

    fn completed(&mut self, completion: Completion) {
        let Completion { ticket, outcome, buffer, expected } = completion;
        let reads = self.visits.remove(&ticket.slot).expect("it is answered once");
        if let (Some(offset), true, false) = (reads, outcome.is_done(), self.tampered) {
            expect(Pattern::Held, EXPORT, offset, &self.memory.bytes(&buffer));
        }
        self.memory.release(buffer);
        assert!(expected.is_none());
    }

    fn give_back(&mut self, which: usize) -> bool {
        let Some(batch) = self.out.remove(which) else { return false };
        self.initiator.handle_sent(self.serving.shard.now, batch);
        true
    }

    fn rise(&mut self, which: usize) -> bool {
        let Some((link, bytes)) = self.up.remove(which) else { return false };
        assert!(bytes.len() <= facts(1, link).mtu as usize + 14);
        self.serving.come(link, &bytes);
        true
    }

    fn fall(&mut self, which: usize) -> bool {
        let Some((link, bytes)) = self.down.remove(which) else { return false };
        let opened = open(&facts(1, link), &InFrame::new(link, None, &bytes));
        if let Ok(frame) = opened
            && frame.ether_type == EtherType::AOE
        {
            self.initiator.handle_frame(self.serving.shard.now, &frame, &mut self.memory);
        }
        true
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..=2 => self.ask(choices),
            3 | 4 => {
                let which = choices.below(self.up.len().max(1));
                self.rise(which);
            }
            5 | 6 => {
                let which = choices.below(self.down.len().max(1));
                self.fall(which);
            }
            7 => {
                let wires = if choices.flag() { &mut self.up } else { &mut self.down };
                let which = choices.below(wires.len().max(1));
                match choices.below(3) {
                    0 => drop(wires.remove(which)),
                    1 => {
                        if let Some(frame) = wires.get(which).cloned() {
                            wires.push_back(frame);
                        }
                    }
                    _ => {
                        let at = choices.below(64);
                        let value = choices.byte();
                        if let Some((_, bytes)) = wires.get_mut(which)
                            && let Some(byte) = bytes.get_mut(at)
                        {
                            *byte = value;
                            (self.tampered, self.serving.strict) = (true, false);
                        }
                    }
                }
            }
            8 | 9 => {
                let which = choices.below(self.serving.shard.below.held.len().max(1));
                let wish = choices.of(&WISHES);
                self.serving.answer(which, wish, choices.flag());
            }
            10 => {
                let which = choices.below(self.out.len().max(1));
                self.give_back(which);
            }
            11 => {
                let which = choices.below(self.serving.out.len().max(1));
                self.serving.give_back(which);
            }
            12 => {
                let millis = [0, 1, 30, 250, 1000, 11_000, 61_000][choices.below(7)];
                self.serving.shard.now = self.serving.shard.now + Duration::from_millis(millis);
            }
            13 => {
                let link = LinkId(choices.below(LINKS as usize) as u32);
                let now = self.now();
                match choices.flag() {
                    true => self.initiator.link_down(now, link),
                    false => self.initiator.link_up(now, link, facts(1, link)),
                }
            }
            14 => {
                for _ in 0..8 {
                    self.go_on();
                }
            }
            _ => {}
        }
        self.settle();
    }

    /// One round of everything that goes on by itself. Returns whether anything did.
    fn go_on(&mut self) -> bool {
        self.settle();
        let moved = self.give_back(0)
            | self.rise(0)
            | self.fall(0)
            | self.serving.answer(0, Wish::Honest, false)
            | self.serving.give_back(0);
        self.serving.agree(true);
        self.settle();
        moved
    }

    /// Goes on, with time passing whenever nothing else happens, until `over` or for so many rests.
    fn wait(&mut self, rests: usize, over: impl Fn(&Play) -> bool) {
        for _ in 0..rests {
            while self.go_on() {}
            if over(self) {
                return;
            }
            let times = [self.initiator.poll_timeout(), self.serving.target.poll_timeout()];
            let Some(at) = times.into_iter().flatten().min() else { return };
            let least = self.now() + Duration::from_micros(1);
            self.serving.shard.now = at.max(least);
        }
    }

    fn end(mut self) {
        for link in 0..LINKS {
            let now = self.now();
            self.initiator.link_up(now, LinkId(link), facts(1, LinkId(link)));
        }
        self.wait(4096, |play| play.visits.is_empty());
        let left = self.visits.len();
        assert_eq!(left, 0, "requests are not answered; it is {}", self.initiator.state());
        self.initiator.close();
        self.wait(64, |play| play.initiator.is_gone());
        assert!(self.initiator.is_gone());
        assert_eq!(self.memory.held(), 0, "pages are lost");
        self.serving.end();
    }
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut play = Play::new(&mut choices);
    play.serving.strict = true;
    while !choices.is_empty() {
        play.step(&mut choices);
    }
    play.end();
});
