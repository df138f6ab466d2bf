//! Volumes on one and on several shards, with disks that the test answers for and mail that it
//! carries.

use block::{Buffer, Sought};

use super::*;
use crate::gate::tests::facts;
use crate::layout::Member;
use contract::Cache;
use testkit::Pages;

const FLIGHTS: MachineId = MachineId(1);
const GATES: MachineId = MachineId(2);
const NOW: Instant = Instant(1_000);
const VOLUME: VolumeId = VolumeId(1);

/// Shards with the same volume over the same disks.
struct Host {
    shards: Vec<Volumes>,
}

impl Host {
    fn new(shards: u16, disks: u32, cache: Cache) -> Host {
        let member = |disk| Member { disk: DiskId(disk), base: 1 << 20, length: 1 << 20 };
        let layout = match disks {
            1 => Layout::single(Member { base: 0, ..member(0) }),
            _ => Layout::stripe((0..disks).map(member).collect(), 4096).unwrap(),
        };
        let shard = |index| {
            let mut volumes = Volumes::new(ShardId(index), shards, FLIGHTS, GATES);
            for disk in 0..disks {
                volumes.add_disk(DiskId(disk), facts(cache));
            }
            volumes.add_volume(VOLUME, layout.clone());
            volumes
        };
        Host { shards: (0..shards).map(shard).collect() }
    }

    fn ask(&mut self, shard: usize, slot: u32, operation: Operation) {
        let ticket = Ticket { machine: MachineId(9), slot, ..Ticket::default() };
        let request = Request { ticket, operation };
        self.shards[shard].handle_request(NOW, VOLUME, request);
    }

    /// Carries mail until none is left.
    fn mail(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..self.shards.len() {
                for (to, message) in core::mem::take(&mut self.shards[from].outbox.messages) {
                    moved = true;
                    let from = ShardId(from as u16);
                    let to = to.index();
                    self.shards[to].handle_message(NOW, from, message);
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Takes the one request that a shard submitted.
    fn one(&mut self, shard: usize) -> Request {
        let [(_, request)] = <[_; 1]>::try_from(self.in_flight(shard)).expect("one request");
        request
    }

    /// Takes what a shard submitted.
    fn in_flight(&mut self, shard: usize) -> Vec<(DiskId, Request)> {
        core::mem::take(&mut self.shards[shard].outbox.submit)
    }

    fn answer(&mut self, shard: usize, request: Request, outcome: Outcome) {
        let mut completion = request.complete(outcome);
        let told = self.shards[shard].handle_completion(NOW, &mut completion).then_some(completion);
        self.shards[shard].outbox.complete.extend(told);
    }

    fn answer_all(&mut self, shard: usize) {
        for (_, request) in self.in_flight(shard) {
            self.answer(shard, request, Outcome::Done);
        }
    }

    /// The outcomes that came up on a shard, by the asker's slot.
    fn done(&mut self, shard: usize) -> Vec<(u32, Outcome)> {
        let done = core::mem::take(&mut self.shards[shard].outbox.complete);
        done.iter().map(|completion| (completion.ticket.slot, completion.outcome)).collect()
    }
}

fn write(offset: u64, length: u32) -> Operation {
    let buffer = Buffer::reserved(length, (offset % 4096) as u32);
    Operation::Write { extent: Extent::new(offset, length.into()), buffer, durable: false }
}

/// Half of the one disk.
fn half() -> Layout {
    Layout::single(Member { disk: DiskId(0), base: 0, length: 1 << 19 })
}

fn compare_and_write(offset: u64) -> Operation {
    Operation::CompareAndWrite {
        extent: Extent::new(offset, 512),
        expected: Box::new(Buffer::reserved(512, 0)),
        replacement: Buffer::reserved(512, 0),
        durable: false,
    }
}

#[test]
fn a_request_across_chunks_is_cut_and_joined() {
    let mut host = Host::new(1, 3, Cache::None);
    host.ask(0, 1, write(2048, 8192));
    let in_flight = host.in_flight(0);
    assert_eq!(in_flight.iter().map(|(disk, _)| disk.0).collect::<Vec<_>>(), [0, 1, 2]);
    for (_, request) in in_flight.into_iter().rev() {
        assert!(host.done(0).is_empty());
        host.answer(0, request, Outcome::Done);
    }
    let completion = host.shards[0].outbox.complete.pop().unwrap();
    assert_eq!((completion.ticket.slot, completion.buffer.len()), (1, 8192));
    assert_eq!(host.shards[0].in_flight(), 0);
}

#[test]
fn a_change_of_several_disks_goes_to_none_while_one_of_them_takes_no_writes() {
    for protected in 0..3 {
        let mut host = Host::new(1, 3, Cache::Volatile);
        host.shards[0].gates[protected].fail(Failure::MediumWrite);
        host.ask(0, 1, write(2048, 8192));
        host.ask(0, 2, Operation::Discard { extents: vec![Extent::new(2048, 8192)] });
        let refused = Outcome::NotDone(Failure::WriteProtected);
        assert_eq!(host.done(0), [(1, refused), (2, refused)]);
        assert!(host.in_flight(0).is_empty(), "nor to the others");
        let buffer = Buffer::reserved(8192, 2048);
        host.ask(0, 3, Operation::Read { extent: Extent::new(2048, 8192), buffer });
        assert_eq!(host.in_flight(0).len(), 3, "reads go on");
    }
}

#[test]
fn a_request_beyond_the_end_does_not_go_below() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, write((1 << 20) - 512, 1024));
    assert_eq!(host.done(0), [(1, Outcome::NotDone(Failure::OutOfRange))]);
    assert!(host.in_flight(0).is_empty());
}

#[test]
fn a_flush_of_a_disk_without_a_cache_is_nothing() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, Operation::Flush);
    assert_eq!(host.done(0), [(1, Outcome::Done)]);
}

