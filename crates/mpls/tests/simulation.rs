//! The network of `network`, seed after seed: whatever links do and customers forge, a frame comes
//! out at the other end of its wire or nowhere, as it went in, and where frames are numbered neither
//! late nor twice.

mod network;

use network::run_tables as run;

const SEEDS: u64 = 300;

#[test]
fn customers_hear_their_own_frames_alone_whole_and_in_order() {
    let (mut sent, mut delivered, mut channel_messages, mut waited) = (0, 0, 0, 0);
    for seed in 1..=SEEDS {
        let tally = run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        sent += tally.sent;
        delivered += tally.delivered;
        channel_messages += tally.channel_messages;
        waited += tally.waited;
    }
    // Nothing would be wrong with a network that carries nothing. Of two wires one at a time has labels,
    // and a receiver lets a sender that began anew wait.
    assert!(delivered > sent / 3 && channel_messages > SEEDS, "{delivered} of {sent}");
    assert!(waited > SEEDS, "{waited} frames came early");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
