//! What each kind lets whom, what lasts, and the text.

use super::*;
use crate::change::key_of_station;

const HOST: Registrant = Registrant::NvmeHost([7; 16]);
const PORT: Registrant = Registrant::ScsiPort([8; 16]);

fn mac(last: u8) -> Registrant {
    Registrant::Mac([2, 0, 0, 0, 0, last])
}

fn state(
    registrants: &[(Registrant, u64)],
    held: Option<(Kind, Option<Registrant>)>,
) -> Reservation {
    let one = |(id, key): &(Registrant, u64)| Registration {
        id: *id,
        name: None,
        key: *key,
        stations: Vec::new(),
    };
    let registrants = registrants.iter().map(one).collect();
    Reservation { generation: 9, registrants, held, ..Reservation::default() }
}

fn may(state: &Reservation, who: Option<Registrant>) -> (bool, bool) {
    assert!(state.hold().is_some() || state.allows(who, Access::Other));
    (state.allows(who, Access::Read), state.allows(who, Access::Write))
}

#[test]
fn each_kind_lets_whom_it_says() {
    let (all, reads, nothing) = ((true, true), (true, false), (false, false));
    let cases = [
        (Kind::WriteExclusive, [all, reads, reads]),
        (Kind::ExclusiveAccess, [all, nothing, nothing]),
        (Kind::WriteExclusiveRegistrants, [all, all, reads]),
        (Kind::ExclusiveAccessRegistrants, [all, all, nothing]),
        (Kind::WriteExclusiveAll, [all, all, reads]),
        (Kind::ExclusiveAccessAll, [all, all, nothing]),
    ];
    for (kind, expected) in cases {
        let holder = (!kind.is_all()).then_some(HOST);
        let state = state(&[(HOST, 0xfeed), (mac(1), 1)], Some((kind, holder)));
        let seen = [HOST, mac(1), mac(2)].map(|who| may(&state, Some(who)));
        assert_eq!(seen, expected, "{kind:?}");
        assert_eq!(may(&state, None), expected[2], "nobody is a stranger");
        assert_eq!((state.kind(), Reservation::default().kind()), (Some(kind), None));
        let holders: Vec<Registrant> = state.holders().map(|one| one.id).collect();
        assert_eq!(holders, if kind.is_all() { vec![HOST, mac(1)] } else { vec![HOST] });
        assert_eq!(state.to_string().parse(), Ok(state));
    }
    assert_eq!(may(&state(&[(HOST, 1)], None), None), all);
}

#[test]
fn the_hold_of_a_session_keeps_everybody_else_from_everything() {
    let hold = Some(Hold { by: PORT, life: 3 });
    let state = Reservation { hold, ..Reservation::default() };
    for access in [Access::Read, Access::Write, Access::Other] {
        assert!(state.allows(Some(PORT), access));
        assert!(!state.allows(Some(HOST), access) && !state.allows(None, access));
    }
    assert!(!state.is_free() && state.lasting().is_free());
}

#[test]
fn who_is_there_again_after_a_restart() {
    let all = [(PORT, 1), (mac(1), 2), (HOST, 3)];
    let held = Some((Kind::WriteExclusive, Some(PORT)));
    let state = |persists, held| Reservation { persists, ..state(&all, held) };
    assert_eq!(state(true, held).lasting(), state(true, held));
    let left = state(false, held).lasting();
    assert_eq!(left.registrants().iter().map(|one| one.id).collect::<Vec<_>>(), [mac(1)]);
    assert_eq!(left.kind(), None, "its holder is gone");
    let shared = state(false, Some((Kind::ExclusiveAccessAll, None)));
    assert_eq!(shared.lasting().kind(), Some(Kind::ExclusiveAccessAll));
    assert!(!shared.lasting().allows(Some(HOST), Access::Read));
    let strangers = Reservation { registrants: shared.registrants[..1].to_vec(), ..shared };
    assert!(strangers.lasting().is_empty() && !strangers.is_empty());
}

#[test]
fn the_text_is_read_back_and_nonsense_is_refused() {
    let mut two = state(
        &[(mac(1), key_of_station([2, 0, 0, 0, 0, 1])), (PORT, 0xfeed)],
        Some((Kind::ExclusiveAccessAll, None)),
    );
    two.persists = true;
    two.registrants[1].name = Some("iqn.a:b,i,0x80".into());
    let port = "08".repeat(16);
    let text = format!(
        "generation 9 persistent held exclusive-access-all by all: mac:020000000001=20000000001 scsi:{port}=feed@iqn.a:b,i,0x80"
    );
    assert_eq!(two.to_string(), text);
    assert_eq!(text.parse(), Ok(two));
    assert_eq!("generation 0 free:".parse(), Ok(Reservation::default()));
    // Lists of AoE were once stored without keys.
    let older: Reservation =
        "generation 1 held exclusive-access-all by all: mac:020000000001=0".parse().unwrap();
    assert_eq!(older.key_of(mac(1)), Some(0x0200_0000_0001));
    for bad in [
        "",
        "generation 1",
        "generation x free:",
        "generation 1 held by all:",
        "generation 1 held exclusive-access-all by mac:1:",
        "generation 1 held exclusive-access-all by all:",
        "generation 1 held exclusive-access by all: mac:020000000001=1",
        "generation 1 held exclusive-access by mac:020000000002: mac:020000000001=1",
        "generation 1 persistently free:",
        "generation 1 free: mac:020000000001",
        "generation 1 free: mac:0200000000\u{e9}=0",
        "generation 1 free: bus:020000000001=0",
        "generation 1 free: mac:02=0",
        "generation 1 free: nvme:07070707070707070707070707070707=0",
    ] {
        assert!(bad.parse::<Reservation>().is_err(), "{bad}");
    }
}
