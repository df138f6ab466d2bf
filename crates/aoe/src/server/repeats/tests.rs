//! What is remembered of writes, for how long, and what a copy is taken for.

use super::*;
use block::Random;

fn key(tag: u32, lba: u64, count: u8) -> Key {
    Key {
        source: 0x0200_0000_0001,
        export: ExportId(3),
        tag,
        lba,
        shape: 0x4100_0034 | u32::from(count) << 8,
        crc: 77,
    }
}

fn at(micros: u64) -> Instant {
    Instant(1_000_000_000 + micros * 1000)
}

fn write(repeats: &mut Repeats, now: Instant, key: Key) -> u32 {
    let number = repeats.begin(now, &key);
    assert!(repeats.end(now, number, true));
    number
}

#[test]
fn a_copy_within_two_seconds_is_known_and_then_forgotten() {
    let mut repeats = Repeats::default();
    write(&mut repeats, at(0), key(1, 100, 8));
    let look = |repeats: &Repeats, now, key: Key| repeats.look_up(now, &key, 0, 0);
    assert_eq!(look(&repeats, at(1_999_999), key(1, 100, 8)), Known::Done);
    assert_eq!(look(&repeats, at(2_000_000), key(1, 100, 8)), Known::New);
    for other in [
        Key { source: 2, ..key(1, 100, 8) },
        Key { export: ExportId(4), ..key(1, 100, 8) },
        Key { tag: 2, ..key(1, 100, 8) },
        Key { lba: 101, ..key(1, 100, 8) },
        Key { shape: 0x4100_0835, ..key(1, 100, 8) },
        Key { crc: 78, ..key(1, 100, 8) },
    ] {
        assert_eq!(look(&repeats, at(1), other), Known::New, "{other:?}");
    }
}

#[test]
fn what_is_held_is_counted_while_it_is_held() {
    let mut repeats = Repeats::default();
    assert_eq!(repeats.bytes(), 0);
    write(&mut repeats, at(0), key(1, 100, 8));
    let chunk = RECORDS as usize * size_of::<Record>();
    let tables = SETS * size_of::<[u64; WAYS]>() + HEADS * size_of::<u32>();
    let held = repeats.bytes();
    assert!((chunk + tables..2 * (chunk + tables)).contains(&held), "{held}");
}

#[test]
fn a_copy_that_is_answered_makes_its_time_begin_anew() {
    let mut repeats = Repeats::default();
    write(&mut repeats, at(0), key(1, 100, 8));
    repeats.answered_again(at(1_500_000), &key(1, 100, 8));
    // What is not known stays so.
    repeats.answered_again(at(1_500_000), &key(2, 100, 8));
    let look = |now, tag| repeats.look_up(now, &key(tag, 100, 8), 0, 0);
    assert_eq!(look(at(3_499_999), 1), Known::Done);
    assert_eq!(look(at(3_500_000), 1), Known::New);
    assert_eq!(look(at(1_500_001), 2), Known::New);
    assert_eq!(repeats.poll_timeout(), Some(at(1_500_000) + QUIET));
}

#[test]
fn a_newer_write_that_overlaps_supersedes_and_a_neighbour_does_not() {
    // Within a region, and across the edge of two.
    for base in [1000, 127, 128] {
        let mut repeats = Repeats::default();
        write(&mut repeats, at(0), key(1, base, 2));
        write(&mut repeats, at(1), key(2, base + 2, 2));
        write(&mut repeats, at(1), key(3, base - 2, 2));
        write(&mut repeats, at(1), Key { export: ExportId(9), ..key(4, base, 2) });
        let look = |repeats: &Repeats| repeats.look_up(at(2), &key(1, base, 2), 0, 0);
        assert_eq!(look(&repeats), Known::Done);
        let failed = repeats.begin(at(2), &key(5, base + 1, 1));
        assert_eq!(look(&repeats), Known::Superseded);
        repeats.end(at(2), failed, false);
        assert_eq!(look(&repeats), Known::Done);
        write(&mut repeats, at(3), key(6, base + 1, 17));
        assert_eq!(look(&repeats), Known::Superseded);
    }
}

fn fail(repeats: &mut Repeats, now: Instant, key: Key) {
    let number = repeats.begin(now, &key);
    assert!(repeats.end(now, number, false));
}

#[test]
fn one_that_failed_is_carried_out_again_unless_its_sectors_were_written_since() {
    let mut repeats = Repeats::default();
    let look = |repeats: &Repeats| repeats.look_up(at(9), &key(1, 5, 2), 0, 0);
    fail(&mut repeats, at(0), key(1, 5, 2));
    fail(&mut repeats, at(1), key(1, 5, 2));
    fail(&mut repeats, at(2), key(2, 5, 1));
    repeats.refuse(at(3), &key(3, 5, 1));
    write(&mut repeats, at(4), key(4, 7, 1));
    assert_eq!(look(&repeats), Known::New);
    // One that is below may have written them.
    repeats.begin(at(5), &key(5, 6, 1));
    assert_eq!(look(&repeats), Known::Superseded);
}

