//! What is found of the interfaces of routers: whether they are there, up and large enough, whether
//! the host itself lives on one that is a customer's, whether it has an address from which a neighbour
//! or a next hop is reached, whether the path to the end of a tunnel is there and wide enough, and what
//! goes in a circle between them.
//!
//! A look receives and sends nothing. Units: bytes behind the Ethernet header.

use std::collections::BTreeSet;
use std::net::IpAddr;

use block::ShardId;
use mpls::Via;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;
use reactor::{
    Interface, delays_what_is_first, is_of_a_link, look_at_interface, look_at_peer,
    look_at_stations, may_open_links,
};
use wire::ethernet::{HEADER_SIZE, MacAddress};

use super::tunnels::peer_options;
use super::{RunError, next_hops};
use crate::config::link::{LinkAccess, LinkConfig};
use crate::config::model::HiArgs;
use crate::config::thing::Configured as _;
use crate::protocols::mpls::loops::{self, Circle};
use crate::protocols::mpls::{CircuitConfig, NeighbourConfig, Routed, Routing, TunnelConfig};
use crate::run::links::bridge_of;
use crate::run::look::Inventory;

/// What was seen of an interface of a router's.
#[derive(Debug)]
pub(crate) struct RoutedSight {
    /// What was found, in a few words.
    pub(crate) words: String,
    /// Its address; none of an interface that the server that answers has, and we do not see, and
    /// where there is no Ethernet.
    pub(crate) mac: Option<MacAddress>,
    /// Bytes from the label stack on, or behind the Ethernet header.
    pub(crate) mtu: Option<u32>,
    /// What deserves to be told of it.
    pub(crate) told: Option<String>,
}

impl RoutedSight {
    fn of(words: String, facts: Option<Interface>, told: Option<String>) -> Self {
        let mac = facts.as_ref().map(|facts| MacAddress(facts.mac));
        Self { words, mac, mtu: facts.map(|facts| facts.mtu), told }
    }
}

/// Looks at a link that is a port, and where the kernel knows that its next hops are. What is wrong with
/// it is told of the link.
pub(crate) fn look_at_port(
    link: &LinkConfig,
    routing: &Routing,
    inventory: &impl Inventory,
) -> RoutedSight {
    let interface = &link.ethernet.interface;
    let facts = look_at_interface(interface).ok();
    let is_it = |other: &LinkConfig| other.ethernet == link.ethernet;
    let words = match facts {
        Some(facts) => state(&facts),
        None if inventory.served().is_some_and(|one| one.args.links.iter().any(is_it)) => {
            "the server has it now"
        }
        None => "its interface is not there",
    };
    let named = next_hops::named_on(routing, &link.name);
    let found = facts.and_then(|_| look_at_stations(interface, &named).ok()).unwrap_or_default();
    let hops = named.iter().zip(found);
    let hops = hops.map(|(address, found)| next_hops::shown(*address, found, interface));
    let words = [words.to_owned()].into_iter().chain(hops).collect::<Vec<_>>().join("; ");
    let told = facts.filter(|_| sends_bfd(link, routing)).and_then(|_| delay_of_bfd(link));
    RoutedSight::of(words, facts, told)
}

/// Whether BFD goes by a link and waits with its interface: not where the router keeps the queue (a
/// rate), and not over AF_XDP, which goes past the kernel's.
fn sends_bfd(link: &LinkConfig, routing: &Routing) -> bool {
    let is_by = |name: &str| name == link.name;
    let paths = |lsp: &str| {
        let lsp = routing.lsps.iter().find(|one| one.name == lsp);
        lsp.is_some_and(|lsp| lsp.hops().any(|hop| is_by(&hop.link)))
    };
    let mut pseudowires = routing.pseudowires.iter().filter(|one| one.bfd.is_some());
    let has_rate = routing.ports.iter().any(|port| is_by(&port.link) && port.rate.is_some());
    let is_watched = routing.neighbours.iter().any(|one| is_by(&one.link))
        || pseudowires.any(|one| paths(&one.lsp) || one.backup.as_deref().is_some_and(paths));
    is_watched && !has_rate && link.access != LinkAccess::Xdp
}

/// What deserves to be told of the queue of an interface by which BFD goes. One that does not say how
/// it queues is not spoken of.
fn delay_of_bfd(link: &LinkConfig) -> Option<String> {
    let interface = &link.ethernet.interface;
    let kind = delays_what_is_first(interface).ok()??;
    Some(format!(
        "{}: {interface} queues by {kind}, which lets BFD wait behind data: give the link a rate, or tc qdisc replace dev {interface} root prio",
        link.title()
    ))
}

