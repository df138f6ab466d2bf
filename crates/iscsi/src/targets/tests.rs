//! The targets of several shards, whose messages a test carries by hand: one session for each initiator
//! port, wherever its connections are; resets and modes that reach all shards.

mod modes;

use core::time::Duration;
use std::collections::VecDeque;

use block::{Instant, ShardId, Slot, VolumeId};
use contract::{HostEvent, Refused, Traffic};
use reservation::replica::Answer;
use reservation::{Change, PathGroup, Reservation, Verdict};
use wire::iscsi::LoginStatus;

use super::{CloseReason, Nexus, Opened, Opening, SessionEvent, Targets, Wanted};
use crate::fixtures::{self, HOST, TARGET, endpoint, name};
use crate::limits::REINSTATEMENT_HOLD;
use crate::message::Message;
use crate::target::{Hosts, Target};

const UNAVAILABLE: LoginStatus = LoginStatus::SERVICE_UNAVAILABLE;

/// Some shards, and the mail between them: first in, first out between each two.
struct Shards {
    now: Instant,
    targets: Vec<Targets>,
    mail: VecDeque<(ShardId, ShardId, Message)>,
    places: u32,
}

/// A session: its shard, its place and its handle.
type At = (usize, Slot, Opened);

impl Shards {
    fn new(count: u16) -> Shards {
        let of = |shard| {
            let mut targets = fixtures::targets(shard, count);
            targets.set_target(target());
            targets.configuration_complete();
            targets
        };
        Shards {
            now: Instant(1_000_000),
            targets: (0..count).map(of).collect(),
            mail: VecDeque::new(),
            places: 0,
        }
    }

    /// Notes what the shards wrote.
    fn collect(&mut self) {
        for (from, targets) in self.targets.iter_mut().enumerate() {
            while let Some((to, message)) = targets.poll_message() {
                self.mail.push_back((ShardId(from as u16), to, message));
            }
        }
    }

    /// The oldest mail from one shard to another arrives, if there is one.
    fn carry_between(&mut self, from: u16, to: u16) -> bool {
        self.collect();
        let is_it = |(a, b, _): &(ShardId, ShardId, Message)| (a.0, b.0) == (from, to);
        let Some(at) = self.mail.iter().position(is_it) else { return false };
        let (_, _, message) = self.mail.remove(at).expect("it was just found");
        self.targets[usize::from(to)].handle_message(self.now, ShardId(from), message);
        self.collect();
        true
    }

    /// All mail arrives, in the order in which it was written.
    fn carry(&mut self) {
        self.collect();
        while let Some((from, to, message)) = self.mail.pop_front() {
            self.targets[to.index()].handle_message(self.now, from, message);
            self.collect();
        }
    }

    /// A place for a connection of a shard.
    fn place(&mut self) -> Slot {
        self.places += 1;
        Slot { index: self.places, generation: 1 }
    }

    /// Logs a port in on a shard, and nothing is carried.
    fn ask(&mut self, shard: usize, wanted: &Wanted) -> (Slot, Opening) {
        let (place, now) = (self.place(), self.now);
        let peer = endpoint("127.0.0.1:3260").peer;
        (place, self.targets[shard].open(now, place, peer, wanted.clone()))
    }

    /// What the sessions of a shard are to hear.
    fn events(&mut self, shard: usize) -> Vec<(Slot, SessionEvent)> {
        core::iter::from_fn(|| self.targets[shard].poll_event()).collect()
    }

    /// How a login ended that was answered later.
    fn opened(&mut self, shard: usize, place: Slot) -> Option<Result<Opened, LoginStatus>> {
        let opened = |(at, event)| match event {
            SessionEvent::Opened(opened) if at == place => Some(opened),
            _ => None,
        };
        self.events(shard).into_iter().find_map(opened)
    }

