//! What the oracle takes for possible, and what not.

use super::*;

fn block(id: WriteId) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    if id > 0 {
        Oracle::pattern(id, 0, &mut bytes);
    }
    bytes
}

#[test]
fn a_completed_write_must_be_seen() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    assert!(oracle.check(11, 12, 0, &block(0)).is_ok(), "it is under way");
    oracle.end(20, 1, 0, 1, true, false);
    assert!(oracle.check(21, 22, 0, &block(1)).is_ok());
    assert!(oracle.check(21, 22, 0, &block(0)).is_err());
}

#[test]
fn a_flush_covers_what_its_host_was_told_is_done_also_across_a_power_cut() {
    for (is_told, is_its) in [(false, true), (true, true), (false, false)] {
        let mut oracle = Oracle::new(1, true);
        oracle.begin(10, 1, Content::Pattern, 0, 1);
        oracle.end(20, 1, 0, 1, true, false);
        oracle.power_cut(30);
        assert!(oracle.check(31, 32, 0, &block(0)).is_ok(), "it may be gone");
        if is_told {
            oracle.doubted(|id| id == 1);
        }
        oracle.flushed(40, |_| is_its);
        let is_wrong = is_its && !is_told;
        assert_eq!(oracle.check(41, 42, 0, &block(0)).is_err(), is_wrong);
    }
}

#[test]
fn what_was_seen_once_stays() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    assert!(oracle.check(11, 12, 0, &block(1)).is_ok());
    assert!(oracle.check(13, 14, 0, &block(0)).is_err(), "it went back");
}

#[test]
fn of_writes_at_the_same_time_the_one_that_was_left_stays() {
    let mut oracle = Oracle::new(1, true);
    for id in [1, 2] {
        oracle.begin(10 + id, id, Content::Pattern, 0, 1);
    }
    assert!(oracle.check(14, 15, 0, &block(1)).is_ok());
    oracle.end(20, 1, 0, 1, true, false);
    oracle.end(21, 2, 0, 1, true, false);
    assert!(oracle.clone().check(30, 40, 0, &block(1)).is_ok(), "either may be left");
    assert!(oracle.check(30, 40, 0, &block(2)).is_ok());
    assert!(oracle.check(40, 50, 0, &block(1)).is_ok(), "it may have been read before");
    let (mut back, mut lost) = (oracle.clone(), oracle);
    let why = back.check(41, 50, 0, &block(1)).unwrap_err();
    assert!(why.contains("write 1, which write 2 had replaced"), "{why}");
    lost.power_cut(60);
    assert!(lost.check(61, 62, 0, &block(1)).is_ok(), "the other was in the cache");
}

#[test]
fn a_fenced_write_happens_before_the_fence_or_never() {
    let fenced = || {
        let mut oracle = Oracle::new(1, true);
        oracle.begin(10, 1, Content::Pattern, 0, 1);
        oracle.fence(20, 1, 0, 1);
        oracle.begin(30, 2, Content::Pattern, 0, 1);
        oracle.end(40, 2, 0, 1, true, false);
        oracle
    };
    assert!(fenced().check(50, 51, 0, &block(2)).is_ok());
    assert!(fenced().check(50, 51, 0, &block(1)).is_err(), "it landed behind the fence");
    let mut lifted = fenced();
    lifted.lift_fences();
    assert!(lifted.check(50, 51, 0, &block(1)).is_ok(), "it is under way again");
    let mut refused = fenced();
    refused.end(60, 1, 0, 1, false, false);
    refused.lift_fences();
    assert!(refused.check(70, 71, 0, &block(1)).is_err(), "it was over when it was refused");
}

#[test]
fn a_fenced_write_that_was_not_there_does_not_come() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(12, 1, 0, 1, true, false);
    oracle.begin(15, 2, Content::Pattern, 0, 1);
    oracle.fence(20, 2, 0, 1);
    assert!(oracle.check(16, 30, 0, &block(1)).is_ok(), "it may have come since");
    assert!(oracle.clone().check(32, 33, 0, &block(2)).is_ok());
    assert!(oracle.check(31, 32, 0, &block(1)).is_ok());
    assert!(oracle.check(33, 34, 0, &block(2)).is_err());
}

