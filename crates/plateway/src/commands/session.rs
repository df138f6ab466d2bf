//! Disks and volumes opened in this process for `bench` and `copy`, and guests of the lab sent to
//! them.
//!
//! A disk of any URI is opened as a `single` volume of a configuration without exports, so
//! everything between a request and the media is what hosts get too; `volume:NAME` takes its volume
//! and the disks of it out of the configuration that names them, unless a server has them open, and a
//! disk behind a pseudowire (`aoe://pw:NAME/7.0`) that pseudowire and what it needs of its router.
//! Units: bytes. Errors name the disk and what was seen.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use block::ShardId;
use block::limits::{CONNECTIONS_MAX, MEMORY_DEFAULT};
use lab::probe::{Probe, Verdict};
use lab::{Guest, Place};
use signal_hook::consts::{SIGINT, SIGTERM};
use uuid::Uuid;
use volume::assemble::Found;

use super::INTERRUPTED;
use super::workload_host::{Reading, Told, WorkloadHost};
use crate::config::defaults::Defaults;
use crate::config::disk::DiskConfig;
use crate::config::link::{LinkConfig, pseudowire_link};
use crate::config::model::HiArgs;
use crate::config::server::{DriverChoice, MEMORY_PER_SHARD_MIN, Server};
use crate::config::uri::DiskUri;
use crate::config::volume::{BLOCK_SIZE_DEFAULT, Layout, VolumeConfig};
use crate::control;
use crate::log::Event;
use crate::run::backing::Backing;
use crate::run::shape::VolumeFacts;
use crate::run::watch::Sighting;
use crate::run::{RunError, Running};

/// How often a waiting command reads progress and signals.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Opening<'a> {
    /// The disks, in the order of their places, each with whether it is only read.
    pub(crate) disks: &'a [(DiskUri, bool)],
    /// The configuration that names volumes.
    pub(crate) config: Option<&'a Path>,
    /// Whether files and devices are reached through the page cache.
    pub(crate) cached: bool,
    /// Where identities are stored; without it where those of this user are.
    pub(crate) state: Option<&'a Path>,
    /// Threads to carry the work.
    pub(crate) shards: usize,
    /// Bytes of payload that are in flight at most, on all shards together.
    pub(crate) in_flight: u64,
}

/// Open disks.
pub(crate) struct Session {
    running: Running,
    volumes: Vec<VolumeFacts>,
    /// Their names.
    names: Vec<String>,
    shards: u16,
}

/// What guests came to.
#[derive(Debug)]
pub(crate) struct Outcome<G> {
    /// Those that are done, by shard.
    pub(crate) guests: Vec<G>,
    /// What was read when they changed their phases, in order of arrival.
    pub(crate) readings: Vec<Reading>,
    /// Whether the others were not waited for.
    pub(crate) gave_up: bool,
}

impl Session {
    /// Opens the disks.
    pub(crate) fn open(opening: &Opening<'_>) -> miette::Result<Session> {
        let first = match Session::open_with(opening, BLOCK_SIZE_DEFAULT) {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        // Disks that only take blocks of 4096 bytes say so when they are opened, and not before.
        match first.to_string().contains("block_size") {
            true => Session::open_with(opening, 4096),
            false => Err(first),
        }
    }

    fn open_with(opening: &Opening<'_>, block_size: u32) -> miette::Result<Session> {
        let (args, names) = configuration(opening, block_size)?;
        let (running, warnings) = Running::start(&args, &[])?;
        warnings.iter().for_each(|line| Event::warn(line).tell());
        let volumes: Result<Vec<VolumeFacts>, RunError> =
            names.iter().map(|name| running.volume_facts(name)).collect();
        let shards = args.server.shards.len() as u16;
        Ok(Session { volumes: volumes?, names, running, shards })
    }

    /// The volumes, by place.
    pub(crate) fn volumes(&self) -> &[VolumeFacts] {
        &self.volumes
    }

    /// What holds the blocks of the volume of a place.
    pub(crate) fn backing(&self, place: Place) -> miette::Result<Backing> {
        Ok(self.running.backing(&self.names[usize::from(place.0)])?)
    }

    /// The label of the disk of a place, if it has one or what is left of one.
    pub(crate) fn label_on(&self, place: Place) -> miette::Result<Option<Found>> {
        Ok(self.running.label_on(&self.names[usize::from(place.0)])?)
    }

    /// Takes that away.
    pub(crate) fn wipe_label(&self, place: Place) -> miette::Result<()> {
        Ok(self.running.wipe_label(&self.names[usize::from(place.0)])?)
    }

    /// What tells a shard that its guest has something to look for; see [`Running::knock`].
    pub(crate) fn knock(&self, shard: ShardId) -> impl Fn() + Send + Sync + 'static {
        self.running.knock(shard)
    }

