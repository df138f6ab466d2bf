//! `bfd = { ... }`: how the paths of a pseudowire, or the link to a neighbour, are watched.
//!
//! Units: times as their words say. Errors are pushed as mistakes at what was written. Spec: RFC 5880
//! clauses 6.8.1 and 6.8.4.

use std::time::Duration;

use bfd::limits::{INTERVAL_MAX_US, INTERVAL_MIN_US};
use mpls::Watch;
use mpls::limits::REVERT_DEFAULT;

use super::words::{HOUR, time};
use crate::config::file::{NUMBER, table};
use crate::config::resolve::Resolver;

table! {
    LowBfd = "bfd" {
        interval: String = "a time in quotes, such as \"300ms\"",
        multiplier: i64 = NUMBER,
        revert: String = "a time in quotes, such as \"60s\"",
    }
}

/// How something is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BfdConfig {
    /// How often packets are sent and wanted.
    pub(crate) interval: Duration,
    /// After how many of these in silence it has failed.
    pub(crate) multiplier: u8,
    /// For how long it has to be up again before frames go by it.
    pub(crate) revert: Duration,
}

/// What most routers take where nobody says: a failure is found within a second.
impl Default for BfdConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(300), multiplier: 3, revert: REVERT_DEFAULT }
    }
}

impl BfdConfig {
    /// As the shards are told.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            interval_us: self.interval.as_micros() as u32,
            detect_mult: self.multiplier,
            revert_after: self.revert,
        }
    }

    pub(super) fn text(&self) -> String {
        let (interval, revert) = (time(self.interval), time(self.revert));
        let multiplier = self.multiplier;
        format!("{{ interval = \"{interval}\", multiplier = {multiplier}, revert = \"{revert}\" }}")
    }
}

impl Resolver<'_> {
    pub(super) fn bfd(&mut self, low: &LowBfd) -> Option<BfdConfig> {
        let range = Duration::from_micros(INTERVAL_MIN_US.into())
            ..=Duration::from_micros(INTERVAL_MAX_US.into());
        let usual = BfdConfig::default();
        let interval = match &low.interval {
            Some(written) => self.time(written, "interval", range),
            None => Some(usual.interval),
        };
        let multiplier = match &low.multiplier {
            Some(_) => self.number(&low.multiplier, "multiplier", 1..=255).map(|one| one as u8),
            None => Some(usual.multiplier),
        };
        let revert = match &low.revert {
            Some(written) => self.time(written, "revert", Duration::ZERO..=HOUR),
            None => Some(usual.revert),
        };
        Some(BfdConfig { interval: interval?, multiplier: multiplier?, revert: revert? })
    }
}
