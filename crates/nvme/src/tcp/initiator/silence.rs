//! An I/O queue that goes silent alone: its connection carries nothing any more, and nobody says so.
//!
//! Keep Alive exists on admin queues only, and a command may take as long as its disk does. So a queue on which something is asked and nothing
//! was heard for [`QUEUE_QUIET`](block::limits::QUEUE_QUIET) is asked for a sign of life that takes no disk: a Property Get, which belongs on admin queues
//! and is refused at once. Any byte is a sign. A queue that stays silent for [`QUEUE_SILENT`](block::limits::QUEUE_SILENT) more ends the association, in order,
//! over the admin queue, which is well:
//!
//! ```text
//!   live --> resetting: CC.EN=0 --> answered, CSTS.RDY=0 --> breaking (nothing of the old queues is carried out any more)
//!                 `---------------> no answer, or the admin queue breaks too --> breaking (known after the quiesce time)
//! ```
//! Why a reset: it is the one thing that a target answers *after* the commands of the silent queue are over, so that writes in doubt are
//! asked again at once and not only after the quiesce time; from targets that answer sooner it is not believed.
//! A silence soon after another doubles the patience: a target that is too slow for all is not helped by reconnects.
//! Times: shard clock. Spec: NVMe base, "Controller Level Reset", "Property Get".

use block::Instant;
use block::limits::{HANDSHAKE, SILENCE_AGAIN};
use wire::nvme::Command;
use wire::nvme::fabrics::{Configuration, ControllerStatus, Register};

use super::admin::Reply;
use super::bring_up::{READY_INTERVAL, Step};
use super::link::{Fault, fault};
use super::{Initiator, Phase};

/// Most doublings of the patience: then a silent queue is found by the deadlines of its requests.
const DOUBLINGS: u32 = 3;

/// The silences of late.
#[derive(Debug, Default)]
pub(super) struct Silences {
    last: Option<Instant>,
    doublings: u32,
}

impl Silences {
    /// How many times the usual a queue may be quiet.
    #[inline]
    pub(super) fn patience(&self) -> u32 {
        1 << self.doublings
    }

    fn note(&mut self, now: Instant) {
        self.forget(now);
        let again = u32::from(self.last.is_some());
        self.doublings = (self.doublings + again).min(DOUBLINGS);
        self.last = Some(now);
    }

    fn forget(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.since(last) > SILENCE_AGAIN * self.patience()) {
            *self = Silences::default();
        }
    }
}

impl Initiator {
    /// Asks quiet queues for a sign of life, and gives up the association if one is silent.
    pub(super) fn listen(&mut self, now: Instant) {
        if self.phase != Phase::Live {
            return;
        }
        self.silences.forget(now);
        let patience = self.silences.patience();
        // All of them: a sign of life that was not asked for when it was due would be asked for at every turn.
        let mut silent = None;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if queue.listen(now, patience) {
                silent = silent.or(Some(index + 1));
            }
        }
        if let Some(number) = silent {
            self.silences.note(now);
            self.give_up(now, format!("I/O queue {number} is silent"));
        }
    }

    /// Resets the controller; what follows is a break.
    fn give_up(&mut self, now: Instant, why: String) {
        self.disk.presence.set_fault(why);
        self.disk.lost();
        self.phase = Phase::Resetting;
        self.ask_again_at = None;
        // A step that is under way is waited for: the admin queue has one at a time.
        if self.step.is_none() {
            self.ask_reset(now);
        }
    }

    fn ask_reset(&mut self, now: Instant) {
        self.controller.ready_by = now + HANDSHAKE;
        let value = Configuration::default().with_iosqes(6).with_iocqes(4);
        self.ask(now, Step::Disable, Command::property_set(Register::CC.0, value.0));
    }

    /// Asks whether the reset is over.
    pub(super) fn ask_disabled(&mut self, now: Instant) {
        self.ask(now, Step::Disabled, Command::property_get(Register::CSTS.0, false));
        self.step_by = Some(self.controller.ready_by);
    }

    /// An answer while the controller is being reset. The last one ends in a break.
    pub(super) fn reset_step(
        &mut self,
        now: Instant,
        step: Step,
        reply: &Reply,
    ) -> Result<(), Fault> {
        let answered = reply.status.is_success();
        match step {
            Step::Disable if answered => self.ask_disabled(now),
            Step::Disabled if answered && ControllerStatus(reply.result as u32).ready() => {
                self.step = Some(Step::Disabled);
                self.step_by = Some(self.controller.ready_by);
                self.ask_again_at = Some(now + READY_INTERVAL);
            }
            Step::Disable | Step::Disabled => {
                self.known_dead = answered && self.controller.drains_at_reset();
                return fault(self.disk.presence.fault());
            }
            _ => self.ask_reset(now),
        }
        Ok(())
    }
}
