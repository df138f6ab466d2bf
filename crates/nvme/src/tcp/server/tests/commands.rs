//! I/O commands: what each asks of its volume, and with which status it is refused.

use block::limits::TRANSFER_MAX;
use block::{BlockCount, Failure};
use wire::nvme::command::{Fuse, IoOpcode, NSID_ALL, SglDescriptor, SglKind};
use wire::nvme::identify::Cns;
use wire::nvme::log::{ErrorEntry, LogId, Smart};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::transfer::{ADMIN, IO};
use super::world::{ALL_DIGESTS, BOTH, Said, VOLUME, World, capsule, namespace, pattern};
use crate::subsystem::Namespace;

const BLOCKS: u64 = (VOLUME / 512) as u64;

/// The status of one command on a fresh queue.
fn status(command: Command) -> Status {
    status_with(command, &[])
}

fn status_with(command: Command, data: &[u8]) -> Status {
    let mut world = World::connected(Digests::NONE);
    if data.is_empty() {
        world.command(IO, command);
    } else {
        world.command_with(IO, command, data);
    }
    let said = world.said(IO);
    let status = said.last().expect("an answer").status();
    assert!(status.is_success() || world.log.is_empty(), "refused commands go nowhere");
    status
}

fn dnr(status: Status) -> Status {
    status.with_dnr()
}

/// 25: the edges of the namespace and of MDTS.
#[test]
fn reads_and_writes_end_at_the_last_block_and_at_mdts() {
    assert_eq!(status(Command::read(1, BLOCKS - 1, 1, 512)), Status::SUCCESS);
    assert_eq!(status(Command::read(1, BLOCKS, 1, 512)), dnr(Status::LBA_OUT_OF_RANGE));
    assert_eq!(status(Command::read(1, BLOCKS - 1, 2, 1024)), dnr(Status::LBA_OUT_OF_RANGE));
    assert_eq!(status(Command::read(1, u64::MAX, 1, 512)), dnr(Status::LBA_OUT_OF_RANGE));
    assert_eq!(
        status(Command::read(1, u64::MAX - 3, 65_536, 1 << 25)),
        dnr(Status::LBA_OUT_OF_RANGE)
    );
    assert_eq!(status(Command::read(1, 0, 2048, TRANSFER_MAX)), Status::SUCCESS);
    let beyond = TRANSFER_MAX + 512;
    assert_eq!(status(Command::read(1, 0, 2049, beyond)), dnr(Status::INVALID_FIELD));
    assert_eq!(status(Command::write(1, 0, 2049, beyond)), dnr(Status::INVALID_FIELD));
}

#[test]
fn the_sgl_is_as_long_as_the_blocks() {
    assert_eq!(status(Command::read(1, 0, 2, 512)), dnr(Status::INVALID_SGL_LENGTH));
    assert_eq!(status(Command::write(1, 0, 1, 0)), dnr(Status::INVALID_SGL_LENGTH));
    let data = pattern(1024, 0);
    assert_eq!(status_with(Command::write(1, 0, 1, 0), &data), dnr(Status::INVALID_SGL_LENGTH));
    let mut world = World::connected(Digests::NONE);
    // The SGL promises 4096 bytes and the capsule holds 512.
    let command = Command::write(1, 0, 8, 4096).with_sgl(SglDescriptor::in_capsule(4096));
    let bytes = capsule(command, &data[..512], Digests::NONE);
    world.send(IO, &bytes);
    assert_eq!(world.said_one(IO).status(), dnr(Status::INVALID_SGL_LENGTH));
    // Data in the capsule of a command that does not say so.
    let bytes = capsule(Command::write(1, 0, 1, 512), &data[..512], Digests::NONE);
    world.send(IO, &bytes);
    assert_eq!(world.said_one(IO).status(), dnr(Status::INVALID_SGL_LENGTH));
}

#[test]
fn the_data_pointer_is_an_sgl_that_tcp_knows() {
    let mut prp = Command::read(1, 0, 1, 512);
    prp.0[1] = 0;
    assert_eq!(status(prp), dnr(Status::INVALID_FIELD));
    let keyed = SglDescriptor { address: 0, length: 512, kind: SglKind::KEYED };
    assert_eq!(status(Command::read(1, 0, 1, 512).with_sgl(keyed)), dnr(Status::INVALID_SGL_TYPE));
    let offset = SglDescriptor { address: 4, length: 512, kind: SglKind::IN_CAPSULE };
    let command = Command::write(1, 0, 1, 512).with_sgl(offset);
    assert_eq!(status(command), dnr(Status::INVALID_SGL_OFFSET));
    let here = SglDescriptor { address: 0, length: 0, kind: SglKind::IN_CAPSULE };
    assert_eq!(status(Command::flush(1).with_sgl(here)), Status::SUCCESS);
}

