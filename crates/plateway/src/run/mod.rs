//! A running server as its control thread sees it: which disks, volumes, listeners and exports
//! there are, and by which numbers the shards know them.
//!
//! [`Running::start`] brings up the shards and carries out the first configuration; `apply` changes
//! it, `inspect` tells how it stands, [`Running::shut_down`] ends it. Every change is an order to
//! all shards that all have answered before the next (`shards`). Numbers are never used again, so
//! that what is late finds nothing. Not here: what a configuration means (`config`), the control
//! socket (`control`), signals (`commands/serve`). Read `apply` next, then
//! `look`.

mod access;
mod allowance;
mod apply;
pub(crate) mod backing;
mod caveats;
pub(crate) mod disks;
mod durable;
mod error;
mod event_log;
pub(crate) mod exports;
mod failed;
mod follow;
mod hosts;
pub(crate) mod identity;
mod in_use;
mod inspect;
mod labels;
pub(crate) mod links;
pub(crate) mod listeners;
pub(crate) mod look;
mod metrics;
pub(crate) mod open;
pub(crate) mod paths;
mod protection;
mod reach;
mod reopen;
mod reservations;
mod retry;
pub(crate) mod routers;
pub(crate) mod secrets;
mod sessions;
pub(crate) mod shape;
mod shards;
pub(crate) mod state;
pub(crate) mod stop;
pub(crate) mod store;
mod touch;
mod unmade;
pub(crate) mod volumes;
pub(crate) mod watch;
mod wipe;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::volume::Layout;
use ::volume::assemble::Found;
use block::{Extent, PAGE_SIZE, ShardId, VolumeId, limits};
use contract::{DiskFacts, DiskId, ListenerId, Takes};
use indexmap::IndexMap;
use reactor::disk::Disk;
use reactor::disk::probe::Identity;
use reactor::memory::Arena;
use reactor::{Choice, Config, ConnectionLimits, Preference, Pulse, Reactor};
use sha2::{Digest as _, Sha256};
use shard::{InternalClient, Mail, Order, Settings, Shard};
use uuid::Uuid;

pub(crate) use apply::{Applied, ApplyError};
pub(crate) use durable::{replace_file, try_file};
pub(crate) use error::RunError;
pub(crate) use in_use::{Consent, Taken};

use crate::config::disk::DiskConfig;
use crate::config::link::Ethernet;
use crate::config::listener::ListenerConfig;
use crate::config::model::HiArgs;
use crate::config::plan::Plan;
use crate::config::server::{DriverChoice, Server};
use crate::config::thing::{Configured, Step, Thing};
use crate::config::uri::DiskUri;
use crate::config::volume::VolumeConfig;
use crate::log::Event;
use crate::protocols::{HostConfig, Secrets};
use disks::DiskSight;
use exports::OpenExport;
use failed::FailedThings;
use links::{ImportLink, OpenLink};
use look::{Inventory, Member};
use metrics::Metrics;
use reach::PATIENCE;
use routers::Routers;
use shape::Part;
use shards::Shards;
use state::StateDirectory;
use unmade::unmade_last;

/// How long volumes may take to become durable at the end.
const LAST_FLUSH: Duration = Duration::from_secs(30);
/// How long a start waits for its remote disks, which are tried for 10 s: what is there is served
/// meanwhile.
const START_LIMIT: Duration = Duration::from_secs(15);

