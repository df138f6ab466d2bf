//! Rules of the RAM disk: leases hold, pages are conserved, blocks are never torn.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::limits::{DISCARD_RANGES_MAX, PAGES_PER_TRANSFER, SEEK_MAX, TRANSFER_MAX};
use block::random::Random;
use block::{
    Buffer, ByteCount, Completion, DiskId, Extent, Failure, Landing, Memory, Operation, Outcome,
    Request, Sought, Ticket, VolumeId,
};

use super::{COLD_MIN, NO_PAGE, RamDisk, Submitted};
use crate::disk::{Disk, OpenSpec};
use crate::memory::{Arena, ShardMemory};

#[path = "ram/order_tests.rs"]
mod order;

struct Bench {
    arena: Arc<Arena>,
    memory: ShardMemory,
    disk: RamDisk,
}

fn bench(pages: u64) -> Bench {
    let arena = Arc::new(Arena::new(1).unwrap());
    let memory = ShardMemory::new(&arena, 1024).unwrap();
    let disk = RamDisk::new(&arena, ByteCount(pages * 4096)).unwrap();
    Bench { arena, memory, disk }
}

fn ask(disk: &RamDisk, memory: &mut ShardMemory, operation: Operation) -> Completion {
    match disk.perform(memory, Request { ticket: Ticket::default(), operation }) {
        Submitted::Done(completion) => completion,
        Submitted::Clearing(mut clearing) => {
            while !disk.clear_some(memory, &mut clearing) {}
            clearing.finish().0
        }
        other => panic!("memory answers, {other:?}"),
    }
}

/// Pages that hold something.
fn pages_used(disk: &RamDisk) -> u32 {
    let slots = disk.slots.iter();
    slots.filter(|slot| slot.load(Ordering::Relaxed) != NO_PAGE).count() as u32
}

fn phase(extent: Extent) -> u32 {
    (extent.offset.0 % 4096) as u32
}

fn write(disk: &RamDisk, memory: &mut ShardMemory, extent: Extent, bytes: &[u8]) -> Buffer {
    // Both ways of writing, wherever a test writes.
    if (extent.offset.0 / 512) % 3 == 1 && disk.can_lend(extent) {
        disk.land(memory, extent, bytes);
        return Buffer::empty();
    }
    let mut buffer = Buffer::reserved(bytes.len() as u32, phase(extent));
    memory.write(&mut buffer, 0, bytes);
    let done = ask(disk, memory, Operation::Write { extent, buffer, durable: false });
    assert_eq!(done.outcome, Outcome::Done);
    done.buffer
}

fn read(disk: &RamDisk, memory: &mut ShardMemory, extent: Extent) -> Buffer {
    let mut buffer = Buffer::reserved(extent.length.0 as u32, phase(extent));
    // Both ways of reading, wherever a test reads.
    if (extent.offset.0 / 512).is_multiple_of(2) && disk.can_lend(extent) {
        disk.prefetch_pages(extent, true);
        disk.lend(extent, &mut buffer);
        return buffer;
    }
    let done = ask(disk, memory, Operation::Read { extent, buffer });
    assert_eq!(done.outcome, Outcome::Done);
    done.buffer
}

fn bytes(memory: &ShardMemory, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0xee; buffer.len() as usize];
    memory.read(buffer, 0, &mut bytes);
    bytes
}

impl Bench {
    fn ask(&mut self, operation: Operation) -> Completion {
        ask(&self.disk, &mut self.memory, operation)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let extent = Extent::new(offset, bytes.len() as u64);
        let buffer = write(&self.disk, &mut self.memory, extent, bytes);
        self.memory.release(buffer);
    }

    fn content(&mut self, offset: u64, length: u64) -> Vec<u8> {
        let buffer = read(&self.disk, &mut self.memory, Extent::new(offset, length));
        let bytes = bytes(&self.memory, &buffer);
        self.memory.release(buffer);
        bytes
    }

    /// Pages in use outside the shard's cache and the page of zeros.
    fn used(&mut self) -> u32 {
        while self.memory.idle() {}
        self.arena.report().used - 1
    }
}

#[test]
fn a_new_disk_reads_zeros_and_takes_no_pages() {
    let mut bench = bench(16);
    assert_eq!(bench.content(512, 8192), [0; 8192]);
    assert_eq!(bench.used(), 0);
}

