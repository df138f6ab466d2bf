//! An external merge sort, after TPIE's: what is sorted is larger than the memory it is sorted in, so it goes to storage
//! and back once more.
//!
//! ```text
//!   input --a part at a time--> sorted in memory --> runs --a piece of each--> merged --> output
//! ```
//! Items have 64 bytes, of which the first eight are the key, in the order of its bytes; the rest follows from the key,
//! so that an item that is not whole is found. In: items of a seed, in any order; pieces of runs. Out: the same items in
//! order, and whether they are ([`Judge`]). What deliberately does not live here: files and clocks. Units: bytes.
//! Errors: the first item that is wrong, and what is missing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of an item, and of its key.
pub const ITEM_BYTES: usize = 64;
const KEY_BYTES: usize = 8;
/// What a size is a multiple of.
pub const UNIT_BYTES: u64 = 1 << 20;
/// The least that is sorted.
pub const BYTES_MIN: u64 = RUNS * UNIT_BYTES;
/// How many times the memory there is to sort: so many runs are merged at once.
pub const RUNS: u64 = 8;
/// Bytes that are read or written at once.
pub const PIECE_BYTES: usize = 256 << 10;
/// Each byte is read twice, and written twice.
pub const PASSES: u64 = 4;

type Key = [u8; KEY_BYTES];

/// Bytes that are sorted in memory, of so many: an eighth, of whole units, so that there are no more runs.
pub fn memory_bytes(size: u64) -> u64 {
    size.div_ceil(RUNS).next_multiple_of(UNIT_BYTES)
}

/// Fills memory of whole items with those that the input has from this place on.
pub fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    let first = offset / ITEM_BYTES as u64;
    for (number, item) in (first..).zip(bytes.chunks_exact_mut(ITEM_BYTES)) {
        make(mixed(seed ^ mixed(number)).to_be_bytes(), item);
    }
}

/// Writes the item of a key.
fn make(key: Key, item: &mut [u8]) {
    let (front, rest) = item.split_at_mut(KEY_BYTES);
    front.copy_from_slice(&key);
    let mut word = u64::from_be_bytes(key);
    for part in rest.chunks_exact_mut(8) {
        word = mixed(word);
        part.copy_from_slice(&word.to_le_bytes());
    }
}

/// Another number for each (Stafford's mix 13).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn key_of(item: &[u8]) -> Key {
    item[..KEY_BYTES].try_into().expect("an item has a key")
}

/// Sorts memory of whole items.
pub fn sort(bytes: &mut [u8]) {
    let (items, _) = bytes.as_chunks_mut::<ITEM_BYTES>();
    items.sort_unstable_by_key(|item| key_of(item));
}

/// Merges runs.
#[derive(Debug)]
pub struct Merge {
    runs: Vec<Run>,
    /// The next item of each run that has one, by its key.
    heap: BinaryHeap<Reverse<(Key, usize)>>,
}

#[derive(Debug, Default)]
struct Run {
    piece: Vec<u8>,
    /// How much of it was taken.
    at: usize,
    /// Bytes of the run behind the piece.
    left: u64,
}

/// What a merge waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes of this run, at most so many.
    Needs { run: usize, bytes: usize },
    /// That what it put out is taken away.
    Full,
    /// Nothing: all is put out.
    Over,
}

impl Run {
    /// Its next bytes, if its piece was taken whole and there are more.
    fn needs(&self, run: usize) -> Option<Step> {
        let bytes = self.left.min(PIECE_BYTES as u64) as usize;
        (self.at == self.piece.len() && bytes > 0).then_some(Step::Needs { run, bytes })
    }
}

impl Merge {
    /// Of runs of such lengths.
    pub fn new(lengths: impl IntoIterator<Item = u64>) -> Merge {
        let runs = lengths.into_iter().map(|left| Run { left, ..Run::default() }).collect();
        Merge { runs, heap: BinaryHeap::new() }
    }

    /// Puts items out, until there are so many bytes of them, or a run's next bytes are needed.
    pub fn step(&mut self, out: &mut Vec<u8>, full: usize) -> Step {
        let needed = (0..).zip(&self.runs).find_map(|(number, run)| run.needs(number));
        if let Some(needed) = needed {
            return needed;
        }
        while out.len() < full {
            let Some(Reverse((_, number))) = self.heap.pop() else { return Step::Over };
            let run = &mut self.runs[number];
            out.extend_from_slice(&run.piece[run.at..run.at + ITEM_BYTES]);
            run.at += ITEM_BYTES;
            if let Some(item) = run.piece.get(run.at..run.at + ITEM_BYTES) {
                self.heap.push(Reverse((key_of(item), number)));
            } else if let Some(needed) = run.needs(number) {
                return needed;
            }
        }
        Step::Full
    }

    /// The memory for a run's next bytes: that of those that were taken.
    pub fn memory(&mut self, run: usize) -> Vec<u8> {
        core::mem::take(&mut self.runs[run].piece)
    }

    /// A run's next bytes, as many as were needed.
    pub fn give(&mut self, number: usize, piece: Vec<u8>) {
        let run = &mut self.runs[number];
        run.left -= piece.len() as u64;
        (run.piece, run.at) = (piece, 0);
        self.heap.push(Reverse((key_of(&run.piece), number)));
    }
}

