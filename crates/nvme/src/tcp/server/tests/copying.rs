//! Copies: what each leaves where, with which status it is refused, and that one that is being
//! carried out ends at its next part once it may not go on. Checklist 28.

use block::limits::{COPY_PAGES, COPY_PART};
use block::{BlockCount, Class, Failure, Operation, VolumeId};
use contract::Loss;
use wire::nvme::command::{CopyDword, CopyRange, Fuse, SglDescriptor};
use wire::nvme::fabrics::Configuration;
use wire::nvme::{Command, Completion, Status};
use wire::nvme_tcp::Digests;

use super::judged_anew::{CHANGES, Change, RESERVED_FOR_WRITES};
use super::memory::{give, hog};
use super::reserving::{OTHER_IO, preempt_and_abort, two_registrants};
use super::transfer::{ADMIN, IO};
use super::world::{ALL_DIGESTS, VOLUME, World, namespace, statuses};
use crate::controllers::CloseReason;
use crate::io::COPY_MEMORY;
use crate::limits::COPY_RANGES_MAX;
use crate::subsystem::Namespace;

const BLOCKS: u64 = (VOLUME / 512) as u64;
/// Blocks of a part.
const PART: u32 = COPY_PART / 512;

/// Copies ranges of so many blocks from there.
type Ranges = [(u64, u32)];

/// Three ranges of one part each, and where they go.
const THREE: (u64, &Ranges) = (512, &[(0, 8), (16, 4), (40, 8)]);
/// Requests of these, of which each second one is a write.
const REQUESTS: usize = 6;

fn copy(to: u64, ranges: &Ranges) -> (Command, Vec<u8>) {
    let list = ranges.iter().flat_map(|(lba, blocks)| CopyRange::new(*lba, *blocks).emit());
    (Command::copy(1, to, ranges.len() as u32), list.collect())
}

/// What a volume holds once some of the ranges are copied.
fn copied(volume: &[u8], to: u64, ranges: &Ranges) -> Vec<u8> {
    let mut volume = volume.to_vec();
    let mut at = to as usize * 512;
    for (lba, blocks) in ranges {
        let (from, length) = (*lba as usize * 512, *blocks as usize * 512);
        volume.copy_within(from..from + length, at);
        at += length;
    }
    volume
}

/// Asks for a copy, its ranges in the capsule or by R2T; nothing is said to it yet.
fn begin(world: &mut World, (command, list): (Command, Vec<u8>), by_r2t: bool) {
    if !by_r2t {
        return world.command_with(IO, command, &list);
    }
    let command = command.with_sgl(SglDescriptor::transport(list.len() as u32));
    let r2t = world.ask(IO, command).r2t();
    world.grant(IO, &r2t, &list, 4096);
}

fn asked(world: &mut World, asked: (Command, Vec<u8>), by_r2t: bool) -> Completion {
    begin(world, asked, by_r2t);
    world.said_one(IO).response()
}

/// A copy of [`THREE`] of which so many requests are done, and the next one is below.
fn begun(world: &mut World, by_r2t: bool, requests: usize) {
    world.hold_requests = true;
    begin(world, copy(THREE.0, THREE.1), by_r2t);
    (0..requests).for_each(|_| world.release_requests());
    assert_eq!(world.shard.below.held.len(), 1);
    assert!(world.said(IO).is_empty());
}

/// Sees that the copy of [`THREE`] in `world`, whose volume began as `before`, copied so many ranges
/// whole and nothing of the others.
fn assert_copied(world: &World, before: &[u8], ranges: usize, name: &str) {
    assert!(world.volumes[0] == copied(before, THREE.0, &THREE.1[..ranges]), "{name}");
}

#[test]
fn a_copy_takes_its_ranges_from_its_capsule_or_by_an_r2t() {
    let ranges = [(1, 9), (BLOCKS - 1, 1), (700, PART + 3), (3, 1)];
    for digests in ALL_DIGESTS {
        for by_r2t in [false, true] {
            let mut world = World::connected(digests);
            let expected = copied(&world.volumes[0], 2048, &ranges);
            let entry = asked(&mut world, copy(2048, &ranges).clone(), by_r2t);
            assert_eq!((entry.status, entry.result), (Status::SUCCESS, 0));
            assert!(world.volumes[0] == expected);
            // A list with room for all ranges there may be.
            let (command, mut list) = copy(0, &ranges[..1]);
            list.resize(CopyRange::COUNT_MAX * CopyRange::SIZE, 0xff);
            let expected = copied(&expected, 0, &ranges[..1]);
            assert!(asked(&mut world, (command, list), by_r2t).status.is_success());
            assert!(world.volumes[0] == expected);
            assert_eq!(world.links[IO].connection.pages(), 0);
        }
    }
}

