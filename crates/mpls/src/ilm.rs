//! ILM, the incoming label map of a label space: what is done with a packet by its top label.
//!
//! ```text
//!   label, 20 bits:   shelf, 10 | place, 10
//!   shelves[shelf] -> row;   rows[row][place] -> entry, NHLFE;   entries[entry]: owner, state, counters
//! ```
//! A label is found by three loads, however many there are; 8 KiB a row, and rows only where labels
//! are. The NHLFE stands beside the number of the entry so that the processor fetches both at once:
//! of 100,000 labels none is in its cache.
//!
//! A label that is withdrawn is in quarantine: it keeps its entry, packets with it are dropped and
//! counted, and only its owner may have it back before the time is over. A packet that is still on
//! its way cannot reach whoever has the label next.
//! Units: bytes from the label stack on. Errors: labels that are special, or another's. Spec: RFC
//! 3031 clauses 3.11 and 3.14; quarantine is ours.

use core::fmt;
use std::collections::VecDeque;

use block::{Instant, planted};
use contract::{Fetch, LinkId, counters};
use wire::mpls::Label;

use crate::nhlfe::NhlfeId;
use crate::pseudowire::PseudowireId;
use crate::refused::Refused;
use crate::verdict::DropReason;

/// Whose packets a label of a tunnel means, by the number that whoever configured it gave. Another
/// FEC has another number, also later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FecId(pub u32);

/// Who has a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Fec(FecId),
    /// A pseudowire whose frames leave by this circuit; for another one it is another owner.
    Pseudowire(PseudowireId, LinkId),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fec(FecId(id)) => write!(f, "FEC {id}"),
            Self::Pseudowire(id, circuit) => write!(f, "{id} (of {circuit})"),
        }
    }
}

/// What is done with the packets of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The labels of an NHLFE take the place of this one, and they go on.
    Forward(NhlfeId),
    /// The tunnel ends here: the label is popped and the one below it looked up.
    Pop,
}

/// How it stands with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Lsp(Action),
    /// A pseudowire ends here.
    Pseudowire(PseudowireId),
    /// In quarantine.
    Withdrawn {
        until: Instant,
    },
}

counters! {
    /// What came with a label.
    pub struct IlmCounters {
        /// Packets in whose stack this label was looked up.
        packets: Frames,
        /// Their bytes, from the label on.
        packet_bytes: Bytes,
        /// Those of them that were dropped; their port knows why.
        dropped: Frames,
    }
}

/// What is known of a label. It lies in one line of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct IlmEntry {
    pub owner: Owner,
    pub state: State,
    pub counters: IlmCounters,
}

/// So many labels and more are not all in the second-level cache of a processor, with their NHLFEs: two lines each.
const FETCHED_FROM: usize = 4096;
const PLACE_BITS: u32 = 10;
const PLACES: usize = 1 << PLACE_BITS;
const SHELVES: usize = (Label::MAX.get() as usize + 1) >> PLACE_BITS;

/// Where a label's entry is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its number, plus 1; 0: the label is nobody's.
    entry: u32,
    /// The NHLFE if its state is to forward, else [`Place::NONE`].
    nhlfe: u32,
}

impl Place {
    const NONE: u32 = u32::MAX;
    const FREE: Self = Self { entry: 0, nhlfe: Self::NONE };

    fn new(index: usize, state: State) -> Self {
        let nhlfe = match state {
            State::Lsp(Action::Forward(NhlfeId(id))) => id,
            _ => Self::NONE,
        };
        Self { entry: index as u32 + 1, nhlfe }
    }

    #[inline]
    fn index(self) -> Option<usize> {
        Some(self.entry.checked_sub(1)? as usize)
    }
}

/// The labels of a space.
#[derive(Debug, Default)]
pub struct Ilm {
    /// The number of the shelf's row, plus 1.
    shelves: Vec<u16>,
    rows: Vec<[Place; PLACES]>,
    entries: Vec<IlmEntry>,
    /// Entries that are no label's.
    free: Vec<usize>,
    /// Labels in quarantine, the first to be free first. One that its owner has back may be here.
    withdrawn: VecDeque<(Instant, Label)>,
}

