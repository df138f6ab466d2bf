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

    fn word(&self) -> String {
        match self {
            Owner::Ilm(one) => one.fec(),
            Owner::Pseudowire(one) => match &one.circuit {
                Some(circuit) => format!("{} of circuit {circuit}", one.title()),
                None => one.title(),
            },
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
        let before = self.owners();
        let reused = to.owners().into_iter().filter_map(|(space, owner)| {
            let was = before.get(&space).filter(|was| !was.is_for_the_same(&owner))?;
            let (router, from, label) = space;
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
