//! A shuffle of the numbers below a bound that needs no memory: each number goes to one place, and to
//! each place goes one.
//!
//! Numbers of as many bits as the bound has are mixed by steps that can all be undone (a sum, an odd
//! factor, a number shifted onto itself), so that no two meet; one that lands beyond the bound is mixed
//! again until it does not ("cycle walking", Black and Rogaway 2002). Less than half lie beyond, so a
//! number is mixed twice at most on average. Errors: none. Not for secrets.

use block::Random;

/// One of many orders of the numbers below a bound.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    bound: u64,
    mask: u64,
    shift: u32,
    /// A sum and an odd factor for each step.
    keys: [(u64, u64); STEPS],
}

/// Each bit must reach every other, down by the shift and up by the factor; one step more than that.
const STEPS: usize = 3;

impl Scatter {
    /// The order that `random` draws; the bound must not be 0.
    pub(super) fn new(bound: u64, random: &mut Random) -> Scatter {
        assert!(bound > 0, "no number lies below 0");
        let bits = 64 - (bound - 1).leading_zeros();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let keys = [(); STEPS].map(|()| (random.next_u64(), random.next_u64() | 1));
        Scatter { bound, mask, shift: bits.div_ceil(2).max(1), keys }
    }

    /// Where a number below the bound goes, which is below the bound as well.
    #[inline]
    pub(super) fn at(&self, number: u64) -> u64 {
        let mut place = self.mixed(number);
        while place >= self.bound {
            place = self.mixed(place);
        }
        place
    }

    #[inline]
    fn mixed(&self, number: u64) -> u64 {
        self.keys.iter().fold(number, |number, (sum, factor)| {
            let number = number.wrapping_add(*sum).wrapping_mul(*factor) & self.mask;
            number ^ (number >> self.shift)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_and_every_place_a_number() {
        for bound in [1, 2, 3, 4, 5, 31, 32, 33, 1000, 4096, 65_537] {
            let scatter = Scatter::new(bound, &mut Random::new(bound));
            let mut places: Vec<u64> = (0..bound).map(|number| scatter.at(number)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..bound), "bound {bound}");
        }
    }

    #[test]
    fn neighbours_are_not_neighbours_and_seeds_differ() {
        let bound = 1_000_000;
        let scatter = |seed| Scatter::new(bound, &mut Random::new(seed));
        for seed in 0..20 {
            let (one, other) = (scatter(seed), scatter(seed + 1));
            let near = (1..1000).filter(|n| one.at(*n).abs_diff(one.at(n - 1)) < 1000).count();
            // By chance two of a thousand pairs.
            assert!(near < 40, "seed {seed}: {near} of 999 pairs are within 1000");
            let same = (0..1000).filter(|number| one.at(*number) == other.at(*number)).count();
            assert!(same < 5, "seeds {seed} and the next: {same} of 1000 places are the same");
        }
    }

    #[test]
    fn a_part_of_the_numbers_lies_all_over() {
        // The first tenth of the numbers, in 64 equal stretches: a chi-square of 63 degrees.
        let bound = 640_000;
        for seed in 0..10 {
            let scatter = Scatter::new(bound, &mut Random::new(seed));
            let mut counts = [0_u32; 64];
            (0..64_000).for_each(|number| counts[(scatter.at(number) / 10_000) as usize] += 1);
            let square: f64 =
                counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
            assert!(square < 140.0, "seed {seed}: chi-square {square:.0} of 63 degrees");
        }
    }

    #[test]
    fn the_largest_bound_works() {
        let scatter = Scatter::new(u64::MAX, &mut Random::new(1));
        assert_ne!(scatter.at(1), scatter.at(2));
    }
}
