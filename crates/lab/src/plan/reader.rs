//! Reads the tables of a plan file key by key, every value with its span.
//!
//! In comes TOML, out come tables as they were written ([`super::low`] says which there are); no
//! value is understood here beyond its type. One run reports every unknown key and every wrong
//! type, not only the first; what could be read is returned all the same. The reader of
//! `plateway.toml` works the same way.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistake::{Mistake, Span};

/// A value that may be absent, with its span.
pub(super) type Low<T> = Option<Spanned<T>>;

/// A table of the file.
pub(super) trait Written: Sized {
    /// As messages call it: `[[system]]`.
    const TITLE: &'static str;

    /// What it may hold.
    fn keys() -> Vec<&'static str>;

    /// Takes every key.
    fn take(table: &mut Reader<'_, '_>) -> Self;
}

/// Declares a table: its title, its keys with their types, and what a message expects where
/// something else is seen. `+ LowLoad` adds the keys of a load.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident = $title:literal $(+ $rest:ident)? {
        $($(#[$doc:meta])* $field:ident $key:literal: $type:ty = $expected:expr,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub(super) struct $name {
            /// Of the table's header, or of the whole value.
            pub(super) span: $crate::mistake::Span,
            $(
                /// How it is loaded.
                pub(super) load: $rest,
            )?
            $($(#[$doc])* pub(super) $field: $crate::plan::reader::Low<$type>,)*
            /// Keys that are there, and of a type that was refused.
            pub(super) refused: Vec<&'static str>,
        }

        impl $crate::plan::reader::Written for $name {
            const TITLE: &'static str = $title;

            fn keys() -> Vec<&'static str> {
                #[allow(unused_mut, reason = "few tables have the keys of another")]
                let mut keys = vec![$($key),*];
                $(keys.extend($rest::keys());)?
                keys
            }

            fn take(table: &mut $crate::plan::reader::Reader<'_, '_>) -> Self {
                Self {
                    span: table.span.clone(),
                    $(load: $rest::take(table),)?
                    $($field: table.value($key, $expected),)*
                    refused: std::mem::take(&mut table.refused),
                }
            }
        }
    };
}
pub(super) use table;

/// A table being read: keys are taken one by one, and what is left at the end is unknown.
pub(super) struct Reader<'i, 'm> {
    title: &'static str,
    pub(super) span: Span,
    entries: DeTable<'i>,
    /// Keys that were refused.
    pub(super) refused: Vec<&'static str>,
    mistakes: &'m mut Vec<Mistake>,
}

/// Reads the whole text. Nothing where it is no TOML: what a damaged text holds is a guess, and
/// mistakes found in it would mislead.
pub(super) fn read<T: Written>(text: &str, mistakes: &mut Vec<Mistake>) -> Option<T> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mistake = |error: &toml::de::Error| {
            Mistake::new(error.span().unwrap_or(0..0), error.message().replace('\n', ", "))
        };
        mistakes.extend(errors.iter().map(mistake));
        return None;
    }
    Some(read_table(root.span(), root.into_inner(), mistakes))
}

fn read_table<T: Written>(span: Span, entries: DeTable<'_>, mistakes: &mut Vec<Mistake>) -> T {
    let mut table = Reader { title: T::TITLE, span, entries, refused: Vec::new(), mistakes };
    let low = T::take(&mut table);
    let known = T::keys();
    for (key, _) in std::mem::take(&mut table.entries) {
        let (span, name) = (key.span(), key.into_inner());
        let message = format!("{name:?} is not a key of {}", T::TITLE);
        let mistake = Mistake::new(span, message);
        table.mistakes.push(mistake.meant(&name, known.iter().copied(), "known keys"));
    }
    low
}

impl Reader<'_, '_> {
    /// Takes a value; `expected` is what the message says where its type is wrong.
    pub(super) fn value<T: Value>(&mut self, key: &'static str, expected: &'static str) -> Low<T> {
        let value = self.entries.remove(key)?;
        let span = value.span();
        let mut place = Place { title: self.title, key, expected, mistakes: self.mistakes };
        let read = T::read(value, &mut place);
        if read.is_none() {
            self.refused.push(key);
        }
        read.map(|read| Spanned::new(span, read))
    }
}