/// Looks at the interface of a circuit, and whether this user may open it.
pub(crate) fn look_at_circuit(
    config: &CircuitConfig,
    inventory: &impl Inventory,
) -> Result<RoutedSight, RunError> {
    let (interface, title) = (&config.interface, config.title());
    let served = inventory.served();
    let is_served = served.is_some_and(|served| {
        served.args.routing.circuits.iter().any(|other| other.interface == *interface)
    });
    let fail = |why: String| RunError::new(why).within(&title);
    let facts = match look_at_interface(interface) {
        Ok(facts) => facts,
        // It may be in a network namespace of its own.
        Err(_) if is_served => {
            let words = "the server has it now".to_owned();
            return Ok(RoutedSight::of(words, None, None));
        }
        Err(error) => {
            return Err(fail(error.to_string()).help("`ip -br link` shows them"));
        }
    };
    let rights = match (may_open_links(), served) {
        (Ok(()), _) => "",
        // The server's user may have what this one lacks.
        (Err(_), Some(_)) => "; this user may not open it, which is for the server to try",
        (Err(error), None) => return Err(fail(error.to_string())),
    };
    let [four, six] = addresses(interface);
    // IPv6 is off there while the circuit is open, and with it go its addresses, for good.
    if let (Some(six), false) = (six, is_served) {
        let why = format!("the host has {six} on {interface}, and a circuit would take that away");
        let help =
            format!("ip -6 address flush dev {interface} scope global, or take another interface");
        return Err(fail(why).help(help));
    }
    let told = four.map(|addresses| {
        format!(
            "{title}: the host has {addresses} on {interface}, whose frames the customer gets as well: ip address flush dev {interface}"
        )
    });
    let bridge = bridge_of(interface).map(|bridge| {
        format!("{title}: {interface} is a port of the bridge {bridge}, which gets all frames as well: ip link set {interface} nomaster")
    });
    let down = (!facts.up).then(|| {
        format!("{title}: the interface is down; it carries frames once it is up: ip link set {interface} up")
    });
    let words =
        format!("{}{rights}", if is_served { "the server has it now" } else { state(&facts) });
    let told: Vec<String> = told.into_iter().chain(bridge).chain(down).collect();
    let told = (!told.is_empty()).then(|| told.join("; "));
    Ok(RoutedSight::of(words, Some(facts), told))
}

/// What deserves to be told of a neighbour, by the addresses that the host has on its interface now.
pub(crate) fn look_at_neighbour(config: &NeighbourConfig, interface: &str) -> Option<String> {
    let (title, address) = (config.title(), config.address);
    let ours = networks(interface);
    if ours.iter().any(|(ip, _)| *ip == address) {
        return Some(format!(
            "{title}: {address} is this host's own on {interface}; expected the neighbour's"
        ));
    }
    let family = family(address);
    let mut ours = ours.iter().filter(|(ip, _)| ip.is_ipv4() == address.is_ipv4()).peekable();
    if ours.peek().is_none() {
        let length = if address.is_ipv4() { 24 } else { 64 };
        return Some(format!(
            "{title}: this host has no address of {family} on {interface}, and BFD waits for one: ip address add .../{length} dev {interface}"
        ));
    }
    if ours.clone().any(|network| contains(*network, address)) {
        return None;
    }
    Some(format!(
        "{title}: {address} is in no network of {interface}, which has {}; a neighbour on the link is",
        listed(ours)
    ))
}

/// Refuses an address that no next hop on an interface can have, by the addresses that the host has
/// there now.
pub(super) fn on_link(interface: &str, address: IpAddr) -> Result<(), RunError> {
    let ours = networks(interface);
    let fail = |why: String, help: &str| Err(RunError::new(why).help(help));
    if ours.iter().any(|(ip, _)| *ip == address) {
        let why = format!("it is this host's own on {interface}");
        return fail(why, "write that of the next router");
    }
    let alike = ours.iter().filter(|(ip, _)| ip.is_ipv4() == address.is_ipv4());
    let Some(network) = alike.clone().find(|network| contains(**network, address)) else {
        let family = family(address);
        let has = match listed(ours.iter()) {
            none if none.is_empty() => "no address".to_owned(),
            some => some,
        };
        let why = format!("it is in no network of {interface}, which has {has}");
        let help = format!(
            "the next router has an address of {family} in one of them; `ip address show dev {interface}` shows them, or write its MAC address"
        );
        return fail(why, &help);
    };
    if is_of_many(*network, address) {
        let why = format!("it is that of all hosts of {}/{}", network.0, network.1);
        return fail(why, "write that of the next router");
    }
    Ok(())
}

/// Looks whether the addresses of IP by which a thing knows next hops may be such on their links, as far
/// as these are seen. Each is looked at once; `seen` has those that were.
pub(crate) fn look_at_next_hops(
    thing: &Routed,
    links: &[LinkConfig],
    seen: &mut BTreeSet<(String, IpAddr)>,
) -> Result<(), RunError> {
    for (name, address) in thing.next_hops() {
        if !seen.insert((name.to_owned(), address)) {
            continue;
        }
        let link = links.iter().find(|link| link.name == name);
        let interface = link.map(|link| link.ethernet.interface.as_str()).unwrap_or_default();
        // One that is not there was told of, or only the server sees it.
        if look_at_interface(interface).is_ok() {
            on_link(interface, address)
                .map_err(|why| why.within(&next_hops::title(name, address)))?;
        }
    }
    Ok(())
}

