//! Groups of listeners: an administrator closes a path for hosts of both protocols at once, hosts hear
//! of it and go on by the other, and it stays closed until it is opened.

use std::fs;
use std::path::Path;

use testkit::iscsi::Said;
use testkit::iscsi::host::Order;
use wire::nvme::Status;
use wire::scsi::alua::{AccessState, PortGroups, SetPortGroups};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus, ServiceAction};

use crate::client::{self, Controller, Queue};
use crate::common::{Server, flat, plateway, write};
use crate::session::{BLOCK, Session, TARGET};

/// A volume over both protocols, each by a listener of group 1 and one of `second`.
fn config(directory: &Path, second: u16, set_groups: bool) -> String {
    let disk = directory.join("a.img");
    format!(
        "[[listener]]\nnvme = \"127.0.0.1:0\"\n\
         [[listener]]\nnvme = \"127.0.0.2:0\"\ngroup = {second}\n\
         [[listener]]\niscsi = \"127.0.0.1:0\"\n\
         [[listener]]\niscsi = \"127.0.0.2:0\"\ngroup = {second}\n\
         [[disk]]\nname = \"d0\"\nuri = \"file:{}?create=8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
         [[export]]\nvolume = \"v0\"\n\
         nvme = {{ subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = \"any\" }}\n\
         iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\", set_groups = {set_groups} }}\n",
        disk.display()
    )
}

fn listens(server: &Server, key: &str, which: usize) -> String {
    let status = server.status();
    let listeners = status["listeners"].as_array().expect("a list");
    let mine = listeners.iter().filter(|one| one.get(key).is_some());
    let one = mine.map(|one| one["addresses"][0].as_str().expect("an address")).nth(which);
    one.expect("it is there").to_owned()
}

/// A host of each protocol, by the listeners of one group.
struct Hosts {
    scsi: Session,
    nvme: Queue,
    _admin: Controller,
}

impl Hosts {
    fn by(server: &Server, which: usize) -> Hosts {
        let address = listens(server, "nvme", which);
        let admin = Controller::connect(address.parse().unwrap(), 1 + which as u16, 1);
        let nvme = admin.queue(1, false);
        let scsi = Session::log_in(&listens(server, "iscsi", which), 1);
        Hosts { scsi, nvme, _admin: admin }
    }

    /// What each is told of a write; of a unit attention only what comes behind it.
    fn write(&mut self) -> (ScsiStatus, Option<AdditionalSense>, Status) {
        let order = || Order::write(0, Cdb::write_10(0, 1, false), BLOCK);
        let mut said = self.scsi.ask(order(), &[7; BLOCK as usize]);
        if said.status() == ScsiStatus::CHECK_CONDITION
            && said.sense().code == AdditionalSense::ASYMMETRIC_ACCESS_CHANGED
        {
            said = self.scsi.ask(order(), &[7; BLOCK as usize]);
        }
        let code = (said.status() == ScsiStatus::CHECK_CONDITION).then(|| said.sense().code);
        (said.status(), code, self.nvme.try_write(3, &[7; client::BLOCK]))
    }

    fn serves(&mut self) -> bool {
        self.write() == (ScsiStatus::GOOD, None, Status::SUCCESS)
    }

    fn is_in(&mut self, code: AdditionalSense, status: Status) -> bool {
        self.write() == (ScsiStatus::CHECK_CONDITION, Some(code), status)
    }

    fn groups(&mut self) -> Vec<(u16, AccessState)> {
        let mut cdb = Cdb::with_action(ServiceAction::REPORT_TARGET_PORT_GROUPS);
        cdb.0[8] = 1;
        match self.scsi.ask(Order::read(0, cdb, 256), &[]) {
            Said::Data(_, data) => {
                let groups = PortGroups::parse(&data).expect("groups").0;
                groups.iter().map(|group| (group.id, group.state)).collect()
            }
            other => panic!("expected groups, got {other:?}"),
        }
    }

    fn set_group(&mut self, group: u16, state: AccessState) -> ScsiStatus {
        let list = SetPortGroups(vec![(group, state)]).emit();
        let mut cdb = Cdb::with_action(ServiceAction::SET_TARGET_PORT_GROUPS);
        cdb.0[9] = list.len() as u8;
        self.scsi.ask(Order::write(0, cdb, list.len() as u32), &list).status()
    }
}

