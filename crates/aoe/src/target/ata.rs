//! ATA commands: judged against the export and what is in flight there, and sent below.
//!
//! | command | what becomes of it |
//! | --- | --- |
//! | READ and WRITE, short and EXT, SECTORS and DMA | a read or write of the volume |
//! | FLUSH CACHE (EXT) | a flush |
//! | READ VERIFY (EXT) | a verify |
//! | DATA SET MANAGEMENT (TRIM) | a discard, where the volume gives space back |
//! | IDENTIFY DEVICE, CHECK POWER MODE, READ NATIVE MAX, SMART, some SET FEATURES | answered at once |
//! | anything else | ABRT |
//!
//! The command says which way data go, and the W flag must agree. The A flag, which would let a write be answered before it is durable, is a permission
//! that is not used. A count of 0 is nothing, not 256. The command decides how many bits of the address count.

use block::checksum::crc32c;
use block::limits::DISCARD_RANGES_MAX;
use block::pool::Class;
use block::{Buffer, Extent, Operation, PAGE_SIZE};
use volume::reservation::{Access, Scheme};
use wire::aoe::{AtaArgument, ErrorCode, SECTOR};
use wire::ata::{Direction, ErrorBits, Opcode, Status, TRIM, TrimRange, feature, smart};

use super::flights::{Active, Flight, Kind, Stage};
use super::receive::Received;
use super::repeats::{Key, Known};
use super::{Context, LOANS, Loan, Target};
use crate::export::{ExportId, identify};
use crate::head::Head;

/// A command that was judged, on its way below.
#[derive(Debug)]
struct Judged {
    id: ExportId,
    head: Head,
    kind: Kind,
    first: u64,
    end: u64,
    changes: bool,
    crc: u32,
    shape: u32,
    account: u8,
}

/// What an overlap with commands in flight means for a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    None,
    Waits,
    Repeats,
}

impl Target {
    /// An ATA command for an export that hears its source.
    #[inline]
    pub(super) fn ata(&mut self, received: &Received<'_>, id: ExportId, ctx: &mut Context<'_>) {
        let Ok(argument) = AtaArgument::parse(received.body) else {
            self.drops.runt += 1;
            return;
        };
        if received.is_broadcast {
            self.drops.broadcast += 1;
            return;
        }
        let opcode = Opcode(argument.command_status);
        let direction = opcode.direction();
        let exported = self.exported(id);
        if let Some(reservation) = &exported.reservation {
            let access = if direction == Direction::Out { Access::Write } else { Access::Read };
            let allowed = reservation.allows(Scheme::Mac, &received.source.0, access);
            if !allowed && opcode != Opcode::IDENTIFY_DEVICE {
                return self.refuse(received, id, ErrorCode::RESERVED);
            }
        }
        let Some(head) = self.head(received, id) else { return };
        let head = head.with_ata(&argument);
        match (direction, opcode) {
            (Direction::In, opcode) if opcode != Opcode::IDENTIFY_DEVICE => {
                self.read(received, id, &argument, head, ctx);
            }
            (Direction::Out, opcode) if opcode != Opcode::DATA_SET_MANAGEMENT => {
                self.write(received, id, &argument, head, ctx);
            }
            _ => self.other(received, id, &argument, head, ctx),
        }
    }

    /// The range of a transfer; `None` and answered if there is no such transfer.
    #[inline]
    fn range(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        argument: &AtaArgument,
        head: Head,
        is_write: bool,
    ) -> Option<(u64, u64)> {
        if argument.flags.is_write() != is_write {
            self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
            return None;
        }
        let is_extended = Opcode(argument.command_status).is_extended();
        let first = if is_extended { argument.lba48() } else { argument.lba28() };
        let end = first + u64::from(argument.count);
        let sectors_max = self.links[received.link.0 as usize].as_ref().map_or(0, |l| l.sectors);
        if argument.count > sectors_max {
            self.fail(received, head, Status::FAILED, ErrorBits::ABORT);
            return None;
        }
        if end > self.exported(id).export.sectors {
            self.fail(received, head, Status::FAILED, ErrorBits::ID_NOT_FOUND);
            return None;
        }
        Some((first, end))
    }

