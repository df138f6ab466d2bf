//! Sessions that are refused: what was asked for, and what stands against it.

use core::fmt;

use crate::limits::{INTERVAL_MAX_US, INTERVAL_MIN_US, SESSIONS_MAX};
use crate::sessions::Carrier;

/// Why all sessions stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many as there may be.
    TooMany,
    /// The carrier has a session: a first packet does not say for which of two it is.
    Taken(Carrier),
    /// An interval that is too short or too long.
    Interval(u32),
    /// A multiplier of 0.
    DetectMult,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "expected at most {SESSIONS_MAX} sessions, seen one more"),
            Self::Taken(Carrier(carrier)) => write!(f, "carrier {carrier} has a session"),
            Self::Interval(seen) => write!(
                f,
                "expected an interval of {INTERVAL_MIN_US} to {INTERVAL_MAX_US} us, seen {seen} us"
            ),
            Self::DetectMult => f.write_str("expected a detect mult of 1 to 255, seen 0"),
        }
    }
}

impl core::error::Error for Refused {}
