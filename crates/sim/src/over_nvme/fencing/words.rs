//! A fencer's questions as commands of NVMe, and what their answers mean: Register, Acquire, Release and
//! Report, the feature of persistence (83h), and the log of notifications (80h). Errors: data that cannot
//! be parsed, a registrant whom nobody knows, a notification out of its order, a status that cannot be.

use wire::nvme::feature::FeatureId;
use wire::nvme::log::LogId;
use wire::nvme::reservation::{
    AcquireAction, ChangePersist, NotificationType, RegisterAction, ReleaseAction, ReleaseKey,
    Report, ReportRegistrant, ReservationKeys, ReservationNotification, ReservationPersistence,
    ReservationType,
};
use wire::nvme::{Command, Completion, Status};
use wire::scsi::AdditionalSense;
use wire::scsi::persistent::ReservationType as Kind;

use super::super::raw_host::work::{Asked, NSID};
use crate::fences::model::{Change, Ending, Guard, Who};
use crate::fences::nodes::{Answer, Look, NAMED_ID, Names, Question, Seen, Shown};

/// Bytes of a Report that are asked for: more than there is.
const REPORT: u32 = 4096;

/// The same kinds by both names.
const KINDS: [(ReservationType, Kind); 6] = [
    (ReservationType::WRITE_EXCLUSIVE, Kind::WRITE_EXCLUSIVE),
    (ReservationType::EXCLUSIVE_ACCESS, Kind::EXCLUSIVE_ACCESS),
    (ReservationType::WRITE_EXCLUSIVE_REGISTRANTS, Kind::WRITE_EXCLUSIVE_REGISTRANTS),
    (ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS, Kind::EXCLUSIVE_ACCESS_REGISTRANTS),
    (ReservationType::WRITE_EXCLUSIVE_ALL, Kind::WRITE_EXCLUSIVE_ALL),
    (ReservationType::EXCLUSIVE_ACCESS_ALL, Kind::EXCLUSIVE_ACCESS_ALL),
];

/// What a host has to know to speak.
#[derive(Debug)]
pub(in super::super) struct Words {
    own: (Who, [u8; 16]),
    names: Names,
    may_not_store: bool,
    /// The number of the last notification that its controller told.
    told: u64,
    /// Events that said that there is one.
    events: u64,
}

impl Words {
    /// Those of somebody with a HOSTID. Of one that `may_not_store` not every change is made.
    pub(in super::super) fn new(own: (Who, [u8; 16]), names: Names, may_not_store: bool) -> Words {
        Words { own, names, may_not_store, told: 0, events: 0 }
    }

    /// Another controller counts anew.
    pub(super) fn reset(&mut self) {
        (self.told, self.events) = (0, 0);
    }

    /// An event said that there is a notification.
    pub(super) fn noticed(&mut self) {
        self.events += 1;
    }

    /// The command that asks something, and whether it is one for the admin queue.
    pub(super) fn command(&self, now: u64, question: &Question) -> (bool, Command, Asked) {
        let (is_admin, command, length) = match question {
            Question::Change(change) => {
                let (is_admin, command, data) = command_of(change);
                return (is_admin, command, Asked::Change { data });
            }
            Question::Look(Look::Persistence) => {
                let feature = FeatureId::RESERVATION_PERSISTENCE.0;
                (true, Command::get_features(feature, NSID, 0), 0)
            }
            Question::Look(Look::Told) => {
                let size = ReservationNotification::SIZE as u32;
                (true, Command::get_log(LogId::RESERVATION_NOTIFICATION, 0, 0, size, false), size)
            }
            Question::Look(_) => (false, Command::reservation_report(NSID, REPORT), REPORT),
        };
        (is_admin, command, Asked::Page { start: now, bytes: vec![0; length as usize] })
    }

