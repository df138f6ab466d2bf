//! Who looks at one interface and notes when frames of a kind came there, and when none did.
//!
//! A packet ring on the interface, of which the kernel stamps each frame: so what is noted does not
//! depend on when this process ran. In: the kind of frames, a time. Out: JSON with the first and the
//! last frame of the kind, and the silences between two of at least `--least-ms`; nanoseconds of the
//! clock of the day (CLOCK_REALTIME), so that other processes can be compared. Frames that the host
//! sends are not seen, only those that come. Specs: RFC 3032 for labels, RFC 4385 for the first
//! nibble behind them, AoE 11 for the flag of an answer.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::packet::{Packet, Receive};

/// Frames that the ring holds: those of some hundredths of a second, if nobody looks meanwhile.
const FRAMES: usize = 4096;
/// As many silences are told.
const SILENCES_MAX: usize = 4096;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Interface to look at.
    #[arg(long)]
    interface: String,
    /// Which frames.
    #[arg(long)]
    of: Kind,
    /// Silences that are told last so long.
    #[arg(long, default_value_t = 5)]
    least_ms: u64,
    /// How long to look.
    #[arg(long, value_parser = crate::parse_seconds)]
    seconds: Duration,
    /// Print JSON on one line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Answers of AoE targets.
    AoeAnswers,
    /// Customers' frames in pseudowires with a control word; not what the ends tell each other.
    Pseudowire,
}

impl Kind {
    fn ether_type(self) -> u16 {
        match self {
            Self::AoeAnswers => 0x88a2,
            Self::Pseudowire => 0x8847,
        }
    }

    /// Whether a frame of the EtherType is meant.
    fn has(self, frame: &[u8]) -> bool {
        const PAYLOAD_AT: usize = 14;
        let payload = frame.get(PAYLOAD_AT..).unwrap_or_default();
        match self {
            Self::AoeAnswers => payload.first().is_some_and(|first| first & 0x08 != 0),
            Self::Pseudowire => {
                let mut entries = payload.chunks_exact(4);
                let bottom = entries.by_ref().find(|entry| entry[2] & 1 != 0);
                // 1 is the associated channel.
                bottom.is_some() && entries.next().is_some_and(|word| word[0] >> 4 == 0)
            }
        }
    }
}

/// Looks for the time, and tells what came.
pub(crate) fn run(options: &Options) -> Result<Value> {
    let mut packet =
        Packet::open(&options.interface, options.of.ether_type(), Receive::Ring(FRAMES))?;
    let end = Instant::now() + options.seconds;
    let mut seen = Seen::default();
    loop {
        while let Some(frame) = packet.front() {
            if options.of.has(frame)
                && let Some(at) = packet.front_time_ns()
            {
                seen.take(at, options.least_ms * 1_000_000);
            }
            packet.release();
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        packet.wait(Some(left))?;
    }
    Ok(json!({
        "frames": seen.frames, "first_ns": seen.first, "last_ns": seen.last,
        "silences_ns": seen.silences, "dropped": packet.dropped(),
    }))
}

/// What came so far.
#[derive(Default)]
struct Seen {
    frames: u64,
    first: Option<u64>,
    last: Option<u64>,
    silences: Vec<[u64; 2]>,
}

impl Seen {
    fn take(&mut self, at: u64, least: u64) {
        self.frames += 1;
        self.first.get_or_insert(at);
        let last = self.last.replace(at).unwrap_or(at);
        if at.saturating_sub(last) >= least && self.silences.len() < SILENCES_MAX {
            self.silences.push([last, at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &ether_type.to_be_bytes(), payload].concat()
    }

    #[test]
    fn a_pseudowire_s_frames_are_told_from_its_channel_and_answers_from_questions() {
        let stack = [0, 1, 0, 64, 0, 2, 1, 64];
        let has =
            |word: [u8; 4]| Kind::Pseudowire.has(&frame(0x8847, &[&stack[..], &word].concat()));
        assert!(has([0, 0, 0, 7]) && !has([0x10, 0, 0, 7]));
        assert!(!Kind::Pseudowire.has(&frame(0x8847, &stack)), "nothing is behind the labels");
        let answers = |first| Kind::AoeAnswers.has(&frame(0x88a2, &[first, 0]));
        assert!(answers(0x18) && !answers(0x10) && !Kind::AoeAnswers.has(&[0; 14]));
    }

    #[test]
    fn silences_are_those_between_two_frames_that_last_long_enough() {
        let mut seen = Seen::default();
        [100, 104, 109, 120].into_iter().for_each(|at| seen.take(at, 5));
        assert_eq!(seen.silences, [[104, 109], [109, 120]]);
        assert_eq!((seen.frames, seen.first, seen.last), (4, Some(100), Some(120)));
    }
}