#[test]
fn a_fenced_compare_and_write_that_was_seen_stays() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(12, 1, 0, 1, true, false);
    oracle.begin(15, 2, Content::Pattern, 0, 1);
    oracle.fence(20, 2, 0, 1);
    assert!(oracle.swapped((15, 22), 0, 2, &block(1)).is_ok());
    oracle.end(22, 2, 0, 1, true, false);
    assert!(oracle.check(30, 31, 0, &block(2)).is_ok());
    assert!(oracle.check(32, 33, 0, &block(2)).is_ok(), "it came right after what it replaced");
}

#[test]
fn a_write_that_begins_behind_a_fence_never_happens() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(30, 1, Content::Pattern, 0, 1);
    oracle.fence(20, 1, 0, 1);
    assert!(oracle.check(40, 41, 0, &block(1)).is_err());
    oracle.end(50, 1, 0, 1, false, false);
    oracle.lift_fences();
    assert!(oracle.check(60, 61, 0, &block(1)).is_err());
    assert!(oracle.check(62, 63, 0, &block(0)).is_ok());
}

#[test]
fn a_read_from_before_a_power_cut_says_nothing_of_what_is_there_since() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(20, 1, 0, 1, true, false);
    oracle.power_cut(30);
    assert!(oracle.check(25, 40, 0, &block(1)).is_ok(), "its answer was on the way");
    assert!(oracle.check(41, 42, 0, &block(0)).is_ok(), "it was in the cache");
    assert!(oracle.check(43, 44, 0, &block(1)).is_ok());
    assert!(oracle.check(45, 46, 0, &block(0)).is_err(), "it is there");
}

#[test]
fn a_read_that_begins_in_the_moment_of_a_power_cut_may_be_from_before() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(20, 1, 0, 1, true, false);
    oracle.power_cut(30);
    assert!(oracle.check(30, 40, 0, &block(1)).is_ok());
    assert!(oracle.check(41, 42, 0, &block(0)).is_ok(), "it was in the cache");
}

#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    let mut oracle = Oracle::new(1, true);
    for (id, at) in [(1, 10), (2, 30)] {
        oracle.begin(at, id, Content::Pattern, 0, 1);
        oracle.end(at + 1, id, 0, 1, true, false);
        if id == 1 {
            oracle.flushed(20, |_| false);
        }
    }
    oracle.power_cut(32);
    assert!(oracle.check(40, 41, 0, &block(1)).is_ok());
    assert!(oracle.check(40, 41, 0, &block(2)).is_ok());
    assert!(oracle.check(40, 41, 0, &block(0)).is_err(), "the first write was flushed");
}

#[test]
fn a_power_cut_takes_what_was_read_before_it_was_answered() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    assert!(oracle.check(11, 12, 0, &block(1)).is_ok());
    oracle.power_cut(12);
    assert!(oracle.check(13, 14, 0, &block(0)).is_ok());
}

#[test]
fn an_answer_that_was_on_its_way_at_a_power_cut_proves_nothing() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.power_cut(11);
    oracle.end(20, 1, 0, 1, true, false);
    oracle.flushed(30, |_| false);
    assert!(oracle.check(40, 41, 0, &block(0)).is_ok());
}

#[test]
fn a_torn_block_is_noticed() {
    let mut oracle = Oracle::new(1, true);
    for id in [1, 2] {
        oracle.begin(10, id, Content::Pattern, 0, 1);
    }
    let mut torn = block(1);
    torn[256..].copy_from_slice(&block(2)[256..]);
    assert!(oracle.check(20, 21, 0, &torn).unwrap_err().contains("torn"));
}

#[test]
fn only_one_compare_and_write_replaces_a_write() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(20, 1, 0, 1, true, false);
    for id in [2, 3] {
        oracle.begin(30, id, Content::Pattern, 0, 1);
    }
    assert!(oracle.swapped((30, 40), 0, 2, &block(1)).is_ok());
    let twice = oracle.swapped((30, 41), 0, 3, &block(1)).unwrap_err();
    assert!(twice.contains("both replaced write 1"), "{twice}");
}

