//! Whoever waited is judged anew when he starts: if meanwhile another volume lies under his number,
//! or somebody reserved the one that does, nothing of him goes below.

use block::{BlockSize, Class};
use wire::nvme::command::DsmRange;
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::fused::{compare, write};
use super::identity::{GONE, replace, swap};
use super::memory::{give, hog};
use super::paths::close_path;
use super::reservations::{CONFLICT, OTHER, held, reserve};
use super::transfer::IO;
use super::world::{World, namespace, pattern, statuses};
use crate::subsystem::Namespace;

/// What changes while a command waits, and what the command is told then.
pub(super) type Change = (&'static str, fn(&mut World), Status);

const RESERVED: Change = (
    "a reservation",
    |world| reserve(world, held("exclusive-access-all", "all", &[OTHER])),
    CONFLICT,
);
/// It lets the host read.
pub(super) const RESERVED_FOR_WRITES: Change = (
    "a reservation against writes",
    |world| reserve(world, held("write-exclusive", OTHER, &[OTHER])),
    CONFLICT,
);
pub(super) const CHANGES: [Change; 6] = [
    ("another volume", swap, GONE),
    ("another volume, as `apply` puts it there", replace, GONE),
    ("no volume", |world| world.put(None), GONE),
    ("blocks of another size", |world| world.put(Some(larger())), GONE),
    RESERVED,
    ("a path that was closed", close_path, Status::ANA_INACCESSIBLE),
];

fn larger() -> Namespace {
    Namespace { block_size: BlockSize::B4096, ..namespace(1, 0, false) }
}

#[test]
fn a_command_whose_data_come_is_judged_anew() {
    for (name, change, status) in CHANGES {
        let mut world = World::connected(Digests::NONE);
        let write = world.ask(IO, Command::write(1, 0, 32, 16_384).with_command_id(1)).r2t();
        let range = DsmRange { attributes: 0, blocks: 1, lba: 4 }.emit();
        let ranges = Command::dataset_management(1, 1, true).with_command_id(2);
        let ranges = world.ask(IO, ranges).r2t();
        change(&mut world);
        for (r2t, data) in [(write, &pattern(16_384, 1)[..]), (ranges, &range)] {
            assert_eq!(world.granted(IO, &r2t, data, 16_384).status(), status, "{name}");
        }
        assert!(world.log.is_empty(), "{name}");
    }
}

#[test]
fn a_command_that_waits_for_memory_is_judged_anew() {
    for (name, change, status) in CHANGES {
        let mut world = World::connected(Digests::NONE);
        let pages = hog(&mut world, Class::Transfer, 4096);
        world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(1));
        world.command(IO, Command::write(1, 0, 64, 32_768).with_command_id(2));
        assert!(world.said(IO).is_empty());
        change(&mut world);
        give(&mut world, pages);
        assert!(!world.wake(IO), "{name}");
        assert_eq!(statuses(&mut world), [(1, status), (2, status)], "{name}");
        assert!(world.log.is_empty(), "{name}");
    }
}

#[test]
fn a_capsule_that_stopped_the_stream_is_judged_anew() {
    for (name, change, status) in CHANGES {
        let mut world = World::connected(Digests::NONE);
        let pages = hog(&mut world, Class::Immediate, 4096);
        world.command_with(IO, Command::write(1, 0, 8, 4096), &pattern(4096, 1));
        assert!(world.links[IO].pipe.is_paused());
        change(&mut world);
        give(&mut world, pages);
        world.wake(IO);
        assert_eq!(world.said_one(IO).status(), status, "{name}");
        assert!(world.log.is_empty(), "{name}");
        // So is the first of a pair, for both of which memory was reserved.
        let mut world = World::connected(Digests::NONE);
        let pages = hog(&mut world, Class::Immediate, 4096);
        world.command_with(IO, compare(1), &[0; 512]);
        assert!(world.links[IO].pipe.is_paused());
        change(&mut world);
        give(&mut world, pages);
        world.wake(IO);
        world.command_with(IO, write(1), &pattern(512, 1));
        assert_eq!(statuses(&mut world), [(1, status), (2, Status::FUSED_FAILED)], "{name}");
        assert_eq!((world.links[IO].connection.pages(), world.log.len()), (0, 0), "{name}");
    }
}

#[test]
fn a_fused_pair_is_a_write_and_is_judged_anew() {
    let (compare, write) = (compare(1), write(1));
    for (name, change, status) in CHANGES.into_iter().chain([RESERVED_FOR_WRITES]) {
        let refused = [(1, status), (2, Status::FUSED_FAILED)];
        // What it expects is what the other volume holds, too.
        let expected = [0; 512];
        let mut world = World::connected(Digests::NONE);
        world.command_with(IO, compare, &expected);
        change(&mut world);
        world.command_with(IO, write, &pattern(512, 1));
        assert_eq!(statuses(&mut world), refused, "{name}");
        // From now on its first is refused by itself.
        world.command_with(IO, compare, &expected);
        world.command_with(IO, write, &pattern(512, 1));
        assert_eq!(statuses(&mut world), refused, "{name}");
        assert!(world.log.is_empty(), "{name}");
        // Or both are there, and the data of the second are on their way.
        let mut world = World::connected(Digests::NONE);
        world.command_with(IO, compare, &expected);
        let r2t = world.ask(IO, write).r2t();
        change(&mut world);
        world.grant(IO, &r2t, &pattern(512, 1), 512);
        assert_eq!(statuses(&mut world), refused, "{name}");
        assert!(world.log.is_empty(), "{name}");
    }
}

#[test]
fn a_fused_pair_that_waits_for_memory_is_judged_anew() {
    for (name, change, status) in CHANGES.into_iter().chain([RESERVED_FOR_WRITES]) {
        for second_waits in [true, false] {
            let mut world = World::connected(Digests::NONE);
            let pages = hog(&mut world, Class::Transfer, 4096);
            world.command(IO, compare(1));
            if second_waits {
                world.command(IO, write(1));
            }
            change(&mut world);
            give(&mut world, pages);
            assert!(!world.wake(IO), "{name}");
            if !second_waits {
                world.command(IO, write(1));
            }
            let refused = [(1, status), (2, Status::FUSED_FAILED)];
            assert_eq!(statuses(&mut world), refused, "{name}");
            assert!(world.log.is_empty(), "{name}");
        }
    }
}
