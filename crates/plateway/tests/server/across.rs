//! One reservation, two protocols with sessions: hosts of NVMe and of iSCSI fence each other, are told,
//! and find after a restart what was to outlive it. AoE's part is in the tests that have an Ethernet.

use std::fs;
use std::path::Path;

use testkit::iscsi::Said;
use wire::nvme::reservation::{AcquireAction, ChangePersist, RegisterAction};
use wire::nvme::{Command, Status, reservation};
use wire::scsi::persistent::{ReservationType, ReserveOut};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ScsiStatus, ServiceAction};

use crate::client::{self, Controller, Queue};
use crate::common::Server;
use crate::session::{BLOCK, HOST, Session, TARGET};
use testkit::iscsi::host::Order;

const REGISTER: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE;
const WRITE_EXCLUSIVE: ReservationType = ReservationType::WRITE_EXCLUSIVE;
const CONFLICT: (ScsiStatus, Status) =
    (ScsiStatus::RESERVATION_CONFLICT, Status::RESERVATION_CONFLICT);
/// The keys of the iSCSI host and of the NVMe host.
const KEYS: (u64, u64) = (0x15c51, 0x4e564d65);

/// A volume on a file, over both protocols.
fn serve(directory: &Path) -> Server {
    let disk = directory.join("a.img");
    let config = format!(
        "[[listener]]\nnvme = \"127.0.0.1:0\"\n[[listener]]\niscsi = \"127.0.0.1:0\"\n\
         [[disk]]\nname = \"d0\"\nuri = \"file:{}?create=8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
         [[export]]\nvolume = \"v0\"\n\
         nvme = {{ subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = \"any\" }}\n\
         iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\" }}\n",
        disk.display()
    );
    Server::configured(directory, &config)
}

/// A host of each protocol.
struct Hosts {
    scsi: Session,
    nvme: Queue,
    _admin: Controller,
}

impl Hosts {
    fn of(server: &Server) -> Hosts {
        let admin = Controller::connect(server.listens("nvme").parse().unwrap(), 1, 1);
        let nvme = admin.queue(1, false);
        Hosts { scsi: Session::log_in(&server.listens("iscsi"), 1), nvme, _admin: admin }
    }

    /// What each is told of a write.
    fn write(&mut self) -> (ScsiStatus, Status) {
        let scsi = self.scsi.write(0, &[7; BLOCK as usize]);
        (scsi, self.nvme.try_write(3, &[7; client::BLOCK]).without_hints())
    }

    /// PERSISTENT RESERVE OUT by the key of its host, with another one.
    fn scsi(&mut self, action: ServiceAction, action_key: u64, persist: bool) -> Said {
        let list = ReserveOut { key: KEYS.0, action_key, persist, ..ReserveOut::default() };
        self.scsi.reserve(action, WRITE_EXCLUSIVE, &list)
    }

    /// The same of the NVMe host.
    fn nvme(&mut self, action: AcquireAction, other: u64) -> Status {
        let kind = reservation::ReservationType::WRITE_EXCLUSIVE;
        self.nvme.try_reserve(Command::reservation_acquire(1, action, kind), KEYS.1, other)
    }

    fn register_nvme(&mut self, persist: ChangePersist) -> Status {
        let register = Command::reservation_register(1, RegisterAction::REGISTER, persist);
        self.nvme.try_reserve(register, 0, KEYS.1)
    }

    fn both_registered(&mut self) {
        assert_eq!(self.scsi(REGISTER, KEYS.0, false).status(), ScsiStatus::GOOD);
        assert_eq!(self.register_nvme(ChangePersist::KEEP), Status::SUCCESS);
        assert_eq!(self.scsi.keys(), [KEYS.0, KEYS.1]);
    }

    fn keys_by_nvme(&mut self) -> Vec<u64> {
        self.nvme.report().registrants.iter().map(|one| one.key).collect()
    }
}

