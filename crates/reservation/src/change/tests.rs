//! What each change makes of a reservation, whom it is told, and when it is refused: one case for
//! each sentence of the standards that says so.

use super::*;
use crate::Access;

const HOST: Registrant = Registrant::NvmeHost([7; 16]);
const OTHER: Registrant = Registrant::NvmeHost([9; 16]);
const PORT: Registrant = Registrant::ScsiPort([8; 16]);
const ALL_KINDS: [Kind; 6] = [
    Kind::WriteExclusive,
    Kind::ExclusiveAccess,
    Kind::WriteExclusiveRegistrants,
    Kind::ExclusiveAccessRegistrants,
    Kind::WriteExclusiveAll,
    Kind::ExclusiveAccessAll,
];
use Verdict::{Conflict, Done, Full, Invalid, OtherKind};

fn mac(last: u8) -> Registrant {
    Registrant::Mac([2, 0, 0, 0, 0, last])
}

#[test]
fn whether_registrants_outlive_the_process_can_be_said_apart() {
    let free = Reservation::default();
    let kept = after(&free, Change::Persist(true), Done);
    assert!(kept.persists() && !kept.is_empty());
    assert_eq!((set_again(&kept, Change::Persist(true)), kept.generation()), (None, 0));
    assert!(after(&kept, Change::Persist(false), Done).is_empty());
    let session = after(&free, Change::Hold(Hold { by: PORT, life: 1 }), Done);
    after(&session, Change::Persist(true), Conflict);
}

fn set(by: u8, list: &[u8]) -> Change {
    Change::SetList { by: mac(by), list: listed(list) }
}

fn force(list: &[u8]) -> Change {
    Change::ForceList { list: listed(list) }
}

fn listed(list: &[u8]) -> Vec<Listed> {
    list.iter().map(|last| Listed::from([2, 0, 0, 0, 0, *last])).collect()
}

fn guarded(by: Registrant, guard: Guard, key: u64) -> Change {
    Change::Register {
        by: by.into(),
        guard,
        key,
        also: Vec::new(),
        ports: Vec::new(),
        persists: None,
    }
}

fn register(by: Registrant, key: u64) -> Change {
    guarded(by, Guard::Any, key)
}

fn preempt(by: Registrant, key: u64, victims: u64, kind: Kind) -> Change {
    Change::Preempt { by, key, victims, kind, abort: false }
}

#[track_caller]
fn after(state: &Reservation, change: Change, verdict: Verdict) -> Reservation {
    let (next, seen) = state.apply(&change);
    assert_eq!(seen, verdict, "{change:?}");
    assert!(next.is_none() || verdict == Done);
    next.unwrap_or_else(|| Reservation { consequences: Consequences::default(), ..state.clone() })
}

/// These with keys 1, 2 and so on, of whom the first holds.
fn held(kind: Kind, who: &[Registrant]) -> Reservation {
    let mut state = Reservation::default();
    for (id, key) in who.iter().zip(1..) {
        state = after(&state, register(*id, key), Done);
    }
    after(&state, Change::Reserve { by: who[0], key: 1, kind }, Done)
}

fn may(state: &Reservation, who: Registrant) -> (bool, bool) {
    let allows = |access| state.allows(Some(who), access);
    (allows(Access::Read), allows(Access::Write))
}

fn ids(state: &Reservation) -> Vec<Registrant> {
    state.registrants().iter().map(|one| one.id).collect()
}

fn told(state: &Reservation) -> &[(Registrant, Told)] {
    &state.consequences().told
}

#[test]
fn the_list_of_aoe_set_force_read_release() {
    let free = Reservation::default();
    assert_eq!(may(&free, mac(1)), (true, true));
    let one = after(&free, set(1, &[1]), Done);
    assert_eq!((may(&one, mac(1)), may(&one, mac(2))), ((true, true), (false, false)));
    assert_eq!(one.key_of(mac(1)), Some(0x0200_0000_0001));
    let same = after(&one, set(2, &[2]), Conflict);
    assert_eq!(same, one);
    let both = after(&one, set(1, &[1, 2, 1]), Done);
    assert_eq!(ids(&both), [mac(1), mac(2)]);
    let forced = after(&both, force(&[3]), Done);
    assert_eq!((may(&forced, mac(1)), may(&forced, mac(3))), ((false, false), (true, true)));
    let released = after(&forced, set(3, &[]), Done);
    assert!(released.is_empty());
    assert_eq!(released.generation(), 4);
}

