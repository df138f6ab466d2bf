//! What a run knows of AoE: the LANs and what the target exports there, the host that administers
//! it, and a station that means no good.

mod controller;
mod hostile;
mod lan;

pub(crate) use controller::ControlHost;
pub(crate) use lan::{LanState, disturb, import_settings};
