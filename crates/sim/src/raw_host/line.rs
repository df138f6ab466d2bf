//! One connection of a raw host: PDUs out, in pieces of any length, and PDUs in, heard as strictly as Linux does.

use std::collections::BTreeMap;

use block::Random;
use block::checksum::crc32c;
use contract::Machine;
use wire::nvme::{Command, Completion};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICReq, ICResp, PduType,
    R2T, TermReq,
};

use super::MILLISECOND;
use super::work::{Asked, Pair};
use crate::world::World;

/// What the target said.
#[derive(Debug)]
pub(super) enum Said {
    /// ICResp.
    Greeted,
    Response(Completion),
    Data(DataHeader, Vec<u8>),
    Grant(R2T),
    Term(TermReq),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    raw: usize,
    pub(super) target: usize,
    bytes: Vec<u8>,
    digests: Digests,
    h2c_max: u32,
    pub(super) greeted: bool,
    /// Its Connect was answered.
    pub(super) live: bool,
    /// The target may close it.
    pub(super) may_end: bool,
    pub(super) asked: BTreeMap<u16, Asked>,
    grants: Vec<(u64, R2T)>,
    next_command: u16,
}

impl Line {
    /// Connects and greets.
    pub(super) fn connect<M: Machine>(
        world: &mut World<M>,
        target: usize,
        digests: Digests,
        random: &mut Random,
    ) -> Line {
        let raw = world.connect_raw(target);
        let mut line = Line {
            raw,
            target,
            bytes: Vec::new(),
            digests,
            h2c_max: 0,
            greeted: false,
            live: false,
            may_end: false,
            asked: BTreeMap::new(),
            grants: Vec::new(),
            next_command: 1,
        };
        let request = ICReq::new(digests, 0).emit();
        line.say(world, random, &request);
        line
    }

