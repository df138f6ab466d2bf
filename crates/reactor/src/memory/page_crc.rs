//! CRC32C of one page after another, where each has to come from memory first.
//!
//! A large payload is sent from pages of a RAM disk that lie anywhere and in no cache. Summed one by
//! one, each page starts with a miss that the processor's prefetcher does not foresee, since the
//! next page is somewhere else; so the lines of the next one are asked for between the steps of this
//! one. The sum itself takes three parts of the page side by side (the instruction of SSE 4.2 has
//! three cycles of latency and one of throughput) and joins them by a table. Pages only: what is
//! shorter, and a processor without the instruction, goes through `block::checksum`. It cannot fail.
//!
//! Measured on an EPYC without AVX-512, 128 KiB of pages in random order out of 512 MiB: 27.4 us by
//! the library page by page, 20.4 with the next page fetched ahead at once, 13.3 so (the memory gives
//! them in 12.1); out of the second-level cache 9.5, 10.1 and 5.7.

use block::PAGE_SIZE;
use block::checksum::Crc32c;

use super::lines::{LINE, prefetch_all};

const PAGE: usize = PAGE_SIZE as usize;
/// Lines of each of the three parts; the page's last line is summed after them.
const PART_LINES: usize = 21;
const PART: usize = PART_LINES * LINE;

const _: () = assert!(3 * PART + LINE == PAGE);

/// Takes a page in. The lines of the one that begins at `next` are fetched meanwhile; it is a hint,
/// any address will do.
#[inline]
pub(super) fn update(running: Crc32c, page: &[u8; PAGE], next: *const u8) -> Crc32c {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has what the function is compiled for.
        return Crc32c::resumed(unsafe { in_three_parts(running.value(), page, next) });
    }
    prefetch_all(next, PAGE);
    running.update(page)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn in_three_parts(value: u32, page: &[u8; PAGE], next: *const u8) -> u32 {
    use core::arch::x86_64::_mm_crc32_u64;
    let word = |at: usize| {
        u64::from_le_bytes(*page[at..].first_chunk().expect("words end where the page ends"))
    };
    let (mut a, mut b, mut c) = (u64::from(!value), 0, 0);
    for line in 0..PART_LINES {
        prefetch_all(next.wrapping_add(3 * line * LINE), 3 * LINE);
        for at in (line * LINE..(line + 1) * LINE).step_by(size_of::<u64>()) {
            a = _mm_crc32_u64(a, word(at));
            b = _mm_crc32_u64(b, word(at + PART));
            c = _mm_crc32_u64(c, word(at + 2 * PART));
        }
    }
    prefetch_all(next.wrapping_add(3 * PART), LINE);
    let joined = after_a_part(a as u32) ^ b as u32;
    let mut sum = u64::from(after_a_part(joined) ^ c as u32);
    for at in (3 * PART..PAGE).step_by(size_of::<u64>()) {
        sum = _mm_crc32_u64(sum, word(at));
    }
    !(sum as u32)
}

/// What a state becomes by a part of zeros: the state is linear in its four bytes.
#[inline]
fn after_a_part(state: u32) -> u32 {
    let bytes = state.to_le_bytes();
    (0..4).fold(0, |sum, byte| sum ^ AFTER_A_PART[byte][usize::from(bytes[byte])])
}

static AFTER_A_PART: [[u32; 256]; 4] = {
    // By the bits of a state: what each alone becomes, a bit of zeros at a time.
    let mut of_bits = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut state: u32 = 1 << bit;
        let mut zeros = 8 * PART;
        while zeros > 0 {
            // Castagnoli's polynomial, the lowest bit first.
            state = state >> 1 ^ if state & 1 == 1 { 0x82f6_3b78 } else { 0 };
            zeros -= 1;
        }
        of_bits[bit] = state;
        bit += 1;
    }
    let mut table = [[0; 256]; 4];
    let mut at = 0;
    while at < 4 * 256 {
        let (byte, value) = (at / 256, at % 256);
        let mut bit = 0;
        while bit < 8 {
            if value >> bit & 1 == 1 {
                table[byte][value] ^= of_bits[8 * byte + bit];
            }
            bit += 1;
        }
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use block::random::Random;

    use super::*;

    #[test]
    fn pages_in_a_row_give_what_the_library_gives() {
        let mut random = Random::new(1);
        let mut ours = Crc32c::new();
        let mut theirs = Crc32c::new();
        for _ in 0..64 {
            let page = core::array::from_fn(|_| random.next_u64() as u8);
            ours = update(ours, &page, page.as_ptr());
            theirs = theirs.update(&page);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn every_bit_of_a_page_counts() {
        let whole = Crc32c::new().update(&[0x5a; PAGE]);
        for bit in 0..8 * PAGE {
            let mut page = [0x5a; PAGE];
            page[bit / 8] ^= 1 << (bit % 8);
            let ours = update(Crc32c::new(), &page, core::ptr::null());
            assert_ne!(ours, whole, "bit {bit}");
            assert_eq!(ours, Crc32c::new().update(&page), "bit {bit}");
        }
    }
}
