//! Discovery against a discovery controller that the test plays: paging, and a log that changes
//! while it is read.

use core::time::Duration;

use block::Instant;
use contract::{ConnectionId, SendSegment, StreamEffect};
use wire::nvme::fabrics::{Capabilities, ControllerStatus, FabricsType, Property, Register};
use wire::nvme::log::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, DiscoverySubtype, GetLog, LogId,
};
use wire::nvme::{Completion, Nqn, Status};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICResp, PduFlags,
};

use crate::fixtures::nqn;
use crate::limits::DISCOVERY_ENTRIES_MAX;
use crate::tcp::initiator::Discovery;

const NOW: Instant = Instant(1);

/// A log of so many entries; its generation changes after so many reads of the header.
struct Played {
    entries: u64,
    changes: u64,
    generation: u64,
    ready_after: u32,
    reads: u32,
    record_format: u16,
}

/// A log without entries that does not change, of a controller that is ready.
const PLAYED: Played =
    Played { entries: 0, changes: 0, generation: 4, ready_after: 0, reads: 0, record_format: 0 };

impl Played {
    fn log(&mut self, get: GetLog) -> Vec<u8> {
        assert_eq!(get.id, LogId::DISCOVERY);
        self.reads += 1;
        if get.offset == 0 && self.changes > 0 {
            self.changes -= 1;
            self.generation += 1;
            self.entries += 1;
        }
        let header = DiscoveryHeader {
            generation: self.generation,
            records: self.entries,
            record_format: self.record_format,
        };
        let mut log = header.emit().to_vec();
        for port in 0..self.entries as u16 {
            let subsystem: Nqn = nqn(&format!("nqn.2026-11.net.plateway:{port}"));
            let (subtype, family) = (DiscoverySubtype::NVM, AddressFamily::IPV4);
            let entry = DiscoveryEntry::tcp(subtype, family, "127.0.0.1", 4420, port, &subsystem);
            log.extend(entry.emit());
        }
        log[get.offset as usize..(get.offset + get.bytes) as usize].to_vec()
    }

    /// The answer to the PDUs of a batch.
    fn answer(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        while !bytes.is_empty() {
            let common = CommonHeader::parse(bytes).expect("a header");
            let (pdu, rest) = bytes.split_at(common.length as usize);
            bytes = rest;
            if common.length == 128 && common.kind.0 == 0 {
                answer.extend(ICResp::new(Digests::NONE, 4096).emit());
                continue;
            }
            let command = CapsuleCommand::parse(pdu).expect("a command").command;
            let mut completion = Completion::new(command.command_id(), Status::SUCCESS);
            if !command.is_fabrics() {
                let data = self.log(GetLog::from_command(&command));
                let (id, length) = (command.command_id(), data.len() as u32);
                let header = DataHeader::c2h(id, 0, length, PduFlags::LAST, Digests::NONE);
                answer.extend(header.emit());
                answer.extend(data);
            } else if FabricsType::of(&command) == FabricsType::PROPERTY_GET {
                completion.result = match Property::from_command(&command).register {
                    Register::CAP => Capabilities::default().with_css_nvm(true).0,
                    _ => {
                        let ready = self.ready_after == 0;
                        self.ready_after = self.ready_after.saturating_sub(1);
                        ControllerStatus::default().with_ready(ready).0.into()
                    }
                };
            }
            answer.extend(CapsuleResponse::new(completion, Digests::NONE).emit());
        }
        answer
    }

    /// Plays to the end.
    fn play(&mut self) -> Result<Vec<DiscoveryEntry>, String> {
        let address = "127.0.0.1:8009".parse().expect("an address");
        let host = nqn("nqn.2014-08.org.nvmexpress:uuid:1");
        let limit = Duration::from_secs(10);
        let mut discovery = Discovery::new(NOW, address, host, [1; 16], Digests::NONE, limit);
        let mut now = NOW;
        let mut inbound: Vec<u8> = Vec::new();
        loop {
            discovery.settle(now);
            assert!(!discovery.is_gone(), "its result was not given");
            let Some(effect) = discovery.poll_effect() else {
                if let Some(result) = discovery.poll_result() {
                    assert!(discovery.is_gone());
                    return result;
                }
                now = discovery.poll_timeout().expect("it has a time limit");
                discovery.handle_timeout(now);
                continue;
            };
            match effect {
                StreamEffect::Connect { .. } => {
                    discovery.handle_connected(ConnectionId::default());
                }
                StreamEffect::Send { batch, .. } => {
                    let heads = batch.segments.iter().flat_map(|segment| match *segment {
                        SendSegment::Head { start, length } => {
                            &batch.head[start as usize..(start + length) as usize]
                        }
                        SendSegment::Data { .. } | SendSegment::Zeros { .. } => {
                            unreachable!("it sends commands alone")
                        }
                    });
                    let sent: Vec<u8> = heads.copied().collect();
                    discovery.handle_sent(batch);
                    for byte in self.answer(&sent) {
                        inbound.push(byte);
                        let receive = discovery.handle_received(now, &inbound);
                        inbound.drain(..receive.consumed);
                    }
                }
                StreamEffect::Close { .. } => discovery.handle_closed(None),
            }
        }
    }
}

#[test]
fn the_log_is_read_page_by_page() {
    for entries in [0, 1, 4, 5, 17] {
        let mut played = Played { entries, ready_after: 3, ..PLAYED };
        let found = played.play().expect("it is found");
        assert_eq!(found.len() as u64, entries);
        let ports: Vec<u16> = found.iter().map(|entry| entry.port_id).collect();
        assert_eq!(ports, (0..entries as u16).collect::<Vec<_>>());
        assert_eq!(u64::from(played.reads), 2 + entries.div_ceil(4));
    }
}

#[test]
fn a_log_that_changed_is_read_again() {
    let mut played = Played { entries: 2, changes: 3, ..PLAYED };
    assert_eq!(played.play().expect("it settles").len(), 5);
}

#[test]
fn a_log_that_always_changes_or_a_controller_that_is_never_ready_ends_in_words() {
    let mut played = Played { entries: 2, changes: 999, ..PLAYED };
    assert!(played.play().expect_err("it never settles").contains("changes faster"));
    let mut played = Played { entries: 2, ready_after: 99_999, ..PLAYED };
    assert!(played.play().expect_err("it is never ready").contains("RDY"));
}

#[test]
fn a_log_of_another_format_or_too_long_is_not_read() {
    for (entries, record_format) in [(1, 1), (DISCOVERY_ENTRIES_MAX + 1, 0)] {
        let mut played = Played { entries, record_format, ..PLAYED };
        let why = played.play().expect_err("it cannot be read");
        assert!(why.contains(&format!("of {entries} entries, format {record_format}")), "{why}");
    }
}
