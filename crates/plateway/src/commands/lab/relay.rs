//! `plateway lab relay`: a delay between two interfaces, in a process and a namespace of its own.
//!
//! The relay itself is the reactor's. It says what it has done on standard error, ten times a second
//! at most, from the moment on at which it takes frames: `relayed SENT dropped DROPPED late LATE`. It
//! ends by being ended, or with an error of one of its interfaces.

use std::convert::Infallible;
use std::time::Duration;

use reactor::{RelayCounts, RelayOptions};

use crate::cli::LabRelayArgs;

pub(super) fn run(args: &LabRelayArgs) -> miette::Result<Infallible> {
    let options = RelayOptions {
        interfaces: [args.one.clone(), args.other.clone()],
        delay: Duration::from_micros(args.delay_us.into()),
        bytes_max: args.bytes_max,
    };
    let tell = |RelayCounts { sent, dropped, late }: &RelayCounts| {
        eprintln!("relayed {sent} dropped {dropped} late {late}");
    };
    reactor::relay(&options, tell).map_err(|error| miette::miette!("{error}"))
}
