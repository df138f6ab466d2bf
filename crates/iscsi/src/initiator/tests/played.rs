//! A target that the test plays, PDU by PDU, for a whole initiator.
//!
//! It answers nothing by itself: [`Played::log_in`] and [`Played::identify`] bring it to where most
//! tests begin. What the initiator sends is told as PDUs with their data, digests checked and taken
//! off. Numbers are kept as a target has to: StatSN counts statuses, the window is `window` commands
//! wide.

use std::collections::VecDeque;

use block::checksum::crc32c;
use block::{Buffer, Completion, Extent, Instant, Memory, Operation, Request, Ticket};
use contract::{ConnectionId, Loss, Next, Receive, StreamEffect};
use testkit::Pages;
use testkit::pipe::bytes_of;
use wire::iscsi::keys::{Pair, Pairs};
use wire::iscsi::serial::{precedes, window};
use wire::iscsi::{
    Bhs, DataIn, Digests, LoginFlags, LoginRequest, LoginResponse, LoginStatus, Pdu, Residual,
    ScsiResponse, Stage, TargetNumbers, padding,
};
use wire::scsi::capacity::Capacity16;
use wire::scsi::inquiry::{Peripheral, StandardInquiry};
use wire::scsi::mode::{Caching, CachingFlags, DeviceSpecific, ModeData, ModeFormat};
use wire::scsi::opcodes::{OneCommand, Support};
use wire::scsi::vpd::{
    self, BlockLimits, BlockProvisioning, CodeSet, Designator, DesignatorKind, DesignatorList,
    ProvisioningFlags, VpdPage,
};
use wire::scsi::{Cdb, OpCode, ScsiStatus, Sense};

use super::fixtures::settings;
use crate::initiator::{Initiator, InitiatorNews, Settings};

/// What most targets answer.
pub(super) const USUAL: &str = "InitialR2T=Yes ImmediateData=Yes FirstBurstLength=8192 MaxBurstLength=65536 \
                     MaxRecvDataSegmentLength=8192";

/// What the unit of the played target is.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) vendor: [u8; 8],
    pub(super) name: [u8; 8],
    pub(super) blocks: u64,
    pub(super) write_cache: bool,
    pub(super) dpo_fua: bool,
    pub(super) limits: BlockLimits,
    pub(super) provisioning: ProvisioningFlags,
    /// Byte 1 of the usage of WRITE SAME(16), if it says anything of commands.
    pub(super) write_same: Option<u8>,
}

impl Default for Unit {
    /// A disk of somebody else's, with all there is.
    fn default() -> Unit {
        let mut limits = BlockLimits::new(Peripheral::DISK);
        (limits.unmap_blocks_max, limits.unmap_descriptors_max) = (u32::MAX, 256);
        Unit {
            vendor: *b"OTHER   ",
            name: [0x30, 1, 2, 3, 4, 5, 6, 7],
            blocks: 8192,
            write_cache: true,
            dpo_fua: true,
            limits,
            provisioning: ProvisioningFlags(0).with_unmap(true).with_write_same_16(true),
            write_same: Some(0x09),
        }
    }
}

pub(super) struct Played {
    pub(super) initiator: Initiator,
    pub(super) memory: Pages,
    pub(super) now: Instant,
    pub(super) connection: ConnectionId,
    pub(super) digests: Digests,
    pub(super) numbers: TargetNumbers,
    pub(super) window: u32,
    pub(super) unit: Unit,
    /// What the initiator sent and was not heard.
    heard: VecDeque<(Pdu, Vec<u8>)>,
    /// Whether it wants to be closed, and the connections that it asked for.
    pub(super) closes: bool,
    pub(super) asked: Vec<(u32, std::net::SocketAddr)>,
    pub(super) news: Vec<InitiatorNews>,
    pub(super) next: Next,
}

impl Played {
    pub(super) fn new(digests: Digests) -> Played {
        Played::with(settings(digests))
    }

