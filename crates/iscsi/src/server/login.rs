//! Login: text keys are negotiated stage by stage, until the session begins or is refused.
//!
//! The final response waits until the targets have said that nothing of an earlier session of the
//! same initiator port is below any more. Errors: a [`LoginStatus`], after which the connection is
//! closed. Units: bytes. Spec: RFC 7143, 6.3, 11.12, 11.13, 13. Not here: what becomes of a key
//! (`negotiation`), whose session it is (`targets`).

use block::Instant;
use block::record::passed;
use contract::Endpoint;
use reservation::PathGroup;
use wire::iscsi::keys::{self, Key, Pair, Pairs};
use wire::iscsi::{Bhs, Digests, LoginFlags, LoginRequest, LoginResponse, LoginStatus, Stage};

use super::receive::{Step, Stream};
use super::{Connection, Context, Reason, State};
use crate::auth;
use crate::limits::{COMMANDS_MAX, LOGIN_REQUESTS_MAX, TEXT_MAX, TEXT_SEGMENT_MAX};
use crate::negotiation::Responder;
use crate::pdu_stream::Violation;
use crate::targets::{Nexus, Opened, Opening, Targets, Wanted};

/// A login under way.
#[derive(Debug)]
pub(super) struct Login {
    since: Instant,
    /// Requests that came.
    requests: u32,
    /// Where it stands.
    stage: Stage,
    /// ISID, TSIH and CID of its first request, which the others repeat.
    identity: Option<([u8; 6], u16, u16)>,
    /// The group of the listener by which it comes.
    group: PathGroup,
    /// What came of a text that goes on in another request.
    text: Vec<u8>,
    /// Bytes of all texts.
    came: usize,
    responder: Responder,
    /// How it proves who it is; from its first text on, which says to whom.
    authentication: Option<auth::Responder>,
    /// Whether TargetPortalGroupTag was told.
    has_told_group: bool,
    /// The request that is answered once the targets have said how it ends, and with what text.
    awaits: Option<(LoginRequest, Vec<u8>)>,
}

