//! How an association ends, whatever the reason, and when the next one begins: every connection is
//! closed, and when the driver has said so of the last one, the requests that were under way are
//! decided about (`remote::Disk`) and the initiator rests before it comes again.
//!
//! Errors: all of them end here. Times: shard clock; half of a rest is jitter.

use core::time::Duration;

use block::Instant;
use contract::{ConnectionId, Direct, Loss, SendBatch, StreamEffect};
use remote::backoff;

use super::framing::{Fault, Framing, Socket};
use super::{Initiator, State, framings};
use crate::limits::{REST_FIRST, REST_MAX};

impl Initiator {
    /// A connection that was asked for could not be had.
    pub fn handle_connect_failed(&mut self, now: Instant, token: u32, error: i32) {
        let Some(framing) = self.asked_for(token) else { return };
        framing.socket = Socket::Absent;
        let reason = std::io::Error::from_raw_os_error(error);
        self.give_up(now, format!("no connection: {reason}"));
        self.end_of_break(now);
    }

    /// A connection carries nothing more.
    pub fn handle_lost(&mut self, now: Instant, connection: ConnectionId, loss: Loss) {
        if !self.framings().any(|framing| framing.is(connection) && framing.is_open()) {
            return;
        }
        if matches!(self.state, State::Resetting { .. }) && !self.admin.framing.is(connection) {
            // As was asked for. It is closed with the others.
            return;
        }
        self.give_up(now, loss.of_target());
    }

    /// A connection is gone, and what was lent to it is back.
    pub fn handle_closed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Option<Direct>,
        batch: Option<SendBatch>,
    ) {
        match self.queue_of(connection) {
            Some(index) => {
                let lost = self.queues[index].handle_closed(direct, batch, &mut self.disk);
                self.disk.recover(now, lost);
            }
            None => self.admin.handle_closed(batch),
        }
        self.end_of_break(now);
    }

    /// Ends the association for this reason.
    pub(super) fn give_up(&mut self, now: Instant, why: impl Into<String>) {
        self.break_off(now, None, &Fault::Reason(why.into()));
    }

    /// Ends the association: every connection is closed. `culprit` is the one whose peer is told of
    /// its violation.
    #[cold]
    pub(super) fn break_off(&mut self, now: Instant, culprit: Option<ConnectionId>, fault: &Fault) {
        if matches!(self.state, State::Resting { .. } | State::Breaking { .. } | State::Gone) {
            return;
        }
        let drained = match fault {
            // Why the controller was reset was told before.
            Fault::Reset { drained } => *drained,
            fault => {
                self.disk.presence.fault = fault.to_string();
                self.disk.presence.is_refused = matches!(fault, Fault::Final(_));
                false
            }
        };
        self.state = State::Breaking { drained };
        self.disk.lost();
        for queue in &mut self.queues {
            queue.drop_gathering(&mut self.disk);
        }
        self.admin.framing.drop_gathering(|_, _| {});
        for framing in framings(&mut self.admin, &mut self.queues) {
            match framing.socket {
                Socket::Open(connection) => {
                    let told = match fault {
                        Fault::Violation(violation) if culprit == Some(connection) => {
                            framing.term_batch(now, violation)
                        }
                        _ => None,
                    };
                    let close = framing.close(connection, told.is_some());
                    let told = told.map(|batch| StreamEffect::Send { connection, batch });
                    self.effects.extend(told.into_iter().chain([close]));
                }
                Socket::Asked { token, .. } => {
                    framing.socket = Socket::Asked { token, unwanted: true };
                }
                Socket::Absent | Socket::Closing(_) => {}
            }
        }
        self.end_of_break(now);
    }

    /// Whether the last connection of a broken association is gone; then it rests.
    fn end_of_break(&mut self, now: Instant) {
        let State::Breaking { drained } = self.state else { return };
        if self.framings().any(|framing| framing.socket != Socket::Absent) {
            return;
        }
        let quiesce = if drained { Duration::ZERO } else { self.settings.quiesce };
        self.disk.all_closed(now + quiesce, self.shared);
        if self.disk.presence.is_closing() {
            self.state = State::Gone;
            return;
        }
        let full = backoff(REST_FIRST, self.attempts, REST_MAX).as_nanos() as u64;
        let rest = full / 2 + self.random.below(full / 2 + 1);
        self.attempts = self.attempts.wrapping_add(1);
        self.address_at = self.address_at.wrapping_add(1);
        self.state = State::Resting { until: now + Duration::from_nanos(rest) };
    }

    fn framings(&self) -> impl Iterator<Item = &Framing> {
        core::iter::once(&self.admin.framing).chain(self.queues.iter().map(|queue| &queue.framing))
    }

    /// Whose connection was asked for with this token.
    pub(super) fn asked_for(&mut self, token: u32) -> Option<&mut Framing> {
        framings(&mut self.admin, &mut self.queues).find(
            |framing| matches!(framing.socket, Socket::Asked { token: asked, .. } if asked == token),
        )
    }
}