#[test]
fn flushes_of_all_shards_are_grouped_by_the_disks_owner() {
    let mut host = Host::new(2, 1, Cache::Volatile);
    host.ask(0, 1, Operation::Flush);
    host.ask(1, 2, Operation::Flush);
    host.ask(1, 3, Operation::Flush);
    host.mail();
    let flush = host.one(0);
    assert!(host.in_flight(1).is_empty(), "only the owner flushes, once at a time");
    host.answer(0, flush, Outcome::Done);
    assert_eq!(host.done(0), [(1, Outcome::Done)]);
    host.mail();
    assert!(host.done(1).is_empty(), "they were asked after the first flush began");
    host.answer_all(0);
    host.mail();
    host.answer_all(0);
    host.mail();
    assert_eq!(host.done(1), [(2, Outcome::Done), (3, Outcome::Done)]);
}

#[test]
fn a_failed_flush_protects_the_disk_on_every_shard() {
    let mut host = Host::new(2, 1, Cache::Volatile);
    host.ask(1, 1, Operation::Flush);
    host.mail();
    let flush = host.one(0);
    host.answer(0, flush, Outcome::NotDone(Failure::MediumWrite));
    host.mail();
    assert_eq!(host.done(1), [(1, Outcome::NotDone(Failure::MediumWrite))]);
    for shard in 0..2 {
        host.ask(shard, 2, write(0, 512));
        assert_eq!(host.done(shard), [(2, Outcome::NotDone(Failure::WriteProtected))]);
        host.ask(shard, 3, Operation::Flush);
        assert_eq!(host.done(shard), [(3, Outcome::NotDone(Failure::MediumWrite))]);
        host.shards[shard].renew_disk(DiskId(0), facts(Cache::Volatile));
        host.ask(shard, 4, write(0, 512));
        host.answer_all(shard);
        assert_eq!(host.done(shard), [(4, Outcome::Done)]);
    }
}

