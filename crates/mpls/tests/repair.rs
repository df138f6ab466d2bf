//! The routers of `beside`, seed after seed: whatever links do, whoever stands beside one that failed
//! goes around it, to nobody else than before, and comes back when it was whole for the wait.

mod beside;

use beside::run;

const SEEDS: u64 = 100;

#[test]
fn frames_go_around_links_that_failed_and_return_after_the_wait() {
    let (mut sent, mut delivered, mut promised, mut around) = (0, 0, 0, 0);
    for seed in 1..=SEEDS {
        let tally = run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        sent += tally.sent;
        delivered += tally.delivered;
        promised += tally.promised;
        around += tally.around;
    }
    // Nothing would be wrong with links that never fail.
    assert!(delivered > sent / 2, "{delivered} of {sent}");
    assert!(promised > 10 * SEEDS && around > promised, "{promised} promised, {around} around");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
