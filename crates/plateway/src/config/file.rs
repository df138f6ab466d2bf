//! What the user wrote: `plateway.toml` as it stands, every value with its span.
//!
//! This is the first of two types (`LowArgs`, then [`super::model::HiArgs`]): nothing is defaulted or
//! resolved here, and sizes, URIs and names are still texts. The keys below are the interface that
//! configurations rely on: keys are added, never renamed. Each table is read key by key, so that one
//! run reports every unknown key and every wrong type, not only the first.
//! Errors: pushed as [`Mistake`]s; what could be read is returned all the same.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::mistake::{Mistake, Span, nearest};

/// A configuration as written.
#[derive(Debug, Default)]
pub(crate) struct LowArgs {
    /// `[server]`.
    pub(crate) server: LowServer,
    /// `[[disk]]`, in order.
    pub(crate) disks: Vec<LowDisk>,
    /// `[[volume]]`, in order.
    pub(crate) volumes: Vec<LowVolume>,
    /// `[[listener]]`, in order.
    pub(crate) listeners: Vec<LowListener>,
    /// `[[export]]`, in order.
    pub(crate) exports: Vec<LowExport>,
}

/// A value that may be absent, with its span.
pub(crate) type Low<T> = Option<Spanned<T>>;

/// `[server]`: all of it is optional.
#[derive(Debug, Default)]
pub(crate) struct LowServer {
    pub(crate) shards: Low<Vec<Spanned<i64>>>,
    pub(crate) memory: Low<LowSize>,
    pub(crate) control: Low<String>,
    pub(crate) state: Low<String>,
    pub(crate) driver: Low<String>,
    pub(crate) max_connections: Low<i64>,
    pub(crate) max_connections_per_host: Low<i64>,
}

/// `[[disk]]`.
#[derive(Debug, Default)]
pub(crate) struct LowDisk {
    /// Of the table's header.
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) uri: Low<String>,
}

/// `[[volume]]`.
#[derive(Debug, Default)]
pub(crate) struct LowVolume {
    /// Of the table's header.
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) layout: Low<String>,
    pub(crate) disks: Low<Vec<Spanned<String>>>,
    pub(crate) chunk: Low<LowSize>,
    pub(crate) block_size: Low<LowSize>,
    pub(crate) uuid: Low<String>,
    pub(crate) size: Low<LowSize>,
}

/// `[[listener]]`.
#[derive(Debug, Default)]
pub(crate) struct LowListener {
    /// Of the table's header.
    pub(crate) span: Span,
    pub(crate) nvme: Low<String>,
    pub(crate) poll_us: Low<i64>,
    pub(crate) max_connections: Low<i64>,
    pub(crate) aoe: Low<String>,
    pub(crate) link: Low<String>,
    pub(crate) vlan: Low<i64>,
}

/// `[[export]]`.
#[derive(Debug, Default)]
pub(crate) struct LowExport {
    /// Of the table's header.
    pub(crate) span: Span,
    pub(crate) volume: Low<String>,
    pub(crate) nvme: Option<LowNvmeExport>,
    pub(crate) aoe: Option<LowAoeExport>,
}

/// `nvme = { ... }` of an `[[export]]`.
#[derive(Debug, Default)]
pub(crate) struct LowNvmeExport {
    /// Of the whole value.
    pub(crate) span: Span,
    pub(crate) subsystem: Low<String>,
    pub(crate) nsid: Low<i64>,
    pub(crate) hosts: Low<LowWords>,
}

/// `aoe = { ... }` of an `[[export]]`.
#[derive(Debug, Default)]
pub(crate) struct LowAoeExport {
    /// Of the whole value.
    pub(crate) span: Span,
    pub(crate) interface: Low<LowWords>,
    pub(crate) vlan: Low<i64>,
    pub(crate) shelf: Low<i64>,
    pub(crate) slot: Low<i64>,
    pub(crate) hosts: Low<LowWords>,
    pub(crate) buffers: Low<i64>,
}

