//! `[[ilm]]`: what is done with packets that come with a label. They go on with others in its place,
//! or their tunnel ends here.
//!
//! What a label is for is its FEC. One that has a name may be led elsewhere while packets come; what
//! has none is told by what is done with it, and becomes nothing else under the same label.

use std::collections::BTreeMap;

use toml::Spanned;
use wire::mpls::Label;

use super::backup::{self, LowBackup};
use super::port::{PortConfig, Ports, port_title};
use super::router::{of, router_title};
use super::words::{Hop, LABEL, LABELS, LINK, NEXT_HOP, ROUTER, YES, shown};
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs, TableReader, Written};
use crate::config::link::Links;
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};
use crate::config::uri::check_name;

/// `[[ilm]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowIlm {
    pub(crate) span: Span,
    pub(crate) label: Low<i64>,
    pub(crate) from: Low<String>,
    pub(crate) router: Low<String>,
    pub(crate) fec: Low<String>,
    pub(crate) pop: Low<bool>,
    pub(crate) link: Low<String>,
    pub(crate) next_hop: Low<String>,
    pub(crate) labels: Low<Vec<Spanned<i64>>>,
    pub(crate) backup: Option<LowBackup>,
}

impl Written for LowIlm {
    const TITLE: &'static str = "[[ilm]]";
    const KEYS: &'static [&'static str] =
        &["label", "from", "router", "fec", "pop", "link", "next_hop", "labels", "backup"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            label: table.take("label", LABEL),
            from: table.take("from", LINK),
            router: table.take("router", ROUTER),
            fec: table.take("fec", "a name in quotes"),
            pop: table.take("pop", YES),
            link: table.take("link", LINK),
            next_hop: table.take("next_hop", NEXT_HOP),
            labels: table.take("labels", LABELS),
            backup: table.table("backup"),
        }
    }
}

/// `[[ilm]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IlmConfig {
    pub(crate) router: String,
    pub(crate) label: Label,
    /// The link by which they come, whose label it is; `None`: the platform's, on all links.
    pub(crate) from: Option<String>,
    /// What the label is for, where that has a name.
    pub(crate) fec: Option<String>,
    pub(crate) action: IlmAction,
    /// What packets that go on take while their next hop fails. It is no part of what the label is for.
    pub(crate) backup: Option<Hop>,
}

/// What is done with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IlmAction {
    /// The tunnel ends here.
    Pop,
    /// It goes on.
    Forward(Hop),
}

impl IlmAction {
    /// Where packets go, if they go on.
    pub(crate) fn hop(&self) -> Option<&Hop> {
        match self {
            Self::Pop => None,
            Self::Forward(hop) => Some(hop),
        }
    }

    fn word(&self) -> String {
        let Self::Forward(hop) = self else { return "pop".to_owned() };
        match hop.labels.as_slice() {
            [] => format!("pop, {}", hop.where_to()),
            _ => format!("swap for {}, {}", shown(&hop.labels), hop.where_to()),
        }
    }
}

impl IlmConfig {
    /// What the label is for, in words by which nothing else is told.
    pub(crate) fn fec(&self) -> String {
        match &self.fec {
            Some(fec) => format!("fec {fec}"),
            None => self.action.word(),
        }
    }

    /// What is done with its packets, in a few words for a table.
    pub(crate) fn action_words(&self) -> String {
        let IlmAction::Forward(hop) = &self.action else { return "pop".to_owned() };
        match hop.labels.as_slice() {
            [] => format!("pop to {}", hop.link),
            _ => format!("swap for {} to {}", shown(&hop.labels), hop.link),
        }
    }

    /// Where packets that go on may go.
    pub(crate) fn hops(&self) -> impl Iterator<Item = &Hop> {
        self.action.hop().into_iter().chain(&self.backup)
    }

    /// Whether both are for the same.
    pub(crate) fn is_for_the_same(&self, other: &Self) -> bool {
        match (&self.fec, &other.fec) {
            (Some(one), Some(other)) => one == other,
            // What gets a name, or loses it, stays what it was where the same is done with it.
            _ => self.action == other.action,
        }
    }
}

impl Configured for IlmConfig {
    fn title(&self) -> String {
        match &self.from {
            Some(link) => format!("ilm {} from {link}", self.label),
            None => format!("ilm {}{}", self.label, of(&self.router)),
        }
    }

    fn details(&self) -> String {
        let fec = self.fec.as_ref().map(|fec| format!(", fec {fec}")).unwrap_or_default();
        format!(": {}{fec}", self.action.word())
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let fec = self.fec.clone().unwrap_or_else(|| "none".to_owned());
        vec![("fec", fec), ("action", self.action.word()), backup::value(self.backup.as_ref())]
    }

    fn stands_on(&self) -> Vec<String> {
        let port = self.from.as_ref().map(|link| port_title(link));
        [router_title(&self.router)].into_iter().chain(port).collect()
    }

    fn excludes(&self, other: &Thing) -> bool {
        matches!(routed(other), Some(Routed::Ilm(other)) if other.title() == self.title())
    }

    /// For something else it is refused before (`Routing::reused`).
    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let stays = matches!(routed(to), Some(Routed::Ilm(to)) if to.router == self.router);
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let mut text = format!("[[ilm]]\nlabel = {}\n", self.label.get());
        for (key, word) in [
            ("from", self.from.as_ref()),
            ("router", Some(&self.router)),
            ("fec", self.fec.as_ref()),
        ] {
            text.extend(word.map(|word| format!("{key} = {}\n", quoted(word))));
        }
        text + &match &self.action {
            IlmAction::Pop => "pop = true\n".to_owned(),
            IlmAction::Forward(hop) => hop.text() + &backup::text(self.backup.as_ref()),
        }
    }
}

