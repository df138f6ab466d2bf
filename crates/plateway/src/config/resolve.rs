//! From what was written to what it means: defaults, names, and every check.
//!
//! Checks do not stop at the first mistake: each part is resolved as far as it can be, a thing that is
//! wrong keeps its name so that what refers to it is not reported as well, and a [`HiArgs`] comes out
//! only if nothing was wrong. Warnings do not prevent that. Here: `[server]` and `[[disk]]`; the
//! other rooms are `resolve/volumes.rs`, `resolve/exports.rs` and `resolve/aoe.rs`.
//! Not here: anything that must look at the machine, such as the size of a file or its block size.

mod aoe;
mod exports;
mod volumes;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use miette::Severity;
use toml::Spanned;

use super::defaults::Defaults;
use super::file::{Low, LowArgs, LowDisk, LowListener, LowServer, LowSize};
use super::mistake::{Mistake, Span, nearest};
use super::model::{
    CONNECTIONS_DEFAULT, CONNECTIONS_LIMIT, DiskConfig, DriverChoice, HiArgs, MEMORY_DEFAULT,
    MEMORY_PER_SHARD_MIN, Server,
};
use super::size::{Size, parse_size};
use super::uri::{DiskUri, UriError, check_name};

/// The longest path of a Unix socket: `sun_path` less its terminating zero (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Resolves a configuration; `None` if any mistake (other than a warning) was pushed, now or before.
/// `text` holds the bytes that spans point into.
pub(crate) fn resolve(
    low: &LowArgs,
    text: &str,
    defaults: &Defaults,
    mistakes: &mut Vec<Mistake>,
) -> Option<HiArgs> {
    let mut resolver = Resolver { text, mistakes };
    let server = resolver.server(&low.server, defaults);
    let disk_names = resolver.names("disk", low.disks.iter().map(|disk| (&disk.name, &disk.span)));
    let disks = resolver.disks(&low.disks);
    let volume_names =
        resolver.names("volume", low.volumes.iter().map(|volume| (&volume.name, &volume.span)));
    let volumes = resolver.volumes(&low.volumes, &disk_names);
    let (listeners, links) = resolver.listeners(&low.listeners, server.connections_max);
    let exports = resolver.exports(&low.exports, &volume_names);
    let (aoe_exports, links) = resolver.aoe_exports(&low.exports, &volume_names, &volumes, links);
    resolver.warn_of_the_unreachable(low);
    let broken = mistakes.iter().any(|mistake| mistake.severity == Severity::Error);
    (!broken).then_some(HiArgs { server, disks, volumes, listeners, links, exports, aoe_exports })
}

/// A name and where it was given.
type Named = (String, Span);

/// The names of disks or volumes in the order of the file; thousands are found as quickly as one.
#[derive(Default)]
struct Names {
    list: Vec<Named>,
    /// Where each was given first.
    first: BTreeMap<String, Span>,
}

impl Names {
    fn push(&mut self, name: &str, span: Span) {
        self.first.entry(name.to_owned()).or_insert_with(|| span.clone());
        self.list.push((name.to_owned(), span));
    }

    fn first(&self, name: &str) -> Option<&Span> {
        self.first.get(name)
    }

    fn has(&self, name: &str) -> bool {
        self.first.contains_key(name)
    }
}

struct Resolver<'a> {
    text: &'a str,
    mistakes: &'a mut Vec<Mistake>,
}

