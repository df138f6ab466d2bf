//! The initiator by hand: what it puts on the wire, and answers as targets give them.

mod world;

use core::time::Duration;

use block::{Extent, Failure, Operation, Outcome};
use contract::link::open;
use contract::{Cache, InFrame, LinkId};
use wire::aoe::Address;

use super::{Discovery, InitiatorNews};
use world::*;

#[test]
fn it_asks_on_each_link_and_then_who_it_is() {
    let mut world = World::new(&[1500, 9000]);
    let sent = world.take();
    assert_eq!(sent.len(), 2);
    for (link, frame) in &sent {
        assert_eq!(frame[..6], [0xff; 6]);
        assert_eq!(frame[6..12], OWN[link.0 as usize]);
        assert_eq!(frame[12..20], [0x88, 0xa2, 0x10, 0, 0, 7, 3, 1]);
        assert_eq!((&frame[24..32], frame.len()), (&[0, 0, 0, 0, 0, 0x10, 0, 0][..], 60));
    }
    world.tell(LinkId(0), T, tag_of(&sent[0].1), 16, 2);
    let asked = world.one();
    assert_eq!((&asked[..6], asked[19]), (&T[..], 0));
    assert_eq!(asked[24..36], [0, 0, 1, 0xec, 0, 0, 0, 0xa0, 0, 0, 0, 0]);
    assert_eq!(world.initiator.facts(), None);
    world.identify(LinkId(0), T, tag_of(&asked), 7);
    assert_eq!(world.news(), [InitiatorNews::Connected]);
    let facts = world.initiator.facts().unwrap();
    assert_eq!((facts.size.0, facts.logical_block, facts.cache), (SECTORS * 512, 512, Cache::None));
}

#[test]
fn it_asks_again_until_it_is_answered() {
    let mut world = World::new(&[1500]);
    assert_eq!(world.take().len(), 1);
    let mut rests = Vec::new();
    for _ in 0..9 {
        let at = world.initiator.poll_timeout().unwrap();
        rests.push(at.since(world.now).as_millis());
        world.pass(at.since(world.now));
        assert_eq!(world.take().len(), 1);
    }
    assert_eq!(rests, [250, 500, 1000, 2000, 4000, 8000, 16000, 16000, 16000]);
}

#[test]
fn large_requests_are_split_to_frames_and_joined() {
    for (mtu, told, expected) in [(1500, 2, 2), (9000, 17, 17), (9000, 0, 2), (1500, 17, 2)] {
        let mut world = World::live_with(&[mtu], told, 64, |_| {});
        let whole: Vec<(u64, u64)> =
            (10..50).step_by(expected).map(|at| (at, (50 - at).min(expected as u64))).collect();
        let places = |served: Vec<(LinkId, Vec<u8>)>, registers: (u8, u8)| {
            let place = |(_, frame): &(LinkId, Vec<u8>)| {
                assert_eq!((frame[24], frame[27]), registers);
                assert!(frame.len() <= mtu as usize + 14);
                place_of(frame)
            };
            let mut places: Vec<_> = served.iter().map(place).collect();
            places.sort_unstable();
            places
        };
        world.read(1, 10, 40);
        let served = world.serve_all();
        assert!(served.iter().all(|(_, frame)| frame.len() == 60));
        assert_eq!(places(served, (0x40, 0x24)), whole);
        assert_eq!(world.completed(1), (Outcome::Done, patterns(10, 40)));
        world.write(2, 10, 40, false);
        let served = world.serve_all();
        let mut all = vec![0; 40 * 512];
        for (_, frame) in &served {
            let at = (lba_of(frame) as usize - 10) * 512;
            all[at..at + frame.len() - 36].copy_from_slice(&frame[36..]);
        }
        assert_eq!((all, places(served, (0x41, 0x34))), (patterns(10, 40), whole));
        assert_eq!(world.completed(2).0, Outcome::Done);
        world.is_clean();
    }
}

