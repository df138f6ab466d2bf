//! The paths of `widths`, seed after seed: whatever becomes of probes and answers, what is said to fit
//! fits, and frames go where they fit.

mod widths;

use widths::run;

const SEEDS: u64 = 30;

#[test]
fn what_paths_carry_is_known_to_the_byte_and_frames_go_where_they_fit() {
    let (mut narrow, mut whole, mut moved, mut strays) = (0, 0, 0, 0);
    for seed in 1..=SEEDS {
        let tally = run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        narrow += tally.narrow;
        whole += tally.whole;
        moved += tally.moved;
        strays += tally.strays;
    }
    // Nothing would be wrong where all paths are wide, and none late.
    assert!(narrow > 5 * SEEDS && whole > narrow, "{narrow} narrow, {whole} whole");
    assert!(moved > SEEDS && strays > SEEDS, "{moved} moved, {strays} strays");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
