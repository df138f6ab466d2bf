//! What moves no blocks: NOPs, logouts, and PDUs that are rejected. Spec: RFC 7143, 11.14 to 11.19.

use testkit::iscsi::text;
use wire::iscsi::{
    AsyncEvent, Bhs, LogoutReason, LogoutResponseCode, NopIn, Opcode, Operation, RESERVED_TAG,
    RejectReason, Snack, SnackKind,
};
use wire::scsi::ScsiStatus;

use super::world::{ALL_DIGESTS, Said, World, pattern, read, write};
use crate::server::Reason;

#[test]
fn a_nop_comes_back_with_its_data() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        for length in [0, 1, 2, 3, 4, 5, 4096, 8192] {
            let data = pattern(length, 1);
            let (tag, bytes) = world.links[0].host.nop(&data, ());
            world.send(0, &bytes);
            let Said::Nop(nop, back) = world.said_one(0) else { panic!("no NOP-In") };
            assert_eq!((nop.initiator_task_tag, nop.target_transfer_tag), (tag, RESERVED_TAG));
            assert_eq!(back, data);
        }
    }
}

#[test]
fn as_much_of_a_nop_comes_back_as_its_host_takes() {
    let mut world = World::connected_with(&[("MaxRecvDataSegmentLength", "512")]);
    let (_, bytes) = world.links[0].host.nop(&pattern(4096, 1), ());
    world.send(0, &bytes);
    assert!(matches!(world.said_one(0), Said::Nop(_, data) if data == pattern(512, 1)));
}

/// It takes its turn among the commands where it is not immediate.
#[test]
fn a_nop_may_have_a_place_in_the_order() {
    let mut world = World::connected(Default::default());
    let (_, mut bytes) = world.links[0].host.nop(b"x", ());
    bytes[0] = Opcode::NOP_OUT.0;
    world.links[0].host.numbers(false);
    world.send(0, &bytes);
    let next = world.links[0].host.cmd_sn;
    assert_eq!(world.said_one(0).numbers().exp_cmd_sn, next);
    assert!(world.lives());
}

#[test]
fn what_answers_a_question_or_is_a_sign_of_life_is_not_answered() {
    let mut world = World::connected(Default::default());
    for transfer_tag in [7, RESERVED_TAG] {
        let question = NopIn::ping([0; 8], transfer_tag, Default::default());
        let bytes = world.links[0].host.pong(&question);
        world.send(0, &bytes);
        assert_eq!(world.said(0), []);
    }
    assert!(world.lives());
}

#[test]
fn nops_are_answered_while_volumes_are_slow_and_memory_is_short() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    while world.links[0].host.may_ask() {
        world.command(0, read(0, 65_536), &[]);
    }
    assert!(world.links[0].connection.waits_for_memory(block::Class::Transfer));
    let (_, bytes) = world.links[0].host.nop(b"are you there?", ());
    world.send(0, &bytes);
    assert!(matches!(world.said_one(0), Said::Nop(..)));
    // Nobody reads again while memory is short, but the answers free it.
    world.hold_requests = false;
    while world.wake(0) {}
    assert_eq!(world.said(0).len(), 256);
}

fn log_out(world: &mut World, reason: LogoutReason) -> Said {
    let (_, bytes) = world.links[0].host.logout(reason, ());
    world.send(0, &bytes);
    world.said_one(0)
}

#[test]
fn a_logout_is_answered_and_then_the_connection_closes() {
    for reason in [LogoutReason::CLOSE_SESSION, LogoutReason::CLOSE_CONNECTION] {
        let mut world = World::connected(Default::default());
        let Said::Logout(response) = log_out(&mut world, reason) else { panic!("no response") };
        assert_eq!(response.response, LogoutResponseCode::CLOSED);
        assert_eq!((response.time2wait, response.time2retain), (0, 0));
        assert_eq!(world.links[0].pipe.close, Some(true));
        assert_eq!(world.links[0].connection.reason(), Some(&Reason::LoggedOut));
        assert_eq!(world.shard.shared.session_count(), 0);
    }
}

