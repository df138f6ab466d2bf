//! Findings on whether something can be reached at all: they are decided by what was seen, once, and by no interval.
//!
//! In come the ways that were tried, between two customers of one core and the targets of both; out comes an answer by
//! value: 1 of what was reached, 0 of what was not. That a target is not reached says something only while those whose
//! target it is do reach it. No units, no errors.

use serde::{Deserialize, Serialize};

use super::facts::{Claim, Finding, Ratio};
use super::verdict::{Answer, Size};

/// What a run of it is called where it could not be run.
pub const REACHABILITY: &str = "reachability";

/// A way that is tried: a server of one customer to a target of one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// The first customer's server to its own target.
    Serv1ToLx,
    /// The same server to the other customer's target.
    Serv1ToCd,
    /// The second customer's server to its own target.
    Serv2ToCd,
}

/// What became of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Reached {
    pub probe: Probe,
    pub is_reached: bool,
    /// What was done, and how far it came.
    pub seen: String,
}

/// How a finding is decided by ways.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ways {
    /// The finding's a and b.
    pub a: Probe,
    pub b: Probe,
    /// What is to be reached, so that the others say something.
    pub while_reached: Option<Probe>,
}

/// A finding that is decided so.
#[derive(Clone, Debug)]
pub struct Reach {
    pub ways: Ways,
    /// What is tried, and where.
    pub recreated: String,
}

impl Reach {
    /// What is said of a finding, its size, and what was seen; nothing of ways that were not tried.
    pub(super) fn judge(
        &self,
        finding: &Finding,
        all: &[Reached],
    ) -> Option<(Answer, Option<Size>, Vec<String>)> {
        let of = |probe: Probe| all.iter().find(|reached| reached.probe == probe);
        let Ways { a, b, while_reached } = &self.ways;
        let (a, b) = (of(*a)?, of(*b)?);
        let up = match while_reached {
            Some(probe) => Some(of(*probe)?),
            None => None,
        };
        let told = |one: &Reached, who: &str| {
            format!("{who}: {} ({})", u8::from(one.is_reached), one.seen)
        };
        let mut seen = vec![told(a, &finding.a), told(b, &finding.b)];
        seen.extend(up.map(|one| told(one, "meanwhile, by who is to reach it")));
        if up.is_some_and(|one| !one.is_reached) {
            let answer = Answer::undecided(
                "nobody reached that target, so that one who does not says nothing",
            );
            return Some((answer, None, seen));
        }
        let (a, b) = (a.is_reached, b.is_reached);
        let holds = match finding.direction {
            _ if !a && !b => {
                return Some((Answer::undecided("neither of both was reached"), None, seen));
            }
            Claim::Above => a && !b,
            Claim::Below => !a && b,
            Claim::Equal => a == b,
        };
        let answer = if holds { Answer::Confirmed } else { Answer::Refuted };
        Some((answer, size(finding.ratio.filter(|_| b), a), seen))
    }
}

/// How 1 or 0 by 1 stands to what the paper has.
fn size(published: Option<Ratio>, a: bool) -> Option<Size> {
    let (low, high) = published?.ends();
    let ours = f64::from(u8::from(a));
    Some(match (ours < low, ours > high) {
        (true, _) => Size::Smaller,
        (_, true) => Size::Larger,
        _ => Size::Agrees,
    })
}

#[cfg(test)]
mod tests {
    use super::super::rerun::How;
    use super::super::{Study, judge::Said};
    use super::*;

    /// Of both findings of the paper, by what was reached of the three ways.
    fn said(reached: [bool; 3]) -> [Said; 2] {
        let study = Study::of("landowski").expect("a paper");
        let probes = [Probe::Serv1ToLx, Probe::Serv1ToCd, Probe::Serv2ToCd];
        let reached = probes.into_iter().zip(reached).map(|(probe, is_reached)| {
            let seen = "tried".to_owned();
            Reached { probe, is_reached, seen }
        });
        let all = study.judge(&[], &Default::default(), &reached.collect::<Vec<_>>());
        ["isolation", "two-platforms"].map(|id| {
            all.iter().find(|said| said.id == id).expect("a finding of the paper").clone()
        })
    }

    #[test]
    fn what_is_reached_decides_by_its_value() {
        let [isolation, platforms] = said([true, false, true]);
        assert_eq!((isolation.answer, isolation.size), (Answer::Confirmed, Some(Size::Agrees)));
        assert_eq!((platforms.answer, platforms.size), (Answer::Confirmed, Some(Size::Agrees)));
        let own = "SERV1 to AoE-Lx (its own VPN): 1 (tried)";
        assert!(isolation.seen.iter().any(|seen| seen == own), "{:?}", isolation.seen);
        let [isolation, platforms] = said([true, true, true]);
        assert_eq!((isolation.answer, isolation.size), (Answer::Refuted, Some(Size::Larger)));
        assert_eq!(platforms.answer, Answer::Confirmed);
    }

    #[test]
    fn a_target_that_nobody_reaches_isolates_nothing() {
        let [isolation, platforms] = said([true, false, false]);
        assert_eq!(isolation.answer.word(), "undecided");
        assert_eq!(platforms.answer, Answer::Refuted, "one of both platforms");
        let [isolation, platforms] = said([false, false, true]);
        assert_eq!(isolation.answer.word(), "undecided", "nothing was reached by that server");
        assert_eq!(platforms.answer, Answer::Refuted);
        let [_, platforms] = said([false, false, false]);
        assert_eq!(platforms.answer.word(), "undecided");
    }

    #[test]
    fn what_was_not_tried_is_not_decided() {
        let study = Study::of("landowski").expect("a paper");
        assert!(study.reaches());
        let said = study.judge(&[], &Default::default(), &[]);
        let at = study.how.iter().position(|how| matches!(how, How::Reach(_))).expect("one");
        assert_eq!(said[at].answer, Answer::undecided("whether it is reached was not tried"));
        assert!(!Study::of("rocha").expect("a paper").reaches());
    }
}
