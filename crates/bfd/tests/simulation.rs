//! The pair of `pair`, seed after seed: whatever the network does, nobody is up for longer than a
//! detection time after it heard anything, nobody goes down before, no two packets are closer than
//! both ends agreed, and when all is well everything is up again.

mod pair;

use pair::run;

const SEEDS: u64 = 300;

#[test]
fn who_is_heard_is_up_and_who_is_not_is_down_in_time() {
    let mut all = run(1).unwrap_or_else(|broken| panic!("seed 1: {broken}"));
    for seed in 2..=SEEDS {
        all += run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
    // Nothing would be wrong with sessions to which nothing happens.
    assert!(all.taken > all.sent / 4, "{all:?}");
    for some in [all.ups, all.expirations, all.signaled, all.begun_anew, all.polls, all.excused] {
        assert!(some > SEEDS / 2, "{all:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