    /// Logs a port in on a shard; everything is carried, and nothing is in its way.
    fn log_in(&mut self, shard: usize, wanted: &Wanted) -> At {
        let (place, opening) = self.ask(shard, wanted);
        let opened = match opening {
            Opening::Now(opened) => opened,
            Opening::Later => {
                self.carry();
                self.opened(shard, place).expect("every shard has answered")
            }
        };
        (shard, place, opened.expect("a login"))
    }

    fn drain(&mut self, (shard, _, opened): At) {
        self.targets[shard].session_ends(opened.handle, "it was closed");
        self.targets[shard].session_drained(opened.handle);
    }

    fn is_closed(&mut self, (shard, place, _): At, reason: CloseReason) -> bool {
        let is_it = |(at, event)| at == place && event == SessionEvent::Close(reason);
        self.events(shard).into_iter().any(is_it)
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let now = self.now;
        self.targets.iter_mut().for_each(|targets| targets.handle_timeout(now));
    }

    fn sessions(&self) -> usize {
        self.targets.iter().map(Targets::session_count).sum()
    }
}

fn target() -> Target {
    fixtures::target(TARGET, [(0, fixtures::unit(0, 1 << 20)), (5, fixtures::unit(1, 1 << 20))])
}

fn port() -> Wanted {
    let (initiator, target) = (name(HOST), name(TARGET));
    Wanted {
        nexus: Nexus { initiator, isid: [1; 6], target, group: PathGroup::DEFAULT },
        tsih: 0,
        cid: 0,
    }
}

#[test]
fn a_port_has_one_session_wherever_its_connections_are() {
    for count in [1, 2, 3, 5] {
        for (first, second) in [(0, 0), (0, count - 1), (count - 1, 0), (count / 2, count / 2)] {
            let mut shards = Shards::new(count);
            let old = shards.log_in(first.into(), &port());
            let (place, opening) = shards.ask(second.into(), &port());
            assert_eq!(opening, Opening::Later);
            shards.carry();
            assert!(shards.is_closed(old, CloseReason::Reinstated), "{first} {second}");
            assert_eq!(shards.opened(second.into(), place), None, "the old one has not drained");
            shards.drain(old);
            shards.carry();
            let new = shards.opened(second.into(), place).expect("an answer").expect("a login");
            assert_ne!(new.tsih, old.2.tsih);
            assert_eq!(shards.sessions(), 1);
        }
    }
}

/// Whichever answers last, the login waits for it.
#[test]
fn a_login_waits_for_every_shard_in_every_order() {
    for order in [[1, 2], [2, 1]] {
        let mut shards = Shards::new(3);
        let old = shards.log_in(1, &port());
        let (place, _) = shards.ask(0, &port());
        for to in order {
            assert!(shards.carry_between(0, to));
        }
        shards.drain(old);
        for from in order {
            assert_eq!(shards.opened(0, place), None);
            assert!(shards.carry_between(from, 0));
        }
        assert!(shards.opened(0, place).expect("an answer").is_ok());
    }
}

#[test]
fn ports_of_other_names_are_left_alone() {
    let mut shards = Shards::new(3);
    let mine = shards.log_in(1, &port());
    let mut other = port();
    other.nexus.isid[5] ^= 1;
    shards.log_in(2, &other);
    let mut other = port();
    other.nexus.initiator = name("iqn.2026-11.net.plateway:another");
    shards.log_in(0, &other);
    assert!(!shards.is_closed(mine, CloseReason::Reinstated));
    assert_eq!(shards.sessions(), 3);
}

#[test]
fn of_two_logins_at_once_the_one_on_the_lower_shard_wins() {
    // In which order the two questions arrive: at 0 first, or at 1 first.
    for zero_first in [false, true] {
        let mut shards = Shards::new(2);
        let (low, _) = shards.ask(0, &port());
        let (high, _) = shards.ask(1, &port());
        let way = if zero_first { [(1, 0), (0, 1)] } else { [(0, 1), (1, 0)] };
        for (from, to) in way {
            assert!(shards.carry_between(from, to));
        }
        shards.carry();
        let low = shards.opened(0, low).expect("an answer");
        let high = shards.opened(1, high).expect("an answer");
        assert!(low.is_ok() && high == Err(UNAVAILABLE), "{zero_first}: {low:?} {high:?}");
        assert_eq!(shards.sessions(), 1);
    }
}