#[test]
fn unknown_opcodes_and_namespaces_are_refused() {
    for opcode in [IoOpcode::WRITE_UNCORRECTABLE, IoOpcode(0x93)] {
        for nsid in [1, 0] {
            let command = Command::new(opcode.0).with_nsid(nsid);
            assert_eq!(status(command), dnr(Status::INVALID_OPCODE), "{opcode} of {nsid}");
        }
    }
    for nsid in [0, 3, 6, 1025, 0xffff_fffe, NSID_ALL] {
        assert_eq!(
            status(Command::read(nsid, 0, 1, 512)),
            dnr(Status::INVALID_NAMESPACE),
            "{nsid}"
        );
    }
}

#[test]
fn a_read_only_namespace_takes_nothing_that_writes() {
    let protected = dnr(Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(status(Command::read(2, 0, 1, 512)), Status::SUCCESS);
    assert_eq!(status_with(Command::write(2, 0, 1, 512), &pattern(512, 0)), protected);
    assert_eq!(status(Command::write_zeroes(2, 0, 1, true)), protected);
    assert_eq!(status_with(Command::dataset_management(2, 1, true), &[0; 16]), protected);
}

#[test]
fn what_the_volume_could_not_do_is_a_status_of_the_command() {
    let mut world = World::connected_with(Digests::NONE, 31, true);
    for (why, expected) in [
        (Failure::MediumRead, Status::UNRECOVERED_READ_ERROR),
        (Failure::Internal, Status::INTERNAL_ERROR),
        (Failure::NotReady, Status::NAMESPACE_NOT_READY),
    ] {
        world.fail_next = Some(why);
        assert_eq!(world.ask(IO, Command::read(1, 0, 1, 512)).status(), expected);
    }
    world.fail_next = Some(Failure::NoSpace);
    assert_eq!(
        world.ask_with(IO, Command::write(1, 0, 1, 512), &[1; 512]).status(),
        dnr(Status::CAPACITY_EXCEEDED)
    );
    assert_eq!(world.links[IO].connection.counters().failed, 4);
}

/// 26: deallocated ranges, in the capsule or asked for, and zeroes read as zeros.
#[test]
fn discards_and_zeroes_read_as_zeros() {
    let mut world = World::connected(BOTH);
    let range = |lba: u64, blocks: u32| {
        let mut bytes = [0; 16];
        bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&lba.to_le_bytes());
        bytes
    };
    let ranges = [range(8, 8), range(0, 0), range(100, 1)].concat();
    assert_eq!(
        world.ask_with(IO, Command::dataset_management(1, 3, true), &ranges).status(),
        Status::SUCCESS
    );
    assert!(world.volumes[0][4096..8192].iter().all(|byte| *byte == 0));
    assert!(world.volumes[0][51_200..51_712].iter().all(|byte| *byte == 0));
    // Linux sends room for 256 ranges however many there are.
    let mut all = range(200, 4).to_vec();
    all.resize(4096, 0);
    let command = Command::dataset_management(1, 1, true).with_sgl(SglDescriptor::transport(4096));
    let r2t = world.ask(IO, command).r2t();
    assert_eq!(world.granted(IO, &r2t, &all, 4096).status(), Status::SUCCESS);
    assert!(world.volumes[0][102_400..104_448].iter().all(|byte| *byte == 0));
    assert_eq!(
        world.ask(IO, Command::write_zeroes(1, 1000, 65_536 / 512, false)).status(),
        Status::SUCCESS
    );
    assert!(world.volumes[0][512_000..512_000 + 65_536].iter().all(|byte| *byte == 0));
    assert_eq!(world.log, ["discard", "discard", "write zeroes"]);
}

