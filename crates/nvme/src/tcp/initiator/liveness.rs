//! The liveness probe of I/O queues: one whose connection carries nothing any more, and nobody says
//! so, is found and given up.
//!
//! Keep Alive exists on admin queues only, and a command may take as long as its disk does. So a
//! queue on which something is asked and nothing was heard for
//! [`QUEUE_QUIET`](crate::limits::QUEUE_QUIET) is sent a probe that takes no disk: a Property Get,
//! which belongs on admin queues and is refused at once. Any byte is a sign of life. A queue that
//! stays silent for [`QUEUE_SILENT`](crate::limits::QUEUE_SILENT) more ends the association, in
//! order, over the admin queue, which is well:
//!
//! ```text
//!   live --> resetting: CC.EN=0 --> answered, CSTS.RDY=0 --> breaking (nothing of the old queues is carried out any more)
//!                 `---------------> no answer, or the admin queue breaks too --> breaking (known after the quiesce time)
//! ```
//! Why a reset: it is the one thing that a target answers *after* the commands of the silent queue
//! are over, so that writes in doubt are asked again at once and not only after the quiesce time;
//! from targets that answer sooner it is not believed. A silence soon after another doubles how
//! long queues may be quiet: a target that is too slow for all is not helped by reconnects. Times:
//! shard clock. Spec: NVMe base, "Controller Level Reset", "Property Get".

use block::Instant;
use wire::nvme::Command;
use wire::nvme::fabrics::{Configuration, ControllerStatus, Register};

use super::admin::Reply;
use super::framing::Fault;
use super::{Initiator, State};
use crate::limits::{HANDSHAKE, SILENCE_AGAIN, SILENCE_DOUBLINGS_MAX};

/// The silences of late.
#[derive(Debug, Default)]
pub(super) struct Silences {
    last: Option<Instant>,
    doublings: u32,
}

impl Silences {
    /// How many times the usual a queue may be quiet.
    #[inline]
    pub(super) fn slack(&self) -> u32 {
        1 << self.doublings
    }

    fn note(&mut self, now: Instant) {
        self.forget(now);
        let again = u32::from(self.last.is_some());
        self.doublings = (self.doublings + again).min(SILENCE_DOUBLINGS_MAX);
        self.last = Some(now);
    }

    fn forget(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.since(last) > SILENCE_AGAIN * self.slack()) {
            *self = Silences::default();
        }
    }
}

/// How far the reset of a controller is.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResetStep {
    /// Another question is under way: the admin queue has one at a time.
    Waiting,
    Disable,
    Disabled,
}

impl Initiator {
    /// Probes quiet queues, and gives the association up if one is silent.
    pub(super) fn probe(&mut self, now: Instant) {
        let State::Live(live) = &self.state else { return };
        self.silences.forget(now);
        let slack = self.silences.slack();
        // All of them: a probe that was not sent when it was due would be sent at every turn.
        let mut silent = None;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if queue.probe(now, slack) {
                silent = silent.or(Some(index + 1));
            }
        }
        let Some(number) = silent else { return };
        self.silences.note(now);
        let drains = live.controller.drains_at_reset();
        let step = match self.admin.question() {
            Some(_) => ResetStep::Waiting,
            None => self.disable(now),
        };
        self.admin.end_keep_alive();
        self.state = State::Resetting { step, drains };
        self.disk.presence.fault = format!("I/O queue {number} is silent");
        self.disk.lost();
    }

    fn disable(&mut self, now: Instant) -> ResetStep {
        let value = Configuration::default().with_iosqes(6).with_iocqes(4);
        let command = Command::property_set(Register::CC.0, value.0);
        self.admin.ask(now, "Property Set CC (reset)", command, &[]);
        ResetStep::Disable
    }

    /// An answer while the controller is being reset. The last one ends in a break; `drains` tells
    /// whether it is believed.
    pub(super) fn reset_on(
        &mut self,
        now: Instant,
        step: ResetStep,
        drains: bool,
        reply: &Reply,
    ) -> Result<State, Fault> {
        let answered = reply.status.is_success();
        let is_over = answered && !ControllerStatus(reply.result as u32).ready();
        let step = match step {
            ResetStep::Waiting => self.disable(now),
            ResetStep::Disable if answered => {
                let what = "Property Get CSTS (waiting for a reset)";
                self.admin.await_ready(what, false, now + HANDSHAKE);
                ResetStep::Disabled
            }
            ResetStep::Disable => return Err(Fault::Reset { drained: false }),
            ResetStep::Disabled => return Err(Fault::Reset { drained: drains && is_over }),
        };
        Ok(State::Resetting { step, drains })
    }
}
