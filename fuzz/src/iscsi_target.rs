//! Serving iSCSI sessions, with the targets of one shard ([`Serving`]); and what a target might say.

use block::{BlockCount, BlockSize, Instant, ShardId, VolumeId};
use contract::{Endpoint, ListenerId, SessionIdentity};
use iscsi::auth::{Credentials, Required, Secret};
use iscsi::server::{Connection, Context};
use iscsi::target::{Hosts, Target, Unit};
use iscsi::targets::Targets as Shared;
use scsi::{LogicalUnit, ModeState};
use testkit::iscsi::seal;
use wire::iscsi::Digests;
use wire::iscsi::{
    DataIn, LogoutResponse, LogoutResponseCode, NopIn, Opcode, R2t, RESERVED_TAG, Residual,
    ScsiResponse, TargetNumbers, TaskManagementResponse, TaskResponse,
};
use wire::scsi::Lun;

use crate::choices::Choices;
use crate::iscsi_host::{SIZE, TARGET, name};

#[path = "serving.rs"]
#[allow(clippy::duplicate_mod, reason = "one text for all protocols")]
mod serving;

pub use serving::{Link, Serving};

/// How sessions are served: there is nothing to choose.
#[derive(Clone, Copy, Debug)]
struct Settings;

/// LUN `lun` of the play's target, on the volume of its number.
pub fn unit(lun: u16, size: u64) -> Unit {
    let unit = LogicalUnit {
        volume: VolumeId(lun.into()),
        uuid: [lun as u8; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount(size / 512),
        read_only: false,
        cache_volatile: lun == 1,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
        hosts_set_paths: true,
        mode: ModeState::default(),
    };
    Unit { lun, hosts: Hosts::Any, unit }
}

/// The play's target: LUNs 1 and 2.
pub fn target() -> Target {
    Target::new(name(TARGET)).with_unit(unit(1, SIZE)).with_unit(unit(2, SIZE))
}

/// A PDU that a target might say, with fields that an input chooses.
pub fn invent(choices: &mut Choices<'_>) -> Vec<u8> {
    let what = choices.byte();
    let digests = Digests { header: what & 0x40 != 0, data: what & 0x80 != 0 };
    // Tags are slots with a generation, or those of what is no task.
    let tags = [0, 1, 2, 0x1000, 0x2001, 0xffd, 0xffe, 0xffc, RESERVED_TAG, u32::MAX - 1];
    let tag = choices.of(&tags);
    let way = choices.byte();
    // Numbers near those that a session begins with.
    let number = |shift: u8| u32::from(way >> shift & 3).wrapping_sub(1);
    let stat_sn = u32::from(choices.byte()).wrapping_add(number(0));
    let exp_cmd_sn = u32::from(choices.byte());
    let max_cmd_sn = exp_cmd_sn.wrapping_add(number(2).wrapping_mul(16));
    let numbers = TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn };
    let place = u32::from(choices.word()) * 4;
    match what % 8 {
        0 => {
            let statuses = [0, 2, 8, 0x18, 0x28, 0x30, 0x40];
            let data: &[u8] = if way & 0x40 == 0 { &[] } else { &SENSE };
            let (status, length) = (choices.of(&statuses), data.len() as u32);
            let residual = Residual::Underflow(place);
            let header = ScsiResponse::new(tag, status, residual, 0, length, numbers);
            seal(&header.emit(), data, digests)
        }
        1 => {
            let length = u32::from(choices.word()) * 4;
            let transfer = u32::from(choices.byte());
            let sn = u32::from(way >> 4);
            seal(
                &R2t::new(Lun::of(1).0, tag, transfer, sn, place, length, numbers).emit(),
                &[],
                digests,
            )
        }
        2 => {
            let data = vec![choices.byte(); usize::from(choices.word() % 5000)];
            let sn = u32::from(way >> 6);
            let length = data.len() as u32;
            let header = DataIn::new(tag, sn, place, length, way & 0x10 != 0, numbers);
            let header = match way & 0x20 {
                0 => header,
                _ => header.with_status(0, Residual::None, stat_sn),
            };
            seal(&header.emit(), &data, digests)
        }
        3 => seal(&NopIn::ping(Lun::of(1).0, tag, numbers).emit(), &[], digests),
        4 => {
            let response = TaskResponse(way >> 4);
            seal(&TaskManagementResponse::new(tag, response, numbers).emit(), &[], digests)
        }
        5 => {
            let response = LogoutResponseCode(way >> 6);
            seal(&LogoutResponse::new(tag, response, numbers).emit(), &[], digests)
        }
        6 => invent_text(choices, tag, (stat_sn, exp_cmd_sn, max_cmd_sn)),
        // Any header of a target at all.
        _ => {
            let opcodes = [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];
            let mut header = [0; 48];
            header.iter_mut().for_each(|byte| *byte = choices.byte());
            header[0] = choices.of(&opcodes);
            header[4..7].fill(0);
            seal(&header, &[], digests)
        }
    }
}

