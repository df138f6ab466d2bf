//! Files as disks: one that ends within a block is refused wherever it is opened, `create` makes
//! files and changes none, and a member that is gone is not made anew. What `check` says
//! beforehand, `serve` says too.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::common::{Server, configuration, flat, own_configuration, plateway, write};

const SINGLE: &str = "disks = [\"a\"]";
const STRIPE: &str = "layout = \"stripe\"\ndisks = [\"a\", \"b\"]";
const MEMBERS: [(&str, &str); 2] =
    [("a", "file:a.img?create=8MiB"), ("b", "file:b.img?create=8MiB")];
const MIB: u64 = 1 << 20;

fn size(directory: &Path, name: &str) -> u64 {
    fs::metadata(directory.join(name)).unwrap().len()
}

/// Makes a file or gives one another size, as an administrator would.
fn truncate(directory: &Path, name: &str, bytes: u64) {
    let path = directory.join(name);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

/// The standard error of a command that must fail.
fn refuse(directory: &Path, args: &[&str]) -> String {
    let output = plateway().current_dir(directory).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", flat(&output.stdout));
    flat(&output.stderr)
}

/// What `check`, `serve` and a command that opens the volume by itself say of a configuration that
/// all of them must refuse. Its disks are required: without that a start serves all but what is
/// not as it is known (`failed.rs`).
fn all_refuse(directory: &Path, disks: &[(&str, &str)], volume: &str) -> [String; 3] {
    let config = own_configuration(directory, disks, &[("v0", volume)]);
    let config = config.replace("\nuri =", "\nrequired = true\nuri =");
    let served = Server::try_configured(directory, &config, &[]);
    let bench = ["bench", "volume:v0", "--config", "plateway.toml", "--rw", "read", "--time", "1"];
    [refuse(directory, &["check"]), served.err().expect("it is served"), refuse(directory, &bench)]
}

#[test]
fn a_file_that_ends_within_a_block_is_refused_wherever_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let uris = ["file:a.img", "delay:5,file:a.img", "file:a.img?create=8MiB"];
    for bytes in [1_000_001, 8 * MIB + 1] {
        truncate(here, "a.img", bytes);
        let whole = bytes.next_multiple_of(512);
        let ways = [format!("truncate -s {whole} "), "?tail=ignore".to_owned()];
        let words = [&[format!("seen {bytes}")][..], &ways[..]].concat();
        for uri in uris {
            let quick = ["--nvme", "127.0.0.1:0", "--hosts", "any"];
            let quick = Server::try_start(here, "q", &[&[uri][..], &quick[..]].concat());
            let mut said = all_refuse(here, &[("a", uri)], SINGLE).to_vec();
            said.push(quick.err().expect("it is served"));
            said.push(refuse(here, &["bench", uri, "--rw", "read", "--time", "1"]));
            for said in said {
                assert!(words.iter().all(|word| said.contains(word)), "{uri}: {said}");
            }
        }
        assert_eq!(size(here, "a.img"), bytes);
    }

    let quick = Server::of(here, "q", "file:a.img?tail=ignore");
    assert_eq!(quick.status()["volumes"][0]["bytes"], 8 * MIB);
    quick.stop();
    assert_eq!(size(here, "a.img"), 8 * MIB + 1);
    let ignored = own_configuration(here, &[("a", "file:a.img?tail=ignore")], &[("v0", SINGLE)]);
    let path = write(here, &ignored);
    let shown = plateway().current_dir(here).args(["check", &path]).output().unwrap();
    assert!(flat(&shown.stdout).contains("without its last 1 bytes"), "{}", flat(&shown.stdout));

    let server = Server::configured(here, &configuration(&[], &[]));
    let said = server.refuse_apply(&configuration(&[("a", uris[0])], &[("v0", SINGLE)]));
    assert!(flat(said.as_bytes()).contains("seen 8388609"), "{said}");
}

