//! What the shards tell each other about controllers, carried as mail that is first in, first out
//! between two shards.
//!
//! A controller lives on the shard of its admin queue, its owner; I/O queues may live anywhere. A
//! queue exists for the owner from the moment it answered [`Message::ConnectAsk`] with yes until it
//! gets [`Message::QueueGone`], which is sent exactly once, when nothing of the queue is in flight
//! any more. Times are durations, because each shard has a clock of its own.
//!
//! ```text
//!  queue's shard                      owner
//!       | ----- ConnectAsk ------------> |   checks, reserves the queue identifier
//!       | <---- ConnectAnswer ---------- |
//!       | <---- HeardAsk --------------- |   the keep-alive timer expired
//!       | ----- HeardAnswer -----------> |
//!       | <---- CloseQueues ------------ |   CC.EN = 0, failure, removal
//!       | <---- Identified ------------- |   the controller knows what is under an NSID now
//!       | ----- IdentifiedAnswer ------> |
//!       | ----- CommandsFailed --------> |   for the error log
//!       | ----- QueueLost -------------> |   its connection is lost, it drains
//!       | ----- QueueGone -------------> |   drained, once for each queue
//!
//!  new admin queue's shard            every other shard
//!       | ----- HostAsk ---------------> |   does anything of this host still drain?
//!       | <---- HostAnswer ------------- |   at the latest after HOST_HOLD
//!       | ----- ControllerMade, Gone --> |
//!       | ----- TrafficAsk ------------> |   a log is read that is about all shards
//!       | <---- TrafficAnswer ---------- |
//! ```

use core::time::Duration;
use std::collections::BTreeMap;

use block::{Slot, VolumeId};
use reservation::PathGroup;
use wire::nvme::{Nqn, Status};

use crate::controllers::health::Failures;
use crate::subsystem::NamespaceIdentity;
use contract::Traffic;

/// A host, as Connect names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// HOSTNQN.
    pub nqn: Nqn,
    /// HOSTID, 128 bits.
    pub id: [u8; 16],
}

impl Host {
    /// What a nameless host is called: no list of hosts can name it, since HOSTNQNs begin with
    /// `nqn.` there.
    const NAMELESS: &str = "hostid:";

    /// A host of this HOSTNQN. One without is known by its HOSTID: SPDK's `spdk_nvme_perf` sends
    /// none, and other targets take it.
    pub(crate) fn new(nqn: Option<Nqn>, id: [u8; 16]) -> Host {
        let nameless = || {
            let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            Nqn::new(&format!("{}{digits}", Host::NAMELESS)).expect("a short name")
        };
        Host { nqn: nqn.unwrap_or_else(nameless), id }
    }
}

/// Who uses what: shared by a controller and its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    pub host: Host,
    /// SUBNQN.
    pub subsystem: Nqn,
}

/// A controller's name among the shards: CNTLIDs come round again, instances do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerRef {
    /// CNTLID.
    pub id: u16,
    /// Which controller of this CNTLID, counted by the owner.
    pub instance: u32,
}

/// What one shard's controllers tell another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A host wants an I/O queue of a controller of yours.
    ConnectAsk {
        /// The asker's mark, given back.
        ask: Slot,
        wanted: Box<QueueWanted>,
    },
    /// The owner's answer.
    ConnectAnswer {
        /// The asker's mark.
        ask: Slot,
        /// Yes, or why not.
        answer: Result<Admission, Refusal>,
    },
    /// Close all queues of this controller that you have.
    CloseQueues {
        controller: ControllerRef,
        /// Why.
        reason: CloseReason,
    },
    /// An I/O queue is gone and nothing of it is in flight any more.
    QueueGone {
        controller: ControllerRef,
        /// QID.
        queue_id: u16,
        /// Time since its last command.
        quiet: Duration,
    },
    /// The connection of an I/O queue is lost; `QueueGone` follows once it has drained.
    QueueLost {
        controller: ControllerRef,
        /// QID.
        queue_id: u16,
    },
    /// When did you last hear a command on queues of this controller?
    HeardAsk { controller: ControllerRef },
    /// So long ago; `None` if there is no such queue any more.
    HeardAnswer {
        controller: ControllerRef,
        /// Time since the last command.
        quiet: Option<Duration>,
    },
    /// Commands of an I/O queue of yours failed.
    CommandsFailed { controller: ControllerRef, failures: Box<Failures> },
    /// What did hosts read and write of this subsystem through you?
    TrafficAsk {
        /// The asker's mark.
        ask: Slot,
        subsystem: Nqn,
    },
    /// The answer to `TrafficAsk`.
    TrafficAnswer {
        /// The asker's mark.
        ask: Slot,
        /// So much; nothing if there is no such subsystem.
        traffic: Traffic,
    },
    /// A host connects: answer once no queue or failed controller of it drains on your shard, or
    /// say that one does.
    HostAsk {
        /// The asker's mark.
        ask: Slot,
        who: Association,
    },
    /// The answer to `HostAsk`.
    HostAnswer {
        /// The asker's mark.
        ask: Slot,
        /// Whether something of the host's is still draining.
        busy: bool,
    },
    /// A disk of this volume does not come back: fail the controllers that export it.
    VolumeStuck { volume: VolumeId },
    /// A controller of mine was told who is under this number.
    Identified {
        /// The sender's mark, given back.
        ask: Slot,
        controller: ControllerRef,
        /// NSID.
        nsid: u32,
        identity: NamespaceIdentity,
    },
    /// The queues here of that controller know it, too.
    IdentifiedAnswer {
        /// The mark.
        ask: Slot,
    },
    /// A controller came to be on the sender's shard: Identify lists the controllers of a
    /// subsystem.
    ControllerMade {
        /// CNTLID.
        controller: u16,
        subsystem: Nqn,
    },
    /// It is no more.
    ControllerGone {
        /// CNTLID.
        controller: u16,
    },
}

/// An I/O queue that a host asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWanted {
    /// CNTLID.
    pub controller: u16,
    /// QID.
    pub queue_id: u16,
    /// The group of the listener by which it came.
    pub group: PathGroup,
    pub who: Association,
}

/// The owner takes an I/O queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    pub controller: ControllerRef,
    /// What the controller takes each NSID for: the asker's shard may be ahead of the owner's, or
    /// behind.
    pub known: BTreeMap<u32, NamespaceIdentity>,
}

/// Why a Connect was refused: a status, and DW0 of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status, with DNR where a retry is useless.
    pub status: Status,
    /// DW0: for 0x182 the offset of the field (IPO) and whether it lies in the data (bit 16).
    pub result: u32,
}

/// Why a connection is to be closed by the controller side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The host reset the controller (CC.EN = 0): its I/O queues go.
    Reset,
    /// The keep-alive timer expired.
    KeepAliveExpired,
    /// The admin queue was lost.
    AdminQueueLost,
    /// A disk does not come back: the path is failed.
    DiskStuck,
    /// The host is not allowed any more.
    HostRemoved,
    /// The subsystem is not exported any more.
    SubsystemRemoved,
    /// An administrator asked for it; the host may come again.
    Administrator,
}

impl CloseReason {
    /// Why a host left, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            CloseReason::Reset => "it reset its controller",
            CloseReason::KeepAliveExpired => "nothing was heard of it within its keep-alive time",
            CloseReason::AdminQueueLost => "its connection was closed or lost",
            CloseReason::DiskStuck => "a disk of what it uses does not answer",
            CloseReason::HostRemoved => "it is not among the hosts any more",
            CloseReason::SubsystemRemoved => "it is not exported any more",
            CloseReason::Administrator => "an administrator closed its session",
        }
    }
}
