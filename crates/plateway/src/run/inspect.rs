//! How a running server is: the reports of all shards, added up, under the names of the
//! configuration.

use std::net::SocketAddr;
use std::time::Instant;

use block::PAGE_SIZE;
use contract::{Cache, Counters, LinkId, ListenerId};
use reactor::look_at_interface;
use shard::{Protocol, Report};
use volume::gate::Health;
use wire::ethernet::MacAddress;

use super::disks::access_name;
use super::error::RunError;
use super::exports::OpenExport;
use super::paths::state_of;
use super::shape::{self, VolumeFacts};
use super::{OpenDisk, OpenListener, OpenVolume, Running};
use crate::config::address::HostPort;
use crate::config::link::Ethernet;
use crate::config::listener::ListenerConfig;
use crate::config::thing::{Configured, Thing};
use crate::control::status::{self, Status};
use crate::control::{Keyed, counted};
use crate::protocols::{ExportConfig, ProtocolStatus, stream_key};

impl Running {
    /// Where it listens, in the order of the configuration.
    pub(crate) fn addresses(&self) -> Vec<(Protocol, SocketAddr)> {
        let of = |open: &OpenListener| {
            let protocol = open.config.protocol;
            open.addresses.iter().map(move |address| (protocol, *address)).collect::<Vec<_>>()
        };
        self.listeners.values().flat_map(of).collect()
    }

    /// By which address hosts reach each listener; they fill in what only they can know.
    pub(crate) fn portals(&self) -> Vec<(Protocol, HostPort)> {
        let of = |open: &OpenListener| {
            let ListenerConfig { protocol, portal, .. } = &open.config;
            let advertised = portal.advertise.clone();
            let bound = || {
                let bound = open.addresses.first()?;
                let host = match bound.ip() {
                    ip if ip.is_unspecified() => "ADDRESS".to_owned(),
                    ip => ip.to_string(),
                };
                Some(HostPort { host, tcp_port: bound.port() })
            };
            Some((*protocol, advertised.or_else(bound)?))
        };
        self.listeners.values().filter_map(of).collect()
    }

    /// What is exported, and what is told of it.
    pub(crate) fn export_facts(&self) -> Vec<(&ExportConfig, VolumeFacts)> {
        let facts = |open: &OpenExport| self.volume_facts(open.config.volume()).ok();
        let exports = self.exports.values();
        exports.filter_map(|open| Some((&open.config, facts(open)?))).collect()
    }

    /// How everything is.
    pub(crate) fn status(&self) -> Result<Status, RunError> {
        Ok(self.status_of(&self.shards.reports()?))
    }

    pub(super) fn status_of(&self, reports: &[Report]) -> Status {
        let handle = self.shards.handle();
        let stats = handle.stats();
        let server = &self.server;
        Status {
            schema_version: status::SchemaVersion::default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            driver: handle.choice().kind.to_string(),
            driver_reason: handle.choice().reason.clone(),
            shards: server.shards.clone(),
            uptime_ns: nanoseconds(self.started.elapsed()),
            cpu_ns: nanoseconds(reactor::processor_time()),
            memory: status::Memory {
                budget_bytes: server.memory_bytes,
                pool: Keyed::sum(reports.iter().map(|report| report.pool)),
                sockets_max_bytes: reactor::buffer_bound()
                    .map(|bound| 2 * u64::from(bound) * u64::from(server.connections_max)),
            },
            metrics: self.metrics.listener.as_ref().map(|open| open.address.to_string()),
            listeners: self.listeners.values().map(|one| listener(one, reports)).collect(),
            protocols: ProtocolStatus::of(self, reports),
            links: self.link_statuses(),
            routers: self.router_summaries(),
            misfits: counted(reports.iter().flat_map(|report| report.misfits.each())),
            connections: self.connections(reports),
            counters: Keyed::sum(reports.iter().map(|report| report.counters)),
            refused: stats.iter().map(|shard| shard.refused).sum(),
            volumes: self.volume_statuses(reports),
            disks: self
                .disks
                .values()
                .map(|disk| self.disk_status(disk, reports))
                .chain(self.failed.things().filter_map(failed_disk))
                .collect(),
            work: (0..)
                .zip(stats)
                .map(|(shard, stats)| status::Work { shard, counters: Keyed(stats) })
                .collect(),
        }
    }