#[test]
fn hosts_of_both_protocols_fence_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    let mut hosts = Hosts::of(&server);
    hosts.both_registered();

    // iSCSI holds; NVMe takes it over, and ends what iSCSI had.
    let held = hosts.scsi(ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE, 0, false);
    assert_eq!(held.status(), ScsiStatus::GOOD);
    assert_eq!(hosts.write(), (ScsiStatus::GOOD, CONFLICT.1));
    assert_eq!(hosts.nvme(AcquireAction::ACQUIRE, 0), CONFLICT.1, "it is held");
    assert_eq!(hosts.nvme(AcquireAction::PREEMPT_AND_ABORT, KEYS.0), Status::SUCCESS);
    let told = hosts.scsi.is_ready();
    assert_eq!(told.sense().code, AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert_eq!(hosts.write(), (CONFLICT.0, Status::SUCCESS));
    assert_eq!(hosts.keys_by_nvme(), [KEYS.1]);
    // A reservation holds nobody off who only reads.
    assert_eq!(hosts.scsi.read(0).len(), BLOCK as usize);

    // And the other way round.
    assert_eq!(hosts.scsi(REGISTER, KEYS.0, false).status(), ScsiStatus::GOOD);
    let fence = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT;
    assert_eq!(hosts.scsi(fence, KEYS.1, false).status(), ScsiStatus::GOOD);
    assert_eq!(hosts.write(), (ScsiStatus::GOOD, CONFLICT.1));
    assert_eq!((hosts.scsi.keys(), hosts.keys_by_nvme()), (vec![KEYS.0], vec![KEYS.0]));
    let name = format!("{HOST},i,0x800000000001");
    let reservation = &server.status()["volumes"][0]["reservation"];
    assert_eq!(reservation["holders"][0], name);
    // By hand all are free.
    server.ask(&["reservation", "clear", "v0"]);
    let told = hosts.scsi.is_ready();
    assert_eq!(told.sense().code, AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert_eq!(hosts.write(), (ScsiStatus::GOOD, Status::SUCCESS));
    server.stop();
}

#[test]
fn what_a_session_has_ends_with_it_and_is_shown_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    let mut hosts = Hosts::of(&server);
    let mut reserve = Cdb::test_unit_ready();
    reserve.0[0] = OpCode::RESERVE_6.0;
    assert_eq!(hosts.scsi.ask(Order::new(0, reserve), &[]).status(), ScsiStatus::GOOD);
    assert_eq!(hosts.write(), (ScsiStatus::GOOD, CONFLICT.1));
    assert_eq!(hosts.nvme.try_read(3).without_hints(), CONFLICT.1);
    assert_eq!(hosts.register_nvme(ChangePersist::KEEP), CONFLICT.1);
    let reservation = &server.status()["volumes"][0]["reservation"];
    assert_eq!(reservation["kind"], "exclusive-access-session");
    assert_eq!(reservation["holders"][0], format!("{HOST},i,0x800000000001"));
    // Its connection is cut.
    drop(hosts.scsi);
    server.wait_for("nobody has it", |status| status["volumes"][0]["reservation"].is_null());
    let written = hosts.nvme.try_write(3, &[7; client::BLOCK]).without_hints();
    assert_eq!(written, Status::SUCCESS);
    server.stop();
}

#[test]
fn the_last_who_says_so_decides_for_both_whether_they_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    for persists in [true, false] {
        let server = serve(directory.path());
        let mut hosts = Hosts::of(&server);
        assert_eq!(hosts.register_nvme(ChangePersist::SET), Status::SUCCESS);
        assert_eq!(hosts.scsi(REGISTER, KEYS.0, persists).status(), ScsiStatus::GOOD);
        assert_eq!(hosts.nvme(AcquireAction::ACQUIRE, 0), Status::SUCCESS);
        server.kill();
        let server = serve(directory.path());
        let mut hosts = Hosts::of(&server);
        let (scsi, keys) = match persists {
            true => (CONFLICT.0, vec![KEYS.1, KEYS.0]),
            false => (ScsiStatus::GOOD, Vec::new()),
        };
        assert_eq!(hosts.write(), (scsi, Status::SUCCESS));
        assert_eq!(hosts.scsi.keys(), keys);
        server.ask(&["reservation", "clear", "v0"]);
        server.stop();
    }
}

#[test]
fn a_change_that_cannot_be_stored_is_not_made_and_both_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = serve(here);
    let mut hosts = Hosts::of(&server);
    hosts.both_registered();
    // Something else is where the file of the reservation goes.
    let file = here.join("state/reservations").join(server.uuid());
    if file.exists() {
        fs::remove_file(&file).unwrap();
    }
    fs::create_dir_all(&file).unwrap();
    let failed = hosts.scsi(REGISTER, KEYS.0 + 1, true);
    assert_eq!(failed.sense().code, AdditionalSense::INTERNAL_TARGET_FAILURE);
    assert_eq!(hosts.register_nvme(ChangePersist::SET), Status::INTERNAL_ERROR);
    assert_eq!(hosts.scsi.keys(), [KEYS.0, KEYS.1]);
    fs::remove_dir(&file).unwrap();
    assert_eq!(hosts.scsi(REGISTER, KEYS.0 + 1, true).status(), ScsiStatus::GOOD);
    assert_eq!(hosts.scsi.keys(), [KEYS.0 + 1, KEYS.1]);
    server.stop();
}