impl Resolver<'_> {
    /// The labels, each with where it was written.
    pub(super) fn ilms(
        &mut self,
        low: &LowArgs,
        (ports, links): (&Ports, &Links),
        routers: &Names,
    ) -> Vec<(IlmConfig, Span)> {
        low.ilms.iter().filter_map(|one| self.ilm(one, (ports, links), routers)).collect()
    }

    fn ilm(
        &mut self,
        low: &LowIlm,
        (ports, links): (&Ports, &Links),
        routers: &Names,
    ) -> Option<(IlmConfig, Span)> {
        const TITLE: &str = LowIlm::TITLE;
        if low.label.is_none() {
            self.missing(&low.span, TITLE, "label", "label = 200");
        }
        let label = self.label(&low.label, "label");
        let port = low.from.as_ref().map(|written| self.port(written, ports, links));
        let action = self.action(low, (ports, links));
        let primary =
            action.as_ref().and_then(|(action, by)| Some((action.hop()?, by.as_deref()?)));
        let backup = self.backup(low.backup.as_ref(), primary, (ports, links));
        if let Some(Err(expected)) = low.fec.as_ref().map(|fec| check_name(fec.get_ref())) {
            let written = low.fec.as_ref()?;
            self.error(
                written.span(),
                format!("fec: expected {expected}, seen {:?}", written.get_ref()),
            );
        }
        let from = match port {
            Some(port) => Some(port?),
            None => None,
        };
        let (action, by) = action?;
        // Its links say whose it is.
        let router = match (from.map(|port| &port.router), &by, &low.router) {
            (Some(router), _, None) | (None, Some(router), None) => Some(router.clone()),
            _ => self.router_of(&low.router, (&low.span, TITLE), routers),
        }?;
        for (link, other) in [(&low.from, from.map(|port| &port.router)), (&low.link, by.as_ref())]
        {
            if let (Some(link), Some(other)) = (link, other.filter(|other| **other != router)) {
                let what = [("this label", router.as_str()), (link.get_ref(), other.as_str())];
                self.across_routers(link.span(), what);
            }
        }
        let from = from.map(|port| port.link.clone());
        let fec = low.fec.as_ref().map(|fec| fec.get_ref().clone());
        let at = low.label.as_ref()?.span();
        let ilm = IlmConfig { router, label: label?, from, fec, action, backup: backup? };
        self.place(ilm.title(), "", at.clone());
        Some((ilm, at))
    }

    /// What is done with its packets, and by whose link they leave.
    fn action(
        &mut self,
        low: &LowIlm,
        (ports, links): (&Ports, &Links),
    ) -> Option<(IlmAction, Option<String>)> {
        let pops = low.pop.as_ref().filter(|pop| *pop.get_ref());
        let keys = [
            ("link", low.link.as_ref().map(Spanned::span)),
            ("next_hop", low.next_hop.as_ref().map(Spanned::span)),
            ("labels", low.labels.as_ref().map(Spanned::span)),
            ("backup", low.backup.as_ref().map(|backup| backup.span.clone())),
        ];
        let first = keys.into_iter().find_map(|(key, span)| Some((key, span?)));
        match (pops, first, &low.link) {
            (Some(pop), Some((key, span)), _) => {
                let message = format!("an [[ilm]] has either pop or {key}");
                let help = "pop = true where the tunnel ends here; to take the label off for the next router: labels = []";
                self.push(Mistake::error(span, message).help(help).also(&pop.span(), "and this"));
                None
            }
            (Some(_), None, _) => Some((IlmAction::Pop, None)),
            (None, _, Some(_)) => {
                let parts = (&low.link, &low.next_hop, &low.labels);
                let example = "labels = [201], or [] to take the label off for the next router";
                let (hop, router) =
                    self.hop(parts, (&low.span, "[[ilm]]", example), (ports, links))?;
                Some((IlmAction::Forward(hop), Some(router)))
            }
            (None, _, None) => {
                if !["pop", "link"].iter().any(|key| self.is_reported(&low.span, "[[ilm]]", key)) {
                    let message = "this [[ilm]] has neither pop nor link";
                    let help = "add pop = true where the tunnel ends here; else link, next_hop and labels of the next router";
                    self.push(Mistake::error(low.span.clone(), message).help(help));
                }
                None
            }
        }
    }
}

/// The labels of a configuration, by whose they are.
#[derive(Debug, Default)]
pub(super) struct Ilms<'a> {
    by_label: BTreeMap<(&'a str, Option<&'a str>, Label), &'a IlmConfig>,
    /// Whether none was wrong.
    are_all_known: bool,
}

impl<'a> Ilms<'a> {
    /// `written` of them were written.
    pub(super) fn new(ilms: &'a [(IlmConfig, Span)], written: usize) -> Self {
        let key = |one: &'a IlmConfig| (one.router.as_str(), one.from.as_deref(), one.label);
        // Of several with one label the first counts, and the others are mistakes.
        let by_label = ilms.iter().rev().map(|(one, _)| (key(one), one)).collect();
        Self { by_label, are_all_known: ilms.len() == written }
    }

    /// Whether a label that comes by a port is popped; `None`: it is nobody's there. One that may be
    /// that of a wrong table is.
    pub(super) fn pops(&self, port: &PortConfig, label: Label) -> Option<bool> {
        let of = |from| self.by_label.get(&(port.router.as_str(), from, label));
        match of(Some(port.link.as_str())).or_else(|| of(None)) {
            Some(found) => Some(found.action == IlmAction::Pop),
            None => (!self.are_all_known).then_some(true),
        }
    }
}

/// A label as it was written, whatever it is.
pub(super) fn written_label(low: &Low<i64>) -> Option<Label> {
    u32::try_from(*low.as_ref()?.get_ref()).ok().and_then(Label::new)
}