/// Whatever the order in which mail arrives, there is one session at most, and whoever comes again
/// gets in.
#[test]
fn logins_of_one_port_on_all_shards_leave_one_session() {
    for seed in 0..300 {
        let mut random = block::Random::new(seed);
        let count = 2 + random.below(3) as u16;
        let mut shards = Shards::new(count);
        let mut waits: Vec<(usize, Slot)> = Vec::new();
        let mut open: Vec<At> = Vec::new();
        for _ in 0..60 {
            match random.below(4) {
                0 => {
                    let shard = random.below(count.into()) as usize;
                    if let (place, Opening::Later) = shards.ask(shard, &port()) {
                        waits.push((shard, place));
                    }
                }
                1 if !open.is_empty() => {
                    let which = random.below(open.len() as u64) as usize;
                    shards.drain(open.swap_remove(which));
                }
                2 if !waits.is_empty() && random.below(4) == 0 => {
                    let (shard, place) = waits[random.below(waits.len() as u64) as usize];
                    shards.targets[shard].abandon(place);
                    waits.retain(|(_, other)| *other != place);
                }
                _ => {
                    let (from, to) = (random.below(count.into()), random.below(count.into()));
                    shards.carry_between(from as u16, to as u16);
                }
            }
            take_events(&mut shards, &mut waits, &mut open);
            let living = open.iter().filter(|(shard, _, opened)| {
                shards.targets[*shard].sessions.get(opened.handle.0).is_some_and(|one| !one.ends)
            });
            assert!(living.count() <= 1, "seed {seed}: a port has two sessions");
        }
        // All of them end, and one more gets in.
        for _ in 0..10 {
            open.drain(..).for_each(|at| shards.drain(at));
            shards.carry();
            take_events(&mut shards, &mut waits, &mut open);
        }
        assert!(waits.is_empty() && open.is_empty(), "seed {seed}: {waits:?} wait for ever");
        shards.log_in(0, &port());
    }
}

fn take_events(shards: &mut Shards, waits: &mut Vec<(usize, Slot)>, open: &mut Vec<At>) {
    for shard in 0..shards.targets.len() {
        for (place, event) in shards.events(shard) {
            let SessionEvent::Opened(opened) = event else { continue };
            let waited = waits.iter().any(|(_, other)| *other == place);
            waits.retain(|(_, other)| *other != place);
            if let Ok(opened) = opened {
                assert!(waited, "a login that was abandoned became a session");
                open.push((shard, place, opened));
            }
        }
    }
}

#[test]
fn who_waits_too_long_for_another_shard_is_told_to_come_again() {
    let mut shards = Shards::new(3);
    let old = shards.log_in(2, &port());
    let (place, _) = shards.ask(0, &port());
    shards.carry();
    let due = shards.targets[2].poll_timeout().expect("somebody waits");
    assert_eq!(due, shards.now + REINSTATEMENT_HOLD);
    shards.pass(REINSTATEMENT_HOLD - Duration::from_nanos(1));
    shards.carry();
    assert_eq!(shards.opened(0, place), None);
    shards.pass(Duration::from_nanos(1));
    shards.carry();
    assert_eq!(shards.opened(0, place), Some(Err(UNAVAILABLE)));
    assert_eq!(shards.targets[2].poll_timeout(), None);
    // It drains still, and no other takes its place before.
    let (place, _) = shards.ask(1, &port());
    shards.carry();
    assert_eq!(shards.opened(1, place), None);
    shards.drain(old);
    shards.carry();
    assert!(shards.opened(1, place).expect("an answer").is_ok());
}