#[test]
fn create_changes_no_file_that_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let uri = "file:a.img?create=8MiB";
    for (bytes, advice) in [(4 * MIB, "truncate -s 8388608 "), (16 * MIB, "leave create")] {
        truncate(here, "a.img", bytes);
        let mut said = all_refuse(here, &[("a", uri)], SINGLE).to_vec();
        said.push(refuse(here, &["copy", "ram:1MiB", uri]));
        for said in said {
            let seen = format!(
                "8 MiB were asked for by create, but the file is there and has {} MiB",
                bytes / MIB
            );
            assert!(said.contains(&seen) && said.contains(advice), "{said}");
        }
        assert_eq!(size(here, "a.img"), bytes);
    }
    // Not even one of which nothing is left.
    truncate(here, "a.img", 0);
    for said in all_refuse(here, &[("a", uri)], SINGLE) {
        assert!(said.contains("0 bytes") && said.contains("truncate -s SIZE"), "{said}");
    }
    assert_eq!(size(here, "a.img"), 0);
    // Somebody did what was said.
    truncate(here, "a.img", 8 * MIB);
    Server::of(here, "a", uri).stop();
}

#[test]
fn a_member_that_was_cut_is_not_grown_and_one_that_is_gone_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let stripe = own_configuration(here, &MEMBERS, &[("v0", STRIPE)]);
    let server = Server::configured(here, &stripe);
    let uuid = server.uuid();
    server.stop();

    truncate(here, "b.img", 4 * MIB);
    for said in all_refuse(here, &MEMBERS, STRIPE) {
        assert!(said.contains("the file is there and has 4 MiB"), "{said}");
    }
    assert_eq!(size(here, "b.img"), 4 * MIB);
    // Its label alone tells, where nothing else is known of it.
    let stranger = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| format!("file:{}/{name}.img", here.display()));
    let disks = [("a", &*files[0]), ("b", &files[1])];
    let server = Server::configured(stranger.path(), &configuration(&disks, &[("v0", STRIPE)]));
    server.wait_for_log("volume v0: disk b has shrunk: expected 8 MiB, seen 4 MiB");
    server.stop();
    truncate(here, "b.img", 8 * MIB);

    // Also where the one that is gone comes before the one that tells of it.
    for (index, name) in ["a", "b"].iter().enumerate() {
        let file = format!("{name}.img");
        fs::rename(here.join(&file), here.join("kept")).unwrap();
        let words = format!("disk {name}: expected volume {uuid} index {index}, seen no file");
        for said in all_refuse(here, &MEMBERS, STRIPE) {
            assert!(said.contains(&words) && said.contains("put its file back"), "{said}");
        }
        assert!(!here.join(&file).exists(), "a member was made");
        let server = Server::configured(here, &configuration(&[], &[]));
        let said = server.refuse_apply(&configuration(&MEMBERS, &[("v0", STRIPE)]));
        assert!(flat(said.as_bytes()).contains(&words), "{said}");
        assert!(!here.join(&file).exists(), "a member was made");
        server.stop();
        fs::rename(here.join("kept"), here.join(&file)).unwrap();
    }

    let server = Server::configured(here, &stripe);
    assert_eq!(server.uuid(), uuid);
    server.stop();
    // Whoever gives up what is left gets the member made.
    fs::remove_file(here.join("b.img")).unwrap();
    let server = Server::try_configured(here, &stripe, &["--overwrite", "v0"]);
    let server = server.unwrap_or_else(|log| panic!("{log}"));
    assert_ne!(server.uuid(), uuid);
}

/// A server of one disk, and `apply` and `check` of that disk with another URI.
struct Resized {
    directory: tempfile::TempDir,
    server: Server,
}

impl Resized {
    fn of(uri: &str) -> Resized {
        let directory = tempfile::tempdir().unwrap();
        truncate(directory.path(), "a.img", 8 * MIB);
        let server =
            Server::configured(directory.path(), &configuration(&[("a", uri)], &[("v0", SINGLE)]));
        Resized { directory, server }
    }

