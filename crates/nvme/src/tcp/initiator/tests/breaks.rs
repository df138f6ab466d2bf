//! What becomes of requests when the association breaks: the rule *Unknown*, flush doubt, identity,
//! change of size.

use core::time::Duration;

use block::{BlockCount, Failure, Instant, Operation, Outcome};
use contract::{ConnectionId, Loss, StreamEffect};
use wire::nvme::{Completion as Entry, Status};
use wire::nvme_tcp::{Digests, PduType};

use super::pair::{Pair, namespace, settings};
use crate::fixtures::nqn;
use crate::subsystem::Namespace;
use crate::tcp::initiator::queue::QueueNews;
use crate::tcp::initiator::{InitiatorNews, Settings, State};

const QUIESCE: Duration = Duration::from_secs(10);

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

/// Turns until the initiator has noticed the break: what is asked from now on was not on the old
/// association.
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
fn a_write_that_was_under_way_is_replayed_only_after_the_quiesce_time() {
    let mut pair = slow(2);
    pair.write(1, 0, &[1; 4096]);
    let_it_leave(&mut pair);
    let cut_at = cut_all(&mut pair);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert!(pair.shard.now.since(cut_at) >= QUIESCE);
    assert_eq!(pair.log.iter().filter(|name| **name == "write").count(), 2);
}

#[test]
fn a_new_write_waits_behind_one_in_doubt_that_it_overlaps_and_behind_no_other() {
    let mut pair = slow(3);
    pair.write(1, 0, &[1; 8192]);
    let_it_leave(&mut pair);
    let cut_at = cut_all(&mut pair);
    pair.chances.disk = Duration::ZERO;
    notice(&mut pair);
    pair.write(2, 4096, &[2; 8192]);
    pair.write(3, 65_536, &[3; 4096]);
    assert_eq!(pair.finish(3).0, Outcome::Done);
    assert!(pair.shard.now.since(cut_at) < QUIESCE, "what does not overlap does not wait");
    assert!(pair.take(2).is_none());
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert!(pair.shard.now.since(cut_at) >= QUIESCE);
    assert_eq!((pair.disk[0], pair.disk[4096], pair.disk[12_287]), (1, 2, 2));
}

#[test]
fn a_write_that_never_left_ends_not_done_at_its_deadline() {
    let mut pair = Pair::new(4, settings(Digests::NONE), false);
    pair.unreachable = true;
    let asked_at = pair.shard.now;
    pair.write(1, 0, &[1; 4096]);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::TimedOut));
    assert_eq!(pair.shard.now.since(asked_at), Duration::from_secs(60));
    assert!(pair.initiator.explain().contains("127.0.0.1:4420"));
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
fn a_disk_that_never_answers_costs_the_association_and_the_write_is_unknown() {
    let hasty = Settings { deadline: Duration::from_secs(5), ..settings(Digests::NONE) };
    let mut pair = Pair::connected(6, hasty, false);
    pair.chances.disk = Duration::from_secs(100_000);
    pair.write(1, 0, &[1; 4096]);
    let asked_at = pair.shard.now;
    assert_eq!(pair.finish(1).0, Outcome::Unknown(Failure::TimedOut));
    assert!(pair.shard.now.since(asked_at) >= Duration::from_secs(5) + QUIESCE);
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

#[test]
fn another_namespace_under_the_same_number_is_refused() {
    let mut pair = Pair::connected(8, settings(Digests::NONE), false);
    pair.put(Some(Namespace { uuid: [4; 16], ..namespace(false) }));
    cut_all(&mut pair);
    pair.run_until("lost", |pair| pair.news.len() > 1);
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::TimedOut));
    assert!(pair.initiator.state().contains("another one"), "{}", pair.initiator.state());
}

/// The namespace changes, and the initiator has just been told.
fn told_of(namespace: Option<Namespace>) -> Pair {
    let mut pair = Pair::connected(8, settings(Digests::NONE), false);
    while pair.turn() {}
    pair.put(namespace);
    pair.run_until("told", |pair| !pair.initiator.is_calm());
    pair
}

