//! The walls between the rooms: which crate may use which, who is pure, and where unsafe code may
//! live.
//!
//! ARCHITECTURE.md draws the picture; the table here is what holds it. Dependencies are read from
//! `cargo metadata`. Purity (no clock, thread, file, socket or hash order) is refused by clippy,
//! which a pure crate gives one list of names by its `clippy.toml`, a link to `crates/pure.toml`;
//! unsafe code is refused by the workspace's lints, which two rooms alone do not take over. What is
//! left to check here is that these links and lints are in place, that clippy still refuses what we
//! planted, and that the rooms above the protocols name them where the table says and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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
    Room::pure("contract", &["block", "reservation", "wire"]),
    Room::pure("volume", &["block", "contract"]),
    Room::pure("reservation", &["block"]),
    Room::pure("remote", &["block", "contract"]),
    Room::pure("nvme", &["block", "contract", "remote", "reservation", "wire"]),
    Room::pure("aoe", &["block", "contract", "remote", "reservation", "wire"]),
    Room::pure("mpls", &["bfd", "block", "contract", "wire"]),
    Room::pure("bfd", &["block", "contract", "wire"]),
    Room::pure("scsi", &["block", "reservation", "wire"]),
    Room::pure(
        "iscsi",
        &[
            "block",
            "contract",
            "md-5",
            "remote",
            "reservation",
            "scsi",
            "sha1",
            "sha2",
            "sha3",
            "subtle",
            "wire",
        ],
    ),
    Room::pure(
        "shard",
        &["aoe", "block", "contract", "iscsi", "mpls", "nvme", "reservation", "volume", "wire"],
    ),
    Room::pure("netlink", &[]),
    Room::with_unsafe(
        "reactor",
        &["block", "contract", "io-uring", "libc", "netlink", "rustix", "socket2", "thiserror"],
    ),
    Room::impure("testkit", &["block", "contract", "reservation", "wire"]),
    Room::impure(
        "sim",
        &[
            "aoe",
            "block",
            "contract",
            "iscsi",
            "mpls",
            "nvme",
            "reservation",
            "scsi",
            "shard",
            "testkit",
            "volume",
            "wire",
        ],
    ),
    Room::impure(
        "lab",
        &[
            "block",
            "contract",
            "hdrhistogram",
            "serde",
            "serde_json",
            "statrs",
            "strsim",
            "toml",
            "wire",
        ],
    ),
    Room::pure("page", &["lab", "serde_json"]),
    Room::with_unsafe(
        "yardstick",
        &[
            "anyhow",
            "clap",
            "crc",
            "crc-fast",
            "hdrhistogram",
            "io-uring",
            "libc",
            "rustix",
            "serde_json",
            "socket2",
        ],
    ),
    Room::impure("testbed", &["rustix", "thiserror"]),
    Room { name: "plateway", may_use: None, pure: false, may_unsafe: false },
];

/// What tests of any room may use besides what the room may.
const TEST_TOOLS: &[&str] = &["fuser", "tempfile", "testkit"];

/// The lists of names that a pure crate's clippy refuses.
const PURE: &str = "crates/pure.toml";
/// What clippy must refuse, and the mark of the lines where it must.
const PLANTED: (&str, &str) = ("xtask/planted/impure.rs", "// refused");
/// What a manifest says that takes over the workspace's lints, of which one forbids unsafe code.
const LINTS: &str = "[lints]\nworkspace = true\n";

/// The crates above the protocols, and the files that may name them all.
const NAMING: &[(&str, &[&str])] = &[
    ("shard", &["protocols.rs", "protocols/agreed.rs", "remote.rs", "carriers.rs", "mail.rs"]),
    (
        "plateway",
        &[
            "protocols/mod.rs",
            "protocols/host.rs",
            "protocols/remote.rs",
            "run/routers.rs",
            "run/routers/bins.rs",
            "run/routers/labels.rs",
            "run/routers/neighbours.rs",
            "run/routers/next_hops.rs",
            "run/routers/sight.rs",
            "run/routers/tables.rs",
            "run/routers/tunnels.rs",
            "run/routers/udp.rs",
            "run/routers/view.rs",
        ],
    ),
    ("sim", &[]),
];
/// The protocols. A file or folder that has one of these names in its own may name it as well.
const PROTOCOLS: [&str; 4] = ["nvme", "aoe", "iscsi", "mpls"];

/// Checks all walls, printing each breach, and fails if there was one.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    let mut breaches = dependency_breaches(&dependencies(tree)?);
    for room in ROOMS {
        let folder = tree.root.join("crates").join(room.name);
        breaches.extend(settings_breaches(tree, room, &folder)?);
    }
    breaches.extend(planted_breaches(tree)?);
    for (room, allowed) in NAMING {
        let sources = tree.root.join("crates").join(room).join("src");
        naming_breaches(&sources, &sources, allowed, &mut breaches)?;
    }
    for breach in &breaches {
        println!("{breach}");
    }
    ensure!(breaches.is_empty(), "{} breaches of the walls between rooms", breaches.len());
    println!("{} rooms, no breach", ROOMS.len());
    Ok(())
}

/// A pure room without the list, or a room that may not be unsafe and does not take over the lints
/// that say so.
fn settings_breaches(tree: &Tree, room: &Room, folder: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let list = fs::read_to_string(folder.join("clippy.toml")).unwrap_or_default();
    if room.pure && list != read(&tree.root.join(PURE))? {
        breaches.push(format!(
            "crates/{0}/clippy.toml: expected a link to {PURE}: ln -s ../pure.toml crates/{0}/clippy.toml",
            room.name
        ));
    }
    if !room.may_unsafe && !read(&folder.join("Cargo.toml"))?.contains(LINTS) {
        breaches.push(format!(
            "crates/{}/Cargo.toml: expected the workspace's lints, which forbid unsafe code",
            room.name
        ));
    }
    Ok(breaches)
}