/// Judges what is to be the items of a seed in order.
#[derive(Debug, Default)]
pub struct Judge {
    last: Key,
    bytes: u64,
    sum: u64,
}

impl Judge {
    /// The next whole items.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut whole = [0; ITEM_BYTES];
        for item in bytes.chunks_exact(ITEM_BYTES) {
            let key = key_of(item);
            make(key, &mut whole);
            let wrong = if *item != whole {
                "an item as it was made"
            } else if key < self.last {
                "items in order"
            } else {
                (self.last, self.sum) = (key, self.added(key));
                self.bytes += ITEM_BYTES as u64;
                continue;
            };
            return Err(format!("expected {wrong}, seen another at byte {}", self.bytes));
        }
        Ok(())
    }

    fn added(&self, key: Key) -> u64 {
        self.sum.wrapping_add(mixed(u64::from_be_bytes(key)))
    }

    /// Whether all were there, each once.
    pub fn end(&self, seed: u64, size: u64) -> Result<(), String> {
        if self.bytes != size {
            return Err(format!("expected {size} bytes of items, seen {}", self.bytes));
        }
        let mut made = [0; ITEM_BYTES];
        let mut all = Judge::default();
        for offset in (0..size).step_by(ITEM_BYTES) {
            fill(seed, offset, &mut made);
            all.sum = all.added(key_of(&made));
        }
        if all.sum == self.sum {
            Ok(())
        } else {
            Err("expected each item once, seen others".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 3 * PIECE_BYTES as u64 + 5 * ITEM_BYTES as u64;

    /// The items of a seed, sorted in runs of so many bytes, which are merged with so much put out at once.
    fn sorted(run_bytes: usize, full: usize) -> Vec<u8> {
        let mut runs = vec![0; SIZE as usize];
        fill(7, 0, &mut runs);
        runs.chunks_mut(run_bytes).for_each(sort);
        let runs: Vec<&[u8]> = runs.chunks(run_bytes).collect();
        let mut merge = Merge::new(runs.iter().map(|run| run.len() as u64));
        let mut at = vec![0; runs.len()];
        let (mut all, mut out) = (Vec::new(), Vec::new());
        loop {
            match merge.step(&mut out, full) {
                Step::Needs { run, bytes } => {
                    let mut memory = merge.memory(run);
                    memory.clear();
                    memory.extend_from_slice(&runs[run][at[run]..][..bytes]);
                    at[run] += bytes;
                    merge.give(run, memory);
                }
                Step::Full => all.append(&mut out),
                Step::Over => break,
            }
        }
        all.append(&mut out);
        all
    }

    fn judged(bytes: &[u8]) -> Result<(), String> {
        let mut judge = Judge::default();
        judge.take(bytes)?;
        judge.end(7, SIZE)
    }

    #[test]
    fn runs_of_any_length_are_merged_in_order() {
        let mut at_once = vec![0; SIZE as usize];
        fill(7, 0, &mut at_once);
        assert!(judged(&at_once).unwrap_err().starts_with("expected items in order"));
        sort(&mut at_once);
        judged(&at_once).unwrap();
        for run in [ITEM_BYTES, 31 * ITEM_BYTES, PIECE_BYTES, 2 * PIECE_BYTES, SIZE as usize] {
            for full in [ITEM_BYTES, PIECE_BYTES] {
                assert!(sorted(run, full) == at_once, "{run} {full}");
            }
        }
    }

    #[test]
    fn the_input_is_the_same_in_whatever_parts_it_is_made() {
        let mut whole = [0; 16 * ITEM_BYTES];
        fill(7, 0, &mut whole);
        let mut part = [0; 4 * ITEM_BYTES];
        fill(7, 8 * ITEM_BYTES as u64, &mut part);
        assert_eq!(whole[8 * ITEM_BYTES..12 * ITEM_BYTES], part);
        fill(8, 0, &mut part);
        assert_ne!(whole[..4 * ITEM_BYTES], part);
    }

    #[test]
    fn what_is_wrong_with_the_output_is_told() {
        let good = sorted(PIECE_BYTES, PIECE_BYTES);
        let mut torn = good.clone();
        torn[70] ^= 1;
        assert_eq!(
            judged(&torn).unwrap_err(),
            "expected an item as it was made, seen another at byte 64"
        );
        assert!(judged(&good[ITEM_BYTES..]).unwrap_err().contains("bytes of items, seen"));
        // One twice and another never.
        let mut twice = good;
        twice.copy_within(..ITEM_BYTES, ITEM_BYTES);
        assert_eq!(judged(&twice).unwrap_err(), "expected each item once, seen others");
    }

    #[test]
    fn memory_is_an_eighth_and_of_whole_units() {
        assert_eq!(memory_bytes(BYTES_MIN), UNIT_BYTES);
        assert_eq!(memory_bytes(100 << 20), 13 << 20);
        assert!((100_u64 << 20).div_ceil(memory_bytes(100 << 20)) <= RUNS);
    }
}
