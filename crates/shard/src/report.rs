//! What a shard tells about itself: plain numbers, added up over shards by whoever asks.

use block::VolumeId;
use contract::counters::Counter;
use contract::{ConnectionId, DiskId, HostEvent, ListenerId, Misfits, Refused, counters};
use reservation::{Paths, Reservation};
use volume::gate::{ErrorCounters, Health, RequestCounters};
use volume::latency::Latencies;

use crate::protocols::ProtocolReport;

/// How things are on one shard.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Connections, in the order of their places.
    pub connections: Vec<ConnectionReport>,
    /// Disks, by number.
    pub disks: Vec<DiskReport>,
    /// Volumes, by number.
    pub volumes: Vec<VolumeReport>,
    pub pool: PoolCounters,
    pub counters: ShardCounters,
    pub hosts: HostCounters,
    pub imports: Vec<ImportReport>,
    pub misfits: Misfits,
    pub protocols: ProtocolReport,
    /// Volumes that are held, and by whom.
    pub reservations: Vec<(VolumeId, Reservation)>,
    /// In which state each group of listeners is.
    pub paths: Paths,
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
    /// Commands that its peer may have outstanding.
    pub queue_depth: u16,
    /// Bytes that it holds outside the pool for answers that were not given to the driver.
    pub unsent_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct DiskReport {
    pub disk: DiskId,
    pub health: Health,
    /// Why it takes no writes, if so.
    pub protected: Option<block::Failure>,
    /// What went through on this shard.
    pub counters: RequestCounters,
    pub errors: ErrorCounters,
    pub latencies: Box<Latencies>,
}

/// What went through a volume on this shard.
#[derive(Clone, Debug)]
pub struct VolumeReport {
    pub volume: VolumeId,
    pub counters: RequestCounters,
    pub errors: ErrorCounters,
    pub latencies: Box<Latencies>,
}

counters! {
    /// Connections since the start.
    pub struct ShardCounters {
        /// Connections that were accepted.
        accepted: Connections,
        /// Connections that were closed because their peer broke the protocol or a time limit.
        misbehaved: Connections,
    }
}

counters! {
    /// Hosts that came, and those that were refused, each as often as it is told to people.
    pub struct HostCounters {
        /// Hosts that began to use an export, once for each session.
        connected: Events,
        /// Hosts that were refused since no list of hosts names them.
        not_named: Events,
        /// Stations that were refused since the MAC mask of an export does not name them.
        not_in_mask: Events,
        /// Hosts that were refused since what they asked for is not exported.
        not_exported: Events,
        /// Hosts that were refused since they did not prove who they are.
        not_proved: Events,
    }
}

impl HostCounters {
    /// That this is told.
    pub(crate) fn count(&mut self, event: HostEvent) {
        let counter = match event {
            HostEvent::Connected => &mut self.connected,
            HostEvent::Left(_) => return,
            HostEvent::Refused(Refused::NotNamed) => &mut self.not_named,
            HostEvent::Refused(Refused::NotInMask) => &mut self.not_in_mask,
            HostEvent::Refused(Refused::NotExported) => &mut self.not_exported,
            HostEvent::Refused(Refused::NotProved(_)) => &mut self.not_proved,
        };
        *counter += 1;
    }
}

counters! {
    /// The memory of the data path.
    pub struct PoolCounters {
        /// Bytes of the pool.
        pool_bytes: Bytes now,
        /// Bytes of the pool that are lent out.
        pool_used_bytes: Bytes now,
        /// The most bytes of the pool that were lent out at once, of each shard.
        pool_used_max_bytes: Bytes now,
        /// Times that somebody had to wait for memory.
        waits: Events,
        /// Connections that wait for memory.
        waiting: Connections now,
    }
}

/// A remote disk.
#[derive(Clone, Debug)]
pub struct ImportReport {
    pub disk: DiskId,
    /// How its connection is, in words.
    pub state: String,
    /// Which disk it is, wherever it is met; none where it was not reached yet, or says nothing
    /// that tells it from others.
    pub identity: Option<String>,
    /// Requests that wait for an answer.
    pub in_flight: usize,
    /// What its initiator counted.
    pub counters: Vec<(&'static Counter, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_come_or_be_refused_has_a_counter_and_to_leave_has_none() {
        let mut counted = HostCounters::default();
        let refused = [
            Refused::NotNamed,
            Refused::NotInMask,
            Refused::NotExported,
            Refused::NotProved("its secret is another"),
        ];
        for (times, why) in (2..).zip(refused) {
            (0..times).for_each(|_| counted.count(HostEvent::Refused(why)));
        }
        counted.count(HostEvent::Connected);
        counted.count(HostEvent::Left("it logged out"));
        let HostCounters { connected, not_named, not_in_mask, not_exported, not_proved } = counted;
        assert_eq!([connected, not_named, not_in_mask, not_exported, not_proved], [1, 2, 3, 4, 5]);
    }
}