/// A server that runs. Dropping it stops the shards without a word to hosts.
///
/// The maps are the one book of what runs, each in the order of the configuration. A thing is in
/// them once all shards have it, and until all have let it go; its configuration is what they were
/// last told and have all answered.
pub(crate) struct Running {
    server: Server,
    shards: Shards,
    arena: Arc<Arena>,
    state: StateDirectory,
    disks: IndexMap<String, OpenDisk>,
    volumes: IndexMap<String, OpenVolume>,
    /// By title.
    listeners: IndexMap<String, OpenListener>,
    /// Those that exports are on.
    links: IndexMap<String, OpenLink>,
    routers: Routers,
    /// Those that have a name, by it.
    hosts: IndexMap<String, HostConfig>,
    /// By title.
    exports: IndexMap<String, OpenExport>,
    /// Those that remote disks are reached on, by what is taken there.
    import_links: BTreeMap<(Ethernet, Takes), ImportLink>,
    /// What is configured and could not be had at the start.
    failed: FailedThings,
    metrics: Metrics,
    /// What hosts prove themselves by, as it was read last.
    secrets: Secrets,
    numbers: Numbers,
    /// Volumes whose disks may be labelled whatever they hold, while a change is carried out for
    /// which somebody said so.
    overwrite: Vec<String>,
    /// What was given up in that change, a line for each disk.
    overwritten: Vec<String>,
    /// The disks whose files that change made larger, so that undoing it cuts no other.
    grown: Vec<String>,
    /// The disks whose files would be made, while it is judged whether they may.
    unmade: BTreeMap<String, DiskSight>,
    started: Instant,
}

#[derive(Debug)]
struct OpenDisk {
    id: DiskId,
    config: DiskConfig,
    /// `None` for a remote disk, which the shards hold, and for one that could not be opened anew.
    local: Option<Arc<Disk>>,
    facts: DiskFacts,
    /// Whether opening it made it: then nobody knows its blocks yet.
    fresh: bool,
    /// By what its blocks are known; none of those that a restart loses.
    backing: Option<String>,
    /// What was to be known of it when it was opened.
    caveats: Vec<String>,
}

impl OpenDisk {
    fn is_remote(&self) -> bool {
        matches!(self.config.uri, DiskUri::Remote(_))
    }

    fn part(&self) -> Part {
        Part { name: self.config.name.clone(), disk: self.id, facts: self.facts.clone() }
    }
}

/// A volume that the shards know.
#[derive(Debug)]
struct OpenVolume {
    id: VolumeId,
    config: VolumeConfig,
    layout: Layout,
    uuid: Uuid,
    /// Lengths of the members' data by their labels.
    labelled: Option<Vec<u64>>,
    /// Nothing new goes to it: it is about to be removed.
    quiesced: bool,
}

/// An address that is listened at.
#[derive(Debug)]
struct OpenListener {
    config: ListenerConfig,
    /// Where it really listens; two for `[::]`, which also takes IPv4.
    addresses: Vec<SocketAddr>,
    /// Its sockets.
    ids: Vec<ListenerId>,
}

/// The next number of each kind.
#[derive(Debug, Default)]
struct Numbers {
    disk: Counter,
    volume: Counter,
    listener: Counter,
    link: Counter,
    export: Counter,
}

#[derive(Debug, Default)]
struct Counter(Cell<u32>);

impl Counter {
    fn next(&self) -> u32 {
        let next = self.0.get();
        self.0.set(next.checked_add(1).expect("fewer than 2^32 changes in a process"));
        next
    }
}

/// Random bytes for challenges.
fn secret() -> [u8; 32] {
    let random = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes);
    Sha256::digest(random.concat()).into()
}