/// A size: a text with a unit, or a number of bytes.
#[derive(Clone, Debug)]
pub(crate) enum LowSize {
    /// Such as `"256MiB"`.
    Text(String),
    /// Such as `4096`.
    Bytes(i64),
}

/// One word or a list of words: hosts are the word `any` or a list of their names, interfaces are one or several.
#[derive(Clone, Debug)]
pub(crate) enum LowWords {
    /// As it stands.
    Word(String),
    /// In order.
    List(Vec<Spanned<String>>),
}

impl LowArgs {
    /// Reads a file's text. Every mistake is pushed; what could be read comes back, or `None` where the
    /// text is no TOML: what a damaged text holds is a guess, and mistakes found in it would mislead.
    pub(crate) fn parse(text: &str, mistakes: &mut Vec<Mistake>) -> Option<Self> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            mistakes.extend(
                errors.iter().map(|e| Mistake::error(e.span().unwrap_or(0..0), e.message())),
            );
            return None;
        }
        let span = root.span();
        let mut root = Table::new(ROOT, span, root.into_inner(), mistakes);
        Some(Self::read(&mut root))
    }

    fn read(root: &mut Table<'_, '_>) -> Self {
        let low = Self {
            server: root.table("server", "[server]", LowServer::read).unwrap_or_default(),
            disks: root.tables("disk", "[[disk]]", LowDisk::read),
            volumes: root.tables("volume", "[[volume]]", LowVolume::read),
            listeners: root.tables("listener", "[[listener]]", LowListener::read),
            exports: root.tables("export", "[[export]]", LowExport::read),
        };
        root.finish();
        low
    }
}

impl LowServer {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            shards: table.take("shards", "a list of CPUs such as [0, 1]"),
            memory: table.take("memory", SIZE),
            control: table.take("control", "the path of a socket in quotes"),
            state: table.take("state", "the path of a directory in quotes"),
            driver: table.take("driver", "\"auto\", \"io_uring\" or \"epoll\""),
            max_connections: table.take("max_connections", NUMBER),
            max_connections_per_host: table.take("max_connections_per_host", NUMBER),
        }
    }
}

impl LowDisk {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            uri: table.take("uri", "a disk in quotes, such as \"ram:512MiB\""),
        }
    }
}

impl LowVolume {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            layout: table.take("layout", "\"single\", \"concat\" or \"stripe\""),
            disks: table.take("disks", "a list of names such as [\"d0\", \"d1\"]"),
            chunk: table.take("chunk", SIZE),
            block_size: table.take("block_size", "512 or 4096"),
            uuid: table.take("uuid", "a UUID in quotes"),
            size: table.take("size", SIZE),
        }
    }
}

impl LowListener {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            nvme: table.take("nvme", "an address in quotes, such as \"127.0.0.1:4420\""),
            poll_us: table.take("poll_us", "a whole number of microseconds"),
            max_connections: table.take("max_connections", NUMBER),
            aoe: table.take("aoe", "the name of an interface in quotes, such as \"eth1\""),
            link: table.take("link", "\"packet\" or \"xdp\""),
            vlan: table.take("vlan", NUMBER),
        }
    }
}

impl LowExport {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            volume: table.take("volume", "the name of a volume in quotes"),
            nvme: table.table("nvme", "nvme of [[export]]", LowNvmeExport::read),
            aoe: table.table("aoe", "aoe of [[export]]", LowAoeExport::read),
        }
    }
}

impl LowNvmeExport {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            subsystem: table.take("subsystem", "an NQN in quotes"),
            nsid: table.take("nsid", NUMBER),
            hosts: table.take("hosts", "\"any\" or a list of host NQNs"),
        }
    }
}

impl LowAoeExport {
    fn read(table: &mut Table<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            interface: table.take("interface", "the name of an interface, or a list of names"),
            vlan: table.take("vlan", NUMBER),
            shelf: table.take("shelf", NUMBER),
            slot: table.take("slot", NUMBER),
            hosts: table.take("hosts", "\"any\" or a list of MAC addresses"),
            buffers: table.take("buffers", NUMBER),
        }
    }
}

