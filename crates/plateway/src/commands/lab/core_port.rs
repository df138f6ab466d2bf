//! What the near end's router sent to the core during a trial, millisecond by millisecond, as the router counts it for
//! whoever asks (`plateway route bins`).
//!
//! A thread asks for one stretch after the other for as long as the load runs; between two of them some milliseconds
//! are not counted. Of those that were, the ones that lie in the windows of a trial tell how uneven the flow was: the
//! variance of their bytes by their mean, in bytes, which a flow of even milliseconds has none of; and how many frames
//! waited for the port at most. Units: seconds since 1970, bytes, frames. Errors: what the router answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use super::agent::unix_now;
use crate::control::Client;

/// How much is counted at a time.
const STRETCH_MS: u64 = 500;
/// Of fewer milliseconds a variance says little.
const MILLISECONDS_MIN: usize = 100;

/// Counts until it is ended.
pub(super) struct Recorder {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Stretch>, String>>>,
}

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Core(Vec<Stretch>);

#[derive(Debug)]
struct Stretch {
    began: f64,
    /// Of each millisecond from then on.
    bytes: Vec<u32>,
    queued: Vec<u32>,
}

impl Recorder {
    /// Counts what leaves by a port of the router whose control socket this is.
    pub(super) fn start(control: &Path, port: &'static str) -> Recorder {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, control) = (is_over.clone(), control.to_owned());
        let thread = std::thread::spawn(move || record(&control, port, &ends));
        Recorder { is_over, thread: Some(thread) }
    }

    /// What was counted, the stretch that runs included.
    pub(super) fn end(mut self) -> miette::Result<Core> {
        self.is_over.store(true, Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        let counted = thread.join().expect("it does not panic");
        let tell = |why| miette::miette!("what the first router sent was not counted: {why}");
        counted.map(Core).map_err(tell)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Where something failed nobody waits for it.
        self.is_over.store(true, Relaxed);
    }
}

fn record(control: &Path, port: &str, is_over: &AtomicBool) -> Result<Vec<Stretch>, String> {
    let client = Client::new(control);
    let mut stretches = Vec::new();
    while !is_over.load(Relaxed) {
        let began = unix_now();
        let bins = client.bins(port, STRETCH_MS).map_err(|error| error.to_string())?;
        stretches.push(Stretch { began, bytes: bins.bytes, queued: bins.queued });
    }
    Ok(stretches)
}

impl Core {
    /// Burstiness and peak queue between two moments; none where nothing was sent, or too little was counted.
    pub(super) fn between(&self, from: f64, to: f64) -> Option<(f64, u32)> {
        let mut bytes = Vec::new();
        let mut queued = 0;
        for stretch in &self.0 {
            let all = stretch.bytes.iter().zip(&stretch.queued).enumerate();
            let is_within = |at: usize| (from..to).contains(&(stretch.began + at as f64 / 1e3));
            for (_, (its, waited)) in all.filter(|(at, _)| is_within(*at)) {
                bytes.push(f64::from(*its));
                queued = queued.max(*waited);
            }
        }
        let count = bytes.len() as f64;
        let mean = bytes.iter().sum::<f64>() / count;
        let variance = bytes.iter().map(|its| (its - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let is_told = bytes.len() >= MILLISECONDS_MIN && mean > 0.0;
        is_told.then(|| (variance / mean, queued))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of a flow, in stretches of which the second begins later.
    fn core(bytes: impl Fn(usize) -> u32) -> Core {
        let stretch = |began: f64, first: usize| Stretch {
            began,
            bytes: (first..first + 200).map(&bytes).collect(),
            queued: (first..first + 200).map(|at| at as u32 % 7).collect(),
        };
        Core(vec![stretch(100.0, 0), stretch(100.205, 200)])
    }

    #[test]
    fn a_flow_in_bursts_is_as_bursty_as_a_burst_is_large() {
        let told = |core: &Core| core.between(100.0, 101.0).expect("400 milliseconds");
        assert_eq!(told(&core(|_| 12_500)), (0.0, 6));
        // All of four milliseconds in one: the variance is 3 times the mean squared.
        let (bursts, _) = told(&core(|at| if at % 4 == 0 { 50_000 } else { 0 }));
        assert!((bursts / (3.0 * 12_500.0) - 1.0).abs() < 0.01, "{bursts}");
        let (twice, _) = told(&core(|at| if at % 8 == 0 { 100_000 } else { 0 }));
        assert!(twice > 2.0 * bursts, "{twice} {bursts}");
    }

    #[test]
    fn what_lies_without_the_windows_says_nothing() {
        let it = core(|at| if at < 250 { 1_000 } else { 90_000 });
        let (within, _) = it.between(100.0, 100.25).expect("245 milliseconds");
        assert_eq!(within, 0.0);
        assert!(it.between(100.0, 100.3).expect("more of them").0 > 10_000.0);
        assert_eq!(it.between(100.0, 100.099), None, "too few");
        assert_eq!(it.between(200.0, 300.0), None, "none at all");
        assert_eq!(core(|_| 0).between(100.0, 101.0), None, "nothing was sent");
    }
}
