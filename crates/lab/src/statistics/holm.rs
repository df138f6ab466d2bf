//! At which level the interval of each primary comparison is drawn, so that intervals and Holm's
//! test say the same.
//!
//! All intervals are Bonferroni's, which hold together (each misses in alpha / m). Holm's test
//! (1979) never shows less than Bonferroni's and sometimes more; a comparison that it alone shows
//! is drawn at the level of the step that showed it (Serlin 1993, Ludbrook 2000). So an interval
//! excludes "equal" exactly where Holm's test does, and verdicts are read off the intervals.
//! Intervals that hold together strictly *and* agree with Holm's test exist, but are unbounded as
//! soon as one comparison is not shown (Guilbaud 2008, Strassburger and Bretz 2008): nothing to
//! draw. What ours lose is measured in `calibration`.

/// The level of each comparison, by their p values; `shows` is whether the interval of a comparison
/// at a level excludes "equal".
pub(super) fn levels(p_values: &[f64], alpha: f64, shows: impl Fn(usize, f64) -> bool) -> Vec<f64> {
    let count = p_values.len();
    let together = alpha / count as f64;
    let mut levels = vec![together; count];
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    for (shown, comparison) in order.into_iter().enumerate() {
        let step = alpha / (count - shown) as f64;
        if !shows(comparison, step) {
            break;
        }
        if !shows(comparison, together) {
            levels[comparison] = step;
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(p_values: &[f64]) -> Vec<f64> {
        levels(p_values, 0.06, |comparison, level| p_values[comparison] <= level)
    }

    #[test]
    fn what_only_holm_shows_has_the_level_of_its_step() {
        // Steps of three: 0.02, 0.03, 0.06.
        assert_eq!(of(&[0.05, 0.001, 0.025]), [0.06, 0.02, 0.03]);
    }

    #[test]
    fn after_the_first_that_is_not_shown_none_is() {
        assert_eq!(of(&[0.05, 0.001, 0.035]), [0.02, 0.02, 0.02]);
        assert_eq!(of(&[0.021]), [0.06]);
    }
}
