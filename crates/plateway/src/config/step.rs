//! One step of `apply`: what it does, what undoes it, and the line that people read.
//!
//! A step holds whole values, so that it needs neither configuration to be carried out or undone. Its line begins with `+`, `-` or `~` and the object.
//! Units: bytes, as the names say. Which steps there are between two configurations: `plan.rs`.

use std::fmt;

use super::model::{AoeExport, DiskConfig, Export, Hosts, Link, Listener, VolumeConfig};
use super::size::Size;
use super::uri::DiskUri;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open a disk.
    AddDisk(DiskConfig),
    /// Assemble a volume; its disks are open.
    AddVolume(VolumeConfig),
    /// Bind and listen.
    AddListener(Listener),
    /// Open an interface for AoE.
    AddLink(Link),
    /// Show a namespace; its volume is there.
    AddExport(Export),
    /// Answer at a shelf.slot; its volume and its links are there.
    AddAoeExport(AoeExport),
    /// Be silent at a shelf.slot, once nothing of it is below.
    RemoveAoeExport(AoeExport),
    /// Hide a namespace: a hold, and then the event.
    RemoveExport(Export),
    /// Close a listener and its connections.
    RemoveListener(Listener),
    /// Close an interface; no export is on it.
    RemoveLink(Link),
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
    /// Change who may use an AoE export, or how many commands it holds.
    ChangeAoeExport {
        /// As it is.
        from: AoeExport,
        /// The same volume, address and links with other values.
        to: AoeExport,
    },
}

impl Step {
    /// The step that undoes this one.
    pub(crate) fn inverse(&self) -> Self {
        match self.clone() {
            Step::AddDisk(disk) => Step::RemoveDisk(disk),
            Step::AddVolume(volume) => Step::RemoveVolume(volume),
            Step::AddListener(listener) => Step::RemoveListener(listener),
            Step::AddExport(export) => Step::RemoveExport(export),
            Step::AddLink(link) => Step::RemoveLink(link),
            Step::RemoveLink(link) => Step::AddLink(link),
            Step::AddAoeExport(export) => Step::RemoveAoeExport(export),
            Step::RemoveAoeExport(export) => Step::AddAoeExport(export),
            Step::ChangeAoeExport { from, to } => Step::ChangeAoeExport { from: to, to: from },
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
        let aoe = |export: &AoeExport| {
            let vlan = export.vlan.map_or(String::new(), |vlan| format!(" vlan {vlan}"));
            let interfaces = export.interfaces.join(" ");
            format!("export {}: aoe {} on {interfaces}{vlan}", export.volume, export.address)
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
            Step::AddLink(link) => write!(f, "+ listener aoe {}: {}", link.name, link.access),
            Step::RemoveLink(link) => write!(f, "- listener aoe {}", link.name),
            Step::AddAoeExport(new) => write!(f, "+ {}, hosts {}", aoe(new), new.hosts),
            Step::RemoveAoeExport(old) => write!(f, "- {}", aoe(old)),
            Step::ChangeAoeExport { from, to } => {
                write!(f, "~ export {}: aoe {}:", from.volume, from.address)?;
                if from.hosts != to.hosts {
                    write!(f, " hosts {} -> {}", from.hosts, to.hosts)?;
                }
                if from.buffers != to.buffers {
                    write!(f, " buffers {} -> {}", from.buffers, to.buffers)?;
                }
                Ok(())
            }
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