#[test]
fn a_login_that_is_abandoned_while_it_waits_becomes_no_session() {
    let mut shards = Shards::new(2);
    let old = shards.log_in(1, &port());
    let (place, _) = shards.ask(0, &port());
    shards.targets[0].abandon(place);
    shards.carry();
    shards.drain(old);
    shards.carry();
    assert_eq!((shards.opened(0, place), shards.sessions()), (None, 0));
    // And it is in nobody's way.
    shards.log_in(1, &port());
}

#[test]
fn a_session_is_joined_by_its_number_on_any_shard() {
    let mut shards = Shards::new(3);
    let old = shards.log_in(2, &port());
    let tsih = old.2.tsih;
    // Another connection of it: there is one at most.
    let (place, _) = shards.ask(0, &Wanted { tsih, cid: 1, ..port() });
    shards.carry();
    assert_eq!(shards.opened(0, place), Some(Err(LoginStatus::TOO_MANY_CONNECTIONS)));
    // A session that there is not.
    let (place, _) = shards.ask(0, &Wanted { tsih: tsih + 1, ..port() });
    shards.carry();
    assert_eq!(shards.opened(0, place), Some(Err(LoginStatus::NO_SUCH_SESSION)));
    assert!(!shards.is_closed(old, CloseReason::Reinstated));
    // The same connection anew.
    let (place, _) = shards.ask(0, &Wanted { tsih, ..port() });
    shards.carry();
    assert!(shards.is_closed(old, CloseReason::Reinstated));
    shards.drain(old);
    shards.carry();
    let opened = shards.opened(0, place).expect("an answer").expect("a login");
    assert_eq!((opened.tsih, shards.sessions()), (tsih, 1));
}

#[test]
fn numbers_of_sessions_are_of_one_shard_alone_and_never_zero() {
    let mut shards = Shards::new(3);
    let mut seen = Vec::new();
    for round in 0..30u8 {
        let mut wanted = port();
        wanted.nexus.isid = [round; 6];
        let (_, _, opened) = shards.log_in(usize::from(round % 3), &wanted);
        assert!(opened.tsih != 0 && !seen.contains(&opened.tsih));
        seen.push(opened.tsih);
    }
    // They go round without ever being 0.
    shards.targets[0].sessions_made = u32::MAX - 3;
    for round in 0..8u8 {
        let mut wanted = port();
        wanted.nexus.isid = [100 + round; 6];
        assert_ne!(shards.log_in(0, &wanted).2.tsih, 0);
    }
}

/// What its units lie on may be owned by a shard that does not have it yet.
#[test]
fn nobody_logs_in_before_every_shard_has_its_configuration() {
    for late in [0, 1] {
        let mut shards = Shards::new(2);
        shards.targets[late] = fixtures::targets(late as u16, 2);
        shards.targets[late].set_target(target());
        let (place, opening) = shards.ask(0, &port());
        if late == 0 {
            assert_eq!(opening, Opening::Now(Err(UNAVAILABLE)));
        } else {
            shards.carry();
            assert_eq!(shards.opened(0, place), Some(Err(UNAVAILABLE)));
        }
        shards.targets[late].configuration_complete();
        shards.log_in(0, &port());
    }
}

#[test]
fn what_changed_while_a_login_waited_counts() {
    for removed in [false, true] {
        let mut shards = Shards::new(2);
        let old = shards.log_in(1, &port());
        let (place, _) = shards.ask(0, &port());
        shards.carry();
        for targets in &mut shards.targets {
            let mut closed = target();
            closed.units.iter_mut().for_each(|unit| unit.hosts = Hosts::List(Vec::new()));
            match removed {
                true => targets.remove_target(&name(TARGET)),
                false => targets.set_target(closed),
            }
        }
        shards.drain(old);
        shards.carry();
        let status = match removed {
            true => LoginStatus::NOT_FOUND,
            false => LoginStatus::AUTHORIZATION_FAILURE,
        };
        assert_eq!(shards.opened(0, place), Some(Err(status)));
    }
}

