//! Frames that nobody should send: the spec's answer or silence, a counter, and never a write.

use block::Random;
use contract::LinkId;

use super::world::*;

#[test]
fn other_frames_are_ignored() {
    let mut world = World::new();
    let good = write(A, 1, 0, 9, 1);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    // A response, and for another shelf or slot.
    world.silence(&with(14, 0x18));
    world.silence(&with(17, 8));
    world.silence(&with(18, 4));
    assert_eq!(world.target.drops().no_such_export, 2);
    assert_eq!(world.target.counters().responses_heard, 1);
    assert_eq!(world.sectors(0, 1), [0; 512]);
}

#[test]
fn what_is_meant_for_one_is_not_taken_from_a_broadcast() {
    let mut world = World::new();
    for mut bytes in [
        write(A, 1, 0, 9, 1),
        read(A, 1, 0, 1),
        frame(OWN, A, 2, 1, &[0, 0, 0, 0]),
        frame(OWN, A, 3, 1, &[0, 0]),
        frame(OWN, A, 0xf0, 1, &[]),
    ] {
        bytes[..6].fill(0xff);
        world.silence(&bytes);
    }
    assert_eq!(world.target.drops().broadcast, 5);
    assert_eq!(world.sectors(0, 1), [0; 512]);
}

#[test]
fn runts_are_dropped() {
    let mut world = World::new();
    for (command, least) in [(0, 36), (1, 32), (2, 28), (3, 26)] {
        let whole = frame(OWN, A, command, 1, &[]);
        for length in 0..least {
            world.silence(&whole[..length]);
        }
    }
    assert_eq!(world.links.misfits.runt + world.target.drops().runt, 36 + 32 + 28 + 26);
    // From the smallest whole ones on there is an answer, and it has 60 bytes.
    for (command, least) in [(1, 32), (2, 28), (3, 26)] {
        assert_eq!(world.answer(&frame(OWN, A, command, 1, &[])[..least]).len(), 60);
    }
    assert_eq!(world.answer(&ata(A, 1, 0xe5, 0, 0, &[])[..36]).len(), 60);
}

#[test]
fn unknown_commands_and_versions_are_refused() {
    let mut world = World::new();
    for command in [4, 5, 0x7f, 0xf0, 0xff] {
        let answer = world.answer(&frame(OWN, A, command, 5, &[]));
        assert_eq!((&answer[14..16], answer[19]), (&[0x1c, 1][..], command));
    }
    for version in [0x00, 0x20, 0xf0] {
        for mut bytes in [write(A, 6, 0, 9, 1), config(OWN, A, 6, 0, &[])] {
            bytes[14] = version;
            let answer = world.answer(&bytes);
            // Our version, not theirs.
            assert_eq!((&answer[14..16], tag_of(&answer)), (&[0x1c, 5][..], 6));
        }
    }
    assert_eq!(world.sectors(0, 1), [0; 512]);
}

#[test]
fn a_link_that_is_down_or_unknown_is_silent() {
    let mut world = World::new();
    world.come_on(LinkId(9), None, &read(A, 1, 0, 1));
    world.target.link_down(LINK);
    world.silence(&read(A, 1, 0, 1));
    assert_eq!((world.links.misfits.link_down, world.target.drops().link_down), (1, 1));
    world.up(LINK, facts(9000));
    world.run();
    // It is announced again.
    assert_eq!(world.take().len(), 1);
    assert_eq!(world.answer(&read(A, 1, 0, 1)).len(), 548);
}

#[test]
fn a_flood_of_forged_stations_leaves_nothing_behind() {
    let mut world = World::new();
    let before = world.target.in_flight();
    for number in 0..10_000u32 {
        let [a, b, c, d] = number.to_be_bytes();
        let mut bytes = read([2, 9, a, b, c, d], number, 0, 1);
        bytes[18] = if number % 2 == 0 { 3 } else { 4 };
        world.ask(&bytes);
    }
    assert_eq!(world.target.in_flight(), before);
    assert_eq!(world.target.counters().repeat_bytes, 0);
    world.is_clean();
}

/// Any change of a few bytes of good frames: no panic, nothing lost, no answer longer than the link
/// carries, and no sector beyond those that a good frame could have meant to write.
#[test]
fn changed_bytes_never_panic() {
    let mut random = Random::new(11);
    let mut world = World::with(1500, |export| {
        export.discards = true;
        export.cache_volatile = true;
    });
    let frames = [
        write(A, 1, 10, 9, 2),
        read(A, 2, 10, 2),
        ata(A, 3, 0xec, 0, 1, &[]),
        ata(A, 4, 0x06, 0, 1, &[1; 512]),
        ata(A, 5, 0xb0, 0xc24f00, 1, &[]),
        config(ALL, A, 6, 0, &[]),
        config(OWN, A, 7, 3, b"text"),
        frame(OWN, A, 2, 8, &[0, 1, 0, 1, 0, 1, 2, 0, 0, 0, 0, 1]),
        frame(OWN, A, 3, 9, &[1, 1, 2, 0, 0, 0, 0, 1]),
    ];
    for round in 0..20_000 {
        let mut bytes = frames[random.below(frames.len() as u64) as usize].clone();
        for _ in 0..random.below(4) {
            let at = 12 + random.below(40.min(bytes.len() as u64 - 12)) as usize;
            bytes[at] = [0, 1, 0x7f, 0xff, random.next_u64() as u8][random.below(5) as usize];
        }
        if random.chance(1, 5) {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        }
        world.come(&bytes);
        if round % 7 == 0 {
            world.run();
            for frame in world.take() {
                assert!(frame.len() >= 60 && frame.len() <= 1514, "{} bytes", frame.len());
            }
        }
        if round % 100 == 0 {
            world.target.install_control(EXPORT, Default::default());
            world.shard.reservations.set(block::VolumeId(0), Default::default());
        }
    }
    world.run();
    world.is_clean();
}