    /// The shards' numbers of volumes, and their names.
    pub(crate) fn volume_names(&self) -> Vec<(u32, String)> {
        self.volumes.iter().map(|(name, volume)| (volume.id.0, name.clone())).collect()
    }

    /// The shards' numbers of disks, and their names.
    pub(crate) fn disk_names(&self) -> Vec<(u32, String)> {
        self.disks.iter().map(|(name, disk)| (disk.id.0, name.clone())).collect()
    }

    fn link_statuses(&self) -> Vec<status::Link> {
        let stats = self.shards.handle().link_stats();
        let exports = self.links.values().map(|link| {
            let title = link.config.title();
            let on = self.exports().filter(|open| open.config.stands_on().contains(&title));
            let promises = on.map(|open| open.config.promises());
            let (uses, promised) = promises.fold((0, 0), |(uses, sum), one| (uses + 1, sum + one));
            let ids: Vec<LinkId> = link.ids.iter().map(|(_, id)| *id).collect();
            (&link.config.ethernet, ids, "exports", uses, promised)
        });
        let imports = self.import_links.iter();
        let imports = imports.map(|((ethernet, _), link)| {
            (ethernet, vec![link.id], "imports", link.disks.len() as u64, 0)
        });
        let routed = self.routed_links();
        let one =
            |(name, ids, used_for, uses, promised): (&Ethernet, Vec<LinkId>, &str, u64, u64)| {
                let mine = || stats.iter().filter(|one| ids.contains(&one.link));
                let facts = look_at_interface(&name.interface).ok();
                status::Link {
                    interface: name.interface.clone(),
                    vlan: name.vlan,
                    used_for: used_for.to_owned(),
                    up: mine().any(|one| one.up),
                    mac: facts.map(|facts| MacAddress(facts.mac).to_string()),
                    mtu: facts.map(|facts| facts.mtu),
                    method: mine().next().map_or("-", |one| one.method).to_owned(),
                    promised,
                    uses,
                    counters: Keyed::sum(mine().map(|one| one.counters)),
                }
            };
        // A port and a circuit are of one router each.
        let routed = routed.iter().map(|(ethernet, id)| (ethernet, vec![*id], "routers", 1, 0));
        let through_ip = self.routers.peer_links().into_iter().filter_map(|(id, (name, uses))| {
            let stats = stats.iter().find(|one| one.link == id)?;
            Some(status::Link {
                interface: name,
                used_for: "routers".to_owned(),
                up: stats.up,
                method: stats.method.to_owned(),
                uses,
                counters: Keyed(stats.counters),
                ..status::Link::default()
            })
        });
        exports.chain(imports).chain(routed).map(one).chain(through_ip).collect()
    }

    /// Where links are.
    pub(crate) fn ethernets(&self, names: &[String]) -> impl Iterator<Item = &Ethernet> {
        names.iter().filter_map(|name| Some(&self.links.get(name)?.config.ethernet))
    }

    fn connections(&self, reports: &[Report]) -> Vec<status::Connection> {
        let name = |id: ListenerId| {
            let mut listeners = self.listeners.values();
            let found = listeners.find(|one| one.ids.contains(&id));
            found.map_or_else(|| "removed".to_owned(), |one| one.config.address.to_string())
        };
        let mut connections = Vec::new();
        for (shard, report) in reports.iter().enumerate() {
            connections.extend(report.connections.iter().map(|one| status::Connection {
                peer: one.peer.to_string(),
                listener: name(one.listener),
                shard: shard as u16,
                pool_bytes: u64::from(one.pages) * u64::from(PAGE_SIZE),
                queue_depth: one.queue_depth,
                unsent_bytes: one.unsent_bytes,
            }));
        }
        connections
    }

