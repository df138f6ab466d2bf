//! How a server is, as the control socket and `--json` say it. Keys stay: later versions add keys
//! and rename none.
//!
//! Units: bytes, nanoseconds and counts, as the names end. Counters begin with the object, and are
//! sums over shards; their keys and meanings stand where they are counted ([`Keyed`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::Deref;

use contract::Counters;
use contract::counters::Counter;
use reactor::{LinkCounters, ShardStats};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use shard::report::{PoolCounters, ShardCounters};
use utoipa::openapi::schema::{Schema, Type};
use utoipa::openapi::{ObjectBuilder, RefOr};
use utoipa::{PartialSchema, ToSchema};
use volume::gate::RequestCounters;

use crate::config::thing::Step;
use crate::protocols::{ProtocolStatus, RouterSummary};

/// How a server is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) schema_version: SchemaVersion,
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
    /// Where metrics are read, if they are.
    #[serde(default)]
    pub(crate) metrics: Option<String>,
    /// Listening addresses.
    pub(crate) listeners: Vec<Listener>,
    /// What each protocol shows to hosts, and who is there.
    #[serde(flatten)]
    pub(crate) protocols: ProtocolStatus,
    /// Links that are open.
    #[serde(default)]
    pub(crate) links: Vec<Link>,
    /// Routers, in a line each; `GET /v1/routers` has all of them.
    #[serde(default)]
    pub(crate) routers: Vec<RouterSummary>,
    /// Frames that came on links and were for nobody here, by the reason.
    #[serde(default)]
    pub(crate) misfits: BTreeMap<String, u64>,
    /// Connections of hosts.
    pub(crate) connections: Vec<Connection>,
    #[serde(flatten)]
    pub(crate) counters: ShardKeys,
    /// Connections that a bound refused.
    pub(crate) refused: u64,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) disks: Vec<Disk>,
    /// What each shard has done.
    pub(crate) work: Vec<Work>,
}

/// The memory budget of the data path.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Memory {
    /// `memory` of the configuration.
    pub(crate) budget_bytes: u64,
    #[serde(flatten)]
    pub(crate) pool: PoolKeys,
    /// What sockets may make the kernel hold at most, of `max_connections` connections; none where
    /// the system does not let it be bounded.
    pub(crate) sockets_max_bytes: Option<u64>,
}

/// A listening address.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Listener {
    /// As configured, under the key of its protocol; a string.
    #[serde(flatten)]
    pub(crate) address: BTreeMap<String, Value>,
    /// Where it really listens.
    pub(crate) addresses: Vec<String>,
    /// `poll`: how long a shard looks for more from its connections before it sleeps.
    pub(crate) poll: String,
    /// Now.
    pub(crate) connections: u64,
    /// `max_connections`.
    pub(crate) connections_max: u32,
    /// `group`.
    #[serde(default)]
    pub(crate) group: u16,
    /// The state of its group: `optimized`, `non-optimized`, `standby`, `unavailable` or
    /// `transitioning`.
    #[serde(default)]
    pub(crate) path: String,
    /// `advertise`, if it is there.
    #[serde(default)]
    pub(crate) advertise: Option<String>,
    /// Of `chap`, if it is there, as whom hosts have to log in for discovery, and as whom it proves
    /// itself in return.
    #[serde(default)]
    pub(crate) chap: Option<String>,
}

