//! Paths: a link of ours and a station of the target's behind it. How fast one answers, how much
//! may be under way on it, and whether it may be used.
//!
//! ```text
//!   query on a link --answered--> Asking --IDENTIFY answered: the same disk--> Live --4 time-outs in a row--> Asking
//!                                   |                                            |  announced anew, or a frame was too large
//!                                   +--another disk--> Refused                   +--> Asking
//! ```
//!
//! Nothing is sent to a path that is asked who it is: behind silence or an announcement a target
//! may have restarted, and may serve another disk at the same address. Nor before it has told again
//! what a frame may carry: the MTU of its link may be smaller now, and nobody heard it say so.
//!
//! **Round trip**: srtt and its deviation with gains 1/8 and 1/4 (Jacobson, 1988), for reads and
//! writes apart, since a write waits for the media; a command that was sent twice says nothing
//! (Karn). **Window**: slow start to the threshold, then one more a round trip; at a time-out the
//! threshold becomes half the window, and the window the threshold, or 1 at the second in a row.

use core::time::Duration;

use block::Instant;
use contract::LinkId;
use remote::backoff;
use wire::ethernet::MacAddress;

use crate::limits::{
    ASK_REST_FIRST, ASK_REST_MAX, ASKED_SOON_MAX, RTO_FIRST, RTO_MAX, RTO_READ_MIN, RTO_SOON_MAX,
    RTO_WRITE_MIN, TIMEOUTS_SUSPECT, WINDOW_FIRST,
};

/// A window is counted in sixteenths of a command.
const UNIT: u32 = 16;

/// A round-trip estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    smooth_ns: u64,
    deviation_ns: u64,
}

impl Rtt {
    /// A command came back after `sample`.
    pub(super) fn sample(&mut self, sample: Duration) {
        let sample = sample.as_nanos() as u64;
        if self.smooth_ns == 0 {
            (self.smooth_ns, self.deviation_ns) = (sample.max(1), sample / 2);
            return;
        }
        let error = sample.abs_diff(self.smooth_ns);
        self.deviation_ns = (3 * self.deviation_ns + error) / 4;
        self.smooth_ns = ((7 * self.smooth_ns + sample) / 8).max(1);
    }

    /// When a command that was sent now counts as lost, after `tries` copies of it.
    pub(super) fn timeout(&self, is_write: bool, tries: u32) -> Duration {
        let least = if is_write { RTO_WRITE_MIN } else { RTO_READ_MIN };
        let first = match self.smooth_ns {
            0 => RTO_FIRST,
            smooth => Duration::from_nanos(smooth + 4 * self.deviation_ns).max(least),
        };
        let longest = if tries < TIMEOUTS_SUSPECT { RTO_SOON_MAX.max(first) } else { RTO_MAX };
        backoff(first, tries, longest)
    }

    /// The estimate, once there is one.
    pub(super) fn smooth(&self) -> Option<Duration> {
        (self.smooth_ns > 0).then(|| Duration::from_nanos(self.smooth_ns))
    }
}

/// How far a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathState {
    /// It is asked who it is: so often up to now, and again at that moment. The last IDENTIFY has
    /// `tag`.
    Asking {
        asked: u32,
        again_at: Instant,
        tag: u32,
        /// Whether it told what it takes since it is asked.
        told: bool,
    },
    /// It is the disk, and is used.
    Live,
    /// It is another disk.
    Refused,
}

impl PathState {
    fn asking(now: Instant) -> PathState {
        PathState::Asking { asked: 0, again_at: now, tag: 0, told: false }
    }

    /// An IDENTIFY is sent with this tag.
    pub(super) fn asked_now(&mut self, now: Instant, new: u32) {
        if let PathState::Asking { asked, again_at, tag, .. } = self {
            let times = (*asked + 1).saturating_sub(ASKED_SOON_MAX);
            (*tag, *again_at) = (new, now + backoff(ASK_REST_FIRST, times, ASK_REST_MAX));
            *asked += 1;
        }
    }
}

