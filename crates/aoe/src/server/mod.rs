//! The serving end: frames to shelf.slot in, requests to volumes out; completions in, frames out.
//!
//! One machine a shard, for all its links and exports. In: frames (lent for the call), completions,
//! batches that were sent, what links are, what is exported, what was agreed on. Out: requests
//! (pushed to the context at once), and by polling batches of frames, asks for changes, notices.
//! Units: `lba` and `sectors` count 512 bytes; moments of the shard clock. Pure: no I/O, no clock.
//! Errors: what may not be answered (too short, of a stranger, for others, beyond the buffers) is
//! counted and dropped; what AoE refuses has the E flag; what the device cannot do is ATA status,
//! never the E flag, which initiators take as a reason to ask again for minutes.
//!
//! The way of a read: [`receive`] finds export and command; [`ata`] judges it, takes memory, makes
//! the head of its answer and a request to the volume; [`completion`] puts head and data into the
//! batch that `settle` hands out. Memory that can be lent (a RAM disk) is lent at once, and nothing
//! goes below. A write's payload is copied once, out of the lent frame.
//!
//! ```text
//!   frame --> overlaps one in flight of its source? --yes--> Waiting --> that one is back --+
//!                |no                                                                        |
//!                +--> Running (below) <-----------------------------------------------------+
//!                        |  done, and the volume's cache is volatile: Syncing --> flush is done --+
//!                        +--> answered <----------------------------------------------------------+
//! ```
//!
//! Per frame there is no allocation and no search but of what is in flight on the export and, of
//! writes, one cache line of [`repeats`]. Spec: AoEr11. Not here: retransmission (the initiator's
//! duty), who decides about changes (`reservation::replica`), what a reservation allows
//! (`reservation`).

mod ata;
mod change;
mod completion;
mod counters;
mod directory;
mod flights;
mod link;
mod query;
mod receive;
mod repeats;

#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use block::{
    Account, Class, IdMap, Instant, Loan, MachineId, Operation, Request, ShardId, Slot, Table,
    Ticket, VolumeId, planted,
};
use contract::{FrameBatch, HostNews, LinkId, TargetContext};
use reservation::{NamedHosts, Registrant};
use wire::aoe::Address;
use wire::ethernet::MacAddress;

use crate::control::Control;
use crate::export::{Export, ExportId, Hosts};
use crate::head::Reply;
use crate::limits::{BUFFERS_MAX, BUFFERS_MIN, EXPORTS_MAX};
use crate::outbox::Outbox;

pub use change::Ask;
use change::Pending;
pub use counters::{Drops, TargetCounters, Traffic};
use flights::{Active, Flight};
use link::Link;
use query::Sweeps;
use repeats::Repeats;

/// What the target works with during a call.
pub type Context<'a> = TargetContext<'a, ()>;

/// What people should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another station announces an address that is exported here: initiators that use both will
    /// corrupt data.
    AddressTwice {
        /// Where it was heard.
        link: LinkId,
        /// The address.
        address: Address,
        /// The other station.
        by: MacAddress,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Notice::AddressTwice { link, address, by } = self;
        write!(
            f,
            "{address} is served here and announced by {by} on {link}, too: initiators that use both corrupt data; \
             give one of them another address"
        )
    }
}

/// An export as its shard knows it.
#[derive(Debug)]
struct Exported {
    export: Export,
    /// The allowed stations as sorted numbers, and what each did; `None` allows all.
    hosts: Option<HostTable>,
    control: Control,
    /// The mask as sorted numbers.
    mask: Box<[u64]>,
    /// What is in flight, in no order.
    active: Vec<Active>,
    /// What waits for what is in flight, the oldest first.
    waiting: VecDeque<Slot>,
    flush: FlushGroup,
    accounts: Accounts,
    /// The last change of any sector, and the last one of unknown extent, as `repeats` numbers
    /// them.
    last: u32,
    wide: u32,
    removed: bool,
    heard_twice: bool,
    /// Stations that were refused, of which people were told then; the first is the oldest.
    refused: VecDeque<(MacAddress, Instant)>,
    traffic: Traffic,
}

/// An export's accounts with the pool. One alone may hold but a share of what is free: in a small
/// pool less than a window of large frames. Several in turn may hold that, and what they hold
/// together is bounded by the buffer count. All of it is immediate data, also that of reads: it
/// waits for disks, and then for a link a second at most. So frames, which cannot wait in line,
/// find the reserve when transfers hold all else.
#[derive(Debug)]
struct Accounts {
    accounts: [Account; ACCOUNTS],
    next: u8,
}

const ACCOUNTS: usize = 8;

