//! Peers that break the rules, in every state: the connection ends with the right C2HTermReq and
//! nothing is lost.

use block::random::Random;
use wire::nvme::Command;
use wire::nvme::command::SglDescriptor;
use wire::nvme_tcp::{
    CommonHeader, DataHeader, Digests, FatalErrorStatus, ICReq, PduFlags, PduType, R2T,
};

use super::transfer::IO;
use super::world::{ALL_DIGESTS, World, capsule, host_data, pattern, seal, termination};
use crate::tcp::server::{Reason, Settings};

/// FES and FEI with which `bytes` end a queue that has a write of 16 KiB granted, whose R2T is
/// given.
fn ends_with(make: impl Fn(&R2T) -> Vec<u8>) -> (u16, u32) {
    let mut world = World::new();
    world.settings = Settings { max_h2c_data: 8192 };
    world.join(Digests::NONE, 63, false);
    let r2t = world.ask(IO, Command::write(1, 0, 32, 16_384).with_command_id(3)).r2t();
    let bytes = make(&r2t);
    world.send(IO, &bytes);
    let term = world.said_one(IO).term();
    assert_eq!(world.links[IO].pipe.close, Some(true));
    let header = usize::from(bytes[2]).clamp(8, bytes.len());
    assert_eq!(term.offending_header(), &bytes[..header.min(128)], "the header is sent back");
    assert!(world.log.is_empty());
    (term.fes.0, term.fei)
}

fn data(r2t: &R2T, change: impl Fn(&mut DataHeader), length: u32) -> Vec<u8> {
    let mut header =
        DataHeader::h2c(r2t.command_id, r2t.transfer_tag, 0, length, false, Digests::NONE);
    change(&mut header);
    seal(&header.emit(), &pattern(length as usize, 0), Digests::NONE)
}

/// 8, 9: tag, command, offset, length and LAST of H2CData.
#[test]
fn h2cdata_answers_its_r2t_and_nothing_else() {
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.transfer_tag += 1, 4096)), (1, 10));
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.transfer_tag = 0xffff, 4096)), (1, 10));
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.command_id += 1, 4096)), (1, 8));
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.offset = 4, 4096)), (4, 0));
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.length = 4095, 4096)), (1, 16));
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.offset = u32::MAX, 4096)), (4, 0));
    assert_eq!(ends_with(|r2t| data(r2t, |_| (), 8196)), (5, 0), "beyond MAXH2CDATA");
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.common.flags = PduFlags::LAST, 4096)), (1, 1));
    assert_eq!(ends_with(|r2t| data(r2t, |h| h.length = 0, 0)), (1, 16));
}

#[test]
fn h2cdata_beyond_its_r2t_are_out_of_range() {
    let mut world = World::new();
    world.settings = Settings { max_h2c_data: 8192 };
    world.join(Digests::NONE, 63, false);
    let r2t = world.ask(IO, Command::write(1, 0, 20, 10_240)).r2t();
    world.send(IO, &host_data(&r2t, 0, &pattern(8192, 0), false, Digests::NONE));
    world.send(IO, &host_data(&r2t, 8192, &pattern(2052, 0), true, Digests::NONE));
    assert_eq!(world.said_one(IO).term().fes.0, 4);
    assert!(world.log.is_empty());
}

#[test]
fn data_for_a_command_that_did_not_ask_are_refused() {
    let digests = Digests::NONE;
    let mut world = World::connected(digests);
    world.hold_requests = true;
    world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(1));
    let r2t = R2T::new(1, 0, 0, 4096, digests);
    world.send(IO, &host_data(&r2t, 0, &pattern(4096, 0), true, digests));
    assert_eq!(world.said_one(IO).term().fes, FatalErrorStatus::INVALID_HEADER_FIELD);
}