const STANDBY: AdditionalSense = AdditionalSense::ALUA_STANDBY;
const INACCESSIBLE: Status = Status::ANA_INACCESSIBLE;

#[test]
fn a_path_is_closed_for_both_protocols_and_stays_closed_until_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::configured(here, &config(here, 2, false));
    let (mut first, mut second) = (Hosts::by(&server, 0), Hosts::by(&server, 1));
    assert!(first.serves() && second.serves());
    let done = server.ask(&["group", "set", "2", "standby"]);
    assert!(done.starts_with("group 2 is standby now: listener nvme 127.0.0.2:0, "), "{done}");
    assert!(done.contains("with 3 connections"), "{done}");
    assert!(first.serves() && second.is_in(STANDBY, INACCESSIBLE));
    server.wait_for_log(
        "listeners of group 2 are standby now, which were optimized: an administrator",
    );
    let again = server.ask(&["group", "set", "2", "standby"]);
    assert_eq!(again, "group 2 is standby already: nothing was done\n");
    assert_eq!(second.groups(), [(1, AccessState::ACTIVE_OPTIMIZED), (2, AccessState::STANDBY)]);
    let shown = server.status();
    assert_eq!(
        (&shown["listeners"][1]["group"], &shown["listeners"][1]["path"]),
        (&2.into(), &"standby".into())
    );
    assert_eq!(shown["listeners"][0]["path"], "optimized");
    drop((first, second));
    server.stop();

    let server = Server::configured(here, &config(here, 2, false));
    let (mut first, mut second) = (Hosts::by(&server, 0), Hosts::by(&server, 1));
    assert!(first.serves() && second.is_in(STANDBY, INACCESSIBLE), "it outlives a restart");
    server.ask(&["group", "set", "2", "transitioning"]);
    assert!(second.is_in(AdditionalSense::ALUA_TRANSITION, Status::ANA_TRANSITION));
    server.ask(&["group", "set", "2", "unavailable"]);
    assert!(second.is_in(AdditionalSense::ALUA_UNAVAILABLE, INACCESSIBLE));
    server.ask(&["group", "set", "2", "non-optimized"]);
    assert!(first.serves() && second.serves());

    // What cannot be stored is not done.
    let (state, aside) = (here.join("state"), here.join("aside"));
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "").unwrap();
    let refused = server.refuse(&["group", "set", "1", "standby"]);
    let (words, force) = ("the change could not be stored, and was not made; ", "in force is");
    assert!(refused.contains(&format!("{words}{force} optimized, what a restart")), "{refused}");
    assert!(first.serves());
    server.wait_for_log("cannot store the states of groups of listeners: ");
    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    // As where the file system takes no new file.
    let in_the_way = state.join("paths.new");
    fs::create_dir(&in_the_way).unwrap();
    let refused = server.refuse(&["group", "set", "2", "unavailable"]);
    let stays = "non-optimized, a restart finds non-optimized";
    assert!(refused.contains(&format!("{words}{force} {stays}")), "{refused}");
    assert!(!refused.contains("all the same"), "{refused}");
    fs::remove_dir(&in_the_way).unwrap();
    server.ask(&["group", "set", "1", "standby"]);
    assert!(first.is_in(STANDBY, INACCESSIBLE) && second.serves());
    for (args, expected) in [
        (["group", "set", "9", "standby"], "group 9: no listener is of this group; there are 1, 2"),
        (["group", "set", "1", "asleep"], "expected optimized, non-optimized, standby"),
        (["group", "set", "256", "standby"], "256 is not in 1..=255"),
    ] {
        let output = server.command(&args);
        let said = crate::common::flat(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
    }
    server.stop();

    // Whoever cannot read what was closed opens nothing.
    fs::write(here.join("state/paths"), "1=open by me, 1 change\n").unwrap();
    let refused = Server::try_configured(here, &config(here, 2, false), &[]).err().unwrap();
    assert!(refused.contains("cannot understand the states of groups of listeners"), "{refused}");
    assert_eq!(fs::read_to_string(here.join("state/paths")).unwrap(), "1=open by me, 1 change\n");
}