#[test]
fn a_copy_has_the_same_tag_and_a_second_answer_is_ignored() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    let first = world.one();
    world.until_lost();
    let second = world.one();
    assert_eq!(first, second);
    assert_eq!(tag_of(&first) >> 31, 0);
    world.serve(&second);
    assert_eq!(world.completed(1), (Outcome::Done, pattern(10).to_vec()));
    world.answer(&first, 0x40, 0, &[9; 512]);
    let counters = world.initiator.counters();
    assert_eq!((counters.retransmitted, counters.late), (1, 1));
    world.is_clean();
}

#[test]
fn rests_between_copies_double() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    let mut last = world.now;
    world.take();
    let mut rests = Vec::new();
    for _ in 0..3 {
        world.until_lost();
        world.take();
        rests.push(world.now.since(last).as_millis());
        last = world.now;
    }
    assert!(rests[1] == 2 * rests[0] && rests[2] == 4 * rests[0], "{rests:?}");
}

#[test]
fn whoever_waits_for_a_network_that_goes_around_a_failure_asks_soon_again() {
    for (is_write, depth, most) in [(false, 1, 120), (true, 1, 120), (false, 8, 50), (true, 8, 120)]
    {
        let mut world = World::live(&[1500]);
        // So much is known of the path.
        world.write(20, 500, 1, false);
        world.serve_one();
        for job in 0..depth {
            match is_write {
                true => world.write(job, 10 * u64::from(job), 1, false),
                false => world.read(job, 10 * u64::from(job), 1),
            }
        }
        let (began, mut last) = (world.now, world.now);
        world.take();
        let mut longest = Duration::ZERO;
        while world.now.since(began) < Duration::from_millis(400) {
            world.until(world.now + Duration::from_millis(1));
            if !world.take().is_empty() {
                longest = longest.max(world.now.since(last));
                last = world.now;
            }
        }
        let seen = longest.as_millis();
        assert!(seen <= most, "{is_write} {depth}: {seen} ms");
    }
}

#[test]
fn no_two_overlapping_writes_are_under_way_at_once() {
    let mut world = World::live(&[1500]);
    world.write(1, 10, 2, false);
    world.write(2, 11, 2, false);
    world.write(3, 14, 2, false);
    world.read(4, 10, 2);
    let sent = world.take();
    // The second waits; reads do not.
    let places: Vec<_> = sent.iter().map(|(_, frame)| (frame[27], lba_of(frame))).collect();
    assert_eq!(places, [(0x34, 10), (0x34, 14), (0x24, 10)]);
    world.serve(&sent[0].1);
    let second = world.one();
    assert_eq!(lba_of(&second), 11);
    assert_eq!(world.initiator.counters().blocked, 1);
}

#[test]
fn sectors_of_a_write_that_was_sent_twice_are_in_doubt_until_all_copies_are_answered_or_dead() {
    for answered_twice in [true, false] {
        let mut world = World::live(&[1500]);
        world.write(1, 10, 2, false);
        let frame = world.one();
        world.until_lost();
        let sent_again = world.now;
        assert_eq!(world.one(), frame);
        world.serve(&frame);
        // It is done, and told.
        assert_eq!(world.completed(1).0, Outcome::Done);
        world.write(2, 11, 1, false);
        world.write(3, 12, 1, false);
        assert_eq!(lba_of(&world.serve_one()), 12);
        if answered_twice {
            world.serve(&frame);
            assert_eq!(lba_of(&world.one()), 11);
        } else {
            let end = sent_again + Duration::from_secs(1);
            world.until(end);
            let lbas: Vec<u64> = world.take().iter().map(|(_, frame)| lba_of(frame)).collect();
            assert!(lbas.contains(&11), "{lbas:?}");
        }
    }
}

#[test]
fn an_error_of_the_device_ends_at_once() {
    for (status, error, write, expected) in [
        (0x41, 0x40, false, Failure::MediumRead),
        (0x41, 0x10, false, Failure::OutOfRange),
        (0x41, 0x04, false, Failure::MediumRead),
        (0x41, 0x04, true, Failure::WriteProtected),
        (0x61, 0x04, true, Failure::MediumWrite),
    ] {
        let mut world = World::live(&[1500]);
        match write {
            true => world.write(1, 10, 1, false),
            false => world.read(1, 10, 1),
        }
        let frame = world.one();
        world.answer(&frame, status, error, &[]);
        assert_eq!(world.completed(1).0, Outcome::NotDone(expected));
        world.is_clean();
    }
}

