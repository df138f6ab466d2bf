//! What files hold: bytes that follow from a file's number, how often it was made, and their place in it.
//!
//! Words of eight bytes, little-endian, each from the key of its file and its place, so that no two files, and no
//! two places of one, hold the same, and nothing is all zeros for long. In: a key, a place in bytes, a buffer. Out:
//! the buffer filled, or the first byte that is not what was written. Not here: generations of a block that is
//! written over; such writes write what was there. Errors: none.

/// The key of a file that was made so many times.
pub fn key(seed: u64, file: u32, generation: u32) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&file.to_le_bytes());
    bytes[12..].copy_from_slice(&generation.to_le_bytes());
    block::random::mix(&bytes)
}

#[inline]
fn word(key: u64, number: u64) -> [u8; 8] {
    (key ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// Fills what will lie at `offset` of a file.
pub fn fill(bytes: &mut [u8], key: u64, offset: u64) {
    let head = (offset.wrapping_neg() % 8).min(bytes.len() as u64) as usize;
    let (head, rest) = bytes.split_at_mut(head);
    if !head.is_empty() {
        let from = (offset % 8) as usize;
        head.copy_from_slice(&word(key, offset / 8)[from..from + head.len()]);
    }
    let mut number = offset.div_ceil(8);
    let mut words = rest.chunks_exact_mut(8);
    for place in &mut words {
        place.copy_from_slice(&word(key, number));
        number += 1;
    }
    let tail = words.into_remainder();
    tail.copy_from_slice(&word(key, number)[..tail.len()]);
}

/// The first byte of what was read at `offset` that is not what was written there, and whether all of it is zeros.
pub fn differs(bytes: &[u8], key: u64, offset: u64) -> Option<Difference> {
    const PIECE: usize = 4096;
    let mut expected = [0; PIECE];
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        let at = number * PIECE;
        let expected = &mut expected[..piece.len()];
        fill(expected, key, offset + at as u64);
        if let Some(first) = piece.iter().zip(&*expected).position(|(seen, due)| seen != due) {
            let is_blank = piece.iter().all(|byte| *byte == 0);
            return Some(Difference { offset: offset + (at + first) as u64, is_blank });
        }
    }
    None
}

/// Where a file does not hold what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first byte, by its place in the file.
    pub offset: u64,
    /// Whether there are zeros around it.
    pub is_blank: bool,
}
