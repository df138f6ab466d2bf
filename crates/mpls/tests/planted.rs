//! Errors that are planted in lines of production code are found by the simulations, by seeds that
//! pass without them. `block::planted` says how: a new one is a line here and one at its place.
#![cfg(debug_assertions)]

mod beside;
mod network;
mod widths;

use std::path::Path;

use block::planted;
use mpls::Sequencing;

/// Seeds within which each has to be found.
const SEEDS: u64 = 100;

/// The errors that `network` finds, by the promise that each breaks.
const LINES: [&str; 9] = [
    // A frame comes out at the other end of its wire or nowhere.
    "label-is-reused-at-once",
    "labels-of-customers-are-looked-up",
    "port-is-not-looked-at",
    "tunnel-is-not-looked-at",
    "channel-reaches-the-circuit",
    "cookie-is-not-looked-at",
    // Neither late nor twice.
    "early-frames-are-not-sorted",
    "renewal-forgets-the-sequence",
    // A network that is well carries every wire.
    "swap-forgets-the-bottom",
];

/// Those that it finds where links fail.
const CUTS: [&str; 13] = [
    // What is sent comes out, once a detection time has passed, if a path is up.
    "move-drops-the-label",
    "failure-is-waited-for",
    "reload-forgets-what-is-up",
    // Traffic moves to a path that is up, for a cause, and back after the wait.
    "down-path-is-taken",
    "failure-does-not-end-the-wait",
    "traffic-reverts-at-once",
    "lost-once-is-too-large",
    // The ends agree about a path.
    "paths-are-mixed-up",
    // Neither late nor twice, whichever path is taken.
    "move-forgets-the-sequence",
    "late-bursts-are-followed",
    "port-that-was-down-begins-anew",
    "each-path-begins-anew",
    // Counters add up.
    "drop-is-not-counted",
];

/// Those that it finds where wires get other labels, ways and circuits.
const RELOADS: [&str; 2] = [
    // A frame comes out at the other end of its wire or nowhere.
    "waiting-frames-follow-the-circuit",
    // What no reload names loses nothing.
    "reload-begins-sessions-anew",
];

/// Those that it finds where they do so while links fail.
const CHANGES: [&str; 1] = [
    // What is sent comes out where a path is whole, also if the one it took was taken away.
    "way-outlives-its-path",
];

/// Those that it finds in tunnels through IP.
const TUNNELS: [&str; 5] = [
    // What strangers send reaches nobody.
    "any-protocol-is-ethernet",
    "key-is-not-looked-at",
    // Neither late nor twice.
    "late-frames-need-no-order",
    "tunnels-take-what-is-late",
    "renewed-tunnel-forgets-the-sequence",
];

/// Those that it finds where a disk is behind the circuits.
const STORAGE: [&str; 1] = ["late-frames-are-delivered"];

/// Those that `beside` finds.
const BESIDE: [&str; 4] = [
    // A frame comes out where a hop, or the way around it, is whole.
    "failed-backup-is-taken",
    "silence-is-no-failure",
    "who-never-was-up-has-failed",
    // A hop that was down is not taken before the wait.
    "next-hop-reverts-at-once",
];

/// Those that `widths` finds.
const WIDTHS: [&str; 3] = [
    // What is said to fit did fit while it was asked.
    "answer-of-before-counts",
    // Frames do not take a path that is too narrow where the other one carries them.
    "narrow-path-is-taken",
    // What became narrower is known, whether or not the path went down.
    "whole-path-is-asked-no-more",
];

/// Seeds within which those have to be found that take faults which only few seeds have.
const SEEDS_OF_CUTS: u64 = 300;

fn is_found(name: &'static str, seeds: u64, run: &dyn Fn(u64) -> bool) -> bool {
    (1..=seeds).any(|seed| !planted::with(name, || run(seed)).0 && run(seed))
}

/// Errors, the seeds within which each has to be found, and what finds them: the run of a seed, and
/// whether all went well.
type Hunt = (&'static [&'static str], u64, &'static dyn Fn(u64) -> bool);

const HUNTS: [Hunt; 8] = [
    (&LINES, SEEDS, &|seed| network::run_tables(seed).is_ok()),
    (&CUTS, SEEDS_OF_CUTS, &|seed| network::run_cuts(seed).is_ok()),
    (&RELOADS, SEEDS, &|seed| network::run_reloads(seed).is_ok()),
    (&CHANGES, SEEDS, &|seed| network::run_changes(seed).is_ok()),
    (&STORAGE, SEEDS, &|seed| network::run_storage(seed, Sequencing::Drop).is_ok()),
    (&TUNNELS, SEEDS, &|seed| network::run_tunnels(seed).is_ok()),
    (&BESIDE, SEEDS, &|seed| beside::run(seed).is_ok()),
    (&WIDTHS, SEEDS, &|seed| widths::run(seed).is_ok()),
];

#[test]
fn every_planted_line_is_found() {
    let missed = HUNTS.into_iter().flat_map(|(names, seeds, run)| {
        names.iter().filter(move |name| !is_found(name, seeds, run))
    });
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:?} were not found");
}

/// A place that no line here names would never be tried.
#[test]
fn every_place_is_listed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let listed = HUNTS.into_iter().flat_map(|(names, ..)| names.iter());
    let listed = listed.map(|name| (*name).to_owned()).collect();
    assert_eq!(testkit::planted::places(&sources, &|_| true), listed);
}
