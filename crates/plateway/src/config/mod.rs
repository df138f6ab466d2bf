//! The configuration: from a file or flags to a value that the rest of the program can trust.
//!
//! ```text
//! plateway.toml --file--> LowArgs --resolve--> HiArgs --plan--> steps of `apply`
//! flags of serve --quick-----^
//! ```
//!
//! Read `model.rs` first: it says what a configuration is, and then `thing.rs`. Each kind of thing
//! has a room (`disk.rs`, `volume.rs`, `listener.rs`, `link.rs`, `export.rs`, `metrics.rs`, and
//! `server.rs` beside them): its keys, their checks, and how it may change. `file.rs` reads tables,
//! `resolve.rs` has what all checks need, `mistake.rs` how they are shown, `places.rs` where things
//! were written, `plan.rs` the difference of two configurations, `text.rs` how one is written out;
//! `schema.rs` what editors may know of it; `uri.rs`, `size.rs` and `address.rs` are the words. For
//! users: docs/configuration.md. Not here: what belongs to one protocol (`protocols`); opening,
//! serving or changing anything.

pub(crate) mod address;
pub(crate) mod defaults;
pub(crate) mod disk;
pub(crate) mod edit;
pub(crate) mod export;
pub(crate) mod file;
pub(crate) mod link;
pub(crate) mod listener;
pub(crate) mod metrics;
pub(crate) mod mistake;
pub(crate) mod model;
pub(crate) mod places;
pub(crate) mod plan;
pub(crate) mod poll;
pub(crate) mod quick;
pub(crate) mod resolve;
pub(crate) mod schema;
pub(crate) mod server;
pub(crate) mod size;
pub(crate) mod text;
pub(crate) mod thing;
pub(crate) mod uri;
pub(crate) mod volume;

use std::path::Path;

use defaults::Defaults;
use file::LowArgs;
use mistake::{Mistake, Mistakes, Sources};
use model::HiArgs;
use places::Places;
use quick::Flags;

/// A configuration that can be used, and what is probably not meant in it.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What it means.
    pub(crate) args: HiArgs,
    /// To be shown, and then ignored.
    pub(crate) warnings: Mistakes,
    /// Where it was written.
    pub(crate) places: Places,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration {path}: {seen}")]
    #[diagnostic(help(
        "docs/configuration.md shows one; disks are served without any by: plateway serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any"
    ))]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        seen: String,
    },
    /// It was read, and is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Wrong(#[from] Mistakes),
}

/// Reads and checks a file.
pub(crate) fn load(path: &Path, defaults: &Defaults) -> Result<Checked, ConfigError> {
    load_with_flags(Some(path), &Flags::default(), defaults)
}

/// Reads and checks what `serve` was given: a file, or disks as flags; flags override `[server]`.
pub(crate) fn load_with_flags(
    path: Option<&Path>,
    flags: &Flags,
    defaults: &Defaults,
) -> Result<Checked, ConfigError> {
    let Some(path) = path else { return Ok(check_texts(None, flags, defaults)?) };
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(check_texts(Some((&name, &text)), flags, defaults)?),
        Err(error) => Err(ConfigError::Unreadable { path: name, seen: error.to_string() }),
    }
}

#[cfg(test)]
/// Checks a configuration that is held as a text; `name` is what messages call it.
pub(crate) fn check(name: &str, text: &str, defaults: &Defaults) -> Result<Checked, Mistakes> {
    check_texts(Some((name, text)), &Flags::default(), defaults)
}

/// Checks a configuration that is held as a text beside flags that override its `[server]`; `name`
/// is what messages call it.
pub(crate) fn check_with_flags(
    name: &str,
    text: &str,
    flags: &Flags,
    defaults: &Defaults,
) -> Result<Checked, Mistakes> {
    check_texts(Some((name, text)), flags, defaults)
}

fn check_texts(
    file: Option<(&str, &str)>,
    flags: &Flags,
    defaults: &Defaults,
) -> Result<Checked, Mistakes> {
    let mut sources = Sources::default();
    let mut mistakes: Vec<Mistake> = Vec::new();
    let mut text = String::new();
    let mut low = Some(LowArgs::default());
    if let Some((name, content)) = file {
        sources.add(name, content);
        low = LowArgs::parse(content, &mut mistakes);
        text.push_str(content);
        // Spans of the command line begin after the file and a byte between them.
        text.push('\n');
    }
    let read = low.and_then(|mut low| {
        let line = flags.merge_into(&mut low, text.len(), &mut mistakes);
        sources.add("command line", &line);
        text.push_str(&line);
        resolve::resolve(&low, &text, defaults, &mut mistakes)
    });
    let found = Mistakes::locate(&sources, mistakes);
    match read {
        Some((args, mut places)) => {
            places.sources = sources;
            Ok(Checked { args, warnings: found, places })
        }
        None => Err(found),
    }
}

#[cfg(test)]
pub(crate) mod tests;
