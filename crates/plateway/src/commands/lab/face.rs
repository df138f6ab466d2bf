//! What a client of a trial's file system has above it: nothing, FUSE, or NFS with FUSE.
//!
//! ```text
//!   device        client -> ext4 -> attached disk (what the disk is behind)
//!   fuse          client -> FUSE -> ext4 -> attached disk
//!   nfs           client -> FUSE -> NFS == path == server -> ext4 -> attached disk
//!   the kernel's  client ---------> NFS == path == server -> ext4 -> attached disk
//! ```
//! The processes of NFS are each at its own end; what is mounted is this process's. As much of the page cache as the
//! device's may be written behind above FUSE, where the kernel lets a hundredth be by itself, and a client of a kernel's
//! NFS has no such bound. All is made anew each time it is mounted, so that neither end knows anything of what was there.
//! Errors: what did not come, with its last words.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::plan::Nfs;
use rustix::fs::{major, minor};
use testbed::group::Limits;
use testbed::{Group, Mounted, Mounts, Server, process};

use super::mounted::{Place, must_succeed};
use super::road::FAR_ADDRESS;
use super::trial::{Lab, tell};
use super::way::Way;
use super::{NFS_PORT, far, list, program};

/// How long what was written may take to be written back, and a process to go then.
const END_MAX: Duration = Duration::from_secs(310);
/// What is called so in an error.
const EXPORT: &str = "plateway lab export";
/// Where how often the server was asked is kept, in the trial's folder.
pub(super) const CALLS: &str = "calls";

/// Makes faces of one file system.
pub(super) struct Faces<'f> {
    lab: &'f Lab<'f>,
    place: &'f Place<'f>,
    mounted: &'f lab::plan::Mounted,
    device: &'f Path,
    /// Where the file system is, and where the client sees it.
    below: PathBuf,
    above: Option<PathBuf>,
}

