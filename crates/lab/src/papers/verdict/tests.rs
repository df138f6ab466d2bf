//! Each rule by small numbers, and by simulation that what is not so is not said more often than the level.

use block::Random;

use super::super::facts::RatioBound;
use super::*;
use crate::statistics::sample::Sample;

fn finding(direction: Claim) -> Finding {
    Finding {
        id: "f".to_owned(),
        metric: "throughput".to_owned(),
        a: "a".to_owned(),
        b: "b".to_owned(),
        direction,
        ratio: None,
        ratio_bound: None,
        margin: (direction == Claim::Equal).then_some(0.05),
        when: String::new(),
        precondition: String::new(),
        expect: String::new(),
        suspect: None,
    }
}

/// So sure of a ratio that its interval is so many percent to either side, of 20 rounds.
fn known(ratio: f64, percent: f64) -> Known {
    let error = (percent / 100.0).ln_1p() / 2.093;
    let precision = Precision { mean: ratio.ln(), error, freedom: 19.0, effective: 20.0 };
    Known { precision, rounds: 20, alpha: 0.05, difference: 0.1 }
}

fn answer(direction: Claim, known: Known) -> String {
    known.answer(&finding(direction), Quantifier::Every, 1).to_string()
}

#[test]
fn a_direction_is_the_side_of_one_on_which_all_of_the_interval_lies() {
    assert_eq!(answer(Claim::Above, known(1.2, 10.0)), "confirmed");
    assert_eq!(answer(Claim::Above, known(0.8, 10.0)), "refuted");
    assert_eq!(answer(Claim::Below, known(0.8, 10.0)), "confirmed");
    assert_eq!(answer(Claim::Below, known(1.2, 10.0)), "refuted");
    let small = answer(Claim::Above, known(1.02, 3.0));
    assert!(small.starts_with("no difference shown (could have seen 4."), "{small}");
    // 20 rounds see 28%, so 10% take about seven times as many.
    let wide = answer(Claim::Below, known(0.95, 20.0));
    assert!(wide.starts_with("undecided: needs about 1"), "{wide}");
}

#[test]
fn a_stricter_level_shows_less() {
    let one = known(1.12, 10.0);
    assert_eq!(answer(Claim::Above, one), "confirmed");
    let strict = answer(Claim::Above, Known { alpha: 0.05 / 20.0, ..one });
    assert!(strict.starts_with("undecided"), "{strict}");
}

#[test]
fn equality_is_two_one_sided_tests_within_the_margin() {
    assert_eq!(answer(Claim::Equal, known(1.01, 2.0)), "confirmed");
    assert_eq!(answer(Claim::Equal, known(0.99, 2.0)), "confirmed");
    assert_eq!(answer(Claim::Equal, known(1.08, 2.0)), "refuted");
    assert_eq!(answer(Claim::Equal, known(0.92, 2.0)), "refuted");
    // The interval of 90% is narrower: 4.6% to either side are 3.8% of it, which fit into the margin.
    assert_eq!(answer(Claim::Equal, known(1.0, 4.6)), "confirmed");
    let open = answer(Claim::Equal, known(1.03, 5.0));
    assert!(open.starts_with("undecided: needs about"), "{open}");
    let on_it = answer(Claim::Equal, known(1.05, 3.0));
    assert_eq!(on_it, "undecided: it lies too near to the margin for any number of rounds");
}

#[test]
fn a_margin_is_a_share_of_b_on_either_side() {
    let sure = |ratio: f64| answer(Claim::Equal, known(ratio, 1e-6));
    assert_eq!((sure(0.9501), sure(1.0499)), ("confirmed".to_owned(), "confirmed".to_owned()));
    // Not from 1/1.05, as the lab's own margins are.
    assert_eq!((sure(0.9499), sure(1.0501)), ("refuted".to_owned(), "refuted".to_owned()));
}