    fn apply(&self, disks: &[(&str, &str)]) {
        self.server.apply(&configuration(disks, &[("v0", SINGLE)]));
    }

    /// `check` and `apply` must refuse the disk with this URI, and change nothing.
    fn refuse(&self, uri: &str, words: &str) {
        let before = (size(self.directory.path(), "a.img"), self.bytes());
        let path = write(self.directory.path(), &configuration(&[("a", uri)], &[("v0", SINGLE)]));
        for command in ["check", "apply"] {
            let said = self.server.refuse(&[command, &path]);
            assert!(flat(said.as_bytes()).contains(words), "{command}: {said}");
        }
        assert_eq!((size(self.directory.path(), "a.img"), self.bytes()), before);
    }

    fn bytes(&self) -> u64 {
        self.server.status()["volumes"][0]["bytes"].as_u64().expect("a volume")
    }
}

#[test]
fn apply_grows_a_file_only_where_create_says_from_what_to_what() {
    let grown = Resized::of("file:a.img?create=8MiB");
    let larger = [("a", "file:a.img?create=16MiB")];
    let shown = grown.server.check(&configuration(&larger, &[("v0", SINGLE)]));
    assert!(shown.contains("would grow from 8 MiB to 16 MiB"), "{shown}");
    grown.apply(&larger);
    assert_eq!((size(grown.directory.path(), "a.img"), grown.bytes()), (16 * MIB, 16 * MIB));
    // A change that is none of its size says nothing of it.
    truncate(grown.directory.path(), "a.img", 4 * MIB);
    grown.refuse("file:a.img?create=32MiB", "but the file is there and has 4 MiB");
    grown.server.stop();

    // Where `create` was not, nobody knows what the size was to be.
    let plain = Resized::of("file:a.img");
    let there = "but the file is there and has 8 MiB";
    plain.refuse("file:a.img?create=16MiB", there);
    plain.refuse("file:a.img?create=4MiB", there);
    plain.apply(&[("a", "file:a.img?create=8MiB")]);
    plain.server.stop();
}

#[test]
fn an_apply_that_is_undone_cuts_only_what_it_grew() {
    let grown = Resized::of("file:a.img?create=8MiB");
    let wanted = [("a", "file:a.img?create=16MiB"), ("n", "file:no.img")];
    let wanted = configuration(&wanted, &[("v0", SINGLE)]);
    let said = grown.server.refuse_apply(&wanted);
    assert!(said.contains("served as before"), "{said}");
    assert_eq!((size(grown.directory.path(), "a.img"), grown.bytes()), (8 * MIB, 8 * MIB));
    // What it had before is kept: hosts may have written there.
    truncate(grown.directory.path(), "a.img", 16 * MIB);
    grown.apply(&[("a", "file:a.img?create=8MiB")]);
    assert_eq!(grown.bytes(), 16 * MIB);
    let said = grown.server.refuse_apply(&wanted);
    assert!(said.contains("served as before"), "{said}");
    assert_eq!((size(grown.directory.path(), "a.img"), grown.bytes()), (16 * MIB, 16 * MIB));
    grown.server.stop();
}

