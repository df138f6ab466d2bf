//! Is a disk blank? Reads its first and its last MiB and looks for a byte that is not zero.
//!
//! A disk that cannot be read there counts as one that holds data: what cannot be seen must not be
//! overwritten.

use block::{Account, Buffer, Extent, Instant, Operation, Outcome};

use crate::guest::{Desk, Guest, Phase, Place};

/// Bytes that are looked at, at either end.
const REACH: u64 = 1 << 20;
/// Bytes of one look: small enough for the smallest pool.
const LOOK: u64 = 128 << 10;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Zeros at both ends.
    Blank,
    /// Data, at this byte.
    Data(u64),
    /// It could not be read from this byte on.
    Unreadable(u64, Outcome),
}

/// Looks at both ends of a volume.
#[derive(Debug)]
pub struct Probe {
    place: Place,
    size: u64,
    /// Where the next look begins.
    at: u64,
    account: Account,
    asked: bool,
    verdict: Option<Verdict>,
}

impl Probe {
    /// A look at the volume `place` of `size` bytes, a multiple of 512.
    pub fn new(place: Place, size: u64) -> Probe {
        Probe { place, size, at: 0, account: Account::default(), asked: false, verdict: None }
    }

    /// What was found, once done.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Bytes of the look at `self.at`: never across the gap in the middle.
    fn length(&self) -> u64 {
        LOOK.min(self.size - self.at)
    }
}

impl Guest for Probe {
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        _slot: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        self.asked = false;
        let length = self.length();
        if outcome.is_done() {
            let mut bytes = vec![0; length as usize];
            desk.memory().read(&buffer, 0, &mut bytes);
            let data = bytes.iter().position(|byte| *byte != 0);
            self.verdict = data.map(|at| Verdict::Data(self.at + at as u64));
        } else {
            self.verdict = Some(Verdict::Unreadable(self.at, outcome));
        }
        desk.give(&mut self.account, buffer);
        self.at += length;
        let last = self.size.saturating_sub(REACH);
        if self.at >= REACH && self.at < last {
            // Block sizes are powers of two up to 4096: begin the last part at such an edge.
            self.at = last - last % 4096;
        }
        if self.at >= self.size && self.verdict.is_none() {
            self.verdict = Some(Verdict::Blank);
        }
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        if self.size == 0 {
            self.verdict.get_or_insert(Verdict::Blank);
        }
        if self.asked || self.verdict.is_some() {
            return;
        }
        let phase = (self.at % 4096) as u32;
        let length = self.length();
        let Some(buffer) = desk.take(&mut self.account, length as u32, phase) else { return };
        self.asked = true;
        let extent = Extent::new(self.at, length);
        desk.submit(self.place, 0, Operation::Read { extent, buffer });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn phase(&self) -> Phase {
        match self.verdict {
            Some(_) if !self.asked => Phase::Done,
            _ => Phase::Measuring,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Bench;

    fn verdict(size: usize, data: &[usize]) -> Option<Verdict> {
        let mut bench = Bench::new(&[size]);
        for at in data {
            bench.volumes[0][*at] = 1;
        }
        let probe = Probe::new(Place(0), size as u64);
        bench.run(probe).verdict()
    }

    #[test]
    fn data_at_either_end_are_found() {
        let size = 5 << 20;
        assert_eq!(verdict(size, &[]), Some(Verdict::Blank));
        assert_eq!(verdict(size, &[0]), Some(Verdict::Data(0)));
        assert_eq!(verdict(size, &[(1 << 20) - 1]), Some(Verdict::Data((1 << 20) - 1)));
        assert_eq!(verdict(size, &[size - 1]), Some(Verdict::Data(size as u64 - 1)));
        assert_eq!(verdict(size, &[size - (1 << 20)]), Some(Verdict::Data((4 << 20) as u64)));
        assert_eq!(verdict(size, &[2 << 20]), Some(Verdict::Blank));
    }

    #[test]
    fn small_disks_are_looked_at_whole() {
        assert_eq!(verdict(0, &[]), Some(Verdict::Blank));
        for size in [512, 4096, 1 << 20, (2 << 20) + 512] {
            assert_eq!(verdict(size, &[]), Some(Verdict::Blank));
            assert_eq!(verdict(size, &[size - 1]), Some(Verdict::Data(size as u64 - 1)));
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_blank_disk() {
        let mut bench = Bench::new(&[1 << 20]);
        bench.fail_at = Some(0);
        let probe = bench.run(Probe::new(Place(0), 1 << 20));
        assert!(matches!(probe.verdict(), Some(Verdict::Unreadable(0, _))));
    }
}