    #[inline]
    fn read(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        argument: &AtaArgument,
        mut head: Head,
        ctx: &mut Context<'_>,
    ) {
        let Some((first, end)) = self.range(received, id, argument, head, false) else { return };
        if first == end {
            return self.send(received.link, head.done());
        }
        let mut judged = Judged {
            id,
            head,
            kind: Kind::Read,
            first,
            end,
            changes: false,
            crc: 0,
            shape: shape(argument),
            account: 0,
        };
        let Some(overlap) = self.admit(received, &judged) else { return };
        let taken = self.take(id, Class::Transfer, first, end, ctx);
        let Some((buffer, account)) = taken else { return };
        judged.account = account;
        let extent = extent(first, end);
        let volume = self.exported(id).export.volume;
        if overlap == Overlap::None
            && let Some((disk, extent)) = ctx.below.find_loan(volume, extent, ctx.memory)
        {
            let link = received.link;
            let Judged { head, account, .. } = judged;
            self.loans.push(Loan { head, link, export: id, account, disk, extent, buffer });
            if self.loans.len() == LOANS {
                self.take_loans(ctx);
            }
            return;
        }
        self.launch(received, judged, overlap, Operation::Read { extent, buffer }, ctx);
    }

    #[inline]
    fn write(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        argument: &AtaArgument,
        mut head: Head,
        ctx: &mut Context<'_>,
    ) {
        let Some((first, end)) = self.range(received, id, argument, head, true) else { return };
        let length = usize::from(argument.count) * SECTOR;
        let Some(payload) = received.body[AtaArgument::SIZE..].get(..length) else {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        };
        if self.exported(id).export.read_only {
            return self.fail(received, head, Status::FAILED, ErrorBits::ABORT);
        }
        if payload.is_empty() {
            return self.send(received.link, head.done());
        }
        let mut judged = Judged {
            id,
            head,
            kind: Kind::Write,
            first,
            end,
            changes: true,
            crc: crc32c(payload),
            shape: shape(argument),
            account: 0,
        };
        let Some(overlap) = self.admit(received, &judged) else { return };
        if self.is_known(received, &judged, ctx) {
            return;
        }
        // What was read before is read before.
        if !self.loans.is_empty() {
            self.take_loans(ctx);
        }
        let taken = self.take(id, Class::Capsule, first, end, ctx);
        let Some((mut buffer, account)) = taken else { return };
        judged.account = account;
        ctx.memory.write(&mut buffer, 0, payload);
        let operation = Operation::Write { extent: extent(first, end), buffer, durable: false };
        self.launch(received, judged, overlap, operation, ctx);
    }

    /// Whether there is room for a command, and what it overlaps; `None` and counted if it is dropped.
    #[inline]
    fn admit(&mut self, received: &Received<'_>, judged: &Judged) -> Option<Overlap> {
        let exported = self.exports[judged.id.0 as usize].as_deref_mut()?;
        if exported.active.len() >= usize::from(exported.export.buffers) {
            exported.traffic.over_buffers += 1;
            self.drops.over_buffers += 1;
            return None;
        }
        let new = Active {
            first: judged.first,
            end: judged.end,
            source: received.source.to_u64(),
            tag: received.header.tag,
            slot: 0,
            stage: Stage::Waiting,
            changes: judged.changes,
        };
        let mut overlap = Overlap::None;
        for other in &exported.active {
            if !new.conflicts(other) {
                continue;
            }
            let looks_alike =
                other.tag == new.tag && (other.first, other.end) == (new.first, new.end);
            if looks_alike && judged.changes {
                let flight = self.flights.get_mut(other.slot);
                if (flight.shape, flight.crc) == (judged.shape, judged.crc) {
                    overlap = Overlap::Repeats;
                    break;
                }
            }
            if other.stage != Stage::Syncing {
                overlap = Overlap::Waits;
            }
        }
        if overlap == Overlap::Repeats {
            self.drops.repeated_in_flight += 1;
            return None;
        }
        Some(overlap)
    }

