//! What a fencer looks at between two changes: PERSISTENT RESERVE IN in its four forms, which must
//! all tell of the same reservation, and TEST UNIT READY, which tells what is owed. Errors: data
//! that cannot be parsed.

use testkit::iscsi::host::Order;
use wire::scsi::persistent::{
    FullStatusList, HeldReservation, ReservationCapabilities, ReservationKeys, ReservationType,
    TransportId,
};
use wire::scsi::{Cdb, ServiceAction};

use super::super::LUN;
use crate::fences::model::Model;

/// Bytes that are asked for: more than there is.
const ALLOCATION: u16 = 4096;

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Keys,
    Reservation,
    Capabilities,
    FullStatus,
    /// Whether a node is owed anything.
    Ready,
}

impl Look {
    pub(super) const ALL: [Look; 5] =
        [Look::Keys, Look::Reservation, Look::Capabilities, Look::FullStatus, Look::Ready];

    pub(super) fn order(self) -> Order {
        let action = match self {
            Look::Keys => ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS,
            Look::Reservation => ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION,
            Look::Capabilities => ServiceAction::PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES,
            Look::FullStatus => ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS,
            Look::Ready => return Order::new(LUN, Cdb::test_unit_ready()),
        };
        Order::read(LUN, Cdb::persistent_reserve_in(action, ALLOCATION), ALLOCATION.into())
    }
}

/// What was seen.
#[derive(Debug)]
pub(super) enum Seen {
    Keys(u32, Vec<u64>),
    Reservation(u32, Option<(u64, ReservationType)>),
    Capabilities(bool),
    FullStatus(u32, Vec<Registrant>),
    Ready,
}

/// Key, name, and what it holds.
type Registrant = (u64, Vec<u8>, Option<u8>);

impl Seen {
    pub(super) fn parse(look: Look, bytes: &[u8]) -> Result<Seen, String> {
        let wrong = |error: wire::ParseError| format!("{look:?}: {error}");
        Ok(match look {
            Look::Keys => {
                let ReservationKeys { generation, mut keys } =
                    ReservationKeys::parse(bytes).map_err(wrong)?;
                keys.sort_unstable();
                Seen::Keys(generation, keys)
            }
            Look::Reservation => {
                let HeldReservation { generation, held } =
                    HeldReservation::parse(bytes).map_err(wrong)?;
                Seen::Reservation(generation, held)
            }
            Look::Capabilities => {
                let told = ReservationCapabilities::parse(bytes).map_err(wrong)?;
                Seen::Capabilities(told.flags.persistence_active())
            }
            Look::FullStatus => {
                let list = FullStatusList::parse(bytes).map_err(wrong)?;
                let one = list.registrants.into_iter();
                let one = one.map(|it| (it.key, it.transport.name, it.held.map(|kind| kind.0)));
                let mut all: Vec<Registrant> = one.collect();
                all.sort();
                Seen::FullStatus(list.generation, all)
            }
            Look::Ready => Seen::Ready,
        })
    }

    /// Whether this is what there is, where ports have these names.
    pub(super) fn is_of(&self, model: &Model, names: &[(String, [u8; 6])]) -> bool {
        let Model { generation, keys, held, persists } = model;
        match self {
            Seen::Keys(seen, list) => {
                let mut keys: Vec<u64> = keys.iter().map(|(_, key)| *key).collect();
                keys.sort_unstable();
                (*seen, list) == (*generation, &keys)
            }
            Seen::Reservation(seen, told) => {
                let key = |holder| model.key_of(holder).unwrap_or(0);
                let held = held.map(|(kind, holder)| (holder.map_or(0, key), kind));
                (*seen, *told) == (*generation, held)
            }
            Seen::Capabilities(active) => active == persists,
            Seen::FullStatus(seen, list) => {
                let kind = held.map(|(kind, _)| kind.0);
                let one = |(who, key): &(_, u64)| {
                    let crate::fences::model::Who(number) = *who;
                    let (name, isid) = &names[usize::from(number)];
                    let name = TransportId::iscsi(name, *isid).name;
                    (*key, name, kind.filter(|_| model.is_holder(*who)))
                };
                let mut all: Vec<Registrant> = keys.iter().map(one).collect();
                all.sort();
                (*seen, list) == (*generation, &all)
            }
            Seen::Ready => true,
        }
    }
}
