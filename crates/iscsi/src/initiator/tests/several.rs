//! Several sessions of one disk: they share what is asked, come and go alone, and whatever one of
//! them leaves in doubt holds for all.

use core::time::Duration;

use block::{BlockCount, Failure, Instant, Operation, Outcome};
use scsi::LogicalUnit;
use wire::iscsi::Digests;

use super::fixtures::{settings, unit};
use super::pair::Pair;
use crate::initiator::{InitiatorNews, SESSION_BITS, Settings};
use crate::limits::INITIATOR_SESSIONS_MAX;

const QUIESCE: Duration = Duration::from_secs(30);

fn of(sessions: u16) -> Settings {
    Settings { sessions, ..settings(Digests::NONE) }
}

/// A pair of which all sessions stand.
fn whole(seed: u64, sessions: u16, volatile: bool) -> Pair {
    let mut pair = Pair::connected(seed, of(sessions), volatile);
    pair.run_until("whole", |pair| live(pair) == usize::from(sessions));
    while pair.turn() {}
    pair
}

fn live(pair: &Pair) -> usize {
    pair.initiator.ports.iter().filter(|port| port.is_live()).count()
}

fn under_way(pair: &Pair) -> Vec<u32> {
    pair.initiator.ports.iter().map(|port| port.session.outstanding()).collect()
}

/// Turns until the target's disk has what was asked, but not answered it; the port that asked.
fn leave(pair: &mut Pair) -> usize {
    while pair.turn() {}
    let asks = |port: &u32| *port > 0;
    under_way(pair).iter().position(asks).expect("something is under way")
}

fn losses(pair: &Pair) -> usize {
    pair.news.iter().filter(|news| matches!(news, InitiatorNews::Lost(_))).count()
}

fn missing(pair: &Pair) -> Vec<&str> {
    let mut told = Vec::new();
    for news in &pair.news {
        if let InitiatorNews::WayLost(why) = news {
            told.push(why.as_str());
        }
    }
    told
}

#[test]
fn each_session_has_an_isid_of_its_own_and_keeps_it() {
    let mut pair = whole(1, 3, false);
    let isids = |pair: &Pair| -> Vec<[u8; 6]> {
        pair.shard.shared.report().iter().map(|session| session.nexus.isid).collect()
    };
    let mut seen = isids(&pair);
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2].map(|session| [0x80, 0, 0, 0, session, 1]));
    (0..3).for_each(|at| pair.cut_port(at));
    pair.run_until("away", |pair| losses(pair) == 1);
    pair.run_until("whole", |pair| live(pair) == 3);
    let mut again = isids(&pair);
    again.sort_unstable();
    assert_eq!(again, seen, "what they left is ended by those that come back");
    let most = settings(Digests::NONE).isid_of(INITIATOR_SESSIONS_MAX - 1);
    assert_eq!(most, [0x80, 0, 0, 0, SESSION_BITS, 1]);
}

#[test]
fn the_disk_is_there_with_the_first_session_and_is_told_again_when_all_stand() {
    let mut pair = Pair::new(2, of(3), false);
    pair.run_until("there", |pair| pair.initiator.facts().is_some());
    assert_eq!(pair.initiator.state(), "connected to 127.0.0.1:3260 with 1 of 3 sessions");
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    pair.run_until("whole", |pair| live(pair) == 3);
    while pair.turn() {}
    assert_eq!(pair.news, [InitiatorNews::Connected, InitiatorNews::WayFound]);
    let told = pair.initiator.tell(&InitiatorNews::WayFound);
    assert_eq!(told, "connected to 127.0.0.1:3260 with 3 sessions");
    assert_eq!(pair.connections(), 3);
}

#[test]
fn requests_go_to_the_session_with_the_fewest() {
    let mut pair = whole(3, 3, false);
    pair.chances.disk = Duration::from_secs(1);
    (0..7).for_each(|slot| pair.read(slot, u64::from(slot) * 4096, 4096));
    pair.turn();
    assert_eq!(under_way(&pair), [3, 2, 2]);
    (0..7).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
}

