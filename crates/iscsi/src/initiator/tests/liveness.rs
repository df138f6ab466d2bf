//! A session that goes silent is noticed in seconds, and told from a disk that is slow; a task that
//! is late is aborted.

use core::time::Duration;

use block::{Account, Class, Failure, Memory, Outcome};
use wire::iscsi::{
    AsyncMessage, Digests, LogoutReason, LogoutResponse, LogoutResponseCode, Pdu, TaskFunction,
    TaskManagementRequest, TaskManagementResponse, TaskResponse,
};
use wire::scsi::ScsiStatus;

use super::fixtures::settings;
use super::pair::Pair;
use super::played::Played;
use crate::initiator::{InitiatorNews, Settings};
use crate::limits::{ABORT_PATIENCE, ABORTS_MAX, SILENCE_AGAIN, SILENT_BEHIND_DATA};

const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// What a reconnect takes beside the silence itself.
const REST: Duration = Duration::from_secs(1);
const USUAL: &str = "ImmediateData=Yes FirstBurstLength=65536";

fn connected(seed: u64) -> Pair {
    let mut pair = Pair::connected(seed, settings(Digests::NONE), false);
    while pair.turn() {}
    pair
}

fn losses(pair: &Pair) -> Vec<&str> {
    let mut lost = Vec::new();
    for news in &pair.news {
        if let InitiatorNews::Lost(why) = news {
            lost.push(why.as_str());
        }
    }
    lost
}

#[test]
fn a_session_that_is_silent_is_noticed_within_seconds() {
    let mut pair = connected(1);
    pair.hush(0);
    let hushed_at = pair.shard.now;
    pair.read(1, 0, 4096);
    let (outcome, bytes) = pair.finish(1);
    assert_eq!(outcome, Outcome::Done);
    assert!(bytes == pair.disk[..4096]);
    let took = pair.shard.now.since(hushed_at);
    assert!((KEEP_ALIVE..KEEP_ALIVE + REST).contains(&took), "{took:?}");
    assert_eq!(losses(&pair), ["the target is silent"]);
}

#[test]
fn a_session_without_commands_is_listened_to_as_well() {
    let mut pair = connected(2);
    pair.hush(0);
    pair.run_until("lost", |pair| !losses(pair).is_empty());
    let mut deaf = settings(Digests::NONE);
    deaf.keep_alive = Duration::ZERO;
    let mut pair = Pair::connected(2, deaf, false);
    while pair.turn() {}
    pair.hush(0);
    let until = pair.shard.now + Duration::from_secs(9);
    pair.run_until("some time later", move |pair| pair.shard.now >= until);
    assert!(losses(&pair).is_empty(), "nobody wants to know: {:?}", pair.news);
}

#[test]
fn a_slow_disk_is_no_silence() {
    let mut pair = connected(4);
    pair.chances.disk = Duration::from_secs(50);
    for slot in 0..8 {
        pair.read(slot, u64::from(slot) * 4096, 4096);
    }
    (0..8).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
}

#[test]
fn a_sign_of_life_has_room_beside_a_full_session() {
    let mut shallow = settings(Digests { header: true, data: true });
    shallow.depth = 2;
    let mut pair = Pair::connected(5, shallow, false);
    // Two at a time, all six are through before the first deadline.
    pair.chances.disk = Duration::from_secs(19);
    for slot in 0..6 {
        pair.write(slot, u64::from(slot) * 4096, &[7; 4096]);
    }
    (0..6).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
}

/// Not even the question for a sign of life is read before there is memory for the commands before
/// it.
#[test]
fn a_target_that_has_no_memory_for_commands_with_data_is_not_silent() {
    let mut pair = connected(9);
    let mut held = Vec::new();
    loop {
        let mut account = Account::new(Class::Immediate);
        let Some(buffer) = pair.shard.pool.take(&mut account, 4096, 0) else { break };
        held.push((account, buffer));
    }
    (0..8).for_each(|slot| pair.write(slot, u64::from(slot) * 4096, &[7; 4096]));
    let until = pair.shard.now + SILENT_BEHIND_DATA / 2;
    pair.run_until("some time later", move |pair| pair.shard.now >= until);
    for (mut account, buffer) in held {
        let memory: &mut dyn Memory = &mut pair.shard.memory;
        pair.shard.pool.give(&mut account, memory, buffer);
    }
    (0..8).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
    assert_eq!(pair.log.iter().filter(|name| **name == "write").count(), 8, "each is asked once");
}

