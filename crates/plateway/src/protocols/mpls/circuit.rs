//! `[[circuit]]`: an attachment circuit, all frames of an interface, whoever they are for.
//!
//! A customer in a VLAN is reached by the kernel's device of it, such as `eth2.5`; frames then come
//! without that tag. Nothing else of the configuration is on the same interface.

use std::collections::BTreeMap;

use contract::Poll;
use toml::Spanned;
use wire::classify::Classifier;

use super::router::router_title;
use super::split::{SPLIT_WORD, split_word};
use super::{Routed, routed};
use crate::config::file::{LowArgs, NAME, table};
use crate::config::link::{Ethernet, INTERFACE, Links};
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::poll::{POLL, POLL_KEY};
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};
use crate::config::uri::check_name;

/// Priorities of 802.1p are classes of the same number.
const CLASSES_DEFAULT: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

table! {
    LowCircuit = "[[circuit]]" {
        name: String = NAME,
        ethernet: String = INTERFACE,
        router: String = super::words::ROUTER,
        split: String = SPLIT_WORD,
        traffic_classes: Vec<Spanned<i64>> = "a list of eight classes, such as [0, 1, 2, 3, 4, 5, 6, 7]",
        poll: String = POLL,
    }
}

/// `[[circuit]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CircuitConfig {
    /// Unique among circuits and links; that of its interface unless it was given another.
    pub(crate) name: String,
    pub(crate) router: String,
    /// Unique among circuits and links.
    pub(crate) interface: String,
    /// By what its frames are told apart; `None`: all go one way.
    pub(crate) split: Option<Classifier>,
    /// The class of frames by their 802.1p priority; those without a tag have priority 0.
    pub(crate) traffic_classes: [u8; 8],
    /// How long a shard looks for more frames before it sleeps.
    pub(crate) poll: Poll,
}

impl CircuitConfig {
    /// What it is opened as.
    pub(crate) fn ethernet(&self) -> Ethernet {
        Ethernet { interface: self.interface.clone(), vlan: None }
    }

    fn classes(&self) -> String {
        let classes = self.traffic_classes.map(|class| class.to_string());
        format!("[{}]", classes.join(", "))
    }
}

pub(super) fn circuit_title(name: &str) -> String {
    format!("circuit {name}")
}

impl Configured for CircuitConfig {
    fn title(&self) -> String {
        circuit_title(&self.name)
    }

    fn details(&self) -> String {
        let on = if self.interface == self.name { "" } else { &self.interface };
        let of = format!("of router {}", self.router);
        if on.is_empty() { format!(": {of}") } else { format!(": {on}, {of}") }
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![
            ("split", split_word(self.split).to_owned()),
            ("traffic_classes", self.classes()),
            (POLL_KEY, self.poll.to_string()),
        ]
    }

    fn stands_on(&self) -> Vec<String> {
        vec![router_title(&self.router)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        match other {
            Thing::Link(link) => link.ethernet.interface == self.interface,
            other => match routed(other) {
                Some(Routed::Circuit(other)) => {
                    other.name == self.name || other.interface == self.interface
                }
                _ => false,
            },
        }
    }

    /// Another interface is another circuit to the driver; what it carries stays what it was.
    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let Some(Routed::Circuit(to)) = routed(to) else { return Ok(Change::Replace) };
        let stays = to.interface == self.interface && to.router == self.router;
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let mut text = String::from("[[circuit]]\n");
        // The name that it has by itself may be none that could be given.
        if self.name != self.interface {
            text += &format!("name = {}\n", quoted(&self.name));
        }
        if self.split.is_some() {
            text += &format!("split = \"{}\"\n", split_word(self.split));
        }
        let (interface, router) = (quoted(&self.interface), quoted(&self.router));
        let (classes, poll) = (self.classes(), self.poll);
        text + &format!(
            "ethernet = {interface}\nrouter = {router}\ntraffic_classes = {classes}\n{POLL_KEY} = \"{poll}\"\n"
        )
    }
}

