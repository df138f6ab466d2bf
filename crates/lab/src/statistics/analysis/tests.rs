//! Series whose verdicts are known, and what is said of them.

use super::*;
use crate::statistics::plan::tests::plan;

/// Rounds of three systems: the first one's value is 1, the others' are e to what is given.
fn taken(second: &[f64], third: &[f64]) -> Taken {
    let rounds = second.iter().zip(third).map(|(b, c)| vec![1.0, b.exp(), c.exp()]).collect();
    Taken {
        rounds,
        unsteady_rounds: Vec::new(),
        unsteady_trials: vec![0; 3],
        run: second.len(),
        planned: second.len(),
        sizing: None,
        withheld: None,
    }
}

/// Ten values around a mean that show no likeness of neighbours; their deviation is about `spread`.
fn around(mean: f64, spread: f64) -> Vec<f64> {
    let shape = [-0.9, 1.1, -0.2, 0.4, -1.6, 0.7, -0.5, 1.5, 0.1, -0.6];
    shape.iter().map(|value| mean + spread * value).collect()
}

fn said(second: &[f64], third: &[f64]) -> Vec<String> {
    let analysis = analyse(&plan(3), &taken(second, third));
    analysis.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn each_verdict_is_said_where_it_holds() {
    let said = |mean, spread| said(&around(mean, spread), &around(0.0, 0.01)).remove(0);
    assert_eq!(said(0.2, 0.05), "system 1: faster by 22% (17% to 27%)");
    assert_eq!(said(-0.2, 0.05), "system 1: slower by 18% (15% to 21%)");
    assert_eq!(said(0.0, 0.05), "system 1: equal within 10%");
    assert_eq!(said(0.06, 0.086), "system 1: no difference shown (could have seen 9.7%)");
    assert_eq!(said(0.0, 0.3), "system 1: undecided: needs about 86 more rounds");
}

/// What is said where the second system has a bound.
fn bounded(bound: Bound, better: Better, mean: f64, spread: f64) -> Finding {
    let mut plan = plan(2);
    (plan.comparisons[0].bound, plan.comparisons[0].better) = (Some(bound), better);
    let second = around(mean, spread);
    analyse(&plan, &taken(&second, &second)).findings.remove(0)
}

#[test]
fn a_bound_is_read_off_an_interval_of_which_each_end_has_its_level() {
    let said = |mean| bounded(Bound::AtLeast(0.9), Better::Higher, mean, 0.05).to_string();
    assert_eq!(said(0.0), "system 1: at least 0.9 times: held (0.973 to 1.03)");
    assert_eq!(said(-0.2), "system 1: at least 0.9 times: not held (0.796 to 0.842)");
    let open = said(-0.1);
    assert!(
        open.starts_with(
            "system 1: at least 0.9 times: open: between 0.880 and 0.930; needs about"
        ),
        "{open}"
    );
    let drawn = bounded(Bound::AtLeast(0.9), Better::Higher, 0.0, 0.05).estimate.unwrap().corrected;
    assert_eq!(drawn.level, 0.9);
    // On it, whatever more one runs.
    let on_it = bounded(Bound::AtMost(1.0), Better::Higher, 0.0, 0.05).to_string();
    assert!(on_it.ends_with("too near to the bound for any number of rounds"), "{on_it}");
}

#[test]
fn a_bound_is_on_values_and_not_on_who_is_better() {
    // Values of about 1.22 times the reference's.
    for better in [Better::Higher, Better::Lower, Better::Cheaper] {
        let said = |bound| bounded(bound, better, 0.2, 0.05).to_string();
        let held = "system 1: at most 1.3 times: held (1.19 to 1.26)";
        assert_eq!(said(Bound::AtMost(1.3)), held);
        assert!(said(Bound::AtMost(1.1)).contains("at most 1.1 times: not held (1.19 to 1.26)"));
        assert!(said(Bound::AtLeast(1.1)).contains("held (1.19 to 1.26)"));
    }
}

#[test]
fn bounds_and_differences_are_one_family() {
    let mut plan = plan(3);
    plan.comparisons[1].bound = Some(Bound::AtLeast(0.9));
    let weak = around(0.0225, 0.03);
    let level = |third: &[f64], at: usize| {
        let findings = analyse(&plan, &taken(&weak, third)).findings;
        findings[at].estimate.expect("ten rounds").corrected.level
    };
    let near = 0.9_f64.ln();
    assert!((level(&around(near, 0.03), 0) - 0.975).abs() < 1e-9, "the bound is open");
    assert!((level(&around(near, 0.03), 1) - 0.95).abs() < 1e-9, "each end at 2.5%");
    assert!((level(&around(0.3, 0.03), 0) - 0.95).abs() < 1e-9, "it is held, and one is left");
    plan.comparisons[1].primary = false;
    let findings = analyse(&plan, &taken(&weak, &around(0.0, 0.03))).findings;
    let level = |at: usize| findings[at].estimate.expect("ten rounds").corrected.level;
    assert_eq!((level(0), level(1)), (0.95, 0.9), "corrected for nothing");
}

#[test]
fn what_was_stopped_says_of_a_bound_what_was_asked() {
    let mut plan = plan(2);
    plan.comparisons[0].bound = Some(Bound::AtMost(1.15));
    let second = around(0.0, 0.05);
    let mut stopped = taken(&second, &second);
    stopped.withheld = Some(Withheld::Interrupted);
    let said = analyse(&plan, &stopped).findings[0].to_string();
    let expected = "system 1: at most 1.15 times: no verdict: it was stopped before its last round";
    assert_eq!(said, expected);
}

#[test]
fn holm_shows_what_bonferroni_does_not_and_draws_it_so() {
    // p values of about 0.03: at half of 5% it is not shown, once the other one is.
    let weak = around(0.0225, 0.03);
    let beside = |third: &[f64]| analyse(&plan(3), &taken(&weak, third)).findings;
    let alone = beside(&around(0.0, 0.03)).remove(0);
    assert!(!alone.verdict.is_difference(), "{alone}");
    let after = beside(&around(0.3, 0.03)).remove(0);
    assert!(after.verdict.is_difference(), "{after}");
    for finding in [alone, after] {
        let drawn = finding.estimate.expect("ten rounds").corrected;
        assert_eq!(drawn.excludes_equal(), finding.verdict.is_difference(), "{finding}");
    }
}

#[test]
fn an_exploratory_comparison_is_labelled_and_costs_the_others_nothing() {
    let mut plan = plan(3);
    plan.comparisons[1].primary = false;
    let findings = analyse(&plan, &taken(&around(0.2, 0.05), &around(0.2, 0.05))).findings;
    assert!(findings[1].to_string().starts_with("exploratory: system 2: faster"));
    let level = |at: usize| findings[at].estimate.expect("ten rounds").corrected.level;
    assert_eq!((level(0), level(1)), (0.95, 0.95));
}

#[test]
fn rounds_that_are_alike_widen_the_interval_and_are_told() {
    let mut sorted = around(0.1, 0.05);
    let apart = analyse(&plan(3), &taken(&sorted, &sorted)).findings.remove(0);
    sorted.sort_by(f64::total_cmp);
    let alike = analyse(&plan(3), &taken(&sorted, &sorted)).findings.remove(0);
    assert!(apart.verdict.is_difference() && !alike.verdict.is_difference(), "{apart}, {alike}");
    assert!(alike.to_string().contains("were alike"), "{alike}");
    let width = |finding: &Finding| {
        let interval = finding.estimate.expect("ten rounds").interval;
        interval.high.0 - interval.low.0
    };
    assert!(width(&alike) > 2.0 * width(&apart));
}

#[test]
fn a_bootstrap_that_disagrees_is_told() {
    let mut stalled = around(0.0, 0.01);
    stalled[3] = 0.9;
    let finding = analyse(&plan(3), &taken(&stalled, &stalled)).findings.remove(0);
    assert!(finding.to_string().contains("a bootstrap says -"), "{finding}");
    let mut plan = plan(3);
    plan.comparisons[0].bound = Some(Bound::AtLeast(0.5));
    let bounded = analyse(&plan, &taken(&stalled, &stalled)).findings.remove(0);
    assert!(bounded.to_string().contains("a bootstrap says otherwise, so look"), "{bounded}");
}

#[test]
fn what_was_stopped_has_intervals_and_no_verdict() {
    let mut stopped = taken(&around(0.2, 0.05), &around(0.2, 0.05));
    stopped.withheld = Some(Withheld::Interrupted);
    let finding = analyse(&plan(3), &stopped).findings.remove(0);
    assert!(finding.estimate.expect("ten rounds").interval.excludes_equal());
    assert!(finding.to_string().ends_with("no verdict: it was stopped before its last round"));
    stopped.rounds.truncate(1);
    let analysis = analyse(&plan(3), &stopped);
    assert_eq!((analysis.findings[0].estimate, analysis.rounds_used), (None, 1));
    stopped.withheld = None;
    let said = analyse(&plan(3), &stopped).findings[0].to_string();
    assert_eq!(said, "system 1: no verdict: there are fewer than two steady rounds");
}

#[test]
fn of_too_many_unsteady_rounds_all_are_shown() {
    let mut unsteady = taken(&around(0.2, 0.05), &around(0.2, 0.05));
    unsteady.unsteady_rounds = unsteady.rounds.split_off(4);
    assert_eq!(
        analyse(&plan(3), &unsteady).rounds_used,
        4,
        "those that stay unsteady do not count"
    );
    unsteady.withheld = Some(Withheld::Unsteady);
    unsteady.run = 16;
    unsteady.unsteady_trials = vec![0, 12, 0];
    let analysis = analyse(&plan(3), &unsteady);
    assert_eq!((analysis.rounds_used, analysis.rounds_unsteady), (10, 6));
    let said = analysis.to_string();
    assert!(
        said.ends_with(
            "; 6 of 16 rounds run stayed unsteady; unsteady trials of each system: 0, 12, 0"
        ),
        "{said}"
    );
    assert_eq!(analysis.findings[0].verdict, Verdict::Withheld { reason: Withheld::Unsteady });
}

#[test]
fn json_has_ratios_and_a_verdict_by_name() {
    let analysis = analyse(&plan(3), &taken(&around(0.2, 0.05), &around(0.0, 0.05)));
    let json = serde_json::to_value(&analysis).expect("numbers and names");
    let first = &json["findings"][0];
    assert_eq!(first["verdict"]["kind"], "faster");
    assert_eq!(first["estimate"]["ratio"], first["verdict"]["ratio"]);
    assert_eq!(json["findings"][1]["verdict"]["kind"], "equal");
}

#[test]
fn plans_that_are_analysed_together_share_one_family() {
    let plan = plan(3);
    let weak = taken(&around(0.025, 0.03), &around(0.0, 0.03));
    let strong = taken(&around(0.3, 0.03), &around(0.3, 0.03));
    let levels = |others: &[&Taken]| {
        let mut parts = vec![(&plan, &weak)];
        parts.extend(others.iter().map(|other| (&plan, *other)));
        let first = analyse_together(&parts).remove(0);
        first.findings[0].estimate.expect("ten rounds").corrected.level
    };
    assert!((levels(&[]) - 0.975).abs() < 1e-9, "of two");
    assert!((levels(&[&weak]) - 0.9875).abs() < 1e-9, "of four, none of which is shown");
    assert!((levels(&[&strong]) - 0.975).abs() < 1e-9, "of two that are left");
}

#[test]
fn who_was_stopped_shows_nothing_beside_those_who_were_not() {
    let plan = plan(3);
    let weak = taken(&around(0.0225, 0.03), &around(0.0, 0.03));
    let mut stopped = taken(&around(0.3, 0.03), &around(0.3, 0.03));
    stopped.withheld = Some(Withheld::Interrupted);
    let both = analyse_together(&[(&plan, &weak), (&plan, &stopped)]);
    let level = |part: usize| both[part].findings[0].estimate.expect("ten rounds").corrected.level;
    assert!((level(0) - 0.9875).abs() < 1e-9 && (level(1) - 0.9875).abs() < 1e-9);
    assert!(!both[0].findings[0].verdict.is_difference());
    assert!(both[1].findings[0].to_string().contains("no verdict"));
}

#[test]
fn what_casts_doubt_on_a_finding_is_said_too() {
    let range = Interval { low: LogRatio(0.5_f64.ln()), high: LogRatio(0.8_f64.ln()), level: 0.95 };
    let finding = Finding {
        name: "p99 latency of a against b".to_owned(),
        primary: false,
        bound: None,
        is_cost: false,
        estimate: Some(Estimate {
            ratio: LogRatio(0.6_f64.ln()),
            interval: range,
            corrected: range,
            bootstrap: range,
            bootstrap_disagrees: true,
            serial: Serial { ratio: 0.8, correlation: 0.6, p_value: 0.01 },
            rounds_effective: 4.2,
            detectable: 0.3,
        }),
        verdict: Verdict::Undecided { more_rounds: 3 },
    };
    assert_eq!(
        finding.to_string(),
        "exploratory: p99 latency of a against b: undecided: needs about 3 more rounds; \
         rounds that followed each other were alike, so 4 of them say all; \
         a bootstrap says -50% to -20%, so look at the rounds"
    );
    let (name, said) = (finding.label(), finding.said());
    assert_eq!(name, "exploratory: p99 latency of a against b");
    assert!(said.starts_with("undecided: needs about 3 more rounds; "), "{said}");
}