    /// What looks at the volume of a place and at the shards; see [`Running::watch`].
    pub(crate) fn watch(
        &self,
        place: Place,
    ) -> miette::Result<impl Fn() -> Sighting + Send + 'static> {
        Ok(self.running.watch(&self.names[usize::from(place.0)])?)
    }

    /// Threads that carry work.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }

    /// io_uring or epoll, and why.
    pub(crate) fn driver(&self) -> String {
        self.running.driver().reason.clone()
    }

    /// Sends a guest to each shard, from shard 0 on, and waits until all are done. `watch` is
    /// called at every tick, and with every reading; where it breaks, nobody is waited for any
    /// longer. Meanwhile the next hops of pseudowires are followed.
    pub(crate) fn run<G: Guest + Debug + Send + 'static>(
        &mut self,
        guests: Vec<G>,
        mut watch: impl FnMut(Option<&Reading>) -> ControlFlow<()>,
    ) -> miette::Result<Outcome<G>> {
        assert!(guests.len() <= usize::from(self.shards), "a shard is given one guest");
        let volumes: Vec<_> = self.volumes.iter().map(|volume| volume.id).collect();
        let (tell, told) = mpsc::channel();
        let mut left = guests.len();
        for (index, guest) in guests.into_iter().enumerate() {
            let host = WorkloadHost::new(guest, volumes.clone(), tell.clone());
            self.running.add_client(ShardId(index as u16), host);
        }
        drop(tell);
        let (mut readings, mut done) = (Vec::new(), Vec::new());
        let mut flow = ControlFlow::Continue(());
        while left > 0 && flow.is_continue() {
            self.running.follow_next_hops();
            match told.recv_timeout(TICK) {
                Ok(Told::Phase(reading)) => {
                    flow = watch(Some(&reading));
                    readings.push(reading);
                }
                Ok(Told::Done(shard, guest)) => {
                    done.push((shard, *guest));
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => flow = watch(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(miette::miette!("the shards are gone"));
                }
            }
        }
        done.sort_by_key(|(shard, _)| *shard);
        let guests = done.into_iter().map(|(_, guest)| guest).collect();
        Ok(Outcome { guests, readings, gave_up: left > 0 })
    }

    /// Whether a disk is blank; what was found where it is not.
    pub(crate) fn probe(&mut self, place: u8) -> miette::Result<Verdict> {
        let size = self.volumes[usize::from(place)].bytes;
        let probe = Probe::new(Place(place), size);
        let outcome = self.run(vec![probe], |_| ControlFlow::Continue(()))?;
        let verdict = outcome.guests.first().and_then(Probe::verdict);
        verdict.ok_or_else(|| miette::miette!("the disk was not examined"))
    }

    /// An error unless the disk is blank or may be overwritten.
    pub(crate) fn refuse_data(&mut self, place: u8, disk: &DiskUri) -> miette::Result<()> {
        let seen = match self.probe(place)? {
            Verdict::Blank => return Ok(()),
            Verdict::Data(at) => format!("a byte that is not zero at offset {at}"),
            Verdict::Unreadable(at, outcome) => format!("no answer at offset {at}: {outcome}"),
        };
        Err(miette::miette!(
            help = "if what it holds may be lost, say so with --overwrite",
            "{disk} holds data: expected zeros in its first and last MiB, seen {seen}"
        ))
    }

    /// Leaves everything as it is, since a disk does not answer: the process is about to end.
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }

    /// Makes everything durable and closes the disks.
    pub(crate) fn close(self) -> miette::Result<()> {
        match self.running.shut_down().as_slice() {
            [] => Ok(()),
            missed => Err(miette::miette!("{}", missed.join("\n"))),
        }
    }
}