#[test]
fn a_size_agrees_where_the_interval_meets_the_paper_or_a_tenth_around_it() {
    let size = |ratio: Ratio, known: Known| {
        known.size(&Finding { ratio: Some(ratio), ..finding(Claim::Above) }).expect("a size")
    };
    let (one, span) = (Ratio::One(1.2), Ratio::Span([3.0, 4.0]));
    assert_eq!(size(one, known(1.2, 1.0)), Size::Agrees);
    assert_eq!(size(one, known(1.09, 0.5)), Size::Agrees, "1.08 is a tenth less");
    assert_eq!(size(one, known(1.06, 1.0)), Size::Smaller);
    assert_eq!(size(one, known(1.36, 1.0)), Size::Larger);
    assert_eq!(size(one, known(1.0, 30.0)), Size::Agrees, "it meets it");
    assert_eq!(size(span, known(3.5, 1.0)), Size::Agrees);
    assert_eq!(size(span, known(2.5, 1.0)), Size::Smaller);
    assert_eq!(size(span, known(4.5, 1.0)), Size::Larger);
    let least = |known: Known| {
        let ratio_bound = Some(RatioBound::AtLeast);
        known.size(&Finding { ratio: Some(one), ratio_bound, ..finding(Claim::Above) })
    };
    assert_eq!(least(known(1.5, 5.0)), Some(Size::Agrees), "as far above as it is");
    assert_eq!(least(known(1.15, 2.0)), Some(Size::Smaller), "a tenth is not at least");
    assert_eq!(least(known(1.2, 5.0)), Some(Size::Open));
    assert_eq!(
        known(1.0, 1.0).size(&finding(Claim::Above)),
        None,
        "without a number there is none"
    );
    let none = Finding { ratio: Some(Ratio::One(0.0)), ..finding(Claim::Below) };
    assert_eq!(known(1.0, 1.0).size(&none), None, "nothing has no ratio");
}

fn words(judge: Quantifier, answers: &str) -> String {
    let answer = |letter: char| match letter {
        'c' => Answer::Confirmed,
        'r' => Answer::Refuted,
        'n' => Answer::NoDifferenceShown { detectable: 0.04 },
        'u' => Answer::Undecided { more_rounds: Some(12), because: None },
        _ => Answer::undecided("it was left out"),
    };
    let answers: Vec<Answer> = answers.chars().map(answer).collect();
    together(judge, &answers).to_string()
}

#[test]
fn every_most_and_a_few_count_cells() {
    use Quantifier::{AFew, Every, Most};
    for (judge, answers, expected) in [
        (Every, "ccc", "confirmed"),
        (Every, "ccr", "refuted"),
        (Every, "ccn", "no difference shown (could have seen 4.0%)"),
        (Every, "cnu", "undecided: needs about 12 more rounds"),
        (Every, "cu-", "undecided: it was left out"),
        (Every, "r--", "refuted"),
        (Most, "ccr", "confirmed"),
        (Most, "ccrr", "refuted"),
        (Most, "crr", "refuted"),
        (Most, "cun", "undecided: needs about 12 more rounds"),
        (Most, "cc-", "confirmed"),
        (AFew, "crr", "confirmed"),
        (AFew, "rrr", "refuted"),
        (AFew, "rrn", "no difference shown (could have seen 4.0%)"),
        (AFew, "r-", "undecided: it was left out"),
    ] {
        assert_eq!(words(judge, answers), expected, "{judge:?} {answers}");
    }
}

#[test]
fn a_mean_is_geometric_and_as_well_known_as_its_parts_together() {
    let parts = [(1, known(2.0, 10.0)), (1, known(0.5, 10.0))];
    let mean = Known::mean(&parts, 0.05).expect("two");
    assert!(mean.precision.mean.abs() < 1e-12, "{mean:?}");
    let expected = parts[0].1.precision.error / 2.0_f64.sqrt();
    assert!((mean.precision.error - expected).abs() < 1e-12);
    // A part that stands for three cells has three quarters of the weight.
    let mean = Known::mean(&[(3, known(2.0, 10.0)), (1, known(0.5, 10.0))], 0.05).expect("two");
    assert!((mean.precision.mean - 0.5 * 2.0_f64.ln()).abs() < 1e-12);
    assert!(Known::mean(&[], 0.05).is_none());
}

#[test]
fn each_answer_has_its_words() {
    let because = || "of this".to_owned();
    let said = |word| Answer::of_word(word, because()).to_string();
    assert_eq!(said(Word::AnalogueOnly), "analogue only: of this");
    assert_eq!(said(Word::NotBuilt), "not built: of this");
    assert_eq!(said(Word::CannotBeTested), "cannot be tested here, because of this");
    assert_eq!(said(Word::NotRerunYet), "not rerun yet: of this");
    let one = Answer::Undecided { more_rounds: Some(1), because: None };
    assert_eq!(one.to_string(), "undecided: needs about 1 more round");
}