    pub(super) fn with(settings: Settings) -> Played {
        Played {
            initiator: Initiator::new(settings, false, 1),
            memory: Pages::default(),
            now: Instant(1_000_000_000),
            connection: ConnectionId::default(),
            digests: Digests::NONE,
            numbers: TargetNumbers::default(),
            window: 64,
            unit: Unit::default(),
            heard: VecDeque::new(),
            closes: false,
            asked: Vec::new(),
            news: Vec::new(),
            next: Next::Idle,
        }
    }

    /// One that is live, with these results of the negotiation.
    pub(super) fn live(digests: Digests, results: &str) -> Played {
        let mut played = Played::new(digests);
        played.bring_up(results);
        played
    }

    /// From the connection to where commands are taken.
    pub(super) fn bring_up(&mut self, results: &str) {
        self.connect();
        self.log_in(results);
        self.identify();
        assert!(self.initiator.state().starts_with("connected"), "{}", self.initiator.state());
    }

    /// Lets the initiator do what it wants to.
    pub(super) fn settle(&mut self) {
        self.initiator.settle(self.now, &mut self.memory);
        while let Some(effect) = self.initiator.poll_effect() {
            match effect {
                StreamEffect::Connect { token, address, .. } => self.asked.push((token, address)),
                StreamEffect::Send { connection, batch } => {
                    assert_eq!(connection, self.connection);
                    let bytes = bytes_of(&batch, &self.memory);
                    self.take_apart(&bytes);
                    self.initiator.handle_sent(self.now, connection, batch, &mut self.memory);
                    self.initiator.settle(self.now, &mut self.memory);
                }
                StreamEffect::Close { connection, .. } => {
                    assert_eq!(connection, self.connection);
                    self.closes = true;
                }
            }
        }
        self.news.extend(core::iter::from_fn(|| self.initiator.poll_news()));
    }