#[test]
fn a_leased_page_stays_as_it_was_although_overwritten() {
    let mut bench = bench(16);
    bench.write(4096, &[1; 4096]);
    let early = read(&bench.disk, &mut bench.memory, Extent::new(4096, 4096));
    bench.write(4096, &[2; 4096]);
    let late = read(&bench.disk, &mut bench.memory, Extent::new(4096, 4096));
    bench.write(4608, &[3; 512]);
    let zeroed = Operation::Discard { extents: vec![Extent::new(4096, 4096)] };
    assert!(bench.ask(zeroed).outcome.is_done());
    assert_eq!(bytes(&bench.memory, &early), [1; 4096]);
    assert_eq!(bytes(&bench.memory, &late), [2; 4096]);
    assert_eq!(bench.used(), 2, "the two detached pages alone");
    bench.memory.release(early);
    bench.memory.release(late);
    assert_eq!(bench.content(4096, 4096), [0; 4096]);
    assert_eq!(bench.used(), 0);
}

#[test]
fn parts_of_pages_are_put_among_what_was_there() {
    let mut bench = bench(4);
    bench.write(0, &[1; 16384]);
    bench.write(3584, &[2; 5120]);
    let mut expected = vec![1; 16384];
    expected[3584..8704].fill(2);
    assert_eq!(bench.content(0, 16384), expected);
    let zeroes = Operation::WriteZeroes {
        extent: Extent::new(512, 12288),
        deallocate: false,
        durable: true,
    };
    assert!(bench.ask(zeroes).outcome.is_done());
    expected[512..12800].fill(0);
    assert_eq!(bench.content(0, 16384), expected);
    assert_eq!(bench.used(), 2, "the whole pages in between were given up");
}

#[test]
fn a_write_takes_the_pages_and_leaves_its_buffer_reserved() {
    let mut bench = bench(4);
    let extent = Extent::new(0, 8192);
    let first = write(&bench.disk, &mut bench.memory, extent, &[1; 8192]);
    let lease = read(&bench.disk, &mut bench.memory, Extent::new(4096, 4096));
    let second = write(&bench.disk, &mut bench.memory, extent, &[2; 8192]);
    assert_eq!(bench.used(), 3, "two in slots, one detached");
    for buffer in [first, second] {
        assert!(buffer.is_reserved() && buffer.len() == 8192);
        bench.memory.release(buffer);
    }
    bench.memory.release(lease);
    assert_eq!(bench.used(), 2);
}

/// Pages of a large disk come back cold, and are written past the cache.
#[test]
fn what_is_written_into_cold_pages_arrives() {
    let mut bench = bench(64 << 20 >> 12);
    for (turn, (offset, length)) in
        [(0, 40960), (0, 40960), (512, 8192), (4096, 512), (0, 16384), (1536, 40000)]
            .into_iter()
            .cycle()
            .take(40)
            .enumerate()
    {
        let length = length / 512 * 512;
        let image: Vec<u8> = (0..length).map(|at| (at / 16 + turn * 3) as u8).collect();
        bench.write(offset, &image);
        assert_eq!(bench.content(offset, length as u64), image);
    }
}

#[test]
fn what_was_read_from_one_disk_can_be_written_to_another() {
    let mut bench = bench(8);
    let other = RamDisk::new(&bench.arena, ByteCount(1 << 20)).unwrap();
    let image: Vec<u8> = (0..8192u32).map(|i| (i / 31) as u8).collect();
    bench.write(512, &image);
    let buffer = read(&bench.disk, &mut bench.memory, Extent::new(512, 8192));
    let extent = Extent::new(4096 + 512, 8192);
    let done = ask(&other, &mut bench.memory, Operation::Write { extent, buffer, durable: false });
    assert!(done.outcome.is_done());
    bench.memory.release(done.buffer);
    let copy = read(&other, &mut bench.memory, extent);
    assert_eq!(bytes(&bench.memory, &copy), image);
    bench.memory.release(copy);
    assert_eq!(bench.content(512, 8192), image);
}

#[test]
fn a_compare_finds_the_first_different_byte() {
    let mut bench = bench(4);
    bench.write(512, &[5; 8192]);
    let extent = Extent::new(512, 8192);
    let mut buffer = Buffer::reserved(8192, 512);
    bench.memory.write(&mut buffer, 0, &[5; 8192]);
    let done = bench.ask(Operation::Compare { extent, buffer });
    assert_eq!(done.outcome, Outcome::Done);
    let mut buffer = done.buffer;
    bench.memory.write(&mut buffer, 7000, &[6]);
    let done = bench.ask(Operation::Compare { extent, buffer });
    assert_eq!(done.outcome, Outcome::Miscompare(7000));
    bench.memory.release(done.buffer);
}

