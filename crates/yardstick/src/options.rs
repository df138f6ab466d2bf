//! What the command lines of the four programs have in common.
//!
//! In: words. Out: sizes in bytes, times, and the load that a client puts on its target. Errors: a word that is none, in words.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::system::Target;

/// The load of a client, whatever it speaks.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadOptions {
    /// What to do.
    #[arg(long, default_value = "randread")]
    pub(crate) rw: Pattern,
    /// Length of the measured window.
    #[arg(long, default_value = "2.0", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// Load before the window.
    #[arg(long, default_value = "0.3", value_parser = parse_seconds)]
    pub(crate) warm_up: Duration,
    /// CPU to pin the thread to.
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
    /// Touch every place of the disk once (over AoE: write it), then end.
    #[arg(long)]
    pub(crate) fill: bool,
    /// Process whose CPU time is read at both ends of the window.
    #[arg(long)]
    target_pid: Option<u32>,
    /// CPUs of that process.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    target_cpus: Vec<usize>,
    /// Print JSON on one line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    Read,
    Write,
    Randread,
    Randwrite,
}

impl Pattern {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Pattern::Write | Pattern::Randwrite)
    }

    pub(crate) fn is_random(self) -> bool {
        matches!(self, Pattern::Randread | Pattern::Randwrite)
    }
}

impl LoadOptions {
    /// The process whose CPU time is read.
    pub(crate) fn target(&self) -> Option<Target> {
        self.target_pid.map(|pid| Target::new(pid, &self.target_cpus))
    }

    /// Prints what a client saw, on one line or on many.
    pub(crate) fn show(&self, value: &Value) {
        if self.json {
            println!("{value}");
        } else {
            println!("{value:#}");
        }
    }
}

/// Reads a size such as `4096`, `4k`, `512MiB`; the units are powers of two.
pub(crate) fn parse_size(text: &str) -> Result<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        other => bail!("no unit is called {other:?}; known are k, m and g"),
    };
    let number: usize = digits.parse()?;
    number.checked_mul(1 << shift).with_context(|| format!("{text} is too large"))
}

/// Reads seconds, with decimals.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_powers_of_two() {
        assert_eq!(parse_size("4096").ok(), Some(4096));
        assert_eq!(parse_size("4k").ok(), Some(4096));
        assert_eq!(parse_size("512MiB").ok(), Some(512 << 20));
        assert!(parse_size("4 parsecs").is_err());
        assert!(parse_size("").is_err());
    }

    #[test]
    fn seconds_have_decimals_and_are_never_negative() {
        assert_eq!(parse_seconds("0.3").ok(), Some(Duration::from_millis(300)));
        assert!(parse_seconds("-1").is_err() && parse_seconds("soon").is_err());
    }
}
