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
//! The command says which way data go, and the W flag must agree. The A flag, which would let a
//! write be answered before it is durable, is a permission that is not used. A count of 0 is
//! nothing, not 256. The command decides how many bits of the address count.

use block::checksum::crc32c;
use block::limits::{DISCARD_RANGES_MAX, LOANS_TOGETHER};
use block::record::passed;
use block::{Buffer, Extent, Instant, Loan, Operation, PAGE_SIZE, Slot, Table};
use reservation::Access;
use wire::aoe::{AtaArgument, ErrorCode, SECTOR};
use wire::ata::{Direction, ErrorBits, Opcode, Status, TRIM, TrimRange, feature, smart};

use super::flights::{Active, FILLED, Flight, Kind, Stage};
use super::repeats::{Key, Known, Repeats};
use super::{Context, Target, TargetCounters};
use crate::export::ExportId;
use crate::head::Reply;
use crate::received::Received;

/// A command that is judged: the frame, and the export that it is for.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    received: &'a Received<'a>,
    id: ExportId,
    argument: AtaArgument,
    now: Instant,
}

/// A command that was judged, on its way below.
#[derive(Debug)]
struct Judged {
    kind: Kind,
    /// As it will stand among those in flight, but for its slot and stage.
    active: Active,
    key: Key,
    account: u8,
}

impl<'a> Asked<'a> {
    #[inline]
    fn opcode(&self) -> Opcode {
        Opcode(self.argument.command_status)
    }

    /// The first sector: the command decides how many bits its address has.
    #[inline]
    fn first(&self) -> u64 {
        match self.opcode().is_extended() {
            true => self.argument.lba48(),
            false => self.argument.lba28(),
        }
    }

    /// The sectors behind the registers, as many as the count says; `None` if they are not there.
    #[inline]
    fn payload(&self) -> Option<&'a [u8]> {
        let length = usize::from(self.argument.count) * SECTOR;
        self.received.body[AtaArgument::SIZE..].get(..length)
    }

    /// The command, for sectors from `first` up to `end`; `payload` is what it would write.
    #[inline]
    fn judged(&self, kind: Kind, (first, end): (u64, u64), payload: &[u8]) -> Judged {
        let AtaArgument { flags, error_feature, count, command_status, .. } = self.argument;
        let (source, tag) = (self.received.from.mac.to_u64(), self.received.header.tag);
        // A trim has no count: it may touch any sector.
        let (lba, count) = if kind == Kind::Trim { (0, 0) } else { (first, count) };
        let changes = matches!(kind, Kind::Write | Kind::Trim);
        let (slot, stage) = (Slot::default(), Stage::Waiting);
        Judged {
            kind,
            active: Active { first, end, source, tag, slot, stage, changes },
            key: Key {
                source,
                export: self.id,
                tag,
                lba,
                shape: u32::from_be_bytes([flags.0, error_feature, count, command_status]),
                crc: if changes { crc32c(payload) } else { 0 },
            },
            account: 0,
        }
    }
}

