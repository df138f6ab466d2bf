//! Errors that are planted in disks, in the driver and between shards are found, each within 200 seeds of its scenario.

use sim::{Plant, run_seed};

const SEEDS: u64 = 200;

#[test]
fn every_planted_error_is_found() {
    // Assertions of the code under test are among the ways to find them.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (name, plant, scenario) in Plant::ALL {
        let failed = (1..=SEEDS).find_map(|seed| run_seed(seed, Some(scenario), Some(plant)).err());
        match failed {
            Some(failed) => println!("{name}: seed {} of {scenario}: {}", failed.seed, failed.what),
            None => missed.push(name),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}
