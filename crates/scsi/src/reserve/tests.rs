//! Reservations in SCSI's words: what is asked for, what is refused, what is told.

use reservation::Value;

use super::*;
use crate::fixtures::unit;

const KEY: u64 = 0x1122_3344;
const PORT: u16 = 1;

fn port(number: u8) -> Applicant {
    let name = format!("iqn.2026-11.net.plateway:h{number},i,0x80000000000{number}");
    Applicant { id: Registrant::ScsiPort([number; 16]), name: Some(name.into()) }
}

fn transport(number: u8) -> TransportId {
    TransportId::iscsi(&format!("iqn.2026-11.net.plateway:h{number}"), [0x80, 0, 0, 0, 0, number])
}

/// The port of a TransportID of [`transport`], at a port of the target.
fn named(id: Option<&TransportId>, at: u16) -> Option<Applicant> {
    let own = transport(1);
    let id = id.unwrap_or(&own);
    let found =
        (1..=9).map(port).find(|one| one.name.as_deref().map(str::as_bytes) == Some(&id.name))?;
    Some(if at == PORT { found } else { elsewhere(found, at) })
}

/// The same initiator port at another port of the target.
fn elsewhere(one: Applicant, at: u16) -> Applicant {
    let Registrant::ScsiPort(mut id) = one.id else { panic!("{one:?} is a SCSI port") };
    id[15] = at as u8;
    let name = one.name.map(|name| format!("{name}{AT_PORT}{at:04x}").into());
    Applicant { id: Registrant::ScsiPort(id), name }
}

fn out(action: ServiceAction, kind: u8, data: &[u8]) -> Result<Change, Sense> {
    ask(&Cdb::persistent_reserve_out(action, kind, data.len() as u32), data)
}

fn ask(cdb: &Cdb, data: &[u8]) -> Result<Change, Sense> {
    crate::judge(cdb, &unit())?;
    let (by, ports) = (&port(1), &[PORT, PORT + 1]);
    reserve_out(cdb, data, &Asker { by, relative_port: PORT, ports, port: named })
}

fn list(key: u64, action_key: u64) -> ReserveOut {
    ReserveOut { key, action_key, ..ReserveOut::default() }
}

const REGISTER: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
const IGNORE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE;
const RESERVE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE;
const RELEASE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_RELEASE;
const CLEAR: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_CLEAR;
const PREEMPT: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT;
const ABORT: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT;
const MOVE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE;

