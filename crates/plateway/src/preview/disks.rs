//! Disks: whether each can be opened, what it is like, and whether two are the same blocks.

use std::io;
use std::path::{Path, PathBuf};

use block::ByteCount;
use contract::{DiskFacts, DiskId};
use reactor::disk::probe::{Identity, PAGE, Probe, unmade_file};
use reactor::disk::{Access, OpenError, memory_facts};
use serde::Serialize;

use super::Finding;
use crate::config::disk::{DiskConfig, disk_title};
use crate::config::size::Size;
use crate::config::uri::DiskUri;
use crate::run::shape::Part;
use crate::run::{RunError, open};

/// A disk, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DiskRow {
    /// Its name.
    pub(crate) name: String,
    /// Where its blocks are.
    pub(crate) uri: String,
    #[serde(flatten)]
    pub(crate) found: Finding,
    /// Its size; none where it is not known.
    pub(crate) bytes: Option<u64>,
    /// `direct`, `cached`, `memory` or `remote`; none where it is not known.
    pub(crate) access: Option<&'static str>,
    /// The smallest unit that can be addressed.
    pub(crate) logical_block: Option<u32>,
    /// What is written atomically.
    pub(crate) physical_block: Option<u32>,
}

impl DiskRow {
    pub(super) fn new(config: &DiskConfig) -> Self {
        Self { name: config.name.clone(), uri: config.uri.to_string(), ..Self::default() }
    }
}

/// A disk that could be opened.
#[derive(Debug)]
pub(super) struct Examined {
    /// As the server names it.
    pub(super) uri: DiskUri,
    /// Unless what it is like is not known.
    pub(super) part: Option<Part>,
    pub(super) content: Content,
    identity: Option<Identity>,
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

impl Examined {
    /// Bytes from an offset on, both whole pages; of a disk whose content is known.
    pub(super) fn read(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length as usize);
        while (bytes.len() as u64) < length {
            match &self.content {
                Content::There(probe) => {
                    bytes.extend_from_slice(&probe.read_page(at + bytes.len() as u64)?);
                }
                Content::Zeros | Content::Unmade | Content::Unknown(_) => {
                    bytes.resize(bytes.len() + PAGE, 0);
                }
            }
        }
        Ok(bytes)
    }
}

/// What was seen of one disk.
struct Seen {
    words: String,
    facts: Option<DiskFacts>,
    access: Option<&'static str>,
    content: Content,
    identity: Option<Identity>,
}

