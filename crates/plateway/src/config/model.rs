//! What a configuration means: every default filled in, every name resolved.
//!
//! [`HiArgs`] is the second of two types (see [`super::file::LowArgs`]); only this one reaches the
//! rest of the program. It comes from a file, from the flags of `serve`, or from both, and it is
//! always consistent: names refer to things that exist, no disk is used twice, no two listeners
//! share an address. Units: bytes, microseconds, counts, as the names say. How it is checked:
//! `resolve.rs`.

use super::disk::DiskConfig;
use super::link::LinkConfig;
use super::listener::ListenerConfig;
use super::metrics::MetricsConfig;
use super::server::Server;
use super::thing::Thing;
use super::volume::VolumeConfig;
use crate::protocols::{ExportConfig, HostConfig, Routing};

/// A whole configuration: each kind of thing in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HiArgs {
    /// What cannot change while the server runs.
    pub(crate) server: Server,
    pub(crate) metrics: Option<MetricsConfig>,
    pub(crate) disks: Vec<DiskConfig>,
    pub(crate) volumes: Vec<VolumeConfig>,
    pub(crate) listeners: Vec<ListenerConfig>,
    /// Those that only exports name come last.
    pub(crate) links: Vec<LinkConfig>,
    pub(crate) routing: Routing,
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) exports: Vec<ExportConfig>,
}

impl HiArgs {
    /// A server of nothing.
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            metrics: None,
            disks: Vec::new(),
            volumes: Vec::new(),
            listeners: Vec::new(),
            links: Vec::new(),
            routing: Routing::default(),
            hosts: Vec::new(),
            exports: Vec::new(),
        }
    }

    /// All things, each after what it stands on.
    pub(crate) fn things(&self) -> impl Iterator<Item = Thing> + '_ {
        let disks = self.disks.iter().cloned().map(Thing::Disk);
        let volumes = self.volumes.iter().cloned().map(Thing::Volume);
        let listeners = self.listeners.iter().cloned().map(Thing::Listener);
        let links = self.links.iter().cloned().map(Thing::Link);
        let routing = self.routing.things().map(Thing::Routed);
        let hosts = self.hosts.iter().cloned().map(Thing::Host);
        let exports = self.exports.iter().cloned().map(Thing::Export);
        let metrics = self.metrics.iter().cloned().map(Thing::Metrics);
        links
            .chain(routing)
            .chain(disks)
            .chain(volumes)
            .chain(listeners)
            .chain(hosts)
            .chain(exports)
            .chain(metrics)
    }
}
