//! Commands that change or tell a volume's reservation: PERSISTENT RESERVE IN and OUT, RESERVE and
//! RELEASE.
//!
//! In: the command, the list that came with it, who asks; for IN the reservation in force. Out: the
//! [`Change`] that is to be agreed on, or the data to return; what a decision is to the host who
//! asked, and what is told to others. Errors: the sense data of CHECK CONDITION. What a change does
//! is the room `reservation`'s, for all protocols alike; who an initiator port is, is the
//! transport's to say ([`Asker`]).
//!
//! Choices that the standards leave: registering at all ports of a target is registering at each that
//! there is then (ATP_C); only names with an ISID are initiator ports; third parties and extents are not
//! served; registrants of other protocols have a TransportID of no protocol. Spec: SPC-4, 5.13,
//! "PERSISTENT RESERVE IN command", "PERSISTENT RESERVE OUT command"; SPC-2, 7.16, 7.17, 7.21, 7.22.

use block::record::passed;
use reservation::replica::Answer;
use reservation::{Applicant, Change, Guard, Kind, Registrant, Registration, Reservation};
use reservation::{Told, Verdict};
use wire::scsi::persistent::{
    FullStatus, FullStatusList, HeldReservation, RegisterAndMove, ReservationCapabilities,
    ReservationFlags, ReservationKeys, ReservationType, ReserveOut, TransportId,
};
use wire::scsi::{
    AdditionalSense, Cdb, OpCode, ProtocolId, ScsiStatus, Sense, SenseKey, ServiceAction,
};

use crate::judge::{illegal, invalid_field, invalid_parameter, refuse};
use crate::limits::RESERVE_LIST_MAX;
use crate::work::Work;

/// A status, and the sense data of CHECK CONDITION.
pub type Decision = (ScsiStatus, Option<Sense>);

/// Who asks for a change, and by what it names others.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a, F> {
    /// Who.
    pub by: &'a Applicant,
    /// RELATIVE TARGET PORT IDENTIFIER of the port by which it asks.
    pub relative_port: u16,
    /// Those of all ports of the target.
    pub ports: &'a [u16],
    /// The initiator port that a TransportID names, or that of the asker, as it is known at a target
    /// port; `None` for what is no name of one.
    pub port: F,
}

impl<F: Fn(Option<&TransportId>, u16) -> Option<Applicant>> Asker<'_, F> {
    /// The initiator port that a TransportID names at the asker's port; at all ports, if so.
    fn named(&self, id: &TransportId, all_ports: bool) -> Option<Vec<Applicant>> {
        let own = [self.relative_port];
        let at = if all_ports { self.ports } else { &own };
        at.iter().map(|port| (self.port)(Some(id), *port)).collect()
    }

    /// The asker at all other ports.
    fn elsewhere(&self) -> Vec<Applicant> {
        let others = self.ports.iter().filter(|port| **port != self.relative_port);
        others.filter_map(|port| (self.port)(None, *port)).collect()
    }
}

/// Says what these commands ask, or why they are refused.
#[cold]
pub(crate) fn judge(cdb: &Cdb) -> Result<Work, Sense> {
    match cdb.opcode() {
        // 3RDPTY, of 10 bytes also LONGID, and EXTENT; a third party's and an extent's numbers.
        OpCode::RESERVE_6 | OpCode::RELEASE_6 => match cdb.0[1] & 0x1f {
            0 => Ok(hold_of(cdb)),
            _ => Err(invalid_field(1, 4)),
        },
        OpCode::RESERVE_10 | OpCode::RELEASE_10 => match cdb.0[1] & 0x13 {
            0 => Ok(hold_of(cdb)),
            _ => Err(invalid_field(1, 4)),
        },
        OpCode::PERSISTENT_RESERVE_IN => match cdb.action() {
            ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS
            | ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION
            | ServiceAction::PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES
            | ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS => Ok(Work::ReserveIn),
            _ => Err(invalid_field(1, 4)),
        },
        _ => judge_out(cdb),
    }
}