#[test]
fn ranges_are_copied_one_after_the_other_and_each_as_if_at_once() {
    let large = 2 * PART + 5;
    for (to, ranges) in [
        (1, &[(0, large)][..]),
        (0, &[(1, large)]),
        (7, &[(7, large)]),
        // The second reads what the first wrote.
        (100, &[(0, 50), (100, 50), (125, 60)]),
    ] {
        let mut world = World::connected(Digests::NONE);
        let expected = copied(&world.volumes[0], to, ranges);
        assert!(asked(&mut world, copy(to, ranges), false).status.is_success());
        assert!(world.volumes[0] == expected, "{ranges:?} to {to}");
    }
}

#[test]
fn as_many_ranges_as_msrc_says_are_copied() {
    let ranges: Vec<(u64, u32)> = (0..COPY_RANGES_MAX as u64).map(|at| (at * 7, 3)).collect();
    for by_r2t in [false, true] {
        let mut world = World::connected(Digests::NONE);
        let expected = copied(&world.volumes[0], 2000, &ranges);
        assert!(asked(&mut world, copy(2000, &ranges), by_r2t).status.is_success());
        assert!(world.volumes[0] == expected);
    }
}

#[test]
fn each_write_of_a_copy_is_as_durable_as_asked() {
    for fua in [false, true] {
        let mut world = World::connected(Digests::NONE);
        world.hold_requests = true;
        let (command, list) = copy(2000, &[(0, PART + 1), (9, 1)]);
        begin(&mut world, (command.with_force_unit_access(fua), list), false);
        let mut writes = 0;
        while let Some((_, request)) = world.shard.below.held.front() {
            if let Operation::Write { durable, .. } = request.operation {
                assert_eq!(durable, fua);
                writes += 1;
            }
            world.release_requests();
        }
        world.run();
        assert!(writes > 2 && world.said_one(IO).status().is_success());
    }
}

#[test]
fn a_copy_that_cannot_be_is_refused_before_anything_is_copied() {
    let too_large = Status::COMMAND_SIZE_LIMIT_EXCEEDED;
    let (one, list) = copy(0, &[(8, 8)]);
    let dword = |dword: CopyDword| one.with_cdw(12, dword.0);
    let many: Vec<(u64, u32)> = vec![(0, 1); COPY_RANGES_MAX + 1];
    let (many, many_list) = copy(0, &many);
    let cases = [
        (dword(CopyDword(0).with_format(1)), list.clone(), Status::INVALID_FIELD),
        (dword(CopyDword(0).with_nr(1)), list.clone(), Status::INVALID_SGL_LENGTH),
        (one, list[..31].to_vec(), Status::INVALID_SGL_LENGTH),
        (many, many_list, too_large),
        (one.with_nsid(2), list.clone(), Status::NAMESPACE_WRITE_PROTECTED),
        (one.with_nsid(9), list.clone(), Status::INVALID_NAMESPACE),
        (one.with_fuse(Fuse::FIRST), list.clone(), Status::INVALID_FIELD),
    ];
    let ranges = |to, ranges: &Ranges, status| {
        let (command, list) = copy(to, ranges);
        (command, list, status)
    };
    let beyond = Status::LBA_OUT_OF_RANGE;
    let listed = [
        ranges(0, &[(8, 8), (8, 65_536)], too_large),
        ranges(0, &[(8, 8), (BLOCKS - 1, 2)], beyond),
        ranges(0, &[(8, 8), (u64::MAX, 1)], beyond),
        ranges(BLOCKS - 15, &[(0, 8), (8, 8)], beyond),
        ranges(u64::MAX, &[(0, 1), (8, 8)], beyond),
    ];
    for (number, (command, list, status)) in cases.into_iter().chain(listed).enumerate() {
        let mut world = World::connected(Digests::NONE);
        let entry = asked(&mut world, (command, list.clone()), false);
        assert_eq!((entry.status, entry.result), (status.with_dnr(), 0), "case {number}");
        let command = command.with_sgl(SglDescriptor::transport(list.len() as u32));
        world.command(IO, command);
        let said = match number < 7 {
            true => world.said_one(IO),
            false => {
                let r2t = world.said_one(IO).r2t();
                world.granted(IO, &r2t, &list, 4096)
            }
        };
        assert_eq!(said.status(), status.with_dnr(), "case {number} by R2T");
        assert!(world.log.is_empty());
    }
    // One entry more than a list may have does not fit a capsule.
    let mut world = World::connected(Digests::NONE);
    let length = (CopyRange::COUNT_MAX * CopyRange::SIZE) as u32;
    let command = one.with_sgl(SglDescriptor::transport(length + 32));
    assert_eq!(world.ask(IO, command).status(), Status::INVALID_SGL_LENGTH.with_dnr());
    // More than MCL in all.
    world.put(Some(Namespace { blocks: BlockCount(1 << 20), ..namespace(1, 0, false) }));
    let (command, list) = copy(1 << 19, &[(0, 65_535), (0, 65_535), (0, 3)]);
    let entry = asked(&mut world, (command, list), false);
    assert_eq!(entry.status, too_large.with_dnr());
    assert!(world.log.is_empty());
}

