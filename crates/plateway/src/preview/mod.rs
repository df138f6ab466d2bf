//! What a start would find, found without starting anything: for `plateway check`.
//!
//! Disks are looked at through [`reactor::disk::probe`], never opened for writing, made or labelled; remote disks are not contacted; an address is
//! bound for a moment and not listened at, an interface looked up. The judgements are those of `run` (the rule of blocks, the survey of labels, sizes), so that what passes
//! here passes there, as far as nobody changes anything in between. In: a configuration, where it was written, and what a server that answers
//! serves already. Out: a [`Preview`]: a row for each thing, and a mistake at its line for each that a start would refuse.

mod disks;
mod links;
mod listeners;
mod volumes;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::Checked;
use crate::config::mistake::{Mistake, Mistakes};
use crate::config::model::HiArgs;
use crate::config::uri::DiskUri;

pub(crate) use disks::DiskRow;
pub(crate) use links::LinkRow;
pub(crate) use listeners::ListenerRow;
pub(crate) use volumes::VolumeRow;

/// What a start would find.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Preview {
    /// In the order of the configuration.
    pub(crate) disks: Vec<DiskRow>,
    /// In the order of the configuration.
    pub(crate) volumes: Vec<VolumeRow>,
    /// In the order of the configuration.
    pub(crate) listeners: Vec<ListenerRow>,
    /// Of AoE: in the order of the configuration, then those that only exports name.
    pub(crate) links: Vec<LinkRow>,
    /// What a start would refuse.
    #[serde(skip)]
    pub(crate) mistakes: Mistakes,
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
    let mut look = Look { checked, served, directory, overwrite, mistakes: Vec::new() };
    let disks = look.disks();
    let volumes = look.volumes(&disks);
    let listeners = look.listeners();
    let links = look.links();
    let mistakes = checked.places.locate(look.mistakes);
    Preview {
        disks: disks.into_iter().map(|disk| disk.row).collect(),
        volumes,
        listeners,
        links,
        mistakes,
    }
}

/// The look at a configuration, as far as it has come.
struct Look<'a> {
    checked: &'a Checked,
    served: Option<&'a HiArgs>,
    /// What relative paths are relative to; empty for our own working directory.
    directory: &'a Path,
    overwrite: &'a [String],
    mistakes: Vec<Mistake>,
}

impl Look<'_> {
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
}