#[test]
fn a_session_that_is_not_to_be_had_is_told_once_and_rests_alone() {
    let mut pair = Pair::new(4, of(3), false);
    pair.shut_out = Some(2);
    pair.run_until("refused", |pair| pair.initiator.ports[2].attempts > 6);
    assert_eq!(live(&pair), 2);
    assert!(!pair.initiator.is_refused());
    let state = pair.initiator.state();
    let start = "connected to 127.0.0.1:3260 with 2 of 3 sessions; session 3: no connection: ";
    assert!(state.starts_with(start), "{state}");
    let [told] = missing(&pair)[..] else { panic!("{:?}", pair.news) };
    assert!(told.starts_with("session 3 of 3 with 127.0.0.1:3260 is missing: no con"), "{told}");
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    pair.shut_out = None;
    pair.run_until("whole", |pair| live(pair) == 3);
    assert_eq!((losses(&pair), pair.connections()), (0, 3), "nobody else came again");
}

#[test]
fn a_read_of_a_session_that_broke_is_asked_by_another() {
    let mut pair = whole(5, 2, false);
    pair.chances.disk = Duration::from_secs(3);
    pair.read(1, 4096, 65_536);
    let at = leave(&mut pair);
    (pair.unreachable, pair.chances.disk) = (true, Duration::ZERO);
    pair.cut_port(at);
    let (outcome, bytes) = pair.finish(1);
    assert_eq!(outcome, Outcome::Done);
    assert!(bytes == pair.disk[4096..4096 + 65_536]);
    assert_eq!((live(&pair), losses(&pair), missing(&pair).len()), (1, 0, 1));
}

#[test]
fn a_write_in_doubt_holds_back_what_overlaps_it_on_every_session_and_nothing_else() {
    let mut pair = whole(6, 3, false);
    pair.chances.disk = Duration::from_secs(9);
    pair.write(1, 0, &[1; 8192]);
    let at = leave(&mut pair);
    pair.chances.disk = Duration::ZERO;
    pair.unreachable = true;
    pair.cut_port(at);
    let cut_at = pair.shard.now;
    pair.run_until("noticed", |pair| live(pair) == 2);
    pair.write(2, 4096, &[2; 8192]);
    pair.write(3, 65_536, &[3; 4096]);
    let zeroes = Operation::WriteZeroes {
        extent: block::Extent::new(0, 512),
        deallocate: false,
        durable: false,
    };
    pair.ask(4, zeroes);
    assert_eq!(pair.finish(3).0, Outcome::Done, "it waits for nobody");
    assert!(pair.done.is_empty(), "{:?} {:?} {at}", pair.done, pair.log);
    assert_eq!(pair.log, ["write"], "the two others have not been sent");
    // Nobody logs in again by that port: the others replay it when the quiesce time has passed.
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert!(pair.shard.now.since(cut_at) >= QUIESCE);
    assert_eq!(pair.finish(4).0, Outcome::Done);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    let seen = [pair.disk[0], pair.disk[512], pair.disk[4096], pair.disk[8192]];
    assert_eq!(seen, [0, 1, 2, 2], "newer writes stay");
}

#[test]
fn a_login_ends_the_doubt_of_its_own_session_alone() {
    for (kept_out, is_late) in [(true, true), (false, false)] {
        let mut pair = whole(7, 2, false);
        pair.chances.disk = Duration::from_secs(9);
        pair.chances.late = Duration::ZERO;
        pair.write(1, 0, &[1; 4096]);
        let at = leave(&mut pair);
        pair.chances.disk = Duration::ZERO;
        pair.shut_out = kept_out.then_some(at);
        let cut_at = pair.shard.now;
        (0..2).for_each(|at| pair.cut_port(at));
        pair.run_until("noticed", |pair| losses(pair) == 1);
        pair.run_until("here", |pair| live(pair) > 0);
        assert_eq!(pair.finish(1).0, Outcome::Done);
        assert_eq!(pair.shard.now.since(cut_at) >= QUIESCE, is_late, "kept out: {kept_out}");
    }
}

#[test]
fn a_write_in_doubt_ends_unknown_not_before_it_is_dead_though_others_stand() {
    let hasty = Settings { deadline: Duration::from_secs(4), ..of(2) };
    let mut pair = Pair::connected(8, hasty, false);
    pair.run_until("whole", |pair| live(pair) == 2);
    while pair.turn() {}
    pair.chances.disk = Duration::from_secs(3);
    pair.write(1, 0, &[1; 4096]);
    let at = leave(&mut pair);
    pair.unreachable = true;
    pair.cut_port(at);
    let cut_at = pair.shard.now;
    assert_eq!(pair.finish(1).0, Outcome::Unknown(Failure::TimedOut));
    assert!(pair.shard.now.since(cut_at) >= QUIESCE);
    assert_eq!(losses(&pair), 0);
}

