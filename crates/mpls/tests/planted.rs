//! Errors that are planted in lines of production code are found by the simulations, by seeds that
//! pass without them. `block::planted` says how: a new one is a line here and one at its place.
#![cfg(debug_assertions)]

mod beside;
mod network;
mod widths;

use std::path::Path;

use block::planted;

/// Seeds within which each has to be found.
const SEEDS: u64 = 100;

/// The errors that `network` finds, by the promise that each breaks.
const LINES: [&str; 11] = [
    // A frame comes out at the other end of its wire or nowhere.
    "label-is-reused-at-once",
    "labels-of-customers-are-looked-up",
    "port-is-not-looked-at",
    "tunnel-is-not-looked-at",
    "channel-reaches-the-circuit",
    "cookie-is-not-looked-at",
    // Neither late nor twice.
    "late-frames-are-delivered",
    "late-frames-need-no-order",
    "early-frames-are-not-sorted",
    "renewal-forgets-the-sequence",
    // A network that is well carries every wire.
    "swap-forgets-the-bottom",
];

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
const WIDTHS: [&str; 2] = [
    // What is said to fit did fit while it was asked.
    "answer-of-before-counts",
    // Frames do not take a path that is too narrow where the other one carries them.
    "narrow-path-is-taken",
];

fn is_found(name: &'static str, run: impl Fn(u64) -> bool) -> bool {
    (1..=SEEDS).any(|seed| !planted::with(name, || run(seed)).0 && run(seed))
}

#[test]
fn every_planted_line_is_found() {
    let in_network = |name: &&'static str| !is_found(name, |seed| network::run_tables(seed).is_ok());
    let beside = |name: &&'static str| !is_found(name, |seed| beside::run(seed).is_ok());
    let widths = |name: &&'static str| !is_found(name, |seed| widths::run(seed).is_ok());
    let missed = LINES.into_iter().filter(in_network).chain(BESIDE.into_iter().filter(beside));
    let missed = missed.chain(WIDTHS.into_iter().filter(widths));
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:?} were not found in {SEEDS} seeds");
}

/// A place that no line here names would never be tried.
#[test]
fn every_place_is_listed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let listed = LINES.into_iter().chain(BESIDE).chain(WIDTHS).map(str::to_owned).collect();
    assert_eq!(testkit::planted::places(&sources, &|_| true), listed);
}
