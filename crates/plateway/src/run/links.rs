//! Links that are open: those that exports are on, and those that remote disks are reached on.
//!
//! The first are things of the configuration: a link is there before exports on it and closed after them. One of the second is opened by the first remote
//! disk that names its interface, and closed with the last. They are two also on one interface, since each takes other frames: which, and which
//! shard gets them, the protocol says. Links of remote disks are always packet sockets.
//! Units: bytes. Errors name the interface, what was expected there, and who may grant what is missing.

use contract::{Intake, LinkFacts, LinkId};
use reactor::LinkOptions;

use super::Running;
use super::error::RunError;
use crate::config::link::{Ethernet, LinkAccess, LinkConfig};
use crate::config::thing::Configured;
use crate::protocols::{self, RemoteUri};

/// A link that exports are on.
#[derive(Debug)]
pub(super) struct OpenLink {
    pub(super) id: LinkId,
    pub(super) config: LinkConfig,
}

/// A link that remote disks are reached on.
#[derive(Debug)]
pub(super) struct ImportLink {
    pub(super) id: LinkId,
    /// The disks, by their names; one at least.
    pub(super) disks: Vec<String>,
}

impl Running {
    /// Opens a link for exports. Returns what deserves to be told.
    pub(super) fn add_link(&mut self, config: &LinkConfig) -> Result<Option<String>, RunError> {
        let shards = self.shards.handle().shards();
        let intake = protocols::intake_of_exports(config.access, shards);
        let (id, facts) = self
            .open_link(&config.name, &config.ethernet, config.access, intake)
            .map_err(|error| error.within(&config.title()))?;
        self.links.insert(config.name.clone(), OpenLink { id, config: config.clone() });
        Ok(is_down(&facts).then(|| {
            let (title, interface) = (config.title(), &config.ethernet.interface);
            format!("{title}: the interface is down; it is answered on once it is up: ip link set {interface} up")
        }))
    }

    /// Closes a link that no export is on.
    pub(super) fn remove_link(&mut self, config: &LinkConfig) {
        if let Some(link) = self.links.shift_remove(&config.name) {
            self.shards.handle().remove_link(link.id);
        }
    }

    /// The links of exports, which are open.
    pub(crate) fn link_ids(&self, names: &[String]) -> Result<Vec<LinkId>, RunError> {
        let find = |name: &String| match self.links.get(name) {
            Some(link) => Ok(link.id),
            None => Err(RunError::new(format!("link {name} is not open"))),
        };
        names.iter().map(find).collect()
    }

    /// Opens what a remote disk needs; if one of its interfaces cannot be had, none is kept for it.
    pub(super) fn open_import_links(
        &mut self,
        disk: &str,
        uri: &RemoteUri,
    ) -> Result<Vec<LinkId>, RunError> {
        let mut ids = Vec::new();
        for ethernet in uri.links() {
            if let Some(link) = self.import_links.get_mut(&ethernet) {
                link.disks.push(disk.to_owned());
                ids.push(link.id);
                continue;
            }
            let intake = protocols::intake_of_imports(self.shards.handle().shards());
            match self.open_link(&ethernet.to_string(), &ethernet, LinkAccess::Packet, intake) {
                Ok((id, _)) => {
                    let link = ImportLink { id, disks: vec![disk.to_owned()] };
                    self.import_links.insert(ethernet, link);
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
        for link in self.import_links.values_mut() {
            link.disks.retain(|other| other != disk);
        }
        let unused = |_: &Ethernet, link: &mut ImportLink| link.disks.is_empty();
        for (_, link) in self.import_links.extract_if(.., unused) {
            self.shards.handle().remove_link(link.id);
        }
    }

    fn open_link(
        &self,
        name: &str,
        ethernet: &Ethernet,
        access: LinkAccess,
        intake: Intake,
    ) -> Result<(LinkId, LinkFacts), RunError> {
        let id = self.numbers.link();
        self.shards.event_log().name_link(id, name);
        let options = LinkOptions {
            interface: ethernet.interface.clone(),
            vlan: ethernet.vlan,
            access: match access {
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