    /// What an answer and its data mean.
    pub(super) fn answer(
        &mut self,
        asked: &Question,
        entry: &Completion,
        bytes: &[u8],
    ) -> Result<Answer, String> {
        let endings = match (asked, entry.status.without_hints()) {
            (Question::Look(look), Status::SUCCESS) => return self.seen(*look, entry, bytes),
            (_, Status::COMMAND_INTERRUPTED) => return Ok(Answer::Again),
            (Question::Change(_), status) => match status {
                Status::SUCCESS => vec![Ending::Good],
                Status::RESERVATION_CONFLICT => vec![Ending::Conflict],
                // SCSI tells two of these apart.
                Status::INVALID_FIELD => vec![
                    Ending::Illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST),
                    Ending::Illegal(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION),
                ],
                Status::INTERNAL_ERROR if self.may_not_store => vec![Ending::NotStored],
                _ => return Err(format!("{asked:?} was answered {entry}")),
            },
            _ => return Err(format!("{asked:?} was answered {entry}")),
        };
        Ok(Answer::Ended(endings))
    }

    /// What data, or a result, show.
    fn seen(&mut self, look: Look, entry: &Completion, bytes: &[u8]) -> Result<Answer, String> {
        let wrong = |error: wire::ParseError| format!("{look:?}: {error}");
        let nothing = Seen::default();
        Ok(Answer::Seen(match look {
            Look::Persistence => {
                let persists = ReservationPersistence(entry.result32()).persists();
                Seen { persists: Some(persists), ..nothing }
            }
            Look::Told => {
                let page = ReservationNotification::parse(bytes).map_err(wrong)?;
                let is_empty = page.kind == NotificationType::EMPTY;
                // One event each: of the oldest that waits, until it is read. It was asked for before.
                let (events, told) = (self.events, self.told);
                if events != told + u64::from(!is_empty) && (is_empty || events != told + 2) {
                    return Err(format!("{page}, with {events} events for {told} read before"));
                }
                if is_empty {
                    return Ok(Answer::Seen(Seen { is_told_all: true, ..nothing }));
                }
                self.told += 1;
                if (page.count, page.nsid) != (self.told, NSID) {
                    return Err(format!("{page} comes as number {}", self.told));
                }
                return Ok(Answer::Told(code_of(page.kind)));
            }
            _ => {
                let Report { header, registrants } = Report::parse(bytes).map_err(wrong)?;
                let kind = kind_of(header.kind)?;
                let shown = registrants.iter().map(|one| self.shown(one, kind));
                let mut all = shown.collect::<Result<Vec<Shown>, String>>()?;
                all.sort_by_key(|(key, who, _)| (*key, *who));
                Seen {
                    generation: Some(header.generation),
                    kind: Some(kind),
                    persists: Some(header.persists == 1),
                    registrants: Some(all),
                    ..nothing
                }
            }
        }))
    }

    /// Who a registrant is. Who looks finds itself by its own HOSTID, also where it has a name.
    fn shown(&self, one: &ReportRegistrant, kind: Option<Kind>) -> Result<Shown, String> {
        let (own, own_id) = self.own;
        let id_of = |who: Who, id: [u8; 16]| match who {
            _ if who == own => own_id,
            Who::NAMED => NAMED_ID,
            _ => id,
        };
        let mut all = self.names.iter().map(|(who, identity)| (*who, identity.host_id));
        match all.find(|(who, id)| id_of(*who, *id) == one.host_id) {
            Some((who, _)) => Ok((one.key, who, kind.filter(|_| one.holds()))),
            None => Err(format!("nobody is called {:02x?}", one.host_id)),
        }
    }
}

/// The command that asks for a change, whether it is one for the admin queue, and its data.
fn command_of(change: &Change) -> (bool, Command, Vec<u8>) {
    let keys = |current, other| ReservationKeys { current, other }.emit().to_vec();
    let (command, data) = match *change {
        Change::Register { guard, key, persists, .. } => {
            let (action, current) = match guard {
                Guard::New => (RegisterAction::REGISTER, 0),
                Guard::Any => (RegisterAction::REPLACE, 0),
                Guard::Registered(said) if key == 0 => {
                    (RegisterAction::UNREGISTER, said.unwrap_or(0))
                }
                Guard::Registered(said) => (RegisterAction::REPLACE, said.unwrap_or(0)),
                Guard::Is(_) => unreachable!("NVMe has no words for {guard:?}"),
            };
            let persist = match persists {
                None => ChangePersist::KEEP,
                Some(false) => ChangePersist::CLEAR,
                Some(true) => ChangePersist::SET,
            };
            let command = Command::reservation_register(NSID, action, persist);
            let ignores_key = matches!(guard, Guard::Any | Guard::Registered(None));
            (if ignores_key { command.with_ignored_key() } else { command }, keys(current, key))
        }
        Change::Reserve { key, kind } => {
            let command = Command::reservation_acquire(NSID, AcquireAction::ACQUIRE, type_of(kind));
            (command, keys(key, 0))
        }
        Change::Preempt { key, victims, kind, abort } => {
            let action =
                if abort { AcquireAction::PREEMPT_AND_ABORT } else { AcquireAction::PREEMPT };
            (Command::reservation_acquire(NSID, action, type_of(kind)), keys(key, victims))
        }
        Change::Release { key, kind } => {
            (Command::reservation_release(NSID, ReleaseAction::RELEASE, type_of(kind)), of(key))
        }
        Change::Clear { key } => {
            let none = ReservationType::NONE;
            (Command::reservation_release(NSID, ReleaseAction::CLEAR, none), of(key))
        }
        Change::Persist(persists) => {
            let feature = FeatureId::RESERVATION_PERSISTENCE.0;
            let value = ReservationPersistence(0).with_persists(persists).0;
            return (true, Command::set_features(feature, NSID, value, 0), Vec::new());
        }
        Change::Move { .. } => unreachable!("NVMe has no word for it"),
    };
    (false, command, data)
}

/// The data of Release.
fn of(key: u64) -> Vec<u8> {
    ReleaseKey { current: key }.emit().to_vec()
}

fn type_of(kind: Kind) -> ReservationType {
    let found = KINDS.iter().find(|(_, scsi)| *scsi == kind);
    found.expect("each kind has both names").0
}

fn kind_of(kind: ReservationType) -> Result<Option<Kind>, String> {
    if kind == ReservationType::NONE {
        return Ok(None);
    }
    let found = KINDS.iter().find(|(nvme, _)| *nvme == kind);
    found.map(|(_, scsi)| Some(*scsi)).ok_or_else(|| format!("Report says {kind}"))
}

/// What SCSI has for a notification.
fn code_of(kind: NotificationType) -> AdditionalSense {
    match kind {
        NotificationType::REGISTRATION_PREEMPTED => AdditionalSense::REGISTRATIONS_PREEMPTED,
        NotificationType::RESERVATION_RELEASED => AdditionalSense::RESERVATIONS_RELEASED,
        _ => AdditionalSense::RESERVATIONS_PREEMPTED,
    }
}
