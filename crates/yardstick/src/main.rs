//! What Plateway is measured with: the ceiling (the barest responder) and the bare client.
//!
//! Both are written for speed alone and are no part of the product. They speak just enough NVMe/TCP
//! to stand opposite each other, Plateway, or any other target. `ceiling.rs` and `client.rs` are the
//! two programs; `ring.rs` and `outbox.rs` is what they share. `aoe.rs` has the same pair for ATA over
//! Ethernet. `memory.rs`, `system.rs` and `report.rs` serve all four. Absent on purpose:
//! the workspace's own crates, so that nothing that is measured is part of the measure.

mod aoe;
mod ceiling;
mod client;
mod memory;
mod outbox;
mod pdu;
mod report;
mod ring;
mod system;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures NVMe/TCP and AoE targets: a bare responder and a bare client of each.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the barest NVMe/TCP responder there is.
    Ceiling(CeilingArgs),
    /// Put load on a target and count.
    Client(ClientArgs),
    /// Run the barest AoE responder there is.
    CeilingAoe(CeilingAoeArgs),
    /// Put load on an AoE target and count.
    ClientAoe(ClientAoeArgs),
}

#[derive(Args)]
struct CeilingAoeArgs {
    /// Interface to answer on.
    #[arg(long)]
    interface: String,
    /// Shelf and slot.
    #[arg(long, default_value = "7.0", value_parser = aoe::wire::Address::parse)]
    address: aoe::wire::Address,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// Size of the RAM area.
    #[arg(long, default_value = "512MiB", value_parser = parse_size)]
    size: usize,
    /// Frames that the receive ring holds.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=65536))]
    frames: u32,
    /// End after that many seconds.
    #[arg(long)]
    seconds: Option<f64>,
}