impl Judged {
    /// What it overlaps of an export's commands in flight.
    #[inline]
    fn overlap(&self, active: &[Active], flights: &Table<Flight>) -> Overlap {
        let new = &self.active;
        let mut overlap = Overlap::None;
        for other in active {
            if !new.conflicts(other) {
                continue;
            }
            let looks_alike =
                other.tag == new.tag && (other.first, other.end) == (new.first, new.end);
            if looks_alike && new.changes {
                let flight = flights.get(other.slot).expect(FILLED);
                if (flight.key.shape, flight.key.crc) == (self.key.shape, self.key.crc) {
                    return Overlap::Repeats;
                }
            }
            if other.stage != Stage::Syncing {
                overlap = Overlap::Waits;
            }
        }
        overlap
    }
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
        let Some(argument) = self.whole(AtaArgument::parse(received.body)) else { return };
        if received.is_broadcast {
            self.drops.broadcast += 1;
            return;
        }
        let opcode = Opcode(argument.command_status);
        let direction = opcode.direction();
        let volume = self.exports[id.0].export.volume;
        let access = match (direction, opcode) {
            (Direction::Out, _) | (_, Opcode::FLUSH_CACHE | Opcode::FLUSH_CACHE_EXT) => {
                Access::Write
            }
            _ => Access::Read,
        };
        // Who it is is asked where somebody holds the volume.
        let who = || Some(self.named.station(received.from.mac.0));
        let held = ctx.reservations.held(volume);
        let is_allowed = held.is_none_or(|held| held.allows(who(), access));
        let asked = Asked { received, id, argument, now: ctx.now };
        if !is_allowed && opcode != Opcode::IDENTIFY_DEVICE {
            if !self.forgo(&asked) {
                self.refuse(received, id, ErrorCode::RESERVED);
            }
            return;
        }
        match (direction, opcode) {
            (Direction::In, opcode) if opcode != Opcode::IDENTIFY_DEVICE => self.read(&asked, ctx),
            (Direction::Out, opcode) if opcode != Opcode::DATA_SET_MANAGEMENT => {
                self.write(&asked, ctx);
            }
            _ => self.other(&asked, ctx),
        }
    }

    /// The answer, with the registers as they were asked. Made where it is used, and not carried
    /// along.
    #[inline]
    fn ata_reply(&self, asked: &Asked<'_>) -> Reply {
        let Reply { to, head } = self.reply(asked.received, asked.id);
        Reply { to, head: head.with_ata(&asked.argument) }
    }

    /// The sectors that a command of at most `count_max` is for, from the first up to the first
    /// behind; `None` and answered if they are not to be had.
    #[inline]
    fn range(&mut self, asked: &Asked<'_>, is_write: bool, count_max: u8) -> Option<(u64, u64)> {
        let Asked { id, argument, .. } = asked;
        if argument.flags.is_write() != is_write {
            self.refuse(asked.received, *id, ErrorCode::BAD_ARGUMENT);
            return None;
        }
        let first = asked.first();
        let end = first + u64::from(argument.count);
        if argument.count > count_max {
            self.fail(asked, ErrorBits::ABORT);
            return None;
        }
        if end > self.exports[id.0].export.sectors {
            self.fail(asked, ErrorBits::ID_NOT_FOUND);
            return None;
        }
        Some((first, end))
    }

    #[inline]
    fn read(&mut self, asked: &Asked<'_>, ctx: &mut Context<'_>) {
        let Asked { received, id, .. } = *asked;
        let count_max = self.frame_sectors(received.from.link);
        let Some((first, end)) = self.range(asked, false, count_max) else { return };
        if first == end {
            return self.succeed(asked);
        }
        let mut judged = asked.judged(Kind::Read, (first, end), &[]);
        let Some(overlap) = self.admit(&judged) else { return };
        let extent = extent(first, end);
        let Some((buffer, account)) = self.take(id, extent, ctx) else { return };
        let volume = self.exports[id.0].export.volume;
        if overlap == Overlap::None
            && let Some((disk, extent)) = ctx.volumes.find_loan(volume, extent, ctx.memory)
        {
            let reply = self.ata_reply(asked);
            self.loans.push(Loan { disk, extent, buffer, who: (reply, id, account) });
            if self.loans.len() == LOANS_TOGETHER {
                self.take_loans(ctx);
            }
            return;
        }
        judged.account = account;
        self.launch(asked, judged, overlap, Operation::Read { extent, buffer }, ctx);
    }

    #[inline]
    fn write(&mut self, asked: &Asked<'_>, ctx: &mut Context<'_>) {
        let Asked { received, id, .. } = *asked;
        let count_max = self.frame_sectors(received.from.link);
        let Some((first, end)) = self.range(asked, true, count_max) else { return };
        let Some(payload) = asked.payload() else {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        };
        if self.exports[id.0].export.read_only {
            return self.fail(asked, ErrorBits::ABORT);
        }
        if payload.is_empty() {
            return self.succeed(asked);
        }
        let extent = extent(first, end);
        let volume = self.exports[id.0].export.volume;
        let landing = ctx.volumes.find_landing(volume, extent, ctx.memory);
        if let Some((disk, place)) = landing {
            // What it needs is fetched while the payload is looked at.
            ctx.memory.prefetch_landing(disk, place);
        }
        let mut judged = asked.judged(Kind::Write, (first, end), payload);
        let Some(overlap) = self.admit(&judged) else { return };
        if self.is_known(asked, &judged) {
            return;
        }
        // What was read before is read before.
        if !self.loans.is_empty() {
            self.take_loans(ctx);
        }
        if let (Some((disk, place)), Overlap::None) = (landing, overlap) {
            ctx.memory.land(disk, place, payload);
            ctx.volumes.landed(volume, disk, extent.length);
            self.remember_over(ctx.now, &judged.key, true);
            self.exports[id.0].count_write(judged.key.source, extent.length.0, &mut self.counters);
            return self.succeed(asked);
        }
        let taken = self.take(id, extent, ctx);
        let Some((mut buffer, account)) = taken else { return };
        judged.account = account;
        ctx.memory.write(&mut buffer, 0, payload);
        let operation = Operation::Write { extent, buffer, durable: false };
        self.launch(asked, judged, overlap, operation, ctx);
    }

    /// Whether there is room for a command, and what it overlaps; `None` and counted if it is
    /// dropped.
    #[inline]
    fn admit(&mut self, judged: &Judged) -> Option<Overlap> {
        let exported = &mut self.exports[judged.key.export.0];
        if exported.active.len() >= usize::from(exported.export.buffers) {
            exported.traffic.over_buffers += 1;
            self.drops.over_buffers += 1;
            return None;
        }
        let overlap = judged.overlap(&exported.active, &self.flights);
        if overlap == Overlap::Repeats {
            self.drops.repeated_in_flight += 1;
            return None;
        }
        Some(overlap)
    }

    /// Whether a write came a moment ago, and may not be carried out again; then it is answered or
    /// dropped here.
    #[inline]
    fn is_known(&mut self, asked: &Asked<'_>, judged: &Judged) -> bool {
        match self.exports[asked.id.0].known(&self.repeats, asked.now, &judged.key) {
            Known::New => false,
            Known::Done => {
                self.answer_again(asked, judged);
                true
            }
            Known::Superseded => {
                self.drops.repeated_superseded += 1;
                true
            }
            Known::Refused => {
                self.drops.repeated_refused += 1;
                true
            }
        }
    }

    /// Answers a copy of a write that was done.
    #[cold]
    fn answer_again(&mut self, asked: &Asked<'_>, judged: &Judged) {
        self.repeats.answered_again(asked.now, &judged.key);
        self.counters.repeated_answered += 1;
        self.succeed(asked);
    }

    /// Memory for sectors; `None` and counted if there is none, so that the initiator asks again.
    #[inline]
    fn take(
        &mut self,
        id: ExportId,
        Extent { offset, length }: Extent,
        ctx: &mut Context<'_>,
    ) -> Option<(Buffer, u8)> {
        let exported = &mut self.exports[id.0];
        let phase = (offset.0 % u64::from(PAGE_SIZE)) as u32;
        let which = exported.accounts.next();
        let account = exported.accounts.of(which);
        let buffer = ctx.pool.take(account, length.0 as u32, phase);
        self.drops.no_memory += u64::from(buffer.is_none());
        Some((buffer?, which))
    }

    /// Gives a command its place among those in flight, and sends it below unless it has to wait.
    #[inline]
    fn launch(
        &mut self,
        asked: &Asked<'_>,
        judged: Judged,
        overlap: Overlap,
        mut operation: Operation,
        ctx: &mut Context<'_>,
    ) {
        let reply = self.ata_reply(asked);
        let waits = overlap == Overlap::Waits;
        let Judged { kind, active, key, account } = judged;
        let exported = &mut self.exports[key.export.0];
        let record = match active.changes && !waits {
            true => exported.remember(&mut self.repeats, ctx.now, &key),
            false => 0,
        };
        let place = exported.active.len();
        let durable = exported.wants_durable(place + usize::from(waits), &mut operation);
        let (place, since, held) = (place as u32, ctx.now, None);
        let slot = self.flights.insert(Flight {
            kind,
            durable,
            account,
            place,
            record,
            key,
            since,
            held,
            reply,
        });
        let stage = if waits { Stage::Waiting } else { Stage::Running };
        exported.active.push(Active { slot, stage, ..active });
        if waits {
            self.counters.waited += 1;
            exported.waiting.push_back(slot);
            self.flights.get_mut(slot).expect(FILLED).held = Some(Box::new(operation));
        } else {
            let volume = exported.export.volume;
            self.submit(slot, volume, operation, ctx);
        }
    }

    /// A command that waited goes below, unless it has been reserved against meanwhile, or is a
    /// copy of a write that failed, and what it waited for is newer.
    pub(super) fn relaunch(&mut self, slot: Slot, ctx: &mut Context<'_>) {
        let flight = self.flights.get_mut(slot).expect(FILLED);
        let exported = &mut self.exports[flight.key.export.0];
        let active = &mut exported.active[flight.place as usize];
        let (volume, who) = (exported.export.volume, self.named.station(active.mac()));
        if !ctx.reservations.allows(volume, Some(who), active.access()) {
            if active.changes {
                self.repeats.refuse(ctx.now, &flight.key);
            }
            let Reply { to, head } = flight.reply;
            self.counters.refused += 1;
            passed("status", ErrorCode::RESERVED);
            self.send(&Reply { to, head: head.refused(ErrorCode::RESERVED) });
            return self.drop_waiting(slot, ctx);
        }
        if active.changes {
            if exported.known(&self.repeats, ctx.now, &flight.key) != Known::New {
                self.drops.repeated_superseded += 1;
                return self.drop_waiting(slot, ctx);
            }
            flight.record = exported.remember(&mut self.repeats, ctx.now, &flight.key);
        }
        let mut operation = *flight.held.take().expect("who waits holds what it asks");
        exported.active[flight.place as usize].stage = Stage::Running;
        flight.durable = exported.wants_durable(exported.active.len() - 1, &mut operation);
        self.submit(slot, volume, operation, ctx);
    }

    /// Before a command is answered that it is not carried out: if it is a write, nor are its
    /// copies from now on. Returns whether it is a copy itself, of one that is in flight or was
    /// done, and needs no such answer.
    #[cold]
    fn forgo(&mut self, asked: &Asked<'_>) -> bool {
        let opcode = asked.opcode();
        let kind = match (opcode.direction(), opcode) {
            (Direction::Out, Opcode::DATA_SET_MANAGEMENT) => Kind::Trim,
            (Direction::Out, _) => Kind::Write,
            _ => return false,
        };
        let Some(payload) = asked.payload() else { return false };
        let sectors = match kind {
            Kind::Trim => trimmed(payload)
                .fold((u64::MAX, 0), |(first, end), (lba, last)| (first.min(lba), end.max(last))),
            _ => (asked.first(), asked.first() + u64::from(asked.argument.count)),
        };
        let judged = asked.judged(kind, sectors, payload);
        let exported = &self.exports[asked.id.0];
        if judged.overlap(&exported.active, &self.flights) == Overlap::Repeats {
            self.drops.repeated_in_flight += 1;
            return true;
        }
        if exported.known(&self.repeats, asked.now, &judged.key) == Known::Done {
            self.answer_again(asked, &judged);
            return true;
        }
        self.repeats.refuse(asked.now, &judged.key);
        false
    }

    /// Remembers a write that is over already.
    #[inline]
    pub(super) fn remember_over(&mut self, now: Instant, key: &Key, done: bool) {
        let record = self.exports[key.export.0].remember(&mut self.repeats, now, key);
        self.repeats.end(now, record, done);
    }

    /// Answers with ERR and these error bits; nothing was transferred.
    #[cold]
    fn fail(&mut self, asked: &Asked<'_>, error: ErrorBits) {
        if self.forgo(asked) {
            return;
        }
        self.counters.failed += 1;
        passed("status", format_args!("ErrorBits {:#04x}", error.0));
        let mut reply = self.ata_reply(asked);
        reply.head.finish(Status::FAILED, error, None);
        self.send(&reply);
    }

    /// Answers that all is done.
    #[inline]
    fn succeed(&mut self, asked: &Asked<'_>) {
        let mut reply = self.ata_reply(asked);
        reply.head.done();
        self.send(&reply);
    }

    /// Everything but reads and writes.
    #[cold]
    fn other(&mut self, asked: &Asked<'_>, ctx: &mut Context<'_>) {
        self.counters.other_ata += 1;
        let Asked { received, id, argument, .. } = *asked;
        let mut reply = self.ata_reply(asked);
        let opcode = asked.opcode();
        let export = &self.exports[id.0].export;
        match opcode {
            Opcode::IDENTIFY_DEVICE => {
                if argument.count != 1 {
                    return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
                }
                let device = export.identify();
                reply.head.done();
                self.send_two(&reply, &device.emit());
            }
            Opcode::CHECK_POWER_MODE => {
                // Active or idle.
                reply.head.finish(Status::GOOD, ErrorBits(0), Some(0xff));
                self.send(&reply);
            }
            Opcode::READ_NATIVE_MAX | Opcode::READ_NATIVE_MAX_EXT => {
                let (last, high) = match opcode.is_extended() {
                    true => (export.sectors.saturating_sub(1), 0),
                    false => (export.sectors.min(1 << 28).saturating_sub(1), AtaArgument::LBA_MODE),
                };
                let [a, b, c, d, e, f, _, _] = last.to_le_bytes();
                let lba = [a, b, c, d | high, e, f];
                reply.head = reply.head.with_ata(&AtaArgument { lba, ..argument });
                reply.head.done();
                self.send(&reply);
            }
            Opcode::SMART => self.smart(asked),
            Opcode::SET_FEATURES => match argument.error_feature {
                feature::TRANSFER_MODE | feature::DISABLE_WRITE_CACHE => {
                    self.succeed(asked);
                }
                _ => self.fail(asked, ErrorBits::ABORT),
            },
            Opcode::FLUSH_CACHE | Opcode::FLUSH_CACHE_EXT => {
                // It overlaps nothing: what was answered is durable, and what was not is not
                // promised.
                self.plain(asked, (0, 0), Operation::Flush, ctx);
            }
            Opcode::READ_VERIFY | Opcode::READ_VERIFY_EXT => {
                // No data travel, so that the link limits nothing.
                let Some((first, end)) = self.range(asked, false, u8::MAX) else { return };
                if first == end {
                    return self.succeed(asked);
                }
                let operation = Operation::Verify { extent: extent(first, end) };
                self.plain(asked, (first, end), operation, ctx);
            }
            Opcode::DATA_SET_MANAGEMENT => self.trim(asked, ctx),
            _ => self.fail(asked, ErrorBits::ABORT),
        }
    }

    /// SMART, as much of it as says that the device is well. Answers have a sector behind them,
    /// without which aoeping shows none.
    fn smart(&mut self, asked: &Asked<'_>) {
        let Asked { argument, .. } = *asked;
        let mut reply = self.ata_reply(asked);
        let mut data = [0; SECTOR];
        let is_smart = argument.lba[1..3] == smart::SIGNATURE;
        match argument.error_feature {
            smart::ENABLE | smart::DISABLE | smart::RETURN_STATUS if is_smart => reply.head.done(),
            smart::READ_DATA if is_smart && argument.count == 1 => {
                // Structure revision 16, no attributes, and a checksum that makes the sum zero.
                (data[0], data[SECTOR - 1]) = (0x10, 0xf0);
                reply.head.done();
            }
            _ => {
                self.counters.failed += 1;
                reply.head.finish(Status::FAILED, ErrorBits::ABORT, None);
            }
        }
        self.send_two(&reply, &data);
    }

    /// Sends a command below that is answered with registers alone.
    fn plain(
        &mut self,
        asked: &Asked<'_>,
        sectors: (u64, u64),
        operation: Operation,
        ctx: &mut Context<'_>,
    ) {
        let judged = asked.judged(Kind::Plain, sectors, &[]);
        if let Some(overlap) = self.admit(&judged) {
            self.launch(asked, judged, overlap, operation, ctx);
        }
    }

    fn trim(&mut self, asked: &Asked<'_>, ctx: &mut Context<'_>) {
        let Asked { received, id, argument, .. } = *asked;
        let export = &self.exports[id.0].export;
        let (sectors, read_only, discards) = (export.sectors, export.read_only, export.discards);
        let length = usize::from(argument.count) * SECTOR;
        let is_trim = argument.error_feature == TRIM && discards && !read_only;
        if !is_trim || length / TrimRange::SIZE > DISCARD_RANGES_MAX {
            return self.fail(asked, ErrorBits::ABORT);
        }
        let Some(payload) = asked.payload().filter(|_| argument.flags.is_write()) else {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        };
        let mut extents = Vec::new();
        let (mut first, mut end) = (u64::MAX, 0);
        for (lba, last) in trimmed(payload) {
            if last > sectors {
                return self.fail(asked, ErrorBits::ID_NOT_FOUND);
            }
            (first, end) = (first.min(lba), end.max(last));
            extents.push(extent(lba, last));
        }
        if extents.is_empty() {
            return self.succeed(asked);
        }
        let judged = asked.judged(Kind::Trim, (first, end), payload);
        let Some(overlap) = self.admit(&judged) else { return };
        if !self.is_known(asked, &judged) {
            self.take_loans(ctx);
            let operation = Operation::Discard { extents };
            self.launch(asked, judged, overlap, operation, ctx);
        }
    }
}

