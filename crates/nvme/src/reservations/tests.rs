//! What each command asks for, and why it is refused: a case for each sentence of the specification
//! that says so.

use super::*;
use wire::nvme::command::SglDescriptor;

const HOST: Registrant = Registrant::NvmeHost([7; 16]);
const KIND: ReservationType = ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS;

fn keys(current: u64, other: u64) -> Vec<u8> {
    ReservationKeys { current, other }.emit().to_vec()
}

fn asked(command: Command, data: &[u8]) -> Result<Change, Status> {
    match judge(&command)? {
        Work::Reserve(length) => assert_eq!(length, command.sgl().length),
        work => panic!("{work:?}"),
    }
    change(&command, data, Some(HOST.into()))
}

fn register(action: RegisterAction) -> Command {
    Command::reservation_register(1, action, ChangePersist::KEEP)
}

fn registered(guard: Guard, key: u64, persists: Option<bool>) -> Result<Change, Status> {
    Ok(Change::Register {
        by: HOST.into(),
        guard,
        key,
        also: Vec::new(),
        ports: Vec::new(),
        persists,
    })
}

#[test]
fn register_asks_for_what_its_action_says() {
    let new = register(RegisterAction::REGISTER);
    assert_eq!(asked(new, &keys(3, 5)), registered(Guard::New, 5, None));
    assert_eq!(asked(new.with_ignored_key(), &keys(3, 5)), registered(Guard::New, 5, None));
    let end = register(RegisterAction::UNREGISTER);
    let guard = Guard::Registered(Some(3));
    assert_eq!(asked(end, &keys(3, 5)), registered(guard, 0, None));
    let guard = Guard::Registered(None);
    assert_eq!(asked(end.with_ignored_key(), &keys(3, 0)), registered(guard, 0, None));
    let replace = register(RegisterAction::REPLACE);
    let guard = Guard::Registered(Some(3));
    assert_eq!(asked(replace, &keys(3, 5)), registered(guard, 5, None));
    assert_eq!(asked(replace.with_ignored_key(), &keys(3, 5)), registered(Guard::Any, 5, None));
    for nobody in [new, replace, replace.with_ignored_key()] {
        assert_eq!(asked(nobody, &keys(3, 0)), Err(INVALID), "nobody has the key 0");
    }
}

#[test]
fn register_says_whether_registrants_outlive_the_process() {
    let cases = [
        (ChangePersist::KEEP, None),
        (ChangePersist::CLEAR, Some(false)),
        (ChangePersist::SET, Some(true)),
    ];
    for (cptpl, persists) in cases {
        let command = Command::reservation_register(1, RegisterAction::REGISTER, cptpl);
        assert_eq!(asked(command, &keys(0, 5)), registered(Guard::New, 5, persists));
    }
    let reserved = Command::reservation_register(1, RegisterAction::REGISTER, ChangePersist(1));
    assert_eq!(asked(reserved, &keys(0, 5)), Err(INVALID));
}

#[test]
fn acquire_and_release_ask_for_what_their_actions_say() {
    let (by, kind) = (HOST, Kind::ExclusiveAccessRegistrants);
    let acquire = |action| asked(Command::reservation_acquire(1, action, KIND), &keys(3, 5));
    assert_eq!(acquire(AcquireAction::ACQUIRE), Ok(Change::Reserve { by, key: 3, kind }));
    for (action, abort) in
        [(AcquireAction::PREEMPT, false), (AcquireAction::PREEMPT_AND_ABORT, true)]
    {
        let preempt = Change::Preempt { by, key: 3, victims: 5, kind, abort };
        assert_eq!(acquire(action), Ok(preempt));
    }
    let release = Command::reservation_release(1, ReleaseAction::RELEASE, KIND);
    assert_eq!(asked(release, &keys(3, 0)[..8]), Ok(Change::Release { by, key: 3, kind }));
    let clear = Command::reservation_release(1, ReleaseAction::CLEAR, ReservationType::NONE);
    assert_eq!(asked(clear, &keys(3, 0)[..8]), Ok(Change::Clear { by, key: 3 }));
    // Linux sends 16 bytes with each.
    let long = clear.with_sgl(SglDescriptor::transport(16));
    assert_eq!(asked(long, &keys(3, 9)), Ok(Change::Clear { by, key: 3 }));
}

#[test]
fn what_is_reserved_is_an_invalid_field() {
    let acquire = |action, kind| Command::reservation_acquire(1, AcquireAction(action), kind);
    let release = |action, kind| Command::reservation_release(1, ReleaseAction(action), kind);
    let commands = [
        register(RegisterAction(3)),
        acquire(3, KIND),
        acquire(0, ReservationType::NONE),
        acquire(1, ReservationType(7)),
        acquire(0, KIND).with_ignored_key(),
        acquire(2, KIND).with_ignored_key(),
        release(2, KIND),
        release(0, ReservationType(7)),
        release(0, KIND).with_ignored_key(),
        release(1, KIND).with_ignored_key(),
    ];
    for command in commands {
        assert_eq!(judge(&command), Err(INVALID), "{}", command.describe(false));
    }
}