/// Which port has stood longest.
fn eldest(pair: &Pair) -> usize {
    pair.initiator.eldest().expect("one stands")
}

#[test]
fn a_flush_goes_by_the_session_that_stands_longest() {
    let mut pair = whole(9, 3, true);
    assert_eq!(eldest(&pair), 0);
    pair.cut_port(0);
    pair.run_until("noticed", |pair| live(pair) == 2);
    pair.run_until("whole", |pair| live(pair) == 3);
    assert_ne!(eldest(&pair), 0, "it came back as the youngest");
    pair.chances.disk = Duration::from_secs(1);
    (0..2).for_each(|slot| pair.read(slot, 0, 512));
    pair.ask(2, Operation::Flush);
    pair.turn();
    let expected: Vec<u32> =
        (0..3).map(|at| 1 + u32::from(at == eldest(&pair)) - u32::from(at == 2)).collect();
    assert_eq!(under_way(&pair), expected, "although another has nothing to do");
    (0..3).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
}

#[test]
fn a_flush_that_the_eldest_session_does_not_take_waits_and_lets_others_pass() {
    let mut pair = Pair::connected(10, Settings { depth: 1, ..of(2) }, true);
    pair.run_until("whole", |pair| live(pair) == 2);
    while pair.turn() {}
    pair.chances.disk = Duration::from_secs(3);
    pair.read(1, 0, 512);
    assert_eq!(leave(&mut pair), eldest(&pair));
    pair.chances.disk = Duration::ZERO;
    pair.ask(2, Operation::Flush);
    pair.read(3, 0, 512);
    assert_eq!(pair.finish(3).0, Outcome::Done);
    assert!(pair.done.is_empty() && pair.log == ["read"], "{:?}", pair.log);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert_eq!(pair.finish(2).0, Outcome::Done);
}

#[test]
fn flushes_are_in_doubt_when_the_eldest_session_broke_and_by_no_other_break() {
    for (breaks, flush) in
        [(0, Outcome::NotDone(Failure::MediumWrite)), (1, Outcome::Done), (2, Outcome::Done)]
    {
        let mut pair = whole(11, 3, true);
        (0..3).for_each(|slot| pair.write(slot, u64::from(slot) * 4096, &[1; 4096]));
        (0..3).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
        pair.cut_port(breaks);
        pair.ask(4, Operation::Flush);
        assert_eq!(pair.finish(4).0, flush, "session {breaks}");
        pair.ask(5, Operation::Flush);
        assert_eq!(pair.finish(5).0, Outcome::Done, "it fails once");
        assert_eq!(losses(&pair), 0);
    }
}

#[test]
fn a_session_that_finds_another_unit_has_the_others_ask_and_the_disk_is_lost() {
    let mut pair = whole(12, 3, false);
    pair.put(Some(LogicalUnit { uuid: [4; 16], ..unit(false) }));
    pair.cut_port(1);
    pair.run_until("lost", |pair| losses(pair) == 1);
    let state = pair.initiator.state();
    assert!(state.contains("LUN 300 is another unit now: expected"), "{state}");
    pair.write(1, 0, &[1; 4096]);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::TimedOut));
    assert!(pair.log.is_empty(), "nothing reached it: {:?}", pair.log);
}

#[test]
fn one_session_that_finds_another_unit_alone_is_missing() {
    let mut pair = whole(12, 2, false);
    pair.put(Some(LogicalUnit { uuid: [4; 16], ..unit(false) }));
    pair.cut_port(1);
    // The others are asked who it is before they carry out what comes meanwhile.
    pair.run_until("seen", |pair| pair.initiator.ports[1].fault.contains("another unit"));
    assert!(!pair.initiator.is_calm(0), "{}", pair.initiator.state());
}

#[test]
fn a_unit_that_grows_is_told_once_and_every_session_goes_on() {
    let mut pair = whole(13, 3, false);
    pair.put(Some(LogicalUnit { blocks: BlockCount(9000), ..unit(false) }));
    (0..6).for_each(|slot| pair.write(slot, u64::from(slot) * 4096, &[slot as u8 + 1; 4096]));
    (0..6).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    pair.run_until("known", |pair| (0..3).all(|at| pair.initiator.is_calm(at)));
    assert_eq!(pair.initiator.facts().expect("facts").size.0, 9000 * 512);
    let changed = pair.news.iter().filter(|news| **news == InitiatorNews::FactsChanged);
    assert_eq!((changed.count(), pair.connections()), (1, 3));
}

