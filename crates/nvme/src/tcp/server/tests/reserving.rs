//! 29: commands about reservations, from the host's first byte to the answer; two hosts, and what
//! waits of the one whom the other fences.

use block::{Class, VolumeId};
use contract::{Loss, SessionEnd};
use reservation::replica::Answer;
use reservation::{Change, Registrant, Verdict};
use wire::nvme::command::SglDescriptor;
use wire::nvme::reservation::{
    AcquireAction, ChangePersist, RegisterAction, ReleaseAction, Report, ReservationKeys,
    ReservationType,
};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::fused::{compare, write};
use super::memory::{give, hog};
use super::reservations::CONFLICT;
use super::transfer::{ADMIN, IO};
use super::world::{ALL_DIGESTS, Said, World, namespace, pattern, statuses};

/// The I/O queue of the second host.
pub(super) const OTHER_IO: usize = 3;
const VOLUME: VolumeId = VolumeId(0);
const WE: ReservationType = ReservationType::WRITE_EXCLUSIVE;
const ALL: ReservationType = ReservationType::EXCLUSIVE_ACCESS_ALL;
const OK: Status = Status::SUCCESS;

pub(super) fn keys(current: u64, other: u64) -> [u8; 16] {
    ReservationKeys { current, other }.emit()
}

pub(super) fn register(action: u8) -> Command {
    Command::reservation_register(1, RegisterAction(action), ChangePersist::KEEP)
}

fn acquire(action: u8, kind: ReservationType) -> Command {
    Command::reservation_acquire(1, AcquireAction(action), kind)
}

fn release(action: u8, kind: ReservationType) -> Command {
    Command::reservation_release(1, ReleaseAction(action), kind)
}

pub(super) fn preempt_and_abort(victims: u64) -> (Command, [u8; 16]) {
    (acquire(2, WE), keys(9, victims))
}

/// Two hosts, each with an admin and an I/O queue.
fn two_hosts(digests: Digests) -> World {
    let mut world = World::connected(digests);
    world.host_id = [9; 16];
    world.join(digests, 127, false);
    world
}

/// The same, registered under the keys 7 and 9.
pub(super) fn two_registrants() -> World {
    let mut world = two_hosts(Digests::NONE);
    for (link, key) in [(IO, 7), (OTHER_IO, 9)] {
        assert_eq!(world.ask_with(link, register(0), &keys(0, key)).status(), OK);
    }
    world
}

/// Asks with the data in the capsule, or by an R2T.
fn asked(world: &mut World, link: usize, command: Command, data: &[u8], by_r2t: bool) -> Status {
    if !by_r2t {
        return world.ask_with(link, command, data).status();
    }
    let r2t = world.ask(link, command).r2t();
    world.granted(link, &r2t, data, 16).status()
}

