//! `[[listener]]` and `[[export]]`: addresses, subsystems, namespaces, hosts.
//!
//! A host connects to a subsystem and then sees all of its namespaces (NVMe Base 2.0, 3.1.2), so the
//! exports of one subsystem must name the same hosts. Nobody may connect unless `hosts` says so.

use std::collections::BTreeSet;

use toml::Spanned;

use super::super::address::HostPort;
use super::super::file::{Low, LowExport, LowListener, LowNvmeExport, LowWords};
use super::super::mistake::{Mistake, Span};
use super::super::model::{Export, Hosts, Link, Listener, NSID_MAX, POLL_US_MAX};
use super::super::nqn::Nqn;
use super::{Names, Resolver};

/// An export and where it was written.
struct Seen {
    export: Export,
    volume_at: Span,
    nsid_at: Span,
    hosts_at: Span,
}

/// What is said of those who may use an export.
pub(super) struct HostWords {
    /// Their names, as a list of them is called.
    pub(super) names: &'static str,
    /// That there are none.
    pub(super) nobody: &'static str,
    /// One of them.
    pub(super) host: &'static str,
    /// How they are named.
    pub(super) help: &'static str,
    /// Whether a word is meant as one of them.
    pub(super) is_one: fn(&str) -> bool,
}

/// Of hosts.
const HOSTS: HostWords = HostWords {
    names: "host NQNs",
    nobody: "no host may connect",
    host: "host",
    help: "name them as in their /etc/nvme/hostnqn: hosts = [\"nqn...\"], or hosts = \"any\" (as a flag: --hosts any)",
    is_one: |word| word.starts_with("nqn."),
};