const NAME: &str = "a name in quotes";
const NUMBER: &str = "a whole number";
const SIZE: &str = "a size such as \"256MiB\" or a number of bytes";

/// The whole file, as messages call it.
const ROOT: &str = "the configuration";

/// Every key, by table as messages call it. `docs/configuration.md` explains each.
pub(crate) const KEYS: [(&str, &[&str]); 8] = [
    (ROOT, &["server", "disk", "volume", "listener", "export"]),
    (
        "[server]",
        &[
            "shards",
            "memory",
            "control",
            "state",
            "driver",
            "max_connections",
            "max_connections_per_host",
        ],
    ),
    ("[[disk]]", &["name", "uri"]),
    ("[[volume]]", &["name", "layout", "disks", "chunk", "block_size", "uuid", "size"]),
    ("[[listener]]", &["nvme", "poll_us", "max_connections", "aoe", "link", "vlan"]),
    ("[[export]]", &["volume", "nvme", "aoe"]),
    ("nvme of [[export]]", &["subsystem", "nsid", "hosts"]),
    ("aoe of [[export]]", &["interface", "vlan", "shelf", "slot", "hosts", "buffers"]),
];

/// A table being read: keys are taken one by one, and what is left at the end is unknown.
struct Table<'i, 'm> {
    /// As messages call it: `[[disk]]`.
    title: &'static str,
    span: Span,
    entries: DeTable<'i>,
    /// What the table may hold.
    known: &'static [&'static str],
    mistakes: &'m mut Vec<Mistake>,
}

impl<'i, 'm> Table<'i, 'm> {
    fn new(
        title: &'static str,
        span: Span,
        entries: DeTable<'i>,
        mistakes: &'m mut Vec<Mistake>,
    ) -> Self {
        let known = KEYS.iter().find(|(name, _)| *name == title).map_or(&[][..], |(_, keys)| keys);
        Self { title, span, entries, known, mistakes }
    }

    fn remove(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        debug_assert!(self.known.contains(&key), "{key} is missing from KEYS of {}", self.title);
        self.entries.remove(key)
    }

    /// Takes a value; `expected` is what the message says where its type is wrong.
    fn take<T: Deserialize<'i>>(&mut self, key: &'static str, expected: &str) -> Low<T> {
        let value = self.remove(key)?;
        let (span, seen) = (value.span(), value.get_ref().type_str());
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(read) => Some(Spanned::new(span, read)),
            Err(error) => {
                let at = error.span().unwrap_or(span.clone());
                let within = if at == span {
                    format!("expected {expected}, seen {}", article(seen))
                } else {
                    error.message().to_owned()
                };
                self.mistakes
                    .push(Mistake::error(at, format!("{key} of {}: {within}", self.title)));
                None
            }
        }
    }

    /// Takes a table, written `[key]` or `key = { ... }`.
    fn table<T>(
        &mut self,
        key: &'static str,
        title: &'static str,
        read: fn(&mut Table<'_, '_>) -> T,
    ) -> Option<T> {
        let value = self.remove(key)?;
        self.nested(title, value, read)
    }

    /// Takes an array of tables, written `[[key]]`.
    fn tables<T>(
        &mut self,
        key: &'static str,
        title: &'static str,
        read: fn(&mut Table<'_, '_>) -> T,
    ) -> Vec<T> {
        let Some(value) = self.remove(key) else { return Vec::new() };
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(items) => {
                items.into_iter().filter_map(|item| self.nested(title, item, read)).collect()
            }
            DeValue::Table(_) => {
                let message = format!("{key} is a list of tables: expected {title}, seen [{key}]");
                self.mistakes.push(Mistake::error(span, message));
                Vec::new()
            }
            other => {
                let message =
                    format!("expected {title} tables, seen {}", article(other.type_str()));
                self.mistakes.push(Mistake::error(span, message));
                Vec::new()
            }
        }
    }

    fn nested<T>(
        &mut self,
        title: &'static str,
        value: Spanned<DeValue<'i>>,
        read: fn(&mut Table<'_, '_>) -> T,
    ) -> Option<T> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(entries) => {
                let mut table = Table::new(title, span, entries, self.mistakes);
                let low = read(&mut table);
                table.finish();
                Some(low)
            }
            other => {
                let message =
                    format!("{title}: expected a table, seen {}", article(other.type_str()));
                self.mistakes.push(Mistake::error(span, message));
                None
            }
        }
    }

    /// Reports every key that nobody took.
    fn finish(&mut self) {
        for (key, _) in std::mem::take(&mut self.entries) {
            let (span, name) = (key.span(), key.into_inner());
            let help = match nearest(&name, self.known.iter().copied()) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("known keys: {}", self.known.join(", ")),
            };
            let message = format!("{name:?} is not a key of {}", self.title);
            self.mistakes.push(Mistake::error(span, message).help(help));
        }
    }
}

fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

impl<'de> Deserialize<'de> for LowSize {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = LowSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(SIZE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LowSize, E> {
                Ok(LowSize::Text(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<LowSize, E> {
                Ok(LowSize::Bytes(bytes))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for LowWords {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordsVisitor;
        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = LowWords;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word in quotes or a list of them")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<LowWords, E> {
                Ok(LowWords::Word(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LowWords, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = seq.next_element()? {
                    words.push(word);
                }
                Ok(LowWords::List(words))
            }
        }
        deserializer.deserialize_any(WordsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (LowArgs, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let low = LowArgs::parse(text, &mut mistakes).expect("no TOML");
        (low, mistakes)
    }

    #[test]
    fn keys_that_configurations_rely_on_stay() {
        let has = |table: &str, keys: &[&str]| {
            let (_, have) = KEYS.iter().find(|(title, _)| *title == table).expect(table);
            keys.iter().for_each(|key| assert!(have.contains(key), "{key} of {table} is gone"));
        };
        has("[server]", &["shards", "memory", "control", "state"]);
        has("[[disk]]", &["name", "uri"]);
        has("[[volume]]", &["name", "layout", "disks", "chunk", "block_size", "uuid"]);
        has("[[listener]]", &["nvme", "poll_us", "aoe", "link", "vlan"]);
        has("[[export]]", &["volume", "nvme", "aoe"]);
        has("nvme of [[export]]", &["subsystem", "nsid", "hosts"]);
        has("aoe of [[export]]", &["interface", "shelf", "slot", "hosts"]);
    }

    #[test]
    fn every_key_of_the_table_is_read() {
        // A date is the wrong type for all of them: each must be refused for that, none as unknown.
        for (title, keys) in &KEYS[1..] {
            for key in *keys {
                let text = match title.split_once(" of ") {
                    Some((kind, outer)) => format!("{outer}\n{kind} = {{ {key} = 2026-11-01 }}\n"),
                    None => format!("{title}\n{key} = 2026-11-01\n"),
                };
                let (_, mistakes) = parse(&text);
                assert_eq!(mistakes.len(), 1, "{text}: {mistakes:?}");
                assert!(mistakes[0].message.contains("expected"), "{text}: {mistakes:?}");
                assert!(text[mistakes[0].span.clone()].starts_with("2026"), "{text}: {mistakes:?}");
            }
        }
    }

    #[test]
    fn values_keep_their_spelling_and_their_span() {
        let text = "[[disk]]\nname = \"d0\"\nuri = \"ram:512MiB\"\n";
        let (low, mistakes) = parse(text);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let uri = low.disks[0].uri.as_ref().unwrap();
        assert_eq!((uri.get_ref().as_str(), &text[uri.span()]), ("ram:512MiB", "\"ram:512MiB\""));
        assert_eq!(&text[low.disks[0].span.clone()], "[[disk]]");
    }
}
