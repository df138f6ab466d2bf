//! Links that are open: those that exports are on, and those that remote disks are reached on. Those of
//! routers are theirs to open (`routers`).
//!
//! The first are things of the configuration: a link is there before exports on it and closed after
//! them. One of the second is opened by the first remote disk that names its interface, and closed
//! with the last. They are two also on one interface, and one for each protocol, since each takes
//! other frames: which, and which shard gets them, the protocol says. Links of remote disks are
//! always packet sockets. A look binds, receives and sends nothing. Units: bytes. Errors name the
//! interface, what was expected there, and who may grant what is missing.

use std::fs;

use block::ShardId;
use contract::{EtherType, Intake, LinkId, Poll, Takes};
use reactor::{Interface, LinkOptions, SwitchedOff, look_at_interface, may_open_links};

use super::Running;
use super::error::RunError;
use super::look::Inventory;
use crate::config::link::{Ethernet, LinkAccess, LinkConfig};
use crate::config::thing::Configured;
use crate::protocols::{self, RemoteUri};

/// What was seen of a link.
#[derive(Debug)]
pub(crate) struct LinkSight {
    /// What was found, in a few words.
    pub(crate) words: String,
    /// None of an interface that the server that answers has, and we do not see.
    pub(crate) facts: Option<Interface>,
}

/// Looks at a link that exports are on: whether its interface is there, up and large enough, and
/// whether this user may open it.
pub(crate) fn look(config: &LinkConfig, inventory: &impl Inventory) -> Result<LinkSight, RunError> {
    let interface = &config.ethernet.interface;
    let is_it = |other: &LinkConfig| other.ethernet == config.ethernet;
    let served = inventory.served();
    let is_served = served.is_some_and(|served| served.args.links.iter().any(is_it));
    let fail = |why: String| RunError::new(why).within(&config.title());
    let facts = match look_at_interface(interface) {
        Ok(facts) => facts,
        // It may be in a network namespace of its own.
        Err(_) if is_served => {
            return Ok(LinkSight { words: "the server has it now".to_owned(), facts: None });
        }
        Err(error) => return Err(fail(error.to_string()).help("`ip -br link` shows them")),
    };
    let carried = protocols::carried_on(facts.mtu).map_err(fail)?;
    if is_served {
        let words = format!("the server has it now, {carried}");
        return Ok(LinkSight { words, facts: Some(facts) });
    }
    let rights = match (may_open_links(), served) {
        (Ok(()), _) => "",
        // The server's user may have what this one lacks.
        (Err(_), Some(_)) => "; this user may not open it, which is for the server to try",
        (Err(error), None) => return Err(fail(error.to_string())),
    };
    let state = if facts.up { "up" } else { "down: it is answered on once it is up" };
    let bridge = match (config.access, bridge_of(interface)) {
        (LinkAccess::Packet, Some(bridge)) => {
            format!(
                "; deaf: it is a port of the bridge {bridge}, which takes its frames: name {bridge}"
            )
        }
        _ => String::new(),
    };
    Ok(LinkSight { words: format!("{state}, {carried}{bridge}{rights}"), facts: Some(facts) })
}

/// The bridge that an interface is a port of, as far as the system shows it.
pub(super) fn bridge_of(interface: &str) -> Option<String> {
    let bridge = fs::read_link(format!("/sys/class/net/{interface}/brport/bridge")).ok()?;
    Some(bridge.file_name()?.to_string_lossy().into_owned())
}

