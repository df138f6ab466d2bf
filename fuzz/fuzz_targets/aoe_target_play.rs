//! Stations that send good, bad and repeated frames to AoE exports, whose volumes answer later and
//! as they like.
//!
//! Checked: no more answers than frames but for announcements and wildcard queries; each answer is
//! a response of ours that fits its link, with a tag that was asked; nobody who is not a host is
//! answered; nothing is stuck or lost in the end.
#![no_main]

use core::time::Duration;
use std::collections::BTreeSet;

use aoe::export::ExportId;
use contract::LinkId;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use plateway_fuzz::content::{WISHES, Wish};
use plateway_fuzz::ether::{EXPORTS, LINKS, Serving, facts, station};

const OPCODES: [u8; 20] = [
    0x24, 0x34, 0x20, 0x30, 0x25, 0x35, 0xc8, 0xca, 0xec, 0xe7, 0xea, 0x06, 0x42, 0x40, 0xe5, 0xb0,
    0xef, 0xf8, 0x27, 0x99,
];

/// What the stations know.
struct Play {
    serving: Serving,
    tags: BTreeSet<u32>,
    recent: Vec<(LinkId, Vec<u8>)>,
    tampered: bool,
}

impl Play {
    /// A good frame.
    fn frame(&mut self, choices: &mut Choices<'_>) -> (LinkId, Vec<u8>) {
        let link = LinkId(choices.below(LINKS as usize) as u32);
        let (source, slot) = (1 + choices.below(3) as u8, choices.below(4) as u8);
        let tag = u32::from(choices.byte() & 0x1f);
        let mut to = station(9, link);
        let mut address = [0, 7, slot];
        let kind = choices.below(8);
        let (command, body) = match kind {
            0..=3 => (0, self.ata(choices)),
            4 => {
                let how = choices.byte();
                if how & 0x80 != 0 {
                    to = [0xff; 6];
                }
                if how & 0x40 != 0 {
                    address = [0xff; 3];
                }
                let text = [how & 3; 3];
                let mut body = vec![0, 0, 0, 0, 0, 0x10 | (how >> 2 & 7), 0, how & 3];
                body.extend(&text[..usize::from(how & 3)]);
                (1, body)
            }
            5 | 6 => {
                let how = choices.byte();
                let command = how & 3;
                let count = how >> 2 & 3;
                let list = (0..count).map(|at| station(1 + (how >> 4) % 3 + at, link));
                if kind == 5 {
                    let mut body = vec![0, command, 0, count];
                    for mac in list {
                        body.extend([0, 1 + (how >> 6 & 1)]);
                        body.extend(mac);
                    }
                    (2, body)
                } else {
                    let mut body = vec![command, count];
                    list.for_each(|mac| body.extend(mac));
                    (3, body)
                }
            }
            _ => (choices.byte(), vec![0; 12]),
        };
        let mut bytes = [&to[..], &station(source, link), &[0x88, 0xa2, 0x10, 0]].concat();
        bytes.extend(address);
        bytes.push(command);
        bytes.extend(tag.to_be_bytes());
        bytes.extend(body);
        self.tags.insert(tag);
        (link, bytes)
    }

    fn ata(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let opcode = choices.of(&OPCODES);
        let (count, place) = (choices.byte() % 20, choices.byte());
        // Most lie close together, some at the end and behind.
        let lba =
            if place < 200 { u64::from(place % 24) } else { 4096 - 20 + u64::from(place % 40) };
        let writes = matches!(opcode, 0x30 | 0x34 | 0x35 | 0xca | 0x06);
        let mut body = vec![0x40 | u8::from(writes), u8::from(opcode == 6), count, opcode];
        body.extend(&lba.to_le_bytes()[..6]);
        body.extend([0, 0]);
        if writes {
            body.extend(vec![choices.byte() & 3; usize::from(count) * 512]);
        }
        body
    }

