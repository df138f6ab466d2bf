//! What the bare iSCSI target makes of a connection's bytes.
//!
//! In: PDUs in the stream's inbox. Out: replies in its outbox. A read is answered by Data-In with
//! the status in the last one; a write by a response once the data have come that were not in its
//! command, for which R2Ts ask, a burst each. A command is handled when it is wholly there; of a
//! Data-Out what has arrived is copied and the rest received in place. Digests are computed and
//! compared where a login asked for them. No checks but those and what keeps memory safe: a session
//! is this connection, commands are handled as they come, and 256 may be on their way. Letting
//! somebody in is in `login.rs`, commands that move no blocks in `scsi.rs`. Errors: what cannot be
//! parsed closes the connection.

use std::ops::Range;

use super::login::Login;
use super::pdu::{self, BHS_LEN, Bhs, DIGEST_LEN, at, flag, opcode};
use super::scsi::{self, BLOCK, Sense, operation, status};
use super::terms::Terms;
use crate::bytes::{digest, put};
use crate::memory::Area;
use crate::outbox::Outbox;
use crate::responder::{Malformed, Speaker};

type Stream = crate::responder::Stream<Arrival>;

/// Commands that may be on their way.
const WINDOW: u32 = 256;

/// State of one connection, which is a session.
pub(crate) struct Connection {
    /// Until the full feature phase, and what holds from then on.
    login: Option<Login>,
    terms: Terms,
    stat_sn: u32,
    exp_cmd_sn: u32,
    /// Writes whose data are not complete, by the target transfer tag of their R2Ts.
    writes: Vec<Write>,
    free: Vec<u32>,
    /// Data that have come and whose digest is next.
    unproved: Option<Arrival>,
}

/// A write whose data are asked for.
#[derive(Clone, Copy)]
struct Write {
    itt: u32,
    lun: [u8; 8],
    /// Where its data go.
    place: usize,
    /// How much it moves, and how much of that has been asked for or came with the command.
    total: u32,
    asked: u32,
    r2t_sn: u32,
    residual: Residual,
}

/// The data of a Data-Out that are in the RAM area, or on their way there.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    tag: u32,
    /// They end a burst.
    last: bool,
    place: usize,
    len: usize,
}

/// The flag and the count of a residual; zeroes without one.
#[derive(Clone, Copy, Default)]
struct Residual {
    flag: u8,
    count: u32,
}

impl Residual {
    /// That of a command which moves `moves` bytes where `expected` were.
    #[inline]
    fn new(moves: u32, expected: u32) -> Self {
        let flag = match moves.cmp(&expected) {
            std::cmp::Ordering::Less => flag::UNDERFLOW,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => flag::OVERFLOW,
        };
        Self { flag, count: moves.abs_diff(expected) }
    }
}

impl Speaker for Connection {
    /// A command has its immediate data in the inbox: 64 KiB where nobody spoke of them.
    const BUFFER_MIN: usize = 128 * 1024;
    type Ends = Arrival;

    fn new(number: u64) -> Self {
        Self {
            login: Some(Login::new(number)),
            terms: Terms::default(),
            stat_sn: 0,
            exp_cmd_sn: 0,
            writes: Vec::new(),
            free: Vec::new(),
            unproved: None,
        }
    }

    #[inline]
    fn pdu(&mut self, stream: &mut Stream, at: usize, ram: &mut Area) -> Result<usize, Malformed> {
        let there = stream.inbox.filled() - at;
        if let Some(arrival) = self.unproved {
            return self.prove(stream, at, arrival, ram);
        }
        let head_len = self.head_len();
        if there < head_len {
            return Ok(0);
        }
        let bytes = stream.inbox.rest(at);
        if self.terms.header_digest && digest(&bytes[..BHS_LEN]) != bytes[BHS_LEN..head_len] {
            return Err(Malformed);
        }
        if bytes[at::AHS_LEN] != 0 {
            return Err(Malformed);
        }
        if bytes[0] == opcode::DATA_OUT {
            return self.data_out(stream, at, ram);
        }
        let data = pdu::padded(pdu::data_len(bytes));
        let sum = if self.terms.data_digest && data > 0 { DIGEST_LEN } else { 0 };
        let whole = head_len + data + sum;
        if whole > stream.inbox.size() {
            return Err(Malformed);
        }
        if there < whole {
            return Ok(0);
        }
        if sum > 0 && digest(&bytes[head_len..head_len + data]) != bytes[head_len + data..whole] {
            return Err(Malformed);
        }
        self.request(stream, at, ram)?;
        Ok(whole)
    }

