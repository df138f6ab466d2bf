//! The serving end of an NVMe/TCP connection: PDUs in, requests to volumes out; completions in,
//! PDUs out.
//!
//! In: received bytes, completions, replies of the [`Controllers`]. Out: requests (pushed to the
//! context at once), and by polling send batches, a resume, a close. Units: bytes, moments of the
//! shard clock. Pure: no I/O, no clock. Errors: what the peer may not do ends the connection with a
//! C2HTermReq ([`Violation`](super::pdu_stream::Violation)); what a command may not do is a status;
//! what the storage could not do is a status too (`status.rs`).
//!
//! The way of a 4 KiB read: `receive` cuts the PDU, `capsule` gives the command a slot and memory
//! and a request to the volume; `completion` puts header, data and response capsule into the batch
//! that `settle` sends. A write that came in its capsule lands where the volume is memory that
//! takes it at once, else it goes the same way. One that does not fit its capsule gets its whole
//! buffer and then one R2T for all of it: the grant. Who finds no memory waits: a command without
//! data in the line of `memory`, a capsule with data in the stream, which stops.
//!
//! ```text
//!   Handshake -- ICReq, ICResp --> Connecting -- Connect --> Admin or Io
//!       |                              |                        |
//!       +------------------------------+------------------------+
//!       | violation, close                         loss, silence |
//!       v                                                        v
//!     Ending -- the last batch was sent, or cannot be -----> Closing -- closed --> Closed
//! ```
//! From Ending on no request is submitted; once Closed, and with none in flight, it is gone.
//!
//! Spec: NVMe/TCP transport, "Connection establishment" to "Error handling"; NVMe base over
//! fabrics, "Queues". Not here: what admin and Fabrics commands mean (`controllers`), the volume,
//! TLS.

mod capsule;
mod closing;
mod completion;
mod copying;
mod fused;
mod memory;
mod outbox;
mod receive;
mod reservations;
mod slots;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use block::record::passed;
use block::{
    Account, Buffer, Class, Instant, Landing, Loan, Operation, Request, VolumeId, limits, planted,
};
use contract::{Endpoint, SessionCounters, SessionEffect, SessionIdentity, TargetContext, Traffic};
use reservation::{Access, InForce, PathGroup, Registrant};
use wire::nvme::{Command, Completion as Entry, Status};
use wire::nvme_tcp::Digests;

use crate::controllers::health::{Failures, Origin};
use crate::controllers::{ConnectionEvent, Controllers, MachineKey, QueueView};
use crate::limits::HANDSHAKE;
pub use closing::{Reason, TimeLimit};
use outbox::Outbox;
use receive::Stream;
use slots::Slots;

/// What the connection works with during a call.
pub type Context<'a> = TargetContext<'a, Controllers>;

/// What can be chosen about connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// MAXH2CDATA: the most data of one H2CData PDU; at least 4096, a multiple of 4.
    pub max_h2c_data: u32,
}

impl Default for Settings {
    /// A whole transfer in one PDU.
    fn default() -> Self {
        Settings { max_h2c_data: limits::TRANSFER_MAX }
    }
}

/// How far the connection is; see the diagram above.
#[derive(Debug)]
enum State {
    /// Waits for ICReq.
    Handshake { since: Instant },
    /// Waits for Connect; `since` it was accepted.
    Connecting { since: Instant },
    /// The admin queue of a controller.
    Admin(Queue),
    /// An I/O queue.
    Io { queue: Queue, fused: Fused },
    /// Takes nothing more; the last words of a queue of so many entries are on their way, each
    /// batch for so long without progress.
    Ending { reason: Reason, entries: u16, send_limit: Duration },
    /// The driver closes. Until it was told so: whether what was sent before is to leave first.
    Closing { reason: Reason, after_send: Option<bool> },
    /// The driver closed.
    Closed(Reason),
}

impl State {
    fn of(view: QueueView) -> State {
        let queue = Queue { view, sq_head: 0 };
        if view.queue_id == 0 {
            State::Admin(queue)
        } else {
            State::Io { queue, fused: Fused::None }
        }
    }

