//! A hog: who competes with a target for its CPU.
//!
//! One thread spins and counts its loops, until standard input ends or the time is over. Every few
//! milliseconds it notes the monotonic clock and the count, and the JSON has all of these notes: who
//! knows the ends of a client's window ([`crate::report`]) reads off how far the hog got in it.
//! Units: nanoseconds, loops of [`BATCH`] steps. Errors: the CPU cannot be pinned to.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::system;

/// Steps of a loop: some ten microseconds, so that looking at the clock is little of it.
const BATCH: u32 = 10_000;
/// Between two notes, in nanoseconds.
const NOTE_NS: u64 = 5_000_000;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// End after that many seconds, if standard input has not ended before.
    #[arg(long, default_value = "60", value_parser = crate::parse_seconds)]
    seconds: Duration,
    /// Print JSON on one line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Spins, and says how far it got.
pub(crate) fn run(options: &Options) -> Result<Value> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    // It reads until the end and is not waited for: the process ends with the spinning thread.
    std::thread::spawn(move || {
        let mut dropped = [0; 64];
        while std::io::stdin().read(&mut dropped).is_ok_and(|got| got > 0) {}
        told.store(true, Ordering::Release);
    });
    system::pin(options.cpu)?;
    Ok(spin(options.seconds, &stop))
}

/// Spins for `time`, or until it is told to stop.
fn spin(time: Duration, stop: &AtomicBool) -> Value {
    let start = system::monotonic_ns();
    let end = start + time.as_nanos() as u64;
    let (mut loops, mut mixed, mut now) = (0_u64, start | 1, start);
    let mut notes = vec![[start, 0]];
    let mut due = start + NOTE_NS;
    while now < end && !stop.load(Ordering::Acquire) {
        for _ in 0..BATCH {
            mixed ^= mixed << 13;
            mixed ^= mixed >> 7;
            mixed ^= mixed << 17;
        }
        mixed = std::hint::black_box(mixed);
        loops += 1;
        now = system::monotonic_ns();
        if now >= due {
            notes.push([now, loops]);
            due = now + NOTE_NS;
        }
    }
    notes.push([now, loops]);
    let seconds = (now - start) as f64 / 1e9;
    json!({
        "loops": loops, "seconds": seconds, "loops_per_second": loops as f64 / seconds,
        "notes": notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_go_up_and_end_with_all_loops() {
        let value = spin(Duration::from_millis(30), &AtomicBool::new(false));
        let notes: Vec<[u64; 2]> = serde_json::from_value(value["notes"].clone()).expect("pairs");
        assert!(notes.windows(2).all(|two| two[0][0] <= two[1][0] && two[0][1] <= two[1][1]));
        assert_eq!(notes.last().map(|last| last[1]), value["loops"].as_u64());
        assert!(value["loops"].as_u64() > Some(0));
    }

    #[test]
    fn a_hog_that_is_told_to_stop_stops() {
        let value = spin(Duration::from_secs(3600), &AtomicBool::new(true));
        assert_eq!(value["loops"], 0);
    }
}