#[test]
fn a_refusal_ends_at_once_and_is_unknown_where_a_copy_may_have_been_carried_out() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    world.write(2, 10, 1, false);
    for (slot, (_, frame)) in (1..).zip(world.take()) {
        world.refuse(&frame, 6);
        assert_eq!(world.completed(slot).0, Outcome::NotDone(Failure::NotReady));
    }
    world.write(3, 20, 1, false);
    let frame = world.one();
    world.until_lost();
    let sent_again = world.now;
    world.take();
    world.refuse(&frame, 6);
    // Not before the other copy is dead.
    assert!(world.done.is_empty());
    world.until(sent_again + Duration::from_secs(1));
    assert_eq!(world.completed(3).0, Outcome::Unknown(Failure::NotReady));
    world.is_clean();
}

#[test]
fn a_read_ends_at_its_deadline_and_a_write_unknown_when_it_is_surely_dead() {
    let mut world = World::live(&[1500]);
    let began = world.now;
    world.read(1, 10, 1);
    world.write(2, 20, 1, false);
    let deadline = began + Duration::from_secs(60);
    world.until(deadline);
    assert_eq!(world.completed(1).0, Outcome::NotDone(Failure::TimedOut));
    assert!(world.done.is_empty());
    world.write(3, 20, 1, false);
    world.take();
    world.until(deadline + Duration::from_secs(9));
    assert!(world.done.is_empty());
    assert!(world.take().iter().all(|(_, frame)| frame[27] != 0x34), "nothing more is written");
    world.until(deadline + Duration::from_secs(10));
    assert_eq!(world.completed(2).0, Outcome::Unknown(Failure::TimedOut));
    // The third was never sent: no path answers.
    world.until(deadline + Duration::from_secs(60));
    assert_eq!(world.completed(3).0, Outcome::NotDone(Failure::TimedOut));
    world.is_clean();
}

#[test]
fn an_answer_after_the_deadline_is_still_an_answer() {
    let mut world = World::live(&[1500]);
    world.write(1, 20, 1, false);
    let frame = world.one();
    world.until(world.now + Duration::from_secs(62));
    assert!(world.done.is_empty());
    world.serve(&frame);
    assert_eq!(world.completed(1).0, Outcome::Done);
}

#[test]
fn what_is_asked_before_the_disk_is_found_waits_and_ends_not_done() {
    let mut world = World::new(&[1500]);
    world.read(1, 0, 1);
    world.write(2, 0, 1, false);
    world.until(world.now + Duration::from_secs(60));
    assert_eq!(world.completed(1).0, Outcome::NotDone(Failure::TimedOut));
    assert_eq!(world.completed(2).0, Outcome::NotDone(Failure::TimedOut));
    assert!(world.initiator.explain().contains("7.3"));
    world.is_clean();
}

#[test]
fn not_more_than_window_and_buffer_count_are_under_way() {
    let mut world = World::live_with(&[1500], 2, 4, |_| {});
    world.read_many(0..10);
    let sent = world.take();
    assert_eq!(sent.len(), 4);
    world.serve(&sent[2].1);
    assert_eq!(world.take().len(), 1);
}

#[test]
fn what_is_answered_or_given_up_leaves_room_for_more() {
    let mut world = World::live_with(&[1500], 2, 200, |_| {});
    for slot in 0..200 {
        world.read(slot, 0, 1);
        world.serve_one();
        assert_eq!(world.completed(slot).0, Outcome::Done);
    }
    world.is_clean();
    let deadline = Duration::from_millis(1);
    let mut world = World::with(&[1500], |settings| settings.deadline = deadline);
    world.take();
    world.meet(LinkId(0), T, 7);
    for slot in 0..200 {
        world.read(slot, 0, 1);
        world.one();
        world.until(world.now + deadline);
        assert_eq!(world.completed(slot).0, Outcome::NotDone(Failure::TimedOut));
    }
    world.is_clean();
}

