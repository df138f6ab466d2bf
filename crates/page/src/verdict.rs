//! Verdicts in the lab's own words: what was read of a file becomes the lab's type, which displays.
//!
//! Ratios in, sentences out. No word of a verdict is written here, so that page, terminal and
//! docs/statistics.md say the same.

use lab::statistics as said;
use lab::statistics::LogRatio;

use crate::kept;

pub(crate) fn verdict(verdict: kept::Verdict) -> said::Verdict {
    use kept::Verdict;
    match verdict {
        Verdict::Faster { ratio, interval: range } => {
            said::Verdict::Faster { ratio: LogRatio(ratio.ln()), interval: interval(range) }
        }
        Verdict::Slower { ratio, interval: range } => {
            said::Verdict::Slower { ratio: LogRatio(ratio.ln()), interval: interval(range) }
        }
        Verdict::Equal { margin } => said::Verdict::Equal { margin },
        Verdict::NoDifferenceShown { detectable } => {
            said::Verdict::NoDifferenceShown { detectable }
        }
        Verdict::Undecided { more_rounds } => said::Verdict::Undecided { more_rounds },
        Verdict::Withheld { reason } => said::Verdict::Withheld { reason: withheld(reason) },
    }
}

fn withheld(reason: kept::Withheld) -> said::Withheld {
    match reason {
        kept::Withheld::Interrupted => said::Withheld::Interrupted,
        kept::Withheld::OutOfTime => said::Withheld::OutOfTime,
        kept::Withheld::Failed => said::Withheld::Failed,
        kept::Withheld::Unsteady => said::Withheld::Unsteady,
        kept::Withheld::FewRounds => said::Withheld::FewRounds,
    }
}

pub(crate) fn interval(interval: kept::Interval) -> said::Interval {
    said::Interval {
        low: LogRatio(interval.low.ln()),
        high: LogRatio(interval.high.ln()),
        level: interval.level,
    }
}

/// A comparison as the terminal says it: its name, the verdict, and what casts doubt on it.
pub(crate) fn finding(finding: &kept::Finding) -> said::Finding {
    let estimate = finding.estimate.map(|estimate| said::Estimate {
        ratio: LogRatio(estimate.ratio.ln()),
        interval: interval(estimate.interval),
        corrected: interval(estimate.corrected),
        bootstrap: interval(estimate.bootstrap),
        bootstrap_disagrees: estimate.bootstrap_disagrees,
        serial: said::serial::Serial {
            ratio: estimate.serial.ratio,
            correlation: estimate.serial.correlation,
            p_value: estimate.serial.p_value,
        },
        rounds_effective: estimate.rounds_effective,
        detectable: estimate.detectable,
    });
    said::Finding {
        name: finding.name.clone(),
        primary: finding.primary,
        estimate,
        verdict: verdict(finding.verdict),
    }
}

/// The same in two parts: what is compared, and what is said of it.
pub(crate) fn parted(read: &kept::Finding) -> (String, String) {
    let label = if read.primary { "" } else { "exploratory: " };
    let name = format!("{label}{}", read.name);
    let said = finding(read).to_string();
    let rest = said.strip_prefix(&name).and_then(|rest| rest.strip_prefix(": "));
    let rest = rest.unwrap_or(&said).to_owned();
    (name, rest)
}

pub(crate) fn moved(moved: kept::Moved) -> said::Moved {
    match moved {
        kept::Moved::Neither => said::Moved::Neither,
        kept::Moved::Machine => said::Moved::Machine,
        kept::Moved::System => said::Moved::System,
        kept::Moved::Both => said::Moved::Both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every verdict that there is, as the lab keeps it, comes back as it was and says the same.
    #[test]
    fn what_the_lab_keeps_is_said_in_its_words() {
        let range = said::Interval { low: LogRatio(-0.25), high: LogRatio(-0.125), level: 0.975 };
        let reasons = [
            said::Withheld::Interrupted,
            said::Withheld::OutOfTime,
            said::Withheld::Failed,
            said::Withheld::Unsteady,
            said::Withheld::FewRounds,
        ];
        let mut all = vec![
            said::Verdict::Faster { ratio: LogRatio(0.2), interval: range },
            said::Verdict::Slower { ratio: LogRatio(-0.19), interval: range },
            said::Verdict::Equal { margin: 0.05 },
            said::Verdict::NoDifferenceShown { detectable: 0.034 },
            said::Verdict::Undecided { more_rounds: 1 },
            said::Verdict::Undecided { more_rounds: 12 },
        ];
        all.extend(reasons.map(|reason| said::Verdict::Withheld { reason }));
        for expected in all {
            let json = serde_json::to_value(expected).expect("verdicts serialize");
            let read: kept::Verdict = serde_json::from_value(json).expect("what the lab writes");
            assert_eq!(verdict(read).to_string(), expected.to_string());
        }
    }

    #[test]
    fn what_casts_doubt_on_a_finding_is_said_too() {
        let range = kept::Interval { low: 0.5, high: 0.8, level: 0.95 };
        let read = kept::Finding {
            name: "p99 latency of a against b".to_owned(),
            primary: false,
            estimate: Some(kept::Estimate {
                ratio: 0.6,
                interval: range,
                corrected: range,
                bootstrap: range,
                bootstrap_disagrees: true,
                serial: kept::Serial { ratio: 0.8, correlation: 0.6, p_value: 0.01 },
                rounds_effective: 4.2,
                detectable: 0.3,
            }),
            verdict: kept::Verdict::Undecided { more_rounds: 3 },
        };
        assert_eq!(
            finding(&read).to_string(),
            "exploratory: p99 latency of a against b: undecided: needs about 3 more rounds; \
             rounds that followed each other were alike, so 4 of them say all; \
             a bootstrap says -50% to -20%, so look at the rounds"
        );
        let (name, said) = parted(&read);
        assert_eq!(name, "exploratory: p99 latency of a against b");
        assert!(said.starts_with("undecided: needs about 3 more rounds; "), "{said}");
    }

    #[test]
    fn who_moved_is_said_in_the_labs_words() {
        for expected in
            [said::Moved::Neither, said::Moved::Machine, said::Moved::System, said::Moved::Both]
        {
            let json = serde_json::to_value(expected).expect("it serializes");
            let read: kept::Moved = serde_json::from_value(json).expect("what the lab writes");
            assert_eq!(moved(read), expected);
        }
    }
}
