//! An NVMe/TCP host: says what an input chooses and knows what it may hear. While nobody has tampered with its bytes it insists on
//! one answer to each command, on whole data in order, and on the bytes that were asked for; afterwards only on PDUs that parse.

use std::collections::{BTreeMap, VecDeque};

use block::checksum::crc32c;
use wire::nvme::command::{Fuse, SglDescriptor};
use wire::nvme::fabrics::{Configuration, Connect, ConnectAttributes, ConnectData};
use wire::nvme::identify::Cns;
use wire::nvme::log::LogId;
use wire::nvme::{Command, Completion as Entry, Nqn};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICReq, ICResp, PduType,
    R2T, TermReq,
};

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

/// A name.
pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a valid name")
}

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
    /// An admin command with at most so many bytes back.
    Other,
    /// Answered when something happens.
    Event,
}

#[derive(Clone, Debug)]
struct Sent {
    kind: Kind,
    /// Bytes of data, to or from.
    length: u32,
    /// Bytes that came, or that were asked for.
    got: u32,
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
    digests: Digests,
    greeting: bool,
    greeted: bool,
    connecting: bool,
    connected: bool,
    enabled: bool,
    flow_control_off: bool,
    depth: usize,
    /// MAXH2CDATA, as the target says.
    data_max: u32,
    next: u16,
    sent: BTreeMap<u16, Sent>,
    grants: VecDeque<(R2T, u32)>,
    heard: Vec<u8>,
    over: bool,
}

impl Host {
    /// A host that has said nothing yet.
    pub fn new(queue: u16, controller: u16) -> Host {
        Host {
            queue,
            controller,
            hostile: false,
            told: None,
            digests: Digests::NONE,
            greeting: false,
            greeted: false,
            connecting: false,
            connected: false,
            enabled: false,
            flow_control_off: false,
            depth: 31,
            data_max: 4096,
            next: 0,
            sent: BTreeMap::new(),
            grants: VecDeque::new(),
            heard: Vec::new(),
            over: false,
        }
    }

    /// Whether every command that must be answered is.
    pub fn is_answered(&self) -> bool {
        self.unanswered().next().is_none()
    }

