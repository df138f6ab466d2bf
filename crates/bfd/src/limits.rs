//! The bounds of BFD sessions. What holds for every protocol stands in [`block::limits`]. A number
//! here is either derived in the comment above it or says where it comes from. Intervals in
//! microseconds, as packets have them.

use core::time::Duration;

/// Sessions of a machine: a full mesh of pseudowires between some hundred hosts, with as many to spare.
/// At the shortest interval that is more than a core can send; how short intervals may be where there
/// are many sessions is for whoever adds them.
pub const SESSIONS_MAX: usize = 4096;
/// The shortest interval: that of the fastest hardware (RFC 7419).
pub const INTERVAL_MIN_US: u32 = 3_300;
/// The longest interval. With the largest multiplier it finds a failure within four and a half hours;
/// nobody asks for less.
pub const INTERVAL_MAX_US: u32 = 60_000_000;
/// What a session that is not Up sends at most this often (RFC 5880 clause 6.8.3).
pub const SLOW_INTERVAL_US: u32 = 1_000_000;
/// The range by which the interval before each packet is shortened at random, in millionths ...
pub const JITTER_PPM: (u32, u32) = (0, 250_000);
/// ... and where one packet that is missed ends the session (RFC 5880 clause 6.8.7).
pub const JITTER_OF_ONE_PPM: (u32, u32) = (100_000, 250_000);
/// An answer that has not come after so long does not come: the peer answers at once, and around the
/// world is a third of it.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
/// One part in so many of a detection time: who sees by the clock that it did not run for longer does
/// not trust its own silence. Of three packets that the usual multiplier allows to be missed, one.
pub const STALL_PARTS: u32 = 3;

// How the bounds relate.
const _: () = {
    assert!(INTERVAL_MIN_US <= SLOW_INTERVAL_US && SLOW_INTERVAL_US <= INTERVAL_MAX_US);
    // What is shortened stays an interval.
    assert!(JITTER_PPM.0 < JITTER_PPM.1 && JITTER_PPM.1 < 1_000_000);
    assert!(JITTER_PPM.0 <= JITTER_OF_ONE_PPM.0 && JITTER_OF_ONE_PPM.1 <= JITTER_PPM.1);
};
