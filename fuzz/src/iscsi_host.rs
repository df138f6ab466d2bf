//! An iSCSI host: says what an input chooses and knows what it may hear. While nobody has tampered
//! with its bytes it insists on the rules of `testkit::iscsi` and on the bytes that were asked for;
//! afterwards only on PDUs that parse and bear the right numbers.

use std::collections::VecDeque;

use testkit::iscsi::Said;
use testkit::iscsi::host::{Heard, Host as Line, Order};
pub use testkit::iscsi::name;
use wire::iscsi::{
    LogoutReason, R2t, RESERVED_TAG, RejectReason, Snack, SnackKind, TaskAttribute, TaskFunction,
};
use wire::scsi::copy::{CopyList, CopyPlace, CopySegment};
use wire::scsi::persistent::ReserveOut;
use wire::scsi::provisioning::{UnmapList, UnmapRange};
use wire::scsi::vpd::{Association, CodeSet, DesignatorKind};
use wire::scsi::{ByteCheck, Cdb, Lun, OpCode, ServiceAction};

use crate::choices::Choices;
use crate::content::Pattern;
pub use crate::content::SIZE;
use crate::host::{Fill, LENGTHS};
use crate::iscsi_target::unit;

/// The target that the play is about.
pub const TARGET: &str = "iqn.2026-11.net.plateway:play";
/// The host.
pub const HOST: &str = "iqn.2026-11.net.plateway:host";
/// LUNs that hosts ask for, which are the numbers of their volumes; 3 is not there.
const LUNS: [u16; 5] = [1, 1, 1, 2, 3];
const SEGMENTS: [&str; 4] = ["262144", "8192", "512", "65536"];
const BURSTS: [&str; 4] = ["1048576", "65536", "8192", "512"];
const FIRST_BURSTS: [&str; 3] = ["8192", "512", "65536"];
/// What PERSISTENT RESERVE OUT does.
const ACTIONS: [ServiceAction; 7] = [
    ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER,
    ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE,
    ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE,
    ServiceAction::PERSISTENT_RESERVE_OUT_RELEASE,
    ServiceAction::PERSISTENT_RESERVE_OUT_CLEAR,
    ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT,
    ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT,
];

/// What RECEIVE COPY RESULTS tells.
const COPY_RESULTS: [ServiceAction; 3] = [
    ServiceAction::RECEIVE_COPY_STATUS_LID1,
    ServiceAction::RECEIVE_COPY_OPERATING_PARAMETERS,
    ServiceAction::RECEIVE_COPY_FAILURE_DETAILS_LID1,
];

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Login,
    /// A command that reads a volume from here on.
    Read {
        lun: u16,
        offset: u64,
    },
    /// One whose data are a pattern of this place; of a compare-and-write two, one behind the other,
    /// each of so many bytes.
    Write {
        lun: u16,
        offset: u64,
        pattern: Pattern,
        half: u32,
    },
    /// A command with other data, or none.
    Other,
}

/// One connection of a host.
#[derive(Debug)]
pub struct Host {
    /// Whether its bytes were tampered with.
    pub hostile: bool,
    /// Whether what it writes is not the pattern of its place.
    pub is_loose: bool,
    /// Whether it has reset what others use, who then are not answered.
    pub has_reset: bool,
    line: Line<Kind>,
    asked_login: bool,
    is_discovery: bool,
    grants: VecDeque<(R2t, u32, Kind)>,
    /// A command whose data follow unasked, and how many of them were sent.
    unasked: Option<(u32, u32, u32, Kind)>,
}

impl Host {
    /// A host that has said nothing yet; hosts of one `port` end each other's sessions.
    pub fn new(port: u8, cmd_sn: u32) -> Host {
        Host {
            hostile: false,
            is_loose: false,
            has_reset: false,
            line: Line::new([0x80, 0, 0, 0, 0, port], cmd_sn),
            asked_login: false,
            is_discovery: false,
            grants: VecDeque::new(),
            unasked: None,
        }
    }

