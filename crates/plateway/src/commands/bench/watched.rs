//! What is read of the machine at the edges of a measurement: what instruments made of their answers,
//! and whether processors stood still.
//!
//! In: a sighting at each edge. Out: what was between the first and the last of them, and of windows
//! between the first and the last edge of the last five. Units: nanoseconds. Errors: none.

use std::collections::VecDeque;

use lab::report::{Latency, StoodStill};
use lab::statistics::steady::WINDOWS;

use crate::run::watch::Sighting;

/// Of less looking than this nothing is said, in nanoseconds.
const LOOKED_MIN: u64 = 20_000_000;

/// Sightings of a measurement.
pub(super) struct Watched {
    look: Box<dyn Fn() -> Sighting>,
    edges: VecDeque<Sighting>,
}

impl Watched {
    pub(super) fn new(look: impl Fn() -> Sighting + 'static) -> Watched {
        Watched { look: Box::new(look), edges: VecDeque::new() }
    }

    /// It begins, it ends, or a window of it does.
    pub(super) fn edge(&mut self) {
        if self.edges.len() > WINDOWS {
            self.edges.pop_front();
        }
        self.edges.push_back((self.look)());
    }

    /// The first and the last of them; `None` where nothing was between.
    fn ends(&self) -> Option<(&Sighting, &Sighting)> {
        let (first, last) = (self.edges.front()?, self.edges.back()?);
        (self.edges.len() > 1).then_some((first, last))
    }

    /// How much later than they were due answers were told that an instrument held back.
    pub(super) fn late(&self) -> Option<Latency> {
        let (first, last) = self.ends()?;
        let grown = last.late.as_ref()?.iter().zip(first.late.as_ref()?);
        // A step is half over on average.
        let ns = |us: usize| us as u64 * 1_000 + 500;
        Latency::of_counts(grown.enumerate().map(|(us, (after, before))| (ns(us), after - before)))
    }

    /// For how long processors stood still while their threads looked.
    pub(super) fn stood_still(&self) -> Option<StoodStill> {
        let (first, last) = self.ends()?;
        let looked = last.looked_ns - first.looked_ns;
        let (pauses, paused) = (last.pauses - first.pauses, last.paused_ns - first.paused_ns);
        (looked >= LOOKED_MIN).then(|| StoodStill {
            share: paused as f64 / looked as f64,
            mean_us: paused as f64 / 1e3 / pauses.max(1) as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A machine that with each look has one more answer late by so many microseconds as there were
    /// looks, and looked for 100 ms of which its processors stood still for one.
    fn watched() -> Watched {
        let looks = Cell::new(0);
        let late = Cell::new(vec![0; 64]);
        Watched::new(move || {
            let number = looks.replace(looks.get() + 1);
            let mut counts = late.take();
            counts[number] += 1;
            late.set(counts.clone());
            let so_far = number as u64;
            Sighting {
                late: Some(counts),
                looked_ns: so_far * 100_000_000,
                pauses: so_far * 10,
                paused_ns: so_far * 1_000_000,
            }
        })
    }

    #[test]
    fn what_is_told_is_of_the_last_five_windows() {
        let mut watched = watched();
        assert!(watched.late().is_none() && watched.stood_still().is_none());
        watched.edge();
        assert!(watched.late().is_none(), "nothing is between");
        (0..8).for_each(|_| watched.edge());
        // Edges 3 to 8: what came behind the first of them.
        let late = watched.late().unwrap();
        assert_eq!((late.min / 100, late.max / 100), (45, 85));
        let still = watched.stood_still().unwrap();
        assert!((still.share - 0.01).abs() < 1e-9 && (still.mean_us - 100.0).abs() < 1e-9);
    }

    #[test]
    fn of_who_hardly_looked_and_of_a_disk_without_instruments_nothing_is_said() {
        let mut watched = Watched::new(|| Sighting { looked_ns: 7, ..Sighting::default() });
        (0..2).for_each(|_| watched.edge());
        assert!(watched.late().is_none() && watched.stood_still().is_none());
    }
}
