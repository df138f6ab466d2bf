//! What the disk below a volume really is, for whoever must know it again.

use std::os::fd::OwnedFd;

use super::error::RunError;
use super::{OpenDisk, Running};
use crate::config::volume::Layout;

/// What holds the blocks of a volume.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Memory, which nobody knows again.
    Memory,
    /// A file or device: another descriptor of what is open.
    Open(OwnedFd),
    /// A remote disk, by what it says it is.
    Remote(Option<String>),
    /// Several disks: the volume's own identity.
    Set,
}

impl Running {
    /// What holds the blocks of a volume.
    pub(crate) fn backing(&self, volume: &str) -> Result<Backing, RunError> {
        let Layout::Single { disk } = &self.volume(volume)?.config.layout else {
            return Ok(Backing::Set);
        };
        let disk = self.disk(disk)?;
        match disk {
            OpenDisk { local: Some(local), config, .. } => match local.fd() {
                Some(fd) => fd.try_clone_to_owned().map(Backing::Open).map_err(|error| {
                    // Unrecorded: it takes a machine that has no descriptor left.
                    RunError::new(format!("disk {}: cannot ask what it is: {error}", config.name))
                }),
                None => Ok(Backing::Memory),
            },
            _ => {
                let reports = self.shards.reports()?;
                let mut imports = reports.into_iter().flat_map(|report| report.imports);
                let import = imports.find(|import| import.disk == disk.id);
                Ok(Backing::Remote(import.and_then(|import| import.identity)))
            }
        }
    }
}
