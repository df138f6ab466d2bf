//! Where the things of a configuration were written, for what is found wrong with them only once the machine is looked at.
//!
//! [`Places`] keeps the sources and, by name, the spans of what a disk, a file system or a label can contradict: a disk's URI, a volume's members,
//! block size and size, a listener's address, a link's interface. Spans are byte offsets into the sources.

use toml::Spanned;

use super::file::{LowArgs, LowWords};
use super::mistake::{Mistake, Mistakes, Sources, Span};
use super::model::LinkName;

/// The sources of a configuration, and where in them its things are.
#[derive(Debug, Default)]
pub(crate) struct Places {
    sources: Sources,
    disks: Vec<(String, Span)>,
    volumes: Vec<VolumePlace>,
    listeners: Vec<Span>,
    /// Where links are named: their interface, and their VLAN if that is said there; listeners first.
    links: Vec<(String, Option<i64>, Span)>,
}

/// Where the keys of a volume are; those that were not written are at its name.
#[derive(Clone, Debug)]
struct VolumePlace {
    name: String,
    /// Of the name.
    at: Span,
    /// The members, in order.
    disks: Vec<(String, Span)>,
    block_size: Span,
    size: Span,
}

impl Places {
    /// Notes where everything is.
    pub(super) fn new(low: &LowArgs, sources: Sources) -> Places {
        let named = |name: &Spanned<String>, at: Span| (name.get_ref().clone(), at);
        let disks = low.disks.iter().filter_map(|disk| {
            let uri = disk.uri.as_ref().map_or(disk.span.clone(), Spanned::span);
            Some(named(disk.name.as_ref()?, uri))
        });
        let volumes = low.volumes.iter().filter_map(|volume| {
            let name = volume.name.as_ref()?;
            let members = volume.disks.iter().flat_map(Spanned::get_ref);
            let or_name = |span: Option<Span>| span.unwrap_or(name.span());
            Some(VolumePlace {
                name: name.get_ref().clone(),
                at: name.span(),
                disks: members.map(|disk| named(disk, disk.span())).collect(),
                block_size: or_name(volume.block_size.as_ref().map(Spanned::span)),
                size: or_name(volume.size.as_ref().map(Spanned::span)),
            })
        });
        let at = |listener: &super::file::LowListener| {
            let span = listener.nvme.as_ref().map_or(listener.span.clone(), Spanned::span);
            listener.aoe.is_none().then_some(span)
        };
        let number = |vlan: &super::file::Low<i64>| vlan.as_ref().map(|vlan| *vlan.get_ref());
        let mut links = Vec::new();
        for listener in &low.listeners {
            if let Some(aoe) = &listener.aoe {
                links.push((aoe.get_ref().clone(), number(&listener.vlan), aoe.span()));
            }
        }
        for aoe in low.exports.iter().filter_map(|export| export.aoe.as_ref()) {
            let Some(interface) = &aoe.interface else { continue };
            let vlan = number(&aoe.vlan);
            match interface.get_ref() {
                LowWords::Word(name) => links.push((name.clone(), vlan, interface.span())),
                LowWords::List(names) => links
                    .extend(names.iter().map(|name| (name.get_ref().clone(), vlan, name.span()))),
            }
        }
        Places {
            disks: disks.collect(),
            volumes: volumes.collect(),
            listeners: low.listeners.iter().filter_map(at).collect(),
            links,
            sources,
        }
    }

    /// The URI of a disk.
    pub(crate) fn disk(&self, name: &str) -> Span {
        place(&self.disks, name)
    }

    /// The name of a volume.
    pub(crate) fn volume(&self, name: &str) -> Span {
        self.of_volume(name, |volume| volume.at.clone())
    }

    /// A member of a volume.
    pub(crate) fn member(&self, volume: &str, disk: &str) -> Span {
        self.of_volume(volume, |volume| place(&volume.disks, disk))
    }

    /// The block size of a volume.
    pub(crate) fn block_size(&self, volume: &str) -> Span {
        self.of_volume(volume, |volume| volume.block_size.clone())
    }

    /// The size of a volume.
    pub(crate) fn size(&self, volume: &str) -> Span {
        self.of_volume(volume, |volume| volume.size.clone())
    }

    /// Where a link is named first.
    pub(crate) fn link(&self, link: &LinkName) -> Span {
        let vlan = link.vlan.map(i64::from);
        let here = |with_vlan: bool| {
            let is_it = |(name, other, _): &&(String, Option<i64>, Span)| {
                *name == link.interface && (!with_vlan || *other == vlan)
            };
            self.links.iter().find(is_it).map(|(.., span)| span.clone())
        };
        here(true).or_else(|| here(false)).unwrap_or(0..0)
    }

    /// The address of a listener of NVMe/TCP, counted from 0.
    pub(crate) fn listener(&self, index: usize) -> Span {
        self.listeners.get(index).cloned().unwrap_or(0..0)
    }

    /// Puts mistakes at their places.
    pub(crate) fn locate(&self, mistakes: Vec<Mistake>) -> Mistakes {
        Mistakes::locate(&self.sources, mistakes)
    }

    fn of_volume(&self, name: &str, span: impl Fn(&VolumePlace) -> Span) -> Span {
        self.volumes.iter().find(|volume| volume.name == name).map_or(0..0, span)
    }
}

fn place(named: &[(String, Span)], name: &str) -> Span {
    named.iter().find(|(other, _)| other == name).map_or(0..0, |(_, span)| span.clone())
}
