//! Looking before doing: one walk over the things of a configuration, for a start and for `check`.
//!
//! Each kind of thing has a look (in `disks`, `volumes`, `listeners`, `links`, `exports`): it finds
//! what the thing is like, refuses what cannot be served, and changes nothing. A start looks and
//! then does what the look found to be due; `check` only looks, and so prints what a start would
//! refuse. What a look has to know of the things beside it says an [`Inventory`]: a running
//! server's is what runs there, that of `check` is what it has looked at so far.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::volume::assemble::Found;
use reactor::disk::probe::Identity;
use reservation::{PathGroup, PathState};
use uuid::Uuid;

use super::error::RunError;
use super::shape::Part;
use super::state::StateDirectory;
use crate::config::disk::DiskConfig;
use crate::config::model::HiArgs;
use crate::config::uri::{Around, DiskUri};
use crate::config::volume::VolumeConfig;

/// What is there already, beside the thing that is looked at.
pub(crate) trait Inventory {
    /// The server that would be brought to the configuration, where somebody else runs it.
    fn served(&self) -> Option<&Served> {
        None
    }

    /// The disk that has these blocks already, by whatever name they are reached.
    fn disk_with(&self, identity: &Identity) -> Option<&str>;

    /// A disk of a volume, unless it is refused.
    fn member(&self, disk: &str) -> Option<Member>;

    /// What is where a member's label should be, or why that is not known.
    fn examine(
        &self,
        volume: &VolumeConfig,
        disk: &str,
    ) -> Result<Result<Found, &'static str>, RunError>;

    /// The volume that has this identity already.
    fn volume_with(&self, uuid: Uuid) -> Option<&str>;

    /// The identity of a volume, if it is known.
    fn identity_of(&self, volume: &str) -> Option<Uuid>;

    /// Whether the disks of a volume may be labelled whatever they hold.
    fn overwrites(&self, volume: &str) -> bool;

    /// Where identities are stored.
    fn state(&self) -> StateDirectory;

    /// Bytes of memory that disks beside it are going to touch, and have not yet.
    fn to_touch(&self) -> u64 {
        0
    }
}

/// A disk of a volume that is looked at.
#[derive(Debug)]
pub(crate) struct Member {
    /// What names its blocks for good; none of blocks that nobody knows yet, or that a restart
    /// loses.
    pub(crate) backing: Option<String>,
    /// None where what it is like is not known.
    pub(crate) part: Option<Part>,
    /// Whether its file is yet to be made.
    pub(crate) is_unmade: bool,
    /// Why it is not to be made: it was there.
    pub(crate) lost: Option<RunError>,
    /// Whether the server that answers has it, under this name.
    pub(crate) is_served: bool,
}

/// A server that answers, and would be brought to a configuration.
#[derive(Debug)]
pub(crate) struct Served {
    /// What it serves now.
    pub(crate) args: HiArgs,
    /// What relative paths are relative to there.
    pub(crate) directory: PathBuf,
    /// Why its disks are failed that are, by name.
    pub(crate) failed: BTreeMap<String, String>,
    /// Why its volumes are.
    pub(crate) failed_volumes: BTreeMap<String, String>,
    /// In which states the groups of its listeners are.
    pub(crate) groups: BTreeMap<PathGroup, PathState>,
}

/// What relative paths begin at where nothing was opened yet.
pub(crate) fn directory(served: Option<&Served>) -> &Path {
    served.map_or(Path::new(""), |served| &served.directory)
}

/// What was found of what only some may read; what whoever looks may not, a server that answers is
/// to judge.
pub(super) fn judged(
    looked: Result<(), RunError>,
    served: Option<&Served>,
) -> Result<(), RunError> {
    match looked {
        Err(error) if error.is_unpermitted() && served.is_some() => Ok(()),
        looked => looked,
    }
}

impl Served {
    /// A disk as the server names it: its paths joined to the server's working directory.
    pub(super) fn located(&self, uri: &DiskUri) -> DiskUri {
        match uri {
            DiskUri::File { path, create_bytes, tail } => {
                let (create_bytes, tail) = (*create_bytes, *tail);
                DiskUri::File { path: self.directory.join(path), create_bytes, tail }
            }
            DiskUri::Instrumented { instrument, inner } => DiskUri::Instrumented {
                instrument: match instrument {
                    Around::Model(model) => {
                        Around::Model(Box::new(model.joined_to(&self.directory)))
                    }
                    other => other.clone(),
                },
                inner: Box::new(self.located(inner)),
            },
            other => other.clone(),
        }
    }

    /// Why it has not what it is to have, where it is to have the same.
    pub(crate) fn why_failed(&self, disk: &DiskConfig) -> Option<&str> {
        let why = self.failed.get(&disk.name)?;
        self.args.disks.iter().any(|now| now.uri == disk.uri).then_some(why)
    }

    /// Why a volume is failed that is to be as it is.
    pub(crate) fn why_volume_failed(&self, volume: &VolumeConfig) -> Option<&str> {
        let why = self.failed_volumes.get(&volume.name)?;
        self.args.volumes.contains(volume).then_some(why)
    }

    /// Whether it has these blocks open, under whatever name.
    pub(super) fn has_open(&self, uri: &DiskUri) -> bool {
        self.args.disks.iter().any(|other| self.located(&other.uri).same_backing(uri))
    }

    /// Whether it would bring this disk from `seen` bytes to what `create` says now.
    pub(super) fn grows(&self, disk: &DiskConfig, seen: u64) -> bool {
        let now = self.args.disks.iter().find(|now| now.name == disk.name);
        now.is_some_and(|now| now.grows(disk) == Some(seen))
    }
}
