//! What the initiator keeps with each job of its disk: the command under way, and how far its data
//! are.

use crate::limits::INITIATOR_R2T_MAX;

pub(super) type Disk = remote::Disk<Exchange>;
pub(super) type Job = remote::Job<Exchange>;

/// A range of a payload that the target asked for (R2T) and that cannot be sent yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    /// The target transfer tag.
    pub(super) tag: u32,
    pub(super) at: u32,
    pub(super) length: u32,
}

/// Whether what a command wrote has to be made durable by another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sync {
    #[default]
    None,
    /// It has, once the command is done.
    Owed,
    /// That one is under way, or waits for the target's window.
    UnderWay,
}

/// A job's command and its data. What is left of the last one is overwritten when the next is
/// submitted.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The port whose session has its command, or had it when it broke.
    pub(super) port: u16,
    /// The slot of that session that it has, and the batch in which its command lies.
    pub(super) slot: u16,
    pub(super) batch: u32,
    /// CmdSN.
    pub(super) cmd_sn: u32,
    /// Bytes that it sends in all.
    pub(super) sends: u32,
    /// Bytes received of a read; bytes of a payload that were sent unasked or asked for.
    pub(super) received: u32,
    pub(super) granted: u32,
    /// The next DataSN of its Data-In, or R2TSN.
    pub(super) data_sn: u32,
    /// What it sends came unasked, at least in part.
    pub(super) is_laden: bool,
    /// The target had no room for it, and the payload is waited for.
    pub(super) is_put_back: bool,
    /// A data digest was wrong.
    pub(super) bad_digest: bool,
    pub(super) sync: Sync,
    /// R2Ts that cannot be answered yet.
    pub(super) grants: u8,
    pub(super) waiting_grants: [Grant; INITIATOR_R2T_MAX],
    /// What an UNMAP sends.
    pub(super) ranges: Vec<u8>,
}