#[test]
fn a_listener_of_a_closed_group_is_told_of_beforehand_at_a_start_and_when_it_is_added() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (state, control) = (here.join("state"), here.join("nobody.sock"));
    let (state, control) = (state.display(), control.display());
    let own = format!("[server]\nstate = \"{state}\"\ncontrol = \"{control}\"\n");
    let config = own + &config(here, 2, false);
    let path = write(here, &config);
    let words = |listener: &str| {
        format!(
            "listener {listener}: group 2 is standby: hosts read and write nothing there until: plateway group set 2 optimized"
        )
    };
    let alone = || {
        let output = plateway().current_dir(here).args(["check", &path]).output().unwrap();
        assert!(output.status.success());
        flat(&output.stderr)
    };
    let server = Server::configured(here, &config);
    assert!(!server.log().contains("hosts read and write nothing"), "{}", server.log());
    server.ask(&["group", "set", "2", "standby"]);
    let said = flat(&server.command(&["check", &path]).stderr);
    assert!(said.contains(&words("nvme 127.0.0.2:0")), "{said}");
    server.stop();
    let said = alone();
    for listener in ["nvme 127.0.0.2:0", "iscsi 127.0.0.2:0"] {
        assert!(said.contains(&words(listener)), "{said}");
    }
    assert!(!said.contains(&words("nvme 127.0.0.1:0")), "{said}");
    let server = Server::configured(here, &config);
    server.wait_for_log(&words("iscsi 127.0.0.2:0"));
    let more = config.clone() + "[[listener]]\nnvme = \"127.0.0.3:0\"\ngroup = 2\n";
    let applied = server.command(&["apply", &write(here, &more)]);
    let said = flat(&applied.stderr);
    assert!(applied.status.success() && said.contains(&words("nvme 127.0.0.3:0")), "{said}");
    assert!(!said.contains(&words("nvme 127.0.0.2:0")), "{said}");
    server.ask(&["group", "set", "2", "optimized"]);
    server.stop();
    assert!(!alone().contains("hosts read and write nothing"));
}

#[test]
fn a_host_sets_states_where_its_export_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::configured(here, &config(here, 2, false));
    let (mut first, mut second) = (Hosts::by(&server, 0), Hosts::by(&server, 1));
    assert_eq!(first.set_group(2, AccessState::STANDBY), ScsiStatus::CHECK_CONDITION);
    assert!(second.serves());
    let applied = server.apply(&config(here, 2, true));
    assert!(applied.contains("set_groups false -> true"), "{applied}");
    // It is told that the unit says something else of itself.
    let told = first.scsi.is_ready().sense().code;
    assert_eq!(told, AdditionalSense::INQUIRY_DATA_CHANGED);
    second.scsi.is_ready();
    assert_eq!(first.set_group(2, AccessState::STANDBY), ScsiStatus::GOOD);
    assert!(first.serves() && second.is_in(STANDBY, INACCESSIBLE));
    server.wait_for_log("listeners of group 2 are standby now, which were optimized: a host asked");
    let kept = fs::read_to_string(here.join("state/paths")).unwrap();
    assert!(kept.ends_with("\n2=standby by host, 1 change\n"), "{kept}");
    assert_eq!(second.set_group(2, AccessState::ACTIVE_OPTIMIZED), ScsiStatus::GOOD);
    assert!(second.serves());
    server.stop();
}

#[test]
fn a_listener_of_another_group_is_another_path() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = Server::configured(here, &config(here, 2, false));
    let mut second = Hosts::by(&server, 1);
    server.ask(&["group", "set", "2", "standby"]);
    let refused = server.refuse_apply(&config(here, 7, false));
    assert!(refused.contains("--yes") && refused.contains("connection of 127.0.0.1"), "{refused}");
    let applied = server.apply_anyway(&config(here, 7, false));
    assert!(applied.contains("group 7"), "{applied}");
    assert!(second.scsi.is_closed());
    let mut again = Hosts::by(&server, 1);
    assert!(again.serves(), "group 7 was never closed");
    assert_eq!(again.groups().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 7]);
    // What no listener is of may be opened still, and is shut when one is of it again.
    assert!(server.ask(&["group", "set", "2", "optimized"]).contains("no listener, with 0"));
    server.stop();
}