/// What Report shows: the kind, and of each registrant its HOSTID's first byte, key and whether it
/// holds.
fn seen(world: &mut World, link: usize) -> (ReservationType, Vec<(u8, u64, bool)>) {
    world.command(link, Command::reservation_report(1, 4096));
    let said = world.said(link);
    let [Said::Data(header, data), Said::Response(entry)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((header.length, entry.status), (4096, OK));
    let report = Report::parse(data).expect("a report");
    let of =
        |one: &wire::nvme::reservation::ReportRegistrant| (one.host_id[0], one.key, one.holds());
    (report.header.kind, report.registrants.iter().map(of).collect())
}

#[test]
fn each_action_does_what_it_says_wherever_its_data_come_from() {
    for digests in ALL_DIGESTS {
        for by_r2t in [false, true] {
            let mut world = two_hosts(digests);
            let steps: [(usize, Command, &[u8], Status); 16] = [
                (IO, acquire(0, WE), &keys(7, 0), CONFLICT),
                (IO, register(0), &keys(0, 1), OK),
                (IO, register(0), &keys(0, 7), CONFLICT),
                (IO, register(2), &keys(2, 7), CONFLICT),
                (IO, register(2), &keys(1, 7), OK),
                (OTHER_IO, register(2).with_ignored_key(), &keys(0, 9), OK),
                (IO, acquire(0, WE), &keys(7, 0), OK),
                (OTHER_IO, acquire(0, WE), &keys(9, 0), CONFLICT),
                (OTHER_IO, release(0, WE), &keys(9, 0)[..8], OK),
                (IO, release(0, ALL), &keys(7, 0)[..8], Status::INVALID_FIELD.with_dnr()),
                (OTHER_IO, acquire(1, ALL), &keys(9, 7), OK),
                (IO, acquire(0, ALL), &keys(7, 0), CONFLICT),
                (IO, register(0), &keys(0, 7), OK),
                (IO, release(0, ALL), &keys(7, 0)[..8], OK),
                (IO, register(1), &keys(7, 0), OK),
                (OTHER_IO, release(1, WE), &keys(9, 0)[..8], OK),
            ];
            for (at, (link, command, data, status)) in steps.into_iter().enumerate() {
                let line = command.describe(false).to_string();
                let got = asked(&mut world, link, command, data, by_r2t);
                assert_eq!(got, status, "{at}: {line}");
                if at == 6 {
                    let both = vec![(7, 7, true), (9, 9, false)];
                    assert_eq!(seen(&mut world, OTHER_IO), (WE, both));
                }
                if at == 10 {
                    assert_eq!(seen(&mut world, IO), (ALL, vec![(9, 9, true)]));
                }
            }
            assert_eq!(seen(&mut world, IO), (ReservationType::NONE, Vec::new()));
            assert!(world.log.is_empty(), "no volume was asked");
        }
    }
}

#[test]
fn data_of_another_length_than_the_capsule_has_change_nothing() {
    let mut world = two_hosts(Digests::NONE);
    let wrong = Status::INVALID_SGL_LENGTH.with_dnr();
    for length in [0, 8, 15, 17] {
        let status = world.ask_with(IO, register(0), &[1; 17][..length]).status();
        assert_eq!(status, wrong, "{length}");
        let command = register(0).with_sgl(SglDescriptor::transport(length as u32));
        assert_eq!(world.ask(IO, command).status(), wrong, "{length}");
    }
    assert_eq!(seen(&mut world, IO), (ReservationType::NONE, Vec::new()));
}

#[test]
fn a_report_is_as_long_as_is_asked() {
    let mut world = two_registrants();
    for bytes in [4, 64, 68, 192, 196] {
        world.command(IO, Command::reservation_report(1, bytes));
        let said = world.said(IO);
        let [Said::Data(_, data), Said::Response(entry)] = &said[..] else { panic!("{said:?}") };
        assert_eq!((data.len(), entry.status), (bytes as usize, OK));
        assert_eq!(data[..4], [2, 0, 0, 0], "two came to be registered");
    }
    let narrow = Command::reservation_report(1, 64).with_cdw(11, 0);
    assert_eq!(world.ask(IO, narrow).status(), Status::HOST_ID_INCONSISTENT.with_dnr());
    let missing = Command::reservation_report(3, 64);
    assert_eq!(world.ask(IO, missing).status(), Status::INVALID_NAMESPACE.with_dnr());
    let capsule = Command::reservation_report(1, 64);
    let status = world.ask_with(IO, capsule, &[0; 64]).status();
    assert_eq!(status, Status::INVALID_SGL_TYPE.with_dnr());
}

#[test]
fn reports_stop_the_stream_until_they_have_left() {
    let mut world = World::connected(Digests::NONE);
    let list = (0..200).map(|last| [2, 0, 0, 0, 0, last].into()).collect();
    world.change(VOLUME, &Change::ForceList { list });
    world.links[IO].hold_sends = true;
    for id in 0..100 {
        world.command(IO, Command::reservation_report(1, 32_768).with_command_id(id));
    }
    assert!(world.links[IO].pipe.is_paused());
    world.release_sends(IO);
    let answers = world.said(IO).into_iter().filter(|said| matches!(said, Said::Response(_)));
    assert_eq!(answers.count(), 100);
}

#[test]
fn a_host_without_an_identifier_registers_nothing() {
    let mut world = World::new();
    world.host_id = [0; 16];
    world.join(Digests::NONE, 127, false);
    let status = world.ask_with(IO, register(0), &keys(0, 5)).status();
    assert_eq!(status, Status::OPERATION_DENIED.with_dnr());
    let r2t = world.ask(IO, register(0)).r2t();
    let status = world.granted(IO, &r2t, &keys(0, 5), 16).status();
    assert_eq!(status, Status::OPERATION_DENIED.with_dnr());
    assert_eq!(seen(&mut world, IO).1, []);
}

#[test]
fn a_command_waits_for_its_decision_and_holds_up_no_other() {
    let mut world = World::connected(Digests::NONE);
    world.hold_changes = true;
    world.command_with(IO, register(0).with_command_id(1), &keys(0, 7));
    assert!(world.said(IO).is_empty());
    assert_eq!(world.links[IO].connection.outstanding(), 1);
    assert_eq!(world.links[IO].connection.pages(), 0, "it holds no memory");
    // Its CID is taken, and all else goes on.
    let again = world.ask_with(IO, register(0).with_command_id(1), &keys(0, 8));
    assert_eq!(again.status(), Status::COMMAND_ID_CONFLICT.with_dnr());
    assert_eq!(world.ask(IO, Command::flush(1).with_command_id(2)).status(), OK);
    // It cannot be called back.
    let abort = world.ask(ADMIN, Command::abort(1, 1)).response();
    assert_eq!((abort.status, abort.result), (OK, 1));
    world.decide();
    world.run();
    assert_eq!(statuses(&mut world), [(1, OK)]);
    world.hold_changes = false;
    assert_eq!(seen(&mut world, IO).1, [(7, 7, false)]);
}

#[test]
fn what_is_decided_after_the_connection_ended_is_made_and_told_to_nobody() {
    let ends: [fn(&mut World); 3] = [
        |world| {
            world.with(IO, |connection, ctx| connection.handle_lost(Loss::EndOfStream, ctx));
        },
        // The controller is reset.
        |world| {
            world.command(ADMIN, Command::property_set(0x14, 0).with_command_id(30));
        },
        // The server closes it.
        |world| {
            let end = SessionEnd::ServerStopping;
            world.with(IO, |connection, ctx| connection.close(end, ctx));
        },
    ];
    for (at, end) in ends.into_iter().enumerate() {
        let mut world = World::connected(Digests::NONE);
        world.hold_changes = true;
        world.command_with(IO, register(0).with_command_id(1), &keys(0, 7));
        end(&mut world);
        world.run();
        world.said(IO);
        assert!(!world.links[IO].connection.is_open(), "{at}");
        world.decide();
        world.run();
        assert!(world.said(IO).is_empty());
        let held = world.shard.reservations.get(VOLUME).expect("it is made all the same");
        assert_eq!(held.key_of(Registrant::NvmeHost([7; 16])), Some(7));
    }
}

#[test]
fn of_a_host_whose_commands_are_ended_nothing_that_waits_goes_below() {
    // Data of a write and of keys, a range, and the mate of a compare, in turn.
    let ranges = Command::dataset_management(1, 1, true);
    for (command, length) in
        [(Command::write(1, 0, 8, 4096), 4096), (acquire(0, WE), 16), (ranges, 16)]
    {
        let mut world = two_registrants();
        let r2t = world.ask(IO, command).r2t();
        let elsewhere = Command::write(5, 0, 8, 4096).with_command_id(9);
        let other = world.ask(IO, elsewhere).r2t();
        let (fence, data) = preempt_and_abort(7);
        assert_eq!(world.ask_with(OTHER_IO, fence, &data).status(), OK);
        assert!(world.said(IO).is_empty(), "its data are on their way");
        let told = world.granted(IO, &r2t, &vec![0; length], length).status();
        assert_eq!(told, Status::PREEMPTED);
        // Another volume, and what comes later, are as before.
        assert_eq!(world.granted(IO, &other, &pattern(4096, 1), 4096).status(), OK);
        assert_eq!(world.log, ["write"]);
        world.command(IO, Command::read(1, 0, 8, 4096));
        assert_eq!(world.said(IO).last().expect("an answer").status(), OK);
    }
}

#[test]
fn of_a_host_whose_commands_are_ended_nobody_waits_for_memory() {
    let mut world = two_registrants();
    let pages = hog(&mut world, Class::Transfer, 4096);
    world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(1));
    world.command(IO, Command::read(5, 0, 8, 4096).with_command_id(2));
    world.command(IO, Command::write(1, 0, 8, 4096).with_command_id(3));
    let (fence, data) = preempt_and_abort(7);
    assert_eq!(world.ask_with(OTHER_IO, fence, &data).status(), OK);
    assert_eq!(statuses(&mut world), [(1, Status::PREEMPTED), (3, Status::PREEMPTED)]);
    give(&mut world, pages);
    assert!(!world.wake(IO));
    assert_eq!(world.said(IO).last().expect("a read").status(), OK);
    assert_eq!(world.log, ["read"]);
}

