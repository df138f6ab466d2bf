//! What the tests of the workspace passed through, against all that there is.
//!
//! Test builds append to a file what they passed through (crates/block/src/record.rs). What there is
//! comes from who knows it: options, configuration keys and routes are told by a test of the program
//! itself; variants of mail and of its parts, statuses of the wires and the places where the program
//! refuses something are read from the sources, which rustfmt keeps in a form that lines tell. What
//! no test can pass through says why in a comment right above it that begins with `Unrecorded:`, and
//! is wrong where one passed through after all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{Table, presets};

use crate::tree::Tree;

/// Names the file to the tests; crates/block/src/record.rs has it, too.
pub(crate) const VARIABLE: &str = "PLATEWAY_RECORD";

/// Enums of which every variant is passed through, as [`std::any::type_name`] calls them: where they
/// are follows from that. One that is recorded and not here is an error.
const ENUMS: &[&str] = &[
    "shard::mail::Mail",
    "shard::mail::Order",
    "shard::mail::DiskMessage",
    "shard::mail::Answer",
    "shard::mail::News",
    "shard::mail::ImportEvent",
    "shard::protocols::ProtocolMessage",
    "shard::protocols::agreed::StoreKey",
    "volume::message::Message",
    "nvme::message::Message",
    "iscsi::message::Message",
    "reservation::replica::Message",
    "contract::session::HostEvent",
    "contract::session::Refused",
];

/// How the program says no, each with a place in its sources.
const REFUSALS: &[&str] =
    &["Mistake::error(", "Mistake::warning(", "RunError::new(", "RunError::unrecognised("];

/// Statuses of the wires: the type, where its names are, and where targets give them.
const STATUSES: &[(&str, &str, &[&str])] = &[
    (
        "Status",
        "crates/wire/src/nvme/status.rs",
        &["crates/nvme/src", "!crates/nvme/src/tcp/initiator", "!crates/nvme/src/fixtures.rs"],
    ),
    (
        "FatalErrorStatus",
        "crates/wire/src/nvme_tcp/connection.rs",
        &["crates/nvme/src/tcp/server", "crates/nvme/src/tcp/pdu_stream.rs"],
    ),
    ("ErrorCode", "crates/wire/src/aoe.rs", &["crates/aoe/src/server"]),
    ("ErrorBits", "crates/wire/src/ata.rs", &["crates/aoe/src/server"]),
    (
        "AdditionalSense",
        "crates/wire/src/scsi/sense/additional.rs",
        &["crates/scsi/src", "!crates/scsi/src/attention.rs"],
    ),
];

/// One thing that tests are to pass through.
struct Known {
    name: String,
    /// Whether a comment above says why none does.
    unrecorded: bool,
}

/// An empty record.
pub(crate) fn begin(tree: &Tree) -> PathBuf {
    let path = file(tree);
    let _ = fs::remove_file(&path);
    path
}

/// Where the record is.
pub(crate) fn file(tree: &Tree) -> PathBuf {
    tree.target.join("record.tsv")
}