#[test]
fn data_after_the_last_are_refused() {
    let digests = Digests::NONE;
    let mut world = World::connected(digests);
    world.hold_requests = true;
    let r2t = world.ask(IO, Command::write(1, 0, 8, 4096)).r2t();
    world.grant(IO, &r2t, &pattern(4096, 0), 4096);
    world.send(IO, &host_data(&r2t, 0, &pattern(4096, 0), true, digests));
    assert_eq!((world.said_one(IO).term().fes.0, world.shard.below.held.len()), (1, 1));
}

/// 4: a wrong header digest is fatal, with the digest received.
#[test]
fn a_wrong_header_digest_is_fatal() {
    let digests = Digests { header: true, data: false };
    let mut world = World::connected(digests);
    let mut bytes = capsule(Command::flush(1), &[], digests);
    bytes[20] ^= 0x80;
    let received = u32::from_le_bytes(*bytes[72..].first_chunk().expect("a digest"));
    world.send(IO, &bytes);
    let term = world.said_one(IO).term();
    assert_eq!((term.fes, term.fei), (FatalErrorStatus::HEADER_DIGEST_ERROR, received));
    assert!(world.log.is_empty());
}

#[test]
fn wrong_fields_of_every_header_are_named() {
    let raw = |change: &dyn Fn(&mut CommonHeader)| {
        let mut common =
            CommonHeader::for_pdu(PduType::CAPSULE_COMMAND, PduFlags::NONE, Digests::NONE, 0);
        change(&mut common);
        let mut bytes = common.emit().to_vec();
        bytes.resize(72, 0);
        bytes
    };
    let fes_fei = |change: &dyn Fn(&mut CommonHeader)| ends_with(|_| raw(change));
    assert_eq!(fes_fei(&|h| h.kind = PduType(0x0b)), (1, 0));
    assert_eq!(fes_fei(&|h| h.header_length = 71), (1, 2));
    assert_eq!(fes_fei(&|h| h.flags = PduFlags::HDGST), (1, 1));
    assert_eq!(fes_fei(&|h| h.length = 71), (1, 4));
    assert_eq!(fes_fei(&|h| h.length = u32::MAX), (1, 3), "PDO is missing");
    assert_eq!(fes_fei(&|h| (h.length, h.data_offset) = (u32::MAX, 72)), (5, 0));
    assert_eq!(fes_fei(&|h| (h.length, h.data_offset) = (4168, 74)), (1, 3));
}

#[test]
fn pdus_that_hosts_do_not_send_are_sequence_errors() {
    for kind in [PduType::IC_RESP, PduType::C2H_TERM_REQ, PduType::CAPSULE_RESPONSE, PduType::R2T] {
        let mut world = World::connected(Digests::NONE);
        let common = CommonHeader::for_pdu(kind, PduFlags::NONE, Digests::NONE, 0);
        let mut bytes = common.emit().to_vec();
        bytes.resize(common.length as usize, 0);
        world.send(IO, &bytes);
        assert_eq!(world.said_one(IO).term().fes, FatalErrorStatus::SEQUENCE_ERROR, "{kind}");
    }
}

#[test]
fn more_commands_than_the_queue_has_entries_are_a_sequence_error() {
    let mut world = World::connected_with(Digests::NONE, 7, false);
    world.hold_requests = true;
    for command_id in 0..8 {
        world.command(IO, Command::flush(1).with_command_id(command_id));
    }
    assert!(world.links[IO].pipe.close.is_none());
    world.command(IO, Command::flush(1).with_command_id(8));
    assert_eq!(world.said_one(IO).term().fes, FatalErrorStatus::SEQUENCE_ERROR);
}

#[test]
fn a_host_that_terminates_is_closed_at_once() {
    for length in [0, 24, 128] {
        let mut world = World::connected(Digests::NONE);
        world.hold_requests = true;
        world.command(IO, Command::read(1, 0, 8, 4096));
        let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
        world.links[IO].cut = 13;
        world.send(IO, &termination(fes, &[0; 128][..length]));
        assert!(world.said(IO).is_empty());
        assert_eq!(world.links[IO].pipe.close, Some(false));
        assert_eq!(world.links[IO].connection.reason(), Some(&Reason::Terminated(fes)));
    }
}

