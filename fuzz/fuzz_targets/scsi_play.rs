//! A logical unit and hosts that send it any command with any list.
//!
//! What it promises: work lies inside of its volume and moves no more than it may, a protected unit
//! is not changed, a reply is no longer than it was asked for, every refusal can be told in either
//! format, and what is reported as supported is what is taken.
#![no_main]

use std::sync::OnceLock;

use block::limits::TRANSFER_MAX;
use block::{BlockCount, BlockSize, Extent, Failure, Outcome, VolumeId};
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{Choices, one_line};
use reservation::paths::Path;
use reservation::replica::Answer;
use reservation::{PathGroup, PathState, Registrant, Reservation, Value};
use scsi::{
    Asker, Attentions, CopyState, Facts, LbaSearch, LogicalUnit, ModeState, Ordered, Payload,
    TargetPort, Work,
};
use wire::scsi::copy::{CopyList, CopyPlace, CopySegment};
use wire::scsi::opcodes::{OneCommand, Support};
use wire::scsi::persistent::TransportId;
use wire::scsi::provisioning::LbaStatusList;
use wire::scsi::vpd::{Association, CodeSet, DesignatorKind};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ProtocolId, ScsiStatus, Sense, ServiceAction};

const LUNS: [u16; 4] = [0, 1, 255, 300];

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut unit = draw_unit(&mut choices);
    let mut attentions = Attentions::default();
    while !choices.is_empty() {
        match choices.below(8) {
            0..=4 => command(&mut choices, &mut unit, &mut attentions),
            5 => {
                let code = AdditionalSense(0x2900 | choices.word() & 0x3ff);
                attentions.raise_all(&LUNS, Sense::attention(code));
            }
            6 => drop(attentions.take_as_data(choices.of(&LUNS))),
            _ => outcome(&mut choices),
        }
    }
});

fn draw_unit(choices: &mut Choices<'_>) -> LogicalUnit {
    let flags = choices.byte();
    let block_size = if flags & 1 == 0 { BlockSize::B512 } else { BlockSize::B4096 };
    let sizes = [1 << 15, 1, (1 << 32) + 1, u64::MAX >> block_size.shift()];
    LogicalUnit {
        volume: VolumeId(0),
        uuid: [flags; 16],
        block_size,
        blocks: BlockCount(sizes[usize::from(flags >> 1 & 3)]),
        read_only: flags & 8 != 0,
        cache_volatile: flags & 16 != 0,
        discards: flags & 32 == 0,
        discard_zeroes: flags & 64 == 0,
        physical_block: if flags & 128 == 0 { 4096 } else { block_size.bytes() as u32 },
        hosts_set_paths: flags & 3 == 3,
        mode: ModeState::default(),
    }
}

/// A command as hosts make them, or any bytes.
fn draw_command(choices: &mut Choices<'_>) -> Cdb {
    let mut cdb = Cdb([0; 16]);
    cdb.0[0] = choices.byte();
    if choices.flag() {
        cdb.0[1..].iter_mut().for_each(|byte| *byte = choices.byte());
        return cdb;
    }
    // Few fields that are not zero, each in any place.
    for _ in 0..choices.below(5) {
        let at = 1 + choices.below(15);
        cdb.0[at] = choices.byte();
    }
    cdb
}

fn command(choices: &mut Choices<'_>, unit: &mut LogicalUnit, attentions: &mut Attentions) {
    let cdb = draw_command(choices);
    let lun = choices.of(&LUNS);
    if let Some(sense) = attentions.take(lun, cdb.opcode()) {
        told(&sense);
    }
    let pending = match cdb.opcode() {
        OpCode::REQUEST_SENSE => attentions.take_as_data(lun),
        _ => None,
    };
    let facts = facts(pending);
    let is_there = !matches!(lun, 300);
    let judged = if is_there { scsi::judge(&cdb, unit) } else { scsi::judge_absent(&cdb) };
    let reserves = [OpCode::PERSISTENT_RESERVE_IN, OpCode::PERSISTENT_RESERVE_OUT];
    let no_action = Sense::invalid_field(1, 4);
    let unknown = |sense: &Sense| {
        sense.code == AdditionalSense::INVALID_COMMAND_OPERATION_CODE
            || (reserves.contains(&cdb.opcode()) && *sense == no_action)
    };
    if is_there && !cdb.naca() {
        let taken = !judged.as_ref().is_err_and(unknown);
        assert_eq!(is_reported(&cdb, unit, &facts), taken, "{cdb}");
    }
    let state = PathState::ALL[choices.below(PathState::ALL.len())].0;
    if let Err(sense) = scsi::check_path(&cdb, state) {
        assert!(!state.serves(), "{cdb}");
        told(&sense);
    } else if let Ok(work) = &judged
        && !state.serves()
    {
        let asks_blocks = !matches!(
            work,
            Work::Reply
                | Work::Parameters(_)
                | Work::ReserveIn
                | Work::ReserveOut(_)
                | Work::SetPaths(_)
                | Work::Nothing
        );
        assert!(!asks_blocks, "{cdb} by a path that is {state}");
    }
    match judged {
        Ok(work) => {
            check(&work, &cdb, unit);
            carry_out(choices, work, &cdb, is_there.then_some(unit), &facts);
        }
        Err(sense) => told(&sense),
    }
}