fn hold_of(cdb: &Cdb) -> Work {
    match cdb.opcode() {
        OpCode::RESERVE_6 | OpCode::RESERVE_10 => Work::Hold,
        _ => Work::EndHold,
    }
}

fn judge_out(cdb: &Cdb) -> Result<Work, Sense> {
    const LIST: u32 = ReserveOut::SIZE as u32;
    let wrong_length = || illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let most = match cdb.action() {
        ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER
        | ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE => RESERVE_LIST_MAX,
        ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE
        | ServiceAction::PERSISTENT_RESERVE_OUT_RELEASE
        | ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT
        | ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT => {
            kind_of(cdb)?;
            LIST
        }
        ServiceAction::PERSISTENT_RESERVE_OUT_CLEAR
        | ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE => LIST,
        _ => return Err(invalid_field(1, 4)),
    };
    let length = cdb.parameter_list_length();
    match (LIST..=most).contains(&length) {
        true => Ok(Work::ReserveOut(length)),
        false => Err(wrong_length()),
    }
}

/// SCOPE, which is a logical unit, and TYPE.
fn kind_of(cdb: &Cdb) -> Result<Kind, Sense> {
    let (scope, kind) = cdb.scope_and_type();
    if scope != 0 {
        return Err(invalid_field(2, 7));
    }
    let found = KINDS.iter().find(|(of, _)| of.0 == kind);
    found.map(|(_, kind)| *kind).ok_or_else(|| invalid_field(2, 3))
}

const KINDS: [(ReservationType, Kind); 6] = [
    (ReservationType::WRITE_EXCLUSIVE, Kind::WriteExclusive),
    (ReservationType::EXCLUSIVE_ACCESS, Kind::ExclusiveAccess),
    (ReservationType::WRITE_EXCLUSIVE_REGISTRANTS, Kind::WriteExclusiveRegistrants),
    (ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS, Kind::ExclusiveAccessRegistrants),
    (ReservationType::WRITE_EXCLUSIVE_ALL, Kind::WriteExclusiveAll),
    (ReservationType::EXCLUSIVE_ACCESS_ALL, Kind::ExclusiveAccessAll),
];

/// The change that PERSISTENT RESERVE OUT asks for, of which [`judge`](crate::judge()) says that it
/// is [`Work::ReserveOut`]. `data` may be shorter than the command says if the host sent less.
#[cold]
pub fn reserve_out<F>(cdb: &Cdb, data: &[u8], asker: &Asker<'_, F>) -> Result<Change, Sense>
where
    F: Fn(Option<&TransportId>, u16) -> Option<Applicant>,
{
    let data = &data[..data.len().min(cdb.parameter_list_length() as usize)];
    let id = asker.by.id;
    if cdb.action() == ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE {
        return move_of(data, asker);
    }
    let registers = cdb.action() == ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
    let list = list_of(data, registers)?;
    let ReserveOut { key, action_key, persist, all_ports, also } = list;
    let register = |guard, also| {
        let ports = if all_ports { asker.elsewhere() } else { Vec::new() };
        let (by, persists) = (asker.by.clone(), Some(persist));
        Change::Register { by, guard, key: action_key, also, ports, persists }
    };
    let preempt = |abort| {
        let kind = kind_of(cdb)?;
        Ok(Change::Preempt { by: id, key, victims: action_key, kind, abort })
    };
    match cdb.action() {
        ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER => {
            let named = also.iter().flatten().map(|other| asker.named(other, all_ports));
            let also = named.collect::<Option<Vec<_>>>();
            let also = also.ok_or_else(|| invalid_parameter(TRANSPORT_IDS))?;
            Ok(register(Guard::Is(key), also.concat()))
        }
        ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE => {
            Ok(register(Guard::Any, Vec::new()))
        }
        ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE => {
            Ok(Change::Reserve { by: id, key, kind: kind_of(cdb)? })
        }
        ServiceAction::PERSISTENT_RESERVE_OUT_RELEASE => {
            Ok(Change::Release { by: id, key, kind: kind_of(cdb)? })
        }
        ServiceAction::PERSISTENT_RESERVE_OUT_CLEAR => Ok(Change::Clear { by: id, key }),
        ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT => preempt(false),
        ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT => preempt(true),
        _ => Err(invalid_field(1, 4)),
    }
}

/// Where the flags of a list are, and what is behind its length.
const FLAGS: usize = 20;
const LENGTH: usize = 24;
const TRANSPORT_IDS: usize = 28;

/// A list of all service actions but REGISTER AND MOVE, as long as it says.
fn list_of(data: &[u8], registers: bool) -> Result<ReserveOut, Sense> {
    let wrong_length = || illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let flags = *data.get(FLAGS).ok_or_else(wrong_length)?;
    if flags & 0x08 != 0 {
        if !registers {
            return Err(invalid_parameter(FLAGS));
        }
        check_length(data, LENGTH, TRANSPORT_IDS)?;
    } else if data.len() != ReserveOut::SIZE {
        return Err(wrong_length());
    }
    ReserveOut::parse(data).map_err(|_| invalid_parameter(TRANSPORT_IDS))
}

/// Whether as many bytes are there, from `start` on, as the 32 bits at `at` say.
fn check_length(data: &[u8], at: usize, start: usize) -> Result<u32, Sense> {
    let said = data.get(at..at + 4).and_then(|said| said.first_chunk());
    let said = said.map(|said| u32::from_be_bytes(*said));
    let fits = |said: &u32| data.len() - start >= *said as usize;
    let is_there = data.len() >= start;
    let said = said.filter(|said| is_there && fits(said));
    said.ok_or_else(|| illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))
}

