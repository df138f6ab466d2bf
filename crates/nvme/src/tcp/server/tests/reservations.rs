//! What a reservation of the volume refuses a host, and that whoever waited is asked again. The
//! host has no commands for reservations: others made it.

use block::{Class, VolumeId};
use reservation::Reservation;
use wire::nvme::command::{DsmRange, Fuse, NSID_ALL};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::memory::{give, hog};
use super::transfer::IO;
use super::world::{World, pattern};

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
/// As the world's host is called, and somebody else.
const HOST: &str = "nvme:07070707070707070707070707070707";
const OTHER: &str = "mac:020000000001";

fn held(kind: &str, holder: &str, registrants: &[&str]) -> Reservation {
    let list: String = registrants.iter().map(|one| format!(" {one}=0")).collect();
    format!("generation 1 held {kind} by {holder}:{list}").parse().expect("a reservation")
}

fn reserve(world: &mut World, reservation: Reservation) {
    world.shard.reservations.set(VolumeId(0), reservation);
}

/// The statuses of one command of each kind: those that read, and those that change something.
fn outcomes(world: &mut World) -> (Vec<Status>, Vec<Status>) {
    let mut status = |command: Command, data: &[u8]| {
        match data {
            [] => world.command(IO, command),
            data => world.command_with(IO, command, data),
        }
        world.said(IO).last().expect("an answer").status()
    };
    let current = [0; 512];
    let reads = vec![
        status(Command::read(1, 0, 1, 512), &[]),
        status(Command::compare(1, 3, 1, 512), &current),
        status(Command::verify(1, 0, 8), &[]),
    ];
    let range = DsmRange { attributes: 0, blocks: 1, lba: 4 }.emit();
    let writes = vec![
        status(Command::write(1, 3, 1, 512), &current),
        status(Command::write_zeroes(1, 3, 1, true), &[]),
        status(Command::dataset_management(1, 1, true), &range),
        status(Command::flush(1), &[]),
        status(Command::flush(NSID_ALL), &[]),
    ];
    (reads, writes)
}

#[test]
fn a_host_is_refused_what_the_kind_of_reservation_says() {
    let registrants = &[OTHER, HOST];
    let cases = [
        ("write-exclusive", OTHER, &[OTHER][..], true, false),
        ("exclusive-access", OTHER, &[OTHER], false, false),
        ("exclusive-access-all", "all", &[OTHER], false, false),
        ("write-exclusive-registrants", OTHER, registrants, true, true),
        ("exclusive-access-registrants", OTHER, registrants, true, true),
        ("exclusive-access", OTHER, registrants, false, false),
        ("exclusive-access", HOST, registrants, true, true),
    ];
    for (kind, holder, registrants, reads, writes) in cases {
        let mut world = World::connected(Digests::NONE);
        world.volumes[0][3 * 512..4 * 512].fill(0);
        reserve(&mut world, held(kind, holder, registrants));
        let refused = |statuses: &[Status]| statuses.iter().all(|status| *status == CONFLICT);
        let done = |statuses: &[Status]| statuses.iter().all(|status| status.is_success());
        let seen = outcomes(&mut world);
        assert!(if reads { done(&seen.0) } else { refused(&seen.0) }, "{kind}: {seen:?}");
        assert!(if writes { done(&seen.1) } else { refused(&seen.1) }, "{kind}: {seen:?}");
        // Another volume of the subsystem is nobody's.
        assert!(
            world
                .ask_with(IO, Command::write(5, 0, 1, 512), &pattern(512, 1))
                .status()
                .is_success()
        );
        reserve(&mut world, Reservation::default());
        let (reads, writes) = outcomes(&mut world);
        assert!(done(&reads) && done(&writes), "once it is free");
    }
}

#[test]
fn no_memory_is_lent_to_a_host_that_may_not_read() {
    let mut world = World::connected(Digests::NONE);
    reserve(&mut world, held("exclusive-access-all", "all", &[OTHER]));
    // It would panic: there is nothing to lend.
    world.shard.below.lends = true;
    assert_eq!(world.ask(IO, Command::read(1, 0, 8, 4096)).status(), CONFLICT);
}

#[test]
fn a_write_whose_data_come_after_the_reservation_is_refused() {
    let mut world = World::connected(Digests::NONE);
    let before = world.volumes[0].clone();
    let granted = world.ask(IO, Command::write(1, 0, 32, 16_384).with_command_id(1)).r2t();
    let range = DsmRange { attributes: 0, blocks: 1, lba: 4 }.emit();
    let ranges = world.ask(IO, Command::dataset_management(1, 1, true).with_command_id(2)).r2t();
    reserve(&mut world, held("exclusive-access-all", "all", &[OTHER]));
    for (r2t, data) in [(granted, &pattern(16_384, 1)[..]), (ranges, &range)] {
        assert_eq!(world.granted(IO, &r2t, data, 16_384).status(), CONFLICT);
    }
    assert!(world.log.is_empty() && world.volumes[0] == before);
}

#[test]
fn who_waits_for_memory_is_judged_when_there_is_some() {
    let mut world = World::connected(Digests::NONE);
    let held_pages = hog(&mut world, Class::Transfer, 4096);
    world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(1));
    world.command(IO, Command::write(1, 0, 64, 32_768).with_command_id(2));
    assert!(world.said(IO).is_empty());
    reserve(&mut world, held("exclusive-access-all", "all", &[OTHER]));
    give(&mut world, held_pages);
    assert!(!world.wake(IO));
    let said = world.said(IO);
    assert_eq!(said.iter().map(|said| said.status()).collect::<Vec<_>>(), [CONFLICT, CONFLICT]);
}

#[test]
fn a_fused_pair_is_a_write_and_is_judged_when_it_is_whole() {
    let mut world = World::connected(Digests::NONE);
    let current = world.volumes[0][512..1024].to_vec();
    let compare = Command::compare(1, 1, 1, 512).with_fuse(Fuse::FIRST).with_command_id(1);
    let write = Command::write(1, 1, 1, 512).with_fuse(Fuse::SECOND).with_command_id(2);
    world.command_with(IO, compare, &current);
    reserve(&mut world, held("write-exclusive", OTHER, &[OTHER]));
    for _ in 0..2 {
        // The first time its first half is there already, the second time it is refused by itself.
        world.command_with(IO, write, &pattern(512, 9));
        let said = world.said(IO);
        let statuses: Vec<Status> = said.iter().map(|said| said.status()).collect();
        assert_eq!(statuses, [CONFLICT, Status::FUSED_FAILED]);
        world.command_with(IO, compare, &current);
    }
    assert!(world.log.is_empty() && world.volumes[0][512..1024] == current[..]);
}
