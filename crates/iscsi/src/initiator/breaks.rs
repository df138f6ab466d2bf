//! How a session ends, whatever the reason, and when the next one begins: its connection is closed,
//! and when the driver has said so, the requests that were under way by it are decided about
//! (`remote::Disk`) and its port rests before it comes again. The sessions of other ports go on, and
//! take what waits: reads of the broken one at once, its writes when their doubt is over.
//!
//! **When a write in doubt may be asked again**: what a session left at its target is ended when
//! its initiator port logs in again (RFC 7143, 6.3.5). A target of ours answers that login only
//! when nothing of the old session is carried out any more, so it is over then; of others this is
//! not known, and the quiesce time has to pass, counted from the moment the connection was closed.
//! The login of another port ends nothing. DefaultTime2Wait, which is to spare a target a login
//! before it has noticed the break, is not waited for: what is retained of a session, which is
//! nothing, that login ends.
//!
//! **Flushes** are in doubt when the eldest session has ended, by which they go: see
//! [`Initiator::eldest`]. As long as it stands, the target was not started anew.
//!
//! Errors: all of them end here. Times: shard clock; half of a rest is jitter.

use core::time::Duration;

use block::Instant;
use contract::{ConnectionId, Direct, Loss, SendBatch};
use remote::{InitiatorNews, Reach, backoff};

use super::Initiator;
use super::framing::{Fault, Socket};
use super::port::{Port, State};
use crate::limits::{REST_FIRST, REST_MAX};

impl Initiator {
    /// A connection that was asked for could not be had.
    pub fn handle_connect_failed(&mut self, now: Instant, token: u32, error: i32) {
        let Some(at) = self.asked_for(token) else { return };
        self.ports[at].session.framing.socket = Socket::Absent;
        let reason = std::io::Error::from_raw_os_error(error);
        self.give_up(now, at, format!("no connection: {reason}"));
        self.end_of_break(now, at);
    }

    /// A connection carries nothing more.
    pub fn handle_lost(&mut self, now: Instant, connection: ConnectionId, loss: Loss) {
        let is_open = |at: &usize| self.ports[*at].session.framing.is_open();
        let Some(at) = self.port_of(connection).filter(is_open) else { return };
        self.give_up(now, at, loss.of_target());
    }

    /// A connection is gone, and what was lent to it is back.
    pub fn handle_closed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Option<Direct>,
        batch: Option<SendBatch>,
    ) {
        let owner = self.port_of(connection);
        let at = owner.unwrap_or_else(|| panic!("{connection} is of another initiator"));
        let lost = self.ports[at].session.handle_closed(direct, batch, &mut self.disk);
        self.disk.recover(now, lost);
        self.end_of_break(now, at);
    }

    /// Ends a port's session for this reason.
    pub(super) fn give_up(&mut self, now: Instant, at: usize, why: impl Into<String>) {
        self.break_off(now, at, &Fault::Reason(why.into()));
    }

    /// Ends a port's session: the connection is closed.
    #[cold]
    pub(super) fn break_off(&mut self, now: Instant, at: usize, fault: &Fault) {
        let port = &mut self.ports[at];
        if matches!(port.state, State::Resting { .. } | State::Breaking { .. } | State::Gone) {
            return;
        }
        let moved_to = match fault {
            Fault::Moved(address) if port.moved_to.is_none() => Some(*address),
            _ => None,
        };
        port.fault = match fault {
            Fault::Moved(_) if moved_to.is_none() => "the target moved twice".to_owned(),
            fault => fault.to_string(),
        };
        port.moved_to = moved_to;
        port.state = State::Breaking { follows: moved_to.is_some() };
        self.tell_of_break(at, matches!(fault, Fault::Final(_)));
        let session = &mut self.ports[at].session;
        session.claim_changes(&mut self.disk);
        session.drop_gathering(&mut self.disk);
        match session.framing.socket {
            Socket::Open(connection) => {
                let close = session.framing.close(connection);
                self.effects.push_back(close);
            }
            Socket::Asked { token, .. } => {
                session.framing.socket = Socket::Asked { token, unwanted: true };
            }
            Socket::Absent | Socket::Closing(_) => {}
        }
        self.end_of_break(now, at);
    }

    /// What people hear of a session that has ended or was not to be had: that the disk is lost, if
    /// it was the last one, else once of the session.
    fn tell_of_break(&mut self, at: usize, is_final: bool) {
        let address = self.ports[at].address(&self.settings);
        self.is_whole = false;
        if !self.ports.iter().any(Port::is_live) {
            self.disk.presence.fault = self.ports[at].fault.clone();
            self.disk.presence.is_refused = is_final;
            return self.disk.lost();
        }
        let (number, all) = (at + 1, self.ports.len());
        let port = &mut self.ports[at];
        // A port that is sent elsewhere is not given up.
        if matches!(port.state, State::Breaking { follows: false }) && !port.is_missed {
            port.is_missed = true;
            let why = &port.fault;
            let words = format!("session {number} of {all} with {address} is missing: {why}");
            if !self.disk.presence.is_closing() {
                self.disk.presence.news.push_back(InitiatorNews::WayLost(words));
            }
        }
        self.look_for_unit();
    }

    /// The disk is gone if none of the sessions that stand has a unit any more.
    pub(super) fn look_for_unit(&mut self) {
        if self.ports.iter().any(Port::has_unit) || self.disk.presence.reach() != Reach::Here {
            return;
        }
        if let Some(port) = self.ports.iter().find(|port| port.is_live()) {
            self.disk.gone(port.fault.clone());
        }
    }

    /// Whether the connection of a broken session is gone; then its port rests.
    fn end_of_break(&mut self, now: Instant, at: usize) {
        let State::Breaking { follows } = self.ports[at].state else { return };
        if self.ports[at].session.framing.socket != Socket::Absent {
            return;
        }
        self.disk.closed(now + self.settings.quiesce);
        let was_eldest = self.eldest() == Some(at);
        if self.ports[at].stands_since.take().is_some() && was_eldest {
            self.disk.doubt_flushes(self.shared);
        }
        let port = &mut self.ports[at];
        if self.disk.presence.is_closing() {
            port.state = State::Gone;
            return;
        }
        if follows {
            return self.open(at);
        }
        let full = backoff(REST_FIRST, port.attempts, REST_MAX).as_nanos() as u64;
        let rest = full / 2 + self.random.below(full / 2 + 1);
        port.attempts = port.attempts.wrapping_add(1);
        port.address_at = port.address_at.wrapping_add(1);
        port.state = State::Resting { until: now + Duration::from_nanos(rest) };
    }

    /// Whose connection was asked for with this token.
    pub(super) fn asked_for(&self, token: u32) -> Option<usize> {
        self.ports.iter().position(|port| {
            matches!(port.session.framing.socket, Socket::Asked { token: asked, .. } if asked == token)
        })
    }
}
