//! ATA commands, one rule each.

use block::{Failure, Outcome};

use super::world::*;
use crate::export::ExportId;

#[test]
fn read_and_write_short_and_ext_pio_and_dma() {
    let mut world = World::new();
    for (tag, (write_op, read_op)) in [(0x34, 0x24), (0x35, 0x25)].into_iter().enumerate() {
        let tag = tag as u32;
        let data: Vec<u8> = (0..1024).map(|at| (at as u32 * 7 + tag) as u8).collect();
        let answer = world.answer(&ata(A, tag, write_op, 10, 2, &data));
        assert_eq!((registers(&answer), answer.len()), ((0x40, 0, 0), 60));
        let answer = world.answer(&ata(A, tag + 8, read_op, 10, 2, &[]));
        assert_eq!(registers(&answer), (0x40, 0, 0));
        assert_eq!(answer[36..], data);
    }
    for (tag, (write_op, read_op)) in [(0x30, 0x20), (0xca, 0xc8)].into_iter().enumerate() {
        let tag = 100 + tag as u32;
        let head = |flags, op| [flags, 0, 1, op, 20, 0, 0, 0xe0, 0, 0, 0, 0];
        let body = [&head(1, write_op)[..], &[tag as u8; 512]].concat();
        let answer = world.answer(&frame(OWN, A, 0, tag, &body));
        assert_eq!(registers(&answer), (0x40, 0, 0));
        let answer = world.answer(&frame(OWN, A, 0, tag + 8, &head(0, read_op)));
        assert_eq!(answer[36..], [tag as u8; 512]);
    }
    world.is_clean();
}

