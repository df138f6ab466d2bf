//! Disks: looked at, opened, brought to another size and closed, each as orders to all shards.
//!
//! A look goes through [`reactor::disk::probe`]: nothing is opened for writing or made, and remote
//! disks are not contacted. Errors name the disk; whatever a failing step had begun is undone here
//! before it is reported. Units: bytes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::volume::assemble::Found;

use block::ByteCount;
use contract::{DiskFacts, DiskId};
use reactor::disk::marks::Marks;
use reactor::disk::probe::{Identity, Probe, unmade_file};
use reactor::disk::{Access, Disk, OpenError, Rights};
use reactor::look_at_interface;
use shard::Order;

use super::caveats;
use super::error::RunError;
use super::identity::{self, Blocks, Identities};
use super::labels;
use super::look::{Inventory, Member, directory, judged};
use super::open;
use super::retry::retry_in_use;
use super::shape::Part;
use super::state::StateDirectory;
use super::touch;
use super::{OpenDisk, OpenVolume, Running};
use crate::config::disk::{DiskConfig, disk_title};
use crate::config::size::Size;
use crate::config::uri::{DiskUri, check_name};
use crate::config::volume::VolumeConfig;
use crate::log::Event;

/// How long a disk that is removed may take to become durable, and then to give back what it was
/// asked.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// What was seen of a disk.
#[derive(Debug)]
pub(crate) struct DiskSight {
    /// What would be done with it, in a few words.
    pub(crate) words: String,
    /// What is to be known of it besides.
    pub(crate) caveats: Vec<String>,
    /// As the server names it.
    uri: DiskUri,
    /// None where it was not asked.
    pub(crate) facts: Option<DiskFacts>,
    /// `direct`, `cached`, `memory` or `remote`; none of a file that is yet to be made.
    pub(crate) access: Option<&'static str>,
    content: Content,
    pub(crate) identity: Option<Identity>,
    /// Why a file that is not there is not to be made.
    lost: Option<RunError>,
    /// By what its blocks are known; none of those that a restart loses, or that are yet to be
    /// made.
    backing: Option<String>,
    is_served: bool,
    /// Bytes of memory that it is going to touch.
    pub(crate) touches: u64,
}

