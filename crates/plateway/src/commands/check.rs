//! `plateway check`: whether a configuration can be used, what a start would find, and what it
//! would do: to the server that runs, or from nothing.
//!
//! First what was found (disks, volumes, members, listeners, links), then the steps; what would be
//! refused ends it with exit code 1, each at its line.

use block::ByteCount;
use reservation::{PathGroup, PathState};
use serde::Serialize;

use crate::cli::ConfigArgs;
use crate::config::quick::Flags;
use crate::config::{self, Checked, ConfigError, defaults::Defaults, plan::Plan};
use crate::control::{Changes, Client, ClientError, Listener, table_of};
use crate::preview::{DiskRow, MemberRow, Preview, preview};
use crate::run::check_overwrite;
use crate::run::look::Served;

/// What `--json` prints.
#[derive(Serialize)]
struct Answer {
    /// The server that was compared with; none if nobody answers.
    server: Option<String>,
    #[serde(flatten)]
    changes: Changes,
    #[serde(flatten)]
    found: Preview,
    /// What would be refused, a line each.
    mistakes: Vec<String>,
}

pub(crate) fn run(args: &ConfigArgs) -> miette::Result<()> {
    let defaults = Defaults::of_this_machine();
    let checked = match config::load(args.file(), &defaults) {
        Err(ConfigError::Wrong(mistakes)) if args.json => {
            let (changes, found) = (Changes::default(), Preview::default());
            let lines = mistakes.lines().collect();
            super::print_json(&Answer { server: None, changes, found, mistakes: lines })?;
            return Err(mistakes.into());
        }
        loaded => loaded?,
    };
    check_overwrite(&checked.args, &args.overwrite)?;
    let socket = args.control.as_ref().unwrap_or(&checked.args.server.control);
    let client = Client::new(socket);
    let text = super::read(args.file())?;
    let (served, mut changes) = match client.check(args.file(), text) {
        Ok(changes) => (Some(served(&client, &defaults)?), changes),
        // A socket that was named must answer; the usual one need not.
        Err(ClientError::Absent { .. }) if args.control.is_none() => {
            let steps = Plan::initial(&checked.args).steps.iter().map(Into::into).collect();
            (
                None,
                Changes {
                    steps,
                    warnings: checked.warnings.lines().collect(),
                    ..Changes::default()
                },
            )
        }
        Err(error) => return Err(error.into()),
    };
    let mut found = preview(&checked, served.as_ref(), &args.overwrite);
    let mistakes = std::mem::take(&mut found.mistakes);
    changes.warnings.append(&mut found.caveats);
    let server = served.map(|_| socket.display().to_string());
    if args.json {
        let lines = mistakes.lines().collect();
        super::print_json(&Answer { server, changes, found, mistakes: lines })?;
    } else {
        super::print(&text_of(&found))?;
        super::print(&match &server {
            Some(socket) => format!("the server on {socket} would do:\n"),
            None => "no server answers; from nothing, serve would do:\n".to_owned(),
        })?;
        super::print_changes(&changes)?;
    }
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes.into()) }
}

/// What the server serves now.
fn served(client: &Client, defaults: &Defaults) -> miette::Result<Served> {
    let text = client.config()?;
    // It may run where we may not.
    let defaults = &Defaults { cpus: (0..=1 << 16).collect(), ..defaults.clone() };
    let Checked { args, .. } =
        config::check_with_flags("the server's configuration", &text, &Flags::default(), defaults)?;
    // Of a server of somebody else it is not to be had: then paths are taken as they stand.
    let status = client.status()?;
    let directory = std::fs::read_link(format!("/proc/{}/cwd", status.pid));
    let failed = status.disks.into_iter().filter_map(|disk| Some((disk.name, disk.problem?)));
    let volumes = status.volumes.into_iter().filter(|volume| volume.state == "failed");
    let failed_volumes = volumes.filter_map(|volume| Some((volume.name, volume.problem?)));
    let group =
        |one: &Listener| Some((PathGroup::new(one.group)?, one.path.parse::<PathState>().ok()?));
    Ok(Served {
        groups: status.listeners.iter().filter_map(group).collect(),
        args,
        directory: directory.unwrap_or_default(),
        failed: failed.collect(),
        failed_volumes: failed_volumes.collect(),
    })
}