#[test]
fn who_asks_again_after_a_lost_answer_is_answered_as_before() {
    // The list need not name the asker.
    let given_away = after(&Reservation::default(), set(1, &[2]), Done);
    assert_eq!(set_again(&given_away, set(1, &[2])), None);
    after(&given_away, set(1, &[1]), Conflict);
    let free = after(&given_away, set(2, &[]), Done);
    assert_eq!(set_again(&free, set(2, &[])), None);
    assert_eq!(after(&free, force(&[]), Done).generation(), free.generation());
}

fn set_again(state: &Reservation, change: Change) -> Option<Reservation> {
    let (next, verdict) = state.apply(&change);
    assert_eq!(verdict, Done);
    next
}

#[test]
fn a_list_of_aoe_beside_registrants_of_other_protocols() {
    let registered = after(&Reservation::default(), register(HOST, 5), Done);
    // They stay, and share in what the list holds.
    let shared = after(&registered, set(1, &[1]), Done);
    assert_eq!(ids(&shared), [HOST, mac(1)]);
    assert_eq!((may(&shared, HOST), may(&shared, PORT)), ((true, true), (false, false)));
    let released = after(&shared, set(1, &[]), Done);
    assert_eq!((ids(&released), released.is_free()), (vec![HOST], true));
    let expected = [(HOST, Told::ReservationReleased), (mac(1), Told::RegistrationPreempted)];
    assert_eq!(told(&released), expected);
    // What they hold is theirs, also of who is registered, until force takes it.
    for kind in ALL_KINDS {
        let state = held(kind, &[HOST]);
        after(&state, set(1, &[1]), Conflict);
        after(&state, set(1, &[]), Conflict);
        let forced = after(&state, force(&[1]), Done);
        assert_eq!(ids(&forced), [mac(1)]);
        assert_eq!(may(&forced, HOST), (false, false));
        assert_eq!(told(&forced), [(HOST, Told::RegistrationPreempted)]);
    }
    let among = held(Kind::WriteExclusiveRegistrants, &[HOST, mac(1)]);
    after(&among, set(1, &[1]), Conflict);
}

#[test]
fn registering_as_scsi_and_as_nvme_have_it() {
    let free = Reservation::default();
    let one = after(&free, guarded(HOST, Guard::Is(0), 5), Done);
    assert_eq!((one.key_of(HOST), one.generation()), (Some(5), 1));
    let cases = [
        // Not registered, and then with key 5.
        (Guard::Is(0), Done, Conflict),
        (Guard::Is(5), Conflict, Done),
        (Guard::Is(6), Conflict, Conflict),
        (Guard::Any, Done, Done),
        (Guard::New, Done, Conflict),
        (Guard::Registered(None), Conflict, Done),
        (Guard::Registered(Some(5)), Conflict, Done),
        (Guard::Registered(Some(6)), Conflict, Conflict),
    ];
    for (guard, stranger, registrant) in cases {
        let expected = (stranger == Done).then_some(7);
        assert_eq!(after(&free, guarded(HOST, guard, 7), stranger).key_of(HOST), expected);
        let expected = if registrant == Done { 7 } else { 5 };
        let next = after(&one, guarded(HOST, guard, 7), registrant);
        assert_eq!(next.key_of(HOST), Some(expected), "{guard:?}");
        assert_eq!(next.generation(), 1 + u64::from(registrant == Done));
        let next = after(
            &one,
            guarded(HOST, guard, 0),
            if guard == Guard::New { Conflict } else { registrant },
        );
        assert_eq!(next.is_registered(HOST), registrant != Done, "{guard:?}");
    }
    // The same key once more counts; to leave without having been there does nothing.
    assert_eq!(after(&one, guarded(HOST, Guard::New, 5), Done).generation(), 2);
    assert_eq!(set_again(&one, guarded(OTHER, Guard::Is(0), 0)), None);
}

