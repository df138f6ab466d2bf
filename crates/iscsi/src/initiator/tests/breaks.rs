//! What becomes of requests when the session breaks: the rule *Unknown*, flush doubt, identity,
//! change of size; and when a write in doubt is asked again, which depends on whose target it is.

use core::time::Duration;

use block::{BlockCount, Failure, Instant, Operation, Outcome};
use contract::{ConnectionId, Loss};
use scsi::LogicalUnit;
use wire::iscsi::{Digests, Pdu};
use wire::scsi::OpCode;

use super::fixtures::{name, settings, unit};
use super::pair::Pair;
use super::played::Played;
use crate::initiator::port::State;
use crate::initiator::{InitiatorNews, Settings};
use crate::limits::{ABORT_PATIENCE, UNIT_CHECK};

const QUIESCE: Duration = Duration::from_secs(30);

/// A connected pair whose disk takes up to three seconds.
fn slow(seed: u64) -> Pair {
    let mut pair = Pair::connected(seed, settings(Digests::NONE), false);
    pair.chances.disk = Duration::from_secs(3);
    pair
}

fn cut_all(pair: &mut Pair) -> Instant {
    (0..pair.connections()).for_each(|index| pair.cut(index));
    pair.shard.now
}

/// Turns until the initiator has noticed the break: what is asked from now on was not in the old
/// session.
fn notice(pair: &mut Pair) {
    pair.run_until("noticed", |pair| pair.news.len() > 1);
}

/// Turns until the target's disk has what was asked, but not answered it.
fn let_it_leave(pair: &mut Pair) {
    while pair.turn() {}
}

#[test]
fn a_read_that_was_under_way_is_asked_again_at_once() {
    let mut pair = slow(1);
    pair.read(1, 4096, 65_536);
    let_it_leave(&mut pair);
    let cut_at = cut_all(&mut pair);
    let (outcome, bytes) = pair.finish(1);
    assert_eq!(outcome, Outcome::Done);
    assert!(bytes == pair.disk[4096..4096 + 65_536]);
    assert!(pair.shard.now.since(cut_at) < QUIESCE, "a read waits for nobody");
}

#[test]
fn a_write_is_replayed_as_soon_as_a_target_of_ours_has_ended_the_old_session() {
    let mut pair = slow(2);
    pair.chances.disk = Duration::from_secs(9);
    pair.write(1, 0, &[1; 4096]);
    let_it_leave(&mut pair);
    let cut_at = cut_all(&mut pair);
    notice(&mut pair);
    pair.chances.disk = Duration::ZERO;
    pair.write(2, 0, &[2; 4096]);
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert!(pair.shard.now.since(cut_at) < QUIESCE, "the login has said that it is over");
    // The disk had the first of the three; it was answered before the others were asked.
    assert_eq!(pair.log.iter().filter(|name| **name == "write").count(), 3);
    assert_eq!(pair.disk[0], 2, "the later write stays");
}

/// A played target of somebody else's, connected.
fn foreign() -> Played {
    Played::live(Digests::NONE, "FirstBurstLength=65536 ImmediateData=Yes")
}

#[test]
fn a_write_is_replayed_only_after_the_quiesce_time_at_a_target_of_others() {
    let mut played = foreign();
    played.write(1, &[1; 4096], false);
    played.hear_command();
    let cut_at = played.now;
    played.cut();
    played.rest();
    played.bring_up("FirstBurstLength=65536");
    played.pass_live(Instant((cut_at + QUIESCE).0 - 1));
    assert!(played.done().is_none());
    played.pass_live(cut_at + QUIESCE);
    let (cdb, _, data) = played.hear_command();
    assert_eq!((cdb.opcode(), data), (OpCode::WRITE_10, vec![1; 4096]));
}