#[test]
fn nothing_is_sent_to_another_namespace() {
    let mut pair = told_of(Some(Namespace { uuid: [4; 16], ..namespace(false) }));
    let heard = pair.commands_heard();
    pair.write(1, 0, &[1; 4096]);
    let another = |pair: &Pair| match pair.news.last() {
        Some(InitiatorNews::Lost(why)) => why.contains("another one"),
        _ => {
            assert_eq!(pair.commands_heard(), heard, "before it is known who is there");
            false
        }
    };
    pair.run_until("lost", another);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::TimedOut));
    assert!(pair.log.is_empty(), "{:?}", pair.log);
}

/// What was sent before the event may arrive after the question, which opens the number to the
/// controller.
#[test]
fn who_a_namespace_is_is_asked_when_nothing_is_under_way() {
    let mut pair = slow(8);
    pair.write(1, 0, &[1; 65_536]);
    let_it_leave(&mut pair);
    let other = Namespace { uuid: [4; 16], ..namespace(false) };
    pair.put(Some(other));
    pair.run_until("told", |pair| !pair.initiator.is_calm());
    pair.run_until("answered", |pair| {
        let answered = !pair.done.is_empty();
        assert!(answered || pair.initiator.admin.question().is_none());
        answered
    });
    assert_eq!(pair.take(1).map(|(outcome, _)| outcome), Some(Outcome::Done));
    pair.run_until("lost", |pair| matches!(pair.news.last(), Some(InitiatorNews::Lost(_))));
}

#[test]
fn what_came_while_a_namespace_was_identified_goes_on_if_it_is_the_same() {
    let mut pair = told_of(Some(Namespace { blocks: BlockCount(9000), ..namespace(false) }));
    let heard = pair.commands_heard();
    pair.write(1, 0, &[1; 4096]);
    assert!(!pair.turn() || pair.commands_heard() == heard);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert_eq!(pair.disk[..4096], [1; 4096]);
}

#[test]
fn nothing_is_sent_to_a_namespace_that_is_gone_until_it_is_back() {
    let mut pair = told_of(None);
    let gone = |pair: &Pair| matches!(pair.news.last(), Some(InitiatorNews::Unusable(_)));
    pair.run_until("gone", gone);
    let heard = pair.commands_heard();
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::Removed));
    assert_eq!(pair.commands_heard(), heard);
    pair.put(Some(namespace(false)));
    pair.run_until("back", |pair| pair.initiator.is_calm());
    pair.read(2, 0, 512);
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert_eq!(pair.connections(), 1 + usize::from(settings(Digests::NONE).queues), "no break");
}

#[test]
fn a_namespace_that_comes_back_while_it_is_asked_for_is_found() {
    let mut pair = told_of(None);
    pair.put(Some(namespace(false)));
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::Done);
}

#[test]
fn one_that_is_closed_while_it_asks_for_a_namespace_leaves_once_that_is_answered() {
    let mut pair = told_of(Some(Namespace { blocks: BlockCount(9000), ..namespace(false) }));
    pair.run_until("asked", |pair| pair.initiator.admin.question().is_some());
    pair.initiator.close();
    pair.run_until("gone", |pair| pair.initiator.is_gone());
    assert_eq!(pair.news, [InitiatorNews::Connected, InitiatorNews::FactsChanged]);
}