#[test]
fn an_answer_has_the_request_s_tag_and_our_addresses() {
    let mut world = World::new();
    for tag in [0, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        let answer = world.answer(&read(A, tag, 5, 1));
        assert_eq!(answer[..6], A);
        assert_eq!(answer[6..12], OWN);
        assert_eq!(answer[12..20], [0x88, 0xa2, 0x18, 0, 0, 7, 3, 0]);
        assert_eq!(tag_of(&answer), tag);
        // Flags and address as they were asked.
        assert_eq!(answer[24], 0x40);
        assert_eq!(answer[28..36], [5, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn the_high_nibble_of_a_short_address_does_not_count() {
    let mut world = World::new();
    world.disks[0].now[20 * 512..21 * 512].fill(0x77);
    // lba4 and lba5 of a short address do not count either.
    for (nibble, high) in [(0xe0, 0), (0xa0, 0), (0xf0, 9)] {
        let body = [0, 0, 1, 0x20, 20, 0, 0, nibble, high, high, 0, 0];
        let answer = world.answer(&frame(OWN, A, 0, 1, &body));
        assert_eq!(answer[36..], [0x77; 512]);
    }
}

#[test]
fn a_read_at_a_long_address() {
    let mut world = World::with(1500, |export| export.sectors = 0xffff_ffff_ffff);
    world.mood = Mood::Slow;
    world.come_all([read(A, 1, 0xffff_ffff_fffd, 2)]);
    let (_, request) = &world.below[0];
    let extent = request.operation.extent().unwrap();
    assert_eq!((extent.offset.0, extent.length.0), (0xffff_ffff_fffd * 512, 1024));
    world.answer_below(0, Outcome::NotDone(Failure::MediumRead));
    assert_eq!(registers(&world.take()[0]), (0x41, 0x40, 2));
    world.is_clean();
}

#[test]
fn the_last_sector_is_there_and_the_next_is_not() {
    let mut world = World::new();
    assert_eq!(registers(&world.answer(&write(A, 1, 999, 1, 1))), (0x40, 0, 0));
    assert_eq!(world.answer(&read(A, 2, 999, 1)).len(), 548);
    for (tag, (lba, count)) in
        [(1000, 1), (999, 2), (998, 3), (u64::MAX >> 16, 1), (1 << 40, 17)].into_iter().enumerate()
    {
        let tag = 10 + tag as u32;
        let answer = world.answer(&read(A, tag, lba, count));
        assert_eq!((registers(&answer), answer.len()), ((0x41, 0x10, count), 60));
        let answer = world.answer(&write(A, tag + 50, lba, 9, count));
        assert_eq!(registers(&answer), (0x41, 0x10, count));
    }
    assert_eq!(world.sectors(990, 10), [&[0; 9 * 512][..], &[1; 512]].concat());
    world.is_clean();
}

#[test]
fn more_sectors_than_a_frame_carries_are_aborted() {
    let mut world = World::with(1500, |_| {});
    assert_eq!(world.answer(&read(A, 1, 0, 2)).len(), 36 + 1024);
    for count in [3, 17, 255] {
        assert_eq!(registers(&world.answer(&read(A, 2, 0, count))), (0x41, 0x04, count));
        assert_eq!(registers(&world.answer(&write(A, 3, 0, 9, count))), (0x41, 0x04, count));
    }
    assert_eq!(world.sectors(0, 255), [0; 255 * 512]);
}

#[test]
fn a_write_shorter_than_its_count_writes_nothing() {
    let mut world = World::new();
    for length in [0, 1, 511, 1023] {
        let answer = world.answer(&ata(A, 1, 0x34, 0, 2, &vec![9; length]));
        assert_eq!(answer[14..16], [0x1c, 2]);
    }
    assert_eq!(world.sectors(0, 2), [0; 1024]);
    // More than its count is padding.
    let answer = world.answer(&ata(A, 1, 0x34, 0, 1, &[9; 1500]));
    assert_eq!(registers(&answer), (0x40, 0, 0));
    assert_eq!(world.sectors(0, 2), [[9; 512], [0; 512]].concat());
}

#[test]
fn the_w_flag_must_agree_with_the_command() {
    let mut world = World::new();
    let mut bytes = write(A, 1, 0, 9, 1);
    bytes[24] = 0x40;
    assert_eq!(world.answer(&bytes)[14..16], [0x1c, 2]);
    let mut bytes = read(A, 2, 0, 1);
    bytes[24] = 0x41;
    assert_eq!(world.answer(&bytes)[14..16], [0x1c, 2]);
    assert_eq!(world.sectors(0, 1), [0; 512]);
}

#[test]
fn a_count_of_zero_is_nothing() {
    let mut world = World::new();
    let answer = world.answer(&read(A, 1, 0, 0));
    assert_eq!((registers(&answer), answer.len()), ((0x40, 0, 0), 60));
    assert_eq!(registers(&world.answer(&write(A, 2, 1000, 9, 0))), (0x40, 0, 0));
}

#[test]
fn a_read_only_export_aborts_writes() {
    let mut world = World::with(1500, |export| export.read_only = true);
    assert_eq!(registers(&world.answer(&write(A, 1, 0, 9, 1))), (0x41, 0x04, 1));
    assert_eq!(world.answer(&read(A, 2, 0, 1)).len(), 548);
}

#[test]
fn identify_says_size_and_identity() {
    let mut world = World::with(1500, |export| {
        export.uuid = [0xab; 16];
        export.sectors = (1 << 28) + 1;
    });
    // Linux, iPXE and WinVBlock ask in their own ways.
    for (flags, device) in [(0, 0xa0), (0, 0xe0), (0x40, 0)] {
        let body = [flags, 0, 1, 0xec, 0, 0, 0, device, 0, 0, 0, 0];
        let answer = world.answer(&frame(OWN, A, 0, 1, &body));
        assert_eq!((registers(&answer), answer.len()), ((0x40, 0, 0), 548));
        assert_eq!(&answer[36 + 20..36 + 40], b"babababababababababa");
        assert_eq!(answer[36 + 120..36 + 124], [0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(answer[36 + 200..36 + 208], [1, 0, 0, 0x10, 0, 0, 0, 0]);
    }
    for count in [0, 2] {
        let answer = world.answer(&ata(A, 1, 0xec, 0, count, &[]));
        assert_eq!(answer[14..16], [0x1c, 2]);
    }
    // aoe-sancheck pads up to the MTU.
    assert_eq!(world.answer(&ata(A, 1, 0xec, 0, 1, &[0; 1478])).len(), 548);
}

#[test]
fn what_needs_no_volume_is_answered_at_once() {
    let mut world = World::slow(|_| {});
    let ask = |world: &mut World, op, feature, lba: u64, count| {
        let mut bytes = ata(A, 1, op, lba, count, &[]);
        (bytes[25], bytes[24]) = (feature, 0);
        world.answer(&bytes)
    };
    for count in [0, 1, 255] {
        assert_eq!(registers(&ask(&mut world, 0xe5, 0, 0, count)), (0x40, 0, 0xff));
    }
    let answer = ask(&mut world, 0xf8, 0, 0, 0);
    assert_eq!(
        (registers(&answer), &answer[28..34]),
        ((0x40, 0, 0), &[0xe7, 3, 0, 0xe0, 0, 0][..])
    );
    assert_eq!(ask(&mut world, 0x27, 0, 0, 0)[28..34], [0xe7, 3, 0, 0, 0, 0]);
    for (feature, expected) in [(0x82, 0x40), (0x03, 0x40), (0x02, 0x41), (0x55, 0x41)] {
        assert_eq!(registers(&ask(&mut world, 0xef, feature, 0, 0)).0, expected);
    }
    let signature = 0xc24f00;
    for (feature, count, expected) in [
        (0xda, 0, 0x40),
        (0xd8, 0, 0x40),
        (0xd9, 0, 0x40),
        (0xd0, 1, 0x40),
        (0xd5, 1, 0x41),
        (0xd4, 0, 0x41),
    ] {
        let answer = ask(&mut world, 0xb0, feature, signature, count);
        assert_eq!((answer[27], answer.len()), (expected, 548));
        assert_eq!(answer[29..31], [0x4f, 0xc2]);
    }
    assert_eq!(registers(&ask(&mut world, 0xb0, 0xda, 0, 0)).0, 0x41);
    assert!(world.below.is_empty());
}

#[test]
fn unknown_commands_are_aborted_without_the_e_flag() {
    let mut world = World::new();
    for op in 0..=255 {
        let known = [
            0x06, 0x20, 0x24, 0x25, 0x27, 0x30, 0x34, 0x35, 0x40, 0x42, 0xb0, 0xc8, 0xca, 0xe5,
            0xe7, 0xea, 0xec, 0xef, 0xf8,
        ];
        if !known.contains(&op) {
            let answer = world.answer(&ata(A, 1, op, 0, 1, &[0; 512]));
            assert_eq!((registers(&answer), answer.len()), ((0x41, 0x04, 1), 60), "{op:#x}");
        }
    }
}

#[test]
fn flush_and_verify_go_to_the_volume() {
    let mut world = World::new();
    assert_eq!(registers(&world.answer(&ata(A, 1, 0xea, 0, 0, &[]))), (0x40, 0, 0));
    assert_eq!(registers(&world.answer(&ata(A, 1, 0xe7, 0, 0, &[]))), (0x40, 0, 0));
    assert_eq!(world.disks[0].flushes, 2);
    assert_eq!(registers(&world.answer(&ata(A, 1, 0x42, 0, 255, &[]))), (0x40, 0, 0));
    assert_eq!(registers(&world.answer(&ata(A, 1, 0x42, 999, 2, &[]))), (0x41, 0x10, 2));
    world.mood = Mood::Fails(Failure::MediumRead);
    assert_eq!(registers(&world.answer(&ata(A, 1, 0x40, 0, 1, &[]))), (0x41, 0x40, 1));
    world.mood = Mood::Fails(Failure::MediumWrite);
    assert_eq!(registers(&world.answer(&ata(A, 1, 0xea, 0, 0, &[]))), (0x61, 0x04, 0));
    world.is_clean();
}

#[test]
fn trim_discards_where_the_volume_gives_space_back() {
    let ranges = |list: &[(u64, u64)]| {
        let words = list.iter().flat_map(|(lba, count)| (lba | count << 48).to_le_bytes());
        let mut bytes: Vec<u8> = words.collect();
        bytes.resize(512, 0);
        bytes
    };
    let trim = |tag, list: &[(u64, u64)]| {
        let mut bytes = ata(A, tag, 0x06, 0, 1, &ranges(list));
        bytes[25] = 1;
        bytes
    };
    let mut world = World::with(1500, |export| export.discards = true);
    world.disks[0].now.fill(7);
    assert_eq!(registers(&world.answer(&trim(1, &[(3, 2), (10, 1)]))), (0x40, 0, 0));
    assert_eq!(world.sectors(2, 1), [7; 512]);
    assert_eq!(world.sectors(3, 2), [0; 1024]);
    assert_eq!(world.sectors(10, 1), [0; 512]);
    // Beyond the end nothing is discarded.
    assert_eq!(registers(&world.answer(&trim(2, &[(20, 1), (999, 2)]))), (0x41, 0x10, 1));
    assert_eq!(world.sectors(20, 1), [7; 512]);
    assert_eq!(registers(&world.answer(&trim(3, &[]))), (0x40, 0, 0));
    let mut short = trim(4, &[(20, 1)]);
    short.truncate(500);
    assert_eq!(world.answer(&short)[14..16], [0x1c, 2]);
    let mut other = trim(5, &[(20, 1)]);
    other[25] = 0;
    assert_eq!(registers(&world.answer(&other)), (0x41, 0x04, 1));
    world.renew(|export| export.discards = false);
    assert_eq!(registers(&world.answer(&trim(6, &[(20, 1)]))), (0x41, 0x04, 1));
}

#[test]
fn failures_below_are_status_and_never_the_e_flag() {
    for (failure, expected) in [
        (Failure::MediumRead, (0x41, 0x40, 1)),
        (Failure::MediumWrite, (0x61, 0x04, 1)),
        (Failure::Internal, (0x61, 0x04, 1)),
        (Failure::NoSpace, (0x41, 0x04, 1)),
        (Failure::Removed, (0x41, 0x04, 1)),
    ] {
        let mut world = World::new();
        world.mood = Mood::Fails(failure);
        let answer = world.answer(&read(A, 1, 0, 1));
        assert_eq!((registers(&answer), answer.len()), (expected, 60));
        assert_eq!(registers(&world.answer(&write(A, 2, 0, 9, 1))), expected);
        world.is_clean();
    }
}

#[test]
fn thousands_of_exports_answer_for_themselves() {
    let mut world = World::empty();
    world.up(LINK, facts(1500));
    for number in 0..4096u32 {
        world.add(ExportId(number), |export| {
            export.address.shelf = (number / 200) as u16;
            export.address.slot = (number % 200) as u8;
            export.volume = block::VolumeId(number % 4);
        });
    }
    world.run();
    assert_eq!(world.target.counters().announcements, 4096);
    world.sent.clear();
    for number in [0u32, 1, 199, 200, 4095] {
        let mut bytes = write(A, number, 0, number as u8, 1);
        bytes[16..18].copy_from_slice(&((number / 200) as u16).to_be_bytes());
        bytes[18] = (number % 200) as u8;
        let answer = world.answer(&bytes);
        assert_eq!(answer[16..19], bytes[16..19]);
        assert_eq!(world.target.traffic(ExportId(number)).unwrap().writes, 1);
    }
}

#[test]
fn a_removed_export_is_silent_and_gone_once_all_is_back() {
    let mut world = World::slow(|_| {});
    world.come_all([write(A, 1, 0, 9, 1), write(A, 2, 0, 8, 1)]);
    world.with_target(|target, ctx| target.remove_export(EXPORT, ctx));
    assert!(!world.target.is_gone(EXPORT));
    world.silence(&read(A, 3, 5, 1));
    assert_eq!(world.target.drops().no_such_export, 1);
    world.answer_below(0, Outcome::Done);
    assert_eq!(world.take().len(), 1);
    assert!(world.target.is_gone(EXPORT));
    world.is_clean();
}