fn accept(directory: &Path, args: &[&str]) {
    let first = ["disks", "accept", "a", "--config", "plateway.toml"];
    let args = [&first[..], args].concat();
    let output = plateway().current_dir(directory).args(&args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", flat(&output.stderr));
}

/// Serves the volume of one file and stops: its identity.
fn serve_once(directory: &Path, uri: &str) -> String {
    let server = Server::configured(
        directory,
        &own_configuration(directory, &[("a", uri)], &[("v0", SINGLE)]),
    );
    let uuid = server.uuid();
    server.stop();
    uuid
}

#[test]
fn a_file_that_was_served_is_refused_when_it_is_gone_cut_or_another_until_it_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (uri, plain) = ("file:a.img?create=8MiB", "file:a.img");
    let first = serve_once(here, uri);
    let refused = |uri: &str, words: &[&str]| {
        for said in all_refuse(here, &[("a", uri)], SINGLE) {
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    };
    // Its file system is not mounted.
    fs::rename(here.join("a.img"), here.join("kept")).unwrap();
    refused(uri, &["expected its file of 8 MiB, seen none", "a.img' --state /", "/state --new"]);
    assert!(!here.join("a.img").exists(), "it was made");
    fs::rename(here.join("kept"), here.join("a.img")).unwrap();
    assert_eq!(serve_once(here, uri), first);
    // It was cut, and was grown by hand.
    truncate(here, "a.img", 4 * MIB);
    refused(plain, &["has shrunk: expected at least 8 MiB, seen 4 MiB", "accept 'file:/"]);
    truncate(here, "a.img", 16 * MIB);
    assert_eq!(serve_once(here, plain), first);
    truncate(here, "a.img", 8 * MIB);
    refused(plain, &["has shrunk: expected at least 16 MiB"]);
    accept(here, &[]);
    assert_eq!(serve_once(here, plain), first);
    // It was restored from a backup.
    fs::copy(here.join("a.img"), here.join("backup")).unwrap();
    fs::rename(here.join("backup"), here.join("a.img")).unwrap();
    refused(uri, &["another disk is where the known one was", "accept 'file:/"]);
    accept(here, &[]);
    assert_eq!(serve_once(here, uri), first);
    // It has another name now, and is the same.
    fs::rename(here.join("a.img"), here.join("b.img")).unwrap();
    assert_eq!(serve_once(here, "file:b.img"), first);
    fs::rename(here.join("b.img"), here.join("a.img")).unwrap();
    assert_eq!(serve_once(here, plain), first);
    // It is gone for good.
    fs::remove_file(here.join("a.img")).unwrap();
    refused(uri, &["seen none"]);
    accept(here, &["--new"]);
    let second = serve_once(here, uri);
    assert_ne!(second, first);
    // What was served with an identity of the configuration is known, too.
    fs::remove_file(here.join("a.img")).unwrap();
    accept(here, &["--new"]);
    let named = "disks = [\"a\"]\nuuid = \"5d3cf1c2-30a2-4b5e-8d62-8f1b0b8d6a11\"";
    Server::configured(here, &own_configuration(here, &[("a", uri)], &[("v0", named)])).stop();
    fs::remove_file(here.join("a.img")).unwrap();
    for said in all_refuse(here, &[("a", uri)], named) {
        assert!(said.contains("seen none"), "{said}");
    }
}

#[test]
fn no_member_of_a_set_is_made_where_all_of_them_were_there() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    Server::configured(here, &own_configuration(here, &MEMBERS, &[("v0", STRIPE)])).stop();
    for (name, _) in MEMBERS {
        fs::rename(here.join(format!("{name}.img")), here.join(format!("{name}.kept"))).unwrap();
    }
    for said in all_refuse(here, &MEMBERS, STRIPE) {
        assert!(said.contains("disk a: expected its file of 8 MiB, seen none"), "{said}");
    }
    assert!(!here.join("a.img").exists() && !here.join("b.img").exists());
}

#[test]
fn a_size_that_was_followed_while_it_was_served_is_the_one_that_is_expected() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let single = own_configuration(here, &[("a", "file:a.img")], &[("v0", SINGLE)]);
    truncate(here, "a.img", 8 * MIB);
    let server = Server::configured(here, &single);
    truncate(here, "a.img", 16 * MIB);
    server.apply(&configuration(&[("a", "file:a.img")], &[("v0", SINGLE)]));
    server.stop();
    truncate(here, "a.img", 8 * MIB);
    for said in all_refuse(here, &[("a", "file:a.img")], SINGLE) {
        assert!(said.contains("expected at least 16 MiB"), "{said}");
    }
    truncate(here, "a.img", 16 * MIB);
    let server = Server::configured(here, &single);
    truncate(here, "a.img", 4 * MIB);
    server.apply(&configuration(&[("a", "file:a.img")], &[("v0", SINGLE)]));
    server.stop();
    Server::configured(here, &single).stop();
}