/// A configuration that opens the disks, and the names of their volumes.
fn configuration(opening: &Opening<'_>, block_size: u32) -> miette::Result<(HiArgs, Vec<String>)> {
    let defaults = Defaults::of_this_machine();
    let mut args = HiArgs::new(server(opening, &defaults));
    let mut names = Vec::new();
    for (index, (uri, read_only)) in opening.disks.iter().enumerate() {
        let read_only = *read_only;
        if let DiskUri::Volume { name } = uri {
            names.push(take_volume(opening.config, name, read_only, &defaults, &mut args)?);
            continue;
        }
        // Names that no configuration can have, so that they meet none; the place tells two alike
        // (two RAM disks) apart.
        let place = if index == 0 { String::new() } else { format!(" ({})", index + 1) };
        let (disk, volume) = (format!("{uri}{place}"), format!("{uri}{place}"));
        let (name, uri) = (disk.clone(), uri.clone());
        let plain = DiskConfig::plain(name, uri);
        let cached = opening.cached;
        args.disks.push(DiskConfig { required: true, read_only, cached, ..plain });
        args.volumes.push(VolumeConfig {
            name: volume.clone(),
            layout: Layout::Single { disk },
            block_size,
            // Of no meaning without a network; it only keeps one from being stored.
            uuid: Some(Uuid::from_bytes([0xb0 | (index as u8 + 1); 16])),
            size_bytes: None,
        });
        names.push(volume);
    }
    take_pseudowires(opening.config, &defaults, &mut args)?;
    Ok((args, names))
}

/// Threads from the last CPU down: a server on the same machine begins with the first.
fn server(opening: &Opening<'_>, defaults: &Defaults) -> Server {
    let count = opening.shards.clamp(1, defaults.cpus.len());
    let shards = defaults.cpus.iter().rev().take(count).copied().collect();
    // Half as much again as is in flight, because the pool keeps a reserve.
    let least = MEMORY_PER_SHARD_MIN * count as u64 * 2;
    Server {
        shards,
        memory_bytes: MEMORY_DEFAULT.max(least).max(opening.in_flight.saturating_mul(3) / 2),
        control: defaults.control.clone(),
        control_group: None,
        state: opening.state.unwrap_or(&defaults.state).to_owned(),
        driver: DriverChoice::Auto,
        poll: Default::default(),
        log: Default::default(),
        log_level: Default::default(),
        connections_max: CONNECTIONS_MAX,
        connections_per_host_max: CONNECTIONS_MAX,
    }
}

/// Copies a volume and its disks out of a configuration.
fn take_volume(
    config: Option<&Path>,
    name: &str,
    read_only: bool,
    defaults: &Defaults,
    into: &mut HiArgs,
) -> miette::Result<String> {
    let Some(path) = config else {
        return Err(miette::miette!(
            help = "name it with --config plateway.toml",
            "volume:{name}: expected the configuration that has this volume, seen none"
        ));
    };
    let checked = crate::config::load(path, defaults)?;
    checked.warnings.lines().for_each(|line| Event::warn(line).tell());
    let args = checked.args;
    let Some(volume) = args.volumes.iter().find(|volume| volume.name == name) else {
        let names: Vec<&str> = args.volumes.iter().map(|volume| volume.name.as_str()).collect();
        return Err(miette::miette!(
            "{} has no volume {name}: expected one of {}",
            path.display(),
            names.join(", ")
        ));
    };
    if control::Client::new(&args.server.control).status().is_ok() {
        return Err(miette::miette!(
            help =
                "reach it over the network, as nvme+tcp://... or iscsi://..., or stop the server",
            "volume:{name}: a server on {} has its disks open",
            args.server.control.display()
        ));
    }
    into.server.state = args.server.state;
    if into.volumes.iter().any(|known| known.name == name) {
        return Ok(name.to_owned());
    }
    for disk in &args.disks {
        let used = volume.layout.disks().contains(&disk.name);
        if used && !into.disks.iter().any(|known| known.name == disk.name) {
            into.disks.push(DiskConfig { required: true, read_only, ..disk.clone() });
        }
    }
    into.volumes.push(volume.clone());
    Ok(name.to_owned())
}

