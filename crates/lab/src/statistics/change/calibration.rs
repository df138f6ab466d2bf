//! Whether a watch raises as few false alarms as it promises, and how soon it finds what changed:
//! thousands of simulated watches of which the truth is known.
//!
//! A watch has a hundred runs, or those until its first alarm, and is tested after each of them as
//! a real one is. A run's value is the logarithm of a system's speed by that of the reference in
//! the same run. Seeds are fixed, so figures repeat exactly; docs/statistics.md has them
//! (`--nocapture` prints them).

use block::Random;

use super::*;

/// Watches under each noise.
const WATCHES: u64 = 2000;
/// Watches in which something is planted, of each size.
const FOUND_WATCHES: u64 = 500;

/// What runs are disturbed by. A standard deviation is 1 in each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    /// Each by itself, normal.
    Independent,
    /// One run in ten is off by ten deviations.
    Stalls,
    /// The machine's state has 0.7 between runs, and reference and system share it.
    Shared,
    /// The system's own state has so much between runs.
    Own(f64),
    /// As independent, and the level rises by three deviations over the hundred runs.
    Drift,
}

struct World {
    noise: Noise,
    random: Random,
    state: f64,
    runs: u32,
}

impl World {
    fn new(noise: Noise, seed: u64) -> World {
        let mut world = World { noise, random: Random::new(seed), state: 0.0, runs: 0 };
        world.state = world.normal();
        world
    }

    fn normal(&mut self) -> f64 {
        let mut uniform = || ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }

    /// The next state, with so much between neighbours.
    fn step(&mut self, correlation: f64) -> f64 {
        let rest = (1.0 - correlation * correlation).sqrt();
        self.state = correlation * self.state + rest * self.normal();
        self.state
    }

    /// The next run: the system by the reference.
    fn run(&mut self) -> f64 {
        let own = self.normal();
        self.runs += 1;
        match self.noise {
            Noise::Independent => own,
            Noise::Stalls if self.random.chance(1, 10) => own - 10.0,
            Noise::Stalls => own,
            Noise::Shared => {
                let state = 3.0 * self.step(0.7);
                let (system, reference) = (state + own, state);
                system - reference
            }
            Noise::Own(correlation) => self.step(correlation),
            Noise::Drift => own + 0.03 * f64::from(self.runs),
        }
    }
}

/// The run after which a watch raises its alarm, and where it sees the change. It changes by so
/// much from a run on.
fn watch(noise: Noise, seed: u64, test: &mut Test, from: usize, by: f64) -> Option<(usize, usize)> {
    let mut world = World::new(noise, seed);
    let mut values = Vec::new();
    (1..=RUNS_MAX).find_map(|run| {
        values.push(world.run() + if run > from { by } else { 0.0 });
        let shown = test.split(&values).filter(|split| test.shows(split));
        shown.map(|split| (run, split.at))
    })
}

/// Percent of watches with a false alarm.
fn false_alarms(noise: Noise) -> f64 {
    let mut test = Test::of(1);
    let is_alarmed = |seed: &u64| watch(noise, *seed, &mut test, RUNS_MAX, 0.0).is_some();
    let percent = 100.0 * (0..WATCHES).filter(is_alarmed).count() as f64 / WATCHES as f64;
    println!("| {noise:?} | {percent:.1}% |");
    percent
}

#[test]
fn a_hundred_runs_without_a_change_rarely_raise_an_alarm() {
    for noise in [Noise::Independent, Noise::Stalls, Noise::Shared] {
        let percent = false_alarms(noise);
        assert!(percent <= 5.0, "{noise:?}: {percent}%");
    }
}

#[test]
fn runs_that_follow_each_other_raise_more_but_few() {
    for (correlation, most) in [(0.3, 6.0), (0.5, 12.0)] {
        let percent = false_alarms(Noise::Own(correlation));
        assert!(percent <= most, "{correlation}: {percent}%");
    }
}

#[test]
fn a_drift_is_a_change() {
    let percent = false_alarms(Noise::Drift);
    assert!(percent > 95.0, "{percent}%");
}

#[test]
fn what_is_planted_is_found_within_a_dozen_runs() {
    for (series, before, by, soon) in [
        (1, 30, 1.0, None),
        (1, 30, 2.0, Some(12)),
        (1, 30, 4.0, Some(8)),
        (1, 15, 4.0, Some(10)),
        (1, 60, 4.0, Some(8)),
        (4, 30, 2.0, Some(14)),
        (4, 30, 4.0, Some(10)),
    ] {
        let mut test = Test::of(series);
        let planted = |seed| watch(Noise::Independent, seed, &mut test, before, by);
        let alarms: Vec<_> = (0..FOUND_WATCHES).map(planted).collect();
        let found: Vec<_> = alarms.into_iter().flatten().filter(|(run, _)| *run > before).collect();
        let mut delays: Vec<usize> = found.iter().map(|(run, _)| run - before).collect();
        delays.sort_unstable();
        let near = found.iter().filter(|(_, at)| at.abs_diff(before) <= 1).count();
        let percent = |count: usize| 100.0 * count as f64 / FOUND_WATCHES as f64;
        let after = |tenths: usize| delays.get(FOUND_WATCHES as usize * tenths / 10).copied();
        let (half, most) = (after(5), after(9));
        let (found, near) = (percent(found.len()), percent(near));
        println!("| {series} | {before} | {by} | {found:.0}% | {half:?} | {most:?} | {near:.0}% |");
        assert!(
            soon.is_none() || half <= soon && found > 95.0,
            "{before}, {by}: {half:?} {found}%"
        );
    }
}