#[test]
fn of_a_host_whose_commands_are_ended_no_pair_goes_below() {
    let refused = [(1, Status::PREEMPTED), (2, Status::FUSED_FAILED)];
    let fence = |world: &mut World| {
        let (fence, data) = preempt_and_abort(7);
        assert_eq!(world.ask_with(OTHER_IO, fence, &data).status(), OK);
    };
    // The first is there.
    let mut world = two_registrants();
    world.command_with(IO, compare(1), &[0; 512]);
    fence(&mut world);
    world.command_with(IO, write(1), &[1; 512]);
    assert_eq!(statuses(&mut world), refused);
    // Its data are on their way.
    let mut world = two_registrants();
    let r2t = world.ask(IO, compare(1)).r2t();
    fence(&mut world);
    world.command_with(IO, write(1), &[1; 512]);
    assert_eq!(statuses(&mut world), [refused[1]]);
    assert_eq!(world.granted(IO, &r2t, &[0; 512], 512).status(), Status::PREEMPTED);
    // Both are there, and the data of the second are on their way.
    let mut world = two_registrants();
    world.command_with(IO, compare(1), &[0; 512]);
    let r2t = world.ask(IO, write(1)).r2t();
    fence(&mut world);
    assert!(world.said(IO).is_empty());
    world.grant(IO, &r2t, &[1; 512], 512);
    assert_eq!(statuses(&mut world), refused);
    // They wait for memory, both or the first.
    for second_waits in [true, false] {
        let mut world = two_registrants();
        let pages = hog(&mut world, Class::Transfer, 4096);
        world.command(IO, compare(1));
        if second_waits {
            world.command(IO, write(1));
        }
        fence(&mut world);
        if !second_waits {
            world.command(IO, write(1));
        }
        assert_eq!(statuses(&mut world), refused);
        give(&mut world, pages);
        assert!(!world.wake(IO) && world.log.is_empty());
    }
    // A first that fails anyway says why by itself.
    let mut world = two_registrants();
    let r2t = world.ask(IO, compare(1)).r2t();
    let other = Command::read(1, 0, 8, 4096).with_command_id(5);
    world.command(IO, other);
    world.said(IO);
    fence(&mut world);
    let told = world.granted(IO, &r2t, &[0; 512], 512).status();
    assert_eq!(told, Status::FUSED_MISSING);
}

