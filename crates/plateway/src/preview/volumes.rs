//! Volumes: the rule of blocks, what the labels of members say, sizes and identities.

use contract::DiskId;
use serde::Serialize;
use volume::label::{Label, SetLabel};
use volume::survey::{Found, Verdict, is_member, survey, uuid_text};

use super::Look;
use super::disks::{Content, SeenDisk};
use crate::config::mistake::Span;
use crate::config::model::{Uuid, VolumeConfig};
use crate::run::shape::{self, Part};
use crate::run::{RunError, identity, labels};

/// A volume, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct VolumeRow {
    /// Its name.
    pub(crate) name: String,
    /// Layout and disks.
    pub(crate) layout: String,
    /// What would be done with it, in a few words.
    pub(crate) finding: String,
    /// Whether a start would refuse it.
    pub(crate) refused: bool,
    /// What hosts would see; none where it is not known.
    pub(crate) bytes: Option<u64>,
    /// Its identity; none where it would be new or is not known.
    pub(crate) uuid: Option<String>,
    /// The disks of a concat or stripe, in order; none of another layout.
    pub(crate) members: Vec<MemberRow>,
}

/// A disk that should carry a label.
#[derive(Debug, Serialize)]
pub(crate) struct MemberRow {
    /// The disk's name.
    pub(crate) disk: String,
    /// `matches`, `blank`, `another set`, `other data`, `damaged label`, or `not known`.
    pub(crate) state: &'static str,
    /// What was seen there and what would be done with it.
    pub(crate) finding: String,
}

/// What a look at a volume came to.
struct Finding {
    words: String,
    bytes: Option<u64>,
    uuid: Option<[u8; 16]>,
}

/// A refusal and where it belongs.
type Refused = (RunError, Span);

