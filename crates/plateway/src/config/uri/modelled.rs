//! `model:NAME[?OPTIONS],URI`: which kind of disk the one inside is to be as slow as.
//!
//! NAME is one of the reactor's models, or the path of a file of TOML, which has a `/` or a `.`. Options
//! and the keys of a file are the same words, in one table (`WORDS`); what is not said is as in the
//! named model, or in a file as in a model of one channel that takes no time. Since an instrument
//! ends at its first comma, a comma in the path is `%2C`, as `?` is `%3F`.
//!
//! In: texts. Out: a [`ModelUri`], which is what was written; and by [`ModelUri::model`], which reads
//! the file, the [`Model`] that it means. Units: those of their names, turns in a minute. Errors: of a
//! URI with the column, of a file all of them, each with its line. What takes how long: the reactor.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use reactor::disk::{
    MODEL_CACHE_MIB_MAX, MODEL_CHANNELS_MAX, MODEL_MB_S_MAX, MODEL_POWER_MS_MAX, MODEL_RPM_MAX,
    MODEL_US_MAX, Model, Spread,
};
use toml::de::{DeTable, DeValue};

use super::parse::Parser;
use super::{Encoded, UriError};
use crate::config::mistake::{Mistake, Mistakes, Sources, nearest};

/// A model as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelUri {
    pub(crate) base: Base,
    pub(crate) options: Values,
}

/// What options change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// A model of the reactor.
    Named(&'static str),
    /// A file, relative to the working directory of the process unless absolute.
    File(PathBuf),
}

/// The words that were written, in the order of `WORDS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values([Option<u64>; WORDS.len()]);

/// A word of a model: an option, and a key of a file.
struct Word {
    key: &'static str,
    /// What it may be; of `service` the places of `SPREADS`.
    range: (u64, u64),
    set: fn(&mut Model, u64),
    /// As documentation shows it.
    #[cfg(test)]
    get: fn(&Model) -> Option<u64>,
}

/// Declares the words: key, range, and the field of the model.
macro_rules! words {
    ($($key:literal $range:expr, $field:ident: $put:expr, $got:expr;)*) => {
        [$(Word {
            key: $key,
            range: $range,
            set: |model, value| model.$field = ($put)(value),
            #[cfg(test)]
            get: |model| ($got)(model.$field),
        }),*]
    };
}

const US: (u64, u64) = (0, MODEL_US_MAX);

const WORDS: [Word; 15] = words! {
    "channels" (1, MODEL_CHANNELS_MAX), channels: |n| n, Some;
    "service" (0, SPREADS.len() as u64 - 1), service: |n| SPREADS[n as usize].1, |s| Some(s as u64);
    "service_us" US, service_us: |n| n, Some;
    "service_write_us" US, service_write_us: Some, |us| us;
    "seek_us" US, seek_us: |n| n, Some;
    "seek_track_us" US, seek_track_us: |n| n, Some;
    "seek_write_us" US, seek_write_us: |n| n, Some;
    "rpm" (0, MODEL_RPM_MAX), rpm: |n| n, Some;
    "rate_mb_s" (0, MODEL_MB_S_MAX), rate_mb_s: |n| n, Some;
    "trim_us" US, trim_us: |n| n, Some;
    "cache_mib" (0, MODEL_CACHE_MIB_MAX), cache_mib: |n| n, Some;
    "cache_us" US, cache_us: |n| n, Some;
    "cut_ms" (0, MODEL_POWER_MS_MAX), cut_ms: |n| n, Some;
    "off_ms" (0, MODEL_POWER_MS_MAX), off_ms: |n| n, Some;
    "seed" (0, u64::MAX), seed: |n| n, Some;
};

/// The word whose values are words, in the order in which the reactor names them.
const SPREADS: [(&str, Spread); 3] = [
    ("constant", Spread::Constant),
    ("uniform", Spread::Uniform),
    ("exponential", Spread::Exponential),
];

/// The longest file that is read. All words fit into a hundredth of it.
const FILE_MAX: u64 = 64 << 10;

impl Word {
    fn is_spread(&self) -> bool {
        self.key == "service"
    }

    fn expected(&self) -> String {
        match self.is_spread() {
            true => SPREADS.map(|(name, _)| name).join(", "),
            false => format!("{} to {}", self.range.0, self.range.1),
        }
    }

    fn number(&self, text: &str, radix: u32) -> Option<u64> {
        let number = u64::from_str_radix(text, radix).ok();
        number.filter(|number| !self.is_spread() && (self.range.0..=self.range.1).contains(number))
    }

    fn spread(&self, text: &str) -> Option<u64> {
        let place = SPREADS.iter().position(|(name, _)| self.is_spread() && *name == text);
        place.map(|place| place as u64)
    }
}

impl Values {
    fn keys() -> [&'static str; WORDS.len()] {
        WORDS.map(|word| word.key)
    }

    fn change(&self, model: &mut Model) {
        for (word, value) in WORDS.iter().zip(self.0) {
            if let Some(value) = value {
                (word.set)(model, value);
            }
        }
    }
}

/// What only the whole of a model shows to be wrong.
fn mistake_of(model: &Model) -> Option<String> {
    let Model { seek_us, seek_track_us, .. } = model;
    (seek_track_us > seek_us).then(|| {
        format!(
            "expected seek_us, the mean, of at least seek_track_us, the shortest, which is {seek_track_us}, seen {seek_us}"
        )
    })
}

