//! A reservation that a host of another protocol has made: NVMe hosts are refused, `status` shows
//! who holds it, and `plateway reservation clear` frees it.

use std::fs;

use wire::nvme::Status;

use crate::client::{BLOCK, Controller};
use crate::common::Server;

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
    assert!(server.log().contains("volume v0 is free"), "{}", server.log());
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
