//! `[[host]]`: a machine that comes by several protocols, named once.
//!
//! Exports may name it in their `hosts`, where its name stands for all that it is called in their
//! protocol's words; to reservations it is one registrant, whatever it comes by; and it may have a
//! secret of its own. In: what was written. Out: its identities, which no two hosts share. Not here:
//! who may use what (`config/export`).

use std::collections::BTreeMap;
use std::fmt::Display;

use reservation::{Applicant, Registrant};
use sha2::{Digest as _, Sha256};
use shard::NamedHosts;
use toml::Spanned;
use wire::ethernet::MacAddress;
use wire::iscsi::IscsiName;

use super::iscsi::chap::{self, ChapConfig, LowChap};
use super::iscsi::secret::SecretSource;
use super::nvme_tcp::nqn::Nqn;
use super::{ExportConfig, Secrets};
use crate::config::file::{Low, LowArgs, LowWords, NAME, TableReader, Written};
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::text::{list, quoted};
use crate::config::thing::{Configured, Thing};

/// `[[host]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowHost {
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) nvme: Low<LowWords>,
    pub(crate) iscsi: Low<LowWords>,
    pub(crate) aoe: Low<LowWords>,
    pub(crate) iscsi_chap: Option<LowChap>,
}

impl Written for LowHost {
    const TITLE: &'static str = "[[host]]";
    const KEYS: &'static [&'static str] = &["name", "nvme", "iscsi", "aoe", "iscsi_chap"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            nvme: table.take("nvme", "a host NQN or a list of them"),
            iscsi: table.take("iscsi", "an initiator name or a list of them"),
            aoe: table.take("aoe", "a MAC address or a list of them"),
            iscsi_chap: table.table("iscsi_chap"),
        }
    }
}

/// A host that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostConfig {
    pub(crate) name: String,
    /// What it is called in the words of each protocol; not all three are empty.
    pub(crate) nvme: Vec<Nqn>,
    pub(crate) iscsi: Vec<IscsiName>,
    pub(crate) aoe: Vec<MacAddress>,
    /// How it proves to every target who it is; `None`: as the target wants it.
    pub(crate) chap: Option<ChapConfig>,
}

impl HostConfig {
    /// What it is called, by the key of the protocol.
    pub(crate) fn identities(&self) -> [(&'static str, Vec<String>); 3] {
        fn texts(names: &[impl Display]) -> Vec<String> {
            names.iter().map(ToString::to_string).collect()
        }
        [("nvme", texts(&self.nvme)), ("iscsi", texts(&self.iscsi)), ("aoe", texts(&self.aoe))]
    }

    /// What it is called, whatever the protocol.
    pub(crate) fn called_at_all(&self) -> Vec<String> {
        self.identities().map(|(_, names)| names).concat()
    }

    /// What it is called in the words of one.
    pub(crate) fn called(&self, key: &str) -> Vec<String> {
        let found = self.identities().into_iter().find(|(other, _)| *other == key);
        found.map_or_else(Vec::new, |(_, names)| names)
    }

    /// What reservations know it as: a digest of its name, since names have no fixed length.
    pub(crate) fn applicant(&self) -> Applicant {
        let digest = Sha256::new().chain_update(b"plateway [[host]] ").chain_update(&self.name);
        let id = *digest.finalize().first_chunk().expect("16 of 32 bytes");
        Applicant { id: Registrant::Host(id), name: Some(self.name.as_str().into()) }
    }
}

/// All of them, as shards are told.
pub(crate) fn named<'a>(
    hosts: impl Iterator<Item = &'a HostConfig>,
    secrets: &Secrets,
) -> NamedHosts {
    let mut all = NamedHosts::default();
    for host in hosts {
        let who = host.applicant();
        host.nvme.iter().for_each(|nqn| all.named.add_nvme(nqn.as_str(), &who));
        host.iscsi.iter().for_each(|name| all.named.add_iscsi(name.as_str(), &who));
        host.aoe.iter().for_each(|mac| all.named.add_station(mac.0, &who));
        if let Some(chap) = &host.chap {
            let required = secrets.required(chap);
            let proofs = host.iscsi.iter().map(|name| (name.clone(), required.clone()));
            all.proofs.extend(proofs);
        }
    }
    all
}

/// What the title of every host begins with.
const TITLE: &str = "host ";

impl Configured for HostConfig {
    fn title(&self) -> String {
        format!("{TITLE}{}", self.name)
    }

    fn details(&self) -> String {
        format!(": {}", self.called_at_all().join(", "))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let shown = |names: Vec<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let mut values = self.identities().map(|(key, names)| (key, shown(names))).to_vec();
        values.push(("iscsi_chap", chap::shown(self.chap.as_ref())));
        values
    }

    fn proof(&self) -> Option<&ChapConfig> {
        self.chap.as_ref()
    }

    fn excludes(&self, other: &Thing) -> bool {
        let Thing::Host(other) = other else { return false };
        let theirs = other.called_at_all();
        self.called_at_all().iter().any(|name| theirs.contains(name))
    }

    fn text(&self) -> String {
        let mut text = format!("[[host]]\nname = {}\n", quoted(&self.name));
        for (key, names) in self.identities().iter().filter(|(_, names)| !names.is_empty()) {
            text += &format!("{key} = {}\n", list(names));
        }
        let chap = self.chap.as_ref().map(|chap| format!("iscsi_chap = {}\n", chap.text()));
        text + &chap.unwrap_or_default()
    }
}

