//! Polling: whether a shard looks for more before it sleeps, and for how long.
//!
//! Sources (a listener with its connections here, a connection that was opened from here, a link, a
//! disk that the kernel works on) each have a [`Poll`]. One that decides for itself has a
//! [`window`]: what has paid lately. A source that did something in a turn is looked for from the
//! wait after it on, until its window is over; the shard looks as long as any of them wants, and
//! all that may come ends the looking: what ended in the ring, mail, frames. The [`guard`] stops it
//! where that takes the processor from another; who asked for a fixed time gets it all the same.
//!
//! A look makes no system call on the ring; beside it, once in a while, the thread yields, so that a
//! client on the same processor has to wait for no look. Units: nanoseconds on the shard's clock.

mod guard;
mod window;

use std::time::{self, Duration};

use block::Instant;
use block::table::{Slot, Table};
use contract::{ListenerId, Machine, Poll};

use super::Driver;
use super::links::Links;
use crate::engine::Engine;
use crate::mailbox::Inbox;
use crate::process;
use crate::stats::add;
use guard::{GAP, Guard};
use window::Window;

/// The longest window of what comes over a network.
pub(super) const NETWORK: Duration = Duration::from_micros(50);
/// The longest window of a disk.
pub(super) const DISK: Duration = Duration::from_micros(200);
/// A gap between two looks that is a pause: no interrupt is as long on a machine of its own, but a virtual
/// one's may be, and what the machine below does in one is not counted as taken from it.
const PAUSE: Duration = Duration::from_micros(20);
/// So many looks, with a pause of the processor between them (40 ns on a Xeon), before the thread
/// yields.
const LOOKS: u32 = 16;

/// The sources of a shard.
#[derive(Debug, Default)]
pub(super) struct Polls {
    sources: Table<Source>,
    /// Those that did something since the last wait.
    active: Vec<Slot>,
    /// Those that are looked for.
    sought: Vec<Slot>,
    guard: Guard,
    /// The shard slept in the last wait.
    slept: bool,
}

#[derive(Debug)]
struct Source {
    poll: Poll,
    /// Whose connections it stands for.
    listener: Option<ListenerId>,
    /// Connections of it.
    users: u32,
    window: Window,
    /// Since when the shard has waited for it; `None`: it has come since.
    since: Option<Instant>,
    /// Until then it is looked for.
    until: Instant,
    is_active: bool,
    is_sought: bool,
}

/// How long to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) until: Instant,
    /// Whoever else wants the processor.
    pub(super) stubborn: bool,
}

impl Polls {
    /// A new source.
    pub(super) fn add(&mut self, poll: Poll, longest: Duration) -> Slot {
        self.sources.insert(Source {
            poll,
            listener: None,
            users: 1,
            window: Window::new(longest.as_nanos() as u32),
            since: None,
            until: Instant::ZERO,
            is_active: false,
            is_sought: false,
        })
    }

    /// The source that a listener's connections are here, for one more of them.
    pub(super) fn join(&mut self, listener: ListenerId, poll: Poll) -> Slot {
        let of_it = |(_, source): &(Slot, &mut Source)| source.listener == Some(listener);
        if let Some((slot, source)) = self.sources.iter_mut().find(of_it) {
            source.users += 1;
            return slot;
        }
        let slot = self.add(poll, NETWORK);
        self.sources.get_mut(slot).expect("it was just added").listener = Some(listener);
        slot
    }

    /// A source is there for one connection less; with the last one it goes.
    pub(super) fn leave(&mut self, slot: Slot) {
        let Some(source) = self.sources.get_mut(slot) else { return };
        source.users -= 1;
        if source.users == 0 {
            self.sources.remove(slot);
        }
    }

    /// A source is granted something else.
    pub(super) fn change(&mut self, slot: Slot, poll: Poll) {
        if let Some(source) = self.sources.get_mut(slot) {
            source.poll = poll;
        }
    }

    /// A listener's connections are granted something else.
    pub(super) fn change_listener(&mut self, listener: ListenerId, poll: Poll) {
        let sources = self.sources.iter_mut().map(|(_, source)| source);
        for source in sources.filter(|source| source.listener == Some(listener)) {
            source.poll = poll;
        }
    }

    /// What the shard has waited for has come from a source.
    #[inline]
    pub(super) fn came(&mut self, slot: Slot, now: Instant) {
        let Some(source) = self.sources.get_mut(slot) else { return };
        if let Some(since) = source.since.take()
            && source.poll == Poll::Auto
        {
            source.window.record(now.since(since).as_nanos() as u64, self.slept);
        }
    }

