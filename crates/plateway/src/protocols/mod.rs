//! Every protocol by which volumes are exported and disks are reached. Outside this folder nobody
//! names one.
//!
//! A protocol is a folder: its keys in the configuration and what they mean (`config`), the URI of
//! its disks (`uri`), its flags, what its exports and disks are to the shards, whom `discover`
//! asks. Here is what the rest of the program knows of them all; a new protocol is its folder and a
//! line in each list of this file.

pub(crate) mod aoe;
mod asking;
pub(crate) mod connect;
mod cutting;
pub(crate) mod host;
pub(crate) mod iscsi;
pub(crate) mod mpls;
pub(crate) mod nvme_tcp;
mod remote;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;

use comfy_table::Table;
use contract::Intake;
use reservation::Registrant;
use serde::{Deserialize, Serialize};
use shard::{Listening, Protocol, Report, StoredValue};
use utoipa::ToSchema;

/// What `dissect` makes of a protocol on frames.
pub(crate) use self::aoe::dissect::Talk as FrameTalk;
use self::connect::{ClientKind, Guide, Reached};
/// Hosts that have one name for all protocols.
pub(crate) use self::host::{HostConfig, LowHost};
/// By what hosts prove who they are to the one protocol that asks them.
pub(crate) use self::iscsi::chap::ChapConfig as Proof;
/// What a listener says to the one protocol whose hosts it tells of its address.
pub(crate) use self::iscsi::portal::{LowPortal, PortalConfig, resolve as resolve_portal};
pub(crate) use self::iscsi::secret::Secrets;
pub(crate) use self::mpls::bins::Bins;
pub(crate) use self::mpls::metrics::metrics as router_metrics;
pub(crate) use self::mpls::port::{MPLS, RATE};
pub(crate) use self::mpls::pseudowire::{SEQUENCES, pseudowire_title};
pub(crate) use self::mpls::split::SPLITS;
pub(crate) use self::mpls::status::{
    RouterStatus, RouterSummary, Routers, summaries as router_summaries,
};
/// Routers, which carry frames for others.
pub(crate) use self::mpls::{
    CircuitConfig, LowCircuit, LowIlm, LowLsp, LowNeighbour, LowPseudowire, LowRouter, LowTunnel,
    LowUdp, NeighbourConfig, PortConfig, Routed, Routing, TunnelConfig, resolve as resolve_routing,
};
#[cfg(test)]
pub(crate) use self::mpls::{LowBackup, LowBfd, LowGre, LowL2tp, LowWay};
pub(crate) use self::remote::{DiscoveryTarget, IntakeOf, Remote, RemoteUri, parse_target};
use crate::checks::round_trip;
use crate::commands::dissect::Said;
use crate::config::address::HostPort;
use crate::config::disk::DiskConfig;
#[cfg(test)]
use crate::config::file::Written;
use crate::config::file::{LowArgs, TableReader};
use crate::config::link::{LinkAccess, Links};
use crate::config::listener::ListenerConfig;
use crate::config::mistake::Mistake;
use crate::config::quick::{Line, QuickWay};
use crate::config::resolve::Resolver;
use crate::config::thing::Configured;
use crate::config::volume::VolumeConfig;
use crate::metrics::Families;
use crate::run::look::Inventory;
use crate::run::{RunError, Running};

/// A protocol that is spoken over connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Its key in a `[[listener]]`.
    pub(crate) key: &'static str,
    pub(crate) protocol: Protocol,
    /// Where targets usually listen.
    pub(crate) tcp_port: u16,
}

pub(crate) const STREAMS: [Stream; 2] = [
    Stream { key: "nvme", protocol: Protocol::NvmeTcp, tcp_port: nvme_tcp::uri::TCP_PORT },
    Stream { key: "iscsi", protocol: Protocol::Iscsi, tcp_port: iscsi::uri::TCP_PORT },
];

