//! `plateway disks`: the disks of a running server, and the way back to writes after a failure.

use crate::cli::{DisksAction, DisksArgs};
use crate::control::Client;

/// Lists disks or reopens one.
pub(crate) fn run(args: &DisksArgs) -> miette::Result<()> {
    let client = Client::new(&super::socket(args.control.as_deref()));
    match &args.action {
        DisksAction::List => {
            let status = client.status()?;
            super::show(args.json, &status.disks, || format!("{}\n", super::status::disks(&status)))
        }
        DisksAction::Reopen { name } => {
            let done = client.reopen(name)?;
            super::show(args.json, &done, || format!("{done}\n"))
        }
    }
}