#[test]
fn what_could_not_be_copied_is_told_with_the_first_range_that_is_not_whole() {
    for by_r2t in [false, true] {
        for failing in 0..REQUESTS {
            let mut world = World::connected(Digests::NONE);
            let before = world.volumes[0].clone();
            begun(&mut world, by_r2t, failing);
            let (why, status) = match failing % 2 {
                0 => (Failure::MediumRead, Status::UNRECOVERED_READ_ERROR),
                _ => (Failure::NoSpace, Status::CAPACITY_EXCEEDED.with_dnr()),
            };
            world.fail_next = Some(why);
            world.release_requests();
            world.run();
            let entry = world.said_one(IO).response();
            assert_eq!((entry.status, entry.result), (status, failing as u64 / 2));
            assert_copied(&world, &before, failing / 2, "what was copied stays");
            assert_eq!((world.log.len(), world.links[IO].connection.pages()), (failing + 1, 0));
        }
    }
    // A range of several parts is copied whole or not.
    let mut world = World::connected(Digests::NONE);
    world.hold_requests = true;
    begin(&mut world, copy(2040, &[(0, 2 * PART), (0, 1)]), false);
    (0..3).for_each(|_| world.release_requests());
    world.fail_next = Some(Failure::MediumWrite);
    world.release_requests();
    world.run();
    let entry = world.said_one(IO).response();
    assert_eq!((entry.status, entry.result), (Status::WRITE_FAULT, 0));
}

/// What ends a copy besides [`CHANGES`].
const MORE_CHANGES: [Change; 4] = [
    RESERVED_FOR_WRITES,
    (
        "a namespace that is read only",
        |world| world.put(Some(namespace(1, 0, true))),
        Status::NAMESPACE_WRITE_PROTECTED.with_dnr(),
    ),
    (
        "a namespace that ends before its last block",
        |world| {
            world.put(Some(Namespace { blocks: BlockCount(531), ..namespace(1, 0, false) }));
        },
        Status::LBA_OUT_OF_RANGE.with_dnr(),
    ),
    (
        "the same volume under another number",
        |world| {
            world.put(None);
            world.put(Some(Namespace { volume: VolumeId(2), ..namespace(1, 0, false) }));
        },
        Status::INVALID_NAMESPACE.with_dnr(),
    ),
];

