//! What a start would find, found without starting anything: for `plateway check`.
//!
//! The things of a configuration are taken one after the other, and each is looked at as a start
//! looks before it does anything (`run/look`), so that what passes here passes there, as far as
//! nobody changes anything in between. In: a configuration, where it was written, and what a server
//! that answers serves already. Out: a [`Preview`]: a row for each thing, and a mistake at its line
//! for each that a start would refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::volume::assemble::Found;
use reactor::disk::probe::Identity;
use reactor::look_at_interface;
use reservation::{PathGroup, PathState};
use serde::Serialize;
use uuid::Uuid;
use wire::ethernet::MacAddress;

use crate::config::Checked;
use crate::config::disk::DiskConfig;
use crate::config::link::LinkConfig;
use crate::config::listener::ListenerConfig;
use crate::config::metrics::MetricsConfig;
use crate::config::mistake::{Mistake, Mistakes};
use crate::config::server::SERVER_TITLE;
use crate::config::thing::{Configured, Thing};
use crate::config::volume::VolumeConfig;
use crate::control;
use crate::protocols::{
    CircuitConfig, ExportConfig, HostConfig, LINK_KEY, NeighbourConfig, PortConfig, Routed,
    TunnelConfig, stream_key,
};
use crate::run::RunError;
use crate::run::disks::{self, DiskSight};
use crate::run::look::{Inventory, Member, Served};
use crate::run::routers::{self, RoutedSight};
use crate::run::state::StateDirectory;
use crate::run::volumes::VolumeSight;
use crate::run::{exports, links, listeners, look, paths, secrets, shape};

/// What a start would find, each kind in the order of the configuration.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Preview {
    pub(crate) disks: Vec<DiskRow>,
    pub(crate) volumes: Vec<VolumeRow>,
    pub(crate) listeners: Vec<ListenerRow>,
    /// Those that only exports name come last.
    pub(crate) links: Vec<LinkRow>,
    /// The ports and circuits of routers.
    pub(crate) ports: Vec<PortRow>,
    /// What is to be known of what it would serve all the same.
    #[serde(skip)]
    pub(crate) caveats: Vec<String>,
    /// What a start would refuse.
    #[serde(skip)]
    pub(crate) mistakes: Mistakes,
}

/// What was found of one thing.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    /// What would be done with it, in a few words.
    pub(crate) finding: String,
    /// Whether a start would refuse it.
    pub(crate) refused: bool,
}

/// A disk, as it would be found.
#[derive(Debug, Serialize)]
pub(crate) struct DiskRow {
    pub(crate) name: String,
    /// Where its blocks are.
    pub(crate) uri: String,
    #[serde(flatten)]
    pub(crate) found: Finding,
    /// Its size; none where it is not known.
    pub(crate) bytes: Option<u64>,
    /// `direct`, `cached`, `memory` or `remote`; none where it is not known.
    pub(crate) access: Option<&'static str>,
    /// The smallest unit that can be addressed.
    pub(crate) logical_block: Option<u32>,
    /// What is written atomically.
    pub(crate) physical_block: Option<u32>,
}

/// A volume, as it would be found.
#[derive(Debug, Serialize)]
pub(crate) struct VolumeRow {
    pub(crate) name: String,
    /// Layout and disks.
    pub(crate) layout: String,
    #[serde(flatten)]
    pub(crate) found: Finding,
    /// What hosts would see; none where it is not known.
    pub(crate) bytes: Option<u64>,
    /// Its identity; none where it would be new or is not known.
    pub(crate) uuid: Option<String>,
    /// The disks of a concat or stripe, in order; none of another layout.
    pub(crate) members: Vec<MemberRow>,
}

/// A disk that should carry a label.
#[derive(Debug, Serialize)]
pub(crate) struct MemberRow {
    /// The disk's name.
    pub(crate) disk: String,
    /// `matches`, `blank`, `another set`, `other data`, `damaged label`, or `not known`.
    pub(crate) state: &'static str,
    /// What was seen there and what would be done with it.
    pub(crate) finding: String,
}

/// An address, as it would be found.
#[derive(Debug, Serialize)]
pub(crate) struct ListenerRow {
    /// As configured, under the key of its protocol.
    #[serde(flatten)]
    pub(crate) address: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    pub(crate) found: Finding,
}

