//! The network of `network`, seed after seed: whatever links do and customers forge, a frame comes
//! out at the other end of its wire or nowhere, as it went in, and where frames are numbered neither
//! late nor twice; and it does come out where a path is up.

mod network;

use mpls::Sequencing;
use network::{run_changes, run_cuts, run_reloads, run_storage, run_tables, run_tunnels};

const SEEDS: u64 = 300;
/// Of changes under links that fail, of which a seed takes as long as three of others.
const SEEDS_OF_CHANGES: u64 = 100;

#[test]
fn customers_hear_their_own_frames_alone_whole_and_in_order() {
    let (mut sent, mut delivered, mut channel_messages, mut waited) = (0, 0, 0, 0);
    for seed in 1..=SEEDS {
        let tally = run_tables(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
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
fn traffic_leaves_paths_that_fail_for_those_that_are_up_and_returns_after_the_wait() {
    let (mut sent, mut delivered, mut promised) = (0, 0, 0);
    let (mut downs, mut to_backup, mut to_primary) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let (tally, seen) = run_cuts(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        sent += tally.sent;
        delivered += tally.delivered;
        promised += tally.promised;
        downs += seen.downs;
        to_backup += seen.to_backup;
        to_primary += seen.to_primary;
    }
    assert!(
        promised > sent / 4 && delivered > promised,
        "{delivered} of {sent}, {promised} promised"
    );
    assert!(to_backup > SEEDS && to_primary > SEEDS, "{downs}: {to_backup}, {to_primary}");
}

/// Seeds in which the network once was wrong about who had to know what, by why.
const OF_CUTS: [(&str, &[u64]); 5] = [
    ("who stands still is told nothing of its links", &[529, 634, 893, 912, 1341]),
    ("one call may tell that both paths are down, and of a move between", &[658]),
    ("an edge on the way of others loses no second message in a row", &[823]),
    ("the end that finds out cannot tell the other when the way there fails, too", &[1051, 1264]),
    ("who goes on has old messages that show a path that fails", &[3694]),
];

#[test]
fn seeds_of_cuts_that_once_failed_pass() {
    for (why, seeds) in OF_CUTS {
        for seed in seeds {
            run_cuts(*seed).unwrap_or_else(|broken| panic!("seed {seed}, {why}: {broken}"));
        }
    }
}

#[test]
fn tunnels_through_ip_and_labels_in_udp_keep_what_they_promise_alike() {
    let (mut sent, mut delivered, mut promised) = (0, 0, 0);
    let mut drops = mpls::Drops::default();
    for seed in 1..=SEEDS {
        let (tally, seen) =
            run_tunnels(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        sent += tally.sent;
        delivered += tally.delivered;
        promised += tally.promised;
        drops += seen;
    }
    assert!(
        promised > sent / 2 && delivered > promised,
        "{delivered} of {sent}, {promised} promised"
    );
    let mpls::Drops { no_tunnel, wrong_cookie, misformed, not_ethernet, late, .. } = drops;
    let refused = [no_tunnel, wrong_cookie, misformed, not_ethernet, late];
    assert!(refused.iter().all(|count| *count > SEEDS), "{drops:?}");
}

#[test]
fn what_a_reload_does_not_name_loses_nothing_and_labels_are_nobodys_for_a_while() {
    let (mut sent, mut promised, mut refused) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let (tally, seen) =
            run_reloads(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        sent += tally.sent;
        promised += tally.promised;
        refused += seen;
    }
    assert!(promised > sent / 2 && refused > SEEDS, "{promised} of {sent}, {refused} refused");
}

#[test]
fn what_changes_while_links_fail_takes_nothing_from_what_a_path_carries() {
    let (mut sent, mut promised, mut downs, mut moved) = (0, 0, 0, 0);
    let (mut refused, mut taken, mut under_way) = (0, 0, 0);
    for seed in 1..=SEEDS_OF_CHANGES {
        let (tally, seen, changed) =
            run_changes(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        sent += tally.sent;
        promised += tally.promised;
        downs += seen.downs;
        moved += seen.to_backup + seen.to_primary;
        refused += changed.refused;
        taken += changed.taken;
        under_way += changed.taken_under_way;
    }
    let least = SEEDS_OF_CHANGES;
    assert!(promised > sent / 2 && downs > least && moved > least, "{promised} of {sent}");
    assert!(refused > least && under_way > least, "{refused} refused, {under_way} of {taken}");
}

/// Seeds of changes in which it was, by why.
const OF_CHANGES: [(&str, &[u64]); 2] = [
    ("a path with other labels loses no second message in a row", &[42]),
    ("messages overtake each other while a path that was given back comes up", &[163]),
];

#[test]
fn seeds_of_changes_that_once_failed_pass() {
    for (why, seeds) in OF_CHANGES {
        for seed in seeds {
            run_changes(*seed).unwrap_or_else(|broken| panic!("seed {seed}, {why}: {broken}"));
        }
    }
}

#[test]
fn an_old_copy_of_a_write_lands_behind_a_newer_one_only_where_nothing_is_numbered() {
    let (mut answered, mut again) = (0, 0);
    for seed in 1..=SEEDS {
        for sequencing in [Sequencing::Drop, Sequencing::Reorder] {
            let written = run_storage(seed, sequencing)
                .unwrap_or_else(|broken| panic!("seed {seed}, {sequencing:?}: {broken}"));
            answered += written.answered;
            again += written.again;
        }
    }
    assert!(answered > 100 * SEEDS && again > 10 * SEEDS, "{answered} answered, {again} again");
    let stale = (1..=SEEDS).filter(|seed| run_storage(*seed, Sequencing::Off).is_err()).count();
    assert!(stale > 20, "{stale} of {SEEDS}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run_tables(7), run_tables(7));
    assert_ne!(run_tables(7), run_tables(8));
    assert_eq!(run_cuts(7), run_cuts(7));
    assert_ne!(run_cuts(7), run_cuts(8));
    assert_eq!(run_reloads(7), run_reloads(7));
    assert_ne!(run_reloads(7), run_reloads(8));
    assert_eq!(run_changes(7), run_changes(7));
    assert_ne!(run_changes(7), run_changes(8));
    assert_eq!(run_storage(7, Sequencing::Drop), run_storage(7, Sequencing::Drop));
    assert_eq!(run_tunnels(7), run_tunnels(7));
    assert_ne!(run_tunnels(7), run_tunnels(8));
}
