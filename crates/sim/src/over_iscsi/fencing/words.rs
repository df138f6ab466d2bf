//! A fencer's questions as commands of SCSI, and what their answers mean: PERSISTENT RESERVE OUT and IN
//! in all forms, and TEST UNIT READY, which tells what others did. Errors: data that cannot be parsed,
//! a registrant whom nobody knows, a status that cannot be.

use testkit::iscsi::Said;
use testkit::iscsi::host::Order;
use wire::scsi::persistent::{
    FullStatus, FullStatusList, HeldReservation, RegisterAndMove, ReservationCapabilities,
    ReservationKeys, ReservationType, ReserveOut, TransportId,
};
use wire::scsi::{Cdb, ProtocolId, ScsiStatus, SenseKey, ServiceAction};

use super::super::LUN;
use super::super::raw_host::work::is_of_reservations;
use crate::fences::model::{Change, Ending, Guard, Who};
use crate::fences::nodes::{Answer, Identity, Look, NAMED_ID, Names, Question, Seen, Shown};

/// Bytes that are asked for: more than there is.
const ALLOCATION: u16 = 4096;

/// What a port has to know to speak.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) names: Names,
    pub(super) strict: bool,
    /// Whether not every change can be stored.
    pub(super) may_not_store: bool,
}

impl Words {
    /// The command that asks something, and its list.
    pub(super) fn order(&self, question: &Question) -> (Order, Vec<u8>) {
        let look = match question {
            Question::Change(change) => return self.change(change),
            Question::Look(look) => look,
        };
        let action = match look {
            Look::Keys => ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS,
            Look::Reservation => ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION,
            Look::Persistence => ServiceAction::PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES,
            Look::Registrants => ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS,
            Look::Told => return (Order::new(LUN, Cdb::test_unit_ready()), Vec::new()),
        };
        let cdb = Cdb::persistent_reserve_in(action, ALLOCATION);
        (Order::read(LUN, cdb, ALLOCATION.into()), Vec::new())
    }

    fn change(&self, change: &Change) -> (Order, Vec<u8>) {
        let port = |who: &Who| {
            let (name, isid) = self.names[who].port.as_ref().expect("SCSI names its ports");
            TransportId::iscsi(name, *isid)
        };
        let list = |key, action_key| ReserveOut { key, action_key, ..ReserveOut::default() };
        let none = ReservationType(0);
        let (action, kind, list) = match change {
            Change::Register { guard, key, also, persists } => {
                let (action, key_now) = match guard {
                    Guard::Any => (ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE, 0),
                    Guard::Is(said) => (ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER, *said),
                    _ => unreachable!("SCSI has no words for {guard:?}"),
                };
                let persist = persists.unwrap_or(false);
                let also = (!also.is_empty()).then(|| also.iter().map(port).collect());
                let list = ReserveOut { persist, also, ..list(key_now, *key) };
                (action, none, list.emit())
            }
            Change::Reserve { key, kind } => {
                (ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE, *kind, list(*key, 0).emit())
            }
            Change::Release { key, kind } => {
                (ServiceAction::PERSISTENT_RESERVE_OUT_RELEASE, *kind, list(*key, 0).emit())
            }
            Change::Clear { key } => {
                (ServiceAction::PERSISTENT_RESERVE_OUT_CLEAR, none, list(*key, 0).emit())
            }
            Change::Preempt { key, victims, kind, abort } => {
                let action = match abort {
                    true => ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT,
                    false => ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT,
                };
                (action, *kind, list(*key, *victims).emit())
            }
            Change::Move { key, to, to_key, unregister, persists } => {
                let list = RegisterAndMove {
                    key: *key,
                    action_key: *to_key,
                    unregister: *unregister,
                    persist: *persists,
                    relative_port: 1,
                    to: port(to),
                };
                (ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE, none, list.emit())
            }
            Change::Persist(_) => unreachable!("SCSI has no word for it"),
        };
        let length = list.len() as u32;
        let cdb = Cdb::persistent_reserve_out(action, kind.0, length);
        (Order::write(LUN, cdb, length), list)
    }