#[test]
fn a_new_write_waits_behind_one_in_doubt_that_it_overlaps_and_behind_no_other() {
    let mut played = foreign();
    played.write(1, &[1; 8192], false);
    played.hear_command();
    let cut_at = played.now;
    played.cut();
    played.write_at(2, 4096, &[2; 8192]);
    played.write_at(3, 65_536, &[3; 4096]);
    played.rest();
    played.bring_up("FirstBurstLength=65536");
    let (cdb, ..) = played.hear_command();
    assert_eq!(cdb.lba(), 128, "what does not overlap does not wait");
    assert!(played.is_quiet());
    played.pass_live(cut_at + QUIESCE);
    // Both are asked then, in their order.
    assert_eq!(played.hear_command().0.lba(), 0);
    assert!(played.is_quiet(), "the other one waits for its end");
}

#[test]
fn a_target_that_moved_is_not_believed_whosever_it_is() {
    let mut played = foreign();
    played.unit.vendor = *b"PLATEWAY";
    played.write(1, &[1; 4096], false);
    played.hear_command();
    played.cut();
    played.rest();
    played.connect();
    let status = wire::iscsi::LoginStatus::MOVED_TEMPORARILY;
    played.refuse_login(status, "TargetAddress=192.0.2.7:3261,1");
    played.shut();
    played.bring_up("FirstBurstLength=65536");
    played.pass(played.now);
    assert!(played.is_quiet(), "its login has ended nothing elsewhere");
    // At its own address it is.
    played.cut();
    played.rest();
    played.bring_up("FirstBurstLength=65536");
    played.pass(played.now);
    assert_eq!(played.hear_command().0.opcode(), OpCode::WRITE_10);
}

#[test]
fn a_write_that_never_left_ends_not_done_at_its_deadline() {
    let mut pair = Pair::new(4, settings(Digests::NONE), false);
    pair.unreachable = true;
    let asked_at = pair.shard.now;
    pair.write(1, 0, &[1; 4096]);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::TimedOut));
    assert_eq!(pair.shard.now.since(asked_at), Duration::from_secs(60));
    let why = pair.initiator.explain();
    assert!(why.contains("LUN 300 of iqn.2026-11.net.plateway:test at 127.0.0.1:3260"), "{why}");
}

#[test]
fn a_write_that_left_ends_unknown_and_not_before_the_quiesce_time() {
    let hasty = Settings { deadline: Duration::from_secs(4), ..settings(Digests::NONE) };
    let mut pair = Pair::connected(5, hasty, false);
    pair.chances.disk = Duration::from_secs(3);
    pair.write(1, 0, &[1; 4096]);
    pair.read(2, 65_536, 512);
    let_it_leave(&mut pair);
    let cut_at = cut_all(&mut pair);
    pair.unreachable = true;
    assert_eq!(pair.finish(2).0, Outcome::NotDone(Failure::TimedOut));
    assert!(pair.take(1).is_none());
    assert_eq!(pair.finish(1).0, Outcome::Unknown(Failure::TimedOut));
    assert!(pair.shard.now.since(cut_at) >= QUIESCE);
}

#[test]
fn a_disk_that_never_answers_costs_the_session_and_the_write_is_unknown() {
    let hasty = Settings { deadline: Duration::from_secs(5), ..settings(Digests::NONE) };
    let mut pair = Pair::connected(6, hasty, false);
    pair.chances.disk = Duration::from_secs(100_000);
    pair.write(1, 0, &[1; 4096]);
    let asked_at = pair.shard.now;
    assert_eq!(pair.finish(1).0, Outcome::Unknown(Failure::TimedOut));
    let took = pair.shard.now.since(asked_at);
    assert!(took >= Duration::from_secs(5) + ABORT_PATIENCE + QUIESCE, "{took:?}");
}