    /// More is to come from a source: it is looked for from the next wait on.
    #[inline]
    pub(super) fn stir(&mut self, slot: Slot) {
        let Some(source) = self.sources.get_mut(slot) else { return };
        if source.poll != Poll::Never && !std::mem::replace(&mut source.is_active, true) {
            self.active.push(slot);
        }
    }

    /// Nothing is awaited from a source any more.
    #[inline]
    pub(super) fn calm(&mut self, slot: Slot) {
        if let Some(source) = self.sources.get_mut(slot) {
            source.since = None;
            source.until = Instant::ZERO;
        }
    }

    /// Whether anything may have to be looked for: if not, no clock needs to be read.
    #[inline]
    pub(super) fn is_stirred(&self) -> bool {
        !self.active.is_empty() || !self.sought.is_empty()
    }

    /// The shard begins to wait. Returns how long it looks before it sleeps, if it does.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant) -> Option<Look> {
        let Polls { sources, active, sought, .. } = self;
        for slot in active.drain(..) {
            let Some(source) = sources.get_mut(slot) else { continue };
            source.is_active = false;
            source.since = Some(now);
            source.until = now + source.width();
            if !std::mem::replace(&mut source.is_sought, true) {
                sought.push(slot);
            }
        }
        let mut look = Look { until: now, stubborn: false };
        sought.retain(|slot| {
            let Some(source) = sources.get_mut(*slot) else { return false };
            source.is_sought = source.until > now;
            if source.is_sought {
                look.until = look.until.max(source.until);
                look.stubborn |= source.poll != Poll::Auto;
            }
            source.is_sought
        });
        (look.until > now && (look.stubborn || self.guard.allows(now))).then_some(look)
    }

    /// How the wait ended: whether the shard slept.
    #[inline]
    pub(super) fn waited(&mut self, slept: bool) {
        self.slept = slept;
    }
}

impl Source {
    #[inline]
    fn width(&self) -> Duration {
        match self.poll {
            Poll::Auto => Duration::from_nanos(self.window.width().into()),
            Poll::Never => Duration::ZERO,
            Poll::Fixed(micros) => Duration::from_micros(micros.into()),
        }
    }
}

/// What a look looks at.
trait Sight {
    /// Whether something has come.
    fn has_come(&mut self) -> bool;

    fn now(&self) -> Instant;

    /// How often the thread lost its processor, so far.
    fn lost_switches(&self) -> u64;

    /// Lets others run.
    fn give_way(&mut self);
}

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Looked {
    found: bool,
    /// Another wanted the processor.
    stopped: bool,
    /// It had come before the look began.
    at_once: bool,
    /// How often the processor stood still in it, and for how long in all: nothing came, and no other
    /// thread had it.
    pauses: u64,
    paused: Duration,
    end: Instant,
}

