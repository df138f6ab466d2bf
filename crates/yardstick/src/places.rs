//! Which place of a disk is asked for next: at random, or one after the other.
//!
//! A place is as large as a command's data. Filling takes each once and then none, at random in an
//! order that was drawn before.

use crate::Measure;

pub(crate) struct Places {
    count: u64,
    is_random: bool,
    once: bool,
    /// The order in which a disk is filled at random; else empty.
    order: Vec<u64>,
    next: u64,
    random: Random,
}

/// Random numbers, the same ones for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed << 32 | 1))
    }

    /// One below `count`.
    #[inline]
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        // xorshift64*: cheap, and even enough to spread accesses.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        // The high half times the number of places: no division.
        ((u128::from(bits) * u128::from(count)) >> 64) as u64
    }
}

impl Places {
    /// Those of load `number`, which draws others than its neighbours.
    pub(crate) fn new(count: u64, measure: &Measure, number: u64) -> Self {
        let mut places = Self {
            count,
            is_random: measure.rw.is_random && !measure.fill,
            once: measure.fill,
            order: Vec::new(),
            next: 0,
            random: Random::new(number),
        };
        if measure.fill && measure.rw.is_random {
            places.shuffle();
        }
        places
    }

    /// Draws an order of all places: each with one of those up to itself changes places.
    fn shuffle(&mut self) {
        self.order = (0..self.count).collect();
        for at in (1..self.order.len()).rev() {
            let other = self.draw(at as u64 + 1);
            self.order.swap(at, other as usize);
        }
    }

    /// A random number below `count`.
    #[inline]
    pub(crate) fn draw(&mut self, count: u64) -> u64 {
        self.random.below(count)
    }

    /// The next one; none when each had its turn and that is enough.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.is_random {
            return Some(self.draw(self.count));
        }
        if self.next == self.count {
            if self.once {
                return None;
            }
            self.next = 0;
        }
        self.next += 1;
        let place = self.next - 1;
        Some(self.order.get(place as usize).copied().unwrap_or(place))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        measure: Measure,
    }

    fn places(count: u64, words: &[&str]) -> Places {
        let line = Line::parse_from(std::iter::once(&"places").chain(words));
        Places::new(count, &line.measure, 0)
    }

    #[test]
    fn a_fill_takes_each_place_once_in_order_or_at_random() {
        let all = |words: &[&str]| {
            let mut places = places(1000, words);
            std::iter::from_fn(move || places.next()).collect::<Vec<_>>()
        };
        assert!(all(&["--fill", "--rw=write"]).into_iter().eq(0..1000));
        let mut mixed = all(&["--fill", "--rw=randwrite"]);
        let neighbours = mixed.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!(neighbours < 10, "{neighbours} are where they were");
        mixed.sort_unstable();
        assert!(mixed.into_iter().eq(0..1000));
    }

    #[test]
    fn a_load_without_end_stays_within_its_places() {
        for words in ["--rw=randread", "--rw=write"] {
            let mut places = places(10, &[words]);
            assert!((0..100).all(|_| places.next().is_some_and(|place| place < 10)), "{words}");
        }
    }
}
