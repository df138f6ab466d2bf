//! What comes back from volumes: data and registers leave, writes become durable together, what waited goes on.
//!
//! **Group commit.** Linux sends no flush, so a write is answered only once it is durable. On a volume whose cache is volatile a write that is done joins its
//! export's group; at the end of the turn one flush begins for the whole group, unless one runs: then the next group gathers meanwhile. The volume's gate groups the
//! flushes of several exports and shards once more. No memory and no ring slot is held for durability: a write's pages are given back when it is
//! done.

use core::time::Duration;

use block::{Buffer, Completion, Instant, Operation, Outcome};
use contract::LinkId;

use super::flights::{Flight, Kind, Stage};
use super::{Context, Loan, Target, mark};
use crate::export::ExportId;
use crate::head::{Head, registers};

/// A command that waited for so long is not carried out: its initiator has asked again, or given up.
const STALE: Duration = Duration::from_secs(5);

impl Target {
    /// A volume answered.
    #[inline]
    pub fn handle_completion(&mut self, completion: Completion, ctx: &mut Context<'_>) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        let slot = ticket.slot;
        assert_eq!(
            self.flights.generation(slot),
            ticket.generation,
            "command {slot} came back twice"
        );
        let flight = self.flights.get_mut(slot);
        let (id, kind) = (flight.export, flight.kind);
        let exported = self.exports[id.0 as usize].as_deref_mut().expect("it has commands below");
        match kind {
            Kind::Read if outcome.is_done() => {
                let (link, head, account) = (flight.link, flight.head, flight.account);
                self.send_read(link, head, id, account, buffer, ctx);
                self.land(slot);
            }
            Kind::Write | Kind::Trim => {
                let length = u64::from(buffer.len());
                if length > 0 {
                    ctx.pool.give(exported.accounts.of(flight.account), ctx.memory, buffer);
                }
                if outcome.is_done() {
                    exported.count_write(length, &mut self.counters);
                }
                if outcome.is_done() && exported.export.cache_volatile && !flight.durable {
                    exported.active[flight.place as usize].stage = Stage::Syncing;
                    exported.flush.next.push(slot);
                    if !core::mem::replace(&mut exported.flush.listed, true) {
                        self.to_flush.push(id.0);
                    }
                } else {
                    self.finish(ctx.now, slot, outcome);
                }
            }
            Kind::Sync => return self.synced(slot, id, outcome, ctx),
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
        link: LinkId,
        mut head: Head,
        id: ExportId,
        account: u8,
        buffer: Buffer,
        ctx: &mut Context<'_>,
    ) {
        let exported = self.exports[id.0 as usize].as_deref_mut().expect("it was read");
        exported.traffic.reads += 1;
        exported.traffic.read_bytes += u64::from(buffer.len());
        self.counters.reads += 1;
        self.counters.read_bytes += u64::from(buffer.len());
        if self.outbox.is_full() {
            self.drops.unsent += 1;
            ctx.pool.give(exported.accounts.of(account), ctx.memory, buffer);
        } else {
            self.counters.answers += 1;
            self.outbox.push_buffer(link, head.done(), buffer, mark(id, account));
        }
    }

    /// Answers the reads whose data can be lent.
    #[inline]
    pub(super) fn take_loans(&mut self, ctx: &mut Context<'_>) {
        let mut loans = core::mem::take(&mut self.loans);
        for loan in &loans {
            ctx.memory.foresee_loan(loan.disk, loan.extent);
        }
        for loan in loans.drain(..) {
            let Loan { head, link, export, account, disk, extent, mut buffer } = loan;
            ctx.memory.lend(disk, extent, &mut buffer);
            self.send_read(link, head, export, account, buffer, ctx);
        }
        self.loans = loans;
    }

    /// Something of an export came back: what waited for it goes on.
    #[inline]
    fn came_back(&mut self, id: ExportId, ctx: &mut Context<'_>) {
        let exported = self.exported(id);
        let (waits, drains, removed) =
            (!exported.waiting.is_empty(), exported.draining, exported.removed);
        if waits {
            self.start_waiting(id, ctx);
        }
        if drains {
            self.check_drains();
        }
        if removed {
            self.forget_if_drained(id);
        }
    }

    /// Answers a command with registers alone, and forgets it.
    #[inline]
    pub(super) fn finish(&mut self, now: Instant, slot: u32, outcome: Outcome) {
        let flight = self.flights.get_mut(slot);
        if flight.record != 0 {
            self.repeats.end(now, flight.record, outcome.is_done());
        }
        let (status, error) = registers(outcome);
        let count = outcome.is_done().then_some(0);
        self.counters.failed += u64::from(!outcome.is_done());
        flight.head.finish(status, error, count);
        let (link, head) = (flight.link, flight.head);
        self.send(link, head.bytes());
        self.land(slot);
    }

    /// Forgets a command that was answered.
    #[inline]
    fn land(&mut self, slot: u32) {
        let Flight { export, place, .. } = self.flights.remove(slot);
        let exported = self.exports[export.0 as usize].as_deref_mut().expect("it has commands");
        exported.active.swap_remove(place as usize);
        if let Some(moved) = exported.active.get(place as usize) {
            self.flights.get_mut(moved.slot).place = place;
        }
    }

    /// Sends below what waited and has nothing to wait for any more, in the order in which it came.
    #[cold]
    pub(super) fn start_waiting(&mut self, id: ExportId, ctx: &mut Context<'_>) {
        let mut index = 0;
        loop {
            let exported = self.exports[id.0 as usize].as_deref_mut().expect("it was found");
            let Some(&slot) = exported.waiting.get(index) else { return };
            let place = self.flights.get_mut(slot).place as usize;
            let this = exported.active[place];
            let runs = exported.active.iter().filter(|other| other.stage == Stage::Running);
            let blocked_below = runs.into_iter().any(|other| this.conflicts(other));
            let blocked = blocked_below
                || exported.waiting.iter().take(index).any(|earlier| {
                    let place = self.flights.get_mut(*earlier).place as usize;
                    this.conflicts(&exported.active[place])
                });
            if blocked {
                index += 1;
                continue;
            }
            exported.waiting.remove(index);
            if ctx.now.since(self.flights.get_mut(slot).since) > STALE {
                self.drops.stale += 1;
                self.drop_waiting(slot, ctx);
            } else {
                self.relaunch(slot, ctx);
            }
        }
    }

    /// Forgets a command that waits and was taken out of the line, without an answer.
    pub(super) fn drop_waiting(&mut self, slot: u32, ctx: &mut Context<'_>) {
        let flight = self.flights.get_mut(slot);
        let operation = flight.held.take().expect("who waits holds what it asks");
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = *operation {
            let exported = self.exports[flight.export.0 as usize].as_deref_mut();
            let exported = exported.expect("it has commands");
            ctx.pool.give(exported.accounts.of(flight.account), ctx.memory, buffer);
        }
        self.land(slot);
    }

    /// Begins the flushes that exports want.
    #[cold]
    pub(super) fn begin_flushes(&mut self, ctx: &mut Context<'_>) {
        let mut to_flush = core::mem::take(&mut self.to_flush);
        for number in to_flush.drain(..) {
            let Some(exported) = self.exports[number as usize].as_deref_mut() else { continue };
            exported.flush.listed = false;
            if exported.flush.running || exported.flush.next.is_empty() {
                continue;
            }
            exported.flush.running = true;
            let group = &mut exported.flush;
            core::mem::swap(&mut group.covered, &mut group.next);
            let volume = exported.export.volume;
            self.counters.flushes += 1;
            let slot = self.flights.insert(Flight {
                generation: 0,
                kind: Kind::Sync,
                durable: true,
                account: 0,
                link: LinkId::default(),
                export: ExportId(number),
                place: 0,
                record: 0,
                crc: 0,
                shape: 0,
                since: ctx.now,
                held: None,
                head: Head::NONE,
            });
            self.submit(slot, volume, Operation::Flush, ctx);
        }
        self.to_flush = to_flush;
    }

    /// A flush is over: the writes that it covers are answered, and the next group begins.
    fn synced(&mut self, slot: u32, id: ExportId, outcome: Outcome, ctx: &mut Context<'_>) {
        self.flights.remove(slot);
        let exported = self.exported_mut(id);
        exported.flush.running = false;
        if !exported.flush.next.is_empty() && !exported.flush.listed {
            exported.flush.listed = true;
            self.to_flush.push(id.0);
        }
        let mut covered = core::mem::take(&mut self.exported_mut(id).flush.covered);
        for slot in covered.drain(..) {
            self.finish(ctx.now, slot, outcome);
        }
        self.exported_mut(id).flush.covered = covered;
        self.came_back(id, ctx);
    }
}
