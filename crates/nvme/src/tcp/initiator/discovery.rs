//! Discovery: asks a discovery subsystem what there is to connect to.
//!
//! Greeting, Connect, CC.EN, RDY, then the log: its header, its entries page by page, its header
//! again; if the generation counter changed meanwhile, all over. Ends with the entries or with a
//! text that says which step was answered how. The whole of it has one time limit. Call as
//! [`Initiator`](super::Initiator): `handle_*`, then `settle`, then `poll_*`. Spec: NVMe base,
//! "Discovery Log Page" (70h).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use block::Instant;
use contract::{ConnectionId, Loss, Next, Poll, Receive, SendBatch, StreamEffect};
use wire::nvme::log::{DiscoveryEntry, DiscoveryHeader, LogId};
use wire::nvme::{Command, Nqn};
use wire::nvme_tcp::Digests;

use super::Settings;
use super::admin::{Admin, AdminNews, Reply};
use super::bring_up::Enabling;
use super::framing::{Fault, Socket, fault};
use crate::limits::{DISCOVERY_ENTRIES_MAX, DISCOVERY_PAGE_ENTRIES, DISCOVERY_ROUNDS_MAX};

/// What is asked, and what is known by then.
#[derive(Debug)]
enum Step {
    Greeting,
    Enabling(Enabling),
    Header,
    Entries(Log),
    HeaderAgain(Log),
}

/// What was read of the log.
#[derive(Debug)]
struct Log {
    header: DiscoveryHeader,
    entries: Vec<DiscoveryEntry>,
    /// How often it changed.
    rounds: u32,
}