#[test]
fn after_a_break_the_next_flush_fails_once_if_completed_writes_were_volatile() {
    for (volatile, writes, expected) in [
        (true, true, Outcome::NotDone(Failure::MediumWrite)),
        (true, false, Outcome::Done),
        (false, true, Outcome::Done),
    ] {
        let mut pair = Pair::connected(7, settings(Digests::NONE), volatile);
        pair.write(1, 0, &[1; 4096]);
        assert_eq!(pair.finish(1).0, Outcome::Done);
        if !writes {
            pair.ask(1, Operation::Flush);
            assert_eq!(pair.finish(1).0, Outcome::Done);
        }
        cut_all(&mut pair);
        pair.ask(2, Operation::Flush);
        assert_eq!(pair.finish(2).0, expected, "volatile {volatile}, writes {writes}");
        pair.ask(3, Operation::Flush);
        assert_eq!(pair.finish(3).0, Outcome::Done, "it fails once");
    }
}

/// Another volume.
fn other() -> LogicalUnit {
    LogicalUnit { uuid: [4; 16], ..unit(false) }
}

#[test]
fn another_unit_under_the_same_number_is_refused() {
    let mut pair = Pair::connected(8, settings(Digests::NONE), false);
    pair.put(Some(other()));
    cut_all(&mut pair);
    pair.run_until("lost", |pair| pair.news.len() > 1);
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::TimedOut));
    assert!(pair.initiator.state().contains("another unit"), "{}", pair.initiator.state());
}

#[test]
fn nothing_is_carried_out_on_another_unit() {
    let mut pair = Pair::connected(8, settings(Digests::NONE), false);
    while pair.turn() {}
    pair.put(Some(other()));
    pair.write(1, 0, &[1; 4096]);
    let another = |pair: &Pair| match pair.news.last() {
        Some(InitiatorNews::Lost(why)) => why.contains("another unit"),
        _ => false,
    };
    pair.run_until("lost", another);
    assert!(matches!(pair.finish(1).0, Outcome::NotDone(_)));
    assert!(pair.log.is_empty(), "{:?}", pair.log);
}

#[test]
fn a_unit_that_grows_is_told_of_without_a_break_even_if_nobody_asks_for_anything() {
    let mut pair = Pair::connected(9, settings(Digests::NONE), false);
    while pair.turn() {}
    for blocks in [10_000, 20_000] {
        pair.put(Some(LogicalUnit { blocks: BlockCount(blocks), ..unit(false) }));
        let put_at = pair.shard.now;
        pair.run_until("grown", |pair| {
            pair.initiator.facts().is_some_and(|facts| facts.size.0 == blocks * 512)
        });
        assert!(pair.shard.now.since(put_at) <= UNIT_CHECK, "it asks now and then");
    }
    let changed = |news: &&InitiatorNews| **news == InitiatorNews::FactsChanged;
    assert_eq!(pair.news.iter().filter(changed).count(), 2, "{:?}", pair.news);
    assert_eq!(pair.news.len(), 3);
}

#[test]
fn what_came_while_a_unit_was_identified_goes_on_if_it_is_the_same() {
    let mut pair = Pair::connected(9, settings(Digests::NONE), false);
    while pair.turn() {}
    pair.put(Some(LogicalUnit { blocks: BlockCount(9000), ..unit(false) }));
    pair.write(1, 0, &[1; 4096]);
    pair.run_until("told", |pair| !pair.initiator.is_calm(0));
    pair.write(2, 4096, &[2; 4096]);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert_eq!((pair.disk[0], pair.disk[4096]), (1, 2));
    assert_eq!(pair.initiator.facts().expect("facts").size.0, 9000 * 512);
}