/// A link that exports are on.
#[derive(Debug)]
pub(super) struct OpenLink {
    /// One for each protocol that is spoken in frames, by what it takes.
    pub(super) ids: Vec<(Takes, LinkId)>,
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
        let title = config.title();
        let facts = look(config, self)?.facts;
        let mut open = OpenLink { ids: Vec::new(), config: config.clone() };
        let access = config.access_of_exports();
        for intake in protocols::intakes_of_exports(access, self.shards.handle().shards()) {
            let takes = intake.takes;
            let id = self
                .open_link(&config.name, &config.ethernet, (access, config.poll), intake)
                .inspect_err(|_| self.close_link(&open))
                .map_err(|error| error.within(&title))?;
            open.ids.push((takes, id));
        }
        self.links.insert(config.name.clone(), open);
        Ok(facts.filter(|facts| !facts.up).map(|_| {
            let interface = &config.ethernet.interface;
            format!("{title}: the interface is down; it is answered on once it is up: ip link set {interface} up")
        }))
    }

    /// Has what comes over a link looked for in another way; its sockets stay.
    pub(super) fn change_link(&mut self, to: &LinkConfig) {
        if let Some(link) = self.links.get_mut(&to.name) {
            link.config.clone_from(to);
            link.ids.iter().for_each(|(_, id)| self.shards.handle().poll_link(*id, to.poll));
            self.poll_port(&to.name, to.poll);
        }
    }

    /// Closes a link that no export is on.
    pub(super) fn remove_link(&mut self, config: &LinkConfig) {
        if let Some(link) = self.links.shift_remove(&config.name) {
            self.close_link(&link);
        }
    }

    fn close_link(&self, link: &OpenLink) {
        link.ids.iter().for_each(|(_, id)| self.let_go_of_link(*id));
    }

    /// The links of exports by a protocol, which are open.
    pub(crate) fn link_ids(
        &self,
        names: &[String],
        ether_type: EtherType,
    ) -> Result<Vec<LinkId>, RunError> {
        let find = |name: &String| {
            if let Some(id) = self.pseudowire_link(name) {
                return Ok(id);
            }
            let mut ids = self.links.get(name).into_iter().flat_map(|link| &link.ids);
            let found = ids.find(|(of, _)| *of == Takes::Type(ether_type)).map(|(_, id)| *id);
            found.ok_or_else(|| RunError::new(format!("link {name} is not open")))
        };
        names.iter().map(find).collect()
    }

    /// Opens what a remote disk needs; a link that another remote disk has opened is polled as that
    /// one says. If one of its interfaces cannot be had, none is kept for it.
    pub(super) fn open_import_links(
        &mut self,
        disk: &str,
        uri: &RemoteUri,
        poll: Poll,
    ) -> Result<Vec<LinkId>, RunError> {
        if let Some(name) = uri.pseudowire() {
            // It is its router's, and there as long as the router has it.
            return self.end_of(name).map(|(link, _)| vec![link]);
        }
        let mut ids = Vec::new();
        let Some((ethernets, intake)) = uri.links() else { return Ok(ids) };
        let intake = intake(self.shards.handle().shards());
        for ethernet in ethernets {
            let key = (ethernet, intake.takes);
            if let Some(link) = self.import_links.get_mut(&key) {
                link.disks.push(disk.to_owned());
                ids.push(link.id);
                continue;
            }
            let (name, intake) = (key.0.to_string(), intake.clone());
            match self.open_link(&name, &key.0, (LinkAccess::Packet, poll), intake) {
                Ok(id) => {
                    let link = ImportLink { id, disks: vec![disk.to_owned()] };
                    self.import_links.insert(key, link);
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

    /// The link of a pseudowire that ends here, and the shard that has it.
    pub(super) fn end_of(&self, pseudowire: &str) -> Result<(LinkId, ShardId), RunError> {
        let found = self.pseudowire_end(pseudowire);
        // Unrecorded: a disk comes after its pseudowire.
        found.ok_or_else(|| RunError::new(format!("pseudowire {pseudowire} is not there")))
    }

    /// A remote disk is gone: what nobody else is reached on is closed.
    pub(super) fn close_import_links(&mut self, disk: &str) {
        for link in self.import_links.values_mut() {
            link.disks.retain(|other| other != disk);
        }
        let unused = |_: &(Ethernet, Takes), link: &mut ImportLink| link.disks.is_empty();
        let unused: Vec<_> = self.import_links.extract_if(.., unused).collect();
        unused.iter().for_each(|(_, link)| self.let_go_of_link(link.id));
    }

    pub(super) fn let_go_of_link(&self, id: LinkId) {
        self.shards.event_log().forget_link(id);
        self.shards.handle().remove_link(id);
    }

    fn open_link(
        &self,
        name: &str,
        ethernet: &Ethernet,
        (access, poll): (LinkAccess, Poll),
        intake: Intake,
    ) -> Result<LinkId, RunError> {
        let id = LinkId(self.numbers.link.next());
        let how = (access, poll, false);
        self.open_link_as(id, name, ethernet, how, intake).map(|_| id)
    }

    /// The same under a number that it has already; there is no other one of it at the time. What
    /// comes there may be sent on elsewhere. Returns what was switched off for that.
    pub(super) fn open_link_as(
        &self,
        id: LinkId,
        name: &str,
        ethernet: &Ethernet,
        (access, poll, forwards): (LinkAccess, Poll, bool),
        intake: Intake,
    ) -> Result<Vec<SwitchedOff>, RunError> {
        self.shards.event_log().name_link(id, name);
        let options = LinkOptions {
            interface: ethernet.interface.clone(),
            vlan: ethernet.vlan,
            access: match access {
                LinkAccess::Packet => reactor::LinkAccess::Packet,
                LinkAccess::Xdp => reactor::LinkAccess::Xdp,
            },
            poll,
            intake,
            forwards,
        };
        let opened = self.shards.handle().add_link(id, &options);
        opened.map(|added| added.switched_off).map_err(|error| RunError::new(error.to_string()))
    }
}