#[test]
fn a_logout_of_another_connection_and_one_for_recovery_are_declined() {
    let mut world = World::connected(Default::default());
    world.links[0].host.cid += 1;
    let Said::Logout(response) = log_out(&mut world, LogoutReason::CLOSE_CONNECTION) else {
        panic!("no response")
    };
    assert_eq!(response.response, LogoutResponseCode::NO_SUCH_CID);
    world.links[0].host.cid -= 1;
    for reason in [LogoutReason::RECOVERY, LogoutReason(9)] {
        let Said::Logout(response) = log_out(&mut world, reason) else { panic!("no response") };
        assert_eq!(response.response, LogoutResponseCode::RECOVERY_NOT_SUPPORTED);
    }
    assert!(world.lives());
}

/// What is below is awaited, and not answered; what waits is dropped.
#[test]
fn a_logout_is_answered_once_nothing_is_in_flight() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 4096), &pattern(4096, 1));
    world.command(0, read(0, 4096), &[]);
    world.command(0, write(100, 65_536), &[]);
    world.said(0);
    let (_, bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
    world.send(0, &bytes);
    for left in [2, 1] {
        assert_eq!(world.said(0), [], "{left} are below");
        assert_eq!(world.links[0].pipe.close, None);
        assert_eq!(world.shard.shared.session_count(), 1);
        world.release_one(0);
        world.run();
    }
    assert!(matches!(world.said_one(0), Said::Logout(_)));
    assert_eq!(world.links[0].pipe.close, Some(true));
    assert_eq!(world.log, ["write", "read"]);
}

#[test]
fn what_stands_behind_a_logout_is_not_heard() {
    let mut world = World::connected(Default::default());
    let host = &mut world.links[0].host;
    let mut bytes = host.logout(LogoutReason::CLOSE_SESSION, ()).1;
    bytes.extend(host.command(write(0, 512), &[1; 512], ()).1);
    world.send(0, &bytes);
    assert!(matches!(world.said_one(0), Said::Logout(_)));
    assert!(world.log.is_empty());
}

#[test]
fn reads_that_came_before_a_logout_are_answered_before_it() {
    let mut world = World::connected(Default::default());
    world.shard.memory.lends = vec![vec![7; 4096]];
    let host = &mut world.links[0].host;
    let mut bytes = host.command(read(0, 512), &[], ()).1;
    bytes.extend(host.logout(LogoutReason::CLOSE_SESSION, ()).1);
    world.send(0, &bytes);
    let said = world.said(0);
    assert!(matches!(said[..], [Said::Data(..), Said::Logout(_)]), "{said:?}");
}

#[test]
fn a_host_is_told_when_it_is_dropped() {
    let mut world = World::connected(Default::default());
    let removed = contract::SessionEnd::ListenerRemoved;
    world.with(0, |connection, ctx| connection.close(removed, ctx));
    world.run();
    let Said::Async(message) = world.said_one(0) else { panic!("no message") };
    assert_eq!(message.async_event, AsyncEvent::SESSION_DROP);
    assert_eq!(message.initiator_task_tag, RESERVED_TAG);
    assert_eq!(world.links[0].pipe.close, Some(true));
    // Before it has logged in there is no session.
    let mut world = World::new();
    world.accept();
    world.with(0, |connection, ctx| connection.close(removed, ctx));
    world.run();
    assert_eq!((world.said(0).len(), world.links[0].pipe.close), (0, Some(true)));
}

/// At level 0 nothing is asked for again; the session goes on.
#[test]
fn a_snack_is_rejected() {
    for kind in [SnackKind::DATA_R2T, SnackKind::STATUS, SnackKind::DATA_ACK, SnackKind::R_DATA] {
        let mut world = World::connected(Default::default());
        let snack = Snack::new(kind, [0; 8], 5, RESERVED_TAG, 0, 0, 0);
        world.send(0, &snack.emit());
        let said = world.said_one(0);
        assert_eq!(said.reject(), RejectReason::SNACK);
        assert_eq!(said, Said::Reject(reject_of(&said), snack.emit().to_vec()));
        assert!(world.lives());
    }
}

fn reject_of(said: &Said) -> wire::iscsi::Reject {
    match said {
        Said::Reject(reject, _) => *reject,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_text_or_a_nop_that_is_longer_than_a_text_may_be_is_rejected() {
    let mut world = World::connected(Default::default());
    world.links[0].host.lenient = true;
    let (_, bytes) = world.links[0].host.nop(&pattern(8196, 1), ());
    world.links[0].cut = 1000;
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).reject(), RejectReason::LONG_OPERATION);
    assert!(world.lives());
}