/// The key of a protocol.
pub(crate) fn stream_key(protocol: Protocol) -> &'static str {
    STREAMS.iter().find(|stream| stream.protocol == protocol).map_or("?", |stream| stream.key)
}

/// The key of a link in its former spelling, a `[[listener]]` of the first protocol on frames. As
/// keys stay, `serve` and `check` show links under it.
pub(crate) const LINK_KEY: &str = "aoe";
/// What a `[[listener]]` may hold.
pub(crate) const LISTENER_KEYS: &[&str] = &[
    "nvme",
    "iscsi",
    "poll",
    "poll_us",
    "max_connections",
    "group",
    "advertise",
    "chap",
    LINK_KEY,
    "link",
    "vlan",
];
/// The protocol of which a listener says more than its address.
pub(crate) const PORTAL_PROTOCOL: Protocol = Protocol::Iscsi;
pub(crate) const LISTENER_EXAMPLE: &str =
    "nvme = \"127.0.0.1:4420\", iscsi = \"127.0.0.1:3260\", or aoe = \"eth1\"";
/// What an `[[export]]` may hold: the volume, then each protocol's table.
pub(crate) const EXPORT_KEYS: &[&str] = &["volume", "nvme", "iscsi", "aoe"];
/// A table for each of them.
pub(crate) const EXPORT_EXAMPLES: [&str; 3] =
    [nvme_tcp::config::EXAMPLE, iscsi::config::EXAMPLE, aoe::config::EXAMPLE];

/// What an `[[export]]` says to each protocol.
#[derive(Debug, Default)]
pub(crate) struct LowExports {
    pub(crate) nvme: Option<nvme_tcp::config::LowNamespace>,
    pub(crate) iscsi: Option<iscsi::config::LowUnit>,
    pub(crate) aoe: Option<aoe::config::LowTarget>,
}

impl LowExports {
    pub(crate) fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self { nvme: table.table("nvme"), iscsi: table.table("iscsi"), aoe: table.table("aoe") }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nvme.is_none() && self.iscsi.is_none() && self.aoe.is_none()
    }
}

/// What the connections of a listener speak, and what it is to their hosts once it listens at
/// `bound`.
pub(crate) fn listening(
    config: &ListenerConfig,
    bound: Option<SocketAddr>,
    secrets: &Secrets,
) -> Listening {
    match config.protocol {
        Protocol::NvmeTcp => Listening::NvmeTcp(config.group),
        Protocol::Iscsi => {
            let portal = config.portal.shown(config.group, bound, secrets);
            Listening::Iscsi(Box::new(portal))
        }
    }
}

