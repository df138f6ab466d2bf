//! `plateway lab export` and `plateway lab import`: NFS version 3 between the two ends of a path, in user space.
//!
//! ```text
//!   program -> kernel, its page cache -> FUSE [fuse] -> Store: [remote] = NFS by TCP -> [server] -> Store: [local], a folder
//!                                              or -> Store: [local], a folder, past its page cache: what FUSE alone costs
//! ```
//! A kernel's NFS client is not used, since not every kernel has one; what is mounted in its place behaves as it does where
//! that decides what goes over the wire: the page cache is written back behind the program, a file is asked for when it is opened,
//! and what was written to it is committed when it is closed; attributes are believed for as long. What it is not: it has as many
//! connections as it has threads, with a call each, where a kernel has one with many; it neither locks nor links, and
//! it asks for no access (the server lets root do all). Files are those of one [`store::Store`], so that a control with
//! FUSE above a local folder differs from NFS in the calls alone. Protocol: RFC 1813, by the crates `nfs3_client` and
//! `nfs3_server`. Errors: those of the system, by their numbers.

mod fuse;
mod held;
mod local;
mod opened;
mod remote;
mod server;
mod store;

use std::path::Path;
use std::sync::Arc;

use self::local::Local;
use self::opened::Reach;
use self::remote::Remote;
use self::store::Store;
use crate::cli::{LabExportArgs, LabImportArgs};
use crate::commands::session::Interrupt;

/// Serves a folder until it is ended.
pub(super) fn export(args: &LabExportArgs) -> miette::Result<()> {
    let reach = if args.past { Reach::Past } else { Reach::Cached };
    let local =
        Local::open(&args.folder, reach).map_err(|error| failed("export", &args.folder, &error))?;
    server::run(local, args.listen)
        .map_err(|error| miette::miette!("cannot serve NFS at {}: {error}", args.listen))
}

/// Mounts what a server exports, or a folder of this machine, until it is unmounted or this is interrupted.
pub(super) fn import(args: &LabImportArgs) -> miette::Result<()> {
    let interrupt = Interrupt::watch()?;
    let (store, source): (Arc<dyn Store>, String) = match (&args.server, &args.folder) {
        (Some(server), _) => {
            let remote = Remote::connect(*server, args.sync)
                .map_err(|why| miette::miette!("cannot import from {server}: {why}"))?;
            (Arc::new(remote), format!("{server}:/"))
        }
        (None, Some(folder)) => {
            let local =
                Local::open(folder, Reach::Past).map_err(|error| failed("open", folder, &error))?;
            (Arc::new(local), folder.display().to_string())
        }
        (None, None) => return Err(miette::miette!("expected --server or --folder, seen neither")),
    };
    let calls = fuse::Calls { of: Arc::clone(&store), file: args.calls.as_deref() };
    let mounted = fuse::mount(store, &args.point, &source, args.call_bytes)
        .map_err(|error| failed("mount at", &args.point, &error))?;
    fuse::wait(mounted, &interrupt, &calls).map_err(|error| failed("unmount", &args.point, &error))
}

fn failed(doing: &str, place: &Path, error: &dyn std::fmt::Display) -> miette::Report {
    miette::miette!("cannot {doing} {}: {error}", place.display())
}
