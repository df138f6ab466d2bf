//! One of our initiator ports (a name and an ISID), and the session that it has with the target or
//! seeks. A disk has one or several; none of them knows of the others.
//!
//! ```text
//!   unopened (until the first port's session stood)
//!      |
//!   resting --> opening --> logging in --> identifying --> live --> leaving
//!      ^        (connect)   (security,     (INQUIRY, ...)    |       (logout)
//!      |                     operational)                    |
//!      +-- when the driver has closed the connection -- breaking <-- a fault anywhere
//! ```
//! A port logs in with the ISID that it always had, so that its target ends what its last session
//! left (reinstatement). What a port does is done by `Initiator` ([`bring_up`](super::bring_up),
//! [`breaks`](super::breaks)); here is what it holds and what follows from that alone. Times: shard
//! clock. Spec: RFC 7143, 4.4.3, 6.3.5, 11.12.5.

use core::time::Duration;
use std::net::SocketAddr;

use block::Instant;
use wire::scsi::Lun;

use super::Settings;
use super::bring_up::Identifying;
use super::facts::Limits;
use super::framing::Socket;
use super::liveness::Silences;
use super::login::Who;
use super::session::Session;
use crate::auth::Challenges;
use crate::limits::UNIT_CHECK;

/// How far a session is; see the diagram above.
#[derive(Debug)]
pub(super) enum State {
    /// The disk was never there, and the first port looks for it.
    Unopened,
    /// There is none, until the next attempt.
    Resting {
        until: Instant,
    },
    /// The connection is asked for.
    Opening,
    LoggingIn {
        by: Instant,
    },
    Identifying {
        identifying: Identifying,
        by: Instant,
    },
    Live(Live),
    /// The target is told that we leave.
    Leaving {
        by: Instant,
    },
    /// A fault was found, and is about to be broken off for.
    Failed,
    /// The connection is being closed. `follows`: the next one is asked for at once, where the
    /// target moved to.
    Breaking {
        follows: bool,
    },
    Gone,
}

/// A session that stands.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) limits: Limits,
    /// Whether the target is one of ours, whose word counts.
    pub(super) is_ours: bool,
    pub(super) unit: Unit,
    /// The target wants us to log out by then.
    pub(super) leave_by: Option<Instant>,
}

/// What is known of the unit while the session stands. Only one that was identified and has not
/// changed since gets commands: another one under its number would take them for its own.
#[derive(Debug)]
pub(super) enum Unit {
    Known,
    /// It changed. What was sent before may still be on its way, so who it is is asked once all of
    /// that is answered: a target may let nothing through until it was asked (ours does), and what
    /// comes late must not profit from that.
    Changed,
    /// It is being identified; `again`: it changed once more meanwhile.
    Asked {
        identifying: Identifying,
        again: bool,
    },
    /// There is none any more: the session takes no requests until there is one again.
    Gone,
}

impl Live {
    /// When the unit is asked whether there is something to know.
    pub(super) fn check_at(&self, session: &Session) -> Instant {
        session.sent + UNIT_CHECK
    }

    #[inline]
    fn poll_timeout(&self, session: &Session) -> Option<Instant> {
        if self.leave_by.is_some() {
            return self.leave_by;
        }
        let is_idle = matches!(self.unit, Unit::Known | Unit::Gone);
        let checks = is_idle && session.question().is_none();
        checks.then(|| self.check_at(session))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) state: State,
    pub(super) session: Session,
    pub(super) isid: [u8; 6],
    /// Of these come the challenges for the target, if it has to prove something.
    challenges: Option<Challenges>,
    pub(super) silences: Silences,
    /// Attempts since a session stood, and which address is tried.
    pub(super) attempts: u32,
    pub(super) address_at: usize,
    /// Where the target said to go instead.
    pub(super) moved_to: Option<SocketAddr>,
    /// How many sessions stood when the one that stands, or is being broken, began to.
    pub(super) stands_since: Option<u64>,
    /// Why it has no session, or no unit; empty while there was no reason.
    pub(super) fault: String,
    /// People were told that it has none, while others have.
    pub(super) is_missed: bool,
}

impl Port {
    /// The port of this number, from 0 on, which does nothing yet.
    pub(super) fn new(settings: &Settings, number: u16) -> Port {
        let isid = settings.isid_of(number);
        let challenges = settings.auth.as_ref().map(|auth| auth.challenges.of(&isid));
        Port {
            state: State::Unopened,
            session: session_of(settings, Socket::Absent),
            isid,
            challenges,
            silences: Silences::default(),
            attempts: 0,
            address_at: 0,
            moved_to: None,
            stands_since: None,
            fault: String::new(),
            is_missed: false,
        }
    }

    /// Begins a session whose connection was asked for with this token.
    pub(super) fn open(&mut self, settings: &Settings, token: u32) {
        self.session = session_of(settings, Socket::Asked { token, unwanted: false });
        self.state = State::Opening;
    }

    /// Where the target is sought.
    pub(super) fn address(&self, settings: &Settings) -> SocketAddr {
        let addresses = &settings.addresses;
        self.moved_to.unwrap_or(addresses[self.address_at % addresses.len()])
    }

    /// Who logs in. Every login has a challenge of its own.
    pub(super) fn who(&mut self, settings: &Settings) -> Who {
        let logins = settings.auth.as_ref().zip(self.challenges.as_mut());
        Who {
            initiator: settings.initiator.clone(),
            target: Some(settings.target.clone()),
            isid: self.isid,
            digests: settings.digests,
            auth: logins.map(|(auth, challenges)| (auth.login.clone(), challenges.make())),
        }
    }

    /// Whether its session stands.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }

    /// Whether its session stands, and the unit is there as far as it knows.
    pub(super) fn has_unit(&self) -> bool {
        matches!(&self.state, State::Live(live) if !matches!(live.unit, Unit::Gone))
    }

    /// Whether requests become commands of its session, and nothing else is to be done.
    #[inline]
    pub(super) fn takes_requests(&self) -> bool {
        matches!(self.state, State::Live(Live { unit: Unit::Known, leave_by: None, .. }))
    }

    /// Whether it takes a command of a job now.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.takes_requests() && self.session.has_room()
    }

    /// When it wants to be woken.
    #[inline]
    pub(super) fn poll_timeout(&self, keep_alive: Duration) -> Option<Instant> {
        let own = match &self.state {
            State::Resting { until } => Some(*until),
            State::LoggingIn { by } | State::Identifying { by, .. } | State::Leaving { by } => {
                Some(*by)
            }
            State::Live(live) => live.poll_timeout(&self.session),
            _ => None,
        };
        let quiet = match self.session.framing.is_open() {
            true => self.session.quiet_at(keep_alive, self.silences.slack()),
            false => None,
        };
        Instant::earliest(own, Instant::earliest(self.session.poll_timeout(), quiet))
    }
}

/// A session that begins.
fn session_of(settings: &Settings, socket: Socket) -> Session {
    Session::new(Lun::of(settings.lun).0, settings.depth, socket)
}
