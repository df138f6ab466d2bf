//! Next hops that are known by an address of IP: where each is, as the kernel's table of neighbours
//! has it, told to the shards by one order a change.
//!
//! What paths and neighbours name is followed from before they are ordered, so that one that the
//! kernel knows is resolved from the first packet on, until the configuration that is applied names
//! it no more. The kernel asks and probes (`reactor::Stations`); what it says is taken but for an
//! address that can be no other router's. Errors: an address that is in no network of its interface,
//! or this host's own; later, a next hop that is not resolved is a problem that is told once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use mpls::{Change, Via};
use reactor::{Found, Stations, look_at_interface};
use wire::ethernet::MacAddress;

use super::RunError;
use super::sight::on_link;
use crate::config::model::HiArgs;
use crate::log::Event;
use crate::protocols::mpls::Routing;
use crate::protocols::mpls::status::NextHopStatus;
use crate::run::Running;

/// How long a change of the configuration waits for next hops that are new, all together: one that
/// is there answers long before.
const PATIENCE: Duration = Duration::from_secs(1);

/// The next hops by addresses of IP.
#[derive(Debug, Default)]
pub(super) struct NextHops {
    /// While there are any.
    stations: Option<Stations>,
    hops: BTreeMap<Key, NextHop>,
}

/// By which a next hop is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    router: String,
    link: String,
    address: IpAddr,
}

impl Key {
    fn title(&self) -> String {
        title(&self.link, self.address)
    }
}

/// What people call a next hop.
pub(super) fn title(link: &str, address: IpAddr) -> String {
    format!("next hop {address} on {link}")
}

#[derive(Debug)]
struct NextHop {
    /// Where it is followed.
    interface: String,
    found: Found,
    /// What the shards were told.
    mac: Option<MacAddress>,
    /// It was told that it is not resolved.
    is_told: bool,
}

/// Where a next hop is, or why nothing can be sent there.
fn resolved(found: Found, interface: &str) -> Result<MacAddress, String> {
    let kernel = |what: &str| Err(format!("{what}, as the kernel's neighbour table has it"));
    let mac = match found {
        Found::At(mac) => MacAddress(mac),
        Found::Asked => return kernel("it is being asked for"),
        Found::Failed => return kernel("nobody answers for it"),
        Found::Unknown => return kernel("it is not there"),
        Found::Away => return Err(format!("{interface} is down or gone")),
    };
    if mac.is_group() || mac.to_u64() == 0 {
        return kernel(&format!("it is at {mac}, which is no station's"));
    }
    if look_at_interface(interface).is_ok_and(|facts| MacAddress(facts.mac) == mac) {
        return kernel(&format!("it is at {mac}, which is this host's own"));
    }
    Ok(mac)
}

/// Where a station is found now, in words for `check`.
pub(super) fn shown(address: IpAddr, found: Found, interface: &str) -> String {
    match resolved(found, interface) {
        Ok(mac) => format!("{address} is at {mac}"),
        Err(why) => format!("{address} is not resolved now ({why})"),
    }
}

/// The addresses by which things of a configuration know next hops, with router and link, each once.
fn named(routing: &Routing) -> BTreeSet<Key> {
    let ilms = routing.ilms.iter();
    let ilms = ilms.flat_map(|one| one.hops().map(|hop| (&one.router, &hop.link, hop.next_hop)));
    let lsps = routing.lsps.iter();
    let lsps = lsps.flat_map(|one| one.hops().map(|hop| (&one.router, &hop.link, hop.next_hop)));
    let neighbours =
        routing.neighbours.iter().map(|one| (&one.router, &one.link, Some(one.next_hop)));
    let key = |(router, link, via): (&String, &String, Option<Via>)| {
        let address = via?.ip()?;
        Some(Key { router: router.clone(), link: link.clone(), address })
    };
    ilms.chain(lsps).chain(neighbours).filter_map(key).collect()
}

/// The addresses of next hops on a link, each once.
pub(super) fn named_on(routing: &Routing, link: &str) -> Vec<IpAddr> {
    named(routing).into_iter().filter(|key| key.link == link).map(|key| key.address).collect()
}