#[test]
fn who_comes_leaves_and_is_refused_is_told_to_people() {
    let mut shards = Shards::new(1);
    let at = shards.log_in(0, &port());
    shards.drain(at);
    let mut absent = port();
    absent.nexus.target = name("iqn.2026-11.net.plateway:none");
    assert_eq!(shards.ask(0, &absent).1, Opening::Now(Err(LoginStatus::NOT_FOUND)));
    let news: Vec<_> = core::iter::from_fn(|| shards.targets[0].poll_host_news()).collect();
    let events: Vec<_> = news.into_iter().map(|news| news.event).collect();
    assert_eq!(
        events,
        [
            HostEvent::Connected,
            HostEvent::Left("it was closed"),
            HostEvent::Refused(Refused::NotExported),
        ]
    );
}

/// The tasks that a reset of this unit, or of all, is to end by its events.
fn aborts(shards: &mut Shards, (shard, place, opened): At, lun: Option<u16>) -> bool {
    let expected = SessionEvent::Abort { of: opened.handle, lun };
    let is_it = |(at, event)| at == place && event == expected;
    shards.events(shard).into_iter().any(is_it)
}

#[test]
fn a_reset_is_over_when_the_tasks_of_all_shards_have_ended() {
    for lun in [Some(5), None] {
        let mut shards = Shards::new(3);
        let sessions: Vec<At> = (0..3u8)
            .map(|shard| {
                let mut wanted = port();
                wanted.nexus.isid = [shard; 6];
                shards.log_in(shard.into(), &wanted)
            })
            .collect();
        let (_, place, asker) = sessions[1];
        shards.targets[1].reset(asker.handle, 77, lun, false);
        shards.carry();
        for at in &sessions {
            assert!(aborts(&mut shards, *at, lun));
        }
        for (shard, _, opened) in &sessions {
            assert_eq!(shards.events(1), [], "the tasks of shard {shard} have not ended");
            shards.targets[*shard].aborted(opened.handle, lun);
            shards.carry();
        }
        assert_eq!(shards.events(1), [(place, SessionEvent::ResetDone { tag: 77 })]);
    }
}

#[test]
fn a_cold_reset_is_told_to_who_asked_before_its_session_ends() {
    let mut shards = Shards::new(2);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let (mine, other) = (shards.log_in(0, &port()), shards.log_in(1, &other));
    shards.targets[0].reset(mine.2.handle, 5, None, true);
    shards.carry();
    shards.events(0);
    shards.targets[0].aborted(mine.2.handle, None);
    shards.targets[1].aborted(other.2.handle, None);
    assert!(shards.is_closed(other, CloseReason::ColdReset));
    assert_eq!(shards.events(0), []);
    shards.carry();
    let close = SessionEvent::Close(CloseReason::ColdReset);
    let expected = [(mine.1, SessionEvent::ResetDone { tag: 5 }), (mine.1, close)];
    assert_eq!(shards.events(0), expected);
}

#[test]
fn a_reset_does_not_wait_for_who_is_gone() {
    let mut shards = Shards::new(2);
    let mut other = port();
    other.nexus.isid = [2; 6];
    let (mine, other) = (shards.log_in(0, &port()), shards.log_in(1, &other));
    shards.targets[0].reset(mine.2.handle, 5, Some(0), false);
    shards.carry();
    shards.targets[0].aborted(mine.2.handle, Some(0));
    shards.drain(other);
    shards.carry();
    assert!(shards.events(0).contains(&(mine.1, SessionEvent::ResetDone { tag: 5 })));
    // Another target's sessions have nothing to do with it.
    let mut shards = Shards::new(1);
    let mine = shards.log_in(0, &port());
    shards.targets[0].reset(mine.2.handle, 6, Some(0), false);
    shards.targets[0].aborted(mine.2.handle, Some(5));
    assert!(
        !shards.events(0).iter().any(|(_, event)| matches!(event, SessionEvent::ResetDone { .. }))
    );
    shards.targets[0].aborted(mine.2.handle, Some(0));
    assert_eq!(shards.events(0), [(mine.1, SessionEvent::ResetDone { tag: 6 })]);
}

