//! A trial on a file system that the lab makes on a disk, wherever that is: the disk is attached to the near
//! end as a block device, and from there on all is as in a folder.
//!
//! ```text
//!   blank? -> plateway attach -> mkfs -> mount -> a file, as in super::folder -> umount -> plateway detach
//! ```
//! Of many files all of it up to the mount may be a copy of an image ([`super::image`]). What the kernel's own initiator has
//! is a device already ([`super::kernel_nvme`]).
//! The process that attaches is the initiator of the path, on the near end's CPUs and in its namespace; the
//! device is the machine's, and what is mounted is this process's. What was written is durable in the end, or
//! the trial failed. Where it failed already nobody waits for a disk that may be gone: the device goes with its
//! process, and what is mounted without waiting. Errors: why a trial measured nothing, and what this machine lacks.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::plan::{Cell, Client, Experiment, FileSystem, Files, Means, Mounted, Nfs, TrialOutcome};
use testbed::{DirtyLimit, Namespace, Server, load, needs, process};

use super::face::{Face, Faces};
use super::folder::{self, Work};
use super::image::Image;
use super::list;
use super::seen::Seen;
use super::stripe::Reached;
use super::trial::{Lab, MOMENT, complaint, tell};
use super::way::Way;
use super::{far, program};
use crate::commands::attach;
use crate::commands::session::Interrupt;
use crate::config::uri::DiskUri;

/// How long a disk may take to be a device, and to be none: what was written is flushed by then.
const ATTACH_MAX: Duration = Duration::from_secs(120);
const DETACH_MAX: Duration = Duration::from_secs(310);
/// How long it may take to make a file system: all of the disk is discarded.
const MAKE_MAX: Duration = Duration::from_secs(600);

/// What to know of a client with little memory where the kernel does not bound what a device may have behind.
const NO_LIMIT: &str = "the kernel has no limit of what waits in memory to be written to one device: as much may wait as this machine lets wait";

/// What is said of a device that somebody has open.
const IN_USE: &str = "something uses it";

/// What the kernel reads ahead of its own disks, and above FUSE; of a loop device it is twenty times that.
const READ_AHEAD_KIB: u32 = 128;

/// How long a disk may be lost.
const LOST_MAX_S: u32 = 10;

/// Where the disk of a trial is.
pub(super) struct Place<'p> {
    pub(super) at: &'p Reached,
    pub(super) way: Option<&'p Way<'p>>,
    /// Whether the kernel is the initiator, or the client of NFS, and where it has the disk, the device that it is.
    pub(super) is_by_kernel: bool,
    pub(super) kernel: Option<&'p Path>,
    /// Where the file system is at the far end, how it is exported.
    pub(super) nfs: Option<&'p Nfs>,
    /// A folder for what the trial leaves.
    pub(super) home: &'p Path,
}

/// What file systems of a plan need and is not here, a line for each system.
pub(super) fn missing(experiment: &Experiment) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, system) in experiment.systems.iter().enumerate() {
        let Some(Mounted { kind, client, .. }) = &system.mounted else { continue };
        let told = |why: String| format!("system {}: file-system: {why}", system.name);
        // What the kernel has by the wire is a device already.
        let is_device = system.kernel && !matches!(system.means, Means::Nfs(_));
        let refused = attach::allowed().err().filter(|_| !is_device);
        lines.extend(refused.map(|why| told(why.to_string())));
        let fio = (*client == Client::Fio).then_some("fio");
        let own = programs(*kind).into_iter().chain(["fincore"]).chain(fio).map(str::to_owned);
        for program in own.chain(super::program::needed(experiment, at)) {
            lines.extend(needs(&program).err().map(|why| told(why.to_string())));
        }
    }
    lines
}

/// What it takes to make a file system on an attached disk, and to mount it.
pub(super) fn programs(kind: FileSystem) -> [&'static str; 5] {
    [maker(kind)[0], "losetup", "mount", "umount", "nsenter"]
}

/// What makes a file system, with options by which nothing is left to be done behind a trial's back.
fn maker(kind: FileSystem) -> [&'static str; 5] {
    match kind {
        FileSystem::Ext4 => {
            ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        }
    }
}