#[test]
fn nothing_is_sent_to_a_unit_that_is_gone_until_it_is_back() {
    let mut pair = Pair::connected(10, settings(Digests::NONE), false);
    while pair.turn() {}
    pair.put(None);
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::Removed));
    let gone = |pair: &Pair| matches!(pair.news.last(), Some(InitiatorNews::Unusable(_)));
    pair.run_until("gone", gone);
    let until = pair.shard.now + UNIT_CHECK * 3;
    pair.run_until("some time later", |pair| pair.shard.now >= until);
    pair.read(2, 0, 512);
    assert_eq!(pair.finish(2).0, Outcome::NotDone(Failure::Removed));
    assert_eq!(pair.news.len(), 2, "it is told once: {:?}", pair.news);
    pair.put(Some(unit(false)));
    pair.run_until("back", |pair| pair.initiator.is_calm(0));
    pair.read(3, 0, 512);
    assert_eq!(pair.finish(3).0, Outcome::Done);
    assert!(pair.log.len() == 1 && pair.connections() == 1, "no break");
}

#[test]
fn one_that_is_closed_while_it_asks_for_a_unit_leaves_once_that_is_answered() {
    let mut pair = Pair::connected(11, settings(Digests::NONE), false);
    while pair.turn() {}
    pair.put(Some(LogicalUnit { blocks: BlockCount(9000), ..unit(false) }));
    pair.read(1, 0, 512);
    pair.run_until("asked", |pair| pair.initiator.ports[0].session.question().is_some());
    pair.initiator.close();
    assert_eq!(pair.finish(1).0, Outcome::Done);
    pair.run_until("gone", |pair| pair.initiator.is_gone());
    assert_eq!(pair.news, [InitiatorNews::Connected, InitiatorNews::FactsChanged]);
}

#[test]
fn a_write_in_doubt_that_is_closed_ends_unknown() {
    let mut pair = slow(10);
    pair.write(1, 0, &[1; 4096]);
    let_it_leave(&mut pair);
    cut_all(&mut pair);
    pair.initiator.close();
    assert_eq!(pair.finish(1).0, Outcome::Unknown(Failure::Removed));
    pair.run_until("gone", |pair| pair.initiator.is_gone());
}

#[test]
fn connections_are_its_own_until_they_are_closed() {
    let mut pair = Pair::connected(13, settings(Digests::NONE), false);
    let old = pair.ids();
    assert!(old.iter().all(|id| pair.initiator.owns(*id)));
    assert!(!pair.initiator.owns(ConnectionId { slot: 99, generation: 0 }));
    cut_all(&mut pair);
    pair.run_until("here again", |pair| pair.news.len() == 3);
    assert!(!old.iter().any(|id| pair.initiator.owns(*id)));
    // What is still heard of them is nothing to those that came after them.
    for id in old {
        pair.initiator.handle_lost(pair.shard.now, id, Loss::EndOfStream);
    }
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert_eq!(pair.news.len(), 3, "{:?}", pair.news);
}

#[test]
fn news_tell_the_address_and_the_reason() {
    let mut pair = Pair::connected(14, settings(Digests::NONE), false);
    let told = |pair: &Pair| pair.initiator.tell(pair.news.last().expect("news"));
    assert_eq!(told(&pair), "connected to 127.0.0.1:3260, 4 MiB");
    cut_all(&mut pair);
    notice(&mut pair);
    assert_eq!(told(&pair), "lost 127.0.0.1:3260: the target closed the connection");
}

#[test]
fn the_identity_is_what_the_unit_says_of_itself() {
    let pair = Pair::connected(14, settings(Digests::NONE), false);
    let identity = pair.initiator.identity().expect("it is told");
    assert!(identity.contains("NAA 3"), "{identity}");
}

#[test]
fn rests_double_up_to_ten_seconds_and_half_of_each_is_jitter() {
    let (mut shortest, mut longest) = (1.0f64, 0.0f64);
    for seed in 0..20 {
        let mut pair = Pair::new(seed, settings(Digests::NONE), false);
        pair.unreachable = true;
        for full_ms in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let full = Duration::from_millis(full_ms);
            pair.run_until("trying", |pair| {
                matches!(pair.initiator.ports[0].state, State::Opening)
            });
            while pair.turn() {}
            let State::Resting { until } = pair.initiator.ports[0].state else {
                panic!("it cannot")
            };
            let rest = until.since(pair.shard.now);
            assert!((full / 2..=full).contains(&rest), "{rest:?} of {full:?}");
            shortest = shortest.min(rest.div_duration_f64(full));
            longest = longest.max(rest.div_duration_f64(full));
        }
    }
    assert!(shortest < 0.6 && longest > 0.9, "{shortest} to {longest}");
}