    #[inline]
    fn ended(
        &mut self,
        stream: &mut Stream,
        arrival: Arrival,
        _ram: &mut Area,
    ) -> Result<(), Malformed> {
        self.arrived(stream, arrival);
        Ok(())
    }
}

impl Connection {
    /// Length of a header with its digest.
    #[inline]
    fn head_len(&self) -> usize {
        BHS_LEN + if self.terms.header_digest { DIGEST_LEN } else { 0 }
    }

    /// A request that is wholly in the inbox.
    #[inline]
    fn request(&mut self, stream: &mut Stream, at: usize, ram: &mut Area) -> Result<(), Malformed> {
        let Stream { inbox, outbox, due, .. } = stream;
        let bytes = inbox.rest(at);
        let (bhs, data) = (&bytes[..BHS_LEN], &bytes[self.head_len()..]);
        let data = &data[..pdu::data_len(bhs)];
        let cmd_sn = pdu::u32_at(bhs, at::CMD_SN);
        let is_immediate = bhs[0] & opcode::IMMEDIATE != 0;
        if let Some(login) = &mut self.login {
            if bhs[0] & opcode::MASK != opcode::LOGIN_REQUEST {
                return Err(Malformed);
            }
            self.exp_cmd_sn = cmd_sn;
            let itt = pdu::u32_at(bhs, at::ITT);
            let head = answer_head(&mut self.stat_sn, cmd_sn, opcode::LOGIN_RESPONSE, itt);
            if let Some(terms) = login.answer(bhs, data, head, outbox)? {
                self.terms = terms;
                self.login = None;
            }
            return Ok(());
        }
        if !is_immediate {
            self.exp_cmd_sn = cmd_sn.wrapping_add(1);
        }
        match bhs[0] & opcode::MASK {
            opcode::SCSI_COMMAND => self.command(outbox, due, bhs, data, ram),
            opcode::NOP_OUT => {
                self.pong(outbox, bhs, data);
                Ok(())
            }
            opcode::LOGOUT_REQUEST => {
                let head = self.head(opcode::LOGOUT_RESPONSE, pdu::u32_at(bhs, at::ITT));
                pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    /// The head of an answer with a status, for which the connection's counter goes on.
    #[inline]
    fn head(&mut self, opcode: u8, itt: u32) -> Bhs {
        answer_head(&mut self.stat_sn, self.exp_cmd_sn, opcode, itt)
    }

    /// Answers a NOP-Out that asks for it with its own data.
    fn pong(&mut self, outbox: &mut Outbox, bhs: &[u8], data: &[u8]) {
        let itt = pdu::u32_at(bhs, at::ITT);
        if itt == pdu::NO_TAG {
            return;
        }
        let mut head = self.head(opcode::NOP_IN, itt);
        put(&mut head, at::LUN, &bhs[at::LUN..at::ITT]);
        pdu::put_u32(&mut head, at::TTT, pdu::NO_TAG);
        pdu::put_data_len(&mut head, data.len());
        pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
        outbox.copy(&pdu::segment(data, self.terms.data_digest));
    }

    /// A SCSI command with its immediate data.
    #[inline]
    fn command(
        &mut self,
        outbox: &mut Outbox,
        due: &mut usize,
        bhs: &[u8],
        data: &[u8],
        ram: &mut Area,
    ) -> Result<(), Malformed> {
        let (cdb, itt) = (&bhs[at::CDB..], pdu::u32_at(bhs, at::ITT));
        let expected = pdu::u32_at(bhs, at::EDTL);
        let write = match cdb[0] {
            operation::READ_10 | operation::READ_16 => false,
            operation::WRITE_10 | operation::WRITE_16 => true,
            _ => {
                match scsi::answer(cdb, scsi::unit(bhs), ram.len()) {
                    Ok(data) => self.good(outbox, itt, &data, expected),
                    Err(sense) => self.check(outbox, itt, sense, expected),
                }
                return Ok(());
            }
        };
        let (block, blocks) = scsi::range(cdb);
        let size = blocks.saturating_mul(BLOCK as u32);
        let place = usize::try_from(block).ok().and_then(|block| block.checked_mul(BLOCK));
        let Some(place) = place.filter(|place| ram.at(*place, size as usize).is_some()) else {
            self.check(outbox, itt, scsi::OUT_OF_RANGE, expected);
            return Ok(());
        };
        if scsi::unit(bhs) >= scsi::UNITS {
            self.check(outbox, itt, scsi::NO_SUCH_UNIT, expected);
            return Ok(());
        }
        let residual = Residual::new(size, expected);
        let total = size.min(expected);
        if !total.is_multiple_of(4) {
            return Err(Malformed);
        }
        if !write && total > 0 {
            self.data_in(outbox, itt, ram, place..place + total as usize, residual);
            return Ok(());
        }
        let taken = data.len().min(total as usize);
        ram.store(place, &data[..taken]);
        let lun = pdu::u64_at(bhs, at::LUN).to_be_bytes();
        let asked = taken as u32;
        self.write(outbox, due, Write { itt, lun, place, total, asked, r2t_sn: 0, residual });
        Ok(())
    }

    /// A write with whose command as much came as is `asked`: the response, or the first R2T.
    #[inline]
    fn write(&mut self, outbox: &mut Outbox, due: &mut usize, write: Write) {
        if write.asked == write.total {
            self.respond(outbox, write.itt, write.residual);
        } else {
            let tag = self.open(write);
            self.ask(outbox, tag);
            *due += 1;
        }
    }

    /// Sends a range of the RAM area, and the status with the last of it.
    #[inline]
    fn data_in(
        &mut self,
        outbox: &mut Outbox,
        itt: u32,
        ram: &Area,
        range: Range<usize>,
        residual: Residual,
    ) {
        let (mut from, mut data_sn, mut burst) = (range.start, 0, self.terms.max_burst as usize);
        while from < range.end {
            let part = (range.end - from).min(self.terms.max_send as usize).min(burst);
            let is_last = from + part == range.end;
            burst -= part;
            let mut head = match is_last {
                true => self.head(opcode::DATA_IN, itt),
                false => sequence_head(self.exp_cmd_sn, opcode::DATA_IN, itt),
            };
            if is_last {
                head[at::FLAGS] = flag::FINAL | flag::STATUS | residual.flag;
                pdu::put_u32(&mut head, at::RESIDUAL, residual.count);
            } else if burst == 0 {
                head[at::FLAGS] = flag::FINAL;
                burst = self.terms.max_burst as usize;
            }
            pdu::put_u32(&mut head, at::TTT, pdu::NO_TAG);
            pdu::put_u32(&mut head, at::DATA_SN, data_sn);
            pdu::put_u32(&mut head, at::OFFSET, (from - range.start) as u32);
            pdu::put_data_len(&mut head, part);
            pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
            let data = ram.at(from, part).expect("the caller has seen that the range is inside");
            // SAFETY: the RAM area outlives every connection.
            unsafe { outbox.data(data, part) };
            if self.terms.data_digest {
                let sum = digest(ram.bytes(from, from + part));
                outbox.header::<DIGEST_LEN>(|bytes| *bytes = sum);
            }
            from += part;
            data_sn += 1;
        }
    }

    /// Answers with data of our own making, no longer than what is expected.
    fn good(&mut self, outbox: &mut Outbox, itt: u32, data: &[u8], expected: u32) {
        let residual = Residual::new(data.len() as u32, expected);
        let data = &data[..data.len().min(expected as usize)];
        if data.is_empty() {
            self.respond(outbox, itt, residual);
            return;
        }
        let mut head = self.head(opcode::DATA_IN, itt);
        head[at::FLAGS] = flag::FINAL | flag::STATUS | residual.flag;
        pdu::put_u32(&mut head, at::TTT, pdu::NO_TAG);
        pdu::put_u32(&mut head, at::RESIDUAL, residual.count);
        pdu::put_data_len(&mut head, data.len());
        pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
        outbox.copy(&pdu::segment(data, self.terms.data_digest));
    }

    /// Answers with sense; nothing of what was expected has been moved.
    fn check(&mut self, outbox: &mut Outbox, itt: u32, sense: Sense, expected: u32) {
        let data = scsi::sense_data(sense);
        let residual = Residual::new(0, expected);
        let mut head = self.head(opcode::SCSI_RESPONSE, itt);
        head[at::FLAGS] = flag::FINAL | residual.flag;
        head[at::STATUS] = status::CHECK_CONDITION;
        pdu::put_u32(&mut head, at::RESIDUAL, residual.count);
        pdu::put_data_len(&mut head, data.len());
        pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
        outbox.copy(&pdu::segment(&data, self.terms.data_digest));
    }

    /// Answers a command with success and no data.
    #[inline]
    fn respond(&mut self, outbox: &mut Outbox, itt: u32, residual: Residual) {
        let mut head = self.head(opcode::SCSI_RESPONSE, itt);
        head[at::FLAGS] = flag::FINAL | residual.flag;
        head[at::STATUS] = status::GOOD;
        pdu::put_u32(&mut head, at::RESIDUAL, residual.count);
        pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
    }

    /// Remembers a write; its tag.
    fn open(&mut self, write: Write) -> u32 {
        if let Some(tag) = self.free.pop() {
            self.writes[tag as usize] = write;
            return tag;
        }
        self.writes.push(write);
        self.writes.len() as u32 - 1
    }

    /// Asks for the next burst of a write.
    fn ask(&mut self, outbox: &mut Outbox, tag: u32) {
        let write = &mut self.writes[tag as usize];
        let len = (write.total - write.asked).min(self.terms.max_burst);
        let mut head = sequence_head(self.exp_cmd_sn, opcode::R2T, write.itt);
        head[at::FLAGS] = flag::FINAL;
        put(&mut head, at::LUN, &write.lun);
        pdu::put_u32(&mut head, at::TTT, tag);
        pdu::put_u32(&mut head, at::STAT_SN, self.stat_sn);
        pdu::put_u32(&mut head, at::DATA_SN, write.r2t_sn);
        pdu::put_u32(&mut head, at::OFFSET, write.asked);
        pdu::put_u32(&mut head, at::LENGTH, len);
        write.asked += len;
        write.r2t_sn += 1;
        pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = head);
    }

    /// The data an R2T asked for: what has arrived is copied, the rest is received in place.
    fn data_out(
        &mut self,
        stream: &mut Stream,
        at: usize,
        ram: &mut Area,
    ) -> Result<usize, Malformed> {
        let bytes = stream.inbox.rest(at);
        let (tag, len) = (pdu::u32_at(bytes, at::TTT), pdu::data_len(bytes));
        let write = self.writes.get(tag as usize).ok_or(Malformed)?;
        let offset = pdu::u32_at(bytes, at::OFFSET) as usize;
        if len % 4 != 0 || offset + len > write.asked as usize {
            return Err(Malformed);
        }
        let place = write.place + offset;
        let last = bytes[at::FLAGS] & flag::FINAL != 0;
        let data = &bytes[self.head_len()..];
        let part = len.min(data.len());
        if !ram.store(place, &data[..part]) {
            return Err(Malformed);
        }
        if last {
            stream.due = stream.due.saturating_sub(1);
        }
        let arrival = Arrival { tag, last, place, len };
        if part == len {
            self.arrived(stream, arrival);
        } else {
            stream.receive_in_place(place + part, len - part, arrival);
        }
        Ok(self.head_len() + part)
    }

    /// Data have come whole, but for their digest.
    #[inline]
    fn arrived(&mut self, stream: &mut Stream, arrival: Arrival) {
        if self.terms.data_digest && arrival.len > 0 {
            self.unproved = Some(arrival);
        } else {
            self.moved(stream, arrival);
        }
    }

    /// Compares data in the RAM area with their digest, which is next.
    fn prove(
        &mut self,
        stream: &mut Stream,
        at: usize,
        arrival: Arrival,
        ram: &Area,
    ) -> Result<usize, Malformed> {
        let Some(sum) = stream.inbox.rest(at).get(..DIGEST_LEN) else { return Ok(0) };
        if digest(ram.bytes(arrival.place, arrival.place + arrival.len)) != sum {
            return Err(Malformed);
        }
        self.unproved = None;
        self.moved(stream, arrival);
        Ok(DIGEST_LEN)
    }

    /// Data are where they belong: behind the last of a burst comes another, or the response.
    fn moved(&mut self, stream: &mut Stream, arrival: Arrival) {
        if !arrival.last {
            return;
        }
        let write = self.writes[arrival.tag as usize];
        if write.asked < write.total {
            self.ask(&mut stream.outbox, arrival.tag);
            stream.due += 1;
        } else {
            // Until its tag is given to another, nothing more may come under it.
            self.writes[arrival.tag as usize].asked = 0;
            self.free.push(arrival.tag);
            self.respond(&mut stream.outbox, write.itt, write.residual);
        }
    }
}

/// A head that counts no status.
#[inline]
fn sequence_head(exp_cmd_sn: u32, opcode: u8, itt: u32) -> Bhs {
    let mut head = pdu::head(opcode, 0, itt);
    pdu::put_u32(&mut head, at::EXP_CMD_SN, exp_cmd_sn);
    pdu::put_u32(&mut head, at::MAX_CMD_SN, exp_cmd_sn.wrapping_add(WINDOW - 1));
    head
}

/// A head that does, and is the whole answer unless more is said in it.
#[inline]
fn answer_head(stat_sn: &mut u32, exp_cmd_sn: u32, opcode: u8, itt: u32) -> Bhs {
    let mut head = sequence_head(exp_cmd_sn, opcode, itt);
    head[at::FLAGS] = flag::FINAL;
    pdu::put_u32(&mut head, at::STAT_SN, *stat_sn);
    *stat_sn = stat_sn.wrapping_add(1);
    head
}
