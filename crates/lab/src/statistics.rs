//! Whether one system is faster than another, or only was today: what is run in which order, how
//! often, and what the rounds say.
//!
//! A *round* runs every system of a plan once, each from a fresh start; it is the unit of
//! replication, and what happens within a trial is never counted as more than one value. In come
//! the values of trials (of any unit; positive), out come ratios with intervals and a [`Verdict`].
//! Everything is computed on natural logarithms of ratios within a round, so that what all systems
//! of a round share cancels. Nothing here runs anything, reads a clock or knows units.
//!
//! Read [`schedule`] first (pilots, planned rounds, repeats), then [`analysis`]. Each method has its
//! source in `docs/statistics.md`; that they hold what they promise is what `calibration` tests,
//! with simulated plans.

pub mod analysis;
pub mod apart;
mod bootstrap;
pub mod bound;
#[cfg(test)]
mod calibration;
pub mod change;
mod holm;
pub mod median;
pub mod moved;
pub mod order;
pub mod plan;
pub mod ratio;
pub mod sample;
pub mod schedule;
pub mod serial;
pub mod sizing;
pub mod spread;
pub mod steady;
pub mod verdict;

pub use analysis::{Analysis, Estimate, Finding, analyse, analyse_together};
pub use apart::{Apart, Referred, compare_apart};
pub use bound::{Bound, Held};
pub use median::median;
pub use moved::{Moved, moved};
pub use plan::{BadPlan, Better, Comparison, Plan};
pub use ratio::{Interval, LogRatio};
pub use schedule::{NotMeasured, Round, Schedule, Stop, Taken, Trials};
pub use sizing::Sizing;
pub use steady::{Steadiness, SteadyState};
pub use verdict::{Verdict, Withheld};

/// How often a verdict of a plan may be wrong, all its primary comparisons together, and how often
/// a single interval may miss.
pub const ALPHA: f64 = 0.05;
/// How often a difference of the size that a plan asks for is to be found.
pub const POWER: f64 = 0.8;
