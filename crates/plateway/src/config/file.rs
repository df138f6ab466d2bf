//! What the user wrote: `plateway.toml` as it stands, every value with its span.
//!
//! This is the first of two types (`LowArgs`, then [`super::model::HiArgs`]): nothing is defaulted
//! or resolved here, and sizes, URIs and names are still texts. The keys, which stand with the
//! things they belong to, are the interface that configurations rely on: keys are added, never
//! renamed. Each table is read key by key, so that one run reports every unknown key and every
//! wrong type, not only the first. Errors: pushed as [`Mistake`]s; what could be read is returned
//! all the same.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::disk::LowDisk;
use super::export::LowExport;
use super::link::LowLink;
use super::listener::LowListener;
use super::mistake::{Mistake, Span, nearest};
use super::schema::{Valued, table_schema};
use super::server::LowServer;
use super::volume::LowVolume;
#[cfg(test)]
use crate::protocols::{LowBackup, LowBfd, LowGre, LowL2tp, LowUdp, LowWay};
use crate::protocols::{
    LowCircuit, LowHost, LowIlm, LowLsp, LowNeighbour, LowPseudowire, LowRouter, LowTunnel,
};
#[cfg(debug_assertions)]
use crate::recorded;

/// A configuration as written.
#[derive(Debug, Default)]
pub(crate) struct LowArgs {
    pub(crate) server: LowServer,
    pub(crate) disks: Vec<LowDisk>,
    pub(crate) volumes: Vec<LowVolume>,
    pub(crate) routers: Vec<LowRouter>,
    pub(crate) links: Vec<LowLink>,
    pub(crate) circuits: Vec<LowCircuit>,
    pub(crate) ilms: Vec<LowIlm>,
    pub(crate) lsps: Vec<LowLsp>,
    pub(crate) pseudowires: Vec<LowPseudowire>,
    pub(crate) tunnels: Vec<LowTunnel>,
    pub(crate) neighbours: Vec<LowNeighbour>,
    pub(crate) listeners: Vec<LowListener>,
    pub(crate) hosts: Vec<LowHost>,
    pub(crate) exports: Vec<LowExport>,
}

/// A value that may be absent, with its span.
pub(crate) type Low<T> = Option<Spanned<T>>;

/// A table of the file.
pub(crate) trait Written: Sized {
    /// As messages call it: `[[disk]]`.
    const TITLE: &'static str;
    /// What it may hold, in the order of the documentation. `docs/configuration.md` explains each.
    const KEYS: &'static [&'static str];

    /// Takes every key.
    fn read(table: &mut TableReader<'_, '_>) -> Self;
}

/// Declares a table: its title, its keys, their types, and what a message expects where something
/// else is seen.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident = $title:literal { $($key:ident: $type:ty = $expected:expr,)* }) => {
        #[doc = concat!("`", $title, "` as written.")]
        #[derive(Debug, Default)]
        $(#[$meta])*
        pub(crate) struct $name {
            /// Of the table's header, or of the whole value.
            pub(crate) span: $crate::config::mistake::Span,
            $(pub(crate) $key: $crate::config::file::Low<$type>,)*
        }

        impl $crate::config::file::Written for $name {
            const TITLE: &'static str = $title;
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn read(table: &mut $crate::config::file::TableReader<'_, '_>) -> Self {
                Self { span: table.span.clone(), $($key: table.take(stringify!($key), $expected),)* }
            }
        }
    };
}
pub(crate) use table;

/// A size: a text with a unit, or a number of bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum LowSize {
    /// Such as `"256MiB"`.
    Text(String),
    /// Such as `4096`.
    Bytes(i64),
}

/// One word or a list of words: hosts are the word `any` or a list of their names, interfaces are
/// one or several.
#[derive(Clone, Debug)]
pub(crate) enum LowWords {
    /// As it stands.
    Word(String),
    /// In order.
    List(Vec<Spanned<String>>),
}

impl LowArgs {
    /// Reads a file's text. Every mistake is pushed; what could be read comes back, or `None` where
    /// the text is no TOML: what a damaged text holds is a guess, and mistakes found in it would
    /// mislead.
    pub(crate) fn parse(text: &str, mistakes: &mut Vec<Mistake>) -> Option<Self> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            mistakes.extend(
                errors.iter().map(|e| Mistake::error(e.span().unwrap_or(0..0), e.message())),
            );
            return None;
        }
        Some(TableReader::read(root.span(), root.into_inner(), mistakes))
    }
}