/// The keys of each protocol's table, and of those within.
#[cfg(test)]
pub(crate) fn export_keys() -> [(&'static str, &'static [&'static str]); 5] {
    fn of<T: Written>() -> (&'static str, &'static [&'static str]) {
        (T::TITLE, T::KEYS)
    }
    [
        of::<nvme_tcp::config::LowNamespace>(),
        of::<iscsi::config::LowUnit>(),
        of::<aoe::config::LowTarget>(),
        of::<iscsi::chap::LowChap>(),
        of::<iscsi::chap::LowMutual>(),
    ]
}

/// A volume as a protocol shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExportConfig {
    NvmeTcp(nvme_tcp::config::NamespaceConfig),
    Iscsi(iscsi::config::UnitConfig),
    Aoe(aoe::config::TargetConfig),
}

/// What the rest of the program knows of an export.
pub(crate) trait Exported: Configured {
    /// The volume, which exists.
    fn volume(&self) -> &str;

    /// Whether its volume is quiesced before it is hidden for good: hosts then get errors, which
    /// tell them more than silence.
    fn is_quiesced_first(&self) -> bool;

    /// The same export, where this host may use it or may not; none where hosts have no such names.
    fn with_host(&self, host: &str, may: bool) -> Option<Result<ExportConfig, String>>;

    /// How it names a host, in a word.
    fn host_word(&self) -> &'static str;

    /// Whether whoever may use it may use the other one, too: it is the same, or in the same
    /// subsystem.
    fn shares_hosts(&self, other: &ExportConfig) -> bool;

    /// Commands of initiators that it says it holds, where it says so.
    fn promises(&self) -> u64 {
        0
    }

    /// Who uses it, as far as that is known, and would not any more with `to` in its place: a name
    /// each. It is shown as export `number`.
    fn users(&self, number: u32, to: Option<&ExportConfig>, reports: &[Report]) -> Vec<String>;

    /// For a table: what it is in, where it is there, and who may use it.
    fn shown(&self) -> [String; 3];

    /// The protocol, as people write it.
    fn protocol(&self) -> &'static str;

    /// The key of its listeners; none where it has none.
    fn stream_key(&self) -> Option<&'static str> {
        None
    }

    /// What is typed on a client to use it.
    fn guide(&self, client: ClientKind, reached: &Reached<'_>) -> Guide;

    /// Looks at what it takes beside its volume, which was looked at, and its links.
    fn look(&self, _inventory: &dyn Inventory) -> Result<(), RunError> {
        Ok(())
    }

    /// Shows it to hosts, or once more, as it is now, where it `is_new` no longer. After an error
    /// some shards may show it.
    fn show(&self, running: &Running, number: u32, is_new: bool) -> Result<(), RunError>;

    /// Hides it from hosts that are shown it or are not. After an error some shards may show it.
    fn hide(&self, running: &Running, number: u32) -> Result<(), RunError>;
}

impl Deref for ExportConfig {
    type Target = dyn Exported;

    fn deref(&self) -> &Self::Target {
        match self {
            ExportConfig::NvmeTcp(one) => one,
            ExportConfig::Iscsi(one) => one,
            ExportConfig::Aoe(one) => one,
        }
    }
}

impl ExportConfig {
    pub(crate) fn as_nvme(&self) -> Option<&nvme_tcp::config::NamespaceConfig> {
        match self {
            ExportConfig::NvmeTcp(one) => Some(one),
            _ => None,
        }
    }

    pub(crate) fn as_iscsi(&self) -> Option<&iscsi::config::UnitConfig> {
        match self {
            ExportConfig::Iscsi(one) => Some(one),
            _ => None,
        }
    }

    pub(crate) fn as_aoe(&self) -> Option<&aoe::config::TargetConfig> {
        match self {
            ExportConfig::Aoe(one) => Some(one),
            _ => None,
        }
    }
}

/// What a word is that is meant as the name of a host.
pub(crate) struct HostWord {
    /// Its kind.
    pub(crate) word: &'static str,
    /// Whose hosts are named so.
    pub(crate) protocol: &'static str,
    /// Why it is none all the same.
    pub(crate) wrong: Option<String>,
}

impl HostWord {
    /// None of what no protocol's hosts are named like.
    pub(crate) fn of(text: &str) -> Option<HostWord> {
        let (nqn, iqn, mac) = (nvme_tcp::HOST_WORD, iscsi::HOST_WORD, aoe::HOST_WORD);
        let ((word, protocol), wrong) = if nvme_tcp::is_nqn(text) {
            (nqn, text.parse::<nvme_tcp::nqn::Nqn>().err().map(|error| error.to_string()))
        } else if iscsi::is_name(text) {
            (iqn, iscsi::name(text).err().map(|(message, _)| message))
        } else {
            text.parse::<wire::ethernet::MacAddress>().ok()?;
            (mac, None)
        };
        Some(HostWord { word, protocol, wrong })
    }
}

/// What to type on a Linux host for the first export of each protocol, which reaches listeners so.
pub(crate) fn hints(exports: &[ExportConfig], reached: &[(Protocol, HostPort)]) -> Vec<String> {
    let namespace = exports.iter().find_map(ExportConfig::as_nvme);
    let target = exports.iter().find_map(ExportConfig::as_aoe);
    let unit = exports.iter().find_map(ExportConfig::as_iscsi);
    let listener = |wanted| reached.iter().find(move |(protocol, _)| *protocol == wanted);
    let connect = namespace.zip(listener(Protocol::NvmeTcp));
    let connect = connect.map(|(one, (_, address))| one.hint(address));
    let login = unit.zip(listener(Protocol::Iscsi)).map(|(one, (_, address))| one.hint(address));
    let shown = [connect, login, target.map(|one| one.hint())];
    shown.into_iter().flatten().collect()
}

/// Which frames of a link exports take, by each protocol that is spoken in frames.
pub(crate) fn intakes_of_exports(access: LinkAccess, shards: u16) -> [Intake; 1] {
    [aoe::serve::intake_of_exports(access, shards)]
}

/// The exports, protocol by protocol; links that only they name are added to the others.
pub(crate) fn resolve_exports(
    resolver: &mut Resolver<'_>,
    low: &LowArgs,
    volumes: &[VolumeConfig],
    links: &mut Links,
) -> Vec<ExportConfig> {
    let nvme = nvme_tcp::config::resolve(resolver, low);
    let iscsi = iscsi::config::resolve(resolver, low);
    let aoe = aoe::config::resolve(resolver, low, volumes, links);
    let (iscsi, aoe) = (iscsi.into_iter().map(ExportConfig::Iscsi), aoe.into_iter());
    let nvme = nvme.into_iter().map(ExportConfig::NvmeTcp);
    nvme.chain(iscsi).chain(aoe.map(ExportConfig::Aoe)).collect()
}

/// What can be said of routers only once all links, and all who may be on them, are known.
pub(crate) fn finish_routing(
    resolver: &mut Resolver<'_>,
    resolved: mpls::Resolved,
    links: &Links,
    (disks, exports): (&[DiskConfig], &[ExportConfig]),
) -> Routing {
    let on = |one: &ExportConfig| one.as_aoe().map(|aoe| (aoe.links.clone(), one.title()));
    let users = mpls::ends::Users {
        exports: exports
            .iter()
            .filter_map(on)
            .flat_map(|(links, title)| links.into_iter().map(move |link| (link, title.clone())))
            .collect(),
        disks: disks.iter().filter(|disk| disk.pseudowire().is_some()).collect(),
    };
    mpls::finish(resolver, resolved, links, &users)
}

/// Warns where there are exports of a protocol on connections, and no listener of it; one that is
/// wrong is one all the same.
fn need_listener(
    resolver: &mut Resolver<'_>,
    low: &LowArgs,
    protocol: Protocol,
    is_export: fn(&LowExports) -> bool,
) {
    let listens = low.listeners.iter().any(|one| match &one.address {
        Some(first) => [Some(first), one.second.as_ref()]
            .into_iter()
            .flatten()
            .any(|(other, _)| *other == protocol),
        None => one.interface.is_none(),
    });
    let first = low.exports.iter().find(|one| is_export(&one.by));
    let stream = STREAMS.iter().find(|stream| stream.protocol == protocol);
    if let (Some(export), Some(Stream { key, tcp_port, .. }), false) = (first, stream, listens) {
        let help = format!("add [[listener]] {key} = \"127.0.0.1:{tcp_port}\"");
        let message = format!("nobody can reach the {key} exports: there is no [[listener]] {key}");
        resolver.push(Mistake::warning(export.span.clone(), message).help(help));
    }
}

/// The flags of `serve` that say how its disks are exported.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) nvme: nvme_tcp::Flags,
    #[command(flatten)]
    pub(crate) iscsi: iscsi::Flags,
    #[command(flatten)]
    pub(crate) aoe: aoe::Flags,
}

impl Flags {
    /// The ways in which disks are exported: NVMe/TCP where none is named. Addresses to listen at
    /// are added to `low`.
    pub(crate) fn ways(
        &self,
        low: &mut LowArgs,
        line: &mut Line,
        mistakes: &mut Vec<Mistake>,
    ) -> Vec<Box<dyn QuickWay>> {
        let mut ways: Vec<Box<dyn QuickWay>> = Vec::new();
        let nvme = self.nvme.way(low, line);
        let iscsi = self.iscsi.way(low, line);
        let aoe = self.aoe.way(line, mistakes);
        let names_others = !self.iscsi.is_empty() || !self.aoe.is_empty();
        ways.extend(nvme.filter(|_| !self.nvme.is_empty() || !names_others));
        ways.extend(iscsi);
        ways.extend(aoe);
        ways
    }
}

/// What `dissect` makes of a TCP connection, by what is spoken there.
#[derive(Debug)]
pub(crate) enum StreamTalk {
    NvmeTcp(nvme_tcp::dissect::Conversation),
    Iscsi(iscsi::dissect::Conversation),
}

impl StreamTalk {
    /// The usual ports of targets.
    pub(crate) const TCP_PORTS: [u16; 2] = [nvme_tcp::uri::TCP_PORT, iscsi::uri::TCP_PORT];

    /// Of a connection to this port, which begins with these bytes: a login tells, and else the
    /// port.
    pub(crate) fn new(port: u16, from_host: bool, bytes: &[u8]) -> Self {
        let begins_with_login = from_host && iscsi::dissect::is_begun_by(bytes);
        match begins_with_login || port == iscsi::uri::TCP_PORT {
            true => StreamTalk::Iscsi(iscsi::dissect::Conversation::default()),
            false => StreamTalk::NvmeTcp(nvme_tcp::dissect::Conversation::default()),
        }
    }

    /// Whether a host that sends these bytes begins a connection of ours by them.
    pub(crate) fn is_begun_by(bytes: &[u8]) -> bool {
        nvme_tcp::dissect::is_begun_by(bytes) || iscsi::dissect::is_begun_by(bytes)
    }

    /// The next bytes of a direction, and how many behind them were not captured.
    pub(crate) fn bytes(
        &mut self,
        time_ns: u64,
        from_host: bool,
        bytes: &[u8],
        missing: usize,
        said: &mut Vec<Said>,
    ) {
        match self {
            StreamTalk::NvmeTcp(talk) => talk.bytes(time_ns, from_host, bytes, missing, said),
            StreamTalk::Iscsi(talk) => talk.bytes(time_ns, from_host, bytes, missing, said),
        }
    }

    /// Bytes of a direction that the capture does not have.
    pub(crate) fn gap(&mut self, from_host: bool, bytes: u32, said: &mut Vec<Said>) {
        match self {
            StreamTalk::NvmeTcp(talk) => talk.gap(from_host, bytes, said),
            StreamTalk::Iscsi(talk) => talk.gap(from_host, bytes, said),
        }
    }
}

/// What has to hold of a word that a protocol reads, as [`checks`](crate::checks) asks.
pub(crate) fn check_words(text: &str) {
    if let Err(error) = round_trip::<nvme_tcp::nqn::Nqn>(text) {
        assert!(text.get(error.offset..).is_some(), "{error} at {}", error.offset);
    }
    let _ = round_trip::<iscsi::Named>(text);
    if let Err((message, offset)) = iscsi::name(text) {
        assert!(text.get(offset..).is_some(), "{message} at {offset}");
    }
}

/// The flags of `discover` that belong to one protocol.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct DiscoverFlags {
    /// Who to say that we are, over NVMe/TCP
    #[arg(long, value_name = "NQN")]
    pub(crate) host_nqn: Option<nvme_tcp::nqn::Nqn>,
    /// Who to say that we are, over iSCSI
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator: Option<iscsi::Named>,
}

