//! From what was written to what it means: defaults, names, and every check.
//!
//! Checks do not stop at the first mistake: each part is resolved as far as it can be, a thing that
//! is wrong keeps its name so that what refers to it is not reported as well, and a [`HiArgs`]
//! comes out only if nothing was wrong. Warnings do not prevent that. Here: what all kinds of
//! things need; each is resolved where it lives. Not here: anything that must look at the machine,
//! such as the size of a file or its block size.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use miette::Severity;
use toml::Spanned;

use super::defaults::Defaults;
use super::file::{Low, LowArgs, LowSize};
use super::mistake::{Mistake, Span, nearest};
use super::model::HiArgs;
use super::places::Places;
use super::size::parse_size;
use super::uri::check_name;
use crate::protocols::{self, HostConfig};

/// Resolves a configuration; `None` if any mistake (other than a warning) was pushed, now or
/// before. `text` holds the bytes that spans point into.
pub(crate) fn resolve(
    low: &LowArgs,
    text: &str,
    defaults: &Defaults,
    mistakes: &mut Vec<Mistake>,
) -> Option<(HiArgs, Places)> {
    let mut resolver = Resolver {
        text,
        mistakes,
        places: Places::default(),
        named: Vec::new(),
        host_names: Names::default(),
    };
    let server = resolver.server(&low.server, defaults);
    let disk_names = resolver.names("disk", low.disks.iter().map(|disk| (&disk.name, &disk.span)));
    let disks = resolver.disks(&low.disks, server.poll);
    let volume_names =
        resolver.names("volume", low.volumes.iter().map(|volume| (&volume.name, &volume.span)));
    let volumes = resolver.volumes(&low.volumes, &disk_names);
    let listeners = resolver.listeners(&low.listeners, &server);
    let metrics = resolver.metrics(&low.server, &listeners);
    let mut links = resolver.links(&low.links, &low.listeners, server.poll);
    let routing = protocols::resolve_routing(&mut resolver, low, &mut links);
    let hosts = resolver.named_hosts(low);
    resolver.named.clone_from(&hosts);
    let exports = resolver.exports(low, &volume_names, &volumes, &mut links);
    resolver.warn_of_shared_secrets(&hosts, &exports);
    let users = (disks.as_slice(), exports.as_slice());
    let routing = protocols::finish_routing(&mut resolver, routing, &links, users);
    let links = links.list.into_iter().map(|(link, _)| link).collect();
    let places = resolver.places;
    let broken = mistakes.iter().any(|mistake| mistake.severity == Severity::Error);
    (!broken).then_some((
        HiArgs { server, metrics, disks, volumes, listeners, links, routing, hosts, exports },
        places,
    ))
}

/// The names of disks or volumes in the order of the file; thousands are found as quickly as one.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) list: Vec<(String, Span)>,
    /// Where each was given first.
    first: BTreeMap<String, Span>,
}

impl Names {
    pub(crate) fn push(&mut self, name: &str, span: Span) {
        self.first.entry(name.to_owned()).or_insert_with(|| span.clone());
        self.list.push((name.to_owned(), span));
    }

    pub(crate) fn first(&self, name: &str) -> Option<&Span> {
        self.first.get(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.first.contains_key(name)
    }
}

/// A configuration that is being resolved.
pub(crate) struct Resolver<'a> {
    text: &'a str,
    pub(super) mistakes: &'a mut Vec<Mistake>,
    places: Places,
    /// Hosts that exports may name, and the names of all that were written.
    pub(super) named: Vec<HostConfig>,
    pub(crate) host_names: Names,
}