impl Default for Accounts {
    fn default() -> Accounts {
        Accounts { accounts: [(); ACCOUNTS].map(|()| Account::new(Class::Immediate)), next: 0 }
    }
}

impl Accounts {
    /// The account whose turn it is.
    #[inline]
    fn next(&mut self) -> u8 {
        self.next = (self.next + 1) % ACCOUNTS as u8;
        self.next
    }

    #[inline]
    fn of(&mut self, which: u8) -> &mut Account {
        &mut self.accounts[usize::from(which)]
    }

    fn pages(&self) -> u32 {
        self.accounts.iter().map(Account::pages).sum()
    }
}

/// The mark of a buffer in a batch: whose it is.
#[inline]
fn mark(id: ExportId, which: u8) -> u32 {
    id.0 << 3 | u32::from(which)
}

#[inline]
fn unmark(mark: u32) -> (ExportId, u8) {
    (ExportId(mark >> 3), mark as u8 % ACCOUNTS as u8)
}

/// Writes that are done and not durable: one flush runs, one group waits.
#[derive(Debug, Default)]
struct FlushGroup {
    running: bool,
    /// Of the flush that runs, or the last one.
    number: u32,
    /// The flights that the running flush covers, and those that the next one will.
    covered: Vec<Slot>,
    next: Vec<Slot>,
    /// Whether the export is on the list of those that want a flush.
    listed: bool,
}

/// What answers a read: the reply, whose read it was, and the account that its buffer is of.
type Reader = (Reply, ExportId, u8);

/// The AoE target of a shard.
///
/// Calls in any order; [`settle`](Self::settle) ends a turn, then
/// [`poll_batch`](Self::poll_batch) and its sisters until `None`.
#[derive(Debug)]
pub struct Target {
    machine: MachineId,
    shard: ShardId,
    /// Shards with the same exports.
    shards: u16,
    links: IdMap<Link>,
    exports: IdMap<Box<Exported>>,
    flights: Table<Flight>,
    loans: Vec<Loan<Reader>>,
    repeats: Repeats,
    outbox: Outbox,
    sweeps: Sweeps,
    /// Exports whose writes want a flush.
    to_flush: Vec<u32>,
    pending: Table<Pending>,
    asks: VecDeque<Ask>,
    notices: VecDeque<Notice>,
    host_news: VecDeque<HostNews>,
    counters: TargetCounters,
    drops: Drops,
    named: Arc<NamedHosts>,
}

impl Target {
    /// A target without links and exports. Its tickets carry `machine`.
    pub fn new(machine: MachineId, shard: ShardId) -> Target {
        Target {
            machine,
            shard,
            shards: 1,
            links: IdMap::default(),
            exports: IdMap::default(),
            flights: Table::new(),
            loans: Vec::new(),
            repeats: Repeats::default(),
            outbox: Outbox::default(),
            sweeps: Sweeps::default(),
            to_flush: Vec::new(),
            pending: Table::new(),
            asks: VecDeque::new(),
            notices: VecDeque::new(),
            host_news: VecDeque::new(),
            counters: TargetCounters::default(),
            drops: Drops::default(),
            named: Arc::default(),
        }
    }

    /// From now on these stations are hosts that have a name.
    pub fn set_named_hosts(&mut self, named: Arc<NamedHosts>) {
        self.named = named;
    }

    /// The same exports are on so many shards: each announces its share of them.
    #[must_use]
    pub fn among(self, shards: u16) -> Target {
        Target { shards: shards.max(1), ..self }
    }

    /// A volume is exported. `control` is what was agreed on and stored. Its address is announced
    /// on its links that are up at the next [`announce_exports`](Self::announce_exports). Fails,
    /// with the link, where the address is taken; then nothing is changed.
    pub fn add_export(
        &mut self,
        id: ExportId,
        export: Export,
        control: Control,
    ) -> Result<(), LinkId> {
        assert!(!export.address.is_wildcard(), "{} cannot be exported", export.address);
        assert!(id.0 < EXPORTS_MAX, "export number {} is not small", id.0);
        let is_taken = |link: &&LinkId| {
            self.links.get(link.0).is_some_and(|link| link.directory.find(export.address).is_some())
        };
        if let Some(taken) = export.links.iter().find(is_taken) {
            return Err(*taken);
        }
        let mut exported = Exported {
            hosts: HostTable::of(&export.hosts),
            mask: Box::default(),
            control: Control::default(),
            active: Vec::new(),
            waiting: VecDeque::new(),
            flush: FlushGroup::default(),
            accounts: Accounts::default(),
            last: 0,
            wide: 0,
            removed: false,
            heard_twice: false,
            refused: VecDeque::new(),
            traffic: Traffic::default(),
            export,
        };
        exported.export.buffers = exported.export.buffers.clamp(BUFFERS_MIN, BUFFERS_MAX);
        exported.set_control(control);
        for link in exported.export.links.clone() {
            self.link_slot(link).directory.insert(exported.export.address, id);
            self.sweeps.hold(id, link);
        }
        let before = self.exports.insert(id.0, Box::new(exported));
        assert!(before.is_none(), "export {} was added twice", id.0);
        Ok(())
    }

