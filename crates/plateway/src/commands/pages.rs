//! `plateway completions` and `plateway man`: what shells and `man` know of the command line, made
//! from the command line itself, so that they say the same.

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, ManArgs};

/// Prints the completions of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> miette::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "plateway", &mut text);
    super::print(&String::from_utf8_lossy(&text))
}

/// Writes `plateway.1` and a page for each command.
pub(super) fn man(args: &ManArgs) -> miette::Result<()> {
    let folder = args.folder.display();
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        miette::miette!(
            help = "the folder has to be there: mkdir -p {folder}",
            "cannot write the pages into {folder}: {error}"
        )
    })
}
