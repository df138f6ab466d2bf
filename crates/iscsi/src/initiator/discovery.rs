//! Discovery: asks a target portal which targets there are.
//!
//! Login to a discovery session, SendTargets=All, its answers piece by piece, logout. Ends with the
//! targets or with a text that says which step was answered how. The whole of it has one time limit.
//! Call as [`Initiator`](super::Initiator): `handle_*`, then `settle`, then `poll_*`. Units: times
//! on the shard clock. Spec: RFC 7143, 6.3, 11.10, 11.11, Appendix C (SendTargets).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use block::Instant;
use contract::{ConnectionId, Loss, Next, Poll, Receive, SendBatch, StreamEffect};
use wire::iscsi::keys::{Key, Pair, Pairs, push};
use wire::iscsi::{
    Digests, IscsiName, LoginResponse, LogoutReason, LogoutRequest, LogoutResponse, NopIn, NopOut,
    Opcode, RESERVED_TAG, Reject, TextFlags, TextRequest, TextResponse,
};

use super::framing::{Fault, Framing, Socket, broken, fault};
use super::login::{CID, Login, Who, address_of};
use super::numbers::{Numbers, numbers_of};
use crate::auth::{self, Challenge};
use crate::limits::{
    DISCOVERY_SEGMENT_MAX, DISCOVERY_TARGETS_MAX, DISCOVERY_TEXT_MAX, PONGS_MAX, TEXT_SEGMENT_MAX,
};
use crate::pdu_stream::{Front, PduHead, Violation, peek};

/// The tags of the requests in the full feature phase.
const TEXT_TAG: u32 = 2;
const LOGOUT_TAG: u32 = 3;

/// A target, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    pub target: IscsiName,
    pub portals: Vec<Portal>,
}

/// An address of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// As the target wrote it, without the portal group and without control characters.
    pub text: String,
    /// The same, if it is no name that somebody has to look up.
    pub address: Option<SocketAddr>,
    /// TargetPortalGroupTag.
    pub group: Option<u16>,
}

/// What is under way.
#[derive(Debug)]
enum Step {
    Connecting,
    Login(Box<Login>),
    Targets,
    Logout,
}

/// One question to a target portal.
#[derive(Debug)]
pub struct Discovery {
    address: SocketAddr,
    who: Who,
    framing: Framing,
    numbers: Numbers,
    step: Step,
    /// What was said so far of the targets.
    text: Vec<u8>,
    pongs: u32,
    deadline: Instant,
    found: Vec<Discovered>,
    result: Option<Result<Vec<Discovered>, String>>,
    over: bool,
    effects: VecDeque<StreamEffect>,
}

impl Discovery {
    /// Asks the portal at `address` as `initiator`, whose port is `isid`; over after `limit` at the
    /// latest. The challenge is for the portal, should it have to prove something.
    pub fn new(
        now: Instant,
        address: SocketAddr,
        (initiator, isid): (IscsiName, [u8; 6]),
        auth: Option<(auth::Login, Challenge)>,
        digests: Digests,
        limit: Duration,
    ) -> Discovery {
        Discovery {
            address,
            who: Who { initiator, target: None, isid, digests, auth },
            framing: Framing::new(Socket::Asked { token: 0, unwanted: false }),
            numbers: Numbers::new(),
            step: Step::Connecting,
            text: Vec::new(),
            pongs: 0,
            deadline: now + limit,
            found: Vec::new(),
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
            self.effects.push_back(self.framing.close(connection));
            return;
        }
        self.framing.socket = Socket::Open(connection);
        let login = Login::begin(self.who.clone(), &mut self.framing, &self.numbers);
        self.step = Step::Login(Box::new(login));
    }

    /// The connection could not be had.
    pub fn handle_connect_failed(&mut self, error: i32) {
        self.framing.socket = Socket::Absent;
        self.end(Err(format!("no connection: {}", std::io::Error::from_raw_os_error(error))));
    }

    /// Bytes came.
    pub fn handle_received(&mut self, bytes: &[u8]) -> Receive {
        if !self.framing.is_open() {
            return Receive { consumed: bytes.len(), next: Next::Pause };
        }
        self.take_in(bytes).unwrap_or_else(|fault| {
            self.end(Err(fault.to_string()));
            Receive { consumed: bytes.len(), next: Next::Pause }
        })
    }

