//! `plateway check`: whether a configuration can be used, what a start would find, and what it would do: to the server that runs, or from nothing.
//!
//! First what was found (disks, volumes, members, listeners, links), then the steps; what would be refused ends it with exit code 1, each at its line.

use comfy_table::Table;
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::config::quick::Flags;
use crate::config::size::Size;
use crate::config::{self, Checked, defaults::Defaults, plan::Plan};
use crate::control::{Changes, Client, ClientError, table};
use crate::preview::{Preview, Served, preview};
use crate::run::check_overwrite;

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

/// Checks.
pub(crate) fn run(args: &CheckArgs) -> miette::Result<()> {
    let defaults = Defaults::of_this_machine();
    let checked = config::load(&args.file, &defaults)?;
    check_overwrite(&checked.args, &args.overwrite)?;
    let socket = args.control.as_ref().unwrap_or(&checked.args.server.control);
    let client = Client::new(socket);
    let text = super::read(&args.file)?;
    let (served, changes) = match client.check(&args.file, text) {
        Ok(changes) => (Some(served(&client, &defaults)?), changes),
        // A socket that was named must answer; the usual one need not.
        Err(ClientError::Absent { .. }) if args.control.is_none() => {
            let steps =
                Plan::initial(&checked.args).steps.iter().map(ToString::to_string).collect();
            (None, Changes { steps, warnings: checked.warnings.lines().collect() })
        }
        Err(error) => return Err(error.into()),
    };
    let mut found = preview(&checked, served.as_ref(), &args.overwrite);
    let mistakes = std::mem::take(&mut found.mistakes);
    let server = served.map(|_| socket.display().to_string());
    if args.json {
        let lines = mistakes.lines().collect();
        super::print_json(&Answer { server, changes, found, mistakes: lines })?;
    } else {
        super::print(&text_of(&found));
        super::print(&match &server {
            Some(socket) => format!("the server on {socket} would do:\n"),
            None => "no server answers; from nothing, serve would do:\n".to_owned(),
        });
        super::print_changes(&changes);
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
    let directory = std::fs::read_link(format!("/proc/{}/cwd", client.status()?.pid));
    Ok(Served { args, directory: directory.unwrap_or_default() })
}

fn text_of(found: &Preview) -> String {
    let parts = [
        ("disks", disks(found)),
        ("volumes", volumes(found)),
        ("members", members(found)),
        ("listeners", listeners(found)),
        ("links", links(found)),
    ];
    let shown = parts.into_iter().filter(|(_, table)| table.row_count() > 0);
    shown.map(|(title, table)| format!("{title}\n{table}\n\n")).collect()
}

fn disks(found: &Preview) -> Table {
    let mut shown = table(&["disk", "uri", "size", "access", "blocks", "finding"]);
    for disk in &found.disks {
        let blocks = disk.logical_block.zip(disk.physical_block);
        shown.add_row([
            disk.name.clone(),
            disk.uri.clone(),
            size(disk.bytes),
            disk.access.unwrap_or("-").to_owned(),
            blocks.map_or("-".to_owned(), |(logical, physical)| match logical == physical {
                true => logical.to_string(),
                false => format!("{logical} to {physical}"),
            }),
            disk.found.finding.clone(),
        ]);
    }
    shown
}

fn volumes(found: &Preview) -> Table {
    let mut shown = table(&["volume", "layout", "size", "uuid", "finding"]);
    for volume in &found.volumes {
        shown.add_row([
            volume.name.clone(),
            volume.layout.clone(),
            size(volume.bytes),
            volume.uuid.clone().unwrap_or("-".to_owned()),
            volume.found.finding.clone(),
        ]);
    }
    shown
}

fn members(found: &Preview) -> Table {
    let mut shown = table(&["volume", "index", "disk", "label", "finding"]);
    for volume in &found.volumes {
        for (index, member) in volume.members.iter().enumerate() {
            shown.add_row([
                volume.name.clone(),
                index.to_string(),
                member.disk.clone(),
                member.state.to_owned(),
                member.finding.clone(),
            ]);
        }
    }
    shown
}

fn listeners(found: &Preview) -> Table {
    let mut shown = table(&["listener", "finding"]);
    for listener in &found.listeners {
        shown.add_row([
            format!("{} {}", listener.protocol, listener.address),
            listener.found.finding.clone(),
        ]);
    }
    shown
}

fn links(found: &Preview) -> Table {
    let mut shown = table(&["link", "ethernet", "access", "mac", "mtu", "finding"]);
    for link in &found.links {
        let vlan = link.vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}"));
        shown.add_row([
            link.name.clone(),
            format!("{}{vlan}", link.interface),
            link.link.clone(),
            link.mac.clone().unwrap_or("-".to_owned()),
            link.mtu.map_or("-".to_owned(), |mtu| mtu.to_string()),
            link.found.finding.clone(),
        ]);
    }
    shown
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or("-".to_owned(), |bytes| Size(bytes).to_string())
}