/// A link that is open. Frames count from the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Link {
    /// Its name; of a link through IP, which tunnels lead by it where.
    pub(crate) interface: String,
    /// 802.1Q; none takes frames without a tag.
    pub(crate) vlan: Option<u16>,
    /// `exports`, `imports` or `routers`.
    pub(crate) used_for: String,
    /// Whether frames come and go.
    pub(crate) up: bool,
    /// Its own address; none while the interface is not there, and through IP.
    pub(crate) mac: Option<String>,
    /// Bytes behind the Ethernet header; none while the interface is not there, and through IP (the
    /// router's port knows).
    pub(crate) mtu: Option<u32>,
    /// How frames come: `packet ring`, `xdp` or `datagrams`; `-` while it is down.
    pub(crate) method: String,
    /// Commands that exports on it say they hold: where these are more than the ring's frames, a
    /// burst of all initiators loses some.
    pub(crate) promised: u64,
    /// Exports on it, remote disks, or routers.
    pub(crate) uses: u64,
    #[serde(flatten)]
    pub(crate) counters: LinkKeys,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Connection {
    /// Its other side.
    pub(crate) peer: String,
    /// The listener, as configured.
    pub(crate) listener: String,
    /// The shard that it is on.
    pub(crate) shard: u16,
    pub(crate) pool_bytes: u64,
    /// Commands that its peer may have outstanding.
    #[serde(default)]
    pub(crate) queue_depth: u16,
    /// Bytes of answers that wait in it to be sent, beside those of the pool.
    #[serde(default)]
    pub(crate) unsent_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Volume {
    pub(crate) name: String,
    /// Layout and disks.
    pub(crate) layout: String,
    /// What hosts see.
    pub(crate) bytes: u64,
    pub(crate) block_size: u32,
    /// Its identity.
    pub(crate) uuid: String,
    /// `ok`, `degraded` or `failed`.
    #[serde(default)]
    pub(crate) state: String,
    /// Why it or a part of it cannot be had, if so: a disk that is away or has become too small.
    #[serde(default)]
    pub(crate) problem: Option<String>,
    /// Who may use it alone, or is registered to be able to.
    #[serde(default)]
    pub(crate) reservation: Option<Reservation>,
    pub(crate) counters: RequestKeys,
}

/// The reservation of a volume that is held, or where hosts are registered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Reservation {
    /// `write-exclusive` or `exclusive-access`, with `-registrants` or `-all` where more than the
    /// holder may, or `-session` where an iSCSI session has it until it ends; `none` where hosts
    /// are registered and nobody holds it.
    pub(crate) kind: String,
    /// Who holds it, such as `mac:020000000001`.
    pub(crate) holders: Vec<String>,
    /// Who is registered.
    pub(crate) registrants: Vec<String>,
    /// Whether all of them are registered after a restart, too; AoE's stations are in any case.
    #[serde(default)]
    pub(crate) persists: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Disk {
    pub(crate) name: String,
    /// Where its blocks are.
    pub(crate) uri: String,
    /// Its size.
    pub(crate) bytes: u64,
    /// `ok`, `errors`, `slow`, `stuck`, `closed`, or `failed`.
    pub(crate) state: String,
    /// Why it is failed, if so; it is tried again.
    #[serde(default)]
    pub(crate) problem: Option<String>,
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
    /// What the initiators of a remote disk counted, where they do.
    #[serde(default)]
    pub(crate) remote_counters: BTreeMap<String, u64>,
    pub(crate) counters: RequestKeys,
}

/// What a shard has done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Work {
    /// Its number.
    pub(crate) shard: u16,
    #[serde(flatten)]
    pub(crate) counters: WorkKeys,
}

/// Steps that were, or would be, carried out.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Changes {
    #[serde(default)]
    pub(crate) schema_version: SchemaVersion,
    /// None where nothing changes.
    pub(crate) steps: Vec<StepLine>,
    /// What is probably not meant, or was done without.
    pub(crate) warnings: Vec<String>,
    /// What they take away from those who use it, a line for each thing.
    #[serde(default)]
    pub(crate) in_use: Vec<String>,
    /// What `apply` has to be told to carry them out, such as `--yes`.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
}

/// A step that was, or would be, carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StepLine {
    pub(crate) action: Action,
    /// Its kind and name, such as `disk d0`.
    pub(crate) thing: String,
    /// For people: the same and what it is, or what changes.
    pub(crate) text: String,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Add,
    Remove,
    Change,
}

impl From<&Step> for StepLine {
    fn from(step: &Step) -> Self {
        let action = match step {
            Step::Add(_) => Action::Add,
            Step::Remove(_) => Action::Remove,
            Step::Change { .. } | Step::Renew(_) | Step::Resize { .. } => Action::Change,
        };
        Self { action, thing: step.thing().title(), text: step.to_string() }
    }
}

impl fmt::Display for StepLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Which keys there are and what they mean: it grows where one comes to mean something else, which
/// new keys do not.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SchemaVersion(u32);

impl Default for SchemaVersion {
    fn default() -> Self {
        Self(1)
    }
}

/// Counters under the keys that are their names. What another version does not tell is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keyed<T>(pub(crate) T);

