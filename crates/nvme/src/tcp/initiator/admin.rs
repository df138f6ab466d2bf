//! An admin queue on its connection: one command at a time, and beside it a Keep Alive and an Asynchronous Event Request.
//!
//! In: commands, received bytes. Out: [`Reply`]s. Data of replies are small (at most [`REPLY_MAX`]) and come as bytes.
//! Errors: a [`Fault`] for everything that a controller must not do. Both the initiator and the discovery use it.

use block::Instant;
use block::checksum::crc32c;
use contract::{Next, Receive};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::{CapsuleResponse, DataHeader, Digests, FatalErrorStatus, PduFlags, PduType};

use super::link::{Fault, Link, fault, terminated};
use crate::tcp::pdu_stream::{Frame, Front, Violation, digest_at, peek};

/// Most data of a reply.
pub(super) const REPLY_MAX: usize = 16 << 10;

/// What an admin command was sent for; its command identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Purpose {
    Step = 1,
    KeepAlive = 2,
    Event = 3,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) purpose: Purpose,
    pub(super) status: Status,
    pub(super) result: u64,
    /// The data of a step.
    pub(super) data: Vec<u8>,
}

/// An admin queue.
#[derive(Debug)]
pub(super) struct Admin {
    pub(super) link: Link,
    /// Which purposes have a command under way, by identifier.
    under_way: [bool; 4],
    /// Data that the step under way may return, and those that came.
    expected: usize,
    data: Vec<u8>,
    pub(super) replies: Vec<Reply>,
    /// When something was last received.
    pub(super) heard: Instant,
}

impl Admin {
    /// A queue without connection.
    pub(super) fn new(asked: Digests) -> Admin {
        Admin {
            link: Link::new(asked),
            under_way: [false; 4],
            expected: 0,
            data: Vec::new(),
            replies: Vec::new(),
            heard: Instant::ZERO,
        }
    }

    /// Whether a command of this purpose is under way.
    pub(super) fn is_under_way(&self, purpose: Purpose) -> bool {
        self.under_way[purpose as usize]
    }

    /// Sends a command; `data` goes in its capsule.
    pub(super) fn send(&mut self, purpose: Purpose, command: Command, data: &[u8]) {
        assert!(!self.is_under_way(purpose), "two commands for {purpose:?}");
        self.under_way[purpose as usize] = true;
        let command = command.with_command_id(purpose as u16);
        if purpose == Purpose::Step {
            self.data.clear();
            self.expected = if data.is_empty() { command.sgl().length as usize } else { 0 };
        }
        if data.is_empty() {
            self.link.push_command(command);
        } else {
            self.link.push_command_with(command, data);
        }
    }

    /// Takes received bytes.
    pub(super) fn handle_received(&mut self, now: Instant, bytes: &[u8]) -> Result<Receive, Fault> {
        self.heard = now;
        let mut at = 0;
        if !self.link.greeted {
            at = self.link.handle_greeting(bytes)?;
            if at == 0 {
                return Ok(Receive { consumed: 0, next: stream(128) });
            }
        }
        while at < bytes.len() {
            let front = &bytes[at..];
            let frame = match peek(front, self.link.digests)? {
                Front::Short(at_least) => {
                    return Ok(Receive { consumed: at, next: stream(at_least) });
                }
                Front::Pdu(frame) => frame,
            };
            if frame.data_length as usize > REPLY_MAX {
                let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
                return Err(Violation::new(fes, 4, "no more data than was asked for").into());
            }
            let whole = frame.common.length as usize;
            if front.len() < whole {
                return Ok(Receive { consumed: at, next: stream(frame.common.length) });
            }
            self.handle_pdu(frame, &front[..whole])?;
            at += whole;
        }
        Ok(Receive { consumed: at, next: stream(1) })
    }

    fn handle_pdu(&mut self, frame: Frame, bytes: &[u8]) -> Result<(), Fault> {
        match frame.common.kind {
            PduType::CAPSULE_RESPONSE => {
                let completion =
                    CapsuleResponse::parse(bytes).expect("the header is whole").completion;
                self.reply(completion.command_id, completion.status, completion.result)
            }
            PduType::C2H_DATA => self.take_data(frame, bytes),
            PduType::C2H_TERM_REQ => fault(terminated(bytes)),
            PduType::R2T => fault("the target asks for data that were in the capsule"),
            _ => Err(Violation::sequence("a PDU that only a host sends").into()),
        }
    }

    fn take_data(&mut self, frame: Frame, bytes: &[u8]) -> Result<(), Fault> {
        let header = DataHeader::parse(bytes).expect("the header is whole");
        let data = &bytes[frame.data_at as usize..][..frame.data_length as usize];
        let in_order = header.offset as usize == self.data.len()
            && header.length == frame.data_length
            && self.data.len() + data.len() <= self.expected;
        let expected = header.command_id == Purpose::Step as u16 && self.under_way[1];
        if !in_order || !expected {
            let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
            return Err(Violation::new(fes, 12, "data in order and within the command").into());
        }
        if frame.common.flags.contains(PduFlags::DDGST) {
            let digest = digest_at(bytes, frame.data_at as usize + data.len());
            if digest != crc32c(data) {
                return fault("a data digest of an admin command was wrong");
            }
        }
        self.data.extend_from_slice(data);
        if header.is_success() && header.is_last() {
            return self.reply(header.command_id, Status::SUCCESS, 0);
        }
        Ok(())
    }

    fn reply(&mut self, id: u16, status: Status, result: u64) -> Result<(), Fault> {
        let purpose = match id {
            1 => Purpose::Step,
            2 => Purpose::KeepAlive,
            3 => Purpose::Event,
            _ => return unknown(),
        };
        if !core::mem::take(&mut self.under_way[purpose as usize]) {
            return unknown();
        }
        let data = match purpose {
            Purpose::Step => core::mem::take(&mut self.data),
            _ => Vec::new(),
        };
        self.replies.push(Reply { purpose, status, result, data });
        Ok(())
    }

    /// The connection is gone.
    pub(super) fn closed(&mut self) {
        self.link.drop_gathering(|_, _| {});
        self.link.closed();
        self.under_way = [false; 4];
        self.data.clear();
        self.replies.clear();
    }
}

fn unknown() -> Result<(), Fault> {
    let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
    Err(Violation::new(fes, 8, "a command identifier that is not under way").into())
}

fn stream(at_least: u32) -> Next {
    Next::Stream { at_least, at_most: u32::MAX }
}
