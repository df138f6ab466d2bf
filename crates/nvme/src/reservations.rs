//! Reservations as NVMe words them: commands become changes of the one state, and what became of
//! them a status; the state becomes a report.
//!
//! In: the command, its data and who asks. Out: [`Work`] and [`Change`]; the data of Report; a
//! [`Status`]. A registrant is a host, by its HOSTID or the name that the configuration gives it,
//! through all its controllers. Choices: nobody is
//! registered under the key 0; IEKEY is for Register alone, as since revision 1.3; Report has the
//! extended form alone, since host identifiers have 128 bits over fabrics. Errors: what can never be
//! is refused with DNR before its data are asked for. Pure. Spec: NVMe base, "Reservations",
//! "Reservation Acquire command" to "Reservation Report command". Not here: the rules of the state
//! (room `reservation`), who waits and is told (`controllers`), which command reads or writes (`io`).

use block::limits::TRANSFER_MAX;
use block::planted;
use reservation::replica::Answer;
use reservation::{Applicant, Change, Guard, Kind, Registrant, Reservation, Told, Verdict};
use wire::nvme::command::{IoOpcode, SglKind};
use wire::nvme::reservation::{
    AcquireAction, ChangePersist, NotificationType, RegisterAction, ReleaseAction, ReleaseKey,
    Report, ReportHeader, ReportRegistrant, ReportRequest, ReservationDword, ReservationKeys,
    ReservationType,
};
use wire::nvme::{Command, Status};

use crate::controllers::ReplyData;
use crate::io::Work;

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// Says what a command that changes a reservation takes from the host, or why it is refused
/// whatever that is.
pub(crate) fn judge(command: &Command) -> Result<Work, Status> {
    let dword = ReservationDword::of(command);
    let (is_known, size) = match command.io_opcode() {
        IoOpcode::RESERVATION_REGISTER => {
            let is_known = dword.register_action() <= RegisterAction::REPLACE
                && dword.change_persist() != ChangePersist(1);
            (is_known, ReservationKeys::SIZE)
        }
        IoOpcode::RESERVATION_ACQUIRE => {
            let is_known = dword.acquire_action() <= AcquireAction::PREEMPT_AND_ABORT
                && !dword.ignores_key()
                && kind(dword.reservation_type()).is_some();
            (is_known, ReservationKeys::SIZE)
        }
        _ => {
            let is_known = match dword.release_action() {
                ReleaseAction::RELEASE => kind(dword.reservation_type()).is_some(),
                ReleaseAction::CLEAR => true,
                _ => false,
            };
            (is_known && !dword.ignores_key(), ReleaseKey::SIZE)
        }
    };
    if !is_known {
        return Err(INVALID);
    }
    // Linux sends both keys with Release, too.
    let length = command.sgl().length;
    match (size..=ReservationKeys::SIZE).contains(&(length as usize)) {
        true => Ok(Work::Reserve(length)),
        false => Err(Status::INVALID_SGL_LENGTH.with_dnr()),
    }
}

/// Says how much a Report returns, or why it is refused.
pub(crate) fn judge_report(command: &Command) -> Result<Work, Status> {
    let ReportRequest { bytes, extended } = ReportRequest::of(command);
    if !extended {
        return Err(Status::HOST_ID_INCONSISTENT.with_dnr());
    }
    if bytes > u64::from(TRANSFER_MAX) {
        return Err(INVALID);
    }
    let sgl = command.sgl();
    if sgl.kind != SglKind::TRANSPORT {
        return Err(Status::INVALID_SGL_TYPE.with_dnr());
    }
    match bytes <= u64::from(sgl.length) {
        true => Ok(Work::Report(bytes as u32)),
        false => Err(Status::INVALID_SGL_LENGTH.with_dnr()),
    }
}

/// The change that a command asks for which was [judged](judge), by its data and its host.
pub(crate) fn change(
    command: &Command,
    data: &[u8],
    host: Option<Applicant>,
) -> Result<Change, Status> {
    // Hosts without an identifier cannot be told from each other. Nothing in the command is wrong.
    let denied = Status::OPERATION_DENIED.with_dnr();
    let nobody = Registrant::NvmeHost([0; 16]);
    let asker = host.filter(|host| host.id != nobody).ok_or(denied)?;
    let by = asker.id;
    let dword = ReservationDword::of(command);
    let short = |_| Status::INVALID_SGL_LENGTH.with_dnr();
    match command.io_opcode() {
        IoOpcode::RESERVATION_REGISTER => {
            register(dword, ReservationKeys::parse(data).map_err(short)?, asker)
        }
        IoOpcode::RESERVATION_ACQUIRE => {
            acquire(dword, ReservationKeys::parse(data).map_err(short)?, by)
        }
        _ => {
            let key = ReleaseKey::parse(data).map_err(short)?.current;
            Ok(match dword.release_action() {
                ReleaseAction::CLEAR => Change::Clear { by, key },
                _ => {
                    let kind = kind(dword.reservation_type()).ok_or(INVALID)?;
                    Change::Release { by, key, kind }
                }
            })
        }
    }
}

