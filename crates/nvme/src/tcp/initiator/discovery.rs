//! Discovery: asks a discovery subsystem what there is to connect to.
//!
//! Greeting, Connect, CC.EN, RDY, then the log: its header, its entries page by page, its header again; if the generation counter changed
//! meanwhile, all over. Ends with the entries or with a text that says which step was answered how. The whole of it has one time limit.
//! Call as [`Initiator`](super::Initiator): `handle_*`, then `settle`, then `poll_*`.
//! Spec: NVMe base, "Discovery Log Page" (70h).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use block::Instant;
use contract::{ConnectionId, Loss, Next, Receive, SendBatch, StreamEffect};
use wire::nvme::fabrics::{Capabilities, ConnectData, ControllerStatus, Register};
use wire::nvme::log::{DiscoveryEntry, DiscoveryHeader, LogId};
use wire::nvme::{Command, Nqn};
use wire::nvme_tcp::Digests;

use super::Settings;
use super::admin::{Admin, Purpose, Reply};
use super::bring_up::{connect_admin, connect_data, enable};
use super::link::{Fault, Socket, fault};

/// Entries read at once.
const PAGE_ENTRIES: u64 = 4;
/// More entries than this are not believed.
const ENTRIES_MAX: u64 = 4096;
/// How often the log may change under us.
const ROUNDS_MAX: u32 = 16;
const READY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Greeting,
    Connect,
    Capabilities,
    Enable,
    Ready,
    Header,
    Entries,
    HeaderAgain,
}

/// One question to a discovery subsystem.
#[derive(Debug)]
pub struct Discovery {
    settings: Settings,
    admin: Admin,
    step: Step,
    deadline: Instant,
    ask_again_at: Option<Instant>,
    header: DiscoveryHeader,
    entries: Vec<DiscoveryEntry>,
    rounds: u32,
    result: Option<Result<Vec<DiscoveryEntry>, String>>,
    over: bool,
    effects: VecDeque<StreamEffect>,
}

impl Discovery {
    /// Asks the discovery subsystem at `address` as `host`; over after `limit` at the latest.
    pub fn new(
        now: Instant,
        address: SocketAddr,
        host: Nqn,
        host_id: [u8; 16],
        digests: Digests,
        limit: Duration,
    ) -> Discovery {
        let mut settings = Settings::new(address, Nqn::discovery(), 0, host, host_id);
        // A discovery that is over soon needs no Keep Alive.
        settings.keep_alive = Duration::ZERO;
        let mut admin = Admin::new(digests);
        admin.link.socket = Socket::Asked { token: 0, unwanted: false };
        Discovery {
            settings,
            admin,
            step: Step::Greeting,
            deadline: now + limit,
            ask_again_at: None,
            header: DiscoveryHeader::default(),
            entries: Vec::new(),
            rounds: 0,
            result: None,
            over: false,
            effects: VecDeque::from([StreamEffect::Connect { token: 0, address }]),
        }
    }

    /// The connection is there.
    pub fn handle_connected(&mut self, connection: ConnectionId) {
        if self.over {
            self.admin.link.socket = Socket::Closing(connection);
            self.effects.push_back(StreamEffect::Close { connection, after_send: false });
        } else {
            self.admin.link.open(connection);
        }
    }

    /// The connection could not be had.
    pub fn handle_connect_failed(&mut self, error: i32) {
        self.admin.link.socket = Socket::Absent;
        self.end(Err(format!("no connection: {}", std::io::Error::from_raw_os_error(error))));
    }