impl Look<'_> {
    pub(super) fn volumes(&mut self, disks: &[SeenDisk]) -> Vec<VolumeRow> {
        let mut rows = Vec::new();
        let mut known: Vec<([u8; 16], &str)> = Vec::new();
        let checked = self.checked;
        for config in &checked.args.volumes {
            let named = |name: &String| disks.iter().find(|disk| disk.row.name == *name);
            let members: Vec<&SeenDisk> = config.layout.disks().iter().filter_map(named).collect();
            let mut shown = Vec::new();
            let found = self.volume(config, &members, &mut shown).and_then(|found| {
                let twin = known.iter().find(|(uuid, _)| Some(*uuid) == found.uuid);
                match twin {
                    Some((_, twin)) => {
                        Err((same_identity(config, twin), checked.places.volume(&config.name)))
                    }
                    None => Ok(found),
                }
            });
            let row = VolumeRow {
                name: config.name.clone(),
                layout: config.layout.to_string(),
                members: shown,
                ..VolumeRow::default()
            };
            rows.push(match found {
                Ok(Finding { words, bytes, uuid }) => {
                    known.extend(uuid.map(|uuid| (uuid, &*config.name)));
                    let uuid = uuid.map(|uuid| Uuid(uuid).to_string());
                    VolumeRow { finding: words, bytes, uuid, ..row }
                }
                Err((error, at)) => {
                    let finding = format!("refused: {error}");
                    self.mistakes.push(error.at(at));
                    VolumeRow { finding, refused: true, ..row }
                }
            });
        }
        rows
    }

    fn volume(
        &self,
        config: &VolumeConfig,
        members: &[&SeenDisk],
        shown: &mut Vec<MemberRow>,
    ) -> Result<Finding, Refused> {
        let places = &self.checked.places;
        let uuid = config.uuid.map(|uuid| uuid.0);
        if let Some(disk) = members.iter().find(|disk| disk.row.refused) {
            let words = format!("waits for disk {}, which is refused", disk.row.name);
            return Ok(Finding { words, bytes: None, uuid });
        }
        let part = |disk: &&SeenDisk| {
            let facts = disk.facts.clone()?;
            Some(Part { name: disk.row.name.clone(), disk: DiskId(0), facts })
        };
        let parts: Vec<Part> = members.iter().filter_map(part).collect();
        shape::check_blocks(config, &parts)
            .map_err(|error| (error, places.block_size(&config.name)))?;
        let size_of = |labelled: Option<&[u64]>| match parts.len() == members.len() {
            true => shape::layout(config, &parts, labelled)
                .and_then(|layout| shape::size(config, &layout))
                .map(Some)
                .map_err(|error| (error, places.size(&config.name))),
            false => Ok(None),
        };
        let Some(wanted) = labels::wanted(config, uuid.unwrap_or_default()) else {
            let (words, uuid) = self.single(config, members)?;
            return Ok(Finding { words, bytes: size_of(None)?, uuid });
        };
        let set = self.set(config, members, &wanted, shown)?;
        let Some((words, uuid, lengths)) = set else {
            let words = "its labels are not all known".to_owned();
            return Ok(Finding { words, bytes: None, uuid });
        };
        Ok(Finding { words, bytes: size_of(Some(&lengths))?, uuid })
    }

    /// A volume without labels: what becomes of its identity.
    fn single(
        &self,
        config: &VolumeConfig,
        members: &[&SeenDisk],
    ) -> Result<(String, Option<[u8; 16]>), Refused> {
        if self.is_volume_served(config, members) {
            return Ok(("served now".to_owned(), None));
        }
        if let Some(uuid) = config.uuid {
            return Ok(("under the uuid of the configuration".to_owned(), Some(uuid.0)));
        }
        let args = &self.checked.args;
        let uri = |disk: &&SeenDisk| {
            let found = args.disks.iter().find(|other| other.name == disk.row.name);
            found.map(|found| self.located(&found.uri))
        };
        let is_made = members.iter().any(|disk| matches!(disk.content, Content::Unmade));
        let backing = members.first().and_then(uri).and_then(|uri| identity::backing(&uri));
        let Some(backing) = backing.filter(|_| !is_made) else {
            return Ok(("under a new identity".to_owned(), None));
        };
        let stored = identity::Identities::new(&self.directory.join(&args.server.state))
            .stored(&backing, &config.name)
            .map_err(|error| (error, self.checked.places.volume(&config.name)))?;
        Ok(match stored {
            Some(uuid) => ("under its stored identity".to_owned(), Some(uuid)),
            None => ("under a new identity".to_owned(), None),
        })
    }

    /// A volume with labels: in a few words, its identity, and the lengths of its members' data. `None` where not all that is needed is known.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn set(
        &self,
        config: &VolumeConfig,
        members: &[&SeenDisk],
        wanted: &SetLabel,
        shown: &mut Vec<MemberRow>,
    ) -> Result<Option<(String, Option<[u8; 16]>, Vec<u64>)>, Refused> {
        let member = |disk: &str| self.checked.places.member(&config.name, disk);
        let mut found = Vec::new();
        for disk in members {
            let name = &disk.row.name;
            let known = match (&disk.facts, &disk.content) {
                (Some(facts), Content::Zeros | Content::Unmade | Content::There(_)) => {
                    Ok(facts.size.0)
                }
                (_, Content::Unknown(why)) => Err(*why),
                (None, _) => Err("its size is not known"),
            };
            found.push(match known {
                Err(why) => Err(why),
                Ok(bytes) => {
                    labels::check_room(&config.name, name, bytes)
                        .map_err(|error| (error, member(name)))?;
                    let look = labels::look(bytes, |at, length| disk.read(at, length));
                    Ok(look.map_err(|error| (unreadable(name, &error), member(name)))?)
                }
            });
        }
        let given = config.uuid.map(|uuid| uuid.0);
        let reference = reference(&found, given);
        for (index, (disk, found)) in members.iter().zip(&found).enumerate() {
            shown.push(shown_member(&disk.row.name, found, |label| {
                reference.is_some_and(|uuid| is_member(label, index, wanted, &uuid))
            }));
        }
        let found: Result<Vec<Found>, &str> = found.into_iter().collect();
        let Ok(found) = found else { return Ok(None) };
        let overwrite = self.overwrite.contains(&config.name);
        let verdict = survey(&found, wanted, given.is_some(), overwrite).map_err(|refusal| {
            let at = members.get(refusal.index);
            let disk = at.map_or("?", |disk| &disk.row.name);
            let refused = match at.map(|disk| &disk.content) {
                Some(Content::Unmade) => labels::lost(&config.name, disk, &refusal),
                _ => labels::refused(&config.name, disk, &refusal),
            };
            (refused, member(disk))
        })?;
        let bytes = |disk: &&SeenDisk| disk.facts.as_ref().map_or(0, |facts| facts.size.0);
        Ok(Some(match verdict {
            Verdict::Assemble { uuid } => {
                let lengths = labels::lengths(&found);
                for (disk, length) in members.iter().zip(&lengths) {
                    labels::check_length(&config.name, &disk.row.name, bytes(disk), *length)
                        .map_err(|error| (error, member(&disk.row.name)))?;
                }
                let words = match self.is_volume_served(config, members) {
                    true => "served now",
                    false => "would be assembled, its labels match",
                };
                (words.to_owned(), Some(uuid), lengths)
            }
            Verdict::Form { uuid } => {
                let read_only = members
                    .iter()
                    .find(|disk| disk.facts.as_ref().is_some_and(|facts| facts.read_only));
                if let Some(disk) = read_only {
                    return Err((unwritable(config, &disk.row.name), member(&disk.row.name)));
                }
                let blank = found.iter().all(|found| *found == Found::Blank);
                let words = match (uuid, blank) {
                    (Some(_), _) => "its labelling was interrupted and would go on",
                    (None, true) => "its disks are blank and would be labelled",
                    (None, false) => {
                        "its disks would be labelled anew: all that they hold is given up"
                    }
                };
                let lengths = members.iter().map(|disk| labels::data_length(bytes(disk)));
                (words.to_owned(), uuid.or(given), lengths.collect())
            }
        }))
    }

    fn is_volume_served(&self, config: &VolumeConfig, members: &[&SeenDisk]) -> bool {
        self.served.is_some_and(|served| served.volumes.contains(config))
            && members.iter().all(|disk| disk.is_served)
    }
}