fn register(
    dword: ReservationDword,
    keys: ReservationKeys,
    by: Applicant,
) -> Result<Change, Status> {
    let said = (!dword.ignores_key()).then_some(keys.current);
    let (guard, key) = match dword.register_action() {
        RegisterAction::UNREGISTER => (Guard::Registered(said), 0),
        _ if keys.other == 0 => return Err(INVALID),
        RegisterAction::REPLACE => {
            // Without a look at the key, a host may be registered by it that was not.
            let guard = said.map_or(Guard::Any, |said| Guard::Registered(Some(said)));
            (guard, keys.other)
        }
        _ => (Guard::New, keys.other),
    };
    let persists = match dword.change_persist() {
        ChangePersist::SET => Some(!planted("ptpl-is-forgotten")),
        ChangePersist::CLEAR => Some(false),
        _ => None,
    };
    Ok(Change::Register { by, guard, key, also: Vec::new(), ports: Vec::new(), persists })
}

fn acquire(
    dword: ReservationDword,
    keys: ReservationKeys,
    by: Registrant,
) -> Result<Change, Status> {
    let key = keys.current;
    let kind = kind(dword.reservation_type()).ok_or(INVALID)?;
    let action = dword.acquire_action();
    Ok(match action {
        AcquireAction::ACQUIRE => Change::Reserve { by, key, kind },
        _ => {
            let abort = action == AcquireAction::PREEMPT_AND_ABORT;
            Change::Preempt { by, key, victims: keys.other, kind, abort }
        }
    })
}

/// Both names of the kinds.
const KINDS: [(ReservationType, Kind); 6] = [
    (ReservationType::WRITE_EXCLUSIVE, Kind::WriteExclusive),
    (ReservationType::EXCLUSIVE_ACCESS, Kind::ExclusiveAccess),
    (ReservationType::WRITE_EXCLUSIVE_REGISTRANTS, Kind::WriteExclusiveRegistrants),
    (ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS, Kind::ExclusiveAccessRegistrants),
    (ReservationType::WRITE_EXCLUSIVE_ALL, Kind::WriteExclusiveAll),
    (ReservationType::EXCLUSIVE_ACCESS_ALL, Kind::ExclusiveAccessAll),
];

fn kind(rtype: ReservationType) -> Option<Kind> {
    KINDS.iter().find(|(code, _)| *code == rtype).map(|(_, kind)| *kind)
}

fn reservation_type(kind: Option<Kind>) -> ReservationType {
    let found = KINDS.iter().find(|(_, other)| Some(*other) == kind);
    found.map_or(ReservationType::NONE, |(code, _)| *code)
}

/// What became of a change, as the host sees it.
pub(crate) fn status_of(answer: &Answer<Verdict, Reservation>) -> Status {
    match answer {
        Answer::Decided(Verdict::Done, _) => Status::SUCCESS,
        Answer::Decided(Verdict::Conflict, _) => Status::RESERVATION_CONFLICT.with_dnr(),
        Answer::Decided(Verdict::OtherKind | Verdict::Invalid, _) => INVALID,
        // NVMe has no word for too many registrants. Linux makes "no space" of this one, which is
        // what it is; an internal error would be repeated.
        Answer::Decided(Verdict::Full, _) => Status::CAPACITY_EXCEEDED.with_dnr(),
        Answer::NotStored => Status::INTERNAL_ERROR,
        // Too many changes wait: hosts are to ask again.
        Answer::Busy => Status::COMMAND_INTERRUPTED,
        Answer::Gone => Status::INVALID_NAMESPACE.with_dnr(),
    }
}

/// The data of a Report of so many bytes. `own` is who asks and its HOSTID, by which it looks for
/// itself also where it is registered under a name.
pub(crate) fn report(
    reservation: Option<&Reservation>,
    bytes: u32,
    own: Option<(Registrant, [u8; 16])>,
) -> ReplyData {
    let free = Reservation::default();
    let held = reservation.unwrap_or(&free);
    let registrants = held.registrants().iter().map(|one| ReportRegistrant {
        controller_id: ReportRegistrant::DYNAMIC,
        status: u8::from(held.is_holder(one.id)),
        key: one.key,
        host_id: own
            .filter(|(who, _)| *who == one.id)
            .map_or_else(|| host_id(one.id), |(_, id)| id),
    });
    let header = ReportHeader {
        generation: held.generation() as u32,
        kind: reservation_type(held.kind()),
        persists: u8::from(held.persists()),
        ..ReportHeader::default()
    };
    let mut data = Report { header, registrants: registrants.collect() }.emit();
    data.truncate(bytes as usize);
    let zeros = bytes - data.len() as u32;
    ReplyData { bytes: data, zeros }
}

/// HOSTID; of others than NVMe hosts what stands for one, so that a host sees all who are
/// registered, and their keys: a station's MAC behind zeros, the digest of an initiator port or of
/// a host's name.
fn host_id(who: Registrant) -> [u8; 16] {
    match who {
        Registrant::NvmeHost(id) | Registrant::ScsiPort(id) | Registrant::Host(id) => id,
        Registrant::Mac(mac) => {
            let mut id = [0; 16];
            id[10..].copy_from_slice(&mac);
            id
        }
    }
}

/// What a host is told, as a notification.
pub(crate) fn notification(told: Told) -> NotificationType {
    match told {
        Told::RegistrationPreempted => NotificationType::REGISTRATION_PREEMPTED,
        Told::ReservationReleased => NotificationType::RESERVATION_RELEASED,
        Told::ReservationPreempted => NotificationType::RESERVATION_PREEMPTED,
    }
}

#[cfg(test)]
mod tests;
