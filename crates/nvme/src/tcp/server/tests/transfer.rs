//! How data move: in capsules, by R2T, with digests, in pieces of every size.

use block::checksum::crc32c;
use block::limits::{DIRECT_ALONE_MIN, DIRECT_RECEIVE_MIN, TRANSFER_MAX};
use contract::Next;
use wire::nvme::command::SglDescriptor;
use wire::nvme::{Command, Status};
use wire::nvme_tcp::{CommonHeader, DataHeader, Digests, ICReq, PduFlags};

use super::world::{
    ALL_DIGESTS, BOTH, SUBSYSTEM, Said, VOLUME, World, capsule, host_data, pattern,
};
use crate::limits::{CAPSULE_DATA_MAX, TURN_PDUS};
use crate::tcp::server::Settings;

pub(super) const IO: usize = 1;
/// The admin queue of such a world.
pub(super) const ADMIN: usize = 0;

fn read(lba: u64, bytes: u32) -> Command {
    Command::read(1, lba, bytes / 512, bytes)
}

fn write(lba: u64, bytes: u32) -> Command {
    Command::write(1, lba, bytes / 512, bytes)
}

/// 3, 45: data come in one C2HData without padding, then the response, with every combination of
/// digests.
#[test]
fn a_read_is_one_c2hdata_and_a_response() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        for (command_id, bytes) in [(1, 512), (2, 4096), (3, TRANSFER_MAX)] {
            world.command(IO, read(3, bytes).with_command_id(command_id));
            let said = world.said(IO);
            let [Said::Data(header, data), Said::Response(entry)] = &said[..] else {
                panic!("{said:?}")
            };
            assert_eq!(data[..], world.volumes[0][1536..1536 + bytes as usize]);
            assert_eq!((header.command_id, header.offset, header.length), (command_id, 0, bytes));
            assert!(header.is_last() && !header.is_success());
            assert_eq!((entry.command_id, entry.status), (command_id, Status::SUCCESS));
        }
    }
}

/// 10: SUCCESS stands for the response only where the host disabled SQ flow control; SQHD is 0xffff
/// then.
#[test]
fn success_stands_for_the_response_only_without_flow_control() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected_with(digests, 31, true);
        world.command(IO, read(8, 4096).with_command_id(1));
        let Said::Data(header, _) = world.said_one(IO) else { panic!("no data") };
        assert!(header.common.flags.contains(PduFlags::LAST | PduFlags::SUCCESS));
        assert_eq!(world.ask(IO, Command::flush(1).with_command_id(2)).response().sq_head, 0xffff);
        world.command(IO, read(VOLUME as u64, 512).with_command_id(3));
        assert!(
            !world.said_one(IO).status().is_success(),
            "a failed read has a response and no data"
        );
    }
}

/// 11: SQHD counts completions modulo the size of the queue.
#[test]
fn sqhd_advances_with_each_completion_and_wraps() {
    let mut world = World::connected_with(Digests::NONE, 3, false);
    // Connect took the first entry.
    for expected in [2, 3, 0, 1, 2, 3, 0] {
        world.command(IO, read(0, 512));
        let said = world.said(IO);
        assert_eq!(said[1].response().sq_head, expected);
    }
}

/// 6: in-capsule data of 512, 4096 and 8192 bytes; one block more must not come in a capsule.
#[test]
fn writes_in_capsules_up_to_the_limit() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        for bytes in [512, 4096, CAPSULE_DATA_MAX] {
            let data = pattern(bytes as usize, bytes as usize);
            assert_eq!(world.ask_with(IO, write(17, bytes), &data).status(), Status::SUCCESS);
            assert_eq!(world.volumes[0][17 * 512..][..data.len()], data);
        }
        let more = CAPSULE_DATA_MAX + 512;
        assert_eq!(world.ask_with(IO, write(17, more), &pattern(more as usize, 0)).term().fes.0, 5);
    }
}

