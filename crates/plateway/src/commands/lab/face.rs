//! What a client of a trial's file system has above it: nothing, FUSE, or NFS with FUSE.
//!
//! ```text
//!   device        client -> ext4 -> attached disk (what the disk is behind)
//!   fuse          client -> FUSE -> ext4 -> attached disk
//!   nfs           client -> FUSE -> NFS == path == server -> ext4 -> attached disk
//! ```
//! The processes of NFS are each at its own end; what is mounted is this process's. As much of the page cache as the
//! device's may be written behind above FUSE, where the kernel lets a hundredth be by itself, and a client of a kernel's
//! NFS has no such bound. All is made anew each time it is mounted, so that neither end knows anything of what was there.
//! Errors: what did not come, with its last words.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::plan::FileSystem;
use rustix::fs::{major, minor};
use testbed::group::Limits;
use testbed::{Group, Mounted, Mounts, Server, process};

use super::mounted::Place;
use super::road::FAR_ADDRESS;
use super::trial::{Lab, tell};
use super::way::Way;
use super::{NFS_PORT, far, list, program};

/// How long what was written may take to be written back, and a process to go then.
const END_MAX: Duration = Duration::from_secs(310);
/// Where how often the server was asked is kept, in the trial's folder.
pub(super) const CALLS: &str = "calls";

/// Makes faces of one file system.
pub(super) struct Faces<'f> {
    lab: &'f Lab<'f>,
    place: &'f Place<'f>,
    kind: FileSystem,
    device: &'f Path,
    /// Where the file system is, and where the client sees it.
    below: PathBuf,
    above: Option<PathBuf>,
}

impl<'f> Faces<'f> {
    pub(super) fn new(
        lab: &'f Lab<'f>,
        place: &'f Place<'f>,
        kind: FileSystem,
        fuse: bool,
        device: &'f Path,
    ) -> miette::Result<Faces<'f>> {
        let below = place.home.join("mounted");
        let above = (fuse || place.nfs.is_some()).then(|| place.home.join("above"));
        for folder in [Some(&below), above.as_ref()].into_iter().flatten() {
            super::make_folder(folder)?;
        }
        Ok(Faces { lab, place, kind, device, below, above })
    }

    /// Where the client works.
    pub(super) fn point(&self) -> &Path {
        self.above.as_deref().unwrap_or(&self.below)
    }

    pub(super) fn mount(&self) -> miette::Result<Face> {
        let below = Mounted::make(self.kind.word(), self.device, &self.below).map_err(tell)?;
        let Some(above) = &self.above else {
            return Ok(Face { above: None, server: None, memory: None, below });
        };
        let (lab, way) = (self.lab, self.place.way);
        let (mut server, mut memory) = (None, None);
        let mut import =
            process::command_in(None, way.and_then(Way::near), &list(&lab.ends.near), &program()?);
        import.args(["lab", "import"]).arg(above);
        let mounted = Mounted::prepare(above).map_err(tell)?;
        match self.place.nfs {
            None => {
                import.arg("--folder").arg(&self.below);
            }
            Some(nfs) => {
                let address = SocketAddr::from((FAR_ADDRESS, NFS_PORT)).to_string();
                let far = way.and_then(Way::far);
                memory = nfs
                    .memory
                    .map(|bytes| {
                        let limits = Limits { memory: Some(bytes), cpu: None };
                        Group::make(far::PREFIX, limits)
                    })
                    .transpose()
                    .map_err(tell)?;
                let cpus = list(&lab.ends.far);
                let mut export = process::command_in(memory.as_ref(), far, &cpus, &program()?);
                export.args(["lab", "export"]).arg(&self.below).args(["--listen", &address]);
                if !nfs.cache {
                    export.arg("--past");
                }
                let log = self.place.home.join("export.log");
                server = Some(Server::start(export, &log).map_err(tell)?);
                import.args(["--server", &address, "--calls"]).arg(self.place.home.join(CALLS));
                if nfs.sync {
                    import.arg("--sync");
                }
            }
        }
        let client = Server::start(import, &self.place.home.join("import.log")).map_err(tell)?;
        let imported = Imported { client, mounted };
        imported.until_mounted(lab, server.as_ref())?;
        Ok(Face { above: Some(imported), server, memory, below })
    }
}

/// A file system that is mounted, with what is above it, which goes first.
pub(super) struct Face {
    above: Option<Imported>,
    server: Option<Server>,
    /// What the server may have, where the plan bounds that.
    memory: Option<Group>,
    below: Mounted,
}

impl Face {
    /// Where the client works.
    pub(super) fn point(&self) -> &Path {
        self.above.as_ref().map_or(self.below.point(), |above| above.mounted.point())
    }

    /// Writes back what was written, and unmounts all of it.
    pub(super) fn unmount(self) -> miette::Result<()> {
        let Face { above, server, memory, below } = self;
        above.map_or(Ok(()), Imported::unmount)?;
        let killed = memory.as_ref().map_or(0, Group::killed);
        drop(server);
        if killed > 0 {
            return Err(miette::miette!(
                "the kernel killed the server, which needed more memory than memory = of nfs lets it have"
            ));
        }
        below.unmount().map_err(tell)
    }
}

/// A folder by FUSE; where it is not unmounted on purpose it goes with its process, which goes first: nobody waits for
/// what was written there.
struct Imported {
    client: Server,
    mounted: Mounted,
}

impl Imported {
    /// Waits until it is mounted.
    fn until_mounted(&self, lab: &Lab<'_>, server: Option<&Server>) -> miette::Result<()> {
        let end = Instant::now() + far::START;
        loop {
            if let Some(server) = server {
                server.is_up("plateway lab export").map_err(tell)?;
            }
            self.client.is_up("plateway lab import").map_err(tell)?;
            let mounts = Mounts::now().map_err(tell)?;
            if mounts
                .all()
                .any(|mount| mount.point == self.mounted.point() && mount.kind.starts_with("fuse"))
            {
                return self.let_write_behind();
            }
            if Instant::now() > end {
                let words = self.client.words();
                return Err(miette::miette!("plateway lab import mounted nothing: {words}"));
            }
            far::pause(lab.interrupt)?;
        }
    }

    /// Lets the kernel write behind what a kernel's own NFS client may.
    fn let_write_behind(&self) -> miette::Result<()> {
        let device = rustix::fs::stat(self.mounted.point())
            .map_err(|error| {
                miette::miette!("cannot look at {}: {error}", self.mounted.point().display())
            })?
            .st_dev;
        let bdi = format!("/sys/class/bdi/{}:{}", major(device), minor(device));
        for (file, value) in [("max_ratio", "100"), ("strict_limit", "0")] {
            let path = Path::new(&bdi).join(file);
            match fs::write(&path, value) {
                Ok(()) => {}
                // Before Linux 6.2 there is no such file.
                Err(error)
                    if file == "strict_limit" && error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(miette::miette!("cannot write {}: {error}", path.display()));
                }
            }
        }
        Ok(())
    }

    fn unmount(self) -> miette::Result<()> {
        let Imported { client, mounted } = self;
        mounted.unmount_and(|| client.ends("plateway lab import", END_MAX)).map_err(tell)
    }
}
