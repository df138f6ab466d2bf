//! The difference between two configurations, as steps in the order in which they are carried out.
//!
//! New things come from the bottom up: disks, volumes, listeners, exports; old things go from the top
//! down. What is new comes first, so that a step that fails leaves what was served untouched, unless
//! something new claims what something old still holds (a disk, an address, a namespace): then all
//! removals come first. A thing that cannot be changed in place (another disk under the same name) is
//! removed and added again, with everything that stands on it; exports that no step names notice
//! nothing. Each step has an inverse, by which `apply` undoes the steps before a failing one.
//! Errors: [`Refused`], for what takes a restart or would lose data.

use std::fmt;

use super::model::{DiskConfig, Export, HiArgs, Hosts, Listener, VolumeConfig};
use super::size::Size;
use super::uri::DiskUri;

/// What `apply` does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Empty where nothing changes.
    pub(crate) steps: Vec<Step>,
}

/// One change. Values are whole, so that a step needs neither configuration to be carried out or undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open a disk.
    AddDisk(DiskConfig),
    /// Assemble a volume; its disks are open.
    AddVolume(VolumeConfig),
    /// Bind and listen.
    AddListener(Listener),
    /// Show a namespace; its volume is there.
    AddExport(Export),
    /// Hide a namespace: a hold, and then the event.
    RemoveExport(Export),
    /// Close a listener and its connections.
    RemoveListener(Listener),
    /// Take a volume apart; no export names it.
    RemoveVolume(VolumeConfig),
    /// Flush and close a disk; no volume uses it.
    RemoveDisk(DiskConfig),
    /// Bring a disk to another size in place: a file to a larger one, a null disk to any.
    ResizeDisk {
        /// The disk.
        name: String,
        /// What it is now.
        from: DiskUri,
        /// The same disk with another size.
        to: DiskUri,
    },
    /// Give a volume another size; hosts get the event. `None` is all that its disks hold, which is
    /// also asked for where a disk of it was resized.
    ResizeVolume {
        /// The volume.
        name: String,
        /// Its `size` now.
        from_bytes: Option<u64>,
        /// Its `size` to be.
        to_bytes: Option<u64>,
    },
    /// Change how a listener behaves; its connections stay.
    ChangeListener {
        /// As it is.
        from: Listener,
        /// The same address with other values.
        to: Listener,
    },
    /// Change who may connect; connections of hosts that are no longer allowed are closed.
    ChangeHosts {
        /// The export as it is.
        export: Export,
        /// Its new hosts.
        to: Hosts,
    },
}

/// A change that `apply` does not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// A key of `[server]`.
    #[error(
        "[server] {key} cannot change while the server runs: {from} -> {to}; restart plateway to use it"
    )]
    NeedsRestart {
        /// The key.
        key: &'static str,
        /// As it is.
        from: String,
        /// As asked for.
        to: String,
    },
    /// A RAM disk of another size.
    #[error(
        "disk {name} is in memory and cannot change from {} to {} without losing its data; \
         remove it in one apply and add it in the next, or give the new one another name",
        Size(*from_bytes), Size(*to_bytes)
    )]
    RamResize {
        /// The disk.
        name: String,
        /// As it is.
        from_bytes: u64,
        /// As asked for.
        to_bytes: u64,
    },
    /// A file made smaller.
    #[error("disk {name} cannot shrink from {} to {}: what lies beyond would be lost", Size(*from_bytes), Size(*to_bytes))]
    FileShrink {
        /// The disk.
        name: String,
        /// As it is.
        from_bytes: u64,
        /// As asked for.
        to_bytes: u64,
    },
}