#[test]
fn others_are_registered_with_who_registers_or_nobody_is() {
    let also = |by: Registrant, key, also: &[Registrant]| Change::Register {
        by: by.into(),
        guard: Guard::Is(0),
        key,
        also: also.iter().map(|id| (*id).into()).collect(),
        ports: Vec::new(),
        persists: None,
    };
    let both = after(&Reservation::default(), also(HOST, 4, &[PORT, OTHER]), Done);
    assert_eq!(ids(&both), [HOST, PORT, OTHER]);
    assert!(both.registrants().iter().all(|one| one.key == 4));
    after(&both, also(mac(1), 4, &[PORT]), Conflict);
    after(&both, also(mac(1), 0, &[mac(2)]), Invalid);
    let registered = Change::Register {
        by: HOST.into(),
        guard: Guard::Is(4),
        key: 5,
        also: vec![mac(1).into()],
        ports: Vec::new(),
        persists: None,
    };
    after(&both, registered, Invalid);
    let many: Vec<Registrant> = (0..=255).map(|at| Registrant::NvmeHost([at; 16])).collect();
    after(&Reservation::default(), also(PORT, 4, &many), Full);
    let most = after(&Reservation::default(), also(PORT, 4, &many[1..]), Done);
    assert_eq!(most.registrants().len(), REGISTRANTS_MAX);
    after(&most, register(mac(1), 1), Full);
    after(&most, register(PORT, 1), Done);
}

#[test]
fn a_host_registers_at_all_ports_at_once_whatever_it_was_there() {
    let at_all = |guard, key, ports: &[Registrant]| Change::Register {
        by: PORT.into(),
        guard,
        key,
        also: Vec::new(),
        ports: ports.iter().map(|id| (*id).into()).collect(),
        persists: None,
    };
    let keys = |of: &Reservation| of.registrants().iter().map(|one| one.key).collect::<Vec<_>>();
    let one = after(&Reservation::default(), register(OTHER, 3), Done);
    let both = after(&one, at_all(Guard::Is(0), 4, &[OTHER, HOST]), Done);
    assert_eq!((ids(&both), keys(&both)), (vec![OTHER, PORT, HOST], vec![4, 4, 4]));
    after(&both, at_all(Guard::Is(0), 5, &[OTHER]), Conflict);
    // It leaves by all ports, also where it is not there by the one through which it asks.
    let left = after(&both, guarded(PORT, Guard::Is(4), 0), Done);
    assert_eq!(ids(&left), [OTHER, HOST]);
    let gone = after(&left, at_all(Guard::Is(0), 0, &[OTHER, HOST]), Done);
    assert_eq!(ids(&gone), []);
    assert_eq!(set_again(&gone, at_all(Guard::Is(0), 0, &[OTHER])), None);
}

#[test]
fn who_holds_and_leaves_holds_no_more() {
    for kind in ALL_KINDS {
        let state = held(kind, &[HOST, PORT, mac(1)]);
        let left = after(&state, register(HOST, 0), Done);
        assert_eq!(left.kind(), kind.is_all().then_some(kind));
        let is_told = kind.is_shared() && !kind.is_all();
        let expected = [PORT, mac(1)].map(|id| (id, Told::ReservationReleased));
        assert_eq!(told(&left), if is_told { &expected[..] } else { &[] }, "{kind:?}");
        let other = after(&state, register(PORT, 0), Done);
        assert_eq!((other.kind(), told(&other)), (Some(kind), &[][..]));
        let last = after(&after(&left, register(PORT, 0), Done), register(mac(1), 0), Done);
        assert!(last.is_empty(), "{last}");
    }
}

