//! `plateway session`: hosts that are connected to a running server, and the end of their sessions.

use crate::cli::{SessionAction, SessionArgs};
use crate::control::table_of;

pub(crate) fn run(args: &SessionArgs) -> miette::Result<()> {
    let client = super::client(&args.server)?;
    match &args.action {
        SessionAction::List => {
            let sessions = client.status()?.protocols.sessions();
            super::show(args.server.json, &sessions, || {
                let table = table_of(
                    &sessions,
                    &[
                        ("host", |one| one.host.clone()),
                        ("name", |one| one.name.clone().unwrap_or("-".to_owned())),
                        ("address", |one| one.peer.clone()),
                        ("protocol", |one| one.protocol.to_owned()),
                        ("export", |one| one.export.clone()),
                        ("state", |one| one.state.clone()),
                    ],
                );
                match sessions.is_empty() {
                    true => "no host is connected\n".to_owned(),
                    false => format!("{table}\n"),
                }
            })
        }
        SessionAction::Close { host } => {
            let done = client.close_sessions(host)?;
            super::show(args.server.json, &done, || format!("{done}\n"))
        }
    }
}