fn text_of(found: &Preview) -> String {
    let volumes = found.volumes.iter();
    let members: Vec<(&str, usize, &MemberRow)> = volumes
        .flat_map(|volume| (0..).zip(&volume.members).map(|(at, one)| (&*volume.name, at, one)))
        .collect();
    let parts = [
        (
            "disks",
            table_of(
                &found.disks,
                &[
                    ("disk", |one| one.name.clone()),
                    ("uri", |one| one.uri.clone()),
                    ("size", |one| size(one.bytes)),
                    ("access", |one| one.access.unwrap_or("-").to_owned()),
                    ("blocks", blocks),
                    ("finding", |one| one.found.finding.clone()),
                ],
            ),
        ),
        (
            "volumes",
            table_of(
                &found.volumes,
                &[
                    ("volume", |one| one.name.clone()),
                    ("layout", |one| one.layout.clone()),
                    ("size", |one| size(one.bytes)),
                    ("uuid", |one| one.uuid.clone().unwrap_or("-".to_owned())),
                    ("finding", |one| one.found.finding.clone()),
                ],
            ),
        ),
        (
            "members",
            table_of(
                &members,
                &[
                    ("volume", |(volume, ..)| (*volume).to_owned()),
                    ("index", |(_, index, _)| index.to_string()),
                    ("disk", |(.., one)| one.disk.clone()),
                    ("label", |(.., one)| one.state.to_owned()),
                    ("finding", |(.., one)| one.finding.clone()),
                ],
            ),
        ),
        (
            "listeners",
            table_of(
                &found.listeners,
                &[
                    ("listener", |one| {
                        one.address
                            .iter()
                            .map(|(key, address)| format!("{key} {address}"))
                            .collect()
                    }),
                    ("finding", |one| one.found.finding.clone()),
                ],
            ),
        ),
        (
            "links",
            table_of(
                &found.links,
                &[
                    ("link", |one| one.name.clone()),
                    ("interface", |one| one.interface.values().cloned().collect()),
                    ("vlan", |one| one.vlan.map_or("-".to_owned(), |vlan| vlan.to_string())),
                    ("access", |one| one.link.clone()),
                    ("mac", |one| one.mac.clone().unwrap_or("-".to_owned())),
                    ("mtu", |one| one.mtu.map_or("-".to_owned(), |mtu| mtu.to_string())),
                    ("finding", |one| one.found.finding.clone()),
                ],
            ),
        ),
        (
            "ports of routers",
            table_of(
                &found.ports,
                &[
                    ("port", |one| one.name.clone()),
                    ("router", |one| one.router.clone()),
                    ("kind", |one| one.kind.to_owned()),
                    ("mac", |one| one.mac.clone().unwrap_or("-".to_owned())),
                    ("mtu", |one| one.mtu.map_or("-".to_owned(), |mtu| mtu.to_string())),
                    ("finding", |one| one.found.finding.clone()),
                ],
            ),
        ),
    ];
    let shown = parts.into_iter().filter(|(_, table)| table.row_count() > 0);
    shown.map(|(title, table)| format!("{title}\n{table}\n\n")).collect()
}

fn blocks(disk: &DiskRow) -> String {
    match disk.logical_block.zip(disk.physical_block) {
        None => "-".to_owned(),
        Some((logical, physical)) if logical == physical => logical.to_string(),
        Some((logical, physical)) => format!("{logical} to {physical}"),
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or("-".to_owned(), |bytes| ByteCount(bytes).to_string())
}