impl Ilm {
    /// The labels that somebody has or had a moment ago, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Label, &IlmEntry)> {
        let shelves = self.shelves.iter().enumerate().filter(|(_, row)| **row > 0);
        shelves.flat_map(move |(shelf, row)| {
            let places = self.rows[usize::from(*row) - 1].iter().enumerate();
            places.filter_map(move |(number, place)| {
                let label = Label::new((shelf << PLACE_BITS | number) as u32)?;
                Some((label, &self.entries[place.index()?]))
            })
        })
    }

    /// What is known of a label.
    #[inline]
    pub fn get(&self, label: Label) -> Option<&IlmEntry> {
        Some(&self.entries[self.place(label).index()?])
    }

    /// The label of a packet that came, and how it stands with it; an error if it is nobody's.
    #[inline]
    pub(crate) fn find(
        &mut self,
        now: Instant,
        label: Label,
        bytes: usize,
    ) -> Result<(&mut IlmEntry, State), DropReason> {
        let place = self.place(label);
        let entry = &mut self.entries[place.index().ok_or(DropReason::UnknownLabel)?];
        let state = match place.nhlfe {
            Place::NONE => entry.state,
            id => State::Lsp(Action::Forward(NhlfeId(id))),
        };
        if let State::Withdrawn { until } = state
            && until <= now
        {
            return Err(DropReason::UnknownLabel);
        }
        entry.counters.packets += 1;
        entry.counters.packet_bytes += bytes as u64;
        Ok((entry, state))
    }

    /// Whether so many labels are known that what stands by one may not be in the processor's cache.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.entries.len() >= FETCHED_FROM
    }

    /// Has it fetched where a label's entry is.
    #[inline]
    pub(crate) fn fetch_place(&self, fetch: Fetch, label: Label) {
        if let Some(place) = self.find_place(label) {
            fetch.of(place);
        }
    }

    /// Has a label's entry fetched. Returns to which NHLFE its packets go, if they go to one.
    #[inline]
    pub(crate) fn fetch_entry(&self, fetch: Fetch, label: Label) -> Option<NhlfeId> {
        let place = self.place(label);
        fetch.of(&self.entries[place.index()?]);
        (place.nhlfe != Place::NONE).then_some(NhlfeId(place.nhlfe))
    }

    #[inline]
    fn place(&self, label: Label) -> Place {
        self.find_place(label).copied().unwrap_or(Place::FREE)
    }

    /// Where that is, if there is a row for it; nothing of it is looked at.
    #[inline]
    fn find_place(&self, label: Label) -> Option<&Place> {
        let (shelf, place) = split(label);
        let row = self.shelves.get(shelf)?.checked_sub(1)?;
        Some(&self.rows[usize::from(row)][place])
    }

    /// Whether `owner` may have a label.
    pub(crate) fn check(&self, now: Instant, label: Label, owner: Owner) -> Result<(), Refused> {
        if label.is_special() {
            return Err(Refused::Special(label));
        }
        match self.get(label) {
            Some(entry) if entry.owner != owner => match entry.state {
                State::Withdrawn { until }
                    if until <= now || planted("label-is-reused-at-once") =>
                {
                    Ok(())
                }
                State::Withdrawn { until } => {
                    Err(Refused::Quarantined { label, left: until.since(now) })
                }
                _ => Err(Refused::Taken { label, by: entry.owner }),
            },
            _ => Ok(()),
        }
    }

    /// Gives a label to an owner who may have it. One who has it or had it last keeps its counters.
    pub(crate) fn assign(&mut self, now: Instant, label: Label, owner: Owner, state: State) {
        self.release(now);
        let mut entry = IlmEntry { owner, state, counters: IlmCounters::default() };
        let index = match self.place(label).index() {
            Some(index) => {
                if self.entries[index].owner == owner {
                    entry.counters = self.entries[index].counters;
                }
                index
            }
            None => self.free.pop().unwrap_or_else(|| {
                self.entries.push(entry);
                self.entries.len() - 1
            }),
        };
        self.entries[index] = entry;
        *self.place_mut(label) = Place::new(index, state);
    }

    /// Takes a label from its owner; it is nobody's `until` then. No one else's is touched.
    pub(crate) fn withdraw(&mut self, now: Instant, label: Label, owner: Owner, until: Instant) {
        self.release(now);
        let Some(index) = self.place(label).index() else { return };
        let entry = &mut self.entries[index];
        if entry.owner == owner && !matches!(entry.state, State::Withdrawn { .. }) {
            entry.state = State::Withdrawn { until };
            *self.place_mut(label) = Place::new(index, State::Withdrawn { until });
            self.withdrawn.push_back((until, label));
        }
    }

    /// Forgets the labels whose quarantine is over.
    fn release(&mut self, now: Instant) {
        while let Some((until, label)) = self.withdrawn.pop_front_if(|(until, _)| *until <= now) {
            // Not one that its owner has back, or gave back later.
            let is_it = |index: &usize| self.entries[*index].state == State::Withdrawn { until };
            if let Some(index) = self.place(label).index().filter(is_it) {
                *self.place_mut(label) = Place::FREE;
                self.free.push(index);
            }
        }
    }

    fn place_mut(&mut self, label: Label) -> &mut Place {
        let (shelf, place) = split(label);
        if self.shelves.is_empty() {
            self.shelves = vec![0; SHELVES];
        }
        let row = &mut self.shelves[shelf];
        if *row == 0 {
            self.rows.push([Place::FREE; PLACES]);
            *row = self.rows.len() as u16;
        }
        &mut self.rows[usize::from(*row) - 1][place]
    }
}

