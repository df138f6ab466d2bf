//! The book of what runs, while orders fail: whatever was told to some shards only, the book says
//! what was before, and `apply` finds it again.

use super::*;
use crate::config::defaults::Defaults;
use crate::config::{Checked, check};
use contract::EtherType;

pub(super) fn args(directory: &std::path::Path, text: &str) -> HiArgs {
    let state = directory.join("state");
    let defaults = Defaults { cpus: vec![0, 1], control: directory.join("c"), state };
    let text = format!("[server]\nshards = [0, 1]\nmemory = \"32MiB\"\n{text}");
    match check("p.toml", &text, &defaults) {
        Ok(Checked { args, .. }) => args,
        Err(wrong) => panic!("{:#?}", wrong.lines().collect::<Vec<_>>()),
    }
}

/// Whatever it takes away.
pub(super) fn yes() -> Consent {
    Consent { yes: true, allow_empty: true, ..Consent::default() }
}

pub(super) fn disk(name: &str, uri: &str) -> String {
    format!("[[disk]]\nname = \"{name}\"\nuri = \"{uri}\"\n")
}

fn volume(name: &str, disks: &str, more: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\ndisks = [{disks}]\n{more}\n")
}

fn export(volume: &str, nsid: u32, hosts: &str) -> String {
    format!(
        "[[export]]\nvolume = \"{volume}\"\nnvme = {{ subsystem = \"nqn.2026-11.a:s\", nsid = {nsid}, hosts = {hosts} }}\n"
    )
}

fn sorted(args: &HiArgs) -> Vec<crate::config::thing::Thing> {
    let mut things: Vec<_> = args.things().collect();
    things.sort_by_key(|thing| thing.title());
    things
}

/// Brings the server to `to`, with the first, the second and every later order failing once: how
/// many there were.
pub(super) fn apply_with_failures(running: &mut Running, to: &HiArgs) -> u32 {
    let before = running.args();
    for orders in 0.. {
        running.shards.orders_left.set(Some(orders));
        let applied = running.apply(to, &yes());
        let failed = running.shards.orders_left.take().is_none();
        match applied {
            Ok(_) if !failed => {
                assert_eq!(running.args(), *to);
                return orders;
            }
            // What goes for good goes even if not all shards hear of it, and somebody is told so.
            Ok(applied) => {
                assert_eq!(running.args(), *to);
                assert!(applied.warnings.iter().any(|line| line.contains("made not to answer")));
                running.apply(&before, &yes()).unwrap();
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("a shard was made not to answer"), "{orders}: {error}");
                assert!(!error.contains("could not be undone"), "{orders}: {error}");
                assert_eq!(sorted(&running.args()), sorted(&before), "{orders}: {error}");
                let steps = running.difference(to).unwrap().steps;
                assert!(!steps.is_empty(), "{orders}: {error}");
            }
        }
    }
    unreachable!("it succeeds in the end")
}

#[test]
fn an_order_that_fails_leaves_the_book_as_it_was_and_the_next_apply_does_it() {
    let directory = tempfile::tempdir().unwrap();
    let some = "[\"nqn.2026-11.a:one\", \"nqn.2026-11.a:two\"]";
    let listener = "[[listener]]\nnvme = \"127.0.0.1:0\"\n";
    let stripe = "layout = \"stripe\"";
    // What memory holds could not come back.
    let file = |name: &str| format!("file:{}?create=4MiB", directory.path().join(name).display());
    let first = [
        listener.to_owned(),
        disk("a", "ram:4MiB")
            + &disk("b", "null:8MiB")
            + &disk("c", &file("c"))
            + &disk("d", &file("d")),
        volume("v0", "\"a\"", "")
            + &volume("v1", "\"b\"", "size = \"4MiB\"")
            + &volume("v2", "\"c\", \"d\"", stripe),
        export("v0", 1, some) + &export("v1", 2, some) + &export("v2", 3, some),
    ];
    let first = args(directory.path(), &first.concat());
    let (mut running, _) = Running::start(&first, &[]).unwrap();
    assert_eq!(running.args(), first);
    // A host is revoked, a disk and a volume get other sizes, a volume and its export go, others
    // come.
    let one = "[\"nqn.2026-11.a:one\"]";
    let second = [
        listener.replace("127.0.0.1", "localhost"),
        disk("a", "ram:4MiB") + &disk("b", "null:16MiB") + &disk("e", "ram:4MiB"),
        volume("v0", "\"a\"", "size = \"1MiB\"")
            + &volume("v1", "\"b\"", "")
            + &volume("v3", "\"e\"", ""),
        export("v0", 1, one) + &export("v1", 2, one) + &export("v3", 4, one),
    ];
    let second = args(directory.path(), &second.concat());
    let orders = apply_with_failures(&mut running, &second);
    assert!(orders > 20, "{orders}");
    // Back again: labels are found, and removals come first where something is claimed.
    assert!(apply_with_failures(&mut running, &first) > 20);
    assert_eq!(running.shut_down(), [""; 0]);
}

