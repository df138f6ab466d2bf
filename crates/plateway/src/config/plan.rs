//! The difference between two configurations, as steps in the order in which they are carried out.
//!
//! New things come from the bottom up: disks, volumes, listeners (links of AoE among them), exports; old things go from the top
//! down. What is new comes first, so that a step that fails leaves what was served untouched, unless
//! something new claims what something old still holds (a disk, an address, a namespace): then all
//! removals come first. A thing that cannot be changed in place (another disk under the same name) is
//! removed and added again, with everything that stands on it; exports that no step names notice
//! nothing. Each step has an inverse, by which `apply` undoes the steps before a failing one.
//! Errors: [`Refused`], for what takes a restart or would lose data.

use std::fmt;

use super::model::{AoeExport, DiskConfig, Export, HiArgs, Link, Listener, VolumeConfig};
use super::size::Size;
use super::step::Step;
use super::uri::DiskUri;

/// What `apply` does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Empty where nothing changes.
    pub(crate) steps: Vec<Step>,
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
    let disks = disks(from, to, &mut refused);
    if !refused.is_empty() {
        return Err(refused);
    }
    let volumes = volumes(from, to, &disks);
    let listeners = listeners(from, to);
    let links = links(from, to);
    let exports = exports(from, to, &volumes);
    let aoe_exports = aoe_exports(from, to, &volumes, &links);

    let mut removals: Vec<Step> =
        aoe_exports.gone.into_iter().rev().cloned().map(Step::RemoveAoeExport).collect();
    removals.extend(exports.gone.into_iter().rev().cloned().map(Step::RemoveExport));
    removals.extend(links.gone.into_iter().rev().cloned().map(Step::RemoveLink));
    removals.extend(listeners.gone.into_iter().rev().cloned().map(Step::RemoveListener));
    removals.extend(volumes.gone.into_iter().rev().cloned().map(Step::RemoveVolume));
    removals.extend(disks.gone.into_iter().rev().cloned().map(Step::RemoveDisk));

    let mut additions = disks.changes;
    additions.extend(disks.new.into_iter().cloned().map(Step::AddDisk));
    additions.extend(volumes.changes);
    additions.extend(volumes.new.into_iter().cloned().map(Step::AddVolume));
    additions.extend(listeners.changes);
    additions.extend(listeners.new.into_iter().cloned().map(Step::AddListener));
    additions.extend(links.new.into_iter().cloned().map(Step::AddLink));
    additions.extend(exports.changes);
    additions.extend(exports.new.into_iter().cloned().map(Step::AddExport));
    additions.extend(aoe_exports.changes);
    additions.extend(aoe_exports.new.into_iter().cloned().map(Step::AddAoeExport));

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
        steps.extend(args.links.iter().cloned().map(Step::AddLink));
        steps.extend(args.exports.iter().cloned().map(Step::AddExport));
        steps.extend(args.aoe_exports.iter().cloned().map(Step::AddAoeExport));
        Self { steps }
    }
}

/// What becomes of the things of one kind. One that is replaced is among the gone and, as it is to be, among the new.
struct Kind<'a, T> {
    gone: Vec<&'a T>,
    new: Vec<&'a T>,
    changes: Vec<Step>,
}

/// What becomes of a thing that both configurations have.
enum Change {
    None,
    InPlace(Step),
    Replace,
}

/// Two lists by key: what only one of them has, and what `judge` says of each pair.
fn compare<'a, T, K: PartialEq>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&T) -> K,
    mut judge: impl FnMut(&'a T, &'a T) -> Change,
) -> Kind<'a, T> {
    let find = |list: &'a [T], one: &T| list.iter().find(|other| key(other) == key(one));
    let mut kind = Kind {
        gone: old.iter().filter(|one| find(new, one).is_none()).collect(),
        new: new.iter().filter(|one| find(old, one).is_none()).collect(),
        changes: Vec::new(),
    };
    for one in old {
        let Some(other) = find(new, one) else { continue };
        match judge(one, other) {
            Change::None => {}
            Change::InPlace(step) => kind.changes.push(step),
            Change::Replace => {
                kind.gone.push(one);
                kind.new.push(other);
            }
        }
    }
    kind
}

fn disks<'a>(from: &'a HiArgs, to: &'a HiArgs, refused: &mut Vec<Refused>) -> Kind<'a, DiskConfig> {
    compare(
        &from.disks,
        &to.disks,
        |disk| disk.name.clone(),
        |old, new| {
            disk_change(old, new).unwrap_or_else(|refusal| {
                refused.push(refusal);
                Change::None
            })
        },
    )
}

fn volumes<'a>(
    from: &'a HiArgs,
    to: &'a HiArgs,
    disks: &Kind<'_, DiskConfig>,
) -> Kind<'a, VolumeConfig> {
    let replaced = |disk: &String| disks.gone.iter().any(|gone| gone.name == *disk);
    let resized = |disk: &String| {
        let is_it = |step: &Step| matches!(step, Step::ResizeDisk { name, .. } if name == disk);
        disks.changes.iter().any(is_it)
    };
    let shape = |volume: &VolumeConfig| (volume.layout.clone(), volume.block_size, volume.uuid);
    compare(
        &from.volumes,
        &to.volumes,
        |volume| volume.name.clone(),
        |old, new| {
            let members = new.layout.disks();
            if shape(old) != shape(new) || members.iter().any(replaced) {
                return Change::Replace;
            }
            let follows = new.size_bytes.is_none() && members.iter().any(resized);
            match old.size_bytes != new.size_bytes || follows {
                true => Change::InPlace(Step::ResizeVolume {
                    name: old.name.clone(),
                    from_bytes: old.size_bytes,
                    to_bytes: new.size_bytes,
                }),
                false => Change::None,
            }
        },
    )
}

