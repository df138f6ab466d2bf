//! How PDUs move: segments and sequences of reads, digests and padding, streams that are cut anywhere,
//! what is received straight into its buffer.

use block::limits::{DIRECT_ALONE_MIN, DIRECT_RECEIVE_MIN, TRANSFER_MAX};
use contract::Next;
use wire::iscsi::{Bhs, Digests, LoginFlags, R2t, RejectReason, Stage};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus, SenseKey};

use super::world::{
    ALL_DIGESTS, BOTH, HOST, Order, Said, TARGET, World, flush, pattern, read, refused, write,
};
use crate::limits::TURN_PDUS;

#[test]
fn a_read_is_one_data_in_that_bears_the_status() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        for bytes in [512, 4096, TRANSFER_MAX] {
            world.command(0, read(3, bytes), &[]);
            let Said::Data(header, data) = world.said_one(0) else { panic!("no data") };
            assert!(data[..] == world.volumes[0][1536..1536 + bytes as usize]);
            assert!(header.flags.is_status() && header.flags.is_final());
        }
    }
}

/// That segments follow one another and sequences end is what the host sees to.
#[test]
fn a_read_is_cut_into_what_its_host_takes() {
    for digests in [Digests::NONE, BOTH] {
        for (segment, burst) in
            [(512, 262_144), (1000, 512), (1001, 4096), (8192, 8000), (777, 1 << 20)]
        {
            let on = if digests.data { "CRC32C" } else { "None" };
            let (segment, burst) = (segment.to_string(), burst.to_string());
            let mut world = World::connected_with(&[
                ("HeaderDigest", on),
                ("DataDigest", on),
                ("MaxRecvDataSegmentLength", &segment),
                ("MaxBurstLength", &burst),
            ]);
            for bytes in [512, 4096, 20_480] {
                let (data, answer) = world.read_all(read(5, bytes));
                assert_eq!(answer.status(), ScsiStatus::GOOD);
                assert!(data[..] == world.volumes[0][2560..2560 + bytes as usize]);
            }
            // The data of a reply as well.
            let (data, answer) =
                world.read_all(Order::read(0, Cdb::report_opcodes(true, 8192), 8192));
            assert_eq!(answer.status(), ScsiStatus::GOOD);
            assert!(data.len() > 512);
        }
    }
}

#[test]
fn a_read_that_fails_has_a_response_and_no_data() {
    let mut world = World::connected(Default::default());
    world.fail_next = Some(block::Failure::MediumRead);
    let said = world.ask(read(0, 4096), &[]);
    refused(&said, SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR);
    assert!(world.lives());
}