#[derive(Args)]
struct ClientAoeArgs {
    /// Interface to ask on.
    #[arg(long)]
    interface: String,
    /// Shelf and slot of the target.
    #[arg(long, default_value = "7.0", value_parser = aoe::wire::Address::parse)]
    address: aoe::wire::Address,
    /// What to do.
    #[arg(long, default_value = "randread")]
    rw: Pattern,
    /// Size of a command's data; `full` is what a frame of the target holds.
    #[arg(long, default_value = "full", value_parser = parse_frame)]
    bs: FrameSize,
    /// Commands outstanding, at most what the target buffers; 0 puts no load on it.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(0..=1000))]
    window: u16,
    /// Receive by a ring: then the kernel copies in its softirq, which may run on the target's CPU.
    #[arg(long)]
    ring: bool,
    /// Send a command again when no answer has come for so long.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(4..=10_000))]
    retry_ms: u64,
    /// Length of the measured window.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Load before the window.
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// Write every place of the disk once, then end.
    #[arg(long)]
    fill: bool,
    /// Measure, then send commands for as long without waiting for answers, and measure again a second later.
    #[arg(long)]
    overload: bool,
    /// Process whose CPU time is read at both ends of the window.
    #[arg(long)]
    target_pid: Option<u32>,
    /// CPUs of that process.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    target_cpus: Vec<usize>,
    /// Count everything that those CPUs do, softirqs of sleeping threads and neighbours included.
    #[arg(long)]
    target_core: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A number of bytes, or as many as a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameSize {
    Full,
    Bytes(usize),
}

fn parse_frame(text: &str) -> Result<FrameSize> {
    if text == "full" { Ok(FrameSize::Full) } else { parse_size(text).map(FrameSize::Bytes) }
}

#[derive(Args)]
struct CeilingArgs {
    /// Address to listen on; port 0 takes a free one and prints it.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// Size of the RAM area.
    #[arg(long, default_value = "512MiB", value_parser = parse_size)]
    size: usize,
    /// Look for work that long before going to sleep.
    #[arg(long, default_value_t = 0)]
    spin_us: u64,
    /// Receive buffer of a connection.
    #[arg(long, default_value = "256KiB", value_parser = parse_size)]
    buffer: usize,
    /// End after that many seconds.
    #[arg(long)]
    seconds: Option<f64>,
}

#[derive(Args)]
struct ClientArgs {
    /// Address of the target.
    #[arg(long)]
    connect: SocketAddr,
    /// Subsystem to connect to.
    #[arg(long, default_value = "nqn.2026-11.net.plateway:ceiling")]
    nqn: String,
    /// This host's name.
    #[arg(long, default_value = "nqn.2026-11.net.plateway:yardstick")]
    hostnqn: String,
    /// Namespace.
    #[arg(long, default_value_t = 1)]
    nsid: u32,
    /// What to do.
    #[arg(long, default_value = "randread")]
    rw: Pattern,
    /// Size of a command's data.
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    bs: usize,
    /// Commands outstanding on each connection.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1023))]
    iodepth: u16,
    /// I/O queues; 0 puts no load on the target.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1024))]
    connections: u16,
    /// Length of the measured window.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Load before the window.
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// Receive buffer of a connection.
    #[arg(long, default_value = "512KiB", value_parser = parse_size)]
    buffer: usize,
    /// Header digests.
    #[arg(long)]
    hdgst: bool,
    /// Data digests.
    #[arg(long)]
    ddgst: bool,
    /// Keep-alive time-out of every controller, in milliseconds.
    #[arg(long, default_value_t = 120_000)]
    kato_ms: u64,
    /// Idle connections beside the load.
    #[arg(long, default_value_t = 0)]
    idle_connections: usize,
    /// I/O queues of each controller among the idle connections.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=128))]
    idle_queues: u16,
    /// Touch every place of the namespace once, then end.
    #[arg(long)]
    fill: bool,
    /// Connections that ask for data and never receive them.
    #[arg(long, default_value_t = 0)]
    stuck_connections: usize,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    Read,
    Write,
    Randread,
    Randwrite,
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
    match Cli::parse().command {
        Command::Ceiling(args) => ceiling::run(&ceiling::Options {
            listen: args.listen,
            cpu: args.cpu,
            size: args.size,
            spin: Duration::from_micros(args.spin_us),
            buffer: args.buffer,
            time: args.seconds.map(Duration::from_secs_f64),
        }),
        Command::Client(args) => {
            let json = args.json;
            show(&client::run(&options(args))?, json);
            Ok(())
        }
        Command::CeilingAoe(args) => aoe::responder::run(&aoe::responder::Options {
            interface: args.interface,
            address: args.address,
            cpu: args.cpu,
            size: args.size,
            frames: args.frames as usize,
            time: args.seconds.map(Duration::from_secs_f64),
        }),
        Command::ClientAoe(args) => {
            let json = args.json;
            show(&aoe::client::run(&options_aoe(args))?, json);
            Ok(())
        }
    }
}

/// Prints what a client saw, on one line or on many.
fn show(value: &serde_json::Value, json: bool) {
    if json {
        println!("{value}");
    } else {
        println!("{value:#}");
    }
}

fn options_aoe(args: ClientAoeArgs) -> aoe::client::Options {
    aoe::client::Options {
        interface: args.interface,
        address: args.address,
        write: matches!(args.rw, Pattern::Write | Pattern::Randwrite),
        random: matches!(args.rw, Pattern::Randread | Pattern::Randwrite),
        size: match args.bs {
            FrameSize::Full => None,
            FrameSize::Bytes(bytes) => Some(bytes),
        },
        window: args.window,
        ring: args.ring,
        retry: Duration::from_millis(args.retry_ms),
        warm_up: Duration::from_secs_f64(args.warm_up),
        time: Duration::from_secs_f64(args.seconds),
        cpu: args.cpu,
        fill: args.fill,
        overload: args.overload,
        target: args.target_pid.map(|pid| (pid, args.target_cpus)),
        counted: if args.target_core { system::Counted::Core } else { system::Counted::Threads },
    }
}

fn options(args: ClientArgs) -> client::Options {
    client::Options {
        peer: client::Peer {
            address: args.connect,
            subsystem: args.nqn,
            host: args.hostnqn,
            nsid: args.nsid,
            header_digest: args.hdgst,
            data_digest: args.ddgst,
            keep_alive: Duration::from_millis(args.kato_ms),
        },
        write: matches!(args.rw, Pattern::Write | Pattern::Randwrite),
        random: matches!(args.rw, Pattern::Randread | Pattern::Randwrite),
        size: args.bs,
        depth: args.iodepth,
        connections: args.connections,
        buffer: args.buffer,
        warm_up: Duration::from_secs_f64(args.warm_up),
        time: Duration::from_secs_f64(args.seconds),
        cpu: args.cpu,
        idle: (args.idle_connections, args.idle_queues),
        fill: args.fill,
        stuck: args.stuck_connections,
        target: args.target_pid.map(|pid| (pid, args.target_cpus)),
    }
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
        assert_eq!(parse_frame("full").ok(), Some(FrameSize::Full));
        assert_eq!(parse_frame("1k").ok(), Some(FrameSize::Bytes(1024)));
    }
}