#[test]
fn the_ranges_of_a_discard_are_counted_in_the_pool_until_it_is_answered() {
    let mut world = World::connected(BOTH);
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&8u32.to_le_bytes());
    world.hold_requests = true;
    for id in 0..4 {
        let command = Command::dataset_management(1, 1, true).with_command_id(id);
        if id < 2 {
            world.command_with(IO, command, &range);
        } else {
            let command = command.with_sgl(SglDescriptor::transport(4096));
            let r2t = world.ask(IO, command).r2t();
            let mut all = range.to_vec();
            all.resize(4096, 0);
            world.grant(IO, &r2t, &all, 4096);
        }
        assert!(world.said(IO).is_empty(), "it is with the volume");
        assert_eq!(world.shard.pool.used(), u32::from(id) + 1);
    }
    world.release_requests();
    world.run();
    let statuses: Vec<_> = world.said(IO).iter().map(|said| said.status()).collect();
    assert_eq!(statuses, [Status::SUCCESS; 4]);
    assert_eq!(world.shard.pool.used(), 0);
}

#[test]
fn dataset_management_checks_all_ranges_and_hints_change_nothing() {
    let bad = [[0; 16], [0xff; 16]].concat();
    assert_eq!(
        status_with(Command::dataset_management(1, 2, true), &bad),
        dnr(Status::LBA_OUT_OF_RANGE)
    );
    assert_eq!(
        status_with(Command::dataset_management(1, 2, true), &bad[..16]),
        dnr(Status::INVALID_SGL_LENGTH)
    );
    let mut world = World::connected(Digests::NONE);
    assert_eq!(
        world.ask_with(IO, Command::dataset_management(1, 1, false), &[0; 16]).status(),
        Status::SUCCESS
    );
    assert!(world.log.is_empty());
}

/// 27: compare, with data in the capsule and asked for.
#[test]
fn compare_tells_equal_from_different() {
    let mut world = World::connected(Digests::NONE);
    let same = world.volumes[0][..16_384].to_vec();
    assert_eq!(
        world.ask_with(IO, Command::compare(1, 0, 8, 4096), &same[..4096]).status(),
        Status::SUCCESS
    );
    let r2t = world.ask(IO, Command::compare(1, 0, 32, 16_384)).r2t();
    let mut other = same.clone();
    other[16_000] ^= 1;
    assert_eq!(world.granted(IO, &r2t, &other, 4096).status(), Status::COMPARE_FAILURE);
}

/// 28: verify goes to the media.
#[test]
fn verify_goes_to_the_volume() {
    let mut world = World::connected(Digests::NONE);
    assert_eq!(world.ask(IO, Command::verify(1, 0, 65_536 / 512)).status(), Status::SUCCESS);
    world.fail_next = Some(Failure::MediumRead);
    assert_eq!(world.ask(IO, Command::verify(1, 0, 1)).status(), Status::UNRECOVERED_READ_ERROR);
    assert_eq!(world.log, ["verify", "verify"]);
}

#[test]
fn a_flush_of_all_namespaces_flushes_each_and_fails_if_one_fails() {
    let mut world = World::connected(Digests::NONE);
    assert_eq!(world.ask(IO, Command::flush(NSID_ALL)).status(), Status::SUCCESS);
    assert_eq!(world.log, ["flush"; 3]);
    world.fail_next = Some(Failure::MediumWrite);
    assert_eq!(world.ask(IO, Command::flush(NSID_ALL)).status(), Status::WRITE_FAULT);
}

#[test]
fn fua_reaches_the_volume() {
    let mut world = World::connected(Digests::NONE);
    world.hold_requests = true;
    let command = Command::write(1, 0, 1, 512).with_force_unit_access(true);
    world.command_with(IO, command, &[1; 512]);
    let (_, request) = &world.shard.below.held[0];
    assert!(matches!(request.operation, block::Operation::Write { durable: true, .. }));
}

#[test]
fn a_cid_in_use_is_a_conflict_and_free_again_after_the_answer() {
    let mut world = World::connected(Digests::NONE);
    world.hold_requests = true;
    world.command(IO, Command::read(1, 0, 1, 512).with_command_id(7));
    assert_eq!(
        world.ask(IO, Command::read(1, 8, 1, 512).with_command_id(7)).status(),
        dnr(Status::COMMAND_ID_CONFLICT)
    );
    world.hold_requests = false;
    world.release_requests();
    world.run();
    assert_eq!(world.said(IO).len(), 2);
    world.command(IO, Command::read(1, 8, 1, 512).with_command_id(7));
    assert_eq!(world.said(IO).len(), 2);
}

