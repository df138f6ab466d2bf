//! The namespaces of a configuration: `nvme` of an `[[export]]`.
//!
//! A host connects to a subsystem and then sees all of its namespaces (NVMe Base 2.0, 3.1.2), so
//! the exports of one subsystem must name the same hosts.

use ::nvme::limits::NAMESPACES_MAX;
use shard::Protocol;
use toml::Spanned;

use super::nqn::Nqn;
use crate::config::export::{HostWords, Hosts, LowExport};
use crate::config::file::{LowArgs, LowWords, NUMBER, table};
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::text::quoted;
use crate::config::thing::{Configured, Thing};
use crate::config::volume::volume_title;
use crate::protocols::{ExportConfig, need_listener};

pub(crate) const EXAMPLE: &str =
    "nvme = { subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = \"any\" }";

table! {
    LowNamespace = "nvme of [[export]]" {
        subsystem: String = "an NQN in quotes",
        nsid: i64 = NUMBER,
        hosts: LowWords = "\"any\" or a list of host NQNs",
    }
}

/// A volume as a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceConfig {
    /// The volume, which exists.
    pub(crate) volume: String,
    /// The subsystem; never the discovery subsystem.
    pub(crate) subsystem: Nqn,
    /// 1 to [`NAMESPACES_MAX`], unique in its subsystem.
    pub(crate) nsid: u32,
    /// Who may connect; the same for every export of a subsystem.
    pub(crate) hosts: Hosts<Nqn>,
}

impl Configured for NamespaceConfig {
    fn title(&self) -> String {
        format!("export {}: {} namespace {}", self.volume, self.subsystem, self.nsid)
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![("hosts", self.hosts.to_string())]
    }

    fn stands_on(&self) -> Vec<String> {
        vec![volume_title(&self.volume)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        let Thing::Export(ExportConfig::NvmeTcp(other)) = other else { return false };
        self.subsystem == other.subsystem
            && (self.nsid == other.nsid || self.volume == other.volume || self.hosts != other.hosts)
    }

    fn text(&self) -> String {
        let (volume, subsystem) = (quoted(&self.volume), quoted(self.subsystem.as_str()));
        let (nsid, hosts) = (self.nsid, self.hosts.text());
        format!(
            "[[export]]\nvolume = {volume}\nnvme = {{ subsystem = {subsystem}, nsid = {nsid}, hosts = {hosts} }}\n"
        )
    }
}

/// An export and where it was written.
struct Seen {
    export: NamespaceConfig,
    volume_at: Span,
    nsid_at: Span,
    hosts_at: Span,
}

const HOSTS: HostWords = HostWords {
    names: "host NQNs",
    key: "nvme",
    nobody: "no host may connect",
    host: "host",
    help: "name them as in their /etc/nvme/hostnqn: hosts = [\"nqn...\"], or hosts = \"any\" (as a flag: --hosts any)",
    is_one: super::is_nqn,
};

/// The namespaces, in order.
pub(crate) fn resolve(resolver: &mut Resolver<'_>, low: &LowArgs) -> Vec<NamespaceConfig> {
    let mut seen: Vec<Seen> = Vec::new();
    for one in &low.exports {
        if let Some(export) = resolver.namespace(one) {
            resolver.compare(&export, &seen);
            seen.push(export);
        }
    }
    need_listener(resolver, low, Protocol::NvmeTcp, |by| by.nvme.is_some());
    seen.into_iter().map(|one| one.export).collect()
}

impl Resolver<'_> {
    fn namespace(&mut self, low: &LowExport) -> Option<Seen> {
        let nvme = low.by.nvme.as_ref()?;
        let subsystem = self.subsystem(nvme);
        let nsid = self.number(&nvme.nsid, "nsid", 1..=u64::from(NAMESPACES_MAX));
        if nvme.nsid.is_none() {
            self.missing(&nvme.span, "nvme of [[export]]", "nsid", "nsid = 1");
        }
        let hosts = self.hosts(&nvme.hosts, &nvme.span, &HOSTS, Self::nqn);
        let volume = low.volume.as_ref()?;
        Some(Seen {
            export: NamespaceConfig {
                volume: volume.get_ref().clone(),
                subsystem: subsystem?,
                nsid: nsid?,
                hosts,
            },
            volume_at: volume.span(),
            nsid_at: nvme.nsid.as_ref().map_or(nvme.span.clone(), Spanned::span),
            hosts_at: nvme.hosts.as_ref().map_or(nvme.span.clone(), Spanned::span),
        })
    }

    fn subsystem(&mut self, low: &LowNamespace) -> Option<Nqn> {
        let Some(written) = &low.subsystem else {
            let example = "subsystem = \"nqn.2026-11.net.plateway:v0\"";
            self.missing(&low.span, "nvme of [[export]]", "subsystem", example);
            return None;
        };
        let nqn = self.nqn(written)?;
        if nqn.is_discovery() {
            let help = "every listener has it without being told; name a subsystem of your own";
            let message = "the discovery subsystem cannot hold an export";
            self.push(Mistake::error(written.span(), message).help(help));
            return None;
        }
        Some(nqn)
    }

    pub(in crate::protocols) fn nqn(&mut self, written: &Spanned<String>) -> Option<Nqn> {
        match written.get_ref().parse::<Nqn>() {
            Ok(nqn) => Some(nqn),
            Err(error) => {
                let span = self.within(written, error.offset..written.get_ref().len());
                self.error(span, error.message);
                None
            }
        }
    }

    /// Compares an export with those before it.
    fn compare(&mut self, new: &Seen, seen: &[Seen]) {
        let (export, at) = (&new.export, new.volume_at.clone());
        let family = || seen.iter().filter(|old| old.export.subsystem == export.subsystem);
        if let Some(old) = family().find(|old| old.export.nsid == export.nsid) {
            let message = format!("{} has a namespace {} already", export.subsystem, export.nsid);
            self.push(Mistake::error(new.nsid_at.clone(), message).first(&old.nsid_at));
        } else if let Some(old) = family().find(|old| old.export.volume == export.volume) {
            let message = format!("volume {} is in {} twice", export.volume, export.subsystem);
            let help = "hosts refuse two namespaces of one identity";
            self.push(Mistake::error(at, message).first(&old.volume_at).help(help));
        } else if let Some(old) = seen.iter().find(|old| old.export.volume == export.volume) {
            let message = format!("volume {} is in two subsystems", export.volume);
            let help = "a Linux host that connects to both refuses the second namespace";
            self.push(Mistake::warning(at, message).first(&old.volume_at).help(help));
        }
        if let Some(old) = family().find(|old| !same_hosts(&old.export.hosts, &export.hosts)) {
            let message = format!("the exports of {} name different hosts", export.subsystem);
            let help = "a host connects to a subsystem as a whole: repeat the same hosts, or use another subsystem";
            let mistake =
                Mistake::error(new.hosts_at.clone(), message).also(&old.hosts_at, "others here");
            self.push(mistake.help(help));
        }
    }
}

/// Whether two lists allow the same hosts, in whatever order.
fn same_hosts(a: &Hosts<Nqn>, b: &Hosts<Nqn>) -> bool {
    match (a, b) {
        (Hosts::Any, Hosts::Any) => true,
        (Hosts::List(a), Hosts::List(b)) => {
            a.len() == b.len() && a.iter().all(|nqn| b.contains(nqn))
        }
        _ => false,
    }
}
