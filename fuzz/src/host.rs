//! An NVMe/TCP host: says what an input chooses and knows what it may hear. While nobody has
//! tampered with its bytes it insists on one answer to each command, on whole data in order, and on
//! the bytes that were asked for; afterwards only on PDUs that parse.

use std::collections::VecDeque;

use testkit::nvme::host::{Data, Heard, Host as Line};
pub use testkit::nvme::{nqn, seal};
use wire::nvme::command::{CopyRange, Fuse, SglDescriptor};
use wire::nvme::fabrics::{Configuration, Connect, ConnectAttributes, ConnectData};
use wire::nvme::identify::Cns;
use wire::nvme::log::LogId;
use wire::nvme::reservation::{
    AcquireAction, ChangePersist, RegisterAction, ReleaseAction, ReservationKeys, ReservationType,
};
use wire::nvme::{Command, Nqn};
use wire::nvme_tcp::{Digests, R2T};

use crate::choices::Choices;
use crate::content::Pattern;
pub use crate::content::SIZE;

/// The subsystem that the play is about.
pub const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:play";
/// The host.
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";
/// Lengths of requests, in blocks of 512.
pub const LENGTHS: [u32; 12] = [1, 2, 7, 8, 9, 16, 17, 64, 65, 256, 512, 2048];
/// NSIDs that hosts ask for; 3 is not there.
const NSIDS: [u32; 5] = [1, 1, 1, 2, 3];

/// Fills bytes with what a namespace holds, or gets, from an offset on.
pub type Fill<'a> = &'a dyn Fn(Pattern, u32, u64, &mut [u8]);

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connect,
    Enable,
    Read {
        nsid: u32,
        offset: u64,
    },
    Write {
        nsid: u32,
        offset: u64,
        pattern: Pattern,
    },
    /// Ranges of so many blocks, all of them from there.
    Copy {
        lba: u64,
        blocks: u32,
    },
    /// An admin command with at most so many bytes back.
    Other,
    /// Answered when something happens.
    Event,
}

/// One connection of a host.
#[derive(Debug)]
pub struct Host {
    /// The queue it asks for: 0 for the admin queue.
    pub queue: u16,
    /// The controller it asks for.
    pub controller: u16,
    /// Whether its bytes were tampered with, or it broke a rule.
    pub hostile: bool,
    /// Its controller, once it is told.
    pub told: Option<u16>,
    line: Line<Kind>,
    greeting: bool,
    connecting: bool,
    connected: bool,
    enabled: bool,
    depth: usize,
    next: u16,
    grants: VecDeque<(R2T, u32)>,
}

impl Host {
    /// A host that has said nothing yet.
    pub fn new(queue: u16, controller: u16) -> Host {
        Host {
            queue,
            controller,
            hostile: false,
            told: None,
            line: Line::new(Digests::NONE),
            greeting: false,
            connecting: false,
            connected: false,
            enabled: false,
            depth: 31,
            next: 0,
            grants: VecDeque::new(),
        }
    }

    /// Whether every command that must be answered is.
    pub fn is_answered(&self) -> bool {
        self.unanswered().next().is_none()
    }