/// The one change that a shard wants, which is decided as it asks.
fn decide(shards: &mut Shards, shard: usize) -> (VolumeId, Change) {
    let targets = &mut shards.targets[shard];
    let (volume, number, change) = targets.poll_reservation_change().expect("a change");
    assert_eq!(targets.poll_reservation_change(), None);
    let done = Answer::Decided(Verdict::Done, Reservation::default());
    targets.handle_reservation_answer(number, done);
    (volume, change)
}

#[test]
fn a_reset_waits_for_the_end_of_what_a_session_of_another_shard_has() {
    for lun in [Some(0), None] {
        let mut shards = Shards::new(2);
        let mut other = port();
        other.nexus.isid = [2; 6];
        let (mine, other) = (shards.log_in(0, &port()), shards.log_in(1, &other));
        let hold = shards.targets[1].hold(other.2.handle).expect("a session");
        assert_ne!(hold.life, shards.targets[0].hold(mine.2.handle).expect("a session").life);
        shards.targets[1].change(other.2.handle, VolumeId(0), Change::Hold(hold));
        assert_eq!(decide(&mut shards, 1), (VolumeId(0), Change::Hold(hold)));
        // Nobody has the other unit.
        shards.targets[0].reset(mine.2.handle, 4, Some(5), false);
        shards.carry();
        assert_eq!(shards.targets[1].poll_reservation_change(), None);

        shards.targets[0].reset(mine.2.handle, 5, lun, false);
        shards.carry();
        shards.targets[0].aborted(mine.2.handle, lun);
        shards.targets[1].aborted(other.2.handle, lun);
        shards.carry();
        let is_done = |(_, event)| event == SessionEvent::ResetDone { tag: 5 };
        assert!(!shards.events(0).into_iter().any(is_done), "it has it still");
        assert_eq!(decide(&mut shards, 1), (VolumeId(0), Change::ResetHold));
        shards.carry();
        assert!(shards.events(0).into_iter().any(is_done));
    }
}

#[test]
fn what_a_host_did_stays_with_it_when_its_session_is_gone_and_strangers_are_counted_together() {
    let mut shards = Shards::new(1);
    // One LUN is anybody's, the other one lists the host.
    let listing = |hosts: Hosts| {
        let mut target = target();
        target.units[0].hosts = Hosts::Any;
        target.units[1].hosts = hosts;
        target
    };
    shards.targets[0].set_target(listing(Hosts::List(vec![name(HOST)])));
    let mut stranger = port();
    stranger.nexus.initiator = name("iqn.2026-11.net.plateway:stranger");
    let (host, other) = (shards.log_in(0, &port()), shards.log_in(0, &stranger));
    let read = |reads| Traffic { reads, read_bytes: 512 * reads, ..Traffic::default() };
    for (at, reads) in [(&host, 2), (&other, 5), (&host, 1)] {
        shards.targets[0].count_traffic(at.2.handle, &read(reads));
    }
    let told = |shards: &Shards| {
        let all = shards.targets[0].traffic_report().into_iter();
        all.map(|one| (one.host, one.traffic)).collect::<Vec<_>>()
    };
    let expected = vec![(None, read(5)), (Some(name(HOST)), read(3))];
    assert_eq!(told(&shards), expected);
    shards.drain(host);
    shards.drain(other);
    assert_eq!(told(&shards), expected, "sessions are gone");
    let again = shards.log_in(0, &port());
    shards.targets[0].count_traffic(again.2.handle, &read(1));
    assert_eq!(told(&shards)[1], (Some(name(HOST)), read(4)));
    // A list that does not name it any more leaves its name nowhere.
    shards.targets[0].set_target(listing(Hosts::Any));
    assert_eq!(told(&shards), [(None, read(9))]);
}
