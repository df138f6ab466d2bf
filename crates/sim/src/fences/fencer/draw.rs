//! Which change a fencer asks for next, among those that there are words for. Most are right, some are
//! wrong on purpose: an answer that is expected to be a conflict has to be one.

use block::Random;
use wire::scsi::persistent::ReservationType;

use crate::fences::model::{Change, Guard, Model, Who};

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

/// Something that `by` may ask where this is in force. SCSI has words for the registrations of others,
/// the `ports`; without them it is NVMe's.
pub(super) fn change(random: &mut Random, model: &Model, by: Who, ports: Option<&[Who]>) -> Change {
    let Some(own) = model.key_of(by) else { return registration(random, model, by, ports) };
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
        32..38 if is_holder && ports.is_some() => {
            let ports = ports.unwrap_or_default();
            Change::Move {
                key: said,
                to: ports[random.below(ports.len() as u64) as usize],
                to_key: key(random),
                unregister: random.chance(1, 2),
                persists: random.chance(1, 2),
            }
        }
        38..46 => Change::Clear { key: said },
        46..62 if ports.is_none() => rename(random, own, said),
        46..52 => Change::Register {
            guard: Guard::Is(said),
            key: 0,
            also: Vec::new(),
            persists: Some(random.chance(1, 2)),
        },
        52..62 => Change::Register {
            guard: if random.chance(1, 2) { Guard::Is(said) } else { Guard::Any },
            key: key(random),
            also: Vec::new(),
            persists: Some(random.chance(1, 2)),
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

/// A host of NVMe that is registered changes its key, or is registered no more; or what outlives the
/// target is changed.
fn rename(random: &mut Random, own: u64, said: u64) -> Change {
    let guard = Guard::Registered(random.chance(1, 2).then_some(said));
    let (guard, key) = match random.below(8) {
        0 | 1 => return Change::Persist(random.chance(1, 2)),
        2 | 3 => (guard, 0),
        4 => (Guard::New, own),
        5 => (Guard::New, key(random)),
        6 => (Guard::Any, key(random)),
        _ => (Guard::Registered(Some(said)), key(random)),
    };
    Change::Register { guard, key, also: Vec::new(), persists: persists(random) }
}

/// CPTPL: it may be left as it is.
fn persists(random: &mut Random) -> Option<bool> {
    random.chance(2, 3).then(|| random.chance(1, 2))
}

/// Somebody who is not registered registers, mostly, and others with it now and then.
fn registration(random: &mut Random, model: &Model, by: Who, ports: Option<&[Who]>) -> Change {
    let Some(ports) = ports else { return own_registration(random) };
    let (key, persists) = (key(random), Some(random.chance(1, 2)));
    if random.chance(1, 8) {
        return match random.below(3) {
            0 => Change::Reserve { key, kind: kind(random) },
            1 => Change::Clear { key },
            _ => Change::Register { guard: Guard::Is(key), key, also: Vec::new(), persists },
        };
    }
    let mut also = Vec::new();
    if random.chance(2, 3) {
        let others = ports.iter().copied().filter(|who| *who != by);
        let free = others.filter(|who| model.key_of(*who).is_none());
        also.extend(free.filter(|_| random.chance(1, 2)).collect::<Vec<_>>());
    }
    let is_said = !also.is_empty() || random.chance(1, 2);
    let guard = if is_said { Guard::Is(0) } else { Guard::Any };
    Change::Register { guard, key, also, persists }
}

/// The same of a host of NVMe, which registers nobody else.
fn own_registration(random: &mut Random) -> Change {
    let (key, persists) = (key(random), persists(random));
    let guard = match random.below(16) {
        0 => return Change::Reserve { key, kind: kind(random) },
        1 => return Change::Clear { key },
        2 => Guard::Registered(Some(key)),
        3 => Guard::Registered(None),
        4..8 => Guard::Any,
        _ => Guard::New,
    };
    // Only unregistering ignores a key that has to be there.
    let key = if guard == Guard::Registered(None) { 0 } else { key };
    Change::Register { guard, key, also: Vec::new(), persists }
}