    fn take_in(&mut self, bytes: &[u8]) -> Result<Receive, Fault> {
        let mut at = 0;
        while at < bytes.len() && self.framing.is_open() {
            let front = &bytes[at..];
            let is_login = matches!(self.step, Step::Login(_));
            let most = if is_login { TEXT_SEGMENT_MAX } else { DISCOVERY_SEGMENT_MAX };
            let digests = self.framing.digests;
            let head = match peek(front, digests, most)? {
                Front::Pdu(head) => head,
                Front::Short(at_least) => {
                    return Ok(Receive { consumed: at, next: stream(at_least) });
                }
            };
            let whole = head.total(digests);
            if front.len() < whole as usize {
                return Ok(Receive { consumed: at, next: stream(whole) });
            }
            self.handle_pdu(head, &front[..whole as usize])?;
            at += whole as usize;
        }
        let next = if self.framing.is_open() { stream(1) } else { Next::Pause };
        Ok(Receive { consumed: at, next })
    }

    /// A batch has left.
    pub fn handle_sent(&mut self, batch: SendBatch) {
        self.pongs = 0;
        self.framing.take_back(batch, |_, _| {});
    }

    /// The connection carries nothing more.
    pub fn handle_lost(&mut self, loss: Loss) {
        self.end(Err(loss.of_target()));
    }

    /// The connection is gone.
    pub fn handle_closed(&mut self, batch: Option<SendBatch>) {
        batch.into_iter().for_each(|batch| self.handle_sent(batch));
        self.framing.drop_gathering(|_, _| {});
        self.framing.closed();
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        let step = match self.step {
            Step::Connecting => "the connection",
            Step::Login(_) => "its login",
            Step::Targets => "SendTargets",
            Step::Logout => "its logout",
        };
        self.end(Err(format!("no answer in time; it stood at {step}")));
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.over).then_some(self.deadline)
    }

    /// The end of a turn.
    pub fn settle(&mut self, now: Instant) {
        self.effects.extend(self.framing.poll_send(now));
    }

    /// What the driver should do next.
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.effects.pop_front()
    }

    /// The targets, or why there are none; once.
    pub fn poll_result(&mut self) -> Option<Result<Vec<Discovered>, String>> {
        self.result.take()
    }

    /// Whether the result was given and the driver has closed the connection.
    pub fn is_gone(&self) -> bool {
        self.over && self.result.is_none() && self.framing.socket == Socket::Absent
    }

    /// It is over; what was found before a logout that failed was found.
    fn end(&mut self, result: Result<Vec<Discovered>, String>) {
        if core::mem::replace(&mut self.over, true) {
            return;
        }
        let found = core::mem::take(&mut self.found);
        let is_known = matches!(self.step, Step::Logout);
        self.result = Some(if is_known { Ok(found) } else { result });
        if let Socket::Open(connection) = self.framing.socket {
            self.framing.drop_gathering(|_, _| {});
            self.effects.push_back(self.framing.close(connection));
        }
    }

    /// A PDU that is all there. After a fault it is over.
    fn handle_pdu(&mut self, head: PduHead, pdu: &[u8]) -> Result<(), Fault> {
        if !head.data_are_right(pdu, self.framing.digests) {
            return fault(format!("the data digest of a {} was wrong", head.bhs.opcode()));
        }
        let data = head.data(pdu);
        match (&self.step, head.bhs.opcode()) {
            (Step::Login(_), Opcode::LOGIN_RESPONSE) => self.log_in(pdu, data),
            (Step::Login(_), _) => broken("a login before everything else"),
            (Step::Targets, Opcode::TEXT_RESPONSE) => self.take_text(pdu, data),
            (Step::Logout, Opcode::LOGOUT_RESPONSE) => {
                let response = LogoutResponse::parse(pdu).expect("the header is whole");
                self.numbers.note_status(numbers_of!(response))?;
                self.end(Ok(Vec::new()));
                Ok(())
            }
            (_, Opcode::NOP_IN) => self.pong(pdu),
            (_, Opcode::REJECT) => {
                let reject = Reject::parse(pdu).expect("the header is whole");
                fault(format!("SendTargets was rejected: {}", reject.reason))
            }
            (_, Opcode::ASYNC_MESSAGE) => fault("the target ends the session"),
            _ => broken("an answer to something that was asked"),
        }
    }

    fn log_in(&mut self, pdu: &[u8], text: &[u8]) -> Result<(), Fault> {
        let Step::Login(login) = &mut self.step else { unreachable!("just seen") };
        let response = LoginResponse::parse(pdu).expect("the header is whole");
        let done = login.handle(&response, text, &mut self.framing, &mut self.numbers)?;
        if let Some(parameters) = done {
            let (header, data) = (parameters.header_digest, parameters.data_digest);
            self.framing.digests = Digests { header, data };
            self.step = Step::Targets;
            let mut text = Vec::new();
            push(&mut text, Key::SendTargets.name(), "All");
            self.ask(RESERVED_TAG, [0; 8], &text)?;
        }
        Ok(())
    }

    /// Asks for targets, or for more of them.
    fn ask(&mut self, tag: u32, lun: [u8; 8], text: &[u8]) -> Result<(), Fault> {
        if !self.numbers.has_room() {
            return fault("the target takes no request");
        }
        let (length, numbers) = (text.len() as u32, self.numbers.command());
        let request = TextRequest::new(TextFlags::FINAL, TEXT_TAG, tag, length, numbers);
        self.framing.push_header(&TextRequest { lun, ..request }.emit());
        self.framing.push_bytes(text);
        Ok(())
    }

    fn take_text(&mut self, pdu: &[u8], text: &[u8]) -> Result<(), Fault> {
        let response = TextResponse::parse(pdu).expect("the header is whole");
        response.check().map_err(|error| Violation::field(&error))?;
        self.numbers.note_status(numbers_of!(response))?;
        if response.initiator_task_tag != TEXT_TAG {
            return broken("an answer to something that was asked");
        }
        if self.text.len() + text.len() > DISCOVERY_TEXT_MAX {
            return fault(format!("more than {DISCOVERY_TEXT_MAX} bytes about targets"));
        }
        self.text.extend_from_slice(text);
        if !response.flags.is_final() {
            if response.target_transfer_tag == RESERVED_TAG || text.is_empty() {
                return broken("a text that goes on somehow");
            }
            return self.ask(response.target_transfer_tag, response.lun, &[]);
        }
        self.found = targets(&core::mem::take(&mut self.text), self.address)?;
        self.step = Step::Logout;
        let numbers = self.numbers.immediate();
        let logout = LogoutRequest::new(LogoutReason::CLOSE_SESSION, CID, LOGOUT_TAG, numbers);
        self.framing.push_header(&logout.emit());
        Ok(())
    }

    fn pong(&mut self, pdu: &[u8]) -> Result<(), Fault> {
        let nop = NopIn::parse(pdu).expect("the header is whole");
        if nop.initiator_task_tag != RESERVED_TAG || self.pongs == PONGS_MAX {
            return broken("a NOP-In that was asked for, or can be answered");
        }
        self.numbers.note_window(nop.exp_cmd_sn, nop.max_cmd_sn);
        if nop.target_transfer_tag != RESERVED_TAG {
            self.pongs += 1;
            self.framing.push_header(&NopOut::pong(&nop, self.numbers.immediate()).emit());
        }
        Ok(())
    }
}

