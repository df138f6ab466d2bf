//! What the tests of the running reactor have in common: the engines, one after the other, and
//! waiting for conditions, which has a limit only so that a hang ends.
#![allow(dead_code, reason = "each test program needs a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::ShardId;
use reactor::memory::Arena;
use reactor::{Config, Handle, Preference, Reactor};
use testkit::suite::{Note, Report, Scripted};

/// Nothing takes so long unless it hangs.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Runs a test on each engine that works here.
pub(crate) fn on_each_engine(test: impl Fn(Preference)) {
    for driver in [Preference::Epoll, Preference::Uring] {
        if driver == Preference::Uring
            && let Err(why) = reactor::probe()
        {
            eprintln!("skipped on io_uring: {why}");
            continue;
        }
        eprintln!("{driver:?}");
        test(driver);
    }
}

pub(crate) fn two_shards() -> Config {
    Config { cpus: vec![None, None], ..Config::default() }
}

/// Starts scripted machines.
pub(crate) fn start(config: &Config) -> (Handle<Note>, Arc<Arena>) {
    let arena = Arc::new(Arena::new(config.cpus.len()).unwrap());
    let handle = Reactor::start(config, &arena, |_| Scripted::new()).unwrap();
    (handle, arena)
}

/// The next report of a machine.
pub(crate) fn report(handle: &Handle<Note>) -> (ShardId, Report) {
    match handle.receive_mail(HANG) {
        Some((shard, Note::Report(report))) => (shard, report),
        other => panic!(
            "expected a report, saw {other:?}: {:#?} {:#?}",
            handle.stats(),
            handle.link_stats()
        ),
    }
}

/// Waits until two looks a second apart see all shards asleep and no turn between.
pub(crate) fn wait_for_rest(handle: &Handle<Note>) {
    let begin = Instant::now();
    let turns = || -> Vec<u64> { handle.stats().iter().map(|stats| stats.turns).collect() };
    loop {
        let before = turns();
        std::thread::sleep(Duration::from_secs(1));
        if turns() == before && handle.is_asleep() {
            return;
        }
        assert!(begin.elapsed() < HANG, "it never rests: {:#?}", handle.stats());
    }
}

/// A block device over a file, detached with it.
pub(crate) struct LoopDevice(pub(crate) PathBuf);

impl LoopDevice {
    pub(crate) fn over(path: &Path) -> Result<LoopDevice, String> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(path).output();
        let made = made.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match made.status.success() {
            true => Ok(LoopDevice(text(&made.stdout).into())),
            false => Err(text(&made.stderr)),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
