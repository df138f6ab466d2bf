//! `plateway disks`: the disks of a running server, and the way back to writes after a failure.

use crate::cli::{DisksAction, DisksArgs};

/// Lists disks or reopens one.
pub(crate) fn run(args: &DisksArgs) -> miette::Result<()> {
    let client = super::client(args.server.control.as_deref());
    match &args.action {
        DisksAction::List => {
            let status = client.status()?;
            super::show(args.server.json, &status.disks, || {
                format!("{}\n", super::status::disks(&status))
            })
        }
        DisksAction::Reopen { name } => {
            let done = client.reopen(name)?;
            super::show(args.server.json, &done, || format!("{done}\n"))
        }
    }
}
