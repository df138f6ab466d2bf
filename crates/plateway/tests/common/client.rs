//! The tests' host on a socket, blocking.
//!
//! A [`Controller`] is an admin queue; a [`Queue`] is a connection past Connect, on which a
//! [`Batch`] puts all its commands before it reads the first answer. Units: bytes; blocks of 512.
//! Errors: every answer that is not the expected one panics, and so does a target that is silent
//! for [`HANG`]. Only [`Queue::try_read`] and its like return a command's status, whatever it is.
// Each test program uses a part of it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use testkit::nvme::host::{Data, Heard, Host};
use testkit::nvme::nqn;
use wire::nvme::fabrics::{Configuration, Connect, ConnectAttributes, ConnectData};
use wire::nvme::feature::{FeatureId, NumberOfQueues};
use wire::nvme::reservation::{Report, ReservationKeys};
use wire::nvme::{Command, Completion, Status};
use wire::nvme_tcp::{Digests, R2T};

use crate::common::HANG;

/// The subsystem of a server's first volume.
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:v0";
/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;
/// The largest queue: entries, of which one stays free.
pub(crate) const ENTRIES: u16 = 1024;
/// Commands are sent in pieces of about so many bytes.
const PIECE: usize = 256 << 10;
/// Properties CC and CSTS.
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;

/// A host that is connected and has enabled its controller.
pub(crate) struct Controller {
    admin: Queue,
    address: SocketAddr,
    host: u16,
    id: u16,
}

/// One connection past Connect.
pub(crate) struct Queue {
    socket: TcpStream,
    host: Host<()>,
    input: Vec<u8>,
    /// The data of the latest C2HData PDU.
    pub(crate) data: Vec<u8>,
}

/// What a queue is to do: `depth` commands of `size` bytes each, one after the other through a
/// region as long as its pattern, and again from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) kind: Kind,
    pub(crate) size: usize,
    pub(crate) depth: u16,
}

/// How the data move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    /// A write with its data in the capsule.
    Capsule,
    /// A write with its data asked for by R2T.
    Asked,
}

impl Controller {
    /// Connects as host number `host`, enables, and asks for `queues` I/O queues.
    pub(crate) fn connect(address: SocketAddr, host: u16, queues: u16) -> Controller {
        let controller = ConnectData::CONTROLLER_ANY;
        let (admin, id) = Queue::connect(address, host, controller, 0, 32, false);
        let mut controller = Controller { admin, address, host, id };
        let enabled = Configuration(0).with_iosqes(6).with_iocqes(4).with_enable(true);
        controller.ask(Command::property_set(CC, enabled.0));
        while controller.ask(Command::property_get(CSTS, false)) & 1 == 0 {}
        let less_one = u32::from(queues - 1);
        let asked = NumberOfQueues(0).with_submission(less_one).with_completion(less_one);
        let feature = FeatureId::NUMBER_OF_QUEUES.0;
        let granted = controller.ask(Command::set_features(feature, 0, asked.0, 0));
        assert!(NumberOfQueues(granted).submission() >= less_one, "{granted:#x}");
        controller
    }

    /// Connects I/O queue `number`, from 1, of the largest size.
    pub(crate) fn queue(&self, number: u16, flow_control: bool) -> Queue {
        Queue::connect(self.address, self.host, self.id, number, ENTRIES, flow_control).0
    }

    /// Asks the same `count` times and reads only the first `read` answers, each of which has
    /// `bytes` of data.
    pub(crate) fn flood(&mut self, command: Command, count: u16, read: u16, bytes: usize) {
        let (host, moves) = (&mut self.admin.host, Data::In(bytes as u32));
        let capsule = |id| host.ask(id, command, (), moves, &[]);
        let words: Vec<u8> = (0..count).flat_map(capsule).collect();
        self.admin.push(&words);
        for id in 0..read {
            let Heard::Data { command, bytes: data, .. } = self.admin.answer() else {
                panic!("no data for {id}")
            };
            assert_eq!((command, data.len()), (id, bytes));
            assert_eq!(self.admin.completion().command_id, id);
        }
    }

    /// One admin command without data; DW0 of its completion.
    fn ask(&mut self, command: Command) -> u32 {
        self.admin.ask(command, Data::None, &[]);
        self.admin.completion().result32()
    }
}

impl Queue {
    /// Connects a queue; also returns the controller that it belongs to.
    fn connect(
        address: SocketAddr,
        host: u16,
        controller: u16,
        number: u16,
        entries: u16,
        flow_control: bool,
    ) -> (Queue, u16) {
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a socket");
        socket.set_write_timeout(Some(HANG)).expect("a socket");
        let line = Host::new(Digests::NONE);
        let mut queue = Queue { socket, host: line, input: vec![0; PIECE], data: Vec::new() };
        let greeting = queue.host.greet();
        queue.push(&greeting);
        let Heard::Greeted(_) = queue.next() else { panic!("expected ICResp") };

        let connect = Connect {
            record_format: 0,
            queue_id: number,
            sq_size: entries - 1,
            attributes: ConnectAttributes(0).with_disable_sq_flow_control(!flow_control),
            keep_alive_ms: 0,
        };
        let mut host_id = [0x5a; 16];
        host_id[..2].copy_from_slice(&host.to_le_bytes());
        let data = ConnectData {
            host_id,
            controller_id: controller,
            subsystem: nqn(SUBSYSTEM),
            host: Some(nqn(&format!("nqn.2026-11.net.plateway:host-{host}"))),
        };
        let capsule = queue.host.connect(0, &connect, &data, ());
        queue.push(&capsule);
        let id = queue.completion().result32() as u16;
        (queue, id)
    }