#[test]
fn commands_complete_in_the_order_of_the_volume() {
    let mut world = World::connected(Digests::NONE);
    world.hold_requests = true;
    for command_id in 0..4 {
        world.command(IO, Command::read(1, 0, 1, 512).with_command_id(command_id));
    }
    world.shard.below.held.make_contiguous().reverse();
    world.release_requests();
    world.run();
    let order: Vec<u16> = world
        .said(IO)
        .iter()
        .filter_map(|said| match said {
            Said::Data(header, _) => Some(header.command_id),
            _ => None,
        })
        .collect();
    assert_eq!(order, [3, 2, 1, 0]);
}

#[test]
fn a_namespace_that_shrinks_ends_where_it_ends_now() {
    let mut world = World::connected(Digests::NONE);
    world.put(Some(Namespace { blocks: BlockCount(8), ..namespace(1, 0, false) }));
    assert_eq!(world.ask(IO, Command::read(1, 8, 1, 512)).status(), dnr(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn fuse_has_three_values() {
    let command = Command::read(1, 0, 1, 512).with_fuse(Fuse(3));
    assert_eq!(status(command), dnr(Status::INVALID_FIELD));
}

#[test]
fn admin_data_leave_before_their_response() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        world.command(0, Command::identify(Cns::CONTROLLER, 0).with_command_id(3));
        let said = world.said(0);
        let [Said::Data(header, data), Said::Response(entry)] = &said[..] else {
            panic!("{said:?}")
        };
        assert_eq!((header.length, data.len()), (4096, 4096));
        assert!(header.is_last() && !header.is_success() && entry.status.is_success());
        let short = Command::identify(Cns::CONTROLLER, 0).with_sgl(SglDescriptor::transport(512));
        assert_eq!(world.ask(0, short).status(), dnr(Status::INVALID_SGL_LENGTH));
    }
}

#[test]
fn admin_data_of_the_host_may_be_asked_for() {
    let mut world = World::connected(Digests::NONE);
    // Set Features, Timestamp: 8 bytes from the host.
    let r2t = world.ask(0, Command::set_features(0x0e, 0, 0, 8).with_command_id(3)).r2t();
    let entry = world.granted(0, &r2t, &[1, 2, 3, 4, 5, 6, 0, 0], 8).response();
    assert_eq!(entry.command_id, 3);
    let large = Command::set_features(0x0e, 0, 0, 8193);
    assert_eq!(world.ask(0, large).status(), dnr(Status::INVALID_SGL_LENGTH));
}

#[test]
fn a_command_without_data_may_leave_its_descriptor_out() {
    let zeros = SglDescriptor { address: 0, length: 0, kind: SglKind(0) };
    assert_eq!(status(Command::flush(1).with_sgl(zeros)), Status::SUCCESS);
    let verify = Command::new(IoOpcode::VERIFY.0).with_nsid(1).with_sgl(zeros);
    assert_eq!(status(verify), Status::SUCCESS);
    let read = Command::read(1, 0, 1, 512);
    assert_eq!(status(read.with_sgl(zeros)), dnr(Status::INVALID_SGL_LENGTH));
    let prp = SglDescriptor { length: 512, ..zeros };
    assert_eq!(status(read.with_sgl(prp)), dnr(Status::INVALID_SGL_TYPE));
}

/// Reads the error log and the health log of a host's only controller.
pub(super) fn logs(world: &mut World) -> (Vec<ErrorEntry>, Smart) {
    let mut read = |id, bytes| {
        world.command(ADMIN, Command::get_log(id, NSID_ALL, 0, bytes, true).with_command_id(99));
        match world.said(ADMIN).swap_remove(0) {
            Said::Data(_, data) => data,
            other => panic!("{other:?} is no log"),
        }
    };
    let entries = read(LogId::ERROR, 1024);
    let entries = entries.as_chunks::<{ ErrorEntry::SIZE }>().0.iter();
    let entries = entries.map(|entry| ErrorEntry::parse(entry).expect("an entry"));
    let entries = entries.filter(|entry| entry.error_count != 0).collect();
    (entries, Smart::parse(&read(LogId::SMART, 512)).expect("health"))
}

#[test]
fn failed_io_is_in_the_error_log() {
    let mut world = World::connected(Digests::NONE);
    world.command(IO, Command::read(1, BLOCKS, 1, 512).with_command_id(5));
    world.fail_next = Some(Failure::MediumRead);
    world.command(IO, Command::read(1, 40, 1, 512).with_command_id(6));
    world.command(IO, Command::read(9, 3, 1, 512).with_command_id(7));
    assert_eq!(world.said(IO).len(), 3);
    let (entries, smart) = logs(&mut world);
    let facts = |entry: &ErrorEntry| {
        let place = (entry.queue_id, entry.command_id, entry.nsid, entry.lba);
        (entry.error_count, place, entry.status())
    };
    let expected = [
        (3, (1, 7, 9, 3), dnr(Status::INVALID_NAMESPACE)),
        (2, (1, 6, 1, 40), Status::UNRECOVERED_READ_ERROR),
        (1, (1, 5, 1, BLOCKS), dnr(Status::LBA_OUT_OF_RANGE)),
    ];
    assert_eq!(entries.iter().map(facts).collect::<Vec<_>>(), expected);
    assert_eq!((smart.error_entries, smart.media_errors), (3, 1));
}

#[test]
fn health_counts_what_hosts_read_and_wrote() {
    let mut world = World::connected(Digests::NONE);
    for _ in 0..3 {
        world.command(IO, Command::read(1, 0, 1024, 1 << 19));
    }
    world.command_with(IO, Command::write(1, 0, 1, 512), &pattern(512, 0));
    world.command_with(IO, Command::compare(1, 0, 1, 512), &pattern(512, 0));
    world.command(IO, Command::flush(1));
    world.said(IO);
    let (_, smart) = logs(&mut world);
    assert_eq!((smart.host_reads, smart.host_writes), (4, 1));
    // 3 * 1024 + 1 blocks, and one: in thousands, rounded up.
    assert_eq!((smart.data_units_read, smart.data_units_written), (4, 1));
}

/// The host could not know of the event when it sent the command.
#[test]
fn an_event_that_was_not_sent_is_sent_before_a_command_with_its_cid_is_taken() {
    let mut world = World::connected(Digests::NONE);
    world.ask(ADMIN, Command::set_features(0x0b, 0, 1 << 8, 0).with_command_id(7));
    world.command(ADMIN, Command::async_event_request().with_command_id(5));
    assert_eq!(world.said(ADMIN), []);
    world.put(None);
    world.command(ADMIN, Command::keep_alive().with_command_id(5));
    let said = world.said(ADMIN);
    let results = said.iter().map(|said| (said.status(), said.response().result > 0));
    assert_eq!(results.collect::<Vec<_>>(), [(Status::SUCCESS, true), (Status::SUCCESS, false)]);
    assert_eq!(world.links[ADMIN].connection.counters().forgotten, 0);
}

#[test]
fn a_command_with_the_cid_of_a_held_event_request_is_taken_and_the_request_forgotten() {
    let mut world = World::connected(Digests::NONE);
    let request = Command::async_event_request().with_command_id(5);
    let (alive, conflict) = (Command::keep_alive(), dnr(Status::COMMAND_ID_CONFLICT));
    world.command(ADMIN, request);
    assert_eq!(world.said(ADMIN), []);
    assert_eq!(world.ask(ADMIN, request).status(), conflict, "two requests of one CID");
    world.command(ADMIN, Command::async_event_request().with_command_id(6));
    assert_eq!(world.ask(ADMIN, alive.with_command_id(5)).status(), Status::SUCCESS);
    assert_eq!(world.links[ADMIN].connection.counters().forgotten, 1);
    // The CID is free again, and the other request is told what happens.
    assert_eq!(world.ask(ADMIN, alive.with_command_id(5)).status(), Status::SUCCESS);
    world.ask(ADMIN, Command::set_features(0x0b, 0, 1 << 8, 0).with_command_id(7));
    world.put(None);
    world.run();
    let told = world.said(ADMIN);
    assert_eq!(told.iter().map(|said| said.response().command_id).collect::<Vec<_>>(), [6]);
    // Any other CID in use stays a conflict, an Asynchronous Event Request's too.
    world.hold_requests = true;
    world.command(IO, Command::read(1, 0, 1, 512).with_command_id(5));
    assert_eq!(world.links[ADMIN].connection.counters().forgotten, 1);
}
