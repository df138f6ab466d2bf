//! `plateway status`: how a running server is, as tables or as the JSON of the control socket; with
//! `--watch` again and again.

mod watch;

use block::ByteCount;
use comfy_table::Table;
use reactor::LinkCounters;
use serde_json::Value;

use crate::cli::StatusArgs;
use crate::control::status::{Disk, Link};
use crate::control::{Status, table_of};
use crate::protocols::router_summaries;

/// Shows.
pub(crate) fn run(args: &StatusArgs) -> miette::Result<()> {
    let client = super::client(&args.server)?;
    if let Some(interval) = args.watch {
        return watch::run(&client, interval);
    }
    let status = client.status()?;
    super::show(args.server.json, &status, || text(&status))
}

fn text(status: &Status) -> String {
    let memory = &status.memory;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let head = format!(
        "plateway {} (pid {}), {}, shards on CPU {:?}, up {:.0} s, {:.2} s of CPU\n\
         memory {}: buffers use {} of {}, {} at most so far; requests that waited for memory: {}, now: {}\n\
         connections: {} now, {} accepted, {} refused, {} closed by protocol errors\n",
        status.version,
        status.pid,
        status.driver_reason,
        status.shards,
        seconds(status.uptime_ns),
        seconds(status.cpu_ns),
        ByteCount(memory.budget_bytes),
        ByteCount(memory.pool.pool_used_bytes),
        ByteCount(memory.pool.pool_bytes),
        ByteCount(memory.pool.pool_used_max_bytes),
        memory.pool.waits,
        memory.pool.waiting,
        status.connections.len(),
        status.counters.accepted,
        status.refused,
        status.counters.misbehaved,
    );
    let mut parts = vec![head];
    let own = [
        ("disks", disks(status)),
        ("volumes", volumes(status)),
        ("reservations", reservations(status)),
        ("listeners", listeners(status)),
        ("links", links(status)),
        ("routers", router_summaries(&status.routers)),
        ("shards", shards(status)),
    ];
    for (title, table) in own.into_iter().chain(status.protocols.tables()) {
        if table.row_count() > 0 {
            parts.push(format!("{title}\n{table}\n"));
        }
    }
    let dropped = [("frames for nobody", &status.misfits)].into_iter();
    let dropped = dropped.chain(status.protocols.dropped());
    for (what, counts) in dropped.filter(|(_, counts)| !counts.is_empty()) {
        let each: Vec<String> =
            counts.iter().map(|(why, count)| format!("{why} {count}")).collect();
        parts.push(format!("{what}: {}\n", each.join(", ")));
    }
    let mut problems: Vec<String> =
        status.volumes.iter().filter_map(|volume| volume.problem.clone()).collect();
    let away = |one: &Disk| Some(format!("disk {}: failed: {}", one.name, one.problem.as_ref()?));
    problems.extend(status.disks.iter().filter_map(away));
    problems.extend(status.links.iter().filter_map(overcommitted));
    problems.extend(status.links.iter().flat_map(unfinished));
    problems.extend(status.routers.iter().flat_map(|one| one.problems.clone()));
    if !problems.is_empty() {
        parts.push(format!("problems\n{}\n", problems.join("\n")));
    }
    parts.join("\n")
}

/// The disks of a server.
pub(super) fn disks(status: &Status) -> Table {
    table_of(
        &status.disks,
        &[
            ("disk", |one| one.name.clone()),
            ("uri", |one| one.uri.clone()),
            ("size", |one| ByteCount(one.bytes).to_string()),
            ("state", |one| match (&one.protected, &one.remote) {
                (Some(why), _) => format!("{}, read-only: {why}", one.state),
                (None, Some(remote)) => format!("{} ({remote})", one.state),
                (None, None) => one.state.clone(),
            }),
            ("cache", |one| one.cache.clone()),
            ("access", |one| one.access.clone()),
            ("reads", |one| one.counters.reads.to_string()),
            ("writes", |one| one.counters.writes.to_string()),
            ("flushes", |one| one.counters.flushes.to_string()),
            ("errors", |one| one.counters.errors.to_string()),
        ],
    )
}

fn volumes(status: &Status) -> Table {
    table_of(
        &status.volumes,
        &[
            ("volume", |one| one.name.clone()),
            ("state", |one| one.state.clone()),
            ("layout", |one| one.layout.clone()),
            ("size", |one| ByteCount(one.bytes).to_string()),
            ("block", |one| one.block_size.to_string()),
            ("uuid", |one| one.uuid.clone()),
            ("reads", |one| one.counters.reads.to_string()),
            ("writes", |one| one.counters.writes.to_string()),
            ("read", |one| ByteCount(one.counters.read_bytes).to_string()),
            ("written", |one| ByteCount(one.counters.write_bytes).to_string()),
            ("errors", |one| one.counters.errors.to_string()),
        ],
    )
}