/// Compares, prints, and is false where something was passed by.
pub(crate) fn check(tree: &Tree) -> Result<bool> {
    let text = fs::read_to_string(file(tree)).context("the unit tests left no record")?;
    let mut recorded: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines() {
        let (kind, name) = line.split_once('\t').with_context(|| format!("no record: {line:?}"))?;
        recorded.entry(kind).or_default().insert(name);
    }
    let mut kinds: BTreeMap<&str, Vec<Known>> = BTreeMap::new();
    for kind in ["option", "key", "route"] {
        let known = recorded.get(&*format!("known {kind}")).into_iter().flatten();
        let known = known.map(|name| Known { name: (*name).to_owned(), unrecorded: false });
        kinds.insert(kind, known.collect());
    }
    kinds.insert("mail", mail(tree)?);
    kinds.insert("refusal", refusals(tree)?);
    kinds.insert("status", statuses(tree)?);

    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["kind", "known", "passed", "excepted"]);
    let mut wrong = Vec::new();
    for (kind, known) in &kinds {
        ensure!(!known.is_empty(), "nothing is known of the kind {kind}");
        let passed = recorded.remove(kind).unwrap_or_default();
        let count = |of: fn(bool, bool) -> bool| {
            known.iter().filter(|one| of(passed.contains(&*one.name), one.unrecorded)).count()
        };
        table.add_row([
            (*kind).to_owned(),
            known.len().to_string(),
            count(|passed, _| passed).to_string(),
            count(|_, unrecorded| unrecorded).to_string(),
        ]);
        for one in known {
            match (passed.contains(&*one.name), one.unrecorded) {
                (false, false) => {
                    wrong.push(format!("{kind} {}: no test passed through", one.name))
                }
                (true, true) => wrong.push(format!("{kind} {}: not unrecorded", one.name)),
                _ => {}
            }
        }
        if *kind == "mail" {
            let is_known = |name: &str| {
                ENUMS.iter().any(|path| name.rsplit_once("::").is_some_and(|(of, _)| of == *path))
            };
            wrong.extend(passed.iter().filter(|name| !is_known(name)).map(|name| {
                format!("mail {name}: recorded, and not among ENUMS of xtask/src/record.rs")
            }));
        }
    }
    println!("{table}");
    wrong.iter().for_each(|line| println!("{line}"));
    let skipped = recorded.remove("skipped").unwrap_or_default();
    if !wrong.is_empty() && !skipped.is_empty() {
        println!("which may be because tests were skipped, and is not held against them:");
        skipped.iter().for_each(|why| println!("skipped: {why}"));
        return Ok(true);
    }
    Ok(wrong.is_empty())
}

/// Each variant of [`ENUMS`].
fn mail(tree: &Tree) -> Result<Vec<Known>> {
    let mut all = Vec::new();
    for path in ENUMS {
        let (module, name) = path.rsplit_once("::").context("a path")?;
        let (krate, module) = module.split_once("::").context("a path")?;
        let file = format!("crates/{krate}/src/{}.rs", module.replace("::", "/"));
        let text = read(&tree.root.join(&file))?;
        let known = variants(&text, name);
        ensure!(!known.is_empty(), "{file} has no enum {name}");
        all.extend(
            known.into_iter().map(|one| Known { name: format!("{path}::{}", one.name), ..one }),
        );
    }
    Ok(all)
}

fn variants(text: &str, name: &str) -> Vec<Known> {
    let opens = |line: &str| {
        line.strip_prefix("pub enum ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with([' ', '<']))
    };
    let lines: Vec<&str> = text.lines().collect();
    let Some(from) = lines.iter().position(|line| opens(line)) else { return Vec::new() };
    let end =
        lines[from..].iter().position(|line| *line == "}").map_or(lines.len(), |at| from + at);
    let variant = |at: usize| {
        let line = lines[at].strip_prefix("    ").filter(|l| l.starts_with(char::is_uppercase))?;
        let name = line.split(|c: char| !c.is_alphanumeric()).next()?;
        Some(Known { name: name.to_owned(), unrecorded: unrecorded(&lines, at) })
    };
    (from + 1..end).filter_map(variant).collect()
}

/// Each place of [`REFUSALS`] in the program, as the compiler names it.
fn refusals(tree: &Tree) -> Result<Vec<Known>> {
    let mut all = Vec::new();
    for path in sources(&tree.root.join("crates/plateway/src"))? {
        let name = path.strip_prefix(&tree.root)?.display().to_string();
        all.extend(places(&name, &read(&path)?));
    }
    Ok(all)
}

fn places(file: &str, text: &str) -> Vec<Known> {
    let lines = code(text);
    let mut all = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
        for call in REFUSALS {
            for (column, _) in line.match_indices(call) {
                let column = line[..column].chars().count() + 1;
                let name = format!("{file}:{}:{column}", at + 1);
                all.push(Known { name, unrecorded: unrecorded(&lines, at) });
            }
        }
    }
    all
}

