//! Rules of the order of pages: what is written in order lies in order and stays so, and what is
//! touched lies in one row.

use super::*;

impl Bench {
    fn land(&mut self, page: u64, byte: u8) {
        let extent = Extent::new(page * 4096, 4096);
        self.disk.land(&mut self.memory, extent, &[byte; 4096]);
    }

    /// The pages of the first slots.
    fn held(&self, count: usize) -> Vec<u32> {
        self.disk.slots[..count].iter().map(|slot| slot.load(Ordering::Relaxed)).collect()
    }
}

fn is_in_a_row(pages: &[u32]) -> bool {
    pages.windows(2).all(|two| two[0] + 1 == two[1])
}

#[test]
fn what_lands_where_nobody_leases_leaves_the_pages_in_their_place() {
    for size in [64, COLD_MIN / 4096] {
        let mut bench = bench(size);
        (0..8).for_each(|page| bench.land(page, 1));
        let before = bench.held(8);
        assert!(is_in_a_row(&before), "{before:?}");
        for page in [5, 2, 7, 2, 0] {
            bench.land(page, 2);
        }
        bench.disk.land(&mut bench.memory, Extent::new(3 * 4096 + 512, 8192), &[3; 8192]);
        assert_eq!(bench.held(8), before);
        assert_eq!(bench.content(3 * 4096 + 512, 8192), [3; 8192]);
        assert_eq!(bench.used(), 8);
    }
}

#[test]
fn what_is_written_in_any_order_lies_in_order() {
    for size in [64, COLD_MIN / 4096] {
        let mut bench = bench(size);
        let scattered = |index: u64| index * 37 % 64;
        (0..64).for_each(|index| bench.land(scattered(index), 1));
        let before = bench.held(64);
        assert!(is_in_a_row(&before), "{before:?}");
        // Given up and written again it is as before, whoever had the pages meanwhile.
        let gone = Operation::Discard { extents: vec![Extent::new(0, 64 * 4096)] };
        assert!(bench.ask(gone).outcome.is_done());
        (0..64).for_each(|index| bench.land(scattered(index), 2));
        assert_eq!(bench.held(64), before);
        assert_eq!(bench.content(0, 64 * 4096), [2; 64 * 4096]);
        assert_eq!(bench.used(), 64);
    }
}

#[test]
fn a_disk_for_which_there_are_no_homes_does_without() {
    for touched in [false, true] {
        let arena = Arc::new(Arena::new(1).unwrap());
        let mut memory = ShardMemory::new(&arena, 1024).unwrap();
        let capacity = arena.report().capacity;
        assert!(arena.make_homes(capacity - 1024).is_some(), "others have nearly all");
        let opened = Disk::open(&OpenSpec::Ram { bytes: 8 << 20 }, &arena).unwrap();
        assert!(!touched || opened.touch(|_| true));
        let disk = opened.as_ram().unwrap();
        assert_eq!(disk.homes, None);
        for slot in (0..2048).rev() {
            disk.land(&mut memory, Extent::new(slot * 4096, 4096), &[slot as u8; 4096]);
        }
        for slot in 0..2048 {
            let buffer = read(disk, &mut memory, Extent::new(slot * 4096, 4096));
            assert_eq!(bytes(&memory, &buffer), [slot as u8; 4096]);
            memory.release(buffer);
        }
        assert_eq!(pages_used(disk), 2048);
    }
}

#[test]
fn a_disk_that_follows_another_has_its_homes() {
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut memory = ShardMemory::new(&arena, 1024).unwrap();
    let mut held = Vec::new();
    for turn in 0..3_u8 {
        let opened = Disk::open(&OpenSpec::Ram { bytes: 1 << 20 }, &arena).unwrap();
        let disk = opened.as_ram().unwrap();
        let lease = read(disk, &mut memory, Extent::new(0, 4096));
        assert!(memory.first_nonzero(&lease).is_none());
        memory.release(lease);
        for slot in (0..256).rev() {
            disk.land(&mut memory, Extent::new(slot * 4096, 4096), &[turn + 1; 4096]);
        }
        let now: Vec<u32> = disk.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
        assert!(is_in_a_row(&now));
        held.push(now);
    }
    assert!(held.windows(2).all(|two| two[0] == two[1]));
    assert_eq!(arena.homes_taken(), 256);
}