#[test]
fn a_host_whose_revocation_failed_is_revoked_by_the_next_apply() {
    let directory = tempfile::tempdir().unwrap();
    let things = disk("a", "ram:4MiB") + &volume("v0", "\"a\"", "");
    let with = |hosts: &str| args(directory.path(), &(things.clone() + &export("v0", 1, hosts)));
    let (both, one) =
        (with("[\"nqn.2026-11.a:one\", \"nqn.2026-11.a:two\"]"), with("[\"nqn.2026-11.a:one\"]"));
    let (mut running, _) = Running::start(&both, &[]).unwrap();
    running.shards.orders_left.set(Some(0));
    let error = running.apply(&one, &yes()).unwrap_err().to_string();
    assert!(error.contains("what was served is served as before"), "{error}");
    let steps = running.apply(&one, &yes()).unwrap().steps;
    let expected = "~ export v0: nqn.2026-11.a:s namespace 1: hosts nqn.2026-11.a:one, nqn.2026-11.a:two -> nqn.2026-11.a:one";
    assert_eq!(steps.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    assert!(running.apply(&one, &yes()).unwrap().steps.is_empty());
}

#[test]
fn a_disk_that_is_opened_anew_is_the_known_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let text = disk("d0", &format!("file:{}", path.display())) + &volume("v0", "\"d0\"", "");
    let (mut running, _) = Running::start(&args(directory.path(), &text), &[]).unwrap();
    // As where a device went: its descriptor is of no use any more.
    let lose = |running: &mut Running| running.disks.get_mut("d0").unwrap().local = None;
    lose(&mut running);
    let aside = directory.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, vec![8; 1 << 20]).unwrap();
    let refused = running.reopen("d0").unwrap_err().to_string();
    assert!(refused.contains("disk d0") && refused.contains("expected"), "{refused}");
    assert!(running.disk("d0").unwrap().local.is_none(), "another disk under its name");
    std::fs::rename(&aside, &path).unwrap();
    let done = running.reopen("d0").unwrap();
    assert!(done.contains("was opened anew"), "{done}");
    assert!(running.shut_down().is_empty());
}

/// Of disks in memory and in files, with nothing exported.
fn running(directory: &std::path::Path, text: &str) -> (Running, HiArgs) {
    let args = args(directory, text);
    (Running::start(&args, &[]).unwrap().0, args)
}

#[test]
fn what_is_not_there_is_told_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let (running, _) = running(directory.path(), "");
    for (error, words) in [
        (running.disk("d7").unwrap_err(), "disk d7 is not open"),
        (running.volume("v7").unwrap_err(), "volume v7 is not there"),
        (
            running.link_ids(&["eth7".to_owned()], EtherType::AOE).unwrap_err(),
            "link eth7 is not open",
        ),
    ] {
        assert_eq!(error.line(), words);
    }
    assert!(running.shut_down().is_empty());
}