#[test]
fn a_connection_that_is_ending_has_nothing_that_could_be_ended() {
    let mut world = two_registrants();
    let r2t = world.ask(IO, Command::write(1, 0, 8, 4096)).r2t();
    assert_eq!(r2t.length, 4096);
    world.with(IO, |connection, ctx| connection.handle_lost(Loss::EndOfStream, ctx));
    let (fence, data) = preempt_and_abort(7);
    assert_eq!(world.ask_with(OTHER_IO, fence, &data).status(), OK);
    assert!(world.said(IO).is_empty());
}

#[test]
fn a_station_is_fenced_by_its_key() {
    let mut world = two_hosts(Digests::NONE);
    let mac = [2, 0, 0, 0, 0, 1];
    let list = vec![mac.into()];
    let answer = world.change(VOLUME, &Change::ForceList { list });
    assert!(matches!(answer, Answer::Decided(Verdict::Done, _)), "{answer:?}");
    let write = Command::write(1, 0, 8, 4096);
    assert_eq!(world.ask_with(IO, write, &pattern(4096, 1)).status(), CONFLICT);
    assert_eq!(world.ask_with(IO, register(0), &keys(0, 7)).status(), OK);
    // All registrants hold: it is one of them now, and takes the rest over.
    let both = vec![(0, 0x0200_0000_0001, true), (7, 7, true)];
    assert_eq!(seen(&mut world, IO), (ALL, both));
    let fence = acquire(1, ALL);
    assert_eq!(world.ask_with(IO, fence, &keys(7, 0x0200_0000_0001)).status(), OK);
    assert_eq!(seen(&mut world, IO), (ALL, vec![(7, 7, true)]));
}

#[test]
fn a_namespace_that_is_read_only_can_be_reserved() {
    let mut world = World::connected(Digests::NONE);
    let command = register(0).with_nsid(2);
    assert_eq!(world.ask_with(IO, command, &keys(0, 7)).status(), OK);
    // One that was removed while the keys were on their way cannot.
    let r2t = world.ask(IO, register(0)).r2t();
    world.put(Some(namespace(1, 2, false)));
    world.put(None);
    let status = world.granted(IO, &r2t, &keys(0, 7), 16).status();
    assert_eq!(status, Status::INVALID_NAMESPACE.with_dnr());
}