#[test]
fn a_target_that_is_short_of_memory_costs_time_and_no_request() {
    let mut pair = connected(11);
    let mut held = Vec::new();
    loop {
        let mut account = Account::new(Class::Immediate);
        let Some(buffer) = pair.shard.pool.take(&mut account, 4096, 0) else { break };
        held.push((account, buffer));
    }
    // Their first burst comes with them, so they cannot wait in the stream.
    (0..8).for_each(|slot| pair.write(slot, u64::from(slot) * 65_536, &[7; 65_536]));
    let until = pair.shard.now + Duration::from_secs(10);
    pair.run_until("some time later", move |pair| pair.shard.now >= until);
    for (mut account, buffer) in held {
        let memory: &mut dyn Memory = &mut pair.shard.memory;
        pair.shard.pool.give(&mut account, memory, buffer);
    }
    (0..8).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
}

#[test]
fn a_session_that_is_silent_behind_small_writes_is_noticed_within_half_a_minute() {
    let mut pair = connected(10);
    pair.hush(0);
    let hushed_at = pair.shard.now;
    pair.write(1, 0, &[1; 4096]);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    let took = pair.shard.now.since(hushed_at);
    let usual = KEEP_ALIVE / 2 + SILENT_BEHIND_DATA;
    assert!((usual..usual + REST).contains(&took), "{took:?}");
}

#[test]
fn silences_one_after_the_other_are_met_with_more_patience_for_a_while() {
    let mut pair = connected(8);
    let notice = |pair: &mut Pair, slot| {
        pair.hush(pair.connections() - 1);
        let hushed_at = pair.shard.now;
        pair.read(slot, 0, 512);
        assert_eq!(pair.finish(slot).0, Outcome::Done);
        while pair.turn() {}
        pair.shard.now.since(hushed_at)
    };
    assert!(notice(&mut pair, 1) < KEEP_ALIVE + REST);
    assert!(notice(&mut pair, 2) < KEEP_ALIVE + REST, "the first repetition raises the patience");
    let third = notice(&mut pair, 3);
    let usual = KEEP_ALIVE * 2;
    assert!((usual..usual + REST).contains(&third), "{third:?} {:?}", losses(&pair));
    let until = pair.shard.now + SILENCE_AGAIN * 5;
    pair.run_until("some time later", move |pair| pair.shard.now >= until);
    assert!(notice(&mut pair, 4) < KEEP_ALIVE + REST);
}

/// A played target with a unit of ours or of others, and a deadline of four seconds.
fn hasty(is_ours: bool) -> Played {
    let deadline = Duration::from_secs(4);
    let keep_alive = Duration::ZERO;
    let mut played = Played::with(Settings { deadline, keep_alive, ..settings(Digests::NONE) });
    if is_ours {
        played.unit.vendor = *b"PLATEWAY";
    }
    played.bring_up(USUAL);
    played
}

impl Played {
    /// Time passes to the deadline of what was just asked, and an abort is heard.
    fn hear_abort(&mut self) -> TaskManagementRequest {
        self.pass(self.now + Duration::from_secs(4));
        match self.hear() {
            (Pdu::TaskManagementRequest(request), _) => request,
            (other, _) => panic!("expected an abort, heard {other}"),
        }
    }

    fn answer_abort(&mut self, request: &TaskManagementRequest, response: TaskResponse) {
        let tag = request.initiator_task_tag;
        let response = TaskManagementResponse::new(tag, response, self.status());
        self.say(&response.emit(), &[]);
    }
}

