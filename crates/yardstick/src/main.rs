//! What Plateway is measured with: the ceiling (the barest responder) and the bare client.
//!
//! Both are written for speed alone and are no part of the product. They speak just enough of a
//! protocol to stand opposite each other, Plateway, or any other target: `nvme.rs`, `iscsi.rs` and
//! `aoe.rs` have a pair each, `mpls.rs` a forwarder and who sends it frames. The pairs over TCP run on `responder.rs` and `load.rs`, whose threads
//! stand on `ring.rs`, `inbox.rs`, `outbox.rs`, `zero_copy.rs` and `bytes.rs`, what speaks Ethernet on `packet.rs`.
//! `watch.rs` notes when an interface was silent.
//! `memory.rs`, `system.rs`, `places.rs` and `report.rs` serve all; `hog.rs` is who competes with a target for its CPU. Absent on purpose:
//! the workspace's own crates, so that nothing that is measured is part of the measure.

mod aoe;
mod bytes;
mod disk;
mod hog;
mod inbox;
mod iscsi;
mod load;
mod memory;
mod mpls;
mod nvme;
mod outbox;
mod packet;
mod places;
mod report;
mod responder;
mod ring;
mod system;
mod watch;
mod zero_copy;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};

use system::Target;

/// Measures NVMe/TCP, iSCSI and AoE targets, and routers of labels: a bare responder and a bare
/// client of each.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the barest NVMe/TCP responder there is.
    Ceiling(responder::Options),
    /// Put load on an NVMe/TCP target and count.
    Client(nvme::client::Options),
    /// Run the barest iSCSI target there is.
    CeilingIscsi(responder::Options),
    /// Put load on an iSCSI target and count.
    ClientIscsi(iscsi::client::Options),
    /// Run the barest AoE responder there is.
    CeilingAoe(aoe::responder::Options),
    /// Put load on an AoE target and count.
    ClientAoe(aoe::client::Options),
    /// Run the barest forwarder of labelled frames there is.
    Forward(mpls::forward::Options),
    /// Send labelled frames and count what comes out.
    Generate(mpls::generate::Options),
    /// Note when frames of a kind come to an interface, and when none did.
    Watch(watch::Options),
    /// Spin on a CPU and count the loops, until standard input ends.
    Hog(hog::Options),
}

/// How a client measures, whatever it speaks.
#[derive(Args, Clone, Debug)]
struct Measure {
    /// What to do: read, randread, write, randwrite, or both, of a hundred commands so many reads: rw=70, randrw=70.
    #[arg(long, default_value = "randread", value_parser = Pattern::parse)]
    rw: Pattern,
    /// Length of the measured window.
    #[arg(long, default_value = "2", value_parser = parse_seconds)]
    seconds: Duration,
    /// Load before the window.
    #[arg(long, default_value = "0.3", value_parser = parse_seconds)]
    warm_up: Duration,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// Touch every place of the disk once, then end; in random order if the pattern is random.
    #[arg(long)]
    fill: bool,
    /// Process whose CPU time is read at both ends of the window.
    #[arg(long)]
    target_pid: Option<u32>,
    /// CPUs of that process.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    target_cpus: Vec<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Measure {
    fn target(&self) -> Option<Target> {
        self.target_pid.map(|pid| Target::new(pid, &self.target_cpus))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pattern {
    is_random: bool,
    /// Of a hundred commands, how many read; the others write.
    reads: u8,
}

impl Pattern {
    const RANDWRITE: Self = Self { is_random: true, reads: 0 };

    fn parse(text: &str) -> Result<Self> {
        let (kind, share) =
            text.split_once('=').map_or((text, None), |(kind, share)| (kind, Some(share)));
        let order = kind.strip_prefix("rand");
        let expected = || {
            format!("expected read, randread, write, randwrite, rw=70 or randrw=70, seen {text:?}")
        };
        let reads = match (order.unwrap_or(kind), share) {
            ("read", None) => 100,
            ("write", None) => 0,
            ("rw", share) => share.unwrap_or("50").parse().with_context(expected)?,
            _ => bail!(expected()),
        };
        ensure!(reads <= 100, expected());
        Ok(Self { is_random: order.is_some(), reads })
    }

    /// Whether it does nothing but write.
    fn writes(self) -> bool {
        self.reads == 0
    }

    /// Whether it reads and writes.
    fn mixes(self) -> bool {
        (1..100).contains(&self.reads)
    }
}

fn parse_seconds(text: &str) -> Result<Duration> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

/// Reads a size such as `4096`, `4k`, `512MiB`; the units are powers of two.
fn parse_size(text: &str) -> Result<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        other => bail!("no unit is called {other:?}; known are k, m and g"),
    };
    let number: usize = digits.parse()?;
    number.checked_mul(1 << shift).ok_or_else(|| anyhow::anyhow!("{text} is too large"))
}

fn main() -> Result<()> {
    match &Cli::parse().command {
        Command::Ceiling(options) => responder::run::<nvme::ceiling::Connection>(options),
        Command::Client(options) => show(&nvme::client::run(options)?, options.shape.measure.json),
        Command::CeilingIscsi(options) => responder::run::<iscsi::ceiling::Connection>(options),
        Command::ClientIscsi(options) => {
            show(&iscsi::client::run(options)?, options.shape.measure.json)
        }
        Command::CeilingAoe(options) => aoe::responder::run(options),
        Command::ClientAoe(options) => show(&aoe::client::run(options)?, options.measure.json),
        Command::Forward(options) => show(&mpls::forward::run(options)?, options.json),
        Command::Generate(options) => show(&mpls::generate::run(options)?, options.json),
        Command::Watch(options) => show(&watch::run(options)?, options.json),
        Command::Hog(options) => show(&hog::run(options)?, options.json),
    }
}

/// Prints what a client saw, on one line or on many.
fn show(value: &serde_json::Value, json: bool) -> Result<()> {
    match json {
        true => println!("{value}"),
        false => println!("{value:#}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_is_to_be_done_is_read_as_the_lab_writes_it() {
        let parsed =
            |text: &str| Pattern::parse(text).ok().map(|seen| (seen.is_random, seen.reads));
        for (text, expected) in [
            ("read", (false, 100)),
            ("randread", (true, 100)),
            ("write", (false, 0)),
            ("randwrite", (true, 0)),
            ("rw", (false, 50)),
            ("rw=70", (false, 70)),
            ("randrw=0", (true, 0)),
        ] {
            assert_eq!(parsed(text), Some(expected), "{text}");
        }
        for wrong in ["", "rand", "trim", "read=70", "rw=", "rw=101", "randrw=-1", "randrandread"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_in_powers_of_two() {
        assert_eq!(parse_size("4096").ok(), Some(4096));
        assert_eq!(parse_size("4k").ok(), Some(4096));
        assert_eq!(parse_size("512MiB").ok(), Some(512 << 20));
        assert!(parse_size("4 parsecs").is_err());
        assert!(parse_size("").is_err());
    }
}