/// Whether a target repeats in its answer which sectors a command was about. AoE does not say that
/// it has to (AoEr11, 3.1); all targets that we know do. One that repeats it for IDENTIFY alone,
/// which shows in its first answers, is believed without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    None,
    /// It did so for IDENTIFY; so many answers to commands did not match since, and none did.
    Expected(u8),
    Proven,
}

/// After so many first answers that do not match, a target does not repeat sectors.
const MISMATCHES_MAX: u8 = 8;

impl Echo {
    pub(super) fn of(identify: bool) -> Echo {
        if identify { Echo::Expected(0) } else { Echo::None }
    }

    /// Whether an answer is taken that repeats what was asked, or does not.
    #[inline]
    pub(super) fn allows(&mut self, is_same: bool) -> bool {
        match self {
            Echo::None => true,
            Echo::Proven => is_same,
            Echo::Expected(_) if is_same => {
                *self = Echo::Proven;
                true
            }
            Echo::Expected(MISMATCHES_MAX) => {
                *self = Echo::None;
                true
            }
            Echo::Expected(count) => {
                *count += 1;
                false
            }
        }
    }
}

/// A path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) link: LinkId,
    pub(super) mac: MacAddress,
    pub(super) state: PathState,
    /// Commands that the target holds, and sectors of a frame, as it told them.
    pub(super) buffers: u16,
    pub(super) sectors: u8,
    pub(super) echo: Echo,
    rtt: [Rtt; 2],
    window: u32,
    threshold: u32,
    pub(super) in_flight: u32,
    reduced_at: Instant,
    pub(super) timeouts: u32,
}

impl Path {
    /// A path that has just answered a query and is to be asked at once.
    pub(super) fn new(now: Instant, link: LinkId, mac: MacAddress, limit: u32) -> Path {
        Path {
            link,
            mac,
            state: PathState::asking(now),
            buffers: 0,
            sectors: 0,
            echo: Echo::None,
            rtt: [Rtt::default(); 2],
            window: WINDOW_FIRST.min(limit) * UNIT,
            threshold: limit * UNIT,
            in_flight: 0,
            reduced_at: Instant::ZERO,
            timeouts: 0,
        }
    }

    /// Asks it who it is, and what it takes; nothing else is sent there until it has said so.
    pub(super) fn ask(&mut self, now: Instant) {
        self.state = PathState::asking(now);
    }

    /// It told how many commands it holds, and how many sectors a frame carries.
    pub(super) fn told(&mut self, buffers: u16, sectors: u8) {
        (self.buffers, self.sectors) = (buffers, sectors);
        if let PathState::Asking { told, .. } = &mut self.state {
            *told = true;
        }
    }

    /// It is the disk. If it was asked once, the time that it took is the first that is known of
    /// it.
    pub(super) fn identified(&mut self, now: Instant) {
        if let PathState::Asking { asked: 1, again_at, .. } = self.state {
            self.rtt[0].sample(ASK_REST_FIRST.saturating_sub(again_at.since(now)));
        }
        (self.state, self.timeouts) = (PathState::Live, 0);
    }

    /// Commands that may be sent now.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        match self.state {
            PathState::Live => (self.window / UNIT).saturating_sub(self.in_flight),
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn timeout(&self, is_write: bool, tries: u32) -> Duration {
        self.rtt[usize::from(is_write)].timeout(is_write, tries)
    }

    /// A command came back, after `sample` if that can be told.
    #[inline]
    pub(super) fn answered(&mut self, is_write: bool, sample: Option<Duration>, limit: u32) {
        self.timeouts = 0;
        if let Some(sample) = sample {
            self.rtt[usize::from(is_write)].sample(sample);
        }
        // Only what is used up grows.
        if self.in_flight + 1 >= self.window / UNIT {
            let more = if self.window < self.threshold {
                UNIT
            } else {
                (UNIT * UNIT / self.window.max(1)).max(1)
            };
            self.window = (self.window + more).min(limit * UNIT);
        }
    }

