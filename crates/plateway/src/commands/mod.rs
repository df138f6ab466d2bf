//! The commands: one file each, with one entry point that takes what the command line said.
//!
//! A command prints its result to standard output and its errors, as a [`miette::Report`], to
//! standard error with exit code 1, or that of an [`Ended`]. A result that could not be printed is
//! an error.

mod apply;
mod attach;
mod bench;
mod check;
mod connect;
mod copy;
mod demo;
mod disks;
pub(crate) mod dissect;
mod edit;
mod environment;
mod group;
mod init;
mod lab;
mod pages;
mod reservation;
mod route;
mod serve;
mod session;
mod sessions;
mod settling;
mod sim;
mod status;
mod wire;
mod workload_host;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use miette::IntoDiagnostic;
use serde::Serialize;

use crate::cli::{Command, ServerArgs};
use crate::config;
use crate::config::defaults::Defaults;
use crate::control::{Changes, Client};

/// Carries out a command.
pub(crate) fn run(command: Command) -> miette::Result<()> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Disks(args) => disks::run(&args),
        Command::Config(args) => edit::config(&args),
        Command::Init(args) => init::run(&args),
        Command::Volume(args) => edit::volume(&args),
        Command::Host(args) => edit::host(&args),
        Command::Session(args) => sessions::run(&args),
        Command::Connect(args) => connect::run(&args),
        Command::Reservation(args) => reservation::run(&args),
        Command::Group(args) => group::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Copy(args) => copy::run(&args),
        Command::Attach(args) => attach::run(&args),
        Command::Detach(args) => attach::detach(&args),
        Command::Discover(args) => args.target.discover(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Api => print_json(&crate::control::openapi()),
        Command::Schema => print_json(&crate::config::schema::schema()),
        Command::Dissect(args) => dissect::run(&args),
        Command::Wire(args) => wire::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    }
}

/// The exit code after SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// An end that has an exit code of its own.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
pub(crate) struct Ended {
    code: u8,
    message: String,
    #[help]
    help: Option<String>,
}

impl Ended {
    fn new(code: u8, message: String) -> Ended {
        Ended { code, message, help: None }
    }

    fn help(self, help: String) -> Ended {
        Ended { help: Some(help), ..self }
    }
}

/// The exit code of an error.
pub(crate) fn exit_code(error: &miette::Report) -> u8 {
    error.downcast_ref::<Ended>().map_or(1, |ended| ended.code)
}

/// The server behind the control socket that was named, that of the configuration that was named,
/// or where `serve` puts it.
fn client(server: &ServerArgs) -> miette::Result<Client> {
    let defaults = Defaults::of_this_machine();
    Ok(match (&server.control, &server.config) {
        (Some(named), _) => Client::new(named),
        (None, Some(file)) => Client::new(&config::load(file, &defaults)?.args.server.control),
        (None, None) => Client::new(defaults.asked()),
    })
}

/// A configuration's text, which was readable a moment ago.
fn read(file: &Path) -> miette::Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        miette::miette!("cannot read the configuration {}: {error}", file.display())
    })
}

/// Prints steps, and warnings on standard error.
fn print_changes(changes: &Changes) -> miette::Result<()> {
    for line in &changes.warnings {
        crate::log::Event::warn(line).tell();
    }
    match changes.steps.as_slice() {
        [] => print("nothing changes\n"),
        steps => print(&steps.iter().map(|step| format!("{step}\n")).collect::<String>()),
    }?;
    if !changes.needs.is_empty() {
        let (lines, needs) = (changes.in_use.join("\n"), changes.needs.join(" "));
        print(&format!("in use, so that apply needs {needs}:\n{lines}\n"))?;
    }
    Ok(())
}

/// Prints what a command came to: as JSON where that was asked for, else as people read it.
fn show(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> miette::Result<()> {
    match json {
        true => print_json(value),
        false => print(&text()),
    }
}

/// How far a command is, on a terminal; nothing elsewhere.
fn progress_bar(length: u64, template: &str) -> ProgressBar {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(length),
        false => ProgressBar::hidden(),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("a template that was tried"))
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> miette::Result<()> {
    let text = serde_json::to_string_pretty(value).into_diagnostic()?;
    print(&format!("{text}\n"))
}

/// Writes to standard output; a reader that has seen enough is no mistake.
pub(crate) fn print(text: &str) -> miette::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(miette::miette!("cannot write the result to standard output: {error}"))
        }
        _ => Ok(()),
    }
}