    /// Whether a write was carried out a moment ago; then it is answered or dropped here.
    #[inline]
    fn is_known(&mut self, received: &Received<'_>, judged: &Judged, ctx: &Context<'_>) -> bool {
        let exported = self.exported(judged.id);
        let key = key(received, judged);
        match self.repeats.look_up(ctx.now, &key, exported.wide, exported.last) {
            Known::New => false,
            Known::Done => {
                self.counters.repeated_answered += 1;
                let mut head = judged.head;
                self.send(received.link, head.done());
                true
            }
            Known::Superseded => {
                self.drops.repeated_superseded += 1;
                true
            }
        }
    }

    /// Memory for sectors; `None` and counted if there is none, so that the initiator asks again.
    #[inline]
    fn take(
        &mut self,
        id: ExportId,
        class: Class,
        first: u64,
        end: u64,
        ctx: &mut Context<'_>,
    ) -> Option<(Buffer, u8)> {
        let exported = self.exports[id.0 as usize].as_deref_mut()?;
        let Extent { offset, length } = extent(first, end);
        let phase = (offset.0 % u64::from(PAGE_SIZE)) as u32;
        let which = exported.accounts.next();
        let account = exported.accounts.of(which);
        let buffer = ctx.pool.take(account, class, length.0 as u32, phase);
        self.drops.no_memory += u64::from(buffer.is_none());
        Some((buffer?, which))
    }

    /// Gives a command its place among those in flight, and sends it below unless it has to wait.
    #[inline]
    fn launch(
        &mut self,
        received: &Received<'_>,
        judged: Judged,
        overlap: Overlap,
        mut operation: Operation,
        ctx: &mut Context<'_>,
    ) {
        let waits = overlap == Overlap::Waits;
        let record = if judged.changes && !waits {
            self.repeats.begin(ctx.now, &key(received, &judged))
        } else {
            0
        };
        let Judged { id, head, kind, first, end, changes, crc, shape, account } = judged;
        let exported = self.exports[id.0 as usize].as_deref_mut().expect("it was found");
        if record != 0 {
            exported.last = record;
            if kind == Kind::Trim {
                exported.wide = record;
            }
        }
        let company = exported.active.len() + usize::from(waits);
        let durable = exported.wants_durable(company, &mut operation);
        let slot = self.flights.insert(Flight {
            generation: 0,
            kind,
            durable,
            account,
            link: received.link,
            export: id,
            place: exported.active.len() as u32,
            record,
            crc,
            shape,
            since: ctx.now,
            held: None,
            head,
        });
        let stage = if waits { Stage::Waiting } else { Stage::Running };
        let source = received.source.to_u64();
        let tag = received.header.tag;
        exported.active.push(Active { first, end, source, tag, slot, stage, changes });
        if waits {
            self.counters.waited += 1;
            exported.waiting.push_back(slot);
            self.flights.get_mut(slot).held = Some(Box::new(operation));
        } else {
            let volume = exported.export.volume;
            self.submit(slot, volume, operation, ctx);
        }
    }

    /// A command that waited goes below.
    pub(super) fn relaunch(&mut self, slot: u32, ctx: &mut Context<'_>) {
        let flight = self.flights.get_mut(slot);
        let mut operation = *flight.held.take().expect("who waits holds what it asks");
        let exported = self.exports[flight.export.0 as usize].as_deref_mut().expect("it was found");
        let active = &mut exported.active[flight.place as usize];
        active.stage = Stage::Running;
        if active.changes {
            let key = Key {
                source: active.source,
                export: flight.export.0,
                tag: active.tag,
                lba: if flight.kind == Kind::Trim { 0 } else { active.first },
                shape: flight.shape,
                crc: flight.crc,
            };
            flight.record = self.repeats.begin(ctx.now, &key);
            exported.last = flight.record;
            if flight.kind == Kind::Trim {
                exported.wide = flight.record;
            }
        }
        flight.durable = exported.wants_durable(exported.active.len() - 1, &mut operation);
        let volume = exported.export.volume;
        self.submit(slot, volume, operation, ctx);
    }