#[test]
fn what_lies_beyond_the_end_is_refused_and_the_payload_comes_back() {
    let mut bench = bench(4);
    let extent = Extent::new(4 * 4096, 4096);
    let mut buffer = Buffer::reserved(4096, 0);
    bench.memory.write(&mut buffer, 0, &[5; 4096]);
    let write = Operation::Write { extent, buffer, durable: false };
    let done = bench.ask(write);
    assert_eq!(done.outcome, Outcome::NotDone(Failure::OutOfRange));
    assert_eq!(done.buffer.len(), 4096);
    bench.memory.release(done.buffer);
}

#[test]
fn a_disk_that_goes_frees_its_pages_and_leaves_readers_theirs() {
    let mut bench = bench(4);
    let other = RamDisk::new(&bench.arena, ByteCount(64 << 10)).unwrap();
    let extent = Extent::new(0, 65536);
    let buffer = write(&other, &mut bench.memory, extent, &[9; 65536]);
    bench.memory.release(buffer);
    let lease = read(&other, &mut bench.memory, Extent::new(8192, 4096));
    drop(other);
    assert_eq!(bytes(&bench.memory, &lease), [9; 4096]);
    bench.memory.release(lease);
    assert_eq!(bench.used(), 0);
}

#[test]
fn what_lands_together_lands_as_one_after_the_other() {
    const BYTES: u64 = COLD_MIN;
    for (shards, bytes_of_disk) in [(1, BYTES), (2, BYTES), (2, 1 << 20)] {
        let arena = Arc::new(Arena::new(shards).unwrap());
        let mut memory = ShardMemory::new(&arena, 1024).unwrap();
        let spec = OpenSpec::Ram { bytes: bytes_of_disk };
        memory.add_lender(DiskId(3), Arc::new(Disk::open(&spec, &arena).unwrap()));
        let mut model = vec![0; 1 << 20];
        let mut random = Random::new(u64::from(shards as u32));
        let mut lease = None;
        for turn in 0..200u32 {
            let received: Vec<u8> = (0..1 << 16).map(|at| (at / 512) as u8 ^ turn as u8).collect();
            let mut landings: Vec<Landing> = Vec::new();
            for _ in 0..random.below(9) {
                let length = 512 * (1 + random.below(16));
                let extent = Extent::new(512 * random.below(2032), length);
                // Of two that overlap any may be the last.
                if landings.iter().any(|other| other.extent.overlaps(extent)) {
                    continue;
                }
                let from = random.below((1 << 16) - 8192) as usize;
                let (volume, disk) = (VolumeId(0), DiskId(3));
                landings.push(Landing { volume, disk, extent, from, who: 0 });
                let place = extent.offset.0 as usize..extent.end().0 as usize;
                let bytes = &received[from..from + length as usize];
                assert_eq!(landings.last().unwrap().bytes(&received), bytes);
                model[place].copy_from_slice(bytes);
            }
            memory.land_all(&landings, &received);
            let mut buffer = Buffer::reserved(1 << 20, 0);
            memory.lend(DiskId(3), Extent::new(0, 1 << 20), &mut buffer);
            assert!(bytes(&memory, &buffer) == model, "turn {turn} of {shards} shards");
            // What was lent before did not change; every other turn nothing is leased.
            if let Some((buffer, before)) = lease.take() {
                assert!(bytes(&memory, &buffer) == before, "a leased page changed");
                memory.release(buffer);
            }
            match turn % 4 {
                0 => lease = Some((buffer, model.clone())),
                _ => memory.release(buffer),
            }
        }
    }
}