    /// The commands that must still be answered, for messages.
    pub fn unanswered(&self) -> impl Iterator<Item = String> + '_ {
        let asked = self.line.asked.iter().filter(|(_, asked)| asked.what != Kind::Event);
        asked.map(|(id, asked)| format!("{id:#06x}: {asked:?}"))
    }

    /// Whether an answer to Connect is awaited: it may take a while.
    pub fn is_connecting(&self) -> bool {
        self.connecting && !self.connected
    }

    /// The next thing that it says: a greeting, a Connect, what enables the controller, then
    /// commands; nothing while it waits for an answer that it needs.
    pub fn speak(&mut self, choices: &mut Choices<'_>, fill: Fill<'_>) -> Vec<u8> {
        if self.line.is_over() || self.line.asked.len() >= self.depth {
            return Vec::new();
        }
        if !self.greeting {
            self.greeting = true;
            self.line.digests = Digests::from_bits(choices.byte() & 3);
            return self.line.greet();
        }
        if self.line.greeting.is_none() {
            return Vec::new();
        }
        if !self.connecting {
            self.connecting = true;
            return self.connect(choices);
        }
        if !self.connected {
            return Vec::new();
        }
        if self.queue > 0 {
            return self.io(choices, fill);
        }
        if !self.enabled {
            self.enabled = true;
            let cc = Configuration(0).with_enable(true).with_iosqes(6).with_iocqes(4);
            let command = Command::property_set(0x14, cc.0);
            return self.command(Kind::Enable, command, Data::None, &[]);
        }
        self.admin(choices)
    }

    fn connect(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let choice = choices.byte();
        self.depth = if choice & 2 == 0 { 31 } else { 3 };
        let connect = Connect {
            record_format: 0,
            queue_id: self.queue,
            sq_size: self.depth as u16,
            attributes: ConnectAttributes(if choice & 1 == 1 { 4 } else { 0 }),
            keep_alive_ms: if self.queue == 0 && choice & 4 != 0 { 2000 } else { 0 },
        };
        let subsystem = if choice & 0x38 == 0x38 { Nqn::discovery() } else { nqn(SUBSYSTEM) };
        let data = ConnectData {
            host_id: [7; 16],
            controller_id: self.controller,
            subsystem,
            host: Some(nqn(HOST)),
        };
        let id = self.free_id();
        self.line.connect(id, &connect, &data, Kind::Connect)
    }

    fn io(&mut self, choices: &mut Choices<'_>, fill: Fill<'_>) -> Vec<u8> {
        let what = choices.byte();
        let nsid = choices.of(&NSIDS);
        let blocks = choices.of(&LENGTHS);
        let total = (SIZE / 512) as u32;
        // One request in sixteen lies beyond the end.
        let lba = u64::from(choices.word()) % u64::from(total - blocks + 1)
            + if what >= 0xf0 { u64::from(total) } else { 0 };
        let (bytes, offset) = (blocks * 512, lba * 512);
        let fua = what & 0x40 != 0;
        match what % 12 {
            0..=2 => {
                let command = Command::read(nsid, lba, blocks, bytes);
                self.command(Kind::Read { nsid, offset }, command, Data::In(bytes), &[])
            }
            3..=6 => {
                let pattern = if what % 12 == 6 { Pattern::Held } else { Pattern::Written };
                let command = match pattern {
                    Pattern::Held => Command::compare(nsid, lba, blocks, bytes),
                    Pattern::Written => Command::write(nsid, lba, blocks, bytes),
                };
                let command = command.with_force_unit_access(fua);
                let kind = Kind::Write { nsid, offset, pattern };
                if what & 0x20 != 0 && bytes <= 8192 {
                    let mut data = vec![0; bytes as usize];
                    fill(pattern, nsid, offset, &mut data);
                    return self.command(kind, command, Data::None, &data);
                }
                self.command(kind, command, Data::Out(bytes), &[])
            }
            7 => self.plain(Command::flush(if fua { 0xffff_ffff } else { nsid })),
            8 if what & 0x20 != 0 => self.copy(choices, nsid, lba, blocks),
            8 => self.plain(Command::write_zeroes(nsid, lba, blocks, fua)),
            9 if fua => self.reserve(choices, nsid),
            9 => self.plain(Command::verify(nsid, lba, blocks)),
            10 => {
                let mut ranges = [0; 32];
                ranges[4..8].copy_from_slice(&blocks.to_le_bytes());
                ranges[8..16].copy_from_slice(&lba.to_le_bytes());
                let command = Command::dataset_management(nsid, 2, fua);
                self.command(Kind::Other, command, Data::None, &ranges)
            }
            _ => self.fused(nsid, lba, blocks, fua, fill),
        }
    }

    /// A command about reservations, with its keys in its capsule.
    fn reserve(&mut self, choices: &mut Choices<'_>, nsid: u32) -> Vec<u8> {
        let (which, what) = (choices.byte(), choices.byte());
        let (action, kind) = (what & 3, ReservationType(what >> 2 & 7));
        let keys = ReservationKeys { current: u64::from(what >> 5 & 1), other: (what >> 6).into() };
        let keys = keys.emit();
        let command = match which & 3 {
            0 => {
                let cptpl = ChangePersist(which >> 4 & 3);
                Command::reservation_register(nsid, RegisterAction(action), cptpl)
            }
            1 => Command::reservation_acquire(nsid, AcquireAction(action), kind),
            2 => Command::reservation_release(nsid, ReleaseAction(action), kind),
            _ => {
                let bytes = 4 << (which >> 4);
                let command = Command::reservation_report(nsid, bytes);
                return self.command(Kind::Other, command, Data::InAtMost(bytes), &[]);
            }
        };
        let command = if which & 4 != 0 { command.with_ignored_key() } else { command };
        // Of another length now and then.
        let length = if which & 8 != 0 { usize::from(which >> 4) + 1 } else { keys.len() };
        self.command(Kind::Other, command, Data::None, &keys[..length])
    }

    /// A copy of one place, as often as is chosen, to blocks that are not that place.
    fn copy(&mut self, choices: &mut Choices<'_>, nsid: u32, lba: u64, blocks: u32) -> Vec<u8> {
        let (what, source) = (choices.byte(), u64::from(choices.word()) % (SIZE / 512));
        // Now and then more of them than a command may have.
        let count = if what & 0x0f == 0x0f { 129 } else { 1 + u32::from(what & 3) };
        let onto_itself = (0..u64::from(count)).any(|n| lba + n * u64::from(blocks) == source);
        let (source, count) = match onto_itself {
            true if lba == 0 => (u64::from(blocks), 1),
            true => (lba - 1, 1),
            false => (source, count),
        };
        let command = Command::copy(nsid, lba, count).with_force_unit_access(what & 0x10 != 0);
        let kind = Kind::Copy { lba: source, blocks };
        if what & 0x20 != 0 {
            let list = copy_list(source, blocks, count as usize);
            return self.command(kind, command, Data::None, &list);
        }
        // With room for more.
        let room = if what & 0x40 != 0 { 256 } else { count };
        self.command(kind, command, Data::Out(room * CopyRange::SIZE as u32), &[])
    }

    fn fused(&mut self, nsid: u32, lba: u64, blocks: u32, late: bool, fill: Fill<'_>) -> Vec<u8> {
        if self.line.asked.len() + 2 > self.depth {
            return Vec::new();
        }
        let (bytes, offset) = (blocks * 512, lba * 512);
        let mut pdus = Vec::new();
        for (pattern, fuse) in [(Pattern::Held, Fuse::FIRST), (Pattern::Written, Fuse::SECOND)] {
            let command = match pattern {
                Pattern::Held => Command::compare(nsid, lba, blocks, bytes),
                Pattern::Written => Command::write(nsid, lba, blocks, bytes),
            };
            let command = command.with_fuse(fuse);
            let kind = Kind::Write { nsid, offset, pattern };
            if late || bytes > 8192 {
                pdus.extend(self.command(kind, command, Data::Out(bytes), &[]));
            } else {
                let mut data = vec![0; bytes as usize];
                fill(pattern, nsid, offset, &mut data);
                pdus.extend(self.command(kind, command, Data::None, &data));
            }
        }
        pdus
    }

    fn admin(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let what = choices.byte();
        let more = choices.byte();
        let nsid = choices.of(&NSIDS);
        let logs = [1, 2, 3, 4, 5, 12, 0x70, 0x80, 0x0d];
        let features = [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16, 0x80, 0x82, 0x83];
        match what % 12 {
            0..=2 => {
                let command = Command::identify(Cns(more % 0x20), nsid);
                self.command(Kind::Other, command, Data::InAtMost(4096), &[])
            }
            3 | 4 => {
                let bytes = 4 << (what / 16);
                let log = LogId(logs[usize::from(more) % logs.len()]);
                let offset = if what & 0x10 != 0 { u64::from(more & 0xf0) * 4 } else { 0 };
                let command = Command::get_log(log, nsid, offset, bytes, what & 0x80 != 0);
                self.command(Kind::Other, command, Data::InAtMost(bytes), &[])
            }
            5 => {
                let feature = features[usize::from(more) % features.len()];
                let bytes = if feature == 14 { 8 } else { 0 };
                let command = Command::get_features(feature, nsid, bytes);
                self.command(Kind::Other, command, Data::InAtMost(bytes), &[])
            }
            6 => {
                let feature = features[usize::from(more) % features.len()];
                let value = u32::from(choices.word()) | u32::from(choices.byte()) << 16;
                self.plain(Command::set_features(feature, nsid, value, 0))
            }
            7 => self.command(Kind::Event, Command::async_event_request(), Data::None, &[]),
            8 => self.plain(Command::keep_alive()),
            9 => self.plain(Command::abort(u16::from(more & 3), choices.word())),
            10 => self.plain(Command::property_get(u32::from(more) & !3, what & 0x80 != 0)),
            _ => {
                let cc = Configuration(0).with_iosqes(6).with_iocqes(4);
                let cc = cc.with_enable(more & 1 == 0).with_shn(u32::from(more >> 1 & 1));
                self.plain(Command::property_set(0x14, cc.0))
            }
        }
    }

    fn plain(&mut self, command: Command) -> Vec<u8> {
        self.command(Kind::Other, command, Data::None, &[])
    }

    fn free_id(&mut self) -> u16 {
        while self.line.asked.contains_key(&self.next) {
            self.next = self.next.wrapping_add(0x101);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(0x101);
        id
    }

    /// A capsule with `inside` in it, or with data to come either way.
    fn command(&mut self, kind: Kind, command: Command, data: Data, inside: &[u8]) -> Vec<u8> {
        let id = self.free_id();
        let length = match data {
            Data::None => 0,
            Data::In(length) | Data::InAtMost(length) | Data::Out(length) => length,
        };
        let command = command.with_sgl(SglDescriptor::transport(length));
        self.line.ask(id, command, kind, data, inside)
    }

    /// The next part, of `most` bytes at most, of the data that were asked for.
    pub fn grant(&mut self, most: u32, fill: Fill<'_>) -> Vec<u8> {
        let Some((r2t, done)) = self.grants.front_mut() else { return Vec::new() };
        let asked = self.line.asked.get(&r2t.command_id).map(|asked| asked.what);
        let Some(kind @ (Kind::Write { .. } | Kind::Copy { .. })) = asked else {
            // The command was answered before its data came.
            self.grants.pop_front();
            return Vec::new();
        };
        let data_max = self.line.greeting.map_or(4096, |greeting| greeting.max_h2c_data);
        let length = (r2t.length - *done).min(most.min(data_max).max(4) & !3);
        let at = r2t.offset + *done;
        let mut data = vec![0; length as usize];
        match kind {
            Kind::Write { nsid, offset, pattern } => {
                fill(pattern, nsid, offset + u64::from(at), &mut data);
            }
            Kind::Copy { lba, blocks } => {
                let list = copy_list(lba, blocks, CopyRange::COUNT_MAX);
                data.copy_from_slice(&list[at as usize..][..length as usize]);
            }
            _ => unreachable!("nothing else is asked for"),
        }
        *done += length;
        let pdu = self.line.give(r2t, at, &data);
        if *done == r2t.length {
            self.grants.pop_front();
        }
        pdu
    }

    /// Whether data were asked for.
    pub fn has_grant(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Hears bytes of the target.
    pub fn hear(&mut self, bytes: &[u8], fill: Fill<'_>) {
        self.line.lenient = self.hostile;
        self.line.hear(bytes);
        while let Some(heard) = self.line.next().unwrap_or_else(|why| panic!("{why}")) {
            self.heard(heard, fill);
        }
    }

    fn heard(&mut self, heard: Heard<Kind>, fill: Fill<'_>) {
        match heard {
            Heard::Greeted(_) => {}
            Heard::Terminated(term) => assert!(self.hostile, "an honest host was told {term}"),
            Heard::Answered(..) if self.hostile => {}
            Heard::Answered(asked, entry) => {
                if asked.what == Kind::Connect && entry.status.is_success() {
                    self.connected = true;
                    self.told = Some(entry.result as u16);
                }
            }
            Heard::Granted(r2t) => self.grants.push_back((r2t, 0)),
            Heard::Data { command, offset: at, bytes } => {
                let sent = &self.line.asked[&command];
                if let Kind::Read { nsid, offset } = sent.what {
                    let mut right = vec![0; bytes.len()];
                    fill(Pattern::Held, nsid, offset + u64::from(at), &mut right);
                    assert!(bytes == right, "other data than namespace {nsid} holds for {sent:?}");
                }
            }
        }
    }
}

/// So many times the same range.
fn copy_list(lba: u64, blocks: u32, count: usize) -> Vec<u8> {
    CopyRange::new(lba, blocks).emit().repeat(count)
}

/// Tampers with bytes on their way: one is changed, some are cut out, some are put in. Returns
/// whether anything was done.
pub fn tamper(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) -> bool {
    let way = choices.byte();
    if bytes.is_empty() {
        let count = usize::from(way & 0x3f);
        bytes.extend((0..count).map(|_| choices.byte()));
        return count > 0;
    }
    // Headers are where it hurts: most of the time the first bytes are hit.
    let range = if way & 0x80 == 0 { bytes.len().min(96) } else { bytes.len() };
    let at = choices.below(range);
    match way % 4 {
        0 => bytes[at] = choices.byte(),
        1 => bytes[at] ^= 1 << (choices.byte() & 7),
        2 => drop(bytes.drain(at..bytes.len().min(at + 1 + usize::from(choices.byte())))),
        _ => {
            let count = 1 + usize::from(choices.byte() & 0x1f);
            let more: Vec<u8> = (0..count).map(|_| choices.byte()).collect();
            bytes.splice(at..at, more);
        }
    }
    true
}
