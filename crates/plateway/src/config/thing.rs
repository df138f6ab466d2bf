//! What a configuration consists of: links, routers with what they have, disks, volumes, listeners,
//! hosts, exports and where metrics are read; and a step, which adds, removes or changes one.
//!
//! Each kind says of itself ([`Configured`]) what it is called, what it stands on, which others
//! cannot be there beside it, and what becomes of it where it is to be otherwise. So there is one
//! difference of two configurations (`plan`), one inverse of a step and one line for people. A step
//! holds whole values: it needs neither configuration to be carried out or undone.

use std::fmt;
use std::ops::Deref;

use block::ByteCount;

use super::address::HostPort;
use super::disk::DiskConfig;
use super::link::LinkConfig;
use super::listener::ListenerConfig;
use super::metrics::MetricsConfig;
use super::plan::Refused;
use super::volume::VolumeConfig;
use crate::protocols::{ExportConfig, HostConfig, Proof, Routed};

/// The key of what is a size, among the values that change in place.
pub(super) const SIZE_KEY: &str = "size";

/// What every kind of thing says of itself.
pub(crate) trait Configured {
    /// Its kind and name, as steps and messages call it; no other thing of a configuration has it.
    fn title(&self) -> String;

    /// What a step that adds or removes it says besides.
    fn details(&self) -> String {
        String::new()
    }

    /// What can change in place, by key, as a step says it.
    fn values(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// By what hosts prove who they are, if they have to.
    fn proof(&self) -> Option<&Proof> {
        None
    }

    /// The titles of what is there before it and goes after it.
    fn stands_on(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a change in place of what it stands on changes it, too.
    fn follows(&self) -> bool {
        false
    }

    /// Whether the other one, of whatever kind and title, must be gone before it can be there.
    fn excludes(&self, other: &Thing) -> bool;

    /// What becomes of it where `to`, which has its title and differs, is wanted.
    fn change(&self, _to: &Thing) -> Result<Change, Refused> {
        Ok(Change::InPlace)
    }

    /// Its table, as a file has it.
    fn text(&self) -> String;
}

/// What becomes of a thing that is to be otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing: what differs says nothing of a thing that is there.
    None,
    InPlace,
    /// In place, and nothing that stands on it notices.
    Aside,
    /// It is removed, with what stands on it, and added again.
    Replace,
}

/// One thing of a configuration. The kinds come in this order, and go in the opposite one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Link(LinkConfig),
    Routed(Routed),
    Disk(DiskConfig),
    Volume(VolumeConfig),
    Listener(ListenerConfig),
    Host(HostConfig),
    Export(ExportConfig),
    Metrics(MetricsConfig),
}

impl Thing {
    /// Its kind's place among the kinds.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Thing::Link(_) => 0,
            Thing::Routed(one) => 1 + one.kind(),
            // One may be behind a pseudowire.
            Thing::Disk(_) => 1 + Routed::KINDS,
            Thing::Volume(_) => 2 + Routed::KINDS,
            Thing::Listener(_) => 3 + Routed::KINDS,
            Thing::Host(_) => 4 + Routed::KINDS,
            Thing::Export(_) => 5 + Routed::KINDS,
            Thing::Metrics(_) => 6 + Routed::KINDS,
        }
    }

    /// Where it listens, if it does.
    pub(super) fn tcp_address(&self) -> Option<&HostPort> {
        match self {
            Thing::Listener(one) => Some(&one.address),
            Thing::Metrics(one) => Some(&one.address),
            _ => None,
        }
    }
}

impl Deref for Thing {
    type Target = dyn Configured;

    fn deref(&self) -> &Self::Target {
        match self {
            Thing::Disk(one) => one,
            Thing::Volume(one) => one,
            Thing::Listener(one) => one,
            Thing::Link(one) => one,
            Thing::Routed(one) => &**one,
            Thing::Host(one) => one,
            Thing::Export(one) => &**one,
            Thing::Metrics(one) => one,
        }
    }
}

/// One change of what is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// What it stands on is there.
    Add(Thing),
    /// Nothing stands on it any more.
    Remove(Thing),
    /// In place. Where both are the same it follows what it stands on.
    Change { from: Thing, to: Thing },
    /// A secret that it proves by is another one where it is kept; it counts from the next login on.
    Renew(Thing),
    /// A disk was given another size from outside, and its volume is to have it. It comes last, and
    /// nothing undoes it: that is the size that the disk has.
    Resize { disk: Thing, from_bytes: u64, to_bytes: u64 },
}

impl Step {
    /// The thing, as it is to be where it changes.
    pub(crate) fn thing(&self) -> &Thing {
        match self {
            Step::Add(thing)
            | Step::Remove(thing)
            | Step::Change { to: thing, .. }
            | Step::Renew(thing)
            | Step::Resize { disk: thing, .. } => thing,
        }
    }

    /// The step that undoes this one.
    pub(crate) fn inverse(&self) -> Self {
        match self.clone() {
            Step::Add(thing) => Step::Remove(thing),
            Step::Remove(thing) => Step::Add(thing),
            Step::Change { from, to } => Step::Change { from: to, to: from },
            Step::Renew(thing) => Step::Renew(thing),
            Step::Resize { disk, from_bytes, to_bytes } => {
                Step::Resize { disk, from_bytes: to_bytes, to_bytes: from_bytes }
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Add(thing) => {
                write!(f, "+ {}{}", thing.title(), thing.details())?;
                // Who may use it is worth a look before it is there.
                let hosts = thing.values().into_iter().find(|(key, _)| *key == "hosts");
                hosts.map_or(Ok(()), |(_, hosts)| write!(f, ", hosts {hosts}"))
            }
            Step::Remove(thing) => write!(f, "- {}{}", thing.title(), thing.details()),
            Step::Change { from, to } if from == to => {
                write!(f, "~ resize {}: size follows its disks", from.title())
            }
            Step::Change { from, to } => {
                let (title, values) = (from.title(), from.values().into_iter().zip(to.values()));
                let changed: Vec<_> = values.filter(|(from, to)| from != to).collect();
                let is_size = changed.iter().all(|((key, _), _)| *key == SIZE_KEY);
                write!(f, "~ {}{title}:", if is_size { "resize " } else { "" })?;
                for ((key, from), (_, to)) in changed {
                    write!(f, " {key} {from} -> {to}")?;
                }
                Ok(())
            }
            Step::Renew(thing) => write!(f, "~ {}: chap: another secret", thing.title()),
            Step::Resize { disk, from_bytes, to_bytes } => {
                let (title, from, to) =
                    (disk.title(), ByteCount(*from_bytes), ByteCount(*to_bytes));
                write!(f, "~ resize {title}: {SIZE_KEY} {from} -> {to}, as it is now")
            }
        }
    }
}
