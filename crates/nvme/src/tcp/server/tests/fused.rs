//! 27: fused compare and write, and all the ways in which a pair is none.

use block::{Class, Failure, Operation};
use wire::nvme::command::{Fuse, SglDescriptor};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::memory::{give, hog};
use super::transfer::IO;
use super::world::{ALL_DIGESTS, BOTH, Said, World, capsule, pattern, statuses};
use crate::limits::DATA_AFTER_R2T;

pub(super) fn compare(lba: u64) -> Command {
    Command::compare(1, lba, 1, 512).with_fuse(Fuse::FIRST).with_command_id(1)
}

pub(super) fn write(lba: u64) -> Command {
    Command::write(1, lba, 1, 512).with_fuse(Fuse::SECOND).with_command_id(2)
}

fn current(world: &World) -> Vec<u8> {
    world.volumes[0][512..1024].to_vec()
}

#[test]
fn a_pair_is_one_request() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        let expected = current(&world);
        let new = pattern(512, 9);
        world.command_with(IO, compare(1), &expected);
        assert!(world.said(IO).is_empty() && world.log.is_empty(), "the first waits");
        world.command_with(IO, write(1), &new);
        assert_eq!(statuses(&mut world), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
        assert_eq!(current(&world), new);
        assert_eq!(world.log, ["compare and write"]);
    }
}

#[test]
fn a_pair_is_durable_if_either_command_is() {
    for (of_compare, of_write) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::connected(Digests::NONE);
        world.hold_requests = true;
        let compare = compare(1).with_force_unit_access(of_compare);
        world.command_with(IO, compare, &current(&world));
        world.command_with(IO, write(1).with_force_unit_access(of_write), &[1; 512]);
        let (_, request) = &world.shard.below.held[0];
        let Operation::CompareAndWrite { durable, .. } = request.operation else {
            panic!("{request:?}");
        };
        assert_eq!(durable, of_compare || of_write);
    }
}

#[test]
fn a_miscompare_fails_both_and_writes_nothing() {
    let mut world = World::connected(Digests::NONE);
    let before = current(&world);
    world.command_with(IO, compare(1), &pattern(512, 1));
    world.command_with(IO, write(1), &pattern(512, 9));
    assert_eq!(statuses(&mut world), [(1, Status::COMPARE_FAILURE), (2, Status::FUSED_FAILED)]);
    assert_eq!(current(&world), before);
    world.fail_next = Some(Failure::MediumWrite);
    world.command_with(IO, compare(1), &before);
    world.command_with(IO, write(1), &before);
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_FAILED), (2, Status::WRITE_FAULT)]);
}

#[test]
fn data_of_a_pair_may_be_asked_for() {
    // The second's data come before the first's are whole, and the other way round.
    for second_first in [false, true] {
        let mut world = World::connected(BOTH);
        let expected = current(&world);
        let new = pattern(512, 4);
        world.command(IO, compare(1));
        world.command(IO, write(1));
        let said = world.said(IO);
        let (first, second) = (said[0].r2t(), said[1].r2t());
        assert_eq!((first.command_id, second.command_id), (1, 2));
        if second_first {
            world.grant(IO, &second, &new, 100);
            assert!(world.log.is_empty());
            world.grant(IO, &first, &expected, 512);
        } else {
            world.grant(IO, &first, &expected, 512);
            assert!(world.log.is_empty());
            world.grant(IO, &second, &new, 100);
        }
        assert_eq!(statuses(&mut world), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
        assert_eq!(current(&world), new);
    }
}

#[test]
fn a_second_without_a_first_is_missing_its_mate() {
    let mut world = World::connected(Digests::NONE);
    world.command_with(IO, write(1), &pattern(512, 0));
    assert_eq!(statuses(&mut world), [(2, Status::FUSED_MISSING)]);
}

#[test]
fn a_first_that_is_followed_by_another_command_is_missing_its_mate() {
    let mut world = World::connected(Digests::NONE);
    let data = current(&world);
    world.command_with(IO, compare(1), &data);
    world.command(IO, Command::flush(1).with_command_id(3));
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING), (3, Status::SUCCESS)]);
    world.command_with(IO, write(1), &data);
    assert_eq!(statuses(&mut world), [(2, Status::FUSED_MISSING)], "too late");
    // A first whose data are on their way is answered once they came.
    let r2t = world.ask(IO, compare(1)).r2t();
    world.command(IO, Command::flush(1).with_command_id(3));
    assert_eq!(statuses(&mut world), [(3, Status::SUCCESS)]);
    world.grant(IO, &r2t, &data, 512);
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING)]);
    // A first after a first.
    world.command_with(IO, compare(1), &data);
    world.command_with(IO, compare(1).with_command_id(5), &data);
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING)]);
    world.command_with(IO, write(1), &data);
    assert_eq!(statuses(&mut world), [(5, Status::SUCCESS), (2, Status::SUCCESS)]);
}