#[test]
fn nothing_comes_between_a_compare_and_its_write() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(20, 1, 0, 1, true, false);
    oracle.begin(30, 2, Content::Pattern, 0, 1);
    oracle.begin(32, 3, Content::Pattern, 0, 1);
    oracle.end(35, 3, 0, 1, true, false);
    assert!(oracle.swapped((30, 40), 0, 2, &block(1)).is_ok());
    oracle.end(40, 2, 0, 1, true, false);
    // Write 3 came after write 1, so after the swap: it must be what is left.
    assert!(oracle.check(50, 51, 0, &block(3)).is_ok());
    assert!(oracle.check(50, 51, 0, &block(2)).is_err());
}

#[test]
fn an_unknown_write_supersedes_nothing() {
    let mut oracle = Oracle::new(1, true);
    oracle.begin(10, 1, Content::Pattern, 0, 1);
    oracle.end(20, 1, 0, 1, false, false);
    assert!(oracle.check(30, 31, 0, &block(0)).is_ok());
    assert!(oracle.check(32, 33, 0, &block(1)).is_ok());
    assert!(oracle.check(34, 35, 0, &block(0)).is_err(), "it was seen to have happened");
}

/// What write `id` leaves in the block of this number.
fn of(id: WriteId, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Oracle::pattern(id, number, &mut bytes);
    bytes
}

/// An oracle of four blocks, each of which was written by the write of its number and one.
fn written() -> Oracle {
    let mut oracle = Oracle::new(4, true);
    for number in 0..4 {
        oracle.begin(1, number + 1, Content::Pattern, number, 1);
        oracle.end(2, number + 1, number, 1, true, false);
    }
    oracle
}

#[test]
fn a_copy_leaves_what_its_source_held_and_nothing_else() {
    let mut oracle = written();
    assert!(oracle.check(8, 9, 2, &of(1, 0)).unwrap_err().contains("of another block"));
    oracle.begin_copy(10, 9, 2, &[(0, 2)]);
    for (number, old) in [(2, of(3, 2)), (3, of(4, 3))] {
        assert!(oracle.clone().check(11, 12, number, &old).is_ok(), "it is under way");
        let new = of(number - 1, number - 2);
        assert!(oracle.clone().check(11, 12, number, &new).is_ok());
        assert!(oracle.clone().check(11, 12, number, &block(0)).is_err());
        // The pattern of the copy's number never is.
        assert!(oracle.clone().check(11, 12, number, &of(9, number)).is_err());
    }
    let mut seen = oracle.clone();
    assert!(seen.check(11, 12, 2, &of(1, 0)).is_ok());
    assert!(seen.check(13, 14, 2, &of(3, 2)).is_err(), "it went back");
    oracle.end(20, 9, 2, 2, true, false);
    assert!(oracle.check(21, 22, 2, &of(3, 2)).unwrap_err().contains("had replaced"));
    assert!(oracle.check(21, 22, 3, &of(1, 0)).is_err(), "the wrong block of the source");
    assert!(oracle.check(21, 22, 3, &of(2, 1)).is_ok());
}

#[test]
fn a_copy_leaves_any_of_what_its_source_held_meanwhile() {
    let mut oracle = written();
    oracle.begin(10, 7, Content::Pattern, 0, 1);
    oracle.end(11, 7, 0, 1, true, false);
    oracle.begin_copy(20, 9, 2, &[(0, 1)]);
    oracle.begin(25, 8, Content::Pattern, 0, 1);
    oracle.end(26, 8, 0, 1, true, false);
    oracle.end(30, 9, 2, 1, true, false);
    oracle.begin(31, 10, Content::Zeros, 0, 1);
    oracle.end(32, 10, 0, 1, true, false);
    assert!(oracle.clone().check(40, 41, 2, &of(7, 0)).is_ok());
    assert!(oracle.clone().check(40, 41, 2, &of(8, 0)).is_ok());
    assert!(oracle.clone().check(40, 41, 2, &of(1, 0)).is_err(), "that was replaced before");
    assert!(oracle.clone().check(40, 41, 2, &block(0)).is_err(), "that came after it");
}

