//! The other customer of the network: a host and a disk of AoE with the addresses of the first
//! customer's client and target, and other data. Whatever crosses between the two is seen: what the
//! disk or the host hears must be the other's, with this customer's mark in it.
//!
//! The host is as Linux's driver: what is not answered it sends again, under another tag, and it
//! writes to a sector no more until that one is answered. The disk carries out what comes, as one that
//! knows no copies. So nothing but a pseudowire's numbers keeps an old copy of a write from landing
//! behind a newer one (docs/faults.md). Each write to a sector is one more than the one before.
//! Units: virtual nanoseconds, sectors. Errors: what was seen that must not be.

use std::collections::BTreeMap;

use block::Random;
use testkit::aoe::{ata, frame, open, request};
use wire::aoe::{AtaArgument, Body, Command, Header, Message, SECTOR};
use wire::ata::Opcode;
use wire::ethernet::MacAddress;

use crate::client::SimWorld;
use crate::over_aoe::ADDRESS;
use crate::run::MILLISECOND;

/// Sectors that it works on: those that clients of the first customer work on most.
const SECTORS: u64 = 4;
/// How long an answer is waited for, first and at most.
const WAIT_FIRST: u64 = 150 * MILLISECOND;
const WAIT_MAX: u64 = 1_000 * MILLISECOND;
/// How often it asks something new, at most.
const REST: u64 = 60 * MILLISECOND;
/// What is in front of its data.
const MARK: &[u8; 24] = b"the other customer's own";

/// What is asked of a sector.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What is written; `None` for a read.
    value: Option<u64>,
    /// The first tag of it; those of before were of something else.
    first_tag: u32,
    since: u64,
    wait: u64,
    again_at: u64,
}

/// What a tag is of.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    sector: u64,
    value: Option<u64>,
    /// The last write of the sector that was answered before.
    after: u64,
}

/// Host and disk.
#[derive(Debug)]
pub(super) struct Other {
    random: Random,
    /// Where the host is, and the disk.
    stations: [usize; 2],
    macs: [MacAddress; 2],
    vlan: Option<u16>,
    /// All that was ever asked.
    tags: BTreeMap<u32, Tagged>,
    /// By sector.
    asked: BTreeMap<u64, Asked>,
    answered: BTreeMap<u64, u64>,
    disk: BTreeMap<u64, u64>,
    next_at: u64,
    stopping: bool,
    /// Commands that were answered, and those that were sent again.
    pub(super) done: u64,
    pub(super) again: u64,
}

impl Other {
    pub(super) fn new(
        random: Random,
        stations: [usize; 2],
        macs: [[u8; 6]; 2],
        vlan: Option<u16>,
    ) -> Other {
        Other {
            random,
            stations,
            macs: macs.map(MacAddress),
            vlan,
            tags: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            disk: BTreeMap::new(),
            next_at: 0,
            stopping: false,
            done: 0,
            again: 0,
        }
    }

    /// Begins nothing new.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether nothing is asked any more.
    pub(super) fn is_quiet(&self) -> bool {
        self.stopping && self.asked.is_empty()
    }

    /// What it waits for, in words.
    pub(super) fn state(&self) -> String {
        format!("{:?}", self.asked)
    }

    /// Since when it has waited for what it has waited for longest.
    pub(super) fn waits_since(&self) -> Option<u64> {
        self.asked.values().map(|asked| asked.since).min()
    }

    /// When it wants to be driven.
    pub(super) fn next(&self) -> Option<u64> {
        let again = self.asked.values().map(|asked| asked.again_at);
        again.chain((!self.stopping).then_some(self.next_at)).min()
    }

    /// Host and disk hear what came, and the host asks.
    pub(super) fn drive(&mut self, world: &mut SimWorld) -> Result<(), String> {
        while let Some(bytes) = world.receive_frame(self.stations[1]) {
            self.serve(world, &bytes)
                .map_err(|what| format!("the other customer's disk {what}"))?;
        }
        while let Some(bytes) = world.receive_frame(self.stations[0]) {
            self.hear(&bytes).map_err(|what| format!("the other customer's host {what}"))?;
        }
        let now = world.now;
        let is_late = |(_, asked): &(&u64, &Asked)| asked.again_at <= now;
        let late: Vec<u64> = self.asked.iter().filter(is_late).map(|(sector, _)| *sector).collect();
        self.again += late.len() as u64;
        for sector in late {
            let asked = self.asked.get_mut(&sector).expect("it was there");
            asked.wait = (asked.wait * 2).min(WAIT_MAX);
            self.ask(world, sector);
        }
        if !self.stopping && self.next_at <= now {
            self.next_at = now + 1 + self.random.below(REST);
            let sector = self.random.below(SECTORS);
            if !self.asked.contains_key(&sector) {
                let next = self.answered.get(&sector).copied().unwrap_or(0) + 1;
                let value = self.random.chance(2, 3).then_some(next);
                let (first_tag, wait) = (self.next_tag(), WAIT_FIRST);
                let asked = Asked { value, first_tag, since: now, wait, again_at: now };
                self.asked.insert(sector, asked);
                self.ask(world, sector);
            }
        }
        Ok(())
    }