/// Lines that clippy refuses and should not, or should and does not, with the settings of a pure
/// crate.
fn planted_breaches(tree: &Tree) -> Result<Vec<String>> {
    let (file, mark) = PLANTED;
    let text = fs::read_to_string(tree.root.join(file)).context(file)?;
    let numbered = text.lines().enumerate();
    let expected: BTreeSet<u64> =
        numbered.filter(|(_, line)| line.ends_with(mark)).map(|(at, _)| at as u64 + 1).collect();
    let room = ROOMS.iter().find(|room| room.pure).context("a pure room")?;
    let output = tree
        .command("clippy-driver")
        .env("CLIPPY_CONF_DIR", tree.root.join("crates").join(room.name))
        .args(["--crate-type", "lib", "--edition", "2024", "--emit", "metadata", "-o"])
        .arg(tree.target.join("planted.rmeta"))
        .args(["--error-format", "json"])
        .args(["disallowed_types", "disallowed_methods", "disallowed_macros"].map(refused))
        .arg(file)
        .output()
        .context("clippy-driver")?;
    let mut refused = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let message: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let spans = message["spans"].as_array().into_iter().flatten();
        refused.extend(spans.filter_map(|span| span["line_start"].as_u64()));
    }
    let show = |line: &u64, what: &str| format!("{file}:{line}: {what} by the list in {PURE}");
    let passed = expected.difference(&refused).map(|line| show(line, "expected to be refused"));
    let wronged = refused.difference(&expected).map(|line| show(line, "expected to pass, refused"));
    Ok(passed.chain(wronged).collect())
}

/// Lines below `folder` that name a protocol, in files of `sources` that may not.
fn naming_breaches(
    sources: &Path,
    folder: &Path,
    allowed: &[&str],
    breaches: &mut Vec<String>,
) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(sources)?.to_string_lossy().into_owned();
        let is_protocols = PROTOCOLS.iter().any(|protocol| name.contains(protocol));
        if is_protocols || is_test(&name) || allowed.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            naming_breaches(sources, &path, allowed, breaches)?;
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        breaches.extend(lines_that_name(&text).map(|(line, protocol)| {
            format!(
                "{}:{line}: names {protocol}; what is one protocol's has a file of its name, and all are named in {}",
                path.display(),
                if allowed.is_empty() { "no file".to_owned() } else { allowed.join(" and ") }
            )
        }));
    }
    Ok(())
}

/// Whether all of a file or folder is tests.
fn is_test(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or_default();
    last == "tests" || last.ends_with("tests.rs")
}

/// The lines before the tests of a file in which a protocol's crate or module is named, under its
/// own name or to get another one.
fn lines_that_name(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let code = text.split_once("#[cfg(test)]\nmod ").map_or(text, |(code, _)| code);
    (1..).zip(code.lines()).filter_map(|(number, line)| {
        let found = PROTOCOLS.into_iter().find(|protocol| {
            line.match_indices(protocol).any(|(at, _)| {
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let after = &line[at + protocol.len()..];
                !line[..at].ends_with(is_word)
                    && ["::", "_", " as "].iter().any(|next| after.starts_with(next))
            })
        });
        Some((number, found?))
    })
}

fn refused(lint: &str) -> String {
    format!("-Dclippy::{lint}")
}

/// A dependency as cargo knows it.
struct Dependency {
    from: String,
    to: String,
    for_tests: bool,
}

/// Every dependency of every crate below `crates/`; a crate without any appears once with an empty
/// `to`.
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
            dependency("wire", "tempfile", true),
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
        assert_eq!(dependency_breaches(&[dependency("wire", "tempfile", false)]).len(), 1);
        assert_eq!(dependency_breaches(&[dependency("wire", "tokio", true)]).len(), 1);
    }

    #[test]
    fn a_protocol_is_named_where_the_table_says_and_in_tests() {
        let named = |text| lines_that_name(text).collect::<Vec<_>>();
        let planted = "use a::b;\nuse aoe::Address;\nlet x = wire::nvme_tcp::Pdu;\n";
        assert_eq!(named(planted), [(2, "aoe"), (3, "nvme")]);
        assert_eq!(named("use nvme as wire_of_old;\n"), [(1, "nvme")]);
        assert_eq!(named("/// nvme: a key\nlet (nvme, as_aoe) = (low.nvme, is_aoe::<T>());\n"), []);
        assert_eq!(named("fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use aoe::Address;\n}\n"), []);
    }

    #[test]
    fn a_file_that_may_not_name_a_protocol_is_refused_and_others_are_not() {
        let folder = std::env::temp_dir().join(format!("plateway-rooms-{}", std::process::id()));
        let sources = folder.join("src");
        for name in
            ["run.rs", "below/run.rs", "protocols/mod.rs", "protocols/aoe/run.rs", "a/tests.rs"]
        {
            let path = sources.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "//! Words.\nuse aoe::Address;\n").unwrap();
        }
        let mut breaches = Vec::new();
        naming_breaches(&sources, &sources, &["protocols/mod.rs"], &mut breaches).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(breaches.len(), 2, "{breaches:?}");
        assert!(breaches[0].contains("below/run.rs:2: names aoe"), "{breaches:?}");
        assert!(breaches[1].contains("src/run.rs:2: names aoe"), "{breaches:?}");
    }

    #[test]
    fn unknown_crate_is_refused_once() {
        let found = [dependency("cellar", "", false), dependency("cellar", "wire", false)];
        assert_eq!(dependency_breaches(&found).len(), 1);
    }
}
