//! Images of file systems with all files of a load in them: each is made once in a run, and copied to the blank disk of
//! every trial, so that a trial neither makes a file system nor files, and finds the same ones each time.
//!
//! ```text
//!   once:        file -> plateway attach -> mkfs -> mount -> files made -> umount -> plateway detach
//!   each trial:  plateway serve, with a listener on the far end's loopback -> plateway copy, there -> the trial
//! ```
//! The copy goes by NVMe/TCP within the far end, past the path and its rate; nobody uses that listener afterwards. So it
//! takes a `serve` of memory, one disk, at the far end of a path that the lab lays. Other disks have their files made anew
//! in each trial, and so has one of which no image can be made, which is said. Images lie in the lab's own folder, and go
//! with it. Units: bytes. Errors: why an image was not copied.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::file_load::Personality;
use lab::plan::{Cell, FileSystem, Files, Means, PathKind};
use testbed::{Namespace, ScratchFolder, process};

use super::far::{LOADER, PREFIX};
use super::mounted::{self, Attached, Near};
use super::stripe::Reached;
use super::trial::{Lab, tell};
use super::{list, program};
use crate::config::uri::DiskUri;
use reactor::disk::Tail;

/// How long a copy may take.
const COPY_MAX: Duration = Duration::from_secs(600);

/// What an image is of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    kind: FileSystem,
    files: Personality,
    bytes: u64,
    disk_bytes: u64,
}

/// The images of a run, each with where it is, or why there is none.
#[derive(Debug, Default)]
pub(super) struct Images(Vec<(Key, Result<Image, String>)>);

/// An image that was made.
#[derive(Clone, Debug)]
pub(super) struct Image {
    file: PathBuf,
    /// Its folder of files, below where it is mounted.
    folder: PathBuf,
}

impl Image {
    /// The files, once the image is mounted there.
    pub(super) fn files(&self, point: &Path) -> ScratchFolder {
        ScratchFolder::left(point.join(&self.folder))
    }
}

impl Lab<'_> {
    /// Whether the disk of a cell may begin as a copy of an image.
    pub(super) fn takes_image(&self, cell: &Cell) -> bool {
        let system = &self.experiment.systems[cell.system];
        let is_memory = match &system.means {
            Means::Serve(serve) => {
                matches!(serve.disk.parse(), Ok(DiskUri::Ram { .. }))
                    && system.disks_under(&cell.load) == 1
            }
            _ => false,
        };
        let is_laid = |at: usize| self.experiment.paths[at].kind != PathKind::Machines;
        is_memory
            && cell.load.files.and_then(Files::personality).is_some()
            && cell.path.is_some_and(is_laid)
    }

    /// The image of a cell, which is made if it is the first that asks; why there is none.
    pub(super) fn image(&self, cell: &Cell, kind: FileSystem) -> Result<Image, String> {
        if !self.takes_image(cell) {
            return Err(
                "an image of them is copied to one disk of memory, behind a path that the lab lays"
                    .to_owned(),
            );
        }
        let system = &self.experiment.systems[cell.system];
        let files = cell.load.files.and_then(Files::personality);
        let (files, bytes) = files.zip(cell.load.size).expect("files have a size");
        let disk_bytes = system.bytes.expect("memory has a size");
        let key = Key { kind, files, bytes, disk_bytes };
        let known = self.images.borrow().0.iter().find(|(of, _)| *of == key).cloned();
        if let Some((_, image)) = known {
            return image;
        }
        let home = self.home.join(format!("image-{}", self.images.borrow().0.len()));
        let made = self.make_image(cell, key, &home).map_err(|error| error.to_string());
        // One that was interrupted is asked for by nobody any more.
        self.images.borrow_mut().0.push((key, made.clone()));
        made
    }

    fn make_image(&self, cell: &Cell, key: Key, home: &Path) -> miette::Result<Image> {
        let point = home.join("mounted");
        super::make_folder(&point)?;
        let file = home.join("image");
        let (path, create_bytes) = (file.clone(), Some(key.disk_bytes));
        let uri = DiskUri::File { path, create_bytes, tail: Tail::Refuse }.to_string();
        let near = Near { at: None, cpus: &self.ends.near };
        let attached = Attached::start(&near, &Reached::by(uri), home, self.interrupt)?;
        mounted::make(key.kind, &attached.device, self.interrupt)?;
        let word = key.kind.word();
        let mounted = testbed::Mounted::make(word, "", &attached.device, &point).map_err(tell)?;
        let mut files = ScratchFolder::make(&point, PREFIX).map_err(tell)?;
        files.leave();
        self.make_files_of(cell, &files)?;
        let folder = files.path().strip_prefix(&point).expect("they are there").to_owned();
        mounted.unmount().map_err(tell)?;
        attached.detach(self.interrupt)?;
        Ok(Image { file, folder })
    }

    /// Copies an image to the disk of a server that has a listener for that, within the far end.
    pub(super) fn copy_image(
        &self,
        image: &Image,
        far: Option<&Namespace>,
        home: &Path,
    ) -> miette::Result<()> {
        let mut command = process::command(far, &list(&self.ends.far), &program()?);
        let (path, create_bytes) = (image.file.clone(), None);
        let from = DiskUri::File { path, create_bytes, tail: Tail::Refuse }.to_string();
        command.arg("copy").arg(from).args([LOADER, "--no-verify", "--json", "--bs", "1m"]);
        command.env("XDG_STATE_HOME", home.join("copy"));
        self.must_succeed(command, COPY_MAX)
    }
}
