//! ICReq, ICResp, the first command, and what comes before its time.

use wire::nvme::command::SglDescriptor;
use wire::nvme::fabrics::{ConnectData, FabricsType};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::{Digests, FatalErrorStatus, ICReq};

use super::world::{ALL_DIGESTS, Said, World, capsule, termination};
use crate::limits::HANDSHAKE;
use crate::tcp::server::{Reason, Settings};

/// 1, 3, 42: ICResp mirrors the digests, asks for no alignment, and leaves in one write.
#[test]
fn icresp_mirrors_the_digests_in_one_write() {
    for digests in ALL_DIGESTS {
        let mut world = World::new();
        let link = world.accept();
        world.send(link, &ICReq::new(digests, 7).emit());
        let Said::ICResp(response) = world.said_one(link) else { panic!("no ICResp") };
        assert_eq!(response.digests(), digests);
        assert_eq!(response.format_version, 0);
        assert_eq!(response.controller_data_alignment, 0);
        assert_eq!(response.max_h2c_data, Settings::default().max_h2c_data);
        assert_eq!(world.links[link].batches, [128]);
    }
}

fn refused(bytes: &[u8]) -> (u16, u32) {
    let mut world = World::new();
    let link = world.accept();
    world.send(link, bytes);
    let term = world.said_one(link).term();
    assert_eq!(world.links[link].pipe.close, Some(true));
    assert!(matches!(world.links[link].connection.reason(), Some(Reason::Violation(_))));
    (term.fes.0, term.fei)
}

fn request(at: usize, value: u8) -> Vec<u8> {
    let mut bytes = ICReq::new(Digests::NONE, 0).emit().to_vec();
    bytes[at] = value;
    bytes
}

/// 1: each field of ICReq, with the offset of the one that is wrong.
#[test]
fn each_wrong_field_of_icreq_is_named() {
    assert_eq!(refused(&request(1, 1)), (1, 1), "flags");
    assert_eq!(refused(&request(2, 127)), (1, 2), "HLEN");
    assert_eq!(refused(&request(4, 129)), (1, 4), "PLEN");
    assert_eq!(refused(&request(8, 1)), (6, 8), "PFV");
    assert_eq!(refused(&request(10, 32)), (1, 10), "HPDA beyond 31");
    assert_eq!(refused(&request(11, 4)), (1, 11), "DGST");
}

/// 2: whatever comes first and is no ICReq is a sequence error.
#[test]
fn the_first_pdu_is_icreq() {
    let command = capsule(Command::new(0x7f), &[], Digests::NONE);
    assert_eq!(refused(&command).0, 2);
    assert_eq!(refused(&[0x16, 3, 1, 2, 0, 1, 0, 1]).0, 2, "a TLS ClientHello");
    assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n").0, 2);
}

#[test]
fn icreq_comes_once() {
    let mut world = World::new();
    let link = world.greet(Digests::NONE);
    world.send(link, &ICReq::new(Digests::NONE, 0).emit());
    assert_eq!(world.said_one(link).term().fes.0, 2);
}

#[test]
fn the_first_command_is_connect() {
    let mut world = World::new();
    let link = world.greet(Digests::NONE);
    let entry = world.ask(link, Command::read(1, 0, 1, 512).with_command_id(4)).response();
    assert_eq!(entry.command_id, 4);
    assert_eq!(entry.status.without_hints(), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn a_connect_whose_data_are_not_in_the_capsule_is_refused() {
    let mut world = World::new();
    let link = world.greet(Digests::NONE);
    let command = Command::fabrics(FabricsType::CONNECT)
        .with_sgl(SglDescriptor::transport(ConnectData::SIZE as u32));
    assert_eq!(world.ask(link, command).status().code(), Status::INVALID_SGL_LENGTH.0);
}

#[test]
fn who_does_not_introduce_himself_in_time_is_closed() {
    for greeted in [false, true] {
        let mut world = World::new();
        let link = world.accept();
        if greeted {
            world.greet_on(link, Digests::NONE);
        }
        world.pass(link, HANDSHAKE - core::time::Duration::from_nanos(1));
        assert_eq!(world.links[link].pipe.close, None);
        assert!(world.links[link].connection.poll_timeout().is_some());
        // Looked at in whole seconds, so that many that came together cost one wake-up.
        let looked_at = world.links[link].connection.poll_timeout().unwrap();
        assert!(looked_at.0.is_multiple_of(1_000_000_000));
        world.pass(link, core::time::Duration::from_secs(1));
        assert!(world.links[link].pipe.close.is_some());
    }
}

#[test]
fn a_connected_queue_that_is_idle_asks_for_no_wakening() {
    let mut world = World::connected(Digests::NONE);
    for link in [0, 1] {
        for _ in 0..4 {
            world.pass(link, core::time::Duration::from_secs(60));
        }
        assert_eq!(world.links[link].connection.poll_timeout(), None);
        assert_eq!(world.links[link].pipe.close, None);
    }
}

/// A host that gives up before it began is not told that it broke a rule.
#[test]
fn a_termreq_before_icreq_just_ends_the_connection() {
    let mut world = World::new();
    let link = world.accept();
    world.send(link, &termination(FatalErrorStatus::SEQUENCE_ERROR, &[]));
    assert!(world.said(link).is_empty());
    let reason = world.links[link].connection.reason();
    assert_eq!(reason, Some(&Reason::Terminated(FatalErrorStatus::SEQUENCE_ERROR)));
}
