//! Reservations over NVMe: hosts fence each other and stations whose list is stored, `status` shows
//! who holds what others made, and `plateway reservation clear` frees it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use wire::nvme::reservation::{AcquireAction, ChangePersist, RegisterAction, ReservationType};
use wire::nvme::{Command, Status};

use crate::client::{BLOCK, Controller, Queue};
use crate::common::{Server, configuration, flat, text};

const DISK: &str = "file:a.img?create=8MiB";
const HELD: &str =
    "generation 3 held exclusive-access-all by all: mac:020000000001=0 mac:020000000002=0\n";

/// What a host is told of a write and of a read.
fn asked(server: &Server) -> (Status, Status) {
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    let status = |status: Status| status.without_hints();
    (status(queue.try_write(3, &[7; BLOCK])), status(queue.try_read(3)))
}

#[test]
fn a_reserved_volume_is_refused_to_nvme_hosts_until_it_is_cleared_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::of(here, "a", DISK);
    assert_eq!(asked(&server), (Status::SUCCESS, Status::SUCCESS));
    assert!(server.status()["volumes"][0]["reservation"].is_null());
    assert!(!server.ask(&["status"]).contains("reserved"));
    let nothing = server.ask(&["reservation", "clear", "v0"]);
    assert_eq!(nothing, "volume v0 has no reservation: nothing was done\n");
    let file = here.join("state/reservations").join(server.uuid());
    server.stop();

    fs::create_dir(here.join("state/reservations")).unwrap();
    fs::write(&file, HELD).unwrap();
    let server = Server::of(here, "a", DISK);
    let conflict = (Status::RESERVATION_CONFLICT, Status::RESERVATION_CONFLICT);
    assert_eq!(asked(&server), conflict);
    let reservation = &server.status()["volumes"][0]["reservation"];
    assert_eq!(reservation["kind"], "exclusive-access-all");
    assert_eq!(reservation["holders"][1], "mac:020000000002");
    let shown = server.ask(&["status"]);
    assert!(
        shown.contains("exclusive-access-all") && shown.contains("mac:020000000001"),
        "{shown}"
    );
    let refused = server.refuse(&["reservation", "clear", "v9"]);
    assert!(refused.contains("volume v9") && refused.contains("v0"), "{refused}");
    assert_eq!(asked(&server), conflict, "another volume was meant");

    // What cannot be stored is not done.
    let (state, aside) = (here.join("state"), here.join("aside"));
    fs::rename(&state, &aside).unwrap();
    fs::create_dir_all(state.join("reservations").join(server.uuid())).unwrap();
    let refused = server.refuse(&["reservation", "clear", "v0"]);
    assert!(refused.contains("could not be stored"), "{refused}");
    assert_eq!(asked(&server), conflict);
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&aside, &state).unwrap();

    let done = server.ask(&["reservation", "clear", "v0", "--json"]);
    let done: String = serde_json::from_str(&done).expect("a string");
    assert!(done.contains("volume v0 is free") && done.contains("mac:020000000001"), "{done}");
    server.wait_for_log("volume v0 is free");
    assert!(!file.exists());
    assert_eq!(asked(&server), (Status::SUCCESS, Status::SUCCESS));
    server.kill();
    let server = Server::of(here, "a", DISK);
    assert_eq!(asked(&server), (Status::SUCCESS, Status::SUCCESS), "for good");
    server.stop();
}

#[test]
fn a_reservation_that_is_not_understood_is_left_alone_and_its_volume_is_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::of(here, "a", DISK);
    let file = here.join("state/reservations").join(server.uuid());
    server.stop();
    fs::create_dir(here.join("state/reservations")).unwrap();
    fs::write(&file, "of another kind\n").unwrap();
    let refused = Server::try_start(here, "a", &[DISK, "--nvme", "127.0.0.1:0", "--hosts", "any"]);
    let refused = refused.err().expect("it would let in whom it kept out");
    assert!(refused.contains("cannot understand the reservation of volume v0"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "of another kind\n");
}

/// A host with an I/O queue.
fn host(server: &Server, number: u16) -> (Controller, Queue) {
    let controller = Controller::connect(server.address.parse().unwrap(), number, 1);
    let queue = controller.queue(1, false);
    (controller, queue)
}

fn register(action: RegisterAction, cptpl: ChangePersist) -> Command {
    Command::reservation_register(1, action, cptpl)
}

fn write(queue: &mut Queue) -> Status {
    queue.try_write(3, &[7; BLOCK]).without_hints()
}