impl super::Exported {
    /// Whether a write is to ask for durability itself: alone on a volatile volume, that takes one
    /// step where a write and a flush take two. With company, one flush for all is cheaper.
    #[inline]
    fn wants_durable(&self, company: usize, operation: &mut Operation) -> bool {
        let Operation::Write { durable, .. } = operation else { return false };
        *durable = self.export.cache_volatile && company == 0 && !self.flush.running;
        *durable
    }

    /// A write of so many bytes was carried out.
    #[inline]
    pub(super) fn count_write(&mut self, source: u64, length: u64, counters: &mut TargetCounters) {
        self.count(source, |traffic| {
            traffic.writes += 1;
            traffic.write_bytes += length;
        });
        counters.writes += 1;
        counters.write_bytes += length;
    }

    /// What is known of a frame that would change data.
    #[inline]
    fn known(&self, repeats: &Repeats, now: Instant, key: &Key) -> Known {
        repeats.look_up(now, key, self.wide, self.last)
    }

    /// Remembers a change that goes below now, and returns its number.
    #[inline]
    fn remember(&mut self, repeats: &mut Repeats, now: Instant, key: &Key) -> u32 {
        self.last = repeats.begin(now, key);
        if key.is_wide() {
            self.wide = self.last;
        }
        self.last
    }
}

/// What a trim names, from the first sector up to the first behind.
fn trimmed(payload: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let (ranges, _) = payload.as_chunks::<{ TrimRange::SIZE }>();
    let ranges = ranges.iter().map(|bytes| TrimRange::parse(*bytes));
    let named = ranges.filter(|range| range.count > 0);
    named.map(|TrimRange { lba, count }| (lba, lba + u64::from(count)))
}

#[inline]
fn extent(first: u64, end: u64) -> Extent {
    Extent::new(first * SECTOR as u64, (end - first) * SECTOR as u64)
}