fn carry_out(
    choices: &mut Choices<'_>,
    work: Work,
    cdb: &Cdb,
    unit: Option<&mut LogicalUnit>,
    facts: &Facts<'_>,
) {
    match (work, unit) {
        (Work::Reply, unit) => match scsi::reply(cdb, unit.as_deref(), facts) {
            Ok(data) => assert!(data.len() <= cdb.allocation_length() as usize, "{cdb}"),
            Err(sense) => told(&sense),
        },
        (Work::Parameters(length), Some(unit)) => {
            let data: Vec<u8> = (0..length).map(|_| choices.byte()).collect();
            let sent = &data[..data.len() - choices.below(3).min(data.len())];
            match scsi::parameters(cdb, sent, unit) {
                Ok(Ordered::Discard(extents)) => {
                    assert!(!unit.read_only && unit.discards && !extents.is_empty());
                    for extent in extents {
                        assert!(extent.length.0 > 0);
                        inside(&extent, unit);
                    }
                }
                Ok(Ordered::Mode(mode)) => unit.mode = mode,
                Ok(Ordered::Nothing) => {}
                Err(sense) => told(&sense),
            }
        }
        (Work::SetPaths(length), _) => {
            let data: Vec<u8> = (0..length).map(|_| choices.byte()).collect();
            match scsi::set_paths(&data, facts.groups) {
                Ok(states) => {
                    let is_known = |group| facts.groups.iter().any(|(other, _)| *other == group);
                    assert!(states.len() <= 2 && states.iter().all(|(group, _)| is_known(*group)));
                }
                Err(sense) => told(&sense),
            }
        }
        (Work::Copy(length), Some(unit)) => copy(choices, length, unit),
        (Work::CopyResults, _) => {
            let state = CopyState {
                segments: choices.word(),
                bytes: u64::from(choices.word()) << choices.below(40),
                end: choices.flag().then_some((ScsiStatus(choices.byte()), None)),
            };
            match scsi::copy_results(cdb, choices.flag().then_some(&state), choices.flag()) {
                Ok(data) => assert!(data.len() <= cdb.allocation_length() as usize, "{cdb}"),
                Err(sense) => told(&sense),
            }
        }
        (Work::LbaStatus, Some(unit)) => lba_status(choices, cdb, unit),
        (Work::ReserveOut(length), _) => {
            let data: Vec<u8> = (0..length).map(|_| choices.byte()).collect();
            let sent = &data[..data.len() - choices.below(3).min(data.len())];
            reserve(choices, cdb, sent);
        }
        (Work::WriteSame { block, .. }, Some(unit)) => {
            let data: Vec<u8> = (0..block).map(|_| choices.byte()).collect();
            check(&work.of_same(&data), cdb, unit);
        }
        _ => {}
    }
}