/// How identities begin that could be taken for names.
const IDENTITIES: [&str; 4] = ["nqn.", "iqn.", "eui.", "naa."];

impl Resolver<'_> {
    /// The hosts that have names, in order.
    pub(crate) fn named_hosts(&mut self, low: &LowArgs) -> Vec<HostConfig> {
        let names = low.hosts.iter().map(|host| (&host.name, &host.span));
        self.host_names = self.names("host", names);
        let mut taken: Vec<(String, Span)> = Vec::new();
        let read = low.hosts.iter().map(|host| self.named_host(host, &mut taken));
        read.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    /// A host's own secret is to be known to nobody else: neither to another host nor to those who
    /// log in to a target.
    pub(crate) fn warn_of_shared_secrets(
        &mut self,
        hosts: &[HostConfig],
        exports: &[ExportConfig],
    ) {
        let mut known: BTreeMap<&SecretSource, String> = BTreeMap::new();
        for export in exports {
            for user in export.proof().into_iter().flat_map(ChapConfig::users) {
                known.entry(&user.secret).or_insert_with(|| export.title());
            }
        }
        for host in hosts {
            let Some(own) = host.proof() else { continue };
            if let Some(other) = known.get(&own.user.secret) {
                let (secret, title) = (&own.user.secret, host.title());
                let message = format!("iscsi_chap of {title} has {secret}, as {other} has");
                let help = "whoever knows that secret could come as either: give each its own";
                let span = self.place_of(&title, "chap");
                self.push(Mistake::warning(span, message).help(help));
            }
            for user in own.users() {
                known.entry(&user.secret).or_insert_with(|| host.title());
            }
        }
    }

    fn named_host(&mut self, low: &LowHost, taken: &mut Vec<(String, Span)>) -> Option<HostConfig> {
        let nvme = self.identities(&low.nvme, "nvme", taken, Self::nqn);
        let iscsi = self.identities(&low.iscsi, "iscsi", taken, Self::iscsi_name);
        let aoe = self.identities(&low.aoe, "aoe", taken, Self::station);
        if low.nvme.is_none() && low.iscsi.is_none() && low.aoe.is_none() {
            let is_reported = |key: &&str| self.is_reported(&low.span, LowHost::TITLE, key);
            if !["nvme", "iscsi", "aoe"].iter().any(is_reported) {
                let message = "this [[host]] has neither nvme nor iscsi nor aoe";
                let help = "say what it is called: nvme = \"nqn...\", iscsi = \"iqn...\", aoe = \"02:00:00:00:00:01\"";
                self.push(Mistake::error(low.span.clone(), message).help(help));
            }
        }
        // One that is wrong must not be taken for none.
        let chap = low.iscsi_chap.as_ref().map(|chap| self.chap(chap));
        if let (Some(chap), None) = (&low.iscsi_chap, &low.iscsi)
            && !self.is_reported(&low.span, LowHost::TITLE, "iscsi")
        {
            let message =
                "iscsi_chap is for a host that has iscsi: expected an initiator name, seen none";
            let help = "add iscsi = \"iqn...\", as in its /etc/iscsi/initiatorname.iscsi";
            self.push(Mistake::error(chap.span.clone(), message).help(help));
        }
        let written = low.name.as_ref()?;
        let name = written.get_ref().clone();
        if name == "any" || IDENTITIES.iter().any(|head| name.starts_with(head)) {
            let message = format!(
                "name of [[host]]: expected a name that is no identity and not any, seen {name:?}"
            );
            let help =
                "a name of your own, such as web1; nvme, iscsi and aoe say what it is called";
            self.push(Mistake::error(written.span(), message).help(help));
        }
        let chap = match chap {
            Some(chap) => Some(chap?),
            None => None,
        };
        let host = HostConfig { name, nvme, iscsi, aoe, chap };
        self.place(host.title(), "", written.span());
        if let Some(chap) = &low.iscsi_chap {
            self.place(host.title(), "chap", chap.span.clone());
        }
        Some(host)
    }

    /// One identity or a list of them, each of which no host before has; `taken` are theirs.
    fn identities<T: PartialEq + Display>(
        &mut self,
        low: &Low<LowWords>,
        key: &str,
        taken: &mut Vec<(String, Span)>,
        read: impl FnMut(&mut Self, &Spanned<String>) -> Option<T>,
    ) -> Vec<T> {
        let Some(written) = low else { return Vec::new() };
        let words = match written.get_ref() {
            LowWords::Word(word) => &[Spanned::new(written.span(), word.clone())][..],
            LowWords::List(words) => words,
        };
        if words.is_empty() {
            let message = format!("{key} is empty: expected what the host is called there");
            let help = format!("leave {key} out where it does not come by that protocol");
            self.push(Mistake::error(written.span(), message).help(help));
        }
        let mut read = read;
        let mut mine: Vec<(String, Span)> = Vec::new();
        let names = self.each_once(words, "identity", |resolver, word| {
            let one = read(resolver, word)?;
            let text = one.to_string();
            match taken.iter().find(|(other, _)| *other == text) {
                Some((_, first)) => {
                    let message = format!("{text} is another host's already");
                    let help = "whoever comes by it can be one host alone";
                    let mistake = Mistake::error(word.span(), message).first(first);
                    resolver.push(mistake.help(help));
                }
                None => mine.push((text, word.span())),
            }
            Some(one)
        });
        taken.extend(mine);
        names.unwrap_or_default()
    }
}