/// What exports can carry on an interface of this MTU, in a few words, or why nothing.
pub(crate) fn carried_on(mtu: u32) -> Result<String, String> {
    aoe::serve::carried_on(mtu)
}

/// What `status` says of each protocol.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ProtocolStatus {
    #[serde(flatten)]
    nvme: nvme_tcp::status::Status,
    #[serde(flatten)]
    iscsi: iscsi::status::Status,
    #[serde(flatten)]
    aoe: aoe::status::Status,
}

impl ProtocolStatus {
    pub(crate) fn of(running: &Running, reports: &[Report]) -> Self {
        let nvme = nvme_tcp::status::Status::of(running, reports);
        let iscsi = iscsi::status::Status::of(running, reports);
        Self { nvme, iscsi, aoe: aoe::status::Status::of(running, reports) }
    }

    /// For people, each under its title.
    pub(crate) fn tables(&self) -> Vec<(&'static str, Table)> {
        self.nvme.tables().into_iter().chain(self.iscsi.tables()).chain(self.aoe.tables()).collect()
    }

    /// Of the protocols that have such.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        self.nvme.sessions().chain(self.iscsi.sessions()).collect()
    }

    /// What was dropped, and why.
    pub(crate) fn dropped(&self) -> [(&'static str, &BTreeMap<String, u64>); 1] {
        [("aoe frames dropped", &self.aoe.aoe_drops)]
    }
}

