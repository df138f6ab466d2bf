//! Data that say where and when they were written, so that what is misplaced, stale, torn or
//! damaged is told apart.
//!
//! Every sector of 512 bytes is stamped by itself, whatever the size of the write:
//!
//! ```text
//!   0        8        16           24      32                                512
//!   | magic  | offset | generation | seed  | words that follow from the stamp |
//! ```
//!
//! `offset` is the sector's own offset on the volume in bytes; `generation` counts the writes of
//! its block from 1; `seed` is the run's. All little-endian. A block that was torn between two
//! writes shows two generations; one that landed elsewhere shows another offset; a lost write shows
//! the generation before. The words change with every one of the three, so no two sectors are ever
//! alike.

use core::fmt;

/// Bytes that carry one stamp.
pub const SECTOR: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"platestm");
const HEADER: usize = 32;

/// Stamps the sectors of `bytes`, which will lie at `offset`; both are multiples of [`SECTOR`].
pub fn fill(bytes: &mut [u8], offset: u64, generation: u64, seed: u64) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let at = offset + (index * SECTOR) as u64;
        fill_header(sector, at, generation, seed);
        let mut word = key(at, generation, seed);
        for place in sector[HEADER..].chunks_exact_mut(8) {
            word = next_word(word);
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// The stamp alone, without the words that follow from it: enough to make two writes differ.
pub fn header(offset: u64, generation: u64, seed: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    fill_header(&mut bytes, offset, generation, seed);
    bytes
}

fn fill_header(into: &mut [u8], offset: u64, generation: u64, seed: u64) {
    for (index, field) in [MAGIC, offset, generation, seed].into_iter().enumerate() {
        into[8 * index..8 * index + 8].copy_from_slice(&field.to_le_bytes());
    }
}

fn key(offset: u64, generation: u64, seed: u64) -> u64 {
    let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.rotate_left(32);
    mixed.wrapping_add(generation.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

fn next_word(word: u64) -> u64 {
    word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
}

fn field(sector: &[u8], index: usize) -> u64 {
    let at = 8 * index;
    let bytes = sector[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One write's data, whole and at their place.
    Stamped {
        /// Which write of this block it was.
        generation: u64,
        /// The run that wrote it.
        seed: u64,
    },
    /// Zeros.
    Blank,
    /// Something that no run wrote, first at this byte of the block.
    Foreign {
        /// The sector's first byte in the block.
        at: usize,
    },
    /// Data of another offset.
    Misplaced {
        /// The sector's first byte in the block.
        at: usize,
        /// The offset that they were written to.
        written_to: u64,
    },
    /// Sectors of two writes, or of a write and none.
    Torn {
        /// The first sector that differs from those before.
        at: usize,
        /// The generation of those before; 0 where nothing was written.
        before: u64,
        /// The generation from there on; 0 where nothing was written.
        after: u64,
    },
    /// A stamp whose words do not follow from it.
    Damaged {
        /// The first wrong byte of the block.
        at: usize,
    },
}

/// Looks at the block at `offset`; lengths and offsets are multiples of [`SECTOR`].
pub fn examine(bytes: &[u8], offset: u64) -> Finding {
    let mut first = None;
    for (index, sector) in bytes.chunks_exact(SECTOR).enumerate() {
        let at = index * SECTOR;
        let seen = examine_sector(sector, offset + at as u64, at);
        match (first, seen) {
            (_, Finding::Foreign { .. } | Finding::Misplaced { .. } | Finding::Damaged { .. }) => {
                return seen;
            }
            (None, _) => first = Some(seen),
            (Some(before), _) if before != seen => {
                return Finding::Torn {
                    at,
                    before: generation_of(before),
                    after: generation_of(seen),
                };
            }
            _ => {}
        }
    }
    first.unwrap_or(Finding::Blank)
}

fn generation_of(finding: Finding) -> u64 {
    match finding {
        Finding::Stamped { generation, .. } => generation,
        _ => 0,
    }
}

fn examine_sector(sector: &[u8], offset: u64, at: usize) -> Finding {
    if field(sector, 0) != MAGIC {
        let blank = sector.iter().all(|byte| *byte == 0);
        return if blank { Finding::Blank } else { Finding::Foreign { at } };
    }
    let (written_to, generation, seed) = (field(sector, 1), field(sector, 2), field(sector, 3));
    if written_to != offset {
        return Finding::Misplaced { at, written_to };
    }
    let mut word = key(offset, generation, seed);
    for (index, place) in sector[HEADER..].chunks_exact(8).enumerate() {
        word = next_word(word);
        if place != word.to_le_bytes() {
            let wrong = place.iter().zip(word.to_le_bytes()).position(|(a, b)| *a != b);
            return Finding::Damaged { at: at + HEADER + 8 * index + wrong.unwrap_or(0) };
        }
    }
    Finding::Stamped { generation, seed }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Stamped { generation, seed } => {
                write!(f, "write {generation} of run {seed:016x}")
            }
            Finding::Blank => f.write_str("zeros"),
            Finding::Foreign { at } => write!(f, "at its byte {at} data that no run wrote"),
            Finding::Misplaced { at, written_to } => {
                write!(f, "at its byte {at} data that were written to offset {written_to}")
            }
            Finding::Torn { at, before, after } => {
                write!(f, "write {before} up to its byte {at}, then write {after}")
            }
            Finding::Damaged { at } => write!(f, "damage from its byte {at} on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(offset: u64, generation: u64) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes, offset, generation, 7);
        bytes
    }

    #[test]
    fn what_was_written_is_recognised() {
        assert_eq!(examine(&block(8192, 3), 8192), Finding::Stamped { generation: 3, seed: 7 });
        assert_eq!(examine(&[0; 4096], 0), Finding::Blank);
        assert_eq!(examine(&[9; 4096], 0), Finding::Foreign { at: 0 });
    }

    #[test]
    fn misplaced_torn_and_damaged_blocks_are_told_apart() {
        assert_eq!(examine(&block(4096, 1), 8192), Finding::Misplaced { at: 0, written_to: 4096 });
        let mut torn = block(0, 5);
        torn[1024..].copy_from_slice(&block(0, 6)[1024..]);
        assert_eq!(examine(&torn, 0), Finding::Torn { at: 1024, before: 5, after: 6 });
        let mut half = block(0, 5);
        half[2048..].fill(0);
        assert_eq!(examine(&half, 0), Finding::Torn { at: 2048, before: 5, after: 0 });
        for at in [32, 511, 4095] {
            let mut damaged = block(0, 5);
            damaged[at] ^= 0x10;
            assert_eq!(examine(&damaged, 0), Finding::Damaged { at }, "bit of byte {at}");
        }
        // A bit of a stamp's generation or seed makes its words wrong.
        let mut damaged = block(0, 5);
        damaged[16] ^= 1;
        assert!(matches!(examine(&damaged, 0), Finding::Damaged { at: 32..40 }));
    }
}