/// Plans the way from one configuration to another; every refusal is reported.
pub(crate) fn plan(from: &HiArgs, to: &HiArgs) -> Result<Plan, Vec<Refused>> {
    let mut refused = server_changes(from, to);
    let disks = compare(&from.disks, &to.disks, |disk| disk.name.clone());
    let mut disk_changes = Vec::new();
    let mut replaced_disks: Vec<&str> = Vec::new();
    for (old, new) in &disks.both {
        match disk_change(old, new) {
            Ok(DiskChange::None) => {}
            Ok(DiskChange::Resize) => disk_changes.push(Step::ResizeDisk {
                name: old.name.clone(),
                from: old.uri.clone(),
                to: new.uri.clone(),
            }),
            Ok(DiskChange::Replace) => replaced_disks.push(&old.name),
            Err(refusal) => refused.push(refusal),
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }

    let volumes = compare(&from.volumes, &to.volumes, |volume| volume.name.clone());
    let resized = |name: &String| {
        disk_changes
            .iter()
            .any(|step| matches!(step, Step::ResizeDisk { name: disk, .. } if disk == name))
    };
    let mut volume_changes = Vec::new();
    let mut replaced_volumes: Vec<&str> = Vec::new();
    for (old, new) in &volumes.both {
        let rebuilt = new.layout.disks().iter().any(|disk| replaced_disks.contains(&disk.as_str()));
        if rebuilt
            || (&old.layout, old.block_size, old.uuid) != (&new.layout, new.block_size, new.uuid)
        {
            replaced_volumes.push(&old.name);
        } else if old.size_bytes != new.size_bytes
            || (new.size_bytes.is_none() && new.layout.disks().iter().any(resized))
        {
            let (from_bytes, to_bytes) = (old.size_bytes, new.size_bytes);
            volume_changes.push(Step::ResizeVolume {
                name: old.name.clone(),
                from_bytes,
                to_bytes,
            });
        }
    }

    let listeners = compare(&from.listeners, &to.listeners, |listener| listener.address.clone());
    let listener_changes = listeners.both.iter().filter(|(old, new)| old != new);
    let listener_changes: Vec<Step> = listener_changes
        .map(|(old, new)| Step::ChangeListener { from: (*old).clone(), to: (*new).clone() })
        .collect();

    let exports =
        compare(&from.exports, &to.exports, |export| (export.subsystem.clone(), export.nsid));
    let mut host_changes = Vec::new();
    let mut replaced_exports = Vec::new();
    for (old, new) in &exports.both {
        if old.volume != new.volume || replaced_volumes.contains(&old.volume.as_str()) {
            replaced_exports.push((*old, *new));
        } else if old.hosts != new.hosts {
            host_changes.push(Step::ChangeHosts { export: (*old).clone(), to: new.hosts.clone() });
        }
    }

    let replaced_disk = |disk: &DiskConfig| replaced_disks.contains(&disk.name.as_str());
    let replaced_volume = |volume: &VolumeConfig| replaced_volumes.contains(&volume.name.as_str());
    let gone_disks = pick(&disks, replaced_disk, true);
    let new_disks = pick(&disks, replaced_disk, false);
    let gone_volumes = pick(&volumes, replaced_volume, true);
    let new_volumes = pick(&volumes, replaced_volume, false);
    let gone_exports: Vec<&Export> =
        exports.gone.iter().copied().chain(replaced_exports.iter().map(|(old, _)| *old)).collect();
    let new_exports: Vec<&Export> =
        exports.new.iter().copied().chain(replaced_exports.iter().map(|(_, new)| *new)).collect();

    let mut removals: Vec<Step> =
        gone_exports.into_iter().rev().cloned().map(Step::RemoveExport).collect();
    removals.extend(
        listeners.gone.iter().rev().map(|listener| Step::RemoveListener((*listener).clone())),
    );
    removals.extend(gone_volumes.iter().rev().map(|volume| Step::RemoveVolume((*volume).clone())));
    removals.extend(gone_disks.iter().rev().map(|disk| Step::RemoveDisk((*disk).clone())));

    let mut additions = disk_changes;
    additions.extend(new_disks.iter().map(|disk| Step::AddDisk((*disk).clone())));
    additions.extend(volume_changes);
    additions.extend(new_volumes.iter().map(|volume| Step::AddVolume((*volume).clone())));
    additions.extend(listener_changes);
    additions.extend(listeners.new.iter().map(|listener| Step::AddListener((*listener).clone())));
    additions.extend(host_changes);
    additions.extend(new_exports.into_iter().cloned().map(Step::AddExport));

    let claimed = additions.iter().any(|new| removals.iter().any(|old| claims(new, old)));
    let steps =
        if claimed { [removals, additions].concat() } else { [additions, removals].concat() };
    Ok(Plan { steps })
}

impl Plan {
    /// What `serve` does with a configuration: everything is new.
    pub(crate) fn initial(args: &HiArgs) -> Self {
        let mut steps: Vec<Step> = args.disks.iter().cloned().map(Step::AddDisk).collect();
        steps.extend(args.volumes.iter().cloned().map(Step::AddVolume));
        steps.extend(args.listeners.iter().cloned().map(Step::AddListener));
        steps.extend(args.exports.iter().cloned().map(Step::AddExport));
        Self { steps }
    }
}

impl Step {
    /// The step that undoes this one.
    pub(crate) fn inverse(&self) -> Self {
        match self.clone() {
            Step::AddDisk(disk) => Step::RemoveDisk(disk),
            Step::AddVolume(volume) => Step::RemoveVolume(volume),
            Step::AddListener(listener) => Step::RemoveListener(listener),
            Step::AddExport(export) => Step::RemoveExport(export),
            Step::RemoveExport(export) => Step::AddExport(export),
            Step::RemoveListener(listener) => Step::AddListener(listener),
            Step::RemoveVolume(volume) => Step::AddVolume(volume),
            Step::RemoveDisk(disk) => Step::AddDisk(disk),
            Step::ResizeDisk { name, from, to } => Step::ResizeDisk { name, from: to, to: from },
            Step::ResizeVolume { name, from_bytes, to_bytes } => {
                Step::ResizeVolume { name, from_bytes: to_bytes, to_bytes: from_bytes }
            }
            Step::ChangeListener { from, to } => Step::ChangeListener { from: to, to: from },
            Step::ChangeHosts { export, to } => {
                let back = export.hosts.clone();
                Step::ChangeHosts { export: Export { hosts: to, ..export }, to: back }
            }
        }
    }
}

/// Two lists by key: what is only in the old, only in the new, or in both.
struct Compared<'a, T> {
    gone: Vec<&'a T>,
    new: Vec<&'a T>,
    both: Vec<(&'a T, &'a T)>,
}