/// A host that is connected.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Session {
    pub(crate) protocol: &'static str,
    /// The name that it told.
    pub(crate) host: String,
    /// The one that the configuration gives it, if it does.
    pub(crate) name: Option<String>,
    /// Its address.
    pub(crate) peer: String,
    /// What it uses, as hosts know it.
    pub(crate) export: String,
    /// What it is doing.
    pub(crate) state: String,
}

/// What a host did with an export.
#[derive(Clone, Debug)]
pub(crate) struct HostTraffic {
    pub(crate) protocol: &'static str,
    /// As hosts know it, and on which links.
    pub(crate) export: String,
    /// None of those that no list names.
    pub(crate) host: Option<String>,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

impl HostTraffic {
    /// What a host did with an export of a protocol.
    pub(crate) fn of(
        protocol: &'static str,
        export: &str,
        host: Option<String>,
        traffic: &contract::Traffic,
    ) -> HostTraffic {
        let &contract::Traffic { reads, writes, read_bytes, write_bytes, .. } = traffic;
        let export = export.to_owned();
        HostTraffic { protocol, export, host, reads, writes, read_bytes, write_bytes }
    }

    /// What sets it apart from others.
    pub(crate) fn key(&self) -> (&'static str, &str, Option<&str>) {
        (self.protocol, &self.export, self.host.as_deref())
    }

