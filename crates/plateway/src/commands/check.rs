//! `plateway check`: whether a configuration can be used, and what it would do: to the server that runs, or from nothing.

use serde::Serialize;

use crate::cli::CheckArgs;
use crate::config::{self, defaults::Defaults, plan::Plan};
use crate::control::{Changes, Client, ClientError};

/// What `--json` prints.
#[derive(Serialize)]
struct Checked {
    /// The server that was compared with; none if nobody answers.
    server: Option<String>,
    #[serde(flatten)]
    changes: Changes,
}

/// Checks.
pub(crate) fn run(args: &CheckArgs) -> miette::Result<()> {
    let checked = config::load(&args.file, &Defaults::of_this_machine())?;
    let socket = args.control.as_ref().unwrap_or(&checked.args.server.control);
    let text = super::read(&args.file)?;
    let (server, changes) = match Client::new(socket).check(&args.file, text) {
        Ok(changes) => (Some(socket.display().to_string()), changes),
        // A socket that was named must answer; the usual one need not.
        Err(ClientError::Absent { .. }) if args.control.is_none() => {
            let steps =
                Plan::initial(&checked.args).steps.iter().map(ToString::to_string).collect();
            (None, Changes { steps, warnings: checked.warnings.lines().collect() })
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        return super::print_json(&Checked { server, changes });
    }
    match &server {
        Some(socket) => super::print(&format!("the server on {socket} would do:\n")),
        None => super::print("no server answers; from nothing, serve would do:\n"),
    }
    super::print_changes(&changes);
    Ok(())
}
