//! A host of the tests' own: blocking, of the wire formats and nothing else of the product.
//!
//! A [`Controller`] is an admin queue; a [`Queue`] is a connection past Connect, on which a [`Batch`] puts all its commands before it reads
//! the first answer. Units: bytes; blocks of 512. Errors: every answer that is not the expected one panics, and so does a target that is
//! silent for [`HANG`]. Only [`Queue::try_read`] and its like return a command's status, whatever it is.
// Each test program uses a part of it.
#![allow(dead_code)]

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use wire::nvme::command::SglDescriptor;
use wire::nvme::fabrics::{Configuration, Connect, ConnectAttributes, ConnectData};
use wire::nvme::feature::{FeatureId, NumberOfQueues};
use wire::nvme::{Command, Completion, Nqn, Status};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICReq, ICResp, PduType, R2T,
};

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
    input: BufReader<TcpStream>,
    max_h2c: usize,
    /// The data of the latest C2HData PDU.
    pub(crate) data: Vec<u8>,
}

/// What a queue is to do: `depth` commands of `size` bytes each, one after the other through a region as long as its pattern, and again
/// from its start.
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

/// An answer; data lie in [`Queue::data`].
enum Answer {
    Done(Completion),
    Data(DataHeader),
    Wanted(R2T),
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

    /// Asks the same `count` times and reads only the first `read` answers, each of which has `bytes` of data.
    pub(crate) fn flood(&mut self, command: Command, count: u16, read: u16, bytes: usize) {
        let capsule =
            |id| CapsuleCommand::new(command.with_command_id(id), Digests::NONE, 0).emit();
        let words: Vec<u8> = (0..count).flat_map(capsule).collect();
        self.admin.push(&[&words]);
        for id in 0..read {
            let Answer::Data(header) = self.admin.answer() else { panic!("no data for {id}") };
            assert_eq!((header.command_id, header.length as usize), (id, bytes));
            assert_eq!(self.admin.completion().command_id, id);
        }
    }

