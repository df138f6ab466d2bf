//! The trace of a run: a hash over everything that happened, and, when asked for, its lines.

use block::Instant;

/// What happened, in order.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    steps: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// An empty trace that keeps its lines if `keep_lines`.
    pub fn new(keep_lines: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, steps: 0, lines: keep_lines.then(Vec::new) }
    }

    /// Notes that `what` happened, with its numbers.
    pub fn note(&mut self, now: Instant, what: &'static str, numbers: &[u64]) {
        self.steps += 1;
        self.mix(now.0);
        for byte in what.bytes() {
            self.mix(u64::from(byte));
        }
        for number in numbers {
            self.mix(*number);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {what} {numbers:?}", now.0 as f64 / 1e9));
        }
    }

    /// Notes bytes that were carried.
    pub fn note_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// The hash of all that happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How much happened.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The lines, if they were kept.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
