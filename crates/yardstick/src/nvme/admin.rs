//! Admin and fabrics commands of the ceiling: just enough for a plain initiator to connect.
//!
//! In: a whole command capsule. Out: the reply in the outbox. Connect makes the queue an admin or
//! an I/O queue; property, Identify, feature and keep-alive commands are answered from constants;
//! log pages are zeroes; asynchronous event requests stay open. Nothing is refused but what is
//! unknown.

use super::ceiling::{BLOCK, IN_CAPSULE};
use super::pdu::{self, flag, kind, opcode};
use crate::bytes::put;
use crate::outbox::Outbox;

/// Version 1.4: the oldest that says all a host of today asks for.
const VERSION: u32 = 0x0001_0400;
/// Status fields: code shifted by one, do not retry in bit 15.
const INVALID_OPCODE: u16 = (0x001 << 1) | 0x8000;
const INVALID_FIELD: u16 = (0x002 << 1) | 0x8000;
/// Queues a controller grants.
const QUEUES: u32 = 128;
/// Entries of a queue, less one.
const MQES: u64 = 1023;

/// What a connection knows of its queue.
pub(super) struct State {
    queue: Option<u16>,
    controller: u16,
    configuration: u32,
    head: u16,
    size: u16,
    /// The host disabled submission queue flow control: reads may end with the SUCCESS flag.
    pub(super) flow_control_off: bool,
}

impl State {
    pub(super) fn new(controller: u16) -> Self {
        Self {
            queue: None,
            controller: controller.clamp(1, 0xffef),
            configuration: 0,
            head: 0,
            size: 0,
            flow_control_off: false,
        }
    }

    /// Whether the commands of this connection belong to the I/O command set.
    #[inline]
    pub(super) fn is_io(&self) -> bool {
        self.queue.is_some_and(|queue| queue > 0)
    }

    /// The head to report with the next completion.
    #[inline]
    pub(super) fn next_head(&mut self) -> u16 {
        if self.flow_control_off {
            return 0xffff;
        }
        self.head = if self.head >= self.size { 0 } else { self.head + 1 };
        self.head
    }

    /// Answers one command; `capacity` is the size of the namespace in bytes.
    pub(super) fn answer(&mut self, capsule: &[u8], capacity: usize, outbox: &mut Outbox) {
        let entry = &capsule[pdu::SQE..pdu::CAPSULE_CMD_LEN];
        let cid = pdu::u16_at(entry, 2);
        let outcome = match entry[0] {
            opcode::FABRICS => self.fabrics(entry),
            opcode::IDENTIFY => self.identify(entry, capacity),
            opcode::GET_LOG => {
                let dwords = (pdu::u32_at(entry, 40) >> 16) + 1;
                Reply::Data(vec![0; (dwords as usize * 4).min(16 * 1024)])
            }
            opcode::SET_FEATURES | opcode::GET_FEATURES => Reply::Done(feature(entry)),
            opcode::ABORT => Reply::Done(1),
            opcode::KEEP_ALIVE => Reply::Done(0),
            opcode::ASYNC_EVENT => return,
            _ => Reply::Refused(INVALID_OPCODE),
        };
        let (result, status) = match outcome {
            Reply::Done(result) => (result, 0),
            Reply::Refused(status) => (0, status),
            Reply::Data(data) => {
                let length = data.len() as u32;
                let header = pdu::data_header(kind::C2H_DATA, flag::LAST, cid, 0, 0, length);
                outbox.copy(&header);
                outbox.copy(&data);
                (0, 0)
            }
        };
        let head = self.next_head();
        outbox.copy(&pdu::capsule_resp(cid, head, result, status));
    }

    fn fabrics(&mut self, entry: &[u8]) -> Reply {
        match entry[4] {
            0x00 => {
                if pdu::u32_at(entry, 44) == 0x14 {
                    self.configuration = pdu::u32_at(entry, 48);
                }
                Reply::Done(0)
            }
            0x01 => {
                self.queue = Some(pdu::u16_at(entry, 42));
                self.size = pdu::u16_at(entry, 44);
                self.flow_control_off = entry[46] & 0x04 != 0;
                Reply::Done(u64::from(self.controller))
            }
            0x04 => self.property(pdu::u32_at(entry, 44)),
            _ => Reply::Done(0),
        }
    }

    fn property(&self, offset: u32) -> Reply {
        let shutdown = self.configuration >> 14 & 3 != 0;
        match offset {
            // MQES, CQR, time-out of 15 s, NVM command set.
            0x00 => Reply::Done(MQES | 1 << 16 | 30 << 24 | 1 << 37),
            0x08 => Reply::Done(u64::from(VERSION)),
            0x14 => Reply::Done(u64::from(self.configuration)),
            0x1c => {
                Reply::Done(u64::from(self.configuration & 1 | if shutdown { 2 << 2 } else { 0 }))
            }
            _ => Reply::Refused(INVALID_FIELD),
        }
    }

    fn identify(&self, entry: &[u8], capacity: usize) -> Reply {
        let mut data = vec![0; 4096];
        match entry[40] {
            0x00 => namespace(&mut data, capacity),
            0x01 => self.controller(&mut data),
            0x02 | 0x07 => {
                if pdu::u32_at(entry, 4) == 0 {
                    put(&mut data, 0, &1_u32.to_le_bytes());
                }
            }
            0x03 => {
                put(&mut data, 0, &[3, 16, 0, 0]);
                put(&mut data, 4, b"plateway-ceiling");
            }
            0x05 | 0x06 => {}
            0x1c => data[0] = 1,
            _ => return Reply::Refused(INVALID_FIELD),
        }
        Reply::Data(data)
    }

    fn controller(&self, data: &mut [u8]) {
        data[4..72].fill(b' ');
        put(data, 4, b"YARDSTICK");
        put(data, 24, b"Plateway ceiling");
        put(data, 64, b"1");
        data[76] = 0x02;
        data[77] = 8;
        put(data, 78, &self.controller.to_le_bytes());
        put(data, 80, &VERSION.to_le_bytes());
        data[96] = 0x01;
        data[111] = 1;
        data[258] = 3;
        data[259] = 3;
        put(data, 320, &10_u16.to_le_bytes());
        put(data, 512, &[0x66, 0x44]);
        put(data, 514, &(MQES as u16 + 1).to_le_bytes());
        put(data, 516, &1_u32.to_le_bytes());
        put(data, 536, &(1_u32 | 1 << 20).to_le_bytes());
        put(data, 768, b"nqn.2026-11.net.plateway:ceiling");
        let in_capsule = ((64 + IN_CAPSULE) / 16) as u32;
        put(data, 1792, &in_capsule.to_le_bytes());
        put(data, 1796, &1_u32.to_le_bytes());
        data[1803] = 1;
    }
}

/// What a command comes to.
enum Reply {
    Done(u64),
    Data(Vec<u8>),
    Refused(u16),
}

fn namespace(data: &mut [u8], capacity: usize) {
    let blocks = ((capacity / BLOCK) as u64).to_le_bytes();
    put(data, 0, &blocks);
    put(data, 8, &blocks);
    put(data, 16, &blocks);
    data[30] = 1;
    put(data, 104, b"plateway-ceiling");
    data[130] = BLOCK.trailing_zeros() as u8;
}

/// The value of a feature: queues are granted as asked up to a bound, the others are zero.
fn feature(entry: &[u8]) -> u64 {
    if entry[40] != 0x07 {
        return 0;
    }
    let asked = pdu::u32_at(entry, 44) & 0xffff;
    let granted = asked.min(QUEUES - 1);
    u64::from(granted | granted << 16)
}
