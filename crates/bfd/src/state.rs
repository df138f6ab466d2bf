//! The states of a session, and what a received one makes of them: the table of RFC 5880 clauses 6.2
//! and 6.8.6.
//!
//! ```text
//!          received:  Down       Init       Up         AdminDown
//!   Down              Init       Up         .          .
//!   Init              .          Up         Up         Down, 3
//!   Up                Down, 3    .          .          Down, 3
//!   AdminDown         .          .          .          .
//! ```
//! The number is the diagnostic with which it goes down: the neighbor signaled it.

use core::fmt;

use block::planted;
use wire::bfd::State;

/// What a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// Somebody here wants it so.
    AdminDown,
    /// The peer is not heard, or says that it does not hear us.
    #[default]
    Down,
    /// The peer is heard, and did not know then that we are.
    Init,
    /// Both hear each other.
    Up,
}

impl SessionState {
    /// What it says on the wire; two bits, so there are no others.
    pub(crate) fn of(state: State) -> Self {
        match state {
            State::ADMIN_DOWN => Self::AdminDown,
            State::DOWN => Self::Down,
            State::INIT => Self::Init,
            State::UP => Self::Up,
            State(other) => unreachable!("a state has two bits, and {other} has more"),
        }
    }

    pub(crate) fn to_wire(self) -> State {
        match self {
            Self::AdminDown => State::ADMIN_DOWN,
            Self::Down => State::DOWN,
            Self::Init => State::INIT,
            Self::Up => State::UP,
        }
    }

    /// What it is once the peer says that its own is `received`.
    pub(crate) fn after(self, received: Self) -> Self {
        use SessionState::{AdminDown, Down, Init, Up};
        match (self, received) {
            (Down, Down) => Init,
            (Init, Up) if planted("up-is-not-taken-for-init") => Init,
            (Up, Down) if planted("neighbors-down-is-not-heard") => Up,
            (Down, Init) | (Init, Init | Up) => Up,
            (Init | Up, AdminDown) | (Up, Down) => Down,
            (AdminDown, _) | (Down, Up | AdminDown) | (Init, Down) | (Up, Init | Up) => self,
        }
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_wire().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::SessionState::{self, AdminDown, Down, Init, Up};

    #[test]
    fn received_states_change_the_own_one_as_the_table_says() {
        let received = [Down, Init, Up, AdminDown];
        for (own, expected) in [
            (Down, [Init, Up, Down, Down]),
            (Init, [Init, Up, Up, Down]),
            (Up, [Down, Up, Up, Down]),
            (AdminDown, [AdminDown; 4]),
        ] {
            assert_eq!(received.map(|received| own.after(received)), expected, "{own}");
        }
    }

    #[test]
    fn states_both_ways() {
        for state in [AdminDown, Down, Init, Up] {
            assert_eq!(SessionState::of(state.to_wire()), state);
        }
    }
}