fn move_of<F>(data: &[u8], asker: &Asker<'_, F>) -> Result<Change, Sense>
where
    F: Fn(Option<&TransportId>, u16) -> Option<Applicant>,
{
    const SAID: usize = 20;
    let said = check_length(data, SAID, LENGTH)?;
    if said < 24 || said % 4 != 0 {
        return Err(illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR));
    }
    let list = RegisterAndMove::parse(data).map_err(|_| invalid_parameter(LENGTH))?;
    let RegisterAndMove { key, action_key, unregister, persist, relative_port, to } = list;
    if !asker.ports.contains(&relative_port) {
        return Err(invalid_parameter(18));
    }
    let to = (asker.port)(Some(&to), relative_port).ok_or_else(|| invalid_parameter(LENGTH))?;
    let (by, to_key, persists) = (asker.by.id, action_key, persist);
    Ok(Change::Move { by, key, to, to_key, unregister, persists })
}

/// The data of PERSISTENT RESERVE IN, no longer than its allocation length; registrants whose port
/// is not known are told at `relative_port`, by which it is asked. A session that has the volume by
/// RESERVE(6) is a conflict, also to itself.
#[cold]
pub fn reserve_in(
    cdb: &Cdb,
    reservation: &Reservation,
    relative_port: u16,
) -> Result<Vec<u8>, Decision> {
    if reservation.hold().is_some() {
        return Err(CONFLICT);
    }
    let generation = reservation.generation() as u32;
    let mut data = match cdb.action() {
        ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS => {
            let keys = reservation.registrants().iter().map(|one| one.key).collect();
            ReservationKeys { generation, keys }.emit()
        }
        ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION => {
            let key = |kind: Kind| match kind.is_all() {
                true => 0,
                false => reservation.holders().next().map_or(0, |one| one.key),
            };
            let held = reservation.kind().map(|kind| (key(kind), type_of(kind)));
            HeldReservation { generation, held }.emit()
        }
        ServiceAction::PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES => {
            capabilities(reservation).emit().to_vec()
        }
        _ => {
            let status = |one: &Registration| FullStatus {
                key: one.key,
                all_ports: false,
                held: reservation.kind().filter(|_| reservation.is_holder(one.id)).map(type_of),
                relative_port: port_of(one).unwrap_or(relative_port),
                transport: transport_of(one),
            };
            let registrants = reservation.registrants().iter().map(status).collect();
            FullStatusList { generation, registrants }.emit()
        }
    };
    data.truncate(cdb.allocation_length() as usize);
    Ok(data)
}

