//! Errors that are planted in lines of production code are found, each by seeds of its scenario
//! that pass without it. `block::planted` says how: a new one is a line here and one at its place.
#![cfg(debug_assertions)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use block::planted;
use sim::{Failed, run_seed};

/// Seeds of its scenario within which each has to be found.
const SEEDS: u64 = 500;

/// The errors, by the promise that each breaks (docs/faults.md), and a scenario that notices. One that
/// several protocols have is there once for each.
const LINES: [(&str, &str); 68] = [
    // What is acknowledged and flushed is there.
    ("flush-behind-a-failed-one", "flushes"),
    ("two-flushes-run", "aoe-crash"),
    ("answered-before-it-lasts", "aoe-crash"),
    ("answered-before-it-lasts", "aoe-routed"),
    ("fua-is-forgotten", "power"),
    ("part-that-failed-is-forgotten", "disks"),
    ("flush-vouches-for-lost-writes", "power"),
    ("writes-of-other-shards-are-forgotten", "shards"),
    ("flush-by-any-session", "iscsi-imports"),
    ("stop-forgets-frames", "aoe-crash"),
    ("remote-cache-is-not-flushed", "aoe-cached"),
    ("new-start-is-not-seen", "aoe-cached"),
    // A read returns the right data or an error.
    ("bad-data-is-written", "corruption"),
    ("bad-data-is-read", "corruption"),
    ("bad-data-is-written", "iscsi-cuts"),
    ("bad-data-is-read", "iscsi-imports"),
    ("data-sn-is-not-looked-at", "iscsi"),
    ("copy-leaves-a-range-out", "fused"),
    ("data-are-told-as-holes", "iscsi"),
    // What was ended reaches the media no more.
    ("queue-is-drained-early", "resets"),
    ("session-is-drained-early", "iscsi-returns"),
    ("reinstated-before-it-drained", "iscsi-returns"),
    ("reset-is-answered-early", "resets"),
    ("replayed-at-once", "cuts"),
    ("any-login-ends-doubt", "iscsi-sessions"),
    ("export-is-gone-early", "aoe-admin"),
    ("volume-is-let-go-early", "imports"),
    ("reservation-in-force-early", "aoe-fence"),
    ("reservation-in-force-early", "iscsi-fence"),
    ("reservation-in-force-early", "nvme-fence"),
    ("preempt-leaves-commands", "iscsi-fence"),
    ("write-is-judged-as-a-read", "nvme-fence"),
    ("conflict-is-judged-once", "nvme-fence"),
    ("preempted-goes-on", "nvme-fence"),
    ("paths-in-force-early", "paths"),
    ("copy-is-not-judged-again", "paths"),
    ("copy-is-not-judged-again", "iscsi-fence"),
    ("mask-is-not-looked-at", "aoe-control"),
    // Who holds a volume, and who is told of it, is what the standard says.
    ("registrants-pass-as-holder", "iscsi-fence"),
    ("attention-is-lost", "iscsi-fence"),
    ("aptpl-is-forgotten", "iscsi-fence-crash"),
    ("ptpl-is-forgotten", "nvme-fence"),
    ("notification-is-lost", "nvme-fence"),
    ("one-notification-is-announced", "nvme-fence"),
    ("preempt-ends-one-of-several", "nvme-fence"),
    ("named-host-is-two", "nvme-fence"),
    // Each block is one register.
    ("write-passes-hold", "fused"),
    ("hold-stands-early", "fused"),
    ("what-left-is-forgotten", "cuts"),
    ("overlaps-are-sent-at-once", "aoe-plain"),
    ("strays-are-forgotten", "aoe-plain"),
    ("other-path-at-once", "aoe-links"),
    ("copy-undoes-a-newer-write", "aoe"),
    ("copy-undoes-a-newer-write", "aoe-routed"),
    // No input and no fault hangs it, or costs it memory.
    ("who-waits-for-memory-starves", "memory"),
    ("who-waits-for-memory-starves", "iscsi-greedy"),
    ("who-waits-for-a-hold-is-forgotten", "fused"),
    ("change-waits-for-a-turn", "aoe-control"),
    ("heard-elsewhere-is-forgotten", "calm"),
    ("memory-is-not-given-back", "aoe"),
    ("who-never-reads-is-kept", "greedy"),
    ("who-never-reads-is-kept", "iscsi-greedy"),
    ("last-entry-is-refused", "greedy"),
    ("held-event-keeps-its-cid", "discovery"),
    // A change is told once, and by everybody.
    ("changes-are-told-again", "discovery"),
    ("one-controller-is-told", "change"),
    // A device stays the same device.
    ("nguid-changes-with-size", "change"),
    ("serial-changes-with-size", "aoe-links"),
];

