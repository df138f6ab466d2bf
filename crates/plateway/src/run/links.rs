//! Links: interfaces that are open for AoE, each once for serving and once for importing.
//!
//! A serving link is a step of the configuration: it is there before exports on it and closed after them. An importing link is opened by the first remote
//! disk that names its interface, and closed with the last. They are two, since each takes other frames (`aoe::filter`): requests go to one
//! shard or are spread over all by their source and address; answers go to the shard whose initiator asked. Importing links are always packet sockets.
//! Units: bytes. Errors name the interface, what was expected there, and who may grant what is missing.

use std::collections::BTreeMap;

use aoe::filter;
use contract::{Intake, LinkFacts, LinkId};
use reactor::LinkOptions;

use super::Running;
use super::error::RunError;
use crate::config::model::{Link, LinkAccess, LinkName};
use crate::config::uri::AoeUri;

/// An open interface.
#[derive(Debug)]
pub(super) struct OpenLink {
    pub(super) id: LinkId,
    /// The disks that are reached on it; none of a serving link.
    pub(super) disks: Vec<String>,
}

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) serving: BTreeMap<LinkName, OpenLink>,
    pub(super) importing: BTreeMap<LinkName, OpenLink>,
}

impl Running {
    /// Opens an interface for exports. Returns what deserves to be told.
    pub(super) fn add_link(&mut self, config: &Link) -> Result<Option<String>, RunError> {
        let shards = match config.access {
            LinkAccess::Packet => self.shards.handle().shards(),
            // Its queues cannot be steered.
            LinkAccess::Xdp => 1,
        };
        let (id, facts) = self
            .open_link(config, filter::serving(shards))
            .map_err(|error| error.within(&format!("listener aoe {}", config.name)))?;
        let link = OpenLink { id, disks: Vec::new() };
        self.links.serving.insert(config.name.clone(), link);
        self.args.links.push(config.clone());
        Ok(is_down(&facts).then(|| {
            let name = &config.name;
            format!("listener aoe {name}: the interface is down; it is answered on once it is up: ip link set {} up", name.interface)
        }))
    }

    /// Closes an interface that no export is on.
    pub(super) fn remove_link(&mut self, name: &LinkName) {
        self.args.links.retain(|link| link.name != *name);
        if let Some(link) = self.links.serving.remove(name) {
            self.shards.handle().remove_link(link.id);
        }
    }

    /// The links of exports, which are open.
    pub(super) fn serving_links(
        &self,
        names: impl Iterator<Item = LinkName>,
    ) -> Result<Vec<LinkId>, RunError> {
        let find = |name: LinkName| match self.links.serving.get(&name) {
            Some(link) => Ok(link.id),
            None => Err(RunError::new(format!("interface {name} is not open"))),
        };
        names.map(find).collect()
    }

    /// Opens what a remote disk needs; if one of its interfaces cannot be had, none is kept for it.
    pub(super) fn open_import_links(
        &mut self,
        disk: &str,
        uri: &AoeUri,
    ) -> Result<Vec<LinkId>, RunError> {
        let mut ids = Vec::new();
        for name in uri.links() {
            if let Some(link) = self.links.importing.get_mut(&name) {
                link.disks.push(disk.to_owned());
                ids.push(link.id);
                continue;
            }
            let intake = filter::importing(self.shards.handle().shards());
            let config = Link { name: name.clone(), access: LinkAccess::Packet };
            match self.open_link(&config, intake) {
                Ok((id, _)) => {
                    let link = OpenLink { id, disks: vec![disk.to_owned()] };
                    self.links.importing.insert(name, link);
                    ids.push(id);
                }
                Err(error) => {
                    self.close_import_links(disk);
                    return Err(error);
                }
            }
        }
        Ok(ids)
    }

    /// A remote disk is gone: what nobody else is reached on is closed.
    pub(super) fn close_import_links(&mut self, disk: &str) {
        for link in self.links.importing.values_mut() {
            link.disks.retain(|other| other != disk);
        }
        let unused = |_: &LinkName, link: &mut OpenLink| link.disks.is_empty();
        for (_, link) in self.links.importing.extract_if(.., unused) {
            self.shards.handle().remove_link(link.id);
        }
    }

    fn open_link(&self, config: &Link, intake: Intake) -> Result<(LinkId, LinkFacts), RunError> {
        let id = self.numbers.link();
        self.shards.newsroom().name_link(id, &config.name.to_string());
        let options = LinkOptions {
            interface: config.name.interface.clone(),
            vlan: config.name.vlan,
            access: match config.access {
                LinkAccess::Packet => reactor::LinkAccess::Packet,
                LinkAccess::Xdp => reactor::LinkAccess::Xdp,
            },
            intake,
        };
        let facts = self.shards.handle().add_link(id, &options);
        facts.map(|facts| (id, facts)).map_err(|error| RunError::new(error.to_string()))
    }
}

/// What is known of a link that is down has no ring.
fn is_down(facts: &LinkFacts) -> bool {
    facts.ring_frames == 0
}
