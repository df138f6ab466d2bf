//! `plateway lab` by NFS: files that are exported are mounted as they are, what fails is told, a plan holds NFS against a disk,
//! and nothing of it stays.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use crate::common::{HANG, can_attach, flat, plateway, resident, text};
use crate::{alone, kept, run};

/// A folder that is exported, or shown by FUSE, and mounted beside it.
struct Shown {
    directory: TempDir,
    children: Vec<Child>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.point()).output();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Shown {
    fn folder(&self) -> PathBuf {
        self.directory.path().join("folder")
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("point")
    }

    fn start(&mut self, args: &[&str]) {
        let mut command = plateway();
        command.arg("lab").args(args).stdin(Stdio::null()).stderr(Stdio::piped());
        self.children.push(command.spawn().unwrap());
    }

    /// By NFS with these options more, `--past` of the server and all others of the client, or by FUSE alone.
    fn begin(nfs: Option<&[&str]>) -> Shown {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut shown = Shown { directory, children: Vec::new() };
        let (folder, point) = (shown.folder(), shown.point());
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&point).unwrap();
        let (folder, point) = (folder.to_str().unwrap(), point.to_str().unwrap());
        match nfs {
            None => shown.start(&["import", point, "--folder", folder]),
            Some(more) => {
                let free =
                    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
                let SocketAddr::V4(address) = free else { unreachable!("it is of IP version 4") };
                let address = address.to_string();
                let (past, more): (Vec<&str>, Vec<&str>) =
                    more.iter().partition(|option| **option == "--past");
                shown.start(&[&["export", folder, "--listen", &address], &past[..]].concat());
                let calls = shown.directory.path().join("calls");
                let mut args =
                    vec!["import", point, "--server", &address, "--calls", calls.to_str().unwrap()];
                args.extend(more);
                shown.start(&args);
            }
        }
        let until = Instant::now() + HANG;
        while !is_mounted(&shown.point()) {
            let ended = shown.children.iter_mut().find_map(|child| child.try_wait().unwrap());
            assert!(ended.is_none() && Instant::now() < until, "nothing is mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
        shown
    }

    fn calls(&self) -> u64 {
        // It is kept some fifty times a second. What is kept after something that was kept since is of now.
        let file = self.directory.path().join("calls");
        let kept = || fs::metadata(&file).unwrap().modified().unwrap();
        let until = Instant::now() + HANG;
        let after = |since: SystemTime| {
            while kept() <= since {
                assert!(Instant::now() < until, "calls are not kept");
                std::thread::sleep(Duration::from_millis(5));
            }
            kept()
        };
        let first = after(SystemTime::now());
        after(first);
        fs::read_to_string(&file).unwrap().parse().unwrap()
    }

    /// Unmounts it; the client ends by that.
    fn end(mut self) {
        let umount = std::process::Command::new("umount").arg(self.point()).output().unwrap();
        assert!(umount.status.success(), "{}", flat(&umount.stderr));
        let mut client = self.children.pop().unwrap();
        let until = Instant::now() + HANG;
        while client.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the client goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(client.wait().unwrap().success());
    }
}

fn is_mounted(point: &Path) -> bool {
    testbed::Mounts::now().unwrap().all().any(|mount| mount.point == point)
}

/// What programs do with files, on both sides of a mount.
fn works(point: &Path, folder: &Path) {
    fs::create_dir(point.join("a")).unwrap();
    fs::write(point.join("a/one"), "some words").unwrap();
    assert_eq!(fs::read_to_string(folder.join("a/one")).unwrap(), "some words");
    fs::rename(point.join("a/one"), point.join("two")).unwrap();
    assert!(!folder.join("a/one").exists() && folder.join("two").exists());
    fs::rename(point.join("a"), point.join("b")).unwrap();
    fs::write(point.join("b/three"), "three").unwrap();
    assert_eq!(fs::read_to_string(folder.join("b/three")).unwrap(), "three");
    let mut names: Vec<_> = fs::read_dir(point).unwrap().map(|one| one.unwrap()).collect();
    names.sort_by_key(fs::DirEntry::file_name);
    let kinds: Vec<bool> = names.iter().map(|one| one.file_type().unwrap().is_dir()).collect();
    assert_eq!(kinds, [true, false], "{names:?}");

    // More than a call carries, of which no part is as another.
    let long: Vec<u8> = (0..3_000_000_u32).flat_map(|at| (at / 3).to_le_bytes()).collect();
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(point.join("long"))
        .unwrap();
    file.write_all(&long).unwrap();
    file.sync_all().unwrap();
    assert!(fs::read(folder.join("long")).unwrap() == long, "what was synced is another");
    file.seek(SeekFrom::Start(4_000_000)).unwrap();
    file.write_all(b"in the middle").unwrap();
    drop(file);
    let mut there = fs::read(folder.join("long")).unwrap();
    assert_eq!(&there[4_000_000..4_000_013], b"in the middle");
    there[4_000_000..4_000_013].copy_from_slice(&long[4_000_000..4_000_013]);
    assert!(there == long, "something else was written");
    let mut read = Vec::new();
    fs::File::open(point.join("long")).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), long.len());

    let mut file = fs::File::options().write(true).open(point.join("long")).unwrap();
    file.set_len(100).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"end").unwrap();
    drop(file);
    assert_eq!(fs::metadata(folder.join("long")).unwrap().len(), 103);

    // What is removed, or replaced, while it is open is there until it is closed, and then nothing of it is left.
    for is_replaced in [false, true] {
        let mut file = fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(point.join("b/open"))
            .unwrap();
        file.write_all(&long[..8192]).unwrap();
        if is_replaced {
            fs::write(point.join("other"), "other").unwrap();
            fs::rename(point.join("other"), point.join("b/open")).unwrap();
            assert_eq!(fs::read_to_string(point.join("b/open")).unwrap(), "other");
            fs::remove_file(point.join("b/open")).unwrap();
        } else {
            fs::remove_file(point.join("b/open")).unwrap();
        }
        assert!(!point.join("b/open").exists() && !folder.join("b/open").exists());
        file.write_all(&long[8192..1_000_000]).unwrap();
        file.sync_all().expect("it is there as long as it is open");
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == long[..1_000_000]);
        drop(file);
        let until = Instant::now() + HANG;
        let left = || fs::read_dir(folder.join("b")).unwrap().count();
        while left() > 1 {
            assert!(Instant::now() < until, "{} names are left", left());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    // What is removed before its times are written back is no error of whoever syncs.
    fs::write(point.join("gone"), "soon").unwrap();
    fs::remove_file(point.join("gone")).unwrap();
    rustix::fs::syncfs(fs::File::open(point).unwrap()).unwrap();
    for (name, error) in [("none", 2), ("b", 21)] {
        let why = fs::remove_file(point.join(name)).unwrap_err();
        assert_eq!(why.raw_os_error(), Some(error), "{name}: {why}");
    }
    assert_eq!(fs::remove_dir(point.join("b")).unwrap_err().raw_os_error(), Some(39));
    for name in ["b/three", "two", "long"] {
        fs::remove_file(point.join(name)).unwrap();
    }
    fs::remove_dir(point.join("b")).unwrap();
    assert!(fs::read_dir(folder).unwrap().next().is_none());
    // Many names come in several calls.
    for number in 0..700 {
        fs::write(point.join(format!("a file with a rather long name {number}")), "").unwrap();
    }
    assert_eq!(fs::read_dir(point).unwrap().count(), 700);
    // Who removes what it has read, and reads on, misses none: these are more than are read at once.
    fs::create_dir(folder.join("many")).unwrap();
    for number in 0..2_000 {
        fs::write(folder.join(format!("many/a file with a rather long name {number}")), "")
            .unwrap();
    }
    let mut removed = 0;
    for one in fs::read_dir(point.join("many")).unwrap() {
        fs::remove_file(one.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 2_000);
    fs::remove_dir(point.join("many")).unwrap();
}

/// The client's page cache is above FUSE: a second one below it would hold what the client's memory does not.
#[test]
fn below_fuse_alone_the_page_cache_is_passed_by_and_at_a_server_only_if_it_is_asked_for() {
    if !can_attach() {
        return;
    }
    for (nfs, is_passed_by) in [(None, true), (Some(&[][..]), false), (Some(&["--past"][..]), true)]
    {
        let shown = Shown::begin(nfs);
        let (above, below) = (shown.point().join("one"), shown.folder().join("one"));
        // It ends within a block: the call that writes its end goes through it, of at most 1 MiB.
        let bytes: Vec<u8> = (0..4_000_001_u32).map(|at| (at / 7) as u8).collect();
        fs::write(&above, &bytes).unwrap();
        let written = resident(&below);
        rustix::fs::fadvise(fs::File::open(&above).unwrap(), 0, None, rustix::fs::Advice::DontNeed)
            .unwrap();
        assert!(fs::read(&above).unwrap() == bytes);
        let read = resident(&below);
        for seen in [written, read] {
            let is_held = seen > 2_000_000;
            assert_eq!(is_held, !is_passed_by, "{nfs:?}: {seen} bytes below");
        }
        shown.end();
    }
}

#[test]
fn a_file_is_asked_for_when_it_is_opened_and_committed_when_it_is_closed() {
    if !can_attach() {
        return;
    }
    let calls_of = |more: &[&str]| {
        let shown = Shown::begin(Some(more));
        let file = shown.point().join("one");
        fs::write(&file, "first").unwrap();
        let before = shown.calls();
        // What is there needs a look at it, and nothing else, as long as it is believed.
        assert_eq!(fs::read_to_string(&file).unwrap(), "first");
        let opened = shown.calls() - before;
        let mut open = fs::File::options().write(true).open(&file).unwrap();
        open.write_all(&[7; 4096]).unwrap();
        let before = shown.calls();
        drop(open);
        let closed = shown.calls() - before;
        shown.end();
        (opened, closed)
    };
    let (opened, unstable) = calls_of(&[]);
    assert!((1..=2).contains(&opened), "{opened} calls to open a file that is known");
    let (_, stable) = calls_of(&["--sync"]);
    assert_eq!(unstable, stable + 1, "a write that is not durable is committed");
}

#[test]
fn no_call_has_more_than_the_plan_says_whichever_way() {
    if !can_attach() {
        return;
    }
    const BYTES: usize = 1 << 20;
    for (more, most) in [(&[][..], BYTES), (&["--call-bytes", "8192"][..], 8192)] {
        let shown = Shown::begin(Some(more));
        fs::write(shown.folder().join("there"), vec![7; BYTES]).unwrap();
        let before = shown.calls();
        assert!(fs::read(shown.point().join("there")).unwrap() == vec![7; BYTES]);
        let read = shown.calls() - before;
        let before = shown.calls();
        fs::write(shown.point().join("here"), vec![8; BYTES]).unwrap();
        let written = shown.calls() - before;
        assert!(fs::read(shown.folder().join("here")).unwrap() == vec![8; BYTES]);
        let least = (BYTES / most) as u64;
        // And some that say what is there.
        let all = [read, written];
        assert!(all.iter().all(|calls| (least..least + 40).contains(calls)), "{more:?}: {all:?}");
        shown.end();
    }
}

#[test]
fn the_names_of_a_folder_are_asked_for_once() {
    if !can_attach() {
        return;
    }
    let shown = Shown::begin(Some(&[]));
    for number in 0..3_000 {
        fs::write(shown.folder().join(format!("file-{number}")), "").unwrap();
    }
    let before = shown.calls();
    assert_eq!(fs::read_dir(shown.point()).unwrap().count(), 3_000);
    let asked = shown.calls() - before;
    // Some hundred in a call.
    assert!(asked <= 30, "{asked} calls for 3,000 names");
    shown.end();
}

#[test]
fn a_server_that_is_gone_is_an_error_and_nothing_hangs() {
    if !can_attach() {
        return;
    }
    let mut shown = Shown::begin(Some(&[]));
    fs::write(shown.point().join("one"), "first").unwrap();
    shown.children[0].kill().unwrap();
    shown.children[0].wait().unwrap();
    let why = fs::write(shown.point().join("two"), "second").unwrap_err();
    assert_eq!(why.raw_os_error(), Some(5), "{why}");
    shown.end();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut command = plateway();
    command.args(["lab", "import"]).arg(directory.path()).args(["--server", &nobody.to_string()]);
    let output = command.output().unwrap();
    let why = flat(&output.stderr);
    assert!(why.contains("cannot import from 127.0.0.1:") && why.contains("refused"), "{why}");
}

#[test]
fn what_is_exported_is_mounted_as_it_is_by_nfs_and_by_fuse_alone() {
    if !can_attach() {
        return;
    }
    for nfs in [None, Some(&[][..]), Some(&["--sync"][..]), Some(&["--past", "--sync"][..])] {
        let shown = Shown::begin(nfs);
        works(&shown.point(), &shown.folder());
        shown.end();
    }
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_plan_holds_nfs_against_a_disk_and_fuse_against_nothing_above() {
        if !can_attach() {
            return;
        }
        let plan = "name = \"nfs\"\nshared = true\nwindow = \"100ms\"\nwarm-up = \"0\"\n\
        [[system]]\nname = \"iscsi\"\nserve = { protocol = \"iscsi\", disk = \"ram:48MiB\" }\nfile-system = \"ext4\"\n\
        [[system]]\nname = \"nfs\"\nnfs = { disk = \"ram:48MiB\" }\nfile-system = \"ext4\"\n\
        [[system]]\nname = \"durable\"\nnfs = { disk = \"ram:48MiB\", sync = true }\nfile-system = \"ext4\"\ncall-size = \"8KiB\"\n\
        [[system]]\nname = \"fuse\"\ndisk = \"ram:48MiB\"\nfile-system = \"ext4\"\nfuse = true\n\
        [[system]]\nname = \"past\"\nnfs = { disk = \"ram:48MiB\", cache = false }\nfile-system = \"ext4\"\n\
        [[path]]\nname = \"lan\"\n[load]\nsize = \"600KiB\"\n\
        [[picture]]\nname = \"past\"\nsystems = [\"past\"]\ncache = false\npattern = \"randrw=50\"\ndepth = 4\n\
        [[picture]]\nname = \"small\"\nsystems = [\"iscsi\", \"nfs\", \"durable\", \"fuse\"]\nfiles = \"postmark\"\n\
        [[picture]]\nname = \"many\"\nsystems = [\"nfs\", \"fuse\"]\nfiles = \"varmail\"\n\
        [[picture]]\nname = \"one\"\nsystems = [\"nfs\", \"fuse\"]\ncache = true\npattern = \"randrw=50\"\ndepth = 1\n";
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let _alone = alone();
        let output = run(directory.path(), &["run", "a.toml"]);
        let why = flat(&output.stderr);
        let lacks =
            ["network namespaces need root", "expected a kernel that", "Debian package postmark"];
        if lacks.iter().any(|words| why.contains(words)) {
            return testkit::skipped(why);
        }
        assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
        let kept = kept(&directory.path().join("a.result.json"));
        let trials = kept["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 9, "{kept}");
        for trial in trials {
            let cell = trial["cell"].as_str().unwrap();
            let number = |place: &str| trial.pointer(place).and_then(serde_json::Value::as_f64);
            assert!(number("/measures/iops") > Some(0.0), "{trial}");
            let is_by_fuse = !cell.starts_with("iscsi");
            let kind = if is_by_fuse { "fuse" } else { "ext4" };
            assert_eq!(trial["file_system"]["type"], kind, "{trial}");
            if cell.contains("postmark") && cell.contains(" over lan") && is_by_fuse {
                // A transaction opens a file, makes one, or removes one.
                assert!(number("/calls_per_op") > Some(0.5), "{trial}");
                assert!(number("/wire_bytes_per_op") > Some(100.0), "{trial}");
            } else {
                assert!(trial["calls_per_op"].is_null(), "{trial}");
            }
        }
        let mounts = testbed::Mounts::now().unwrap();
        let left = mounts.all().find(|mount| mount.point.starts_with("/tmp/plateway-lab-"));
        assert!(left.is_none(), "{left:?} stays mounted");
    }
}