impl Resolver<'_> {
    /// The circuits, and the names of all, those of wrong ones too.
    pub(super) fn circuits(
        &mut self,
        low: &LowArgs,
        links: &Links,
        routers: &Names,
    ) -> (Vec<(CircuitConfig, Span)>, Names) {
        let (mut circuits, mut names): (Vec<(CircuitConfig, Span)>, _) =
            (Vec::new(), Names::default());
        let mut on: BTreeMap<String, Span> = BTreeMap::new();
        for one in &low.circuits {
            if one.ethernet.is_none() {
                self.missing(&one.span, "[[circuit]]", "ethernet", "ethernet = \"eth2\"");
            }
            let router = self.router_of(&one.router, (&one.span, "[[circuit]]"), routers);
            let poll = self.poll(&one.poll).unwrap_or(links.poll);
            let traffic_classes = match &one.traffic_classes {
                Some(written) => self.classes(written),
                None => Some(CLASSES_DEFAULT),
            };
            let split = one.split.as_ref().and_then(|written| self.split(written));
            let interface = one.ethernet.as_ref().and_then(|written| self.interface(written));
            let Some(at) = one.name.as_ref().or(one.ethernet.as_ref()) else { continue };
            let (name, at) = (at.get_ref().clone(), at.span());
            if let Some(Err(expected)) = one.name.as_ref().map(|name| check_name(name.get_ref())) {
                self.error(at.clone(), format!("expected {expected}, seen {name:?}"));
            }
            if let Some(first) = names.first(&name) {
                let message = format!("there is a circuit {name:?} already");
                self.push(Mistake::error(at.clone(), message).first(first));
            } else if let Some((_, first)) = links.list.iter().find(|(link, _)| {
                link.name == name && Some(&link.ethernet.interface) != interface.as_ref()
            }) {
                let message = format!("there is a link {name:?} already");
                let help = "give it another name, by which its counters are told apart from those of the link";
                self.push(Mistake::error(at.clone(), message).first(first).help(help));
            }
            names.push(&name, at.clone());
            let (Some(interface), Some(router), Some(traffic_classes)) =
                (interface, router, traffic_classes)
            else {
                continue;
            };
            if let Some(first) = on.get(&interface) {
                let message = format!("two circuits on {interface}");
                self.push(Mistake::error(at.clone(), message).first(first));
            }
            on.insert(interface.clone(), at.clone());
            let circuit = CircuitConfig { name, router, interface, split, traffic_classes, poll };
            self.place(circuit.title(), "", at.clone());
            circuits.push((circuit, at));
        }
        (circuits, names)
    }

    fn classes(&mut self, written: &Spanned<Vec<Spanned<i64>>>) -> Option<[u8; 8]> {
        let list = written.get_ref();
        if list.len() != 8 {
            let message =
                format!("traffic_classes: expected 8, one for each priority, seen {}", list.len());
            self.error(written.span(), message);
            return None;
        }
        let mut classes = [0; 8];
        for (class, one) in classes.iter_mut().zip(list) {
            *class = self.number(&Some(one.clone()), "traffic_classes", 0..=7)? as u8;
        }
        Some(classes)
    }

    /// That nothing else is on the interface of a circuit: `links` are all there are.
    pub(super) fn circuits_are_alone(&mut self, circuits: &[(CircuitConfig, Span)], links: &Links) {
        let by_interface: BTreeMap<&str, &(CircuitConfig, Span)> =
            circuits.iter().map(|one| (one.0.interface.as_str(), one)).collect();
        for (link, at) in &links.list {
            let interface = link.ethernet.interface.as_str();
            if let Some((circuit, first)) = by_interface.get(interface) {
                let message = format!(
                    "{interface} is circuit {}, and cannot be a link as well",
                    circuit.name
                );
                let help = "all its frames are the customer's, whatever their type and VLAN";
                self.push(Mistake::error(at.clone(), message).first(first).help(help));
            }
        }
    }
}
