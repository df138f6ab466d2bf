//! What `discover` has in common whomever it asks: a machine that asks, alone on a shard of a
//! reactor, the thread that waits for what it was told, and how that is shown.
//!
//! The machine sends what it came to once, and need not end: the shard ends with the answer.
//! Errors: a shard that cannot be started, or that does not answer.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use contract::Machine;
use reactor::memory::Arena;
use reactor::{Config, Handle, Reactor};
use serde::Serialize;

use crate::cli::DiscoverArgs;
use crate::commands;
use crate::control::{Column, table_of};

/// How much longer the shard may take than its machine.
const LATE: Duration = Duration::from_secs(60);
/// How often whoever waits is told for how long.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Has a machine ask, which takes no longer than `limit`. `begin` gives the shard what it needs;
/// `waits` hears how long it takes.
pub(super) fn ask<M, T>(
    limit: Duration,
    machine: impl Fn(Sender<T>) -> M + Send + Sync + 'static,
    begin: impl FnOnce(&Handle<M::Mail>) -> miette::Result<()>,
    waits: impl Fn(Duration),
) -> miette::Result<T>
where
    M: Machine + 'static,
    T: Send + 'static,
{
    let failed = |why: &dyn std::fmt::Display| miette::miette!("discovery: {why}");
    let arena = Arc::new(Arena::new(1).map_err(|error| failed(&error))?);
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let made = move |_| machine(tell.lock().unwrap_or_else(PoisonError::into_inner).clone());
    let handle = Reactor::start(&Config::default(), &arena, made)
        .map_err(|error| failed(&format!("cannot start a shard: {error}")))?;
    begin(&handle)?;
    let begun = Instant::now();
    loop {
        match told.recv_timeout(TOLD_EVERY) {
            Ok(told) => {
                handle.stop();
                return Ok(told);
            }
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < limit + LATE => {
                waits(begun.elapsed());
            }
            Err(_) => return Err(failed(&"the shard does not answer")),
        }
    }
}

/// Shows what was found, or says that nothing was.
pub(super) fn show<T: Serialize>(
    args: &DiscoverArgs,
    entries: &[T],
    columns: &[Column<T>],
    nothing: &str,
) -> miette::Result<()> {
    if args.json {
        return commands::print_json(&entries);
    }
    match entries {
        [] => commands::print(nothing),
        all => commands::print(&format!("{}\n", table_of(all, columns))),
    }
}
