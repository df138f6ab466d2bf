//! `plateway disks`: the disks of a running server, the way back to writes after a failure, the
//! word that a disk which is not the known one is meant, and the end of a member's label.

use std::path::Path;

use lab::Place;
use volume::label::LABEL_AREA;

use super::session::{Opening, Session};
use crate::cli::{DisksAction, DisksArgs};
use crate::config;
use crate::config::defaults::Defaults;
use crate::config::disk::DiskConfig;
use crate::run::disks::accept;
use crate::run::state::StateDirectory;

/// Lists disks or reopens one.
pub(crate) fn run(args: &DisksArgs) -> miette::Result<()> {
    let config = args.server.config.as_deref();
    let client = || super::client(&args.server);
    match &args.action {
        DisksAction::List => {
            let status = client()?.status()?;
            super::show(args.server.json, &status.disks, || {
                format!("{}\n", super::status::disks(&status))
            })
        }
        DisksAction::Reopen { name } => {
            let done = client()?.reopen(name)?;
            super::show(args.server.json, &done, || format!("{done}\n"))
        }
        DisksAction::Accept { disk, state, new } => {
            let (disk, directory) = named(disk, config)?;
            let directory = StateDirectory::new(state.as_deref().unwrap_or(&directory));
            let done = accept(&disk, directory, *new)?;
            super::show(args.server.json, &done, || format!("{done}\n"))
        }
        DisksAction::Wipe { disk, yes } => {
            let (disk, state) = named(disk, config)?;
            let done = wipe(&disk, &state, *yes)?;
            super::show(args.server.json, &done, || format!("{done}\n"))
        }
    }
}

/// Takes the label off a disk that nobody serves.
fn wipe(disk: &DiskConfig, state: &Path, yes: bool) -> miette::Result<String> {
    let DiskConfig { name, uri, .. } = disk;
    let opening = Opening {
        disks: &[(uri.as_it_is(), !yes)],
        config: None,
        cached: false,
        state: Some(state),
        shards: 1,
        in_flight: LABEL_AREA,
    };
    let session = Session::open(&opening)?;
    let label = session.label_on(Place(0))?;
    let done = match label {
        None => Err(miette::miette!(
            help = "Plateway knows no other labels: `wipefs` and `blkdiscard` take away what others left",
            "disk {name}: expected the label of a member, seen none: nothing was done"
        )),
        Some(label) if !yes => Err(miette::miette!(
            help = "where that set is given up, say so with --yes; data stay where they are",
            "disk {name} is a member of {label}: without its label the set cannot be assembled again"
        )),
        Some(label) => session
            .wipe_label(Place(0))
            .map(|()| format!("disk {name} has no label any more; it was a member of {label}")),
    };
    // What failed first is told.
    let closed = session.close();
    done.and_then(|done| closed.map(|()| done))
}

/// A disk by its name in a configuration or, without one, by its URI, and where identities are
/// stored.
fn named(disk: &str, file: Option<&Path>) -> miette::Result<(DiskConfig, std::path::PathBuf)> {
    let defaults = Defaults::of_this_machine();
    let Some(file) = file else {
        let uri = disk.parse().map_err(|error| {
            miette::miette!(
                help = "a disk of a configuration is named with --config FILE",
                "{error}"
            )
        })?;
        return Ok((DiskConfig::plain(disk.to_owned(), uri), defaults.state));
    };
    let args = config::load(file, &defaults)?.args;
    let names: Vec<&str> = args.disks.iter().map(|disk| disk.name.as_str()).collect();
    match args.disks.iter().find(|one| one.name == disk) {
        Some(disk) => Ok((disk.clone(), args.server.state)),
        None => Err(miette::miette!(
            "{} has no disk {disk}: expected one of {}",
            file.display(),
            names.join(", ")
        )),
    }
}