    /// One admin command without data; DW0 of its completion.
    fn ask(&mut self, command: Command) -> u32 {
        self.admin.push(&[CapsuleCommand::new(command, Digests::NONE, 0).emit().as_slice()]);
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
        let input = BufReader::with_capacity(PIECE, socket.try_clone().expect("a descriptor"));
        let mut queue = Queue { socket, input, max_h2c: 0, data: Vec::new() };
        queue.push(&[&ICReq::new(Digests::NONE, 0).emit()]);
        let mut answer = [0; ICResp::SIZE];
        queue.input.read_exact(&mut answer).expect("ICResp");
        let answer = ICResp::parse(&answer).expect("that length");
        answer.check().expect("ICResp");
        queue.max_h2c = answer.max_h2c_data as usize;

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
            subsystem: Nqn::new(SUBSYSTEM).expect("a name"),
            host: Nqn::new(&format!("nqn.2026-11.net.plateway:host-{host}")).expect("a name"),
        };
        let length = ConnectData::SIZE as u32;
        let capsule = CapsuleCommand::new(Command::connect(&connect), Digests::NONE, length);
        queue.push(&[&capsule.emit(), &data.emit()]);
        let id = queue.completion().result32() as u16;
        (queue, id)
    }

    /// The address by which the server knows this connection.
    pub(crate) fn name(&self) -> String {
        self.socket.local_addr().expect("it was connected").to_string()
    }

    /// Does all of a batch at the region from block `first` on, which holds or gets `pattern`. What is read is compared.
    pub(crate) fn run(&mut self, batch: Batch, first: usize, pattern: &[u8]) {
        self.submit(batch, first, pattern);
        let mut missing = vec![batch.size; usize::from(batch.depth)];
        let mut ended = vec![false; usize::from(batch.depth)];
        for _ in 0..batch.depth {
            let done = loop {
                match self.answer() {
                    Answer::Done(completion) => break completion.command_id,
                    Answer::Wanted(wanted) => {
                        assert_eq!(batch.kind, Kind::Asked, "{wanted}");
                        let command = usize::from(wanted.command_id);
                        missing[command] -= wanted.length as usize;
                        let at = command * batch.size % pattern.len();
                        self.give(&wanted, &pattern[at..at + batch.size]);
                    }
                    Answer::Data(header) => {
                        assert_eq!(batch.kind, Kind::Read, "{header}");
                        let command = usize::from(header.command_id);
                        missing[command] -= header.length as usize;
                        let at = command * batch.size % pattern.len() + header.offset as usize;
                        let right = pattern[at..at + header.length as usize] == self.data[..];
                        assert!(right, "wrong data for {header} of {batch:?}");
                        if header.is_success() {
                            break header.command_id;
                        }
                    }
                }
            };
            let done = usize::from(done);
            assert!(!std::mem::replace(&mut ended[done], true), "command {done} ends twice");
            assert!(batch.kind == Kind::Capsule || missing[done] == 0, "command {done} is short");
        }
    }

    /// Sends all commands of a batch and reads no answer.
    pub(crate) fn submit(&mut self, batch: Batch, first: usize, pattern: &[u8]) {
        let (blocks, bytes) = ((batch.size / BLOCK) as u32, batch.size as u32);
        let mut out = Vec::with_capacity(PIECE + batch.size + CapsuleCommand::SIZE);
        for id in 0..batch.depth {
            let at = usize::from(id) * batch.size % pattern.len();
            let lba = (first + at / BLOCK) as u64;
            let (command, data) = match batch.kind {
                Kind::Read => (Command::read(1, lba, blocks, bytes), &[][..]),
                Kind::Asked => (Command::write(1, lba, blocks, bytes), &[][..]),
                Kind::Capsule => {
                    let command = Command::write(1, lba, blocks, bytes);
                    let inside = SglDescriptor::in_capsule(bytes);
                    (command.with_sgl(inside), &pattern[at..at + batch.size])
                }
            };
            let command = command.with_command_id(id);
            let capsule = CapsuleCommand::new(command, Digests::NONE, data.len() as u32);
            out.extend_from_slice(&capsule.emit());
            out.extend_from_slice(data);
            if out.len() >= PIECE {
                self.push(&[&out]);
                out.clear();
            }
        }
        self.push(&[&out]);
    }

    /// Answers an R2T with a command's data.
    fn give(&mut self, wanted: &R2T, data: &[u8]) {
        let (start, length) = (wanted.offset as usize, wanted.length as usize);
        let mut at = start;
        for part in data[start..start + length].chunks(self.max_h2c) {
            let last = at + part.len() == start + length;
            let header = DataHeader::h2c(
                wanted.command_id,
                wanted.transfer_tag,
                at as u32,
                part.len() as u32,
                last,
                Digests::NONE,
            );
            self.push(&[&header.emit(), part]);
            at += part.len();
        }
    }

    /// Writes one block; how that went.
    pub(crate) fn try_write(&mut self, lba: u64, block: &[u8; BLOCK]) -> Status {
        let inside = SglDescriptor::in_capsule(BLOCK as u32);
        let command = Command::write(1, lba, 1, BLOCK as u32).with_sgl(inside);
        let capsule = CapsuleCommand::new(command, Digests::NONE, BLOCK as u32);
        self.push(&[&capsule.emit(), block]);
        self.status()
    }

    /// Reads one block into [`Queue::data`]; how that went.
    pub(crate) fn try_read(&mut self, lba: u64) -> Status {
        let command = Command::read(1, lba, 1, BLOCK as u32);
        self.push(&[&CapsuleCommand::new(command, Digests::NONE, 0).emit()]);
        self.status()
    }

    /// Flushes the namespace; how that went.
    pub(crate) fn try_flush(&mut self) -> Status {
        let command = Command::flush(1);
        self.push(&[&CapsuleCommand::new(command, Digests::NONE, 0).emit()]);
        self.status()
    }

    /// The status of the one command that is outstanding; its data lie in [`Queue::data`].
    fn status(&mut self) -> Status {
        loop {
            match self.next() {
                Answer::Done(completion) => return completion.status,
                Answer::Data(header) if header.is_success() => return Status::SUCCESS,
                Answer::Data(_) => {}
                Answer::Wanted(wanted) => panic!("{wanted} for data that were in the capsule"),
            }
        }
    }

    fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.socket.write_all(part).expect("the server takes what is sent");
        }
    }

    /// The completion of the one command that is outstanding.
    fn completion(&mut self) -> Completion {
        match self.answer() {
            Answer::Done(completion) => completion,
            Answer::Data(header) => panic!("{header} in place of a completion"),
            Answer::Wanted(wanted) => panic!("{wanted} in place of a completion"),
        }
    }

    /// The next PDU; a command that failed panics.
    fn answer(&mut self) -> Answer {
        let answer = self.next();
        if let Answer::Done(completion) = &answer {
            assert!(completion.status.is_success(), "{completion}");
        }
        answer
    }

    /// The next PDU.
    fn next(&mut self) -> Answer {
        let mut header = [0; 24];
        self.input.read_exact(&mut header).expect("the server answers");
        let common = CommonHeader::parse(&header).expect("that length");
        let payload = common.check(Digests::NONE).expect("a PDU");
        match common.kind {
            PduType::CAPSULE_RESPONSE => {
                Answer::Done(CapsuleResponse::parse(&header).expect("that type").completion)
            }
            PduType::R2T => Answer::Wanted(R2T::parse(&header).expect("that length")),
            PduType::C2H_DATA => {
                let data = DataHeader::parse(&header).expect("that length");
                data.check_length(payload).expect("DATAL");
                assert_eq!(payload.offset, 24, "no padding was asked for");
                self.data.resize(payload.length as usize, 0);
                self.input.read_exact(&mut self.data).expect("the data follow");
                Answer::Data(data)
            }
            _ => panic!("{common} in answer to a command"),
        }
    }
}