#[test]
fn a_namespace_that_grows_is_told_of_without_a_break() {
    let mut pair = Pair::connected(9, settings(Digests::NONE), false);
    while pair.turn() {}
    for blocks in [10_000, 20_000] {
        pair.put(Some(Namespace { blocks: BlockCount(blocks), ..namespace(false) }));
        pair.run_until("grown", |pair| {
            pair.initiator.facts().is_some_and(|facts| facts.size.0 == blocks * 512)
        });
    }
    let changed = |news: &&InitiatorNews| **news == InitiatorNews::FactsChanged;
    assert_eq!(pair.news.iter().filter(changed).count(), 2, "{:?}", pair.news);
    assert_eq!(pair.news.len(), 3);
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
fn a_command_at_the_beginning_of_a_keep_alive_period_does_not_cost_the_association() {
    let mut pair = Pair::connected(12, settings(Digests::NONE), false);
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    let until = pair.shard.now + Duration::from_secs(60);
    pair.run_until("a minute later", |pair| pair.shard.now >= until);
    assert_eq!(pair.news, [InitiatorNews::Connected]);
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
fn the_loss_of_any_connection_ends_the_association() {
    for index in 0..3 {
        let mut pair = Pair::connected(17, settings(Digests::NONE), false);
        while pair.turn() {}
        pair.cut(index);
        notice(&mut pair);
        pair.read(1, 0, 512);
        assert_eq!(pair.finish(1).0, Outcome::Done);
    }
}

#[test]
fn news_tell_the_address_and_the_reason() {
    let mut pair = Pair::connected(14, settings(Digests::NONE), false);
    let told = |pair: &Pair| pair.initiator.tell(pair.news.last().expect("news"));
    assert_eq!(told(&pair), "connected to 127.0.0.1:4420 with 2 queues, 4 MiB");
    cut_all(&mut pair);
    notice(&mut pair);
    assert_eq!(told(&pair), "lost 127.0.0.1:4420: the target closed the connection");
}

#[test]
fn rests_double_up_to_ten_seconds_and_half_of_each_is_jitter() {
    let (mut shortest, mut longest) = (1.0f64, 0.0f64);
    for seed in 0..20 {
        let mut pair = Pair::new(seed, settings(Digests::NONE), false);
        pair.unreachable = true;
        for full_ms in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let full = Duration::from_millis(full_ms);
            pair.run_until("trying", |pair| matches!(pair.initiator.state, State::Opening { .. }));
            while pair.turn() {}
            let State::Resting { until } = pair.initiator.state else { panic!("it cannot") };
            let rest = until.since(pair.shard.now);
            assert!((full / 2..=full).contains(&rest), "{rest:?} of {full:?}");
            shortest = shortest.min(rest.div_duration_f64(full));
            longest = longest.max(rest.div_duration_f64(full));
        }
    }
    assert!(shortest < 0.6 && longest > 0.9, "{shortest} to {longest}");
}

#[test]
fn a_target_that_breaks_the_protocol_is_told_so_on_that_connection() {
    for index in 0..3 {
        let mut pair = Pair::connected(15, settings(Digests::NONE), false);
        while pair.turn() {}
        let (now, culprit) = (pair.shard.now, pair.ids()[index]);
        pair.initiator.handle_received(now, culprit, &[0x0b; 8], &mut pair.shard.memory);
        let mut told = 0;
        while let Some(effect) = pair.initiator.poll_effect() {
            match effect {
                StreamEffect::Send { connection, batch } => {
                    assert_eq!((connection, batch.head[0]), (culprit, PduType::H2C_TERM_REQ.0));
                    told += 1;
                }
                StreamEffect::Close { connection, after_send } => {
                    assert_eq!(after_send, connection == culprit, "it leaves before the close");
                }
                StreamEffect::Connect { .. } => panic!("it rests"),
            }
        }
        assert_eq!(told, 1);
    }
}

#[test]
fn what_a_target_refuses_is_told_with_the_step_and_the_status() {
    let another =
        Settings { subsystem: nqn("nqn.2026-11.net.example:b"), ..settings(Digests::NONE) };
    let mut pair = Pair::new(16, another, false);
    pair.run_until("refused", |pair| pair.initiator.is_refused());
    let why = pair.initiator.explain();
    assert!(why.contains(": Connect was answered with "), "{why}");
    // A queue is told by its number.
    let mut pair = Pair::new(16, settings(Digests::NONE), false);
    pair.run_until("joining", |pair| matches!(pair.initiator.state, State::Joining { .. }));
    let refused = Entry::new(0, Status::INTERNAL_ERROR);
    pair.initiator.queues[1].news = Some(QueueNews::Connected(refused));
    pair.initiator.handle_timeout(pair.shard.now);
    let why = pair.initiator.explain();
    assert!(why.contains(": Connect of queue 2 was answered with "), "{why}");
}
