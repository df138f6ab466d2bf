//! Findings that no run tells better than arithmetic does: headers of stacks, byte for byte.
//!
//! In come the names of stacks that `plateway wire` prints; out comes a cell for each pair, whose ratio is exact: it
//! has no interval, and no rounds. Units: bytes. Errors: a stack that there is none of, which a test holds.

use wire::overhead::{STACKS, Stack};

use super::facts::Finding;
use super::judge::{CellSaid, Ours};
use super::rerun::{Exact, Quantifier};
use super::verdict::{Answer, Known};
use crate::statistics::ALPHA;
use crate::statistics::sample::Precision;

/// What is said of each pair of stacks, and of all of them together.
pub(super) fn cells(finding: &Finding, exact: &Exact) -> (Vec<CellSaid>, Option<Known>) {
    let pairs: Vec<(String, Option<Known>)> = exact
        .stacks
        .a
        .iter()
        .flat_map(|a| exact.stacks.b.iter().map(move |b| pair(a, b)))
        .collect();
    let count = pairs.len();
    let mean = pairs
        .iter()
        .map(|(_, known)| Some(known.as_ref()?.precision.mean))
        .sum::<Option<f64>>()
        .map(|sum| known(sum / count.max(1) as f64));
    let said = |(name, known): (String, Option<Known>)| match known {
        Some(known) => CellSaid {
            name,
            answer: known.answer(finding, Quantifier::Every, count),
            size: known.size(finding),
            ours: Some(Ours::of(&known, finding.direction)),
        },
        None => {
            let answer = Answer::undecided(format!("there is no such stack: {name}"));
            CellSaid { name, answer, size: None, ours: None }
        }
    };
    (pairs.into_iter().map(said).collect(), mean)
}

/// "AoE/MPLS (54 bytes) against AoE/GRE (74 bytes)"
fn pair(a: &str, b: &str) -> (String, Option<Known>) {
    let stack = |name: &str| STACKS.iter().find(|stack| stack.name == name);
    let told = |name: &str, stack: Option<&Stack>| {
        stack.map_or(name.to_owned(), |stack| format!("{name} ({} bytes)", stack.header_bytes()))
    };
    let (first, second) = (stack(a), stack(b));
    let name = format!("{} against {}", told(a, first), told(b, second));
    let ratio = first.zip(second).map(|(a, b)| a.header_bytes() as f64 / b.header_bytes() as f64);
    (name, ratio.map(|ratio| known(ratio.ln())))
}

/// A ratio that is known as it is.
fn known(mean: f64) -> Known {
    let precision = Precision { mean, error: 0.0, freedom: 1.0, effective: 1.0 };
    Known { precision, rounds: 0, alpha: ALPHA, difference: 0.0 }
}