fn compare<'a, T, K: PartialEq>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&T) -> K,
) -> Compared<'a, T> {
    let find = |list: &'a [T], one: &T| list.iter().find(|other| key(other) == key(one));
    Compared {
        gone: old.iter().filter(|one| find(new, one).is_none()).collect(),
        new: new.iter().filter(|one| find(old, one).is_none()).collect(),
        both: old.iter().filter_map(|one| find(new, one).map(|other| (one, other))).collect(),
    }
}

/// What is gone (or new), together with the old (or new) side of what is replaced.
fn pick<'a, T>(
    compared: &Compared<'a, T>,
    replaced: impl Fn(&T) -> bool,
    old_side: bool,
) -> Vec<&'a T> {
    let alone = if old_side { &compared.gone } else { &compared.new };
    let pairs = compared.both.iter().filter(|(old, _)| replaced(old));
    alone
        .iter()
        .copied()
        .chain(pairs.map(|(old, new)| if old_side { *old } else { *new }))
        .collect()
}

/// Whether a new thing needs what an old one holds until it is removed.
fn claims(new: &Step, old: &Step) -> bool {
    match (new, old) {
        (Step::AddDisk(new), Step::RemoveDisk(old)) => {
            new.name == old.name || new.uri.same_backing(&old.uri)
        }
        (Step::AddVolume(new), Step::RemoveVolume(old)) => {
            new.name == old.name
                || (new.uuid.is_some() && new.uuid == old.uuid)
                || new.layout.disks().iter().any(|disk| old.layout.disks().contains(disk))
        }
        (Step::AddListener(new), Step::RemoveListener(old)) => new.address.overlaps(&old.address),
        (Step::AddExport(new), Step::RemoveExport(old)) => {
            new.subsystem == old.subsystem
                && (new.nsid == old.nsid || new.volume == old.volume || new.hosts != old.hosts)
        }
        _ => false,
    }
}

enum DiskChange {
    None,
    Resize,
    Replace,
}

fn disk_change(old: &DiskConfig, new: &DiskConfig) -> Result<DiskChange, Refused> {
    if old.uri == new.uri {
        return Ok(DiskChange::None);
    }
    if !same_instruments(&old.uri, &new.uri) {
        return Ok(DiskChange::Replace);
    }
    let name = new.name.clone();
    match (old.uri.innermost(), new.uri.innermost()) {
        (DiskUri::Ram { bytes: from_bytes }, DiskUri::Ram { bytes: to_bytes }) => {
            Err(Refused::RamResize { name, from_bytes: *from_bytes, to_bytes: *to_bytes })
        }
        (DiskUri::Null { .. }, DiskUri::Null { .. }) => Ok(DiskChange::Resize),
        (
            DiskUri::File { path: a, create_bytes: from },
            DiskUri::File { path: b, create_bytes: to },
        ) if a == b => {
            match (*from, *to) {
                (Some(from_bytes), Some(to_bytes)) if to_bytes < from_bytes => {
                    Err(Refused::FileShrink { name, from_bytes, to_bytes })
                }
                (_, Some(_)) => Ok(DiskChange::Resize),
                // The file is there: how it would be created no longer matters.
                (_, None) => Ok(DiskChange::None),
            }
        }
        _ => Ok(DiskChange::Replace),
    }
}

