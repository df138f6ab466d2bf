//! What whoever adds a session wants of it. Units: microseconds. Errors: [`Refused`]. Spec: RFC 5880
//! clauses 6.1 and 6.8.1.

use crate::limits::{INTERVAL_MAX_US, INTERVAL_MIN_US};
use crate::refused::Refused;

/// Who begins. At least one end of a session is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Sends whether anything came or not.
    #[default]
    Active,
    /// Sends nothing to whom it has not heard.
    Passive,
}

/// What a session is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub role: Role,
    /// How often it would like to send while it is Up.
    pub desired_min_tx_interval_us: u32,
    /// How often the peer may send.
    pub required_min_rx_interval_us: u32,
    /// After how many intervals of silence the peer gives the session up.
    pub detect_mult: u8,
    /// Whether a packet by another carrier is none of this session's, whatever discriminator it has.
    /// RFC 5880 tells sessions by the discriminator alone, and on links it is right (RFC 5881 clause
    /// 3). A pseudowire is itself what the session watches (RFC 5885 clause 3): what comes out of
    /// another one was led astray, and shows nothing of this one. Nor does one that is bound stay
    /// with a stranger whose first packet came by the wrong carrier: what it answers is not taken.
    pub is_carrier_bound: bool,
}

impl Settings {
    /// Whether a session can be like this.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        for interval_us in [self.desired_min_tx_interval_us, self.required_min_rx_interval_us] {
            if !(INTERVAL_MIN_US..=INTERVAL_MAX_US).contains(&interval_us) {
                return Err(Refused::Interval(interval_us));
            }
        }
        if self.detect_mult == 0 { Err(Refused::DetectMult) } else { Ok(()) }
    }
}
