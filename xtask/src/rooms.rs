//! The walls between the rooms: which crate may use which, who is pure, and where unsafe code may live.
//!
//! ARCHITECTURE.md draws the picture; the table here is what holds it. Three things are checked:
//! dependencies (from `cargo metadata`), `#![forbid(unsafe_code)]` at the top of every crate but two, and that
//! pure crates name nothing of the standard library that reads the world: no clock, threads, sockets, files or
//! environment, nor hash tables whose order differs from run to run, since the simulator's traces must repeat.
//! What stands in a `#[cfg(test)]` module or in a file named `tests.rs` is free of the last rule.

mod paths;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::tree::Tree;

/// One crate below `crates/`.
struct Room {
    name: &'static str,
    /// The crates it may depend on, ours and others'; `None` means any.
    may_use: Option<&'static [&'static str]>,
    /// Whether it is values in, values out.
    pure: bool,
    /// Whether it may hold unsafe code.
    may_unsafe: bool,
}

impl Room {
    const fn pure(name: &'static str, may_use: &'static [&'static str]) -> Self {
        Self { name, may_use: Some(may_use), pure: true, may_unsafe: false }
    }

    const fn impure(name: &'static str, may_use: &'static [&'static str]) -> Self {
        Self { name, may_use: Some(may_use), pure: false, may_unsafe: false }
    }

    const fn with_unsafe(name: &'static str, may_use: &'static [&'static str]) -> Self {
        Self { name, may_use: Some(may_use), pure: false, may_unsafe: true }
    }
}

/// Every room, floor by floor. A crate that is not here is refused: a new room is a decision.
const ROOMS: &[Room] = &[
    Room::pure("wire", &[]),
    Room::pure("block", &["crc-fast"]),
    Room::pure("contract", &["block"]),
    Room::pure("volume", &["block", "contract"]),
    Room::pure("nvme", &["block", "contract", "wire"]),
    Room::pure("aoe", &["block", "contract", "volume", "wire"]),
    Room::pure("shard", &["aoe", "block", "contract", "nvme", "volume", "wire"]),
    Room::with_unsafe(
        "reactor",
        &["block", "contract", "crc-fast", "io-uring", "libc", "rustix", "socket2"],
    ),
    Room::impure("testkit", &["block", "contract", "wire"]),
    Room::impure(
        "sim",
        &["aoe", "block", "contract", "nvme", "shard", "testkit", "volume", "wire"],
    ),
    Room::impure("lab", &["block", "contract", "hdrhistogram", "serde"]),
    Room::with_unsafe(
        "yardstick",
        &[
            "anyhow",
            "clap",
            "crc-fast",
            "io-uring",
            "libc",
            "rustix",
            "serde_json",
            "socket2",
            "wire",
        ],
    ),
    Room { name: "plateway", may_use: None, pure: false, may_unsafe: false },
];

/// What tests of any room may use besides what the room may.
const TEST_TOOLS: &[&str] = &["proptest", "tempfile", "testkit"];

/// Standard-library paths that read the world or have an order of their own.
const IMPURE: &[&str] = &[
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::collections::hash_map",
    "std::collections::hash_set",
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Checks all walls, printing each breach, and fails if there was one.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    let mut breaches = dependency_breaches(&dependencies(tree)?);
    for room in ROOMS {
        let sources = sources(&tree.root.join("crates").join(room.name).join("src"))?;
        ensure!(!sources.is_empty(), "crates/{} has no sources", room.name);
        for (path, text) in &sources {
            let shown = path.strip_prefix(&tree.root).unwrap_or(path).display().to_string();
            if room.pure && path.file_name().is_none_or(|name| name != "tests.rs") {
                breaches.extend(purity_breaches(&shown, text));
            }
            let is_root = ["src/lib.rs", "src/main.rs"].iter().any(|end| path.ends_with(end));
            if is_root && !room.may_unsafe && !forbids_unsafe(text) {
                breaches.push(format!("{shown}: expected #![forbid(unsafe_code)] at its top"));
            }
        }
    }
    for breach in &breaches {
        println!("{breach}");
    }
    ensure!(breaches.is_empty(), "{} breaches of the walls between rooms", breaches.len());
    println!("{} rooms, no breach", ROOMS.len());
    Ok(())
}

/// A dependency as cargo knows it.
struct Dependency {
    from: String,
    to: String,
    for_tests: bool,
}

/// Every dependency of every crate below `crates/`; a crate without any appears once with an empty `to`.
fn dependencies(tree: &Tree) -> Result<Vec<Dependency>> {
    let output = tree
        .cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("expected a string");
    let list = |value: &Value| value.as_array().cloned().context("expected a list");
    let mut found = Vec::new();
    for package in list(&metadata["packages"])? {
        let from = text(&package["name"])?;
        if !Path::new(&text(&package["manifest_path"])?).starts_with(tree.root.join("crates")) {
            continue;
        }
        found.push(Dependency { from: from.clone(), to: String::new(), for_tests: false });
        for dependency in list(&package["dependencies"])? {
            found.push(Dependency {
                from: from.clone(),
                to: text(&dependency["name"])?,
                for_tests: dependency["kind"] == "dev",
            });
        }
    }
    Ok(found)
}

/// Crates that are no room, and dependencies that the table does not allow.
fn dependency_breaches(found: &[Dependency]) -> Vec<String> {
    let mut breaches = Vec::new();
    for Dependency { from, to, for_tests } in found {
        let Some(room) = ROOMS.iter().find(|room| room.name == from) else {
            if to.is_empty() {
                breaches.push(format!("crates/{from}: no such room in xtask/src/rooms.rs"));
            }
            continue;
        };
        let Some(may_use) = room.may_use else { continue };
        let allowed = to.is_empty()
            || may_use.contains(&to.as_str())
            || (*for_tests && TEST_TOOLS.contains(&to.as_str()));
        if !allowed {
            breaches.push(format!(
                "crates/{from}/Cargo.toml: {from} may not use {to}; it may use {}",
                if may_use.is_empty() { "nothing".to_owned() } else { may_use.join(", ") }
            ));
        }
    }
    breaches
}

/// Impure names in one file, each with its line.
fn purity_breaches(shown: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for (line, path) in paths::standard_library(text) {
        let direct = IMPURE.iter().find(|impure| {
            path == **impure
                || path.strip_prefix(*impure).is_some_and(|rest| rest.starts_with("::"))
        });
        // `use std::time;` or `use std::time::*;` would let the rest of the file say `time::Instant`.
        let module = path.strip_suffix("::*").unwrap_or(&path);
        let indirect = IMPURE
            .iter()
            .find(|impure| impure.strip_prefix(module).is_some_and(|rest| rest.starts_with("::")));
        if let Some(impure) = direct {
            breaches.push(format!("{shown}:{line}: a pure crate names {impure}"));
        } else if let Some(impure) = indirect {
            breaches.push(format!(
                "{shown}:{line}: a pure crate names {path} as a whole, which holds {impure}; name the item itself"
            ));
        }
    }
    breaches
}

/// Whether the attribute stands before the first item.
fn forbids_unsafe(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .take_while(|line| line.is_empty() || line.starts_with("//") || line.starts_with("#!["))
        .any(|line| line == "#![forbid(unsafe_code)]")
}

/// Every Rust file below a folder with its text, in the order of their names.
fn sources(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            found.push((path, text));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(from: &str, to: &str, for_tests: bool) -> Dependency {
        Dependency { from: from.into(), to: to.into(), for_tests }
    }

    #[test]
    fn allowed_dependencies_pass() {
        let found = [
            dependency("nvme", "wire", false),
            dependency("wire", "", false),
            dependency("wire", "proptest", true),
            dependency("plateway", "anything", false),
        ];
        assert_eq!(dependency_breaches(&found), Vec::<String>::new());
    }

    #[test]
    fn protocol_that_reaches_for_the_reactor_is_refused() {
        let breaches = dependency_breaches(&[dependency("nvme", "reactor", false)]);
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].contains("nvme may not use reactor"), "{breaches:?}");
    }

    #[test]
    fn test_tool_outside_tests_is_refused() {
        assert_eq!(dependency_breaches(&[dependency("wire", "proptest", false)]).len(), 1);
        assert_eq!(dependency_breaches(&[dependency("wire", "tokio", true)]).len(), 1);
    }

    #[test]
    fn unknown_crate_is_refused_once() {
        let found = [dependency("cellar", "", false), dependency("cellar", "wire", false)];
        assert_eq!(dependency_breaches(&found).len(), 1);
    }

    #[test]
    fn impure_names_are_refused_with_their_line() {
        for planted in [
            "use std::collections::HashMap;",
            "use std::collections::{BTreeMap, HashSet};",
            "use std::collections::hash_map::Entry;",
            "use std::{cmp, time::{Duration, Instant}};",
            "use std::time;",
            "use std::time::*;",
            "fn now() -> u64 { std::time::SystemTime::now() }",
            "fn nap() { ::std::thread::sleep(x) }",
            "use std::net::{IpAddr, TcpStream};",
            "use std::env;",
            "fn load() { std::fs::read(\"x\") }",
            "use std as s;",
        ] {
            let text = format!("//! Top.\n\n{planted}\n");
            let breaches = purity_breaches("x.rs", &text);
            assert_eq!(breaches.len(), 1, "{planted}: {breaches:?}");
            assert!(breaches[0].starts_with("x.rs:3: "), "{planted}: {breaches:?}");
        }
    }

    #[test]
    fn pure_names_comments_strings_and_tests_pass() {
        let text = r##"
            //! Unlike std::thread, this ... std::fs
            use std::collections::{BTreeMap, VecDeque, btree_map::Entry};
            use std::net::IpAddr;
            use std::{fmt, ops::Range, time::Duration};
            use block::time::Instant;
            /* std::env /* nested */ std::fs */
            const TEXT: &str = "std::fs \" std::env";
            const RAW: &str = r#"std::thread "quoted" "#;
            const QUOTE: char = '"';
            fn lifetime<'a>(x: &'a str) -> &'a str { x }
            #[cfg(test)]
            mod tests {
                use std::collections::HashSet;
                fn inner() { std::fs::read("{") }
            }
        "##;
        assert_eq!(purity_breaches("x.rs", text), Vec::<String>::new());
    }

    #[test]
    fn what_follows_a_test_module_is_checked_again() {
        let text = "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\nuse std::fs;\n";
        assert_eq!(purity_breaches("x.rs", text).len(), 1);
    }

    #[test]
    fn missing_or_late_forbid_is_noticed() {
        assert!(forbids_unsafe("//! Top.\n\n#![forbid(unsafe_code)]\nmod a;\n"));
        assert!(!forbids_unsafe("//! Top.\nmod a;\n"));
        assert!(!forbids_unsafe("//! Top: #![forbid(unsafe_code)]\nmod a;\n"));
        assert!(!forbids_unsafe("mod a;\n#![forbid(unsafe_code)]\n"));
    }
}