/// The identity that members are held against: the one that is given, or that of the first label.
fn reference(found: &[Result<Found, &str>], given: Option<[u8; 16]>) -> Option<[u8; 16]> {
    let first = found.iter().find_map(|found| match found {
        Ok(Found::Label(label)) => Some(label.set.uuid),
        _ => None,
    });
    given.or(first)
}

fn shown_member(
    disk: &str,
    found: &Result<Found, &str>,
    is_ours: impl Fn(&Label) -> bool,
) -> MemberRow {
    let (state, finding) = match found {
        Err(why) => ("not known", (*why).to_owned()),
        Ok(Found::Blank) => ("blank", "zeros in its first and last MiB".to_owned()),
        Ok(Found::Label(label)) if is_ours(label) => {
            ("matches", format!("volume {}, index {}", uuid_text(&label.set.uuid), label.index))
        }
        Ok(other @ Found::Label(_)) => ("another set", other.to_string()),
        Ok(other @ Found::Foreign) => ("other data", other.to_string()),
        Ok(other @ Found::Damaged(_)) => ("damaged label", other.to_string()),
    };
    MemberRow { disk: disk.to_owned(), state, finding }
}

fn same_identity(config: &VolumeConfig, twin: &str) -> RunError {
    RunError::new(format!(
        "volume {}: expected an identity of its own, seen that of volume {twin}",
        config.name
    ))
    .help("a copy of a disk needs a uuid of its own")
}

fn unreadable(disk: &str, error: &std::io::Error) -> RunError {
    RunError::new(format!("disk {disk}: cannot read its label: {error}"))
}

fn unwritable(config: &VolumeConfig, disk: &str) -> RunError {
    RunError::new(format!(
        "volume {}: disk {disk}: expected one that can be labelled, seen one that may not be written",
        config.name
    ))
    .help("allow this user to write it")
}
