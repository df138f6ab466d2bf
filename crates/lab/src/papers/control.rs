//! What something of ours costs that both sides of a pair do not have alike, taken off their ratio.
//!
//! NFS comes to a client by FUSE here, and a disk has FUSE below its file system: a ratio of both is of the
//! roads and of that. So each cell has a control, the same program above a local file system without FUSE and with it, and
//! our ratio is divided by the control's. What is said of a finding is said only if that ratio, whose interval has
//! the doubt of both, says the same; else it is `analogue only`. Nothing here knows what the cost is.

use super::facts::Finding;
use super::judge::{Cell, Measured, Of, Ours};
use super::rerun::Recreated;
use super::verdict::{Answer, together};

impl Measured<'_> {
    /// What is said of a finding whose cells have controls; what these say is told with what was seen.
    pub(super) fn controlled(
        &self,
        finding: &Finding,
        recreated: &Recreated,
        cells: &[Cell<'_>],
        answer: Answer,
        seen: &mut Vec<String>,
    ) -> Answer {
        if recreated.controls.is_empty() {
            return answer;
        }
        let of = Of { inverted: recreated.inverted, variation: recreated.variation };
        let controls = self.cells(&recreated.controls, of);
        let mut answers = Vec::new();
        for (cell, (control, name)) in cells.iter().zip(controls.iter().zip(&recreated.controls)) {
            let said = match (&cell.known, &control.known) {
                (Ok(known), Ok(cost)) => {
                    let net = known.over(cost, self.alpha());
                    let [cost, left] = [cost, &net].map(|one| Ours::of(one, finding.direction));
                    seen.push(format!("{name}: {cost}; with that taken off, {left}"));
                    net.answer(finding, recreated.judge, cells.len())
                }
                (_, Err(why)) => {
                    seen.push(format!("{name}: {why}"));
                    why.clone()
                }
                (Err(why), _) => why.clone(),
            };
            answers.push(said);
        }
        if !matches!(answer, Answer::Confirmed | Answer::Refuted) {
            return answer;
        }
        let net = together(recreated.judge, &answers);
        if net == answer {
            return answer;
        }
        let because = match net {
            // Of a control that did not run, or never settled, nothing is known.
            Answer::Undecided { because: Some(_), .. } => return net,
            net => {
                format!("{answer} as it was measured, and {net} with the control's cost taken off")
            }
        };
        Answer::AnalogueOnly { because }
    }
}