/// One question to a discovery subsystem.
#[derive(Debug)]
pub struct Discovery {
    settings: Settings,
    admin: Admin,
    step: Step,
    deadline: Instant,
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
        admin.framing.socket = Socket::Asked { token: 0, unwanted: false };
        Discovery {
            settings,
            admin,
            step: Step::Greeting,
            deadline: now + limit,
            result: None,
            over: false,
            effects: VecDeque::from([StreamEffect::Connect {
                token: 0,
                address,
                poll: Poll::Never,
            }]),
        }
    }

    /// The connection is there.
    pub fn handle_connected(&mut self, connection: ConnectionId) {
        if self.over {
            self.effects.push_back(self.admin.framing.close(connection, false));
        } else {
            self.admin.framing.open(connection);
        }
    }

    /// The connection could not be had.
    pub fn handle_connect_failed(&mut self, error: i32) {
        self.admin.framing.socket = Socket::Absent;
        self.end(Err(format!("no connection: {}", std::io::Error::from_raw_os_error(error))));
    }

    /// Bytes came.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8]) -> Receive {
        if !self.admin.framing.is_open() {
            return Receive { consumed: bytes.len(), next: Next::Pause };
        }
        self.take_in(now, bytes).unwrap_or_else(|fault| {
            self.end(Err(fault.to_string()));
            Receive { consumed: bytes.len(), next: Next::Pause }
        })
    }

    fn take_in(&mut self, now: Instant, bytes: &[u8]) -> Result<Receive, Fault> {
        let received = self.admin.handle_received(now, bytes)?;
        for news in core::mem::take(&mut self.admin.news) {
            self.handle_news(now, news)?;
        }
        Ok(received)
    }

    /// A batch has left.
    pub fn handle_sent(&mut self, batch: SendBatch) {
        self.admin.handle_sent(batch);
    }

    /// The connection carries nothing more.
    pub fn handle_lost(&mut self, loss: Loss) {
        self.end(Err(loss.of_target()));
    }

    /// The connection is gone.
    pub fn handle_closed(&mut self, batch: Option<SendBatch>) {
        self.admin.handle_closed(batch);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.deadline {
            let step = self.admin.question().unwrap_or("its greeting");
            self.end(Err(format!("no answer in time; it stood at {step}")));
        } else if let Err(fault) = self.admin.handle_timeout(now, false) {
            self.end(Err(fault.to_string()));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.over {
            None
        } else {
            Instant::earliest(self.admin.poll_timeout(), Some(self.deadline))
        }
    }

    /// The end of a turn.
    pub fn settle(&mut self, now: Instant) {
        self.effects.extend(self.admin.framing.poll_send(now));
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
        self.over && self.result.is_none() && self.admin.framing.socket == Socket::Absent
    }

    fn end(&mut self, result: Result<Vec<DiscoveryEntry>, String>) {
        if core::mem::replace(&mut self.over, true) {
            return;
        }
        self.result = Some(result);
        if let Socket::Open(connection) = self.admin.framing.socket {
            self.admin.framing.drop_gathering(|_, _| {});
            self.effects.push_back(self.admin.framing.close(connection, false));
        }
    }

    /// What follows news of the admin queue. After a fault it is over.
    fn handle_news(&mut self, now: Instant, news: AdminNews) -> Result<(), Fault> {
        let step = core::mem::replace(&mut self.step, Step::Greeting);
        self.step = match (step, news) {
            (Step::Greeting, AdminNews::Greeted) => {
                Step::Enabling(Enabling::begin(now, &mut self.admin, &self.settings))
            }
            (Step::Enabling(mut enabling), AdminNews::Answered(reply)) => {
                match enabling.handle_reply(now, &reply, &mut self.admin, &self.settings)? {
                    None => Step::Enabling(enabling),
                    Some(_) => {
                        self.read(now, 0, DiscoveryHeader::SIZE as u64);
                        Step::Header
                    }
                }
            }
            (Step::Header, AdminNews::Answered(reply)) => {
                let header = parse_header(&reply)?;
                self.read_on(now, Log { header, entries: Vec::new(), rounds: 0 })
            }
            (Step::Entries(mut log), AdminNews::Answered(reply)) => {
                reply.check()?;
                let before = log.entries.len();
                for entry in reply.data.chunks_exact(DiscoveryEntry::SIZE) {
                    log.entries.push(DiscoveryEntry::parse(entry).expect("a whole entry"));
                }
                if log.entries.len() == before {
                    return fault("a page of the discovery log came without entries");
                }
                self.read_on(now, log)
            }
            (Step::HeaderAgain(log), AdminNews::Answered(reply)) => {
                let header = parse_header(&reply)?;
                if header.generation == log.header.generation {
                    self.end(Ok(log.entries));
                    return Ok(());
                }
                let rounds = log.rounds + 1;
                if rounds == DISCOVERY_ROUNDS_MAX {
                    return fault("the discovery log changes faster than it can be read");
                }
                self.read_on(now, Log { header, entries: Vec::new(), rounds })
            }
            (step, _) => step,
        };
        Ok(())
    }

    fn read(&mut self, now: Instant, offset: u64, bytes: u64) {
        let command = Command::get_log(LogId::DISCOVERY, 0, offset, bytes as u32, false);
        self.admin.ask(now, "Get Log Discovery", command, &[]);
    }

    /// Reads the next page, or the header again when all entries are there.
    fn read_on(&mut self, now: Instant, log: Log) -> Step {
        let (header, entry) = (DiscoveryHeader::SIZE as u64, DiscoveryEntry::SIZE as u64);
        let have = log.entries.len() as u64;
        let left = log.header.records.saturating_sub(have);
        if left == 0 {
            self.read(now, 0, header);
            return Step::HeaderAgain(log);
        }
        self.read(now, header + have * entry, left.min(DISCOVERY_PAGE_ENTRIES) * entry);
        Step::Entries(log)
    }
}

fn parse_header(reply: &Reply) -> Result<DiscoveryHeader, Fault> {
    reply.check()?;
    let header = reply.parse(DiscoveryHeader::parse)?;
    if header.records > DISCOVERY_ENTRIES_MAX || header.record_format != 0 {
        let DiscoveryHeader { records, record_format, .. } = header;
        return fault(format!("a discovery log of {records} entries, format {record_format}"));
    }
    Ok(header)
}