impl Lab<'_> {
    /// Runs a trial on a file of a file system of its own.
    pub(super) fn run_mounted(
        &self,
        cell: &Cell,
        file_system: &Mounted,
        place: &Place<'_>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let Mounted { kind, client, fuse, .. } = *file_system;
        let files = cell.load.files.and_then(Files::personality);
        let image = files.map(|_| self.image(cell, kind));
        match &image {
            Some(Ok(image)) => {
                self.copy_image(image, place.way.and_then(Way::far), place.home)?;
                self.ours.borrow_mut().insert(self.disk(cell).to_owned());
            }
            _ => self.is_to_be_written(cell, place)?,
        }
        let attached = match place.kernel {
            Some(_) => None,
            None => Some(self.attach(place)?),
        };
        let own = attached.as_ref().map(|attached| attached.device.clone());
        let device = place.kernel.map(Path::to_owned).or(own).expect("one of both");
        // Of what is written behind at the client: by NFS that is not the device's.
        let memory = cell.load.client_memory.filter(|_| !fuse && place.nfs.is_none());
        let limit = memory.map(|bytes| DirtyLimit::set(&device, bytes));
        let limit = limit.transpose().map_err(tell)?;
        if !matches!(image, Some(Ok(_))) {
            make(kind, &device, self.interrupt)?;
        }
        let faces = Faces::new(self, place, file_system, &device)?;
        let (way, home) = (place.way, place.home);
        let work = Work { cell, place: faces.point(), client, way, home, removes: false };
        // It goes behind the device where something fails: what is to be written there fails by then, and nobody
        // waits for it.
        let mut mounted = None;
        let mount = || faces.mount();
        let copied = image.as_ref().and_then(|image| image.as_ref().ok());
        let mut done = self.work_mounted(&work, copied, mount, &mut mounted);
        if done.is_err() {
            drop(attached);
            return done;
        }
        if let Some(mounted) = mounted {
            mounted.unmount()?;
        }
        if let (Some(limit), Ok((_, seen))) = (&limit, &mut done) {
            seen.dirty_bytes_max = limit.as_ref().map(DirtyLimit::bytes);
            seen.notes.extend(limit.is_none().then(|| NO_LIMIT.to_owned()));
        }
        if let (Some(Err(why)), Ok((_, seen))) = (image, &mut done) {
            seen.notes.push(format!("files were made anew in each trial: {why}"));
        }
        drop(limit);
        attached.map_or(Ok(()), |attached| attached.detach(self.interrupt))?;
        done
    }

    /// Mounts a file system, and has a client work on a file of it, or on many: then it is mounted anew once they are
    /// made, so that nobody knows anything of them.
    fn work_mounted(
        &self,
        work: &Work<'_>,
        copied: Option<&Image>,
        mount: impl Fn() -> miette::Result<Face>,
        mounted: &mut Option<Face>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let first = mounted.insert(mount()?);
        let seen = || folder::FileSystem::at(first.point());
        match work.cell.load.files {
            None => return self.work_on_file(work, seen()?),
            Some(files) if files.is_program() => {
                return self.work_by_program(work, files, seen()?);
            }
            Some(_) => {}
        }
        if let Some(image) = copied {
            let seen = folder::FileSystem::at(first.point())?;
            return self.work_on_files(work, &image.files(work.place), seen);
        }
        let files = self.make_files(work)?;
        if let Some(first) = mounted.take() {
            first.unmount()?;
        }
        let second = mounted.insert(mount()?);
        let seen = folder::FileSystem::at(second.point())?;
        self.work_on_files(work, &files, seen)
    }

    /// An error unless the disk is blank, or what is on it is the lab's.
    fn is_to_be_written(&self, cell: &Cell, place: &Place<'_>) -> miette::Result<()> {
        let way = place.way.filter(|_| place.nfs.is_none());
        let mut command = self.bench(cell, place.at, way, None)?;
        command.args(["--rw", "write"]).args(MOMENT);
        self.finish(command, far::START, |_, _| ControlFlow::Continue(()))?;
        self.ours.borrow_mut().insert(self.disk(cell).to_owned());
        Ok(())
    }

    /// Attaches the disk of a trial: at the near end, where the initiator is, or, where it is exported by NFS, at the
    /// far one.
    fn attach(&self, place: &Place<'_>) -> miette::Result<Attached> {
        let Place { at, way, nfs, home, .. } = place;
        let end = match nfs {
            Some(_) => Near { at: way.and_then(Way::far), cpus: &self.ends.far },
            None => Near { at: way.and_then(Way::near), cpus: self.client_cpus(*way) },
        };
        Attached::start(&end, at, home, self.interrupt)
    }

    /// Runs a command to its end, unless the lab is to end.
    pub(super) fn must_succeed(&self, command: Command, limit: Duration) -> miette::Result<()> {
        must_succeed(command, limit, self.interrupt)
    }
}

/// Runs a command to its end, unless somebody interrupts it.
pub(super) fn must_succeed(
    command: Command,
    limit: Duration,
    interrupt: &Interrupt,
) -> miette::Result<()> {
    let words = testbed::words(&command);
    let ended = load::watch(command, limit, |_, _| interrupt.flow()).map_err(tell)?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(miette::miette!("{words}: {}", complaint(&ended))),
    }
}