#[test]
fn a_file_that_cannot_be_resized_is_told_with_why_and_keeps_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    let uri = |bytes: u64| format!("file:{}?create={bytes}", path.display());
    let (mut running, from) = running(directory.path(), &disk("d0", &uri(1 << 20)));
    // No file has so many bytes.
    let most = u64::MAX - 511;
    let error = running.resize_file("d0", &path, Some(1 << 20), most).unwrap_err();
    assert!(error.line().starts_with("disk d0: cannot resize it: "), "{}", error.line());
    assert_eq!(path.metadata().unwrap().len(), 1 << 20);
    // As where it could not be opened anew.
    running.disks.get_mut("d0").unwrap().local = None;
    let to = args(directory.path(), &disk("d0", &uri(2 << 20)));
    let error = running.change_disk(&from.disks[0], &to.disks[0]).unwrap_err();
    let words = "disk d0: expected an open file, seen none (plateway disks reopen d0)";
    assert_eq!(error.line(), words);
    assert_eq!(path.metadata().unwrap().len(), 1 << 20);
}

#[test]
fn a_label_that_cannot_be_written_flushed_or_wiped_is_told_by_its_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (mut running, _) = running(directory.path(), "");
    let mut seen = BTreeMap::new();
    for seed in 0..100 {
        let name = format!("d{seed}");
        let uri =
            format!("faulty:{seed},file:{}?create=2MiB", directory.path().join(&name).display());
        let quoted = format!("\"{name}\"");
        let things = args(directory.path(), &(disk(&name, &uri) + &volume(&name, &quoted, "")));
        running.add_disk(&things.disks[0]).unwrap();
        let error = if seed == 0 {
            // Reads err, too.
            while running.add_volume(&things.volumes[0]).is_err() {}
            (0..1000).find_map(|_| running.wipe_label(&name).err())
        } else {
            let layout = crate::config::volume::Layout::Concat { disks: vec![name.clone()] };
            let concat = VolumeConfig { layout, ..things.volumes[0].clone() };
            let label = labels::set_label(&concat, Uuid::nil()).unwrap();
            let (uuid, lengths) = (Some(Uuid::nil()), vec![1 << 20]);
            let set = labels::Set { label, uuid, lengths, due: labels::Due::Nothing };
            let part = running.disk(&name).unwrap().part();
            let whole = running.whole(&part).unwrap();
            (0..1000).find_map(|_| labels::form(&running.shards, &[(&part, whole)], &set).err())
        };
        let line = error.expect("a disk that errs").line();
        let doing = line.strip_prefix(&format!("disk {name}: cannot ")).expect(&line);
        let (doing, why) = doing.split_once(": ").expect(&line);
        assert!(!why.is_empty(), "{line}");
        seen.insert(doing.to_owned(), seed);
        if seen.len() == 3 {
            break;
        }
    }
    let all: Vec<_> = seen.keys().map(String::as_str).collect();
    assert_eq!(all, ["flush its label", "wipe its label", "write its label"]);
}

/// Only guards against hanging.
const HANG: Duration = Duration::from_secs(60);

#[test]
fn a_request_that_does_not_come_back_is_told_by_whoever_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    // An hour: it is not waited for.
    let uri = format!("delay:3600000000,file:{}?create=1MiB", path.display());
    let (mut running, _) = running(directory.path(), &disk("d0", &uri));
    let part = running.disk("d0").unwrap().part();
    let whole = running.whole(&part).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let read = access::Request::Read(Extent::new(0, 4096));
    running.add_client(ShardId(0), access::Access::new(whole, read, tell));
    // It is begun at the end of the turn in which it gets its memory. What comes before that turn ends
    // finds it not begun yet, and has it refused, which would be told.
    let until = Instant::now() + HANG;
    while running.shards.reports().unwrap().iter().all(|one| one.pool.pool_used_bytes == 0) {
        assert!(Instant::now() < until, "the read never gets its memory");
    }
    let early = told.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "{early:?}");
    running.shards.reports().unwrap();
    let quiesce = || Order::QuiesceVolume(whole);
    let error =
        running.shards.order("quiesce d0", Duration::from_millis(100), quiesce).unwrap_err();
    assert!(error.line().starts_with("quiesce d0: no answer within 0 s of shard 0"), "{error}");
    let error = running.open_anew("d0", Duration::from_millis(100)).unwrap_err();
    let words = "disk d0: expected its requests back within 0 s, seen one that is still in flight";
    assert!(error.line().starts_with(words), "{}", error.line());
    assert!(error.line().contains("plateway disks reopen d0"), "{}", error.line());
    assert!(told.try_recv().is_err());
}