    fn next_tag(&self) -> u32 {
        self.tags.len() as u32 + 1
    }

    /// Sends what is asked of a sector, under a tag of its own.
    fn ask(&mut self, world: &mut SimWorld, sector: u64) {
        let tag = self.next_tag();
        let asked = self.asked.get_mut(&sector).expect("something is asked");
        asked.again_at = world.now + asked.wait;
        let (value, after) = (asked.value, self.answered.get(&sector).copied().unwrap_or(0));
        self.tags.insert(tag, Tagged { sector, value, after });
        let body = match value {
            Some(value) => ata(Opcode::WRITE_SECTORS_EXT.0, sector, 1, &data_of(sector, value)),
            None => ata(Opcode::READ_SECTORS_EXT.0, sector, 1, &[]),
        };
        let message = request(ADDRESS, Command::ATA.0, tag, &body);
        let [host, disk] = self.macs;
        world.send_frame(self.stations[0], &frame(disk, host, self.vlan, &message));
    }

    /// The disk carries out what comes.
    fn serve(&mut self, world: &mut SimWorld, bytes: &[u8]) -> Result<(), String> {
        let [host, disk] = self.macs;
        let (header, argument, data) = parse(bytes, host)?;
        let sector = argument.lba48();
        let asked = self.tags.get(&header.tag).filter(|tagged| tagged.sector == sector);
        if header.flags.is_response() || asked.is_none() {
            return Err(format!("heard what its host never asked: {header:?} {argument:?}"));
        }
        let mut answer = [&header.response(ADDRESS).emit()[..], &argument.emit()].concat();
        if argument.command_status == Opcode::WRITE_SECTORS_EXT.0 {
            let value = value_of(sector, data)?;
            self.disk.insert(sector, value);
            let answered = self.answered.get(&sector).copied().unwrap_or(0);
            if value < answered {
                return Err(format!(
                    "has write {value} of sector {sector}, and {answered} was answered"
                ));
            }
        } else {
            let value = self.disk.get(&sector).copied().unwrap_or(0);
            answer.extend(data_of(sector, value));
        }
        world.send_frame(self.stations[1], &frame(host, disk, self.vlan, &answer));
        Ok(())
    }

    /// The host hears an answer, which may be to something that was answered before.
    fn hear(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (header, argument, data) = parse(bytes, self.macs[1])?;
        let Some(Tagged { sector, value, after }) = self.tags.get(&header.tag).copied() else {
            return Err(format!("was answered what it never asked: {header:?} {argument:?}"));
        };
        if !header.flags.is_response() || sector != argument.lba48() {
            return Err(format!("heard no answer of its disk's: {header:?} {argument:?}"));
        }
        if value.is_none() {
            let read = value_of(sector, data)?;
            if read < after {
                return Err(format!(
                    "read write {read} of sector {sector}, and {after} was answered before"
                ));
            }
        }
        if self.asked.get(&sector).is_some_and(|asked| asked.first_tag <= header.tag) {
            self.asked.remove(&sector);
            self.answered.extend(value.map(|value| (sector, value)));
            self.done += 1;
        }
        Ok(())
    }
}

/// A sector's data behind a write.
fn data_of(sector: u64, value: u64) -> Vec<u8> {
    let mut data = [&MARK[..], &sector.to_be_bytes(), &value.to_be_bytes()].concat();
    data.resize(SECTOR, 0);
    data
}

/// Which write data are of.
fn value_of(sector: u64, data: &[u8]) -> Result<u64, String> {
    let at = MARK.len() + 8;
    let value = data.get(at..at + 8).and_then(<[u8]>::first_chunk).copied();
    let value = value.map(u64::from_be_bytes);
    let is_its = |value: &u64| data.get(..SECTOR) == Some(&data_of(sector, *value)[..]);
    value.filter(is_its).ok_or_else(|| {
        let first = &data[..data.len().min(64)];
        format!("was given data that are not its own for sector {sector}: {first:02x?}")
    })
}

/// What a frame says, which has to be a command of this customer's or the answer to one.
fn parse(bytes: &[u8], from: MacAddress) -> Result<(Header, AtaArgument, &[u8]), String> {
    let is_ours = |(its, message): (MacAddress, _)| (its == from).then_some(message);
    let message = open(bytes).and_then(is_ours);
    match message.map(Message::parse) {
        Some(Ok(Message { header, body: Body::Ata(argument, data) })) => {
            Ok((header, argument, data))
        }
        _ => {
            let first = &bytes[..bytes.len().min(64)];
            Err(format!("heard what this customer never sends: {first:02x?}"))
        }
    }
}