#[test]
fn initiators_behind_one_address_tell_their_answers_by_their_tags() {
    let mut world =
        World::with(&[1500], |settings| (settings.tag_partition, settings.sharers) = (5, 4));
    let query = world.one();
    assert_eq!(tag_of(&query) >> 25, 5);
    // An answer to another shard's query, and an announcement, which is for all.
    world.tell(LinkId(0), T, tag_of(&query) & 0x1ff_ffff, 8, 2);
    assert!(world.take().is_empty());
    world.tell(LinkId(0), T, 0, 8, 2);
    let asked = world.one();
    world.identify(LinkId(0), T, tag_of(&asked), 7);
    world.read_many(0..8);
    // A quarter of what the target holds.
    let sent = world.take();
    assert_eq!(sent.len(), 2);
    let mut other = answer_to(&sent[0].1, 0x40, 0, &[0xee; 512]);
    other[20] = 6 << 1 | other[20] & 1;
    world.come(LinkId(0), &other);
    assert!(world.done.is_empty());
}

#[test]
fn answers_that_are_not_whole_or_of_others_are_ignored() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    let frame = world.one();
    let good = answer_to(&frame, 0x40, 0, &pattern(10));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    for bytes in [
        good[..500].to_vec(),
        with(14, 0x10),
        with(14, 0x28),
        with(17, 8),
        with(11, 0x77),
        with(5, 0x77),
        with(19, 3),
    ] {
        world.come(LinkId(0), &bytes);
        assert!(world.done.is_empty());
    }
    // A tag that nobody has.
    world.come(LinkId(0), &with(23, good[23].wrapping_add(1)));
    assert_eq!(world.initiator.counters().late, 1);
    let strange = world.initiator.counters().strange;
    assert!(strange >= 5);
    // A station that has our address and ends before it says what it takes.
    world.come(LinkId(0), &told(0, T, 1, 64, 2, b"")[..30]);
    assert_eq!(world.initiator.counters().strange, strange + 1);
    world.come(LinkId(0), &good);
    assert_eq!(world.completed(1).1, pattern(10));
}

#[test]
fn stations_of_one_disk_are_used_at_once_and_another_disk_is_refused() {
    let mut world = World::two_paths();
    assert_eq!(world.news(), [InitiatorNews::Connected]);
    world.read_many(0..8);
    let links: Vec<u32> = world.take().iter().map(|(link, _)| link.0).collect();
    assert_eq!(links.iter().filter(|link| **link == 0).count(), 4);
    // A third station has the address and another serial number.
    let rogue = [2, 9, 9, 9, 9, 9];
    world.tell(LinkId(0), rogue, 0, 64, 17);
    let asked = world.one();
    assert_eq!(asked[..6], rogue);
    world.identify(LinkId(0), rogue, tag_of(&asked), 8);
    let news = world.news();
    assert!(
        matches!(&news[..], [InitiatorNews::Refused(why)] if why.contains("another disk")),
        "{news:?}"
    );
    world.read_many(10..20);
    assert!(world.take().iter().all(|(_, frame)| frame[..6] != rogue));
}

#[test]
fn invented_stations_are_told_of_once_a_second() {
    let mut world = World::two_paths();
    world.news();
    let mut told = Vec::new();
    for number in 0..100u8 {
        let rogue = [2, 9, 9, 9, 9, number];
        world.tell(LinkId(0), rogue, 0, 64, 17);
        let asked = world.one();
        world.identify(LinkId(0), rogue, tag_of(&asked), 8);
        told.extend(world.news());
    }
    assert_eq!(told.len(), 1, "{told:?}");
    world.until(world.now + crate::limits::REFUSALS_REST);
    world.tell(LinkId(0), [2, 9, 9, 9, 9, 1], 0, 64, 17);
    let asked = world.one();
    world.identify(LinkId(0), [2, 9, 9, 9, 9, 1], tag_of(&asked), 8);
    assert_eq!(world.news().len(), 1);
}