/// A link, as it would be found.
#[derive(Debug, Serialize)]
pub(crate) struct LinkRow {
    pub(crate) name: String,
    /// Its interface, under [`LINK_KEY`].
    #[serde(flatten)]
    pub(crate) interface: BTreeMap<&'static str, String>,
    /// 802.1Q; none takes frames without a tag.
    pub(crate) vlan: Option<u16>,
    /// `packet` or `xdp`.
    pub(crate) link: String,
    /// Its own address; none where it is not known.
    pub(crate) mac: Option<String>,
    /// Bytes behind the Ethernet header.
    pub(crate) mtu: Option<u32>,
    #[serde(flatten)]
    pub(crate) found: Finding,
}

/// A port or a circuit of a router, as it would be found.
#[derive(Debug, Serialize)]
pub(crate) struct PortRow {
    /// Of its link, or its own.
    pub(crate) name: String,
    pub(crate) router: String,
    /// `port` or `circuit`.
    pub(crate) kind: &'static str,
    /// Its own address; none where it is not known, and of a port in UDP.
    pub(crate) mac: Option<String>,
    /// Bytes behind the Ethernet header, or in a datagram.
    pub(crate) mtu: Option<u32>,
    #[serde(flatten)]
    pub(crate) found: Finding,
}

/// Looks at everything that a configuration names.
///
/// `served` is the server that answers, if any, `overwrite` the volumes whose disks may be labelled
/// whatever they hold.
pub(crate) fn preview(checked: &Checked, served: Option<&Served>, overwrite: &[String]) -> Preview {
    let (disks, volumes, groups) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mistakes, told) = (Vec::new(), Vec::new());
    let next_hops = BTreeSet::new();
    let mut walk =
        Walk { checked, served, overwrite, disks, volumes, groups, mistakes, told, next_hops };
    let mut preview = Preview::default();
    // Of a server that answers it was looked at when it began.
    let group = checked.args.server.control_group.as_deref().filter(|_| served.is_none());
    if let Some(Err(error)) = group.map(control::group) {
        walk.mistakes.push(error.at(&checked.places, SERVER_TITLE));
    }
    match served {
        Some(served) => walk.groups.clone_from(&served.groups),
        None => match paths::stored(&walk.state()) {
            Ok(stored) => {
                walk.groups = stored.iter().map(|(group, path)| (group, path.state)).collect();
            }
            Err(error) => {
                walk.mistakes.push(error.key("state").at(&checked.places, SERVER_TITLE));
            }
        },
    }
    for thing in checked.args.things() {
        if let Thing::Routed(one) = &thing {
            walk.next_hops(one);
        }
        match thing {
            Thing::Disk(config) => preview.disks.push(walk.disk(&config)),
            Thing::Volume(config) => preview.volumes.push(walk.volume(&config)),
            Thing::Listener(config) => preview.listeners.push(walk.listener(&config)),
            Thing::Link(config) => preview.links.push(walk.link(&config)),
            Thing::Routed(Routed::Port(config)) => preview.ports.push(walk.port(&config)),
            Thing::Routed(Routed::Circuit(config)) => preview.ports.push(walk.circuit(&config)),
            Thing::Routed(Routed::Neighbour(config)) => walk.neighbour(&config),
            Thing::Routed(Routed::Tunnel(config)) => walk.tunnel(&config),
            // Tables stand on nothing of the machine but these.
            Thing::Routed(_) => {}
            Thing::Host(config) => walk.host(&config),
            Thing::Export(config) => walk.export(&config),
            Thing::Metrics(config) => preview.listeners.push(walk.metrics(&config)),
        }
    }
    for circle in routers::circles(&checked.args) {
        walk.mistakes.push(routers::refusal(&circle).at(&checked.places, &circle.title));
    }
    let caveats = |(name, disk): (&String, &DiskSight)| {
        disk.caveats.iter().map(|caveat| format!("disk {name}: {caveat}")).collect::<Vec<_>>()
    };
    preview.caveats = walk.disks.iter().flat_map(caveats).collect();
    let closed = |one: &ListenerConfig| paths::closed(one, *walk.groups.get(&one.group)?);
    preview.caveats.extend(checked.args.listeners.iter().filter_map(closed));
    // What a server may do in its own is for that server to say.
    preview.caveats.extend(walk.state().unwritable().filter(|_| served.is_none()));
    preview.caveats.append(&mut walk.told);
    preview.mistakes = checked.places.locate(walk.mistakes);
    preview
}

/// A walk over a configuration, as far as it has come.
struct Walk<'a> {
    checked: &'a Checked,
    served: Option<&'a Served>,
    overwrite: &'a [String],
    /// By name; none of those that are refused.
    disks: BTreeMap<String, DiskSight>,
    /// The volumes by their identities.
    volumes: BTreeMap<Uuid, String>,
    /// The states of groups of listeners that are not as they always were.
    groups: BTreeMap<PathGroup, PathState>,
    mistakes: Vec<Mistake>,
    /// What is to be known of circuits.
    told: Vec<String>,
    /// Next hops that were looked at, by link and address.
    next_hops: BTreeSet<(String, IpAddr)>,
}