impl<'f> Faces<'f> {
    pub(super) fn new(
        lab: &'f Lab<'f>,
        place: &'f Place<'f>,
        mounted: &'f lab::plan::Mounted,
        device: &'f Path,
    ) -> miette::Result<Faces<'f>> {
        let below = place.home.join("mounted");
        let above = (mounted.fuse || place.nfs.is_some()).then(|| place.home.join("above"));
        for folder in [Some(&below), above.as_ref()].into_iter().flatten() {
            super::make_folder(folder)?;
        }
        Ok(Faces { lab, place, mounted, device, below, above })
    }

    /// Where the client works.
    pub(super) fn point(&self) -> &Path {
        self.above.as_deref().unwrap_or(&self.below)
    }

    pub(super) fn mount(&self) -> miette::Result<Face> {
        let (kind, options) = (self.mounted.kind.word(), &self.mounted.options);
        let below = Mounted::make(kind, options, self.device, &self.below).map_err(tell)?;
        let Some(above) = &self.above else {
            return Ok(Face { above: None, export: None, below });
        };
        let export = self.place.nfs.map(|nfs| self.export(nfs)).transpose()?;
        let mounted = Mounted::prepare(above).map_err(tell)?;
        let above = match &export {
            Some(export) if self.place.is_by_kernel => {
                self.mount_by_kernel(above, export)?;
                Above::Kernel(mounted)
            }
            export => Above::Ours(self.import(above, mounted, export.as_ref())?),
        };
        Ok(Face { above: Some(above), export, below })
    }

    /// Has the far end serve what is below by NFS.
    fn export(&self, nfs: &Nfs) -> miette::Result<Export> {
        let far = self.place.way.and_then(Way::far);
        let bounded = |bytes| {
            let limits = Limits { memory: Some(bytes), cpu: None };
            Group::make(far::PREFIX, limits)
        };
        let memory = nfs.memory.map(bounded).transpose().map_err(tell)?;
        let cpus = list(&self.lab.ends.far);
        let mut export = process::command_in(memory.as_ref(), far, &cpus, &program()?);
        export.args(["lab", "export"]).arg(&self.below).args(["--listen", &server().to_string()]);
        if !nfs.cache {
            export.arg("--past");
        }
        let log = self.place.home.join("export.log");
        let server = Server::start(export, &log).map_err(tell)?;
        Ok(Export { server, memory })
    }

    /// Mounts by FUSE what is served, or what is below.
    fn import(
        &self,
        above: &Path,
        mounted: Mounted,
        export: Option<&Export>,
    ) -> miette::Result<Imported> {
        let mut import = self.near(&program()?);
        import.args(["lab", "import"]).arg(above);
        if let Some(bytes) = self.mounted.call_bytes {
            import.args(["--call-bytes", &bytes.to_string()]);
        }
        match self.place.nfs {
            None => {
                import.arg("--folder").arg(&self.below);
            }
            Some(nfs) => {
                let calls = self.place.home.join(CALLS);
                import.args(["--server", &server().to_string(), "--calls"]).arg(calls);
                if nfs.sync {
                    import.arg("--sync");
                }
            }
        }
        let client = Server::start(import, &self.place.home.join("import.log")).map_err(tell)?;
        let imported = Imported { client, mounted };
        imported.until_mounted(self.lab, export.map(|export| &export.server))?;
        Ok(imported)
    }

    /// Has the kernel's own client mount what is served, which speaks to one port alone; who asks for a server that is gone
    /// is told so, and does not wait for ever.
    fn mount_by_kernel(&self, above: &Path, export: &Export) -> miette::Result<()> {
        let (address, port) = (FAR_ADDRESS, NFS_PORT);
        let mut options = format!(
            "vers=3,proto=tcp,mountproto=tcp,port={port},mountport={port},addr={address},nolock,soft,timeo=100"
        );
        if let Some(bytes) = self.mounted.call_bytes {
            options += &format!(",rsize={bytes},wsize={bytes}");
        }
        let end = Instant::now() + far::START;
        loop {
            // Without a helper, which nobody may have installed, and which would ask for a port mapper.
            let mut mount = self.near(Path::new("mount"));
            mount.args(["--internal-only", "--types", "nfs", "--options", &options]);
            mount.arg(format!("{address}:/")).arg(above);
            match must_succeed(mount, far::START, self.lab.interrupt) {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() > end => return Err(why),
                Err(_) => export.server.is_up(EXPORT).map_err(tell)?,
            }
            far::pause(self.lab.interrupt)?;
        }
    }

    /// A program at the near end, with the mounts of this process.
    fn near(&self, program: &Path) -> Command {
        let way = self.place.way;
        let cpus = list(self.lab.client_cpus(way));
        process::command_in(None, way.and_then(Way::near), &cpus, program)
    }
}

/// Where the far end serves.
fn server() -> SocketAddr {
    SocketAddr::from((FAR_ADDRESS, NFS_PORT))
}

/// Whether the kernel has a client of NFS, which it may load for that.
pub(super) fn has_kernel_client() -> bool {
    let _ = Command::new("modprobe").args(["--quiet", "nfsv3"]).output();
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.trim_start_matches("nodev").trim() == "nfs")
}

/// A file system that is mounted, with what is above it, which goes first.
pub(super) struct Face {
    above: Option<Above>,
    export: Option<Export>,
    below: Mounted,
}

/// What serves it by NFS, and what that may have, where the plan bounds its memory.
struct Export {
    server: Server,
    memory: Option<Group>,
}

/// What the client sees.
enum Above {
    Ours(Imported),
    Kernel(Mounted),
}

impl Above {
    fn point(&self) -> &Path {
        match self {
            Above::Ours(imported) => imported.mounted.point(),
            Above::Kernel(mounted) => mounted.point(),
        }
    }

    fn unmount(self) -> miette::Result<()> {
        match self {
            Above::Ours(imported) => imported.unmount(),
            Above::Kernel(mounted) => mounted.unmount().map_err(tell),
        }
    }
}

impl Face {
    /// Where the client works.
    pub(super) fn point(&self) -> &Path {
        self.above.as_ref().map_or(self.below.point(), Above::point)
    }

    /// Writes back what was written, and unmounts all of it.
    pub(super) fn unmount(self) -> miette::Result<()> {
        let Face { above, export, below } = self;
        above.map_or(Ok(()), Above::unmount)?;
        let memory = export.as_ref().and_then(|export| export.memory.as_ref());
        let killed = memory.map_or(0, Group::killed);
        drop(export);
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
                server.is_up(EXPORT).map_err(tell)?;
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