#[inline]
fn split(label: Label) -> (usize, usize) {
    let number = label.get() as usize;
    (number >> PLACE_BITS, number & (PLACES - 1))
}

#[cfg(test)]
mod tests {

    use super::*;

    const NOW: Instant = Instant(1000);
    const LATER: Instant = Instant(2000);

    fn label(number: u32) -> Label {
        Label::new(number).unwrap()
    }

    fn fec(id: u32) -> Owner {
        Owner::Fec(FecId(id))
    }

    fn forward(id: u32) -> State {
        State::Lsp(Action::Forward(NhlfeId(id)))
    }

    fn look(ilm: &mut Ilm, now: Instant, number: u32) -> Result<State, DropReason> {
        ilm.find(now, label(number), 100).map(|(entry, state)| {
            // What stands at the label's place is what its entry says.
            assert_eq!(entry.state, state);
            state
        })
    }

    #[test]
    fn each_of_100_000_labels_is_found_by_its_number_alone() {
        let mut ilm = Ilm::default();
        assert_eq!(look(&mut ilm, NOW, 16), Err(DropReason::UnknownLabel));
        // 7919 is prime, so no two are the same.
        let number = |index: u32| 16 + index * 7919 % (Label::MAX.get() - 15);
        for index in 0..100_000 {
            ilm.assign(NOW, label(number(index)), fec(index), forward(index));
        }
        for index in 0..100_000 {
            assert_eq!(look(&mut ilm, NOW, number(index)), Ok(forward(index)));
        }
        assert_eq!(ilm.iter().count(), 100_000);
        assert!(ilm.iter().is_sorted_by_key(|(label, _)| label));
        assert_eq!(look(&mut ilm, NOW, number(100_000)), Err(DropReason::UnknownLabel));
        ilm.assign(NOW, Label::MAX, fec(7), forward(7));
        assert_eq!(ilm.iter().last().map(|(label, _)| label), Some(Label::MAX));
    }

    #[test]
    fn special_labels_are_nobody_s() {
        for number in 0..16 {
            let refused = Refused::Special(label(number));
            assert_eq!(Ilm::default().check(NOW, label(number), fec(1)), Err(refused));
        }
        assert_eq!(Ilm::default().check(NOW, label(16), fec(1)), Ok(()));
    }

    #[test]
    fn a_label_that_is_somebody_s_is_nobody_else_s() {
        let mut ilm = Ilm::default();
        ilm.assign(NOW, label(16), fec(1), forward(1));
        let taken = Refused::Taken { label: label(16), by: fec(1) };
        assert_eq!(ilm.check(NOW, label(16), fec(2)), Err(taken));
        let pseudowire = Owner::Pseudowire(PseudowireId(1), LinkId(1));
        assert_eq!(ilm.check(NOW, label(16), pseudowire), Err(taken));
        ilm.withdraw(NOW, label(16), fec(2), LATER);
        assert_eq!(look(&mut ilm, NOW, 16), Ok(forward(1)), "another cannot withdraw it");
        assert_eq!(ilm.check(NOW, label(16), fec(1)), Ok(()));
    }

    #[test]
    fn an_owner_who_gets_another_entry_keeps_counters() {
        let mut ilm = Ilm::default();
        ilm.assign(NOW, label(16), fec(1), forward(1));
        look(&mut ilm, NOW, 16).unwrap();
        ilm.assign(NOW, label(16), fec(1), forward(2));
        let entry = ilm.get(label(16)).unwrap();
        assert_eq!((entry.state, entry.counters.packets), (forward(2), 1));
        assert_eq!(entry.counters.packet_bytes, 100);
    }