/// The keys of those who are registered.
fn keys(queue: &mut Queue) -> Vec<u64> {
    queue.report().registrants.iter().map(|one| one.key).collect()
}

#[test]
fn a_host_fences_another_and_status_says_who_holds() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", DISK);
    let ((_one, mut one), (_two, mut two)) = (host(&server, 1), host(&server, 2));
    let new = register(RegisterAction::REGISTER, ChangePersist::KEEP);
    let acquire =
        |action| Command::reservation_acquire(1, action, ReservationType::WRITE_EXCLUSIVE);
    let (hold, fence) =
        (acquire(AcquireAction::ACQUIRE), acquire(AcquireAction::PREEMPT_AND_ABORT));
    assert_eq!(one.try_reserve(hold, 7, 0), Status::RESERVATION_CONFLICT, "it is not registered");
    assert_eq!(one.try_reserve(new, 0, 7), Status::SUCCESS);
    assert_eq!(two.try_reserve(new, 0, 9), Status::SUCCESS);
    assert_eq!(one.try_reserve(hold, 7, 0), Status::SUCCESS);
    assert_eq!((write(&mut one), write(&mut two)), (Status::SUCCESS, Status::RESERVATION_CONFLICT));
    assert_eq!(two.try_reserve(fence, 9, 7), Status::SUCCESS);
    assert_eq!((write(&mut one), write(&mut two)), (Status::RESERVATION_CONFLICT, Status::SUCCESS));
    assert_eq!(one.try_read(3), Status::SUCCESS);
    assert_eq!(keys(&mut one), [9]);
    let reservation = &server.status()["volumes"][0]["reservation"];
    assert_eq!(reservation["kind"], "write-exclusive");
    assert_eq!(reservation["holders"][0], format!("nvme:0200{}", "5a".repeat(14)));
    // It did not ask to outlive the process.
    server.kill();
    let server = Server::of(directory.path(), "a", DISK);
    let (_two, mut two) = host(&server, 2);
    assert!(keys(&mut two).is_empty());
    server.stop();
}

#[test]
fn a_host_that_asks_to_outlive_a_restart_does_so_beside_the_stations_of_a_list() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::of(here, "a", DISK);
    let file = here.join("state/reservations").join(server.uuid());
    server.stop();
    fs::create_dir(here.join("state/reservations")).unwrap();
    fs::write(&file, HELD).unwrap();

    let (first, second) = (0x0200_0000_0001, 0x0200_0000_0002);
    let server = Server::of(here, "a", DISK);
    let (_one, mut one) = host(&server, 1);
    assert_eq!(write(&mut one), Status::RESERVATION_CONFLICT);
    let new = register(RegisterAction::REGISTER, ChangePersist::SET);
    assert_eq!(one.try_reserve(new, 0, 7), Status::SUCCESS);
    assert_eq!((write(&mut one), keys(&mut one)), (Status::SUCCESS, vec![first, second, 7]));
    server.kill();

    let server = Server::of(here, "a", DISK);
    let (_one, mut one) = host(&server, 1);
    assert_eq!((write(&mut one), keys(&mut one)), (Status::SUCCESS, vec![first, second, 7]));
    // A station is fenced by its address.
    let kind = ReservationType::EXCLUSIVE_ACCESS_ALL;
    let fence = Command::reservation_acquire(1, AcquireAction::PREEMPT, kind);
    assert_eq!(one.try_reserve(fence, 7, first), Status::SUCCESS);
    assert_eq!(keys(&mut one), [second, 7]);
    // From now on the host does not outlive a restart, and stations do.
    let replace = register(RegisterAction::REPLACE, ChangePersist::CLEAR);
    assert_eq!(one.try_reserve(replace, 7, 8), Status::SUCCESS);
    server.kill();
    let server = Server::of(here, "a", DISK);
    let (_one, mut one) = host(&server, 1);
    assert_eq!((write(&mut one), keys(&mut one)), (Status::RESERVATION_CONFLICT, vec![second]));
    server.stop();
}

/// Volumes of a file each, `v0` and so on, all of which are reserved, and what is stored of each.
struct Reserved {
    directory: tempfile::TempDir,
    server: Server,
    stored: Vec<PathBuf>,
}