#[test]
fn data_of_another_length_are_refused() {
    let wrong = Err(Status::INVALID_SGL_LENGTH.with_dnr());
    let acquire = Command::reservation_acquire(1, AcquireAction::ACQUIRE, KIND);
    let release = Command::reservation_release(1, ReleaseAction::RELEASE, KIND);
    let cases = [
        (register(RegisterAction::REGISTER), [0, 8, 15, 17, 4096]),
        (acquire, [0, 8, 15, 17, 4096]),
        (release, [0, 4, 7, 17, 4096]),
    ];
    for (command, lengths) in cases {
        for length in lengths {
            let command = command.with_sgl(SglDescriptor::transport(length));
            assert_eq!(judge(&command), wrong, "{}", command.describe(false));
        }
    }
}

#[test]
fn a_host_without_an_identifier_registers_nothing() {
    let command = register(RegisterAction::REGISTER);
    for nobody in [None, Some(Registrant::NvmeHost([0; 16]))] {
        let denied = Err(Status::OPERATION_DENIED.with_dnr());
        assert_eq!(change(&command, &keys(0, 5), nobody.map(Into::into)), denied);
    }
}

#[test]
fn a_report_needs_the_extended_form_and_room() {
    let report = Command::reservation_report(1, 4096);
    assert_eq!(judge_report(&report), Ok(Work::Report(4096)));
    let narrow = Status::HOST_ID_INCONSISTENT.with_dnr();
    assert_eq!(judge_report(&report.with_cdw(11, 0)), Err(narrow));
    let short = report.with_sgl(SglDescriptor::transport(4092));
    assert_eq!(judge_report(&short), Err(Status::INVALID_SGL_LENGTH.with_dnr()));
    let capsule = report.with_sgl(SglDescriptor::in_capsule(4096));
    assert_eq!(judge_report(&capsule), Err(Status::INVALID_SGL_TYPE.with_dnr()));
    let large = Command::reservation_report(1, TRANSFER_MAX + 4);
    assert_eq!(judge_report(&large), Err(INVALID), "more than MDTS");
}

#[test]
fn a_report_shows_all_who_are_registered() {
    let nothing = Report::parse(&report(None, 64, None).bytes).expect("a report");
    assert_eq!((nothing.header, nothing.registrants.len()), (ReportHeader::default(), 0));
    let text = "generation 6 persistent held write-exclusive-registrants by \
                nvme:07070707070707070707070707070707: mac:020000000001=0 \
                nvme:07070707070707070707070707070707=5";
    let held: Reservation = text.parse().expect("a reservation");
    let data = report(Some(&held), 4096, None);
    assert_eq!((data.bytes.len(), data.len()), (64 + 2 * 64, 4096));
    let seen = Report::parse(&data.bytes).expect("a report");
    assert_eq!((seen.header.generation, seen.header.persists), (6, 1));
    assert_eq!(seen.header.kind, ReservationType::WRITE_EXCLUSIVE_REGISTRANTS);
    let one = |at: usize| {
        let ReportRegistrant { controller_id, key, host_id, .. } = seen.registrants[at];
        (controller_id, seen.registrants[at].holds(), key, host_id)
    };
    let station = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1];
    assert_eq!(one(0), (0xffff, false, 0x0200_0000_0001, station));
    assert_eq!(one(1), (0xffff, true, 5, [7; 16]));
    // A host may look at the head first.
    assert_eq!(report(Some(&held), 68, None).bytes, data.bytes[..68]);
}

#[test]
fn statuses_say_whether_to_ask_again() {
    let decided = |verdict| Answer::Decided(verdict, Reservation::default());
    let cases = [
        (decided(Verdict::Done), Status::SUCCESS),
        (decided(Verdict::Conflict), Status::RESERVATION_CONFLICT.with_dnr()),
        (decided(Verdict::OtherKind), INVALID),
        (decided(Verdict::Invalid), INVALID),
        (decided(Verdict::Full), Status::CAPACITY_EXCEEDED.with_dnr()),
        (Answer::NotStored, Status::INTERNAL_ERROR),
        (Answer::Busy, Status::COMMAND_INTERRUPTED),
        (Answer::Gone, Status::INVALID_NAMESPACE.with_dnr()),
    ];
    for (answer, status) in cases {
        assert_eq!(status_of(&answer), status, "{answer:?}");
    }
}

#[test]
fn both_names_of_a_kind_are_one_to_one() {
    for (rtype, of_rtype) in KINDS {
        assert_eq!((kind(rtype), reservation_type(Some(of_rtype))), (Some(of_rtype), rtype));
    }
    assert_eq!((kind(ReservationType(7)), reservation_type(None)), (None, ReservationType::NONE));
}
