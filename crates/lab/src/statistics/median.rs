//! The middle of values, which no single strange one of them moves.

/// The value in the middle, or between the two that are; values that are not finite are left out.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(sorted[low].midpoint(sorted[high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_an_even_count_lies_between_two() {
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        assert_eq!(median(&[f64::NAN, 3.0, f64::INFINITY, 1.0, -f64::NAN]), Some(2.0));
        assert_eq!(median(&[f64::NAN, f64::NEG_INFINITY]), None);
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }
}
