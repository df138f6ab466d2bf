//! How a session ends, whatever the reason, and when the next one begins: its connection is closed,
//! and when the driver has said so, the requests that were under way are decided about
//! (`remote::Disk`) and the initiator rests before it comes again.
//!
//! **When a write in doubt may be asked again**: what a session left at its target is ended when
//! its initiator port logs in again (RFC 7143, 6.3.5). A target of ours answers that login only
//! when nothing of the old session is carried out any more, so it is over then; of others this is
//! not known, and the quiesce time has to pass. DefaultTime2Wait, which is to spare a target a login
//! before it has noticed the break, is not waited for: what is retained of a session, which is
//! nothing, that login ends.
//!
//! Errors: all of them end here. Times: shard clock; half of a rest is jitter.

use core::time::Duration;

use block::Instant;
use contract::{ConnectionId, Direct, Loss, SendBatch};
use remote::backoff;

use super::framing::{Fault, Socket};
use super::{Initiator, State};
use crate::limits::{REST_FIRST, REST_MAX};

impl Initiator {
    /// A connection that was asked for could not be had.
    pub fn handle_connect_failed(&mut self, now: Instant, token: u32, error: i32) {
        if !self.asked_for(token) {
            return;
        }
        self.session.framing.socket = Socket::Absent;
        let reason = std::io::Error::from_raw_os_error(error);
        self.give_up(now, format!("no connection: {reason}"));
        self.end_of_break(now);
    }

    /// A connection carries nothing more.
    pub fn handle_lost(&mut self, now: Instant, connection: ConnectionId, loss: Loss) {
        let framing = &self.session.framing;
        if !framing.is(connection) || !framing.is_open() {
            return;
        }
        let why = match loss {
            Loss::EndOfStream => "the target closed the connection".to_owned(),
            Loss::Error(error) => {
                format!("the connection broke: {}", std::io::Error::from_raw_os_error(error))
            }
        };
        self.give_up(now, why);
    }

    /// A connection is gone, and what was lent to it is back.
    pub fn handle_closed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Option<Direct>,
        batch: Option<SendBatch>,
    ) {
        assert!(self.owns(connection), "{connection} is of another initiator");
        let lost = self.session.handle_closed(direct, batch, &mut self.disk);
        self.disk.recover(now, lost);
        self.end_of_break(now);
    }

    /// Ends the session for this reason.
    pub(super) fn give_up(&mut self, now: Instant, why: impl Into<String>) {
        self.break_off(now, &Fault::Reason(why.into()));
    }

    /// Ends the session: the connection is closed.
    #[cold]
    pub(super) fn break_off(&mut self, now: Instant, fault: &Fault) {
        if matches!(self.state, State::Resting { .. } | State::Breaking { .. } | State::Gone) {
            return;
        }
        let moved_to = match fault {
            Fault::Moved(address) if self.moved_to.is_none() => Some(*address),
            _ => None,
        };
        self.disk.presence.fault = match fault {
            Fault::Moved(_) if moved_to.is_none() => "the target moved twice".to_owned(),
            fault => fault.to_string(),
        };
        self.disk.presence.is_refused = matches!(fault, Fault::Final(_));
        self.moved_to = moved_to;
        self.state = State::Breaking { follows: moved_to.is_some() };
        self.disk.lost();
        self.session.drop_gathering(&mut self.disk);
        match self.session.framing.socket {
            Socket::Open(connection) => {
                let close = self.session.framing.close(connection);
                self.effects.push_back(close);
            }
            Socket::Asked { token, .. } => {
                self.session.framing.socket = Socket::Asked { token, unwanted: true };
            }
            Socket::Absent | Socket::Closing(_) => {}
        }
        self.end_of_break(now);
    }

    /// Whether the connection of a broken session is gone; then it rests.
    fn end_of_break(&mut self, now: Instant) {
        let State::Breaking { follows } = self.state else { return };
        if self.session.framing.socket != Socket::Absent {
            return;
        }
        self.disk.all_closed(now + self.settings.quiesce, self.shared);
        if self.disk.presence.is_closing() {
            self.state = State::Gone;
            return;
        }
        if follows {
            return self.open();
        }
        let full = backoff(REST_FIRST, self.attempts, REST_MAX).as_nanos() as u64;
        let rest = full / 2 + self.random.below(full / 2 + 1);
        self.attempts = self.attempts.wrapping_add(1);
        self.address_at = self.address_at.wrapping_add(1);
        self.state = State::Resting { until: now + Duration::from_nanos(rest) };
    }

    /// Whether the connection was asked for with this token.
    pub(super) fn asked_for(&self, token: u32) -> bool {
        matches!(self.session.framing.socket, Socket::Asked { token: asked, .. } if asked == token)
    }
}