    /// Sends bytes, in pieces.
    pub(super) fn say<M: Machine>(
        &mut self,
        world: &mut World<M>,
        random: &mut Random,
        bytes: &[u8],
    ) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let some = 1 + random.below(rest.len() as u64) as usize;
            let length = if random.chance(2, 3) { rest.len() } else { some };
            world.send_raw(self.raw, &rest[..length]);
            rest = &rest[length..];
        }
    }

    /// Sends a command, with data in its capsule if there are any.
    pub(super) fn ask<M: Machine>(
        &mut self,
        world: &mut World<M>,
        random: &mut Random,
        command: Command,
        data: &[u8],
        asked: Asked,
    ) -> u16 {
        let id = self.next_command;
        // Identifiers are used again only after all others.
        self.next_command = self.next_command.checked_add(1).unwrap_or(1);
        let command = command.with_command_id(id);
        let header = CapsuleCommand::new(command, self.digests, data.len() as u32).emit();
        let bytes = seal(&header, data, self.digests);
        self.asked.insert(id, asked);
        self.say(world, random, &bytes);
        id
    }

    /// Whether the target owes an answer: to the greeting, or to a command.
    pub(super) fn is_waiting(&self) -> bool {
        !self.greeted || !self.asked.is_empty()
    }

    /// Takes what came in; returns whether something did.
    pub(super) fn take<M: Machine>(&mut self, world: &mut World<M>) -> bool {
        let bytes = world.take_raw(self.raw, usize::MAX);
        self.bytes.extend_from_slice(&bytes);
        !bytes.is_empty()
    }

    /// Whether the target closed it and all that it said was heard.
    pub(super) fn is_over<M: Machine>(&self, world: &World<M>) -> bool {
        world.raw_end(self.raw).is_some()
    }

    /// Closes it.
    pub(super) fn hang_up<M: Machine>(&mut self, world: &mut World<M>, reset: bool) {
        if !self.is_over(world) {
            world.end_raw(self.raw, reset);
        }
        self.may_end = true;
        self.live = false;
    }

    /// The next PDU, if all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<Said>, String> {
        let Ok(common) = CommonHeader::parse(&self.bytes) else { return Ok(None) };
        if self.bytes.len() < common.length as usize {
            return Ok(None);
        }
        let rest = self.bytes.split_off(common.length as usize);
        let pdu = core::mem::replace(&mut self.bytes, rest);
        self.parse(&common, &pdu).map(Some).map_err(|why| format!("{why} in {common}"))
    }

    fn parse(&mut self, common: &CommonHeader, pdu: &[u8]) -> Result<Said, String> {
        let plain = matches!(common.kind, PduType::IC_RESP | PduType::C2H_TERM_REQ);
        let digests = if plain { Digests::NONE } else { self.digests };
        let payload = common.check(digests).map_err(|error| error.to_string())?;
        let header = usize::from(common.header_length);
        if digests.header && digest_at(pdu, header)? != crc32c(&pdu[..header]) {
            return Err("a wrong header digest".to_owned());
        }
        let wrong = |error: wire::ParseError| error.to_string();
        if common.kind == PduType::IC_RESP {
            let response = ICResp::parse(pdu).map_err(wrong)?;
            response.check().map_err(wrong)?;
            if self.greeted || response.digests() != self.digests {
                return Err("an ICResp that does not fit".to_owned());
            }
            (self.greeted, self.h2c_max) = (true, response.max_h2c_data);
            return Ok(Said::Greeted);
        }
        Ok(match common.kind {
            PduType::C2H_TERM_REQ => Said::Term(TermReq::parse(pdu).map_err(wrong)?),
            PduType::CAPSULE_RESPONSE => {
                Said::Response(CapsuleResponse::parse(pdu).map_err(wrong)?.completion)
            }
            PduType::R2T => Said::Grant(R2T::parse(pdu).map_err(wrong)?),
            PduType::C2H_DATA => {
                let data = DataHeader::parse(pdu).map_err(wrong)?;
                let (from, length) = (payload.offset as usize, payload.length as usize);
                let bytes = &pdu[from..from + length];
                if digests.data && digest_at(pdu, from + length)? != crc32c(bytes) {
                    return Err("a wrong data digest".to_owned());
                }
                Said::Data(data, bytes.to_vec())
            }
            _ => return Err("a PDU that only a host sends".to_owned()),
        })
    }

    /// Data of a read.
    pub(super) fn take_data(&mut self, header: &DataHeader, data: &[u8]) -> Result<(), String> {
        let asked = self.asked.get_mut(&header.command_id);
        let Some(
            Asked::Read { bytes, received, .. }
            | Asked::Page { bytes, received, .. }
            | Asked::Identify { bytes, received },
        ) = asked
        else {
            return Err(format!("data for command {}, which reads none", header.command_id));
        };
        let (from, to) = (header.offset as usize, header.offset as usize + data.len());
        if from != *received || to > bytes.len() {
            return Err(format!("data from {from} to {to}, expected from {received} on"));
        }
        bytes[from..to].copy_from_slice(data);
        *received = to;
        Ok(())
    }

    /// An R2T: it is served now, later, or never, when the connection ends before.
    pub(super) fn grant(
        &mut self,
        now: u64,
        grant: R2T,
        random: &mut Random,
        pairs: &BTreeMap<u64, Pair>,
    ) -> Result<(), String> {
        let there = self.data_of(grant.command_id, pairs).map_or(0, <[u8]>::len);
        let end = grant.offset as usize + grant.length as usize;
        if grant.length == 0 || end > there {
            return Err(format!("an R2T up to byte {end} of {there}"));
        }
        let late = random.chance(1, 4);
        let delay = if late { random.below(30 * MILLISECOND) } else { 0 };
        self.grants.push((now + delay, grant));
        Ok(())
    }

    /// What a command writes or compares.
    fn data_of<'a>(&'a self, id: u16, pairs: &'a BTreeMap<u64, Pair>) -> Option<&'a [u8]> {
        match self.asked.get(&id)? {
            Asked::Write { data, .. } => Some(data),
            Asked::Pair { number, second } => {
                let pair = &pairs[number];
                Some(if *second { &pair.data } else { &pair.expected })
            }
            _ => None,
        }
    }

    /// When the next R2T is to be served.
    pub(super) fn next_grant(&self) -> Option<u64> {
        self.grants.iter().map(|(at, _)| *at).min()
    }

    /// Sends the data that are due.
    pub(super) fn serve_grants<M: Machine>(
        &mut self,
        world: &mut World<M>,
        now: u64,
        random: &mut Random,
        pairs: &BTreeMap<u64, Pair>,
    ) {
        while let Some(at) = self.grants.iter().position(|(at, _)| *at <= now) {
            let (_, grant) = self.grants.remove(at);
            // Answered meanwhile (aborted, say): the data are not wanted any more.
            let Some(data) = self.data_of(grant.command_id, pairs) else { continue };
            let (mut at, end) = (grant.offset, grant.offset + grant.length);
            let mut all = Vec::new();
            while at < end {
                let blocks = u64::from(self.h2c_max.min(end - at) / 512);
                let most = 512 * (1 + random.below(blocks.max(1)) as u32);
                let length = if random.chance(1, 2) { self.h2c_max } else { most }.min(end - at);
                let part = &data[at as usize..(at + length) as usize];
                let last = at + length == end;
                let (id, tag) = (grant.command_id, grant.transfer_tag);
                let header = DataHeader::h2c(id, tag, at, length, last, self.digests).emit();
                all.extend(seal(&header, part, self.digests));
                at += length;
            }
            self.say(world, random, &all);
        }
    }

    /// Forgets what is asked, and hands it out.
    pub(super) fn give_up(&mut self) -> BTreeMap<u16, Asked> {
        self.grants.clear();
        core::mem::take(&mut self.asked)
    }
}

fn digest_at(pdu: &[u8], at: usize) -> Result<u32, String> {
    let bytes = pdu.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(|| "a missing digest".to_owned())
}

/// Header, digest, data, digest.
pub(crate) fn seal(header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let mut bytes = header.to_vec();
    if digests.header {
        bytes.extend(crc32c(header).to_le_bytes());
    }
    bytes.extend_from_slice(data);
    if digests.data && !data.is_empty() {
        bytes.extend(crc32c(data).to_le_bytes());
    }
    bytes
}
