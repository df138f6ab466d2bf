//! `[[host]]`: a machine that is named once is one registrant by whatever it comes, proves itself by
//! a secret of its own, and is added, renamed and removed under sessions that go on. What a restart
//! leaves of it. AoE's part is in the tests that have an Ethernet.

use std::path::Path;

use testkit::iscsi::host::Order;
use wire::nvme::reservation::{AcquireAction, ChangePersist, RegisterAction, ReservationType};
use wire::nvme::{Command, Status};
use wire::scsi::persistent::{ReservationType as ScsiType, ReserveOut};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ScsiStatus, ServiceAction};

use crate::chap::{is_failure, log_in_as, login, put};
use crate::client::{self, Controller, Queue};
use crate::common::{Server, flat, text, write};
use crate::session::{BLOCK, HOST, Session, TARGET};

const STRANGER: &str = "iqn.2026-11.net.plateway:stranger";
const NQN: &str = "nqn.2026-11.net.plateway:host-1";
const REFUSED: (ScsiStatus, Status) =
    (ScsiStatus::RESERVATION_CONFLICT, Status::RESERVATION_CONFLICT);
const LET: (ScsiStatus, Status) = (ScsiStatus::GOOD, Status::SUCCESS);
/// The keys of the named host and of the stranger.
const KEYS: (u64, u64) = (0x11, 0x22);

/// A volume on a file over both protocols, with these hosts.
fn config(directory: &Path, hosts: &str, may: &str) -> String {
    format!(
        "[[listener]]\nnvme = \"127.0.0.1:0\"\n[[listener]]\niscsi = \"127.0.0.1:0\"\n{hosts}\
         [[disk]]\nname = \"d0\"\nuri = \"file:{}?create=8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
         [[export]]\nvolume = \"v0\"\n\
         nvme = {{ subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = {may} }}\n\
         iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = {may} }}\n",
        directory.join("a.img").display()
    )
}

fn named(name: &str) -> String {
    format!("[[host]]\nname = \"{name}\"\nnvme = \"{NQN}\"\niscsi = \"{HOST}\"\n")
}

/// A machine that comes by both protocols.
struct Machine {
    scsi: Session,
    nvme: Queue,
    _admin: Controller,
}

impl Machine {
    fn of(server: &Server, name: &str, number: u16) -> Machine {
        let admin = Controller::connect(server.listens("nvme").parse().unwrap(), number, 1);
        let nvme = admin.queue(1, false);
        let scsi = log_in_as(name, &server.listens("iscsi"), 1, None).expect("it may");
        Machine { scsi, nvme, _admin: admin }
    }

    /// What it is told of a write by each way.
    fn write(&mut self) -> (ScsiStatus, Status) {
        let scsi = self.scsi.write(0, &[7; BLOCK as usize]);
        (scsi, self.nvme.try_write(3, &[7; client::BLOCK]).without_hints())
    }

    fn register_nvme(&mut self, key: u64, persist: ChangePersist) -> Status {
        let register = Command::reservation_register(1, RegisterAction::REGISTER, persist);
        self.nvme.try_reserve(register, 0, key).without_hints()
    }

    fn acquire(&mut self, action: AcquireAction, key: u64, other: u64) -> Status {
        let kind = ReservationType::WRITE_EXCLUSIVE;
        let command = Command::reservation_acquire(1, action, kind);
        self.nvme.try_reserve(command, key, other).without_hints()
    }

    fn register_scsi(&mut self, key: u64, action_key: u64) -> ScsiStatus {
        let list = ReserveOut { key, action_key, ..ReserveOut::default() };
        let action = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
        self.scsi.reserve(action, ScsiType::WRITE_EXCLUSIVE, &list).status()
    }
}

fn holders(server: &Server) -> serde_json::Value {
    server.status()["volumes"][0]["reservation"]["holders"].clone()
}