impl Resolver<'_> {
    fn push(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.push(Mistake::error(span, message));
    }

    fn server(&mut self, low: &LowServer, defaults: &Defaults) -> Server {
        let memory_bytes = low
            .memory
            .as_ref()
            .and_then(|size| self.size(size, "memory"))
            .unwrap_or(MEMORY_DEFAULT);
        let shards = match &low.shards {
            Some(cpus) => self.shards(cpus, defaults),
            None => {
                // One a core, but no more than the budget can feed.
                let fed = usize::try_from(memory_bytes / MEMORY_PER_SHARD_MIN)
                    .unwrap_or(usize::MAX)
                    .max(1);
                defaults.cpus.iter().copied().take(fed).collect()
            }
        };
        let needed = MEMORY_PER_SHARD_MIN * shards.len().max(1) as u64;
        if let Some(memory) = low.memory.as_ref().filter(|_| memory_bytes < needed) {
            let plural = if shards.len() == 1 { "" } else { "s" };
            let message = format!(
                "memory is too small: expected at least {} for {} shard{plural} ({} each), seen {}",
                Size(needed),
                shards.len().max(1),
                Size(MEMORY_PER_SHARD_MIN),
                Size(memory_bytes)
            );
            self.error(memory.span(), message);
        } else if memory_bytes < needed {
            let span = low.shards.as_ref().map_or(0..0, Spanned::span);
            let message =
                format!("{} shards need memory = \"{}\" or more", shards.len(), Size(needed));
            self.error(span, format!("{message}, and the default is {}", Size(MEMORY_DEFAULT)));
        }
        let control =
            self.path(&low.control, "control").unwrap_or_else(|| defaults.control.clone());
        if let Some(written) =
            low.control.as_ref().filter(|_| control.as_os_str().len() > SOCKET_PATH_MAX)
        {
            let seen = control.as_os_str().len();
            let message =
                format!("the path of a socket has at most {SOCKET_PATH_MAX} bytes, seen {seen}");
            self.error(written.span(), message);
        }
        let limit = 1..=u64::from(CONNECTIONS_LIMIT);
        let connections_max = self
            .number(&low.max_connections, "max_connections", limit)
            .unwrap_or(CONNECTIONS_DEFAULT);
        let limit = 1..=u64::from(connections_max);
        // Three quarters: one host, however it behaves, leaves room for others.
        let connections_per_host_max = self
            .number(&low.max_connections_per_host, "max_connections_per_host", limit)
            .unwrap_or((connections_max / 4 * 3).max(1));
        Server {
            shards,
            memory_bytes,
            control,
            state: self.path(&low.state, "state").unwrap_or_else(|| defaults.state.clone()),
            driver: self.driver(&low.driver),
            connections_max,
            connections_per_host_max,
        }
    }

    fn shards(&mut self, cpus: &Spanned<Vec<Spanned<i64>>>, defaults: &Defaults) -> Vec<u32> {
        if cpus.get_ref().is_empty() {
            let message =
                "shards is empty: expected at least one CPU, or no key at all for one shard a core";
            self.error(cpus.span(), message);
        }
        let mut shards: Vec<(u32, Span)> = Vec::new();
        for cpu in cpus.get_ref() {
            let span = cpu.span();
            let number =
                u32::try_from(*cpu.get_ref()).ok().filter(|number| defaults.cpus.contains(number));
            let Some(number) = number else {
                let message = format!(
                    "this process cannot run on CPU {}: expected one of {}",
                    cpu.get_ref(),
                    cpu_list(&defaults.cpus)
                );
                self.error(span, message);
                continue;
            };
            if let Some((_, first)) = shards.iter().find(|(other, _)| *other == number) {
                let first = first.clone();
                self.push(
                    Mistake::error(span, format!("CPU {number} has a shard already"))
                        .also(first, "first here"),
                );
                continue;
            }
            shards.push((number, span));
        }
        shards.into_iter().map(|(number, _)| number).collect()
    }

    fn driver(&mut self, low: &Low<String>) -> DriverChoice {
        let Some(written) = low else { return DriverChoice::default() };
        let names = DriverChoice::NAMES.map(|(name, _)| name);
        match DriverChoice::NAMES.iter().find(|(name, _)| name == written.get_ref()) {
            Some((_, choice)) => *choice,
            None => {
                self.unknown_word(written, "driver", &names);
                DriverChoice::default()
            }
        }
    }

    fn disks(&mut self, low: &[LowDisk]) -> Vec<DiskConfig> {
        let mut disks = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        for one in low {
            let Some(written) = &one.uri else {
                self.missing(&one.span, "[[disk]]", "uri", "uri = \"ram:512MiB\"");
                continue;
            };
            let uri: DiskUri = match written.get_ref().parse() {
                Ok(uri) => uri,
                Err(error) => {
                    self.uri_mistake(written, error);
                    continue;
                }
            };
            if matches!(uri.innermost(), DiskUri::Volume { .. }) {
                let help = "name the disks of that volume instead".to_owned();
                self.push(
                    Mistake::error(
                        written.span(),
                        "a volume cannot be a disk of the configuration",
                    )
                    .help(help),
                );
                continue;
            }
            let Some(name) = &one.name else { continue };
            let name = name.get_ref().clone();
            if let Some(first) =
                disks.iter().position(|disk: &DiskConfig| disk.uri.same_backing(&uri))
            {
                let message = format!(
                    "disks {} and {name} are the same blocks: {}",
                    disks[first].name,
                    uri.innermost()
                );
                self.push(
                    Mistake::error(written.span(), message)
                        .also(spans[first].clone(), "first here"),
                );
            }
            disks.push(DiskConfig { name, uri });
            spans.push(written.span());
        }
        disks
    }

    fn uri_mistake(&mut self, written: &Spanned<String>, error: UriError) {
        let span = self.within(written, error.at.clone());
        self.push(Mistake::error(span, error.message).help(error.help));
    }

    /// The place of some bytes of a value, where the text holds the value unchanged (in quotes or
    /// not); the whole value where it was written with escapes.
    fn within(&self, written: &Spanned<String>, at: Span) -> Span {
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
    fn names<'l>(
        &mut self,
        what: &str,
        tables: impl Iterator<Item = (&'l Low<String>, &'l Span)>,
    ) -> Names {
        let mut names = Names::default();
        for (name, table) in tables {
            let Some(written) = name else {
                self.missing(
                    table,
                    &format!("[[{what}]]"),
                    "name",
                    &format!("name = \"{}0\"", &what[..1]),
                );
                continue;
            };
            let name = written.get_ref();
            if let Err(expected) = check_name(name) {
                self.error(written.span(), format!("expected {expected}, seen {name:?}"));
            }
            if let Some(first) = names.first(name) {
                let first = first.clone();
                let message = format!("there is a {what} {name:?} already");
                self.push(Mistake::error(written.span(), message).also(first, "first here"));
            }
            names.push(name, written.span());
        }
        names
    }

    /// A required key that is absent, unless a wrong value of it was reported already.
    fn missing(&mut self, table: &Span, title: &str, key: &str, example: &str) {
        if !self.is_reported(table, title, key) {
            let message = format!("this {title} has no {key}");
            self.push(Mistake::error(table.clone(), message).help(format!("add {example}")));
        }
    }

    /// Whether a value of the table at `table` was found to be of the wrong type; a table that is a value has no key.
    fn is_reported(&self, table: &Span, title: &str, key: &str) -> bool {
        let wrong_type = match key {
            "" => format!("{title}: "),
            key => format!("{key} of {title}: "),
        };
        self.mistakes.iter().any(|mistake| {
            // Of this table: no other header lies between.
            let between = self.text.get(table.start..mistake.span.start);
            mistake.message.starts_with(&wrong_type)
                && between.is_some_and(|text| !text.contains("\n["))
        })
    }

    /// A name that refers to nothing.
    fn unknown_name(&mut self, written: &Spanned<String>, what: &str, names: &Names) {
        let names = &names.list;
        let help = match nearest(written.get_ref(), names.iter().map(|(name, _)| name.as_str())) {
            Some(meant) => format!("did you mean {meant}?"),
            None if names.is_empty() => format!("there is no [[{what}]] at all"),
            None => {
                let all: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
                format!("{what}s: {}", all.join(", "))
            }
        };
        self.push(
            Mistake::error(written.span(), format!("there is no {what} {:?}", written.get_ref()))
                .help(help),
        );
    }

    /// A word that is none of a few.
    fn unknown_word(&mut self, written: &Spanned<String>, key: &str, words: &[&str]) {
        let help = nearest(written.get_ref(), words.iter().copied())
            .map(|meant| format!("did you mean {meant}?"));
        let message = format!("{key}: expected {}, seen {:?}", words.join(", "), written.get_ref());
        self.push(Mistake::error(written.span(), message).help(help));
    }

    fn size(&mut self, written: &Spanned<LowSize>, key: &str) -> Option<u64> {
        let size = match written.get_ref() {
            LowSize::Text(text) => parse_size(text).map_err(|error| error.to_string()),
            LowSize::Bytes(bytes) => {
                u64::try_from(*bytes).map_err(|_| format!("expected a size, seen {bytes}"))
            }
        };
        size.map_err(|message| self.error(written.span(), format!("{key}: {message}"))).ok()
    }

    fn number(&mut self, written: &Low<i64>, key: &str, range: RangeInclusive<u64>) -> Option<u32> {
        let written = written.as_ref()?;
        let number = u64::try_from(*written.get_ref()).ok().filter(|number| range.contains(number));
        if number.is_none() {
            let message = format!(
                "{key}: expected {} to {}, seen {}",
                range.start(),
                range.end(),
                written.get_ref()
            );
            self.error(written.span(), message);
        }
        number.and_then(|number| u32::try_from(number).ok())
    }

    fn path(&mut self, written: &Low<String>, key: &str) -> Option<PathBuf> {
        let written = written.as_ref()?;
        if written.get_ref().is_empty() || written.get_ref().contains('\0') {
            self.error(
                written.span(),
                format!("{key}: expected a path, seen {:?}", written.get_ref()),
            );
        }
        Some(PathBuf::from(written.get_ref()))
    }

    fn warn_of_the_unreachable(&mut self, low: &LowArgs) {
        let export = low.exports.iter().find(|export| export.nvme.is_some());
        let is_nvme = |listener: &LowListener| listener.aoe.is_none();
        if let (Some(export), false) = (export, low.listeners.iter().any(is_nvme)) {
            let help = "add [[listener]] nvme = \"127.0.0.1:4420\"".to_owned();
            let message = "nobody can reach the exports: there is no [[listener]]";
            self.push(Mistake::warning(export.span.clone(), message).help(help));
        }
    }
}

/// CPUs as Linux lists them: `0-3,8`.
fn cpu_list(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