#[test]
fn what_a_dead_path_had_goes_by_another_and_writes_only_once_their_copies_are_dead() {
    let mut world = World::two_paths();
    world.read(1, 10, 1);
    world.write(2, 20, 1, false);
    let sent = world.take();
    assert_ne!(sent[0].0, sent[1].0);
    // Both were sent by different links; the one of the write goes down, then the one of the read
    // comes alone.
    let (write_link, write_at) = (sent[1].0, world.now);
    world.act(|initiator, now| initiator.link_down(now, write_link));
    world.settle();
    world.serve(&sent[0].1);
    assert!(world.take().iter().all(|(_, frame)| frame[27] != 0x34));
    world.until(write_at + Duration::from_secs(1));
    let again = world.take();
    let again = again.iter().find(|(_, frame)| frame[27] == 0x34).expect("it is sent again");
    assert_ne!(again.0, write_link);
    assert_eq!(tag_of(&again.1), tag_of(&sent[1].1));
}

#[test]
fn a_command_that_is_too_large_for_the_path_that_is_left_is_split() {
    let mut world = World::new(&[9000, 1500]);
    world.take();
    world.meet(LinkId(0), T, 7);
    world.read(1, 0, 17);
    assert_eq!(world.one()[26], 17);
    world.meet(LinkId(1), U, 7);
    world.act(|initiator, now| initiator.link_down(now, LinkId(0)));
    world.settle();
    let pieces = world.serve_all();
    assert!(pieces.iter().all(|(link, _)| *link == LinkId(1)));
    assert_eq!(pieces.len(), 9);
    assert_eq!(world.completed(1), (Outcome::Done, patterns(0, 17)));
    world.is_clean();
}