#[test]
fn reserving_is_for_registrants_with_their_key_and_one_at_a_time() {
    let both =
        after(&after(&Reservation::default(), register(HOST, 1), Done), register(PORT, 2), Done);
    for kind in ALL_KINDS {
        let reserve = |by, key, kind| Change::Reserve { by, key, kind };
        after(&both, reserve(OTHER, 0, kind), Conflict);
        after(&both, reserve(HOST, 2, kind), Conflict);
        let state = after(&both, reserve(HOST, 1, kind), Done);
        assert_eq!((state.kind(), state.generation()), (Some(kind), 2));
        assert_eq!(set_again(&state, reserve(HOST, 1, kind)), None);
        let second = state.apply(&reserve(PORT, 2, kind));
        assert_eq!(second, (None, if kind.is_all() { Done } else { Conflict }));
        for other in ALL_KINDS.into_iter().filter(|other| *other != kind) {
            after(&state, reserve(HOST, 1, other), Conflict);
            after(&state, Change::Release { by: HOST, key: 1, kind: other }, OtherKind);
        }
        after(&state, Change::Release { by: HOST, key: 2, kind }, Conflict);
        after(&state, Change::Release { by: OTHER, key: 0, kind }, Conflict);
        let released = after(&state, Change::Release { by: HOST, key: 1, kind }, Done);
        assert_eq!((released.kind(), released.generation()), (None, 2));
        let expected = [(PORT, Told::ReservationReleased)];
        assert_eq!(told(&released), if kind.is_shared() { &expected[..] } else { &[] });
        assert_eq!(set_again(&released, Change::Release { by: HOST, key: 1, kind }), None);
        // Who does not hold releases nothing, and is told that all is well.
        let (next, verdict) = state.apply(&Change::Release { by: PORT, key: 2, kind });
        assert_eq!((next.is_some(), verdict), (kind.is_all(), Done));
    }
}

#[test]
fn clearing_ends_everything() {
    for kind in ALL_KINDS {
        let state = held(kind, &[HOST, PORT, mac(1)]);
        after(&state, Change::Clear { by: PORT, key: 1 }, Conflict);
        after(&state, Change::Clear { by: OTHER, key: 0 }, Conflict);
        let cleared = after(&state, Change::Clear { by: PORT, key: 2 }, Done);
        assert!(cleared.is_empty() && cleared.generation() == 4);
        let expected = [HOST, mac(1)].map(|id| (id, Told::ReservationPreempted));
        assert_eq!(told(&cleared), expected);
    }
}

#[test]
fn preempting_the_holder_takes_over_on_every_protocol() {
    for old in ALL_KINDS.into_iter().filter(|kind| !kind.is_all()) {
        for kind in ALL_KINDS {
            let mut state = held(old, &[HOST, PORT, mac(1)]);
            // Somebody else with the key of the holder.
            state = after(&state, register(OTHER, 1), Done);
            after(&state, preempt(PORT, 1, 1, kind), Conflict);
            after(&state, preempt(PORT, 2, 0, kind), Invalid);
            after(&state, preempt(PORT, 2, 99, kind), Conflict);
            let next = after(&state, preempt(PORT, 2, 1, kind), Done);
            assert_eq!((next.kind(), ids(&next)), (Some(kind), vec![PORT, mac(1)]));
            assert!(next.is_holder(PORT) && next.is_holder(mac(1)) == kind.is_all());
            let mut expected = Vec::new();
            if old != kind {
                expected.push((mac(1), Told::ReservationReleased));
            }
            expected.extend([HOST, OTHER].map(|id| (id, Told::RegistrationPreempted)));
            assert_eq!(told(&next), expected);
            assert!(next.consequences().ended.is_empty());
        }
    }
}

#[test]
fn preempting_who_does_not_hold_ends_registrations_alone() {
    for held_as in ALL_KINDS {
        let state = held(held_as, &[HOST, PORT, mac(1), OTHER]);
        let victim = 0x0200_0000_0001;
        let state = after(&state, register(mac(1), victim), Done);
        let change = Change::Preempt {
            by: HOST,
            key: 1,
            victims: victim,
            kind: Kind::WriteExclusive,
            abort: true,
        };
        let next = after(&state, change, Done);
        assert_eq!((next.kind(), ids(&next)), (Some(held_as), vec![HOST, PORT, OTHER]));
        assert_eq!(told(&next), [(mac(1), Told::RegistrationPreempted)]);
        assert_eq!(next.consequences().ended, [mac(1)]);
        // By its own key: it stays.
        let own = after(&state, preempt(PORT, 2, 2, Kind::WriteExclusive), Done);
        assert!(own.is_registered(PORT) && own.kind() == Some(held_as));
    }
    let nothing_held =
        after(&after(&Reservation::default(), register(HOST, 1), Done), register(PORT, 2), Done);
    after(&nothing_held, preempt(HOST, 1, 0, Kind::WriteExclusive), Invalid);
    let next = after(&nothing_held, preempt(HOST, 1, 2, Kind::WriteExclusive), Done);
    assert_eq!((ids(&next), next.kind()), (vec![HOST], None));
}

