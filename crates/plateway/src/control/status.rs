//! How a server is, as the control socket and `--json` say it. Keys stay: later versions add keys
//! and rename none.
//!
//! Units: bytes, nanoseconds and counts, as the names end. Counters begin with the object, and are
//! sums over shards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::protocols::ProtocolStatus;

/// How a server is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Of the program.
    pub(crate) version: String,
    /// Of the server.
    pub(crate) pid: u32,
    /// `io_uring` or `epoll`.
    pub(crate) driver: String,
    /// Why that.
    pub(crate) driver_reason: String,
    /// CPUs of the shards.
    pub(crate) shards: Vec<u32>,
    /// Since the start.
    pub(crate) uptime_ns: u64,
    /// Processor time of all threads of the server.
    pub(crate) cpu_ns: u64,
    /// Of the data path.
    pub(crate) memory: Memory,
    /// Listening addresses.
    pub(crate) listeners: Vec<Listener>,
    /// What each protocol shows to hosts, and who is there.
    #[serde(flatten)]
    pub(crate) protocols: ProtocolStatus,
    /// Links that are open.
    #[serde(default)]
    pub(crate) links: Vec<Link>,
    /// Frames that came on links and were for nobody here, by the reason.
    #[serde(default)]
    pub(crate) misfits: BTreeMap<String, u64>,
    /// Connections of hosts.
    pub(crate) connections: Vec<Connection>,
    /// Connections since the start.
    pub(crate) accepted: u64,
    /// Connections that were closed because their peer broke the protocol or a time limit.
    pub(crate) misbehaved: u64,
    /// Connections that a bound refused.
    pub(crate) refused: u64,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) disks: Vec<Disk>,
    /// What each shard has done.
    pub(crate) work: Vec<Work>,
}

/// The memory budget of the data path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// `memory` of the configuration.
    pub(crate) budget_bytes: u64,
    /// Of the pools of all shards.
    pub(crate) pool_bytes: u64,
    /// Lent out now.
    pub(crate) pool_used_bytes: u64,
    /// The most of each shard at once, added up.
    pub(crate) pool_used_max_bytes: u64,
    /// How often somebody had to wait for memory.
    pub(crate) waits: u64,
    /// Connections that wait for memory now.
    pub(crate) waiting: u64,
    /// What sockets may make the kernel hold at most, of `max_connections` connections; none where
    /// the system does not let it be bounded.
    pub(crate) sockets_max_bytes: Option<u64>,
}

/// A listening address.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Listener {
    /// As configured.
    pub(crate) nvme: String,
    /// Where it really listens.
    pub(crate) addresses: Vec<String>,
    /// `poll_us`.
    pub(crate) poll_us: u32,
    /// Now.
    pub(crate) connections: u64,
    /// `max_connections`.
    pub(crate) connections_max: u32,
}

/// A link that is open. Frames count from the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Link {
    /// Its name.
    pub(crate) interface: String,
    /// 802.1Q; none takes frames without a tag.
    pub(crate) vlan: Option<u16>,
    /// `exports` or `imports`.
    pub(crate) used_for: String,
    /// Whether frames come and go.
    pub(crate) up: bool,
    /// Its own address; none while the interface is not there.
    pub(crate) mac: Option<String>,
    /// Bytes behind the Ethernet header; none while the interface is not there.
    pub(crate) mtu: Option<u32>,
    /// How frames come: `packet ring` or `xdp`; `-` while it is down.
    pub(crate) method: String,
    /// Frames that its receive rings hold, of all shards together.
    pub(crate) ring_frames: u64,
    /// Commands that exports on it say they hold: where these are more than the ring's frames, a
    /// burst of all initiators loses some.
    pub(crate) promised: u64,
    /// Exports on it, or remote disks.
    pub(crate) uses: u64,
    /// Frames.
    pub(crate) received: u64,
    /// Of these frames.
    pub(crate) received_bytes: u64,
    /// Frames.
    pub(crate) sent: u64,
    /// Of these frames.
    pub(crate) sent_bytes: u64,
    /// Frames that the kernel dropped because a ring was full.
    pub(crate) dropped: u64,
    /// Frames cut short, or with a tag that is not 802.1Q.
    pub(crate) unreadable: u64,
    /// Frames that could not be sent.
    pub(crate) send_failed: u64,
    /// How often frames waited for room in the send buffer.
    pub(crate) send_waits: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Connection {
    /// Its other side.
    pub(crate) peer: String,
    /// The listener, as configured.
    pub(crate) listener: String,
    /// The shard that it is on.
    pub(crate) shard: u16,
    pub(crate) pool_bytes: u64,
}

/// What went through.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Requests.
    pub(crate) reads: u64,
    /// Requests that change data.
    pub(crate) writes: u64,
    /// Of disks: those that were really made.
    pub(crate) flushes: u64,
    pub(crate) read_bytes: u64,
    /// Written.
    pub(crate) write_bytes: u64,
    /// Requests that did not end well.
    pub(crate) errors: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: String,
    /// Layout and disks.
    pub(crate) layout: String,
    /// What hosts see.
    pub(crate) bytes: u64,
    pub(crate) block_size: u32,
    /// Its identity.
    pub(crate) uuid: String,
    /// Why a part of it cannot be had, if so: a disk that has become too small.
    #[serde(default)]
    pub(crate) problem: Option<String>,
    /// Who may use it alone, if it is held.
    #[serde(default)]
    pub(crate) reservation: Option<Reservation>,
    /// What went through.
    pub(crate) counters: Counters,
}

/// The reservation of a volume that is held.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// `write-exclusive` or `exclusive-access`, with `-registrants` or `-all` where more than the
    /// holder may.
    pub(crate) kind: String,
    /// Who holds it, such as `mac:020000000001`.
    pub(crate) holders: Vec<String>,
    /// Who is registered.
    pub(crate) registrants: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Disk {
    pub(crate) name: String,
    /// Where its blocks are.
    pub(crate) uri: String,
    /// Its size.
    pub(crate) bytes: u64,
    /// `well`, `slow`, `stuck`, or `closed`.
    pub(crate) state: String,
    /// Why it takes no writes, if so.
    pub(crate) protected: Option<String>,
    /// Whether a completed write may be lost until a flush.
    pub(crate) cache: String,
    /// The smallest unit that can be addressed.
    pub(crate) logical_block: u32,
    /// What is written atomically.
    pub(crate) physical_block: u32,
    /// `direct`, `cached`, `memory` or `remote`.
    pub(crate) access: String,
    /// How the connection of a remote disk is.
    pub(crate) remote: Option<String>,
    /// What went through.
    pub(crate) counters: Counters,
}

/// What a shard has done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Its number.
    pub(crate) shard: u16,
    /// Turns of its loop.
    pub(crate) turns: u64,
    pub(crate) system_calls: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Received straight into block buffers.
    pub(crate) direct_bytes: u64,
    /// Connections now.
    pub(crate) connections: u64,
}

/// Steps that were, or would be, carried out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// A line each; none where nothing changes.
    pub(crate) steps: Vec<String>,
    /// What is probably not meant, or was done without.
    pub(crate) warnings: Vec<String>,
}

/// Counters of all shards added up; those that are 0 say nothing.
pub(crate) fn counted(all: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in all.filter(|(_, count)| *count > 0) {
        *sums.entry(name.to_owned()).or_default() += count;
    }
    sums
}