impl Running {
    /// Starts the shards and carries out the whole of `args`. What cannot be had now and may be
    /// there later is failed, and among the warnings; what fails otherwise ends the start.
    /// `overwrite` names volumes whose disks may be labelled whatever they hold. Where the process is
    /// to end meanwhile, what has not begun is left out, or the start fails.
    pub(crate) fn start(
        args: &HiArgs,
        overwrite: &[String],
    ) -> Result<(Running, Vec<String>), RunError> {
        check_overwrite(args, overwrite)?;
        let secrets = secrets::read(args)?;
        routers::check_circles(args)?;
        let server = &args.server;
        let config = reactor_config(server);
        let arena = Arena::new(config.cpus.len()).map_err(|error| {
            RunError::new(format!("cannot reserve memory: {error}"))
                .help("`ulimit -v` shows the limit of a process; under systemd it is LimitAS=")
        })?;
        let arena = Arc::new(arena);
        let (pages, count) = (config.pool_pages, config.cpus.len() as u16);
        let seed = Uuid::new_v4().as_u64_pair().0;
        // The shards' clocks begin with the driver's, which counts from its own start.
        let handle = Reactor::start(&config, &arena, move |shard| {
            let seed = seed ^ u64::from(shard.0);
            let settings = Settings { shard, shards: count, pages, seed, secret: secret() };
            Shard::new(block::Instant::default(), settings)
        })
        .map_err(|error| RunError::new(format!("cannot start the shards: {error}")))?;
        let mut warnings = handle.warnings().to_vec();
        let shards = Shards::new(handle)
            // Unrecorded: of a machine that gives no thread after those of the shards.
            .map_err(|error| RunError::new(format!("cannot start a thread: {error}")))?;
        let mut running = Running {
            server: server.clone(),
            shards,
            arena,
            state: StateDirectory::new(&server.state),
            disks: IndexMap::new(),
            volumes: IndexMap::new(),
            listeners: IndexMap::new(),
            links: IndexMap::new(),
            routers: Routers::default(),
            hosts: IndexMap::new(),
            exports: IndexMap::new(),
            import_links: BTreeMap::new(),
            failed: FailedThings::default(),
            metrics: Metrics::default(),
            secrets,
            numbers: Numbers::default(),
            overwrite: overwrite.to_vec(),
            overwritten: Vec::new(),
            grown: Vec::new(),
            unmade: BTreeMap::new(),
            started: Instant::now(),
        };
        let steps = unmade_last(Plan::initial(args).steps);
        let bell = running.shards.bell().clone();
        stop::wake_by(move || bell.ring());
        running.restore_paths()?;
        let is_link = |step: &Step| matches!(step.thing(), Thing::Link(_) | Thing::Routed(_));
        let (links, others) = steps.split_at(steps.iter().take_while(|one| is_link(one)).count());
        running.ask_for_next_hops(args);
        running.begin(links, args, &mut warnings)?;
        if !stop::is_stopped() {
            running.begin_remote(others)?;
        }
        // Most are there at once, and then what stands on them is shown with the rest.
        running.wait_for_remote(Instant::now() + PATIENCE);
        running.failed.reached_for().for_each(Event::tell);
        running.begin(others, args, &mut warnings)?;
        running.overwrite.clear();
        // They were logged when they were given up.
        running.overwritten.clear();
        running.wait_for_remote(Instant::now() + START_LIMIT);
        running.arrange(args);
        warnings.extend(running.closed_listeners(&steps));
        running.failed.events().for_each(Event::tell);
        running.order("complete the configuration", || Order::ConfigurationComplete)?;
        Ok((running, warnings))
    }

    /// Carries out steps of a start, but those of remote disks, until the process is to end.
    fn begin(
        &mut self,
        steps: &[Step],
        to: &HiArgs,
        warnings: &mut Vec<String>,
    ) -> Result<(), RunError> {
        for step in steps {
            if matches!(step, Step::Add(Thing::Disk(disk)) if matches!(disk.uri, DiskUri::Remote(_)))
            {
                continue;
            }
            if stop::is_stopped() {
                break;
            }
            let told = self.carry_out_or_fail(step, to)?;
            if !self.failed.contains(&step.thing().title()) {
                warnings.extend(told);
            }
        }
        Ok(())
    }

    /// Lets somebody work on volumes, on one shard.
    pub(crate) fn add_client(&self, shard: ShardId, client: impl InternalClient + 'static) {
        self.shards.add_client(shard, client);
    }