#[test]
fn a_named_host_holds_by_one_protocol_writes_by_the_other_and_is_fenced_on_both() {
    let directory = tempfile::tempdir().unwrap();
    let server =
        Server::configured(directory.path(), &config(directory.path(), &named("web1"), "\"any\""));
    let mut web = Machine::of(&server, HOST, 1);
    let mut other = Machine::of(&server, STRANGER, 2);
    assert_eq!(web.register_nvme(KEYS.0, ChangePersist::KEEP), Status::SUCCESS);
    assert_eq!(web.acquire(AcquireAction::ACQUIRE, KEYS.0, 0), Status::SUCCESS);
    assert_eq!((web.write(), other.write()), (LET, REFUSED));
    assert_eq!(holders(&server)[0], "web1");
    let status = server.status();
    let named = [&status["controllers"], &status["iscsi_sessions"]].map(|all| {
        let all = all.as_array().expect("sessions").iter();
        all.map(|one| one["name"].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    });
    for mut names in named {
        names.sort();
        assert_eq!(names, ["-", "web1"]);
    }
    let sessions = server.ask(&["session", "list"]);
    assert_eq!(sessions.matches("web1").count(), 2, "{sessions}");

    // Its software registers by every path: by another port, too, and once more by this one.
    assert_eq!(web.register_scsi(0, KEYS.0), ScsiStatus::GOOD);
    let mut second = log_in_as(HOST, &server.listens("iscsi"), 2, None).expect("a second path");
    assert_eq!(second.write(0, &[7; BLOCK as usize]), ScsiStatus::GOOD);
    assert_eq!(web.register_scsi(0, 0x33), ScsiStatus::RESERVATION_CONFLICT, "another key");
    assert_eq!(web.scsi.keys(), [KEYS.0], "it is registered once");
    // It finds itself by its own HOSTID.
    let report = web.nvme.report();
    assert_eq!(report.registrants[0].host_id[2..], [0x5a; 14]);

    assert_eq!(other.register_nvme(KEYS.1, ChangePersist::KEEP), Status::SUCCESS);
    assert_eq!(other.acquire(AcquireAction::PREEMPT_AND_ABORT, KEYS.1, KEYS.0), Status::SUCCESS);
    // Each of its sessions is told.
    for session in [&mut web.scsi, &mut second] {
        let told = session.is_ready().sense().code;
        assert_eq!(told, AdditionalSense::REGISTRATIONS_PREEMPTED);
    }
    assert_eq!(web.write(), REFUSED);
    // What the stranger is by one protocol it is not by the other: nobody named it.
    assert_eq!(other.write(), (ScsiStatus::RESERVATION_CONFLICT, Status::SUCCESS));
    assert_eq!(second.write(0, &[7; BLOCK as usize]), ScsiStatus::RESERVATION_CONFLICT);
    server.stop();
}

#[test]
fn what_a_session_of_a_named_host_has_is_shown_by_the_name() {
    let directory = tempfile::tempdir().unwrap();
    let server =
        Server::configured(directory.path(), &config(directory.path(), &named("web1"), "\"any\""));
    let mut web = Machine::of(&server, HOST, 1);
    let mut other = Machine::of(&server, STRANGER, 2);
    let mut reserve = Cdb::test_unit_ready();
    reserve.0[0] = OpCode::RESERVE_6.0;
    assert_eq!(web.scsi.ask(Order::new(0, reserve), &[]).status(), ScsiStatus::GOOD);
    assert_eq!((web.write(), other.write()), (LET, REFUSED));
    assert_eq!(holders(&server)[0], "web1");
    server.stop();
}

#[test]
fn who_is_named_renamed_or_nameless_while_connected_has_what_it_is_called_then() {
    let directory = tempfile::tempdir().unwrap();
    let of = |hosts: &str| config(directory.path(), hosts, "\"any\"");
    let server = Server::configured(directory.path(), &of(""));
    let mut web = Machine::of(&server, HOST, 1);
    assert_eq!(web.register_nvme(KEYS.0, ChangePersist::KEEP), Status::SUCCESS);
    assert_eq!(web.acquire(AcquireAction::ACQUIRE, KEYS.0, 0), Status::SUCCESS);
    assert_eq!(web.write(), (ScsiStatus::RESERVATION_CONFLICT, Status::SUCCESS));

    let check = server.check(&of(&named("web1")));
    assert!(check.contains(&format!("+ host web1: {NQN}, {HOST}")), "{check}");
    let path = write(directory.path(), &of(&named("web1")));
    let told = server.ask(&["apply", &path, "--json"]);
    let concerned = "host web1: whoever is connected is another registrant";
    assert!(told.contains(concerned) && told.contains(NQN) && told.contains(HOST), "{told}");
    assert_eq!(web.write(), REFUSED, "what it had is its HOSTID's");
    // It takes it over by the key that is there.
    assert_eq!(web.register_nvme(KEYS.1, ChangePersist::KEEP), Status::SUCCESS);
    assert_eq!(web.acquire(AcquireAction::PREEMPT, KEYS.1, KEYS.0), Status::SUCCESS);
    assert_eq!((web.write(), &holders(&server)[0]), (LET, &"web1".into()));
    assert!(server.check(&of(&named("web1"))).contains("nothing changes"));

    server.apply(&of(&named("db1")));
    assert_eq!(web.write(), REFUSED, "what web1 has is not db1's");
    server.apply(&of(""));
    assert_eq!(web.write(), REFUSED);
    // Nothing was forgotten: the name has it again, on both.
    server.apply(&of(&named("web1")));
    assert_eq!(web.write(), LET);
    // By one of them alone it is called so.
    let less = format!("[[host]]\nname = \"web1\"\nnvme = \"{NQN}\"\n");
    let step = format!("~ host web1: iscsi {HOST} -> none");
    let told = server.apply(&of(&less));
    assert!(told.contains(&step), "{told}");
    assert_eq!(web.write(), (ScsiStatus::RESERVATION_CONFLICT, Status::SUCCESS));
    server.stop();
}

#[test]
fn what_a_named_host_asked_to_outlive_a_restart_is_its_own_by_either_protocol() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), &named("web1"), "[\"web1\"]");
    let server = Server::configured(directory.path(), &config);
    let mut machine = Machine::of(&server, HOST, 1);
    assert_eq!(machine.register_nvme(KEYS.0, ChangePersist::SET), Status::SUCCESS);
    assert_eq!(machine.acquire(AcquireAction::ACQUIRE, KEYS.0, 0), Status::SUCCESS);
    assert!(log_in_as(STRANGER, &server.listens("iscsi"), 1, None).is_err(), "no list names it");
    server.kill();

    let server = Server::configured(directory.path(), &config);
    let mut scsi = Session::log_in(&server.listens("iscsi"), 3);
    assert_eq!(scsi.write(0, &[7; BLOCK as usize]), ScsiStatus::GOOD);
    assert_eq!((holders(&server)[0].clone(), scsi.keys()), ("web1".into(), vec![KEYS.0]));
    server.stop();
    // Whoever comes without the name has nothing of it.
    let nameless = self::config(directory.path(), "", "\"any\"");
    let server = Server::configured(directory.path(), &nameless);
    let mut machine = Machine::of(&server, HOST, 1);
    assert_eq!((machine.write(), &holders(&server)[0]), (REFUSED, &"web1".into()));
    server.ask(&["reservation", "clear", "v0"]);
    assert_eq!(machine.scsi.is_ready().status(), ScsiStatus::GOOD);
    assert_eq!(machine.write(), LET);
    server.stop();
}

