//! `plateway status`: how a running server is, as tables or as the JSON of the control socket.

use comfy_table::Table;

use crate::cli::StatusArgs;
use crate::config::size::Size;
use crate::control::status::{Counters, Link};
use crate::control::{Client, Status, table};

/// Shows.
pub(crate) fn run(args: &StatusArgs) -> miette::Result<()> {
    let status = Client::new(&super::socket(args.control.as_deref())).status()?;
    if args.json {
        return super::print_json(&status);
    }
    super::print(&text(&status));
    Ok(())
}

fn text(status: &Status) -> String {
    let memory = &status.memory;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let head = format!(
        "plateway {} (pid {}), {}, shards on CPU {:?}, up {:.0} s, {:.2} s of CPU\n\
         memory {}: pool {} of {} in use, at most {}; {} waits, {} wait now\n\
         connections: {} now, {} accepted, {} refused, {} closed for misbehaviour\n",
        status.version,
        status.pid,
        status.driver_reason,
        status.shards,
        seconds(status.uptime_ns),
        seconds(status.cpu_ns),
        Size(memory.budget_bytes),
        Size(memory.pool_used_bytes),
        Size(memory.pool_bytes),
        Size(memory.pool_used_max_bytes),
        memory.waits,
        memory.waiting,
        status.connections.len(),
        status.accepted,
        status.refused,
        status.misbehaved,
    );
    let mut parts = vec![head];
    for (title, table) in [
        ("disks", disks(status)),
        ("volumes", volumes(status)),
        ("listeners", listeners(status)),
        ("links", links(status)),
        ("exports", exports(status)),
        ("aoe exports", aoe_exports(status)),
        ("sessions", sessions(status)),
    ] {
        if table.row_count() > 0 {
            parts.push(format!("{title}\n{table}\n"));
        }
    }
    let dropped =
        [("frames for nobody", &status.misfits), ("aoe frames dropped", &status.aoe_drops)];
    for (what, counts) in dropped.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        let each: Vec<String> =
            counts.iter().map(|(why, count)| format!("{why} {count}")).collect();
        parts.push(format!("{what}: {}\n", each.join(", ")));
    }
    let mut problems: Vec<String> =
        status.volumes.iter().filter_map(|volume| volume.problem.clone()).collect();
    problems.extend(status.links.iter().filter_map(overcommitted));
    if !problems.is_empty() {
        parts.push(format!("problems\n{}\n", problems.join("\n")));
    }
    parts.join("\n")
}

/// The disks of a server.
pub(super) fn disks(status: &Status) -> Table {
    let mut shown = table(&[
        "disk", "uri", "size", "state", "cache", "access", "reads", "writes", "flushes", "errors",
    ]);
    for disk in &status.disks {
        let Counters { reads, writes, flushes, errors, .. } = disk.counters;
        let state = match (&disk.protected, &disk.remote) {
            (Some(why), _) => format!("{}, takes no writes: {why}", disk.state),
            (None, Some(remote)) => format!("{} ({remote})", disk.state),
            (None, None) => disk.state.clone(),
        };
        shown.add_row([
            disk.name.clone(),
            disk.uri.clone(),
            Size(disk.bytes).to_string(),
            state,
            disk.cache.clone(),
            disk.access.clone(),
            reads.to_string(),
            writes.to_string(),
            flushes.to_string(),
            errors.to_string(),
        ]);
    }
    shown
}

fn volumes(status: &Status) -> Table {
    let mut shown = table(&[
        "volume", "layout", "size", "block", "uuid", "reads", "writes", "read", "written", "errors",
    ]);
    for volume in &status.volumes {
        let Counters { reads, writes, read_bytes, write_bytes, errors, .. } = volume.counters;
        shown.add_row([
            volume.name.clone(),
            volume.layout.clone(),
            Size(volume.bytes).to_string(),
            volume.block_size.to_string(),
            volume.uuid.clone(),
            reads.to_string(),
            writes.to_string(),
            Size(read_bytes).to_string(),
            Size(write_bytes).to_string(),
            errors.to_string(),
        ]);
    }
    shown
}

fn listeners(status: &Status) -> Table {
    let mut shown = table(&["listener", "listens at", "poll us", "connections", "at most"]);
    for listener in &status.listeners {
        shown.add_row([
            format!("nvme {}", listener.nvme),
            listener.addresses.join(" "),
            listener.poll_us.to_string(),
            listener.connections.to_string(),
            listener.connections_max.to_string(),
        ]);
    }
    shown
}

fn exports(status: &Status) -> Table {
    let mut shown = table(&["subsystem", "namespace", "volume", "hosts", "sessions"]);
    for export in &status.exports {
        shown.add_row([
            export.subsystem.clone(),
            export.nsid.to_string(),
            export.volume.clone(),
            export.hosts.clone(),
            export.controllers.to_string(),
        ]);
    }
    shown
}

fn links(status: &Status) -> Table {
    let mut shown = table(&[
        "interface",
        "for",
        "mac",
        "mtu",
        "received by",
        "ring",
        "promised",
        "received",
        "sent",
        "dropped",
        "not sent",
    ]);
    for link in &status.links {
        let (vlan, dash) = (link.vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}")), "-");
        shown.add_row([
            format!("{}{vlan}", link.interface),
            format!("{} {}", link.uses, link.used_for),
            link.mac.clone().unwrap_or(dash.to_owned()),
            link.mtu.map_or(dash.to_owned(), |mtu| mtu.to_string()),
            if link.up { link.method.clone() } else { "down".to_owned() },
            link.ring_frames.to_string(),
            link.promised.to_string(),
            format!("{} ({})", link.received, Size(link.received_bytes)),
            format!("{} ({})", link.sent, Size(link.sent_bytes)),
            link.dropped.to_string(),
            link.send_failed.to_string(),
        ]);
    }
    shown
}

/// What may be lost where more is promised than a ring holds.
fn overcommitted(link: &Link) -> Option<String> {
    (link.up && link.promised > link.ring_frames).then(|| {
        format!(
            "interface {}: its exports promise to hold {} commands, and its receive ring holds {} frames: bursts of all initiators at once \
             lose some, which are sent again; {} were dropped so far (smaller buffers of the exports promise less)",
            link.interface, link.promised, link.ring_frames, link.dropped
        )
    })
}

fn aoe_exports(status: &Status) -> Table {
    let mut shown = table(&[
        "aoe",
        "on",
        "volume",
        "hosts",
        "buffers",
        "reads",
        "writes",
        "read",
        "written",
        "over buffers",
    ]);
    for export in &status.aoe_exports {
        let vlan = export.vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}"));
        shown.add_row([
            format!("{}.{}", export.shelf, export.slot),
            format!("{}{vlan}", export.interfaces.join(" ")),
            export.volume.clone(),
            export.hosts.clone(),
            export.buffers.to_string(),
            export.reads.to_string(),
            export.writes.to_string(),
            Size(export.read_bytes).to_string(),
            Size(export.write_bytes).to_string(),
            export.over_buffers.to_string(),
        ]);
    }
    shown
}

fn sessions(status: &Status) -> Table {
    let mut shown = table(&[
        "host",
        "address",
        "subsystem",
        "controller",
        "state",
        "queues",
        "shard",
        "errors",
    ]);
    for session in &status.controllers {
        shown.add_row([
            session.host.clone(),
            session.peer.clone(),
            session.subsystem.clone(),
            session.controller.to_string(),
            session.state.clone(),
            session.queues.to_string(),
            session.shard.to_string(),
            session.errors.to_string(),
        ]);
    }
    shown
}
