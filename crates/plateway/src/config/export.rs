//! `[[export]]`: a volume, and for each protocol how it shows it and to whom.
//!
//! Nobody may use an export unless `hosts` says so. Here: what all protocols share; the keys of
//! each, and what they mean, are in its room below `protocols`.

use std::collections::BTreeSet;
use std::fmt;

use toml::Spanned;

use super::file::{Low, LowArgs, LowWords, TableReader, Written};
use super::link::Links;
use super::mistake::{Mistake, Span};
use super::resolve::{Names, Resolver};
use super::text::list;
use super::uri::check_name;
use super::volume::VolumeConfig;
use crate::protocols::{self, EXPORT_EXAMPLES, EXPORT_KEYS, ExportConfig, LowExports};

/// `[[export]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowExport {
    pub(crate) span: Span,
    pub(crate) volume: Low<String>,
    pub(crate) by: LowExports,
}

impl Written for LowExport {
    const TITLE: &'static str = "[[export]]";
    const KEYS: &'static [&'static str] = EXPORT_KEYS;

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            volume: table.take("volume", "the name of a volume in quotes"),
            by: LowExports::read(table),
        }
    }
}

/// Who may use an export: hosts are NQNs to a subsystem and IQNs to a LUN, stations are MAC
/// addresses to AoE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hosts<T> {
    /// Every host: it must have been written.
    Any,
    /// These hosts; nobody where empty.
    List(Vec<T>),
}

impl<T: PartialEq> Hosts<T> {
    /// Whether this host may use it.
    pub(crate) fn allow(&self, host: &T) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::List(list) => list.contains(host),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Hosts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hosts::Any => f.write_str("any"),
            Hosts::List(list) if list.is_empty() => f.write_str("none"),
            Hosts::List(list) => {
                let names: Vec<String> = list.iter().map(T::to_string).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}

impl<T: fmt::Display + PartialEq + Clone> Hosts<T> {
    /// The same, where this host may use it or may not.
    pub(crate) fn with(&self, host: T, may: bool) -> Result<Self, String> {
        let Hosts::List(list) = self else {
            return Err(
                "any host may use it already: to choose hosts, name them in the configuration (hosts = [...]), then: plateway apply FILE".to_owned()
            );
        };
        let mut list = list.clone();
        let at = list.iter().position(|one| *one == host);
        match (at, may) {
            (None, true) => list.push(host),
            (Some(_), true) => {}
            (Some(at), false) => drop(list.remove(at)),
            (None, false) => {
                return Err(format!("{host} is not among the hosts, which are: {self}"));
            }
        }
        Ok(Hosts::List(list))
    }
}

impl<T: fmt::Display> Hosts<T> {
    /// As a file has them.
    pub(crate) fn text(&self) -> String {
        match self {
            Hosts::Any => "\"any\"".to_owned(),
            Hosts::List(hosts) => list(hosts),
        }
    }
}

/// What is said of those who may use an export.
pub(crate) struct HostWords {
    /// The key of their protocol.
    pub(crate) key: &'static str,
    /// Their names, as a list of them is called.
    pub(crate) names: &'static str,
    /// That there are none.
    pub(crate) nobody: &'static str,
    /// One of them.
    pub(crate) host: &'static str,
    /// How they are named.
    pub(crate) help: &'static str,
    /// Whether a word is meant as one of them.
    pub(crate) is_one: fn(&str) -> bool,
}

impl Resolver<'_> {
    pub(super) fn exports(
        &mut self,
        low: &LowArgs,
        volume_names: &Names,
        volumes: &[VolumeConfig],
        links: &mut Links,
    ) -> Vec<ExportConfig> {
        for one in &low.exports {
            match &one.volume {
                None => self.missing(&one.span, "[[export]]", "volume", "volume = \"v0\""),
                Some(written) if !volume_names.has(written.get_ref()) => {
                    self.unknown_name(written, "volume", volume_names);
                }
                Some(_) => {}
            }
            // What is wrong with one that is there is said where it is.
            let keys = &EXPORT_KEYS[1..];
            let is_reported = |key: &&str| self.is_reported(&one.span, "[[export]]", key);
            if one.by.is_empty() && !keys.iter().any(is_reported) {
                self.missing(&one.span, "[[export]]", keys[0], &EXPORT_EXAMPLES.join(", or "));
            }
        }
        let exports = protocols::resolve_exports(self, low, volumes, links);
        let exported: BTreeSet<&String> =
            low.exports.iter().filter_map(|one| Some(one.volume.as_ref()?.get_ref())).collect();
        for (name, span) in &volume_names.list {
            if !exported.contains(name) && !low.exports.is_empty() {
                self.push(Mistake::warning(span.clone(), format!("volume {name} is in no export")));
            }
        }
        exports
    }

    /// Who may use an export of the table at `table`; `name` reads one of a list.
    pub(crate) fn hosts<T: PartialEq + fmt::Display>(
        &mut self,
        low: &Low<LowWords>,
        table: &Span,
        words: &HostWords,
        name: impl Fn(&mut Self, &Spanned<String>) -> Option<T>,
    ) -> Hosts<T> {
        let HostWords { key, names, nobody, host, help: usual, is_one } = words;
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
                let help = if is_one(word) || self.named.iter().any(|host| host.name == *word) {
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
        let read = |resolver: &mut Self, one: &Spanned<String>| {
            if one.get_ref() != "any" {
                return name(resolver, one);
            }
            let message = format!("hosts: \"any\" is not the name of a {host}");
            let help = "write hosts = \"any\", without the list";
            resolver.push(Mistake::error(one.span(), message).help(help));
            None
        };
        let list = self.spelled_out(list, key, is_one);
        Hosts::List(self.each_once(&list, host, read).unwrap_or_default())
    }

    /// The same list with what hosts are called in the words of a protocol, where it has the name
    /// of a `[[host]]`.
    fn spelled_out(
        &mut self,
        list: &[Spanned<String>],
        key: &str,
        is_one: &fn(&str) -> bool,
    ) -> Vec<Spanned<String>> {
        let mut spelled = Vec::new();
        for written in list {
            let word = written.get_ref();
            let Some(host) = self.named.iter().find(|host| host.name == *word) else {
                let is_name = word != "any" && !is_one(word) && check_name(word).is_ok();
                match is_name && !self.host_names.list.is_empty() {
                    // One that is wrong has its name all the same.
                    true if self.host_names.has(word) => {}
                    true => {
                        let names = std::mem::take(&mut self.host_names);
                        self.unknown_name(written, "host", &names);
                        self.host_names = names;
                    }
                    false => spelled.push(written.clone()),
                }
                continue;
            };
            let called = host.called(key);
            if called.is_empty() {
                let message = format!("host {word} does not come by {key}");
                let help = format!("add {key} = ... to its [[host]], or leave it out here");
                self.push(Mistake::error(written.span(), message).help(help));
            }
            spelled.extend(called.into_iter().map(|name| Spanned::new(written.span(), name)));
        }
        spelled
    }
}
