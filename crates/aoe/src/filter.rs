//! Which frames which shard takes: programs that the kernel runs before a frame is copied for us,
//! as values of the contract.
//!
//! A serving link takes requests, and announcements of others (they tell that an address is used
//! twice), spread over the shards by source and address; an importing link takes responses, each
//! shard those of its own tag partition. Frames that are too short to be AoE come through, so that
//! the machine counts them. The programs look at frames from their destination address on, without
//! a VLAN tag, which the kernel has taken off.

use block::ShardId;
use contract::{EtherType, Instruction, Intake, Spread, Takes};

use crate::initiator::PARTITION_SHIFT;

/// The flags, where the AoE header begins.
const FLAGS_AT: u32 = 14;
const ADDRESS_AT: u32 = 16;
const TAG_AT: u32 = 20;
/// Ethernet and AoE headers.
const HEADERS: u32 = 24;
const RESPONSE: u32 = 0x08;
/// The last four bytes of the source address.
const SOURCE_AT: u32 = 8;
const PARTITION_MASK: u32 = 0x3f;
/// All of the frame.
const TAKE: u32 = u32::MAX;

/// What the targets of so many shards take.
pub fn serving(shards: u16) -> Intake {
    of_aoe(match shards {
        1 => Spread::One(ShardId(0), target()),
        _ => Spread::Steered(target(), steer()),
    })
}

/// What the targets of one shard take where nobody else on the interface is shown what they take:
/// requests alone, so that announcements, which tell importing links of another size or disk, come
/// to those. That an address is used twice is not noticed there.
pub fn serving_at_the_door() -> Intake {
    of_aoe(Spread::One(ShardId(0), requests()))
}

/// What the initiators of so many shards take.
pub fn importing(shards: u16) -> Intake {
    of_aoe(Spread::Each((0..shards as u8).map(initiator).collect()))
}

/// What a search on one shard takes.
pub fn searching() -> Intake {
    of_aoe(Spread::One(ShardId(0), responses()))
}

fn of_aoe(spread: Spread) -> Intake {
    Intake { takes: Takes::Type(EtherType::AOE), spread }
}

/// What a target takes: requests, announcements, runts.
pub fn target() -> Vec<Instruction> {
    vec![
        Instruction::load_length(),
        Instruction::if_at_least(HEADERS, 0, 4),
        Instruction::load_byte(FLAGS_AT),
        Instruction::if_any_bit(RESPONSE, 0, 2),
        Instruction::load_word(TAG_AT),
        Instruction::if_equal(0, 0, 1),
        Instruction::ret(TAKE),
        Instruction::ret(0),
    ]
}

/// Requests and runts.
fn requests() -> Vec<Instruction> {
    vec![
        Instruction::load_length(),
        Instruction::if_at_least(HEADERS, 0, 2),
        Instruction::load_byte(FLAGS_AT),
        Instruction::if_any_bit(RESPONSE, 1, 0),
        Instruction::ret(TAKE),
        Instruction::ret(0),
    ]
}

/// What the initiators of a tag partition take: responses with their tags, and announcements.
fn initiator(partition: u8) -> Vec<Instruction> {
    vec![
        Instruction::load_byte(FLAGS_AT),
        Instruction::if_any_bit(RESPONSE, 0, 6),
        Instruction::load_word(TAG_AT),
        Instruction::if_equal(0, 3, 0),
        Instruction::shift_right(PARTITION_SHIFT),
        Instruction::and(PARTITION_MASK),
        Instruction::if_equal(partition.into(), 0, 1),
        Instruction::ret(TAKE),
        Instruction::ret(0),
    ]
}

/// All responses.
fn responses() -> Vec<Instruction> {
    vec![
        Instruction::load_byte(FLAGS_AT),
        Instruction::if_any_bit(RESPONSE, 0, 1),
        Instruction::ret(TAKE),
        Instruction::ret(0),
    ]
}