    /// Bytes came.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8]) -> Receive {
        if !self.admin.link.is_open() {
            return Receive { consumed: bytes.len(), next: Next::Pause };
        }
        let received = self.admin.handle_received(now, bytes).and_then(|receive| {
            self.advance(now)?;
            Ok(receive)
        });
        received.unwrap_or_else(|fault: Fault| {
            self.end(Err(fault.to_string()));
            Receive { consumed: bytes.len(), next: Next::Pause }
        })
    }

    /// A batch has left.
    pub fn handle_sent(&mut self, batch: SendBatch) {
        self.admin.link.take_back(batch, |_, _| {});
    }

    /// The connection carries nothing more.
    pub fn handle_lost(&mut self, loss: Loss) {
        self.end(Err(format!("the connection was lost: {loss:?}")));
    }

    /// The connection is gone.
    pub fn handle_closed(&mut self, batch: Option<SendBatch>) {
        if let Some(batch) = batch {
            self.handle_sent(batch);
        }
        self.admin.closed();
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.deadline {
            self.end(Err(format!("no answer in time; it stood at {:?}", self.step)));
        } else if self.ask_again_at.is_some_and(|at| at <= now) {
            self.ask_again_at = None;
            self.ask(Step::Ready, Command::property_get(Register::CSTS.0, false));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.over {
            None
        } else {
            Some(self.ask_again_at.unwrap_or(self.deadline).min(self.deadline))
        }
    }

    /// The end of a turn.
    pub fn settle(&mut self, now: Instant) {
        if let (Socket::Open(connection), Some(batch)) =
            (self.admin.link.socket, self.admin.link.take_batch(now))
        {
            self.effects.push_back(StreamEffect::Send { connection, batch });
        }
    }

    /// What the driver should do next.
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.effects.pop_front()
    }

    /// The entries, or why there are none; once.
    pub fn poll_result(&mut self) -> Option<Result<Vec<DiscoveryEntry>, String>> {
        self.result.take()
    }

    /// Whether the result was given and the driver has closed the connection.
    pub fn is_gone(&self) -> bool {
        self.over && self.result.is_none() && self.admin.link.socket == Socket::Absent
    }

    fn end(&mut self, result: Result<Vec<DiscoveryEntry>, String>) {
        if core::mem::replace(&mut self.over, true) {
            return;
        }
        self.result = Some(result);
        if let Socket::Open(connection) = self.admin.link.socket {
            self.admin.link.drop_gathering(|_, _| {});
            self.admin.link.socket = Socket::Closing(connection);
            self.effects.push_back(StreamEffect::Close { connection, after_send: false });
        }
    }

    fn advance(&mut self, now: Instant) -> Result<(), Fault> {
        if self.step == Step::Greeting && self.admin.link.greeted {
            let data = connect_data(&self.settings, ConnectData::CONTROLLER_ANY);
            self.step = Step::Connect;
            self.admin.send(Purpose::Step, connect_admin(Duration::ZERO), &data);
        }
        for reply in core::mem::take(&mut self.admin.replies) {
            if !reply.status.is_success() {
                return fault(format!("{:?} was answered with {}", self.step, reply.status));
            }
            self.next_step(now, &reply)?;
        }
        Ok(())
    }

    fn ask(&mut self, step: Step, command: Command) {
        self.step = step;
        self.admin.send(Purpose::Step, command, &[]);
    }

    fn read(&mut self, step: Step, offset: u64, bytes: u64) {
        let command = Command::get_log(LogId::DISCOVERY, 0, offset, bytes as u32, false);
        self.ask(step, command);
    }

    fn next_step(&mut self, now: Instant, reply: &Reply) -> Result<(), Fault> {
        let size = DiscoveryHeader::SIZE as u64;
        match self.step {
            Step::Greeting => return fault("an answer before a question"),
            Step::Connect => {
                self.ask(Step::Capabilities, Command::property_get(Register::CAP.0, true));
            }
            Step::Capabilities => self.ask(Step::Enable, enable(Capabilities(reply.result))),
            Step::Enable => {
                self.ask(Step::Ready, Command::property_get(Register::CSTS.0, false));
            }
            Step::Ready => {
                let status = ControllerStatus(reply.result as u32);
                if status.fatal() {
                    return fault("the discovery controller says that it failed (CSTS.CFS)");
                }
                if status.ready() {
                    self.read(Step::Header, 0, size);
                } else {
                    self.ask_again_at = Some(now + READY_INTERVAL);
                }
            }
            Step::Header => {
                self.header = self.parse_header(reply)?;
                self.entries.clear();
                self.read_on();
            }
            Step::Entries => {
                let before = self.entries.len();
                for entry in reply.data.chunks_exact(DiscoveryEntry::SIZE) {
                    let entry = DiscoveryEntry::parse(entry).expect("a whole entry");
                    self.entries.push(entry);
                }
                if self.entries.len() == before {
                    return fault("a page of the discovery log came without entries");
                }
                self.read_on();
            }
            Step::HeaderAgain => {
                let header = self.parse_header(reply)?;
                if header.generation == self.header.generation {
                    let entries = core::mem::take(&mut self.entries);
                    self.end(Ok(entries));
                    return Ok(());
                }
                self.rounds += 1;
                if self.rounds == ROUNDS_MAX {
                    return fault("the discovery log changes faster than it can be read");
                }
                self.header = header;
                self.entries.clear();
                self.read_on();
            }
        }
        Ok(())
    }

    fn parse_header(&self, reply: &Reply) -> Result<DiscoveryHeader, Fault> {
        let header = DiscoveryHeader::parse(&reply.data)
            .or_else(|error| fault(format!("the discovery log's header: {error}")))?;
        if header.records > ENTRIES_MAX || header.record_format != 0 {
            let DiscoveryHeader { records, record_format, .. } = header;
            return fault(format!("a discovery log of {records} entries, format {record_format}"));
        }
        Ok(header)
    }

    /// Reads the next page, or the header again when all entries are there.
    fn read_on(&mut self) {
        let (header, entry) = (DiscoveryHeader::SIZE as u64, DiscoveryEntry::SIZE as u64);
        let have = self.entries.len() as u64;
        let left = self.header.records.saturating_sub(have);
        if left == 0 {
            self.read(Step::HeaderAgain, 0, header);
        } else {
            self.read(Step::Entries, header + have * entry, left.min(PAGE_ENTRIES) * entry);
        }
    }
}