fn type_of(kind: Kind) -> ReservationType {
    let found = KINDS.iter().find(|(_, other)| *other == kind);
    found.expect("every kind has a type").0
}

/// RESERVE(6) beside a registration is a conflict: CRH is 0. Of commands only TEST UNIT READY is
/// promised to be let through (ALLOW COMMANDS 1).
fn capabilities(reservation: &Reservation) -> ReservationCapabilities {
    let flags = ReservationFlags(0)
        .with_specifies_initiators(true)
        .with_all_target_ports(true)
        .with_persistence_capable(true)
        .with_types_valid(true)
        .with_allow_commands(1)
        .with_persistence_active(reservation.persists());
    ReservationCapabilities { length: 8, flags, types: ReservationCapabilities::ALL_TYPES }
}

/// A registrant in SCSI's words. Those of other protocols have none there: a TransportID of no
/// protocol, of which the first byte says the kind of identity, which stands from byte 8 on.
fn transport_of(one: &Registration) -> TransportId {
    let (kind, identity): (u8, &[u8]) = match (&one.id, &one.name) {
        (Registrant::ScsiPort(_), Some(name)) => {
            let name = name.split(AT_PORT).next().unwrap_or_default().as_bytes().to_vec();
            return TransportId { protocol: ProtocolId::ISCSI, format: 1, name };
        }
        (Registrant::Mac(mac), _) => (1, mac),
        (Registrant::NvmeHost(host), _) => (2, host),
        (Registrant::ScsiPort(port), None) => (3, port),
        (Registrant::Host(host), _) => (4, host),
    };
    let mut name = vec![kind, 0, 0, 0, 0, 0, 0];
    name.extend(identity);
    TransportId { protocol: ProtocolId::NONE, format: 0, name }
}

/// What stands between the name of an initiator port and the number of the target port at which it is
/// registered, in four hexadecimal digits; the name alone is registered at port 1.
pub const AT_PORT: &str = ",t,0x";

/// RELATIVE TARGET PORT IDENTIFIER of the port at which an initiator port is registered.
fn port_of(one: &Registration) -> Option<u16> {
    let (Registrant::ScsiPort(_), Some(name)) = (&one.id, &one.name) else { return None };
    match name.split_once(AT_PORT) {
        Some((_, port)) => u16::from_str_radix(port, 16).ok(),
        None => Some(1),
    }
}

const CONFLICT: Decision = (ScsiStatus::RESERVATION_CONFLICT, None);

/// What a decision is to the host that asked for the change.
#[cold]
pub fn status_of_change(answer: &Answer<Verdict, Reservation>) -> Decision {
    let sense = match answer {
        Answer::Decided(Verdict::Done, _) => return (ScsiStatus::GOOD, None),
        Answer::Decided(Verdict::Conflict, _) => return CONFLICT,
        Answer::Busy => return (ScsiStatus::BUSY, None),
        Answer::Decided(Verdict::OtherKind, _) => {
            illegal(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
        }
        Answer::Decided(Verdict::Invalid, _) => invalid_parameter(8),
        Answer::Decided(Verdict::Full, _) => {
            illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES)
        }
        // Not one that hosts repeat: whoever fences another has to know at once that it did not.
        Answer::NotStored => {
            refuse(SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE)
        }
        Answer::Gone => illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
    };
    (ScsiStatus::CHECK_CONDITION, Some(sense))
}

/// The unit attention by which another host is told.
pub fn told_as(told: Told) -> Sense {
    let code = match told {
        Told::RegistrationPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
        Told::ReservationReleased => AdditionalSense::RESERVATIONS_RELEASED,
        Told::ReservationPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
    };
    passed("status", code.name().unwrap_or_default());
    Sense::attention(code)
}

#[cfg(test)]
mod tests;