#[test]
fn what_a_target_refuses_is_told_with_the_status() {
    let another = Settings { target: name("iqn.2026-11.net.example:b"), ..settings(Digests::NONE) };
    let mut pair = Pair::new(16, another, false);
    pair.run_until("refused", |pair| pair.initiator.is_refused());
    let why = pair.initiator.explain();
    assert!(why.contains("target not found (0203): it has no target of this name"), "{why}");
    let absent = Settings { lun: 7, ..settings(Digests::NONE) };
    let mut pair = Pair::new(16, absent, false);
    pair.run_until("refused", |pair| pair.initiator.is_refused());
    let why = pair.initiator.explain();
    assert!(why.ends_with(": LUN 7: there is none"), "{why}");
}

#[test]
fn a_session_whose_flush_for_durability_was_under_way_is_in_doubt() {
    let mut played = Played::new(Digests::NONE);
    played.unit.dpo_fua = false;
    played.bring_up("FirstBurstLength=65536");
    played.write(1, &[1; 4096], true);
    let (_, tag, _) = played.hear_command();
    played.end(tag, wire::scsi::ScsiStatus::GOOD, None);
    assert_eq!(played.hear_command().0.opcode(), OpCode::SYNCHRONIZE_CACHE_10);
    let cut_at = played.now;
    played.cut();
    played.rest();
    played.bring_up("FirstBurstLength=65536");
    assert!(played.is_quiet());
    played.pass_live(cut_at + QUIESCE);
    // The whole of it: what was written may have been lost.
    assert_eq!(played.hear_command().0.opcode(), OpCode::WRITE_10);
}

#[test]
fn commands_that_had_not_left_are_not_in_doubt() {
    let mut played = foreign();
    played.write(1, &[1; 4096], false);
    played.initiator.settle(played.now, &mut played.memory);
    let (now, id) = (played.now, played.connection);
    let mut out = None;
    while let Some(effect) = played.initiator.poll_effect() {
        if let contract::StreamEffect::Send { batch, .. } = effect {
            out = Some(batch);
        }
    }
    played.write_at(2, 65_536, &[2; 4096]);
    played.initiator.settle(now, &mut played.memory);
    played.initiator.handle_lost(now, id, Loss::EndOfStream);
    played.settle();
    played.initiator.handle_closed(now, id, None, out);
    played.closes = false;
    played.rest();
    played.bring_up("FirstBurstLength=65536");
    assert_eq!(played.hear_command().0.lba(), 128, "the one that is not in doubt");
    assert!(played.is_quiet());
}

impl Played {
    /// Time passes, and the target gives its signs of life.
    fn pass_live(&mut self, until: Instant) {
        while self.now < until {
            let next = self.now + Duration::from_secs(1);
            self.pass(next.min(until));
            self.answer_pings();
        }
    }

    /// Answers signs of life that are asked for, and questions whether there is something to know.
    pub(super) fn answer_pings(&mut self) {
        self.settle();
        while let Some((pdu, _)) = self.hear_ping() {
            match pdu {
                Pdu::NopOut(ping) => {
                    let pong = wire::iscsi::NopIn::pong(&ping, 0, self.status());
                    self.say(&pong.emit(), &[]);
                }
                Pdu::ScsiCommand(command) => {
                    let tag = command.initiator_task_tag;
                    self.end(tag, wire::scsi::ScsiStatus::GOOD, None);
                }
                other => panic!("no ping: {other}"),
            }
        }
    }
}
