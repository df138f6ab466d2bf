//! The serving end of an iSCSI session, which has one connection: PDUs in, requests to volumes out;
//! completions in, PDUs out.
//!
//! In: received bytes, completions, what the [`Targets`] have to say. Out: requests (pushed to the
//! context at once), and by polling send batches, a resume, a close. Units: bytes, moments of the
//! shard clock. Pure: no I/O, no clock. Errors: what the peer may not do is told by a Reject and
//! ends the session ([`Violation`](crate::pdu_stream::Violation)), as ErrorRecoveryLevel 0 has it;
//! what a login may not do is a status; what a command may not do is a status with sense data; what
//! the storage could not do is one too.
//!
//! The way of a 4 KiB read: `receive` cuts the PDU, `command` finds the unit, has `scsi` judge the
//! command and takes memory; where the volume is memory that lends, the page is sent from where it
//! lies, else the task has a slot and a request. `outbox` appends header and data to the batch that
//! `settle` sends; the last Data-In carries the status. A write whose data came with it lands where
//! the volume is memory that takes it at once, else it goes the same way; a larger one gets its
//! whole buffer and then an R2T: the grant. Who finds no memory waits (`memory`).
//!
//! ```text
//!   Login -- final response --> Session -- logout, drained --> Ending
//!     |                            |                             |
//!     | refused, violation, close  | violation, close            | the last batch was sent
//!     v                            v                             v
//!   Ending                       Ending                       Closing -- closed --> Closed
//! ```
//! From Ending on no request is submitted; once Closed, and with none in flight, it is gone.
//!
//! Spec: RFC 7143. Not here: what commands mean (`scsi`), the volume.

mod carry_out;
mod closing;
mod command;
mod completion;
mod control;
mod copy;
mod facts;
mod host_data;
mod judging;
mod login;
mod management;
mod memory;
mod order;
mod outbox;
mod paths;
mod receive;
mod reserve;
mod slots;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod transfer;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use block::{Account, Buffer, Class, Instant, Landing, Loan, Operation, Request, Slot, VolumeId};
use contract::{Endpoint, SessionCounters, SessionEffect, SessionIdentity, TargetContext, Traffic};
use reservation::{PathGroup, Registrant};
use scsi::Attentions;
use wire::iscsi::Digests;

use crate::limits::{COMMANDS_MAX, HANDSHAKE};
use crate::negotiation::Parameters;
use crate::targets::{SessionEvent, SessionHandle, Targets};
pub use closing::{Reason, TimeLimit};
use command::Ending;
use completion::ending_of;
use copy::Copies;
use login::Login;
use management::Management;
use order::Order;
use outbox::Outbox;
use receive::Stream;
use slots::{Slots, Task};
use steps::Steps;
use text::Text;

/// What the connection works with during a call.
pub type Context<'a> = TargetContext<'a, Targets>;

/// How far the connection is; see the diagram above.
#[derive(Debug)]
enum State {
    /// Negotiates.
    Login(Box<Login>),
    /// Full feature phase: of a normal session, or of discovery, which has no handle.
    Session(Option<SessionHandle>),
    /// Takes nothing more; the last words are on their way, each batch for so long without
    /// progress. `logout` is the task tag of a logout that is answered once nothing is in flight.
    Ending { reason: Reason, logout: Option<u32>, send_limit: Duration },
    /// The driver closes. Until it was told so: whether what was sent before is to leave first.
    Closing { reason: Reason, after_send: Option<bool> },
    /// The driver closed.
    Closed(Reason),
}

