//! Errors that are planted in lines of production code are found by the simulation, by seeds that
//! pass without them. `block::planted` says how: a new one is a line here and one at its place.
#![cfg(debug_assertions)]

mod network;

use std::path::Path;

use block::planted;
use network::run;

/// Seeds within which each has to be found.
const SEEDS: u64 = 100;

/// The errors, by the promise that each breaks.
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

#[test]
fn every_planted_line_is_found() {
    let is_found = |name| {
        (1..=SEEDS).any(|seed| planted::with(name, || run(seed)).0.is_err() && run(seed).is_ok())
    };
    let missed: Vec<_> = LINES.into_iter().filter(|name| !is_found(name)).collect();
    assert!(missed.is_empty(), "{missed:?} were not found in {SEEDS} seeds");
}

/// A place that no line here names would never be tried.
#[test]
fn every_place_is_listed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert_eq!(testkit::planted::places(&sources, &|_| true), LINES.map(str::to_owned).into());
}