    /// A command that was sent at `sent` was not answered in time.
    pub(super) fn timed_out(&mut self, now: Instant, sent: Instant) {
        self.timeouts += 1;
        if sent < self.reduced_at {
            // It was lost together with what the window was reduced for.
            return;
        }
        self.reduced_at = now;
        self.threshold = (self.window / 2).max(2 * UNIT);
        self.window = if self.timeouts > 1 { UNIT } else { self.threshold };
    }

    /// Commands that may be under way at once.
    pub(super) fn window(&self) -> u32 {
        self.window / UNIT
    }

    /// The round trip of reads, or of writes if none was read.
    pub(super) fn smooth(&self) -> Option<Duration> {
        self.rtt[0].smooth().or(self.rtt[1].smooth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_repeats_sectors_for_identify_alone_is_believed_without() {
        let mut echo = Echo::of(true);
        assert!((0..MISMATCHES_MAX).all(|_| !echo.allows(false)));
        assert!(echo.allows(false) && echo.allows(true) && echo.allows(false));
        let mut echo = Echo::of(true);
        assert!(!echo.allows(false) && echo.allows(true));
        assert!((0..=MISMATCHES_MAX).all(|_| !echo.allows(false)));
        assert!(Echo::of(false).allows(false));
    }

    fn path() -> Path {
        let mut path = Path::new(Instant(1), LinkId(0), MacAddress([2; 6]), 64);
        path.state = PathState::Live;
        path
    }

    #[test]
    fn the_time_out_follows_round_trip_and_deviation() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(false, 0), RTO_FIRST);
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(100));
        }
        let settled = rtt.timeout(false, 0);
        assert!(settled >= Duration::from_millis(99) && settled < Duration::from_millis(110));
        rtt.sample(Duration::from_millis(200));
        assert!(rtt.timeout(false, 0) > Duration::from_millis(180));
        assert_eq!(rtt.timeout(false, 20), RTO_MAX);
        let mut fast = Rtt::default();
        fast.sample(Duration::from_micros(50));
        assert_eq!((fast.timeout(false, 0), fast.timeout(true, 1)), (RTO_READ_MIN, RTO_WRITE_MIN));
        // Copies follow soon until the path is asked, and ever more slowly behind that.
        let copies =
            |is_write| [0, 1, 2, 3, 4, 5].map(|tries| fast.timeout(is_write, tries).as_millis());
        assert_eq!(copies(false), [30, 60, 120, 120, 480, 960]);
        assert_eq!(copies(true), [120, 120, 120, 120, 1920, 3840]);
        assert_eq!(rtt.timeout(true, 1), rtt.timeout(true, 0), "one that is slower than that");
    }

    #[test]
    fn a_path_is_asked_soon_again_at_first_and_then_ever_more_slowly() {
        let mut state = PathState::asking(Instant(0));
        let mut now = Instant(0);
        let mut rests = Vec::new();
        for number in 0..16 {
            state.asked_now(now, number);
            let PathState::Asking { again_at, .. } = state else { panic!("{state:?}") };
            rests.push(again_at.since(now).as_millis());
            now = again_at;
        }
        assert_eq!(rests[..8], [50; 8]);
        assert_eq!(rests[8..], [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    }

    #[test]
    fn the_window_grows_when_used_up_and_halves_once_for_what_was_lost_together() {
        let mut path = path();
        assert_eq!(path.room(), 8);
        path.in_flight = 1;
        path.answered(false, None, 64);
        assert_eq!(path.room(), 7);
        for _ in 0..200 {
            path.in_flight = path.window();
            path.answered(false, None, 64);
        }
        assert_eq!(path.window(), 64);
        for _ in 0..10 {
            path.timed_out(Instant(1000), Instant(900));
        }
        assert_eq!(path.window(), 32);
        path.timed_out(Instant(2000), Instant(1900));
        assert_eq!(path.window(), 1);
        // Slow start to the threshold, then slowly.
        path.in_flight = 64;
        for _ in 0..15 {
            path.answered(false, None, 64);
        }
        assert_eq!(path.window(), 16);
        for _ in 0..16 {
            path.answered(false, None, 64);
        }
        assert_eq!(path.window(), 16 + 1);
    }
}
