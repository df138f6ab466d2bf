//! The lines for memory: sessions that wait for a buffer of the pool, one line for each class,
//! the longest waiting first.
//!
//! They are tried from their heads at the end of a turn in which pages came back, or somebody
//! joined or left. Who is served and still waits goes to the end; who is not keeps its place, and
//! the pool keeps what the first needs that does not wait for its own buffers to come back
//! ([`block::Pool::keep`]). So such a session is overtaken by nobody who came later, and by each
//! before it once. What takes from the pool and stands in no line (frames, internal clients) finds
//! what is left.

use std::collections::VecDeque;

use block::{Class, Instant, Memory, Slot};

use super::Shard;

/// Who waits, by class, in the order of [`Class::ALL`].
#[derive(Debug, Default)]
pub(super) struct Lines {
    of: [VecDeque<Slot>; 2],
    /// Whether somebody joined or left since they were tried.
    changed: bool,
}

/// A session in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub slot: Slot,
    /// Its class's place in [`Class::ALL`].
    pub class: usize,
    /// Pages of the class that it holds, and waits for first.
    pub pages: u32,
    /// How often it was served in line.
    pub turns: u64,
    /// Commands that its peer may have outstanding.
    pub entries: u16,
}

impl Lines {
    #[inline]
    fn is_empty(&self) -> bool {
        self.of.iter().all(VecDeque::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        self.of.iter().map(VecDeque::len).sum()
    }

    /// A session joined, or left. Who joins is tried before the turn ends, since memory may have
    /// come back after it asked. Who leaves may have had some kept for it; it is dropped when the
    /// line is tried.
    #[cold]
    pub(super) fn change(&mut self, slot: Slot, in_line: &mut [bool; 2], waits: [bool; 2]) {
        self.changed = true;
        for (class, line) in self.of.iter_mut().enumerate() {
            if waits[class] && !in_line[class] {
                in_line[class] = true;
                line.push_back(slot);
            }
        }
    }
}

impl Shard {
    /// Whether somebody in line may be served who could not be when the lines were last tried.
    #[inline]
    pub(super) fn lines_are_due(&self) -> bool {
        let may_be_served = self.pool.has_returned() || self.lines.changed;
        may_be_served && !self.lines.is_empty()
    }

    /// Lets those who wait for memory try again, the longest waiting first. Who is served and still
    /// waits goes to the end of its line.
    pub(super) fn serve_lines(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !self.lines_are_due() {
            return;
        }
        self.pool.begin_line();
        self.lines.changed = false;
        for (at, class) in Class::ALL.into_iter().enumerate() {
            let mut served = Vec::new();
            for _ in 0..self.lines.of[at].len() {
                let slot = self.lines.of[at].pop_front().expect("it was counted");
                let tried = self.with_session(now, slot, memory, |session, context| {
                    let before = session.pages();
                    session.handle_memory(class, context);
                    (session.waits_for_memory(class), session.pages() > before)
                });
                let Some((waits, is_served)) = tried else { continue };
                let place = self.places.get_mut(slot).expect("it was there");
                place.in_line[at] = waits;
                place.turns[at] += u64::from(is_served || !waits);
                match (waits, is_served) {
                    (true, true) => served.push(slot),
                    (true, false) => self.lines.of[at].push_back(slot),
                    (false, _) => {}
                }
            }
            self.lines.of[at].extend(served);
        }
    }

    /// What must hold between turns, for simulators and tests: nothing is left to settle, nobody in
    /// line would be served now, and what the heads need is kept for them. Returns who is in line,
    /// in order, and what the pool granted so far, of each class.
    ///
    /// # Panics
    ///
    /// When it does not hold.
    pub fn check_lines(&mut self) -> (Vec<Waiter>, [u64; 2]) {
        let is_left = !self.touched.is_empty()
            || self.protocols.needs_settle()
            || self.reservations.needs_settle();
        assert!(!is_left, "something waits for a turn that nobody asks for");
        let mut pool = self.pool.clone();
        pool.begin_line();
        let mut waiters = Vec::new();
        for (at, class) in Class::ALL.into_iter().enumerate() {
            for &slot in &self.lines.of[at] {
                let place = self.places.get_mut(slot).expect("who leaves is dropped");
                let session = &mut place.session;
                assert!(
                    session.waits_for_memory(class) && place.in_line[at],
                    "{slot:?} is in line for memory of {class:?} and does not wait"
                );
                assert!(
                    !session.would_go_on(class, &mut pool),
                    "{slot:?} waits for memory of {class:?} that is there"
                );
                let (pages, entries) = (session.pages_of(class), session.entries());
                waiters.push(Waiter { slot, class: at, pages, turns: place.turns[at], entries });
            }
        }
        assert_eq!(pool.kept(), self.pool.kept(), "what is kept for the heads of the lines");
        let waiting = |place: &super::Place| {
            Class::ALL.iter().filter(|class| place.session.waits_for_memory(**class)).count()
        };
        let waiting: usize = self.places.iter().map(|(_, place)| waiting(place)).sum();
        assert_eq!(waiting, waiters.len(), "who waits for memory stands in line");
        assert_eq!(waiting, self.lines.len(), "how many are said to wait");
        (waiters, Class::ALL.map(|class| self.pool.grants(class)))
    }
}