impl NextHops {
    /// A router is gone, and what it knew of them.
    pub(super) fn forget_router(&mut self, router: &str) {
        self.hops.retain(|key, _| key.router != router);
    }

    /// How those of a router are.
    pub(super) fn statuses(&self, router: &str) -> impl Iterator<Item = NextHopStatus> {
        let mine = self.hops.iter().filter(move |(key, _)| key.router == router);
        mine.map(|(key, hop)| NextHopStatus {
            link: key.link.clone(),
            address: key.address.to_string(),
            mac: hop.mac.map(|mac| mac.to_string()),
            problem: hop.mac.is_none().then(|| problem(key, hop)),
        })
    }

    /// Where one of a router is.
    pub(super) fn mac(&self, router: &str, link: &str, address: IpAddr) -> Option<String> {
        let key = Key { router: router.to_owned(), link: link.to_owned(), address };
        self.hops.get(&key)?.mac.map(|mac| mac.to_string())
    }
}

fn problem(key: &Key, hop: &NextHop) -> String {
    let why = match resolved(hop.found, &hop.interface) {
        Err(why) => why,
        // It was found a moment ago.
        Ok(mac) => format!("it is at {mac} now"),
    };
    format!("{} is not resolved ({why})", key.title())
}

impl Running {
    /// Before anything is done: has the kernel find all next hops that are new, and waits a moment.
    pub(in crate::run) fn ask_for_next_hops(&mut self, to: &HiArgs) {
        let interface = |key: &Key| {
            let link = to.links.iter().find(|link| link.name == key.link)?;
            let interface = link.ethernet.interface.clone();
            // What is wrong is told when it is wanted.
            on_link(&interface, key.address).ok().map(|()| (interface, key.address))
        };
        let known = |key: &Key| self.routers.next_hops.hops.contains_key(key);
        let new: Vec<_> =
            named(&to.routing).iter().filter(|key| !known(key)).filter_map(interface).collect();
        if new.is_empty() {
            return;
        }
        if let Ok(stations) = self.stations() {
            new.iter().for_each(|(interface, address)| {
                drop(stations.follow(interface, *address));
            });
            stations.settle(&new, PATIENCE);
        }
    }

    fn stations(&mut self) -> Result<&Stations, RunError> {
        if self.routers.next_hops.stations.is_none() {
            let bell = self.shards.bell().clone();
            let stations = Stations::start(move || bell.ring());
            let stations = stations.map_err(|error| {
                // Unrecorded: of a kernel without netlink, or without a thread to give.
                RunError::new(format!("the kernel's table of neighbours: {error}"))
            })?;
            self.routers.next_hops.stations = Some(stations);
        }
        Ok(self.routers.next_hops.stations.as_ref().expect("it is there or was just made"))
    }

    /// Something is about to go to a next hop of a router: the shards know where it is, if the kernel
    /// does, and hear of it from now on.
    pub(super) fn find_next_hop(
        &mut self,
        router: &str,
        link: &str,
        via: Option<Via>,
    ) -> Result<(), RunError> {
        let Some(Via::Ip(address)) = via else { return Ok(()) };
        let key = Key { router: router.to_owned(), link: link.to_owned(), address };
        let Some(interface) = self.interface_of(link) else {
            // Unrecorded: what names a link comes after it.
            return Err(RunError::new(format!("link {link} is not open")));
        };
        let known = self.routers.next_hops.hops.get(&key);
        if known.is_some_and(|hop| hop.interface == interface) {
            return Ok(());
        }
        let fail = |why: RunError| why.within(&key.title());
        on_link(&interface, address).map_err(fail)?;
        let found = self.stations()?.follow(&interface, address);
        // Unrecorded: of a kernel that does not tell its table.
        let found = found.map_err(|error| fail(RunError::new(error.to_string())))?;
        let known = self.routers.next_hops.hops.remove(&key);
        let (mac, is_told) = known.map_or((None, false), |hop| (hop.mac, hop.is_told));
        let hop = NextHop { interface, found: Found::Unknown, mac, is_told };
        self.routers.next_hops.hops.insert(key.clone(), hop);
        self.tell_if_new(&key, found)
    }