/// What a list asks for is decided, told as a status, and can be looked at.
fn reserve(choices: &mut Choices<'_>, cdb: &Cdb, list: &[u8]) {
    let port = |number| Registrant::ScsiPort([number; 16]);
    let asker = Asker {
        by: &port(0).into(),
        relative_port: 1,
        ports: &[1, 2],
        port: |id: Option<&TransportId>, at: u16| {
            let own = id.is_none().then_some(0);
            let named = id.and_then(|id| id.name.first().copied()).unwrap_or(1);
            Some(port(own.unwrap_or(named).wrapping_add(at as u8 - 1)).into())
        },
    };
    let change = match scsi::reserve_out(cdb, list, &asker) {
        Ok(change) => change,
        Err(sense) => return told(&sense),
    };
    let (next, verdict) = Reservation::default().apply(&change);
    let reservation = next.unwrap_or_default();
    let (_, sense) = scsi::status_of_change(&Answer::Decided(verdict, reservation.clone()));
    sense.iter().for_each(told);
    let action = 0x5e00 | u16::from(choices.byte() & 3);
    let look = Cdb::persistent_reserve_in(ServiceAction(action), choices.word());
    let data = scsi::reserve_in(&look, &reservation, 1).expect("nobody has it for a session");
    assert!(data.len() <= look.allocation_length() as usize);
}

/// A list of any bytes, or one with a flaw: what is copied lies within the unit.
fn copy(choices: &mut Choices<'_>, length: u32, unit: &LogicalUnit) {
    let list: Vec<u8> = match choices.flag() {
        true => (0..length).map(|_| choices.byte()).collect(),
        false => {
            let place = CopyPlace::Identification {
                device_type: choices.byte() & 1,
                null: choices.byte() & 15 == 1,
                relative_initiator_port: 0,
                code_set: CodeSet::BINARY,
                association: Association(choices.byte() & 1 & choices.byte()),
                kind: choices.of(&[DesignatorKind::NAA, DesignatorKind::EUI64]),
                designator: choices.of(&[unit.naa(), unit.eui64()]).to_vec(),
                block_length: choices.of(&[0, 512, 4096]),
                pad: false,
            };
            let segment = CopySegment::Blocks {
                destination_counts: choices.flag(),
                concatenate: choices.flag(),
                source: choices.of(&[0, 1, CopyPlace::THIS_UNIT]),
                destination: choices.of(&[0, CopyPlace::THIS_UNIT]),
                blocks: choices.word(),
                source_lba: u64::from(choices.word()) << choices.below(49),
                destination_lba: u64::from(choices.word()),
            };
            let list = CopyList {
                id: choices.byte(),
                id_usage: choices.byte() & 3,
                places: vec![place; choices.below(67)],
                segments: vec![segment; choices.below(67)],
                ..CopyList::default()
            };
            let mut list = list.emit();
            if choices.flag() {
                let at = choices.below(list.len());
                list[at] ^= choices.byte();
            }
            list
        }
    };
    match scsi::copy(&list, 0, &[(0, unit)]) {
        Ok(order) => {
            assert!(!unit.is_write_protected() || order.segments.is_empty());
            assert_eq!(order.segments.len(), order.luns.len());
            for segment in &order.segments {
                inside(&segment.source.1, unit);
                let length = segment.source.1.length.0;
                assert!(length <= scsi::limits::COPY_SEGMENT_MAX);
                inside(&Extent::new(segment.destination.1.0, length), unit);
            }
            order.flaw.iter().for_each(told);
        }
        Err(sense) => told(&sense),
    }
}

/// Work lies inside of the volume, moves no more than it may, and changes nothing that is
/// protected.
fn check(work: &Work, cdb: &Cdb, unit: &LogicalUnit) {
    let changes = match work {
        Work::Read(extent) | Work::Compare(extent) | Work::Verify(extent) => {
            transfer(extent, unit);
            false
        }
        Work::Prefetch(extent) => {
            inside(extent, unit);
            false
        }
        Work::Write(extent, _) | Work::WriteAndVerify(extent) | Work::OrWrite(extent, _) => {
            transfer(extent, unit);
            true
        }
        Work::CompareAndWrite(extent, _) => {
            inside(extent, unit);
            assert!(extent.length.0 <= scsi::limits::COMPARE_AND_WRITE_MAX.into());
            true
        }
        Work::WriteZeroes { extent, deallocate } | Work::WriteSame { extent, deallocate, .. } => {
            inside(extent, unit);
            assert!(extent.length.0 <= scsi::limits::WRITE_SAME_MAX.into());
            assert!(!deallocate || unit.discards);
            true
        }
        Work::Flush
        | Work::Reply
        | Work::ReserveIn
        | Work::ReserveOut(_)
        | Work::Hold
        | Work::EndHold
        | Work::Parameters(_)
        | Work::SetPaths(_)
        | Work::Copy(_)
        | Work::CopyResults
        | Work::LbaStatus
        | Work::Nothing => false,
    };
    assert!(!changes || !unit.is_write_protected(), "{cdb}");
    let _ = work.access(cdb);
    assert!(work.phase() < block::PAGE_SIZE);
    if let Payload::ToHost(length) | Payload::FromHost(length) = work.payload() {
        let is_empty = length == 0 && !matches!(work, Work::CompareAndWrite(..));
        assert!(length <= 2 * TRANSFER_MAX && !is_empty, "{cdb}: {length}");
    }
}