    /// Answers with ERR and these error bits; nothing was transferred.
    #[cold]
    fn fail(&mut self, received: &Received<'_>, mut head: Head, status: Status, error: ErrorBits) {
        self.counters.failed += 1;
        head.finish(status, error, None);
        self.send(received.link, head.bytes());
    }

    /// Everything but reads and writes.
    #[cold]
    fn other(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        argument: &AtaArgument,
        mut head: Head,
        ctx: &mut Context<'_>,
    ) {
        self.counters.other_ata += 1;
        let opcode = Opcode(argument.command_status);
        let export = &self.exported(id).export;
        match opcode {
            Opcode::IDENTIFY_DEVICE => {
                if argument.count != 1 {
                    return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
                }
                let device =
                    identify(&export.uuid, export.sectors, export.discards, export.physical_block);
                self.send_two(received.link, head.done(), &device.emit());
            }
            Opcode::CHECK_POWER_MODE => {
                // Active or idle.
                head.finish(Status::GOOD, ErrorBits(0), Some(0xff));
                self.send(received.link, head.bytes());
            }
            Opcode::READ_NATIVE_MAX | Opcode::READ_NATIVE_MAX_EXT => {
                let (last, high) = match opcode.is_extended() {
                    true => (export.sectors.saturating_sub(1), 0),
                    false => (export.sectors.min(1 << 28).saturating_sub(1), AtaArgument::LBA_MODE),
                };
                let [a, b, c, d, e, f, _, _] = last.to_le_bytes();
                let lba = [a, b, c, d | high, e, f];
                let mut head = head.with_ata(&AtaArgument { lba, ..*argument });
                self.send(received.link, head.done());
            }
            Opcode::SMART => self.smart(received, argument, head),
            Opcode::SET_FEATURES => match argument.error_feature {
                feature::TRANSFER_MODE | feature::DISABLE_WRITE_CACHE => {
                    self.send(received.link, head.done());
                }
                _ => self.fail(received, head, Status::FAILED, ErrorBits::ABORT),
            },
            Opcode::FLUSH_CACHE | Opcode::FLUSH_CACHE_EXT => {
                // It overlaps nothing: what was answered is durable, and what was not is not promised.
                let judged = Judged {
                    id,
                    head,
                    kind: Kind::Plain,
                    first: 0,
                    end: 0,
                    changes: false,
                    crc: 0,
                    shape: shape(argument),
                    account: 0,
                };
                if let Some(overlap) = self.admit(received, &judged) {
                    self.launch(received, judged, overlap, Operation::Flush, ctx);
                }
            }
            Opcode::READ_VERIFY | Opcode::READ_VERIFY_EXT => {
                self.verify(received, id, argument, head, ctx);
            }
            Opcode::DATA_SET_MANAGEMENT => self.trim(received, id, argument, head, ctx),
            _ => self.fail(received, head, Status::FAILED, ErrorBits::ABORT),
        }
    }

    /// SMART, as much of it as says that the device is well. Answers have a sector behind them, without which aoeping shows none.
    fn smart(&mut self, received: &Received<'_>, argument: &AtaArgument, mut head: Head) {
        let mut data = [0; SECTOR];
        let is_smart = argument.lba[1..3] == smart::SIGNATURE;
        match argument.error_feature {
            smart::ENABLE | smart::DISABLE | smart::RETURN_STATUS if is_smart => head.done(),
            smart::READ_DATA if is_smart && argument.count == 1 => {
                // Structure revision 16, no attributes, and a checksum that makes the sum zero.
                (data[0], data[SECTOR - 1]) = (0x10, 0xf0);
                head.done()
            }
            _ => {
                self.counters.failed += 1;
                head.finish(Status::FAILED, ErrorBits::ABORT, None);
                head.bytes()
            }
        };
        self.send_two(received.link, head.bytes(), &data);
    }

