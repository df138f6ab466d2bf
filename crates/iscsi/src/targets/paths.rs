//! States of paths that hosts ask for, and who hears that one is another.
//!
//! A change leaves by [`Targets::poll_path_change`] and is answered by
//! [`Targets::handle_path_answer`], once it is stored and in force on every shard: no command that
//! came by a path that was closed is below any more. Every session but the one that asked gets a
//! unit attention for each of its units, since each port tells of all. Spec: SPC-4, "Asymmetric
//! logical unit access".

use reservation::replica::Answer;
use reservation::{PathChange, PathGroup, PathState, Paths, SetBy};
use scsi::access_changed;

use super::decisions::DecisionFor;
use super::{SessionEvent, SessionHandle, Targets};

impl Targets {
    /// A task of a session asks for other states; answered by [`SessionEvent::Changed`] with the number
    /// that is returned.
    pub fn set_paths(&mut self, handle: SessionHandle, states: Vec<(PathGroup, PathState)>) -> u64 {
        let life = self.sessions.get(handle.0).map_or(0, |session| session.life);
        let number =
            self.await_decision(DecisionFor::Session { session: handle.0, is_task: true }, None);
        self.path_changes.push_back((number, PathChange { states, by: SetBy::Host(life) }));
        number
    }

    /// A change of states that is to be agreed on, by this number.
    pub fn poll_path_change(&mut self) -> Option<(u64, PathChange)> {
        self.path_changes.pop_front()
    }

    /// A change of states was agreed on, or not.
    pub fn handle_path_answer(&mut self, number: u64, answer: &Answer<(), Paths>) {
        self.decided(number, || scsi::status_of_paths(answer));
    }

    /// Groups are in other states from now on, and who set them.
    pub fn paths_changed(&mut self, changed: &[(PathGroup, SetBy)]) {
        for (_, session) in self.sessions.iter().filter(|(_, session)| !session.ends) {
            if changed.iter().any(|(_, by)| *by != SetBy::Host(session.life)) {
                let told = SessionEvent::Attention(None, access_changed());
                self.events.push_back((session.place, told));
            }
        }
    }
}