#[test]
fn the_two_concern_the_same_blocks() {
    let invalid = Status::INVALID_FIELD.with_dnr();
    for second in
        [write(2), Command::write(5, 1, 1, 512).with_fuse(Fuse::SECOND).with_command_id(2)]
    {
        let mut world = World::connected(Digests::NONE);
        let data = current(&world);
        world.command_with(IO, compare(1), &data);
        world.command_with(IO, second, &data);
        assert_eq!(statuses(&mut world), [(2, invalid), (1, invalid)]);
        assert!(world.log.is_empty());
    }
}

#[test]
fn a_fabrics_command_is_no_part_of_a_pair() {
    let mut world = World::connected(Digests::NONE);
    let invalid = Status::INVALID_FIELD.with_dnr();
    let fabrics = |fuse| Command::property_get(0, false).with_fuse(fuse).with_command_id(3);
    for fuse in [Fuse::FIRST, Fuse::SECOND] {
        assert_eq!(world.ask(IO, fabrics(fuse)).status(), invalid);
    }
    let data = current(&world);
    world.command_with(IO, compare(1), &data);
    world.command(IO, fabrics(Fuse::SECOND));
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING), (3, invalid)]);
    assert!(world.log.is_empty());
}

#[test]
fn if_the_first_is_refused_so_is_the_second() {
    let mut world = World::connected(Digests::NONE);
    let data = current(&world);
    let wrong = [
        (compare(1 << 40), Status::LBA_OUT_OF_RANGE.with_dnr()),
        (
            Command::compare(9, 1, 1, 512).with_fuse(Fuse::FIRST),
            Status::INVALID_NAMESPACE.with_dnr(),
        ),
        (Command::read(1, 1, 1, 512).with_fuse(Fuse::FIRST), Status::INVALID_FIELD.with_dnr()),
        (
            Command::compare(1, 0, 16, 8192).with_fuse(Fuse::FIRST),
            Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr(),
        ),
        (
            Command::compare(2, 1, 1, 512).with_fuse(Fuse::FIRST),
            Status::NAMESPACE_WRITE_PROTECTED.with_dnr(),
        ),
    ];
    for (first, status) in wrong {
        world.command(IO, first.with_command_id(1));
        world.command_with(IO, write(1), &data);
        assert_eq!(statuses(&mut world), [(1, status), (2, Status::FUSED_FAILED)]);
    }
}

#[test]
fn corrupt_data_of_either_fail_both() {
    let digests = Digests { header: false, data: true };
    for which in [0, 1] {
        let mut world = World::connected(digests);
        let data = current(&world);
        let commands = [compare(1), write(1)];
        for (index, command) in commands.into_iter().enumerate() {
            let command = command.with_sgl(SglDescriptor::in_capsule(512));
            let mut bytes = capsule(command, &data, digests);
            if index == which {
                bytes[80] ^= 1;
            }
            world.send(IO, &bytes);
        }
        let mut found = statuses(&mut world);
        found.sort_by_key(|(command_id, _)| *command_id);
        assert_eq!(found[which].1, Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(found[1 - which].1, Status::FUSED_FAILED);
        assert!(world.log.is_empty());
    }
}

#[test]
fn a_first_does_not_hold_memory_for_a_second_that_never_comes() {
    let mut world = World::connected(Digests::NONE);
    let data = current(&world);
    world.command_with(IO, compare(1), &data);
    assert!(world.links[IO].connection.pages() > 0);
    world.pass(IO, DATA_AFTER_R2T);
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING)]);
    assert_eq!(world.links[IO].connection.pages(), 0);
    assert_eq!(world.links[IO].pipe.close, None);
}