impl Walk<'_> {
    fn disk(&mut self, config: &DiskConfig) -> DiskRow {
        let sight = disks::look(config, self);
        let words = sight.as_ref().map(|sight| sight.words.clone()).map_err(RunError::clone);
        // What was served before stays failed, and is tried again.
        let failed = self.served.and_then(|served| served.why_failed(config));
        let words = match failed {
            Some(why) => Ok(format!("failed: {why}")),
            None => words,
        };
        let (found, sight) = (self.finding(config, words), sight.ok());
        let facts = sight.as_ref().and_then(|sight| sight.facts.as_ref());
        let row = DiskRow {
            name: config.name.clone(),
            uri: config.uri.to_string(),
            found,
            bytes: facts.map(|facts| facts.size.0),
            access: sight.as_ref().and_then(|sight| sight.access),
            logical_block: facts.map(|facts| facts.logical_block),
            physical_block: facts.map(|facts| facts.physical_block),
        };
        self.disks.extend(sight.map(|sight| (config.name.clone(), sight)));
        row
    }

    fn volume(&mut self, config: &VolumeConfig) -> VolumeRow {
        let mut sight = VolumeSight::default();
        let mut looked = sight.look(config, self);
        if let Some(why) = self.served.and_then(|served| served.why_volume_failed(config)) {
            (sight.words, looked) = (format!("failed: {why}"), Ok(()));
        }
        if let (Ok(()), Some(uuid)) = (&looked, sight.uuid) {
            self.volumes.entry(uuid).or_insert_with(|| config.name.clone());
        }
        let size = sight.layout.as_ref().map(|layout| shape::size(config, layout));
        let disks = config.layout.disks().iter().zip(&sight.members).enumerate();
        VolumeRow {
            name: config.name.clone(),
            layout: config.layout.to_string(),
            bytes: size.and_then(Result::ok),
            uuid: sight.uuid.map(|uuid| uuid.to_string()),
            members: disks
                .map(|(index, (disk, found))| {
                    let (state, finding) = shown_member(&sight, config, index, found);
                    MemberRow { disk: disk.clone(), state, finding }
                })
                .collect(),
            found: self.finding(config, looked.map(|()| sight.words.clone())),
        }
    }

    fn listener(&mut self, config: &ListenerConfig) -> ListenerRow {
        let looked = listeners::look(&config.address, self)
            .and_then(|words| secrets::look(config, self).map(|()| words));
        ListenerRow {
            address: [(stream_key(config.protocol), config.address.to_string())].into(),
            found: self.finding(config, looked),
        }
    }

    fn metrics(&mut self, config: &MetricsConfig) -> ListenerRow {
        let looked = listeners::look(&config.address, self);
        let address = [("metrics", config.address.to_string())].into();
        ListenerRow { address, found: self.finding(config, looked) }
    }

    fn link(&mut self, config: &LinkConfig) -> LinkRow {
        let (words, facts) = match links::look(config, self) {
            Ok(sight) => (Ok(sight.words), sight.facts),
            Err(error) => (Err(error), None),
        };
        LinkRow {
            name: config.name.clone(),
            interface: [(LINK_KEY, config.ethernet.interface.clone())].into(),
            vlan: config.ethernet.vlan,
            link: config.access.to_string(),
            mac: facts.map(|facts| MacAddress(facts.mac).to_string()),
            mtu: facts.map(|facts| facts.mtu),
            found: self.finding(config, words),
        }
    }

    fn port(&mut self, config: &PortConfig) -> PortRow {
        let links = &self.checked.args.links;
        let looked = match &config.udp {
            Some(way) => routers::look_at_port_in_udp(config, way, self),
            None => {
                let link = links.iter().find(|link| link.name == config.link);
                let routing = &self.checked.args.routing;
                Ok(routers::look_at_port(link.expect("it has its link"), routing, self))
            }
        };
        self.routed(config, (&config.link, &config.router, "port"), looked)
    }

    /// Nothing is to be told of them here but what is wrong.
    fn next_hops(&mut self, thing: &Routed) {
        let (links, seen) = (&self.checked.args.links, &mut self.next_hops);
        let looked = routers::look_at_next_hops(thing, links, seen);
        self.finding(&**thing, looked.map(|()| String::new()));
    }

    fn neighbour(&mut self, config: &NeighbourConfig) {
        let links = &self.checked.args.links;
        let link = links.iter().find(|link| link.name == config.link).expect("it has its link");
        let interface = &link.ethernet.interface;
        // One that is not there was told of, and so was one that only the server sees.
        if look_at_interface(interface).is_ok() {
            self.told.extend(routers::look_at_neighbour(config, interface));
        }
    }

    fn tunnel(&mut self, config: &TunnelConfig) {
        let circuits = &self.checked.args.routing.circuits;
        let circuit = circuits.iter().find(|one| one.name == config.circuit);
        let circuit = circuit.expect("it has its circuit");
        self.told.extend(routers::look_at_tunnel(config, &circuit.interface));
    }

    fn circuit(&mut self, config: &CircuitConfig) -> PortRow {
        let looked = routers::look_at_circuit(config, self);
        self.routed(config, (&config.name, &config.router, "circuit"), looked)
    }

    fn routed(
        &mut self,
        thing: &impl Configured,
        (name, router, kind): (&str, &str, &'static str),
        looked: Result<RoutedSight, RunError>,
    ) -> PortRow {
        let (words, mac, mtu, told) = match looked {
            Ok(RoutedSight { words, mac, mtu, told }) => (Ok(words), mac, mtu, told),
            Err(error) => (Err(error), None, None, None),
        };
        self.told.extend(told);
        PortRow {
            name: name.to_owned(),
            router: router.to_owned(),
            kind,
            mac: mac.map(|mac| mac.to_string()),
            mtu,
            found: self.finding(thing, words),
        }
    }

    /// Nothing is to be told of it but what is wrong.
    fn host(&mut self, config: &HostConfig) {
        let looked = secrets::look(config, self);
        self.finding(config, looked.map(|()| String::new()));
    }

    /// Nothing is to be told of it but what is wrong.
    fn export(&mut self, config: &ExportConfig) {
        let looked = exports::look(config, self).and_then(|()| secrets::look(&**config, self));
        self.finding(&**config, looked.map(|()| String::new()));
    }

    /// Notes what is wrong with a thing.
    fn finding(
        &mut self,
        thing: &(impl Configured + ?Sized),
        found: Result<String, RunError>,
    ) -> Finding {
        let error = match found {
            Ok(finding) => return Finding { finding, refused: false },
            Err(error) => error,
        };
        let finding = format!("refused: {error}");
        self.mistakes.push(error.at(&self.checked.places, &thing.title()));
        Finding { finding, refused: true }
    }
}