#[test]
fn a_unit_that_is_gone_is_told_once_and_is_back_with_every_session() {
    let mut pair = whole(14, 3, false);
    pair.put(None);
    (0..3).for_each(|slot| pair.read(slot, 0, 512));
    (0..3).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::NotDone(Failure::Removed)));
    let gone = |pair: &Pair| matches!(pair.news.last(), Some(InitiatorNews::Unusable(_)));
    pair.run_until("gone", gone);
    pair.read(4, 0, 512);
    assert_eq!(pair.finish(4).0, Outcome::NotDone(Failure::Removed));
    // One of those that know of none breaks: there is none still.
    pair.unreachable = true;
    pair.cut_port(0);
    pair.run_until("noticed", |pair| live(pair) == 2);
    pair.read(5, 0, 512);
    assert_eq!(pair.finish(5).0, Outcome::NotDone(Failure::Removed));
    let unusable = pair.news.iter().filter(|news| matches!(news, InitiatorNews::Unusable(_)));
    assert_eq!(unusable.count(), 1, "{:?}", pair.news);
    pair.unreachable = false;
    pair.put(Some(unit(false)));
    pair.run_until("back", |pair| (0..3).all(|at| pair.initiator.is_calm(at)));
    pair.read(6, 0, 512);
    assert_eq!(pair.finish(6).0, Outcome::Done);
    assert_eq!(losses(&pair), 0);
}

#[test]
fn the_last_session_that_has_the_unit_takes_it_along() {
    let mut pair = whole(15, 2, false);
    pair.put(None);
    // Only the first has heard of it.
    pair.read(1, 0, 512);
    assert_eq!(pair.finish(1).0, Outcome::NotDone(Failure::Removed));
    pair.run_until("known", |pair| !pair.initiator.ports[0].has_unit());
    assert!(pair.initiator.ports[1].has_unit());
    pair.unreachable = true;
    pair.cut_port(1);
    pair.run_until("noticed", |pair| live(pair) == 1);
    pair.read(2, 0, 512);
    assert_eq!(pair.finish(2).0, Outcome::NotDone(Failure::Removed));
}

#[test]
fn a_task_that_is_late_costs_its_own_session_at_most() {
    let hasty = Settings { deadline: Duration::from_secs(4), ..of(3) };
    let mut pair = Pair::connected(16, hasty, false);
    pair.run_until("whole", |pair| live(pair) == 3);
    while pair.turn() {}
    pair.chances.disk = Duration::from_secs(100_000);
    pair.write(1, 0, &[1; 4096]);
    leave(&mut pair);
    pair.chances.disk = Duration::ZERO;
    pair.run_until("broken", |pair| !missing(pair).is_empty());
    pair.read(2, 65_536, 512);
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert_eq!((losses(&pair), missing(&pair).len()), (0, 1), "{:?}", pair.news);
}

#[test]
fn who_is_closed_finishes_what_there_is_and_all_sessions_leave() {
    let mut pair = whole(17, 3, false);
    pair.chances.disk = Duration::from_secs(2);
    (0..5).for_each(|slot| pair.write(slot, u64::from(slot) * 4096, &[1; 4096]));
    while pair.turn() {}
    pair.initiator.close();
    (0..5).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    pair.run_until("gone", |pair| pair.initiator.is_gone() && pair.connections() == 0);
    assert_eq!(pair.initiator.state(), "closed");
    assert_eq!((losses(&pair), missing(&pair).len()), (0, 0), "{:?}", pair.news);
    assert_eq!(pair.pages_held(), 0);
    // One that never was there has nothing to leave.
    let mut early = Pair::new(18, of(3), false);
    early.unreachable = true;
    early.run_until("resting", |pair| pair.initiator.ports[0].attempts > 0);
    early.initiator.close();
    assert!(early.initiator.is_gone());
}

#[test]
fn a_silence_is_of_the_session_that_is_silent() {
    let mut pair = whole(19, 2, false);
    let silent = pair.initiator.port_of(pair.ids()[0]).expect("its port");
    pair.hush(0);
    let hushed_at: Instant = pair.shard.now;
    pair.run_until("noticed", |pair| !missing(pair).is_empty());
    assert!(missing(&pair)[0].ends_with("the target is silent"), "{:?}", pair.news);
    assert!(pair.shard.now.since(hushed_at) < Duration::from_secs(6));
    assert_eq!(missing(&pair)[0].starts_with("session 1"), silent == 0);
    assert_eq!(losses(&pair), 0);
    pair.run_until("whole", |pair| live(pair) == 2);
}