/// The addresses that the host has on an interface, and how long the prefixes of their networks are.
fn networks(interface: &str) -> Vec<(IpAddr, u32)> {
    let all = getifaddrs().into_iter().flatten().filter(|one| one.interface_name == interface);
    all.filter_map(|one| of_network(&one)).collect()
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn listed<'a>(networks: impl Iterator<Item = &'a (IpAddr, u32)>) -> String {
    let all: Vec<String> = networks.map(|(ip, length)| format!("{ip}/{length}")).collect();
    all.join(", ")
}

fn contains((own, length): (IpAddr, u32), address: IpAddr) -> bool {
    own.is_ipv4() == address.is_ipv4() && prefix(own, length) == prefix(address, length)
}

/// Whether an address is that of the network itself, or of all of its hosts (RFC 922); where there is
/// room for two hosts alone it is neither (RFC 3021).
fn is_of_many((own, length): (IpAddr, u32), address: IpAddr) -> bool {
    let (IpAddr::V4(_), IpAddr::V4(four)) = (own, address) else { return false };
    let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
    length < 31 && [0, hosts].contains(&(four.to_bits() & hosts))
}

/// What deserves to be told of a tunnel, whose circuit is on this interface: that there is no path to
/// its other end now, or one that takes less than the circuit's frames.
pub(crate) fn look_at_tunnel(config: &TunnelConfig, circuit: &str) -> Option<String> {
    // A server that answers may live in a network namespace of its own, and has other routes then.
    let facts = look_at_interface(circuit).ok()?;
    let (title, peer) = (config.title(), config.way.peer);
    let takes = match look_at_peer(&peer_options(&config.way, ShardId(0))) {
        Ok(Some(takes)) => takes,
        Ok(None) => {
            let from = config.way.local.map(|ip| format!(" from {ip}")).unwrap_or_default();
            return Some(format!(
                "{title}: there is no route to {peer}{from} now, and its frames are dropped until there is: `ip route get {peer}{from}` asks the system"
            ));
        }
        Err(error) => return Some(format!("{title}: the route to {peer}: {error}")),
    };
    let around = HEADER_SIZE + config.session.header_size(config.sequence);
    let needs = facts.mtu.saturating_add(around as u32);
    (takes < needs).then(|| {
        let fits = takes.saturating_sub(around as u32);
        format!(
            "{title}: the path to {peer} takes frames of {fits} bytes behind their Ethernet header, and {circuit} has an MTU of {}: larger ones are dropped and counted; ip link set {circuit} mtu {fits}, at the customer's as well, or a larger MTU on the way",
            facts.mtu
        )
    })
}

/// An address of the host's, and how long its network's prefix is.
fn of_network(one: &InterfaceAddress) -> Option<(IpAddr, u32)> {
    let ip = |address: Option<&SockaddrStorage>| -> Option<IpAddr> {
        let address = address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    };
    let (own, mask) = (ip(one.address.as_ref())?, ip(one.netmask.as_ref())?);
    Some((own, bits(mask).leading_ones()))
}

/// An address from its first bit on.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// So many of them.
fn prefix(ip: IpAddr, length: u32) -> u128 {
    bits(ip) & u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

fn state(facts: &Interface) -> &'static str {
    if facts.up { "up" } else { "down: it carries frames once it is up" }
}

/// The addresses that the host has on an interface, of IPv4 and of IPv6, but for those that every one
/// has.
fn addresses(interface: &str) -> [Option<String>; 2] {
    let (mut fours, mut sixes) = (Vec::new(), Vec::new());
    let all = getifaddrs().into_iter().flatten().filter(|one| one.interface_name == interface);
    for address in all.filter_map(|one| one.address) {
        match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(four), _) => fours.push(four.ip().to_string()),
            (_, Some(six)) if !six.ip().is_unicast_link_local() => sixes.push(six.ip().to_string()),
            _ => {}
        }
    }
    [fours, sixes].map(|some| (!some.is_empty()).then(|| some.join(", ")))
}

/// What is told of a circle.
pub(crate) fn refusal(circle: &Circle) -> RunError {
    RunError::new(circle.words.clone()).help("lead one of them elsewhere, or pop it")
}

/// What goes in a circle, by the addresses that this machine's interfaces have. One that means another
/// host on each link may be anybody's.
pub(crate) fn circles(args: &HiArgs) -> Vec<Circle> {
    let addresses_of = |name: &str| {
        let link = args.links.iter().find(|link| link.name == name);
        let interface = link.map(|link| link.ethernet.interface.as_str()).unwrap_or_default();
        let Ok(facts) = look_at_interface(interface) else { return Vec::new() };
        let own = networks(interface).into_iter().map(|(ip, _)| ip);
        let own = own.filter(|ip| !is_of_a_link(*ip)).map(Via::Ip);
        own.chain([Via::Mac(MacAddress(facts.mac))]).collect()
    };
    loops::circles(&args.routing, addresses_of)
}
