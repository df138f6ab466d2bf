//! The latencies of the last windows, kept apart while a load goes on.
//!
//! Units: nanoseconds. The present window counts for nothing until the next one begins.

use hdrhistogram::Histogram;

use super::tally::histogram;
use crate::statistics::steady::WINDOWS;

/// A histogram each: the present window's, and those of the five before it.
#[derive(Clone, Debug)]
pub struct WindowLatencies {
    /// How many began.
    begun: u64,
    latency: Vec<Histogram<u64>>,
}

impl Default for WindowLatencies {
    fn default() -> WindowLatencies {
        WindowLatencies { begun: 0, latency: (0..=WINDOWS).map(|_| histogram()).collect() }
    }
}

impl WindowLatencies {
    fn present(&self) -> usize {
        self.begun as usize % self.latency.len()
    }

    /// How many began, as far as this was told.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// So many windows began: the one that began last is counted apart from now on, and takes the
    /// place of the one that is too old to count.
    pub fn begin(&mut self, begun: u64) {
        // Who had no turn in a window counted nothing there.
        let unseen = begun.saturating_sub(self.begun).min(self.latency.len() as u64);
        for number in begun - unseen + 1..=begun {
            self.begun = number;
            let present = self.present();
            self.latency[present].reset();
        }
    }

    /// Counts one that came back in the present window.
    #[inline]
    pub fn count(&mut self, latency_ns: u64) {
        let present = self.present();
        self.latency[present].saturating_record(latency_ns);
    }

    /// Those of the last five windows that are over.
    pub fn last(&self) -> Histogram<u64> {
        let mut all = histogram();
        for place in (0..self.latency.len()).filter(|place| *place != self.present()) {
            all.add(&self.latency[place]).expect("histograms of the same bounds");
        }
        all
    }

    /// Adds what somebody else counted, who was told of the same windows.
    pub fn add(&mut self, other: &WindowLatencies) {
        self.begun = self.begun.max(other.begun);
        for (one, other) in self.latency.iter_mut().zip(&other.latency) {
            one.add(other).expect("histograms of the same bounds");
        }
    }
}
