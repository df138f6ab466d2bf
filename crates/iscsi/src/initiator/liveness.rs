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

use super::Initiator;
use super::port::{Port, State};
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
    pub(super) fn probe(&mut self, now: Instant, at: usize) {
        let keep_alive = self.settings.keep_alive;
        let Port { silences, session, .. } = &mut self.ports[at];
        silences.forget(now);
        if session.framing.is_open() && session.probe(now, keep_alive, silences.slack()) {
            silences.note(now);
            self.give_up(now, at, "the target is silent");
        }
    }

    /// Jobs whose time is over: their tasks are aborted, or the session that has them ends.
    pub(super) fn end_late(&mut self, now: Instant, over: Vec<(u32, Failure)>) {
        let late = over.into_iter().filter(|(_, why)| *why == Failure::TimedOut);
        for (index, _) in late {
            let at = usize::from(self.disk[index].wire.port);
            let Port { state, session, .. } = &mut self.ports[at];
            let is_aborted = match state {
                State::Live(live) => session.abort(now, index, live.is_ours, &self.disk),
                _ => false,
            };
            if !is_aborted {
                self.give_up(now, at, self.late());
            }
        }
    }

    fn late(&self) -> String {
        format!("a command was not answered within {:?}", self.settings.deadline)
    }
}