#[test]
fn an_aborted_command_of_many_sectors_is_a_reason_to_ask_what_a_frame_carries() {
    let mut world = World::live_with(&[9000], 17, 64, |_| {});
    world.read(1, 0, 17);
    let whole = world.one();
    // The target's link has a smaller MTU now; its announcement was lost.
    world.answer(&whole, 0x41, 0x04, &[]);
    let asked = world.take();
    let [(_, query), (_, identify)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((&query[..6], query[19], identify[27]), (&T[..], 1, 0xec));
    // Who it is does not say what it takes.
    world.identify(LinkId(0), T, tag_of(identify), 7);
    assert!(world.take().is_empty());
    world.tell(LinkId(0), T, tag_of(query), 64, 2);
    world.identify(LinkId(0), T, tag_of(identify), 7);
    let pieces: Vec<u8> = world.serve_all().iter().map(|(_, frame)| frame[26]).collect();
    assert_eq!(pieces, [2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(world.completed(1), (Outcome::Done, patterns(0, 17)));
    world.is_clean();
}

#[test]
fn a_command_that_is_aborted_again_has_failed() {
    let mut world = World::live_with(&[9000], 17, 64, |_| {});
    world.write(1, 0, 17, false);
    let whole = world.one();
    world.answer(&whole, 0x41, 0x04, &[]);
    let asked = world.take();
    world.tell(LinkId(0), T, tag_of(&asked[0].1), 64, 17);
    world.identify(LinkId(0), T, tag_of(&asked[1].1), 7);
    let again = world.one();
    assert_eq!((tag_of(&again), again[26]), (tag_of(&whole), 17));
    world.answer(&again, 0x41, 0x04, &[]);
    assert_eq!(world.completed(1).0, Outcome::NotDone(Failure::WriteProtected));
    world.is_clean();
}

#[test]
fn an_announcement_is_a_reason_to_ask_who_it_is() {
    let mut world = World::live(&[1500]);
    world.tell(LinkId(0), T, 0, 64, 2);
    let asked = world.one();
    assert_eq!(asked[27], 0xec);
    // Nothing else is sent meanwhile.
    world.write(1, 10, 1, false);
    assert!(world.take().is_empty());
    world.sectors = 2 * SECTORS;
    world.identify(LinkId(0), T, tag_of(&asked), 7);
    assert!(world.news().contains(&InitiatorNews::FactsChanged));
    assert_eq!(world.initiator.facts().unwrap().size.0, 2 * SECTORS * 512);
    assert_eq!(lba_of(&world.one()), 10);
}

#[test]
fn a_silent_target_that_comes_back_as_another_disk_is_not_written_to() {
    let mut world = World::live(&[1500]);
    world.write(1, 10, 1, false);
    world.until(world.now + Duration::from_secs(20));
    let news = world.news();
    assert!(matches!(&news[..], [InitiatorNews::Lost(_)]), "{news:?}");
    let sent = world.take();
    let copies = sent.iter().filter(|(_, frame)| frame[27] == 0x34).count();
    assert_eq!(copies, 4, "after as many time-outs it is asked who it is");
    let asked = sent.iter().rfind(|(_, frame)| frame[27] == 0xec).unwrap();
    world.identify(LinkId(0), T, tag_of(&asked.1), 8);
    assert!(matches!(&world.news()[..], [InitiatorNews::Refused(_)]));
    world.until(world.now + Duration::from_secs(30));
    assert!(world.take().iter().all(|(_, frame)| frame[27] != 0x34));
    // And is used again as soon as it is itself.
    world.meet(LinkId(0), T, 7);
    assert_eq!(lba_of(&world.one()), 10);
}

#[test]
fn flushes_go_to_targets_with_a_volatile_cache_alone() {
    let mut world = World::live(&[1500]);
    world.ask(1, Operation::Flush);
    assert_eq!(world.completed(1).0, Outcome::Done);
    world.write(2, 10, 1, true);
    world.serve_one();
    assert_eq!(world.completed(2).0, Outcome::Done);

    let mut world = World::live_with(&[1500], 2, 64, |device| device.write_cache = true);
    assert_eq!(world.initiator.facts().unwrap().cache, Cache::Volatile);
    world.ask(1, Operation::Flush);
    let frame = world.serve_one();
    assert_eq!((frame[24], frame[26], frame[27]), (0x40, 0, 0xea));
    assert_eq!(world.completed(1).0, Outcome::Done);
    world.write(2, 10, 4, true);
    for (_, frame) in world.take() {
        assert_eq!(frame[27], 0x34);
        world.serve(&frame);
    }
    assert!(world.done.is_empty());
    let frame = world.one();
    assert_eq!(frame[27], 0xea);
    world.answer(&frame, 0x61, 4, &[]);
    assert_eq!(world.completed(2).0, Outcome::NotDone(Failure::MediumWrite));
    world.is_clean();
}

#[test]
fn zeros_compares_verifies_and_discards() {
    let mut world = World::live(&[1500]);
    let extent = |lba: u64, count: u64| Extent::new(lba * 512, count * 512);
    let zeros = Operation::WriteZeroes { extent: extent(10, 3), deallocate: false, durable: false };
    world.ask(1, zeros);
    for (_, frame) in world.serve_all() {
        assert_eq!((frame[27], frame.len()), (0x34, 36 + usize::from(frame[26]) * 512));
        assert!(frame[36..].iter().all(|byte| *byte == 0));
    }
    assert_eq!(world.completed(1).0, Outcome::Done);
    world.ask(2, Operation::Discard { extents: vec![extent(0, 1)] });
    assert_eq!(world.completed(2).0, Outcome::Done);
    world.ask(3, Operation::Verify { extent: extent(0, 1) });
    let frame = world.one();
    world.answer(&frame, 0x41, 0x40, &[]);
    assert_eq!(world.completed(3).0, Outcome::NotDone(Failure::MediumRead));
    for (at, expected) in [(None, Outcome::Done), (Some(1300), Outcome::Miscompare(1300))] {
        let buffer = world.buffer(20, 4);
        world.ask(4, Operation::Compare { extent: extent(20, 4), buffer });
        let mut theirs = patterns(20, 4);
        if let Some(at) = at {
            theirs[at] ^= 1;
            theirs[at + 400] ^= 1;
        }
        for (_, frame) in world.take().iter().rev() {
            let from = (lba_of(frame) as usize - 20) * 512;
            let data = theirs[from..from + usize::from(frame[26]) * 512].to_vec();
            world.answer(frame, 0x40, 0, &data);
        }
        assert_eq!(world.completed(4).0, expected);
    }
    world.is_clean();
}

#[test]
fn what_lies_beyond_the_end_is_not_asked() {
    let mut world = World::live(&[1500]);
    world.read(1, SECTORS - 1, 2);
    assert_eq!(world.completed(1).0, Outcome::NotDone(Failure::OutOfRange));
    assert!(world.take().is_empty());
    world.is_clean();
}

#[test]
fn closing_finishes_what_can_be_finished() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    let frame = world.one();
    world.initiator.close();
    world.settle();
    world.read(2, 10, 1);
    assert_eq!(world.completed(2).0, Outcome::NotDone(Failure::Removed));
    assert!(!world.initiator.is_gone());
    world.serve(&frame);
    assert_eq!(world.completed(1).0, Outcome::Done);
    assert!(world.initiator.is_gone());
    assert_eq!(world.initiator.poll_timeout().filter(|at| *at > world.now), None);
}

#[test]
fn one_whose_answers_were_not_taken_is_not_gone() {
    let mut world = World::new(&[1500]);
    world.read(1, 10, 1);
    world.initiator.close();
    world.initiator.handle_timeout(world.now + Duration::from_secs(100));
    assert_eq!((world.initiator.in_flight(), world.initiator.is_gone()), (0, false));
    world.settle();
    assert!(world.initiator.is_gone());
    assert_eq!(world.completed(1).0, Outcome::NotDone(Failure::TimedOut));
}

#[test]
fn a_drained_initiator_does_not_wait_for_a_target_that_is_not_there() {
    let mut world = World::new(&[1500]);
    world.read(1, 10, 1);
    world.initiator.drain();
    world.pass(Duration::from_millis(1));
    assert_eq!(world.completed(1).0, Outcome::NotDone(Failure::NotReady));
    world.is_clean();
}

#[test]
fn a_quiet_initiator_has_no_timers() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    world.serve_one();
    world.until(world.now + Duration::from_secs(100));
    assert_eq!(world.initiator.poll_timeout(), None);
    assert!(world.take().is_empty());
}

#[test]
fn discovery_gathers_all_who_answer() {
    let mut world = World::new(&[1500]);
    let facts = facts(0, 1500);
    let links = [LinkId(0)];
    let mut discovery = Discovery::new(world.now, &links, Duration::from_secs(3), 5);
    discovery.link_up(LinkId(0), facts);
    discovery.settle(world.now);
    let batch = discovery.poll_batch().unwrap();
    assert_eq!((batch.head[..6].to_vec(), &batch.head[16..19]), (vec![0xff; 6], &[0xff; 3][..]));
    discovery.handle_sent(batch);
    let come = |discovery: &mut Discovery, bytes: &[u8]| {
        let frame = open(&facts, &InFrame::new(LinkId(0), None, bytes)).expect("for us");
        discovery.handle_frame(&frame);
    };
    for (shelf, mac) in [(8, T), (7, U), (7, U), (7, T)] {
        let mut answer = told(0, mac, 5, 64, 2, b"name");
        answer[17] = shelf;
        come(&mut discovery, &answer);
    }
    let mut ours = told(0, T, 5, 64, 2, b"");
    ours[14] = 0x10;
    come(&mut discovery, &ours);
    let found: Vec<_> = discovery.found().map(|found| (found.address, found.mac.0)).collect();
    let at = |shelf| Address::new(shelf, 3);
    assert_eq!(found, [(at(7), T), (at(7), U), (at(8), T)]);
    assert_eq!(discovery.found().next().unwrap().config, b"name");
    while !discovery.is_over(world.now) {
        world.now = discovery.poll_timeout();
        discovery.settle(world.now);
    }
    assert_eq!(discovery.poll_batch().map(|batch| batch.frames.len()), Some(1));
}

#[test]
fn an_answer_about_other_sectors_or_in_the_other_direction_is_not_taken() {
    let mut world = World::live(&[1500]);
    world.read(1, 10, 1);
    let asked = world.one();
    let mut foreign = asked.clone();
    foreign[28..30].copy_from_slice(&500_u16.to_le_bytes());
    world.serve(&foreign);
    assert!(world.done.is_empty(), "sector 500 for sector 10");
    world.serve(&asked);
    assert_eq!(world.completed(1), (Outcome::Done, pattern(10).to_vec()));
    // A write of the same sector by somebody else does not end ours.
    world.write(2, 10, 1, false);
    let asked = world.one();
    let mut foreign = asked.clone();
    (foreign[24], foreign[27]) = (0x40, 0x24);
    world.serve(&foreign);
    assert!(world.done.is_empty(), "a read for a write");
    assert_eq!(world.initiator.counters().strange, 2);
    world.serve(&asked);
    assert_eq!(world.completed(2).0, Outcome::Done);
    world.is_clean();
}

/// A target with a volatile cache is started anew: it announces itself, and says who it is.
fn start_anew(world: &mut World) {
    world.tell(LinkId(0), T, 0, 64, 2);
    let sent = world.take();
    let asked = sent.iter().find(|(_, frame)| frame[27] == 0xec).expect("it is asked");
    world.identify(LinkId(0), T, tag_of(&asked.1), 7);
}

fn volatile() -> World {
    World::live_with(&[1500], 2, 64, |device| device.write_cache = true)
}

#[test]
fn a_flush_after_a_volatile_target_was_started_anew_does_not_vouch_for_what_it_lost() {
    let mut world = volatile();
    world.write(1, 10, 1, false);
    world.serve_one();
    assert_eq!(world.completed(1).0, Outcome::Done);
    start_anew(&mut world);
    world.ask(2, Operation::Flush);
    assert_eq!(world.completed(2).0, Outcome::NotDone(Failure::MediumWrite));
    // It is told once; what is written from now on is flushed.
    world.write(3, 10, 1, false);
    world.serve_one();
    assert_eq!(world.completed(3).0, Outcome::Done);
    world.ask(4, Operation::Flush);
    world.serve_one();
    assert_eq!(world.completed(4).0, Outcome::Done);
    // What a flush covered is not lost.
    start_anew(&mut world);
    world.ask(5, Operation::Flush);
    world.serve_one();
    assert_eq!(world.completed(5).0, Outcome::Done);
    world.is_clean();
}

#[test]
fn a_flush_that_a_volatile_target_answers_after_it_was_started_anew_fails() {
    let mut world = volatile();
    world.write(1, 10, 1, false);
    world.serve_one();
    assert_eq!(world.completed(1).0, Outcome::Done);
    world.ask(2, Operation::Flush);
    let flush = world.one();
    start_anew(&mut world);
    world.take();
    world.serve(&flush);
    assert_eq!(world.completed(2).0, Outcome::NotDone(Failure::MediumWrite));
    world.is_clean();
}

#[test]
fn a_write_across_a_new_start_of_a_volatile_target_is_sent_once_more() {
    for durable in [false, true] {
        let mut world = volatile();
        // Two commands, of which one is answered before.
        world.write(1, 10, 4, durable);
        let sent = world.take();
        assert_eq!(sent.len(), 2);
        world.serve(&sent[0].1);
        start_anew(&mut world);
        world.take();
        world.serve(&sent[1].1);
        assert!(world.done.is_empty(), "the first half may be lost");
        let again = world.take();
        let places: Vec<_> = again.iter().map(|(_, frame)| place_of(frame)).collect();
        assert_eq!(places, [(10, 2), (12, 2)]);
        again.iter().for_each(|(_, frame)| world.serve(frame));
        if durable {
            world.serve_one();
        }
        assert_eq!(world.completed(1).0, Outcome::Done);
        world.is_clean();
    }
}

#[test]
fn a_write_cache_that_is_on_after_a_new_start_is_told() {
    let mut world = World::live(&[1500]);
    world.device.write_cache = true;
    start_anew(&mut world);
    assert!(world.news().contains(&InitiatorNews::FactsChanged));
    assert_eq!(world.initiator.facts().unwrap().cache, Cache::Volatile);
}
