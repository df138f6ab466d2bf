//! `plateway config`, `volume` and `host`: what a running server serves, as a configuration, and
//! changes of one value of it. Each is the steps that `apply` would make of a file that says so.

use miette::IntoDiagnostic as _;

use crate::cli::{AllOr, HostAction, HostArgs, ServerArgs, VolumeAction, VolumeArgs};
use crate::config::edit::Edit;

/// Prints what is served.
pub(crate) fn config(args: &ServerArgs) -> miette::Result<()> {
    let text = super::client(args)?.config()?;
    if !args.json {
        return super::print(&text);
    }
    let object: serde_json::Value = toml::from_str(&text).into_diagnostic()?;
    super::print_json(&object)
}

pub(crate) fn volume(args: &VolumeArgs) -> miette::Result<()> {
    let VolumeAction::Resize { volume, size: AllOr(bytes) } = &args.action;
    edit(&args.server, &Edit::Resize { volume: volume.clone(), bytes: *bytes }, false)
}

pub(crate) fn host(args: &HostArgs) -> miette::Result<()> {
    let (volume, host, may, yes) = match &args.action {
        HostAction::Add { volume, host } => (volume, host, true, false),
        HostAction::Remove { volume, host, yes } => (volume, host, false, *yes),
    };
    let (volume, host) = (volume.clone(), host.clone());
    edit(&args.server, &Edit::Host { volume, host, may }, yes)
}

fn edit(server: &ServerArgs, edit: &Edit, yes: bool) -> miette::Result<()> {
    let changes = super::client(server)?.edit(edit, yes)?;
    match server.json {
        true => super::print_json(&changes),
        false => super::print_changes(&changes),
    }
}
