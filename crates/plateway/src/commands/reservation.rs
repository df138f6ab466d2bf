//! `plateway reservation`: the way to use a volume again whose holder is not there any more to
//! release it.

use crate::cli::{ReservationAction, ReservationArgs};

/// Frees a volume.
pub(crate) fn run(args: &ReservationArgs) -> miette::Result<()> {
    let ReservationAction::Clear { volume } = &args.action;
    let client = super::client(&args.server)?;
    let done = client.clear_reservation(volume)?;
    super::show(args.server.json, &done, || format!("{done}\n"))
}