#[test]
fn a_disk_that_tells_another_size_stays_protected_and_a_reopened_one_does_not() {
    let facts = |bytes, read_only| DiskFacts {
        size: ByteCount(bytes),
        read_only,
        ..facts(Cache::Volatile)
    };
    let mut host = Host::new(1, 1, Cache::Volatile);
    let volumes = &mut host.shards[0];
    volumes.renew_disk(DiskId(0), facts(1 << 20, true));
    assert_eq!(volumes.gates[0].protected(), Some(Failure::WriteProtected));
    volumes.follow_disk(DiskId(0), facts(1 << 20, false));
    assert_eq!(volumes.gates[0].protected(), None, "it may be written now");
    volumes.gates[0].fail(Failure::MediumWrite);
    volumes.follow_disk(DiskId(0), facts(2 << 20, false));
    assert_eq!(volumes.gates[0].protected(), Some(Failure::MediumWrite));
    assert_eq!(volumes.gates[0].facts.size, ByteCount(2 << 20));
    volumes.renew_disk(DiskId(0), facts(2 << 20, false));
    assert_eq!(volumes.gates[0].protected(), None);
}

#[test]
fn a_flush_that_waits_behind_one_that_fails_fails_with_it_on_every_shard() {
    for shards in 1..=3u16 {
        let mut host = Host::new(shards, 1, Cache::Volatile);
        for shard in 0..usize::from(shards) {
            host.ask(shard, 1, Operation::Flush);
            host.ask(shard, 2, Operation::Flush);
        }
        host.mail();
        let running = host.one(0);
        host.answer(0, running, Outcome::NotDone(Failure::MediumWrite));
        host.mail();
        let failed = Outcome::NotDone(Failure::MediumWrite);
        for shard in 0..usize::from(shards) {
            assert!(host.in_flight(shard).is_empty(), "a later flush would say done");
            assert_eq!(host.done(shard), [(1, failed), (2, failed)]);
            host.shards[shard].renew_disk(DiskId(0), facts(Cache::Volatile));
        }
        let last = usize::from(shards) - 1;
        host.ask(last, 3, Operation::Flush);
        host.mail();
        host.answer_all(0);
        host.mail();
        assert_eq!(host.done(last), [(3, Outcome::Done)], "a reopened disk is flushed again");
    }
}

#[test]
fn a_flush_beside_a_durable_write_that_fails_fails_with_it_on_every_shard() {
    for (shards, writer) in [(1, 0), (2, 0), (2, 1)] {
        let mut host = Host::new(shards, 1, Cache::Volatile);
        for shard in 0..usize::from(shards) {
            host.ask(shard, 1, Operation::Flush);
            host.ask(shard, 2, Operation::Flush);
        }
        host.mail();
        let running = host.one(0);
        host.ask(writer, 3, durable(0, 512));
        let write = host.one(writer);
        let failed = Outcome::NotDone(Failure::MediumWrite);
        host.answer(writer, write, failed);
        host.mail();
        for shard in 0..usize::from(shards) {
            let mut done = host.done(shard);
            done.retain(|(slot, _)| *slot != 3);
            assert_eq!(done, [(1, failed), (2, failed)]);
        }
        host.answer(0, running, Outcome::Done);
        host.mail();
        for shard in 0..usize::from(shards) {
            assert!(host.in_flight(shard).is_empty() && host.done(shard).is_empty());
        }
    }
}

/// A write with FUA.
fn durable(offset: u64, length: u32) -> Operation {
    let buffer = Buffer::reserved(length, (offset % 4096) as u32);
    Operation::Write { extent: Extent::new(offset, length.into()), buffer, durable: true }
}

#[test]
fn a_durable_write_whose_sync_failed_protects_the_disk_whatever_the_failure_is_called() {
    for failure in [Failure::NoSpace, Failure::TimedOut, Failure::Removed, Failure::NotReady] {
        for (outcome, protects) in
            [(Outcome::NotDone(failure), false), (Outcome::Unknown(failure), true)]
        {
            let mut host = Host::new(2, 1, Cache::Volatile);
            host.ask(1, 1, durable(0, 512));
            let write = host.one(1);
            host.answer(1, write, outcome);
            host.mail();
            assert_eq!(host.done(1), [(1, outcome)]);
            for shard in 0..2 {
                let protected = host.shards[shard].gates[0].protected();
                assert_eq!(protected, protects.then_some(failure), "{outcome}");
            }
        }
    }
}

