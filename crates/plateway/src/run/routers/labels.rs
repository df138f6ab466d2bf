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
use crate::config::thing::Configured as _;
use crate::protocols::mpls::{IlmConfig, PseudowireConfig};

/// Where a label means something: its router, the link where it is that of one, and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    router: String,
    from: Option<String>,
    label: u32,
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

/// Who asks for a label.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks<'a> {
    /// As the shards know them already, if they do.
    holder: Option<&'a Holder>,
    ilm: Option<&'a IlmConfig>,
    is_on_top: bool,
}

impl<'a> Asks<'a> {
    pub(super) fn ilm(holder: Option<&'a Holder>, ilm: &'a IlmConfig) -> Self {
        Self { holder, ilm: Some(ilm), is_on_top: true }
    }

    pub(super) fn pseudowire(holder: Option<&'a Holder>, config: &PseudowireConfig) -> Self {
        Self { holder, ilm: None, is_on_top: config.is_on_top() }
    }
}

/// Who had a label.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) holder: Holder,
    /// In words.
    pub(super) title: String,
    /// What was done with its packets, if they went on or were popped.
    pub(super) ilm: Option<IlmConfig>,
    /// Whether it may have been on top of packets.
    pub(super) is_on_top: bool,
    pub(super) until: Instant,
}

impl Former {
    pub(super) fn ilm(fec: FecId, config: &IlmConfig, until: Instant) -> Self {
        let (holder, title) = (Holder::Fec(fec), config.title());
        Self { holder, title, ilm: Some(config.clone()), is_on_top: true, until }
    }

    pub(super) fn pseudowire(holder: Holder, config: &PseudowireConfig, until: Instant) -> Self {
        let (title, is_on_top) = (config.whose(), config.is_on_top());
        Self { holder, title, ilm: None, is_on_top, until }
    }
}

/// The labels that are nobody's for now.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(BTreeMap<Place, Former>);

impl Withdrawn {
    pub(super) fn put(&mut self, place: Place, former: Former) {
        let now = Instant::now();
        self.0.retain(|_, former| former.until > now);
        self.0.insert(place, former);
    }

    /// Somebody has it again.
    pub(super) fn given(&mut self, place: &Place) {
        self.0.remove(place);
    }

    /// Whose it was.
    pub(super) fn title(&self, place: &Place) -> Option<String> {
        self.0.get(place).map(|former| former.title.clone())
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

    /// Whether somebody may have a label now. On top of a packet a label of all ports is one of each
    /// port, and the other way around.
    pub(super) fn check(
        &self,
        place: &Place,
        asks: &Asks<'_>,
        now: Instant,
    ) -> Result<(), RunError> {
        let is_there = |other: &Place, former: &Former| {
            let is_each = other.from.is_none() || place.from.is_none();
            (&other.router, other.label) == (&place.router, place.label)
                && (other.from == place.from || is_each && former.is_on_top && asks.is_on_top)
        };
        let is_for = |former: &Former| {
            let before = former.ilm.as_ref();
            asks.holder == Some(&former.holder)
                || before.zip(asks.ilm).is_some_and(|(before, ilm)| before.is_for_the_same(ilm))
        };
        let another = |(other, former): &(&Place, &Former)| {
            is_there(other, former) && former.until > now && !is_for(former)
        };
        let Some((_, former)) = self.0.iter().find(another) else { return Ok(()) };
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
        let asks = |holder| Asks { holder, ilm: None, is_on_top: true };
        assert!(withdrawn.check(&place(), &asks(Some(&other)), now).is_ok());
        let (title, until) = ("ilm 200".to_owned(), now + Duration::from_secs(60));
        let former = Former { holder: holder.clone(), title, ilm: None, is_on_top: true, until };
        withdrawn.put(place(), former);
        assert!(withdrawn.check(&place(), &asks(Some(&holder)), now).is_ok());
        let soon = now + Duration::from_secs(20);
        let of_link = || Place { from: Some("eth1".to_owned()), ..place() };
        for (place, holder) in [(place(), Some(&other)), (place(), None), (of_link(), Some(&other))]
        {
            let refused = withdrawn.check(&place, &asks(holder), soon);
            let said = refused.expect_err("it is in quarantine").line();
            assert!(said.contains("was that of ilm 200"), "{said}");
            assert!(said.contains("again in 41 s"), "{said}");
        }
        // What comes in a tunnel alone is never on top.
        let inside = Asks { is_on_top: false, ..asks(Some(&other)) };
        assert!(withdrawn.check(&of_link(), &inside, soon).is_ok());
        for elsewhere in
            [Place { router: "s".to_owned(), ..place() }, Place { label: 201, ..place() }]
        {
            assert!(withdrawn.check(&elsewhere, &asks(Some(&other)), soon).is_ok());
        }
        assert!(withdrawn.check(&place(), &asks(Some(&other)), until).is_ok());
    }
}
