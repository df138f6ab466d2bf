//! What a command moves and what its initiator expects: less, the same, more, nothing, and the wrong
//! way. Spec: RFC 7143, 11.4.5.

use wire::iscsi::{Residual, ScsiCommandFlags};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus, SenseKey};

use super::world::{ALL_DIGESTS, Order, Said, World, flush, pattern, read, refused, write};

/// Two blocks.
const LENGTH: u32 = 1024;

fn overflow(by: u32) -> Residual {
    Residual::Overflow(by)
}

fn underflow(by: u32) -> Residual {
    Residual::Underflow(by)
}

#[test]
fn a_read_moves_the_smaller_of_both_and_says_what_is_left() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        for (expected, residual) in [
            (0, overflow(1024)),
            (4, overflow(1020)),
            (511, overflow(513)),
            (512, overflow(512)),
            (1024, Residual::None),
            (1025, underflow(1)),
            (65_536, underflow(64_512)),
        ] {
            let (data, answer) = world.read_all(Order { expected, ..read(4, LENGTH) });
            assert_eq!(answer.status(), ScsiStatus::GOOD, "{expected}");
            assert_eq!(answer.residual(), residual, "{expected}");
            let moved = expected.min(LENGTH) as usize;
            assert_eq!(data[..], world.volumes[0][2048..2048 + moved]);
        }
    }
}

#[test]
fn a_read_that_expects_nothing_and_has_no_flag_moves_nothing() {
    let mut world = World::connected(Default::default());
    for (flags, expected) in [
        (ScsiCommandFlags::NO_DATA, 0),
        // Neither R nor W: there is nowhere for data to go.
        (ScsiCommandFlags::NO_DATA, 1024),
        (ScsiCommandFlags::NO_DATA, 512),
    ] {
        let said = world.ask(Order { flags, expected, ..read(0, LENGTH) }, &[]);
        assert_eq!((said.status(), said.residual()), (ScsiStatus::GOOD, overflow(1024)));
    }
}

#[test]
fn a_read_that_its_host_takes_for_a_write_is_good_and_moves_nothing() {
    let mut world = World::connected(Default::default());
    for data in [&[][..], &[9; 512], &[9; 1024]] {
        let order = Order { flags: ScsiCommandFlags::WRITE, ..read(0, LENGTH) };
        let said = world.ask(order, data);
        assert_eq!((said.status(), said.residual()), (ScsiStatus::GOOD, overflow(1024)));
    }
    // Also when its data follow unasked.
    let order = Order { flags: ScsiCommandFlags::WRITE.with_final(false), ..read(0, LENGTH) };
    let tag = world.command(0, order, &[]);
    assert_eq!(world.said(0), []);
    let bytes = world.links[0].host.unasked(tag, 0, &[9; 1024], true);
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert!(world.lives());
}

/// What an answer says, and how much of the data was written.
fn written(world: &mut World, expected: u32, data: &[u8]) -> (Said, usize) {
    world.volumes[0].fill(0);
    let order = Order { expected, ..write(4, LENGTH) };
    let answer = world.write_all(order, data);
    let volume = &world.volumes[0];
    let length = volume.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1 - 2048);
    assert_eq!(volume[2048..2048 + length], data[..length]);
    assert!(volume[..2048].iter().all(|byte| *byte == 0));
    (answer, length)
}

const WAYS: [[(&str, &str); 2]; 4] = [
    [("ImmediateData", "Yes"), ("InitialR2T", "No")],
    [("ImmediateData", "Yes"), ("InitialR2T", "Yes")],
    [("ImmediateData", "No"), ("InitialR2T", "No")],
    [("ImmediateData", "No"), ("InitialR2T", "Yes")],
];

#[test]
fn a_write_of_which_its_host_has_more_takes_what_it_needs() {
    for keys in WAYS {
        let keys = [&keys[..], &[("FirstBurstLength", "8192")]].concat();
        for expected in [1024, 1025, 2048, 8192, 65_536] {
            let mut world = World::connected_with(&keys);
            let data: Vec<u8> = (0..expected).map(|i| (i % 250) as u8 + 1).collect();
            let (answer, length) = written(&mut world, expected, &data);
            // Data that follow unasked are more than the command has room for: then it fails.
            let is_good = answer.status() == ScsiStatus::GOOD;
            let unasked = keys[0].1 == "No" && keys[1].1 == "No" && expected > LENGTH;
            assert!(is_good || unasked, "{keys:?} {expected}: {answer:?}");
            assert_eq!(length, if is_good { 1024 } else { 0 });
            if is_good && expected > LENGTH {
                assert_eq!(answer.residual(), underflow(expected - LENGTH));
            }
            world.volumes[0].fill(7);
            assert!(world.lives(), "{keys:?} {expected}");
        }
    }
}