fn reservations(status: &Status) -> Table {
    let held = status.volumes.iter().filter_map(|one| Some((&one.name, one.reservation.as_ref()?)));
    table_of(
        &held.collect::<Vec<_>>(),
        &[
            ("volume", |(volume, _)| (*volume).clone()),
            ("reserved", |(_, reservation)| reservation.kind.clone()),
            ("held by", |(_, reservation)| reservation.holders.join(" ")),
            ("registered", |(_, reservation)| reservation.registrants.join(" ")),
        ],
    )
}

fn listeners(status: &Status) -> Table {
    table_of(
        &status.listeners,
        &[
            ("listener", |one| {
                let known = |(key, at): (&String, &Value)| Some(format!("{key} {}", at.as_str()?));
                one.address.iter().filter_map(known).collect()
            }),
            ("listens at", |one| one.addresses.join(" ")),
            ("poll", |one| one.poll.clone()),
            ("connections", |one| one.connections.to_string()),
            ("at most", |one| one.connections_max.to_string()),
            ("group", |one| one.group.to_string()),
            ("path", |one| one.path.clone()),
            ("advertise", |one| one.advertise.clone().unwrap_or("-".to_owned())),
            ("chap", |one| one.chap.clone().unwrap_or("-".to_owned())),
        ],
    )
}

/// What each does when it has nothing to do.
fn shards(status: &Status) -> Table {
    table_of(
        &status.work,
        &[
            ("shard", |one| one.shard.to_string()),
            ("turns", |one| one.counters.turns.to_string()),
            ("slept", |one| one.counters.sleeps.to_string()),
            ("looked first", |one| one.counters.looks.to_string()),
            ("in vain", |one| {
                one.counters.looks.saturating_sub(one.counters.looks_paid).to_string()
            }),
            ("stopped", |one| one.counters.looks_stopped.to_string()),
            ("for", |one| format!("{:.2} s", one.counters.looked_ns as f64 / 1e9)),
        ],
    )
}

fn links(status: &Status) -> Table {
    table_of(
        &status.links,
        &[
            ("interface", |one| {
                let vlan = one.vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}"));
                format!("{}{vlan}", one.interface)
            }),
            ("for", |one| {
                let used_for = match one.uses {
                    1 => one.used_for.trim_end_matches('s'),
                    _ => &one.used_for,
                };
                format!("{} {used_for}", one.uses)
            }),
            ("mac", |one| one.mac.clone().unwrap_or("-".to_owned())),
            ("mtu", |one| one.mtu.map_or("-".to_owned(), |mtu| mtu.to_string())),
            ("state", |one| if one.up { one.method.clone() } else { "down".to_owned() }),
            ("ring", |one| one.counters.ring_frames.to_string()),
            ("buffers", |one| one.promised.to_string()),
            ("received", |one| {
                format!("{} ({})", one.counters.received, ByteCount(one.counters.received_bytes))
            }),
            ("sent", |one| {
                format!("{} ({})", one.counters.sent, ByteCount(one.counters.sent_bytes))
            }),
            ("dropped", |one| one.counters.dropped.to_string()),
            ("not sent", |one| one.counters.send_failed.to_string()),
        ],
    )
}

/// What may be lost where more is promised than a ring holds.
fn overcommitted(link: &Link) -> Option<String> {
    (link.up && link.promised > link.counters.ring_frames).then(|| {
        format!(
            "interface {}: the buffers of its exports are {} commands, and its receive ring holds {} frames: bursts of all hosts at once \
             lose some, which are sent again; {} were dropped so far (smaller buffers = of the exports avoid it)",
            link.interface, link.promised, link.counters.ring_frames, link.counters.dropped
        )
    })
}

/// Frames that no router can send on, and whom to mend.
fn unfinished(link: &Link) -> Vec<String> {
    let LinkCounters { over_mtu, unsummed, .. } = link.counters.0;
    let name = &link.interface;
    let mut problems = Vec::new();
    if over_mtu > 0 {
        problems.push(format!(
            "interface {name}: {over_mtu} frames longer than its MTU came and were dropped: whoever sent them has to cut them \
             (there: ethtool -K IF tso off gso off), or the interface to leave them as they came (here: ethtool -K {name} rx-gro-hw off)"
        ));
    }
    if unsummed > 0 {
        problems.push(format!(
            "interface {name}: {unsummed} frames came whose checksum was left to hardware that is not there, and were dropped: \
             whoever sent them has to compute it (there: ethtool -K IF tx off)"
        ));
    }
    problems
}