impl ModelUri {
    /// What stands before the comma.
    pub(super) fn parse(parser: &Parser<'_>, at: Range<usize>) -> Result<ModelUri, UriError> {
        let (name_at, query) = parser.split_query(at);
        let name = &parser.uri[name_at.clone()];
        let base = match Model::NAMED.iter().find(|(known, _)| *known == name) {
            Some((known, _)) => Base::Named(known),
            None if name.contains(['/', '.']) => Base::File(parser.path(name_at)?),
            None => return Err(unknown(parser, name_at)),
        };
        let mut options = Values::default();
        let whole = query.clone();
        for (key, value) in parser.options(query, &Values::keys())? {
            let place =
                WORDS.iter().position(|word| word.key == key).expect("it is among the keys");
            let (word, text) = (&WORDS[place], &parser.uri[value.clone()]);
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let number = if is_number { word.number(text, 10) } else { word.spread(text) };
            let expected = || parser.expected(value, &format!("{key} of {}", word.expected()));
            options.0[place] = Some(number.ok_or_else(expected)?);
        }
        if let (Base::Named(name), Some(at)) = (&base, whole) {
            let mut model = Model::named(name).expect("it was found by its name");
            options.change(&mut model);
            mistake_of(&model).map_or(Ok(()), |mistake| Err(parser.fail(at, mistake)))?;
        }
        Ok(ModelUri { base, options })
    }

    /// What it means; reads the file, if it names one.
    pub(crate) fn model(&self) -> Result<Model, String> {
        let mut model = match &self.base {
            Base::Named(name) => Model::named(name).expect("a model that was parsed"),
            Base::File(path) => read(path)?,
        };
        self.options.change(&mut model);
        mistake_of(&model).map_or(Ok(model), |mistake| Err(format!("{}: {mistake}", self.base)))
    }

    /// The same with the path of its file behind another.
    pub(crate) fn joined_to(&self, directory: &Path) -> ModelUri {
        match &self.base {
            Base::Named(_) => self.clone(),
            Base::File(path) => {
                ModelUri { base: Base::File(directory.join(path)), options: self.options }
            }
        }
    }
}

fn unknown(parser: &Parser<'_>, at: Range<usize>) -> UriError {
    let names = Model::NAMED.map(|(name, _)| name);
    let expected = format!("{} or the path of a model's file, such as ./my.toml", names.join(", "));
    let meant = nearest(&parser.uri[at.clone()], names).map(|name| format!("did you mean {name}?"));
    UriError { help: meant, ..parser.expected(at, &expected) }
}

fn read(path: &Path) -> Result<Model, String> {
    let name = path.display().to_string();
    let refused = |seen: String| format!("{name}: expected the file of a model, seen {seen}");
    // Before it is opened: nobody may ever write to a pipe.
    let kind = path.metadata().map_err(|error| refused(error.to_string()))?.file_type();
    if !kind.is_file() {
        return Err(refused("something else than a regular file".to_owned()));
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text))
        .map_err(|error| refused(error.to_string()))?;
    if text.len() as u64 > FILE_MAX {
        return Err(refused(format!("one of more than {FILE_MAX} bytes")));
    }
    model_of(&name, &text).map_err(|mistakes| mistakes.plain_lines().join("; "))
}

/// What the text of a model's file says; `name` is what messages call it.
pub(crate) fn model_of(name: &str, text: &str) -> Result<Model, Mistakes> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut mistakes: Vec<Mistake> = Vec::new();
    mistakes.extend(errors.iter().map(|e| Mistake::error(e.span().unwrap_or(0..0), e.message())));
    let mut values = Values::default();
    // What a damaged text holds is a guess.
    let entries = if mistakes.is_empty() { root.into_inner() } else { DeTable::new() };
    for (key, value) in entries {
        let (span, key) = (key.span(), key.into_inner());
        let Some(place) = WORDS.iter().position(|word| word.key == key) else {
            let help = match nearest(&key, Values::keys()) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("known keys: {}", Values::keys().join(", ")),
            };
            let message = format!("{key:?} is not a key of a model");
            mistakes.push(Mistake::error(span, message).help(help));
            continue;
        };
        let word = &WORDS[place];
        values.0[place] = match value.get_ref() {
            DeValue::Integer(number) => word.number(number.as_str(), number.radix()),
            DeValue::String(text) => word.spread(text),
            _ => None,
        };
        if values.0[place].is_none() {
            let seen = text[value.span()].lines().next().unwrap_or_default();
            let message = format!("{key}: expected {}, seen {seen}", word.expected());
            mistakes.push(Mistake::error(value.span(), message));
        }
    }
    if !mistakes.is_empty() {
        let mut sources = Sources::default();
        sources.add(name, text);
        return Err(Mistakes::locate(&sources, mistakes));
    }
    let mut model = Model::PLAIN;
    values.change(&mut model);
    Ok(model)
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Base::Named(name) => f.write_str(name),
            Base::File(path) => write!(f, "{}", Encoded(path.as_os_str().as_bytes(), "?,")),
        }
    }
}

/// What stands before the comma.
impl fmt::Display for ModelUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base)?;
        let written = WORDS.iter().zip(self.options.0).filter_map(|(word, value)| {
            let value = value?;
            Some((word, value))
        });
        for (index, (word, value)) in written.enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            match word.is_spread() {
                true => write!(f, "{mark}{}={}", word.key, SPREADS[value as usize].0)?,
                false => write!(f, "{mark}{}={value}", word.key)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "modelled_tests.rs"]
mod tests;