#[test]
fn what_was_copied_is_copied_on() {
    let mut oracle = written();
    oracle.begin_copy(10, 9, 1, &[(0, 1)]);
    oracle.end(12, 9, 1, 1, true, false);
    oracle.begin(13, 10, Content::Pattern, 0, 1);
    oracle.end(14, 10, 0, 1, true, false);
    oracle.begin_copy(20, 11, 2, &[(1, 1)]);
    oracle.end(22, 11, 2, 1, true, false);
    assert!(oracle.clone().check(30, 31, 2, &of(1, 0)).is_ok());
    assert!(oracle.clone().check(30, 31, 2, &of(10, 0)).is_err());
    // And back, where it looks as if nobody had copied it.
    oracle.begin_copy(40, 12, 0, &[(2, 1)]);
    oracle.end(42, 12, 0, 1, true, false);
    assert!(oracle.clone().check(50, 51, 0, &of(10, 0)).is_err());
    for id in [13, 14] {
        oracle.begin(60, id, Content::Pattern, 0, 1);
        assert!(oracle.swapped((60, 70), 0, id, &of(1, 0)).is_ok(), "it may have come twice");
        oracle.end(70, id, 0, 1, false, false);
    }
}

#[test]
fn ranges_of_a_copy_are_copied_in_their_order_and_each_as_a_whole() {
    // Blocks 0 and 1 to 1 and 2: the second is what block 1 held before.
    let mut oracle = written();
    oracle.begin_copy(10, 9, 1, &[(0, 2)]);
    oracle.end(12, 9, 1, 2, true, false);
    assert!(oracle.check(20, 21, 2, &of(1, 0)).is_err());
    assert!(oracle.check(20, 21, 2, &of(2, 1)).is_ok());
    // As two ranges it may be what the first one left there.
    let mut oracle = written();
    oracle.begin_copy(10, 9, 1, &[(0, 1), (1, 1)]);
    oracle.end(12, 9, 1, 2, true, false);
    assert!(oracle.check(20, 21, 2, &of(1, 0)).is_ok());
    // Two copies of each other's blocks bring nothing from nowhere.
    let mut oracle = written();
    oracle.begin_copy(10, 9, 0, &[(1, 1)]);
    oracle.begin_copy(10, 10, 1, &[(0, 1)]);
    assert!(oracle.check(20, 21, 0, &of(3, 2)).is_err());
    assert!(oracle.check(20, 21, 0, &of(1, 0)).is_ok());
}

#[test]
fn a_copy_keeps_what_a_power_cut_takes_from_its_source() {
    let mut oracle = written();
    oracle.begin_copy(10, 9, 1, &[(0, 1)]);
    oracle.end(12, 9, 1, 1, true, true);
    oracle.power_cut(20);
    assert!(oracle.check(21, 22, 0, &block(0)).is_ok());
    assert!(oracle.check(21, 22, 1, &of(2, 1)).is_err(), "it is durable");
    assert!(oracle.check(21, 22, 1, &of(1, 0)).is_ok());
}

#[test]
fn what_a_power_cut_took_from_a_fenced_host_was_copied_before() {
    // Block 0 to 1 and on to 2, by a host that is shut out then; the cut takes the first of them.
    let mut oracle = written();
    oracle.begin_copy(10, 9, 1, &[(0, 1), (1, 1)]);
    oracle.fence(15, 9, 1, 2);
    oracle.power_cut(20);
    assert!(oracle.check(21, 22, 1, &of(2, 1)).is_ok());
    assert!(oracle.clone().check(23, 24, 2, &of(1, 0)).is_ok(), "it was in block 1 before");
    assert!(oracle.clone().check(23, 24, 1, &of(1, 0)).is_err(), "it was not there after the cut");
    // What is copied after the cut does not find it.
    oracle.begin_copy(30, 10, 0, &[(1, 1)]);
    oracle.end(32, 10, 0, 1, true, false);
    assert!(oracle.clone().check(40, 41, 0, &of(1, 0)).is_err());
    assert!(oracle.check(40, 41, 0, &of(2, 1)).is_ok());
}