/// Each status that a target's code names.
fn statuses(tree: &Tree) -> Result<Vec<Known>> {
    let mut all: BTreeMap<String, bool> = BTreeMap::new();
    for (kind, names, places) in STATUSES {
        let names = read(&tree.root.join(names))?;
        let without: Vec<_> = places
            .iter()
            .filter_map(|path| path.strip_prefix('!'))
            .map(|path| tree.root.join(path))
            .collect();
        for path in places.iter().filter(|path| !path.starts_with('!')) {
            for file in sources(&tree.root.join(path))? {
                if without.iter().any(|path| file.starts_with(path)) {
                    continue;
                }
                let text = read(&file)?;
                let lines = code(&text);
                for (at, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
                    for konst in named(line, kind) {
                        let text = status_text(&names, kind, konst)
                            .with_context(|| format!("{kind}::{konst} has no text"))?;
                        // It is excepted where all places say so.
                        *all.entry(text).or_insert(true) &= unrecorded(&lines, at);
                    }
                }
            }
        }
    }
    Ok(all.into_iter().map(|(name, unrecorded)| Known { name, unrecorded }).collect())
}

/// Constants of a type that a line names.
fn named<'a>(line: &'a str, kind: &str) -> Vec<&'a str> {
    let path = format!("{kind}::");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(&path)
        .filter(|(at, _)| !line[..*at].ends_with(is_word))
        .filter_map(|(at, _)| line[at + path.len()..].split(|c| !is_word(c)).next())
        .filter(|name| name.len() > 1 && !name.contains(char::is_lowercase))
        .collect()
}

/// How a constant is shown, of `NAME = 0x1 "text",` or `pub const NAME: Self = Self(0x1);`.
fn status_text(names: &str, kind: &str, konst: &str) -> Option<String> {
    let lines = names.lines().map(str::trim);
    lines.into_iter().find_map(|line| {
        let rest = line.strip_prefix("pub const ").unwrap_or(line).strip_prefix(konst)?;
        if let Some(rest) = rest.strip_prefix(" = ") {
            return Some(rest.split('"').nth(1)?.to_owned());
        }
        let number = rest.strip_prefix(": Self = Self(")?.strip_suffix(");")?;
        Some(format!("{kind} {number}"))
    })
}

/// The lines before the file's tests.
fn code(text: &str) -> Vec<&str> {
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..end].lines().collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Whether the comment right above a line says why no test passes through.
fn unrecorded(lines: &[&str], at: usize) -> bool {
    let above = lines[..at].iter().rev().take_while(|line| is_comment(line));
    above.into_iter().any(|line| line.contains("// Unrecorded:"))
}

/// The sources below a folder, or one file, without those of tests.
fn sources(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() || path.extension().is_some_and(|end| end == "rs") {
            all.extend(sources(&path)?);
        }
    }
    all.sort();
    Ok(all)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(known: Vec<Known>) -> Vec<(String, bool)> {
        known.into_iter().map(|one| (one.name, one.unrecorded)).collect()
    }

    #[test]
    fn variants_are_found_with_their_exceptions() {
        let text = "pub enum Other {\n    No,\n}\npub enum Mail<V> {\n    /// One.\n    One {\n        \
                    Two: u8,\n    },\n    // Unrecorded: it takes a\n    // year.\n    Three(u8),\n}\n";
        assert_eq!(shown(variants(text, "Mail")), [("One".into(), false), ("Three".into(), true)]);
        assert!(variants(text, "Ma").is_empty());
    }

    #[test]
    fn places_of_refusals_are_those_of_the_compiler() {
        let text = "// RunError::new(\n    let é = Err(RunError::new(x));\n    // Unrecorded: no.\n    \
                    Mistake::error(\n#[cfg(test)]\nmod tests {\n    RunError::new(\n";
        assert_eq!(
            shown(places("a.rs", text)),
            [("a.rs:2:17".into(), false), ("a.rs:4:5".into(), true)]
        );
    }

    #[test]
    fn statuses_are_found_and_shown_as_the_wire_crate_shows_them() {
        let line =
            "FatalErrorStatus::LIMIT_EXCEEDED, Status::FUSED_FAILED.with_dnr(), Status::from_word";
        assert_eq!(named(line, "Status"), ["FUSED_FAILED"]);
        assert_eq!(named(line, "FatalErrorStatus"), ["LIMIT_EXCEEDED"]);
        let names = "    A_B = 0x001 \"text, of it\",\n    pub const A: Self = Self(0x04);\n";
        assert_eq!(status_text(names, "Status", "A_B").as_deref(), Some("text, of it"));
        assert_eq!(status_text(names, "ErrorBits", "A").as_deref(), Some("ErrorBits 0x04"));
    }
}