#[test]
fn a_page_that_is_taken_lies_beside_its_neighbours() {
    let mut bench = bench(64);
    (0..8).for_each(|page| bench.land(page, 1));
    let before = bench.held(8);
    let gone = Operation::Discard { extents: vec![Extent::new(2 * 4096, 8192)] };
    assert!(bench.ask(gone).outcome.is_done());
    // Whether the pages are at hand, or with the arena.
    for is_idle in [false, true] {
        let gone = Operation::Discard { extents: vec![Extent::new(5 * 4096, 4096)] };
        assert!(bench.ask(gone).outcome.is_done());
        if is_idle {
            bench.used();
        }
        for page in [5, 3, 2] {
            bench.land(page, 2);
        }
        assert_eq!(bench.held(8), before);
    }
    assert_eq!(bench.used(), 8);
}

#[test]
fn what_was_exchanged_because_it_was_leased_comes_home() {
    let mut bench = bench(64);
    (0..8).for_each(|page| bench.land(page, 1));
    let before = bench.held(8);
    let lease = read(&bench.disk, &mut bench.memory, Extent::new(4 * 4096, 4096));
    bench.land(4, 2);
    assert_ne!(bench.held(8), before, "a leased page is exchanged");
    bench.land(4, 3);
    assert_eq!(bytes(&bench.memory, &lease), [1; 4096]);
    bench.memory.release(lease);
    // A part of a page changes it where it is.
    bench.disk.land(&mut bench.memory, Extent::new(4 * 4096, 512), &[4; 512]);
    assert_ne!(bench.held(8), before);
    bench.land(4, 5);
    assert_eq!(bench.held(8), before);
    assert_eq!(bench.content(4 * 4096, 4096), [5; 4096]);
    assert_eq!(bench.used(), 8);
}

#[test]
fn a_disk_that_is_touched_has_all_its_pages_in_a_row_and_reads_zeros() {
    // More than is touched together, and an end within a page.
    let (pages, bytes) = (6000, 6000 * 4096 - 512);
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut memory = ShardMemory::new(&arena, 1024).unwrap();
    // Pages that were used before are no zeros.
    let mut buffer = Buffer::reserved(1 << 20, 0);
    memory.write(&mut buffer, 0, &[7; 1 << 20]);
    memory.release(buffer);
    while memory.idle() {}
    let opened = Disk::open(&OpenSpec::Ram { bytes }, &arena).unwrap();
    let before = arena.report().used;
    let mut told = Vec::new();
    assert!(opened.touch(|done| {
        told.push(done.0);
        true
    }));
    assert_eq!(told, [4096 * 4096, bytes]);
    assert_eq!(arena.report().used - before, pages);
    let disk = opened.as_ram().unwrap();
    let held: Vec<u32> = disk.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
    assert!(is_in_a_row(&held));
    let buffer = read(disk, &mut memory, Extent::new(0, 1 << 20));
    assert!(memory.first_nonzero(&buffer).is_none());
    memory.release(buffer);
    // A discard gives pages back as ever.
    let gone = Operation::Discard { extents: vec![Extent::new(0, 4096)] };
    assert!(ask(disk, &mut memory, gone).outcome.is_done());
    assert_eq!(pages_used(disk), pages - 1);
    drop(opened);
    while memory.idle() {}
    assert_eq!(arena.report().used, 1);
}

#[test]
fn who_touches_a_disk_may_stop_and_a_second_one_is_zeros_too() {
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut memory = ShardMemory::new(&arena, 1024).unwrap();
    for turn in 0..3 {
        let spec = OpenSpec::Ram { bytes: 64 << 20 };
        let opened = Disk::open(&spec, &arena).unwrap();
        let mut pieces = 0;
        let is_whole = opened.touch(|_| {
            pieces += 1;
            turn > 0
        });
        assert_eq!((is_whole, pieces), if turn == 0 { (false, 1) } else { (true, 4) });
        let disk = opened.as_ram().unwrap();
        // In the last turn it has pages of the one before.
        for at in (0..64u64 << 20).step_by(1 << 20) {
            let extent = Extent::new(at, 1 << 20);
            let buffer = read(disk, &mut memory, extent);
            assert!(memory.first_nonzero(&buffer).is_none());
            memory.release(buffer);
            disk.land(&mut memory, Extent::new(at, 8192), &[9; 8192]);
        }
    }
}