impl Reserved {
    fn of(count: usize) -> Reserved {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let server = Server::configured(here, &config(0..count));
        let status = server.status();
        let volumes = status["volumes"].as_array().expect("volumes");
        let folder = here.join("state/reservations");
        let stored = |one: &Value| folder.join(one["uuid"].as_str().expect("an identity"));
        let stored: Vec<PathBuf> = volumes.iter().map(stored).collect();
        server.stop();
        fs::create_dir(&folder).unwrap();
        stored.iter().for_each(|file| fs::write(file, HELD).unwrap());
        let server = Server::configured(here, &config(0..count));
        Reserved { directory, server, stored }
    }

    /// Whether a volume that is served is reserved, which must be said and stored alike.
    fn is_held(&self, number: usize) -> bool {
        let status = self.server.status();
        let volumes = status["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|one| one["name"] == format!("v{number}"));
        let held = !volume.expect("it is served")["reservation"].is_null();
        assert_eq!(is_stored(&self.stored[number]), held, "volume v{number}");
        held
    }
}

/// Whether a reservation is stored, which must be the whole of it.
fn is_stored(file: &Path) -> bool {
    let stored = fs::read_to_string(file).ok();
    assert!(stored.as_ref().is_none_or(|stored| stored == HELD), "half cleared: {stored:?}");
    stored.is_some()
}

fn config(volumes: std::ops::Range<usize>) -> String {
    let each = |number: usize| {
        let (disk, file) = (format!("d{number}"), format!("file:{number}.img?create=1MiB"));
        (disk.clone(), file, format!("v{number}"), format!("disks = [\"{disk}\"]"))
    };
    let all: Vec<_> = volumes.map(each).collect();
    let disks: Vec<_> = all.iter().map(|(disk, file, ..)| (&**disk, &**file)).collect();
    let volumes: Vec<_> = all.iter().map(|(.., name, rest)| (&**name, &**rest)).collect();
    configuration(&disks, &volumes)
}

#[test]
fn of_two_that_clear_at_once_one_frees_the_volume_and_both_are_told() {
    let reserved = Reserved::of(4);
    for number in 0..4 {
        let volume = format!("v{number}");
        let clear = || reserved.server.ask(&["reservation", "clear", &volume]);
        let mut told = thread::scope(|scope| {
            [scope.spawn(clear), scope.spawn(clear)].map(|one| one.join().unwrap())
        });
        told.sort();
        assert!(told[0].contains("has no reservation: nothing was done"), "{told:?}");
        assert!(told[1].contains("is free for every host"), "{told:?}");
        assert!(!reserved.is_held(number));
        assert!((number + 1..4).all(|other| reserved.is_held(other)), "another volume was meant");
    }
}

#[test]
fn a_volume_that_is_being_removed_is_freed_before_or_keeps_its_reservation() {
    let reserved = Reserved::of(4);
    for number in 0..4 {
        let volume = format!("v{number}");
        let output = thread::scope(|scope| {
            let apply = scope.spawn(|| reserved.server.apply_anyway(&config(number + 1..4)));
            let clear = ["reservation", "clear", &volume];
            let output = reserved.server.command(&clear);
            let done = apply.join().unwrap();
            assert!(done.contains(&format!("- volume {volume}")), "{done}");
            output
        });
        let freed = output.status.success();
        match freed {
            true => assert!(text(&output.stdout).contains("is free for every host")),
            false => assert!(flat(&output.stderr).contains("no such volume"), "{output:?}"),
        }
        assert_eq!(is_stored(&reserved.stored[number]), !freed, "{volume}");
        reserved.server.apply(&config(number..4));
        assert_eq!(reserved.is_held(number), !freed, "{volume}");
        reserved.server.apply_anyway(&config(number + 1..4));
    }
}

#[test]
fn a_server_that_ends_frees_the_volume_and_says_so_or_does_neither() {
    for number in 0..6 {
        let Reserved { directory, server, stored } = Reserved::of(1);
        let output = thread::scope(|scope| {
            let clear = || server.command(&["reservation", "clear", "v0"]);
            let clear = scope.spawn(clear);
            // Before, while and after it is asked.
            thread::sleep(std::time::Duration::from_millis(4 * number));
            server.signal(Signal::TERM);
            clear.join().unwrap()
        });
        server.wait_for_end();
        let freed = output.status.success();
        if !freed {
            let said = flat(&output.stderr);
            let clear = ["the server is ending", "no server answers on the control socket"];
            assert!(clear.iter().any(|words| said.contains(words)), "{said}");
        }
        assert_eq!(is_stored(&stored[0]), !freed);
        let server = Server::configured(directory.path(), &config(0..1));
        let reserved = Reserved { directory, server, stored };
        assert_eq!(reserved.is_held(0), !freed);
    }
}
