//! The deadlines of all sessions, the earliest first: a binary heap in which each has its place, so
//! that one that moves is moved, and there are never more than sessions. A heap that leaves stale
//! entries behind grows with what a peer makes a session do.
//!
//! Equal deadlines come in the order of slots: the same calls give the same order.

use block::{Instant, Slot};

/// Not in the heap.
const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: Vec<(Instant, Slot)>,
    /// By the index of a slot, where its deadline is in the heap.
    places: Vec<u32>,
}

impl Deadlines {
    /// Makes room for one more slot, so that nothing is allocated later.
    pub(crate) fn reserve(&mut self, slot: Slot) {
        let slots = self.places.len().max(slot.index as usize + 1);
        self.places.resize(slots, NOWHERE);
        self.heap.reserve(slots - self.heap.len());
    }

    /// A slot's deadline is this one now.
    pub(crate) fn set(&mut self, slot: Slot, deadline: Option<Instant>) {
        let place = self.places[slot.index as usize];
        match (place, deadline) {
            (NOWHERE, None) => {}
            (NOWHERE, Some(deadline)) => {
                self.heap.push((deadline, slot));
                self.rise(self.heap.len() - 1);
            }
            (place, Some(deadline)) => {
                self.heap[place as usize] = (deadline, slot);
                let place = self.rise(place as usize);
                self.sink(place);
            }
            (place, None) => {
                self.places[slot.index as usize] = NOWHERE;
                self.heap.swap_remove(place as usize);
                if (place as usize) < self.heap.len() {
                    let place = self.rise(place as usize);
                    self.sink(place);
                }
            }
        }
    }

    /// The earliest.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Instant, Slot)> {
        self.heap.first().copied()
    }

    /// Moves an entry towards the first as far as it belongs; says where it is then.
    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
        place
    }

    /// Moves an entry towards the last as far as it belongs.
    fn sink(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child]) else { break };
            if self.heap[place] <= self.heap[child] {
                break;
            }
            self.heap.swap(place, child);
            self.note(place);
            place = child;
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        self.places[self.heap[place].1.index as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use block::Random;

    use super::*;

    #[test]
    fn the_earliest_is_first_whatever_was_set_moved_and_removed() {
        let mut random = Random::new(5);
        let (mut deadlines, mut model) = (Deadlines::default(), BTreeMap::new());
        for _ in 0..20_000 {
            let slot = Slot { index: random.below(40) as u32, generation: 3 };
            let deadline = random.chance(2, 3).then(|| Instant(random.below(60)));
            deadlines.reserve(slot);
            deadlines.set(slot, deadline);
            match deadline {
                Some(deadline) => drop(model.insert(slot, deadline)),
                None => drop(model.remove(&slot)),
            }
            let first = model.iter().map(|(slot, deadline)| (*deadline, *slot)).min();
            assert_eq!(deadlines.first(), first);
            assert_eq!(deadlines.heap.len(), model.len());
        }
    }

    #[test]
    fn nothing_is_allocated_once_there_is_room() {
        let mut deadlines = Deadlines::default();
        let slots: Vec<_> = (0..100).map(|index| Slot { index, generation: 0 }).collect();
        slots.iter().for_each(|slot| deadlines.reserve(*slot));
        let room = deadlines.heap.capacity();
        for (at, slot) in (0..10_000).zip(slots.iter().cycle()) {
            deadlines.set(*slot, Some(Instant(at * 7 % 101)));
        }
        assert_eq!((deadlines.heap.len(), deadlines.heap.capacity()), (100, room));
    }
}
