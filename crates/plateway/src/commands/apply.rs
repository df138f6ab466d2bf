//! `plateway apply`: brings a running server to a configuration and prints what was done.

use crate::cli::ApplyArgs;
use crate::config::{self, defaults::Defaults};
use crate::control::Client;
use crate::run::Consent;

/// Applies.
pub(crate) fn run(all: &ApplyArgs) -> miette::Result<()> {
    let args = &all.config;
    // Checked here first: so mistakes are shown with the text around them.
    let checked = config::load(args.file(), &Defaults::of_this_machine())?;
    let socket = args.control.as_ref().unwrap_or(&checked.args.server.control);
    let consent =
        Consent { overwrite: args.overwrite.clone(), yes: all.yes, allow_empty: all.allow_empty };
    let changes = Client::new(socket).apply(args.file(), super::read(args.file())?, &consent)?;
    if args.json {
        return super::print_json(&changes);
    }
    super::print_changes(&changes)?;
    if changes.steps.is_empty() { Ok(()) } else { super::print("applied\n") }
}
