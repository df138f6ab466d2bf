//! What our ratio says of a paper's: the words, and the rules by which one cell, several cells, or their
//! mean come to them.
//!
//! All is on logarithms of metric(a) / metric(b), of values as they were measured. *Direction*: the interval at
//! the cell's own level (the corrected one, which the lab draws) lies on one side of 1. *Equality*: two
//! one-sided tests, each at 5%, so an interval of 90% lies within the margin; refuted is what lies wholly
//! outside. Where one cell of several is enough for an answer, each has its share of those 5%, so that an answer
//! about all of them is no more often wrong. *Size*: whether the interval meets what the paper saw, or
//! a tenth around it. Nothing here knows plans or files.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::facts::{Claim, Finding, Ratio};
use super::rerun::{Quantifier, Word};
use crate::statistics::ratio::Percent;
use crate::statistics::sample::Precision;
use crate::statistics::{ALPHA, Interval, LogRatio, sizing};

/// By how much a ratio may miss the paper's and agree with it.
const NEAR: f64 = 0.1;
/// A mean that is known ten times as well is still where it is.
const FAR: f64 = 100.0;

/// What is said of a finding's direction.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum Answer {
    Confirmed,
    Refuted,
    /// Neither; a difference of this size would probably have been found.
    NoDifferenceShown {
        detectable: f64,
    },
    /// Neither, and so many more rounds would probably tell; without a number, why they would not.
    Undecided {
        more_rounds: Option<usize>,
        because: Option<String>,
    },
    AnalogueOnly {
        because: String,
    },
    NotBuilt {
        because: String,
    },
    CannotBeTested {
        because: String,
    },
    NotRerunYet {
        because: String,
    },
}

/// How our ratio stands to the paper's.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    Agrees,
    Smaller,
    Larger,
    /// Of a lower bound: some of the interval keeps it.
    Open,
}

/// How well the ratio of a cell, or of several, is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) precision: Precision,
    pub(super) rounds: usize,
    /// How often the interval of a direction may miss.
    pub(super) alpha: f64,
    /// The difference that the plan wants to see.
    pub(super) difference: f64,
}

/// The levels of the two one-sided tests, each by itself.
#[derive(Clone, Copy, Debug)]
struct Levels {
    confirm: f64,
    refute: f64,
}

impl Quantifier {
    /// How many of so many cells are to hold a finding.
    fn needed(self, cells: usize) -> usize {
        match self {
            Quantifier::Every | Quantifier::Mean => cells,
            Quantifier::Most => cells / 2 + 1,
            Quantifier::AFew => 1,
        }
    }

    /// An answer that needs all cells is wrong as often as one of them at most; one that a single cell
    /// may give, as often as all together.
    fn levels(self, cells: usize) -> Levels {
        let share = ALPHA / cells as f64;
        match self {
            Quantifier::Every => Levels { confirm: ALPHA, refute: share },
            Quantifier::Most => Levels { confirm: share, refute: share },
            Quantifier::AFew => Levels { confirm: share, refute: ALPHA },
            Quantifier::Mean => Levels { confirm: ALPHA, refute: ALPHA },
        }
    }
}

impl Known {
    /// The interval that is shown: what a direction is read off, or two one-sided tests.
    pub(super) fn shown(&self, claim: Claim) -> Interval {
        self.precision.interval(if claim == Claim::Equal { 2.0 * ALPHA } else { self.alpha })
    }

    /// What is said of a finding, of one cell of `cells`.
    pub(super) fn answer(&self, finding: &Finding, judge: Quantifier, cells: usize) -> Answer {
        match finding.direction {
            Claim::Equal => self.equality(finding.margin.unwrap_or_default(), judge.levels(cells)),
            Claim::Above => self.direction(1.0),
            Claim::Below => self.direction(-1.0),
        }
    }

    /// `sign` is above 0 where the claim is a ratio above 1.
    fn direction(&self, sign: f64) -> Answer {
        let interval = self.precision.interval(self.alpha);
        let side = if interval.low.0 > 0.0 {
            1.0
        } else if interval.high.0 < 0.0 {
            -1.0
        } else {
            return self.no_side();
        };
        if side * sign > 0.0 { Answer::Confirmed } else { Answer::Refuted }
    }

    fn no_side(&self) -> Answer {
        let detectable = LogRatio(self.precision.detectable(self.alpha)).fraction();
        if detectable <= self.difference {
            return Answer::NoDifferenceShown { detectable };
        }
        let size = LogRatio::of_fraction(self.difference).0;
        // As of rounds that are alike as these are.
        let deviation = self.precision.error * (self.rounds as f64).sqrt();
        let needed = sizing::rounds_needed(deviation, size, self.alpha);
        let more = needed.saturating_sub(self.rounds).max(1);
        Answer::Undecided { more_rounds: Some(more), because: None }
    }

    fn equality(&self, margin: f64, levels: Levels) -> Answer {
        let (low, high) = ((1.0 - margin).ln(), (1.0 + margin).ln());
        let inner = self.precision.interval(2.0 * levels.confirm);
        if low < inner.low.0 && inner.high.0 < high {
            return Answer::Confirmed;
        }
        let outer = self.precision.interval(2.0 * levels.refute);
        if outer.high.0 < low || high < outer.low.0 {
            return Answer::Refuted;
        }
        let mean = self.precision.mean;
        let half_width = (inner.high.0 - inner.low.0) / 2.0;
        let distance = (mean - low).abs().min((high - mean).abs());
        let factor = (half_width / distance).powi(2);
        if factor.is_nan() || factor > FAR {
            let because = "it lies too near to the margin for any number of rounds".to_owned();
            return Answer::Undecided { more_rounds: None, because: Some(because) };
        }
        let more = (self.rounds as f64 * (factor - 1.0)).ceil().max(1.0);
        Answer::Undecided { more_rounds: Some(more as usize), because: None }
    }

