//! In which order a round runs the systems: drawn by the seed, and balanced over a block of rounds.
//!
//! A block is a Williams design (1949): each system stands at each place equally often, and follows
//! each other one equally often. An even number of systems needs as many rounds for that, an odd
//! one twice as many. Which system is which of the design, and which row comes when, is drawn anew
//! for each block.

use block::Random;

/// How many rounds balance so many systems.
pub fn block_rounds(systems: usize) -> usize {
    if systems.is_multiple_of(2) { systems } else { 2 * systems }
}

/// The orders of one block of rounds.
pub fn block(systems: usize, random: &mut Random) -> Vec<Vec<usize>> {
    // 0, 1, n-1, 2, n-2 ...: neighbours differ by each step once.
    let zigzag = |place: usize| {
        if place.is_multiple_of(2) { (systems - place / 2) % systems } else { place.div_ceil(2) }
    };
    let mut names: Vec<usize> = (0..systems).collect();
    shuffle(&mut names, random);
    let row = |shift: usize| -> Vec<usize> {
        (0..systems).map(|place| names[(zigzag(place) + shift) % systems]).collect()
    };
    let mut rows: Vec<Vec<usize>> = (0..systems).map(row).collect();
    if !systems.is_multiple_of(2) {
        let mirrored = rows.iter().map(|row| row.iter().rev().copied().collect());
        rows.extend(mirrored.collect::<Vec<_>>());
    }
    shuffle(&mut rows, random);
    rows
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_system_stands_everywhere_and_follows_each_other_equally_often() {
        for systems in 2..=9 {
            let rows = block(systems, &mut Random::new(systems as u64));
            assert_eq!(rows.len(), block_rounds(systems));
            let (mut places, mut follows) = (BTreeMap::new(), BTreeMap::new());
            for row in &rows {
                for (place, system) in row.iter().enumerate() {
                    *places.entry((place, *system)).or_insert(0) += 1;
                }
                for pair in row.windows(2) {
                    *follows.entry((pair[0], pair[1])).or_insert(0) += 1;
                }
            }
            let each = rows.len() / systems;
            assert_eq!(places.len(), systems * systems);
            assert_eq!(follows.len(), systems * (systems - 1));
            assert!(places.values().chain(follows.values()).all(|times| *times == each));
        }
    }

    #[test]
    fn the_seed_draws_it() {
        let draw = |seed| block(4, &mut Random::new(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
