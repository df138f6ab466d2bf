//! `plateway reservation`: the way to use a volume again whose holder is not there any more to
//! release it.

use crate::cli::{ReservationAction, ReservationArgs};
use crate::control::Client;

/// Frees a volume.
pub(crate) fn run(args: &ReservationArgs) -> miette::Result<()> {
    let client = Client::new(&super::socket(args.control.as_deref()));
    let ReservationAction::Clear { volume } = &args.action;
    let done = client.clear_reservation(volume)?;
    super::show(args.json, &done, || format!("{done}\n"))
}