/// Whether two URIs have the same `delay:` and `faulty:` around their disks.
fn same_instruments(a: &DiskUri, b: &DiskUri) -> bool {
    match (a, b) {
        (DiskUri::Delay { delay_us: x, inner: a }, DiskUri::Delay { delay_us: y, inner: b }) => {
            x == y && same_instruments(a, b)
        }
        (DiskUri::Faulty { seed: x, inner: a }, DiskUri::Faulty { seed: y, inner: b }) => {
            x == y && same_instruments(a, b)
        }
        (DiskUri::Delay { .. } | DiskUri::Faulty { .. }, _)
        | (_, DiskUri::Delay { .. } | DiskUri::Faulty { .. }) => false,
        _ => true,
    }
}

fn server_changes(from: &HiArgs, to: &HiArgs) -> Vec<Refused> {
    let (old, new) = (&from.server, &to.server);
    let path = |path: &std::path::Path| path.display().to_string();
    let pairs = [
        ("shards", format!("{:?}", old.shards), format!("{:?}", new.shards)),
        ("memory", Size(old.memory_bytes).to_string(), Size(new.memory_bytes).to_string()),
        ("control", path(&old.control), path(&new.control)),
        ("state", path(&old.state), path(&new.state)),
        ("driver", old.driver.to_string(), new.driver.to_string()),
        ("max_connections", old.connections_max.to_string(), new.connections_max.to_string()),
        (
            "max_connections_per_host",
            old.connections_per_host_max.to_string(),
            new.connections_per_host_max.to_string(),
        ),
    ];
    let changed = pairs.into_iter().filter(|(_, from, to)| from != to);
    changed.map(|(key, from, to)| Refused::NeedsRestart { key, from, to }).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("nothing changes");
        }
        for (i, step) in self.steps.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            step.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: &Option<u64>| {
            bytes.map_or("all of its disks".to_owned(), |bytes| Size(bytes).to_string())
        };
        let volume = |volume: &VolumeConfig| {
            let cut =
                volume.size_bytes.map_or(String::new(), |bytes| format!(", size {}", Size(bytes)));
            let chosen = volume.uuid.map_or(String::new(), |uuid| format!(", uuid {uuid}"));
            format!(
                "volume {}: {}, blocks of {}{cut}{chosen}",
                volume.name, volume.layout, volume.block_size
            )
        };
        let export = |export: &Export| {
            format!("export {}: {} namespace {}", export.volume, export.subsystem, export.nsid)
        };
        match self {
            Step::AddDisk(disk) => write!(f, "+ disk {}: {}", disk.name, disk.uri),
            Step::RemoveDisk(disk) => write!(f, "- disk {}: {}", disk.name, disk.uri),
            Step::AddVolume(new) => write!(f, "+ {}", volume(new)),
            Step::RemoveVolume(old) => write!(f, "- {}", volume(old)),
            Step::AddListener(listener) => write!(f, "+ listener nvme {}", listener.address),
            Step::RemoveListener(listener) => write!(f, "- listener nvme {}", listener.address),
            Step::AddExport(new) => write!(f, "+ {}, hosts {}", export(new), new.hosts),
            Step::RemoveExport(old) => write!(f, "- {}", export(old)),
            Step::ResizeDisk { name, from, to } => write!(f, "~ disk {name}: {from} -> {to}"),
            Step::ResizeVolume { name, from_bytes, to_bytes } if from_bytes == to_bytes => {
                write!(f, "~ volume {name}: size follows its disks")
            }
            Step::ResizeVolume { name, from_bytes, to_bytes } => {
                write!(f, "~ volume {name}: size {} -> {}", size(from_bytes), size(to_bytes))
            }
            Step::ChangeListener { from, to } => {
                write!(f, "~ listener nvme {}:", from.address)?;
                if from.poll_us != to.poll_us {
                    write!(f, " poll_us {} -> {}", from.poll_us, to.poll_us)?;
                }
                if from.connections_max != to.connections_max {
                    write!(
                        f,
                        " max_connections {} -> {}",
                        from.connections_max, to.connections_max
                    )?;
                }
                Ok(())
            }
            Step::ChangeHosts { export: old, to } => {
                write!(f, "~ export {}: hosts {} -> {to}", old.volume, old.hosts)
            }
        }
    }
}

#[cfg(test)]
mod tests;
