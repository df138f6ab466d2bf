//! A load that tells how far it is, for somebody who watches it and ends it: a line of JSON now and then.
//!
//! Each line counts from the start: how many reads, and how many writes, took about so many nanoseconds. Units:
//! milliseconds since 1970, nanoseconds. Errors: a file that cannot be written. Format: docs/plans.md, *An initiator of another kind*.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;

use crate::report::Tally;
use crate::zero_copy::Counts;

/// Whether a load tells how far it is.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Told {
    /// Write a line of JSON to this file again and again, from the start on, until somebody ends it.
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,
    /// How often, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    status_ms: u64,
    /// End by itself after so many lines.
    #[arg(long, requires = "status")]
    status_lines: Option<u64>,
}

/// A load that does.
pub(crate) struct Status {
    file: File,
    every: Duration,
    /// Lines that are still to be written, if that is bounded.
    left: Option<u64>,
}

impl Told {
    /// Begins, if it does.
    pub(crate) fn begin(&self) -> Result<Option<Status>> {
        let Some(path) = &self.status else { return Ok(None) };
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let (every, left) = (Duration::from_millis(self.status_ms), self.status_lines);
        Ok(Some(Status { file, every, left }))
    }
}

impl Status {
    pub(crate) fn every(&self) -> Duration {
        self.every
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn tell(&mut self, tally: &Tally, without_copies: Option<Counts>) -> Result<()> {
        /// What a peer that is not the same machine would not have.
        const COPIED: &str =
            "most of what was to be sent without a copy, the kernel copied all the same";
        let copied = without_copies.is_some_and(|Counts { sends, copied }| copied * 2 > sends);
        let notes: &[&str] = if copied { &[COPIED] } else { &[] };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let [read, write] = tally.counts();
        let line = json!({
            "client": concat!("yardstick ", env!("CARGO_PKG_VERSION")),
            "timestamp_ms": since.as_secs_f64() * 1e3,
            "read": read,
            "write": write,
            "notes": notes,
        });
        self.left = self.left.map(|lines| lines.saturating_sub(1));
        // In one piece, so that who reads it sees whole lines.
        self.file.write_all(format!("{line}\n").as_bytes()).context("cannot write the status")
    }
}