impl<T: Counters + Sum> Keyed<T> {
    /// Those of all shards, added up.
    pub(crate) fn sum(all: impl Iterator<Item = T>) -> Self {
        Self(all.sum())
    }
}

impl<T> Deref for Keyed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

type PoolKeys = Keyed<PoolCounters>;
type ShardKeys = Keyed<ShardCounters>;
type LinkKeys = Keyed<LinkCounters>;
type RequestKeys = Keyed<RequestCounters>;
type WorkKeys = Keyed<ShardStats>;

impl<T: Counters> PartialSchema for Keyed<T> {
    fn schema() -> RefOr<Schema> {
        let number = |meaning| {
            let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
            number.description(Some(meaning))
        };
        let all = T::LIST.iter().fold(ObjectBuilder::new(), |all, one| {
            all.property(one.name, number(one.meaning)).required(one.name)
        });
        all.into()
    }
}

impl<T: Counters> ToSchema for Keyed<T> {
    fn name() -> Cow<'static, str> {
        let whole = std::any::type_name::<T>();
        Cow::Borrowed(whole.rsplit("::").next().unwrap_or(whole))
    }
}

impl<T: Counters> Serialize for Keyed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.each().map(|(counter, value)| (counter.name, value)))
    }
}

impl<'de, T: Counters> Deserialize<'de> for Keyed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let mut counters = T::default();
        for (counter, value) in T::LIST.iter().zip(counters.values_mut()) {
            *value = keys.get(counter.name).and_then(Value::as_u64).unwrap_or(0);
        }
        Ok(Self(counters))
    }
}

/// Counters of all shards added up; those that are 0 say nothing.
pub(crate) fn counted(all: impl Iterator<Item = (&'static Counter, u64)>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (counter, count) in all.filter(|(_, count)| *count > 0) {
        *sums.entry(counter.name.to_owned()).or_default() += count;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_among_the_other_keys_and_are_read_back() {
        let counters = PoolCounters { pool_bytes: 4096, waits: 3, ..PoolCounters::default() };
        let memory = Memory { budget_bytes: 8192, pool: Keyed(counters), sockets_max_bytes: None };
        let json = r#"{"budget_bytes":8192,"pool_bytes":4096,"pool_used_bytes":0,"pool_used_max_bytes":0,"waits":3,"waiting":0,"sockets_max_bytes":null}"#;
        assert_eq!(serde_json::to_string(&memory).expect("JSON"), json);
        let read: Memory = serde_json::from_str(json).expect("a memory");
        assert_eq!((read.budget_bytes, *read.pool), (8192, counters));
    }

    #[test]
    fn what_another_version_counts_is_passed_over_and_what_it_does_not_is_0() {
        let json = r#"{"shard":3,"turns":7,"from_the_future":[1]}"#;
        let work: Work = serde_json::from_str(json).expect("a shard's work");
        assert_eq!(
            (work.shard, *work.counters),
            (3, ShardStats { turns: 7, ..ShardStats::default() })
        );
    }

    /// The keys that monitoring reads since the first version, and where.
    #[test]
    fn keys_stay() {
        let status = Status {
            links: vec![Link::default()],
            volumes: vec![Volume::default()],
            disks: vec![Disk::default()],
            work: vec![Work::default()],
            ..Status::default()
        };
        let status = serde_json::to_value(&status).expect("JSON");
        let counters = ["reads", "writes", "flushes", "read_bytes", "write_bytes", "errors"];
        for (at, keys) in [
            ("", &["accepted", "misbehaved", "refused", "misfits"][..]),
            (
                "/memory",
                &["pool_bytes", "pool_used_bytes", "pool_used_max_bytes", "waits", "waiting"],
            ),
            ("/links/0", &["ring_frames", "received", "received_bytes", "sent", "sent_bytes"]),
            ("/links/0", &["dropped", "unreadable", "for_others", "send_failed", "send_waits"]),
            ("/volumes/0/counters", &counters),
            ("/disks/0/counters", &counters),
            ("/work/0", &["turns", "system_calls", "received_bytes", "sent_bytes", "direct_bytes"]),
            ("/work/0", &["shard", "connections"]),
        ] {
            let object = status.pointer(at).expect(at);
            for key in keys {
                assert!(object.get(key).is_some(), "{at}/{key} is gone: {object}");
            }
        }
    }
}
