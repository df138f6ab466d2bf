//! How long it pays to look for what a source sends next.
//!
//! To sleep and be woken costs time on both sides; to look costs the time until something comes. So
//! what is remembered of a source is how long it let the shard wait lately, in classes, the newest
//! waits weighing most. Its window is the time for which looking would have gained most in these
//! waits:
//!
//! ```text
//!   gained  =  what sleeping costs * waits that ended within the window
//!              - the time spent looking: each wait, or the window where it ended later
//! ```
//!
//! or none, if there is no gain. Who asks once a millisecond is never looked for; who answers after
//! 15 us is, for about as long.
//!
//! **Trials.** A wait that was slept through is longer than it would have been: both sides had to be
//! woken, and wake-ups of a processor that sleeps take tens of microseconds. So a source whose
//! waits end not long after the longest window is looked for now and then all the same, and what
//! that brings counts alone. In vain it is done half as often.
//!
//! Units: nanoseconds. Pure: waits come as arguments.

/// Classes of waits within the longest window; those that took longer are one more.
const CLASSES: usize = 7;
/// Where each class ends, in 32nds of the longest window.
const ENDS: [u32; CLASSES] = [1, 2, 4, 8, 16, 24, 32];
/// What all waits weigh together.
const WHOLE: u32 = 1 << 16;
/// The newest wait weighs `WHOLE >> FORGETS`, and older ones lose as large a part.
const FORGETS: u32 = 4;
/// A wait that was slept through, and took at most so many times the longest window, may have been
/// within it.
const NEAR: u32 = 4;
/// So many such waits in a row before a first trial, and at most before a later one.
const TRIAL_MIN: u16 = 8;
const TRIAL_MAX: u16 = 1024;
/// So many waits are looked through in a trial, and all of them have to pay.
const TRIAL_WAITS: u8 = 3;

/// After a wait as long as this nothing that was is a guide: a Keep Alive follows the last one after
/// seconds.
const SILENCE: u64 = 20_000_000;

/// What is remembered of a source.
#[derive(Debug)]
pub(super) struct Window {
    longest: u32,
    /// What waits of each class weigh. The rest up to [`WHOLE`] took longer.
    weights: [u32; CLASSES],
    width: u32,
    /// Waits that may have been within the window, since the last trial.
    near: u16,
    /// So many of them make a trial.
    trial_after: u16,
    /// Waits that are left of the trial.
    trial: u8,
}

impl Window {
    /// Of a source about which nothing is known: it is not looked for. `longest` is the most that
    /// it may be.
    pub(super) fn new(longest: u32) -> Window {
        Window {
            longest,
            weights: [0; CLASSES],
            width: 0,
            near: 0,
            trial_after: TRIAL_MIN,
            trial: 0,
        }
    }

    /// How long to look for more of it.
    #[inline]
    pub(super) fn width(&self) -> u32 {
        if self.trial > 0 { self.longest } else { self.width }
    }

    /// A wait for it has ended after so long. `slept`: the shard slept in it.
    #[inline]
    pub(super) fn record(&mut self, wait: u64, slept: bool) {
        let class = self.class_of(wait);
        if self.trial > 0 {
            return self.try_on(class);
        }
        for weight in &mut self.weights {
            *weight -= *weight >> FORGETS;
        }
        match class {
            Some(class) => self.weights[class] += WHOLE >> FORGETS,
            None if wait >= SILENCE => *self = Window::new(self.longest),
            None if slept && wait <= u64::from(NEAR * self.longest) => self.may_try(),
            None => self.near = 0,
        }
        self.width = self.best();
    }

    #[inline]
    fn class_of(&self, wait: u64) -> Option<usize> {
        let longest = u64::from(self.longest);
        ENDS.iter().position(|end| wait * 32 <= longest * u64::from(*end))
    }

    /// A wait of a trial has ended.
    #[cold]
    fn try_on(&mut self, class: Option<usize>) {
        let Some(class) = class else {
            self.trial = 0;
            self.trial_after = (self.trial_after * 2).min(TRIAL_MAX);
            return;
        };
        if self.trial == TRIAL_WAITS {
            // It is another source while it is looked for: what was is no guide.
            self.weights = [0; CLASSES];
        }
        self.weights[class] += WHOLE / u32::from(TRIAL_WAITS) - 1;
        self.trial -= 1;
        if self.trial == 0 {
            self.trial_after = TRIAL_MIN;
            self.width = self.best();
        }
    }

    #[cold]
    fn may_try(&mut self) {
        self.near += 1;
        if self.near >= self.trial_after && self.width == 0 {
            self.near = 0;
            self.trial = TRIAL_WAITS;
        }
    }