fn is_wrong_length(judged: Result<Change, Sense>) -> bool {
    judged.is_err_and(|sense| sense.code == AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
}

#[test]
fn each_service_action_is_its_change() {
    let by = port(1).id;
    let data = list(KEY, 7).emit();
    let register = |guard, persists| Change::Register {
        by: port(1),
        guard,
        key: 7,
        also: Vec::new(),
        ports: Vec::new(),
        persists: Some(persists),
    };
    assert_eq!(out(REGISTER, 0, &data), Ok(register(Guard::Is(KEY), false)));
    let stays = ReserveOut { persist: true, ..list(KEY, 7) };
    assert_eq!(out(IGNORE, 0, &stays.emit()), Ok(register(Guard::Any, true)));
    for (of, kind) in KINDS {
        assert_eq!(out(RESERVE, of.0, &data), Ok(Change::Reserve { by, key: KEY, kind }));
        assert_eq!(out(RELEASE, of.0, &data), Ok(Change::Release { by, key: KEY, kind }));
        for (action, abort) in [(PREEMPT, false), (ABORT, true)] {
            let change = Change::Preempt { by, key: KEY, victims: 7, kind, abort };
            assert_eq!(out(action, of.0, &data), Ok(change));
        }
    }
    assert_eq!(out(CLEAR, 0, &data), Ok(Change::Clear { by, key: KEY }));
}

#[test]
fn ports_are_named_by_their_transport_at_this_port_or_at_all() {
    let also = Some(vec![transport(2), transport(3)]);
    let with = ReserveOut { also, ..list(0, 7) };
    let Ok(Change::Register { also, .. }) = out(REGISTER, 0, &with.emit()) else {
        panic!("it registers")
    };
    assert_eq!(also, [port(2), port(3)]);
    let strange = ReserveOut { also: Some(vec![transport(2), transport(77)]), ..list(0, 7) };
    assert_eq!(out(REGISTER, 0, &strange.emit()), Err(Sense::invalid_parameter(28)));
    let everywhere = ReserveOut { also: Some(vec![transport(2)]), all_ports: true, ..list(0, 7) };
    let Ok(Change::Register { also, ports, .. }) = out(REGISTER, 0, &everywhere.emit()) else {
        panic!("it registers")
    };
    assert_eq!(also, [port(2), elsewhere(port(2), PORT + 1)]);
    assert_eq!(ports, [elsewhere(port(1), PORT + 1)]);
    // Only REGISTER names others so.
    let cdb = Cdb::persistent_reserve_out(CLEAR, 0, 24);
    assert_eq!(ask(&cdb, &with.emit()), Err(Sense::invalid_parameter(20)));

    let to = RegisterAndMove {
        key: KEY,
        action_key: 9,
        unregister: true,
        persist: true,
        relative_port: PORT,
        to: transport(4),
    };
    let moved = Change::Move {
        by: port(1).id,
        key: KEY,
        to: port(4),
        to_key: 9,
        unregister: true,
        persists: true,
    };
    assert_eq!(out(MOVE, 0, &to.emit()), Ok(moved));
    let other = RegisterAndMove { relative_port: PORT + 1, ..to.clone() };
    let Ok(Change::Move { to: moved, .. }) = out(MOVE, 0, &other.emit()) else {
        panic!("it moves")
    };
    assert_eq!(moved, elsewhere(port(4), PORT + 1));
    let nowhere = RegisterAndMove { relative_port: PORT + 2, ..to.clone() };
    assert_eq!(out(MOVE, 0, &nowhere.emit()), Err(Sense::invalid_parameter(18)));
    let unknown = RegisterAndMove { to: transport(77), ..to };
    assert_eq!(out(MOVE, 0, &unknown.emit()), Err(Sense::invalid_parameter(24)));
}

#[test]
fn a_list_is_as_long_as_the_command_and_itself_say() {
    for action in [REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, ABORT, IGNORE, MOVE] {
        for length in [0, 8, 23] {
            assert!(is_wrong_length(out(action, 1, &vec![0; length])), "{:x} {length}", action.0);
        }
        let longest = Cdb::persistent_reserve_out(action, 1, RESERVE_LIST_MAX + 1);
        let sense = crate::judge(&longest, &unit()).expect_err("too long");
        assert_eq!(sense.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    }
    assert!(is_wrong_length(out(CLEAR, 0, &[0; 25])));
    assert!(is_wrong_length(out(REGISTER, 0, &[0; 25])), "no TransportIDs, and more than 24 bytes");
    let with = ReserveOut { also: Some(vec![transport(2)]), ..list(0, 7) }.emit();
    let whole = Cdb::persistent_reserve_out(REGISTER, 0, with.len() as u32);
    for sent in 0..with.len() {
        assert!(is_wrong_length(out(REGISTER, 0, &with[..sent])), "{sent} bytes");
        assert!(is_wrong_length(ask(&whole, &with[..sent])), "{sent} bytes of more");
    }
    for said in [with.len() as u32 - 27, u32::MAX] {
        let mut longer = with.clone();
        longer[24..28].copy_from_slice(&said.to_be_bytes());
        assert!(is_wrong_length(out(REGISTER, 0, &longer)), "{said}");
    }
    let mut cut = with.clone();
    cut[24..28].copy_from_slice(&20_u32.to_be_bytes());
    assert_eq!(out(REGISTER, 0, &cut), Err(Sense::invalid_parameter(28)), "half a TransportID");
    let mut none = with;
    none[24..28].fill(0);
    assert!(out(REGISTER, 0, &none).is_ok());

    let to = RegisterAndMove {
        key: KEY,
        action_key: 9,
        unregister: false,
        persist: false,
        relative_port: PORT,
        to: transport(4),
    };
    let to = to.emit();
    for sent in 0..to.len() {
        assert!(is_wrong_length(out(MOVE, 0, &to[..sent])), "{sent} bytes");
    }
    for said in [0, 20, 26] {
        let mut odd = to.clone();
        odd[23] = said;
        assert!(is_wrong_length(out(MOVE, 0, &odd)), "{said}");
    }
}

#[test]
fn other_scopes_types_and_service_actions_are_invalid() {
    let data = list(KEY, 7).emit();
    for action in [RESERVE, RELEASE, PREEMPT, ABORT] {
        for kind in [0, 2, 4, 9, 15] {
            assert_eq!(out(action, kind, &data), Err(Sense::invalid_field(2, 3)), "{kind}");
        }
        let mut cdb = Cdb::persistent_reserve_out(action, 1, 24);
        cdb.0[2] |= 0x10;
        assert_eq!(ask(&cdb, &data), Err(Sense::invalid_field(2, 7)));
    }
    for (opcode, known) in [(0x5e, 4), (0x5f, 8)] {
        for action in known..32 {
            let mut cdb = Cdb::persistent_reserve_out(REGISTER, 0, 24);
            (cdb.0[0], cdb.0[1]) = (opcode, action);
            assert_eq!(crate::judge(&cdb, &unit()), Err(Sense::invalid_field(1, 4)));
        }
    }
}

#[test]
fn a_unit_is_reserved_whole_and_for_who_asks() {
    for (opcode, work, third) in [
        (OpCode::RESERVE_6, Work::Hold, 0x1f),
        (OpCode::RELEASE_6, Work::EndHold, 0x1f),
        (OpCode::RESERVE_10, Work::Hold, 0x13),
        (OpCode::RELEASE_10, Work::EndHold, 0x13),
    ] {
        let mut cdb = Cdb::new(opcode);
        assert_eq!(crate::judge(&cdb, &unit()), Ok(work));
        assert_eq!(work.access(&cdb), None);
        for bit in (0..5).filter(|bit| third >> bit & 1 == 1) {
            cdb.0[1] = 1 << bit;
            assert_eq!(crate::judge(&cdb, &unit()), Err(Sense::invalid_field(1, 4)), "{opcode}");
        }
    }
}

/// A volume after these changes, each of which is another.
fn after(changes: impl IntoIterator<Item = Change>) -> Reservation {
    changes.into_iter().fold(Reservation::default(), |before, change| {
        before.apply(&change).0.unwrap_or_else(|| panic!("{change:?} changes nothing"))
    })
}

fn register(by: impl Into<Applicant>, key: u64) -> Change {
    let (by, guard) = (by.into(), Guard::Any);
    Change::Register { by, guard, key, also: Vec::new(), ports: Vec::new(), persists: Some(true) }
}

fn tell(action: ServiceAction, reservation: &Reservation) -> Vec<u8> {
    let cdb = Cdb::persistent_reserve_in(action, 4096);
    assert_eq!(crate::judge(&cdb, &unit()), Ok(Work::ReserveIn));
    reserve_in(&cdb, reservation, PORT).expect("it is told")
}

#[test]
fn whoever_is_registered_is_told_by_key_and_by_name() {
    let mac = Registrant::Mac([2, 0, 0, 0, 0, 1]);
    let host = Registrant::NvmeHost([9; 16]);
    let reserve = Change::Reserve { by: host, key: 6, kind: Kind::WriteExclusiveRegistrants };
    let list = Change::SetList { by: mac, list: vec![[2, 0, 0, 0, 0, 1].into()] };
    let held = after([register(port(1), 5), register(host, 6), reserve]);
    let keys = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS, &held);
    let keys = ReservationKeys::parse(&keys).expect("keys");
    assert_eq!((keys.generation, keys.keys), (2, vec![5, 6]));
    let told = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION, &held);
    let told = HeldReservation::parse(&told).expect("a reservation").held;
    assert_eq!(told, Some((6, ReservationType::WRITE_EXCLUSIVE_REGISTRANTS)));
    let status = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS, &held);
    let status = FullStatusList::parse(&status).expect("full status").registrants;
    assert_eq!((status[0].key, status[0].held, status[0].relative_port), (5, None, PORT));
    assert_eq!(status[0].transport, transport(1));
    let far = after([register(elsewhere(port(1), 2), 5)]);
    let far = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS, &far);
    let far = &FullStatusList::parse(&far).expect("full status").registrants[0];
    assert_eq!((&far.transport, far.relative_port), (&transport(1), 2));
    assert_eq!(status[1].held, Some(ReservationType::WRITE_EXCLUSIVE_REGISTRANTS));
    assert_eq!(status[1].transport.protocol, ProtocolId::NONE);
    assert_eq!(status[1].transport.name[7..], [9; 16]);

    // A list of AoE is held by all.
    let listed = after([list, register(port(1), 5)]);
    let told = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION, &listed);
    let told = HeldReservation::parse(&told).expect("a reservation").held;
    assert_eq!(told, Some((0, ReservationType::EXCLUSIVE_ACCESS_ALL)));
    let keys = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS, &listed);
    assert_eq!(ReservationKeys::parse(&keys).expect("keys").keys, [0x0200_0000_0001, 5]);
    let status = tell(ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS, &listed);
    let status = FullStatusList::parse(&status).expect("full status").registrants;
    assert!(status.iter().all(|one| one.held == Some(ReservationType::EXCLUSIVE_ACCESS_ALL)));
    assert_eq!(status[0].transport.name[7..13], [2, 0, 0, 0, 0, 1]);
}

