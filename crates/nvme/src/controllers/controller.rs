//! One controller: its registers, its I/O queues, its features and what it owes the host.
//!
//! ```text
//!            Connect
//!               v            CC.EN = 1, fields right
//!          +----------+ ---------------------------> +-------+   CC.SHN   +-----------+
//!          | disabled |                              | ready | ---------> | shut down |
//!          +----------+ <--- queues drained --- reset <------+            +-----------+
//!               |                    CC.EN = 0       |                         |
//!               +------------------------+-----------+-------------------------+
//!                                        v   admin queue lost, keep alive expired, host or subsystem removed
//!                                    +--------+
//!                                    | failed |  gone once every queue has drained
//!                                    +--------+
//! ```
//! Spec: NVMe base, "Controller Initialization", "Memory-based Controller Shutdown", "Controller
//! Reset".

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use block::{Instant, ShardId, Slot};
use contract::Endpoint;
use reservation::PathGroup;
use wire::nvme::fabrics::{Configuration, ControllerStatus};
use wire::nvme::log::ErrorEntry;

use super::connect::Asked;
use super::reservations::Notifications;
use super::{Association, ControllerReport, ControllerState, MachineKey};
use crate::feature::Features;
use crate::limits::IO_QUEUES_MAX;
use crate::message::ControllerRef;

/// What is going on with a controller as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It answers commands.
    Live,
    /// CC.EN went to 0: the Property Set is answered once the I/O queues have drained.
    Resetting {
        /// CID of the Property Set.
        command_id: u16,
    },
    /// All its queues are being closed; it ends with the last.
    Failed,
}

/// An I/O queue as the owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoQueue {
    /// There is none.
    Free,
    /// It is on the owner's own shard.
    Local(Slot),
    /// It is on another shard.
    Remote {
        shard: ShardId,
        /// Whether its connection is lost and it drains.
        lost: bool,
    },
}

/// An event of which the host is told once, until it reads the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing to tell.
    #[default]
    Idle,
    /// To be told with the next request.
    Waiting,
    /// Told; masked until the log is read with RAE 0.
    Told,
}

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) name: ControllerRef,
    /// Whose namespaces it serves; `None` for a discovery controller.
    pub(crate) export: Option<Slot>,
    pub(crate) who: Arc<Association>,
    pub(crate) endpoint: Endpoint,
    /// The group of the listener by which its host came.
    pub(crate) group: PathGroup,
    pub(crate) admin_key: MachineKey,
    /// The admin queue; `None` once it has drained.
    pub(crate) admin: Option<Slot>,
    pub(crate) phase: Phase,
    pub(crate) configuration: Configuration,
    pub(crate) status: ControllerStatus,
    /// By QID - 1; grows to the largest QID that was used.
    pub(crate) io_queues: Vec<IoQueue>,
    pub(crate) features: Features,
    /// When the admin queue, or an I/O queue that connected, was last heard.
    pub(crate) heard: Instant,
    /// When the keep-alive timer is set for.
    pub(crate) keep_alive_at: Option<Instant>,
    /// Shards that were asked when they last heard a command, and have not answered.
    pub(crate) heard_asked: u32,
    /// Flushes of a shutdown that are not done.
    pub(crate) flushes: u32,
    /// Whether another shutdown was asked for meanwhile: those flushes may not cover what was
    /// written since.
    pub(crate) flush_again: bool,
    /// CIDs of the asynchronous event requests that are held.
    pub(crate) event_requests: VecDeque<u16>,
    pub(crate) notice: Notice,
    /// That the state of its group changed.
    pub(crate) access_notice: Notice,
    pub(crate) changed_namespaces: BTreeSet<u32>,
    pub(crate) notifications: Notifications,
    /// Newest first.
    pub(crate) errors: VecDeque<ErrorEntry>,
    pub(crate) error_count: u64,
}