/// Every page is free, in a slot, or leased: after a long random run nothing is lost or doubled,
/// and the bytes are those of a plain array.
#[test]
fn a_random_run_conserves_pages_and_agrees_with_an_array() {
    let mut bench = bench(64);
    let size = 64 * 4096u64;
    let mut model = vec![0u8; size as usize];
    let mut random = Random::new(7);
    let mut leases: Vec<(Buffer, Vec<u8>)> = Vec::new();
    for step in 0..4000u32 {
        let offset = random.below(size / 512) * 512;
        let length = (1 + random.below(24)) * 512;
        let length = length.min(size - offset);
        let range = offset as usize..(offset + length) as usize;
        let extent = Extent::new(offset, length);
        match random.below(8) {
            0..3 => {
                bench.write(offset, &vec![step as u8; length as usize]);
                model[range].fill(step as u8);
            }
            3 => {
                let discard = Operation::Discard { extents: vec![extent] };
                assert!(bench.ask(discard).outcome.is_done());
                model[range].fill(0);
            }
            4 => {
                if !leases.is_empty() {
                    let index = random.below(leases.len() as u64) as usize;
                    let (buffer, expected) = leases.swap_remove(index);
                    assert_eq!(bytes(&bench.memory, &buffer), expected);
                    bench.memory.release(buffer);
                }
            }
            5 if leases.len() < 64 => {
                let buffer = read(&bench.disk, &mut bench.memory, extent);
                leases.push((buffer, model[range].to_vec()));
            }
            _ => assert_eq!(bench.content(offset, length), model[range]),
        }
    }
    for (buffer, expected) in leases {
        assert_eq!(bytes(&bench.memory, &buffer), expected);
        bench.memory.release(buffer);
    }
    let slots = pages_used(&bench.disk);
    assert_eq!(bench.used(), slots);
}

const STAMP_WORDS: usize = 64;

/// A block in which every word says who wrote it and when.
fn stamp(writer: u64, turn: u64) -> [u8; 512] {
    let word = (writer << 48 | turn).to_le_bytes();
    let mut block = [0; 512];
    for at in 0..STAMP_WORDS {
        block[at * 8..at * 8 + 8].copy_from_slice(&word);
    }
    block
}

/// Asserts that a block is wholly one writer's, or zeros.
fn assert_whole(block: &[u8]) {
    assert!(block[..504] == block[8..], "a torn block: {block:?}");
}