/// A number by which the frames of one source to one address stay together, and others are spread.
fn steer() -> Vec<Instruction> {
    vec![
        Instruction::load_word(ADDRESS_AT),
        Instruction::shift_right(8),
        Instruction::to_index(),
        Instruction::load_word(SOURCE_AT),
        Instruction::xor_index(),
        // Fibonacci hashing: the upper half depends on all bits.
        Instruction::multiply(0x9e37_79b1),
        Instruction::shift_right(16),
        Instruction::ret_accumulator(),
    ]
}

#[cfg(test)]
mod tests {
    use contract::filter::{is_sound, run};

    use super::*;
    use crate::limits::TAG_PARTITIONS_MAX;

    fn frame(flags: u8, source: u8, shelf: u16, slot: u8, tag: u32) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
        (frame[12], frame[13], frame[14]) = (0x88, 0xa2, 0x10 | flags);
        frame[16..18].copy_from_slice(&shelf.to_be_bytes());
        frame[18] = slot;
        frame[20..24].copy_from_slice(&tag.to_be_bytes());
        frame
    }

    #[test]
    fn programs_are_sound() {
        for program in [target(), requests(), initiator(63), responses(), steer()] {
            assert!(is_sound(&program), "{program:?}");
        }
    }

    #[test]
    fn a_target_takes_requests_announcements_and_runts() {
        let takes = |frame: &[u8]| run(&target(), frame) > 0;
        assert!(takes(&frame(0, 1, 7, 0, 99)));
        assert!(takes(&frame(8, 1, 7, 0, 0)), "an announcement");
        assert!(!takes(&frame(8, 1, 7, 0, 99)), "a response");
        assert!(takes(&frame(0, 1, 7, 0, 99)[..20]), "a runt is counted");
    }

    #[test]
    fn at_the_door_announcements_are_left_to_initiators() {
        let Spread::One(_, program) = serving_at_the_door().spread else { unreachable!() };
        let takes = |frame: &[u8]| run(&program, frame) > 0;
        assert!(takes(&frame(0, 1, 7, 0, 99)));
        assert!(!takes(&frame(8, 1, 7, 0, 0)), "an announcement");
        assert!(!takes(&frame(8, 1, 7, 0, 99)), "a response");
        assert!(takes(&frame(0, 1, 7, 0, 99)[..20]), "a runt is counted");
        assert!(run(&initiator(0), &frame(8, 1, 7, 0, 0)) > 0);
    }

    #[test]
    fn initiators_take_the_responses_of_their_tag_partition() {
        for partition in [0, 1, TAG_PARTITIONS_MAX - 1] {
            let takes = |flags, tag| run(&initiator(partition), &frame(flags, 1, 7, 0, tag)) > 0;
            let own = u32::from(partition) << PARTITION_SHIFT | 12345;
            assert!(takes(8, own) && takes(8, 0));
            assert!(takes(12, own), "an error is a response");
            assert!(!takes(0, own) && !takes(8, own ^ 1 << PARTITION_SHIFT));
        }
        assert!(run(&responses(), &frame(8, 1, 7, 0, 77)) > 0);
        assert_eq!(run(&responses(), &frame(0, 1, 7, 0, 77)), 0);
    }

    #[test]
    fn frames_of_one_source_to_one_export_stay_together_and_others_are_spread() {
        let of = |source, slot, tag, command: u8| {
            let mut frame = frame(0, source, 7, slot, tag);
            frame[19] = command;
            run(&steer(), &frame) % 4
        };
        assert_eq!(of(1, 1, 5, 0), of(1, 1, 6, 1));
        let mut sources = [0; 4];
        let mut slots = [0; 4];
        for number in 0..64 {
            sources[of(number, 1, 5, 0) as usize] += 1;
            slots[of(1, number, 5, 0) as usize] += 1;
        }
        assert!(sources.iter().chain(&slots).all(|count| *count >= 8), "{sources:?} {slots:?}");
    }
}
