//! Pseudowires that end in this process, and who is at their ends: exports, or disks that are reached
//! by one.
//!
//! One or the other: a frame that comes is a station's at the far end, and says nothing of whether it
//! is for a disk that is served here or from one that is used here. Also what of a configuration a
//! command needs that uses such a pseudowire in a process of its own. Errors point at the disk or the
//! export.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{LowPseudowire, LspConfig, NeighbourConfig, PseudowireConfig, Routing};
use crate::config::disk::DiskConfig;
use crate::config::file::LowArgs;
use crate::config::link::{Links, PSEUDOWIRE_PREFIX, pseudowire_link};
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::{Names, Resolver};
use crate::config::thing::Configured;

/// Who is on links.
pub(crate) struct Users<'a> {
    /// The titles of exports by AoE, by link.
    pub(crate) exports: BTreeMap<String, String>,
    /// Those behind pseudowires.
    pub(crate) disks: Vec<&'a DiskConfig>,
}

/// Notes which of these may be named as links.
pub(super) fn note(low: &LowArgs, names: &Names, links: &mut Links) {
    let written =
        |one: &LowPseudowire| Some((one.name.as_ref()?.get_ref().clone(), one.circuit.is_some()));
    let wired: BTreeMap<String, bool> = low.pseudowires.iter().filter_map(written).collect();
    for (name, span) in &names.list {
        let of_its_kind = match wired.get(name) {
            Some(true) => &mut links.wired,
            _ => &mut links.pseudowires,
        };
        of_its_kind.push(&pseudowire_link(name), span.clone());
    }
}

impl Resolver<'_> {
    /// A link that is named by a pseudowire which has a circuit.
    pub(in crate::protocols) fn ends_elsewhere(&mut self, at: Span, link: &str) {
        let name = link.strip_prefix(PSEUDOWIRE_PREFIX).unwrap_or(link);
        let message = format!("pseudowire {name} does not end in this process: it has a circuit");
        let help = "name one without a circuit, which both ends have for this alone";
        self.push(Mistake::error(at, message).help(help));
    }

    /// That disks are behind pseudowires which end here, and nobody else is at those ends; and that
    /// somebody is at each.
    pub(super) fn who_is_at_ends(&mut self, routing: &Routing, links: &Links, users: &Users<'_>) {
        let mut used: Vec<&str> = Vec::new();
        for disk in &users.disks {
            let Some(name) = disk.pseudowire() else { continue };
            let (link, at) = (pseudowire_link(name), self.place_of(&disk.title(), ""));
            used.push(name);
            if links.wired.has(&link) {
                self.ends_elsewhere(at, &link);
            } else if !links.pseudowires.has(&link) {
                let mut names = Names::default();
                for (link, span) in &links.pseudowires.list {
                    let name = link.strip_prefix(PSEUDOWIRE_PREFIX).unwrap_or(link);
                    names.push(name, span.clone());
                }
                self.unknown_name(&Spanned::new(at, name.to_owned()), "pseudowire", &names);
            } else if let Some(export) = users.exports.get(&link) {
                let message = format!(
                    "disk {} is behind pseudowire {name}, and {export} is on it: which of them a frame is for, nothing says",
                    disk.name
                );
                let first = self.place_of(export, "");
                let help = "have a pseudowire for each";
                self.push(Mistake::error(at, message).first(&first).help(help));
            }
        }
        for one in routing.ends() {
            let link = pseudowire_link(&one.name);
            if users.exports.contains_key(&link) || used.contains(&one.name.as_str()) {
                continue;
            }
            let span = self.place_of(&one.title(), "");
            let message = format!(
                "pseudowire {} ends here, and neither an export nor a disk is on it",
                one.name
            );
            let help = format!(
                "add [[export]] aoe = {{ link = {link:?}, ... }}, or [[disk]] uri = \"aoe://{link}/7.0\", or circuit = the name of a [[circuit]]"
            );
            self.push(Mistake::warning(span, message).help(help));
        }
    }
}

impl Routing {
    /// Those that end in this process.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &PseudowireConfig> {
        self.pseudowires.iter().filter(|one| one.circuit.is_none())
    }

    /// What these pseudowires need, which end in this process, and nothing else: no circuit, which
    /// would take a customer's interface, and no label that goes on elsewhere. `None` of one that is
    /// not there.
    pub(crate) fn of_ends(&self, names: &[&str]) -> Option<Routing> {
        let find = |name: &&str| self.ends().find(|one| one.name == *name).cloned();
        let pseudowires = names.iter().map(find).collect::<Option<Vec<_>>>()?;
        let by = |lsp: &str| {
            pseudowires.iter().any(|one| one.lsp == lsp || one.backup.as_deref() == Some(lsp))
        };
        let lsps: Vec<_> = self.lsps.iter().filter(|one| by(&one.name)).cloned().collect();
        let out = lsps.iter().flat_map(LspConfig::hops).map(|hop| hop.link.as_str());
        let back = pseudowires.iter().flat_map(|one| &one.from).map(|way| way.link.as_str());
        let ports: Vec<&str> = out.chain(back).collect();
        let ports = |link: &str| ports.contains(&link);
        // By its session a backup is taken; who it is only the kernel may know.
        let is_watched = |one: &NeighbourConfig| {
            let mut with_backup = lsps.iter().filter(|lsp| lsp.backup.is_some());
            with_backup.any(|lsp| one.is_of(&lsp.hop).unwrap_or(true))
        };
        let ways = || pseudowires.iter().flat_map(|one| &one.from);
        let of = |router: &str| pseudowires.iter().any(|one| one.router == router);
        Some(Routing {
            routers: self.routers.iter().filter(|one| of(&one.name)).cloned().collect(),
            ports: self.ports.iter().filter(|one| ports(&one.link)).cloned().collect(),
            circuits: Vec::new(),
            ilms: self
                .ilms
                .iter()
                .filter(|one| of(&one.router) && one.action.hop().is_none())
                .filter(|one| ways().any(|way| way.tunnel == Some(one.label)))
                .cloned()
                .collect(),
            tunnels: Vec::new(),
            neighbours: self.neighbours.iter().filter(|one| is_watched(one)).cloned().collect(),
            lsps,
            pseudowires,
        })
    }
}

#[cfg(test)]
mod tests;
