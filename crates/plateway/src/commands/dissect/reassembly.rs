//! One direction of a TCP connection put in order: repeated bytes are dropped, early ones are kept
//! for a while, and what never came is a gap.
//!
//! Sequence numbers wrap at 2^32, so distances are taken modulo that (RFC 9293, 3.4). At most
//! [`EARLY_MAX`] bytes wait for what is before them; then the first of them is gone on with and the
//! hole is told.

use std::collections::VecDeque;

use super::layers::Segment;

/// Bytes that may wait for earlier ones.
const EARLY_MAX: usize = 4 << 20;
/// Segments that may wait.
const EARLY_SEGMENTS_MAX: usize = 4096;

/// What a segment brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// The next bytes of the stream; so many more follow that were sent and not captured.
    Bytes(Vec<u8>, usize),
    /// So many bytes were lost to the capture, before what comes next.
    Gap(u32),
}

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// The next byte's number; unknown before the first segment.
    next: Option<u32>,
    /// Segments ahead of it, in order of arrival: number, bytes, bytes that were not captured.
    early: VecDeque<(u32, Vec<u8>, usize)>,
    early_bytes: usize,
}

impl Direction {
    pub(super) fn segment(&mut self, segment: &Segment<'_>) -> Vec<Given> {
        let &Segment { sequence, payload, missing, .. } = segment;
        let mut given = Vec::new();
        if segment.syn {
            self.next = Some(sequence.wrapping_add(1));
            self.early.clear();
            self.early_bytes = 0;
            return given;
        }
        if payload.len() + missing == 0 {
            return given;
        }
        let next = *self.next.get_or_insert(sequence);
        if ahead(sequence, next) > 0 {
            self.early_bytes += payload.len();
            self.early.push_back((sequence, payload.to_vec(), missing));
        } else {
            self.take(sequence, payload, missing, &mut given);
        }
        self.catch_up(&mut given);
        while self.early_bytes > EARLY_MAX || self.early.len() > EARLY_SEGMENTS_MAX {
            self.jump(&mut given);
            self.catch_up(&mut given);
        }
        given
    }

    /// Takes what is new of a segment that begins at or before the next byte.
    fn take(&mut self, sequence: u32, payload: &[u8], missing: usize, given: &mut Vec<Given>) {
        let next = self.next.unwrap_or(sequence);
        let old = next.wrapping_sub(sequence) as usize;
        let length = payload.len() + missing;
        if old >= length {
            return;
        }
        self.next = Some(sequence.wrapping_add(length as u32));
        let fresh = payload.get(old..).unwrap_or_default();
        let missing = length - old - fresh.len();
        given.push(Given::Bytes(fresh.to_vec(), missing));
    }

    /// Takes what waited and is next now.
    fn catch_up(&mut self, given: &mut Vec<Given>) {
        let Some(mut next) = self.next else { return };
        while let Some(at) =
            self.early.iter().position(|(sequence, ..)| ahead(*sequence, next) <= 0)
        {
            let Some((sequence, bytes, missing)) = self.early.remove(at) else { return };
            self.early_bytes -= bytes.len();
            self.take(sequence, &bytes, missing, given);
            next = self.next.unwrap_or(next);
        }
    }

    /// Gives the hole up and goes on behind it.
    fn jump(&mut self, given: &mut Vec<Given>) {
        let Some(next) = self.next else { return };
        let first = self.early.iter().map(|(sequence, ..)| *sequence);
        let Some(first) = first.min_by_key(|sequence| ahead(*sequence, next)) else { return };
        given.push(Given::Gap(first.wrapping_sub(next)));
        self.next = Some(first);
    }
}

/// How far `sequence` is ahead of `next`; negative behind it.
fn ahead(sequence: u32, next: u32) -> i32 {
    sequence.wrapping_sub(next) as i32
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn segment(sequence: u32, payload: &[u8], missing: usize) -> Segment<'_> {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let (source, destination) = (nobody, nobody);
        Segment { source, destination, sequence, syn: false, rst: false, payload, missing }
    }

    fn stream(direction: &mut Direction, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sequence, payload) in segments {
            for given in direction.segment(&segment(*sequence, payload, 0)) {
                match given {
                    Given::Bytes(more, 0) => bytes.extend(more),
                    other => panic!("{other:?}"),
                }
            }
        }
        bytes
    }

    fn begun(sequence: u32) -> Direction {
        let mut direction = Direction::default();
        let begins = Segment { syn: true, ..segment(sequence, &[], 0) };
        assert!(direction.segment(&begins).is_empty());
        direction
    }

    #[test]
    fn segments_are_put_in_order_and_repeats_are_dropped() {
        let mut direction = begun(99);
        let segments: [(u32, &[u8]); 5] =
            [(103, b"def"), (100, b"abc"), (100, b"abcdef"), (105, b"fgh"), (108, b"i")];
        assert_eq!(stream(&mut direction, &segments), b"abcdefghi");
    }

    #[test]
    fn numbers_wrap() {
        let mut direction = begun(u32::MAX - 2);
        let segments: [(u32, &[u8]); 3] = [(1, b"de"), (u32::MAX - 1, b"ab"), (0, b"c")];
        assert_eq!(stream(&mut direction, &segments), b"abcde");
    }

    #[test]
    fn what_was_cut_off_by_the_capture_is_counted() {
        let mut direction = begun(0);
        let given = direction.segment(&segment(1, b"abc", 7));
        assert_eq!(given, [Given::Bytes(b"abc".to_vec(), 7)]);
        assert_eq!(stream(&mut direction, &[(11, b"x")]), b"x");
    }

    #[test]
    fn a_hole_is_given_up_after_a_while() {
        let mut direction = begun(0);
        let piece = vec![7; 1 << 20];
        let mut seen = Vec::new();
        for index in 0..5u32 {
            seen.extend(direction.segment(&segment(1001 + (index << 20), &piece, 0)));
        }
        assert_eq!(seen[0], Given::Gap(1000));
        assert_eq!(seen.len(), 6);
    }
}
