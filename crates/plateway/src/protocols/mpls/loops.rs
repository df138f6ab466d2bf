//! Labels that lead in a circle, as far as this machine can see: from one of its ports to another,
//! or to itself.
//!
//! A packet is followed from each label that goes on, also by the backup of one of the labels: by its
//! next router's address, of Ethernet or of IP, to the port that has it, or in UDP to the port whose addresses are the same
//! the other way around, if both say theirs, and there by the label on top. What leaves for another
//! machine is out of sight, and so is
//! what lies below labels that are all popped. A packet in a circle ends by its TTL; until then it
//! takes the place of up to 255.

use std::collections::BTreeMap;
use std::ptr;

use mpls::Via;
use wire::mpls::Label;

use super::udp::UdpWay;
use super::words::Hop;
use super::{IlmConfig, PortConfig, Routing};
use crate::config::thing::Configured;

/// A circle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// The title of a label of it.
    pub(crate) title: String,
    /// What happens, for people.
    pub(crate) words: String,
}

/// All circles, each once. `addresses_of` has the addresses of a link's interface, as far as they are
/// known.
pub(crate) fn circles(routing: &Routing, addresses_of: impl Fn(&str) -> Vec<Via>) -> Vec<Circle> {
    let named = routing.ports.iter();
    let of = |port: &PortConfig| addresses_of(&port.link).into_iter();
    let by_address = named.clone().flat_map(|port| of(port).map(|via| (via, &*port.link)));
    let ilms = routing.ilms.iter().map(|one| ((&*one.router, one.from.as_deref(), one.label), one));
    let map = Map {
        ilms: ilms.collect(),
        routers: named.clone().map(|port| (&*port.link, &*port.router)).collect(),
        ports: by_address.collect(),
        in_udp: named.filter_map(|port| Some((&*port.link, port.udp?))).collect(),
    };
    // Nothing comes back to a machine that is no neighbour of its own.
    let mut found: Vec<Vec<String>> = Vec::new();
    let goes_on = |hop: Option<&Hop>| hop.is_some_and(|hop| map.comes_by(hop).is_some());
    let own = routing.ilms.iter().filter(|ilm| goes_on(ilm.action.hop())).map(|ilm| (ilm, None));
    let around = routing.ilms.iter().filter(|ilm| goes_on(ilm.backup.as_ref()));
    for (ilm, failed) in own.chain(around.map(|ilm| (ilm, Some(ilm)))) {
        let from = routing.ports.iter().filter(|port| port.router == ilm.router);
        let from = from.map(|port| port.link.as_str());
        let from = from.filter(|link| ilm.from.as_deref().is_none_or(|from| from == *link));
        for circle in from.filter_map(|link| map.follow(link, ilm.label, failed)) {
            let mut members = circle.clone();
            members.sort();
            let is_it = |other: &Vec<String>| {
                let mut other = other.clone();
                other.sort();
                other == members
            };
            if !found.iter().any(is_it) {
                found.push(circle);
            }
        }
    }
    let shown = |circle: Vec<String>| {
        let words = format!("packets go in a circle: {} -> {}", circle.join(" -> "), circle[0]);
        Circle { title: circle[0].clone(), words }
    };
    found.into_iter().map(shown).collect()
}

/// The ilms by whose label it is, where, and which.
type Table<'r> = BTreeMap<(&'r str, Option<&'r str>, Label), &'r IlmConfig>;

/// What a walk goes by.
struct Map<'r> {
    ilms: Table<'r>,
    /// The router of each port.
    routers: BTreeMap<&'r str, &'r str>,
    /// The ports by their addresses.
    ports: BTreeMap<Via, &'r str>,
    /// Those in UDP.
    in_udp: BTreeMap<&'r str, UdpWay>,
}

impl<'r> Map<'r> {
    /// The link by which what goes there comes back to this machine.
    fn comes_by(&self, hop: &Hop) -> Option<&'r str> {
        let Some(via) = hop.next_hop else {
            let way = self.in_udp.get(&*hop.link)?;
            return self
                .in_udp
                .iter()
                .find(|(_, other)| way.is_heard_by(other))
                .map(|(link, _)| *link);
        };
        self.ports.get(&via).copied()
    }

    /// What is done with a label that came by a link: on top of a packet the link's own comes first.
    fn look_up(&self, link: &str, label: Label, is_top: bool) -> Option<&'r IlmConfig> {
        let router = *self.routers.get(link)?;
        let own = self.ilms.get(&(router, Some(link), label)).filter(|_| is_top);
        own.or_else(|| self.ilms.get(&(router, None, label))).copied()
    }

    /// The labels of a circle that a packet gets into that comes by a link with a label, while the next
    /// hop of one of them fails.
    fn follow(
        &self,
        link: &'r str,
        label: Label,
        failed: Option<&'r IlmConfig>,
    ) -> Option<Vec<String>> {
        let (mut link, mut stack, mut is_top) = (link, vec![label], true);
        let mut way: Vec<(String, &str)> = Vec::new();
        // The labels that a packet had where it was. It gets nowhere twice with fewer for ever.
        let mut depths: BTreeMap<(String, &str), usize> = BTreeMap::new();
        loop {
            let ilm = self.look_up(link, *stack.last()?, is_top)?;
            let at = (ilm.title(), link);
            if depths.insert(at.clone(), stack.len()).is_some_and(|before| before <= stack.len()) {
                let before = way.iter().rposition(|other| *other == at)?;
                return Some(way.split_off(before).into_iter().map(|(title, _)| title).collect());
            }
            way.push(at);
            stack.pop();
            is_top = false;
            let backup =
                ilm.backup.as_ref().filter(|_| failed.is_some_and(|one| ptr::eq(one, ilm)));
            if let Some(hop) = backup.or(ilm.action.hop()) {
                stack.extend(hop.labels.as_slice().iter().rev());
                (link, is_top) = (self.comes_by(hop)?, true);
            }
        }
    }
}