/// Of which key a value is read.
pub(super) struct Place<'m> {
    title: &'static str,
    key: &'static str,
    expected: &'static str,
    mistakes: &'m mut Vec<Mistake>,
}

impl Place<'_> {
    /// Says that something else was expected.
    fn wrong<T>(&mut self, span: Span, seen: &DeValue<'_>) -> Option<T> {
        let Place { title, key, expected, .. } = self;
        let seen = article(seen.type_str());
        let message = format!("{key} of {title}: expected {expected}, seen {seen}");
        self.mistakes.push(Mistake::new(span, message));
        None
    }
}

fn article(noun: &str) -> String {
    let is_vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if is_vowel { "an" } else { "a" })
}

/// What a key may have.
pub(super) trait Value: Sized {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<Self>;
}

impl Value for String {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            other => place.wrong(value.span(), other),
        }
    }
}

impl Value for bool {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(is) => Some(*is),
            other => place.wrong(value.span(), other),
        }
    }
}

/// A text or a number, which are understood alike: `"4k"` and `4096`. Displays as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalar {
    pub(super) text: String,
    is_quoted: bool,
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_quoted { write!(f, "{:?}", self.text) } else { f.write_str(&self.text) }
    }
}

impl Value for Scalar {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<Scalar> {
        let (text, is_quoted) = match value.get_ref() {
            DeValue::String(text) => (text.clone().into_owned(), true),
            DeValue::Integer(number) => {
                let read = u64::from_str_radix(number.as_str(), number.radix());
                (read.map_or(number.to_string(), |read| read.to_string()), false)
            }
            DeValue::Float(number) => (number.as_str().to_owned(), false),
            other => return place.wrong(value.span(), other),
        };
        Some(Scalar { text, is_quoted })
    }
}

/// One value or a list of them.
#[derive(Clone, Debug)]
pub(super) struct Many<T>(pub(super) Vec<Spanned<T>>);

impl<T: Value> Value for Many<T> {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<Many<T>> {
        let span = value.span();
        let items = match value.into_inner() {
            DeValue::Array(items) => items.into_iter().collect(),
            other => vec![Spanned::new(span.clone(), other)],
        };
        if items.is_empty() {
            let Place { title, key, expected, .. } = place;
            let message = format!("{key} of {title}: expected {expected}, seen an empty list");
            place.mistakes.push(Mistake::new(span, message));
            return None;
        }
        let count = items.len();
        let item = |item: Spanned<DeValue<'_>>| {
            let span = item.span();
            T::read(item, place).map(|read| Spanned::new(span, read))
        };
        let read: Vec<Spanned<T>> = items.into_iter().filter_map(item).collect();
        // What was refused is told; the rest alone would mean something else.
        (read.len() == count).then_some(Many(read))
    }
}

impl<T: Written> Value for T {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<T> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(entries) => Some(read_table(span, entries, place.mistakes)),
            other => place.wrong(span, &other),
        }
    }
}

/// A list of tables, written `[[key]]`.
#[derive(Debug)]
pub(super) struct Tables<T>(pub(super) Vec<T>);

impl<T: Written> Value for Tables<T> {
    fn read(value: Spanned<DeValue<'_>>, place: &mut Place<'_>) -> Option<Tables<T>> {
        let (span, title) = (value.span(), T::TITLE);
        let message = match value.into_inner() {
            DeValue::Array(items) => {
                let tables = items.into_iter().filter_map(|item| T::read(item, place));
                return Some(Tables(tables.collect()));
            }
            DeValue::Table(_) => {
                let key = place.key;
                format!("{key} is a list of tables: expected {title}, seen [{key}]")
            }
            other => format!("expected {title} tables, seen {}", article(other.type_str())),
        };
        place.mistakes.push(Mistake::new(span, message));
        None
    }
}