#[test]
fn where_all_hold_key_0_preempts_all_others() {
    for old in [Kind::WriteExclusiveAll, Kind::ExclusiveAccessAll] {
        for kind in ALL_KINDS {
            let state = held(old, &[HOST, PORT, mac(1)]);
            let next = after(&state, preempt(PORT, 2, 0, kind), Done);
            assert_eq!((ids(&next), next.kind()), (vec![PORT], Some(kind)));
            assert!(next.is_holder(PORT));
            assert_eq!(told(&next), [HOST, mac(1)].map(|id| (id, Told::RegistrationPreempted)));
        }
    }
}

#[test]
fn what_is_held_is_handed_over() {
    let hand = |by, key, to: Registrant, to_key, unregister| Change::Move {
        by,
        key,
        to: to.into(),
        to_key,
        unregister,
        persists: true,
    };
    for kind in ALL_KINDS {
        let state = held(kind, &[HOST, PORT]);
        if kind.is_all() {
            after(&state, hand(HOST, 1, OTHER, 9, false), Conflict);
            continue;
        }
        after(&state, hand(PORT, 2, OTHER, 9, false), Conflict);
        after(&state, hand(HOST, 2, OTHER, 9, false), Conflict);
        after(&state, hand(HOST, 1, OTHER, 0, false), Invalid);
        after(&state, hand(HOST, 1, HOST, 9, false), Invalid);
        let next = after(&state, hand(HOST, 1, OTHER, 9, true), Done);
        assert_eq!((ids(&next), next.kind()), (vec![PORT, OTHER], Some(kind)));
        assert!(next.is_holder(OTHER) && next.persists() && told(&next).is_empty());
        let next = after(&state, hand(HOST, 1, PORT, 9, false), Done);
        assert_eq!((next.key_of(PORT), next.is_holder(PORT)), (Some(9), true));
        assert!(next.is_registered(HOST));
    }
    let free = after(&Reservation::default(), register(HOST, 1), Done);
    after(&free, hand(HOST, 1, OTHER, 9, false), Conflict);
}

#[test]
fn a_hold_is_kept_from_what_persists_and_ends_with_its_own_life() {
    let mine = Hold { by: PORT, life: 4 };
    let free = Reservation::default();
    let state = after(&free, Change::Hold(mine), Done);
    assert_eq!(set_again(&state, Change::Hold(mine)), None);
    after(&state, Change::Hold(Hold { by: HOST, life: 4 }), Conflict);
    let persistent = [
        set(1, &[1]),
        register(PORT, 1),
        register(HOST, 1),
        Change::Clear { by: PORT, key: 0 },
        preempt(PORT, 0, 1, Kind::WriteExclusive),
    ];
    for change in persistent {
        after(&state, change, Conflict);
    }
    assert_eq!(set_again(&state, Change::EndHold(Hold { life: 3, ..mine })), None);
    assert!(after(&state, Change::EndHold(mine), Done).is_free());
    assert!(after(&state, Change::ResetHold, Done).is_free());
    // A new life of the same nexus has it on.
    let later = after(&state, Change::Hold(Hold { life: 5, ..mine }), Done);
    assert_eq!(set_again(&later, Change::EndHold(mine)), None);
    let forced = after(&state, force(&[1]), Done);
    assert_eq!((forced.hold(), ids(&forced)), (None, vec![mac(1)]));
    assert!(after(&state, force(&[]), Done).is_free());
    assert_eq!(set_again(&free, Change::EndHold(mine)), None);
    assert_eq!(set_again(&free, Change::ResetHold), None);
    // And where somebody is registered there is none.
    let registered = after(&free, register(HOST, 1), Done);
    after(&registered, Change::Hold(mine), Conflict);
    after(&registered, Change::EndHold(mine), Conflict);
}

#[test]
fn the_last_who_said_so_decides_whether_registrants_last() {
    let said = |by: Registrant, persists| Change::Register {
        by: by.into(),
        guard: Guard::Any,
        key: 3,
        also: Vec::new(),
        ports: Vec::new(),
        persists,
    };
    let mut state = after(&Reservation::default(), said(PORT, Some(true)), Done);
    assert!(state.persists());
    state = after(&state, said(HOST, None), Done);
    assert_eq!(ids(&state.lasting()), [PORT, HOST]);
    state = after(&state, said(HOST, Some(false)), Done);
    assert!(ids(&state.lasting()).is_empty());
}