/// What can be read of a disk.
#[derive(Debug)]
enum Content {
    /// Zeros: a disk in memory.
    Zeros,
    /// Zeros, once its file is made.
    Unmade,
    There(Box<Probe>),
    /// It was not asked, for this reason.
    Unknown(&'static str),
}

/// Looks at a disk.
pub(crate) fn look(config: &DiskConfig, inventory: &impl Inventory) -> Result<DiskSight, RunError> {
    let served = inventory.served();
    let mut sight = DiskSight {
        words: "not contacted".to_owned(),
        caveats: Vec::new(),
        uri: served.map_or_else(|| config.uri.clone(), |served| served.located(&config.uri)),
        facts: None,
        access: Some("remote"),
        content: Content::Unknown("it is remote and was not contacted"),
        identity: None,
        lost: None,
        backing: None,
        is_served: served.is_some_and(|served| {
            let mut disks = served.args.disks.iter();
            disks.any(|one| one == config || one.is_memory_of(config))
        }),
        touches: 0,
    };
    if let DiskUri::Remote(uri) = &config.uri {
        sight.backing = identity::backing(&config.uri);
        // A server that answers may see other interfaces.
        let links = uri.links().filter(|_| served.is_none());
        for ethernet in links.into_iter().flat_map(|(links, _)| links) {
            look_at_interface(&ethernet.interface)
                .map_err(|error| RunError::new(error.to_string()).within(&described(config)))
                .map_err(RunError::transient)?;
        }
        if !sight.is_served {
            let looked = uri.look(&inventory.state(), directory(served));
            judged(looked, served)
                .map_err(|error| error.within(&format!("disk {}", config.name)).transient())?;
        }
        return Ok(sight);
    }
    // A remote disk in an instrument is refused, and a model that cannot be read.
    let uri = sight.uri.clone();
    open::spec_as(&config.name, &uri)?;
    match uri.innermost() {
        DiskUri::Ram { bytes, touch: true } => {
            sight.see_memory(*bytes, "memory, taken at the start, zeros at first");
            if !sight.is_served {
                touch::check_room(config, *bytes, inventory.to_touch())?;
                sight.touches = *bytes;
            }
        }
        DiskUri::Ram { bytes, touch: false } => {
            sight.see_memory(*bytes, "memory, zeros at first");
            if !sight.is_served {
                sight.caveats = caveats::of_memory(*bytes);
            }
        }
        DiskUri::Null { bytes } => sight.see_memory(*bytes, "discards writes, reads zeros"),
        DiskUri::File { path, create_bytes, tail } => {
            match (Probe::file(path, *tail), *create_bytes) {
                (Err(error), Some(bytes)) if is_missing(&error) => {
                    let unmade = unmade_file(path, bytes);
                    let (facts, identity) =
                        unmade.map_err(|error| open::refused(config, &error))?;
                    sight.check_twin(config, inventory, &identity)?;
                    if let Some(backing) = identity::backing(&uri) {
                        sight.lost = Identities::new(inventory.state()).lost(config, &backing)?;
                    }
                    sight.words = format!("would be created with {}", ByteCount(bytes));
                    sight.caveats = caveats::of_unmade(path, bytes);
                    (sight.facts, sight.access) = (Some(facts), None);
                    (sight.identity, sight.content) = (Some(identity), Content::Unmade);
                }
                (found, create) => sight.see(config, inventory, path, found, create)?,
            }
        }
        DiskUri::BlockDevice { path } => {
            sight.see(config, inventory, path, Probe::device(path), None)?;
        }
        DiskUri::Remote(_) | DiskUri::Volume { .. } | DiskUri::Instrumented { .. } => {
            unreachable!("it leads to a disk of this machine")
        }
    }
    Ok(sight)
}

impl DiskSight {
    fn see_memory(&mut self, bytes: u64, words: &str) {
        self.words = words.to_owned();
        (self.facts, self.access) = (Some(DiskFacts::of_memory(ByteCount(bytes))), Some("memory"));
        self.content = match self.is_served {
            true => Content::Unknown("its content is in the memory of the server"),
            false => Content::Zeros,
        };
    }

    /// A file or device that is there.
    fn see(
        &mut self,
        config: &DiskConfig,
        inventory: &impl Inventory,
        path: &Path,
        found: Result<Probe, OpenError>,
        create: Option<u64>,
    ) -> Result<(), RunError> {
        let probe = found.map_err(|error| open::refused(config, &error))?;
        self.check_twin(config, inventory, probe.identity())?;
        let served = inventory.served();
        if let Some(error) = probe.in_use()
            && !served.is_some_and(|served| served.has_open(&self.uri))
        {
            return Err(open::refused(config, error));
        }
        let mut facts = probe.facts();
        let seen = facts.size.0;
        self.words = match create {
            // After a restart it would be failed.
            Some(expected) if seen != expected && self.is_served => format!(
                "served now, with {}: write create={} before the next start",
                ByteCount(seen),
                Size(seen)
            ),
            Some(expected)
                if seen != expected && !served.is_some_and(|one| one.grows(config, seen)) =>
            {
                let error = OpenError::OtherSize { path: path.into(), expected, seen };
                return Err(open::refused(config, &error));
            }
            Some(wanted) if seen < wanted && facts.read_only => {
                return Err(may_not_grow(&config.name, path, seen, wanted));
            }
            Some(wanted) if seen < wanted => {
                facts.size = ByteCount(wanted);
                format!("would grow from {} to {}", ByteCount(seen), ByteCount(wanted))
            }
            _ if self.is_served => "served now".to_owned(),
            _ if probe.tail() > 0 => format!("there, without its last {}", ByteCount(probe.tail())),
            _ if facts.read_only => "there, read only".to_owned(),
            _ => "there".to_owned(),
        };
        let identities = Identities::new(inventory.state());
        let blocks = |backing| Blocks { backing, marks: probe.marks(), bytes: seen };
        self.backing = match identity::backing(&self.uri).map(blocks) {
            // What is served is followed: its size is known as it was when that was last done.
            Some(blocks) if self.is_served => Some(blocks.backing),
            Some(blocks) => Some(identities.recognise(config, &blocks)?),
            None => None,
        };
        self.caveats = caveats::of_probe(path, &probe);
        self.facts = Some(facts);
        self.access = Some(access_name(probe.access()));
        self.identity = Some(probe.identity().clone());
        self.content = Content::There(Box::new(probe));
        Ok(())
    }