/// Normal noise by Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let unit =
        |random: &mut Random| ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    let (one, other) = (unit(random), unit(random));
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

/// How often of 2,000 findings, whose cells have these ratios, something is said.
fn how_often(claim: Claim, judge: Quantifier, truths: &[f64], seed: u64) -> (f64, f64) {
    const FINDINGS: usize = 2_000;
    let (mut random, finding) = (Random::new(seed), finding(claim));
    let (mut confirmed, mut refuted) = (0, 0);
    for _ in 0..FINDINGS {
        let mut cell = |truth: &f64| {
            let logs: Vec<f64> = (0..12).map(|_| truth.ln() + 0.03 * normal(&mut random)).collect();
            let sample = Sample::of(&logs).expect("twelve");
            // As corrected by Bonferroni among the cells, which are the family.
            let alpha = ALPHA / truths.len() as f64;
            Known { precision: sample.guarded(), rounds: 12, alpha, difference: 0.1 }
        };
        let cells: Vec<Known> = truths.iter().map(&mut cell).collect();
        let said = match judge {
            Quantifier::Mean => {
                let parts: Vec<(usize, Known)> = cells.iter().map(|cell| (1, *cell)).collect();
                Known::mean(&parts, ALPHA).expect("cells").answer(&finding, judge, 1)
            }
            _ => {
                let count = cells.len();
                let each = cells.iter().map(|cell| cell.answer(&finding, judge, count));
                together(judge, &each.collect::<Vec<Answer>>())
            }
        };
        confirmed += usize::from(said == Answer::Confirmed);
        refuted += usize::from(said == Answer::Refuted);
    }
    let share = |count: usize| count as f64 / FINDINGS as f64;
    (share(confirmed), share(refuted))
}

#[test]
fn a_true_null_is_confirmed_or_refuted_no_more_often_than_the_level() {
    use Quantifier::{AFew, Every, Mean, Most};
    // Of 2,000 findings at 5%, a tenth more is two standard errors.
    let most = ALPHA * 1.2;
    for (seed, judge) in [(1, Every), (2, Most), (3, AFew), (4, Mean)] {
        for cells in [1, 2, 4] {
            let null = vec![1.0; cells];
            let (confirmed, refuted) = how_often(Claim::Above, judge, &null, seed);
            assert!(confirmed + refuted <= most, "{judge:?} {cells}: {confirmed} {refuted}");
        }
    }
}

#[test]
fn what_lies_on_the_margin_is_called_equal_or_unequal_no_more_often_than_the_level() {
    use Quantifier::{AFew, Every, Mean, Most};
    let most = ALPHA * 1.2;
    for (seed, judge) in [(5, Every), (6, Most), (7, AFew), (8, Mean)] {
        for cells in [1, 2, 4] {
            for edge in [0.95, 1.05] {
                let (confirmed, refuted) = how_often(Claim::Equal, judge, &vec![edge; cells], seed);
                assert!(confirmed <= most, "{judge:?} {cells}, at {edge}: confirmed {confirmed}");
                assert!(refuted <= most, "{judge:?} {cells}, at {edge}: refuted {refuted}");
            }
        }
    }
    // One cell beyond the margin, all others equal: that is not every cell.
    let (confirmed, _) = how_often(Claim::Equal, Every, &[1.0, 1.0, 1.0, 1.05], 9);
    assert!(confirmed <= most, "{confirmed}");
}

#[test]
fn what_is_there_is_found() {
    let (confirmed, _) = how_often(Claim::Above, Quantifier::Every, &[1.2, 1.2], 10);
    let (_, refuted) = how_often(Claim::Above, Quantifier::Every, &[1.2, 0.85], 11);
    let (equal, _) = how_often(Claim::Equal, Quantifier::Every, &[1.0, 1.0], 12);
    let (_, unequal) = how_often(Claim::Equal, Quantifier::Every, &[1.0, 1.2], 13);
    for share in [confirmed, refuted, equal, unequal] {
        assert!(share >= 0.8, "{confirmed} {refuted} {equal} {unequal}");
    }
}
