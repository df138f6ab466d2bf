//! Disks: whether each can be opened, what it is like, and whether two are the same blocks.

use std::io;
use std::path::Path;

use block::ByteCount;
use contract::DiskFacts;
use reactor::disk::probe::{Identity, PAGE, Probe, unmade_file};
use reactor::disk::{Access, OpenError, memory_facts};
use serde::Serialize;

use super::Look;
use crate::config::mistake::Span;
use crate::config::model::DiskConfig;
use crate::config::plan;
use crate::config::size::Size;
use crate::config::uri::DiskUri;
use crate::run::{RunError, open};

/// A disk, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DiskRow {
    /// Its name.
    pub(crate) name: String,
    /// Where its blocks are.
    pub(crate) uri: String,
    /// What would be done with it, in a few words.
    pub(crate) finding: String,
    /// Whether a start would refuse it.
    pub(crate) refused: bool,
    /// Its size; none where it is not known.
    pub(crate) bytes: Option<u64>,
    /// `direct`, `cached`, `memory` or `remote`; none where it is not known.
    pub(crate) access: Option<&'static str>,
    /// The smallest unit that can be addressed.
    pub(crate) logical_block: Option<u32>,
    /// What is written atomically.
    pub(crate) physical_block: Option<u32>,
}

/// A disk that was looked at.
#[derive(Debug)]
pub(super) struct SeenDisk {
    pub(super) row: DiskRow,
    /// Unless they are not known.
    pub(super) facts: Option<DiskFacts>,
    pub(super) content: Content,
    /// Whether the server that answers has it, under this name.
    pub(super) is_served: bool,
}

/// What can be read of a disk.
#[derive(Debug)]
pub(super) enum Content {
    /// Zeros: a disk in memory.
    Zeros,
    /// Zeros, once its file is made.
    Unmade,
    /// What is there.
    There(Box<Probe>),
    /// It was not asked, for this reason.
    Unknown(&'static str),
}

impl SeenDisk {
    /// Bytes from an offset on, both whole pages; of a disk whose content is known.
    pub(super) fn read(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length as usize);
        while (bytes.len() as u64) < length {
            match &self.content {
                Content::There(probe) => {
                    bytes.extend_from_slice(&probe.read_page(at + bytes.len() as u64)?);
                }
                Content::Zeros | Content::Unmade | Content::Unknown(_) => {
                    bytes.resize(bytes.len() + PAGE, 0)
                }
            }
        }
        Ok(bytes)
    }
}

/// What a look at one disk came to.
struct Finding {
    words: String,
    facts: Option<DiskFacts>,
    access: Option<&'static str>,
    content: Content,
    identity: Option<Identity>,
}

