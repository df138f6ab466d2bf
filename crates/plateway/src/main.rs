//! Plateway: block storage over every wire, in one program.
//!
//! Here: the command line and where each command begins. Read `cli.rs` for the commands and
//! `config/mod.rs` for what a configuration is; the data path is in other crates.
#![forbid(unsafe_code)]
// The commands that use all of this are declared beside these modules.
#![allow(dead_code)]

mod cli;
mod config;

use clap::Parser;

fn main() -> miette::Result<()> {
    match cli::Cli::parse().command {
        cli::Command::Check(args) => {
            let defaults = config::defaults::Defaults::of_this_machine();
            let checked = config::load(&args.file, &defaults)?;
            for line in checked.warnings.lines() {
                eprintln!("{line}");
            }
            println!("{}", config::plan::Plan::initial(&checked.args));
            Ok(())
        }
        _ => Err(miette::miette!("this command is not part of this build")),
    }
}