    /// An export has other settings: size, hosts, buffers and so on. Its address, links and volume
    /// stay. It is announced again, as a new one is, if initiators should know.
    pub fn renew_export(&mut self, id: ExportId, export: Export) {
        let Some(exported) = self.exports.get_mut(id.0) else { return };
        let old = &exported.export;
        assert!(
            (old.address, &old.links, old.volume) == (export.address, &export.links, export.volume),
            "export {} was moved: remove it and add another",
            id.0
        );
        let is_news = old.sectors != export.sectors || old.buffers != export.buffers;
        exported.set_hosts(&export.hosts);
        exported.export = export;
        exported.export.buffers = exported.export.buffers.clamp(BUFFERS_MIN, BUFFERS_MAX);
        if is_news {
            exported.export.links.iter().for_each(|link| self.sweeps.hold(id, *link));
        }
    }

    /// All shards show their exports as they are now: what is new of them is announced. Not before,
    /// since whoever hears it asks at once, and any shard may be the one that answers.
    pub fn announce_exports(&mut self) {
        self.sweeps.announce_held();
    }

    /// No frame reaches the export any more; what waits is dropped, what is below is awaited.
    /// [`is_gone`](Self::is_gone) tells when nothing is left.
    pub fn remove_export(&mut self, id: ExportId, ctx: &mut Context<'_>) {
        self.take_loans(ctx);
        let Some(exported) = self.exports.get_mut(id.0) else { return };
        exported.removed = true;
        let waiting = core::mem::take(&mut exported.waiting);
        let (address, links) = (exported.export.address, exported.export.links.clone());
        for link in links {
            self.link_slot(link).directory.remove(address, id);
        }
        for slot in waiting {
            self.drop_waiting(slot, ctx);
        }
        self.forget_if_drained(id);
    }

    /// Whether nothing of an export is left here.
    pub fn is_gone(&self, id: ExportId) -> bool {
        self.exports.get(id.0).is_none()
    }

    fn forget_if_drained(&mut self, id: ExportId) {
        let exported = &self.exports[id.0];
        if exported.removed
            && exported.active.is_empty()
            && !exported.flush.running
            && exported.accounts.pages() == 0
        {
            self.exports.remove(id.0);
        }
    }

    /// What is exported, by number.
    pub fn export(&self, id: ExportId) -> Option<&Export> {
        Some(&self.exports.get(id.0)?.export)
    }

    /// What went through an export.
    pub fn traffic(&self, id: ExportId) -> Option<Traffic> {
        Some(self.exports.get(id.0)?.traffic)
    }