    /// The window that gains most; none if none gains.
    #[inline]
    fn best(&self) -> u32 {
        let unit = i64::from(self.longest) / 32;
        // That is what sleeping costs, for both sides: a wait that takes the longest window and
        // comes surely is worth looking through.
        let price = 48 * unit;
        let (mut within, mut looked) = (0, 0);
        let (mut best, mut most, mut begin) = (0, 0, 0);
        for (end, weight) in ENDS.iter().zip(self.weights) {
            let (end, weight) = (i64::from(*end) * unit, i64::from(weight));
            within += weight;
            // In the middle of its class, one with another.
            looked += weight * (begin + end) / 2;
            begin = end;
            let gained = price * within - looked - (i64::from(WHOLE) - within) * end;
            if gained > most {
                (best, most) = (end, gained);
            }
        }
        best as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u32 = 50_000;

    fn after(waits: impl IntoIterator<Item = u64>) -> Window {
        let mut window = Window::new(LONGEST);
        waits.into_iter().for_each(|wait| window.record(wait, window.width == 0));
        window
    }

    #[test]
    fn it_begins_with_none_and_grows_to_what_comes_surely() {
        assert_eq!(Window::new(LONGEST).width(), 0);
        assert_eq!(after([10_000]).width(), 0, "one is not enough");
        let width = after([10_000; 8]).width();
        assert!((10_000..=25_000).contains(&width), "{width}");
        let width = after([45_000; 60]).width();
        assert!((45_000..=LONGEST).contains(&width), "{width}");
    }

    #[test]
    fn who_asks_once_a_millisecond_is_never_looked_for() {
        let mut window = Window::new(LONGEST);
        for _ in 0..10_000 {
            window.record(1_000_000, true);
            assert_eq!(window.width(), 0);
        }
    }

    #[test]
    fn it_ends_when_it_pays_no_more() {
        let mut window = after([10_000; 100]);
        let lasted = (0..1_000)
            .take_while(|_| {
                window.record(1_000_000, true);
                window.width() > 0
            })
            .count();
        assert!((1..40).contains(&lasted), "looked in vain {lasted} times");
    }

    #[test]
    fn after_a_silence_it_begins_anew() {
        let mut window = after([10_000; 100]);
        assert!(window.width() > 0);
        window.record(SILENCE, true);
        assert_eq!(window.width(), 0);
    }

    #[test]
    fn rare_short_waits_among_long_ones_do_not_pay() {
        // Requests at random, once a millisecond: one in twenty comes within the window.
        let mut window = Window::new(LONGEST);
        let mut looked = 0;
        for round in 0..10_000u32 {
            let wait = if round % 20 == 7 { 25_000 } else { 1_000_000 };
            looked += u64::from(window.width()).min(wait);
            window.record(wait, true);
        }
        assert!(looked < 10_000 * 1_000, "{} ns a wait", looked / 10_000);
    }

    #[test]
    fn half_in_vain_pays_while_what_comes_comes_soon() {
        let window = after((0..100).map(|round| if round % 2 == 0 { 8_000 } else { 500_000 }));
        assert!((8_000..=25_000).contains(&window.width()), "{}", window.width());
        let window = after((0..100).map(|round| if round % 2 == 0 { 45_000 } else { 500_000 }));
        assert_eq!(window.width(), 0);
    }

    /// A source that answers after `looked` while it is looked for, and after `slept` otherwise:
    /// how often it was looked for in so many waits, and how often it came meanwhile.
    fn play(rounds: u32, slept: u64, looked: u64) -> (u32, u32) {
        let mut window = Window::new(LONGEST);
        let (mut looks, mut hits) = (0, 0);
        for _ in 0..rounds {
            let width = u64::from(window.width());
            if width == 0 {
                window.record(slept, true);
                continue;
            }
            looks += 1;
            hits += u32::from(looked <= width);
            window.record(looked, looked > width);
        }
        (looks, hits)
    }

    #[test]
    fn a_source_that_is_slow_only_because_all_sleep_is_found_by_a_trial() {
        let (looks, hits) = play(1_000, 90_000, 30_000);
        assert!(looks > 980 && hits > looks - 5, "{hits} of {looks}");
    }

    #[test]
    fn trials_in_vain_become_rare() {
        let (looks, hits) = play(10_000, 150_000, 120_000);
        assert_eq!(hits, 0);
        assert!((5..25).contains(&looks), "{looks}");
        assert_eq!(play(10_000, 250_000, 30_000).0, 0, "beyond what a wake-up may take");
    }
}
