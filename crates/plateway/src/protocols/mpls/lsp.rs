//! `[[lsp]]`: a label switched path that begins here, by the next router and the labels that it
//! wants on top.
//!
//! It is what the standards call an NHLFE, with a name. Another next router or other labels take its
//! place while frames go by it. Units: bytes behind the Ethernet header.

use std::ops::RangeInclusive;

use toml::Spanned;

use super::backup::{self, LowBackup};
use super::port::Ports;
use super::router::router_title;
use super::words::{Hop, LABELS, LINK, NEXT_HOP, shown};
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs, NAME, NUMBER, TableReader, Written};
use crate::config::link::Links;
use crate::config::mistake::Span;
use crate::config::plan::Refused;
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};

/// Link, next hop and labels as written.
pub(super) type LowHop<'a> = (&'a Low<String>, &'a Low<String>, &'a Low<Vec<Spanned<i64>>>);

/// What Ethernet carries at least, up to the largest number of bytes that a packet of IP can have.
const MTUS: RangeInclusive<u64> = 46..=65_535;

/// `[[lsp]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowLsp {
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) link: Low<String>,
    pub(crate) next_hop: Low<String>,
    pub(crate) labels: Low<Vec<Spanned<i64>>>,
    pub(crate) backup: Option<LowBackup>,
    pub(crate) mtu: Low<i64>,
}

impl Written for LowLsp {
    const TITLE: &'static str = "[[lsp]]";
    const KEYS: &'static [&'static str] = &["name", "link", "next_hop", "labels", "backup", "mtu"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            link: table.take("link", LINK),
            next_hop: table.take("next_hop", NEXT_HOP),
            labels: table.take("labels", LABELS),
            backup: table.table("backup"),
            mtu: table.take("mtu", NUMBER),
        }
    }
}

/// `[[lsp]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LspConfig {
    pub(crate) name: String,
    /// That of its link.
    pub(crate) router: String,
    pub(crate) hop: Hop,
    /// What its packets take while that fails.
    pub(crate) backup: Option<Hop>,
    /// What the narrowest link of the path takes; `None`: what its own link takes.
    pub(crate) mtu: Option<u32>,
}

impl LspConfig {
    /// Where its packets may go.
    pub(crate) fn hops(&self) -> impl Iterator<Item = &Hop> {
        std::iter::once(&self.hop).chain(&self.backup)
    }
}

pub(super) fn lsp_title(name: &str) -> String {
    format!("lsp {name}")
}

impl Configured for LspConfig {
    fn title(&self) -> String {
        lsp_title(&self.name)
    }

    fn details(&self) -> String {
        format!(": labels {}, {}", shown(&self.hop.labels), self.hop.where_to())
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let mtu = self.mtu.map_or_else(|| "the link's".to_owned(), |mtu| mtu.to_string());
        let more = [backup::value(self.backup.as_ref()), ("mtu", mtu)];
        self.hop.values().into_iter().chain(more).collect()
    }

    fn stands_on(&self) -> Vec<String> {
        vec![router_title(&self.router)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        matches!(routed(other), Some(Routed::Lsp(other)) if other.name == self.name)
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let stays = matches!(routed(to), Some(Routed::Lsp(to)) if to.router == self.router);
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let mtu = self.mtu.map(|mtu| format!("mtu = {mtu}\n")).unwrap_or_default();
        let (hop, backup) = (self.hop.text(), backup::text(self.backup.as_ref()));
        format!("[[lsp]]\nname = {}\n{hop}{backup}{mtu}", quoted(&self.name))
    }
}

impl Resolver<'_> {
    /// The paths, and the names of all, those of wrong ones too.
    pub(super) fn lsps(
        &mut self,
        low: &LowArgs,
        ports: &Ports,
        links: &Links,
    ) -> (Vec<(LspConfig, Span)>, Names) {
        let names = self.names("lsp", low.lsps.iter().map(|one| (&one.name, &one.span)));
        let mut lsps = Vec::new();
        for one in &low.lsps {
            if one.link.is_none() {
                self.missing(&one.span, "[[lsp]]", "link", "link = \"eth1\"");
            }
            let hop = self.hop(
                (&one.link, &one.next_hop, &one.labels),
                (
                    &one.span,
                    "[[lsp]]",
                    "labels = [100], or [] where the next router is the last one",
                ),
                (ports, links),
            );
            let mtu = self.number(&one.mtu, "mtu", MTUS);
            let primary = hop.as_ref().map(|(hop, router)| (hop, router.as_str()));
            let backup = self.backup(one.backup.as_ref(), primary, (ports, links));
            let (Some(name), Some((hop, router)), Some(backup)) = (&one.name, hop, backup) else {
                continue;
            };
            let lsp = LspConfig { name: name.get_ref().clone(), router, hop, backup, mtu };
            self.place(lsp.title(), "", name.span());
            lsps.push((lsp, name.span()));
        }
        (lsps, names)
    }

    /// The next router of what the table at `table` says, and whose link leads there.
    pub(super) fn hop(
        &mut self,
        (link, next_hop, labels): LowHop<'_>,
        (table, title, example): (&Span, &str, &str),
        (ports, links): (&Ports, &Links),
    ) -> Option<(Hop, String)> {
        let is_in_udp = link.as_ref().is_some_and(|link| links.in_udp.has(link.get_ref()));
        if next_hop.is_none() && !is_in_udp {
            self.missing(table, title, "next_hop", "next_hop = \"02:00:00:00:00:02\"");
        }
        if labels.is_none() {
            self.missing(table, title, "labels", example);
        }
        let port = link.as_ref().and_then(|written| self.port(written, ports, links));
        let next_hop = match (next_hop, port.and_then(|port| port.udp)) {
            (Some(written), Some(way)) => {
                self.refuse_next_hop(written, &way);
                None
            }
            (Some(written), None) => self.via(written, link, links).map(Some),
            (None, _) => is_in_udp.then_some(None),
        };
        let labels = labels.as_ref().and_then(|written| self.labels(written));
        let (link, router) = port.map(|port| (port.link.clone(), port.router.clone()))?;
        Some((Hop { link, next_hop: next_hop?, labels: labels? }, router))
    }
}
