//! The rules of jobs, one by one, without a protocol.

use core::time::Duration;

use block::{
    Buffer, ByteCount, Completion, Extent, Failure, Instant, Operation, Outcome, Request, Ticket,
};
use contract::{Cache, DiskFacts};

use crate::{Cursor, Disk, InitiatorNews, JobState, PayloadPlace, Verdict};

const NOW: Instant = Instant(1_000_000_000);
const DEADLINE: Duration = Duration::from_secs(60);
const DONE: Verdict = Verdict::Finish(Outcome::Done);

fn facts(size: u64, cache: Cache) -> DiskFacts {
    DiskFacts { cache, ..DiskFacts::of_memory(ByteCount(size)) }
}

fn disk() -> Disk<()> {
    let mut disk = Disk::default();
    disk.came();
    disk
}

fn read(offset: u64, length: u64) -> Operation {
    let buffer = Buffer::reserved(length as u32, (offset % 4096) as u32);
    Operation::Read { extent: Extent::new(offset, length), buffer }
}

fn write(offset: u64, length: u64) -> Operation {
    let buffer = Buffer::reserved(length as u32, (offset % 4096) as u32);
    Operation::Write { extent: Extent::new(offset, length), buffer, durable: false }
}

fn ask(disk: &mut Disk<()>, slot: u32, operation: Operation) {
    let ticket = Ticket { slot, ..Ticket::default() };
    disk.admit(&mut Request { ticket, operation }, NOW + DEADLINE);
}

/// Begins all that can be; the jobs.
fn begin(disk: &mut Disk<()>) -> Vec<u32> {
    let mut begun = Vec::new();
    while let Some(index) = disk.front() {
        disk.start();
        begun.push(index);
    }
    begun
}

fn done(disk: &mut Disk<()>) -> Vec<(u32, Outcome)> {
    let done = core::iter::from_fn(|| disk.poll_completion());
    done.map(|Completion { ticket, outcome, .. }| (ticket.slot, outcome)).collect()
}