#[test]
fn a_host_with_a_secret_of_its_own_proves_itself_by_that_one_alone() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    put(here, "web", "what web1 knows");
    put(here, "all", "what all others know");
    let chap =
        |host: &str| format!("iscsi_chap = {{ user = \"{host}\", secret_file = \"web\" }}\n");
    let of = |chap: &str| config(here, &(named("web1") + chap), "\"any\"");
    let server = Server::configured(here, &of(&chap("w")));
    let address = server.listens("iscsi");
    log_in_as(HOST, &address, 1, Some(login("w", "what web1 knows"))).expect("it is right");
    for wrong in
        [None, Some(login("w", "what all others know")), Some(login("x", "what web1 knows"))]
    {
        assert!(is_failure(log_in_as(HOST, &address, 2, wrong)));
    }
    // The target asks nobody else.
    log_in_as(STRANGER, &address, 1, None).expect("nobody asks it");

    // Where the target has a secret, it is not the host's.
    let both = of(&chap("w"))
        .replace("lun = 0,", "lun = 0, chap = { user = \"a\", secret_file = \"all\" },");
    server.apply(&both);
    assert!(is_failure(log_in_as(HOST, &address, 2, Some(login("a", "what all others know")))));
    log_in_as(HOST, &address, 2, Some(login("w", "what web1 knows"))).expect("its own");
    log_in_as(STRANGER, &address, 2, Some(login("a", "what all others know")))
        .expect("the target's");
    assert!(is_failure(log_in_as(STRANGER, &address, 3, Some(login("w", "what web1 knows")))));

    // Another secret counts from the next login once it is applied.
    put(here, "web", "what web1 knows now");
    let told = server.apply(&both);
    assert!(told.contains("~ host web1: chap: another secret"), "{told}");
    assert!(is_failure(log_in_as(HOST, &address, 3, Some(login("w", "what web1 knows")))));
    log_in_as(HOST, &address, 3, Some(login("w", "what web1 knows now"))).expect("the new one");
    let shown = server.ask(&["config"]) + &server.ask(&["status", "--json"]) + &server.log();
    assert!(shown.contains("iscsi_chap = { user = \"w\", secret_file = \"web\" }"), "{shown}");
    assert!(!shown.contains("what web1 knows"), "{shown}");
    // A file that others may read is none.
    let path = here.join("web");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let refused = server.refuse(&["check", &write(here, &both)]);
    assert!(refused.contains("is no secret"), "{refused}");
    server.stop();
}