impl Resolver<'_> {
    /// Where a key of a thing was written, or else the thing; its own key is empty.
    pub(crate) fn place_of(&self, title: &str, key: &str) -> Span {
        self.places.find(title, key)
    }

    /// Notes where a thing, or a key of it, was written.
    pub(crate) fn place(&mut self, title: String, key: &str, span: Span) {
        self.places.put(title, key, span);
    }

    pub(crate) fn push(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// How many things were found wrong so far.
    pub(crate) fn errors(&self) -> usize {
        self.mistakes.iter().filter(|mistake| mistake.severity == Severity::Error).count()
    }

    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.push(Mistake::error(span, message));
    }

    /// The place of some bytes of a value, where the text holds the value unchanged (in quotes or
    /// not); the whole value where it was written with escapes.
    pub(crate) fn within(&self, written: &Spanned<String>, at: Span) -> Span {
        let span = written.span();
        let quote = match self.text.get(span.clone()) {
            Some(raw) if raw == written.get_ref() => 0,
            Some(raw) if raw.len() >= 2 && raw.get(1..raw.len() - 1) == Some(written.get_ref()) => {
                1
            }
            _ => return span,
        };
        span.start + quote + at.start..span.start + quote + at.end
    }

    /// The names of disks or volumes: well formed, none twice. Wrong tables keep their names.
    pub(crate) fn names<'l>(
        &mut self,
        what: &str,
        tables: impl Iterator<Item = (&'l Low<String>, &'l Span)>,
    ) -> Names {
        let mut names = Names::default();
        for (name, table) in tables {
            let Some(written) = name else {
                let example = format!("name = \"{}0\"", &what[..1]);
                self.missing(table, &format!("[[{what}]]"), "name", &example);
                continue;
            };
            let name = written.get_ref();
            if let Err(expected) = check_name(name) {
                self.error(written.span(), format!("expected {expected}, seen {name:?}"));
            }
            if let Some(first) = names.first(name) {
                let message = format!("there is a {what} {name:?} already");
                self.push(Mistake::error(written.span(), message).first(first));
            }
            names.push(name, written.span());
        }
        names
    }

    /// The values that `read` makes of words, each once; `None` if it makes none of one.
    pub(crate) fn each_once<T: PartialEq + Display>(
        &mut self,
        words: &[Spanned<String>],
        what: &str,
        mut read: impl FnMut(&mut Self, &Spanned<String>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut values: Vec<(T, Span)> = Vec::new();
        let mut is_wrong = false;
        for word in words {
            let Some(value) = read(self, word) else {
                is_wrong = true;
                continue;
            };
            match values.iter().find(|(other, _)| *other == value) {
                Some((_, first)) => {
                    let message = format!("{what} {value} is named twice");
                    self.push(Mistake::warning(word.span(), message).first(first));
                }
                None => values.push((value, word.span())),
            }
        }
        (!is_wrong).then(|| values.into_iter().map(|(value, _)| value).collect())
    }

    /// A required key that is absent, unless a wrong value of it was reported already.
    pub(crate) fn missing(&mut self, table: &Span, title: &str, key: &str, example: &str) {
        if !self.is_reported(table, title, key) {
            let message = format!("this {title} has no {key}");
            self.push(Mistake::error(table.clone(), message).help(format!("add {example}")));
        }
    }

    /// Whether a value of the table at `table` was found to be of the wrong type.
    pub(crate) fn is_reported(&self, table: &Span, title: &str, key: &str) -> bool {
        let wrong_type = format!("{key} of {title}: ");
        self.mistakes.iter().any(|mistake| {
            // Of this table: no other header lies between.
            let between = self.text.get(table.start..mistake.span.start);
            mistake.message.starts_with(&wrong_type)
                && between.is_some_and(|text| !text.contains("\n["))
        })
    }

    /// A name that refers to nothing.
    pub(crate) fn unknown_name(&mut self, written: &Spanned<String>, what: &str, names: &Names) {
        let names = &names.list;
        let help = match nearest(written.get_ref(), names.iter().map(|(name, _)| name.as_str())) {
            Some(meant) => format!("did you mean {meant}?"),
            None if names.is_empty() => format!("there is no [[{what}]] at all"),
            None => {
                let all: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
                format!("{what}s: {}", all.join(", "))
            }
        };
        let message = format!("there is no {what} {:?}", written.get_ref());
        self.push(Mistake::error(written.span(), message).help(help));
    }

    /// What a word of a few means; the default where it is absent or none of them.
    pub(crate) fn word<T: Copy + Default>(
        &mut self,
        low: &Low<String>,
        key: &str,
        words: &[(&str, T)],
    ) -> T {
        let Some(written) = low else { return T::default() };
        if let Some((_, meant)) = words.iter().find(|(word, _)| word == written.get_ref()) {
            return *meant;
        }
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.unknown_word(written, key, &words);
        T::default()
    }

    /// A word that is none of a few.
    pub(crate) fn unknown_word(&mut self, written: &Spanned<String>, key: &str, words: &[&str]) {
        let help = nearest(written.get_ref(), words.iter().copied())
            .map(|meant| format!("did you mean {meant}?"));
        let message = format!("{key}: expected {}, seen {:?}", words.join(", "), written.get_ref());
        self.push(Mistake::error(written.span(), message).meant(help));
    }

    pub(crate) fn size(&mut self, written: &Spanned<LowSize>, key: &str) -> Option<u64> {
        let size = match written.get_ref() {
            LowSize::Text(text) => parse_size(text).map_err(|error| error.to_string()),
            LowSize::Bytes(bytes) => {
                u64::try_from(*bytes).map_err(|_| format!("expected a size, seen {bytes}"))
            }
        };
        size.map_err(|message| self.error(written.span(), format!("{key}: {message}"))).ok()
    }

    pub(crate) fn number(
        &mut self,
        written: &Low<i64>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u32> {
        let written = written.as_ref()?;
        let number = u64::try_from(*written.get_ref()).ok().filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most, seen) = (range.start(), range.end(), written.get_ref());
            self.error(written.span(), format!("{key}: expected {least} to {most}, seen {seen}"));
        }
        number.and_then(|number| u32::try_from(number).ok())
    }

    pub(crate) fn path(&mut self, written: &Low<String>, key: &str) -> Option<PathBuf> {
        let written = written.as_ref()?;
        if written.get_ref().is_empty() || written.get_ref().contains('\0') {
            let message = format!("{key}: expected a path, seen {:?}", written.get_ref());
            self.error(written.span(), message);
        }
        Some(PathBuf::from(written.get_ref()))
    }
}

#[cfg(test)]
mod tests;