#[test]
fn a_durable_write_beside_one_that_failed_is_not_told_that_it_lasts() {
    for (cache, told) in
        [(Cache::Volatile, Outcome::Unknown(Failure::MediumWrite)), (Cache::None, Outcome::Done)]
    {
        let mut host = Host::new(1, 1, cache);
        host.ask(0, 1, durable(0, 512));
        host.ask(0, 2, durable(512, 512));
        let [(_, first), (_, second)] = <[_; 2]>::try_from(host.in_flight(0)).unwrap();
        let failed = Outcome::NotDone(Failure::MediumWrite);
        host.answer(0, first, failed);
        host.answer(0, second, Outcome::Done);
        assert_eq!(host.done(0), [(1, failed), (2, told)], "one of them is told of the loss");
    }
}

#[test]
fn compare_and_write_waits_for_writes_below_on_other_shards() {
    let mut host = Host::new(2, 1, Cache::None);
    host.ask(1, 1, write(0, 4096));
    let earlier = host.one(1);
    host.ask(0, 2, compare_and_write(512));
    host.mail();
    assert!(host.in_flight(0).is_empty(), "the other shard's write is in flight");
    host.ask(1, 3, write(0, 4096));
    host.ask(1, 4, write(8192, 4096));
    let other = host.one(1);
    host.answer(1, earlier, Outcome::Done);
    host.mail();
    host.answer_all(0); // compares
    host.answer_all(0); // writes
    assert_eq!(host.done(0), [(2, Outcome::Done)]);
    host.mail();
    host.answer(1, other, Outcome::Done);
    host.answer_all(1);
    assert_eq!(host.done(1), [1, 4, 3].map(|slot| (slot, Outcome::Done)), "4 overlaps nothing");
}

#[test]
fn what_waits_for_two_holds_goes_on_behind_both() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, compare_and_write(0));
    host.ask(0, 2, compare_and_write(512));
    host.ask(0, 3, write(0, 1024));
    let mut compares = host.in_flight(0).into_iter().map(|(_, request)| request);
    let (first, second) = (compares.next().unwrap(), compares.next().unwrap());
    host.answer(0, first, Outcome::Done);
    host.answer_all(0);
    assert_eq!(host.done(0), [(1, Outcome::Done)]);
    assert!(host.in_flight(0).is_empty(), "the other hold stands");
    host.answer(0, second, Outcome::Done);
    host.answer_all(0);
    host.answer_all(0);
    assert_eq!(host.done(0), [(2, Outcome::Done), (3, Outcome::Done)]);
}

#[test]
fn a_discard_waits_for_a_hold_wherever_it_stands() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, compare_and_write((1 << 20) - 512));
    let compare = host.one(0);
    host.ask(0, 2, Operation::Discard { extents: vec![Extent::new(0, 512)] });
    assert!(host.in_flight(0).is_empty());
    host.answer(0, compare, Outcome::Done);
    host.answer_all(0);
    host.answer_all(0);
    assert_eq!(host.done(0), [(1, Outcome::Done), (2, Outcome::Done)]);
}

#[test]
fn a_flush_of_a_disk_that_its_owner_has_no_more_is_answered() {
    let mut host = Host::new(2, 1, Cache::Volatile);
    host.ask(1, 1, Operation::Flush);
    host.shards[0].remove_disk(DiskId(0));
    host.mail();
    assert_eq!(host.done(1), [(1, Outcome::NotDone(Failure::Removed))]);
}

