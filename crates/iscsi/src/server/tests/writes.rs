//! How the data of a host come: with their command, unasked behind it, by R2T; and what becomes of data
//! that come otherwise than was agreed on. Spec: RFC 7143, 4.2.5.2, 11.7, 11.8.

use wire::iscsi::{DataOut, R2t, RejectReason};
use wire::scsi::{AdditionalSense, ScsiStatus, SenseKey};

use super::world::{ALL_DIGESTS, Said, VOLUME, World, pattern, refused, seal, write};
use crate::limits::{FIRST_BURST_MAX, SEGMENT_MAX};
use crate::server::Reason;

const SIZES: [u32; 11] =
    [512, 1024, 4096, 7680, 8192, 8704, 16_384, 65_536, 131_072, 262_656, 1 << 20];

/// All the ways in which a host may send its data.
fn ways() -> impl Iterator<Item = [(&'static str, &'static str); 2]> {
    let both = ["Yes", "No"];
    both.into_iter().flat_map(move |immediate| {
        both.map(|initial| [("ImmediateData", immediate), ("InitialR2T", initial)])
    })
}

#[test]
fn every_size_is_written_in_every_way() {
    for keys in ways() {
        for digests in ALL_DIGESTS {
            let on = |is_on| if is_on { "CRC32C" } else { "None" };
            let digests = [("HeaderDigest", on(digests.header)), ("DataDigest", on(digests.data))];
            for (first, burst) in [("512", "65536"), ("8192", "1048576"), ("65536", "262144")] {
                let more = [("FirstBurstLength", first), ("MaxBurstLength", burst)];
                let mut world = World::connected_with(&[keys, digests, more].concat());
                for (seed, bytes) in SIZES.into_iter().enumerate() {
                    let data = pattern(bytes as usize, seed);
                    let answer = world.write_all(write(9, bytes), &data);
                    assert_eq!(answer.status(), ScsiStatus::GOOD, "{keys:?} {more:?} {bytes}");
                    assert!(world.volumes[0][9 * 512..][..data.len()] == data[..]);
                }
            }
        }
    }
}

/// FirstBurstLength is 64 KiB where nobody speaks of it, which is more than we would offer.
#[test]
fn a_host_that_is_content_with_the_standard_sends_64_kib_with_a_command() {
    for keys in ways() {
        let mut world = World::connected_with(&keys);
        assert_eq!(world.links[0].host.agreed.first_burst, 65_536);
        assert_eq!(world.links[0].host.agreed.target_segment, SEGMENT_MAX);
        for cut in [usize::MAX, 5000] {
            world.links[0].cut = cut;
            for (seed, bytes) in SIZES.into_iter().enumerate() {
                let data = pattern(bytes as usize, seed);
                assert_eq!(world.write_all(write(9, bytes), &data).status(), ScsiStatus::GOOD);
                assert!(world.volumes[0][9 * 512..][..data.len()] == data[..]);
            }
        }
    }
}

#[test]
fn what_comes_with_a_command_is_no_request_for_more_than_is_missing() {
    let mut world = World::connected(Default::default());
    let data = pattern(65_536, 3);
    let r2t = world.ask(write(0, 65_536), &data[..4096]).r2t();
    assert_eq!((r2t.buffer_offset, r2t.desired_data_transfer_length), (4096, 61_440));
    assert_eq!(world.granted(&r2t, &data, 10_000).status(), ScsiStatus::GOOD);
    assert!(world.volumes[0][..65_536] == data[..]);
}

/// MaxOutstandingR2T is 1: each follows the data of the one before.
#[test]
fn a_write_is_asked_for_by_one_r2t_after_the_other() {
    for (burst, count) in [("65536", 16), ("131072", 8), ("1048576", 1), ("100000", 11)] {
        let keys = [("MaxBurstLength", burst), ("MaxOutstandingR2T", "8")];
        let mut world = World::connected_with(&keys);
        assert_eq!(world.links[0].host.agreed.max_outstanding_r2t, 1);
        let data = pattern(1 << 20, 4);
        world.command(0, write(0, 1 << 20), &[]);
        let mut r2ts = 0;
        loop {
            match world.said_one(0) {
                Said::R2t(r2t) => {
                    r2ts += 1;
                    world.grant(&r2t, &data, 8192);
                }
                answer => {
                    assert_eq!(answer.status(), ScsiStatus::GOOD);
                    break;
                }
            }
        }
        assert_eq!(r2ts, count, "{burst}");
        assert!(world.volumes[0][..1 << 20] == data[..]);
    }
}

fn violates(world: &mut World, bytes: &[u8], reason: RejectReason) {
    let before = world.log.len();
    world.send(0, bytes);
    assert_eq!(world.said_one(0).reject(), reason);
    assert_eq!(world.links[0].pipe.close, Some(true));
    assert!(matches!(world.links[0].connection.reason(), Some(Reason::Violation(_))));
    assert_eq!(world.log.len(), before, "nothing of it is written");
}

