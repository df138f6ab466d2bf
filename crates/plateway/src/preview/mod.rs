//! What a start would find, found without starting anything: for `plateway check`.
//!
//! The things of a configuration are taken one after the other, as a start takes them, and each is judged as there (`run`: the rule of blocks,
//! what labels come to, sizes), so that what passes here passes there, as far as nobody changes anything in between. What a start would open is
//! only looked at: disks through [`reactor::disk::probe`], never opened for writing, made or labelled; remote disks are not contacted; an address is
//! bound for a moment and not listened at, an interface looked up. In: a configuration, where it was written, and what a server that answers
//! serves already. Out: a [`Preview`]: a row for each thing, and a mistake at its line for each that a start would refuse.

mod disks;
mod links;
mod listeners;
mod volumes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use uuid::Uuid;

use crate::config::Checked;
use crate::config::mistake::{Mistake, Mistakes};
use crate::config::model::HiArgs;
use crate::config::thing::Thing;
use crate::run::RunError;

pub(crate) use disks::DiskRow;
pub(crate) use links::LinkRow;
pub(crate) use listeners::ListenerRow;
pub(crate) use volumes::{MemberRow, VolumeRow};

/// What a start would find, each kind in the order of the configuration.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Preview {
    pub(crate) disks: Vec<DiskRow>,
    pub(crate) volumes: Vec<VolumeRow>,
    pub(crate) listeners: Vec<ListenerRow>,
    /// Those that only exports name come last.
    pub(crate) links: Vec<LinkRow>,
    /// What a start would refuse.
    #[serde(skip)]
    pub(crate) mistakes: Mistakes,
}

/// What was found of one thing.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Finding {
    /// What would be done with it, in a few words.
    pub(crate) finding: String,
    /// Whether a start would refuse it.
    pub(crate) refused: bool,
}

/// The server that would be brought to a configuration.
#[derive(Debug)]
pub(crate) struct Served {
    /// What it serves now.
    pub(crate) args: HiArgs,
    /// What relative paths are relative to there.
    pub(crate) directory: PathBuf,
}

/// Looks at everything that a configuration names.
///
/// `served` is the server that answers, if any, `overwrite` the volumes whose disks may be labelled whatever they hold.
pub(crate) fn preview(checked: &Checked, served: Option<&Served>, overwrite: &[String]) -> Preview {
    let directory = served.map_or(Path::new(""), |served| &served.directory);
    let served = served.map(|served| &served.args);
    let (disks, uuids) = (BTreeMap::new(), BTreeMap::new());
    let mut examined =
        Examined { checked, served, directory, overwrite, disks, uuids, mistakes: Vec::new() };
    let mut preview = Preview::default();
    for thing in checked.args.things() {
        let title = thing.title();
        match thing {
            Thing::Disk(config) => {
                let mut row = DiskRow::new(&config);
                let found = examined.disk(&config, &mut row);
                row.found = examined.finding(&title, found);
                preview.disks.push(row);
            }
            Thing::Volume(config) => {
                let mut row = VolumeRow::new(&config);
                let found = examined.volume(&config, &mut row);
                row.found = examined.finding(&title, found);
                preview.volumes.push(row);
            }
            Thing::Listener(config) => {
                let found = examined.listener(&config);
                let found = examined.finding(&title, found);
                preview.listeners.push(ListenerRow::new(&config, found));
            }
            Thing::Link(config) => {
                let mut row = LinkRow::new(&config);
                let found = examined.link(&config, &mut row);
                row.found = examined.finding(&title, found);
                preview.links.push(row);
            }
            // What it stands on is all that could be missing.
            Thing::Export(_) => {}
        }
    }
    preview.mistakes = checked.places.locate(examined.mistakes);
    preview
}

/// A configuration that is examined, as far as that has come.
struct Examined<'a> {
    checked: &'a Checked,
    served: Option<&'a HiArgs>,
    /// What relative paths are relative to; empty for our own working directory.
    directory: &'a Path,
    overwrite: &'a [String],
    /// By name; none of those that are refused.
    disks: BTreeMap<String, disks::Examined>,
    /// The volumes by their identities.
    uuids: BTreeMap<Uuid, String>,
    mistakes: Vec<Mistake>,
}

impl Examined<'_> {
    /// Notes what is wrong with the thing of this title.
    fn finding(&mut self, title: &str, found: Result<String, RunError>) -> Finding {
        let error = match found {
            Ok(finding) => return Finding { finding, refused: false },
            Err(error) => error,
        };
        let finding = format!("refused: {error}");
        self.mistakes.push(error.at(&self.checked.places, title));
        Finding { finding, refused: true }
    }
}
