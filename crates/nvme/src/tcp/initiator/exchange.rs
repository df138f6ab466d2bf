//! What the initiator keeps with each job of its disk: the command under way, and how far its data
//! are.

use crate::limits::GRANTS_MAX;

pub(super) type Disk = remote::Disk<Exchange>;
pub(super) type Job = remote::Job<Exchange>;

/// A range of a payload that the target asked for (R2T) and that cannot be sent yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    pub(super) tag: u16,
    pub(super) at: u32,
    pub(super) length: u32,
}

/// A job's command and its data. What is left of the last one is overwritten when the next is
/// submitted.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The slot of its queue that it has, and the batch in which its command lies.
    pub(super) slot: u16,
    pub(super) batch: u32,
    /// The period of the keep-alive timer in which it was made.
    pub(super) period: u32,
    /// Bytes received of a read, and bytes of a payload that were asked for.
    pub(super) received: u32,
    pub(super) granted: u32,
    /// What it sends is in its capsule.
    pub(super) is_laden: bool,
    /// A data digest was wrong.
    pub(super) bad_digest: bool,
    /// R2Ts that cannot be answered yet.
    pub(super) grants: u8,
    pub(super) waiting_grants: [Grant; GRANTS_MAX],
    /// What a discard sends.
    pub(super) ranges: Vec<u8>,
}
