//! Labels that were taken away a moment ago: whose they were, and until when they are nobody else's.
//!
//! The shards refuse such a label, too, by clocks of their own; here is who had it in words, and how
//! long to wait. Whoever had it gets it back at once, as when a change is undone.

use std::collections::BTreeMap;
use std::time::Instant;

use contract::LinkId;
use mpls::{FecId, PseudowireId};
use wire::mpls::Label;

use super::RunError;
use crate::protocols::mpls::{IlmConfig, PseudowireConfig};

/// Where a label means something: its router, the link where it is that of one, and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    router: String,
    from: Option<String>,
    label: u32,
}

impl Place {
    pub(super) fn router(&self) -> &str {
        &self.router
    }
}

/// Where the label of an ilm is.
pub(super) fn place(ilm: &IlmConfig) -> Place {
    Place { router: ilm.router.clone(), from: ilm.from.clone(), label: ilm.label.get() }
}

/// Where the label is by which a pseudowire's packets come.
pub(super) fn place_of(config: &PseudowireConfig) -> Place {
    Place { router: config.router.clone(), from: None, label: config.label_in.get() }
}

/// Where a label is, of a router.
pub(super) fn place_in(router: &str, from: Option<String>, label: Label) -> Place {
    Place { router: router.to_owned(), from, label: label.get() }
}

/// Who has a label, as shards know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Fec(FecId),
    Pseudowire(PseudowireId, LinkId),
}

/// Who had a label.
#[derive(Debug)]
struct Former {
    holder: Holder,
    title: String,
    /// What was done with its packets, if they went on or were popped.
    ilm: Option<IlmConfig>,
    until: Instant,
}

/// The labels that are nobody's for now.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(BTreeMap<Place, Former>);

impl Withdrawn {
    pub(super) fn put(
        &mut self,
        place: Place,
        holder: Holder,
        title: &str,
        ilm: Option<IlmConfig>,
        until: Instant,
    ) {
        let now = Instant::now();
        self.0.retain(|_, former| former.until > now);
        self.0.insert(place, Former { holder, title: title.to_owned(), ilm, until });
    }

    /// Somebody has it again.
    pub(super) fn given(&mut self, place: &Place) {
        self.0.remove(place);
    }

    /// Whose it was.
    pub(super) fn title(&self, place: &Place) -> Option<String> {
        self.0.get(place).map(|former| former.title.clone())
    }

    pub(super) fn forget_router(&mut self, router: &str) {
        self.0.retain(|place, _| place.router != router);
    }

    /// What an ilm is known by that had this label a moment ago, and is for the same.
    pub(super) fn fec_of(&self, place: &Place, ilm: &IlmConfig) -> Option<FecId> {
        let former = self.0.get(place)?;
        let is_it = former.ilm.as_ref().is_some_and(|before| before.is_for_the_same(ilm));
        match former.holder {
            Holder::Fec(fec) if is_it => Some(fec),
            _ => None,
        }
    }

    /// Whether somebody may have a label now.
    pub(super) fn check(
        &self,
        place: &Place,
        holder: &Holder,
        now: Instant,
    ) -> Result<(), RunError> {
        let Some(former) = self.0.get(place) else { return Ok(()) };
        if former.holder == *holder || former.until <= now {
            return Ok(());
        }
        // The shards' clocks may be a little behind.
        let seconds = (former.until - now).as_secs() + 1;
        let (label, title) = (place.label, &former.title);
        Err(RunError::new(format!(
            "label {label} was that of {title} a moment ago, and packets for it may be on their way"
        ))
        .help(format!("apply it again in {seconds} s, or take another label")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_label_is_its_former_holder_s_alone_until_the_quarantine_is_over() {
        let place = || Place { router: "r".to_owned(), from: None, label: 200 };
        let (mut withdrawn, now) = (Withdrawn::default(), Instant::now());
        let (holder, other) = (Holder::Fec(FecId(1)), Holder::Fec(FecId(2)));
        assert!(withdrawn.check(&place(), &other, now).is_ok());
        withdrawn.put(place(), holder.clone(), "ilm 200", None, now + Duration::from_secs(60));
        assert!(withdrawn.check(&place(), &holder, now).is_ok());
        let refused = withdrawn.check(&place(), &other, now + Duration::from_secs(20));
        let said = refused.expect_err("it is in quarantine").line();
        assert!(said.contains("was that of ilm 200") && said.contains("again in 41 s"), "{said}");
        assert!(withdrawn.check(&place(), &other, now + Duration::from_secs(60)).is_ok());
        withdrawn.forget_router("r");
        assert!(withdrawn.check(&place(), &other, now).is_ok());
    }
}