impl Written for LowArgs {
    const TITLE: &'static str = "the configuration";
    const KEYS: &'static [&'static str] = &[
        "server",
        "disk",
        "volume",
        "router",
        "link",
        "circuit",
        "ilm",
        "lsp",
        "pseudowire",
        "tunnel",
        "neighbour",
        "listener",
        "host",
        "export",
    ];

    fn read(root: &mut TableReader<'_, '_>) -> Self {
        Self {
            server: root.table("server").unwrap_or_default(),
            disks: root.tables("disk"),
            volumes: root.tables("volume"),
            routers: root.tables("router"),
            links: root.tables("link"),
            circuits: root.tables("circuit"),
            ilms: root.tables("ilm"),
            lsps: root.tables("lsp"),
            pseudowires: root.tables("pseudowire"),
            tunnels: root.tables("tunnel"),
            neighbours: root.tables("neighbour"),
            listeners: root.tables("listener"),
            hosts: root.tables("host"),
            exports: root.tables("export"),
        }
    }
}

pub(crate) const NAME: &str = "a name in quotes";
pub(crate) const NUMBER: &str = "a whole number";
pub(crate) const SIZE: &str = "a size such as \"256MiB\" or a number of bytes";

/// Every key, by table.
#[cfg(test)]
pub(crate) fn keys() -> Vec<(&'static str, &'static [&'static str])> {
    fn of<T: Written>() -> (&'static str, &'static [&'static str]) {
        (T::TITLE, T::KEYS)
    }
    let mut all = vec![
        of::<LowServer>(),
        of::<LowDisk>(),
        of::<LowVolume>(),
        of::<LowRouter>(),
        of::<LowLink>(),
        of::<LowUdp>(),
        of::<LowCircuit>(),
        of::<LowIlm>(),
        of::<LowLsp>(),
        of::<LowPseudowire>(),
        of::<LowBfd>(),
        of::<LowWay>(),
        of::<LowTunnel>(),
        of::<LowGre>(),
        of::<LowL2tp>(),
        of::<LowNeighbour>(),
        of::<LowBackup>(),
        of::<LowListener>(),
        of::<LowHost>(),
        of::<LowExport>(),
    ];
    all.extend(crate::protocols::export_keys());
    all
}

/// A table being read: keys are taken one by one, and what is left at the end is unknown.
pub(crate) struct TableReader<'i, 'm> {
    title: &'static str,
    pub(crate) span: Span,
    entries: DeTable<'i>,
    known: &'static [&'static str],
    mistakes: &'m mut Vec<Mistake>,
    /// What it would take, where it only says so.
    wanted: Option<Vec<(&'static str, Value)>>,
}

/// What a table may hold: each key, and the schema of its value.
pub(super) fn wanted<T: Written>() -> Vec<(&'static str, Value)> {
    let (title, known, mut mistakes) = (T::TITLE, T::KEYS, Vec::new());
    let (entries, wanted) = (DeTable::new(), Some(Vec::new()));
    let mut table =
        TableReader { title, span: 0..0, entries, known, mistakes: &mut mistakes, wanted };
    T::read(&mut table);
    table.wanted.unwrap_or_default()
}

impl<'i, 'm> TableReader<'i, 'm> {
    /// Reads the whole of a table; a key that nobody took is a mistake.
    fn read<T: Written>(span: Span, entries: DeTable<'i>, mistakes: &'m mut Vec<Mistake>) -> T {
        let (title, known, wanted) = (T::TITLE, T::KEYS, None);
        let mut table = TableReader { title, span, entries, known, mistakes, wanted };
        let low = T::read(&mut table);
        table.finish();
        low
    }

    fn remove(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        debug_assert!(
            self.known.contains(&key),
            "{key} is missing from the keys of {}",
            self.title
        );
        self.entries.remove(key)
    }

    /// Takes a value; `expected` is what the message says where its type is wrong.
    pub(crate) fn take<T: Deserialize<'i> + Valued>(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Low<T> {
        if let Some(wanted) = &mut self.wanted {
            let mut schema = T::schema();
            schema["description"] = expected.into();
            wanted.push((key, schema));
            return None;
        }
        let value = self.remove(key)?;
        let (span, seen) = (value.span(), value.get_ref().type_str());
        #[cfg(debug_assertions)]
        let word = value.get_ref().as_str().map(str::to_owned);
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(read) => {
                #[cfg(debug_assertions)]
                recorded::key(self.title, key, word.as_deref());
                Some(Spanned::new(span, read))
            }
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
    pub(crate) fn table<T: Written>(&mut self, key: &'static str) -> Option<T> {
        if let Some(wanted) = &mut self.wanted {
            wanted.push((key, table_schema::<T>()));
            return None;
        }
        let value = self.remove(key)?;
        #[cfg(debug_assertions)]
        recorded::key(self.title, key, None);
        self.nested(value)
    }

    /// Takes an array of tables, written `[[key]]`.
    fn tables<T: Written>(&mut self, key: &'static str) -> Vec<T> {
        if let Some(wanted) = &mut self.wanted {
            wanted.push((key, json!({ "type": "array", "items": table_schema::<T>() })));
            return Vec::new();
        }
        let Some(value) = self.remove(key) else { return Vec::new() };
        #[cfg(debug_assertions)]
        recorded::key(self.title, key, None);
        let span = value.span();
        let message = match value.into_inner() {
            DeValue::Array(items) => {
                return items.into_iter().filter_map(|item| self.nested(item)).collect();
            }
            DeValue::Table(_) => {
                format!("{key} is a list of tables: expected {}, seen [{key}]", T::TITLE)
            }
            other => format!("expected {} tables, seen {}", T::TITLE, article(other.type_str())),
        };
        self.mistakes.push(Mistake::error(span, message));
        Vec::new()
    }

    /// Takes a table, or a list of tables, and where they stand.
    pub(crate) fn table_or_tables<T: Written>(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Option<(Span, Vec<T>)> {
        if let Some(wanted) = &mut self.wanted {
            let table = table_schema::<T>();
            let list = json!({ "type": "array", "items": table });
            wanted.push((key, json!({ "anyOf": [table, list] })));
            return None;
        }
        let value = self.remove(key)?;
        #[cfg(debug_assertions)]
        recorded::key(self.title, key, None);
        let span = value.span();
        let seen = match value.into_inner() {
            DeValue::Array(items) => {
                let tables = items.into_iter().filter_map(|item| self.nested(item)).collect();
                return Some((span, tables));
            }
            table @ DeValue::Table(_) => {
                let table = self.nested(Spanned::new(span.clone(), table));
                return Some((span, table.into_iter().collect()));
            }
            other => article(other.type_str()),
        };
        let message = format!("{key} of {}: expected {expected}, seen {seen}", self.title);
        self.mistakes.push(Mistake::error(span, message));
        None
    }

    fn nested<T: Written>(&mut self, value: Spanned<DeValue<'i>>) -> Option<T> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(entries) => Some(TableReader::read(span, entries, self.mistakes)),
            other => {
                let seen = article(other.type_str());
                let message = format!("{}: expected a table, seen {seen}", T::TITLE);
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
            let all = super::keys();
            let (_, have) = all.iter().find(|(title, _)| *title == table).expect(table);
            keys.iter().for_each(|key| assert!(have.contains(key), "{key} of {table} is gone"));
        };
        has("[server]", &["shards", "memory", "control", "state"]);
        has("[[disk]]", &["name", "uri"]);
        has("[[volume]]", &["name", "layout", "disks", "chunk", "block_size", "uuid"]);
        has(
            "[[listener]]",
            &["nvme", "iscsi", "poll_us", "aoe", "link", "vlan", "advertise", "chap"],
        );
        has("[[link]]", &["name", "ethernet", "vlan", "access"]);
        has("[[host]]", &["name", "nvme", "iscsi", "aoe", "iscsi_chap"]);
        has("[[export]]", &["volume", "nvme", "iscsi", "aoe"]);
        has("nvme of [[export]]", &["subsystem", "nsid", "hosts"]);
        has("iscsi of [[export]]", &["target", "lun", "hosts", "chap"]);
        has("chap", &["user", "secret_file", "mutual"]);
        has("mutual of chap", &["user", "secret_file"]);
        has("aoe of [[export]]", &["interface", "shelf", "slot", "hosts"]);
    }

    #[test]
    fn every_key_of_the_table_is_read() {
        // A date is the wrong type for all of them: each must be refused for that, none as unknown.
        fn within(title: &str, inner: &str) -> String {
            match title.split_once(" of ") {
                Some((kind, outer)) => within(outer, &format!("{kind} = {{ {inner} }}")),
                // Those that stand in several tables.
                None => match ["chap of [[listener]]", "bfd of [[neighbour]]", "backup of [[lsp]]"]
                    .into_iter()
                    .find(|one| one.split(' ').next() == Some(title))
                {
                    Some(title) => within(title, inner),
                    None => format!("{title}\n{inner}\n"),
                },
            }
        }
        for (title, keys) in super::keys() {
            for key in keys {
                let text = within(title, &format!("{key} = 2026-11-01"));
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