    /// What an answer and its data mean.
    pub(super) fn answer(
        &self,
        asked: &Question,
        said: &Said,
        bytes: &[u8],
    ) -> Result<Answer, String> {
        let wrong = || Err(format!("{asked:?} was answered {said:?}"));
        let ending = match said.status() {
            ScsiStatus::GOOD => match asked {
                Question::Look(look) => return self.seen(*look, bytes).map(Answer::Seen),
                Question::Change(_) => Ending::Good,
            },
            ScsiStatus::RESERVATION_CONFLICT => Ending::Conflict,
            ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL => return Ok(Answer::Again),
            ScsiStatus::CHECK_CONDITION => {
                let sense = said.sense();
                match sense.key {
                    SenseKey::UNIT_ATTENTION if is_of_reservations(sense.code) => {
                        return Ok(Answer::Told(sense.code));
                    }
                    // Of the size of the unit, or of what is exported.
                    SenseKey::UNIT_ATTENTION if !self.strict => return Ok(Answer::Other),
                    SenseKey::ILLEGAL_REQUEST => Ending::Illegal(sense.code),
                    SenseKey::HARDWARE_ERROR if self.may_not_store => Ending::NotStored,
                    _ => return wrong(),
                }
            }
            _ => return wrong(),
        };
        match asked {
            Question::Change(_) => Ok(Answer::Ended(vec![ending])),
            Question::Look(_) => wrong(),
        }
    }

    /// What data show.
    fn seen(&self, look: Look, bytes: &[u8]) -> Result<Seen, String> {
        let wrong = |error: wire::ParseError| format!("{look:?}: {error}");
        // Unit attentions come before everything.
        let nothing = Seen { is_told_all: true, ..Seen::default() };
        Ok(match look {
            Look::Keys => {
                let mut seen = ReservationKeys::parse(bytes).map_err(wrong)?;
                seen.keys.sort_unstable();
                let (generation, keys) = (Some(seen.generation), Some(seen.keys));
                Seen { generation, keys, ..nothing }
            }
            Look::Reservation => {
                let seen = HeldReservation::parse(bytes).map_err(wrong)?;
                let (generation, held) = (Some(seen.generation), Some(seen.held));
                Seen { generation, held, ..nothing }
            }
            Look::Persistence => {
                let seen = ReservationCapabilities::parse(bytes).map_err(wrong)?;
                Seen { persists: Some(seen.flags.persistence_active()), ..nothing }
            }
            Look::Registrants => {
                let seen = FullStatusList::parse(bytes).map_err(wrong)?;
                let all = seen.registrants.into_iter().map(|one| self.shown(one));
                let mut all = all.collect::<Result<Vec<Shown>, String>>()?;
                all.sort_by_key(|(key, who, _)| (*key, *who));
                Seen { generation: Some(seen.generation), registrants: Some(all), ..nothing }
            }
            Look::Told => nothing,
        })
    }

    /// Who a registrant is.
    fn shown(&self, one: FullStatus) -> Result<Shown, String> {
        let is_it =
            |(who, identity): &(&Who, &Identity)| transport_of(**who, identity) == one.transport;
        match self.names.iter().find(is_it) {
            Some((who, _)) => Ok((one.key, *who, one.held)),
            None => Err(format!("nobody is called {}", one.transport)),
        }
    }
}

/// How a registrant is shown: that of another protocol by what kind of identity it has, and that from
/// byte 8 on.
fn transport_of(who: Who, identity: &Identity) -> TransportId {
    let (kind, id) = match &identity.port {
        _ if who == Who::NAMED => (4, NAMED_ID),
        Some((name, isid)) => return TransportId::iscsi(name, *isid),
        None => (2, identity.host_id),
    };
    let mut name = vec![kind, 0, 0, 0, 0, 0, 0];
    name.extend(id);
    TransportId { protocol: ProtocolId::NONE, format: 0, name }
}