    #[inline]
    fn queue(&self) -> Option<&Queue> {
        match self {
            State::Admin(queue) | State::Io { queue, .. } => Some(queue),
            _ => None,
        }
    }
}

/// The queue that a connection is.
#[derive(Clone, Copy, Debug)]
struct Queue {
    view: QueueView,
    /// SQHD: where the head of the submission queue is.
    sq_head: u16,
}

/// What there is while commands are taken, and ends with that.
#[derive(Debug, Default)]
struct Intake {
    stream: Stream,
    /// When the PDU began that is not whole.
    begun: Option<Instant>,
    /// When the stream, which we had stopped, went on last: before that its host was not late with
    /// anything in it.
    resumed: Instant,
    /// Reads whose pages can be lent, by command identifier. They have no slot: they are answered
    /// before anything else is heard of the connection.
    loans: Vec<Loan<u16>>,
    /// Writes that found memory which takes them at once, by command identifier; their bytes lie in
    /// what was received. They have no slot: they have landed and are answered before anything but
    /// plain reads and writes is heard of the connection.
    landings: Vec<Landing>,
    /// Where in what was received the PDU at the front of the stream begins, and the data of its
    /// capsule.
    front: usize,
    data_from: usize,
    /// Commands whose data were asked for and are not whole.
    asked: u32,
    /// Those of them whose data come with nothing but headers while they are all that is awaited.
    asked_large: u32,
    /// Commands in line for memory, the oldest first, and places whose commands have left.
    waiting: VecDeque<u16>,
    /// Memory taken for the capsule at the front of the stream.
    reserved: Vec<Buffer>,
    /// Commands counted when it was last seen whether the connection is idle; `None` while it holds
    /// no tables.
    idle_mark: Option<u64>,
}

/// Where a fused pair stands, as the next command sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fused {
    /// The last command was not the first of a pair.
    None,
    /// It was, and is in this slot.
    Pending(u16),
    /// It was, and was refused: the second fails with it.
    Refused,
}

/// One NVMe/TCP connection of a host.
///
/// Calls in any order; [`settle`](Self::settle) ends a turn, then
/// [`poll_effect`](Self::poll_effect) until `None`. After [`SessionEffect::Close`] only
/// `handle_sent`, `handle_completion` and `handle_closed` may come; once [`is_gone`](Self::is_gone)
/// says so, no memory and no request of it is left anywhere.
#[derive(Debug)]
pub struct Connection {
    identity: SessionIdentity,
    endpoint: Endpoint,
    settings: Settings,
    state: State,
    digests: Digests,
    intake: Intake,
    /// The host as reservations know it, once it is connected: requests of it outlive the queue.
    registrant: Option<Registrant>,
    /// The group of the listener by which the host came, once it is connected.
    group: PathGroup,
    slots: Slots,
    /// Requests that have not come back.
    in_flight: u32,
    /// Memory of transfers: it may hang on the peer.
    transfers: Account,
    /// Memory of data that came in capsules: freed by the volumes alone, so that a stopped stream
    /// always goes on.
    capsules: Account,
    /// Memory that stands for the ranges of a discard in flight, by its slot: they lie elsewhere.
    ranges: BTreeMap<u16, Buffer>,
    outbox: Outbox,
    /// When to look at the time limits, at the latest.
    wake: Option<Instant>,
    counters: SessionCounters,
    /// What was submitted since the shard was told.
    traffic: Traffic,
    /// Commands that failed since the controller was told.
    failures: Option<Box<Failures>>,
}

impl Connection {
    /// A connection that was just accepted and waits for ICReq.
    pub fn new(
        now: Instant,
        identity: SessionIdentity,
        endpoint: Endpoint,
        settings: Settings,
    ) -> Connection {
        assert!(
            settings.max_h2c_data >= 4096 && settings.max_h2c_data.is_multiple_of(4),
            "MAXH2CDATA {} is below 4096 or no multiple of 4",
            settings.max_h2c_data
        );
        Connection {
            identity,
            endpoint,
            settings,
            state: State::Handshake { since: now },
            digests: Digests::NONE,
            intake: Intake::default(),
            registrant: None,
            group: PathGroup::DEFAULT,
            slots: Slots::default(),
            in_flight: 0,
            transfers: Account::default(),
            capsules: Account::new(Class::Immediate),
            ranges: BTreeMap::new(),
            outbox: Outbox::default(),
            // In whole seconds, so that connections that came together wake the shard once.
            wake: Some((now + HANDSHAKE).round_up(Duration::from_secs(1))),
            counters: SessionCounters::default(),
            traffic: Traffic::default(),
            failures: None,
        }
    }

