//! Errors that are planted in disks, in the driver and between shards are found, each within 200
//! seeds of its scenario: by a seed that fails with the error and passes without it.

use sim::{Plant, find_planted};

const SEEDS: u64 = 200;

#[test]
fn every_planted_error_is_found() {
    // Assertions of the code under test are among the ways to find them.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (name, plant, scenario) in Plant::ALL {
        let failed = (1..=SEEDS).find_map(|seed| find_planted(seed, scenario, plant));
        match failed {
            Some(failed) => println!("{name}: seed {} of {scenario}: {}", failed.seed, failed.what),
            None => missed.push(name),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}