/// Writers and readers of one small disk on several threads: every block is always wholly one of
/// those written, a lease never changes, and in the end no page is lost.
#[test]
fn blocks_are_never_torn_between_threads() {
    const PAGES: u64 = 6;
    const TURNS: u64 = 4000;
    let arena = Arc::new(Arena::new(4).unwrap());
    let disk = Disk::open(&OpenSpec::Ram { bytes: PAGES * 4096 }, &arena).unwrap();
    let disk = Arc::new(disk);
    let failed = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4u64)
        .map(|id| {
            let (arena, disk, failed) = (arena.clone(), disk.clone(), failed.clone());
            std::thread::spawn(move || {
                let mut memory = ShardMemory::new(&arena, 64).unwrap();
                memory.add_lender(DiskId(0), disk.clone());
                let disk = disk.as_ram().unwrap();
                let mut random = Random::new(id);
                let mut held: Option<(Buffer, Vec<u8>)> = None;
                for turn in 0..TURNS {
                    if failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let offset = random.below(PAGES * 8) * 512;
                    let length = ((1 + random.below(20)) * 512).min(PAGES * 4096 - offset);
                    let extent = Extent::new(offset, length);
                    if random.chance(1, 16) {
                        let discard = Operation::Discard { extents: vec![extent] };
                        ask(disk, &mut memory, discard);
                    } else if random.chance(1, 4) {
                        let payload = stamp(id, turn).repeat((length / 512) as usize);
                        let (volume, disk) = (VolumeId(0), DiskId(0));
                        let landing = Landing { volume, disk, extent, from: 0, who: 0 };
                        let block = Extent::new(random.below(PAGES * 8) * 512, 512);
                        memory.land_all(&[landing, Landing { extent: block, ..landing }], &payload);
                    } else if random.chance(1, 2) {
                        let payload = stamp(id, turn).repeat((length / 512) as usize);
                        let buffer = write(disk, &mut memory, extent, &payload);
                        memory.release(buffer);
                    } else {
                        let buffer = read(disk, &mut memory, extent);
                        let seen = bytes(&memory, &buffer);
                        let _guard = Flag(&failed);
                        seen.chunks(512).for_each(assert_whole);
                        if let Some((old, before)) = held.replace((buffer, seen)) {
                            assert!(bytes(&memory, &old) == before, "a leased page changed");
                            memory.release(old);
                        }
                    }
                }
                if let Some((old, _)) = held {
                    memory.release(old);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(arena.report().used - 1, pages_used(disk.as_ram().unwrap()));
}

/// Tells the other threads to stop when its thread panics.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn no_request_does_more_than_a_transfers_page_operations_at_a_time() {
    let size = 4096 * 4096;
    let Bench { mut memory, disk, .. } = bench(4096);
    let all = Extent::new(0, size);
    let transfer = Extent::new(512, u64::from(TRANSFER_MAX));
    let buffer = || Buffer::reserved(TRANSFER_MAX, 512);
    // Ranges that overlap, ranges that begin and end within pages, and both on pages that exist.
    let whole = vec![all; DISCARD_RANGES_MAX];
    let crumbs = (0..DISCARD_RANGES_MAX as u64).map(|at| Extent::new(at * 65_536 + 512, 61_440));
    let discards = [whole, crumbs.collect()].map(|extents| Operation::Discard { extents });
    let zeroes = Operation::WriteZeroes { extent: all, deallocate: false, durable: false };
    let mut expected = buffer();
    memory.write(&mut expected, 0, &vec![7; TRANSFER_MAX as usize]);
    let others = [
        Operation::Compare { extent: transfer, buffer: expected },
        Operation::Read { extent: transfer, buffer: buffer() },
        Operation::Verify { extent: all },
        Operation::Seek { extent: Extent::new(0, SEEK_MAX.min(size)), sought: Sought::Hole },
        Operation::Flush,
        zeroes,
    ];
    for operation in others.into_iter().chain(discards) {
        for at in (0..size).step_by(TRANSFER_MAX as usize) {
            let mut buffer = Buffer::reserved(TRANSFER_MAX, 0);
            memory.write(&mut buffer, 0, &vec![7; TRANSFER_MAX as usize]);
            let extent = Extent::new(at, u64::from(TRANSFER_MAX));
            assert_eq!(
                bounded(|| ask(
                    &disk,
                    &mut memory,
                    Operation::Write { extent, buffer, durable: false }
                ))
                .outcome,
                Outcome::Done
            );
        }
        let name = operation.name();
        let request = Request { ticket: Ticket::default(), operation };
        let completion = match bounded(|| disk.perform(&mut memory, request)) {
            Submitted::Done(completion) => completion,
            Submitted::Clearing(mut clearing) => {
                let mut turns = 1;
                while !bounded(|| disk.clear_some(&mut memory, &mut clearing)) {
                    turns += 1;
                }
                assert!(
                    turns <= 4096u32.div_ceil(PAGES_PER_TRANSFER),
                    "{name} passes each page once"
                );
                clearing.finish().0
            }
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(completion.outcome, Outcome::Done, "{name}");
        memory.release(completion.buffer);
        if name == "write zeroes" {
            assert_eq!(pages_used(&disk), 0);
        }
    }
    assert_eq!(pages_used(&disk), 2 * DISCARD_RANGES_MAX as u32, "what the crumbs left");
}

thread_local! {
    pub(super) static PAGE_OPERATIONS: Cell<u32> = const { Cell::new(0) };
}

/// Does something that may touch each page of the largest transfer twice: a page of which a part is
/// changed is taken and installed.
fn bounded<T>(something: impl FnOnce() -> T) -> T {
    PAGE_OPERATIONS.set(0);
    let result = something();
    let count = PAGE_OPERATIONS.get();
    assert!(count <= 2 * PAGES_PER_TRANSFER, "{count} page operations at a time");
    result
}

#[test]
fn a_page_that_nobody_wrote_or_that_was_cleared_is_a_hole() {
    let mut bench = bench(256);
    let seek = |bench: &mut Bench, offset, length, sought| {
        let extent = Extent::new(offset, length);
        bench.ask(Operation::Seek { extent, sought }).outcome
    };
    assert_eq!(seek(&mut bench, 0, 1 << 20, Sought::Data), Outcome::Done);
    assert_eq!(seek(&mut bench, 512, 1024, Sought::Hole), Outcome::Found(0));
    bench.write(12_800, &[1; 8192]);
    assert_eq!(seek(&mut bench, 0, 1 << 20, Sought::Data), Outcome::Found(12_288));
    assert_eq!(seek(&mut bench, 12_800, 65_536, Sought::Hole), Outcome::Found(24_576 - 12_800));
    assert_eq!(seek(&mut bench, 12_800, 8192, Sought::Hole), Outcome::Done);
    let extents = vec![Extent::new(12_288, 12_288)];
    assert!(bench.ask(Operation::Discard { extents }).outcome.is_done());
    assert_eq!(seek(&mut bench, 0, 1 << 20, Sought::Data), Outcome::Done);
    let beyond = seek(&mut bench, (1 << 20) - 512, 1024, Sought::Data);
    assert_eq!(beyond, Outcome::NotDone(Failure::OutOfRange));
}