fn listeners<'a>(from: &'a HiArgs, to: &'a HiArgs) -> Kind<'a, Listener> {
    compare(
        &from.listeners,
        &to.listeners,
        |listener| listener.address.clone(),
        |old, new| match old == new {
            true => Change::None,
            false => Change::InPlace(Step::ChangeListener { from: old.clone(), to: new.clone() }),
        },
    )
}

/// A link that is received in another way is another link.
fn links<'a>(from: &'a HiArgs, to: &'a HiArgs) -> Kind<'a, Link> {
    compare(
        &from.links,
        &to.links,
        |link| link.name.clone(),
        |old, new| if old == new { Change::None } else { Change::Replace },
    )
}

/// What initiators set of an export (its config string, its mask) is kept by address and volume, and so is the export.
fn aoe_exports<'a>(
    from: &'a HiArgs,
    to: &'a HiArgs,
    volumes: &Kind<'_, VolumeConfig>,
    links: &Kind<'_, Link>,
) -> Kind<'a, AoeExport> {
    let replaced = |volume: &str| volumes.gone.iter().any(|gone| gone.name == volume);
    let moved = |export: &AoeExport| {
        export.links().any(|name| links.gone.iter().any(|gone| gone.name == name))
    };
    compare(
        &from.aoe_exports,
        &to.aoe_exports,
        |export| (export.address, export.volume.clone()),
        |old, new| {
            if (&old.interfaces, old.vlan) != (&new.interfaces, new.vlan)
                || replaced(&old.volume)
                || moved(old)
            {
                Change::Replace
            } else if old != new {
                Change::InPlace(Step::ChangeAoeExport { from: old.clone(), to: new.clone() })
            } else {
                Change::None
            }
        },
    )
}

fn exports<'a>(
    from: &'a HiArgs,
    to: &'a HiArgs,
    volumes: &Kind<'_, VolumeConfig>,
) -> Kind<'a, Export> {
    let replaced = |volume: &str| volumes.gone.iter().any(|gone| gone.name == volume);
    compare(
        &from.exports,
        &to.exports,
        |export| (export.subsystem.clone(), export.nsid),
        |old, new| {
            if old.volume != new.volume || replaced(&old.volume) {
                Change::Replace
            } else if old.hosts != new.hosts {
                Change::InPlace(Step::ChangeHosts { export: old.clone(), to: new.hosts.clone() })
            } else {
                Change::None
            }
        },
    )
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
        (Step::AddLink(new), Step::RemoveLink(old)) => new.name == old.name,
        (Step::AddAoeExport(new), Step::RemoveAoeExport(old)) => {
            new.address == old.address
                && (new.volume == old.volume
                    || new.links().any(|link| old.links().any(|l| l == link)))
        }
        _ => false,
    }
}

fn disk_change(old: &DiskConfig, new: &DiskConfig) -> Result<Change, Refused> {
    if old.uri == new.uri {
        return Ok(Change::None);
    }
    if !same_instruments(&old.uri, &new.uri) {
        return Ok(Change::Replace);
    }
    let name = new.name.clone();
    let resize = || {
        let (from, to) = (old.uri.clone(), new.uri.clone());
        Change::InPlace(Step::ResizeDisk { name: old.name.clone(), from, to })
    };
    match (old.uri.innermost(), new.uri.innermost()) {
        (DiskUri::Ram { bytes: from_bytes }, DiskUri::Ram { bytes: to_bytes }) => {
            Err(Refused::RamResize { name, from_bytes: *from_bytes, to_bytes: *to_bytes })
        }
        (DiskUri::Null { .. }, DiskUri::Null { .. }) => Ok(resize()),
        (
            DiskUri::File { path: a, create_bytes: from },
            DiskUri::File { path: b, create_bytes: to },
        ) if a == b => {
            match (*from, *to) {
                (Some(from_bytes), Some(to_bytes)) if to_bytes < from_bytes => {
                    Err(Refused::FileShrink { name, from_bytes, to_bytes })
                }
                (_, Some(_)) => Ok(resize()),
                // The file is there: how it would be created no longer matters.
                (_, None) => Ok(Change::None),
            }
        }
        _ => Ok(Change::Replace),
    }
}

/// The size from which `apply` grows the file of a disk, if it does; a file that has another size
/// by then is left alone.
pub(crate) fn grows(old: &DiskConfig, new: &DiskConfig) -> Option<u64> {
    let Ok(Change::InPlace(Step::ResizeDisk { from, to, .. })) = disk_change(old, new) else {
        return None;
    };
    match (from.innermost(), to.innermost()) {
        (DiskUri::File { create_bytes, .. }, DiskUri::File { .. }) => *create_bytes,
        _ => None,
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

#[cfg(test)]
mod tests;
