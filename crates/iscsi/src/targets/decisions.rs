//! Who waits for a decision: changes of reservations and of paths that all shards agree on, modes that all
//! shards are told. Each has a number, and is decided once.
//!
//! A session has drained only when nothing that it asked for is undecided. Not here: what is decided
//! (`reserve`, `paths`, `modes`).

use block::{Slot, VolumeId};
use reservation::Change;
use scsi::Decision;

use super::{SessionEvent, SessionHandle, Targets};

/// Who waits for something to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionFor {
    /// A session, by a task of it or because it ends.
    Session { session: Slot, is_task: bool },
    /// The part of a reset that has this mark.
    Reset { mark: u64 },
    /// Nobody: it is tried again.
    Nobody,
}

/// A change under way.
#[derive(Debug)]
pub(super) struct Proposed {
    asker: DecisionFor,
    /// What is tried again until it is made, of which volume.
    owed: Option<(VolumeId, Change)>,
}

impl Targets {
    /// Whether something that the session asked for is undecided.
    pub fn has_undecided(&self, handle: SessionHandle) -> bool {
        self.sessions.get(handle.0).is_some_and(|session| session.undecided > 0)
    }

    /// Notes who waits for a decision; the number by which it is answered.
    pub(super) fn await_decision(
        &mut self,
        asker: DecisionFor,
        owed: Option<(VolumeId, Change)>,
    ) -> u64 {
        if let DecisionFor::Session { session, .. } = asker
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.undecided += 1;
        }
        let Slot { index, generation } = self.proposed.insert(Proposed { asker, owed });
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Something was decided: who waits for it is told. Returns what is owed.
    pub(super) fn decided(
        &mut self,
        number: u64,
        status: impl FnOnce() -> Decision,
    ) -> Option<(VolumeId, Change)> {
        let slot = Slot { index: number as u32, generation: (number >> 32) as u32 };
        let Proposed { asker, owed } =
            self.proposed.remove(slot).expect("a change is answered once");
        match asker {
            DecisionFor::Session { session, is_task } => {
                let Some(session) = self.sessions.get_mut(session) else { return owed };
                session.undecided -= 1;
                if is_task {
                    let (status, sense) = status();
                    let event = SessionEvent::Changed { number, status, sense };
                    self.events.push_back((session.place, event));
                }
                if session.ends && session.undecided == 0 {
                    self.events.push_back((session.place, SessionEvent::Decided));
                }
            }
            DecisionFor::Reset { mark } => self.part_was_decided(mark),
            DecisionFor::Nobody => {}
        }
        owed
    }
}
