//! The law of Zipf over `n` ranks: rank `k`, from 1 on, is drawn as often as `k` to the power of
//! minus theta.
//!
//! By rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996): the area below the curve is inverted, and
//! what falls between the curve and its steps is drawn again, which is seldom. Time and memory do not
//! depend on `n`, nothing is tabled, and theta may be 1. Units: ranks. Errors: none.

use std::ops::RangeInclusive;

use block::Random;

/// The thetas that are taken: below, it is as good as even; above, one block is all there is.
pub const THETAS: RangeInclusive<f64> = 0.01..=10.0;

/// A source of ranks.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    theta: f64,
    ranks: f64,
    /// The area up to behind the first rank, without the whole step of the first, and up to the end.
    area_first: f64,
    area_end: f64,
    /// How far below a rank nothing is to be asked.
    sure: f64,
}

impl Zipf {
    /// Ranks 1 to `ranks`, which must not be 0.
    pub(super) fn new(ranks: u64, theta: f64) -> Zipf {
        assert!(ranks > 0 && THETAS.contains(&theta), "{ranks} ranks, theta {theta}");
        let mut zipf =
            Zipf { theta, ranks: ranks as f64, area_first: 0.0, area_end: 0.0, sure: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_end = zipf.area(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// The next rank.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            // 53 bits.
            let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let area = self.area_end + uniform * (self.area_first - self.area_end);
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.sure || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }

    /// The curve: `x` to the power of minus theta.
    fn height(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The area below the curve from 1 to `x`: `(x^(1-theta) - 1) / (1 - theta)`, and `ln x` where
    /// theta is 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.theta) * log) * log
    }

    /// Up to where the area below the curve is this.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding must not take it below -1, where the logarithm ends.
        let scaled = ((1.0 - self.theta) * area).max(-1.0);
        (ln1p_over(scaled) * area).exp()
    }
}

/// `(e^x - 1) / x`, which is 1 at 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`, which is 1 at 0.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How likely each rank is.
    fn law(ranks: u64, theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=ranks).map(|rank| (rank as f64).powf(-theta)).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        const DRAWS: u32 = 200_000;
        for ranks in [1, 2, 10, 1000] {
            for theta in [0.01, 0.5, 0.9, 0.999_999, 1.0, 1.000_001, 1.2, 2.0, 5.0, 10.0] {
                let (zipf, mut random) = (Zipf::new(ranks, theta), Random::new(7));
                let mut counts = vec![0_u32; ranks as usize];
                for _ in 0..DRAWS {
                    counts[zipf.draw(&mut random) as usize - 1] += 1;
                }
                let (square, degrees) = chi_square(&counts, &law(ranks, theta), DRAWS);
                // Five standard deviations above the mean of a chi-square.
                let bound = degrees + 5.0 * (2.0 * degrees).sqrt() + 10.0;
                assert!(
                    square < bound,
                    "{ranks} ranks, theta {theta}: chi-square {square:.1} of {degrees} degrees"
                );
            }
        }
    }

    /// Ranks that come seldom are judged together.
    fn chi_square(counts: &[u32], law: &[f64], draws: u32) -> (f64, f64) {
        let (mut square, mut cells, mut rest) = (0.0, 0.0, (0.0, 0.0));
        for (count, share) in counts.iter().zip(law) {
            let expected = share * f64::from(draws);
            rest = (rest.0 + f64::from(*count), rest.1 + expected);
            if rest.1 >= 10.0 {
                square += (rest.0 - rest.1).powi(2) / rest.1;
                cells += 1.0;
                rest = (0.0, 0.0);
            }
        }
        (square, f64::max(cells - 1.0, 0.0))
    }

    #[test]
    fn many_ranks_are_as_fast_and_as_right() {
        // Of 2^40 ranks at theta 1, half of all draws are below the square root of 2^40.
        let (zipf, mut random) = (Zipf::new(1 << 40, 1.0), Random::new(3));
        let low = (0..20_000).filter(|_| zipf.draw(&mut random) <= 1 << 20).count();
        let harmonic = |n: f64| n.ln() + 0.577_215_664_9;
        let wanted = 20_000.0 * harmonic(f64::from(1 << 20)) / harmonic((1_u64 << 40) as f64);
        assert!((low as f64 - wanted).abs() < 400.0, "{low}, expected {wanted:.0}");
        for theta in [0.01, 1.0, 10.0] {
            let zipf = Zipf::new(u64::MAX >> 11, theta);
            assert!((0..1000).all(|_| (1..=u64::MAX >> 11).contains(&zipf.draw(&mut random))));
        }
    }
}
