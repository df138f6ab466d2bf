//! One reservation for two protocols: a host of iSCSI fences a station of AoE and the other way
//! round, and what is left of it after a restart.

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use wire::aoe::{Address, Command, ErrorCode, ReserveArgument, ReserveCommand};
use wire::scsi::persistent::{ReservationType, ReserveOut};
use wire::scsi::{AdditionalSense, ScsiStatus, ServiceAction};

use crate::common::Server;
use crate::lan::Lan;
use crate::session::{BLOCK, Session};
use crate::station::Station;

const AT: Address = Address { shelf: 7, slot: 0 };
const CONFLICT: ScsiStatus = ScsiStatus::RESERVATION_CONFLICT;
const KEY: u64 = 5;
const KIND: ReservationType = ReservationType::EXCLUSIVE_ACCESS;

/// A server of one file, over both protocols.
const SERVE: [&str; 9] = [
    "file:disk.img?create=16MiB",
    "--iscsi",
    "127.0.0.1:0",
    "--aoe",
    "veth0/7.0",
    "--hosts",
    "any",
    "--memory",
    "64MiB",
];

/// Logs in to a server where it is.
fn log_in(lan: &Lan, server: &Server) -> Session {
    let namespace = File::open(format!("/run/netns/{}", lan.target)).expect("a namespace");
    let address = server.address.trim_start_matches("iscsi ").to_owned();
    let open = move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).expect("it was made");
        TcpStream::connect(address).expect("it listens")
    };
    Session::over(std::thread::spawn(open).join().expect("it connects"), 1)
}

/// A list of the station alone, set or forced; why not.
fn list(station: &mut Station, command: ReserveCommand) -> Result<(), ErrorCode> {
    let argument = ReserveArgument { command, count: 1 }.emit();
    let mac = station.mac();
    let (header, _) = station.ask(AT, Command::RESERVE, &[&argument[..], &mac.0[..]].concat());
    if header.flags.is_error() { Err(header.error) } else { Ok(()) }
}

fn register(session: &mut Session, persist: bool) {
    let list = ReserveOut { key: 0, action_key: KEY, persist, ..ReserveOut::default() };
    let action = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE;
    let said = session.reserve(action, KIND, &list);
    assert_eq!(said.status(), ScsiStatus::GOOD);
}

#[test]
fn a_host_and_a_station_fence_each_other_and_a_restart_leaves_what_was_to_last() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let mut server = lan.serve(home.path(), &SERVE);
    let mut station = Station::new(&lan.initiator);
    let mut session = log_in(&lan, &server);
    let mac = station.mac().0.iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
    assert_eq!(list(&mut station, ReserveCommand::SET), Ok(()));
    assert_eq!(session.write(0, &[1; BLOCK as usize]), CONFLICT);
    assert_eq!(session.keys(), [mac]);

    // The host takes part in what the list holds, then has it alone.
    register(&mut session, false);
    assert_eq!(session.write(0, &[2; BLOCK as usize]), ScsiStatus::GOOD);
    let preempt = ReserveOut { key: KEY, action_key: mac, ..ReserveOut::default() };
    let action = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT;
    assert_eq!(session.reserve(action, KIND, &preempt).status(), ScsiStatus::GOOD);
    assert_eq!(session.keys(), [KEY]);
    assert_eq!(list(&mut station, ReserveCommand::SET), Err(ErrorCode::RESERVED));

    // The station takes it by force.
    assert_eq!(list(&mut station, ReserveCommand::FORCE), Ok(()));
    let told = session.is_ready();
    assert_eq!(told.sense().code, AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert_eq!(session.write(0, &[3; BLOCK as usize]), CONFLICT);
    assert_eq!(session.keys(), [mac]);

    // Its list is there after a restart, the host if it said that it is to last.
    for (persist, left) in [(false, vec![mac]), (true, vec![mac, KEY])] {
        register(&mut session, persist);
        assert_eq!(session.keys(), [mac, KEY]);
        server.kill();
        server = lan.serve_again(home.path(), &SERVE);
        session = log_in(&lan, &server);
        assert_eq!(session.keys(), left, "{persist}");
    }
    assert_eq!(session.write(0, &[4; BLOCK as usize]), ScsiStatus::GOOD);
}