#[test]
fn a_change_waits_for_a_claim_that_it_overlaps_and_reads_wait_for_none() {
    let mut disk = disk();
    ask(&mut disk, 0, write(0, 8192));
    let first = begin(&mut disk)[0];
    disk.claim(first);
    ask(&mut disk, 1, write(4096, 4096));
    ask(&mut disk, 2, write(4096, 512));
    ask(&mut disk, 3, read(0, 4096));
    ask(&mut disk, 4, write(8192, 512));
    assert_eq!(begin(&mut disk).len(), 2);
    assert_eq!(disk.blocked_count, 2);
    disk.conclude(NOW, first, DONE);
    // In their order.
    let begun = begin(&mut disk);
    begun.into_iter().for_each(|index| disk.conclude(NOW, index, DONE));
    assert_eq!(done(&mut disk).iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn strays_claim_until_all_are_answered_or_dead() {
    for answers in [2, 1] {
        let mut disk = disk();
        disk.claim_for_strays(Extent::new(0, 512), 7, 2, NOW + DEADLINE / 2);
        ask(&mut disk, 0, write(0, 512));
        (0..answers).for_each(|_| disk.stray_answered(7));
        disk.stray_answered(8);
        assert_eq!(begin(&mut disk).len(), answers - 1);
        disk.handle_timeout(NOW + DEADLINE / 2);
        assert_eq!(begin(&mut disk).len(), 2 - answers);
    }
}

#[test]
fn what_a_break_leaves_in_doubt_is_asked_again_when_it_is_dead_and_unknown_past_its_deadline() {
    for (dead_after, expected) in [(10, None), (61, Some(Outcome::Unknown(Failure::TimedOut)))] {
        let mut disk = disk();
        ask(&mut disk, 0, write(0, 512));
        ask(&mut disk, 1, write(512, 512));
        ask(&mut disk, 2, read(0, 512));
        let lost: Vec<_> = begin(&mut disk).into_iter().zip([true, false, true]).collect();
        disk.recover(NOW, lost.clone());
        let states: Vec<_> = lost.iter().map(|(index, _)| disk[*index].state).collect();
        assert_eq!(states, [JobState::Doubtful(None), JobState::Waiting, JobState::Waiting]);
        let begun = begin(&mut disk);
        assert_eq!(begun, [lost[1].0, lost[2].0], "in the order of arrival");
        begun.into_iter().for_each(|index| disk.conclude(NOW, index, DONE));
        done(&mut disk);
        let dead_at = NOW + Duration::from_secs(dead_after);
        disk.all_closed(dead_at, false);
        ask(&mut disk, 3, write(256, 512));
        assert!(begin(&mut disk).is_empty(), "it overlaps what is in doubt");
        disk.handle_timeout(Instant(dead_at.0 - 1));
        assert!(!done(&mut disk).iter().any(|(slot, _)| *slot == 0), "not before it is dead");
        disk.handle_timeout(dead_at);
        let ended = done(&mut disk).into_iter().find(|(slot, _)| *slot == 0);
        assert_eq!(ended.map(|(_, outcome)| outcome), expected);
        let begun = begin(&mut disk);
        assert_eq!(begun.len(), usize::from(expected.is_none()));
        // Asked again, it still has its deadline.
        let stuck = disk.handle_timeout(NOW + DEADLINE);
        assert_eq!(
            stuck,
            begun.iter().map(|index| (*index, Failure::TimedOut)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn doubt_is_over_when_a_target_that_is_believed_says_so() {
    let mut disk = disk();
    ask(&mut disk, 0, write(0, 512));
    let lost = begin(&mut disk).into_iter().map(|index| (index, true)).collect();
    disk.recover(NOW, lost);
    // Of a connection that is still there nothing is known.
    disk.doubt_is_over(NOW, |()| true);
    disk.handle_timeout(NOW);
    assert!(begin(&mut disk).is_empty());
    disk.all_closed(NOW + Duration::from_secs(10), false);
    let told_at = NOW + Duration::from_secs(1);
    disk.doubt_is_over(told_at, |()| true);
    disk.handle_timeout(told_at);
    assert_eq!(begin(&mut disk).len(), 1);
}

#[test]
fn of_several_connections_each_has_a_doubt_of_its_own() {
    let mut disk: Disk<u8> = Disk::default();
    disk.presence.set_facts(facts(1 << 20, Cache::Volatile));
    for (slot, offset) in [(0, 0), (1, 4096)] {
        let ticket = Ticket { slot, ..Ticket::default() };
        let mut request = Request { ticket, operation: write(offset, 512) };
        disk.admit(&mut request, NOW + DEADLINE);
    }
    let mut begun = Vec::new();
    while let Some(index) = disk.front() {
        disk.start().wire = begun.len() as u8;
        begun.push(index);
    }
    let dead_at = [10, 20].map(|seconds| NOW + Duration::from_secs(seconds));
    for (index, dead_at) in begun.iter().zip(dead_at) {
        disk.recover(NOW, vec![(*index, true)]);
        disk.closed(dead_at);
        assert_eq!(disk[*index].state, JobState::Doubtful(Some(dead_at)));
    }
    disk.doubt_is_over(NOW, |of| *of == 1);
    disk.handle_timeout(NOW);
    assert_eq!(disk.front(), Some(begun[1]), "the other one is still in doubt");
    disk.start();
    disk.handle_timeout(dead_at[0]);
    assert_eq!(disk.front(), Some(begun[0]));
    assert!(!disk.has_flush_doubt(), "that is told by itself");
}

#[test]
fn a_discard_in_doubt_blocks_what_overlaps_any_of_its_extents() {
    let mut disk = disk();
    let extents = vec![Extent::new(0, 4096), Extent::new(1 << 20, 4096)];
    ask(&mut disk, 0, Operation::Discard { extents });
    let discard = begin(&mut disk)[0];
    disk.recover(NOW, vec![(discard, true)]);
    ask(&mut disk, 1, write(1 << 20, 512));
    ask(&mut disk, 2, write(4096, 512));
    assert_eq!(begin(&mut disk).len(), 1);
    disk.all_closed(NOW, false);
    disk.handle_timeout(NOW);
    assert_eq!(begin(&mut disk), [discard], "the replayed discard comes before");
}

#[test]
fn what_waits_ends_at_its_deadline_and_what_is_active_is_told_of() {
    let mut disk = disk();
    ask(&mut disk, 0, read(0, 512));
    let active = begin(&mut disk)[0];
    ask(&mut disk, 1, write(0, 512));
    assert_eq!(disk.poll_timeout(), Some(NOW + DEADLINE));
    assert!(disk.handle_timeout(Instant((NOW + DEADLINE).0 - 1)).is_empty());
    assert_eq!(disk.handle_timeout(NOW + DEADLINE), [(active, Failure::TimedOut)]);
    assert_eq!(done(&mut disk), [(1, Outcome::NotDone(Failure::TimedOut))]);
}

#[test]
fn a_command_that_cannot_be_carried_out_now_is_tried_again_after_rests_that_double() {
    let mut disk = disk();
    ask(&mut disk, 0, read(0, 512));
    let mut now = NOW;
    for rest in [1, 2, 4, 8, 16, 32, 64] {
        let index = begin(&mut disk)[0];
        disk.conclude(now, index, Verdict::Retry(Failure::NotReady));
        let until = disk.poll_timeout().unwrap();
        assert_eq!(until.since(now).as_millis(), rest);
        now = until;
        disk.handle_timeout(now);
    }
    let index = begin(&mut disk)[0];
    disk.conclude(now, index, Verdict::Retry(Failure::NotReady));
    assert_eq!(done(&mut disk), [(0, Outcome::NotDone(Failure::NotReady))]);
}

#[test]
fn what_the_target_had_no_room_for_is_asked_again_as_often_as_it_takes() {
    let mut disk = disk();
    ask(&mut disk, 0, write(0, 512));
    ask(&mut disk, 1, write(512, 512));
    for _ in 0..100 {
        let begun = begin(&mut disk);
        assert_eq!(begun.len(), 2);
        begun.iter().for_each(|index| disk.put_back(*index));
        assert_eq!(disk.front(), Some(begun[0]), "in their order");
    }
    assert_eq!(disk.handle_timeout(NOW + DEADLINE), []);
    assert_eq!(done(&mut disk).len(), 2, "but no longer than their deadlines");
}

#[test]
fn a_large_payload_is_cut_at_pages_and_joined_and_ends_as_the_worst_of_its_parts() {
    let mut disk = disk();
    ask(&mut disk, 0, read(512, 20_000));
    ask(&mut disk, 1, read(0, 512));
    disk.front();
    disk.split(8192);
    let parts = begin(&mut disk);
    let extents: Vec<Extent> = parts.iter().map(|index| disk[*index].extent).collect();
    let ends = [(512, 7680), (8192, 8192), (16_384, 4128), (0, 512)];
    assert_eq!(extents, ends.map(|(offset, length)| Extent::new(offset, length)));
    disk.conclude(NOW, parts[2], DONE);
    disk.conclude(NOW, parts[1], Verdict::Finish(Outcome::Miscompare(5)));
    assert!(disk.poll_completion().is_none());
    disk.conclude(NOW, parts[0], DONE);
    let whole = disk.poll_completion().unwrap();
    assert_eq!((whole.outcome, whole.buffer.len()), (Outcome::Miscompare(7685), 20_000));
}

#[test]
fn a_discard_goes_on_until_its_cursor_is_behind_its_last_extent() {
    let mut disk = disk();
    let extents = vec![Extent::new(0, 512), Extent::new(4096, 512)];
    ask(&mut disk, 0, Operation::Discard { extents });
    for extent in [1, 2] {
        let index = begin(&mut disk)[0];
        disk[index].then = Cursor { extent, done: 0 };
        assert!(disk.poll_completion().is_none());
        disk.conclude(NOW, index, DONE);
    }
    assert_eq!(done(&mut disk), [(0, Outcome::Done)]);
    assert_eq!(Cursor::after(512, Extent::new(0, 512)), Cursor { extent: 1, done: 0 });
}

#[test]
fn flushes_fail_once_if_completed_writes_may_be_lost() {
    for (flushed, shared, cache, fails) in [
        (false, false, Cache::Volatile, true),
        (true, false, Cache::Volatile, false),
        (true, true, Cache::Volatile, true),
        (false, true, Cache::None, false),
    ] {
        let mut disk = disk();
        disk.presence.set_facts(facts(512, cache));
        ask(&mut disk, 0, write(0, 512));
        if flushed {
            ask(&mut disk, 1, Operation::Flush);
        }
        while let Some(index) = disk.front() {
            disk.start();
            disk.conclude(NOW, index, DONE);
        }
        disk.all_closed(NOW, shared);
        done(&mut disk);
        ask(&mut disk, 2, Operation::Flush);
        assert_eq!(begin(&mut disk).len(), usize::from(!fails));
        let failed = done(&mut disk);
        assert_eq!(failed.len(), usize::from(fails), "{failed:?}");
        ask(&mut disk, 3, Operation::Flush);
        assert_eq!(begin(&mut disk).len(), 1, "once");
    }
}

#[test]
fn nobody_waits_for_a_disk_that_is_away_while_it_is_drained_or_closed_or_for_one_that_is_gone() {
    for way in ["drain", "close", "gone"] {
        let mut disk = disk();
        ask(&mut disk, 0, read(0, 512));
        match way {
            "drain" => disk.drain(),
            "close" => disk.close(),
            _ => disk.gone("deleted".to_owned()),
        }
        let why = if way == "drain" { Failure::NotReady } else { Failure::Removed };
        if way != "gone" {
            disk.handle_timeout(NOW);
            assert!(done(&mut disk).is_empty(), "it is there");
            disk.lost();
        }
        assert_eq!(disk.poll_timeout(), Some(Instant::ZERO));
        disk.handle_timeout(NOW);
        assert_eq!(done(&mut disk), [(0, Outcome::NotDone(why))]);
    }
}

#[test]
fn people_are_told_what_changed_and_in_which_words() {
    let facts = |size| facts(size, Cache::None);
    let mut disk: Disk<()> = Disk::default();
    assert_eq!(disk.presence.explain("cannot use 7.3"), "cannot use 7.3: no answer yet");
    disk.presence.set_facts(facts(512));
    disk.came();
    disk.presence.set_facts(facts(512));
    disk.came();
    disk.presence.set_facts(facts(1024));
    disk.presence.fault = "it is silent".to_owned();
    disk.lost();
    disk.lost();
    disk.came();
    disk.close();
    disk.lost();
    let mut told = Vec::new();
    while let Some(news) = disk.presence.news.pop_front() {
        told.push(disk.presence.tell(&news, "7.3", "connected"));
    }
    let connected = "connected, 1 KiB";
    let changed = "changed: it has 1 KiB now";
    assert_eq!(told, [connected, changed, "lost 7.3: it is silent", connected]);
    let refused = InitiatorNews::Refused("another disk".to_owned());
    assert_eq!(disk.presence.tell(&refused, "7.3", ""), "another disk");
}

#[test]
fn a_job_that_is_over_keeps_its_place_until_its_completion_is_fetched() {
    let mut disk = disk();
    ask(&mut disk, 0, read(0, 512));
    ask(&mut disk, 1, read(512, 512));
    for index in begin(&mut disk) {
        disk.conclude(NOW, index, DONE);
    }
    assert_eq!((disk.in_flight(), disk.is_empty()), (0, false), "they are over, and not fetched");
    // Neither time nor another request comes to them.
    ask(&mut disk, 2, read(1024, 512));
    assert!(disk.handle_timeout(NOW + DEADLINE / 2).is_empty());
    let first = disk.poll_completion().expect("the first");
    assert_eq!((first.ticket.slot, first.buffer.phase(), first.buffer.len()), (0, 0, 512));
    let second = disk.poll_completion().expect("the second");
    assert_eq!((second.ticket.slot, second.buffer.phase(), second.buffer.len()), (1, 512, 512));
    assert_eq!((done(&mut disk), disk.in_flight()), (vec![], 1));
}

#[test]
#[should_panic(expected = "while its buffer was Receive")]
fn a_job_does_not_end_without_its_payload() {
    let mut disk = disk();
    ask(&mut disk, 0, read(0, 512));
    let index = begin(&mut disk)[0];
    disk[index].place = PayloadPlace::Receive;
    disk.finish_when_home(index, Outcome::Done);
    assert!(disk.poll_completion().is_none(), "its end waits for its payload");
    disk.finish(index, Outcome::Done);
}