#[test]
fn one_that_was_refused_is_refused_for_two_seconds_and_supersedes_nothing() {
    let mut repeats = Repeats::default();
    let look = |repeats: &Repeats, micros, tag| repeats.look_up(at(micros), &key(tag, 5, 1), 0, 0);
    write(&mut repeats, at(0), key(1, 5, 1));
    repeats.refuse(at(1), &key(2, 5, 1));
    assert_eq!(look(&repeats, 2, 1), Known::Done);
    assert_eq!(look(&repeats, 2, 2), Known::Refused);
    // Refused again, it is one record still, and its time begins anew.
    let last = repeats.last;
    repeats.refuse(at(600_000), &key(2, 5, 1));
    assert_eq!((repeats.last, look(&repeats, 2_500_000, 2)), (last, Known::Refused));
    assert_eq!(look(&repeats, 2_600_000, 2), Known::New);
    // Behind a newer write it is superseded all the same.
    repeats.refuse(at(3_000_000), &key(3, 5, 1));
    write(&mut repeats, at(3_000_001), key(4, 5, 1));
    assert_eq!(look(&repeats, 3_000_002, 3), Known::Superseded);
    // A copy that is refused takes nothing from what was done, and ends what failed.
    repeats.refuse(at(3_000_003), &key(4, 5, 1));
    assert_eq!(look(&repeats, 3_000_004, 4), Known::Done);
    fail(&mut repeats, at(3_000_005), key(6, 5, 1));
    repeats.refuse(at(3_000_006), &key(6, 5, 1));
    assert_eq!(look(&repeats, 3_000_007, 6), Known::Refused);
}

#[test]
fn a_slow_write_is_remembered_from_its_end_on() {
    const SLOW: u64 = 10_000_000;
    let mut repeats = Repeats::default();
    let slow = repeats.begin(at(0), &key(1, 5, 1));
    // Its record stays as long as nobody needs the room.
    assert_eq!(repeats.look_up(at(2_000_000), &key(1, 5, 1), 0, 0), Known::New);
    assert!(repeats.end(at(2_000_000), slow, true));
    assert_eq!(repeats.look_up(at(3_999_999), &key(1, 5, 1), 0, 0), Known::Done);
    // Quiet begins when the last is over, and what is over was written by the copies' way.
    repeats.handle_timeout(at(4_999_999));
    assert!(repeats.bytes() > 0);
    repeats.handle_timeout(at(5_000_000));
    assert_eq!(repeats.bytes(), 0);
    // Memory was given back, or is used by others: whoever asks is told.
    let given_back = repeats.begin(at(6_000_000), &key(2, 5, 1));
    repeats.handle_timeout(at(6_000_000 + SLOW));
    assert!(!repeats.end(at(6_000_000 + SLOW), given_back, true));
    let again = repeats.begin(at(7_000_000 + SLOW), &key(2, 5, 1));
    assert!(repeats.end(at(7_000_000 + SLOW), again, true));
    assert_eq!(repeats.look_up(at(8_999_999 + SLOW), &key(2, 5, 1), 0, 0), Known::Done);
    let recycled = repeats.begin(at(2 * SLOW), &key(3, 5, 1));
    for tag in 0..20_000 {
        write(&mut repeats, at(2 * SLOW + u64::from(tag) * 1000), key(tag, 9000, 1));
    }
    assert!(!repeats.end(at(4 * SLOW), recycled, true));
    assert_eq!(repeats.lapsed(), 0);
}

#[test]
fn a_thousand_writes_are_kept_for_two_seconds_after_the_last_of_them_is_over() {
    let mut repeats = Repeats::default();
    let slow = repeats.begin(at(0), &key(1, 5, 1));
    for tag in 2..1100 {
        write(&mut repeats, at(1), key(tag, 9000, 1));
    }
    assert!(repeats.end(at(1_500_000), slow, true));
    for tag in 2000..4000 {
        write(&mut repeats, at(3_000_000), key(tag, 9000, 1));
    }
    assert_eq!(repeats.look_up(at(3_400_000), &key(1, 5, 1), 0, 0), Known::Done);
    assert_eq!(repeats.lapsed(), 0);
}

#[test]
fn a_mark_that_falls_out_of_its_set_while_young_is_counted() {
    let mut repeats = Repeats::default();
    // Tags of one set.
    let tag = |number: u32| (number << 16) + (1 << 15) - number;
    for number in 0..8 {
        write(&mut repeats, at(0), key(tag(number), 8 * u64::from(number), 8));
    }
    assert_eq!(repeats.lapsed(), 0);
    write(&mut repeats, at(1_999_999), key(tag(8), 64, 8));
    assert_eq!(repeats.lapsed(), 1);
    assert_eq!(repeats.look_up(at(1_999_999), &key(tag(0), 0, 8), 0, 0), Known::New);
    assert_eq!(repeats.look_up(at(1_999_999), &key(tag(1), 8, 8), 0, 0), Known::Done);
    write(&mut repeats, at(2_000_000), key(tag(9), 72, 8));
    assert_eq!(repeats.lapsed(), 1, "its time was over");
}

