//! A running server as its control thread sees it: which disks, volumes, listeners and exports there are, and by which numbers the shards know them.
//!
//! [`Running::start`] brings up the shards and carries out the first configuration; `apply` changes it, `inspect` tells how it stands,
//! [`Running::shut_down`] ends it. Every change is an order to all shards that all have answered before the next (`shards`).
//! Numbers are never used again, so that what is late finds nothing. Not here: what a configuration means (`config`), the control socket (`control`),
//! signals (`commands/serve`). Read `apply` next, then `members`.

mod aoe;
mod apply;
mod error;
mod follow;
mod guests;
pub(crate) mod identity;
mod inspect;
pub(crate) mod labels;
mod links;
pub(crate) mod listen;
mod members;
mod news;
pub(crate) mod open;
mod patience;
mod reopen;
pub(crate) mod shape;
mod shards;
mod stored;
mod unmade;
mod visitor;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ::aoe::ExportId;
use block::{PAGE_SIZE, ShardId, VolumeId, limits};
use contract::{DiskFacts, DiskId, LinkId, ListenerId, Machine};
use reactor::disk::Disk;
use reactor::memory::Arena;
use reactor::{Choice, Config, ConnectionLimits, Preference, Reactor};
use shard::{Mail, Order, Settings, Shard};
use volume::Layout;

pub(crate) use apply::Applied;
pub(crate) use error::RunError;
pub(crate) use news::log;

use crate::config::model::{
    self, DiskConfig, DriverChoice, Export, HiArgs, Listener, Server, VolumeConfig,
};
use crate::config::plan::Plan;
use crate::config::uri::DiskUri;
pub(crate) use guests::Site;
use identity::Identities;
use shards::Shards;
use unmade::unmade_last;
pub(crate) use visitor::Visited;

/// How long volumes may take to become durable at the end.
const LAST_FLUSH: Duration = Duration::from_secs(30);

/// A server that runs. Dropping it stops the shards without a word to hosts.
pub(crate) struct Running {
    /// What it was brought to: always what is in the maps below.
    args: HiArgs,
    shards: Shards,
    arena: Arc<Arena>,
    identities: Identities,
    disks: BTreeMap<String, OpenDisk>,
    volumes: BTreeMap<String, OpenVolume>,
    /// By the address of the configuration.
    listeners: BTreeMap<String, OpenListener>,
    links: links::Links,
    /// AoE exports.
    aoe: Vec<aoe::OpenAoe>,
    numbers: Numbers,
    /// Volumes whose disks may be labelled whatever they hold, while a change is carried out for which somebody said so.
    overwrite: Vec<String>,
    /// What was given up in that change, a line for each disk.
    overwritten: Vec<String>,
    /// The disks whose files that change made larger, so that undoing it cuts no other.
    grown: Vec<String>,
    started: Instant,
}

/// An open disk.
#[derive(Debug)]
struct OpenDisk {
    id: DiskId,
    config: DiskConfig,
    /// `None` for a remote disk, which the shards hold, and for one that could not be opened anew.
    local: Option<Arc<Disk>>,
    facts: DiskFacts,
    /// Whether opening it made it: then nobody knows its blocks yet.
    fresh: bool,
}

impl OpenDisk {
    fn is_remote(&self) -> bool {
        matches!(self.config.uri, DiskUri::NvmeTcp(_) | DiskUri::Aoe(_))
    }
}

/// A volume that the shards know.
#[derive(Debug)]
struct OpenVolume {
    id: VolumeId,
    config: VolumeConfig,
    layout: Layout,
    uuid: [u8; 16],
    /// Lengths of the members' data by their labels.
    labelled: Option<Vec<u64>>,
    /// Nothing new goes to it: it is about to be removed.
    held: bool,
}

/// An address that is listened at.
#[derive(Debug)]
struct OpenListener {
    config: Listener,
    /// Where it really listens; two for `[::]`, which also takes IPv4.
    addresses: Vec<SocketAddr>,
    /// Its sockets.
    ids: Vec<ListenerId>,
}

/// The next numbers.
#[derive(Debug, Default)]
struct Numbers {
    disk: AtomicU64,
    volume: AtomicU64,
    listener: AtomicU64,
    link: AtomicU64,
    export: AtomicU64,
}