impl Look<'_> {
    pub(super) fn disks(&mut self) -> Vec<SeenDisk> {
        let checked = self.checked;
        let mut identities: Vec<(Identity, &str, Span)> = Vec::new();
        let mut seen = Vec::new();
        for disk in &checked.args.disks {
            let at = checked.places.disk(&disk.name);
            let is_served = self.is_disk_served(disk);
            let found = self.disk(disk);
            let identity = found.as_ref().ok().and_then(|found| found.identity.clone());
            let twin = identities.iter().find(|(other, ..)| Some(other) == identity.as_ref());
            let error = match (found, twin) {
                (Ok(found), None) => {
                    identities.extend(identity.map(|identity| (identity, &*disk.name, at)));
                    seen.push(row(disk, found, is_served));
                    continue;
                }
                (Ok(_), Some((_, first, place))) => {
                    let error = RunError::new(format!(
                        "disks {first} and {} are the same blocks by two names",
                        disk.name
                    ))
                    .help("each disk needs blocks of its own: `ls -li` shows where names lead");
                    self.mistakes.push(error.clone().at(at).also(place.clone(), "first here"));
                    error
                }
                (Err(error), _) => {
                    self.mistakes.push(error.clone().at(at));
                    error
                }
            };
            let finding = format!("refused: {error}");
            let row = DiskRow { finding, refused: true, ..named(disk) };
            let content = Content::Unknown("it is refused");
            seen.push(SeenDisk { row, facts: None, content, is_served });
        }
        seen
    }

    fn is_disk_served(&self, disk: &DiskConfig) -> bool {
        self.served.is_some_and(|served| served.disks.contains(disk))
    }

    /// Whether the server that answers has these blocks open, under whatever name.
    fn is_held(&self, disk: &DiskConfig) -> bool {
        let mine = self.located(&disk.uri);
        let is_it = |other: &DiskConfig| self.located(&other.uri).same_backing(&mine);
        self.served.is_some_and(|served| served.disks.iter().any(is_it))
    }

    /// Whether the server that answers would bring this disk from `seen` bytes to what `create`
    /// says now.
    fn grows(&self, disk: &DiskConfig, seen: u64) -> bool {
        let now = self.served.and_then(|served| served.disks.iter().find(|d| d.name == disk.name));
        now.is_some_and(|now| plan::grows(now, disk) == Some(seen))
    }

    fn disk(&self, disk: &DiskConfig) -> Result<Finding, RunError> {
        let memory = |bytes: u64, words: &str| Finding {
            words: words.to_owned(),
            facts: Some(memory_facts(ByteCount(bytes))),
            access: Some("memory"),
            content: match self.is_disk_served(disk) {
                true => Content::Unknown("its content is in the memory of the server"),
                false => Content::Zeros,
            },
            identity: None,
        };
        if let DiskUri::NvmeTcp(_) | DiskUri::Aoe(_) = &disk.uri {
            return Ok(Finding {
                words: "not contacted".to_owned(),
                facts: None,
                access: Some("remote"),
                content: Content::Unknown("it is remote and was not contacted"),
                identity: None,
            });
        }
        // An instrument around a remote disk.
        if open::open_spec(&disk.uri).is_none() {
            return open::target(disk).map(|_| memory(0, ""));
        }
        match self.located(disk.uri.innermost()) {
            DiskUri::Ram { bytes } => Ok(memory(bytes, "memory, zeros at first")),
            DiskUri::Null { bytes } => Ok(memory(bytes, "discards writes, reads zeros")),
            DiskUri::File { path, create_bytes } => match Probe::file(&path) {
                Ok(probe) => self.there(disk, &path, probe, create_bytes),
                Err(error) => match create_bytes.filter(|_| is_missing(&error)) {
                    Some(bytes) => unmade(disk, &path, bytes),
                    None => Err(open::refused(disk, &error)),
                },
            },
            DiskUri::BlockDevice { path } => match Probe::device(&path) {
                Ok(probe) => self.there(disk, &path, probe, None),
                Err(error) => Err(open::refused(disk, &error)),
            },
            DiskUri::NvmeTcp(_)
            | DiskUri::Aoe(_)
            | DiskUri::Volume { .. }
            | DiskUri::Delay { .. }
            | DiskUri::Faulty { .. } => unreachable!("it leads to a disk of this machine"),
        }
    }

    /// A file or device that is there.
    fn there(
        &self,
        disk: &DiskConfig,
        path: &Path,
        probe: Probe,
        create: Option<u64>,
    ) -> Result<Finding, RunError> {
        if probe.is_in_use() && !self.is_held(disk) {
            let by = "another program or server";
            return Err(open::refused(disk, &OpenError::InUse { path: path.into(), by }));
        }
        let mut facts = probe.facts();
        let seen = facts.size.0;
        let words = match create {
            Some(expected) if seen != expected && !self.grows(disk, seen) => {
                return Err(open::refused(
                    disk,
                    &OpenError::OtherSize { path: path.into(), expected, seen },
                ));
            }
            Some(wanted) if seen < wanted && facts.read_only => {
                return Err(RunError::new(format!(
                    "disk {}: {}: expected a file that may grow from {} to {}, seen one that may not be written",
                    disk.name,
                    path.display(),
                    Size(seen),
                    Size(wanted)
                ))
                .help("allow this user to write it, or leave create out"));
            }
            Some(wanted) if seen < wanted => {
                facts.size = ByteCount(wanted);
                format!("would grow from {} to {}", Size(seen), Size(wanted))
            }
            _ if self.is_disk_served(disk) => "served now".to_owned(),
            _ if facts.read_only => "there, read only".to_owned(),
            _ => "there".to_owned(),
        };
        Ok(Finding {
            words,
            facts: Some(facts),
            access: Some(match probe.access() {
                Access::Direct => "direct",
                Access::Cached => "cached",
            }),
            identity: Some(probe.identity().clone()),
            content: Content::There(Box::new(probe)),
        })
    }
}

/// A file that is not there and would be made.
fn unmade(disk: &DiskConfig, path: &Path, bytes: u64) -> Result<Finding, RunError> {
    let (facts, identity) =
        unmade_file(path, bytes).map_err(|error| open::refused(disk, &error))?;
    Ok(Finding {
        words: format!("would be created with {}", Size(bytes)),
        facts: Some(facts),
        access: None,
        content: Content::Unmade,
        identity: Some(identity),
    })
}

fn is_missing(error: &OpenError) -> bool {
    matches!(error, OpenError::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn named(disk: &DiskConfig) -> DiskRow {
    DiskRow { name: disk.name.clone(), uri: disk.uri.to_string(), ..DiskRow::default() }
}

fn row(disk: &DiskConfig, found: Finding, is_served: bool) -> SeenDisk {
    let Finding { words, facts, access, content, .. } = found;
    let row = DiskRow {
        finding: words,
        bytes: facts.as_ref().map(|facts| facts.size.0),
        access,
        logical_block: facts.as_ref().map(|facts| facts.logical_block),
        physical_block: facts.as_ref().map(|facts| facts.physical_block),
        ..named(disk)
    };
    SeenDisk { row, facts, content, is_served }
}