    /// No two disks are the same blocks.
    fn check_twin(
        &self,
        config: &DiskConfig,
        inventory: &impl Inventory,
        identity: &Identity,
    ) -> Result<(), RunError> {
        let (Some(first), name) = (inventory.disk_with(identity), &config.name) else {
            return Ok(());
        };
        Err(RunError::new(format!("disks {first} and {name} are the same blocks by two names"))
            .help("each disk needs blocks of its own: `ls -li` shows where names lead")
            .beside(disk_title(first)))
    }

    /// It, as a member of a volume.
    pub(crate) fn member(&self, name: &str) -> Member {
        let part = |facts: &DiskFacts| {
            // Nobody gave it a number yet.
            Part { name: name.to_owned(), disk: DiskId(0), facts: facts.clone() }
        };
        let is_unmade = matches!(self.content, Content::Unmade);
        Member {
            backing: self.backing.clone(),
            part: self.facts.as_ref().map(part),
            is_unmade,
            lost: self.lost.clone(),
            is_served: self.is_served,
        }
    }

    /// What is where its label should be as a member, or why that is not known.
    pub(crate) fn examine(
        &self,
        volume: &VolumeConfig,
        name: &str,
    ) -> Result<Result<Found, &'static str>, RunError> {
        match (&self.content, self.member(name).part) {
            (Content::Unknown(why), _) => Ok(Err(why)),
            (_, None) => Ok(Err("its size is not known")),
            (_, Some(part)) => {
                labels::examine(volume, &part, |at, length| self.read(at, length)).map(Ok)
            }
        }
    }

    /// Bytes from an offset on, both whole pages.
    fn read(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        let Content::There(probe) = &self.content else { return Ok(vec![0; length as usize]) };
        let mut bytes = Vec::with_capacity(length as usize);
        while (bytes.len() as u64) < length {
            bytes.extend_from_slice(&probe.read_page(at + bytes.len() as u64)?);
        }
        Ok(bytes)
    }
}

/// What a kind of access is called.
pub(super) fn access_name(access: Access) -> &'static str {
    match access {
        Access::Direct => "direct",
        Access::Cached => "cached",
    }
}