#[test]
fn a_model_that_cannot_be_read_any_more_closes_no_disk_that_is_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.toml");
    std::fs::write(&path, "channels = 2\n").unwrap();
    let uri = format!(
        "model:{},file:{}?create=1MiB",
        path.display(),
        directory.path().join("a").display()
    );
    let (mut running, _) = running(directory.path(), &disk("d0", &uri));
    std::fs::write(&path, "channels = 0\n").unwrap();
    let error = running.open_anew("d0", HANG).unwrap_err();
    assert!(error.line().contains("m.toml:1: channels: expected 1 to 256, seen 0"), "{error}");
    assert!(running.disks["d0"].local.is_some());
    std::fs::write(&path, "channels = 3\n").unwrap();
    running.open_anew("d0", HANG).unwrap();
    assert!(running.disks["d0"].local.is_some());
}

#[test]
fn hosts_are_hinted_at_the_address_that_is_advertised_and_else_at_the_one_that_is_listened_at() {
    let directory = tempfile::tempdir().unwrap();
    let exports = disk("d0", "ram:1MiB")
        + &volume("v0", "\"d0\"", "")
        + &export("v0", 1, "\"any\"")
        + "iscsi = { target = \"iqn.2026-11.a:t\", lun = 0, hosts = \"any\" }\n";
    let hints = |listeners: &str| {
        let (running, args) = running(directory.path(), &(listeners.to_owned() + &exports));
        let hints = crate::protocols::hints(&args.exports, &running.portals());
        let tcp_port = running.listeners.values().last().unwrap().addresses[0].port();
        assert!(running.shut_down().is_empty());
        (hints, tcp_port)
    };
    let nvme = "[[listener]]\nnvme = \"127.0.0.1:0\"\n";
    let (said, port) = hints(nvme);
    assert_eq!(said, [format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n nqn.2026-11.a:s")]);
    let iscsi = "[[listener]]\niscsi = \"0.0.0.0:0\"\n";
    let (said, port) = hints(iscsi);
    assert!(said[0].contains(&format!("ADDRESS:{port}")), "{said:?}");
    let (said, _) = hints(&format!("{iscsi}advertise = \"gateway.example:3261\"\n"));
    assert!(said[0].contains("gateway.example:3261") && !said[0].contains("ADDRESS"), "{said:?}");
}

/// A client that is over once it was called after its bell was rung.
#[derive(Debug)]
struct Called {
    is_rung: std::sync::Arc<std::sync::atomic::AtomicBool>,
    tell: std::sync::mpsc::Sender<()>,
    is_over: bool,
}

impl shard::InternalClient for Called {
    fn handle_completion(&mut self, _: block::Completion, _: &mut shard::ClientContext<'_>) {
        unreachable!("it asks for nothing");
    }

    fn handle_turn(&mut self, _: &mut shard::ClientContext<'_>) {
        if self.is_rung.load(std::sync::atomic::Ordering::Relaxed) {
            self.is_over = true;
            let _ = self.tell.send(());
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

#[test]
fn a_shard_that_sleeps_is_knocked_at_from_another_thread() {
    let directory = tempfile::tempdir().unwrap();
    let (running, _) = running(directory.path(), &disk("d0", "ram:1MiB"));
    let (tell, told) = std::sync::mpsc::channel();
    let is_rung = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    running.add_client(ShardId(0), Called { is_rung: is_rung.clone(), tell, is_over: false });
    // An order is answered after the client came.
    running.shards.reports().unwrap();
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "nobody rang");
    let knock = running.knock(ShardId(0));
    std::thread::spawn(move || {
        is_rung.store(true, std::sync::atomic::Ordering::Relaxed);
        knock();
    });
    told.recv_timeout(HANG).expect("the shard was woken");
    assert!(running.shut_down().is_empty());
}