/// One that is not read at all, and one of which only the middle is another's.
#[test]
fn a_wrong_data_digest_with_a_command_fails_it() {
    let mut world = World::connected(BOTH);
    let before = world.volumes[0].clone();
    for wrong in [52, 400, 563, 564, 567] {
        let (_, mut bytes) = world.links[0].host.command(write(0, 512), &pattern(512, 1), ());
        bytes[wrong] ^= 1;
        world.send(0, &bytes);
        let said = world.said_one(0);
        refused(&said, SenseKey::ABORTED_COMMAND, AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
    }
    assert!(world.log.is_empty() && world.volumes[0] == before);
    assert_eq!(world.links[0].connection.counters().corrupt, 5);
    assert!(world.lives());
}

#[test]
fn a_wrong_data_digest_of_data_that_were_asked_for_fails_their_command_once_all_came() {
    let digests = Digests { header: false, data: true };
    for large in [false, true] {
        let mut world = World::connected(digests);
        let before = world.volumes[0].clone();
        let r2t = world.ask(write(0, 131_072), &[]).r2t();
        let data = pattern(131_072, 2);
        let (head, tail) = data.split_at(if large { 100_000 } else { 4096 });
        let mut first = world.links[0].host.give(&r2t, 0, head);
        let middle = first.len() / 2;
        first[middle] ^= 4;
        // What has not arrived of it is received directly.
        let (seen, rest) = first.split_at(1000);
        world.send(0, seen);
        world.send(0, rest);
        assert_eq!(world.said(0), [], "the rest is on its way");
        let bytes = world.links[0].host.give(&r2t, head.len() as u32, tail);
        world.send(0, &bytes);
        let said = world.said_one(0);
        refused(&said, SenseKey::ABORTED_COMMAND, AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
        assert!(world.log.is_empty() && world.volumes[0] == before);
        assert!(world.lives());
    }
}

#[test]
fn a_wrong_data_digest_of_a_text_or_a_nop_ends_the_session() {
    for is_text in [false, true] {
        let mut world = World::connected(BOTH);
        let host = &mut world.links[0].host;
        let mut bytes =
            if is_text { host.text(b"a=b\0", None, ()).1 } else { host.nop(b"abcde", ()).1 };
        bytes[53] ^= 1;
        world.send(0, &bytes);
        assert_eq!(world.said_one(0).reject(), RejectReason::DATA_DIGEST_ERROR);
        assert_eq!(world.links[0].pipe.close, Some(true));
    }
}

#[test]
fn a_wrong_header_digest_ends_the_session() {
    let digests = Digests { header: true, data: false };
    for wrong in [16, 33, 48, 51] {
        let mut world = World::connected(digests);
        world.links[0].host.lenient = true;
        let (_, mut bytes) = world.links[0].host.command(read(0, 512), &[], ());
        bytes[wrong] ^= 1;
        world.send(0, &bytes);
        let said = world.said_one(0);
        assert_eq!(said.reject(), RejectReason::PROTOCOL_ERROR);
        let Said::Reject(_, header) = &said else { panic!("{said:?}") };
        assert_eq!(header[..], bytes[..48], "the header is sent back");
        assert_eq!(world.links[0].pipe.close, Some(true));
        assert!(world.log.is_empty());
    }
}

fn conversation(digests: Digests) -> (World, Vec<u8>, Vec<u8>) {
    let mut world = World::connected(digests);
    // R2Ts are answered before they are seen: slots and transfers are counted, so the tags are
    // known.
    let data = pattern(40_960, 5);
    let host = &mut world.links[0].host;
    host.lenient = true;
    let (tag, mut bytes) = host.command(write(200, 40_960), &[], ());
    let r2t = R2t::new([0; 8], tag, 0x0001_0000, 0, 0, 40_960, Default::default());
    bytes.extend(host.give(&r2t, 0, &data[..20_480]));
    bytes.extend(host.command(write(5, 4096), &data[..4096], ()).1);
    let mut rest = host.give(&r2t, 20_480, &data[20_480..]);
    let data_sn_at = 36;
    rest[data_sn_at + 3] = 1;
    if digests.header {
        let digest = block::checksum::crc32c(&rest[..Bhs::SIZE]).to_le_bytes();
        rest[Bhs::SIZE..Bhs::SIZE + 4].copy_from_slice(&digest);
    }
    bytes.extend(rest);
    bytes.extend(host.command(read(5, 8192), &[], ()).1);
    bytes.extend(host.nop(b"seven b", ()).1);
    bytes.extend(host.command(flush(), &[], ()).1);
    bytes.extend(host.command(Order::read(0, Cdb::inquiry(77), 77), &[], ()).1);
    (world, bytes, data)
}

#[test]
fn the_answers_do_not_depend_on_how_the_stream_is_cut() {
    for digests in ALL_DIGESTS {
        let (mut world, bytes, data) = conversation(digests);
        world.send(0, &bytes);
        let whole = world.said(0);
        assert_eq!(whole.len(), 7, "{whole:?}");
        assert!(world.volumes[0][102_400..][..data.len()] == data[..]);
        for cut in [1, 2, 7, 23, 49, 71, 1000, 16_385, 20_000] {
            let (mut world, bytes, _) = conversation(digests);
            world.links[0].cut = cut;
            world.send(0, &bytes);
            let mut said = world.said(0);
            // What each bears depends on what was answered before it was asked.
            assert_eq!(said.len(), whole.len(), "cut into pieces of {cut} with {digests:?}");
            said.retain(|said| matches!(said, Said::Data(..)));
            let data =
                said.iter().filter(|said| !matches!(said, Said::Data(_, data) if data.len() == 77));
            assert_eq!(data.count(), 1);
        }
    }
}

#[test]
fn every_cut_in_two_gives_the_same_answers() {
    let (mut world, bytes, _) = conversation(BOTH);
    world.send(0, &bytes);
    let whole: Vec<u32> = world.said(0).iter().map(Said::tag).collect();
    // Every byte of the first headers and of the digests at the seams; then here and there.
    let seams =
        (0..300).chain((300..bytes.len()).step_by(997)).chain(bytes.len() - 300..bytes.len());
    for cut in seams {
        let (mut world, bytes, data) = conversation(BOTH);
        let (head, tail) = bytes.split_at(cut);
        world.send(0, head);
        world.send(0, tail);
        let mut tags: Vec<u32> = world.said(0).iter().map(Said::tag).collect();
        let mut expected = whole.clone();
        tags.sort_unstable();
        expected.sort_unstable();
        assert_eq!(tags, expected, "cut at {cut}");
        assert!(world.volumes[0][102_400..][..data.len()] == data[..], "cut at {cut}");
    }
}

#[test]
fn what_has_not_arrived_of_a_large_payload_is_received_directly() {
    let mut world = World::connected(BOTH);
    for (bytes, directs) in [(TRANSFER_MAX, true), (DIRECT_RECEIVE_MIN, false)] {
        world.links[0].pipe.directs = 0;
        let r2t = world.ask(write(0, bytes), &[]).r2t();
        let data = pattern(bytes as usize, 3);
        let pdus = world.links[0].host.give_all(&r2t, &data, u32::MAX);
        let (head, rest) = pdus.split_at(1000);
        world.send(0, head);
        for piece in rest.chunks(100_000) {
            world.send(0, piece);
        }
        assert_eq!(world.links[0].pipe.directs > 0, directs);
        assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
        assert!(world.volumes[0][..data.len()] == data[..]);
    }
}

/// When `there` bytes of the data of the first of some writes have come, all of which were asked for:
/// what may come beside a direct receive, or else at least and at most to be received.
fn awaited(sizes: &[u32], there: u32) -> Result<u32, (u32, u32)> {
    let mut world = World::connected(Digests::NONE);
    let asked: Vec<R2t> =
        sizes.iter().map(|bytes| world.ask(write(0, *bytes), &[]).r2t()).collect();
    let data = pattern(sizes[0] as usize, 3);
    let pdu = world.links[0].host.give(&asked[0], 0, &data);
    let seen = &pdu[..Bhs::SIZE + there as usize];
    let awaited =
        world.with(0, |connection, ctx| match connection.handle_received(seen, ctx).next {
            Next::Direct(direct) => {
                let beside = direct.beside;
                // As if all had come: the buffer goes back.
                connection.handle_direct(direct, ctx);
                Ok(beside)
            }
            Next::Stream { at_least, at_most } => Err((at_least, at_most)),
            other => panic!("{other:?}"),
        });
    world.run();
    awaited
}

#[test]
fn a_payload_that_is_awaited_alone_comes_with_headers_and_one_of_several_with_all_there_is() {
    let alone = DIRECT_ALONE_MIN;
    let cases: [(&[u32], bool); 4] = [
        (&[alone], true),
        (&[alone - 512], false),
        (&[alone, alone], false),
        (&[alone, 16_384], false),
    ];
    for (sizes, headers_only) in cases {
        let beside = awaited(sizes, 1000).expect("a direct receive");
        assert_eq!(beside < 4096, headers_only, "{sizes:?}: {beside}");
        assert!(beside > 0);
    }
}

#[test]
fn the_rest_of_a_payload_is_received_at_once() {
    let left = DIRECT_RECEIVE_MIN - 512;
    let next = awaited(&[DIRECT_ALONE_MIN], DIRECT_ALONE_MIN - left);
    let (at_least, at_most) = next.expect_err("no direct receive");
    assert_eq!(at_least, left);
    assert!(at_most >= left, "{at_most}");
}

#[test]
fn data_of_different_commands_interleave() {
    let mut world = World::connected(Digests::NONE);
    let (a, b) = (world.ask(write(0, 16_384), &[]).r2t(), world.ask(write(100, 16_384), &[]).r2t());
    let (left, right) = (pattern(16_384, 1), pattern(16_384, 2));
    for at in (0..16_384).step_by(4096) {
        for (r2t, data) in [(&a, &left), (&b, &right)] {
            let bytes = world.links[0].host.give(r2t, at as u32, &data[at..at + 4096]);
            world.send(0, &bytes);
        }
    }
    assert_eq!(world.said(0).len(), 2);
    assert!(world.volumes[0][..16_384] == left[..]);
    assert!(world.volumes[0][51_200..][..16_384] == right[..]);
}

#[test]
fn answers_gather_while_a_batch_is_out() {
    let mut world = World::connected(Digests::NONE);
    world.links[0].hold_sends = true;
    world.links[0].batches.clear();
    for number in 0..20 {
        world.command(0, read(number * 8, 4096), &[]);
    }
    assert_eq!(
        world.links[0].connection.outstanding(),
        0,
        "a blocked send does not stop receiving"
    );
    assert_eq!(world.links[0].connection.pages(), 20, "memory is held until it left");
    world.release_sends(0);
    assert_eq!(world.said(0).len(), 20);
    assert_eq!(world.links[0].batches.len(), 2, "one that was out, one with all the rest");
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn a_turn_has_a_budget_and_the_rest_comes_in_the_next() {
    let mut world = World::connected(Digests::NONE);
    let ready = Order::new(0, Cdb::test_unit_ready());
    let mut all = Vec::new();
    // More than the window holds at once: each answer opens it in the same turn.
    for _ in 0..200 {
        all.extend(world.links[0].host.command(ready, &[], ()).1);
    }
    for _ in 0..2 * TURN_PDUS {
        all.extend(world.links[0].host.pong(&wire::iscsi::NopIn::ping(
            [0; 8],
            1,
            Default::default(),
        )));
    }
    world.send(0, &all);
    assert_eq!(world.said(0).len(), 200);
    assert!(world.links[0].pipe.yields >= 2, "{}", world.links[0].pipe.yields);
}

#[test]
fn a_host_that_never_says_how_much_it_takes_is_sent_what_the_standard_has() {
    let mut world = World::new();
    world.accept();
    let text = testkit::iscsi::text(&[("InitiatorName", HOST), ("TargetName", TARGET)]);
    let flags = LoginFlags::transit(Stage::SECURITY, Stage::FULL_FEATURE);
    let bytes = world.links[0].host.login(flags, &text, ());
    world.send(0, &bytes);
    assert!(world.said_one(0).login().is_success());
    world.command(0, read(0, 65_536), &[]);
    let said = world.said(0);
    assert_eq!(said.len(), 8);
    assert!(said.iter().all(|said| matches!(said, Said::Data(_, data) if data.len() == 8192)));
}

/// Longer CDBs and commands both ways: there are none for a disk.
#[test]
fn a_command_with_additional_headers_is_refused_and_harms_nothing() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        for data in [&[][..], &[1; 512]] {
            let order = if data.is_empty() { read(0, 512) } else { write(0, 512) };
            let (_, bytes) = world.links[0].host.command(order, data, ());
            let mut header = bytes[..48].to_vec();
            header[4] = 2;
            header.extend([0, 5, 2, 0, 0, 0, 2, 0]);
            let bytes = testkit::iscsi::seal(&header, data, digests);
            world.send(0, &bytes);
            let said = world.said_one(0);
            let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
            refused(&said, SenseKey::ILLEGAL_REQUEST, code);
        }
        assert!(world.lives());
    }
}
