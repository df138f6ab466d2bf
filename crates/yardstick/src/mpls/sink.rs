//! The sink: an interface of which the kernel counts the frames that came (`rx_packets` in sysfs).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};

/// An interface that counts what it receives.
pub(super) struct Sink {
    file: File,
    /// What it had received before.
    pub(super) before: u64,
}

impl Sink {
    pub(super) fn open(interface: &str) -> Result<Self> {
        let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
        let file = File::open(&path).with_context(|| format!("cannot read {path}"))?;
        let mut sink = Self::of(file);
        sink.before = sink.count()?;
        Ok(sink)
    }

    /// One whose counter stands in this file.
    pub(super) fn of(file: File) -> Self {
        Self { file, before: 0 }
    }

    /// How many frames have come since it was opened.
    pub(super) fn count(&self) -> Result<u64> {
        let mut text = [0; 24];
        let got = self.file.read_at(&mut text, 0).context("the sink's counter")?;
        let text = str::from_utf8(&text[..got])?;
        let count: u64 = text.trim().parse().context("the sink's counter is no number")?;
        Ok(count.saturating_sub(self.before))
    }
}