#[test]
fn a_cid_in_use_breaks_the_pair_at_once() {
    let conflict = Status::COMMAND_ID_CONFLICT.with_dnr();
    // The second has the CID of the first, of another command, or another command comes in between.
    for (command_id, fuse, fate) in [
        (1, Fuse::SECOND, Status::FUSED_FAILED),
        (7, Fuse::SECOND, Status::FUSED_FAILED),
        (7, Fuse::NONE, Status::FUSED_MISSING),
    ] {
        let mut world = World::connected(Digests::NONE);
        let before = current(&world);
        let r2t = world.ask(IO, Command::write(1, 8, 1, 512).with_command_id(7)).r2t();
        world.command_with(IO, compare(1), &before);
        let second = Command::write(1, 1, 1, 512).with_fuse(fuse).with_command_id(command_id);
        world.command_with(IO, second, &pattern(512, 9));
        assert_eq!(statuses(&mut world), [(command_id, conflict), (1, fate)]);
        assert_eq!(current(&world), before);
        world.grant(IO, &r2t, &pattern(512, 2), 512);
        assert_eq!(statuses(&mut world), [(7, Status::SUCCESS)]);
    }
}

#[test]
fn a_first_whose_cid_is_in_use_fails_its_second() {
    let mut world = World::connected(Digests::NONE);
    let before = current(&world);
    let r2t = world.ask(IO, Command::write(1, 8, 1, 512).with_command_id(1)).r2t();
    world.command_with(IO, compare(1), &before);
    world.command_with(IO, write(1), &pattern(512, 9));
    let conflict = Status::COMMAND_ID_CONFLICT.with_dnr();
    assert_eq!(statuses(&mut world), [(1, conflict), (2, Status::FUSED_FAILED)]);
    assert_eq!(current(&world), before);
    world.grant(IO, &r2t, &pattern(512, 2), 512);
    assert_eq!(statuses(&mut world), [(1, Status::SUCCESS)]);
}

/// Its memory hangs on data further back in the stream: were it that of capsules, the next capsule
/// that finds none would wait for what stands behind it.
#[test]
fn pairs_whose_data_are_asked_for_hold_no_memory_of_capsules() {
    let mut world = World::connected(Digests::NONE);
    for id in (10..50).step_by(2) {
        world.command(IO, compare(1).with_command_id(id));
        world.command(IO, write(1).with_command_id(id + 1));
    }
    let mut grants = world.said(IO);
    assert_eq!(world.links[IO].connection.pages_of(Class::Immediate), 0);
    world.command_with(IO, Command::write(1, 8, 1, 512).with_command_id(1), &pattern(512, 1));
    assert_eq!(statuses(&mut world), [(1, Status::SUCCESS)]);
    let expected = current(&world);
    let mut answered = 0;
    while let Some(said) = grants.pop() {
        let r2t = said.r2t();
        world.grant(IO, &r2t, &expected, 512);
        world.wake(IO);
        let (responses, more): (Vec<_>, Vec<_>) =
            world.said(IO).into_iter().partition(|said| matches!(said, Said::Response(_)));
        assert!(responses.iter().all(|said| said.status().is_success()), "{responses:?}");
        answered += responses.len();
        grants.extend(more);
    }
    assert_eq!(answered, 40);
    assert_eq!(world.links[IO].connection.pages(), 0);
}