#[test]
fn what_is_outstanding_is_told_by_request_whether_below_in_parts_or_waiting() {
    let mut host = Host::new(1, 3, Cache::None);
    host.ask(0, 1, write(2048, 8192));
    host.ask(0, 2, compare_and_write(65_536));
    host.ask(0, 3, write(65_536, 512));
    let read = Operation::Read { extent: Extent::new(0, 512), buffer: Buffer::reserved(512, 0) };
    host.ask(0, 4, read);
    let outstanding = |host: &Host| {
        let told = host.shards[0].outstanding(VOLUME);
        let mut told: Vec<(u32, bool)> =
            told.map(|one| (one.ticket.slot, one.changes_data)).collect();
        told.sort_unstable();
        told
    };
    assert_eq!(outstanding(&host), [(1, true), (2, true), (3, true), (4, false)]);
    while host.shards[0].in_flight() > 0 {
        host.answer_all(0);
    }
    assert_eq!((outstanding(&host), host.done(0).len()), (vec![], 4));
    assert_eq!(host.shards[0].outstanding(VolumeId(7)).count(), 0);
}

#[test]
fn a_miscompare_writes_nothing_and_releases() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, compare_and_write(0));
    host.ask(0, 2, compare_and_write(0));
    let compare = host.one(0);
    host.answer(0, compare, Outcome::Miscompare(17));
    assert_eq!(host.done(0), [(1, Outcome::Miscompare(17))]);
    host.answer_all(0);
    host.answer_all(0);
    assert_eq!(host.done(0), [(2, Outcome::Done)]);
}

#[test]
fn a_compare_and_write_whose_volume_is_removed_or_shrinks_after_its_compare_does_not_write() {
    for why in [Failure::Removed, Failure::OutOfRange] {
        let mut host = Host::new(1, 1, Cache::None);
        host.ask(0, 1, compare_and_write((1 << 20) - 4096));
        host.mail();
        let compare = host.one(0);
        match why {
            Failure::Removed => host.shards[0].remove_volume(VOLUME),
            _ => host.shards[0].resize_volume(VOLUME, half()),
        }
        host.answer(0, compare, Outcome::Done);
        host.mail();
        assert!(host.in_flight(0).is_empty() && host.shards[0].is_drained(VOLUME));
        assert_eq!(host.done(0), [(1, Outcome::NotDone(why))]);
    }
}

#[test]
fn a_volume_that_is_resumed_goes_on_with_what_is_in_flight_of_it() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, write(0, 512));
    host.shards[0].remove_volume(VOLUME);
    host.ask(0, 2, write(0, 512));
    assert_eq!(host.done(0), [(2, Outcome::NotDone(Failure::Removed))]);
    assert!(host.shards[0].resume_volume(VOLUME) && !host.shards[0].resume_volume(VolumeId(7)));
    assert_eq!(host.shards[0].outstanding(VOLUME).count(), 1);
    host.ask(0, 3, write(0, 512));
    host.answer_all(0);
    assert_eq!(host.done(0), [(1, Outcome::Done), (3, Outcome::Done)]);
}

#[test]
fn what_waits_while_the_volume_shrinks_is_refused_beyond_the_new_end() {
    // The compare-and-write waits for a write in flight, and a second write for it.
    let mut host = Host::new(1, 1, Cache::None);
    let end = 1 << 20;
    host.ask(0, 1, write(end - 4096, 4096));
    let write_in_flight = host.one(0);
    host.ask(0, 2, compare_and_write(end - 4096));
    host.mail();
    host.ask(0, 3, write(end - 4096, 4096));
    host.shards[0].resize_volume(VOLUME, half());
    host.answer(0, write_in_flight, Outcome::Done);
    host.mail();
    assert!(host.in_flight(0).is_empty(), "nothing goes beyond the end");
    let refused = Outcome::NotDone(Failure::OutOfRange);
    assert_eq!(host.done(0), [(2, refused), (3, refused), (1, Outcome::Done)]);
}

