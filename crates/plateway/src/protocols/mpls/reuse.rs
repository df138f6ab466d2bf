//! Whose a label is, and that it becomes nobody else's at once.
//!
//! A label space has each label once. A label that was for one thing and is to be for another would
//! take packets that are on their way to the first to the second: it is refused in one change, and
//! for a time after it was taken away (the router's quarantine, which `run` keeps).

use std::collections::BTreeMap;

use wire::mpls::Label;

use super::{IlmConfig, PseudowireConfig, Routing};
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::Resolver;
use crate::config::thing::Configured;

/// Where a label means something: the router, and the link where it is that of one.
type Space<'a> = (&'a str, Option<&'a str>, Label);

/// What a label is for.
enum Owner<'a> {
    Ilm(&'a IlmConfig),
    Pseudowire(&'a PseudowireConfig),
}

impl Owner<'_> {
    fn is_for_the_same(&self, other: &Owner<'_>) -> bool {
        match (self, other) {
            (Owner::Ilm(one), Owner::Ilm(other)) => one.is_for_the_same(other),
            (Owner::Pseudowire(one), Owner::Pseudowire(other)) => one.is_for_the_same(other),
            _ => false,
        }
    }

    /// Whether its label may be on top of packets that come, where a link's own label is looked up first.
    fn is_on_top(&self) -> bool {
        match self {
            Owner::Ilm(_) => true,
            Owner::Pseudowire(one) => one.is_on_top(),
        }
    }

    fn word(&self) -> String {
        match self {
            Owner::Ilm(one) => one.fec(),
            Owner::Pseudowire(one) => one.whose(),
        }
    }
}

impl Routing {
    fn owners(&self) -> BTreeMap<Space<'_>, Owner<'_>> {
        let ilms = self
            .ilms
            .iter()
            .map(|one| ((one.router.as_str(), one.from.as_deref(), one.label), Owner::Ilm(one)));
        let pseudowires = self.pseudowires.iter();
        let pseudowires = pseudowires
            .map(|one| ((one.router.as_str(), None, one.label_in), Owner::Pseudowire(one)));
        ilms.chain(pseudowires).collect()
    }

    /// The labels that are for something else in `to`.
    pub(crate) fn reused(&self, to: &Routing) -> Vec<Refused> {
        let (before, after) = (self.owners(), to.owners());
        // On top of a packet a label of all ports is one of each port, and the other way around.
        let at = |(space, was): &(&Space<'_>, &Owner<'_>), other: &Space<'_>, owner: &Owner<'_>| {
            let is_each = space.1.is_none() || other.1.is_none();
            let is_on_top = was.is_on_top() && owner.is_on_top();
            space.0 == other.0 && (space.1 == other.1 || is_each && is_on_top)
        };
        let mut gone_by_label: BTreeMap<Label, Vec<(&Space<'_>, &Owner<'_>)>> = BTreeMap::new();
        for (space, was) in &before {
            let stays = after.get(space).is_some_and(|owner| was.is_for_the_same(owner));
            if !stays {
                gone_by_label.entry(space.2).or_default().push((space, was));
            }
        }
        let reused = after.iter().filter_map(|(space, owner)| {
            let mut gone = gone_by_label.get(&space.2)?.iter();
            let is_other = |(_, was): &&(&Space<'_>, &Owner<'_>)| !was.is_for_the_same(owner);
            let (_, was) = gone.find(|one| at(one, space, owner) && is_other(one))?;
            let (router, from, label) = *space;
            let place =
                from.map_or_else(|| format!("router {router}"), |link| format!("link {link}"));
            let (label, from, to) = (label.get(), was.word(), owner.word());
            Some(Refused::LabelReused { label, place, from, to })
        });
        reused.collect()
    }
}

impl Resolver<'_> {
    /// That no label is there twice.
    pub(super) fn labels_once(
        &mut self,
        ilms: &[(IlmConfig, Span)],
        pseudowires: &[(PseudowireConfig, Span)],
    ) {
        let mut taken: BTreeMap<Space<'_>, (String, &Span)> = BTreeMap::new();
        let all = ilms.iter().map(|(one, at)| {
            ((one.router.as_str(), one.from.as_deref(), one.label), one.title(), at)
        });
        let all = all.chain(
            pseudowires
                .iter()
                .map(|(one, at)| ((one.router.as_str(), None, one.label_in), one.title(), at)),
        );
        for (space, title, at) in all {
            if let Some((first, first_at)) = taken.get(&space) {
                let (_, from, label) = space;
                let place = from.map(|link| format!(" on link {link}")).unwrap_or_default();
                let message = format!("label {label} is that of {first}{place} already");
                self.push(Mistake::error(at.clone(), message).first(first_at));
            } else {
                taken.insert(space, (title, at));
            }
        }
        // On top of a packet a link's own label comes first.
        for (one, at) in pseudowires {
            for way in one.from.iter().filter(|way| way.tunnel.is_none()) {
                let space = (one.router.as_str(), Some(way.link.as_str()), one.label_in);
                if let Some((first, first_at)) = taken.get(&space) {
                    let message = format!(
                        "label {} of {} is on top of what comes by {}, where it is that of {first}",
                        one.label_in,
                        one.title(),
                        way.link
                    );
                    let help = "give one of them another label, or have packets of the pseudowire come in a tunnel";
                    self.push(Mistake::error(at.clone(), message).first(first_at).help(help));
                }
            }
        }
    }
}
