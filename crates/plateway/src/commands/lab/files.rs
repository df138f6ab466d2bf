//! `plateway lab files`: makes the files of a load, or works on them with a thread for each of its hands, until it is
//! steady; what the lab starts in a trial.
//!
//! What is done, to which file and in which order is `lab::file_load`'s; here are threads, clocks and, in [`disk`],
//! the file system. An operation's latency is the time of its system calls; what is made to be written, what is held
//! against it, for whom a database's thread waits, and the list of files are none of it. Of each thread's reads one of sixteen is held against what was written.
//! The first thing that is wrong, or cannot be done, ends all of it. Errors: that, with its file; 130 an interruption.

mod disk;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab::file_load::{Count, Counted, FileSet, Hand, Register};
use lab::report::Steady;
use serde::Serialize;

use crate::cli::LabFilesArgs;
use crate::commands::session::Interrupt;
use crate::commands::settling::{self, Settling};
use crate::commands::{Ended, INTERRUPTED, print_json};

use disk::{Doer, Done, Store};

/// How often the windows are looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How long a hand that waits for others sleeps at most until it looks whether all of it is over.
const WAIT: Duration = Duration::from_millis(100);

/// What is printed, of the last five windows where it is of any.
#[derive(Debug, Serialize)]
struct Report {
    files: &'static str,
    /// How many files there were at first.
    file_count: u32,
    jobs: u32,
    /// What lengths and contents of the files were drawn from.
    seed: u64,
    counted: Counted,
    /// Payload of reads, writes and appends.
    bytes_per_op: f64,
    /// Of reads alone.
    read_bytes_per_op: f64,
    /// Reads that were held against what was written.
    looked: Looked,
    steady: Steady,
    notes: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Looked {
    reads: u64,
    /// One that finds them ends all of it.
    zeros: u64,
}

pub(super) fn run(args: &LabFilesArgs) -> miette::Result<()> {
    let set = FileSet::new(args.load, args.size, args.seed);
    let store = Store::new(&args.folder, &set);
    if args.make {
        return store.make().map_err(|why| miette::miette!("{why}"));
    }
    let interrupt = Interrupt::watch()?;
    let work = Work::new(Register::new(set.clone()));
    let steady = work.carry_out(args, &store, &interrupt)?;
    if interrupt.is_raised() {
        let words = "interrupted before it was steady".to_owned();
        return Err(Ended::new(INTERRUPTED, words).into());
    }
    if let Some(why) = lock(&work.trouble).take() {
        return Err(miette::miette!("{why}"));
    }
    print_json(&work.report(args, &set, steady))
}

/// What the threads share.
struct Work {
    state: Mutex<State>,
    /// Something changed for which hands wait.
    changed: Condvar,
    count: Mutex<Count>,
    operations: AtomicU64,
    looked: AtomicU64,
    is_over: AtomicBool,
    /// The first thing that was wrong.
    trouble: Mutex<Option<String>>,
}

struct State {
    register: Register,
    /// Hands that wait for others.
    waiting: usize,
}

/// A thread that failed says so elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    fn new(register: Register) -> Work {
        Work {
            state: Mutex::new(State { register, waiting: 0 }),
            changed: Condvar::new(),
            count: Mutex::default(),
            operations: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// Has all hands work until it is steady, or something is wrong.
    fn carry_out(
        &self,
        args: &LabFilesArgs,
        store: &Store<'_>,
        interrupt: &Interrupt,
    ) -> miette::Result<Settling> {
        let mut seeds = block::Random::new(crate::commands::bench::seed());
        let held = store.hold().map_err(|why| miette::miette!("{why}"))?;
        let mut doers = Vec::new();
        for role in args.load.roles(args.jobs) {
            let hand = Hand::new(role, seeds.next_u64(), &mut lock(&self.state).register);
            doers.push((hand, store.doer(&held)));
        }
        let mut settling = Settling::new(args.steady);
        std::thread::scope(|scope| {
            for (hand, doer) in doers {
                scope.spawn(move || self.work(hand, doer));
            }
            self.watch(args, &mut settling, interrupt);
            self.end();
        });
        Ok(settling)
    }

    /// Looks at what is done until it is steady.
    fn watch(&self, args: &LabFilesArgs, settling: &mut Settling, interrupt: &Interrupt) {
        let start = Instant::now();
        while !interrupt.is_raised() && !self.is_over.load(Relaxed) {
            std::thread::sleep(LOOK);
            let now = Instant::now();
            if now - start < args.warmup {
                continue;
            }
            let (operations, windows) = (self.operations.load(Relaxed), settling.windows());
            settling.begin(now, operations);
            let is_over = settling.is_over(now, operations);
            if settling.windows() > windows {
                lock(&self.count).begin_window();
            }
            if is_over {
                return;
            }
        }
    }

    /// Ends all of it.
    fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn fail(&self, why: String) {
        lock(&self.trouble).get_or_insert(why);
        self.end();
    }

    /// A thread: what its hand says, until all of it is over.
    fn work(&self, mut hand: Hand, mut doer: Doer<'_>) {
        while let Some(act) = self.next(&mut hand) {
            match doer.carry_out(&act) {
                Err(why) => return self.fail(why),
                Ok(Done { is_judged, latency }) => {
                    lock(&self.count).add(&act.deed, latency.as_nanos() as u64);
                    self.operations.fetch_add(1, Relaxed);
                    self.looked.fetch_add(is_judged.into(), Relaxed);
                }
            }
            let mut state = lock(&self.state);
            hand.end(&mut state.register, &act);
            self.wake(&mut state);
        }
    }

    /// What a hand does next; nothing once all of it is over.
    fn next(&self, hand: &mut Hand) -> Option<lab::file_load::Act> {
        let mut state = lock(&self.state);
        loop {
            if self.is_over.load(Relaxed) {
                return None;
            }
            let act = hand.next(&mut state.register);
            self.wake(&mut state);
            if act.is_some() {
                return act;
            }
            state.waiting += 1;
            let waited = self.changed.wait_timeout(state, WAIT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    fn wake(&self, state: &mut State) {
        if state.register.takes_wakes() && state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn report(&self, args: &LabFilesArgs, set: &FileSet, settling: Settling) -> Report {
        let (counted, last) = lock(&self.count).last();
        let each = |bytes: u64| bytes as f64 / counted.operations().max(1) as f64;
        let steady = settling.report(last);
        Report {
            files: args.load.word(),
            file_count: set.there(),
            jobs: args.jobs,
            seed: args.seed,
            counted,
            bytes_per_op: each(counted.read_bytes + counted.written_bytes),
            read_bytes_per_op: each(counted.read_bytes),
            looked: Looked { reads: self.looked.load(Relaxed), zeros: 0 },
            notes: settling::complaint(&steady).into_iter().collect(),
            steady,
        }
    }
}

#[cfg(test)]
mod tests;