#[test]
fn removal_answers_what_waits_and_awaits_what_is_below() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, compare_and_write(0));
    host.ask(0, 2, write(0, 512));
    host.shards[0].remove_volume(VOLUME);
    assert_eq!(host.done(0), [(2, Outcome::NotDone(Failure::Removed))]);
    assert!(!host.shards[0].is_drained(VOLUME));
    host.ask(0, 3, write(0, 512));
    assert_eq!(host.done(0), [(3, Outcome::NotDone(Failure::Removed))]);
    host.answer_all(0);
    host.answer_all(0);
    assert!(host.shards[0].is_drained(VOLUME));
    host.shards[0].forget_volume(VOLUME);
}

#[test]
fn a_disk_that_does_not_answer_is_slow_then_stuck_then_well() {
    let mut host = Host::new(1, 1, Cache::None);
    host.ask(0, 1, write(0, 512));
    let mut notices = Vec::new();
    while notices.len() < 2 {
        let at = host.shards[0].poll_timeout().expect("something is in flight");
        host.shards[0].handle_timeout(at);
        notices.append(&mut host.shards[0].outbox.notices);
    }
    let healths = [Health::Slow, Health::Stuck];
    assert_eq!(notices, healths.map(|health| Notice::Health(DiskId(0), health)));
    host.answer_all(0);
    let at = host.shards[0].poll_timeout().unwrap();
    host.shards[0].handle_timeout(at);
    assert_eq!(host.shards[0].outbox.notices, [Notice::Health(DiskId(0), Health::Well)]);
    assert_eq!(host.shards[0].poll_timeout(), None, "nothing is below: nothing ticks");
}

#[test]
fn what_a_disk_could_not_do_is_told_with_its_place_and_counted_once_at_disk_and_volume() {
    let mut host = Host::new(1, 2, Cache::Volatile);
    let failed = Outcome::NotDone(Failure::MediumWrite);
    let errors = |host: &Host| {
        let gates = host.shards[0].gates().map(|gate| gate.counters.errors);
        (host.shards[0].counts(VOLUME).unwrap().counters.errors, gates.collect::<Vec<_>>())
    };
    // Of a request on both disks, the part on the second.
    host.ask(0, 1, write(0, 8192));
    for (disk, request) in host.in_flight(0) {
        let outcome = if disk == DiskId(1) { failed } else { Outcome::Done };
        host.answer(0, request, outcome);
    }
    let told = core::mem::take(&mut host.shards[0].outbox.notices);
    let (extent, failure) = (Extent::new(1 << 20, 4096), Failure::MediumWrite);
    let error = DiskError { disk: DiskId(1), extent, failure, untold: 0 };
    assert_eq!((told, errors(&host)), (vec![Notice::Error(error)], (1, vec![0, 1])));
    // A request on one, at its place on the disk.
    host.ask(0, 2, write(8192, 512));
    let request = host.one(0);
    host.answer(0, request, failed);
    let told = core::mem::take(&mut host.shards[0].outbox.notices);
    let error = DiskError { disk: DiskId(0), extent: Extent::new((1 << 20) + 4096, 512), ..error };
    assert_eq!((told, errors(&host)), (vec![Notice::Error(error)], (2, vec![1, 1])));
    // What differs was compared all the same; a step that fails is its request's failure, once.
    for (slot, outcome, expected) in
        [(3, Outcome::Miscompare(7), (2, vec![1, 1])), (4, failed, (3, vec![2, 1]))]
    {
        host.ask(0, slot, compare_and_write(0));
        host.mail();
        let request = host.one(0);
        host.answer(0, request, outcome);
        host.mail();
        assert_eq!(errors(&host), expected, "{outcome}");
    }
    // A flush that failed is told by who ran it; what is refused since is the volume's alone.
    host.shards[0].outbox.notices.clear();
    host.shards[0].renew_disk(DiskId(0), facts(Cache::Volatile));
    host.ask(0, 5, Operation::Flush);
    for (disk, request) in host.in_flight(0) {
        let outcome = if disk == DiskId(0) { failed } else { Outcome::Done };
        host.answer(0, request, outcome);
    }
    let told = core::mem::take(&mut host.shards[0].outbox.notices);
    let flush = DiskError { disk: DiskId(0), extent: Extent::default(), failure, untold: 1 };
    assert_eq!(told, [Notice::Error(flush), Notice::Protected(DiskId(0), failure)]);
    assert_eq!(errors(&host), (4, vec![3, 1]));
    host.ask(0, 6, write(0, 512));
    assert_eq!(errors(&host), (5, vec![3, 1]));
}