impl Numbers {
    fn next(counter: &AtomicU64) -> u32 {
        u32::try_from(counter.fetch_add(1, Relaxed)).expect("fewer than 2^32 changes in a process")
    }

    fn disk(&self) -> DiskId {
        DiskId(Self::next(&self.disk))
    }

    fn volume(&self) -> VolumeId {
        VolumeId(Self::next(&self.volume))
    }

    fn listener(&self) -> ListenerId {
        ListenerId(Self::next(&self.listener))
    }

    fn link(&self) -> LinkId {
        LinkId(Self::next(&self.link))
    }

    fn export(&self) -> ExportId {
        ExportId(Self::next(&self.export))
    }
}

impl Running {
    /// Starts the shards and carries out the whole of `args`. What fails ends the start; what could not be had and is done without is
    /// among the warnings. `overwrite` names volumes whose disks may be labelled whatever they hold.
    pub(crate) fn start(
        args: &HiArgs,
        overwrite: &[String],
    ) -> Result<(Running, Vec<String>), RunError> {
        Running::start_with(args, overwrite, |_, visited| visited)
    }

    /// As [`start`](Self::start), with shards that carry something more.
    pub(crate) fn start_with<M>(
        args: &HiArgs,
        overwrite: &[String],
        wrap: impl Fn(ShardId, Visited) -> M + Send + Sync + 'static,
    ) -> Result<(Running, Vec<String>), RunError>
    where
        M: Machine<Mail = Mail> + 'static,
    {
        check_overwrite(args, overwrite)?;
        let server = &args.server;
        let config = reactor_config(server);
        let arena =
            Arena::new(config.cpus.len()).map_err(|error| RunError::new(error.to_string()))?;
        let arena = Arc::new(arena);
        let (pages, count) = (config.pool_pages, config.cpus.len() as u16);
        let (visits, door) = mpsc::channel();
        let door = Mutex::new(Some(door));
        let seed = identity::draw()
            .map(|uuid| u64::from_le_bytes(uuid[..8].try_into().expect("8 of 16 bytes")))
            .map_err(|error| RunError::new(format!("cannot draw random bytes: {error}")))?;
        // The shards' clocks begin with the driver's, which counts from its own start.
        let handle = Reactor::start(&config, &arena, move |shard| {
            let settings =
                Settings { shard, shards: count, pages, seed: seed ^ u64::from(shard.0) };
            let door = match shard.0 {
                0 => door.lock().unwrap_or_else(PoisonError::into_inner).take(),
                _ => None,
            };
            wrap(shard, Visited::new(Shard::new(block::Instant::default(), settings), door))
        })
        .map_err(|error| RunError::new(format!("cannot start the shards: {error}")))?;
        let mut warnings = handle.warnings().to_vec();
        let shards = Shards::new(handle, visits)
            .map_err(|error| RunError::new(format!("cannot start a thread: {error}")))?;
        let nothing = HiArgs {
            server: server.clone(),
            disks: Vec::new(),
            volumes: Vec::new(),
            listeners: Vec::new(),
            links: Vec::new(),
            exports: Vec::new(),
            aoe_exports: Vec::new(),
        };
        let mut running = Running {
            args: nothing,
            shards,
            arena,
            identities: Identities::new(&server.state),
            disks: BTreeMap::new(),
            volumes: BTreeMap::new(),
            listeners: BTreeMap::new(),
            links: links::Links::default(),
            aoe: Vec::new(),
            numbers: Numbers::default(),
            overwrite: overwrite.to_vec(),
            overwritten: Vec::new(),
            grown: Vec::new(),
            started: Instant::now(),
        };
        for step in &unmade_last(Plan::initial(args).steps) {
            running.check_unmade(step, args)?;
            warnings.extend(running.carry_out(step, &[])?);
        }
        running.overwrite.clear();
        // They were logged when they were given up.
        running.overwritten.clear();
        running.order("complete the configuration", || Order::ConfigurationComplete)?;
        Ok((running, warnings))
    }

    /// What is served.
    pub(crate) fn args(&self) -> &HiArgs {
        &self.args
    }

    /// What runs and why, in one line.
    pub(crate) fn driver(&self) -> &Choice {
        self.shards.handle().choice()
    }

