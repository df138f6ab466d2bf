//! Deadlines of many machines, of which few ever come: a heap in which a deadline that moved later
//! is found out only when the old one comes. So a busy connection, whose deadline moves with every
//! PDU, costs nothing per PDU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use block::{Instant, Slot};

/// Wake-ups by machine.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Slot)>>,
}

impl Timers {
    /// Makes sure that `machine` is woken at `deadline` or before. `armed` is the machine's
    /// earliest wake-up in the heap.
    pub(crate) fn arm(
        &mut self,
        machine: Slot,
        armed: &mut Option<Instant>,
        deadline: Option<Instant>,
    ) {
        let Some(deadline) = deadline else { return };
        if armed.is_none_or(|armed| deadline < armed) {
            *armed = Some(deadline);
            self.heap.push(Reverse((deadline, machine)));
        }
    }

    /// The machine of a wake-up that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Slot)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }

    /// The earliest wake-up.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_deadline_is_armed_anew() {
        let mut timers = Timers::default();
        let slot = Slot::default();
        let mut armed = None;
        timers.arm(slot, &mut armed, Some(Instant(100)));
        timers.arm(slot, &mut armed, Some(Instant(200)));
        assert_eq!(timers.heap.len(), 1);
        timers.arm(slot, &mut armed, Some(Instant(50)));
        assert_eq!(timers.next(), Some(Instant(50)));
        assert_eq!(timers.pop_due(Instant(49)), None);
        assert_eq!(timers.pop_due(Instant(60)), Some((Instant(50), slot)));
    }
}