#[test]
fn more_data_with_a_command_than_the_first_burst_break_the_protocol() {
    for (keys, length) in [
        (&[("FirstBurstLength", "4096")][..], 4608),
        (&[("FirstBurstLength", "8192")], 8704),
        (&[("FirstBurstLength", "1048576")], FIRST_BURST_MAX as usize + 512),
        (&[], 66_048),
    ] {
        let mut world = World::connected_with(keys);
        let order = write(0, 131_072);
        let (_, bytes) = world.links[0].host.command(order, &pattern(length, 1), ());
        violates(&mut world, &bytes, RejectReason::PROTOCOL_ERROR);
    }
}

#[test]
fn a_segment_beyond_what_we_take_breaks_the_protocol() {
    let mut world = World::connected(Default::default());
    let r2t = world.ask(write(0, 1 << 20), &[]).r2t();
    let bytes = world.links[0].host.give(&r2t, 0, &pattern(SEGMENT_MAX as usize + 4, 1));
    violates(&mut world, &bytes, RejectReason::PROTOCOL_ERROR);
}

const UNEXPECTED: AdditionalSense = AdditionalSense::UNEXPECTED_UNSOLICITED_DATA;

#[test]
fn data_with_a_command_that_were_not_agreed_to_fail_it() {
    for keys in [
        [("ImmediateData", "No"), ("InitialR2T", "Yes")],
        [("ImmediateData", "No"), ("InitialR2T", "No")],
    ] {
        let mut world = World::connected_with(&keys);
        for (bytes, with) in [(512, 512), (8192, 512), (65_536, 16_384)] {
            let said = world.ask(write(0, bytes), &pattern(with, 1));
            refused(&said, SenseKey::ABORTED_COMMAND, UNEXPECTED);
        }
        assert!(world.log.is_empty() && world.lives());
    }
}

#[test]
fn data_that_follow_unasked_where_that_was_not_agreed_to_fail_their_command() {
    for with in [0, 512, 16_384] {
        let mut world = World::connected_with(&[("InitialR2T", "Yes"), ("ImmediateData", "Yes")]);
        let data = pattern(65_536, 1);
        let tag = world.command(0, write(0, 65_536).unfinished(), &data[..with]);
        assert_eq!(world.said(0), [], "they are on their way");
        let host = &mut world.links[0].host;
        let mut bytes = host.unasked(tag, with as u32, &data[with..30_000], false);
        bytes.extend(host.unasked(tag, 30_000, &data[30_000..], true));
        world.send(0, &bytes);
        refused(&world.said_one(0), SenseKey::ABORTED_COMMAND, UNEXPECTED);
        assert!(world.log.is_empty() && world.lives());
    }
}

#[test]
fn fewer_data_than_were_announced_fail_their_command() {
    for (total, sent) in [(8192, 4096), (65_536, 4096), (65_536, 0)] {
        let mut world = World::connected(Default::default());
        let data = pattern(total as usize, 1);
        let tag = world.command(0, write(0, total).unfinished(), &[]);
        let bytes = world.links[0].host.unasked(tag, 0, &data[..sent], true);
        world.send(0, &bytes);
        let code = AdditionalSense::NOT_ENOUGH_UNSOLICITED_DATA;
        refused(&world.said_one(0), SenseKey::ABORTED_COMMAND, code);
        assert!(world.log.is_empty() && world.lives());
    }
}

#[test]
fn what_follows_unasked_is_the_first_burst_and_the_rest_is_asked_for() {
    let mut world = World::connected(Default::default());
    let data = pattern(20_480, 6);
    let tag = world.command(0, write(3, 20_480).unfinished(), &data[..512]);
    let host = &mut world.links[0].host;
    let mut bytes = host.unasked(tag, 512, &data[512..4096], false);
    bytes.extend(host.unasked(tag, 4096, &data[4096..8192], true));
    world.send(0, &bytes);
    let r2t = world.said_one(0).r2t();
    assert_eq!((r2t.buffer_offset, r2t.desired_data_transfer_length), (8192, 12_288));
    assert_eq!(world.granted(&r2t, &data, 5000).status(), ScsiStatus::GOOD);
    assert!(world.volumes[0][1536..][..data.len()] == data[..]);
}

#[test]
fn more_data_unasked_than_the_first_burst_break_the_protocol() {
    let mut world = World::connected(Default::default());
    let tag = world.command(0, write(0, 65_536).unfinished(), &pattern(512, 1));
    let bytes = world.links[0].host.unasked(tag, 512, &pattern(8192, 1), true);
    violates(&mut world, &bytes, RejectReason::PROTOCOL_ERROR);
}