impl Controller {
    /// A controller that is disabled, with its admin queue.
    pub(super) fn new(
        now: Instant,
        name: ControllerRef,
        export: Option<Slot>,
        asked: &Asked,
        admin: Slot,
    ) -> Self {
        Controller {
            name,
            export,
            who: Arc::clone(&asked.who),
            endpoint: asked.endpoint,
            group: asked.group,
            admin_key: asked.key,
            admin: Some(admin),
            phase: Phase::Live,
            configuration: Configuration(0),
            status: ControllerStatus(0),
            io_queues: Vec::new(),
            features: Features::new(asked.connect.keep_alive_ms),
            heard: now,
            keep_alive_at: None,
            heard_asked: 0,
            flushes: 0,
            flush_again: false,
            event_requests: VecDeque::new(),
            notice: Notice::Idle,
            access_notice: Notice::Idle,
            changed_namespaces: BTreeSet::new(),
            notifications: Notifications::default(),
            errors: VecDeque::new(),
            error_count: 0,
        }
    }

    pub(crate) fn is_discovery(&self) -> bool {
        self.export.is_none()
    }

    /// Whether it takes commands beyond the Fabrics ones.
    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Live && self.status.ready()
    }

    /// The I/O queue of this QID.
    pub(crate) fn io_queue(&self, queue_id: u16) -> IoQueue {
        let index = usize::from(queue_id).wrapping_sub(1);
        self.io_queues.get(index).copied().unwrap_or(IoQueue::Free)
    }

    /// Replaces the I/O queue of this QID, 1 to [`IO_QUEUES_MAX`].
    pub(crate) fn set_io_queue(&mut self, queue_id: u16, queue: IoQueue) {
        assert!((1..=IO_QUEUES_MAX).contains(&queue_id), "queue {queue_id}");
        let index = usize::from(queue_id) - 1;
        if self.io_queues.len() <= index {
            self.io_queues.resize(index + 1, IoQueue::Free);
        }
        self.io_queues[index] = queue;
    }

    /// Whether no I/O queue is left.
    pub(crate) fn is_without_io(&self) -> bool {
        self.io_queues.iter().all(|queue| *queue == IoQueue::Free)
    }

    /// Its I/O queues on its own shard.
    pub(crate) fn local_queues(&self) -> Vec<Slot> {
        let local = |queue: &IoQueue| match queue {
            IoQueue::Local(slot) => Some(*slot),
            IoQueue::Free | IoQueue::Remote { .. } => None,
        };
        self.io_queues.iter().filter_map(local).collect()
    }

    /// The other shards that have I/O queues of it, each once.
    pub(crate) fn remote_shards(&self) -> BTreeSet<ShardId> {
        let remote = |queue: &IoQueue| match queue {
            IoQueue::Remote { shard, .. } => Some(*shard),
            IoQueue::Free | IoQueue::Local(_) => None,
        };
        self.io_queues.iter().filter_map(remote).collect()
    }

    pub(crate) fn report(&self, owner: ShardId) -> ControllerReport {
        let state = match self.phase {
            Phase::Failed => ControllerState::Failed,
            Phase::Resetting { .. } => ControllerState::Resetting,
            Phase::Live if self.status.shst() != 0 => ControllerState::ShutDown,
            Phase::Live if self.status.ready() => ControllerState::Ready,
            Phase::Live => ControllerState::Disabled,
        };
        let queues = (1..).zip(&self.io_queues).filter_map(|(queue_id, queue)| match queue {
            IoQueue::Free => None,
            IoQueue::Local(_) => Some((queue_id, owner)),
            IoQueue::Remote { shard, .. } => Some((queue_id, *shard)),
        });
        ControllerReport {
            controller: self.name.id,
            subsystem: self.who.subsystem.clone(),
            host: self.who.host.clone(),
            shard: owner,
            peer: self.endpoint.peer,
            state,
            keep_alive_ms: self.features.keep_alive_ms(),
            queues: queues.collect(),
            errors: self.error_count,
        }
    }
}