    /// Looks at what was sent.
    fn look(&mut self) {
        while let Some((link, bytes)) = self.serving.sent.pop_front() {
            let mtu = facts(9, link).mtu as usize;
            assert!(bytes.len() >= 60 && bytes.len() <= mtu + 14, "{} bytes", bytes.len());
            assert_eq!(bytes[6..12], station(9, link));
            assert_eq!((bytes[12], bytes[13], bytes[14] & 0xf8), (0x88, 0xa2, 0x18));
            let tag = u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
            assert!(
                self.tampered || tag == 0 || self.tags.contains(&tag),
                "tag {tag} was not asked"
            );
            assert!(bytes[18] < EXPORTS as u8);
            if bytes[18] == 2 && !self.tampered {
                // Announcements go to all hosts on each link.
                let is_host = (0..LINKS).any(|link| bytes[..6] == station(1, LinkId(link)));
                assert!(is_host, "a stranger is answered");
            }
            let is_failed = bytes[19] == 0 && bytes[27] & 1 == 1;
            assert!(bytes[14] & 4 == 0 || bytes[15] > 0, "a refusal without a reason");
            assert!(!is_failed || bytes[14] & 4 == 0, "a failure of the device with the E flag");
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..=4 => {
                let (link, bytes) = self.frame(choices);
                self.serving.come(link, &bytes);
                self.recent.push((link, bytes));
                if self.recent.len() > 8 {
                    self.recent.remove(0);
                }
            }
            5 => {
                // A copy of one that came before.
                let which = choices.below(8);
                if let Some((link, bytes)) = self.recent.get(which).cloned() {
                    self.serving.come(link, &bytes);
                }
            }
            6 => {
                let (link, mut bytes) = self.frame(choices);
                self.tampered = true;
                for _ in 0..=choices.below(3) {
                    let at = choices.below(bytes.len().min(64));
                    bytes[at] = choices.byte();
                }
                let length = choices.below(bytes.len() + 1);
                bytes.truncate(if choices.flag() { length } else { bytes.len() });
                self.serving.come(link, &bytes);
            }
            7..=9 => {
                let which = choices.below(self.serving.shard.below.held.len().max(1));
                let wish = choices.of(&WISHES);
                self.serving.answer(which, wish, choices.flag());
            }
            10 => {
                let which = choices.below(self.serving.out.len().max(1));
                self.serving.give_back(which);
            }
            11 => {
                let millis = [0, 1, 20, 999, 1000, 6000, 60_000][choices.below(7)];
                self.serving.shard.now = self.serving.shard.now + Duration::from_millis(millis);
            }
            12 => {
                let stores = choices.flag();
                self.serving.agree(!stores);
            }
            13 => {
                let link = LinkId(choices.below(LINKS as usize) as u32);
                match choices.flag() {
                    true => self.serving.target.link_down(link),
                    false => self.serving.target.link_up(link, facts(9, link)),
                }
            }
            14 => {
                let id = ExportId(choices.below(EXPORTS as usize) as u32);
                match choices.below(3) {
                    0 => self.serving.with(|target, ctx| target.remove_export(id, ctx)),
                    1 => self.serving.add(id),
                    _ => {
                        let mut export = Serving::export(id);
                        export.buffers = choices.byte().into();
                        export.read_only = choices.flag();
                        self.serving.target.renew_export(id, export);
                        self.serving.target.announce_exports();
                    }
                }
            }
            _ => self.serving.settle(),
        }
        self.look();
    }
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let pages = if choices.flag() { 64 } else { 4096 };
    let mut play = Play {
        serving: Serving::new(pages),
        tags: BTreeSet::new(),
        recent: Vec::new(),
        tampered: false,
    };
    while !choices.is_empty() {
        play.step(&mut choices);
    }
    while play.serving.go_on() || play.serving.answer(0, Wish::Honest, false) {
        play.look();
    }
    play.look();
    play.serving.end();
});
