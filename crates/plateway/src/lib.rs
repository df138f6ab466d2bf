//! Plateway: block storage over every wire, in one program.
//!
//! Here: the command line and where each command begins. Read `cli.rs` for the commands,
//! `commands/` for what each does, `config/mod.rs` for what a configuration is, `run/mod.rs` for a
//! running server, `preview.rs` for what one would find, `control/mod.rs` for its control
//! socket; `log/mod.rs` for its log; the data path is in other crates.

pub mod checks;
mod cli;
mod commands;
mod config;
mod control;
mod log;
mod metrics;
mod preview;
mod protocols;
#[cfg(debug_assertions)]
mod recorded;
mod run;
mod service;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

/// Runs the command that was typed.
pub fn main() -> ExitCode {
    // In a log a line stays a line, so that it can be searched.
    let wrap = std::io::stderr().is_terminal();
    let hook = miette::set_hook(Box::new(move |_| {
        Box::new(miette::MietteHandlerOpts::new().wrap_lines(wrap).build())
    }));
    #[cfg(debug_assertions)]
    recorded::options();
    let done = hook.map_err(Into::into).and_then(|()| commands::run(cli::Cli::parse().command));
    log::end(&done);
    done.map_or_else(|error| commands::exit_code(&error).into(), |()| ExitCode::SUCCESS)
}