impl State {
    #[inline]
    fn session(&self) -> Option<SessionHandle> {
        match self {
            State::Session(handle) => *handle,
            _ => None,
        }
    }
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
    /// Reads whose pages can be lent. They have no slot: they are answered before anything else is
    /// heard of the connection.
    loans: Vec<Loan<Task>>,
    /// Writes that found memory which takes them at once; their bytes lie in what was received.
    /// They have no slot: they have landed and are answered before anything but plain reads and
    /// writes is heard of the connection.
    landings: Vec<Landing>,
    /// Whose they are, in the same order.
    landing_tasks: Vec<Task>,
    /// Where in what was received the PDU at the front of the stream begins, and the data in it.
    front: usize,
    data_from: usize,
    /// Tasks whose data were asked for, or announced, and are not there.
    asked: u32,
    /// Those of them whose data come with nothing but headers while they are all that is awaited.
    asked_large: u32,
    /// Tasks in line for memory, the oldest first, and places whose tasks have left.
    waiting: VecDeque<u16>,
    /// Memory taken for the command at the front of the stream.
    reserved: Vec<Buffer>,
    /// Commands counted when it was last seen whether the session is idle; `None` while it holds no
    /// tables.
    idle_mark: Option<u64>,
}

/// One iSCSI connection of a host, and its session.
///
/// Calls in any order; [`settle`](Self::settle) ends a turn, then
/// [`poll_effect`](Self::poll_effect) until `None`. After [`SessionEffect::Close`] only
/// `handle_sent`, `handle_completion` and `handle_closed` may come; once [`is_gone`](Self::is_gone)
/// says so, no memory and no request of it is left anywhere.
#[derive(Debug)]
pub struct Connection {
    identity: SessionIdentity,
    endpoint: Endpoint,
    state: State,
    /// The group of the listener by which it came.
    group: PathGroup,
    /// CID of the connection.
    cid: u16,
    /// What was agreed on.
    parameters: Parameters,
    intake: Intake,
    /// The host as reservations know it, once it is logged in: requests outlive the session.
    registrant: Option<Registrant>,
    /// The session until the targets were told that it has drained.
    drains: Option<SessionHandle>,
    attentions: Attentions,
    slots: Slots,
    /// Requests that have not come back.
    in_flight: u32,
    /// Memory of transfers: it may hang on the peer.
    transfers: Account,
    /// Memory of data that came whole with their command: freed by the volumes alone, so that a
    /// stopped stream always goes on.
    immediate: Account,
    /// Memory that stands for the ranges of a discard in flight, by its slot: they lie elsewhere.
    ranges: BTreeMap<u16, Buffer>,
    /// What commands of several steps have before them, by their slots.
    steps: BTreeMap<u16, Steps>,
    copies: Copies,
    /// Who waits for whom by task attributes.
    order: Order,
    /// Task management that waits for tasks to end.
    managements: Vec<Management>,
    /// Resets that its host asked for: task tags, and whether the request was immediate.
    resets: Vec<(u32, bool)>,
    /// A text negotiation under way.
    text: Text,
    outbox: Outbox,
    /// When to look at the time limits, at the latest.
    wake: Option<Instant>,
    counters: SessionCounters,
    /// What the host read and wrote in this turn.
    traffic: Traffic,
}

impl Connection {
    /// A connection that was just accepted and waits for a login.
    pub fn new(now: Instant, identity: SessionIdentity, endpoint: Endpoint) -> Connection {
        Connection {
            identity,
            endpoint,
            state: State::Login(Box::new(Login::new(now))),
            group: PathGroup::DEFAULT,
            cid: 0,
            parameters: Parameters::default(),
            intake: Intake::default(),
            registrant: None,
            drains: None,
            attentions: Attentions::default(),
            slots: Slots::default(),
            in_flight: 0,
            transfers: Account::default(),
            immediate: Account::new(Class::Immediate),
            ranges: BTreeMap::new(),
            steps: BTreeMap::new(),
            copies: Copies::default(),
            order: Order::default(),
            managements: Vec::new(),
            resets: Vec::new(),
            text: Text::default(),
            outbox: Outbox::default(),
            // In whole seconds, so that connections that came together wake the shard once.
            wake: Some((now + HANDSHAKE).round_up(Duration::from_secs(1))),
            counters: SessionCounters::default(),
            traffic: Traffic::default(),
        }
    }

    /// The place of the connection on its shard, by which the targets know it.
    fn place(&self) -> Slot {
        Slot { index: self.identity.machine.0, generation: self.identity.generation }
    }