fn stream(at_least: u32) -> Next {
    Next::Stream { at_least, at_most: u32::MAX }
}

/// The targets that a text tells of. One that says nothing of its addresses is where we asked.
fn targets(text: &[u8], asked: SocketAddr) -> Result<Vec<Discovered>, Fault> {
    let mut found: Vec<Discovered> = Vec::new();
    for pair in Pairs::new(text) {
        let Pair { key, value } = pair.map_err(|error| Violation::field(&error))?;
        match Key::from_name(key) {
            Some(Key::TargetName) => {
                let target = IscsiName::new(value)
                    .or_else(|error| fault(format!("TargetName {value:?}: {error}")))?;
                if found.len() == DISCOVERY_TARGETS_MAX {
                    return fault(format!("more than {DISCOVERY_TARGETS_MAX} targets"));
                }
                found.push(Discovered { target, portals: Vec::new() });
            }
            Some(Key::TargetAddress) => match found.last_mut() {
                Some(last) => last.portals.push(portal(value)),
                None => return broken("a TargetAddress behind a TargetName"),
            },
            // An alias, or what a vendor has to say.
            _ => {}
        }
    }
    for target in found.iter_mut().filter(|target| target.portals.is_empty()) {
        let portal = Portal { text: asked.to_string(), address: Some(asked), group: None };
        target.portals.push(portal);
    }
    Ok(found)
}

fn portal(value: &str) -> Portal {
    let (address, group) = match address_of(value) {
        Some((address, group)) => (Some(address), group),
        None => (None, value.rsplit_once(',').and_then(|(_, group)| group.parse().ok())),
    };
    let text = match group {
        Some(_) => value.rsplit_once(',').map_or(value, |(text, _)| text),
        None => value,
    };
    let text = text.replace(|char: char| char.is_control(), "\u{fffd}");
    Portal { text, address, group }
}