#[test]
fn of_nothing_it_is_told_that_there_is_nothing() {
    let free = Reservation::default();
    for action in [
        ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS,
        ServiceAction::PERSISTENT_RESERVE_IN_READ_RESERVATION,
        ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS,
    ] {
        assert_eq!(tell(action, &free), [0; 8]);
    }
    let short = Cdb::persistent_reserve_in(ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS, 5);
    assert_eq!(reserve_in(&short, &free, PORT), Ok(vec![0; 5]));
}

#[test]
fn what_is_kept_over_a_restart_is_told() {
    let capabilities = |reservation: &Reservation| {
        let bytes = tell(ServiceAction::PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES, reservation);
        ReservationCapabilities::parse(&bytes).expect("capabilities")
    };
    let free = capabilities(&Reservation::default());
    assert!(!free.flags.persistence_active() && !free.flags.compatible_handling());
    assert!(free.flags.persistence_capable() && free.flags.specifies_initiators());
    assert!(free.flags.all_target_ports() && free.flags.types_valid());
    assert_eq!((free.length, free.types), (8, 0xea01));
    assert!(capabilities(&after([register(port(1), 5)])).flags.persistence_active());
}

#[test]
fn a_session_that_has_the_volume_excludes_persistent_reservations() {
    let hold = reservation::Hold { by: port(1).id, life: 1 };
    let held = after([Change::Hold(hold)]);
    let cdb = Cdb::persistent_reserve_in(ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS, 64);
    assert_eq!(reserve_in(&cdb, &held, PORT), Err(CONFLICT));
    let (none, verdict) = held.apply(&register(port(1), 5));
    assert_eq!((none, verdict), (None, Verdict::Conflict));
}