    /// What the kernel's table has of next hops is what the shards have. What happened is told.
    pub(crate) fn follow_next_hops(&mut self) {
        let NextHops { stations: Some(stations), hops } = &self.routers.next_hops else { return };
        let found = |(key, hop): (&Key, &NextHop)| {
            let found = stations.find(&hop.interface, key.address);
            (found != hop.found).then(|| (key.clone(), found))
        };
        let news: Vec<(Key, Found)> = hops.iter().filter_map(found).collect();
        for (key, found) in news {
            if let Err(error) = self.tell_if_new(&key, found) {
                // Of a shard that does not answer.
                Event::error(error.line()).tell();
            }
        }
    }

    fn tell_if_new(&mut self, key: &Key, found: Found) -> Result<(), RunError> {
        if let Some(event) = self.take_up(key, found)? {
            let port = self.routers.port(&key.router, &key.link)?;
            let event = event.link(&key.link);
            self.shards.event_log().tell_next_hop((port, key.address), event);
        }
        Ok(())
    }

    /// A next hop was found so. Returns what is to be told.
    fn take_up(&mut self, key: &Key, found: Found) -> Result<Option<Event>, RunError> {
        let Some(hop) = self.routers.next_hops.hops.get(key) else { return Ok(None) };
        let (before, mac) = (hop.mac, resolved(found, &hop.interface).ok());
        if mac != before {
            self.resolve(key, mac, before)?;
        }
        let title = key.title();
        let Some(hop) = self.routers.next_hops.hops.get_mut(key) else { return Ok(None) };
        (hop.found, hop.mac) = (found, mac);
        // Until the kernel has given up, it may be there.
        let is_final = !matches!(found, Found::Asked | Found::Unknown);
        Ok(match (before, mac, hop.is_told) {
            (None, Some(mac), true) => {
                hop.is_told = false;
                Some(Event::info(format!("{title} is resolved: it is at {mac}")))
            }
            (Some(before), Some(mac), _) if before != mac => {
                Some(Event::info(format!("{title} is at {mac} now, and was at {before}")))
            }
            (_, None, false) if is_final => {
                hop.is_told = true;
                let words = problem(key, hop);
                let words = format!("{words}: what goes there is dropped, or takes its backup");
                Some(Event::warn(words))
            }
            _ => None,
        })
    }

    fn resolve(
        &self,
        key: &Key,
        mac: Option<MacAddress>,
        before: Option<MacAddress>,
    ) -> Result<(), RunError> {
        let router = self.routers.id(&key.router)?;
        let port = self.routers.port(&key.router, &key.link)?;
        let change = |mac| Change::Resolve(port, key.address, mac);
        self.route(router, &key.title(), &change(mac), Some(&change(before)))
    }

    /// A configuration was applied, or not: what is named no more is forgotten, and what is on another
    /// interface now is followed there.
    pub(in crate::run) fn forget_next_hops(&mut self) {
        let used = named(&self.routers.config());
        let hops = &mut self.routers.next_hops.hops;
        let gone: Vec<(Key, NextHop)> = hops.extract_if(.., |key, _| !used.contains(key)).collect();
        for (key, hop) in &gone {
            self.let_go_of_next_hop(key, hop);
        }
        for key in used {
            if let Err(error) =
                self.find_next_hop(&key.router, &key.link, Some(Via::Ip(key.address)))
            {
                Event::error(error.line()).tell();
            }
        }
        let NextHops { stations, hops } = &mut self.routers.next_hops;
        if hops.is_empty() {
            // Its thread ends.
            *stations = None;
        } else if let Some(stations) = stations {
            stations.keep(|interface, address| {
                hops.iter().any(|(key, hop)| hop.interface == interface && key.address == address)
            });
        }
    }

    fn let_go_of_next_hop(&self, key: &Key, hop: &NextHop) {
        let Ok(port) = self.routers.port(&key.router, &key.link) else { return };
        self.shards.event_log().forget_next_hop((port, key.address));
        // A router that is gone has forgotten it.
        if let (Ok(router), Some(_)) = (self.routers.id(&key.router), hop.mac) {
            let change = Change::Resolve(port, key.address, None);
            let _ = self.forget(router, &key.title(), &change);
        }
    }
}