fn is_missing(error: &OpenError) -> bool {
    matches!(error, OpenError::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// A disk by its name, and its URI where that is not the name (a disk of the command line has no
/// other).
pub(super) fn described(DiskConfig { name, uri, .. }: &DiskConfig) -> String {
    let uri = uri.to_string();
    if *name == uri { format!("disk {name}") } else { format!("disk {name} ({uri})") }
}

/// A file that is to grow and may not be written.
fn may_not_grow(name: &str, path: &Path, seen: u64, wanted: u64) -> RunError {
    RunError::new(format!(
        "disk {name}: {}: expected a file that may grow from {} to {}, seen one that may not be written",
        path.display(),
        ByteCount(seen),
        ByteCount(wanted)
    ))
    .help("allow this user to write it, or leave create as it was")
}

/// What accepting a disk comes to, in a line: what is there now is what is meant from now on, with
/// the identity that is stored for it or, if it is `new`, with none.
pub(crate) fn accept(
    config: &DiskConfig,
    state: StateDirectory,
    new: bool,
) -> Result<String, RunError> {
    let (name, identities) = (&config.name, Identities::new(state));
    let found = match config.uri.innermost() {
        DiskUri::File { path, tail, .. } => Probe::file(path, *tail),
        DiskUri::BlockDevice { path } => Probe::device(path),
        other => {
            return Err(RunError::new(format!(
                "disk {name}: expected a file or a block device, seen {other}"
            ))
            .help("memory and remote disks are not known by marks: there is nothing to accept"));
        }
    };
    let backing = identity::backing(&config.uri).expect("a file and a device have one");
    let words = match found {
        Err(error) if !(new && is_missing(&error)) => {
            let refused = open::refused(config, &error);
            return Err(match is_missing(&error) && !new {
                true => refused.help("where a new one is to take its place, say so with --new"),
                false => refused,
            });
        }
        Ok(probe) if !new => {
            let (marks, bytes) = (probe.marks(), probe.facts().size.0);
            let words = format!("is known by {marks} from now on, with {:#}", ByteCount(bytes));
            let known = identities.accept(
                name,
                &backing,
                Some(&Blocks { backing: backing.clone(), marks, bytes }),
            )?;
            if known { format!("{words} and the identity that it had") } else { words }
        }
        _ => {
            identities.accept(name, &backing, None)?;
            "is taken for a new one: a volume of it alone gets a new identity when it is next served".to_owned()
        }
    };
    Ok(format!("disk {name} {words}"))
}

impl Running {
    /// Opens a disk and keeps it. Returns what deserves to be told.
    pub(super) fn add_disk(&mut self, config: &DiskConfig) -> Result<Option<String>, RunError> {
        let mut disk = self.open_disk(config)?;
        let caveats = std::mem::take(&mut disk.caveats);
        self.disks.insert(config.name.clone(), disk);
        let told = || format!("disk {}: {}", config.name, caveats.join("; "));
        Ok((!caveats.is_empty()).then(told))
    }

    /// Opens a disk and makes it known to all shards.
    fn open_disk(&mut self, config: &DiskConfig) -> Result<OpenDisk, RunError> {
        match &config.uri {
            DiskUri::Remote(uri) => {
                let reaching = self.begin_reaching(config, uri)?;
                self.wait_for(reaching)
            }
            _ => retry_in_use(|| self.open_local(config)),
        }
    }

    /// Opens a disk of this machine, once, and makes it known to all shards.
    pub(super) fn open_local(&self, config: &DiskConfig) -> Result<OpenDisk, RunError> {
        // Whoever makes a file makes blocks that nobody knows yet.
        let sight = look(config, self)?;
        let fresh = matches!(sight.content, Content::Unmade);
        let backing = if fresh { identity::backing(&config.uri) } else { sight.backing };
        let rights = if config.read_only { Rights::Read } else { Rights::Write };
        let mut disk = Disk::open_for(rights, &open::spec_of(config)?, &self.arena)
            .map_err(|error| open::refused(config, &error))?;
        if config.cached {
            disk.through_page_cache().map_err(|error| {
                // Unrecorded: the flags of a file that is open can be set.
                RunError::new(format!(
                    "disk {}: its page cache cannot be used: {error}",
                    config.name
                ))
            })?;
        }
        if sight.touches > 0 {
            touch::touch(config, &disk)?;
        }
        let (id, name) = (DiskId(self.numbers.disk.next()), &config.name);
        self.shards.event_log().name(id, name);
        let disk = Arc::new(disk);
        self.shards.event_log().opened(id, &disk);
        let facts = disk.facts();
        self.shards.handle().add_disk(id, &disk, config.poll);
        let told = self.order(&format!("add disk {name}"), || Order::AddDisk {
            disk: id,
            facts: facts.clone(),
        });
        told.and_then(|()| self.protect_again(id, name, backing.as_deref()))
            .inspect_err(|_| drop(self.let_go(id, name, true)))?;
        let (config, caveats) = (config.clone(), sight.caveats);
        Ok(OpenDisk { id, config, local: Some(disk), facts, fresh, backing, caveats })
    }

    /// Flushes and closes a disk that no volume uses. Returns what deserves to be told.
    pub(super) fn remove_disk(&mut self, name: &str) -> Result<Option<String>, RunError> {
        let Some(disk) = self.disks.get(name) else { return Ok(None) };
        let (id, is_local) = (disk.id, disk.local.is_some());
        let whole = self.whole(&disk.part())?;
        let flushed = self.shards.flush(whole, CLOSE_LIMIT);
        self.drop_volume(whole, name)?;
        // From here on it is gone, whoever does not hear of it.
        self.disks.shift_remove(name);
        let forgotten = self.let_go(id, name, is_local);
        self.close_import_links(name);
        self.shards.event_log().forget_remote(id);
        let failed = flushed.map_err(|why| format!("disk {name}: the last flush failed: {why}"));
        Ok(forgotten.or(failed.err()))
    }

    /// Takes a disk from the drivers and the shards. Returns what deserves to be told.
    fn let_go(&self, id: DiskId, name: &str, is_local: bool) -> Option<String> {
        let is_back = !is_local || self.shards.handle().remove_disk(id, CLOSE_LIMIT);
        let told = self.order(&format!("remove disk {name}"), || Order::RemoveDisk(id));
        let stays = || {
            let limit = CLOSE_LIMIT.as_secs();
            format!(
                "disk {name}: a request has not come back after {limit} s; what it lies on stays in use until it does"
            )
        };
        told.err().map(|error| error.line()).or((!is_back).then(stays))
    }

    /// Changes a disk in place: how it is polled, and its size. Returns what deserves to be told.
    pub(super) fn change_disk(
        &mut self,
        from: &DiskConfig,
        to: &DiskConfig,
    ) -> Result<Option<String>, RunError> {
        let told = if from.uri == to.uri { None } else { self.resize_disk(from, to)? };
        if let Some(disk) = self.disks.get_mut(&to.name).filter(|_| from.poll != to.poll) {
            disk.config.poll = to.poll;
            self.shards.handle().poll_disk(disk.id, to.poll);
        }
        Ok(told)
    }

    /// Brings a disk to another size. Returns what deserves to be told.
    fn resize_disk(
        &mut self,
        from: &DiskConfig,
        to: &DiskConfig,
    ) -> Result<Option<String>, RunError> {
        let name = &to.name;
        if self.shards.event_log().is_protected(self.disk(name)?.id) {
            return Err(RunError::new(format!(
                "disk {name}: expected a disk that takes writes, seen one that a failure protects"
            ))
            .help(format!("plateway disks reopen {name}")));
        }
        let mut warning = None;
        match (from.uri.innermost(), to.uri.innermost()) {
            (
                DiskUri::File { create_bytes: from, .. },
                DiskUri::File { path, create_bytes: Some(to), .. },
            ) => {
                self.resize_file(name, path, *from, *to)?;
                self.refresh_disk(name)?;
            }
            // `create` goes again, which says nothing of the file that is there.
            (DiskUri::File { .. }, DiskUri::File { .. }) => {}
            (_, DiskUri::Null { .. }) => warning = self.replace_null(to)?,
            (_, other) => unreachable!("a change in place of {other}"),
        }
        if let Some(disk) = self.disks.get_mut(name) {
            disk.config.clone_from(to);
        }
        Ok(warning)
    }

    /// Grows a file from what `create` was to what it is, and cuts it again where that is undone. A
    /// file of neither size is left as it is: nobody said what becomes of it.
    pub(super) fn resize_file(
        &mut self,
        name: &str,
        path: &Path,
        from: Option<u64>,
        to: u64,
    ) -> Result<(), RunError> {
        let fail =
            |why: std::io::Error| RunError::new(format!("disk {name}: cannot resize it: {why}"));
        let disk = self.disk(name)?.local.clone();
        let Some(fd) = disk.as_ref().and_then(|disk| disk.fd()) else {
            return Err(RunError::new(format!("disk {name}: expected an open file, seen none"))
                .help(format!("plateway disks reopen {name}")));
        };
        let seen = rustix::fs::fstat(fd).map_err(|errno| fail(errno.into()))?.st_size as u64;
        let may_grow = disk.as_ref().is_some_and(|disk| !disk.facts().read_only);
        let grown = self.grown.iter().position(|grown| grown == name);
        match from {
            _ if seen == to => return Ok(()),
            _ if !may_grow => return Err(may_not_grow(name, path, seen, to)),
            Some(from) if seen == from && to > from => self.grown.push(name.to_owned()),
            Some(from) if to < from => match grown.filter(|_| seen == from) {
                Some(at) => drop(self.grown.remove(at)),
                // It had that size before.
                None => return Ok(()),
            },
            _ => {
                let error = OpenError::OtherSize { path: path.into(), expected: to, seen };
                return Err(RunError::new(format!("disk {name}: {error}")));
            }
        }
        let resized = rustix::fs::ftruncate(fd, to).and_then(|()| rustix::fs::fsync(fd));
        resized.map_err(|errno| {
            let _ = rustix::fs::ftruncate(fd, seen);
            fail(errno.into())
        })
    }

    /// Looks at a disk's size again; whether it changed. Shards know of it then, volumes do not.
    pub(super) fn refresh_disk(&mut self, name: &str) -> Result<bool, RunError> {
        let Some(disk) = self.disks.get_mut(name) else { return Ok(false) };
        if disk.is_remote() {
            // The shards know what they told.
            let facts = self.shards.event_log().remote_facts(disk.id);
            let Some(facts) = facts.filter(|facts| *facts != disk.facts) else {
                return Ok(false);
            };
            disk.facts = facts.clone();
            let (id, is_told_by_one) = (disk.id, disk.config.pseudowire().is_some());
            if is_told_by_one {
                let follow = || Order::FollowDisk { disk: id, facts: facts.clone() };
                self.order(&format!("follow disk {name}"), follow)?;
            }
            return Ok(true);
        }
        let Some(local) = &disk.local else { return Ok(false) };
        let facts = local.refresh().map_err(|error| {
            // Unrecorded: it was asked a moment ago, and answered.
            RunError::new(format!("disk {name}: cannot ask for its size: {error}"))
        })?;
        if facts == disk.facts {
            return Ok(false);
        }
        disk.facts = facts.clone();
        let id = disk.id;
        self.note_disk(name);
        let follow = || Order::FollowDisk { disk: id, facts: facts.clone() };
        self.order(&format!("follow disk {name}"), follow).map(|()| true)
    }

    /// Has a disk known as it is now, so that another one in its place is refused from now on.
    pub(super) fn note_disk(&mut self, name: &str) {
        let identities = Identities::new(self.state.clone());
        let uses = |volume: &OpenVolume| {
            // What no configuration can name is `bench` or `copy` looking at somebody's disk.
            check_name(&volume.config.name).is_ok()
                && volume.config.layout.disks().iter().any(|disk| disk == name)
        };
        if !self.volumes.values().any(uses) {
            return;
        }
        let Some(disk) = self.disks.get_mut(name) else { return };
        let fd = disk.local.as_ref().and_then(|local| local.fd());
        let own = identity::backing(&disk.config.uri);
        let (Some(fd), Some(backing), Some(key)) = (fd, own, &disk.backing) else { return };
        let blocks = Blocks { backing, marks: Marks::of(fd), bytes: disk.facts.size.0 };
        match identities.note(name, key, &blocks) {
            Ok(()) => disk.backing = Some(blocks.backing),
            // It is served all the same: what it is was looked at before.
            Err(error) => Event::warn(format!("disk {}", error.line())).disk(name).tell(),
        }
    }

    /// A null disk of another size is another disk, which its volume takes over between two
    /// requests.
    fn replace_null(&mut self, to: &DiskConfig) -> Result<Option<String>, RunError> {
        let name = &to.name;
        let new = self.open_disk(to)?;
        let new_id = new.id;
        let Some(old) = self.disks.insert(name.clone(), new) else { return Ok(None) };
        let uses = |volume: &&OpenVolume| volume.config.layout.disks().contains(name);
        let user = self.volumes.values().find(uses).map(|volume| volume.config.name.clone());
        if let Some(error) = user.and_then(|volume| self.renew_layout(&volume).err()) {
            self.disks.insert(name.clone(), old);
            self.let_go(new_id, name, true);
            return Err(error);
        }
        Ok(self.let_go(old.id, name, true))
    }
}
