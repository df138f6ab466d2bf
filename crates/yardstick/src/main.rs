//! What Plateway is measured with: the ceiling (the barest responder) and the bare client.
//!
//! Both are written for speed alone and are no part of the product. They speak just enough NVMe/TCP
//! to stand opposite each other, Plateway, or any other target. `ceiling.rs` and `client.rs` are the
//! two programs; `ring.rs` and `outbox.rs` is what they share. `aoe.rs` has the same pair for ATA over
//! Ethernet. `options.rs`, `memory.rs`, `system.rs` and `report.rs` serve all four.
//! Absent on purpose: the workspace's own crates, so that nothing that is measured is part of the measure.

mod aoe;
mod ceiling;
mod client;
mod memory;
mod options;
mod outbox;
mod pdu;
mod report;
mod ring;
mod system;

use anyhow::Result;
use clap::{Parser, Subcommand};

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
    Ceiling(ceiling::Options),
    /// Put load on a target and count.
    Client(client::Options),
    /// Run the barest AoE responder there is.
    CeilingAoe(aoe::responder::Options),
    /// Put load on an AoE target and count.
    ClientAoe(aoe::client::Options),
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Ceiling(options) => ceiling::run(&options)?,
        Command::Client(options) => options.load.show(&client::run(&options)?),
        Command::CeilingAoe(options) => aoe::responder::run(&options)?,
        Command::ClientAoe(options) => options.load.show(&aoe::client::run(&options)?),
    }
    Ok(())
}