#[test]
fn a_copy_is_judged_anew_before_each_request() {
    for (name, change, status) in CHANGES.into_iter().chain(MORE_CHANGES) {
        for (by_r2t, done) in (0..2 * REQUESTS).map(|n| (n % 2 == 0, n / 2)) {
            let mut world = World::connected(Digests::NONE);
            let before = world.volumes[0].clone();
            begun(&mut world, by_r2t, done);
            change(&mut world);
            world.release_requests();
            world.run();
            let entry = world.said_one(IO).response();
            let whole = done.div_ceil(2);
            let expected = match done + 1 == REQUESTS {
                true => (Status::SUCCESS, 0),
                false => (status, whole as u64),
            };
            assert_eq!((entry.status, entry.result), expected, "{name} after {done}");
            assert_copied(&world, &before, whole, name);
            assert_eq!(world.log.len(), done + 1, "{name}: no request more went below");
            assert_eq!(world.links[IO].connection.pages(), 0, "{name}");
        }
        // What changes while its ranges come is seen before anything begins.
        let mut world = World::connected(Digests::NONE);
        let (command, list) = copy(THREE.0, THREE.1);
        let r2t = world.ask(IO, command).r2t();
        change(&mut world);
        let told = world.granted(IO, &r2t, &list, 4096).status();
        let may_begin = name == "the same volume under another number";
        assert_eq!(told, if may_begin { Status::SUCCESS } else { status }, "{name}");
        assert_eq!(world.log.is_empty(), !may_begin, "{name}");
    }
}

/// One that grew, or shrank behind all its blocks, is the same.
#[test]
fn a_copy_goes_on_in_a_namespace_that_still_has_its_blocks() {
    for blocks in [BLOCKS - 1, 532, 2 * BLOCKS] {
        let mut world = World::connected(Digests::NONE);
        begun(&mut world, false, 1);
        world.put(Some(Namespace { blocks: BlockCount(blocks), ..namespace(1, 0, false) }));
        world.hold_requests = false;
        world.run();
        assert!(world.said_one(IO).status().is_success(), "{blocks} blocks");
    }
}

#[test]
fn a_copy_of_a_host_whose_commands_are_ended_ends_at_its_next_request() {
    for done in 0..REQUESTS {
        let mut world = two_registrants();
        let before = world.volumes[0].clone();
        begun(&mut world, done % 2 == 0, done);
        let (fence, data) = preempt_and_abort(7);
        assert!(world.ask_with(OTHER_IO, fence, &data).status().is_success());
        // Also if by then the reservation would let it write again.
        world.shard.reservations.set(VolumeId(0), reservation::Reservation::default());
        world.release_requests();
        world.run();
        let entry = world.said_one(IO).response();
        let whole = done.div_ceil(2);
        let expected = match done + 1 == REQUESTS {
            true => (Status::SUCCESS, 0),
            false => (Status::PREEMPTED, whole as u64),
        };
        assert_eq!((entry.status, entry.result), expected);
        assert_copied(&world, &before, whole, "of what was done nothing is lost");
    }
}