#[test]
fn a_trim_supersedes_all_of_its_export_and_is_superseded_by_all() {
    let mut repeats = Repeats::default();
    write(&mut repeats, at(0), key(1, 5, 1));
    let trim = write(&mut repeats, at(1), key(2, 0, 0));
    assert_eq!(repeats.look_up(at(2), &key(1, 5, 1), trim, trim), Known::Superseded);
    assert_eq!(repeats.look_up(at(2), &key(2, 0, 0), trim, trim), Known::Done);
    let later = write(&mut repeats, at(3), key(3, 9, 1));
    assert_eq!(repeats.look_up(at(4), &key(2, 0, 0), trim, later), Known::Superseded);
}

/// Against a list that remembers all: whatever is found is right, and with fewer writes than
/// there is room for all is found.
#[test]
fn what_is_found_agrees_with_a_list_of_all_writes() {
    struct Write {
        key: Key,
        number: u32,
        /// When it was over, if it is, and what it came to.
        over: Option<(Instant, Known)>,
    }
    let mut random = Random::new(5);
    let mut repeats = Repeats::default();
    let mut all: Vec<Write> = Vec::new();
    let mut now = at(0);
    let mut found = [0; 4];
    for round in 0..30_000 {
        now = now + Duration::from_micros(random.below(120));
        let back = random.below(40).min(all.len() as u64) as usize;
        match (all.len() - back, random.below(4)) {
            (at, 0) if at < all.len() => {
                let Write { key, over, .. } = all[at];
                let Some((since, came_to)) = over else { continue };
                let overlapped = all[at + 1..].iter().any(|other| {
                    let overlaps = other.key.lba < key.lba + key.count()
                        && key.lba < other.key.lba + other.key.count();
                    overlaps && other.over.is_none_or(|(_, came_to)| came_to == Known::Done)
                });
                let expected = match (now.since(since) < MEMORY, overlapped) {
                    (false, _) => Known::New,
                    (true, true) => Known::Superseded,
                    (true, false) => came_to,
                };
                assert_eq!(repeats.look_up(now, &key, 0, 0), expected, "round {round}");
                found[expected as usize] += 1;
            }
            (at, 1) if at < all.len() && all[at].over.is_none() => {
                let done = random.chance(3, 4);
                assert!(repeats.end(now, all[at].number, done));
                all[at].over = Some((now, if done { Known::Done } else { Known::New }));
            }
            _ => {
                let key = key(round, random.below(4000), 1 + random.below(20) as u8);
                let over = random.chance(1, 8).then_some((now, Known::Refused));
                let number = match over {
                    Some(_) => {
                        repeats.refuse(now, &key);
                        0
                    }
                    None => repeats.begin(now, &key),
                };
                all.push(Write { key, number, over });
            }
        }
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

#[test]
fn memory_is_bounded_recycled_and_given_back() {
    let mut repeats = Repeats::default();
    let few = |repeats: &Repeats| repeats.chunks.iter().filter(|c| !c.records.is_empty()).count();
    // Slowly: two chunks follow each other.
    let mut now = at(0);
    for tag in 0..20_000 {
        now = now + Duration::from_millis(2);
        write(&mut repeats, now, key(tag, u64::from(tag), 1));
    }
    assert!(few(&repeats) <= 3, "{} chunks", few(&repeats));
    assert_eq!(repeats.lapsed(), 0);
    // Faster than can be remembered.
    for tag in 0..300_000 {
        write(&mut repeats, now, key(tag, u64::from(tag) * 8, 8));
    }
    assert!(few(&repeats) <= CHUNKS_MAX as usize);
    assert!(repeats.lapsed() > 0);
    assert!(repeats.bytes() < 16 << 20, "{} bytes", repeats.bytes());
    assert_eq!(repeats.look_up(now, &key(299_999, 299_999 * 8, 8), 0, 0), Known::Done);
    now = now + QUIET;
    repeats.handle_timeout(now);
    assert_eq!((repeats.bytes(), repeats.poll_timeout()), (0, None));
    write(&mut repeats, now, key(1, 1, 1));
    assert_eq!(repeats.look_up(now, &key(1, 1, 1), 0, 0), Known::Done);
}

#[test]
fn numbers_may_begin_anew() {
    let mut repeats = Repeats { last: u32::MAX - 1500, ..Repeats::default() };
    for tag in 0..4000 {
        write(&mut repeats, at(u64::from(tag)), key(tag, u64::from(tag) * 8, 8));
        for back in [0, 1, 100] {
            if tag >= back {
                let key = key(tag - back, u64::from(tag - back) * 8, 8);
                let known = repeats.look_up(at(u64::from(tag)), &key, 0, 0);
                assert_eq!(known, Known::Done, "tag {tag} back {back}");
            }
        }
    }
}
