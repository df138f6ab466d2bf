//! What a run knows of AoE: the LANs and what the target exports there, the host that administers
//! it, a host whose tags fall together, and a station that means no good.

mod controller;
mod hostile;
mod lan;
mod plain_host;

pub(crate) use controller::ControlHost;
pub(crate) use lan::{ADDRESS, LanState, disturb, import_settings, mac_of};
pub(crate) use plain_host::PlainHost;

use core::ops::AddAssign;

use aoe::server::{Drops, TargetCounters};

/// What the target did over AoE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    pub target: TargetCounters,
    pub drops: Drops,
}

impl AddAssign for Activity {
    fn add_assign(&mut self, other: Activity) {
        self.target += other.target;
        self.drops += other.drops;
    }
}
