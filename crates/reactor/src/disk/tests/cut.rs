//! Models whose power is cut around a disk in memory: what its pages are then, whoever leases them, and that
//! none of them is lost to the arena.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

const MILLISECOND: u64 = 1_000_000;
/// Not a whole page at its end.
const BYTES: u64 = (1 << 20) + 512;

fn cut(model: Model, inner: OpenSpec) -> OpenSpec {
    let instrument = Instrument::Model(Model { cut_ms: 100, ..model });
    OpenSpec::Instrumented { instrument, inner: Box::new(inner) }
}

fn cached() -> Model {
    Model { service_us: 1_000, cache_mib: 1, off_ms: 10, ..Model::PLAIN }
}

/// Submits at a moment; what comes back, and what is left to do is done.
fn at(disk: &Disk, memory: &mut ShardMemory, ms: u64, operation: Operation) -> Completion {
    let request = Request { ticket: Ticket::default(), operation };
    match disk.submit(memory, || Instant(ms * MILLISECOND), request) {
        Submitted::Done(completion) | Submitted::Later { completion, .. } => completion,
        Submitted::Clearing(mut clearing) => {
            while !disk.clear_some(memory, &mut clearing) {}
            clearing.finish().0
        }
        Submitted::Work(work) => panic!("memory needs no kernel: {work:?}"),
    }
}

fn write_of(memory: &mut ShardMemory, extent: Extent, byte: u8, durable: bool) -> Operation {
    let mut buffer = Buffer::reserved(extent.length.0 as u32, (extent.offset.0 % 4096) as u32);
    memory.write(&mut buffer, 0, &vec![byte; extent.length.0 as usize]);
    Operation::Write { extent, buffer, durable }
}

fn write(disk: &Disk, memory: &mut ShardMemory, ms: u64, extent: Extent, byte: u8) {
    let operation = write_of(memory, extent, byte, false);
    let done = at(disk, memory, ms, operation);
    assert_eq!(done.outcome, Outcome::Done);
    memory.release(done.buffer);
}

fn read(disk: &Disk, memory: &mut ShardMemory, ms: u64, extent: Extent) -> Vec<u8> {
    let phase = (extent.offset.0 % 4096) as u32;
    let buffer = Buffer::reserved(extent.length.0 as u32, phase);
    let done = at(disk, memory, ms, Operation::Read { extent, buffer });
    assert_eq!(done.outcome, Outcome::Done);
    let mut bytes = vec![0; extent.length.0 as usize];
    memory.read(&done.buffer, 0, &mut bytes);
    memory.release(done.buffer);
    bytes
}

#[test]
fn what_was_not_on_the_medium_is_as_it_was_before() {
    let mut memory = memory();
    let used = memory.arena().report().used;
    let disk = open(&memory, &cut(cached(), OpenSpec::Ram { bytes: BYTES }));
    assert_eq!(disk.facts().cache, Cache::Volatile);
    let (page, part, last) =
        (Extent::new(8192, 4096), Extent::new(16384 + 512, 1024), Extent::new(1 << 20, 512));
    for extent in [page, part, last] {
        write(&disk, &mut memory, 0, extent, 1);
    }
    assert!(at(&disk, &mut memory, 50, Operation::Flush).outcome.is_done());
    // One gets there in the millisecond that is left: the first of the disk.
    write(&disk, &mut memory, 99, Extent::new(0, 4096), 5);
    for number in 0..100 {
        write(&disk, &mut memory, 99, Extent::new(65_536 + number * 8192, 4096), 7);
    }
    for extent in [page, part, last] {
        write(&disk, &mut memory, 99, extent, 2);
    }
    // Somebody still sends what he read before.
    let buffer = Buffer::reserved(4096, 0);
    let lent = at(&disk, &mut memory, 99, Operation::Read { extent: page, buffer });
    assert_eq!(read(&disk, &mut memory, 99, part), [2; 1024]);
    assert!(disk.error_at(None).is_none());
    let gone = at(&disk, &mut memory, 105, Operation::Flush);
    assert_eq!(gone.outcome, Outcome::NotDone(Failure::NotReady));
    for (extent, length) in [(page, 4096), (part, 1024), (last, 512)] {
        assert_eq!(read(&disk, &mut memory, 200, extent), vec![1; length]);
    }
    assert_eq!(read(&disk, &mut memory, 200, Extent::new(0, 4096)), [5; 4096]);
    assert_eq!(read(&disk, &mut memory, 200, Extent::new(16384, 512)), [0; 512]);
    assert_eq!(read(&disk, &mut memory, 200, Extent::new(65_536 + 99 * 8192, 4096)), [0; 4096]);
    let mut bytes = [0; 4096];
    memory.read(&lent.buffer, 0, &mut bytes);
    assert_eq!(bytes, [2; 4096], "what is lent does not change");
    memory.release(lent.buffer);
    let lost = at(&disk, &mut memory, 200, Operation::Flush);
    assert_eq!(lost.outcome, Outcome::NotDone(Failure::MediumWrite));
    let told = disk.error_at(None).expect("pages were lost").to_string();
    assert!(told.starts_with("its model's power was cut as planned, and 10"), "{told}");
    // What is put back is a page of the disk's like any other.
    write(&disk, &mut memory, 300, page, 3);
    assert_eq!(read(&disk, &mut memory, 300, page), [3; 4096]);
    // Pages that were put back are free again with their disk, as all others are.
    drop(disk);
    while memory.idle() {}
    assert_eq!(memory.arena().report().used, used);
}

