//! A measurement of `bench --steady`, or of a stream of the lab's, ends once it is steady, and not after a time.
//!
//! In: how many requests have come back, whenever somebody looks. Out: the rate of each window, and
//! when five of them are steady, or 25 are over without ([`lab::statistics::steady`]). A window is
//! over at the first look behind its end, and its rate is by the time that it took. Units: requests a
//! second. Errors: none.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::report::{LastWindows, Steady};
use lab::statistics::steady::{WINDOWS, WINDOWS_MAX};
use lab::statistics::{Steadiness, SteadyState};

/// What is noted of one that did not settle.
pub(in crate::commands) const UNSTEADY: &str =
    "it did not become steady: another run may give other figures";
/// And of one whose windows nobody counted.
const UNCOUNTED: &str = "no window of it was counted: the load left no processor for that to be done on, as one does that runs with a real-time priority";

/// What is to be noted of what came of a measurement, if it did not settle.
pub(in crate::commands) fn complaint(steady: &Steady) -> Option<&'static str> {
    let why = if steady.windows.is_empty() { UNCOUNTED } else { UNSTEADY };
    (!steady.is_steady).then_some(why)
}

/// Watches a measurement.
pub(in crate::commands) struct Settling {
    window: Duration,
    /// Where the present window began: when, and with how many requests behind it.
    began: Option<(Instant, u64)>,
    state: SteadyState,
    found: Steadiness,
    iops: Vec<f64>,
    /// When the first window began, and when each ended.
    edges: Vec<SystemTime>,
}

impl Settling {
    pub(in crate::commands) fn new(window: Duration) -> Settling {
        let (state, found) = (SteadyState::new(), Steadiness::Open);
        Settling { window, began: None, state, found, iops: Vec::new(), edges: Vec::new() }
    }

    /// The longest that it may take, and a window more for whoever looks late.
    pub(in crate::commands) fn time_max(window: Duration) -> Duration {
        window * (WINDOWS_MAX as u32 + 1)
    }

    /// What counts begins: so many requests had come back before.
    pub(in crate::commands) fn begin(&mut self, now: Instant, requests: u64) {
        if self.began.is_none() {
            self.began = Some((now, requests));
            self.edges.push(SystemTime::now());
        }
    }

    /// So many have come back by now; whether it is over.
    pub(in crate::commands) fn is_over(&mut self, now: Instant, requests: u64) -> bool {
        if let Some((began, before)) = self.began
            && self.found == Steadiness::Open
            && now - began >= self.window
        {
            let iops = (requests - before) as f64 / (now - began).as_secs_f64();
            self.began = Some((now, requests));
            self.iops.push(iops);
            self.edges.push(SystemTime::now());
            self.found = self.state.handle_window(iops);
        }
        self.found != Steadiness::Open
    }

    /// How many windows began.
    pub(in crate::commands) fn windows(&self) -> usize {
        self.edges.len()
    }

    /// What came of it, with what a load counted of the last windows.
    pub(in crate::commands) fn report(self, last: LastWindows) -> Steady {
        let rates = &self.iops[self.iops.len().saturating_sub(WINDOWS)..];
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let unix = |at: &SystemTime| {
            at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
        };
        Steady {
            edges_unix: self.edges.iter().map(unix).collect(),
            is_steady: matches!(self.found, Steadiness::Steady(_)),
            window_seconds: self.window.as_secs_f64(),
            iops: mean,
            windows: self.iops,
            last,
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::load::Tally;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    /// Looks behind windows in which so many requests come back, and says how many it took.
    fn watch(rates: impl Iterator<Item = u64>, late: Duration) -> (Steady, usize) {
        let begin = Instant::now();
        let mut settling = Settling::new(WINDOW);
        assert!(!settling.is_over(begin, 50), "nothing counts yet");
        settling.begin(begin, 100);
        let (mut now, mut requests, mut looks) = (begin, 100, 0);
        for rate in rates {
            now += WINDOW + late;
            requests += (rate as f64 * (WINDOW + late).as_secs_f64()).round() as u64;
            looks += 1;
            assert!(!settling.is_over(now - late - WINDOW / 2, requests / 2) || looks > 1);
            if settling.is_over(now, requests) {
                break;
            }
        }
        (settling.report(LastWindows::of(&Tally::default())), looks)
    }

    #[test]
    fn five_windows_alike_are_steady_and_their_mean_is_told() {
        let rates = [200, 500, 1000, 1000, 1010, 990, 1000, 1];
        let (steady, looks) = watch(rates.into_iter(), Duration::ZERO);
        assert!(steady.is_steady && complaint(&steady).is_none());
        assert_eq!((looks, steady.windows.len(), steady.iops), (7, 7, 1000.0));
    }

    #[test]
    fn a_look_that_comes_late_takes_the_time_that_was() {
        let (steady, _) = watch([1000; 9].into_iter(), Duration::from_millis(250));
        assert!(steady.is_steady && steady.windows.len() == 5 && steady.edges_unix.len() == 6);
        assert!((steady.iops - 1000.0).abs() < 1.0, "{}", steady.iops);
    }

    #[test]
    fn what_never_settles_ends_after_25_windows() {
        let (steady, looks) = watch((0..99).map(|at| 1000 + at % 2 * 900), Duration::ZERO);
        assert_eq!((steady.is_steady, looks), (false, WINDOWS_MAX));
        assert_eq!(complaint(&steady), Some(UNSTEADY));
        assert!(Settling::time_max(WINDOW) > WINDOW * WINDOWS_MAX as u32);
    }

    #[test]
    fn one_that_was_ended_before_its_first_window_has_no_figure() {
        let steady = Settling::new(WINDOW).report(LastWindows::of(&Tally::default()));
        assert!(!steady.is_steady && steady.iops == 0.0 && steady.windows.is_empty());
        assert!(steady.edges_unix.is_empty());
        assert_eq!(complaint(&steady), Some(UNCOUNTED));
    }
}
