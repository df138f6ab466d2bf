//! A host of AoE of our own making, which does what our initiator never does: the tags of all that
//! it asks fall into few of the sets in which a target remembers writes, and are those of others
//! now and then. It never asks again: what is not answered is in doubt, and nothing of it happens
//! any more once its frame is dead and no disk is so slow.
//!
//! A target may forget such writes before their time, and has to count that. So the network repeats
//! nothing where this host is: a copy of what was forgotten would be carried out again.
//! Units: blocks of the oracle, virtual nanoseconds.

use std::collections::BTreeMap;

use block::Random;
use testkit::aoe::{frame, open, request};
use testkit::oracle::Content;
use wire::aoe::{AtaArgument, Command, Header};
use wire::ata::Opcode;
use wire::ethernet::MacAddress;

use super::lan::ADDRESS;
use crate::client::SimWorld;
use crate::disk::SECTOR;
use crate::writer::{Log, Write, Writer};

const MILLISECOND: u64 = 1_000_000;
/// Nothing of what is not answered happens later: frames die within a second, what waits behind
/// others does so for five, and disks answer within a second.
const LATE: u64 = 10_000 * MILLISECOND;
/// Blocks that it works on.
const SPAN: u64 = 16;
/// Commands under way at most.
const DEPTH: usize = 8;
/// ATA's ERR in the status.
const ERR: u8 = 1;

/// What is asked.
#[derive(Debug)]
struct Asked {
    at: u64,
    first: u64,
    /// `None` for a read.
    write: Option<Write>,
}

/// The host.
#[derive(Debug)]
pub(crate) struct PlainHost {
    random: Random,
    station: usize,
    mac: MacAddress,
    target: MacAddress,
    vlan: Option<u16>,
    asked: BTreeMap<u32, Asked>,
    made: u32,
    next_at: u64,
    alarmed_at: u64,
    stopping: bool,
    pub(crate) writer: Writer,
    /// Commands that were answered.
    pub(crate) answered: u64,
}

impl PlainHost {
    pub(crate) fn new(
        random: Random,
        station: usize,
        [mac, target]: [MacAddress; 2],
        vlan: Option<u16>,
        writer: Writer,
    ) -> PlainHost {
        PlainHost {
            random,
            station,
            mac,
            target,
            vlan,
            asked: BTreeMap::new(),
            made: 0,
            next_at: 0,
            alarmed_at: 0,
            stopping: false,
            writer,
            answered: 0,
        }
    }

    /// Begins nothing new.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether nothing is asked any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stopping && self.asked.is_empty()
    }

    /// What it waits for, in words.
    pub(crate) fn state(&self) -> String {
        format!("{:?}", self.asked)
    }

    /// A tag. What tells sets apart is its sum of halves: here it is one of two, and all beside it
    /// counts up. Others count up from small numbers: theirs it has now and then.
    fn tag(&mut self) -> u32 {
        self.made += 1;
        let count = self.made % 0x8000;
        if self.random.chance(1, 8) {
            return count;
        }
        let sum = if self.random.chance(1, 2) { 0x1234 } else { 0x4321 };
        count << 16 | u32::from((sum as u16).wrapping_sub(count as u16))
    }

    /// Takes answers, gives up what is late, asks anew.
    pub(crate) fn drive(&mut self, world: &mut SimWorld) -> Result<(), String> {
        while let Some(bytes) = world.receive_frame(self.station) {
            self.hear(world.now, &bytes)?;
        }
        let now = world.now;
        for (_, asked) in self.asked.extract_if(.., |_, asked| asked.at + LATE <= now) {
            if let Some(write) = asked.write {
                self.writer.end(now, write, false, false);
            }
        }
        while !self.stopping && self.next_at <= now && self.asked.len() < DEPTH {
            self.ask(world);
            if self.random.chance(1, 4) {
                self.next_at = now + self.random.below(20 * MILLISECOND);
            }
        }
        let late = self.asked.values().map(|asked| asked.at + LATE).min();
        let can_ask = !self.stopping && self.asked.len() < DEPTH;
        let next = can_ask.then_some(self.next_at).into_iter().chain(late).min();
        if let Some(next) = next.filter(|next| self.alarmed_at <= now || *next < self.alarmed_at) {
            self.alarmed_at = next.max(now + 1);
            world.alarm_at(self.alarmed_at);
        }
        Ok(())
    }

    fn ask(&mut self, world: &mut SimWorld) {
        let tag = self.tag();
        if self.asked.contains_key(&tag) {
            return;
        }
        let count = 1 + self.random.below(2);
        let first = self.random.below(SPAN - count + 1);
        let is_write = self.random.chance(3, 4);
        let op = if is_write { Opcode::WRITE_SECTORS_EXT } else { Opcode::READ_SECTORS_EXT };
        let mut body = AtaArgument::request(op, first, count as u8, is_write).emit().to_vec();
        let mut write = None;
        if is_write {
            let begun = self.writer.begin(world.now, Content::Pattern, first, count);
            body.extend(begun.pattern());
            write = Some(begun);
        }
        self.asked.insert(tag, Asked { at: world.now, first, write });
        let message = request(ADDRESS, Command::ATA.0, tag, &body);
        world.send_frame(self.station, &frame(self.target, self.mac, self.vlan, &message));
    }

    fn hear(&mut self, now: u64, bytes: &[u8]) -> Result<(), String> {
        let Some((from, message)) = open(bytes).filter(|(from, _)| *from == self.target) else {
            return Ok(());
        };
        let header = Header::parse(message).map_err(|why| format!("an answer of {from}: {why}"))?;
        if !header.flags.is_response() || header.command != Command::ATA {
            return Ok(());
        }
        // One that was given up may still be answered.
        let Some(Asked { at, first, write }) = self.asked.remove(&header.tag) else {
            return Ok(());
        };
        let argument = AtaArgument::parse(&message[Header::SIZE..])
            .map_err(|why| format!("an answer of {from}: {why}"))?;
        let done = !header.flags.is_error() && argument.command_status & ERR == 0;
        self.answered += u64::from(done);
        match write {
            Some(write) => self.writer.end(now, write, done, true),
            None if done => {
                let data = &message[Header::SIZE + AtaArgument::SIZE..];
                let bytes = data[..data.len() / SECTOR * SECTOR].to_vec();
                self.writer.log.push(Log::Read { start: at, end: now, first, bytes });
            }
            None => {}
        }
        Ok(())
    }
}