impl Login {
    pub(super) fn new(now: Instant) -> Login {
        Login {
            since: now,
            requests: 0,
            stage: Stage::SECURITY,
            identity: None,
            group: PathGroup::DEFAULT,
            text: Vec::new(),
            came: 0,
            responder: Responder::new(),
            authentication: None,
            has_told_group: false,
            awaits: None,
        }
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it waits for the targets.
    pub(super) fn is_with_targets(&self) -> bool {
        self.awaits.is_some()
    }

    /// Checks a request against those before it.
    fn check(&mut self, request: &LoginRequest) -> Result<(), LoginStatus> {
        self.requests += 1;
        if request.version_min > 0 {
            return Err(LoginStatus::UNSUPPORTED_VERSION);
        }
        if request.check().is_err() || self.requests > LOGIN_REQUESTS_MAX {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        let identity = (request.isid, request.tsih, request.cid);
        if self.identity.is_none() {
            // A host may leave the security stage out.
            self.stage = request.flags.current();
        }
        if *self.identity.get_or_insert(identity) != identity
            || request.flags.current() != self.stage
        {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        Ok(())
    }

    /// Takes the keys of a whole text; what is to be answered.
    fn negotiate(
        &mut self,
        endpoint: &Endpoint,
        targets: &mut Targets,
    ) -> Result<Vec<u8>, LoginStatus> {
        let text = core::mem::take(&mut self.text);
        let is_first = self.authentication.is_none();
        let pairs: Result<Vec<Pair<'_>>, _> = Pairs::new(&text).collect();
        let mut pairs = pairs.map_err(|_| LoginStatus::INITIATOR_ERROR)?;
        // Which keys mean something depends on this one.
        pairs.sort_by_key(|pair| pair.key != Key::SessionType.name());
        let mut answers = Vec::new();
        let is_security = |key| self.stage == Stage::SECURITY && auth::is_key(key);
        let (proofs, others): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|pair| is_security(pair.key));
        for Pair { key, value } in others {
            // Who has to prove what to whom is decided by the first text.
            if !is_first && Key::from_name(key).is_some_and(says_whose) {
                return Err(LoginStatus::INITIATOR_ERROR);
            }
            self.responder.take(key, value, &mut answers)?;
        }
        self.check_names()?;
        self.authenticate(&proofs, &mut answers, (endpoint, targets))?;
        if !self.has_told_group && !self.responder.is_discovery() {
            self.has_told_group = true;
            keys::push(&mut answers, Key::TargetPortalGroupTag.name(), self.group);
        }
        if self.stage == Stage::OPERATIONAL {
            self.responder.declare(&mut answers);
        }
        // They go out in one PDU.
        match answers.len() > TEXT_SEGMENT_MAX as usize {
            true => Err(LoginStatus::INITIATOR_ERROR),
            false => Ok(answers),
        }
    }

    /// Takes what the host says to prove who it is.
    fn authenticate(
        &mut self,
        proofs: &[Pair<'_>],
        answers: &mut Vec<u8>,
        (endpoint, targets): (&Endpoint, &mut Targets),
    ) -> Result<(), LoginStatus> {
        let target = self.responder.target().filter(|_| !self.responder.is_discovery());
        let host = self.responder.initiator();
        let authentication = self
            .authentication
            .get_or_insert_with(|| targets.authentication(endpoint.listener, target, host));
        let failed = LoginStatus::AUTHENTICATION_FAILURE;
        let answered = match self.stage {
            Stage::SECURITY => {
                for Pair { key, value } in proofs {
                    authentication.take(key, value)?;
                }
                authentication.answer(answers)
            }
            _ => {
                if authentication.is_done() {
                    Ok(())
                } else {
                    Err(failed)
                }
            }
        };
        if let (Err(status), Some(host)) = (answered, host)
            && status == failed
        {
            targets.not_proved(host, target, endpoint.peer, authentication.refusal());
        }
        answered
    }

    /// Whether there is nothing left to prove.
    fn is_proved(&self) -> bool {
        self.authentication.as_ref().is_some_and(auth::Responder::is_done)
    }

    /// The first text says who wants what.
    fn check_names(&self) -> Result<(), LoginStatus> {
        let is_whole = self.responder.initiator().is_some()
            && (self.responder.is_discovery() || self.responder.target().is_some());
        if is_whole { Ok(()) } else { Err(LoginStatus::MISSING_PARAMETER) }
    }

    /// The session that is asked for; none for discovery.
    fn wanted(&self) -> Option<Wanted> {
        let (isid, tsih, cid) = self.identity?;
        let initiator = self.responder.initiator()?.clone();
        let target = self.responder.target().filter(|_| !self.responder.is_discovery())?.clone();
        Some(Wanted { nexus: Nexus { initiator, isid, target, group: self.group }, tsih, cid })
    }
}

/// Whether a key says who wants to begin a session of which kind, and with whom.
fn says_whose(key: Key) -> bool {
    matches!(key, Key::SessionType | Key::InitiatorName | Key::TargetName)
}

impl Connection {
    /// A login request, all of it; `length` bytes of the stream.
    pub(super) fn login(
        &mut self,
        request: &LoginRequest,
        data: &[u8],
        length: usize,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let endpoint = self.endpoint;
        let State::Login(login) = &mut self.state else {
            return Err(Violation::protocol("login comes once"));
        };
        if login.identity.is_none() {
            self.group = ctx.shared.group_of(endpoint.listener);
            login.group = self.group;
            let numbers = &mut self.outbox.numbers;
            numbers.exp_cmd_sn = request.cmd_sn;
            numbers.max_cmd_sn = request.cmd_sn.wrapping_add(COMMANDS_MAX - 1);
            numbers.told_max_cmd_sn = numbers.max_cmd_sn;
            numbers.stat_sn = request.exp_stat_sn;
        }
        let taken = login.check(request).and_then(|()| {
            login.came += data.len();
            if login.came > TEXT_MAX {
                return Err(LoginStatus::INITIATOR_ERROR);
            }
            login.text.extend_from_slice(data);
            match request.flags.is_continue() {
                true => Ok(None),
                false => login.negotiate(&endpoint, ctx.shared).map(Some),
            }
        });
        match taken {
            Ok(None) => {
                let stay = LoginFlags::stay(request.flags.current());
                self.respond_login(request, stay, request.tsih, &[]);
            }
            Ok(Some(answers)) => self.go_on_with_login(request, answers, ctx),
            Err(status) => self.end_login(request, status, ctx),
        }
        Ok(match self.intake.stream {
            _ if !self.is_open() => Step::End,
            Stream::Halted => Step::Halt(length),
            _ => Step::Consumed(length),
        })
    }

    /// A text was negotiated: the login stays in its stage, goes to the next or is over.
    fn go_on_with_login(
        &mut self,
        request: &LoginRequest,
        answers: Vec<u8>,
        ctx: &mut Context<'_>,
    ) {
        let State::Login(login) = &mut self.state else { return };
        let flags = request.flags;
        if !flags.is_transit() || !login.is_proved() {
            return self.respond_login(
                request,
                LoginFlags::stay(flags.current()),
                request.tsih,
                &answers,
            );
        }
        if flags.next() != Stage::FULL_FEATURE {
            login.stage = flags.next();
            let flags = LoginFlags::transit(flags.current(), flags.next());
            return self.respond_login(request, flags, request.tsih, &answers);
        }
        let Some(wanted) = login.wanted() else {
            return self.begin_session(request, &answers, None);
        };
        login.awaits = Some((*request, answers));
        let (place, peer) = (self.place(), self.endpoint.peer);
        match ctx.shared.open(ctx.now, place, peer, wanted) {
            Opening::Now(opened) => self.handle_opened(opened, ctx),
            Opening::Later => self.intake.stream = Stream::Halted,
        }
    }

    /// The targets have said how a login ends.
    pub(super) fn handle_opened(
        &mut self,
        opened: Result<Opened, LoginStatus>,
        ctx: &mut Context<'_>,
    ) {
        let State::Login(login) = &mut self.state else {
            // It has ended meanwhile: so does what was opened for it.
            if let Ok(Opened { handle, .. }) = opened {
                ctx.shared.session_ends(handle, "its connection was closed or lost");
                ctx.shared.session_drained(handle);
            }
            return;
        };
        let (request, answers) = login.awaits.take().expect("a login that waits is answered");
        match opened {
            Ok(opened) => {
                self.registrant = ctx.shared.registrant(opened.handle);
                self.begin_session(&request, &answers, Some(opened));
            }
            Err(status) => self.end_login(&request, status, ctx),
        }
        if self.intake.stream == Stream::Halted {
            self.resume(ctx.now);
        }
    }

    /// The login is over: the full feature phase begins behind its final response.
    fn begin_session(&mut self, request: &LoginRequest, answers: &[u8], opened: Option<Opened>) {
        let State::Login(login) = &mut self.state else { return };
        let responder = core::mem::take(&mut login.responder);
        self.parameters = responder.parameters();
        self.cid = request.cid;
        // A session of discovery is known by no number, but it must have one.
        let tsih = opened.map_or(1, |opened| opened.tsih);
        let flags = LoginFlags::transit(request.flags.current(), Stage::FULL_FEATURE);
        self.respond_login(request, flags, tsih, answers);
        self.state = State::Session(opened.map(|opened| opened.handle));
        self.outbox.segment_max = self.parameters.peer_segment;
        self.outbox.burst_max = self.parameters.max_burst;
        self.outbox.digests =
            Digests { header: self.parameters.header_digest, data: self.parameters.data_digest };
        self.keep_negotiation(responder);
    }

    fn respond_login(&mut self, request: &LoginRequest, flags: LoginFlags, tsih: u16, text: &[u8]) {
        let numbers = self.outbox.numbers.of_status();
        let response = LoginResponse::new(request, flags, tsih, text.len() as u32, numbers);
        self.outbox.push(&response.emit(), text);
    }

    fn end_login(&mut self, request: &LoginRequest, status: LoginStatus, ctx: &mut Context<'_>) {
        passed("status", status.name().unwrap_or_default());
        let numbers = self.outbox.numbers.of_status();
        self.outbox.push(&LoginResponse::refused(request, status, 0, numbers).emit(), &[]);
        self.end_after_send(Reason::Refused(status), ctx);
    }

    /// Refuses what is not even a login request.
    pub(super) fn refuse_login(&mut self, status: LoginStatus, pdu: &[u8]) {
        let mut header = [0; Bhs::SIZE];
        let length = pdu.len().min(Bhs::SIZE);
        header[..length].copy_from_slice(&pdu[..length]);
        let request = LoginRequest::parse(&header).unwrap_or_default();
        let numbers = self.outbox.numbers.of_status();
        self.outbox.push(&LoginResponse::refused(&request, status, 0, numbers).emit(), &[]);
    }
}
