//! Whether the machine or a system moved while a plan ran, by the reference (`null:`) that every
//! round holds.
//!
//! What moves makes rounds that followed each other alike, which von Neumann's test shows
//! ([`Serial`]). The reference's own series has what the machine did; a system's by that of the
//! reference has what the system did beyond it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::serial::Serial;

/// Who moved.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moved {
    Neither,
    Machine,
    System,
    Both,
}

/// By the values of a system and of the reference in the same rounds, in their order.
pub fn moved(system: &[f64], reference: &[f64]) -> Moved {
    let machine: Vec<f64> = reference.iter().map(|value| value.ln()).collect();
    let beyond: Vec<f64> =
        system.iter().zip(reference).map(|(system, reference)| (system / reference).ln()).collect();
    match (Serial::of(&machine).is_shown(), Serial::of(&beyond).is_shown()) {
        (false, false) => Moved::Neither,
        (true, false) => Moved::Machine,
        (false, true) => Moved::System,
        (true, true) => Moved::Both,
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Moved::Neither => "neither machine nor system moved",
            Moved::Machine => "the machine moved, and all systems with it",
            Moved::System => "the system moved, and the machine did not",
            Moved::Both => "the machine moved, and the system by itself as well",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_moved_is_told_by_the_reference() {
        let own = [1.0, 1.04, 0.97, 1.02, 0.96, 1.05, 0.98, 1.0, 1.03, 0.97];
        let still = [1.0, 0.97, 1.02, 0.96, 1.03, 0.98, 1.02, 0.97, 1.01, 0.98];
        let drift = |value: f64, round: usize| value * (1.0 - 0.05 * round as f64);
        let drifts = |values: &[f64]| -> Vec<f64> {
            values.iter().enumerate().map(|(round, value)| drift(*value, round)).collect()
        };
        let said = |system: &[f64], reference: &[f64]| moved(system, reference).to_string();
        assert!(said(&own, &still).starts_with("neither"));
        assert!(said(&drifts(&own), &drifts(&still)).starts_with("the machine moved, and all"));
        assert!(said(&drifts(&own), &still).starts_with("the system moved"));
        let twice = drifts(&drifts(&own));
        assert!(said(&twice, &drifts(&still)).ends_with("by itself as well"));
    }
}
