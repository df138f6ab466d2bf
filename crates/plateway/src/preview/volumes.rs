//! Volumes: the rule of blocks, what the labels of members say, sizes and identities.

use ::volume::label::{Label, SetLabel};
use ::volume::survey::{Found, is_member};
use serde::Serialize;
use uuid::Uuid;

use super::disks::Content;
use super::{Examined, Finding, disks};
use crate::config::volume::VolumeConfig;
use crate::run::RunError;
use crate::run::identity::{self, Identities};
use crate::run::labels::{self, Due};
use crate::run::shape::{self, Part};
use crate::run::state::StateDirectory;

/// A volume, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct VolumeRow {
    /// Its name.
    pub(crate) name: String,
    /// Layout and disks.
    pub(crate) layout: String,
    #[serde(flatten)]
    pub(crate) found: Finding,
    /// What hosts would see; none where it is not known.
    pub(crate) bytes: Option<u64>,
    /// Its identity; none where it would be new or is not known.
    pub(crate) uuid: Option<String>,
    /// The disks of a concat or stripe, in order; none of another layout.
    pub(crate) members: Vec<MemberRow>,
}

impl VolumeRow {
    pub(super) fn new(config: &VolumeConfig) -> Self {
        Self { name: config.name.clone(), layout: config.layout.to_string(), ..Self::default() }
    }
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

impl Examined<'_> {
    pub(super) fn volume(
        &mut self,
        config: &VolumeConfig,
        row: &mut VolumeRow,
    ) -> Result<String, RunError> {
        let mut members: Vec<&disks::Examined> = Vec::new();
        for name in config.layout.disks() {
            let Some(disk) = self.disks.get(name) else {
                row.uuid = config.uuid.map(|uuid| uuid.to_string());
                return Ok(format!("waits for disk {name}, which is refused"));
            };
            members.push(disk);
        }
        let is_served = self.served.is_some_and(|served| served.volumes.contains(config))
            && members.iter().all(|disk| disk.is_served);
        let parts: Vec<Part> = members.iter().filter_map(|disk| disk.part.clone()).collect();
        shape::check_blocks(config, &parts)?;
        let (words, uuid, labelled) =
            match labels::set_label(config, config.uuid.unwrap_or_default()) {
                None => {
                    let (words, uuid) = self.single(config, members[0], is_served)?;
                    (words, uuid, None)
                }
                Some(wanted) => {
                    let Some(set) = self.set(config, &wanted, &members, &parts, row)? else {
                        row.uuid = config.uuid.map(|uuid| uuid.to_string());
                        return Ok("its labels are not all known".to_owned());
                    };
                    (words_of(&set.due, is_served), set.uuid, Some(set.lengths))
                }
            };
        if parts.len() == members.len() {
            let layout = shape::layout(config, &parts, labelled.as_deref())?;
            row.bytes = Some(shape::size(config, &layout)?);
        }
        row.uuid = uuid.map(|uuid| uuid.to_string());
        if let Some(uuid) = uuid {
            if let Some(twin) = self.uuids.get(&uuid) {
                return Err(shape::same_identity(config, twin));
            }
            self.uuids.insert(uuid, config.name.clone());
        }
        Ok(words.to_owned())
    }

    /// A volume without labels: what becomes of its identity.
    fn single(
        &self,
        config: &VolumeConfig,
        disk: &disks::Examined,
        is_served: bool,
    ) -> Result<(&'static str, Option<Uuid>), RunError> {
        if is_served {
            return Ok(("served now", None));
        }
        if config.uuid.is_some() {
            return Ok(("under the uuid of the configuration", config.uuid));
        }
        let is_made = matches!(disk.content, Content::Unmade);
        let Some(backing) = identity::backing(&disk.uri).filter(|_| !is_made) else {
            return Ok(("under a new identity", None));
        };
        let state = self.directory.join(&self.checked.args.server.state);
        let identities = Identities::new(StateDirectory::new(&state));
        Ok(match identities.stored(&backing, &config.name)? {
            Some(uuid) => ("under its stored identity", Some(uuid)),
            None => ("under a new identity", None),
        })
    }

    /// What the labels of a volume come to; `None` where not all of them are known.
    fn set(
        &self,
        config: &VolumeConfig,
        wanted: &SetLabel,
        members: &[&disks::Examined],
        parts: &[Part],
        row: &mut VolumeRow,
    ) -> Result<Option<labels::Set>, RunError> {
        let found = members.iter().map(|disk| match (&disk.content, &disk.part) {
            (Content::Unknown(why), _) => Ok(Err(*why)),
            (_, None) => Ok(Err("its size is not known")),
            (_, Some(part)) => {
                labels::examine(config, part, |at, length| disk.read(at, length)).map(Ok)
            }
        });
        let found: Vec<Result<Found, &str>> = found.collect::<Result<_, RunError>>()?;
        // What members are held against: the identity that is given, or that of the first label.
        let first = found.iter().find_map(|found| match found {
            Ok(Found::Label(label)) => Some(label.set.uuid),
            _ => None,
        });
        let uuid = config.uuid.map(Uuid::into_bytes).or(first);
        for (index, (disk, found)) in config.layout.disks().iter().zip(&found).enumerate() {
            let is_ours =
                |label: &Label| uuid.is_some_and(|uuid| is_member(label, index, wanted, &uuid));
            row.members.push(shown_member(disk, found, is_ours));
        }
        let found: Result<Vec<Found>, &str> = found.into_iter().collect();
        let Ok(found) = found else { return Ok(None) };
        let overwrite = self.overwrite.contains(&config.name);
        let is_unmade = |name: &str| {
            self.disks.get(name).is_some_and(|disk| matches!(disk.content, Content::Unmade))
        };
        labels::judge(config, wanted, parts, &found, overwrite, is_unmade).map(Some)
    }
}

fn words_of(due: &Due, is_served: bool) -> &'static str {
    match due {
        Due::Nothing if is_served => "served now",
        Due::Nothing => "would be assembled, its labels match",
        Due::GoOn => "its labelling was interrupted and would go on",
        Due::Form(held) if held.is_empty() => "its disks are blank and would be labelled",
        Due::Form(_) => "its disks would be labelled anew: all that they hold is given up",
    }
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
            let uuid = Uuid::from_bytes(label.set.uuid);
            ("matches", format!("volume {uuid}, index {}", label.index))
        }
        Ok(other @ Found::Label(_)) => ("another set", other.to_string()),
        Ok(other @ Found::Foreign) => ("other data", other.to_string()),
        Ok(other @ Found::Damaged(_)) => ("damaged label", other.to_string()),
    };
    MemberRow { disk: disk.to_owned(), state, finding }
}
