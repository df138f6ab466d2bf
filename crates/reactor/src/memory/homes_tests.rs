//! Rules of homes: each is taken by one, none beyond what may be committed, and what was written
//! all over becomes huge in the end.

use super::super::arena::GIVE_BACK_MAX;
use super::*;

/// An arena for so many pages, and the first of so many homes.
fn arena(pages: u32, homes: u32) -> (Arena, u32) {
    let arena = Arena::new(1).unwrap();
    arena.grow(pages).unwrap();
    let first = arena.make_homes(homes).unwrap();
    (arena, first)
}

/// Writes to homes, each of which nobody had.
fn write(arena: &Arena, pages: impl IntoIterator<Item = u32>) {
    for page in pages {
        assert_eq!(arena.take_home(page), Some(true), "page {page}");
        // SAFETY: just taken, so ours alone.
        unsafe { arena.page(page).write_bytes(9, PAGE) };
    }
}

/// The numbers of a range, so that neighbours come long after one another.
fn scattered(first: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |index| first + (index * 733) % count)
}

#[test]
fn a_home_is_taken_once_and_again_where_it_is_free() {
    let (arena, first) = arena(600, 600);
    let used = arena.report().used;
    assert_eq!(arena.take_home(first + 7), Some(true));
    assert_eq!(arena.take_home(first + 7), None, "it is in use");
    assert_eq!(arena.report().used, used + 1);
    arena.put(&[first + 7]);
    assert_eq!(arena.report().used, used);
    assert_eq!(arena.take_home(first + 7), Some(false), "free, with whatever it held");
    assert!(!arena.take_this(first + 8), "who asks for a neighbour gets nobody's first home");
    arena.put(&[first + 7]);
    let mut pages = Vec::new();
    arena.take(&mut pages, 1);
    assert_eq!(pages, [first + 7], "once taken it is a page like all others");
}

#[test]
fn no_more_is_committed_than_may_be_used() {
    let (arena, first) = arena(600, 2 * 8192);
    let most = 601 + GIVE_BACK_MAX as u32;
    let taken = (first..).take_while(|page| arena.take_home(*page) == Some(true)).count() as u32;
    assert_eq!(taken, most - 1, "all but the page of zeros");
    // Who has taken too many gives some back, and those are there for everybody.
    arena.put(&[first, first + 1]);
    let mut pages = Vec::new();
    arena.take(&mut pages, 5);
    assert_eq!(pages, [first, first + 1]);
    arena.grow(1).unwrap();
    assert_eq!(arena.take_home(first + taken), Some(true));
    assert_eq!(arena.homes_taken(), taken + 1);
}

#[test]
fn a_range_that_is_nobodys_is_given_again() {
    let (arena, a) = arena(600, 512);
    let [b, c, d] = [1, 1024, 512].map(|pages| arena.make_homes(pages).unwrap());
    assert_eq!([b, c, d], [a + 512, a + 1024, a + 2048], "whole regions, one behind the other");
    arena.end_homes(c, 1024);
    arena.end_homes(a, 512);
    arena.end_homes(b, 1);
    assert_eq!(arena.make_homes(3 * 512), Some(a), "what adjoins is one range");
    assert_eq!(arena.make_homes(512), Some(c + 512));
    assert_eq!(arena.make_homes(512), Some(d + 512), "the next is new");
    assert_eq!(arena.make_homes(u32::MAX), None);
    assert_eq!(arena.make_homes(1 << 28), None, "there is no room for so many");
}

#[test]
fn a_sparse_disk_commits_what_was_written() {
    let (arena, first) = arena(1 << 14, 64 * REGION);
    write(&arena, (0..64).map(|region| first + region * REGION + 77));
    while arena.collapse() > 0 {}
    assert_eq!(arena.committed(first, 64 * REGION), 64 * PAGE);
}

#[test]
fn what_was_written_all_over_becomes_huge() {
    let (arena, first) = arena(1 << 14, 8 * REGION);
    // The last region is written in part.
    let count = 7 * REGION + REGION / 2;
    write(&arena, scattered(first, count));
    let huge = || (0..8).map(|at| arena.is_huge(first + at * REGION)).collect::<Vec<_>>();
    assert_eq!(huge(), [false; 8], "nobody was idle yet");
    let mut calls = [0; 5].map(|_| arena.collapse());
    calls.sort_unstable();
    assert_eq!(calls, [0, 1, 2, 2, 2]);
    assert_eq!(huge(), [true, true, true, true, true, true, true, false]);
    for page in first..first + count {
        // SAFETY: ours alone.
        let bytes = unsafe { std::slice::from_raw_parts(arena.page(page), PAGE) };
        assert!(bytes.iter().all(|byte| *byte == 9), "page {page}");
    }
}

#[test]
fn what_is_written_in_order_is_huge_from_the_beginning() {
    let (arena, first) = arena(1 << 14, 4 * REGION);
    // Nearly in order, as several commands at once arrive.
    write(
        &arena,
        (0..4 * REGION / 8).flat_map(|group| (0..8).rev().map(move |at| first + group * 8 + at)),
    );
    assert!((1..4).all(|at| arena.is_huge(first + at * REGION)));
    assert!(!arena.is_huge(first), "nothing told of the first");
    assert_eq!(arena.collapse(), 1);
    assert!(arena.is_huge(first));
}

#[test]
fn stretches_of_huge_regions_are_bounded_and_those_left_out_join_their_neighbours() {
    let mut homes = Homes::new(0..u32::MAX);
    let count = 2 * STRETCHES_MAX as usize + 10;
    homes.find(count as u32 * REGION, |_| true).unwrap();
    for region in homes.regions.iter_mut() {
        region.taken = FULL;
    }
    let alone = (0..count).step_by(2).filter(|at| homes.make_huge(*at)).count();
    assert_eq!((alone, homes.stretches), (STRETCHES_MAX as usize, STRETCHES_MAX));
    assert!(!homes.make_huge(count - 1));
    while let Some(due) = homes.due.pop() {
        homes.make_huge(due);
    }
    assert_eq!(homes.stretches, 1, "all of them adjoin");
    assert!(homes.regions.iter().all(|region| region.is_huge));
}