#[test]
fn a_pair_in_capsules_stops_the_stream_until_there_is_memory_for_both() {
    for lba in [0, 1] {
        let mut world = World::connected(Digests::NONE);
        let expected = world.volumes[0][lba as usize * 512..][..512].to_vec();
        let held = hog(&mut world, Class::Immediate, 4096);
        world.command_with(IO, compare(lba), &expected);
        world.command_with(IO, write(lba), &pattern(512, 4));
        assert!(world.links[IO].pipe.is_paused() && world.wake(IO));
        assert_eq!(world.links[IO].connection.pages(), 0);
        give(&mut world, held);
        assert!(!world.wake(IO));
        assert_eq!(statuses(&mut world), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
        assert_eq!(world.volumes[0][lba as usize * 512..][..512], pattern(512, 4));
    }
}

#[test]
fn a_pair_whose_data_are_asked_for_waits_for_memory_in_line() {
    // Its second comes before there is memory, or after.
    for second_waits in [true, false] {
        let mut world = World::connected(Digests::NONE);
        let (expected, new) = (current(&world), pattern(512, 4));
        let held = hog(&mut world, Class::Transfer, 4096);
        world.command(IO, compare(1));
        if second_waits {
            world.command(IO, write(1));
        }
        assert!(world.said(IO).is_empty() && !world.links[IO].pipe.is_paused());
        assert!(world.wake(IO), "it is in line");
        give(&mut world, held);
        assert!(!world.wake(IO));
        if !second_waits {
            world.command(IO, write(1));
        }
        let said = world.said(IO);
        world.grant(IO, &said[0].r2t(), &expected, 512);
        world.grant(IO, &said[1].r2t(), &new, 512);
        assert_eq!(statuses(&mut world), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
        assert_eq!(current(&world), new);
        assert_eq!(world.links[IO].connection.pages(), 0);
    }
}

#[test]
fn a_first_that_waits_for_memory_and_gets_no_second_leaves_the_line() {
    let mut world = World::connected(Digests::NONE);
    let held = hog(&mut world, Class::Transfer, 4096);
    world.command(IO, compare(1));
    world.command(IO, Command::flush(1).with_command_id(3));
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING), (3, Status::SUCCESS)]);
    world.command(IO, compare(1));
    world.pass(IO, DATA_AFTER_R2T);
    assert_eq!(statuses(&mut world), [(1, Status::FUSED_MISSING)]);
    assert!(!world.wake(IO), "its place goes when the line is tried");
    // Or the connection ends before there is memory.
    world.command(IO, compare(1));
    world.command(IO, write(1));
    give(&mut world, held);
    world.with(IO, |connection, ctx| connection.handle_lost(contract::Loss::Error(104), ctx));
    world.run();
}

#[test]
fn a_pair_with_the_data_of_one_in_its_capsule_needs_memory_of_transfers_at_once() {
    for first_inside in [true, false] {
        let mut world = World::connected(Digests::NONE);
        let (expected, new) = (current(&world), pattern(512, 4));
        let send = |world: &mut World| match first_inside {
            true => {
                world.command_with(IO, compare(1), &expected);
                world.command(IO, write(1));
            }
            false => {
                world.command(IO, compare(1));
                world.command_with(IO, write(1), &new);
            }
        };
        let held = hog(&mut world, Class::Transfer, 4096);
        send(&mut world);
        let interrupted = [(2, Status::COMMAND_INTERRUPTED), (1, Status::FUSED_FAILED)];
        assert_eq!(statuses(&mut world), interrupted);
        assert_eq!(world.links[IO].connection.pages(), 0);
        give(&mut world, held);
        assert!(!world.wake(IO));
        send(&mut world);
        assert_eq!(world.links[IO].connection.pages_of(Class::Immediate), 0);
        assert_eq!(world.links[IO].connection.pages_of(Class::Transfer), 2);
        let r2t = world.said_one(IO).r2t();
        world.grant(IO, &r2t, if first_inside { &new } else { &expected }, 512);
        assert_eq!(statuses(&mut world), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
        assert_eq!(current(&world), new);
        assert_eq!(world.links[IO].connection.pages(), 0);
    }
}