/// Shards write the sectors of one page, flush in between, and remember what lasts, until the power goes at
/// some moment of a clock that all of them turn.
#[test]
fn shards_that_write_at_once_keep_what_they_were_told_to_keep() {
    const SHARDS: u64 = 3;
    const SEEDS: u64 = 2_000;
    let mut lost = 0;
    for seed in 0..SEEDS {
        let arena = Arc::new(Arena::new(SHARDS as usize + 1).unwrap());
        let mut memories: Vec<ShardMemory> =
            (0..=SHARDS).map(|_| ShardMemory::new(&arena, 4096).unwrap()).collect();
        let mut reader = memories.pop().unwrap();
        let model = Model { seed, service_us: 1_400, cache_mib: 1, off_ms: 5_000, ..Model::PLAIN };
        let disk = open(&reader, &cut(model, OpenSpec::Ram { bytes: 1 << 20 }));
        let clock = AtomicU64::new(0);
        let (disk, clock, begin) = (&disk, &clock, &Barrier::new(SHARDS as usize));
        let known: Vec<[u8; 2]> = thread::scope(|scope| {
            let shards = (0..SHARDS).zip(memories);
            let shards: Vec<_> = shards
                .map(|(number, memory)| {
                    scope.spawn(move || {
                        begin.wait();
                        until_the_cut(disk, memory, clock, number)
                    })
                })
                .collect();
            shards.into_iter().map(|shard| shard.join().unwrap()).collect()
        });
        for (number, [kept, last]) in known.into_iter().enumerate() {
            let extent = Extent::new(number as u64 * 512, 512);
            let seen = read(disk, &mut reader, 1_000_000, extent)[0];
            assert!((kept..=last).contains(&seen), "{seed}: {seen} of {kept} to {last}");
            lost += usize::from(seen < last);
        }
    }
    assert!(lost > 100, "{lost} shards lost something");
}

/// Returns the last number that lasts, and the last that may be there.
fn until_the_cut(disk: &Disk, mut memory: ShardMemory, clock: &AtomicU64, shard: u64) -> [u8; 2] {
    let extent = Extent::new(shard * 512, 512);
    let now = || Instant(clock.fetch_add(600_000, Ordering::Relaxed));
    let is_done = |operation: Operation, memory: &mut ShardMemory| {
        let request = Request { ticket: Ticket::default(), operation };
        let (Submitted::Later { completion, .. } | Submitted::Done(completion)) =
            disk.submit(memory, now, request)
        else {
            panic!("memory answers at once")
        };
        memory.release(completion.buffer);
        completion.outcome.is_done()
    };
    let mut kept = 0;
    for number in 1..=250 {
        let durable = number % 3 == 0;
        let operation = write_of(&mut memory, extent, number, durable);
        if !is_done(operation, &mut memory) {
            return [kept, number];
        }
        if durable || number % 16 == 1 && is_done(Operation::Flush, &mut memory) {
            kept = number;
        }
    }
    panic!("the power stayed")
}

#[test]
fn a_cut_stands_around_memory_and_once() {
    let memory = memory();
    let refusal = |spec: &OpenSpec| Disk::open(spec, memory.arena()).unwrap_err().to_string();
    let null = OpenSpec::Null { bytes: 1 << 20 };
    let file = file_spec(Path::new("/nowhere/a.img"), Some(1 << 20));
    for inner in [null, file] {
        let told = refusal(&cut(Model::PLAIN, inner));
        assert!(told.contains("around ram:") && told.ends_with("seen another disk"), "{told}");
    }
    let ram = OpenSpec::Ram { bytes: 1 << 20 };
    let twice = cut(Model::PLAIN, late(cut(Model::PLAIN, ram.clone())));
    assert!(refusal(&twice).ends_with("seen two such models"), "{}", refusal(&twice));
    assert!(Disk::open(&cut(Model::PLAIN, late(modelled(ram))), memory.arena()).is_ok());
}

fn late(inner: OpenSpec) -> OpenSpec {
    OpenSpec::Instrumented { instrument: Instrument::Delay { us: 50 }, inner: Box::new(inner) }
}