#[test]
fn admin_data_beside_their_capsule_are_no_more_than_fit_one() {
    let command = |length| Command::set_features(0xc0, 0, 0, length);
    for length in [4, CAPSULE_DATA_MAX] {
        let mut world = World::connected(Digests::NONE);
        let data = pattern(length as usize, 1);
        let r2t = world.ask(ADMIN, command(length)).r2t();
        let status = world.granted(ADMIN, &r2t, &data, 4096).status();
        assert_eq!(status, world.ask_with(ADMIN, command(0), &data).status());
        assert_eq!(status, Status::INVALID_FIELD.with_dnr());
    }
    let mut world = World::connected(Digests::NONE);
    let status = world.ask(ADMIN, command(CAPSULE_DATA_MAX + 4)).status();
    assert_eq!(status, Status::INVALID_SGL_LENGTH.with_dnr());
}

/// 5: data with a wrong digest never land; the command fails with 0x022 and the connection stays.
#[test]
fn a_wrong_data_digest_in_a_capsule_is_a_transient_transport_error() {
    let digests = BOTH;
    let mut world = World::connected(digests);
    let before = world.volumes[0].clone();
    let command = write(0, 4096).with_sgl(SglDescriptor::in_capsule(4096)).with_command_id(5);
    let mut bytes = capsule(command, &pattern(4096, 1), digests);
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    world.send(IO, &bytes);
    let entry = world.said_one(IO).response();
    assert_eq!((entry.command_id, entry.status), (5, Status::TRANSIENT_TRANSPORT_ERROR));
    assert!(world.log.is_empty() && world.volumes[0] == before);
    world.command(IO, read(0, 512));
    assert_eq!(world.said(IO).len(), 2, "the connection stays");
    assert_eq!(world.links[IO].connection.counters().corrupt, 1);
}