/// What answers to logins and questions for targets are made of.
const TEXTS: [&[u8]; 20] = [
    b"AuthMethod=CHAP\0",
    b"AuthMethod=None\0",
    b"CHAP_A=7\0",
    b"CHAP_A=5\0CHAP_I=300\0CHAP_C=0x\0",
    b"CHAP_I=1\0CHAP_C=0x0102030405060708090a0b0c0d0e0f10\0",
    b"CHAP_N=target\0CHAP_R=0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\0",
    b"TargetPortalGroupTag=1\0",
    b"HeaderDigest=CRC32C\0DataDigest=CRC32C\0",
    b"HeaderDigest=Reject\0",
    b"MaxRecvDataSegmentLength=512\0",
    b"MaxBurstLength=16777216\0FirstBurstLength=0\0",
    b"InitialR2T=No\0ImmediateData=No\0ErrorRecoveryLevel=2\0",
    b"TargetName=iqn.2026-11.net.plateway:play\0TargetAddress=127.0.0.1:3260,1\0",
    b"TargetName=iqn.2026-11.net.plateway:\xc3\xa9\0TargetAddress=[::1]:3260,70000\0",
    b"TargetAddress=host.example:0\0",
    b"TargetAlias=\x1b[2J\0",
    b"TargetAddress=10.0.0.1:3261\0",
    b"X-net.plateway.unknown=NotUnderstood\0",
    b"=\0\0",
    b"TargetName=iqn.2026",
];

/// An answer to a login or to a question for targets, of texts that an input chooses.
fn invent_text(choices: &mut Choices<'_>, tag: u32, numbers: (u32, u32, u32)) -> Vec<u8> {
    let (what, mut text) = (choices.byte(), Vec::new());
    for _ in 0..what >> 5 {
        text.extend_from_slice(choices.of(&TEXTS));
    }
    let opcode = if what & 1 == 0 { Opcode::LOGIN_RESPONSE } else { Opcode::TEXT_RESPONSE };
    let mut header = [0; 48];
    header[0] = opcode.0;
    header[1] = choices.of(&[0x87, 0x81, 0x04, 0x00, 0x80, 0x40, 0x47, 0xff]);
    header[5..8].copy_from_slice(&(text.len() as u32).to_be_bytes()[1..]);
    header[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 1]);
    header[14] = what >> 1 & 1;
    let transfer = choices.of(&[u32::MAX, 0, 7]);
    let words = [tag, transfer, numbers.0, numbers.1, numbers.2];
    for (at, word) in words.into_iter().enumerate() {
        header[16 + 4 * at..][..4].copy_from_slice(&word.to_be_bytes());
    }
    let statuses = [0, 0, 0, 0x0101, 0x0102, 0x0201, 0x0301, 0xffff_u16];
    if opcode == Opcode::LOGIN_RESPONSE {
        header[36..38].copy_from_slice(&choices.of(&statuses).to_be_bytes());
    }
    let digests = Digests { header: what & 4 != 0, data: what & 8 != 0 };
    seal(&header, &text, digests)
}

/// Who a host, or the target, says it is.
pub fn credentials(name: &str) -> Credentials {
    let secret = Secret::new(format!("the secret of {name}").as_bytes()).expect("a secret");
    Credentials { name: name.to_owned(), secret }
}

/// The proof that a portal asks of those who look for targets, and what it proves to them.
pub fn required() -> Required {
    Required { users: vec![credentials("host")], own: Some(credentials("target")) }
}

/// Sense data with their length: a unit attention, whose unit is another one.
const SENSE: [u8; 20] = [0, 18, 0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x3f, 3, 0, 0, 0, 0];

impl Serving {
    /// The play's target with no sessions yet; a budget of `pages`.
    pub fn new(pages: u32) -> Serving {
        let mut targets = Shared::new(ShardId(0), 1, [7; 32]);
        targets.set_target(target());
        targets.configuration_complete();
        Serving::with_shared(pages, targets, Settings)
    }
}

fn accepted(now: Instant, identity: SessionIdentity, _: Settings) -> Connection {
    let address = "127.0.0.1:3260".parse().expect("an address");
    let endpoint = Endpoint { listener: ListenerId(0), peer: address, local: address };
    Connection::new(now, identity, endpoint)
}

/// Carries what targets have for sessions, and decides what these propose. Returns whether there was
/// something.
fn control(serving: &mut Serving) -> bool {
    let mut moved = false;
    while let Some((place, event)) = serving.shard.shared.poll_event() {
        moved = true;
        let link = place.index as usize;
        if !serving.links[link].connection.is_gone() {
            serving.with(link, |connection, ctx| connection.handle_event(event, ctx));
        }
    }
    while let Some((number, change)) = serving.shard.shared.poll_path_change() {
        moved = true;
        let (answer, changed) = serving.shard.decide_paths(&change);
        serving.shard.shared.paths_changed(&changed);
        serving.shard.shared.handle_path_answer(number, &answer);
    }
    while let Some((volume, number, change)) = serving.shard.shared.poll_reservation_change() {
        moved = true;
        let (answer, consequences) = serving.shard.decide(volume, &change);
        serving.shard.shared.reservation_changed(volume, &consequences);
        serving.shard.shared.handle_reservation_answer(number, answer);
    }
    assert!(serving.shard.shared.poll_message().is_none(), "one shard writes to nobody");
    moved
}

fn left(targets: &Shared) -> usize {
    targets.session_count()
}