#[test]
fn a_copy_whose_connection_ends_asks_for_nothing_more() {
    type Cause = (&'static str, fn(&mut World));
    let causes: [Cause; 4] = [
        ("loss", |world| world.with(IO, |it, ctx| it.handle_lost(Loss::Error(104), ctx))),
        ("reset", |world| world.with(IO, |it, ctx| it.handle_close(CloseReason::Reset, ctx))),
        ("violation", |world| world.send(IO, &[0xff; 200])),
        ("stop", |world| {
            world.with(IO, |it, ctx| it.close(contract::SessionEnd::ServerStopping, ctx));
        }),
    ];
    for (name, cause) in causes {
        for (by_r2t, done) in (0..2 * REQUESTS).map(|n| (n % 2 == 0, n / 2)) {
            let mut world = World::connected(Digests::NONE);
            begun(&mut world, by_r2t, done);
            cause(&mut world);
            world.run();
            assert_eq!(world.links[IO].connection.pages(), COPY_PAGES, "{name}: one is below");
            world.release_requests();
            world.run();
            assert_eq!(world.log.len(), done + 1, "{name}");
            assert!(world.shard.below.held.is_empty(), "{name}");
            assert_eq!(world.links[IO].connection.pages(), 0, "{name}");
            assert_eq!(world.links[IO].connection.outstanding(), 0, "{name}");
        }
    }
}

/// 17: as any write.
#[test]
fn a_reset_is_answered_once_nothing_of_a_copy_is_below() {
    let mut world = World::connected(Digests::NONE);
    begun(&mut world, false, 2);
    let cc = Configuration(0).with_iosqes(6).with_iocqes(4);
    world.command(ADMIN, Command::property_set(0x14, cc.0).with_command_id(1));
    assert!(world.links[IO].pipe.close.is_some(), "the reset closes the I/O queue");
    world.closed(IO);
    assert_eq!(world.shard.shared.queue_count(), 2, "a part is below");
    world.release_requests();
    world.run();
    assert!(world.links[IO].connection.is_gone());
    assert_eq!((world.shard.shared.queue_count(), world.log.len()), (1, 3));
}

#[test]
fn an_abort_leaves_a_copy_as_it_is() {
    let mut world = World::connected(Digests::NONE);
    begun(&mut world, false, 2);
    let abort = world.ask(ADMIN, Command::abort(1, 0)).response();
    assert_eq!((abort.status, abort.result), (Status::SUCCESS, 1), "it is not aborted");
    world.hold_requests = false;
    world.run();
    assert!(world.said_one(IO).status().is_success());
}

#[test]
fn what_a_copy_holds_is_counted_in_the_pool_until_it_is_answered() {
    for by_r2t in [false, true] {
        let mut world = World::connected(Digests::NONE);
        begun(&mut world, by_r2t, 0);
        let class = if by_r2t { Class::Transfer } else { Class::Immediate };
        for _ in 0..REQUESTS {
            assert_eq!(world.links[IO].connection.pages_of(class), COPY_PAGES);
            assert_eq!(world.shard.pool.used(), COPY_PAGES);
            assert!(world.shard.memory.held() as u32 <= COPY_PAGES);
            world.release_requests();
        }
        assert_eq!(world.shard.pool.used(), 0);
    }
}

#[test]
fn a_copy_waits_for_its_memory_and_goes_on() {
    for by_r2t in [false, true] {
        let mut world = World::connected(Digests::NONE);
        let class = if by_r2t { Class::Transfer } else { Class::Immediate };
        let pages = hog(&mut world, class, 4096);
        let before = world.volumes[0].clone();
        let (command, list) = copy(THREE.0, THREE.1);
        match by_r2t {
            true => world.command(IO, command),
            false => world.command_with(IO, command, &list),
        }
        assert!(world.said(IO).is_empty() && world.log.is_empty());
        assert!(world.links[IO].connection.waits_for_memory(class));
        assert_eq!(world.links[IO].pipe.is_paused(), !by_r2t, "only a capsule stops the stream");
        give(&mut world, pages);
        assert!(!world.wake(IO));
        let said = world.said_one(IO);
        let status = match by_r2t {
            true => {
                let r2t = said.r2t();
                assert_eq!(r2t.length as usize, list.len(), "the ranges alone are asked for");
                world.granted(IO, &r2t, &list, 4096).status()
            }
            false => said.status(),
        };
        assert!(status.is_success());
        assert_copied(&world, &before, 3, "all of it");
    }
}

/// Each is more than the share of a connection that holds something already, in a pool so small.
#[test]
fn copies_that_find_no_memory_are_carried_out_one_after_the_other() {
    for by_r2t in [false, true] {
        let mut world = World::connected(Digests::NONE);
        world.hold_requests = true;
        let (command, list) = copy(THREE.0, THREE.1);
        let mut left = 8;
        for id in 0..left {
            let command = command.with_command_id(id);
            match by_r2t {
                true => world.command(IO, command),
                false => world.command_with(IO, command, &list),
            }
        }
        for _ in 0..10 * REQUESTS {
            for said in world.said(IO) {
                match said {
                    super::world::Said::R2T(r2t) => world.grant(IO, &r2t, &list, 4096),
                    said => {
                        assert!(said.status().is_success());
                        left -= 1;
                    }
                }
            }
            assert!(world.links[IO].connection.pages() <= COPY_PAGES);
            world.release_requests();
            world.wake(IO);
        }
        assert_eq!((left, world.log.len()), (0, 8 * REQUESTS), "nobody waits for ever");
    }
}

#[test]
fn memory_that_a_copy_turned_out_not_to_need_is_given_back() {
    let mut world = World::connected(Digests::NONE);
    let pages = hog(&mut world, Class::Immediate, 4096);
    let (command, list) = copy(THREE.0, THREE.1);
    world.command_with(IO, command, &list);
    assert!(world.links[IO].pipe.is_paused());
    world.put(Some(namespace(1, 0, true)));
    give(&mut world, pages);
    assert!(!world.wake(IO));
    assert_eq!(statuses(&mut world), [(0, Status::NAMESPACE_WRITE_PROTECTED.with_dnr())]);
    assert_eq!(world.links[IO].connection.pages(), 0);
    assert_eq!(COPY_MEMORY, (COPY_PAGES * 4096, 0));
}