    /// What tells a shard that one of its internal clients has something to look for. To be dropped, or no
    /// more called, before the shards are shut down.
    pub(crate) fn knock(&self, shard: ShardId) -> impl Fn() + Send + Sync + 'static {
        self.shards.knock(shard)
    }

    /// What is served, and what is failed.
    pub(crate) fn args(&self) -> HiArgs {
        let mut args = HiArgs {
            server: self.server.clone(),
            metrics: self.metrics.listener.as_ref().map(|open| open.config.clone()),
            disks: self.disks.values().map(|disk| disk.config.clone()).collect(),
            volumes: self.volumes.values().map(|volume| volume.config.clone()).collect(),
            listeners: self.listeners.values().map(|listener| listener.config.clone()).collect(),
            links: self.links.values().map(|link| link.config.clone()).collect(),
            routing: self.routers.config(),
            hosts: self.hosts.values().cloned().collect(),
            exports: self.exports.values().map(|export| export.config.clone()).collect(),
        };
        for (thing, _) in self.failed.things() {
            match thing.clone() {
                Thing::Disk(one) => args.disks.push(one),
                Thing::Volume(one) => args.volumes.push(one),
                Thing::Listener(one) => args.listeners.push(one),
                Thing::Link(one) => args.links.push(one),
                Thing::Routed(one) => args.routing.push(one),
                Thing::Host(one) => args.hosts.push(one),
                Thing::Export(one) => args.exports.push(one),
                Thing::Metrics(one) => args.metrics = Some(one),
            }
        }
        args
    }

    /// Once all of `to` is served, in its order.
    fn arrange(&mut self, to: &HiArgs) {
        fn sort<T>(open: &mut IndexMap<String, T>, wanted: impl Iterator<Item = String>) {
            let places: BTreeMap<String, usize> = wanted.zip(0..).collect();
            open.sort_by_cached_key(|name, _| places.get(name).copied());
        }
        sort(&mut self.disks, to.disks.iter().map(|disk| disk.name.clone()));
        sort(&mut self.volumes, to.volumes.iter().map(|volume| volume.name.clone()));
        sort(&mut self.listeners, to.listeners.iter().map(Configured::title));
        sort(&mut self.links, to.links.iter().map(|link| link.name.clone()));
        self.routers.arrange(&to.routing);
        self.forget_next_hops();
        sort(&mut self.hosts, to.hosts.iter().map(|host| host.name.clone()));
        sort(&mut self.exports, to.exports.iter().map(|export| export.title()));
        // How a disk would be made may have changed, for which no step is needed.
        for wanted in &to.disks {
            if let Some(open) = self.disks.get_mut(&wanted.name) {
                open.config.clone_from(wanted);
            }
        }
        self.renew_failed(to);
    }

    /// Tells what came of a change of the configuration, unless there are too many of them; whether
    /// it did.
    pub(crate) fn tell_apply(&self, event: Event) -> bool {
        self.shards.event_log().tell_apply(event)
    }

    /// What runs and why, in one line.
    pub(crate) fn driver(&self) -> &Choice {
        self.shards.handle().choice()
    }

    /// Whether the shards turn, for a thread that watches them.
    pub(crate) fn pulse(&self) -> Pulse<Mail> {
        self.shards.handle().pulse()
    }

    /// Drains for at most [`limits::SHUTDOWN_DRAIN`], makes all volumes durable and ends the
    /// shards. What could not be done is returned.
    pub(crate) fn shut_down(mut self) -> Vec<String> {
        let mut missed = Vec::new();
        for listener in std::mem::take(&mut self.listeners).into_values() {
            listener.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
        }
        // Who drains waits for no remote disk that is not there, so their volumes are made durable before;
        // what was written there since is with their target, which stays.
        let (remote, local): (Vec<_>, Vec<_>) = self.volumes.values().partition(|volume| {
            volume.config.layout.disks().iter().any(|disk| self.is_remote(disk))
        });
        missed.extend(self.last_flush(&remote));
        let drain = limits::SHUTDOWN_DRAIN;
        let drained =
            self.shards.order("drain", drain, || Order::Drain).map_err(|error| error.line());
        missed.extend(self.last_flush(&local));
        self.keep_protection();
        match drained {
            // Whoever does not answer is left without.
            Ok(_) => drop(self.shards.order("take leave", 2 * limits::LEAVE, || Order::Leave)),
            // Something is still asked of targets.
            Err(why) => missed.push(why),
        }
        self.shards.stop();
        missed
    }

    /// Of volumes that somebody may have written to: who only reads has nothing to make durable, also of a disk that
    /// can no longer be.
    fn last_flush(&self, volumes: &[&OpenVolume]) -> Vec<String> {
        let may_write = |disk: &String| self.disks.get(disk).is_none_or(|d| !d.config.read_only);
        let written = volumes.iter().filter(|one| one.config.layout.disks().iter().any(may_write));
        let named = written.map(|volume| (volume.id, &volume.config.name));
        let missed = |(name, done): (&String, Result<(), String>)| {
            let why = done.err()?;
            Some(format!(
                "volume {name}: the last flush failed: {why}; what hosts did not flush themselves may be lost"
            ))
        };
        self.shards.flush_all(named, LAST_FLUSH).into_iter().filter_map(missed).collect()
    }

    fn is_remote(&self, disk: &str) -> bool {
        self.disks.get(disk).is_some_and(OpenDisk::is_remote)
    }

    pub(crate) fn order(&self, what: &str, order: impl Fn() -> Order) -> Result<(), RunError> {
        self.shards.order(what, shards::ORDER_LIMIT, order).map(drop)
    }

    fn disk(&self, name: &str) -> Result<&OpenDisk, RunError> {
        self.disks.get(name).ok_or_else(|| RunError::new(format!("disk {name} is not open")))
    }

    fn volume(&self, name: &str) -> Result<&OpenVolume, RunError> {
        self.volumes.get(name).ok_or_else(|| RunError::new(format!("volume {name} is not there")))
    }
}