    /// The PDUs in what was sent.
    fn take_apart(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let bhs = Bhs::parse(bytes).expect("a header");
            bhs.check().expect("a header as it should be");
            let (whole, rest) = bytes.split_at(bhs.length(self.digests) as usize);
            let data_at = bhs.header_bytes(self.digests) as usize;
            let length = bhs.data_segment_length.get() as usize;
            let digest_at =
                |at: usize| u32::from_le_bytes(*whole[at..].first_chunk().expect("a digest"));
            if self.digests.header {
                assert_eq!(crc32c(&whole[..data_at - 4]), digest_at(data_at - 4));
            }
            let end = data_at + bhs.data_padded() as usize;
            if self.digests.data && length > 0 {
                assert_eq!(crc32c(&whole[data_at..end]), digest_at(end));
            }
            let pdu = Pdu::parse(whole).expect("a PDU");
            self.heard.push_back((pdu, whole[data_at..data_at + length].to_vec()));
            bytes = rest;
        }
    }

    /// What the initiator says next, if anything.
    pub(super) fn hear_any(&mut self) -> Option<(Pdu, Vec<u8>)> {
        self.settle();
        let (pdu, data) = self.heard.pop_front()?;
        if let Pdu::ScsiCommand(command) = pdu {
            assert_eq!(command.cmd_sn, self.numbers.exp_cmd_sn, "commands in order");
            assert!(window(command.cmd_sn, self.numbers.max_cmd_sn) > 0);
            self.numbers.exp_cmd_sn = self.numbers.exp_cmd_sn.wrapping_add(1);
        }
        Some((pdu, data))
    }

    pub(super) fn hear(&mut self) -> (Pdu, Vec<u8>) {
        self.hear_any().unwrap_or_else(|| panic!("it is quiet: {}", self.initiator.state()))
    }

    /// A command, its tag and the data that came with it.
    pub(super) fn hear_command(&mut self) -> (Cdb, u32, Vec<u8>) {
        match self.hear() {
            (Pdu::ScsiCommand(command), data) => {
                (Cdb(command.cdb), command.initiator_task_tag, data)
            }
            (other, _) => panic!("expected a command, heard {other}"),
        }
    }

    pub(super) fn is_quiet(&mut self) -> bool {
        self.settle();
        self.heard.is_empty()
    }

    /// Numbers of a PDU with a status, which may open the window further.
    pub(super) fn status(&mut self) -> TargetNumbers {
        let last = self.numbers.exp_cmd_sn.wrapping_add(self.window).wrapping_sub(1);
        if precedes(self.numbers.max_cmd_sn, last) {
            self.numbers.max_cmd_sn = last;
        }
        let numbers = self.numbers;
        self.numbers.stat_sn = self.numbers.stat_sn.wrapping_add(1);
        numbers
    }

    /// A PDU with its data, as it goes over the wire.
    pub(super) fn seal(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.digests.header {
            bytes.extend(crc32c(header).to_le_bytes());
        }
        let at = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len() as u32) as usize, 0);
        if self.digests.data && !data.is_empty() {
            bytes.extend(crc32c(&bytes[at..]).to_le_bytes());
        }
        bytes
    }

    /// Bytes arrive.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Receive {
        let memory = &mut self.memory;
        self.initiator.handle_received(self.now, self.connection, bytes, memory)
    }

    /// Says a whole PDU.
    pub(super) fn say(&mut self, header: &[u8], data: &[u8]) {
        let bytes = self.seal(header, data);
        self.say_all(&bytes);
    }

    /// Says whole PDUs.
    pub(super) fn say_all(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let Receive { consumed, next } = self.receive(&bytes[at..]);
            at += consumed;
            self.next = next;
            if consumed == 0 || !matches!(self.next, Next::Yield) {
                break;
            }
        }
        assert_eq!(at, bytes.len(), "it is taken as it comes");
        self.settle();
    }

    pub(super) fn connect(&mut self) {
        self.settle();
        let (token, _) = self.asked.pop().expect("it asks for a connection");
        self.connection.slot += 1;
        self.digests = Digests::NONE;
        self.initiator.handle_connected(self.now, token, self.connection);
        // The first StatSN is the target's to choose.
        self.numbers = TargetNumbers { stat_sn: 100, exp_cmd_sn: 1, max_cmd_sn: 1 };
    }

    /// A login request, and its keys as words.
    pub(super) fn hear_login(&mut self) -> (LoginRequest, String) {
        match self.hear() {
            (Pdu::LoginRequest(request), text) => (request, words(&text)),
            (other, _) => panic!("expected a login request, heard {other}"),
        }
    }

    /// Answers a login request; `keys` are words.
    pub(super) fn answer_login(&mut self, request: &LoginRequest, flags: LoginFlags, keys: &str) {
        let text = text(keys);
        let is_last = flags.is_transit() && flags.next() == Stage::FULL_FEATURE;
        let (tsih, length) = (u16::from(is_last), text.len() as u32);
        let response = LoginResponse::new(request, flags, tsih, length, self.status());
        let bytes = self.seal(&response.emit(), &text);
        // What follows has the digests that were agreed on.
        let has = |key| is_last && keys.contains(key);
        self.digests =
            Digests { header: has("HeaderDigest=CRC32C"), data: has("DataDigest=CRC32C") };
        self.say_all(&bytes);
    }

    pub(super) fn refuse_login(&mut self, status: LoginStatus, keys: &str) {
        let (request, _) = self.hear_login();
        let text = text(keys);
        let numbers = self.status();
        let response = LoginResponse::refused(&request, status, text.len() as u32, numbers);
        self.say(&response.emit(), &text);
    }

    /// Answers a whole login, with these results of the negotiation.
    pub(super) fn log_in(&mut self, results: &str) {
        let (request, _) = self.hear_login();
        let flags = LoginFlags::transit(Stage::SECURITY, Stage::OPERATIONAL);
        self.answer_login(&request, flags, "TargetPortalGroupTag=1 AuthMethod=None");
        let (request, offers) = self.hear_login();
        let digest =
            |key| if offers.contains(&format!("{key}=CRC32C")) { "CRC32C" } else { "None" };
        let (header, data) = (digest("HeaderDigest"), digest("DataDigest"));
        let results = format!("HeaderDigest={header} DataDigest={data} {results}");
        let flags = LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE);
        self.answer_login(&request, flags, results.trim_end());
    }

    /// Answers everything that is asked about the unit, until nothing more is, or what is asked
    /// moves blocks.
    pub(super) fn identify(&mut self) {
        self.settle();
        let moves = |cdb: Cdb| matches!(cdb.opcode(), OpCode::READ_10 | OpCode::WRITE_10);
        while let Some((Pdu::ScsiCommand(command), _)) = self.heard.front()
            && !moves(Cdb(command.cdb))
        {
            let (cdb, tag, _) = self.hear_command();
            self.answer_question(cdb, tag);
        }
    }

    /// Answers a question about the unit.
    pub(super) fn answer_question(&mut self, cdb: Cdb, tag: u32) {
        let unit = self.unit.clone();
        let most = cdb.allocation_length() as usize;
        let data = match cdb.opcode() {
            OpCode::TEST_UNIT_READY => return self.end(tag, ScsiStatus::GOOD, None),
            OpCode::INQUIRY if cdb.evpd() => match VpdPage(cdb.page_code()) {
                VpdPage::DEVICE_IDENTIFICATION => {
                    let (kind, set) = (DesignatorKind::NAA, CodeSet::BINARY);
                    let list = DesignatorList(vec![Designator::of_unit(kind, set, &unit.name)]);
                    vpd::page(Peripheral::DISK, VpdPage::DEVICE_IDENTIFICATION, &list.emit())
                }
                VpdPage::BLOCK_LIMITS => unit.limits.emit().to_vec(),
                _ => {
                    let page = BlockProvisioning::new(Peripheral::DISK);
                    BlockProvisioning { flags: unit.provisioning, ..page }.emit().to_vec()
                }
            },
            OpCode::INQUIRY => {
                let standard = StandardInquiry { additional_length: 91, ..Default::default() };
                StandardInquiry { vendor: unit.vendor, version: 6, ..standard }.emit().to_vec()
            }
            OpCode::MAINTENANCE_IN => match unit.write_same {
                Some(byte) => {
                    let mut usage = vec![0; 16];
                    usage[1] = byte;
                    let support = Support::SUPPORTED;
                    OneCommand { support, usage, timeouts: None }.emit()
                }
                None => return self.refuse(tag, Sense::invalid_field(0, 7)),
            },
            OpCode::SERVICE_ACTION_IN_16 => {
                let last_lba = unit.blocks - 1;
                let capacity = Capacity16 { last_lba, block_length: 512, ..Default::default() };
                capacity.emit().to_vec()
            }
            OpCode::MODE_SENSE_6 => {
                let flags = CachingFlags(0).with_write_cache(unit.write_cache);
                let pages = Caching { flags, ..Caching::new() }.emit().to_vec();
                let device = DeviceSpecific(0).with_dpo_fua(unit.dpo_fua);
                let mode = ModeData { medium_type: 0, device, descriptor: None, pages };
                mode.emit(ModeFormat::Six)
            }
            other => panic!("nobody asks for {other}"),
        };
        let data = &data[..data.len().min(most)];
        let residual = Residual::between(most as u32, data.len() as u64);
        let length = data.len() as u32;
        let numbers = self.status();
        let header = DataIn::new(tag, 0, 0, length, true, numbers);
        let header = header.with_status(ScsiStatus::GOOD.0, residual, numbers.stat_sn);
        self.say(&header.emit(), data);
    }

    /// Ends a task.
    pub(super) fn end(&mut self, tag: u32, status: ScsiStatus, sense: Option<Sense>) {
        let bytes = self.ending(tag, status, sense);
        self.say_all(&bytes);
    }

    /// The bytes that end a task.
    pub(super) fn ending(&mut self, tag: u32, status: ScsiStatus, sense: Option<Sense>) -> Vec<u8> {
        let data = match sense {
            Some(sense) => {
                let sense = sense.emit_fixed();
                [&(sense.len() as u16).to_be_bytes()[..], &sense].concat()
            }
            None => Vec::new(),
        };
        let numbers = self.status();
        let length = data.len() as u32;
        let response = ScsiResponse::new(tag, status.0, Residual::None, 0, length, numbers);
        self.seal(&response.emit(), &data)
    }

    pub(super) fn refuse(&mut self, tag: u32, sense: Sense) {
        self.end(tag, ScsiStatus::CHECK_CONDITION, Some(sense));
    }

    /// The connection is closed as the initiator asked.
    pub(super) fn shut(&mut self) {
        self.settle();
        assert!(
            core::mem::take(&mut self.closes),
            "it does not want to: {}",
            self.initiator.state()
        );
        self.initiator.handle_closed(self.now, self.connection, None, None);
        self.heard.clear();
        self.settle();
    }

    /// The connection is lost, and closed.
    pub(super) fn cut(&mut self) {
        self.initiator.handle_lost(self.now, self.connection, Loss::EndOfStream);
        self.shut();
    }

    /// Time passes to this moment, timer by timer.
    pub(super) fn pass(&mut self, until: Instant) {
        loop {
            self.settle();
            match self.initiator.poll_timeout() {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.initiator.handle_timeout(self.now);
                }
                _ => break,
            }
        }
        self.now = until;
    }

    /// Rests until the initiator asks for a connection again.
    pub(super) fn rest(&mut self) {
        self.settle();
        while self.asked.is_empty() {
            self.now = self.initiator.poll_timeout().expect("it comes again").max(self.now);
            self.initiator.handle_timeout(self.now);
            self.settle();
        }
    }

    pub(super) fn ask(&mut self, slot: u32, operation: Operation) {
        let ticket = Ticket { slot, ..Ticket::default() };
        self.initiator.handle_request(self.now, &mut Request { ticket, operation });
    }

    pub(super) fn read(&mut self, slot: u32, length: u32) {
        let buffer = Buffer::reserved(length, 0);
        self.ask(slot, Operation::Read { extent: Extent::new(0, length.into()), buffer });
    }

    pub(super) fn write(&mut self, slot: u32, bytes: &[u8], durable: bool) {
        let mut buffer = Buffer::reserved(bytes.len() as u32, 0);
        self.memory.write(&mut buffer, 0, bytes);
        let extent = Extent::new(0, bytes.len() as u64);
        self.ask(slot, Operation::Write { extent, buffer, durable });
    }

    pub(super) fn write_at(&mut self, slot: u32, offset: u64, bytes: &[u8]) {
        let mut buffer = Buffer::reserved(bytes.len() as u32, 0);
        self.memory.write(&mut buffer, 0, bytes);
        let extent = Extent::new(offset, bytes.len() as u64);
        self.ask(slot, Operation::Write { extent, buffer, durable: false });
    }

    /// The next thing that it says, if that is a question for a sign of life or whether there is
    /// something to know.
    pub(super) fn hear_ping(&mut self) -> Option<(Pdu, Vec<u8>)> {
        let is_ping = match &self.heard.front()?.0 {
            Pdu::NopOut(_) => true,
            Pdu::ScsiCommand(command) => Cdb(command.cdb).opcode() == OpCode::TEST_UNIT_READY,
            _ => false,
        };
        if is_ping { self.hear_any() } else { None }
    }

    pub(super) fn done(&mut self) -> Option<Completion> {
        self.settle();
        self.initiator.poll_completion()
    }
}

/// Keys, one a word, as text.
fn text(keys: &str) -> Vec<u8> {
    keys.split_whitespace().flat_map(|key| [key.as_bytes(), b"\0"].concat()).collect()
}

/// Text as keys, one a word.
fn words(text: &[u8]) -> String {
    let pairs = Pairs::new(text).map(|pair| pair.expect("a pair"));
    pairs.map(|Pair { key, value }| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}
