//! `plateway route`: routers of MPLS, run as `serve` runs a configuration, checked as `check` does,
//! and shown.

use super::{check, client, serve, show};
use crate::cli::{RouteAction, RouteArgs, ServeArgs};
use crate::config::{self, defaults::Defaults};
use crate::protocols::RouterStatus;
use crate::run::RunError;

pub(crate) fn run(args: &RouteArgs) -> miette::Result<()> {
    match &args.action {
        Some(RouteAction::Check(args)) => check::run(args),
        Some(RouteAction::Show(server)) => {
            let routers = client(server)?.routers()?;
            show(server.json, &routers, || match routers.routers.is_empty() {
                true => "this server has no router\n".to_owned(),
                false => {
                    routers.routers.iter().map(RouterStatus::text).collect::<Vec<_>>().join("\n")
                }
            })
        }
        Some(RouteAction::Bins(args)) => {
            let milliseconds = args.time.as_millis() as u64;
            let bins = client(&args.server)?.bins(&args.port, milliseconds)?;
            show(args.server.json, &bins, || bins.text())
        }
        None => {
            // What is wrong with the file `serve` says.
            let file = args.config.as_deref();
            let checked =
                file.and_then(|file| config::load(file, &Defaults::of_this_machine()).ok());
            if let (Some(checked), Some(file)) = (checked, file)
                && checked.args.routing.routers.is_empty()
            {
                let file = file.display();
                return Err(RunError::new(format!("{file}: expected a router, seen none"))
                    .help(format!("add [[link]] mpls = true and what docs/routers.md shows; to serve volumes: plateway serve --config {file}"))
                    .into());
            }
            serve::run(&ServeArgs { config: args.config.clone(), ..ServeArgs::default() })
        }
    }
}