/// What is there beside something new: what runs.
impl Inventory for Running {
    fn disk_with(&self, identity: &Identity) -> Option<&str> {
        let of = |disk: &OpenDisk| Identity::of(disk.local.as_ref()?.fd()?).ok();
        let mut disks = self.disks.iter();
        disks.find(|(_, disk)| of(disk).as_ref() == Some(identity)).map(|(name, _)| &**name)
    }

    fn member(&self, name: &str) -> Option<Member> {
        let Some(disk) = self.disks.get(name) else {
            return self.unmade.get(name).map(|sight| sight.member(name));
        };
        let backing = disk.backing.clone().filter(|_| !disk.fresh);
        let part = Some(disk.part());
        Some(Member { backing, part, is_unmade: false, lost: None, is_served: false })
    }

    fn examine(
        &self,
        volume: &VolumeConfig,
        disk: &str,
    ) -> Result<Result<Found, &'static str>, RunError> {
        let Some(part) = self.disks.get(disk).map(OpenDisk::part) else {
            return self.unmade[disk].examine(volume, disk);
        };
        let whole = self.whole(&part)?;
        let found = labels::examine(volume, &part, |at, length| {
            self.shards.read(whole, Extent::new(at, length))
        });
        self.drop_volume(whole, &part.name)?;
        found.map(Ok)
    }

    fn volume_with(&self, uuid: Uuid) -> Option<&str> {
        let mut volumes = self.volumes.iter();
        volumes.find(|(_, volume)| volume.uuid == uuid).map(|(name, _)| &**name)
    }

    fn identity_of(&self, volume: &str) -> Option<Uuid> {
        self.volumes.get(volume).map(|volume| volume.uuid)
    }

    fn overwrites(&self, volume: &str) -> bool {
        self.overwrite.iter().any(|name| name == volume)
    }

    fn state(&self) -> StateDirectory {
        self.state.clone()
    }
}

/// Checks that every name of `--overwrite` is a volume.
pub(crate) fn check_overwrite(args: &HiArgs, names: &[String]) -> Result<(), RunError> {
    let volumes: Vec<&str> = args.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let Some(wrong) = names.iter().find(|name| !volumes.contains(&name.as_str())) else {
        return Ok(());
    };
    let expected = match volumes.as_slice() {
        [] => "a volume, of which there is none".to_owned(),
        all => format!("one of the volumes {}", all.join(", ")),
    };
    Err(RunError::new(format!("--overwrite {wrong}: expected {expected}, seen {wrong:?}")))
}

/// The budget of the data path, split over shards: receive buffers take at most an eighth of it,
/// the pool the rest.
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

#[cfg(test)]
mod tests;