    /// Commands that it may have outstanding: the window, before the end of the login one.
    pub fn entries(&self) -> u16 {
        match &self.state {
            State::Login(_) => 1,
            State::Session(_) | State::Ending { .. } => COMMANDS_MAX as u16,
            State::Closing { .. } | State::Closed(_) => 0,
        }
    }

    /// The host as reservations know it, once it is logged in.
    pub fn registrant(&self) -> Option<Registrant> {
        self.registrant
    }

    /// Who is whom has changed.
    pub fn handle_named_hosts(&mut self, ctx: &mut Context<'_>) {
        if let Some(session) = self.state.session() {
            self.registrant = ctx.shared.registrant(session);
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
        self.outbox.bytes_gathered() + self.text.bytes_held()
    }

    /// Pages that it holds of the pool.
    pub fn pages(&self) -> u32 {
        self.transfers.pages() + self.immediate.pages()
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
        let is_one =
            |reason: &&Reason| matches!(reason, Reason::Violation(_) | Reason::TimedOut(_));
        self.reason().filter(is_one)
    }

    /// Whether it takes commands.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Login(_) | State::Session(_))
    }

    /// Whether the driver closed it, no request of it is in flight and nothing that it proposed is
    /// undecided: it may be forgotten.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Closed(_)) && self.in_flight == 0 && self.drains.is_none()
    }

    /// The targets have something to tell.
    pub fn handle_event(&mut self, event: SessionEvent, ctx: &mut Context<'_>) {
        match event {
            SessionEvent::Opened(opened) => self.handle_opened(opened, ctx),
            SessionEvent::Close(reason) => self.handle_close(reason, ctx),
            SessionEvent::Attention(lun, sense) if self.is_open() => {
                let Some(session) = self.state.session() else { return };
                match lun {
                    Some(lun) => self.attentions.raise(lun, sense),
                    None => self.attentions.raise_all(&ctx.shared.luns(session), sense),
                }
            }
            SessionEvent::Attention(..) => {}
            SessionEvent::Abort { of, lun } => self.abort_for_reset(of, lun, ctx),
            SessionEvent::ResetDone { tag } => self.reset_is_done(tag),
            SessionEvent::EndTasks { lun } => self.end_tasks_of(lun, ctx),
            SessionEvent::Changed { number, status, sense } => {
                self.change_is_decided(number, Ending { status, sense }, ctx);
            }
            SessionEvent::Decided => self.drained_maybe(ctx),
        }
    }

    /// The end of a turn: answers that were gathered leave, if nothing is out.
    pub fn settle(&mut self, ctx: &mut Context<'_>) {
        self.start_held(ctx);
        self.tell_traffic(ctx);
        if self.outbox.has_to_send() {
            self.outbox.send(ctx.now);
            self.arm(ctx.now + self.send_limit());
        }
        if let State::Ending { reason, logout: None, .. } = self.state
            && self.outbox.is_quiet()
        {
            self.state = State::Closing { reason, after_send: Some(true) };
        }
    }

    /// Tells the targets what the host did, before its session is gone.
    #[inline]
    fn tell_traffic(&mut self, ctx: &mut Context<'_>) {
        let session = self.state.session().or(self.drains);
        if let Some(session) = session.filter(|_| !self.traffic.is_empty()) {
            ctx.shared.count_traffic(session, &self.traffic);
            self.traffic = Traffic::default();
        }
    }

    /// How long a batch may be out without progress.
    #[inline]
    fn send_limit(&self) -> Duration {
        match self.state {
            State::Ending { send_limit, .. } => send_limit,
            _ => block::limits::SEND_PROGRESS,
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

    /// Submits a request in the name of the task in `slot`.
    #[inline]
    fn submit(&mut self, slot: u16, volume: VolumeId, operation: Operation, ctx: &mut Context<'_>) {
        let ticket = self.identity.ticket(slot.into());
        self.in_flight += 1;
        self.traffic.count(&operation);
        ctx.volumes.submit(volume, Request { ticket, operation });
    }

    /// The digests in force.
    pub fn digests(&self) -> Digests {
        self.outbox.digests
    }
}
