//! `plateway connect`: what to type on a client to use a volume of a running server, for each
//! protocol that the volume is exported over.
//!
//! Where a listener listens on every address, clients are told the one by which this machine
//! reaches others, which a socket that sends nothing finds out; behind NAT, and wherever else that
//! is wrong, `--address` says another. Errors: a volume that is not there, or not exported.

use std::net::{IpAddr, UdpSocket};

use serde::Serialize;

use crate::cli::ConnectArgs;
use crate::config;
use crate::config::address::HostPort;
use crate::config::defaults::Defaults;
use crate::config::listener::ListenerConfig;
use crate::config::quick::Flags;
use crate::control::{Listener, Status};
use crate::protocols::connect::{Guide, Reached};
use crate::protocols::{ExportConfig, stream_key};

/// How a volume is used over one protocol.
#[derive(Serialize)]
struct Way {
    protocol: &'static str,
    /// What the server calls the export.
    export: String,
    #[serde(flatten)]
    guide: Guide,
}

pub(crate) fn run(args: &ConnectArgs) -> miette::Result<()> {
    let client = super::client(&args.server)?;
    let (text, status) = (client.config()?, client.status()?);
    let defaults = Defaults::of_this_machine();
    let served = config::check_with_flags("the server", &text, &Flags::default(), &defaults)?.args;
    let Some(volume) = status.volumes.iter().find(|one| one.name == args.volume) else {
        let known: Vec<&str> = status.volumes.iter().map(|one| &*one.name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(miette::miette!("volume {}: no such volume; there are {known}", args.volume));
    };
    let mut ways = Vec::new();
    for export in served.exports.iter().filter(|one| one.volume() == args.volume) {
        let listeners = listeners_of(&status, export);
        let at = match listeners.first() {
            Some(listener) => reached(listener, export, args)?,
            None => None,
        };
        let discovery = listeners.first().and_then(|one| asks_as(&served.listeners, one));
        let (uuid, hosts) = (&*volume.uuid, &*served.hosts);
        let reached = Reached { at: at.as_ref(), uuid, discovery, hosts };
        let mut guide = export.guide(args.client, &reached);
        if !guide.commands.is_empty() {
            guide.commands.extend(listeners.iter().skip(1).map(|one| another(one)));
        }
        ways.push(Way { protocol: export.protocol(), export: export.title(), guide });
    }
    if ways.is_empty() {
        return Err(miette::miette!(
            help = "add an [[export]] of it to the configuration, then: plateway apply FILE",
            "volume {} is not exported",
            args.volume
        ));
    }
    super::show(args.server.json, &ways, || shown(&ways))
}

fn shown(ways: &[Way]) -> String {
    let part = |way: &Way| {
        let mut text = format!("{} ({})\n", way.protocol, way.export);
        way.guide.commands.iter().for_each(|line| text += &format!("  {line}\n"));
        way.guide.instead.iter().for_each(|why| text += &format!("  {why}\n"));
        text
    };
    ways.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// The listeners by which an export is reached, those first whose group is open.
fn listeners_of<'a>(status: &'a Status, export: &ExportConfig) -> Vec<&'a Listener> {
    let Some(key) = export.stream_key() else { return Vec::new() };
    let mine = |one: &&Listener| one.address.contains_key(key);
    let mut listeners: Vec<&Listener> = status.listeners.iter().filter(mine).collect();
    listeners.sort_by_key(|one| !one.path.ends_with("optimized"));
    listeners
}

/// As whom clients ask a listener for targets.
fn asks_as<'a>(configured: &'a [ListenerConfig], listener: &Listener) -> Option<&'a str> {
    let is_it = |one: &&ListenerConfig| {
        let address = listener.address.get(stream_key(one.protocol));
        address.is_some_and(|address| address == one.address.to_string().as_str())
    };
    let portal = &configured.iter().find(is_it)?.portal;
    Some(&portal.chap.as_ref()?.user.user)
}

/// What is said of one more way to the same volume.
fn another(listener: &Listener) -> String {
    let at = listener.advertise.as_ref().or(listener.addresses.first());
    let at = at.map_or("another listener", String::as_str);
    format!("# another path: {at} (group {}, {})", listener.group, listener.path)
}

/// By which address a client reaches a listener.
fn reached(
    listener: &Listener,
    export: &ExportConfig,
    args: &ConnectArgs,
) -> miette::Result<Option<HostPort>> {
    if let (None, Some(advertised)) = (&args.address, &listener.advertise) {
        return Ok(HostPort::parse(advertised, None).ok());
    }
    let Some(bound) = listener.addresses.first().and_then(|text| HostPort::parse(text, None).ok())
    else {
        return Ok(None);
    };
    let host = match (&args.address, bound.ip()) {
        (Some(named), _) => {
            let named = HostPort::parse(named, Some(bound.tcp_port))
                .map_err(|error| miette::miette!("--address {named}: {error}"))?;
            return Ok(Some(named));
        }
        (None, Some(ip)) if ip.is_unspecified() => own_address(ip).ok_or_else(|| {
            miette::miette!(
                help = "say it: --address HOST",
                "{}: it is not known by which address clients reach this machine",
                export.title()
            )
        })?,
        (None, _) => bound.host,
    };
    Ok(Some(HostPort { host, tcp_port: bound.tcp_port }))
}

/// The address of this machine towards everybody else; one that listens on every IPv6 address is
/// reached by IPv4, too. Nothing is sent.
fn own_address(any: IpAddr) -> Option<String> {
    // Addresses for documentation (RFC 5737, RFC 3849): the way there is the default one.
    const IPV4: (&str, &str) = ("0.0.0.0:0", "192.0.2.1:9");
    const IPV6: (&str, &str) = ("[::]:0", "[2001:db8::1]:9");
    let ways = if any.is_ipv4() { &[IPV4][..] } else { &[IPV6, IPV4] };
    ways.iter().find_map(|(own, towards)| {
        let socket = UdpSocket::bind(own).ok()?;
        socket.connect(towards).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    })
}
