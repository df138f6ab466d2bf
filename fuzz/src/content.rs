//! What disks hold and what hosts write: bytes that say where they belong, so that whoever gets
//! another's notices.
//!
//! Nothing is stored: a disk reads as the pattern of its place, and a write must bring the pattern
//! of written data for its place, or in a copy what the disks hold at another one.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use block::{Buffer, Completion, Extent, Failure, Memory, Operation, Outcome, Random, Request};
use testkit::Pages;

/// Which of the two patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// What a disk holds.
    Held,
    /// What hosts write.
    Written,
}

/// Bytes of each disk.
pub const SIZE: u64 = 2 << 20;
/// Disks that have a pattern.
const DISKS: usize = 4;

/// Fills `bytes` with the pattern of disk `disk` from `offset` on.
pub fn fill(pattern: Pattern, disk: u32, offset: u64, bytes: &mut [u8]) {
    // Made once: computing them each time, under coverage, was most of a run.
    static TABLES: [[OnceLock<Vec<u8>>; DISKS]; 2] =
        [const { [const { OnceLock::new() }; DISKS] }; 2];
    let table = TABLES[pattern as usize][disk as usize].get_or_init(|| {
        let mut random = Random::new(u64::from(disk) << 1 | pattern as u64);
        (0..SIZE / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
    });
    // What lies beyond the end is asked for, too, and never seen.
    let from = (offset % SIZE) as usize;
    bytes.copy_from_slice(&table[from..from + bytes.len()]);
}

/// What a disk answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// What is right.
    Honest,
    /// This failure, nothing done.
    NotDone(Failure),
    /// This failure, and nobody knows.
    Unknown(Failure),
}

/// Outcomes to choose from; mostly the right one.
pub const WISHES: [Wish; 8] = [
    Wish::Honest,
    Wish::Honest,
    Wish::Honest,
    Wish::NotDone(Failure::MediumRead),
    Wish::NotDone(Failure::MediumWrite),
    Wish::NotDone(Failure::NotReady),
    Wish::NotDone(Failure::Internal),
    Wish::Unknown(Failure::TimedOut),
];

/// Answers a request to disk `disk`, of `size` bytes. With `strict` what is written must be what
/// hosts write.
pub fn carry_out(
    disk: u32,
    size: u64,
    mut request: Request,
    wish: Wish,
    lease: bool,
    strict: bool,
    memory: &mut Pages,
) -> Completion {
    let operation = &mut request.operation;
    if let Some(extent) = operation.extent() {
        assert!(extent.fits(block::ByteCount(size)), "{extent} of a disk of {size} bytes");
        assert!(extent.length.0 > 0, "an empty {}", operation.name());
    }
    let written = |extent: &Extent, buffer: &Buffer, memory: &Pages| {
        check_place(extent, buffer);
        let bytes = memory.bytes(buffer);
        if strict && !is_copied(disk, extent.offset.0, &bytes) {
            expect(Pattern::Written, disk, extent.offset.0, &bytes);
        }
    };
    let mut outcome = match wish {
        Wish::Honest => Outcome::Done,
        Wish::NotDone(failure) => Outcome::NotDone(failure),
        Wish::Unknown(failure) => Outcome::Unknown(failure),
    };
    match operation {
        Operation::Read { extent, buffer } => {
            check_place(extent, buffer);
            let mut bytes = vec![0; buffer.len() as usize];
            fill(Pattern::Held, disk, extent.offset.0, &mut bytes);
            if !outcome.is_done() {
                memory.materialize(buffer);
            } else if lease {
                memory.lease(buffer, &bytes);
            } else {
                memory.write(buffer, 0, &bytes);
            }
        }
        Operation::Write { extent, buffer, .. } => {
            written(extent, buffer, memory);
            if lease {
                memory.keep_pages(buffer);
            }
        }
        Operation::Compare { extent, buffer } => {
            check_place(extent, buffer);
            if outcome.is_done() {
                outcome = compare(disk, extent, buffer, memory);
            }
        }
        Operation::CompareAndWrite { extent, expected, replacement, .. } => {
            check_place(extent, expected);
            written(extent, replacement, memory);
            if outcome.is_done() {
                outcome = compare(disk, extent, expected, memory);
            }
        }
        Operation::Discard { extents } => {
            for extent in extents {
                assert!(extent.fits(block::ByteCount(size)), "discards {extent} of {size} bytes");
            }
        }
        Operation::WriteZeroes { .. } | Operation::Verify { .. } | Operation::Flush => {}
        // None of the patterns is a hole.
        Operation::Seek { sought, .. } => outcome = sought.in_data(),
    }
    request.complete(outcome)
}

fn check_place(extent: &Extent, buffer: &Buffer) {
    assert_eq!(extent.length.0, u64::from(buffer.len()), "a payload of another length");
    assert_eq!(extent.offset.0 % 4096, u64::from(buffer.phase()), "a payload of another phase");
}

fn compare(disk: u32, extent: &Extent, buffer: &Buffer, memory: &Pages) -> Outcome {
    let mut ours = vec![0; buffer.len() as usize];
    fill(Pattern::Held, disk, extent.offset.0, &mut ours);
    match first_difference(&ours, &memory.bytes(buffer)) {
        None => Outcome::Done,
        Some(at) => Outcome::Miscompare(at as u32),
    }
}

/// Whether bytes that are written there are what disks hold, each block of them at another place.
fn is_copied(disk: u32, offset: u64, bytes: &[u8]) -> bool {
    // The places of all blocks, by how they begin.
    static PLACES: OnceLock<BTreeMap<[u8; 8], (u32, u64)>> = OnceLock::new();
    let places = || {
        let all =
            (0..DISKS as u32).flat_map(|disk| (0..SIZE).step_by(512).map(move |at| (disk, at)));
        all.map(|(disk, at)| (beginning(Pattern::Held, disk, at), (disk, at))).collect()
    };
    if bytes.len() < 512 || bytes[..8] == beginning(Pattern::Written, disk, offset) {
        return false;
    }
    (offset..).step_by(512).zip(bytes.chunks(512)).all(|(at, block)| {
        let first = block.first_chunk::<8>();
        let Some(place) = first.and_then(|first| PLACES.get_or_init(places).get(first)) else {
            return false;
        };
        let mut held = vec![0; block.len()];
        fill(Pattern::Held, place.0, place.1, &mut held);
        *place != (disk, at) && held == block
    })
}

/// How a block of a pattern begins.
fn beginning(pattern: Pattern, disk: u32, offset: u64) -> [u8; 8] {
    let mut first = [0; 8];
    fill(pattern, disk, offset, &mut first);
    first
}

/// Panics with the place where `bytes` are not the pattern.
pub fn expect(pattern: Pattern, disk: u32, offset: u64, bytes: &[u8]) {
    let mut right = vec![0; bytes.len()];
    fill(pattern, disk, offset, &mut right);
    let wrong = first_difference(bytes, &right);
    assert_eq!(wrong, None, "{pattern:?} data of disk {disk} from byte {offset} on differ there");
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b { None } else { a.iter().zip(b).position(|(a, b)| a != b) }
}