    fn volume_statuses(&self, reports: &[Report]) -> Vec<status::Volume> {
        let one = |(name, volume): (&String, &OpenVolume)| {
            let mine = reports.iter().flat_map(|report| &report.volumes);
            let counters = mine.filter(|one| one.volume == volume.id).map(|one| one.counters);
            let problem = self.problem(volume);
            status::Volume {
                state: if problem.is_some() { "degraded" } else { "ok" }.to_owned(),
                name: name.clone(),
                layout: volume.config.layout.to_string(),
                bytes: shape::size(&volume.config, &volume.layout).unwrap_or(0),
                block_size: volume.config.block_size,
                uuid: volume.uuid.to_string(),
                problem,
                reservation: self.reservation_of(volume.id, reports),
                counters: Keyed::sum(counters),
            }
        };
        let failed = self.failed.things().filter_map(failed_volume);
        self.volumes.iter().map(one).chain(failed).collect()
    }

    fn disk_status(&self, disk: &OpenDisk, reports: &[Report]) -> status::Disk {
        let mine = || {
            reports.iter().flat_map(|report| &report.disks).filter(|report| report.disk == disk.id)
        };
        let had_error = self.shards.event_log().had_error(disk.id, Instant::now());
        let health = mine().map(|report| report.health).max().unwrap_or(Health::Well);
        let imports = || {
            let all = reports.iter().enumerate();
            all.flat_map(|(shard, report)| report.imports.iter().map(move |one| (shard, one)))
                .filter(|(_, import)| import.disk == disk.id)
        };
        let remote = imports().map(|(shard, import)| {
            let state = self.shards.event_log().with_links(&import.state);
            format!("shard {shard}: {state}")
        });
        let remote: Vec<_> = remote.collect();
        let access = match disk.local.as_ref().map(|local| local.access()) {
            Some(Some(access)) => access_name(access),
            Some(None) => "memory",
            None if disk.is_remote() => "remote",
            None => "closed",
        };
        status::Disk {
            name: disk.config.name.clone(),
            uri: disk.config.uri.to_string(),
            bytes: disk.facts.size.0,
            state: match health {
                _ if access == "closed" => "closed",
                Health::Well if had_error => "errors",
                Health::Well => "ok",
                Health::Slow => "slow",
                Health::Stuck => "stuck",
            }
            .to_owned(),
            problem: None,
            protected: mine().find_map(|report| report.protected).map(|why| why.to_string()),
            cache: match disk.facts.cache {
                Cache::None => "none",
                Cache::Volatile => "volatile",
            }
            .to_owned(),
            logical_block: disk.facts.logical_block,
            physical_block: disk.facts.physical_block,
            access: access.to_owned(),
            remote: (!remote.is_empty()).then(|| remote.join("; ")),
            remote_counters: counted(imports().flat_map(|(_, import)| import.counters.clone())),
            counters: Keyed::sum(mine().map(|report| report.counters)),
        }
    }
}

fn failed_disk((thing, why): (&Thing, &str)) -> Option<status::Disk> {
    let Thing::Disk(config) = thing else { return None };
    Some(status::Disk {
        name: config.name.clone(),
        uri: config.uri.to_string(),
        state: "failed".to_owned(),
        problem: Some(why.to_owned()),
        access: "closed".to_owned(),
        ..status::Disk::default()
    })
}

fn failed_volume((thing, why): (&Thing, &str)) -> Option<status::Volume> {
    let Thing::Volume(config) = thing else { return None };
    Some(status::Volume {
        name: config.name.clone(),
        layout: config.layout.to_string(),
        block_size: config.block_size,
        uuid: config.uuid.map(|uuid| uuid.to_string()).unwrap_or_default(),
        state: "failed".to_owned(),
        problem: Some(format!("volume {}: failed: {why}", config.name)),
        ..status::Volume::default()
    })
}

fn listener(one: &OpenListener, reports: &[Report]) -> status::Listener {
    let is_mine = |id: ListenerId| one.ids.contains(&id);
    let all = reports.iter().flat_map(|report| &report.connections);
    let address = one.config.address.to_string();
    status::Listener {
        address: [(stream_key(one.config.protocol).to_owned(), address.into())].into(),
        addresses: one.addresses.iter().map(ToString::to_string).collect(),
        poll: one.config.poll.to_string(),
        connections: all.filter(|connection| is_mine(connection.listener)).count() as u64,
        connections_max: one.config.connections_max,
        group: one.config.group.number(),
        path: state_of(&one.config, reports).to_string(),
        advertise: one.config.portal.advertise.as_ref().map(ToString::to_string),
        chap: one.config.portal.users(),
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