/// Copies what the pseudowires need by which disks are reached out of a configuration: their router
/// runs here as long as the disks are open.
fn take_pseudowires(
    config: Option<&Path>,
    defaults: &Defaults,
    into: &mut HiArgs,
) -> miette::Result<()> {
    let names: BTreeSet<&str> = into.disks.iter().filter_map(DiskConfig::pseudowire).collect();
    let Some(first) = names.first() else { return Ok(()) };
    let Some(path) = config else {
        return Err(miette::miette!(
            help = "name it with --config router.toml",
            "{}: expected the configuration that has this pseudowire, seen none",
            pseudowire_link(first)
        ));
    };
    // Its warnings are for who serves it.
    let args = crate::config::load(path, defaults)?.args;
    let ends: BTreeSet<&str> = args.routing.ends().map(|one| one.name.as_str()).collect();
    if let Some(name) = names.difference(&ends).next() {
        let expected = match ends.is_empty() {
            true => "one without a circuit, of which there is none".to_owned(),
            false => format!("one of {}", ends.iter().copied().collect::<Vec<_>>().join(", ")),
        };
        return Err(miette::miette!(
            "{} has no pseudowire {name} that ends in this process: expected {expected}",
            path.display()
        ));
    }
    if control::Client::new(&args.server.control).status().is_ok() {
        return Err(miette::miette!(
            help = "have that server reach the disk, as a [[disk]] of its file, or stop it",
            "{}: a server on {} has this pseudowire",
            pseudowire_link(first),
            args.server.control.display()
        ));
    }
    let routing = args.routing.of_ends(&names.into_iter().collect::<Vec<_>>());
    into.routing = routing.expect("all of them are there");
    let is_port = |link: &LinkConfig| into.routing.ports.iter().any(|port| port.link == link.name);
    into.links = args.links.into_iter().filter(is_port).collect();
    // By which this process has the address on the pseudowire that the server has.
    into.server.state = args.server.state;
    Ok(())
}

/// Whether SIGINT or SIGTERM came. Once that was noticed, the next one ends the process at once;
/// not before, since one wish often comes as two signals: `timeout` and shells send it to the
/// process and to its group.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    raised: Arc<AtomicBool>,
    noticed: Arc<AtomicBool>,
    told: Arc<AtomicBool>,
}

impl Interrupt {
    /// Watches from now on.
    pub(crate) fn watch() -> miette::Result<Interrupt> {
        let interrupt =
            Interrupt { raised: Arc::default(), noticed: Arc::default(), told: Arc::default() };
        for signal in [SIGINT, SIGTERM] {
            let noticed = interrupt.noticed.clone();
            // What takes note of it first: one that came in between would be caught, and lost.
            signal_hook::flag::register(signal, interrupt.raised.clone())
                .and_then(|_| {
                    let code = INTERRUPTED.into();
                    signal_hook::flag::register_conditional_shutdown(signal, code, noticed)
                })
                .map_err(|error| miette::miette!("cannot watch signals: {error}"))?;
        }
        Ok(interrupt)
    }

    /// One that comes with this one, or once somebody says so ([`Interrupt::raise`]).
    pub(crate) fn or_when_told(&self) -> Interrupt {
        Interrupt {
            raised: self.raised.clone(),
            noticed: self.noticed.clone(),
            told: Arc::default(),
        }
    }

    /// Says so.
    pub(crate) fn raise(&self) {
        self.told.store(true, Relaxed);
    }

    /// To go on, or not once it came, which is noticed by this.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if self.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Whether it came, which is noticed by this.
    pub(crate) fn is_raised(&self) -> bool {
        let raised = self.raised.load(Relaxed);
        if raised {
            self.noticed.store(true, Relaxed);
        }
        raised || self.told.load(Relaxed)
    }
}