const WEB: Registrant = Registrant::Host([1; 16]);

fn web() -> Applicant {
    Applicant { id: WEB, name: Some("web1".into()) }
}

/// A list of stations of the named host, and of one that nobody named.
fn with_web(own: &[u8], other: Option<u8>) -> Vec<Listed> {
    let mine = |last: &u8| Listed { mac: [2, 0, 0, 0, 1, *last], host: Some(web()) };
    own.iter().map(mine).chain(listed(other.as_slice())).collect()
}

fn stations(state: &Reservation) -> Vec<[u8; 6]> {
    state.holders().flat_map(Registration::listed).collect()
}

#[test]
fn a_named_host_may_say_again_by_another_port_under_which_key_it_is_registered() {
    let free = Reservation::default();
    let once = after(&free, guarded(WEB, Guard::Is(0), 5), Done);
    let twice = after(&once, guarded(WEB, Guard::Is(0), 5), Done);
    assert_eq!((twice.registrants().len(), twice.key_of(WEB)), (1, Some(5)));
    after(&once, guarded(WEB, Guard::Is(0), 6), Conflict);
    after(&once, guarded(WEB, Guard::Is(6), 0), Conflict);
    // Whoever has no name has one port.
    let port = after(&free, guarded(PORT, Guard::Is(0), 5), Done);
    after(&port, guarded(PORT, Guard::Is(0), 5), Conflict);
}

#[test]
fn a_list_names_the_stations_of_a_named_host_and_it_is_one_registrant() {
    let list = Change::SetList { by: WEB, list: with_web(&[1, 2], Some(9)) };
    let state = after(&Reservation::default(), list.clone(), Done);
    assert_eq!(ids(&state), [WEB, mac(9)]);
    assert_eq!(state.key_of(WEB), Some(0x0200_0000_0101), "that of the first");
    assert_eq!(stations(&state), [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 0, 9]]);
    assert_eq!(may(&state, WEB), (true, true));
    assert_eq!(set_again(&state, list), None);
    assert_eq!(state.to_string().parse::<Reservation>().as_ref(), Ok(&state));
    assert_eq!(ids(&state.lasting()), [WEB, mac(9)], "lists last");
    // A list without it takes what the list gave.
    let less = after(&state, Change::SetList { by: WEB, list: with_web(&[], Some(9)) }, Done);
    assert_eq!((ids(&less), told(&less).len()), (vec![mac(9)], 1));
    let gone = after(
        &state,
        preempt(mac(9), 0x0200_0000_0009, 0x0200_0000_0101, Kind::ExclusiveAccessAll),
        Done,
    );
    assert_eq!(may(&gone, WEB), (false, false));
}

#[test]
fn a_named_host_that_registered_by_itself_stays_when_a_list_leaves_it_out() {
    let free = Reservation::default();
    let state = after(
        &free,
        Change::Register {
            by: web(),
            guard: Guard::Any,
            key: 7,
            also: Vec::new(),
            ports: Vec::new(),
            persists: None,
        },
        Done,
    );
    let state = after(&state, Change::ForceList { list: Vec::new() }, Done);
    assert!(ids(&state).is_empty(), "force takes it");
    let state = after(&state, register(WEB, 7), Done);
    let state = after(&state, Change::SetList { by: WEB, list: with_web(&[1], None) }, Done);
    assert_eq!((state.key_of(WEB), stations(&state).len()), (Some(7), 1), "its own key stays");
    assert_eq!(ids(&state.lasting()), [WEB], "by the list");
    let state = after(&state, Change::SetList { by: WEB, list: Vec::new() }, Done);
    assert_eq!((ids(&state), state.kind()), (vec![WEB], None));
    assert!(state.lasting().registrants().is_empty());
}

#[test]
fn a_session_that_gets_a_name_still_gives_up_what_it_has() {
    let state = after(&Reservation::default(), Change::Hold(Hold { by: PORT, life: 4 }), Done);
    let stays = after(&state, Change::EndHold(Hold { by: WEB, life: 5 }), Done);
    assert!(stays.hold().is_some());
    let over = after(&state, Change::EndHold(Hold { by: WEB, life: 4 }), Done);
    assert!(over.hold().is_none());
}
