//! One connection of a raw host in the world: bytes out, in pieces of any length; data for R2Ts,
//! now or later; bytes in.

use std::collections::BTreeMap;

use block::Random;
use testkit::nvme::connect;
use testkit::nvme::host::{self, Data, Fault, Heard, Host};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::{Command, Completion};
use wire::nvme_tcp::{Digests, R2T};

use super::work::{Asked, Pair};
use super::{MILLISECOND, Step};
use crate::client::SimWorld;
use crate::writer::Write;

/// A connection.
#[derive(Debug)]
pub(in super::super) struct Line {
    raw: usize,
    pub(in super::super) target: usize,
    /// What it asked, and may hear.
    pub(in super::super) host: Host<Asked>,
    /// Its Connect was answered.
    pub(super) live: bool,
    /// The target may close it.
    pub(super) may_end: bool,
    /// When it asked something last.
    pub(super) said_at: u64,
    grants: Vec<(u64, R2T)>,
    /// How late data are, at most.
    pub(super) late: u64,
    random: Random,
}

impl Line {
    /// Connects and greets.
    pub(in super::super) fn connect(
        world: &mut SimWorld,
        target: usize,
        digests: Digests,
        random: Random,
    ) -> Line {
        let raw = world.connect_raw(target);
        let mut line = Line {
            raw,
            target,
            host: Host::new(digests),
            live: false,
            may_end: false,
            said_at: world.now,
            grants: Vec::new(),
            late: 30 * MILLISECOND,
            random,
        };
        let request = line.host.greet();
        line.say(world, &request);
        line
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

    /// Sends Connect for this queue, with this KATO.
    pub(in super::super) fn join(
        &mut self,
        world: &mut SimWorld,
        queue: u16,
        keep_alive: u64,
        data: &ConnectData,
        step: Step,
    ) {
        let keep_alive_ms = (keep_alive / MILLISECOND) as u32;
        let command = Command::connect(&connect(queue, keep_alive_ms));
        self.ask(world, command, &data.emit(), Asked::Step(step));
    }

    /// Sends a command, with data in its capsule if there are any.
    pub(in super::super) fn ask(
        &mut self,
        world: &mut SimWorld,
        command: Command,
        data: &[u8],
        asked: Asked,
    ) {
        let length = command.sgl().length;
        let moves = match &asked {
            _ if !data.is_empty() => Data::None,
            Asked::Read { .. } | Asked::Page { .. } | Asked::Identify { .. } => Data::In(length),
            Asked::Write { .. } | Asked::Copy { .. } | Asked::Pair { .. } => Data::Out(length),
            Asked::Change { data } if !data.is_empty() => Data::Out(length),
            _ => Data::None,
        };
        self.said_at = world.now;
        let id = self.host.free_id();
        let bytes = self.host.ask(id, command, asked, moves, data);
        self.say(world, &bytes);
    }

    /// Sends Keep Alive with the CID of a held event request, which is forgotten, if it was not
    /// answered just now.
    pub(super) fn keep_alive_over(&mut self, world: &mut SimWorld, id: u16) {
        self.host.asked.remove(&id);
        self.said_at = world.now;
        let bytes = self.host.ask(id, Command::keep_alive(), Asked::AliveOver, Data::None, &[]);
        self.say(world, &bytes);
    }

    /// Of what was asked with one CID the event was answered: the Keep Alive is not yet.
    pub(super) fn await_alive(&mut self, answered: &Completion) {
        let asked = host::Asked { what: Asked::AliveOver, data: Data::None, moved: 0 };
        self.host.asked.insert(answered.command_id, asked);
    }

    /// Whether the target owes an answer: to the greeting, or to a command.
    pub(super) fn is_waiting(&self) -> bool {
        self.host.greeting.is_none() || !self.host.asked.is_empty()
    }

    /// Bytes of reads that are not answered.
    pub(super) fn read_bytes(&self) -> usize {
        let bytes = |asked: &host::Asked<Asked>| match &asked.what {
            Asked::Read { bytes, .. } => bytes.len(),
            _ => 0,
        };
        self.host.asked.values().map(bytes).sum()
    }

    /// Writes whose data the target has asked for, and whether it waits for some of them.
    pub(super) fn writes_there(
        &self,
        pairs: &BTreeMap<u64, Pair>,
    ) -> impl Iterator<Item = (Write, bool)> {
        self.host.asked.iter().filter(|(_, asked)| asked.moved > 0).filter_map(|(id, asked)| {
            let write = match &asked.what {
                Asked::Write { write, over: false, .. }
                | Asked::Copy { write, over: false, .. } => *write,
                Asked::Pair { number, second: true } => pairs[number].write()?,
                _ => return None,
            };
            Some((write, self.grants.iter().any(|(_, grant)| grant.command_id == *id)))
        })
    }

    /// Takes what came in; returns whether something did.
    pub(in super::super) fn take(&mut self, world: &mut SimWorld) -> bool {
        let bytes = world.take_raw(self.raw, usize::MAX);
        self.host.hear(&bytes);
        !bytes.is_empty()
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
        self.may_end = true;
        self.live = false;
    }

    /// The next thing that it heard and was not data of a read.
    pub(in super::super) fn next(&mut self) -> Result<Option<Heard<Asked>>, Fault> {
        loop {
            let heard = self.host.next()?;
            let Some(Heard::Data { command, offset, bytes: data }) = heard else {
                return Ok(heard);
            };
            let asked = self.host.asked.get_mut(&command).map(|asked| &mut asked.what);
            if let Some(
                Asked::Read { bytes, .. } | Asked::Page { bytes, .. } | Asked::Identify { bytes },
            ) = asked
            {
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
            }
        }
    }

    /// An R2T: it is served now, later, or never, when the connection ends before.
    pub(in super::super) fn grant(&mut self, now: u64, grant: R2T) {
        let late = self.random.chance(1, 4);
        let delay = if late { self.random.below(self.late) } else { 0 };
        self.grants.push((now + delay, grant));
    }

    /// When the next R2T is to be served.
    pub(in super::super) fn next_grant(&self) -> Option<u64> {
        self.grants.iter().map(|(at, _)| *at).min()
    }

    /// Sends the data that are due.
    pub(in super::super) fn serve_grants(
        &mut self,
        world: &mut SimWorld,
        pairs: &BTreeMap<u64, Pair>,
    ) {
        while let Some(at) = self.grants.iter().position(|(at, _)| *at <= world.now) {
            let (_, grant) = self.grants.remove(at);
            // Answered meanwhile (aborted, say): the data are not wanted any more.
            let Some(data) = data_of(&self.host, grant.command_id, pairs) else { continue };
            let (mut at, end) = (grant.offset, grant.offset + grant.length);
            let h2c_max = self.host.greeting.map_or(0, |greeting| greeting.max_h2c_data);
            let mut all = Vec::new();
            while at < end {
                let blocks = u64::from(h2c_max.min(end - at) / 512);
                let most = 512 * (1 + self.random.below(blocks.max(1)) as u32);
                let length = if self.random.chance(1, 2) { h2c_max } else { most }.min(end - at);
                let part = &data[at as usize..(at + length) as usize];
                all.extend(self.host.give(&grant, at, part));
                at += length;
            }
            self.say(world, &all);
        }
    }

    /// Forgets what is asked, and hands it out.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Asked> + use<> {
        self.grants.clear();
        core::mem::take(&mut self.host.asked).into_values().map(|asked| asked.what)
    }
}

/// What a command writes or compares.
fn data_of<'a>(host: &'a Host<Asked>, id: u16, pairs: &'a BTreeMap<u64, Pair>) -> Option<&'a [u8]> {
    match &host.asked.get(&id)?.what {
        Asked::Write { data, .. } | Asked::Copy { list: data, .. } | Asked::Change { data } => {
            Some(data)
        }
        Asked::Pair { number, second } => {
            let pair = &pairs[number];
            Some(if *second { &pair.data } else { &pair.expected })
        }
        _ => None,
    }
}