#[test]
fn a_host_is_let_in_and_kept_out_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), &named("web1"), "[]");
    let server = Server::configured(directory.path(), &config);
    let address = server.listens("iscsi");
    assert!(log_in_as(HOST, &address, 1, None).is_err());
    let told = server.ask(&["host", "add", "v0", "web1"]);
    assert!(told.contains(&format!("hosts none -> {NQN}")), "{told}");
    let mut machine = Machine::of(&server, HOST, 1);
    assert_eq!(machine.write(), LET);
    let told = server.ask(&["host", "remove", "v0", "web1", "--yes"]);
    assert!(told.contains(&format!("hosts {HOST} -> none")), "{told}");
    for (volume, host, words) in [
        ("v0", "web2", "or the name of a [[host]] that is called so (web1), seen \"web2\""),
        (
            "v0",
            "02:00:00:00:00:01",
            "seen \"02:00:00:00:00:01\", a MAC address: over AoE it is not exported",
        ),
        ("v7", "web1", "there is no volume v7: expected one of v0"),
    ] {
        let refused = server.refuse(&["host", "add", volume, host]);
        assert!(refused.contains(words), "{refused}");
    }
    server.ask(&["host", "add", "v0", "web1"]);
    let again = server.command(&["host", "add", "v0", "web1"]);
    let said = flat(&again.stderr);
    assert!(again.status.success(), "{said}");
    assert!(said.contains("web1 is among the hosts of volume v0 already"), "{said}");
    assert_eq!(text(&again.stdout), "nothing changes\n");
    server.stop();
}
