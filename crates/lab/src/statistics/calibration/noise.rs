//! Noises of simulated machines, second by second.
//!
//! A world has systems that are all equally fast, and says what a window of a trial measures. Spreads are standard deviations of logarithms. Beneath each noise lies a little
//! independent one, of trials and of seconds, since no machine has none.

use block::Random;

/// What disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// Each trial by 10% of its own, log-normal.
    Independent,
    /// Seconds of a trial with 0.9 between neighbours (10%), and the machine's state with 0.5
    /// between rounds (10%), which all systems of a round share.
    Autocorrelated,
    /// All becomes slower by 20% from the first round to the last.
    Drift,
    /// One trial in twenty stalls half of its time, and one second in twenty nearly all of it.
    Stalls,
    /// Each process starts 15% faster or 15% slower.
    Modes,
    /// One system's rounds have 0.3 between neighbours; all have 10% noise.
    OneSystemAlike,
    /// One trial in ten slows down by 5% a second and never settles.
    Unsteady,
}

/// A machine with a noise.
pub(super) struct World {
    noise: Noise,
    systems: usize,
    random: Random,
    /// The second of a pair of normal numbers.
    spare: Option<f64>,
    /// The state that all systems share, and that of the one whose rounds are alike.
    shared: f64,
    alone: f64,
    /// How much of the plan is over, and of its round.
    progress: f64,
    trials: u32,
    /// Of the trial: where it is, what its last second was off by, what each second adds.
    level: f64,
    second: f64,
    slope: f64,
}

impl World {
    pub(super) fn new(noise: Noise, systems: usize, seed: u64) -> World {
        let mut world = World {
            noise,
            systems,
            random: Random::new(seed ^ 0x6e6f_6973_6500_0000 ^ (noise as u64) << 32),
            spare: None,
            shared: 0.0,
            alone: 0.0,
            progress: 0.0,
            trials: 0,
            level: 0.0,
            second: 0.0,
            slope: 0.0,
        };
        world.shared = world.normal();
        world.alone = world.normal();
        world
    }

    /// `progress` is how much of the planned rounds is over; pilots do not know yet.
    pub(super) fn begin_round(&mut self, progress: Option<f64>) {
        self.shared = 0.5 * self.shared + 0.75_f64.sqrt() * self.normal();
        self.alone = 0.3 * self.alone + 0.91_f64.sqrt() * self.normal();
        self.progress = progress.unwrap_or(0.0);
        self.trials = 0;
    }

    pub(super) fn begin_trial(&mut self, system: usize) {
        let own = self.normal();
        self.second = self.normal();
        self.slope = 0.0;
        self.level = match self.noise {
            Noise::Independent => 0.1 * own,
            Noise::Autocorrelated => 0.1 * self.shared + 0.03 * own,
            Noise::Drift => {
                let within = f64::from(self.trials) / self.systems as f64;
                let progress = self.progress + within * 0.01;
                (1.0 - 0.2 * progress).ln() + 0.05 * own
            }
            Noise::Stalls => {
                let is_stalled = self.random.chance(1, 20);
                0.1 * own + if is_stalled { 0.5_f64.ln() } else { 0.0 }
            }
            Noise::Modes => {
                let mode: f64 = if self.random.chance(1, 2) { 1.15 } else { 0.85 };
                mode.ln() + 0.03 * own
            }
            Noise::OneSystemAlike => 0.1 * if system == 0 { self.alone } else { own },
            Noise::Unsteady => {
                if self.random.chance(1, 10) {
                    self.slope = -0.05;
                }
                0.1 * own
            }
        };
        self.trials += 1;
    }

    /// What the next second of the trial measures.
    pub(super) fn window(&mut self) -> f64 {
        let normal = self.normal();
        let mut off = 0.03 * normal;
        match self.noise {
            Noise::Autocorrelated => {
                self.second = 0.9 * self.second + 0.19_f64.sqrt() * normal;
                off = 0.1 * self.second;
            }
            Noise::Stalls if self.random.chance(1, 20) => off += 0.1_f64.ln(),
            _ => {}
        }
        self.level += self.slope;
        1000.0 * (self.level + off).exp()
    }

    /// Box and Muller's.
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let mut uniform = || ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let (radius, turn) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
        self.spare = Some(radius * turn.sin());
        radius * turn.cos()
    }
}