#[test]
fn a_task_that_is_late_is_aborted_and_the_session_stays() {
    for (is_ours, writes) in [(true, true), (true, false), (false, false)] {
        let mut played = hasty(is_ours);
        match writes {
            true => played.write(1, &[1; 512], false),
            false => played.read(1, 512),
        }
        let (pdu, _) = played.hear();
        let Pdu::ScsiCommand(command) = pdu else { panic!("{pdu}") };
        let abort = played.hear_abort();
        assert_eq!(abort.function(), TaskFunction::ABORT_TASK);
        assert_eq!(abort.referenced_task_tag, command.initiator_task_tag);
        assert_eq!((abort.ref_cmd_sn, abort.lun), (command.cmd_sn, command.lun));
        assert!(abort.operation.is_immediate());
        assert!(played.done().is_none());
        played.answer_abort(&abort, TaskResponse::COMPLETE);
        let outcome = played.done().map(|done| done.outcome);
        assert_eq!(outcome, Some(Outcome::NotDone(Failure::TimedOut)));
        assert!(!played.closes, "{}", played.initiator.state());
        // What is still said of it finds nothing.
        let late = played.ending(command.initiator_task_tag, ScsiStatus::GOOD, None);
        played.receive(&late);
        played.settle();
        assert!(played.closes);
    }
}

#[test]
fn a_write_that_is_late_at_a_target_of_others_ends_the_session() {
    let mut played = hasty(false);
    played.write(1, &[1; 512], false);
    played.hear_command();
    played.pass(played.now + Duration::from_secs(4));
    assert!(played.closes);
    let why = played.initiator.state();
    assert!(why.contains("a command was not answered within 4s"), "{why}");
}

#[test]
fn an_abort_that_is_not_answered_or_refused_ends_the_session() {
    let mut played = hasty(true);
    played.read(1, 512);
    played.hear_command();
    played.hear_abort();
    played.pass(played.now + ABORT_PATIENCE);
    assert!(played.closes && played.initiator.state().contains("nor was its abort"));
    for refusal in [TaskResponse::NO_SUCH_TASK, TaskResponse::NOT_SUPPORTED] {
        let mut played = hasty(true);
        played.read(1, 512);
        played.hear_command();
        let abort = played.hear_abort();
        played.answer_abort(&abort, refusal);
        let why = played.initiator.state();
        assert!(played.closes && why.contains("could not be aborted"), "{why}");
    }
}

#[test]
fn an_abort_and_an_answer_may_cross() {
    let mut played = hasty(true);
    played.write(1, &[1; 512], false);
    let (_, tag, _) = played.hear_command();
    let abort = played.hear_abort();
    played.end(tag, ScsiStatus::GOOD, None);
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
    played.answer_abort(&abort, TaskResponse::NO_SUCH_TASK);
    assert!(!played.closes, "{}", played.initiator.state());
    // An answer to what was never asked is one too many.
    let again = TaskManagementResponse::new(tag, TaskResponse::COMPLETE, played.status()).emit();
    played.receive(&again);
    played.settle();
    assert!(played.closes);
}

#[test]
fn a_target_that_answers_nothing_at_all_is_left() {
    let mut played = hasty(true);
    (0..=ABORTS_MAX as u32).for_each(|slot| played.read(slot, 512));
    (0..=ABORTS_MAX).for_each(|_| drop(played.hear_command()));
    played.pass(played.now + Duration::from_secs(4));
    assert!(played.closes, "more are late than can be aborted");
}

#[test]
fn a_target_that_wants_a_logout_gets_it_when_all_is_answered() {
    for answers in [true, false] {
        let mut played = hasty(false);
        played.write(1, &[1; 512], false);
        let (_, tag, _) = played.hear_command();
        let message = AsyncMessage::logout_request(3, played.status());
        played.say(&message.emit(), &[]);
        played.write_at(2, 4096, &[2; 512]);
        assert!(played.is_quiet(), "nothing new is sent");
        if answers {
            played.end(tag, ScsiStatus::GOOD, None);
            assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
        } else {
            played.pass(played.now + Duration::from_secs(3));
        }
        let (pdu, _) = played.hear();
        let Pdu::LogoutRequest(logout) = pdu else { panic!("{pdu}") };
        assert_eq!(logout.reason(), LogoutReason::CLOSE_SESSION);
        let tag = logout.initiator_task_tag;
        let response = LogoutResponse::new(tag, LogoutResponseCode::CLOSED, played.status());
        played.say(&response.emit(), &[]);
        assert!(played.initiator.state().contains("asked us to log out"));
        played.shut();
        played.rest();
        played.bring_up(USUAL);
        let (cdb, ..) = played.hear_command();
        assert_eq!(cdb.lba(), 8, "it goes on where it was");
    }
}
