//! The state of the listeners by which all hosts of a world come: it changes while they work, and once a
//! change that closes it is answered, nothing goes below until somebody opens it.
//!
//! Worlds with AoE have none of it: its stations come by no listener.

use reservation::{PathGroup, PathState, Paths};
use shard::Order;

use crate::run::{Orders, Run, TARGET};

/// The states that close a path, or do not, in the order in which they are drawn.
const STATES: [PathState; 5] = [
    PathState::Standby,
    PathState::Unavailable,
    PathState::Transitioning,
    PathState::NonOptimized,
    PathState::Optimized,
];

/// What is known of the path.
#[derive(Debug, Default)]
pub(crate) struct PathFaults {
    /// As they are stored.
    pub(crate) stored: Paths,
    /// A change that not every shard has answered.
    under_way: Option<(Orders, PathState)>,
    /// Whether a change that closes it was answered, and nobody has asked to open it since.
    is_closed: bool,
    /// Changes that were answered.
    pub(crate) changes: u64,
}

impl Run {
    /// The target begins anew, with what was stored.
    pub(crate) fn restore_paths(&mut self) {
        // Nobody knows what became of a change that was not answered.
        self.paths.under_way = None;
        let stored = self.paths.stored.clone();
        self.order_all(|| Order::RestorePaths(stored.clone()));
    }

    /// The path is to be in another state.
    pub(crate) fn change_path(&mut self) {
        if self.paths.under_way.is_some() {
            return;
        }
        let state = match self.paths.is_closed {
            true => PathState::Optimized,
            false => STATES[self.random.below(STATES.len() as u64) as usize],
        };
        self.order_path(state);
    }

    /// Whatever became of it, from now on it serves.
    pub(crate) fn open_path(&mut self) {
        if self.setup.faults[crate::setup::Fault::Path] > 0 {
            self.order_path(PathState::Optimized);
        }
    }

    fn order_path(&mut self, state: PathState) {
        self.paths.is_closed &= !state.serves();
        self.paths.under_way = Some((self.next_orders(), state));
        self.order_all(|| Order::SetPaths(vec![(PathGroup::DEFAULT, state)]));
    }

    /// An order was answered.
    pub(crate) fn path_answered(&mut self, number: u64) {
        let Some((orders, state)) = &mut self.paths.under_way else { return };
        if orders.answered(number) {
            self.paths.is_closed = !state.serves();
            self.paths.changes += 1;
            self.paths.under_way = None;
        }
    }

    /// Nothing is below that came by a path which is closed.
    pub(crate) fn check_path(&self) -> Result<(), String> {
        match self.world.requests_below(TARGET) {
            below if below > 0 && self.paths.is_closed => {
                Err(format!("{below} requests are below, and their path was closed before"))
            }
            _ => Ok(()),
        }
    }
}