#[test]
fn discards_go_to_the_disks_that_hold_the_ranges() {
    let mut host = Host::new(1, 2, Cache::None);
    let extents = vec![Extent::new(0, 8192), Extent::new(65_536, 512)];
    host.ask(0, 1, Operation::Discard { extents });
    let disks: Vec<u32> = host.shards[0].outbox.submit.iter().map(|(disk, _)| disk.0).collect();
    assert_eq!(disks, [0, 1]);
    host.answer_all(0);
    assert_eq!(host.done(0), [(1, Outcome::Done)]);
}

/// Memory whose disks all lend.
fn lender() -> Pages {
    let mut pages = Pages::default();
    pages.lends = vec![Vec::new(); 2];
    pages
}

#[test]
fn a_loan_is_found_where_one_disk_has_all_of_a_read() {
    let mut host = Host::new(1, 2, Cache::None);
    let mut find =
        |offset, length| host.shards[0].find_loan(VOLUME, Extent::new(offset, length), &lender());
    assert_eq!(find(4096 + 512, 512), Some((DiskId(1), Extent::new((1 << 20) + 512, 512))));
    assert_eq!(find(512, 4096), None, "it lies on two disks");
    assert_eq!(find((2 << 20) - 512, 1024), None, "it reaches beyond the end");
    assert_eq!(find(0, 0), None, "it is empty");
    let counters = host.shards[0].counts(VOLUME).expect("it is there").counters;
    assert_eq!((counters.reads, counters.read_bytes), (1, 512));
    assert_eq!(host.shards[0].in_flight(), 0);
    assert_eq!(host.shards[0].find_loan(VolumeId(7), Extent::new(0, 512), &lender()), None);
    host.shards[0].remove_volume(VOLUME);
    assert_eq!(host.shards[0].find_loan(VOLUME, Extent::new(0, 512), &lender()), None);
}

#[test]
fn a_write_lands_where_one_disk_has_all_of_it_and_no_hold_stands_in_the_way() {
    let mut host = Host::new(1, 2, Cache::None);
    let first = Extent::new(0, 512);
    let found = host.shards[0].find_landing(VOLUME, first, &lender());
    assert_eq!(found, Some((DiskId(0), Extent::new(1 << 20, 512))));
    assert_eq!(host.shards[0].counts(VOLUME).expect("it is there").counters.writes, 0, "not yet");
    host.shards[0].landed(VOLUME, DiskId(0), ByteCount(512));
    assert_eq!(host.shards[0].counts(VOLUME).expect("it is there").counters.writes, 1);
    host.ask(0, 7, compare_and_write(0));
    assert_eq!(host.shards[0].find_landing(VOLUME, first, &lender()), None, "it is held");
    let other = Extent::new(512, 512);
    assert!(host.shards[0].find_landing(VOLUME, other, &lender()).is_some());
}

#[test]
fn no_write_lands_on_a_disk_that_a_failure_protects() {
    let mut host = Host::new(1, 2, Cache::None);
    let find = |host: &mut Host, offset| {
        host.shards[0].find_landing(VOLUME, Extent::new(offset, 512), &lender()).is_some()
    };
    host.shards[0].gates[0].fail(Failure::MediumWrite);
    assert!(!find(&mut host, 0));
    assert!(find(&mut host, 4096), "the other disk takes writes");
}

/// How many of a class took how long in all.
fn took(latencies: &Latencies, class: Class) -> (u64, u64) {
    let histogram = latencies.of(class);
    (histogram.buckets().map(|(_, count)| count).sum(), histogram.sum())
}