#[test]
fn what_is_too_long_and_has_a_place_in_the_order_takes_it() {
    let mut world = World::connected(Default::default());
    world.links[0].host.lenient = true;
    let (_, mut bytes) = world.links[0].host.nop(&pattern(8196, 1), ());
    bytes[0] = Opcode::NOP_OUT.0;
    world.links[0].host.numbers(false);
    world.links[0].cut = 1000;
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).reject(), RejectReason::LONG_OPERATION);
    assert!(world.lives());
}

fn ends(world: &mut World, bytes: &[u8], reason: RejectReason) {
    world.send(0, bytes);
    let said = world.said_one(0);
    assert_eq!(said.reject(), reason);
    assert!(matches!(&said, Said::Reject(_, header) if header[..] == bytes[..48.min(bytes.len())]));
    assert_eq!(world.links[0].pipe.close, Some(true));
    assert!(matches!(world.links[0].connection.reason(), Some(Reason::Violation(_))));
}

#[test]
fn opcodes_that_nobody_knows_are_not_supported() {
    for opcode in [0x07, 0x0f, 0x1c, 0x1f, 0x11] {
        let mut world = World::connected(Default::default());
        let bhs = Bhs { operation: Operation(opcode), ..Bhs::default() };
        ends(&mut world, &bhs.emit(), RejectReason::COMMAND_NOT_SUPPORTED);
    }
}

#[test]
fn what_targets_say_is_no_host_s_to_say() {
    for opcode in [Opcode::NOP_IN, Opcode::SCSI_RESPONSE, Opcode::R2T, Opcode::REJECT] {
        let mut world = World::connected(Default::default());
        let bhs = Bhs { operation: Operation(opcode.0), ..Bhs::default() };
        ends(&mut world, &bhs.emit(), RejectReason::PROTOCOL_ERROR);
    }
}

#[test]
fn fields_that_no_header_may_have_end_the_session() {
    let mut world = World::connected(Default::default());
    let (_, mut bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
    bytes[7] = 4;
    ends(&mut world, &bytes, RejectReason::INVALID_PDU_FIELD);
    let mut world = World::connected(Default::default());
    let (_, mut bytes) = world.links[0].host.nop(&[], ());
    bytes[4] = 1;
    bytes.extend([0; 4]);
    ends(&mut world, &bytes, RejectReason::INVALID_PDU_FIELD);
}

/// The last words are behind what was answered before.
#[test]
fn what_came_before_a_violation_is_answered_before_it() {
    let mut world = World::connected(Default::default());
    world.shard.memory.lends = vec![vec![7; 4096]];
    world.shard.below.lands = true;
    let host = &mut world.links[0].host;
    let mut bytes = host.command(write(0, 512), &[1; 512], ()).1;
    bytes.extend(host.command(read(1, 512), &[], ()).1);
    bytes.extend([0x3f; 48]);
    world.send(0, &bytes);
    let said = world.said(0);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[..2].iter().all(|said| said.status() == ScsiStatus::GOOD));
    assert_eq!(said[2].reject(), RejectReason::PROTOCOL_ERROR);
    assert_eq!(world.shard.memory.lends[0][..512], [1; 512]);
}

#[test]
fn no_text_is_longer_than_a_negotiation_may_be() {
    let mut world = World::connected(Default::default());
    let part = text(&[("X-a", "b".repeat(200))]).repeat(30);
    let mut transfer_tag = None;
    for _ in 0..2 {
        let (_, mut bytes) = world.links[0].host.text(&part, transfer_tag, ());
        bytes[1] = 0x40;
        world.send(0, &bytes);
        match world.said_one(0) {
            Said::Text(response, _) => transfer_tag = Some(response.target_transfer_tag),
            said => assert_eq!(said.reject(), RejectReason::PROTOCOL_ERROR),
        }
    }
    assert_eq!(world.links[0].pipe.close, Some(true));
}

#[test]
fn data_of_a_nop_lie_in_no_page() {
    let mut world = World::connected(Default::default());
    world.links[0].hold_sends = true;
    let (_, bytes) = world.links[0].host.nop(&pattern(4096, 1), ());
    world.send(0, &bytes);
    assert_eq!(world.links[0].connection.pages(), 0);
    world.release_sends(0);
    assert!(matches!(world.said_one(0), Said::Nop(..)));
}