    /// How it stands to what the paper saw; nothing where the paper gives no number.
    pub(super) fn size(&self, finding: &Finding) -> Option<Size> {
        let (low, high) = finding.ratio.map(Ratio::ends).filter(|(low, _)| *low > 0.0)?;
        let seen = self.shown(finding.direction);
        let (seen_low, seen_high) = (seen.low.0, seen.high.0);
        if finding.ratio_bound.is_some() {
            let bound = low.ln();
            return Some(match (seen_low >= bound, seen_high < bound) {
                (true, _) => Size::Agrees,
                (_, true) => Size::Smaller,
                _ => Size::Open,
            });
        }
        let (low, high) = ((low * (1.0 - NEAR)).ln(), (high * (1.0 + NEAR)).ln());
        Some(if seen_high < low {
            Size::Smaller
        } else if seen_low > high {
            Size::Larger
        } else {
            Size::Agrees
        })
    }

    /// How many times as large it is as another, which has rounds of its own.
    pub(super) fn over(&self, other: &Known, alpha: f64) -> Known {
        let precision = Precision::weighed(&[(1.0, self.precision), (-1.0, other.precision)]);
        Known { precision, rounds: self.rounds.min(other.rounds), alpha, ..*self }
    }

    /// The mean of several, of which the first of a pair says for how many cells it stands, and whose rounds
    /// are apart.
    pub(super) fn mean(parts: &[(usize, Known)], alpha: f64) -> Option<Known> {
        let first = parts.first()?.1;
        let cells: usize = parts.iter().map(|(cells, _)| cells).sum();
        let weighed: Vec<(f64, Precision)> = parts
            .iter()
            .map(|(its, known)| (*its as f64 / cells as f64, known.precision))
            .collect();
        let rounds = parts.iter().map(|(_, known)| known.rounds).min().unwrap_or_default();
        Some(Known { precision: Precision::weighed(&weighed), rounds, alpha, ..first })
    }
}

/// What several cells say together.
pub(super) fn together(judge: Quantifier, answers: &[Answer]) -> Answer {
    let cells = answers.len();
    let count = |of: &Answer| answers.iter().filter(|answer| *answer == of).count();
    let (confirmed, refuted) = (count(&Answer::Confirmed), count(&Answer::Refuted));
    let needed = judge.needed(cells);
    if confirmed >= needed && cells > 0 {
        return Answer::Confirmed;
    }
    if cells - refuted < needed {
        return Answer::Refuted;
    }
    let mut more = None;
    let mut detectable = 0.0_f64;
    for answer in answers {
        match answer {
            // Why rounds alone do not tell goes before how many would.
            Answer::Undecided { because: Some(_), .. } => return answer.clone(),
            Answer::Undecided { more_rounds, .. } => more = more.max(*more_rounds),
            Answer::NoDifferenceShown { detectable: its } => detectable = detectable.max(*its),
            _ => {}
        }
    }
    match more {
        Some(_) => Answer::Undecided { more_rounds: more, because: None },
        None if detectable > 0.0 => Answer::NoDifferenceShown { detectable },
        None => Answer::Undecided {
            more_rounds: None,
            because: Some(format!("{confirmed} of {cells} cells hold it, and {refuted} do not")),
        },
    }
}

impl Answer {
    pub(super) fn of_word(word: Word, because: String) -> Answer {
        match word {
            Word::AnalogueOnly => Answer::AnalogueOnly { because },
            Word::NotBuilt => Answer::NotBuilt { because },
            Word::CannotBeTested => Answer::CannotBeTested { because },
            Word::NotRerunYet => Answer::NotRerunYet { because },
        }
    }

    pub(super) fn undecided(because: impl Into<String>) -> Answer {
        Answer::Undecided { more_rounds: None, because: Some(because.into()) }
    }

    /// Its word alone, for a heading.
    pub fn word(&self) -> &'static str {
        match self {
            Answer::Confirmed => "confirmed",
            Answer::Refuted => "refuted",
            Answer::NoDifferenceShown { .. } => "no difference shown",
            Answer::Undecided { .. } => "undecided",
            Answer::AnalogueOnly { .. } => "analogue only",
            Answer::NotBuilt { .. } => "not built",
            Answer::CannotBeTested { .. } => "cannot be tested here",
            Answer::NotRerunYet { .. } => "not rerun yet",
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Answer::Confirmed | Answer::Refuted => Ok(()),
            Answer::NoDifferenceShown { detectable } => {
                write!(f, " (could have seen {})", Percent(*detectable))
            }
            Answer::Undecided { more_rounds: Some(1), .. } => {
                f.write_str(": needs about 1 more round")
            }
            Answer::Undecided { more_rounds: Some(more), .. } => {
                write!(f, ": needs about {more} more rounds")
            }
            Answer::Undecided { because, .. } => {
                write!(f, ": {}", because.as_deref().unwrap_or("nothing tells"))
            }
            Answer::AnalogueOnly { because } | Answer::NotBuilt { because } => {
                write!(f, ": {because}")
            }
            Answer::CannotBeTested { because } => write!(f, ", because {because}"),
            Answer::NotRerunYet { because } => write!(f, ": {because}"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Agrees => "agrees",
            Size::Smaller => "smaller",
            Size::Larger => "larger",
            Size::Open => "open",
        })
    }
}

#[cfg(test)]
mod tests;