#[test]
fn requests_and_their_pieces_are_timed_by_the_turns_in_which_they_come_and_end() {
    let mut host = Host::new(1, 3, Cache::Volatile);
    let read = Operation::Read { extent: Extent::new(0, 512), buffer: Buffer::reserved(512, 0) };
    host.ask(0, 1, read);
    host.ask(0, 2, write(2048, 8192));
    host.ask(0, 3, compare_and_write(0));
    host.ask(0, 4, Operation::Flush);
    let mut later = NOW;
    loop {
        later = later + core::time::Duration::from_nanos(1000);
        let asks = host.in_flight(0);
        if asks.is_empty() {
            break;
        }
        for (_, request) in asks {
            let mut completion = request.complete(Outcome::Done);
            let told =
                host.shards[0].handle_completion(later, &mut completion).then_some(completion);
            host.shards[0].outbox.complete.extend(told);
        }
    }
    assert_eq!(host.done(0).len(), 4);
    let volume = host.shards[0].counts(VOLUME).expect("it is there").latencies;
    // The compare-and-write took two steps, which are none of the volume's requests.
    assert_eq!(took(volume, Class::Read), (1, 1000));
    assert_eq!(took(volume, Class::Write), (2, 1000 + 2000));
    assert_eq!(took(volume, Class::Flush), (1, 1000));
    let gates = host.shards[0].gates().map(|gate| took(&gate.latencies, Class::Write));
    assert_eq!(gates.collect::<Vec<_>>(), [(2, 2000), (1, 1000), (1, 1000)]);
    let gates = host.shards[0].gates().map(|gate| took(&gate.latencies, Class::Flush));
    assert_eq!(gates.collect::<Vec<_>>(), [(1, 1000); 3]);
}

#[test]
fn what_did_not_end_well_is_counted_once_by_its_kind_whatever_way_it_ended() {
    let mut host = Host::new(1, 3, Cache::Volatile);
    host.ask(0, 1, write(1 << 30, 512));
    host.ask(0, 2, write(2048, 8192));
    for (_, request) in host.in_flight(0) {
        host.answer(0, request, Outcome::NotDone(Failure::NoSpace));
    }
    host.ask(0, 3, Operation::Flush);
    for (_, request) in host.in_flight(0) {
        host.answer(0, request, Outcome::NotDone(Failure::MediumWrite));
    }
    host.ask(0, 4, write(0, 512));
    let of_volume = host.shards[0].counts(VOLUME).expect("it is there");
    let expected = ErrorCounters {
        out_of_range: 1,
        no_space: 1,
        medium_write: 1,
        write_protected: 1,
        ..ErrorCounters::default()
    };
    assert_eq!((of_volume.errors, of_volume.counters.errors), (expected, 4));
    let no_space = host.shards[0].gates().map(|gate| gate.errors.no_space).sum::<u64>();
    assert_eq!(no_space, 3);
}

#[test]
fn what_is_sought_is_told_by_its_place_in_the_volume_and_moves_no_bytes() {
    let mut host = Host::new(1, 2, Cache::Volatile);
    let extent = Extent::new(0, 8192);
    for (slot, outcomes, expected) in [
        (1, [Outcome::Done, Outcome::Found(512)], Outcome::Found(4608)),
        (2, [Outcome::Found(1024), Outcome::Found(0)], Outcome::Found(1024)),
        (3, [Outcome::Done, Outcome::Done], Outcome::Done),
        (
            4,
            [Outcome::Found(0), Outcome::NotDone(Failure::MediumRead)],
            Outcome::NotDone(Failure::MediumRead),
        ),
    ] {
        host.ask(0, slot, Operation::Seek { extent, sought: Sought::Data });
        for ((_, request), outcome) in host.in_flight(0).into_iter().zip(outcomes) {
            host.answer(0, request, outcome);
        }
        assert_eq!(host.done(0), [(slot, expected)]);
    }
    let counts = host.shards[0].counts(VOLUME).expect("it is there");
    assert_eq!((counts.counters.reads, counts.counters.read_bytes), (4, 0));
    assert_eq!(counts.counters.errors, 1, "what was found is no error");
}
