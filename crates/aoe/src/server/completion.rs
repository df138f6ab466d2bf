//! What comes back from volumes: data and registers leave, writes become durable together, what
//! waited goes on.
//!
//! **Group commit.** Linux sends no flush, so a write is answered only once it is durable. On a
//! volume whose cache is volatile a write that is done joins its export's group; at the end of the
//! turn one flush begins for the whole group, unless one runs: then the next group gathers
//! meanwhile. The volume's gate groups the flushes of several exports and shards once more. No
//! memory and no ring slot is held for durability: a write's pages are given back when it is done.

use block::record::passed;
use block::{Buffer, Completion, Instant, Loan, Operation, Outcome, Slot, Ticket, planted};
use wire::ethernet::EtherType;

use super::flights::{FILLED, Flight, Kind, Stage};
use super::{Context, Reader, Target, mark};
use crate::export::ExportId;
use crate::head::{Reply, registers};
use crate::limits::WAIT_MAX;

/// Marks the slot in the ticket of an export's flush, of which one runs at a time; the rest is the
/// export's number.
const FLUSH: u32 = 1 << 31;

impl Target {
    /// A volume answered.
    #[inline]
    pub fn handle_completion(&mut self, completion: Completion, ctx: &mut Context<'_>) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        if ticket.slot & FLUSH != 0 {
            return self.synced(ticket, outcome, ctx);
        }
        let slot = Slot { index: ticket.slot, generation: ticket.generation };
        let Some(flight) = self.flights.get_mut(slot) else {
            panic!("command {} came back twice", slot.index);
        };
        let (id, kind) = (flight.key.export, flight.kind);
        let exported = &mut self.exports[id.0];
        match kind {
            Kind::Read if outcome.is_done() => {
                let Flight { reply, account, .. } = self.forget(slot);
                self.send_read((reply, id, account), buffer, ctx);
            }
            Kind::Write | Kind::Trim => {
                let length = u64::from(buffer.len());
                if length > 0 && !planted("memory-is-not-given-back") {
                    ctx.pool.give(exported.accounts.of(flight.account), ctx.memory, buffer);
                }
                if outcome.is_done() {
                    exported.count_write(flight.key.source, length, &mut self.counters);
                }
                let lasts = flight.durable || planted("answered-before-it-lasts");
                if outcome.is_done() && exported.export.cache_volatile && !lasts {
                    exported.active[flight.place as usize].stage = Stage::Syncing;
                    exported.flush.next.push(slot);
                    if !core::mem::replace(&mut exported.flush.listed, true) {
                        self.to_flush.push(id.0);
                    }
                } else {
                    self.finish(ctx.now, slot, outcome);
                }
            }
            Kind::Read | Kind::Plain => {
                if !buffer.is_empty() {
                    ctx.pool.give(exported.accounts.of(flight.account), ctx.memory, buffer);
                }
                self.finish(ctx.now, slot, outcome);
            }
        }
        self.came_back(id, ctx);
    }

    /// What a read asked for leaves.
    #[inline]
    fn send_read(
        &mut self,
        (Reply { to, mut head }, id, account): Reader,
        buffer: Buffer,
        ctx: &mut Context<'_>,
    ) {
        let exported = &mut self.exports[id.0];
        let length = u64::from(buffer.len());
        exported.count(to.mac.to_u64(), |traffic| {
            traffic.reads += 1;
            traffic.read_bytes += length;
        });
        self.counters.reads += 1;
        self.counters.read_bytes += length;
        let Some((facts, batch)) = self.begin_frame(to.link) else {
            let account = self.exports[id.0].accounts.of(account);
            return ctx.pool.give(account, ctx.memory, buffer);
        };
        head.done();
        let length = buffer.len();
        let number = batch.push_buffer(buffer, mark(id, account));
        batch.push_with_data(facts, &to, EtherType::AOE, head.bytes(), (number, 0, length));
    }

    /// Answers the reads whose data can be lent: before anything happens that they must not see.
    #[inline]
    pub fn take_loans(&mut self, ctx: &mut Context<'_>) {
        let mut loans = core::mem::take(&mut self.loans);
        Loan::prefetch(&loans, ctx.memory);
        for loan in loans.drain(..) {
            let (reader, buffer) = loan.lend(ctx.memory);
            self.send_read(reader, buffer, ctx);
        }
        self.loans = loans;
    }

    /// Something of an export came back: what waited for it goes on.
    #[inline]
    fn came_back(&mut self, id: ExportId, ctx: &mut Context<'_>) {
        let exported = &self.exports[id.0];
        let (waits, removed) = (!exported.waiting.is_empty(), exported.removed);
        if waits {
            self.start_waiting(id, ctx);
        }
        if removed {
            self.forget_if_drained(id);
        }
    }

    /// Answers a command with registers alone, and forgets it.
    #[inline]
    pub(super) fn finish(&mut self, now: Instant, slot: Slot, outcome: Outcome) {
        let Flight { record, key, mut reply, .. } = self.forget(slot);
        let is_done = outcome.is_done();
        if record != 0 && !self.repeats.end(now, record, is_done) {
            // It was below for so long that its record is gone: its time begins now all the same.
            self.remember_over(now, &key, is_done);
        }
        let (status, error) = registers(outcome);
        let count = is_done.then_some(0);
        self.counters.failed += u64::from(!is_done);
        passed("status", format_args!("ErrorBits {:#04x}", error.0));
        reply.head.finish(status, error, count);
        self.send(&reply);
    }

    /// Forgets a command that is answered now, or never.
    #[inline]
    fn forget(&mut self, slot: Slot) -> Flight {
        let flight = self.flights.remove(slot).expect(FILLED);
        let (active, place) = (&mut self.exports[flight.key.export.0].active, flight.place);
        active.swap_remove(place as usize);
        if let Some(moved) = active.get(place as usize) {
            self.flights.get_mut(moved.slot).expect(FILLED).place = place;
        }
        flight
    }

    /// Sends below what waited and has nothing to wait for any more, in the order in which it came.
    #[cold]
    pub(super) fn start_waiting(&mut self, id: ExportId, ctx: &mut Context<'_>) {
        let mut index = 0;
        loop {
            let exported = &mut self.exports[id.0];
            let Some(&slot) = exported.waiting.get(index) else { return };
            let flight = |slot: Slot| self.flights.get(slot).expect(FILLED);
            let active = |slot: Slot| &exported.active[flight(slot).place as usize];
            let runs = exported.active.iter().filter(|other| other.stage == Stage::Running);
            let earlier = exported.waiting.iter().take(index).map(|slot| active(*slot));
            if runs.chain(earlier).any(|other| active(slot).conflicts(other)) {
                index += 1;
                continue;
            }
            let since = flight(slot).since;
            exported.waiting.remove(index);
            if ctx.now.since(since) > WAIT_MAX {
                self.drops.stale += 1;
                self.drop_waiting(slot, ctx);
            } else {
                self.relaunch(slot, ctx);
            }
        }
    }

    /// Forgets a command that waits and was taken out of the line, without an answer.
    pub(super) fn drop_waiting(&mut self, slot: Slot, ctx: &mut Context<'_>) {
        let Flight { held, key, account, .. } = self.forget(slot);
        let operation = *held.expect("who waits holds what it asks");
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = operation {
            let account = self.exports[key.export.0].accounts.of(account);
            ctx.pool.give(account, ctx.memory, buffer);
        }
    }

    /// Begins the flushes that exports want.
    #[cold]
    pub(super) fn begin_flushes(&mut self, ctx: &mut Context<'_>) {
        let mut to_flush = core::mem::take(&mut self.to_flush);
        for number in to_flush.drain(..) {
            let Some(exported) = self.exports.get_mut(number) else { continue };
            let (volume, group) = (exported.export.volume, &mut exported.flush);
            group.listed = false;
            if (group.running && !planted("two-flushes-run")) || group.next.is_empty() {
                continue;
            }
            group.running = true;
            group.number = group.number.wrapping_add(1);
            core::mem::swap(&mut group.covered, &mut group.next);
            self.counters.flushes += 1;
            let slot = Slot { index: FLUSH | number, generation: group.number };
            self.submit(slot, volume, Operation::Flush, ctx);
        }
        self.to_flush = to_flush;
    }

    /// A flush is over: the writes that it covers are answered, and the next group begins.
    fn synced(&mut self, ticket: Ticket, outcome: Outcome, ctx: &mut Context<'_>) {
        let id = ExportId(ticket.slot & !FLUSH);
        let group = &mut self.exports[id.0].flush;
        let is_it = group.running && group.number == ticket.generation;
        assert!(is_it, "a flush of export {} came back twice", id.0);
        group.running = false;
        if !group.next.is_empty() && !group.listed {
            group.listed = true;
            self.to_flush.push(id.0);
        }
        let mut covered = core::mem::take(&mut group.covered);
        for slot in covered.drain(..) {
            self.finish(ctx.now, slot, outcome);
        }
        self.exports[id.0].flush.covered = covered;
        self.came_back(id, ctx);
    }
}