impl Resolver<'_> {
    /// Where NVMe/TCP is answered, and where AoE.
    pub(super) fn listeners(
        &mut self,
        low: &[LowListener],
        connections_max: u32,
    ) -> (Vec<Listener>, Vec<(Link, Span)>) {
        let mut listeners: Vec<(Listener, Span)> = Vec::new();
        let mut links: Vec<(Link, Span)> = Vec::new();
        for one in low {
            if let Some(aoe) = &one.aoe {
                if let Some(nvme) = &one.nvme {
                    let message = "a listener has either nvme or aoe";
                    let help = "write a [[listener]] for each".to_owned();
                    let mistake = Mistake::error(aoe.span(), message).help(help);
                    self.push(mistake.also(nvme.span(), "and this"));
                }
                self.link(one, &mut links);
                continue;
            }
            for (key, span) in [
                ("link", one.link.as_ref().map(Spanned::span)),
                ("vlan", one.vlan.as_ref().map(Spanned::span)),
            ] {
                let Some(span) = span.filter(|_| one.nvme.is_some()) else { continue };
                let message = format!("{key} is for listeners of AoE, and this one is nvme");
                self.push(Mistake::error(span, message).help("aoe = \"eth1\"".to_owned()));
            }
            let poll_us =
                self.number(&one.poll_us, "poll_us", 0..=u64::from(POLL_US_MAX)).unwrap_or(0);
            let limit = 1..=u64::from(connections_max);
            let connections = self
                .number(&one.max_connections, "max_connections", limit)
                .unwrap_or(connections_max);
            let Some(written) = &one.nvme else {
                if !self.is_reported(&one.span, "[[listener]]", "aoe") {
                    let example = "nvme = \"127.0.0.1:4420\", or aoe = \"eth1\"";
                    self.missing(&one.span, "[[listener]]", "nvme", example);
                }
                continue;
            };
            let address: HostPort = match written.get_ref().parse() {
                Ok(address) => address,
                Err(error) => {
                    let error: super::super::address::AddressError = error;
                    let span = self.within(written, error.offset..written.get_ref().len());
                    self.error(span, error.message);
                    continue;
                }
            };
            if let Some((other, first)) =
                listeners.iter().find(|(other, _)| other.address.overlaps(&address))
            {
                let message = if other.address == address {
                    format!("two listeners on {address}")
                } else {
                    format!(
                        "listeners {} and {address} overlap: both answer on TCP port {}",
                        other.address, address.tcp_port
                    )
                };
                let first = first.clone();
                self.push(Mistake::error(written.span(), message).also(first, "first here"));
            }
            listeners.push((
                Listener { address, poll_us, connections_max: connections },
                written.span(),
            ));
        }
        (listeners.into_iter().map(|(listener, _)| listener).collect(), links)
    }

    pub(super) fn exports(&mut self, low: &[LowExport], volume_names: &Names) -> Vec<Export> {
        let mut seen: Vec<Seen> = Vec::new();
        for one in low {
            if let Some(export) = self.export(one, volume_names) {
                self.compare(&export, &seen);
                seen.push(export);
            }
        }
        let exported: BTreeSet<&String> =
            low.iter().filter_map(|one| Some(one.volume.as_ref()?.get_ref())).collect();
        for (name, span) in &volume_names.list {
            if !exported.contains(name) && !low.is_empty() {
                self.push(Mistake::warning(span.clone(), format!("volume {name} is in no export")));
            }
        }
        seen.into_iter().map(|one| one.export).collect()
    }

    fn export(&mut self, low: &LowExport, volume_names: &Names) -> Option<Seen> {
        match &low.volume {
            None => self.missing(&low.span, "[[export]]", "volume", "volume = \"v0\""),
            Some(written) => {
                if !volume_names.has(written.get_ref()) {
                    self.unknown_name(written, "volume", volume_names);
                }
            }
        }
        let Some(nvme) = &low.nvme else {
            // What is wrong with the other one is said where it is.
            if low.aoe.is_none() && !self.is_reported(&low.span, "aoe of [[export]]", "") {
                let example = "nvme = { subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = \"any\" }, \
                     or aoe = { interface = \"eth1\", shelf = 7, slot = 0, hosts = \"any\" }";
                self.missing(&low.span, "[[export]]", "nvme", example);
            }
            return None;
        };
        let subsystem = self.subsystem(nvme);
        let nsid = self.number(&nvme.nsid, "nsid", 1..=u64::from(NSID_MAX));
        if nvme.nsid.is_none() {
            self.missing(&nvme.span, "nvme of [[export]]", "nsid", "nsid = 1");
        }
        let hosts = self.hosts(&nvme.hosts, &nvme.span, &HOSTS, Self::nqn);
        let volume = low.volume.as_ref()?;
        Some(Seen {
            export: Export {
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

    fn subsystem(&mut self, low: &LowNvmeExport) -> Option<Nqn> {
        let Some(written) = &low.subsystem else {
            let example = "subsystem = \"nqn.2026-11.net.plateway:v0\"";
            self.missing(&low.span, "nvme of [[export]]", "subsystem", example);
            return None;
        };
        let nqn = self.nqn(written)?;
        if nqn.is_discovery() {
            let help =
                "every listener has it without being told; name a subsystem of your own".to_owned();
            let message = "the discovery subsystem cannot hold an export";
            self.push(Mistake::error(written.span(), message).help(help));
            return None;
        }
        Some(nqn)
    }

    fn nqn(&mut self, written: &Spanned<String>) -> Option<Nqn> {
        match written.get_ref().parse::<Nqn>() {
            Ok(nqn) => Some(nqn),
            Err(error) => {
                let span = self.within(written, error.offset..written.get_ref().len());
                self.error(span, error.message);
                None
            }
        }
    }

    /// Who may use an export of the table at `table`; `name` reads one of a list.
    pub(super) fn hosts<T: PartialEq + std::fmt::Display>(
        &mut self,
        low: &Low<LowWords>,
        table: &Span,
        words: &HostWords,
        name: impl Fn(&mut Self, &Spanned<String>) -> Option<T>,
    ) -> Hosts<T> {
        let HostWords { names, nobody, host, help: usual, is_one } = words;
        let Some(written) = low else {
            let wrong_type = |mistake: &Mistake| {
                mistake.message.starts_with("hosts of ") && table.contains(&mistake.span.start)
            };
            if !self.mistakes.iter().any(wrong_type) {
                let message = format!("{nobody}: this export names none");
                self.push(Mistake::warning(table.clone(), message).help((*usual).to_owned()));
            }
            return Hosts::List(Vec::new());
        };
        let list = match written.get_ref() {
            LowWords::Word(word) if word == "any" => return Hosts::Any,
            LowWords::Word(word) => {
                let help = if is_one(word) {
                    format!("one {host} is a list too: hosts = [{word:?}]")
                } else {
                    format!("every {host} is hosts = \"any\"")
                };
                let message =
                    format!("hosts: expected \"any\" or a list of {names}, seen {word:?}");
                self.push(Mistake::error(written.span(), message).help(help));
                return Hosts::Any;
            }
            LowWords::List(list) => list,
        };
        if list.is_empty() {
            let message = format!("{nobody}: the list is empty");
            self.push(Mistake::warning(written.span(), message).help((*usual).to_owned()));
        }
        let mut hosts: Vec<(T, Span)> = Vec::new();
        for one in list {
            if one.get_ref() == "any" {
                let help = "write hosts = \"any\", without the list".to_owned();
                let message = format!("hosts: \"any\" is not the name of a {host}");
                self.push(Mistake::error(one.span(), message).help(help));
                continue;
            }
            let Some(read) = name(self, one) else { continue };
            match hosts.iter().find(|(other, _)| *other == read) {
                Some((_, first)) => {
                    let first = first.clone();
                    self.push(
                        Mistake::warning(one.span(), format!("{host} {read} is named twice"))
                            .also(first, "first here"),
                    );
                }
                None => hosts.push((read, one.span())),
            }
        }
        Hosts::List(hosts.into_iter().map(|(read, _)| read).collect())
    }

    /// Compares an export with those before it.
    fn compare(&mut self, new: &Seen, seen: &[Seen]) {
        let (export, at) = (&new.export, new.volume_at.clone());
        let family = || seen.iter().filter(|old| old.export.subsystem == export.subsystem);
        if let Some(old) = family().find(|old| old.export.nsid == export.nsid) {
            let message = format!("{} has a namespace {} already", export.subsystem, export.nsid);
            self.push(
                Mistake::error(new.nsid_at.clone(), message)
                    .also(old.nsid_at.clone(), "first here"),
            );
        } else if let Some(old) = family().find(|old| old.export.volume == export.volume) {
            let message = format!("volume {} is in {} twice", export.volume, export.subsystem);
            let help = "hosts refuse two namespaces of one identity".to_owned();
            self.push(
                Mistake::error(at, message).also(old.volume_at.clone(), "first here").help(help),
            );
        } else if let Some(old) = seen.iter().find(|old| old.export.volume == export.volume) {
            let message = format!("volume {} is in two subsystems", export.volume);
            let help = "a Linux host that connects to both refuses the second namespace".to_owned();
            self.push(
                Mistake::warning(at, message).also(old.volume_at.clone(), "first here").help(help),
            );
        }
        if let Some(old) = family().find(|old| !same_hosts(&old.export.hosts, &export.hosts)) {
            let message = format!("the exports of {} name different hosts", export.subsystem);
            let help = "a host connects to a subsystem as a whole: repeat the same hosts, or use another subsystem";
            let mistake = Mistake::error(new.hosts_at.clone(), message)
                .also(old.hosts_at.clone(), "others here");
            self.push(mistake.help(help.to_owned()));
        }
    }
}

/// Whether two lists allow the same hosts, in whatever order.
fn same_hosts(a: &Hosts, b: &Hosts) -> bool {
    match (a, b) {
        (Hosts::Any, Hosts::Any) => true,
        (Hosts::List(a), Hosts::List(b)) => {
            a.len() == b.len() && a.iter().all(|nqn| b.contains(nqn))
        }
        _ => false,
    }
}