impl super::Examined<'_> {
    pub(super) fn disk(
        &mut self,
        disk: &DiskConfig,
        row: &mut DiskRow,
    ) -> Result<String, RunError> {
        let uri = self.located(&disk.uri);
        let is_served = self.served.is_some_and(|served| served.disks.contains(disk));
        let Seen { words, facts, access, content, identity } = self.probe(disk, &uri, is_served)?;
        let is_twin =
            |(_, other): &(&String, &Examined)| identity.is_some() && other.identity == identity;
        if let Some((first, _)) = self.disks.iter().find(is_twin) {
            let name = &disk.name;
            return Err(RunError::new(format!(
                "disks {first} and {name} are the same blocks by two names"
            ))
            .help("each disk needs blocks of its own: `ls -li` shows where names lead")
            .beside(disk_title(first)));
        }
        row.access = access;
        row.bytes = facts.as_ref().map(|facts| facts.size.0);
        row.logical_block = facts.as_ref().map(|facts| facts.logical_block);
        row.physical_block = facts.as_ref().map(|facts| facts.physical_block);
        let name = disk.name.clone();
        let part = facts.map(|facts| Part { name: name.clone(), disk: DiskId(0), facts });
        self.disks.insert(name, Examined { uri, part, content, identity, is_served });
        Ok(words)
    }

    /// A disk as the server names it: its path joined to the server's working directory.
    fn located(&self, uri: &DiskUri) -> DiskUri {
        match uri {
            DiskUri::File { path, create_bytes } => {
                DiskUri::File { path: self.directory.join(path), create_bytes: *create_bytes }
            }
            DiskUri::Delay { delay_us, inner } => {
                DiskUri::Delay { delay_us: *delay_us, inner: Box::new(self.located(inner)) }
            }
            DiskUri::Faulty { seed, inner } => {
                DiskUri::Faulty { seed: *seed, inner: Box::new(self.located(inner)) }
            }
            other => other.clone(),
        }
    }

    /// Whether the server that answers has these blocks open, under whatever name.
    fn is_held(&self, uri: &DiskUri) -> bool {
        let is_it = |other: &DiskConfig| self.located(&other.uri).same_backing(uri);
        self.served.is_some_and(|served| served.disks.iter().any(is_it))
    }

    /// Whether the server that answers would bring this disk from `seen` bytes to what `create` says now.
    fn grows(&self, disk: &DiskConfig, seen: u64) -> bool {
        let now = self.served.and_then(|served| served.disks.iter().find(|d| d.name == disk.name));
        now.is_some_and(|now| now.grows(disk) == Some(seen))
    }

    fn probe(&self, disk: &DiskConfig, uri: &DiskUri, is_served: bool) -> Result<Seen, RunError> {
        let memory = |bytes: u64, words: &str| Seen {
            words: words.to_owned(),
            facts: Some(memory_facts(ByteCount(bytes))),
            access: Some("memory"),
            content: match is_served {
                true => Content::Unknown("its content is in the memory of the server"),
                false => Content::Zeros,
            },
            identity: None,
        };
        if let DiskUri::Remote(_) = uri {
            return Ok(Seen {
                words: "not contacted".to_owned(),
                facts: None,
                access: Some("remote"),
                content: Content::Unknown("it is remote and was not contacted"),
                identity: None,
            });
        }
        // A remote disk in an instrument is refused.
        open::spec_of(disk)?;
        let there =
            |path: &PathBuf, probe, create| self.there(disk, uri, is_served, path, probe, create);
        match uri.innermost() {
            DiskUri::Ram { bytes } => Ok(memory(*bytes, "memory, zeros at first")),
            DiskUri::Null { bytes } => Ok(memory(*bytes, "discards writes, reads zeros")),
            DiskUri::File { path, create_bytes } => match Probe::file(path) {
                Ok(probe) => there(path, probe, *create_bytes),
                Err(error) => match create_bytes.filter(|_| is_missing(&error)) {
                    Some(bytes) => unmade(disk, path, bytes),
                    None => Err(open::refused(disk, &error)),
                },
            },
            DiskUri::BlockDevice { path } => match Probe::device(path) {
                Ok(probe) => there(path, probe, None),
                Err(error) => Err(open::refused(disk, &error)),
            },
            DiskUri::Remote(_)
            | DiskUri::Volume { .. }
            | DiskUri::Delay { .. }
            | DiskUri::Faulty { .. } => unreachable!("it leads to a disk of this machine"),
        }
    }

    /// A file or device that is there.
    fn there(
        &self,
        disk: &DiskConfig,
        uri: &DiskUri,
        is_served: bool,
        path: &Path,
        probe: Probe,
        create: Option<u64>,
    ) -> Result<Seen, RunError> {
        if probe.is_in_use() && !self.is_held(uri) {
            let by = "another program or server";
            return Err(open::refused(disk, &OpenError::InUse { path: path.into(), by }));
        }
        let mut facts = probe.facts();
        let seen = facts.size.0;
        let words = match create {
            Some(expected) if seen != expected && !self.grows(disk, seen) => {
                let error = OpenError::OtherSize { path: path.into(), expected, seen };
                return Err(open::refused(disk, &error));
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
            _ if is_served => "served now".to_owned(),
            _ if facts.read_only => "there, read only".to_owned(),
            _ => "there".to_owned(),
        };
        Ok(Seen {
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
fn unmade(disk: &DiskConfig, path: &Path, bytes: u64) -> Result<Seen, RunError> {
    let (facts, identity) =
        unmade_file(path, bytes).map_err(|error| open::refused(disk, &error))?;
    Ok(Seen {
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