    /// Drains for at most [`limits::SHUTDOWN_DRAIN`], makes all volumes durable and ends the shards. What could not be done is returned.
    pub(crate) fn shut_down(mut self) -> Vec<String> {
        let mut missed = Vec::new();
        for listener in std::mem::take(&mut self.listeners).into_values() {
            listener.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
        }
        // Draining lets go of remote disks, so their volumes are made durable before; what was written there since is with their target, which stays.
        let is_remote = |running: &Running, volume: &OpenVolume| {
            volume.config.layout.disks().iter().any(|disk| running.is_remote(disk))
        };
        let remote = self.volumes.values().filter(|volume| is_remote(&self, volume));
        missed.extend(remote.filter_map(|volume| self.last_flush(volume)));
        let drain = limits::SHUTDOWN_DRAIN;
        if let Err(error) = self.shards.order("drain", drain, || Order::Drain) {
            missed.push(error.line());
        }
        let local = self.volumes.values().filter(|volume| !is_remote(&self, volume));
        missed.extend(local.filter_map(|volume| self.last_flush(volume)));
        self.shards.stop();
        missed
    }

    fn last_flush(&self, volume: &OpenVolume) -> Option<String> {
        let why = self.shards.flush(volume.id, LAST_FLUSH).err()?;
        Some(format!(
            "volume {}: the last flush failed: {why}; what hosts did not flush themselves may be lost",
            volume.config.name
        ))
    }

    fn is_remote(&self, disk: &str) -> bool {
        self.disks.get(disk).is_some_and(OpenDisk::is_remote)
    }

    fn order(&self, what: &str, order: impl Fn() -> Order) -> Result<(), RunError> {
        self.shards.order(what, shards::ORDER_LIMIT, order).map(drop)
    }

    fn disk(&self, name: &str) -> Result<&OpenDisk, RunError> {
        self.disks.get(name).ok_or_else(|| RunError::new(format!("disk {name} is not open")))
    }

    fn volume(&self, name: &str) -> Result<&OpenVolume, RunError> {
        self.volumes.get(name).ok_or_else(|| RunError::new(format!("volume {name} is not there")))
    }

    fn exports_of(&self, volume: &str) -> Vec<Export> {
        self.args.exports.iter().filter(|export| export.volume == volume).cloned().collect()
    }
}

/// Checks that every name of `--overwrite` is a volume whose disks carry labels.
pub(crate) fn check_overwrite(args: &HiArgs, names: &[String]) -> Result<(), RunError> {
    let labelled: Vec<&str> = args
        .volumes
        .iter()
        .filter(|volume| !matches!(volume.layout, model::Layout::Single { .. }))
        .map(|volume| volume.name.as_str())
        .collect();
    let Some(wrong) = names.iter().find(|name| !labelled.contains(&name.as_str())) else {
        return Ok(());
    };
    let expected = match labelled.as_slice() {
        [] => "a concat or stripe, of which the configuration has none".to_owned(),
        all => format!("one of the concats and stripes {}", all.join(", ")),
    };
    Err(RunError::new(format!("--overwrite {wrong}: expected {expected}, seen {wrong:?}")).help(
        "only members of a concat or stripe are labelled, and only there something is overwritten",
    ))
}

/// The budget of the data path, split over shards: receive buffers take at most an eighth of it, the pool the rest.
fn reactor_config(server: &Server) -> Config {
    let count = server.shards.len().max(1);
    let each = server.memory_bytes / count as u64;
    let buffer = u64::from(limits::RECEIVE_BUFFER);
    let receive_buffers = (each / 8 / buffer).clamp(2, limits::RECEIVE_BUFFERS as u64);
    let pages = (each - receive_buffers * buffer) / u64::from(PAGE_SIZE);
    Config {
        cpus: server.shards.iter().map(|cpu| Some(*cpu as usize)).collect(),
        driver: match server.driver {
            DriverChoice::Auto => Preference::Auto,
            DriverChoice::IoUring => Preference::Uring,
            DriverChoice::Epoll => Preference::Epoll,
        },
        pool_pages: u32::try_from(pages).unwrap_or(u32::MAX),
        receive_buffers: receive_buffers as usize,
        connections: ConnectionLimits {
            total: server.connections_max,
            per_host: server.connections_per_host_max,
        },
    }
}