/// A Data-Out with another number than the next one: its command fails once all its data came, and
/// nothing of them is written.
#[test]
fn data_out_of_their_order_never_end_good() {
    for wrong in [1, 2, 27, u32::MAX] {
        for at in [0, 1] {
            let mut world = World::connected(Default::default());
            let data = pattern(8192, 1);
            let r2t = world.ask(write(0, 8192), &[]).r2t();
            for (sn, offset) in [(0u32, 0), (1, 4096)] {
                let data_sn = if sn == at { sn.wrapping_add(wrong) } else { sn };
                let data = &data[offset as usize..][..4096];
                let header = DataOut::solicited(&r2t, data_sn, offset, 4096, sn == 1, 0);
                world.send(0, &seal(&header.emit(), data, Default::default()));
            }
            let code = AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR;
            refused(&world.said_one(0), SenseKey::ABORTED_COMMAND, code);
            assert!(world.log.is_empty() && world.lives());
        }
    }
}

#[test]
fn data_out_of_their_place_break_the_protocol() {
    for offset in [4, 4096, 8192, u32::MAX] {
        let mut world = World::connected(Default::default());
        let r2t = world.ask(write(0, 8192), &[]).r2t();
        let header = DataOut::solicited(&r2t, 0, offset, 4096, false, 0);
        let bytes = seal(&header.emit(), &pattern(4096, 1), Default::default());
        violates(&mut world, &bytes, RejectReason::PROTOCOL_ERROR);
    }
}

#[test]
fn more_data_than_were_asked_for_break_the_protocol() {
    let mut world = World::connected_with(&[("MaxBurstLength", "8192")]);
    let r2t = world.ask(write(0, 65_536), &[]).r2t();
    let header = DataOut::solicited(&r2t, 0, 0, 8196, true, 0);
    let bytes = seal(&header.emit(), &pattern(8196, 1), Default::default());
    violates(&mut world, &bytes, RejectReason::PROTOCOL_ERROR);
}

#[test]
fn data_of_another_task_than_the_one_that_was_asked_break_the_protocol() {
    let mut world = World::connected(Default::default());
    world.links[0].host.lenient = true;
    let r2t = world.ask(write(0, 8192), &[]).r2t();
    let other = R2t { initiator_task_tag: r2t.initiator_task_tag + 1, ..r2t };
    let header = DataOut::solicited(&other, 0, 0, 4096, false, 0);
    let bytes = seal(&header.emit(), &pattern(4096, 1), Default::default());
    violates(&mut world, &bytes, RejectReason::INVALID_PDU_FIELD);
}

/// They may be late, of a task that was aborted.
#[test]
fn data_that_nobody_asked_for_are_passed_over() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let tag = world.command(0, super::world::read(0, 4096), &[]);
    for transfer_tag in [0, 1, 0x0001_0000, 0xffff_fffe, u32::MAX] {
        let r2t = R2t::new([0; 8], tag, transfer_tag, 0, 0, 4096, Default::default());
        let header = DataOut::solicited(&r2t, 0, 0, 4096, true, 0);
        world.send(0, &seal(&header.emit(), &pattern(4096, 1), Default::default()));
        assert_eq!(world.said(0), []);
    }
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["read"]);
}

#[test]
fn data_after_the_last_are_passed_over() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let r2t = world.ask(write(0, 4096), &[]).r2t();
    for _ in 0..3 {
        let header = DataOut::solicited(&r2t, 0, 0, 4096, true, 0);
        world.send(0, &seal(&header.emit(), &pattern(4096, 1), Default::default()));
    }
    assert_eq!(world.shard.below.held.len(), 1);
    world.links[0].host.lenient = true;
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["write"]);
}

#[test]
fn a_data_out_without_data_is_a_data_out() {
    let mut world = World::connected(Default::default());
    let data = pattern(4096, 9);
    let r2t = world.ask(write(0, 4096), &[]).r2t();
    let parts = [(0, 0, 0, false), (1, 0, 4096, false), (2, 4096, 0, true)];
    for (sn, offset, length, is_final) in parts {
        let header = DataOut::solicited(&r2t, sn, offset, length, is_final, 0);
        world.send(0, &seal(&header.emit(), &data[..length as usize], Default::default()));
    }
    world.links[0].host.lenient = true;
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.volumes[0][..4096], data);
}

#[test]
fn writes_beyond_the_end_and_to_what_takes_none_ask_for_nothing() {
    let mut world = World::connected(Default::default());
    let last = (VOLUME / 512) as u32;
    let said = world.ask(write(last - 1, 65_536), &[]);
    refused(&said, SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE);
    let protected = super::world::Order { lun: wire::scsi::Lun::of(1).0, ..write(0, 65_536) };
    refused(&world.ask(protected, &[]), SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED);
    let absent = super::world::Order { lun: wire::scsi::Lun::of(7).0, ..write(0, 65_536) };
    let code = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
    refused(&world.ask(absent, &pattern(512, 1)), SenseKey::ILLEGAL_REQUEST, code);
    assert!(world.log.is_empty());
}