    /// The requests that are not answered, for messages.
    pub fn unanswered(&self) -> impl Iterator<Item = String> + '_ {
        self.line.asked.iter().map(|(tag, asked)| format!("{tag:#x}: {asked:?}"))
    }

    /// Whether the answer to its login is awaited: it may take a while.
    pub fn is_logging_in(&self) -> bool {
        self.asked_login && !self.line.is_logged_in && !self.line.is_over()
    }

    /// The next thing that it says: a login, then what there is; nothing while it waits for an answer
    /// that it needs.
    pub fn speak(&mut self, choices: &mut Choices<'_>, fill: Fill<'_>) -> Vec<u8> {
        if self.line.is_over() || self.is_logging_in() || self.line.asked.len() > 300 {
            return Vec::new();
        }
        if !self.asked_login {
            self.asked_login = true;
            return self.log_in(choices);
        }
        // What it announced comes first.
        if self.unasked.is_some() {
            return self.go_on_unasked(u32::MAX, fill);
        }
        let what = choices.byte();
        match what {
            0..0xd0 if !self.is_discovery && self.line.may_ask() => {
                self.command(what, choices, fill)
            }
            0xd0..0xd8 if self.line.may_ask() => self.ask_targets(what),
            0xe0..0xe4 => self.manage(what, choices),
            0xe4 => self.line.logout(LogoutReason::CLOSE_SESSION, Kind::Other).1,
            0xe5 => {
                let kind = SnackKind(choices.byte() & 3);
                let snack = Snack::new(kind, [0; 8], RESERVED_TAG, RESERVED_TAG, 0, 0, 0);
                testkit::iscsi::seal(&snack.emit(), &[], self.line.agreed.digests)
            }
            _ => {
                let data = vec![what; usize::from(choices.byte())];
                self.line.nop(&data, Kind::Other).1
            }
        }
    }

    fn log_in(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let (digests, way) = (choices.byte(), choices.byte());
        let on = |bit: u8| if digests & bit != 0 { "CRC32C" } else { "None" };
        let yes = |bit: u8| if way & bit != 0 { "Yes" } else { "No" };
        self.is_discovery = way & 0x70 == 0x70;
        let target = if self.is_discovery { None } else { Some(TARGET) };
        let keys = [
            ("HeaderDigest", on(1)),
            ("DataDigest", on(2)),
            ("InitialR2T", yes(1)),
            ("ImmediateData", yes(2)),
            ("MaxRecvDataSegmentLength", SEGMENTS[usize::from(digests >> 2 & 3)]),
            ("MaxBurstLength", BURSTS[usize::from(digests >> 4 & 3)]),
            ("FirstBurstLength", FIRST_BURSTS[usize::from(way >> 2 & 3) % 3]),
        ];
        // Who says nothing of these has what the standard says.
        let count = if way & 0x80 != 0 { 2 } else { keys.len() };
        self.line.log_in(HOST, target, &keys[..count], Kind::Login)
    }

    fn command(&mut self, what: u8, choices: &mut Choices<'_>, fill: Fill<'_>) -> Vec<u8> {
        let lun = choices.of(&LUNS);
        let blocks = choices.of(&LENGTHS);
        let total = (SIZE / 512) as u32;
        let more = choices.byte();
        // One request in sixteen lies beyond the end.
        let lba = u64::from(choices.word()) % u64::from(total - blocks + 1)
            + if more >= 0xf0 { u64::from(total) } else { 0 };
        let (bytes, offset) = (blocks * 512, lba * 512);
        let (fua, place) = (more & 0x40 != 0, (lun, offset));
        let written = |half| Kind::Write { lun, offset, pattern: Pattern::Written, half };
        match what % 16 {
            0..4 => {
                let order = Order::read(lun, Cdb::read_16(lba, blocks), bytes);
                // Less than it returns, now and then, or more.
                let expected = match more & 0x0f {
                    1 => bytes / 2,
                    2 => bytes + 512,
                    _ => bytes,
                };
                let kind = Kind::Read { lun: place.0, offset: place.1 };
                self.ask(Order { expected, ..order }, kind, more, fill)
            }
            4..8 => {
                let order = Order::write(lun, Cdb::write_16(lba, blocks, fua), bytes);
                self.ask(order, written(0), more, fill)
            }
            8 => {
                let blocks = blocks.min(8);
                let cdb = Cdb::compare_and_write(lba, blocks as u8, fua);
                let order = Order::write(lun, cdb, 2 * blocks * 512);
                self.ask(order, written(blocks * 512), more, fill)
            }
            9 => {
                let cdb = Cdb::verify_16(lba, blocks, ByteCheck::COMPARE);
                let kind = Kind::Write { lun, offset, pattern: Pattern::Held, half: 0 };
                self.ask(Order::write(lun, cdb, bytes), kind, more, fill)
            }
            10 => {
                let mut cdb = Cdb::write_16(lba, blocks, false);
                (cdb.0[0], cdb.0[1]) = (0x8e, u8::from(fua) << 1);
                self.ask(Order::write(lun, cdb, bytes), written(0), more, fill)
            }
            11 => self.plain(Order::new(lun, Cdb::synchronize_cache_10()), more),
            12 => self.plain(Order::new(lun, Cdb::write_same_16(lba, blocks, fua, true)), more),
            13 => self.list(lun, lba, blocks, more, choices),
            14 if more & 0x30 == 0x30 => {
                // What it writes is not the pattern of its place from here on.
                self.is_loose = true;
                let cdb = Cdb::orwrite_16(lba, blocks, fua);
                self.ask(Order::write(lun, cdb, bytes), written(0), more, fill)
            }
            14 if more & 0x20 != 0 => self.copy(lun, (lba, blocks), more, choices),
            _ => {
                let page = choices.byte();
                let cdb = match more & 7 {
                    0 => Cdb::inquiry(u16::from(page)),
                    1 => Cdb::vital_product_data(page, 255),
                    2 => Cdb::report_luns(u32::from(page)),
                    3 => Cdb::mode_sense_6(page, false, page),
                    4 => Cdb::read_capacity_16(u32::from(page)),
                    5 => Cdb::report_opcodes(page & 1 != 0, 4096),
                    6 if page >= 0xf0 => return self.reserve(lun, page, choices),
                    6 => Cdb::request_sense(page & 1 != 0, page),
                    _ => Cdb(core::array::from_fn(|_| choices.byte())),
                };
                self.plain(Order::read(lun, cdb, u32::from(page) * 16), more)
            }
        }
    }

    /// UNMAP or MODE SELECT.
    fn list(
        &mut self,
        lun: u16,
        lba: u64,
        blocks: u32,
        more: u8,
        choices: &mut Choices<'_>,
    ) -> Vec<u8> {
        let list = match more & 1 {
            0 => UnmapList(vec![UnmapRange { lba, blocks }]).emit(),
            _ => vec![
                0,
                0,
                0,
                0,
                0x0a,
                0x0a,
                choices.byte() & 0x24 | 0x20,
                0x10,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ],
        };
        let cdb = match more & 1 {
            0 => Cdb::unmap_list(list.len() as u16),
            _ => Cdb::mode_select_6(list.len() as u8),
        };
        let order = Order::write(lun, cdb, list.len() as u32);
        let with = if self.line.agreed.immediate_data { &list[..] } else { &[] };
        self.line.command(order, with, Kind::Other).1
    }

    /// EXTENDED COPY of a few blocks, or many, or a question about one.
    fn copy(
        &mut self,
        lun: u16,
        (source_lba, blocks): (u64, u32),
        more: u8,
        choices: &mut Choices<'_>,
    ) -> Vec<u8> {
        let id = choices.byte() & 3;
        if more & 0x0c == 0x0c {
            let action = choices.of(&COPY_RESULTS);
            let cdb = Cdb::receive_copy_results(action, id, 64);
            return self.plain(Order::read(lun, cdb, 64), more);
        }
        let place = |lun| CopyPlace::Identification {
            device_type: 0,
            null: false,
            relative_initiator_port: 0,
            code_set: CodeSet::BINARY,
            association: Association::LOGICAL_UNIT,
            kind: DesignatorKind::NAA,
            designator: unit(lun, SIZE).unit.naa().to_vec(),
            block_length: 0,
            pad: false,
        };
        let (ends, count) = (choices.byte(), choices.byte());
        let destination_lba = match ends & 0x80 {
            0 => source_lba,
            _ => u64::from(choices.word()) % (SIZE / 512),
        };
        // What is copied elsewhere is not the pattern of its place.
        self.is_loose |= destination_lba != source_lba;
        let segment = CopySegment::Blocks {
            destination_counts: false,
            concatenate: false,
            source: u16::from(ends & 3),
            destination: u16::from(ends >> 2 & 3),
            blocks: (blocks * u32::from(1 + (ends >> 4 & 3))) as u16,
            source_lba,
            destination_lba,
        };
        let list = CopyList {
            id,
            id_usage: count & 3,
            places: vec![place(1), place(2), place(3)],
            segments: vec![segment; usize::from(count >> 5)],
            ..CopyList::default()
        };
        let list = list.emit();
        let order = Order::write(lun, Cdb::extended_copy(list.len() as u32), list.len() as u32);
        let with = if self.line.agreed.immediate_data { &list[..] } else { &[] };
        self.line.command(attributed(order, more), with, Kind::Other).1
    }

    /// A change of a reservation; it holds others off, who are told so.
    fn reserve(&mut self, lun: u16, what: u8, choices: &mut Choices<'_>) -> Vec<u8> {
        let way = choices.byte();
        if what & 8 != 0 {
            let mut cdb = Cdb::test_unit_ready();
            cdb.0[0] = [OpCode::RESERVE_6, OpCode::RELEASE_6][usize::from(way & 1)].0;
            return self.plain(Order::new(lun, cdb), way);
        }
        let [key, other] = [way >> 2 & 3, way >> 4 & 3].map(u64::from);
        let list =
            ReserveOut { key, action_key: other, persist: way & 1 != 0, ..ReserveOut::default() };
        let list = list.emit();
        let kinds = [1, 3, 5, 6, 7, 8, 0, 2];
        let kind = kinds[usize::from(choices.byte() & 7)];
        let action = choices.of(&ACTIONS);
        let cdb = Cdb::persistent_reserve_out(action, kind, list.len() as u32);
        let with = if self.line.agreed.immediate_data { &list[..] } else { &[] };
        // Whoever preempts and aborts ends tasks of others.
        self.has_reset |= action == ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT;
        self.line.command(Order::write(lun, cdb, list.len() as u32), with, Kind::Other).1
    }

    fn plain(&mut self, order: Order, more: u8) -> Vec<u8> {
        let order = Order { is_immediate: more & 0x80 != 0 && more & 0x08 != 0, ..order };
        self.line.command(attributed(order, more), &[], Kind::Other).1
    }

    /// A command with as much of its data as the input says: none, some, or all that may be.
    fn ask(&mut self, order: Order, kind: Kind, more: u8, fill: Fill<'_>) -> Vec<u8> {
        let order = attributed(order, more);
        let agreed = self.line.agreed;
        if !order.flags.is_write() {
            return self.line.command(order, &[], kind).1;
        }
        let first = agreed.first_burst.min(order.expected);
        let with = match more & 3 {
            _ if !agreed.immediate_data => 0,
            0 => first.min(agreed.target_segment),
            1 => first.min(512),
            _ => 0,
        };
        let follows = !agreed.initial_r2t && with < first && more & 4 != 0;
        let order = if follows { order.unfinished() } else { order };
        let data = bytes_of(kind, 0, with, fill);
        let (tag, bytes) = self.line.command(order, &data, kind);
        if follows {
            self.unasked = Some((tag, with, first, kind));
        }
        bytes
    }

    /// The next part of the data that follow unasked.
    fn go_on_unasked(&mut self, most: u32, fill: Fill<'_>) -> Vec<u8> {
        let Some((tag, at, end, kind)) = self.unasked.take() else { return Vec::new() };
        if !self.line.asked.contains_key(&tag) {
            return Vec::new();
        }
        let length = (end - at).min(most).min(self.line.agreed.target_segment);
        let data = bytes_of(kind, at, length, fill);
        let is_last = at + length == end;
        if !is_last {
            self.unasked = Some((tag, at + length, end, kind));
        }
        self.line.unasked(tag, at, &data, is_last)
    }

    fn ask_targets(&mut self, what: u8) -> Vec<u8> {
        let which = ["All", "", TARGET, "none"][usize::from(what & 3)];
        let text = testkit::iscsi::text(&[("SendTargets", which)]);
        self.line.text(&text, None, Kind::Other).1
    }

    fn manage(&mut self, what: u8, choices: &mut Choices<'_>) -> Vec<u8> {
        let which = choices.below(self.line.asked.len().max(1));
        let task = self.line.asked.keys().nth(which).copied();
        let asked =
            task.and_then(|task| self.line.asked.get(&task)).and_then(|asked| asked.order());
        let lun = asked.map_or(Lun::of(1).0, |order| order.lun);
        let function = match what & 3 {
            0 | 1 => TaskFunction::ABORT_TASK,
            2 => TaskFunction::ABORT_TASK_SET,
            _ if self.is_discovery => TaskFunction::CLEAR_TASK_SET,
            _ => {
                self.has_reset = true;
                [TaskFunction::LOGICAL_UNIT_RESET, TaskFunction::TARGET_WARM_RESET]
                    [usize::from(choices.byte() & 1)]
            }
        };
        let task = if function == TaskFunction::ABORT_TASK { task } else { None };
        self.line.manage(function, lun, task, Kind::Other).1
    }

    /// The next part, of `most` bytes at most, of the data that were asked for, or announced. Those of
    /// a task that has ended may be late.
    pub fn grant(&mut self, most: u32, is_late: bool, fill: Fill<'_>) -> Vec<u8> {
        if self.unasked.is_some() {
            return self.go_on_unasked(most, fill);
        }
        let Some((r2t, done, kind)) = self.grants.front_mut() else { return Vec::new() };
        if !self.line.asked.contains_key(&r2t.initiator_task_tag) && !is_late {
            self.grants.pop_front();
            return Vec::new();
        }
        let rest = r2t.desired_data_transfer_length - *done;
        let length = rest.min(most).min(self.line.agreed.target_segment);
        let at = r2t.buffer_offset + *done;
        let data = bytes_of(*kind, at, length, fill);
        *done += length;
        let (r2t, is_over) = (*r2t, length == rest);
        if is_over {
            self.grants.pop_front();
        }
        self.line.give(&r2t, at, &data)
    }

    /// Whether data were asked for, or announced.
    pub fn has_grant(&self) -> bool {
        !self.grants.is_empty() || self.unasked.is_some()
    }

    /// Others may reset what it uses from now on.
    pub fn expect_resets(&mut self) {
        self.line.may_be_reset = true;
    }

    /// Hears bytes of the target.
    pub fn hear(&mut self, bytes: &[u8], fill: Fill<'_>) {
        self.line.lenient = self.hostile;
        self.line.hear(bytes);
        while let Some(heard) = self.line.next().unwrap_or_else(|why| panic!("{why}")) {
            self.heard(&heard, fill);
        }
    }

    fn heard(&mut self, heard: &Heard<Kind>, fill: Fill<'_>) {
        match &heard.said {
            Said::Reject(reject, _) => {
                let is_provoked = [RejectReason::SNACK, RejectReason::TOO_MANY_IMMEDIATE_COMMANDS];
                let is_known = is_provoked.contains(&reject.reason);
                assert!(self.hostile || is_known, "an honest host was told {reject}");
            }
            Said::R2t(r2t) => {
                let asked = self.line.asked.get(&r2t.initiator_task_tag);
                if let Some(asked) = asked {
                    self.grants.push_back((*r2t, 0, asked.what));
                }
            }
            Said::Data(data, bytes) if !self.hostile => {
                let asked = self.line.asked.get(&data.initiator_task_tag);
                let what = heard.ended.as_ref().or(asked).map(|asked| asked.what);
                if let Some(Kind::Read { lun, offset }) = what {
                    let mut right = vec![0; bytes.len()];
                    let at = offset + u64::from(data.buffer_offset);
                    fill(Pattern::Held, lun.into(), at, &mut right);
                    assert!(*bytes == right, "other data than volume {lun} holds: {data}");
                }
            }
            _ => {}
        }
    }
}

/// With an attribute: simple in most cases.
fn attributed(order: Order, more: u8) -> Order {
    let attribute = match more & 0x38 {
        0x38 => TaskAttribute::ORDERED,
        0x28 => TaskAttribute::HEAD_OF_QUEUE,
        _ => TaskAttribute::SIMPLE,
    };
    order.with_attribute(attribute)
}

/// Bytes of a command's data from `at` on.
fn bytes_of(kind: Kind, at: u32, length: u32, fill: Fill<'_>) -> Vec<u8> {
    let mut data = vec![0; length as usize];
    let Kind::Write { lun, offset, pattern, half } = kind else { return data };
    let volume = u32::from(lun);
    let expected = half.saturating_sub(at).min(length);
    let (first, second) = data.split_at_mut(expected as usize);
    fill(Pattern::Held, volume, offset + u64::from(at), first);
    let from = u64::from((at + expected).saturating_sub(half));
    fill(pattern, volume, offset + from, second);
    data
}
