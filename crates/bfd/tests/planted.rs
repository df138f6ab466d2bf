//! Errors that are planted in lines of production code are found by the simulation, by seeds that
//! pass without them. `block::planted` says how: a new one is a line here and one at its place.
#![cfg(debug_assertions)]

mod pair;

use std::path::Path;

use block::planted;
use pair::run;

/// Seeds within which each has to be found.
const SEEDS: u64 = 100;

/// The errors, by the promise that each breaks.
const LINES: [&str; 16] = [
    // Nobody is up for longer than a detection time after it heard anything.
    "silence-lasts-twice-as-long",
    "stalls-excuse-for-ever",
    // Nobody goes down before.
    "slows-before-the-answer",
    "hastens-before-the-answer",
    "changes-share-a-poll",
    "one-packet-is-not-hurried",
    "stalls-are-not-excused",
    // No two packets are closer than both ends agreed, or than once a second while not up.
    "pace-of-the-peer-is-ignored",
    "down-is-not-slow",
    // When all is well everything is up again, and has nothing to ask.
    "up-is-not-taken-for-init",
    "neighbors-down-is-not-heard",
    "discriminator-is-not-forgotten",
    "polls-are-not-answered",
    // A packet is for the session that it names.
    "astray-is-at-home",
    "stranger-is-taken-by-its-carrier",
    // A peer that began anew is told of, however long it took for that.
    "silence-hides-who-began-anew",
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
