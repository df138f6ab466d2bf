//! What a shard tells about itself: plain numbers, added up over shards by whoever asks.

use block::VolumeId;
use contract::{ConnectionId, DiskId, ListenerId, Misfits, SessionCounters};
use reservation::Reservation;
use volume::gate::{Counters, Health};

use crate::protocols::{AoeReport, ControllerReport};

/// How things are on one shard.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Connections, in the order of their places.
    pub connections: Vec<ConnectionReport>,
    /// Controllers that this shard owns.
    pub controllers: Vec<ControllerReport>,
    /// Disks, by number.
    pub disks: Vec<DiskReport>,
    /// Volumes, by number.
    pub volumes: Vec<(VolumeId, Counters)>,
    /// Pages of the shard's pool.
    pub pool: PoolReport,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections that were closed because their peer broke the protocol or a time limit.
    pub misbehaved: u64,
    /// What all sessions did since the start, also those that are gone.
    pub served: SessionCounters,
    pub imports: Vec<ImportReport>,
    /// Frames that came on links and were for nobody here, by the reason.
    pub misfits: Misfits,
    /// AoE.
    pub aoe: AoeReport,
    /// Volumes that are held, and by whom.
    pub reservations: Vec<(VolumeId, Reservation)>,
}

#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Its name with the driver.
    pub connection: ConnectionId,
    pub listener: ListenerId,
    /// Its other side.
    pub peer: std::net::SocketAddr,
    /// Pages of the pool that it holds.
    pub pages: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct DiskReport {
    /// Its number.
    pub disk: DiskId,
    /// How it is doing.
    pub health: Health,
    /// Why it takes no writes, if so.
    pub protected: Option<block::Failure>,
    /// What went through on this shard.
    pub counters: Counters,
}

/// The memory budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolReport {
    /// Pages in all.
    pub pages: u32,
    /// Pages lent out.
    pub used: u32,
    /// The most that were lent out at once.
    pub used_max: u32,
    /// How often somebody had to wait.
    pub refusals: u64,
    /// Machines that wait now.
    pub waiting: usize,
}

/// A remote disk.
#[derive(Clone, Debug)]
pub struct ImportReport {
    /// Its number.
    pub disk: DiskId,
    /// How its connection is, in words.
    pub state: String,
    /// Requests that wait for an answer.
    pub in_flight: usize,
}