/// A search that is told whatever a volume may find.
fn lba_status(choices: &mut Choices<'_>, cdb: &Cdb, unit: &LogicalUnit) {
    let mut search = LbaSearch::new(cdb, unit);
    let mut seeks = 0;
    while let Some((extent, _)) = search.next() {
        inside(&extent, unit);
        let at = choices.word() % extent.length.0.min(60_000) as u16;
        search.found(if choices.flag() { Outcome::Found(at.into()) } else { Outcome::Done });
        seeks += 1;
        assert!(seeks <= scsi::limits::SEEKS_MAX, "{cdb}");
    }
    let data = search.data();
    assert!(data.len() <= cdb.allocation_length() as usize, "{cdb}");
    let mut lba = cdb.lba();
    for run in LbaStatusList::parse(&data).map_or(Vec::new(), |list| list.0) {
        assert!(run.lba == lba && run.blocks > 0, "{cdb}: {run:?} at {lba}");
        lba += u64::from(run.blocks);
    }
    assert!(lba <= unit.blocks.0, "{cdb}: up to {lba} of {}", unit.blocks.0);
}

fn inside(extent: &Extent, unit: &LogicalUnit) {
    let block = unit.block_size.bytes();
    assert!(
        extent.offset.0.is_multiple_of(block) && extent.length.0.is_multiple_of(block),
        "{extent}"
    );
    assert!(extent.end().0 / block <= unit.blocks.0, "{extent}");
}

fn transfer(extent: &Extent, unit: &LogicalUnit) {
    inside(extent, unit);
    assert!((1..=TRANSFER_MAX.into()).contains(&extent.length.0), "{extent}");
}

fn is_reported(cdb: &Cdb, unit: &LogicalUnit, facts: &Facts<'_>) -> bool {
    let action = if cdb.has_service_action() { cdb.service_action() } else { 0 };
    let mut ask = Cdb::report_opcode(cdb.opcode(), Some(action.into()), 100);
    ask.0[2] = 3;
    let data = scsi::reply(&ask, Some(unit), facts).expect("any command may be asked about");
    let one = OneCommand::parse(&data).expect("whole");
    one.support == Support::SUPPORTED
}

fn told(sense: &Sense) {
    one_line(sense);
    assert_eq!(Sense::parse(&sense.emit(true)), Ok(*sense));
    assert_eq!(Sense::parse(&sense.emit(false)).map(|again| again.code), Ok(sense.code));
}

fn outcome(choices: &mut Choices<'_>) {
    let why = Failure::ALL[choices.below(Failure::ALL.len())];
    let at = choices.word().into();
    let all =
        [Outcome::Done, Outcome::Miscompare(at), Outcome::NotDone(why), Outcome::Unknown(why)];
    let (status, sense) = scsi::status_of(choices.of(&all));
    assert_eq!(sense.is_some(), status == ScsiStatus::CHECK_CONDITION);
    sense.iter().for_each(told);
}

fn facts(pending: Option<Sense>) -> Facts<'static> {
    let port = TargetPort {
        protocol: ProtocolId::ISCSI,
        version: 0x0960,
        device_name: "iqn.2026-11.net.plateway:v",
        port_name: "iqn.2026-11.net.plateway:v,t,0x0001",
        relative_id: 1,
        group: 1,
    };
    let (vendor, product, revision) = ("PLATEWAY", "VOLUME", "0.1");
    Facts { vendor, product, revision, luns: &LUNS, port, groups: &groups()[..], pending }
}

/// Groups 1 and 2, of which the second is in standby.
fn groups() -> &'static [(PathGroup, Path); 2] {
    static GROUPS: OnceLock<[(PathGroup, Path); 2]> = OnceLock::new();
    GROUPS.get_or_init(|| {
        let group = |number| PathGroup::new(number).expect("a group");
        let standby = Path { state: PathState::Standby, ..Path::default() };
        [(group(1), Path::default()), (group(2), standby)]
    })
}