    #[test]
    fn a_withdrawn_label_is_nobody_s_until_its_quarantine_is_over() {
        let mut ilm = Ilm::default();
        ilm.assign(NOW, label(16), fec(1), forward(1));
        ilm.withdraw(NOW, label(16), fec(1), LATER);
        let withdrawn = State::Withdrawn { until: LATER };
        assert_eq!(look(&mut ilm, Instant(1999), 16), Ok(withdrawn));
        assert_eq!(look(&mut ilm, LATER, 16), Err(DropReason::UnknownLabel));
        let refused = Refused::Quarantined { label: label(16), left: LATER.since(Instant(1999)) };
        assert_eq!(ilm.check(Instant(1999), label(16), fec(2)), Err(refused));
        assert_eq!(ilm.check(LATER, label(16), fec(2)), Ok(()));
        ilm.assign(LATER, label(16), fec(2), forward(2));
        let entry = ilm.get(label(16)).unwrap();
        assert_eq!((entry.state, entry.counters), (forward(2), IlmCounters::default()));
    }

    #[test]
    fn a_quarantine_that_became_shorter_ends_before_those_that_began_earlier() {
        let mut ilm = Ilm::default();
        for (number, until) in [(16, Instant(9000)), (17, LATER)] {
            ilm.assign(NOW, label(number), fec(1), forward(1));
            look(&mut ilm, NOW, number).unwrap();
            ilm.withdraw(NOW, label(number), fec(1), until);
        }
        assert_eq!(ilm.check(LATER, label(17), fec(2)), Ok(()));
        ilm.assign(LATER, label(17), fec(2), forward(2));
        let entry = ilm.get(label(17)).unwrap();
        assert_eq!((entry.state, entry.counters), (forward(2), IlmCounters::default()));
    }

    #[test]
    fn its_owner_has_a_withdrawn_label_back_at_once() {
        let mut ilm = Ilm::default();
        ilm.assign(NOW, label(16), fec(1), forward(1));
        ilm.withdraw(NOW, label(16), fec(1), LATER);
        // A second time does not make it longer.
        ilm.withdraw(NOW, label(16), fec(1), Instant(9000));
        assert_eq!(ilm.get(label(16)).unwrap().state, State::Withdrawn { until: LATER });
        assert_eq!(ilm.check(NOW, label(16), fec(1)), Ok(()));
        ilm.assign(NOW, label(16), fec(1), forward(3));
        // What was noted of the quarantine does not take it away.
        ilm.assign(Instant(9000), label(17), fec(2), forward(2));
        assert_eq!(look(&mut ilm, Instant(9000), 16), Ok(forward(3)));
    }

    #[test]
    fn what_is_fetched_ahead_is_counted_by_nobody_and_leads_where_its_packets_go() {
        let (mut ilm, now) = (Ilm::default(), Instant::ZERO);
        let label = |at: usize| Label::new(16 + at as u32).unwrap();
        for at in 0..FETCHED_FROM {
            assert!(!ilm.is_large(), "{at} are in the cache anyway");
            let to = State::Lsp(Action::Forward(NhlfeId(7 * at as u32)));
            ilm.assign(now, label(at), Owner::Fec(FecId(1)), to);
        }
        assert!(ilm.is_large());
        ilm.fetch_place(Fetch::NOTHING, label(3));
        assert_eq!(ilm.fetch_entry(Fetch::NOTHING, label(3)), Some(NhlfeId(21)));
        assert_eq!(ilm.fetch_entry(Fetch::NOTHING, label(FETCHED_FROM)), None, "it is nobody's");
        ilm.assign(now, label(3), Owner::Fec(FecId(1)), State::Lsp(Action::Pop));
        assert_eq!(ilm.fetch_entry(Fetch::NOTHING, label(3)), None);
        assert!(ilm.iter().all(|(_, entry)| entry.counters == IlmCounters::default()));
    }

    #[test]
    fn entries_of_withdrawn_labels_are_used_again() {
        let mut ilm = Ilm::default();
        for round in 0..100 {
            let (now, number) = (Instant(round * 10), 16 + round as u32);
            ilm.assign(now, label(number), fec(1), forward(1));
            ilm.withdraw(now, label(number), fec(1), Instant(round * 10 + 15));
        }
        assert_eq!((ilm.entries.len(), ilm.withdrawn.len(), ilm.iter().count()), (2, 2, 2));
    }
}
