//! One connection of a raw host in the world, which is its session: a login with keys that are drawn,
//! bytes out, in pieces of any length; data for R2Ts, now or later; bytes in.

use std::collections::BTreeMap;

use block::Random;
use testkit::iscsi::host::{Host, Order};
use wire::iscsi::R2t;

use super::super::{NAME, NUMBER};
use super::work::Asked;
use crate::client::SimWorld;
use crate::run::MILLISECOND;

/// A connection.
#[derive(Debug)]
pub(in super::super) struct Line {
    raw: usize,
    /// What it asked, and may hear.
    pub(in super::super) host: Host<Asked>,
    /// What came of reads, by task tag.
    pub(in super::super) reads: BTreeMap<u32, Vec<u8>>,
    grants: Vec<(u64, R2t)>,
    /// How late data are, at most.
    pub(in super::super) late: u64,
    pub(in super::super) random: Random,
}

impl Line {
    /// Connects and logs in.
    pub(in super::super) fn log_in(
        world: &mut SimWorld,
        target: usize,
        (name, isid): (&str, [u8; 6]),
        digests: bool,
        mut random: Random,
    ) -> Line {
        let raw = world.connect_raw_to(target, NUMBER);
        world.bare_raw(raw, true);
        let mut one_of = |these: &[&'static str]| these[random.below(these.len() as u64) as usize];
        let digest = if digests { "CRC32C" } else { "None" };
        let keys = [
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("ImmediateData", one_of(&["Yes", "No"])),
            ("InitialR2T", one_of(&["Yes", "No"])),
            ("FirstBurstLength", one_of(&["512", "4096", "8192", "65536"])),
            ("MaxBurstLength", one_of(&["8192", "65536", "262144", "1048576"])),
            ("MaxRecvDataSegmentLength", one_of(&["512", "8192", "65536", "262144"])),
        ];
        // Who says nothing of these has what the standard says.
        let count = if random.chance(1, 4) { 2 } else { keys.len() };
        let mut host = Host::new(isid, random.next_u64() as u32);
        let words = host.log_in(name, Some(NAME), &keys[..count], Asked::Login);
        let mut line = Line {
            raw,
            host,
            reads: BTreeMap::new(),
            grants: Vec::new(),
            late: 30 * MILLISECOND,
            random,
        };
        line.say(world, &words);
        line
    }

    /// It is logged in: digests cover what is said from here on.
    pub(in super::super) fn is_logged_in(&mut self, world: &mut SimWorld) {
        world.bare_raw(self.raw, false);
    }

    /// Sends bytes, in pieces.
    pub(in super::super) fn say(&mut self, world: &mut SimWorld, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let some = 1 + self.random.below(rest.len() as u64) as usize;
            let length = if self.random.chance(2, 3) { rest.len() } else { some };
            world.send_raw(self.raw, &rest[..length]);
            rest = &rest[length..];
        }
    }

    /// Sends a command with as much of its data as may come with it, or as chance says, and those that
    /// follow unasked.
    pub(in super::super) fn ask(&mut self, world: &mut SimWorld, order: Order, mut asked: Asked) {
        let agreed = self.host.agreed;
        let data = asked.data();
        let first = agreed.first_burst.min(data.len() as u32);
        let with = match self.random.below(3) {
            _ if !agreed.immediate_data => 0,
            0 => 0,
            1 => (first / 2).next_multiple_of(512).min(first).min(agreed.target_segment),
            _ => first.min(agreed.target_segment),
        };
        let follows = !agreed.initial_r2t && with < first && self.random.chance(1, 2);
        let order = if follows { order.unfinished() } else { order };
        if with as usize == data.len() {
            asked.note_whole();
        }
        let is_skewed = asked.is_skewed();
        let (tag, mut bytes) = self.host.command(order, &data[..with as usize], asked);
        if follows {
            self.host.skew = u32::from(is_skewed);
            let mut at = with;
            while at < first {
                let length = (first - at).min(agreed.target_segment);
                let part = &data[at as usize..(at + length) as usize];
                bytes.extend(self.host.unasked(tag, at, part, at + length == first));
                at += length;
            }
            self.host.skew = 0;
        }
        self.say(world, &bytes);
    }

    /// Bytes of reads that are not answered.
    pub(in super::super) fn read_bytes(&self) -> usize {
        let all = self.host.asked.values().filter_map(|asked| asked.order());
        let reads = all.filter(|order| order.flags.is_read());
        reads.map(|order| order.expected as usize).sum()
    }

    /// Takes what came in; returns whether something did.
    pub(in super::super) fn take(&mut self, world: &mut SimWorld) -> bool {
        let bytes = world.take_raw(self.raw, usize::MAX);
        self.host.hear(&bytes);
        !bytes.is_empty()
    }

    /// What still comes by a connection that was left is nobody's concern.
    pub(in super::super) fn forget_what_came(&mut self, world: &mut SimWorld) {
        world.take_raw(self.raw, usize::MAX);
    }

    /// Data of a read came.
    pub(in super::super) fn note_data(&mut self, tag: u32, offset: u32, data: &[u8]) {
        let bytes = self.reads.entry(tag).or_default();
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
    }

    /// Whether the target closed it and all that it said was heard.
    pub(in super::super) fn is_over(&self, world: &SimWorld) -> bool {
        world.raw_end(self.raw).is_some()
    }

    /// Closes it.
    pub(in super::super) fn hang_up(&mut self, world: &mut SimWorld, reset: bool) {
        if !self.is_over(world) {
            world.end_raw(self.raw, reset);
        }
    }

    /// An R2T: it is served now, later, or never, when the session ends before.
    pub(in super::super) fn grant(&mut self, now: u64, grant: R2t) {
        let late = self.random.chance(1, 4);
        let delay = if late { self.random.below(self.late) } else { 0 };
        self.grants.push((now + delay, grant));
    }

    /// When the next R2T is to be served.
    pub(in super::super) fn next_grant(&self) -> Option<u64> {
        self.grants.iter().map(|(at, _)| *at).min()
    }

    /// Sends the data that are due.
    pub(in super::super) fn serve_grants(&mut self, world: &mut SimWorld) {
        while let Some(at) = self.grants.iter().position(|(at, _)| *at <= world.now) {
            let (_, grant) = self.grants.remove(at);
            // Aborted meanwhile: the data are not wanted any more.
            let Some(asked) = self.host.asked.get(&grant.initiator_task_tag) else { continue };
            let data = asked.what.data();
            self.host.skew = u32::from(asked.what.is_skewed());
            let segment = u64::from(self.host.agreed.target_segment / 512);
            let whole = self.random.chance(1, 2);
            let blocks = if whole { segment } else { 1 + self.random.below(segment) };
            let bytes = self.host.give_all(&grant, &data, 512 * blocks as u32);
            self.host.skew = 0;
            self.say(world, &bytes);
        }
    }
}