    /// The commands that must still be answered, for messages.
    pub fn unanswered(&self) -> impl Iterator<Item = String> + '_ {
        let waits = |(_, sent): &(&u16, &Sent)| sent.kind != Kind::Event;
        self.sent.iter().filter(waits).map(|(id, sent)| format!("{id:#06x}: {sent:?}"))
    }

    /// Whether an answer to Connect is awaited: it may take a while.
    pub fn is_connecting(&self) -> bool {
        self.connecting && !self.connected
    }

    /// The next thing that it says: a greeting, a Connect, what enables the controller, then commands; nothing while it waits for
    /// an answer that it needs.
    pub fn speak(&mut self, choices: &mut Choices<'_>, fill: Fill<'_>) -> Vec<u8> {
        if self.over || self.sent.len() >= self.depth {
            return Vec::new();
        }
        if !self.greeting {
            self.greeting = true;
            let digests = Digests::from_bits(choices.byte() & 3);
            return ICReq::new(digests, 0).emit().to_vec();
        }
        if !self.greeted {
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
            return self.command(Kind::Enable, command, 0, &[]);
        }
        self.admin(choices)
    }

    fn connect(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let choice = choices.byte();
        self.flow_control_off = choice & 1 == 1;
        self.depth = if choice & 2 == 0 { 31 } else { 3 };
        let connect = Connect {
            record_format: 0,
            queue_id: self.queue,
            sq_size: self.depth as u16,
            attributes: ConnectAttributes(if self.flow_control_off { 4 } else { 0 }),
            keep_alive_ms: if self.queue == 0 && choice & 4 != 0 { 2000 } else { 0 },
        };
        let subsystem = if choice & 0x38 == 0x38 { Nqn::discovery() } else { nqn(SUBSYSTEM) };
        let data = ConnectData {
            host_id: [7; 16],
            controller_id: self.controller,
            subsystem,
            host: nqn(HOST),
        };
        self.command(Kind::Connect, connect.to_command(), 0, &data.emit())
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
                self.command(Kind::Read { nsid, offset }, command, bytes, &[])
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
                    return self.command(kind, command, 0, &data);
                }
                self.command(kind, command, bytes, &[])
            }
            7 => self.plain(Command::flush(if fua { 0xffff_ffff } else { nsid })),
            8 => self.plain(Command::write_zeroes(nsid, lba, blocks, fua)),
            9 => self.plain(Command::verify(nsid, lba, blocks)),
            10 => {
                let mut ranges = [0; 32];
                ranges[4..8].copy_from_slice(&blocks.to_le_bytes());
                ranges[8..16].copy_from_slice(&lba.to_le_bytes());
                let command = Command::dataset_management(nsid, 2, fua);
                self.command(Kind::Other, command, 0, &ranges)
            }
            _ => self.fused(nsid, lba, blocks, fua, fill),
        }
    }

    fn fused(&mut self, nsid: u32, lba: u64, blocks: u32, late: bool, fill: Fill<'_>) -> Vec<u8> {
        if self.sent.len() + 2 > self.depth {
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
                pdus.extend(self.command(kind, command, bytes, &[]));
            } else {
                let mut data = vec![0; bytes as usize];
                fill(pattern, nsid, offset, &mut data);
                pdus.extend(self.command(kind, command, 0, &data));
            }
        }
        pdus
    }

    fn admin(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let what = choices.byte();
        let more = choices.byte();
        let nsid = choices.of(&NSIDS);
        let logs = [1, 2, 3, 4, 5, 12, 0x70, 0x80, 0x0d];
        let features = [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16, 0x80, 0x82];
        match what % 12 {
            0..=2 => {
                let command = Command::identify(Cns(more % 0x20), nsid);
                self.command(Kind::Other, command, 4096, &[])
            }
            3 | 4 => {
                let bytes = 4 << (what / 16);
                let log = LogId(logs[usize::from(more) % logs.len()]);
                let offset = if what & 0x10 != 0 { u64::from(more & 0xf0) * 4 } else { 0 };
                let command = Command::get_log(log, nsid, offset, bytes, what & 0x80 != 0);
                self.command(Kind::Other, command, bytes, &[])
            }
            5 => {
                let feature = features[usize::from(more) % features.len()];
                let bytes = if feature == 14 { 8 } else { 0 };
                let command = Command::get_features(feature, nsid, bytes);
                self.command(Kind::Other, command, bytes, &[])
            }
            6 => {
                let feature = features[usize::from(more) % features.len()];
                let value = u32::from(choices.word()) | u32::from(choices.byte()) << 16;
                self.plain(Command::set_features(feature, nsid, value, 0))
            }
            7 => self.command(Kind::Event, Command::async_event_request(), 0, &[]),
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
        self.command(Kind::Other, command, 0, &[])
    }

    /// A capsule: with `data` in it, or with `length` bytes of data to come either way.
    fn command(&mut self, kind: Kind, command: Command, length: u32, data: &[u8]) -> Vec<u8> {
        while self.sent.contains_key(&self.next) {
            self.next = self.next.wrapping_add(0x101);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(0x101);
        let sgl = match data {
            [] => SglDescriptor::transport(length),
            _ => SglDescriptor::in_capsule(data.len() as u32),
        };
        let command = command.with_command_id(id).with_sgl(sgl);
        self.sent.insert(id, Sent { kind, length, got: 0 });
        let header = CapsuleCommand::new(command, self.digests, data.len() as u32).emit();
        seal(&header, data, self.digests)
    }

    /// The next part, of `most` bytes at most, of the data that were asked for.
    pub fn grant(&mut self, most: u32, fill: Fill<'_>) -> Vec<u8> {
        let Some((r2t, done)) = self.grants.front_mut() else { return Vec::new() };
        let Some(&Sent { kind: Kind::Write { nsid, offset, pattern }, .. }) =
            self.sent.get(&r2t.command_id)
        else {
            // The command was answered before its data came.
            self.grants.pop_front();
            return Vec::new();
        };
        let length = (r2t.length - *done).min(most.min(self.data_max).max(4) & !3);
        let at = r2t.offset + *done;
        let last = *done + length == r2t.length;
        let mut data = vec![0; length as usize];
        fill(pattern, nsid, offset + u64::from(at), &mut data);
        let (id, tag) = (r2t.command_id, r2t.transfer_tag);
        let header = DataHeader::h2c(id, tag, at, length, last, self.digests).emit();
        *done += length;
        if last {
            self.grants.pop_front();
        }
        seal(&header, &data, self.digests)
    }

    /// Whether data were asked for.
    pub fn has_grant(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Hears bytes of the target.
    pub fn hear(&mut self, bytes: &[u8], fill: Fill<'_>) {
        self.heard.extend_from_slice(bytes);
        let heard = core::mem::take(&mut self.heard);
        let mut at = 0;
        while heard.len() - at >= CommonHeader::SIZE {
            let common = CommonHeader::parse(&heard[at..]).expect("a header");
            assert!(common.length >= 16, "{common}");
            if heard.len() - at < common.length as usize {
                break;
            }
            self.hear_pdu(common, &heard[at..at + common.length as usize], fill);
            at += common.length as usize;
        }
        self.heard = heard[at..].to_vec();
    }

    fn hear_pdu(&mut self, common: CommonHeader, pdu: &[u8], fill: Fill<'_>) {
        assert!(!self.over, "{common} after a TermReq");
        let digests = match common.kind {
            PduType::IC_RESP | PduType::C2H_TERM_REQ => Digests::NONE,
            _ => self.digests,
        };
        let payload = common.check(digests).unwrap_or_else(|error| panic!("{common}: {error}"));
        let header = usize::from(common.header_length);
        if digests.header {
            let digest = u32::from_le_bytes(*pdu[header..].first_chunk().expect("a digest"));
            assert_eq!(digest, crc32c(&pdu[..header]), "header digest of {common}");
        }
        match common.kind {
            PduType::IC_RESP => {
                let response = ICResp::parse(pdu).expect("parses");
                response.check().expect("as a host wants it");
                assert!(!self.greeted, "a second ICResp");
                (self.greeted, self.digests) = (true, response.digests());
                self.data_max = response.max_h2c_data;
            }
            PduType::C2H_TERM_REQ => {
                let term = TermReq::parse(pdu).expect("parses");
                assert!(self.hostile, "an honest host was told {term}");
                self.over = true;
            }
            PduType::CAPSULE_RESPONSE => {
                self.hear_response(CapsuleResponse::parse(pdu).expect("parses").completion);
            }
            PduType::R2T => self.hear_r2t(R2T::parse(pdu).expect("parses")),
            PduType::C2H_DATA => {
                let data = DataHeader::parse(pdu).expect("parses");
                assert_eq!(data.length, payload.length, "{common}");
                let at = payload.offset as usize;
                let bytes = &pdu[at..at + data.length as usize];
                if digests.data {
                    let digest = &pdu[at + bytes.len()..];
                    assert_eq!(digest, crc32c(bytes).to_le_bytes(), "data digest of {common}");
                }
                self.hear_data(&data, bytes, fill);
            }
            kind => panic!("a target does not send {kind}"),
        }
    }

    fn hear_response(&mut self, entry: Entry) {
        let Some(sent) = self.sent.remove(&entry.command_id) else {
            assert!(self.hostile, "an answer to no command: {entry}");
            return;
        };
        if self.hostile {
            return;
        }
        let good = entry.status.is_success();
        match sent.kind {
            Kind::Connect if good => {
                self.connected = true;
                self.told = Some(entry.result as u16);
            }
            Kind::Read { .. } | Kind::Write { .. } if good => {
                assert_eq!(sent.got, sent.length, "success without all data: {sent:?}");
            }
            _ => {}
        }
    }

    fn hear_r2t(&mut self, r2t: R2T) {
        if self.hostile {
            return;
        }
        let sent = self.sent.get_mut(&r2t.command_id).expect("an R2T for no command");
        assert!(matches!(sent.kind, Kind::Write { .. }), "an R2T for {sent:?}");
        assert!(r2t.length > 0 && r2t.offset == sent.got, "{r2t} for {sent:?}");
        sent.got += r2t.length;
        assert!(sent.got <= sent.length, "{r2t} for {sent:?}");
        self.grants.push_back((r2t, 0));
    }

    fn hear_data(&mut self, data: &DataHeader, bytes: &[u8], fill: Fill<'_>) {
        if self.hostile {
            return;
        }
        let sent = self.sent.get_mut(&data.command_id).expect("data for no command");
        assert_eq!(data.offset, sent.got, "data out of order for {sent:?}");
        sent.got += data.length;
        assert!(data.length > 0 && sent.got <= sent.length, "too many data for {sent:?}");
        match sent.kind {
            Kind::Read { nsid, offset } => {
                let mut right = vec![0; bytes.len()];
                fill(Pattern::Held, nsid, offset + u64::from(data.offset), &mut right);
                assert!(bytes == right, "other data than namespace {nsid} holds for {sent:?}");
            }
            Kind::Other => {}
            kind => panic!("data for {kind:?}"),
        }
        if data.is_success() {
            assert!(data.is_last() && self.flow_control_off, "SUCCESS for {sent:?}");
            assert!(
                sent.got == sent.length || sent.kind == Kind::Other,
                "SUCCESS before all data: {sent:?}"
            );
            self.sent.remove(&data.command_id);
        }
    }
}

/// Header, digest, data, digest.
pub fn seal(header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
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

/// Tampers with bytes on their way: one is changed, some are cut out, some are put in. Returns whether anything was done.
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
