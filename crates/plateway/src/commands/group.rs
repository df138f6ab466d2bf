//! `plateway group`: by which listeners hosts use volumes, and by which they had better.

use crate::cli::{GroupAction, GroupArgs};

/// Sets the state of a group.
pub(crate) fn run(args: &GroupArgs) -> miette::Result<()> {
    let GroupAction::Set { group, state } = args.action;
    let client = super::client(&args.server)?;
    let done = client.set_group(group, state)?;
    super::show(args.server.json, &done, || format!("{done}\n"))
}