/// Makes a file system on a device.
pub(super) fn make(kind: FileSystem, device: &Path, interrupt: &Interrupt) -> miette::Result<()> {
    let [program, options @ ..] = maker(kind);
    let mut make = Command::new(program);
    make.args(options).arg(device);
    must_succeed(make, MAKE_MAX, interrupt)
}

/// A disk by the wire whose requests fail while it is lost for long, unless it says how long itself: the trial
/// has failed by then, and who works there waits in the kernel and cannot be ended.
fn given_up_early(uri: &str) -> String {
    let is_remote = matches!(uri.parse(), Ok(DiskUri::Remote(_)));
    if !is_remote || uri.contains("deadline_s=") {
        return uri.to_owned();
    }
    let mark = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{mark}deadline_s={LOST_MAX_S}")
}

/// A disk that is a block device of this machine, as long as the value is there.
pub(super) struct Attached {
    server: Server,
    pub(super) device: PathBuf,
}

/// Where a disk is attached: in a namespace, if any, and by which CPUs.
pub(super) struct Near<'n> {
    pub(super) at: Option<&'n Namespace>,
    pub(super) cpus: &'n [usize],
}

/// Has the kernel read as far ahead as of its own disks, and as of FUSE.
pub(super) fn read_ahead(device: &Path) -> miette::Result<()> {
    let name = device.file_name().unwrap_or_default();
    let file = Path::new("/sys/block").join(name).join("queue/read_ahead_kb");
    fs::write(&file, READ_AHEAD_KIB.to_string()).map_err(|error| {
        miette::miette!("cannot bound what is read ahead ({}): {error}", file.display())
    })
}

impl Attached {
    /// Attaches a disk; what is said meanwhile goes to a file in `home`.
    pub(super) fn start(
        near: &Near<'_>,
        at: &Reached,
        home: &Path,
        interrupt: &Interrupt,
    ) -> miette::Result<Attached> {
        let mut command = process::command_in(None, near.at, &list(near.cpus), &program()?);
        let Reached { uri, config } = at;
        let at = Reached { uri: given_up_early(uri), config: config.clone() };
        command.arg("attach");
        at.tell(&mut command);
        let server = Server::start(command, &home.join("attach.log")).map_err(tell)?;
        let end = Instant::now() + ATTACH_MAX;
        loop {
            if let Some(device) = attach::device_of(server.pid()) {
                read_ahead(&device)?;
                return Ok(Attached { server, device });
            }
            server.is_up("plateway attach").map_err(tell)?;
            if Instant::now() > end {
                let (seconds, words) = (ATTACH_MAX.as_secs(), server.words());
                return Err(miette::miette!(
                    "plateway attach has no device after {seconds} s: {words}"
                ));
            }
            far::pause(interrupt)?;
        }
    }

    /// Detaches it; an error where something uses it, or where what was written may be lost.
    pub(super) fn detach(self, interrupt: &Interrupt) -> miette::Result<()> {
        let end = Instant::now() + far::START;
        loop {
            let mut command = Command::new(program()?);
            command.arg("detach").arg(&self.device);
            match must_succeed(command, DETACH_MAX, interrupt) {
                Ok(()) => break,
                // Who looks at all devices of this machine has each for a moment.
                Err(why) if why.to_string().contains(IN_USE) && Instant::now() < end => {
                    far::pause(interrupt)?;
                }
                Err(why) => return Err(why),
            }
        }
        self.server.ends("plateway attach", ATTACH_MAX).map_err(tell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_by_the_wire_is_given_up_early_unless_it_says_when() {
        let nvme = "nvme+tcp://10.77.0.1:4420/nqn.2026-11.net.plateway:lab/1";
        for (uri, given) in [
            ("ram:64MiB".to_owned(), "ram:64MiB".to_owned()),
            ("file:/srv/a://b".to_owned(), "file:/srv/a://b".to_owned()),
            (nvme.to_owned(), format!("{nvme}?deadline_s=10")),
            (format!("{nvme}?hdgst=0"), format!("{nvme}?hdgst=0&deadline_s=10")),
            (format!("{nvme}?deadline_s=5"), format!("{nvme}?deadline_s=5")),
            ("aoe://lab-near/7.0".to_owned(), "aoe://lab-near/7.0?deadline_s=10".to_owned()),
        ] {
            assert_eq!(given_up_early(&uri), given);
            assert!(given.parse::<DiskUri>().is_ok(), "{given}");
        }
    }
}