    /// The address by which the server knows this connection.
    pub(crate) fn name(&self) -> String {
        self.socket.local_addr().expect("it was connected").to_string()
    }

    /// Whether the server closes it, which says nothing before.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut self.input), Ok(0) | Err(_))
    }

    /// Does all of a batch at the region from block `first` on, which holds or gets `pattern`. What
    /// is read is compared.
    pub(crate) fn run(&mut self, batch: Batch, first: usize, pattern: &[u8]) {
        self.submit(batch, first, pattern);
        let of = |command: u16| usize::from(command) * batch.size % pattern.len();
        let mut left = batch.depth;
        while left > 0 {
            match self.answer() {
                Heard::Answered(..) => left -= 1,
                Heard::Granted(wanted) => {
                    let at = of(wanted.command_id);
                    self.give(&wanted, &pattern[at..at + batch.size]);
                }
                Heard::Data { command, offset, bytes } => {
                    let at = of(command) + offset as usize;
                    let right = pattern[at..at + bytes.len()] == bytes[..];
                    assert!(right, "wrong data for command {command} of {batch:?} at {offset}");
                }
                other => panic!("{other:?} in answer to a command"),
            }
        }
    }

    /// Sends all commands of a batch and reads no answer.
    pub(crate) fn submit(&mut self, batch: Batch, first: usize, pattern: &[u8]) {
        let (blocks, bytes) = ((batch.size / BLOCK) as u32, batch.size as u32);
        let mut out = Vec::with_capacity(PIECE + 2 * batch.size);
        for id in 0..batch.depth {
            let at = usize::from(id) * batch.size % pattern.len();
            let lba = (first + at / BLOCK) as u64;
            let (command, data, inside) = match batch.kind {
                Kind::Read => (Command::read(1, lba, blocks, bytes), Data::In(bytes), &[][..]),
                Kind::Asked => (Command::write(1, lba, blocks, bytes), Data::Out(bytes), &[][..]),
                Kind::Capsule => {
                    let write = Command::write(1, lba, blocks, bytes);
                    (write, Data::None, &pattern[at..at + batch.size])
                }
            };
            out.extend_from_slice(&self.host.ask(id, command, (), data, inside));
            if out.len() >= PIECE {
                self.push(&out);
                out.clear();
            }
        }
        self.push(&out);
    }

    /// Answers an R2T with a command's data.
    fn give(&mut self, wanted: &R2T, data: &[u8]) {
        let (start, length) = (wanted.offset as usize, wanted.length as usize);
        let most = self.host.greeting.expect("it was greeted").max_h2c_data as usize;
        let mut at = start;
        for part in data[start..start + length].chunks(most) {
            let pdu = self.host.give(wanted, at as u32, part);
            self.push(&pdu);
            at += part.len();
        }
    }

    /// Writes one block; how that went.
    pub(crate) fn try_write(&mut self, lba: u64, block: &[u8; BLOCK]) -> Status {
        self.ask(Command::write(1, lba, 1, BLOCK as u32), Data::None, block);
        self.status()
    }

    /// Reads one block into [`Queue::data`]; how that went.
    pub(crate) fn try_read(&mut self, lba: u64) -> Status {
        self.ask(Command::read(1, lba, 1, BLOCK as u32), Data::In(BLOCK as u32), &[]);
        self.status()
    }

    /// A command about the reservation, with its two keys; how that went.
    pub(crate) fn try_reserve(&mut self, command: Command, current: u64, other: u64) -> Status {
        let keys = ReservationKeys { current, other }.emit();
        self.ask(command, Data::None, &keys);
        self.status().without_hints()
    }

    /// What is reserved, and who is registered.
    pub(crate) fn report(&mut self) -> Report {
        let bytes = BLOCK as u32;
        self.ask(Command::reservation_report(1, bytes), Data::In(bytes), &[]);
        assert_eq!(self.status(), Status::SUCCESS);
        Report::parse(&self.data).expect("a report")
    }

    /// Flushes the namespace; how that went.
    pub(crate) fn try_flush(&mut self) -> Status {
        self.ask(Command::flush(1), Data::None, &[]);
        self.status()
    }

    /// The status of the one command that is outstanding; its data lie in [`Queue::data`].
    fn status(&mut self) -> Status {
        loop {
            match self.next() {
                Heard::Answered(_, completion) => return completion.status,
                Heard::Data { bytes, .. } => self.data = bytes,
                other => panic!("{other:?} in answer to a command"),
            }
        }
    }

    /// Sends a command when none is outstanding.
    fn ask(&mut self, command: Command, data: Data, inside: &[u8]) {
        let capsule = self.host.ask(0, command, (), data, inside);
        self.push(&capsule);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server takes what is sent");
    }

    /// The completion of the one command that is outstanding.
    fn completion(&mut self) -> Completion {
        match self.answer() {
            Heard::Answered(_, completion) => completion,
            other => panic!("{other:?} in place of a completion"),
        }
    }

    /// The next thing that the server says; a command that failed panics.
    fn answer(&mut self) -> Heard<()> {
        let heard = self.next();
        if let Heard::Answered(_, completion) = &heard {
            assert!(completion.status.is_success(), "{completion}");
        }
        heard
    }

    /// The next thing that the server says.
    fn next(&mut self) -> Heard<()> {
        loop {
            if let Some(heard) = self.host.next().unwrap_or_else(|why| panic!("{why}")) {
                return heard;
            }
            let count = self.socket.read(&mut self.input).expect("the server answers");
            assert!(count > 0, "the server closed the connection");
            self.host.hear(&self.input[..count]);
        }
    }
}