#[test]
fn a_decision_is_a_status_that_hosts_understand() {
    let of = |verdict| status_of_change(&Answer::Decided(verdict, Reservation::default()));
    let code = |(_, sense): Decision| sense.map(|sense| (sense.key, sense.code));
    assert_eq!(of(Verdict::Done), (ScsiStatus::GOOD, None));
    assert_eq!(of(Verdict::Conflict), CONFLICT);
    assert_eq!(status_of_change(&Answer::Busy), (ScsiStatus::BUSY, None));
    let illegal = |code| Some((SenseKey::ILLEGAL_REQUEST, AdditionalSense(code)));
    assert_eq!(code(of(Verdict::OtherKind)), illegal(0x2604));
    assert_eq!(code(of(Verdict::Invalid)), illegal(0x2600));
    assert_eq!(code(of(Verdict::Full)), illegal(0x5504));
    assert_eq!(code(status_of_change(&Answer::Gone)), illegal(0x2500));
    let failed = Some((SenseKey::HARDWARE_ERROR, AdditionalSense(0x4400)));
    assert_eq!(code(status_of_change(&Answer::NotStored)), failed);
}

#[test]
fn others_are_told_by_a_unit_attention() {
    for (told, code) in [
        (Told::RegistrationPreempted, 0x2a05),
        (Told::ReservationReleased, 0x2a04),
        (Told::ReservationPreempted, 0x2a03),
    ] {
        assert_eq!(told_as(told), Sense::attention(AdditionalSense(code)));
    }
}
