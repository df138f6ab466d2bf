//! `plateway status`: how a running server is, as tables or as the JSON of the control socket.

use comfy_table::Table;

use crate::cli::StatusArgs;
use crate::config::size::Size;
use crate::control::status::Counters;
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
        ("exports", exports(status)),
        ("sessions", sessions(status)),
    ] {
        if table.row_count() > 0 {
            parts.push(format!("{title}\n{table}\n"));
        }
    }
    let problems: Vec<&str> =
        status.volumes.iter().filter_map(|volume| volume.problem.as_deref()).collect();
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