#[test]
fn a_host_that_terminates_is_lent_nothing_any_more() {
    let mut world = World::connected(Digests::NONE);
    world.shard.below.lends = true;
    let mut bytes = capsule(Command::read(1, 0, 8, 4096), &[], Digests::NONE);
    let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
    bytes.extend(termination(fes, &[]));
    // In one piece: the memory would refuse to lend, if it were asked once the connection has
    // ended.
    world.send(IO, &bytes);
    assert!(world.said(IO).is_empty());
    assert_eq!(world.links[IO].connection.reason(), Some(&Reason::Terminated(fes)));
}

#[test]
fn padding_before_the_data_is_skipped() {
    let mut world = World::connected(Digests::NONE);
    let command = Command::write(1, 0, 1, 512).with_sgl(SglDescriptor::in_capsule(512));
    let mut bytes = capsule(command, &[], Digests::NONE);
    bytes[3] = 80;
    bytes[4..8].copy_from_slice(&592u32.to_le_bytes());
    bytes.extend([0xaa; 8]);
    bytes.extend(pattern(512, 6));
    world.send(IO, &bytes);
    assert!(world.said_one(IO).status().is_success());
    assert_eq!(world.volumes[0][..512], pattern(512, 6));
}

/// 40: whatever comes, nothing panics, and all memory is back in the end.
#[test]
fn garbage_of_many_kinds_never_does_harm() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let digests = ALL_DIGESTS[random.below(4) as usize];
        let mut world = World::connected(digests);
        world.links[IO].cut = 1 + random.below(3000) as usize;
        for _ in 0..12 {
            if world.links[IO].pipe.close.is_some() {
                break;
            }
            world.hold_requests = random.below(2) == 0;
            let mut bytes = some_pdu(&mut random, digests);
            if random.below(6) == 0 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            world.send(IO, &bytes);
            if random.below(4) == 0 {
                world.links[IO].hold_sends ^= true;
                if !world.links[IO].hold_sends {
                    world.release_sends(IO);
                }
            }
            if !world.hold_requests {
                world.release_requests();
                world.run();
            }
        }
    }
}

fn some_pdu(random: &mut Random, digests: Digests) -> Vec<u8> {
    let below = |random: &mut Random, bound: u64| random.below(bound) as u32;
    let blocks = 1 + below(random, 20);
    let lba = u64::from(below(random, 9000));
    let bytes = blocks * 512;
    let fuse = wire::nvme::command::Fuse([0, 0, 0, 1, 2, 3][random.below(6) as usize]);
    let command_id = below(random, 6) as u16;
    let finish = |command: Command| command.with_command_id(command_id).with_fuse(fuse);
    match random.below(9) {
        0 => capsule(finish(Command::read(1, lba, blocks, bytes)), &[], digests),
        1 => capsule(finish(Command::write(1, lba, blocks, bytes)), &[], digests),
        2 | 3 => {
            let blocks = 1 + below(random, 3);
            let sgl = SglDescriptor::in_capsule(blocks * 512);
            let make = [Command::write, Command::compare][random.below(2) as usize];
            let command = make(1, lba, blocks, blocks * 512).with_sgl(sgl);
            capsule(finish(command), &pattern(blocks as usize * 512, 1), digests)
        }
        4 => capsule(finish(Command::flush(0xffff_ffff)), &[], digests),
        5 => capsule(finish(Command::dataset_management(1, 2, true)), &[], digests),
        6 => {
            let r2t = R2T::new(command_id, below(random, 4) as u16, 0, bytes, digests);
            host_data(&r2t, 0, &pattern(bytes as usize, 2), random.below(2) == 0, digests)
        }
        7 => ICReq::new(digests, 0).emit().to_vec(),
        _ => (0..below(random, 200) + 1).map(|_| random.next_u64() as u8).collect(),
    }
}