    /// What each station did that the export's list of hosts names; an export for all has none.
    pub fn host_traffic(
        &self,
        id: ExportId,
    ) -> impl Iterator<Item = (MacAddress, Traffic)> + use<'_> {
        let hosts = self.exports.get(id.0).and_then(|exported| exported.hosts.as_ref());
        let each = hosts.into_iter().flat_map(|hosts| hosts.stations.iter().zip(&hosts.traffic));
        each.map(|(station, traffic)| (MacAddress::from_u64(*station), *traffic))
    }

    /// What was done since the start.
    pub fn counters(&self) -> TargetCounters {
        TargetCounters {
            repeats_lapsed: self.repeats.lapsed(),
            repeat_bytes: self.repeats.bytes() as u64,
            ..self.counters
        }
    }

    /// What was dropped since the start, and why.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Commands in flight, of all exports.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Frames to be sent; the batch comes back by [`handle_sent`](Self::handle_sent).
    #[inline]
    pub fn poll_batch(&mut self) -> Option<FrameBatch> {
        self.outbox.poll()
    }

    /// A change that an initiator asks for, to be agreed on.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// What people should know next.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Who was refused.
    pub fn poll_host_news(&mut self) -> Option<HostNews> {
        self.host_news.pop_front()
    }

    /// Whose a command below is; `None` for a flush of the target itself.
    pub fn registrant(&self, ticket: Ticket) -> Option<Registrant> {
        let slot = Slot { index: ticket.slot, generation: ticket.generation };
        let Flight { key, place, .. } = self.flights.get(slot)?;
        let active = &self.exports[key.export.0].active[*place as usize];
        Some(self.named.station(active.mac()))
    }

    /// The end of a turn: flushes of what was written begin, announcements go on, frames leave.
    pub fn settle(&mut self, ctx: &mut Context<'_>) {
        if !self.loans.is_empty() {
            self.take_loans(ctx);
        }
        if !self.to_flush.is_empty() {
            self.begin_flushes(ctx);
        }
        if self.sweeps.poll_timeout().is_some_and(|at| at <= ctx.now) {
            self.sweep(ctx.now);
        }
        self.outbox.hand_out();
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, if at all.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        Instant::earliest(self.sweeps.poll_timeout(), self.repeats.poll_timeout())
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come. What is due is done here or at
    /// the next settle.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.repeats.handle_timeout(now);
    }

    /// Frames have left, or were given up; their buffers come back.
    pub fn handle_sent(&mut self, mut batch: FrameBatch, ctx: &mut Context<'_>) {
        for (buffer, mark) in batch.buffers.drain(..) {
            let (id, which) = unmark(mark);
            let exported = &mut self.exports[id.0];
            ctx.pool.give(exported.accounts.of(which), ctx.memory, buffer);
            if exported.removed {
                self.forget_if_drained(id);
            }
        }
        self.outbox.take_back(batch);
    }

    /// Sends a request below in the name of a flight.
    #[inline]
    fn submit(&self, slot: Slot, volume: VolumeId, operation: Operation, ctx: &mut Context<'_>) {
        let Slot { index: slot, generation } = slot;
        let ticket = Ticket { machine: self.machine, generation, slot, shard: self.shard };
        ctx.volumes.submit(volume, Request { ticket, operation });
    }
}

impl Exported {
    /// Whether frames of a station are heard: it must be a host, and in the mask if there is one.
    /// The mask never lets in who is no host.
    #[inline]
    fn hears(&self, source: MacAddress) -> bool {
        let is_masked =
            || !self.mask.is_empty() && self.mask.binary_search(&source.to_u64()).is_err();
        let is_out = is_masked() && !planted("mask-is-not-looked-at");
        self.is_host(source) && !is_out
    }

    #[inline]
    fn is_host(&self, source: MacAddress) -> bool {
        let is_among = |hosts: &HostTable| hosts.stations.binary_search(&source.to_u64()).is_ok();
        self.hosts.as_ref().is_none_or(is_among)
    }

    /// A station was given what it read, or what it wrote was carried out.
    #[inline]
    fn count(&mut self, source: u64, count: impl Fn(&mut Traffic)) {
        count(&mut self.traffic);
        if let Some(hosts) = &mut self.hosts
            && let Ok(index) = hosts.stations.binary_search(&source)
        {
            count(&mut hosts.traffic[index]);
        }
    }

    /// Other stations are allowed; what those did that stay is kept.
    fn set_hosts(&mut self, hosts: &Hosts) {
        let before = core::mem::replace(&mut self.hosts, HostTable::of(hosts));
        let (Some(before), Some(now)) = (before, &mut self.hosts) else { return };
        for (station, traffic) in now.stations.iter().zip(&mut now.traffic) {
            if let Ok(index) = before.stations.binary_search(station) {
                *traffic = before.traffic[index];
            }
        }
    }

    fn set_control(&mut self, control: Control) {
        self.mask = sorted(control.mask());
        self.control = control;
    }
}

fn sorted(stations: &[MacAddress]) -> Box<[u64]> {
    let mut sorted: Box<[u64]> = stations.iter().map(|mac| mac.to_u64()).collect();
    sorted.sort_unstable();
    sorted
}

/// The stations that a list names, in order, and what each did.
#[derive(Debug)]
struct HostTable {
    stations: Box<[u64]>,
    traffic: Box<[Traffic]>,
}

impl HostTable {
    fn of(hosts: &Hosts) -> Option<HostTable> {
        let Hosts::List(list) = hosts else { return None };
        let stations = sorted(list);
        Some(HostTable { traffic: vec![Traffic::default(); stations.len()].into(), stations })
    }
}

#[cfg(test)]
mod size {
    use super::*;

    #[test]
    fn the_mark_of_a_buffer_says_whose_it_is() {
        for id in [0, 1, 7, 8, 4095] {
            for which in 0..ACCOUNTS as u8 {
                assert_eq!(unmark(mark(ExportId(id), which)), (ExportId(id), which));
            }
        }
    }

    #[test]
    fn thousands_of_exports_are_a_few_mebibytes() {
        // Beside it a quiet export has its links and config, and four bytes in the directory of
        // each link.
        assert!(size_of::<Exported>() <= 512, "{}", size_of::<Exported>());
    }
}
