//! Whether the target is there: a session that carries nothing any more, and nobody says so, is
//! found and given up; a task that is late is aborted.
//!
//! A target that said nothing for half of the keep-alive time is asked for a sign of life (NOP-Out,
//! immediate: it takes no place in the command window and no disk). Any byte is one. A target that
//! stays silent for the rest of the time ends the session. A silence soon after another doubles how
//! long it may be quiet: a target that is too slow for all is not helped by reconnects.
//!
//! A task that passes its deadline is aborted (ABORT TASK): a disk that hangs costs its requests,
//! and not the session. The target's word that nothing of it comes any more is taken for what
//! changes nothing, and from our own targets; everything else ends the session, and is in doubt
//! then. Times: shard clock. Spec: RFC 7143, 11.5, 11.18.

use block::{Failure, Instant};

use super::{Initiator, State};
use crate::limits::{SILENCE_AGAIN, SILENCE_DOUBLINGS_MAX};

/// The silences of late.
#[derive(Debug, Default)]
pub(super) struct Silences {
    last: Option<Instant>,
    doublings: u32,
}

impl Silences {
    /// How many times the usual a session may be quiet.
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

impl Initiator {
    /// Asks a quiet target for a sign of life, and gives a silent one up.
    pub(super) fn probe(&mut self, now: Instant) {
        self.silences.forget(now);
        let (keep_alive, slack) = (self.settings.keep_alive, self.silences.slack());
        if self.session.framing.is_open() && self.session.probe(now, keep_alive, slack) {
            self.silences.note(now);
            self.give_up(now, "the target is silent");
        }
    }

    /// Jobs whose time is over: their tasks are aborted, or the session ends.
    pub(super) fn end_late(&mut self, now: Instant, over: Vec<(u32, Failure)>) {
        let State::Live(live) = &self.state else {
            if over.iter().any(|(_, why)| *why == Failure::TimedOut) {
                self.give_up(now, self.late());
            }
            return;
        };
        let is_believed = live.is_ours;
        for (index, why) in over {
            if why != Failure::TimedOut || self.session.abort(now, index, is_believed, &self.disk) {
                continue;
            }
            return self.give_up(now, self.late());
        }
    }

    fn late(&self) -> String {
        format!("a command was not answered within {:?}", self.settings.deadline)
    }
}
