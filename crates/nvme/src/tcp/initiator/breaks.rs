//! How an association ends, whatever the reason: every connection is closed, and when the driver has said so of the last one, the requests
//! that were under way are decided about ([`jobs`](super::jobs)) and the initiator rests before it comes again.
//!
//! Errors: all of them end here. Times: shard clock; a rest doubles from 100 ms to 10 s, half of it jitter.

use core::time::Duration;

use block::Instant;
use contract::{ConnectionId, Direct, Loss, SendBatch, StreamEffect};

use super::link::{Fault, Link, Socket};
use super::{Initiator, InitiatorNews, Phase};

/// The first rest after a break, and the longest.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);

impl Initiator {
    /// A connection that was asked for could not be had.
    pub fn handle_connect_failed(&mut self, now: Instant, token: u32, error: i32) {
        let asked =
            |link: &&mut Link| matches!(link.socket, Socket::Asked { token: t, .. } if t == token);
        let Some(link) = self.links().find(asked) else { return };
        link.socket = Socket::Absent;
        let reason = std::io::Error::from_raw_os_error(error);
        self.break_off(now, None, &Fault::Reason(format!("no connection: {reason}")));
        self.end_of_break(now);
    }

    /// A connection carries nothing more.
    pub fn handle_lost(&mut self, now: Instant, connection: ConnectionId, loss: Loss) {
        if !self.links().any(|link| link.is(connection) && link.is_open()) {
            return;
        }
        if self.phase == Phase::Resetting && !self.admin.link.is(connection) {
            // As was asked for. It is closed with the others.
            return;
        }
        let why = match loss {
            Loss::EndOfStream => "the target closed the connection".to_owned(),
            Loss::Error(error) => {
                format!("the connection broke: {}", std::io::Error::from_raw_os_error(error))
            }
        };
        self.break_off(now, None, &Fault::Reason(why));
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
                let lost = self.queues[index].handle_closed(direct, batch, &mut self.jobs);
                self.jobs.recover(now, lost);
                self.expire_at = Some(now);
            }
            None => {
                if let Some(batch) = batch {
                    self.admin.link.take_back(batch, |_, _| {});
                }
                self.admin.closed();
            }
        }
        self.end_of_break(now);
    }

    /// Ends the association: every connection is closed. `culprit` is the one whose peer is told of its violation.
    #[cold]
    pub(super) fn break_off(&mut self, now: Instant, culprit: Option<ConnectionId>, fault: &Fault) {
        if matches!(self.phase, Phase::Resting(_) | Phase::Breaking | Phase::Gone) {
            return;
        }
        self.last_fault = fault.to_string();
        if self.phase == Phase::Live && !self.closing {
            self.news.push_back(InitiatorNews::Lost(self.last_fault.clone()));
        }
        self.phase = Phase::Breaking;
        (self.step, self.step_by, self.ask_again_at) = (None, None, None);
        (self.keep_alive_at, self.keep_alive_by) = (None, None);
        for queue in &mut self.queues {
            queue.drop_gathering(&mut self.jobs);
        }
        self.admin.link.drop_gathering(|_, _| {});
        let queues = self.queues.iter_mut().map(|queue| &mut queue.link);
        for link in core::iter::once(&mut self.admin.link).chain(queues) {
            match link.socket {
                Socket::Open(connection) => {
                    let told = match fault {
                        Fault::Violation(violation) if culprit == Some(connection) => {
                            link.term_batch(now, violation)
                        }
                        _ => None,
                    };
                    link.socket = Socket::Closing(connection);
                    let after_send = told.is_some();
                    if let Some(batch) = told {
                        self.effects.push_back(StreamEffect::Send { connection, batch });
                    }
                    self.effects.push_back(StreamEffect::Close { connection, after_send });
                }
                Socket::Asked { token, .. } => {
                    link.socket = Socket::Asked { token, unwanted: true }
                }
                Socket::Absent | Socket::Closing(_) => {}
            }
        }
        self.end_of_break(now);
    }

    /// Whether the last connection of a broken association is gone; then it rests.
    pub(super) fn end_of_break(&mut self, now: Instant) {
        let all_gone = self.links().all(|link| link.socket == Socket::Absent);
        if self.phase != Phase::Breaking || !all_gone {
            return;
        }
        let volatile = self.limits.is_some_and(|limits| limits.volatile);
        let quiesce = if self.known_dead { Duration::ZERO } else { self.settings.quiesce };
        self.jobs.all_closed(now + quiesce, self.shared, volatile);
        if self.closing {
            self.phase = Phase::Gone;
            return;
        }
        let full =
            REST_MIN.saturating_mul(1 << self.attempts.min(10)).min(REST_MAX).as_nanos() as u64;
        let rest = full / 2 + self.random.below(full / 2 + 1);
        self.attempts = self.attempts.wrapping_add(1);
        self.address_at = self.address_at.wrapping_add(1);
        self.phase = Phase::Resting(now + Duration::from_nanos(rest));
    }
}