#[test]
fn a_wrong_data_digest_of_h2cdata_is_a_transient_transport_error_once_all_came() {
    let digests = Digests { header: false, data: true };
    let mut world = World::connected(digests);
    let before = world.volumes[0].clone();
    let r2t = world.ask(IO, write(0, 65_536)).r2t();
    let data = pattern(65_536, 2);
    let mut first = host_data(&r2t, 0, &data[..32_768], false, digests);
    first[30_000] ^= 4;
    world.send(IO, &first);
    assert!(world.said(IO).is_empty(), "the rest is on its way");
    world.send(IO, &host_data(&r2t, 32_768, &data[32_768..], true, digests));
    assert_eq!(world.said_one(IO).status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(world.volumes[0] == before);
}

/// 7, 9: one R2T for the whole; data in one PDU or in many, from one byte to MAXH2CDATA.
#[test]
fn a_large_write_is_asked_for_with_one_r2t() {
    for digests in ALL_DIGESTS {
        for (bytes, chunk) in [
            (512, 512),
            (16_384, 4096),
            (131_072, 131_072),
            (131_072, 20_001),
            (TRANSFER_MAX, TRANSFER_MAX as usize),
        ] {
            let mut world = World::connected(digests);
            let r2t = world.ask(IO, write(9, bytes).with_command_id(77)).r2t();
            assert_eq!((r2t.command_id, r2t.offset, r2t.length), (77, 0, bytes));
            let data = pattern(bytes as usize, chunk);
            assert_eq!(world.granted(IO, &r2t, &data, chunk).status(), Status::SUCCESS);
            assert!(world.volumes[0][9 * 512..][..data.len()] == data[..]);
        }
    }
}

#[test]
fn what_has_not_arrived_of_a_large_payload_is_received_directly() {
    let mut world = World::connected(BOTH);
    for (bytes, directs) in [(TRANSFER_MAX, 1), (DIRECT_RECEIVE_MIN, 0)] {
        world.links[IO].pipe.directs = 0;
        let r2t = world.ask(IO, write(0, bytes)).r2t();
        let data = pattern(bytes as usize, 3);
        let pdu = host_data(&r2t, 0, &data, true, world.links[IO].digests);
        let (head, rest) = pdu.split_at(1000);
        world.send(IO, head);
        world.send(IO, rest);
        assert_eq!(world.links[IO].pipe.directs, directs);
        assert_eq!(world.said_one(IO).status(), Status::SUCCESS);
        assert!(world.volumes[0][..data.len()] == data[..]);
    }
}

/// When `there` bytes of the data of the first of some writes have come, all of which were asked for:
/// what may come beside a direct receive, or else at least and at most to be received.
fn awaited(sizes: &[u32], there: u32) -> Result<u32, (u32, u32)> {
    let mut world = World::connected(Digests::NONE);
    let mut asked = Vec::new();
    for (id, bytes) in (0..).zip(sizes) {
        asked.push(world.ask(IO, write(0, *bytes).with_command_id(id)).r2t());
    }
    let pdu = host_data(&asked[0], 0, &pattern(sizes[0] as usize, 3), true, Digests::NONE);
    let seen = &pdu[..DataHeader::SIZE + there as usize];
    let awaited =
        world.with(IO, |connection, ctx| match connection.handle_received(seen, ctx).next {
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

/// What is left of one that is too short for a direct receive is not received in small pieces.
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
    world.command(IO, write(0, 16_384).with_command_id(1));
    world.command(IO, write(100, 16_384).with_command_id(2));
    let said = world.said(IO);
    let (a, b) = (said[0].r2t(), said[1].r2t());
    let (left, right) = (pattern(16_384, 1), pattern(16_384, 2));
    for at in (0..16_384).step_by(4096) {
        let last = at == 12_288;
        let piece = at..at + 4096;
        let none = Digests::NONE;
        world.send(IO, &host_data(&a, at as u32, &left[piece.clone()], last, none));
        world.send(IO, &host_data(&b, at as u32, &right[piece], last, none));
    }
    assert_eq!(world.said(IO).len(), 2);
    assert!(world.volumes[0][..16_384] == left[..]);
    assert!(world.volumes[0][51_200..][..16_384] == right[..]);
}

fn conversation(digests: Digests) -> (World, Vec<u8>, Vec<u8>) {
    let mut world = World::new();
    world.settings = Settings { max_h2c_data: 65_536 };
    world.join(digests, 63, false);
    // R2Ts are answered before they are seen: slots are given from 0 on, so the tags are known.
    let r2t = wire::nvme_tcp::R2T::new(2, 0, 0, 40_960, digests);
    let data = pattern(40_960, 5);
    let in_capsule = |command: Command, data: &[u8]| {
        let command = command.with_sgl(SglDescriptor::in_capsule(data.len() as u32));
        capsule(command, data, digests)
    };
    let mut bytes = Vec::new();
    bytes.extend(capsule(write(200, 40_960).with_command_id(2), &[], digests));
    bytes.extend(host_data(&r2t, 0, &data[..20_480], false, digests));
    bytes.extend(in_capsule(write(5, 4096).with_command_id(3), &data[..4096]));
    bytes.extend(host_data(&r2t, 20_480, &data[20_480..], true, digests));
    bytes.extend(capsule(read(5, 8192).with_command_id(4), &[], digests));
    bytes.extend(capsule(Command::flush(1).with_command_id(5), &[], digests));
    bytes.extend(capsule(read(200, 512).with_command_id(6), &[], digests));
    (world, bytes, data)
}

#[test]
fn the_replies_do_not_depend_on_how_the_stream_is_cut() {
    for digests in ALL_DIGESTS {
        let (mut world, bytes, data) = conversation(digests);
        world.send(IO, &bytes);
        let whole = world.said(IO);
        assert_eq!(whole.len(), 8, "{whole:?}");
        assert!(world.volumes[0][102_400..][..data.len()] == data[..]);
        for cut in [1, 2, 7, 23, 71, 1000, 16_385, 20_000] {
            let (mut world, bytes, _) = conversation(digests);
            world.links[IO].cut = cut;
            world.send(IO, &bytes);
            assert!(world.said(IO) == whole, "cut into pieces of {cut} with {digests:?}");
        }
    }
}

#[test]
fn every_cut_in_two_gives_the_same_replies() {
    let digests = BOTH;
    let (mut world, bytes, _) = conversation(digests);
    world.send(IO, &bytes);
    let whole = world.said(IO);
    // Every byte of the first headers and of the digests at the seams; then here and there.
    let seams =
        (0..300).chain((300..bytes.len()).step_by(997)).chain(bytes.len() - 300..bytes.len());
    for cut in seams {
        let (mut world, bytes, _) = conversation(digests);
        let (head, tail) = bytes.split_at(cut);
        world.send(IO, head);
        world.send(IO, tail);
        assert!(world.said(IO) == whole, "cut at {cut}");
    }
}

#[test]
fn replies_gather_while_a_batch_is_out() {
    let mut world = World::connected(Digests::NONE);
    world.links[IO].hold_sends = true;
    world.links[IO].batches.clear();
    for command_id in 0..20 {
        world.command(IO, read(u64::from(command_id) * 8, 4096).with_command_id(command_id));
    }
    assert_eq!(
        world.links[IO].connection.outstanding(),
        0,
        "a blocked send does not stop receiving"
    );
    assert_eq!(world.links[IO].connection.pages(), 20, "memory is held until it left");
    world.release_sends(IO);
    assert_eq!(world.said(IO).len(), 40);
    assert_eq!(world.links[IO].batches.len(), 2, "one that was out, one with all the rest");
    assert_eq!(world.links[IO].connection.pages(), 0);
}

#[test]
fn a_turn_has_a_budget_and_the_rest_comes_in_the_next() {
    let mut world = World::connected_with(Digests::NONE, 1023, false);
    let one = capsule(Command::read(77, 0, 1, 512), &[], Digests::NONE);
    let count = 2 * TURN_PDUS as usize + 10;
    world.send(IO, &one.repeat(count));
    assert_eq!(world.said(IO).len(), count);
    assert_eq!(world.links[IO].pipe.yields, 2);
}

/// 45: data lie where HPDA asks for them: right behind the header for 0.
#[test]
fn data_begin_at_a_multiple_of_what_hpda_says() {
    for (hpda, digests) in
        [0, 1, 3, 14, 31].into_iter().flat_map(|hpda| ALL_DIGESTS.map(|all| (hpda, all)))
    {
        let mut world = World::new();
        let (_, controller) = world.connect_admin(Digests::NONE);
        let link = world.accept();
        let mut request = ICReq::new(digests, 0);
        request.host_data_alignment = hpda;
        world.send(link, &request.emit());
        assert!(matches!(world.said_one(link), Said::ICResp(_)));
        world.links[link].digests = digests;
        assert!(world.connect(link, SUBSYSTEM, controller, 15, false).status.is_success());
        world.command(link, Command::read(1, 8, 2, 1024));
        let sent = core::mem::take(&mut world.links[link].sent);
        let common = CommonHeader::parse(&sent).expect("a header");
        let payload = common.check(digests).expect("a PDU as negotiated");
        let header = 24 + digests.header_bytes();
        let data_at = header.next_multiple_of(4 * (u32::from(hpda) + 1));
        assert_eq!((payload.offset, payload.length), (data_at, 1024), "{hpda} {digests:?}");
        let (header, data_at) = (header as usize, data_at as usize);
        assert!(sent[header..data_at].iter().all(|byte| *byte == 0));
        let data = &sent[data_at..data_at + 1024];
        assert_eq!(data, &world.volumes[0][4096..5120]);
        if digests.header {
            assert_eq!(sent[24..28], crc32c(&sent[..24]).to_le_bytes());
        }
        if digests.data {
            assert_eq!(sent[data_at + 1024..][..4], crc32c(data).to_le_bytes());
        }
        assert_eq!(sent.len(), common.length as usize + header, "and the response");
    }
}
