//! What a reservation of the volume, which others made, refuses a host. Who waits when it is made is
//! in `judged_anew`; how hosts make one in `reserving`.

use block::VolumeId;
use reservation::Reservation;
use wire::nvme::command::{CopyRange, DsmRange, NSID_ALL};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::transfer::IO;
use super::world::{World, pattern};

pub(super) const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
/// As the world's host is called, and somebody else.
const HOST: &str = "nvme:07070707070707070707070707070707";
pub(super) const OTHER: &str = "mac:020000000001";

pub(super) fn held(kind: &str, holder: &str, registrants: &[&str]) -> Reservation {
    let list: String = registrants.iter().map(|one| format!(" {one}=1")).collect();
    format!("generation 1 held {kind} by {holder}:{list}").parse().expect("a reservation")
}

pub(super) fn reserve(world: &mut World, reservation: Reservation) {
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
        status(Command::copy(1, 3, 1), &CopyRange::new(3, 1).emit()),
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