    pub(crate) fn add(&mut self, other: &HostTraffic) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
    }
}

/// What hosts did, on each shard.
pub(crate) fn host_traffic(running: &Running, reports: &[Report]) -> Vec<HostTraffic> {
    nvme_tcp::metrics::host_traffic(reports)
        .chain(iscsi::metrics::host_traffic(reports))
        .chain(aoe::metrics::host_traffic(running, reports))
        .collect()
}

/// What monitoring reads of each protocol; `disks` are the shards' numbers and their names.
pub(crate) fn metrics(reports: &[Report], disks: &[(u32, String)], families: &mut Families) {
    nvme_tcp::metrics::metrics(reports, families);
    iscsi::metrics::metrics(reports, families);
    aoe::metrics::metrics(reports, disks, families);
}

/// What a registrant calls itself, whose session says so.
pub(crate) fn registrant_name(who: Registrant, reports: &[Report]) -> Option<String> {
    iscsi::status::registrant_name(who, reports)
}

/// A value that is to be stored, as a line; none if it says nothing.
pub(crate) fn stored_text(value: &StoredValue) -> Option<String> {
    match value {
        StoredValue::AoeControl(control) => aoe::serve::control_text(control),
        StoredValue::Reservation(reservation) => {
            let lasting = reservation.lasting();
            (!lasting.is_empty()).then(|| lasting.to_string())
        }
        StoredValue::Paths(paths) => (!paths.is_default()).then(|| paths.to_string()),
    }
}
