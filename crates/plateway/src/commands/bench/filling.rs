//! `--fill`: every block that is worked on is written before anything is measured, so that none is
//! read that never was.
//!
//! One job writes from the first block to the last, and ends once it has asked for all of them and each
//! is answered. A line on a terminal says how far it is. Errors: a write that failed, a disk that does
//! not answer any more, an interruption.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use lab::load::{Arrivals, Load, Plan};
use lab::report::Counted;
use lab::workload::{Order, Sharing, Workload};
use lab::{Place, Progress};

use super::{DRAIN_MAX, Heard, SILENCE_MAX};
use crate::commands::session::{Interrupt, Session};
use crate::commands::{Ended, INTERRUPTED};
use crate::config::text::Count;

/// Bytes of a write, where the range has a multiple of it.
pub(super) const BLOCK: u64 = 128 << 10;
/// Writes in flight.
pub(super) const DEPTH: u32 = 8;
/// Longer than any fill takes.
const EVER: Duration = Duration::from_secs(30 * 86_400);

/// Writes the range of a load.
pub(super) fn fill(
    session: &mut Session,
    measured: &Plan,
    interrupt: &Interrupt,
) -> miette::Result<()> {
    let Workload { offset_bytes, block_bytes, .. } = measured.workload;
    // What is left behind the last whole block is never asked for.
    let range_bytes = measured.range_bytes() / u64::from(block_bytes) * u64::from(block_bytes);
    fill_range(session, offset_bytes, range_bytes, measured.seed, interrupt)
}

/// Writes so many bytes from an offset on, a multiple of the volume's blocks: large blocks, and a few
/// small ones for what is left behind them.
pub(super) fn fill_range(
    session: &mut Session,
    offset_bytes: u64,
    range_bytes: u64,
    seed: u64,
    interrupt: &Interrupt,
) -> miette::Result<()> {
    let large = range_bytes / BLOCK * BLOCK;
    let rest = range_bytes - large;
    for (offset, bytes, block) in
        [(0, large, BLOCK), (large, rest, BLOCK.min(1 << rest.trailing_zeros().min(63)))]
    {
        if bytes > 0 {
            fill_blocks(session, offset_bytes + offset, bytes, block, seed, interrupt)?;
        }
    }
    Ok(())
}

/// Writes whole blocks of this size.
fn fill_blocks(
    session: &mut Session,
    offset_bytes: u64,
    range_bytes: u64,
    block_bytes: u64,
    seed: u64,
    interrupt: &Interrupt,
) -> miette::Result<()> {
    let workload = Workload {
        order: Order::Sequential,
        read_percent: 0,
        trim_percent: 0,
        block_bytes: block_bytes as u32,
        sizes: None,
        sharing: Sharing::Parts,
        offset_bytes,
        range_bytes,
    };
    let plan = Plan {
        workload,
        jobs: 1,
        depth: DEPTH,
        rate: None,
        arrivals: Arrivals::Fixed,
        warm_up: Duration::ZERO,
        time: EVER,
        bytes_max: Some(range_bytes),
        sync: false,
        fsync: None,
        verify: false,
        whole: true,
        seed: !seed,
        draws: None,
    };
    let blocks = range_bytes / block_bytes;
    let progress: Arc<Progress> = Arc::default();
    let load = Load::new(plan, Place(0), 0, 1, progress.clone());
    let bar = crate::commands::progress_bar(blocks, "{bar:24} every block is written, {eta} left");
    let mut heard = Heard::default();
    let outcome = session.run(vec![load], |reading| {
        let written = progress.requests();
        bar.set_position(written.min(blocks));
        if interrupt.is_raised() {
            progress.stop();
        }
        let most = if progress.is_stopped() { DRAIN_MAX } else { SILENCE_MAX };
        match heard.silence(written, reading) > most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    bar.finish_and_clear();
    let counted = outcome.guests.first().map(|load| Counted::of(load.tally()));
    let written = progress.requests();
    match counted {
        _ if interrupt.is_raised() => {
            let words = format!("interrupted: {written} of {blocks} blocks were filled");
            Err(Ended::new(INTERRUPTED, words).into())
        }
        None => Err(miette::miette!("it did not answer any more while it was filled")),
        Some(Counted { errors, first_error, .. }) if errors > 0 => {
            let (many, first) = (Count(errors, "write"), first_error.unwrap_or_default());
            Err(miette::miette!("{many} failed while it was filled; first: {first}"))
        }
        Some(_) if written < blocks => {
            Err(miette::miette!("expected {blocks} blocks to be filled, seen {written}"))
        }
        Some(_) => Ok(()),
    }
}