#[test]
fn a_write_of_which_its_host_has_less_writes_no_block_that_did_not_come() {
    for keys in WAYS {
        for expected in [0, 1, 511, 512, 513, 1023] {
            let mut world = World::connected_with(&keys);
            let data: Vec<u8> = (0..expected).map(|i| (i % 250) as u8 + 1).collect();
            let (answer, length) = written(&mut world, expected, &data);
            match answer.status() {
                ScsiStatus::GOOD => {
                    assert_eq!(answer.residual(), overflow(LENGTH - expected));
                    assert_eq!(length as u32, expected);
                }
                _ => {
                    let code = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
                    refused(&answer, SenseKey::ILLEGAL_REQUEST, code);
                    assert_eq!(answer.residual(), overflow(LENGTH - expected));
                    assert_eq!(length, 0);
                }
            }
            world.volumes[0].fill(7);
            assert!(world.lives(), "{keys:?} {expected}");
        }
    }
}

#[test]
fn a_write_that_its_host_takes_for_a_read_writes_nothing() {
    let mut world = World::connected(Default::default());
    let order = Order { flags: ScsiCommandFlags::READ, ..write(0, LENGTH) };
    let said = world.ask(order, &[]);
    let code = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
    refused(&said, SenseKey::ILLEGAL_REQUEST, code);
    assert!(world.log.is_empty() && world.lives());
}

#[test]
fn a_command_that_moves_nothing_leaves_all_that_was_expected() {
    let mut world = World::connected(Default::default());
    let ready = Order::new(0, Cdb::test_unit_ready());
    for order in [ready, flush()] {
        let said = world.ask(order, &[]);
        assert_eq!((said.status(), said.residual()), (ScsiStatus::GOOD, Residual::None));
        let reads = Order { flags: ScsiCommandFlags::READ, expected: 512, ..order };
        let said = world.ask(reads, &[]);
        assert_eq!((said.status(), said.residual()), (ScsiStatus::GOOD, underflow(512)));
    }
}

/// What the data of a reply would have been is in the data: only what a host has no room for is an
/// overflow.
#[test]
fn a_reply_that_its_allocation_length_cuts_is_no_overflow() {
    let mut world = World::connected(Default::default());
    for allocation in [0, 5, 36, 96, 97, 98, 99, 255, 4096] {
        let order = Order::read(0, Cdb::inquiry(allocation), u32::from(allocation));
        let (data, answer) = world.read_all(order);
        assert_eq!(answer.status(), ScsiStatus::GOOD);
        assert_eq!(data.len(), usize::from(allocation.min(96)));
        let expected = match u32::from(allocation.max(96)) - 96 {
            0 => Residual::None,
            less => underflow(less),
        };
        assert_eq!(answer.residual(), expected, "{allocation}");
    }
    let (data, answer) = world.read_all(Order::read(0, Cdb::inquiry(96), 7));
    assert_eq!((data.len(), answer.residual()), (7, overflow(89)));
    let (data, answer) = world.read_all(Order::read(0, Cdb::inquiry(96), 0));
    assert_eq!((data.len(), answer.residual()), (0, overflow(96)));
}

#[test]
fn a_command_that_fails_says_that_nothing_moved() {
    let mut world = World::connected(Default::default());
    for (order, data) in [(read(u32::MAX, 512), vec![]), (write(u32::MAX, 512), pattern(512, 1))] {
        let said = world.ask(order, &data);
        refused(&said, SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE);
        assert_eq!(said.residual(), underflow(512));
    }
}

#[test]
fn a_transfer_of_no_blocks_is_good() {
    let mut world = World::connected(Default::default());
    for order in [read(0, 0), write(0, 0), read(4096, 0)] {
        let said = world.ask(order, &[]);
        assert_eq!((said.status(), said.residual()), (ScsiStatus::GOOD, Residual::None));
    }
    let said = world.ask(read(4097, 0), &[]);
    refused(&said, SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE);
}
