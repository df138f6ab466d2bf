//! Which change a fencer asks for next, and how the command says it. Most are right, some are wrong
//! on purpose: an answer that is expected to be a conflict has to be one.

use block::Random;
use testkit::iscsi::host::Order;
use wire::scsi::persistent::{RegisterAndMove, ReservationType, ReserveOut, TransportId};
use wire::scsi::{Cdb, ServiceAction};

use super::super::LUN;
use crate::fences::model::{Change, Model, Who};

const KINDS: [ReservationType; 6] = [
    ReservationType::WRITE_EXCLUSIVE,
    ReservationType::EXCLUSIVE_ACCESS,
    ReservationType::WRITE_EXCLUSIVE_REGISTRANTS,
    ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS,
    ReservationType::WRITE_EXCLUSIVE_ALL,
    ReservationType::EXCLUSIVE_ACCESS_ALL,
];

/// Keys are few, so that several have the same one now and then.
fn key(random: &mut Random) -> u64 {
    0xfe00_0000_0000_0001 + random.below(6)
}

fn kind(random: &mut Random) -> ReservationType {
    KINDS[random.below(KINDS.len() as u64) as usize]
}

/// Something that `by` may ask where this is in force; `everybody` may be registered.
pub(super) fn change(random: &mut Random, model: &Model, by: Who, everybody: u16) -> Change {
    let Some(own) = model.key_of(by) else { return registration(random, model, by, everybody) };
    let (held, is_holder) = (model.held.map(|(kind, _)| kind), model.is_holder(by));
    let others: Vec<u64> =
        model.keys.iter().filter(|(who, _)| *who != by).map(|(_, key)| *key).collect();
    let holder = model.held.and_then(|(_, holder)| holder).and_then(|who| model.key_of(who));
    let said = if random.chance(1, 20) { own ^ 0x8000 } else { own };
    match random.below(100) {
        // Whoever is there may stay for a while: most of the time something is held.
        0..45 if held.is_none() => Change::Reserve { key: said, kind: kind(random) },
        0..20 if is_holder => Change::Release { key: said, kind: held.unwrap_or(KINDS[0]) },
        20..24 if is_holder => Change::Release { key: said, kind: kind(random) },
        24..28 => Change::Reserve { key: said, kind: held.unwrap_or_else(|| kind(random)) },
        28..32 => Change::Reserve { key: said, kind: kind(random) },
        32..38 if is_holder => Change::Move {
            key: said,
            to: Who(random.below(everybody.into()) as u16),
            to_key: key(random),
            unregister: random.chance(1, 2),
            persists: random.chance(1, 2),
        },
        38..46 => Change::Clear { key: said },
        46..52 => Change::Register {
            guard: Some(said),
            key: 0,
            also: Vec::new(),
            persists: random.chance(1, 2),
        },
        52..62 => Change::Register {
            guard: random.chance(1, 2).then_some(said),
            key: key(random),
            also: Vec::new(),
            persists: random.chance(1, 2),
        },
        _ => {
            let some = |random: &mut Random| match others.len() as u64 {
                0 => key(random),
                count => others[random.below(count) as usize],
            };
            let victims = match random.below(10) {
                0 => key(random),
                1 => own,
                2 | 3 => 0,
                4..7 => holder.unwrap_or_else(|| some(random)),
                _ => some(random),
            };
            let (kind, abort) = (kind(random), random.chance(1, 2));
            Change::Preempt { key: said, victims, kind, abort }
        }
    }
}

/// Somebody who is not registered registers, mostly, and others with it now and then.
fn registration(random: &mut Random, model: &Model, by: Who, everybody: u16) -> Change {
    let (key, persists) = (key(random), random.chance(1, 2));
    if random.chance(1, 8) {
        return match random.below(3) {
            0 => Change::Reserve { key, kind: kind(random) },
            1 => Change::Clear { key },
            _ => Change::Register { guard: Some(key), key, also: Vec::new(), persists },
        };
    }
    let mut also = Vec::new();
    if random.chance(2, 3) {
        let others = (0..everybody).map(Who).filter(|who| *who != by);
        let free = others.filter(|who| model.key_of(*who).is_none());
        also.extend(free.filter(|_| random.chance(1, 2)).collect::<Vec<_>>());
    }
    let guard = (!also.is_empty() || random.chance(1, 2)).then_some(0);
    Change::Register { guard, key, also, persists }
}

/// The command that asks for it, and its list; ports have these names.
pub(super) fn order(change: &Change, names: &[(String, [u8; 6])]) -> (Order, Vec<u8>) {
    let port = |who: &Who| {
        let (name, isid) = &names[usize::from(who.0)];
        TransportId::iscsi(name, *isid)
    };
    let list = |key, action_key| ReserveOut { key, action_key, ..ReserveOut::default() };
    let none = ReservationType(0);
    let (action, kind, list) = match change {
        Change::Register { guard, key, also, persists } => {
            let also = (!also.is_empty()).then(|| also.iter().map(port).collect());
            let list = ReserveOut { persist: *persists, also, ..list(guard.unwrap_or(0), *key) };
            let action = match guard {
                Some(_) => ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER,
                None => ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE,
            };
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
    };
    let length = list.len() as u32;
    let cdb = Cdb::persistent_reserve_out(action, kind.0, length);
    (Order::write(LUN, cdb, length), list)
}