/// Crates whose own tests plant errors and find them: what they imitate has no disks.
const ELSEWHERE: [&str; 2] = ["bfd", "mpls"];

/// Errors of routers that are found here as well, by what they do to disks.
const ROUTERS: [(&str, &str); 7] = [
    // An old copy of a write lands behind a newer one.
    ("late-frames-are-delivered", "aoe-routed"),
    ("move-forgets-the-sequence", "aoe-routed"),
    ("renewal-forgets-the-sequence", "aoe-routed"),
    ("paths-are-mixed-up", "aoe-routed"),
    // What is one customer's reaches the other.
    ("label-is-reused-at-once", "aoe-routed"),
    // What is asked is answered, by whichever path.
    ("move-drops-the-label", "aoe-routed"),
    // ... and an edge that began anew is followed.
    ("silence-hides-who-began-anew", "aoe-routed"),
];

/// Seeds that are run at once.
const BATCH: u64 = 8;

/// Looks for one; says where it showed, or why it was not found.
fn find(name: &str, scenario: &str) -> Result<String, String> {
    let mut was_passed = false;
    for first in (1..=SEEDS).step_by(BATCH as usize) {
        let (failed, passed) = planted::with(name, || run_batch(first, scenario));
        was_passed |= passed;
        let is_well = |seed| run_seed(seed, Some(scenario), None).is_ok();
        if let Some(Failed { seed, what, .. }) = failed.iter().find(|failed| is_well(failed.seed)) {
            return Ok(format!("{name}: seed {seed} of {scenario}: {what}"));
        }
    }
    let why = if was_passed { "is passed and not noticed" } else { "is never passed" };
    Err(format!("{name}: its line {why} in {SEEDS} seeds of {scenario}"))
}

/// The seeds that fail, in their order; behind one that did, no more are begun.
fn run_batch(first: u64, scenario: &str) -> Vec<Failed> {
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + BATCH {
                return;
            }
            if let Err(error) = run_seed(seed, Some(scenario), None) {
                failed.lock().unwrap().push(error);
                next.store(u64::MAX / 2, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort_by_key(|failed: &Failed| failed.seed);
    failed
}

#[test]
fn every_planted_line_is_found() {
    // Assertions of the code under test are among the ways to find them.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (name, scenario) in LINES.into_iter().chain(ROUTERS) {
        let begin = Instant::now();
        match find(name, scenario) {
            Ok(how) => println!("{how} ({:.1?})", begin.elapsed()),
            Err(why) => missed.push(why),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A place that no line here names would never be tried.
#[test]
fn every_place_is_listed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let counts = |path: &Path| {
        let inside = path.strip_prefix(&crates).expect("it is below");
        let mut parts = inside.components().map(|part| part.as_os_str());
        let is_elsewhere = parts.next().is_some_and(|it| ELSEWHERE.iter().any(|name| it == *name));
        let is_test = path.file_name().is_some_and(|it| it == "planted.rs" || it == "tests.rs");
        !is_elsewhere && parts.next().is_some_and(|it| it == "src") && !is_test
    };
    let listed: BTreeSet<String> = LINES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(testkit::planted::places(&crates, &counts), listed);
    let places = |name| testkit::planted::places(&crates.join(name).join("src"), &|_| true);
    let routers: BTreeSet<String> = ELSEWHERE.into_iter().flat_map(places).collect();
    let unknown: Vec<_> = ROUTERS.iter().filter(|(name, _)| !routers.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no places of routers");
}