    fn verify(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        argument: &AtaArgument,
        mut head: Head,
        ctx: &mut Context<'_>,
    ) {
        let is_extended = Opcode(argument.command_status).is_extended();
        let first = if is_extended { argument.lba48() } else { argument.lba28() };
        let end = first + u64::from(argument.count);
        if argument.flags.is_write() {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        }
        if end > self.exported(id).export.sectors {
            return self.fail(received, head, Status::FAILED, ErrorBits::ID_NOT_FOUND);
        }
        if first == end {
            return self.send(received.link, head.done());
        }
        let shape = shape(argument);
        let kind = Kind::Plain;
        let (changes, crc, account) = (false, 0, 0);
        let judged = Judged { id, head, kind, first, end, changes, crc, shape, account };
        if let Some(overlap) = self.admit(received, &judged) {
            let operation = Operation::Verify { extent: extent(first, end) };
            self.launch(received, judged, overlap, operation, ctx);
        }
    }

    fn trim(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        argument: &AtaArgument,
        mut head: Head,
        ctx: &mut Context<'_>,
    ) {
        let export = &self.exported(id).export;
        let (sectors, read_only, discards) = (export.sectors, export.read_only, export.discards);
        let length = usize::from(argument.count) * SECTOR;
        let is_trim = argument.error_feature == TRIM && discards && !read_only;
        if !is_trim || length / TrimRange::SIZE > DISCARD_RANGES_MAX {
            return self.fail(received, head, Status::FAILED, ErrorBits::ABORT);
        }
        let payload = received.body[AtaArgument::SIZE..].get(..length);
        let Some(payload) = payload.filter(|_| argument.flags.is_write()) else {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        };
        let (ranges, _) = payload.as_chunks::<{ TrimRange::SIZE }>();
        let ranges = ranges.iter().map(|bytes| TrimRange::parse(*bytes));
        let mut extents = Vec::new();
        let (mut first, mut end) = (u64::MAX, 0);
        for TrimRange { lba, count } in ranges.filter(|range| range.count > 0) {
            let last = lba + u64::from(count);
            if last > sectors {
                return self.fail(received, head, Status::FAILED, ErrorBits::ID_NOT_FOUND);
            }
            (first, end) = (first.min(lba), end.max(last));
            extents.push(extent(lba, last));
        }
        if extents.is_empty() {
            return self.send(received.link, head.done());
        }
        let judged = Judged {
            id,
            head,
            kind: Kind::Trim,
            first,
            end,
            changes: true,
            crc: crc32c(payload),
            // Without a count: it may touch any sector.
            shape: shape(argument) & 0xffff_00ff,
            account: 0,
        };
        let Some(overlap) = self.admit(received, &judged) else { return };
        if !self.is_known(received, &judged, ctx) {
            self.take_loans(ctx);
            self.launch(received, judged, overlap, Operation::Discard { extents }, ctx);
        }
    }
}

impl super::Exported {
    /// Whether a write is to ask for durability itself: alone on a volatile volume, that takes one step where a write and a flush take two. With company, one flush for
    /// all is cheaper.
    #[inline]
    fn wants_durable(&self, company: usize, operation: &mut Operation) -> bool {
        let Operation::Write { durable, .. } = operation else { return false };
        *durable = self.export.cache_volatile && company == 0 && !self.flush.running;
        *durable
    }
}

#[inline]
fn shape(argument: &AtaArgument) -> u32 {
    let AtaArgument { flags, error_feature, count, command_status, .. } = *argument;
    u32::from_be_bytes([flags.0, error_feature, count, command_status])
}

#[inline]
fn key(received: &Received<'_>, judged: &Judged) -> Key {
    Key {
        source: received.source.to_u64(),
        export: judged.id.0,
        tag: received.header.tag,
        lba: if judged.kind == Kind::Trim { 0 } else { judged.first },
        shape: judged.shape,
        crc: judged.crc,
    }
}

#[inline]
fn extent(first: u64, end: u64) -> Extent {
    Extent::new(first * SECTOR as u64, (end - first) * SECTOR as u64)
}
