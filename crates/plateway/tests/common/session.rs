//! The tests' iSCSI host on a socket, blocking.
//!
//! A [`Session`] asks one thing after the other. Errors: what breaks the protocol panics, and so
//! does a target that is silent for [`HANG`].
// Each test program uses a part of it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::iscsi::Said;
use testkit::iscsi::host::{Host, Order};
use wire::iscsi::{TaskFunction, TaskResponse};
use wire::scsi::persistent::{ReservationKeys, ReservationType, ReserveOut};
use wire::scsi::{Cdb, Lun, ScsiStatus, ServiceAction};

use crate::common::HANG;

/// The target of a server's first volume.
pub(crate) const TARGET: &str = "iqn.2026-11.net.plateway:v0";
pub(crate) const HOST: &str = "iqn.1993-08.org.debian:01:host-7";
/// Bytes of a block.
pub(crate) const BLOCK: u32 = 512;

/// A session of a host on a socket, blocking.
pub(crate) struct Session {
    pub(crate) socket: TcpStream,
    pub(crate) host: Host<()>,
}

impl Session {
    /// Logs in as [`HOST`] by a port of this number.
    pub(crate) fn log_in(address: &str, port: u8) -> Session {
        Session::over(TcpStream::connect(address).expect("it listens"), port)
    }

    /// A connection of the port of this number, which is not logged in.
    pub(crate) fn connect(address: &str, port: u8) -> Session {
        Session::on(TcpStream::connect(address).expect("it listens"), port)
    }

    fn on(socket: TcpStream, port: u8) -> Session {
        socket.set_read_timeout(Some(HANG)).expect("a limit");
        Session { socket, host: Host::new([0x80, 0, 0, 0, 0, port], 1) }
    }

    /// Logs in over a socket that is connected.
    pub(crate) fn over(socket: TcpStream, port: u8) -> Session {
        let mut session = Session::on(socket, port);
        let keys = [("MaxRecvDataSegmentLength", "262144"), ("ImmediateData", "Yes")];
        let login = session.host.log_in(HOST, Some(TARGET), &keys, ());
        session.send(&login);
        assert!(session.hear().login().is_success());
        session
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("it is read");
    }

    /// What the target says next; the rules of the protocol are the host's to judge.
    pub(crate) fn hear(&mut self) -> Said {
        self.hear_or_end().expect("the connection stands")
    }

    /// The same, or `None` at the end of the connection.
    pub(crate) fn hear_or_end(&mut self) -> Option<Said> {
        loop {
            if let Some(heard) = self.host.next().expect("nothing is wrong with it") {
                return Some(heard.said);
            }
            let mut bytes = [0; 65_536];
            match self.socket.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.host.hear(&bytes[..length]),
            }
        }
    }

    pub(crate) fn ask(&mut self, order: Order, data: &[u8]) -> Said {
        let (_, bytes) = self.host.command(order, data, ());
        self.send(&bytes);
        self.hear()
    }

    pub(crate) fn write(&mut self, lba: u32, data: &[u8]) -> ScsiStatus {
        let blocks = (data.len() / BLOCK as usize) as u16;
        let cdb = Cdb::write_10(lba, blocks, false);
        self.ask(Order::write(0, cdb, data.len() as u32), data).status()
    }

    pub(crate) fn read(&mut self, lba: u32) -> Vec<u8> {
        match self.ask(Order::read(0, Cdb::read_10(lba, 1), BLOCK), &[]) {
            Said::Data(_, data) => data,
            other => panic!("expected data, got {other:?}"),
        }
    }

    pub(crate) fn is_ready(&mut self) -> Said {
        self.ask(Order::new(0, Cdb::test_unit_ready()), &[])
    }

    pub(crate) fn manage(&mut self, function: TaskFunction) -> TaskResponse {
        let (_, bytes) = self.host.manage(function, Lun::of(0).0, None, ());
        self.send(&bytes);
        self.hear().management()
    }

    /// Whether its connection ends before it hears anything but why.
    pub(crate) fn is_closed(&mut self) -> bool {
        loop {
            match self.hear_or_end() {
                None => return true,
                Some(Said::Async(_)) => {}
                Some(_) => return false,
            }
        }
    }

    /// PERSISTENT RESERVE OUT.
    pub(crate) fn reserve(
        &mut self,
        action: ServiceAction,
        kind: ReservationType,
        list: &ReserveOut,
    ) -> Said {
        let list = list.emit();
        let length = list.len() as u32;
        let cdb = Cdb::persistent_reserve_out(action, kind.0, length);
        self.ask(Order::write(0, cdb, length), &list)
    }

    /// The keys of all that are registered.
    pub(crate) fn keys(&mut self) -> Vec<u64> {
        let action = ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS;
        match self.ask(Order::read(0, Cdb::persistent_reserve_in(action, 2048), 2048), &[]) {
            Said::Data(_, data) => ReservationKeys::parse(&data).expect("keys").keys,
            other => panic!("expected keys, got {other:?}"),
        }
    }
}