    /// The controllers' name of the connection.
    fn key(&self) -> MachineKey {
        MachineKey { machine: self.identity.machine, generation: self.identity.generation }
    }

    /// Commands that it may have outstanding: the entries of its queue, before Connect one.
    pub fn entries(&self) -> u16 {
        match &self.state {
            State::Handshake { .. } | State::Connecting { .. } => 1,
            State::Admin(queue) | State::Io { queue, .. } => queue.view.depth,
            State::Ending { entries, .. } => *entries,
            State::Closing { .. } | State::Closed(_) => 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_io_queue(&self) -> bool {
        matches!(self.state, State::Io { .. })
    }

    /// The host as reservations know it, once it is connected.
    pub fn registrant(&self) -> Option<Registrant> {
        self.registrant
    }

    /// Who is whom has changed.
    pub fn handle_named_hosts(&mut self, ctx: &mut Context<'_>) {
        if let Some(queue) = self.state.queue() {
            self.registrant = ctx.shared.registrant(queue.view.handle);
        }
    }

    /// What it did so far.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }

    /// Commands outstanding.
    pub fn outstanding(&self) -> u32 {
        self.slots.len()
    }

    /// Commands that the host cannot have seen answered.
    #[inline]
    fn unanswered(&self) -> u32 {
        let without_slot = self.intake.loans.len() + self.intake.landings.len();
        self.slots.len() + without_slot as u32 + self.outbox.answers()
    }

    /// Bytes that it holds outside the pool for answers that have not been given to the driver.
    pub fn bytes_gathered(&self) -> usize {
        self.outbox.bytes_gathered()
    }

    /// Pages that it holds of the pool.
    pub fn pages(&self) -> u32 {
        self.transfers.pages() + self.capsules.pages()
    }

    /// Why it ends or ended.
    pub fn reason(&self) -> Option<&Reason> {
        match &self.state {
            State::Ending { reason, .. }
            | State::Closing { reason, .. }
            | State::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Why it ends, if that is something that its peer or an operator should hear of.
    pub fn misconduct(&self) -> Option<&Reason> {
        self.reason().filter(|reason| {
            matches!(reason, Reason::Violation(_) | Reason::Terminated(_) | Reason::TimedOut(_))
        })
    }

    /// Whether it takes commands.
    #[inline]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Ending { .. } | State::Closing { .. } | State::Closed(_))
    }

    /// Whether the driver closed it and no request of it is in flight: it may be forgotten.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Closed(_)) && self.in_flight == 0
    }

    /// The controllers have something to tell.
    pub fn handle_event(&mut self, event: ConnectionEvent, ctx: &mut Context<'_>) {
        match event {
            ConnectionEvent::Reply(reply) => self.handle_reply(reply, ctx),
            ConnectionEvent::Close(reason) => self.handle_close(reason, ctx),
            ConnectionEvent::Flush(volume) => self.handle_flush(volume, ctx),
            ConnectionEvent::Decided { slot, status } => self.decided(slot, status),
            ConnectionEvent::Preempted(volume) => self.preempted(volume, ctx),
        }
    }

    /// The end of a turn: replies that were gathered leave, if nothing is out.
    pub fn settle(&mut self, ctx: &mut Context<'_>) {
        self.tell_health(ctx);
        if self.outbox.has_to_send() {
            self.outbox.send(ctx.now);
            self.arm(ctx.now + self.send_limit());
        }
        if let State::Ending { reason, .. } = self.state
            && self.outbox.is_quiet()
        {
            self.state = State::Closing { reason, after_send: Some(true) };
        }
    }

    /// How long a batch may be out without progress.
    #[inline]
    fn send_limit(&self) -> Duration {
        match self.state {
            State::Ending { send_limit, .. } => send_limit,
            _ => limits::SEND_PROGRESS,
        }
    }

    /// What is to be done next.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<SessionEffect> {
        if let Some(batch) = self.outbox.take() {
            return Some(SessionEffect::Send(batch));
        }
        match &mut self.state {
            State::Closing { after_send, .. } => {
                let after_send = after_send.take()?;
                Some(SessionEffect::Close { after_send })
            }
            _ if self.intake.stream == Stream::Resuming => {
                self.intake.stream = Stream::Header;
                Some(SessionEffect::Resume)
            }
            _ => None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, if at all. It may come too
    /// early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    /// Asks to be woken at `moment` at the latest.
    #[inline]
    fn arm(&mut self, moment: Instant) {
        if self.wake.is_none_or(|wake| moment < wake) {
            self.wake = Some(moment);
        }
    }

    /// Whether a reservation lets the host do this with a volume now.
    #[inline]
    fn check_reservation(
        &self,
        volume: VolumeId,
        access: Access,
        reservations: &InForce,
    ) -> Result<(), Status> {
        let is_lax = access == Access::Write && planted("write-is-judged-as-a-read");
        let access = if is_lax { Access::Read } else { access };
        match reservations.allows(volume, self.registrant, access) {
            true => Ok(()),
            false => Err(Status::RESERVATION_CONFLICT.with_dnr()),
        }
    }

    /// Submits a request in the name of the command in `slot`.
    #[inline]
    fn submit(
        &mut self,
        slot: impl Into<u32>,
        volume: VolumeId,
        operation: Operation,
        ctx: &mut Context<'_>,
    ) {
        let ticket = self.identity.ticket(slot.into());
        self.in_flight += 1;
        self.traffic.count(&operation);
        ctx.volumes.submit(volume, Request { ticket, operation });
    }

    /// Tells the controllers what the turn did, for the logs of health and errors.
    #[inline]
    fn tell_health(&mut self, ctx: &mut Context<'_>) {
        let Some(Queue { view: queue, .. }) = self.state.queue() else { return };
        if !self.traffic.is_empty() {
            ctx.shared.count_traffic(queue.handle, &self.traffic);
            self.traffic = Traffic::default();
        }
        if let Some(failures) = self.failures.take() {
            ctx.shared.commands_failed(queue.handle, failures);
        }
    }

    /// A command failed, for a reason that the controllers have not seen.
    #[cold]
    fn note_failure(&mut self, origin: &Origin, status: Status) {
        let Some(&Queue { view: queue, .. }) = self.state.queue() else { return };
        self.traffic.media_errors += u64::from(status.is_media_error());
        // Only commands of I/O queues concern blocks.
        let lba = if queue.queue_id == 0 { 0 } else { origin.lba };
        let origin = Origin { lba, ..*origin };
        self.failures.get_or_insert_default().note(queue.queue_id, &origin, status);
    }

    /// Refuses a command that has no slot.
    #[cold]
    fn refuse(&mut self, command: &Command, status: Status) {
        self.note_failure(&Origin::of(command), status);
        self.answer(command.command_id(), status);
    }

    /// Answers a command with nothing but a status.
    #[inline]
    fn answer(&mut self, command_id: u16, status: Status) {
        self.answer_with(command_id, status, 0);
    }

    /// Answers a command with a status and a result.
    #[inline]
    fn answer_with(&mut self, command_id: u16, status: Status, result: u64) {
        self.counters.failed += u64::from(!status.is_success());
        passed("status", status.name().unwrap_or_default());
        let sq_head = self.advance();
        self.outbox.push_response(Entry { result, sq_head, command_id, status }, self.digests);
    }

    /// SQHD for the next completion: each one frees an entry of the submission queue.
    #[inline]
    fn advance(&mut self) -> u16 {
        let (State::Admin(queue) | State::Io { queue, .. }) = &mut self.state else { return 0 };
        if queue.view.flow_control_off {
            return Entry::SQ_HEAD_DISABLED;
        }
        queue.sq_head += 1;
        if queue.sq_head >= queue.view.depth {
            queue.sq_head = 0;
        }
        queue.sq_head
    }
}