/// Looks until something has come, the time is over, or the guard ends it.
#[inline]
fn look_at(sight: &mut impl Sight, look: Look, guard: &mut Guard) -> Looked {
    let (mut last, mut looks) = (sight.now(), 0);
    let (mut pauses, mut paused) = (0, Duration::ZERO);
    loop {
        let found = sight.has_come();
        // Also at the last look: what came may have waited while another had the processor.
        let end = sight.now();
        let gap = end.since(last);
        last = end;
        let switched = gap >= GAP && guard.switched(sight.lost_switches());
        // With what came in it the kernel may have been at work, which the next look shows.
        let stands = gap >= PAUSE && !switched && !found && !sight.has_come();
        if stands {
            pauses += 1;
            paused += gap;
        }
        let stopped = if gap < GAP || look.stubborn {
            guard.looked(gap);
            false
        } else {
            guard.gap(end, gap, switched)
        };
        if found || stopped || end >= look.until {
            let at_once = found && looks == 0;
            return Looked { found, stopped, at_once, pauses, paused, end };
        }
        looks += 1;
        if looks % LOOKS == 0 && !look.stubborn {
            sight.give_way();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A shard's engine, mailbox and links.
struct Surroundings<'a, E, M> {
    engine: &'a mut E,
    inbox: &'a Inbox<M>,
    links: &'a Links,
    origin: time::Instant,
}

impl<E: Engine, M> Sight for Surroundings<'_, E, M> {
    #[inline]
    fn has_come(&mut self) -> bool {
        self.engine.has_ended() || self.inbox.is_filled() || self.links.has_frame()
    }

    #[inline]
    fn now(&self) -> Instant {
        super::since(self.origin)
    }

    fn lost_switches(&self) -> u64 {
        process::lost_switches()
    }

    fn give_way(&mut self) {
        std::thread::yield_now();
    }
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// Looks for what may come, at most so long. Returns whether it came.
    pub(super) fn look(&mut self, look: Look, begin: Instant, limit: Option<Duration>) -> bool {
        let until = limit.map_or(look.until, |limit| look.until.min(begin + limit));
        self.engine.submit();
        let Driver { engine, links, polls, shared, shard, .. } = self;
        let (inbox, origin) = (&*shared.inboxes[shard.index()], shared.origin);
        let mut sight = Surroundings { engine, inbox, links, origin };
        let looked = look_at(&mut sight, Look { until, ..look }, &mut polls.guard);
        self.prompt = looked.at_once;
        let counters = self.counters();
        add(&counters.looks, 1);
        add(&counters.looks_paid, u64::from(looked.found));
        add(&counters.looks_stopped, u64::from(looked.stopped));
        add(&counters.looked_ns, looked.end.since(begin).as_nanos() as u64);
        add(&counters.pauses, looked.pauses);
        add(&counters.paused_ns, looked.paused.as_nanos() as u64);
        looked.found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn at(micros: u64) -> Instant {
        Instant(micros * 1_000)
    }

    /// Polls with a source that has come 5 us after each wait for it, often enough to be looked for.
    fn busy(poll: Poll) -> (Polls, Slot, u64) {
        let mut polls = Polls::default();
        let slot = polls.add(poll, NETWORK);
        let mut now = 0;
        for _ in 0..50 {
            polls.stir(slot);
            polls.begin(at(now));
            now += 5;
            polls.came(slot, at(now));
        }
        (polls, slot, now)
    }

    #[test]
    fn who_comes_soon_is_looked_for_and_who_never_is_not() {
        let (mut polls, slot, now) = busy(Poll::Auto);
        polls.stir(slot);
        let look = polls.begin(at(now)).expect("it has paid");
        assert!(look.until >= at(now + 5) && look.until <= at(now + 50), "{look:?}");
        assert!(!look.stubborn);
        let (mut polls, slot, now) = busy(Poll::Never);
        polls.stir(slot);
        assert!(!polls.is_stirred());
        assert_eq!(polls.begin(at(now)), None);
    }

    #[test]
    fn a_fixed_time_is_granted_at_once_and_whoever_wants_the_processor() {
        let mut polls = Polls::default();
        let slot = polls.add(Poll::Fixed(70), NETWORK);
        polls.guard.gap(at(1), Duration::from_secs(1), true);
        polls.stir(slot);
        assert_eq!(polls.begin(at(2)), Some(Look { until: at(72), stubborn: true }));
        // It is over in a later wait, without another activity.
        assert_eq!(polls.begin(at(30)).map(|look| look.until), Some(at(72)));
        assert_eq!(polls.begin(at(72)), None);
        assert!(!polls.is_stirred());
    }

    #[test]
    fn one_that_lost_its_processor_does_not_look() {
        let (mut polls, slot, now) = busy(Poll::Auto);
        assert!(polls.guard.gap(at(now), Duration::from_millis(3), true));
        polls.stir(slot);
        assert_eq!(polls.begin(at(now)), None);
        polls.stir(slot);
        assert!(polls.begin(at(now + 1_000)).is_some(), "the millisecond is over");
    }

    #[test]
    fn nothing_is_looked_for_of_which_nothing_is_awaited() {
        let (mut polls, slot, now) = busy(Poll::Auto);
        polls.stir(slot);
        assert!(polls.begin(at(now)).is_some());
        polls.came(slot, at(now + 1));
        polls.calm(slot);
        assert_eq!(polls.begin(at(now + 1)), None);
    }

    #[test]
    fn connections_of_a_listener_are_one_source_until_the_last_has_gone() {
        let mut polls = Polls::default();
        let (a, b) = (ListenerId(1), ListenerId(2));
        let first = polls.join(a, Poll::Never);
        assert_eq!(polls.join(a, Poll::Never), first);
        let other = polls.join(b, Poll::Never);
        assert_ne!(other, first);
        polls.change_listener(a, Poll::Fixed(9));
        polls.leave(first);
        polls.stir(first);
        polls.stir(other);
        assert_eq!(polls.begin(at(0)).map(|look| look.until), Some(at(9)));
        polls.leave(first);
        // What is left of it is no trouble.
        polls.came(first, at(1));
        polls.stir(first);
        polls.calm(first);
        assert_eq!(polls.begin(at(1)), None);
        assert_ne!(polls.join(a, Poll::Auto), first);
    }

    /// A processor on which something comes at a moment, and others want to run. Its clock goes on by
    /// 100 ns with each reading.
    struct Played {
        now: Cell<u64>,
        comes_at: u64,
        /// What others run for when we give way.
        others: u64,
        switches: u64,
        given_way: u32,
        /// When it stands still, and for how long.
        still: Cell<Option<(u64, u64)>>,
    }

    impl Sight for Played {
        fn has_come(&mut self) -> bool {
            self.now.get() >= self.comes_at
        }

        fn now(&self) -> Instant {
            let mut now = self.now.get() + 100;
            if let Some((_, time)) = self.still.get().filter(|(from, _)| *from <= now) {
                now += time;
                self.still.set(None);
            }
            self.now.set(now);
            Instant(now)
        }

        fn lost_switches(&self) -> u64 {
            self.switches
        }

        fn give_way(&mut self) {
            self.given_way += 1;
            self.now.set(self.now.get() + self.others);
            self.switches += u64::from(self.others > 0);
        }
    }

    /// A look of 50 us for what comes at a moment.
    fn play(comes_at: u64, others: u64, stubborn: bool) -> (Looked, Guard, Played) {
        play_with(comes_at, others, stubborn, None)
    }

    /// The same, of a processor that stands still then, for so long.
    fn play_with(
        comes_at: u64,
        others: u64,
        stubborn: bool,
        still: Option<(u64, u64)>,
    ) -> (Looked, Guard, Played) {
        let (mut guard, now, still) = (Guard::default(), Cell::new(0), Cell::new(still));
        let mut sight = Played { now, comes_at, others, switches: 0, given_way: 0, still };
        let looked = look_at(&mut sight, Look { until: at(50), stubborn }, &mut guard);
        (looked, guard, sight)
    }

    #[test]
    fn a_look_ends_with_what_comes_or_with_its_time() {
        let (looked, guard, sight) = play(20_000, 0, false);
        assert!(looked.found && !looked.stopped && looked.end < at(21), "{looked:?}");
        assert!(!looked.at_once);
        assert!(sight.given_way > 5, "others are let run");
        assert!(guard.allows(looked.end));
        let (looked, ..) = play(u64::MAX, 0, false);
        assert!(!looked.found && looked.end >= at(50) && looked.end < at(51), "{looked:?}");
        let (looked, ..) = play(0, 0, false);
        assert!(looked.found && looked.at_once, "it was there before: {looked:?}");
    }

    #[test]
    fn what_came_while_another_had_the_processor_does_not_hide_that() {
        // It is there when the other's slice is over: found, and no reason to look again soon.
        let (looked, guard, sight) = play(20_000, 1_100_000, false);
        assert_eq!(sight.given_way, 1);
        assert!(looked.found && looked.stopped, "{looked:?}");
        assert!(!guard.allows(looked.end));
    }

    #[test]
    fn a_processor_that_stands_still_is_told_from_one_that_another_had() {
        let paused = |comes_at: u64, others: u64, stubborn: bool, still: u64| {
            let (looked, ..) = play_with(comes_at, others, stubborn, Some((10_000, still)));
            (looked.pauses, looked.paused.as_micros())
        };
        for stubborn in [false, true] {
            assert_eq!(paused(u64::MAX, 0, stubborn, 30_000), (1, 30));
            assert_eq!(paused(u64::MAX, 0, stubborn, 130_000), (1, 130), "beyond its end");
            assert_eq!(paused(u64::MAX, 0, stubborn, 19_000), (0, 0), "an interrupt");
            assert_eq!(paused(15_000, 0, stubborn, 30_000), (0, 0), "the kernel brought something");
        }
        assert_eq!(play(u64::MAX, 30_000, false).0.pauses, 0, "others had it");
    }

    #[test]
    fn whoever_asked_for_a_fixed_time_gives_no_way() {
        let (looked, guard, sight) = play(u64::MAX, 1_100_000, true);
        assert_eq!((sight.given_way, looked.stopped), (0, false));
        assert!(guard.allows(looked.end));
    }
}