/// What is there beside a thing: what was looked at before.
impl Inventory for Walk<'_> {
    fn served(&self) -> Option<&Served> {
        self.served
    }

    fn disk_with(&self, identity: &Identity) -> Option<&str> {
        let mut disks = self.disks.iter();
        disks.find(|(_, disk)| disk.identity.as_ref() == Some(identity)).map(|(name, _)| &**name)
    }

    fn member(&self, disk: &str) -> Option<Member> {
        self.disks.get(disk).map(|sight| sight.member(disk))
    }

    fn examine(
        &self,
        volume: &VolumeConfig,
        disk: &str,
    ) -> Result<Result<Found, &'static str>, RunError> {
        self.disks[disk].examine(volume, disk)
    }

    fn volume_with(&self, uuid: Uuid) -> Option<&str> {
        self.volumes.get(&uuid).map(|name| &**name)
    }

    fn identity_of(&self, volume: &str) -> Option<Uuid> {
        self.volumes.iter().find(|(_, name)| *name == volume).map(|(uuid, _)| *uuid)
    }

    fn overwrites(&self, volume: &str) -> bool {
        self.overwrite.iter().any(|name| name == volume)
    }

    fn state(&self) -> StateDirectory {
        let state = &self.checked.args.server.state;
        StateDirectory::new(&look::directory(self.served).join(state))
    }

    fn to_touch(&self) -> u64 {
        self.disks.values().map(|disk| disk.touches).sum()
    }
}

/// The state of a member and what was found there.
fn shown_member(
    sight: &VolumeSight,
    config: &VolumeConfig,
    index: usize,
    found: &Result<Found, &'static str>,
) -> (&'static str, String) {
    match found {
        Err(why) => ("not known", (*why).to_owned()),
        Ok(Found::Blank) => ("blank", "zeros in its first and last MiB".to_owned()),
        Ok(Found::Label(label)) if sight.is_ours(config, index, label) => {
            let uuid = Uuid::from_bytes(label.set.uuid);
            ("matches", format!("volume {uuid}, index {}", label.index))
        }
        Ok(other @ Found::Label(_)) => ("another set", other.to_string()),
        Ok(other @ Found::Foreign) => ("other data", other.to_string()),
        Ok(other @ Found::Damaged(_)) => ("damaged label", other.to_string()),
    }
}
